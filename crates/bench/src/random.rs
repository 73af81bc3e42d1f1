//! Random circuits, grids and words, all derived from one seed.

use gatework_logic::{Circuit, Gate, Grid, Node};
use gatework_train::random::{Purpose, Random};

/// The seed of all random numbers here.
pub const SEED: u64 = 1;
/// Inputs of [`random_network`].
pub const INPUTS: usize = 1024;
/// Layers of the random networks.
const LAYERS: usize = 10;

/// Returns `n` random words.
pub fn random_words(n: usize) -> Vec<u64> {
    let mut random = Random::new(SEED, Purpose::Check, 0);
    (0..n).map(|_| random.word()).collect()
}

/// Returns a square grid of random cells.
pub fn random_grid(side: usize, channels: usize) -> anyhow::Result<Grid> {
    let mut grid = Grid::new(1, side, side, channels)?;
    let words = grid.words_per_sample();
    for (channel, words) in random_words(words * channels).chunks_exact(words).enumerate() {
        grid.plane_mut(channel).copy_from_slice(words);
    }
    Ok(grid)
}

/// Returns the functions of the random networks: all that depend on both operands.
fn functions() -> Vec<Gate> {
    Gate::ALL.into_iter().filter(|gate| gate.depends_on_a() && gate.depends_on_b()).collect()
}

/// Returns a layered network with random functions. Every layer reads each signal of the previous layer twice.
pub fn random_network(gates: usize) -> anyhow::Result<Circuit> {
    let functions = functions();
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
            nodes.push(Node::new(functions[random.below(functions.len())], a, b));
        }
        layer = start..start + width as u32;
    }
    Ok(Circuit::new(INPUTS, nodes, layer.collect())?)
}

/// Returns a layered network whose gates read nearby gates: it has redundancy that minimisation can remove.
pub fn local_network(gates: usize) -> anyhow::Result<Circuit> {
    /// Largest distance between the operands of a gate.
    const REACH: usize = 6;
    let functions = functions();
    let mut random = Random::new(SEED, Purpose::Wiring, 1);
    let width = gates / LAYERS;
    let mut nodes = Vec::with_capacity(width * LAYERS);
    let mut before = 0..width;
    for _ in 0..LAYERS {
        let start = width + nodes.len();
        for i in 0..width {
            let [a, b] = [0; 2].map(|_| (before.start + (i + random.below(REACH)) % width) as u32);
            nodes.push(Node::new(functions[random.below(functions.len())], a, b));
        }
        before = start..start + width;
    }
    Ok(Circuit::new(width, nodes, before.map(|signal| signal as u32).collect())?)
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
