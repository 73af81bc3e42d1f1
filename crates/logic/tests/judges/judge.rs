//! External programs, and temporary folders for their files.

use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// An external program.
pub struct Judge(&'static str);

impl Judge {
    /// Finds a program, or prints that it is not installed.
    pub fn find(name: &'static str, version: &str) -> Option<Judge> {
        let found = Command::new(name).arg(version).output().is_ok();
        if !found {
            // The test harness captures eprintln! and shows it for failures only.
            let _ = writeln!(std::io::stderr(), "skipped: {name} is not installed");
            let required = std::env::var("GATEWORK_JUDGES").is_ok_and(|value| value == "required");
            assert!(!required, "{name} is required but not installed");
        }
        found.then_some(Judge(name))
    }

    /// Finds a program that no package provides, and that is never required.
    pub fn find_optional(name: &'static str) -> Option<Judge> {
        Command::new(name).output().is_ok().then_some(Judge(name))
    }

    /// Runs the program in a folder and returns its output; panics if it fails.
    pub fn run(&self, folder: &Folder, arguments: &[&str]) -> String {
        self.run_with_status(folder, arguments, 0)
    }

    /// Runs the program in a folder and returns its output; panics if its exit status is another one.
    pub fn run_with_status(&self, folder: &Folder, arguments: &[&str], status: i32) -> String {
        let output = Command::new(self.0).args(arguments).current_dir(folder.path()).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(status), "{} {arguments:?}:\n{text}", self.0);
        text
    }
}

/// A temporary folder.
pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(name), bytes).unwrap();
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path().join(name)).unwrap()
    }
}
