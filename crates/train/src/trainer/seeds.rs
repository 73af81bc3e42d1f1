//! Seeds and restarts: attempts made sequentially or concurrently.
//!
//! An attempt that can no longer succeed is given up if there is another seed.
//!
//! The result does not depend on the number of threads: a seed that succeeds, or fails with an error, stops the seeds after
//! it, and takes effect only when the seeds before it have ended without success.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::attempt::{Attempt, Outcome, Settings};
use super::{CheckpointError, Finishing, Interrupted, Task, TaskError, TrainError};

/// How to run attempts.
#[derive(Clone, Debug)]
pub struct Options {
    /// The settings of every attempt.
    pub settings: Settings,
    /// The seeds, in order of preference.
    pub seeds: Vec<u64>,
    /// Whether to skip the seeds after the first success.
    pub until_success: bool,
    /// The number of concurrent attempts.
    pub concurrent_attempts: usize,
    /// The number of threads per attempt.
    pub threads_per_attempt: usize,
    /// The folder of the checkpoints, from which attempts are resumed. If `None`, no checkpoints are written.
    pub checkpoints: Option<PathBuf>,
    /// Time between checkpoints.
    pub interval: Duration,
}

impl Options {
    /// Returns the path of the checkpoint of a seed.
    pub fn checkpoint(folder: &Path, seed: u64) -> PathBuf {
        folder.join(format!("seed-{seed}.safetensors"))
    }

    /// Returns whether the attempts that [`run`] returned are complete: all have ended, and either one has succeeded or no
    /// seed is left.
    pub fn is_complete(&self, attempts: &[Attempt]) -> bool {
        let won = attempts.last().is_some_and(|last| self.is_won_by(last));
        let ended = attempts.iter().all(|attempt| attempt.outcome != Outcome::Running);
        ended && (won || attempts.len() == self.seeds.len())
    }

    /// Returns whether the seeds after this attempt are skipped.
    fn is_won_by(&self, attempt: &Attempt) -> bool {
        self.until_success && attempt.outcome == Outcome::Succeeded
    }
}

/// Receives the progress of attempts, possibly from several threads.
pub trait Observer: Sync {
    /// Called after every update, and once when an attempt starts or resumes.
    fn updated(&self, _attempt: &Attempt) {}

    /// Called during [`Task::finish`] with its progress.
    fn finishing(&self, _attempt: &Attempt, _progress: Finishing) {}

    /// Called when an attempt has ended.
    fn finished(&self, _attempt: &Attempt) {}

    /// Called when a checkpoint is damaged and the one before it is used.
    fn damaged(&self, _error: &CheckpointError) {}
}

/// An observer that does nothing.
#[derive(Clone, Copy, Debug)]
pub struct Quiet;

impl Observer for Quiet {}

/// Makes attempts until one succeeds, all seeds are used, or `stop` is set. Returns the attempts that were started, in the
/// order of their seeds and up to the first success; one that was stopped is still [`Outcome::Running`] and has a checkpoint.
/// The error of a seed is returned if all seeds before it have ended without success.
pub fn run<T: Task>(
    options: &Options,
    make: impl Fn(u64) -> Result<T, TaskError> + Sync,
    observer: &impl Observer,
    stop: &AtomicBool,
) -> Result<Vec<Attempt>, TrainError> {
    let next = AtomicUsize::new(0);
    // The index of the first seed with a success or an error: those after it do not matter.
    let end = AtomicUsize::new(usize::MAX);
    let results: Vec<Mutex<Option<Result<Attempt, TrainError>>>> =
        options.seeds.iter().map(|_| Mutex::new(None)).collect();
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::SeqCst);
            let should_stop = || end.load(Ordering::SeqCst) < index || stop.load(Ordering::SeqCst);
            if index >= options.seeds.len() || should_stop() {
                return;
            }
            let has_next_seed = options.until_success && index + 1 < options.seeds.len();
            let result = attempt(options, options.seeds[index], has_next_seed, &make, observer, &should_stop);
            if result.as_ref().map_or(true, |attempt| options.is_won_by(attempt)) {
                end.fetch_min(index, Ordering::SeqCst);
            }
            *results[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(result);
        }
    };
    let pools: Vec<rayon::ThreadPool> = (0..options.concurrent_attempts.clamp(1, options.seeds.len().max(1)))
        .map(|_| rayon::ThreadPoolBuilder::new().num_threads(options.threads_per_attempt.max(1)).build())
        .collect::<Result<_, _>>()
        .map_err(|error| TrainError::Threads(error.to_string()))?;
    std::thread::scope(|scope| {
        for pool in &pools {
            scope.spawn(|| pool.install(work));
        }
    });
    let results =
        results.into_iter().map(|r| r.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner));
    in_order(options, results)
}

