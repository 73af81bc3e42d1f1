//! What several verbs print about forecasters: data, scores, seeds.

use std::iter;
use std::sync::atomic::AtomicBool;

use gatework_forecast::data::Subset;
use gatework_forecast::evaluation::{Evaluation, ScaledErrors, Score};
use gatework_forecast::experiment::Dataset;
use gatework_forecast::experiment::Experiment;
use gatework_forecast::run::{ForecastRun, Job, RunError, SeedScores, mean_and_deviation};
use gatework_train::run_folder::RunFolderError;
use serde_json::Value;

use super::{program, quoted, resume_command};
use crate::number;
use crate::progress::Progress;
use crate::report;
use crate::runs::{self, ForecasterRun};

/// Trains a forecaster, prints its data and its scores, and returns the summary.
pub fn train(job: &Job<'_>, stop: &AtomicBool) -> anyhow::Result<Value> {
    print_data(job.experiment, job.dataset);
    let finished = {
        let progress = Progress::forecaster(job.settings().updates);
        runs::train_forecaster_into(job, &progress, stop)
    };
    if let Err(RunError::Folder(RunFolderError::Interrupted { path })) = &finished {
        let seeds = match job.seeds.len() {
            1 => String::new(),
            several => format!(" --seeds {several}"),
        };
        anyhow::bail!("interrupted; a checkpoint is written. Resume with: {}{seeds}", resume_command(path));
    }
    let finished = finished?;
    print_result(job, &finished);
    Ok(finished.summary)
}

fn print_data(experiment: &Experiment, dataset: &Dataset) {
    let table = &dataset.table;
    let windows = dataset.windows(Subset::Train, experiment.stride);
    status!(
        "Data: {} series, {} values, frequency {}, season {}; {} training windows",
        table.series.len(),
        table.values(),
        table.frequency,
        dataset.season,
        windows.len()
    );
    for line in table.report.lines(experiment.columns.missing) {
        status!("  {line}");
    }
    let without = windows.series_without_windows().len();
    if without > 0 {
        status!("  {without} series have no training window: they are too short or have too many gaps");
    }
    let longest = table.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
    if dataset.season >= longest {
        let season = dataset.season;
        status!("  a season of {season} is longer than the data: there is no MASE; set season = N");
    }
    let mut constant = table.series.iter().filter(|series| is_constant(&series.values));
    if let Some(series) = constant.next() {
        let others = constant.count();
        status!("  series {:?} and {others} others are constant: they have no MASE", series.id);
    }
}

/// Whether all known values are equal.
fn is_constant(values: &[f64]) -> bool {
    let mut known = values.iter().filter(|value| !value.is_nan());
    let first = known.next();
    known.all(|value| Some(value) == first)
}

fn print_result(job: &Job<'_>, ForecasterRun { trained, plot, .. }: &ForecasterRun) {
    status!("");
    status!("{}", heading(trained.subset, trained.step));
    if trained.subset != Subset::Test {
        let horizon = job.experiment.horizon;
        status!(
            "  The test subset has no window with a horizon of {horizon}: these values were used in training."
        );
    }
    print_scores(&trained.evaluation, trained.scaled);
    if let Some(better) = better_baseline(&trained.evaluation) {
        status!(
            "The {better} baseline is more accurate here; more epochs, a longer input or another model may help."
        );
    }
    status!("");
    status!("{}", plot.title);
    report::terminal_plot(plot, 72).lines().for_each(|line| status!("{line}"));
    status!("");
    let run = job.folder.path().display().to_string();
    status!("Run folder: {run}");
    status!("  {run}/forecast.svg    the last forecast and the actual values");
    status!("  {run}/loss.svg        training and validation loss");
    // Known-future covariates end with the training data.
    let data = if job.experiment.columns.future.is_empty() { &job.experiment.data } else { "NEW.csv" };
    status!("Next: {} predict {} {} -o forecast.csv", program(), quoted(&run), quoted(data));
    if trained.seeds.seeds.len() > 1 {
        print_seeds(&trained.seeds);
    }
}

