//! Tests of every model.

use super::*;
use crate::Loss;
use crate::data::Batch;
use crate::data::BatchSource;
use crate::network::distribution::Distribution;
use crate::network::feed::write_padded;
use crate::specification::{Mode, Specification};
use crate::test_signal::{NOISE, PERIODS, Signal, seasonal_naive};
use crate::training::ForecastTask;
use gatework_engine::Program;
use gatework_engine::program::{WeightFormat, Weights};
use gatework_train::optim::{Clip, Optimizer};
use gatework_train::params::Params;
use gatework_train::schedule::{LearningRate, Schedule};
use gatework_train::trainer::{Attempt, Outcome, Settings, Task, TaskError};
use rayon::prelude::*;
use std::sync::LazyLock;

/// Returns a specification for the test signal; the input is two periods of its longer season.
fn specification(model: Model) -> Specification {
    // Instance normalisation, since the level of the signal leaves the range seen in training.
    let (loss, normalization) = match model {
        Model::DeepAr(_) => (Loss::Gaussian, Some(Normalization::Instance)),
        _ => (Loss::Mse, None),
    };
    Specification {
        model,
        loss,
        normalization,
        input: 24,
        horizon: 8,
        past_columns: 0,
        future_columns: 0,
        static_columns: 0,
    }
}

/// Returns a small instance of every model.
fn every_model() -> Vec<Model> {
    let stack = |basis| Stack { basis, blocks: 2, layers: 2, width: 48, shared: false };
    let season = |period: usize| Season { period: period as f64, order: 2 };
    vec![
        Model::DLinear(DLinear { moving_average: 7 }),
        Model::NLinear(NLinear {}),
        Model::Decomposition(Decomposition {
            seasons: PERIODS.map(season).to_vec(),
            ..Decomposition::default()
        }),
        Model::NBeats(NBeats { stacks: vec![stack(Basis::Generic)] }),
        Model::NBeats(NBeats {
            stacks: [Basis::Trend, Basis::Seasonality]
                .map(|basis| Stack { shared: true, ..stack(basis) })
                .to_vec(),
        }),
        Model::Nhits(Nhits { width: 48, ..Nhits::default() }),
        Model::Tcn(Tcn { channels: vec![12, 12, 12], kernel: 3, dropout: 0.0 }),
        Model::Gru(Gru { hidden: 24, layers: 1, dropout: 0.0 }),
        Model::Lstm(Lstm { hidden: 24, layers: 1, attention: true, dropout: 0.0 }),
        Model::Transformer(Transformer {
            patch: 6,
            stride: 3,
            width: 16,
            heads: 2,
            layers: 1,
            feed_forward: 32,
            dropout: 0.0,
            head_dropout: 0.0,
        }),
        Model::Tide(Tide {
            hidden: 32,
            encoder: 1,
            decoder: 2,
            decoded: 4,
            step_hidden: 16,
            projected: 2,
            dropout: 0.0,
        }),
        Model::TsMixer(TsMixer { width: 16, feed_forward: 16, layers: 2, dropout: 0.0 }),
        Model::ITransformer(ITransformer { width: 32, heads: 4, layers: 1, feed_forward: 32, dropout: 0.0 }),
        Model::DeepAr(DeepAr { hidden: 24, layers: 1, dropout: 0.0, samples: 50 }),
    ]
}

fn settings(updates: u64) -> Settings {
    Settings {
        updates,
        rate: LearningRate { base: 0.01, schedule: Schedule::Cosine { minimum: 1e-4 }, warmup: 0 },
        optimizer: Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 },
        clip: Some(Clip::Norm(1.0)),
        stable: 1,
        patience: None,
        scales_loss: false,
    }
}

