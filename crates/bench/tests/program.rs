//! Whole-program tests of `gatework-bench`.

use gatework_forecast::data::Subset;
use gatework_forecast::evaluation::unwatched;
use gatework_forecast::run::{ForecastRun, scaled_score};
use gatework_test_support::program::{Place, SALES, assert_says};

fn place() -> Place {
    Place::new("gatework-bench")
}

#[test]
fn runs_a_network_natively_and_portably() {
    let place = place();
    let result = place.json("circuits --only network-10k --seconds 0.05");
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
fn reports_every_experiment_for_one_thread_and_all() {
    let place = place();
    let only = "--only game-of-life --only checkerboard";
    let result = place.json(&format!("automata --seconds 0.01 --threads 2 {only}"));
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
fn engine_measures_every_type_and_the_plain_loops() {
    let place = place();
    let result = place.json("engine --quick --only add --threads 1");
    assert_eq!(result["bench"], "engine");
    assert!(result["cliffs"].is_array());
    let rows = result["results"].as_array().unwrap();
    for dtype in ["f32", "f64", "i32", "i64"] {
        assert_eq!(rows.iter().filter(|row| row["dtype"] == dtype).count(), 4, "four lengths of {dtype}");
    }
    assert!(rows.iter().all(|row| row["ns_per_element"].as_f64().is_some_and(|time| time > 0.0)));
    assert!(rows.iter().all(|row| row["plain_ns"].is_f64() == (row["dtype"] == "f32")));
}

/// A table of `gatework-bench engine`: the time of an element at each length, all within the first cache.
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
fn engine_fails_on_a_table_with_a_cliff() {
    let place = place();
    place.write("smooth.json", &engine_table(&[(256, 0.11), (1024, 0.1), (2048, 0.1)]));
    place.write("cliff.json", &engine_table(&[(256, 0.1), (1024, 0.1), (2048, 0.3)]));
    place.write("broken.json", "{}");
    let smooth = place.json("engine --table smooth.json --check");
    assert_eq!(smooth["cliffs"], serde_json::json!([]));
    let check = place.command("engine --table cliff.json --check").assert().code(1);
    let said = String::from_utf8(check.get_output().stdout.clone()).unwrap();
    assert!(said.contains("add f32, threads: 1: 3.00x from 1024 to 2048"), "{said}");
    assert!(said.contains("add f32 of 2048: 3.00x the time of the plain loop"), "{said}");
    let said = place.refused(1, "engine --table broken.json");
    assert_says(&said, &["broken.json is not an output of `gatework-bench engine --json`"]);
}

/// A peer for `gatework-bench all` whose Python is a shell: it prints what a script would.
const PEER: &str = r#"echo '{"bench":"engine","peer":"shell","version":"1","how":"by echo","results":
[{"op":"add","dtype":"f32","n":256,"threads":1,"ns":1e9}]}' | tr -d '\n'"#;

#[test]
fn all_compares_with_peers_and_writes_a_report() {
    let place = place();
    place.write("engine_shell.py", PEER);
    place.write("engine_broken.py", "echo no such module >&2; exit 1");
    let quick = "all --bench engine --only add --quick --rounds 2 --threads 1";
    let result = place.json(&format!("{quick} --peers . --python sh --report b.md"));
    let rows = result["comparisons"].as_array().unwrap();
    let shell: Vec<_> = rows.iter().filter(|row| row["peer"] == "shell").collect();
    assert_eq!(shell.len(), 1, "{rows:?}");
    assert!(shell[0]["ratio"].as_f64().unwrap() > 100.0);
    assert!(result["missing"]["engine: broken, 1 thread"].as_str().unwrap().ends_with("no such module"));
    assert_eq!(result["peers"]["engine: shell"]["how"], "by echo");
    let report = place.text("b.md");
    assert!(report.contains("| shell | engine: add f32, 256 | 1 |"), "{report}");
    assert!(report.contains("](b-engine-1.svg)"));
    assert!(place.path("b-engine-1.svg").exists() && place.path("b.json").exists());
}

/// A program for `gatework-bench all` that needs the cases of the benchmark.
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
    let place = place();
    place.write("forecast_program", PROGRAM);
    let permissions = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(place.path("forecast_program"), permissions).unwrap();
    let result = place.json("all --bench forecast --only dlinear --quick --rounds 1 --threads 1 --peers .");
    assert_eq!(result["missing"], serde_json::json!({}));
    let rows = result["comparisons"].as_array().unwrap();
    assert!(rows.len() == 1 && rows[0]["peer"] == "program", "{rows:?}");
}

