//! What several verbs do with classifiers: training, evaluation, prediction.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use gatework_gates::classifier::data::Dataset;
use gatework_gates::classifier::data::table::{Labels, Schema, TableOptions};
use gatework_gates::classifier::evaluate::Evaluation;
use gatework_gates::classifier::experiment::{self, ClassifierExperiment, Experiment, Files};
use gatework_gates::classifier::run::{self, RunError, mean_and_deviation};
use gatework_gates::classifier::task::Prepared;
use gatework_logic::classifier::{Classifier, arg_max};
use gatework_logic::simulate::Predictor;
use gatework_train::run_folder::{RunFolder, RunFolderError};
use serde_json::Value;

use super::{program, quoted, resume_command};
use crate::experiment::Loaded;
use crate::progress::Progress;
use crate::runs::{self, ClassifierRun};

/// Opens the run folder or the `circuit.json` of a classifier; `None` if the path is something else.
pub fn open(path: &Path) -> anyhow::Result<Option<(Option<ClassifierExperiment>, Classifier)>> {
    let folder = RunFolder::at(path);
    if folder.experiment().is_file() {
        let Loaded::Classifier(_) = Loaded::read(&folder.experiment())? else { return Ok(None) };
        if !run::circuit_path(&folder).is_file() {
            return Err(RunFolderError::Unfinished { path: path.to_path_buf() }.into());
        }
        let (loaded, classifier) = run::open(&folder)?;
        return Ok(Some((Some(loaded), classifier)));
    }
    let is_json = path.is_file() && path.extension().is_some_and(|extension| extension == "json");
    Ok(if is_json { run::read_classifier(path).ok().map(|classifier| (None, classifier)) } else { None })
}

/// Loads and encodes the data of an experiment, and prints what they are.
pub fn prepare(experiment: &Experiment) -> anyhow::Result<Arc<Prepared>> {
    let prepared = experiment.prepare().map_err(RunError::from)?;
    let rows = |count: usize| crate::number::group_thousands(&count.to_string());
    let held = if experiment.data.validation > 0.0 { prepared.validation.rows.len() } else { 0 };
    status!(
        "Data: {} features, {} classes; {} training, {} validation and {} test rows; {} bits a row",
        prepared.encoder.features().len(),
        prepared.classes().len(),
        rows(prepared.train.rows.len()),
        rows(held),
        rows(prepared.test.as_ref().map_or(0, |test| test.rows.len())),
        prepared.encoder.bits(),
    );
    Ok(Arc::new(prepared))
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
        let progress =
            Progress::classifier(training.epochs.saturating_mul(prepared.updates_per_epoch(training)));
        runs::train_classifier_into(folder, loaded, prepared, threads, &progress, stop)
    };
    if let Err(RunError::Folder(RunFolderError::Interrupted { path })) = &finished {
        anyhow::bail!("interrupted; a checkpoint is written. Resume with: {}", resume_command(path));
    }
    let finished = finished?;
    print_result(&finished, prepared, folder);
    Ok(finished.summary)
}

fn print_result(finished: &ClassifierRun, prepared: &Prepared, folder: &RunFolder) {
    let trained = &finished.trained;
    let percent = |share: f64| format!("{:.2} %", 100.0 * share);
    let on = if prepared.test.is_some() { "test" } else { "validation" };
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
    status!("Gates: {} in total, {} reachable", circuit.nodes().len(), circuit.reachable());
    let run = folder.path().display().to_string();
    status!("Run folder: {run}");
    let (program, run) = (program(), quoted(&run));
    status!("Next: {program} evaluate {run}");
    status!("      {program} minimize {run}");
    status!("      {program} export {run} -o classifier.v");
}

/// Evaluates a classifier on the test rows of its experiment, or on the validation rows if there are none.
pub fn evaluate_test(
    loaded: &ClassifierExperiment,
    classifier: &Classifier,
) -> anyhow::Result<(Evaluation, &'static str)> {
    let prepared = loaded.experiment.prepare().map_err(RunError::from)?;
    let (schema, data) = (Schema::of(classifier), &prepared.train.data);
    anyhow::ensure!(
        data.features() == schema.features && data.classes() == schema.classes,
        "the data have changed since training: their columns, categories or classes are not those of the classifier"
    );
    let (subset, what) = match &prepared.test {
        Some(test) => (test, "test rows"),
        None => (&prepared.validation, "validation rows"),
    };
    let predicted = subset.predict(classifier).map_err(RunError::from)?;
    Ok((Evaluation::new(prepared.classes(), &subset.labels, &predicted), what))
}

