//! Convolutions of gate trees with OR pooling, on tiles of samples.
//!
//! ```text
//! planes [channel][y][x]
//!      |  at each position, each kernel: a tree of gates on some rows of its receptive field, the same gates everywhere
//! [kernel][y][x]
//!      |  maximum of each pooling window, which is OR for bits
//! planes [kernel][y][x]
//! ```
//!
//! A row of planes is at `first row of the position + offset in the receptive field`, so the forward pass runs one program on a
//! slice of the planes for each position, without a copy. The backward pass replaces inputs by gradients: it copies the rows that
//! are read, for all positions of a pooling window at once. The gradient of a maximum goes to its first largest position, which the
//! forward pass records.

use gatework_logic::{Gate, Node};
use gatework_train::params::Params;
use gatework_train::random::Random;
use serde::{Deserialize, Serialize};
use std::ops::Range;

use super::NetworkError;
use super::functions::{Functions, Sampling, Start, most_likely};
use crate::kernel::pooling::{self, Winners};
use crate::kernel::{Coefficients, GateProgram, Layer, Row, Sums, Wires, Workspace};

/// A convolution: a `[[model.convolutions]]` table of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConvolutionSettings {
    /// Number of kernels, which are the channels of the output.
    pub kernels: usize,
    /// Height and width of the receptive field.
    pub size: usize,
    /// Levels of a kernel's gate tree, which reads 2^depth inputs.
    pub depth: usize,
    /// Input channels that a kernel reads.
    pub channels: usize,
    /// Distance between neighbouring positions.
    pub stride: usize,
    /// Rows and columns of zeros around the input.
    pub padding: usize,
    /// Height and width of the windows of OR pooling; 1 for none.
    pub pool: usize,
}

impl Default for ConvolutionSettings {
    fn default() -> ConvolutionSettings {
        ConvolutionSettings { kernels: 32, size: 3, depth: 3, channels: 2, stride: 1, padding: 0, pool: 2 }
    }
}

/// Largest values of the settings.
const MAX_SIZE: usize = 64;
const MAX_DEPTH: usize = 8;
const MAX_POOL: usize = 16;

impl ConvolutionSettings {
    /// Checks the range of every number; `index` is the place in the list of convolutions.
    pub fn check(&self, index: usize) -> Result<(), NetworkError> {
        let ConvolutionSettings { kernels, size, depth, channels, stride, padding, pool } = *self;
        let range = |name, value: usize, range: Range<usize>| {
            if range.contains(&value) {
                return Ok(());
            }
            let (least, most) = (range.start, range.end - 1);
            Err(NetworkError::Convolution { index, name, value, least, most })
        };
        range("kernels", kernels, 1..(1 << 16) + 1)?;
        range("size", size, 1..MAX_SIZE + 1)?;
        range("depth", depth, 1..MAX_DEPTH + 1)?;
        range("channels", channels, 1..(1 << 16) + 1)?;
        range("stride", stride, 1..size + 1)?;
        range("padding", padding, 0..size)?;
        range("pool", pool, 1..MAX_POOL + 1)
    }

    /// Number of gates of all kernels.
    pub fn gates(&self) -> usize {
        self.kernels * ((1 << self.depth.min(MAX_DEPTH)) - 1)
    }

    /// Height or width before pooling of an input of some height or width.
    fn positions(&self, length: usize) -> usize {
        (length + 2 * self.padding).checked_sub(self.size).map_or(0, |rest| rest / self.stride + 1)
    }

    /// Returns the size of the output.
    pub fn output(&self, index: usize, [_, height, width]: [usize; 3]) -> Result<[usize; 3], NetworkError> {
        let length = |length: usize| self.positions(length) / self.pool;
        let output = [self.kernels, length(height), length(width)];
        if output.contains(&0) {
            let field = (self.size + self.stride * (self.pool - 1)).saturating_sub(2 * self.padding);
            return Err(NetworkError::TooSmall { index, height, width, field });
        }
        Ok(output)
    }

