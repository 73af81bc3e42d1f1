//! Run folders: one folder per training run, with everything needed to inspect, resume or deploy it.
//!
//! | file | content |
//! |---|---|
//! | `experiment.toml` | the experiment with all settings, including the seed |
//! | `metrics.csv` | the losses of every update |
//! | `checkpoint/` | the state of each seed, to resume from |
//! | `model.safetensors` | the best model |
//! | `summary.json` | the result; written last, so a folder with a summary is complete |
//!
//! The learners add files of their own, such as a circuit or plots. A [`RunFolder`] that was created or resumed holds a lock,
//! so that two processes do not write to the same run.
//!
//! ```
//! use gatework_train::run_folder::RunFolder;
//!
//! let parent = tempfile::tempdir()?;
//! let path = parent.path().join("first");
//! let folder = RunFolder::create(&path, false, "name = \"first\"\n", &[])?;
//! folder.write_summary(&serde_json::json!({ "loss": 0.25 }))?;
//! assert_eq!(folder.summary()?.unwrap()["loss"], 0.25);
//!
//! // A run is not overwritten unless it is replaced on purpose: then it is renamed to `first.old`.
//! drop(folder);
//! assert!(RunFolder::create(&path, false, "", &[]).is_err());
//! RunFolder::create(&path, true, "name = \"second\"\n", &[])?;
//! assert!(parent.path().join("first.old").is_dir());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::files::{self, FileError};

/// The parent folder of runs without an explicit path.
pub const RUNS: &str = "runs";

/// The version of the layout of run folders that this program writes, and the newest that it reads.
pub const VERSION: u64 = 1;

const EXPERIMENT: &str = "experiment.toml";
const MODEL: &str = "model.safetensors";
const SUMMARY: &str = "summary.json";

/// A summary that is not in its final place yet, because `experiment.toml` may not name the seed that was kept.
const NEXT_SUMMARY: &str = "summary.json.next";

