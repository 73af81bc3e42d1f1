//! What is known about a run, a model, a circuit or a compiled program, as JSON objects.

use gatework_engine::{Program, kernel};
use gatework_forecast::run::ForecastRun;
use gatework_train::run_folder::{RunFolder, RunFolderError};
use serde_json::{Value, json};

use crate::minimize;
use crate::subject::Subject;

/// Returns what is known about a forecaster: its data, model and training.
pub fn of_forecaster(run: &ForecastRun) -> Result<Value, RunFolderError> {
    let (experiment, context) = (&run.loaded.experiment, run.forecaster.context());
    let specification = run.forecaster.specification();
    let mut facts = json!({
        "path": run.folder.path(),
        "experiment": experiment.name,
        "about": experiment.about,
        "data": experiment.data,
        "model": specification.model.name(),
        "parameters": run.forecaster.parameters(),
        "input": specification.input,
        "horizon": specification.horizon,
        "loss": json!(specification.loss)["kind"],
        "frequency": context.frequency,
        "season": context.season,
        "past_columns": specification.past_columns,
        "future_columns": specification.future_columns,
        "static_columns": specification.static_columns,
        "intervals": context.conformal.levels().collect::<Vec<_>>(),
        "calibration_windows": context.conformal.windows(),
        "seed": experiment.seed,
    });
    if let Some(summary) = run.folder.summary()? {
        for key in ["updates", "seconds", "training_loss", "validation_loss", "evaluated_on", "origins"] {
            facts[key] = summary[key].clone();
        }
    }
    Ok(facts)
}

/// Returns what is known about an automaton, a classifier or a circuit: its training, channels, model, gates and their functions.
pub fn of_subject(subject: &Subject) -> Result<Value, RunFolderError> {
    let circuit = &subject.circuit;
    let mut facts = json!({ "path": subject.path });
    if let Some(loaded) = &subject.loaded {
        let experiment = &loaded.experiment;
        facts["experiment"] = json!(experiment.name);
        facts["about"] = json!(experiment.about);
        facts["seed"] = json!(experiment.seed);
        facts["grid"] = json!(experiment.automaton.grid);
        facts["steps"] = json!(experiment.automaton.steps);
        if let Some(summary) = RunFolder::at(&subject.path).summary()? {
            for key in [
                "success",
                "attempts",
                "updates",
                "moves",
                "seconds",
                "soft_loss",
                "hard_loss",
                "first_perfect_update",
            ] {
                facts[key] = summary[key].clone();
            }
        }
    }
    if let Some(loaded) = &subject.classifier_experiment {
        let experiment = &loaded.experiment;
        facts["experiment"] = json!(experiment.name);
        facts["about"] = json!(experiment.about);
        if let Some(summary) = RunFolder::at(&subject.path).summary()? {
            for key in
                ["seed", "epoch", "accuracy", "soft_accuracy", "validation_accuracy", "updates", "seconds"]
            {
                facts[key] = summary[key].clone();
            }
        }
    }
    if let Some(classifier) = &subject.classifier {
        facts["features"] = json!(classifier.encoder().features().len());
        facts["classes"] = json!(classifier.head().classes().len());
    }
    if let Some(automaton) = &subject.automaton {
        facts["channels"] = json!(automaton.channels);
        facts["boundary"] = json!(automaton.boundary);
        facts["observed_channels"] = json!(subject.observed);
    }
    if let Some(model) = &subject.model {
        facts["kernels"] = json!(model.shape.kernels);
        facts["perceive_layers"] = json!(model.shape.perceive);
        facts["update_layers"] = json!(model.shape.update);
        facts["parameters"] = json!(model.params.len());
        facts["learned_gates"] = json!(model.gates());
    }
    let bars = subject.gate_histogram();
    let functions: serde_json::Map<String, Value> =
        bars.into_iter().map(|(name, count)| (name, json!(count))).collect();
    facts["circuit"] = json!({
        "inputs": circuit.inputs(),
        "outputs": circuit.outputs().len(),
        "gates": minimize::gates(&subject.document()),
        "nodes": circuit.nodes().len(),
        "depth": circuit.depth(),
    });
    facts["functions"] = Value::Object(functions);
    Ok(facts)
}

/// Returns what a compiled program is made of: its kernels in order, with the operations fused into each and the bytes that it moves.
pub fn of_program(what: &str, program: &Program) -> Value {
    let kernels = program.kernels().into_iter().zip(program.traffic());
    json!({
        "of": what,
        "kernels": kernels.map(|(kernel, bytes)| json!({ "kernel": kernel, "bytes": bytes })).collect::<Vec<_>>(),
        "memory_bytes": program.bytes(),
        "moved_bytes": program.traffic().iter().sum::<usize>(),
        "fingerprint": format!("{:016x}", program.fingerprint()),
        "simd": kernel::simd_name(),
    })
}
