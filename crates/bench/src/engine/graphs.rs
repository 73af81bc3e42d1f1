//! GEMM with and without a fused epilogue, a fused chain compared with separate operations, and whole graphs compared with the
//! interpreter.

use std::hint::black_box;
use std::time::Instant;

use gatework_engine::buffer::Buffer;
use gatework_engine::graph::{Conv1d, Gru, Lstm};
use gatework_engine::interpret::Value as Tensor;
use gatework_engine::{DType, Graph, GraphError, Id, Program, linalg, vector};
use serde_json::{Value, json};

/// Builds a graph and returns its output.
type Build = fn(&mut Graph) -> Result<Id, GraphError>;

/// Sizes m, n and k of the GEMMs.
const PRODUCTS: [[usize; 3]; 4] = [[32, 512, 168], [256, 512, 512], [1, 512, 512], [128, 128, 128]];

/// Length of the fused chain.
const CHAIN: usize = 1 << 20;

/// Typical graphs, small enough for the interpreter.
const GRAPHS: [(&str, Build); 10] = [
    ("chain", |g| {
        let (x, w) = (g.input("x", DType::F32, &[64, 512])?, g.input("w", DType::F32, &[512])?);
        let product = g.mul(x, w)?;
        g.gelu(product)
    }),
    ("dense layer", |g| {
        let (x, w) = (g.input("x", DType::F32, &[32, 128])?, g.input("w", DType::F32, &[128, 128])?);
        let bias = g.input("b", DType::F32, &[128])?;
        let product = g.matmul(x, w)?;
        let sum = g.add(product, bias)?;
        g.relu(sum)
    }),
    ("dense layer, gradients", |g| {
        let (x, w) = (g.input("x", DType::F32, &[32, 128])?, g.input("w", DType::F32, &[128, 128])?);
        let product = g.matmul(x, w)?;
        let y = g.tanh(product)?;
        let loss = g.mean_all(y)?;
        Ok(g.gradients(loss, &[w])?[0])
    }),
    ("softmax", |g| {
        let x = g.input("x", DType::F32, &[128, 256])?;
        g.softmax(x, 1)
    }),
    ("layer norm", |g| {
        let x = g.input("x", DType::F32, &[128, 256])?;
        let (gain, bias) = (g.input("g", DType::F32, &[256])?, g.input("b", DType::F32, &[256])?);
        g.layer_norm(x, gain, bias, 1e-5)
    }),
    ("attention", |g| {
        let x = g.input("x", DType::F32, &[4, 48, 32])?;
        g.attention(x, x, x)
    }),
    ("convolution", |g| {
        let (x, kernel) = (g.input("x", DType::F32, &[8, 16, 96])?, g.input("k", DType::F32, &[16, 16, 3])?);
        g.conv1d(x, kernel, None, Conv1d { before: 2, ..Conv1d::default() })
    }),
    ("GRU", |g| {
        let x = g.input("x", DType::F32, &[16, 24, 8])?;
        let cell = Gru {
            input: g.input("wi", DType::F32, &[96, 8])?,
            hidden: g.input("wh", DType::F32, &[96, 32])?,
            input_bias: g.input("bi", DType::F32, &[96])?,
            hidden_bias: g.input("bh", DType::F32, &[96])?,
        };
        g.gru(x, &cell)
    }),
    ("LSTM", |g| {
        let x = g.input("x", DType::F32, &[16, 24, 8])?;
        let cell = Lstm {
            input: g.input("wi", DType::F32, &[128, 8])?,
            hidden: g.input("wh", DType::F32, &[128, 32])?,
            input_bias: g.input("bi", DType::F32, &[128])?,
            hidden_bias: g.input("bh", DType::F32, &[128])?,
        };
        g.lstm(x, &cell)
    }),
    ("cross-entropy, gradients", |g| {
        let (x, w) = (g.input("x", DType::F32, &[64, 64])?, g.input("w", DType::F32, &[64, 100])?);
        let classes = g.data(DType::I32, &[64], &[3.0; 64])?;
        let logits = g.matmul(x, w)?;
        let loss = g.cross_entropy(logits, classes)?;
        Ok(g.gradients(loss, &[w])?[0])
    }),
];

/// Measures all rows on the current pool for about `seconds` each.
pub fn measure(seconds: f64) -> anyhow::Result<Vec<Value>> {
    let mut rows = Vec::new();
    for sizes in PRODUCTS {
        rows.push(product(sizes, seconds)?);
    }
    rows.push(chain(seconds)?);
    for (name, build) in GRAPHS {
        rows.push(against_interpreter(name, build, seconds)?);
    }
    for row in &mut rows {
        row["threads"] = json!(rayon::current_num_threads());
        print_line!("{}", describe(row));
    }
    Ok(rows)
}

fn describe(row: &Value) -> String {
    let number = |key: &str| row[key].as_f64().unwrap_or(f64::NAN);
    let compared = match row["what"].as_str() {
        Some("product") => format!(
            "{:.1} GFLOP/s, {:.2}x the time with bias and relu",
            number("gflops"),
            number("fused_ns") / number("ns")
        ),
        _ => format!("{:.1}x faster than {}", number("factor"), row["than"].as_str().unwrap_or_default()),
    };
    let name = row["name"].as_str().unwrap_or_default();
    let threads = row["threads"].as_u64().unwrap_or(1);
    format!("{name:<38}{threads:>8}{:>11.1} us  {compared}", number("ns") / 1e3)
}

