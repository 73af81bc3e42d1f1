//! The soft network of a classifier: layers of gates, fixed or learned wires, and the group-sum head.
//!
//! ```text
//! bits -> [mixture of candidate wires] -> gates -> ... -> gates -> sums of groups of outputs / temperature -> cross-entropy
//! ```
//!
//! Consecutive layers with fixed wires form one segment, which is one [`GateProgram`]. A layer with learned wires begins a
//! segment: a [`Mixture`] computes the two operands of each of its gates, and gate `i` reads wires `2 i` and `2 i + 1`.
//!
//! A batch is split into chunks of tiles. The number of chunks depends on the batch and the network only, and each chunk has
//! sums of its own, which are added in the order of the chunks: the same bits on any number of threads.

use std::ops::Range;

use gatework_engine::{parallel, vector};
use gatework_logic::{Circuit, CircuitError, Gate, Node};
use gatework_train::params::Params;
use gatework_train::random::{Purpose, Random};
use serde::{Deserialize, Serialize};

use super::head;
use crate::kernel::{
    CANDIDATE_GROUP, Coefficients, FUNCTIONS, GateProgram, GateTable, LANES, Layer, Mixture, Row, Sums,
    WireError, Wires, Workspace,
};
use crate::soft::{self, FUNCTION_A, Numbers, Wiring, WiringError};

/// How the gates of a layer find their operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Connections {
    /// Fixed: every row of the preceding layer is read about equally often.
    #[default]
    Random,
    /// Fixed: no two gates of a layer read the same pair.
    Unique,
    /// Fixed: as in a fast Fourier transform.
    Butterfly,
    /// Learned: each operand chooses among some candidates.
    Learned,
}

/// The network of a classifier: the `[model]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSettings {
    /// Gates of each layer. The last number is a multiple of the number of classes.
    pub layers: Vec<usize>,
    /// The wires of all layers.
    pub wiring: Connections,
    /// Candidates for each operand, if wires are learned: a multiple of 4.
    pub candidates: usize,
    /// Number of leading layers with learned wires; the others have random ones. All, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learned_layers: Option<usize>,
    /// Parameters of a gate.
    pub numbers: Numbers,
    /// Initial logit of the function that passes the first operand through.
    pub pass_through: f32,
    /// Standard deviation of the normal noise on all initial logits.
    pub noise: f32,
    /// Initial logit of the first candidate of a wire.
    pub first_candidate: f32,
    /// Divisor of the sums in training; the square root of the outputs of a class, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
}

impl Default for NetworkSettings {
    fn default() -> NetworkSettings {
        NetworkSettings {
            layers: vec![1000],
            wiring: Connections::Learned,
            candidates: 16,
            learned_layers: None,
            numbers: Numbers::Sixteen,
            pass_through: 0.0,
            noise: 1.0,
            first_candidate: 4.0,
            temperature: None,
        }
    }
}

/// Most gates of a network.
pub const MAX_GATES: usize = 1 << 24;

/// Most candidates of a wire.
pub const MAX_CANDIDATES: usize = 1024;

/// A network that cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// There is no layer.
    #[error("layers is empty; a classifier needs at least one layer of gates")]
    NoLayers,
    /// A layer has no gates.
    #[error("layers[{layer}] is 0; a layer needs at least one gate")]
    NoGates {
        /// The layer.
        layer: usize,
    },
    /// There are more gates than [`MAX_GATES`].
    #[error("layers has {gates} gates in total, but the limit is {MAX_GATES}")]
    TooManyGates {
        /// The number of gates; it saturates.
        gates: usize,
    },
    /// The last layer cannot be divided among the classes.
    #[error("the last layer has {outputs} gates for {classes} classes: make it a multiple of {classes}, such as {}",
        outputs.div_ceil(*classes).max(1) * classes)]
    Groups {
        /// Gates of the last layer.
        outputs: usize,
        /// Number of classes.
        classes: usize,
    },
    /// The number of candidates is not usable.
    #[error("candidates is {0}, but must be a multiple of 4 from 4 to {MAX_CANDIDATES}")]
    Candidates(usize),
    /// A number is out of range.
    #[error("{name} is {value}, but must be {range}")]
    Number {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: f32,
        /// The numbers that are allowed.
        range: &'static str,
    },
    /// No bit of the input differs between two samples.
    #[error("the encoder has no bits: every feature is constant in the training data")]
    NoInputs,
    /// A layer cannot be wired as requested.
    #[error("layers[{layer}]: {problem}")]
    Wiring {
        /// The layer.
        layer: usize,
        /// What is wrong.
        problem: WiringError,
    },
}

