//! Programs: a graph compiled to kernels that run without allocation, lock or look-up. (Softmax of rows longer than 65,536,
//! large products of `f64` and what is shared among threads allocate a little in every step.)
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

mod bound;
mod cache;
mod loops;
mod math;
mod memory;
mod moves;
mod packed;
mod products;
mod timing;
mod updates;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use crate::dtype::{DType, Element};
use crate::graph::{Graph, GraphError, Id};
use crate::kernel::attention::{self, Attention, Tokens};
use crate::kernel::matmul::Epilogue;
use crate::kernel::norm::{self, LayerNorm};
use crate::kernel::recurrent::{self, Pass, Steps};
use crate::plan::{self, BufferKind, Kernel, Plan, Recurrent, View};
use crate::shape::Shape;

use bound::Bindings;
pub use cache::ProgramCache;
use loops::{Compiled, Scratch};
use memory::{Memory, Stored};
use moves::Placed;
use packed::Weights;
use products::Products;
pub use timing::Timings;
pub use updates::Update;
use updates::Updates;

/// A compiled graph.
#[derive(Clone, Debug)]
pub struct Program {
    kernels: Arc<[(DType, Instruction)]>,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    data: Vec<(DType, usize, Arc<[u64]>)>,
    memory: [usize; 4],
    fingerprint: u64,
}

/// An input or output: its name, type and shape, and where it lies.
#[derive(Clone, Debug)]
struct Port {
    name: String,
    dtype: DType,
    shape: Shape,
    /// None for an input that nothing depends on.
    offset: Option<usize>,
    /// The matrices of products that are all that reads or writes it; none if something else does.
    matrices: Option<Vec<(usize, usize)>>,
}

/// A kernel with everything that is known before it runs.
#[derive(Clone, Debug)]
enum Instruction {
    Loop(Compiled),
    Zero { begin: usize, length: usize },
    MatMul(Products),
    Cast { x: Placed, to: DType, out: usize },
    Gather { x: Placed, indices: Placed, axis: usize, out: usize },
    ScatterAdd { x: Placed, indices: Placed, axis: usize, out: Placed },
    CumSum { x: Placed, reverse: bool, out: usize },
    ArgReduce { x: Placed, axis: usize, largest: bool, out: usize },
    Softmax { x: usize, out: usize, rows: usize, row: usize, log: bool },
    Recurrent(Steps),
    Attention(Attention),
    LayerNorm(LayerNorm),
}