/// A run folder that cannot be used as requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunFolderError {
    /// A file or folder cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file or folder cannot be renamed.
    #[error("cannot rename {} to {}: {error}", from.display(), to.display())]
    Rename {
        /// The current path.
        from: PathBuf,
        /// The intended path.
        to: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// A summary is not valid JSON.
    #[error("{}: {error}", path.display())]
    Summary {
        /// The file.
        path: PathBuf,
        /// The error of the JSON parser.
        error: serde_json::Error,
    },
    /// The run was written by a newer version of Gatework.
    #[error("{}: {newer}", path.display())]
    Newer {
        /// The summary.
        path: PathBuf,
        /// Its version.
        newer: files::NewerVersion,
    },
    /// Training was interrupted. A checkpoint has been written.
    #[error("training of {} was interrupted; a checkpoint has been written", path.display())]
    Interrupted {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds a run already.
    #[error("{} exists", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
        /// The path that the run would be renamed to if it were replaced.
        aside: PathBuf,
    },
    /// The folder holds something other than a run.
    #[error("{} exists and is not a run folder", path.display())]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// There is no run to resume.
    #[error("{} is not a run folder: there is nothing to resume", path.display())]
    NothingToResume {
        /// The folder.
        path: PathBuf,
    },
    /// There is no run to open.
    #[error("{} is not a run folder: {EXPERIMENT} is missing", path.display())]
    NotARun {
        /// The folder.
        path: PathBuf,
    },
    /// Another process writes to the folder.
    #[error("{} is in use by another process", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The run has no model yet.
    #[error("{} has no {MODEL}: the run is not finished", path.display())]
    Unfinished {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds a run of another experiment, or of other settings.
    #[error("{} belongs to another experiment ({name}): {difference}", path.display())]
    OtherExperiment {
        /// The folder.
        path: PathBuf,
        /// The name of the experiment in the folder.
        name: String,
        /// What differs.
        difference: String,
    },
    /// The model does not have the shape that the experiment describes.
    #[error("{} belongs to another experiment than {}", path.join(MODEL).display(), path.join(EXPERIMENT).display())]
    OtherModel {
        /// The folder.
        path: PathBuf,
    },
    /// The checkpoints of the run were trained on other data.
    #[error("the data have changed since {} began", path.display())]
    OtherData {
        /// The folder.
        path: PathBuf,
    },
}

impl RunFolderError {
    /// Whether the request was wrong, as opposed to a failure while it was carried out.
    pub fn is_usage(&self) -> bool {
        !matches!(
            self,
            Self::File(_)
                | Self::Rename { .. }
                | Self::Summary { .. }
                | Self::Newer { .. }
                | Self::Interrupted { .. }
        )
    }
}

/// The folder of a run.
#[derive(Debug)]
pub struct RunFolder {
    path: PathBuf,
    replaced: Option<PathBuf>,
    /// Released when the folder is dropped or the process ends.
    _lock: Option<File>,
}

impl RunFolder {
    /// Creates a run folder with `experiment.toml` and the files that it refers to, and locks it. The folder appears with all
    /// of these files at once: it is filled under a temporary name and renamed. A folder that is not empty is refused; with
    /// `replace`, a run in it is renamed to PATH.old, or the first free PATH.old-2, PATH.old-3, ...
    pub fn create(
        path: &Path,
        replace: bool,
        experiment: &str,
        others: &[(&str, &[u8])],
    ) -> Result<RunFolder, RunFolderError> {
        let parent = files::folder_of(path);
        files::make_folder(parent)?;
        files::remove_abandoned(parent);
        // Held until the run has been renamed: what is seen under the lock stays true.
        let occupant = if is_occupied(path) { lock(path)? } else { None };
        if is_occupied(path) {
            if !path.join(EXPERIMENT).is_file() {
                return Err(RunFolderError::Foreign { path: path.to_path_buf() });
            }
            if !replace {
                return Err(RunFolderError::Exists { path: path.to_path_buf(), aside: aside(path) });
            }
        }
        let staged = Staged::new(parent, experiment, others)?;
        let mut replaced = None;
        if is_occupied(path) {
            let aside = aside(path);
            rename(path, &aside)?;
            replaced = Some(aside);
        }
        drop(occupant);
        let lock = staged.publish(path)?;
        Ok(RunFolder { path: path.to_path_buf(), replaced, _lock: lock })
    }

    /// Opens and locks the folder of a run that is to be resumed, and removes temporary files of interrupted writes.
    pub fn resume(path: &Path) -> Result<RunFolder, RunFolderError> {
        let path = path.to_path_buf();
        let folder = RunFolder { _lock: lock(&path)?, path, replaced: None };
        if !folder.experiment().is_file() {
            return Err(RunFolderError::NothingToResume { path: folder.path });
        }
        files::make_folder(&folder.checkpoints())?;
        files::remove_abandoned(folder.path());
        files::remove_abandoned(&folder.checkpoints());
        Ok(folder)
    }

    /// Returns whether nothing is at a path, or an empty folder.
    pub fn is_unused(path: &Path) -> bool {
        !is_occupied(path)
    }

    /// Returns a folder without locking it or checking its content.
    pub fn at(path: &Path) -> RunFolder {
        RunFolder { path: path.to_path_buf(), replaced: None, _lock: None }
    }

    /// Returns the first of runs/NAME, runs/NAME-2, ... that does not exist.
    pub fn unused_path(name: &str) -> PathBuf {
        numbered(name).find(|path| !path.exists()).unwrap_or_default()
    }

    /// Returns the last of runs/NAME, runs/NAME-2, ... that exists, or the first if none does.
    pub fn newest_path(name: &str) -> PathBuf {
        let existing = numbered(name).take_while(|path| path.exists()).last();
        existing.unwrap_or_else(|| numbered(name).next().unwrap_or_default())
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path that the previous run was renamed to, if this one replaces it.
    pub fn replaced(&self) -> Option<&Path> {
        self.replaced.as_deref()
    }

    /// Returns the path of `experiment.toml`.
    pub fn experiment(&self) -> PathBuf {
        self.path.join(EXPERIMENT)
    }

    /// Returns the path of `model.safetensors`; an error if the run has none yet.
    pub fn model(&self) -> Result<PathBuf, RunFolderError> {
        let model = self.path.join(MODEL);
        if model.is_file() { Ok(model) } else { Err(RunFolderError::Unfinished { path: self.path.clone() }) }
    }

    /// Returns the folder of the checkpoints.
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoint")
    }

    /// Writes a file atomically.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), FileError> {
        files::write_atomic(&self.path.join(name), content)
    }

    /// Returns the summary of a finished run, or `None` if the run is not finished.
    pub fn summary(&self) -> Result<Option<Value>, RunFolderError> {
        let path = self.path.join(SUMMARY);
        if path.is_file() { read_summary(&path).map(Some) } else { Ok(None) }
    }

    /// Writes the summary, which marks the run as finished.
    pub fn write_summary(&self, summary: &Value) -> Result<(), RunFolderError> {
        Ok(self.write(SUMMARY, format!("{summary:#}\n").as_bytes())?)
    }

    /// Writes a summary that takes effect with [`commit_summary`](Self::commit_summary).
    pub fn stage_summary(&self, summary: &Value) -> Result<(), RunFolderError> {
        Ok(self.write(NEXT_SUMMARY, format!("{summary:#}\n").as_bytes())?)
    }

    /// Returns the summary that was staged but not committed, if there is one.
    pub fn staged_summary(&self) -> Result<Option<Value>, RunFolderError> {
        let path = self.path.join(NEXT_SUMMARY);
        if path.is_file() { read_summary(&path).map(Some) } else { Ok(None) }
    }

    /// Moves the staged summary into its final place, which marks the run as finished.
    pub fn commit_summary(&self) -> Result<(), RunFolderError> {
        rename(&self.path.join(NEXT_SUMMARY), &self.path.join(SUMMARY))
    }
}

