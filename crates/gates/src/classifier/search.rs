//! Search on the hard circuit against the training rows: gates are fitted again, one at a time, functions and wires.
//!
//! ```text
//! for each gate, in random order:
//!     invert it for all samples, update the gates that depend on it, 64 samples at a time
//!     d(s) = loss of sample s if the gate is 1 - loss if it is 0, all else being equal
//!     for some pairs of wires: D = sums of d over the samples with each of the four assignments
//!     the best function of the pair is 1 where D is negative, and its loss is the sum of these D
//!     take the best pair and function if it gains more than a choice among so many gains by chance
//! ```
//!
//! So the best of all 16 functions is found at the cost of one evaluation, exactly. The loss is the cross-entropy of
//! training, of popcounts. A gate that does as well as a wire or a constant becomes one, so circuits also get smaller.
//! The rows that are held back choose among the circuits after each sweep.

use std::sync::atomic::{AtomicBool, Ordering};

use gatework_logic::classifier::Classifier;
use gatework_logic::{Circuit, Gate, Node};
use gatework_train::experiment::{Problem, problem};
use gatework_train::random::{Purpose, Random};
use serde::{Deserialize, Serialize};

use super::ClassifierError;
use super::task::Subset;

/// Samples of a word.
const WORD: usize = 64;

/// How long a search is: the `[search]` table of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SearchSettings {
    /// Most passes over all gates; the search ends earlier if a pass does not improve the held-back rows twice in a row.
    pub sweeps: usize,
    /// Pairs of wires that are compared for each gate.
    pub pairs: usize,
}

impl Default for SearchSettings {
    fn default() -> SearchSettings {
        SearchSettings { sweeps: 10, pairs: 24 }
    }
}

/// Most passes, and most pairs of a gate.
const MAX_SWEEPS: usize = 1000;
const MAX_PAIRS: usize = 4096;

impl SearchSettings {
    /// Checks the range of every number.
    pub fn check(self) -> Result<(), Problem> {
        for (key, value, most) in [("sweeps", self.sweeps, MAX_SWEEPS), ("pairs", self.pairs, MAX_PAIRS)] {
            if !(1..=most).contains(&value) {
                let message = format!("search.{key} is {value}, but must be from 1 to {most}");
                return problem(&["search", key], message);
            }
        }
        Ok(())
    }
}

/// What a search found.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Searched {
    /// The best classifier on the held-back rows.
    pub classifier: Classifier,
    /// Share of the held-back rows that it gets right.
    pub accuracy: f64,
    /// The same before the search.
    pub accuracy_before: f64,
    /// Passes over all gates.
    pub sweeps: usize,
    /// Mean cross-entropy of the training rows before the search and after each pass.
    pub losses: Vec<f64>,
}

/// Fits the gates of a classifier to training rows. Among the circuits after each pass, that with the highest accuracy on `held` is
/// returned, which may be the original. The result depends on the seed only.
pub fn search(
    original: &Classifier,
    train: &Subset,
    held: &Subset,
    settings: SearchSettings,
    seed: u64,
    stop: &AtomicBool,
) -> Result<Searched, ClassifierError> {
    let accuracy_before = held.accuracy(original)?;
    let mut best = Searched {
        classifier: original.clone(),
        accuracy: accuracy_before,
        accuracy_before,
        sweeps: 0,
        losses: Vec::new(),
    };
    let mut state = State::new(original, train)?;
    best.losses.push(state.mean_loss());
    let mut random = Random::new(seed, Purpose::Search, 0);
    let mut failures = 0;
    for sweep in 1..=settings.sweeps {
        let changes = state.sweep(settings.pairs.max(1), &mut random, stop);
        if stop.load(Ordering::Relaxed) {
            break;
        }
        best.losses.push(state.mean_loss());
        let classifier = original.clone().with_circuit(state.circuit(original.circuit())?)?;
        let accuracy = held.accuracy(&classifier)?;
        failures = if accuracy > best.accuracy { 0 } else { failures + 1 };
        if accuracy >= best.accuracy {
            best = Searched { classifier, accuracy, sweeps: sweep, ..best };
        }
        if changes == 0 || failures == 2 {
            break;
        }
    }
    Ok(best)
}

