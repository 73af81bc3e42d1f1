//! Trains an experiment, minimises the learned circuit and writes it as Verilog.
//!
//! ```text
//! cargo run --release -p gatework-gates --example train -- game-of-life life
//! ```
//!
//! The first argument is a built-in experiment or a TOML file, the second the folder for `model.safetensors`,
//! `circuit.json` and `circuit.v`.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::model::Model;
use gatework_gates::automata::task::AutomatonTask;
use gatework_logic::formats::{self, Format};
use gatework_logic::minimize::{self, minimize_automaton};
use gatework_logic::{Document, to_json};
use gatework_train::trainer::{self, Options, Quiet};

const SEED: u64 = 1;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(name), Some(folder)) = (arguments.next(), arguments.next().map(PathBuf::from)) else {
        return Err("usage: train EXPERIMENT FOLDER".into());
    };
    let loaded = AutomatonExperiment::find(&name)?;
    let options = Options {
        settings: loaded.experiment.trainer_settings(),
        seeds: vec![SEED],
        until_success: true,
        side_by_side: 1,
        threads_each: 2,
        checkpoints: None,
        interval: Duration::MAX,
    };
    let task = |seed| AutomatonTask::new(&loaded, seed);
    let attempts = trainer::run(&options, task, &Quiet, &AtomicBool::new(false))?;
    let attempt = attempts.first().ok_or("there is no attempt")?;
    let best = attempt.best.as_ref().ok_or("training was stopped")?;
    let model = Model::of_best(&loaded.experiment.model_shape(), SEED, best)?;
    let observed = loaded.target.channels();
    let gates = model.gate_counts(observed).reachable;
    println!(
        "{:?} after {} updates and {} moves: {gates} gates",
        attempt.outcome, attempt.update, attempt.moves
    );

    let automaton = model.harden();
    let small = minimize_automaton(&automaton, observed, &minimize::Options::default())?;
    println!("minimised: {} gates", small.automaton.circuit.nodes().len());
    let verilog =
        formats::write(&small.automaton.into(), Format::named("verilog")?, &formats::Options::default())?;
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("model.safetensors"), model.to_bytes())?;
    let circuit = to_json(&Document::Automaton { automaton, observed: Some(observed) });
    std::fs::write(folder.join("circuit.json"), circuit)?;
    std::fs::write(folder.join("circuit.v"), verilog)?;
    Ok(())
}
