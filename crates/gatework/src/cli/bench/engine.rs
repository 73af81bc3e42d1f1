//! `gatework bench engine`: the vector operations at every size, beside plain loops, and a check for cliffs.
//!
//! Each operation runs on the same slices at growing lengths, with one thread and with all. Addition, multiplication, relu
//! and sum of `f32` are measured alternately with a plain loop that the compiler vectorises for the same instruction set.
//! A cliff is a length at which an element takes more than 1.3 times as long as at the next shorter one although the
//! slices fit into the same cache. Slices that exceed a cache by less than half are at its edge, partly in and partly
//! out, and are not compared with longer ones.

mod graphs;

use std::hint::black_box;
use std::time::Instant;

use clap::Args;
use fearless_simd::{Level, dispatch};
use gatework_engine::buffer::Buffer;
use gatework_engine::dtype::Element;
use gatework_engine::kernel::math::Real;
use gatework_engine::{kernel, vector};
use serde_json::{Value, json};

/// Lengths that are measured.
const LENGTHS: [usize; 8] = [256, 1024, 3072, 4096, 16_384, 262_144, 1 << 20, 1 << 24];

/// By how much the time of an element may grow from one length to the next within a cache.
const CLIFF: f64 = 1.3;

/// Vector operations at every size, beside plain loops
#[derive(Debug, Args)]
pub struct Engine {
    /// Only these operations; "graphs" stands for products, the fused chain and whole graphs
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Short slices, for a moment each
    #[arg(long)]
    quick: bool,
    /// Most threads to measure [default: all]
    #[arg(long, value_name = "N", value_parser = crate::cli::parse_threads)]
    threads: Option<usize>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Reads two operands and writes a result.
type Run<T> = dyn Fn(&[T], &[T], &mut [T]) + Sync;
/// The same as a plain loop.
type Plain<T> = fn(&[T], &[T], &mut [T]);

/// An operation on the first `n` elements of two operands and a result; operations that need less leave some alone.
struct Operation<T> {
    name: &'static str,
    /// Slices that it reads or writes.
    slices: usize,
    run: Box<Run<T>>,
    /// The same as a plain loop.
    plain: Option<Plain<T>>,
}

impl<T: Element> Operation<T> {
    fn new(name: &'static str, slices: usize, run: impl Fn(&[T], &[T], &mut [T]) + Sync + 'static) -> Self {
        Self { name, slices, run: Box::new(run), plain: None }
    }

