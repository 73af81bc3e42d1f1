//! Batches for training in an order that a seed decides, prepared by a thread of their own.
//!
//! The windows of an epoch are shuffled by seed and epoch alone, and an update is a slice of them: the batch of any
//! update can be made without those before it, so a run that is resumed sees what it would have seen. While a step
//! runs, a worker fills the batches of the next ones; the memory of batches goes round, and nothing is allocated.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;

use rustc_hash::FxHashMap;

use super::batch::{Batch, BatchShape};
use super::windows::{WindowError, Windows};
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// Where the windows come from. What it gives depends on its arguments alone: a run that is resumed sees what it would
/// have seen.
pub trait BatchSource {
    /// Updates that make up an epoch; the validation loss is looked at after each.
    fn updates_per_epoch(&self) -> u64;

    /// Fills in the batch of an update. Its rows may be fewer at the end of an epoch.
    fn training(&mut self, update: u64, batch: &mut Batch) -> Result<(), TaskError>;

    /// Fills in a batch of the windows kept aside, numbered from 0; false if there is none of that number.
    fn validation(&mut self, index: u64, batch: &mut Batch) -> Result<bool, TaskError>;
}

/// Batches that are prepared ahead.
const AHEAD: usize = 2;

/// The order of the windows in training.
#[derive(Debug)]
struct Order {
    windows: Arc<Windows>,
    rows: usize,
    seed: u64,
    /// Whether windows of one time go together.
    group_by_time: bool,
    /// The epoch that is shuffled now, and its windows.
    epoch: Option<u64>,
    numbers: Vec<u32>,
}

impl Order {
    fn new(windows: Arc<Windows>, rows: usize, seed: u64, group_by_time: bool) -> Order {
        Order { windows, rows: rows.max(1), seed, group_by_time, epoch: None, numbers: Vec::new() }
    }

