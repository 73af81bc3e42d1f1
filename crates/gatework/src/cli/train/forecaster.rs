//! `gatework train` for forecasters: data, training, intervals, and a comparison with the baselines.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use gatework_learn::data::{Part, Windows};
use gatework_learn::experiment::{self, ExperimentError};
use gatework_learn::files;
use gatework_learn::forecast::context::Context;
use gatework_learn::forecast::dataset::Dataset;
use gatework_learn::forecast::evaluate::{Evaluation, calibrate};
use gatework_learn::forecast::experiment::{Experiment, Loaded};
use gatework_learn::forecast::predictor::Predictor;
use gatework_learn::forecast::{ForecastTask, Forecaster};
use gatework_learn::train::{self, Attempt, Best, Options, Outcome, Settings};
use serde_json::{Value, json};

use super::{Train, stop_on_interrupt};
use crate::cli;
use crate::folder::RunFolder;
use crate::forecast_run::{plot, print_scores, score};
use crate::progress::Progress;
use crate::report::{self, ForecastPlot, LossPoint};
use crate::usage::Usage;

/// Time between checkpoints.
const CHECKPOINTS: Duration = Duration::from_secs(5);

/// Trains a forecaster.
pub fn train(verb: &Train, mut loaded: Loaded) -> anyhow::Result<()> {
    if verb.seeds.is_some() {
        return Err(Usage("--seeds is for automata; a forecaster is trained with one --seed".into()).into());
    }
    let experiment = &mut loaded.experiment;
    experiment.seed = verb.seed.unwrap_or(experiment.seed);
    experiment.training.epochs = verb.updates.unwrap_or(experiment.training.epochs);
    if let Some(path) = loaded.data_file() {
        // The folder's copy of the experiment has to find the data from anywhere.
        loaded.experiment.data = std::path::absolute(&path)?.display().to_string();
    }
    if verb.resume && is_finished(verb, &loaded.experiment)? {
        return Ok(());
    }
    let begin = Instant::now();
    let dataset = Dataset::load(&loaded)?;
    tell_data(&loaded.experiment, &dataset);
    // Only now: data that cannot be used leave no folder behind.
    let folder = verb.folder(&loaded.experiment.name)?;
    folder.write("experiment.toml", loaded.experiment.to_toml().as_bytes())?;
    files::make_folder(&folder.checkpoints())?;
    let run = Run { verb, experiment: &loaded.experiment, dataset: &dataset, folder: &folder };
    let attempt = run.train()?;
    let mut summary = run.report(&attempt)?;
    summary["total_seconds"] = json!(begin.elapsed().as_secs_f64());
    folder.write("summary.json", format!("{summary:#}\n").as_bytes())?;
    if verb.json {
        cli::print_json(&summary);
    }
    Ok(())
}

/// Whether the run to be resumed has come to its end. An error if it is another one.
fn is_finished(verb: &Train, experiment: &Experiment) -> anyhow::Result<bool> {
    let folder = verb.folder(&experiment.name)?;
    check_same(&folder, experiment)?;
    let Some(summary) = folder.summary()? else { return Ok(false) };
    eprintln!("{} is finished; --force starts it anew", folder.path().display());
    if verb.json {
        cli::print_json(&summary);
    }
    Ok(true)
}

/// An error if the folder has run something else.
fn check_same(folder: &RunFolder, asked: &Experiment) -> anyhow::Result<()> {
    let there: Result<experiment::Loaded, ExperimentError> =
        experiment::Loaded::read(&folder.path().join("experiment.toml"));
    match there? {
        experiment::Loaded::Forecaster(there) if there.experiment == *asked => Ok(()),
        _ => {
            let path = folder.path().display();
            Err(Usage(format!("{path} belongs to another experiment, or its settings or seed were others"))
                .into())
        }
    }
}

fn tell_data(experiment: &Experiment, dataset: &Dataset) {
    let table = &dataset.table;
    eprintln!(
        "Data: {} series, {} values, frequency {}, season {}; {} windows to train on",
        table.series.len(),
        table.values(),
        table.frequency,
        dataset.season,
        dataset.windows(Part::Train, experiment.stride).len()
    );
    for line in table.report.lines(experiment.columns.missing) {
        eprintln!("  {line}");
    }
    let short = dataset.windows(Part::Train, experiment.stride).without();
    if !short.is_empty() {
        eprintln!("  {} series are too short and left out of training", short.len());
    }
}

/// One run of an experiment.
struct Run<'a> {
    verb: &'a Train,
    experiment: &'a Experiment,
    dataset: &'a Dataset,
    folder: &'a RunFolder,
}

