//! The verbs that use a trained model.

use crate::{assert_says, place, trained};

#[test]
fn every_verb_has_help() {
    let place = place();
    for verb in [
        "list", "train", "simulate", "minimize", "check", "inspect", "export", "evaluate", "predict", "study",
    ] {
        assert_says(&place.stdout(&format!("{verb} --help")), &["Usage: gatework"]);
    }
}

#[test]
fn list_shows_the_experiments_and_their_toml() {
    let place = place();
    let listed = place.json("list");
    let names: Vec<&str> =
        listed["experiments"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert!(names.len() >= 25, "{names:?}");
    for name in ["game-of-life", "checkerboard", "lizard", "bricks", "highlife", "digits", "airpassengers"] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    place.write("mine.toml", &place.stdout("list lizard"));
    place.run("train mine.toml --seed 1 --updates 1");
    assert_eq!(place.json("list lizard")["automaton"]["channels"], 128);
    assert_eq!(place.json("list small.toml")["name"], "small");
    assert_says(&place.stdout("list small.toml"), &["recipe = \"paper\""]);
}

#[test]
fn cells_that_were_just_damaged_are_not_compared() {
    let place = trained();
    let compared = |damage: &str| {
        let simulate = format!("simulate run --size 16x16 --steps 5 --damage {damage}");
        place.json(&simulate)["compared"].as_u64().unwrap()
    };
    assert_eq!(compared("centre:4"), 256 - 16);
    assert_eq!(compared("centre:4:3"), 256);
    let said = place.stdout("simulate run --size 16x16 --damage centre:20");
    assert_says(&said, &["there is nothing to compare"]);
}

#[test]
fn the_name_of_a_run_without_its_folder_gets_a_hint() {
    let place = place();
    place.run("train small.toml --seed 1 --updates 3");
    assert_says(&place.refused(2, "evaluate small"), &["small does not exist; did you mean runs/small?"]);
    assert_says(&place.refused(2, "evaluate other"), &["other does not exist; expected a run folder"]);
}

#[test]
fn simulate_runs_grids_of_any_size_from_folders_models_and_circuits() {
    let place = trained();
    for subject in ["run", "run/model.safetensors", "run/circuit.json"] {
        for size in ["1x1", "5x70", "64x64"] {
            let simulate = format!("simulate {subject} --size {size} --steps 7 --gif a.gif --start random");
            let result = place.json(&simulate);
            assert_eq!(result["steps"], 7);
            assert!(place.read("a.gif").starts_with(b"GIF89a"));
        }
    }
    let learned = |subject| place.json(&format!("simulate {subject}"))["ones"].as_array().unwrap().len();
    assert_eq!(["run", "run/model.safetensors", "run/circuit.json"].map(learned), [1, 1, 1]);
    let bits = |subject: &str| {
        place.json(&format!("simulate {subject} --size 30x30 --start random"))["ones"][0].clone()
    };
    assert_eq!(bits("run"), place.json("simulate run --size 30x30")["ones"][0]);
    place.run("simulate run --async 0.6 --damage centre:3:5 --hidden --gif b.gif");
}

#[test]
fn inspect_counts_the_same_gates_everywhere() {
    let place = trained();
    let run = place.json("inspect run --svg gates.svg");
    assert_eq!(run["experiment"], "small");
    assert_eq!(run["learned_gates"], 90);
    assert_eq!(run["parameters"], 90 * 16);
    assert!(place.read("gates.svg").starts_with(b"<svg"));
    let model = place.json("inspect run/model.safetensors");
    let circuit = place.json("inspect run/circuit.json");
    assert_eq!(run["circuit"], model["circuit"]);
    assert_eq!(run["circuit"], circuit["circuit"]);
    assert_eq!(run["circuit"]["nodes"], 4 * 3 * 14 + 48);
    assert!(run["circuit"]["gates"].is_u64());
}

#[test]
fn evaluate_scores_every_protocol() {
    let place = trained();
    let result = place.json("evaluate run");
    let scores = result["scores"].as_array().unwrap();
    assert_eq!(scores.len(), 2);
    assert_eq!((&scores[0]["name"], &scores[0]["bits"]), (&"larger".into(), &(10 * 20 * 31).into()));
    assert!(scores.iter().all(|score| score["wrong"].is_u64() && score["late_wrong"].is_f64()));
    assert_eq!(result, place.json("evaluate run"), "the same seed gives the same score");
    for (option, value) in [("--subset", "test"), ("--step", "2")] {
        let said = place.refused(2, &format!("evaluate run {option} {value}"));
        assert!(said.contains(&format!("{option} is for forecasters; this is an automaton")), "{said}");
    }
}

#[test]
fn results_go_to_stdout_or_make_way_for_a_json_object() {
    let place = trained();
    for (arguments, part) in [
        ("inspect run", "depth"),
        ("evaluate run", "wrong bits"),
        ("simulate run", "steps in"),
        ("list", "checkerboard"),
    ] {
        assert_says(&place.stdout(arguments), &[part]);
        let text = place.stdout(&format!("{arguments} --json"));
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{arguments:?}: {text}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_failed_write_to_stdout_is_an_error_unless_the_pipe_is_closed() {
    use std::process::Stdio;
    let place = trained();
    let program = place.program();
    for arguments in [
        "inspect run",
        "inspect run --json",
        "list",
        "export run --to blif",
        "--help",
        "help train",
        "--version",
    ] {
        let command = |stdout: Stdio| {
            let mut command = std::process::Command::new(&program);
            command.current_dir(place.path("")).args(arguments.split(' ')).stdout(stdout).output().unwrap()
        };
        let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(full.into());
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.code() == Some(1) && said.contains("cannot write to stdout"),
            "{arguments:?}: {said}"
        );
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert!(command(writer.into()).status.success(), "{arguments:?}");
    }
}

#[test]
fn a_study_writes_a_row_for_every_run_and_can_be_resumed() {
    let place = place();
    place.write(
        "study.toml",
        "experiment = \"small.toml\"\nseeds = 2\n[grid]\n\"training.updates\" = [3, 5]\n",
    );
    let first = place.json("study study.toml --out results");
    assert_eq!(first["settings"].as_array().unwrap().len(), 2);
    assert!(first["settings"][0]["runs"] == 2 && first["settings"][1]["setting"] == "updates 5");
    let rows = place.text("results/results.csv");
    assert_eq!(rows.lines().count(), 5);
    assert!(place.read("results/success.svg").starts_with(b"<svg"));
    // Without the last row, as if the study had been interrupted; the others stay unchanged, to the microsecond.
    let kept: Vec<&str> = rows.lines().take(4).collect();
    place.write("results/results.csv", &kept.join("\n"));
    place.json("study study.toml --out results");
    let again = place.text("results/results.csv");
    assert_eq!(again.lines().take(4).collect::<Vec<_>>(), kept);
    assert_eq!(again.lines().count(), 5);
    // Results that are not of a study are not overwritten.
    place.write("results/results.csv", "a,b\n1,2\n");
    place.command("study study.toml --out results").assert().code(1);
    assert_eq!(place.read("results/results.csv"), b"a,b\n1,2\n");
}

#[test]
fn bench_names_the_program_that_replaces_it() {
    let said = place().refused(2, "bench engine --only add");
    let command = "cargo run --release -p gatework-bench -- engine --only add";
    assert_says(&said, &["in a clone of the repository", command]);
}
