//! The run folders that are served, and what their files tell about them.

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use gatework_train::experiment::{Source, check_name};
use gatework_train::files;
use gatework_train::run_folder::{RUNS, RunFolder};
use serde_json::{Map, Value, json};

use super::problem::Problem;
use crate::experiment::Loaded;
use crate::live;

/// The largest file that is read to describe a run, in bytes.
const MAX_TEXT: u64 = 8 << 20;

/// The number of losses that a list shows of a training.
const MAX_POINTS: usize = 60;

/// The pictures of a run, the one that represents it first.
const PICTURES: [&str; 4] = ["rollout.gif", "forecast.svg", "loss.svg", "gates.svg"];

/// What a run has learned or learns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Automaton,
    Classifier,
    Forecaster,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Automaton => "automaton",
            Kind::Classifier => "classifier",
            Kind::Forecaster => "forecaster",
        }
    }
}

/// The folders that are served.
pub struct Runs {
    sources: Vec<PathBuf>,
}

/// A run folder.
#[derive(Clone, Debug)]
pub struct Run {
    pub name: String,
    pub path: PathBuf,
}

impl Runs {
    pub fn new(sources: Vec<PathBuf>) -> Runs {
        Runs { sources }
    }

    /// Returns the folder that new runs are trained into.
    pub fn folder(&self) -> PathBuf {
        let folder = self.sources.iter().find(|source| !is_run(source));
        folder.cloned().unwrap_or_else(|| RUNS.into())
    }

    /// Returns all runs. Of runs with the same name, the one in the source that was given first is served.
    pub fn all(&self) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for source in &self.sources {
            let paths = if is_run(source) {
                vec![source.clone()]
            } else {
                let entries = std::fs::read_dir(source).into_iter().flatten().flatten();
                entries.map(|entry| entry.path()).filter(|path| is_run(path)).collect()
            };
            for path in paths {
                let Some(name) = name_of(&path) else { continue };
                if runs.iter().all(|run| run.name != name) {
                    runs.push(Run { name, path });
                }
            }
        }
        runs
    }

    /// Finds a run by its name. A name is that of a folder; it cannot lead out of the folders that are served.
    pub fn find(&self, name: &str) -> Result<Run, Problem> {
        let unknown = || Problem::not_found(format!("there is no run {name:?}; GET /api/runs lists all"));
        if !is_name(name) {
            return Err(unknown());
        }
        let path = self.sources.iter().find_map(|source| {
            if is_run(source) {
                return (name_of(source).as_deref() == Some(name)).then(|| source.clone());
            }
            Some(source.join(name)).filter(|path| is_run(path))
        });
        path.map(|path| Run { name: name.to_string(), path }).ok_or_else(unknown)
    }
}

/// Whether a path is a run folder.
fn is_run(path: &Path) -> bool {
    path.join("experiment.toml").is_file()
}

/// The name of a run in addresses; `None` if its folder has a name that is not served.
fn name_of(path: &Path) -> Option<String> {
    let path = if path.file_name().is_some() { path.to_path_buf() } else { path.canonicalize().ok()? };
    path.file_name()?.to_str().filter(|name| is_name(name)).map(ToString::to_string)
}

/// Whether a text can be the name of a run: that of one folder, not hidden, without control characters.
pub fn is_name(name: &str) -> bool {
    !name.starts_with('.') && check_name(name).is_ok()
}

impl Run {
    /// Returns what the run learns.
    pub fn kind(&self) -> Result<Kind, Problem> {
        let source = Source::read(&self.path.join("experiment.toml"));
        let task =
            source.and_then(|source| source.task()).map_err(|error| Problem::damaged(&self.name, error))?;
        Ok(match task.as_str() {
            "classifier" => Kind::Classifier,
            "forecaster" => Kind::Forecaster,
            _ => Kind::Automaton,
        })
    }

    /// Returns what a list shows of the run. Whatever is wrong with its files, it is described.
    pub fn describe(&self) -> Value {
        let mut about = Map::new();
        let folder = RunFolder::at(&self.path);
        about.insert("name".into(), self.name.clone().into());
        let mut error = None;
        match self.kind() {
            Ok(kind) => {
                about.insert("kind".into(), kind.name().into());
            }
            Err(problem) => error = Some(problem.detail()),
        }
        let summary = match folder.summary() {
            Ok(summary) => summary,
            Err(found) => {
                error = Some(found.to_string());
                None
            }
        };
        let is_in_use = summary.is_none() && RunFolder::is_in_use(&self.path);
        let state = match (&error, &summary) {
            (Some(_), _) => "damaged",
            (None, Some(_)) => "finished",
            (None, None) if is_in_use => "training",
            (None, None) => "interrupted",
        };
        about.insert("state".into(), state.into());
        about.insert("error".into(), error.into());
        about.insert("modified".into(), self.modified().into());
        let picture = PICTURES.iter().find(|name| self.path.join(name).is_file());
        about.insert("picture".into(), picture.copied().into());
        if let Some(summary) = &summary {
            about.extend(highlights(summary));
        } else if let Some(progress) = self.progress() {
            about.insert("progress".into(), brief(&progress));
        }
        Value::Object(about)
    }

