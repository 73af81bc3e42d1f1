//! Rules of cellular automata as targets: by name, by table, or as a circuit.
//!
//! | name | rule |
//! |---|---|
//! | `B36/S23` | a dead cell is born with 3 or 6 live neighbours, a live one survives with 2 or 3 |
//! | `B2/S/C3` | Generations: a cell that does not survive takes 3 - 2 steps to die |
//! | `rule:110` | elementary: each row is a line of cells, which read their left and right neighbours |
//!
//! `S23/B36`, `23/36`, `W110` and `110` are read, too.
//!
//! A cell with one of `C` states has as many channels as the states need digits; state 1 is alive. Numbers that are no state are
//! dead in the next step, so a rule is defined for all bits.

use std::path::Path;

use gatework_logic::automaton::NEIGHBOURS;
use gatework_logic::formats::{self, Format};
use gatework_logic::prove::{Verdict, equivalent_within};
use gatework_logic::simulate::Executor;
use gatework_logic::{Automaton, Boundary, Circuit, CircuitError, Document};

use super::construct::bits::{Bit, Bits};
use super::construct::{bits_for, lookup};
use super::picture::{MAX_COLOURS, Rgb};

/// A rule that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// Not the name of a rule.
    #[error("{name:?} is not a rule: {problem}; write for example B36/S23, B2/S/C3 or rule:110")]
    Name {
        /// The name.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A table of the wrong length, or with something else than digits.
    #[error("table: {0}")]
    Table(String),
    /// A circuit that is not a rule.
    #[error("circuit: {0}")]
    Circuit(String),
    /// The circuit of the rule cannot be made.
    #[error(transparent)]
    Invalid(#[from] CircuitError),
}

/// A rule: a circuit that computes the channels of a cell from its 3x3 neighbourhood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellRule {
    /// How the rule is called.
    name: String,
    circuit: Circuit,
    /// Whether cells read their own row only.
    is_line: bool,
}

/// Bits of a neighbourhood up to which all neighbourhoods are compared one by one.
pub(super) const EXHAUSTIVE_BITS: usize = 18;

/// Time for the proof that an automaton of more bits computes the rule.
const PROOF_TIME: std::time::Duration = std::time::Duration::from_secs(60);

/// The number in the name of an elementary rule: `RULE:110`, `RULE 110`, `W110` or `110`.
fn elementary_number(upper: &str) -> Option<&str> {
    let number = upper.strip_prefix("RULE").map(|rest| rest.trim_start_matches([':', ' ']));
    let number = number.or_else(|| upper.strip_prefix('W')).unwrap_or(upper);
    (!number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())).then_some(number)
}

/// Whether a name is in the notation without letters, which has the survivals first: `23/3` is Conway's Life.
fn is_survival_first(upper: &str) -> bool {
    let parts: Vec<&str> = upper.split('/').collect();
    let mut digits = parts.iter().flat_map(|part| part.bytes()).peekable();
    (2..=3).contains(&parts.len()) && digits.peek().is_some() && digits.all(|byte| byte.is_ascii_digit())
}

/// Says why a character is not a number of neighbours.
fn not_a_count(digit: char) -> String {
    let what = format!("{digit:?} is not a number of neighbours, which is 0 to 8");
    match digit {
        '0'..='9' => what,
        ':' => "a bounded grid (:) is not part of a rule; set automaton.grid and automaton.boundary".into(),
        _ => format!("{what}; a rule that depends on where they are is given as a table of 512 digits"),
    }
}

