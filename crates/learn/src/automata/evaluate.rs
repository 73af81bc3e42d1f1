//! The published protocols, scored: larger grids, more steps, damage, asynchronous updates.

use gatework_logic::{Automaton, Grid, Simulator, rules};
use serde::{Deserialize, Serialize};

use super::board::{BoardError, Target};
use super::experiment::Loaded;
use super::hard::{Conditions, Damage, HardRun};
use crate::random::{Purpose, Random};

/// How a learned rule is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// What it is called.
    pub name: String,
    /// Height and width.
    pub grid: [usize; 2],
    /// Steps.
    pub steps: usize,
    /// Start states, if they are random.
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
    let experiment = &loaded.experiment;
    let [height, width] = protocol.grid;
    let samples = if experiment.start.is_fixed() { 1 } else { protocol.samples.max(1) };
    let mut start = Grid::new(samples, height, width, automaton.channels).map_err(BoardError::from)?;
    experiment.start.fill(&mut start, &mut Random::new(seed, Purpose::Check, 0))?;
    // Life is judged step by step; a picture or pattern is the same at all times.
    let mut target = loaded.target.boards(&start, automaton.boundary, 0)?;
    let conditions = Conditions { fire_rate: protocol.fire_rate, damage: protocol.damage };
    let mut life = Simulator::new(&rules::life(automaton.boundary), 1)?;
    let mut run = HardRun::new(automaton, loaded.target.channels(), start, conditions, seed)?;
    let (mut wrong, mut settled, mut late, mut late_steps) = (0, None, 0, 0);
    for step in 1..=protocol.steps {
        run.step().map_err(BoardError::from)?;
        if loaded.target == Target::GameOfLife {
            life.step(&mut target).map_err(BoardError::from)?;
        }
        wrong = run.wrong_but_damaged(&target).map_err(BoardError::from)?;
        settled = if wrong > 0 { None } else { settled.or(Some(step)) };
        if step > protocol.steps - protocol.steps / 4 || step == protocol.steps {
            late += run.wrong(&target).map_err(BoardError::from)?;
            late_steps += 1;
        }
    }
    Ok(Score {
        name: protocol.name.clone(),
        grid: protocol.grid,
        steps: protocol.steps,
        samples,
        bits: samples * height * width * loaded.target.channels(),
        wrong,
        late_wrong: late as f64 / f64::from(late_steps.max(1)),
        settled,
    })
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

    /// Conway's rule as a circuit: a sorted sum of the neighbours by full adders, then 3 or (2 and alive).
    fn life() -> Automaton {
        let mut nodes = Vec::new();
        let mut add = |gate, a, b| {
            nodes.push(Node { gate, a, b });
            8 + nodes.len() as u32
        };
        // Counts by unary insertion: at_least[k] after each neighbour, k = 1..=4.
        let mut at_least: [Option<u32>; 5] = [None; 5];
        for n in [0, 1, 2, 3, 5, 6, 7, 8] {
            for k in (1..5).rev() {
                let below = if k == 1 { Some(n) } else { at_least[k - 1].map(|x| add(Gate::AND, x, n)) };
                at_least[k] = match (at_least[k], below) {
                    (Some(x), Some(y)) => Some(add(Gate::OR, x, y)),
                    (x, y) => x.or(y),
                };
            }
        }
        let [_, _, two, three, four] = at_least.map(|x| x.unwrap_or(0));
        let alive_or_three = add(Gate::OR, 4, three);
        let two_or_three = add(Gate::A_AND_NOT_B, two, four);
        let next = add(Gate::AND, alive_or_three, two_or_three);
        Automaton::new(1, Boundary::Torus, Circuit::new(9, nodes, vec![next]).unwrap()).unwrap()
    }

    #[test]
    fn the_true_rule_of_life_scores_no_error_and_another_rule_does() {
        let loaded = Loaded::find("game-of-life").unwrap();
        let protocol = Protocol { grid: [40, 30], steps: 20, ..loaded.experiment.protocols[0].clone() };
        let right = score(&life(), &loaded, &protocol, 1).unwrap();
        assert_eq!((right.wrong, right.settled, right.bits), (0, Some(1), 12_000));
        let mut other = life();
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
