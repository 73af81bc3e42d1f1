//! Tagged settings in files: a table with its `kind` and settings, or the kind alone if every setting has a default. `"mae"` is
//! read as `{ kind = "mae" }`.
//!
//! A type derives what it needs for tables with `#[serde(remote = "Self", tag = "kind")]`, which makes the derived code
//! plain functions of the type. Its implementation of `Deserialize` is [`name_or_table`], that of `Serialize` the derived
//! function.

use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapAccessDeserializer, MapDeserializer};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Settings that are tagged with a `kind`.
pub trait Kinds: Sized {
    /// The description in error messages.
    const EXPECTED: &str;

    /// Deserialises a table: the derived function.
    fn from_table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// Deserialises a name or a table.
pub fn name_or_table<'de, T: Kinds, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    deserializer.deserialize_any(NameOrTable(PhantomData))
}

struct NameOrTable<T>(PhantomData<T>);

impl<'de, T: Kinds> Visitor<'de> for NameOrTable<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: de::Error>(self, name: &str) -> Result<T, E> {
        T::from_table(MapDeserializer::new(std::iter::once(("kind", name))))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::from_table(MapAccessDeserializer::new(map))
    }
}

/// Deserialises a variant without settings. The derived code alone would accept unknown keys.
pub fn no_settings<'de, D: Deserializer<'de>>(deserializer: D) -> Result<(), D::Error> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}
    Nothing::deserialize(deserializer).map(|Nothing {}| ())
}
