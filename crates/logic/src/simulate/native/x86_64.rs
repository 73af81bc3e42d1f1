//! Executable memory, and the call into it.

#![expect(unsafe_code, reason = "generated code is called through a pointer")]

use super::generate::{MachineCode, generate};
use crate::simulate::compiled::{Layout, Vector};
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
    /// Generates code, reusing the memory of code that is no longer needed if it is large enough. `None` if the processor
    /// has no AVX2 or the system does not allow executable memory.
    pub fn new(
        program: &StraightLineProgram,
        layout: &Layout,
        old: Option<NativeCode>,
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
        Some(NativeCode { code: Arc::new(memory.make_exec().ok()?), scratch, extents: Extents::new(layout) })
    }

    /// Runs `count` iterations, at least one; see [`crate::simulate::compiled::CompiledProgram::run`]. Panics if the slices
    /// are too short.
    pub fn run(&self, source: &[Vector], target: &mut [Vector], count: usize, scratch: &mut Vec<Vector>) {
        assert!(count > 0, "the loop has at least one iteration");
        self.extents.check(source, target, count);
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

/// The number of vectors that one iteration of a program may access in its source and its target.
#[derive(Clone, Copy, Debug)]
struct Extents {
    source: usize,
    target: usize,
}

impl Extents {
    fn new(layout: &Layout) -> Extents {
        let extent = |offsets: &[u32]| {
            offsets.iter().max().map_or(0, |&last| (last as usize).div_ceil(Vector::WORDS) + 1)
        };
        Extents { source: extent(&layout.inputs), target: extent(&layout.outputs) }
    }

    /// Panics if `count` iterations access vectors beyond the end of a slice.
    fn check(&self, source: &[Vector], target: &[Vector], count: usize) {
        // A program without inputs does not access its source, one without outputs not its target.
        let fits = |extent: usize, len: usize| extent == 0 || extent + count - 1 <= len;
        assert!(fits(self.source, source.len()), "the source is too short");
        assert!(fits(self.target, target.len()), "the target is too short");
    }
}
