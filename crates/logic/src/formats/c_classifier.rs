//! C: a classifier as one header, with encoder, gates and head, without allocation.
//!
//! Small circuits are statements. Large ones are a table of gates with a loop that interprets it, which compiles at once and
//! takes six bytes a gate. Both compute a block of samples at a time; the size of a block depends on the processor,
//! from eight samples on 8-bit processors to 256.

use super::names::{NameRule, identifier};
use super::source::{Language, SourceCode};
use super::{FormatError, Options, used_inputs};
use crate::classifier::{Classifier, FeatureKind, MAX_PIXEL, label_bits};
use crate::formats::json::Document;
use crate::straight_line::{BitwiseOp, Instruction, SlotAllocator, StraightLineProgram, last_uses};
use std::fmt::Write;

const RULE: NameRule = identifier(include_str!("keywords_c.txt"));

/// The most operations that are written as statements.
const MAX_STATEMENTS: usize = 500;
/// The most operations of a table.
const MAX_GATES: usize = 1 << 24;

const HEADER: &str = include_str!("classifier.h.in");
const TABLE: &str = include_str!("classifier_table.h.in");
const STATEMENTS: &str = include_str!("classifier_statements.h.in");
/// Words of the type `@_WORD`, whose name is replaced last.
const LANGUAGE: Language = Language { format: "C", not: '~', declare: "const @_WORD", zero: "(@_WORD)0" };

/// The text of a header: templates in which words that begin with `@` are replaced.
pub(super) fn write(classifier: &Classifier, options: &Options) -> Result<String, FormatError> {
    let name = RULE.repair(options.title(&Document::Classifier(classifier.clone())));
    let circuit = classifier.circuit().simplify();
    let program = StraightLineProgram::new(&circuit);
    if program.operations() > MAX_GATES {
        let message = format!("{} gates, but at most {MAX_GATES} are written", program.operations());
        return Err(FormatError::TooLarge { format: "C", message });
    }
    let mut offsets: Vec<u32> = classifier.head().classes().iter().map(|class| class.offset).collect();
    let groups: Vec<usize> = classifier.head().classes().iter().map(|class| class.outputs).collect();
    let (logic, blocks) = if program.operations() <= MAX_STATEMENTS {
        let code = SourceCode::new(&circuit, &LANGUAGE);
        let body: String = code.functions.iter().map(|function| unused(function) + &function.text).collect();
        let text = STATEMENTS
            .replace("@STATEMENTS", &body)
            .replace("@GROUPS", &join(&groups))
            .replace("@OUTPUTS", &circuit.outputs().len().to_string());
        (text, circuit.inputs())
    } else {
        let table = GateTable::new(&program, &groups, &mut offsets);
        (table.text(), table.values)
    };
    let counter = label_bits(groups.iter().max().copied().unwrap_or(0) + 1);
    let is_image = classifier.encoder().shape().is_some();
    let row = match classifier.encoder().shape() {
        Some([channels, height, width]) => {
            format!("A row is an image of {channels}x{height}x{width} bytes: channels, rows, columns.")
        }
        None => {
            "A row has a number for each feature, the index of a category, or NaN for a missing value.".into()
        }
    };
    let names: Vec<String> =
        classifier.head().classes().iter().map(|class| format!("    {},\n", quoted(&class.name))).collect();
    let (tests, table) = tests(classifier, &used_inputs(&circuit));
    let text = HEADER
        .replace("@LOGIC", &logic)
        .replace("@OPERATIONS", &program.operations().to_string())
        .replace("@ROW", &row)
        .replace("@BLOCKS", &blocks.max(1).to_string())
        .replace("@GUARD", &format!("{}_H", name.to_uppercase()))
        .replace("@FEATURES", &classifier.encoder().features().len().to_string())
        .replace("@CLASSES", &groups.len().to_string())
        .replace("@VALUE", if is_image { "uint8_t" } else { "float" })
        .replace("@COUNTER", &counter.to_string())
        .replace("@OFFSETS", &join(&offsets))
        .replace("@THRESHOLD", if is_image { "int16_t" } else { "float" })
        .replace(
            "@KIND",
            if is_image { "" } else { "\n    uint8_t kind; /* 0: above, 1: equal, 2: missing */" },
        )
        .replace("@ZERO", if is_image { "" } else { ", 0" })
        .replace("@HOLDS", if is_image { HOLDS_BYTE } else { HOLDS_FLOAT })
        .replace("@TESTS", &tests.to_string())
        .replace("@TABLE", &table)
        .replace("@_", &format!("{name}_"))
        .replace("@:", &format!("{name}:"));
    // Last, because names of classes may contain anything.
    Ok(text.replace("@NAMES", &names.concat()))
}

const HOLDS_BYTE: &str = "    return (int)value > test->threshold;\n";
const HOLDS_FLOAT: &str = "    if (test->kind == 0)\n        return value > test->threshold;\n    \
     if (test->kind == 1)\n        return value >= test->threshold && value <= test->threshold;\n    \
     return !(value <= 0 || value > 0);\n";

/// Statements against warnings for parameters that are not used.
fn unused(function: &super::source::FunctionBody) -> String {
    let parameters = [("in", function.reads_inputs), ("out", function.writes_outputs)];
    let unused = parameters.iter().filter(|(_, used)| !used);
    unused.map(|(name, _)| format!("    (void){name};\n")).collect::<Vec<_>>().concat()
}

