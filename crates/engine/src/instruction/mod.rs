//! Instructions: what a plan is made of and a program runs.
//!
//! An instruction is one type from planning to execution. The planner creates it on [views](View) of buffers; when the
//! arena is laid out, its views get their final offsets; then it runs as often as the program does, without allocation or
//! look-up. Each kind has a file of its own that implements [`Execute`]; those of composite operations (layer norm,
//! attention, ...) are next to the operation in `ops`.
//!
//! | file | what is in it |
//! |---|---|
//! | `view` | a tensor in a buffer: offset, sizes and strides |
//! | `memory` | the arenas, one for each element type |
//! | `loops` | fused element-wise operations, with an optional reduction |
//! | `matmul` | batches of matrix multiplications |
//! | `zero`, `cast`, `gather`, `scatter`, `cumsum`, `arg_reduce` | the remaining elementary operations |

use std::fmt;

/// Evaluates an expression with a type alias for the Rust type of a [`DType`](crate::DType).
macro_rules! with_type {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::DType::I32 => {
                type $T = i32;
                $body
            }
            $crate::DType::I64 => {
                type $T = i64;
                $body
            }
        }
    };
}

/// Like `with_type`, for operations that exist for floating-point types only.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            _ => {
                type $T = f64;
                $body
            }
        }
    };
}

pub(crate) use with_float;

mod arg_reduce;
mod cast;
mod cumsum;
mod gather;
pub(crate) mod loops;
pub(crate) mod matmul;
pub(crate) mod memory;
mod scatter;
mod view;
mod zero;

pub(crate) use arg_reduce::ArgReduce;
pub(crate) use cast::Cast;
pub(crate) use cumsum::CumSum;
pub(crate) use gather::Gather;
pub(crate) use loops::Loop;
pub(crate) use matmul::MatMul;
pub(crate) use memory::{Memory, Stored};
pub(crate) use scatter::ScatterAdd;
pub(crate) use view::View;
pub(crate) use zero::Zero;

/// What every instruction can do.
pub(crate) trait Execute: fmt::Debug + Send + Sync {
    /// The tensors that it reads and writes, scratch memory included.
    fn views_mut(&mut self) -> Vec<&mut View>;

    /// Precomputes what depends on the offsets of the views. Called once, when all of them are final.
    fn prepare(&mut self) {}

    /// Name, element type and sizes in one line.
    fn describe(&self) -> String;

    /// Bytes that are read and written. What is read repeatedly counts once.
    fn traffic(&self) -> usize;

    /// Computes the results from the operands.
    fn run(&self, memory: &mut Memory, scratch: &mut Scratch);
}

/// One instruction. The planner extends loops and matrix multiplications after it has created them, so these have
/// variants of their own.
#[derive(Debug)]
pub(crate) enum Instruction {
    Loop(Box<Loop>),
    MatMul(Box<MatMul>),
    Other(Box<dyn Execute>),
}

impl Instruction {
    pub fn get(&self) -> &dyn Execute {
        match self {
            Instruction::Loop(body) => &**body,
            Instruction::MatMul(matmul) => &**matmul,
            Instruction::Other(other) => &**other,
        }
    }

    fn get_mut(&mut self) -> &mut dyn Execute {
        match self {
            Instruction::Loop(body) => &mut **body,
            Instruction::MatMul(matmul) => &mut **matmul,
            Instruction::Other(other) => &mut **other,
        }
    }

    /// Like [`Execute::describe`], with the names of the operations that are fused into a loop.
    pub fn describe_fused(&self) -> String {
        match self {
            Instruction::Loop(body) => format!("{} ({})", body.describe(), body.names().join(" ")),
            other => other.get().describe(),
        }
    }

    /// The buffers that it reads or writes.
    pub fn buffers(&mut self) -> Vec<usize> {
        self.get_mut().views_mut().iter().map(|view| view.buffer).collect()
    }

    /// Moves all views to their buffers' offsets in the arena and prepares for execution.
    pub fn place(&mut self, offset_of: impl Fn(usize) -> usize) {
        let instruction = self.get_mut();
        for view in instruction.views_mut() {
            view.offset += offset_of(view.buffer);
        }
        instruction.prepare();
    }
}

impl From<Loop> for Instruction {
    fn from(body: Loop) -> Instruction {
        Instruction::Loop(Box::new(body))
    }
}

impl From<MatMul> for Instruction {
    fn from(matmul: MatMul) -> Instruction {
        Instruction::MatMul(Box::new(matmul))
    }
}

/// Temporary memory of loops, by element type. A runner keeps it from one run to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scratch {
    pub f32s: loops::LoopScratch<f32>,
    pub f64s: loops::LoopScratch<f64>,
    pub i32s: loops::LoopScratch<i32>,
    pub i64s: loops::LoopScratch<i64>,
}
