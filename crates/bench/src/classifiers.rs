//! `gatework-bench classifiers`: accuracy, size and speed of classifiers that are trained on tables.
//!
//! Every seed has a split of its own, unless the test rows are official; `cases` writes the same splits for peers. A time is the
//! minimum, except that of training. The row `dense-48k` is a network of six layers of 8,000 gates that is not trained: its
//! inference does as much work as that of a trained one.

mod cases;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use gatework_engine::kernel;
use gatework_gates::classifier::data::{Dataset, Feature, ImageShape, Values};
use gatework_gates::classifier::experiment::{ClassifierExperiment, Experiment};
use gatework_gates::classifier::task::Prepared;
use gatework_gates::classifier::{choose, run};
use gatework_logic::classifier::{Classifier, Rows};
use gatework_logic::simulate::Predictor;
use gatework_logic::{Document, to_json};
use gatework_train::trainer::Quiet;
use serde_json::{Value, json};

use super::process::all_processor_seconds;
use gatework::cli;

/// The built-in experiments on tables. Those that read files need the environment variable `GATEWORK_DATA`.
const TABLES: [&str; 7] = ["adult", "breast-cancer", "monk-1", "monk-2", "monk-3", "digits", "iris"];

/// The row of inference only.
const DENSE: &str = "dense-48k";

/// Samples of a batch.
const BATCH: usize = 1 << 14;

/// The columns of the printed table.
const COLUMNS: [super::Column; 9] = [
    ("acc. %", 9, "accuracy", 0.01, 2),
    ("+-", 6, "deviation", 0.01, 2),
    ("gates", 8, "gates", 1.0, 0),
    ("kB", 9, "file_kb", 1.0, 1),
    ("train s", 9, "train_seconds", 1.0, 2),
    ("ready ms", 10, "ready_seconds", 1e-3, 2),
    ("one ns", 10, "one_ns", 1.0, 0),
    ("batch ns", 10, "batch_ns", 1.0, 1),
    ("M/s", 8, "samples_per_second", 1e6, 2),
];

/// Help on the fields of the rows.
const ROWS: &str = "Fields of --json, for each table:
  accuracy, deviation       share of the test rows that the hard circuit gets right: mean and sample standard deviation
  gates                     gates on which an output depends, of the last seed, as are all fields below
  file_kb                   size of circuit.json
  train_seconds             processor time of training and search, mean of the seeds
  ready_seconds             time to compile encoder, gates and head
  one_ns                    time of one sample alone, from its values to its label
  batch_ns                  time per sample in a batch of 16,384 test rows, which are repeated if there are fewer
  samples_per_second        1e9 / batch_ns";

