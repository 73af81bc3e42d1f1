//! The operations of `gatework-bench engine` that these libraries also have: sizes, operands, expected answers. The
//! counterpart of `engine.py`.

use serde_json::{json, Value};

use crate::{close, ensure, fastest, Failure, Options};

const LENGTHS: [usize; 10] =
    [256, 1024, 3072, 4096, 16_384, 65_536, 262_144, 1 << 20, 1 << 22, 1 << 24];
/// Sizes m, n and k of the matrix multiplications.
const PRODUCTS: [[usize; 3]; 4] = [[32, 512, 168], [256, 512, 512], [1, 512, 512], [128, 128, 128]];
const CHAIN: &str = "sum(gelu(x * w + b)), 1M";

/// What there is to call, and how to read the last answer.
pub struct Call {
    pub run: Box<dyn FnMut() -> Vec<f32>>,
    pub time: Box<dyn FnMut()>,
}

/// A library: what it makes of names and operands; `None` for what it lacks.
pub trait Library {
    fn operation(&self, name: &str, a: &[f32], b: &[f32]) -> Result<Option<Call>, Failure>;
    /// `a` is `[m, k]`, `b` is `[k, n]`.
    fn product(&self, sizes: [usize; 3], a: &[f32], b: &[f32]) -> Result<Call, Failure>;
    fn chain(&self, x: &[f32]) -> Result<Option<Call>, Failure>;
}

/// A right answer in double precision.
type Right = fn(&[f32], &[f32]) -> Vec<f64>;

fn each(a: &[f32], f: impl Fn(f64) -> f64) -> Vec<f64> {
    a.iter().map(|&a| f(a.into())).collect()
}

fn both(a: &[f32], b: &[f32], f: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    a.iter().zip(b).map(|(&a, &b)| f(a.into(), b.into())).collect()
}

const RIGHT: [(&str, Right); 11] = [
    ("add", |a, b| both(a, b, |a, b| a + b)),
    ("mul", |a, b| both(a, b, |a, b| a * b)),
    ("relu", |a, _| each(a, |a| a.max(0.0))),
    ("exp", |a, _| each(a, f64::exp)),
    ("tanh", |a, _| each(a, f64::tanh)),
    ("sigmoid", |a, _| each(a, |a| 1.0 / (1.0 + (-a).exp()))),
    ("gelu", |a, _| each(a, gelu)),
    ("gelu_tanh", |a, _| {
        let root = (2.0 / std::f64::consts::PI).sqrt();
        each(a, |a| a / 2.0 * (1.0 + (root * (a + 0.044_715 * a * a * a)).tanh()))
    }),
    ("sum", |a, _| vec![a.iter().map(|&a| f64::from(a)).sum()]),
    ("dot", |a, b| vec![both(a, b, |a, b| a * b).iter().sum()]),
    ("softmax", |a, _| {
        let most = a.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let exponentials = each(a, |a| (a - f64::from(most)).exp());
        let sum: f64 = exponentials.iter().sum();
        exponentials.iter().map(|e| e / sum).collect()
    }),
];

fn gelu(x: f64) -> f64 {
    x / 2.0 * (1.0 + libm::erf(x / 2f64.sqrt()))
}

/// How far off an answer may be. The rounding errors of a sum are relative to the sum of the magnitudes, which cancel in
/// the sum itself; of 16 million numbers they reach some 1e-4 of it where nothing is done against them.
fn room(name: &str, a: &[f32], b: &[f32]) -> f64 {
    match name {
        "sum" => 1e-3 * a.iter().map(|&a| f64::from(a).abs()).sum::<f64>(),
        "dot" => 1e-3 * both(a, b, |a, b| (a * b).abs()).iter().sum::<f64>(),
        _ => 1e-5,
    }
}

/// Multiples of 1/8 whose sums are exact in any order, as in our benchmark.
fn wave(n: usize, shift: usize) -> Vec<f32> {
    (shift..shift + n).map(|i| (i * 37 % 61) as f32 / 8.0 - 3.75).collect()
}

/// All rows.
pub fn measure(options: &Options, library: &dyn Library) -> Result<Vec<Value>, Failure> {
    let seconds = if options.quick { 0.0005 } else { options.seconds };
    let lengths = &LENGTHS[..if options.quick { 4 } else { LENGTHS.len() }];
    let mut rows = Vec::new();
    for (name, right) in RIGHT.iter().filter(|(name, _)| options.wants(name)) {
        for &n in lengths {
            let (a, b) = (wave(n, 0), wave(n, 501));
            let Some(mut call) = library.operation(name, &a, &b)? else { continue };
            let room = room(name, &a, &b);
            ensure(close(&(call.run)(), &right(&a, &b), 1e-4, room), &format!("{name} of {n}"))?;
            let ns = fastest(seconds, call.time);
            rows.push(json!({ "op": name, "dtype": "f32", "n": n, "threads": options.threads, "ns": ns }));
        }
    }
    // Our products and chains are measured with one thread.
    if options.threads == 1 && options.wants("graphs") {
        for sizes in PRODUCTS {
            rows.push(product(library, sizes, seconds * 10.0)?);
        }
        rows.extend(chain(library, seconds * 10.0)?);
    }
    Ok(rows)
}

fn product(library: &dyn Library, sizes: [usize; 3], seconds: f64) -> Result<Value, Failure> {
    let [m, n, k] = sizes;
    let numbers: Vec<f32> = (0..(m * k).max(k * n)).map(|i| (i % 13) as f32 * 0.25 - 1.5).collect();
    let (a, b) = (&numbers[..m * k], &numbers[..k * n]);
    let element = |i: usize| (0..k).map(|l| f64::from(a[i / n * k + l]) * f64::from(b[l * n + i % n])).sum();
    let right: Vec<f64> = (0..m * n).map(element).collect();
    let name = format!("product {m}x{k}x{n}");
    let mut call = library.product(sizes, a, b)?;
    ensure(close(&(call.run)(), &right, 1e-4, 1e-4), &name)?;
    Ok(json!({ "name": name, "threads": 1, "ns": fastest(seconds, call.time) }))
}

fn chain(library: &dyn Library, seconds: f64) -> Result<Option<Value>, Failure> {
    let x: Vec<f32> = (0..1 << 20).map(|i| (i % 61) as f32 / 16.0 - 1.75).collect();
    let Some(mut call) = library.chain(&x)? else { return Ok(None) };
    let right = each(&x, |x| gelu(x * x + x)).iter().sum();
    ensure(close(&(call.run)(), &[right], 1e-4, 0.0), CHAIN)?;
    Ok(Some(json!({ "name": CHAIN, "threads": 1, "ns": fastest(seconds, call.time) })))
}
