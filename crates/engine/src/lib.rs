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
//! # Graphs and gradients
//!
//! A [`Graph`] describes a computation, [`Graph::gradients`] adds its derivatives, [`Program`] compiles it, and a
//! [`Runner`] executes it as often as needed, without allocations.
//!
//! ```
//! use gatework_engine::{DType, Graph, Program};
//!
//! // loss = mean(tanh(x w)^2), and its gradient with respect to w
//! let mut g = Graph::new();
//! let x = g.input("x", DType::F32, &[4, 2])?;
//! let w = g.input("w", DType::F32, &[2, 3])?;
//! let product = g.matmul(x, w)?;
//! let y = g.tanh(product)?;
//! let square = g.square(y)?;
//! let loss = g.mean_all(square)?;
//! let gradient = g.gradients(loss, &[w])?[0];
//! g.output("loss", loss)?;
//! g.output("dw", gradient)?;
//!
//! let mut runner = Program::new(&g)?.runner();
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
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The example `two_layer_network` trains a network with Adam.
//!
//! # Modules
//!
//! | module | contents |
//! |---|---|
//! | [`vector`] | operations on slices: arithmetic, functions, reductions, softmax, losses |
//! | [`graph`] | the graph builder: operations with shapes, types and broadcasting |
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
pub use graph::{Graph, GraphError, Id};
pub use program::{Program, Runner};
pub use shape::{Shape, ShapeError};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
