//! Seeds and restarts: attempts one after another, or several side by side.
//!
//! An attempt that cannot succeed any more makes way for the next seed, if there is one.
//!
//! Which attempt wins does not depend on the number of threads: a seed that succeeds stops those behind it,
//! and waits for those before it.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::attempt::{Attempt, Outcome, Settings};
use super::{Task, TaskError, TrainError};

/// How to run attempts.
#[derive(Clone, Debug)]
pub struct Options {
    /// How each trains.
    pub settings: Settings,
    /// The seeds, in the order in which they are tried.
    pub seeds: Vec<u64>,
    /// Leave the seeds behind the first success alone.
    pub until_success: bool,
    /// Attempts side by side.
    pub side_by_side: usize,
    /// Threads of each.
    pub threads_each: usize,
    /// Folder of the checkpoints; attempts found there go on. Without it, none are written.
    pub checkpoints: Option<PathBuf>,
    /// Time between checkpoints.
    pub interval: Duration,
}

impl Options {
    /// The checkpoint of a seed.
    pub fn checkpoint(folder: &Path, seed: u64) -> PathBuf {
        folder.join(format!("seed-{seed}.safetensors"))
    }
}

/// Is told how attempts go; from several threads, if several run side by side.
pub trait Observer: Sync {
    /// After every update, and once when an attempt is taken up.
    fn updated(&self, _attempt: &Attempt) {}

    /// While a task finishes what training left, with the hard loss now.
    fn finishing(&self, _attempt: &Attempt, _hard: f64) {}

    /// When an attempt has ended, with success or without.
    fn finished(&self, _attempt: &Attempt) {}
}

/// An observer that looks away.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Observer for Quiet {}

/// Makes attempts until one succeeds, all seeds are used, or `stop` is set. Returns those that were begun, in
/// the order of their seeds; one that was stopped is still [`Outcome::Running`] and has a checkpoint.
pub fn run<T: Task>(
    options: &Options,
    make: impl Fn(u64) -> Result<T, TaskError> + Sync,
    observer: &impl Observer,
    stop: &AtomicBool,
) -> Result<Vec<Attempt>, TrainError> {
    let next = AtomicUsize::new(0);
    let first_success = AtomicUsize::new(usize::MAX);
    let failed = AtomicBool::new(false);
    let results: Vec<Mutex<Option<Result<Attempt, TrainError>>>> =
        options.seeds.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::SeqCst);
            let pointless = || {
                let beaten = options.until_success && first_success.load(Ordering::SeqCst) < index;
                beaten || stop.load(Ordering::SeqCst) || failed.load(Ordering::SeqCst)
            };
            if index >= options.seeds.len() || pointless() {
                return;
            }
            let another = options.until_success && index + 1 < options.seeds.len();
            let result = attempt(options, options.seeds[index], another, &make, observer, &pointless);
            match &result {
                Ok(attempt) if attempt.outcome == Outcome::Succeeded => {
                    first_success.fetch_min(index, Ordering::SeqCst);
                }
                Ok(_) => {}
                Err(_) => failed.store(true, Ordering::SeqCst),
            }
            *results[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
        }
    };
    let pools: Vec<rayon::ThreadPool> = (0..options.side_by_side.clamp(1, options.seeds.len().max(1)))
        .map(|_| rayon::ThreadPoolBuilder::new().num_threads(options.threads_each.max(1)).build())
        .collect::<Result<_, _>>()
        .map_err(|error| TrainError::Threads(error.to_string()))?;
    std::thread::scope(|scope| {
        for pool in &pools {
            scope.spawn(|| pool.install(work));
        }
    });
    let mut attempts = Vec::new();
    for result in results {
        if let Some(result) = result.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
            attempts.push(result?);
        }
    }
    Ok(attempts)
}

