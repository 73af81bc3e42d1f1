//! `gatework bench circuits`: how fast circuits run.
//!
//! Three kinds of rows: Life on a large torus beside a version written by hand, a rule of thousands of gates
//! as it comes from training, and random networks of up to a million gates. Every answer is checked before it
//! is timed; rivals are timed in turn, and the best time of each counts.

#[path = "../../../benches/life_by_hand.rs"]
mod life_by_hand;

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::Args;
use gatework_engine::kernel;
use gatework_learn::automata::experiment::Loaded;
use gatework_learn::automata::model::Model;
use gatework_learn::random::{Purpose, Random};
use gatework_logic::simulate::{Executor, Runner};
use gatework_logic::{Automaton, Boundary, Circuit, Gate, Grid, Node, Simulator, rules};
use serde_json::{Value, json};

use crate::cli;

/// The side of the Life board.
const LIFE_SIDE: usize = 4096;
/// The steps that are timed together.
const LIFE_STEPS: usize = 512;
/// The side of the board for the large rule.
const LARGE_SIDE: usize = 1024;
/// The steps on it that are timed together.
const LARGE_STEPS: usize = 64;
/// The layers of the random networks.
const LAYERS: usize = 10;
/// The inputs of the random networks.
const INPUTS: usize = 1024;
/// What all random numbers here follow from.
const SEED: u64 = 1;

