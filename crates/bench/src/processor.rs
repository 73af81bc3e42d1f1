//! CPU time, which does not depend on the load of the machine.

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
