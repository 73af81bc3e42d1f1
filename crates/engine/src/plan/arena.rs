//! The layout of the arenas: buffers whose lifetimes do not overlap share memory.

use super::{Buffer, BufferKind};
use crate::dtype::DType;
use crate::instruction::memory::ARENAS;
use crate::kernel::half::Half;

/// Alignment of buffers, in elements: a cache line of `f32`.
const ALIGNMENT: usize = 16;

/// Alignment of buffers of 16-bit numbers, in elements: a cache line.
const HALF_ALIGNMENT: usize = 32;

/// First and last instruction that uses a buffer.
type Lifetime = (usize, usize);

/// What the buffers take.
pub(super) struct Layout {
    /// Elements of each arena.
    pub memory: [usize; ARENAS],
    /// Largest number of bytes of intermediate values that exist at the same time.
    pub peak: usize,
}

/// Assigns an offset to every buffer except shared weights and returns the sizes. Inputs, constants and outputs live for
/// ever; intermediate values from the first instruction that touches them to the last one. The first `reserved` elements of
/// the arena of `f32` are those of plain weights.
pub(super) fn lay_out(buffers: &mut [Buffer], touched: &[Vec<usize>], reserved: usize) -> Layout {
    let lifetimes = lifetimes(buffers, touched);
    // Largest first: these are the hardest to fit.
    let is_laid_out = |&buffer: &usize| !matches!(buffers[buffer].kind, BufferKind::Weights { .. });
    let mut order: Vec<usize> = (0..buffers.len()).filter(is_laid_out).collect();
    order.sort_by_key(|&buffer| (std::cmp::Reverse(buffers[buffer].elements), buffer));
    let mut placed: Vec<usize> = Vec::new();
    let mut memory = [0; ARENAS];
    memory[DType::F32 as usize] = reserved.next_multiple_of(ALIGNMENT);
    let reserved = memory;
    for buffer in order {
        let size = buffers[buffer].padded_len();
        let conflicts = |&&other: &&usize| {
            let (a, b) = (lifetimes[buffer], lifetimes[other]);
            buffers[other].arena() == buffers[buffer].arena() && a.0 <= b.1 && b.0 <= a.1
        };
        let mut taken: Vec<(usize, usize)> = placed
            .iter()
            .filter(conflicts)
            .map(|&other| (buffers[other].offset, buffers[other].padded_len()))
            .collect();
        taken.sort_unstable();
        // The first gap that is large enough.
        let mut offset = reserved[buffers[buffer].arena()];
        for (begin, length) in taken {
            if offset + size <= begin {
                break;
            }
            offset = offset.max(begin + length);
        }
        buffers[buffer].offset = offset;
        placed.push(buffer);
        let total = &mut memory[buffers[buffer].arena()];
        *total = (*total).max(offset + size);
    }
    Layout { memory, peak: peak(buffers, &lifetimes, touched.len()) }
}

impl Buffer {
    /// The index of the arena that it is in.
    fn arena(&self) -> usize {
        if self.half.is_some() { ARENAS - 1 } else { self.dtype as usize }
    }

    fn bytes(&self) -> usize {
        self.elements * if self.half.is_some() { Half::BYTES } else { self.dtype.size() }
    }

    /// Elements, rounded up to the alignment.
    fn padded_len(&self) -> usize {
        self.elements.next_multiple_of(if self.half.is_some() { HALF_ALIGNMENT } else { ALIGNMENT })
    }
}

/// The largest number of bytes of intermediate values that exist during an instruction.
fn peak(buffers: &[Buffer], lifetimes: &[Lifetime], instructions: usize) -> usize {
    // Bytes that begin to exist at each instruction, and those that end with the one before it.
    let (mut begun, mut ended) = (vec![0; instructions + 1], vec![0; instructions + 1]);
    for (buffer, &(first, last)) in buffers.iter().zip(lifetimes) {
        if matches!(buffer.kind, BufferKind::Value { output: false }) && first <= last {
            begun[first] += buffer.bytes();
            ended[last + 1] += buffer.bytes();
        }
    }
    let mut bytes = 0;
    let live = begun.iter().zip(&ended).map(|(begun, ended)| {
        bytes += begun;
        bytes -= ended;
        bytes
    });
    live.max().unwrap_or(0)
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
