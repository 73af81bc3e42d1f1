//! The verbs that look at what was trained.

use predicates::prelude::*;

use crate::{Place, assert_says};

#[test]
fn help_is_there_for_every_verb() {
    let place = Place::new();
    for verb in [
        "list", "train", "simulate", "minimize", "inspect", "export", "evaluate", "predict", "study", "bench",
    ] {
        place
            .gatework(&[verb, "--help"])
            .assert()
            .success()
            .stdout(predicate::str::contains("Usage: gatework"));
    }
}

#[test]
fn list_shows_the_experiments_and_their_toml() {
    let place = Place::new();
    let listed = place.json(&["list"]);
    let names: Vec<&str> =
        listed["experiments"].as_array().unwrap().iter().map(|e| e["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        ["game-of-life", "checkerboard", "checkerboard-async", "lizard", "colored-g", "airpassengers"]
    );
    let output = place.gatework(&["list", "lizard"]).assert().success().get_output().stdout.clone();
    place.write("mine.toml", &String::from_utf8(output).unwrap());
    place.gatework(&["train", "mine.toml", "--seed", "1", "--updates", "1"]).assert().success();
    assert_eq!(place.json(&["list", "lizard"])["automaton"]["channels"], 128);
    assert_eq!(place.json(&["list", "small.toml"])["name"], "small");
    let own = place.gatework(&["list", "small.toml"]).assert().success().get_output().stdout.clone();
    assert!(String::from_utf8(own).unwrap().contains("recipe = \"paper\""));
}

#[test]
fn cells_that_were_just_damaged_are_not_compared() {
    let place = Place::new().trained();
    let compared = |damage: &str| {
        let simulate = ["simulate", "run", "--size", "16x16", "--steps", "5", "--damage", damage];
        place.json(&simulate)["compared"].as_u64().unwrap()
    };
    assert_eq!(compared("centre:4"), 256 - 16);
    assert_eq!(compared("centre:4:3"), 256);
    let all = place.gatework(&["simulate", "run", "--size", "16x16", "--damage", "centre:20"]);
    let said = String::from_utf8({ all }.assert().success().get_output().stdout.clone()).unwrap();
    assert_says(&said, &["nothing is left to compare"]);
}

#[test]
fn the_name_of_a_run_without_its_folder_gets_a_hint() {
    let place = Place::new();
    place.gatework(&["train", "small.toml", "--seed", "1", "--updates", "3"]).assert().success();
    assert_says(
        &place.refused(2, &["evaluate", "small"]),
        &["small does not exist; did you mean runs/small?"],
    );
    assert_says(&place.refused(2, &["evaluate", "other"]), &["other does not exist; a run folder"]);
}

#[test]
fn simulate_runs_boards_of_any_size_from_folders_models_and_circuits() {
    let place = Place::new().trained();
    for subject in ["run", "run/model.safetensors", "run/circuit.json"] {
        for size in ["1x1", "5x70", "64x64"] {
            let arguments =
                ["simulate", subject, "--size", size, "--steps", "7", "--gif", "a.gif", "--start", "random"];
            let result = place.json(&arguments);
            assert_eq!(result["steps"], 7);
            assert!(place.read("a.gif").starts_with(b"GIF89a"));
        }
    }
    let learned = |subject| place.json(&["simulate", subject])["ones"].as_array().unwrap().len();
    assert_eq!(["run", "run/model.safetensors", "run/circuit.json"].map(learned), [1, 1, 1]);
    let bits = |subject: &str| {
        place.json(&["simulate", subject, "--size", "30x30", "--start", "random"])["ones"][0].clone()
    };
    assert_eq!(bits("run"), place.json(&["simulate", "run", "--size", "30x30"])["ones"][0]);
    let storm = ["simulate", "run", "--async", "0.6", "--damage", "centre:3:5", "--hidden", "--gif", "b.gif"];
    place.gatework(&storm).assert().success();
}

#[test]
fn inspect_counts_the_same_gates_everywhere() {
    let place = Place::new().trained();
    let run = place.json(&["inspect", "run", "--svg", "gates.svg"]);
    assert_eq!(run["experiment"], "small");
    assert_eq!(run["gates"]["total"], 90);
    assert_eq!(run["parameters"], 90 * 16);
    assert!(place.read("gates.svg").starts_with(b"<svg"));
    let model = place.json(&["inspect", "run/model.safetensors"]);
    let circuit = place.json(&["inspect", "run/circuit.json"]);
    assert_eq!(run["circuit"], model["circuit"]);
    assert_eq!(run["circuit"], circuit["circuit"]);
    assert_eq!(run["circuit"]["gates"], 4 * 3 * 14 + 48);
}

#[test]
fn evaluate_scores_every_protocol() {
    let place = Place::new().trained();
    let result = place.json(&["evaluate", "run"]);
    let scores = result["scores"].as_array().unwrap();
    assert_eq!(scores.len(), 2);
    assert_eq!((&scores[0]["name"], &scores[0]["bits"]), (&"larger".into(), &(10 * 20 * 31).into()));
    assert!(scores.iter().all(|score| score["wrong"].is_u64() && score["late_wrong"].is_f64()));
    assert_eq!(result, place.json(&["evaluate", "run"]), "the same seed gives the same score");
    for (option, value) in [("--part", "test"), ("--step", "2")] {
        let said = place.refused(2, &["evaluate", "run", option, value]);
        assert!(said.contains(&format!("{option} is for forecasters; this is an automaton")), "{said}");
    }
}

#[test]
fn bench_runs_a_network_natively_and_portably() {
    let place = Place::new();
    let result = place.json(&["bench", "circuits", "--only", "network-10k", "--seconds", "0.05"]);
    assert_eq!(result["bench"], "circuits");
    assert!(result["simd"].is_string());
    let rows = result["results"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["native"] == false));
    for row in rows {
        assert_eq!((&row["name"], &row["gates"]), (&"network-10k".into(), &10_000.into()));
        for key in ["threads", "ready_seconds", "first_result_seconds", "samples_per_second"] {
            assert!(row[key].as_f64().unwrap() > 0.0, "{key} in {row}");
        }
    }
}

