//! `gatework minimize`: the result is smaller, proved equivalent, and simulates alike.

use crate::{assert_says, interrupt, is_clean, place, trained};

/// A circuit with a redundant gate: (a & b) | (a & !b) | c.
const WASTE: &str = "\
.model waste
.inputs a b c
.outputs y
.names a b p
11 1
.names a b q
10 1
.names p q r
1- 1
-1 1
.names r c y
1- 1
-1 1
.end
";

#[test]
fn a_run_becomes_smaller_and_shows_the_same() {
    let place = trained();
    let result = place.json("minimize run");
    assert_eq!((&result["proved"], &result["file"]), (&true.into(), &"run/minimized.json".into()));
    assert!(result["gates_after"].as_u64().unwrap() <= result["gates_before"].as_u64().unwrap());
    assert!(result["depth"].is_u64() && result["seconds"].is_f64() && result["proof_seconds"].is_f64());
    let gates = place.json("inspect run/minimized.json")["circuit"]["gates"].clone();
    assert!(gates.as_u64().unwrap() >= result["gates_after"].as_u64().unwrap(), "inverters may come on top");
    // From zeros, because random bits fall differently on fewer channels.
    let ones = |subject: &str| {
        place.json(&format!("simulate {subject} --size 30x41 --steps 9 --start zeros"))["ones"].clone()
    };
    assert_eq!(ones("run"), ones("run/minimized.json"));
    let from_start = place.json("minimize run --from-start --effort fast -o start.blif");
    assert_eq!(from_start["proved"], true);
    assert!(place.read("start.blif").starts_with(b".model start\n"));
}

#[test]
fn a_circuit_becomes_smaller_in_any_format() {
    let place = place();
    place.write("waste.blif", WASTE);
    for output in ["small.blif", "small.aig", "small.json", "small.v", "small.h"] {
        let result = place.json(&format!("minimize waste.blif --effort high -o {output}"));
        assert_eq!((&result["gates_before"], &result["gates_after"]), (&4.into(), &1.into()), "{output}");
        assert!(!place.read(output).is_empty());
    }
    assert_eq!(place.json("minimize small.aig")["gates_after"], 1);
    let output = place.run("minimize waste.blif");
    let [said, answer] = [output.stderr, output.stdout].map(|text| String::from_utf8(text).unwrap());
    assert!(answer.contains("Proved in") && said.contains("Nothing is written"), "{answer}{said}");
}

/// An adder of numbers of this many bits, whose carry passes from each bit to the next.
fn adder(bits: usize) -> String {
    use std::fmt::Write as _;
    let names = |letter: char| (0..bits).map(|i| format!("{letter}{i}")).collect::<Vec<_>>().join(" ");
    let mut text =
        format!(".model adder\n.inputs {} {} c0\n.outputs {} c{bits}\n", names('a'), names('b'), names('s'));
    for i in 0..bits {
        writeln!(text, ".names a{i} b{i} p{i}\n10 1\n01 1\n.names p{i} c{i} s{i}\n10 1\n01 1").unwrap();
        writeln!(text, ".names a{i} b{i} g{i}\n11 1\n.names p{i} c{i} t{i}\n11 1").unwrap();
        writeln!(text, ".names g{i} t{i} c{}\n1- 1\n-1 1", i + 1).unwrap();
    }
    text + ".end\n"
}

#[test]
fn the_depth_is_reduced_and_the_miter_is_never_1() {
    let place = place();
    place.write("adder.blif", &adder(5));
    let depth =
        |arguments: &str| place.json(&format!("minimize adder.blif {arguments}"))["depth"].as_u64().unwrap();
    let plain = depth("-o small.blif");
    let limit = plain - 1;
    let reached = depth(&format!("--miter miter.blif --depth {limit} -o shallow.blif"));
    assert!(reached <= limit, "{reached} of {plain}");
    let small = place.json("minimize miter.blif -o constant.blif");
    assert_eq!(small["gates_after"], 0);
    // A definition without lines is 0; that of 1 has the line 1.
    assert!(!place.text("constant.blif").lines().any(|line| line == "1"), "{}", place.text("constant.blif"));
}

#[test]
fn a_circuit_of_limited_depth_does_not_replace_the_smallest() {
    let place = trained();
    let smallest = place.json("minimize run");
    let before = place.read("run/minimized.json");
    let depth = smallest["depth"].as_u64().unwrap() + 1;
    let deeper = place.json(&format!("minimize run --depth {depth}"));
    assert_eq!(deeper["file"], format!("run/minimized-depth-{depth}.json"));
    assert_eq!(place.read("run/minimized.json"), before);
    let said = place.run("minimize run --miter miter.aig --from-start").stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("miter.aig, the induction step"), "{said}");
}

