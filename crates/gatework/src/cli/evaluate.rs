//! `gatework evaluate`: the published protocols, scored.

use std::path::PathBuf;

use clap::Args;
use gatework_forecast::data;
use gatework_gates::automata::evaluate::{Score, score};
use serde_json::json;

use crate::forecast_run::{self, ForecastRun};
use crate::subject::Subject;
use crate::usage::Usage;

/// Score a learned rule by the published protocols, a forecaster beside the baselines
#[derive(Debug, Args)]
#[command(
    after_help = "Protocols are the [[evaluate]] tables of the experiment: larger grids, more steps, damage,
asynchronous updates. Game of Life is compared with Conway's rule after every step.

wrong bits     after the last step, cells that were just damaged not counted
late, a step   wrong bits a step in the last quarter of the steps, damaged cells included
settled at     the step from which nothing was wrong any more

Forecasters: from every origin of the test part, the model and the baselines forecast; the model is
not trained again. owa: sMAPE and MASE relative to Naive2; held: the share of the values that the
intervals held. Scaled values: as the model sees them, over every origin, as papers report ETT.

Examples:
  gatework evaluate runs/checkerboard
  gatework evaluate runs/airpassengers --part validation
  gatework evaluate runs/one runs/two runs/three"
)]
pub struct Evaluate {
    /// A run folder
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Forecasters: further runs on the same data; the median of all forecasts is scored
    #[arg(value_name = "RUN")]
    others: Vec<PathBuf>,
    /// Automata: seed of the start states, of firing and of damage [default: 0]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Forecasters: the part of the data [default: test]
    #[arg(long, value_enum)]
    part: Option<Part>,
    /// Forecasters: steps from one origin to the next [default: 1, or more if there were over 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    step: Option<u64>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// A part of the data of a forecaster.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Part {
    /// What training has not seen.
    Test,
    /// What decided when to stop, and how wide intervals are.
    Validation,
}

impl Evaluate {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(run) = ForecastRun::open(&self.run)? {
            if self.seed.is_some() {
                return Err(Usage("--seed is for automata; this is a forecaster".into()).into());
            }
            return self.run_forecaster(run);
        }
        if !self.others.is_empty() {
            return Err(Usage("only forecasters are evaluated together".into()).into());
        }
        for (is_given, option) in [(self.part.is_some(), "--part"), (self.step.is_some(), "--step")] {
            if is_given {
                return Err(Usage(format!("{option} is for forecasters; this is an automaton")).into());
            }
        }
        let subject = Subject::open(&self.run)?;
        let Some(loaded) = &subject.loaded else {
            let message =
                format!("{} is no run folder; protocols come with an experiment", self.run.display());
            return Err(Usage(message).into());
        };
        let automaton = subject.automaton()?;
        let mut scores = Vec::new();
        for protocol in &loaded.experiment.protocols {
            scores.push(score(automaton, loaded, protocol, self.seed.unwrap_or(0))?);
        }
        print_table(&scores);
        if self.json {
            super::print_json(
                &json!({ "run": self.run, "experiment": loaded.experiment.name, "scores": scores }),
            )?;
        }
        Ok(())
    }
}

impl Evaluate {
    fn run_forecaster(&self, mut run: ForecastRun) -> anyhow::Result<()> {
        let part = match self.part {
            Some(Part::Test) | None => data::Subset::Test,
            Some(Part::Validation) => data::Subset::Validation,
        };
        let step = self.step.map(|step| step as usize);
        let name = run.loaded.experiment.name.clone();
        if !self.others.is_empty() {
            return self.run_together(run, part, step);
        }
        let dataset = run.dataset()?;
        let step = step.unwrap_or_else(|| forecast_run::usual_step(&dataset, part));
        let evaluation = forecast_run::score(&mut run.predictor, &dataset, part, step)?;
        answer!("{}", heading(part, step));
        forecast_run::print_scores(&evaluation);
        let scaled = forecast_run::scaled_score(&mut run.predictor, &dataset, part)?;
        if self.json {
            super::print_json(&json!({
                "run": self.run, "experiment": name, "step": step, "windows": evaluation.windows,
                "scores": evaluation.scores, "scaled": scaled,
            }))?;
        }
        Ok(())
    }

    /// Scores the median of several forecasters.
    fn run_together(
        &self,
        first: ForecastRun,
        part: data::Subset,
        step: Option<usize>,
    ) -> anyhow::Result<()> {
        let mut runs = vec![first];
        for path in &self.others {
            let not = || Usage(format!("{} is not the run folder of a forecaster", path.display()));
            runs.push(ForecastRun::open(path)?.ok_or_else(not)?);
        }
        let step = match step {
            Some(step) => step,
            None => forecast_run::usual_step(&runs[0].dataset()?, part),
        };
        let evaluation = forecast_run::score_together(&mut runs, part, Some(step))?;
        answer!("{}", heading(part, step));
        forecast_run::print_scores(&evaluation);
        if self.json {
            let paths: Vec<&std::path::Path> = runs.iter().map(|run| run.folder.path()).collect();
            super::print_json(&json!({
                "runs": paths, "step": step, "windows": evaluation.windows, "scores": evaluation.scores,
            }))?;
        }
        Ok(())
    }
}

/// What the scores of a forecaster are of: the part, and how far its origins are apart unless they are all.
pub fn heading(part: data::Subset, step: usize) -> String {
    let every = if step == 1 { String::new() } else { format!(", every {step} steps") };
    format!("{part:?} part{every}:")
}

fn print_table(scores: &[Score]) {
    let header = ["protocol", "grid", "steps", "boards", "wrong bits", "late, a step", "settled at"];
    answer!(
        "{:<25} {:>9} {:>6} {:>7} {:>18} {:>13} {:>11}",
        header[0],
        header[1],
        header[2],
        header[3],
        header[4],
        header[5],
        header[6]
    );
    for s in scores {
        let grid = format!("{}x{}", s.grid[0], s.grid[1]);
        let wrong = format!("{} of {}", s.wrong, s.bits);
        let settled = s.settled.map_or_else(|| "never".to_string(), |step| step.to_string());
        answer!(
            "{:<25} {grid:>9} {:>6} {:>7} {wrong:>18} {:>13.1} {settled:>11}",
            s.name,
            s.steps,
            s.samples,
            s.late_wrong
        );
    }
}
