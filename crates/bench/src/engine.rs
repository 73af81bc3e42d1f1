//! `gatework-bench engine`: vector operations at every size, compared with plain loops, and a check for cliffs.
//!
//! Each operation runs on the same slices at increasing lengths, with one thread and with all threads. Runs of addition,
//! multiplication, ReLU and sum of `f32` are interleaved with a plain loop that the compiler vectorises for the same
//! instruction set.
//!
//! Other work on the machine can only make a time longer. The table is therefore measured in rounds, and a time is the minimum
//! over all rounds. Rows that still look like a cliff, or slower than the plain loop, are measured again before they are
//! reported.
//!
//! | file | contents |
//! |---|---|
//! | `operations` | the operations |
//! | `check` | the table and its checks |
//! | `pages` | share of the slices in huge pages |
//! | `graphs` | GEMM, fused chains and whole graphs |

mod check;
mod graphs;
mod operations;
mod pages;

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use gatework_engine::buffer::Buffer;
use gatework_engine::kernel;
use gatework_engine::vector::Number;
use serde_json::json;

use self::check::{Finding, Row, Table};
use self::operations::{Operation, Plain, Run};

/// Lengths of the slices.
const LENGTHS: [usize; 10] = [256, 1024, 3072, 4096, 16_384, 65_536, 262_144, 1 << 20, 1 << 22, 1 << 24];

/// How often suspicious rows are measured again.
const RETRIES: usize = 8;

/// Vector operations at every size, compared with plain loops
#[derive(Debug, Args)]
pub struct Engine {
    /// Only these operations; "graphs" selects GEMM, the fused chain and whole graphs
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Short slices and short measurements
    #[arg(long)]
    quick: bool,
    /// Rounds of measurement; a row is the minimum over all rounds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Largest number of threads [default: all]
    #[arg(long, value_name = "N", value_parser = gatework::cli::parse_threads)]
    threads: Option<usize>,
    /// Fail if an operation has a cliff or is slower than the plain loop
    #[arg(long)]
    check: bool,
    /// Read the table from the --json output of an earlier run instead of measuring
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Two operands and a result of the largest length.
struct Slices<T> {
    a: Buffer<T>,
    b: Buffer<T>,
    out: Buffer<T>,
}

impl<T: Number> Slices<T> {
    fn new(len: usize, value: &dyn Fn(usize) -> T) -> Self {
        let [mut a, mut b, out] = [(); 3].map(|()| Buffer::zeroed(len));
        for (i, (a, b)) in a.iter_mut().zip(b.iter_mut()).enumerate() {
            (*a, *b) = (value(i), value(i + 501));
        }
        Self { a, b, out }
    }
}

impl Engine {
    pub fn run(&self) -> anyhow::Result<()> {
        let (table, rest) = match &self.table {
            Some(path) => (read_table(path)?, json!({})),
            None => self.measure_all()?,
        };
        let cliffs = check::cliffs(&table.results, &table.caches);
        let slow = check::slower_than_plain(&table.results);
        for Finding { text, .. } in cliffs.iter().chain(&slow) {
            print_line!("found: {text}");
        }
        print_line!(
            "{} measurements, {} cliffs, {} slower than the plain loop",
            table.results.len(),
            cliffs.len(),
            slow.len()
        );
        if self.json {
            let texts = |findings: &[Finding]| findings.iter().map(|f| f.text.clone()).collect::<Vec<_>>();
            let mut result = rest;
            result["bench"] = json!("engine");
            result["caches"] = json!(table.caches);
            result["results"] = json!(table.results);
            result["cliffs"] = json!(texts(&cliffs));
            result["slower_than_plain"] = json!(texts(&slow));
            gatework::cli::print_json(&result)?;
        }
        let found = cliffs.len() + slow.len();
        anyhow::ensure!(
            !self.check || found == 0,
            "{found} rows have a cliff or are slower than the plain loop"
        );
        Ok(())
    }

    /// Returns the table and the other fields of the JSON output.
    fn measure_all(&self) -> anyhow::Result<(Table, serde_json::Value)> {
        let pools = super::thread_counts(gatework::cli::threads(self.threads))
            .into_iter()
            .map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build())
            .collect::<Result<Vec<_>, _>>()?;
        print_line!(
            "{:<22}{:>6}{:>10}{:>8}{:>14}{:>12}{:>8}",
            "operation",
            "type",
            "n",
            "threads",
            "ns",
            "ns/element",
            "plain"
        );
        let mut table = Table { caches: check::find_caches(), results: Vec::new() };
        let mut doubles = operations::arithmetic();
        doubles.extend(operations::functions());
        let huge =
            self.measure_type(operations::with_plain_loops(), &pools, &|i| wave(i) as f32, &mut table)?;
        self.measure_type(doubles, &pools, &wave, &mut table)?;
        self.measure_type(operations::arithmetic(), &pools, &|i| (i % 1000) as i32 - 500, &mut table)?;
        self.measure_type(operations::arithmetic(), &pools, &|i| (i % 1000) as i64 - 500, &mut table)?;

