//! GHDL runs the testbenches in VHDL.

use crate::cases::{documents, life, written};
use crate::judge::{Folder, Judge};
use gatework_logic::{Circuit, Document, Gate, Node};

/// Runs a testbench, which ends with this status, and returns its messages.
fn run(ghdl: &Judge, text: impl AsRef<[u8]>, status: i32) -> String {
    let folder = Folder::new();
    folder.write("a.vhd", text);
    ghdl.run(&folder, &["-a", "--std=93", "a.vhd"]);
    ghdl.run(&folder, &["-e", "--std=93", "dut_testbench"]);
    ghdl.run_with_status(&folder, &["-r", "--std=93", "dut_testbench"], status)
}

#[test]
fn ghdl_passes_every_testbench() {
    let Some(ghdl) = Judge::find("ghdl", "--version") else { return };
    let gate = Circuit::new(2, vec![Node::new(Gate::AND, 0, 1)], vec![2]).unwrap();
    let reset = gate.with_names(vec!["nmi".into(), "n_reset".into()], vec![]).unwrap();
    let all = documents().into_iter().chain([("names with n".into(), reset.into())]);
    for (name, document) in all {
        let said = run(&ghdl, written(&document, "vhdl"), 0);
        assert!(said.contains("PASS") && !said.contains("FAIL"), "{name}: {said}");
    }
}

#[test]
fn testbenches_fail_for_a_changed_circuit() {
    let Some(ghdl) = Judge::find("ghdl", "--version") else { return };
    for document in [Document::from(life()), life().circuit.into()] {
        let text = String::from_utf8(written(&document, "vhdl")).unwrap();
        let said = run(&ghdl, text.replacen(" or ", " and ", 1), 1);
        assert!(said.contains("FAIL") && !said.contains("PASS"), "{said}");
    }
}
