//! Files that hold circuits.
//!
//! | file | format |
//! |---|---|
//! | [`json`] | `circuit.json`, Gatework's own: circuits and automata |
//! | [`wasm`] | WebAssembly modules with SIMD |

pub mod json;
pub mod wasm;
