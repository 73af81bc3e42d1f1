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

use std::path::{Path, PathBuf};

use gatework_engine::{Program, Runner, parallel, program::ProgramError};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use super::models::Model;
use super::sampling::Sampler;
use super::specification::{Specification, SpecificationError, Use};
use super::trainer::{check_batch, write_padded};
use super::weights::Weights;
use crate::data::Batch;
use gatework_train::files;
use gatework_train::params::Params;

/// Windows that go through a program at once; more are forecast in turns.
const MOST_ROWS: usize = 256;

/// A trained model, ready to forecast.
pub struct Forecaster {
    specification: Specification,
    params: Params,
    pub(super) weights: Weights,
    /// What its forecasts are, and numbers of a step.
    kind: Kind,
    outputs: usize,
    /// What else the file says, for those who prepare its windows: names of columns, scalers.
    pub attached: serde_json::Value,
    /// Programs for 1, 2, 4, .. windows, compiled when they are first needed.
    runners: Vec<Option<Runner>>,
    /// Windows of a batch that is smaller than its program.
    padded: Vec<f32>,
    sampler: Option<Sampler>,
}

/// What the numbers of a forecast are.
#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    /// One number.
    Point,
    /// The values below which these shares of the probability lie.
    Quantiles(Vec<f64>),
    /// The parameters of a distribution.
    Distribution(Distribution),
    /// Numbers drawn from the distribution, in rising order.
    Samples,
}

/// Forecasts for the windows of a batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Windows.
    pub rows: usize,
    /// Steps.
    pub horizon: usize,
    /// Numbers of a step.
    pub outputs: usize,
    /// What they are.
    pub kind: Kind,
    /// `[rows, horizon, outputs]`.
    pub values: Vec<f32>,
}

