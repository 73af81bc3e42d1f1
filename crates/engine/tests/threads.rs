//! Parallel loops with the chunk size of release builds: unit tests use smaller chunks.

use gatework_engine::{DType, Graph, Program};

/// The outputs of a chain with all kinds of sums, on a number of threads.
fn run(threads: usize) -> Vec<Vec<f32>> {
    let mut g = Graph::new();
    let (rows, columns) = (1100, 1013);
    let x = g.input("x", DType::F32, &[rows, columns]).unwrap();
    let w = g.input("w", DType::F32, &[columns]).unwrap();
    let product = g.mul(x, w).unwrap();
    let y = g.gelu(product).unwrap();
    let sums = [g.sum_all(y).unwrap(), g.sum(y, &[0]).unwrap(), g.sum(y, &[1]).unwrap()];
    g.output("y", y).unwrap();
    for (name, sum) in ["all", "columns", "rows"].iter().zip(sums) {
        g.output(name, sum).unwrap();
    }
    let mut runner = Program::new(&g).unwrap().runner();
    let numbers: Vec<f32> = (0..rows * columns).map(|i| (i * 7919 % 10007) as f32 / 5003.5 - 1.0).collect();
    runner.write("x", &numbers).unwrap();
    runner.write("w", &numbers[..columns]).unwrap();
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| runner.run());
    ["y", "all", "columns", "rows"].map(|name| runner.read::<f32>(name).unwrap().to_vec()).to_vec()
}

#[test]
fn large_loops_have_the_same_bits_on_any_number_of_threads() {
    let one = run(1);
    for threads in [2, 3, 7] {
        assert!(run(threads) == one, "{threads} threads");
    }
    let exact: f64 = one[0].iter().map(|&y| f64::from(y)).sum();
    let size: f64 = one[0].iter().map(|&y| f64::from(y).abs()).sum();
    assert!((f64::from(one[1][0]) - exact).abs() < 1e-6 * size, "{} for {exact}", one[1][0]);
}
