//! Random circuits, automata and grids for tests: proptest strategies and reproducible samples.

use crate::automaton::{Automaton, Boundary};
use crate::circuit::{Circuit, Node};
use crate::classifier::{Class, Classifier, Encoder, Feature, FeatureKind, Head};
use crate::gate::Gate;
use crate::grid::Grid;
use crate::prove::sweep::Random;
use crate::prove::{Verdict, equivalent};
use proptest::prelude::*;
use std::ops::RangeInclusive;

/// A random gate: an index and two numbers that select the operands.
type Draft = (u8, u32, u32);

/// Turns drafts into gates. Gates of a `deep` circuit read mostly the last few signals, so it has long paths.
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

/// Generates gate indices: uniform, mostly wires as after training, or without constants.
fn gate_index() -> BoxedStrategy<u8> {
    prop_oneof![0u8..16, prop_oneof![Just(3u8), Just(5), 0u8..16], 1u8..15].boxed()
}

fn drafts(max: usize) -> impl Strategy<Value = Vec<Draft>> {
    prop::collection::vec((gate_index(), any::<u32>(), any::<u32>()), 0..=max)
}

/// Generates circuits with up to `gates` gates; some have no gates, no inputs or no outputs.
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

/// Generates automata with up to four channels.
pub(crate) fn automaton() -> impl Strategy<Value = Automaton> {
    let outputs = prop::collection::vec(any::<u32>(), 1..=4);
    (outputs, drafts(80), any::<bool>(), boundary()).prop_map(|(outputs, drafts, deep, boundary)| {
        let channels = outputs.len();
        let nodes = nodes(9 * channels, &drafts, deep);
        let signals = (9 * channels + nodes.len()) as u32;
        // Most outputs are late gates, where long paths end.
        let end = |output: u32| {
            if output.is_multiple_of(3) { output % signals } else { signals - 1 - output % signals.min(8) }
        };
        let circuit = Circuit::new(9 * channels, nodes, outputs.into_iter().map(end).collect()).unwrap();
        Automaton::new(channels, boundary, circuit).unwrap()
    })
}

/// Generates features: numbers with up to nine thresholds and categories, with and without a missing bit.
fn features() -> impl Strategy<Value = Vec<Feature>> {
    let value = prop_oneof![-4.0f32..4.0, any::<i8>().prop_map(f32::from), -1e30f32..1e30];
    let thresholds = prop::collection::vec(value, 0..=9).prop_map(|mut thresholds| {
        thresholds.sort_by(f32::total_cmp);
        thresholds.dedup();
        FeatureKind::Numeric(thresholds)
    });
    let categories = (1usize..5)
        .prop_map(|count| FeatureKind::Categorical((0..count).map(|i| format!("\u{e9} \"{i}")).collect()));
    let kinds = prop::collection::vec((prop_oneof![3 => thresholds, 1 => categories], any::<bool>()), 1..=6);
    kinds.prop_map(|kinds| {
        let feature = |(i, (kind, missing))| Feature { name: format!("f*/ \\{i}\n"), kind, missing };
        kinds.into_iter().enumerate().map(feature).collect()
    })
}

/// Generates images of one to three channels and up to twenty pixels, with one or two thresholds.
fn image() -> impl Strategy<Value = Encoder> {
    let shape = prop_oneof![Just([1, 4, 5]), Just([3, 2, 2]), Just([1, 1, 1])];
    let thresholds = prop::collection::vec((-3i32..=260, 0.0f32..1.0), 20);
    (shape, thresholds).prop_map(|(shape, thresholds)| {
        let feature = |(i, &(base, fraction)): (usize, &(i32, f32))| {
            let first = base as f32 + (fraction * 2.0).floor() / 2.0;
            let second = first + 40.0 * (1.0 + fraction);
            Feature::numeric(format!("p{i}"), if i % 3 == 0 { vec![first, second] } else { vec![first] })
        };
        let pixels = shape.iter().product();
        Encoder::new(thresholds[..pixels].iter().enumerate().map(feature).collect(), Some(shape)).unwrap()
    })
}

/// Generates classifiers of tables and images, with groups of different sizes and offsets.
pub(crate) fn classifier() -> impl Strategy<Value = Classifier> {
    let table = features().prop_map(|features| Encoder::new(features, None).unwrap());
    let classes = prop::collection::vec((0usize..9, prop_oneof![2 => Just(0u32), 1 => 0u32..6]), 2..6);
    let encoder = prop_oneof![2 => table, 1 => image()];
    let picks = prop::collection::vec(any::<u32>(), 45);
    (encoder, drafts(60), any::<bool>(), classes, picks).prop_map(
        |(encoder, drafts, deep, classes, picks)| {
            let nodes = nodes(encoder.bits(), &drafts, deep);
            let signals = (encoder.bits() + nodes.len()) as u32;
            let class = |(i, (outputs, offset))| Class {
                name: format!("class {i}"),
                outputs: if signals == 0 { 0 } else { outputs },
                offset,
            };
            let head = Head::new(classes.into_iter().enumerate().map(class).collect(), 1.5).unwrap();
            let outputs = picks[..head.outputs()].iter().map(|pick| pick % signals.max(1)).collect();
            let circuit = Circuit::new(encoder.bits(), nodes, outputs).unwrap();
            Classifier::new(encoder, circuit, head).unwrap()
        },
    )
}

/// Generates the height and width of grids: small ones, and strips about as wide as one to three words.
fn size() -> impl Strategy<Value = (usize, usize)> {
    let strip = (1usize..4, prop_oneof![60usize..70, 120usize..135, 190usize..194]);
    prop_oneof![
        (1usize..5, 1usize..5),
        (1usize..20, 1usize..20),
        strip.clone(),
        strip.prop_map(|(h, w)| (w, h))
    ]
}

/// Generates an automaton, a grid for it, and masks for a few steps.
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

/// Fills a grid with words, clearing the unused bits.
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

/// Returns a fixed sequence of pseudorandom numbers.
pub(crate) fn numbers() -> impl Iterator<Item = u64> {
    let mut random = Random(0);
    std::iter::repeat_with(move || random.word())
}

/// Returns a pseudorandom grid.
pub(crate) fn scattered(samples: usize, height: usize, width: usize, channels: usize) -> Grid {
    let grid = Grid::new(samples, height, width, channels).unwrap();
    let fill: Vec<u64> = numbers().take(samples * grid.words_per_sample() * channels).collect();
    filled(grid, &fill)
}

/// Returns a pseudorandom automaton; half of its gates are wires.
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

/// Asserts that two circuits agree on all assignments of few inputs, or on pseudorandom ones of many.
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

/// Asserts that two circuits are proved equivalent.
pub(crate) fn assert_proved_equal(left: &Circuit, right: &Circuit) {
    assert_eq!(equivalent(left, right).unwrap(), Verdict::Equal);
}
