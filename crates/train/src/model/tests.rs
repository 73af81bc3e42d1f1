//! Training of small networks: exact resume, threads, validation, errors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use gatework_engine::DType::{F32, F64, I32};

use super::*;
use crate::optim::{Clip, Optimizer};
use crate::trainer::{Attempt, Observer, Outcome};

/// A two-layer network that separates points inside a circle from those outside.
fn circle(model: &Model, rows: usize) -> Outputs<'_> {
    let (x, label) = (model.input("x", F32, &[rows, 2]), model.input("label", F32, &[rows, 1]));
    let w1 = model.parameter("w1", &[2, 24], Initializer::LecunNormal);
    let b1 = model.parameter("b1", &[24], Initializer::Uniform(0.5));
    let w2 = model.parameter("w2", &[24, 1], Initializer::LecunUniform);
    let b2 = model.parameter("b2", &[1], Initializer::Zeros);
    let logit = (x.matmul(w1) + b1).tanh().matmul(w2) + b2;
    Outputs::new(logit.binary_cross_entropy(label)).with("logit", logit).with("double", x * 2.0)
}

fn points() -> Table {
    let points: Vec<[f32; 2]> = (0..100).map(|i| [i % 10, i / 10].map(|k| k as f32 / 4.5 - 1.0)).collect();
    let labels: Vec<f32> = points.iter().map(|[x, y]| f32::from(x * x + y * y < 0.5)).collect();
    Table::new(100).with("x", 2, points.as_flattened().to_vec()).unwrap().with("label", 1, labels).unwrap()
}

fn training() -> Training<impl Fn(&Model, usize) -> Outputs<'_> + Sync> {
    Training::new(circle).updates(60).learning_rate(0.02).seed(3).threads(1)
}

/// The losses of all updates, and the parameters, by their bits.
fn bits<F: Fn(&Model, usize) -> Outputs<'_>>(trained: &Trained<F>) -> (Vec<(u64, Option<u64>)>, Vec<u32>) {
    let losses = trained.attempt().metrics.iter().map(|m| (m.soft.to_bits(), m.hard.map(f64::to_bits)));
    (losses.collect(), trained.params().values.iter().map(|x| x.to_bits()).collect())
}

#[test]
fn a_network_learns_and_predicts() {
    let points = points();
    let trained = training().updates(500).run(|seed| points.minibatches(32, seed)).unwrap();
    let metrics = &trained.attempt().metrics;
    assert_eq!((metrics.len(), trained.attempt().outcome), (501, Outcome::Exhausted));
    assert!(metrics[500].soft < 0.5 * metrics[0].soft, "{} for {}", metrics[500].soft, metrics[0].soft);
    // The parameters are those after the last update, and the prediction is the formula.
    let runner = trained.predict(&points.batch()).unwrap();
    let [w1, b1, w2, b2] = ["w1", "b1", "w2", "b2"].map(|name| trained.get(name).unwrap());
    let hidden = |j: usize| (b1[j] - w1[j] - w1[24 + j]).tanh() * w2[j];
    let logit = (0..24).map(hidden).sum::<f32>() + b2[0];
    assert!((runner.read::<f32>("logit").unwrap()[0] - logit).abs() < 1e-4);
    assert_eq!(runner.read::<f32>("double").unwrap()[..2], [-2.0, -2.0]);
    assert_eq!(trained.get("w3"), None);
}

/// Stops training after some updates.
struct StopAfter<'a> {
    updates: u64,
    stop: &'a AtomicBool,
}

impl Observer for StopAfter<'_> {
    fn updated(&self, attempt: &Attempt) {
        self.stop.fetch_or(attempt.update == self.updates, Ordering::SeqCst);
    }
}