/// The number of comparisons, and their rows in the table of the encoder.
fn tests(classifier: &Classifier, used: &[u32]) -> (usize, String) {
    let encoder = classifier.encoder();
    let is_image = encoder.shape().is_some();
    let mut table = String::new();
    let mut used = used.iter().peekable();
    let mut count = 0;
    for (i, (feature, range)) in encoder.features().iter().zip(encoder.ranges()).enumerate() {
        while let Some(&bit) = used.next_if(|&&bit| range.contains(&(bit as usize))) {
            count += 1;
            let place = bit as usize - range.start;
            // Writing to a string never fails, here and below.
            let _ = match &feature.kind {
                FeatureKind::Numeric(thresholds) if place < thresholds.len() && is_image => {
                    let threshold = thresholds[place].floor().clamp(-1.0, MAX_PIXEL as f32) as i32;
                    writeln!(table, "    {{{bit}, {i}, {threshold}}},")
                }
                FeatureKind::Numeric(thresholds) if place < thresholds.len() => {
                    writeln!(table, "    {{{bit}, {i}, {:e}f, 0}},", thresholds[place])
                }
                FeatureKind::Categorical(names) if place < names.len() => {
                    writeln!(table, "    {{{bit}, {i}, {place}, 1}},")
                }
                _ => writeln!(table, "    {{{bit}, {i}, 0, 2}},"),
            };
        }
    }
    (count, table)
}

/// A straight-line program as numbers.
struct GateTable {
    rows: Vec<[usize; 3]>,
    /// The number of values that are live at a time.
    values: usize,
}

/// A result that is added to the counter of a class.
const COUNT: usize = usize::MAX;

impl GateTable {
    /// Allocates places to values; the inputs have the first ones. Constant outputs are added to the offsets.
    fn new(program: &StraightLineProgram, groups: &[usize], offsets: &mut [u32]) -> GateTable {
        let classes: Vec<usize> = groups
            .iter()
            .enumerate()
            .flat_map(|(class, &outputs)| std::iter::repeat_n(class, outputs))
            .collect();
        let last_use = last_uses(program);
        let mut slots = SlotAllocator::default();
        let mut place: Vec<u32> = vec![0; program.values()];
        for input in 0..program.inputs {
            place[input + 1] = slots.take();
        }
        let mut next = program.inputs + 1;
        let mut rows = Vec::with_capacity(program.instructions.len());
        for (time, &instruction) in program.instructions.iter().enumerate() {
            match instruction {
                Instruction::Compute { op, a, b } => {
                    let operands = [a, b].map(|value| place[value as usize] as usize);
                    for value in [a, b].into_iter().filter(|&value| last_use[value as usize] == time as u32) {
                        slots.release(place[value as usize]);
                    }
                    place[next] = slots.take();
                    let op = match op {
                        BitwiseOp::And => 0,
                        BitwiseOp::AndNot => 1,
                        BitwiseOp::Or => 2,
                        BitwiseOp::Xor => 3,
                    };
                    rows.push([op << 30 | place[next] as usize, operands[0], operands[1]]);
                    next += 1;
                }
                Instruction::Store { literal, output } => {
                    let class = classes[output as usize];
                    if literal.is_constant() {
                        offsets[class] += u32::from(literal.is_inverted());
                        continue;
                    }
                    let inverted = usize::from(literal.is_inverted());
                    rows.push([COUNT ^ usize::from(inverted == 0), place[literal.node()] as usize, class]);
                    if last_use[literal.node()] == time as u32 {
                        slots.release(place[literal.node()]);
                    }
                }
            }
        }
        GateTable { rows, values: slots.count() }
    }

    fn text(&self) -> String {
        let largest = self.rows.iter().flat_map(|row| row[1..].iter().copied()).max().unwrap_or(0);
        let (code, shift) =
            if largest.max(self.values) < (1 << 14) - 1 { ("uint16_t", 14) } else { ("uint32_t", 30) };
        let none = (1usize << shift) - 1;
        let mut program = String::with_capacity(20 * self.rows.len());
        for row in &self.rows {
            let first = match row[0] {
                COUNT => 1 << shift | none,
                row if row == COUNT - 1 => none,
                row => (row >> 30) << shift | row & ((1 << 30) - 1),
            };
            let _ = writeln!(program, "    {first}, {}, {},", row[1], row[2]);
        }
        TABLE
            .replace("@SHIFT", &shift.to_string())
            .replace("@NONE", &none.to_string())
            .replace("@GATES", &self.rows.len().to_string())
            .replace("@CODE", code)
            .replace("@PROGRAM", &program)
    }
}

fn join<T: ToString>(numbers: &[T]) -> String {
    numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A string literal: bytes that are not plain characters are octal numbers, which have at most three digits.
fn quoted(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'"' | b'\\' | b'?' => format!("\\{}", byte as char),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03o}"),
    };
    format!("\"{}\"", text.bytes().map(escape).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped() {
        assert_eq!(quoted("a\"b\\n??/\u{e9}1\n"), r#""a\"b\\n\?\?/\303\2511\012""#);
    }
}
