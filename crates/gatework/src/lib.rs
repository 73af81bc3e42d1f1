#![doc = include_str!("../README.md")]

#[doc(inline)]
pub use gatework_engine as engine;
#[doc(inline)]
pub use gatework_forecast as forecast;
#[doc(inline)]
pub use gatework_gates as gates;
#[doc(inline)]
pub use gatework_gates::automata;
#[doc(inline)]
pub use gatework_gates::classifier;
#[doc(inline)]
pub use gatework_logic as logic;
#[doc(inline)]
pub use gatework_train as train;

// First, because the others use its macros.
#[macro_use]
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod output;

pub mod check;
pub mod classification;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;
pub mod experiment;
pub mod export;
pub mod facts;
pub mod forecast_csv;
pub mod labelled_data;
pub mod live;
pub mod lookup_tables;
pub mod minimize;
#[doc(hidden)]
pub mod number;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod progress;
pub mod reduction;
pub mod report;
pub mod runs;
#[cfg(feature = "serve")]
pub mod serve;
pub mod simulation;
pub mod study;
pub mod subject;
pub mod training;

pub use runs::train_automaton;
