//! Weights that several programs share.
//!
//! A model that serves batches of several sizes has a program for each of them. [`Weights`] are stored once for all: a
//! matrix that is only a second operand of matrix multiplications is held in packed panels, which serve any number of rows,
//! and everything else in plain form. Packed matrices are not in the memory of the runners; of the plain weights, each memory
//! has a copy (see [`Session`](super::Session), in which programs share one memory).
//!
//! ```
//! use std::sync::Arc;
//!
//! use gatework_engine::program::{WeightFormat, Weights};
//! use gatework_engine::{DType, Graph, Program};
//!
//! let graph = |rows: usize| {
//!     let mut g = Graph::new();
//!     let (x, w) = (g.input("x", DType::F32, &[rows, 2])?, g.input("w", DType::F32, &[2, 2])?);
//!     let y = g.matmul(x, w)?;
//!     g.output("y", y)?;
//!     Ok::<Graph, gatework_engine::GraphError>(g)
//! };
//! let mut weights = Weights::builder(&graph(1)?, &["w"], WeightFormat::F32)?;
//! weights.write("w", &[1.0, 2.0, -1.0, 4.0])?;
//! let weights = weights.finish()?;
//! for rows in [1, 5] {
//!     let mut runner = Program::with_weights(&graph(rows)?, &weights)?.runner();
//!     runner.write("x", &vec![1.0f32; 2 * rows])?;
//!     runner.run();
//!     assert_eq!(runner.read::<f32>("y")?[..2], [0.0, 6.0]);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::ops::Range;
use std::sync::Arc;

use crate::buffer::Buffer;
use crate::dtype::DType;
use crate::graph::Graph;
use crate::instruction::matmul::{MatMul, SecondOperand};
use crate::instruction::{Memory, Stored as _};
use crate::kernel::int8::{self, Activations};
use crate::kernel::matmul::{Epilogue, Gemm, PackedMatrix, multiply_packed};
use crate::parallel;
use crate::plan::{BufferKind, Plan};
use crate::shape::Shape;

use super::ProgramError;

/// The number format of packed matrices. Plain weights are `f32`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum WeightFormat {
    /// IEEE 754 single precision: the results of programs without shared weights, except that up to three rows times a transposed
    /// matrix are added in another order.
    #[default]
    F32,
    /// IEEE 754 half precision, expanded while it is multiplied: half the memory, and the results of the rounded weights.
    /// Weights of 65520 and more become infinite.
    F16,
    /// 8-bit integers with a scale for each output, if the processor has 8-bit dot products; activations are quantised with a
    /// scale for each row (see [`kernel::int8`](crate::kernel::int8)). Matrices whose products are added to other results, or
    /// of which only slices are used, stay `f32`.
    Int8,
}

/// Named tensors that programs share. Immutable; made by a [`WeightsBuilder`].
#[derive(Debug)]
pub struct Weights {
    tensors: Vec<Tensor>,
    plain: Buffer<f32>,
    matrices: Vec<Matrix>,
}

#[derive(Debug)]
struct Tensor {
    name: String,
    shape: Shape,
    form: Form,
}

/// Where the elements of a tensor are.
#[derive(Clone, Debug)]
enum Form {
    /// At an offset of the plain weights.
    Plain(usize),
    /// In these matrices.
    Packed(Range<usize>),
}

/// A packed matrix, and its place in its tensor.
#[derive(Debug)]
struct Matrix {
    operand: SecondOperand,
    format: WeightFormat,
    /// `None` until it is written.
    elements: Option<Packed>,
}

#[derive(Debug)]
enum Packed {
    Float(PackedMatrix),
    Int8(int8::Weights),
}

/// Where a program reads a tensor.
pub(crate) enum Residence {
    /// At this offset of the arena.
    Plain(usize),
    /// In packed matrices: instructions, and indices of matrices.
    Packed(Vec<(usize, usize)>),
}

/// Weights that are being written, tensor by tensor.
#[derive(Debug)]
pub struct WeightsBuilder {
    weights: Weights,
    is_written: Vec<bool>,
}

/// Alignment of plain weights, in elements.
const ALIGNMENT: usize = 16;

