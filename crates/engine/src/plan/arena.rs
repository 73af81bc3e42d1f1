//! The layout of the arenas: buffers whose lifetimes do not overlap share memory.

use super::{Buffer, BufferKind};
use crate::dtype::DType;

/// Alignment of buffers, in elements: a cache line of `f32`.
const ALIGNMENT: usize = 16;

/// First and last instruction that uses a buffer.
type Lifetime = (usize, usize);

/// Assigns an offset to every buffer except shared weights and returns the size of each arena. Inputs, constants and outputs
/// live for ever; intermediate values from the first instruction that touches them to the last one. The first `reserved`
/// elements of the arena of `f32` are those of plain weights.
pub(super) fn lay_out(buffers: &mut [Buffer], touched: &[Vec<usize>], reserved: usize) -> [usize; 4] {
    let lifetimes = lifetimes(buffers, touched);
    // Largest first: these are the hardest to fit.
    let is_laid_out = |&buffer: &usize| !matches!(buffers[buffer].kind, BufferKind::Weights { .. });
    let mut order: Vec<usize> = (0..buffers.len()).filter(is_laid_out).collect();
    order.sort_by_key(|&buffer| (std::cmp::Reverse(buffers[buffer].elements), buffer));
    let mut placed: Vec<usize> = Vec::new();
    let reserved = |dtype: DType| if dtype == DType::F32 { reserved.next_multiple_of(ALIGNMENT) } else { 0 };
    let mut memory = DType::ALL.map(reserved);
    for buffer in order {
        let size = buffers[buffer].elements.next_multiple_of(ALIGNMENT);
        let conflicts = |&&other: &&usize| {
            let (a, b) = (lifetimes[buffer], lifetimes[other]);
            buffers[other].dtype == buffers[buffer].dtype && a.0 <= b.1 && b.0 <= a.1
        };
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(conflicts)
            .map(|&other| (buffers[other].offset, buffers[other].elements.next_multiple_of(ALIGNMENT)))
            .collect();
        taken.sort_unstable();
        // The first gap that is large enough.
        let mut offset = reserved(buffers[buffer].dtype);
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

fn lifetimes(buffers: &[Buffer], touched: &[Vec<usize>]) -> Vec<Lifetime> {
    let mut lifetimes: Vec<Lifetime> = buffers
        .iter()
        .map(|buffer| match buffer.kind {
            BufferKind::Input(_) | BufferKind::Weights { .. } | BufferKind::Data(_) => (0, usize::MAX),
            BufferKind::Value { .. } => (usize::MAX, 0),
        })
        .collect();
    for (index, buffers) in touched.iter().enumerate() {
        for &buffer in buffers {
            let (first, last) = lifetimes[buffer];
            lifetimes[buffer] = (first.min(index), last.max(index));
        }
    }
    for (lifetime, buffer) in lifetimes.iter_mut().zip(buffers) {
        if matches!(buffer.kind, BufferKind::Value { output: true }) {
            lifetime.1 = usize::MAX;
        }
    }
    lifetimes
}