impl NetworkSettings {
    /// Number of gates; it saturates.
    pub fn gates(&self) -> usize {
        self.layers.iter().fold(0, |gates: usize, &layer| gates.saturating_add(layer))
    }

    /// Whether layer `layer` has learned wires.
    fn is_learned(&self, layer: usize) -> bool {
        self.wiring == Connections::Learned && self.learned_layers.is_none_or(|count| layer < count)
    }

    /// Checks the settings, except what depends on the data.
    pub fn check(&self) -> Result<(), NetworkError> {
        if self.layers.is_empty() {
            return Err(NetworkError::NoLayers);
        }
        if let Some(layer) = self.layers.iter().position(|&gates| gates == 0) {
            return Err(NetworkError::NoGates { layer });
        }
        if self.gates() > MAX_GATES {
            return Err(NetworkError::TooManyGates { gates: self.gates() });
        }
        let k = self.candidates;
        if self.wiring == Connections::Learned
            && !(k.is_multiple_of(CANDIDATE_GROUP) && (CANDIDATE_GROUP..=MAX_CANDIDATES).contains(&k))
        {
            return Err(NetworkError::Candidates(k));
        }
        let number = |name, value: f32, fits: bool, range| {
            if fits && value.is_finite() { Ok(()) } else { Err(NetworkError::Number { name, value, range }) }
        };
        number("pass_through", self.pass_through, true, "a finite number")?;
        number("first_candidate", self.first_candidate, true, "a finite number")?;
        number("noise", self.noise, self.noise >= 0.0, "at least 0")?;
        let temperature = self.temperature.unwrap_or(1.0);
        number("temperature", temperature, temperature > 0.0, "above 0")
    }

    /// Checks that the last layer can be divided among the classes.
    pub fn check_classes(&self, classes: usize) -> Result<(), NetworkError> {
        let outputs = self.layers.last().copied().unwrap_or(0);
        if classes == 0 || outputs % classes != 0 || outputs == 0 {
            return Err(NetworkError::Groups { outputs, classes: classes.max(1) });
        }
        Ok(())
    }
}

/// A layer with its parameters.
struct LayerParams {
    /// Gates of the layer.
    gates: usize,
    /// Logits or truth tables of the gates in the parameter arena.
    functions: Range<usize>,
    /// Logits of the candidates, if wires are learned.
    wires: Option<Range<usize>>,
}

/// Layers that run as one program.
struct Segment {
    /// The layers of the network.
    layers: Range<usize>,
    mixture: Option<Mixture>,
    /// Weights of the candidates: the softmax of their logits.
    weights: Vec<f32>,
    wires: Wires,
    program: GateProgram,
    table: GateTable,
    coefficients: Coefficients,
    /// The 16 logits of each gate, if they are not parameters themselves.
    logits: Vec<f32>,
    /// Gradients of the coefficients and of the 16 logits.
    coefficient_grads: Vec<[f32; 4]>,
    logit_grads: Vec<f32>,
}

/// The memory of one chunk of a batch.
struct Chunk {
    /// Input rows of each segment, tile by tile. Those of the first are the bits of the samples.
    inputs: Vec<Vec<Row>>,
    /// Wires of each segment that has a mixture, tile by tile, replaced by their gradients.
    wires: Vec<Vec<Row>>,
    sums: Vec<Sums>,
    weight_sums: Vec<Vec<f32>>,
    work: Workspace,
    result: BatchResult,
}

/// What a batch gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchResult {
    /// Sum of the cross-entropy over the samples.
    pub loss: f64,
    /// Samples whose class has the highest sum.
    pub correct: usize,
    /// Sum of the squared deviation of the scores from their mean over the classes, over all samples.
    pub spread: f64,
}

/// A soft network with its parameters and the memory of a batch.
pub struct Network {
    settings: NetworkSettings,
    classes: usize,
    /// The parameters.
    pub params: Params,
    layers: Vec<LayerParams>,
    segments: Vec<Segment>,
    chunks: Vec<Chunk>,
    /// Tiles of a full batch.
    tiles: usize,
    temperature: f32,
}

