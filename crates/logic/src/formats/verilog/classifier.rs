//! A classifier in Verilog: comparators, gates, adders and arg-max, combinational or pipelined.
//!
//! An image is one port: pixel `i` is `pixels[8 * i +: 8]`. A table has one port per feature: a number is in 16-bit
//! fixed point, a category is its index, and a feature that may be missing has a second port `NAME_missing`. The fixed
//! point format of a feature is in a comment at its port: the value is the integer divided by `2^f`. It has as many
//! fractional bits as its thresholds permit; larger values must be saturated, which does not change the class.
//!
//! With a pipeline of N registers there is a port `clk`, and the class of an input is at the output after N rising edges; a
//! new input may be given in every cycle. The registers divide the longest path evenly.

use super::{RULE, formula, testbench};
use crate::circuit::Circuit;
use crate::classifier::{Classifier, Feature, FeatureKind, MAX_PIXEL, Rows, label_bits};
use crate::formats::names::Scope;
use crate::formats::test_vectors::pseudorandom_words;
use crate::formats::{FormatError, Options};
use std::fmt::Write;

/// The bits of a number in fixed point.
const WIDTH: u32 = 16;
/// The limits of the exponent of the fixed point format: for the largest number, and the distance of the smallest ones.
const FRACTIONS: std::ops::RangeInclusive<i32> = -114..=149;
/// The exponent if no threshold bounds it.
const DEFAULT_FRACTION: i32 = 16;
/// The depth of a comparator, in gates, for the distribution of registers.
const COMPARATOR_DEPTH: usize = 4;
/// The most registers of a pipeline.
pub(crate) const MAX_PIPELINE: usize = 256;
/// The number of pseudorandom samples of the testbench, if no samples are given.
const SAMPLES: usize = 64;

/// A feature as ports.
struct Port {
    name: String,
    missing: Option<String>,
    kind: PortKind,
}

enum PortKind {
    /// A pixel: a byte of the port `pixels`.
    Pixel,
    /// A number in fixed point with this many fractional bits.
    Number(i32),
    /// The index of a category, in so many bits. The largest number stands for no category.
    Category(usize),
}

impl Port {
    /// The width of the value.
    fn width(&self) -> usize {
        match self.kind {
            PortKind::Pixel => 8,
            PortKind::Number(_) => WIDTH as usize,
            PortKind::Category(bits) => bits,
        }
    }

    /// The integer of a value at the port, and the value that it stands for.
    fn quantize(&self, value: f32) -> (u32, f32) {
        match self.kind {
            PortKind::Pixel => {
                let pixel = (value.round() as u32).min(MAX_PIXEL);
                (pixel, pixel as f32)
            }
            PortKind::Number(fraction) => {
                let scale = 2f64.powi(fraction);
                let (low, high) = (f64::from(i16::MIN), f64::from(i16::MAX));
                // A missing value is below every threshold.
                let scaled = (f64::from(value) * scale).floor().clamp(low, high);
                let number = if value.is_nan() { i16::MIN } else { scaled as i16 };
                let meant = if value.is_nan() { value } else { (f64::from(number) / scale) as f32 };
                (u32::from(number as u16), meant)
            }
            PortKind::Category(bits) => {
                let none = (1u32 << bits) - 1;
                let index =
                    if value >= 0.0 && value.fract() == 0.0 { (value as u32).min(none) } else { none };
                (index, if value.is_nan() { value } else { index as f32 })
            }
        }
    }
}

/// The largest number of fractional bits with which all thresholds are in range.
fn fraction(thresholds: &[f32]) -> i32 {
    if thresholds.iter().all(|&threshold| threshold == 0.0) {
        return DEFAULT_FRACTION;
    }
    let fits = |fraction: i32| {
        let scaled = |threshold: f32| (f64::from(threshold) * 2f64.powi(fraction)).floor();
        let range = f64::from(i16::MIN)..f64::from(i16::MAX);
        thresholds.iter().all(|&threshold| range.contains(&scaled(threshold)))
    };
    FRACTIONS.rev().find(|&fraction| fits(fraction)).unwrap_or(*FRACTIONS.start())
}

