//! `gatework train` for forecasters: data, training, intervals, and a comparison with the baselines.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::experiment::{self, ExperimentError};
use anyhow::Context as _;
use gatework_forecast::data::{Subset, Windows};
use gatework_forecast::evaluation::{Evaluation, calibrate};
use gatework_forecast::experiment::Dataset;
use gatework_forecast::experiment::{Experiment, ForecastExperiment};
use gatework_forecast::prediction::Context;
use gatework_forecast::prediction::Predictor;
use gatework_forecast::{ForecastTask, Forecaster};
use gatework_train::experiment::Source;
use gatework_train::files;
use gatework_train::trainer::{self, Attempt, Best, Options, Settings};
use serde_json::{Value, json};

use super::seeds::{Scored, Seeds};
use super::{Train, stop_on_interrupt};
use crate::cli;
use crate::cli::evaluate::heading;
use crate::folder::{RunFolder, program, quoted};
use crate::forecast_run::{ForecastRun, plot, print_scores, scaled_score, score, usual_step};
use crate::progress::Progress;
use crate::report::{self, ForecastPlot, LossPoint};
use crate::usage::Usage;

/// Windows that the width of intervals is learned from, at most.
const MOST_CALIBRATED: usize = 5000;

/// The file beside the checkpoints that says which data they saw.
const DATA: &str = "data.txt";

/// Time between checkpoints.
const CHECKPOINTS: Duration = Duration::from_secs(5);

/// Trains a forecaster.
pub fn train(verb: &Train, mut loaded: ForecastExperiment) -> anyhow::Result<()> {
    let experiment = &mut loaded.experiment;
    experiment.seed = verb.seed.unwrap_or(experiment.seed);
    let training = &mut experiment.training;
    if let Some(epochs) = verb.updates {
        training.epochs = Some(epochs);
        training.validation_start_epoch = training.validation_start_epoch.map(|first| first.min(epochs));
    }
    experiment.horizon = verb.horizon.unwrap_or(experiment.horizon);
    let seeds = verb.seeds.map_or_else(|| vec![experiment.seed], |count| (1..=count).collect());
    experiment.seed = seeds[0];
    let loaded = prepare(loaded)?;
    if verb.resume && is_finished(verb, &loaded.experiment)? {
        return Ok(());
    }
    loaded.experiment.specification().parameters()?;
    let dataset = Dataset::load(&loaded)?;
    // Only now: data that cannot be used leave no folder behind.
    let folder = verb.folder(&loaded.experiment.name)?;
    let stop = stop_on_interrupt()?;
    let threads = cli::threads(verb.threads);
    let job = Job {
        experiment: &loaded.experiment,
        dataset: &dataset,
        folder: &folder,
        seeds,
        threads,
        stop: &stop,
    };
    let summary = job.run()?;
    if verb.json {
        cli::print_json(&summary)?;
    }
    Ok(())
}

/// Checks an experiment again, whose settings may have changed, and lets a copy of it find its data from anywhere.
pub fn prepare(mut loaded: ForecastExperiment) -> anyhow::Result<ForecastExperiment> {
    let (data, test) = (loaded.data_file()?, loaded.test_file()?);
    let absolute = |path: PathBuf| std::path::absolute(path).map(|path| path.display().to_string());
    if let Some(path) = data {
        loaded.experiment.data = absolute(path)?;
    }
    loaded.experiment.test_data = test.map(absolute).transpose()?;
    let text = loaded.experiment.to_toml();
    Ok(ForecastExperiment::from_source(&Source::new(&text, &loaded.experiment.name, &loaded.folder))?)
}

/// Whether the run to be resumed has come to its end. An error if it is another one.
fn is_finished(verb: &Train, experiment: &Experiment) -> anyhow::Result<bool> {
    let folder = verb.folder(&experiment.name)?;
    // Of several seeds, the folder has the one that was kept.
    check_same(&folder, experiment, verb.seeds.is_some())?;
    let is_whole = matches!(ForecastRun::open(folder.path()), Ok(Some(_)));
    let Some(summary) = folder.summary_if_whole().filter(|_| is_whole) else { return Ok(false) };
    let seeds = summary["seeds"]["seeds"].as_array().map_or(1, Vec::len) as u64;
    if verb.seeds.is_some_and(|asked| asked > seeds) {
        return Ok(false);
    }
    say!("{} is finished; --force starts it anew", folder.path().display());
    if verb.json {
        cli::print_json(&summary)?;
    }
    Ok(true)
}