        let mut graphs = Vec::new();
        if self.only.is_empty() || self.only.iter().any(|name| name == "graphs") {
            let seconds = if self.quick { 0.002 } else { 0.1 };
            for pool in &pools {
                graphs.extend(pool.install(|| graphs::measure(seconds))?);
            }
        }
        if let Some(share) = huge {
            print_line!("{:.0} % of the longest slices are in huge pages", 100.0 * share);
        }
        Ok((table, json!({ "simd": kernel::simd_name(), "graphs": graphs, "huge_pages": huge })))
    }

    /// Measures all operations of a type at all lengths on all pools. Returns the share of the slices in huge pages.
    fn measure_type<T: Number>(
        &self,
        mut operations: Vec<Operation<T>>,
        pools: &[rayon::ThreadPool],
        value: &dyn Fn(usize) -> T,
        table: &mut Table,
    ) -> anyhow::Result<Option<f64>> {
        operations.retain(|operation| self.only.is_empty() || self.only.iter().any(|n| n == operation.name));
        let lengths = if self.quick { &LENGTHS[..4] } else { &LENGTHS[..] };
        let mut cells = Vec::new();
        for operation in &operations {
            for pool in pools {
                cells.extend(lengths.iter().map(|&n| (operation, pool, n)));
            }
        }
        let longest = if cells.is_empty() { 0 } else { lengths[lengths.len() - 1] };
        let mut slices = Slices::new(longest, value);
        let mut measure = |&(operation, pool, n): &(&Operation<T>, &rayon::ThreadPool, usize)| {
            pool.install(|| self.measure(operation, &mut slices, n))
        };

        let mut rows = cells.iter().map(&mut measure).collect::<Result<Vec<_>, _>>()?;
        for _ in 1..self.rounds {
            for (row, cell) in rows.iter_mut().zip(&cells) {
                row.improve(&measure(cell)?);
            }
        }
        for _ in 0..if self.quick { 0 } else { RETRIES } {
            for suspect in check::suspects(&rows, &table.caches) {
                rows[suspect].improve(&measure(&cells[suspect])?);
            }
        }
        rows.iter().for_each(print_row);
        table.results.extend(rows);
        Ok(pages::huge_share(&[&slices.a, &slices.b, &slices.out].map(|x| x.as_ptr_range())))
    }

    /// Measures one operation at one length.
    fn measure<T: Number>(
        &self,
        operation: &Operation<T>,
        slices: &mut Slices<T>,
        n: usize,
    ) -> anyhow::Result<Row> {
        let (a, b, out) = (&slices.a[..n], &slices.b[..n], &mut slices.out[..n]);
        let threads = rayon::current_num_threads();
        if let Some(plain) = operation.plain {
            plain(a, b, out);
            let expected = out[0];
            (operation.run)(a, b, out);
            // The order of additions differs, but the values are multiples of 1/8: their sums are exact.
            anyhow::ensure!(out[0] == expected, "{} of {n} differs from the plain loop", operation.name);
        }
        let seconds = if self.quick { 0.0005 } else { 0.01 };
        let plain = operation.plain.filter(|_| threads == 1);
        let (ns, plain_ns) = fastest(seconds, &operation.run, plain, (a, b, out));
        Ok(Row {
            op: operation.name.into(),
            dtype: T::DTYPE.name().into(),
            n,
            threads,
            bytes: (operation.slices * n * size_of::<T>()) as u64,
            ns,
            ns_per_element: ns / n as f64,
            plain_ns,
        })
    }
}

/// Reads the output of `--json`.
fn read_table(path: &Path) -> anyhow::Result<Table> {
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is not an output of `gatework-bench engine --json`", path.display()))
}

/// Returns operand `i`: a multiple of 1/8 from -3.75 to 3.75, with a period of 61. Sums are exact in any order.
fn wave(i: usize) -> f64 {
    (i * 37 % 61) as f64 / 8.0 - 3.75
}

/// Returns the minimum time of a call in ns, for an operation and for the plain loop, in interleaved batches.
fn fastest<T: Number>(
    seconds: f64,
    run: &Run<T>,
    plain: Option<Plain<T>>,
    (a, b, out): (&[T], &[T], &mut [T]),
) -> (f64, Option<f64>) {
    /// Minimum duration of a batch in seconds, so that reading the clock does not count.
    const BATCH: f64 = 2e-5;
    let mut time = |run: &Run<T>, calls: u32| {
        let start = Instant::now();
        for _ in 0..calls {
            run(black_box(a), black_box(b), black_box(&mut *out));
        }
        start.elapsed().as_secs_f64() / f64::from(calls)
    };
    time(run, 1);
    let calls = (BATCH / time(run, 1)).clamp(1.0, 1e4) as u32;
    let (mut ours, mut theirs) = (f64::INFINITY, f64::INFINITY);
    let begin = Instant::now();
    for batch in 0.. {
        ours = ours.min(time(run, calls));
        if let Some(plain) = plain {
            theirs = theirs.min(time(&plain, calls));
        }
        if batch >= 2 && begin.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    (ours * 1e9, plain.map(|_| theirs * 1e9))
}

fn print_row(row: &Row) {
    let plain = row.ratio().map(|ratio| format!("{ratio:.2}x")).unwrap_or_default();
    let Row { op, dtype, n, threads, ns, ns_per_element, .. } = row;
    print_line!("{op:<22}{dtype:>6}{n:>10}{threads:>8}{ns:>14.1}{ns_per_element:>12.4}{plain:>8}");
}
