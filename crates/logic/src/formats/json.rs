//! `circuit.json`: circuits, automata and classifiers as JSON, one gate per line so that two files can be compared with
//! `diff`.
//!
//! ```json
//! {"format":"gatework-circuit","version":2,"checksum":"8dff6d94",
//! "automaton":{"channels":1,"boundary":"torus"},
//! "observed":1,
//! "inputs":9,
//! "outputs":[9],
//! "gates":[
//! [6,3,5]
//! ]}
//! ```
//!
//! A gate is `[index, a, b]`; a signal below `inputs` is an input, `inputs + i` is gate `i`. Optional are
//! `checksum` (the CRC-32 of the rest, as [`to_json`] writes it), `automaton` (the file is then an automaton), `observed`
//! (the number of leading channels of the automaton that are observed, for example by the loss), `classifier` (the file is
//! then a classifier), `input_names` and `output_names`. Unknown fields are errors, because most of them are misspelt.
//! Version 1 was written without a checksum, and classifiers need version 3:
//!
//! ```json
//! {"format":"gatework-circuit","version":3,"checksum":"5c3818e7",
//! "classifier":{"features":[
//! {"name":"length","thresholds":[2.5]},
//! {"name":"colour","categories":["red","green"],"missing":true}],
//! "classes":[
//! {"name":"setosa","outputs":1},
//! {"name":"other","outputs":2}],
//! "temperature":1.0},
//! "inputs":4,
//! "outputs":[0,1,3],
//! "gates":[
//! ]}
//! ```
//!
//! Images have `"shape":[channels,height,width]` in the classifier. A class may have an `offset` that is added to its score.

use crate::automaton::{Automaton, AutomatonError, Boundary};
use crate::circuit::{Circuit, CircuitError, Node};
use crate::classifier::{Class, Classifier, ClassifierError, Encoder, Feature, FeatureKind, Head};
use crate::formats::{self, Format};
use crate::gate::Gate;
use serde::{Deserialize, Serialize};
use std::fmt::Write;
use thiserror::Error;

const KIND: &str = "gatework-circuit";
/// The newest version. All versions from 1 are read.
const VERSION: u64 = 3;
/// The version of files without a classifier, which older programs can read.
const VERSION_WITHOUT_CLASSIFIER: u64 = 2;

/// The entry of JSON in [`FORMATS`](super::FORMATS).
pub static FORMAT: Format = Format {
    name: "json",
    endings: &["json"],
    about: "the native format: circuits, automata and classifiers, gate by gate",
    text: true,
    grid: false,
    reader: Some(|bytes| Ok(from_json(formats::text(bytes)?)?)),
    writer: Some(|document, _| Ok(to_json(document).into_bytes())),
};

/// The content of a file.
#[derive(Clone, Debug, PartialEq)]
pub enum Document {
    /// A circuit.
    Circuit(Circuit),
    /// The circuit of a cellular automaton.
    Automaton {
        /// The automaton.
        automaton: Automaton,
        /// The number of leading channels that are observed, if the file has it.
        observed: Option<usize>,
    },
    /// A classifier: a circuit with its encoder and its head.
    Classifier(Classifier),
}

impl Document {
    /// The circuit, the rule of the automaton, or the circuit between encoder and head of the classifier.
    pub fn circuit(&self) -> &Circuit {
        match self {
            Document::Circuit(circuit) => circuit,
            Document::Automaton { automaton, .. } => &automaton.circuit,
            Document::Classifier(classifier) => classifier.circuit(),
        }
    }
}

impl From<Circuit> for Document {
    fn from(circuit: Circuit) -> Document {
        Document::Circuit(circuit)
    }
}

impl From<Automaton> for Document {
    fn from(automaton: Automaton) -> Document {
        Document::Automaton { automaton, observed: None }
    }
}

impl From<Classifier> for Document {
    fn from(classifier: Classifier) -> Document {
        Document::Classifier(classifier)
    }
}

/// The number of inputs that a file may declare beyond its length in bytes: inputs that no gate reads take no bytes.
const FREE_INPUTS: usize = 1 << 16;