/// Trains one seed to its end, or until it is pointless; with another seed to follow, until it is hopeless.
fn attempt<T: Task>(
    options: &Options,
    seed: u64,
    another: bool,
    make: &impl Fn(u64) -> Result<T, TaskError>,
    observer: &impl Observer,
    pointless: &impl Fn() -> bool,
) -> Result<Attempt, TrainError> {
    let mut task = make(seed).map_err(|source| TrainError::Task { seed, source })?;
    let path = options.checkpoints.as_ref().map(|folder| Options::checkpoint(folder, seed));
    let mut attempt = match &path {
        Some(path) if path.exists() => Attempt::load(path, seed, &options.settings, &mut task)?,
        _ => Attempt::new(seed, &options.settings, task.params().len()),
    };
    observer.updated(&attempt);
    let before = attempt.seconds;
    let (begin, mut saved) = (Instant::now(), Instant::now());
    while attempt.outcome == Outcome::Running && !pointless() {
        if attempt.update >= options.settings.updates {
            // Stopped between its last update and its end.
            attempt.outcome = Outcome::Exhausted;
            break;
        }
        attempt.advance(&mut task, &options.settings)?;
        if another && !task.finishes() && attempt.is_hopeless(&options.settings) {
            attempt.outcome = Outcome::Exhausted;
        }
        attempt.seconds = before + begin.elapsed().as_secs_f64();
        observer.updated(&attempt);
        if let Some(path) = path.as_ref().filter(|_| saved.elapsed() >= options.interval) {
            attempt.save(&task, path)?;
            saved = Instant::now();
        }
    }
    if attempt.outcome == Outcome::Exhausted
        && let Some(best) = attempt.best.as_ref().filter(|best| best.finished.is_none() && attempt.moves == 0)
    {
        let stop = |hard: f64| {
            observer.finishing(&attempt, hard);
            pointless()
        };
        let finished =
            task.finish(&best.values, &stop).map_err(|source| TrainError::Task { seed, source })?;
        match finished {
            Some(finished) => attempt.finish(finished),
            None if pointless() => attempt.outcome = Outcome::Running,
            None => {}
        }
        attempt.seconds = before + begin.elapsed().as_secs_f64();
    }
    if let Some(path) = &path {
        attempt.save(&task, path)?;
    }
    if attempt.outcome != Outcome::Running {
        observer.finished(&attempt);
    }
    Ok(attempt)
}

#[cfg(test)]
mod tests {
    use super::super::attempt::tests::{Threes, settings};
    use super::*;

    fn options(seeds: Vec<u64>) -> Options {
        Options {
            settings: Settings { updates: 40, ..settings() },
            seeds,
            until_success: true,
            side_by_side: 1,
            threads_each: 1,
            checkpoints: None,
            interval: Duration::ZERO,
        }
    }

    // Seeds from 60 on start too far away to arrive within 40 updates.
    fn outcomes(attempts: &[Attempt]) -> Vec<(u64, Outcome)> {
        attempts.iter().map(|a| (a.seed, a.outcome)).collect()
    }

    #[test]
    fn seeds_are_tried_until_one_succeeds_whatever_the_number_of_threads() {
        for side_by_side in 1..4 {
            let options = Options { side_by_side, ..options(vec![90, 80, 1, 70, 2]) };
            let attempts =
                run(&options, |seed| Ok(Threes::new(seed)), &Quiet, &AtomicBool::new(false)).unwrap();
            let expected = [(90, Outcome::Exhausted), (80, Outcome::Exhausted), (1, Outcome::Succeeded)];
            assert_eq!(outcomes(&attempts)[..3], expected);
        }
    }

    #[test]
    fn a_seed_without_a_chance_makes_way_for_the_next_but_the_last_runs_on() {
        let options = options(vec![90, 80]);
        let attempts = run(&options, |seed| Ok(Threes::new(seed)), &Quiet, &AtomicBool::new(false)).unwrap();
        assert_eq!([attempts[0].update, attempts[1].update], [30, 40]);
        assert!(attempts.iter().all(|a| a.outcome == Outcome::Exhausted && a.streak == 0));
    }

    #[test]
    fn all_seeds_run_when_asked_for() {
        let options = Options { until_success: false, side_by_side: 2, ..options(vec![1, 90, 2]) };
        let attempts = run(&options, |seed| Ok(Threes::new(seed)), &Quiet, &AtomicBool::new(false)).unwrap();
        let expected = [(1, Outcome::Succeeded), (90, Outcome::Exhausted), (2, Outcome::Succeeded)];
        assert_eq!(outcomes(&attempts), expected);
    }

    #[test]
    fn what_was_stopped_goes_on_from_its_checkpoint() {
        struct StopAt<'a>(u64, &'a AtomicBool);
        impl Observer for StopAt<'_> {
            fn updated(&self, attempt: &Attempt) {
                self.1.fetch_or(attempt.seed == 80 && attempt.update == self.0, Ordering::SeqCst);
            }
        }
        let make = |seed| Ok(Threes::new(seed));
        let whole = run(&options(vec![90, 80, 1]), make, &Quiet, &AtomicBool::new(false)).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let options = Options { checkpoints: Some(folder.path().to_path_buf()), ..options(vec![90, 80, 1]) };
        let stop = AtomicBool::new(false);
        let stopped = run(&options, make, &StopAt(7, &stop), &stop).unwrap();
        assert_eq!(outcomes(&stopped), [(90, Outcome::Exhausted), (80, Outcome::Running)]);
        let resumed = run(&options, make, &Quiet, &AtomicBool::new(false)).unwrap();
        let timeless = |attempts: Vec<Attempt>| -> Vec<Attempt> {
            attempts.into_iter().map(|a| Attempt { seconds: 0.0, ..a }).collect()
        };
        assert_eq!(timeless(resumed), timeless(whole));
    }

    #[test]
    fn an_error_ends_the_run() {
        let make = |seed| Ok(Threes { poison: Some(2), ..Threes::new(seed) });
        let error = run(&options(vec![5, 6]), make, &Quiet, &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().contains("seed 5, update 2"), "{error}");
    }
}
