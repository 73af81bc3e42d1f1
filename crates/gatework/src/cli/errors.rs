//! Error messages of the command line: the cause from the library, followed by the option or command that helps.

use std::error::Error;

use gatework_forecast::run as forecast_run;
use gatework_gates::automata::run as automata_run;
use gatework_gates::classifier::run as classifier_run;
use gatework_train::experiment::ExperimentError;
use gatework_train::run_folder::RunFolderError;

use super::{program, resume_command};
use crate::check::CheckError;
use crate::classification::ClassificationError;
use crate::experiment;
use crate::export::PageError;
use crate::minimize::MinimizeError;
use crate::simulation::SimulationError;
use crate::subject::SubjectError;
use crate::training::TrainingError;

/// What is wrong with how the program was called, and what to do instead. The exit status is 2 instead of 1.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// The maximum length of a message in characters: it may quote a file.
const MAX_MESSAGE: usize = 2000;

/// Returns the message of an error with its causes and a hint.
pub fn message(error: &anyhow::Error) -> String {
    let hint = error.chain().find_map(hint).map_or_else(String::new, |hint| format!("; {hint}"));
    shortened(format!("{error:#}{hint}"))
}

/// Returns whether the program was called wrongly, as opposed to a failure.
pub fn is_usage(error: &anyhow::Error) -> bool {
    fn check<E: Error + 'static>(cause: &(dyn Error + 'static), is_usage: fn(&E) -> bool) -> bool {
        cause.downcast_ref::<E>().is_some_and(is_usage)
    }
    error.chain().any(|cause| {
        cause.is::<Usage>()
            || cause.is::<ExperimentError>()
            || check(cause, RunFolderError::is_usage)
            || check(cause, automata_run::RunError::is_usage)
            || check(cause, classifier_run::RunError::is_usage)
            || check(cause, forecast_run::RunError::is_usage)
            || check(cause, SubjectError::is_usage)
            || check(cause, SimulationError::is_usage)
            || check(cause, CheckError::is_usage)
            || is_serve_usage(cause)
            || check(cause, ClassificationError::is_usage)
            || check(cause, PageError::is_usage)
            || check(cause, TrainingError::is_usage)
    })
}

#[cfg(feature = "serve")]
fn is_serve_usage(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref().is_some_and(crate::serve::ServeError::is_usage)
}

#[cfg(not(feature = "serve"))]
fn is_serve_usage(_: &(dyn Error + 'static)) -> bool {
    false
}

/// Returns the option or command that helps with an error of the server.
#[cfg(feature = "serve")]
fn serve_hint(cause: &(dyn Error + 'static)) -> Option<String> {
    use crate::serve::ServeError;
    match cause.downcast_ref()? {
        ServeError::NeedsToken(_) => {
            Some("--token-file names a file with a token, --insecure allows everybody".into())
        }
        ServeError::Listen { error, .. } if error.kind() == std::io::ErrorKind::AddrInUse => {
            Some("--port names another one".into())
        }
        _ => None,
    }
}

#[cfg(not(feature = "serve"))]
fn serve_hint(_: &(dyn Error + 'static)) -> Option<String> {
    None
}

/// Returns the option or command that helps with an error.
fn hint(cause: &(dyn Error + 'static)) -> Option<String> {
    if let Some(SubjectError::Missing { path, similar: None }) = cause.downcast_ref() {
        let name = path.file_name()?.to_str()?;
        let is_known = experiment::built_in().any(|(known, _)| known == name);
        return is_known.then(|| format!("train it with: {} train {name}", program()));
    }
    match cause.downcast_ref() {
        Some(MinimizeError::Timeout(_)) => {
            return Some("nothing is written (--proof-seconds allows more time)".into());
        }
        Some(MinimizeError::Interrupted) => return Some("nothing was written".into()),
        Some(_) => return Some("nothing is written".into()),
        None => {}
    }
    if let Some(hint) = serve_hint(cause) {
        return Some(hint);
    }
    match run_folder_error(cause)? {
        RunFolderError::Exists { aside, .. } => Some(format!(
            "--resume goes on with it, --force renames it to {}, --out names another folder",
            aside.display()
        )),
        RunFolderError::Foreign { .. } => Some("--out names another folder".into()),
        RunFolderError::Unfinished { path } => Some(format!("resume it with: {}", resume_command(path))),
        RunFolderError::OtherData { .. } => Some("--force starts a new run".into()),
        _ => None,
    }
}

/// Returns the error about a run folder that is inside an error of a library.
fn run_folder_error<'a>(cause: &'a (dyn Error + 'static)) -> Option<&'a RunFolderError> {
    let of_automaton = |error: &'a automata_run::RunError| match error {
        automata_run::RunError::Folder(error) => Some(error),
        _ => None,
    };
    let of_subject = |error: &'a SubjectError| match error {
        SubjectError::Run(error) => of_automaton(error),
        SubjectError::Classifier(classifier_run::RunError::Folder(error)) => Some(error),
        _ => None,
    };
    let of_classifier = |error: &'a classifier_run::RunError| match error {
        classifier_run::RunError::Folder(error) => Some(error),
        _ => None,
    };
    let of_forecaster = |error: &'a forecast_run::RunError| match error {
        forecast_run::RunError::Folder(error) => Some(error),
        _ => None,
    };
    let of_training = |error: &'a TrainingError| match error {
        TrainingError::Folder(error) => Some(error),
        TrainingError::Automaton(error) => of_automaton(error),
        TrainingError::Classifier(error) => of_classifier(error),
        TrainingError::Forecaster(error) => of_forecaster(error),
        _ => None,
    };
    let direct = cause.downcast_ref::<RunFolderError>();
    direct
        .or_else(|| cause.downcast_ref().and_then(of_automaton))
        .or_else(|| cause.downcast_ref().and_then(of_subject))
        .or_else(|| cause.downcast_ref().and_then(of_classifier))
        .or_else(|| cause.downcast_ref().and_then(of_forecaster))
        .or_else(|| cause.downcast_ref().and_then(of_training))
        .or_else(|| cause.downcast_ref().and_then(ClassificationError::run_folder))
}

/// Cuts a message that is too long.
fn shortened(message: String) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{} ...", &message[..end]),
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_maximum_length() {
        assert_eq!(shortened("ä".repeat(MAX_MESSAGE)), "ä".repeat(MAX_MESSAGE));
        let long = shortened("ä".repeat(MAX_MESSAGE + 1));
        assert!(long.chars().count() == MAX_MESSAGE + 4 && long.ends_with(" ..."));
    }

    #[test]
    fn a_hint_follows_the_cause_wherever_it_is() {
        let folder = || RunFolderError::Unfinished { path: "r".into() };
        let errors: [anyhow::Error; 6] = [
            folder().into(),
            automata_run::RunError::from(folder()).into(),
            forecast_run::RunError::from(folder()).into(),
            SubjectError::from(automata_run::RunError::from(folder())).into(),
            TrainingError::from(forecast_run::RunError::from(folder())).into(),
            ClassificationError::from(classifier_run::RunError::from(folder())).into(),
        ];
        for error in errors {
            assert!(is_usage(&error));
            let message = message(&error);
            assert!(
                message.starts_with("r has no model.safetensors: the run is not finished; resume it with: ")
            );
            assert!(message.ends_with(" train r/experiment.toml --resume --out r"), "{message}");
        }
    }
}
