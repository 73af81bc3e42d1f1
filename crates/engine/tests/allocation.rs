//! Running a program does not allocate.

use gatework_engine::graph::{Conv1d, Gru};
use gatework_engine::program::{WeightFormat, Weights};
use gatework_engine::{DType, Graph, GraphError, Id, Program};
use gatework_test_support::counting::{self, CountingAllocator};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Every kind of kernel except matrix multiplications, with gradients.
fn without_matmul(g: &mut Graph) -> Result<(), GraphError> {
    let x = g.input("x", DType::F32, &[4, 6, 12])?;
    let scale = g.input("scale", DType::F32, &[12])?;
    let padded = g.pad(x, 1, 1, 2)?;
    let scaled = g.mul(padded, scale)?;
    let weights = g.softmax(scaled, 2)?;
    let indices = g.data(DType::I32, &[5], &[0.0, 3.0, 3.0, 8.0, -1.0])?;
    let picked = g.gather(weights, indices, 1)?;
    let running = g.cumsum(picked, false)?;
    let best = g.arg_max(running, 2)?;
    let best = g.cast(best, DType::F32)?;
    let sum = g.mul(running, best)?;
    outputs(g, sum, &[x, scale])
}

/// Matrix multiplications: a convolution, a recurrent cell and attention, with gradients.
fn with_matmul(g: &mut Graph) -> Result<(), GraphError> {
    let x = g.input("x", DType::F32, &[4, 6, 12])?;
    let kernel = g.input("kernel", DType::F32, &[5, 6, 3])?;
    let convolved = g.conv1d(x, kernel, None, Conv1d { before: 2, ..Conv1d::default() })?;
    let by_time = g.permute(convolved, &[0, 2, 1])?;
    let mut weight = |name: &str, sizes: &[usize]| g.input(name, DType::F32, sizes);
    let cell = Gru {
        input: weight("input", &[9, 5])?,
        hidden: weight("hidden", &[9, 3])?,
        input_bias: weight("input_bias", &[9])?,
        hidden_bias: weight("hidden_bias", &[9])?,
    };
    let states = g.gru(by_time, &cell)?;
    let attended = g.attention(states, states, states)?;
    outputs(g, attended, &[x, kernel, cell.input, cell.hidden, cell.input_bias, cell.hidden_bias])
}

/// Parallel loops, with and without partial results.
fn large_loops(g: &mut Graph) -> Result<(), GraphError> {
    let x = g.input("x", DType::F32, &[4, 6, 12])?;
    let wide = g.reshape(x, &[1, 288])?;
    let wide = g.expand(wide, &[1500, 288])?;
    let other = g.input("other", DType::F32, &[1500, 288])?;
    let product = g.mul(wide, other)?;
    let y = g.tanh(product)?;
    let (columns, rows) = (g.sum(y, &[0])?, g.sum(product, &[1])?);
    g.output("y", y)?;
    g.output("columns", columns)?;
    g.output("rows", rows)?;
    outputs(g, y, &[x])
}

/// Allocations of a second run with 8-bit weights.
fn allocations_with_quantized_weights() -> usize {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[80, 40]).unwrap();
    let w = g.input("w", DType::F32, &[40, 30]).unwrap();
    let b = g.input("b", DType::F32, &[30]).unwrap();
    let product = g.matmul(x, w).unwrap();
    let sum = g.add(product, b).unwrap();
    let y = g.relu(sum).unwrap();
    g.output("y", y).unwrap();
    let mut weights = Weights::builder(&g, &["w"], WeightFormat::Int8).unwrap();
    weights.write("w", &[0.5; 40 * 30]).unwrap();
    let mut runner = Program::with_weights(&g, &weights.finish().unwrap()).unwrap().runner();
    runner.run();
    let before = counting::allocations_of_thread();
    runner.write("x", &[0.5f32; 80 * 40]).unwrap();
    runner.run();
    counting::allocations_of_thread() - before
}

/// The mean as a loss, and its gradients.
fn outputs(g: &mut Graph, y: Id, of: &[Id]) -> Result<(), GraphError> {
    let loss = g.mean_all(y)?;
    let gradients = g.gradients(loss, of)?;
    g.output("loss", loss)?;
    for (i, gradient) in gradients.into_iter().enumerate() {
        g.output(&format!("gradient {i}"), gradient)?;
    }
    Ok(())
}

type Build = fn(&mut Graph) -> Result<(), GraphError>;

/// Allocations of a second run by `count`; the first run allocates scratch memory.
fn allocations(build: Build, kinds: &[&str], count: fn() -> usize) -> usize {
    let mut g = Graph::new();
    build(&mut g).unwrap();
    let program = Program::new(&g).unwrap();
    let kernels = program.kernels();
    for kind in kinds {
        assert!(kernels.iter().any(|kernel| kernel.starts_with(kind)), "no {kind} in\n{program}");
    }
    let mut runner = program.runner();
    let numbers: Vec<f32> = (0..288).map(|i| (i % 17) as f32 * 0.05 - 0.4).collect();
    runner.run();
    let before = count();
    runner.write("x", &numbers).unwrap();
    runner.run();
    assert!(runner.read::<f32>("loss").unwrap()[0].is_finite());
    count() - before
}

#[test]
fn runs_do_not_allocate() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(|| {
        let kinds = ["loop", "zero", "softmax", "gather", "scatter_add", "cumsum", "arg_reduce", "cast"];
        let of_thread = counting::allocations_of_thread;
        assert_eq!(allocations(without_matmul, &kinds, of_thread), 0);
        let kinds = ["matmul", "gru", "gru gradient", "attention", "attention gradient"];
        assert_eq!(allocations(with_matmul, &kinds, of_thread), 0);
        assert_eq!(allocations(large_loops, &["loop"], of_thread), 0);
        assert_eq!(allocations_with_quantized_weights(), 0);
    });
    // Waking threads may allocate a little; their scratch memory is kept.
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let on_two_threads = pool.install(|| allocations(large_loops, &["loop"], counting::allocations));
    assert!(on_two_threads < 4, "{on_two_threads}");
}
