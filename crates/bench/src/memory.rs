//! Current and peak resident memory of this process.

/// Resets the peak of resident memory, where the system can.
pub fn reset_peak() {
    // Linux only; elsewhere the peak is unknown.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Returns the peak of resident memory in MB, if known.
pub fn peak() -> Option<f64> {
    status("VmHWM:")
}

/// Returns the resident memory in MB, if known.
pub fn resident() -> Option<f64> {
    status("VmRSS:")
}

fn status(key: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}