/// Trains a model on the test signal and returns its best validation loss and parameters.
fn trained(specification: &Specification, updates: u64, seed: u64) -> (f64, Params) {
    let settings = settings(updates);
    let mut task = ForecastTask::new(specification, Signal::new(specification, 32), seed).unwrap();
    let mut attempt = Attempt::new(seed, &settings, task.params().len());
    while attempt.outcome == Outcome::Running {
        attempt.advance(&mut task, &settings).unwrap();
    }
    let best = attempt.best.unwrap();
    let mut params = task.params().clone();
    params.values.copy_from_slice(&best.values);
    (best.hard, params)
}

/// Forecasts a batch.
fn forecast(specification: &Specification, params: &Params, batch: &Batch) -> Vec<f32> {
    let (graph, _) = specification.network(batch.shape.rows, Mode::Prediction).unwrap();
    let mut runner = Program::new(&graph).unwrap().runner();
    for tensor in params.tensors() {
        runner.write(&tensor.name, &params.values[tensor.range.clone()]).unwrap();
    }
    write_padded(&mut runner, batch, 0..batch.shape.rows, batch.shape.rows, &mut Vec::new()).unwrap();
    runner.run();
    runner.read::<f32>("forecast").unwrap().to_vec()
}

/// A trained model.
struct Learned {
    specification: Specification,
    params: Params,
    /// Mean squared validation error of the forecast and of the naive forecast.
    error: f64,
    repeated: f64,
}

/// Every model, trained once for all tests.
static LEARNED: LazyLock<Vec<Learned>> = LazyLock::new(|| {
    let models = every_model();
    models.into_par_iter().map(|model| learned(&specification(model))).collect()
});

/// Trains up to three seeds and returns the best: a single seed may end in a poor optimum.
fn learned(specification: &Specification) -> Learned {
    let attempt = |seed| {
        let (_, params) = trained(specification, 401, seed);
        let (error, repeated) = errors(specification, &params);
        Learned { specification: specification.clone(), params, error, repeated }
    };
    let mut best = attempt(1);
    for seed in 2..4 {
        if best.error < NEAR_NOISE {
            break;
        }
        let other = attempt(seed);
        best = if other.error < best.error { other } else { best };
    }
    best
}

/// A mean squared error near that of the noise; linear regression reaches 1.2 times the variance of the noise.
const NEAR_NOISE: f64 = 2.0 * NOISE * NOISE;

/// Returns the mean squared validation error of a forecast and of the naive forecast.
fn errors(specification: &Specification, params: &Params) -> (f64, f64) {
    let mut signal = Signal::new(specification, 1);
    let (mut batch, outputs) = (Batch::default(), specification.loss.outputs());
    let level = specification.loss.distribution().map_or(0, Distribution::location);
    let (mut errors, mut count) = ([0.0, 0.0], 0.0);
    for index in 0.. {
        if !signal.validation(index, &mut batch).unwrap() {
            break;
        }
        let forecast = forecast(specification, params, &batch);
        for (i, &target) in batch.target.iter().enumerate() {
            let last = batch.past[(i / specification.horizon + 1) * specification.input - 1];
            errors[0] += f64::from(forecast[i * outputs + level] - target).powi(2);
            errors[1] += f64::from(last - target).powi(2);
            count += 1.0;
        }
    }
    (errors[0] / count, errors[1] / count)
}

#[test]
fn every_model_learns_the_signal_up_to_its_noise() {
    for Learned { specification, error, .. } in &*LEARNED {
        let naive = seasonal_naive(specification);
        assert!(*error < NEAR_NOISE && *error < 0.25 * naive, "{}: {error}", specification.model.name());
    }
}

#[test]
fn every_model_beats_the_naive_forecast() {
    for Learned { specification, params, error, repeated } in &*LEARNED {
        assert!(error < &(0.1 * repeated), "{}: {error} for {repeated}", specification.model.name());
        let mut batch = Batch::default();
        Signal::new(specification, 1).fill(&[100], &mut batch);
        let forecast = forecast(specification, params, &batch);
        let outputs = specification.loss.outputs();
        assert!(forecast.iter().step_by(outputs).any(|x| (x - forecast[0]).abs() > 0.3), "{forecast:?}");
    }
}

