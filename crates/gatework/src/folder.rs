//! The run folder: one folder a run, with everything needed to look at it, resume it or deploy it.
//!
//! | file | what it is |
//! |---|---|
//! | `experiment.toml` | exactly what ran, with the seed |
//! | `target.txt`, `target.png` | the picture that it refers to |
//! | `metrics.csv` | losses of every update, then those of the search, its moves counted on from the updates |
//! | `checkpoint/seed-N.safetensors` | where each seed stands |
//! | `checkpoint/data.txt` | which data a forecaster has seen |
//! | `model.safetensors` | wires and logits of the best model |
//! | `circuit.json` | its hard circuit |
//! | `loss.svg`, `gates.svg`, `rollout.gif`, `forecast.svg` | pictures |
//! | `summary.json` | what came out; written last |

use std::fmt::{Display, Write as _};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use gatework_gates::automata::experiment::{AutomatonExperiment, Experiment};
use gatework_gates::automata::states::TargetSpec;
use gatework_train::files;
use gatework_train::schedule::LearningRate;
use gatework_train::trainer::Attempt;

use crate::usage::Usage;

/// A run folder.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    /// Keeps others from writing to the folder as long as it is open.
    _lock: Option<File>,
}

/// A summary that is not yet in its place, because the experiment may not name its seed yet.
const NEXT_SUMMARY: &str = "summary.json.next";

/// An argument as a shell reads it.
pub fn quoted(argument: impl Display) -> String {
    let argument = argument.to_string();
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+=:,@%".contains(c);
    if argument.chars().all(is_plain) { argument } else { format!("'{}'", argument.replace('\'', "'\\''")) }
}

/// How this program is called again: as it was called now, for it may not be where the shell looks.
pub fn program() -> String {
    std::env::args_os().next().map_or("gatework".into(), |name| quoted(name.to_string_lossy()))
}

/// Where runs go unless `--out` says otherwise.
pub const RUNS: &str = "runs";

impl RunFolder {
    /// Makes a new run folder. A folder that holds something is refused; with `force`, a run is set aside.
    pub fn create(out: Option<&Path>, name: &str, force: bool) -> anyhow::Result<RunFolder> {
        let path = match out {
            Some(path) => path.to_path_buf(),
            None if force => newest(name),
            None => numbered(name).find(|path| !path.exists()).unwrap_or_default(),
        };
        if is_in_use(&path) {
            let there = path.display();
            if !path.join("experiment.toml").is_file() {
                let message = format!("{there} exists and is no run folder; --out names another one");
                return Err(Usage(message).into());
            }
            if !force {
                let message = format!(
                    "{there} exists; --resume goes on with it, --force sets it aside as {}, --out names another folder",
                    aside(&path).display()
                );
                return Err(Usage(message).into());
            }
            drop(lock(&path)?);
            set_aside(&path)?;
        }
        files::make_folder(&path)?;
        Ok(RunFolder { _lock: lock(&path)?, path })
    }

    /// A folder that is known to hold a run, to be looked at.
    pub fn at(path: &Path) -> RunFolder {
        RunFolder { path: path.to_path_buf(), _lock: None }
    }

