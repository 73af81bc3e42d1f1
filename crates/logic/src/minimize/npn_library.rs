//! Size-optimal Boolean chains of all functions of four inputs, over all two-input gates.
//!
//! Functions of one NPN class (equal up to negated inputs, permuted inputs and a negated output) need the same number
//! of gates. There are 222 classes. All but the constants and the projections are in [`CHAINS`], with several chains
//! each, so that a rewriting pass can choose the one that shares most nodes with the rest of the graph. The table is
//! the output of `examples/smallest_chains.rs`, which describes the exhaustive search and why the chains are optimal.
//! Their sizes agree with Knuth, The Art of Computer Programming, 7.1.2, table 1.
//!
//! A gate of a chain is a byte, `5 * pair + operation`. The pair of the signals i < j is j (j - 1) / 2 + i, where
//! signals 0 to 3 are the inputs and signal 4 + k is gate k.

use crate::xag::{Literal, Operation};
use std::sync::OnceLock;

/// The truth tables of the inputs.
pub(super) const INPUTS: [u16; 4] = [0xaaaa, 0xcccc, 0xf0f0, 0xff00];
/// The maximum number of gates of a chain.
pub(super) const MAX_GATES: usize = 7;
/// The maximum number of chains per class.
const VARIANTS: usize = 6;

/// A Boolean chain, the first gate in the lowest byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Chain(u64);

/// A gate of a chain: `(a ^ not_a) & (b ^ not_b) ^ not`, or `a ^ b`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub a: usize,
    pub b: usize,
    pub operation: Operation,
    pub not_a: bool,
    pub not_b: bool,
    pub not: bool,
}

impl Chain {
    fn len(self) -> usize {
        (self.0.checked_ilog2().unwrap_or(0) / 8 + 1) as usize
    }

    fn steps(self) -> impl Iterator<Item = Step> {
        (0..self.len()).map(move |gate| {
            let code = (self.0 >> (8 * gate)) as usize & 0xff;
            let (pair, operation) = (code / 5, code % 5);
            let b = (1..10).find(|j| pair < j * (j + 1) / 2).unwrap_or(1);
            let kind = if operation == 3 { Operation::Xor } else { Operation::And };
            let (not_a, not_b) = (matches!(operation, 2 | 4), matches!(operation, 1 | 4));
            Step { a: pair - b * (b - 1) / 2, b, operation: kind, not_a, not_b, not: operation == 4 }
        })
    }
}

/// Evaluates a chain on these truth tables of its inputs.
fn eval(steps: &[Step], inputs: [u16; 4]) -> u16 {
    let invert = |value: u16, not: bool| if not { !value } else { value };
    let mut signals = [0; 4 + MAX_GATES];
    signals[..4].copy_from_slice(&inputs);
    let mut last = 0;
    for (gate, step) in steps.iter().enumerate() {
        let (a, b) = (invert(signals[step.a], step.not_a), invert(signals[step.b], step.not_b));
        last = match step.operation {
            Operation::And => invert(a & b, step.not),
            Operation::Xor => a ^ b,
        };
        signals[4 + gate] = last;
    }
    last
}

/// A chain with the NPN transformation that makes it compute a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Implementation<'a> {
    /// The gates of the chain.
    pub steps: &'a [Step],
    /// Input i of the chain is input `inputs[i].0` of the function, inverted if `inputs[i].1`.
    inputs: [(usize, bool); 4],
    /// Whether the output is inverted.
    not: bool,
}

impl Implementation<'_> {
    /// Returns the inputs of the chain, given those of the function.
    pub fn chain_inputs(&self, inputs: [Literal; 4]) -> [Literal; 4] {
        self.inputs.map(|(input, not)| inputs[input].invert_if(not))
    }

    /// Builds the function of these inputs. `add` adds a gate to the graph.
    pub fn build(
        &self,
        inputs: [Literal; 4],
        mut add: impl FnMut(Operation, Literal, Literal) -> Literal,
    ) -> Literal {
        let mut signals = [Literal::FALSE; 4 + MAX_GATES];
        signals[..4].copy_from_slice(&self.chain_inputs(inputs));
        let mut last = Literal::FALSE;
        for (gate, step) in self.steps.iter().enumerate() {
            let (a, b) = (signals[step.a].invert_if(step.not_a), signals[step.b].invert_if(step.not_b));
            last = add(step.operation, a, b).invert_if(step.not);
            signals[4 + gate] = last;
        }
        last.invert_if(self.not)
    }
}

