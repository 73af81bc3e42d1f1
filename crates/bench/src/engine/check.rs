//! Checks of a table of measurements: no cliffs, and nothing slower than a plain loop.
//!
//! A cliff is a length at which an element takes more than 1.3 times as long as at the next shorter length, although the slices
//! of both fit into the same cache. Slices whose size is between 1 and 1.5 times that of a cache are partly in it and are not
//! compared with longer ones. A core can rely only on its share of a shared cache: larger slices are partly in it too.

use std::cmp::Ordering;

use serde::{Deserialize, Serialize};

/// Largest ratio of the times per element at neighbouring lengths within a cache.
const MAX_STEP: f64 = 1.3;

/// Largest ratio of the time of an operation to that of the plain loop.
const MAX_RATIO_TO_PLAIN: f64 = 1.15;

/// The minimum time of an operation at one length.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    pub op: String,
    pub dtype: String,
    pub n: usize,
    pub threads: usize,
    /// Bytes of all slices that are read or written.
    pub bytes: u64,
    pub ns: f64,
    pub ns_per_element: f64,
    /// Time of the plain loop, if there is one.
    pub plain_ns: Option<f64>,
}

impl Row {
    /// Returns the ratio of our time to that of the plain loop.
    pub fn ratio(&self) -> Option<f64> {
        Some(self.ns / self.plain_ns?)
    }

    /// Takes the minimum with another measurement of the same row.
    pub fn improve(&mut self, other: &Row) {
        self.ns = self.ns.min(other.ns);
        self.ns_per_element = self.ns_per_element.min(other.ns_per_element);
        self.plain_ns = self.plain_ns.zip(other.plain_ns).map(|(a, b)| a.min(b));
    }

    fn series(&self) -> (&str, &str, usize) {
        (&self.op, &self.dtype, self.threads)
    }

    fn by_series_and_length(&self, other: &Row) -> Ordering {
        self.series().cmp(&other.series()).then(self.n.cmp(&other.n))
    }
}

/// The rows of a benchmark and the caches they were measured with.
#[derive(Debug, Serialize, Deserialize)]
pub struct Table {
    /// The data caches, smallest first.
    pub caches: Vec<Cache>,
    pub results: Vec<Row>,
}

/// A data cache.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Cache {
    pub bytes: u64,
    /// Cores that share it.
    pub cores: u64,
}

impl Cache {
    /// Whether slices of that size fit into the share of one core.
    fn holds(&self, bytes: u64) -> bool {
        bytes < self.bytes / self.cores.max(1)
    }

    /// Whether slices of that size are partly in the cache.
    fn is_edge(&self, bytes: u64) -> bool {
        !self.holds(bytes) && bytes < self.bytes.saturating_add(self.bytes / 2)
    }
}

/// A failed check.
#[derive(Debug, PartialEq)]
pub struct Finding {
    /// Indices of the rows to measure again.
    pub rows: Vec<usize>,
    pub text: String,
}

/// Returns the lengths whose time per element is much longer than that of the next shorter length.
pub fn cliffs(rows: &[Row], caches: &[Cache]) -> Vec<Finding> {
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by(|&a, &b| rows[a].by_series_and_length(&rows[b]));
    order.windows(2).filter_map(|pair| cliff(rows, [pair[0], pair[1]], caches)).collect()
}

fn cliff(rows: &[Row], pair: [usize; 2], caches: &[Cache]) -> Option<Finding> {
    let [shorter, longer] = pair.map(|index| &rows[index]);
    let level = |row: &Row| caches.iter().filter(|cache| !cache.holds(row.bytes)).count();
    let at_an_edge = caches.iter().any(|cache| cache.is_edge(shorter.bytes));
    let ratio = longer.ns_per_element / shorter.ns_per_element;
    let comparable = shorter.series() == longer.series() && !at_an_edge && level(shorter) == level(longer);
    (comparable && ratio > MAX_STEP).then(|| {
        let Row { op, dtype, threads, .. } = longer;
        let text =
            format!("{op} {dtype}, threads: {threads}: {ratio:.2}x from {} to {}", shorter.n, longer.n);
        Finding { rows: pair.to_vec(), text }
    })
}

/// Returns the rows that are slower than the plain loop.
pub fn slower_than_plain(rows: &[Row]) -> Vec<Finding> {
    let finding = |(index, row): (usize, &Row)| {
        let ratio = row.ratio().filter(|ratio| *ratio > MAX_RATIO_TO_PLAIN)?;
        let text = format!("{} {} of {}: {ratio:.2}x the time of the plain loop", row.op, row.dtype, row.n);
        Some(Finding { rows: vec![index], text })
    };
    rows.iter().enumerate().filter_map(finding).collect()
}

