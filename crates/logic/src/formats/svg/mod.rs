//! SVG: a schematic of a small circuit with the distinctive-shape gate symbols.
//!
//! | file | contents |
//! |---|---|
//! | `layout` | the layered layout: columns, the order in them, and the routes of lines |
//! | `symbol` | the symbols of gates |
//!
//! Inputs are on the left, outputs on the right; a circle on a gate is an inverter. Unused inputs are omitted. The drawing
//! has light and dark colours and no dependencies. Every input, gate and output is a group with `data-id`, and every line has
//! `data-from` and `data-to`, so a page can follow the lines. Gates are in topological order and have `data-gate`, their index,
//! and `data-operands`, so a page can compute values.

mod layout;
mod symbol;

use super::names;
use super::{Document, Format, FormatError, Options, used_inputs};
use crate::circuit::Circuit;
use layout::{Item, Layout, Line};
use std::fmt::Write;

/// The entry of SVG in [`FORMATS`](super::FORMATS).
pub static FORMAT: Format = Format {
    name: "svg",
    endings: &["svg"],
    about: "a schematic of a small circuit",
    text: true,
    grid: false,
    reader: None,
    writer: Some(|document, options| Ok(write(document, options)?.into_bytes())),
};

/// The most gates and the most ports that are drawn.
const MAX_GATES: usize = 400;
const MAX_PORTS: usize = 400;
/// The most characters of a name.
const MAX_NAME: usize = 18;

/// Pixels between columns and rows, and around the drawing.
const COLUMN: f64 = 112.0;
const ROW: f64 = 26.0;
const MARGIN: f64 = 28.0;
const HEAD: f64 = 64.0;
/// The width of the names at both ends.
const NAMES: f64 = 96.0;

fn write(document: &Document, options: &Options) -> Result<String, FormatError> {
    let circuit = document.circuit().simplify();
    let (gates, outputs) = (circuit.nodes().len(), circuit.outputs().len());
    let inputs = used_inputs(&circuit);
    let too_large = |message: String| Err(FormatError::TooLarge { format: "SVG", message });
    if gates > MAX_GATES {
        return too_large(format!(
            "{gates} gates, but at most {MAX_GATES} are drawn; minimise it, or if it is minimal, write DOT, BLIF or Verilog"
        ));
    }
    if outputs.max(inputs.len()) > MAX_PORTS {
        return too_large(format!(
            "{} inputs and {outputs} outputs, but at most {MAX_PORTS} are drawn",
            inputs.len()
        ));
    }
    let layout = Layout::new(&circuit);
    let title = options.title(document);
    let facts = [(gates, "gate"), (circuit.inputs(), "input"), (outputs, "output")].map(|(count, what)| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {what}{plural}")
    });
    let facts = format!("{}, depth {}", facts.join(", "), circuit.depth());
    Ok(draw(&circuit, &layout, &names::ports(document), title, &facts))
}

/// The coordinate of a column.
fn x(column: usize) -> f64 {
    MARGIN + NAMES + COLUMN * column as f64
}

/// The coordinate of a row.
fn y(row: f64) -> f64 {
    HEAD + ROW * (row + 0.5)
}

fn draw(circuit: &Circuit, layout: &Layout, ports: &names::Ports, title: &str, facts: &str) -> String {
    let width = (x(layout.columns.saturating_sub(1)) + NAMES + MARGIN).max(360.0);
    let height = y(layout.rows) + MARGIN;
    let style = include_str!("schematic.css").replace('\n', "");
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\">\n<style>{style}</style>\n\
         <rect class=\"background\" width=\"100%\" height=\"100%\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"30\">{}</text>\n\
         <text class=\"muted\" x=\"{MARGIN}\" y=\"48\">{}</text>\n",
        escape(&shorten(title, 60)),
        escape(facts)
    );
    for line in &layout.lines {
        draw_line(&mut text, line, circuit);
    }
    for placed in &layout.items {
        let (x, y) = (x(placed.column), y(placed.row));
        let Some(id) = id(placed.item) else { continue };
        let _ = write!(text, "<g data-id=\"{id}\"{}>", operation(placed.item, circuit));
        match placed.item {
            Item::Input(input) => draw_port(&mut text, "in", x, y, &ports.inputs[input as usize]),
            Item::Output(output) => draw_port(&mut text, "out", x, y, &ports.outputs[output]),
            Item::Gate(signal) => {
                if let Some(node) = circuit.node(signal) {
                    let gate = if layout.swapped.contains(&signal) { node.gate.swap() } else { node.gate };
                    symbol::draw(&mut text, gate, x, y);
                }
            }
            Item::Bend => {}
        }
        text.push_str("</g>\n");
    }
    text.push_str("</svg>\n");
    text
}

