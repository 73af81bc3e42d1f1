//! Errors in how the program was called: exit status 2 instead of 1.

/// What is wrong with the call, and what to do instead.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);
