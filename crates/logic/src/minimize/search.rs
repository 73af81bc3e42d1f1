//! A random walk among networks of the same function that never grow.
//!
//! Each step takes a gate and looks for replacements of up to two gates. One that saves gates is taken at once;
//! otherwise a random one that costs as much as it saves. Such sideways steps change which gates are there, and
//! with them what the next step can find. The numbers are drawn from a fixed seed, so a walk can be repeated.

use super::dense::{Collect, Dense, Replacement};
use crate::network::Network;
use crate::prove::sweep::Random;

/// Keeps the first replacement that saves something, or a fair choice of those that save nothing.
struct Choice<'a> {
    random: &'a mut Random,
    seen: usize,
    kept: Option<(isize, Replacement)>,
    /// How many replacements are looked at.
    most: usize,
}

impl Collect for Choice<'_> {
    fn take(&mut self, gain: isize, replacement: Replacement) -> bool {
        self.seen += 1;
        if gain > 0 || self.random.below(self.seen) == 0 {
            self.kept = Some((gain, replacement));
        }
        gain <= 0 && self.seen < self.most
    }
}

/// Takes every step that saves gates, until no gate has one: first replacements without a gate, which are found
/// fastest, then with one and so on up to `gates`.
pub(super) fn descend(network: &Network, gates: usize) -> Network {
    let mut dense = Dense::new(network.clone());
    for gates in 0..=gates {
        dense = descend_with(dense, gates);
    }
    dense.into_network()
}

/// Tries the gates in order, again and again, until all were tried without success.
fn descend_with(mut dense: Dense, gates: usize) -> Dense {
    let mut random = Random(1);
    let (mut vertex, mut fruitless) = (0, 0);
    while fruitless < dense.network().gates() {
        let range = dense.network().gate_range();
        vertex = if range.contains(&vertex) { vertex } else { range.start };
        let mut choice = Choice { random: &mut random, seen: 0, kept: None, most: usize::MAX };
        dense.search(vertex, gates, 0, &mut choice);
        match choice.kept {
            Some((gain, replacement)) if gain > 0 => {
                dense = Dense::new(dense.replace(vertex, &replacement));
                fruitless = 0;
            }
            _ => fruitless += 1,
        }
        vertex += 1;
    }
    dense
}

/// Walks until so many steps in a row have saved nothing.
pub(super) fn walk(network: &Network, patience: usize, seed: u64) -> Network {
    let mut random = Random(seed);
    let mut dense = Dense::new(network.clone());
    let mut fruitless = 0;
    while fruitless < patience && dense.network().gates() > 0 {
        let range = dense.network().gate_range();
        let vertex = range.start + random.below(range.len());
        let (start, gates) = (random.below(range.end), 1 + random.below(2));
        let mut choice = Choice { random: &mut random, seen: 0, kept: None, most: 200 };
        dense.search(vertex, gates, start, &mut choice);
        fruitless += 1;
        if let Some((_, replacement)) = choice.kept {
            let next = dense.replace(vertex, &replacement);
            if next.gates() < dense.network().gates() {
                fruitless = 0;
            }
            dense = Dense::new(next);
        }
    }
    dense.into_network()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_function_stays_and_gates_do_not_grow(circuit in arbitrary::circuit(0..=8, 60), seed in 0u64..9) {
            let network = Network::of(&circuit).without_dead_gates();
            let less = descend(&network, 2);
            let least = walk(&less, 100, seed);
            prop_assert!(less.gates() <= network.gates() && least.gates() <= less.gates());
            prop_assert_eq!(descend(&less, 2).gates(), less.gates());
            for network in [less, least] {
                prop_assert_eq!(equivalent(&circuit, &network.to_circuit(&circuit)), Ok(Verdict::Equal));
            }
        }
    }
}
