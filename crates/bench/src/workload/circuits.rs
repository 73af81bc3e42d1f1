//! Workloads of circuits.

use std::hint::black_box;

use anyhow::ensure;
use gatework_logic::minimize::{Options, minimize};
use gatework_logic::prove::{Verdict, equivalent};
use gatework_logic::simulate::{Executor, Runner};
use gatework_logic::{Boundary, Simulator, rules};

use super::Call;
use crate::random::{local_network, random_grid, random_network, random_words};

/// Prepares steps of Life on a torus of random cells.
pub fn life(side: usize, steps: usize) -> anyhow::Result<Call> {
    let automaton = rules::life(Boundary::Torus);
    let mut grid = random_grid(side, 1)?;
    let mut expected = grid.clone();
    let (mut runner, mut simulator) = (Runner::new(&automaton, 1)?, Simulator::new(&automaton, 1)?);
    runner.run(&mut grid, 3)?;
    (0..3).try_for_each(|_| simulator.step(&mut expected))?;
    ensure!(grid == expected, "the runner and the simulator differ");
    Ok(Box::new(move || runner.run(&mut grid, steps).expect("a grid that ran before")))
}

/// Prepares the simulation of a random circuit on a batch of samples.
pub fn simulate(gates: usize, samples: usize) -> anyhow::Result<Call> {
    let circuit = random_network(gates)?;
    let inputs = random_words(circuit.inputs() * samples / 64);
    let mut outputs = vec![0; circuit.outputs().len() * samples / 64];
    let mut expected = outputs.clone();
    let executor = Executor::new(&circuit);
    executor.run(samples, &inputs, &mut outputs)?;
    Executor::portable(&circuit).run(samples, &inputs, &mut expected)?;
    ensure!(outputs == expected, "native code and the interpreter differ");
    Ok(Box::new(move || executor.run(samples, &inputs, &mut outputs).expect("a batch that ran before")))
}

/// Prepares the minimisation of a random circuit.
pub fn minimization(gates: usize) -> anyhow::Result<Call> {
    let circuit = local_network(gates)?;
    let minimized = minimize(&circuit, &Options::default()).circuit;
    ensure!(equivalent(&circuit, &minimized)? == Verdict::Equal, "the minimised circuit is not equivalent");
    ensure!(minimized.nodes().len() < circuit.nodes().len(), "nothing was minimised");
    Ok(Box::new(move || _ = black_box(minimize(&circuit, &Options::default()))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workloads_agree_with_their_references() -> anyhow::Result<()> {
        life(128, 2)?();
        simulate(2000, 64)?();
        minimization(200)?();
        Ok(())
    }
}
