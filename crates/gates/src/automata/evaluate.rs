//! The published protocols, scored: larger grids, more steps, damage, asynchronous updates.

use gatework_logic::{Automaton, Grid, Simulator, rules};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::board::{BoardError, Target};
use super::experiment::Loaded;
use super::hard::{Conditions, Damage, DamageKind, HardRun};
use gatework_train::pairs::two;
use gatework_train::random::{Purpose, Random};

/// How a learned rule is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// What it is called.
    pub name: String,
    /// Height and width.
    #[serde(deserialize_with = "two")]
    pub grid: [usize; 2],
    /// Steps.
    pub steps: usize,
    /// Boards; one is enough if nothing is left to chance.
    #[serde(default = "default_samples")]
    pub samples: usize,
    /// Share of the cells that update in a step; without it, all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fire_rate: Option<f32>,
    /// Damage after every step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damage>,
}

fn default_samples() -> usize {
    10
}

/// How a rule did.
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
    /// Bits that are judged in one step, over all samples.
    pub bits: usize,
    /// Wrong bits after the last step, cells that were just damaged not counted.
    pub wrong: usize,
    /// Wrong bits a step, damaged cells included, on average over the last quarter of the steps.
    pub late_wrong: f64,
    /// The step after which nothing was wrong any more, if there is one.
    pub settled: Option<usize>,
}

/// Runs a protocol on a hard automaton.
pub fn score(
    automaton: &Automaton,
    loaded: &Loaded,
    protocol: &Protocol,
    seed: u64,
) -> Result<Score, EvaluationError> {
    let [height, width] = protocol.grid;
    // Boards of a run share the cells that fire and those that are damaged, so what is left to chance makes a run a board.
    let by_chance = protocol.fire_rate.is_some()
        || protocol.damage.is_some_and(|damage| damage.kind == DamageKind::Random);
    let samples = if loaded.experiment.start.is_fixed() && !by_chance { 1 } else { protocol.samples.max(1) };
    let (runs, boards) = if by_chance { (samples, 1) } else { (1, samples) };
    let courses: Vec<Course> = (0..runs as u64)
        .into_par_iter()
        .map(|run| Course::of(automaton, loaded, protocol, boards, Random::new(seed, Purpose::Check, run)))
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
        late_wrong: late as f64 / protocol.late_steps().max(1) as f64,
        settled: settled.and_then(|steps| steps.into_iter().max()),
    })
}

impl Protocol {
    /// How many of the last steps are the late ones.
    fn late_steps(&self) -> usize {
        (self.steps / 4).max(1).min(self.steps)
    }
}

/// What came of some boards that ran together.
struct Course {
    wrong: usize,
    settled: Option<usize>,
    /// Wrong bits of all late steps.
    late: usize,
}

impl Course {
    fn of(
        automaton: &Automaton,
        loaded: &Loaded,
        protocol: &Protocol,
        boards: usize,
        mut random: Random,
    ) -> Result<Course, EvaluationError> {
        let [height, width] = protocol.grid;
        let mut start = Grid::new(boards, height, width, automaton.channels).map_err(BoardError::from)?;
        loaded.experiment.start.fill(&mut start, &mut random)?;
        // Life is judged step by step; a picture or pattern is the same at all times.
        let mut target = loaded.target.boards(&start, automaton.boundary, 0)?;
        let mut life = Simulator::new(&rules::life(automaton.boundary), 1)?;
        let conditions = Conditions { fire_rate: protocol.fire_rate, damage: protocol.damage };
        let mut run = HardRun::new(automaton, loaded.target.channels(), start, conditions, random.word())?;
        let mut course = Course { wrong: 0, settled: None, late: 0 };
        for step in 1..=protocol.steps {
            run.step().map_err(BoardError::from)?;
            if loaded.target == Target::GameOfLife {
                life.step(&mut target).map_err(BoardError::from)?;
            }
            course.wrong = run.wrong_but_damaged(&target).map_err(BoardError::from)?;
            course.settled = if course.wrong > 0 { None } else { course.settled.or(Some(step)) };
            if step > protocol.steps - protocol.late_steps() {
                course.late += run.wrong(&target).map_err(BoardError::from)?;
            }
        }
        Ok(course)
    }
}

/// A protocol that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum EvaluationError {
    /// A board cannot be made.
    #[error(transparent)]
    Board(#[from] BoardError),
    /// The circuit does not fit the automaton.
    #[error(transparent)]
    Automaton(#[from] gatework_logic::AutomatonError),
}

#[cfg(test)]
mod tests {
    use gatework_logic::{Boundary, Circuit, Gate, Node};

    use super::*;

    #[test]
    fn the_true_rule_of_life_scores_no_error_and_another_rule_does() {
        let loaded = Loaded::find("game-of-life").unwrap();
        let protocol = Protocol { grid: [40, 30], steps: 20, ..loaded.experiment.protocols[0].clone() };
        let right = score(&rules::life(Boundary::Torus), &loaded, &protocol, 1).unwrap();
        assert_eq!((right.wrong, right.settled, right.bits), (0, Some(1), 12_000));
        let mut other = rules::life(Boundary::Torus);
        other.circuit = Circuit::new(9, vec![], vec![4]).unwrap();
        let wrong = score(&other, &loaded, &protocol, 1).unwrap();
        assert!(wrong.wrong > 1000 && wrong.settled.is_none() && wrong.late_wrong > 1000.0);
    }

    /// A rule with a single gate of two operands. Two pairs of channels hand bits on, to the right and downwards, and one of
    /// each pair inverts: behind the zeros at the edge, every pair becomes stripes that are two cells wide. The observed
    /// channel is the exclusive or of both.
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

    /// Every cell that fires becomes 0, so what is wrong hangs on which cells fire, and where damage excuses them.
    #[test]
    fn boards_fire_and_are_damaged_independently_of_each_other() {
        let zeros = Automaton::new(
            8,
            Boundary::Zeros,
            Circuit::new(72, vec![Node::new(Gate::ALL[0], 0, 0)], vec![72; 8]).unwrap(),
        );
        let loaded = Loaded::find("checkerboard").unwrap();
        let damage = Damage { kind: DamageKind::Random, size: 8, until: None };
        for (fire_rate, damage) in [(Some(0.5), None), (None, Some(damage))] {
            let one =
                Protocol { name: "one".into(), grid: [16, 16], steps: 1, samples: 1, fire_rate, damage };
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
    fn one_gate_grows_a_checkerboard_also_asynchronously() {
        for name in ["checkerboard", "checkerboard-async"] {
            let loaded = Loaded::find(name).unwrap();
            let undamaged = loaded.experiment.protocols.iter().find(|protocol| protocol.damage.is_none());
            let score = score(&one_gate(), &loaded, undamaged.unwrap(), 3).unwrap();
            assert_eq!(score.wrong, 0, "{name}: {score:?}");
        }
    }
}
