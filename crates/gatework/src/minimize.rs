//! Minimisation with proof: a smaller circuit is returned only if it was proved equivalent.
//!
//! ```
//! use std::time::Duration;
//! use gatework::logic::{Circuit, Gate, Node, minimize::Options};
//!
//! // (a & b) | (a & !b) is a.
//! let gates = vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::A_AND_NOT_B, 0, 1), Node::new(Gate::OR, 2, 3)];
//! let circuit = Circuit::new(2, gates, vec![4])?;
//! let small = gatework::minimize::with_proof(&circuit.into(), &Options::default(), Duration::from_secs(10))?;
//! assert_eq!(small.statistics.gates_after, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use gatework_gates::automata::experiment::Experiment;
use gatework_gates::automata::states;
use gatework_logic::minimize::{self, Observer, Options, Start, Statistics};
use gatework_logic::prove::{self, AutomataError, ProveError, StateMap, Verdict};
use gatework_logic::{Automaton, Circuit, Classifier, Document, Stop, Stopped};

/// The default limit of the time for a proof.
pub const PROOF_TIME: Duration = Duration::from_secs(600);

/// A circuit that could not be minimised or proved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MinimizeError {
    /// The automaton is not valid.
    #[error(transparent)]
    Automaton(AutomataError),
    /// The circuits cannot be compared.
    #[error(transparent)]
    Prove(#[from] ProveError),
    /// The proof exceeded its time limit.
    #[error("the equivalence proof was given up after {:.1} s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The flag of [`Control::stop`] was set.
    #[error("interrupted")]
    Interrupted,
    /// The depth was not reached.
    #[error("a depth of {asked} was not reached; the smallest that was found is {reached} (gates: {gates})")]
    Depth {
        /// The depth that was asked for.
        asked: usize,
        /// The smallest depth that was found.
        reached: usize,
        /// The gates at this depth.
        gates: usize,
    },
    /// The minimised circuit differs: a bug of the minimiser.
    #[error("the minimised circuit differs in output {output} for input {input}: this is a bug of Gatework")]
    Different {
        /// An input for which it differs, as bits.
        input: String,
        /// The output.
        output: usize,
    },
    /// A classifier has no miter.
    #[error(
        "a miter is for circuits and automata: a classifier is equal only for what its encoder can produce"
    )]
    Miter,
    /// The minimised automaton relies on a start state that the experiment does not have: a bug of the minimiser.
    #[error(
        "the minimised automaton assumes what does not hold in the start state: this is a bug of Gatework"
    )]
    Start,
}

/// A minimised circuit or automaton that was proved equivalent to the original.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Proved {
    /// The minimised circuit.
    pub document: Document,
    /// Gates and depth before and after.
    pub statistics: Statistics,
    /// For automata: the original indices of the remaining channels, and what is known of the others.
    pub map: Option<StateMap>,
    /// Whether it is equivalent only for runs from the given start state.
    pub assumes_start: bool,
    /// Seconds of minimisation.
    pub seconds: f64,
    /// Seconds of the proof.
    pub proof_seconds: f64,
}

/// Checks that the depth that was asked for was reached.
fn check_depth(options: &Options, statistics: &Statistics) -> Result<(), MinimizeError> {
    let (reached, gates) = (statistics.depth_after, statistics.gates_after);
    match options.depth {
        Some(asked) if reached > asked => Err(MinimizeError::Depth { asked, reached, gates }),
        _ => Ok(()),
    }
}

impl Proved {
    /// Returns the miter of what was minimised: a circuit whose output is 1 where the two differ. That of automata is the induction
    /// step on a neighbourhood, in which the invariants of the start state are substituted if it [assumes one](Proved::assumes_start).
    /// A classifier has none, because its scores are equal only for what its encoder can produce.
    pub fn miter(&self, original: &Document) -> Result<Circuit, MinimizeError> {
        match (original, &self.document, &self.map) {
            (Document::Circuit(original), Document::Circuit(small), _) => Ok(prove::miter(original, small)?),
            (
                Document::Automaton { automaton, observed },
                Document::Automaton { automaton: small, .. },
                Some(map),
            ) => {
                let observed = observed.unwrap_or(automaton.channels);
                Ok(prove::miter_of_automata(automaton, small, observed, map)?)
            }
            _ => Err(MinimizeError::Miter),
        }
    }
}

