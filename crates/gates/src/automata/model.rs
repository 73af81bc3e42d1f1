//! The model of a soft automaton: shape, wires and logits.

use crate::kernel::{FUNCTIONS, Layer, Wires};
use gatework_logic::automaton::CENTRE;
use gatework_logic::circuit::MAX_SIGNALS;
use gatework_logic::{Automaton, Boundary, Circuit, Gate, Node};
use safetensors::{Dtype, SafeTensors};
use serde::{Deserialize, Serialize};

use super::cells::NEIGHBOURS;
use crate::soft::{self, Wiring, WiringError};
use gatework_train::params::Params;
use gatework_train::random::{Purpose, Random};
use gatework_train::tensor_file::{NamedTensor, TensorFileError, TensorFormat};
use gatework_train::trainer::{Best, TaskError};

/// The wiring of the first perception layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum FirstLayer {
    /// Each gate reads one neighbour and the centre.
    #[default]
    Moore,
    /// Wired like the other layers.
    Wired,
}

/// Maximum number of channels of a cell.
pub const MAX_CHANNELS: usize = 128;

/// Maximum number of gates of one cell's circuit: the signals of a circuit, less the inputs.
pub const MAX_GATES: usize = MAX_SIGNALS - MAX_CHANNELS * NEIGHBOURS;

/// Maximum number of perception kernels.
pub const MAX_KERNELS: usize = 4096;

/// The shape of a model: everything but wires and logits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelShape {
    /// Channels of a cell.
    pub channels: usize,
    /// The cells outside the grid.
    pub boundary: Boundary,
    /// Number of perception networks, which share their wires.
    pub kernels: usize,
    /// Layer sizes of the perception, beginning with the 9 inputs.
    pub perceive: Vec<usize>,
    /// The wiring of the first perception layer.
    pub first: FirstLayer,
    /// Layer sizes of the update, beginning with its inputs.
    pub update: Vec<usize>,
    /// The wiring of all other layers.
    pub wiring: Wiring,
}

impl ModelShape {
    /// Number of inputs of the update: the cell itself and the kernels' outputs for each channel.
    pub fn update_inputs(&self) -> usize {
        self.channels + self.channels * self.kernels * self.perceive.last().copied().unwrap_or(0)
    }

    /// Number of learned gates; saturates.
    pub fn gates(&self) -> usize {
        let count = |layers: &[usize]| layers.iter().skip(1).fold(0usize, |sum, &n| sum.saturating_add(n));
        count(&self.perceive).saturating_mul(self.kernels).saturating_add(count(&self.update))
    }

    /// Upper bound on the gates of one cell's circuit, in which each channel has its own copy of the perception.
    pub fn max_gates_per_cell(&self) -> usize {
        self.gates().saturating_mul(self.channels)
    }
}

/// A soft automaton.
#[derive(Clone, Debug)]
pub struct Model {
    /// The shape.
    pub shape: ModelShape,
    /// Wires of one perception kernel.
    pub perceive: Wires,
    /// Wires of the update.
    pub update: Wires,
    /// Logits: `perceive.I` [kernels, gates, 16] for each layer, then `update.I` [gates, 16].
    pub params: Params,
}

/// Counts of learned gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GateCounts {
    /// All gates.
    pub total: usize,
    /// Gates that are not wires.
    pub active: usize,
    /// Active gates in the fan-in cone of the observed channels, over any number of steps.
    pub reachable: usize,
    /// Gates of a cell in the fan-in cone of the observed channels, without wires, inverters and duplicates: what `minimize`
    /// begins with.
    pub used: usize,
}

/// The error of a file that is not a valid model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// Not a model file, or damaged, or written by a newer version of Gatework.
    #[error(transparent)]
    Format(#[from] TensorFileError),
    /// The file does not describe a Gatework automaton.
    #[error("not a Gatework automaton: {0}")]
    Foreign(String),
    /// A tensor is missing or has the wrong type or size.
    #[error("tensor {name}: {problem}")]
    Tensor {
        /// The tensor.
        name: String,
        /// The problem.
        problem: String,
    },
    /// The wires do not form a network.
    #[error("{network} wires: {problem}")]
    Wires {
        /// `perceive` or `update`.
        network: &'static str,
        /// The problem.
        problem: String,
    },
    /// A value that is not finite.
    #[error("tensor {name} holds a value that is not finite")]
    NotFinite {
        /// The tensor.
        name: String,
    },
}

