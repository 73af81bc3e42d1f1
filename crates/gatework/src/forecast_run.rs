//! The run folder of a forecaster, opened: its experiment, its model, its data.

use std::path::Path;

use anyhow::Context as _;
use gatework_learn::data::{Part, Table, Windows};
use gatework_learn::experiment;
use gatework_learn::forecast::Model;
use gatework_learn::forecast::context::Prediction;
use gatework_learn::forecast::dataset::Dataset;
use gatework_learn::forecast::evaluate::{Evaluation, Member, Scaled, Score, evaluate, scaled_errors};
use gatework_learn::forecast::experiment::Loaded;
use gatework_learn::forecast::predictor::Predictor;

use crate::folder::RunFolder;
use crate::output::answer;
use crate::report::ForecastPlot;
use crate::usage::Usage;

/// The run of a forecaster.
pub struct ForecastRun {
    /// Where it is.
    pub folder: RunFolder,
    /// What ran.
    pub loaded: Loaded,
    /// What came out.
    pub predictor: Predictor,
}

/// Origins that are evaluated unless a step is given, at most.
const MOST_WINDOWS: usize = 2000;

/// Values that a baseline reads for them, at most.
const MOST_VALUES: usize = 5_000_000;

impl ForecastRun {
    /// Opens a run folder or the model in it; `None` if it is not that of a forecaster.
    pub fn open(path: &Path) -> anyhow::Result<Option<ForecastRun>> {
        let is_model = path.file_name().is_some_and(|name| name == "model.safetensors");
        let folder = if is_model { path.parent().unwrap_or(Path::new("")) } else { path };
        let file = folder.join("experiment.toml");
        if !file.is_file() {
            return Ok(None);
        }
        let experiment::Loaded::Forecaster(loaded) = experiment::Loaded::read(&file)? else {
            return Ok(None);
        };
        let model = folder.join("model.safetensors");
        let folder = RunFolder::at(folder);
        if !model.is_file() {
            let (path, advice) = (folder.path().display(), folder.resume_command());
            let message = format!("{path} has no model.safetensors: the run is not finished ({advice})");
            return Err(Usage(message).into());
        }
        let predictor = Predictor::load(&model)?;
        if *predictor.specification() != loaded.experiment.specification() {
            let message =
                format!("{} belongs to another experiment than {}", model.display(), file.display());
            return Err(Usage(message).into());
        }
        Ok(Some(ForecastRun { folder, loaded: *loaded, predictor }))
    }

    /// Its data, scaled as they were in training. If they have changed since, a message says so.
    pub fn dataset(&self) -> anyhow::Result<Dataset> {
        let (context, path) = (self.predictor.context(), self.folder.path().display());
        let dataset = Dataset::load_for(&self.loaded, context)
            .with_context(|| format!("the data of {path} cannot be used any more"))?;
        let (then, now) = (context.values, dataset.table.values());
        if then != 0 && then != now {
            eprintln!(
                "warning: {path} was trained on {then} values and its data now have {now}: the parts are those of \
                 the data as they are now, and may hold what was trained on"
            );
        }
        Ok(dataset)
    }
}

/// The step between origins unless one is given: so that there are not too many of them, and that the baselines, which
/// read the whole past at each, do not read too much.
pub fn usual_step(dataset: &Dataset, part: Part) -> usize {
    let count = dataset.windows(part, 1).len();
    let longest = dataset.table.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
    count.div_ceil(MOST_WINDOWS).max((count * longest).div_ceil(MOST_VALUES)).max(1)
}

/// Scores a model on a part of its data, beside the baselines.
pub fn score(
    predictor: &mut Predictor,
    dataset: &Dataset,
    part: Part,
    step: usize,
) -> anyhow::Result<Evaluation> {
    let windows = windows(dataset, part, step)?;
    Ok(evaluate(&mut [Member { predictor, windows: &windows }], &dataset.table)?)
}