#[derive(Debug, Args)]
pub struct Circuits {
    /// Only rows whose name begins like this
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Seconds to measure each row
    #[arg(long, value_name = "S", default_value_t = 2.0, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Most threads to measure [default: all]
    #[arg(long, value_name = "N", value_parser = cli::parse_threads)]
    threads: Option<usize>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Circuits {
    pub fn run(&self) -> anyhow::Result<()> {
        let all = cli::threads(self.threads);
        let thread_counts = if all > 1 { vec![1, all] } else { vec![1] };
        let mut results = Vec::new();
        for &threads in &thread_counts {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
            pool.install(|| -> anyhow::Result<()> {
                if self.wants("life") {
                    self.life(threads, &mut results)?;
                }
                if self.wants("checkerboard") {
                    self.large_rule(threads, &mut results)?;
                }
                for (name, gates) in
                    [("network-10k", 10_000), ("network-100k", 100_000), ("network-1m", 1_000_000)]
                {
                    if self.wants(name) {
                        self.network(name, gates, threads, &mut results)?;
                    }
                }
                Ok(())
            })?;
        }
        if self.json {
            cli::print_json(&json!({ "bench": "circuits", "simd": kernel::simd_name(), "results": results }));
        }
        Ok(())
    }

    fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.starts_with(only.as_str()))
    }

    /// Life on a torus of random cells: the circuit, and the rival beside it.
    fn life(&self, threads: usize, results: &mut Vec<Value>) -> anyhow::Result<()> {
        // The circuit under test: a learned and minimised rule can take the place of this one.
        let automaton = rules::life(Boundary::Torus);
        let mut runner = Runner::new(&automaton, 1)?;
        let mut grid = random_grid(LIFE_SIDE, 1)?;
        let mut rival = life_by_hand::Life::new(LIFE_SIDE, LIFE_SIDE, grid.plane(0));
        runner.run(&mut grid, 11)?;
        if let Some(rival) = &mut rival {
            rival.run(11);
            ensure!(rival.cells() == grid.plane(0), "the circuit and the version by hand differ");
        }
        let mut best = [Duration::MAX; 2];
        let begin = Instant::now();
        while begin.elapsed().as_secs_f64() < self.seconds {
            best[0] = best[0].min(timed(|| runner.run(&mut grid, LIFE_STEPS))?);
            if let Some(rival) = &mut rival {
                let begin = Instant::now();
                rival.run(LIFE_STEPS);
                best[1] = best[1].min(begin.elapsed());
            }
        }
        let rate = |time: Duration| (LIFE_SIDE * LIFE_SIDE * LIFE_STEPS) as f64 / time.as_secs_f64() / 1e9;
        let gates = automaton.circuit.nodes().len();
        let mut row = json!({
            "name": "life", "threads": threads, "gates": gates, "operations_per_cell": runner.operations(),
            "gcells_per_second": rate(best[0]),
        });
        if rival.is_some() {
            row["ratio_to_hand"] = json!(rate(best[0]) / rate(best[1]));
            let by_hand =
                json!({ "name": "life-by-hand", "threads": threads, "gcells_per_second": rate(best[1]) });
            push(results, by_hand);
        }
        push(results, row);
        Ok(())
    }

    /// A rule as large as that of the checkerboard, with random functions instead of learned ones.
    fn large_rule(&self, threads: usize, results: &mut Vec<Value>) -> anyhow::Result<()> {
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
    fn network(
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

/// The time that a call takes.
fn timed<E>(call: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let begin = Instant::now();
    call()?;
    Ok(begin.elapsed())
}

/// Shows a row and keeps it.
fn push(results: &mut Vec<Value>, row: Value) {
    let text = |key: &str| row[key].as_str().unwrap_or_default().to_string();
    let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    let figures = if row.get("gcells_per_second").is_some() {
        let ratio = row["ratio_to_hand"].as_f64();
        let ratio = ratio.map_or(String::new(), |ratio| format!("  {ratio:.2} of the version by hand"));
        format!("{:>9.3} G cells/s{ratio}", number("gcells_per_second"))
    } else {
        format!(
            "{:>9.0} samples/s  ready in {:.3} s, first result after {:.3} s  {}",
            number("samples_per_second"),
            number("ready_seconds"),
            number("first_result_seconds"),
            if row["native"] == json!(true) { "native" } else { "portable" }
        )
    };
    let threads = number("threads");
    eprintln!(
        "{:<14} {threads:>2} thread{:<1} {figures}",
        text("name"),
        if threads > 1.0 { "s" } else { "" }
    );
    results.push(row);
}

fn random_words(n: usize) -> Vec<u64> {
    let mut random = Random::new(SEED, Purpose::Check, 0);
    (0..n).map(|_| random.word()).collect()
}

fn random_grid(side: usize, channels: usize) -> anyhow::Result<Grid> {
    let mut grid = Grid::new(1, side, side, channels)?;
    let words = grid.words_per_sample();
    for (channel, words) in random_words(words * channels).chunks_exact(words).enumerate() {
        grid.plane_mut(channel).copy_from_slice(words);
    }
    Ok(grid)
}

/// An automaton with the wires of the checkerboard and random functions, and the number of its learned gates.
fn random_checkerboard() -> anyhow::Result<(Automaton, usize)> {
    let shape = Loaded::find("checkerboard")?.experiment.model_shape();
    let mut model = Model::new(&shape, SEED)?;
    let mut random = Random::new(SEED, Purpose::Check, 1);
    model.params.values.iter_mut().for_each(|value| *value = random.uniform());
    Ok((model.harden(), model.gates()))
}

/// A network of layers that each read every signal of the layer before twice, with random functions.
fn random_network(gates: usize) -> anyhow::Result<Circuit> {
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
    use gatework_logic::naive_step;

    #[test]
    fn the_rival_plays_life() -> anyhow::Result<()> {
        let automaton = rules::life(Boundary::Torus);
        let start = random_grid(256, 1)?;
        let Some(mut rival) = life_by_hand::Life::new(256, 256, start.plane(0)) else { return Ok(()) };
        let mut expected = start;
        for _ in 0..11 {
            expected = naive_step(&automaton, &expected)?;
        }
        rival.run(11);
        assert!(rival.cells() == expected.plane(0));
        Ok(())
    }

    #[test]
    fn every_signal_of_a_random_network_is_read() -> anyhow::Result<()> {
        let circuit = random_network(10 * INPUTS)?;
        assert_eq!((circuit.nodes().len(), circuit.reachable()), (10 * INPUTS, 10 * INPUTS));
        Ok(())
    }
}
