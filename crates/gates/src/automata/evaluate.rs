//! Evaluation of a hard automaton by the protocols of an experiment: larger grids, more steps, damage, asynchronous
//! updates.

use std::sync::atomic::{AtomicUsize, Ordering};

use gatework_logic::{Automaton, Grid, Simulator};
use rayon::prelude::*;
use serde::Serialize;

use super::experiment::{AutomatonExperiment, Protocol};
use super::hard::{Conditions, DamageKind, HardRun};
use super::states::{StateError, Target};
use gatework_train::memory::{self, OutOfMemory};
use gatework_train::random::{Purpose, Random};

/// The score of an automaton in a protocol.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Score {
    /// The protocol's name.
    pub name: String,
    /// Height and width.
    pub grid: [usize; 2],
    /// Steps.
    pub steps: usize,
    /// Start states.
    pub samples: usize,
    /// Observed bits of all samples.
    pub bits: usize,
    /// Wrong bits after the last step, without the cells that were just damaged.
    pub wrong: usize,
    /// Mean number of wrong bits over the last quarter of the steps, damaged cells included.
    pub late_wrong: f64,
    /// The first step from which no bit is wrong, if there is one.
    pub settled: Option<usize>,
}

/// Runs a protocol on a hard automaton.
pub fn score(
    automaton: &Automaton,
    loaded: &AutomatonExperiment,
    protocol: &Protocol,
    seed: u64,
) -> Result<Score, EvaluationError> {
    score_observed(automaton, loaded, protocol, seed, |_, _| ())
}

/// Runs a protocol, and reports the number of finished steps of all grids and their total.
pub fn score_observed(
    automaton: &Automaton,
    loaded: &AutomatonExperiment,
    protocol: &Protocol,
    seed: u64,
    progress: impl Fn(usize, usize) + Sync,
) -> Result<Score, EvaluationError> {
    let [height, width] = protocol.grid;
    // The grids of a run share the cells that fire and those that are damaged, so with either of them random each grid
    // has a run of its own.
    let is_random = protocol.fire_rate.is_some()
        || protocol.damage.is_some_and(|damage| damage.kind == DamageKind::Random);
    let samples = if loaded.experiment.start.is_fixed() && !is_random { 1 } else { protocol.samples.max(1) };
    let (runs, grids) = if is_random { (samples, 1) } else { (1, samples) };
    let concurrent = runs.min(rayon::current_num_threads());
    let bytes = concurrent as f64 * HardRun::memory(grids, protocol.grid, automaton.channels);
    memory::check(bytes, || format!("evaluate {:?}: a grid of {height}x{width} cells", protocol.name))?;
    let (done, total) = (AtomicUsize::new(0), protocol.steps.saturating_mul(runs));
    let step = || progress(done.fetch_add(1, Ordering::Relaxed) + 1, total);
    let random = |run: u64| Random::new(seed, Purpose::Check, run);
    let courses: Vec<Course> = (0..runs as u64)
        .into_par_iter()
        .map(|run| Course::of(automaton, loaded, protocol, grids, random(run), &step))
        .collect::<Result<_, _>>()?;
    let settled: Option<Vec<usize>> = courses.iter().map(|course| course.settled).collect();
    let late: usize = courses.iter().map(|course| course.late).sum();
    Ok(Score {
        name: protocol.name.clone(),
        grid: protocol.grid,
        steps: protocol.steps,
        samples,
        bits: samples * height * width * loaded.target.channels(),
        wrong: courses.iter().map(|course| course.wrong).sum(),
        late_wrong: late as f64 / late_steps(protocol).max(1) as f64,
        settled: settled.and_then(|steps| steps.into_iter().max()),
    })
}

/// Steps of the last quarter of a protocol.
fn late_steps(protocol: &Protocol) -> usize {
    (protocol.steps / 4).max(1).min(protocol.steps)
}

/// The course of grids that run together.
struct Course {
    wrong: usize,
    settled: Option<usize>,
    /// Wrong bits of all late steps.
    late: usize,
}

impl Course {
    fn of(
        automaton: &Automaton,
        loaded: &AutomatonExperiment,
        protocol: &Protocol,
        samples: usize,
        mut random: Random,
        finished_step: &impl Fn(),
    ) -> Result<Course, EvaluationError> {
        let [height, width] = protocol.grid;
        let mut start = Grid::new(samples, height, width, automaton.channels).map_err(StateError::from)?;
        loaded.experiment.start.fill(&mut start, &mut random)?;
        // A rule has a target for each step; that of a picture or pattern is constant.
        let mut target = loaded.target.grids(&start, automaton.boundary, 0)?;
        let rule = match &loaded.target {
            Target::Rule(rule) => Some(rule.automaton(automaton.boundary)),
            _ => None,
        };
        let mut rule = rule.map(|rule| Simulator::new(&rule, rule.channels)).transpose()?;
        let conditions = Conditions {
            fire_rate: protocol.fire_rate,
            damage: protocol.damage,
            recovery: protocol.recovery,
        };
        let mut run = HardRun::new(automaton, loaded.target.channels(), start, conditions, random.word())?;
        let mut course = Course { wrong: 0, settled: None, late: 0 };
        for step in 1..=protocol.steps {
            run.step().map_err(StateError::from)?;
            if let Some(rule) = &mut rule {
                rule.step(&mut target).map_err(StateError::from)?;
            }
            target = loaded.target.aligned(run.grid(), automaton.boundary, target);
            course.wrong = run.wrong_outside_damage(&target).map_err(StateError::from)?;
            course.settled = if course.wrong > 0 { None } else { course.settled.or(Some(step)) };
            if step > protocol.steps - late_steps(protocol) {
                course.late += run.wrong(&target).map_err(StateError::from)?;
            }
            finished_step();
        }
        Ok(course)
    }
}

