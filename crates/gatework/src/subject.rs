//! Run folders, model files and circuit files, opened under one type.
//!
//! ```no_run
//! use gatework::subject::Subject;
//!
//! let subject = Subject::open("runs/checkerboard".as_ref())?;
//! println!("{} gates, {} observed channels", subject.circuit.nodes().len(), subject.observed);
//! # Ok::<(), gatework::subject::SubjectError>(())
//! ```

use std::path::{Path, PathBuf};

use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::model::Model;
use gatework_gates::automata::run::{self, RunError};
use gatework_gates::classifier::experiment::ClassifierExperiment;
use gatework_gates::classifier::run as classifier_run;
use gatework_logic::classifier::import::{self, ImportError};
use gatework_logic::formats::{self, FORMATS, Format, FormatError};
use gatework_logic::{Automaton, Circuit, Classifier, Document, Gate};
use gatework_train::files::{self, FileError};
use gatework_train::run_folder::{RUNS, RunFolder, RunFolderError};

use crate::experiment::{self, ExperimentError};

/// A path that cannot be opened as a run, a model or a circuit.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SubjectError {
    /// Nothing exists at the path.
    #[error("{} does not exist; {}", path.display(), match similar {
        Some(similar) => format!("did you mean {}?", similar.display()),
        None => "expected a run folder, a model or a circuit".into(),
    })]
    Missing {
        /// The path.
        path: PathBuf,
        /// A run folder of that name, or of a similar one.
        similar: Option<PathBuf>,
    },
    /// The file has no known extension.
    #[error("{} is neither a run folder nor a .safetensors, {} file", path.display(), readable())]
    UnknownExtension {
        /// The path.
        path: PathBuf,
    },
    /// The run is that of a forecaster, which has no circuit.
    #[error("{} is the run of a forecaster; predict, evaluate, inspect and export to onnx work on it", path.display())]
    Forecaster {
        /// The run folder.
        path: PathBuf,
    },
    /// An automaton is needed, but this is a classifier.
    #[error("{} is a classifier, not an automaton; predict, evaluate, minimize, export and inspect work on it", path.display())]
    NotAnAutomaton {
        /// The run folder or file.
        path: PathBuf,
    },
    /// An automaton is needed, but the file holds a circuit only.
    #[error("{} is a circuit without cells, not an automaton", path.display())]
    PlainCircuit {
        /// The file.
        path: PathBuf,
    },
    /// The run cannot be opened.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The run of a classifier cannot be opened.
    #[error(transparent)]
    Classifier(#[from] classifier_run::RunError),
    /// The experiment is not valid.
    #[error(transparent)]
    Experiment(#[from] ExperimentError),
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The tensors are not a network.
    #[error("{}: {error}", path.display())]
    Network {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: ImportError,
    },
    /// The circuit is not valid.
    #[error("{}: {error}", path.display())]
    Circuit {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        error: Box<FormatError>,
    },
}

impl SubjectError {
    /// The error for a path where nothing is, with the run folder that may be meant.
    pub(crate) fn missing(path: &Path) -> SubjectError {
        let is_run = |path: &PathBuf| path.join("experiment.toml").exists();
        let run = Some(Path::new(RUNS).join(path)).filter(is_run);
        let similar = run.or_else(|| nearest_run(path));
        SubjectError::Missing { path: path.to_path_buf(), similar }
    }

    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Run(error) => error.is_usage(),
            Self::Classifier(error) => error.is_usage(),
            Self::File(_) | Self::Circuit { .. } | Self::Network { .. } => false,
            _ => true,
        }
    }
}

/// Returns the run folder beside a path, or in `runs`, whose name is similar to that of the path.
fn nearest_run(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new(RUNS));
    let entries = folder.read_dir().ok()?.flatten().map(|entry| entry.path());
    let runs = entries.filter(|path| path.join("experiment.toml").exists());
    let names: Vec<String> = runs.filter_map(|run| run.file_name()?.to_str().map(str::to_string)).collect();
    experiment::nearest(name, names.iter().map(String::as_str)).map(|name| folder.join(name))
}

/// The extensions of the circuit formats that can be read.
fn readable() -> String {
    let readable = FORMATS.iter().filter(|format| format.can_read());
    let extensions: Vec<String> = readable.map(|format| format!(".{}", format.endings[0])).collect();
    extensions.join(", ")
}

/// A trained automaton or a circuit, read from a file or a run folder.
#[derive(Debug)]
#[non_exhaustive]
pub struct Subject {
    /// The path of the run folder or file.
    pub path: PathBuf,
    /// The experiment, if it is the run folder of an automaton.
    pub loaded: Option<AutomatonExperiment>,
    /// The experiment, if it is the run folder of a classifier.
    pub classifier_experiment: Option<ClassifierExperiment>,
    /// The soft model, unless it is a circuit file.
    pub model: Option<Model>,
    /// The hard circuit.
    pub circuit: Circuit,
    /// The automaton that the circuit belongs to, unless it is a plain circuit.
    pub automaton: Option<Automaton>,
    /// The classifier that the circuit belongs to, if it is one.
    pub classifier: Option<Classifier>,
    /// The number of leading channels that are observed.
    pub observed: usize,
}