/// A text that is not a valid `circuit.json`.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum JsonError {
    /// The text is not JSON or does not have the right fields. The message ends with the line and the column.
    #[error("not a circuit.json: {0}")]
    Json(serde_json::Error),
    /// The file declares far more inputs than its gates can read.
    #[error("`inputs` is {inputs}, too many for a file of {bytes} bytes")]
    Inputs {
        /// The number of inputs that the file declares.
        inputs: usize,
        /// The length of the file.
        bytes: usize,
    },
    /// The file has another format.
    #[error("the format is \"{0}\", but a circuit.json has \"{KIND}\"")]
    Format(String),
    /// The file was written by a newer version of Gatework.
    #[error(
        "it was written by a newer version of Gatework (format {0}, this program reads up to {VERSION}); update Gatework"
    )]
    Version(u64),
    /// The version of the format is 0.
    #[error("`version` is 0, but the first version of the format is 1")]
    VersionZero,
    /// The content has changed since the file was written.
    #[error(
        "the checksum does not match: the file is corrupt, or was edited; if it was edited, remove `checksum`"
    )]
    Checksum,
    /// The index of a gate is not below 16.
    #[error("gate {gate} has index {index}, but the sixteen gates have the indices 0 to 15")]
    Gate {
        /// The position of the gate in the list.
        gate: usize,
        /// Its index.
        index: u32,
    },
    /// The gates and outputs are not a valid circuit.
    #[error(transparent)]
    Circuit(#[from] CircuitError),
    /// The circuit does not have the ports of an automaton.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
    /// The number of observed channels is out of range.
    #[error("`observed` is {observed}, but must be 1 to {channels}, the channels of the automaton")]
    Observed {
        /// The number in the file.
        observed: usize,
        /// The channels of the automaton.
        channels: usize,
    },
    /// There are observed channels, but no automaton.
    #[error("`observed` is {0}, but the file has no `automaton` to observe")]
    NoAutomaton(usize),
    /// The features, classes and the circuit are not a valid classifier.
    #[error(transparent)]
    Classifier(#[from] ClassifierError),
    /// A feature is neither numeric nor categorical, or both.
    #[error("feature \"{0}\" must have either `thresholds` or `categories`")]
    FeatureKind(String),
    /// The file has both an automaton and a classifier.
    #[error("the file has both an `automaton` and a `classifier`, but a circuit is only one of them")]
    AutomatonAndClassifier,
    /// Another error, with its location.
    #[error("line {line}, column {column}: {problem}")]
    At {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// The error.
        problem: Box<JsonError>,
    },
}

impl JsonError {
    /// The key with the error, and the index of the element if its value is a list.
    fn place(&self) -> Option<(&'static str, Option<usize>)> {
        Some(match self {
            JsonError::Json(_) | JsonError::At { .. } => return None,
            JsonError::Inputs { .. } | JsonError::Circuit(CircuitError::TooManyInputs { .. }) => {
                ("inputs", None)
            }
            JsonError::Format(_) => ("format", None),
            JsonError::Version(_) | JsonError::VersionZero => ("version", None),
            JsonError::Checksum => ("checksum", None),
            JsonError::Gate { gate, .. } | JsonError::Circuit(CircuitError::Operand { gate, .. }) => {
                ("gates", Some(*gate))
            }
            JsonError::Circuit(CircuitError::Output { output, .. }) => ("outputs", Some(*output)),
            JsonError::Circuit(CircuitError::Names { port: "input", .. }) => ("input_names", None),
            JsonError::Circuit(CircuitError::Names { .. }) => ("output_names", None),
            JsonError::Circuit(_) => ("gates", None),
            JsonError::Automaton(_) => ("automaton", None),
            JsonError::Classifier(_) | JsonError::FeatureKind(_) | JsonError::AutomatonAndClassifier => {
                ("classifier", None)
            }
            JsonError::Observed { .. } | JsonError::NoAutomaton(_) => ("observed", None),
        })
    }

    /// Adds the location in a text that is valid JSON.
    fn locate(self, text: &str) -> JsonError {
        let Some(at) = self.place().and_then(|(key, element)| find(text, key, element)) else { return self };
        let (line, column) = formats::line_and_column(&text.as_bytes()[..at]);
        JsonError::At { line, column, problem: Box::new(self) }
    }
}

/// Returns the offset of the value of a key of the outermost object, or of an element if the value is a list.
fn find(text: &str, key: &str, element: Option<usize>) -> Option<usize> {
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut commas) = (0, 0usize, 0);
    // Whether the last string of the outermost object was the key, and whether its list is open.
    let (mut named, mut inside) = (false, false);
    while let Some(&byte) = bytes.get(at) {
        let begins = !matches!(byte, b':' | b',' | b']' | b'}') && !byte.is_ascii_whitespace();
        let wanted = element.is_none() && named || inside && depth == 2 && element == Some(commas);
        if begins && wanted {
            return Some(at);
        }
        match byte {
            b'"' => {
                let begin = at + 1;
                at = begin;
                while bytes.get(at).is_some_and(|&byte| byte != b'"') {
                    at += 1 + usize::from(bytes[at] == b'\\');
                }
                let is_key = bytes.get(begin..at) == Some(key.as_bytes());
                let colon = bytes.get(at + 1..)?.iter().find(|byte| !byte.is_ascii_whitespace());
                named = depth == 1 && is_key && colon == Some(&b':');
            }
            b'[' | b'{' => {
                inside |= named && depth == 1;
                (depth, named) = (depth + 1, false);
            }
            b']' | b'}' => depth = depth.checked_sub(1)?,
            b',' if inside && depth == 2 => commas += 1,
            _ => {}
        }
        at += 1;
    }
    None
}

