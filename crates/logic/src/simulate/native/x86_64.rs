//! Executable memory, and the call into it.

#![expect(unsafe_code, reason = "generated code is called through a pointer")]

use super::generate::{Generated, generate};
use crate::simulate::compiled::{Extents, Layout, Vector};
use crate::straight_line::StraightLineProgram;
use memmap2::{Mmap, MmapMut};
use std::sync::Arc;

/// Source, target, scratch, count: see [`generate`].
type Function = unsafe extern "sysv64" fn(*const Vector, *mut Vector, *mut Vector, usize);

/// A program as machine code.
#[derive(Clone, Debug)]
pub(in crate::simulate) struct NativeCode {
    code: Arc<Mmap>,
    /// The vectors of scratch memory that the code uses.
    scratch: usize,
    extents: Extents,
}

impl NativeCode {
    /// Generates the code, where the machine has AVX2 and the system allows it.
    pub fn new(program: &StraightLineProgram, layout: &Layout) -> Option<NativeCode> {
        NativeCode::in_place_of(None, program, layout)
    }

    /// Generates the code in the memory of other code that is not needed any more, if it fits there.
    pub fn in_place_of(
        old: Option<NativeCode>,
        program: &StraightLineProgram,
        layout: &Layout,
    ) -> Option<NativeCode> {
        if !std::is_x86_feature_detected!("avx2") {
            return None;
        }
        let Generated { code, scratch } = generate(program, layout)?;
        let old = old.and_then(|old| Arc::try_unwrap(old.code).ok()).filter(|old| old.len() >= code.len());
        let mut memory = match old {
            Some(old) => old.make_mut().ok()?,
            None => MmapMut::map_anon(code.len()).ok()?,
        };
        memory[..code.len()].copy_from_slice(&code);
        Some(NativeCode { code: Arc::new(memory.make_exec().ok()?), scratch, extents: Extents::of(layout) })
    }

    /// Runs the code `count` times; see [`crate::simulate::compiled::CompiledProgram::run`]. Panics if the slices are too
    /// short, as indexing does.
    pub fn run(&self, source: &[Vector], target: &mut [Vector], count: usize, scratch: &mut Vec<Vector>) {
        self.extents.check(source, target, count);
        if count == 0 {
            return;
        }
        if scratch.len() < self.scratch {
            scratch.resize(self.scratch, Vector::ZERO);
        }
        // The code is a whole function of this type, made by `generate` for a processor with AVX2, and not writable.
        // It touches what the extents say, `self.scratch` vectors of scratch memory, and nothing else.
        // SAFETY: the extents were checked against the slices, the scratch memory has grown to its size, and two of the
        // three are exclusive borrows, so that they do not overlap.
        unsafe {
            let function: Function = std::mem::transmute(self.code.as_ptr());
            function(source.as_ptr(), target.as_mut_ptr(), scratch.as_mut_ptr(), count);
        }
    }
}