impl From<AutomataError> for MinimizeError {
    fn from(error: AutomataError) -> MinimizeError {
        match error {
            AutomataError::Stopped(stopped) => stopped.into(),
            error => MinimizeError::Automaton(error),
        }
    }
}

/// Only the flag stops the passes: the time limit is that of the proof.
impl From<Stopped> for MinimizeError {
    fn from(_: Stopped) -> MinimizeError {
        MinimizeError::Interrupted
    }
}

/// How a minimisation with proof is limited and observed.
#[derive(Clone, Copy)]
pub struct Control<'a> {
    /// The time limit of the proof.
    pub proof_time: Duration,
    /// A flag that ends the minimisation and the proof.
    pub stop: &'a AtomicBool,
    /// Called before each pass and before the proof (`"proof"`), with the number of gates.
    pub observer: &'a Observer<'a>,
}

/// Minimises a circuit or an automaton and proves the result equivalent within a time limit.
pub fn with_proof(document: &Document, options: &Options, limit: Duration) -> Result<Proved, MinimizeError> {
    let control = Control { proof_time: limit, stop: &AtomicBool::new(false), observer: &|_, _| {} };
    with_proof_controlled(document, options, control)
}

/// Minimises and proves like [`with_proof`], with a flag that ends it and a function that observes its progress.
pub fn with_proof_controlled(
    document: &Document,
    options: &Options,
    control: Control<'_>,
) -> Result<Proved, MinimizeError> {
    match document {
        Document::Automaton { automaton, observed } => {
            control.minimize_automaton(automaton, observed.unwrap_or(automaton.channels), options)
        }
        Document::Circuit(circuit) => control.minimize_circuit(circuit, options),
        Document::Classifier(classifier) => control.minimize_classifier(classifier, options),
    }
}

impl Control<'_> {
    fn minimize_circuit(self, circuit: &Circuit, options: &Options) -> Result<Proved, MinimizeError> {
        let begin = Instant::now();
        let stop = Stop::never().or_flag(self.stop);
        let result = minimize::minimize_until(circuit, options, &stop, self.observer)?;
        check_depth(options, &result.statistics)?;
        let seconds = begin.elapsed().as_secs_f64();
        let proof_seconds =
            self.prove(result.statistics.gates_after, |stop| Ok(result.prove(circuit, stop)?))?;
        Ok(Proved {
            document: result.circuit.into(),
            statistics: result.statistics,
            map: None,
            assumes_start: false,
            seconds,
            proof_seconds,
        })
    }

    fn minimize_classifier(
        self,
        classifier: &Classifier,
        options: &Options,
    ) -> Result<Proved, MinimizeError> {
        let begin = Instant::now();
        let stop = Stop::never().or_flag(self.stop);
        let result = minimize::minimize_classifier_until(classifier, options, &stop, self.observer)?;
        check_depth(options, &result.statistics)?;
        let seconds = begin.elapsed().as_secs_f64();
        let proof_seconds =
            self.prove(result.statistics.gates_after, |stop| Ok(result.prove(classifier, stop)?))?;
        Ok(Proved {
            document: result.classifier.into(),
            statistics: result.statistics,
            map: None,
            assumes_start: false,
            seconds,
            proof_seconds,
        })
    }

    fn minimize_automaton(
        self,
        automaton: &Automaton,
        observed: usize,
        options: &Options,
    ) -> Result<Proved, MinimizeError> {
        let begin = Instant::now();
        let stop = Stop::never().or_flag(self.stop);
        let result = minimize::minimize_automaton_until(automaton, observed, options, &stop, self.observer)?;
        check_depth(options, &result.statistics)?;
        let seconds = begin.elapsed().as_secs_f64();
        let proof_seconds = self.prove(result.statistics.gates_after, |stop| {
            let (small, map) = (&result.automaton, &result.map);
            Ok(prove::equivalent_automata_until(automaton, small, observed, map, stop)?)
        })?;
        if !result.holds_at_start() {
            return Err(MinimizeError::Start);
        }
        Ok(Proved {
            assumes_start: result.assumes_start(),
            document: Document::Automaton { automaton: result.automaton, observed: Some(observed) },
            statistics: result.statistics,
            map: Some(result.map),
            seconds,
            proof_seconds,
        })
    }

    /// Runs a proof within the time limit and returns the seconds that it took.
    fn prove(
        self,
        gates: usize,
        proof: impl FnOnce(&Stop<'_>) -> Result<Verdict, MinimizeError>,
    ) -> Result<f64, MinimizeError> {
        (self.observer)("proof", gates);
        let begin = Instant::now();
        match proof(&Stop::after(self.proof_time).or_flag(self.stop))? {
            Verdict::Equal | Verdict::Unknown if self.stop.load(Ordering::Relaxed) => {
                Err(MinimizeError::Interrupted)
            }
            Verdict::Equal => Ok(begin.elapsed().as_secs_f64()),
            Verdict::Unknown => Err(MinimizeError::Timeout(begin.elapsed())),
            Verdict::Different { input, output } => {
                let input = input.iter().map(|&bit| if bit { '1' } else { '0' }).collect();
                Err(MinimizeError::Different { input, output })
            }
        }
    }
}

