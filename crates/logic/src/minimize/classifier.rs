//! Exact minimisation of classifiers, under the constraints of the encoder.
//!
//! The circuit is minimised as any other. The bits of an encoder are not
//! independent: a value above a threshold is above all lower ones, and a value has one category. Signals that are equal
//! for all bits that an encoder can produce are merged. This is found and proved on the circuit behind a projection that
//! maps every assignment to one that the encoder can produce, and leaves those unchanged. Then constant outputs move to the
//! offsets of the head, and thresholds that nothing reads leave the encoder.
//!
//! [`reduce_on_samples`](super::reduce_on_samples) goes further, without a proof.

use super::{Minimized, Observer, Options, SWEEP, Statistics, minimize_until};
use crate::circuit::{Circuit, Node};
use crate::classifier::{Class, Classifier, ClassifierError, Encoder, Feature, FeatureKind, Head, MAX_PIXEL};
use crate::gate::Gate;
use crate::literal::Literal;
use crate::prove::sweep::sweep;
use crate::prove::{ProveError, Verdict, equivalent_until};
use crate::stop::{Stop, Stopped};
use crate::xag::Xag;
use rustc_hash::FxHashMap;

/// A minimised classifier, and the steps that its proof follows.
#[derive(Clone, Debug)]
pub struct MinimizedClassifier {
    /// The classifier. Its scores are those of the original.
    pub classifier: Classifier,
    /// Gates and depth of the circuit between encoder and head.
    pub statistics: Statistics,
    first: Minimized,
    /// The circuit after merging under the constraints of the encoder, and the minimised result, if it is smaller.
    merged: Option<(Circuit, Minimized)>,
}

impl MinimizedClassifier {
    /// Checks whether the circuits compute the same outputs for all bits that the encoder can produce.
    pub fn prove(&self, original: &Classifier, stop: &Stop<'_>) -> Result<Verdict, ProveError> {
        let verdict = self.first.prove(original.circuit(), stop)?;
        let Some((merged, second)) = self.merged.as_ref().filter(|_| verdict == Verdict::Equal) else {
            return Ok(verdict);
        };
        let [before, after] =
            [&self.first.circuit, merged].map(|circuit| behind_projection(original.encoder(), circuit));
        match equivalent_until(&before, &after, stop)? {
            Verdict::Equal => second.prove(merged, stop),
            verdict => Ok(verdict),
        }
    }
}

/// Minimises a classifier without changing any score.
pub fn minimize_classifier_until(
    classifier: &Classifier,
    options: &Options,
    stop: &Stop<'_>,
    observer: &Observer<'_>,
) -> Result<MinimizedClassifier, Stopped> {
    // The second run would undo what the first one did for the depth.
    let plain = Options { depth: None, ..options.clone() };
    let mut first = minimize_until(classifier.circuit(), &plain, stop, observer)?;
    let mut merged = None;
    if is_constrained(classifier.encoder()) {
        observer("encoder", super::gates(&first.circuit));
        let circuit = merge_equal(classifier.encoder(), &first.circuit, stop)?;
        if super::gates(&circuit) < super::gates(&first.circuit) {
            let second = minimize_until(&circuit, &plain, stop, observer)?;
            merged = Some((circuit, second));
        }
    }
    if let Some(limit) = options.depth {
        match merged.take() {
            Some((circuit, second)) => merged = Some((circuit, second.with_depth(limit, stop, observer)?)),
            None => first = first.with_depth(limit, stop, observer)?,
        }
    }
    let small = merged.as_ref().map_or(&first, |(_, second)| second);
    let mut statistics = first.statistics.clone();
    statistics.gates_after = small.statistics.gates_after;
    statistics.depth_after = small.statistics.depth_after;
    if let Some((_, second)) = &merged {
        statistics.passes.extend(second.statistics.passes.iter().copied());
    }
    let smaller =
        classifier.clone().with_circuit(small.circuit.clone()).map(|small| without_unused_ports(&small));
    // The ports of a minimised circuit are those of the original.
    let classifier = smaller.unwrap_or_else(|_| classifier.clone());
    Ok(MinimizedClassifier { classifier, statistics, first, merged })
}

/// Whether some bits of the encoder depend on others.
fn is_constrained(encoder: &Encoder) -> bool {
    let outside = |&threshold: &f32| !(0.0..MAX_PIXEL as f32).contains(&threshold);
    let pixels = encoder.shape().is_some();
    encoder.features().iter().any(|feature| match &feature.kind {
        FeatureKind::Numeric(thresholds) => feature.bits() > 1 || pixels && thresholds.iter().any(outside),
        FeatureKind::Categorical(_) => feature.bits() > 1,
    })
}

