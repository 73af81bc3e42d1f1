//! Rows of `gatework bench circuits` for Life: a learned circuit, minimised and proved, the adders that one would
//! draw, and the rival that is written by hand.

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

/// The circuit that `gatework train game-of-life` learned, as it came from training.
const LEARNED: &str = include_str!("../../data/game-of-life.json");
/// The side of the board.
pub(super) const SIDE: usize = 4096;
/// The steps that are timed together.
pub(super) const STEPS: usize = 512;

/// A way to play Life.
pub(super) struct Contestant {
    name: &'static str,
    pub(super) automaton: Automaton,
    /// How it came about, for its row.
    origin: Value,
}

/// The learned circuit, minimised, and the circuit of adders.
pub(super) fn contestants() -> anyhow::Result<[Contestant; 2]> {
    let adders = rules::life(Boundary::Torus);
    Ok([learned()?, Contestant { name: "life-adders", automaton: adders, origin: json!({}) }])
}

/// The learned circuit, minimised, proved to be what was learned, and looked up in all patches to be Life.
pub(super) fn learned() -> anyhow::Result<Contestant> {
    let Document::Automaton { automaton: learned, .. } = from_json(LEARNED)? else {
        bail!("the learned Life is no automaton")
    };
    let begin = Instant::now();
    let options = Options { effort: Effort::High, ..Options::default() };
    let minimized = minimize_automaton(&learned, 1, &options)?;
    let minimize_seconds = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let verdict = equivalent_automata(&learned, &minimized.automaton, 1, &minimized.map)?;
    ensure!(verdict == Verdict::Equal, "the minimised Life is not what was learned");
    let proved_seconds = begin.elapsed().as_secs_f64();
    ensure!(is_life(&minimized.automaton)?, "what was learned is not Life");
    let origin = json!({
        "gates_learned": learned.circuit.nodes().len(), "gates_before": minimized.statistics.gates_before,
        "minimize_seconds": minimize_seconds, "proved_seconds": proved_seconds,
    });
    Ok(Contestant { name: "life", automaton: minimized.automaton, origin })
}

/// Whether a rule is Life in all 512 patches.
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
    /// Life on a torus of random cells: the circuits, and the rival beside them.
    pub(super) fn life(
        &self,
        contestants: &[Contestant],
        threads: usize,
        results: &mut Vec<Value>,
    ) -> anyhow::Result<()> {
        let start = random_grid(SIDE, 1)?;
        let mut rival = by_hand::Life::new(SIDE, SIDE, start.plane(0));
        if let Some(rival) = &mut rival {
            rival.run(11);
        }
        let mut runners = Vec::new();
        for contestant in contestants {
            let (mut runner, mut grid) = (Runner::new(&contestant.automaton, 1)?, start.clone());
            runner.run(&mut grid, 11)?;
            if let Some(rival) = &rival {
                let name = contestant.name;
                ensure!(rival.cells() == grid.plane(0), "{name} and the version by hand differ");
            }
            runners.push((runner, grid, Duration::MAX));
        }
        let mut best_rival = Duration::MAX;
        let begin = Instant::now();
        while begin.elapsed().as_secs_f64() < self.seconds * (1 + contestants.len()) as f64 / 2.0 {
            for (runner, grid, best) in &mut runners {
                *best = timed(|| runner.run(grid, STEPS))?.min(*best);
            }
            if let Some(rival) = &mut rival {
                let begin = Instant::now();
                rival.run(STEPS);
                best_rival = best_rival.min(begin.elapsed());
            }
        }
        let rate = |time: Duration| (SIDE * SIDE * STEPS) as f64 / time.as_secs_f64() / 1e9;
        if rival.is_some() {
            let rate = rate(best_rival);
            push(results, json!({ "name": "life-by-hand", "threads": threads, "gcells_per_second": rate }));
        }
        for (contestant, (runner, _, best)) in contestants.iter().zip(&runners) {
            let mut row = json!({
                "name": contestant.name, "threads": threads, "gates": contestant.automaton.circuit.nodes().len(),
                "operations_per_cell": runner.operations(), "gcells_per_second": rate(*best),
            });
            if rival.is_some() {
                row["ratio_to_hand"] = json!(rate(*best) / rate(best_rival));
            }
            for (key, value) in contestant.origin.as_object().into_iter().flatten() {
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
    fn the_rival_plays_life() -> anyhow::Result<()> {
        let automaton = rules::life(Boundary::Torus);
        let start = random_grid(256, 1)?;
        let Some(mut rival) = by_hand::Life::new(256, 256, start.plane(0)) else { return Ok(()) };
        let mut expected = start;
        for _ in 0..11 {
            expected = naive_step(&automaton, &expected)?;
        }
        rival.run(11);
        assert!(rival.cells() == expected.plane(0));
        Ok(())
    }

    #[test]
    fn what_was_learned_is_life_and_other_rules_are_not() -> anyhow::Result<()> {
        let Document::Automaton { automaton, .. } = from_json(LEARNED)? else { bail!("no automaton") };
        assert!(is_life(&automaton)?);
        let still = gatework_logic::Circuit::new(9, vec![], vec![4])?;
        assert!(!is_life(&Automaton::new(1, Boundary::Torus, still)?)?);
        Ok(())
    }
}
