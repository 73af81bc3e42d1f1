//! Deserialisers of settings: pairs, and removed keys.
//!
//! A pair has exactly two values; a plain array would accept the first two of more. Earlier versions wrote all keys of a
//! table into the run folder, including those of settings that were switched off. Such a key is still read if it has the
//! value that switched the setting off, and is not written again.

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

/// Deserialises two values.
pub(crate) fn two<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<[T; 2], D::Error> {
    exactly_two(Vec::deserialize(from)?)
}

/// Deserialises an optional pair.
pub(crate) fn maybe_two<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<[T; 2]>, D::Error> {
    two(from).map(Some)
}

/// Deserialises a list of pairs.
pub(crate) fn twos<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<[T; 2]>, D::Error> {
    Vec::<Vec<T>>::deserialize(from)?.into_iter().map(exactly_two).collect()
}

fn exactly_two<T, E: de::Error>(values: Vec<T>) -> Result<[T; 2], E> {
    let count = values.len();
    <[T; 2]>::try_from(values).map_err(|_| E::invalid_length(count, &"two values"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize)]
    struct Table {
        #[serde(deserialize_with = "two")]
        two: [usize; 2],
        #[serde(default, deserialize_with = "maybe_two")]
        maybe: Option<[usize; 2]>,
        #[serde(default, deserialize_with = "twos")]
        many: Vec<[usize; 2]>,
    }

    #[test]
    fn pairs_have_two_values() {
        let read = |text: &str| toml::from_str::<Table>(text);
        let right = Table { two: [1, 2], maybe: Some([3, 4]), many: vec![[5, 6], [7, 8]] };
        assert_eq!(read("two = [1, 2]\nmaybe = [3, 4]\nmany = [[5, 6], [7, 8]]").unwrap(), right);
        assert!(read("two = [1, 2]").is_ok());
        for wrong in ["two = [1]", "two = [1, 2, 3]", "two = [1, 2, \"x\"]", "two = 1", "two = []"] {
            assert!(read(wrong).unwrap_err().to_string().contains("two"), "{wrong}");
        }
        assert!(read("two = [1, 2]\nmaybe = [1, 2, 3]").is_err());
        assert!(read("two = [1, 2]\nmany = [[1, 2], [1, 2, 3]]").is_err());
    }
}