/// Something that cannot be done with a program.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramError {
    /// The graph has nothing to compute.
    #[error("the graph has no outputs")]
    NoOutputs,
    /// The graph is not legal.
    #[error(transparent)]
    Graph(#[from] GraphError),
    /// No input or output of that name.
    #[error("there is no {port} {name:?}; there are {known}")]
    Unknown {
        /// `input` or `output`.
        port: &'static str,
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// Another type or number of elements.
    #[error("{name:?} is {wanted}, but was given or asked for as {found}")]
    Misfit {
        /// The name of the input or output.
        name: String,
        /// What it is.
        wanted: String,
        /// What was given or asked for.
        found: String,
    },
    /// A slice is too short for the ports that are bound to it.
    #[error("the bound inputs or outputs need {wanted} elements, but the slice has {found}")]
    Bound {
        /// Elements that are needed.
        wanted: usize,
        /// Elements that there are.
        found: usize,
    },
    /// Two parameters that are, or share, one thing.
    #[error("{first:?} and {second:?} have a name, a gradient or a place in common")]
    Twice {
        /// The first parameter.
        first: String,
        /// The second.
        second: String,
    },
}

impl Program {
    /// Rewrites, plans and compiles a graph.
    pub fn new(graph: &Graph) -> Result<Program, ProgramError> {
        Ok(Program::compile(graph, &canonical(graph)?))
    }

    /// Plans and compiles a graph, given its canonical form.
    fn compile(graph: &Graph, canonical: &Graph) -> Program {
        let plan = Plan::new(canonical);
        let mut places = FxHashMap::default();
        let mut data = Vec::new();
        for (index, buffer) in plan.buffers.iter().enumerate() {
            match &buffer.kind {
                BufferKind::Data(bits) => data.push((buffer.dtype, buffer.offset, bits.clone())),
                BufferKind::Input(name) => _ = places.insert(name.as_str(), index),
                BufferKind::Value { .. } => {}
            }
        }
        let input = |(name, id): (&str, Id)| Port {
            name: name.to_string(),
            dtype: graph.dtype(id),
            shape: graph.shape(id),
            offset: places.get(name).map(|&buffer| plan.buffers[buffer].offset),
            matrices: places.get(name).and_then(|&buffer| bound::matrices(&plan, buffer)),
        };
        let inputs = graph.inputs().map(input).collect();
        let output = |(name, shape, buffer): &(String, Shape, usize)| Port {
            name: name.clone(),
            dtype: plan.buffers[*buffer].dtype,
            shape: *shape,
            offset: Some(plan.buffers[*buffer].offset),
            matrices: bound::matrices(&plan, *buffer),
        };
        Program {
            kernels: plan
                .kernels
                .iter()
                .map(|(dtype, kernel)| (*dtype, compile(&plan, *dtype, kernel)))
                .collect(),
            inputs,
            outputs: plan.outputs.iter().map(output).collect(),
            data,
            memory: plan.memory,
            fingerprint: canonical.fingerprint(),
        }
    }

    /// A number for what the program computes: that of the canonical form of its graph.
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Memory to run the program in.
    pub fn runner(&self) -> Runner {
        let mut memory = Memory::new(self.memory);
        for (dtype, offset, bits) in &self.data {
            memory.write_bits(*dtype, *offset, bits);
        }
        Runner {
            program: self.clone(),
            memory,
            scratch: Scratches::default(),
            bindings: Bindings::default(),
            updates: Updates::default(),
            weights: Weights::of(self),
        }
    }

    /// Bytes of memory that a runner has, without the panels of weights that it packs.
    pub fn bytes(&self) -> usize {
        DType::ALL.iter().zip(self.memory).map(|(dtype, elements)| dtype.size() * elements).sum()
    }

    /// The kernels, a line each.
    pub fn kernels(&self) -> Vec<String> {
        self.kernels.iter().map(|(dtype, instruction)| describe(*dtype, instruction)).collect()
    }

    /// Bytes that each kernel reads and writes, in the order of [`Program::kernels`]. What is read repeatedly counts once.
    pub fn traffic(&self) -> Vec<usize> {
        self.kernels.iter().map(|(dtype, instruction)| dtype.size() * traffic(instruction)).collect()
    }
}

/// The canonical form of a graph that can be compiled.
fn canonical(graph: &Graph) -> Result<Graph, ProgramError> {
    if graph.outputs().is_empty() {
        return Err(ProgramError::NoOutputs);
    }
    graph.check()?;
    Ok(graph.rewrite())
}

/// Kernels with the operations that are fused into them and the bytes they move, then the memory.
impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for port in &self.inputs {
            writeln!(f, "input {:?} : {}{}", port.name, port.dtype, port.shape)?;
        }
        for ((line, bytes), (_, instruction)) in
            self.kernels().iter().zip(self.traffic()).zip(self.kernels.iter())
        {
            let fused = match instruction {
                Instruction::Loop(body) => format!(" ({})", body.names().join(" ")),
                _ => String::new(),
            };
            writeln!(f, "{line}{fused}, {bytes} bytes")?;
        }
        for port in &self.outputs {
            writeln!(f, "output {:?} : {}{}", port.name, port.dtype, port.shape)?;
        }
        let moved: usize = self.traffic().iter().sum();
        writeln!(f, "{} kernels, {} bytes of memory, {moved} bytes moved", self.kernels.len(), self.bytes())
    }
}

