//! Names of ports in files: legal in the format, and distinct.
//!
//! A port may have any name: `carry out`, `ß`, `module`, or the name of another port. A [`NameRule`] says which names a
//! format allows; the algorithm is the same for every format:
//!
//! - A name that is allowed, and that no port before it has, is kept.
//! - In every other name, each character that is not allowed becomes `_`. A name that is empty, a keyword, or begins with
//!   a character that may not come first gets a leading `_`.
//! - If that name is taken, the first free suffix of `_2`, `_3`, ... is appended.
//!
//! Names that are kept are assigned first, so a legal name never changes because of an illegal one. Inputs and outputs
//! share one scope, as in most formats; in BLIF and AIGER, an output that is an input may have its name.

use crate::automaton::NEIGHBOURS;
use crate::circuit::Circuit;
use crate::classifier::{Class, Classifier, Feature, FeatureKind};
use crate::formats::json::Document;
use std::collections::{HashMap, HashSet};

/// The names that a format allows.
#[derive(Debug)]
pub struct NameRule {
    /// Whether a name may begin with this character.
    pub first: fn(char) -> bool,
    /// Whether a name may contain this character after the first.
    pub rest: fn(char) -> bool,
    /// The reserved words, separated by white space.
    pub keywords: &'static str,
}

impl NameRule {
    /// Whether the format allows this name.
    pub fn allows(&self, name: &str) -> bool {
        let mut characters = name.chars();
        characters.next().is_some_and(self.first)
            && characters.all(self.rest)
            && !self.keywords.split_whitespace().any(|keyword| keyword == name)
    }

    /// Returns the name with illegal characters replaced.
    pub fn repair(&self, name: &str) -> String {
        let mut repaired: String = name.chars().map(|c| if (self.rest)(c) { c } else { '_' }).collect();
        while !self.allows(&repaired) {
            repaired.insert(0, '_');
        }
        repaired
    }
}

/// The rule for identifiers of letters, digits and `_`, as in most programming languages.
pub(crate) const fn identifier(keywords: &'static str) -> NameRule {
    NameRule {
        first: |c| c.is_ascii_alphabetic() || c == '_',
        rest: |c| c.is_ascii_alphanumeric() || c == '_',
        keywords,
    }
}

/// The names that are in use.
pub(crate) struct Scope<'r> {
    rule: &'r NameRule,
    taken: HashSet<String>,
    /// The last suffix that was appended to each name.
    suffixes: HashMap<String, usize>,
}

impl<'r> Scope<'r> {
    pub fn new(rule: &'r NameRule) -> Scope<'r> {
        Scope { rule, taken: HashSet::new(), suffixes: HashMap::new() }
    }

    /// Returns distinct legal names, as close as possible to those given.
    pub fn admit<'n>(&mut self, names: impl IntoIterator<Item = &'n str>) -> Vec<String> {
        let keep = |name: &'n str| {
            let kept = self.rule.allows(name) && self.taken.insert(name.into());
            (name, kept)
        };
        let settled: Vec<(&str, bool)> = names.into_iter().map(keep).collect();
        settled.into_iter().map(|(name, kept)| if kept { name.into() } else { self.fresh(name) }).collect()
    }

    /// Returns an unused legal name.
    fn fresh(&mut self, name: &str) -> String {
        let base = self.rule.repair(name);
        if self.taken.insert(base.clone()) {
            return base;
        }
        let suffix = self.suffixes.entry(base.clone()).or_insert(1);
        loop {
            *suffix += 1;
            let name = format!("{base}_{suffix}");
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }

    /// Returns the shortest of `n`, `n_`, `n__`, ... for which every name with a number after it is unused.
    pub fn prefix(&self, letter: char) -> String {
        self.prefix_with(letter, '_')
    }

    /// Returns the shortest prefix like [`Scope::prefix`], with repetitions of another character after the letter.
    pub fn prefix_with(&self, letter: char, repeated: char) -> String {
        let mut prefix = letter.to_string();
        let clashes = |prefix: &str| {
            let follows =
                |name: &String| name.strip_prefix(prefix).is_some_and(|rest| !rest.starts_with(repeated));
            self.taken.iter().any(follows)
        };
        while clashes(&prefix) {
            prefix.push(repeated);
        }
        prefix
    }
}