/// The error of a protocol that cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluationError {
    /// The grids do not fit into memory.
    #[error(transparent)]
    Memory(#[from] OutOfMemory),
    /// A start or target state cannot be made.
    #[error(transparent)]
    State(#[from] StateError),
    /// The circuit does not fit the automaton.
    #[error(transparent)]
    Automaton(#[from] gatework_logic::AutomatonError),
}

#[cfg(test)]
mod tests {
    use gatework_logic::{Boundary, Circuit, Gate, Node, rules};

    use super::*;
    use crate::automata::hard::Damage;

    #[test]
    fn the_true_rule_of_life_scores_no_error_and_another_rule_does() {
        let loaded = AutomatonExperiment::find("game-of-life").unwrap();
        let protocol = Protocol { grid: [40, 30], steps: 20, ..loaded.experiment.protocols[0].clone() };
        let right = score(&rules::life(Boundary::Torus), &loaded, &protocol, 1).unwrap();
        assert_eq!((right.wrong, right.settled, right.bits), (0, Some(1), 12_000));
        let mut other = rules::life(Boundary::Torus);
        other.circuit = Circuit::new(9, vec![], vec![4]).unwrap();
        let wrong = score(&other, &loaded, &protocol, 1).unwrap();
        assert!(wrong.wrong > 1000 && wrong.settled.is_none() && wrong.late_wrong > 1000.0);
    }

    /// A rule with a single two-input gate. Two pairs of channels shift bits, to the right and downwards, and one channel
    /// of each pair inverts them: from the zeros at the edge, every pair grows stripes that are two cells wide. The observed
    /// channel is the XOR of both.
    fn one_gate() -> Automaton {
        let input = |channel: u32, neighbour: u32| channel * 9 + neighbour;
        let (centre, left, above) = (4, 3, 1);
        let nodes = vec![
            Node::new(Gate::XOR, input(1, centre), input(3, centre)),
            Node::new(Gate::NOT_A, input(2, left), 0),
            Node::new(Gate::NOT_A, input(4, above), 0),
        ];
        let outputs = vec![45, 46, input(1, left), 47, input(3, above)];
        Automaton::new(5, Boundary::Zeros, Circuit::new(45, nodes, outputs).unwrap()).unwrap()
    }

    /// Every cell that fires becomes 0, so the wrong cells depend on which cells fire and which are damaged.
    #[test]
    fn grids_fire_and_are_damaged_independently_of_each_other() {
        let zeros = Automaton::new(
            8,
            Boundary::Zeros,
            Circuit::new(72, vec![Node::new(Gate::ALL[0], 0, 0)], vec![72; 8]).unwrap(),
        );
        let loaded = AutomatonExperiment::find("checkerboard").unwrap();
        let damage = Damage { kind: DamageKind::Random, size: 8, from: 0, until: None };
        for (fire_rate, damage) in [(Some(0.5), None), (None, Some(damage))] {
            let one = Protocol { damage, samples: 1, fire_rate, ..Protocol::new("one", [16, 16], 1) };
            let score = |samples| {
                let protocol = Protocol { samples, ..one.clone() };
                score(zeros.as_ref().unwrap(), &loaded, &protocol, 7).unwrap()
            };
            let (one, many) = (score(1), score(8));
            assert_eq!((one.samples, many.samples, many.bits), (1, 8, 8 * one.bits));
            assert_ne!(many.wrong, 8 * one.wrong, "{fire_rate:?} {damage:?}");
        }
    }

    #[test]
    fn required_protocols_are_part_of_success() {
        let mut experiment = AutomatonExperiment::find("checkerboard").unwrap().experiment;
        assert!(experiment.counted_protocols().all(|protocol| protocol.damage.is_none()));
        experiment.protocols.iter_mut().for_each(|protocol| protocol.required = true);
        assert_eq!(experiment.counted_protocols().count(), experiment.protocols.len());
        let robust = AutomatonExperiment::find("checkerboard-robust").unwrap().experiment;
        assert_eq!(robust.counted_protocols().filter(|protocol| protocol.damage.is_some()).count(), 3);
    }

    #[test]
    fn one_gate_grows_a_checkerboard_also_asynchronously() {
        for name in ["checkerboard", "checkerboard-async"] {
            let loaded = AutomatonExperiment::find(name).unwrap();
            let undamaged = loaded.experiment.protocols.iter().find(|protocol| protocol.damage.is_none());
            let score = score(&one_gate(), &loaded, undamaged.unwrap(), 3).unwrap();
            assert_eq!(score.wrong, 0, "{name}: {score:?}");
        }
    }
}