#[test]
fn a_resumed_training_has_the_bits_of_an_uninterrupted_one() {
    let (table, held_back) = points().split(0.25, 1);
    let sgd = Optimizer::Sgd { momentum: 0.9, nesterov: true, weight_decay: 1e-3 };
    let adam = Optimizer::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.01 };
    for (optimizer, clip) in
        [(adam.clone(), None), (sgd, Some(Clip::Value(0.1))), (adam, Some(Clip::Norm(0.5)))]
    {
        for validates in [false, true] {
            let folder = tempfile::tempdir().unwrap();
            let training = || {
                let training = training().optimizer(optimizer.clone());
                let training = clip.into_iter().fold(training, Training::clip);
                if validates { training.validation([held_back.batch()], 7) } else { training }
            };
            let batches = |seed| table.minibatches(16, seed);
            let whole = training().run(batches).unwrap();
            // Interrupted twice; the second time at a validation.
            for updates in [13, 35] {
                let stop = AtomicBool::new(false);
                let part = training().checkpoints(folder.path(), Duration::MAX);
                let error =
                    part.run_observed(batches, &StopAfter { updates, stop: &stop }, &stop).unwrap_err();
                assert!(
                    matches!(error, TrainingError::Stopped { updates: made } if made == updates),
                    "{error}"
                );
            }
            let resumed = training().checkpoints(folder.path(), Duration::MAX).run(batches).unwrap();
            assert_eq!(bits(&resumed), bits(&whole), "{optimizer:?} {clip:?} {validates}");
            // Once more: nothing is left to do.
            let again = training().checkpoints(folder.path(), Duration::MAX).run(batches).unwrap();
            assert_eq!(bits(&again), bits(&whole));
        }
    }
}

#[test]
fn the_result_does_not_depend_on_the_number_of_threads() {
    // Large enough for kernels that use several threads.
    fn wide(model: &Model, rows: usize) -> Outputs<'_> {
        let x = model.input("x", F32, &[rows, 2]);
        let hidden = x.matmul(model.parameter("w1", &[2, 512], Initializer::HeUniform)).relu();
        let hidden = hidden.matmul(model.parameter("w2", &[512, 512], Initializer::HeNormal)).relu();
        let y = hidden.matmul(model.parameter("w3", &[512, 1], Initializer::LecunNormal));
        Outputs::new(y.mse(model.input("label", F32, &[rows, 1]))).with("y", y)
    }
    let points = points();
    let results = [1, 2, 3].map(|threads| {
        let training = Training::new(wide).updates(4).threads(threads);
        bits(&training.validation([points.batch()], 2).run(|seed| points.minibatches(64, seed)).unwrap())
    });
    assert_eq!(results[0], results[1]);
    assert_eq!(results[0], results[2]);
}

#[test]
fn updating_during_the_backward_pass_changes_no_bit() {
    let points = points();
    // A limit that is never reached: clipping by norm needs all gradients first.
    let during = training().run(|seed| points.minibatches(16, seed)).unwrap();
    let after = training().clip(Clip::Norm(1e30)).run(|seed| points.minibatches(16, seed)).unwrap();
    assert_eq!(bits(&during), bits(&after));
}

#[test]
fn the_best_parameters_are_those_with_the_lowest_validation_loss() {
    let (table, held_back) = points().split(0.25, 1);
    let training = training().learning_rate(0.5).validation([held_back.batch()], 5);
    let trained = training.run(|seed| table.minibatches(16, seed)).unwrap();
    let losses: Vec<(usize, f64)> =
        trained.attempt().metrics.iter().enumerate().filter_map(|(i, m)| Some((i, m.hard?))).collect();
    assert_eq!(
        losses.iter().map(|(i, _)| *i).collect::<Vec<_>>(),
        (1..=12).map(|i| 5 * i).collect::<Vec<_>>()
    );
    let lowest = losses.iter().map(|(_, loss)| *loss).fold(f64::INFINITY, f64::min);
    let best = trained.attempt().best.as_ref().unwrap();
    assert_eq!(best.hard, lowest);
    assert_eq!(best.values, trained.params().values);
}

#[test]
fn early_stopping_ends_training() {
    // The gradient is 0 everywhere, so the loss never changes.
    let constant = Training::new(|model, rows| {
        let w = model.parameter("w", &[1], Initializer::Constant(0.5));
        Outputs::new((w.floor() + model.input("x", F32, &[rows])).mean_all())
    });
    let batch = Batch::new(1).with("x", vec![1.0f32]);
    let training = constant.updates(5000).validation([batch.clone()], 10).patience(3);
    let trained = training.run(|_| std::iter::repeat(batch.clone())).unwrap();
    // The first validation is the best, and three more are not better.
    assert_eq!((trained.attempt().outcome, trained.attempt().update), (Outcome::Stopped, 41));
}

