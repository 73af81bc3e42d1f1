//! Programs: compiled graphs, and runners that execute them.
//!
//! A run does not allocate, lock or look anything up, with three exceptions that allocate a little: softmax of rows longer
//! than 65,536, matrix multiplications of other types than `f32` or
//! with scattered results, and work that is distributed to threads.
//!
//! | file | what is in it |
//! |---|---|
//! | `binding` | inputs and outputs in slices of the caller |
//! | `updates` | parameter updates during the backward pass |
//! | `operands` | second operands of matrix multiplications that a runner packs once |
//! | [`weights`] | weights that several programs share, packed or quantised |
//! | `session` | several programs in one memory |
//! | `timing` | the time of each kernel |
//! | `cache` | a cache of programs by their graphs |
//!
//! ```
//! use gatework_engine::{DType, Graph, Program};
//!
//! let mut g = Graph::new();
//! let x = g.input("x", DType::F32, &[2, 3])?;
//! let y = g.gelu(x)?;
//! let sum = g.sum(y, &[1])?;
//! g.output("sum", sum)?;
//! let program = Program::new(&g)?;
//! let mut runner = program.runner();
//! runner.write("x", &[1.0f32, 2.0, 3.0, -1.0, -2.0, -3.0])?;
//! runner.run();
//! assert!((runner.read::<f32>("sum")?[0] - 5.7918).abs() < 1e-3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod binding;
mod cache;
mod operands;
mod session;
mod timing;
mod updates;
pub mod weights;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::dtype::{DType, Element};
use crate::graph::{Graph, GraphError, Id};
use crate::instruction::memory::{ARENAS, Memory};
use crate::instruction::{Instruction, Scratch, Stored};
use crate::kernel::half::Half;
use crate::plan::{BufferKind, Plan};
use crate::shape::Shape;

use binding::Bindings;
pub use cache::ProgramCache;
use operands::Operand;
pub use session::Session;
pub use timing::{KernelTime, Timings};
pub use updates::Update;
use updates::Updates;
pub use weights::{WeightFormat, Weights, WeightsBuilder};

/// A compiled graph.
#[derive(Clone, Debug)]
pub struct Program {
    instructions: Arc<[Instruction]>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    /// Type, offset and bits of constants.
    data: Vec<(DType, usize, Arc<[u64]>)>,
    /// Elements of each arena, in the order of [`DType::ALL`], 16-bit numbers last.
    memory: [usize; ARENAS],
    /// Largest number of bytes of intermediate values that exist at the same time.
    peak: usize,
    fingerprint: u64,
    weights: Option<Arc<Weights>>,
    /// Matrix multiplications whose second operand is a packed matrix of the weights, and the index of the matrix.
    packed: Arc<[(usize, usize)]>,
    /// Packed weights that the program needs unpacked: the name, and the offset in the arena.
    unpacked: Vec<(String, usize)>,
}

/// An input or output.
#[derive(Clone, Debug)]
struct Port {
    name: String,
    dtype: DType,
    shape: Shape,
    /// Offset in the arena; `None` for an input that no output depends on.
    offset: Option<usize>,
    /// The operands of matrix multiplications that use it, if nothing else does.
    matrices: Option<Vec<Matrix>>,
    /// Whether it is part of shared weights, which cannot be written.
    is_shared: bool,
}

/// A matrix of a matrix multiplication.
#[derive(Clone, Copy, Debug)]
struct Matrix {
    /// The matrix multiplication, by its index in the program.
    instruction: usize,
    /// 0 and 1 for the operands, 2 for the result.
    operand: usize,
}

