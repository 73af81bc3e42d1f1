//! Circuits, automata and grids for the tests: random ones of every shape, and Life.

use crate::automaton::{Automaton, Boundary};
use crate::circuit::{Circuit, Node};
use crate::gate::Gate;
use crate::grid::Grid;
use proptest::prelude::*;
use std::ops::RangeInclusive;

/// What a random gate is made from: an index and two numbers that choose its operands.
type Draft = (u8, u32, u32);

/// Turns drafts into gates. A `deep` circuit reads mostly the last few signals, so it has long chains.
fn nodes(inputs: usize, drafts: &[Draft], deep: bool) -> Vec<Node> {
    let build = |(i, &(index, a, b)): (usize, &Draft)| {
        let end = (inputs + i) as u32;
        let gate = Gate::ALL[usize::from(index % 16)];
        match (end, deep) {
            (0, _) => Node::new(if index % 2 == 0 { Gate::FALSE } else { Gate::TRUE }, a, b),
            (_, true) => Node::new(gate, end - 1 - a % end.min(2), end - 1 - b % end.min(7)),
            (_, false) => Node::new(gate, a % end, b % end),
        }
    };
    drafts.iter().enumerate().map(build).collect()
}

/// Gates of all kinds in equal numbers, mostly wires as after training, or without constants.
fn gate_index() -> BoxedStrategy<u8> {
    prop_oneof![0u8..16, prop_oneof![Just(3u8), Just(5), 0u8..16], 1u8..15].boxed()
}

fn drafts(most: usize) -> impl Strategy<Value = Vec<Draft>> {
    prop::collection::vec((gate_index(), any::<u32>(), any::<u32>()), 0..=most)
}

/// Circuits with up to `gates` gates; some have no gates, no inputs or no outputs.
pub(crate) fn circuit(inputs: RangeInclusive<usize>, gates: usize) -> impl Strategy<Value = Circuit> {
    let outputs = prop::collection::vec(any::<u32>(), 0..10);
    (inputs, drafts(gates), outputs, any::<bool>()).prop_map(|(inputs, drafts, outputs, deep)| {
        let nodes = nodes(inputs, &drafts, deep);
        let signals = (inputs + nodes.len()) as u32;
        let outputs = outputs.into_iter().filter(|_| signals > 0).map(|output| output % signals).collect();
        Circuit::new(inputs, nodes, outputs).unwrap()
    })
}

pub(crate) fn boundary() -> impl Strategy<Value = Boundary> {
    prop_oneof![Just(Boundary::Torus), Just(Boundary::Zeros)]
}

/// Automata of up to four channels.
pub(crate) fn automaton() -> impl Strategy<Value = Automaton> {
    let outputs = prop::collection::vec(any::<u32>(), 1..=4);
    (outputs, drafts(80), any::<bool>(), boundary()).prop_map(|(outputs, drafts, deep, boundary)| {
        let channels = outputs.len();
        let nodes = nodes(9 * channels, &drafts, deep);
        let signals = (9 * channels + nodes.len()) as u32;
        // The last gates are where the long paths end.
        let end = |output: u32| {
            if output.is_multiple_of(3) { output % signals } else { signals - 1 - output % signals.min(8) }
        };
        let circuit = Circuit::new(9 * channels, nodes, outputs.into_iter().map(end).collect()).unwrap();
        Automaton::new(channels, boundary, circuit).unwrap()
    })
}

/// Height and width of boards: small ones, and strips around the width of a word.
fn size() -> impl Strategy<Value = (usize, usize)> {
    let strip = (1usize..4, prop_oneof![60usize..70, 120usize..135, 190usize..194]);
    prop_oneof![
        (1usize..5, 1usize..5),
        (1usize..20, 1usize..20),
        strip.clone(),
        strip.prop_map(|(h, w)| (w, h))
    ]
}

