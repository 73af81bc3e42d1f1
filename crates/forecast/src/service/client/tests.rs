//! Tests of services.

use super::*;
use crate::data::Subset;
use crate::test_fixtures::{untrained, untrained_model, with_covariates};

fn service(options: &ServiceOptions) -> (Service, Vec<f64>) {
    let (forecaster, dataset) = untrained(|text| text);
    (Service::new(forecaster, options).unwrap(), dataset.table.series[0].values.clone())
}

fn near(a: &Prediction, b: &Prediction) -> bool {
    let pairs = a.values.iter().zip(&b.values);
    pairs.clone().count() == 12 && pairs.into_iter().all(|(a, b)| (a - b).abs() <= 1e-3 * b.abs())
}

#[test]
fn a_history_is_forecast_like_a_table() {
    for difference in ["", "\ndifference = 1", "\ndifference = 12"] {
        let change = |text: String| text.replace("log = true", &format!("log = true{difference}"));
        let (forecaster, dataset) = untrained(change);
        let windows = dataset.windows(Subset::Test, 1);
        let expected = forecaster.predict_windows(&windows, &[0], &dataset.table).unwrap();
        let service = Service::new(forecaster, &ServiceOptions::default()).unwrap();
        let found = service.predict("Passengers", &dataset.table.series[0].values[..132]).unwrap();
        assert!(near(&found, &expected[0]), "{found:?} for {expected:?}");
        assert_eq!(found.intervals.len(), 2);
    }
}

#[test]
fn repeated_windows_are_cached_and_others_are_not_confused() {
    let (service, values) = service(&ServiceOptions::default());
    let first = service.predict("Passengers", &values).unwrap();
    for _ in 0..9 {
        assert_eq!(service.predict("Passengers", &values).unwrap(), first);
    }
    let Statistics { hits, misses, batches, cache, model, latency, .. } = service.statistics();
    assert_eq!((hits, misses, batches, latency.count()), (9, 1, 1, 10));
    assert!(cache > 4 * (24 + 12) && model.weights > 0 && model.programs > 0);
    assert!(latency.quantile(0.5) <= latency.quantile(0.99));
    let mut other = values.clone();
    let last = other.len() - 1;
    other[last] += 1.0;
    assert_ne!(service.predict("Passengers", &other).unwrap(), first);
    assert_eq!(service.statistics().misses, 2);
}

#[test]
fn concurrent_callers_get_their_own_forecasts() {
    let (service, values) = service(&ServiceOptions { cache_capacity: 0, ..ServiceOptions::default() });
    let alone: Vec<Prediction> =
        (0..8).map(|i| service.predict("Passengers", &values[..100 + i]).unwrap()).collect();
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
    assert_eq!(service.statistics().misses, 8 + 800);
}

#[test]
fn invalid_requests_are_reported() {
    let (service, mut values) = service(&ServiceOptions::default());
    let message = |result: Result<Prediction, ServiceError>| result.unwrap_err().to_string();
    let unknown = message(service.predict("Pasengers", &values));
    assert!(unknown.contains("series \"Pasengers\" was not in the training data"), "{unknown}");
    let short = message(service.predict("Passengers", &values[..23]));
    assert!(short.contains("23 values were given, but the model reads 24"), "{short}");
    values[130] = f64::NAN;
    let missing = message(service.predict("Passengers", &values));
    assert!(missing.contains("value 130 of the history is NaN"), "{missing}");
    values[130] = 1e39;
    let large = message(service.predict("Passengers", &values));
    assert!(large.contains("value 130 of the history is 1e39"), "{large}");
    assert!(service.predict("Passengers", &values[..130]).is_ok());
}

