//! Rows of `gatework bench circuits` for minimising large random networks with something to save: time, memory, and how both grow.

use std::time::Instant;

use anyhow::ensure;
use gatework_logic::minimize::{self, Options};
use gatework_logic::prove::{self, Verdict};
use serde_json::{Value, json};

use super::networks::local_network;
use super::{Circuits, push};
use crate::cli::bench::memory;

/// The networks, from small to large; the last one only if it is asked for.
const SIZES: [(&str, usize); 3] =
    [("minimize-10k", 10_000), ("minimize-100k", 100_000), ("minimize-1m", 1_000_000)];

impl Circuits {
    /// Minimises random networks on one thread and proves the results.
    pub(super) fn minimize(&self, results: &mut Vec<Value>) -> anyhow::Result<()> {
        let mut last: Option<f64> = None;
        for (name, gates) in SIZES {
            let asked = self.full || !self.only.is_empty();
            if !self.wants(name) || gates == 1_000_000 && !asked {
                continue;
            }
            let circuit = local_network(gates)?;
            memory::reset_peak();
            let begin = Instant::now();
            let minimized = minimize::minimize(&circuit, &Options::default());
            let seconds = begin.elapsed().as_secs_f64();
            let peak = memory::peak();
            let begin = Instant::now();
            let verdict = prove::equivalent(&circuit, &minimized.circuit)?;
            ensure!(verdict == Verdict::Equal, "{name}: the minimised network is another function");
            let per_gate = seconds / gates as f64;
            let row = json!({
                "name": name, "threads": 1, "gates": gates,
                "gates_before": minimized.statistics.gates_before,
                "gates_after": minimized.statistics.gates_after,
                "minimize_seconds": seconds, "peak_rss_mb": peak,
                "proved": true, "proved_seconds": begin.elapsed().as_secs_f64(),
                "microseconds_per_gate": per_gate * 1e6,
                "ratio_to_smaller": last.map(|last| per_gate / last),
            });
            last = Some(per_gate);
            push(results, row);
        }
        Ok(())
    }
}
