//! Writer of AIGER files, ASCII and binary.

use super::RULE;
use super::aig::Aig;
use crate::formats::FormatError;
use crate::formats::names::{Ports, Scope};
use crate::formats::sequential::Sequential;
use crate::literal::Literal;
use std::io::Write;

/// Writes a sequential circuit in the ASCII format.
pub fn write_ascii(sequential: &Sequential) -> Result<Vec<u8>, FormatError> {
    let aig = Aig::new(sequential)?;
    let mut bytes = header("aag", sequential, &aig);
    // Writing to a vector never fails, here and below.
    for input in 1..=sequential.inputs() {
        let _ = writeln!(bytes, "{}", 2 * input);
    }
    write_latches_and_outputs(&mut bytes, sequential, &aig, true);
    for (i, [a, b]) in aig.ands.iter().enumerate() {
        let _ = writeln!(bytes, "{} {} {}", 2 * (aig.inputs + 1 + i), a.0, b.0);
    }
    write_symbols(&mut bytes, sequential);
    Ok(bytes)
}

/// Writes a sequential circuit in the binary format.
pub fn write_binary(sequential: &Sequential) -> Result<Vec<u8>, FormatError> {
    let aig = Aig::new(sequential)?;
    let mut bytes = header("aig", sequential, &aig);
    write_latches_and_outputs(&mut bytes, sequential, &aig, false);
    for (i, [a, b]) in aig.ands.iter().enumerate() {
        let literal = 2 * (aig.inputs + 1 + i) as u32;
        write_difference(&mut bytes, literal - a.0);
        write_difference(&mut bytes, a.0 - b.0);
    }
    write_symbols(&mut bytes, sequential);
    Ok(bytes)
}

fn header(magic: &str, sequential: &Sequential, aig: &Aig) -> Vec<u8> {
    let (inputs, latches) = (sequential.inputs(), sequential.latches.len());
    let (outputs, ands) = (sequential.outputs(), aig.ands.len());
    format!("{magic} {} {inputs} {latches} {outputs} {ands}\n", aig.inputs + ands).into_bytes()
}

fn write_latches_and_outputs(bytes: &mut Vec<u8>, sequential: &Sequential, aig: &Aig, ascii: bool) {
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
    for Literal(output) in outputs {
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

fn write_symbols(bytes: &mut Vec<u8>, sequential: &Sequential) {
    let circuit = &sequential.circuit;
    let names = Ports::new(circuit, sequential.outputs());
    let ports = names.admit_linked(&mut Scope::new(&RULE), circuit.outputs());
    let (inputs, latches) = ports.inputs.split_at(sequential.inputs());
    for (kind, names) in [('i', inputs), ('l', latches), ('o', &ports.outputs)] {
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
    fn differences_take_seven_bits_per_byte() {
        let mut bytes = Vec::new();
        for difference in [0, 127, 128, 300] {
            write_difference(&mut bytes, difference);
        }
        assert_eq!(bytes, [0, 127, 128, 1, 0xac, 2]);
    }
}