/// Returns the rows of all findings, each once.
pub fn suspects(rows: &[Row], caches: &[Cache]) -> Vec<usize> {
    let findings = cliffs(rows, caches).into_iter().chain(slower_than_plain(rows));
    let mut rows: Vec<usize> = findings.flat_map(|finding| finding.rows).collect();
    rows.sort_unstable();
    rows.dedup();
    rows
}

/// Returns the data caches of the first core, smallest first; those of a common server where the system does not say.
pub fn find_caches() -> Vec<Cache> {
    let cache = |index: usize| {
        let read = |file: &str| {
            std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{file}")).ok()
        };
        let kilobytes: u64 = read("size")?.trim().strip_suffix('K')?.parse().ok()?;
        let cores = read("shared_cpu_list").map_or(1, |list| count_cores(&list));
        (read("type")?.trim() != "Instruction").then_some(Cache { bytes: kilobytes << 10, cores })
    };
    let mut caches: Vec<Cache> = (0..8).filter_map(cache).collect();
    caches.sort_by_key(|cache| cache.bytes);
    if caches.is_empty() {
        let common = [(32 << 10, 1), (512 << 10, 1), (32 << 20, 8)];
        caches.extend(common.map(|(bytes, cores)| Cache { bytes, cores }));
    }
    caches
}

/// Returns the number of cores in a list such as `0-3,8`, at least 1.
fn count_cores(list: &str) -> u64 {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    list.trim().split(',').filter_map(count).sum::<u64>().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(n: usize, time: f64, plain: Option<f64>) -> Row {
        let ns = time * n as f64;
        let (op, dtype) = ("add".into(), "f32".into());
        Row { op, dtype, n, threads: 1, bytes: 12 * n as u64, ns, ns_per_element: time, plain_ns: plain }
    }

    /// Private caches of 32 and 512 kB.
    const CACHES: [Cache; 2] = [Cache { bytes: 32 << 10, cores: 1 }, Cache { bytes: 512 << 10, cores: 1 }];

    fn texts(findings: &[Finding]) -> Vec<&str> {
        findings.iter().map(|finding| finding.text.as_str()).collect()
    }

    #[test]
    fn a_cliff_is_found_within_a_cache_and_not_at_its_edge() {
        let rows =
            [(256, 0.1), (1024, 0.12), (2048, 0.2), (3072, 0.2), (4096, 0.4), (8192, 0.8), (9000, 0.8)];
        let rows = rows.map(|(n, time)| row(n, time, None));
        let found = cliffs(&rows, &CACHES);
        let expected =
            ["add f32, threads: 1: 1.67x from 1024 to 2048", "add f32, threads: 1: 2.00x from 4096 to 8192"];
        assert_eq!(texts(&found), expected);
        assert_eq!(suspects(&rows, &CACHES), [1, 2, 4, 5]);
    }

    #[test]
    fn slices_larger_than_a_cores_share_of_a_cache_are_not_compared() {
        let rows = [row(1000, 0.1, None), row(2000, 0.1, None), row(4000, 0.2, None), row(5000, 0.4, None)];
        let shared = |cores| [Cache { bytes: 48_000, cores }];
        assert_eq!(
            cliffs(&rows, &shared(2)).len(),
            0,
            "slices of 24,000 to 72,000 bytes are partly in the cache"
        );
        assert_eq!(cliffs(&rows[..2], &shared(1)).len(), 0);
        assert_eq!(cliffs(&rows, &[Cache { bytes: 72_000, cores: 1 }]).len(), 2);
    }

    #[test]
    fn lists_of_cores_are_counted() {
        assert_eq!(["0", "0-1\n", "0-3,8,10-11", "", "x"].map(count_cores), [1, 2, 7, 1, 1]);
    }

    #[test]
    fn a_cliff_is_found_whatever_the_order_of_the_rows() {
        let mut rows = [row(256, 0.1, None), row(1024, 0.2, None), row(1024, 0.1, None)];
        rows[2].op = "mul".into();
        assert_eq!(cliffs(&rows, &CACHES).len(), 1, "another operation is another series");
        rows.reverse();
        assert_eq!(cliffs(&rows, &CACHES)[0].rows, [2, 1]);
    }

    #[test]
    fn a_row_slower_than_the_plain_loop_is_found() {
        let rows = [row(256, 0.1, Some(25.6)), row(1024, 0.1, Some(80.0)), row(3072, 0.1, None)];
        assert_eq!(texts(&slower_than_plain(&rows)), ["add f32 of 1024: 1.28x the time of the plain loop"]);
    }

    #[test]
    fn a_second_measurement_takes_the_minimum() {
        let mut first = row(100, 0.2, Some(10.0));
        first.improve(&row(100, 0.1, Some(12.0)));
        assert_eq!(first, row(100, 0.1, Some(10.0)));
    }
}