impl Weights {
    /// Decides the form of each tensor by a graph that has the tensors as inputs.
    pub fn builder(
        graph: &Graph,
        names: &[&str],
        format: WeightFormat,
    ) -> Result<WeightsBuilder, ProgramError> {
        graph.check()?;
        let plan = Plan::new(&graph.rewrite(), None);
        let buffer = |name: &str| {
            plan.buffers
                .iter()
                .position(|buffer| matches!(&buffer.kind, BufferKind::Input(input) if input == name))
        };
        let (mut tensors, mut matrices, mut plain) = (Vec::new(), Vec::<Matrix>::new(), 0);
        for &name in names {
            let known = || graph.inputs().map(|(name, _)| name).collect::<Vec<_>>().join(", ");
            let unknown = || ProgramError::Unknown { port: "input", name: name.to_string(), known: known() };
            let (_, id) = graph.inputs().find(|(input, _)| *input == name).ok_or_else(unknown)?;
            let (shape, dtype) = (graph.shape(id), graph.dtype(id));
            if dtype != DType::F32 {
                let (wanted, found) = (format!("{dtype}{shape}"), "f32 weights".to_string());
                return Err(ProgramError::Mismatch { name: name.to_string(), wanted, found });
            }
            let operands = buffer(name).and_then(|buffer| plan.second_operands(buffer)).unwrap_or_default();
            let parts = partition(&operands, plan_offset(&plan, buffer(name)), shape.elements());
            let form = if let Some(operands) = parts {
                let begin = matrices.len();
                matrices.extend(operands.into_iter().map(|operand| {
                    let fits = format != WeightFormat::Int8 || fits_int8(&operand, shape);
                    let format = if fits { format } else { WeightFormat::F32 };
                    Matrix { operand, format, elements: None }
                }));
                Form::Packed(begin..matrices.len())
            } else {
                let begin = plain;
                plain += shape.elements().next_multiple_of(ALIGNMENT);
                Form::Plain(begin)
            };
            tensors.push(Tensor { name: name.to_string(), shape, form });
        }
        let is_written = vec![false; tensors.len()];
        let weights = Weights { tensors, plain: Buffer::zeroed(plain), matrices };
        Ok(WeightsBuilder { weights, is_written })
    }

