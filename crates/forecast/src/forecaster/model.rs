//! A forecaster that was trained: a file, and forecasts for batches of windows.
//!
//! ```
//! use gatework_forecast::data::Batch;
//! use gatework_forecast::{Forecaster, Specification};
//!
//! let text = "model = 'nlinear'\ninput = 48\nhorizon = 12";
//! let specification: Specification = toml::from_str(text)?;
//! let params = specification.params(1)?; // of a trained model
//! let mut forecaster = Forecaster::new(specification, params)?;
//!
//! let bytes = forecaster.to_bytes();
//! let mut again = Forecaster::from_bytes(&bytes)?;
//! let batch = Batch::new(again.specification().shape(3));
//! let forecast = again.predict(&batch)?;
//! assert_eq!((forecast.rows, forecast.horizon), (3, 12));
//! assert_eq!(forecast.point(0, 0), forecaster.predict(&batch)?.point(0, 0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use gatework_engine::{Program, Runner, parallel, program::ProgramError};

use super::error::ForecasterError;
use super::forecast::{Forecast, ForecastKind};
use super::quantization::Precision;
use super::sampling::Sampler;
use crate::data::Batch;
use crate::models::Model;
use crate::network::feed::{check_batch, write_padded};
use crate::specification::{Specification, Use};
use gatework_train::params::Params;

/// Windows that go through a program at once; more are forecast in turns.
const MOST_ROWS: usize = 256;

/// A trained model, ready to forecast.
pub struct Forecaster {
    specification: Specification,
    params: Params,
    precision: Precision,
    /// What its forecasts are, and numbers of a step.
    kind: ForecastKind,
    outputs: usize,
    /// What else the file says, for those who prepare its windows: names of columns, scalers.
    pub metadata: serde_json::Value,
    /// Programs for 1, 2, 4, .. windows, compiled when they are first needed.
    runners: Vec<Option<Runner>>,
    /// Windows of a batch that is smaller than its program.
    padded: Vec<f32>,
    sampler: Option<Sampler>,
}

