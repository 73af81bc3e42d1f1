//! The head of a classifier as gates: group sums by carry-save adders, and the arg-max as a tournament.
//!
//! A group of n outputs becomes a binary number by about n full adders of five gates. Equal outputs of a group are added
//! once, with twice the weight; constant outputs, and an output with its inverse, are added to the offset.

use super::{Classifier, Head};
use crate::circuit::Circuit;
use crate::literal::Literal;
use crate::xag::Xag;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// The order in which the outputs of a group are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// One after the other: few values are live at a time, for processors.
    Serial,
    /// A tree of adders with the least depth, for hardware.
    Tree,
}

/// A classifier from the bits of the encoder to the scores and the class.
pub(crate) struct WholeCircuit {
    /// The gates, without outputs.
    pub xag: Xag,
    /// The score of every class, the lowest bit first.
    pub scores: Vec<Vec<Literal>>,
    /// The index of the class, the lowest bit first.
    pub label: Vec<Literal>,
}

impl WholeCircuit {
    pub fn new(classifier: &Classifier, order: Order) -> WholeCircuit {
        let mut xag = Xag::from_circuit(classifier.circuit());
        let outputs = xag.outputs().to_vec();
        let scores = group_sums(&mut xag, classifier.head(), &outputs, order);
        let label = arg_max(&mut xag, &scores, label_bits(classifier.head().classes().len()));
        WholeCircuit { xag, scores, label }
    }

    /// The circuit whose outputs are the bits of the class.
    pub fn label_circuit(mut self, ports: &Circuit) -> Circuit {
        self.xag.set_outputs(self.label);
        let xag = self.xag.without_dead_gates();
        let names = (0..xag.outputs().len()).map(|bit| format!("label_{bit}")).collect();
        // The names fit: those of the inputs are unchanged, and there is one for each bit of the label.
        xag.to_named_circuit(ports.input_names().to_vec(), names).unwrap_or_else(|_| xag.to_circuit(ports))
    }
}

/// The number of bits of the index of a class.
pub(crate) fn label_bits(classes: usize) -> usize {
    (classes.max(2) - 1).ilog2() as usize + 1
}

/// The scores of all classes from the outputs of the circuit.
fn group_sums(xag: &mut Xag, head: &Head, mut outputs: &[Literal], order: Order) -> Vec<Vec<Literal>> {
    let mut sum = |class: &super::Class| {
        let group = outputs.split_off(..class.outputs).unwrap_or_default();
        Columns::new(group, class.offset).sum(xag, order)
    };
    head.classes().iter().map(&mut sum).collect()
}

/// The bits to be added, by weight: column i has the weight 2^i.
struct Columns(Vec<VecDeque<Literal>>);

impl Columns {
    fn new(group: &[Literal], offset: u32) -> Columns {
        let mut counts: FxHashMap<usize, [u32; 2]> = FxHashMap::default();
        for literal in group {
            counts.entry(literal.node()).or_default()[usize::from(literal.is_inverted())] += 1;
        }
        let mut offset = u64::from(offset);
        let mut columns = Columns(Vec::new());
        for literal in group {
            // The first occurrence of a node stands for all of them.
            let Some([plain, inverted]) = counts.remove(&literal.node()) else { continue };
            if literal.is_constant() {
                offset += u64::from(inverted);
                continue;
            }
            offset += u64::from(plain.min(inverted));
            let literal = Literal::new(literal.node(), inverted > plain);
            columns.push_number(literal, u64::from(plain.abs_diff(inverted)));
        }
        columns.push_number(Literal::TRUE, offset);
        columns
    }

    /// Adds a literal `count` times.
    fn push_number(&mut self, literal: Literal, count: u64) {
        for column in (0..64).filter(|bit| count >> bit & 1 == 1) {
            self.push(column, literal);
        }
    }

    fn push(&mut self, column: usize, literal: Literal) {
        if self.0.len() <= column {
            self.0.resize(column + 1, VecDeque::new());
        }
        self.0[column].push_back(literal);
    }

    /// The sum as a binary number, the lowest bit first, without leading zeros.
    fn sum(mut self, xag: &mut Xag, order: Order) -> Vec<Literal> {
        let mut bits = Vec::new();
        while bits.len() < self.0.len() {
            let column = bits.len();
            while let [a, b, ..] = *self.0[column].make_contiguous() {
                self.0[column].drain(..2);
                let c = self.0[column].pop_front().unwrap_or(Literal::FALSE);
                let [sum, carry] = full_adder(xag, a, b, c);
                match order {
                    Order::Serial => self.0[column].push_front(sum),
                    Order::Tree => self.0[column].push_back(sum),
                }
                if carry != Literal::FALSE {
                    self.push(column + 1, carry);
                }
            }
            bits.push(self.0[column].pop_front().unwrap_or(Literal::FALSE));
        }
        while bits.last() == Some(&Literal::FALSE) {
            bits.pop();
        }
        bits
    }
}

/// The sum and the carry of three bits, in five gates.
fn full_adder(xag: &mut Xag, a: Literal, b: Literal, c: Literal) -> [Literal; 2] {
    let (x, y) = (xag.xor(a, b), xag.xor(b, c));
    let both = xag.and(x, y);
    [xag.xor(x, c), xag.xor(both, b)]
}