/// Scores the median of the forecasts of several runs on a part of their data, which must be the same.
pub fn score_together(
    runs: &mut [ForecastRun],
    part: Part,
    step: Option<usize>,
) -> anyhow::Result<Evaluation> {
    let datasets = runs.iter().map(ForecastRun::dataset).collect::<anyhow::Result<Vec<_>>>()?;
    let Some(first) = datasets.first() else { anyhow::bail!("there are no runs") };
    if let Some(place) = datasets.iter().position(|dataset| dataset.table.series != first.table.series) {
        let path = runs[place].folder.path().display();
        return Err(Usage(format!("{path} has other data than {}", runs[0].folder.path().display())).into());
    }
    let step = step.unwrap_or_else(|| usual_step(first, part));
    let windows =
        datasets.iter().map(|dataset| windows(dataset, part, step)).collect::<anyhow::Result<Vec<_>>>()?;
    let mut members: Vec<Member<'_>> = runs
        .iter_mut()
        .zip(&windows)
        .map(|(run, windows)| Member { predictor: &mut run.predictor, windows })
        .collect();
    Ok(evaluate(&mut members, &first.table)?)
}

/// The windows of a part; an error if there are none.
fn windows(dataset: &Dataset, part: Part, step: usize) -> anyhow::Result<Windows> {
    let windows = dataset.windows(part, step);
    if windows.is_empty() {
        let horizon = windows.shape(0).horizon;
        let message =
            format!("the {part:?} part is shorter than the horizon of {horizon}: nothing to evaluate");
        return Err(Usage(message.to_lowercase()).into());
    }
    Ok(windows)
}

/// The errors of the scaled values over every window of a part, and how they are told. None for models that draw samples,
/// for which so many windows would take too long.
pub fn scaled_score(
    predictor: &mut Predictor,
    dataset: &Dataset,
    part: Part,
) -> anyhow::Result<Option<Scaled>> {
    if matches!(predictor.specification().model, Model::DeepAr(_)) {
        return Ok(None);
    }
    let scaled = scaled_errors(predictor, &windows(dataset, part, 1)?)?;
    let Scaled { windows, mse, mae } = scaled;
    answer!("scaled values, {windows} origins: MSE {mse:.4}, MAE {mae:.4}");
    Ok(Some(scaled))
}

/// The scores as a table for people.
pub fn print_scores(evaluation: &Evaluation) {
    let origins = format!("{} origins", evaluation.windows);
    let names = ["MAE", "RMSE", "MAPE", "sMAPE", "MASE", "OWA", "CRPS"].map(str::to_string);
    let held = evaluation.scores[0].coverage.iter().map(|(share, _)| format!("held {:.0} %", share * 100.0));
    answer!("{}", row(&origins, names.into_iter().chain(held)));
    for score in &evaluation.scores {
        answer!("{}", row(&score.name, cells(score)));
    }
}

fn cells(score: &Score) -> impl Iterator<Item = String> {
    let Score { mae, rmse, mape, smape, mase, owa, crps, .. } = score;
    let errors = [mae, rmse, mape, smape, mase, owa].map(|error| format!("{error:.3}"));
    let crps = crps.map_or_else(|| "-".into(), |crps| format!("{crps:.3}"));
    let held = score.coverage.iter().map(|(_, held)| format!("{:.1} %", held * 100.0));
    errors.into_iter().chain([crps]).chain(held)
}

fn row(name: &str, cells: impl Iterator<Item = String>) -> String {
    cells.fold(format!("{name:<15}"), |row, cell| format!("{row} {cell:>10}"))
}

/// The picture of a forecast of a series from a place on: as much of the history as is readable.
pub fn plot(table: &Table, series: usize, origin: usize, prediction: &Prediction) -> ForecastPlot {
    let horizon = prediction.values.len();
    let series = &table.series[series];
    let begin = origin.saturating_sub((5 * horizon).max(48));
    let end = series.values.len().min(origin + horizon);
    let widest = prediction.intervals.iter().map(|i| (i.share, i.low.clone(), i.high.clone())).collect();
    ForecastPlot {
        title: format!("{}, {horizon} steps from {}", series.id, table.time(series, origin)),
        times: (begin..origin + horizon).map(|step| table.time(series, step)).collect(),
        history: series.values[begin..origin].to_vec(),
        actual: series.values[origin..end].to_vec(),
        forecast: prediction.values.clone(),
        intervals: widest,
    }
}
