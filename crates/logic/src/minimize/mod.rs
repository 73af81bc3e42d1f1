//! Minimising: the same function with fewer two-input gates.
//!
//! The cost of a circuit is its number of two-input gates; inverters are absorbed into gates and are free, and
//! an XOR costs as much as an AND. Passes work on a network of ANDs and XORs with free inverters and
//! return one that is not larger; they are repeated until nothing improves.
//!
//! | file | what is in it |
//! |---|---|
//! | `rewrite` | vertices built anew from the leaves of small cuts |
//! | `cuts` | cuts of up to four leaves, with their functions |
//! | `chains` | the smallest circuits of all functions of four inputs |
//! | `editor` | a network that is changed in place |
//!
//! Every pass is deterministic: the same circuit and options give the same result.

mod chains;
mod cuts;
mod editor;
mod rewrite;

use crate::circuit::Circuit;
use crate::network::Network;
use crate::prove::sat::Bounds;
use crate::prove::sweep::sweep;

/// How much work a minimisation may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Effort {
    /// A few passes: seconds for a million gates.
    Fast,
    /// Passes until nothing improves.
    #[default]
    Normal,
    /// And a long search where circuits are small.
    High,
}

/// What a minimisation is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Options {
    /// How much work it may be.
    pub effort: Effort,
}

/// The number of two-input gates of a circuit: gates that an output reads, without wires, inverters and
/// constants, equal gates counted once.
pub fn gates(circuit: &Circuit) -> usize {
    Network::of(circuit).without_dead_gates().gates()
}

/// A circuit of the same function with fewer gates, or as many. Names of ports stay.
#[must_use]
pub fn minimize(circuit: &Circuit, options: &Options) -> Circuit {
    improve(&Network::of(circuit).without_dead_gates(), options).to_circuit(circuit)
}

/// How far a sweep looks to find equal vertices.
const SWEEP: Bounds = Bounds { gates: 300, conflicts: 100, deadline: None };

/// The passes on a network, until nothing improves.
fn improve(network: &Network, options: &Options) -> Network {
    let mut best = rewrite::rewrite(network, false, 0);
    let rounds = match options.effort {
        Effort::Fast => 1,
        Effort::Normal => 20,
        Effort::High => 100,
    };
    for round in 0..rounds {
        let swept = sweep(&best, SWEEP).network.without_dead_gates();
        let moved = rewrite::rewrite(&swept, true, round);
        let next = rewrite::rewrite(&moved, false, round);
        if next.gates() >= best.gates() && round > 4 {
            break;
        }
        best = next;
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_function_stays(circuit in arbitrary::circuit(0..=40, 200)) {
            let small = minimize(&circuit, &Options::default());
            prop_assert_eq!(equivalent(&circuit, &small), Ok(Verdict::Equal));
            prop_assert!(gates(&small) <= gates(&circuit));
            prop_assert_eq!(minimize(&circuit, &Options::default()), small);
        }
    }
}
