//! Processor time: what a computation takes, however busy the machine is with others.

use std::time::Instant;

/// A stopwatch of one thread.
pub struct Stopwatch {
    begin: Instant,
    /// Seconds of the processor at the start, if the system tells.
    processor: Option<f64>,
}

impl Stopwatch {
    pub fn start() -> Stopwatch {
        Stopwatch { begin: Instant::now(), processor: processor_seconds() }
    }

    /// Seconds on the clock.
    pub fn seconds(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Seconds that this thread had a processor; those on the clock where the system does not tell.
    pub fn processor_seconds(&self) -> f64 {
        let passed = processor_seconds().zip(self.processor).map(|(now, then)| now - then);
        passed.unwrap_or_else(|| self.seconds())
    }
}

/// Seconds that the current thread has had a processor so far (Linux only).
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
    fn sleeping_takes_no_processor() {
        let stopwatch = Stopwatch::start();
        std::thread::sleep(Duration::from_millis(20));
        assert!(stopwatch.seconds() >= 0.02);
        assert!(stopwatch.processor_seconds() < stopwatch.seconds() || stopwatch.processor.is_none());
    }
}