#[test]
fn tables_are_forecast_with_their_covariates() {
    let (forecaster, table) = with_covariates();
    let prepared = forecaster.context().prepare(forecaster.specification(), table.clone()).unwrap();
    let expected = forecaster.predict_windows(&prepared.windows, &[0, 1], &prepared.table).unwrap();
    let service = Service::new(forecaster, &ServiceOptions::default()).unwrap();
    let found = service.predict_table(&table).unwrap();
    assert_eq!(found.len(), 2);
    for (found, expected) in found.iter().zip(&expected) {
        assert!(found.values.iter().zip(&expected.values).all(|(a, b)| (a - b).abs() < 1e-3), "{found:?}");
    }
    assert_eq!(service.predict_table(&table).unwrap(), found);
    assert_eq!((service.statistics().hits, service.statistics().misses), (2, 2));
    // Another covariate is another window.
    let mut other = table.clone();
    other.series[1].future[42] += 1.0;
    assert_ne!(service.predict_table(&other).unwrap()[1], found[1]);
    let message = service.predict("a", &table.series[0].values).unwrap_err().to_string();
    assert!(message.contains("call predict_table"), "{message}");
    let mut short = table.clone();
    short.series[0].future.truncate(41);
    let message = service.predict_table(&short).unwrap_err().to_string();
    assert!(message.contains("known-future covariate \"holiday\" has 1 rows"), "{message}");
}

#[test]
fn new_series_are_scaled_by_their_own_values_on_request() {
    let (service, values) = service(&ServiceOptions { new_series: true, ..ServiceOptions::default() });
    assert!(service.predict("new", &values).is_ok());
}

#[test]
fn sixteen_threads_are_answered_or_refused_but_never_confused() {
    let options = ServiceOptions { cache_capacity: 0, queue_capacity: 4, ..ServiceOptions::default() };
    let (service, values) = service(&options);
    let alone: Vec<Prediction> =
        (0..16).map(|i| service.predict("Passengers", &values[..100 + i]).unwrap()).collect();
    std::thread::scope(|scope| {
        for (i, expected) in alone.iter().enumerate() {
            let (service, values) = (&service, &values);
            scope.spawn(move || {
                for _ in 0..50 {
                    match service.predict("Passengers", &values[..100 + i]) {
                        Ok(found) => assert!(near(&found, expected), "{i}"),
                        Err(error) => assert!(matches!(error, ServiceError::Busy { waiting: 4 }), "{error}"),
                    }
                }
            });
        }
    });
    let statistics = service.statistics();
    assert_eq!(statistics.calls(), 16 + 16 * 50);
    assert_eq!(statistics.latency.count(), statistics.misses);
}

#[test]
fn a_table_may_have_more_series_than_the_queue_has_places() {
    let (forecaster, mut table) = with_covariates();
    for i in 0..20 {
        let mut series = table.series[0].clone();
        series.id = format!("new {i}");
        table.series.push(series);
    }
    let options = ServiceOptions { queue_capacity: 1, new_series: true, ..ServiceOptions::default() };
    let service = Service::new(forecaster, &options).unwrap();
    let found = service.predict_table(&table).unwrap();
    assert_eq!(found.len(), table.series.len());
    // The added series are copies of the first one.
    assert!(found[2..].iter().all(|copy| *copy == found[2]));
}

#[test]
fn memory_is_limited() {
    let of = |memory_limit: usize, cache_capacity: usize| {
        let (forecaster, dataset) = untrained(|text| text);
        let options = ServiceOptions {
            memory_limit: Some(memory_limit),
            cache_capacity,
            concurrency: 3,
            ..ServiceOptions::default()
        };
        Service::new(forecaster, &options).map(|service| (service, dataset))
    };
    let message = of(1000, 10).err().unwrap().to_string();
    assert!(message.contains("but the limit is 1000; lower max_batch, quantise the model"), "{message}");
    let model = of(usize::MAX, 10).unwrap().0.statistics().model;
    // Room for the model, two more batches at the same time and about ten forecasts.
    for (batches, forecasts) in [(0, 10), (1, 10), (2, 10)] {
        let limit = model.total() + batches * model.programs + forecasts * 300;
        let (service, dataset) = of(limit, 1000).unwrap();
        assert_eq!(service.queue.places(), 1 + batches);
        let values = &dataset.table.series[0].values;
        (24..values.len()).for_each(|end| _ = service.predict("Passengers", &values[..end]).unwrap());
        let statistics = service.statistics();
        assert!(statistics.cache > 0 && statistics.cache + statistics.model.total() <= limit);
    }
}