/// All functions of four inputs with their optimal implementations.
pub(super) struct NpnLibrary {
    chains: Vec<Vec<Step>>,
    /// For each function: `(chain + 1) << 10 | transformation << 1 | not`, or 0.
    entries: Vec<[u32; VARIANTS]>,
    /// The 384 negations and permutations of the inputs.
    transformations: Vec<[(usize, bool); 4]>,
}

impl NpnLibrary {
    /// Returns the library, which the first call builds.
    pub fn get() -> &'static NpnLibrary {
        static LIBRARY: OnceLock<NpnLibrary> = OnceLock::new();
        LIBRARY.get_or_init(NpnLibrary::new)
    }

    fn new() -> NpnLibrary {
        let entries = vec![[0; VARIANTS]; 1 << 16];
        let mut library = NpnLibrary { chains: vec![], entries, transformations: input_transformations() };
        for class in classes() {
            for (variant, chain) in class.into_iter().enumerate() {
                library.chains.push(chain.steps().collect());
                for transformation in 0..library.transformations.len() {
                    library.enter(variant, transformation);
                }
            }
        }
        library
    }

    /// Enters the last chain for the two functions that it computes with a transformation of its inputs.
    fn enter(&mut self, variant: usize, transformation: usize) {
        let chain = self.chains.len();
        let inputs = self.transformations[transformation]
            .map(|(input, not)| INPUTS[input] ^ u16::from(not).wrapping_neg());
        let function = eval(&self.chains[chain - 1], inputs);
        for (function, not) in [(function, 0), (!function, 1)] {
            let entry = &mut self.entries[usize::from(function)][variant];
            if *entry == 0 {
                *entry = (chain << 10 | transformation << 1 | not) as u32;
            }
        }
    }

    /// Returns the optimal implementations of a function; none for constants and projections.
    pub fn implementations(&self, function: u16) -> impl Iterator<Item = Implementation<'_>> + Clone {
        self.entries[usize::from(function)].iter().filter(|&&entry| entry != 0).map(|&entry| Implementation {
            steps: &self.chains[(entry >> 10) as usize - 1],
            inputs: self.transformations[(entry >> 1 & 0x1ff) as usize],
            not: entry & 1 == 1,
        })
    }

    /// Returns the minimum number of gates of a function.
    pub fn size(&self, function: u16) -> usize {
        self.implementations(function).next().map_or(0, |implementation| implementation.steps.len())
    }
}

/// Returns all permutations of four inputs, with all negations.
fn input_transformations() -> Vec<[(usize, bool); 4]> {
    let mut transformations = Vec::new();
    for code in 0..256usize {
        let order = [code & 3, code >> 2 & 3, code >> 4 & 3, code >> 6];
        if (0..4).all(|input| order.contains(&input)) {
            transformations.extend((0..16).map(|not| std::array::from_fn(|i| (order[i], not >> i & 1 == 1))));
        }
    }
    transformations
}

/// The chains of each class, by size: a line of hexadecimal words for each class.
const CHAINS: &str = include_str!("npn_chains.txt");

/// Returns the chains of each class.
fn classes() -> impl Iterator<Item = Vec<Chain>> {
    let chain = |word| Chain(u64::from_str_radix(word, 16).expect("the table has hexadecimal words"));
    CHAINS.lines().map(move |class| class.split(' ').map(chain).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_implementation_computes_its_function() {
        let library = NpnLibrary::get();
        for function in 0..=u16::MAX {
            for implementation in library.implementations(function) {
                let not = |value: u16, not: bool| if not { !value } else { value };
                let inputs = implementation.inputs.map(|(input, inverted)| not(INPUTS[input], inverted));
                assert_eq!(not(eval(implementation.steps, inputs), implementation.not), function);
            }
        }
    }

    #[test]
    fn sizes_agree_with_knuth() {
        // The Art of Computer Programming, 7.1.2, table 1: how many functions need 0, 1, ... 7 gates.
        let mut functions = [0; 8];
        for function in 0..=u16::MAX {
            functions[NpnLibrary::get().size(function)] += 1;
        }
        assert_eq!(functions, [10, 60, 456, 2474, 10624, 24184, 25008, 2720]);
        let sizes: Vec<usize> = classes().map(|class| class[0].len()).collect();
        let classes: Vec<usize> = (1..8).map(|size| sizes.iter().filter(|&&s| s == size).count()).collect();
        assert_eq!(classes, [2, 5, 20, 34, 75, 72, 12]);
    }

    #[test]
    fn all_chains_of_a_class_have_the_same_size() {
        assert!(classes().all(|class| class.iter().all(|chain| chain.len() == class[0].len())));
    }
}