/// Model files, whose header is the shape.
const FORMAT: TensorFormat = TensorFormat { key: "gatework-automaton", version: 2 };

impl Model {
    /// Draws the wires of a seed; all gates pass their first operand through.
    pub fn new(shape: &ModelShape, seed: u64) -> Result<Model, WiringError> {
        let mut random = Random::new(seed, Purpose::Wiring, 0);
        let first = (shape.first == FirstLayer::Moore).then(|| soft::moore(&mut random));
        let perceive = soft::network(&shape.perceive, shape.wiring, first, &mut random)?;
        let update = soft::network(&shape.update, shape.wiring, None, &mut random)?;
        Ok(Model::with_wires(shape.clone(), perceive, update))
    }

    /// Makes an untrained model with given wires.
    pub fn with_wires(shape: ModelShape, perceive: Wires, update: Wires) -> Model {
        let mut params = Params::new();
        for (i, layer) in perceive.layers.iter().enumerate() {
            let sizes = [shape.kernels, layer.len(), FUNCTIONS];
            params.add(&format!("perceive.{i}"), &sizes, soft::start_logit);
        }
        for (i, layer) in update.layers.iter().enumerate() {
            params.add(&format!("update.{i}"), &[layer.len(), FUNCTIONS], soft::start_logit);
        }
        Model { shape, perceive, update, params }
    }

    /// Number of gates of all perception kernels.
    pub fn perceive_gates(&self) -> usize {
        self.shape.kernels * self.perceive.gates()
    }

    /// Number of learned gates.
    pub fn gates(&self) -> usize {
        self.perceive_gates() + self.update.gates()
    }

    /// Number of gate evaluations for one cell and one step.
    pub fn gates_per_cell(&self) -> usize {
        self.shape.channels * self.perceive_gates() + self.update.gates()
    }

    /// Returns the perception kernels as one network, in the order of the logits: layer by layer, kernel by kernel.
    pub fn merged_perception(&self) -> Wires {
        let kernels = self.shape.kernels as u32;
        let mut before = 0;
        let mut layers = Vec::new();
        for layer in &self.perceive.layers {
            let spread = |wires: &[u32]| {
                (0..kernels).flat_map(|k| wires.iter().map(move |w| k * before + w)).collect()
            };
            layers.push(Layer { a: spread(&layer.a), b: spread(&layer.b) });
            before = layer.len() as u32;
        }
        Wires { inputs: NEIGHBOURS, layers }
    }

    /// Returns the most likely function of every gate, in the order of the logits.
    pub fn functions(&self) -> Vec<Gate> {
        let gate = |index| Gate::from_index(index).unwrap_or(Gate::A);
        soft::arg_max(&self.params.values).into_iter().map(gate).collect()
    }

    /// Returns the signals of the hard circuit that the update reads: the centre of each channel, then the perception.
    pub fn update_rows(&self) -> Vec<u32> {
        let (channels, kernels, outputs) = (self.shape.channels, self.shape.kernels, self.perceive.outputs());
        let mut rows: Vec<u32> = (0..channels).map(|c| (c * NEIGHBOURS + CENTRE) as u32).collect();
        for channel in 0..channels {
            let end = channels * NEIGHBOURS + (channel + 1) * self.perceive_gates();
            let output = |k: usize, s: usize| (end - (kernels - k) * outputs + s) as u32;
            rows.extend((0..outputs).flat_map(|s| (0..kernels).map(move |k| output(k, s))));
        }
        rows
    }