impl Forecaster {
    /// A forecaster of parameters that were trained.
    pub fn new(specification: Specification, params: Params) -> Result<Forecaster, ForecasterError> {
        let (_, parts) = specification.network(1, Use::Evaluation)?;
        let fits = parts.parameters.len() == params.tensors().len()
            && parts
                .parameters
                .iter()
                .zip(params.tensors())
                .all(|(a, b)| (&a.name, &a.shape) == (&b.name, &b.shape));
        if !fits {
            return Err(ForecasterError::Parameters(format!(
                "the parameters are not those of {} with {} values in and {} out",
                specification.model.name(),
                specification.input,
                specification.horizon
            )));
        }
        if params.values.iter().any(|value| !value.is_finite()) {
            return Err(ForecasterError::Parameters("a parameter is no number".into()));
        }
        let (kind, outputs) = match (&specification.model, specification.loss.distribution()) {
            (Model::DeepAr(model), Some(_)) => (ForecastKind::Samples, model.samples),
            (_, Some(distribution)) => (ForecastKind::Distribution(distribution), distribution.parameters()),
            _ => match specification.loss.levels() {
                Some(levels) => (ForecastKind::Quantiles(levels.to_vec()), levels.len()),
                None => (ForecastKind::Point, 1),
            },
        };
        let runners = vec![None; MOST_ROWS.ilog2() as usize + 1];
        let metadata = serde_json::Value::Null;
        Ok(Forecaster {
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

    /// What it is.
    pub fn specification(&self) -> &Specification {
        &self.specification
    }

    /// Its parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// Forecasts for the windows of a batch; what came afterwards is not looked at.
    pub fn predict(&mut self, batch: &Batch) -> Result<Forecast, ForecasterError> {
        let mut forecast = Forecast::empty();
        self.predict_into(batch, &mut forecast)?;
        Ok(forecast)
    }

    /// Like [`Forecaster::predict`], in memory that is there already.
    pub fn predict_into(&mut self, batch: &Batch, forecast: &mut Forecast) -> Result<(), ForecasterError> {
        check_batch(self.specification.shape(0), batch, false)?;
        let specification = &self.specification;
        let (rows, horizon, outputs) = (batch.shape.rows, specification.horizon, self.outputs);
        (forecast.rows, forecast.horizon, forecast.outputs) = (rows, horizon, outputs);
        if forecast.kind != self.kind {
            forecast.kind = self.kind.clone();
        }
        forecast.values.resize(rows * horizon * outputs, 0.0);
        if let Some(sampler) = self.sampler()? {
            return Ok(sampler.sample(batch, &mut forecast.values)?);
        }
        for (part, values) in forecast.values.chunks_mut(MOST_ROWS * horizon * outputs).enumerate() {
            let begin = part * MOST_ROWS;
            let count = values.len() / (horizon * outputs);
            let place = self.compile(count)?;
            let Some(runner) = &mut self.runners[place] else { continue };
            write_padded(runner, batch, begin..begin + count, 1 << place, &mut self.padded)?;
            parallel::attended(self.params.values.len().saturating_mul(count), || runner.run());
            values.copy_from_slice(&runner.read::<f32>("forecast")?[..values.len()]);
        }
        Ok(())
    }

    /// The programs that forecast so many windows, with what each is for. They are compiled now if they were not needed
    /// before, and are those that [`Forecaster::predict`] runs.
    pub fn programs(&mut self, rows: usize) -> Result<Vec<(&'static str, &Program)>, ForecasterError> {
        if self.sampler()?.is_some() {
            return Ok(self.sampler.iter().flat_map(Sampler::programs).collect());
        }
        let place = self.compile(rows)?;
        Ok(self.runners[place].iter().map(|runner| ("a forecast", runner.program())).collect())
    }

    /// What draws the paths of a model that forecasts by samples.
    fn sampler(&mut self) -> Result<Option<&mut Sampler>, ForecasterError> {
        if let (Model::DeepAr(model), ForecastKind::Samples, None) =
            (&self.specification.model, &self.kind, &self.sampler)
        {
            self.sampler = Some(Sampler::new(&self.specification, model, &self.params)?);
        }
        Ok(self.sampler.as_mut())
    }

    /// The same model with rounded weights, and the bytes that they take. A file of it does not say so.
    pub fn with_precision(&self, precision: Precision) -> Result<(Forecaster, usize), ForecasterError> {
        let mut params = self.params().clone();
        // Products of integers round their weights themselves, with a scale for each of their outputs.
        let apart = if precision == Precision::Int8 { self.dense_weights()? } else { Vec::new() };
        let bytes = precision.round(&mut params, &apart);
        if params.values.iter().any(|value| !value.is_finite()) {
            let message = format!("a weight is too large for {}", precision.name());
            return Err(ForecasterError::Parameters(message));
        }
        let mut forecaster = Forecaster::new(self.specification().clone(), params)?;
        forecaster.metadata = self.metadata.clone();
        forecaster.precision = precision;
        Ok((forecaster, bytes))
    }

    /// Parameters that are matrices of dense layers, which products of integers can take; none of models that draw samples.
    pub(super) fn dense_weights(&self) -> Result<Vec<String>, ForecasterError> {
        if self.kind == ForecastKind::Samples {
            return Ok(Vec::new());
        }
        let (graph, _) = self.specification.network(1, Use::Prediction)?;
        Ok(Program::new(&graph)?.runner().quantize())
    }

    /// Compiles the program for at least so many windows, if it is not there, and says where it is.
    fn compile(&mut self, rows: usize) -> Result<usize, ForecasterError> {
        let place = rows.clamp(1, MOST_ROWS).next_power_of_two().ilog2() as usize;
        if self.runners[place].is_none() {
            let (graph, _) = self.specification.network(1 << place, Use::Prediction)?;
            let mut runner = Program::new(&graph)?.runner();
            if self.precision == Precision::Int8 {
                runner.quantize();
            }
            write_parameters(&mut runner, &self.params)?;
            self.runners[place] = Some(runner);
        }
        Ok(place)
    }
}

/// Gives a program its parameters.
fn write_parameters(runner: &mut Runner, params: &Params) -> Result<(), ProgramError> {
    for tensor in params.tensors() {
        runner.write(&tensor.name, &params.values[tensor.range.clone()])?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
