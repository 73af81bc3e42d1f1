//! Files that hold circuits.
//!
//! | file | format |
//! |---|---|
//! | [`json`] | `circuit.json`, Gatework's own: circuits and automata |

pub mod json;
