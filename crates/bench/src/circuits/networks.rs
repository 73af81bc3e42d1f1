//! Rows of `gatework bench circuits` for a rule of thousands of gates and for large random networks.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::model::Model;
use gatework_logic::simulate::{Executor, Runner};
use gatework_logic::{Automaton, Circuit, Gate, Node, Simulator};
use gatework_train::random::{Purpose, Random};
use serde_json::{Value, json};

use super::{Circuits, SEED, push, random_grid, random_words, timed};

/// The side of the board for the large rule.
pub(super) const LARGE_SIDE: usize = 1024;
/// The steps on it that are timed together.
pub(super) const LARGE_STEPS: usize = 64;
/// The layers of the random networks.
const LAYERS: usize = 10;
/// The inputs of the random networks.
const INPUTS: usize = 1024;
/// The functions of the random networks: all that depend on both operands.
const FUNCTIONS: [Gate; 10] = [
    Gate::AND,
    Gate::A_AND_NOT_B,
    Gate::NOT_A_AND_B,
    Gate::XOR,
    Gate::OR,
    Gate::NOR,
    Gate::XNOR,
    Gate::A_OR_NOT_B,
    Gate::NOT_A_OR_B,
    Gate::NAND,
];

impl Circuits {
    /// A rule as large as that of the checkerboard, with random functions instead of learned ones.
    pub(super) fn large_rule(&self, threads: usize, results: &mut Vec<Value>) -> anyhow::Result<()> {
        let (automaton, gates) = random_checkerboard()?;
        let mut grid = random_grid(LARGE_SIDE, automaton.channels)?;
        let mut runner = Runner::new(&automaton, automaton.channels)?;
        let mut simulator = Simulator::new(&automaton, automaton.channels)?;
        let mut expected = grid.clone();
        runner.run(&mut grid, 2)?;
        (0..2).try_for_each(|_| simulator.step(&mut expected))?;
        ensure!(grid == expected, "the runner and the simulator differ");
        let mut best = Duration::MAX;
        let begin = Instant::now();
        while begin.elapsed().as_secs_f64() < self.seconds {
            best = best.min(timed(|| runner.run(&mut grid, LARGE_STEPS))?);
        }
        let cells = (LARGE_SIDE * LARGE_SIDE * LARGE_STEPS) as f64;
        push(
            results,
            json!({
                "name": "checkerboard", "threads": threads, "gates": gates,
                "gates_per_cell": automaton.circuit.reachable(), "operations_per_cell": runner.operations(),
                "gcells_per_second": cells / best.as_secs_f64() / 1e9,
            }),
        );
        Ok(())
    }

    /// A random network, by native code and by the interpreter.
    pub(super) fn network(
        &self,
        name: &str,
        gates: usize,
        threads: usize,
        results: &mut Vec<Value>,
    ) -> anyhow::Result<()> {
        let circuit = random_network(gates)?;
        let samples = 1 << 14;
        let inputs = random_words(INPUTS * samples / 64);
        let mut answers: Vec<Vec<u64>> = Vec::new();
        for (native, compile) in
            [(true, Executor::new as fn(&Circuit) -> Executor), (false, Executor::portable)]
        {
            let mut first = vec![0; circuit.outputs().len()];
            let one = &inputs[..INPUTS];
            let begin = Instant::now();
            let executor = compile(&circuit);
            let ready = begin.elapsed();
            executor.run(64, one, &mut first)?;
            let first_result = begin.elapsed();
            check_sample(&circuit, one, &first)?;
            if native && !executor.is_native() {
                continue;
            }
            let mut outputs = vec![0; circuit.outputs().len() * samples / 64];
            let (mut best, begin) = (Duration::MAX, Instant::now());
            while begin.elapsed().as_secs_f64() < self.seconds {
                best = best.min(timed(|| executor.run(samples, &inputs, &mut outputs))?);
            }
            answers.push(outputs);
            push(
                results,
                json!({
                    "name": name, "threads": threads, "gates": gates, "native": native,
                    "ready_seconds": ready.as_secs_f64(),
                    "first_result_seconds": first_result.as_secs_f64(),
                    "samples_per_second": samples as f64 / best.as_secs_f64(),
                }),
            );
        }
        ensure!(answers.windows(2).all(|pair| pair[0] == pair[1]), "native code and the interpreter differ");
        Ok(())
    }
}

/// An automaton with the wires of the checkerboard and random functions, and the number of its learned gates.
pub(super) fn random_checkerboard() -> anyhow::Result<(Automaton, usize)> {
    let shape = AutomatonExperiment::find("checkerboard")?.experiment.model_shape();
    let mut model = Model::new(&shape, SEED)?;
    let mut random = Random::new(SEED, Purpose::Check, 1);
    model.params.values.iter_mut().for_each(|value| *value = random.uniform());
    Ok((model.harden(), model.gates()))
}

/// A network of layers that each read every signal of the layer before twice, with random functions.
pub fn random_network(gates: usize) -> anyhow::Result<Circuit> {
    let mut random = Random::new(SEED, Purpose::Wiring, 0);
    let width = gates / LAYERS;
    let mut nodes = Vec::with_capacity(width * LAYERS);
    let mut layer = 0..INPUTS as u32;
    for _ in 0..LAYERS {
        let mut operands = [0, 1].map(|_| layer.clone().cycle().take(width).collect::<Vec<u32>>());
        for signals in &mut operands {
            random.shuffle(signals);
        }
        let start = (INPUTS + nodes.len()) as u32;
        for (&a, &b) in operands[0].iter().zip(&operands[1]) {
            nodes.push(Node::new(FUNCTIONS[random.below(FUNCTIONS.len())], a, b));
        }
        layer = start..start + width as u32;
    }
    Ok(Circuit::new(INPUTS, nodes, layer.collect())?)
}

/// A network of layers in which neighbours read neighbours: much is computed twice, and can be saved.
pub(super) fn local_network(gates: usize) -> anyhow::Result<Circuit> {
    /// How far apart the operands of a gate can be.
    const REACH: usize = 6;
    let mut random = Random::new(SEED, Purpose::Wiring, 1);
    let width = gates / LAYERS;
    let mut nodes = Vec::with_capacity(width * LAYERS);
    let mut before = 0..width;
    for _ in 0..LAYERS {
        let start = width + nodes.len();
        for i in 0..width {
            let [a, b] = [0; 2].map(|_| (before.start + (i + random.below(REACH)) % width) as u32);
            nodes.push(Node::new(FUNCTIONS[random.below(FUNCTIONS.len())], a, b));
        }
        before = start..start + width;
    }
    Ok(Circuit::new(width, nodes, before.map(|signal| signal as u32).collect())?)
}

/// Checks the first of 64 samples against the naive evaluation.
fn check_sample(circuit: &Circuit, inputs: &[u64], outputs: &[u64]) -> anyhow::Result<()> {
    let bits = |words: &[u64]| words.iter().map(|word| word & 1 == 1).collect::<Vec<bool>>();
    let expected = circuit.eval(&bits(inputs)).context("the naive evaluation")?;
    ensure!(bits(outputs) == expected, "the executor and the naive evaluation differ");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_of_a_random_network_is_read() -> anyhow::Result<()> {
        let circuit = random_network(10 * INPUTS)?;
        assert_eq!((circuit.nodes().len(), circuit.reachable()), (10 * INPUTS, 10 * INPUTS));
        Ok(())
    }
}