/// An automaton, a grid for it, and masks for a few steps.
pub(crate) fn situation() -> impl Strategy<Value = (Automaton, Grid, Vec<Vec<u64>>)> {
    (automaton(), 1usize..5, size()).prop_flat_map(|(automaton, samples, (height, width))| {
        let grid = Grid::new(samples, height, width, automaton.channels).unwrap();
        let words = grid.words_per_sample();
        let fill = prop::collection::vec(any::<u64>(), samples * words * automaton.channels);
        let word = prop_oneof![1 => Just(u64::MAX), 1 => Just(0), 4 => any::<u64>()];
        let masks = prop::collection::vec(prop::collection::vec(word, words), 1..4);
        (Just(automaton), fill.prop_map(move |fill| filled(grid.clone(), &fill)), masks)
    })
}

/// A grid with these words, as far as they are used.
fn filled(mut grid: Grid, fill: &[u64]) -> Grid {
    let (words, tail) = (grid.words_per_sample(), grid.tail_mask());
    let plane_words = grid.samples() * words;
    for channel in 0..grid.channels() {
        let plane = grid.plane_mut(channel);
        plane.copy_from_slice(&fill[channel * plane_words..][..plane_words]);
        for sample in plane.chunks_exact_mut(words) {
            sample[words - 1] &= tail;
        }
    }
    grid
}

/// A sequence of scattered numbers (splitmix64).
pub(crate) fn numbers() -> impl Iterator<Item = u64> {
    (1u64..).map(|i| {
        let z = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    })
}

/// A grid of scattered bits.
pub(crate) fn scattered(samples: usize, height: usize, width: usize, channels: usize) -> Grid {
    let grid = Grid::new(samples, height, width, channels).unwrap();
    let fill: Vec<u64> = numbers().take(samples * grid.words_per_sample() * channels).collect();
    filled(grid, &fill)
}

/// An automaton of scattered gates, half of them wires.
pub(crate) fn large(channels: usize, gates: usize) -> Automaton {
    let wires = |index: u64| if index < 16 { index as u8 } else { 3 };
    let drafts: Vec<Draft> = numbers()
        .take(gates)
        .map(|n| (wires(n % 32), (n >> 8) as u32 & 0xff_ffff, (n >> 32) as u32))
        .collect();
    let nodes = nodes(9 * channels, &drafts, false);
    let end = (9 * channels + gates) as u32;
    let outputs = (0..channels as u32).map(|channel| end - 1 - channel).collect();
    Automaton::new(channels, Boundary::Torus, Circuit::new(9 * channels, nodes, outputs).unwrap()).unwrap()
}

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
pub(crate) fn life(boundary: Boundary) -> Automaton {
    let mut patch = Patch(Vec::new());
    let (above, p) = patch.full_adder(0, 1, 2);
    let (beside, q) = patch.half_adder(3, 5);
    let (below, r) = patch.full_adder(6, 7, 8);
    let (ones, s) = patch.full_adder(above, beside, below);
    // The count is ones + 2 * (p + q + r + s): 2 or 3 if exactly one of the carries is 1.
    let (pq, pq_both) = patch.half_adder(p, q);
    let (rs, rs_both) = patch.half_adder(r, s);
    let odd = patch.gate(Gate::XOR, pq, rs);
    let many = patch.gate(Gate::OR, pq_both, rs_both);
    let two_or_three = patch.gate(Gate::A_AND_NOT_B, odd, many);
    let three_or_alive = patch.gate(Gate::OR, ones, 4);
    let output = patch.gate(Gate::AND, two_or_three, three_or_alive);
    Automaton::new(1, boundary, Circuit::new(9, patch.0, vec![output]).unwrap()).unwrap()
}

#[test]
fn life_is_life() {
    let life = life(Boundary::Torus).circuit;
    for board in 0u32..512 {
        let bits: Vec<bool> = (0..9).map(|k| board >> k & 1 == 1).collect();
        let count = (board & !(1 << 4)).count_ones();
        assert_eq!(life.eval(&bits).unwrap(), [count == 3 || count == 2 && bits[4]], "board {board:09b}");
    }
}
