//! Wiring: the two rows of the preceding layer that each gate reads. Drawn once, when a network is made.

use crate::kernel::{Layer, Wires};
use serde::{Deserialize, Serialize};

use gatework_train::random::Random;

/// The wiring of a network's layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Wiring {
    /// Pairs (0,1), (2,3), ..., then (1,2), (3,4), ..., then pairs at distance 2, 3, ..., in random order. No
    /// two gates read the same pair, and every row is read, except perhaps the last of an odd number of rows.
    #[default]
    Unique,
    /// A random permutation of all operands over the rows: every row is read about equally often.
    Random,
    /// As in a fast Fourier transform: layer k pairs rows at distance 2^k, so that any two rows meet after a few
    /// layers. The inputs of the first layer are in random order; everything else is the same for every seed.
    Butterfly,
}

/// The error of a layer that cannot be wired.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WiringError {
    /// Too few gates to read every row.
    #[error("{outputs} gates read at most {} rows, but the layer before has {inputs}", 2 * outputs)]
    TooFew {
        /// Rows of the preceding layer.
        inputs: usize,
        /// Gates of the layer.
        outputs: usize,
    },
    /// More gates than there are pairs of rows.
    #[error("{inputs} rows have {} pairs, but unique wiring needs one for each of {outputs} gates", pairs(*inputs))]
    TooMany {
        /// Rows of the preceding layer.
        inputs: usize,
        /// Gates of the layer.
        outputs: usize,
    },
}

/// Returns the number of pairs of different rows; saturates far above the gates of any layer.
fn pairs(rows: usize) -> usize {
    rows.saturating_mul(rows.saturating_sub(1)) / 2
}

impl Wiring {
    /// Checks that a layer of `outputs` gates can be wired to `inputs` rows.
    pub fn check(self, inputs: usize, outputs: usize) -> Result<(), WiringError> {
        if outputs.saturating_mul(2) < inputs {
            return Err(WiringError::TooFew { inputs, outputs });
        }
        if self == Wiring::Unique && outputs > pairs(inputs) {
            return Err(WiringError::TooMany { inputs, outputs });
        }
        Ok(())
    }

    /// Draws the wires of layer number `depth`, counted from 0.
    pub fn layer(
        self,
        depth: usize,
        inputs: usize,
        outputs: usize,
        random: &mut Random,
    ) -> Result<Layer, WiringError> {
        self.check(inputs, outputs)?;
        Ok(match self {
            Wiring::Unique => unique(inputs, outputs, random),
            Wiring::Random => shuffled(inputs, outputs, random),
            Wiring::Butterfly => butterfly(depth, inputs, outputs, random),
        })
    }
}

fn unique(inputs: usize, outputs: usize, random: &mut Random) -> Layer {
    let at_distance = |distance: usize, first: usize, step: usize| {
        (first..inputs.saturating_sub(distance)).step_by(step).map(move |i| (i as u32, (i + distance) as u32))
    };
    let neighbours = at_distance(1, 0, 2).chain(at_distance(1, 1, 2));
    let farther = (2..inputs).flat_map(|distance| at_distance(distance, 0, 1));
    let mut pairs: Vec<(u32, u32)> = neighbours.chain(farther).take(outputs).collect();
    random.shuffle(&mut pairs);
    let (a, b) = pairs.into_iter().unzip();
    Layer { a, b }
}

fn shuffled(inputs: usize, outputs: usize, random: &mut Random) -> Layer {
    let mut operands: Vec<usize> = (0..2 * outputs).collect();
    random.shuffle(&mut operands);
    let mut rows: Vec<u32> = (0..inputs as u32).collect();
    random.shuffle(&mut rows);
    let wires: Vec<u32> = operands.iter().map(|&i| rows[i % inputs]).collect();
    let (a, b) = wires.split_at(outputs);
    Layer { a: a.to_vec(), b: b.to_vec() }
}

fn butterfly(depth: usize, inputs: usize, outputs: usize, random: &mut Random) -> Layer {
    let mut rows: Vec<u32> = (0..inputs as u32).collect();
    if depth == 0 {
        random.shuffle(&mut rows);
    }
    // A layer that is smaller than the preceding one pairs its rows with the remaining ones.
    let bits = inputs.max(2).ilog2() as usize;
    let distance = if outputs < inputs { outputs } else { 1 << (depth % bits) };
    let b = |i: usize| (i + distance * (1 + i / inputs)) % inputs;
    let wires = |row: &dyn Fn(usize) -> usize| (0..outputs).map(|i| rows[row(i)]).collect();
    Layer { a: wires(&|i| i % inputs), b: wires(&b) }
}

