//! The run folder of a forecaster, opened: its experiment, its model, its data.

use std::iter;
use std::path::Path;

use crate::experiment;
use anyhow::Context as _;
use gatework_forecast::Model;
use gatework_forecast::data::{Subset, Table, Windows};
use gatework_forecast::evaluation::{
    EnsembleMember, Evaluation, ScaledErrors, Score, evaluate, scaled_errors,
};
use gatework_forecast::experiment::Dataset;
use gatework_forecast::experiment::ForecastExperiment;
use gatework_forecast::prediction::Prediction;
use gatework_forecast::prediction::Predictor;

use crate::folder::RunFolder;
use crate::number;
use crate::report::ForecastPlot;
use crate::usage::Usage;

/// The run of a forecaster.
pub struct ForecastRun {
    /// Where it is.
    pub folder: RunFolder,
    /// What ran.
    pub loaded: ForecastExperiment,
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
            say!(
                "warning: {path} was trained on {then} values and its data now have {now}: the parts are those of \
                 the data as they are now, and may hold what was trained on"
            );
        }
        Ok(dataset)
    }
}

/// The step between origins unless one is given: so that there are not too many of them, and that the baselines, which
/// read the whole past at each, do not read too much.
pub fn usual_step(dataset: &Dataset, part: Subset) -> usize {
    let count = dataset.windows(part, 1).len();
    let longest = dataset.table.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
    count.div_ceil(MOST_WINDOWS).max((count * longest).div_ceil(MOST_VALUES)).max(1)
}

/// Scores a model on a part of its data, beside the baselines.
pub fn score(
    predictor: &mut Predictor,
    dataset: &Dataset,
    part: Subset,
    step: usize,
) -> anyhow::Result<Evaluation> {
    let windows = windows(dataset, part, step)?;
    Ok(evaluate(&mut [EnsembleMember { predictor, windows: &windows }], &dataset.table)?)
}

/// Scores the median of the forecasts of several runs on a part of their data, which must be the same.
pub fn score_together(
    runs: &mut [ForecastRun],
    part: Subset,
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
    let mut members: Vec<EnsembleMember<'_>> = runs
        .iter_mut()
        .zip(&windows)
        .map(|(run, windows)| EnsembleMember { predictor: &mut run.predictor, windows })
        .collect();
    Ok(evaluate(&mut members, &first.table)?)
}

/// The windows of a part; an error if there are none.
fn windows(dataset: &Dataset, part: Subset, step: usize) -> anyhow::Result<Windows> {
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
    part: Subset,
) -> anyhow::Result<Option<ScaledErrors>> {
    if matches!(predictor.specification().model, Model::DeepAr(_)) {
        return Ok(None);
    }
    let scaled = scaled_errors(predictor, &windows(dataset, part, 1)?)?;
    let ScaledErrors { windows, mse, mae } = scaled;
    answer!("scaled values, {windows} origins: MSE {mse:.4}, MAE {mae:.4}");
    Ok(Some(scaled))
}

/// Prints the scores as a table for people.
pub fn print_scores(evaluation: &Evaluation) {
    for line in table(evaluation) {
        answer!("{line}");
    }
}

/// One of the errors of a score; NaN where there is none.
type Error = fn(&Score) -> f64;

/// Those that a table of scores has.
const ERRORS: [(&str, Error); 7] = [
    ("MAE", |score| score.mae),
    ("RMSE", |score| score.rmse),
    ("MAPE", |score| score.mape),
    ("sMAPE", |score| score.smape),
    ("MASE", |score| score.mase),
    ("OWA", |score| score.owa),
    ("CRPS", |score| score.crps.unwrap_or(f64::NAN)),
];