/// A forecaster that cannot be made, read or used.
#[derive(Debug, thiserror::Error)]
pub enum ForecasterError {
    /// It cannot be read or written.
    #[error(transparent)]
    File(#[from] files::FileError),
    /// The file is cut off, damaged or of another kind.
    #[error("{}: {problem}", path.display())]
    Unusable {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Its description is impossible.
    #[error(transparent)]
    Specification(#[from] SpecificationError),
    /// The parameters are not those of the model.
    #[error("{0}")]
    Parameters(String),
    /// The batch is not one of the model's.
    #[error("{0}")]
    Batch(String),
    /// The program of the model does not run.
    #[error(transparent)]
    Program(#[from] ProgramError),
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
            (Model::DeepAr(model), Some(_)) => (Kind::Samples, model.samples),
            (_, Some(distribution)) => (Kind::Distribution(distribution), distribution.parameters()),
            _ => match specification.loss.levels() {
                Some(levels) => (Kind::Quantiles(levels.to_vec()), levels.len()),
                None => (Kind::Point, 1),
            },
        };
        let runners = vec![None; MOST_ROWS.ilog2() as usize + 1];
        let attached = serde_json::Value::Null;
        Ok(Forecaster {
            specification,
            params,
            weights: Weights::F32,
            kind,
            outputs,
            attached,
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
        let mut forecast =
            Forecast { rows: 0, horizon: 0, outputs: 0, kind: Kind::Point, values: Vec::new() };
        self.predict_into(batch, &mut forecast)?;
        Ok(forecast)
    }

    /// Like [`Forecaster::predict`], in memory that is there already.
    pub fn predict_into(&mut self, batch: &Batch, forecast: &mut Forecast) -> Result<(), ForecasterError> {
        check_batch(&self.specification, batch, false)
            .map_err(|error| ForecasterError::Batch(error.to_string()))?;
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
            parallel::with_spinning_workers(self.params.values.len().saturating_mul(count), || runner.run());
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
        if let (Model::DeepAr(model), Kind::Samples, None) =
            (&self.specification.model, &self.kind, &self.sampler)
        {
            self.sampler = Some(Sampler::new(&self.specification, model, &self.params)?);
        }
        Ok(self.sampler.as_mut())
    }

    /// Parameters that are matrices of dense layers, which products of integers can take; none of models that draw samples.
    pub(super) fn dense_weights(&self) -> Result<Vec<String>, ForecasterError> {
        if self.kind == Kind::Samples {
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
            if self.weights == Weights::Int8 {
                runner.quantize();
            }
            write_parameters(&mut runner, &self.params)?;
            self.runners[place] = Some(runner);
        }
        Ok(place)
    }

    /// The file of the forecaster.
    pub fn to_bytes(&self) -> Vec<u8> {
        let bytes: Vec<u8> = self.params.values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let views = self.params.tensors().iter().map(|tensor| {
            let data = &bytes[4 * tensor.range.start..4 * tensor.range.end];
            let view = TensorView::new(Dtype::F32, tensor.shape.clone(), data);
            (tensor.name.as_str(), view.expect("as many bytes as the shape says"))
        });
        let mut description = Description {
            version: VERSION,
            specification: self.specification.clone(),
            attached: self.attached.clone(),
            checksum: String::new(),
        };
        description.checksum = description.sum(&self.params);
        let text = serde_json::to_string(&description).expect("numbers and names");
        let metadata = [(DESCRIPTION.to_string(), text)].into();
        safetensors::serialize(views, Some(metadata)).expect("names and shapes are valid")
    }

    /// Reads a forecaster from the bytes of a file. Everything in them is checked: a damaged file never forecasts.
    pub fn from_bytes(bytes: &[u8]) -> Result<Forecaster, String> {
        let broken = |error: safetensors::SafeTensorError| format!("not a complete model file ({error})");
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(broken)?;
        let file = SafeTensors::deserialize(bytes).map_err(broken)?;
        let text = header.metadata().as_ref().and_then(|metadata| metadata.get(DESCRIPTION));
        let text = text.ok_or("not a forecaster of Gatework")?;
        files::check_json_version(text, VERSION).map_err(|error| error.to_string())?;
        let description: Description =
            serde_json::from_str(text).map_err(|error| format!("unreadable description: {error}"))?;
        let specification = description.specification.clone();
        let (_, parts) = specification.network(1, Use::Evaluation).map_err(|error| error.to_string())?;
        if parts.parameters.len() != file.len() {
            return Err(format!(
                "it has {} tensors, but the model has {}",
                file.len(),
                parts.parameters.len()
            ));
        }
        let mut params = Params::new();
        for parameter in &parts.parameters {
            let name = &parameter.name;
            let tensor = file.tensor(name).map_err(|_| format!("tensor {name} is missing"))?;
            if (tensor.dtype(), tensor.shape()) != (Dtype::F32, &parameter.shape) {
                return Err(format!("tensor {name} is no F32{:?}", parameter.shape));
            }
            let values = tensor.data().as_chunks::<4>().0;
            params.add(name, &parameter.shape, |i| f32::from_le_bytes(values[i]));
        }
        if description.sum(&params) != description.checksum {
            return Err("its checksum does not fit: the file is damaged".into());
        }
        let mut forecaster = Forecaster::new(specification, params).map_err(|error| error.to_string())?;
        forecaster.attached = description.attached;
        Ok(forecaster)
    }

    /// Writes the file, whole or not at all.
    pub fn save(&self, path: &Path) -> Result<(), ForecasterError> {
        Ok(files::write_whole(path, &self.to_bytes())?)
    }

    /// Reads a file.
    pub fn load(path: &Path) -> Result<Forecaster, ForecasterError> {
        let bytes = files::read(path)?;
        Forecaster::from_bytes(&bytes)
            .map_err(|problem| ForecasterError::Unusable { path: path.to_path_buf(), problem })
    }
}

/// Gives a program its parameters.
fn write_parameters(runner: &mut Runner, params: &Params) -> Result<(), ProgramError> {
    for tensor in params.tensors() {
        runner.write(&tensor.name, &params.values[tensor.range.clone()])?;
    }
    Ok(())
}

/// Key of the description in the file.
const DESCRIPTION: &str = "gatework-forecaster";

/// The version of model files that this program writes, and the newest that it reads.
const VERSION: u64 = 1;

/// What a file says beside its tensors.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
    /// 0 in files that were written before they had a version.
    #[serde(default)]
    version: u64,
    specification: Specification,
    attached: serde_json::Value,
    checksum: String,
}

impl Description {
    /// A number that changes if anything in the file changes.
    fn sum(&self, params: &Params) -> String {
        let text = serde_json::to_string(&(&self.specification, &self.attached)).unwrap_or_default();
        let names = params.tensors().iter().flat_map(|tensor| tensor.name.bytes().map(u64::from));
        let values = params.values.iter().map(|value| u64::from(value.to_bits()));
        // Files that were written before they had a version have a checksum without it.
        let version = Some(self.version).filter(|&version| version > 0);
        let words = text.bytes().map(u64::from).chain(names).chain(values).chain(version);
        // Each word changes the sum to another one (the factor is odd), and its place matters.
        let mix = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        format!("{:016x}", words.fold(0, mix))
    }
}

impl Forecast {
    /// The numbers of a step.
    pub fn step(&self, row: usize, step: usize) -> &[f32] {
        &self.values[(row * self.horizon + step) * self.outputs..][..self.outputs]
    }

    /// One number for a step: the mean of a distribution or of samples, or the median; the quantile nearest to it if all
    /// levels are on one side of it.
    pub fn point(&self, row: usize, step: usize) -> f64 {
        let values = self.step(row, step);
        match &self.kind {
            Kind::Point => f64::from(values[0]),
            Kind::Quantiles(levels) => {
                let below = levels.iter().all(|&level| level < 0.5);
                let nearest = if below { levels.len().saturating_sub(1) } else { 0 };
                between(levels, values, 0.5).unwrap_or_else(|| f64::from(in_order(values)[nearest]))
            }
            Kind::Distribution(distribution) => distribution.mean(values),
            Kind::Samples => values.iter().map(|&x| f64::from(x)).sum::<f64>() / values.len() as f64,
        }
    }

    /// The value below which a share of the probability lies; none if the forecast does not say. Between the levels
    /// that were trained it is interpolated, beyond them it is not known.
    pub fn quantile(&self, row: usize, step: usize, level: f64) -> Option<f64> {
        let values = self.step(row, step);
        match &self.kind {
            _ if !(level > 0.0 && level < 1.0) => None,
            Kind::Point => None,
            Kind::Quantiles(levels) => between(levels, values, level),
            Kind::Distribution(distribution) => Some(distribution.quantile(values, level)),
            Kind::Samples => {
                let place = level * values.len() as f64 - 0.5;
                let left = place.floor().clamp(0.0, (values.len() - 1) as f64);
                let right = (left + 1.0).min((values.len() - 1) as f64);
                let share = (place - left).clamp(0.0, 1.0);
                let at = |place: f64| f64::from(values[place as usize]);
                Some(at(left) + share * (at(right) - at(left)))
            }
        }
    }
}

/// How far a level may be from one that was trained and still be that one: levels are computed from shares.
const SAME_LEVEL: f64 = 1e-9;

/// The value at a level between levels whose values are known. Quantiles are trained one by one and can cross, so their
/// values are put in order first (V. Chernozhukov, I. Fernandez-Val, A. Galichon, "Quantile and probability curves without
/// crossing", 2010).
fn between(levels: &[f64], values: &[f32], level: f64) -> Option<f64> {
    let right = levels.iter().position(|&known| known >= level - SAME_LEVEL)?;
    let values = in_order(values);
    let value = |i: usize| f64::from(values[i]);
    if (levels[right] - level).abs() <= SAME_LEVEL {
        return Some(value(right));
    }
    let left = right.checked_sub(1)?;
    let share = (level - levels[left]) / (levels[right] - levels[left]);
    Some(value(left) + share * (value(right) - value(left)))
}

fn in_order(values: &[f32]) -> Vec<f32> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f32::total_cmp);
    sorted
}

#[cfg(test)]
mod tests;
