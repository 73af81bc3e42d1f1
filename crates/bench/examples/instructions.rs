//! One kernel whose instructions `.ci/instructions` counts under Valgrind.
//!
//! ```text
//! cargo run --release -p gatework-bench --example instructions -- [KERNEL]
//! ```
//!
//! Without a name it lists the kernels. Only instructions below [`counted`] count: by then everything is allocated, and the
//! kernel has run and been checked.

use std::process::ExitCode;

use gatework_bench::workload::engine::{Cell, GraphOperation, SliceOperation};
use gatework_bench::workload::{Call, circuits, engine, learning};
use gatework_engine::graph::Conv1d;
use gatework_engine::{DType, Graph, vector};

/// Elements of the operands of slice operations.
const N: usize = 4096;

/// Sizes of recurrent layers: batch, steps, inputs.
const SEQUENCES: [usize; 3] = [16, 12, 4];

/// Sizes of attention: batch, tokens, width.
const TOKENS: [usize; 3] = [2, 48, 32];

/// Layer sizes of the network of soft gates.
const GATES: [usize; 4] = [128, 256, 256, 128];

type Prepare = fn() -> anyhow::Result<Call>;

const KERNELS: [(&str, Prepare); 26] = [
    ("add", || slices(|a, b, out| vector::add(a, b, out).expect("same length"), Graph::add)),
    ("mul", || slices(|a, b, out| vector::mul(a, b, out).expect("same length"), Graph::mul)),
    ("sum", || slices(|a, _, out| out[0] = vector::sum(a), |g, a, _| g.sum_all(a))),
    ("exp", || slices(|a, _, out| vector::exp(a, out).expect("same length"), |g, a, _| g.exp(a))),
    ("tanh", || slices(|a, _, out| vector::tanh(a, out).expect("same length"), |g, a, _| g.tanh(a))),
    ("sigmoid", || slices(|a, _, out| vector::sigmoid(a, out).expect("same length"), |g, a, _| g.sigmoid(a))),
    ("gelu", || slices(|a, _, out| vector::gelu(a, out).expect("same length"), |g, a, _| g.gelu(a))),
    ("softmax", || {
        slices(|a, _, out| vector::softmax(a, out).expect("same length"), |g, a, _| g.softmax(a, 0))
    }),
    ("matmul", || engine::matmul([32, 168, 256])),
    ("chain", || {
        engine::program(&|g| {
            let (x, w) = (g.input("x", DType::F32, &[64, 512])?, g.input("w", DType::F32, &[512])?);
            let product = g.mul(x, w)?;
            let y = g.gelu(product)?;
            Ok(vec![g.sum_all(y)?])
        })
    }),
    ("layer norm", || engine::layer_norm(64, 128, false)),
    ("layer norm, gradients", || engine::layer_norm(64, 128, true)),
    ("attention", || engine::attention(TOKENS, 4, false)),
    ("attention, gradients", || engine::attention(TOKENS, 4, true)),
    ("convolution", || {
        engine::program(&|g| {
            let (x, kernel) =
                (g.input("x", DType::F32, &[4, 16, 96])?, g.input("k", DType::F32, &[32, 16, 3])?);
            Ok(vec![g.conv1d(x, kernel, None, Conv1d { before: 2, ..Conv1d::default() })?])
        })
    }),
    ("gru", || engine::recurrent(Cell::Gru, SEQUENCES, 32, false)),
    ("gru, gradients", || engine::recurrent(Cell::Gru, SEQUENCES, 32, true)),
    ("lstm", || engine::recurrent(Cell::Lstm, SEQUENCES, 32, false)),
    ("lstm, gradients", || engine::recurrent(Cell::Lstm, SEQUENCES, 32, true)),
    ("int8", engine::int8),
    ("adam", || learning::adam(N)),
    ("soft gates", || learning::soft_gates(&GATES, false)),
    ("soft gates, gradients", || learning::soft_gates(&GATES, true)),
    ("life", || circuits::life(256, 4)),
    ("circuit", || circuits::simulate(10_000, 256)),
    ("minimise", || circuits::minimization(200)),
];

fn slices(run: SliceOperation, reference: GraphOperation) -> anyhow::Result<Call> {
    engine::slices(N, run, reference)
}

/// Delimits what is counted: `.ci/instructions` collects between entry and return.
#[inline(never)]
fn counted(kernel: &mut dyn FnMut()) {
    kernel();
}

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        for (name, _) in KERNELS {
            println!("{name}");
        }
        return ExitCode::SUCCESS;
    };
    let Some((_, prepare)) = KERNELS.iter().find(|(known, _)| *known == name) else {
        eprintln!("error: no kernel is called {name:?}; run without arguments for a list");
        return ExitCode::from(2);
    };
    let mut kernel = match prepare() {
        Ok(kernel) => kernel,
        Err(error) => {
            eprintln!("error: {name}: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    kernel();
    counted(&mut *kernel);
    ExitCode::SUCCESS
}