/// Returns the minimum times of some calls in ns, interleaved. In each round a call runs once to warm the caches and three
/// times timed. Very long calls have one round.
fn fastest<const N: usize>(seconds: f64, mut work: [&mut dyn FnMut(); N]) -> [f64; N] {
    let mut best = [f64::INFINITY; N];
    let begin = Instant::now();
    for round in 0.. {
        for (best, work) in best.iter_mut().zip(&mut work) {
            work();
            for _ in 0..3 {
                let start = Instant::now();
                work();
                *best = best.min(start.elapsed().as_secs_f64() * 1e9);
            }
        }
        let share = begin.elapsed().as_secs_f64() / seconds;
        if share > 1.0 && (round > 2 || share > 4.0) {
            break;
        }
    }
    best
}

/// Measures a GEMM as a program, and with fused bias and activation. The result is compared with that on slices.
fn product([m, n, k]: [usize; 3], seconds: f64) -> anyhow::Result<Value> {
    let program = |fused: bool| -> anyhow::Result<Program> {
        let mut g = Graph::new();
        let (x, w) = (g.input("x", DType::F32, &[m, k])?, g.input("w", DType::F32, &[k, n])?);
        let mut y = g.matmul(x, w)?;
        if fused {
            let bias = g.input("b", DType::F32, &[n])?;
            y = g.add(y, bias)?;
            y = g.relu(y)?;
        }
        g.output("y", y)?;
        Ok(Program::new(&g)?)
    };
    let numbers: Vec<f32> = (0..(m * k).max(k * n)).map(|i| (i % 13) as f32 * 0.25 - 1.5).collect();
    let [mut plain, mut fused] = [program(false)?.runner(), program(true)?.runner()];
    for runner in [&mut plain, &mut fused] {
        runner.write("x", &numbers[..m * k])?;
        runner.write("w", &numbers[..k * n])?;
    }
    let mut expected = vec![0.0; m * n];
    linalg::matmul(&numbers[..m * k], &numbers[..k * n], &mut expected, m, k, n)?;
    plain.run();
    anyhow::ensure!(
        plain.read::<f32>("y")? == expected,
        "the product of {m}x{k}x{n} differs from that of linalg::matmul"
    );
    let [ours, fused] = fastest(seconds, [&mut || plain.run(), &mut || fused.run()]);
    Ok(json!({
        "what": "product", "name": format!("product {m}x{k}x{n}"), "ns": ours, "fused_ns": fused,
        "gflops": 2.0 * (m * n * k) as f64 / ours,
    }))
}

/// Measures `sum(gelu(x * w + b))` as one fused loop, compared with separate operations.
fn chain(seconds: f64) -> anyhow::Result<Value> {
    let mut g = Graph::new();
    let mut input = |name| g.input(name, DType::F32, &[CHAIN]);
    let (x, w, b) = (input("x")?, input("w")?, input("b")?);
    let product = g.mul(x, w)?;
    let sum = g.add(product, b)?;
    let y = g.gelu(sum)?;
    let total = g.sum_all(y)?;
    g.output("total", total)?;
    let mut runner = Program::new(&g)?.runner();
    let numbers: Vec<f32> = (0..CHAIN).map(|i| (i % 61) as f32 / 16.0 - 1.75).collect();
    // Both variants read three tensors from aligned memory in huge pages.
    let buffer = || Buffer::from(&numbers[..]);
    let (x, w, b, mut first, mut second) = (buffer(), buffer(), buffer(), buffer(), buffer());
    for (name, numbers) in [("x", &x), ("w", &w), ("b", &b)] {
        runner.write(name, numbers)?;
    }
    let mut separately = || -> f32 {
        let done = vector::mul(&x, &w, &mut first)
            .and_then(|()| vector::add(&first, &b, &mut second))
            .and_then(|()| vector::gelu(&second, &mut first));
        done.expect("one length");
        vector::sum(&first)
    };
    runner.run();
    let (ours, right) = (runner.read::<f32>("total")?[0], separately());
    anyhow::ensure!((ours / right - 1.0).abs() < 1e-4, "the fused chain returns {ours}, expected {right}");
    let [ours, separate] = fastest(seconds, [&mut || runner.run(), &mut || _ = black_box(separately())]);
    Ok(json!({
        "what": "chain", "name": "sum(gelu(x * w + b)), 1M", "ns": ours, "other_ns": separate, "factor": separate / ours,
        "than": "one by one",
    }))
}

/// Measures a compiled graph, compared with the interpreter.
fn against_interpreter(name: &str, build: Build, seconds: f64) -> anyhow::Result<Value> {
    let mut g = Graph::new();
    let result = build(&mut g)?;
    g.output("y", result)?;
    let mut runner = Program::new(&g)?.runner();
    let mut inputs = Vec::new();
    for (name, id) in g.inputs() {
        let numbers: Vec<f32> =
            (0..g.shape(id).elements()).map(|i| (i * 37 % 61) as f32 / 61.0 - 0.5).collect();
        runner.write(name, &numbers)?;
        inputs.push((
            name,
            Tensor::float(DType::F32, g.shape(id), numbers.iter().map(|&x| x.into()).collect()),
        ));
    }
    runner.run();
    let right = g.interpret(&inputs)?[0].to_f64();
    for (ours, right) in runner.read::<f32>("y")?.iter().zip(right) {
        let close = (f64::from(*ours) - right).abs() <= 1e-4 * right.abs().max(1.0);
        anyhow::ensure!(close, "{name}: {ours}, expected {right}");
    }
    let [ours, interpreter] =
        fastest(seconds, [&mut || runner.run(), &mut || _ = black_box(g.interpret(&inputs))]);
    Ok(json!({
        "what": "graph", "name": name, "ns": ours, "other_ns": interpreter, "factor": interpreter / ours,
        "than": "the interpreter",
    }))
}