/// Returns what sequential attempts would have returned: nothing after a success, and no error after a seed that may still
/// succeed.
fn in_order(
    options: &Options,
    results: impl Iterator<Item = Option<Result<Attempt, TrainError>>>,
) -> Result<Vec<Attempt>, TrainError> {
    let mut attempts: Vec<Attempt> = Vec::new();
    // A seed that was stopped before it started leaves a gap.
    for result in results.map_while(|result| result) {
        match result {
            Err(_) if attempts.iter().any(|attempt| attempt.outcome == Outcome::Running) => break,
            result => attempts.push(result?),
        }
        if attempts.last().is_some_and(|attempt| options.is_won_by(attempt)) {
            break;
        }
    }
    Ok(attempts)
}

/// Trains one seed until it ends, until `should_stop` returns true, or, if there is another seed, until it can no longer succeed.
fn attempt<T: Task>(
    options: &Options,
    seed: u64,
    has_next_seed: bool,
    make: &impl Fn(u64) -> Result<T, TaskError>,
    observer: &impl Observer,
    should_stop: &impl Fn() -> bool,
) -> Result<Attempt, TrainError> {
    let mut task = make(seed).map_err(|source| TrainError::Task { seed, source })?;
    let path = options.checkpoints.as_ref().map(|folder| Options::checkpoint(folder, seed));
    let save = |attempt: &Attempt, task: &T| path.as_ref().map_or(Ok(()), |path| attempt.save(task, path));
    let resumed = match &path {
        Some(path) => {
            Attempt::resume(path, seed, &options.settings, &mut task, |error| observer.damaged(error))?
        }
        None => None,
    };
    let mut attempt = resumed.unwrap_or_else(|| Attempt::new(seed, &options.settings, task.params().len()));
    observer.updated(&attempt);
    let before = attempt.seconds;
    let (begin, mut saved) = (Instant::now(), Instant::now());
    while attempt.outcome == Outcome::Running && !should_stop() {
        if attempt.update >= options.settings.updates {
            // Interrupted between its last update and its end.
            attempt.outcome = Outcome::Exhausted;
            break;
        }
        match attempt.advance(&mut task, &options.settings) {
            Err(TrainError::Task { source, .. }) if source.is::<Interrupted>() => break,
            result => result?,
        }
        if has_next_seed && !task.finishes() && attempt.is_unpromising(&options.settings) {
            attempt.outcome = Outcome::Exhausted;
        }
        attempt.seconds = before + begin.elapsed().as_secs_f64();
        observer.updated(&attempt);
        if saved.elapsed() >= options.interval {
            save(&attempt, &task)?;
            saved = Instant::now();
        }
    }
    if attempt.outcome == Outcome::Exhausted {
        if task.finishes() {
            // `finish` may take long. If the process is killed meanwhile, only `finish` is repeated.
            save(&attempt, &task)?;
        }
        finish(&mut attempt, &mut task, observer, should_stop)?;
        attempt.seconds = before + begin.elapsed().as_secs_f64();
    }
    save(&attempt, &task)?;
    if attempt.outcome != Outcome::Running {
        observer.finished(&attempt);
    }
    Ok(attempt)
}