#[test]
fn all_runs_ours_where_no_peer_is() {
    let place = place();
    let result = place.json("all --bench engine --only exp --quick --rounds 1 --threads 1");
    assert_eq!(result["comparisons"].as_array().unwrap().len(), 0);
    assert!(!result["rows"].as_array().unwrap().is_empty());
    assert_eq!(result["missing"]["engine: peers"], "no engine_* in crates/bench/peers");
    let refused = place.refused(2, "all --bench engines");
    let right =
        "no benchmark is called engines; expected one of automata, circuits, classifiers, engine, forecast";
    assert_says(&refused, &[right]);
}

#[test]
fn an_unknown_experiment_is_refused() {
    let place = place();
    assert_says(&place.refused(2, "automata --only chess"), &["no experiment \"chess\""]);
}

#[test]
fn a_report_that_cannot_be_written_is_refused_before_anything_is_measured() {
    let place = place();
    std::fs::create_dir(place.path("folder")).unwrap();
    place.write("file", "");
    for bench in ["all", "scaling"] {
        let said = place.refused(2, &format!("{bench} --report folder"));
        assert_says(&said, &["--report needs a file name, not folder"]);
        let said = place.refused(1, &format!("{bench} --report file/below/report.md"));
        assert_says(&said, &["cannot create the folder file/below"]);
    }
}

#[test]
fn a_table_of_published_figures_is_made_once_and_can_be_extended() {
    let place = place().with_sales();
    let published = "published = [{ horizon = 7, mse = 0.5, mae = 0.5 }, { horizon = 3, mse = 0.1, mae = 0.5 }]\n\n[split]";
    place.write("one.toml", &SALES.replace("[split]", published).replace("'sales'", "'one'"));
    let owa = "published = [{ horizon = 7, owa = 0.5 }]\n\n[split]";
    place.write("two.toml", &SALES.replace("[split]", owa).replace("'sales'", "'two'"));
    let table = |seeds: &str| place.json(&format!("accuracy one.toml two.toml --out tables --seeds {seeds}"));
    let rows = table("1");
    assert_eq!(rows["rows"].as_array().unwrap().len(), 3);
    let first = std::fs::metadata(place.path("tables/one-7-1/summary.json")).unwrap().modified().unwrap();
    let rows = table("2");
    let again = std::fs::metadata(place.path("tables/one-7-1/summary.json")).unwrap().modified().unwrap();
    assert_eq!(first, again, "finished runs are not repeated");
    let names: Vec<&str> =
        rows["rows"].as_array().unwrap().iter().map(|row| row["experiment"].as_str().unwrap()).collect();
    assert_eq!(names, ["one", "one", "two", "median of 2"]);
    assert_eq!((&rows["rows"][0]["horizon"], &rows["rows"][0]["seeds"]), (&3.into(), &2.into()));
    let csv = place.text("tables/accuracy.csv");
    assert_eq!(csv.lines().count(), 1 + 2 * 2 + 1 + 1, "{csv}");
    // A new evaluation of the trained model finds the same error.
    let run = ForecastRun::open(&place.path("tables/one-7-1")).unwrap().unwrap();
    let dataset = run.dataset().unwrap();
    let scaled = scaled_score(&run.forecaster, &dataset, Subset::Test, &unwatched).unwrap().unwrap();
    assert_eq!(rows["rows"][1]["figures"][0]["values"][0], scaled.mse);
    place.write(
        "one.toml",
        &SALES.replace("[split]", published).replace("'sales'", "'one'").replace("20", "21"),
    );
    let changed = place.refused(2, "accuracy one.toml --out tables");
    assert_says(&changed, &["the experiment has changed since this run; remove its folder to train again"]);
    let without = place.refused(2, "accuracy sales.toml --out tables");
    assert_says(&without, &["sales.toml has no published figures"]);
}
