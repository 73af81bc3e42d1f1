//! Reader of BLIF files: one model, with its definitions in any order.
//!
//! ```text
//! tokens    words with their line and column, without comments and continuations
//! model     the directives, with numbered signals
//! circuit   the definitions in topological order, synthesised to gates
//! ```

use super::cover::{Cover, Gates};
use crate::circuit::Circuit;
use crate::formats::order::topological;
use crate::formats::sequential::Sequential;
use crate::formats::{self, FormatError};
use std::collections::HashMap;

/// A word of the file and its location.
#[derive(Clone, Copy, Debug)]
struct Word<'t> {
    text: &'t str,
    line: usize,
    column: usize,
}

impl Word<'_> {
    fn error(&self, message: impl Into<String>) -> FormatError {
        FormatError::syntax(self.line, self.column, message)
    }
}

/// The words of a line. A `#` begins a comment.
fn words(line: &str, number: usize) -> impl Iterator<Item = Word<'_>> {
    let code = line.split('#').next().unwrap_or("");
    let (mut seen, mut column) = (0, 1);
    code.split_whitespace().map(move |text| {
        // Both are slices of one line, so the difference of their addresses is an offset in the line.
        let place = text.as_ptr() as usize - line.as_ptr() as usize;
        column += line[seen..place].chars().count();
        seen = place;
        Word { text, line: number, column }
    })
}

/// The lines of a file as lists of words; a `\` at the end of a line joins it with the next.
struct Lines<'t> {
    lines: std::iter::Enumerate<std::str::Lines<'t>>,
    /// The number of the last line.
    last: usize,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Lines<'t> {
        Lines { lines: text.lines().enumerate(), last: 1 }
    }

    /// Reads the next line that is not empty into `list`; returns whether there is one.
    fn next(&mut self, list: &mut Vec<Word<'t>>) -> bool {
        list.clear();
        for (i, line) in self.lines.by_ref() {
            self.last = i + 1;
            let joined = line.trim_end().strip_suffix('\\').filter(|line| !line.contains('#'));
            list.extend(words(joined.unwrap_or(line), i + 1));
            if joined.is_none() && !list.is_empty() {
                return true;
            }
        }
        !list.is_empty()
    }
}

/// The definition of a signal.
#[derive(Clone, Copy, Debug)]
enum Source {
    /// An input or a latch, by its index among the inputs of the circuit.
    Input(u32),
    /// A `.names`, by its index.
    Names(u32),
}

/// A `.names`.
#[derive(Debug)]
struct Names<'t> {
    operands: Vec<u32>,
    output: u32,
    cover: Cover<'t>,
}

#[derive(Debug)]
struct Latch<'t> {
    next: u32,
    present: Word<'t>,
    start: Option<bool>,
}

/// The model of a file.
#[derive(Debug, Default)]
struct Model<'t> {
    /// The number of every name, and the first occurrence of every signal.
    numbers: HashMap<&'t str, u32>,
    mentions: Vec<Word<'t>>,
    sources: Vec<Option<Source>>,
    inputs: Vec<Word<'t>>,
    outputs: Vec<Word<'t>>,
    latches: Vec<Latch<'t>>,
    names: Vec<Names<'t>>,
    is_named: bool,
}

/// Reads a BLIF file with or without latches.
pub fn read_sequential(bytes: &[u8]) -> Result<Sequential, FormatError> {
    Model::read(formats::text(bytes)?)?.circuit()
}

