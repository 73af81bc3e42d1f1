//! Learns logic circuits by gradient descent: differentiable logic gates and cellular automata on the CPU.
//!
//! A soft gate is a softmax over the 16 Boolean functions of two inputs. A network of soft gates is trained like any other
//! network; then every gate is set to its most likely function (hardened), and a discrete search on the hard circuit removes
//! the remaining errors. The result is an ordinary Boolean circuit, which `gatework-logic` minimises, proves and exports.
//! Training is deterministic: a seed gives the same bits on any number of threads.
//!
//! | module | what is in it |
//! |---|---|
//! | [`automata`] | cellular automata: experiments, models, training, search, evaluation, studies |
//! | [`classifier`] | classifiers: data, encoders, networks, training, evaluation |
//! | [`soft`] | soft gate networks: wiring and initial logits |
//! | [`kernel`] | SIMD kernels of soft gate networks, forward and backward |
//!
//! # Example
//!
//! Learns Conway's Game of Life from 3x3 grids, minimises the circuit and writes it as Verilog:
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//!
//! use gatework_gates::automata::{experiment::AutomatonExperiment, run};
//! use gatework_logic::formats::{self, Format};
//! use gatework_logic::minimize::{self, minimize_automaton};
//! use gatework_train::trainer::Quiet;
//!
//! // A built-in experiment, or AutomatonExperiment::read("my.toml".as_ref()).
//! let loaded = AutomatonExperiment::find("game-of-life")?;
//!
//! // Gradient descent and search on two threads, until a seed succeeds.
//! let trained = run::train(&loaded, None, 2, &Quiet, &AtomicBool::new(false))?;
//!
//! // The hard circuit, with fewer gates, as Verilog.
//! let options = minimize::Options::default();
//! let small = minimize_automaton(&trained.automaton, trained.observed, &options)?.automaton;
//! let verilog = formats::write(&small.into(), Format::named("verilog")?, &formats::Options::default())?;
//! std::fs::write("life.v", verilog)?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

pub mod automata;
pub mod classifier;
mod deserialize;
pub mod kernel;
pub mod soft;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
