//! Tests of services.

use super::*;
use crate::data::Subset;
use crate::test_fixtures::{untrained, with_covariates};

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
    assert_eq!(service.statistics(), Statistics { hits: 9, misses: 1, batches: 1 });
    let mut other = values.clone();
    let last = other.len() - 1;
    other[last] += 1.0;
    assert_ne!(service.predict("Passengers", &other).unwrap(), first);
    assert_eq!(service.statistics().misses, 2);
}

#[test]
fn concurrent_callers_get_their_own_forecasts_in_shared_batches() {
    let (service, values) = service(&ServiceOptions { cache_capacity: 0, ..ServiceOptions::default() });
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
