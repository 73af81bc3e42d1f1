//! candle on the operations of the engine. Every result is newly allocated.

use std::hint::black_box;

use candle_core::{Device, Tensor};
use gatework_peers::engine::{measure, Call, Library};
use gatework_peers::{report, run, Failure, Options};

struct Candle;

/// A call whose answer is a tensor.
fn call(compute: impl Fn() -> candle_core::Result<Tensor> + Clone + 'static) -> Call {
    let again = compute.clone();
    let read = move || {
        let answer = compute().and_then(|tensor| tensor.flatten_all()).and_then(|tensor| tensor.to_vec1());
        answer.unwrap_or_default()
    };
    Call { run: Box::new(read), time: Box::new(move || drop(black_box(again()))) }
}

impl Library for Candle {
    fn operation(&self, name: &str, a: &[f32], b: &[f32]) -> Result<Option<Call>, Failure> {
        let (a, b) = (Tensor::new(a, &Device::Cpu)?, Tensor::new(b, &Device::Cpu)?);
        Ok(Some(match name {
            "add" => call(move || &a + &b),
            "mul" => call(move || &a * &b),
            "relu" => call(move || a.relu()),
            "exp" => call(move || a.exp()),
            "tanh" => call(move || a.tanh()),
            "sigmoid" => call(move || candle_nn::ops::sigmoid(&a)),
            "gelu" => call(move || a.gelu_erf()),
            "gelu_tanh" => call(move || a.gelu()),
            "sum" => call(move || a.sum_all()),
            "dot" => call(move || a.dot(&b)),
            "softmax" => call(move || candle_nn::ops::softmax_last_dim(&a)),
            _ => return Ok(None),
        }))
    }

    fn product(&self, [m, n, k]: [usize; 3], a: &[f32], b: &[f32]) -> Result<Call, Failure> {
        let a = Tensor::from_slice(a, (m, k), &Device::Cpu)?;
        let b = Tensor::from_slice(b, (k, n), &Device::Cpu)?;
        Ok(call(move || a.matmul(&b)))
    }

    fn chain(&self, x: &[f32]) -> Result<Option<Call>, Failure> {
        let new = || Tensor::new(x, &Device::Cpu);
        let (x, w, b) = (new()?, new()?, new()?);
        Ok(Some(call(move || ((&x * &w)? + &b)?.gelu_erf()?.sum_all())))
    }
}

fn main() {
    run(|| {
        let options = Options::read(0.01)?;
        let rows = measure(&options, &Candle)?;
        report("engine", "candle", gatework_peers::CANDLE, "new outputs, its own gemm (no MKL)", rows);
        Ok(())
    });
}
