//! Building blocks of forecasting networks.
//!
//! | module | contents |
//! |---|---|
//! | [`builder`] | [`Network`] and [`Tensor`]: graphs written as formulas |
//! | [`layers`] | linear layers, convolutions, recurrent cells, attention |
//! | [`normalization`] | reversible instance normalisation of windows |
//! | [`distribution`] | output distributions: likelihood, quantiles, samples |
//! | [`loss`] | training losses, and what they make the outputs of a network mean |
//! | [`inputs`] | the tensors of a batch as a model reads them |
//! | [`feed`] | copies batches into the inputs of compiled programs |
//!
//! Each module depends only on those above it.

pub mod builder;
pub mod distribution;
pub mod feed;
pub mod inputs;
pub mod layers;
pub mod loss;
pub mod normalization;

pub use builder::{Bindings, Mask, Network, Tensor};
pub use gatework_train::model::{Initializer, Parameter};
