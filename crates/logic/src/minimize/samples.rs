//! Reduction of classifiers on samples: gates are replaced by what they are on all given samples.
//!
//! Gates that are constant, equal to another signal, or a function of nearby signals on all samples, or all but a tolerated
//! share, are replaced. The samples are evaluated block by block, 64 per word, and a gate is described by a hash of its
//! values and by counts; no value is kept. The result may differ on other samples.

use super::classifier::without_unused_ports;
use crate::circuit::{Circuit, Node};
use crate::classifier::{Classifier, ClassifierError, Rows};
use crate::gate::Gate;
use crate::literal::Literal;
use crate::prove::sweep::mix;
use crate::stop::{Stop, Stopped};
use crate::xag::Xag;
use rustc_hash::FxHashMap;

/// The words of samples that are evaluated at a time.
const BLOCK: usize = 16;
/// The most rounds of replacements.
const ROUNDS: usize = 8;

/// Returns a smaller classifier that agrees with the given one on samples, gate by gate.
///
/// A gate is replaced if its value on all samples, except for a share of at most `tolerance`, is constant, that of another
/// signal or its inverse, or a function of two signals among its fanins and theirs, of which one was a gate that nothing
/// else reads. **The result is not equivalent**: measure it on samples that were held back.
pub fn reduce_on_samples<'a>(
    classifier: &Classifier,
    rows: impl Into<Rows<'a>>,
    tolerance: f64,
    stop: &Stop<'_>,
) -> Result<Classifier, ReduceError> {
    let rows = rows.into();
    let samples = classifier.encoder().count(rows)?;
    if samples == 0 {
        return Err(ReduceError::NoSamples);
    }
    let encoded = classifier.encoder().encode(rows)?;
    let tolerated = (tolerance.clamp(0.0, 0.5) * samples as f64) as u32;
    let mut circuit = classifier.circuit().simplify();
    for _ in 0..ROUNDS {
        let before = circuit.nodes().len();
        circuit = reduce_once(&circuit, &encoded, samples, tolerated, stop)?;
        if circuit.nodes().len() >= before {
            break;
        }
    }
    Ok(without_unused_ports(&classifier.clone().with_circuit(circuit)?))
}

