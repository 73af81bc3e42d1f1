//! A numeric engine for CPUs: tensor graphs with automatic differentiation, compiled to fused SIMD kernels, and fast
//! operations on slices.
//!
//! # Operations on slices
//!
//! ```
//! use gatework_engine::vector;
//!
//! let logits = [1.0f32, 3.0, 2.0];
//! let mut probabilities = [0.0; 3];
//! vector::softmax(&logits, &mut probabilities)?;
//! assert_eq!(vector::arg_max(&probabilities), Some(1));
//! assert!((vector::sum(&probabilities) - 1.0).abs() < 1e-6);
//! # Ok::<(), vector::VectorError>(())
//! ```
//!
//! [`vector`] has element-wise operations, reductions, losses and operations on the rows of a matrix; [`linalg`] multiplies
//! and transposes matrices:
//!
//! ```
//! use gatework_engine::{linalg, vector};
//!
//! // The probabilities of two classes for two samples of three features each.
//! let samples = [1.0f32, 0.0, 2.0, 0.0, 1.0, 0.0];
//! let weights = [0.5, -0.5, 1.0, 0.0, 0.0, 1.0];
//! let (mut logits, mut probabilities) = ([0.0; 4], [0.0; 4]);
//! linalg::matmul(&samples, &weights, &mut logits, 2, 3, 2)?;
//! vector::softmax_rows(&logits, 2, &mut probabilities)?;
//! assert!(probabilities[1] > probabilities[0] && probabilities[2] > probabilities[3]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The functions are generic over [`vector::Number`] (`f32`, `f64`, `i32`, `i64`) or [`vector::RealNumber`] (`f32`, `f64`).
//! The example `slices` is a complete program.
//!
//! # Graphs and gradients
//!
//! A [`Scope`] is a graph that is written as expressions. Gradients are expressions, too. [`Scope::compile`] makes a
//! [`Program`] of some outputs, and a [`Runner`] executes it as often as needed, without allocations. Errors are reported once,
//! by `compile`, with the line of the expression.
//!
//! ```
//! use gatework_engine::{DType, Scope};
//!
//! let scope = Scope::new();
//! let x = scope.input("x", DType::F32, &[4, 2]);
//! let w = scope.input("w", DType::F32, &[2, 3]);
//! let loss = x.matmul(w).tanh().square().mean_all();
//! let [dw] = loss.gradients([w]);
//!
//! let mut runner = scope.compile(&[("loss", loss), ("dw", dw)])?.runner();
//! runner.write("x", &[0.5f32; 8])?;
//! let mut weights = [0.3f32; 6];
//! let mut losses = Vec::new();
//! for _ in 0..10 {
//!     runner.write("w", &weights)?;
//!     runner.run();
//!     losses.push(runner.read::<f32>("loss")?[0]);
//!     for (w, dw) in weights.iter_mut().zip(runner.read::<f32>("dw")?) {
//!         *w -= 0.5 * dw;
//!     }
//! }
//! assert!(losses[9] < 0.1 * losses[0]);
//! # Ok::<(), gatework_engine::program::ProgramError>(())
//! ```
//!
//! A [`Graph`] is the explicit builder behind it, with an error for each operation. [`Program`]'s `Display` form says which
//! operations were fused, [`Runner::timings`] measures every kernel, and [`program::ProgramCache`] keeps compiled programs.
//!
//! # Training
//!
//! `gatework_train::model` trains the parameters of a graph in one call: initial values, optimisers, mini-batches, validation
//! and checkpoints. The example `two_layer_network` of this crate writes the loop out.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`vector`] | operations on slices: arithmetic, functions, reductions, softmax, losses, rows |
//! | [`linalg`] | matrices in slices: multiplication, matrix-vector products, transposition |
//! | [`graph`] | graphs as expressions, and the builder: operations with shapes, types and broadcasting |
//! | [`program`] | compiled graphs and their execution |
//! | [`interpret`] | a scalar interpreter of graphs, the oracle of the tests |
//! | `onnx` | graphs as ONNX models (feature `onnx`) |
//! | [`ops`] | the table of element-wise operations and their gradients |
//! | [`kernel`] | SIMD kernels; each has a reference implementation that tests compare it with |
//! | [`simd`] | run-time selection of the instruction set |
//! | [`parallel`] | parallel loops whose results do not depend on the number of threads |
//! | [`shape`], [`dtype`], [`buffer`] | shapes, element types and aligned memory of tensors |

#![allow(clippy::inline_always, reason = "SIMD code must be inlined where its target features are enabled")]

// First: the modules below use its macros.
#[macro_use]
pub mod simd;

#[cfg(test)]
mod arbitrary;
pub mod buffer;
pub mod dtype;
mod grad;
pub mod graph;
mod instruction;
pub mod interpret;
pub mod kernel;
pub mod linalg;
mod mixed;
#[cfg(feature = "onnx")]
pub mod onnx;
pub mod ops;
pub mod parallel;
mod plan;
pub mod program;
mod rewrite;
pub mod shape;
pub mod vector;

pub use dtype::DType;
pub use graph::{Graph, GraphError, Id, Scope, Tensor};
pub use kernel::half::Half;
pub use program::{Program, Runner};
pub use shape::{Shape, ShapeError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