/// The projection: literals that the encoder can produce for every assignment of the inputs, and that are the inputs if the
/// encoder can produce them.
fn projection(encoder: &Encoder, xag: &mut Xag) -> Vec<Literal> {
    let mut bits = Vec::with_capacity(encoder.bits());
    for (feature, range) in encoder.features().iter().zip(encoder.ranges()) {
        let inputs: Vec<Literal> = range.map(Literal::input).collect();
        let values = inputs.len() - usize::from(feature.missing);
        let mut any = Literal::FALSE;
        match &feature.kind {
            FeatureKind::Numeric(thresholds) => {
                let mut below = Literal::TRUE;
                for (&input, &threshold) in inputs.iter().zip(thresholds) {
                    below = match encoder.shape() {
                        Some(_) if threshold < 0.0 => Literal::TRUE,
                        Some(_) if threshold >= MAX_PIXEL as f32 => Literal::FALSE,
                        _ => xag.and(below, input),
                    };
                    bits.push(below);
                }
                any = if thresholds.is_empty() { Literal::FALSE } else { bits[bits.len() - values] };
            }
            FeatureKind::Categorical(_) => {
                for &input in &inputs[..values] {
                    bits.push(xag.and(input, any.not()));
                    any = xag.or(any, input);
                }
            }
        }
        if feature.missing {
            bits.push(xag.and(inputs[values], any.not()));
        }
    }
    bits
}

/// The circuit behind the projection.
fn behind_projection(encoder: &Encoder, circuit: &Circuit) -> Circuit {
    let mut xag = Xag::new(circuit.inputs());
    let bits = projection(encoder, &mut xag);
    let outputs = xag.add_circuit_on(circuit, bits);
    xag.set_outputs(outputs);
    xag.to_circuit(circuit)
}

/// Merges signals that are equal or inverse for all bits that the encoder can produce.
fn merge_equal(encoder: &Encoder, circuit: &Circuit, stop: &Stop<'_>) -> Result<Circuit, Stopped> {
    let mut xag = Xag::new(circuit.inputs());
    let mut literals = projection(encoder, &mut xag);
    for node in circuit.nodes() {
        let literal = match node.gate {
            Gate::FALSE => Literal::FALSE,
            Gate::TRUE => Literal::TRUE,
            gate => xag.gate(gate, literals[node.a as usize], literals[node.b as usize]),
        };
        literals.push(literal);
    }
    xag.set_outputs(literals);
    let swept = sweep(&xag, SWEEP, stop)?;
    // The first signal of each function stands for all others.
    let mut first: FxHashMap<usize, (Literal, bool)> = FxHashMap::default();
    first.insert(0, (Literal::FALSE, false));
    let stands = |(signal, literal): (usize, &Literal)| {
        let own = (Literal::from_signal(signal as u32), literal.is_inverted());
        let (stand, inverted) = *first.entry(literal.node()).or_insert(own);
        stand.invert_if(inverted != literal.is_inverted())
    };
    let replacements: Vec<Literal> = swept.outputs().iter().enumerate().map(stands).collect();
    Ok(replaced(circuit, &replacements))
}

/// Replaces every signal by a literal of an earlier signal, or itself.
fn replaced(circuit: &Circuit, replacements: &[Literal]) -> Circuit {
    let mut xag = Xag::new(circuit.inputs());
    let mut literals: Vec<Literal> = Vec::with_capacity(circuit.signals());
    let resolve = |literals: &[Literal], own: Literal, signal: usize| {
        let stand = replacements[signal];
        match (stand.is_constant(), stand.is_constant() || stand.signal() as usize == signal) {
            (true, _) => stand,
            (_, true) => own.invert_if(stand.is_inverted()),
            _ => literals[stand.signal() as usize].invert_if(stand.is_inverted()),
        }
    };
    for input in 0..circuit.inputs() {
        let literal = resolve(&literals, Literal::input(input), input);
        literals.push(literal);
    }
    for (i, node) in circuit.nodes().iter().enumerate() {
        let own = match node.gate {
            Gate::FALSE => Literal::FALSE,
            Gate::TRUE => Literal::TRUE,
            gate => xag.gate(gate, literals[node.a as usize], literals[node.b as usize]),
        };
        let literal = resolve(&literals, own, circuit.inputs() + i);
        literals.push(literal);
    }
    xag.set_outputs(circuit.outputs().iter().map(|&signal| literals[signal as usize]).collect());
    xag.without_dead_gates().to_circuit(circuit)
}

