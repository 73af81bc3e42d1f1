//! File formats for circuits and automata.
//!
//! | file | format | read | write |
//! |---|---|---|---|
//! | [`json`] | `circuit.json`, the native format: circuits and automata | yes | yes |
//! | [`blif`] | BLIF, for ABC, Yosys, SIS | yes | yes |
//! | [`aiger`] | AIGER, ascii and binary, for ABC and model checkers | yes | yes |
//! | [`verilog`] | structural Verilog with its own testbench | | yes |
//! | [`vhdl`] | structural VHDL with its own testbench | | yes |
//! | [`c`] | one C header | | yes |
//! | [`rust`] | one Rust file | | yes |
//! | [`wasm`] | WebAssembly modules with SIMD | | yes |
//! | [`dot`] | a graph for Graphviz | | yes |
//! | [`svg`] | a schematic of a small circuit | | yes |
//! | `source` | the statements of a straight-line program in C and Rust | | |
//! | [`names`] | legal and distinct port names | | |
//! | [`sequential`] | circuits with latches, and whole grids of an automaton | | |
//!
//! To add a format, write a module with a `FORMAT` and add it to [`FORMATS`].
//!
//! Only JSON preserves a circuit gate by gate. All other formats preserve its function: before a circuit is written and
//! after it is read, equal gates are merged, and wires, inner constants, inverters and dead gates are removed. The ports
//! and their order are preserved. An automaton is written as its rule, with ports named after the
//! neighbours (`c0_nw`, `c0_n`, ... and `c0_next`, see [`names::ports`]) unless its circuit has names;
//! with [`Options::grid`], a whole grid is written instead. Reading the file back gives a plain circuit.
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
mod c_classifier;
pub mod dot;
pub mod json;
pub mod names;
mod order;
pub mod rust;
mod rust_classifier;
pub mod sequential;
mod source;
pub mod svg;
mod test_vectors;
pub mod verilog;
pub mod vhdl;
pub mod wasm;

use crate::automaton::AutomatonError;
use crate::circuit::{Circuit, CircuitError};
use crate::classifier::ClassifierError;
use crate::grid::GridError;
use crate::naive::StepError;
use json::{Document, JsonError};
use std::path::Path;
use thiserror::Error;

/// All formats, in the order of listings.
pub static FORMATS: &[&Format] = &[
    &json::FORMAT,
    &blif::FORMAT,
    &aiger::ASCII,
    &aiger::BINARY,
    &verilog::FORMAT,
    &vhdl::FORMAT,
    &c::FORMAT,
    &rust::FORMAT,
    &wasm::FORMAT,
    &dot::FORMAT,
    &svg::FORMAT,
];

/// Reads the bytes of a file.
pub(crate) type Reader = fn(&[u8]) -> Result<Document, FormatError>;
/// Writes the bytes of a file.
pub(crate) type Writer = fn(&Document, &Options) -> Result<Vec<u8>, FormatError>;

/// A file format for circuits.
#[derive(Debug)]
pub struct Format {
    /// The name of the format on the command line.
    pub name: &'static str,
    /// The file extensions, the usual one first.
    pub endings: &'static [&'static str],
    /// A description of one line.
    pub about: &'static str,
    /// Whether files are text.
    pub text: bool,
    /// Whether files can hold a whole grid of an automaton, see [`Options::grid`].
    pub grid: bool,
    /// Reads a file.
    pub(crate) reader: Option<Reader>,
    /// Writes a file.
    pub(crate) writer: Option<Writer>,
}

impl Format {
    /// Returns the format with this name, ignoring case.
    pub fn named(name: &str) -> Result<&'static Format, FormatError> {
        let found = FORMATS.iter().find(|format| format.name.eq_ignore_ascii_case(name));
        found.copied().ok_or_else(|| FormatError::UnknownName(name.into()))
    }

    /// Returns the format with this file extension, ignoring case.
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

/// Options for writing a circuit.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The name of the model, the module or the function; `circuit` or `automaton` by default.
    pub name: Option<String>,
    /// The height and width of a grid; if given, the automaton is written as a sequential circuit of so many cells.
    pub grid: Option<[usize; 2]>,
    /// The number of registers between the inputs and the class of a classifier in Verilog; 0 for a combinational
    /// module.
    pub pipeline: usize,
    /// The rows of values for the testbench of a classifier in Verilog; pseudorandom values by default.
    pub samples: Vec<f32>,
}

