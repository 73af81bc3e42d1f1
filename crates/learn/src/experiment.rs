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
        match task(text) {
            Some((task, _)) if task == "forecaster" => {
                let loaded = forecast::Loaded::parse(text, origin, folder)?;
                Ok(Loaded::Forecaster(Box::new(loaded)))
            }
            Some((task, line)) if task != "automaton" => Err(ExperimentError::Invalid {
                origin: origin.to_string(),
                line: Some(line),
                message: format!("the task is {task:?}; there are \"automaton\" and \"forecaster\""),
            }),
            // What is no TOML has no task either: the automaton's reader says what is wrong with it.
            None if toml::de::DeTable::parse(text).is_ok() => Err(ExperimentError::Invalid {
                origin: origin.to_string(),
                line: None,
                message: "there is no task; write task = \"automaton\" or task = \"forecaster\"".into(),
            }),
            _ => Ok(Loaded::Automaton(Box::new(automata::Loaded::parse(text, origin, folder)?))),
        }
    }
}

/// The task of an experiment, if its text has one.
fn task(text: &str) -> Option<(String, usize)> {
    let document = toml::de::DeTable::parse(text).ok()?;
    let (_, value) = document.get_ref().iter().find(|(key, _)| key.get_ref().as_ref() == "task")?;
    let line = automata::line_at(text, value.span().start);
    let task = value.get_ref().as_str().map_or_else(|| text[value.span()].to_string(), str::to_string);
    Some((task, line))
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
    fn an_unknown_task_is_named_beside_those_there_are() {
        let error = Loaded::parse("name = \"x\"\ntask = \"automata\"", "x.toml", Path::new(".")).unwrap_err();
        let right = "x.toml:2: the task is \"automata\"; there are \"automaton\" and \"forecaster\"";
        assert_eq!(error.to_string(), right);
        let error = Loaded::parse("name = \"x\"\ndata = \"y.csv\"", "x.toml", Path::new(".")).unwrap_err();
        assert!(error.to_string().contains("there is no task; write task = "), "{error}");
    }

    #[test]
    fn what_has_no_name_is_called_like_its_file() {
        for (built_in, text) in
            built_in().filter(|(name, _)| ["checkerboard", "airpassengers"].contains(name))
        {
            let line = format!("name = \"{built_in}\"\n");
            assert!(text.contains(&line));
            let found =
                match Loaded::parse(&text.replacen(&line, "", 1), "some/my.toml", Path::new(".")).unwrap() {
                    Loaded::Automaton(loaded) => loaded.experiment.name,
                    Loaded::Forecaster(loaded) => loaded.experiment.name,
                };
            assert_eq!(found, "my");
        }
    }

    /// `docs/experiments.md`: its example can be trained, and no key is missing.
    #[test]
    fn the_documentation_of_experiments_is_true() {
        let text = include_str!("../../../docs/experiments.md");
        let folder = tempfile::tempdir().unwrap();
        let picture: Vec<&str> = text
            .lines()
            .filter_map(|line| line.strip_prefix("    "))
            .filter(|line| line.starts_with('.'))
            .collect();
        std::fs::write(folder.path().join("face.txt"), picture.join("\n")).unwrap();
        let example = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
        let Loaded::Automaton(_) = Loaded::parse(example, "face.toml", folder.path()).unwrap() else {
            panic!("the example is an automaton");
        };
        let mut keys = Vec::new();
        for (_, text) in automata::BUILT_IN {
            let loaded = automata::Loaded::parse(text, "x", Path::new(".")).unwrap();
            collect(&toml::Value::try_from(&loaded.experiment).unwrap(), &mut keys);
            collect(&toml::Value::try_from(&loaded.experiment.gates).unwrap(), &mut keys);
            collect(&toml::Value::try_from(&loaded.experiment.state).unwrap(), &mut keys);
        }
        assert!(keys.len() > 50);
        for key in keys {
            let named = [format!("`{key}`"), format!("[{key}]"), format!("{key} = ")];
            assert!(named.iter().any(|name| text.contains(name)), "{key} is not in docs/experiments.md");
        }
    }

    /// `docs/forecasting.md` explains every key of a forecaster, of all models and losses.
    #[test]
    fn the_documentation_of_forecasters_is_complete() {
        use crate::forecast::models::Model;
        let text = include_str!("../../../docs/forecasting.md");
        let mut keys = Vec::new();
        for model in Model::NAMES {
            keys.push((*model).to_string());
            let toml = format!(
                "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nhorizon = 12\nmodel = '{model}'\nloss = 'gaussian'"
            );
            let loaded = forecast::Loaded::parse(&toml, "x", Path::new(".")).unwrap();
            collect(&toml::Value::try_from(&loaded.experiment).unwrap(), &mut keys);
        }
        let for_people =
            ["name", "task", "about", "expected", "kind", "beta1", "beta2", "epsilon", "weight_decay"];
        for key in keys.iter().filter(|key| !for_people.contains(&key.as_str())) {
            let named = [format!("`{key}`"), format!("[{key}]"), format!("{key} = "), format!("\"{key}\"")];
            assert!(named.iter().any(|name| text.contains(name)), "{key} is not in docs/forecasting.md");
        }
    }

    /// All keys of a table and those inside it.
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
    fn the_task_decides_who_reads() {
        let text = "task = \"forecaster\"\nname = \"x\"\nhorison = 3";
        let message = Loaded::parse(text, "x.toml", Path::new(".")).unwrap_err().to_string();
        assert!(message.starts_with("x.toml:3: unknown field `horison`"), "{message}");
        assert!(
            Loaded::find("airpasengers").unwrap_err().to_string().contains("did you mean airpassengers?")
        );
    }
}
