//! Training runs with their plots: one call trains an experiment into a run folder.
//!
//! The learners' own modules, [`automata::run`](gatework_gates::automata::run),
//! [`classifier::run`](gatework_gates::classifier::run) and [`forecast::run`](gatework_forecast::run),
//! train and write models; the functions here also write the plots and the summary.
//!
//! | file | of | content |
//! |---|---|---|
//! | `progress.json` | all | the progress, while it is trained |
//! | `loss.svg` | all | the losses over the updates |
//! | `gates.svg` | automata, classifiers | how often each gate function was learned |
//! | `rollout.gif` | automata | a simulation |
//! | `forecast.svg` | forecasters | the last forecast compared with the actual values |

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gatework_forecast::data::{Table, Windows};
use gatework_forecast::prediction::{Interval, Prediction};
use gatework_forecast::run as forecast_run;
use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::run::{self as automata_run, Trained};
use gatework_gates::classifier::experiment::ClassifierExperiment;
use gatework_gates::classifier::run as classifier_run;
use gatework_gates::classifier::task::Prepared;
use gatework_train::run_folder::RunFolder;
use gatework_train::trainer::{Attempt, Metric, Observer, Quiet};
use serde_json::Value;

use crate::live::Recorder;
use crate::report::{self, ForecastPlot, LossPoint};
use crate::simulation::{self, SimulationError};
use crate::subject::gate_histogram;

/// Returns the number of threads of this machine.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Trains an automaton in memory, on all threads: a built-in experiment by its name, or a TOML file.
///
/// ```no_run
/// let trained = gatework::train_automaton("checkerboard")?;
/// println!("{} gates", trained.gates.reachable);
/// # Ok::<(), gatework::automata::run::RunError>(())
/// ```
pub fn train_automaton(experiment: &str) -> Result<Trained, automata_run::RunError> {
    let loaded = AutomatonExperiment::find(experiment)?;
    automata_run::train(&loaded, None, available_threads(), &Quiet, &AtomicBool::new(false))
}

/// A finished run of an automaton.
#[derive(Debug)]
#[non_exhaustive]
pub struct AutomatonRun {
    /// The trained automaton.
    pub trained: Trained,
    /// The summary, as in `summary.json`.
    pub summary: Value,
    /// The error that prevented `rollout.gif`, if any.
    pub gif_error: Option<SimulationError>,
}

/// Trains an automaton into a run folder that was prepared with [`begin`](gatework_gates::automata::run::begin) or
/// [`resume`](gatework_gates::automata::run::resume). `hidden` shows all channels in `rollout.gif`.
pub fn train_automaton_into(
    folder: &RunFolder,
    loaded: &AutomatonExperiment,
    hidden: bool,
    threads: usize,
    observer: &impl Observer,
    stop: &AtomicBool,
) -> Result<AutomatonRun, automata_run::RunError> {
    let trained = {
        let recorder = Recorder::new(folder, observer, loaded.experiment.updates());
        automata_run::train(loaded, Some(folder), threads, &recorder, stop)?
    };
    let kept = trained.kept();
    let title = format!("{}, seed {}", loaded.experiment.name, kept.seed);
    let search_from = (kept.moves > 0).then_some(kept.update);
    let plot = report::loss_plot(&title, &automaton_losses(kept), search_from);
    folder.write("loss.svg", plot.as_bytes())?;
    let histogram = gate_histogram(&trained.model.functions());
    folder.write("gates.svg", report::gate_histogram(&title, &histogram).as_bytes())?;
    let gif_error = match simulation::training_gif(loaded, &trained.automaton, kept.seed, hidden) {
        Ok(gif) => {
            folder.write("rollout.gif", &gif)?;
            None
        }
        Err(error) => Some(error),
    };
    let summary = automata_run::finish(folder, &loaded.experiment, &trained)?;
    Ok(AutomatonRun { trained, summary, gif_error })
}

/// The losses of the updates, followed by those of the search.
fn automaton_losses(attempt: &Attempt) -> Vec<LossPoint> {
    let update = |(update, metric): (usize, &Metric)| LossPoint {
        update: update as u64,
        soft: metric.soft,
        hard: metric.hard.unwrap_or(f64::NAN),
    };
    let search = attempt.trace.iter().map(|&(moves, hard)| LossPoint {
        update: attempt.update + moves,
        soft: f64::NAN,
        hard,
    });
    attempt.metrics.iter().enumerate().map(update).chain(search).collect()
}

/// A finished run of a classifier.
#[non_exhaustive]
pub struct ClassifierRun {
    /// The trained classifier.
    pub trained: classifier_run::Trained,
    /// The summary, as in `summary.json`.
    pub summary: Value,
}