/// The value of every signal for every sample, and the scores that follow.
struct State {
    inputs: usize,
    nodes: Vec<Node>,
    /// Words of a signal.
    words: usize,
    samples: usize,
    /// Signal after signal, 64 samples a word. Bits after the last sample are arbitrary.
    values: Vec<u64>,
    /// The gates that read a signal.
    readers: Vec<Vec<u32>>,
    /// The classes of the outputs that are a signal.
    classes: Vec<Vec<u32>>,
    /// The longest path from an input to a signal.
    levels: Vec<u32>,
    /// All signals by their levels, and the number of signals below each level.
    by_level: Vec<u32>,
    below: Vec<usize>,
    labels: Vec<u32>,
    /// Ones of each class, sample after sample.
    counts: Vec<u32>,
    /// `exp(count / temperature)`, divided by that of the largest count.
    powers: Vec<f64>,
    temperature: f64,
    losses: Vec<f64>,
}

impl State {
    fn new(classifier: &Classifier, train: &Subset) -> Result<State, ClassifierError> {
        let circuit = classifier.circuit();
        let rows = train.data.select(&train.rows);
        let mut values = classifier.encoder().encode(rows.as_rows())?;
        let samples = train.rows.len();
        let (inputs, words) = (circuit.inputs(), samples.div_ceil(WORD));
        values.resize(circuit.signals() * words, 0);
        let mut readers = vec![Vec::new(); circuit.signals()];
        let mut levels = vec![0u32; circuit.signals()];
        for (gate, node) in circuit.nodes().iter().enumerate() {
            let signal = inputs + gate;
            for operand in node.dependencies() {
                readers[operand as usize].push(signal as u32);
                levels[signal] = levels[signal].max(levels[operand as usize] + 1);
            }
            levels[signal] = levels[signal].max(1);
        }
        let mut by_level: Vec<u32> = (0..circuit.signals() as u32).collect();
        by_level.sort_by_key(|&signal| levels[signal as usize]);
        let deepest = levels.iter().max().map_or(0, |&level| level as usize);
        let below = (0..=deepest)
            .map(|level| by_level.partition_point(|&signal| (levels[signal as usize] as usize) < level))
            .collect();
        let head = classifier.head();
        let mut classes = vec![Vec::new(); circuit.signals()];
        let mut outputs = circuit.outputs().iter();
        for (class, group) in (0u32..).zip(head.classes()) {
            for &output in outputs.by_ref().take(group.outputs) {
                classes[output as usize].push(class);
            }
        }
        let most = head.max_score();
        let temperature = f64::from(head.temperature());
        let power = |count: u32| ((f64::from(count) - f64::from(most)) / temperature).exp();
        let offsets = head.classes().iter().map(|class| class.offset);
        let mut state = State {
            inputs,
            nodes: circuit.nodes().to_vec(),
            words,
            samples,
            values,
            readers,
            classes,
            levels,
            by_level,
            below,
            labels: train.labels.clone(),
            counts: offsets.cycle().take(samples * head.classes().len()).collect(),
            powers: (0..=most).map(power).collect(),
            temperature,
            losses: vec![0.0; samples],
        };
        for gate in 0..state.nodes.len() {
            state.evaluate(gate);
        }
        for signal in 0..circuit.signals() {
            let ones = state.values[signal * words..][..words].to_vec();
            state.count(signal, &vec![0; words], &ones);
        }
        for sample in 0..samples {
            state.losses[sample] = state.loss(sample);
        }
        Ok(state)
    }

