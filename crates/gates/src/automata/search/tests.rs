use super::*;
use crate::automata::model::{FirstLayer, ModelShape};
use crate::soft::Wiring;
use gatework_train::experiment::Source;

/// A small model with random functions.
pub(in crate::automata::search) fn model_of(seed: u64, channels: usize) -> Model {
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

pub(in crate::automata::search) fn model(seed: u64) -> Model {
    model_of(seed, 4)
}

/// Inputs of a rule.
pub(in crate::automata::search) fn patches(model: &Model) -> impl Iterator<Item = Vec<bool>> + use<> {
    let inputs = model.shape.channels * 9;
    let mut random = Random::new(9, Purpose::Start, 1);
    (0..200).map(move |_| (0..inputs).map(|_| random.below(2) == 1).collect())
}

/// Random boards of four channels, three steps, and random targets for two of the channels.
pub(in crate::automata::search) fn lesson(
    seed: u64,
    boards: usize,
    size: usize,
    asynchronous: bool,
) -> Lesson {
    let mut random = Random::new(seed, Purpose::Start, 2);
    let mut start = Grid::new(boards, size, size, 4).unwrap();
    let mut target = Grid::new(boards, size, size, 2).unwrap();
    let start_kind = crate::automata::board::Start::Random;
    start_kind.fill(&mut start, &mut random).unwrap();
    start_kind.fill(&mut target, &mut random).unwrap();
    let mut fires = if asynchronous { vec![vec![0; start.words_per_sample()]; 3] } else { Vec::new() };
    for mask in &mut fires {
        fill_mask(mask, start.cells(), 0.6, &mut random);
    }
    Lesson { start, target, steps: 3, fires }
}

/// A picture that grows from a seed, on a torus small enough for a test.
fn small() -> Loaded {
    let text = include_str!("../../../experiments/lizard.toml")
        .replace("channels = 128", "channels = 24")
        .replace("steps = 12", "steps = 11")
        .replace("640, 512, 512, 512, 512, 512, 512, 512, 512, 256, 128", "120, 100, 60, 40, 24");
    let text = text.split("[search]").next().unwrap_or_default().to_string()
        + "[search]\nafter = 2\nmoves = 100\ntemperature = [0.5, 0.2]\n\n[[evaluate]]\nname = \"larger\"\n\
           grid = [26, 26]\nsteps = 11\n";
    Loaded::from_source(&Source::new(&text, "small", ".")).unwrap()
}

/// Passes everything, and does not teach.
struct Easy;

impl Teacher for Easy {
    fn passes(&self, _: &Automaton, _: u64) -> Result<bool, TaskError> {
        Ok(true)
    }

    fn slopes(&self, model: &Model, _: u64) -> Result<Vec<f32>, TaskError> {
        Ok(vec![0.0; model.params.len()])
    }

    fn trained(
        &self,
        model: &Model,
        _: u64,
        _: u64,
        _: &dyn Fn(f64) -> bool,
    ) -> Result<Option<Model>, TaskError> {
        Ok(Some(model.clone()))
    }
}

#[test]
fn a_search_finds_the_same_with_any_number_of_threads_and_it_is_right() {
    let loaded = small();
    let settings = loaded.experiment.search().unwrap();
    let model = Model::new(&loaded.experiment.model_shape(), 1).unwrap();
    let search = Search { loaded: &loaded, settings, seed: 1 };
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| search.run(&model, &Easy, &|_| false)).unwrap().unwrap()
    };
    let (one, two) = (run(1), run(2));
    assert!(one.passes && one.wrong == 0);
    assert_eq!(one.model.to_bytes(), two.model.to_bytes());
    for protocol in &loaded.experiment.protocols {
        assert_eq!(evaluate::score(&one.model.harden(), &loaded, protocol, 5).unwrap().wrong, 0);
    }
}

#[test]
fn shrinking_saves_gates_and_what_is_left_is_as_right() {
    let loaded = small();
    let settings = Settings { shrink: 400, ..loaded.experiment.search().unwrap().clone() };
    let model = Model::new(&loaded.experiment.model_shape(), 1).unwrap();
    let gates = |shrink: u64| {
        let settings = Settings { shrink, ..settings.clone() };
        let search = Search { loaded: &loaded, settings: &settings, seed: 1 };
        let found = search.run(&model, &Easy, &|_| false).unwrap().unwrap();
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
fn tries_have_the_lengths_of_luby() {
    let lengths: Vec<u64> = (1..=15).map(luby).collect();
    assert_eq!(lengths, [1, 1, 2, 1, 1, 2, 4, 1, 1, 2, 1, 1, 2, 4, 8]);
}

#[test]
fn a_search_that_is_stopped_finds_nothing() {
    let loaded = small();
    let settings = loaded.experiment.search().unwrap();
    let model = Model::new(&loaded.experiment.model_shape(), 1).unwrap();
    let search = Search { loaded: &loaded, settings, seed: 1 };
    assert!(search.run(&model, &Easy, &|_| true).unwrap().is_none());
}

#[test]
fn a_search_that_is_stopped_while_it_shrinks_finds_nothing_either() {
    let loaded = small();
    let settings = Settings { shrink: 400, ..loaded.experiment.search().unwrap().clone() };
    let model = Model::new(&loaded.experiment.model_shape(), 1).unwrap();
    let search = Search { loaded: &loaded, settings: &settings, seed: 1 };
    // Only what shrinks has nothing wrong.
    let found = search.run(&model, &Easy, &|wrong| wrong == 0.0).unwrap();
    assert!(found.is_none());
    assert!(search.run(&model, &Easy, &|_| false).unwrap().is_some());
}

#[test]
fn a_hotter_bath_that_is_better_becomes_the_colder_one() {
    let mut random = Random::new(1, Purpose::Temper, 0);
    let temperature = |rung| 2f64.powi(rung as i32);
    let mut rungs = [1, 0, 2];
    exchange(&mut rungs, &[3, 90, 60], temperature, &mut random);
    // The best goes down, and the worst comes past the one in the middle: 30 bits at 1/2 - 1/4.
    assert_eq!(rungs, [0, 2, 1]);
    // The other way round it hardly ever happens, and at equal numbers always.
    let mut rungs = [0, 1];
    exchange(&mut rungs, &[0, 1000], temperature, &mut random);
    assert_eq!(rungs, [0, 1]);
    exchange(&mut rungs, &[5, 5], temperature, &mut random);
    assert_eq!(rungs, [1, 0]);
    // One bit at a difference of 1/2: exp(-1/2) of the time.
    let swaps = (0..4000).filter(|_| {
        let mut rungs = [0, 1];
        exchange(&mut rungs, &[5, 6], temperature, &mut random);
        rungs == [1, 0]
    });
    assert!((swaps.count() as f64 / 4000.0 - (-0.5f64).exp()).abs() < 0.05);
}
