//! `gatework evaluate`: scores of classifiers on their test rows, of automata by the published protocols, and of forecasters compared with the baselines.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use gatework_forecast::data::Subset;
use gatework_forecast::run::{self as forecast_run, ForecastRun};
use gatework_gates::automata::evaluate::{Score, score_observed};
use gatework_train::files;
use serde_json::json;

use super::forecaster::{dataset, heading, print_scores};
use super::{Choices, Usage};
use crate::classification::{Evaluated, TrainedClassifier};
use crate::progress::Counter;
use crate::report;
use crate::subject::Subject;

/// Evaluate a classifier, an automaton by the published protocols, or a forecaster compared with the baselines
#[derive(Debug, Args)]
#[command(
    after_help = "Automata: the protocols are the [[evaluate]] tables of the experiment: larger grids, more steps, \
damage, asynchronous updates. Game of Life is compared with Conway's rule after every step.

  wrong bits      after the last step; cells that were damaged in it are not counted
  late, per step  mean wrong bits per step in the last quarter, including damaged cells
  settled at      the first step after which no bit was wrong

Forecasters: the model and the baselines forecast from every origin of the test subset; the model is \
not trained again. OWA: sMAPE and MASE relative to Naive2. cov. N %: empirical coverage of the N % \
intervals. Scaled values: in the units of the model, over every origin, as papers report ETT.

Classifiers: accuracy, confusion matrix, precision and recall of the hard circuit on the test rows.

Examples:
  gatework evaluate runs/digits --svg confusion.svg --mistakes mistakes.svg
  gatework evaluate runs/checkerboard
  gatework evaluate runs/airpassengers --subset validation
  gatework evaluate runs/one runs/two runs/three"
)]
pub struct Evaluate {
    /// A run folder, or the circuit.json of a classifier
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Classifiers: other data than the test rows. Forecasters: further runs on the same data; the median of all forecasts is scored
    #[arg(value_name = "DATA|RUN")]
    others: Vec<PathBuf>,
    /// Automata: seed of start states, asynchronous updates and damage [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Forecasters: the subset of the data [default: test]
    #[arg(long, alias = "part", value_parser = super::choice(SUBSETS))]
    subset: Option<Subset>,
    /// Forecasters: steps from one origin to the next [default: 1, or more to have at most 2000 origins]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    step: Option<u64>,
    /// Classifiers: write the confusion matrix as SVG
    #[arg(long, value_name = "FILE.svg", value_parser = super::parse_svg)]
    svg: Option<PathBuf>,
    /// Classifiers of images: write the most confident mistakes as SVG
    #[arg(long, value_name = "FILE.svg", value_parser = super::parse_svg)]
    mistakes: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// The subsets of the data of a forecaster that can be evaluated.
static SUBSETS: &Choices<Subset> = &[
    ("test", "Not used in training", Subset::Test),
    ("validation", "Used for early stopping and for the calibration of intervals", Subset::Validation),
];

impl Evaluate {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(trained) = TrainedClassifier::open(&self.run)? {
            return self.evaluate_classifier(&trained);
        }
        match ForecastRun::open(&self.run)? {
            Some(run) => {
                super::refuse(&[(self.seed.is_some(), "--seed")], "automata", "a forecaster")?;
                super::refuse(&self.pictures(), "classifiers", "a forecaster")?;
                self.evaluate_forecasters(run)
            }
            None => self.evaluate_automaton(),
        }
    }

    /// Evaluates a classifier on its test rows, or on other data.
    fn evaluate_classifier(&self, trained: &TrainedClassifier) -> anyhow::Result<()> {
        super::refuse(&[(self.seed.is_some(), "--seed")], "automata", "a classifier")?;
        let options = [(self.subset.is_some(), "--subset"), (self.step.is_some(), "--step")];
        super::refuse(&options, "forecasters", "a classifier")?;
        match &self.others[..] {
            [] => self.print_classifier(&trained.evaluate()?),
            [data] => self.print_classifier(&trained.evaluate_file(data)?),
            _ => Err(Usage("name one file or folder of data, or none for the test rows".into()).into()),
        }
    }