    /// Finds the folder to go on with: `out`, or the newest of an experiment.
    pub fn resume(out: Option<&Path>, name: &str) -> anyhow::Result<RunFolder> {
        let path = match out {
            Some(path) => path.to_path_buf(),
            None => newest(name),
        };
        if !path.join("experiment.toml").is_file() {
            return Err(Usage(format!("{} is no run folder; nothing to resume", path.display())).into());
        }
        let folder = RunFolder { _lock: lock(&path)?, path };
        files::make_folder(&folder.checkpoints())?;
        files::remove_abandoned(folder.path());
        files::remove_abandoned(&folder.checkpoints());
        Ok(folder)
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files of a run of a forecaster that are there.
    pub fn files(&self) -> Vec<PathBuf> {
        let names = [
            "model.safetensors",
            "experiment.toml",
            "metrics.csv",
            "summary.json",
            "forecast.svg",
            "loss.svg",
        ];
        let checkpoints = std::fs::read_dir(self.checkpoints()).into_iter().flatten().flatten();
        let files = names.iter().map(|name| self.path.join(name)).chain(checkpoints.map(|file| file.path()));
        files.filter(|path| path.exists()).collect()
    }

    /// The command that goes on with this run. The folder's own copy of the experiment has the settings of the run.
    pub fn resume_command(&self) -> String {
        let (path, experiment) = (&self.path, self.path.join("experiment.toml"));
        let (program, experiment) = (program(), quoted(experiment.display()));
        format!("{program} train {experiment} --resume --out {}", quoted(path.display()))
    }

    /// Where the checkpoints are.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// What ran in it.
    pub fn experiment(&self) -> anyhow::Result<AutomatonExperiment> {
        Ok(AutomatonExperiment::read(&self.path.join("experiment.toml"))?)
    }

    /// What came out, if it can be read.
    pub fn summary_if_whole(&self) -> Option<serde_json::Value> {
        self.summary().ok().flatten()
    }

    /// What came out, if the run is finished.
    pub fn summary(&self) -> anyhow::Result<Option<serde_json::Value>> {
        let path = self.path.join("summary.json");
        if path.is_file() { read_json(&path).map(Some) } else { Ok(None) }
    }

    /// Writes a file, whole or not at all.
    pub fn write(&self, name: &str, content: &[u8]) -> anyhow::Result<()> {
        Ok(files::write_whole(&self.path.join(name), content)?)
    }

    /// Writes the experiment. A picture that it refers to comes along, so that the folder stands alone.
    pub fn write_experiment(&self, experiment: &Experiment, from: &Path) -> anyhow::Result<Experiment> {
        let mut experiment = experiment.clone();
        let is_text = matches!(experiment.target, TargetSpec::Text { .. });
        if let TargetSpec::Text { file } | TargetSpec::Png { file } = &mut experiment.target {
            let picture = files::read(&from.join(&*file))?;
            *file = if is_text { "target.txt" } else { "target.png" }.into();
            self.write(file, &picture)?;
        }
        self.write("experiment.toml", experiment.to_toml().as_bytes())?;
        files::make_folder(&self.checkpoints())?;
        Ok(experiment)
    }

    /// Ends a run: the experiment names the seed that was kept, and the summary is there. A kill in the midst of it is
    /// made good by [`complete`](Self::complete).
    pub fn finish(&self, experiment: &Experiment, summary: &serde_json::Value) -> anyhow::Result<()> {
        self.write(NEXT_SUMMARY, format!("{summary:#}\n").as_bytes())?;
        self.complete(experiment)
    }

    /// Does what is left of the end of a run, if it has come to that.
    pub fn complete(&self, experiment: &Experiment) -> anyhow::Result<()> {
        let next = self.path.join(NEXT_SUMMARY);
        if !next.is_file() {
            return Ok(());
        }
        let summary = read_json(&next)?;
        let what_ran = Experiment { seed: summary["seed"].as_u64(), ..experiment.clone() };
        self.write("experiment.toml", what_ran.to_toml().as_bytes())?;
        let failed = || format!("cannot rename {}", next.display());
        std::fs::rename(&next, self.path.join("summary.json")).with_context(failed)
    }

    /// Writes the losses of all updates of all seeds.
    pub fn write_metrics(
        &self,
        attempts: &[Attempt],
        rate: &LearningRate,
        updates: u64,
    ) -> anyhow::Result<()> {
        let mut text = String::from("seed,update,learning_rate,soft_loss,hard_loss\n");
        for attempt in attempts {
            for (update, metric) in attempt.metrics.iter().enumerate() {
                let rate = rate.at(update as u64, updates);
                // Empty where it was not looked at.
                let hard = metric.hard.map_or_else(String::new, |hard| hard.to_string());
                let _ = writeln!(text, "{},{update},{rate},{},{hard}", attempt.seed, metric.soft);
            }
            // A search has moves in the place of updates, and the hard loss alone.
            for (moves, hard) in &attempt.trace {
                let _ = writeln!(text, "{},{},,,{hard}", attempt.seed, attempt.update + moves);
            }
        }
        self.write("metrics.csv", text.as_bytes())
    }
}

fn read_json(path: &Path) -> anyhow::Result<serde_json::Value> {
    serde_json::from_str(&files::read_text(path)?).with_context(|| format!("{}", path.display()))
}

/// runs/NAME, runs/NAME-2, runs/NAME-3, ...
fn numbered(name: &str) -> impl Iterator<Item = PathBuf> {
    let safe: String =
        name.chars().map(|c| if c.is_alphanumeric() || "-_.".contains(c) { c } else { '-' }).collect();
    (1..).map(move |n| Path::new(RUNS).join(if n == 1 { safe.clone() } else { format!("{safe}-{n}") }))
}

/// The last of the numbered folders that is there, or else the first.
fn newest(name: &str) -> PathBuf {
    let there = numbered(name).take_while(|path| path.exists()).last();
    there.unwrap_or_else(|| numbered(name).next().unwrap_or_default())
}

/// A lock on a folder that goes with the process, where the system has such locks. An error if another process has it.
fn lock(path: &Path) -> anyhow::Result<Option<File>> {
    let Ok(folder) = File::open(path) else { return Ok(None) };
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => {
            Err(Usage(format!("{} is in use by another process", path.display())).into())
        }
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// DIR.old, DIR.old-2, DIR.old-3, ...
fn asides(path: &Path) -> impl Iterator<Item = PathBuf> {
    (1u64..).map(move |n| {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(if n == 1 { ".old".to_string() } else { format!(".old-{n}") });
        path.with_file_name(name)
    })
}

/// Where a run is set aside: the first of these names that is free. A link that leads nowhere takes a name too.
fn aside(path: &Path) -> PathBuf {
    asides(path).find(|aside| aside.symlink_metadata().is_err()).unwrap_or_default()
}

/// Renames a run folder, beside those that were set aside before.
fn set_aside(path: &Path) -> anyhow::Result<()> {
    let aside = aside(path);
    let failed = || format!("cannot set {} aside as {}", path.display(), aside.display());
    std::fs::rename(path, &aside).with_context(failed)?;
    say!("The run that was in {} is in {} now", path.display(), aside.display());
    Ok(())
}

/// True for a file, and for a folder that is not empty.
fn is_in_use(path: &Path) -> bool {
    match std::fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => path.exists(),
    }
}
