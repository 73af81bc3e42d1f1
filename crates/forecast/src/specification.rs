//! The specification of a forecaster: a model, its loss and its window sizes, which together determine its network.

use gatework_engine::{Graph, GraphError, Half};
use serde::{Deserialize, Serialize};

use crate::data::BatchShape;
use crate::models::{Model, SettingError};
use crate::network::inputs::Inputs;
use crate::network::loss::Loss;
use crate::network::normalization::Normalization;
use crate::network::{Bindings, Network, Parameter, Tensor};
use gatework_train::memory::{self, OutOfMemory};
use gatework_train::model::initial_params;
use gatework_train::params::Params;

/// A model, its loss and the sizes of its windows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Specification {
    /// The model.
    pub model: Model,
    /// The training loss.
    #[serde(default)]
    pub loss: Loss,
    /// Normalisation of windows; `None` is the default of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalization: Option<Normalization>,
    /// Observed values per window.
    pub input: usize,
    /// Steps to forecast.
    pub horizon: usize,
    /// Number of past covariates.
    #[serde(default)]
    pub past_columns: usize,
    /// Number of known-future covariates.
    #[serde(default)]
    pub future_columns: usize,
    /// Number of static covariates.
    #[serde(default)]
    pub static_columns: usize,
}

/// The outputs of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Loss and gradients, with dropout.
    Training,
    /// The loss.
    Evaluation,
    /// The forecast.
    Prediction,
}

/// An invalid specification. Each variant knows the setting that causes it: see [`SpecificationError::key`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecificationError {
    /// The input, the horizon or a number of columns is out of range.
    #[error("model {model}: {setting} is {found}, but must be in {min} to {MAX_SIZE}")]
    Size {
        /// Name of the model.
        model: &'static str,
        /// Name of the field.
        setting: &'static str,
        /// Its value.
        found: usize,
        /// The smallest valid value.
        min: usize,
    },
    /// A setting of the loss is out of range, or the model does not support the loss.
    #[error("model {model}: {problem}")]
    Loss {
        /// Name of the model.
        model: &'static str,
        /// Which setting, and what it must be.
        problem: String,
    },
    /// The normalisation is not valid for the loss.
    #[error(
        "model {model}: the loss \"negative-binomial\" needs counts; set normalization to \"scale\" or \"none\""
    )]
    Normalization {
        /// Name of the model.
        model: &'static str,
    },
    /// A setting of the model is out of range.
    #[error("model {model}: {error}")]
    Model {
        /// Name of the model.
        model: &'static str,
        /// Which setting, and what it must be.
        error: SettingError,
    },
    /// The model has too many parameters.
    #[error(
        "model {model}: its settings make {millions} million parameters, which take 20 bytes each in training; the limit is {} million",
        MAX_PARAMETERS / 1e6
    )]
    TooManyParameters {
        /// Name of the model.
        model: &'static str,
        /// Number of parameters, in millions.
        millions: u64,
    },
    /// The parameters do not fit into memory.
    #[error("model {model}: {error}")]
    Memory {
        /// Name of the model.
        model: &'static str,
        /// How much they need.
        error: OutOfMemory,
    },
    /// The graph of the model cannot be built for these sizes.
    #[error("model {model} with input {input} and horizon {horizon}: {error}")]
    Graph {
        /// Name of the model.
        model: &'static str,
        /// Observed values per window.
        input: usize,
        /// Steps to forecast.
        horizon: usize,
        /// The operation that failed, and why.
        error: GraphError,
    },
}

impl SpecificationError {
    /// Returns the path of the setting that causes the error, as an experiment file names it.
    pub fn key(&self) -> Vec<&'static str> {
        match self {
            SpecificationError::Size { setting: setting @ ("input" | "horizon"), .. } => vec![setting],
            SpecificationError::Size { .. } => vec!["columns"],
            SpecificationError::Loss { .. } => vec!["loss"],
            SpecificationError::Normalization { .. } => vec!["normalization"],
            SpecificationError::Model { error, .. } => vec!["model", error.setting],
            SpecificationError::TooManyParameters { .. }
            | SpecificationError::Memory { .. }
            | SpecificationError::Graph { .. } => vec!["model"],
        }
    }
}

/// Maximum input, horizon and number of columns.
const MAX_SIZE: usize = 10_000;

/// Maximum number of parameters. They take 10 GB in training.
const MAX_PARAMETERS: f64 = 0.5e9;

/// Bytes of a parameter in training: value, gradient, two moments and the best value so far.
pub(crate) const TRAINING_BYTES: f64 = 20.0;

