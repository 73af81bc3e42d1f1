//! Rows of all programs, merged by name. Every row is a time in seconds, so that a ratio above 1 always means that ours is
//! faster; rates become the time per unit.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Value, json};

use gatework::cli;

/// Our name among the programs.
const OURS: &str = "gatework";

/// Compared fields of a row of `forecast`: key, description, seconds per unit.
const FORECAST: [(&str, &str, f64); 5] = [
    ("predict_p50_us", "one window", 1e-6),
    ("predict_32_ms", "batch 32", 1e-3),
    ("predict_256_ms", "batch 256", 1e-3),
    ("train_32_ms", "training step 32", 1e-3),
    ("train_256_ms", "training step 256", 1e-3),
];

/// The same for a row of `classifiers`.
const CLASSIFIERS: [(&str, &str, f64); 3] = [
    ("train_seconds", "training", 1.0),
    ("one_ns", "one sample", 1e-9),
    ("batch_ns", "a sample of a batch", 1e-9),
];

/// The workload of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub bench: String,
    pub name: String,
    /// Common name of rows that differ only in size; charts show their mean.
    pub group: String,
    pub threads: u64,
}

/// A time of one program.
struct Measurement {
    row: Row,
    competitor: String,
    seconds: f64,
}

/// Times of one program at a row, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub least: f64,
    pub most: f64,
}

impl Summary {
    /// `None` without times.
    fn new(times: &[f64]) -> Option<Summary> {
        let mut sorted = times.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (&least, &most) = (sorted.first()?, sorted.last()?);
        Some(Summary { median: cli::median(&sorted)?, least, most })
    }

    /// Returns (maximum - minimum) / median.
    pub fn spread(&self) -> f64 {
        (self.most - self.least) / self.median
    }

    fn json(self) -> Value {
        json!({ "median_s": self.median, "least_s": self.least, "most_s": self.most })
    }
}

/// A row that a peer and we have measured.
#[derive(Clone, Debug)]
pub struct Comparison {
    pub row: Row,
    pub peer: String,
    pub ours: Summary,
    pub theirs: Summary,
}

impl Comparison {
    /// Returns the time of the peer divided by ours: above 1, ours is faster.
    pub fn ratio(&self) -> f64 {
        self.theirs.median / self.ours.median
    }

    pub fn json(&self) -> Value {
        json!({
            "bench": self.row.bench, "row": self.row.name, "threads": self.row.threads, "peer": self.peer,
            "ratio": self.ratio(), "ours": self.ours.json(), "theirs": self.theirs.json(),
        })
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { bench, name, threads, .. } = &self.row;
        write!(
            f,
            "{:>8.2}x {:<10} {bench}: {name}, {threads} thread{}: {} (peer: {})",
            self.ratio(),
            self.peer,
            if *threads > 1 { "s" } else { "" },
            duration(self.ours.median),
            duration(self.theirs.median)
        )
    }
}

