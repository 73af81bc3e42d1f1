//! Times of what users wait for, with confidence intervals and comparison with a saved baseline.
//!
//! ```text
//! cargo bench -p gatework-bench -- --save-baseline before     # then change something
//! cargo bench -p gatework-bench -- --baseline before          # the change of each row, with its confidence interval
//! cargo bench -p gatework-bench -- gru                        # only rows whose name matches
//! ```
//!
//! Every answer is checked before it is timed. One thread, unless `RAYON_NUM_THREADS` says otherwise: a single thread has less
//! noise.

use std::time::Duration;

use criterion::Criterion;
use gatework_bench::workload::engine::{Cell, GraphOperation, SliceOperation};
use gatework_bench::workload::{Call, circuits, engine, learning};
use gatework_engine::{Graph, vector};
use serde_json::json;

/// Element-wise functions and reductions.
const SLICE_OPERATIONS: [(&str, SliceOperation, GraphOperation); 5] = [
    ("add", |a, b, out| vector::add(a, b, out).expect("same length"), Graph::add),
    ("exp", |a, _, out| vector::exp(a, out).expect("same length"), |g, a, _| g.exp(a)),
    ("gelu", |a, _, out| vector::gelu(a, out).expect("same length"), |g, a, _| g.gelu(a)),
    ("softmax", |a, _, out| vector::softmax(a, out).expect("same length"), |g, a, _| g.softmax(a, 0)),
    ("sum", |a, _, out| out[0] = vector::sum(a), |g, a, _| g.sum_all(a)),
];

/// Lengths for the L1 cache, the L2 cache and main memory.
const LENGTHS: [usize; 3] = [1 << 10, 1 << 14, 1 << 20];

/// Rows, summed columns, columns.
const GEMM: [[usize; 3]; 3] = [[1, 512, 512], [32, 168, 512], [256, 512, 512]];

/// Prepares a row.
type Prepare = Box<dyn Fn() -> anyhow::Result<Call>>;

fn rows() -> Vec<(String, Prepare)> {
    let mut rows: Vec<(String, Prepare)> = Vec::new();
    let mut row = |name: &str, prepare: Prepare| rows.push((name.to_string(), prepare));
    for (name, run, reference) in SLICE_OPERATIONS {
        for n in LENGTHS {
            row(&format!("engine/{name}/{n}"), Box::new(move || engine::slices(n, run, reference)));
        }
    }
    for sizes in GEMM {
        let [m, k, n] = sizes;
        row(&format!("engine/matmul/{m}x{k}x{n}"), Box::new(move || engine::matmul(sizes)));
    }
    for (pass, is_backward) in [("forward", false), ("gradients", true)] {
        let layer_norm = move || engine::layer_norm(512, 256, is_backward);
        row(&format!("engine/layer norm/{pass}"), Box::new(layer_norm));
        let attention = move || engine::attention([8, 96, 64], 4, is_backward);
        row(&format!("engine/attention/{pass}"), Box::new(attention));
        for (name, cell) in [("gru", Cell::Gru), ("lstm", Cell::Lstm)] {
            let recurrent = move || engine::recurrent(cell, [32, 24, 16], 64, is_backward);
            row(&format!("engine/{name}/{pass}"), Box::new(recurrent));
        }
        let soft_gates = move || learning::soft_gates(&[1024, 2048, 2048, 1024], is_backward);
        row(&format!("gates/soft network/{pass}"), Box::new(soft_gates));
    }
    row("engine/int8", Box::new(engine::int8));
    row("training/adam", Box::new(|| learning::adam(1 << 16)));
    for name in ["checkerboard", "lizard"] {
        row(&format!("training/{name}"), Box::new(move || learning::automaton_update(name)));
    }
    row("circuits/life 1024x1024", Box::new(|| circuits::life(1024, 8)));
    row("circuits/simulate 10k gates", Box::new(|| circuits::simulate(10_000, 4096)));
    row("circuits/minimise 1k gates", Box::new(|| circuits::minimization(1000)));
    let nhits = json!({ "kind": "nhits", "downsampling": [24, 12, 1] });
    for (name, windows) in [("one window", 1), ("batch of 32", 32)] {
        let model = nhits.clone();
        row(&format!("forecast/nhits/{name}"), Box::new(move || learning::predict(&model, windows)));
    }
    for (name, model) in [("nhits", nhits), ("gru", json!({ "kind": "gru" }))] {
        let step = move || learning::training_step(&model, 32);
        row(&format!("forecast/{name}/training step"), Box::new(step));
    }
    rows
}

fn main() {
    if std::env::var_os("RAYON_NUM_THREADS").is_none() {
        let built = rayon::ThreadPoolBuilder::new().num_threads(1).build_global();
        built.expect("the first use of the global thread pool");
    }
    // With these settings all rows take about two minutes.
    let mut criterion = Criterion::default()
        .sample_size(20)
        .nresamples(10_000)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    for (name, prepare) in rows() {
        // Prepared at the first sample: rows that are filtered out cost nothing.
        let mut call = None;
        criterion.bench_function(&name, |bencher| {
            let call =
                call.get_or_insert_with(|| prepare().unwrap_or_else(|error| panic!("{name}: {error:#}")));
            bencher.iter(call);
        });
    }
    criterion.final_summary();
}