/// Runs [`Task::finish`], unless the attempt has its result already.
fn finish(
    attempt: &mut Attempt,
    task: &mut impl Task,
    observer: &impl Observer,
    should_stop: &impl Fn() -> bool,
) -> Result<(), TrainError> {
    let Some(best) = attempt.best.as_ref().filter(|best| best.finished.is_none() && attempt.moves == 0)
    else {
        return Ok(());
    };
    let stop = |progress: Finishing| {
        observer.finishing(attempt, progress);
        should_stop()
    };
    let failed = |source| TrainError::Task { seed: attempt.seed, source };
    match task.finish(&best.values, &stop).map_err(failed)? {
        Some(finished) => attempt.finish(finished),
        None if should_stop() => attempt.outcome = Outcome::Running,
        None => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::attempt::tests::{Threes, settings};
    use super::*;
    use crate::params::Params;
    use crate::trainer::{Finished, Losses};

    fn options(seeds: Vec<u64>) -> Options {
        Options {
            settings: Settings { updates: 40, ..settings() },
            seeds,
            until_success: true,
            concurrent_attempts: 1,
            threads_per_attempt: 1,
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
        for concurrent_attempts in 1..4 {
            let options = Options { concurrent_attempts, ..options(vec![90, 80, 1, 70, 2]) };
            let attempts =
                run(&options, |seed| Ok(Threes::new(seed)), &Quiet, &AtomicBool::new(false)).unwrap();
            let expected = [(90, Outcome::Exhausted), (80, Outcome::Exhausted), (1, Outcome::Succeeded)];
            assert_eq!(outcomes(&attempts)[..3], expected);
        }
    }

    #[test]
    fn a_hopeless_seed_is_given_up_unless_it_is_the_last() {
        let options = options(vec![90, 80]);
        let attempts = run(&options, |seed| Ok(Threes::new(seed)), &Quiet, &AtomicBool::new(false)).unwrap();
        assert_eq!([attempts[0].update, attempts[1].update], [30, 40]);
        assert!(attempts.iter().all(|a| a.outcome == Outcome::Exhausted && a.streak == 0));
    }

    #[test]
    fn all_seeds_run_if_requested() {
        let options = Options { until_success: false, concurrent_attempts: 2, ..options(vec![1, 90, 2]) };
        let attempts = run(&options, |seed| Ok(Threes::new(seed)), &Quiet, &AtomicBool::new(false)).unwrap();
        let expected = [(1, Outcome::Succeeded), (90, Outcome::Exhausted), (2, Outcome::Succeeded)];
        assert_eq!(outcomes(&attempts), expected);
    }

    #[test]
    fn an_interrupted_attempt_is_resumed_from_its_checkpoint() {
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

    /// Stops when seed 1 has succeeded; seed 90 waits for that in the middle of its updates.
    struct StopAfterSuccess<'a>(&'a AtomicBool);

    impl Observer for StopAfterSuccess<'_> {
        fn updated(&self, attempt: &Attempt) {
            while attempt.seed == 90 && attempt.update == 5 && !self.0.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }

        fn finished(&self, attempt: &Attempt) {
            self.0.fetch_or(attempt.outcome == Outcome::Succeeded, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_success_does_not_count_while_an_earlier_seed_is_running() {
        let make = |seed| Ok(Threes::new(seed));
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Some(folder.path().to_path_buf());
        let options = Options { concurrent_attempts: 2, checkpoints, ..options(vec![90, 1, 2]) };
        let stop = AtomicBool::new(false);
        let stopped = run(&options, make, &StopAfterSuccess(&stop), &stop).unwrap();
        assert_eq!(outcomes(&stopped), [(90, Outcome::Running), (1, Outcome::Succeeded)]);
        assert!(!options.is_complete(&stopped) && !options.is_complete(&[]));
        let resumed = run(&options, make, &Quiet, &AtomicBool::new(false)).unwrap();
        assert_eq!(outcomes(&resumed), [(90, Outcome::Exhausted), (1, Outcome::Succeeded)]);
        assert!(options.is_complete(&resumed));
        let all = Options { until_success: false, ..options };
        assert!(!all.is_complete(&resumed), "seed 2 is left");
    }

    #[test]
    fn an_error_ends_the_run() {
        let make = |seed| Ok(Threes { poison: Some(2), ..Threes::new(seed) });
        let error = run(&options(vec![5, 6]), make, &Quiet, &AtomicBool::new(false)).unwrap_err();
        assert!(error.to_string().contains("seed 5, update 2"), "{error}");
    }

    /// Makes seed 1 wait until seed 2, which is about to fail, runs concurrently.
    struct Together {
        concurrent_attempts: usize,
        begun: AtomicBool,
    }

    impl Observer for Together {
        fn updated(&self, attempt: &Attempt) {
            self.begun.fetch_or(attempt.seed == 2 && attempt.update == 2, Ordering::SeqCst);
            let waits = self.concurrent_attempts > 1 && attempt.seed == 1 && attempt.update == 5;
            while waits && !self.begun.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn an_error_counts_only_if_no_seed_before_it_succeeds() {
        for concurrent_attempts in 1..=3 {
            let poisoned = |poisoned: &'static [u64]| {
                move |seed| Ok(Threes { poison: poisoned.contains(&seed).then_some(2), ..Threes::new(seed) })
            };
            let options = Options { concurrent_attempts, ..options(vec![90, 1, 2, 3]) };
            let stop = AtomicBool::new(false);
            let together = Together { concurrent_attempts, begun: AtomicBool::new(false) };
            let attempts = run(&options, poisoned(&[2, 3]), &together, &stop).unwrap();
            assert_eq!(outcomes(&attempts), [(90, Outcome::Exhausted), (1, Outcome::Succeeded)]);
            let error = run(&options, poisoned(&[1, 2]), &Quiet, &stop).unwrap_err();
            assert!(error.to_string().contains("seed 1, update 2"), "{concurrent_attempts}: {error}");
            let all = Options { until_success: false, ..options };
            let error = run(&all, poisoned(&[2, 3]), &Quiet, &stop).unwrap_err();
            assert!(error.to_string().contains("seed 2, update 2"), "{concurrent_attempts}: {error}");
        }
    }

    #[test]
    fn an_error_after_an_interrupted_seed_is_not_returned() {
        let options = options(vec![90, 1]);
        let attempt = |outcome| Attempt { outcome, ..Attempt::new(90, &options.settings, 3) };
        let failed = || Err(TrainError::NotFinite { seed: 1, update: 2, loss: f64::NAN });
        let stopped =
            in_order(&options, [Some(Ok(attempt(Outcome::Running))), Some(failed())].into_iter()).unwrap();
        assert_eq!(outcomes(&stopped), [(90, Outcome::Running)]);
        assert!(!options.is_complete(&stopped));
        in_order(&options, [Some(Ok(attempt(Outcome::Exhausted))), Some(failed())].into_iter()).unwrap_err();
        let nothing = in_order(&options, [None, Some(failed())].into_iter()).unwrap();
        assert!(nothing.is_empty(), "seed 90 was not begun");
    }

    /// [`Threes`] with a `finish` that fails, as if the process were killed.
    struct Killed(Threes);

    impl Task for Killed {
        fn params(&self) -> &Params {
            self.0.params()
        }

        fn params_mut(&mut self) -> &mut Params {
            self.0.params_mut()
        }

        fn step(&mut self, update: u64) -> Result<Losses, TaskError> {
            self.0.step(update)
        }

        fn passes(&mut self, update: u64) -> Result<bool, TaskError> {
            self.0.passes(update)
        }

        fn finishes(&self) -> bool {
            true
        }

        fn finish(
            &mut self,
            _: &[f32],
            _: &dyn Fn(Finishing) -> bool,
        ) -> Result<Option<Finished>, TaskError> {
            Err("killed".into())
        }
    }

    #[test]
    fn a_kill_after_the_last_update_loses_no_update() {
        let folder = tempfile::tempdir().unwrap();
        let checkpoints = Some(folder.path().to_path_buf());
        let options = Options { checkpoints, interval: Duration::MAX, ..options(vec![90]) };
        let make = |seed| Ok(Killed(Threes::new(seed)));
        run(&options, make, &Quiet, &AtomicBool::new(false)).unwrap_err();
        let path = Options::checkpoint(folder.path(), 90);
        let saved = Attempt::load(&path, 90, &options.settings, &mut Threes::new(90)).unwrap();
        assert_eq!((saved.update, saved.outcome), (40, Outcome::Exhausted));
    }
}