fn read_summary(path: &Path) -> Result<Value, RunFolderError> {
    let failed = |error| RunFolderError::Summary { path: path.to_path_buf(), error };
    let summary: Value = serde_json::from_str(&files::read_text(path)?).map_err(failed)?;
    files::check_version(summary["version"].as_u64(), VERSION)
        .map_err(|newer| RunFolderError::Newer { path: path.to_path_buf(), newer })?;
    Ok(summary)
}

fn rename(from: &Path, to: &Path) -> Result<(), RunFolderError> {
    let failed = |error| RunFolderError::Rename { from: from.to_path_buf(), to: to.to_path_buf(), error };
    fs::rename(from, to).and_then(|()| files::sync_folder(files::folder_of(to))).map_err(failed)
}

/// A run folder under a temporary name. It is removed when it is dropped before it is published.
struct Staged {
    path: PathBuf,
    lock: Option<File>,
}

impl Staged {
    fn new(parent: &Path, experiment: &str, others: &[(&str, &[u8])]) -> Result<Staged, RunFolderError> {
        let path = files::temporary_path(parent);
        let failed = |error| FileError { action: "make the folder", path: path.clone(), error };
        fs::create_dir(&path).map_err(failed)?;
        let mut staged = Staged { path, lock: None };
        staged.lock = lock(&staged.path)?;
        for (name, content) in others.iter().chain(&[(EXPERIMENT, experiment.as_bytes())]) {
            files::write_atomic(&staged.path.join(name), content)?;
        }
        Ok(staged)
    }