/// Moves constant outputs to the offsets of the head, and removes bits of the encoder that no gate reads.
pub(super) fn without_unused_ports(classifier: &Classifier) -> Classifier {
    let circuit = classifier.circuit().simplify();
    let mut outputs = Vec::new();
    let mut groups = circuit.outputs();
    let class = |class: &Class| {
        let group = groups.split_off(..class.outputs).unwrap_or_default();
        let constant = |&signal: &u32| match circuit.node(signal).map(|node| node.gate) {
            Some(Gate::FALSE) => Some(0),
            Some(Gate::TRUE) => Some(1),
            _ => None,
        };
        let offset = class.offset + group.iter().filter_map(constant).sum::<u32>();
        let before = outputs.len();
        outputs.extend(group.iter().copied().filter(|signal| constant(signal).is_none()));
        Class { name: class.name.clone(), outputs: outputs.len() - before, offset }
    };
    let classes: Vec<Class> = classifier.head().classes().iter().map(class).collect();
    let shrink = || -> Result<Classifier, ClassifierError> {
        let head = Head::new(classes, classifier.head().temperature())?;
        let circuit = Circuit::new(circuit.inputs(), circuit.nodes().to_vec(), outputs)?.simplify();
        let used = crate::formats::used_inputs(&circuit);
        let (encoder, kept) = smaller_encoder(classifier.encoder(), &used)?;
        let mut renumbered = vec![0u32; circuit.signals()];
        for (new, &old) in kept.iter().enumerate() {
            renumbered[old] = new as u32;
        }
        for gate in 0..circuit.nodes().len() {
            renumbered[circuit.inputs() + gate] = (kept.len() + gate) as u32;
        }
        let of = |signal: u32| renumbered[signal as usize];
        let nodes = circuit.nodes().iter().map(|node| Node::new(node.gate, of(node.a), of(node.b))).collect();
        let outputs = circuit.outputs().iter().map(|&signal| of(signal)).collect();
        Classifier::new(encoder, Circuit::new(kept.len(), nodes, outputs)?, head)
    };
    shrink().unwrap_or_else(|_| classifier.clone())
}

