//! External programs, and temporary folders for their files.

use std::io::Write as _;
use std::path::{Path, PathBuf};
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

    /// Runs the program in a folder and returns its output; panics if it fails.
    pub fn run(&self, folder: &Path, arguments: &[&str]) -> String {
        let output = Command::new(self.0).args(arguments).current_dir(folder).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}:\n{text}", self.0);
        text
    }
}

/// A temporary folder.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("gatework-judges-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.0.join(name), bytes).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