impl Subject {
    /// Opens a run folder, a `.safetensors` model, or a circuit in any format that can be read.
    pub fn open(path: &Path) -> Result<Subject, SubjectError> {
        if path.is_dir() {
            return Subject::open_run(path);
        }
        if !path.exists() {
            return Err(SubjectError::missing(path));
        }
        if path.extension().is_some_and(|extension| extension == "safetensors") {
            // The model of a run folder is opened with its experiment.
            let folder = path.parent().unwrap_or(Path::new(""));
            let is_of_run = path.file_name().is_some_and(|name| name == "model.safetensors");
            if is_of_run && folder.join("experiment.toml").is_file() {
                return Subject::open_run(folder);
            }
            let bytes = files::read(path)?;
            if import::is_network(&bytes) {
                let failed = |error| SubjectError::Network { path: path.to_path_buf(), error };
                return Ok(Subject::from_document(
                    path,
                    import::from_tensors(&bytes).map_err(failed)?.into(),
                ));
            }
            return Ok(Subject::from_model(path, None, run::read_model(path)?));
        }
        match Format::of_path(path).ok().filter(|format| format.can_read()) {
            Some(format) => Subject::open_circuit(path, format),
            None => Err(SubjectError::UnknownExtension { path: path.to_path_buf() }),
        }
    }

    fn open_run(path: &Path) -> Result<Subject, SubjectError> {
        let folder = RunFolder::at(path);
        if folder.experiment().is_file() {
            match experiment::Loaded::read(&folder.experiment())? {
                experiment::Loaded::Forecaster(_) => {
                    return Err(SubjectError::Forecaster { path: path.to_path_buf() });
                }
                experiment::Loaded::Classifier(_) => return Subject::open_classifier(path, &folder),
                experiment::Loaded::Automaton(_) => {}
            }
        }
        let (loaded, model) = run::open(&folder)?;
        Ok(Subject::from_model(path, Some(loaded), model))
    }

    fn open_classifier(path: &Path, folder: &RunFolder) -> Result<Subject, SubjectError> {
        if !classifier_run::circuit_path(folder).is_file() {
            let unfinished = RunFolderError::Unfinished { path: path.to_path_buf() };
            return Err(RunError::from(unfinished).into());
        }
        let (loaded, classifier) = classifier_run::open(folder)?;
        let subject = Subject::from_document(path, classifier.into());
        Ok(Subject { classifier_experiment: Some(loaded), ..subject })
    }

    fn from_model(path: &Path, loaded: Option<AutomatonExperiment>, model: Model) -> Subject {
        let automaton = model.harden();
        let observed = loaded.as_ref().map_or(automaton.channels, |loaded| loaded.target.channels());
        Subject {
            path: path.to_path_buf(),
            loaded,
            classifier_experiment: None,
            model: Some(model),
            circuit: automaton.circuit.clone(),
            automaton: Some(automaton),
            classifier: None,
            observed,
        }
    }

    fn open_circuit(path: &Path, format: &Format) -> Result<Subject, SubjectError> {
        let failed = |error| SubjectError::Circuit { path: path.to_path_buf(), error: Box::new(error) };
        let document = formats::read(&files::read(path)?, format).map_err(failed)?;
        Ok(Subject::from_document(path, document))
    }

    fn from_document(path: &Path, document: Document) -> Subject {
        let circuit = document.circuit().clone();
        let (automaton, classifier, observed) = match document {
            Document::Automaton { automaton, observed } => {
                let observed = observed.unwrap_or(automaton.channels);
                (Some(automaton), None, observed)
            }
            Document::Classifier(classifier) => (None, Some(classifier), 0),
            Document::Circuit(_) => (None, None, 0),
        };
        let path = path.to_path_buf();
        Subject {
            path,
            loaded: None,
            classifier_experiment: None,
            model: None,
            circuit,
            automaton,
            classifier,
            observed,
        }
    }

    /// Returns the circuit, with the channels of the automaton or the encoder and head of the classifier if it is one, as the export formats need it.
    pub fn document(&self) -> Document {
        match (&self.automaton, &self.classifier) {
            (Some(automaton), _) => {
                Document::Automaton { automaton: automaton.clone(), observed: Some(self.observed) }
            }
            (None, Some(classifier)) => Document::Classifier(classifier.clone()),
            (None, None) => Document::Circuit(self.circuit.clone()),
        }
    }

    /// Returns the automaton, or an error for a classifier or a plain circuit.
    pub fn automaton(&self) -> Result<&Automaton, SubjectError> {
        let path = self.path.clone();
        self.automaton.as_ref().ok_or_else(|| match self.classifier {
            Some(_) => SubjectError::NotAnAutomaton { path },
            None => SubjectError::PlainCircuit { path },
        })
    }

    /// Returns whether it was opened from a run folder.
    pub fn is_run(&self) -> bool {
        self.loaded.is_some() || self.classifier_experiment.is_some()
    }

    /// Returns the name of the experiment, if it is a run folder.
    pub fn experiment_name(&self) -> Option<&str> {
        let automaton = self.loaded.as_ref().map(|loaded| loaded.experiment.name.as_str());
        automaton.or(self.classifier_experiment.as_ref().map(|loaded| loaded.experiment.name.as_str()))
    }

    /// Returns the name of the experiment, or that of the file without its extension.
    pub fn name(&self) -> String {
        let stem = || self.path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        self.experiment_name().map(str::to_string).or_else(stem).unwrap_or_default()
    }

    /// Returns how often each gate function occurs. A gate of a perception kernel counts once, not once per channel.
    pub fn gate_histogram(&self) -> Vec<(String, usize)> {
        let of_circuit = || self.circuit.nodes().iter().map(|node| node.gate).collect();
        gate_histogram(&self.model.as_ref().map_or_else(of_circuit, Model::functions))
    }
}

/// Returns how often each gate function occurs, with its name.
pub fn gate_histogram(functions: &[Gate]) -> Vec<(String, usize)> {
    let count = |gate: Gate| functions.iter().filter(|&&function| function == gate).count();
    Gate::ALL.iter().map(|&gate| (gate.name().to_string(), count(gate))).collect()
}
