//! Web pages of what was learned, and the minimised circuit of a run.

use std::path::{Path, PathBuf};

use gatework_gates::automata::states::Start;
use gatework_logic::formats::wasm::WasmError;
use gatework_logic::{Document, from_json};
use gatework_train::files;

use crate::report::classifier_page;
use crate::report::page::Page;
use crate::subject::{Subject, SubjectError};

/// A web page that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PageError {
    /// There is nothing to show.
    #[error(transparent)]
    Subject(#[from] SubjectError),
    /// The start states have channels that the circuit lacks.
    #[error("a web page that starts from given grids needs all their channels; leave out --minimize")]
    StartChannels,
    /// The circuit cannot be written as WebAssembly.
    #[error(transparent)]
    Wasm(#[from] WasmError),
}

impl PageError {
    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        match self {
            Self::Subject(error) => error.is_usage(),
            Self::StartChannels => true,
            Self::Wasm(_) => false,
        }
    }
}

/// The line below the heading of the page of a classifier.
const ABOUT_CLASSIFIER: &str = "A classifier made of logic gates.";

/// Returns the name of what is exported: that of the experiment; of a circuit without one, that of the file to write, or else
/// of the file that was read.
pub fn name(subject: &Subject, output: Option<&Path>) -> String {
    let of_output = || output?.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    subject.experiment_name().map(str::to_string).or_else(of_output).unwrap_or_else(|| subject.name())
}

/// Returns a self-contained web page that runs a circuit: that of the subject, or the same minimised.
pub fn page(subject: &Subject, circuit: &Document, title: &str) -> Result<String, PageError> {
    match circuit {
        Document::Classifier(classifier) => Ok(classifier_page(title, ABOUT_CLASSIFIER, classifier)?),
        Document::Circuit(_) => Err(SubjectError::PlainCircuit { path: subject.path.clone() }.into()),
        Document::Automaton { automaton, .. } => {
            let page = Page::new(title, automaton, subject.observed);
            let Some(loaded) = &subject.loaded else { return Ok(page.html()?) };
            let is_whole = automaton == subject.automaton()?;
            if matches!(loaded.experiment.start, Start::Grids { .. }) && !is_whole {
                return Err(PageError::StartChannels);
            }
            Ok(page.trained_as(loaded).html()?)
        }
    }
}

/// Returns the smallest circuit that `minimize` has written into a run folder, and its path, unless the run was trained again since.
pub fn minimized(subject: &Subject) -> Option<(PathBuf, Document)> {
    if !subject.is_run() {
        return None;
    }
    let path = subject.path.join("minimized.json");
    let changed = |path: &Path| path.metadata().and_then(|data| data.modified()).ok();
    if changed(&path)? < changed(&subject.path.join("circuit.json"))? {
        return None;
    }
    let document = from_json(&files::read_text(&path).ok()?).ok()?;
    Some((path, document))
}