    /// Number of gates that the output of a size takes, with those of pooling; it saturates.
    pub fn applications(&self, output: [usize; 3]) -> usize {
        let window = self.pool * self.pool;
        let per_output = (window << self.depth.min(MAX_DEPTH)).saturating_sub(1);
        output.iter().fold(per_output, |product, &size| product.saturating_mul(size))
    }
}

/// Rows of a tile as planes: one row for each channel and place, with a margin of zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planes {
    /// Channels, height and width without margin.
    pub size: [usize; 3],
    /// Rows and columns of zeros around each plane.
    pub margin: usize,
}

impl Planes {
    /// Number of rows.
    pub fn rows(&self) -> usize {
        let [channels, height, width] = self.size;
        channels * (height + 2 * self.margin) * (width + 2 * self.margin)
    }

    /// The row of a place, which is counted from the corner of the margin.
    fn row(&self, channel: usize, y: usize, x: usize) -> usize {
        let [_, height, width] = self.size;
        (channel * (height + 2 * self.margin) + y) * (width + 2 * self.margin) + x
    }

    /// The rows of all places inside the margin, in the order `[channel][y][x]`.
    pub fn inner(self) -> impl Iterator<Item = usize> {
        let [channels, height, width] = self.size;
        let margin = self.margin;
        (0..channels * height).flat_map(move |line| {
            let start = self.row(line / height, line % height + margin, margin);
            start..start + width
        })
    }
}

/// A convolution with its gates.
pub struct Convolution {
    settings: ConvolutionSettings,
    /// Parameters of the gates in the arena.
    range: Range<usize>,
    input: Planes,
    output: Planes,
    /// Rows that the kernels read, relative to the first row of a position, and the trees on them.
    reads: Vec<u32>,
    trees: Wires,
    /// The trees on a slice of the planes, and on the copied rows `reads`.
    forward: GateProgram,
    backward: GateProgram,
    forward_coefficients: Coefficients,
    backward_coefficients: Coefficients,
    functions: Functions,
}

/// Scratch rows of one thread.
#[derive(Default)]
pub struct Scratch {
    values: Vec<Row>,
    inputs: Vec<Row>,
    work: Workspace,
}

impl Convolution {
    /// Draws the trees and the initial parameters. `margin` is that of the output.
    pub fn new(
        settings: ConvolutionSettings,
        index: usize,
        input: [usize; 3],
        margin: usize,
        start: Start,
        params: &mut Params,
        [wiring, logits]: [&mut Random; 2],
    ) -> Result<Convolution, NetworkError> {
        let output = Planes { size: settings.output(index, input)?, margin };
        let input = Planes { size: input, margin: settings.padding };
        let range = start.add(params, &format!("convolution.{index}"), settings.gates(), logits);
        let leaves = draw_leaves(&settings, &input, wiring);
        let mut reads = leaves.clone();
        reads.sort_unstable();
        reads.dedup();
        let span = reads.last().map_or(1, |&last| last as usize + 1);
        let compact: Vec<u32> =
            leaves.iter().map(|leaf| reads.binary_search(leaf).expect("a row that is read") as u32).collect();
        let trees = trees(&settings, reads.len(), &compact);
        let program = |wires: &Wires| GateProgram::new(wires).expect("trees on rows that there are");
        Ok(Convolution {
            range,
            input,
            output,
            forward: program(&self::trees(&settings, span, &leaves)),
            backward: program(&trees),
            reads,
            trees,
            forward_coefficients: Coefficients::default(),
            backward_coefficients: Coefficients::default(),
            functions: Functions::new(settings.gates(), start.numbers),
            settings,
        })
    }

    /// The rows of the input.
    pub fn input(&self) -> Planes {
        self.input
    }

    /// The rows of the output.
    pub fn output(&self) -> Planes {
        self.output
    }

    /// Sums of the backward pass.
    pub fn sums(&self) -> Sums {
        Sums::new(&self.backward)
    }