/// The fields that identify the format.
#[derive(Deserialize)]
struct Header {
    format: String,
    version: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    format: String,
    version: u64,
    checksum: Option<String>,
    inputs: usize,
    outputs: Vec<u32>,
    gates: Vec<(u32, u32, u32)>,
    automaton: Option<AutomatonPart>,
    observed: Option<usize>,
    classifier: Option<ClassifierPart>,
    #[serde(default)]
    input_names: Vec<String>,
    #[serde(default)]
    output_names: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AutomatonPart {
    channels: usize,
    boundary: Boundary,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClassifierPart {
    features: Vec<FeaturePart>,
    shape: Option<[usize; 3]>,
    classes: Vec<Class>,
    temperature: f32,
}

impl ClassifierPart {
    fn classifier(self, circuit: Circuit) -> Result<Classifier, JsonError> {
        let features = self.features.into_iter().map(FeaturePart::feature).collect::<Result<_, _>>()?;
        let encoder = Encoder::new(features, self.shape)?;
        Ok(Classifier::new(encoder, circuit, Head::new(self.classes, self.temperature)?)?)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FeaturePart {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    thresholds: Option<Vec<f32>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    categories: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    missing: bool,
}

impl FeaturePart {
    fn new(feature: &Feature) -> FeaturePart {
        let (thresholds, categories) = match feature.kind.clone() {
            FeatureKind::Numeric(thresholds) => (Some(thresholds), None),
            FeatureKind::Categorical(categories) => (None, Some(categories)),
        };
        FeaturePart { name: feature.name.clone(), thresholds, categories, missing: feature.missing }
    }

    fn feature(self) -> Result<Feature, JsonError> {
        let kind = match (self.thresholds, self.categories) {
            (Some(thresholds), None) => FeatureKind::Numeric(thresholds),
            (None, Some(categories)) => FeatureKind::Categorical(categories),
            _ => return Err(JsonError::FeatureKind(self.name)),
        };
        Ok(Feature { name: self.name, kind, missing: self.missing })
    }
}

/// Reads a circuit, an automaton or a classifier. The checksum is verified if the file has one.
pub fn from_json(text: &str) -> Result<Document, JsonError> {
    read_document(text).map_err(|error| error.locate(text))
}

fn read_document(text: &str) -> Result<Document, JsonError> {
    let (document, sum) = parse(text)?;
    if sum.is_some_and(|sum| sum != checksum(&body(&document))) {
        return Err(JsonError::Checksum);
    }
    Ok(document)
}

/// The checksum of the text after `checksum`.
fn checksum(body: &str) -> String {
    format!("{:08x}", crc32fast::hash(body.as_bytes()))
}

/// Reads a document and its stored checksum.
fn parse(text: &str) -> Result<(Document, Option<String>), JsonError> {
    let file: File = match serde_json::from_str(text) {
        Ok(file) => file,
        Err(error) => {
            // Another format or version explains more than a missing field.
            if let Ok(header) = serde_json::from_str::<Header>(text) {
                check_header(header.format, header.version)?;
            }
            return Err(JsonError::Json(error));
        }
    };
    check_header(file.format, file.version)?;
    if file.inputs > FREE_INPUTS + text.len() {
        return Err(JsonError::Inputs { inputs: file.inputs, bytes: text.len() });
    }
    let nodes = file.gates.into_iter().enumerate().map(|(i, (index, a, b))| {
        let gate = u8::try_from(index).ok().and_then(Gate::from_index);
        gate.map(|gate| Node::new(gate, a, b)).ok_or(JsonError::Gate { gate: i, index })
    });
    let circuit = Circuit::new(file.inputs, nodes.collect::<Result<_, _>>()?, file.outputs)?
        .with_names(file.input_names, file.output_names)?;
    let document = match (file.automaton, file.observed, file.classifier) {
        (None, None, None) => Document::Circuit(circuit),
        (None, None, Some(part)) => Document::Classifier(part.classifier(circuit)?),
        (None, Some(observed), _) => return Err(JsonError::NoAutomaton(observed)),
        (Some(_), _, Some(_)) => return Err(JsonError::AutomatonAndClassifier),
        (Some(AutomatonPart { channels, boundary }), observed, None) => {
            let automaton = Automaton::new(channels, boundary, circuit)?;
            if let Some(observed) = observed.filter(|observed| !(1..=channels).contains(observed)) {
                return Err(JsonError::Observed { observed, channels });
            }
            Document::Automaton { automaton, observed }
        }
    };
    Ok((document, file.checksum))
}

fn check_header(format: String, version: u64) -> Result<(), JsonError> {
    if format != KIND {
        Err(JsonError::Format(format))
    } else if version > VERSION {
        Err(JsonError::Version(version))
    } else if version == 0 {
        Err(JsonError::VersionZero)
    } else {
        Ok(())
    }
}

/// Writes a circuit, an automaton or a classifier as text that [`from_json`] reads.
///
/// ```
/// use gatework_logic::{Circuit, Document, Gate, Node, from_json, to_json};
///
/// let circuit = Circuit::new(2, vec![Node::new(Gate::NAND, 0, 1)], vec![2])?;
/// let text = to_json(&circuit.clone().into());
/// assert_eq!(from_json(&text)?, Document::Circuit(circuit));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn to_json(document: &Document) -> String {
    let body = body(document);
    let sum = checksum(&body);
    let version =
        if matches!(document, Document::Classifier(_)) { VERSION } else { VERSION_WITHOUT_CLASSIFIER };
    format!("{{\"format\":\"{KIND}\",\"version\":{version},\"checksum\":\"{sum}\"{body}")
}

/// The text after `checksum`.
fn body(document: &Document) -> String {
    let circuit = document.circuit();
    let mut text = String::with_capacity(200 + 8 * circuit.outputs().len() + 24 * circuit.nodes().len());
    if let Document::Automaton { automaton, observed } = document {
        let part = AutomatonPart { channels: automaton.channels, boundary: automaton.boundary };
        push_field(&mut text, "automaton", &part);
        if let Some(observed) = observed {
            push_field(&mut text, "observed", observed);
        }
    }
    if let Document::Classifier(classifier) = document {
        push_classifier(&mut text, classifier);
    }
    push_field(&mut text, "inputs", &circuit.inputs());
    push_field(&mut text, "outputs", circuit.outputs());
    for (key, names) in [("input_names", circuit.input_names()), ("output_names", circuit.output_names())] {
        if !names.is_empty() {
            push_field(&mut text, key, names);
        }
    }
    text.push_str(",\n\"gates\":[");
    for (i, node) in circuit.nodes().iter().enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(text, "{comma}\n[{},{},{}]", node.gate.index(), node.a, node.b);
    }
    text.push_str("\n]}\n");
    text
}

/// Adds the encoder and the head, one feature and one class per line.
fn push_classifier(text: &mut String, classifier: &Classifier) {
    let (encoder, head) = (classifier.encoder(), classifier.head());
    text.push_str(",\n\"classifier\":{\"features\":[");
    push_lines(text, encoder.features().iter().map(FeaturePart::new));
    if let Some(shape) = encoder.shape() {
        push_field(text, "shape", &shape);
    }
    text.push_str(",\n\"classes\":[");
    push_lines(text, head.classes().iter());
    push_field(text, "temperature", &head.temperature());
    text.push('}');
}

/// Adds the elements of a list, one per line, and the end of the list.
fn push_lines(text: &mut String, elements: impl Iterator<Item = impl Serialize>) {
    for (i, element) in elements.enumerate() {
        let comma = if i == 0 { "" } else { "," };
        // Names, numbers and lists of them are always valid JSON.
        let _ = write!(text, "{comma}\n{}", serde_json::to_string(&element).unwrap_or_default());
    }
    text.push(']');
}

fn push_field<T: Serialize + ?Sized>(text: &mut String, key: &str, value: &T) {
    // Writing to a string never fails, nor does the JSON of numbers and strings.
    let value = serde_json::to_string(value).unwrap_or_default();
    let _ = write!(text, ",\n\"{key}\":{value}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    const RULE: &str = r#"{"format":"gatework-circuit","version":1,
"automaton":{"channels":1,"boundary":"torus"},
"observed":1,
"inputs":9,
"outputs":[10],
"gates":[
[6,3,5],
[6,9,4]
]}
"#;

    /// The message of the error for a text.
    fn message(text: &str) -> String {
        from_json(text).unwrap_err().to_string()
    }

    #[test]
    fn a_file_is_one_gate_per_line() {
        let document = from_json(RULE).unwrap();
        assert!(matches!(&document, Document::Automaton { observed: Some(1), .. }));
        // The CRC-32 as zlib computes it.
        let checked = RULE.replace("\"version\":1", "\"version\":2,\"checksum\":\"a506d563\"");
        assert_eq!(to_json(&document), checked);
        assert_eq!(from_json(&checked).unwrap(), document);
        // Both versions are read with and without a checksum.
        assert_eq!(from_json(&RULE.replace("\"version\":1", "\"version\":2")).unwrap(), document);
        assert_eq!(from_json(&checked.replace("\"version\":2", "\"version\":1")).unwrap(), document);
        assert_eq!(
            message(&checked.replace("[6,9,4]", "[7,9,4]")),
            "line 1, column 53: the checksum does not match: the file is corrupt, or was edited; if it was edited, \
             remove `checksum`"
        );
    }

    #[test]
    fn a_flipped_bit_is_refused_or_changes_nothing() {
        let document = from_json(RULE).unwrap();
        let text = to_json(&document);
        for bit in 0..8 * text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let Ok(flipped) = String::from_utf8(bytes) else { continue };
            assert!(from_json(&flipped).map_or(true, |read| read == document), "bit {bit}: {flipped}");
        }
    }

    #[test]
    fn names_are_preserved() {
        let circuit = Circuit::new(2, vec![], vec![1]).unwrap();
        let names = vec!["a \"quoted\" name".into(), "\u{1f98e}\n".into()];
        let document = circuit.with_names(names, vec!["out".into()]).unwrap().into();
        assert_eq!(from_json(&to_json(&document)).unwrap(), document);
    }

    #[test]
    fn errors_have_their_location() {
        assert_eq!(
            message("{\"format\":\"gatework-circuit\",\n\"version\":1,\n\"inputs\":-1"),
            "not a circuit.json: invalid value: integer `-1`, expected usize at line 3 column 11"
        );
        assert_eq!(
            message(&RULE.replace("[6,9,4]", "[16,9,4]")),
            "line 8, column 1: gate 1 has index 16, but the sixteen gates have the indices 0 to 15"
        );
        assert_eq!(
            message(&RULE.replace("[6,9,4]", "[6,9,10]")),
            "line 8, column 1: gate 1 (XOR) reads signal 10, but only signals below 10 come before it"
        );
        assert_eq!(
            message(&RULE.replace("[10]", "[ 3, 11]")),
            "line 5, column 16: output 1 is signal 11, but there are only 11 signals"
        );
        assert_eq!(
            message(&RULE.replace("\"observed\"", "\"observd\"")).split(',').next(),
            Some("not a circuit.json: unknown field `observd`")
        );
        assert_eq!(
            message(&RULE.replace("\"observed\":1", "\"observed\":2")),
            "line 3, column 12: `observed` is 2, but must be 1 to 1, the channels of the automaton"
        );
        assert_eq!(
            message(&RULE.replace("\"channels\":1", "\"channels\":2")),
            "line 2, column 13: an automaton with 2 channels needs 9 inputs per channel, but its circuit has 9 inputs"
        );
    }

    #[test]
    fn other_formats_and_versions_are_errors() {
        assert_eq!(
            message(r#"{"format":"gatework-model","version":1,"weights":[]}"#),
            "line 1, column 11: the format is \"gatework-model\", but a circuit.json has \"gatework-circuit\""
        );
        assert_eq!(
            message(r#"{"format":"gatework-circuit","version":4,"wires":[]}"#),
            "line 1, column 40: it was written by a newer version of Gatework (format 4, this program reads up to 3); \
             update Gatework"
        );
        assert_eq!(
            message(&RULE.replace("\"version\":1", "\"version\":0")),
            "line 1, column 40: `version` is 0, but the first version of the format is 1"
        );
    }

    const CLASSIFIER: &str = r#"{"format":"gatework-circuit","version":3,"checksum":"5c3818e7",
"classifier":{"features":[
{"name":"length","thresholds":[2.5]},
{"name":"colour","categories":["red","green"],"missing":true}],
"classes":[
{"name":"setosa","outputs":1},
{"name":"other","outputs":2}],
"temperature":1.0},
"inputs":4,
"outputs":[0,1,3],
"gates":[
]}
"#;

    #[test]
    fn a_classifier_is_one_feature_per_line() {
        let document = from_json(CLASSIFIER).unwrap();
        assert_eq!(to_json(&document), CLASSIFIER);
        let Document::Classifier(classifier) = document else { panic!("not a classifier") };
        assert_eq!(classifier.encoder().bits(), 4);
        assert_eq!(classifier.scores(&[3.0, f32::NAN]).unwrap(), [1, 1]);
    }

    #[test]
    fn faulty_classifiers_name_the_place() {
        let edited = |from: &str, to: &str| {
            message(&CLASSIFIER.replace(",\"checksum\":\"5c3818e7\"", "").replace(from, to))
        };
        assert_eq!(
            edited("[2.5]", "[2.5,2.5]"),
            "line 2, column 14: the thresholds of feature 0 (\"length\") are not finite numbers in ascending order"
        );
        assert_eq!(
            edited("\"inputs\":4", "\"inputs\":5"),
            "line 2, column 14: the encoder has 4 bits, but the circuit has 5 inputs"
        );
        assert_eq!(
            edited("\"outputs\":2", "\"outputs\":18446744073709551615"),
            "line 2, column 14: the groups of the head have 18446744073709551615 outputs, but the circuit has 3"
        );
        assert!(edited("\"missing\"", "\"mising\"").contains("unknown field `mising`"));
        assert_eq!(
            edited("\"thresholds\":[2.5]", "\"missing\":true"),
            "line 2, column 14: feature \"length\" must have either `thresholds` or `categories`"
        );
        assert_eq!(
            edited("\"inputs\":4", "\"automaton\":{\"channels\":1,\"boundary\":\"torus\"},\"inputs\":4"),
            "line 2, column 14: the file has both an `automaton` and a `classifier`, but a circuit is only one of them"
        );
        assert!(message(&CLASSIFIER.replace("2.5", "2.6")).contains("the checksum does not match"));
    }

    #[test]
    fn observed_channels_need_an_automaton() {
        let text =
            r#"{"format":"gatework-circuit","version":1,"inputs":1,"outputs":[0],"gates":[],"observed":1}"#;
        assert_eq!(
            message(text),
            "line 1, column 89: `observed` is 1, but the file has no `automaton` to observe"
        );
    }

    proptest! {
        #[test]
        fn circuits_are_preserved(circuit in arbitrary::circuit(0..=20, 100)) {
            let document = Document::Circuit(circuit);
            prop_assert_eq!(from_json(&to_json(&document)).unwrap(), document);
        }

        #[test]
        fn automata_are_preserved(automaton in arbitrary::automaton(), observe in any::<bool>()) {
            let observed = observe.then_some(automaton.channels);
            let document = Document::Automaton { automaton, observed };
            prop_assert_eq!(from_json(&to_json(&document)).unwrap(), document);
        }

        #[test]
        fn classifiers_are_preserved(classifier in arbitrary::classifier()) {
            let document = Document::Classifier(classifier);
            prop_assert_eq!(from_json(&to_json(&document)).unwrap(), document);
        }

        #[test]
        fn truncated_files_are_errors(
            automaton in arbitrary::automaton(),
            cut in any::<prop::sample::Index>(),
        ) {
            let text = to_json(&automaton.into());
            prop_assert!(from_json(&text[..cut.index(text.len() - 1)]).is_err());
        }

        #[test]
        fn any_text_is_read_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = from_json(&String::from_utf8_lossy(&bytes));
        }

        #[test]
        fn damaged_files_are_read_or_errors(
            automaton in arbitrary::automaton(),
            at in any::<prop::sample::Index>(),
            with in "[-0-9a-z\",:{}\\[\\]]{0,12}",
        ) {
            let mut text = to_json(&automaton.into());
            let at = at.index(text.len());
            text.replace_range(at..=at, &with);
            if let Ok(Document::Automaton { automaton, .. }) = from_json(&text) {
                prop_assert!(automaton.check().is_ok());
            }
        }
    }
}