impl Options {
    /// The name of the model, the module or the function.
    pub(crate) fn title<'a>(&'a self, document: &Document) -> &'a str {
        let default = match document {
            Document::Circuit(_) => "circuit",
            Document::Automaton { .. } => "automaton",
            Document::Classifier(_) => "classifier",
        };
        self.name.as_deref().filter(|name| !name.is_empty()).unwrap_or(default)
    }
}

/// An error while reading or writing a file.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum FormatError {
    /// No format has this name.
    #[error("unknown format \"{0}\"; the formats are {list}", list = list(|format| format.name.into()))]
    UnknownName(String),
    /// No format has this file extension.
    #[error(
        "no format has the file extension of {0}; the extensions are {list}",
        list = list(|format| format!(".{}", format.endings.join(", .")))
    )]
    UnknownEnding(String),
    /// The format has no reader.
    #[error(
        "{0} files can be written but not read; the formats that can be read are {list}",
        list = list_where(|format| format.name.into(), Format::can_read)
    )]
    CannotRead(&'static str),
    /// The format has no writer.
    #[error("{0} files can be read but not written")]
    CannotWrite(&'static str),
    /// A text file violates the format.
    #[error("line {line}, column {column}: {message}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The description of the error.
        message: String,
    },
    /// A binary file violates the format.
    #[error("byte {offset}: {message}")]
    Binary {
        /// The offset in bytes.
        offset: usize,
        /// The description of the error.
        message: String,
    },
    /// The file is a sequential circuit, but a combinational one is required.
    #[error("the file has {0} latches: it is a sequential circuit, not a function of its inputs")]
    Latches(usize),
    /// The circuit exceeds a limit of the format or its writer.
    #[error("the circuit is too large for {format}: {message}")]
    TooLarge {
        /// The name of the format.
        format: &'static str,
        /// The size and the limit.
        message: String,
    },
    /// The format cannot hold a grid.
    #[error(
        "{0} files cannot hold a grid; the formats that can are {list}",
        list = list_where(|format| format.name.into(), |format| format.grid)
    )]
    NoGrid(&'static str),
    /// A grid of a plain circuit was requested.
    #[error("a grid needs an automaton, but this is a circuit without cells")]
    NotAnAutomaton,
    /// The format cannot hold the encoder and the head of a classifier.
    #[error("{0} files cannot hold a classifier; verilog, c and rust files can")]
    NoClassifier(&'static str),
    /// The requested grid has no cells.
    #[error("a grid of {height}x{width} cells has no cells")]
    EmptyGrid {
        /// Rows.
        height: usize,
        /// Columns.
        width: usize,
    },
    /// The pipeline has too many registers.
    #[error("a pipeline of {0} registers is too long; the maximum is {max}", max = verilog::MAX_PIPELINE)]
    Pipeline(usize),
    /// The classifier cannot be evaluated.
    #[error(transparent)]
    Classifier(#[from] ClassifierError),
    /// The file is not a valid `circuit.json`.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The gates and outputs are not a valid circuit.
    #[error(transparent)]
    Circuit(#[from] CircuitError),
    /// The circuit does not have the ports of an automaton.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
    /// The size of the grid is not valid.
    #[error(transparent)]
    Grid(#[from] GridError),
    /// The automaton cannot be simulated.
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

/// Writes a circuit or an automaton.
pub fn write(document: &Document, format: &Format, options: &Options) -> Result<Vec<u8>, FormatError> {
    let writer = format.writer.ok_or(FormatError::CannotWrite(format.name))?;
    if let Document::Automaton { automaton, .. } = document {
        automaton.check()?;
    }
    match (options.grid, document) {
        (Some(_), _) if !format.grid => Err(FormatError::NoGrid(format.name)),
        (Some(_), Document::Circuit(_) | Document::Classifier(_)) => Err(FormatError::NotAnAutomaton),
        (Some([height, width]), _) if height == 0 || width == 0 => {
            Err(FormatError::EmptyGrid { height, width })
        }
        _ => writer(document, options),
    }
}

/// Reads a circuit or an automaton.
pub fn read(bytes: &[u8], format: &Format) -> Result<Document, FormatError> {
    format.reader.ok_or(FormatError::CannotRead(format.name))?(bytes)
}

/// Returns the text of a file, or the location of the first byte that is not UTF-8 as the error.
fn text(bytes: &[u8]) -> Result<&str, FormatError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = line_and_column(&bytes[..error.valid_up_to()]);
        FormatError::syntax(line, column, "the text is not UTF-8")
    })
}

/// Returns the line and the column, in characters, after some text; both count from 1.
fn line_and_column(before: &[u8]) -> (usize, usize) {
    let before = String::from_utf8_lossy(before);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

/// Returns the inputs that a gate or an output reads.
pub(crate) fn used_inputs(circuit: &Circuit) -> Vec<u32> {
    let mut used = vec![false; circuit.inputs()];
    let operands = circuit.nodes().iter().flat_map(|node| node.dependencies());
    for signal in operands.chain(circuit.outputs().iter().copied()) {
        if let Some(used) = used.get_mut(signal as usize) {
            *used = true;
        }
    }
    (0..circuit.inputs() as u32).filter(|&input| used[input as usize]).collect()
}

/// Returns the port names that a circuit stores: none if all are the default names.
fn stored_names(names: Vec<String>, prefix: char) -> Vec<String> {
    let is_default = |(i, name): (usize, &String)| {
        name.strip_prefix(prefix).is_some_and(|number| *number == *i.to_string())
    };
    if names.iter().enumerate().all(is_default) { Vec::new() } else { names }
}

/// Sets the port names of a circuit to those of a file.
fn named(circuit: Circuit, inputs: Vec<String>, outputs: Vec<String>) -> Result<Circuit, FormatError> {
    Ok(circuit.with_names(stored_names(inputs, 'x'), stored_names(outputs, 'y'))?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::automaton::Boundary;
    use proptest::prelude::*;
    use sequential::Sequential;

    #[test]
    fn names_and_extensions_are_distinct() {
        let names: Vec<&str> = FORMATS.iter().map(|format| format.name).collect();
        let endings: Vec<&str> = FORMATS.iter().flat_map(|format| format.endings).copied().collect();
        for list in [names, endings] {
            for (i, one) in list.iter().enumerate() {
                assert!(!one.is_empty() && !list[..i].contains(one), "{one}");
            }
        }
    }

    #[test]
    fn formats_are_found_by_name_and_by_extension() {
        for format in FORMATS {
            assert_eq!(Format::named(&format.name.to_uppercase()).unwrap().name, format.name);
            for ending in format.endings {
                let path = format!("a.b.{ending}");
                assert_eq!(Format::of_path(Path::new(&path)).unwrap().name, format.name);
            }
        }
        let error = Format::named("systemc").unwrap_err().to_string();
        assert!(error.starts_with(
            "unknown format \"systemc\"; the formats are json, blif, aag, aiger, verilog, vhdl, c,"
        ));
        let error = Format::of_path(Path::new("a/b")).unwrap_err().to_string();
        assert!(
            error.starts_with("no format has the file extension of a/b; the extensions are .json, .blif,"),
            "{error}"
        );
    }

    #[test]
    fn files_preserve_the_function() {
        let life = crate::rules::life(Boundary::Torus);
        for format in FORMATS.iter().filter(|format| format.can_write()) {
            let bytes = write(&life.clone().into(), format, &Options::default()).unwrap();
            match read(&bytes, format) {
                Ok(document) => arbitrary::assert_same_function(document.circuit(), &life.circuit),
                Err(error) => assert_eq!(
                    error.to_string(),
                    format!(
                        "{} files can be written but not read; the formats that can be read are json, blif, aag, aiger",
                        format.name
                    )
                ),
            }
        }
    }

    #[test]
    fn grids_need_an_automaton_and_a_format_that_can_hold_them() {
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

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn what_is_read_back_is_proved_equal(circuit in arbitrary::circuit(8..=60, 1500)) {
            for format in FORMATS.iter().filter(|format| format.can_read() && format.can_write()) {
                let bytes = write(&circuit.clone().into(), format, &Options::default()).unwrap();
                arbitrary::assert_proved_equal(read(&bytes, format).unwrap().circuit(), &circuit);
            }
        }
    }

    proptest! {
        #[test]
        fn grids_are_preserved(automaton in arbitrary::automaton(), height in 1usize..5, width in 1usize..5) {
            let grid = Sequential::grid(&automaton, [height, width], 1).unwrap();
            for again in [
                aiger::read_sequential(&aiger::write_ascii(&grid).unwrap()),
                aiger::read_sequential(&aiger::write_binary(&grid).unwrap()),
                blif::read_sequential(blif::write_sequential(&grid, "grid").as_bytes()),
            ] {
                let again = again.unwrap();
                prop_assert_eq!(&again.latches, &grid.latches);
                prop_assert_eq!(again.circuit.input_names(), grid.circuit.input_names());
                arbitrary::assert_proved_equal(&again.circuit, &grid.circuit);
            }
        }
    }
}
