//! [`TrainedNetwork`]: the parameters of a trained model, and its compiled prediction programs.

use std::ops::Range;

use gatework_engine::{Program, Runner, parallel, program::ProgramError};

use super::error::NetworkError;
use super::forecast::{Forecast, ForecastKind};
use super::quantization::Precision;
use super::sampling::Sampler;
use crate::data::Batch;
use crate::models::Model;
use crate::network::feed::{check_batch, write_padded};
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
    params: Params,
    precision: Precision,
    /// Kind of its forecasts, and numbers per step.
    kind: ForecastKind,
    outputs: usize,
    /// Further data stored in the model file: the [`Context`](crate::prediction::Context) of a [`Forecaster`](crate::Forecaster).
    pub metadata: serde_json::Value,
    /// Programs for 1, 2, 4, ... windows, compiled on demand.
    runners: Vec<Option<Runner>>,
    /// Buffer for batches smaller than their program.
    padded: Vec<f32>,
    sampler: Option<Sampler>,
}

impl TrainedNetwork {
    /// Creates a network from trained parameters.
    pub fn new(specification: Specification, params: Params) -> Result<TrainedNetwork, NetworkError> {
        let (_, bindings) = specification.network(1, Mode::Evaluation)?;
        let fits = bindings.parameters.len() == params.tensors().len()
            && bindings
                .parameters
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
        let is_finite = |range: Range<usize>| params.values[range].iter().all(|value| value.is_finite());
        if let Some(tensor) = params.tensors().iter().find(|tensor| !is_finite(tensor.range.clone())) {
            let message = format!("parameter {:?} is not finite: training has diverged", tensor.name);
            return Err(NetworkError::Parameters(message));
        }
        let (kind, outputs) = match (&specification.model, specification.loss.distribution()) {
            (Model::DeepAr(model), Some(_)) => (ForecastKind::Samples, model.samples),
            (_, Some(distribution)) => (ForecastKind::Distribution(distribution), distribution.parameters()),
            _ => match specification.loss.levels() {
                Some(levels) => (ForecastKind::Quantiles(levels.to_vec()), levels.len()),
                None => (ForecastKind::Point, 1),
            },
        };
        let runners = vec![None; MAX_ROWS.ilog2() as usize + 1];
        let metadata = serde_json::Value::Null;
        Ok(TrainedNetwork {
            specification,
            params,
            precision: Precision::F32,
            kind,
            outputs,
            metadata,
            runners,
            padded: Vec::new(),
            sampler: None,
        })
    }

    /// Returns the specification.
    pub fn specification(&self) -> &Specification {
        &self.specification
    }

    /// Returns the parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Forecasts the windows of a batch. Targets are not read.
    pub fn predict(&mut self, batch: &Batch) -> Result<Forecast, NetworkError> {
        let mut forecast = Forecast::empty();
        self.predict_into(batch, &mut forecast)?;
        Ok(forecast)
    }

    /// Forecasts like [`TrainedNetwork::predict`], reusing the memory of `forecast`.
    pub fn predict_into(&mut self, batch: &Batch, forecast: &mut Forecast) -> Result<(), NetworkError> {
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
        if let Some(sampler) = self.sampler()? {
            return Ok(sampler.sample(batch, &mut forecast.values)?);
        }
        for (part, values) in forecast.values.chunks_mut(MAX_ROWS * horizon * outputs).enumerate() {
            let begin = part * MAX_ROWS;
            let count = values.len() / (horizon * outputs);
            let place = self.compile(count)?;
            let Some(runner) = &mut self.runners[place] else { continue };
            write_padded(runner, batch, begin..begin + count, 1 << place, &mut self.padded)?;
            parallel::with_spinning_workers(self.params.values.len().saturating_mul(count), || runner.run());
            values.copy_from_slice(&runner.read::<f32>("forecast")?[..values.len()]);
        }
        Ok(())
    }

    /// Returns the programs that [`TrainedNetwork::predict`] runs for this many windows, each with a description. They are
    /// compiled if necessary.
    pub fn programs(&mut self, rows: usize) -> Result<Vec<(&'static str, &Program)>, NetworkError> {
        if self.sampler()?.is_some() {
            return Ok(self.sampler.iter().flat_map(Sampler::programs).collect());
        }
        let place = self.compile(rows)?;
        Ok(self.runners[place].iter().map(|runner| ("a forecast", runner.program())).collect())
    }

    /// Returns the sampler of an autoregressive model.
    fn sampler(&mut self) -> Result<Option<&mut Sampler>, NetworkError> {
        if let (Model::DeepAr(model), ForecastKind::Samples, None) =
            (&self.specification.model, &self.kind, &self.sampler)
        {
            self.sampler = Some(Sampler::new(&self.specification, model, &self.params)?);
        }
        Ok(self.sampler.as_mut())
    }

    /// Returns the model with quantised parameters, and their size in bytes. The model file does not record the precision.
    pub fn with_precision(&self, precision: Precision) -> Result<(TrainedNetwork, usize), NetworkError> {
        let mut params = self.params().clone();
        // Integer matrix multiplication quantises its weights itself, with one scale per output.
        let dense = if precision == Precision::Int8 { self.dense_weights()? } else { Vec::new() };
        let bytes = precision.round(&mut params, &dense);
        if params.values.iter().any(|value| !value.is_finite()) {
            let message = format!("a parameter is too large for {}", precision.name());
            return Err(NetworkError::Parameters(message));
        }
        let mut network = TrainedNetwork::new(self.specification().clone(), params)?;
        network.metadata = self.metadata.clone();
        network.precision = precision;
        Ok((network, bytes))
    }

    /// Returns the names of the weights of linear layers that integer matrix multiplication supports; none for models that
    /// draw samples.
    fn dense_weights(&self) -> Result<Vec<String>, NetworkError> {
        if self.kind == ForecastKind::Samples {
            return Ok(Vec::new());
        }
        let (graph, _) = self.specification.network(1, Mode::Prediction)?;
        Ok(Program::new(&graph)?.runner().quantize())
    }

    /// Compiles the program for at least this many windows, if necessary, and returns its index.
    fn compile(&mut self, rows: usize) -> Result<usize, NetworkError> {
        let place = rows.clamp(1, MAX_ROWS).next_power_of_two().ilog2() as usize;
        if self.runners[place].is_none() {
            let (graph, _) = self.specification.network(1 << place, Mode::Prediction)?;
            let program = Program::new(&graph)?;
            self.specification.check_memory(1 << place, program.bytes())?;
            let mut runner = program.runner();
            if self.precision == Precision::Int8 {
                runner.quantize();
            }
            write_parameters(&mut runner, &self.params)?;
            self.runners[place] = Some(runner);
        }
        Ok(place)
    }
}

/// Copies the parameters into a program.
fn write_parameters(runner: &mut Runner, params: &Params) -> Result<(), ProgramError> {
    for tensor in params.tensors() {
        runner.write(&tensor.name, &params.values[tensor.range.clone()])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
