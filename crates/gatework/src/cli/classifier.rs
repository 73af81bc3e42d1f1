//! What the verbs print about classifiers: what was chosen, data and results of training.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use gatework_gates::classifier::experiment::{ClassifierExperiment, Experiment};
use gatework_gates::classifier::run::{RunError, mean_and_deviation};
use gatework_gates::classifier::task::Prepared;
use gatework_logic::minimize::gates;
use gatework_train::run_folder::{RunFolder, RunFolderError};
use serde_json::Value;

use super::{program, quoted, resume_command};
use crate::labelled_data::Labelled;
use crate::progress::Progress;
use crate::runs::{self, ClassifierRun};

/// Prints what was found in data, and what was chosen for them.
pub fn print_chosen(origin: &str, labelled: &Labelled) {
    for found in &labelled.found {
        status!("{origin}: {found}");
    }
    if let Some(times) = &labelled.times {
        let (program, name) = (program(), quoted(origin));
        status!("{origin}: if column {times:?} has times: {program} forecast {name} --horizon 28");
    }
    let Experiment { encoder, model, training, .. } = &labelled.loaded.experiment;
    let layers: Vec<String> = model.layers.iter().map(ToString::to_string).collect();
    let members =
        if model.members == 1 { String::new() } else { format!("{} networks with ", model.members) };
    status!(
        "Chosen: a classifier with {} bits a number, {members}layers of {} gates; {} epochs, batch {}",
        encoder.bits,
        layers.join(", "),
        training.epochs,
        training.batch
    );
}

/// Prints what the data of an experiment are.
pub fn print_data(prepared: &Prepared) {
    let rows = |count: usize| crate::number::group_thousands(&count.to_string());
    let held = if has_validation(prepared) { prepared.validation.rows.len() } else { 0 };
    status!(
        "Data: {} features, {} classes; {} training, {} validation and {} test rows; {} bits a row",
        prepared.encoder.features().len(),
        prepared.classes().len(),
        rows(prepared.train.rows.len()),
        rows(held),
        rows(prepared.test.as_ref().map_or(0, |test| test.rows.len())),
        prepared.encoder.bits(),
    );
}

/// Trains a classifier, prints its accuracy, and returns the summary.
pub fn train(
    folder: &RunFolder,
    loaded: &ClassifierExperiment,
    prepared: &Arc<Prepared>,
    threads: usize,
    stop: &AtomicBool,
) -> anyhow::Result<Value> {
    let training = &loaded.experiment.training;
    let finished = {
        let updates = training.epochs.saturating_mul(prepared.updates_per_epoch(training));
        let progress = Progress::classifier(updates, selecting(prepared));
        runs::train_classifier_into(folder, loaded, prepared, threads, &progress, stop)
    };
    if let Err(RunError::Folder(RunFolderError::Interrupted { path })) = &finished {
        anyhow::bail!("interrupted; a checkpoint is written. Resume with: {}", resume_command(path));
    }
    let finished = finished?;
    print_result(&finished, prepared, folder);
    Ok(finished.summary)
}

/// Returns whether validation rows were held back; if not, the training rows stand in for them.
fn has_validation(prepared: &Prepared) -> bool {
    prepared.validation.rows != prepared.train.rows
}

/// Returns the name of the rows that select the best epoch: without validation rows, those of the training.
fn selecting(prepared: &Prepared) -> &'static str {
    if has_validation(prepared) { "validation" } else { "training" }
}

fn print_result(finished: &ClassifierRun, prepared: &Prepared, folder: &RunFolder) {
    let trained = &finished.trained;
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let on = if prepared.test.is_some() { "test" } else { selecting(prepared) };
    status!("");
    if trained.seeds.len() > 1 {
        for seed in &trained.seeds {
            status!(
                "  seed {:<4} {on} accuracy {} (soft network {}), {:.1} s",
                seed.seed,
                percent(seed.accuracy),
                percent(seed.soft_accuracy),
                seed.seconds
            );
        }
        let (mean, deviation) = mean_and_deviation(trained.seeds.iter().map(|seed| seed.accuracy));
        status!("Mean of {} seeds: {} +- {:.2}", trained.seeds.len(), percent(mean), 100.0 * deviation);
    }
    let kept = trained.result();
    status!(
        "Seed {}, epoch {}: {on} accuracy {} (soft network {})",
        kept.seed,
        kept.epoch,
        percent(kept.accuracy),
        percent(kept.soft_accuracy)
    );
    let circuit = trained.classifier.circuit();
    let (used, trained) = (gates(circuit), circuit.nodes().len());
    status!("Gates: {used}, without wires, inverters and duplicates; the network has {trained}");
    let run = folder.path().display().to_string();
    status!("Run folder: {run}");
    status!("  {run}/experiment.toml  the settings");
    status!("  {run}/circuit.json     encoder, circuit and head");
    status!("  {run}/loss.svg         loss, and error on the {} rows", selecting(prepared));
    let (program, run) = (program(), quoted(&run));
    status!("Next: {program} evaluate {run}");
    status!("      {program} minimize {run}");
    status!("      {program} export {run} -o classifier.v");
}
