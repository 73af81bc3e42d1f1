//! The sixteen two-input gates.
//!
//! The index of a gate is its truth table: bit 0 is f(1,1), bit 1 is f(1,0), bit 2 is f(0,1) and bit 3 is f(0,0). This is
//! the order of the differentiable-logic literature, so an argmax over sixteen logits is a gate index. Cofactors and the
//! absorption of inverters are selections or permutations of these four bits.

use std::fmt;

/// A two-input gate.
///
/// ```
/// use gatework_logic::Gate;
///
/// assert_eq!(Gate::from_index(6), Some(Gate::XOR));
/// assert!(Gate::XOR.eval(true, false));
/// assert_eq!(Gate::A_AND_NOT_B.name(), "A&!B");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Gate(u8);

/// A function of one bit, such as the cofactor of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// Always 0.
    False,
    /// The operand itself.
    Wire,
    /// The inverted operand.
    Not,
    /// Always 1.
    True,
}

impl Unary {
    /// Returns the function with these two values.
    pub const fn from_values(at_0: bool, at_1: bool) -> Unary {
        match (at_0, at_1) {
            (false, false) => Unary::False,
            (false, true) => Unary::Wire,
            (true, false) => Unary::Not,
            (true, true) => Unary::True,
        }
    }

    /// Evaluates the function.
    pub const fn eval(self, x: bool) -> bool {
        match self {
            Unary::False => false,
            Unary::Wire => x,
            Unary::Not => !x,
            Unary::True => true,
        }
    }
}

const NAMES: [&str; 16] = [
    "FALSE", "AND", "A&!B", "A", "!A&B", "B", "XOR", "OR", "NOR", "XNOR", "!B", "A|!B", "!A", "!A|B", "NAND",
    "TRUE",
];

impl Gate {
    /// Always 0; the operands are ignored.
    pub const FALSE: Gate = Gate(0);
    /// `a & b`.
    pub const AND: Gate = Gate(1);
    /// `a & !b`.
    pub const A_AND_NOT_B: Gate = Gate(2);
    /// A wire from the first operand.
    pub const A: Gate = Gate(3);
    /// `!a & b`.
    pub const NOT_A_AND_B: Gate = Gate(4);
    /// A wire from the second operand.
    pub const B: Gate = Gate(5);
    /// `a ^ b`.
    pub const XOR: Gate = Gate(6);
    /// `a | b`.
    pub const OR: Gate = Gate(7);
    /// `!(a | b)`.
    pub const NOR: Gate = Gate(8);
    /// `!(a ^ b)`.
    pub const XNOR: Gate = Gate(9);
    /// The inverted second operand.
    pub const NOT_B: Gate = Gate(10);
    /// `a | !b`.
    pub const A_OR_NOT_B: Gate = Gate(11);
    /// The inverted first operand.
    pub const NOT_A: Gate = Gate(12);
    /// `!a | b`.
    pub const NOT_A_OR_B: Gate = Gate(13);
    /// `!(a & b)`.
    pub const NAND: Gate = Gate(14);
    /// Always 1; the operands are ignored.
    pub const TRUE: Gate = Gate(15);

    /// All gates, in the order of their indices.
    pub const ALL: [Gate; 16] = [
        Gate::FALSE,
        Gate::AND,
        Gate::A_AND_NOT_B,
        Gate::A,
        Gate::NOT_A_AND_B,
        Gate::B,
        Gate::XOR,
        Gate::OR,
        Gate::NOR,
        Gate::XNOR,
        Gate::NOT_B,
        Gate::A_OR_NOT_B,
        Gate::NOT_A,
        Gate::NOT_A_OR_B,
        Gate::NAND,
        Gate::TRUE,
    ];

    /// Returns the gate with this index, if it is below 16.
    pub const fn from_index(index: u8) -> Option<Gate> {
        if index < 16 { Some(Gate(index)) } else { None }
    }

    /// Returns the index of the gate (its truth table), below 16.
    pub const fn index(self) -> u8 {
        self.0
    }

