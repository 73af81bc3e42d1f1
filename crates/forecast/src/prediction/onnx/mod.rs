//! Forecasters as ONNX models: scaling, network and inverse scaling in one graph, so that inputs and outputs are in units of
//! the data.
//!
//! The batch size is free. Scaling is computed in 64 bits, as in [`Forecaster::predict`]: a meter at 2e8 that moves by 5 would
//! be lost in 32 bits.
//!
//! | input | sizes, type | |
//! |---|---|---|
//! | `history` | `[batch, input]`, f64 | the values before the forecast, and before them as many as the lag of differences |
//! | `series` | `[batch]`, i64 | the number of the series, if the model was trained on several and scales each |
//! | `past_covariates` | `[batch, input, columns]`, f64 | if the model has any |
//! | `future_covariates` | `[batch, input + horizon, columns]`, f64 | with the calendar features |
//! | `static_covariates` | `[batch, columns]`, f64 | |
//!
//! | output | sizes, type | |
//! |---|---|---|
//! | `forecast` | `[batch, horizon]`, f64 | the point forecast: mean or median |
//! | `quantiles` | `[batch, horizon, levels]`, f64 | in ascending order, for quantile losses without differences |
//! | `standard_deviation`, or `degrees_of_freedom` and `spread`, or `dispersion` | `[batch, horizon]`, f64 | the further parameters of a distribution, for likelihood losses without differences and logarithms |
//!
//! The metadata of the model hold the ids of the series, the quantile levels and the names of the covariates, as JSON.

mod scaling;
#[cfg(test)]
mod tests;

use gatework_engine::onnx::{self, Model as OnnxModel, OnnxError};
use gatework_engine::{DType, Graph, GraphError};

use super::forecaster::Forecaster;
use crate::models::Model;
use crate::network::distribution::Distribution;
use crate::network::inputs::Inputs;
use crate::network::{Network, Tensor};
use crate::specification::SpecificationError;
use crate::trained_network::median_position;
use scaling::{SERIES, WindowScales, binary, cast, input, scaled_columns};

