//! Icarus Verilog runs the testbenches.

use crate::cases::{documents, life, written};
use crate::judge::{Folder, Judge};
use gatework_logic::Document;

#[test]
fn icarus_passes_every_testbench() {
    let (Some(iverilog), Some(vvp)) = (Judge::find("iverilog", "-V"), Judge::find("vvp", "-V")) else {
        return;
    };
    for (name, document) in documents() {
        let folder = Folder::new();
        folder.write("a.v", written(&document, "verilog"));
        iverilog.run(&folder, &["-g2001", "-Wall", "-DGATEWORK_TESTBENCH", "-o", "a.vvp", "a.v"]);
        let said = vvp.run(&folder, &["a.vvp"]);
        assert!(said.contains("PASS") && !said.contains("FAIL"), "{name}: {said}");
    }
}

#[test]
fn testbenches_fail_for_a_changed_circuit() {
    let (Some(iverilog), Some(vvp)) = (Judge::find("iverilog", "-V"), Judge::find("vvp", "-V")) else {
        return;
    };
    for document in [Document::from(life()), life().circuit.into()] {
        let folder = Folder::new();
        let text = String::from_utf8(written(&document, "verilog")).unwrap();
        folder.write("a.v", text.replacen(" | ", " & ", 1));
        iverilog.run(&folder, &["-DGATEWORK_TESTBENCH", "-o", "a.vvp", "a.v"]);
        let said = vvp.run(&folder, &["a.vvp"]);
        assert!(said.contains("FAIL") && !said.contains("PASS"), "{said}");
    }
}
