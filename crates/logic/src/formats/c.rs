//! C: a circuit as one header without dependencies, 64 samples per word.
//!
//! ```c
//! static inline void adder(const uint64_t *in, uint64_t *out);
//! ```
//!
//! Bit `k` of `in[i]` is input `i` of sample `k`. An automaton has `name_rule` with 9 words per channel, and
//!
//! ```c
//! static inline void name_step(const uint64_t *now, uint64_t *next, size_t height, size_t width, int torus);
//! ```
//!
//! on grids whose rows are aligned to words: cell (y, x) of channel c is bit `x % 64` of word
//! `(c * height + y) * name_row_words(width) + x / 64`. The unused bits of a row are 0, and remain 0.
//!
//! A classifier has `name_predict(row)`, `name_scores(row, scores)` and `name_predict_many(rows, count, labels)`,
//! with encoder and head.
//!
//! The header compiles as C99 and as C++ without warnings. Ports with names have constants, such as `adder_in_a`.

use super::names::{NameRule, Ports, Scope, identifier};
use super::source::{FunctionBody, Language, SourceCode, boundary_name, simple};
use super::{Document, Format, FormatError, Options, c_classifier};
use crate::automaton::{Boundary, NEIGHBOURS};
use std::fmt::Write;

/// The entry of C in [`FORMATS`](super::FORMATS).
pub static FORMAT: Format = Format {
    name: "c",
    endings: &["h", "c"],
    about: "one C header without dependencies, 64 samples per word",
    text: true,
    grid: false,
    reader: None,
    writer: Some(|document, options| Ok(write(document, options)?.into_bytes())),
};

const LANGUAGE: Language = Language { format: "C", not: '~', declare: "const uint64_t", zero: "(uint64_t)0" };

/// The keywords of C and C++ and the names that every header defines.
const RULE: NameRule = identifier(include_str!("keywords_c.txt"));

/// The header of a circuit or an automaton.
fn write(document: &Document, options: &Options) -> Result<String, FormatError> {
    if let Document::Classifier(classifier) = document {
        return c_classifier::write(classifier, options);
    }
    let circuit = simple(document, LANGUAGE.format)?;
    let name = RULE.repair(options.title(document));
    let code = SourceCode::new(&circuit, &LANGUAGE);
    let (inputs, outputs, operations) = (circuit.inputs(), circuit.outputs().len(), code.operations);
    let guard = format!("{}_H", name.to_uppercase());
    let mut text = format!(
        "/* {name}: {inputs} inputs, {outputs} outputs, {operations} operations; 64 samples per word. Written by Gatework. */\n\
         #ifndef {guard}\n#define {guard}\n\n#include <stddef.h>\n#include <stdint.h>\n\n"
    );
    write_constants(&mut text, &name, document);
    let function =
        if matches!(document, Document::Automaton { .. }) { format!("{name}_rule") } else { name.clone() };
    write_function(&mut text, &function, &code, [inputs, outputs]);
    if let Document::Automaton { automaton, .. } = document {
        write_step(&mut text, &name, &code, automaton.channels, automaton.boundary);
    }
    let _ = writeln!(text, "#endif");
    Ok(text)
}

/// Writes constants for the ports that have names.
fn write_constants(text: &mut String, name: &str, document: &Document) {
    let circuit = document.circuit();
    let prefixed =
        |names: &[String], kind: &str| names.iter().map(|port| format!("{name}_{kind}_{port}")).collect();
    let names = Ports {
        inputs: prefixed(circuit.input_names(), "in"),
        outputs: prefixed(circuit.output_names(), "out"),
    };
    let ports = names.admit(&mut Scope::new(&RULE));
    for names in [ports.inputs, ports.outputs].iter().filter(|names| !names.is_empty()) {
        let list: Vec<String> =
            names.iter().enumerate().map(|(i, name)| format!("    {name} = {i}")).collect();
        // Writing to a string never fails, here and below.
        let _ = writeln!(text, "enum {{\n{}\n}};\n", list.join(",\n"));
    }
}

