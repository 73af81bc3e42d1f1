//! The soft network of a classifier: layers of gates, fixed or learned wires, and the group-sum head.
//!
//! ```text
//! bits -> [convolutions] -> [mixture of candidate wires] -> gates -> ... -> gates -> sums of groups / temperature -> cross-entropy
//! ```
//!
//! Consecutive layers with fixed wires form one segment, which is one [`GateProgram`]. A layer with learned wires begins a
//! segment: a [`Mixture`] computes the two operands of each of its gates, and gate `i` reads wires `2 i` and `2 i + 1`.
//!
//! A network may have several members: networks side by side that share nothing but the input and the convolutions. Each has a loss
//! of its own, and their sums are added to the scores, which is the average of an ensemble in one circuit.
//!
//! A batch is split into chunks of tiles. The number of chunks depends on the batch and the network only, and each chunk has
//! sums of its own, which are added in the order of the chunks: the same bits on any number of threads.

use std::ops::Range;

use gatework_engine::{parallel, vector};
use gatework_logic::{Circuit, CircuitError, Gate, Node};
use gatework_train::params::Params;
use gatework_train::random::{Purpose, Random};

mod convolution;
mod functions;
mod inputs;
mod settings;
mod wires;

pub use convolution::ConvolutionSettings;
pub use functions::Sampling;
pub use inputs::{BitPlanes, Inputs};
pub use settings::{Connections, MAX_CANDIDATES, MAX_GATES, MAX_MEMBERS, NetworkError, NetworkSettings};

use self::convolution::{Convolution, Planes, Scratch};
use self::functions::{Functions, Start, most_likely};
use self::wires::Sources;
use super::head;
use crate::kernel::pooling::Winners;
use crate::kernel::{
    Coefficients, GateProgram, LANES, Layer, Mixture, Row, Sums, WireError, Wires, Workspace,
};

/// A layer with its parameters.
struct LayerParams {
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
    /// The weights of the forward pass, if they are not the same: 1 for the most likely candidate.
    hard_weights: Vec<f32>,
    wires: Wires,
    program: GateProgram,
    functions: Functions,
    coefficients: Coefficients,
}