    /// Renames the folder, and returns its lock. A folder that has appeared at the path in the meantime is not replaced unless
    /// it is empty.
    fn publish(mut self, path: &Path) -> Result<Option<File>, RunFolderError> {
        let to = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        // Not every system replaces an empty folder.
        let _ = fs::remove_dir(&to);
        let failed =
            |error| RunFolderError::Rename { from: self.path.clone(), to: path.to_path_buf(), error };
        match fs::rename(&self.path, &to) {
            Err(_) if is_occupied(path) => {
                return Err(RunFolderError::Exists { path: path.to_path_buf(), aside: aside(path) });
            }
            renamed => renamed.map_err(failed)?,
        }
        files::sync_folder(files::folder_of(&to)).map_err(failed)?;
        Ok(self.lock.take())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // Has no effect on a folder that was renamed.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// runs/NAME, runs/NAME-2, runs/NAME-3, ...
fn numbered(name: &str) -> impl Iterator<Item = PathBuf> {
    (1..).map(move |n| Path::new(RUNS).join(if n == 1 { name.to_string() } else { format!("{name}-{n}") }))
}

/// Locks a folder for this process, where the file system has locks.
fn lock(path: &Path) -> Result<Option<File>, RunFolderError> {
    let Ok(folder) = File::open(path) else { return Ok(None) };
    match folder.try_lock() {
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Err(RunFolderError::InUse { path: path.to_path_buf() }),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// The first of PATH.old, PATH.old-2, ... that is free. A dangling link counts as taken.
fn aside(path: &Path) -> PathBuf {
    let mut numbered = (1u64..).map(|n| {
        let mut name = path.file_name().unwrap_or_default().to_os_string();
        name.push(if n == 1 { ".old".to_string() } else { format!(".old-{n}") });
        path.with_file_name(name)
    });
    numbered.find(|aside| aside.symlink_metadata().is_err()).unwrap_or_default()
}

/// True for a file, and for a folder that is not empty.
fn is_occupied(path: &Path) -> bool {
    match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_some(),
        Err(_) => path.exists(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(parent: &Path) -> RunFolder {
        RunFolder::create(&parent.join("run"), false, "", &[]).unwrap()
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_run_is_renamed_when_it_is_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let path = run(parent.path()).path().to_path_buf();
        let error = RunFolder::create(&path, false, "", &[]).unwrap_err();
        assert!(matches!(&error, RunFolderError::Exists { aside, .. } if aside.ends_with("run.old")));
        assert!(error.is_usage());
        drop(RunFolder::create(&path, true, "second", &[]).unwrap());
        drop(RunFolder::create(&path, true, "third", &[]).unwrap());
        assert_eq!(fs::read(parent.path().join("run.old-2").join(EXPERIMENT)).unwrap(), b"second");
        assert_eq!(names(parent.path()), ["run", "run.old", "run.old-2"]);
    }

    #[test]
    fn a_folder_with_other_content_is_never_replaced() {
        let parent = tempfile::tempdir().unwrap();
        fs::write(parent.path().join("letter.txt"), b"dear").unwrap();
        let error = RunFolder::create(parent.path(), true, "", &[]).unwrap_err();
        assert!(matches!(error, RunFolderError::Foreign { .. }), "{error}");
        let error = RunFolder::resume(parent.path()).unwrap_err();
        assert!(matches!(error, RunFolderError::NothingToResume { .. }), "{error}");
        let error = RunFolder::resume(&parent.path().join("nowhere")).unwrap_err();
        assert!(matches!(error, RunFolderError::NothingToResume { .. }), "{error}");
    }

    #[test]
    fn an_empty_folder_is_used() {
        let parent = tempfile::tempdir().unwrap();
        fs::create_dir(parent.path().join("run")).unwrap();
        assert_eq!(names(run(parent.path()).path()), [EXPERIMENT]);
    }

    #[test]
    fn a_folder_that_appears_while_another_is_filled_is_not_replaced() {
        let parent = tempfile::tempdir().unwrap();
        let staged = Staged::new(parent.path(), "late", &[]).unwrap();
        let first = run(parent.path());
        let error = staged.publish(first.path()).unwrap_err();
        assert!(matches!(error, RunFolderError::Exists { .. }), "{error}");
        assert_eq!(fs::read(first.experiment()).unwrap(), b"");
        assert_eq!(names(parent.path()), ["run"]);
    }

    #[test]
    fn a_death_before_the_folder_is_complete_leaves_nothing_in_the_way() {
        let parent = tempfile::tempdir().unwrap();
        let mut killed = Staged::new(parent.path(), "", &[("target.png", b"")]).unwrap();
        // The locks of a process end with it.
        drop(killed.lock.take());
        std::mem::forget(killed);
        assert_eq!(names(parent.path()).len(), 1);
        drop(run(parent.path()));
        assert_eq!(names(parent.path()), ["run"]);
    }

    #[test]
    fn a_run_folder_is_locked_before_it_is_looked_at() {
        let parent = tempfile::tempdir().unwrap();
        let writer = run(parent.path());
        for result in [
            RunFolder::create(writer.path(), true, "", &[]),
            RunFolder::create(writer.path(), false, "", &[]),
            RunFolder::resume(writer.path()),
        ] {
            assert!(matches!(result, Err(RunFolderError::InUse { .. })));
        }
    }

    #[test]
    fn a_staged_summary_takes_effect_when_it_is_committed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = run(parent.path());
        let summary = serde_json::json!({ "loss": 0.5, "version": VERSION });
        folder.stage_summary(&summary).unwrap();
        assert_eq!(folder.summary().unwrap(), None);
        assert_eq!(folder.staged_summary().unwrap().as_ref(), Some(&summary));
        folder.commit_summary().unwrap();
        assert_eq!((folder.summary().unwrap(), folder.staged_summary().unwrap()), (Some(summary), None));
    }

    #[test]
    fn a_summary_of_a_newer_version_is_refused_and_one_without_a_version_is_read() {
        let parent = tempfile::tempdir().unwrap();
        let folder = run(parent.path());
        folder.write_summary(&serde_json::json!({ "loss": 0.5 })).unwrap();
        assert!(folder.summary().unwrap().is_some());
        folder.write_summary(&serde_json::json!({ "version": VERSION + 1 })).unwrap();
        let error = folder.summary().unwrap_err();
        assert!(error.to_string().contains("newer version of Gatework (format 2"), "{error}");
        assert!(!error.is_usage());
    }
}