/// An error if the folder has run something else, or, unless any will do, another seed.
pub fn check_same(folder: &RunFolder, asked: &Experiment, any_seed: bool) -> anyhow::Result<()> {
    let there: Result<experiment::Loaded, ExperimentError> =
        experiment::Loaded::read(&folder.path().join("experiment.toml"));
    let same = |there: &Experiment| {
        let asked = Experiment { seed: if any_seed { there.seed } else { asked.seed }, ..asked.clone() };
        what_counts(there) == what_counts(&asked)
    };
    match there? {
        experiment::Loaded::Forecaster(there) if same(&there.experiment) => Ok(()),
        _ => {
            let path = folder.path().display();
            Err(Usage(format!("{path} belongs to another experiment, or its settings or seed were others"))
                .into())
        }
    }
}

/// An experiment without what is for people only.
fn what_counts(experiment: &Experiment) -> Experiment {
    Experiment { about: String::new(), expected: String::new(), published: Vec::new(), ..experiment.clone() }
}

fn tell_data(experiment: &Experiment, dataset: &Dataset) {
    let table = &dataset.table;
    say!(
        "Data: {} series, {} values, frequency {}, season {}; {} windows to train on",
        table.series.len(),
        table.values(),
        table.frequency,
        dataset.season,
        dataset.windows(Subset::Train, experiment.stride).len()
    );
    for line in table.report.lines(experiment.columns.missing) {
        say!("  {line}");
    }
    let short = dataset.windows(Subset::Train, experiment.stride).series_without_windows();
    if !short.is_empty() {
        say!(
            "  {} series have no window, too short or with too many gaps, and are left out of training",
            short.len()
        );
    }
    let longest = table.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
    if dataset.season >= longest {
        let season = dataset.season;
        say!("  a season of {season} is longer than the data: there is no MASE; season = N names another");
    }
    let mut constant = table.series.iter().filter(|series| is_constant(&series.values));
    if let Some(series) = constant.next() {
        let others = constant.count();
        say!("  series {:?} and {others} others never change: they have no MASE", series.id);
    }
}

/// Whether all values that are known are the same.
fn is_constant(values: &[f64]) -> bool {
    let mut known = values.iter().filter(|value| !value.is_nan());
    let first = known.next();
    known.all(|value| Some(value) == first)
}

/// What is to be trained, and where it goes.
pub struct Job<'a> {
    /// The experiment, with paths that are found from anywhere.
    pub experiment: &'a Experiment,
    /// Its data.
    pub dataset: &'a Dataset,
    /// Its folder.
    pub folder: &'a RunFolder,
    /// One run each; the one with the lowest validation loss is kept.
    pub seeds: Vec<u64>,
    /// Threads to use.
    pub threads: usize,
    /// Set when it should end.
    pub stop: &'a AtomicBool,
}