/// Writes the module of a classifier and its testbench.
pub(super) fn write(
    text: &mut String,
    name: &str,
    classifier: &Classifier,
    options: &Options,
) -> Result<(), FormatError> {
    if options.pipeline > MAX_PIPELINE {
        return Err(FormatError::Pipeline(options.pipeline));
    }
    let circuit = classifier.label_circuit();
    let mut scope = Scope::new(&RULE);
    // The names of the ports of the module itself come first, so they are not changed.
    scope.admit(["clk", "pixels", "label"]);
    let is_image = classifier.encoder().shape().is_some();
    let ports = ports(classifier, &mut scope);
    let prefixes = Prefixes { bit: scope.prefix('b'), gate: scope.prefix('n') };
    let _ = writeln!(text, "// Classes: {}", class_list(classifier));
    let _ = writeln!(text, "module {name} (");
    if options.pipeline > 0 {
        text.push_str("    input wire clk,\n");
    }
    if is_image {
        let _ = writeln!(text, "    input wire [{}:0] pixels,", 8 * ports.len() - 1);
    } else {
        write_ports(text, &ports, classifier.encoder().features());
    }
    let bits = label_bits(classifier.head().classes().len());
    let _ = writeln!(text, "    output wire [{}:0] label\n);", bits - 1);
    write_encoder(text, classifier, &ports, &circuit, &prefixes);
    write_gates(text, &circuit, &prefixes, options.pipeline);
    text.push_str("endmodule\n\n");
    write_testbench(text, name, classifier, &ports, options)
}

/// The names of the classes, without characters that could end a comment.
fn class_list(classifier: &Classifier) -> String {
    let name = |(i, class): (usize, &crate::classifier::Class)| format!("{i} {:?}", class.name);
    let classes = classifier.head().classes();
    let list: Vec<String> = classes.iter().take(100).enumerate().map(name).collect();
    list.join(", ") + if classes.len() > 100 { ", ..." } else { "" }
}

struct Prefixes {
    bit: String,
    gate: String,
}

fn ports(classifier: &Classifier, scope: &mut Scope) -> Vec<Port> {
    let features = classifier.encoder().features();
    if classifier.encoder().shape().is_some() {
        let name = |i: usize| format!("pixels[{}:{}]", 8 * i + 7, 8 * i);
        let port = |i: usize| Port { name: name(i), missing: None, kind: PortKind::Pixel };
        return (0..features.len()).map(port).collect();
    }
    let wanted: Vec<String> = features
        .iter()
        .flat_map(|feature| {
            let missing = feature.missing.then(|| format!("{}_missing", feature.name));
            [Some(feature.name.clone()), missing].into_iter().flatten()
        })
        .collect();
    // All at once: a legal name never changes because of one that is not.
    let mut names = scope.admit(wanted.iter().map(String::as_str)).into_iter();
    let port = |feature: &Feature| {
        let name = names.next().unwrap_or_default();
        let missing = if feature.missing { names.next() } else { None };
        let kind = match &feature.kind {
            FeatureKind::Numeric(thresholds) => PortKind::Number(fraction(thresholds)),
            // One more number than categories: no category.
            FeatureKind::Categorical(names) => PortKind::Category(label_bits(names.len() + 1)),
        };
        Port { name, missing, kind }
    };
    features.iter().map(port).collect()
}

fn write_ports(text: &mut String, ports: &[Port], features: &[Feature]) {
    for (port, feature) in ports.iter().zip(features) {
        let (name, top) = (&port.name, port.width() - 1);
        // Writing to a string never fails, here and below.
        let _ = match port.kind {
            PortKind::Number(fraction) => writeln!(
                text,
                "    input wire signed [{top}:0] {name}, // {:?} * 2^{fraction}, rounded down and saturated",
                feature.name
            ),
            _ => writeln!(text, "    input wire [{top}:0] {name}, // the category of {:?}", feature.name),
        };
        if let Some(missing) = &port.missing {
            let _ = writeln!(text, "    input wire {missing},");
        }
    }
}