/// Trains a classifier into a run folder that was prepared with [`begin`](gatework_gates::classifier::run::begin).
pub fn train_classifier_into(
    folder: &RunFolder,
    loaded: &ClassifierExperiment,
    prepared: &Arc<Prepared>,
    threads: usize,
    observer: &impl Observer,
    stop: &AtomicBool,
) -> Result<ClassifierRun, classifier_run::RunError> {
    let trained = {
        let training = &loaded.experiment.training;
        let updates = training.epochs.saturating_mul(prepared.updates_per_epoch(training));
        let recorder = Recorder::new(folder, observer, updates);
        classifier_run::train(loaded, prepared, Some(folder), threads, &recorder, stop)?
    };
    let kept = &trained.attempts[trained.kept];
    let title = format!("{}, seed {}", loaded.experiment.name, kept.seed);
    let losses = report::classifier_loss_plot(&title, &forecaster_losses(kept));
    folder.write("loss.svg", losses.as_bytes())?;
    let functions: Vec<_> = trained.classifier.circuit().nodes().iter().map(|node| node.gate).collect();
    let histogram = report::gate_histogram(&title, &gate_histogram(&functions));
    folder.write("gates.svg", histogram.as_bytes())?;
    let summary = classifier_run::finish(folder, &loaded.experiment, prepared, &trained)?;
    Ok(ClassifierRun { trained, summary })
}

/// A finished run of a forecaster.
#[non_exhaustive]
pub struct ForecasterRun {
    /// The trained model with its scores.
    pub trained: forecast_run::Trained,
    /// The summary, as in `summary.json`.
    pub summary: Value,
    /// The plot in `forecast.svg`.
    pub plot: ForecastPlot,
}

/// Trains a forecaster into its run folder.
pub fn train_forecaster_into(
    job: &forecast_run::Job<'_>,
    observer: &impl Observer,
    stop: &AtomicBool,
) -> Result<ForecasterRun, forecast_run::RunError> {
    let trained = job.train(&Recorder::new(job.folder, observer, job.settings().updates), stop)?;
    let title = format!("{}, seed {}", job.experiment.name, trained.attempt.seed);
    let losses = report::forecaster_loss_plot(&title, &forecaster_losses(&trained.attempt));
    job.folder.write("loss.svg", losses.as_bytes())?;
    let windows = job.dataset.windows(trained.subset, 1);
    let (series, origin, number) = last_window_of_first_series(&windows);
    let predictions = trained.forecaster.predict_windows(&windows, &[number as u32], &job.dataset.table)?;
    let Prediction { values, intervals } = &predictions[0];
    let plot = forecast_plot(&job.dataset.table, series, origin, values, intervals);
    job.folder.write("forecast.svg", report::forecast_plot(&plot).as_bytes())?;
    let summary = job.finish(&trained)?;
    Ok(ForecasterRun { trained, summary, plot })
}

/// The losses of the updates. The validation loss is repeated until it is computed again.
fn forecaster_losses(attempt: &Attempt) -> Vec<LossPoint> {
    let mut hard = f64::NAN;
    let point = |(update, metric): (usize, &Metric)| {
        hard = metric.hard.unwrap_or(hard);
        LossPoint { update: update as u64, soft: metric.soft, hard }
    };
    attempt.metrics.iter().enumerate().map(point).collect()
}

/// The series, the forecast origin and the number of the last window of the first series that has one.
fn last_window_of_first_series(windows: &Windows) -> (usize, usize, usize) {
    let place = |number: usize| windows.origin(number).unwrap_or_default();
    let first = place(0).0;
    let number = (0..windows.len()).take_while(|number| place(*number).0 == first).last().unwrap_or(0);
    (first, place(number).1, number)
}

/// Returns the plot of a forecast of a series from a forecast origin, with a readable length of its history.
pub fn forecast_plot(
    table: &Table,
    series: usize,
    origin: usize,
    values: &[f64],
    intervals: &[Interval],
) -> ForecastPlot {
    let horizon = values.len();
    let series = &table.series[series];
    let begin = origin.saturating_sub((5 * horizon).max(48));
    let end = series.values.len().min(origin + horizon);
    let intervals = intervals.iter().map(|i| (i.level, i.low.clone(), i.high.clone())).collect();
    ForecastPlot {
        title: format!("{}, {horizon} steps from {}", series.id, table.time(series, origin)),
        times: (begin..origin + horizon).map(|step| table.time(series, step)).collect(),
        history: series.values[begin..origin].to_vec(),
        actual: series.values[origin..end].to_vec(),
        forecast: values.to_vec(),
        intervals,
    }
}