    /// Returns the hard automaton: every gate has its most likely function.
    pub fn harden(&self) -> Automaton {
        let functions = self.functions();
        let channels = self.shape.channels;
        let inputs = channels * NEIGHBOURS;
        let mut nodes: Vec<Node> = Vec::with_capacity(self.gates_per_cell());
        let perception = self.merged_perception();
        for channel in 0..channels {
            let patch = (0..NEIGHBOURS).map(|n| (channel * NEIGHBOURS + n) as u32).collect();
            append(&perception, &functions, patch, inputs, &mut nodes);
        }
        let rows = self.update_rows();
        let outputs = append(&self.update, &functions[self.perceive_gates()..], rows, inputs, &mut nodes);
        let circuit =
            Circuit::new(inputs, nodes, outputs).expect("wires were checked when the model was made");
        Automaton { channels, boundary: self.shape.boundary, circuit }
    }

    /// Returns the learned gate of a node of the hard circuit.
    pub fn gate_of_node(&self, node: usize) -> usize {
        let (perceive, instances) = (self.perceive_gates(), self.perceive_gates() * self.shape.channels);
        if node < instances { node % perceive } else { node - instances + perceive }
    }

    /// Counts the learned gates. A kernel's gate counts once, however many channels it is applied to.
    pub fn gate_counts(&self, observed: usize) -> GateCounts {
        let functions = self.functions();
        let automaton = self.harden();
        let circuit = &automaton.circuit;
        let live = automaton.observe(observed).unwrap_or_default();
        // Backwards through the nodes: the fan-in cone of the live channels.
        let mut needed = vec![false; circuit.signals()];
        for (&output, _) in circuit.outputs().iter().zip(live).filter(|(_, live)| *live) {
            needed[output as usize] = true;
        }
        for (i, node) in circuit.nodes().iter().enumerate().rev() {
            if needed[circuit.inputs() + i] {
                node.dependencies().for_each(|signal| needed[signal as usize] = true);
            }
        }
        let mut reachable = vec![false; functions.len()];
        for (i, needed) in needed[circuit.inputs()..].iter().enumerate() {
            reachable[self.gate_of_node(i)] |= needed;
        }
        let active = |i: &usize| !functions[*i].is_wire();
        GateCounts {
            total: functions.len(),
            active: (0..functions.len()).filter(active).count(),
            reachable: (0..functions.len()).filter(active).filter(|&i| reachable[i]).count(),
            used: automaton.gates(observed),
        }
    }

    /// Serialises the model as safetensors. Equal models have equal bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut tensors: Vec<NamedTensor> = Vec::new();
        for (network, wires) in [("perceive", &self.perceive), ("update", &self.update)] {
            for (i, layer) in wires.layers.iter().enumerate() {
                for (operand, wires) in [("a", &layer.a), ("b", &layer.b)] {
                    let name = format!("wires.{network}.{i}.{operand}");
                    tensors.push((name, Dtype::U32, vec![wires.len()], bytes(wires, u32::to_le_bytes)));
                }
            }
        }
        for tensor in self.params.tensors() {
            let values = &self.params.values[tensor.range.clone()];
            let data = bytes(values, f32::to_le_bytes);
            tensors.push((format!("params.{}", tensor.name), Dtype::F32, tensor.shape.clone(), data));
        }
        FORMAT.write(&self.shape, &tensors)
    }

    /// Returns the best model of a seed: that of the search, or the best parameters of training.
    pub fn of_best(shape: &ModelShape, seed: u64, best: &Best) -> Result<Model, TaskError> {
        if let Some(model) = &best.finished {
            return Ok(Model::from_bytes(model)?);
        }
        let mut model = Model::new(shape, seed)?;
        model.set(&best.values);
        Ok(model)
    }

    /// Sets the logits from trained parameters: logits, or truth tables.
    pub fn set(&mut self, learned: &[f32]) {
        if learned.len() == self.params.len() {
            self.params.values.copy_from_slice(learned);
        } else {
            soft::expand(learned, &mut self.params.values);
        }
    }

    /// Reads and checks a model file.
    pub fn from_bytes(bytes: &[u8]) -> Result<Model, ModelError> {
        let (shape, file): (ModelShape, SafeTensors<'_>) = FORMAT.read(bytes)?;
        let perceive = read_wires(&file, "perceive", &shape.perceive)?;
        let update = read_wires(&file, "update", &shape.update)?;
        // Checked before sizes are multiplied and memory is allocated.
        let fits = (1..=MAX_CHANNELS).contains(&shape.channels)
            && (1..=MAX_KERNELS).contains(&shape.kernels)
            && shape.gates() <= bytes.len() / (FUNCTIONS * size_of::<f32>())
            && shape.max_gates_per_cell() <= MAX_GATES
            && perceive.inputs == NEIGHBOURS
            && Some(shape.update_inputs()) == shape.update.first().copied()
            && update.outputs() == shape.channels;
        if !fits {
            return Err(ModelError::Foreign("channels, kernels and layer sizes do not fit together".into()));
        }
        let mut model = Model::with_wires(shape, perceive, update);
        model.read_params(&file, "params.")?;
        Ok(model)
    }

    /// Reads the logits from a file, in which their names have a prefix.
    pub fn read_params(&mut self, file: &SafeTensors<'_>, prefix: &str) -> Result<(), ModelError> {
        for tensor in self.params.tensors().to_vec() {
            let name = format!("{prefix}{}", tensor.name);
            let values = read_f32(file, &name, Some(&tensor.shape))?;
            if values.iter().any(|v| !v.is_finite()) {
                return Err(ModelError::NotFinite { name });
            }
            self.params.values[tensor.range.clone()].copy_from_slice(&values);
        }
        Ok(())
    }
}

