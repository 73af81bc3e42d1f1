//! [`TrainedNetwork`]: the parameters of a trained model, and its compiled prediction programs.

use gatework_engine::Program;
use gatework_engine::program::{WeightFormat, Weights, WeightsBuilder};

use super::error::NetworkError;
use super::forecast::{Forecast, ForecastKind};
use super::programs::{ModelMemory, Programs};
use super::quantization::Precision;
use crate::data::Batch;
use crate::models::{DeepAr, Model};
use crate::network::feed::check_batch;
use crate::specification::{Mode, Specification};
use gatework_train::params::Params;

/// Maximum number of windows per run of the program; larger batches take several runs.
pub const MAX_ROWS: usize = 256;

/// A trained network: parameters, and the programs that run them on batches of scaled windows.
///
/// ```
/// use gatework_forecast::data::Batch;
/// use gatework_forecast::{TrainedNetwork, Specification};
///
/// let text = "model = 'nlinear'\ninput = 48\nhorizon = 12";
/// let specification: Specification = toml::from_str(text)?;
/// let params = specification.params(1)?; // here untrained
/// let mut network = TrainedNetwork::new(specification, params)?;
///
/// let bytes = network.to_bytes();
/// let mut again = TrainedNetwork::from_bytes(&bytes)?;
/// let batch = Batch::new(again.specification().shape(3));
/// let forecast = again.predict(&batch)?;
/// assert_eq!((forecast.rows, forecast.horizon), (3, 12));
/// assert_eq!(forecast.point(0, 0), network.predict(&batch)?.point(0, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TrainedNetwork {
    specification: Specification,
    /// Names and shapes of the parameters, in the order of their creation.
    parameters: Vec<(String, Vec<usize>)>,
    precision: Precision,
    /// Kind of its forecasts, and numbers per step.
    kind: ForecastKind,
    outputs: usize,
    /// Further data stored in the model file: the [`Context`](crate::prediction::Context) of a [`Forecaster`](crate::Forecaster).
    pub metadata: serde_json::Value,
    programs: Programs,
}

impl TrainedNetwork {
    /// Creates a network from trained parameters.
    #[expect(clippy::needless_pass_by_value, reason = "the parameters are packed, and not needed afterwards")]
    pub fn new(specification: Specification, params: Params) -> Result<TrainedNetwork, NetworkError> {
        let (parameters, _) = specification.counted_parameters()?;
        let fits = parameters.len() == params.tensors().len()
            && parameters
                .iter()
                .zip(params.tensors())
                .all(|(a, b)| (&a.name, &a.shape) == (&b.name, &b.shape));
        if !fits {
            return Err(NetworkError::Parameters(format!(
                "the parameters do not belong to {} with input {} and horizon {}",
                specification.model.name(),
                specification.input,
                specification.horizon
            )));
        }
        TrainedNetwork::build(specification, Precision::F32, |name, _, weights| {
            let values = params.get(name).map_or(&[][..], |tensor| &params.values[tensor.range.clone()]);
            write_finite(weights, name, values)
        })
    }

    /// Creates a network whose weights are written one by one by `write`, which is given the name and the shape.
    pub(super) fn build(
        specification: Specification,
        precision: Precision,
        mut write: impl FnMut(&str, &[usize], &mut WeightsBuilder) -> Result<(), NetworkError>,
    ) -> Result<TrainedNetwork, NetworkError> {
        let parameters: Vec<(String, Vec<usize>)> = specification
            .counted_parameters()?
            .0
            .into_iter()
            .map(|parameter| (parameter.name, parameter.shape))
            .collect();
        let elements = parameters.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum::<usize>();
        specification.check_memory(1, elements.saturating_mul(size_of::<f32>()))?;
        let (kind, outputs) = kind_of(&specification);
        let mut weights = weights_builder(&specification, &parameters, precision)?;
        for (name, shape) in &parameters {
            write(name, shape, &mut weights)?;
        }
        let programs = Programs::new(weights.finish()?, elements);
        let metadata = serde_json::Value::Null;
        Ok(TrainedNetwork { specification, parameters, precision, kind, outputs, metadata, programs })
    }

    /// Returns the specification.
    pub fn specification(&self) -> &Specification {
        &self.specification
    }

    /// Returns a copy of the parameters, without gradients. The network itself holds them packed for multiplication; those of
    /// quantised networks are rounded.
    pub fn params(&self) -> Params {
        let mut params = Params::new();
        for (name, shape) in &self.parameters {
            let values = self.programs.weights().read(name).unwrap_or_default();
            params.add(name, shape, |i| values[i]);
        }
        params
    }

    /// Returns the names and shapes of the parameters.
    pub fn parameters(&self) -> &[(String, Vec<usize>)] {
        &self.parameters
    }

