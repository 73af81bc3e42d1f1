//! Classifiers as Verilog, C and logic files, checked by Icarus, Yosys, gcc and ABC.

use crate::cases::Numbers;
use crate::judge::{Folder, Judge};
use gatework_logic::classifier::{Classifier, Encoder, Feature, Head};
use gatework_logic::formats::{self, Format, Options};
use gatework_logic::{Circuit, Document, Gate, Node};
use std::process::Command;

const SAMPLES: usize = 200;

/// A network of layers on the bits of an encoder.
fn network(encoder: Encoder, layers: usize, width: usize, classes: usize, seed: u64) -> Classifier {
    let mut numbers = Numbers(seed);
    let inputs = encoder.bits();
    let (mut first, mut size, mut nodes) = (0, inputs, Vec::new());
    for _ in 0..layers {
        for _ in 0..width {
            let gate = Gate::ALL[numbers.below(16) as usize];
            let [a, b] = [0; 2].map(|_: u32| first as u32 + numbers.below(size));
            nodes.push(Node::new(gate, a, b));
        }
        (first, size) = (inputs + nodes.len() - width, width);
    }
    let outputs = (first as u32..(first + size) as u32).collect();
    let names = (0..classes).map(|class| format!("class \"{class}\"")).collect();
    let head = Head::equal_groups(names, width, 1.0).unwrap();
    Classifier::new(encoder, Circuit::new(inputs, nodes, outputs).unwrap(), head).unwrap()
}

/// An image of 8x8 pixels, some of them with several thresholds, at or beyond the range of bytes.
fn image(layers: usize, width: usize) -> Classifier {
    let mut numbers = Numbers(1);
    let mut feature = |i: usize| {
        let first = f32::from(numbers.below(200) as u8) - 4.0;
        let thresholds =
            if i.is_multiple_of(4) { vec![first, first + 30.5, first + 90.0] } else { vec![first] };
        Feature::numeric(format!("p{i}"), thresholds)
    };
    let encoder = Encoder::new((0..64).map(&mut feature).collect(), Some([1, 8, 8])).unwrap();
    network(encoder, layers, width, 10, 2)
}

/// A table with numbers of all magnitudes, categories and missing values.
fn table() -> Classifier {
    let features = vec![
        Feature::numeric("age in years", vec![20.5, 30.0, 65.25]).with_missing(),
        Feature::numeric("module", vec![-1.0e6, 0.0, 3.0e6]),
        Feature::categorical("colour*/", vec!["red".into(), "green".into(), "\u{e9}".into()]).with_missing(),
        Feature::numeric("tiny", vec![-0.001, 0.0001]),
        Feature::categorical("yes", vec!["y".into()]),
        Feature::numeric("constant", vec![]),
        Feature::numeric("micro", vec![-2e-6, 0.0, 1e-6, 3e-6]),
        Feature::numeric("huge", vec![-3e38, 1e38, 3.4e38]),
    ];
    network(Encoder::new(features, None).unwrap(), 3, 30, 3, 5)
}

/// Rows of random values: bytes of images, or numbers around the thresholds.
fn rows(classifier: &Classifier) -> Vec<f32> {
    let mut numbers = Numbers(9);
    let image = classifier.encoder().shape().is_some();
    let mut value = |feature: &Feature| {
        let number = numbers.below(256) as f32;
        match (feature.name.as_str(), numbers.below(8)) {
            _ if image => number,
            ("age in years" | "colour*/", 0) => f32::NAN,
            ("age in years", _) => number / 2.0,
            ("colour*/" | "yes", _) => (number / 64.0).floor(),
            ("tiny", _) => (number - 128.0) / 1e5,
            ("micro", 0) => [-0.0, 1e-6, 3e-6][number as usize % 3],
            ("micro", _) => (number - 128.0) / 2e7,
            ("huge", 0) => f32::INFINITY,
            ("huge", 1) => f32::NEG_INFINITY,
            ("huge", _) => (number - 128.0) * 2.65e36,
            _ => (number - 128.0) * 5e4,
        }
    };
    let features = classifier.encoder().features();
    (0..SAMPLES).flat_map(|_| features.iter().map(&mut value).collect::<Vec<_>>()).collect()
}

