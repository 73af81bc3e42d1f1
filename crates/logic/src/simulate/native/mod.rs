//! Just-in-time compilation of straight-line programs to x86-64 machine code.
//!
//! | file | contents |
//! |---|---|
//! | `encode` | an assembler for the few AVX2 instructions that are needed |
//! | `generate` | instruction selection and register allocation |
//! | `x86_64` | executable memory, and the call into it |
//!
//! The code is one function with one loop. It is written to memory that is writable but not executable and then made
//! executable but not writable. Without AVX2, or if the system does not allow executable memory, there is no native code
//! and programs are interpreted.

#[cfg(target_arch = "x86_64")]
mod encode;
#[cfg(target_arch = "x86_64")]
mod generate;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "x86_64")]
pub(super) use x86_64::NativeCode;

#[cfg(not(target_arch = "x86_64"))]
pub(super) use elsewhere::NativeCode;

#[cfg(not(target_arch = "x86_64"))]
mod elsewhere {
    use crate::simulate::compiled::{Layout, Vector};
    use crate::straight_line::StraightLineProgram;

    /// Native code does not exist for this architecture: the type has no values.
    #[derive(Clone, Debug)]
    pub enum NativeCode {}

    impl NativeCode {
        pub fn new(_: &StraightLineProgram, _: &Layout, _: Option<NativeCode>) -> Option<NativeCode> {
            None
        }

        pub fn run(&self, _: &[Vector], _: &mut [Vector], _: usize, _: &mut Vec<Vector>) {
            match *self {}
        }
    }
}
