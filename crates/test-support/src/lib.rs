//! Helpers for the tests of several crates.

pub mod browser;
pub mod counting;
pub mod golden;
pub mod mutation;
pub mod onnx;
pub mod program;
