//! `gatework export`: circuits in other formats, and error messages.

use crate::{assert_says, is_clean, place, trained};

/// Every format that is written, with its extension and the beginning of its files. In Verilog, `small` is a keyword.
const FORMATS: [(&str, &str, &str); 11] = [
    ("json", "json", "{\"format\":\"gatework-circuit\""),
    ("blif", "blif", ".model small\n.inputs c0_nw c0_n c0_ne c0_w c0 c0_e"),
    ("aag", "aag", "aag "),
    ("aiger", "aig", "aig "),
    ("verilog", "v", "// _small: "),
    ("vhdl", "vhd", "-- small: "),
    ("c", "h", "/* small: "),
    ("rust", "rs", "//! small: "),
    ("dot", "dot", "digraph \"small\" {"),
    ("svg", "svg", "<svg "),
    ("wasm", "wasm", "\0asm\u{1}"),
];

#[test]
fn a_run_is_written_in_every_format_to_a_file_and_to_stdout() {
    let place = trained();
    for (format, ending, begin) in FORMATS {
        let file = format!("a.{ending}");
        let result = place.json(&format!("export run -o {file}"));
        assert_eq!((&result["format"], &result["file"]), (&format.into(), &file.as_str().into()));
        let bytes = place.read(&file);
        assert!(bytes.starts_with(begin.as_bytes()), "{format}");
        let output = place.run(&format!("export run --to {format}"));
        assert_eq!(output.stdout, bytes, "{format}: stdout and file are the same");
    }
}

#[test]
fn what_is_written_is_read_again_by_other_verbs() {
    let place = trained();
    let expected = place.json("inspect run")["circuit"]["gates"].clone();
    for (format, ending, _) in &FORMATS[..4] {
        let file = format!("a.{ending}");
        place.run(&format!("export run --to {format} -o {file}"));
        let facts = place.json(&format!("inspect {file}"))["circuit"].clone();
        assert_eq!(facts["inputs"], 36, "{format}");
        assert_eq!(facts["gates"], expected, "{format}");
        let again = format!("b.{ending}");
        place.run(&format!("export {file} -o {again} --name small"));
        assert_eq!(place.read(&file), place.read(&again), "{format}");
    }
}

#[test]
fn a_grid_is_written_with_registers() {
    let place = trained();
    place.run("export run --grid 3x5 -o grid.aag");
    let header = place.text("grid.aag").lines().next().unwrap().to_string();
    let counts: Vec<usize> = header.split(' ').skip(1).map(|count| count.parse().unwrap()).collect();
    assert_eq!(
        counts[1..4],
        [0, 3 * 5 * 4, 3 * 5],
        "no inputs, a latch a bit, the learned channel: {header}"
    );
    assert_says(&place.refused(1, "inspect grid.aag"), &["grid.aag: the file has 60 latches"]);
    place.run("export run --grid 3x5 -o grid.v");
    assert!(place.text("grid.v").contains("parameter WIDTH = 5"));
}

#[test]
fn what_cannot_be_exported_is_refused_and_writes_nothing() {
    let place = trained();
    place.run("export run -o plain.blif");
    place.write("cut.blif", ".model m\n.inputs a\n.outputs y\n.names a y\n1");
    place.write("loop.blif", ".model m\n.inputs a\n.outputs y\n.names a t y\n11 1\n.names y t\n1 1\n.end\n");
    place.write("huge.aag", "aag 4000000000 4000000000 0 0 0\n");
    place.write("old.v", "precious");
    for (status, arguments, part) in [
        (
            2,
            "export run --to systemc -o x.v",
            "unknown format \"systemc\"; the formats are json, blif, aag, aiger, verilog, vhdl, c, rust, wasm, dot, svg, html, onnx",
        ),
        (2, "export run -o x.sv", "no format has the file extension of x.sv"),
        (2, "export run", "which format? --to names one of json, blif"),
        (2, "export nowhere -o x.v", "nowhere does not exist"),
        (2, "export run -o x.onnx", "run is not the run of a forecaster, which onnx files are for"),
        (2, "export plain.blif -o x.onnx", "circuits are written as json, blif"),
        (2, "export . -o x.v", "experiment.toml is missing"),
        (2, "export small.toml -o x.v", "is neither a run folder nor a .safetensors, .json, .blif"),
        (2, "export run --grid 0x4 -o x.v", "HEIGHTxWIDTH"),
        (2, "export run --grid 4x4 -o x.h", "c files cannot hold a grid; the formats that can are blif"),
        (2, "export plain.blif --grid 4x4 -o x.v", "a grid needs an automaton"),
        (2, "export run --to c --json", "--output"),
        (1, "export run --grid 65536x65536 -o x.aig", "too large for a grid"),
        (1, "export cut.blif -o x.v", "cut.blif: line 5, column 1: a cube is followed by one value"),
        (1, "export loop.blif -o x.v", "signals read each other in a cycle: y <- t <- y"),
        (1, "export huge.aag -o x.v", "huge.aag: line 1, column 32: 4000000000 inputs"),
        (1, "export run -o none/x.v", "cannot write none/x.v"),
        (1, "export run --to verilog -o run", "cannot write run"),
    ] {
        let said = place.refused(status, arguments);
        assert!(said.contains(part) && !said.contains("panicked"), "{part:?} is missing in: {said}");
    }
    let left: Vec<String> = std::fs::read_dir(place.path(""))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("x."))
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert!(is_clean(&place.path("")), "no half-written file");
    place.refused(1, "export cut.blif -o old.v");
    assert_eq!(place.read("old.v"), b"precious", "a failure keeps what was there");
}

#[test]
fn names_of_all_kinds_are_exported() {
    let place = place();
    place.write(
        "odd name.json",
        r#"{"format":"gatework-circuit","version":1,"inputs":2,"outputs":[2],"gates":[[6,0,1]],
            "input_names":["carry in","caf\u00e9 <\"&"],"output_names":["module"]}"#,
    );
    for (_, ending, _) in FORMATS {
        let file = format!("a.{ending}");
        place.command("export -o").args([&file, "odd name.json"]).assert().success();
    }
    let text = |name: &str| place.text(name);
    assert!(text("a.aag").contains("i0 carry in\ni1 caf\u{e9} <\"&\no0 module\n"), "{}", text("a.aag"));
    assert!(text("a.blif").contains(".inputs carry_in caf__<_&\n.outputs module\n"), "{}", text("a.blif"));
    assert!(text("a.v").contains("output wire _module\n"), "{}", text("a.v"));
    // The function of a circuit file is named after the file that is written.
    assert!(text("a.h").contains("static inline void a("), "{}", text("a.h"));
    place.command("export -o").args(["odd name.h", "a.json"]).assert().success();
    assert!(text("odd name.h").contains("static inline void odd_name("), "{}", text("odd name.h"));
    let printed =
        place.command("export --to c").arg("odd name.json").assert().success().get_output().stdout.clone();
    assert!(String::from_utf8(printed).unwrap().contains("static inline void odd_name("));
}
