//! Executable memory, and the call into it.

#![expect(unsafe_code, reason = "generated code is called through a pointer")]

use super::generate::{MachineCode, generate};
use crate::simulate::compiled::{Extents, Layout, Vector};
use crate::straight_line::StraightLineProgram;
use memmap2::{Mmap, MmapMut};
use std::sync::Arc;

/// The signature of generated code: source, target, scratch, count. See [`generate`].
type Function = unsafe extern "sysv64" fn(*const Vector, *mut Vector, *mut Vector, usize);

/// A straight-line program as machine code.
#[derive(Clone, Debug)]
pub(in crate::simulate) struct NativeCode {
    code: Arc<Mmap>,
    /// The number of vectors of scratch memory.
    scratch: usize,
    extents: Extents,
}

impl NativeCode {
    /// Generates code; none if the processor has no AVX2 or the system does not allow executable memory.
    pub fn new(program: &StraightLineProgram, layout: &Layout) -> Option<NativeCode> {
        NativeCode::reusing(None, program, layout)
    }

    /// Generates code, reusing the memory of code that is no longer needed if it is large enough.
    pub fn reusing(
        old: Option<NativeCode>,
        program: &StraightLineProgram,
        layout: &Layout,
    ) -> Option<NativeCode> {
        if !std::is_x86_feature_detected!("avx2") {
            return None;
        }
        let MachineCode { code, scratch } = generate(program, layout)?;
        let old = old.and_then(|old| Arc::try_unwrap(old.code).ok()).filter(|old| old.len() >= code.len());
        let mut memory = match old {
            Some(old) => old.make_mut().ok()?,
            None => MmapMut::map_anon(code.len()).ok()?,
        };
        memory[..code.len()].copy_from_slice(&code);
        Some(NativeCode { code: Arc::new(memory.make_exec().ok()?), scratch, extents: Extents::of(layout) })
    }

    /// Runs `count` iterations; see [`crate::simulate::compiled::CompiledProgram::run`]. Panics if the slices are too
    /// short.
    pub fn run(&self, source: &[Vector], target: &mut [Vector], count: usize, scratch: &mut Vec<Vector>) {
        self.extents.check(source, target, count);
        if count == 0 {
            return;
        }
        if scratch.len() < self.scratch {
            scratch.resize(self.scratch, Vector::ZERO);
        }
        // SAFETY: the code is a complete function of this type, generated for a processor with AVX2, and not writable. It
        // accesses the vectors of the source and the target within the extents, which were checked above, and
        // `self.scratch` vectors of scratch memory, which is long enough. The target and the scratch memory are exclusive
        // borrows, so the three do not alias.
        unsafe {
            let function: Function = std::mem::transmute(self.code.as_ptr());
            function(source.as_ptr(), target.as_mut_ptr(), scratch.as_mut_ptr(), count);
        }
    }
}