/// Draws the first layer on a 3x3 patch: each of the eight neighbours with the centre, in random order.
pub fn moore(random: &mut Random) -> Layer {
    let mut a: Vec<u32> = (0..9).filter(|&i| i != 4).collect();
    random.shuffle(&mut a);
    Layer { a, b: vec![4; 8] }
}

/// Draws the wires of a layered network; `sizes` begins with the number of inputs. `first` replaces the first
/// layer, for which it must have the right size.
pub fn network(
    sizes: &[usize],
    wiring: Wiring,
    first: Option<Layer>,
    random: &mut Random,
) -> Result<Wires, WiringError> {
    let mut first = first;
    let layers = sizes.windows(2).enumerate().map(|(depth, pair)| match first.take() {
        Some(layer) => Ok(layer),
        None => wiring.layer(depth, pair[0], pair[1], random),
    });
    Ok(Wires { inputs: sizes.first().copied().unwrap_or(0), layers: layers.collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::Purpose;

    fn wired(layer: &Layer) -> Vec<(u32, u32)> {
        let mut pairs: Vec<_> = layer.a.iter().copied().zip(layer.b.iter().copied()).collect();
        pairs.sort_unstable();
        pairs
    }

    #[test]
    fn unique_pairs_come_nearest_first_and_read_every_row() {
        let mut random = Random::new(1, Purpose::Wiring, 0);
        let layer = Wiring::Unique.layer(0, 6, 7, &mut random).unwrap();
        assert_eq!(wired(&layer), [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3), (3, 4), (4, 5)]);
        for (inputs, outputs) in [(17, 128), (264, 256), (256, 128), (2, 1), (9, 8), (5, 3)] {
            let layer = Wiring::Unique.layer(0, inputs, outputs, &mut random).unwrap();
            let mut seen = wired(&layer);
            seen.dedup();
            assert_eq!(seen.len(), outputs, "no pair twice");
            let read: std::collections::HashSet<u32> = layer.a.iter().chain(&layer.b).copied().collect();
            assert_eq!(read.len(), if inputs % 2 == 1 && outputs < inputs - 1 { inputs - 1 } else { inputs });
        }
    }

    #[test]
    fn random_wiring_reads_rows_equally_often() {
        let mut random = Random::new(1, Purpose::Wiring, 0);
        let layer = Wiring::Random.layer(0, 10, 25, &mut random).unwrap();
        for row in 0..10 {
            assert_eq!(layer.a.iter().chain(&layer.b).filter(|&&w| w == row).count(), 5);
        }
    }

    #[test]
    fn a_butterfly_reads_every_row_and_combines_all_rows() {
        let mut random = Random::new(1, Purpose::Wiring, 0);
        for (inputs, outputs) in
            [(17, 128), (264, 256), (256, 128), (256, 256), (2, 1), (9, 8), (5, 3), (1, 1)]
        {
            for depth in [0, 1, 7] {
                let layer = Wiring::Butterfly.layer(depth, inputs, outputs, &mut random).unwrap();
                let read: std::collections::HashSet<u32> = layer.a.iter().chain(&layer.b).copied().collect();
                assert_eq!(read.len(), inputs, "{depth}: {inputs} to {outputs}");
            }
        }
        // The rows that gate 0 depends on after four layers of 16.
        let wires = network(&[16; 5], Wiring::Butterfly, None, &mut random).unwrap();
        let mut needed = std::collections::HashSet::from([0]);
        for layer in wires.layers.iter().rev() {
            needed = needed
                .iter()
                .flat_map(|&gate: &u32| [layer.a[gate as usize], layer.b[gate as usize]])
                .collect();
        }
        assert_eq!(needed.len(), 16);
    }

    #[test]
    fn layers_with_too_few_or_too_many_gates_are_refused() {
        assert_eq!(Wiring::Unique.check(9, 4), Err(WiringError::TooFew { inputs: 9, outputs: 4 }));
        assert_eq!(Wiring::Unique.check(3, 4), Err(WiringError::TooMany { inputs: 3, outputs: 4 }));
        assert_eq!(Wiring::Random.check(3, 4), Ok(()));
        let nothing = Wiring::Unique.check(0, 1).unwrap_err();
        assert!(nothing.to_string().starts_with("0 rows have 0 pairs"), "{nothing}");
    }

    #[test]
    fn moore_pairs_each_neighbour_with_the_centre() {
        let layer = moore(&mut Random::new(3, Purpose::Wiring, 0));
        let neighbours = [0, 1, 2, 3, 5, 6, 7, 8];
        assert_eq!(wired(&layer), neighbours.map(|n| (n, 4)));
    }
}