/// A class in the tournament: its score, and the low bits of its index.
struct Candidate {
    score: Vec<Literal>,
    index: Vec<Literal>,
}

/// The index of the highest score, the lowest index of several, in `bits` bits.
fn arg_max(xag: &mut Xag, scores: &[Vec<Literal>], bits: usize) -> Vec<Literal> {
    let candidate = |score: &Vec<Literal>| Candidate { score: score.clone(), index: Vec::new() };
    let mut round: Vec<Candidate> = scores.iter().map(candidate).collect();
    for bit in 0..bits {
        let mut next = Vec::with_capacity(round.len().div_ceil(2));
        let mut pairs = round.into_iter();
        while let Some(left) = pairs.next() {
            next.push(match pairs.next() {
                Some(right) => better(xag, &left, &right, bit),
                None => Candidate { index: padded(&left.index, bit + 1), ..left },
            });
        }
        round = next;
    }
    round.pop().map_or_else(|| vec![Literal::FALSE; bits], |winner| winner.index)
}

/// The better one of two candidates, whose indices have `bits` bits: the right one if its score is higher.
fn better(xag: &mut Xag, left: &Candidate, right: &Candidate, bits: usize) -> Candidate {
    let width = left.score.len().max(right.score.len());
    let (l, r) = (padded(&left.score, width), padded(&right.score, width));
    let mut greater = Literal::FALSE;
    for (&l, &r) in l.iter().zip(&r) {
        let differ = xag.xor(l, r);
        greater = select(xag, differ, greater, r);
    }
    let mut choose = |left: &[Literal], right: &[Literal]| -> Vec<Literal> {
        left.iter().zip(right).map(|(&left, &right)| select(xag, greater, left, right)).collect()
    };
    let score = choose(&l, &r);
    let mut index = choose(&padded(&left.index, bits), &padded(&right.index, bits));
    index.push(greater);
    Candidate { score, index }
}

/// `yes` if the condition holds, else `no`.
fn select(xag: &mut Xag, condition: Literal, no: Literal, yes: Literal) -> Literal {
    let differ = xag.xor(no, yes);
    let change = xag.and(condition, differ);
    xag.xor(no, change)
}

fn padded(bits: &[Literal], width: usize) -> Vec<Literal> {
    let mut bits = bits.to_vec();
    bits.resize(width.max(bits.len()), Literal::FALSE);
    bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::classifier::Class;
    use proptest::prelude::*;

    fn number(bits: &[Literal], values: &[u64]) -> u32 {
        bits.iter()
            .rev()
            .fold(0, |number, bit| number << 1 | u32::from((values[bit.node()] ^ bit.mask()) & 1 == 1))
    }

    proptest! {
        #[test]
        fn scores_and_label_are_those_of_the_reference(
            classifier in arbitrary::classifier(),
            bits in prop::collection::vec(any::<bool>(), 64),
        ) {
            let bits = &bits[..classifier.circuit().inputs()];
            let expected = classifier.head().scores(&classifier.circuit().eval(bits).unwrap());
            let words: Vec<u64> = bits.iter().map(|&bit| u64::from(bit)).collect();
            for order in [Order::Serial, Order::Tree] {
                let whole = WholeCircuit::new(&classifier, order);
                let mut values = Vec::new();
                whole.xag.eval_words(&words, &mut values);
                let scores: Vec<u32> = whole.scores.iter().map(|bits| number(bits, &values)).collect();
                prop_assert_eq!(&scores, &expected);
                let label = number(&whole.label, &values) as usize;
                prop_assert_eq!(label, crate::classifier::arg_max(&expected));
                let circuit = whole.label_circuit(classifier.circuit());
                let label_bits = circuit.eval(bits).unwrap();
                let again = label_bits.iter().rev().fold(0, |label, &bit| label << 1 | usize::from(bit));
                prop_assert_eq!(again, label);
            }
        }
    }

    #[test]
    fn a_group_of_n_bits_takes_about_five_n_gates_and_a_tree_is_shallow() {
        let class = |name: &str, outputs| Class { name: name.into(), outputs, offset: 0 };
        let head = Head::new(vec![class("a", 1000), class("b", 0)], 1.0).unwrap();
        let circuit = Circuit::new(1000, vec![], (0..1000).collect()).unwrap();
        let depth = |order| {
            let mut xag = Xag::from_circuit(&circuit);
            let outputs = xag.outputs().to_vec();
            let sums = group_sums(&mut xag, &head, &outputs, order);
            assert!(xag.gates() < 5000, "{} gates", xag.gates());
            xag.set_outputs(sums[0].clone());
            xag.to_circuit(&Circuit::new(1000, vec![], vec![]).unwrap()).depth()
        };
        let [serial, tree] = [Order::Serial, Order::Tree].map(depth);
        assert!(tree < 80 && serial > 500, "{tree}, {serial}");
    }

    #[test]
    fn labels_have_enough_bits() {
        assert_eq!([2, 3, 4, 5, 10, 16, 17, 65536].map(label_bits), [1, 2, 2, 3, 4, 4, 5, 16]);
    }
}