    /// Returns the formula of the gate, such as `A&!B`.
    pub const fn name(self) -> &'static str {
        NAMES[(self.0 & 15) as usize]
    }

    /// Evaluates the gate for two bits.
    pub const fn eval(self, a: bool, b: bool) -> bool {
        self.0 >> (3 - 2 * a as u8 - b as u8) & 1 == 1
    }

    /// Evaluates the gate for 64 pairs of bits.
    pub const fn eval_word(self, a: u64, b: u64) -> u64 {
        // The sum of the minterms whose truth-table bit is set.
        minterm(self.0, 0) & a & b
            | minterm(self.0, 1) & a & !b
            | minterm(self.0, 2) & !a & b
            | minterm(self.0, 3) & !a & !b
    }

    /// Exchanges the operands: `g.swap().eval(b, a) == g.eval(a, b)`.
    #[must_use]
    pub const fn swap(self) -> Gate {
        Gate(self.0 & 0b1001 | (self.0 & 0b0010) << 1 | (self.0 & 0b0100) >> 1)
    }

    /// Inverts the output.
    #[must_use]
    pub const fn not(self) -> Gate {
        Gate(self.0 ^ 15)
    }

    /// Absorbs an inverter at the first operand: `g.not_a().eval(!a, b) == g.eval(a, b)`.
    #[must_use]
    pub const fn not_a(self) -> Gate {
        Gate((self.0 & 0b0011) << 2 | self.0 >> 2)
    }

    /// Absorbs an inverter at the second operand: `g.not_b().eval(a, !b) == g.eval(a, b)`.
    #[must_use]
    pub const fn not_b(self) -> Gate {
        Gate((self.0 & 0b0101) << 1 | (self.0 & 0b1010) >> 1)
    }

    /// Returns the cofactor for a constant first operand, a function of the second.
    pub const fn with_a(self, a: bool) -> Unary {
        Unary::from_values(self.eval(a, false), self.eval(a, true))
    }

    /// Returns the cofactor for a constant second operand, a function of the first.
    pub const fn with_b(self, b: bool) -> Unary {
        Unary::from_values(self.eval(false, b), self.eval(true, b))
    }

    /// Returns the function of the gate if both operands are the same signal.
    pub const fn same_operand(self) -> Unary {
        Unary::from_values(self.eval(false, false), self.eval(true, true))
    }

    /// Returns whether the output depends on the first operand.
    pub const fn depends_on_a(self) -> bool {
        self.0 != self.not_a().0
    }

    /// Returns whether the output depends on the second operand.
    pub const fn depends_on_b(self) -> bool {
        self.0 != self.not_b().0
    }

    /// Returns whether the gate is a wire, [`Gate::A`] or [`Gate::B`]. All other gates are called active.
    pub const fn is_wire(self) -> bool {
        matches!(self, Gate::A | Gate::B)
    }

    /// Returns whether the gate is [`Gate::FALSE`] or [`Gate::TRUE`].
    pub const fn is_constant(self) -> bool {
        matches!(self, Gate::FALSE | Gate::TRUE)
    }
}

/// Returns all ones if bit `i` of a truth table is set, else 0.
const fn minterm(table: u8, i: u8) -> u64 {
    (((table >> i) & 1) as u64).wrapping_neg()
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BITS: [bool; 2] = [false, true];

    /// Asserts a claim for every gate and every pair of operands.
    fn for_all(claim: impl Fn(Gate, bool, bool) -> bool) {
        for gate in Gate::ALL {
            for a in BITS {
                for b in BITS {
                    assert!(claim(gate, a, b), "{gate} at ({a}, {b})");
                }
            }
        }
    }

    #[test]
    fn every_gate_computes_its_formula() {
        let formulas: [fn(bool, bool) -> bool; 16] = [
            |_, _| false,
            |a, b| a && b,
            |a, b| a && !b,
            |a, _| a,
            |a, b| !a && b,
            |_, b| b,
            |a, b| a != b,
            |a, b| a || b,
            |a, b| !(a || b),
            |a, b| a == b,
            |_, b| !b,
            |a, b| a || !b,
            |a, _| !a,
            |a, b| !a || b,
            |a, b| !(a && b),
            |_, _| true,
        ];
        for_all(|gate, a, b| gate.eval(a, b) == formulas[usize::from(gate.index())](a, b));
    }

    #[test]
    fn indices_and_gates_correspond() {
        for (i, gate) in Gate::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(gate.index()), i);
            assert_eq!(Gate::from_index(gate.index()), Some(gate));
        }
        assert!((16..=255).all(|i| Gate::from_index(i).is_none()));
    }

    #[test]
    fn names_are_distinct() {
        for (i, gate) in Gate::ALL.into_iter().enumerate() {
            assert!(Gate::ALL[..i].iter().all(|other| other.name() != gate.name()));
        }
    }

    #[test]
    fn eval_word_matches_64_single_evaluations() {
        let (a, b) = (0xf0f0_1234_5678_9abc, 0xcccc_dead_beef_0ff1);
        for gate in Gate::ALL {
            let word = gate.eval_word(a, b);
            for i in 0..64 {
                assert_eq!(
                    word >> i & 1 == 1,
                    gate.eval(a >> i & 1 == 1, b >> i & 1 == 1),
                    "{gate}, bit {i}"
                );
            }
        }
    }

    #[test]
    fn swap_exchanges_the_operands() {
        for_all(|gate, a, b| gate.swap().eval(b, a) == gate.eval(a, b));
    }

    #[test]
    fn inverters_are_absorbed() {
        for_all(|gate, a, b| gate.not().eval(a, b) != gate.eval(a, b));
        for_all(|gate, a, b| gate.not_a().eval(!a, b) == gate.eval(a, b));
        for_all(|gate, a, b| gate.not_b().eval(a, !b) == gate.eval(a, b));
    }

    #[test]
    fn cofactors_agree_with_evaluation() {
        for_all(|gate, a, b| gate.with_a(a).eval(b) == gate.eval(a, b));
        for_all(|gate, a, b| gate.with_b(b).eval(a) == gate.eval(a, b));
        for_all(|gate, a, _| gate.same_operand().eval(a) == gate.eval(a, a));
    }

    #[test]
    fn dependence_agrees_with_the_truth_table() {
        for gate in Gate::ALL {
            let on_a = BITS.into_iter().any(|b| gate.eval(false, b) != gate.eval(true, b));
            let on_b = BITS.into_iter().any(|a| gate.eval(a, false) != gate.eval(a, true));
            assert_eq!((gate.depends_on_a(), gate.depends_on_b()), (on_a, on_b), "{gate}");
            assert_eq!(gate.is_constant(), !on_a && !on_b, "{gate}");
        }
        assert_eq!(Gate::ALL.into_iter().filter(|g| g.is_wire()).collect::<Vec<_>>(), [Gate::A, Gate::B]);
    }
}
