//! Life, in three ways: a learned circuit, minimised and proved; a circuit of full adders; and AVX2 code written by hand.

mod by_hand;

use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use gatework_logic::minimize::Options;
use gatework_logic::prove::{Verdict, equivalent_automata};
use gatework_logic::simulate::Runner;
use gatework_logic::{Automaton, Boundary, Document, Effort, from_json, minimize_automaton, rules};
use serde_json::{Value, json};

use super::{Circuits, push, timed};
use gatework_bench::random::random_grid;

/// The circuit that `gatework train game-of-life` learned, before minimisation.
const LEARNED: &str = include_str!("../../data/game-of-life.json");
/// Side of the grid.
pub(super) const SIDE: usize = 4096;
/// Steps of a timed run.
pub(super) const STEPS: usize = 512;

/// A circuit for Life.
pub(super) struct LifeCircuit {
    name: &'static str,
    pub(super) automaton: Automaton,
    /// Figures about how it was made, for its row.
    origin: Value,
}

/// Returns the learned circuit, minimised, and the circuit of adders.
pub(super) fn circuits() -> anyhow::Result<[LifeCircuit; 2]> {
    let adders = rules::life(Boundary::Torus);
    Ok([learned()?, LifeCircuit { name: "life-adders", automaton: adders, origin: json!({}) }])
}

/// Returns the learned circuit, minimised, proved equivalent to the original, and compared with Life on all neighbourhoods.
pub(super) fn learned() -> anyhow::Result<LifeCircuit> {
    let Document::Automaton { automaton: learned, .. } = from_json(LEARNED)? else {
        bail!("the learned Life is not an automaton")
    };
    let begin = Instant::now();
    let options = Options { effort: Effort::High, ..Options::default() };
    let minimized = minimize_automaton(&learned, 1, &options)?;
    let minimize_seconds = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let verdict = equivalent_automata(&learned, &minimized.automaton, 1, &minimized.map)?;
    ensure!(verdict == Verdict::Equal, "the minimised Life is not equivalent to the learned circuit");
    let proved_seconds = begin.elapsed().as_secs_f64();
    ensure!(is_life(&minimized.automaton)?, "the learned circuit is not Life");
    let origin = json!({
        "gates_learned": learned.circuit.nodes().len(), "gates_before": minimized.statistics.gates_before,
        "minimize_seconds": minimize_seconds, "proved_seconds": proved_seconds,
    });
    Ok(LifeCircuit { name: "life", automaton: minimized.automaton, origin })
}

/// Whether a rule agrees with Life on all 512 neighbourhoods.
fn is_life(automaton: &Automaton) -> anyhow::Result<bool> {
    for patch in 0..512u32 {
        let bits: Vec<bool> = (0..9).map(|k| patch >> k & 1 == 1).collect();
        let count = (patch & !(1 << 4)).count_ones();
        if automaton.circuit.eval(&bits)? != [count == 3 || count == 2 && bits[4]] {
            return Ok(false);
        }
    }
    Ok(true)
}

impl Circuits {
    /// Measures Life on a torus of random cells: the circuits and the hand-written code, interleaved.
    pub(super) fn life(
        &self,
        circuits: &[LifeCircuit],
        threads: usize,
        results: &mut Vec<Value>,
    ) -> anyhow::Result<()> {
        let start = random_grid(SIDE, 1)?;
        let mut hand = by_hand::Life::new(SIDE, SIDE, start.plane(0));
        if let Some(hand) = &mut hand {
            hand.run(11);
        }
        let mut runners = Vec::new();
        for circuit in circuits {
            let (mut runner, mut grid) = (Runner::new(&circuit.automaton, 1)?, start.clone());
            runner.run(&mut grid, 11)?;
            if let Some(hand) = &hand {
                let name = circuit.name;
                ensure!(hand.cells() == grid.plane(0), "{name} and the hand-written code differ");
            }
            runners.push((runner, grid, Duration::MAX));
        }
        let mut best_by_hand = Duration::MAX;
        let begin = Instant::now();
        while begin.elapsed().as_secs_f64() < self.seconds * (1 + circuits.len()) as f64 / 2.0 {
            for (runner, grid, best) in &mut runners {
                *best = timed(|| runner.run(grid, STEPS))?.min(*best);
            }
            if let Some(hand) = &mut hand {
                let begin = Instant::now();
                hand.run(STEPS);
                best_by_hand = best_by_hand.min(begin.elapsed());
            }
        }
        let rate = |time: Duration| (SIDE * SIDE * STEPS) as f64 / time.as_secs_f64() / 1e9;
        if hand.is_some() {
            let rate = rate(best_by_hand);
            push(results, json!({ "name": "life-by-hand", "threads": threads, "gcells_per_second": rate }));
        }
        for (circuit, (runner, _, best)) in circuits.iter().zip(&runners) {
            let mut row = json!({
                "name": circuit.name, "threads": threads, "gates": circuit.automaton.circuit.nodes().len(),
                "operations_per_cell": runner.operations(), "gcells_per_second": rate(*best),
            });
            if hand.is_some() {
                row["ratio_to_hand"] = json!(rate(*best) / rate(best_by_hand));
            }
            for (key, value) in circuit.origin.as_object().into_iter().flatten() {
                row[key] = value.clone();
            }
            push(results, row);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_logic::naive_step;

    #[test]
    fn hand_written_code_plays_life() -> anyhow::Result<()> {
        let automaton = rules::life(Boundary::Torus);
        let start = random_grid(256, 1)?;
        let Some(mut hand) = by_hand::Life::new(256, 256, start.plane(0)) else { return Ok(()) };
        let mut expected = start;
        for _ in 0..11 {
            expected = naive_step(&automaton, &expected)?;
        }
        hand.run(11);
        assert!(hand.cells() == expected.plane(0));
        Ok(())
    }

    #[test]
    fn the_learned_circuit_is_life_and_other_rules_are_not() -> anyhow::Result<()> {
        let Document::Automaton { automaton, .. } = from_json(LEARNED)? else { bail!("not an automaton") };
        assert!(is_life(&automaton)?);
        let still = gatework_logic::Circuit::new(9, vec![], vec![4])?;
        assert!(!is_life(&Automaton::new(1, Boundary::Torus, still)?)?);
        Ok(())
    }
}
