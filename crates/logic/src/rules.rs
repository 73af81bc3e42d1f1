//! Well-known automata, for examples, tests and benchmarks.

use crate::automaton::{Automaton, Boundary};
use crate::circuit::{Circuit, Node};
use crate::gate::Gate;

/// The gates of a rule with one channel.
struct Rule(Vec<Node>);

impl Rule {
    fn gate(&mut self, gate: Gate, a: u32, b: u32) -> u32 {
        self.0.push(Node::new(gate, a, b));
        8 + self.0.len() as u32
    }

    /// Adds a half adder; returns the sum and the carry.
    fn half_adder(&mut self, a: u32, b: u32) -> (u32, u32) {
        (self.gate(Gate::XOR, a, b), self.gate(Gate::AND, a, b))
    }

    /// Adds a full adder; returns the sum and the carry.
    fn full_adder(&mut self, a: u32, b: u32, c: u32) -> (u32, u32) {
        let (ab, carry_ab) = self.half_adder(a, b);
        let (sum, carry_abc) = self.half_adder(ab, c);
        (sum, self.gate(Gate::OR, carry_ab, carry_abc))
    }
}

/// Returns Conway's Life, with adders that count the neighbours. A cell is alive with three live neighbours, or with
/// two if it was alive.
///
/// ```
/// use gatework_logic::{Boundary, rules};
///
/// assert_eq!(rules::life(Boundary::Torus).circuit.nodes().len(), 26);
/// ```
pub fn life(boundary: Boundary) -> Automaton {
    let mut rule = Rule(Vec::new());
    let (above, p) = rule.full_adder(0, 2, 1);
    let (beside, q) = rule.half_adder(3, 5);
    let (below, r) = rule.full_adder(6, 8, 7);
    let (ones, s) = rule.full_adder(above, beside, below);
    // The count is ones + 2 * (p + q + r + s): 2 or 3 if exactly one of the carries is 1.
    let (pq, pq_both) = rule.half_adder(p, q);
    let (rs, rs_both) = rule.half_adder(r, s);
    let odd = rule.gate(Gate::XOR, pq, rs);
    let many = rule.gate(Gate::OR, pq_both, rs_both);
    let two_or_three = rule.gate(Gate::A_AND_NOT_B, odd, many);
    let three_or_alive = rule.gate(Gate::OR, ones, 4);
    rule.gate(Gate::AND, two_or_three, three_or_alive);
    let output = rule.0.len() as u32 + 8;
    // Every gate reads earlier signals, so the circuit is valid.
    let circuit = Circuit::new(9, rule.0, vec![output]).unwrap_or_else(|error| unreachable!("{error}"));
    Automaton { channels: 1, boundary, circuit }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn life_computes_its_definition() {
        let life = life(Boundary::Torus);
        life.check().unwrap();
        for neighbourhood in 0u32..512 {
            let bits: Vec<bool> = (0..9).map(|k| neighbourhood >> k & 1 == 1).collect();
            let count = (neighbourhood & !(1 << 4)).count_ones();
            let expected = count == 3 || count == 2 && bits[4];
            assert_eq!(life.circuit.eval(&bits).unwrap(), [expected], "neighbourhood {neighbourhood:09b}");
        }
    }
}