/// Name of the input that the loss is multiplied by.
pub(crate) const WEIGHT: &str = "weight";

/// Name of the input that the gradients are multiplied by, if activations are stored as `f16`.
pub(crate) const LOSS_SCALE: &str = "loss_scale";

/// Returns the name of the output with the gradient of a parameter.
pub(crate) fn gradient_name(parameter: &str) -> String {
    format!("gradient.{parameter}")
}

impl Specification {
    /// Returns the sizes of a batch of this many windows.
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

    /// Returns the normalisation of windows.
    pub fn normalization(&self) -> Normalization {
        self.normalization.unwrap_or_else(|| self.model.default_normalization())
    }

    /// Checks that every setting is in its range; the error names the first one that is not.
    pub fn check(&self) -> Result<(), SpecificationError> {
        let model = self.model.name();
        for (setting, found, min) in [
            // First, since the input follows from it by default.
            ("horizon", self.horizon, 1),
            ("input", self.input, 1),
            ("past_columns", self.past_columns, 0),
            ("future_columns", self.future_columns, 0),
            ("static_columns", self.static_columns, 0),
        ] {
            if !(min..=MAX_SIZE).contains(&found) {
                return Err(SpecificationError::Size { model, setting, found, min });
            }
        }
        let invalid_loss = |problem: String| SpecificationError::Loss { model, problem };
        self.loss.check().map_err(invalid_loss)?;
        if self.loss == Loss::NegativeBinomial
            && matches!(self.normalization(), Normalization::Instance | Normalization::Last)
        {
            return Err(SpecificationError::Normalization { model });
        }
        if matches!(self.model, Model::DeepAr(_)) && self.loss.distribution().is_none() {
            let losses = "\"gaussian\", \"student-t\" or \"negative-binomial\"";
            return Err(invalid_loss(format!("it forecasts distributions; set loss to {losses}")));
        }
        self.model.check(&self.shape(1)).map_err(|error| SpecificationError::Model { model, error })
    }

    /// Returns an error if the memory of a program for batches of this many windows is not available.
    pub(crate) fn check_memory(&self, rows: usize, bytes: usize) -> Result<(), OutOfMemory> {
        memory::check(bytes as f64, || {
            let Specification { model, input, horizon, .. } = self;
            format!(
                "model {} with input {input}, horizon {horizon} and {rows} windows at a time",
                model.name()
            )
        })
    }

    /// Builds the network for batches of this many windows, with its parameters and dropout masks.
    ///
    /// Inputs are named after the fields of [`Batch`](crate::data::Batch), parameters by their names. Outputs are `forecast`,
    /// or `loss` and a gradient for each parameter.
    pub fn network(&self, rows: usize, mode: Mode) -> Result<(Graph, Bindings), SpecificationError> {
        self.build(rows, mode, None)
    }

    /// Builds the network for training like [`Specification::network`]. The backward pass reads activations in a
    /// 16-bit format, if one is given; gradients with activations in `f16` are multiplied by the input `loss_scale`.
    pub fn training_network(
        &self,
        rows: usize,
        activations: Option<Half>,
    ) -> Result<(Graph, Bindings), SpecificationError> {
        self.build(rows, Mode::Training, activations)
    }

    fn build(
        &self,
        rows: usize,
        mode: Mode,
        activations: Option<Half>,
    ) -> Result<(Graph, Bindings), SpecificationError> {
        self.check()?;
        let network =
            if mode == Mode::Training { Network::for_training() } else { Network::for_prediction() };
        let with_target = mode != Mode::Prediction;
        let x = Inputs::new(&network, self.shape(rows), &self.loss, with_target);
        let (forecast, loss) = self.forward(&x);
        let graph = match (mode, loss) {
            (Mode::Training, Some(loss)) => training_graph(&network, loss, activations),
            (Mode::Evaluation, Some(loss)) => network.finish(&[("loss", loss)]),
            _ => network.finish(&[("forecast", forecast)]),
        };
        graph.map_err(|error| SpecificationError::Graph {
            model: self.model.name(),
            input: self.input,
            horizon: self.horizon,
            error,
        })
    }