/// An error when a graph is compiled, or when a runner is given inputs, outputs or slices.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The graph has no outputs.
    #[error("the graph has no outputs")]
    NoOutputs,
    /// The graph is not legal.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// There is no input or output of that name.
    #[error("there is no {port} {name:?}; there are {known}")]
    Unknown {
        /// `input` or `output`.
        port: &'static str,
        /// The unknown name.
        name: String,
        /// The existing names.
        known: String,
    },
    /// A wrong type or number of elements.
    #[error("{name:?} is {wanted}, but was accessed as {found}")]
    Mismatch {
        /// The name of the input or output.
        name: String,
        /// Its type and shape.
        wanted: String,
        /// The type and number of elements of the slice.
        found: String,
    },
    /// A slice is too short for the ports that are bound to it.
    #[error("the bound inputs or outputs need {wanted} elements, but the slice has {found}")]
    ShortSlice {
        /// Elements that are needed.
        wanted: usize,
        /// Elements of the slice.
        found: usize,
    },
    /// An input is part of shared weights.
    #[error(
        "{name:?} is part of the shared weights of the program, which are immutable; build other weights"
    )]
    Shared {
        /// The name of the input.
        name: String,
    },
    /// A weight has no elements yet.
    #[error("the weights {name:?} were not written")]
    Missing {
        /// The name of the weight.
        name: String,
    },
    /// Two parameters have the same name or gradient, or overlap.
    #[error("{first:?} and {second:?} have the same name or gradient, or overlap")]
    ConflictingParameters {
        /// The first parameter.
        first: String,
        /// The second parameter.
        second: String,
    },
}

impl Program {
    /// Rewrites, plans and compiles a graph.
    pub fn new(graph: &Graph) -> Result<Program, ProgramError> {
        Program::compile(graph, None)
    }

    /// Compiles a graph whose inputs of the names of these weights are read from them. Runners of all programs with the same
    /// weights share them.
    pub fn with_weights(graph: &Graph, weights: &Arc<Weights>) -> Result<Program, ProgramError> {
        weights.check(graph)?;
        Program::compile(graph, Some(weights))
    }

    fn compile(graph: &Graph, weights: Option<&Arc<Weights>>) -> Result<Program, ProgramError> {
        if graph.outputs().is_empty() {
            return Err(ProgramError::NoOutputs);
        }
        graph.check()?;
        let canonical = graph.rewrite();
        let plan = Plan::new(&canonical, weights.map(|weights| &**weights));
        let mut input_buffers = FxHashMap::default();
        let mut data = Vec::new();
        for (index, buffer) in plan.buffers.iter().enumerate() {
            match &buffer.kind {
                BufferKind::Data(bits) => data.push((buffer.dtype, buffer.offset, bits.clone())),
                BufferKind::Input(name) | BufferKind::Weights { name, .. } => {
                    input_buffers.insert(name.as_str(), index);
                }
                BufferKind::Value { .. } => {}
            }
        }
        let port = |name: &str, dtype: DType, shape: Shape, buffer: Option<usize>| Port {
            name: name.to_string(),
            dtype,
            shape,
            offset: buffer.map(|buffer| plan.buffers[buffer].offset),
            matrices: buffer.and_then(|buffer| binding::matrices(&plan, buffer)),
            is_shared: false,
        };
        let input = |(name, id): (&str, Id)| {
            let buffer = input_buffers.get(name).copied().filter(|&buffer| !plan.is_packed(buffer));
            let port = port(name, graph.dtype(id), graph.shape(id), buffer);
            Port { is_shared: weights.is_some_and(|weights| weights.contains(name)), ..port }
        };
        let output = |(name, shape, buffer): &(String, Shape, usize)| {
            port(name, plan.buffers[*buffer].dtype, *shape, Some(*buffer))
        };
        let inputs: Vec<Port> = graph.inputs().map(input).collect();
        let is_unpacked = |port: &&Port| {
            let buffer = input_buffers.get(port.name.as_str());
            port.is_shared
                && buffer.is_some_and(|&buffer| matches!(plan.buffers[buffer].kind, BufferKind::Input(_)))
        };
        let unpacked = inputs.iter().filter(is_unpacked);
        let unpacked = unpacked.filter_map(|port| Some((port.name.clone(), port.offset?))).collect();
        let outputs = plan.outputs.iter().map(output).collect();
        Ok(Program {
            inputs,
            outputs,
            data,
            memory: plan.memory,
            peak: plan.peak,
            instructions: plan.instructions.into(),
            fingerprint: canonical.fingerprint(),
            weights: weights.cloned(),
            packed: plan.packed.into(),
            unpacked,
        })
    }

    /// A hash of what the program computes: that of the canonical form of its graph.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Allocates memory to run the program in.
    pub fn runner(&self) -> Runner {
        let mut runner = self.idle_runner();
        runner.memory = Memory::new(self.memory);
        runner.load(true);
        runner
    }

