//! Reference results for peers, which check their answers before they are timed: for each model its initial parameters, some
//! windows, our forecast of them and our losses in a few training steps; and the model in ONNX, for runtimes.
//!
//! `forecast.json` maps the name of a model to its case; `file` names a model file as `gatework train` writes it.

use std::path::Path;

use anyhow::Context as _;
use gatework_engine::onnx;
use gatework_forecast::specification::Mode;
use gatework_forecast::{ForecastTask, Specification, TrainedNetwork};
use gatework_train::files;
use gatework_train::params::Params;
use gatework_train::trainer::Task;
use serde_json::{Map, Value, json};

use super::{ForecastBench, LARGEST, models, specification};
use gatework_bench::wave::{ADAM, Wave};

/// Windows of a case.
const WINDOWS: usize = 3;
/// Training steps of a case.
const STEPS: u64 = 4;
/// Learning rate, high enough that a wrong gradient shows in the losses.
const RATE: f32 = 1e-3;

impl ForecastBench {
    /// Writes the cases of the selected models.
    pub(super) fn write_cases(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut cases = Map::new();
        for (name, _, model) in models() {
            if self.wants(name) && name != LARGEST {
                let case = case(name, &specification(name, &model)?, folder)?;
                cases.insert(name.to_string(), case);
            }
        }
        files::write_atomic(&folder.join("forecast.json"), Value::Object(cases).to_string().as_bytes())?;
        Ok(())
    }
}

fn case(name: &str, specification: &Specification, folder: &Path) -> anyhow::Result<Value> {
    let file = format!("{}.safetensors", name.replace([' ', ','], "-"));
    let params = specification.params(1)?;
    let onnx_file = Path::new(&file).with_extension("onnx");
    files::write_atomic(&folder.join(&onnx_file), &to_onnx(name, specification, &params)?)?;
    let count = params.len();
    let network = TrainedNetwork::new(specification.clone(), params)?;
    files::write_atomic(&folder.join(&file), &network.to_bytes())?;
    let batch = Wave::new(specification, WINDOWS).0;
    let forecast = network.predict(&batch)?.values;
    Ok(json!({
        "file": file, "onnx": onnx_file, "parameters": count, "windows": WINDOWS, "past": batch.past, "target": batch.target, "forecast": forecast, "rate": RATE,
        "losses": losses(specification)?,
    }))
}

/// Returns the network as an ONNX model: the input `past` and the output `forecast`, without scaling.
fn to_onnx(name: &str, specification: &Specification, params: &Params) -> anyhow::Result<Vec<u8>> {
    let mut model = onnx::Model::named(name);
    for tensor in params.tensors() {
        model = model.with_parameter(&tensor.name, &params.values[tensor.range.clone()]);
    }
    let graph = |rows| Ok::<_, anyhow::Error>(specification.network(rows, Mode::Prediction)?.0);
    onnx::write_batched(graph, &model)
}

/// Returns the loss before each training step.
fn losses(specification: &Specification) -> anyhow::Result<Vec<f64>> {
    let mut task = ForecastTask::new(specification, Wave::new(specification, WINDOWS), 1)?;
    let mut state = ADAM.state(task.params().len());
    let mut losses = Vec::new();
    for update in 0..STEPS {
        losses.push(task.step(update).map_err(|error| anyhow::anyhow!("{error}"))?.soft);
        let params = task.params_mut();
        ADAM.step(&mut state, &mut params.values, &params.grads, RATE, None);
    }
    Ok(losses)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn training_lowers_the_losses_of_a_case_and_its_file_forecasts_the_same() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let (name, _, model) =
            models().into_iter().find(|(name, ..)| name.starts_with("dlinear")).context("no models")?;
        let specification = specification(name, &model)?;
        let case = case(name, &specification, folder.path())?;
        let losses: Vec<f64> = serde_json::from_value(case["losses"].clone())?;
        assert!(
            losses.len() == STEPS as usize && losses.windows(2).all(|pair| pair[1] < pair[0]),
            "{losses:?}"
        );
        let bytes = std::fs::read(folder.path().join(case["file"].as_str().context("no file")?))?;
        let network = TrainedNetwork::from_bytes(&bytes).map_err(anyhow::Error::msg)?;
        let forecast = network.predict(&Wave::new(&specification, WINDOWS).0)?.values;
        assert_eq!(json!(forecast), case["forecast"]);
        Ok(())
    }
}
