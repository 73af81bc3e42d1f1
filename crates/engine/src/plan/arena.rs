//! One arena for each type: buffers whose lives do not overlap share memory.

use super::{BufferKind, BufferPlan, Kernel};
use crate::dtype::DType;

/// Elements that a buffer's place is a multiple of: a cache line.
const LINE: usize = 16;

/// Gives every buffer its place, and returns the size of the memory of each type. Inputs, data and outputs keep their
/// place for ever; values live from the first kernel that writes them to the last that reads them.
pub(super) fn place(buffers: &mut [BufferPlan], kernels: &[(DType, Kernel)]) -> [usize; 4] {
    let lives = lives(buffers, kernels);
    // Large ones first: they are the hardest to find room for.
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&buffer| (std::cmp::Reverse(buffers[buffer].elements), buffer));
    let mut placed: Vec<usize> = Vec::new();
    let mut memory = [0; 4];
    for buffer in order {
        let size = buffers[buffer].elements.next_multiple_of(LINE);
        // What lives at the same time in the same memory, from the lowest place up.
        let meets = |&&other: &&usize| {
            let (a, b) = (&lives[buffer], &lives[other]);
            buffers[other].dtype == buffers[buffer].dtype && a.0 <= b.1 && b.0 <= a.1
        };
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(meets)
            .map(|&other| (buffers[other].offset, buffers[other].elements.next_multiple_of(LINE)))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (begin, length) in taken {
            if offset + size <= begin {
                break;
            }
            offset = offset.max(begin + length);
        }
        buffers[buffer].offset = offset;
        placed.push(buffer);
        let total = &mut memory[buffers[buffer].dtype as usize];
        *total = (*total).max(offset + size);
    }
    memory
}

/// The first and the last kernel that each buffer is needed by.
fn lives(buffers: &[BufferPlan], kernels: &[(DType, Kernel)]) -> Vec<(usize, usize)> {
    let mut lives: Vec<(usize, usize)> = buffers
        .iter()
        .map(|buffer| match buffer.kind {
            BufferKind::Input(_) | BufferKind::Data(_) => (0, usize::MAX),
            BufferKind::Value { .. } => (usize::MAX, 0),
        })
        .collect();
    for (index, (_, kernel)) in kernels.iter().enumerate() {
        for buffer in kernel.touched() {
            let life = &mut lives[buffer];
            *life = (life.0.min(index), life.1.max(index));
        }
    }
    for (life, buffer) in lives.iter_mut().zip(buffers) {
        if matches!(buffer.kind, BufferKind::Value { output: true }) {
            life.1 = usize::MAX;
        }
    }
    lives
}

impl Kernel {
    /// The buffers that it reads or writes.
    pub fn touched(&self) -> Vec<usize> {
        match self {
            Kernel::Loop(body) => {
                let loads = body.loads.iter().map(|view| view.buffer);
                let stores = body.stores.iter().map(|(_, view)| view.buffer);
                loads.chain(stores).chain(body.reduce.as_ref().map(|reduce| reduce.out)).collect()
            }
            Kernel::Zero { buffer } => vec![*buffer],
            Kernel::MatMul { a, b, out, bias, .. } => {
                let bias = bias.as_ref().map(|(bias, _)| bias.buffer);
                [a.buffer, b.buffer, out.buffer].into_iter().chain(bias).collect()
            }
            Kernel::Gather { x, indices, out, .. } => vec![x.buffer, indices.buffer, *out],
            Kernel::ScatterAdd { x, indices, out, .. } => vec![x.buffer, indices.buffer, out.buffer],
            Kernel::Cast { x, out }
            | Kernel::CumSum { x, out, .. }
            | Kernel::ArgReduce { x, out, .. }
            | Kernel::Softmax { x, out, .. } => vec![x.buffer, *out],
            Kernel::LayerNorm { x, gain, other, out, scratch, .. } => {
                [x.buffer, gain.buffer, other.buffer, *out].into_iter().chain(*scratch).collect()
            }
            Kernel::Attention(attention) => {
                let read = attention.operands.iter().chain(&attention.gradient);
                read.map(|view| view.buffer).chain([attention.out]).collect()
            }
            Kernel::Recurrent(cell) => {
                cell.args.iter().map(|view| view.buffer).chain([cell.out, cell.scratch]).collect()
            }
        }
    }
}