impl CellRule {
    /// Reads the name of a rule.
    pub fn parse(name: &str) -> Result<CellRule, RuleError> {
        let wrong = |problem: String| RuleError::Name { name: name.to_string(), problem };
        let upper = name.trim().to_ascii_uppercase();
        if let Some(number) = elementary_number(&upper) {
            let number = number.parse::<u8>().map_err(|_| wrong("elementary rules are 0 to 255".into()))?;
            return CellRule::elementary(number);
        }
        let mut parts: Vec<&str> = upper.split('/').collect();
        if !upper.starts_with(['B', 'S']) && !is_survival_first(&upper) {
            return Err(wrong("it neither begins with B nor is a number".into()));
        }
        if parts.len() < 2 {
            return Err(wrong("there is no / between births and survivals".into()));
        }
        if parts.len() > 3 {
            return Err(wrong("there are more than two /".into()));
        }
        let counts = |part: &str, letter: char| -> Result<[bool; 9], RuleError> {
            let digits = part.strip_prefix(letter).or_else(|| is_survival_first(&upper).then_some(part));
            let digits = digits.ok_or_else(|| wrong(format!("{part:?} does not begin with {letter}")))?;
            let mut counts = [false; 9];
            for digit in digits.chars() {
                let count = digit.to_digit(10).filter(|count| *count <= 8);
                let count = count.ok_or_else(|| wrong(not_a_count(digit)))?;
                counts[count as usize] = true;
            }
            Ok(counts)
        };
        if upper.starts_with('S') || is_survival_first(&upper) {
            parts.swap(0, 1);
        }
        let (births, survivals) = (counts(parts[0], 'B')?, counts(parts[1], 'S')?);
        let states = match parts.get(2) {
            None => 2,
            Some(part) => {
                let number = part.strip_prefix(['C', 'G']).unwrap_or(part).parse::<usize>().ok();
                let states = number.filter(|states| (2..=MAX_COLOURS).contains(states));
                states.ok_or_else(|| {
                    wrong(format!("{part:?} is not a number of states, which is C2 to C{MAX_COLOURS}"))
                })?
            }
        };
        CellRule::generations(&upper, &births, &survivals, states)
    }

    /// Returns whether a text is meant as the name of a rule, right or wrong, and not as that of an experiment or a file.
    pub(super) fn is_name(text: &str) -> bool {
        let upper = text.trim().to_ascii_uppercase();
        let first = upper.split('/').next().unwrap_or_default();
        let is_count = |c: char| c.is_ascii_digit() || "SCG".contains(c);
        let has_counts = |letter: char| {
            let counts = first.strip_prefix(letter);
            counts.is_some_and(|counts| counts.is_empty() || counts.starts_with(|c: char| c.is_ascii_digit()))
        };
        elementary_number(&upper).is_some()
            || upper.strip_prefix("RULE:").is_some()
            || upper.strip_prefix('B').is_some_and(|rest| rest.chars().all(|c| is_count(c) || c == '/'))
            || has_counts('B') && upper.contains("/S")
            || has_counts('S') && upper.contains("/B")
            || is_survival_first(&upper)
    }

    /// A rule by the numbers of live neighbours, with this many states.
    fn generations(
        name: &str,
        births: &[bool; 9],
        survivals: &[bool; 9],
        states: usize,
    ) -> Result<CellRule, RuleError> {
        let channels = bits_for(states);
        let mut bits = Bits::new(channels * NEIGHBOURS);
        let cell =
            |neighbour: usize| (0..channels).map(move |c| Bit::input(c * NEIGHBOURS + neighbour)).collect();
        let mut count = vec![Bit::FALSE; 4];
        for neighbour in (0..NEIGHBOURS).filter(|&n| n != 4) {
            let code: Vec<Bit> = cell(neighbour);
            let mut carry = bits.equals(&code, 1);
            for digit in &mut count {
                let sum = bits.xor(*digit, carry);
                carry = bits.and(*digit, carry);
                *digit = sum;
            }
        }
        let variables = [count, cell(4)].concat();
        let next = |index: usize| -> Option<usize> {
            let (count, state) = (index % 16, index / 16);
            (count <= 8).then(|| match state {
                0 => usize::from(births[count]),
                1 if survivals[count] => 1,
                _ if state + 1 < states => state + 1,
                _ => 0,
            })
        };
        let table = |channel: usize| {
            (0..1 << variables.len()).map(|index| next(index).map(|code| code >> channel & 1 == 1)).collect()
        };
        let tables: Vec<Vec<Option<bool>>> = (0..channels).map(table).collect();
        let outputs = lookup(&mut bits, &variables, &tables);
        Ok(CellRule { name: name.to_string(), circuit: bits.finish(&outputs)?, is_line: false })
    }

    /// An elementary rule, by Wolfram's number.
    fn elementary(number: u8) -> Result<CellRule, RuleError> {
        let mut bits = Bits::new(NEIGHBOURS);
        let variables = [5, 4, 3].map(Bit::input);
        let table = (0..8).map(|index| Some(number >> index & 1 == 1)).collect();
        let outputs = lookup(&mut bits, &variables, &[table]);
        Ok(CellRule { name: format!("rule {number}"), circuit: bits.finish(&outputs)?, is_line: true })
    }

