//! Measures the errors of the `f32` vector functions in ULP, at all 2^32 arguments.
//!
//! ```text
//! cargo run --release -p gatework-engine --example exhaustive -- [--step N] [FUNCTION]...
//! ```
//!
//! `--step N` tests every Nth argument only. The exit status is 1 if an error exceeds the bound of the function.
//! `RUSTFLAGS='--cfg gatework_simd="avx2"'` (or `"sse2"`) selects another instruction set than the best one.

use std::process::ExitCode;

use gatework_engine::vector::{Function, functions};
use rayon::prelude::*;

/// Arguments per call.
const BLOCK: u64 = 1 << 16;

/// The largest error, and its argument.
#[derive(Clone, Copy, Default)]
struct Worst {
    ulps: f64,
    at: f64,
}

impl Worst {
    fn larger(self, other: Self) -> Self {
        if other.ulps > self.ulps { other } else { self }
    }
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut step, mut names) = (1, Vec::new());
    while let Some(argument) = arguments.next() {
        if argument == "--step" {
            step = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(1).max(1);
        } else {
            names.push(argument);
        }
    }
    println!("instruction set: {}", gatework_engine::kernel::simd_name());
    let mut kept = true;
    for function in functions::<f32>() {
        if names.is_empty() || names.iter().any(|name| name == function.name) {
            let worst = all_f32(&function, step);
            let bound = function.ulps[0];
            println!("{:<12} f32 {:8.4} ULP at {:e} (bound {bound})", function.name, worst.ulps, worst.at);
            kept &= worst.ulps <= bound;
        }
    }
    ExitCode::from(u8::from(!kept))
}

/// Returns the largest error over every `step`th `f32`.
fn all_f32(function: &Function<f32>, step: u64) -> Worst {
    let blocks = (1u64 << 32).div_ceil(BLOCK * step);
    let block = |index: u64| {
        let first = index * BLOCK * step;
        let x: Vec<f32> = (0..BLOCK).map(|i| f32::from_bits((first + i * step) as u32)).collect();
        let mut y = vec![0.0; x.len()];
        (function.run)(&x, &mut y).expect("the slices have the same length");
        x.iter().zip(&y).fold(Worst::default(), |worst, (&x, &y)| {
            let expected = (function.reference)(f64::from(x));
            // A reference that rounds to infinity in `f32` counts as infinity.
            let expected =
                if (expected as f32).is_infinite() { f64::from(expected as f32) } else { expected };
            let error = function.error(f64::from(y), expected, 24, -126);
            worst.larger(Worst { ulps: error, at: f64::from(x) })
        })
    };
    (0..blocks).into_par_iter().map(block).reduce(Worst::default, Worst::larger)
}
