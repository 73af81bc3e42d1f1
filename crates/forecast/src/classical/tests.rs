//! The models equal the reference implementations: `tests/golden/classical.py` wrote the values with statsmodels and statsforecast.

use serde_json::Value;

use super::ets::{Component, Ets, Form};
use super::intermittent::{croston, tsb};
use super::stl::{Windows, stl};

fn golden() -> Value {
    serde_json::from_str(include_str!("../../tests/golden/classical.json")).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

fn assert_close(found: &[f64], expected: &[f64], error: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (place, (a, b)) in found.iter().zip(expected).enumerate() {
        assert!((a - b).abs() <= error * b.abs().max(1.0), "{what} at {place}: {a} instead of {b}");
    }
}

#[test]
fn exponential_smoothing_equals_statsforecast() {
    let golden = golden();
    let values = numbers(&golden["values"]);
    for case in golden["ets"].as_array().unwrap() {
        let (season, seasonal) = match case["season"].as_str() {
            Some("A") => (Component::Additive, vec![8.0, -9.0, -4.0, 5.0]),
            Some("M") => (Component::Multiplicative, vec![1.08, 0.91, 0.96, 1.05]),
            _ => (Component::None, vec![]),
        };
        let (trend, damped) = (case["trend"].as_bool().unwrap(), case["damped"].as_bool().unwrap());
        let form = Form { relative_errors: case["error"] == "M", trend, damped, season };
        let model = Ets {
            form,
            alpha: 0.4,
            beta: if trend { 0.1 } else { 0.0 },
            gamma: if season == Component::None { 0.0 } else { 0.2 },
            phi: if damped { 0.9 } else { 1.0 },
            level: 95.0,
            slope: if trend { 1.2 } else { 0.0 },
            seasonal,
            begin: 0,
        };
        let name = form.to_string();
        let found = model.filter(&values);
        let expected = ["likelihood", "level", "slope"].map(|key| case[key].as_f64().unwrap());
        assert_close(&[found.likelihood, found.level, found.slope], &expected, 1e-9, &name);
        assert_close(&found.seasonal, &numbers(&case["seasonal"]), 1e-9, &name);
        let ahead = |steps: i32| {
            found.level + (1..=steps).map(|step| model.phi.powi(step) * found.slope).sum::<f64>()
        };
        let season = |step: usize| match season {
            Component::None => ahead(step as i32),
            Component::Additive => ahead(step as i32) + found.seasonal[(step - 1) % 4],
            Component::Multiplicative => ahead(step as i32) * found.seasonal[(step - 1) % 4],
        };
        let expected: Vec<f64> = (1..=6).map(season).collect();
        assert_close(&model.forecast(&values, 6), &expected, 1e-9, &name);
    }
}

#[test]
fn decomposition_equals_statsmodels() {
    let golden = golden();
    let windows = Windows { seasonal: 7, ..Windows::new(4, 7) };
    let found = stl(&numbers(&golden["values"]), 4, windows);
    assert_close(&found.trend, &numbers(&golden["trend"]), 1e-9, "trend");
    assert_close(&found.seasonal[0], &numbers(&golden["seasonal"]), 1e-9, "season");
}

#[test]
fn intermittent_demand_equals_statsforecast() {
    let golden = golden();
    let demand = numbers(&golden["demand"]);
    // statsforecast computes in 32 bits.
    assert_close(&[croston(&demand, 0.1, true)], &[golden["croston_sba"].as_f64().unwrap()], 1e-6, "croston");
    assert_close(&[tsb(&demand, 0.2, 0.3)], &[golden["tsb"].as_f64().unwrap()], 1e-6, "tsb");
}