    /// Returns everything that is known of the run.
    pub fn detail(&self) -> Value {
        let mut about = self.describe();
        let loaded = Loaded::read(&self.path.join("experiment.toml"));
        let folder = RunFolder::at(&self.path);
        about["title"] = loaded.as_ref().map_or(self.name.as_str(), |loaded| loaded.texts()[0]).into();
        about["about"] = loaded.as_ref().map_or("", |loaded| loaded.texts()[2]).into();
        about["settings"] = loaded.as_ref().map_or(Value::Null, Loaded::to_json);
        about["summary"] = folder.summary().ok().flatten().into();
        about["progress"] = self.progress().into();
        about["files"] = super::exports::files(self);
        about["minimized"] = super::exports::minimized(self).into();
        about
    }

    /// Returns the progress of a training, if there is one.
    pub fn progress(&self) -> Option<Value> {
        let path = self.path.join(live::FILE);
        if path.metadata().ok()?.len() > MAX_TEXT {
            return None;
        }
        serde_json::from_str(&files::read_text(&path).ok()?).ok()
    }

    /// Seconds from 1970 to the last change of the files that tell about the run.
    fn modified(&self) -> u64 {
        let changed = |name: &&str| self.path.join(name).metadata().and_then(|data| data.modified()).ok();
        let newest = ["experiment.toml", "summary.json", live::FILE].iter().filter_map(changed).max();
        newest.unwrap_or(SystemTime::UNIX_EPOCH).duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
    }
}

/// The entries of a summary that a list shows.
fn highlights(summary: &Value) -> Map<String, Value> {
    let mut shown = Map::new();
    for key in ["experiment", "success", "accuracy", "seconds", "model", "horizon", "parameters", "hard_loss"]
    {
        if !summary[key].is_null() {
            shown.insert(key.into(), summary[key].clone());
        }
    }
    let gates = [&summary["gates"]["used"], &summary["reachable_gates"], &summary["gates"]];
    if let Some(gates) = gates.into_iter().find(|gates| gates.is_u64()) {
        shown.insert("gates".into(), gates.clone());
    }
    if let Some(scores) = summary["scores"].as_array().filter(|scores| !scores.is_empty()) {
        shown.insert("mae".into(), scores[0]["mae"].clone());
        let naive = scores.iter().find(|score| score["name"] == "seasonal naive");
        shown.insert("naive_mae".into(), naive.map_or(Value::Null, |naive| naive["mae"].clone()));
    }
    shown
}

/// A progress with a small picture of its last curve: some of the losses.
fn brief(progress: &Value) -> Value {
    let seeds = progress["seeds"].as_array().map_or(&[][..], Vec::as_slice);
    let last = seeds.last().unwrap_or(&Value::Null);
    let points = last["curve"].as_array().map_or(&[][..], Vec::as_slice);
    let curve: Vec<&Value> =
        points.iter().step_by(points.len().div_ceil(MAX_POINTS).max(1)).map(|point| &point[1]).collect();
    json!({
        "updates": progress["updates"], "update": last["update"], "seed": last["seed"], "best": last["best"],
        "stage": last["stage"], "curve": curve,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_leave_the_folder() {
        let parent = tempfile::tempdir().unwrap();
        for folder in ["runs/good", "outside", "runs/.hidden"] {
            std::fs::create_dir_all(parent.path().join(folder)).unwrap();
            std::fs::write(parent.path().join(folder).join("experiment.toml"), "").unwrap();
        }
        let runs = Runs::new(vec![parent.path().join("runs")]);
        assert_eq!(runs.find("good").unwrap().path, parent.path().join("runs/good"));
        let absolute = parent.path().join("outside").display().to_string();
        for name in
            ["../outside", "good/../../outside", &absolute, ".", "..", "", ".hidden", "good\0", "go\nod", "x"]
        {
            assert!(runs.find(name).is_err(), "{name:?}");
        }
        assert_eq!(runs.all().len(), 1);
    }

    #[test]
    fn a_run_is_served_by_itself_and_the_first_of_two_with_the_same_name() {
        let parent = tempfile::tempdir().unwrap();
        for folder in ["a/one", "b/one", "b/two"] {
            std::fs::create_dir_all(parent.path().join(folder)).unwrap();
            std::fs::write(parent.path().join(folder).join("experiment.toml"), "").unwrap();
        }
        let runs = Runs::new(vec![parent.path().join("a/one"), parent.path().join("b")]);
        assert_eq!(runs.find("one").unwrap().path, parent.path().join("a/one"));
        assert_eq!(runs.all().len(), 2);
        assert_eq!(runs.folder(), parent.path().join("b"));
    }
}