/// The encoder without the thresholds and missing bits that are not used, and the bits that are kept. Categories stay.
fn smaller_encoder(encoder: &Encoder, used: &[u32]) -> Result<(Encoder, Vec<usize>), ClassifierError> {
    let mut is_used = vec![false; encoder.bits()];
    for &bit in used {
        is_used[bit as usize] = true;
    }
    let mut kept = Vec::new();
    let mut shrink = |(feature, range): (&Feature, std::ops::Range<usize>)| {
        let kind = match &feature.kind {
            FeatureKind::Numeric(thresholds) => {
                let stays = |i: &usize| is_used[range.start + i];
                let list: Vec<usize> = (0..thresholds.len()).filter(stays).collect();
                kept.extend(list.iter().map(|i| range.start + i));
                FeatureKind::Numeric(list.into_iter().map(|i| thresholds[i]).collect())
            }
            FeatureKind::Categorical(names) => {
                kept.extend(range.start..range.start + names.len());
                FeatureKind::Categorical(names.clone())
            }
        };
        let missing = feature.missing && is_used[range.end - 1];
        kept.extend(missing.then(|| range.end - 1));
        Feature { name: feature.name.clone(), kind, missing }
    };
    let features = encoder.features().iter().zip(encoder.ranges()).map(&mut shrink).collect();
    Ok((Encoder::new(features, encoder.shape())?, kept))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    /// Values on both sides of all thresholds, and categories, some missing.
    pub fn rows(encoder: &Encoder, samples: usize) -> Vec<f32> {
        let mut numbers = arbitrary::numbers();
        let mut next = || (numbers.next().unwrap_or_default() >> 16) as usize;
        let pixels = encoder.shape().is_some();
        let mut value = |feature: &Feature| match &feature.kind {
            _ if pixels => (next() % 256) as f32,
            _ if next().is_multiple_of(8) => f32::NAN,
            FeatureKind::Numeric(thresholds) if thresholds.is_empty() => 0.0,
            FeatureKind::Numeric(thresholds) => {
                thresholds[next() % thresholds.len()] + (next() % 3) as f32 - 1.0
            }
            FeatureKind::Categorical(names) => (next() % (names.len() + 1)) as f32,
        };
        (0..samples).flat_map(|_| encoder.features()).map(&mut value).collect()
    }

    fn small(classifier: &Classifier) -> MinimizedClassifier {
        minimize_classifier_until(classifier, &Options::default(), &Stop::never(), &|_, _| {}).unwrap()
    }

    pub fn assert_same_scores(left: &Classifier, right: &Classifier, rows: &[f32]) {
        for row in rows.chunks_exact(left.encoder().features().len()) {
            assert_eq!(left.scores(row).unwrap(), right.scores(row).unwrap(), "{row:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn minimised_classifiers_have_the_same_scores_and_are_proved(classifier in arbitrary::classifier()) {
            let result = small(&classifier);
            prop_assert!(result.statistics.gates_after <= result.statistics.gates_before);
            prop_assert_eq!(result.prove(&classifier, &Stop::never()).unwrap(), Verdict::Equal);
            assert_same_scores(&classifier, &result.classifier, &rows(classifier.encoder(), 100));
        }
    }

    #[test]
    fn constraints_of_the_encoder_are_used_and_proved() {
        // x > 1 and x > 2 is x > 2; red and green is never true.
        let color = Feature::categorical("color", vec!["red".into(), "green".into()]);
        let encoder = Encoder::new(vec![Feature::numeric("x", vec![1.0, 2.0, 3.0]), color], None).unwrap();
        let nodes = vec![Node::new(Gate::AND, 0, 1), Node::new(Gate::AND, 3, 4), Node::new(Gate::NAND, 3, 4)];
        let circuit = Circuit::new(5, nodes, vec![5, 6, 7, 3]).unwrap();
        let head = Head::equal_groups(vec!["a".into(), "b".into()], 4, 1.0).unwrap();
        let classifier = Classifier::new(encoder, circuit, head).unwrap();
        let result = small(&classifier);
        assert_eq!(result.statistics.gates_after, 0);
        assert_eq!(result.prove(&classifier, &Stop::never()).unwrap(), Verdict::Equal);
        let classes = result.classifier.head().classes();
        assert_eq!((classes[0].outputs, classes[1].outputs, classes[1].offset), (1, 1, 1));
        // Only one threshold is left.
        assert_eq!(result.classifier.encoder().bits(), 3);
        assert_same_scores(&classifier, &result.classifier, &[0.0, 0.0, 2.5, 1.0, 9.0, f32::NAN, 1.5, 7.0]);
    }

    #[test]
    fn the_depth_is_reduced_after_the_constraints_are_used() {
        // A chain of ORs of categories of different features and of x > 1 and x > 2, which is x > 2.
        let color = |i: usize| Feature::categorical(format!("color{i}"), vec!["red".into(), "green".into()]);
        let features = [Feature::numeric("x", vec![1.0, 2.0])].into_iter().chain((0..8).map(color)).collect();
        let encoder = Encoder::new(features, None).unwrap();
        let mut nodes = vec![Node::new(Gate::AND, 0, 1)];
        nodes.extend((0..8u32).map(|i| Node::new(Gate::OR, 18 + i, 2 + 2 * i)));
        let circuit = Circuit::new(18, nodes, vec![26, 0]).unwrap();
        let head = Head::equal_groups(vec!["a".into(), "b".into()], 2, 1.0).unwrap();
        let classifier = Classifier::new(encoder, circuit, head).unwrap();
        let passes = std::cell::RefCell::new(Vec::new());
        let options = Options { depth: Some(4), ..Options::default() };
        let observer = |pass: &'static str, _: usize| passes.borrow_mut().push(pass);
        let result = minimize_classifier_until(&classifier, &options, &Stop::never(), &observer).unwrap();
        assert_eq!((result.statistics.depth_after, result.statistics.gates_after), (4, 8));
        assert_eq!(result.classifier.circuit().depth(), 4);
        let passes = passes.into_inner();
        assert!(passes.contains(&"encoder") && result.merged.is_some());
        let reductions: Vec<usize> = (0..passes.len()).filter(|&i| passes[i] == "depth").collect();
        assert_eq!(reductions, [passes.len() - 1], "once, at the end: {passes:?}");
        assert_eq!(result.prove(&classifier, &Stop::never()).unwrap(), Verdict::Equal);
        assert_same_scores(&classifier, &result.classifier, &rows(classifier.encoder(), 200));
    }

    #[test]
    fn a_wrong_merge_is_not_proved() {
        let encoder = Encoder::new(vec![Feature::numeric("x", vec![1.0, 2.0])], None).unwrap();
        let circuit = Circuit::new(2, vec![Node::new(Gate::AND, 0, 1)], vec![2, 0]).unwrap();
        let head = Head::equal_groups(vec!["a".into(), "b".into()], 2, 1.0).unwrap();
        let classifier = Classifier::new(encoder, circuit, head).unwrap();
        let mut result = small(&classifier);
        let wrong = Circuit::new(2, vec![], vec![0, 0]).unwrap();
        let second = minimize_until(&wrong, &Options::default(), &Stop::never(), &|_, _| {}).unwrap();
        result.merged = Some((wrong, second));
        assert_ne!(result.prove(&classifier, &Stop::never()).unwrap(), Verdict::Equal);
    }
}
