//! The loader of experiment files: TOML text with its origin, and errors that name file and line.
//!
//! A [`Source`] is the text of a built-in experiment or of a file. It deserialises into the typed experiment of a learner,
//! whose own checks return a [`Problem`]: a message and the key that it is about. [`Source::locate`] turns the key into a
//! line by the spans of the TOML document.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use toml::de::{DeTable, DeValue};

use crate::files;

/// The values of the top-level key `task`.
pub const TASKS: [&str; 3] = ["automaton", "classifier", "forecaster"];

/// An experiment that cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// No built-in experiment has this name, and no such file exists.
    #[error("no experiment {name:?}{}; there are {known}", hint.as_ref().map_or(String::new(), |h| format!(" (did you mean {h}?)")))]
    Unknown {
        /// The requested name.
        name: String,
        /// The most similar built-in name.
        hint: Option<String>,
        /// All built-in names, joined by commas.
        known: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] files::FileError),
    /// The text is not a valid experiment.
    #[error("{origin}:{}{message}", line.map_or_else(|| " ".to_string(), |line| format!("{line}: ")))]
    Invalid {
        /// The file, or the name of a built-in experiment.
        origin: String,
        /// The line, counted from 1, where it is known.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
}

/// Returns the name that is most similar to what was typed, if at least half of its letters are the same.
pub fn nearest<'a>(typed: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let nearest = names.map(|name| (strsim::levenshtein(typed, name), name)).min();
    nearest.filter(|(distance, name)| *distance <= name.len() / 2).map(|(_, name)| name)
}

/// A problem of a setting, and the key of the setting. A number in the key stands for an element of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the key, outermost table first.
    pub key: Vec<String>,
    /// What is wrong.
    pub message: String,
}

impl Problem {
    /// Describes a problem of the setting at `key`.
    pub fn new(key: &[&str], message: impl Into<String>) -> Problem {
        Problem { key: key.iter().map(ToString::to_string).collect(), message: message.into() }
    }
}

/// Returns a [`Problem`] as an error.
pub fn problem<T>(key: &[&str], message: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::new(key, message))
}

/// Maximum length of a name in bytes. File systems allow 255, and the names of run folders may end in a number.
const MAX_NAME: usize = 200;

/// Checks the name of an experiment, which is also the name of a folder: one component of a path, without control characters.
pub fn check_name(name: &str) -> Result<(), Problem> {
    let message = if name.trim().is_empty() {
        "name is empty; give the experiment a name".to_string()
    } else if name.len() > MAX_NAME {
        format!("name has {} bytes; the limit is {MAX_NAME}", name.len())
    } else if let Some(c) = name.chars().find(|c| c.is_control() || r"/\".contains(*c)) {
        format!("name is {name:?}, but {c:?} cannot be in the name of a folder")
    } else if name.starts_with(' ') || name.ends_with([' ', '.']) || is_device(name) {
        format!("name is {name:?}, which cannot be the name of a folder on every system")
    } else {
        return Ok(());
    };
    problem(&["name"], message)
}

/// Whether Windows reserves a name for a device, which it does whatever the extension.
fn is_device(name: &str) -> bool {
    let stem = name.split('.').next().unwrap_or_default().trim_end().to_lowercase();
    let port = stem.strip_prefix("com").or(stem.strip_prefix("lpt"));
    ["con", "prn", "aux", "nul"].contains(&stem.as_str())
        || port.is_some_and(|number| number.len() == 1 && number.parse::<u8>().is_ok())
}

/// The text of an experiment and its origin.
#[derive(Clone, Debug)]
pub struct Source {
    text: String,
    origin: String,
    folder: PathBuf,
}

impl Source {
    /// Wraps a text. Errors call it `origin`; relative paths in it are relative to `folder`.
    pub fn new(text: impl Into<String>, origin: impl Into<String>, folder: impl Into<PathBuf>) -> Source {
        Source { text: text.into(), origin: origin.into(), folder: folder.into() }
    }

    /// Reads a file.
    pub fn read(path: &Path) -> Result<Source, ExperimentError> {
        let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        Ok(Source::new(files::read_text(path)?, path.display().to_string(), folder))
    }

    /// Finds a built-in experiment by name, or reads the file if the name is a path.
    pub fn find(name: &str, built_in: &[(&str, &str)]) -> Result<Source, ExperimentError> {
        if let Some((_, text)) = built_in.iter().find(|(known, _)| *known == name) {
            return Ok(Source::new(*text, name, "."));
        }
        if name.contains(['.', '/', '\\']) || Path::new(name).is_file() {
            return Source::read(Path::new(name));
        }
        let names: Vec<&str> = built_in.iter().map(|(name, _)| *name).collect();
        let hint = nearest(name, names.iter().copied()).map(str::to_string);
        Err(ExperimentError::Unknown { name: name.to_string(), hint, known: names.join(", ") })
    }

    /// Returns the folder that relative paths in the text refer to.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the name of an experiment without a `name` of its own: the stem of its file.
    pub fn default_name(&self) -> Option<String> {
        Path::new(&self.origin).file_stem().map(|stem| stem.to_string_lossy().into_owned())
    }