/// The memory of one chunk of a batch.
struct Chunk {
    /// The bits of the samples, tile by tile, if there are convolutions.
    bits: Vec<Row>,
    /// Input rows of each convolution, tile by tile, the positions that the pooling chose, and the sums.
    planes: Vec<Vec<Row>>,
    winners: Vec<Vec<Winners>>,
    convolution_sums: Vec<Sums>,
    scratch: Scratch,
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
    inputs: Inputs,
    /// The parameters.
    pub params: Params,
    convolutions: Vec<Convolution>,
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
        inputs: impl Into<Inputs>,
        classes: usize,
        batch: usize,
        seed: u64,
    ) -> Result<Network, NetworkError> {
        settings.check()?;
        settings.check_classes(classes)?;
        let inputs: Inputs = inputs.into();
        if inputs.bits == 0 {
            return Err(NetworkError::NoInputs);
        }
        let mut random = Random::new(seed, Purpose::Wiring, 0);
        let mut start = Random::new(seed, Purpose::Parameters, 0);
        let mut params = Params::new();
        let numbers =
            Start { numbers: settings.numbers, pass_through: settings.pass_through, noise: settings.noise };
        let convolutions = convolutions(settings, &inputs, numbers, &mut params, [&mut random, &mut start])?;
        // The functions of all layers come first, so that those of a segment are contiguous.
        let mut functions = Vec::new();
        let members = settings.members;
        for (index, &width) in settings.layers.iter().enumerate() {
            let gates = members * width;
            functions.push(numbers.add(&mut params, &format!("layer.{index}"), gates, &mut start));
        }
        let (mut layers, mut segments) = (Vec::new(), Vec::<SegmentWires>::new());
        let mut rows = convolutions.last().map_or(inputs.bits, |convolution| convolution.output().rows());
        for ((index, &width), functions) in settings.layers.iter().enumerate().zip(functions) {
            let (mut wires, gates) = (None, members * width);
            // The first layer of every member reads all rows, the others those of their member.
            let relevance = inputs.relevance.as_deref().filter(|_| index == 0 && convolutions.is_empty());
            let sources = Sources { rows, members, is_shared: index == 0, relevance };
            if settings.is_learned(index) {
                let k = settings.candidates;
                wires = Some(params.add(&format!("wires.{index}"), &[2 * gates, k], |i| {
                    let first = if i % k == 0 { settings.first_candidate } else { 0.0 };
                    first + settings.noise * start.normal() as f32
                }));
                let candidates = sources.candidates(2 * width, k, &mut random);
                let pairs = |odd: u32| (0..gates as u32).map(|gate| 2 * gate + odd).collect();
                let layer = Layer { a: pairs(0), b: pairs(1) };
                segments.push(SegmentWires {
                    first: index,
                    candidates: Some((rows, candidates)),
                    wires: Wires { inputs: 2 * gates, layers: vec![layer] },
                });
            } else {
                let layer = sources
                    .fixed(settings.wiring, index, width, &mut random)
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
            layers.push(LayerParams { functions, wires });
            rows = gates;
        }
        let segments: Vec<Segment> = segments
            .into_iter()
            .map(|segment| Segment::new(segment, settings))
            .collect::<Result<_, _>>()
            .expect("wires are drawn from the rows that there are");
        let tiles = batch.max(1).div_ceil(LANES);
        let applications = match &inputs.planes {
            Some(planes) => settings.applications(planes.size)?,
            None => settings.gates(),
        };
        let count = chunk_count(tiles, applications);
        let chunk = |chunk| {
            Chunk::new(&inputs, &convolutions, &segments, parallel::chunk_range(tiles, chunk, count).len())
        };
        let chunks = (0..count).map(chunk).collect();
        let group = rows / members / classes;
        let temperature = settings.temperature.unwrap_or((group as f32).sqrt());
        Ok(Network {
            settings: settings.clone(),
            classes,
            inputs,
            params,
            convolutions,
            layers,
            segments,
            chunks,
            tiles,
            temperature,
        })
    }

    /// Number of gates.
    pub fn gates(&self) -> usize {
        self.settings.gates()
    }

    /// Divisor of the sums over all members: the scores are the means of those of the members.
    pub fn temperature(&self) -> f32 {
        self.temperature * self.settings.members as f32
    }

    /// Number of samples of a full batch.
    pub fn batch(&self) -> usize {
        self.tiles * LANES
    }

    /// Computes the coefficients and weights of the current parameters.
    pub fn prepare(&mut self, mut sampling: Sampling<'_>) {
        let Network { params, convolutions, layers, segments, .. } = self;
        for convolution in convolutions {
            convolution.prepare(params, &mut sampling);
        }
        for segment in segments {
            segment.functions.prepare(&params.values[segment.range(layers)], &mut sampling);
            segment.functions.gather(&segment.program, &mut segment.coefficients);
            if let (Some(mixture), Some(range)) = (&segment.mixture, &layers[segment.layers.start].wires) {
                let logits = &params.values[range.clone()];
                vector::softmax_rows(logits, mixture.per_wire(), &mut segment.weights)
                    .expect("a weight for each candidate");
                segment.hard_weights.clear();
                if sampling.is_hard {
                    for weights in segment.weights.chunks_exact(mixture.per_wire()) {
                        let chosen = largest(weights);
                        let weight = |i| if i == chosen { 1.0 } else { 0.0 };
                        segment.hard_weights.extend((0..weights.len()).map(weight));
                    }
                }
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
        let (count, tiles, inputs) = (self.chunks.len(), self.tiles, &self.inputs);
        let head = head::Settings {
            classes: self.classes,
            members: self.settings.members,
            temperature: self.temperature,
            weight: 1.0 / labels.len().max(1) as f32,
        };
        let (convolutions, segments) = (&self.convolutions, &self.segments);
        parallel::for_each(self.chunks.iter_mut().enumerate().collect(), |(number, chunk)| {
            let range = parallel::chunk_range(tiles, number, count);
            let first = (range.start * LANES).min(labels.len());
            let labels = &labels[first..(range.end * LANES).min(labels.len())];
            let bits = if convolutions.is_empty() { &mut chunk.inputs[0] } else { &mut chunk.bits };
            for (i, tile) in bits.chunks_exact_mut(inputs.bits).enumerate() {
                // Lanes without a sample keep bits of an earlier batch; their gradient is 0.
                for lane in 0..labels.len().saturating_sub(i * LANES).min(LANES) {
                    fill(first + i * LANES + lane, lane, tile);
                }
            }
            chunk.convolve(inputs, convolutions);
            chunk.run(segments, labels, head, learns);
            if learns {
                let grads = chunk.backward(segments, !convolutions.is_empty());
                chunk.convolve_backward(convolutions, grads);
            }
        });
    }

    /// Adds up the sums of the chunks and writes the gradients of all parameters.
    fn collect_gradients(&mut self) {
        let Network { params, convolutions, layers, segments, chunks, settings, .. } = self;
        params.zero_grads();
        for (index, convolution) in convolutions.iter_mut().enumerate() {
            convolution.collect(chunks.iter().map(|chunk| &chunk.convolution_sums[index]), params);
        }
        for (index, segment) in segments.iter_mut().enumerate() {
            let range = segment.range(layers);
            let sums = chunks.iter().map(|chunk| &chunk.sums[index]);
            segment.functions.collect(&segment.program, sums, &mut params.grads[range]);
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
    /// outputs are the gates of the last layer, class by class.
    pub fn harden(&self) -> Result<Circuit, CircuitError> {
        let inputs = self.inputs.bits;
        let mut nodes: Vec<Node> = Vec::with_capacity(self.gates());
        let mut rows: Vec<u32> = self.harden_convolutions(&mut nodes);
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
        let (members, classes) = (self.settings.members, self.classes);
        let (width, group) = (rows.len() / members, rows.len() / members / classes);
        let of_class = |class: usize| {
            (0..members)
                .flat_map(move |member| member * width + class * group..member * width + (class + 1) * group)
        };
        let outputs = (0..classes).flat_map(of_class).map(|row| rows[row]).collect();
        Circuit::new(inputs, nodes, outputs)
    }

    /// Appends the gates of the convolutions to a circuit and returns the signals that the first layer reads.
    fn harden_convolutions(&self, nodes: &mut Vec<Node>) -> Vec<u32> {
        let first_node = self.inputs.bits;
        let Some(planes) = self.inputs.planes.as_ref().filter(|_| !self.convolutions.is_empty()) else {
            return (0..first_node as u32).collect();
        };
        // The margins, and the bits that the encoder leaves out.
        let zero = first_node as u32;
        nodes.push(Node::new(Gate::FALSE, 0, 0));
        let mut signals: Vec<u32> = planes.bits.iter().map(|bit| bit.unwrap_or(zero)).collect();
        for convolution in &self.convolutions {
            let mut rows = vec![zero; convolution.input().rows()];
            convolution.input().inner().zip(&signals).for_each(|(row, &signal)| rows[row] = signal);
            signals = convolution.harden(&self.params, &rows, first_node, nodes);
        }
        signals
    }

    /// The most likely function of each gate of a layer.
    fn functions(&self, layer: usize) -> Vec<u8> {
        most_likely(self.settings.numbers, &self.params.values[self.layers[layer].functions.clone()])
    }
}

/// Makes the convolutions of a network. The margin of each output is the padding of the next convolution.
fn convolutions(
    settings: &NetworkSettings,
    inputs: &Inputs,
    start: Start,
    params: &mut Params,
    [wiring, logits]: [&mut Random; 2],
) -> Result<Vec<Convolution>, NetworkError> {
    if settings.convolutions.is_empty() {
        return Ok(Vec::new());
    }
    let mut size = inputs.planes.as_ref().ok_or(NetworkError::NoImage)?.size;
    settings.planes(size)?;
    let gates = settings.applications(size)?;
    if gates > MAX_GATES {
        return Err(NetworkError::TooManyGates { gates });
    }
    let mut made: Vec<Convolution> = Vec::new();
    for (index, &convolution) in settings.convolutions.iter().enumerate() {
        let margin = settings.convolutions.get(index + 1).map_or(0, |next| next.padding);
        made.push(Convolution::new(convolution, index, size, margin, start, params, [wiring, logits])?);
        size = made[index].output().size;
    }
    Ok(made)
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
        Ok(Segment {
            layers: first..first + wires.layers.len(),
            weights: mixture.as_ref().map_or_else(Vec::new, |mixture| vec![0.0; mixture.candidates().len()]),
            mixture,
            hard_weights: Vec::new(),
            program: GateProgram::new(&wires)?,
            functions: Functions::new(wires.gates(), settings.numbers),
            coefficients: Coefficients::default(),
            wires,
        })
    }

    /// The parameters of the gates of all its layers.
    fn range(&self, layers: &[LayerParams]) -> Range<usize> {
        layers[self.layers.start].functions.start..layers[self.layers.end - 1].functions.end
    }

    /// The weights of the candidates in the forward pass.
    fn forward_weights(&self) -> &[f32] {
        if self.hard_weights.is_empty() { &self.weights } else { &self.hard_weights }
    }
}

impl Chunk {
    fn new(inputs: &Inputs, convolutions: &[Convolution], segments: &[Segment], tiles: usize) -> Chunk {
        let rows = |count: usize| vec![Row::ZERO; tiles * count];
        let bits = rows(if convolutions.is_empty() { 0 } else { inputs.bits });
        let inputs =
            |segment: &Segment| segment.mixture.as_ref().map_or(segment.program.inputs(), Mixture::inputs);
        let wires = |segment: &Segment| segment.mixture.as_ref().map_or(0, Mixture::wires);
        Chunk {
            bits,
            planes: convolutions.iter().map(|convolution| rows(convolution.input().rows())).collect(),
            winners: convolutions
                .iter()
                .map(|convolution| vec![[0; LANES]; tiles * convolution.winners()])
                .collect(),
            convolution_sums: convolutions.iter().map(Convolution::sums).collect(),
            scratch: Scratch::default(),
            inputs: segments.iter().map(|segment| rows(inputs(segment))).collect(),
            wires: segments.iter().map(|segment| rows(wires(segment))).collect(),
            sums: segments.iter().map(|segment| Sums::new(&segment.program)).collect(),
            weight_sums: segments.iter().map(|segment| vec![0.0; segment.weights.len()]).collect(),
            work: Workspace::default(),
            result: BatchResult::default(),
        }
    }

    /// Runs the convolutions of all tiles forward.
    fn convolve(&mut self, inputs: &Inputs, convolutions: &[Convolution]) {
        let Some(planes) = inputs.planes.as_ref().filter(|_| !convolutions.is_empty()) else { return };
        let Chunk { bits, planes: rows, winners, scratch, inputs: dense, .. } = self;
        let layout: Planes = convolutions[0].input();
        let tiles = rows[0].chunks_exact_mut(layout.rows());
        for (tile, bits) in tiles.zip(bits.chunks_exact(inputs.bits)) {
            for (row, bit) in layout.inner().zip(&planes.bits) {
                tile[row] = bit.map_or(Row::ZERO, |bit| bits[bit as usize]);
            }
        }
        for (index, convolution) in convolutions.iter().enumerate() {
            let (before, after) = rows.split_at_mut(index + 1);
            let inputs = before[index].chunks_exact(convolution.input().rows());
            let outputs = after.first_mut().unwrap_or(&mut dense[0]);
            let outputs = outputs.chunks_exact_mut(convolution.output().rows());
            for (tile, (inputs, outputs)) in inputs.zip(outputs).enumerate() {
                let winners = &mut winners[index][tile * convolution.winners()..][..convolution.winners()];
                convolution.infer(inputs, outputs, winners, scratch);
            }
        }
    }

    /// Runs the convolutions of all tiles backward, from the gradients of the output of the last one.
    fn convolve_backward(&mut self, convolutions: &[Convolution], mut grads: Vec<Row>) {
        let Chunk { planes, winners, convolution_sums, scratch, .. } = self;
        convolution_sums.iter_mut().for_each(Sums::clear);
        for (index, convolution) in convolutions.iter().enumerate().rev() {
            let rows = convolution.input().rows();
            let mut input_grads = vec![Row::ZERO; if index > 0 { planes[index].len() } else { 0 }];
            for (tile, (inputs, grads)) in planes[index]
                .chunks_exact(rows)
                .zip(grads.chunks_exact(convolution.output().rows()))
                .enumerate()
            {
                let winners = &winners[index][tile * convolution.winners()..][..convolution.winners()];
                let wanted = (index > 0).then(|| &mut input_grads[tile * rows..][..rows]);
                convolution.gradient(inputs, grads, winners, wanted, &mut convolution_sums[index], scratch);
            }
            grads = input_grads;
        }
    }

    /// Runs all tiles forward, and the last segment backward if the network learns.
    fn run(&mut self, segments: &[Segment], labels: &[u32], head: head::Settings, learns: bool) {
        let Chunk { inputs, wires, sums, weight_sums, work, result, .. } = self;
        *result = BatchResult::default();
        sums.iter_mut().for_each(Sums::clear);
        for sums in weight_sums.iter_mut() {
            sums.fill(0.0);
        }
        let last = segments.len() - 1;
        for (index, segment) in segments.iter().enumerate() {
            let (before, after) = inputs.split_at_mut(index + 1);
            if let Some(mixture) = &segment.mixture {
                mixture.infer(segment.forward_weights(), &before[index], &mut wires[index]);
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
    }

    /// Runs backward from the input rows of the last segment, which are replaced by their gradients. Returns the gradients of the
    /// input rows of the first segment, if they are wanted.
    fn backward(&mut self, segments: &[Segment], wants_inputs: bool) -> Vec<Row> {
        let Chunk { inputs, wires, sums, weight_sums, work, .. } = self;
        // Gradients of the outputs of the segment that is next.
        let mut grads: Vec<Row> = Vec::new();
        for (index, segment) in segments.iter().enumerate().rev() {
            let wanted = index > 0 || wants_inputs;
            if index + 1 < segments.len() {
                let rows = if segment.mixture.is_some() { &mut wires[index] } else { &mut inputs[index] };
                segment.program.gradient(&segment.coefficients, rows, &grads, &mut sums[index], work);
            }
            grads.clear();
            if let Some(mixture) = &segment.mixture {
                grads.resize(if wanted { inputs[index].len() } else { 0 }, Row::ZERO);
                let input_grads = wanted.then_some(&mut grads[..]);
                let (weights, sums) = (segment.forward_weights(), &mut weight_sums[index]);
                mixture.gradient(weights, &inputs[index], &wires[index], input_grads, sums);
            } else if wanted {
                grads.extend_from_slice(&inputs[index]);
            }
        }
        grads
    }
}

/// Fewest gate evaluations (gates x tiles) of a chunk: about 100 microseconds.
const MIN_CHUNK_WORK: usize = 1 << 12;

/// Returns the number of chunks of a batch.
fn chunk_count(tiles: usize, gates: usize) -> usize {
    let by_work = tiles.saturating_mul(gates) / MIN_CHUNK_WORK;
    by_work.clamp(1, (tiles / 2).clamp(1, 8))
}

/// Replaces the gradients of weights by those of their logits.
fn softmax_gradients(weights: &[f32], per_wire: usize, grads: &mut [f32]) {
    for (weights, grads) in weights.chunks_exact(per_wire).zip(grads.chunks_exact_mut(per_wire)) {
        let mean: f32 = weights.iter().zip(&*grads).map(|(weight, grad)| weight * grad).sum();
        grads.iter_mut().zip(weights).for_each(|(grad, weight)| *grad = weight * (*grad - mean));
    }
}

/// Returns the index of the largest number; on a tie, the lowest.
fn largest(numbers: &[f32]) -> usize {
    let better = |best: usize, (i, number): (usize, &f32)| if *number > numbers[best] { i } else { best };
    numbers.iter().enumerate().fold(0, better)
}

#[cfg(test)]
mod tests;