#[test]
fn exports_can_be_minimised_on_the_way() {
    let place = place();
    place.write("waste.blif", WASTE);
    place.run("export waste.blif --minimize -o small.blif");
    assert_eq!(place.text("small.blif").matches(".names").count(), 1);
    place.run("train small.toml --seed 1 --out run");
    place.run("export run --minimize -o run.html");
    assert!(place.read("run.html").starts_with(b"<!DOCTYPE html>"));
}

#[test]
fn what_cannot_be_minimised_is_refused_and_nothing_is_written() {
    let place = place();
    place.write("waste.blif", WASTE);
    place.write("cut.blif", &WASTE[..60]);
    for (status, arguments, part) in [
        (2, "minimize waste.blif -o small.txt", "no format has the file extension of small.txt"),
        (2, "minimize waste.blif --miter small.txt", "no format has the file extension of small.txt"),
        (2, "minimize waste.blif -o small.blif --miter ./small.blif", "--miter would replace small.blif"),
        (2, "minimize waste.blif --miter waste.blif -o small.blif", "--miter would replace waste.blif"),
        (2, "minimize waste.blif --miter none/m.blif -o small.blif", "cannot write none/m.blif: its folder"),
        (1, "minimize waste.blif --depth 0 -o small.blif", "a depth of 0 was not reached; the smallest"),
        (2, "minimize nowhere", "nowhere does not exist"),
        (2, "minimize waste.blif -o small.html", "gatework export waste.blif --minimize -o small.html"),
        (2, "minimize waste.blif --from-start", "--from-start needs a run folder"),
        (2, "minimize waste.blif --effort heroic", "fast, normal, high"),
        (1, "minimize cut.blif -o small.blif", "cut.blif"),
        (1, "minimize waste.blif -o none/small.blif", "cannot write none/small.blif"),
    ] {
        let said = place.refused(status, arguments);
        assert!(said.contains(part), "{part:?} is missing in: {said}");
        assert!(!place.path("small.txt").exists() && !place.path("small.blif").exists());
    }
}

#[test]
fn a_proof_that_takes_too_long_ends_and_nothing_is_written() {
    let place = place();
    // 15 inputs are too many for exhaustive simulation, and a time limit of 0 leaves no time for a proof.
    let inputs = ".inputs a b c d e f g h i j k l m n o";
    place.write("waste.blif", &WASTE.replace(".inputs a b c", inputs));
    place.write("small.blif", "precious");
    let arguments = "minimize waste.blif --proof-seconds 0 -o small.blif";
    let said = place.refused(1, arguments);
    assert!(said.contains("given up after") && said.contains("nothing is written"), "{said}");
    assert_eq!(place.read("small.blif"), b"precious");
    assert_says(&place.refused(2, "minimize waste.blif --proof-seconds=-1"), &["--proof-seconds"]);
    assert_eq!(place.json("minimize waste.blif --proof-seconds 600")["gates_after"], 1);
    let export = "export waste.blif --minimize --effort fast -o small.blif";
    let said = place.refused(1, &format!("{export} --proof-seconds 0"));
    assert!(said.contains("given up after") && said.contains("nothing is written"), "{said}");
    assert_eq!(place.read("small.blif"), b"precious");
    place.run(export);
    assert!(place.read("small.blif").starts_with(b".model"));
    assert_says(&place.refused(2, "export waste.blif --to c --proof-seconds 1"), &["--minimize"]);
}

/// Returns a network of random gates, each on two of the last 4,000 signals: its minimisation takes long.
fn random_network(gates: usize) -> String {
    use std::fmt::Write as _;
    const INPUTS: usize = 256;
    let names = |first: usize| (first..first + INPUTS).map(|i| format!("n{i}")).collect::<Vec<_>>().join(" ");
    let mut text = format!(".model random\n.inputs {}\n.outputs {}\n", names(0), names(gates));
    let mut state = 1u64;
    let mut below = |end: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % end
    };
    for gate in INPUTS..INPUTS + gates {
        let a = gate - 1 - below(gate.min(4000));
        let b = gate - 1 - below(gate.min(4000));
        let cover = ["11 1", "10 1", "01 1", "00 1", "10 1\n01 1"][below(5)];
        writeln!(text, ".names n{a} n{b} n{gate}\n{cover}").unwrap();
    }
    text + ".end\n"
}

#[cfg(unix)]
#[test]
fn an_interrupted_minimisation_ends_and_nothing_is_written() {
    use std::io::{BufRead as _, Read as _};
    use std::process::Stdio;
    let place = place();
    place.write("random.blif", &random_network(100_000));
    let mut child = place.spawn("minimize random.blif --effort high -o small.blif", Stdio::piped());
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    stderr.read_line(&mut line).unwrap();
    assert!(line.trim_end().ends_with(" gates"), "the progress of the passes: {line}");
    interrupt(&child);
    let mut said = String::new();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1), "{said}");
    assert!(said.ends_with("error: interrupted; nothing was written\n"), "{said}");
    assert!(!place.path("small.blif").exists() && is_clean(&place.path(".")));
}