/// A forecaster that cannot be written as an ONNX model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The model draws samples.
    #[error(
        "model {0} draws its forecast from random numbers step by step, which an ONNX graph cannot do; export another model, \
         or serve it with gatework"
    )]
    Samples(&'static str),
    /// The specification is invalid.
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    /// The graph cannot be built.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// The graph cannot be written.
    #[error(transparent)]
    Onnx(#[from] OnnxError),
}

impl Forecaster {
    /// Returns the bytes of an ONNX model that forecasts windows in units of the data, for any batch size.
    pub fn to_onnx(&self) -> Result<Vec<u8>, ExportError> {
        if matches!(self.specification().model, Model::DeepAr(_)) {
            return Err(ExportError::Samples(self.specification().model.name()));
        }
        self.specification().check()?;
        let params = self.network().params();
        let mut model = self.description();
        for tensor in params.tensors() {
            model = model.with_parameter(&tensor.name, &params.values[tensor.range.clone()]);
        }
        onnx::write_batched(|rows| self.window_graph(rows), &model)
    }

    /// Builds the graph of a batch of windows.
    fn window_graph(&self, rows: usize) -> Result<Graph, ExportError> {
        let (specification, scaler) = (self.specification(), &self.context().scaler);
        let shape = specification.shape(rows);
        let network = Network::for_prediction();
        let history = input(&network, "history", &[rows, self.context().min_history(specification)]);
        let scales = WindowScales::new(&network, scaler, rows);
        let [past, future, fixed] = scaler.columns();
        let columns = |name: &str, fits: &[(f64, f64)], sizes: &[usize]| {
            (!fits.is_empty()).then(|| scaled_columns(input(&network, name, sizes), fits))
        };
        let (input, steps) = (shape.input, shape.input + shape.horizon);
        let inputs = Inputs {
            network: &network,
            shape,
            outputs: specification.loss.outputs(),
            distribution: specification.loss.distribution(),
            past: scales.apply(history),
            target: None,
            past_columns: columns("past_covariates", past, &[rows, input, past.len()]),
            future_columns: columns("future_covariates", future, &[rows, steps, future.len()]),
            static_columns: columns("static_covariates", fixed, &[rows, fixed.len()]),
        };
        let (forecast, _) = specification.forward(&inputs);
        let outputs = self.outputs(cast(forecast, DType::F64), &scales, history);
        Ok(network.finish(&outputs)?.0)
    }

    /// Returns the outputs in units of the data, given the forecast of the network, `[rows, horizon, numbers]`.
    fn outputs<'n>(
        &self,
        forecast: Tensor<'n>,
        scales: &WindowScales<'n>,
        history: Tensor<'n>,
    ) -> Vec<(&'static str, Tensor<'n>)> {
        let specification = self.specification();
        let scaling = &self.context().scaler.scaling;
        let number = |x: Tensor<'n>, index: usize| {
            let sizes = [x.size(0), x.size(1)];
            x.slice(2, index, index + 1).reshape(&sizes)
        };
        if let Some(distribution) = specification.loss.distribution() {
            let point = number(forecast, distribution.location());
            let mut outputs = vec![("forecast", scales.invert(point, history))];
            if scaling.difference == 0 && !scaling.log {
                let dispersion = |index: usize| scales.invert_dispersion(number(forecast, index));
                outputs.extend(match distribution {
                    Distribution::Gaussian => vec![("standard_deviation", dispersion(1))],
                    Distribution::StudentT => {
                        vec![("degrees_of_freedom", number(forecast, 0)), ("spread", dispersion(2))]
                    }
                    Distribution::NegativeBinomial => vec![("dispersion", number(forecast, 1))],
                });
            }
            return outputs;
        }
        let Some(levels) = specification.loss.levels() else {
            return vec![("forecast", scales.invert(number(forecast, 0), history))];
        };
        let sorted = sorted(forecast);
        let (left, right, fraction) = median_position(levels);
        let (below, above) = (number(sorted, left), number(sorted, right));
        let point = if fraction == 0.0 { below } else { below + (above - below) * fraction };
        let mut outputs = vec![("forecast", scales.invert(point, history))];
        // Quantiles of differences cannot be summed.
        if scaling.difference == 0 {
            let sizes = [sorted.size(0), sorted.size(1), 1];
            let quantile = |index: usize| scales.invert(number(sorted, index), history).reshape(&sizes);
            let quantiles: Vec<Tensor<'n>> = (0..levels.len()).map(quantile).collect();
            outputs.push(("quantiles", sorted.network().concat(&quantiles, 2)));
        }
        outputs
    }

    /// Returns the texts of the model.
    fn description(&self) -> OnnxModel<'_> {
        let (specification, context) = (self.specification(), self.context());
        let json = |list: &[String]| serde_json::to_string(list).unwrap_or_default();
        let future: Vec<String> =
            context.columns.future.iter().cloned().chain(context.calendar.names()).collect();
        let text = format!(
            "{} forecasts {} steps from {} values, in units of the data",
            specification.model.name(),
            specification.horizon,
            context.min_history(specification)
        );
        let mut model = OnnxModel::named(&context.name)
            .with_description(&text)
            .with_metadata("frequency", &context.frequency)
            .with_documented("history", "the values before the forecast, the latest last")
            .with_documented(SERIES, "the number of the series in the list \"series\" of the metadata")
            .with_documented("forecast", "point forecasts of the steps after the history");
        for (key, list) in [
            ("series", context.scaler.ids()),
            ("past_covariates", &context.columns.past),
            ("future_covariates", &future),
            ("static_covariates", &context.columns.fixed),
        ] {
            if !list.is_empty() {
                model = model.with_metadata(key, &json(list));
            }
        }
        if let Some(levels) = specification.loss.levels() {
            let levels: Vec<String> = levels.iter().map(f64::to_string).collect();
            model = model.with_metadata("quantile_levels", &format!("[{}]", levels.join(",")));
        }
        model
    }
}

/// Sorts the last axis of `[rows, steps, numbers]` in ascending order, by odd-even transposition: in every round, neighbours
/// in the wrong order are exchanged.
fn sorted(mut x: Tensor<'_>) -> Tensor<'_> {
    let (rows, steps, numbers) = (x.size(0), x.size(1), x.size(2));
    for round in 0..if numbers > 1 { numbers } else { 0 } {
        let first = round % 2;
        let pairs = (numbers - first) / 2;
        let every_other =
            |begin: usize| x.network().build(|graph| graph.slice_by(x.id(), 2, begin, pairs, 2));
        let (a, b) = (every_other(first), every_other(first + 1));
        let exchanged = [Graph::min, Graph::max].map(|op| binary(a, b, op).reshape(&[rows, steps, pairs, 1]));
        let exchanged = x.network().concat(&exchanged, 3).reshape(&[rows, steps, 2 * pairs]);
        let end = first + 2 * pairs;
        x = x.network().concat(&[x.slice(2, 0, first), exchanged, x.slice(2, end, numbers)], 2);
    }
    x
}