/// The name of an input, a gate or an output within a drawing.
fn id(item: Item) -> Option<String> {
    match item {
        Item::Input(input) => Some(format!("i{input}")),
        Item::Gate(signal) => Some(format!("g{signal}")),
        Item::Output(output) => Some(format!("o{output}")),
        Item::Bend => None,
    }
}

/// The attributes that say what a gate computes.
fn operation(item: Item, circuit: &Circuit) -> String {
    let Item::Gate(signal) = item else { return String::new() };
    let Some(node) = circuit.node(signal) else { return String::new() };
    let operands = [node.a, node.b].map(|operand| signal_id(operand, circuit)).join(" ");
    format!(" data-gate=\"{}\" data-operands=\"{operands}\"", node.gate.index())
}

/// The name of the input or gate that computes a signal.
fn signal_id(signal: u32, circuit: &Circuit) -> String {
    let letter = if (signal as usize) < circuit.inputs() { 'i' } else { 'g' };
    format!("{letter}{signal}")
}

/// Draws a port: a dot and its name.
fn draw_port(text: &mut String, class: &str, x: f64, y: f64, name: &str) {
    let (at, anchor) = if class == "in" { (x - 10.0, " class=\"end\"") } else { (x + 10.0, "") };
    // Writing to a string never fails, here and below.
    let _ = writeln!(
        text,
        "<circle class=\"{class}-fill\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>\
         <text{anchor} x=\"{at:.1}\" y=\"{:.1}\">{}</text>",
        y + 4.0,
        escape(&shorten(name, MAX_NAME))
    );
}

/// Draws a line from a signal to an operand: straight in columns, curved between them.
fn draw_line(text: &mut String, line: &Line, circuit: &Circuit) {
    let class = match line.points.first().map(|point| point.column) {
        Some(0) => " in",
        _ => "",
    };
    let reach = symbol::WIDTH / 2.0;
    let mut path = String::new();
    for (i, pair) in line.points.windows(2).enumerate() {
        let (from, to) = (&pair[0], &pair[1]);
        let is_last = i + 2 == line.points.len();
        let begin =
            x(from.column) + if i == 0 && from.column > 0 { symbol::tail(line.gate(circuit)) } else { 0.0 };
        // Lines end under the symbol, because the back of an OR is curved.
        let end = x(to.column) - if is_last && line.pin.is_some() { reach - 6.0 } else { 0.0 };
        let (y0, y1) = (y(from.row), y(to.row) + if is_last { line.pin.unwrap_or(0.0) } else { 0.0 });
        // Lines pass bends straight, so that the lines of one column do not cross there.
        let (left, right) =
            (if i == 0 { begin } else { begin + reach }, if is_last { end } else { end - reach });
        let middle = f64::midpoint(left, right);
        if i == 0 {
            let _ = write!(path, "M{begin:.1} {y0:.1}");
        }
        let _ = write!(
            path,
            "L{left:.1} {y0:.1}C{middle:.1} {y0:.1} {middle:.1} {y1:.1} {right:.1} {y1:.1}L{end:.1} {y1:.1}"
        );
    }
    let _ = writeln!(
        text,
        "<path class=\"wire{class}\" data-from=\"{}\" data-to=\"{}\" d=\"{path}\"/>",
        signal_id(line.signal, circuit),
        id(line.end).unwrap_or_default()
    );
}

