//! Experiments of every kind: found by name or file, and read as the kind that their `task` names.

use std::path::Path;

use gatework_forecast::experiment as forecast;
use gatework_gates::automata::experiment as automata;
use gatework_gates::classifier::experiment as classifier;
use gatework_train::experiment::Source;

pub use gatework_train::experiment::{ExperimentError, nearest};

/// An experiment of any kind, read and checked.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Loaded {
    /// A cellular automaton.
    Automaton(Box<automata::AutomatonExperiment>),
    /// A classifier.
    Classifier(Box<classifier::ClassifierExperiment>),
    /// A forecaster.
    Forecaster(Box<forecast::ForecastExperiment>),
}

/// Returns the names and TOML texts of the built-in experiments.
pub fn built_in() -> impl Iterator<Item = (&'static str, &'static str)> {
    automata::BUILT_IN.into_iter().chain(classifier::BUILT_IN).chain(forecast::BUILT_IN)
}

impl Loaded {
    /// Finds a built-in experiment, reads a file if the name has a dot or a slash in it, or chooses an experiment for a picture
    /// or the name of a rule.
    pub fn find(name: &str) -> Result<Loaded, ExperimentError> {
        if let Some(chosen) = gatework_gates::automata::choose::by_name(name) {
            return chosen.map(|loaded| Loaded::Automaton(Box::new(loaded)));
        }
        let built_in: Vec<_> = built_in().collect();
        Loaded::from_source(&Source::find(name, &built_in)?)
    }

    /// Reads an experiment from a file.
    pub fn read(path: &Path) -> Result<Loaded, ExperimentError> {
        Loaded::from_source(&Source::read(path)?)
    }

    /// Reads an experiment as the kind that its `task` names.
    pub fn from_source(source: &Source) -> Result<Loaded, ExperimentError> {
        match source.task()?.as_str() {
            "classifier" => {
                Ok(Loaded::Classifier(Box::new(classifier::ClassifierExperiment::from_source(source)?)))
            }
            "forecaster" => {
                Ok(Loaded::Forecaster(Box::new(forecast::ForecastExperiment::from_source(source)?)))
            }
            _ => Ok(Loaded::Automaton(Box::new(automata::AutomatonExperiment::from_source(source)?))),
        }
    }