impl Network {
    /// Draws the wires and the initial parameters of a seed, and allocates the memory of a batch of `batch` samples.
    pub fn new(
        settings: &NetworkSettings,
        inputs: usize,
        classes: usize,
        batch: usize,
        seed: u64,
    ) -> Result<Network, NetworkError> {
        settings.check()?;
        settings.check_classes(classes)?;
        if inputs == 0 {
            return Err(NetworkError::NoInputs);
        }
        let mut random = Random::new(seed, Purpose::Wiring, 0);
        let mut start = Random::new(seed, Purpose::Parameters, 0);
        let mut params = Params::new();
        // The functions of all layers come first, so that those of a segment are contiguous.
        let mut functions = Vec::new();
        for (index, &gates) in settings.layers.iter().enumerate() {
            functions.push(add_functions(&mut params, settings, index, gates, &mut start));
        }
        let (mut layers, mut segments) = (Vec::new(), Vec::<SegmentWires>::new());
        let mut rows = inputs;
        for ((index, &gates), functions) in settings.layers.iter().enumerate().zip(functions) {
            let mut wires = None;
            if settings.is_learned(index) {
                let k = settings.candidates;
                wires = Some(params.add(&format!("wires.{index}"), &[2 * gates, k], |i| {
                    let first = if i % k == 0 { settings.first_candidate } else { 0.0 };
                    first + settings.noise * start.normal() as f32
                }));
                let candidates = draw_candidates(rows, 2 * gates, k, &mut random);
                let pairs = |odd: u32| (0..gates as u32).map(|gate| 2 * gate + odd).collect();
                let layer = Layer { a: pairs(0), b: pairs(1) };
                segments.push(SegmentWires {
                    first: index,
                    candidates: Some((rows, candidates)),
                    wires: Wires { inputs: 2 * gates, layers: vec![layer] },
                });
            } else {
                let layer = fixed_wires(settings.wiring, index, rows, gates, &mut random)
                    .map_err(|problem| NetworkError::Wiring { layer: index, problem })?;
                match segments.last_mut() {
                    Some(segment) => segment.wires.layers.push(layer),
                    None => segments.push(SegmentWires {
                        first: index,
                        candidates: None,
                        wires: Wires { inputs: rows, layers: vec![layer] },
                    }),
                }
            }
            layers.push(LayerParams { gates, functions, wires });
            rows = gates;
        }
        let segments: Vec<Segment> = segments
            .into_iter()
            .map(|segment| Segment::new(segment, settings))
            .collect::<Result<_, _>>()
            .expect("wires are drawn from the rows that there are");
        let tiles = batch.max(1).div_ceil(LANES);
        let count = chunk_count(tiles, settings.gates());
        let chunks = (0..count)
            .map(|chunk| Chunk::new(&segments, parallel::chunk_range(tiles, chunk, count).len()))
            .collect();
        let group = rows / classes;
        let temperature = settings.temperature.unwrap_or((group as f32).sqrt());
        Ok(Network {
            settings: settings.clone(),
            classes,
            params,
            layers,
            segments,
            chunks,
            tiles,
            temperature,
        })
    }

    /// Number of input bits.
    pub fn inputs(&self) -> usize {
        let first = &self.segments[0];
        first.mixture.as_ref().map_or(first.program.inputs(), Mixture::inputs)
    }

    /// Number of gates.
    pub fn gates(&self) -> usize {
        self.settings.gates()
    }

    /// Divisor of the sums.
    pub fn temperature(&self) -> f32 {
        self.temperature
    }

    /// Number of samples of a full batch.
    pub fn batch(&self) -> usize {
        self.tiles * LANES
    }

    /// Computes the coefficients and weights of the current parameters. `gumbel` scales noise on the logits of gates and
    /// wires, drawn from `random`.
    pub fn prepare(&mut self, gumbel: Option<(f32, &mut Random)>) {
        let Network { params, layers, segments, settings, .. } = self;
        let mut gumbel = gumbel;
        for segment in segments {
            let range = segment.functions(layers);
            let values = &params.values[range];
            if settings.numbers == Numbers::Four {
                soft::expand(values, &mut segment.logits);
            } else if gumbel.is_some() {
                segment.logits.resize(values.len(), 0.0);
                segment.logits.copy_from_slice(values);
            }
            if let Some((scale, random)) = &mut gumbel {
                add_gumbel(&mut segment.logits, *scale, random);
            }
            let is_copy = settings.numbers == Numbers::Four || gumbel.is_some();
            segment.table.update(if is_copy { &segment.logits } else { values });
            segment.coefficients.gather(&segment.program, &segment.table);
            if let (Some(mixture), Some(range)) = (&segment.mixture, &layers[segment.layers.start].wires) {
                let logits = &params.values[range.clone()];
                vector::softmax_rows(logits, mixture.per_wire(), &mut segment.weights)
                    .expect("a weight for each candidate");
            }
        }
    }