/// Formats a time with a unit.
pub fn duration(seconds: f64) -> String {
    let (value, unit) = match seconds {
        s if s < 1e-6 => (s * 1e9, "ns"),
        s if s < 1e-3 => (s * 1e6, "us"),
        s if s < 1.0 => (s * 1e3, "ms"),
        s => (s, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// All rows in order of arrival, with the times of each program.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<(Row, BTreeMap<String, Vec<f64>>)>,
    /// Numbers of parameters of our models, by name.
    parameters: BTreeMap<String, u64>,
}

impl Table {
    /// Adds the rows of one output. Rows without a valid time are ignored.
    pub fn add(&mut self, output: &Value) {
        if output.get("peer").is_none() {
            self.parameters.extend(parameters(output));
        }
        for Measurement { row, competitor, seconds } in measurements(output) {
            let at = self.rows.iter().position(|(known, _)| *known == row).unwrap_or_else(|| {
                self.rows.push((row, BTreeMap::new()));
                self.rows.len() - 1
            });
            self.rows[at].1.entry(competitor).or_default().push(seconds);
        }
    }

    /// Checks that the models of a peer have as many parameters as ours of the same name.
    pub fn same_work(&self, output: &Value) -> Result<(), String> {
        for (name, theirs) in parameters(output) {
            if let Some(ours) = self.parameters.get(&name).filter(|ours| **ours != theirs) {
                return Err(format!("{name} has {theirs} parameters, ours {ours}: not the same model"));
            }
        }
        Ok(())
    }

    /// Returns every pair of a peer's row and ours, sorted by ratio.
    pub fn comparisons(&self) -> Vec<Comparison> {
        let mut comparisons = Vec::new();
        for (row, competitors) in &self.rows {
            let Some(ours) = competitors.get(OURS).and_then(|times| Summary::new(times)) else { continue };
            for (peer, times) in competitors.iter().filter(|(name, _)| *name != OURS) {
                let Some(theirs) = Summary::new(times) else { continue };
                comparisons.push(Comparison { row: row.clone(), peer: peer.clone(), ours, theirs });
            }
        }
        comparisons.sort_by(|a, b| a.ratio().total_cmp(&b.ratio()));
        comparisons
    }

    /// Returns our rows that no peer has measured.
    pub fn alone(&self) -> Vec<(&Row, Summary)> {
        let alone = self.rows.iter().filter(|(_, competitors)| competitors.len() == 1);
        alone.filter_map(|(row, competitors)| Some((row, Summary::new(competitors.get(OURS)?)?))).collect()
    }

    /// Returns all times.
    pub fn json(&self) -> Value {
        let row = |(row, times): &(Row, BTreeMap<String, Vec<f64>>)| json!({ "bench": row.bench, "row": row.name, "threads": row.threads, "seconds": times });
        self.rows.iter().map(row).collect()
    }
}

/// A chart of ratios.
#[derive(Debug)]
pub struct Chart {
    pub bench: String,
    pub threads: u64,
    /// Label and ratio of each bar.
    pub bars: Vec<(String, f64)>,
}

/// Returns a chart for each benchmark and number of threads; a bar is the geometric mean of the ratios of a group.
pub fn charts(comparisons: &[Comparison]) -> Vec<Chart> {
    let mut logs: BTreeMap<(&str, u64), BTreeMap<String, Vec<f64>>> = BTreeMap::new();
    for comparison in comparisons {
        let Row { bench, group, threads, .. } = &comparison.row;
        let bars = logs.entry((bench, *threads)).or_default();
        bars.entry(format!("{group}: {}", comparison.peer)).or_default().push(comparison.ratio().ln());
    }
    let mean = |logs: Vec<f64>| (logs.iter().sum::<f64>() / logs.len() as f64).exp();
    let chart = |((bench, threads), bars): ((&str, u64), BTreeMap<String, Vec<f64>>)| Chart {
        bench: bench.to_string(),
        threads,
        bars: bars.into_iter().map(|(name, logs)| (name, mean(logs))).collect(),
    };
    logs.into_iter().map(chart).collect()
}

/// Returns the names and numbers of parameters of the models in an output.
fn parameters(output: &Value) -> impl Iterator<Item = (String, u64)> {
    let rows = output["results"].as_array().into_iter().flatten();
    rows.filter_map(|row| Some((row["model"].as_str()?.to_string(), row["parameters"].as_u64()?)))
}

/// Returns the times in the output of a benchmark, ours or a peer's.
fn measurements(output: &Value) -> Vec<Measurement> {
    let competitor = output["peer"].as_str().unwrap_or(OURS);
    let bench = output["bench"].as_str().unwrap_or_default();
    let mut found = Vec::new();
    for row in ["results", "graphs"].iter().filter_map(|key| output[key].as_array()).flatten() {
        let threads = [row, output].iter().find_map(|value| value["threads"].as_u64()).unwrap_or(1);
        let mut push = |competitor: &str, name: String, group: String, seconds: Option<f64>| {
            if let Some(seconds) = seconds.filter(|seconds| seconds.is_finite() && *seconds > 0.0) {
                let row = Row { bench: bench.to_string(), name, group, threads };
                found.push(Measurement { row, competitor: competitor.to_string(), seconds });
            }
        };
        let time = |key: &str, unit: f64| row[key].as_f64().map(|value| value * unit);
        let rate = |key: &str| row[key].as_f64().map(|rate| 1.0 / rate);
        let text = |key: &str| row[key].as_str().map(str::to_string);
        if let Some(experiment) = text("experiment") {
            push(competitor, format!("update of {experiment}"), experiment, time("update_ms", 1e-3));
        } else if let Some(model) = text("model") {
            for (key, what, unit) in FORECAST {
                let name = format!("{model}, {what}");
                push(competitor, name.clone(), name, time(key, unit));
            }
        } else if let Some(table) = text("table") {
            for (key, what, unit) in CLASSIFIERS {
                push(competitor, format!("{table}, {what}"), what.to_string(), time(key, unit));
            }
        } else if let Some(operation) = text("op") {
            let group = format!("{operation} {}", row["dtype"].as_str().unwrap_or_default());
            let name = format!("{group}, {}", row["n"]);
            push("plain loop", name.clone(), group.clone(), time("plain_ns", 1e-9));
            push(competitor, name, group, time("ns", 1e-9));
        } else if let Some(name) = text("name") {
            // Hand-written Life is an alternative within our own benchmark.
            let by_hand = name == "life-by-hand";
            let (who, name) = if by_hand { ("by hand", "life".to_string()) } else { (competitor, name) };
            let name = if row["native"] == json!(false) { format!("{name}, portable") } else { name };
            let seconds = time("ns", 1e-9)
                .or(rate("gcells_per_second"))
                .or(rate("samples_per_second"))
                .or(time("minimize_seconds", 1.0));
            push(who, name.clone(), name, seconds);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine(peer: Option<&str>, ns: f64) -> Value {
        let mut output = json!({
            "bench": "engine", "results": [{ "op": "add", "dtype": "f32", "n": 256, "threads": 1, "ns": ns }],
        });
        if let Some(peer) = peer {
            output["peer"] = json!(peer);
        }
        output
    }

    #[test]
    fn rows_of_the_same_name_are_merged_and_compared_by_medians() {
        let mut table = Table::default();
        for (ours, theirs) in [(10.0, 30.0), (50.0, 20.0), (11.0, 22.0)] {
            table.add(&engine(None, ours));
            table.add(&engine(Some("torch"), theirs));
        }
        let comparisons = table.comparisons();
        assert_eq!(comparisons.len(), 1);
        let only = &comparisons[0];
        assert_eq!((only.row.name.as_str(), only.peer.as_str()), ("add f32, 256", "torch"));
        assert!((only.ratio() - 2.0).abs() < 1e-12);
        assert!((only.theirs.spread() - 10.0 / 22.0).abs() < 1e-12);
        assert!(table.alone().is_empty());
    }

    #[test]
    fn classifiers_are_compared_by_training_and_by_samples() {
        let mut table = Table::default();
        let row = |ns: f64| json!({ "table": "iris", "train_seconds": ns, "one_ns": ns, "batch_ns": ns });
        table.add(&json!({ "bench": "classifiers", "threads": 1, "results": [row(2.0)] }));
        table.add(&json!({ "bench": "classifiers", "threads": 1, "peer": "trees", "results": [row(3.0)] }));
        let comparisons = table.comparisons();
        assert!(comparisons.len() == 3 && comparisons.iter().all(|c| (c.ratio() - 1.5).abs() < 1e-9));
    }

    #[test]
    fn slower_rows_come_first() {
        let mut table = Table::default();
        table.add(&engine(None, 10.0));
        for (peer, ns) in [("slow", 90.0), ("fast", 5.0), ("even", 10.0)] {
            table.add(&engine(Some(peer), ns));
        }
        let peers: Vec<String> = table.comparisons().into_iter().map(|c| c.peer).collect();
        assert_eq!(peers, ["fast", "even", "slow"]);
    }

    #[test]
    fn alternatives_within_our_own_benchmarks_are_peers() {
        let mut table = Table::default();
        table.add(&json!({ "bench": "circuits", "results": [
            { "name": "life", "threads": 2, "gcells_per_second": 40.0 },
            { "name": "life-by-hand", "threads": 2, "gcells_per_second": 20.0 },
            { "name": "network-10k", "threads": 2, "samples_per_second": 8.0, "native": false },
        ] }));
        table.add(&json!({ "bench": "engine", "results": [
            { "op": "add", "dtype": "f32", "n": 256, "threads": 1, "ns": 8.0, "plain_ns": 4.0 },
        ] }));
        let found: Vec<(String, f64)> =
            table.comparisons().into_iter().map(|c| (c.peer.clone(), c.ratio())).collect();
        assert_eq!(found, [("plain loop".to_string(), 0.5), ("by hand".to_string(), 2.0)]);
        let alone: Vec<&str> = table.alone().iter().map(|(row, _)| row.name.as_str()).collect();
        assert_eq!(alone, ["network-10k, portable"]);
    }

    #[test]
    fn a_model_with_other_parameters_is_rejected() {
        let output = |parameters: u64| json!({ "bench": "forecast", "threads": 1, "results": [{ "model": "gru", "parameters": parameters, "train_32_ms": 2.0 }] });
        let mut table = Table::default();
        table.add(&output(7));
        assert!(table.same_work(&output(7)).is_ok());
        assert!(table.same_work(&output(8)).unwrap_err().contains("gru has 8 parameters, ours 7"));
    }

    #[test]
    fn invalid_times_are_ignored() {
        let mut table = Table::default();
        for odd in [json!(null), json!({}), json!({ "results": [1, {}, { "op": "add" }] }), engine(None, 0.0)]
        {
            table.add(&odd);
        }
        assert_eq!(table.json(), json!([]));
    }

    #[test]
    fn a_bar_is_the_geometric_mean_of_its_group() {
        let row = |n: u64, ns: f64| json!({ "op": "add", "dtype": "f32", "n": n, "threads": 1, "ns": ns });
        let mut table = Table::default();
        table.add(&json!({ "bench": "engine", "results": [row(1, 1.0), row(2, 1.0)] }));
        table.add(&json!({ "bench": "engine", "peer": "jax", "results": [row(1, 2.0), row(2, 8.0)] }));
        let charts = charts(&table.comparisons());
        let [Chart { bench, threads: 1, bars }] = &charts[..] else { panic!("{charts:?}") };
        assert_eq!((bench.as_str(), bars[0].0.as_str()), ("engine", "add f32: jax"));
        assert!((bars[0].1 - 4.0).abs() < 1e-9);
    }

    #[test]
    fn times_are_written_with_a_unit() {
        assert_eq!(
            [1.234e-8, 2e-6, 0.0123, 99.96, 123.4].map(duration),
            ["12.3 ns", "2.00 us", "12.3 ms", "100.0 s", "123 s"]
        );
    }
}