fn compile(plan: &Plan, dtype: DType, kernel: &Kernel) -> Instruction {
    let begin = |buffer: usize| plan.buffers[buffer].offset;
    let length = |buffer: usize| plan.buffers[buffer].elements;
    let placed = |view: &View| Placed::new(view, begin(view.buffer));
    match kernel {
        Kernel::Loop(body) => Instruction::Loop(Compiled::new(dtype, body, begin, length)),
        Kernel::Zero { buffer } => Instruction::Zero { begin: begin(*buffer), length: length(*buffer) },
        Kernel::MatMul { a, b, out, accumulate, bias } => {
            let place = |(bias, relu): &(View, bool)| Epilogue { bias: placed(bias).offset, relu: *relu };
            let epilogue = bias.as_ref().map(place);
            Instruction::MatMul(Products::new(&placed(a), &placed(b), &placed(out), *accumulate, epilogue))
        }
        Kernel::Cast { x, out } => {
            Instruction::Cast { x: placed(x), to: plan.buffers[*out].dtype, out: begin(*out) }
        }
        Kernel::Gather { x, indices, axis, out } => {
            Instruction::Gather { x: placed(x), indices: placed(indices), axis: *axis, out: begin(*out) }
        }
        Kernel::ScatterAdd { x, indices, axis, out } => {
            Instruction::ScatterAdd { x: placed(x), indices: placed(indices), axis: *axis, out: placed(out) }
        }
        Kernel::CumSum { x, reverse, out } => {
            Instruction::CumSum { x: placed(x), reverse: *reverse, out: begin(*out) }
        }
        Kernel::ArgReduce { x, axis, largest, out } => {
            Instruction::ArgReduce { x: placed(x), axis: *axis, largest: *largest, out: begin(*out) }
        }
        &Kernel::Softmax { ref x, row, log, out } => {
            let rows = length(out).checked_div(row).unwrap_or(0);
            Instruction::Softmax { x: begin(x.buffer) + x.offset, out: begin(out), rows, row, log }
        }
        Kernel::LayerNorm { epsilon, x, gain, other, out, scratch } => {
            let place = |view: &View| begin(view.buffer) + view.offset;
            Instruction::LayerNorm(LayerNorm {
                rows: x.sizes[0],
                columns: x.sizes[1],
                epsilon: f64::from_bits(*epsilon),
                x: place(x),
                gain: place(gain),
                other: place(other),
                out: begin(*out),
                scratch: scratch.map(begin),
            })
        }
        Kernel::Attention(attention) => Instruction::Attention(compile_attention(attention, begin)),
        Kernel::Recurrent(cell) => Instruction::Recurrent(compile_steps(cell, begin)),
    }
}

fn compile_attention(attention: &plan::Attention, begin: impl Fn(usize) -> usize) -> Attention {
    let &plan::Attention { heads, ref operands, ref gradient, out } = attention;
    let tokens = |view: &View| Tokens {
        at: begin(view.buffer) + view.offset,
        strides: [view.strides[0], view.strides[1]],
    };
    let [queries, keys, values] = operands;
    Attention {
        batch: queries.sizes[0],
        heads,
        queries: queries.sizes[1],
        keys: keys.sizes[1],
        width: keys.sizes[2] / heads,
        values: values.sizes[2] / heads,
        operands: [tokens(queries), tokens(keys), tokens(values)],
        gradient: gradient.as_ref().map(tokens),
        out: begin(out),
    }
}

fn compile_steps(recurrent: &Recurrent, begin: impl Fn(usize) -> usize) -> Steps {
    let &Recurrent { cell, backward, all, sizes: [time, batch, hidden, features], ref args, out, scratch } =
        recurrent;
    let place = |arg: usize| begin(args[arg].buffer) + args[arg].offset;
    let matrix = |arg: usize| (place(arg), [args[arg].strides[0], args[arg].strides[1]]);
    let (inputs, tape, pass) = if backward {
        (2, place(1), Pass::Backward { gradients: place(0), out: begin(out), of_inputs: all })
    } else {
        (0, begin(out), Pass::Forward { biases: [place(3), place(4)], keeps: all })
    };
    Steps {
        cell,
        time,
        batch,
        hidden,
        features,
        inputs: place(inputs),
        input_weights: matrix(inputs + 1),
        weights: matrix(inputs + 2),
        tape,
        scratch: begin(scratch),
        pass,
    }
}