    /// Computes the gradients of the mean cross-entropy of a batch. `fill` writes the bits of a sample, given by its number
    /// in the batch, to a lane of the rows of a tile; `labels` are the classes of the samples. [`Self::prepare`] comes first.
    pub fn gradient(
        &mut self,
        labels: &[u32],
        fill: &(dyn Fn(usize, usize, &mut [Row]) + Sync),
    ) -> BatchResult {
        self.pass(labels, fill, true);
        self.collect_gradients();
        self.result()
    }

    /// Runs a batch without gradients.
    pub fn evaluate(
        &mut self,
        labels: &[u32],
        fill: &(dyn Fn(usize, usize, &mut [Row]) + Sync),
    ) -> BatchResult {
        self.pass(labels, fill, false);
        self.result()
    }

    fn result(&self) -> BatchResult {
        self.chunks.iter().fold(BatchResult::default(), |sum, chunk| BatchResult {
            loss: sum.loss + chunk.result.loss,
            correct: sum.correct + chunk.result.correct,
            spread: sum.spread + chunk.result.spread,
        })
    }

    fn pass(&mut self, labels: &[u32], fill: &(dyn Fn(usize, usize, &mut [Row]) + Sync), learns: bool) {
        assert!(labels.len() <= self.batch(), "at most {} samples", self.batch());
        let (count, tiles, inputs) = (self.chunks.len(), self.tiles, self.inputs());
        let head = head::Settings {
            classes: self.classes,
            temperature: self.temperature,
            weight: 1.0 / labels.len().max(1) as f32,
        };
        let segments = &self.segments;
        parallel::for_each(self.chunks.iter_mut().enumerate().collect(), |(number, chunk)| {
            let range = parallel::chunk_range(tiles, number, count);
            let first = (range.start * LANES).min(labels.len());
            let labels = &labels[first..(range.end * LANES).min(labels.len())];
            for (i, tile) in chunk.inputs[0].chunks_exact_mut(inputs).enumerate() {
                // Lanes without a sample keep bits of an earlier batch; their gradient is 0.
                for lane in 0..labels.len().saturating_sub(i * LANES).min(LANES) {
                    fill(first + i * LANES + lane, lane, tile);
                }
            }
            chunk.run(segments, labels, head, learns);
        });
    }

    /// Adds up the sums of the chunks and writes the gradients of all parameters.
    fn collect_gradients(&mut self) {
        let Network { params, layers, segments, chunks, settings, .. } = self;
        params.zero_grads();
        for (index, segment) in segments.iter_mut().enumerate() {
            let range = segment.functions(layers);
            segment.coefficient_grads.fill([0.0; 4]);
            for chunk in chunks.iter() {
                chunk.sums[index].add_to(&segment.program, &segment.table, &mut segment.coefficient_grads);
            }
            if settings.numbers == Numbers::Four {
                segment.logit_grads.fill(0.0);
                segment.table.logit_gradients(&segment.coefficient_grads, &mut segment.logit_grads);
                soft::contract(&segment.logit_grads, &mut params.grads[range]);
            } else {
                segment.table.logit_gradients(&segment.coefficient_grads, &mut params.grads[range]);
            }
            if let Some(wires) = &layers[segment.layers.start].wires {
                let grads = &mut params.grads[wires.clone()];
                for chunk in chunks.iter() {
                    grads.iter_mut().zip(&chunk.weight_sums[index]).for_each(|(grad, sum)| *grad += sum);
                }
                softmax_gradients(&segment.weights, settings.candidates, grads);
            }
        }
    }

