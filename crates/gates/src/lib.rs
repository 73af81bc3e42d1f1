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
//! | [`soft`] | soft gate networks: wiring and initial logits |
//! | [`kernel`] | SIMD kernels of soft gate networks, forward and backward |
//!
//! # Example
//!
//! Learns Conway's Game of Life from 3x3 grids, minimises the circuit and writes it as Verilog:
//!
//! ```no_run
//! use std::sync::atomic::AtomicBool;
//! use std::time::Duration;
//!
//! use gatework_gates::automata::experiment::AutomatonExperiment;
//! use gatework_gates::automata::model::Model;
//! use gatework_gates::automata::task::AutomatonTask;
//! use gatework_logic::formats::{self, Format};
//! use gatework_logic::minimize::{self, minimize_automaton};
//! use gatework_train::trainer::{self, Options, Quiet};
//!
//! // A built-in experiment, or AutomatonExperiment::read("my.toml".as_ref()).
//! let loaded = AutomatonExperiment::find("game-of-life")?;
//!
//! // Gradient descent and search for one seed.
//! let options = Options {
//!     settings: loaded.experiment.trainer_settings(),
//!     seeds: vec![1],
//!     until_success: true,
//!     side_by_side: 1,
//!     threads_each: 2,
//!     checkpoints: None,
//!     interval: Duration::MAX,
//! };
//! let task = |seed| AutomatonTask::new(&loaded, seed);
//! let attempts = trainer::run(&options, task, &Quiet, &AtomicBool::new(false))?;
//! let best = attempts[0].best.as_ref().ok_or("training was stopped")?;
//!
//! // The hard circuit, with fewer gates, as Verilog.
//! let automaton = Model::of_best(&loaded.experiment.model_shape(), 1, best)?.harden();
//! let observed = loaded.target.channels();
//! let small = minimize_automaton(&automaton, observed, &minimize::Options::default())?.automaton;
//! let verilog = formats::write(&small.into(), Format::named("verilog")?, &formats::Options::default())?;
//! std::fs::write("life.v", verilog)?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```

pub mod automata;
pub mod kernel;
pub mod soft;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;