    /// A runner without memory, for a [`Session`].
    fn idle_runner(&self) -> Runner {
        Runner {
            program: self.clone(),
            memory: Memory::default(),
            scratch: Scratch::default(),
            quantization: weights::Scratch::default(),
            bindings: Bindings::default(),
            updates: Updates::default(),
            operands: Operand::of(self),
        }
    }

    /// The weights that its runners share.
    pub fn weights(&self) -> Option<&Arc<Weights>> {
        self.weights.as_ref()
    }

    /// Bytes of the memory of a runner, without packed weights.
    pub fn bytes(&self) -> usize {
        let sizes = DType::ALL.iter().map(|dtype| dtype.size()).chain([Half::BYTES]);
        sizes.zip(self.memory).map(|(size, elements)| size * elements).sum()
    }

    /// Largest number of bytes of intermediate values that exist at the same time, without inputs, constants and outputs. In
    /// training, these are the activations that are kept for the backward pass, and gradients of activations. A runner allocates
    /// [`Program::bytes`].
    pub fn activation_bytes(&self) -> usize {
        self.peak
    }

    /// Returns whether there is an input of that name.
    pub fn has_input(&self, name: &str) -> bool {
        self.inputs.iter().any(|port| port.name == name)
    }

    /// The kernels, one line each.
    pub fn kernels(&self) -> Vec<String> {
        self.instructions.iter().map(|instruction| instruction.get().describe()).collect()
    }

    /// Bytes that each kernel reads and writes, in the order of [`Program::kernels`]. What is read repeatedly counts once.
    pub fn traffic(&self) -> Vec<usize> {
        self.instructions.iter().map(|instruction| instruction.get().traffic()).collect()
    }
}

/// Inputs, kernels with their fused operations and memory traffic, outputs, and totals:
///
/// ```
/// # use gatework_engine::{DType, Scope};
/// let scope = Scope::new();
/// let (x, w) = (scope.input("x", DType::F32, &[8, 4]), scope.input("w", DType::F32, &[4, 4]));
/// let program = scope.compile(&[("y", (x.matmul(w) * 2.0).tanh().sum_all())])?;
/// let text = program.to_string();
/// assert!(text.contains("matmul f32 8x4x4"), "{text}");
/// assert!(text.contains("(mul tanh sum)") || text.contains("(add tanh sum)"), "{text}");
/// # Ok::<(), gatework_engine::program::ProgramError>(())
/// ```
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for port in &self.inputs {
            writeln!(f, "input {:?} : {}{}", port.name, port.dtype, port.shape)?;
        }
        for instruction in self.instructions.iter() {
            writeln!(f, "{}, {} bytes", instruction.describe_fused(), instruction.get().traffic())?;
        }
        for port in &self.outputs {
            writeln!(f, "output {:?} : {}{}", port.name, port.dtype, port.shape)?;
        }
        let moved: usize = self.traffic().iter().sum();
        writeln!(
            f,
            "{} kernels, {} bytes of memory, {moved} bytes moved",
            self.instructions.len(),
            self.bytes()
        )
    }
}

/// A program with memory to run in.
#[derive(Clone, Debug)]
pub struct Runner {
    program: Program,
    memory: Memory,
    scratch: Scratch,
    bindings: Bindings,
    updates: Updates,
    /// In the order of their instructions.
    operands: Vec<Operand>,
    quantization: weights::Scratch,
}

impl Runner {
    /// The program that it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Writes the elements of an input in row-major order.
    pub fn write<T: Stored>(&mut self, name: &str, elements: &[T]) -> Result<(), ProgramError> {
        let (input, port) = find_writable(&self.program.inputs, name)?;
        check::<T>(port, elements.len())?;
        if let Some(to) = self.input_elements(input) {
            to.copy_from_slice(elements);
        }
        Ok(())
    }

    /// The elements of an input, to be written in place; empty if no output depends on it.
    pub fn input_mut<T: Stored>(&mut self, name: &str) -> Result<&mut [T], ProgramError> {
        let (input, port) = find_writable(&self.program.inputs, name)?;
        check::<T>(port, port.shape.elements())?;
        Ok(self.input_elements(input).unwrap_or_default())
    }

