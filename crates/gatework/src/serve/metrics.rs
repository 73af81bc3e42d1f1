//! Counters in the text format of Prometheus.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

/// Upper bounds of the buckets of the response time, in seconds.
const BOUNDS: [f64; 10] = [0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 2.5, 10.0];

/// What the server has done so far.
#[derive(Debug)]
pub struct Metrics {
    begin: Instant,
    /// Requests by the first digit of their status.
    requests: [AtomicU64; 6],
    buckets: [AtomicU64; BOUNDS.len()],
    nanoseconds: AtomicU64,
    shed: AtomicU64,
    predictions: AtomicU64,
}

impl Metrics {
    pub fn new(begin: Instant) -> Metrics {
        Metrics {
            begin,
            requests: Default::default(),
            buckets: Default::default(),
            nanoseconds: AtomicU64::new(0),
            shed: AtomicU64::new(0),
            predictions: AtomicU64::new(0),
        }
    }

    /// Counts a response.
    pub fn count(&self, status: StatusCode, time: Duration) {
        self.requests[usize::from(status.as_u16() / 100).min(5)].fetch_add(1, Relaxed);
        self.nanoseconds.fetch_add(time.as_nanos() as u64, Relaxed);
        if let Some(bucket) = BOUNDS.iter().position(|bound| time.as_secs_f64() <= *bound) {
            self.buckets[bucket].fetch_add(1, Relaxed);
        }
    }

    /// Counts a request or connection that was refused because of the load.
    pub fn count_shed(&self) {
        self.shed.fetch_add(1, Relaxed);
    }

    /// Counts rows or series that were predicted.
    pub fn count_predictions(&self, count: usize) {
        self.predictions.fetch_add(count as u64, Relaxed);
    }

    /// Returns the text for Prometheus.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let mut metric = |name: &str, kind: &str, help: &str, lines: &[(String, String)]| {
            let _ = writeln!(text, "# HELP gatework_{name} {help}\n# TYPE gatework_{name} {kind}");
            for (labels, value) in lines {
                let _ = writeln!(text, "gatework_{name}{labels} {value}");
            }
        };
        let read = |counter: &AtomicU64| counter.load(Relaxed).to_string();
        let classes = self.requests.iter().enumerate().skip(1);
        let requests: Vec<_> =
            classes.map(|(class, count)| (format!("{{status=\"{class}xx\"}}"), read(count))).collect();
        metric("requests_total", "counter", "Responses by class of status.", &requests);
        let single = |value: String| [(String::new(), value)];
        metric(
            "shed_total",
            "counter",
            "Requests and connections refused because of the load.",
            &single(read(&self.shed)),
        );
        metric(
            "predictions_total",
            "counter",
            "Rows classified and series forecast.",
            &single(read(&self.predictions)),
        );
        let seconds = self.begin.elapsed().as_secs_f64();
        metric(
            "uptime_seconds",
            "gauge",
            "Time since the server was started.",
            &single(format!("{seconds:.3}")),
        );
        let mut sum = 0;
        let buckets = BOUNDS.iter().zip(&self.buckets).map(|(bound, count)| {
            sum += count.load(Relaxed);
            (format!("_bucket{{le=\"{bound}\"}}"), sum.to_string())
        });
        let mut lines: Vec<_> = buckets.collect();
        let all: u64 = self.requests.iter().map(|count| count.load(Relaxed)).sum();
        lines.push(("_bucket{le=\"+Inf\"}".into(), all.to_string()));
        lines.push(("_sum".into(), format!("{:.6}", self.nanoseconds.load(Relaxed) as f64 / 1e9)));
        lines.push(("_count".into(), all.to_string()));
        metric("response_seconds", "histogram", "Time from a request to its response.", &lines);
        text
    }
}