/// Batches that do not fill their program need a buffer, and warming up does not compile larger programs than batches need.
#[test]
fn batches_of_all_sizes_and_warming_up_stay_within_the_memory_limit() {
    for max_batch in [1, 2, 3, 8, 200, 256] {
        let of = |memory_limit: usize| {
            let (forecaster, _) = untrained(|text| text);
            let options = ServiceOptions {
                memory_limit: Some(memory_limit),
                cache_capacity: 0,
                concurrency: 1,
                max_batch,
                ..ServiceOptions::default()
            };
            Service::new(forecaster, &options)
        };
        let Some(ServiceError::Memory { needed, .. }) = of(0).err() else {
            panic!("no model takes no memory")
        };
        let service = of(needed).unwrap();
        service.warm_up(&[1, 100, 256]).unwrap();
        for rows in 1..=max_batch {
            service.forecast(vec![vec![0.5; 24]; rows]).unwrap();
            let used = service.statistics().model.total();
            assert!(used <= needed, "{used} of {needed} bytes, {rows} of at most {max_batch} windows");
        }
    }
}

/// 100 windows that differ by up to 1e-3 hit with a tolerance of 1e-2. The error is within the stated bound; the model is linear,
/// so that its bound is the sum of the effects of all elements.
#[test]
fn similar_windows_hit_within_the_tolerance_and_the_stated_error() {
    let options = ServiceOptions { tolerance: 1e-2, ..ServiceOptions::default() };
    let (forecaster, dataset) = untrained_model("nlinear", "mae");
    let network = TrainedNetwork::from_bytes(&forecaster.to_bytes()).unwrap();
    let service = Service::new(forecaster, &options).unwrap();
    let window: Vec<f32> = dataset.scaled.series[0].values[..24].iter().map(|x| *x as f32).collect();
    let exact = |window: &[f32]| {
        let mut batch = Batch::new(network.specification().shape(1));
        batch.past.copy_from_slice(window);
        network.predict(&batch).unwrap().values
    };
    let most = window.iter().fold(0.0f32, |most, x| most.max(x.abs()));
    let first = exact(&window);
    let effects: Vec<Vec<f32>> = (0..24)
        .map(|i| {
            let mut moved = window.clone();
            moved[i] += 1.0;
            exact(&moved).iter().zip(&first).map(|(a, b)| (a - b).abs()).collect()
        })
        .collect();
    let bounds: Vec<f32> = (0..first.len()).map(|step| effects.iter().map(|of| of[step]).sum()).collect();
    service.forecast(vec![window.clone()]).unwrap();
    for i in 0..100 {
        let noise = |j: usize| ((i * 31 + j * 17) % 21) as f32 / 10.0 - 1.0;
        let similar: Vec<f32> = window.iter().enumerate().map(|(j, x)| x + 1e-3 * most * noise(j)).collect();
        let found = &service.forecast(vec![similar.clone()]).unwrap()[0];
        assert_eq!(found.values, first);
        for ((found, right), bound) in found.values.iter().zip(exact(&similar)).zip(&bounds) {
            assert!((found - right).abs() <= 1e-2 * most * bound + 1e-5, "{found} for {right}");
        }
    }
    assert_eq!((service.statistics().hits, service.statistics().misses), (100, 1));
    let mut other = window.clone();
    other[3] += 1.5e-2 * most;
    assert_ne!(service.forecast(vec![other]).unwrap()[0].values, first);
    for tolerance in [-1.0, 0.3, f64::NAN] {
        let (forecaster, _) = untrained(|text| text);
        let options = ServiceOptions { tolerance, ..ServiceOptions::default() };
        assert!(matches!(Service::new(forecaster, &options), Err(ServiceError::Tolerance(_))));
    }
}
