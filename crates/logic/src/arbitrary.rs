//! Circuits, automata and grids for the tests: random ones of every shape.

use crate::automaton::{Automaton, Boundary};
use crate::circuit::{Circuit, Node};
use crate::gate::Gate;
use crate::grid::Grid;
use crate::prove::{Verdict, equivalent};
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

/// Compares two circuits on all inputs if there are few, on scattered ones otherwise.
pub(crate) fn assert_same_function(left: &Circuit, right: &Circuit) {
    assert_eq!((left.inputs(), left.outputs().len()), (right.inputs(), right.outputs().len()));
    let inputs = left.inputs();
    let check = |bits: &[bool]| assert_eq!(left.eval(bits), right.eval(bits), "at {bits:?}");
    if inputs <= 7 {
        for point in 0..1u32 << inputs {
            check(&(0..inputs).map(|k| point >> k & 1 == 1).collect::<Vec<_>>());
        }
    } else {
        let mut numbers = numbers();
        for _ in 0..64 {
            check(&numbers.by_ref().take(inputs).map(|n| n & 1 == 1).collect::<Vec<_>>());
        }
    }
}

/// Proves that two circuits compute the same for every input.
pub(crate) fn assert_proved_equal(left: &Circuit, right: &Circuit) {
    assert_eq!(equivalent(left, right).unwrap(), Verdict::Equal);
}
