//! Shuffled batches for training, prefetched by a thread.
//!
//! The order of the windows depends only on seed and epoch, and the batch of an update is a slice of it: any batch can be
//! computed without those before it, so that a resumed run sees the same batches. The memory of batches is reused.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use rustc_hash::FxHashMap;

use super::batch::{Batch, BatchShape};
use super::windows::{WindowError, Windows};
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// A source of training and validation batches. Batches depend only on the arguments, so that a resumed run sees the same
/// ones.
pub trait BatchSource {
    /// Returns the number of updates per epoch. The validation loss is computed after each epoch.
    fn updates_per_epoch(&self) -> u64;

    /// Fills the batch of an update. The last batch of an epoch may have fewer rows.
    fn training(&mut self, update: u64, batch: &mut Batch) -> Result<(), TaskError>;

    /// Fills a validation batch, numbered from 0; false if there is no such batch.
    fn validation(&mut self, index: u64, batch: &mut Batch) -> Result<bool, TaskError>;
}

/// Number of prefetched batches.
const PREFETCH: usize = 2;

/// The order of the training windows.
#[derive(Debug)]
struct Order {
    windows: Arc<Windows>,
    rows: usize,
    seed: u64,
    /// Whether windows of one time are adjacent.
    group_by_time: bool,
    /// The current epoch and its order.
    epoch: Option<u64>,
    numbers: Vec<u32>,
}

impl Order {
    fn new(windows: Arc<Windows>, rows: usize, seed: u64, group_by_time: bool) -> Order {
        Order { windows, rows: rows.max(1), seed, group_by_time, epoch: None, numbers: Vec::new() }
    }

    /// Moves all windows of a time behind the first of them.
    fn sort_by_time_group(&mut self) {
        let mut places: FxHashMap<i64, usize> = FxHashMap::default();
        let time = |number: &u32| self.windows.time(*number as usize);
        for (place, number) in self.numbers.iter().enumerate() {
            places.entry(time(number)).or_insert(place);
        }
        self.numbers.sort_by_cached_key(|number| places[&time(number)]);
    }

    fn updates_per_epoch(&self) -> u64 {
        (self.windows.len().div_ceil(self.rows) as u64).max(1)
    }

    /// Fills the batch of an update. The last one of an epoch has the remainder.
    fn fill(&mut self, update: u64, batch: &mut Batch) -> Result<(), WindowError> {
        let epoch = update / self.updates_per_epoch();
        if self.epoch != Some(epoch) {
            self.numbers.clear();
            self.numbers.extend(0..self.windows.len() as u32);
            Random::new(self.seed, Purpose::Shuffle, epoch).shuffle(&mut self.numbers);
            if self.group_by_time {
                self.sort_by_time_group();
            }
            self.epoch = Some(epoch);
        }
        let begin = (update % self.updates_per_epoch()) as usize * self.rows;
        let numbers = &self.numbers[begin..self.numbers.len().min(begin + self.rows)];
        batch.set_rows(numbers.len());
        self.windows.fill(numbers, batch)
    }
}

/// A prefetched update and its batch.
type Prefetched = (u64, Result<Batch, WindowError>);

