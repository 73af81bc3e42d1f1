//! CPU time and resident memory of this process, as Linux gives them.

use std::time::Instant;

/// A stopwatch for the current thread.
pub struct Stopwatch {
    begin: Instant,
    /// CPU time at the start in seconds, if known.
    processor: Option<f64>,
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch { begin: Instant::now(), processor: processor_seconds() }
    }

    /// Returns the elapsed time in seconds.
    pub fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Returns the CPU time of this thread in seconds; the elapsed time where it is unknown.
    pub fn processor_seconds(&self) -> f64 {
        let passed = processor_seconds().zip(self.processor).map(|(now, then)| now - then);
        passed.unwrap_or_else(|| self.seconds())
    }
}

/// Returns the CPU time of the current thread in seconds (Linux only).
fn processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    let nanoseconds: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(nanoseconds / 1e9)
}

/// Returns the CPU time of all threads of this process in seconds, also of those that have ended (Linux only).
pub fn all_processor_seconds() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in brackets, may contain spaces. User and system time are fields 14 and 15.
    let fields = text.rsplit_once(')')?.1.split_whitespace();
    let ticks = fields.skip(11).take(2).map(str::parse::<f64>).sum::<Result<f64, _>>().ok()?;
    // Linux reports hundredths of a second to programs, whatever its own clock.
    Some(ticks / 100.0)
}

/// Resets the peak of resident memory, where the system can.
pub fn reset_peak() {
    // Linux only; elsewhere the peak is unknown.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// Returns the peak of resident memory in MB, if known.
pub fn peak_memory() -> Option<f64> {
    status("VmHWM:")
}

/// Returns the resident memory in MB, if known.
pub fn resident_memory() -> Option<f64> {
    status("VmRSS:")
}

fn status(key: &str) -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    let kilobytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024.0 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn sleeping_takes_no_cpu_time() {
        let stopwatch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(20));
        assert!(stopwatch.seconds() >= 0.02);
        assert!(stopwatch.processor_seconds() < stopwatch.seconds() || stopwatch.processor.is_none());
    }
}