    /// A rule of one channel by its table. Digit `i` of 512 is the next value of a cell whose neighbours, row by row from the top
    /// left, are the binary digits of `i` from the lowest. Eight digits are an elementary rule, the neighbourhood 111 first.
    pub fn from_table(text: &str) -> Result<CellRule, RuleError> {
        let digit = |letter: char| match letter {
            '0' => Ok(false),
            '1' => Ok(true),
            _ => Err(RuleError::Table(format!("{letter:?} is neither 0 nor 1"))),
        };
        let digits = text.chars().filter(|letter| !letter.is_whitespace());
        let digits: Vec<bool> = digits.map(digit).collect::<Result<_, _>>()?;
        match digits.len() {
            8 => CellRule::elementary(digits.iter().fold(0, |number, &digit| number << 1 | u8::from(digit))),
            512 => {
                let mut bits = Bits::new(NEIGHBOURS);
                let variables: Vec<Bit> = (0..NEIGHBOURS).map(Bit::input).collect();
                let outputs = lookup(&mut bits, &variables, &[digits.into_iter().map(Some).collect()]);
                Ok(CellRule { name: "table".into(), circuit: bits.finish(&outputs)?, is_line: false })
            }
            count => Err(RuleError::Table(format!("{count} digits, but a rule has 8 or 512"))),
        }
    }

    /// A rule as the circuit in a file of any format that can be read.
    pub fn from_file(path: &Path, bytes: &[u8]) -> Result<CellRule, RuleError> {
        let wrong = |problem: String| RuleError::Circuit(format!("{}: {problem}", path.display()));
        let format = Format::of_path(path).ok().filter(|format| format.can_read());
        let format = format.ok_or_else(|| wrong("not a circuit format that can be read".into()))?;
        let document = formats::read(bytes, format).map_err(|error| wrong(error.to_string()))?;
        let circuit = match document {
            Document::Automaton { automaton, .. } => automaton.circuit,
            Document::Circuit(circuit) => circuit,
            Document::Classifier(_) => return Err(wrong("a classifier, not a rule".into())),
        };
        let (inputs, outputs) = (circuit.inputs(), circuit.outputs().len());
        if outputs == 0 || inputs != outputs * NEIGHBOURS {
            return Err(wrong(format!(
                "{inputs} inputs and {outputs} outputs, but a rule has nine inputs for each output"
            )));
        }
        Ok(CellRule { name: "circuit".into(), circuit, is_line: false })
    }

    /// How the rule is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Channels of a cell.
    pub fn channels(&self) -> usize {
        self.circuit.outputs().len()
    }

    /// Whether the rule is one-dimensional: each row of a grid is a line of its own.
    pub fn is_line(&self) -> bool {
        self.is_line
    }

    /// Returns the rule with a boundary.
    pub fn automaton(&self, boundary: Boundary) -> Automaton {
        Automaton { channels: self.channels(), boundary, circuit: self.circuit.clone() }
    }

    /// Returns the rule with a boundary and further channels, which are 0 after a step.
    pub(super) fn automaton_of(&self, channels: usize, boundary: Boundary) -> Option<Automaton> {
        let wide = self.widened(channels)?;
        let mut nodes = wide.nodes().to_vec();
        let zero = (wide.inputs() + nodes.len()) as u32;
        nodes.push(gatework_logic::Node::new(gatework_logic::Gate::FALSE, 0, 0));
        let mut outputs = wide.outputs().to_vec();
        outputs.resize(channels, zero);
        let circuit = Circuit::new(wide.inputs(), nodes, outputs).ok()?;
        Some(Automaton { channels, boundary, circuit })
    }

    /// The colours of the states: dead, alive, and from alive to dead; none for a rule of one channel.
    pub(super) fn palette(&self) -> Vec<Rgb> {
        let states = 1usize << self.channels().min(4);
        if states == 2 {
            return Vec::new();
        }
        let (dead, alive, ash): (Rgb, Rgb, Rgb) =
            ([0xf4, 0xf1, 0xea], [0x1b, 0x1f, 0x3b], [0xd0, 0x7a, 0x3a]);
        let fade = |state: usize| {
            let share = (state - 2) * 255 / states.max(3);
            [0, 1, 2]
                .map(|i| ((usize::from(ash[i]) * (255 - share) + usize::from(dead[i]) * share) / 255) as u8)
        };
        [dead, alive].into_iter().chain((2..states).map(fade)).collect()
    }