    /// Computes the coefficients of the current parameters.
    pub fn prepare(&mut self, params: &Params, sampling: &mut Sampling<'_>) {
        self.functions.prepare(&params.values[self.range.clone()], sampling);
        self.functions.gather(&self.forward, &mut self.forward_coefficients);
        self.functions.gather(&self.backward, &mut self.backward_coefficients);
    }

    /// Writes the gradients of the parameters.
    pub fn collect<'a>(&mut self, sums: impl Iterator<Item = &'a Sums>, params: &mut Params) {
        self.functions.collect(&self.backward, sums, &mut params.grads[self.range.clone()]);
    }

    /// The first row of each position of a pooling window.
    fn window(&self, y: usize, x: usize) -> impl Iterator<Item = usize> + use<> {
        let ConvolutionSettings { pool, stride, .. } = self.settings;
        let input = self.input;
        let place = move |i: usize| ((y * pool + i / pool) * stride, (x * pool + i % pool) * stride);
        (0..pool * pool).map(move |i| {
            let (y, x) = place(i);
            input.row(0, y, x)
        })
    }

    /// All places of the output.
    fn places(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let [_, height, width] = self.output.size;
        (0..height * width).map(move |place| (place / width, place % width))
    }

    /// The row of the output of a kernel at a place.
    fn output_row(&self, kernel: usize, y: usize, x: usize) -> usize {
        self.output.row(kernel, y + self.output.margin, x + self.output.margin)
    }

    /// Number of [`Winners`] of a tile.
    pub fn winners(&self) -> usize {
        if self.settings.pool > 1 { self.output.size.iter().product() } else { 0 }
    }

    /// Runs a tile forward.
    pub fn infer(&self, inputs: &[Row], outputs: &mut [Row], winners: &mut [Winners], scratch: &mut Scratch) {
        let Scratch { values, work, .. } = scratch;
        let (kernels, window) = (self.settings.kernels, self.settings.pool * self.settings.pool);
        let span = self.forward.inputs();
        values.resize(window * kernels, Row::ZERO);
        for (place, (y, x)) in self.places().enumerate() {
            for (first, values) in self.window(y, x).zip(values.chunks_exact_mut(kernels)) {
                let rows = &inputs[first..first + span];
                self.forward.infer(&self.forward_coefficients, rows, values, work);
            }
            for kernel in 0..kernels {
                let output = &mut outputs[self.output_row(kernel, y, x)];
                if window == 1 {
                    *output = values[kernel];
                } else {
                    let winner = &mut winners[place * kernels + kernel];
                    pooling::largest(values[kernel..].iter().step_by(kernels), output, winner);
                }
            }
        }
    }

    /// Runs a tile backward: adds the gradients of the inputs to `input_grads`, if there are any, and those of the coefficients to
    /// `sums`.
    pub fn gradient(
        &self,
        inputs: &[Row],
        output_grads: &[Row],
        winners: &[Winners],
        mut input_grads: Option<&mut [Row]>,
        sums: &mut Sums,
        scratch: &mut Scratch,
    ) {
        let Scratch { values: grads, inputs: rows, work } = scratch;
        let (kernels, window) = (self.settings.kernels, self.settings.pool * self.settings.pool);
        grads.resize(window * kernels, Row::ZERO);
        rows.resize(window * self.reads.len(), Row::ZERO);
        for (place, (y, x)) in self.places().enumerate() {
            for kernel in 0..kernels {
                let grad = &output_grads[self.output_row(kernel, y, x)];
                if window == 1 {
                    grads[kernel] = *grad;
                } else {
                    let winner = &winners[place * kernels + kernel];
                    pooling::distribute(grad, winner, grads[kernel..].iter_mut().step_by(kernels));
                }
            }
            for (first, rows) in self.window(y, x).zip(rows.chunks_exact_mut(self.reads.len())) {
                for (row, &read) in rows.iter_mut().zip(&self.reads) {
                    *row = inputs[first + read as usize];
                }
            }
            self.backward.gradient(&self.backward_coefficients, rows, grads, sums, work);
            if let Some(input_grads) = &mut input_grads {
                for (first, rows) in self.window(y, x).zip(rows.chunks_exact(self.reads.len())) {
                    pooling::scatter(rows, &self.reads, &mut input_grads[first..]);
                }
            }
        }
    }

    /// Appends the gates of all positions to a circuit and returns the signals of the output, `[kernel][y][x]`. `inputs` are the
    /// signals of the input planes with their margin, and `first_node` is the signal of the first of `nodes`.
    pub fn harden(
        &self,
        params: &Params,
        inputs: &[u32],
        first_node: usize,
        nodes: &mut Vec<Node>,
    ) -> Vec<u32> {
        let functions = most_likely(self.functions.numbers(), &params.values[self.range.clone()]);
        let gate = |index: usize| Gate::from_index(functions[index]).unwrap_or(Gate::FALSE);
        let [kernels, height, width] = self.output.size;
        let mut outputs = vec![0; kernels * height * width];
        for (y, x) in self.places() {
            for (position, first) in self.window(y, x).enumerate() {
                let mut rows: Vec<u32> =
                    self.reads.iter().map(|&read| inputs[first + read as usize]).collect();
                let mut of_layer = 0;
                for layer in &self.trees.layers {
                    let begin = (first_node + nodes.len()) as u32;
                    for (i, (&a, &b)) in layer.a.iter().zip(&layer.b).enumerate() {
                        nodes.push(Node::new(gate(of_layer + i), rows[a as usize], rows[b as usize]));
                    }
                    of_layer += layer.len();
                    rows = (begin..begin + layer.len() as u32).collect();
                }
                for (kernel, &row) in rows.iter().enumerate() {
                    let output = &mut outputs[(kernel * height + y) * width + x];
                    *output = if position == 0 {
                        row
                    } else {
                        nodes.push(Node::new(Gate::OR, *output, row));
                        (first_node + nodes.len() - 1) as u32
                    };
                }
            }
        }
        outputs
    }
}