/// The names of ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// One name for each input.
    pub inputs: Vec<String>,
    /// One name for each output.
    pub outputs: Vec<String>,
}

impl Ports {
    /// The names of all inputs and of the first outputs of a circuit.
    pub(crate) fn new(circuit: &Circuit, outputs: usize) -> Ports {
        Ports {
            inputs: (0..circuit.inputs()).map(|input| circuit.input_name(input).into_owned()).collect(),
            outputs: (0..outputs).map(|output| circuit.output_name(output).into_owned()).collect(),
        }
    }

    /// Returns distinct legal names.
    pub(crate) fn admit(&self, scope: &mut Scope) -> Ports {
        let names = self.inputs.iter().chain(&self.outputs).map(String::as_str);
        let mut inputs = scope.admit(names);
        let outputs = inputs.split_off(self.inputs.len());
        Ports { inputs, outputs }
    }

    /// Returns distinct legal names for formats in which an output that is an input may have its name. `signals` are the
    /// signals of the outputs.
    pub(crate) fn admit_linked(&self, scope: &mut Scope, signals: &[u32]) -> Ports {
        let mut ports = self.admit(scope);
        for (output, &signal) in signals.iter().enumerate().take(self.outputs.len()) {
            if self.inputs.get(signal as usize) == Some(&self.outputs[output]) {
                ports.outputs[output].clone_from(&ports.inputs[signal as usize]);
            }
        }
        ports
    }
}

/// The suffixes of the neighbours of a cell, in the order of a circuit's inputs.
const DIRECTIONS: [&str; NEIGHBOURS] = ["_nw", "_n", "_ne", "_w", "", "_e", "_sw", "_s", "_se"];

/// Returns the names of the ports of a circuit, by default `x0`, `x1`, ... and `y0`, `y1`, .... The defaults of an
/// automaton are the neighbours `c0_nw`, `c0_n`, `c0_ne`, `c0_w`, `c0`, `c0_e`, `c0_sw`, `c0_s`,
/// `c0_se` of every channel, and `c0_next`.
pub fn ports(document: &Document) -> Ports {
    match document {
        Document::Circuit(circuit) => Ports::new(circuit, circuit.outputs().len()),
        Document::Automaton { automaton, .. } => cell_ports(&automaton.circuit),
        Document::Classifier(classifier) => classifier_ports(classifier),
    }
}

/// Returns the names of the ports of a classifier's circuit: those of the circuit, or the bits of the features
/// (`NAME_gt0`, `NAME_gt1`, ..., `NAME_is_CATEGORY`, `NAME_missing`) and the bits of the classes (`CLASS_0`, `CLASS_1`, ...).
fn classifier_ports(classifier: &Classifier) -> Ports {
    let circuit = classifier.circuit();
    let mut ports = Ports::new(circuit, circuit.outputs().len());
    if circuit.input_names().is_empty() {
        ports.inputs = classifier.encoder().features().iter().flat_map(bit_names).collect();
    }
    if circuit.output_names().is_empty() {
        let bits =
            |class: &Class| (0..class.outputs).map(|i| format!("{}_{i}", class.name)).collect::<Vec<_>>();
        ports.outputs = classifier.head().classes().iter().flat_map(bits).collect();
    }
    ports
}

/// The names of the bits of a feature.
fn bit_names(feature: &Feature) -> Vec<String> {
    let name = &feature.name;
    let mut names: Vec<String> = match &feature.kind {
        FeatureKind::Numeric(thresholds) => (0..thresholds.len()).map(|i| format!("{name}_gt{i}")).collect(),
        FeatureKind::Categorical(categories) => {
            categories.iter().map(|category| format!("{name}_is_{category}")).collect()
        }
    };
    names.extend(feature.missing.then(|| format!("{name}_missing")));
    names
}

