//! Programs that may be installed, and folders for their files.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that may be installed.
pub struct Judge(&'static str);

impl Judge {
    /// Finds a program, or says that it is missing.
    pub fn find(name: &'static str, version: &str) -> Option<Judge> {
        let found = Command::new(name).arg(version).output().is_ok();
        if !found {
            // Not with eprintln!, which the test harness shows only for failures.
            let _ =
                writeln!(std::io::stderr(), "skipped: the judge {name} is not installed; nothing was judged");
            let required = std::env::var("GATEWORK_JUDGES").is_ok_and(|value| value == "required");
            assert!(!required, "the judge {name} is required but not installed");
        }
        found.then_some(Judge(name))
    }

    /// Runs the program in a folder and returns what it prints; it must succeed.
    pub fn run(&self, folder: &Path, arguments: &[&str]) -> String {
        let output = Command::new(self.0).args(arguments).current_dir(folder).output().unwrap();
        let text =
            String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}:\n{text}", self.0);
        text
    }
}

/// A folder that is removed again.
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
