//! Workloads of training and prediction.

use std::hint::black_box;

use anyhow::{Context as _, anyhow, ensure};
use gatework_forecast::{ForecastTask, TrainedNetwork};
use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::task::AutomatonTask;
use gatework_gates::kernel::{
    Coefficients, FUNCTIONS, GateProgram, GateTable, Row, Sums, Workspace, reference,
};
use gatework_gates::soft::{Wiring, network};
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::{self, Task};
use serde_json::Value;

use super::{Call, ensure_close};
use crate::wave::{ADAM, Wave, specification};

/// Learning rate of the forecasting workloads.
const RATE: f32 = 1e-4;

/// Prepares the forward pass (or, if `is_backward`, the forward and backward pass) of one tile of
/// [`LANES`](gatework_gates::kernel::LANES) samples through a
/// network of soft gates with these layer sizes.
pub fn soft_gates(sizes: &[usize], is_backward: bool) -> anyhow::Result<Call> {
    let wires = network(sizes, Wiring::Random, None, &mut Random::new(1, Purpose::Wiring, 0))?;
    let program = GateProgram::new(&wires)?;
    let mut random = Random::new(1, Purpose::Parameters, 0);
    let logits: Vec<f32> = (0..wires.gates() * FUNCTIONS).map(|_| random.uniform()).collect();
    let mut rows =
        |n: usize| (0..n).map(|_| Row(std::array::from_fn(|_| random.uniform()))).collect::<Vec<_>>();
    let (inputs, output_grads) = (rows(program.inputs()), rows(program.outputs()));
    let mut table = GateTable::new(wires.gates());
    table.update(&logits);
    let mut coefficients = Coefficients::default();
    coefficients.gather(&program, &table);
    let (mut outputs, mut work) = (vec![Row::ZERO; program.outputs()], Workspace::default());
    program.infer(&coefficients, &inputs, &mut outputs, &mut work);

    // The first lane, by the reference implementation in double precision.
    let lane = |rows: &[Row]| rows.iter().map(|row| f64::from(row.0[0])).collect::<Vec<f64>>();
    let logits: Vec<f64> = logits.iter().map(|&logit| logit.into()).collect();
    let values = reference::forward(&wires, &logits, &lane(&inputs));
    let first = |rows: &[Row]| rows.iter().map(|row| row.0[0]).collect::<Vec<f32>>();
    ensure_close(&first(&outputs), values.last().context("a network without layers")?, 1e-5)?;
    if !is_backward {
        return Ok(Box::new(move || program.infer(&coefficients, &inputs, &mut outputs, &mut work)));
    }
    let (mut tile, mut sums) = (inputs.clone(), Sums::new(&program));
    program.gradient(&coefficients, &mut tile, &output_grads, &mut sums, &mut work);
    let mut logit_grads = vec![0.0; logits.len()];
    let expected =
        reference::backward(&wires, &logits, &lane(&inputs), &lane(&output_grads), &mut logit_grads);
    ensure_close(&first(&tile), &expected, 1e-4)?;
    Ok(Box::new(move || {
        tile.copy_from_slice(&inputs);
        program.gradient(&coefficients, &mut tile, &output_grads, &mut sums, &mut work);
    }))
}

/// Prepares a step of Adam on `n` parameters.
pub fn adam(n: usize) -> anyhow::Result<Call> {
    let grads: Vec<f32> = super::engine::numbers(n);
    let (mut values, mut state) = (vec![1.0; n], ADAM.state(n));
    ADAM.step(&mut state, &mut values, &grads, RATE, None);
    // The first step of Adam moves every parameter by the learning rate, against the sign of its gradient.
    let moved = |g: &f32| 1.0 - f64::from(RATE) * f64::from(*g) / (f64::from(*g).abs() + 1e-8);
    ensure_close(&values, &grads.iter().map(moved).collect::<Vec<f64>>(), 1e-6)?;
    Ok(Box::new(move || _ = black_box(ADAM.step(&mut state, &mut values, &grads, RATE, None))))
}