/// Writes the comparators of the bits that the circuit reads.
fn write_encoder(
    text: &mut String,
    classifier: &Classifier,
    ports: &[Port],
    circuit: &Circuit,
    prefixes: &Prefixes,
) {
    let used = crate::formats::used_inputs(circuit);
    let mut used = used.into_iter().peekable();
    let encoder = classifier.encoder();
    for ((feature, range), port) in encoder.features().iter().zip(encoder.ranges()).zip(ports) {
        while let Some(bit) = used.next_if(|&bit| range.contains(&(bit as usize))) {
            let test = test(feature, port, bit as usize - range.start);
            let _ = writeln!(text, "    wire {}{bit} = {test};", prefixes.bit);
        }
    }
}

/// The condition of a bit of a feature.
fn test(feature: &Feature, port: &Port, bit: usize) -> String {
    let present = |test: String| match &port.missing {
        Some(missing) => format!("~{missing} & ({test})"),
        None => test,
    };
    let name = &port.name;
    match (&feature.kind, &port.kind) {
        (FeatureKind::Numeric(thresholds), PortKind::Number(fraction)) if bit < thresholds.len() => {
            let threshold = (f64::from(thresholds[bit]) * 2f64.powi(*fraction)).floor();
            // Every format has room for the thresholds.
            let threshold = threshold as i32;
            let sign = if threshold < 0 { "-" } else { "" };
            // -32768 has no positive counterpart in 16 bits.
            present(format!("{name} > {sign}{}'sd{}", WIDTH + 1, threshold.abs()))
        }
        (FeatureKind::Numeric(thresholds), _) if bit < thresholds.len() => {
            let threshold = thresholds[bit].floor();
            if threshold < 0.0 {
                "1'b1".into()
            } else if threshold >= MAX_PIXEL as f32 {
                "1'b0".into()
            } else {
                format!("{name} > 8'd{}", threshold as u32)
            }
        }
        (FeatureKind::Categorical(names), _) if bit < names.len() => {
            present(format!("{name} == {}'d{bit}", port.width()))
        }
        _ => port.missing.clone().unwrap_or_else(|| "1'b0".into()),
    }
}

/// Writes the gates, and the registers of a pipeline.
fn write_gates(text: &mut String, circuit: &Circuit, prefixes: &Prefixes, pipeline: usize) {
    let stages = Stages::new(circuit, pipeline);
    let plain = |signal: u32| {
        let prefix = if (signal as usize) < circuit.inputs() { &prefixes.bit } else { &prefixes.gate };
        format!("{prefix}{signal}")
    };
    let operand = |signal: u32, stage: usize| match stage - stages.stage[signal as usize] {
        0 => plain(signal),
        delay => format!("{}_d{delay}", plain(signal)),
    };
    let mut registers = String::new();
    for (signal, &delay) in stages.delay.iter().enumerate().filter(|(_, delay)| **delay > 0) {
        let name = plain(signal as u32);
        let list: Vec<String> = (1..=delay).map(|i| format!("{name}_d{i}")).collect();
        let _ = writeln!(text, "    reg {};", list.join(", "));
        for i in 1..=delay {
            let before = if i == 1 { name.clone() } else { format!("{name}_d{}", i - 1) };
            let _ = writeln!(registers, "        {name}_d{i} <= {before};");
        }
    }
    for (i, node) in circuit.nodes().iter().enumerate() {
        let signal = circuit.inputs() + i;
        let stage = stages.stage[signal];
        let names = if node.gate.is_constant() {
            [String::new(), String::new()]
        } else {
            [node.a, node.b].map(|signal| operand(signal, stage.max(stages.stage[signal as usize])))
        };
        let _ = writeln!(
            text,
            "    wire {}{signal} = {};",
            prefixes.gate,
            formula(node.gate, &names[0], &names[1])
        );
    }
    let outputs: Vec<String> =
        circuit.outputs().iter().rev().map(|&signal| operand(signal, pipeline)).collect();
    let _ = writeln!(text, "    assign label = {{{}}};", outputs.join(", "));
    if !registers.is_empty() {
        let _ = writeln!(text, "    always @(posedge clk) begin\n{registers}    end");
    }
}