/// Draws the rows that the leaves of all kernels read, relative to the first row of a position: different ones within a kernel if
/// there are enough. Every channel is read about equally often.
fn draw_leaves(settings: &ConvolutionSettings, input: &Planes, random: &mut Random) -> Vec<u32> {
    let ConvolutionSettings { kernels, size, depth, .. } = *settings;
    let per_kernel = settings.channels.min(input.size[0]);
    let mut order: Vec<usize> = (0..input.size[0]).collect();
    let mut next = order.len();
    let mut leaves = Vec::with_capacity(kernels << depth);
    for _ in 0..kernels {
        let channels: Vec<usize> = (0..per_kernel)
            .map(|_| {
                if next == order.len() {
                    random.shuffle(&mut order);
                    next = 0;
                }
                next += 1;
                order[next - 1]
            })
            .collect();
        let mut field: Vec<u32> = channels
            .iter()
            .flat_map(|&channel| (0..size * size).map(move |i| (channel, i / size, i % size)))
            .map(|(channel, y, x)| input.row(channel, y, x) as u32)
            .collect();
        let mut taken = field.len();
        for _ in 0..1 << depth {
            if taken == field.len() {
                random.shuffle(&mut field);
                taken = 0;
            }
            leaves.push(field[taken]);
            taken += 1;
        }
    }
    leaves
}

/// Returns complete binary trees on the given leaves, one for each kernel.
fn trees(settings: &ConvolutionSettings, inputs: usize, leaves: &[u32]) -> Wires {
    let every_second = |first: usize| leaves.iter().skip(first).step_by(2).copied().collect();
    let mut layers = vec![Layer { a: every_second(0), b: every_second(1) }];
    for level in 1..settings.depth {
        let gates = (settings.kernels << (settings.depth - level - 1)) as u32;
        let operand = |odd: u32| (0..gates).map(|gate| 2 * gate + odd).collect();
        layers.push(Layer { a: operand(0), b: operand(1) });
    }
    Wires { inputs, layers }
}
