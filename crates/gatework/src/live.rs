//! `progress.json`: how far the training of a run has come, for those who watch its folder.
//!
//! A [`Recorder`] is an observer that passes everything on to another one, and replaces the file twice a second. So a training that
//! was started in any terminal can be watched, for example by `gatework serve`. The file is removed when training has ended;
//! one that is left belongs to a run that was interrupted. It is a convenience: if it cannot be written, training goes on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gatework_train::run_folder::RunFolder;
use gatework_train::trainer::{Attempt, CheckpointError, Finishing, Observer, Outcome};
use serde_json::{Value, json};

/// The name of the file in a run folder.
pub const FILE: &str = "progress.json";

/// The version of the file.
const VERSION: u64 = 1;

/// Time between two versions of the file.
const INTERVAL: Duration = Duration::from_millis(500);

/// The number of points of a curve in the file.
const MAX_POINTS: usize = 240;

/// The number of seeds in the file: the last ones.
const MAX_SEEDS: usize = 32;

/// Writes the progress of a training into its run folder.
pub struct Recorder<'a, O> {
    folder: &'a RunFolder,
    inner: &'a O,
    updates: u64,
    state: Mutex<State>,
}

struct State {
    begin: Instant,
    written: Instant,
    seeds: BTreeMap<u64, Seed>,
}

struct Seed {
    seen: Instant,
    value: Value,
}

impl<'a, O: Observer> Recorder<'a, O> {
    /// Records a training of at most `updates` updates a seed.
    pub fn new(folder: &'a RunFolder, inner: &'a O, updates: u64) -> Recorder<'a, O> {
        let now = Instant::now();
        let state = State { begin: now, written: now, seeds: BTreeMap::new() };
        Recorder { folder, inner, updates, state: Mutex::new(state) }
    }

    fn record(&self, attempt: &Attempt, finishing: Option<Finishing>, is_due: bool) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let is_fresh =
            state.seeds.get(&attempt.seed).is_some_and(|seed| now.duration_since(seed.seen) < INTERVAL);
        if is_fresh && !is_due {
            return;
        }
        state.seeds.insert(attempt.seed, Seed { seen: now, value: seed(attempt, finishing) });
        if state.seeds.len() > MAX_SEEDS {
            state.seeds.pop_first();
        }
        if now.duration_since(state.written) >= INTERVAL {
            state.written = now;
            let seeds: Vec<&Value> = state.seeds.values().map(|seed| &seed.value).collect();
            let seconds = state.begin.elapsed().as_secs_f64();
            let file =
                json!({ "version": VERSION, "updates": self.updates, "seconds": seconds, "seeds": seeds });
            // The training is worth more than a view of it.
            let _ = self.folder.write(FILE, format!("{file}\n").as_bytes());
        }
    }
}

impl<O> Drop for Recorder<'_, O> {
    fn drop(&mut self) {
        remove(self.folder.path());
    }
}

/// Removes the file from a run folder.
fn remove(run: &Path) {
    let path = run.join(FILE);
    if path.exists() {
        // If it stays, a summary beside it says that training has ended.
        let _ = std::fs::remove_file(path);
    }
}

impl<O: Observer> Observer for Recorder<'_, O> {
    fn updated(&self, attempt: &Attempt) {
        self.inner.updated(attempt);
        self.record(attempt, None, false);
    }

    fn finishing(&self, attempt: &Attempt, progress: Finishing) {
        self.inner.finishing(attempt, progress);
        self.record(attempt, Some(progress), false);
    }

    fn finished(&self, attempt: &Attempt) {
        self.inner.finished(attempt);
        self.record(attempt, None, true);
    }

    fn damaged(&self, error: &CheckpointError) {
        self.inner.damaged(error);
    }
}

/// What is known of a seed.
fn seed(attempt: &Attempt, finishing: Option<Finishing>) -> Value {
    let stage = finishing.map(|progress| {
        let Finishing { stage, hard, done, total } = progress;
        json!({ "name": stage, "hard": hard, "done": done, "total": total })
    });
    json!({
        "seed": attempt.seed,
        "update": attempt.update,
        "is_running": attempt.outcome == Outcome::Running,
        "is_success": attempt.outcome == Outcome::Succeeded,
        "best": attempt.best.as_ref().map(|best| best.hard),
        "stage": stage,
        "curve": curve(attempt),
    })
}

/// The losses at evenly spaced updates, the last one included: update, soft loss, last hard loss before it.
fn curve(attempt: &Attempt) -> Vec<(usize, f64, Option<f64>)> {
    let metrics = &attempt.metrics;
    let stride = metrics.len().div_ceil(MAX_POINTS).max(1);
    let mut hard = None;
    let mut points = Vec::with_capacity(metrics.len().min(MAX_POINTS) + 1);
    for (update, metric) in metrics.iter().enumerate() {
        hard = metric.hard.or(hard);
        if update % stride == 0 || update + 1 == metrics.len() {
            points.push((update, metric.soft, hard));
        }
    }
    points
}