fn describe(dtype: DType, instruction: &Instruction) -> String {
    match instruction {
        Instruction::Loop(body) => loops::describe(dtype, body),
        Instruction::Zero { length, .. } => format!("zero {dtype}[{length}]"),
        Instruction::MatMul(products) => products.describe(dtype),
        Instruction::Cast { to, .. } => format!("cast {dtype} to {to}"),
        Instruction::Gather { .. } => format!("gather {dtype}"),
        Instruction::ScatterAdd { .. } => format!("scatter_add {dtype}"),
        Instruction::CumSum { .. } => format!("cumsum {dtype}"),
        Instruction::ArgReduce { .. } => format!("arg_reduce {dtype}"),
        Instruction::Softmax { rows, row, log, .. } => {
            format!("{}softmax {dtype}[{rows}, {row}]", if *log { "log_" } else { "" })
        }
        Instruction::LayerNorm(norm) => {
            let gradient = if norm.scratch.is_some() { " gradient" } else { "" };
            format!("layer_norm{gradient} {dtype}[{}, {}]", norm.rows, norm.columns)
        }
        Instruction::Attention(attention) => format!(
            "attention{} {dtype}: {} of {} heads, {}x{}x{}",
            if attention.gradient.is_some() { " gradient" } else { "" },
            attention.batch,
            attention.heads,
            attention.queries,
            attention.keys,
            attention.width
        ),
        Instruction::Recurrent(steps) => format!(
            "{}{} {dtype}: {} steps of {}x{}x{}",
            steps.cell.name(),
            if steps.is_backward() { " gradient" } else { "" },
            steps.time,
            steps.batch,
            steps.features + steps.hidden,
            steps.cell.gates() * steps.hidden
        ),
    }
}

/// Elements that a kernel reads and writes.
fn traffic(instruction: &Instruction) -> usize {
    match instruction {
        Instruction::Loop(body) => body.traffic(),
        Instruction::Zero { length, .. } => *length,
        Instruction::MatMul(products) => products.traffic(),
        Instruction::Cast { x, .. } | Instruction::CumSum { x, .. } | Instruction::ArgReduce { x, .. } => {
            2 * x.elements()
        }
        Instruction::Gather { x, indices, axis, .. } => {
            2 * x.elements() / x.sizes[*axis].max(1) * indices.elements()
        }
        Instruction::ScatterAdd { x, out, .. } => x.elements() + out.elements(),
        Instruction::Softmax { rows, row, .. } => 2 * rows * row,
        Instruction::LayerNorm(norm) => norm.traffic(),
        Instruction::Attention(attention) => attention.traffic(),
        Instruction::Recurrent(steps) => steps.traffic(),
    }
}

/// Tiles between the operations of loops, for each type.
#[derive(Clone, Debug, Default)]
struct Scratches {
    f32s: Scratch<f32>,
    f64s: Scratch<f64>,
    i32s: Scratch<i32>,
    i64s: Scratch<i64>,
}

/// A program with memory to run in.
#[derive(Clone, Debug)]
pub struct Runner {
    program: Program,
    memory: Memory,
    scratch: Scratches,
    bindings: Bindings,
    updates: Updates,
    /// In the order of their kernels.
    weights: Vec<Weights>,
}

/// Calls a generic function for the type of a kernel.
macro_rules! for_type {
    ($dtype:expr, $function:ident ( $($argument:expr),* )) => {
        match $dtype {
            DType::F32 => moves::$function::<f32>($($argument),*),
            DType::F64 => moves::$function::<f64>($($argument),*),
            DType::I32 => moves::$function::<i32>($($argument),*),
            DType::I64 => moves::$function::<i64>($($argument),*),
        }
    };
}

impl Runner {
    /// What it runs.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Gives an input its elements, row by row.
    pub fn write<T: Stored>(&mut self, name: &str, elements: &[T]) -> Result<(), ProgramError> {
        let (input, port) = find("input", &self.program.inputs, name)?;
        check::<T>(port, elements.len())?;
        if let Some(to) = self.place_of(input) {
            to.copy_from_slice(elements);
        }
        Ok(())
    }

    /// The elements of an input, to be written in place; none if nothing depends on it.
    pub fn input_mut<T: Stored>(&mut self, name: &str) -> Result<&mut [T], ProgramError> {
        let (input, port) = find("input", &self.program.inputs, name)?;
        check::<T>(port, port.shape.elements())?;
        Ok(self.place_of(input).unwrap_or_default())
    }

    /// Where the elements of an input are, which are about to change.
    fn place_of<T: Stored>(&mut self, input: usize) -> Option<&mut [T]> {
        self.weights.iter_mut().for_each(|weights| weights.written(input));
        let port = &self.program.inputs[input];
        port.offset.map(|begin| &mut T::arena_mut(&mut self.memory)[begin..][..port.shape.elements()])
    }

    /// The elements of an output, row by row.
    pub fn read<T: Stored>(&self, name: &str) -> Result<&[T], ProgramError> {
        let (_, port) = find("output", &self.program.outputs, name)?;
        check::<T>(port, port.shape.elements())?;
        Ok(&T::arena(&self.memory)[port.offset.unwrap_or(0)..][..port.shape.elements()])
    }

