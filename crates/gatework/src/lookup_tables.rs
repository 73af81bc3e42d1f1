//! The number of FPGA lookup tables of a circuit, from the technology mapper of ABC where it is installed.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use gatework_logic::formats::{self, Format, Options};
use gatework_logic::{Circuit, Document, Gate, Node};
use gatework_train::files;

/// The lookup tables that a circuit needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupTables {
    /// The number of lookup tables of four inputs.
    pub lut4: usize,
    /// The number of lookup tables of six inputs.
    pub lut6: usize,
}

/// The most gates that are mapped, which takes ABC seconds; more than that would delay the answer for minutes.
const MAX_GATES: usize = 50_000;

/// A folder for the file that ABC reads, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Option<Folder> {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("gatework-abc-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).ok()?;
        Some(Folder(path))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns a circuit whose outputs are the different gates that drive the outputs of another one, not inverted.
///
/// ABC adds a table for each output that is an inverted input or repeats another output. What reads the outputs needs none: a head
/// that counts ones counts zeros as well.
fn distinct_outputs(circuit: &Circuit) -> Option<Circuit> {
    let simple = circuit.simplify();
    let (inputs, nodes) = (simple.inputs(), simple.nodes());
    let node = |signal: u32| (signal as usize).checked_sub(inputs).map(|at| nodes[at]);
    let driver = |mut signal: u32| loop {
        match node(signal)? {
            Node { gate, .. } if gate.is_constant() => return None,
            Node { gate, a, b } if !(gate.depends_on_a() && gate.depends_on_b()) => {
                signal = if gate.depends_on_a() { a } else { b };
            }
            gate => return Some(gate),
        }
    };
    // An and-gate of the AIGER file, or an exclusive nor, ends in an and that is not inverted.
    let positive = |Node { gate, a, b }: Node| {
        let (gate, a, b) = if a <= b { (gate, a, b) } else { (gate.swap(), b, a) };
        let is_inverted = gate == Gate::XOR || gate.index().count_ones() > 2;
        (a, b, if is_inverted { gate.not() } else { gate }.index())
    };
    let drivers: BTreeSet<(u32, u32, u8)> =
        simple.outputs().iter().filter_map(|&output| driver(output)).map(positive).collect();
    let mut gates = nodes.to_vec();
    gates.extend(drivers.iter().filter_map(|&(a, b, gate)| Some(Node::new(Gate::from_index(gate)?, a, b))));
    let first = inputs + nodes.len();
    let outputs = (first..inputs + gates.len()).map(|signal| signal as u32).collect();
    Circuit::new(inputs, gates, outputs).ok()
}

/// Maps a circuit with `berkeley-abc` (`dch; if -K 4`, `if -K 6`); outputs that are inputs, constants, inverted or repeated cost
/// nothing. `None` if ABC is not installed or fails, or the circuit is too large to be mapped at once.
pub fn lookup_tables(circuit: &Circuit) -> Option<LookupTables> {
    if circuit.nodes().len() > MAX_GATES {
        return None;
    }
    let folder = Folder::new()?;
    let plain = distinct_outputs(circuit)?;
    if plain.outputs().is_empty() {
        return Some(LookupTables { lut4: 0, lut6: 0 });
    }
    let bytes =
        formats::write(&Document::Circuit(plain), Format::named("aiger").ok()?, &Options::default()).ok()?;
    files::write_atomic(&folder.0.join("a.aig"), &bytes).ok()?;
    let count = |inputs: usize| {
        let script = format!("read a.aig; dch; if -K {inputs}; print_stats");
        let output =
            Command::new("berkeley-abc").args(["-q", &script]).current_dir(&folder.0).output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let (_, after) = said.split_once("nd =")?;
        after.split_whitespace().next()?.parse().ok()
    };
    Some(LookupTables { lut4: count(4)?, lut6: count(6)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_and_of_five_inputs_is_one_table_of_six_inputs() {
        let node = |i: u32| Node::new(Gate::AND, if i == 0 { 0 } else { 4 + i }, i + 1);
        let circuit = Circuit::new(5, (0..4).map(node).collect(), vec![8]).unwrap();
        if let Some(tables) = lookup_tables(&circuit) {
            assert_eq!(tables, LookupTables { lut4: 2, lut6: 1 });
        }
    }

    #[test]
    fn outputs_that_are_inverted_or_repeated_cost_no_tables() {
        let nodes = [
            Node::new(Gate::AND, 0, 1),
            Node::new(Gate::NAND, 1, 0),
            Node::new(Gate::XOR, 1, 2),
            Node::new(Gate::NOT_A, 2, 2),
            Node::new(Gate::TRUE, 0, 0),
            Node::new(Gate::NOT_B, 0, 5),
        ];
        let circuit = Circuit::new(3, nodes.to_vec(), vec![3, 4, 4, 5, 6, 7, 8, 0, 5]).unwrap();
        let distinct = distinct_outputs(&circuit).unwrap();
        assert_eq!(distinct.outputs().len(), 2);
        for input in 0..8 {
            let bits = [0, 1, 2].map(|bit| input >> bit & 1 == 1);
            let expected = [bits[0] && bits[1], bits[1] == bits[2]];
            assert_eq!(distinct.eval(&bits).unwrap(), expected, "{bits:?}");
        }
        if let Some(tables) = lookup_tables(&circuit) {
            assert_eq!(tables, LookupTables { lut4: 2, lut6: 2 });
        }
    }
}