impl Run<'_> {
    fn train(&self) -> anyhow::Result<Attempt> {
        let Run { experiment, dataset, folder, .. } = *self;
        let options = Options {
            settings: self.settings(),
            seeds: vec![experiment.seed],
            until_success: false,
            side_by_side: 1,
            threads_each: cli::threads(self.verb.threads),
            checkpoints: Some(folder.checkpoints()),
            interval: CHECKPOINTS,
        };
        let stop = stop_on_interrupt()?;
        let specification = experiment.specification();
        let make = |seed| {
            let task = ForecastTask::new(&specification, dataset.loader(experiment, seed), seed)?;
            Ok(match experiment.training.part {
                Some(rows) => task.with_part(rows),
                None => task,
            })
        };
        let attempts = {
            let progress = Progress::of_forecaster(options.settings.updates);
            train::run(&options, make, &progress, &stop)?
        };
        let attempt = attempts.into_iter().next().context("no update was made")?;
        if stop.load(Ordering::SeqCst) && attempt.outcome == Outcome::Running {
            anyhow::bail!("stopped; a checkpoint is written. Go on with: {}", folder.resume_command());
        }
        Ok(attempt)
    }

    /// The trainer's settings.
    fn settings(&self) -> Settings {
        let epoch = self.dataset.loader(self.experiment, 0).updates_per_epoch();
        self.experiment.training.settings(epoch)
    }

    /// The best model, with intervals.
    fn predictor(&self, best: &Best) -> anyhow::Result<Predictor> {
        let specification = self.experiment.specification();
        let mut params = specification.params(self.experiment.seed)?;
        params.values.copy_from_slice(&best.values);
        let context = self.dataset.context(self.experiment);
        let mut predictor = Predictor::new(Forecaster::new(specification, params)?, context);
        let windows = self.dataset.windows(Part::Validation, 1);
        let conformal = calibrate(&mut predictor, &windows, &self.dataset.table, &self.experiment.intervals)?;
        let context = Context { conformal, ..predictor.context().clone() };
        Ok(predictor.with_context(context))
    }

    fn report(&self, attempt: &Attempt) -> anyhow::Result<Value> {
        let best = attempt.best.as_ref().context("the validation windows were never looked at")?;
        let mut predictor = self.predictor(best)?;
        let has_test = !self.dataset.windows(Part::Test, 1).is_empty();
        let part = if has_test { Part::Test } else { Part::Validation };
        let (step, evaluation) = score(&mut predictor, self.dataset, part, None)?;
        let picture = self.picture(&mut predictor, &self.dataset.windows(part, 1))?;
        let folder = self.folder;
        folder.write("model.safetensors", &predictor.to_bytes())?;
        folder.write("metrics.csv", self.metrics(attempt).as_bytes())?;
        let title = format!("{}, seed {}", self.experiment.name, attempt.seed);
        folder.write("loss.svg", report::forecaster_loss_plot(&title, &losses(attempt)).as_bytes())?;
        folder.write("forecast.svg", report::forecast_plot(&picture).as_bytes())?;
        self.tell(&evaluation, &picture, part, step);
        let part = format!("{part:?}").to_lowercase();
        Ok(json!({
            "experiment": self.experiment.name,
            "model": predictor.specification().model.name(),
            "parameters": predictor.parameters(),
            "seed": attempt.seed,
            "updates": attempt.update,
            "epochs": self.experiment.training.epochs,
            "best_update": best.update,
            "seconds": attempt.seconds,
            "training_loss": best.soft,
            "validation_loss": best.hard,
            "evaluated_on": part,
            "origins": evaluation.windows,
            "step": step,
            "scores": evaluation.scores,
            "run": folder.path(),
        }))
    }

    /// The last window of the first series that has one.
    fn picture(&self, predictor: &mut Predictor, windows: &Windows) -> anyhow::Result<ForecastPlot> {
        let place = |number: usize| windows.place(number).unwrap_or_default();
        let first = place(0).0;
        let number = (0..windows.len()).take_while(|number| place(*number).0 == first).last().unwrap_or(0);
        let prediction = predictor.predict_windows(windows, &[number as u32], &self.dataset.table)?;
        Ok(plot(&self.dataset.table, first, place(number).1, &prediction[0]))
    }

    fn metrics(&self, attempt: &Attempt) -> String {
        let settings = self.settings();
        let mut text = String::from("seed,update,learning_rate,training_loss,validation_loss\n");
        for (update, metric) in attempt.metrics.iter().enumerate() {
            let rate = settings.rate.at(update as u64, settings.updates);
            let hard = metric.hard.map_or_else(String::new, |hard| hard.to_string());
            let _ = writeln!(text, "{},{update},{rate},{},{hard}", attempt.seed, metric.soft);
        }
        text
    }

    fn tell(&self, evaluation: &Evaluation, picture: &ForecastPlot, part: Part, step: usize) {
        let every = if step == 1 { String::new() } else { format!(", every {step} steps") };
        eprintln!("\n{part:?} part{every}:");
        print_scores(evaluation);
        eprintln!("\n{}\n{}", picture.title, report::terminal_plot(picture, 72));
        let run = self.folder.path().display();
        eprintln!("Run folder: {run}");
        eprintln!("  {run}/forecast.svg    the last forecast against what came");
        eprintln!("  {run}/loss.svg        training and validation loss");
        eprintln!("Next: gatework predict {run} {} -o forecast.csv", self.experiment.data);
    }
}

/// The losses for the plot: the validation loss stays as it is until the next look.
fn losses(attempt: &Attempt) -> Vec<LossPoint> {
    let mut hard = f64::NAN;
    let point = |(update, metric): (usize, &train::Metric)| {
        hard = metric.hard.unwrap_or(hard);
        LossPoint { update: update as u64, soft: metric.soft, hard }
    };
    attempt.metrics.iter().enumerate().map(point).collect()
}