    /// The options that write pictures.
    fn pictures(&self) -> [(bool, &'static str); 2] {
        [(self.svg.is_some(), "--svg"), (self.mistakes.is_some(), "--mistakes")]
    }

    fn print_classifier(&self, evaluated: &Evaluated) -> anyhow::Result<()> {
        let Evaluated { evaluation, what, .. } = evaluated;
        let title = self.run.display().to_string();
        // Before anything is written, so that a table is refused at once.
        let sheet = self.mistakes.is_some().then(|| evaluated.mistake_sheet(&title)).transpose()?;
        print_line!("accuracy {:.2} % of {} {what}", 100.0 * evaluation.accuracy, evaluation.samples);
        print_line!("");
        for line in report::class_table(evaluation) {
            print_line!("{line}");
        }
        if let Some(path) = &self.svg {
            let names: Vec<&str> = evaluation.classes.iter().map(|class| class.name.as_str()).collect();
            let svg = report::confusion_matrix(&title, &names, &evaluation.confusion);
            files::write_atomic(path, svg.as_bytes())?;
            status!("Wrote {}", path.display());
        }
        if let Some((path, sheet)) = self.mistakes.as_ref().zip(sheet) {
            files::write_atomic(path, sheet.as_bytes())?;
            status!("Wrote {}", path.display());
        }
        if self.json {
            let mut result = serde_json::to_value(evaluation)?;
            (result["run"], result["data"]) = (json!(self.run), json!(what));
            super::print_json(&result)?;
        }
        Ok(())
    }

    fn evaluate_automaton(&self) -> anyhow::Result<()> {
        if !self.others.is_empty() {
            return Err(
                Usage("several runs can be evaluated together only if they are forecasters".into()).into()
            );
        }
        let options = [(self.subset.is_some(), "--subset"), (self.step.is_some(), "--step")];
        super::refuse(&options, "forecasters", "an automaton")?;
        super::refuse(&self.pictures(), "classifiers", "an automaton")?;
        let subject = Subject::open(&self.run)?;
        let Some(loaded) = &subject.loaded else {
            let message =
                format!("{} is not a run folder: its experiment has the protocols", self.run.display());
            return Err(Usage(message).into());
        };
        let automaton = subject.automaton()?;
        let mut scores = Vec::new();
        for protocol in &loaded.experiment.protocols {
            let progress = Counter::new("steps");
            let seed = self.seed.unwrap_or(0);
            let show = |done, total| progress.show(done, total);
            scores.push(score_observed(automaton, loaded, protocol, seed, show)?);
        }
        print_protocols(&scores);
        if self.json {
            let name = &loaded.experiment.name;
            super::print_json(&json!({ "run": self.run, "experiment": name, "scores": scores }))?;
        }
        Ok(())
    }

    /// Scores a forecaster, or the median of the forecasts of several.
    fn evaluate_forecasters(&self, first: ForecastRun) -> anyhow::Result<()> {
        let subset = self.subset.unwrap_or(Subset::Test);
        let mut runs = vec![first];
        for path in &self.others {
            let wrong = || Usage(format!("{} is not the run folder of a forecaster", path.display()));
            runs.push(ForecastRun::open(path)?.ok_or_else(wrong)?);
        }
        let datasets = runs.iter().map(dataset).collect::<anyhow::Result<Vec<_>>>()?;
        let step = self.step.map_or_else(|| forecast_run::default_step(&datasets[0], subset), |n| n as usize);
        let progress = Counter::new("origins");
        let watch = |done, total| {
            progress.show(done, total);
            ControlFlow::Continue(())
        };
        let evaluation = forecast_run::score_ensemble(&runs, &datasets, subset, step, &watch)?;
        let scaled = match &runs[..] {
            [run] => forecast_run::scaled_score(&run.forecaster, &datasets[0], subset, &watch)?,
            _ => None,
        };
        drop(progress);
        print_line!("{}", heading(subset, step));
        print_scores(&evaluation, scaled);
        if self.json {
            let mut result =
                json!({ "step": step, "windows": evaluation.windows, "scores": evaluation.scores });
            if let [run] = &runs[..] {
                result["run"] = json!(self.run);
                result["experiment"] = json!(run.loaded.experiment.name);
                result["scaled"] = json!(scaled);
            } else {
                result["runs"] = runs.iter().map(|run| json!(run.folder.path())).collect();
            }
            super::print_json(&result)?;
        }
        Ok(())
    }
}

fn print_protocols(scores: &[Score]) {
    let row = |[name, grid, steps, grids, wrong, late, settled]: [&str; 7]| {
        print_line!("{name:<25} {grid:>9} {steps:>6} {grids:>7} {wrong:>18} {late:>14} {settled:>11}");
    };
    row(["protocol", "grid", "steps", "grids", "wrong bits", "late, per step", "settled at"]);
    for score in scores {
        row([
            &score.name,
            &format!("{}x{}", score.grid[0], score.grid[1]),
            &score.steps.to_string(),
            &score.samples.to_string(),
            &format!("{} of {}", score.wrong, score.bits),
            &format!("{:.1}", score.late_wrong),
            &score.settled.map_or_else(|| "never".to_string(), |step| step.to_string()),
        ]);
    }
}
