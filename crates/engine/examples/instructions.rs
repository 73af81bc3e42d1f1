//! Runs one kernel, so that its instructions can be counted: `.ci/instructions` runs this under valgrind.
//!
//! ```text
//! cargo run -p gatework-engine --example instructions -- [KERNEL]
//! ```
//!
//! Without a name it lists the kernels. Only the instructions of [`counted`] are counted; the kernel has run once before.

use std::process::ExitCode;

use gatework_engine::graph::{Conv1d, Gru};
use gatework_engine::kernel::int8::{Activations, Weights};
use gatework_engine::{DType, Graph, GraphError, Id, Program, vector};

/// Elements of the operands of vector operations.
const N: usize = 4096;

/// Function that prepares a kernel.
type Prepare = fn() -> Box<dyn FnMut()>;

const KERNELS: [(&str, Prepare); 14] = [
    ("add", || pair(|a, b, out| vector::add(a, b, out).expect("one length"))),
    ("mul", || pair(|a, b, out| vector::mul(a, b, out).expect("one length"))),
    ("sum", || pair(|a, _, out| out[0] = vector::sum(a))),
    ("exp", || pair(|a, _, out| vector::exp(a, out).expect("one length"))),
    ("tanh", || pair(|a, _, out| vector::tanh(a, out).expect("one length"))),
    ("sigmoid", || pair(|a, _, out| vector::sigmoid(a, out).expect("one length"))),
    ("gelu", || pair(|a, _, out| vector::gelu(a, out).expect("one length"))),
    ("softmax", || pair(|a, _, out| vector::softmax(a, out).expect("one length"))),
    ("matmul", || {
        program(|g| {
            let (x, w) = (g.input("x", DType::F32, &[32, 168])?, g.input("w", DType::F32, &[168, 256])?);
            g.matmul(x, w)
        })
    }),
    ("chain", || {
        program(|g| {
            let (x, w) = (g.input("x", DType::F32, &[64, 512])?, g.input("w", DType::F32, &[512])?);
            let product = g.mul(x, w)?;
            let y = g.gelu(product)?;
            g.sum_all(y)
        })
    }),
    ("layer norm", || {
        program(|g| {
            let x = g.input("x", DType::F32, &[64, 128])?;
            let (gain, bias) = (g.input("g", DType::F32, &[128])?, g.input("b", DType::F32, &[128])?);
            g.layer_norm(x, gain, bias, 1e-5)
        })
    }),
    ("convolution", || {
        program(|g| {
            let (x, kernel) =
                (g.input("x", DType::F32, &[4, 16, 96])?, g.input("k", DType::F32, &[32, 16, 3])?);
            g.conv1d(x, kernel, None, Conv1d { before: 2, ..Conv1d::default() })
        })
    }),
    ("gru", || {
        program(|g| {
            let x = g.input("x", DType::F32, &[16, 12, 4])?;
            let mut weight = |name, sizes: &[usize]| g.input(name, DType::F32, sizes);
            let cell = Gru {
                input: weight("wi", &[96, 4])?,
                hidden: weight("wh", &[96, 32])?,
                input_bias: weight("bi", &[96])?,
                hidden_bias: weight("bh", &[96])?,
            };
            g.gru(x, &cell)
        })
    }),
    ("int8", || {
        let weights = Weights::quantize(&numbers(64 * 256), 64, 256).expect("64 x 256 finite weights");
        let (x, mut rows, mut out) = (numbers(4 * 256), Activations::default(), vec![0.0; 4 * 64]);
        Box::new(move || weights.multiply(&x, &mut rows, &mut out).expect("lengths fit"))
    }),
];

fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|i| (i * 37 % 61) as f32 / 16.0 - 1.9).collect()
}

/// Prepares an operation on two slices and a result.
fn pair(run: fn(&[f32], &[f32], &mut [f32])) -> Box<dyn FnMut()> {
    let (a, b, mut out) = (numbers(N), numbers(N + 7).split_off(7), vec![0.0; N]);
    Box::new(move || run(&a, &b, &mut out))
}

/// Prepares a compiled graph.
fn program(build: fn(&mut Graph) -> Result<Id, GraphError>) -> Box<dyn FnMut()> {
    let mut g = Graph::new();
    let y = build(&mut g).expect("shapes fit");
    g.output("y", y).expect("one output");
    let mut runner = Program::new(&g).expect("it has an output").runner();
    for (name, id) in g.inputs() {
        runner.write(name, &numbers(g.shape(id).elements())).expect("the input exists");
    }
    Box::new(move || runner.run())
}

/// The function whose instructions are counted.
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
        eprintln!("unknown kernel {name:?}; run without a name to list the kernels");
        return ExitCode::from(2);
    };
    let mut kernel = prepare();
    kernel();
    counted(&mut *kernel);
    ExitCode::SUCCESS
}
