//! The specification of a forecaster: everything that its network follows from.

use gatework_engine::{Graph, GraphError};
use serde::{Deserialize, Serialize};

use crate::data::BatchShape;
use crate::models::Model;
use crate::network::inputs::Inputs;
use crate::network::loss::Loss;
use crate::network::normalization::Normalization;
use crate::network::{Network, Parameter, Parts, Start, Tensor};
use gatework_train::params::Params;
use gatework_train::random::{Purpose, Random};

/// A model, what it is trained for, and the windows it reads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// The model.
    pub model: Model,
    /// What training makes smaller.
    #[serde(default)]
    pub loss: Loss,
    /// How windows are normalised; if not given, as is usual for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalization: Option<Normalization>,
    /// Observed values of a window.
    pub input: usize,
    /// Values to be forecast.
    pub horizon: usize,
    /// Columns that are known up to the present.
    #[serde(default)]
    pub past_columns: usize,
    /// Columns that are known in advance.
    #[serde(default)]
    pub future_columns: usize,
    /// Columns of the series as a whole.
    #[serde(default)]
    pub static_columns: usize,
}

/// What a network is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Loss and gradients.
    Training,
    /// The loss alone.
    Evaluation,
    /// The forecast.
    Prediction,
}

/// A specification that cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpecificationError {
    /// A setting is out of its range.
    #[error("model {model}: {problem}")]
    Setting {
        /// The name of the model.
        model: &'static str,
        /// Which one, and what it must be.
        problem: String,
    },
    /// The sizes do not fit together.
    #[error("model {model} with {input} values in and {horizon} out: {error}")]
    Graph {
        /// The name of the model.
        model: &'static str,
        /// Observed values.
        input: usize,
        /// Values to be forecast.
        horizon: usize,
        /// Where and why.
        error: GraphError,
    },
}

/// The longest window, the longest horizon and the most columns.
const MOST: usize = 10_000;

/// The most parameters: values, gradients, two moments and the best so far of as many take 10 GB.
const MOST_PARAMETERS: f64 = 0.5e9;

/// Name of the input that the loss of a network is multiplied with.
pub(crate) const WEIGHT: &str = "weight";

/// Name of the output with a parameter's gradient.
pub(crate) fn gradient_name(parameter: &str) -> String {
    format!("gradient.{parameter}")
}

impl Specification {
    /// The sizes of batches of so many windows.
    pub fn shape(&self, rows: usize) -> BatchShape {
        BatchShape {
            rows,
            input: self.input,
            horizon: self.horizon,
            past_columns: self.past_columns,
            future_columns: self.future_columns,
            static_columns: self.static_columns,
        }
    }

    /// How windows are normalised.
    pub fn normalization(&self) -> Normalization {
        self.normalization.unwrap_or_else(|| self.model.usual_normalization())
    }

    /// Whether every setting is in its range; the error names the first one that is not.
    pub fn check(&self) -> Result<(), SpecificationError> {
        let refuse = |problem: String| SpecificationError::Setting { model: self.model.name(), problem };
        for (name, size) in [("input", self.input), ("horizon", self.horizon)] {
            if !(1..=MOST).contains(&size) {
                return Err(refuse(format!("{name} is {size}, but must be in 1 to {MOST}")));
            }
        }
        if [self.past_columns, self.future_columns, self.static_columns].iter().any(|&count| count > MOST) {
            return Err(refuse(format!("there are more than {MOST} columns")));
        }
        self.loss.validate().map_err(refuse)?;
        if self.loss == Loss::NegativeBinomial
            && matches!(self.normalization(), Normalization::Instance | Normalization::Last)
        {
            return Err(refuse(
                "a negative binomial distribution needs counts; set normalization to \"scale\" or \"none\""
                    .into(),
            ));
        }
        if matches!(self.model, Model::DeepAr(_)) && self.loss.distribution().is_none() {
            let losses = "\"gaussian\", \"student-t\" or \"negative-binomial\"";
            return Err(refuse(format!("it forecasts distributions; set loss to {losses}")));
        }
        self.model.check(&self.shape(1)).map_err(refuse)
    }