/// The stages of a pipeline: a signal of stage s is read in a later stage t through t - s registers.
struct Stages {
    stage: Vec<usize>,
    /// The number of registers of each signal.
    delay: Vec<usize>,
}

impl Stages {
    /// Divides the longest path into `pipeline` segments of equal length, each with a register at its end.
    fn new(circuit: &Circuit, pipeline: usize) -> Stages {
        let inputs = circuit.inputs();
        let mut level = vec![COMPARATOR_DEPTH; circuit.signals()];
        for (i, node) in circuit.nodes().iter().enumerate() {
            let before = node.dependencies().map(|signal| level[signal as usize]).max();
            level[inputs + i] = before.map_or(1, |before| before + 1);
        }
        let depth = circuit.outputs().iter().map(|&signal| level[signal as usize]).max().unwrap_or(1).max(1);
        let stage: Vec<usize> = level
            .iter()
            .map(|level| ((level - 1) * pipeline / depth).min(pipeline.saturating_sub(1)))
            .collect();
        let mut delay = vec![0; circuit.signals()];
        for (i, node) in circuit.nodes().iter().enumerate() {
            for signal in node.dependencies().map(|signal| signal as usize) {
                delay[signal] = delay[signal].max(stage[inputs + i].saturating_sub(stage[signal]));
            }
        }
        for &signal in circuit.outputs() {
            let signal = signal as usize;
            delay[signal] = delay[signal].max(pipeline - stage[signal].min(pipeline));
        }
        Stages { stage, delay }
    }
}

/// The rows of the testbench: the given samples, or pseudorandom values near the thresholds.
fn rows(classifier: &Classifier, samples: &[f32]) -> Vec<Vec<f32>> {
    let features = classifier.encoder().features();
    if samples.len() >= features.len() {
        return samples.chunks_exact(features.len()).map(<[f32]>::to_vec).collect();
    }
    let mut numbers = pseudorandom_words();
    let mut value = |feature: &Feature| {
        let number = numbers.next().unwrap_or_default() >> 16;
        match &feature.kind {
            _ if feature.missing && number.is_multiple_of(8) => f32::NAN,
            FeatureKind::Numeric(_) if classifier.encoder().shape().is_some() => (number >> 8 & 255) as f32,
            FeatureKind::Numeric(thresholds) => {
                match thresholds.get(number as usize % (thresholds.len() + 1)) {
                    Some(threshold) => threshold + ((number >> 8) % 3) as f32 - 1.0,
                    None => (number >> 8 & 255) as f32 - 128.0,
                }
            }
            FeatureKind::Categorical(names) => ((number >> 8) as usize % (names.len() + 1)) as f32,
        }
    };
    (0..SAMPLES).map(|_| features.iter().map(&mut value).collect()).collect()
}