    fn find(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|tensor| tensor.name == name)
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.find(name).is_some()
    }

    /// Elements of plain weights, which are the first ones of every arena.
    pub(crate) fn plain_len(&self) -> usize {
        self.plain.len()
    }

    /// Checks that the inputs of a graph have the shapes of the tensors of their names.
    pub(super) fn check(&self, graph: &Graph) -> Result<(), ProgramError> {
        for (name, id) in graph.inputs() {
            let Some(tensor) = self.find(name) else { continue };
            let (dtype, shape) = (graph.dtype(id), graph.shape(id));
            if (dtype, shape) != (DType::F32, tensor.shape) {
                let (wanted, found) = (format!("{dtype}{shape}"), format!("f32{} of weights", tensor.shape));
                return Err(ProgramError::Mismatch { name: name.to_string(), wanted, found });
            }
        }
        Ok(())
    }

    /// Where a program reads a tensor, given the matrix multiplications that read it if nothing else does; `None` if it needs
    /// a copy, because it is packed in another form.
    pub(crate) fn residence(
        &self,
        name: &str,
        operands: impl FnOnce() -> Option<Vec<(usize, SecondOperand)>>,
    ) -> Option<Residence> {
        match &self.find(name)?.form {
            Form::Plain(offset) => Some(Residence::Plain(*offset)),
            Form::Packed(range) => {
                let matrix = |operand: &SecondOperand| {
                    range.clone().find(|&matrix| {
                        let Matrix { operand: packed, format, .. } = &self.matrices[matrix];
                        (packed.sizes, packed.place) == (operand.sizes, operand.place)
                            && !(*format == WeightFormat::Int8 && operand.is_added)
                    })
                };
                let matrices = operands()?.into_iter();
                let matrices = matrices.map(|(instruction, operand)| Some((instruction, matrix(&operand)?)));
                Some(Residence::Packed(matrices.collect::<Option<_>>()?))
            }
        }
    }

    /// Returns the names of the tensors whose matrices have a format.
    pub fn names_of(&self, format: WeightFormat) -> Vec<&str> {
        let has_format = |tensor: &&Tensor| match &tensor.form {
            Form::Plain(_) => format == WeightFormat::F32,
            Form::Packed(range) => self.matrices[range.clone()].iter().all(|matrix| matrix.format == format),
        };
        self.tensors.iter().filter(has_format).map(|tensor| tensor.name.as_str()).collect()
    }

    /// Returns the elements of a tensor in row-major order: of packed `f32` matrices the bits that were written, of quantised
    /// ones the rounded values.
    pub fn read(&self, name: &str) -> Result<Vec<f32>, ProgramError> {
        let known = || self.tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>().join(", ");
        let unknown = || ProgramError::Unknown { port: "weight", name: name.to_string(), known: known() };
        let tensor = self.find(name).ok_or_else(unknown)?;
        let mut elements = vec![0.0; tensor.shape.elements()];
        self.unpack(name, &mut elements);
        Ok(elements)
    }

    /// Returns the integers of a quantised tensor in row-major order, its scales, and the axis of the outputs; `None` if it is
    /// not quantised.
    pub fn read_int8(&self, name: &str) -> Option<(Vec<i8>, &[f32], usize)> {
        let tensor = self.find(name)?;
        let Form::Packed(range) = &tensor.form else { return None };
        let [Matrix { operand, elements: Some(Packed::Int8(weights)), .. }] = &self.matrices[range.clone()]
        else {
            return None;
        };
        let (offset, [by_input, by_output]) = operand.place;
        let mut values = vec![0; tensor.shape.elements()];
        weights.for_each(|output, input, value, _| {
            values[offset + input * by_input + output * by_output] = value;
        });
        Some((values, weights.scales(), output_axis(tensor.shape, operand)?))
    }

    /// Writes the elements of a tensor to the begin of a slice.
    pub(super) fn unpack(&self, name: &str, to: &mut [f32]) {
        let Some(tensor) = self.find(name) else { return };
        match &tensor.form {
            Form::Plain(offset) => {
                let len = tensor.shape.elements();
                to[..len].copy_from_slice(&self.plain[*offset..][..len]);
            }
            Form::Packed(range) => {
                for Matrix { operand, elements, .. } in &self.matrices[range.clone()] {
                    let (offset, [by_input, by_output]) = operand.place;
                    match elements {
                        Some(Packed::Float(matrix)) => matrix.unpack(to, operand.place),
                        Some(Packed::Int8(weights)) => weights.for_each(|output, input, value, scale| {
                            to[offset + input * by_input + output * by_output] = f32::from(value) * scale;
                        }),
                        None => {}
                    }
                }
            }
        }
    }

    /// Writes plain weights to the begin of an arena.
    pub(super) fn write_plain(&self, arena: &mut [f32]) {
        arena[..self.plain.len()].copy_from_slice(&self.plain);
    }

    /// Returns the bytes of all weights.
    pub fn bytes(&self) -> usize {
        let packed = |matrix: &Matrix| match &matrix.elements {
            Some(Packed::Float(matrix)) => matrix.bytes(),
            Some(Packed::Int8(weights)) => weights.bytes(),
            None => 0,
        };
        size_of_val(&*self.plain) + self.matrices.iter().map(packed).sum::<usize>()
    }

    /// Multiplies with a packed matrix.
    pub(super) fn multiply(
        &self,
        matrix: usize,
        matmul: &MatMul,
        memory: &mut Memory,
        scratch: &mut Scratch,
    ) {
        let (products, epilogue) = matmul.products();
        let memory = f32::arena_mut(memory);
        match &self.matrices[matrix].elements {
            Some(Packed::Float(matrix)) => multiply_packed(memory, products, epilogue, matrix),
            Some(Packed::Int8(weights)) => {
                for gemm in products {
                    multiply_int8(memory, gemm, epilogue, weights, scratch);
                }
            }
            None => unreachable!("weights are complete"),
        }
    }
}

/// The offset of a buffer in the arena, which the operands of a plan without weights include.
fn plan_offset(plan: &Plan, buffer: Option<usize>) -> usize {
    buffer.map_or(0, |buffer| plan.buffers[buffer].offset)
}