    /// The kind of the experiment, as `task` names it.
    pub fn kind(&self) -> &'static str {
        match self {
            Loaded::Automaton(_) => "automaton",
            Loaded::Classifier(_) => "classifier",
            Loaded::Forecaster(_) => "forecaster",
        }
    }

    /// The name, the expected training time and the description.
    pub fn texts(&self) -> [&str; 3] {
        match self {
            Loaded::Automaton(loaded) => {
                let experiment = &loaded.experiment;
                [&experiment.name, &experiment.expected, &experiment.about]
            }
            Loaded::Classifier(loaded) => {
                let experiment = &loaded.experiment;
                [&experiment.name, &experiment.expected, &experiment.about]
            }
            Loaded::Forecaster(loaded) => {
                let experiment = &loaded.experiment;
                [&experiment.name, &experiment.expected, &experiment.about]
            }
        }
    }

    /// The experiment as TOML, with all defaults filled in.
    pub fn to_toml(&self) -> String {
        match self {
            Loaded::Automaton(loaded) => loaded.experiment.to_toml(),
            Loaded::Classifier(loaded) => loaded.experiment.to_toml(),
            Loaded::Forecaster(loaded) => loaded.experiment.to_toml(),
        }
    }

    /// The experiment as JSON, with all defaults filled in.
    pub fn to_json(&self) -> serde_json::Value {
        let value = match self {
            Loaded::Automaton(loaded) => serde_json::to_value(&loaded.experiment),
            Loaded::Classifier(loaded) => serde_json::to_value(&loaded.experiment),
            Loaded::Forecaster(loaded) => serde_json::to_value(&loaded.experiment),
        };
        value.expect("all keys are strings")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn every_built_in_experiment_is_found_by_its_name() {
        for (name, _) in built_in() {
            assert_eq!(Loaded::find(name).unwrap().texts()[0], name);
        }
    }

    #[test]
    fn an_experiment_without_a_name_has_the_name_of_its_file() {
        for (built_in, text) in
            built_in().filter(|(name, _)| ["checkerboard", "digits", "airpassengers"].contains(name))
        {
            let line = format!("name = \"{built_in}\"\n");
            assert!(text.contains(&line));
            let source = Source::new(text.replacen(&line, "", 1), "some/my.toml", ".");
            assert_eq!(Loaded::from_source(&source).unwrap().texts()[0], "my");
        }
    }

    /// Reads a page of the documentation. `None`, with a message, in a packaged crate, which does not contain it.
    fn documentation(page: &str) -> Option<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
        let text = std::fs::read_to_string(&path).ok();
        if text.is_none() {
            assert!(!path.parent().is_some_and(Path::is_dir), "{} is missing", path.display());
            // The test harness captures eprintln! and shows it for failures only.
            let _ = writeln!(std::io::stderr(), "skipped: this package does not contain docs/{page}");
        }
        text
    }

    /// The example in `docs/automata.md` can be trained, and no key is missing.
    #[test]
    fn the_documentation_of_experiments_is_true() {
        let Some(text) = documentation("automata.md") else { return };
        let example = text
            .split("```toml\n")
            .skip(1)
            .filter_map(|rest| rest.split("```").next())
            .find(|block| block.contains("task = "))
            .expect("docs/automata.md has a whole experiment");
        let Loaded::Automaton(_) = Loaded::from_source(&Source::new(example, "steps.toml", ".")).unwrap()
        else {
            panic!("the example is an automaton");
        };
        let mut keys = Vec::new();
        for (_, text) in automata::BUILT_IN {
            let loaded = automata::AutomatonExperiment::from_source(&Source::new(text, "x", ".")).unwrap();
            collect(&toml::Value::try_from(&loaded.experiment).unwrap(), &mut keys);
            collect(&toml::Value::try_from(&loaded.experiment.gates).unwrap(), &mut keys);
            collect(&toml::Value::try_from(loaded.experiment.state).unwrap(), &mut keys);
        }
        assert!(keys.len() > 50);
        for key in keys {
            let named = [format!("`{key}`"), format!("[{key}]"), format!("{key} = ")];
            assert!(named.iter().any(|name| text.contains(name)), "{key} is not in docs/automata.md");
        }
    }

    /// Every key of a forecaster, of all models and losses, is documented in `docs/forecasting.md`.
    #[test]
    fn the_documentation_of_forecasters_is_complete() {
        use crate::forecast::models::Model;
        let Some(text) = documentation("forecasting.md") else { return };
        let mut keys = Vec::new();
        for model in Model::NAMES {
            keys.push((*model).to_string());
            let toml = format!(
                "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nhorizon = 12\nmodel = '{model}'\nloss = 'gaussian'"
            );
            let loaded = forecast::ForecastExperiment::from_source(&Source::new(&toml, "x", ".")).unwrap();
            collect(&toml::Value::try_from(&loaded.experiment).unwrap(), &mut keys);
        }
        let for_people =
            ["name", "task", "about", "expected", "kind", "beta1", "beta2", "epsilon", "weight_decay"];
        for key in keys.iter().filter(|key| !for_people.contains(&key.as_str())) {
            let named = [format!("`{key}`"), format!("[{key}]"), format!("{key} = "), format!("\"{key}\"")];
            assert!(named.iter().any(|name| text.contains(name)), "{key} is not in docs/forecasting.md");
        }
    }

    /// Every key of a classifier is documented in `docs/classifiers.md`.
    #[test]
    fn the_documentation_of_classifiers_is_complete() {
        let Some(text) = documentation("classifiers.md") else { return };
        let mut keys = Vec::new();
        for (_, experiment) in classifier::BUILT_IN {
            let loaded =
                classifier::ClassifierExperiment::from_source(&Source::new(experiment, "x", ".")).unwrap();
            collect(&toml::Value::try_from(&loaded.experiment).unwrap(), &mut keys);
        }
        let for_people =
            ["name", "task", "about", "expected", "kind", "beta1", "beta2", "epsilon", "weight_decay"];
        for key in keys.iter().filter(|key| !for_people.contains(&key.as_str())) {
            let named = [format!("`{key}`"), format!("[{key}]"), format!("{key} = ")];
            assert!(named.iter().any(|name| text.contains(name)), "{key} is not in docs/classifiers.md");
        }
    }

    /// Collects all keys of a table and of the tables in it.
    fn collect(value: &toml::Value, keys: &mut Vec<String>) {
        match value {
            toml::Value::Table(table) => table.iter().for_each(|(key, value)| {
                keys.push(key.clone());
                collect(value, keys);
            }),
            toml::Value::Array(values) => values.iter().for_each(|value| collect(value, keys)),
            _ => {}
        }
    }

    #[test]
    fn the_task_selects_the_kind_of_experiment() {
        let text = "task = \"forecaster\"\nname = \"x\"\nhorison = 3";
        let message = Loaded::from_source(&Source::new(text, "x.toml", ".")).unwrap_err().to_string();
        assert!(message.starts_with("x.toml:3: unknown field `horison`"), "{message}");
        assert!(
            Loaded::find("airpasengers").unwrap_err().to_string().contains("did you mean airpassengers?")
        );
    }
}
