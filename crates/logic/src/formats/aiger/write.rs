//! Writer of AIGER files, ASCII and binary.

use super::RULE;
use super::aig::Aig;
use crate::formats::FormatError;
use crate::formats::names::{Ports, Scope};
use crate::formats::sequential::Sequential;
use crate::literal::Literal;
use std::io::Write;

/// The number of outputs of each kind, if the outputs of a sequential circuit are properties for model checkers (AIGER
/// 1.9): first the bad states, then the constraints, then the conditions of one justice property.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Properties {
    /// Outputs that must not be 1 in a reachable state.
    pub bad: usize,
    /// Outputs that are 1 in every state of the runs that count.
    pub constraints: usize,
    /// Outputs that are 1 infinitely often in a run that is searched for.
    pub justice: usize,
}

/// Writes a sequential circuit in the ASCII format.
pub fn write_ascii(sequential: &Sequential) -> Result<Vec<u8>, FormatError> {
    let (aig, plain) = (Aig::new(sequential)?, Properties::default());
    let mut bytes = header("aag", sequential, &aig, plain);
    // Writing to a vector never fails, here and below.
    for input in 1..=sequential.inputs() {
        let _ = writeln!(bytes, "{}", 2 * input);
    }
    write_latches_and_outputs(&mut bytes, sequential, &aig, plain, true);
    for (i, [a, b]) in aig.ands.iter().enumerate() {
        let _ = writeln!(bytes, "{} {} {}", 2 * (aig.inputs + 1 + i), a.0, b.0);
    }
    write_symbols(&mut bytes, sequential, plain);
    Ok(bytes)
}

/// Writes a sequential circuit in the binary format.
pub fn write_binary(sequential: &Sequential) -> Result<Vec<u8>, FormatError> {
    write_properties(sequential, Properties::default())
}

/// Writes a sequential circuit whose last outputs are properties, in the binary format.
pub fn write_properties(sequential: &Sequential, properties: Properties) -> Result<Vec<u8>, FormatError> {
    let aig = Aig::new(sequential)?;
    let mut bytes = header("aig", sequential, &aig, properties);
    write_latches_and_outputs(&mut bytes, sequential, &aig, properties, false);
    for (i, [a, b]) in aig.ands.iter().enumerate() {
        let literal = 2 * (aig.inputs + 1 + i) as u32;
        write_difference(&mut bytes, literal - a.0);
        write_difference(&mut bytes, a.0 - b.0);
    }
    write_symbols(&mut bytes, sequential, properties);
    Ok(bytes)
}

impl Properties {
    /// The number of outputs that are not properties.
    fn plain_outputs(self, sequential: &Sequential) -> usize {
        sequential.outputs().saturating_sub(self.bad + self.constraints + self.justice)
    }
}

fn header(magic: &str, sequential: &Sequential, aig: &Aig, properties: Properties) -> Vec<u8> {
    let (inputs, latches) = (sequential.inputs(), sequential.latches.len());
    let (outputs, ands) = (properties.plain_outputs(sequential), aig.ands.len());
    let mut text = format!("{magic} {} {inputs} {latches} {outputs} {ands}", aig.inputs + ands);
    let Properties { bad, constraints, justice } = properties;
    if properties != Properties::default() {
        let _ = std::fmt::Write::write_fmt(&mut text, format_args!(" {bad} {constraints}"));
    }
    if justice > 0 {
        text.push_str(" 1");
    }
    text.push('\n');
    text.into_bytes()
}

fn write_latches_and_outputs(
    bytes: &mut Vec<u8>,
    sequential: &Sequential,
    aig: &Aig,
    properties: Properties,
    ascii: bool,
) {
    let (outputs, next) = aig.outputs.split_at(sequential.outputs());
    for (i, (Literal(next), start)) in next.iter().zip(&sequential.latches).enumerate() {
        let literal = 2 * (sequential.inputs() + 1 + i);
        if ascii {
            let _ = write!(bytes, "{literal} ");
        }
        // 0 is the default; an undefined initial value is the literal of the latch itself.
        let _ = match start {
            Some(false) => writeln!(bytes, "{next}"),
            Some(true) => writeln!(bytes, "{next} 1"),
            None => writeln!(bytes, "{next} {literal}"),
        };
    }
    let (outputs, justice) = outputs.split_at(outputs.len().saturating_sub(properties.justice));
    for Literal(output) in outputs {
        let _ = writeln!(bytes, "{output}");
    }
    if !justice.is_empty() {
        let _ = writeln!(bytes, "{}", justice.len());
    }
    for Literal(output) in justice {
        let _ = writeln!(bytes, "{output}");
    }
}