    /// Returns the hard circuit: the most likely function of each gate, and the most likely candidate of each wire. Its
    /// outputs are the gates of the last layer.
    pub fn harden(&self) -> Result<Circuit, CircuitError> {
        let inputs = self.inputs();
        let mut nodes: Vec<Node> = Vec::with_capacity(self.gates());
        let mut rows: Vec<u32> = (0..inputs as u32).collect();
        for segment in &self.segments {
            if let (Some(mixture), Some(range)) = (&segment.mixture, &self.layers[segment.layers.start].wires)
            {
                let k = mixture.per_wire();
                let logits = self.params.values[range.clone()].chunks_exact(k);
                let chosen = mixture.candidates().chunks_exact(k).zip(logits);
                rows =
                    chosen.map(|(candidates, logits)| rows[candidates[largest(logits)] as usize]).collect();
            }
            for (layer, wires) in segment.layers.clone().zip(&segment.wires.layers) {
                let functions = self.functions(layer);
                let first = (inputs + nodes.len()) as u32;
                let operands = wires.a.iter().zip(&wires.b);
                nodes.extend(functions.iter().zip(operands).map(|(&function, (&a, &b))| {
                    let gate = Gate::from_index(function).unwrap_or(Gate::FALSE);
                    Node::new(gate, rows[a as usize], rows[b as usize])
                }));
                rows = (first..(inputs + nodes.len()) as u32).collect();
            }
        }
        Circuit::new(inputs, nodes, rows)
    }

    /// The most likely function of each gate of a layer.
    fn functions(&self, layer: usize) -> Vec<u8> {
        let values = &self.params.values[self.layers[layer].functions.clone()];
        if self.settings.numbers == Numbers::Sixteen {
            return soft::arg_max(values);
        }
        let mut logits = vec![0.0; self.layers[layer].gates * FUNCTIONS];
        soft::expand(values, &mut logits);
        soft::arg_max(&logits)
    }
}

/// The wires of a segment before it is compiled.
struct SegmentWires {
    first: usize,
    /// Number of rows that the candidates are drawn from, and the candidates.
    candidates: Option<(usize, Vec<u32>)>,
    wires: Wires,
}

impl Segment {
    fn new(segment: SegmentWires, settings: &NetworkSettings) -> Result<Segment, WireError> {
        let SegmentWires { first, candidates, wires } = segment;
        let mixture = candidates
            .map(|(rows, candidates)| Mixture::new(rows, settings.candidates, candidates))
            .transpose()?;
        let gates = wires.gates();
        let expanded = if settings.numbers == Numbers::Four { gates * FUNCTIONS } else { 0 };
        Ok(Segment {
            layers: first..first + wires.layers.len(),
            weights: mixture.as_ref().map_or_else(Vec::new, |mixture| vec![0.0; mixture.candidates().len()]),
            mixture,
            program: GateProgram::new(&wires)?,
            table: GateTable::new(gates),
            coefficients: Coefficients::default(),
            logits: vec![0.0; expanded],
            coefficient_grads: vec![[0.0; 4]; gates],
            logit_grads: vec![0.0; expanded],
            wires,
        })
    }

    /// The parameters of the gates of all its layers.
    fn functions(&self, layers: &[LayerParams]) -> Range<usize> {
        layers[self.layers.start].functions.start..layers[self.layers.end - 1].functions.end
    }
}

impl Chunk {
    fn new(segments: &[Segment], tiles: usize) -> Chunk {
        let rows = |count: usize| vec![Row::ZERO; tiles * count];
        let inputs =
            |segment: &Segment| segment.mixture.as_ref().map_or(segment.program.inputs(), Mixture::inputs);
        let wires = |segment: &Segment| segment.mixture.as_ref().map_or(0, Mixture::wires);
        Chunk {
            inputs: segments.iter().map(|segment| rows(inputs(segment))).collect(),
            wires: segments.iter().map(|segment| rows(wires(segment))).collect(),
            sums: segments.iter().map(|segment| Sums::new(&segment.program)).collect(),
            weight_sums: segments.iter().map(|segment| vec![0.0; segment.weights.len()]).collect(),
            work: Workspace::default(),
            result: BatchResult::default(),
        }
    }

