//! BLIF, the Berkeley Logic Interchange Format, for ABC, SIS and Yosys.
//!
//! ```text
//! .model adder
//! .inputs a b
//! .outputs sum carry
//! .names a b sum
//! 10 1
//! 01 1
//! .names a b carry
//! 11 1
//! .end
//! ```
//!
//! | file | contents |
//! |---|---|
//! | `write` | writer: circuits and grids as one model of two-input `.names` |
//! | `read` | reader: one model of `.names` with any number of inputs, in any order, and `.latch` |
//! | `cover` | gates of the cubes of a `.names` |
//!
//! An automaton is written as its combinational rule, or as a whole grid with a `.latch` for every bit of every cell
//! ([`super::Options::grid`]). Files with latches are read by [`read_sequential`].
//!
//! Names consist of printable ASCII characters other than `#`, `\`, `=` and `"`, and do not begin with `.`; others are
//! renamed (see [`super::names`]). A file must end with `.end`, so that truncated files are errors.
//! Hierarchy (`.subckt`, `.gate`, a second `.model`) and external don't-cares are errors.

mod cover;
mod read;
mod write;

pub use read::read_sequential;
pub use write::write_sequential;

use super::{Document, Format, names::NameRule, sequential};

/// The entry of BLIF in [`FORMATS`](super::FORMATS).
pub static FORMAT: Format = Format {
    name: "blif",
    endings: &["blif"],
    about: "Berkeley logic interchange format, for ABC, SIS and Yosys",
    text: true,
    grid: true,
    reader: Some(|bytes| Ok(Document::Circuit(read_sequential(bytes)?.combinational()?))),
    writer: Some(|document, options| {
        let sequential = sequential::of_document(document, options.grid)?;
        Ok(write_sequential(&sequential, options.title(document)).into_bytes())
    }),
};

const fn is_allowed(c: char) -> bool {
    c.is_ascii_graphic() && !matches!(c, '#' | '\\' | '=' | '"')
}

/// The names that BLIF allows.
const RULE: NameRule = NameRule { first: |c| is_allowed(c) && c != '.', rest: is_allowed, keywords: "" };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::formats::{self, Options};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn circuits_are_preserved(circuit in arbitrary::circuit(0..=20, 100)) {
            let document = Document::Circuit(circuit.simplify());
            let bytes = formats::write(&circuit.into(), &FORMAT, &Options::default()).unwrap();
            let again = formats::read(&bytes, &FORMAT).unwrap();
            arbitrary::assert_same_function(again.circuit(), document.circuit());
            prop_assert_eq!(again.circuit().input_names(), document.circuit().input_names());
            prop_assert_eq!(formats::write(&again, &FORMAT, &Options::default()).unwrap(), bytes);
        }
    }
}