/// Writes a number with seven bits per byte, the lowest first; the high bit is set in all bytes but the last.
fn write_difference(bytes: &mut Vec<u8>, mut difference: u32) {
    while difference >= 0x80 {
        bytes.push(difference as u8 | 0x80);
        difference >>= 7;
    }
    bytes.push(difference as u8);
}

fn write_symbols(bytes: &mut Vec<u8>, sequential: &Sequential, properties: Properties) {
    let circuit = &sequential.circuit;
    let names = Ports::new(circuit, sequential.outputs());
    let ports = names.admit_linked(&mut Scope::new(&RULE), circuit.outputs());
    let (inputs, latches) = ports.inputs.split_at(sequential.inputs());
    let (outputs, asked) = ports.outputs.split_at(properties.plain_outputs(sequential));
    let (bad, asked) = asked.split_at(properties.bad);
    let (constraints, justice) = asked.split_at(properties.constraints);
    // A justice property has one name for all its conditions.
    let justice = &justice[..justice.len().min(1)];
    let kinds =
        [('i', inputs), ('l', latches), ('o', outputs), ('b', bad), ('c', constraints), ('j', justice)];
    for (kind, names) in kinds {
        for (i, name) in names.iter().enumerate() {
            let _ = writeln!(bytes, "{kind}{i} {name}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::circuit::{Circuit, Node};
    use crate::gate::Gate;

    fn nand() -> Sequential {
        Circuit::new(2, vec![Node::new(Gate::NAND, 0, 1)], vec![2]).unwrap().into()
    }

    #[test]
    fn a_nand_in_ascii() {
        let text = String::from_utf8(write_ascii(&nand()).unwrap()).unwrap();
        assert_eq!(text, "aag 3 2 0 1 1\n2\n4\n7\n6 4 2\ni0 x0\ni1 x1\no0 y0\n");
    }

    #[test]
    fn a_nand_in_binary() {
        assert_eq!(write_binary(&nand()).unwrap(), b"aig 3 2 0 1 1\n7\n\x02\x02i0 x0\ni1 x1\no0 y0\n");
    }

    #[test]
    fn a_toggle_has_a_latch() {
        let circuit = Circuit::new(1, vec![Node::new(Gate::NOT_A, 0, 0)], vec![0, 1]).unwrap();
        let toggle = |start| Sequential { circuit: circuit.clone(), latches: vec![start] };
        let text = |start| String::from_utf8(write_ascii(&toggle(start)).unwrap()).unwrap();
        assert_eq!(text(Some(false)), "aag 1 0 1 1 0\n2 3\n2\nl0 x0\no0 y0\n");
        assert_eq!(text(Some(true)), "aag 1 0 1 1 0\n2 3 1\n2\nl0 x0\no0 y0\n");
        assert_eq!(text(None), "aag 1 0 1 1 0\n2 3 2\n2\nl0 x0\no0 y0\n");
    }

    #[test]
    fn outputs_can_be_bad_states_constraints_and_a_justice_property() {
        let circuit = Circuit::new(2, vec![Node::new(Gate::AND, 0, 1)], vec![1, 2, 0, 1, 0]).unwrap();
        let sequential = Sequential { circuit, latches: vec![Some(false)] };
        let written = |properties| write_properties(&sequential, properties).unwrap();
        let safety = written(Properties { bad: 1, constraints: 2, justice: 0 });
        assert_eq!(
            safety,
            b"aig 3 1 1 1 1 1 2\n2\n4\n6\n2\n4\n\x02\x02i0 x0\nl0 x1\no0 y0\nb0 y1\nc0 y2\nc1 y3\n"
        );
        let liveness = written(Properties { bad: 0, constraints: 1, justice: 1 });
        assert_eq!(
            liveness,
            b"aig 3 1 1 2 1 0 1 1\n2\n4\n6\n2\n1\n4\n\x02\x02i0 x0\nl0 x1\no0 y0\no1 y1\nc0 y2\nj0 y3\n"
        );
    }

    #[test]
    fn differences_take_seven_bits_per_byte() {
        let mut bytes = Vec::new();
        for difference in [0, 127, 128, 300] {
            write_difference(&mut bytes, difference);
        }
        assert_eq!(bytes, [0, 127, 128, 1, 0xac, 2]);
    }
}
