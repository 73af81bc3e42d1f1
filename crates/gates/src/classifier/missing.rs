//! The default directions of missing values, as gradient-boosted trees learn them: above or below each threshold, whichever has more
//! mutual information with the class.
//!
//! A missing value sets no threshold bit of the encoder. Where it should be above a threshold, the network reads the OR of the
//! threshold bit and the missing bit of the feature. In the circuit that is one gate for each such threshold that is read.

use gatework_logic::classifier::{Encoder, FeatureKind};
use gatework_logic::{Circuit, CircuitError, Gate, Node};

use super::data::Dataset;
use super::information::entropy;

/// The default direction at each threshold of an encoder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DefaultDirections {
    /// For each bit the missing bit of its feature, if missing values are above its threshold.
    above: Vec<Option<u32>>,
}

impl DefaultDirections {
    /// Learns the default directions from some rows of a data set.
    pub fn learn(encoder: &Encoder, data: &Dataset, rows: &[u32]) -> DefaultDirections {
        let mut above = vec![None; encoder.bits()];
        for (column, (feature, range)) in encoder.features().iter().zip(encoder.ranges()).enumerate() {
            let FeatureKind::Numeric(thresholds) = &feature.kind else { continue };
            if !feature.missing || thresholds.is_empty() {
                continue;
            }
            let missing = (range.start + thresholds.len()) as u32;
            let counts = Counts::new(thresholds, column, data, rows);
            for (bit, is_above) in range.zip(counts.missing_is_above()) {
                above[bit] = is_above.then_some(missing);
            }
        }
        if above.iter().all(Option::is_none) {
            DefaultDirections::default()
        } else {
            DefaultDirections { above }
        }
    }

    /// Returns the missing bit of the feature of a bit, if missing values are above its threshold.
    pub fn missing_bit(&self, bit: usize) -> Option<u32> {
        self.above.get(bit).copied().flatten()
    }

    /// Returns a circuit of the bits of the encoder, from one of the bits that the network reads.
    pub fn apply(&self, circuit: Circuit) -> Result<Circuit, CircuitError> {
        let inputs = circuit.inputs();
        let mut is_read = vec![false; inputs];
        let operands = circuit.nodes().iter().flat_map(|node| node.dependencies());
        for signal in operands.chain(circuit.outputs().iter().copied()) {
            if let Some(is_read) = is_read.get_mut(signal as usize) {
                *is_read = true;
            }
        }
        let mut nodes = Vec::new();
        let mut signals: Vec<u32> = (0..inputs as u32).collect();
        for (bit, _) in is_read.iter().enumerate().filter(|(_, is_read)| **is_read) {
            if let Some(missing) = self.missing_bit(bit) {
                signals[bit] = (inputs + nodes.len()) as u32;
                nodes.push(Node::new(Gate::OR, bit as u32, missing));
            }
        }
        if nodes.is_empty() {
            return Ok(circuit);
        }
        let shift = nodes.len() as u32;
        let moved =
            |signal: u32| signals.get(signal as usize).copied().unwrap_or(signal.saturating_add(shift));
        nodes.extend(circuit.nodes().iter().map(|node| Node::new(node.gate, moved(node.a), moved(node.b))));
        let outputs = circuit.outputs().iter().map(|&output| moved(output)).collect();
        Circuit::new(inputs, nodes, outputs)
    }
}

/// The rows of each class between the thresholds of a feature, and those without a value.
struct Counts {
    classes: usize,
    /// Below the first threshold, between the first two, ...
    between: Vec<usize>,
    missing: Vec<usize>,
}

impl Counts {
    fn new(thresholds: &[f32], column: usize, data: &Dataset, rows: &[u32]) -> Counts {
        let classes = data.classes().len();
        let mut between = vec![0; (thresholds.len() + 1) * classes];
        let mut missing = vec![0; classes];
        for &row in rows {
            let (value, label) = (data.value(row as usize, column), data.labels()[row as usize] as usize);
            if value.is_nan() {
                missing[label] += 1;
            } else {
                let place = thresholds.partition_point(|&threshold| value > threshold);
                between[place * classes + label] += 1;
            }
        }
        Counts { classes, between, missing }
    }

    /// Whether the mutual information with the class is larger if missing values are above, for each threshold.
    fn missing_is_above(&self) -> impl Iterator<Item = bool> {
        let mut above = vec![0; self.classes];
        for counts in self.between.chunks_exact(self.classes) {
            above.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        let mut below = vec![0; self.classes];
        self.between.chunks_exact(self.classes).take(self.between.len() / self.classes - 1).map(
            move |counts| {
                for (class, count) in counts.iter().enumerate() {
                    below[class] += count;
                    above[class] -= count;
                }
                let with = |side: &[usize]| entropy(side.iter().zip(&self.missing).map(|(a, b)| a + b));
                let alone = |side: &[usize]| entropy(side.iter().copied());
                with(&above) + alone(&below) < with(&below) + alone(&above)
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_logic::classifier::Feature;
    use proptest::prelude::*;

    /// The class is whether the value is above 50; the rows without a value are of the second class.
    fn data() -> (Dataset, Vec<u32>) {
        let values: Vec<f32> = (0..100).map(|i| if i >= 80 { f32::NAN } else { i as f32 }).collect();
        let labels = (0..100).map(|i| u32::from(i > 50)).collect();
        (Dataset::new(1, values, labels).unwrap(), (0..100).collect())
    }

    #[test]
    fn missing_values_are_where_their_class_is() {
        let (data, rows) = data();
        let encoder = |thresholds: &[f32]| {
            Encoder::new(vec![Feature::numeric("a", thresholds.to_vec()).with_missing()], None).unwrap()
        };
        let directions = DefaultDirections::learn(&encoder(&[50.5, 78.0]), &data, &rows);
        assert_eq!(directions.above, [Some(2), Some(2), None]);
        // The class of the rows without a value is now that of the low values.
        let values = (0..100).map(|row| -data.value(row, 0)).collect();
        let mirrored = Dataset::new(1, values, data.labels().to_vec()).unwrap();
        assert_eq!(
            DefaultDirections::learn(&encoder(&[-50.5]), &mirrored, &rows),
            DefaultDirections::default()
        );
        let plain = Encoder::new(vec![Feature::numeric("a", vec![50.5])], None).unwrap();
        assert_eq!(DefaultDirections::learn(&plain, &data, &rows), DefaultDirections::default());
    }

    proptest! {
        #[test]
        fn the_circuit_reads_what_the_network_reads(bits in prop::collection::vec(any::<bool>(), 3), gates in 0usize..16) {
            let directions = DefaultDirections { above: vec![Some(2), None, None] };
            let gate = Gate::from_index(gates as u8).unwrap();
            let nodes = vec![Node::new(gate, 0, 1), Node::new(Gate::XOR, 3, 0)];
            let network = Circuit::new(3, nodes, vec![4, 0, 1]).unwrap();
            let seen = [bits[0] || bits[2], bits[1], bits[2]];
            let applied = directions.apply(network.clone()).unwrap();
            prop_assert_eq!(applied.eval(&bits).unwrap(), network.eval(&seen).unwrap());
            prop_assert_eq!(applied.nodes().len(), 3);
        }
    }
}
