//! Functional reduction: nodes of an XAG that are the same function of at most six inputs are merged, however they
//! are computed.
//!
//! Structural hashing finds equal gates only. Here every node of small support also has its truth table, in a canonical
//! form: without inputs that it does not depend on, and 0 where all inputs are 0. Nodes that are equal up to an
//! inverter have the same table, and the first of them represents the others.

use crate::circuit::Circuit;
use crate::gate::Gate;
use crate::literal::Literal;
use crate::straight_line::StraightLineProgram;
use crate::truth::SIX_INPUTS as INPUTS;
use crate::xag::{Operation, Xag};
use rustc_hash::FxHashMap;

/// The most inputs of a function.
const MAX_INPUTS: usize = 6;

/// An XAG under construction, with structural hashing and functional reduction.
pub(super) struct ReducedXag {
    xag: Xag,
    /// The first literal that is equal to each node.
    representatives: Vec<Literal>,
    /// The function of each node, if its support is small, and whether the node is its inverse.
    functions: Vec<Option<(Function, bool)>>,
    /// The literal that has each function.
    literals: FxHashMap<Function, Literal>,
}

impl ReducedXag {
    /// An XAG without gates.
    pub fn new(inputs: usize) -> ReducedXag {
        let leaves = (0..=inputs as u32).map(|node| {
            let function = if node == 0 { Function::FALSE } else { Function::input(node) };
            Some((function, false))
        });
        let literals = (0..=inputs).map(|node| Literal::new(node, false));
        ReducedXag {
            xag: Xag::new(inputs),
            representatives: literals.collect(),
            functions: leaves.collect(),
            literals: FxHashMap::default(),
        }
    }

    /// Adds a gate.
    pub fn gate(&mut self, gate: Gate, a: Literal, b: Literal) -> Literal {
        let literal = self.xag.gate(gate, a, b);
        if literal.node() == self.representatives.len() {
            self.find_representative(literal.node());
        }
        self.representatives[literal.node()].invert_if(literal.is_inverted())
    }

    /// Adds the gates of a circuit on these literals and returns the literals of its outputs.
    pub fn add_on(&mut self, circuit: &Circuit, mut literals: Vec<Literal>) -> Vec<Literal> {
        literals.reserve(circuit.nodes().len());
        for node in circuit.nodes() {
            literals.push(match node.gate {
                Gate::FALSE => Literal::FALSE,
                Gate::TRUE => Literal::TRUE,
                gate => self.gate(gate, literals[node.a as usize], literals[node.b as usize]),
            });
        }
        circuit.outputs().iter().map(|&signal| literals[signal as usize]).collect()
    }

    /// The program that computes some literals.
    pub fn lower(&self, outputs: &[Literal]) -> StraightLineProgram {
        StraightLineProgram::lower(&self.xag, outputs)
    }

    /// Looks for an earlier literal that is equal to a new node.
    fn find_representative(&mut self, index: usize) {
        let node = self.xag.node(index);
        let own = Literal::new(index, false);
        let operand = |literal: Literal| {
            let (function, inverse) = self.functions[literal.node()]?;
            Some((function, inverse != literal.is_inverted()))
        };
        let [a, b] = node.fanins().map(operand);
        let function = a.zip(b).and_then(|(a, b)| Function::combine(node.operation(), a, b));
        let representative = match function {
            None => own,
            Some((function, inverse)) => match function.as_leaf() {
                Some(leaf) => Literal::new(leaf, inverse),
                None => self.literals.entry(function).or_insert(own.invert_if(inverse)).invert_if(inverse),
            },
        };
        self.representatives.push(representative);
        self.functions.push(function);
    }
}

/// A function of up to six inputs, which is 0 where all of them are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Function {
    /// The nodes of the inputs, in ascending order; the unused places are 0.
    support: [u32; MAX_INPUTS],
    len: u8,
    /// Bit i is the value where the inputs are the bits of i. With fewer than six inputs, the table repeats itself.
    table: u64,
}

impl Function {
    const FALSE: Function = Function { support: [0; MAX_INPUTS], len: 0, table: 0 };

    /// The function of an input.
    fn input(node: u32) -> Function {
        let mut support = [0; MAX_INPUTS];
        support[0] = node;
        Function { support, len: 1, table: INPUTS[0] }
    }

    /// The node of the constant or the input that the function is, if it is one.
    fn as_leaf(self) -> Option<usize> {
        (self.len <= 1).then_some(self.support[0] as usize)
    }

    /// The function of an operation on two functions, each possibly inverted, and whether it is inverted; none if its
    /// support is too large.
    fn combine(operation: Operation, a: (Function, bool), b: (Function, bool)) -> Option<(Function, bool)> {
        let (support, len) = union(&a.0, &b.0)?;
        let table = |(f, not): (Function, bool)| f.on(&support[..len]) ^ if not { u64::MAX } else { 0 };
        let (a, b) = (table(a), table(b));
        let table = match operation {
            Operation::And => a & b,
            Operation::Xor => a ^ b,
        };
        let inverted = table & 1 == 1;
        let table = if inverted { !table } else { table };
        Some((Function { support, len: len as u8, table }.without_unused_inputs(), inverted))
    }

