//! A circuit under construction: constants are folded, inverters are free, and equal gates are shared.

use gatework_logic::{Circuit, CircuitError, Gate, Node};
use rustc_hash::FxHashMap;

/// A signal of a circuit, possibly inverted, or a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Bit {
    signal: u32,
    inverted: bool,
}

/// The signal of constants.
const CONSTANT: u32 = u32::MAX;

impl Bit {
    pub const FALSE: Bit = Bit { signal: CONSTANT, inverted: false };
    pub const TRUE: Bit = Bit { signal: CONSTANT, inverted: true };

    /// An input.
    pub fn input(index: usize) -> Bit {
        Bit { signal: index as u32, inverted: false }
    }

    pub fn constant(value: bool) -> Bit {
        if value { Bit::TRUE } else { Bit::FALSE }
    }

    pub fn not(self) -> Bit {
        Bit { inverted: !self.inverted, ..self }
    }

    fn invert_if(self, inverted: bool) -> Bit {
        Bit { inverted: self.inverted != inverted, ..self }
    }
}

/// The gates of a circuit under construction.
#[derive(Clone, Debug)]
pub struct Bits {
    inputs: usize,
    nodes: Vec<Node>,
    shared: FxHashMap<(u8, u32, u32), u32>,
}

impl Bits {
    pub fn new(inputs: usize) -> Bits {
        Bits { inputs, nodes: Vec::new(), shared: FxHashMap::default() }
    }

    /// Number of gates so far.
    pub fn gates(&self) -> usize {
        self.nodes.len()
    }

    fn gate(&mut self, gate: Gate, a: u32, b: u32) -> Bit {
        let next = (self.inputs + self.nodes.len()) as u32;
        let signal = *self.shared.entry((gate.index(), a, b)).or_insert(next);
        if signal == next {
            self.nodes.push(Node::new(gate, a, b));
        }
        Bit { signal, inverted: false }
    }

    pub fn and(&mut self, a: Bit, b: Bit) -> Bit {
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        // A constant is the larger of the two.
        match b {
            Bit::FALSE => return Bit::FALSE,
            Bit::TRUE => return a,
            _ if a == b => return a,
            _ if a == b.not() => return Bit::FALSE,
            _ => {}
        }
        let gate = match (a.inverted, b.inverted) {
            (false, false) => Gate::AND,
            (false, true) => Gate::A_AND_NOT_B,
            (true, false) => Gate::NOT_A_AND_B,
            (true, true) => Gate::NOR,
        };
        self.gate(gate, a.signal, b.signal)
    }

    pub fn or(&mut self, a: Bit, b: Bit) -> Bit {
        self.and(a.not(), b.not()).not()
    }

    pub fn xor(&mut self, a: Bit, b: Bit) -> Bit {
        let (a, b) = if a <= b { (a, b) } else { (b, a) };
        let inverted = a.inverted != b.inverted;
        if b.signal == CONSTANT {
            return a.invert_if(b.inverted);
        }
        if a.signal == b.signal {
            return Bit::constant(inverted);
        }
        self.gate(Gate::XOR, a.signal, b.signal).invert_if(inverted)
    }

    /// Returns `yes` where the condition holds, else `no`.
    pub fn choose(&mut self, condition: Bit, yes: Bit, no: Bit) -> Bit {
        match (yes, no) {
            _ if yes == no => return yes,
            _ if yes == no.not() => return self.xor(condition, no),
            (Bit::TRUE, _) => return self.or(condition, no),
            (_, Bit::TRUE) => return self.or(condition.not(), yes),
            _ => {}
        }
        let (yes, no) = (self.and(condition, yes), self.and(condition.not(), no));
        self.or(yes, no)
    }

    pub fn any(&mut self, bits: impl IntoIterator<Item = Bit>) -> Bit {
        bits.into_iter().fold(Bit::FALSE, |any, bit| self.or(any, bit))
    }

    /// Returns whether bits, the lowest first, are the digits of a number.
    pub fn equals(&mut self, bits: &[Bit], number: usize) -> Bit {
        bits.iter().enumerate().fold(Bit::TRUE, |all, (i, bit)| {
            let equal = bit.invert_if(number >> i & 1 == 0);
            self.and(all, equal)
        })
    }

    /// Returns a number plus or minus one, without the last carry.
    pub fn step(&mut self, bits: &[Bit], up: bool) -> Vec<Bit> {
        let mut carry = Bit::TRUE;
        let mut next = Vec::new();
        for &bit in bits {
            next.push(self.xor(bit, carry));
            carry = self.and(carry, bit.invert_if(!up));
        }
        next
    }

    /// Returns the circuit with these outputs, without the gates that none of them needs.
    pub fn finish(mut self, outputs: &[Bit]) -> Result<Circuit, CircuitError> {
        let mut signals = Vec::new();
        for &output in outputs {
            signals.push(match output {
                Bit::FALSE => self.gate(Gate::FALSE, 0, 0).signal,
                Bit::TRUE => self.gate(Gate::TRUE, 0, 0).signal,
                Bit { signal, inverted: true } => self.gate(Gate::NOT_A, signal, signal).signal,
                Bit { signal, inverted: false } => signal,
            });
        }
        Ok(Circuit::new(self.inputs, self.nodes, signals)?.simplify())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_computes_its_definition() {
        let mut bits = Bits::new(3);
        let [a, b, c] = [0, 1, 2].map(Bit::input);
        let number = [a, b, c];
        let outputs = [
            bits.and(a, b.not()),
            bits.or(a.not(), b),
            bits.xor(a.not(), b),
            bits.choose(a, b, c),
            bits.choose(a, b, b.not()),
            bits.choose(a, Bit::TRUE, b),
            bits.choose(a, b, Bit::TRUE),
            bits.choose(a, b, b),
            bits.any([a, b, c]),
            bits.equals(&number, 5),
            bits.xor(a, a.not()),
            bits.and(a, a.not()),
        ];
        let outputs = [&outputs[..], &bits.step(&number, true), &bits.step(&number, false)].concat();
        let circuit = bits.finish(&outputs).unwrap();
        for n in 0..8usize {
            let [a, b, c] = [0, 1, 2].map(|i| n >> i & 1 == 1);
            let digits = |n: usize| [0, 1, 2].map(|i| n >> i & 1 == 1);
            let chosen = [if a { b } else { c }, a == b, a || b, !a || b, b];
            let simple =
                [&[a && !b, !a || b, a == b], &chosen[..], &[a || b || c, n == 5, true, false]].concat();
            let right = [&simple[..], &digits(n + 1), &digits(n + 7)].concat();
            assert_eq!(circuit.eval(&[a, b, c]).unwrap(), right, "{n}");
        }
    }
}