    /// Returns whether the leading channels of an automaton follow the rule in every neighbourhood, whatever the other channels
    /// are; `None` if that cannot be decided.
    pub fn is_followed_by(&self, automaton: &Automaton) -> Option<bool> {
        let own = self.widened(automaton.channels)?;
        let other = &automaton.circuit;
        let outputs = other.outputs()[..self.channels()].to_vec();
        let other = Circuit::new(other.inputs(), other.nodes().to_vec(), outputs).ok()?.simplify();
        if own.inputs() <= EXHAUSTIVE_BITS {
            return Some(all_outputs(&own) == all_outputs(&other));
        }
        match equivalent_within(&own, &other, PROOF_TIME) {
            Ok(Verdict::Equal) => Some(true),
            Ok(Verdict::Different { .. }) => Some(false),
            _ => None,
        }
    }

    /// The circuit of the rule with further inputs that it ignores.
    fn widened(&self, channels: usize) -> Option<Circuit> {
        let inputs = channels * NEIGHBOURS;
        let own = self.circuit.inputs();
        let moved =
            |signal: u32| if (signal as usize) < own { signal } else { signal + (inputs - own) as u32 };
        if inputs < own {
            return None;
        }
        let nodes = self.circuit.nodes().iter();
        let nodes = nodes.map(|node| gatework_logic::Node::new(node.gate, moved(node.a), moved(node.b)));
        Circuit::new(inputs, nodes.collect(), self.circuit.outputs().iter().map(|&o| moved(o)).collect()).ok()
    }
}

/// Returns all assignments of this many bits, as a bit string for each.
pub(super) fn all_inputs(bits: usize) -> Vec<Vec<u64>> {
    let words = (1usize << bits).div_ceil(64);
    let word = |bit: usize, word: usize| match bit {
        0..6 => {
            let pattern = (0..64).filter(|i| i >> bit & 1 == 1).fold(0, |set, i| set | 1u64 << i);
            if bits < 6 { pattern & ((1 << (1 << bits)) - 1) } else { pattern }
        }
        _ if word >> (bit - 6) & 1 == 1 => u64::MAX,
        _ => 0,
    };
    (0..bits).map(|bit| (0..words).map(|index| word(bit, index)).collect()).collect()
}

