//! Shared by the programs: arguments, timing, JSON output. The counterpart of `timing.py`.

pub mod engine;

use std::path::PathBuf;
use std::time::Instant;

use serde_json::{json, Value};

/// Every call allocates its outputs: production programs use an allocator that caches them.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How these libraries were built, for the report.
pub const BUILT: &str = "opt-level 3, fat LTO, target-cpu=native, mimalloc";

/// The versions of Cargo.lock.
pub const CANDLE: &str = env!("CANDLE_VERSION");
pub const NDARRAY: &str = env!("NDARRAY_VERSION");

/// An error that ends a program: nothing is timed then.
pub type Failure = Box<dyn std::error::Error>;

/// The command line.
pub struct Options {
    pub threads: usize,
    pub seconds: f64,
    /// Small sizes, for a moment each.
    pub quick: bool,
    /// Only rows whose name contains one of these.
    pub only: Vec<String>,
    /// Where `gatework-bench BENCH --cases` has written what answers are compared with.
    pub cases: Option<PathBuf>,
}

impl Options {
    /// Reads the command line and limits the threads. Call it before anything else.
    pub fn read(seconds: f64) -> Result<Options, Failure> {
        let (only, cases) = (Vec::new(), None);
        let mut options = Options { threads: 1, seconds, quick: false, only, cases };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            if word == "--quick" {
                options.quick = true;
                continue;
            }
            let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
            match word.as_str() {
                "--threads" => options.threads = value.parse()?,
                "--seconds" => options.seconds = value.parse()?,
                "--only" => options.only.push(value),
                "--cases" => options.cases = Some(value.into()),
                _ => return Err(format!("{word} is not known").into()),
            }
        }
        // What rayon, candle and matrixmultiply read when they are first used.
        for name in ["RAYON_NUM_THREADS", "CANDLE_NUM_THREADS", "MATMUL_NUM_THREADS"] {
            std::env::set_var(name, options.threads.to_string());
        }
        Ok(options)
    }

    /// Whether a row is asked for.
    pub fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| name.contains(only.as_str()))
    }
}

/// The shortest time of a call in nanoseconds, over batches of calls.
pub fn fastest(seconds: f64, mut call: impl FnMut()) -> f64 {
    /// Batches take at least this many seconds, so that looking at the clock does not count.
    const BATCH: f64 = 2e-5;
    let mut batch = |calls: u32| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_secs_f64() / f64::from(calls)
    };
    batch(1);
    let calls = (BATCH / batch(1)).clamp(1.0, 1e4) as u32;
    let (mut best, begin) = (f64::INFINITY, Instant::now());
    for round in 0.. {
        best = best.min(batch(calls));
        if round >= 2 && begin.elapsed().as_secs_f64() > seconds {
            break;
        }
    }
    best * 1e9
}

/// Sorted times of calls in seconds, five at least unless it has to be quick; the first two do not count.
pub fn times(seconds: f64, mut call: impl FnMut() -> Result<(), Failure>) -> Result<Vec<f64>, Failure> {
    call()?;
    call()?;
    let (mut times, begin) = (Vec::new(), Instant::now());
    let least = if seconds > 0.01 { 5 } else { 1 };
    while times.len() < least || begin.elapsed().as_secs_f64() < seconds {
        let start = Instant::now();
        call()?;
        times.push(start.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// The time that a share of the calls is within.
pub fn quantile(sorted: &[f64], share: f64) -> f64 {
    sorted[((sorted.len() - 1) as f64 * share).round() as usize]
}

/// Whether all of a peer's numbers are near the right ones.
pub fn close(theirs: &[f32], right: &[f64], relative: f64, absolute: f64) -> bool {
    let near = |(&a, &b): (&f32, &f64)| (f64::from(a) - b).abs() <= absolute + relative * b.abs();
    theirs.len() == right.len() && theirs.iter().zip(right).all(near)
}

/// Ends the program if an answer is wrong.
pub fn ensure(right: bool, what: &str) -> Result<(), Failure> {
    if right {
        Ok(())
    } else {
        Err(format!("wrong answer: {what}").into())
    }
}

/// Prints the object that `gatework-bench all` reads; `how` says what was used of the library.
pub fn report(bench: &str, peer: &str, version: &str, how: &str, results: Vec<Value>) {
    let how = format!("{how}; {BUILT}");
    println!(
        "{}",
        json!({ "bench": bench, "peer": peer, "version": version, "how": how, "results": results })
    );
}

/// Runs a program and says on one line what went wrong.
pub fn run(main: impl FnOnce() -> Result<(), Failure>) {
    if let Err(failure) = main() {
        eprintln!("{}", failure.to_string().replace('\n', " "));
        std::process::exit(1);
    }
}