    /// Deserialises the text.
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, ExperimentError> {
        toml::from_str(&self.text).map_err(|error| self.not_toml(&error))
    }

    /// Returns the value of a top-level key as text, and its line; `None` if the key is missing or the text is not TOML.
    pub fn top_level(&self, key: &str) -> Option<(String, usize)> {
        self.find_top_level(key).ok().flatten()
    }

    fn find_top_level(&self, key: &str) -> Result<Option<(String, usize)>, ExperimentError> {
        let document = DeTable::parse(&self.text).map_err(|error| self.not_toml(&error))?;
        let found = document.get_ref().iter().find(|(known, _)| known.get_ref() == key);
        Ok(found.map(|(_, value)| {
            let as_written = || self.text[value.span()].to_string();
            let text = value.get_ref().as_str().map_or_else(as_written, str::to_string);
            (text, self.line_at(value.span().start))
        }))
    }

    /// Returns the `task` of the experiment; an error if it is missing or not one of [`TASKS`], or if the text is not TOML.
    pub fn task(&self) -> Result<String, ExperimentError> {
        match self.find_top_level("task")? {
            Some((task, _)) if TASKS.contains(&task.as_str()) => Ok(task),
            Some((task, line)) => {
                let known = TASKS.map(|task| format!("{task:?}")).join(", ");
                Err(self.invalid(Some(line), format!("the task is {task:?}; there are {known}")))
            }
            None => {
                let known = TASKS.map(|task| format!("task = {task:?}")).join(" or ");
                Err(self.invalid(None, format!("there is no task; write {known}")))
            }
        }
    }

    /// Returns the error for a problem, with the line of its key or of the innermost enclosing table. `former` has the former
    /// names of keys that are still read, with their current names, as `table.key`.
    pub fn locate(&self, problem: Problem, former: &[(&str, &str)]) -> ExperimentError {
        self.invalid(self.line_of(&problem.key, former), problem.message)
    }

    /// Returns an error about this text.
    pub fn invalid(&self, line: Option<usize>, message: impl Into<String>) -> ExperimentError {
        ExperimentError::Invalid { origin: self.origin.clone(), line, message: message.into() }
    }

    fn not_toml(&self, error: &toml::de::Error) -> ExperimentError {
        self.invalid(error.span().map(|span| self.line_at(span.start)), plain(error.message()))
    }

    fn line_at(&self, byte: usize) -> usize {
        1 + self.text.bytes().take(byte).filter(|&b| b == b'\n').count()
    }

    fn line_of(&self, key: &[String], former: &[(&str, &str)]) -> Option<usize> {
        let document = DeTable::parse(&self.text).ok()?;
        let (first, rest) = key.split_first()?;
        let (found, mut value) = document.get_ref().iter().find(|(k, _)| k.get_ref() == first)?;
        let (mut start, mut path) = (found.span().start, first.clone());
        for name in rest {
            let current = format!("{path}.{name}");
            let is_key = |known: &str| {
                let known = format!("{path}.{known}");
                known == current || former.contains(&(&*known, &*current))
            };
            let inner = match value.get_ref() {
                DeValue::Table(table) => table
                    .iter()
                    .find(|(known, _)| is_key(known.get_ref()))
                    .map(|(found, value)| (found.span().start, value)),
                DeValue::Array(array) => name
                    .parse()
                    .ok()
                    .and_then(|index: usize| array.get(index))
                    .map(|value| (value.span().start, value)),
                _ => None,
            };
            let Some(inner) = inner else { break };
            (start, value) = inner;
            path = current;
        }
        Some(self.line_at(start))
    }
}

