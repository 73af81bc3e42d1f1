//! Classifies points by a linear layer on slices: matrix multiplication, softmax and cross-entropy.
//!
//! `cargo run --release -p gatework-engine --example slices`

use gatework_engine::linalg::{self, MatrixView, MatrixViewMut};
use gatework_engine::vector::{self, VectorError};

/// Adds the same row to all rows of a matrix.
fn add_to_rows<T: vector::Number>(rows: &mut [T], row: &[T]) -> Result<(), VectorError> {
    rows.chunks_mut(row.len().max(1)).try_for_each(|to| vector::add_in_place(to, row))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Four points of two coordinates, and a layer with three classes.
    let (points, features, classes) = (4, 2, 3);
    let x = [1.0f32, 0.0, 0.0, 1.0, -1.0, -1.0, 0.9, 0.1];
    let weights = [4.0f32, 0.0, -4.0, 0.0, 4.0, -4.0];
    let bias = [0.0f32, 0.0, 0.5];
    let targets = [0, 1, 2, 0];

    let mut logits = vec![0.0; points * classes];
    linalg::matmul(&x, &weights, &mut logits, points, features, classes)?;
    add_to_rows(&mut logits, &bias)?;

    let mut probabilities = vec![0.0; logits.len()];
    vector::softmax_rows(&logits, classes, &mut probabilities)?;
    for (point, row) in x.chunks(features).zip(probabilities.chunks(classes)) {
        println!("{point:?} is class {:?}, probabilities {row:.3?}", vector::arg_max(row).unwrap_or(0));
    }
    println!("cross-entropy {:.4}", vector::cross_entropy(&logits, &targets)?);

    // The gradient of the weights is x transposed times the error; the view does not copy x.
    let mut error = probabilities;
    for (row, &class) in error.chunks_mut(classes).zip(&targets) {
        row[class] -= 1.0;
    }
    let mut gradient = vec![0.0; weights.len()];
    linalg::matmul_views(
        MatrixView::new(&x, points, features)?.transposed(),
        MatrixView::new(&error, points, classes)?,
        MatrixViewMut::new(&mut gradient, features, classes)?,
    )?;
    println!("gradient of the weights {gradient:.4?}");
    Ok(())
}
