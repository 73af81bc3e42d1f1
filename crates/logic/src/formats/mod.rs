//! Files that hold circuits.
//!
//! | file | format | read | write |
//! |---|---|---|---|
//! | [`json`] | `circuit.json`, Gatework's own: circuits and automata | yes | yes |
//! | [`blif`] | BLIF, for ABC, Yosys, SIS | yes | yes |
//! | [`aiger`] | AIGER, ascii and binary, for ABC and model checkers | yes | yes |
//! | [`verilog`] | structural Verilog with its own testbench | | yes |
//! | [`c`] | one C header | | yes |
//! | [`rust`] | one Rust file | | yes |
//! | [`wasm`] | WebAssembly modules with SIMD | | yes |
//! | [`dot`] | a graph for Graphviz | | yes |
//! | [`svg`] | a drawing of a small circuit | | yes |
//! | `source` | the statements of a straight-line program in C and Rust | | |
//! | [`names`] | how port names become legal and stay distinct | | |
//! | [`sequential`] | circuits with latches, among them whole grids of an automaton | | |
//!
//! To add a format, write a file with a `FORMAT` in it and put that into [`FORMATS`].
//!
//! Only JSON keeps a circuit gate by gate. All other formats hold the same function: what is written and what
//! is read goes through [`Circuit::simplify`], so wires, inner constants, inverters and dead gates are absent.
//! The ports stay, in their order. An automaton is written as its rule, with ports named after the
//! neighbours (`c0_nw`, `c0_n`, ... and `c0_next`, see [`names::ports`]) unless its circuit has names of its
//! own; [`Options::grid`] asks for a whole grid instead. Read back, the rule is a plain circuit.
//!
//! ```
//! use gatework_logic::formats::{self, Format, Options};
//! use gatework_logic::{Circuit, Document, Gate, Node};
//!
//! let nand = Circuit::new(2, vec![Node::new(Gate::NAND, 0, 1)], vec![2])?;
//! let blif = Format::named("blif")?;
//! let text = formats::write(&nand.clone().into(), blif, &Options::default())?;
//! assert!(text.starts_with(b".model circuit\n.inputs x0 x1\n"));
//! assert_eq!(formats::read(&text, blif)?, Document::Circuit(nand));
//! # Ok::<(), formats::FormatError>(())
//! ```

pub mod aiger;
pub mod blif;
pub mod c;
pub mod dot;
pub mod json;
pub mod names;
mod order;
pub mod rust;
pub mod sequential;
mod source;
pub mod svg;
pub mod verilog;
pub mod wasm;

use crate::automaton::AutomatonError;
use crate::circuit::{Circuit, CircuitError};
use crate::grid::GridError;
use crate::naive::StepError;
use json::{Document, JsonError};
use std::path::Path;
use thiserror::Error;

/// Every format, in the order in which they are listed.
pub static FORMATS: &[&Format] = &[
    &json::FORMAT,
    &blif::FORMAT,
    &aiger::ASCII,
    &aiger::BINARY,
    &verilog::FORMAT,
    &c::FORMAT,
    &rust::FORMAT,
    &wasm::FORMAT,
    &dot::FORMAT,
    &svg::FORMAT,
];

/// Reads the bytes of a file.
pub(crate) type Reader = fn(&[u8]) -> Result<Document, FormatError>;
/// Makes the bytes of a file.
pub(crate) type Writer = fn(&Document, &Options) -> Result<Vec<u8>, FormatError>;

/// A file format for circuits.
#[derive(Debug)]
pub struct Format {
    /// The name of the format, as people type it.
    pub name: &'static str,
    /// The endings of its files, the usual one first.
    pub endings: &'static [&'static str],
    /// What it is, in a line.
    pub about: &'static str,
    /// Whether its files are text.
    pub text: bool,
    /// Whether it can hold a whole grid of an automaton, see [`Options::grid`].
    pub grid: bool,
    /// Reads a file.
    pub(crate) reader: Option<Reader>,
    /// Writes a file.
    pub(crate) writer: Option<Writer>,
}

