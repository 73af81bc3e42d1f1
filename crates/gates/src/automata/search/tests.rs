//! Whole searches on small experiments.

use super::*;
use crate::automata::model::{FirstLayer, ModelShape};
use crate::soft::Wiring;
use gatework_train::experiment::Source;

/// A small model with random functions.
pub(in crate::automata) fn model_of(seed: u64, channels: usize) -> Model {
    let inputs = channels * 3;
    let shape = ModelShape {
        channels,
        boundary: Boundary::Zeros,
        kernels: 2,
        perceive: vec![9, 8, 4, 2, 1],
        first: FirstLayer::Moore,
        update: vec![inputs, 4 * channels, 2 * channels, channels],
        wiring: Wiring::Random,
    };
    let mut model = Model::new(&shape, seed).unwrap();
    let mut random = Random::new(seed, Purpose::Start, 0);
    for logits in model.params.values.chunks_exact_mut(16) {
        one_hot(logits, Gate::ALL[random.below(16)], MARGIN);
    }
    model
}

pub(in crate::automata) fn model(seed: u64) -> Model {
    model_of(seed, 4)
}

/// Random inputs of the model's rule.
pub(in crate::automata) fn patches(model: &Model) -> impl Iterator<Item = Vec<bool>> + use<> {
    let inputs = model.shape.channels * 9;
    let mut random = Random::new(9, Purpose::Start, 1);
    (0..200).map(move |_| (0..inputs).map(|_| random.below(2) == 1).collect())
}

/// Random grids of four channels, three steps, and random targets for two of the channels.
pub(in crate::automata::search) fn case(seed: u64, samples: usize, size: usize, asynchronous: bool) -> Case {
    let mut random = Random::new(seed, Purpose::Start, 2);
    let mut start = Grid::new(samples, size, size, 4).unwrap();
    let mut target = Grid::new(samples, size, size, 2).unwrap();
    let start_kind = crate::automata::states::Start::Random;
    start_kind.fill(&mut start, &mut random).unwrap();
    start_kind.fill(&mut target, &mut random).unwrap();
    let mut fires = if asynchronous { vec![vec![0; start.words_per_sample()]; 3] } else { Vec::new() };
    for mask in &mut fires {
        fill_mask(mask, start.cells(), 0.6, &mut random);
    }
    Case { start, target, steps: 3, fires }
}

/// A picture that grows from a seed cell, with a model small enough for a test.
fn small() -> AutomatonExperiment {
    let text = include_str!("../../../experiments/lizard.toml")
        .replace("channels = 128", "channels = 24")
        .replace("steps = 12", "steps = 11")
        .replace("640, 512, 512, 512, 512, 512, 512, 512, 512, 256, 128", "120, 100, 60, 40, 24");
    let text = text.split("[search]").next().unwrap_or_default().to_string()
        + "[search]\nafter = 2\nmoves = 100\ntemperature = [0.5, 0.2]\n\n[[evaluate]]\nname = \"larger\"\n\
           grid = [26, 26]\nsteps = 11\n";
    AutomatonExperiment::from_source(&Source::new(&text, "small", ".")).unwrap()
}

/// Searches from an untrained model, with checks that always pass.
fn search(loaded: &AutomatonExperiment, shrink: u64, stop: &StopCheck<'_>) -> Option<Found> {
    let mut settings = loaded.experiment.search().unwrap().clone();
    settings.shrink = shrink;
    let model = Model::new(&loaded.experiment.model_shape(), 1).unwrap();
    let check = |_: &Automaton, _: u64| Ok(true);
    Search { loaded, settings: &settings, seed: 1, check: &check }.run(&model, stop).unwrap()
}

#[test]
fn the_result_is_right_and_does_not_depend_on_the_number_of_threads() {
    let loaded = small();
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| search(&loaded, 0, &|_| false)).unwrap()
    };
    let (one, two) = (run(1), run(2));
    assert!(one.passes && one.wrong == 0);
    assert_eq!(one.model.to_bytes(), two.model.to_bytes());
    for protocol in &loaded.experiment.protocols {
        assert_eq!(evaluate::score(&one.model.harden(), &loaded, protocol, 5).unwrap().wrong, 0);
    }
}

#[test]
fn shrinking_removes_gates_and_keeps_the_protocols_passing() {
    let loaded = small();
    let gates = |shrink: u64| {
        let found = search(&loaded, shrink, &|_| false).unwrap();
        assert!(found.passes);
        for protocol in &loaded.experiment.protocols {
            let score = evaluate::score(&found.model.harden(), &loaded, protocol, 5).unwrap();
            assert_eq!(score.wrong, 0);
        }
        found.model.gate_counts(loaded.target.channels()).reachable
    };
    let (as_found, shrunk) = (gates(0), gates(400));
    assert!(shrunk < as_found, "{shrunk} of {as_found}");
}

#[test]
fn runs_have_the_lengths_of_the_luby_sequence() {
    let lengths: Vec<u64> = (1..=15).map(luby).collect();
    assert_eq!(lengths, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
}

#[test]
fn a_search_that_is_stopped_returns_none() {
    assert!(search(&small(), 0, &|_| true).is_none());
}

#[test]
fn a_search_that_is_stopped_while_it_shrinks_returns_none() {
    assert!(search(&small(), 400, &|progress| progress.stage == "shrink").is_none());
    assert!(search(&small(), 400, &|_| false).is_some());
}
