//! Literals: references to a node of a logic network, possibly through an inverter.
//!
//! The encoding is that of AIGER and of most AIG packages: node 0 is the constant 0, the inputs follow from 1, the
//! gates come after them. The simplifier, the XAG, the straight-line programs and AIGER files share it.

use crate::gate::Unary;

/// A node, possibly inverted: `node << 1 | inverted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Literal(pub u32);

impl Literal {
    pub const FALSE: Literal = Literal(0);
    pub const TRUE: Literal = Literal(1);

    /// The literal of a node.
    pub fn new(node: usize, inverted: bool) -> Literal {
        Literal((node as u32) << 1 | u32::from(inverted))
    }

    /// The literal of an input.
    pub fn input(input: usize) -> Literal {
        Literal::new(input + 1, false)
    }

    /// The literal of a signal of a [`crate::Circuit`], which numbers its signals without the constant. Signals are
    /// below 2^30, see [`crate::circuit::MAX_SIGNALS`].
    pub fn from_signal(signal: u32) -> Literal {
        Literal((signal + 1) << 1)
    }

    /// The signal of a [`crate::Circuit`] that a literal refers to. The literal is not a constant.
    pub fn signal(self) -> u32 {
        (self.0 >> 1) - 1
    }

    /// The index of the node.
    pub fn node(self) -> usize {
        (self.0 >> 1) as usize
    }

    pub fn is_inverted(self) -> bool {
        self.0 & 1 == 1
    }

    pub fn is_constant(self) -> bool {
        self.0 <= 1
    }

    pub fn not(self) -> Literal {
        Literal(self.0 ^ 1)
    }

    /// The literal, inverted if `inverted`.
    pub fn invert_if(self, inverted: bool) -> Literal {
        Literal(self.0 ^ u32::from(inverted))
    }

    pub fn apply(self, function: Unary) -> Literal {
        match function {
            Unary::False => Literal::FALSE,
            Unary::Wire => self,
            Unary::Not => self.not(),
            Unary::True => Literal::TRUE,
        }
    }

    /// All ones if the literal is inverted, else 0: XORed with a word of the node, it gives a word of the literal.
    pub fn mask(self) -> u64 {
        u64::from(self.0 & 1).wrapping_neg()
    }
}