impl Job<'_> {
    /// Trains, writes the run folder and returns its summary.
    pub fn run(&self) -> anyhow::Result<Value> {
        let begin = Instant::now();
        tell_data(self.experiment, self.dataset);
        files::make_folder(&self.folder.checkpoints())?;
        self.check_data()?;
        self.folder.write("experiment.toml", self.experiment.to_toml().as_bytes())?;
        let attempts = self.train()?;
        let mut summary = self.report(attempts)?;
        summary["total_seconds"] = json!(begin.elapsed().as_secs_f64());
        self.folder.write("summary.json", format!("{summary:#}\n").as_bytes())?;
        Ok(summary)
    }

    /// Takes note of the data in the folder; an error if checkpoints are there that saw others.
    fn check_data(&self) -> anyhow::Result<()> {
        let path = self.folder.checkpoints().join(DATA);
        let ours = format!("{:016x}\n", self.dataset.table.fingerprint());
        if path.is_file() && files::read_text(&path)? != ours {
            let run = self.folder.path().display();
            let message = format!("the data have changed since {run} began; --force starts it anew");
            return Err(Usage(message).into());
        }
        Ok(files::write_whole(&path, ours.as_bytes())?)
    }

    fn train(&self) -> anyhow::Result<Vec<Attempt>> {
        let Job { experiment, dataset, folder, threads, .. } = *self;
        let side_by_side = threads.min(self.seeds.len());
        let options = Options {
            settings: self.settings(),
            seeds: self.seeds.clone(),
            until_success: false,
            side_by_side,
            threads_each: threads / side_by_side.max(1),
            checkpoints: Some(folder.checkpoints()),
            interval: CHECKPOINTS,
        };
        let specification = experiment.specification();
        let make = |seed| {
            let training = &experiment.training;
            let task = ForecastTask::new(&specification, dataset.loader(experiment, seed), seed)?
                .with_validation_start(training.validation_start_epoch.unwrap_or(1));
            Ok(match training.micro_batch {
                Some(rows) => task.with_micro_batch(rows),
                None => task,
            })
        };
        let attempts = {
            let progress = Progress::of_forecaster(options.settings.updates);
            trainer::run(&options, make, &progress, self.stop)?
        };
        if !options.are_met_by(&attempts) {
            anyhow::bail!("stopped; a checkpoint is written. Go on with: {}", self.resume_command());
        }
        Ok(attempts)
    }

    fn resume_command(&self) -> String {
        match self.seeds.len() {
            1 => self.folder.resume_command(),
            several => format!("{} --seeds {several}", self.folder.resume_command()),
        }
    }

    /// The trainer's settings.
    fn settings(&self) -> Settings {
        self.experiment.training.settings(self.updates_per_epoch())
    }

    fn updates_per_epoch(&self) -> u64 {
        self.dataset.loader(self.experiment, 0).updates_per_epoch()
    }

    /// The best model, with intervals.
    fn predictor(&self, best: &Best) -> anyhow::Result<Predictor> {
        let specification = self.experiment.specification();
        let mut params = specification.params(self.experiment.seed)?;
        params.values.copy_from_slice(&best.values);
        let context = self.dataset.context(self.experiment);
        let mut predictor = Predictor::new(Forecaster::new(specification, params)?, context);
        let count = self.dataset.windows(Subset::Validation, 1).len();
        let windows = self.dataset.windows(Subset::Validation, count.div_ceil(MOST_CALIBRATED).max(1));
        let conformal = calibrate(&mut predictor, &windows, &self.dataset.table, &self.experiment.intervals)?;
        let context = Context { conformal, ..predictor.context().clone() };
        Ok(predictor.with_context(context))
    }

    /// The part that results are shown on: the test part, if there is one.
    fn part(&self) -> Subset {
        if self.dataset.windows(Subset::Test, 1).is_empty() { Subset::Validation } else { Subset::Test }
    }

    fn score(&self, attempt: Attempt) -> anyhow::Result<Scored> {
        let best = attempt.best.as_ref().context("the validation windows were never looked at")?;
        let mut predictor = self.predictor(best)?;
        let step = usual_step(self.dataset, self.part());
        let evaluation = score(&mut predictor, self.dataset, self.part(), step)?;
        let scaled = scaled_score(&mut predictor, self.dataset, self.part())?;
        Ok(Scored { validation: best.hard, attempt, predictor, evaluation, scaled })
    }

    fn report(&self, attempts: Vec<Attempt>) -> anyhow::Result<Value> {
        let metrics = self.metrics(&attempts);
        let mut scored =
            attempts.into_iter().map(|attempt| self.score(attempt)).collect::<anyhow::Result<Vec<_>>>()?;
        let seeds = Seeds::of(&scored);
        scored.sort_by(|a, b| a.validation.total_cmp(&b.validation));
        let mut kept = scored.into_iter().next().context("no update was made")?;
        let (folder, part) = (self.folder, self.part());
        let picture = self.picture(&mut kept.predictor, &self.dataset.windows(part, 1))?;
        let what_ran = Experiment { seed: kept.attempt.seed, ..self.experiment.clone() };
        folder.write("experiment.toml", what_ran.to_toml().as_bytes())?;
        folder.write("model.safetensors", &kept.predictor.to_bytes())?;
        folder.write("metrics.csv", metrics.as_bytes())?;
        let title = format!("{}, seed {}", self.experiment.name, kept.attempt.seed);
        folder.write("loss.svg", report::forecaster_loss_plot(&title, &losses(&kept.attempt)).as_bytes())?;
        folder.write("forecast.svg", report::forecast_plot(&picture).as_bytes())?;
        self.tell(&kept.evaluation, &picture, part);
        let mut summary = self.summary(&kept);
        if self.seeds.len() > 1 {
            seeds.tell();
            summary["seeds"] = seeds.to_json();
        }
        Ok(summary)
    }

    fn summary(&self, kept: &Scored) -> Value {
        let Scored { attempt, predictor, evaluation, scaled, validation } = kept;
        let part = self.part();
        json!({
            "experiment": self.experiment.name,
            "model": predictor.specification().model.name(),
            "parameters": predictor.parameters(),
            "horizon": predictor.specification().horizon,
            "seed": attempt.seed,
            "updates": attempt.update,
            "epochs": self.experiment.training.epochs(self.updates_per_epoch()),
            "best_update": attempt.best.as_ref().map(|best| best.update),
            "seconds": attempt.seconds,
            "training_loss": attempt.best.as_ref().map(|best| best.soft),
            "validation_loss": validation,
            "evaluated_on": format!("{part:?}").to_lowercase(),
            "origins": evaluation.windows,
            "step": usual_step(self.dataset, part),
            "scores": evaluation.scores,
            "scaled": scaled,
            "run": self.folder.path(),
        })
    }

    /// The last window of the first series that has one.
    fn picture(&self, predictor: &mut Predictor, windows: &Windows) -> anyhow::Result<ForecastPlot> {
        let place = |number: usize| windows.origin(number).unwrap_or_default();
        let first = place(0).0;
        let number = (0..windows.len()).take_while(|number| place(*number).0 == first).last().unwrap_or(0);
        let prediction = predictor.predict_windows(windows, &[number as u32], &self.dataset.table)?;
        Ok(plot(&self.dataset.table, first, place(number).1, &prediction[0]))
    }

    fn metrics(&self, attempts: &[Attempt]) -> String {
        let settings = self.settings();
        let mut text = String::from("seed,update,learning_rate,training_loss,validation_loss\n");
        for attempt in attempts {
            for (update, metric) in attempt.metrics.iter().enumerate() {
                let rate = settings.rate.at(update as u64, settings.updates);
                let hard = metric.hard.map_or_else(String::new, |hard| hard.to_string());
                let _ = writeln!(text, "{},{update},{rate},{},{hard}", attempt.seed, metric.soft);
            }
        }
        text
    }

    fn tell(&self, evaluation: &Evaluation, picture: &ForecastPlot, part: Subset) {
        say!("\n{}", heading(part, usual_step(self.dataset, part)));
        if part != Subset::Test {
            let horizon = self.experiment.horizon;
            say!(
                "  The test part has no window with a horizon of {horizon}: training has looked at these values."
            );
        }
        print_scores(evaluation);
        if let Some(better) = better_baseline(evaluation) {
            say!(
                "The {better} forecast, which learns nothing, is closer here; more epochs, a longer input or another model \
                 may help."
            );
        }
        say!("\n{}\n{}", picture.title, report::terminal_plot(picture, 72));
        let run = self.folder.path().display();
        say!("Run folder: {run}");
        say!("  {run}/forecast.svg    the last forecast against what came");
        say!("  {run}/loss.svg        training and validation loss");
        // What is known in advance ends with the data that were trained on.
        let data = if self.experiment.columns.future.is_empty() { &self.experiment.data } else { "NEW.csv" };
        say!("Next: {} predict {} {} -o forecast.csv", program(), quoted(&run), quoted(data));
    }
}

/// The best of the simple baselines, if it is better than the model.
fn better_baseline(evaluation: &Evaluation) -> Option<&str> {
    let (model, baselines) = evaluation.scores.split_first()?;
    let naive = baselines.iter().filter(|score| ["naive", "seasonal naive"].contains(&score.name.as_str()));
    let best = naive.min_by(|a, b| a.mae.total_cmp(&b.mae))?;
    (best.mae < model.mae).then_some(best.name.as_str())
}

/// The losses for the plot: the validation loss stays as it is until the next look.
fn losses(attempt: &Attempt) -> Vec<LossPoint> {
    let mut hard = f64::NAN;
    let point = |(update, metric): (usize, &trainer::Metric)| {
        hard = metric.hard.unwrap_or(hard);
        LossPoint { update: update as u64, soft: metric.soft, hard }
    };
    attempt.metrics.iter().enumerate().map(point).collect()
}
