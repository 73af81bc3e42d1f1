//! GHDL runs the testbenches in VHDL.

use crate::cases::{documents, life, written};
use crate::judge::{Folder, Judge};
use gatework_logic::Document;

/// Runs a testbench and returns its messages.
fn run(ghdl: &Judge, text: impl AsRef<[u8]>) -> String {
    let folder = Folder::new();
    folder.write("a.vhd", text);
    ghdl.run(&folder, &["-a", "--std=93", "a.vhd"]);
    ghdl.run(&folder, &["-r", "--std=93", "dut_testbench"])
}

#[test]
fn ghdl_passes_every_testbench() {
    let Some(ghdl) = Judge::find("ghdl", "--version") else { return };
    for (name, document) in documents() {
        let said = run(&ghdl, written(&document, "vhdl"));
        assert!(said.contains("PASS") && !said.contains("FAIL"), "{name}: {said}");
    }
}

#[test]
fn testbenches_fail_for_a_changed_circuit() {
    let Some(ghdl) = Judge::find("ghdl", "--version") else { return };
    for document in [Document::from(life()), life().circuit.into()] {
        let text = String::from_utf8(written(&document, "vhdl")).unwrap();
        let said = run(&ghdl, text.replacen(" or ", " and ", 1));
        assert!(said.contains("FAIL") && !said.contains("PASS"), "{said}");
    }
}