    /// The elements of an input that is about to change.
    fn input_elements<T: Stored>(&mut self, input: usize) -> Option<&mut [T]> {
        self.operands.iter_mut().for_each(|operand| operand.invalidate(input));
        let port = &self.program.inputs[input];
        port.offset.map(|begin| &mut T::arena_mut(&mut self.memory)[begin..][..port.shape.elements()])
    }

    /// The elements of an output in row-major order.
    pub fn read<T: Stored>(&self, name: &str) -> Result<&[T], ProgramError> {
        let (_, port) = find("output", &self.program.outputs, name)?;
        check::<T>(port, port.shape.elements())?;
        Ok(&T::arena(&self.memory)[port.offset.unwrap_or(0)..][..port.shape.elements()])
    }

    /// Computes the outputs from the inputs.
    pub fn run(&mut self) {
        self.for_each_kernel(|_, run| run());
    }

    /// Like [`Runner::run`]. Returns the time of each kernel, in the order of [`Program::kernels`].
    fn run_timed(&mut self) -> Vec<Duration> {
        let mut times = vec![Duration::ZERO; self.program.instructions.len()];
        self.for_each_kernel(|kernel, run| {
            let start = Instant::now();
            run();
            times[kernel] = start.elapsed();
        });
        times
    }

    /// Calls `call` for each kernel in order, with a function that runs the kernel.
    fn for_each_kernel(&mut self, mut call: impl FnMut(usize, &mut dyn FnMut())) {
        let Runner { program, memory, scratch, operands, quantization, .. } = self;
        let (mut operands, mut packed) = (operands.iter_mut().peekable(), program.packed.iter().peekable());
        for (index, instruction) in program.instructions.iter().enumerate() {
            if let Some(operand) = operands.next_if(|operand| operand.instruction == index) {
                call(index, &mut || operand.multiply(memory));
                continue;
            }
            let matrix = packed.next_if(|(instruction, _)| *instruction == index);
            match (instruction, &program.weights, matrix) {
                (Instruction::MatMul(matmul), Some(weights), Some(&(_, matrix))) => {
                    call(index, &mut || weights.multiply(matrix, matmul, memory, quantization));
                }
                _ => call(index, &mut || instruction.get().run(memory, scratch)),
            }
        }
    }

    /// Writes what is constant into new memory, or into that of another program with the same weights.
    fn load(&mut self, is_new: bool) {
        let Runner { program, memory, .. } = self;
        for (dtype, offset, bits) in &program.data {
            memory.write_bits(*dtype, *offset, bits);
        }
        let Some(weights) = &program.weights else { return };
        let arena = f32::arena_mut(memory);
        if is_new {
            weights.write_plain(arena);
        }
        for (name, offset) in &program.unpacked {
            weights.unpack(name, &mut arena[*offset..]);
        }
    }

    /// An error if the program has shared weights, which cannot be bound to slices.
    fn check_unshared(&self) -> Result<(), ProgramError> {
        match self.program.inputs.iter().find(|port| port.is_shared) {
            Some(port) => Err(ProgramError::Shared { name: port.name.clone() }),
            None => Ok(()),
        }
    }
}

/// The index of an input that may be written, and its port.
fn find_writable<'a>(inputs: &'a [Port], name: &str) -> Result<(usize, &'a Port), ProgramError> {
    match find("input", inputs, name)? {
        (_, port) if port.is_shared => Err(ProgramError::Shared { name: name.to_string() }),
        found => Ok(found),
    }
}

/// The index of a port, and the port.
fn find<'a>(port: &'static str, ports: &'a [Port], name: &str) -> Result<(usize, &'a Port), ProgramError> {
    ports.iter().enumerate().find(|(_, port)| port.name == name).ok_or_else(|| {
        let known: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        ProgramError::Unknown { port, name: name.to_string(), known: known.join(", ") }
    })
}

fn check<T: Element>(port: &Port, elements: usize) -> Result<(), ProgramError> {
    if (port.dtype, port.shape.elements()) == (T::DTYPE, elements) {
        return Ok(());
    }
    Err(ProgramError::Mismatch {
        name: port.name.clone(),
        wanted: format!("{}{}", port.dtype, port.shape),
        found: format!("{elements} elements of {}", T::DTYPE),
    })
}

#[cfg(test)]
pub(crate) mod tests;