/// Replaces the types of Rust in a message by words.
fn plain(message: &str) -> String {
    const WORDS: [(&str, &str); 12] = [
        ("usize", "a whole number of at least 0"),
        ("u64", "a whole number of at least 0"),
        ("u32", "a whole number of at least 0"),
        ("u8", "a whole number from 0 to 255"),
        ("i64", "a whole number"),
        ("f64", "a number"),
        ("f32", "a number"),
        ("a sequence", "a list"),
        ("sequence", "list"),
        ("a map", "a table"),
        ("map", "table"),
        ("floating point", "number"),
    ];
    let Some((found, wanted)) = message.rsplit_once(", expected ") else { return message.to_string() };
    let word = |text: &str| match WORDS.iter().find(|(rust, _)| *rust == text) {
        Some((_, word)) => (*word).to_string(),
        // A table is a struct or an enum with a kind.
        None if text.starts_with("struct ") || text.contains("enum ") => "a table".into(),
        None => text.to_string(),
    };
    // Only the type that was found is replaced: names and values are those of the file.
    let kind = |(problem, value): (&str, &str)| {
        let kinds = [("floating point", "number"), ("sequence", "list"), ("map", "table")];
        kinds.iter().find_map(|(rust, word)| Some(format!("{problem}: {word}{}", value.strip_prefix(rust)?)))
    };
    let parts = found.split_once(": ").filter(|(problem, _)| problem.starts_with("invalid "));
    format!("{}, expected {}", parts.and_then(kind).as_deref().unwrap_or(found), word(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_located_by_its_former_name() {
        let source = Source::new("[a]\nx = 1\nold = [1,\n 2]\n[b]\nold = 2\n", "x.toml", "");
        let line =
            |key: &[&str]| source.locate(Problem::new(key, "wrong"), &[("a.old", "a.new")]).to_string();
        assert_eq!(line(&["a", "new"]), "x.toml:3: wrong");
        assert_eq!(line(&["a", "new", "1"]), "x.toml:4: wrong");
        assert_eq!(line(&["b", "new"]), "x.toml:5: wrong", "the key of another table was not renamed");
    }

    #[test]
    fn a_key_is_located_by_its_span_or_that_of_its_table() {
        let text = "a = 1\n[b]\nc = 2\nd = [1,\n 2]\n[[e]]\nf = 1\n[[e]]\nf = 2\n";
        let source = Source::new(text, "x.toml", "");
        for (key, line) in [
            (&["a"][..], 1),
            (&["b", "c"], 3),
            (&["b", "x"], 2),
            (&["b", "d", "1"], 5),
            (&["e", "1", "f"], 9),
        ] {
            let error = source.locate(Problem::new(key, "wrong"), &[]).to_string();
            assert_eq!(error, format!("x.toml:{line}: wrong"), "{key:?}");
        }
        assert_eq!(source.locate(Problem::new(&["z"], "wrong"), &[]).to_string(), "x.toml: wrong");
    }

    #[test]
    fn messages_have_no_types_of_rust() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        #[expect(dead_code, reason = "only its types matter")]
        struct Settings {
            count: usize,
            rate: f64,
            sizes: Vec<usize>,
        }
        let read = |text: &str| Source::new(text, "x.toml", "").parse::<Settings>().unwrap_err().to_string();
        let count = read("count = 'three'\nrate = 1.0\nsizes = []");
        assert!(
            count.contains("expected a whole number of at least 0") && !count.contains("usize"),
            "{count}"
        );
        let rate = read("count = 3\nrate = 'fast'\nsizes = []");
        assert!(rate.contains("expected a number") && !rate.contains("f64"), "{rate}");
        let sizes = read("count = 3\nrate = 1.0\nsizes = 4");
        assert!(sizes.contains("expected a list"), "{sizes}");
        let list = read("count = [3]\nrate = 1.0\nsizes = []");
        assert!(list.contains("invalid type: list, expected a whole number"), "{list}");
        // Names and values of the file are unchanged.
        let unknown = read("bitmap_sequence = 3");
        assert!(unknown.contains("`bitmap_sequence`, expected one of `count`"), "{unknown}");
        let text = read("count = 'map, expected usize'");
        assert!(text.contains("string \"map, expected usize\", expected a whole number"), "{text}");
    }

    #[test]
    fn a_name_is_one_component_of_a_path() {
        for valid in [
            "a",
            "lizard-2",
            "my sales",
            "v1.2",
            ".hidden",
            "Ærø",
            "console",
            "con2",
            "comb",
            &"x".repeat(MAX_NAME),
        ] {
            assert_eq!(check_name(valid), Ok(()), "{valid}");
        }
        for invalid in [
            "",
            " ",
            ".",
            "..",
            "a/b",
            "/",
            r"..\a",
            "a\u{1b}[2J",
            "a\nb",
            "a\0",
            "a\u{9b}",
            "a.",
            "a ",
            " a",
            "CON",
            "nul.toml",
            "com1",
            &"x".repeat(MAX_NAME + 1),
        ] {
            let Problem { key, message } = check_name(invalid).unwrap_err();
            assert!(key == ["name"] && message.starts_with("name "), "{message}");
            assert!(!message.contains(char::is_control) && message.len() < MAX_NAME + 100, "{message}");
        }
    }

    #[test]
    fn a_missing_or_unknown_task_is_an_error_and_so_is_invalid_toml() {
        let task = |text: &str| Source::new(text, "x.toml", "").task().map_err(|error| error.to_string());
        assert_eq!(task("name = 'x'\ntask = 'forecaster'").as_deref(), Ok("forecaster"));
        let unknown =
            "x.toml:2: the task is \"automata\"; there are \"automaton\", \"classifier\", \"forecaster\"";
        assert_eq!(task("name = 'x'\ntask = 'automata'").unwrap_err(), unknown);
        let missing = "x.toml: there is no task; write task = \"automaton\" or task = \"classifier\" or task = \"forecaster\"";
        assert_eq!(task("name = 'x'").unwrap_err(), missing);
        let invalid = task("name = 'x'\ntask = forecaster\nhorizon = 3").unwrap_err();
        assert!(invalid.starts_with("x.toml:2: "), "{invalid}");
    }

    #[test]
    fn a_name_without_a_match_gets_the_nearest_one_as_a_hint() {
        let error = Source::find("lizzard", &[("lizard", ""), ("checkerboard", "")]).unwrap_err();
        let right = "no experiment \"lizzard\" (did you mean lizard?); there are lizard, checkerboard";
        assert_eq!(error.to_string(), right);
    }
}
