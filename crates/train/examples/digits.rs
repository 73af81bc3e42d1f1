//! Trains a two-layer network to recognise handwritten digits: 97.5 to 98.3 % of the held-back images with seeds 1 to 8.
//!
//! ```text
//! cargo run --release -p gatework-train --example digits [SEED]
//! ```

use gatework_engine::DType::{F32, I32};
use gatework_train::datasets;
use gatework_train::model::{Initializer, Model, Outputs, Table, Training};
use gatework_train::schedule::Schedule;

fn network(model: &Model, rows: usize) -> Outputs<'_> {
    let pixels = model.input("pixels", F32, &[rows, 64]) / 16.0;
    let digits = model.input("digits", I32, &[rows]);
    let w1 = model.parameter("w1", &[64, 128], Initializer::HeNormal);
    let b1 = model.parameter("b1", &[128], Initializer::Zeros);
    let w2 = model.parameter("w2", &[128, 10], Initializer::LecunNormal);
    let b2 = model.parameter("b2", &[10], Initializer::Zeros);
    let logits = (pixels.matmul(w1) + b1).relu().matmul(w2) + b2;
    let is_right = logits.arg_max(1).equal(digits.reshape(&[rows, 1]));
    Outputs::new(logits.cross_entropy(digits)).with("accuracy", is_right.cast(F32).mean_all())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = datasets::digits();
    let table = Table::new(data.rows()).with("pixels", 64, data.features)?.with("digits", 1, data.labels)?;
    let (training, held_back) = table.split(0.2, 1);
    let trained = Training::new(network)
        .updates(2000)
        .learning_rate(0.003)
        .schedule(Schedule::Cosine { minimum: 0.0 })
        .seed(std::env::args().nth(1).map_or(Ok(1), |seed| seed.parse())?)
        .run(|seed| training.minibatches(32, seed))?;
    let accuracy = trained.predict(&held_back.batch())?.read::<f32>("accuracy")?[0];
    println!("{:.1} % of {} held-back images are recognised", 100.0 * accuracy, held_back.rows());
    assert!(accuracy > 0.9, "the network did not learn");
    Ok(())
}