    /// The circuit of the current gates.
    fn circuit(&self, original: &Circuit) -> Result<Circuit, ClassifierError> {
        Ok(Circuit::new(self.inputs, self.nodes.clone(), original.outputs().to_vec())?)
    }

    fn mean_loss(&self) -> f64 {
        self.losses.iter().sum::<f64>() / self.samples.max(1) as f64
    }

    fn class_count(&self) -> usize {
        self.counts.len() / self.samples.max(1)
    }

    /// Computes the values of a gate.
    fn evaluate(&mut self, gate: usize) {
        let Node { gate: function, a, b } = self.nodes[gate];
        let to = (self.inputs + gate) * self.words;
        let (before, after) = self.values.split_at_mut(to);
        let operand = |signal: u32| before.get(signal as usize * self.words..).unwrap_or_default();
        let (a, b) = (operand(a), operand(b));
        for (at, to) in after[..self.words].iter_mut().enumerate() {
            // The operands of a constant may not exist.
            let [a, b] = [a, b].map(|words| words.get(at).copied().unwrap_or(0));
            *to = function.eval_word(a, b);
        }
    }

    /// The cross-entropy of a sample.
    fn loss(&self, sample: usize) -> f64 {
        let classes = self.class_count();
        let counts = &self.counts[sample * classes..][..classes];
        let sum: f64 = counts.iter().map(|&count| self.powers[count as usize]).sum();
        let right = counts[self.labels[sample] as usize] as usize;
        let exponent = (right as f64 - (self.powers.len() - 1) as f64) / self.temperature;
        sum.ln() - exponent
    }

    /// Changes the counts where a signal changes from some values to others.
    fn count(&mut self, signal: usize, from: &[u64], to: &[u64]) {
        let classes = self.class_count();
        for at in 0..self.classes[signal].len() {
            let class = self.classes[signal][at] as usize;
            for (word, (from, to)) in from.iter().zip(to).enumerate() {
                let mut changed = from ^ to;
                while changed != 0 {
                    let bit = changed.trailing_zeros() as usize;
                    changed &= changed - 1;
                    let sample = word * WORD + bit;
                    if sample < self.samples {
                        let count = &mut self.counts[sample * classes + class];
                        if to >> bit & 1 == 1 { *count += 1 } else { *count -= 1 }
                    }
                }
            }
        }
    }

    /// Sets the values of a signal, updates everything that depends on it, and returns the samples with other scores.
    fn set(&mut self, signal: usize, values: &[u64]) -> Vec<u64> {
        let words = self.words;
        let mut touched = vec![0u64; words];
        let mut waiting = std::collections::BTreeSet::from([signal as u32]);
        let mut before = vec![0; words];
        while let Some(next) = waiting.pop_first() {
            let at = next as usize;
            before.copy_from_slice(&self.values[at * words..][..words]);
            if at == signal {
                self.values[at * words..][..words].copy_from_slice(values);
            } else {
                self.evaluate(at - self.inputs);
            }
            if self.values[at * words..][..words] == before[..] {
                continue;
            }
            if !self.classes[at].is_empty() {
                let after = self.values[at * words..][..words].to_vec();
                touched.iter_mut().zip(before.iter().zip(&after)).for_each(|(to, (a, b))| *to |= a ^ b);
                self.count(at, &before, &after);
            }
            waiting.extend(&self.readers[at]);
        }
        touched
    }

    /// Fits every gate once, in random order, and returns the number of gates that changed.
    fn sweep(&mut self, pairs: usize, random: &mut Random, stop: &AtomicBool) -> usize {
        let mut order: Vec<u32> = (0..self.nodes.len() as u32).collect();
        random.shuffle(&mut order);
        let mut changes = 0;
        for gate in order {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            changes += usize::from(self.fit(gate as usize, pairs, random));
        }
        changes
    }