#[test]
fn bench_reports_every_experiment_for_one_thread_and_all() {
    let place = Place::new();
    let only = ["--only", "game-of-life", "--only", "checkerboard"];
    let result =
        place.json(&[&["bench", "automata", "--seconds", "0.01", "--threads", "2"][..], &only].concat());
    assert_eq!(result["bench"], "automata");
    assert!(result["simd"].is_string());
    let rows = result["results"].as_array().unwrap();
    let measured: Vec<_> =
        rows.iter().map(|row| (row["experiment"].as_str(), row["threads"].as_u64())).collect();
    let [life, board] = [Some("game-of-life"), Some("checkerboard")];
    assert_eq!(measured, [(life, Some(1)), (life, Some(2)), (board, Some(1)), (board, Some(2))]);
    for row in rows {
        for key in [
            "update_ms",
            "forward_ms",
            "backward_ms",
            "optimizer_ms",
            "hard_ms",
            "gate_evals_per_second",
            "updates",
        ] {
            assert!(row[key].as_f64().is_some_and(|x| x > 0.0), "{key}: {row}");
        }
        let knows_its_memory = row["peak_rss_mb"].as_f64().is_some_and(|megabytes| megabytes > 1.0);
        assert!(knows_its_memory || !cfg!(target_os = "linux"), "{row}");
    }
}

#[test]
fn bench_engine_measures_every_type_and_the_plain_loops() {
    let place = Place::new();
    let result = place.json(&["bench", "engine", "--quick", "--only", "add", "--threads", "1"]);
    assert_eq!(result["bench"], "engine");
    assert!(result["cliffs"].is_array());
    let rows = result["results"].as_array().unwrap();
    for dtype in ["f32", "f64", "i32", "i64"] {
        assert_eq!(rows.iter().filter(|row| row["dtype"] == dtype).count(), 4, "four lengths of {dtype}");
    }
    assert!(rows.iter().all(|row| row["ns_per_element"].as_f64().is_some_and(|time| time > 0.0)));
    assert!(rows.iter().all(|row| row["plain_ns"].is_f64() == (row["dtype"] == "f32")));
}

