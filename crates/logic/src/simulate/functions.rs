//! Functions of few inputs, by their truth tables: to see that two values are the same although they were
//! computed in different ways.
//!
//! A function has up to six inputs, in ascending order, and a table of 64 bits: bit i is its value for the
//! inputs whose bits make up i. With fewer inputs the table repeats itself. A function is kept without the
//! inputs it does not depend on, and so that it is 0 where all inputs are 0; equal or opposite values then
//! have equal functions.

use super::straight::Operation;
use crate::truth::SIX_INPUTS as INPUTS;

/// The most inputs of a function.
const MOST: usize = 6;

/// A function of up to six inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Function {
    /// The inputs, in ascending order; the rest is 0.
    support: [u32; MOST],
    len: u8,
    table: u64,
}

impl Function {
    /// An input.
    pub fn input(input: u32) -> Function {
        let mut support = [0; MOST];
        support[0] = input;
        Function { support, len: 1, table: INPUTS[0] }
    }

    /// The input, if the function is no more than that.
    pub fn as_input(self) -> Option<u32> {
        (self.len == 1).then_some(self.support[0])
    }

    /// Whether the function is constant: always 0.
    pub fn is_constant(self) -> bool {
        self.len == 0
    }

    /// The function of an operation on two functions, of which some may be inverted, if it has few enough
    /// inputs, and whether it is inverted.
    pub fn combine(
        operation: Operation,
        a: Function,
        b: Function,
        [not_a, not_b]: [bool; 2],
    ) -> Option<(Function, bool)> {
        let (support, len) = union(&a, &b)?;
        let table = |f: Function, not: bool| f.on(&support[..len]) ^ if not { u64::MAX } else { 0 };
        let (a, b) = (table(a, not_a), table(b, not_b));
        let table = match operation {
            Operation::And => a & b,
            Operation::AndNot => !a & b,
            Operation::Or => a | b,
            Operation::Xor => a ^ b,
        };
        let inverted = table & 1 == 1;
        let table = if inverted { !table } else { table };
        Some((Function { support, len: len as u8, table }.without_idle_inputs(), inverted))
    }

    /// The table over more inputs, which contain those of the function.
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

    fn without_idle_inputs(mut self) -> Function {
        for place in (0..usize::from(self.len)).rev() {
            let idle = (self.table >> (1 << place) ^ self.table) & !INPUTS[place] == 0;
            if idle {
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

/// The inputs of two functions in ascending order, and their number, if there are few enough.
fn union(a: &Function, b: &Function) -> Option<([u32; MOST], usize)> {
    let (mut left, mut right) = (&a.support[..usize::from(a.len)], &b.support[..usize::from(b.len)]);
    let mut support = [0; MOST];
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

    /// A function from a list of operations on the inputs 0 to 7 and what is there, inverted or not, with the
    /// naive value for some inputs.
    fn build(steps: &[(u8, u32)], inputs: u64) -> Option<(Function, bool)> {
        let (mut function, mut inverted) = (Function::input(0), false);
        let mut value = inputs & 1 == 1;
        for &(operation, input) in steps {
            let bit = inputs >> input & 1 == 1;
            let (operation, expected) = match operation {
                0 => (Operation::And, value & bit),
                1 => (Operation::AndNot, !value & bit),
                2 => (Operation::Or, value | bit),
                _ => (Operation::Xor, value ^ bit),
            };
            (function, inverted) =
                Function::combine(operation, function, Function::input(input), [inverted, false])?;
            value = expected;
        }
        Some((function, value ^ inverted))
    }

    proptest! {
        #[test]
        fn functions_have_the_values_of_their_operations(
            steps in prop::collection::vec((0u8..4, 0u32..8), 0..10),
            inputs in 0u64..256,
        ) {
            if let Some((function, value)) = build(&steps, inputs) {
                prop_assert_eq!(eval(function, inputs), value);
                prop_assert!(!eval(function, 0));
            }
        }

        #[test]
        fn a_function_depends_on_all_its_inputs(steps in prop::collection::vec((0u8..4, 0u32..8), 0..10)) {
            if let Some((function, _)) = build(&steps, 0) {
                for &input in &function.support[..usize::from(function.len)] {
                    let differs = |inputs: u64| eval(function, inputs) != eval(function, inputs ^ 1 << input);
                    prop_assert!((0..256).any(differs), "input {} of {:?}", input, function);
                }
            }
        }
    }

    #[test]
    fn different_ways_to_the_same_value_are_one_function() {
        let [a, b, c] = [4, 9, 2].map(Function::input);
        let combine = |operation, a, b| Function::combine(operation, a, b, [false; 2]).unwrap().0;
        let carry = |a, b, c| {
            let both = combine(Operation::And, a, b);
            combine(Operation::Or, both, combine(Operation::And, c, combine(Operation::Xor, a, b)))
        };
        assert_eq!(carry(a, b, c), carry(c, a, b));
        assert_eq!(combine(Operation::Xor, combine(Operation::Xor, a, b), b), a);
        assert!(combine(Operation::AndNot, a, combine(Operation::And, a, b)).is_constant());
    }

    #[test]
    fn more_than_six_inputs_are_too_many() {
        let xor = |n| {
            (1..n).try_fold(Function::input(0), |sum, input| {
                Function::combine(Operation::Xor, sum, Function::input(input), [false; 2]).map(|(sum, _)| sum)
            })
        };
        assert!(xor(6).is_some() && xor(7).is_none());
    }
}
