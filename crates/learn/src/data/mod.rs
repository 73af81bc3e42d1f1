//! Data for training: tables, windows over them, batches.

mod batch;

pub use batch::{Batch, BatchShape};