#[test]
fn the_graph_forecasts_the_whole_horizon() {
    for model in every_model() {
        let specification = specification(model);
        let (graph, _) = specification.network(2, Mode::Prediction).unwrap();
        let (name, id) = &graph.outputs()[0];
        assert_eq!((graph.outputs().len(), name.as_str()), (1, "forecast"));
        assert_eq!(*graph.shape(*id), [2, specification.horizon, specification.loss.outputs()]);
    }
}

#[test]
fn every_parameter_has_a_gradient_and_is_updated() {
    for model in every_model() {
        let specification = Specification { future_columns: 2, static_columns: 1, ..specification(model) };
        let mut task = ForecastTask::new(&specification, Signal::new(&specification, 16), 1).unwrap();
        let settings = settings(4);
        let before = task.params().clone();
        let mut attempt = Attempt::new(1, &settings, before.len());
        while attempt.outcome == Outcome::Running {
            attempt.advance(&mut task, &settings).unwrap();
            for tensor in before.tensors() {
                let moved = task.params().grads[tensor.range.clone()].iter().any(|&g| g != 0.0);
                assert!(moved, "{}: {} has no gradient", specification.model.name(), tensor.name);
            }
        }
        for tensor in before.tensors() {
            let range = tensor.range.clone();
            assert_ne!(before.values[range.clone()], task.params().values[range], "{}", tensor.name);
        }
    }
}

#[test]
fn forecasts_depend_on_the_order_of_the_steps() {
    for model in every_model() {
        let specification = specification(model);
        let params = specification.params(1).unwrap();
        let mut batch = Batch::default();
        Signal::new(&specification, 1).fill(&[100], &mut batch);
        let right = forecast(&specification, &params, &batch);
        // Swapping two steps in the middle keeps values, mean, ends and standard deviation.
        batch.past.swap(10, 13);
        let swapped = forecast(&specification, &params, &batch);
        assert_ne!(right, swapped, "{}", specification.model.name());
    }
}

#[test]
fn recurrent_models_read_the_window_step_by_step() {
    let recurrent = |model: &Model| matches!(model, Model::Gru(_) | Model::Lstm(_) | Model::DeepAr(_));
    for model in every_model().into_iter().filter(recurrent) {
        let count = |input: usize| {
            let specification = Specification { input, ..specification(model.clone()) };
            specification.params(1).unwrap().len()
        };
        // A cell that read the whole window in one step would have a weight per value.
        assert_eq!(count(24), count(48), "{}", model.name());
    }
}

#[test]
fn every_model_reads_its_covariates() {
    for model in every_model() {
        let past_columns = usize::from(!matches!(model, Model::DeepAr(_)));
        let specification =
            Specification { past_columns, future_columns: 2, static_columns: 1, ..specification(model) };
        let params = specification.params(1).unwrap();
        let mut batch = Batch::default();
        Signal::new(&specification, 1).fill(&[100], &mut batch);
        let right = forecast(&specification, &params, &batch);
        let mut changed: Vec<Batch> = vec![batch.clone(); 3];
        changed[0].past_columns.iter_mut().for_each(|x| *x += 1.0);
        // The last step of the horizon only.
        changed[1].future_columns.iter_mut().rev().take(2).for_each(|x| *x += 1.0);
        changed[2].static_columns.iter_mut().for_each(|x| *x += 1.0);
        for (kind, changed) in changed.iter().enumerate().skip(1 - past_columns) {
            let other = forecast(&specification, &params, changed);
            assert_ne!(right, other, "{}: covariates of kind {kind}", specification.model.name());
        }
    }
}

/// The test signal as counts.
struct Counts(Signal);

impl BatchSource for Counts {
    fn updates_per_epoch(&self) -> u64 {
        self.0.updates_per_epoch()
    }

    fn training(&mut self, update: u64, batch: &mut Batch) -> Result<(), TaskError> {
        self.0.training(update, batch)?;
        batch.past.iter_mut().chain(&mut batch.target).for_each(|x| *x = (2.0 + 2.0 * *x).round().max(0.0));
        Ok(())
    }

