//! Testbenches: modules that compare a circuit with test vectors and print `PASS` or `FAIL`.

use crate::automaton::{Automaton, Boundary};
use crate::circuit::Circuit;
use crate::formats::FormatError;
use crate::formats::names::Ports;
use crate::formats::test_vectors::{GridTest, grid_test, vectors};
use std::fmt::Write;

/// Returns bits as a Verilog constant, bit 0 first; one bit if there are none.
pub(super) fn constant(bits: &[bool]) -> String {
    let digit = |bits: &[bool]| bits.iter().rev().fold(0, |digit, &bit| 2 * digit + u32::from(bit));
    let digits: String = bits.chunks(4).rev().filter_map(|bits| char::from_digit(digit(bits), 16)).collect();
    format!("{}'h{}", bits.len().max(1), if bits.is_empty() { "0" } else { &digits })
}

/// Writes the testbench of a circuit.
pub(super) fn write_circuit(
    text: &mut String,
    name: &str,
    circuit: &Circuit,
    ports: &Ports,
) -> Result<(), FormatError> {
    let connect = |ports: &[String], bits: &str| -> Vec<String> {
        ports.iter().enumerate().map(|(i, port)| format!("        .{port}({bits}[{i}])")).collect()
    };
    let connections = [connect(&ports.inputs, "given"), connect(&ports.outputs, "computed")].concat();
    let top = |ports: &[String]| (ports.len().max(1) - 1).to_string();
    let mut checks = String::new();
    for inputs in vectors(circuit) {
        let outputs = circuit.eval(&inputs)?;
        // Writing to a string never fails, here and below.
        let _ = writeln!(checks, "        check({}, {});", constant(&inputs), constant(&outputs));
    }
    let testbench = include_str!("circuit_testbench.v")
        .replace("@INPUTS", &top(&ports.inputs))
        .replace("@OUTPUTS", &top(&ports.outputs))
        .replace("@CONNECTIONS", &connections.join(",\n"))
        .replace("@DIFFERS", if ports.outputs.is_empty() { "1'b0" } else { "computed !== expected" })
        .replace("@NAME", name)
        .replace("@CHECKS", &checks);
    text.push_str(&testbench);
    Ok(())
}

/// Writes the testbench of an automaton.
pub(super) fn write_grid(
    text: &mut String,
    name: &str,
    automaton: &Automaton,
    size: [usize; 2],
) -> Result<(), FormatError> {
    let GridTest { size: [height, width], states } = grid_test(automaton, size)?;
    let mut checks = String::new();
    for state in &states[1..] {
        let _ = writeln!(checks, "        check({});", constant(state));
    }
    let testbench = include_str!("grid_testbench.v")
        .replace("@TOP", &(height * width * automaton.channels - 1).to_string())
        .replace("@HEIGHT", &height.to_string())
        .replace("@WIDTH", &width.to_string())
        .replace("@TORUS", if automaton.boundary == Boundary::Torus { "1" } else { "0" })
        .replace("@START", &constant(&states[0]))
        .replace("@END", &constant(&states[states.len() - 1]))
        .replace("@NAME", name)
        .replace("@CHECKS", &checks);
    text.push_str(&testbench);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_have_their_width() {
        assert_eq!(constant(&[]), "1'h0");
        assert_eq!(constant(&[true, false, false, false, true]), "5'h11");
        assert_eq!(constant(&[false, true, true]), "3'h6");
    }
}