    /// Fits a gate: chooses its wires and its function. Returns whether it changed.
    fn fit(&mut self, gate: usize, pairs: usize, random: &mut Random) -> bool {
        let (signal, words) = (self.inputs + gate, self.words);
        if self.classes[signal].is_empty() && self.readers[signal].is_empty() {
            return false;
        }
        let now = self.values[signal * words..][..words].to_vec();
        let inverted: Vec<u64> = now.iter().map(|word| !word).collect();
        let touched = self.set(signal, &inverted);
        // Loss of a 1 minus loss of a 0.
        let mut weights = vec![0.0f32; words * WORD];
        for (word, &touched) in touched.iter().enumerate() {
            let mut bits = touched;
            while bits != 0 {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                let sample = word * WORD + bit;
                if sample < self.samples {
                    let delta = self.loss(sample) - self.losses[sample];
                    weights[sample] = if now[word] >> bit & 1 == 1 { -delta } else { delta } as f32;
                }
            }
        }
        let loss_now: f64 = ones(&now, &weights);
        let node = self.nodes[gate];
        let choices = self.below[self.levels[signal] as usize];
        let mut best: Option<(f64, Node)> = None;
        // A gain that the best of so many choices has by chance, in nats.
        let chance = (16.0 * pairs as f64).ln();
        for pair in 0..pairs {
            let mut draw = || self.by_level[random.below(choices)];
            let (a, b) = match pair {
                0 => (node.a, node.b),
                pair if pair % 2 == 1 => (node.a, draw()),
                _ => (draw(), node.b),
            };
            // The operands of a constant may not exist.
            let [a, b] = [a, b].map(|operand| if (operand as usize) < signal { operand } else { 0 });
            let sums = self.sums(a, b, &weights);
            for function in Gate::ALL {
                let value = |(at, sum): (usize, &f64)| {
                    if function.eval(at & 1 == 1, at & 2 == 2) { *sum } else { 0.0 }
                };
                let loss: f64 = sums.iter().enumerate().map(value).sum();
                let saves = f64::from(u8::from(function.is_wire() || function.is_constant()));
                let gain = loss_now - loss + saves * WIRE_BONUS - if pair == 0 { 0.0 } else { chance };
                if best.is_none_or(|(most, _)| gain > most) {
                    best = Some((gain, Node::new(function, a, b)));
                }
            }
        }
        let was_wire = f64::from(u8::from(node.gate.is_wire() || node.gate.is_constant()));
        let chosen = best.filter(|&(gain, chosen)| gain > was_wire * WIRE_BONUS + MIN_GAIN && chosen != node);
        let Some((_, chosen)) = chosen else {
            self.set(signal, &now);
            return false;
        };
        self.replace(gate, chosen);
        let old = self.nodes[gate];
        debug_assert_eq!(old, chosen);
        let mut values = vec![0; words];
        for (at, value) in values.iter_mut().enumerate() {
            let operand = |signal: u32| self.values[signal as usize * words + at];
            *value = chosen.gate.eval_word(operand(chosen.a), operand(chosen.b));
        }
        self.set(signal, &values);
        for sample in 0..self.samples {
            if touched[sample / WORD] >> (sample % WORD) & 1 == 1 {
                self.losses[sample] = self.loss(sample);
            }
        }
        true
    }

    /// Replaces a gate and who reads what.
    fn replace(&mut self, gate: usize, node: Node) {
        let signal = (self.inputs + gate) as u32;
        for operand in self.nodes[gate].dependencies() {
            self.readers[operand as usize].retain(|&reader| reader != signal);
        }
        self.nodes[gate] = node;
        for operand in node.dependencies() {
            if !self.readers[operand as usize].contains(&signal) {
                self.readers[operand as usize].push(signal);
            }
        }
    }