fn write_function(text: &mut String, name: &str, code: &SourceCode, [inputs, outputs]: [usize; 2]) {
    if let [body] = &code.functions[..] {
        let _ = writeln!(text, "/* Reads {inputs} words, writes {outputs}. */");
        let _ = writeln!(text, "static inline void {name}(const uint64_t *in, uint64_t *out)\n{{");
        write_unused(text, body, false);
        let _ = writeln!(text, "{}}}\n", body.text);
        return;
    }
    // Without this, compilers inline the parts into one long function.
    let apart = format!("{}_APART", name.to_uppercase());
    let _ = writeln!(
        text,
        "#if defined(__GNUC__)\n#define {apart} __attribute__((noinline))\n#elif defined(_MSC_VER)\n\
         #define {apart} __declspec(noinline)\n#else\n#define {apart}\n#endif\n"
    );
    for (i, body) in code.functions.iter().enumerate() {
        let _ = writeln!(
            text,
            "static {apart} void {name}_part{i}(const uint64_t *in, uint64_t *v, uint64_t *out)\n{{"
        );
        write_unused(text, body, true);
        let _ = writeln!(text, "{}}}\n", body.text);
    }
    let _ = writeln!(text, "/* Reads {inputs} words, writes {outputs}. */");
    let _ = writeln!(text, "static inline void {name}(const uint64_t *in, uint64_t *out)\n{{");
    let _ = writeln!(text, "    uint64_t v[{}];", code.values.max(1));
    for i in 0..code.functions.len() {
        let _ = writeln!(text, "    {name}_part{i}(in, v, out);");
    }
    let _ = writeln!(text, "}}\n");
}

/// Marks unused parameters, so that compilers do not warn about them.
fn write_unused(text: &mut String, body: &FunctionBody, has_values: bool) {
    let parameters =
        [("in", body.reads_inputs), ("v", body.uses_values || !has_values), ("out", body.writes_outputs)];
    for (parameter, _) in parameters.iter().filter(|(_, used)| !used) {
        let _ = writeln!(text, "    (void){parameter};");
    }
}

/// The step of an automaton, with `@` for its name.
const STEP: &str = include_str!("step.c.in");

fn write_step(text: &mut String, name: &str, code: &SourceCode, channels: usize, boundary: Boundary) {
    let mut loads = String::new();
    for input in (0..code.used.len()).filter(|&input| code.used[input]) {
        let (channel, place) = (input / NEIGHBOURS, input % NEIGHBOURS);
        let at = |row: &str| format!("now + ({channel} * height + {row}) * words");
        let row = match place / 3 {
            0 => format!("has_above ? {} : NULL", at("above")),
            1 => at("y"),
            _ => format!("has_below ? {} : NULL", at("below")),
        };
        let dx = (place % 3) as i32 - 1;
        let _ = writeln!(loads, "            in[{input}] = @_shifted({row}, w, width, torus, {dx});");
    }
    let step = STEP
        .replace("@LOADS", &loads)
        .replace("@BOUNDARY", boundary_name(boundary))
        .replace("@CHANNELS", &channels.to_string())
        .replace("@INPUTS", &(NEIGHBOURS * channels).to_string())
        .replace('@', name);
    text.push_str(&step);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::{Circuit, Node};
    use crate::gate::Gate;

    #[test]
    fn a_half_adder_in_c() {
        let gates = vec![Node::new(Gate::XOR, 0, 1), Node::new(Gate::AND, 0, 1)];
        let circuit = Circuit::new(2, gates, vec![2, 3]).unwrap();
        let names = ["a b", "int"].map(String::from).to_vec();
        let named = circuit.with_names(names, vec![]).unwrap();
        let options = Options { name: Some("half adder".into()), grid: None, ..Options::default() };
        let text = write(&named.into(), &options).unwrap();
        assert!(text.contains("    half_adder_in_a_b = 0,\n    half_adder_in_int = 1\n"), "{text}");
        assert!(
            text.contains("    const uint64_t n2 = x0 ^ x1;\n    const uint64_t n3 = x0 & x1;\n"),
            "{text}"
        );
        assert!(text.contains("#ifndef HALF_ADDER_H\n"), "{text}");
    }
}