    /// Builds the forecast of the horizon, and its loss if targets are given.
    pub(crate) fn forward<'n>(&self, x: &Inputs<'n>) -> (Tensor<'n>, Option<Tensor<'n>>) {
        let statistics = self.normalization().statistics(x.past);
        let normal = Inputs {
            past: statistics.normalize(x.past),
            target: x.target.map(|target| statistics.normalize(target)),
            ..*x
        };
        let forecast = self.loss.forecast(self.model.forward(&normal), &statistics);
        // A model may also forecast steps of the window, which are part of the loss.
        let steps = forecast.size(1);
        let loss = x.target.map(|target| {
            let targets = if steps > self.horizon {
                let all = x.network.concat(&[x.past, target], 1);
                all.slice(1, self.input + self.horizon - steps, self.input + self.horizon)
            } else {
                target
            };
            self.loss.of(forecast, targets) * x.network.input(WEIGHT, &[])
        });
        (forecast.slice(1, steps - self.horizon, steps), loss)
    }

    /// Returns the parameters; an error if there are too many, or not enough memory to train them.
    pub fn parameters(&self) -> Result<Vec<Parameter>, SpecificationError> {
        let (parameters, count) = self.counted_parameters()?;
        let what = || format!("training {:.1} million parameters", count / 1e6);
        memory::check(count * TRAINING_BYTES, what)
            .map_err(|error| SpecificationError::Memory { model: self.model.name(), error })?;
        Ok(parameters)
    }

    /// Returns the parameters and the number of their values; an error if there are too many.
    pub(crate) fn counted_parameters(&self) -> Result<(Vec<Parameter>, f64), SpecificationError> {
        let (_, bindings) = self.network(1, Mode::Evaluation)?;
        let sizes =
            bindings.parameters.iter().map(|p| p.shape.iter().map(|&size| size as f64).product::<f64>());
        let count: f64 = sizes.sum();
        if count > MAX_PARAMETERS {
            let millions = (count / 1e6).round() as u64;
            return Err(SpecificationError::TooManyParameters { model: self.model.name(), millions });
        }
        Ok((bindings.parameters, count))
    }

    /// Returns the parameters with the initial values of a seed.
    pub fn params(&self, seed: u64) -> Result<Params, SpecificationError> {
        let (parameters, _) = self.counted_parameters()?;
        Ok(initial_params(&parameters, seed))
    }
}

fn training_graph(
    network: &Network,
    loss: Tensor<'_>,
    activations: Option<Half>,
) -> Result<(Graph, Bindings), GraphError> {
    let scale = (activations == Some(Half::F16)).then(|| network.input(LOSS_SCALE, &[]));
    let gradients = network.gradients(loss, scale, activations);
    let (_, bindings) = network.finish(&[])?;
    let names: Vec<String> = bindings.parameters.iter().map(|p| gradient_name(&p.name)).collect();
    let mut outputs = vec![("loss", loss)];
    // From the last layer to the first: the backward pass then needs each activation for a short time.
    outputs.extend(names.iter().map(String::as_str).zip(gradients).rev());
    network.finish(&outputs)
}

#[cfg(test)]
mod tests {
    use std::error::Error;

    use gatework_engine::Program;
    use gatework_train::trainer::TrainError;

    use super::*;
    use crate::models::{Nhits, Tcn};

    /// An error and its causes, as the command line prints them.
    fn with_causes(error: &dyn Error) -> String {
        let causes = std::iter::successors(Some(error), |&error| error.source());
        causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
    }

    /// The activations that exist at the same time. The memory of a runner shrinks less, because 16-bit numbers have an arena of
    /// their own.
    #[test]
    fn activations_in_16_bits_take_at_most_0_6_of_the_memory() {
        for (model, limit) in
            [(Model::Nhits(Nhits { layers: 4, ..Nhits::default() }), 1.05), (Model::Tcn(Tcn::default()), 0.8)]
        {
            let specification = Specification {
                model,
                loss: Loss::Mse,
                normalization: None,
                input: 96,
                horizon: 24,
                past_columns: 0,
                future_columns: 0,
                static_columns: 0,
            };
            let bytes = |activations| {
                let (graph, _) = specification.training_network(64, activations).unwrap();
                let program = Program::new(&graph).unwrap();
                (program.activation_bytes() as f64, program.bytes() as f64)
            };
            let (full, all) = bytes(None);
            for format in Half::ALL {
                let (half, half_all) = bytes(Some(format));
                let name = specification.model.name();
                assert!(half <= 0.6 * full, "{name} {format}: {half} of {full}");
                assert!(half_all <= limit * all, "{name} {format}: {half_all} of {all} in all");
            }
        }
    }

    #[test]
    fn an_error_of_the_graph_is_printed_once() {
        let error = GraphError::OutputExists { name: "loss".into() };
        let model = SpecificationError::Graph { model: "gru", input: 2, horizon: 3, error };
        let expected = "seed 5 failed: model gru with input 2 and horizon 3: output \"loss\": an output of that name exists already";
        assert_eq!(with_causes(&TrainError::Task { seed: 5, source: model.into() }), expected);
    }
}
