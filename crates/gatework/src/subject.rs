//! What the verbs work on: a run folder, a model file or a circuit file, found and checked.

use std::path::{Path, PathBuf};

use crate::experiment;
use anyhow::Context as _;
use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::model::Model;
use gatework_logic::formats::{self, FORMATS, Format};
use gatework_logic::{Automaton, Circuit, Document};
use gatework_train::files;

use crate::folder::{RUNS, RunFolder};
use crate::usage::Usage;

/// What was found under a name.
#[derive(Debug)]
pub struct Subject {
    /// Where.
    pub path: PathBuf,
    /// The experiment, if it is a run folder.
    pub loaded: Option<AutomatonExperiment>,
    /// The soft model, unless it is a circuit.
    pub model: Option<Model>,
    /// The hard circuit.
    pub circuit: Circuit,
    /// The automaton whose circuit it is, if it is one.
    pub automaton: Option<Automaton>,
    /// Leading channels that matter.
    pub observed: usize,
}

impl Subject {
    /// Opens a run folder, a `.safetensors` model, or a circuit in any format that can be read.
    pub fn open(path: &Path) -> anyhow::Result<Subject> {
        if path.is_dir() {
            return Subject::open_run(path);
        }
        if !path.exists() {
            let run = Path::new(RUNS).join(path);
            let hint = if run.join("experiment.toml").exists() {
                format!("did you mean {}?", run.display())
            } else {
                "a run folder, a model or a circuit is needed".into()
            };
            return Err(Usage(format!("{} does not exist; {hint}", path.display())).into());
        }
        match path.extension().and_then(|e| e.to_str()) {
            Some("safetensors") => {
                // The model of a run folder is that run: the folder says what was learned.
                let folder = path.parent().unwrap_or(Path::new(""));
                let is_run = folder.join("experiment.toml").is_file();
                if is_run && path.file_name().is_some_and(|name| name == "model.safetensors") {
                    return Subject::open_run(folder);
                }
                let model = read_model(path)?;
                Ok(Subject::from_model(path, None, model))
            }
            _ => match Format::of_path(path).ok().filter(|format| format.can_read()) {
                Some(format) => Subject::open_circuit(path, format),
                None => Err(Usage(unreadable(path)).into()),
            },
        }
    }

    fn open_run(path: &Path) -> anyhow::Result<Subject> {
        let experiment = path.join("experiment.toml");
        if !experiment.is_file() {
            let message = format!("{} is no run folder: experiment.toml is missing", path.display());
            return Err(Usage(message).into());
        }
        let loaded = match experiment::Loaded::read(&experiment)? {
            experiment::Loaded::Automaton(loaded) => *loaded,
            experiment::Loaded::Forecaster(_) => {
                let message = format!(
                    "{} is the run of a forecaster; predict, evaluate and inspect work on it",
                    path.display()
                );
                return Err(Usage(message).into());
            }
        };
        let file = path.join("model.safetensors");
        if !file.is_file() {
            let advice = RunFolder::at(path).resume_command();
            let message =
                format!("{} has no model.safetensors: the run is not finished ({advice})", path.display());
            return Err(Usage(message).into());
        }
        let model = read_model(&file)?;
        if !loaded.experiment.has_model_of(&model.shape) {
            let message =
                format!("{} belongs to another experiment than {}", file.display(), experiment.display());
            return Err(Usage(message).into());
        }
        Ok(Subject::from_model(path, Some(loaded), model))
    }

    fn from_model(path: &Path, loaded: Option<AutomatonExperiment>, model: Model) -> Subject {
        let automaton = model.harden();
        let observed = loaded.as_ref().map_or(automaton.channels, |loaded| loaded.target.channels());
        Subject {
            path: path.to_path_buf(),
            loaded,
            model: Some(model),
            circuit: automaton.circuit.clone(),
            automaton: Some(automaton),
            observed,
        }
    }

    fn open_circuit(path: &Path, format: &Format) -> anyhow::Result<Subject> {
        let document =
            formats::read(&files::read(path)?, format).with_context(|| format!("{}", path.display()))?;
        let (automaton, observed) = match &document {
            Document::Automaton { automaton, observed } => {
                (Some(automaton.clone()), observed.unwrap_or(automaton.channels))
            }
            Document::Circuit(_) => (None, 0),
        };
        let circuit = document.circuit().clone();
        Ok(Subject { path: path.to_path_buf(), loaded: None, model: None, circuit, automaton, observed })
    }

    /// The circuit with what is known about its use, as a file holds it.
    pub fn document(&self) -> Document {
        match &self.automaton {
            Some(automaton) => {
                Document::Automaton { automaton: automaton.clone(), observed: Some(self.observed) }
            }
            None => Document::Circuit(self.circuit.clone()),
        }
    }

    /// The automaton, or an error for a plain circuit.
    pub fn automaton(&self) -> anyhow::Result<&Automaton> {
        let message = || Usage(format!("{} is a plain circuit, not an automaton", self.path.display()));
        Ok(self.automaton.as_ref().ok_or_else(message)?)
    }
}

fn unreadable(path: &Path) -> String {
    let endings: Vec<&str> =
        FORMATS.iter().filter(|format| format.can_read()).map(|format| format.endings[0]).collect();
    format!("{} is neither a run folder nor a .safetensors, .{} file", path.display(), endings.join(", ."))
}

fn read_model(path: &Path) -> anyhow::Result<Model> {
    Model::from_bytes(&files::read(path)?).with_context(|| format!("{}", path.display()))
}
