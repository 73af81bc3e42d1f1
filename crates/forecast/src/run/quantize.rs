//! Quantised copies of runs, with the accuracy that they lose.

use std::path::Path;

use gatework_train::run_folder::{self, RunFolder};
use serde_json::json;

use super::{ForecastRun, RunError, default_step, score};
use crate::data::Subset;
use crate::evaluation::Watch;
use crate::experiment::Dataset;
use crate::prediction::Forecaster;
use crate::trained_network::Precision;

/// A quantised forecaster, compared with the original.
pub struct Quantized {
    /// The quantised forecaster.
    pub forecaster: Forecaster,
    /// Its number format.
    pub precision: Precision,
    /// Bytes of the model file before and after.
    pub bytes: [usize; 2],
    /// Bytes of the weights in memory before and after.
    pub memory: [usize; 2],
    /// Mean absolute error on the validation subset before and after; `None` if the subset is shorter than the horizon.
    pub errors: Option<[f64; 2]>,
    /// Fraction of the parameters that are multiplied as 8-bit integers. The others are rounded and computed in `f32`.
    pub integer_fraction: f64,
}

impl Quantized {
    /// Returns the relative increase of the error on the validation subset.
    pub fn loss(&self) -> Option<f64> {
        self.errors.map(|[before, after]| if before > 0.0 { after / before - 1.0 } else { after })
    }

    /// Writes a run folder with the experiment of a run and the quantised model. The folder must be unused.
    pub fn save(&self, run: &ForecastRun, path: &Path) -> Result<RunFolder, RunError> {
        let summary = run.folder.summary()?.filter(serde_json::Value::is_object);
        let mut summary = summary.unwrap_or_else(|| json!({ "version": run_folder::VERSION }));
        summary["quantized"] = json!({
            "precision": self.precision,
            "validation_mae": self.errors.map(|[_, after]| after),
            "validation_mae_before": self.errors.map(|[before, _]| before),
        });
        let folder = RunFolder::create(path, false, &run.loaded.experiment.to_toml(), &[])?;
        folder.write("model.safetensors", &self.forecaster.to_bytes())?;
        folder.write_summary(&summary)?;
        Ok(folder)
    }
}

impl ForecastRun {
    /// Quantises the model and measures what that costs on the validation subset of its data. `watch` follows the two
    /// evaluations.
    pub fn quantize(
        &self,
        dataset: &Dataset,
        precision: Precision,
        watch: Watch<'_>,
    ) -> Result<Quantized, RunError> {
        let (forecaster, _) = self.forecaster.with_precision(precision)?;
        let step = default_step(dataset, Subset::Validation);
        let error =
            |forecaster: &Forecaster| match score(forecaster, dataset, Subset::Validation, step, watch) {
                Ok(evaluation) => Ok(evaluation.scores.first().map(|score| score.mae)),
                Err(RunError::NoOrigins { .. }) => Ok(None),
                Err(error) => Err(error),
            };
        let errors = [error(&self.forecaster)?, error(&forecaster)?];
        let errors = if let [Some(before), Some(after)] = errors { Some([before, after]) } else { None };
        let bytes = [self.forecaster.to_bytes().len(), forecaster.to_bytes().len()];
        let networks = [self.forecaster.network(), forecaster.network()];
        let integers = networks[1].integer_parameters() as f64 / networks[1].parameter_count().max(1) as f64;
        let memory = networks.map(|network| network.memory().weights);
        Ok(Quantized { forecaster, precision, bytes, memory, errors, integer_fraction: integers })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::unwatched;
    use crate::experiment::{BUILT_IN, ForecastExperiment};
    use crate::test_fixtures::untrained;
    use gatework_train::experiment::Source;

    #[test]
    fn a_quantised_run_is_smaller_and_can_be_opened() {
        let parent = tempfile::tempdir().unwrap();
        let (forecaster, dataset) = untrained(|text| text);
        let folder = RunFolder::create(&parent.path().join("run"), false, BUILT_IN[0].1, &[]).unwrap();
        let loaded = ForecastExperiment::from_source(&Source::new(BUILT_IN[0].1, "x", ".")).unwrap();
        let run = ForecastRun { folder, loaded, forecaster };
        for precision in [Precision::F16, Precision::Int8] {
            let quantized = run.quantize(&dataset, precision, &unwatched).unwrap();
            assert!(quantized.bytes[1] < quantized.bytes[0], "{:?}", quantized.bytes);
            assert!(quantized.loss().unwrap().abs() < 0.1, "{:?}", quantized.errors);
            let path = parent.path().join(precision.name());
            quantized.save(&run, &path).unwrap();
            let again = ForecastRun::open(&path).unwrap().unwrap();
            assert_eq!(again.forecaster.network().precision(), precision);
            assert!(quantized.save(&run, &path).is_err(), "a run is not overwritten");
        }
    }
}
