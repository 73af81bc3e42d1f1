//! A rule of thousands of gates, and large random networks.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::model::Model;
use gatework_logic::simulate::{Executor, Runner};
use gatework_logic::{Automaton, Circuit, Simulator};
use gatework_train::random::{Purpose, Random};
use serde_json::{Value, json};

use super::{Circuits, push, timed};
use gatework_bench::random::{INPUTS, SEED, random_grid, random_network, random_words};

/// Side of the grid for the large rule.
pub(super) const LARGE_SIDE: usize = 1024;
/// Steps of a timed run of the large rule.
pub(super) const LARGE_STEPS: usize = 64;

impl Circuits {
    /// Measures a rule as large as that of the checkerboard, with random functions instead of learned ones.
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

    /// Measures a random network, with native code and with the interpreter.
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

/// Returns an automaton with the wires of the checkerboard and random functions, and the number of its gates.
pub(super) fn random_checkerboard() -> anyhow::Result<(Automaton, usize)> {
    let shape = AutomatonExperiment::find("checkerboard")?.experiment.model_shape();
    let mut model = Model::new(&shape, SEED)?;
    let mut random = Random::new(SEED, Purpose::Check, 1);
    model.params.values.iter_mut().for_each(|value| *value = random.uniform());
    Ok((model.harden(), model.gates()))
}

/// Checks the first of 64 samples against the reference evaluation.
fn check_sample(circuit: &Circuit, inputs: &[u64], outputs: &[u64]) -> anyhow::Result<()> {
    let bits = |words: &[u64]| words.iter().map(|word| word & 1 == 1).collect::<Vec<bool>>();
    let expected = circuit.eval(&bits(inputs)).context("the reference evaluation failed")?;
    ensure!(bits(outputs) == expected, "the executor and the reference evaluation differ");
    Ok(())
}
