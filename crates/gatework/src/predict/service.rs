//! One model, many callers.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use gatework_learn::data::scale::{Fit, Scaling};
use gatework_learn::data::{Batch, Table};
use gatework_learn::forecast::context::{Context, ContextError, Prediction, Prepared};
use gatework_learn::forecast::predictor::{MOST_ROWS, PredictError, Predictor};
use gatework_learn::forecast::{Forecast, ForecasterError, Specification};

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
        Settings { remembered: 4096, most_rows: MOST_ROWS, new_series: false }
    }
}

/// A forecast that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The model cannot be read.
    #[error(transparent)]
    Model(#[from] PredictError),
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
        value: f32,
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
            most_rows: settings.most_rows.clamp(1, MOST_ROWS),
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
        self.specification.input + self.scaling().difference
    }

    fn scaling(&self) -> &Scaling {
        &self.context.scaler.scaling
    }

    /// Forecasts what comes after the values of a series. Waits for its turn; may be called from any thread.
    pub fn predict(&self, id: &str, history: &[f32]) -> Result<Prediction, ServiceError> {
        self.check_values_alone()?;
        let fit = self.fit(id, history)?;
        self.check(id, history)?;
        let mut window = history[history.len() - self.needed()..].to_vec();
        fit.apply(self.scaling(), &mut window);
        window.drain(..self.scaling().difference);
        self.restore(&fit, window, history)
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
            predictions.push(self.context.restore(&fit, &forecast, 0, &series.values));
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

    /// Forecasts a window that is scaled already.
    pub(super) fn restore(
        &self,
        fit: &Fit,
        window: Vec<f32>,
        history: &[f32],
    ) -> Result<Prediction, ServiceError> {
        let forecast = self.ask(window)?.wait()?;
        Ok(self.context.restore(fit, &forecast, 0, history))
    }

    /// How a series is scaled.
    pub(super) fn fit(&self, id: &str, history: &[f32]) -> Result<Fit, ServiceError> {
        match self.context.scaler.of(id) {
            Some(fit) => Ok(*fit),
            None if self.settings.new_series => Ok(self.context.scaler.learn_one(history)),
            None => Err(ServiceError::UnknownSeries { id: id.to_string() }),
        }
    }

    pub(super) fn check(&self, id: &str, history: &[f32]) -> Result<(), ServiceError> {
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
pub(super) mod tests {
    use super::*;
    use gatework_learn::data::Part;
    use gatework_learn::forecast::Forecaster;
    use gatework_learn::forecast::conformal::Errors;
    use gatework_learn::forecast::dataset::Dataset;
    use gatework_learn::forecast::experiment::{BUILT_IN, Loaded};
    use std::fmt::Write as _;

    /// The model of the built-in data with start values that were not trained, and the values of the series.
    pub fn untrained(change: impl Fn(String) -> String) -> (Predictor, Dataset) {
        let text = change(BUILT_IN[0].1.to_string());
        let loaded = Loaded::parse(&text, "x", Path::new(".")).unwrap();
        let dataset = Dataset::load(&loaded).unwrap();
        let experiment = &loaded.experiment;
        let mut errors = Errors::new(experiment.horizon, dataset.season);
        errors.add(&dataset.table.series[0].values, &[1.0; 12], &[0.0; 12]);
        let conformal = errors.calibrate(&experiment.intervals);
        let context = Context { conformal, ..dataset.context(experiment) };
        let specification = experiment.specification();
        let params = specification.params(1).unwrap();
        (Predictor::new(Forecaster::new(specification, params).unwrap(), context), dataset)
    }

    fn service(settings: &Settings) -> (Service, Vec<f32>) {
        let (predictor, dataset) = untrained(|text| text);
        (Service::new(predictor, settings).unwrap(), dataset.table.series[0].values.clone())
    }

    fn near(a: &Prediction, b: &Prediction) -> bool {
        let pairs = a.values.iter().zip(&b.values);
        pairs.clone().count() == 12 && pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-3 * b.abs())
    }

    #[test]
    fn a_window_is_forecast_as_that_of_a_table() {
        for difference in ["", "\ndifference = 1", "\ndifference = 12"] {
            let change = |text: String| text.replace("log = true", &format!("log = true{difference}"));
            let (mut predictor, dataset) = untrained(change);
            let windows = dataset.windows(Part::Test, 1);
            let expected = predictor.predict_windows(&windows, &[0], &dataset.table).unwrap();
            let service = Service::new(predictor, &Settings::default()).unwrap();
            let found = service.predict("Passengers", &dataset.table.series[0].values[..132]).unwrap();
            assert!(near(&found, &expected[0]), "{found:?} for {expected:?}");
            assert_eq!(found.intervals.len(), 2);
        }
    }

    #[test]
    fn what_comes_again_is_remembered_and_what_differs_is_not_mistaken() {
        let (service, values) = service(&Settings::default());
        let first = service.predict("Passengers", &values).unwrap();
        for _ in 0..9 {
            assert_eq!(service.predict("Passengers", &values).unwrap(), first);
        }
        assert_eq!(service.statistics(), Statistics { hits: 9, misses: 1, batches: 1 });
        let mut other = values.clone();
        let last = other.len() - 1;
        other[last] += 1.0;
        assert_ne!(service.predict("Passengers", &other).unwrap(), first);
        assert_eq!(service.statistics().misses, 2);
    }

    #[test]
    fn concurrent_callers_get_their_own_forecasts_in_shared_batches() {
        let (service, values) = service(&Settings { remembered: 0, ..Settings::default() });
        let alone: Vec<Prediction> =
            (0..8).map(|i| service.predict("Passengers", &values[..100 + i]).unwrap()).collect();
        let before = service.statistics().batches;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                for (i, expected) in alone.iter().enumerate() {
                    let (service, values) = (&service, &values);
                    scope.spawn(move || {
                        for _ in 0..25 {
                            let found = service.predict("Passengers", &values[..100 + i]).unwrap();
                            assert!(near(&found, expected), "{i}");
                        }
                    });
                }
            }
        });
        let batches = service.statistics().batches - before;
        assert!(batches <= 800, "{batches} batches for 800 requests");
    }

    #[test]
    fn those_who_wait_go_together() {
        let (predictor, dataset) = untrained(|text| text);
        let (requests, received) = channel();
        let shared = Shared { cache: Cache::new(16), statistics: Statistics::default() };
        let shared = Arc::new(Mutex::new(shared));
        let answers: Vec<_> = (0..5)
            .map(|i| {
                let (answer, answered) = sync_channel(1);
                let window = dataset.scaled.series[0].values[i..i + 24].to_vec();
                requests.send(Request { window, answer }).unwrap();
                answered
            })
            .collect();
        drop(requests);
        Worker { predictor, most_rows: 4, shared: Arc::clone(&shared), received }.work();
        assert!(answers.iter().all(|answer| answer.recv().unwrap().is_ok()));
        assert_eq!(lock(&shared).statistics.batches, 2, "four, then one");
    }

    #[test]
    fn bad_requests_are_named() {
        let (service, mut values) = service(&Settings::default());
        let message = |result: Result<Prediction, ServiceError>| result.unwrap_err().to_string();
        let unknown = message(service.predict("Pasengers", &values));
        assert!(unknown.contains("series \"Pasengers\" was not there in training"), "{unknown}");
        let short = message(service.predict("Passengers", &values[..23]));
        assert!(short.contains("23 values were given, but the model reads 24"), "{short}");
        values[130] = f32::NAN;
        let missing = message(service.predict("Passengers", &values));
        assert!(missing.contains("value 130 of the history is NaN"), "{missing}");
        assert!(service.predict("Passengers", &values[..130]).is_ok());
    }

    #[test]
    fn tables_bring_their_columns() {
        let (mut predictor, table) = with_columns();
        let prepared = predictor.context().prepare(predictor.specification(), table.clone()).unwrap();
        let expected = predictor.predict_windows(&prepared.windows, &[0, 1], &prepared.table).unwrap();
        let service = Service::new(predictor, &Settings::default()).unwrap();
        let found = service.predict_table(&table).unwrap();
        assert_eq!(found.len(), 2);
        for (found, expected) in found.iter().zip(&expected) {
            assert!(
                found.values.iter().zip(&expected.values).all(|(a, b)| (a - b).abs() < 1e-3),
                "{found:?}"
            );
        }
        assert_eq!(service.predict_table(&table).unwrap(), found);
        assert_eq!((service.statistics().hits, service.statistics().misses), (2, 2));
        // A column that changes is another question.
        let mut other = table.clone();
        other.series[1].future[45] += 1.0;
        assert_ne!(service.predict_table(&other).unwrap()[1], found[1]);
        let message = service.predict("a", &table.series[0].values).unwrap_err().to_string();
        assert!(message.contains("give it a table"), "{message}");
        let mut short = table.clone();
        short.series[0].future.truncate(41);
        let message = service.predict_table(&short).unwrap_err().to_string();
        assert!(message.contains("known in advance have 1 rows"), "{message}");
    }

    /// A model with columns of every kind, not trained, and a table of two series.
    pub fn with_columns() -> (Predictor, Table) {
        let mut text = String::from("unique_id,ds,y,price,holiday,size\n");
        for id in ["a", "b"] {
            for day in 0..44 {
                let y = if day < 40 { (day % 7 + day).to_string() } else { String::new() };
                let price = if day < 40 { (day % 5).to_string() } else { String::new() };
                let size = id.len() + usize::from(id == "b");
                let holiday = u32::from(day % 6 == 0);
                let _ = writeln!(text, "{id},{day},{y},{price},{holiday},{size}");
            }
        }
        let experiment =
            "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = 'nlinear'\nhorizon = 4\ninput = 8
            [columns]\npast = ['price']\nfuture = ['holiday']\nstatic = ['size']
            [calendar]\nfourier = [{ period = 7, order = 1 }]";
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.csv"), text).unwrap();
        let loaded = Loaded::parse(experiment, "x", folder.path()).unwrap();
        let dataset = Dataset::load(&loaded).unwrap();
        let specification = loaded.experiment.specification();
        let params = specification.params(1).unwrap();
        let context = dataset.context(&loaded.experiment);
        let table = gatework_learn::forecast::dataset::read(&loaded).unwrap();
        (Predictor::new(Forecaster::new(specification, params).unwrap(), context), table)
    }

    #[test]
    fn new_series_are_scaled_by_themselves_if_that_is_wanted() {
        let (service, values) = service(&Settings { new_series: true, ..Settings::default() });
        assert!(service.predict("new", &values).is_ok());
    }
}