    /// Runs all tiles forward, and backward if the network learns.
    fn run(&mut self, segments: &[Segment], labels: &[u32], head: head::Settings, learns: bool) {
        let Chunk { inputs, wires, sums, weight_sums, work, result } = self;
        *result = BatchResult::default();
        sums.iter_mut().for_each(Sums::clear);
        for sums in weight_sums.iter_mut() {
            sums.fill(0.0);
        }
        let last = segments.len() - 1;
        for (index, segment) in segments.iter().enumerate() {
            let (before, after) = inputs.split_at_mut(index + 1);
            if let Some(mixture) = &segment.mixture {
                mixture.infer(&segment.weights, &before[index], &mut wires[index]);
            }
            if index < last {
                let rows = if segment.mixture.is_some() { &wires[index] } else { &before[index] };
                segment.program.infer(&segment.coefficients, rows, &mut after[0], work);
            }
        }
        // The last segment runs tile by tile, forward and backward, with the head in between.
        let segment = &segments[last];
        let rows = if segment.mixture.is_some() { &mut wires[last] } else { &mut inputs[last] };
        for (tile, rows) in rows.chunks_exact_mut(segment.program.inputs()).enumerate() {
            let labels = &labels[(tile * LANES).min(labels.len())..((tile + 1) * LANES).min(labels.len())];
            let mut head = |outputs: &mut [Row]| head::cross_entropy(outputs, labels, head, result);
            if learns {
                segment.program.gradient_of(&segment.coefficients, rows, &mut head, &mut sums[last], work);
            } else {
                let mut outputs = vec![Row::ZERO; segment.program.outputs()];
                segment.program.infer(&segment.coefficients, rows, &mut outputs, work);
                head(&mut outputs);
            }
        }
        if learns {
            self.backward(segments);
        }
    }

    /// Runs backward from the input rows of the last segment, which are replaced by their gradients.
    fn backward(&mut self, segments: &[Segment]) {
        let Chunk { inputs, wires, sums, weight_sums, work, .. } = self;
        // Gradients of the outputs of the segment that is next.
        let mut grads: Vec<Row> = Vec::new();
        for (index, segment) in segments.iter().enumerate().rev() {
            let has_mixture = segment.mixture.is_some();
            if index + 1 < segments.len() {
                let rows = if has_mixture { &mut wires[index] } else { &mut inputs[index] };
                segment.program.gradient(&segment.coefficients, rows, &grads, &mut sums[index], work);
            }
            if let Some(mixture) = &segment.mixture {
                let wanted = index > 0;
                grads.clear();
                grads.resize(if wanted { inputs[index].len() } else { 0 }, Row::ZERO);
                let input_grads = wanted.then_some(&mut grads[..]);
                let (weights, sums) = (&segment.weights, &mut weight_sums[index]);
                mixture.gradient(weights, &inputs[index], &wires[index], input_grads, sums);
            }
        }
    }
}

/// Fewest gate evaluations (gates x tiles) of a chunk: about 100 microseconds.
const MIN_CHUNK_WORK: usize = 1 << 12;

/// Returns the number of chunks of a batch.
fn chunk_count(tiles: usize, gates: usize) -> usize {
    let by_work = tiles.saturating_mul(gates) / MIN_CHUNK_WORK;
    by_work.clamp(1, (tiles / 2).clamp(1, 8))
}

/// Adds the parameters of the gates of a layer, with their initial values.
fn add_functions(
    params: &mut Params,
    settings: &NetworkSettings,
    index: usize,
    gates: usize,
    random: &mut Random,
) -> Range<usize> {
    let (noise, lead) = (settings.noise, settings.pass_through);
    let mut normal = || if noise > 0.0 { noise * random.normal() as f32 } else { 0.0 };
    let name = format!("layer.{index}");
    match settings.numbers {
        Numbers::Sixteen => params.add(&name, &[gates, FUNCTIONS], |i| {
            normal() + if i % FUNCTIONS == FUNCTION_A { lead } else { 0.0 }
        }),
        // Entries are f(1,1), f(1,0), f(0,1), f(0,0).
        Numbers::Four => {
            params.add(&name, &[gates, 4], |i| normal() + if i % 4 < 2 { lead / 2.0 } else { -lead / 2.0 })
        }
    }
}

/// Draws the candidates of each wire: different rows if there are enough. The first candidates of all wires together read
/// every row about equally often.
fn draw_candidates(rows: usize, wires: usize, per_wire: usize, random: &mut Random) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows as u32).collect();
    let mut candidates = Vec::with_capacity(wires * per_wire);
    for wire in 0..wires {
        if wire % rows == 0 {
            random.shuffle(&mut order);
        }
        let begin = candidates.len();
        candidates.push(order[wire % rows]);
        while candidates.len() < begin + per_wire {
            let row = random.below(rows) as u32;
            let is_new = !candidates[begin..].contains(&row);
            if is_new || candidates.len() - begin >= rows {
                candidates.push(row);
            }
        }
    }
    candidates
}