impl<'t> Model<'t> {
    fn read(text: &'t str) -> Result<Model<'t>, FormatError> {
        let mut model = Model::default();
        let (mut lines, mut line) = (Lines::new(text), Vec::new());
        // Cubes belong to the `.names` directly before them.
        let mut in_names = false;
        let mut ended = false;
        while lines.next(&mut line) {
            let (head, rest) = (line[0], &line[1..]);
            if ended {
                return Err(head.error("there is more after .end; only files of one model are read"));
            }
            if !head.text.starts_with('.') {
                let names = model.names.last_mut().filter(|_| in_names);
                names.ok_or_else(|| head.error("a cube, but no .names before it"))?.add_cube(&line)?;
                continue;
            }
            in_names = head.text == ".names";
            ended = head.text == ".end";
            model.directive(head, rest)?;
        }
        if !ended {
            return Err(FormatError::syntax(lines.last, 1, "the file ends without .end; it may be cut off"));
        }
        Ok(model)
    }

    fn directive(&mut self, head: Word<'t>, rest: &[Word<'t>]) -> Result<(), FormatError> {
        match head.text {
            ".model" if self.is_named => return Err(head.error("a second .model; only one is read")),
            ".model" => self.is_named = true,
            ".inputs" | ".input" => self.inputs.extend(rest),
            ".outputs" | ".output" => self.outputs.extend(rest),
            ".names" => self.add_names(head, rest)?,
            ".latch" => self.add_latch(head, rest)?,
            ".end" | ".clock" => {}
            ".subckt" | ".gate" | ".mlatch" | ".search" => {
                let message = format!("{} is not read; flatten the design to .names first", head.text);
                return Err(head.error(message));
            }
            other => return Err(head.error(format!("unknown directive {other}"))),
        }
        Ok(())
    }

    /// Returns the number of a signal.
    fn signal(&mut self, word: Word<'t>) -> u32 {
        *self.numbers.entry(word.text).or_insert_with(|| {
            self.mentions.push(word);
            self.sources.push(None);
            (self.sources.len() - 1) as u32
        })
    }

    /// Defines a signal.
    fn define(&mut self, word: Word<'t>, source: Source) -> Result<u32, FormatError> {
        let signal = self.signal(word);
        if self.sources[signal as usize].replace(source).is_some() {
            return Err(word.error(format!("{} is defined twice", word.text)));
        }
        Ok(signal)
    }

    fn add_names(&mut self, head: Word<'t>, rest: &[Word<'t>]) -> Result<(), FormatError> {
        let (&output, operands) = rest.split_last().ok_or_else(|| head.error(".names needs a signal"))?;
        let operands = operands.iter().map(|&word| self.signal(word)).collect();
        let output = self.define(output, Source::Names(self.names.len() as u32))?;
        self.names.push(Names { operands, output, cover: Cover::default() });
        Ok(())
    }

    fn add_latch(&mut self, head: Word<'t>, rest: &[Word<'t>]) -> Result<(), FormatError> {
        let [next, present, settings @ ..] = rest else {
            return Err(head.error(".latch needs an input and an output"));
        };
        let start = match settings {
            [] => None,
            [start] => Some(start),
            [kind, _control, start @ ..] if start.len() <= 1 => {
                if !matches!(kind.text, "re" | "fe") {
                    let message = format!("latches of type {} are not read, only re and fe", kind.text);
                    return Err(kind.error(message));
                }
                start.first()
            }
            [_, _, _, more, ..] => return Err(more.error("too many words after .latch")),
            [..] => return Err(head.error("a .latch with a type needs a control signal")),
        };
        let start = match start.map(|word| (word, word.text)) {
            Some((_, "0")) => Some(false),
            Some((_, "1")) => Some(true),
            None | Some((_, "2" | "3")) => None,
            Some((word, _)) => return Err(word.error("a latch starts with 0, 1, 2 or 3")),
        };
        let next = self.signal(*next);
        self.latches.push(Latch { next, present: *present, start });
        Ok(())
    }

    /// Returns the circuit, with the latches as its last inputs and outputs.
    fn circuit(mut self) -> Result<Sequential, FormatError> {
        let present: Vec<Word> = self.latches.iter().map(|latch| latch.present).collect();
        let inputs = [std::mem::take(&mut self.inputs), present].concat();
        for (i, &word) in inputs.iter().enumerate() {
            self.define(word, Source::Input(i as u32))?;
        }
        let outputs = std::mem::take(&mut self.outputs);
        let mut wanted: Vec<u32> = outputs.iter().map(|&word| self.signal(word)).collect();
        wanted.extend(self.latches.iter().map(|latch| latch.next));
        if let Some(signal) = self.sources.iter().position(Option::is_none) {
            let word = self.mentions[signal];
            return Err(word.error(format!("{} is not defined", word.text)));
        }
        let (gates, values) = self.gates(inputs.len())?;
        let wanted = wanted.into_iter().map(|signal| values[signal as usize]).collect();
        let text = |words: &[Word]| words.iter().map(|word| word.text.to_string()).collect::<Vec<_>>();
        let mut output_names = text(&outputs);
        output_names.extend(self.latches.iter().map(|latch| format!("{}_next", latch.present.text)));
        let circuit = Circuit::new(inputs.len(), gates.nodes, wanted)?.simplify();
        let circuit = formats::named(circuit, text(&inputs), output_names)?;
        Ok(Sequential { circuit, latches: self.latches.iter().map(|latch| latch.start).collect() })
    }

    /// The gates of all definitions, and the signal of the circuit for every signal of the model.
    fn gates(&self, inputs: usize) -> Result<(Gates, Vec<u32>), FormatError> {
        let definition = |signal: &u32| match self.sources[*signal as usize] {
            Some(Source::Names(names)) => Some(names as usize),
            _ => None,
        };
        let reads = |names: usize| self.names[names].operands.iter().filter_map(definition);
        let order = topological(self.names.len(), reads).map_err(|cycle| self.cycle(&cycle))?;
        let mut values: Vec<u32> = self
            .sources
            .iter()
            .map(|source| if let Some(Source::Input(input)) = source { *input } else { 0 })
            .collect();
        let mut gates = Gates::new(inputs);
        for names in order {
            let names = &self.names[names];
            let operands: Vec<u32> = names.operands.iter().map(|&signal| values[signal as usize]).collect();
            values[names.output as usize] = gates.cover(&names.cover, &operands);
        }
        Ok((gates, values))
    }

    /// An error that names the signals of a cycle, the first few of a long one.
    fn cycle(&self, cycle: &[usize]) -> FormatError {
        const SHOWN: usize = 8;
        let name = |&names: &usize| self.mentions[self.names[names].output as usize];
        let mut list: Vec<&str> = cycle.iter().take(SHOWN).map(|names| name(names).text).collect();
        list.push(if cycle.len() > SHOWN { "..." } else { list[0] });
        name(&cycle[0]).error(format!("signals read each other in a cycle: {}", list.join(" <- ")))
    }
}