/// The outputs of a circuit for all its inputs.
pub(super) fn all_outputs(circuit: &Circuit) -> Option<Vec<u64>> {
    let count = 1usize << circuit.inputs();
    let mut outputs = vec![0; circuit.outputs().len() * count.div_ceil(64)];
    Executor::portable(circuit).run(count, &all_inputs(circuit.inputs()).concat(), &mut outputs).ok()?;
    Some(outputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_logic::rules;

    fn next(rule: &CellRule, patch: usize) -> usize {
        let inputs = rule.channels() * 9;
        let bits: Vec<bool> = (0..inputs).map(|i| patch >> i & 1 == 1).collect();
        let outputs = rule.circuit.eval(&bits).unwrap();
        outputs.iter().enumerate().map(|(i, &bit)| usize::from(bit) << i).sum()
    }

    #[test]
    fn life_like_rules_compute_their_definition() {
        for (name, births, survivals) in [
            ("B3/S23", "3", "23"),
            ("b36/s23", "36", "23"),
            ("B2/S", "2", ""),
            ("B3678/S34678", "3678", "34678"),
            ("B/S", "", ""),
        ] {
            let rule = CellRule::parse(name).unwrap();
            for patch in 0..512usize {
                let count = (patch & !16).count_ones().to_string();
                let set = if patch & 16 == 0 { births } else { survivals };
                assert_eq!(next(&rule, patch) == 1, set.contains(&count), "{name} {patch:09b}");
            }
        }
        let life = CellRule::parse("B3/S23").unwrap();
        assert_eq!(life.is_followed_by(&rules::life(Boundary::Torus)), Some(true));
        assert_eq!(
            CellRule::parse("B36/S23").unwrap().is_followed_by(&rules::life(Boundary::Torus)),
            Some(false)
        );
    }

    #[test]
    fn other_notations_are_the_same_rules() {
        for (name, other) in [
            ("S23/B36", "B36/S23"),
            ("23/36", "B36/S23"),
            ("/2/3", "B2/S/C3"),
            ("345/2/4", "B2/S345/C4"),
            ("W30", "rule:30"),
            ("rule30", "rule:30"),
            ("30", "rule:30"),
        ] {
            let circuit = |name: &str| CellRule::parse(name).unwrap().circuit;
            assert_eq!(circuit(name), circuit(other), "{name}");
            assert!(CellRule::is_name(name) && CellRule::is_name(other), "{name}");
        }
        for name in ["B2-a/S12", "B3/S23:T10", "B3S23", "b9/s", "B/S", "rule:x", "300"] {
            assert!(CellRule::is_name(name), "{name}");
        }
        for name in ["rule-110", "bricks", "runs/x", "B.toml", "seeds", "S", "photos/B2", "boards/Small"] {
            assert!(!CellRule::is_name(name), "{name}");
        }
    }

    #[test]
    fn generations_die_slowly() {
        let rule = CellRule::parse("B2/S/C3").unwrap();
        assert_eq!(rule.channels(), 2);
        // Two live neighbours and one that is dying; bit 1 of a cell is in the second channel.
        let around = 1 << 0 | 1 << 1 | 1 << (9 + 2);
        assert_eq!(next(&rule, around), 1, "born");
        assert_eq!(next(&rule, around | 1 << 4), 2, "dying");
        assert_eq!(next(&rule, around | 1 << (9 + 4)), 0, "dead");
        assert_eq!(next(&rule, around | 1 << 4 | 1 << (9 + 4)), 0, "no state");
        assert_eq!(CellRule::parse("B2/S345/C4").unwrap().channels(), 2);
        assert_eq!(CellRule::parse("B2/S/5").unwrap().channels(), 3);
    }

    #[test]
    fn elementary_rules_have_wolfram_s_numbers() {
        for number in [0u8, 30, 90, 110, 184, 255] {
            let rule = CellRule::parse(&format!("rule:{number}")).unwrap();
            for patch in 0..512usize {
                let index = (patch >> 3 & 1) << 2 | (patch >> 4 & 1) << 1 | (patch >> 5 & 1);
                assert_eq!(next(&rule, patch), usize::from(number >> index & 1), "{number} {patch:09b}");
            }
            let table: String = (0..8).rev().map(|i| if number >> i & 1 == 1 { '1' } else { '0' }).collect();
            assert_eq!(CellRule::from_table(&table).unwrap().circuit, rule.circuit);
        }
    }

    #[test]
    fn a_table_gives_all_neighbourhoods() {
        let table: String =
            (0..512).map(|i: usize| if i.count_ones() % 3 == 1 { '1' } else { '0' }).collect();
        let rule = CellRule::from_table(&table).unwrap();
        assert!((0..512usize).all(|patch| (next(&rule, patch) == 1) == (patch.count_ones() % 3 == 1)));
        assert!(CellRule::from_table("0101").unwrap_err().to_string().contains("4 digits"));
        assert!(CellRule::from_table("0121").is_err());
    }

    #[test]
    fn names_that_are_no_rules_are_refused() {
        for (name, part) in [
            ("B9/S", "'9' is not a number of neighbours"),
            ("B3S23", "no /"),
            ("S23/S3", "does not begin with B"),
            ("B2-a/S12", "table of 512 digits"),
            ("B3/S23:T10", "automaton.grid"),
            ("23/9", "'9' is not a number"),
            ("B3/23", "does not begin with S"),
            ("B3/S23/C99", "number of states"),
            ("B3/S23/C1", "number of states"),
            ("B3/S2/C3/4", "more than two"),
            ("rule:256", "0 to 255"),
            ("rule:", "rule"),
            ("", "rule"),
        ] {
            let error = CellRule::parse(name).unwrap_err().to_string();
            assert!(error.contains(part), "{name}: {error}");
        }
    }

    #[test]
    fn hidden_channels_must_not_matter() {
        let life = rules::life(Boundary::Torus);
        let rule = CellRule::parse("B3/S23").unwrap();
        let wide = rule.widened(2).unwrap();
        let outputs = vec![wide.outputs()[0], wide.outputs()[0]];
        let wide = Circuit::new(18, wide.nodes().to_vec(), outputs).unwrap();
        let automaton = Automaton::new(2, Boundary::Torus, wide.clone()).unwrap();
        assert_eq!(rule.is_followed_by(&automaton), Some(true));
        let mut nodes = wide.nodes().to_vec();
        nodes.push(gatework_logic::Node::new(gatework_logic::Gate::XOR, wide.outputs()[0], 9));
        let last = 18 + nodes.len() as u32 - 1;
        let disturbed = Circuit::new(18, nodes, vec![last, last]).unwrap();
        let automaton = Automaton::new(2, Boundary::Torus, disturbed).unwrap();
        assert_eq!(rule.is_followed_by(&automaton), Some(false));
        assert_eq!(rule.is_followed_by(&life), Some(true));
    }
}
