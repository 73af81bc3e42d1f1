//! Tests of the library's main calls: train, forecast, save, evaluate.

use std::ops::ControlFlow;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::data::frequency::Frequency;
use crate::data::time::TimeKind;
use crate::evaluation::Origins;
use crate::experiment::Experiment;
use crate::models::{DLinear, NLinear};
use crate::{Forecaster, Prediction, SeriesForecast, Table};

/// Two weekly series of different level.
fn table() -> Table {
    let values = |level: f64| (0..120).map(|t| level + f64::from(t % 7)).collect::<Vec<_>>();
    Table::from_series("D", [("a", "2024-01-01", values(10.0)), ("b", "2024-01-01", values(500.0))]).unwrap()
}

/// The table with covariates of every kind; known-future ones for 7 days after the last value.
fn table_with_covariates() -> Table {
    let numbers = |count: usize| (0..count).map(|t| (t % 5) as f64).collect::<Vec<_>>();
    let both = |count: usize| [("a", numbers(count)), ("b", numbers(count))];
    table()
        .with_past_covariate("price", both(120))
        .and_then(|table| table.with_future_covariate("promotion", both(127)))
        .and_then(|table| table.with_future_covariate("holiday", both(127)))
        .and_then(|table| table.with_static_covariate("size", [("a", 1.0), ("b", 2.0)]))
        .unwrap()
}

fn options<'a>() -> ForecasterBuilder<'a> {
    Forecaster::builder().model(NLinear {}).horizon(7).epochs(3)
}

fn predictions(forecasts: &[SeriesForecast]) -> Vec<Prediction> {
    let prediction =
        |f: &SeriesForecast| Prediction { values: f.values.clone(), intervals: f.intervals.clone() };
    forecasts.iter().map(prediction).collect()
}

fn message<T, E: ToString>(result: Result<T, E>) -> String {
    result.err().unwrap().to_string()
}

#[test]
fn a_periodic_table_is_forecast_with_times_and_intervals() {
    let table = table();
    let options = options().epochs(60).learning_rate(0.01);
    let model = options.fit(&table).unwrap();
    let forecasts = model.predict(&table).unwrap();
    for (series, forecast) in table.series.iter().zip(&forecasts) {
        let season = &series.values[113..];
        for (value, expected) in forecast.values.iter().zip(season) {
            assert!((value - expected).abs() < 0.5, "{forecast:?} for {season:?}");
        }
        assert_eq!(forecast.id, series.id);
        assert_eq!((forecast.times[0].as_str(), forecast.times[6].as_str()), ("2024-04-30", "2024-05-06"));
        assert_eq!(forecast.intervals.iter().map(|i| i.level).collect::<Vec<_>>(), [0.8, 0.95]);
    }
    assert_eq!(options.fit(&table).unwrap().to_bytes(), model.to_bytes());
}

#[test]
fn the_builder_fills_the_experiment_of_a_file() {
    let text = "task = 'forecaster'\nname = 'forecast'\ndata = ''\nmodel = 'dlinear'\nhorizon = 7\ninput = 30
        loss = 'mae'\nintervals = [0.5]\nseed = 4\nseason = 7\nstride = 2\nskip_short_series = true
        [split]\nvalidation = 20\ntest = 0\n[training]\nepochs = 3\nbatch = 8\nlearning_rate = 0.01\npatience = 2";
    let expected: Experiment = toml::from_str(text).unwrap();
    let builder = Forecaster::builder()
        .model(DLinear::default())
        .horizon(7)
        .input(30)
        .loss(crate::Loss::Mae)
        .levels([0.5])
        .seed(4)
        .season(7)
        .stride(2)
        .skip_short_series(true)
        .validation(20)
        .test(0)
        .epochs(3)
        .batch(8)
        .learning_rate(0.01)
        .patience(2);
    assert_eq!(*builder.experiment(), expected);
    assert_eq!(Forecaster::builder().experiment().split.test, 0usize.into(), "all values are used");
    let model = builder.fit(&table()).unwrap();
    assert_eq!(ForecasterBuilder::from(expected).fit(&table()).unwrap().to_bytes(), model.to_bytes());
}