impl<'t> Names<'t> {
    /// Adds a line such as `1-0 1`.
    fn add_cube(&mut self, line: &[Word<'t>]) -> Result<(), FormatError> {
        let (cube, value) = match (self.operands.len(), line) {
            (0, [value]) => (Word { text: "", ..*value }, value),
            (1.., [cube, value]) => (*cube, value),
            (0, _) => return Err(line[0].error("a .names without inputs has lines of one value")),
            _ => return Err(line[0].error("a cube is followed by one value")),
        };
        let wanted = self.operands.len();
        if cube.text.chars().count() != wanted {
            let message = format!("a cube of {} for {wanted} inputs", cube.text.chars().count());
            return Err(cube.error(message));
        }
        if let Some(at) = cube.text.chars().position(|c| !matches!(c, '0' | '1' | '-')) {
            let place = Word { column: cube.column + at, ..cube };
            return Err(place.error("a cube consists of 0, 1 and -"));
        }
        let complemented = match value.text {
            "1" => false,
            "0" => true,
            _ => return Err(value.error("the value of a cube is 0 or 1")),
        };
        if !self.cover.cubes.is_empty() && self.cover.complemented != complemented {
            return Err(value.error("all cubes of a .names have the same value"));
        }
        self.cover.complemented = complemented;
        self.cover.cubes.push(cube.text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::formats::blif::write_sequential;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Sequential, FormatError> {
        read_sequential(text.as_bytes())
    }

    fn message(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    /// A model of one output over the inputs a, b and c.
    fn model(body: &str) -> String {
        format!(".model m\n.inputs a b c\n.outputs y\n{body}\n.end\n")
    }

    #[test]
    fn comments_continued_lines_and_any_order_are_read() {
        let text = "# a file\n.model m # its name\n.inputs a \\\n b \\\n  c\n.outputs y\n\
                    .names t c y # later than it is read\n1- 1\n-0 1\n.names a b t\n00 0\n.end\n";
        let circuit = read(text).unwrap().combinational().unwrap();
        for point in 0..8u32 {
            let [a, b, c] = [0, 1, 2].map(|k| point >> k & 1 == 1);
            assert_eq!(circuit.eval(&[a, b, c]).unwrap(), [a || b || !c]);
        }
        assert_eq!(circuit.input_names(), ["a", "b", "c"]);
    }

    #[test]
    fn latches_are_the_last_ports() {
        let text = ".model m\n.inputs a\n.outputs y\n.latch d q 1\n.latch q r re clk 0\n.latch a s\n\
                    .names a q d\n10 1\n01 1\n.names r y\n1 1\n.end\n";
        let sequential = read(text).unwrap();
        assert_eq!(sequential.latches, [Some(true), Some(false), None]);
        assert_eq!(sequential.circuit.input_names(), ["a", "q", "r", "s"]);
        let (outputs, next) = sequential.step(&[true], &[false, true, false]).unwrap();
        assert_eq!((outputs, next), (vec![true], vec![true, false, true]));
        let error = sequential.combinational().unwrap_err().to_string();
        assert_eq!(error, "the file has 3 latches: it is a sequential circuit, not a function of its inputs");
    }

    #[test]
    fn errors_have_their_location() {
        for (body, expected) in [
            (".names a b y\n1 1", "line 5, column 1: a cube of 1 for 2 inputs"),
            (".names a b y\n 1x 1", "line 5, column 3: a cube consists of 0, 1 and -"),
            (".names a b y\n11 2", "line 5, column 4: the value of a cube is 0 or 1"),
            (".names a b y\n11 1\n00 0", "line 6, column 4: all cubes of a .names have the same value"),
            (".names a b y\n11 1 1", "line 5, column 1: a cube is followed by one value"),
            (".names a q y\n11 1", "line 4, column 10: q is not defined"),
            (".names y\n.names a y", "line 5, column 10: y is defined twice"),
            (".names y\n.names a", "line 2, column 9: a is defined twice"),
            ("11 1", "line 4, column 1: a cube, but no .names before it"),
            (".names", "line 4, column 1: .names needs a signal"),
            (
                ".subckt adder x=a",
                "line 4, column 1: .subckt is not read; flatten the design to .names first",
            ),
            (".model again", "line 4, column 1: a second .model; only one is read"),
            (".kiss", "line 4, column 1: unknown directive .kiss"),
            (".latch a", "line 4, column 1: .latch needs an input and an output"),
            (".latch a y 7", "line 4, column 12: a latch starts with 0, 1, 2 or 3"),
            (".latch a y ah clk", "line 4, column 12: latches of type ah are not read, only re and fe"),
            (".end\n.end", "line 5, column 1: there is more after .end; only files of one model are read"),
        ] {
            assert_eq!(message(&model(body)), expected, "{body}");
        }
    }

    #[test]
    fn cycles_are_errors_with_their_signals() {
        let text = model(".names a t y\n11 1\n.names y u t\n11 1\n.names b u\n1 1");
        assert_eq!(message(&text), "line 4, column 12: signals read each other in a cycle: y <- t <- y");
        let long: Vec<String> = (0..20).map(|i| format!(".names s{} s{i}\n1 1", (i + 1) % 20)).collect();
        let error = message(&model(&format!("{}\n.names y", long.join("\n"))));
        assert!(error.ends_with("s0 <- s1 <- s2 <- s3 <- s4 <- s5 <- s6 <- s7 <- ..."), "{error}");
    }

    #[test]
    fn a_latch_breaks_a_cycle() {
        let sequential = read(&model(".latch t y 0\n.names y t\n0 1")).unwrap();
        assert_eq!(sequential.step(&[false; 3], &[false]).unwrap(), (vec![false], vec![true]));
    }

    #[test]
    fn files_that_are_not_utf_8_are_errors_with_their_location() {
        let error = read_sequential(b".model m\n.inputs \xff").unwrap_err().to_string();
        assert_eq!(error, "line 2, column 9: the text is not UTF-8");
    }

    proptest! {
        #[test]
        fn truncated_files_are_errors(
            circuit in arbitrary::circuit(0..=8, 30),
            cut in any::<prop::sample::Index>(),
        ) {
            let text = write_sequential(&circuit.into(), "m");
            prop_assert!(read(&text[..cut.index(text.len() - 1)]).is_err());
        }

        #[test]
        fn any_text_is_read_or_an_error(
            words in prop::collection::vec(r"\.names|\.latch|\.inputs|\.end|[abc]|[01-]{0,3}|\n|\\\n|#|\PC", 0..80),
        ) {
            let _ = read(&words.join(" "));
        }
    }
}