/// Appends the gates of a network that reads the given signals and returns the signals of its outputs.
fn append(
    wires: &Wires,
    functions: &[Gate],
    mut rows: Vec<u32>,
    inputs: usize,
    nodes: &mut Vec<Node>,
) -> Vec<u32> {
    let mut functions = functions.iter();
    for layer in &wires.layers {
        let first = (inputs + nodes.len()) as u32;
        for ((&a, &b), &gate) in layer.a.iter().zip(&layer.b).zip(&mut functions) {
            nodes.push(Node { gate, a: rows[a as usize], b: rows[b as usize] });
        }
        rows = (first..first + layer.len() as u32).collect();
    }
    rows
}

fn bytes<T: Copy, const N: usize>(values: &[T], to_bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.iter().flat_map(|&value| to_bytes(value)).collect()
}

fn read_wires(file: &SafeTensors<'_>, network: &'static str, sizes: &[usize]) -> Result<Wires, ModelError> {
    let mut layers = Vec::new();
    for (i, &size) in sizes.iter().skip(1).enumerate() {
        let read = |operand| -> Result<Vec<u32>, ModelError> {
            let name = format!("wires.{network}.{i}.{operand}");
            let data = read_tensor(file, &name, Dtype::U32, Some(&[size]))?;
            Ok(data.as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect())
        };
        layers.push(Layer { a: read("a")?, b: read("b")? });
    }
    let wires = Wires { inputs: sizes.first().copied().unwrap_or(0), layers };
    wires.check().map_err(|e| ModelError::Wires { network, problem: e.to_string() })?;
    Ok(wires)
}