#[test]
fn histories_are_forecast_like_tables() {
    let table = table();
    let model = options().fit(&table).unwrap();
    let histories: Vec<(&str, &[f64])> =
        table.series.iter().map(|series| (series.id.as_str(), &series.values[..])).collect();
    assert_eq!(model.predict_many(&histories).unwrap(), predictions(&model.predict(&table).unwrap()));
    for (place, (id, history)) in histories.iter().enumerate() {
        let mut alone = table.clone();
        alone.series = vec![table.series[place].clone()];
        let expected = predictions(&model.predict(&alone).unwrap()).remove(0);
        assert_eq!(model.predict_one(id, history).unwrap(), expected);
    }
    assert!(model.predict_many::<&str, &[f64]>(&[]).unwrap().is_empty());
}

#[test]
fn invalid_histories_are_reported() {
    let table = table();
    let model = options().fit(&table).unwrap();
    let history = &table.series[0].values;
    let short = message(model.predict_one("a", &history[..20]));
    assert_eq!(short, "series \"a\" has 20 values without a gap at its end, but the model reads 21");
    assert!(message(model.predict_one("c", history)).contains("series \"c\" was not in the training data"));
    let mut gap = history.clone();
    gap[110] = f64::NAN;
    let not_finite = message(model.predict_one("a", &gap));
    assert_eq!(not_finite, "series \"a\": value 110 of the history is NaN; values must be finite");
    gap[110] = 10.0;
    gap[3] = f64::NAN;
    assert!(model.predict_one("a", &gap).is_ok(), "the model does not read it");
    let model = options().fit(&table_with_covariates()).unwrap();
    assert!(message(model.predict_one("a", history)).contains("the model reads covariates"));
}

#[test]
fn a_saved_model_gives_the_same_forecasts() {
    let table = table_with_covariates();
    let model = options().fit(&table).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    model.save(&path).unwrap();
    let again = Forecaster::load(&path).unwrap();
    assert_eq!(again.predict(&table).unwrap(), model.predict(&table).unwrap());
    assert_eq!(again.to_bytes(), std::fs::read(&path).unwrap());
    let nowhere = folder.path().join("missing").join("model.safetensors");
    assert!(message(model.save(&nowhere)).contains("missing") && !nowhere.exists());
}

#[test]
fn weights_that_are_not_finite_are_named() {
    let model = options().fit(&table()).unwrap();
    let (specification, mut params) = (model.specification().clone(), model.network().params());
    let name = params.tensors()[0].name.clone();
    params.values[0] = f32::NAN;
    let error = message(crate::TrainedNetwork::new(specification, params));
    assert_eq!(error, format!("parameter {name:?} is not finite: training has diverged"));
}

#[test]
fn threads_give_the_same_bits() {
    fn check_shared<T: Send + Sync>(_: &T) {}
    let table = table_with_covariates();
    let model = options().threads(1).fit(&table).unwrap();
    check_shared(&model);
    assert_eq!(options().threads(3).fit(&table).unwrap().to_bytes(), model.to_bytes());
    let expected = model.predict(&table).unwrap();
    std::thread::scope(|scope| {
        let predict = || (0..5).map(|_| model.predict(&table).unwrap()).collect::<Vec<_>>();
        let threads = [0; 4].map(|_| scope.spawn(predict));
        for forecasts in threads.map(|thread| thread.join().unwrap()) {
            assert!(forecasts.iter().all(|forecast| *forecast == expected));
        }
    });
}

