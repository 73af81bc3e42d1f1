//! Writes a graph as an ONNX model for any batch size, with its weights inside.
//!
//! ```text
//! cargo run -p gatework-engine --features onnx --example onnx [FILE]
//! ```

use gatework_engine::onnx::{self, Model, OnnxError};
use gatework_engine::{DType, Graph, Scope};

/// The probabilities of three classes of points in the plane. Inputs without a value here are those of the model.
fn classifier(batch: usize) -> Result<Graph, OnnxError> {
    let scope = Scope::new();
    let points = scope.input("points", DType::F32, &[batch, 2]);
    let (w, b) = (scope.input("w", DType::F32, &[2, 3]), scope.input("b", DType::F32, &[3]));
    Ok(scope.graph(&[("probabilities", (points.matmul(w) + b).softmax(1))])?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (w, b) = ([4.0f32, 0.0, -4.0, 0.0, 4.0, -4.0], [0.0f32, 0.0, 0.5]);
    let model = Model::named("classifier")
        .with_description("Classifies points in the plane.")
        .with_parameter("w", &w[..])
        .with_parameter("b", &b[..]);
    let bytes = onnx::write_batched(classifier, &model)?;
    match std::env::args().nth(1) {
        Some(path) => std::fs::write(path, &bytes)?,
        None => println!("{} bytes: points [batch, 2] -> probabilities [batch, 3]", bytes.len()),
    }
    Ok(())
}