    /// A reduction: the result goes to the first element.
    fn reduction(name: &'static str, slices: usize, run: impl Fn(&[T], &[T]) -> T + Sync + 'static) -> Self {
        Self::new(name, slices, move |a, b, out| out[0] = run(a, b))
    }
}

/// The operations of all types. The lengths are the same, so that no operation fails.
fn arithmetic<T: Element>() -> Vec<Operation<T>> {
    let mut operations = Vec::new();
    for vector::Binary { name, run, .. } in vector::binary() {
        operations.push(Operation::new(name, 3, move |a, b, out| run(a, b, out).expect("same length")));
    }
    for vector::Unary { name, run, .. } in vector::unary() {
        operations.push(Operation::new(name, 2, move |a, _, out| run(a, out).expect("same length")));
    }
    operations.extend([
        Operation::new("fill", 1, |a, _, out| vector::fill(a[0], out)),
        Operation::new("copy", 2, |a, _, out| vector::copy(a, out).expect("same length")),
        Operation::new("scaled_add", 2, |a, b, out| vector::scaled_add(b[0], a, out).expect("same length")),
        Operation::reduction("sum", 1, |a, _| vector::sum(a)),
        Operation::reduction("dot", 2, |a, b| vector::dot(a, b).expect("same length")),
        Operation::reduction("min_value", 1, |a, _| vector::min_value(a).unwrap_or(T::ZERO)),
        Operation::reduction("max_value", 1, |a, _| vector::max_value(a).unwrap_or(T::ZERO)),
        Operation::new("arg_min", 1, |a, _, _| _ = black_box(vector::arg_min(a))),
        Operation::new("arg_max", 1, |a, _, _| _ = black_box(vector::arg_max(a))),
    ]);
    operations
}

/// The operations of floating-point types only.
fn functions<T: Real>() -> Vec<Operation<T>> {
    let mut operations = Vec::new();
    for vector::Function { name, run, .. } in vector::functions() {
        operations.push(Operation::new(name, 2, move |a, _, out| run(a, out).expect("same length")));
    }
    operations.extend([
        Operation::new("softmax", 2, |a, _, out| vector::softmax(a, out).expect("same length")),
        Operation::new("log_softmax", 2, |a, _, out| vector::log_softmax(a, out).expect("same length")),
        Operation::new("normalise", 2, |a, _, out| vector::normalise(a, out).expect("same length")),
        Operation::reduction("mean", 1, |a, _| vector::mean(a)),
        Operation::reduction("mse", 2, |a, b| vector::mse(a, b).expect("same length")),
        Operation::reduction("mae", 2, |a, b| vector::mae(a, b).expect("same length")),
        Operation::reduction("huber", 2, |a, b| vector::huber(a, b, T::ONE).expect("same length")),
        Operation::reduction("binary_cross_entropy", 2, |a, b| {
            vector::binary_cross_entropy(a, b).expect("same length")
        }),
        Operation::reduction("cross_entropy", 1, |a, _| {
            vector::cross_entropy(a, &[a.len() / 2]).expect("the class exists")
        }),
    ]);
    operations
}

/// The plain loops, by name of the operation.
const PLAIN: [(&str, Plain<f32>); 4] = [
    ("add", |a, b, out| dispatch!(Level::new(), _ => plain_zip(a, b, out, #[inline(always)] |a, b| a + b))),
    ("mul", |a, b, out| dispatch!(Level::new(), _ => plain_zip(a, b, out, #[inline(always)] |a, b| a * b))),
    ("relu", |a, _, out| dispatch!(Level::new(), _ => plain_relu(a, out))),
    ("sum", |a, _, out| out[0] = dispatch!(Level::new(), _ => plain_sum(a))),
];

#[allow(clippy::inline_always, reason = "the loop must be compiled for the instruction set of the dispatch")]
#[inline(always)]
fn plain_zip(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
}

#[allow(clippy::inline_always, reason = "the loop must be compiled for the instruction set of the dispatch")]
#[inline(always)]
fn plain_relu(a: &[f32], out: &mut [f32]) {
    for (out, &a) in out.iter_mut().zip(a) {
        *out = if a < 0.0 { 0.0 } else { a };
    }
}

/// Compilers do not reorder sums, so the lanes are written out.
#[allow(clippy::inline_always, reason = "the loop must be compiled for the instruction set of the dispatch")]
#[inline(always)]
fn plain_sum(a: &[f32]) -> f32 {
    let (chunks, rest) = a.as_chunks::<32>();
    let mut sums = [0.0; 32];
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += x;
        }
    }
    sums.iter().chain(rest).sum()
}

impl Engine {
    pub fn run(&self) -> anyhow::Result<()> {
        let all = crate::cli::threads(self.threads);
        let pools = if all > 1 { vec![1, all] } else { vec![1] };
        let pools = pools
            .into_iter()
            .map(|threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build())
            .collect::<Result<Vec<_>, _>>()?;
        let caches = cache_sizes();
        eprintln!(
            "{:<22}{:>6}{:>10}{:>8}{:>14}{:>12}{:>8}",
            "operation", "type", "n", "threads", "ns", "ns/element", "plain"
        );

        let mut floats = arithmetic::<f32>();
        floats.extend(functions());
        for operation in &mut floats {
            operation.plain = PLAIN.iter().find(|(name, _)| *name == operation.name).map(|&(_, plain)| plain);
        }
        let mut doubles = arithmetic::<f64>();
        doubles.extend(functions());
        let mut results = Vec::new();
        self.measure_type(floats, &pools, &|i| wave(i) as f32, &mut results)?;
        self.measure_type(doubles, &pools, &wave, &mut results)?;
        self.measure_type(arithmetic::<i32>(), &pools, &|i| (i % 1000) as i32 - 500, &mut results)?;
        self.measure_type(arithmetic::<i64>(), &pools, &|i| (i % 1000) as i64 - 500, &mut results)?;

        let graphs = if self.only.is_empty() || self.only.iter().any(|name| name == "graphs") {
            pools[0].install(|| graphs::measure(if self.quick { 0.002 } else { 0.1 }))?
        } else {
            Vec::new()
        };

        let cliffs = cliffs(&results, &caches);
        for cliff in &cliffs {
            eprintln!("cliff: {cliff}");
        }
        eprintln!("{} measurements, {} cliffs", results.len(), cliffs.len());
        if self.json {
            crate::cli::print_json(&json!({
                "bench": "engine", "simd": kernel::simd_name(), "results": results, "graphs": graphs, "cliffs": cliffs,
            }));
        }
        Ok(())
    }

    /// Measures all operations of a type, at all lengths, on all pools.
    fn measure_type<T: Element>(
        &self,
        operations: Vec<Operation<T>>,
        pools: &[rayon::ThreadPool],
        value: &dyn Fn(usize) -> T,
        results: &mut Vec<Value>,
    ) -> anyhow::Result<()> {
        let lengths = if self.quick { &LENGTHS[..4] } else { &LENGTHS[..] };
        let most = lengths[lengths.len() - 1];
        let (mut a, mut b, mut out) =
            (Buffer::<T>::zeroed(most), Buffer::<T>::zeroed(most), Buffer::<T>::zeroed(most));
        for (i, (a, b)) in a.iter_mut().zip(b.iter_mut()).enumerate() {
            (*a, *b) = (value(i), value(i + 501));
        }
        for operation in operations {
            if !self.only.is_empty() && !self.only.iter().any(|name| name == operation.name) {
                continue;
            }
            for pool in pools {
                for &n in lengths {
                    let row = pool.install(|| self.measure(&operation, &a[..n], &b[..n], &mut out[..n]))?;
                    print_row(&row);
                    results.push(row);
                }
            }
        }
        Ok(())
    }

    fn measure<T: Element>(
        &self,
        operation: &Operation<T>,
        a: &[T],
        b: &[T],
        out: &mut [T],
    ) -> anyhow::Result<Value> {
        let n = a.len();
        let threads = rayon::current_num_threads();
        if let Some(plain) = operation.plain {
            plain(a, b, out);
            let expected = out[0];
            (operation.run)(a, b, out);
            // Sums are added in different orders; the values here are small multiples of a power of two.
            anyhow::ensure!(out[0] == expected, "{} of {n} differs from the plain loop", operation.name);
        }
        let seconds = if self.quick { 0.0005 } else { 0.01 };
        let plain = operation.plain.filter(|_| threads == 1);
        let (ours, plain) = fastest(seconds, &operation.run, plain, (a, b, out));
        Ok(json!({
            "op": operation.name,
            "dtype": T::DTYPE.name(),
            "n": n,
            "threads": threads,
            "bytes": operation.slices * n * size_of::<T>(),
            "ns": ours,
            "ns_per_element": ours / n as f64,
            "plain_ns": plain,
        }))
    }
}

/// Operands that repeat after 61 elements: multiples of 1/8 from -3.75 to 3.75, whose sums are exact in any order.
fn wave(i: usize) -> f64 {
    (i * 37 % 61) as f64 / 8.0 - 3.75
}

/// The shortest time of a call in ns, of an operation and of the plain loop, which take turns.
fn fastest<T: Element>(
    seconds: f64,
    run: &Run<T>,
    plain: Option<Plain<T>>,
    (a, b, out): (&[T], &[T], &mut [T]),
) -> (f64, Option<f64>) {
    /// A batch takes at least this long, so that looking at the clock does not count.
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

fn print_row(row: &Value) {
    let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    let plain = row["plain_ns"].as_f64().map(|plain| format!("{:.2}x", number("ns") / plain));
    eprintln!(
        "{:<22}{:>6}{:>10}{:>8}{:>14.1}{:>12.4}{:>8}",
        row["op"].as_str().unwrap_or_default(),
        row["dtype"].as_str().unwrap_or_default(),
        number("n"),
        number("threads"),
        number("ns"),
        number("ns_per_element"),
        plain.unwrap_or_default()
    );
}

/// Bytes of the data caches of the first core, smallest first, where the system tells; otherwise those of a common server.
fn cache_sizes() -> Vec<u64> {
    let size = |index: usize| {
        let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
        let kind = std::fs::read_to_string(format!("{folder}/type")).ok()?;
        let text = std::fs::read_to_string(format!("{folder}/size")).ok()?;
        let kilobytes: u64 = text.trim().strip_suffix('K')?.parse().ok()?;
        (kind.trim() != "Instruction").then_some(kilobytes << 10)
    };
    let mut sizes: Vec<u64> = (0..8).filter_map(size).collect();
    sizes.sort_unstable();
    if sizes.is_empty() { vec![32 << 10, 512 << 10, 16 << 20] } else { sizes }
}

/// Lengths that take too long beside the next shorter one, as sentences.
fn cliffs(results: &[Value], caches: &[u64]) -> Vec<String> {
    let cache = |row: &Value| {
        let bytes = row["bytes"].as_u64().unwrap_or(0);
        caches.iter().filter(|&&size| size < bytes).count()
    };
    let mut cliffs = Vec::new();
    for pair in results.windows(2) {
        let [shorter, longer] = pair else { continue };
        let bytes = shorter["bytes"].as_u64().unwrap_or(0);
        let at_an_edge = caches.iter().any(|&size| (size..size + size / 2).contains(&bytes));
        let same = ["op", "dtype", "threads"].iter().all(|key| shorter[key] == longer[key]);
        let time = |row: &Value| row["ns_per_element"].as_f64().unwrap_or(f64::NAN);
        let ratio = time(longer) / time(shorter);
        if same && !at_an_edge && cache(shorter) == cache(longer) && ratio > CLIFF {
            let key = |key: &str| longer[key].as_str().unwrap_or_default().to_string();
            cliffs.push(format!(
                "{} {} with {} threads: {ratio:.2}x from {} to {}",
                key("op"),
                key("dtype"),
                longer["threads"],
                shorter["n"],
                longer["n"]
            ));
        }
    }
    cliffs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cliff_is_found_within_a_cache_and_not_at_its_edge() {
        let row = |n: u64, time: f64| json!({ "op": "add", "dtype": "f32", "threads": 1, "n": n, "bytes": 12 * n, "ns_per_element": time });
        let rows =
            [(256, 0.1), (1024, 0.12), (2048, 0.2), (3072, 0.2), (4096, 0.4), (8192, 0.8), (9000, 0.8)];
        let rows = rows.map(|(n, time)| row(n, time));
        let found = cliffs(&rows, &[32 << 10, 512 << 10]);
        let expected = [
            "add f32 with 1 threads: 1.67x from 1024 to 2048",
            "add f32 with 1 threads: 2.00x from 4096 to 8192",
        ];
        assert_eq!(found, expected);
    }
}