    /// Computes the outputs from the inputs.
    pub fn run(&mut self) {
        self.each_kernel(|_, run| run());
    }

    /// Computes the outputs like [`Runner::run`], and the time that each kernel took, in the order of
    /// [`Program::kernels`].
    pub fn run_timed(&mut self) -> Vec<Duration> {
        let mut times = vec![Duration::ZERO; self.program.kernels.len()];
        self.each_kernel(|kernel, run| {
            let start = Instant::now();
            run();
            times[kernel] = start.elapsed();
        });
        times
    }

    /// Hands over one kernel after the other, to be run.
    fn each_kernel(&mut self, mut with: impl FnMut(usize, &mut dyn FnMut())) {
        let Runner { program, memory, scratch, weights, .. } = self;
        let mut weights = weights.iter_mut().peekable();
        for (index, kernel) in program.kernels.iter().enumerate() {
            match weights.next_if(|weights| weights.kernel == index) {
                Some(weights) => with(index, &mut || weights.multiply(memory)),
                None => with(index, &mut || execute(kernel, memory, scratch)),
            }
        }
    }
}

/// Runs one kernel.
fn execute((dtype, instruction): &(DType, Instruction), memory: &mut Memory, scratch: &mut Scratches) {
    match instruction {
        Instruction::Loop(body) => match dtype {
            DType::F32 => body.run(memory, &mut scratch.f32s),
            DType::F64 => body.run(memory, &mut scratch.f64s),
            DType::I32 => body.run(memory, &mut scratch.i32s),
            DType::I64 => body.run(memory, &mut scratch.i64s),
        },
        &Instruction::Zero { begin, length } => for_type!(dtype, zero(memory, begin, length)),
        Instruction::MatMul(products) => match dtype {
            DType::F32 => products.run::<f32>(memory),
            _ => products.run::<f64>(memory),
        },
        Instruction::Cast { x, to, out } => for_type!(dtype, cast_to(memory, x, *to, *out)),
        Instruction::Gather { x, indices, axis, out } => {
            for_type!(dtype, gather(memory, x, indices, *axis, *out));
        }
        Instruction::ScatterAdd { x, indices, axis, out } => {
            for_type!(dtype, scatter_add(memory, x, indices, *axis, out));
        }
        Instruction::CumSum { x, reverse, out } => {
            for_type!(dtype, cumsum(memory, x, *reverse, *out));
        }
        Instruction::ArgReduce { x, axis, largest, out } => {
            for_type!(dtype, arg_reduce(memory, x, *axis, *largest, *out));
        }
        &Instruction::Softmax { x, out, rows, row, log } => match dtype {
            DType::F32 => moves::softmax::<f32>(memory, x, out, rows, row, log),
            _ => moves::softmax::<f64>(memory, x, out, rows, row, log),
        },
        Instruction::LayerNorm(norm) => match (dtype, norm.scratch) {
            (DType::F32, None) => norm::forward(f32::arena_mut(memory), norm),
            (DType::F32, Some(_)) => norm::backward(f32::arena_mut(memory), norm),
            (_, None) => norm::forward(f64::arena_mut(memory), norm),
            (_, Some(_)) => norm::backward(f64::arena_mut(memory), norm),
        },
        Instruction::Attention(attention) => match (dtype, attention.gradient) {
            (DType::F32, None) => attention::forward(f32::arena_mut(memory), attention),
            (DType::F32, Some(_)) => attention::backward(f32::arena_mut(memory), attention),
            (_, None) => attention::forward(f64::arena_mut(memory), attention),
            (_, Some(_)) => attention::backward(f64::arena_mut(memory), attention),
        },
        Instruction::Recurrent(steps) => match (dtype, steps.is_backward()) {
            (DType::F32, false) => recurrent::forward(f32::arena_mut(memory), steps),
            (DType::F32, true) => recurrent::backward(f32::arena_mut(memory), steps),
            (_, false) => recurrent::forward(f64::arena_mut(memory), steps),
            (_, true) => recurrent::backward(f64::arena_mut(memory), steps),
        },
    }
}

/// The number of a port, and the port.
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
    Err(ProgramError::Misfit {
        name: port.name.clone(),
        wanted: format!("{}{}", port.dtype, port.shape),
        found: format!("{elements} elements of {}", T::DTYPE),
    })
}

#[cfg(test)]
mod tests;
