//! One model, many callers.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use crate::data::scale::{Fit, Scaling};
use crate::data::{Batch, Table};
use crate::prediction::{
    Context, ContextError, MAX_ROWS, NotFinite, PredictError, Prediction, Predictor, Prepared,
};
use crate::{Forecast, ForecasterError, Specification};

use super::cache::{Cache, Statistics};

/// How a service works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Results that are remembered, at least.
    pub remembered: usize,
    /// Windows that go through the model together, at most.
    pub most_rows: usize,
    /// Series that were not there in training are scaled by their own values, instead of being refused.
    pub new_series: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { remembered: 4096, most_rows: MAX_ROWS, new_series: false }
    }
}

/// A forecast that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The model cannot be read.
    #[error(transparent)]
    Model(#[from] PredictError),
    /// A forecast that is no number.
    #[error(transparent)]
    Forecast(#[from] NotFinite),
    /// A series that the model does not know.
    #[error("series {id:?} was not there in training; with new_series it is scaled by its own values")]
    UnknownSeries {
        /// The series.
        id: String,
    },
    /// Too few values.
    #[error("series {id:?}: {found} values were given, but the model reads {needed}")]
    TooShort {
        /// The series.
        id: String,
        /// Values that were given.
        found: usize,
        /// Values that are needed.
        needed: usize,
    },
    /// A value that is no number.
    #[error("series {id:?}: value {place} of the history is {value}")]
    NotFinite {
        /// The series.
        id: String,
        /// Where it is, from 0.
        place: usize,
        /// The value.
        value: f64,
    },
    /// The model needs columns, and only values were given.
    #[error("the model reads columns beside the values: give it a table with them")]
    NeedsColumns,
    /// A table that the model cannot forecast.
    #[error(transparent)]
    Table(#[from] ContextError),
    /// A stream follows one series.
    #[error("a stream follows one series, but the table has {0}")]
    NotOneSeries(usize),
    /// Columns of a new observation that are not those of the model.
    #[error("{found} {kind} columns were given with an observation, but the model reads {needed}")]
    Columns {
        /// Past columns, or those known in advance.
        kind: &'static str,
        /// How many were given.
        found: usize,
        /// How many are needed.
        needed: usize,
    },
    /// The model failed.
    #[error("{0}")]
    Failed(String),
    /// No thread to be had.
    #[error("cannot start the thread of the model: {0}")]
    Thread(#[from] std::io::Error),
    /// The thread of the model is gone.
    #[error("the thread of the model has ended")]
    Ended,
}

/// What a forecast in the model's own units depends on: the bits of its window. (The service has one model.)
type Key = Box<[u32]>;

/// A window that waits, and where its forecast goes.
struct Request {
    /// Values, then past columns, columns known in advance and static columns, as the model sees them.
    window: Vec<f32>,
    answer: SyncSender<Result<Arc<Forecast>, String>>,
}

/// Cache and counters, shared with the thread of the model.
struct Shared {
    cache: Cache<Key, Arc<Forecast>>,
    statistics: Statistics,
}

/// One model, many callers.
pub struct Service {
    context: Context,
    specification: Specification,
    settings: Settings,
    shared: Arc<Mutex<Shared>>,
    requests: Option<Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// Serves the model of a run folder, or a model file.
    pub fn open(path: &Path, settings: &Settings) -> Result<Service, ServiceError> {
        let file = if path.is_dir() { path.join("model.safetensors") } else { path.to_path_buf() };
        Service::new(Predictor::load(&file)?, settings)
    }

    /// Serves a model.
    pub fn new(predictor: Predictor, settings: &Settings) -> Result<Service, ServiceError> {
        let specification = predictor.specification().clone();
        let shared = Shared { cache: Cache::new(settings.remembered), statistics: Statistics::default() };
        let shared = Arc::new(Mutex::new(shared));
        let (requests, received) = channel();
        let context = predictor.context().clone();
        let worker = Worker {
            predictor,
            most_rows: settings.most_rows.clamp(1, MAX_ROWS),
            shared: Arc::clone(&shared),
            received,
        };
        let thread = std::thread::Builder::new().name("forecasts".into()).spawn(move || worker.work())?;
        Ok(Service {
            context,
            specification,
            settings: *settings,
            shared,
            requests: Some(requests),
            thread: Some(thread),
        })
    }

    /// What the model knows of its data.
    pub fn context(&self) -> &Context {
        &self.context
    }

    /// The network.
    pub fn specification(&self) -> &Specification {
        &self.specification
    }

    /// How often results were found.
    pub fn statistics(&self) -> Statistics {
        lock(&self.shared).statistics
    }

    /// Values that a forecast needs: the input, and those that differences are taken to.
    pub fn needed(&self) -> usize {
        self.context.needed(&self.specification)
    }

    fn scaling(&self) -> &Scaling {
        &self.context.scaler.scaling
    }

    /// Forecasts what comes after the values of a series. Waits for its turn; may be called from any thread.
    pub fn predict(&self, id: &str, history: &[f64]) -> Result<Prediction, ServiceError> {
        self.check_values_alone()?;
        let fit = self.fit(id, history)?;
        self.check(id, history)?;
        let mut window = history[history.len() - self.needed()..].to_vec();
        fit.apply(self.scaling(), &mut window);
        self.restore(id, &fit, seen(&window[self.scaling().difference..]), history)
    }

    /// Forecasts what comes after every series of a table, which may have columns beside the values.
    pub fn predict_table(&self, table: &Table) -> Result<Vec<Prediction>, ServiceError> {
        let prepared = self.prepare(table)?;
        let windows = &prepared.windows;
        let mut batch = Batch::new(windows.shape(1));
        let mut answers = Vec::with_capacity(windows.len());
        for number in 0..windows.len() as u32 {
            windows.fill(&[number], &mut batch).map_err(ContextError::from)?;
            answers.push(self.ask(columns_of(&batch).concat())?);
        }
        let mut predictions = Vec::with_capacity(answers.len());
        for (series, answer) in prepared.table.series.iter().zip(answers) {
            let fit = self.fit(&series.id, &series.values)?;
            let forecast = answer.wait()?;
            let prediction = self.context.restore(&series.id, &fit, &forecast, 0, &series.values);
            predictions.push(prediction.checked(&series.id)?);
        }
        Ok(predictions)
    }

    /// Scales a table, and finds the windows at its end.
    pub(super) fn prepare(&self, table: &Table) -> Result<Prepared, ServiceError> {
        if self.settings.new_series {
            let scaler = self.context.scaler.with_new_series(table);
            let context = Context { scaler, ..self.context.clone() };
            return Ok(context.prepare(&self.specification, table.clone())?);
        }
        Ok(self.context.prepare(&self.specification, table.clone())?)
    }

    /// An error if the model reads more than values.
    pub(super) fn check_values_alone(&self) -> Result<(), ServiceError> {
        let Specification { past_columns, future_columns, static_columns, .. } = self.specification;
        if past_columns + future_columns + static_columns > 0 {
            return Err(ServiceError::NeedsColumns);
        }
        Ok(())
    }

    /// Forecasts a window of a series that is scaled already.
    pub(super) fn restore(
        &self,
        id: &str,
        fit: &Fit,
        window: Vec<f32>,
        history: &[f64],
    ) -> Result<Prediction, ServiceError> {
        let forecast = self.ask(window)?.wait()?;
        Ok(self.context.restore(id, fit, &forecast, 0, history).checked(id)?)
    }

    /// How a series is scaled.
    pub(super) fn fit(&self, id: &str, history: &[f64]) -> Result<Fit, ServiceError> {
        match self.context.scaler.of(id) {
            Some(fit) => Ok(*fit),
            None if self.settings.new_series => Ok(self.context.scaler.learn_one(history)),
            None => Err(ServiceError::UnknownSeries { id: id.to_string() }),
        }
    }

    pub(super) fn check(&self, id: &str, history: &[f64]) -> Result<(), ServiceError> {
        let (found, needed) = (history.len(), self.needed());
        if found < needed {
            return Err(ServiceError::TooShort { id: id.to_string(), found, needed });
        }
        match history.iter().enumerate().skip(found - needed).find(|(_, value)| !value.is_finite()) {
            Some((place, value)) => Err(ServiceError::NotFinite { id: id.to_string(), place, value: *value }),
            None => Ok(()),
        }
    }

    /// The forecast of a window in the model's own units: remembered, or asked of its thread.
    fn ask(&self, window: Vec<f32>) -> Result<Answer, ServiceError> {
        {
            let mut shared = lock(&self.shared);
            if let Some(found) = shared.cache.get(&key(&window)) {
                shared.statistics.hits += 1;
                return Ok(Answer::Known(found));
            }
            shared.statistics.misses += 1;
        }
        let (answer, answered) = sync_channel(1);
        let requests = self.requests.as_ref().ok_or(ServiceError::Ended)?;
        requests.send(Request { window, answer }).map_err(|_| ServiceError::Ended)?;
        Ok(Answer::Asked(answered))
    }
}

/// A forecast that is known or on its way.
enum Answer {
    Known(Arc<Forecast>),
    Asked(Receiver<Result<Arc<Forecast>, String>>),
}

impl Answer {
    fn wait(self) -> Result<Arc<Forecast>, ServiceError> {
        match self {
            Answer::Known(forecast) => Ok(forecast),
            Answer::Asked(answer) => {
                answer.recv().map_err(|_| ServiceError::Ended)?.map_err(ServiceError::Failed)
            }
        }
    }
}

/// The numbers of a batch that a forecast depends on.
fn columns_of(batch: &Batch) -> [&[f32]; 4] {
    [&batch.past, &batch.past_columns, &batch.future_columns, &batch.static_columns]
}

impl Drop for Service {
    fn drop(&mut self) {
        // Without requests the thread ends.
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Scaled values as the model sees them.
pub(super) fn seen(scaled: &[f64]) -> Vec<f32> {
    scaled.iter().map(|value| *value as f32).collect()
}

/// The key of a window.
fn key(window: &[f32]) -> Key {
    window.iter().map(|value| value.to_bits()).collect()
}

/// The thread of the model.
struct Worker {
    predictor: Predictor,
    most_rows: usize,
    shared: Arc<Mutex<Shared>>,
    received: Receiver<Request>,
}

impl Worker {
    /// Answers until nobody can ask any more. Whoever waits when a batch begins is part of it; nobody waits for a
    /// batch to fill.
    fn work(mut self) {
        let mut batch = Batch::new(self.predictor.specification().shape(0));
        while let Ok(first) = self.received.recv() {
            let mut waiting = vec![first];
            while waiting.len() < self.most_rows {
                let Ok(next) = self.received.try_recv() else { break };
                waiting.push(next);
            }
            self.answer(waiting, &mut batch);
        }
    }

    fn answer(&mut self, waiting: Vec<Request>, batch: &mut Batch) {
        batch.set_rows(waiting.len());
        batch.target.fill(0.0);
        for (row, request) in waiting.iter().enumerate() {
            write_row(batch, row, waiting.len(), &request.window);
        }
        let result = self.predictor.forecaster_mut().predict(batch);
        let result = result.map_err(|error: ForecasterError| error.to_string());
        lock(&self.shared).statistics.batches += 1;
        for (row, request) in waiting.into_iter().enumerate() {
            let forecast = result.as_ref().map(|all| Arc::new(one_row(all, row))).map_err(Clone::clone);
            if let Ok(forecast) = &forecast {
                lock(&self.shared).cache.insert(key(&request.window), Arc::clone(forecast));
            }
            // A caller that is gone needs no answer.
            let _ = request.answer.send(forecast);
        }
    }
}

/// One row of a forecast.
fn one_row(all: &Forecast, row: usize) -> Forecast {
    let width = all.horizon * all.outputs;
    Forecast { rows: 1, values: all.values[row * width..][..width].to_vec(), kind: all.kind.clone(), ..*all }
}

/// Writes a window into a row of a batch of so many.
fn write_row(batch: &mut Batch, row: usize, rows: usize, mut window: &[f32]) {
    let parts =
        [&mut batch.past, &mut batch.past_columns, &mut batch.future_columns, &mut batch.static_columns];
    for part in parts {
        let width = part.len() / rows;
        let (numbers, rest) = window.split_at(width);
        part[row * width..][..width].copy_from_slice(numbers);
        window = rest;
    }
}

#[cfg(test)]
mod tests;