/// The distinct operands, relative to their tensor, if they hold each of its elements once.
fn partition(
    operands: &[(usize, SecondOperand)],
    offset: usize,
    elements: usize,
) -> Option<Vec<SecondOperand>> {
    let mut distinct: Vec<SecondOperand> = Vec::new();
    for (_, operand) in operands {
        let operand = SecondOperand { place: (operand.place.0 - offset, operand.place.1), ..*operand };
        let known =
            distinct.iter_mut().find(|known| (known.sizes, known.place) == (operand.sizes, operand.place));
        match known {
            Some(known) => known.is_added |= operand.is_added,
            None => distinct.push(operand),
        }
    }
    let size = |operand: &SecondOperand| operand.sizes[0] * operand.sizes[1];
    if distinct.is_empty() || distinct.iter().map(size).sum::<usize>() != elements {
        return None;
    }
    if let [SecondOperand { sizes: [depth, columns], place: (0, strides), .. }] = distinct[..]
        && (strides == [columns, 1] || strides == [1, depth])
    {
        return Some(distinct);
    }
    let mut seen = vec![false; elements];
    for &SecondOperand { sizes: [depth, columns], place: (offset, [by_row, by_column]), .. } in &distinct {
        for row in 0..depth {
            for column in 0..columns {
                let seen = seen.get_mut(offset + row * by_row + column * by_column)?;
                if std::mem::replace(seen, true) {
                    return None;
                }
            }
        }
    }
    Some(distinct)
}

/// Whether a matrix can be held as 8-bit integers: it is a whole tensor, its products are not added to anything, and sums
/// cannot overflow.
fn fits_int8(operand: &SecondOperand, shape: Shape) -> bool {
    let [depth, columns] = operand.sizes;
    int8::is_fast()
        && !operand.is_added
        && depth * columns == shape.elements()
        && output_axis(shape, operand).is_some()
        && depth <= int8::MAX_INPUTS
        && columns <= int8::MAX_OUTPUTS
}

/// Returns the axis of a tensor that is the outputs of a matrix, if there is one.
fn output_axis(shape: Shape, operand: &SecondOperand) -> Option<usize> {
    let ([_, columns], (_, [_, by_output])) = (operand.sizes, operand.place);
    let stride = |axis: usize| shape[axis + 1..].iter().product::<usize>();
    (0..shape.axes()).rev().find(|&axis| shape[axis] == columns && stride(axis) == by_output)
}

impl WeightsBuilder {
    /// Writes the elements of a tensor in row-major order. Packs or quantises them; quantised weights must be finite.
    pub fn write(&mut self, name: &str, elements: &[f32]) -> Result<(), ProgramError> {
        let (index, range) = self.find(name, elements.len())?;
        let Weights { plain, matrices, .. } = &mut self.weights;
        match range {
            Form::Plain(offset) => plain[offset..][..elements.len()].copy_from_slice(elements),
            Form::Packed(range) => {
                for Matrix { operand, format, elements: packed } in &mut matrices[range] {
                    let (sizes @ [depth, columns], place) = (operand.sizes, operand.place);
                    let (offset, [by_input, by_output]) = place;
                    let weight = |output: usize, input: usize| {
                        elements[offset + input * by_input + output * by_output]
                    };
                    let quantized = match format {
                        WeightFormat::F32 | WeightFormat::F16 => None,
                        WeightFormat::Int8 => int8::Weights::quantize_by(columns, depth, weight).ok(),
                    };
                    // Weights that are not finite are multiplied in f32.
                    *packed = Some(match quantized {
                        Some(weights) => Packed::Int8(weights),
                        None if *format == WeightFormat::F16 => {
                            Packed::Float(PackedMatrix::pack(elements, sizes, place).to_half())
                        }
                        None => Packed::Float(PackedMatrix::pack(elements, sizes, place)),
                    });
                }
            }
        }
        self.is_written[index] = true;
        Ok(())
    }

    /// Writes a tensor of 8-bit integers in row-major order, with a scale for each index of an axis. They are used as they are
    /// where the format is [`WeightFormat::Int8`] and the axis is that of the outputs, and multiplied with their scales
    /// otherwise.
    pub fn write_int8(
        &mut self,
        name: &str,
        values: &[i8],
        scales: &[f32],
        axis: usize,
    ) -> Result<(), ProgramError> {
        let (index, form) = self.find(name, values.len())?;
        let shape = self.weights.tensors[index].shape;
        if shape.get(axis) != Some(&scales.len()) || scales.iter().any(|scale| !scale.is_finite()) {
            let wanted = format!("f32{shape} with a finite scale for each index of axis {axis}");
            let found = format!("8-bit integers with {} scales", scales.len());
            return Err(ProgramError::Mismatch { name: name.to_string(), wanted, found });
        }
        if let Form::Packed(range) = form
            && let [Matrix { operand, format: WeightFormat::Int8, elements }] =
                &mut self.weights.matrices[range]
        {
            let ([depth, columns], (offset, [by_input, by_output])) = (operand.sizes, operand.place);
            let is_output = output_axis(shape, operand) == Some(axis);
            let value = |output: usize, input: usize| values[offset + input * by_input + output * by_output];
            let weights = int8::Weights::from_parts(columns, depth, value, scales);
            if let (true, Ok(weights)) = (is_output, weights) {
                *elements = Some(Packed::Int8(weights));
                self.is_written[index] = true;
                return Ok(());
            }
        }
        let inner: usize = shape[axis + 1..].iter().product();
        let scaled = |(i, &value): (usize, &i8)| f32::from(value) * scales[i / inner.max(1) % scales.len()];
        let values: Vec<f32> = values.iter().enumerate().map(scaled).collect();
        self.write(name, &values)
    }

