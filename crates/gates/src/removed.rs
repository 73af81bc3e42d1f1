//! Removed keys of experiments.
//!
//! Earlier versions wrote all keys of a table into the run folder, including those of settings that were switched off. Such
//! a key is still read if it has the value that switched the setting off, and is not written again.

use std::fmt::Debug;

use serde::{Deserialize, Deserializer, de};

/// The place of a removed key in a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed;

/// Defines a deserialiser for each removed key, from the name of the key and the value that is accepted.
macro_rules! removed {
    ($($function:ident: $key:literal, $off:expr;)*) => {$(
        pub(crate) fn $function<'de, D: Deserializer<'de>>(from: D) -> Result<Removed, D::Error> {
            read(from, $key, &$off)
        }
    )*};
}

removed! {
    gates_temperature: "gates.temperature", vec![1.0, 1.0];
    gates_entropy: "gates.entropy", 0.0;
    gates_harden_from: "gates.harden_from", 1.0;
    state_noise: "state.noise", 0.0;
    state_flip: "state.flip", 0.0;
    state_penalty: "state.penalty", 0.0;
    search_ladder: "search.ladder", 1.0;
    search_retrain: "search.retrain", 0.0;
    search_guided: "search.guided", 0.0;
}

fn read<'de, D, T>(from: D, key: &str, off: &T) -> Result<Removed, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + PartialEq + Debug,
{
    if T::deserialize(from)? == *off {
        return Ok(Removed);
    }
    Err(de::Error::custom(format_args!("{key} was removed; delete it, or set it to {off:?}")))
}
