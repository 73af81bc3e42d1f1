//! AIGER, the format of and-inverter graphs, for ABC, model checkers and AIG tools.
//!
//! ```text
//! aag 3 2 0 1 1      header: largest variable, inputs, latches, outputs, ANDs
//! 2                  input: a literal, 2 * variable
//! 4
//! 7                  output: the complement of variable 3
//! 6 2 4              variable 3 is the AND of variables 1 and 2
//! i0 a               symbols
//! i1 b
//! o0 nand
//! ```
//!
//! The binary format omits what the order implies, and encodes each AND as two differences. Specification: Armin Biere,
//! "The AIGER And-Inverter Graph (AIG) Format", version 20071012, and the reset values of latches of "AIGER 1.9 And
//! Beyond" (2011). Properties (bad states, constraints, justice, fairness) are errors when they are read; questions of
//! [`crate::check`] are written with them.
//!
//! | file | contents |
//! |---|---|
//! | `aig` | and-inverter graphs, from and to XAGs |
//! | `write` | writer of both formats |
//! | `read` | reader of both formats, which it distinguishes by their first word |
//! | `cursor` | lexer: numbers and literals, and errors with their location |
//!
//! An automaton is written as its combinational rule, or as a whole grid with a latch for every bit of every
//! cell ([`super::Options::grid`]). Files with latches are read by [`read_sequential`]. Three ANDs
//! that compute an XOR are read as an XOR.
//!
//! The symbol table preserves all names except for duplicates and control characters, which become `_` (see
//! [`super::names`]).

mod aig;
mod cursor;
mod read;
mod write;

pub use read::read_sequential;
pub use write::{Properties, write_ascii, write_binary, write_properties};

use super::{Document, Format, FormatError, names::NameRule, sequential};

/// The ASCII format.
pub static ASCII: Format = Format {
    name: "aag",
    endings: &["aag"],
    about: "AIGER in ASCII, and-inverter graphs for ABC and model checkers",
    text: true,
    grid: true,
    reader: Some(read),
    writer: Some(|document, options| write_ascii(&sequential::of_document(document, options.grid)?)),
};

/// The binary format.
pub static BINARY: Format = Format {
    name: "aiger",
    endings: &["aig", "aiger"],
    about: "AIGER in binary, the same in a fifth of the bytes",
    text: false,
    grid: true,
    reader: Some(read),
    writer: Some(|document, options| write_binary(&sequential::of_document(document, options.grid)?)),
};

fn read(bytes: &[u8]) -> Result<Document, FormatError> {
    Ok(Document::Circuit(read_sequential(bytes)?.combinational()?))
}

/// Names of any characters on one line that do not begin with a space.
const RULE: NameRule =
    NameRule { first: |c| !c.is_control() && c != ' ', rest: |c| !c.is_control(), keywords: "" };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::circuit::Circuit;
    use crate::formats::{self, Options};
    use proptest::prelude::*;

    #[test]
    fn names_with_spaces_and_unicode_are_preserved() {
        let circuit = Circuit::new(2, vec![], vec![1, 0]).unwrap();
        let names = |list: [&str; 2]| list.map(String::from).to_vec();
        let named = circuit.with_names(names(["carry in", "\u{1f98e}"]), names(["a", "b"])).unwrap();
        for format in [&ASCII, &BINARY] {
            let bytes = formats::write(&named.clone().into(), format, &Options::default()).unwrap();
            assert_eq!(formats::read(&bytes, format).unwrap(), named.clone().into());
        }
    }

    proptest! {
        #[test]
        fn circuits_are_preserved(circuit in arbitrary::circuit(0..=20, 100)) {
            for format in [&ASCII, &BINARY] {
                let bytes = formats::write(&circuit.clone().into(), format, &Options::default()).unwrap();
                let again = formats::read(&bytes, format).unwrap();
                arbitrary::assert_same_function(again.circuit(), &circuit);
                prop_assert_eq!(again.circuit().input_names(), circuit.input_names());
                prop_assert!(again.circuit().nodes().len() <= circuit.simplify().nodes().len());
                // ANDs that happen to compute an XOR are read as one, so the bytes may change, but the circuit does not grow.
                let bytes = formats::write(&again, format, &Options::default()).unwrap();
                let twice = formats::read(&bytes, format).unwrap();
                arbitrary::assert_same_function(twice.circuit(), &circuit);
                prop_assert!(twice.circuit().nodes().len() <= again.circuit().nodes().len());
            }
        }
    }
}