/// The best of the naive baselines, if it is better than the model.
fn better_baseline(evaluation: &Evaluation) -> Option<&str> {
    let (model, baselines) = evaluation.scores.split_first()?;
    let naive = baselines.iter().filter(|score| ["naive", "seasonal naive"].contains(&score.name.as_str()));
    let best = naive.min_by(|a, b| a.mae.total_cmp(&b.mae))?;
    (best.mae < model.mae).then_some(best.name.as_str())
}

/// Prints a row for each score: mean, standard deviation, and each seed.
fn print_seeds(SeedScores { seeds, scores, .. }: &SeedScores) {
    let row = |cells: Vec<String>| cells.iter().fold(String::new(), |row, cell| format!("{row} {cell:>10}"));
    let heads = ["mean".to_string(), "std. dev.".to_string()];
    let heads = heads.into_iter().chain(seeds.iter().map(|seed| format!("seed {seed}")));
    status!("");
    status!("{:<16}{}", "", row(heads.collect()));
    for (name, values) in scores {
        let (mean, deviation) = mean_and_deviation(values);
        let mut cells = number::column(&[&[mean], &values[..]].concat(), 4);
        cells.splice(1..1, number::column(&[deviation], 4));
        status!("{name:<16}{}", row(cells));
    }
}

/// Returns what scores are of: the subset, and the step between origins unless it is 1.
pub fn heading(subset: Subset, step: usize) -> String {
    let every = if step == 1 { String::new() } else { format!(", every {step} steps") };
    let name = subset.name();
    format!("{}{} subset{every}:", name[..1].to_uppercase(), &name[1..])
}

/// Loads the data of a run, with a warning if they have changed since training.
pub fn dataset(run: &ForecastRun) -> anyhow::Result<Dataset> {
    let dataset = run.dataset()?;
    if let Some((then, now)) = run.changed_size(&dataset) {
        status!(
            "warning: {} was trained on {then} values and its data now have {now}: the parts are those of the current \
             data, and may contain values that were trained on",
            run.folder.path().display()
        );
    }
    Ok(dataset)
}

/// Prints a table of scores, and the errors in scaled units.
pub fn print_scores(evaluation: &Evaluation, scaled: Option<ScaledErrors>) {
    for line in table(evaluation) {
        print_line!("{line}");
    }
    if let Some(ScaledErrors { windows, mse, mae }) = scaled {
        print_line!("scaled values, {windows} origins: MSE {mse:.4}, MAE {mae:.4}");
    }
}

/// An error measure of a score; NaN where it has none.
type Error = fn(&Score) -> f64;

/// The columns of a table of scores.
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
        iter::once(format!("{windows} origin{}", if *windows == 1 { "" } else { "s" }))
            .chain(names)
            .map(|name| format!("{name:<15}"))
            .collect();
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
    for (place, (level, _)) in scores.first().map_or(&[][..], |score| &score.coverage).iter().enumerate() {
        let level = number::percent(*level);
        // One digit more than the level has: a coverage of 99.96 % is not 100.0 %.
        let decimals = level.split_once('.').map_or(1, |(_, decimals)| decimals.len() + 1);
        let coverage = |score: &Score| {
            let coverage = score.coverage.get(place);
            coverage.map_or(String::new(), |(_, coverage)| format!("{:.decimals$} %", coverage * 100.0))
        };
        add(format!("cov. {level} %"), scores.iter().map(coverage).collect());
    }
    lines.iter().map(|line| line.trim_end().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model and a baseline, with errors around `size`.
    fn evaluation(size: f64, level: f64) -> Evaluation {
        let score = Score { mae: 1.25 * size, rmse: 2.5 * size, smape: 3.0, mape: 12.5, ..Score::default() };
        let model = Score {
            name: "dlinear".into(),
            coverage: vec![(level, 0.9996)],
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
            "7 origins              MAE       RMSE       MAPE      sMAPE       MASE        OWA       CRPS  cov. 80 %",
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
    fn interval_levels_are_not_rounded() {
        let lines = table(&evaluation(1.0, 0.999));
        assert!(lines[0].ends_with("cov. 99.9 %") && lines[1].ends_with(" 99.96 %"), "{lines:#?}");
    }
}
