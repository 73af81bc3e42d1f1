//! The models of `gatework-bench forecast` in candle: the same layers, the same numbers of parameters, the same windows.
//!
//! Layers are those of candle-nn where it has them. Its fused softmax and layer norm have no gradients, and its gradients of
//! convolutions are wrong, so training uses other implementations. Before a model is timed, it is given our parameters and must
//! reproduce our forecast and our losses in three training steps.

#[path = "forecast_candle/models.rs"]
mod models;

use std::collections::HashMap;
use std::path::Path;

use candle_core::{DType, Device, Tensor};
use candle_nn::{AdamW, Optimizer, ParamsAdamW, VarBuilder, VarMap};
use gatework_peers::{close, ensure, quantile, report, run, times, Failure, Options};
use models::{Model, MODELS};
use serde_json::{json, Value};

/// A model and its variables.
struct Network {
    variables: VarMap,
    model: Box<dyn Model>,
}

impl Network {
    fn new(entry: &models::Entry) -> Result<Network, Failure> {
        let variables = VarMap::new();
        let builder = VarBuilder::from_varmap(&variables, DType::F32, &Device::Cpu);
        let model = (entry.build)(entry.input, entry.horizon, builder)?;
        Ok(Network { variables, model })
    }

    fn parameters(&self) -> usize {
        self.variables.all_vars().iter().map(|variable| variable.elem_count()).sum()
    }

    /// Takes the parameters of a file of ours.
    fn load(&self, path: &Path) -> Result<(), Failure> {
        let ours: HashMap<String, Tensor> = candle_core::safetensors::load(path, &Device::Cpu)?;
        let variables = self.variables.data().lock().map_err(|error| error.to_string())?;
        for (name, tensor) in ours {
            let (name, tensor) = models::translate(&name, tensor)?;
            let variable = variables.get(&name).ok_or_else(|| format!("it has no variable {name}"))?;
            variable.set(&tensor.contiguous()?)?;
        }
        Ok(())
    }

    /// A call that takes one training step and returns the loss before it.
    fn trainer(
        &self,
        rate: f64,
        x: Tensor,
        y: Tensor,
    ) -> Result<impl FnMut() -> Result<f32, Failure> + '_, Failure> {
        let settings = ParamsAdamW { lr: rate, weight_decay: 0.0, ..ParamsAdamW::default() };
        let mut optimizer = AdamW::new(self.variables.all_vars(), settings)?;
        Ok(move || {
            let loss = candle_nn::loss::mse(&self.model.forward(&x, true)?, &y)?;
            optimizer.backward_step(&loss)?;
            Ok(loss.to_scalar()?)
        })
    }
}

fn main() {
    run(|| {
        let options = Options::read(1.0)?;
        let folder = options.cases.clone().ok_or("it needs --cases: see gatework-bench forecast --help")?;
        let cases: Value = serde_json::from_slice(&std::fs::read(folder.join("forecast.json"))?)?;
        let mut rows = Vec::new();
        for entry in MODELS.iter().filter(|entry| options.wants(entry.name)) {
            check(entry, &cases[entry.name], &folder)?;
            rows.push(measure(&options, entry)?);
        }
        let how = "candle-nn's layers, in training convolutions as sums of products, AdamW without decay, its own gemm (no MKL)";
        report("forecast", "candle", gatework_peers::CANDLE, how, rows);
        Ok(())
    });
}

/// Our parameters give our forecast, and our losses.
fn check(entry: &models::Entry, case: &Value, folder: &Path) -> Result<(), Failure> {
    let name = entry.name;
    let numbers = |key: &str| -> Vec<f64> {
        case[key].as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
    };
    let tensor = |key: &str, steps: usize| {
        let numbers: Vec<f32> = numbers(key).iter().map(|&x| x as f32).collect();
        Tensor::from_slice(&numbers, (numbers.len() / steps, steps), &Device::Cpu)
    };
    let network = Network::new(entry)?;
    network
        .load(&folder.join(case["file"].as_str().ok_or_else(|| format!("there is no case of {name}"))?))?;
    let (x, y) = (tensor("past", entry.input)?, tensor("target", entry.horizon)?);
    for training in [false, true] {
        let forecast: Vec<f32> = network.model.forward(&x, training)?.flatten_all()?.to_vec1()?;
        ensure(close(&forecast, &numbers("forecast"), 1e-3, 1e-4), &format!("the forecast of {name}"))?;
    }
    let mut step = network.trainer(case["rate"].as_f64().unwrap_or(0.0), x, y)?;
    let losses = numbers("losses");
    ensure(losses.len() > 1, &format!("{name}: the case has no losses"))?;
    // What training changes has to be the same, not only the loss that it starts from.
    let tolerance = 0.02 * (losses[0] - losses[losses.len() - 1]).abs() + 1e-6;
    for (i, right) in losses.iter().enumerate() {
        let loss = f64::from(step()?);
        ensure((loss - right).abs() < tolerance, &format!("{name}, step {i}: loss {loss} for {right}"))?;
    }
    Ok(())
}

/// The windows of our benchmark.
fn wave(rows: usize, steps: usize, shift: usize) -> candle_core::Result<Tensor> {
    let value = |i: usize| ((i * 37 % 101) as f32 * 0.01 + (i as f32 * 0.26).sin()) * 0.5;
    let values: Vec<f32> = (shift..shift + rows * steps).map(value).collect();
    Tensor::from_vec(values, (rows, steps), &Device::Cpu)
}

fn measure(options: &Options, entry: &models::Entry) -> Result<Value, Failure> {
    let seconds = if options.quick { 0.001 } else { options.seconds };
    let network = Network::new(entry)?;
    let mut row =
        json!({ "model": entry.name, "threads": options.threads, "parameters": network.parameters() });
    // A moment is too short for more than the smaller batch.
    let samples = if options.quick { &[1, 32][..] } else { &[1, 32, 256] };
    for &samples in samples {
        let x = wave(samples * entry.columns, entry.input, 0)?;
        // Without this, the graph for gradients would be built.
        let model = Network::frozen(&network, entry)?;
        let measured = times(seconds, || Ok(drop(model.forward(&x, false)?)))?;
        if samples == 1 {
            row["predict_p50_us"] = json!(quantile(&measured, 0.5) * 1e6);
            row["predict_p99_us"] = json!(quantile(&measured, 0.99) * 1e6);
        } else {
            row[format!("predict_{samples}_ms")] = json!(quantile(&measured, 0.5) * 1e3);
        }
    }
    for &samples in &samples[1..] {
        let rows = samples * entry.columns;
        let mut step = network.trainer(1e-4, wave(rows, entry.input, 0)?, wave(rows, entry.horizon, 5)?)?;
        let measured = times(seconds, || step().map(drop))?;
        row[format!("train_{samples}_ms")] = json!(quantile(&measured, 0.5) * 1e3);
    }
    Ok(row)
}

impl Network {
    /// The model with its parameters as constants.
    fn frozen(&self, entry: &models::Entry) -> Result<Box<dyn Model>, Failure> {
        let variables = self.variables.data().lock().map_err(|error| error.to_string())?;
        let constants =
            variables.iter().map(|(name, variable)| (name.clone(), variable.as_detached_tensor()));
        let builder = VarBuilder::from_tensors(constants.collect(), DType::F32, &Device::Cpu);
        Ok((entry.build)(entry.input, entry.horizon, builder)?)
    }
}