    /// The network for batches of so many windows, and the parameters and masks it needs.
    ///
    /// Inputs are named as the fields of [`Batch`](crate::data::Batch), parameters by their names; outputs are
    /// `forecast`, or `loss` and a gradient for each parameter.
    pub fn network(&self, rows: usize, what_for: Use) -> Result<(Graph, Parts), SpecificationError> {
        self.check()?;
        let network =
            if what_for == Use::Training { Network::for_training() } else { Network::for_prediction() };
        let with_target = what_for != Use::Prediction;
        let x = Inputs::new(&network, self.shape(rows), &self.loss, with_target);
        let (forecast, loss) = self.forward(&x);
        let graph = match (what_for, loss) {
            (Use::Training, Some(loss)) => training_graph(&network, loss),
            (Use::Evaluation, Some(loss)) => network.finish(&[("loss", loss)]),
            _ => network.finish(&[("forecast", forecast)]),
        };
        graph.map_err(|error| SpecificationError::Graph {
            model: self.model.name(),
            input: self.input,
            horizon: self.horizon,
            error,
        })
    }

    /// The forecast for the horizon, and its loss if what came is known.
    fn forward<'n>(&self, x: &Inputs<'n>) -> (Tensor<'n>, Option<Tensor<'n>>) {
        let frame = self.normalization().frame(x.past);
        let normal =
            Inputs { past: frame.apply(x.past), target: x.target.map(|target| frame.apply(target)), ..*x };
        let forecast = self.loss.forecast(self.model.forward(&normal), &frame);
        // A model may forecast the later steps of the window too: they are trained alike.
        let steps = forecast.size(1);
        let loss = x.target.map(|target| {
            let known = if steps > self.horizon {
                let all = x.network.concat(&[x.past, target], 1);
                all.slice(1, self.input + self.horizon - steps, self.input + self.horizon)
            } else {
                target
            };
            self.loss.of(forecast, known) * x.network.input(WEIGHT, &[])
        });
        (forecast.slice(1, steps - self.horizon, steps), loss)
    }

    /// The parameters; an error if they are too many for training.
    pub fn parameters(&self) -> Result<Vec<Parameter>, SpecificationError> {
        let (_, parts) = self.network(1, Use::Evaluation)?;
        let sizes = parts.parameters.iter().map(|p| p.shape.iter().map(|&size| size as f64).product::<f64>());
        let count: f64 = sizes.sum();
        if count > MOST_PARAMETERS {
            let problem = format!(
                "its settings make {:.0} million parameters, and training takes 20 bytes for each; the limit is {:.0} million",
                count / 1e6,
                MOST_PARAMETERS / 1e6
            );
            return Err(SpecificationError::Setting { model: self.model.name(), problem });
        }
        Ok(parts.parameters)
    }

    /// The parameters, with the start values of a seed.
    pub fn params(&self, seed: u64) -> Result<Params, SpecificationError> {
        let parameters = self.parameters()?;
        let mut params = Params::new();
        for (index, parameter) in parameters.iter().enumerate() {
            add_parameter(&mut params, parameter, Random::new(seed, Purpose::Parameters, index as u64));
        }
        Ok(params)
    }
}

fn training_graph(network: &Network, loss: Tensor<'_>) -> Result<(Graph, Parts), GraphError> {
    let gradients = network.gradients(loss);
    let (_, parts) = network.finish(&[])?;
    let names: Vec<String> = parts.parameters.iter().map(|p| gradient_name(&p.name)).collect();
    let mut outputs = vec![("loss", loss)];
    outputs.extend(names.iter().map(String::as_str).zip(gradients));
    network.finish(&outputs)
}

fn add_parameter(params: &mut Params, parameter: &Parameter, mut random: Random) {
    let Parameter { name, shape, start } = parameter;
    params.add(name, shape, |i| match start {
        Start::Constant(value) => *value,
        Start::Uniform(bound) => ((2.0 * f64::from(random.uniform()) - 1.0) * bound) as f32,
        Start::Values(values) => values.get(i).copied().unwrap_or(0.0),
    });
}
