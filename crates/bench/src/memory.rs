//! Memory that the program uses, and the most that it has used.

/// Starts counting the largest resident memory anew, where the system can.
pub fn reset_peak() {
    // Linux only; elsewhere the peak is that of the whole program so far, or unknown.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Largest resident memory in MB, if the system tells.
pub fn peak() -> Option<f64> {
    status("VmHWM:")
}

/// Resident memory in MB, if the system tells.
pub fn resident() -> Option<f64> {
    status("VmRSS:")
}

fn status(key: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}