fn written(classifier: &Classifier, format: &str, pipeline: usize) -> Vec<u8> {
    let options =
        Options { name: Some("dut".into()), pipeline, samples: rows(classifier), ..Options::default() };
    formats::write(&Document::from(classifier.clone()), Format::named(format).unwrap(), &options).unwrap()
}

#[test]
fn icarus_finds_the_class_of_every_sample() {
    let (Some(iverilog), Some(vvp)) = (Judge::find("iverilog", "-V"), Judge::find("vvp", "-V")) else {
        return;
    };
    for (classifier, pipeline) in [(image(3, 100), 0), (image(3, 100), 5), (table(), 0), (table(), 2)] {
        let folder = Folder::new();
        let text = String::from_utf8(written(&classifier, "verilog", pipeline)).unwrap();
        assert_eq!(text.matches("        check(").count(), SAMPLES);
        folder.write("a.v", &text);
        iverilog.run(&folder, &["-g2001", "-Wall", "-DGATEWORK_TESTBENCH", "-o", "a.vvp", "a.v"]);
        let said = vvp.run(&folder, &["a.vvp"]);
        assert!(said.contains("PASS") && !said.contains("FAIL"), "{said}");
        // The testbench must notice a gate that changed.
        folder.write("b.v", text.replace(" ^ ", " | "));
        iverilog.run(&folder, &["-DGATEWORK_TESTBENCH", "-o", "b.vvp", "b.v"]);
        assert!(vvp.run(&folder, &["b.vvp"]).contains("FAIL"));
    }
}

#[test]
fn yosys_maps_encoder_gates_and_head_to_lookup_tables() {
    let Some(yosys) = Judge::find("yosys", "-V") else { return };
    let folder = Folder::new();
    folder.write("a.v", written(&image(1, 20), "verilog", 3));
    for (synthesis, cell) in [("synth_ice40", "SB_LUT4"), ("synth_xilinx", "LUT")] {
        let script = format!("read_verilog a.v; {synthesis} -top dut; check -assert; stat");
        let said = yosys.run(&folder, &["-p", &script]);
        assert!(said.contains(cell) && !said.contains("Latch"), "{said}");
    }
}

/// A C program that compares a header with the reference.
fn c_program(classifier: &Classifier) -> String {
    let rows = rows(classifier);
    let features = classifier.encoder().features().len();
    let number = |value: &f32| match value {
        value if value.is_nan() => "(0.0f / zero)".into(),
        value if value.is_infinite() => format!("({:.1}f / zero)", value.signum()),
        value => format!("{value:e}f"),
    };
    let list: Vec<String> = rows.iter().map(number).collect();
    let labels: Vec<String> =
        rows.chunks_exact(features).map(|row| classifier.predict(row).unwrap().to_string()).collect();
    let scores: Vec<String> =
        classifier.scores(&rows[..features]).unwrap().iter().map(u32::to_string).collect();
    format!(
        "#include \"dut.h\"\n#include <stdio.h>\nint main(void)\n{{\nvolatile float zero = 0;\n(void)zero;\n\
         const float values[] = {{{}}};\nconst unsigned expected[] = {{{}}};\nconst uint32_t scores[] = {{{}}};\n\
         static dut_value rows[{}];\nunsigned labels[{SAMPLES}];\nuint32_t given[dut_CLASSES];\nsize_t i;\n\
         for (i = 0; i < sizeof values / sizeof *values; i++) rows[i] = (dut_value)values[i];\n\
         dut_predict_many(rows, {SAMPLES}, labels);\n\
         for (i = 0; i < {SAMPLES}; i++) {{\n\
         if (labels[i] != expected[i]) return puts(\"FAIL many\");\n\
         if (dut_predict(rows + i * dut_FEATURES) != expected[i]) return puts(\"FAIL one\");\n}}\n\
         if (dut_scores(rows, given) != expected[0]) return puts(\"FAIL scores\");\n\
         for (i = 0; i < dut_CLASSES; i++) if (given[i] != scores[i]) return puts(\"FAIL score\");\n\
         return puts(dut_class_names[0]) < 0;\n}}\n",
        list.join(", "),
        labels.join(", "),
        scores.join(", "),
        rows.len()
    )
}

