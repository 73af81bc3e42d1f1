//! Exported files, checked by external tools: ABC, CaDiCaL, Yosys, Icarus Verilog, GHDL, gcc and rustc.
//!
//! | file | contents |
//! |---|---|
//! | `cases` | circuits and automata of every shape |
//! | `judge` | external programs and temporary folders |
//! | `abc` | ABC reads BLIF and AIGER and proves them equivalent |
//! | `icarus` | Icarus Verilog runs the testbenches |
//! | `ghdl` | GHDL runs those in VHDL |
//! | `yosys` | Yosys synthesises the Verilog |
//! | `model_checkers` | ABC and CaDiCaL decide questions of `check` |
//! | `classifiers` | all of them check encoder, gates and head of classifiers |
//! | `compilers` | gcc, g++ and rustc compile the C and Rust code |
//!
//! A test whose tool is not installed passes with a message on stderr. `.ci/run` installs the tools it can. With
//! `GATEWORK_JUDGES=required` a missing tool is a failure.

mod abc;
mod cases;
mod classifiers;
mod compilers;
mod ghdl;
mod icarus;
mod judge;
mod model_checkers;
mod yosys;