/// A classifier that cannot be reduced on samples.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReduceError {
    /// There are no samples.
    #[error("there are no samples to reduce the classifier on")]
    NoSamples,
    /// The rows do not have the features of the classifier.
    #[error(transparent)]
    Classifier(#[from] ClassifierError),
    /// The work was stopped.
    #[error(transparent)]
    Stopped(#[from] Stopped),
}

/// How often a gate is 0 and 1 for each of the four assignments of two signals.
#[derive(Clone, Copy, Default)]
struct Counts([[u32; 2]; 4]);

impl Counts {
    fn add(&mut self, x: u64, y: u64, value: u64, valid: u64) {
        for (i, counts) in self.0.iter_mut().enumerate() {
            let x = if i & 1 == 1 { x } else { !x };
            let y = if i & 2 == 2 { y } else { !y };
            let here = x & y & valid;
            counts[1] += (here & value).count_ones();
            counts[0] += (here & !value).count_ones();
        }
    }

    /// The function of the two signals with the fewest wrong samples (bit i is its value for assignment i), and
    /// their number.
    fn best(&self) -> (u32, u32) {
        let bit = |i: usize| u32::from(self.0[i][1] > self.0[i][0]) << i;
        ((0..4).map(bit).sum(), self.0.iter().map(|counts| counts[0].min(counts[1])).sum())
    }
}

/// What is observed about a gate.
#[derive(Clone, Default)]
struct Observed {
    /// The hash of its values, or of their inverses if the first value is 1.
    hash: [u64; 2],
    inverted: bool,
    ones: u32,
    candidates: Vec<(u32, u32, Counts)>,
}

/// One round of replacements.
fn reduce_once(
    circuit: &Circuit,
    encoded: &[u64],
    samples: usize,
    tolerated: u32,
    stop: &Stop<'_>,
) -> Result<Circuit, Stopped> {
    let words = samples.div_ceil(64);
    let inputs = circuit.inputs();
    let mut observed = candidates(circuit);
    let mut values = vec![[0u64; BLOCK]; circuit.signals()];
    for start in (0..words).step_by(BLOCK) {
        stop.check()?;
        let len = BLOCK.min(words - start);
        for (signal, block) in values.iter_mut().take(inputs).enumerate() {
            block[..len].copy_from_slice(&encoded[signal * words + start..][..len]);
        }
        evaluate(circuit, &mut values);
        // The bits after the last sample do not count.
        let mut valid = [u64::MAX; BLOCK];
        if start + len == words {
            valid[len - 1] >>= samples.wrapping_neg() % 64;
        }
        for (signal, seen) in observed.iter_mut().enumerate() {
            if start == 0 {
                seen.inverted = values[signal][0] & 1 == 1;
            }
            seen.observe(signal, &values, &valid[..len]);
        }
    }
    Ok(rebuild(circuit, &observed, samples as u32, tolerated))
}

/// Computes the gates of a block of samples; the inputs are given.
fn evaluate(circuit: &Circuit, values: &mut [[u64; BLOCK]]) {
    for (i, node) in circuit.nodes().iter().enumerate() {
        // The operands of a constant may not exist.
        let [a, b] = [node.a, node.b].map(|signal| values.get(signal as usize).copied().unwrap_or_default());
        values[circuit.inputs() + i] = std::array::from_fn(|k| node.gate.eval_word(a[k], b[k]));
    }
}

impl Observed {
    /// Takes the values of a block of samples into account.
    fn observe(&mut self, signal: usize, values: &[[u64; BLOCK]], valid: &[u64]) {
        for (k, &valid) in valid.iter().enumerate() {
            let value = values[signal][k] & valid;
            self.ones += value.count_ones();
            let canonical = if self.inverted { !value & valid } else { value };
            let [first, second] = self.hash;
            self.hash = [mix(first, canonical), mix(second ^ 0x9e37, canonical.rotate_left(17))];
            for (x, y, counts) in &mut self.candidates {
                counts.add(values[*x as usize][k], values[*y as usize][k], value, valid);
            }
        }
    }
}

/// The pairs of signals that a gate may be a function of: a fanin and a fanin of the other one, if that other one has no
/// other reader.
fn candidates(circuit: &Circuit) -> Vec<Observed> {
    let mut readers = vec![0u32; circuit.signals()];
    let operands = circuit.nodes().iter().flat_map(|node| node.dependencies());
    operands.chain(circuit.outputs().iter().copied()).for_each(|signal| readers[signal as usize] += 1);
    let mut observed = vec![Observed::default(); circuit.signals()];
    for (i, node) in circuit.nodes().iter().enumerate() {
        let seen = &mut observed[circuit.inputs() + i];
        let [depends_a, depends_b] = [node.gate.depends_on_a(), node.gate.depends_on_b()];
        if !(depends_a && depends_b) {
            continue;
        }
        seen.candidates.push((node.a, node.b, Counts::default()));
        for (kept, dropped) in [(node.a, node.b), (node.b, node.a)] {
            let Some(inner) = circuit.node(dropped).filter(|_| readers[dropped as usize] == 1) else {
                continue;
            };
            let inner = inner.dependencies().filter(|&signal| signal != kept);
            seen.candidates.extend(inner.map(|signal| (kept, signal, Counts::default())));
        }
    }
    observed
}

/// The circuit with all replacements. Replacements refer to the values of the original, and all of them are earlier signals.
fn rebuild(circuit: &Circuit, observed: &[Observed], samples: u32, tolerated: u32) -> Circuit {
    let mut xag = Xag::new(circuit.inputs());
    let mut literals: Vec<Literal> = Vec::with_capacity(circuit.signals());
    let mut first: FxHashMap<[u64; 2], (Literal, bool)> = FxHashMap::default();
    for (signal, seen) in observed.iter().enumerate() {
        let gate = signal.checked_sub(circuit.inputs()).map(|gate| circuit.nodes()[gate]);
        let literal = if seen.ones <= tolerated {
            Literal::FALSE
        } else if seen.ones >= samples - tolerated.min(samples) {
            Literal::TRUE
        } else if let Some(&(stand, inverted)) = first.get(&seen.hash) {
            stand.invert_if(inverted != seen.inverted)
        } else {
            match gate {
                None => Literal::input(signal),
                Some(node) => approximated(&mut xag, &literals, node, seen, tolerated),
            }
        };
        first.entry(seen.hash).or_insert((literal, seen.inverted));
        literals.push(literal);
    }
    xag.set_outputs(circuit.outputs().iter().map(|&signal| literals[signal as usize]).collect());
    xag.without_dead_gates().to_circuit(circuit)
}

/// A gate as the simplest function of its candidates that is right on all samples, except for the tolerated number.
fn approximated(xag: &mut Xag, literals: &[Literal], node: Node, seen: &Observed, tolerated: u32) -> Literal {
    // The candidates after the first save a gate each; a function of one signal or none saves the gate itself.
    let simple = |table: u32| matches!(table, 0b0000 | 0b1111 | 0b1010 | 0b0101 | 0b1100 | 0b0011);
    let mut best: Option<(bool, u32, usize, u32)> = None;
    for (i, (_, _, counts)) in seen.candidates.iter().enumerate() {
        let (table, wrong) = one_signal(counts, tolerated).unwrap_or_else(|| counts.best());
        let saves = i > 0 || simple(table);
        let key = (!simple(table), wrong, i, table);
        if wrong <= tolerated && saves && best.is_none_or(|best| key < best) {
            best = Some(key);
        }
    }
    let Some((_, _, i, table)) = best else {
        return match node.gate {
            Gate::FALSE => Literal::FALSE,
            Gate::TRUE => Literal::TRUE,
            gate => xag.gate(gate, literals[node.a as usize], literals[node.b as usize]),
        };
    };
    let (x, y, _) = seen.candidates[i];
    let [x, y] = [x, y].map(|signal| literals[signal as usize]);
    let mut minterms = Literal::FALSE;
    for i in (0..4).filter(|i| table >> i & 1 == 1) {
        let minterm = xag.and(x.invert_if(i & 1 == 0), y.invert_if(i & 2 == 0));
        minterms = xag.or(minterms, minterm);
    }
    match table {
        0b0000 => Literal::FALSE,
        0b1111 => Literal::TRUE,
        0b1010 => x,
        0b0101 => x.not(),
        0b1100 => y,
        0b0011 => y.not(),
        0b0110 => xag.xor(x, y),
        0b1001 => xag.xor(x, y).not(),
        0b0111 => xag.and(x, y).not(),
        0b1011 => xag.or(x, y.not()),
        0b1101 => xag.or(x.not(), y),
        0b1110 => xag.or(x, y),
        _ => minterms,
    }
}

/// The best function of only one of the two signals, if few enough samples are wrong.
fn one_signal(counts: &Counts, tolerated: u32) -> Option<(u32, u32)> {
    let tables = [0b1010u32, 0b0101, 0b1100, 0b0011];
    let wrong = |table: u32| -> u32 { (0..4).map(|i| counts.0[i][usize::from(table >> i & 1 == 0)]).sum() };
    let best = tables.into_iter().map(|table| (wrong(table), table)).min()?;
    (best.0 <= tolerated).then_some((best.1, best.0))
}

#[cfg(test)]
mod tests {
    use super::super::classifier::tests::{assert_same_scores, rows};
    use super::super::gates;
    use super::*;
    use crate::arbitrary;
    use crate::classifier::{Encoder, Feature, Head};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn reduced_classifiers_have_the_same_scores_on_the_samples(
            classifier in arbitrary::classifier(),
            samples in prop_oneof![1usize..5, 60usize..130],
        ) {
            let rows = rows(classifier.encoder(), samples);
            let reduced = reduce_on_samples(&classifier, &rows, 0.0, &Stop::never()).unwrap();
            prop_assert!(gates(reduced.circuit()) <= gates(classifier.circuit()));
            assert_same_scores(&classifier, &reduced, &rows);
        }
    }

    #[test]
    fn what_samples_never_show_is_removed() {
        // On the samples a implies b, so a and b is a, and the rest of the gates follows.
        let features = ["a", "b"].map(|name| Feature::numeric(name, vec![0.5])).to_vec();
        let nodes = vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::XOR, 2, 0), Node::new(Gate::OR, 3, 1)];
        let circuit = Circuit::new(2, nodes, vec![2, 4]).unwrap();
        let head = Head::equal_groups(vec!["x".into(), "y".into()], 2, 1.0).unwrap();
        let classifier = Classifier::new(Encoder::new(features, None).unwrap(), circuit, head).unwrap();
        let rows = [0.0f32, 0.0, 0.0, 1.0, 1.0, 1.0];
        let reduced = reduce_on_samples(&classifier, &rows, 0.0, &Stop::never()).unwrap();
        assert_eq!(gates(reduced.circuit()), 0);
        assert_same_scores(&classifier, &reduced, &rows);
        let none = reduce_on_samples(&classifier, &[0.0f32; 0], 0.0, &Stop::never()).unwrap_err();
        assert_eq!(none.to_string(), "there are no samples to reduce the classifier on");
    }
}