/// The prefetching thread.
#[derive(Debug)]
struct Worker {
    /// Returns used batches to the thread.
    empty: Option<Sender<Batch>>,
    full: Option<Receiver<Prefetched>>,
    next: u64,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(mut order: Order, first: u64, made: Arc<AtomicU64>) -> std::io::Result<Worker> {
        let (empty, taken_back) = channel::<Batch>();
        let (full, received): (SyncSender<Prefetched>, _) = sync_channel(PREFETCH);
        for _ in 0..=PREFETCH {
            // The receiver exists, so that this cannot fail.
            let _ = empty.send(Batch::new(order.windows.shape(order.rows.min(order.windows.len()))));
        }
        let work = move || {
            for (update, mut batch) in (first..).zip(taken_back) {
                let result = order.fill(update, &mut batch).map(|()| batch);
                made.fetch_add(1, Ordering::Release);
                if full.send((update, result)).is_err() {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("windows".into()).spawn(work)?;
        Ok(Worker { empty: Some(empty), full: Some(received), next: first, thread: Some(thread) })
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The thread ends when its channels are closed.
        (self.empty, self.full) = (None, None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Training batches, shuffled by seed and prefetched, and validation batches.
#[derive(Debug)]
pub struct Loader {
    training: Arc<Windows>,
    validation: Arc<Windows>,
    rows: usize,
    seed: u64,
    group_by_time: bool,
    worker: Option<Worker>,
    made: Arc<AtomicU64>,
    numbers: Vec<u32>,
}

/// Batches that cannot be loaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// The windows are invalid.
    #[error(transparent)]
    Windows(#[from] WindowError),
    /// The thread cannot be started.
    #[error("cannot start the thread that prepares batches: {0}")]
    Thread(#[from] std::io::Error),
    /// The thread has ended.
    #[error("the thread that prepares batches has ended")]
    Ended,
}

impl Loader {
    /// Creates a loader of batches of `rows` windows.
    pub fn new(training: Arc<Windows>, validation: Arc<Windows>, rows: usize, seed: u64) -> Loader {
        let made = Arc::new(AtomicU64::new(0));
        let rows = rows.max(1);
        Loader {
            training,
            validation,
            rows,
            seed,
            group_by_time: false,
            worker: None,
            made,
            numbers: Vec::new(),
        }
    }

    /// Sets whether the windows of all series at one time are adjacent, so that a batch has few times with all series
    /// instead of many times with one each.
    #[must_use]
    pub fn group_by_time(mut self, group_by_time: bool) -> Loader {
        self.group_by_time = group_by_time;
        self
    }

    /// Returns the number of updates per epoch.
    pub fn updates_per_epoch(&self) -> u64 {
        (self.training.len().div_ceil(self.rows) as u64).max(1)
    }

    /// Returns the number of batches prefetched so far.
    #[cfg(test)]
    fn prefetched(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    /// Fills the batch of an update. Consecutive updates are prefetched; any other restarts the thread.
    pub fn training(&mut self, update: u64, batch: &mut Batch) -> Result<(), LoaderError> {
        if self.worker.as_ref().is_none_or(|worker| worker.next != update) {
            let order = Order::new(Arc::clone(&self.training), self.rows, self.seed, self.group_by_time);
            self.worker = None;
            self.worker = Some(Worker::start(order, update, Arc::clone(&self.made))?);
        }
        let worker = self.worker.as_mut().ok_or(LoaderError::Ended)?;
        let received = worker.full.as_ref().and_then(|full| full.recv().ok());
        let (_, result) = received.ok_or(LoaderError::Ended)?;
        let used = std::mem::replace(batch, result?);
        worker.next += 1;
        // The memory of the caller is reused if it has the same sizes. The thread may have ended.
        let fits = BatchShape { rows: batch.shape.rows, ..used.shape } == batch.shape;
        let back = if fits { used } else { Batch::new(batch.shape) };
        if let Some(empty) = &worker.empty {
            let _ = empty.send(back);
        }
        Ok(())
    }

    /// Fills a validation batch; false if there is no such batch.
    pub fn validation(&mut self, index: u64, batch: &mut Batch) -> Result<bool, LoaderError> {
        fill_in_order(&self.validation, self.rows, index, &mut self.numbers, batch)
    }
}

impl BatchSource for Loader {
    fn updates_per_epoch(&self) -> u64 {
        Loader::updates_per_epoch(self)
    }

    fn training(&mut self, update: u64, batch: &mut Batch) -> Result<(), TaskError> {
        Ok(Loader::training(self, update, batch)?)
    }

    fn validation(&mut self, index: u64, batch: &mut Batch) -> Result<bool, TaskError> {
        Ok(Loader::validation(self, index, batch)?)
    }
}

/// Fills a batch with consecutive windows; false if there is no such batch. The last one has the remainder.
pub fn fill_in_order(
    windows: &Windows,
    rows: usize,
    index: u64,
    numbers: &mut Vec<u32>,
    batch: &mut Batch,
) -> Result<bool, LoaderError> {
    let begin = (index as usize).saturating_mul(rows);
    if begin >= windows.len() {
        return Ok(false);
    }
    numbers.clear();
    numbers.extend(begin as u32..windows.len().min(begin + rows) as u32);
    if batch.shape != windows.shape(batch.shape.rows) {
        *batch = Batch::new(windows.shape(numbers.len()));
    }
    batch.set_rows(numbers.len());
    windows.fill(numbers, batch)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::data::split::{Length, Split, Subset};
    use crate::data::windows::WindowSizes;
    use crate::data::{Schema, read_csv};

    fn windows(count: usize) -> [Arc<Windows>; 2] {
        use std::fmt::Write as _;
        let mut text = "ds,y\n".to_string();
        for i in 0..count + 23 {
            writeln!(text, "{i},{i}").unwrap();
        }
        let table = Arc::new(read_csv(text.as_bytes(), "a", &Schema::default()).unwrap());
        let split = Split { train: None, validation: Length::Steps(20), test: Length::Steps(0) };
        let sizes = WindowSizes { input: 3, horizon: 1, stride: 1 };
        [Subset::Train, Subset::Validation]
            .map(|subset| Arc::new(Windows::new(&table, sizes, &split, subset)))
    }

    fn loader(count: usize, rows: usize, seed: u64) -> Loader {
        let [training, validation] = windows(count);
        assert_eq!(training.len(), count);
        Loader::new(training, validation, rows, seed)
    }

    fn batches(loader: &mut Loader, updates: std::ops::Range<u64>) -> Vec<Vec<f32>> {
        let mut batch = Batch::default();
        let take = |update| {
            loader.training(update, &mut batch).unwrap();
            batch.target.clone()
        };
        updates.map(take).collect()
    }

    #[test]
    fn epochs_are_different_permutations() {
        let mut loader = loader(50, 16, 1);
        assert_eq!(loader.updates_per_epoch(), 4);
        let sizes: Vec<usize> = batches(&mut loader, 0..4).iter().map(Vec::len).collect();
        assert_eq!(sizes, [16, 16, 16, 2]);
        let mut epochs: Vec<Vec<f32>> =
            [0..4, 4..8].map(|updates| batches(&mut loader, updates).concat()).to_vec();
        assert_ne!(epochs[0], epochs[1]);
        for epoch in &mut epochs {
            epoch.sort_by(f32::total_cmp);
            assert_eq!(*epoch, (3..53).map(|i| i as f32).collect::<Vec<_>>());
        }
    }

    #[test]
    fn windows_of_one_time_are_adjacent() {
        let days: Vec<String> = (0..60).map(|day| format!("a,{day},{day}\nb,{},{day}\n", day + 5)).collect();
        let text = format!("unique_id,ds,y\n{}", days.concat());
        let table = Arc::new(read_csv(text.as_bytes(), "a", &Schema::default()).unwrap());
        let split = Split { train: None, validation: Length::Steps(10), test: Length::Steps(0) };
        let sizes = WindowSizes { input: 3, horizon: 1, stride: 1 };
        let windows = Arc::new(Windows::new(&table, sizes, &split, Subset::Train));
        let mut order = Order::new(Arc::clone(&windows), 94, 1, true);
        order.fill(0, &mut Batch::new(windows.shape(94))).unwrap();
        let times: Vec<i64> = order.numbers.iter().map(|&number| windows.time(number as usize)).collect();
        // 47 windows a series, five of which are before the first or after the last of the other.
        let changes = times.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(changes + 1, 52);
        assert!(times.windows(2).any(|pair| pair[0] > pair[1]), "times are shuffled");
        let mut all = order.numbers.clone();
        all.sort_unstable();
        assert_eq!(all, (0..94).collect::<Vec<u32>>());
    }

    #[test]
    fn the_order_depends_on_the_seed() {
        let all = |seed| batches(&mut loader(50, 16, seed), 0..12);
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }

    #[test]
    fn updates_can_be_requested_in_any_order() {
        let whole = batches(&mut loader(50, 16, 3), 0..12);
        let mut resumed = loader(50, 16, 3);
        assert_eq!(batches(&mut resumed, 7..12), whole[7..]);
        assert_eq!(batches(&mut resumed, 2..5), whole[2..5]);
    }

    #[test]
    fn batches_are_prefetched_by_another_thread() {
        let mut loader = loader(50, 16, 1);
        assert_eq!(loader.prefetched(), 0);
        batches(&mut loader, 0..1);
        // One batch was taken; the thread continues until its channel is full.
        let expected = 2 + PREFETCH as u64;
        let begin = Instant::now();
        while loader.prefetched() < expected {
            assert!(begin.elapsed() < Duration::from_secs(20), "{} were prefetched", loader.prefetched());
            std::thread::sleep(Duration::from_millis(1));
        }
        let name = loader.worker.as_ref().and_then(|w| w.thread.as_ref()).map(|t| t.thread().id());
        assert_ne!(name, Some(std::thread::current().id()));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(loader.prefetched(), expected, "prefetching is bounded");
    }

    #[test]
    fn validation_batches_are_consecutive() {
        let mut loader = loader(50, 16, 1);
        let mut batch = Batch::default();
        assert!(loader.validation(0, &mut batch).unwrap());
        assert_eq!(batch.target, (53..69).map(|i| i as f32).collect::<Vec<_>>());
        assert!(loader.validation(1, &mut batch).unwrap());
        assert_eq!(batch.target, [69., 70., 71., 72.]);
        assert!(!loader.validation(2, &mut batch).unwrap());
    }

    #[test]
    fn a_batch_holds_at_most_all_windows() {
        let mut loader = loader(5, 16, 1);
        assert_eq!(loader.updates_per_epoch(), 1);
        assert_eq!(batches(&mut loader, 0..1)[0].len(), 5);
    }
}