#[test]
fn c_headers_find_the_class_of_every_sample() {
    let Some(gcc) = Judge::find("gcc", "--version") else { return };
    // Whether there is a C library for 32 bits.
    let folder = Folder::new();
    folder.write("a.c", "#include <stdio.h>\nint main(void) { return 0; }\n");
    let with_32 = Command::new("gcc").args(["-m32", "-o", "a", "a.c"]).current_dir(folder.path()).output();
    let with_32 = with_32.is_ok_and(|output| output.status.success());
    // As statements, as a table of 16-bit numbers, and a table of numbers and categories.
    for classifier in [image(2, 30), image(3, 1000), table()] {
        let folder = Folder::new();
        folder.write("dut.h", written(&classifier, "c", 0));
        folder.write("a.c", c_program(&classifier));
        let eight = ["-Ddut_WORD=uint8_t", "-Ddut_WORDS=1"];
        let two = ["-Ddut_WORD=uint32_t", "-Ddut_WORDS=2"];
        let mut variants = vec![vec![], eight.to_vec(), two.to_vec()];
        variants.extend(with_32.then(|| vec!["-m32"]));
        for variant in variants {
            let strict = ["-std=c99", "-pedantic", "-O1", "-Wall", "-Wextra", "-Werror", "-o", "a", "a.c"];
            gcc.run(&folder, &[&variant[..], &strict].concat());
            let said = Command::new(folder.path().join("a")).output().unwrap();
            assert_eq!(String::from_utf8_lossy(&said.stdout), "class \"0\"\n", "{variant:?}");
        }
    }
}

#[test]
fn rust_modules_find_the_class_of_every_sample() {
    let Some(rustc) = Judge::find("rustc", "--version") else { return };
    for classifier in [image(2, 30), table()] {
        let folder = Folder::new();
        folder.write("dut.rs", written(&classifier, "rust", 0));
        let rows = rows(&classifier);
        let features = classifier.encoder().features().len();
        let number = |value: &f32| match value {
            value if value.is_nan() => "f32::NAN".into(),
            value if value.is_infinite() => format!("({:?} / 0.0)", value.signum()),
            value => format!("{value:?}f32"),
        };
        let list: Vec<String> = rows.iter().map(number).collect();
        let labels: Vec<String> =
            rows.chunks_exact(features).map(|row| classifier.predict(row).unwrap().to_string()).collect();
        let program = format!(
            "#![deny(warnings)]\nmod dut;\nfn main() {{\n\
             let rows: Vec<dut::Value> = [{}].iter().map(|&value: &f32| value as dut::Value).collect();\n\
             let expected = [{}];\nlet mut labels = [0; {SAMPLES}];\n\
             dut::predict_many(&rows, &mut labels);\nassert_eq!(labels, expected);\n\
             let mut more = [99; 80];\ndut::predict_many(&rows[..70 * dut::FEATURES], &mut more);\n\
             assert!(more[..70] == expected[..70] && more[70..].iter().all(|&label| label == 99));\n\
             let row = rows[..dut::FEATURES].try_into().unwrap();\n\
             assert_eq!(dut::predict(row), expected[0]);\n\
             println!(\"{{}} {{:?}}\", dut::CLASS_NAMES[0], dut::scores(row));\n}}\n",
            list.join(", "),
            labels.join(", ")
        );
        folder.write("a.rs", program);
        rustc.run(&folder, &["--edition", "2021", "-o", "a", "a.rs"]);
        let said = Command::new(folder.path().join("a")).output().unwrap();
        let expected = format!("class \"0\" {:?}\n", classifier.scores(&rows[..features]).unwrap());
        assert_eq!(
            String::from_utf8_lossy(&said.stdout),
            expected,
            "{}",
            String::from_utf8_lossy(&said.stderr)
        );
    }
}

#[test]
fn abc_proves_the_logic_files_equivalent() {
    let Some(abc) = Judge::find("berkeley-abc", "-h") else { return };
    for classifier in [image(3, 100), table()] {
        let folder = Folder::new();
        folder.write("a.blif", written(&classifier, "blif", 0));
        folder.write("a.aig", written(&classifier, "aiger", 0));
        let said = abc.run(&folder, &["-q", "cec -n a.blif a.aig"]);
        assert!(said.contains("Networks are equivalent"), "{said}");
    }
}
