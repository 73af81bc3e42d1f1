//! The queue of requests, and request batching without a thread of its own.
//!
//! The model runs on the threads of the callers. A caller that finds a free place takes it and runs its own request at once:
//! no thread is woken. If all places are taken, it waits. A caller that is done hands its place to the first one that waits,
//! which takes the requests that wait behind it into its batch. So an idle service answers without delay, and a busy one
//! in batches that are the larger, the more callers wait.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::trained_network::Forecast;

/// The forecasts of the windows of a request, or why there are none.
pub(super) type Answer = Result<Vec<Arc<Forecast>>, String>;

/// Windows to forecast, and the place of their answer.
pub(super) struct Request {
    /// Scaled inputs of each window.
    pub windows: Vec<Vec<f32>>,
    progress: Mutex<Progress>,
    changed: Condvar,
}

enum Progress {
    Waiting,
    /// The caller shall run the model.
    Runs,
    Answered(Answer),
    /// The caller has taken the answer, or has its own place.
    Taken,
}

impl Request {
    pub fn new(windows: Vec<Vec<f32>>) -> Arc<Request> {
        let progress = Mutex::new(Progress::Waiting);
        Arc::new(Request { windows, progress, changed: Condvar::new() })
    }

    /// Waits until another caller has answered the request, or this one shall run the model: then there is no answer.
    fn wait(&self) -> Option<Answer> {
        let mut progress = lock(&self.progress);
        loop {
            match std::mem::replace(&mut *progress, Progress::Taken) {
                Progress::Answered(answer) => return Some(answer),
                Progress::Runs | Progress::Taken => return None,
                Progress::Waiting => *progress = Progress::Waiting,
            }
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn set(&self, next: Progress) {
        *lock(&self.progress) = next;
        self.changed.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The queue is full.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

pub(super) struct Queue {
    /// Batches that run at the same time.
    places: usize,
    /// Most requests that wait.
    capacity: usize,
    /// Most windows of a batch, unless a single request has more.
    max_batch: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Places that are taken.
    running: usize,
    waiting: VecDeque<Arc<Request>>,
}

thread_local! {
    /// Whether this thread runs a batch. A parallel loop of the batch may run a task of the thread pool meanwhile, and that may
    /// request a forecast: it must not wait for this thread.
    static IS_RUNNING: Cell<bool> = const { Cell::new(false) };
}

impl Queue {
    pub fn new(places: usize, capacity: usize, max_batch: usize) -> Queue {
        Queue { places: places.max(1), capacity, max_batch, state: Mutex::default() }
    }

    pub fn capacity(&self) -> usize {
        self.capacity
    }

    #[cfg(test)]
    pub fn places(&self) -> usize {
        self.places
    }

    pub fn max_batch(&self) -> usize {
        self.max_batch
    }

    /// Answers a request: in the batch of another caller, or by `run`, which gets a batch of requests and returns their
    /// answers in order.
    pub fn answer(
        &self,
        windows: Vec<Vec<f32>>,
        run: impl FnOnce(&[Arc<Request>]) -> Vec<Answer>,
    ) -> Result<Answer, Full> {
        let request = Request::new(windows);
        // A worker of a thread pool must not block: the batch that it waits for may need it for a parallel loop.
        if IS_RUNNING.get() || rayon::current_thread_index().is_some() {
            return Ok(Batch(vec![request]).run(run));
        }
        if !self.enter(&request)?
            && let Some(answer) = request.wait()
        {
            return Ok(answer);
        }
        let _place = Place::new(self);
        Ok(self.batch(request).run(run))
    }

    /// Takes a place, if one is free, or appends the request to the queue. Returns whether there is a place.
    fn enter(&self, request: &Arc<Request>) -> Result<bool, Full> {
        let mut state = lock(&self.state);
        if state.running < self.places {
            state.running += 1;
            return Ok(true);
        }
        if state.waiting.len() >= self.capacity {
            return Err(Full);
        }
        state.waiting.push_back(Arc::clone(request));
        Ok(false)
    }

    /// Returns the batch of a request and those that wait, as far as they fit.
    fn batch(&self, first: Arc<Request>) -> Batch {
        let mut windows = first.windows.len();
        let mut batch = Batch(vec![first]);
        let mut state = lock(&self.state);
        while let Some(next) = state.waiting.front()
            && windows + next.windows.len() <= self.max_batch
        {
            windows += next.windows.len();
            batch.0.extend(state.waiting.pop_front());
        }
        batch
    }
}

/// A place that is taken. When it is dropped, also in a panic, it goes to the first request that waits.
struct Place<'a>(&'a Queue);

impl<'a> Place<'a> {
    fn new(queue: &'a Queue) -> Place<'a> {
        IS_RUNNING.set(true);
        Place(queue)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        IS_RUNNING.set(false);
        let mut state = lock(&self.0.state);
        let next = state.waiting.pop_front();
        if next.is_none() {
            state.running -= 1;
        }
        drop(state);
        if let Some(next) = next {
            next.set(Progress::Runs);
        }
    }
}

/// Requests that one caller answers; the first is its own.
struct Batch(Vec<Arc<Request>>);

impl Batch {
    /// Runs the batch, answers the other requests and returns the own answer.
    fn run(self, run: impl FnOnce(&[Arc<Request>]) -> Vec<Answer>) -> Answer {
        let mut answers = run(&self.0).into_iter();
        let own = answers.next().unwrap_or_else(no_answer);
        for (request, answer) in self.0[1..].iter().zip(answers) {
            request.set(Progress::Answered(answer));
        }
        own
    }
}

impl Drop for Batch {
    /// After a panic, the other callers get an error instead of waiting forever.
    fn drop(&mut self) {
        for request in self.0.iter().skip(1) {
            let mut progress = lock(&request.progress);
            if matches!(*progress, Progress::Waiting) {
                *progress = Progress::Answered(no_answer());
                request.changed.notify_one();
            }
        }
    }
}

fn no_answer() -> Answer {
    Err("the thread that ran the batch has panicked".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trained_network::ForecastKind;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    /// Forecasts twice the first value of each window.
    fn double(batch: &[Arc<Request>]) -> Vec<Answer> {
        let forecast = |window: &Vec<f32>| {
            let values = vec![2.0 * window[0]];
            Arc::new(Forecast { rows: 1, horizon: 1, outputs: 1, kind: ForecastKind::Point, values })
        };
        batch.iter().map(|request| Ok(request.windows.iter().map(forecast).collect())).collect()
    }

    fn values(answer: Result<Answer, Full>) -> Vec<f32> {
        answer.unwrap().unwrap().iter().map(|forecast| forecast.values[0]).collect()
    }

    fn wait_for_waiting(queue: &Queue, count: usize) {
        while lock(&queue.state).waiting.len() < count {
            std::thread::yield_now();
        }
    }

    /// One request runs until five others wait: they become batches of at most four windows, and a sixth is refused.
    #[test]
    fn waiting_requests_are_batched_and_a_full_queue_refuses() {
        let queue = Queue::new(1, 5, 4);
        let sizes = Mutex::new(Vec::new());
        let record = |batch: &[Arc<Request>]| {
            lock(&sizes).push(batch.len());
            double(batch)
        };
        std::thread::scope(|scope| {
            let (go, gate) = channel::<()>();
            let (queue, record) = (&queue, &record);
            let first = scope.spawn(move || {
                values(queue.answer(vec![vec![9.0]], |batch| {
                    gate.recv().unwrap();
                    record(batch)
                }))
            });
            while lock(&queue.state).running == 0 {
                std::thread::yield_now();
            }
            let others: Vec<_> = (0..5)
                .map(|i| {
                    let other = scope.spawn(move || values(queue.answer(vec![vec![i as f32]], record)));
                    wait_for_waiting(queue, i + 1);
                    other
                })
                .collect();
            assert_eq!(queue.answer(vec![vec![7.0]], double).err(), Some(Full));
            go.send(()).unwrap();
            assert_eq!(first.join().unwrap(), [18.0]);
            for (i, other) in others.into_iter().enumerate() {
                assert_eq!(other.join().unwrap(), [2.0 * i as f32]);
            }
        });
        assert_eq!(*lock(&sizes), [1, 4, 1]);
        assert_eq!(lock(&queue.state).running, 0);
    }

    #[test]
    fn a_panic_reaches_its_caller_and_an_error_the_others() {
        let queue = Queue::new(1, 5, 4);
        std::thread::scope(|scope| {
            let (go, gate) = channel::<()>();
            let queue = &queue;
            let first = scope.spawn(move || {
                values(queue.answer(vec![vec![9.0]], |batch| {
                    gate.recv().unwrap();
                    double(batch)
                }))
            });
            while lock(&queue.state).running == 0 {
                std::thread::yield_now();
            }
            let second = scope.spawn(|| queue.answer(vec![vec![1.0]], |_| panic!("on purpose")));
            wait_for_waiting(queue, 1);
            let third = scope.spawn(|| queue.answer(vec![vec![1.0]], double));
            wait_for_waiting(queue, 2);
            go.send(()).unwrap();
            assert_eq!(first.join().unwrap(), [18.0]);
            assert!(second.join().is_err());
            assert!(third.join().unwrap().unwrap().unwrap_err().contains("panicked"));
        });
        assert_eq!(values(queue.answer(vec![vec![3.0]], double)), [6.0], "the queue still works");
    }

    #[test]
    fn a_request_from_within_a_batch_does_not_wait() {
        let queue = Queue::new(1, 0, 4);
        let nested = |batch: &[Arc<Request>]| {
            assert_eq!(values(queue.answer(vec![vec![5.0]], double)), [10.0]);
            double(batch)
        };
        assert_eq!(values(queue.answer(vec![vec![1.0], vec![2.0]], nested)), [2.0, 4.0]);
    }

    #[test]
    fn many_threads_get_their_own_answers_and_no_more_batches_run_than_there_are_places() {
        let (queue, running) = (Queue::new(2, 100, 8), AtomicUsize::new(0));
        let run = |batch: &[Arc<Request>]| {
            assert!(running.fetch_add(1, Ordering::SeqCst) < 2);
            let answers = double(batch);
            running.fetch_sub(1, Ordering::SeqCst);
            answers
        };
        std::thread::scope(|scope| {
            for i in 0..16 {
                let (queue, run) = (&queue, &run);
                scope.spawn(move || {
                    for j in 0..200 {
                        let x = (1000 * i + j) as f32;
                        assert_eq!(values(queue.answer(vec![vec![x]], run)), [2.0 * x]);
                    }
                });
            }
        });
        let state = lock(&queue.state);
        assert_eq!((state.running, state.waiting.len()), (0, 0));
    }
}