impl Format {
    /// The format with this name.
    pub fn named(name: &str) -> Result<&'static Format, FormatError> {
        let found = FORMATS.iter().find(|format| format.name.eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| FormatError::UnknownName(name.into()))
    }

    /// The format that files with this ending have.
    pub fn of_path(path: &Path) -> Result<&'static Format, FormatError> {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
        let fits = |known: &&str| known.eq_ignore_ascii_case(ending);
        let found = FORMATS.iter().find(|format| format.endings.iter().any(fits));
        found.copied().ok_or_else(|| FormatError::UnknownEnding(path.display().to_string()))
    }

    /// Whether files of this format can be read.
    pub fn can_read(&self) -> bool {
        self.reader.is_some()
    }

    /// Whether files of this format can be written.
    pub fn can_write(&self) -> bool {
        self.writer.is_some()
    }
}

/// How a circuit is to be written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What the model, the module or the function is called; `circuit` or `automaton` by default.
    pub name: Option<String>,
    /// Height and width of a grid: the automaton is written as a sequential circuit of that many cells.
    pub grid: Option<[usize; 2]>,
}

impl Options {
    /// The name of what is written.
    pub(crate) fn title<'a>(&'a self, document: &Document) -> &'a str {
        let default = match document {
            Document::Circuit(_) => "circuit",
            Document::Automaton { .. } => "automaton",
        };
        self.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(default)
    }
}

/// Why a file cannot be read or written.
#[derive(Debug, Error)]
pub enum FormatError {
    /// There is no format of this name.
    #[error("there is no format \"{0}\"; there are {list}", list = list(|format| format.name.into()))]
    UnknownName(String),
    /// The ending of a file is no format's.
    #[error(
        "the ending of {0} is that of no format; there are {list}",
        list = list(|format| format!(".{}", format.endings.join(", .")))
    )]
    UnknownEnding(String),
    /// The format is only written.
    #[error(
        "{0} files cannot be read, only written; those that can are {list}",
        list = list_where(|format| format.name.into(), Format::can_read)
    )]
    CannotRead(&'static str),
    /// The format is only read.
    #[error("{0} files cannot be written, only read")]
    CannotWrite(&'static str),
    /// A text that is not of the format.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// A binary file that is not of the format.
    #[error("byte {offset}: {message}")]
    Binary {
        /// The number of bytes before the place.
        offset: usize,
        /// What is wrong there.
        message: String,
    },
    /// The file has latches, so it is no function of its inputs.
    #[error("the file has {0} latches: it is a sequential circuit, not a function of its inputs")]
    Latches(usize),
    /// The circuit is beyond what the format, or this writer, can hold.
    #[error("the circuit is too large for {format}: {message}")]
    TooLarge {
        /// The name of the format.
        format: &'static str,
        /// What is too large, and the limit.
        message: String,
    },
    /// A grid was asked of a format that has none.
    #[error(
        "{0} files hold no grid; those that do are {list}",
        list = list_where(|format| format.name.into(), |format| format.grid)
    )]
    NoGrid(&'static str),
    /// A grid was asked of a plain circuit.
    #[error("a grid needs an automaton, but this is a plain circuit")]
    NotAnAutomaton,
    /// A grid without cells.
    #[error("a grid of {height}x{width} cells has no cells")]
    EmptyGrid {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
    },
    /// Not a `circuit.json`.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The parts do not make a circuit.
    #[error(transparent)]
    Circuit(#[from] CircuitError),
    /// The circuit does not make an automaton.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
    /// There is no such grid.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// The automaton cannot step.
    #[error(transparent)]
    Step(#[from] StepError),
}

impl FormatError {
    fn syntax(line: usize, column: usize, message: impl Into<String>) -> FormatError {
        FormatError::Syntax { line, column, message: message.into() }
    }
}

fn list(of: impl Fn(&Format) -> String) -> String {
    list_where(of, |_| true)
}

fn list_where(of: impl Fn(&Format) -> String, wanted: impl Fn(&Format) -> bool) -> String {
    let all: Vec<String> = FORMATS.iter().filter(|format| wanted(format)).map(|format| of(format)).collect();
    all.join(", ")
}

/// The file of a circuit or an automaton in a format.
pub fn write(document: &Document, format: &Format, options: &Options) -> Result<Vec<u8>, FormatError> {
    let writer = format.writer.ok_or(FormatError::CannotWrite(format.name))?;
    if let Document::Automaton { automaton, .. } = document {
        automaton.check()?;
    }
    match (options.grid, document) {
        (Some(_), _) if !format.grid => Err(FormatError::NoGrid(format.name)),
        (Some(_), Document::Circuit(_)) => Err(FormatError::NotAnAutomaton),
        (Some([height, width]), _) if height == 0 || width == 0 => {
            Err(FormatError::EmptyGrid { height, width })
        }
        _ => writer(document, options),
    }
}

/// Reads the file of a circuit or an automaton in a format.
pub fn read(bytes: &[u8], format: &Format) -> Result<Document, FormatError> {
    format.reader.ok_or(FormatError::CannotRead(format.name))?(bytes)
}

/// The text of a file, or the place of the first byte that is none.
fn text(bytes: &[u8]) -> Result<&str, FormatError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let before = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        FormatError::syntax(line, column, "the text is not UTF-8")
    })
}

