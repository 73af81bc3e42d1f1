//! Experiments of every kind: found by name or file, and read as what their `task` says.

use std::path::{Path, PathBuf};

use crate::automata::experiment as automata;
use crate::files;
use crate::forecast::experiment as forecast;

pub use automata::ExperimentError;

/// What is to be learned.
#[derive(Clone, Debug)]
pub enum Loaded {
    /// A cellular automaton.
    Automaton(Box<automata::Loaded>),
    /// A forecaster.
    Forecaster(Box<forecast::Loaded>),
}

/// The built-in experiments: name and TOML.
pub fn built_in() -> impl Iterator<Item = (&'static str, &'static str)> {
    automata::BUILT_IN.into_iter().chain(forecast::BUILT_IN)
}

impl Loaded {
    /// Finds a built-in experiment, or reads a file if the name has a dot or a slash in it.
    pub fn find(name: &str) -> Result<Loaded, ExperimentError> {
        if let Some((_, text)) = built_in().find(|(known, _)| *known == name) {
            return Loaded::parse(text, name, Path::new("."));
        }
        if name.contains(['.', '/', '\\']) || Path::new(name).is_file() {
            return Loaded::read(Path::new(name));
        }
        let names: Vec<&str> = built_in().map(|(name, _)| name).collect();
        let nearest = names.iter().map(|known| (automata::distance(name, known), known)).min();
        let hint = nearest.filter(|(d, known)| *d <= known.len() / 2).map(|(_, known)| (*known).to_string());
        Err(ExperimentError::Unknown { name: name.to_string(), hint, known: names.join(", ") })
    }

    /// Reads an experiment from a file.
    pub fn read(path: &Path) -> Result<Loaded, ExperimentError> {
        let text = files::read_text(path)?;
        let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        Loaded::parse(&text, &path.display().to_string(), &folder)
    }

    /// Reads an experiment from text. `origin` is what errors call it, `folder` where its files are.
    pub fn parse(text: &str, origin: &str, folder: &Path) -> Result<Loaded, ExperimentError> {
        if task(text).as_deref() == Some("forecaster") {
            let loaded = forecast::Loaded::parse(text, origin, folder)?;
            return Ok(Loaded::Forecaster(Box::new(loaded)));
        }
        // Without a task that is known, the automaton's reader says what is wrong.
        Ok(Loaded::Automaton(Box::new(automata::Loaded::parse(text, origin, folder)?)))
    }
}

/// The task of an experiment, if its text has one.
fn task(text: &str) -> Option<String> {
    let document = toml::de::DeTable::parse(text).ok()?;
    let (_, value) = document.get_ref().iter().find(|(key, _)| key.get_ref().as_ref() == "task")?;
    value.get_ref().as_str().map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_experiment_is_found_by_its_name() {
        for (name, _) in built_in() {
            let found = match Loaded::find(name).unwrap() {
                Loaded::Automaton(loaded) => loaded.experiment.name,
                Loaded::Forecaster(loaded) => loaded.experiment.name,
            };
            assert_eq!(found, name);
        }
    }

    #[test]
    fn the_task_decides_who_reads() {
        let text = "task = \"forecaster\"\nname = \"x\"\nhorison = 3";
        let message = Loaded::parse(text, "x.toml", Path::new(".")).unwrap_err().to_string();
        assert!(message.starts_with("x.toml:3: unknown field `horison`"), "{message}");
        let message = Loaded::parse("task = \"oracle\"", "x.toml", Path::new(".")).unwrap_err().to_string();
        assert!(message.starts_with("x.toml:1: unknown variant `oracle`"), "{message}");
        assert!(
            Loaded::find("airpasengers").unwrap_err().to_string().contains("did you mean airpassengers?")
        );
    }
}