    /// Returns the number of parameters.
    pub fn parameter_count(&self) -> usize {
        self.parameters.iter().map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    /// Returns the number of parameters that are multiplied as 8-bit integers.
    pub fn integer_parameters(&self) -> usize {
        let quantised = self.weights().names_of(WeightFormat::Int8);
        let of = self.parameters.iter().filter(|(name, _)| quantised.contains(&name.as_str()));
        of.map(|(_, shape)| shape.iter().product::<usize>()).sum()
    }

    /// Returns the numbers per step of its forecasts.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Returns the number format of the weights.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Returns the weights.
    pub(super) fn weights(&self) -> &Weights {
        self.programs.weights()
    }

    /// Returns the bytes that the network takes in memory.
    pub fn memory(&self) -> ModelMemory {
        self.programs.memory()
    }

    /// Compiles and runs the programs for these numbers of windows, so that the next forecasts take no longer than later
    /// ones. Loading a model warms up one window.
    pub fn warm_up(&self, sizes: &[usize]) -> Result<(), NetworkError> {
        let mut forecast = Forecast::empty();
        for &rows in sizes {
            let batch = Batch::new(self.specification.shape(rows.clamp(1, MAX_ROWS)));
            self.predict_into(&batch, &mut forecast)?;
        }
        Ok(())
    }

    /// Forecasts the windows of a batch. Targets are not read.
    pub fn predict(&self, batch: &Batch) -> Result<Forecast, NetworkError> {
        let mut forecast = Forecast::empty();
        self.predict_into(batch, &mut forecast)?;
        Ok(forecast)
    }

    /// Forecasts like [`TrainedNetwork::predict`], reusing the memory of `forecast`.
    pub fn predict_into(&self, batch: &Batch, forecast: &mut Forecast) -> Result<(), NetworkError> {
        check_batch(self.specification.shape(0), batch, false)?;
        let specification = &self.specification;
        let (rows, horizon, outputs) = (batch.shape.rows, specification.horizon, self.outputs);
        (forecast.rows, forecast.horizon, forecast.outputs) = (rows, horizon, outputs);
        if forecast.kind != self.kind {
            forecast.kind = self.kind.clone();
        }
        let numbers = rows * horizon * outputs;
        if numbers > forecast.values.capacity() {
            specification.check_memory(rows, numbers * size_of::<f32>())?;
        }
        forecast.values.resize(numbers, 0.0);
        match self.sampled_model() {
            Some(model) => self.programs.sample(specification, model, batch, &mut forecast.values),
            None => self.programs.predict(specification, batch, &mut forecast.values),
        }
    }

    /// Returns the programs that [`TrainedNetwork::predict`] runs for this many windows, each with a description. They are
    /// compiled if necessary.
    pub fn programs(&self, rows: usize) -> Result<Vec<(&'static str, Program)>, NetworkError> {
        self.programs.describe(&self.specification, self.sampled_model(), rows)
    }

    /// Returns the model if it draws samples.
    fn sampled_model(&self) -> Option<&DeepAr> {
        match (&self.specification.model, &self.kind) {
            (Model::DeepAr(model), ForecastKind::Samples) => Some(model),
            _ => None,
        }
    }

    /// Returns the model with quantised parameters, and their size in bytes in the model file.
    pub fn with_precision(&self, precision: Precision) -> Result<(TrainedNetwork, usize), NetworkError> {
        let mut params = self.params();
        // Integer matrix multiplication quantises its weights itself, with one scale per output.
        let weights = weights_builder(&self.specification, &self.parameters, precision)?;
        let bytes = precision.round(&mut params, &weights.names_of(WeightFormat::Int8));
        if params.values.iter().any(|value| !value.is_finite()) {
            let message = format!("a parameter is too large for {}", precision.name());
            return Err(NetworkError::Parameters(message));
        }
        let mut network =
            TrainedNetwork::build(self.specification.clone(), precision, |name, _, weights| {
                let values = params.get(name).map_or(&[][..], |tensor| &params.values[tensor.range.clone()]);
                Ok(weights.write(name, values)?)
            })?;
        network.metadata = self.metadata.clone();
        Ok((network, bytes))
    }
}

/// Returns the kind of the forecasts of a model, and the numbers per step.
fn kind_of(specification: &Specification) -> (ForecastKind, usize) {
    match (&specification.model, specification.loss.distribution()) {
        (Model::DeepAr(model), Some(_)) => (ForecastKind::Samples, model.samples),
        (_, Some(distribution)) => (ForecastKind::Distribution(distribution), distribution.parameters()),
        _ => match specification.loss.levels() {
            Some(levels) => (ForecastKind::Quantiles(levels.to_vec()), levels.len()),
            None => (ForecastKind::Point, 1),
        },
    }
}

/// Returns empty weights in the form that the programs of a model read. Models that draw samples do not multiply integers.
fn weights_builder(
    specification: &Specification,
    parameters: &[(String, Vec<usize>)],
    precision: Precision,
) -> Result<WeightsBuilder, NetworkError> {
    let format = match (precision, kind_of(specification).0) {
        (Precision::F16, _) => WeightFormat::F16,
        (Precision::Int8, kind) if kind != ForecastKind::Samples => WeightFormat::Int8,
        _ => WeightFormat::F32,
    };
    let (graph, _) = specification.network(1, Mode::Prediction)?;
    let names: Vec<&str> = parameters.iter().map(|(name, _)| name.as_str()).collect();
    Ok(Weights::builder(&graph, &names, format)?)
}

/// Writes weights, which must be finite.
pub(super) fn write_finite(
    weights: &mut WeightsBuilder,
    name: &str,
    values: &[f32],
) -> Result<(), NetworkError> {
    if values.iter().any(|value| !value.is_finite()) {
        let message = format!("parameter {name:?} is not finite: training has diverged");
        return Err(NetworkError::Parameters(message));
    }
    Ok(weights.write(name, values)?)
}

#[cfg(test)]
mod tests;