#[test]
fn cross_validation_without_refitting_equals_an_evaluation() {
    let table = table_with_covariates();
    let origins = Origins::last(4).step(3);
    // With a season of 7, the scale of MASE would be 0.
    let options = || options().season(5);
    let result = options().cross_validate(&table, origins, Refit::Never).unwrap();
    let known = table.without_last(7 + 3 * 3);
    let model = options().test(0).fit(&known).unwrap();
    assert_eq!(model.evaluate(&table, origins).unwrap(), result.evaluation);
    assert_eq!((result.evaluation.windows, result.forecasts.len()), (8, 8));
    // The first window of the first series.
    let first = &result.forecasts[0];
    assert_eq!(first.actual, table.series[0].values[104..111]);
    let expected = &model.predict(&known).unwrap()[0].values;
    assert!(first.values.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-3), "{first:?}");
    assert_eq!(first.times[0], table.time(&table.series[0], 104));
    let names: Vec<&str> = result.evaluation.scores.iter().map(|score| score.name.as_str()).collect();
    assert_eq!(names[..3], ["nlinear", "naive", "seasonal naive"]);
}

#[test]
fn cross_validation_with_refitting_trains_before_every_origin() {
    let table = table();
    let result = options().cross_validate(&table, Origins::last(2).step(5), Refit::Always).unwrap();
    assert_eq!(result.forecasts.len(), 4);
    for (fold, later) in [5, 0].into_iter().enumerate() {
        let known = table.without_last(later + 7);
        let forecasts = options().test(0).fit(&known).unwrap().predict(&known).unwrap();
        for (place, forecast) in forecasts.iter().enumerate() {
            let found = &result.forecasts[2 * fold + place];
            assert_eq!((&found.values, &found.times), (&forecast.values, &forecast.times));
            let end = 120 - later;
            assert_eq!(found.actual, table.series[place].values[end - 7..end]);
        }
    }
}

#[test]
fn origins_that_do_not_fit_are_reported() {
    let model = options().fit(&table()).unwrap();
    let long = message(model.evaluate(&table(), Origins::last(100)));
    assert_eq!(
        long,
        "series \"a\" has 120 values, but the forecast origins need 127; evaluate fewer windows"
    );
    assert!(message(model.evaluate(&table(), Origins::last(0))).contains("there is no window to evaluate"));
    let endless = Origins::last(usize::MAX).step(usize::MAX);
    assert!(model.evaluate(&table(), endless).is_err());
    assert!(options().cross_validate(&table(), endless, Refit::Never).is_err());
    assert!(options().cross_validate(&table(), Origins::last(0), Refit::Always).is_err());
}

#[test]
fn progress_is_reported_after_every_epoch() {
    let mut seen = Vec::new();
    options().epochs(4).on_progress(|progress| seen.push(progress.clone())).fit(&table()).unwrap();
    assert_eq!(
        seen.iter().map(|p| (p.epoch, p.epochs)).collect::<Vec<_>>(),
        [(1, 4), (2, 4), (3, 4), (4, 4)]
    );
    assert!(seen.iter().all(|p| p.training_loss.is_finite() && p.validation_loss.is_some()));
    assert_eq!(seen[3].time_left.as_nanos(), 0);
    let text = seen[0].to_string();
    assert!(text.starts_with("epoch 1 of 4, loss ") && text.ends_with(" s left"), "{text}");
}

