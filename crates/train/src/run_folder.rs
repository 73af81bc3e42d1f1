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
const CHECKPOINTS: &str = "checkpoint";
const MODEL: &str = "model.safetensors";
const SUMMARY: &str = "summary.json";

/// A file that is there while the first files of a run are written. It has the name of a temporary file.
const BEGINNING: &str = ".gatework-0000000000000000.part";

/// A summary that is not in its final place yet, because `experiment.toml` may not name the seed that was kept.
const NEXT_SUMMARY: &str = "summary.json.next";

/// The number of times that a lock is tried again before the folder counts as in use, and the time in between.
const LOOKS: usize = 5;
const LOOK: std::time::Duration = std::time::Duration::from_millis(4);

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
    /// Creates a run folder with `experiment.toml` and the files that it refers to, and locks it. A folder that is not
    /// [unused](Self::is_unused) is refused; with `replace`, a run in it is renamed to PATH.old, or the first free PATH.old-2,
    /// PATH.old-3, ...
    pub fn create(
        path: &Path,
        replace: bool,
        experiment: &str,
        others: &[(&str, &[u8])],
    ) -> Result<RunFolder, RunFolderError> {
        let replaced = make_room(path, replace)?;
        let begun = begin(path, experiment, others);
        if let (Err(_), Some(aside)) = (&begun, &replaced) {
            // Best effort: the first error is the one to report.
            let _ = fs::rename(aside, path);
        }
        Ok(RunFolder { path: path.to_path_buf(), replaced, _lock: begun? })
    }

    /// Opens and locks the folder of a run that is to be resumed, and removes temporary files of interrupted writes.
    pub fn resume(path: &Path) -> Result<RunFolder, RunFolderError> {
        let path = path.to_path_buf();
        let folder = RunFolder { _lock: lock(&path)?, path, replaced: None };
        if !folder.experiment().is_file() {
            return Err(RunFolderError::NothingToResume { path: folder.path });
        }
        files::make_folder(&folder.checkpoints())?;
        remove_abandoned(folder.path());
        Ok(folder)
    }

    /// Returns whether a new run may use a path: nothing is there, or an empty folder, or what a process that was killed
    /// before its run began has left.
    pub fn is_unused(path: &Path) -> bool {
        let Ok(entries) = fs::read_dir(path) else { return path.symlink_metadata().is_err() };
        let mut paths = entries.flatten().map(|entry| entry.path());
        let is_abandoned = path.join(BEGINNING).exists() && !path.join(EXPERIMENT).exists();
        is_abandoned || paths.all(|path| files::is_temporary(&path))
    }

    /// Returns whether a process trains the run in a folder, where the system has locks of folders. It is a look at one moment.
    pub fn is_in_use(path: &Path) -> bool {
        let Ok(folder) = File::open(path) else { return false };
        // Released at once, when the file is dropped; `lock` waits for that.
        matches!(folder.try_lock_shared(), Err(TryLockError::WouldBlock))
    }

    /// Returns a folder without locking it or checking its content.
    pub fn at(path: &Path) -> RunFolder {
        RunFolder { path: path.to_path_buf(), replaced: None, _lock: None }
    }

    /// Returns the first of runs/NAME, runs/NAME-2, ... that is [unused](Self::is_unused).
    pub fn unused_path(name: &str) -> PathBuf {
        numbered(name).find(|path| RunFolder::is_unused(path)).unwrap_or_default()
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
        self.path.join(CHECKPOINTS)
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

/// Removes temporary files of interrupted writes.
fn remove_abandoned(path: &Path) {
    files::remove_abandoned(path);
    files::remove_abandoned(&path.join(CHECKPOINTS));
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

/// Makes sure that a new run may use a path: refuses what is there, or renames it and returns its new path.
fn make_room(path: &Path, replace: bool) -> Result<Option<PathBuf>, RunFolderError> {
    if RunFolder::is_unused(path) {
        return Ok(None);
    }
    // The lock is held until the run has been renamed: what is seen under it stays true.
    let _lock = lock(path)?;
    // Another process may have been creating the folder at the first look.
    if RunFolder::is_unused(path) {
        return Ok(None);
    }
    if !path.join(EXPERIMENT).is_file() {
        return Err(RunFolderError::Foreign { path: path.to_path_buf() });
    }
    let aside = aside(path);
    if !replace {
        return Err(RunFolderError::Exists { path: path.to_path_buf(), aside });
    }
    remove_abandoned(path);
    rename(path, &aside)?;
    Ok(Some(aside))
}

/// Fills an unused folder, and returns its lock. If that fails, nothing is left of it.
fn begin(path: &Path, experiment: &str, others: &[(&str, &[u8])]) -> Result<Option<File>, RunFolderError> {
    let is_new = !path.exists();
    files::make_folder(path)?;
    let lock = lock(path)?;
    if !RunFolder::is_unused(path) {
        return Err(RunFolderError::Exists { path: path.to_path_buf(), aside: aside(path) });
    }
    let beginning = path.join(BEGINNING);
    let fill = || {
        files::write_atomic(&beginning, b"")?;
        for (name, content) in others.iter().chain(&[(EXPERIMENT, experiment.as_bytes())]) {
            files::write_atomic(&path.join(name), content)?;
        }
        files::remove_abandoned(path);
        Ok(())
    };
    if let Err(error) = fill() {
        // Best effort: the first error is the one to report.
        for name in others.iter().map(|(name, _)| *name).chain([EXPERIMENT, BEGINNING]) {
            let _ = fs::remove_file(path.join(name));
        }
        if is_new {
            let _ = fs::remove_dir(path);
        }
        return Err(RunFolderError::File(error));
    }
    Ok(lock)
}

/// runs/NAME, runs/NAME-2, runs/NAME-3, ...
fn numbered(name: &str) -> impl Iterator<Item = PathBuf> {
    (1..).map(move |n| Path::new(RUNS).join(if n == 1 { name.to_string() } else { format!("{name}-{n}") }))
}

/// Locks a folder for this process, where the system has locks of folders.
fn lock(path: &Path) -> Result<Option<File>, RunFolderError> {
    let Ok(folder) = File::open(path) else { return Ok(None) };
    let mut locked = folder.try_lock();
    // `is_in_use` holds the lock for some microseconds; a process that trains holds it for longer than this.
    for _ in 0..LOOKS {
        if !matches!(locked, Err(TryLockError::WouldBlock)) {
            break;
        }
        std::thread::sleep(LOOK);
        locked = folder.try_lock();
    }
    match locked {
        // Another process may have renamed the folder after it was opened.
        Ok(()) if !is_same(&folder, path) => Err(RunFolderError::InUse { path: path.to_path_buf() }),
        Ok(()) => Ok(Some(folder)),
        Err(TryLockError::WouldBlock) => Err(RunFolderError::InUse { path: path.to_path_buf() }),
        Err(TryLockError::Error(_)) => Ok(None),
    }
}

/// Whether an open folder is the one at a path.
#[cfg(unix)]
fn is_same(folder: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let inode = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    folder.metadata().map(inode).ok() == fs::metadata(path).map(inode).ok()
}

#[cfg(not(unix))]
fn is_same(_: &File, _: &Path) -> bool {
    true
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_in_use_while_a_process_trains_in_it() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        assert!(!RunFolder::is_in_use(&path));
        let folder = RunFolder::create(&path, false, "", &[]).unwrap();
        assert!(RunFolder::is_in_use(&path));
        drop(folder);
        assert!(!RunFolder::is_in_use(&path));
        // A look does not keep others out.
        drop(RunFolder::resume(&path).unwrap());
    }

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
    fn an_empty_folder_is_filled_in_place() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        fs::create_dir(&path).unwrap();
        #[cfg(unix)]
        let inode = || std::os::unix::fs::MetadataExt::ino(&fs::metadata(&path).unwrap());
        #[cfg(not(unix))]
        let inode = || 0;
        let before = inode();
        assert_eq!(names(run(parent.path()).path()), [EXPERIMENT]);
        assert_eq!(inode(), before);
    }

    #[test]
    fn what_a_killed_process_has_left_is_taken_over() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        // As far as it came: a folder, the file of the beginning, a part of a file, the files that the experiment refers to.
        let left =
            [BEGINNING, ".gatework-0123456789abcdef.part", "target.png", ".gatework-1123456789abcdef.part"];
        for count in 0..=left.len() {
            fs::create_dir(&path).unwrap();
            for name in &left[..count] {
                fs::write(path.join(name), b"part").unwrap();
            }
            assert!(RunFolder::is_unused(&path), "{count}");
            let folder = RunFolder::create(&path, false, "", &[("target.png", b"whole")]).unwrap();
            assert_eq!(names(folder.path()), [EXPERIMENT, "target.png"]);
            assert_eq!(fs::read(path.join("target.png")).unwrap(), b"whole");
            drop(folder);
            fs::remove_dir_all(&path).unwrap();
        }
        // A file of the user with the same name is not taken over.
        fs::create_dir(&path).unwrap();
        fs::write(path.join("target.png"), b"mine").unwrap();
        let error = RunFolder::create(&path, true, "", &[("target.png", b"whole")]).unwrap_err();
        assert!(matches!(error, RunFolderError::Foreign { .. }), "{error}");
    }

    #[test]
    fn a_failure_leaves_what_was_there() {
        let parent = tempfile::tempdir().unwrap();
        let path = run(parent.path()).path().to_path_buf();
        fs::write(path.join(EXPERIMENT), b"first").unwrap();
        // A name that leads into a folder that does not exist cannot be written.
        let broken = |path: &Path| RunFolder::create(path, true, "second", &[("none/target.png", b"")]);
        assert!(broken(&path).is_err());
        assert_eq!(fs::read(path.join(EXPERIMENT)).unwrap(), b"first");
        assert!(broken(&parent.path().join("new")).is_err());
        assert_eq!(names(parent.path()), ["run"]);
    }

    #[cfg(unix)]
    #[test]
    fn concurrent_runs_get_folders_of_their_own() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("run");
        let created = std::sync::atomic::AtomicUsize::new(0);
        for _ in 0..20 {
            std::thread::scope(|scope| {
                for content in ["first", "second", "third"] {
                    scope.spawn(|| match RunFolder::create(&path, false, content, &[]) {
                        Ok(folder) => {
                            created.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                            assert_eq!(fs::read(folder.experiment()).unwrap(), content.as_bytes());
                            // Held until the others have tried.
                            std::mem::forget(folder);
                        }
                        Err(RunFolderError::InUse { .. } | RunFolderError::Exists { .. }) => {}
                        Err(error) => panic!("{error}"),
                    });
                }
            });
            assert_eq!(names(&path), [EXPERIMENT]);
            assert_eq!(names(parent.path()), ["run"]);
            fs::remove_dir_all(&path).unwrap();
        }
        assert_eq!(created.into_inner(), 20);
    }

    #[cfg(unix)]
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
        // A lock on a folder that has been renamed is not one on the folder that is at the path now.
        let opened = File::open(writer.path()).unwrap();
        fs::rename(writer.path(), parent.path().join("aside")).unwrap();
        fs::create_dir(writer.path()).unwrap();
        assert!(!is_same(&opened, writer.path()));
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
