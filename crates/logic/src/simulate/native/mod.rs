//! NativeCode code: a program becomes x86-64 machine code in memory, without a compiler.
//!
//! | file | what is in it |
//! |---|---|
//! | `encode` | the bytes of the few AVX2 instructions that are needed |
//! | `generate` | from a program to instructions: registers, spills, memory operands |
//!
//! The code is one function with one loop. It is written to memory that can be written but not executed,
//! which then becomes memory that can be executed but not written. Where there is no AVX2, or the system does
//! not allow memory to become executable, there is no native code, and the interpreter takes over.

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

    /// There is no native code on this machine, and no value of this type.
    #[derive(Clone, Debug)]
    pub enum NativeCode {}

    impl NativeCode {
        pub fn new(_: &StraightLineProgram, _: &Layout) -> Option<NativeCode> {
            None
        }

        pub fn in_place_of(_: Option<NativeCode>, _: &StraightLineProgram, _: &Layout) -> Option<NativeCode> {
            None
        }

        pub fn run(&self, _: &[Vector], _: &mut [Vector], _: usize, _: &mut Vec<Vector>) {
            match *self {}
        }
    }
}
