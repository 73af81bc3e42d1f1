//! The number of FPGA lookup tables of a circuit, from the technology mapper of ABC where it is installed.

use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

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

/// The most time for each of the two mappings.
const LIMIT: Duration = Duration::from_secs(60);
/// The time between two looks at ABC.
const POLL: Duration = Duration::from_millis(10);

/// A folder for the files of ABC, removed when it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Option<Folder> {
        // A hasher begins with random keys, so that the name is new even if an earlier process of this number left its folder.
        let number = RandomState::new().build_hasher().finish();
        let path = std::env::temp_dir().join(format!("gatework-abc-{}-{number:016x}", std::process::id()));
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

/// Runs a program in a folder and returns what it writes to stdout. `None` if it cannot be started, does not end within the limit,
/// or the flag is set: it is then ended.
fn run(command: &mut Command, folder: &Path, limit: Duration, stop: &AtomicBool) -> Option<String> {
    // A file, because a pipe that nobody reads would block the program.
    let path = folder.join("stdout");
    let stdout = std::fs::File::create(&path).ok()?;
    let command = command.current_dir(folder).stdin(Stdio::null()).stdout(stdout).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    let begin = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(_)) => return files::read_text(&path).ok(),
            Ok(None) if begin.elapsed() < limit && !stop.load(Ordering::Relaxed) => std::thread::sleep(POLL),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    }
}

/// Maps a circuit with `berkeley-abc` (`dch; if -K 4`, `if -K 6`); outputs that are inputs, constants, inverted or repeated cost
/// nothing. `None` if ABC is not installed, fails or takes too long, if the flag is set, or if the circuit is too large to be mapped
/// at once.
pub fn lookup_tables(circuit: &Circuit, stop: &AtomicBool) -> Option<LookupTables> {
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
        let mut command = Command::new("berkeley-abc");
        let said = run(command.args(["-q", &script]), &folder.0, LIMIT, stop)?;
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
        if let Some(tables) = lookup_tables(&circuit, &AtomicBool::new(false)) {
            assert_eq!(tables, LookupTables { lut4: 2, lut6: 1 });
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let folder = Folder::new().unwrap();
        let run = |program: &str, limit: Duration, stop: bool| {
            run(Command::new("sh").args(["-c", program]), &folder.0, limit, &AtomicBool::new(stop))
        };
        assert_eq!(run("echo said", Duration::MAX, false).as_deref(), Some("said\n"));
        assert_eq!(run("exec sleep 1000", Duration::ZERO, false), None);
        assert_eq!(run("exec sleep 1000", Duration::MAX, true), None);
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
        if let Some(tables) = lookup_tables(&circuit, &AtomicBool::new(false)) {
            assert_eq!(tables, LookupTables { lut4: 2, lut6: 2 });
        }
    }
}