    fn validation(&mut self, _: u64, _: &mut Batch) -> Result<bool, TaskError> {
        Ok(false)
    }
}

#[test]
fn every_model_supports_every_loss() {
    let losses = ["mae", "huber", "quantiles", "gaussian", "student-t", "negative-binomial"];
    for model in every_model() {
        for loss in losses {
            let loss: Loss = serde_json::from_str(&format!("{loss:?}")).unwrap();
            if matches!(model, Model::DeepAr(_)) && loss.distribution().is_none() {
                continue;
            }
            let normalization = (loss == Loss::NegativeBinomial).then_some(Normalization::Scale);
            let specification = Specification { loss, normalization, ..specification(model.clone()) };
            let mut task =
                ForecastTask::new(&specification, Counts(Signal::new(&specification, 4)), 1).unwrap();
            let losses = task.step(0).unwrap();
            assert!(losses.soft.is_finite(), "{specification:?}: {losses:?}");
        }
    }
}

#[test]
fn quantised_weights_do_not_depend_on_the_batch_size() {
    let quantized = |specification: &Specification, rows: usize| {
        let (graph, bindings) = specification.network(rows, Mode::Prediction).unwrap();
        let names: Vec<&str> = bindings.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
        let weights = Weights::builder(&graph, &names, WeightFormat::Int8).unwrap();
        weights.names_of(WeightFormat::Int8).into_iter().map(String::from).collect::<Vec<_>>()
    };
    for model in every_model().into_iter().filter(|model| !matches!(model, Model::DeepAr(_))) {
        let specification = specification(model);
        let one = quantized(&specification, 1);
        for rows in [2, 3, 8, 64] {
            assert_eq!(quantized(&specification, rows), one, "{} {rows}", specification.model.name());
        }
    }
}

#[test]
fn default_settings_are_valid_and_written_as_a_name() {
    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        model: Model,
    }
    for name in Model::NAMES {
        let file: File = toml::from_str(&format!("model = '{name}'")).unwrap();
        assert_eq!(file.model.name(), *name);
        let table: File = toml::from_str(&format!("[model]\nkind = '{name}'")).unwrap();
        assert_eq!(file, table);
        let again: File = toml::from_str(&toml::to_string(&file).unwrap()).unwrap();
        assert_eq!(file, again);
        let specification = Specification { input: 48, horizon: 24, ..specification(file.model) };
        assert_eq!(specification.check(), Ok(()), "{name}");
        let short = Specification { input: 3, horizon: 1, ..specification.clone() };
        assert!(short.params(1).is_ok(), "{name}: {:?}", short.params(1).err());
        let unknown = toml::from_str::<File>(&format!("model = {{ kind = '{name}', heds = 3 }}"));
        assert!(unknown.unwrap_err().to_string().contains("heds"), "{name}");
    }
}

