//! What is written, judged by others: ABC, Yosys, Icarus Verilog, a C compiler and rustc.
//!
//! | file | what is in it |
//! |---|---|
//! | `cases` | circuits and automata of every shape |
//! | `judge` | programs that may be installed, and folders for their files |
//! | `abc` | ABC reads BLIF and AIGER, and proves that they are one function |
//! | `icarus` | Icarus Verilog runs the testbenches |
//! | `yosys` | Yosys synthesises the Verilog |
//! | `compilers` | gcc, g++ and rustc compile the code |
//!
//! A judge that is not installed is named on stderr and its test passes: nothing was judged. `.ci/run` installs
//! what it can. With `GATEWORK_JUDGES=required` a missing judge is a failure.

mod abc;
mod cases;
mod compilers;
mod icarus;
mod judge;
mod yosys;
