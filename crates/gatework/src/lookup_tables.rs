//! The number of FPGA lookup tables of a circuit, from the technology mapper of ABC where it is installed.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use gatework_logic::formats::{self, Format, Options};
use gatework_logic::{Circuit, Document};
use gatework_train::files;

/// The lookup tables that a circuit needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LookupTables {
    /// The number of lookup tables of four inputs.
    pub lut4: usize,
    /// The number of lookup tables of six inputs.
    pub lut6: usize,
}

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

/// Maps a circuit with `berkeley-abc` (`dch; if -K 4`, `if -K 6`). `None` if ABC is not installed or fails.
pub fn lookup_tables(circuit: &Circuit) -> Option<LookupTables> {
    let folder = Folder::new()?;
    // Names of ports may contain characters that ABC does not read.
    let plain = circuit.clone().with_names(Vec::new(), Vec::new()).ok()?;
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
    use gatework_logic::{Gate, Node};

    #[test]
    fn an_and_of_five_inputs_is_one_table_of_six_inputs() {
        let node = |i: u32| Node::new(Gate::AND, if i == 0 { 0 } else { 4 + i }, i + 1);
        let circuit = Circuit::new(5, (0..4).map(node).collect(), vec![8]).unwrap();
        if let Some(tables) = lookup_tables(&circuit) {
            assert_eq!(tables, LookupTables { lut4: 2, lut6: 1 });
        }
    }
}
