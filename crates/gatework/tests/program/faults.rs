//! Faults: the program is killed, or gets an error, at each call that changes the file system. A run must then resume to the same
//! bytes as an undisturbed one, and a file must have its old content or the new.
//!
//! The calls are intercepted by a preload library that `cc` compiles (`faults.c`), on Linux. `GATEWORK_FAULTS=N` makes runs so
//! long that each has at least N calls, which takes minutes.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use gatework_test_support::program::{SALES, sales};

use crate::{Place, SMALL, is_clean};

/// Error numbers of Linux.
const EIO: &str = "5";
const ENOSPC: &str = "28";

/// Compiles the preload library; `None`, with a message, where that is not possible.
fn library(folder: &Path) -> Option<PathBuf> {
    let required = std::env::var("GATEWORK_JUDGES").is_ok_and(|value| value == "required");
    if !cfg!(target_os = "linux") {
        eprintln!("skipped: calls are intercepted on Linux only");
        return None;
    }
    let path = folder.join("faults.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/program/faults.c");
    let compiled = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&path).arg(source).status();
    match compiled {
        Ok(status) => assert!(status.success(), "cc cannot compile {source}"),
        Err(error) => {
            assert!(!required, "cc is required: {error}");
            eprintln!("skipped: there is no C compiler ({error})");
            return None;
        }
    }
    Some(path)
}

/// What is run, and what is compared.
struct Scenario {
    name: &'static str,
    /// Prepares a folder.
    prepare: fn(&Place),
    /// The arguments of the program.
    arguments: &'static str,
    /// What is added after a fault.
    resume: &'static str,
    /// The files to compare.
    files: &'static [&'static str],
}

const AUTOMATON: &[&str] = &[
    "model.safetensors",
    "circuit.json",
    "metrics.csv",
    "experiment.toml",
    "rollout.gif",
    "loss.svg",
    "gates.svg",
];

fn number_of_faults() -> usize {
    std::env::var("GATEWORK_FAULTS").ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}

/// A small experiment with a checkpoint after each of a few updates.
fn small() -> String {
    let updates = 3 + number_of_faults() / 6;
    SMALL.replace("updates = 60", &format!("updates = {updates}")).replace("grid = [9, 10]", "grid = [5, 6]")
}

static SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "automaton",
        prepare: |place| place.write("small.toml", &small()),
        arguments: "train small.toml --out runs/run",
        resume: "--resume",
        files: AUTOMATON,
    },
    Scenario {
        name: "automaton that replaces another, with a picture",
        prepare: |place| {
            place.write("picture.txt", &"#.#.#.\n".repeat(5));
            let text = small().replace("kind = \"checkerboard\"", "kind = \"text\"\nfile = \"picture.txt\"");
            place.write("small.toml", &text.replace("updates = ", "updates = 1 # "));
            place.run("train small.toml --seed 9 --out runs/run");
            std::fs::copy(place.path("runs/run/model.safetensors"), place.path("first.safetensors")).unwrap();
        },
        arguments: "train small.toml --seed 1 --out runs/run --force",
        resume: "",
        files: AUTOMATON,
    },
    Scenario {
        name: "search",
        prepare: |place| {
            let text = small().replace("recipe = \"paper\"", "recipe = \"search\"");
            let search = "\n[search]\nafter = 2\nmoves = 20\ntemperature = [1.0, 0.2]\n\n[[evaluate]]";
            place.write("small.toml", &text.replacen("[[evaluate]]", search, 1));
        },
        arguments: "train small.toml --seed 1 --out runs/run",
        resume: "--resume",
        files: AUTOMATON,
    },
    Scenario {
        name: "forecaster",
        prepare: |place| {
            place.write("sales.csv", &sales());
            place.write("sales.toml", &SALES.replace("epochs = 20", "epochs = 2"));
        },
        arguments: "train sales.toml --seeds 2 --threads 1 --out runs/run",
        resume: "--resume",
        files: &["model.safetensors", "metrics.csv", "experiment.toml", "forecast.svg", "loss.svg"],
    },
    Scenario {
        name: "minimisation",
        prepare: trained,
        arguments: "minimize runs/run --effort fast",
        resume: "",
        files: &["minimized.json"],
    },
    Scenario {
        name: "export",
        prepare: |place| {
            trained(place);
            place.write("runs/run/rule.v", "old content");
        },
        arguments: "export runs/run -o runs/run/rule.v",
        resume: "",
        files: &["rule.v"],
    },
    Scenario {
        name: "simulation",
        prepare: trained,
        arguments: "simulate runs/run --size 8x8 --steps 3 --gif runs/run/big.gif",
        resume: "",
        files: &["big.gif"],
    },
];

fn trained(place: &Place) {
    place.write("small.toml", &small().replace("updates = ", "updates = 2 # "));
    place.run("train small.toml --seed 1 --out runs/run");
}

/// Runs the program with the preload library.
fn run(place: &Place, library: &Path, arguments: &str, variables: &[(&str, &str)]) -> std::process::Output {
    let mut command = place.command(arguments);
    command.env("LD_PRELOAD", library).envs(variables.iter().copied()).output().unwrap()
}