/// Evaluates a classifier on a file or folder with the classes of its rows.
pub fn evaluate_file(
    loaded: Option<&ClassifierExperiment>,
    classifier: &Classifier,
    path: &Path,
) -> anyhow::Result<Evaluation> {
    let data = read(loaded, classifier, path, Labels::Needed)?;
    let rows: Vec<u32> = (0..data.rows() as u32).collect();
    let predicted = Predictor::new(classifier).predict_many(data.select(&rows).as_rows())?;
    Ok(Evaluation::new(data.classes(), data.labels(), &predicted))
}

/// Reads data with the features and classes of a classifier.
fn read(
    loaded: Option<&ClassifierExperiment>,
    classifier: &Classifier,
    path: &Path,
    labels: Labels,
) -> anyhow::Result<Dataset> {
    let options = loaded.map_or_else(TableOptions::default, |loaded| loaded.experiment.data.table.clone());
    let files = Files::One(path.display().to_string());
    let schema = Schema::of(classifier);
    let (data, _) = experiment::load(&files, &options, Some(&schema), labels)?;
    anyhow::ensure!(
        data.features() == schema.features,
        "{}: the features are not those of the classifier",
        path.display()
    );
    Ok(data)
}

/// Predictions of all rows of a file.
pub struct Predicted {
    /// A line for each row: its class, and the score of every class.
    pub csv: String,
    /// Number of rows.
    pub rows: usize,
    /// Seconds from values to scores.
    pub seconds: f64,
}

/// Classifies the rows of a file or folder, which may be without classes.
pub fn predict_file(
    loaded: Option<&ClassifierExperiment>,
    classifier: &Classifier,
    path: &Path,
) -> anyhow::Result<Predicted> {
    let data = read(loaded, classifier, path, Labels::Optional)?;
    let rows: Vec<u32> = (0..data.rows() as u32).collect();
    let values = data.select(&rows);
    let predictor = Predictor::new(classifier);
    let begin = Instant::now();
    let scores = predictor.scores_many(values.as_rows())?;
    let seconds = begin.elapsed().as_secs_f64();
    let names: Vec<String> = data.classes().iter().map(|name| csv_field(name)).collect();
    let mut csv = format!("row,class,{}\n", names.join(","));
    for (row, scores) in scores.chunks_exact(names.len()).enumerate() {
        let _ = write!(csv, "{row},{}", names[arg_max(scores)]);
        for score in scores {
            let _ = write!(csv, ",{score}");
        }
        csv.push('\n');
    }
    Ok(Predicted { csv, rows: data.rows(), seconds })
}

/// Quotes a text for CSV if it needs it.
fn csv_field(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}

/// Prints accuracy, precision and recall, and the confusion matrix if it is not too wide.
pub fn print_evaluation(evaluation: &Evaluation, what: &str) {
    /// Classes of the largest matrix that is printed.
    const MAX_PRINTED: usize = 20;
    let percent =
        |share: Option<f64>| share.map_or_else(|| "-".to_string(), |share| format!("{:.1} %", 100.0 * share));
    print_line!("accuracy {:.2} % of {} {what}", 100.0 * evaluation.accuracy, evaluation.samples);
    print_line!("");
    let is_printed = evaluation.classes.len() <= MAX_PRINTED;
    let width =
        evaluation.classes.iter().map(|class| class.name.chars().count()).max().unwrap_or(0).clamp(5, 24);
    let short = |name: &str, length: usize| name.chars().take(length).collect::<String>();
    let mut line = format!("{:<width$} {:>8} {:>9} {:>8}", "class", "samples", "precision", "recall");
    if is_printed {
        line.push_str("   predicted as");
        for class in &evaluation.classes {
            let _ = write!(line, " {:>6}", short(&class.name, 6));
        }
    }
    print_line!("{line}");
    for (class, row) in evaluation.classes.iter().zip(&evaluation.confusion) {
        let mut line = format!(
            "{:<width$} {:>8} {:>9} {:>8}",
            short(&class.name, width),
            class.samples,
            percent(class.precision),
            percent(class.recall)
        );
        if is_printed {
            line.push_str("               ");
            for count in row {
                let _ = write!(line, " {count:>6}");
            }
        }
        print_line!("{line}");
    }
}
