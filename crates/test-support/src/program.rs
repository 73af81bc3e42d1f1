//! Whole-program tests: a folder that a program runs in, data and assertions.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};

use assert_cmd::Command;
use serde_json::Value;

/// A temporary folder that a program runs in. Spaces separate the arguments of the program.
pub struct Place {
    program: &'static str,
    folder: tempfile::TempDir,
}

/// # Panics
/// If the program or a file is not as expected.
impl Place {
    /// Makes an empty folder for a program of the package that is tested.
    pub fn new(program: &'static str) -> Place {
        Place { program, folder: tempfile::tempdir().unwrap() }
    }

    /// Makes an empty folder in memory, where that is possible: it is faster than a disk.
    pub fn in_memory(program: &'static str) -> Place {
        let folder = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
        Place { program, folder }
    }

    /// Adds the table of [`sales`] and an experiment on it.
    #[must_use]
    pub fn with_sales(self) -> Place {
        self.write("sales.csv", &sales());
        self.write("sales.toml", SALES);
        self
    }

    /// Returns the path of a file; of the folder if the name is empty.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: &(impl AsRef<[u8]> + ?Sized)) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Reads a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        let path = self.path(name);
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Reads a text file.
    pub fn text(&self, name: &str) -> String {
        String::from_utf8(self.read(name)).unwrap()
    }

    /// Returns the path of the program.
    pub fn program(&self) -> PathBuf {
        assert_cmd::cargo::cargo_bin(self.program)
    }

    /// Returns the program with arguments, in the folder.
    pub fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(self.program());
        command.current_dir(self.folder.path()).args(arguments.split_whitespace());
        command
    }

    /// Starts the program in the background.
    pub fn spawn(&self, arguments: &str, stderr: Stdio) -> Child {
        let mut command = std::process::Command::new(self.program());
        command
            .current_dir(self.folder.path())
            .args(arguments.split_whitespace())
            .stdout(Stdio::null())
            .stderr(stderr);
        command.spawn().unwrap()
    }

    /// Runs and expects success.
    pub fn run(&self, arguments: &str) -> Output {
        self.command(arguments).assert().success().get_output().clone()
    }

    /// Runs, expects success and returns what is printed on stdout.
    pub fn stdout(&self, arguments: &str) -> String {
        String::from_utf8(self.run(arguments).stdout).unwrap()
    }

    /// Runs, expects success and returns the messages on stderr.
    pub fn stderr(&self, arguments: &str) -> String {
        String::from_utf8(self.run(arguments).stderr).unwrap()
    }

    /// Runs, expects success and returns the JSON object of the last line.
    pub fn json(&self, arguments: &str) -> Value {
        let output = self.command(arguments).arg("--json").assert().success().get_output().clone();
        let text = String::from_utf8(output.stdout).unwrap();
        serde_json::from_str(text.lines().last().unwrap()).unwrap()
    }

    /// Runs, expects this exit status and nothing on stdout, and returns the messages on stderr.
    pub fn refused(&self, status: i32, arguments: &str) -> String {
        let output = self.command(arguments).assert().code(status).get_output().clone();
        assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
        String::from_utf8(output.stderr).unwrap()
    }
}

/// An experiment on the table of [`sales`].
pub const SALES: &str = "
name = 'sales'
task = 'forecaster'
data = 'sales.csv'
model = 'nlinear'
horizon = 7
input = 14
season = 7

[split]
validation = 14
test = 14

[training]
epochs = 20
learning_rate = 0.01
";

/// Returns a table of two series of 80 days with a season of a week, as CSV.
pub fn sales() -> String {
    let mut text = String::from("unique_id,ds,y\n");
    for (id, base, days) in [("north", 100, 80), ("south, small", 20, 80)] {
        for day in 0..days {
            let _ = writeln!(text, "\"{id}\",{day},{}", base + day + 10 * (day % 7));
        }
    }
    text
}

/// Asserts that a message has all of these parts and is not of a panic.
///
/// # Panics
/// If it is not so.
pub fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} is missing in: {said}");
    }
    assert!(!said.contains("panicked"), "{said}");
}