/// A table of `bench engine`: the time of an element at each length, all within the first cache.
fn engine_table(times: &[(u64, f64)]) -> String {
    let row = |&(n, time): &(u64, f64)| {
        serde_json::json!({
            "op": "add", "dtype": "f32", "n": n, "threads": 1, "bytes": 12 * n, "ns": n as f64 * time,
            "ns_per_element": time, "plain_ns": n as f64 * 0.1,
        })
    };
    let rows: Vec<_> = times.iter().map(row).collect();
    serde_json::json!({ "caches": [{ "bytes": 32 << 10, "cores": 1 }], "results": rows }).to_string()
}

#[test]
fn bench_engine_fails_on_a_table_with_a_cliff() {
    let place = Place::new();
    place.write("smooth.json", &engine_table(&[(256, 0.11), (1024, 0.1), (2048, 0.1)]));
    place.write("cliff.json", &engine_table(&[(256, 0.1), (1024, 0.1), (2048, 0.3)]));
    place.write("broken.json", "{}");
    let smooth = place.json(&["bench", "engine", "--table", "smooth.json", "--check"]);
    assert_eq!(smooth["cliffs"], serde_json::json!([]));
    let check = place.gatework(&["bench", "engine", "--table", "cliff.json", "--check"]).assert().code(1);
    let said = String::from_utf8(check.get_output().stdout.clone()).unwrap();
    assert!(said.contains("add f32, threads: 1: 3.00x from 1024 to 2048"), "{said}");
    assert!(said.contains("add f32 of 2048: 3.00x of the plain loop"), "{said}");
    let said = place.refused(1, &["bench", "engine", "--table", "broken.json"]);
    assert!(said.contains("broken.json is not what `gatework bench engine --json` prints"), "{said}");
}

