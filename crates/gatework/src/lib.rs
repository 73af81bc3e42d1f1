//! Gatework learns logic circuits from examples, makes them small, proves them, runs them and exports them; the same engine
//! trains and serves forecasting models.
//!
//! This crate re-exports the libraries and adds reports and the command line:
//!
//! | module | what is in it |
//! |---|---|
//! | [`engine`] | numeric computing: slices, graphs with gradients, SIMD kernels |
//! | [`logic`] | Boolean circuits: minimise, prove, simulate, export |
//! | [`automata`] | learning cellular automata |
//! | [`forecast`] | learning and serving forecasts |
//! | [`train`] | what the learners share: optimisers, the training loop, experiment files |
//! | [`experiment`] | experiments of any kind, by name or file |
//! | [`report`] | GIF, SVG and HTML reports |

#[doc(inline)]
pub use gatework_engine as engine;
#[doc(inline)]
pub use gatework_forecast as forecast;
#[doc(inline)]
pub use gatework_gates::automata;
#[doc(inline)]
pub use gatework_logic as logic;
#[doc(inline)]
pub use gatework_train as train;

// First, because the others use its macros.
#[macro_use]
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod output;

#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod experiment;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod folder;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod forecast_run;
#[doc(hidden)]
pub mod number;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod progress;
pub mod report;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod subject;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod usage;