/// Returns the number of gates of a circuit without wires, inverters and duplicates; of an automaton, those that its observed
/// channels depend on.
pub fn gates(document: &Document) -> usize {
    match document {
        Document::Automaton { automaton, observed } => {
            automaton.gates(observed.unwrap_or(automaton.channels))
        }
        Document::Circuit(circuit) => minimize::gates(circuit),
        Document::Classifier(classifier) => minimize::gates(classifier.circuit()),
    }
}

/// Returns what the start state of an experiment says about each channel, for [`Options::start`].
pub fn start_of(experiment: &Experiment) -> Vec<Start> {
    let channels = experiment.automaton.channels;
    match &experiment.start {
        states::Start::Zeros => vec![Start::Zero; channels],
        states::Start::Seed => vec![Start::Alike; channels],
        // Given grids set one channel or three.
        states::Start::Grids { .. } => {
            (0..channels).map(|channel| if channel < 3 { Start::Free } else { Start::Zero }).collect()
        }
        _ => vec![Start::Free; channels],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn miters_are_never_1_unless_a_gate_is_changed() {
        let life: Document = gatework_logic::rules::life(gatework_logic::Boundary::Torus).into();
        let plain: Document = life.circuit().clone().into();
        for document in [life, plain] {
            let proved = with_proof(&document, &Options::default(), PROOF_TIME).unwrap();
            let miter = proved.miter(&document).unwrap();
            let bits = |input: usize| (0..9).map(|k| input >> k & 1 == 1).collect::<Vec<_>>();
            assert!((0..512).all(|input| miter.eval(&bits(input)).unwrap() == [false]));
            let mut other = proved.clone();
            let changed = rules_of_all_ones();
            other.document = match &document {
                Document::Automaton { observed, .. } => {
                    Document::Automaton { automaton: changed, observed: *observed }
                }
                _ => changed.circuit.into(),
            };
            let miter = other.miter(&document).unwrap();
            let wrong = (0..512).filter(|&input| miter.eval(&bits(input)).unwrap() == [true]).count();
            assert_eq!(wrong, 512 - 140, "Life has 140 neighbourhoods with a live centre afterwards");
        }
    }

    /// An automaton of one channel whose cells become 1.
    fn rules_of_all_ones() -> Automaton {
        let gates = vec![gatework_logic::Node::new(gatework_logic::Gate::TRUE, 0, 0)];
        let circuit = Circuit::new(9, gates, vec![9]).unwrap();
        Automaton::new(1, gatework_logic::Boundary::Torus, circuit).unwrap()
    }

    #[test]
    fn an_interrupt_at_the_end_of_a_proof_is_not_lost() {
        let stop = AtomicBool::new(false);
        let control = Control { proof_time: PROOF_TIME, stop: &stop, observer: &|_, _| {} };
        assert!(control.prove(0, |_| Ok(Verdict::Equal)).is_ok());
        let interrupted = control.prove(0, |_| {
            stop.store(true, Ordering::Relaxed);
            Ok(Verdict::Equal)
        });
        assert!(matches!(interrupted, Err(MinimizeError::Interrupted)));
    }
}