/// Prepares training updates of a built-in automaton experiment: forward, backward, optimiser, hard loss.
pub fn automaton_update(name: &str) -> anyhow::Result<Call> {
    let loaded = AutomatonExperiment::find(name)?;
    let settings = loaded.experiment.trainer_settings();
    let begin = || AutomatonTask::new(&loaded, 1).map_err(|error| anyhow!("{error}"));
    let mut task = begin()?;
    let mut state = settings.optimizer.state(task.params().len());
    let mut update = 0;
    let mut step = move |task: &mut AutomatonTask| -> anyhow::Result<f64> {
        let losses = task.step(update).map_err(|error| anyhow!("{error}"))?;
        let params = task.params_mut();
        let rate = settings.rate.at(update, settings.updates) as f32;
        settings.optimizer.step(&mut state, &mut params.values, &params.grads, rate, settings.clip);
        update += 1;
        Ok(losses.soft)
    };
    let first = step(&mut task)?;
    let again = begin()?.step(0).map_err(|error| anyhow!("{error}"))?.soft;
    ensure!(
        first.is_finite() && first > 0.0 && first == again,
        "the loss of {name} is {first}, then {again}"
    );
    Ok(Box::new(move || _ = black_box(step(&mut task).expect("a step that ran before"))))
}

/// Prepares the prediction of a batch of windows by a forecasting model: 168 values in, 24 out.
pub fn predict(model: &Value, windows: usize) -> anyhow::Result<Call> {
    let specification = specification(model, 168, 24)?;
    let network = TrainedNetwork::new(specification.clone(), specification.params(1)?)?;
    let batch = Wave::new(&specification, windows).0;
    let mut forecast = network.predict(&batch)?;
    // The first window on its own has the same forecast as in a batch.
    let one: Vec<f64> =
        network.predict(&Wave::new(&specification, 1).0)?.values.iter().map(|&x| x.into()).collect();
    ensure_close(&forecast.values[..one.len()], &one, 1e-4)?;
    Ok(Box::new(move || {
        network.predict_into(&batch, &mut forecast).expect("a batch that was predicted before");
    }))
}

/// Prepares training steps of a forecasting model on a batch of windows: forward, backward, Adam.
pub fn training_step(model: &Value, windows: usize) -> anyhow::Result<Call> {
    let specification = specification(model, 168, 24)?;
    let begin = || ForecastTask::new(&specification, Wave::new(&specification, windows), 1);
    let mut task = begin()?;
    let mut state = ADAM.state(task.params().len());
    let mut update = 0;
    let mut step = move || -> anyhow::Result<f64> {
        let step = trainer::step_and_update(&mut task, update, &ADAM, &mut state, RATE, None);
        let (losses, is_moved) = step.map_err(|error| anyhow!("{error}"))?;
        if !is_moved {
            let params = task.params_mut();
            ADAM.step(&mut state, &mut params.values, &params.grads, RATE, None);
        }
        update += 1;
        Ok(losses.soft)
    };
    // Moving the parameters while the gradients are computed must not change the loss.
    let first = step()?;
    let apart = begin()?.step(0).map_err(|error| anyhow!("{error}"))?.soft;
    ensure!(first.is_finite() && first > 0.0 && first == apart, "the loss is {first}, then {apart}");
    Ok(Box::new(move || _ = black_box(step().expect("a step that ran before"))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn workloads_agree_with_their_references() -> anyhow::Result<()> {
        for is_backward in [false, true] {
            soft_gates(&[6, 8, 5], is_backward)?();
        }
        adam(100)?();
        let model = json!({ "kind": "nhits", "width": 16, "downsampling": [24, 12, 1] });
        predict(&model, 3)?();
        training_step(&model, 3)?();
        Ok(())
    }
}
