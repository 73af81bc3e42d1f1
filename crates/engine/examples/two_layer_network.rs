//! Trains a two-layer network with Adam to tell the points inside a circle from those outside.
//!
//! The training loop is written out here. `gatework-train` has one with batches, validation and checkpoints.
//!
//! ```text
//! cargo run -p gatework-engine --example two_layer_network
//! ```

use gatework_engine::kernel::optim::{Adam, adam};
use gatework_engine::{DType, Scope};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The task: 1 for points of a grid that are inside a circle, 0 for the others.
    let points: Vec<[f32; 2]> = (0..256).map(|i| [i % 16, i / 16].map(|k| k as f32 / 8.0 - 1.0)).collect();
    let labels: Vec<f32> = points.iter().map(|[x, y]| f32::from(x * x + y * y < 0.5)).collect();

    // The network, its loss, and the gradients of all parameters.
    let scope = Scope::new();
    let input = |name, sizes: &[usize]| scope.input(name, DType::F32, sizes);
    let (x, label) = (input("x", &[256, 2]), input("label", &[256, 1]));
    let (w1, b1, w2, b2) =
        (input("w1", &[2, 16]), input("b1", &[16]), input("w2", &[16, 1]), input("b2", &[1]));
    let logit = (x.matmul(w1) + b1).tanh().matmul(w2) + b2;
    let loss = logit.binary_cross_entropy(label);
    let [dw1, db1, dw2, db2] = loss.gradients([w1, b1, w2, b2]);
    let outputs = [("loss", loss), ("dw1", dw1), ("db1", db1), ("dw2", dw2), ("db2", db2)];

    // Compiled once, run for every step. All parameters are in one vector.
    let program = scope.compile(&outputs)?;
    println!("{program}");
    let mut runner = program.runner();
    runner.write("x", points.as_flattened())?;
    runner.write("label", &labels)?;
    runner.bind_updates(&[
        ("w1", "dw1", 0..32),
        ("b1", "db1", 32..48),
        ("w2", "dw2", 48..64),
        ("b2", "db2", 64..65),
    ])?;
    let mut values: Vec<f32> = (0..65).map(|i| (i * 7 % 13) as f32 / 13.0 - 0.5).collect();
    let (mut first, mut second, mut losses) = ([0.0; 65], [0.0; 65], Vec::new());
    for step in 1..=300 {
        let settings = Adam { learning_rate: 0.05, step, ..Adam::default() };
        runner.run_updating(&mut values, &mut |range, values, gradient| {
            adam(&settings, values, gradient, &mut first[range.clone()], &mut second[range]);
        })?;
        losses.push(runner.read::<f32>("loss")?[0]);
    }
    println!("{}", runner.timings(10));
    let (before, after) = (losses[0], losses[losses.len() - 1]);
    println!("loss before {before:.4}, after {after:.4}");
    assert!(after < 0.1 * before, "the network did not learn");
    Ok(())
}