    /// The sums of the weights of the samples for each assignment `a + 2 b` of two signals.
    fn sums(&self, a: u32, b: u32, weights: &[f32]) -> [f64; 4] {
        let words = |signal: u32| &self.values[signal as usize * self.words..][..self.words];
        let mut sums = [0.0f64; 4];
        for ((a, b), weights) in words(a).iter().zip(words(b)).zip(weights.chunks_exact(WORD)) {
            let mut part = [0.0f32; 4];
            for (bit, weight) in weights.iter().enumerate() {
                let at = (a >> bit & 1) | (b >> bit & 1) << 1;
                part[at as usize & 3] += weight;
            }
            sums.iter_mut().zip(part).for_each(|(sum, part)| *sum += f64::from(part));
        }
        sums
    }
}

/// Loss, in nats, that a gate may add if it becomes a wire or a constant.
const WIRE_BONUS: f64 = 0.1;

/// Smallest gain that a change needs, in nats: more than rounding.
const MIN_GAIN: f64 = 1e-3;

/// The sum of the weights of the samples that are 1.
fn ones(values: &[u64], weights: &[f32]) -> f64 {
    let of_word = |(word, weights): (&u64, &[f32])| -> f64 {
        let part = |(bit, weight): (usize, &f32)| if word >> bit & 1 == 1 { *weight } else { 0.0 };
        weights.iter().enumerate().map(part).map(f64::from).sum()
    };
    values.iter().zip(weights.chunks_exact(WORD)).map(of_word).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::experiment::ClassifierExperiment;
    use crate::classifier::task::Prepared;

    fn untrained(layers: &[usize]) -> (Prepared, Classifier) {
        let mut experiment = ClassifierExperiment::find("iris").unwrap().experiment;
        experiment.data.validation = 0.2;
        experiment.model.layers = layers.to_vec();
        let prepared = experiment.prepare().unwrap();
        let network = prepared.network(&experiment.model, &experiment.training, 1).unwrap();
        let classifier = prepared.harden(&network).unwrap();
        (prepared, classifier)
    }

    /// After a sweep, values, counts and losses are those of the circuit, computed from scratch.
    #[test]
    fn what_is_kept_is_what_the_circuit_computes() {
        for layers in [&[60][..], &[40, 60], &[30, 30, 30]] {
            let (prepared, classifier) = untrained(layers);
            let mut state = State::new(&classifier, &prepared.train).unwrap();
            let before = state.mean_loss();
            let changes = state.sweep(6, &mut Random::new(2, Purpose::Search, 0), &AtomicBool::new(false));
            assert!(changes > 0 && state.mean_loss() < before);
            let circuit = state.circuit(classifier.circuit()).unwrap();
            let depth = classifier.circuit().depth();
            assert!(circuit.depth() <= depth, "{} of {depth}", circuit.depth());
            let changed = classifier.clone().with_circuit(circuit).unwrap();
            let fresh = State::new(&changed, &prepared.train).unwrap();
            assert_eq!(state.counts, fresh.counts);
            for (kept, fresh) in state.losses.iter().zip(&fresh.losses) {
                assert!((kept - fresh).abs() < 1e-9, "{kept} for {fresh}");
            }
            let rows = prepared.train.data.gather(&prepared.train.rows);
            let columns = prepared.train.data.features().len();
            for (sample, row) in rows.chunks(columns).enumerate() {
                assert_eq!(changed.scores(row).unwrap(), state.counts[sample * 3..][..3]);
            }
        }
    }

    #[test]
    fn the_held_back_rows_do_not_get_worse_and_the_seed_decides() {
        let (prepared, classifier) = untrained(&[60]);
        let run = || {
            let stop = AtomicBool::new(false);
            search(&classifier, &prepared.train, &prepared.validation, SearchSettings::default(), 3, &stop)
                .unwrap()
        };
        let found = run();
        assert!(found.accuracy >= found.accuracy_before && found.losses[1] < found.losses[0]);
        assert_eq!(found.accuracy, prepared.validation.accuracy(&found.classifier).unwrap());
        assert_eq!(run().classifier, found.classifier);
    }
}
