//! Trains an experiment, minimises the learned circuit and writes it as Verilog.
//!
//! ```text
//! cargo run --release -p gatework-gates --example train -- game-of-life life
//! ```
//!
//! The first argument is a built-in experiment or a TOML file, by default `checkerboard`. The second is the folder for
//! `model.safetensors`, `circuit.json` and `circuit.v`, by default a temporary one.

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::run;
use gatework_logic::formats::{self, Format};
use gatework_logic::minimize::{self, minimize_automaton};
use gatework_logic::to_json;
use gatework_train::trainer::Quiet;

const THREADS: usize = 2;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut arguments = std::env::args().skip(1);
    let name = arguments.next().unwrap_or_else(|| "checkerboard".into());
    let folder = if let Some(folder) = arguments.next() {
        PathBuf::from(folder)
    } else {
        let folder = std::env::temp_dir().join("gatework-example-train");
        if folder.exists() {
            std::fs::remove_dir_all(&folder)?;
        }
        folder
    };
    let loaded = AutomatonExperiment::find(&name)?;
    let trained = run::train(&loaded, None, THREADS, &Quiet, &AtomicBool::new(false))?;
    let kept = trained.kept();
    println!(
        "{:?} with seed {} after {} updates and {} moves: {} gates",
        kept.outcome, kept.seed, kept.update, kept.moves, trained.gates.reachable
    );

    let options = minimize::Options::default();
    let small = minimize_automaton(&trained.automaton, trained.observed, &options)?.automaton;
    println!("minimised: {} gates", small.circuit.nodes().len());
    let verilog = formats::write(&small.into(), Format::named("verilog")?, &formats::Options::default())?;
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("model.safetensors"), trained.model.to_bytes())?;
    std::fs::write(folder.join("circuit.json"), to_json(&trained.document()))?;
    std::fs::write(folder.join("circuit.v"), verilog)?;
    println!("written to {}", folder.display());
    Ok(())
}