/// Escapes markup and replaces control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            // XML does not allow other control characters and noncharacters.
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Truncates a text to at most `most` characters.
fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most - 1).chain(['\u{2026}']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::automaton::Boundary;
    use crate::circuit::Node;
    use crate::gate::Gate;
    use crate::rules;
    use proptest::prelude::*;

    #[test]
    fn life_has_a_symbol_for_every_gate() {
        let text = write(&rules::life(Boundary::Torus).into(), &Options::default()).unwrap();
        let gates = rules::life(Boundary::Torus).circuit.simplify().nodes().len();
        assert_eq!(text.matches("<title>").count(), gates);
        assert_eq!(text.matches("-fill\" cx").count(), 10);
    }

    /// Following the lines back from an output, as a page does, reaches what the output depends on.
    #[test]
    fn lines_name_both_ends() {
        let nodes = vec![Node::new(Gate::XOR, 0, 1), Node::new(Gate::AND, 2, 3)];
        let circuit = Circuit::new(3, nodes, vec![4, 3]).unwrap();
        let text = write(&circuit.into(), &Options::default()).unwrap();
        for (from, to) in [("i0", "g3"), ("i1", "g3"), ("i2", "g4"), ("g3", "g4"), ("g4", "o0"), ("g3", "o1")]
        {
            assert!(text.contains(&format!("data-from=\"{from}\" data-to=\"{to}\"")), "{from} {to}: {text}");
        }
        let ids: Vec<&str> =
            text.split("<g data-id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(ids.len(), 7, "{ids:?}");
        assert_eq!(text.matches("</g>").count(), 7);
    }

    /// Values that a page computes from the attributes, in the order of the drawing, are those of the circuit.
    fn outputs_of(text: &str, inputs: &[bool]) -> Vec<bool> {
        let attribute = |text: &str, name: &str| -> Option<String> {
            Some(text.split_once(&format!(" {name}=\""))?.1.split_once('"')?.0.to_string())
        };
        let mut values = std::collections::HashMap::new();
        for (input, &value) in inputs.iter().enumerate() {
            values.insert(format!("i{input}"), value);
        }
        for group in text.split("<g").skip(1).map(|rest| rest.split_once('>').unwrap().0) {
            let Some(gate) = attribute(group, "data-gate") else { continue };
            let operands = attribute(group, "data-operands").unwrap();
            let (a, b) = operands.split_once(' ').unwrap();
            let gate = Gate::from_index(gate.parse().unwrap()).unwrap();
            values.insert(attribute(group, "data-id").unwrap(), gate.eval(values[a], values[b]));
        }
        let lines = text.split("<path class=\"wire").skip(1).map(|rest| rest.split_once("/>").unwrap().0);
        let mut outputs: Vec<(usize, bool)> = lines
            .filter_map(|line| {
                let output = attribute(line, "data-to")?.strip_prefix('o')?.parse().ok()?;
                Some((output, values[&attribute(line, "data-from")?]))
            })
            .collect();
        outputs.sort_unstable();
        outputs.into_iter().map(|(_, value)| value).collect()
    }

    #[test]
    fn names_cannot_break_the_markup() {
        let circuit = Circuit::new(1, vec![], vec![0]).unwrap();
        let named = circuit.with_names(vec!["<b>&\"\u{1}".into()], vec![]).unwrap();
        let options = Options { name: Some("</svg>".into()), grid: None, ..Options::default() };
        let text = write(&named.into(), &options).unwrap();
        assert!(text.contains("&lt;b&gt;&amp;&quot; </text>") && text.contains("&lt;/svg&gt;"), "{text}");
    }

    #[test]
    fn large_circuits_are_errors() {
        let nodes = (0..401).map(|i| Node::new(Gate::XOR, i, i + 1)).collect();
        let circuit = Circuit::new(2, nodes, vec![402]).unwrap();
        let error = write(&circuit.into(), &Options::default()).unwrap_err().to_string();
        assert_eq!(
            error,
            "the circuit is too large for SVG: 401 gates, but at most 400 are drawn; minimise it, or if it is minimal, \
             write DOT, BLIF or Verilog"
        );
    }

    proptest! {
        #[test]
        fn every_circuit_can_be_drawn(circuit in arbitrary::circuit(0..=12, 60)) {
            let outputs = circuit.outputs().len();
            let text = write(&circuit.into(), &Options::default()).unwrap();
            prop_assert_eq!(text.matches("out-fill\" cx").count(), outputs);
            prop_assert!(!text.contains("NaN") && !text.contains("inf"));
        }

        #[test]
        fn a_page_can_compute_the_values((circuit, sample) in (arbitrary::circuit(1..=12, 60), any::<u32>())) {
            let inputs: Vec<bool> = (0..circuit.inputs()).map(|input| sample >> input & 1 == 1).collect();
            let expected = circuit.eval(&inputs).unwrap();
            let text = write(&circuit.into(), &Options::default()).unwrap();
            prop_assert_eq!(outputs_of(&text, &inputs), expected);
        }
    }
}
