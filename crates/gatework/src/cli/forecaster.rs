//! What several verbs print about forecasters: data, scores, seeds.

use std::sync::atomic::AtomicBool;

use gatework_forecast::data::Subset;
use gatework_forecast::evaluation::{Evaluation, ScaledErrors};
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
    for line in report::score_table(evaluation) {
        print_line!("{line}");
    }
    if let Some(ScaledErrors { windows, mse, mae }) = scaled {
        let origins = if windows == 1 { "origin" } else { "origins" };
        print_line!("scaled values, {windows} {origins}: MSE {mse:.4}, MAE {mae:.4}");
    }
}