#[derive(Debug, Args)]
#[command(after_help = ROWS)]
pub struct Classifiers {
    /// Tables, for which all settings are chosen; the built-in ones, if none is given
    #[arg(value_name = "TABLE.csv")]
    tables: Vec<PathBuf>,
    /// Only rows whose name contains this
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Number of seeds
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=1000))]
    seeds: u64,
    /// Seconds for each measurement of time
    #[arg(long, value_name = "S", default_value_t = 1.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Number of threads
    #[arg(long, value_name = "N", default_value = "1", value_parser = cli::parse_threads)]
    threads: usize,
    /// Measure nothing; write the tables and the splits of all seeds to DIR, for peers
    #[arg(long, value_name = "DIR")]
    cases: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Classifiers {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(folder) = &self.cases {
            return self.write_cases(folder);
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads).build()?;
        super::print_headings("table", 24, &COLUMNS);
        let mut results = Vec::new();
        let mut push = |row: Value| {
            super::print_row(row["table"].as_str().unwrap_or_default(), 24, &COLUMNS, &row);
            results.push(row);
        };
        for experiment in self.experiments()? {
            push(pool.install(|| self.measure(&experiment)).with_context(|| experiment.name.clone())?);
        }
        if self.tables.is_empty() && self.wants(DENSE) {
            push(pool.install(|| self.dense())?);
        }
        if self.json {
            cli::print_json(&json!({
                "bench": "classifiers", "simd": kernel::simd_name(), "threads": self.threads,
                "seeds": self.seeds, "results": results,
            }))?;
        }
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.contains(only.as_str()))
    }

    /// Returns the experiments that are asked for. Built-in ones without their data are left out.
    fn experiments(&self) -> anyhow::Result<Vec<Experiment>> {
        let mut experiments = Vec::new();
        for path in &self.tables {
            let chosen = choose::data(path, &choose::Request::default());
            experiments.push(chosen.with_context(|| path.display().to_string())?.experiment);
        }
        for name in TABLES.iter().filter(|_| self.tables.is_empty()) {
            let experiment = ClassifierExperiment::find(name)?.experiment;
            if experiment.to_toml().contains("$GATEWORK_DATA") && std::env::var_os("GATEWORK_DATA").is_none()
            {
                status!("left out: {name}, whose data are in the folder GATEWORK_DATA, which is not set");
            } else {
                experiments.push(experiment);
            }
        }
        experiments.retain(|experiment| self.wants(&experiment.name));
        Ok(experiments)
    }

    /// Returns the experiment of each seed, with its data.
    fn prepare<'a>(
        &self,
        experiment: &'a Experiment,
    ) -> impl Iterator<Item = anyhow::Result<(ClassifierExperiment, Arc<Prepared>)>> + use<'a> {
        (1..=self.seeds).map(|seed| {
            let mut experiment = Experiment { seed, seeds: None, ..experiment.clone() };
            experiment.data.split_seed = seed;
            let prepared = experiment.prepare()?;
            Ok((ClassifierExperiment { experiment }, Arc::new(prepared)))
        })
    }

    /// Trains all seeds, and measures the classifier of the last one.
    fn measure(&self, experiment: &Experiment) -> anyhow::Result<Value> {
        let (mut accuracies, mut seconds, mut last) = (Vec::new(), 0.0, None);
        for seed in self.prepare(experiment) {
            let (loaded, prepared) = seed?;
            let (begin, processor) = (Instant::now(), all_processor_seconds());
            let trained =
                run::train(&loaded, &prepared, None, self.threads, &Quiet, &AtomicBool::new(false))?;
            let passed = all_processor_seconds().zip(processor).map(|(now, then)| now - then);
            seconds += passed.unwrap_or_else(|| begin.elapsed().as_secs_f64());
            accuracies.push(trained.result().accuracy);
            last = Some((trained.classifier, prepared));
        }
        let (classifier, prepared) = last.context("no seed was trained")?;
        let (accuracy, deviation) = run::mean_and_deviation(accuracies.iter().copied());
        let test = prepared.test.as_ref().unwrap_or(&prepared.validation);
        let rows: Vec<u32> = test.rows.iter().copied().cycle().take(BATCH.max(test.rows.len())).collect();
        let mut row = json!({
            "table": experiment.name, "accuracy": accuracy, "deviation": deviation, "accuracies": accuracies,
            "train_seconds": seconds / accuracies.len() as f64,
        });
        self.inference(&mut row, &classifier, &test.data.select(&rows))?;
        Ok(row)
    }

    /// Measures six layers of 8,000 gates on images that are not real.
    fn dense(&self) -> anyhow::Result<Value> {
        let experiment = ClassifierExperiment::find("mnist-48k")?.experiment;
        let image = ImageShape { channels: 1, height: 28, width: 28 };
        let features = (0..image.values()).map(|pixel| Feature::numeric(pixel.to_string())).collect();
        let pixels: Vec<u8> = (0..BATCH * image.values()).map(|at| ((at * 7919) >> 5) as u8).collect();
        let labels = (0..10u32).cycle().take(BATCH).collect();
        let classes = (0..10).map(|class| class.to_string()).collect();
        let data = Dataset::from_parts(features, Values::Bytes(pixels), labels, classes, Some(image))?;
        let all: Vec<u32> = (0..BATCH as u32).collect();
        let prepared = Prepared::new(&Arc::new(data), all.clone(), Vec::new(), None, &experiment.encoder)?;
        let mut model = experiment.model;
        // Functions of all kinds, as training has them at its end.
        (model.pass_through, model.noise) = (0.0, 1.0);
        let classifier = prepared.harden(&prepared.network(&model, &experiment.training, 1)?)?;
        let mut row = json!({ "table": DENSE });
        self.inference(&mut row, &classifier, &prepared.train.data.select(&all))?;
        Ok(row)
    }

    /// Measures size and time of inference.
    fn inference(&self, row: &mut Value, classifier: &Classifier, samples: &Values) -> anyhow::Result<()> {
        let file = to_json(&Document::Classifier(classifier.clone()));
        let ready = fastest(self.seconds, || Ok(Predictor::new(classifier)))?;
        let predictor = Predictor::new(classifier);
        let features = classifier.encoder().features().len();
        let count = samples.as_rows().len() / features;
        let labels = predictor.predict_many(samples.as_rows())?;
        let mut at = 0;
        let mut one = || {
            at = (at + 1) % count;
            let label = match samples.as_rows() {
                Rows::Floats(values) => predictor.predict(&values[at * features..][..features]),
                Rows::Bytes(values) => predictor.predict(&values[at * features..][..features]),
            }?;
            anyhow::ensure!(label as u32 == labels[at], "sample {at} has another label alone");
            Ok(())
        };
        let calls = 256;
        let one = fastest(self.seconds, || (0..calls).try_for_each(|_| one()))? / f64::from(calls);
        let batch = fastest(self.seconds, || Ok(predictor.predict_many(samples.as_rows())?))?;
        row["gates"] = json!(classifier.circuit().reachable());
        row["input_bits"] = json!(classifier.encoder().bits());
        row["operations"] = json!(predictor.operations());
        row["native"] = json!(predictor.is_native());
        row["file_kb"] = json!(file.len() as f64 / 1e3);
        row["ready_seconds"] = json!(ready);
        row["one_ns"] = json!(one * 1e9);
        row["batch_ns"] = json!(batch / count as f64 * 1e9);
        row["samples_per_second"] = json!(count as f64 / batch);
        Ok(())
    }
}

/// Returns the minimum time of a call in seconds, of at least three calls.
fn fastest<T>(seconds: f64, mut call: impl FnMut() -> anyhow::Result<T>) -> anyhow::Result<f64> {
    let (mut best, begin, mut calls) = (f64::INFINITY, Instant::now(), 0);
    while calls < 3 || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        drop(call()?);
        best = best.min(start.elapsed().as_secs_f64());
        calls += 1;
    }
    Ok(best)
}