fn copy_folder(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            std::fs::create_dir(&target).unwrap();
            copy_folder(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// A scenario that is prepared, and the result of an undisturbed run.
struct Prepared {
    scenario: &'static Scenario,
    template: Place,
    whole: Vec<Vec<u8>>,
}

impl Prepared {
    /// Prepares a scenario and runs it without a fault. Returns it with the number of calls.
    fn new(scenario: &'static Scenario, library: &Path) -> (Prepared, usize) {
        let template = Place::in_memory("gatework");
        (scenario.prepare)(&template);
        let mut prepared = Prepared { scenario, template, whole: Vec::new() };
        let place = prepared.place();
        let count = place.path("count").display().to_string();
        let output = run(&place, library, scenario.arguments, &[("FAULT_COUNT", &*count)]);
        assert!(output.status.success(), "{}: {}", scenario.name, String::from_utf8_lossy(&output.stderr));
        prepared.whole = scenario.result(&place);
        let calls = String::from_utf8(place.read("count")).unwrap().trim().parse().unwrap();
        assert!(calls >= 4, "{}: only {calls} calls are intercepted", scenario.name);
        (prepared, calls)
    }

    fn place(&self) -> Place {
        let place = Place::in_memory("gatework");
        copy_folder(&self.template.path(""), &place.path(""));
        place
    }
}

impl Scenario {
    /// The content of the files, and the summary without times.
    fn result(&self, place: &Place) -> Vec<Vec<u8>> {
        let read = |name: &&str| {
            let content = place.read(&format!("runs/run/{name}"));
            if *name != "experiment.toml" {
                return content;
            }
            // The path of a table is absolute, and each run has a folder of its own.
            let folder = place.path("").canonicalize().unwrap().display().to_string();
            String::from_utf8(content).unwrap().replace(&folder, "").into_bytes()
        };
        let mut contents: Vec<Vec<u8>> = self.files.iter().map(read).collect();
        let mut summary: serde_json::Value =
            serde_json::from_slice(&place.read("runs/run/summary.json")).unwrap();
        for key in ["seconds", "total_seconds"] {
            summary[key] = 0.into();
        }
        contents.push(summary.to_string().into_bytes());
        contents
    }

    /// Runs the program with a fault at a call, again with and without it, and compares. Returns whether the call was reached.
    fn check(&self, prepared: &Prepared, library: &Path, call: usize, fault: &str) -> bool {
        let context = format!("{}, {fault} at call {call}", self.name);
        let place = prepared.place();
        let variables = [("FAULT_AT", &*call.to_string()), ("FAULT", fault)];
        let output = run(&place, library, self.arguments, &variables);
        let said = String::from_utf8_lossy(&output.stderr);
        let is_reached = match output.status.code() {
            None => fault == "kill",
            // What is not essential may fail without an effect.
            Some(0) => fault != "kill",
            status => {
                assert!(status == Some(1) && said.contains("error: cannot "), "{context}: {said}");
                true
            }
        };
        let again = [self.arguments, self.resume].join(" ");
        // The second run may reach the same call, or end before it.
        run(&place, library, &again, &variables);
        let output = run(&place, library, &again, &[]);
        assert!(output.status.success(), "{context}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(self.result(&place) == prepared.whole, "{context}: the result is another");
        // Other commands may leave a temporary file when they are killed.
        let is_run = self.arguments.starts_with("train");
        assert!(!is_run || is_clean(&place.path("")), "{context}: a temporary file is left");
        if self.arguments.contains("--force") {
            let first = place.read("first.safetensors");
            let mut runs = std::fs::read_dir(place.path("runs")).unwrap().map(|run| run.unwrap().path());
            let is_first =
                |run: PathBuf| std::fs::read(run.join("model.safetensors")).is_ok_and(|model| model == first);
            assert!(runs.any(is_first), "{context}: the run that was replaced is lost");
        }
        is_reached
    }
}

#[test]
fn a_fault_at_any_call_loses_nothing_and_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let Some(library) = library(folder.path()) else { return };
    let prepared: Vec<_> = SCENARIOS.iter().map(|scenario| Prepared::new(scenario, &library)).collect();
    let mut cases = Vec::new();
    for (prepared, calls) in &prepared {
        for call in 1..=*calls {
            let error = if call % 2 == 0 { ENOSPC } else { EIO };
            cases.extend(["kill", error].map(|fault| (prepared, call, fault)));
        }
    }
    let (next, reached) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((prepared, call, fault)) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
                    let is_reached = prepared.scenario.check(prepared, &library, *call, fault);
                    reached.fetch_add(usize::from(is_reached), Ordering::SeqCst);
                }
            });
        }
    });
    // A slow machine may write more checkpoints in the run that counts the calls than in others.
    let (reached, faults) = (reached.into_inner(), cases.len());
    eprintln!("{reached} of {faults} faults were reached");
    assert!(reached >= faults - faults / 20, "only {reached} of {faults} faults were reached");
}