#[test]
fn invalid_settings_are_located() {
    let rejected = |model: Model, word: &str| {
        let error = specification(model).check().unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    rejected(Model::DLinear(DLinear { moving_average: 4 }), "moving_average is 4, but must be odd");
    rejected(Model::Nhits(Nhits { pooling: vec![2], ..Nhits::default() }), "downsampling has 3");
    rejected(Model::Nhits(Nhits { pooling: vec![25, 1, 1], ..Nhits::default() }), "pooling is 25");
    rejected(
        Model::Transformer(Transformer { width: 20, ..Transformer::default() }),
        "not a multiple of 16 heads",
    );
    rejected(
        Model::ITransformer(ITransformer { width: 20, ..ITransformer::default() }),
        "not a multiple of 8 heads",
    );
    rejected(Model::Transformer(Transformer { patch: 4, ..Transformer::default() }), "stride is 8");
    let huge = specification(Model::Nhits(Nhits { width: 65_536, ..Nhits::default() }));
    assert!(huge.params(1).unwrap_err().to_string().contains("million parameters"));
    rejected(Model::Gru(Gru { dropout: 1.0, ..Gru::default() }), "dropout is 1");
    rejected(Model::Tcn(Tcn { channels: vec![], ..Tcn::default() }), "channels has 0 entries");
    let deepar = Specification { loss: Loss::Mse, ..specification(Model::DeepAr(DeepAr::default())) };
    assert!(deepar.check().unwrap_err().to_string().contains("set loss to"));
    let counts = Specification {
        loss: Loss::NegativeBinomial,
        ..specification(Model::Transformer(Transformer { patch: 6, stride: 3, ..Transformer::default() }))
    };
    assert!(counts.check().unwrap_err().to_string().contains("needs counts"));
}

#[test]
fn benchmark_models_have_the_published_parameter_counts() {
    let count = |model: Model| {
        let specification = Specification { input: 168, horizon: 24, ..specification(model) };
        specification.params(1).unwrap().len()
    };
    let nhits = |layers| Nhits { layers, downsampling: vec![24, 12, 1], ..Nhits::default() };
    // The last backcast is not used and has no parameters.
    let backcast = 168 * 513;
    assert_eq!(count(Model::Nhits(nhits(4))), 2_809_875 - backcast);
    assert_eq!(count(Model::Nhits(nhits(2))), 1_233_939 - backcast);
    let nbeats = NBeats { stacks: vec![Stack { blocks: 3, ..Stack::default() }] };
    assert_eq!(count(Model::NBeats(nbeats)), 2_918_976 - backcast);
}

/// Batches of different sizes.
struct Uneven(Signal);

impl BatchSource for Uneven {
    fn updates_per_epoch(&self) -> u64 {
        3
    }

    fn training(&mut self, update: u64, batch: &mut Batch) -> Result<(), TaskError> {
        let begins: Vec<usize> = (0..150 + 7 * update as usize).collect();
        self.0.fill(&begins, batch);
        Ok(())
    }

    fn validation(&mut self, index: u64, batch: &mut Batch) -> Result<bool, TaskError> {
        self.0.validation(index, batch)
    }
}

#[test]
fn training_is_bit_identical_on_any_number_of_threads() {
    for dropout in [0.0, 0.3] {
        let model = Model::Nhits(Nhits { width: 32, dropout, ..Nhits::default() });
        let specification = specification(model);
        let train = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let windows = Uneven(Signal::new(&specification, 1));
                let mut task = ForecastTask::new(&specification, windows, 1).unwrap().with_micro_batch(32);
                let settings = settings(5);
                let mut attempt = Attempt::new(1, &settings, task.params().len());
                while attempt.outcome == Outcome::Running {
                    attempt.advance(&mut task, &settings).unwrap();
                }
                (attempt.metrics, task.params().values.clone())
            })
        };
        let alone = train(1);
        assert_eq!(alone, train(2));
        assert_eq!(alone, train(5));
    }
}

#[test]
fn resumed_training_is_bit_identical() {
    let model = Model::Nhits(Nhits { width: 32, dropout: 0.2, ..Nhits::default() });
    let specification = specification(model);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("seed-1.safetensors");
    let settings = Settings { patience: Some(5), ..settings(90) };
    let make = || ForecastTask::new(&specification, Signal::new(&specification, 8), 1).unwrap();
    let (mut whole_task, mut task) = (make(), make());
    let mut whole = Attempt::new(1, &settings, task.params().len());
    let mut attempt = whole.clone();
    while whole.outcome == Outcome::Running {
        whole.advance(&mut whole_task, &settings).unwrap();
        if attempt.update % 30 == 17 {
            attempt.save(&task, &path).unwrap();
            task = make();
            attempt = Attempt::load(&path, 1, &settings, &mut task).unwrap();
        }
        attempt.advance(&mut task, &settings).unwrap();
    }
    assert_eq!(attempt, whole);
    assert_eq!(task.params().values, whole_task.params().values);
}
