//! Whole-program tests of the binary `gatework`.

mod export;
mod faults;
mod forecasts;
mod minimize;
mod mistakes;
mod mutation;
mod runs;
mod verbs;

use std::path::Path;

use assert_cmd::Command;
use gatework_test_support::program::assert_says;

/// A small experiment that trains in well under a second: noise into a checkerboard of single cells.
const SMALL: &str = r#"
name = "small"
task = "automaton"

[automaton]
channels = 4
boundary = "torus"
grid = [9, 10]
steps = 3

[perceive]
kernels = 3
layers = [9, 8, 4, 2]

[update]
layers = [28, 24, 12, 8, 4]

[start]
kind = "random"

[target]
kind = "checkerboard"

[training]
recipe = "paper"
updates = 60
batch = 3
learning_rate = 0.05
restarts = 1
checkpoint_seconds = 0.0

[[evaluate]]
name = "larger"
grid = [20, 31]
steps = 6

[[evaluate]]
name = "storm"
grid = [16, 16]
steps = 20
fire_rate = 0.5
damage = { kind = "random", size = 5 }
"#;

/// A temporary folder that the program runs in, with `small.toml`.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        let place = Place { folder: tempfile::tempdir().unwrap() };
        place.write("small.toml", SMALL);
        place
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    fn gatework(&self, arguments: &[&str]) -> Command {
        let mut command = Command::cargo_bin("gatework").unwrap();
        command.current_dir(self.folder.path()).args(arguments);
        command
    }

    /// Runs, expects success and returns the JSON object of the last line.
    fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let output = self.gatework(arguments).arg("--json").assert().success().get_output().clone();
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }

    /// Runs, expects this exit status and returns the messages on stderr.
    fn refused(&self, status: i32, arguments: &[&str]) -> String {
        let output = self.gatework(arguments).assert().code(status).get_output().clone();
        assert!(output.stdout.is_empty(), "nothing on stdout: {arguments:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Trains the small experiment into `run`.
    fn trained(self) -> Place {
        self.gatework(&["train", "small.toml", "--seed", "1", "--out", "run"]).assert().success();
        self
    }
}

/// True if nothing under a folder has a temporary name.
fn is_clean(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().all(|entry| {
        let path = entry.unwrap().path();
        path.extension().is_none_or(|e| e != "part") && (!path.is_dir() || is_clean(&path))
    })
}

/// Waits for a condition while a program runs.
///
/// # Panics
/// If the program ends before the condition is true, or after ten minutes.
fn wait_for(child: &mut std::process::Child, come_about: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !come_about() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() || come_about(), "ended before what was waited for: {ended:?}");
        if begin.elapsed().as_secs() > 600 {
            child.kill().unwrap();
            panic!("what was waited for never came about");
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