/// Returns the names of the ports of a rule: those of the circuit, or the neighbours of every channel.
pub(crate) fn cell_ports(circuit: &Circuit) -> Ports {
    let neighbour = |input: usize| format!("c{}{}", input / NEIGHBOURS, DIRECTIONS[input % NEIGHBOURS]);
    let inputs = if circuit.input_names().is_empty() {
        (0..circuit.inputs()).map(neighbour).collect()
    } else {
        circuit.input_names().to_vec()
    };
    let outputs = if circuit.output_names().is_empty() {
        (0..circuit.outputs().len()).map(|channel| format!("c{channel}_next")).collect()
    } else {
        circuit.output_names().to_vec()
    };
    Ports { inputs, outputs }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automaton::Boundary;
    use crate::rules;
    use proptest::prelude::*;

    const RULE: NameRule = identifier("module _module");

    fn admitted(names: &[&str]) -> Vec<String> {
        Scope::new(&RULE).admit(names.iter().copied())
    }

    #[test]
    fn legal_names_are_kept() {
        assert_eq!(admitted(&["a", "b_2", "_"]), ["a", "b_2", "_"]);
    }

    #[test]
    fn illegal_names_are_repaired() {
        let names = admitted(&["carry out", "\u{df}", "", "9", "module"]);
        assert_eq!(names, ["carry_out", "_", "__2", "_9", "__module"]);
    }

    #[test]
    fn duplicates_get_the_first_free_number_and_never_a_legal_name() {
        assert_eq!(
            admitted(&["a", "a", "a b", "a_2", "a_b", "a"]),
            ["a", "a_3", "a_b_2", "a_2", "a_b", "a_4"]
        );
    }

    #[test]
    fn the_prefix_of_inner_signals_is_free() {
        let mut scope = Scope::new(&RULE);
        scope.admit(["n1", "n__x", "m"]);
        assert_eq!(scope.prefix('n'), "n_");
        assert_eq!(scope.prefix('m'), "m_");
        assert_eq!(scope.prefix('k'), "k");
        assert_eq!(scope.prefix_with('n', 'n'), "nn");
    }

    #[test]
    fn neighbours_have_the_names_of_directions() {
        let ports = ports(&rules::life(Boundary::Torus).into());
        let expected = ["c0_nw", "c0_n", "c0_ne", "c0_w", "c0", "c0_e", "c0_sw", "c0_s", "c0_se"];
        assert_eq!(
            (ports.inputs, ports.outputs),
            (expected.map(String::from).to_vec(), vec!["c0_next".into()])
        );
    }

    proptest! {
        #[test]
        fn names_are_legal_and_distinct(names in prop::collection::vec("[a_ 2\u{e9}]{0,3}|module", 0..60)) {
            let admitted = Scope::new(&RULE).admit(names.iter().map(String::as_str));
            let distinct: HashSet<&String> = admitted.iter().collect();
            prop_assert_eq!(distinct.len(), names.len());
            for (name, original) in admitted.iter().zip(&names) {
                prop_assert!(RULE.allows(name), "{}", name);
                let first = names.iter().find(|other| *other == original);
                let is_first = std::ptr::eq(first.unwrap(), original);
                prop_assert!(!RULE.allows(original) || !is_first || name == original);
            }
        }

        #[test]
        fn numbered_names_are_free(names in prop::collection::vec("n{1,3}_{0,3}[0-9a]{0,2}", 0..20)) {
            let mut scope = Scope::new(&RULE);
            let taken = scope.admit(names.iter().map(String::as_str));
            for prefix in [scope.prefix('n'), scope.prefix_with('n', 'n')] {
                for number in 0..100 {
                    let name = format!("{prefix}{number}");
                    prop_assert!(!taken.contains(&name));
                }
            }
        }
    }
}