/// Draws the fixed wires of a layer. If its gates cannot read all rows, they read a random subset.
fn fixed_wires(
    wiring: Connections,
    depth: usize,
    rows: usize,
    gates: usize,
    random: &mut Random,
) -> Result<Layer, WiringError> {
    let wiring = match wiring {
        Connections::Unique => Wiring::Unique,
        Connections::Butterfly => Wiring::Butterfly,
        Connections::Random | Connections::Learned => Wiring::Random,
    };
    if 2 * gates >= rows {
        return wiring.layer(depth, rows, gates, random);
    }
    let mut order: Vec<u32> = (0..rows as u32).collect();
    random.shuffle(&mut order);
    let mut layer = wiring.layer(depth, 2 * gates, gates, random)?;
    for wire in layer.a.iter_mut().chain(&mut layer.b) {
        *wire = order[*wire as usize];
    }
    Ok(layer)
}

/// Replaces the gradients of weights by those of their logits.
fn softmax_gradients(weights: &[f32], per_wire: usize, grads: &mut [f32]) {
    for (weights, grads) in weights.chunks_exact(per_wire).zip(grads.chunks_exact_mut(per_wire)) {
        let mean: f32 = weights.iter().zip(&*grads).map(|(weight, grad)| weight * grad).sum();
        grads.iter_mut().zip(weights).for_each(|(grad, weight)| *grad = weight * (*grad - mean));
    }
}

/// Adds Gumbel noise.
fn add_gumbel(logits: &mut [f32], scale: f32, random: &mut Random) {
    for logit in logits {
        // The logarithms of 0 and 1 are not usable.
        let uniform = random.uniform().clamp(1e-7, 1.0 - 1e-7);
        *logit -= scale * (-uniform.ln()).ln();
    }
}

