//! Minimisation of large random networks: time, memory, and how both scale.
//!
//! Networks whose gates read nearby gates are redundant. The layered networks, those of the rows `network-*`, have almost no
//! redundancy, and their operands are far apart in memory: the worst case.

use anyhow::ensure;
use gatework_logic::Circuit;
use gatework_logic::minimize::{self, Options};
use gatework_logic::prove::{self, Verdict};
use serde_json::{Value, json};

use super::{Circuits, push};
use crate::process::{self, Stopwatch};
use gatework_bench::random::{local_network, random_network};

/// Networks of one kind, from small to large.
struct Family {
    names: [&'static str; 3],
    make: fn(usize) -> anyhow::Result<Circuit>,
    /// Whether the rows are measured only with --full or --only.
    is_slow: bool,
}

const SIZES: [usize; 3] = [10_000, 100_000, 1_000_000];
const FAMILIES: [Family; 2] = [
    Family { names: ["minimize-10k", "minimize-100k", "minimize-1m"], make: local_network, is_slow: false },
    Family {
        names: ["minimize-layered-10k", "minimize-layered-100k", "minimize-layered-1m"],
        make: random_network,
        is_slow: true,
    },
];

impl Circuits {
    /// Minimises random networks on one thread and proves the results.
    pub(super) fn minimize(&self, results: &mut Vec<Value>) -> anyhow::Result<()> {
        for family in &FAMILIES {
            if family.is_slow && self.only.is_empty() && !self.full {
                continue;
            }
            let mut last: Option<f64> = None;
            for (name, gates) in family.names.into_iter().zip(SIZES) {
                if self.wants(name) {
                    let row = minimize_one(name, &(family.make)(gates)?, last)?;
                    last = row["microseconds_per_gate"].as_f64();
                    push(results, row);
                }
            }
        }
        Ok(())
    }
}

/// Measures a network; `last` is the time per gate of the next smaller one.
fn minimize_one(name: &str, circuit: &Circuit, last: Option<f64>) -> anyhow::Result<Value> {
    process::reset_peak();
    let minimizing = Stopwatch::start();
    let minimized = minimize::minimize(circuit, &Options::default());
    let (seconds, processor) = (minimizing.seconds(), minimizing.processor_seconds());
    let peak = process::peak_memory();
    let proving = Stopwatch::start();
    let verdict = prove::equivalent(circuit, &minimized.circuit)?;
    ensure!(verdict == Verdict::Equal, "{name}: the minimised network is not equivalent");
    let gates = circuit.nodes().len();
    let per_gate = processor / gates as f64 * 1e6;
    Ok(json!({
        "name": name, "threads": 1, "gates": gates,
        "gates_before": minimized.statistics.gates_before,
        "gates_after": minimized.statistics.gates_after,
        "minimize_seconds": seconds, "minimize_processor_seconds": processor, "peak_rss_mb": peak,
        "proved": true, "proved_seconds": proving.seconds(),
        "proved_processor_seconds": proving.processor_seconds(),
        "microseconds_per_gate": per_gate,
        "ratio_to_smaller": last.map(|last| per_gate / last),
    }))
}
