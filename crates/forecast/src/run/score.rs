//! Scores of trained models on the subsets of their data.

use super::{ForecastRun, RunError};
use crate::Model;
use crate::data::{Subset, Table, Windows};
use crate::evaluation::{EnsembleMember, Evaluation, ScaledErrors, Watch, evaluate, scaled_errors};
use crate::experiment::Dataset;
use crate::metrics;
use crate::prediction::Forecaster;

/// The maximum number of forecast origins of an evaluation without an explicit step.
const MAX_ORIGINS: usize = 2000;

/// The maximum number of values that a baseline reads over all of these origins.
const MAX_BASELINE_VALUES: usize = 5_000_000;

/// Returns the step between forecast origins for which neither the number of origins nor the work of the baselines, which read
/// the whole history at each origin, is too large.
pub fn default_step(dataset: &Dataset, subset: Subset) -> usize {
    let count = dataset.windows(subset, 1).len();
    let longest = dataset.table.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
    count.div_ceil(MAX_ORIGINS).max((count * longest).div_ceil(MAX_BASELINE_VALUES)).max(1)
}

/// Scores a model on a subset of its data, compared with the baselines.
pub fn score(
    forecaster: &Forecaster,
    dataset: &Dataset,
    subset: Subset,
    step: usize,
    watch: Watch<'_>,
) -> Result<Evaluation, RunError> {
    let windows = windows(dataset, subset, step)?;
    Ok(evaluate(&[EnsembleMember { forecaster, windows: &windows }], &dataset.table, watch)?)
}

/// Scores the median of the forecasts of several runs on a subset of their data, which must be the same. `datasets` has the data
/// of each run.
pub fn score_ensemble(
    runs: &[ForecastRun],
    datasets: &[Dataset],
    subset: Subset,
    step: usize,
    watch: Watch<'_>,
) -> Result<Evaluation, RunError> {
    let first = datasets.first().ok_or(RunError::NoRuns)?;
    if let Some(other) = datasets.iter().position(|dataset| dataset.table.series != first.table.series) {
        let path = |index: usize| runs[index].folder.path().to_path_buf();
        return Err(RunError::DifferentData { path: path(other), first: path(0) });
    }
    let windows =
        datasets.iter().map(|dataset| windows(dataset, subset, step)).collect::<Result<Vec<_>, _>>()?;
    let members: Vec<EnsembleMember<'_>> = runs
        .iter()
        .zip(&windows)
        .map(|(run, windows)| EnsembleMember { forecaster: &run.forecaster, windows })
        .collect();
    Ok(evaluate(&members, &first.table, watch)?)
}

/// Returns the errors in scaled units over every window of a subset. `None` for models that draw samples, for which that would
/// take too long.
pub fn scaled_score(
    forecaster: &Forecaster,
    dataset: &Dataset,
    subset: Subset,
    watch: Watch<'_>,
) -> Result<Option<ScaledErrors>, RunError> {
    if matches!(forecaster.specification().model, Model::DeepAr(_)) {
        return Ok(None);
    }
    Ok(Some(scaled_errors(forecaster, &windows(dataset, subset, 1)?, watch)?))
}

/// The windows of a subset; an error if there are none.
fn windows(dataset: &Dataset, subset: Subset, step: usize) -> Result<Windows, RunError> {
    let windows = dataset.windows(subset, step);
    if windows.is_empty() {
        return Err(RunError::NoOrigins { subset, horizon: windows.shape(0).horizon });
    }
    Ok(windows)
}

/// Returns the mean absolute error of forecasts of the last horizon of every series, from the values before. `None` if a series
/// is too short or has gaps there.
pub fn holdout_error(forecaster: &Forecaster, table: &Table) -> Result<Option<f64>, RunError> {
    let specification = forecaster.specification().clone();
    let history = table.without_last(specification.horizon);
    let Ok(prepared) = forecaster.context().prepare(&specification, history) else { return Ok(None) };
    let numbers: Vec<u32> = (0..prepared.windows.len() as u32).collect();
    let forecasts = forecaster.predict_windows(&prepared.windows, &numbers, &prepared.table)?;
    let errors = table.series.iter().zip(&forecasts).map(|(series, forecast)| {
        metrics::mae(&series.values[series.values.len() - specification.horizon..], &forecast.values)
    });
    Ok(Some(errors.sum::<f64>() / forecasts.len() as f64).filter(|error| error.is_finite()))
}
