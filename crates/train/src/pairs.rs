//! Deserialisation of pairs: exactly two values. A plain array would accept the first two of more.

use serde::{Deserialize, Deserializer};

/// Deserialises two values.
pub fn two<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<[T; 2], D::Error> {
    exactly_two(Vec::deserialize(from)?)
}

/// Deserialises an optional pair.
pub fn maybe_two<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<[T; 2]>, D::Error> {
    two(from).map(Some)
}

/// Deserialises a list of pairs.
pub fn twos<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<[T; 2]>, D::Error> {
    Vec::<Vec<T>>::deserialize(from)?.into_iter().map(exactly_two).collect()
}

fn exactly_two<T, E: serde::de::Error>(values: Vec<T>) -> Result<[T; 2], E> {
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