/// The lines of a table of scores.
fn table(Evaluation { windows, scores }: &Evaluation) -> Vec<String> {
    let names = scores.iter().map(|score| score.name.clone());
    let mut lines: Vec<String> =
        iter::once(format!("{windows} origins")).chain(names).map(|name| format!("{name:<15}")).collect();
    let mut add = |head: String, cells: Vec<String>| {
        let width = cells.iter().chain([&head]).map(|cell| cell.chars().count()).fold(10, usize::max);
        for (line, cell) in lines.iter_mut().zip(iter::once(head).chain(cells)) {
            *line = format!("{line} {cell:>width$}");
        }
    };
    for (name, error) in ERRORS {
        let errors: Vec<f64> = scores.iter().map(error).collect();
        add(name.to_string(), number::column(&errors, 3));
    }
    for (place, (share, _)) in scores.first().map_or(&[][..], |score| &score.coverage).iter().enumerate() {
        let share = number::percent(*share);
        // A digit more than the share has: 99.96 % of the values are not 100.0 %.
        let decimals = share.split_once('.').map_or(1, |(_, decimals)| decimals.len() + 1);
        let held = |score: &Score| {
            score
                .coverage
                .get(place)
                .map_or(String::new(), |(_, held)| format!("{:.decimals$} %", held * 100.0))
        };
        add(format!("held {share} %"), scores.iter().map(held).collect());
    }
    lines.iter().map(|line| line.trim_end().to_string()).collect()
}

/// The picture of a forecast of a series from a place on: as much of the history as is readable.
pub fn plot(table: &Table, series: usize, origin: usize, prediction: &Prediction) -> ForecastPlot {
    let horizon = prediction.values.len();
    let series = &table.series[series];
    let begin = origin.saturating_sub((5 * horizon).max(48));
    let end = series.values.len().min(origin + horizon);
    let widest = prediction.intervals.iter().map(|i| (i.level, i.low.clone(), i.high.clone())).collect();
    ForecastPlot {
        title: format!("{}, {horizon} steps from {}", series.id, table.time(series, origin)),
        times: (begin..origin + horizon).map(|step| table.time(series, step)).collect(),
        history: series.values[begin..origin].to_vec(),
        actual: series.values[origin..end].to_vec(),
        forecast: prediction.values.clone(),
        intervals: widest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model and a baseline, with errors around `size`.
    fn evaluation(size: f64, share: f64) -> Evaluation {
        let score = Score { mae: 1.25 * size, rmse: 2.5 * size, smape: 3.0, mape: 12.5, ..Score::default() };
        let model = Score {
            name: "dlinear".into(),
            coverage: vec![(share, 0.9996)],
            crps: Some(size),
            ..score.clone()
        };
        Evaluation {
            windows: 7,
            scores: vec![model, Score { name: "naive".into(), mase: f64::NAN, ..score }],
        }
    }

    #[test]
    fn scores_of_ordinary_size_have_three_decimals() {
        let lines = table(&evaluation(10.0, 0.8));
        let expected = [
            "7 origins              MAE       RMSE       MAPE      sMAPE       MASE        OWA       CRPS  held 80 %",
            "dlinear             12.500     25.000     12.500      3.000      0.000      0.000     10.000    100.0 %",
            "naive               12.500     25.000     12.500      3.000          -      0.000          -",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn scores_of_any_size_keep_their_digits_and_their_columns() {
        for size in [1e-30, 1e-9, 1e-4, 1.0, 1e6, 1e7, 1e30] {
            let lines = table(&evaluation(size, 0.999));
            let ends: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
            assert_eq!(ends[0], ends[1], "{lines:#?}");
            let mae = lines[1].split_whitespace().nth(1).and_then(|mae| mae.parse::<f64>().ok());
            assert!(mae.is_some_and(|mae| (mae / size - 1.25).abs() < 1e-9), "{lines:#?}");
            assert!(ends[0] <= 120, "{lines:#?}");
        }
    }

    #[test]
    fn shares_are_not_rounded() {
        let lines = table(&evaluation(1.0, 0.999));
        assert!(lines[0].ends_with("held 99.9 %") && lines[1].ends_with(" 99.96 %"), "{lines:#?}");
    }
}