#[test]
fn batches_may_be_borrowed_and_must_not_end() {
    let batches: Vec<Batch> = points().minibatches(50, 1).take(4).collect();
    let trained = training().updates(3).run(|_| &batches).unwrap();
    let owned = training().updates(3).run(|_| batches.clone()).unwrap();
    assert_eq!(bits(&trained), bits(&owned));
    let error = message(training().updates(9).run(|_| &batches));
    assert_eq!(error, "seed 3 failed: update 4: there is no further batch; the iterator has ended");
    let error = message(training().run(|_| [Batch::new(0)]));
    assert_eq!(error, "seed 3 failed: update 0: the batch has no rows");
}

/// The message of an error and its causes.
fn message<T>(result: Result<T, TrainingError>) -> String {
    let error = result.err().expect("an error");
    let causes = std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

#[test]
fn errors_say_what_is_wrong() {
    let batches = |_| [Batch::new(2).with("x", vec![1.0f32, 2.0])];
    let run =
        |network: fn(&Model, usize) -> Outputs<'_>| message(Training::new(network).updates(2).run(batches));

    let error = run(|model, rows| Outputs::new(model.input("x", F32, &[rows]).softmax(1)));
    assert!(
        error.contains("network for 1 rows: ") && error.contains("tests.rs:") && error.contains("no axis 1"),
        "{error}"
    );
    let error = run(|model, rows| Outputs::new(model.input("x", F32, &[rows])));
    assert!(error.contains("the loss must be a scalar"), "{error}");
    let error = run(|model, rows| Outputs::new(model.input("x", F64, &[rows]).sum_all()));
    assert!(error.contains("\"x\" is f64[2], but was accessed as 2 elements of f32"), "{error}");
    let error = run(|model, rows| {
        let _ = model.parameter("unused", &[3], Initializer::Zeros);
        Outputs::new(model.input("x", F32, &[rows]).sum_all())
    });
    assert!(error.contains("the loss does not depend on parameter \"unused\""), "{error}");
    let error = run(|model, rows| {
        let w = model.parameter("w", &[rows], Initializer::Zeros);
        Outputs::new((w * model.input("x", F32, &[rows])).sum_all())
    });
    assert!(error.contains("must not depend on the number of rows"), "{error}");
    let error = run(|model, rows| Outputs::new(model.input("y", I32, &[rows]).cast(F32).sum_all()));
    assert!(error.contains("there is no input \"x\"; there are y"), "{error}");
    let error = run(|model, rows| {
        let huge = model.parameter("w", &[1 << 20, 1 << 20], Initializer::Zeros);
        Outputs::new(model.input("x", F32, &[rows]).sum_all() + huge.sum_all())
    });
    assert!(error.contains("training 1099511.6 million parameters would need"), "{error}");
    for (training, word) in [
        (training().learning_rate(-1.0), "base"),
        (training().clip(Clip::Norm(f32::NAN)), "clip.norm"),
        (
            training().optimizer(Optimizer::Sgd { momentum: 2.0, nesterov: false, weight_decay: 0.0 }),
            "momentum is 2",
        ),
    ] {
        let error = message(training.run(|seed| points().minibatches(8, seed).take(9).collect::<Vec<_>>()));
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn a_diverged_training_is_an_error() {
    let sgd = Optimizer::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    let training = Training::new(|model, rows| {
        let w = model.parameter("w", &[1], Initializer::Constant(1.0));
        Outputs::new((w * model.input("x", F32, &[rows])).square().mean_all())
    });
    let training = training.updates(1000).learning_rate(100.0).optimizer(sgd);
    let error = message(training.run(|_| std::iter::repeat(Batch::new(1).with("x", vec![1.0f32]))));
    assert!(error.contains("a lower learning rate or a gradient clip may help"), "{error}");
}

#[test]
fn a_network_without_outputs_cannot_predict() {
    let training = Training::new(|model, rows| {
        let w = model.parameter("w", &[1], Initializer::Zeros);
        Outputs::new((w + model.input("x", F32, &[rows])).mean_all())
    });
    let trained = training.updates(1).run(|_| vec![Batch::new(1).with("x", vec![1.0f32]); 2]).unwrap();
    assert_eq!(trained.runner(1).unwrap_err(), NetworkError::NoOutputs);
}