/// Returns the index of the largest number; on a tie, the lowest.
fn largest(numbers: &[f32]) -> usize {
    let better = |best: usize, (i, number): (usize, &f32)| if *number > numbers[best] { i } else { best };
    numbers.iter().enumerate().fold(0, better)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INPUTS: usize = 7;
    const CLASSES: usize = 3;

    fn settings(wiring: Connections, learned_layers: Option<usize>, numbers: Numbers) -> NetworkSettings {
        let layers = vec![9, 8, 6];
        NetworkSettings {
            layers,
            wiring,
            candidates: 4,
            learned_layers,
            numbers,
            ..NetworkSettings::default()
        }
    }

    /// Every kind of wires and parameters, with segments of one and of several layers.
    fn all_settings() -> Vec<NetworkSettings> {
        let fixed = [Connections::Random, Connections::Unique, Connections::Butterfly];
        let fixed = fixed.map(|wiring| settings(wiring, None, Numbers::Sixteen));
        let learned =
            [None, Some(1), Some(2)].map(|count| settings(Connections::Learned, count, Numbers::Sixteen));
        let four = settings(Connections::Learned, Some(1), Numbers::Four);
        fixed.into_iter().chain(learned).chain([four]).collect()
    }

    fn bit(sample: usize, input: usize) -> f32 {
        ((sample * 2_654_435_761 + input * 40_503) >> 7 & 1) as f32
    }

    fn fill(sample: usize, lane: usize, rows: &mut [Row]) {
        rows.iter_mut().enumerate().for_each(|(input, row)| row.0[lane] = bit(sample, input));
    }

    fn labels(count: usize) -> Vec<u32> {
        (0..count).map(|sample| (sample % CLASSES) as u32).collect()
    }

    #[test]
    fn gradients_are_differences_of_the_mean_loss() {
        for settings in all_settings() {
            let mut network = Network::new(&settings, INPUTS, CLASSES, 40, 3).unwrap();
            let labels = labels(40);
            network.prepare(None);
            network.gradient(&labels, &fill);
            let grads = network.params.grads.clone();
            let mut loss_at = |i: usize, shift: f32| {
                let before = network.params.values[i];
                network.params.values[i] = before + shift;
                network.prepare(None);
                let loss = network.evaluate(&labels, &fill).loss / labels.len() as f64;
                network.params.values[i] = before;
                loss
            };
            let most = grads.iter().fold(0.0f32, |most, grad| most.max(grad.abs()));
            for i in (0..grads.len()).step_by(5) {
                let slope = (loss_at(i, 0.02) - loss_at(i, -0.02)) / 0.04;
                let difference = (f64::from(grads[i]) - slope).abs();
                assert!(difference < 0.02 * f64::from(most), "{settings:?} {i}: {} for {slope}", grads[i]);
            }
        }
    }

    /// With one logit far above the others, the soft network computes what the hard circuit computes. Samples whose classes tie are
    /// left out: the soft sums differ by rounding.
    #[test]
    fn the_hard_circuit_is_the_limit_of_the_soft_network() {
        for settings in all_settings() {
            let mut network = Network::new(&settings, INPUTS, CLASSES, 40, 5).unwrap();
            network.params.values.iter_mut().for_each(|value| *value *= 1e3);
            let circuit = network.harden().unwrap();
            assert_eq!((circuit.inputs(), circuit.outputs().len()), (INPUTS, 6));
            let sums = |sample: usize| -> Vec<usize> {
                let bits: Vec<bool> = (0..INPUTS).map(|input| bit(sample, input) == 1.0).collect();
                let outputs = circuit.eval(&bits).unwrap();
                outputs.chunks(2).map(|group| group.iter().filter(|bit| **bit).count()).collect()
            };
            let winner = |sample: usize| {
                let sums = sums(sample);
                let most = *sums.iter().max()?;
                let mut winners = (0..sums.len()).filter(|&class| sums[class] == most);
                winners.next().filter(|_| winners.next().is_none()).map(|class| (sample, class as u32))
            };
            let (samples, labels): (Vec<usize>, Vec<u32>) = (0..2000).filter_map(winner).take(40).unzip();
            network.prepare(None);
            let result = network.evaluate(&labels, &|sample, lane, rows| fill(samples[sample], lane, rows));
            assert_eq!(result.correct, labels.len(), "{settings:?}");
        }
    }

    #[test]
    fn gradients_do_not_depend_on_the_number_of_threads_or_on_earlier_batches() {
        let settings = NetworkSettings { layers: vec![3000], candidates: 8, ..NetworkSettings::default() };
        let grads = |threads: usize, warm: bool| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut network = Network::new(&settings, INPUTS, CLASSES, 200, 1).unwrap();
            assert!(network.chunks.len() > 1);
            network.prepare(None);
            pool.install(|| {
                if warm {
                    network.gradient(&labels(200), &|sample, lane, rows| fill(sample + 7, lane, rows));
                }
                // Fewer samples than the lanes of a batch.
                network.gradient(&labels(190), &fill)
            });
            network.params.grads
        };
        let one = grads(1, false);
        assert!(one.iter().any(|&grad| grad != 0.0));
        assert!(one == grads(3, false) && one == grads(2, true));
    }

    #[test]
    fn networks_that_cannot_be_made_are_named() {
        let error = |settings: &NetworkSettings, inputs, classes| {
            Network::new(settings, inputs, classes, 8, 1).err().unwrap().to_string()
        };
        let with =
            |layers: &[usize]| NetworkSettings { layers: layers.to_vec(), ..NetworkSettings::default() };
        assert!(error(&with(&[]), 4, 2).starts_with("layers is empty"));
        assert!(error(&with(&[4, 0]), 4, 2).starts_with("layers[1] is 0"));
        assert!(error(&with(&[usize::MAX, 2]), 4, 2).contains("the limit is"));
        let groups = error(&with(&[8]), 4, 3);
        assert!(groups.ends_with("make it a multiple of 3, such as 9"), "{groups}");
        assert!(error(&with(&[2]), 4, 1_000_000).contains("2 gates for 1000000 classes"));
        assert!(error(&with(&[8]), 0, 2).contains("every feature is constant"));
        let six = NetworkSettings { candidates: 6, ..with(&[8]) };
        assert!(error(&six, 4, 2).starts_with("candidates is 6"));
        let cold = NetworkSettings { temperature: Some(0.0), ..with(&[8]) };
        assert!(error(&cold, 4, 2).starts_with("temperature is 0"));
    }
}