    /// Returns the names of the tensors whose matrices have a format.
    pub fn names_of(&self, format: WeightFormat) -> Vec<&str> {
        self.weights.names_of(format)
    }

    fn find(&self, name: &str, elements: usize) -> Result<(usize, Form), ProgramError> {
        let tensors = &self.weights.tensors;
        let known = || tensors.iter().map(|tensor| tensor.name.as_str()).collect::<Vec<_>>().join(", ");
        let unknown = || ProgramError::Unknown { port: "weight", name: name.to_string(), known: known() };
        let index = tensors.iter().position(|tensor| tensor.name == name).ok_or_else(unknown)?;
        let Tensor { shape, form, .. } = &tensors[index];
        if shape.elements() != elements {
            let (wanted, found) = (format!("f32{shape}"), format!("{elements} elements"));
            return Err(ProgramError::Mismatch { name: name.to_string(), wanted, found });
        }
        Ok((index, form.clone()))
    }

    /// Returns the weights. All tensors must have been written.
    pub fn finish(self) -> Result<Arc<Weights>, ProgramError> {
        let missing = self.weights.tensors.iter().zip(&self.is_written).find(|(_, is_written)| !**is_written);
        match missing {
            Some((Tensor { name, .. }, _)) => Err(ProgramError::Missing { name: name.clone() }),
            None => Ok(Arc::new(self.weights)),
        }
    }
}

/// Buffers of integer multiplications, which a runner keeps from one run to the next.
#[derive(Clone, Debug, Default)]
pub(super) struct Scratch {
    /// One entry for every [`int8::CHUNK_ROWS`] rows.
    activations: Vec<Activations>,
    bias: Vec<f32>,
}

/// Multiplies a first operand with quantised weights. Operand and result are different buffers of a plan, so they are disjoint.
fn multiply_int8(
    memory: &mut [f32],
    gemm: &Gemm,
    epilogue: Option<Epilogue>,
    weights: &int8::Weights,
    scratch: &mut Scratch,
) {
    let Gemm { sizes: [m, n, k], a: (a, [by_row, by_column]), out: (out, [stride, _]), .. } = *gemm;
    let Scratch { activations, bias } = scratch;
    bias.clear();
    bias.extend_from_slice(epilogue.map_or(&[], |epilogue| &memory[epilogue.bias..][..n]));
    let bias = epilogue.map(|_| &bias[..]);
    let relu = epilogue.is_some_and(|epilogue| epilogue.relu);
    let chunks = m.div_ceil(int8::CHUNK_ROWS);
    if activations.len() < chunks {
        activations.resize_with(chunks, Activations::default);
    }
    let (rows, out) = if a < out {
        let (before, after) = memory.split_at_mut(out);
        (&before[a..], after)
    } else {
        let (before, after) = memory.split_at_mut(a);
        (&*after, &mut before[out..])
    };
    let len = ((m.max(1) - 1) * stride + n).min(out.len());
    let chunk_len = int8::CHUNK_ROWS * stride;
    parallel::for_each_chunk(
        &mut out[..len],
        chunk_len,
        &mut activations[..chunks],
        |chunk, out, activations| {
            let first = chunk * int8::CHUNK_ROWS;
            activations.clear(k);
            for row in first..m.min(first + int8::CHUNK_ROWS) {
                let from = &rows[row * by_row..];
                if by_column == 1 {
                    activations.push(&from[..k]);
                } else {
                    activations.push_strided(from, by_column);
                }
            }
            weights.multiply_quantized(activations, bias, relu, out, stride);
        },
    );
}

#[cfg(test)]
pub(crate) mod tests;
