//! The report of `gatework-bench all` as Markdown: machine, slower rows, charts, faster rows, rows without a peer.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::machine::Machine;
use super::rows::{Comparison, Row, Summary, Table, duration};

/// Contents of the introduction.
pub struct Facts<'a> {
    pub machine: &'a Machine,
    pub rounds: u32,
    /// Version and description of each peer, by benchmark and name.
    pub peers: &'a BTreeMap<String, Value>,
    /// Peers that failed, and why.
    pub missing: &'a BTreeMap<String, String>,
}

/// Returns the report. A chart is a title and a file name; `comparisons` are sorted by ratio.
pub fn report(
    facts: &Facts<'_>,
    table: &Table,
    comparisons: &[Comparison],
    charts: &[(String, String)],
) -> String {
    let lost = comparisons.iter().take_while(|comparison| comparison.ratio() < 1.0).count();
    let (lost, won) = comparisons.split_at(lost);
    let mut text = introduction(facts);
    // Writing to a string does not fail.
    let _ = writeln!(text, "## Where Gatework is slower: {} of {} rows\n", lost.len(), comparisons.len());
    text += &compared(lost);
    if !charts.is_empty() {
        text += "## Charts\n\nA bar is the geometric mean over sizes; right of 1, Gatework is faster.\n\n";
    }
    for (title, file) in charts {
        let _ = writeln!(text, "![{title}]({file})\n");
    }
    let _ = writeln!(
        text,
        "## Where Gatework is as fast or faster: {} of {} rows\n",
        won.len(),
        comparisons.len()
    );
    text += &compared(won);
    text += "## Rows without a peer\n\n";
    text += &ours_alone(&table.alone());
    text
}

fn introduction(Facts { machine, rounds, peers, missing }: &Facts<'_>) -> String {
    let mut text = "# Benchmarks\n\nWritten by `gatework-bench all`. Runs of Gatework and the peers were interleaved; a time is the \
                    median of the rounds, and ± is (maximum - minimum) / median. The ratio is the time of the peer divided by \
                    ours: above 1, Gatework is faster. Circuits: time per 10⁹ cells, per sample, or of a minimisation.\n\n"
        .to_string();
    let Machine { processor, cores, simd, version, load } = machine;
    let load = load.map_or(String::new(), |load| format!(", load {load} before the run"));
    let _ = writeln!(text, "- Processor: {processor}, {cores} cores, {simd}{load}");
    let _ = writeln!(text, "- Gatework: {version}; {rounds} rounds");
    for (peer, about) in *peers {
        let said = |key: &str| about[key].as_str().unwrap_or("unknown").to_string();
        let named = format!("{peer} {}", said("version"));
        let _ = writeln!(text, "- {}: {}", named.trim_end(), said("how"));
    }
    for (name, reason) in *missing {
        let _ = writeln!(text, "- Missing: {name}: {}", cell(reason));
    }
    text + "\n"
}

fn compared(comparisons: &[Comparison]) -> String {
    if comparisons.is_empty() {
        return "None.\n\n".to_string();
    }
    let mut text = "| ratio | peer | row | threads | Gatework | ± | peer's time | ± |\n|--:|---|---|--:|--:|--:|--:|--:|\n"
        .to_string();
    for comparison in comparisons {
        let Comparison { row: Row { bench, name, threads, .. }, peer, ours, theirs } = comparison;
        let (peer, name, ratio) = (cell(peer), cell(name), comparison.ratio());
        let _ = writeln!(
            text,
            "| {ratio:.2} | {peer} | {bench}: {name} | {threads} | {} | {} |",
            time(ours),
            time(theirs)
        );
    }
    text + "\n"
}

fn ours_alone(rows: &[(&Row, Summary)]) -> String {
    if rows.is_empty() {
        return "None.\n".to_string();
    }
    let mut text = "| row | threads | Gatework | ± |\n|---|--:|--:|--:|\n".to_string();
    for (Row { bench, name, threads, .. }, summary) in rows {
        let _ = writeln!(text, "| {bench}: {} | {threads} | {} |", cell(name), time(summary));
    }
    text
}

/// Returns two cells: the median and the spread.
fn time(summary: &Summary) -> String {
    format!("{} | {:.0} %", duration(summary.median), summary.spread() * 100.0)
}

/// Escapes text for a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sample(missing: &BTreeMap<String, String>, outputs: &[Value]) -> String {
        let machine = Machine {
            processor: "CPU".into(),
            cores: 2,
            simd: "avx2",
            load: Some(0.5),
            version: "1 (abc)".into(),
        };
        let peers = BTreeMap::from([("torch".to_string(), json!({ "version": "2", "how": "eager" }))]);
        let mut table = Table::default();
        for output in outputs {
            table.add(output);
        }
        let facts = Facts { machine: &machine, rounds: 3, peers: &peers, missing };
        report(&facts, &table, &table.comparisons(), &[("engine".into(), "b-engine-1.svg".into())])
    }

    fn output(peer: Option<&str>, add: f64, mul: f64) -> Value {
        let row = |op: &str, ns: f64| json!({ "op": op, "dtype": "f32", "n": 256, "threads": 1, "ns": ns });
        let mut output = json!({ "bench": "engine", "results": [row("add", add), row("mul", mul)] });
        if let Some(peer) = peer {
            output["peer"] = json!(peer);
        }
        output
    }

    #[test]
    fn slower_rows_come_first() {
        let text = sample(&BTreeMap::new(), &[output(None, 10.0, 10.0), output(Some("torch"), 5.0, 40.0)]);
        let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing in {text}"));
        assert!(
            at("slower: 1 of 2 rows")
                < at("| 0.50 | torch | engine: add f32, 256 | 1 | 10.0 ns | 0 % | 5.00 ns | 0 % |")
        );
        assert!(at("| 0.50 |") < at("![engine](b-engine-1.svg)"));
        assert!(at("faster: 1 of 2 rows") < at("| 4.00 | torch"));
        assert!(text.contains("- torch 2: eager") && text.contains("avx2, load 0.5"));
    }

    #[test]
    fn missing_peers_and_rows_without_a_peer_are_shown() {
        let missing = BTreeMap::from([("engine: jax".to_string(), "no module | jax".to_string())]);
        let text = sample(&missing, &[output(None, 10.0, 10.0)]);
        assert!(text.contains("- Missing: engine: jax: no module \\| jax"));
        assert!(text.contains("| engine: mul f32, 256 | 1 | 10.0 ns | 0 % |"));
        assert!(text.contains("slower: 0 of 0 rows\n\nNone."));
    }
}
