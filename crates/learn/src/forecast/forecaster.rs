//! A forecaster that was trained: a file, and forecasts for batches of windows.
//!
//! ```
//! use gatework_learn::data::Batch;
//! use gatework_learn::forecast::{Forecaster, Specification};
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

use gatework_engine::{Program, Runner, program::ProgramError};
use safetensors::{Dtype, SafeTensors, tensor::TensorView};
use serde::{Deserialize, Serialize};

use super::distribution::Distribution;
use super::models::Model;
use super::sampling::Sampler;
use super::specification::{Specification, SpecificationError, Use};
use super::trainer::{check_batch, write_padded};
use crate::data::Batch;
use crate::files;
use crate::params::Params;

/// Windows that go through a program at once; more are forecast in turns.
const MOST_ROWS: usize = 256;

/// A trained model, ready to forecast.
pub struct Forecaster {
    specification: Specification,
    params: Params,
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
            runner.run();
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

    /// Compiles the program for at least so many windows, if it is not there, and says where it is.
    fn compile(&mut self, rows: usize) -> Result<usize, ForecasterError> {
        let place = rows.clamp(1, MOST_ROWS).next_power_of_two().ilog2() as usize;
        if self.runners[place].is_none() {
            let (graph, _) = self.specification.network(1 << place, Use::Prediction)?;
            let mut runner = Program::new(&graph)?.runner();
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

/// What a file says beside its tensors.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Description {
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
        let words = text.bytes().map(u64::from).chain(names).chain(values);
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
mod tests {
    use super::super::Loss;
    use super::super::models::{DeepAr, NLinear, Nhits};
    use super::super::signal::Signal;
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_that_cross_are_put_in_order_and_shares_meet_their_levels() {
        let levels = vec![0.1, 0.5, 0.9];
        let kind = Kind::Quantiles(levels);
        let forecast = Forecast { rows: 1, horizon: 1, outputs: 3, kind, values: vec![128.0, 115.0, 113.0] };
        // 0.5 - 0.8 / 2 is a little less than 0.1.
        let share = 0.8;
        assert_eq!(forecast.quantile(0, 0, 0.5 - share / 2.0), Some(113.0));
        assert_eq!(forecast.quantile(0, 0, 0.5 + share / 2.0), Some(128.0));
        assert_eq!(forecast.point(0, 0), 115.0);
        assert_eq!(forecast.quantile(0, 0, 0.05), None);
        let kind = Kind::Quantiles(vec![0.1, 0.9]);
        let forecast = Forecast { rows: 1, horizon: 1, outputs: 2, kind, values: vec![2.0, 4.0] };
        assert_eq!(forecast.point(0, 0), 3.0);
    }

    fn specification(model: Model, loss: Loss) -> Specification {
        Specification {
            model,
            loss,
            normalization: None,
            input: 12,
            horizon: 4,
            past_columns: 1,
            future_columns: 2,
            static_columns: 1,
        }
    }

    fn forecaster(loss: Loss) -> Forecaster {
        let specification = specification(Model::Nhits(Nhits { width: 8, ..Nhits::default() }), loss);
        let params = specification.params(1).unwrap();
        Forecaster::new(specification, params).unwrap()
    }

    fn batch(specification: &Specification, rows: usize) -> Batch {
        let mut batch = Batch::default();
        let begins: Vec<usize> = (0..rows).map(|i| 7 * i % 1000).collect();
        Signal::new(specification, 1).fill(&begins, &mut batch);
        batch
    }

    /// One row of a batch.
    fn row(batch: &Batch, row: usize) -> Batch {
        let cut = |numbers: &[f32]| {
            let width = numbers.len() / batch.shape.rows;
            numbers[row * width..(row + 1) * width].to_vec()
        };
        Batch {
            shape: crate::data::BatchShape { rows: 1, ..batch.shape },
            past: cut(&batch.past),
            target: cut(&batch.target),
            past_columns: cut(&batch.past_columns),
            future_columns: cut(&batch.future_columns),
            static_columns: cut(&batch.static_columns),
        }
    }

    #[test]
    fn a_window_has_the_same_forecast_in_any_batch() {
        for loss in [Loss::Mse, Loss::Gaussian] {
            let mut forecaster = forecaster(loss);
            let batch = batch(forecaster.specification(), 300);
            let together = forecaster.predict(&batch).unwrap();
            for index in [0, 1, 255, 256, 299] {
                let alone = forecaster.predict(&row(&batch, index)).unwrap();
                for step in 0..4 {
                    let pairs = alone.step(0, step).iter().zip(together.step(index, step));
                    assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-4), "row {index}");
                }
            }
        }
    }

    #[test]
    fn the_programs_that_are_shown_are_those_that_ran_and_layers_are_one_kernel() {
        let mut forecaster = forecaster(Loss::Mse);
        let batch = batch(forecaster.specification(), 4);
        forecaster.predict(&batch).unwrap();
        let compiled = |f: &Forecaster| f.runners.iter().flatten().count();
        assert_eq!(compiled(&forecaster), 1);
        let kernels = forecaster.programs(4).unwrap()[0].1.kernels();
        assert!(kernels.iter().any(|kernel| kernel.ends_with("bias, relu")), "{kernels:?}");
        assert_eq!(compiled(&forecaster), 1);
        let specification = specification(Model::DeepAr(DeepAr::default()), Loss::Gaussian);
        let specification = Specification { past_columns: 0, ..specification };
        let params = specification.params(1).unwrap();
        let mut sampling = Forecaster::new(specification, params).unwrap();
        let uses = sampling.programs(4).unwrap().iter().map(|(what, _)| *what).collect::<Vec<_>>();
        assert_eq!(uses, ["reading a window", "a step of all paths"]);
    }

    #[test]
    fn what_a_smaller_batch_left_behind_does_not_show() {
        let mut forecaster = forecaster(Loss::Mse);
        let batch = batch(forecaster.specification(), 4);
        let first = forecaster.predict(&batch).unwrap();
        forecaster.predict(&row(&batch, 3)).unwrap();
        let three = Batch { shape: crate::data::BatchShape { rows: 3, ..batch.shape }, ..batch.clone() };
        assert!(
            forecaster.predict(&three).unwrap_err().to_string().contains("past of a batch has 48 numbers")
        );
        assert_eq!(forecaster.predict(&batch).unwrap(), first);
    }

    #[test]
    fn a_file_is_read_back_as_it_was_written() {
        let mut forecaster = forecaster(Loss::Gaussian);
        forecaster.attached = serde_json::json!({ "column": "y", "scale": 0.1 });
        let mut again = Forecaster::from_bytes(&forecaster.to_bytes()).unwrap();
        assert_eq!(again.specification(), forecaster.specification());
        assert_eq!((&again.attached, again.params()), (&forecaster.attached, forecaster.params()));
        let batch = batch(forecaster.specification(), 3);
        assert_eq!(again.predict(&batch).unwrap(), forecaster.predict(&batch).unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        forecaster.save(&path).unwrap();
        assert_eq!(Forecaster::load(&path).unwrap().params(), forecaster.params());
        std::fs::write(&path, b"nothing").unwrap();
        let error = Forecaster::load(&path).err().unwrap().to_string();
        assert!(error.contains("model.safetensors: not a complete model file"), "{error}");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_file_with_any_bit_changed_is_refused_or_means_the_same(place: prop::sample::Index, bit in 0..8u32) {
            let specification = specification(Model::NLinear(NLinear {}), Loss::Mse);
            let params = specification.params(1).unwrap();
            let forecaster = Forecaster::new(specification, params).unwrap();
            let mut bytes = forecaster.to_bytes();
            let place = place.index(bytes.len());
            bytes[place] ^= 1 << bit;
            if let Ok(again) = Forecaster::from_bytes(&bytes) {
                prop_assert_eq!(again.params(), forecaster.params());
                prop_assert_eq!(again.specification(), forecaster.specification());
                prop_assert_eq!(&again.attached, &forecaster.attached);
            }
        }
    }

    #[test]
    fn a_file_that_is_cut_off_or_foreign_is_refused() {
        let forecaster = forecaster(Loss::Mse);
        let bytes = forecaster.to_bytes();
        for cut in [0, 8, 100, bytes.len() - 1] {
            assert!(Forecaster::from_bytes(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let view = TensorView::new(Dtype::F32, vec![1], &[0, 0, 0, 0]).unwrap();
        let foreign = safetensors::serialize([("x", view)], None).unwrap();
        assert_eq!(Forecaster::from_bytes(&foreign).err().unwrap(), "not a forecaster of Gatework");
    }

    #[test]
    fn parameters_that_are_no_numbers_are_refused() {
        let specification = specification(Model::NLinear(NLinear {}), Loss::Mse);
        let mut params = specification.params(1).unwrap();
        params.values[3] = f32::NAN;
        assert!(Forecaster::new(specification.clone(), params).is_err());
        assert!(Forecaster::new(specification, Params::new()).is_err());
    }

    #[test]
    fn quantiles_come_from_what_the_model_says() {
        let of = |kind, values: &[f32]| Forecast {
            rows: 1,
            horizon: 1,
            outputs: values.len(),
            kind,
            values: values.to_vec(),
        };
        let levels = of(Kind::Quantiles(vec![0.1, 0.5, 0.9]), &[1.0, 2.0, 4.0]);
        assert_eq!(levels.point(0, 0), 2.0);
        assert_eq!(
            [0.05, 0.1, 0.7, 0.95].map(|level| levels.quantile(0, 0, level)),
            [None, Some(1.0), Some(3.0), None]
        );
        assert_eq!(of(Kind::Point, &[1.0]).quantile(0, 0, 0.5), None);
        let gaussian = of(Kind::Distribution(Distribution::Gaussian), &[1.0, 2.0]);
        assert!((gaussian.quantile(0, 0, 0.841_344_746).unwrap() - 3.0).abs() < 1e-5);
        let samples = of(Kind::Samples, &[1.0, 2.0, 3.0, 10.0]);
        assert_eq!((samples.point(0, 0), samples.quantile(0, 0, 0.5)), (4.0, Some(2.5)));
        assert_eq!(samples.quantile(0, 0, 0.99), Some(10.0));
    }

    #[test]
    fn samples_are_sorted_repeatable_and_as_wide_as_the_distribution() {
        for loss in [Loss::Gaussian, Loss::StudentT, Loss::NegativeBinomial] {
            let model = DeepAr { hidden: 6, layers: 2, samples: 400, dropout: 0.0 };
            let specification =
                Specification { past_columns: 0, ..specification(Model::DeepAr(model), loss) };
            let params = specification.params(1).unwrap();
            let mut forecaster = Forecaster::new(specification, params).unwrap();
            let mut batch = batch(forecaster.specification(), 3);
            batch.past.iter_mut().for_each(|x| *x = (*x + 4.0).round());
            let forecast = forecaster.predict(&batch).unwrap();
            assert_eq!(forecast, forecaster.predict(&batch).unwrap());
            assert!(forecast.step(1, 2).is_sorted());
            let alone = forecaster.predict(&row(&batch, 2)).unwrap();
            assert_eq!(alone.step(0, 3), forecast.step(2, 3));
            // The first step is drawn from the distribution that the network gives on the path of the means.
            let (graph, _) = forecaster.specification().network(3, Use::Prediction).unwrap();
            let mut runner = Program::new(&graph).unwrap().runner();
            write_parameters(&mut runner, forecaster.params()).unwrap();
            write_padded(&mut runner, &batch, 0..3, 3, &mut Vec::new()).unwrap();
            runner.run();
            let distribution = forecaster.specification().loss.distribution().unwrap();
            let count = distribution.parameters();
            let parameters = &runner.read::<f32>("forecast").unwrap()[..count];
            let [low, high] = [0.1, 0.9].map(|level| distribution.quantile(parameters, level));
            let near = |a: f64, b: f64| (a - b).abs() <= 0.2 * (high - low) + 1e-3;
            assert!(near(forecast.quantile(0, 0, 0.1).unwrap(), low), "{distribution:?}");
            assert!(near(forecast.quantile(0, 0, 0.9).unwrap(), high), "{distribution:?}");
            assert!(near(forecast.point(0, 0), distribution.mean(parameters)), "{distribution:?}");
        }
    }
}
