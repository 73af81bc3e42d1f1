//! The dimensions: sizes, and the workload of each size as a repeatable call.

use gatework_train::experiment::Source;

use gatework_forecast::ForecastTask;
use gatework_gates::automata::experiment::{AutomatonExperiment, Experiment};
use gatework_gates::automata::task::AutomatonTask;
use gatework_logic::simulate::Executor;
use gatework_train::trainer::Task;
use serde_json::{Value, json};

use gatework_bench::gate_network::GateNetwork;
use gatework_bench::random::{random_network, random_words};
use gatework_bench::wave::{Wave, specification};

/// A repeatable call.
pub type Call = Box<dyn FnMut() -> anyhow::Result<()> + Send>;

/// A dimension along which a workload grows.
pub struct Dimension {
    pub name: &'static str,
    /// Workload and dimension, as a heading.
    pub title: &'static str,
    /// Unit of the sizes.
    pub unit: &'static str,
    /// Sizes in increasing order.
    pub sizes: &'static [usize],
    pub work: fn(usize) -> anyhow::Result<Call>,
}

/// All dimensions.
pub static DIMENSIONS: [Dimension; 8] = [
    Dimension {
        name: "grid",
        title: "Gradient of the checkerboard automaton, one grid, two steps: side of the grid",
        unit: "cells per side",
        sizes: &[16, 32, 64, 128, 256, 512, 1024],
        work: |side| {
            automaton(|e| (e.automaton.grid, e.automaton.steps, e.training.batch) = ([side, side], 2, 1))
        },
    },
    Dimension {
        name: "channels",
        title: "Gradient of an automaton on one grid of 16x16, four steps: channels per cell",
        unit: "channels",
        sizes: &[1, 2, 4, 8, 16, 32, 64, 128],
        work: |channels| automaton(|experiment| widen(experiment, channels)),
    },
    Dimension {
        name: "steps",
        title: "Gradient of the checkerboard automaton, one grid of 16x16: steps",
        unit: "steps",
        sizes: &[1, 2, 5, 10, 20, 50, 100, 200],
        work: |steps| automaton(|e| (e.automaton.steps, e.training.batch) = (steps, 1)),
    },
    Dimension {
        name: "batch",
        title: "Gradient of the checkerboard automaton, 20 steps: grids per batch",
        unit: "grids",
        sizes: &[1, 2, 4, 8, 16, 32, 64],
        work: |batch| automaton(|experiment| experiment.training.batch = batch),
    },
    Dimension {
        name: "gates",
        title: "Update of a network of soft gates, eight layers, 512 samples: gates",
        unit: "gates",
        sizes: &[1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000],
        work: |gates| {
            let mut network = GateNetwork::of(&[gates / 8; 9], 512)?;
            Ok(Box::new(move || {
                network.update();
                Ok(())
            }))
        },
    },
    Dimension {
        name: "circuit-gates",
        title: "Simulation of a circuit, ten layers, 4096 samples, native code: gates",
        unit: "gates",
        sizes: &[1_000, 4_000, 16_000, 64_000, 256_000, 1_000_000],
        work: circuit,
    },
    Dimension {
        name: "recurrent-length",
        title: "Loss and gradients of a GRU, two layers of 128, 32 windows: window length",
        unit: "steps",
        sizes: &[24, 48, 96, 192, 384, 768],
        work: |length| forecaster(&json!({ "kind": "gru" }), length),
    },
    Dimension {
        name: "attention-length",
        title: "Loss and gradients of a Transformer of width 64, 32 windows: window length",
        unit: "steps",
        sizes: &[24, 48, 96, 192, 384, 768],
        work: |length| {
            let model = json!({
                "kind": "transformer", "patch": 1, "stride": 1, "width": 64, "heads": 4, "layers": 2,
                "feed_forward": 256, "dropout": 0.0,
            });
            forecaster(&model, length)
        },
    },
];

/// Returns the forward and backward pass of a variant of the checkerboard.
fn automaton(change: impl FnOnce(&mut Experiment)) -> anyhow::Result<Call> {
    let mut experiment = AutomatonExperiment::find("checkerboard")?.experiment;
    change(&mut experiment);
    let loaded = AutomatonExperiment::from_source(&Source::new(experiment.to_toml(), "checkerboard", "."))?;
    Ok(updates(AutomatonTask::new(&loaded, 1).map_err(|error| anyhow::anyhow!("{error}"))?))
}

/// Sets the number of channels, with layer widths in proportion; one grid, four steps.
fn widen(experiment: &mut Experiment, channels: usize) {
    let seen = channels * (1 + 2 * experiment.perceive.kernels);
    let widths = [32, 32, 32, 32, 16, 8, 4, 2, 1].map(|width| width * channels);
    experiment.automaton.channels = channels;
    experiment.update.layers = [&[seen], &widths[..]].concat();
    (experiment.automaton.steps, experiment.training.batch) = (4, 1);
}

fn circuit(gates: usize) -> anyhow::Result<Call> {
    let circuit = random_network(gates)?;
    let samples = 4096;
    let inputs = random_words(circuit.inputs() * samples / 64);
    let mut outputs = vec![0; circuit.outputs().len() * samples / 64];
    let executor = Executor::new(&circuit);
    Ok(Box::new(move || Ok(executor.run(samples, &inputs, &mut outputs)?)))
}

/// Returns the forward and backward pass of a model on 32 windows.
fn forecaster(model: &Value, length: usize) -> anyhow::Result<Call> {
    let specification = specification(model, length, 24)?;
    Ok(updates(ForecastTask::new(&specification, Wave::new(&specification, 32), 1)?))
}

/// Returns consecutive updates of a task.
fn updates(mut task: impl Task + Send + 'static) -> Call {
    let mut update = 0;
    Box::new(move || {
        update += 1;
        task.step(update).map(drop).map_err(|error| anyhow::anyhow!("{error}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_size_of_every_dimension_runs() {
        for Dimension { name, sizes, work, .. } in &DIMENSIONS {
            let mut call = work(sizes[0]).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            call().and_then(|()| call()).unwrap_or_else(|error| panic!("{name}: {error:#}"));
            assert!(sizes.is_sorted() && sizes.len() > 3, "{name}");
        }
    }
}
