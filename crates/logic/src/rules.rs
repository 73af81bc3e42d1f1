//! Rules that are known: automata to compare learned ones with, and to measure with.

use crate::automaton::{Automaton, Boundary};
use crate::circuit::{Circuit, Node};
use crate::gate::Gate;

/// Gates on the nine inputs of one channel.
struct Patch(Vec<Node>);

impl Patch {
    fn gate(&mut self, gate: Gate, a: u32, b: u32) -> u32 {
        self.0.push(Node::new(gate, a, b));
        8 + self.0.len() as u32
    }

    /// The sum and the carry of two bits.
    fn half_adder(&mut self, a: u32, b: u32) -> (u32, u32) {
        (self.gate(Gate::XOR, a, b), self.gate(Gate::AND, a, b))
    }

    /// The sum and the carry of three bits.
    fn full_adder(&mut self, a: u32, b: u32, c: u32) -> (u32, u32) {
        let (ab, carry_ab) = self.half_adder(a, b);
        let (sum, carry_abc) = self.half_adder(ab, c);
        (sum, self.gate(Gate::OR, carry_ab, carry_abc))
    }
}

/// Conway's Life: adders count the eight neighbours; a cell lives with three, or with two if it lived.
///
/// ```
/// use gatework_logic::{Boundary, rules};
///
/// assert_eq!(rules::life(Boundary::Torus).circuit.nodes().len(), 26);
/// ```
pub fn life(boundary: Boundary) -> Automaton {
    let mut patch = Patch(Vec::new());
    let (above, p) = patch.full_adder(0, 2, 1);
    let (beside, q) = patch.half_adder(3, 5);
    let (below, r) = patch.full_adder(6, 8, 7);
    let (ones, s) = patch.full_adder(above, beside, below);
    // The count is ones + 2 * (p + q + r + s): 2 or 3 if exactly one of the carries is 1.
    let (pq, pq_both) = patch.half_adder(p, q);
    let (rs, rs_both) = patch.half_adder(r, s);
    let odd = patch.gate(Gate::XOR, pq, rs);
    let many = patch.gate(Gate::OR, pq_both, rs_both);
    let two_or_three = patch.gate(Gate::A_AND_NOT_B, odd, many);
    let three_or_alive = patch.gate(Gate::OR, ones, 4);
    patch.gate(Gate::AND, two_or_three, three_or_alive);
    let output = patch.0.len() as u32 + 8;
    // Every gate reads what was there before it, and the patch has nine inputs: this is an automaton.
    let circuit = Circuit::new(9, patch.0, vec![output]).unwrap_or_else(|error| unreachable!("{error}"));
    Automaton { channels: 1, boundary, circuit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn life_is_life() {
        let life = life(Boundary::Torus);
        life.check().unwrap();
        for board in 0u32..512 {
            let bits: Vec<bool> = (0..9).map(|k| board >> k & 1 == 1).collect();
            let count = (board & !(1 << 4)).count_ones();
            let expected = count == 3 || count == 2 && bits[4];
            assert_eq!(life.circuit.eval(&bits).unwrap(), [expected], "board {board:09b}");
        }
    }
}