/// The names of ports as a circuit keeps them: none at all if they are the default ones.
fn stored_names(names: Vec<String>, prefix: char) -> Vec<String> {
    let is_default = |(i, name): (usize, &String)| {
        name.strip_prefix(prefix).is_some_and(|number| *number == *i.to_string())
    };
    if names.iter().enumerate().all(is_default) { Vec::new() } else { names }
}

/// The circuit with the names that a file gives its ports.
fn named(circuit: Circuit, inputs: Vec<String>, outputs: Vec<String>) -> Result<Circuit, FormatError> {
    Ok(circuit.with_names(stored_names(inputs, 'x'), stored_names(outputs, 'y'))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::automaton::Boundary;

    #[test]
    fn names_and_endings_are_distinct() {
        let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        let endings: Vec<&str> = FORMATS.iter().flat_map(|format| format.endings).copied().collect();
        for list in [names, endings] {
            for (i, one) in list.iter().enumerate() {
                assert!(!one.is_empty() && !list[..i].contains(one), "{one}");
            }
        }
    }

    #[test]
    fn a_format_is_found_by_its_name_and_its_ending() {
        for format in FORMATS {
            assert_eq!(Format::named(&format.name.to_uppercase()).unwrap().name, format.name);
            for ending in format.endings {
                let path = format!("a.b.{ending}");
                assert_eq!(Format::of_path(Path::new(&path)).unwrap().name, format.name);
            }
        }
        let error = Format::named("vhdl").unwrap_err().to_string();
        assert!(
            error.starts_with("there is no format \"vhdl\"; there are json, blif, aag, aiger, verilog, c,")
        );
        let error = Format::of_path(Path::new("a/b")).unwrap_err().to_string();
        assert!(
            error.starts_with("the ending of a/b is that of no format; there are .json, .blif,"),
            "{error}"
        );
    }

    #[test]
    fn what_a_format_reads_and_writes_is_the_same_function() {
        let life = crate::rules::life(Boundary::Torus);
        for format in FORMATS.iter().filter(|format| format.can_write()) {
            let bytes = write(&life.clone().into(), format, &Options::default()).unwrap();
            match read(&bytes, format) {
                Ok(document) => arbitrary::assert_same_function(document.circuit(), &life.circuit),
                Err(error) => assert_eq!(
                    error.to_string(),
                    format!(
                        "{} files cannot be read, only written; those that can are json, blif, aag, aiger",
                        format.name
                    )
                ),
            }
        }
    }

    #[test]
    fn grids_are_for_automata_and_formats_that_have_them() {
        let life = Document::from(crate::rules::life(Boundary::Zeros));
        let circuit = Document::Circuit(life.circuit().clone());
        let options = |height, width| Options { grid: Some([height, width]), ..Options::default() };
        for format in FORMATS.iter().filter(|format| format.can_write()) {
            let failed = |document, height| write(document, format, &options(height, 3)).err();
            if format.grid {
                assert!(failed(&life, 2).is_none(), "{}", format.name);
                assert!(matches!(failed(&life, 0), Some(FormatError::EmptyGrid { height: 0, width: 3 })));
                assert!(matches!(failed(&circuit, 2), Some(FormatError::NotAnAutomaton)));
            } else {
                assert!(matches!(failed(&life, 2), Some(FormatError::NoGrid(_))), "{}", format.name);
            }
        }
    }
}