    /// Puts all windows of a time behind the one of them that comes first.
    fn bring_together(&mut self) {
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

    /// Fills the batch of an update. The last one of an epoch has what is left.
    fn fill(&mut self, update: u64, batch: &mut Batch) -> Result<(), WindowError> {
        let epoch = update / self.updates_per_epoch();
        if self.epoch != Some(epoch) {
            self.numbers.clear();
            self.numbers.extend(0..self.windows.len() as u32);
            Random::new(self.seed, Purpose::Shuffle, epoch).shuffle(&mut self.numbers);
            if self.group_by_time {
                self.bring_together();
            }
            self.epoch = Some(epoch);
        }
        let begin = (update % self.updates_per_epoch()) as usize * self.rows;
        let numbers = &self.numbers[begin..self.numbers.len().min(begin + self.rows)];
        batch.set_rows(numbers.len());
        self.windows.fill(numbers, batch)
    }
}

/// What the worker has made: the update, and its batch or why there is none.
type Made = (u64, Result<Batch, WindowError>);

/// A thread that fills batches.
#[derive(Debug)]
struct Worker {
    /// Batches to be used again.
    empty: Option<Sender<Batch>>,
    full: Option<Receiver<Made>>,
    next: u64,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn start(mut order: Order, first: u64, made: Arc<AtomicU64>) -> std::io::Result<Worker> {
        let (empty, taken_back) = channel::<Batch>();
        let (full, received): (SyncSender<Made>, _) = sync_channel(AHEAD);
        for _ in 0..=AHEAD {
            // The worker is not there yet: nobody can have gone away.
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
        // Without its channels the worker ends.
        (self.empty, self.full) = (None, None);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Batches for training and validation.
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

/// Batches that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LoaderError {
    /// The windows cannot be made.
    #[error(transparent)]
    Windows(#[from] WindowError),
    /// No thread to be had.
    #[error("cannot start the thread that prepares batches: {0}")]
    Thread(#[from] std::io::Error),
    /// The worker is gone.
    #[error("the thread that prepares batches has ended")]
    Ended,
}

impl Loader {
    /// Batches of so many windows, in the order of a seed.
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

    /// Whether the windows of all series at one time follow each other, so that a batch has a few times with all of their
    /// series instead of many times with one each.
    #[must_use]
    pub fn group_by_time(mut self, group_by_time: bool) -> Loader {
        self.group_by_time = group_by_time;
        self
    }

    /// Updates of an epoch.
    pub fn updates_per_epoch(&self) -> u64 {
        (self.training.len().div_ceil(self.rows) as u64).max(1)
    }

    /// Batches that the worker has filled so far.
    pub fn prepared(&self) -> u64 {
        self.made.load(Ordering::Acquire)
    }

    /// The batch of an update. Updates in their order are prepared ahead; any other starts anew from there.
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
        // What the caller had is used again if it is of the same kind; the worker may have ended.
        let fits = BatchShape { rows: batch.shape.rows, ..used.shape } == batch.shape;
        let back = if fits { used } else { Batch::new(batch.shape) };
        if let Some(empty) = &worker.empty {
            let _ = empty.send(back);
        }
        Ok(())
    }

    /// A batch of the windows kept aside, in their own order; false if there is none of that number.
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

/// Fills a batch with windows in their own order; false if there are none of that number. The last batch has what is
/// left.
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
        [Subset::Train, Subset::Validation].map(|part| Arc::new(Windows::new(&table, sizes, &split, part)))
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
    fn an_epoch_has_every_window_once_in_another_order() {
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
    fn windows_of_one_time_go_together() {
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
        assert!(times.windows(2).any(|pair| pair[0] > pair[1]), "shuffled all the same");
        let mut all = order.numbers.clone();
        all.sort_unstable();
        assert_eq!(all, (0..94).collect::<Vec<u32>>());
    }

    #[test]
    fn the_seed_decides_the_order() {
        let all = |seed| batches(&mut loader(50, 16, seed), 0..12);
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
    }

    #[test]
    fn any_update_can_come_next() {
        let whole = batches(&mut loader(50, 16, 3), 0..12);
        let mut resumed = loader(50, 16, 3);
        assert_eq!(batches(&mut resumed, 7..12), whole[7..]);
        assert_eq!(batches(&mut resumed, 2..5), whole[2..5]);
    }

    #[test]
    fn batches_are_prepared_by_another_thread_before_they_are_asked_for() {
        let mut loader = loader(50, 16, 1);
        assert_eq!(loader.prepared(), 0);
        batches(&mut loader, 0..1);
        // One was taken; the worker goes on alone until nobody takes what it made.
        let expected = 2 + AHEAD as u64;
        let begin = Instant::now();
        while loader.prepared() < expected {
            assert!(begin.elapsed() < Duration::from_secs(20), "the worker prepared {}", loader.prepared());
            std::thread::sleep(Duration::from_millis(1));
        }
        let name = loader.worker.as_ref().and_then(|w| w.thread.as_ref()).map(|t| t.thread().id());
        assert_ne!(name, Some(std::thread::current().id()));
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(loader.prepared(), expected, "it stops when enough is prepared");
    }

    #[test]
    fn validation_batches_come_in_order_and_the_last_has_what_is_left() {
        let mut loader = loader(50, 16, 1);
        let mut batch = Batch::default();
        assert!(loader.validation(0, &mut batch).unwrap());
        assert_eq!(batch.target, (53..69).map(|i| i as f32).collect::<Vec<_>>());
        assert!(loader.validation(1, &mut batch).unwrap());
        assert_eq!(batch.target, [69., 70., 71., 72.]);
        assert!(!loader.validation(2, &mut batch).unwrap());
    }

    #[test]
    fn a_batch_larger_than_the_data_has_all_of_it() {
        let mut loader = loader(5, 16, 1);
        assert_eq!(loader.updates_per_epoch(), 1);
        assert_eq!(batches(&mut loader, 0..1)[0].len(), 5);
    }
}
