//! `gatework evaluate`: the published protocols, scored.

use std::path::PathBuf;

use clap::Args;
use gatework_learn::automata::evaluate::{Score, score};
use serde_json::json;

use crate::subject::Subject;
use crate::usage::Usage;

/// Score a learned rule by the published protocols
#[derive(Debug, Args)]
#[command(
    after_help = "Protocols are the [[evaluate]] tables of the experiment: larger grids, more steps, damage,
asynchronous updates. Game of Life is compared with Conway's rule after every step.

wrong bits     after the last step, cells that were just damaged not counted
late, a step   wrong bits a step in the last quarter of the steps, damaged cells included
settled at     the step from which nothing was wrong any more

Example:
  gatework evaluate runs/checkerboard"
)]
pub struct Evaluate {
    /// A run folder
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// Seed of the start states, of firing and of damage
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Evaluate {
    pub fn run(&self) -> anyhow::Result<()> {
        let subject = Subject::open(&self.run)?;
        let Some(loaded) = &subject.loaded else {
            let message =
                format!("{} is no run folder; protocols come with an experiment", self.run.display());
            return Err(Usage(message).into());
        };
        let automaton = subject.automaton()?;
        let mut scores = Vec::new();
        for protocol in &loaded.experiment.protocols {
            scores.push(score(automaton, loaded, protocol, self.seed)?);
        }
        print_table(&scores);
        if self.json {
            super::print_json(
                &json!({ "run": self.run, "experiment": loaded.experiment.name, "scores": scores }),
            );
        }
        Ok(())
    }
}

fn print_table(scores: &[Score]) {
    let header = ["protocol", "grid", "steps", "boards", "wrong bits", "late, a step", "settled at"];
    eprintln!(
        "{:<25} {:>9} {:>6} {:>7} {:>18} {:>13} {:>11}",
        header[0], header[1], header[2], header[3], header[4], header[5], header[6]
    );
    for s in scores {
        let grid = format!("{}x{}", s.grid[0], s.grid[1]);
        let wrong = format!("{} of {}", s.wrong, s.bits);
        let settled = s.settled.map_or_else(|| "never".to_string(), |step| step.to_string());
        eprintln!(
            "{:<25} {grid:>9} {:>6} {:>7} {wrong:>18} {:>13.1} {settled:>11}",
            s.name, s.steps, s.samples, s.late_wrong
        );
    }
}
