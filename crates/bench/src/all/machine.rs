//! Facts about the machine and the program that figures depend on.

use std::process::Command;

use gatework_engine::kernel;
use serde_json::{Value, json};

/// The machine and the program.
#[derive(Debug)]
pub struct Machine {
    pub processor: String,
    pub cores: usize,
    pub simd: &'static str,
    /// Load average of the last minute, before the measurement.
    pub load: Option<f64>,
    /// Version of the program, and commit of the current directory.
    pub version: String,
}

impl Machine {
    /// Describes this machine.
    pub fn detect() -> Machine {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let commit = Command::new("git").args(["describe", "--always", "--dirty"]).output();
        let commit = commit.ok().filter(|output| output.status.success());
        let commit = commit.map(|output| format!(" ({})", String::from_utf8_lossy(&output.stdout).trim()));
        Machine {
            processor: processor(&read("/proc/cpuinfo"))
                .unwrap_or_else(|| std::env::consts::ARCH.to_string()),
            cores: gatework::cli::threads(None),
            simd: kernel::simd_name(),
            load: read("/proc/loadavg").split_whitespace().next().and_then(|load| load.parse().ok()),
            version: format!("{}{}", env!("CARGO_PKG_VERSION"), commit.unwrap_or_default()),
        }
    }

    pub fn json(&self) -> Value {
        json!({
            "processor": self.processor, "cores": self.cores, "simd": self.simd, "load": self.load,
            "version": self.version,
        })
    }
}

/// Returns the name of the first processor in `/proc/cpuinfo`.
fn processor(text: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_has_the_name_that_the_system_gives() {
        assert_eq!(
            processor("flags : a\nmodel name\t: Some CPU @ 2 GHz\nmodel name : b"),
            Some("Some CPU @ 2 GHz".into())
        );
        assert_eq!(processor(""), None);
    }
}