#[test]
fn answers_go_to_stdout_and_make_way_for_a_json_object() {
    let place = Place::new().trained();
    for (arguments, part) in [
        (&["inspect", "run"][..], "depth"),
        (&["evaluate", "run"], "wrong bits"),
        (&["simulate", "run"], "steps in"),
        (&["list"], "checkerboard"),
    ] {
        let output = place.gatework(arguments).assert().success().get_output().clone();
        assert!(String::from_utf8(output.stdout).unwrap().contains(part), "{arguments:?}");
        let output = place.gatework(arguments).arg("--json").assert().success().get_output().clone();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(serde_json::from_str::<serde_json::Value>(&text).is_ok(), "{arguments:?}: {text}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_answer_that_cannot_be_written_is_an_error_unless_nobody_reads_it() {
    use std::process::Stdio;
    let place = Place::new().trained();
    let program = assert_cmd::cargo::cargo_bin("gatework");
    for arguments in [
        &["inspect", "run"][..],
        &["inspect", "run", "--json"],
        &["list"],
        &["export", "run", "--to", "blif"],
    ] {
        let command = |stdout: Stdio| {
            let mut command = std::process::Command::new(&program);
            command.current_dir(place.path("")).args(arguments).stdout(stdout).output().unwrap()
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
fn a_study_writes_a_row_for_every_run_and_goes_on_where_it_was() {
    let place = Place::new();
    place.write(
        "study.toml",
        "experiment = \"small.toml\"\nseeds = 2\n[grid]\n\"training.updates\" = [3, 5]\n",
    );
    let first = place.json(&["study", "study.toml", "--out", "results"]);
    assert_eq!(first["settings"].as_array().unwrap().len(), 2);
    assert!(first["settings"][0]["runs"] == 2 && first["settings"][1]["setting"] == "updates 5");
    let rows = String::from_utf8(place.read("results/results.csv")).unwrap();
    assert_eq!(rows.lines().count(), 5);
    assert!(place.read("results/success.svg").starts_with(b"<svg"));
    // A row less, as if it had been stopped; the others stay as they are, to the microsecond.
    let kept: Vec<&str> = rows.lines().take(4).collect();
    place.write("results/results.csv", &kept.join("\n"));
    place.json(&["study", "study.toml", "--out", "results"]);
    let again = String::from_utf8(place.read("results/results.csv")).unwrap();
    assert_eq!(again.lines().take(4).collect::<Vec<_>>(), kept);
    assert_eq!(again.lines().count(), 5);
    // Foreign results are not overwritten.
    place.write("results/results.csv", "a,b\n1,2\n");
    place.gatework(&["study", "study.toml", "--out", "results"]).assert().code(1);
    assert_eq!(place.read("results/results.csv"), b"a,b\n1,2\n");
}

/// A peer for `bench all` whose Python is a shell: it prints what a script would.
const PEER: &str = r#"echo '{"bench":"engine","peer":"shell","version":"1","how":"by echo","results":
[{"op":"add","dtype":"f32","n":256,"threads":1,"ns":1e9}]}' | tr -d '\n'"#;

#[test]
fn bench_all_compares_with_peers_and_writes_a_report() {
    let place = Place::new();
    place.write("engine_shell.py", PEER);
    place.write("engine_broken.py", "echo no such module >&2; exit 1");
    let result = place.json(&[
        "bench",
        "all",
        "--bench",
        "engine",
        "--only",
        "add",
        "--quick",
        "--rounds",
        "2",
        "--threads",
        "1",
        "--peers",
        ".",
        "--python",
        "sh",
        "--report",
        "b.md",
    ]);
    let rows = result["comparisons"].as_array().unwrap();
    let shell: Vec<_> = rows.iter().filter(|row| row["peer"] == "shell").collect();
    assert_eq!(shell.len(), 1, "{rows:?}");
    assert!(shell[0]["ratio"].as_f64().unwrap() > 100.0);
    assert!(result["missing"]["engine: broken, 1 thread"].as_str().unwrap().ends_with("no such module"));
    assert_eq!(result["peers"]["engine: shell"]["how"], "by echo");
    let report = String::from_utf8(place.read("b.md")).unwrap();
    assert!(report.contains("| shell | engine: add f32, 256 | 1 |"), "{report}");
    assert!(report.contains("](b-engine-1.svg)"));
    assert!(place.path("b-engine-1.svg").exists() && place.path("b.json").exists());
}

/// A program for `bench all` that needs the cases of the benchmark.
#[cfg(unix)]
const PROGRAM: &str = r#"#!/bin/sh
while [ "$1" != --cases ]; do shift; done
grep -q losses "$2/forecast.json" || exit 3
echo '{"bench":"forecast","peer":"program","version":"1","how":"","results":[{"model":"dlinear 336-96, 7","train_32_ms":1e9}]}'
"#;

#[cfg(unix)]
#[test]
fn a_program_is_a_peer_and_finds_the_cases_of_the_benchmark() {
    use std::os::unix::fs::PermissionsExt as _;
    let place = Place::new();
    place.write("forecast_program", PROGRAM);
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path("forecast_program"), permissions).unwrap();
    let arguments = "bench all --bench forecast --only dlinear --quick --rounds 1 --threads 1 --peers .";
    let result = place.json(&arguments.split(' ').collect::<Vec<_>>());
    assert_eq!(result["missing"], serde_json::json!({}));
    let rows = result["comparisons"].as_array().unwrap();
    assert!(rows.len() == 1 && rows[0]["peer"] == "program", "{rows:?}");
}

#[test]
fn bench_all_runs_ours_where_no_peer_is() {
    let place = Place::new();
    let result = place.json(&[
        "bench",
        "all",
        "--bench",
        "engine",
        "--only",
        "exp",
        "--quick",
        "--rounds",
        "1",
        "--threads",
        "1",
    ]);
    assert_eq!(result["comparisons"].as_array().unwrap().len(), 0);
    assert!(!result["rows"].as_array().unwrap().is_empty());
    assert_eq!(result["missing"]["engine: peers"], "no engine_* in benches/peers");
    let refused = place.refused(2, &["bench", "all", "--bench", "engines"]);
    assert!(refused.contains("there are automata, circuits, engine, forecast"), "{refused}");
}