fn write_testbench(
    text: &mut String,
    name: &str,
    classifier: &Classifier,
    ports: &[Port],
    options: &Options,
) -> Result<(), FormatError> {
    let is_image = classifier.encoder().shape().is_some();
    let mut connections = Vec::new();
    let mut width = 0;
    for port in ports {
        if !is_image {
            connections.push(format!("        .{}(given[{}:{width}])", port.name, width + port.width() - 1));
        }
        width += port.width();
        if let Some(missing) = &port.missing {
            connections.push(format!("        .{missing}(given[{width}])"));
            width += 1;
        }
    }
    if is_image {
        connections.push("        .pixels(given)".into());
    }
    if options.pipeline > 0 {
        connections.push("        .clk(clk)".into());
    }
    connections.push("        .label(computed)".into());
    let label_bits = label_bits(classifier.head().classes().len());
    let mut checks = String::new();
    for row in rows(classifier, &options.samples) {
        let mut bits = Vec::with_capacity(width);
        let mut meant = Vec::with_capacity(row.len());
        for (port, &value) in ports.iter().zip(&row) {
            let (integer, value) = port.quantize(value);
            bits.extend((0..port.width()).map(|bit| integer >> bit & 1 == 1));
            bits.extend(port.missing.as_ref().map(|_| value.is_nan()));
            meant.push(value);
        }
        let label = classifier.predict(Rows::from(&meant))?;
        let _ = writeln!(checks, "        check({}, {label_bits}'d{label});", testbench::constant(&bits));
    }
    let wait = match options.pipeline {
        0 => "#1;".into(),
        registers => format!("repeat ({registers}) @(posedge clk); #1;"),
    };
    let testbench = include_str!("classifier_testbench.v")
        .replace("@@", "\0")
        .replace("@INPUTS", &(width.max(1) - 1).to_string())
        .replace("@LABEL", &(label_bits - 1).to_string())
        .replace("@CONNECTIONS", &connections.join(",\n"))
        .replace("@WAIT", &wait)
        .replace("@NAME", name)
        .replace("@CHECKS", &checks)
        .replace('\0', "@");
    text.push_str(&testbench);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_point_has_as_many_fractional_bits_as_fit() {
        assert_eq!(fraction(&[]), 16);
        assert_eq!(fraction(&[0.0]), 16);
        assert_eq!(fraction(&[0.4]), 16);
        assert_eq!(fraction(&[0.5]), 15);
        // Thresholds of small features are as different as those of large ones.
        assert_eq!(fraction(&[1e-6, 3e-6]), 33);
        assert_eq!(fraction(&[f32::from_bits(1)]), 149);
        assert_eq!(fraction(&[f32::MAX]), -114);
        assert_eq!(fraction(&[f32::MIN]), -113);
        assert_eq!(fraction(&[-1.0, 3.0]), 13);
        assert_eq!(fraction(&[40_000.0]), -1);
        assert_eq!(fraction(&[32_767.0]), -1);
        assert_eq!(fraction(&[-32_768.0, 32_766.5]), 0);
    }

    #[test]
    fn legal_names_are_kept_beside_names_that_are_not() {
        use crate::classifier::Encoder;
        let names = ["a b", "a_b", "label", "x", "x_missing"];
        let feature = |name: &str| Feature { missing: name == "x", ..Feature::numeric(name, vec![0.0]) };
        let encoder = Encoder::new(names.map(feature).to_vec(), None).unwrap();
        let circuit = Circuit::new(encoder.bits(), vec![], vec![0, 1]).unwrap();
        let head = crate::classifier::Head::equal_groups(vec!["n".into(), "y".into()], 2, 1.0).unwrap();
        let mut scope = Scope::new(&RULE);
        scope.admit(["clk", "pixels", "label"]);
        let ports = ports(&Classifier::new(encoder, circuit, head).unwrap(), &mut scope);
        let found: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        assert_eq!(found, ["a_b_2", "a_b", "label_2", "x", "x_missing_2"]);
        assert_eq!(ports[3].missing.as_deref(), Some("x_missing"));
    }

    #[test]
    fn a_value_is_compared_as_the_number_it_is_rounded_to() {
        let port = Port { name: "x".into(), missing: None, kind: PortKind::Number(1) };
        assert_eq!(port.quantize(1.7), (3, 1.5));
        assert_eq!(port.quantize(-0.1), (0xffff, -0.5));
        assert_eq!(port.quantize(1e9), (0x7fff, 16_383.5));
        assert_eq!(port.quantize(f32::NAN).0, 0x8000);
        let category = Port { name: "c".into(), missing: None, kind: PortKind::Category(2) };
        assert_eq!([0.0, 2.0, 9.0, 0.5].map(|value| category.quantize(value).0), [0, 2, 3, 3]);
    }
}