/// Reads an f32 tensor and checks its shape, if one is given.
pub(crate) fn read_f32(
    file: &SafeTensors<'_>,
    name: &str,
    shape: Option<&[usize]>,
) -> Result<Vec<f32>, ModelError> {
    let data = read_tensor(file, name, Dtype::F32, shape)?;
    Ok(data.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
}

fn read_tensor<'a>(
    file: &SafeTensors<'a>,
    name: &str,
    dtype: Dtype,
    shape: Option<&[usize]>,
) -> Result<&'a [u8], ModelError> {
    let problem = |problem: String| ModelError::Tensor { name: name.to_string(), problem };
    let tensor = file.tensor(name).map_err(|_| problem("missing".into()))?;
    if tensor.dtype() != dtype || shape.is_some_and(|shape| tensor.shape() != shape) {
        let wanted = shape.map_or(String::new(), |shape| format!(" {shape:?}"));
        let found = format!("{:?} {:?}", tensor.dtype(), tensor.shape());
        return Err(problem(format!("is {found}, expected {dtype:?}{wanted}")));
    }
    Ok(tensor.data())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape() -> ModelShape {
        ModelShape {
            channels: 2,
            boundary: Boundary::Zeros,
            kernels: 3,
            perceive: vec![9, 8, 4, 2],
            first: FirstLayer::Moore,
            update: vec![14, 16, 8, 4, 2],
            wiring: Wiring::Unique,
        }
    }

    #[test]
    fn an_untrained_model_hardens_to_wires() {
        let model = Model::new(&shape(), 1).unwrap();
        assert_eq!(model.gates(), 3 * 14 + 30);
        assert_eq!(model.gates_per_cell(), 2 * 3 * 14 + 30);
        let automaton = model.harden();
        assert_eq!(automaton.check(), Ok(()));
        assert_eq!(automaton.circuit.active(), 0);
        assert_eq!(automaton.circuit.nodes().len(), model.gates_per_cell());
        assert_eq!(model.gate_counts(1), GateCounts { total: 72, active: 0, reachable: 0, used: 0 });
    }

    #[test]
    fn gates_are_reachable_if_an_observed_channel_depends_on_them() {
        let mut model = Model::new(&shape(), 1).unwrap();
        let last = model.params.get("update.3").unwrap().range.clone();
        for gate in [0, 1] {
            model.params.values[last.start + gate * 16 + 6] = 20.0;
        }
        assert_eq!(model.gate_counts(2), GateCounts { total: 72, active: 2, reachable: 2, used: 2 });
        // Channel 0 is constant: it depends on no other gate.
        model.params.values[last.start] = 30.0;
        assert_eq!(model.gate_counts(1), GateCounts { total: 72, active: 2, reachable: 1, used: 0 });
    }

    #[test]
    fn a_model_is_read_back_and_damaged_files_are_refused() {
        let model = Model::new(&shape(), 7).unwrap();
        let bytes = model.to_bytes();
        assert_eq!(bytes, model.to_bytes());
        let read = Model::from_bytes(&bytes).unwrap();
        assert_eq!(
            (&read.shape, &read.update, &read.perceive),
            (&model.shape, &model.update, &model.perceive)
        );
        assert_eq!(read.params.values, model.params.values);
        for cut in [0, 5, 100, bytes.len() / 2, bytes.len() - 1] {
            assert!(Model::from_bytes(&bytes[..cut]).is_err(), "cut at {cut}");
        }
        let mut broken = model.clone();
        broken.params.values[17] = f32::NAN;
        assert!(matches!(Model::from_bytes(&broken.to_bytes()), Err(ModelError::NotFinite { .. })));
        let foreign = Model::from_bytes(&safetensors_of_nothing());
        assert!(matches!(foreign, Err(ModelError::Format(TensorFileError::Foreign { .. }))));
    }

    #[test]
    fn a_flipped_bit_is_refused_or_changes_nothing() {
        let model = Model::new(&shape(), 7).unwrap();
        let bytes = model.to_bytes();
        for bit in (0..8 * bytes.len()).step_by(13) {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(read) = Model::from_bytes(&flipped) {
                assert_eq!(read.to_bytes(), bytes, "bit {bit}");
            }
        }
    }

    #[test]
    fn a_model_of_a_newer_version_is_refused_and_one_without_a_version_is_read() {
        let bytes = Model::new(&shape(), 7).unwrap().to_bytes();
        let replaced = |from: &str, to: &str| {
            let mut bytes = bytes.clone();
            let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            bytes[at..at + from.len()].copy_from_slice(to.as_bytes());
            Model::from_bytes(&bytes)
        };
        let newer = replaced(r#"\"version\":2"#, r#"\"version\":3"#).unwrap_err();
        assert!(newer.to_string().contains("a newer version of Gatework (format 3"), "{newer}");
        // As long as the version and the checksum together.
        let begin = String::from_utf8_lossy(&bytes).find(r#"{\"version\""#).unwrap();
        let end = String::from_utf8_lossy(&bytes).find(r#"\"channels\""#).unwrap();
        let from = String::from_utf8_lossy(&bytes[begin..end]).into_owned();
        assert!(replaced(&from, &format!("{{{:1$}", "", from.len() - 1)).is_ok());
    }

    fn safetensors_of_nothing() -> Vec<u8> {
        let none: Vec<(String, safetensors::tensor::TensorView<'_>)> = Vec::new();
        safetensors::serialize(none, None).unwrap()
    }
}
