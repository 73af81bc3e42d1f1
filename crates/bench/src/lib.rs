//! Workloads of the benchmarks, shared by the program `gatework-bench`, the timings of `benches/workloads.rs` and the
//! instruction counts of `examples/instructions.rs`.
//!
//! | module | contents |
//! |---|---|
//! | [`workload`] | calls that are ready to run and whose answers have been checked |
//! | [`gate_network`] | a dense network of soft gates, trained on random bits |
//! | [`random`] | random circuits, grids and words |
//! | [`wave`] | forecasting windows cut from a synthetic wave |

pub mod gate_network;
pub mod random;
pub mod wave;
pub mod workload;