#[test]
fn training_is_cancelled_by_the_callback_or_a_flag() {
    let mut epochs = 0;
    let stop = |progress: &Progress| {
        epochs = progress.epoch;
        if progress.epoch == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    assert_eq!(message(options().epochs(9).on_progress(stop).fit(&table())), "training was cancelled");
    assert_eq!(epochs, 2);
    let flag = AtomicBool::new(true);
    assert!(matches!(options().cancel(&flag).fit(&table()), Err(FitError::Cancelled)));
}

#[test]
fn known_future_covariates_are_in_the_table_or_given() {
    let table = table_with_covariates();
    let model = options().fit(&table).unwrap();
    let expected = model.predict(&table).unwrap();
    let mut past = table.clone();
    past.series.iter_mut().for_each(|series| series.future.truncate(240));
    let after: Vec<f64> = (120..127).map(|t| f64::from(t % 5)).collect();
    let all = [("a", "promotion"), ("a", "holiday"), ("b", "promotion"), ("b", "holiday")];
    let future: Vec<(&str, &str, &[f64])> = all.iter().map(|(id, name)| (*id, *name, &after[..])).collect();
    assert_eq!(model.predict_with_future(&past, &future).unwrap(), expected);
    let early = message(model.predict_with_future(&past, &future[..3]));
    assert_eq!(
        early,
        "series \"b\": the known-future covariate \"holiday\" has 0 rows after the last value, but the horizon is 7; add rows"
    );
    let unknown = message(model.predict_with_future(&past, &[("c", "promotion", &after)]));
    assert_eq!(unknown, "there is no series \"c\"");
}

#[test]
fn covariates_are_selected_by_name() {
    let table = table_with_covariates();
    let model = options().past_covariates([""; 0]).future_covariates(["holiday"]).fit(&table).unwrap();
    let specification = model.specification();
    assert_eq!((specification.past_columns, specification.future_columns), (0, 1));
    assert_eq!(specification.static_columns, 1);
    // The forecast depends on the name of a column, not on its place.
    let expected = model.predict(&table).unwrap();
    let numbers = |count: usize| (0..count).map(|t| (t % 5) as f64).collect::<Vec<_>>();
    let other = self::table()
        .with_static_covariate("size", [("a", 1.0), ("b", 2.0)])
        .and_then(|table| table.with_future_covariate("holiday", ["a", "b"].map(|id| (id, numbers(127)))));
    assert_eq!(model.predict(&other.unwrap()).unwrap(), expected);
    let missing = message(model.predict(&self::table()));
    assert_eq!(missing, "there is no known-future covariate \"holiday\"; there are none");
    let unknown = message(options().future_covariates(["weather"]).fit(&table));
    assert_eq!(unknown, "there is no known-future covariate \"weather\"; there are promotion, holiday");
}

#[test]
fn invalid_options_and_short_tables_are_rejected() {
    let wrong = message(options().model(DLinear { moving_average: 4 }).fit(&table()));
    assert!(wrong.contains("moving_average is 4, but must be odd"), "{wrong}");
    let short = message(options().horizon(90).fit(&table()));
    assert!(short.contains("series \"a\" has 108 values for training"), "{short}");
    let none = message(Forecaster::builder().fit(&table()));
    assert_eq!(none, "the horizon is not set; call `horizon` with the number of steps to forecast");
    assert!(message(options().levels([1.5]).fit(&table())).contains("the level 1.5"));
    assert!(message(options().epochs(0).fit(&table())).contains("epochs is 0"));
}

#[test]
fn inconsistent_tables_are_rejected() {
    let model = options().fit(&table_with_covariates()).unwrap();
    let check = |part: &str, change: &dyn Fn(&mut Table)| {
        let mut table = table_with_covariates();
        change(&mut table);
        for text in [
            message(options().fit(&table)),
            message(model.predict(&table)),
            message(model.evaluate(&table, Origins::last(1))),
        ] {
            assert!(text.contains(part), "{text}");
        }
    };
    check("there are no rows of data", &|table| table.series.clear());
    check("series \"b\": value 119 is inf", &|table| table.series[1].values[119] = f64::INFINITY);
    check("series \"a\" has 119 numbers for its 1 past covariates, but needs 120", &|table| {
        table.series[0].past.pop();
    });
    check("two series have the id \"a\"", &|table| table.series[1].id = "a".into());
    let mut hourly = table_with_covariates();
    hourly.frequency = Frequency::parse("h", TimeKind::DateTime).unwrap();
    let frequency = message(model.predict(&hourly));
    assert_eq!(frequency, "the data have frequency h, but the model was trained on D");
    let mut gap = table_with_covariates();
    gap.series[1].values[115] = f64::NAN;
    let gap = message(model.predict(&gap));
    assert_eq!(gap, "series \"b\" has 4 values without a gap at its end, but the model reads 21");
}