    /// The table over a larger support.
    fn on(self, inputs: &[u32]) -> u64 {
        let mut table = self.table;
        // From the last on: an input only moves to places that are free or have been left.
        for own in (0..usize::from(self.len)).rev() {
            if let Ok(place) = inputs.binary_search(&self.support[own]) {
                table = exchange(table, own, place);
            }
        }
        table
    }

    /// The function without the inputs that it does not depend on.
    fn without_unused_inputs(mut self) -> Function {
        for place in (0..usize::from(self.len)).rev() {
            let unused = (self.table >> (1 << place) ^ self.table) & !INPUTS[place] == 0;
            if unused {
                let last = usize::from(self.len) - 1;
                for next in place..last {
                    self.table = exchange(self.table, next, next + 1);
                    self.support[next] = self.support[next + 1];
                }
                self.support[last] = 0;
                self.len -= 1;
            }
        }
        self
    }
}

/// The support of two functions together, in ascending order, and its size; none if it is too large.
fn union(a: &Function, b: &Function) -> Option<([u32; MAX_INPUTS], usize)> {
    let (mut left, mut right) = (&a.support[..usize::from(a.len)], &b.support[..usize::from(b.len)]);
    let mut support = [0; MAX_INPUTS];
    let mut len = 0;
    while let Some(&next) = left.first().into_iter().chain(right.first()).min() {
        *support.get_mut(len)? = next;
        len += 1;
        left = left.strip_prefix(&[next]).unwrap_or(left);
        right = right.strip_prefix(&[next]).unwrap_or(right);
    }
    Some((support, len))
}

/// The table with two inputs exchanged; `low <= high`.
fn exchange(table: u64, low: usize, high: usize) -> u64 {
    let shift = (1 << high) - (1 << low);
    let moved = (table >> shift ^ table) & INPUTS[low] & !INPUTS[high];
    table ^ moved ^ moved << shift
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The value for inputs whose bits are in a word.
    fn eval(function: Function, inputs: u64) -> bool {
        let bit = |(place, &input): (usize, &u32)| (inputs >> input & 1) << place;
        let index: u64 = function.support[..usize::from(function.len)].iter().enumerate().map(bit).sum();
        function.table >> index & 1 == 1
    }

    /// Folds a list of operations on the inputs 1 to 8, inverted or not, into a function; returns it with its value for
    /// some inputs, computed bit by bit.
    fn build(steps: &[(bool, bool, u32)], inputs: u64) -> Option<(Function, bool)> {
        let mut function = (Function::input(1), false);
        let mut value = inputs >> 1 & 1 == 1;
        for &(and, inverted, input) in steps {
            let bit = (inputs >> input & 1 == 1) != inverted;
            let (operation, expected) =
                if and { (Operation::And, value & bit) } else { (Operation::Xor, value ^ bit) };
            function = Function::combine(operation, function, (Function::input(input), inverted))?;
            value = expected;
        }
        Some((function.0, value ^ function.1))
    }

    fn steps() -> impl Strategy<Value = Vec<(bool, bool, u32)>> {
        prop::collection::vec((any::<bool>(), any::<bool>(), 1u32..9), 0..10)
    }

    proptest! {
        #[test]
        fn functions_have_the_values_of_their_operations(steps in steps(), inputs in 0u64..512) {
            if let Some((function, value)) = build(&steps, inputs) {
                prop_assert_eq!(eval(function, inputs), value);
                prop_assert!(!eval(function, 0));
            }
        }

        #[test]
        fn a_function_depends_on_its_whole_support(steps in steps()) {
            if let Some((function, _)) = build(&steps, 0) {
                for &input in &function.support[..usize::from(function.len)] {
                    let differs = |inputs: u64| eval(function, inputs) != eval(function, inputs ^ 1 << input);
                    prop_assert!((0..512).any(differs), "input {} of {:?}", input, function);
                }
            }
        }
    }

    #[test]
    fn different_structures_of_the_same_function_are_merged() {
        let mut xag = ReducedXag::new(9);
        let [a, b, c] = [4, 8, 2].map(Literal::input);
        let mut carry = |a, b, c| {
            let both = xag.gate(Gate::AND, a, b);
            let differ = xag.gate(Gate::XOR, a, b);
            let one = xag.gate(Gate::AND, c, differ);
            xag.gate(Gate::OR, both, one)
        };
        assert_eq!(carry(a, b, c), carry(c, a, b));
        let sum = xag.gate(Gate::XNOR, a, b);
        assert_eq!(xag.gate(Gate::XNOR, sum, b), a);
        let both = xag.gate(Gate::AND, a, b);
        assert_eq!(xag.gate(Gate::NOT_A_OR_B, both, a), Literal::TRUE);
    }

    #[test]
    fn the_support_has_at_most_six_inputs() {
        let xor = |n| {
            (2..=n).try_fold((Function::input(1), false), |sum, input| {
                Function::combine(Operation::Xor, sum, (Function::input(input), false))
            })
        };
        assert!(xor(6).is_some() && xor(7).is_none());
    }
}
