//! Rolling origins: a trained model forecasts from every place of a part of the data, and so do the baselines, which
//! see all of the past at each.

use serde::Serialize;

use super::baselines::Baseline;
use super::conformal::{Conformal, Errors, known_end};
use super::context::Prediction;
use super::metrics;
use super::predictor::{MOST_ROWS, PredictError, Predictor};
use crate::data::{Table, Windows};

/// How good forecasts are: means over windows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Whose.
    pub name: String,
    /// Mean absolute error.
    pub mae: f64,
    /// Root of the mean squared error.
    pub rmse: f64,
    /// Mean absolute percentage error.
    pub mape: f64,
    /// Symmetric mean absolute percentage error.
    pub smape: f64,
    /// Mean absolute scaled error.
    pub mase: f64,
    /// sMAPE and MASE relative to Naive2.
    pub owa: f64,
    /// Share of the values that each interval held, with the share it should hold.
    pub coverage: Vec<(f64, f64)>,
    /// Continuous ranked probability score from the bounds of the intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crps: Option<f64>,
}

/// The model first, then the baselines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Windows.
    pub windows: usize,
    /// Scores.
    pub scores: Vec<Score>,
}

/// Sums over windows.
#[derive(Default)]
struct Sums {
    windows: f64,
    squares: f64,
    crps: f64,
    score: Score,
}

impl Sums {
    fn add(&mut self, history: &[f32], season: usize, actual: &[f32], forecast: &[f32]) {
        let score = &mut self.score;
        self.windows += 1.0;
        self.squares += metrics::mse(actual, forecast);
        score.mae += metrics::mae(actual, forecast);
        score.mape += metrics::mape(actual, forecast);
        score.smape += metrics::smape(actual, forecast);
        score.mase += metrics::mase(known_end(history), season, actual, forecast);
    }

    fn add_intervals(&mut self, actual: &[f32], forecast: &Prediction) {
        if forecast.intervals.is_empty() {
            return;
        }
        let mut levels: Vec<(f64, &[f32])> = vec![(0.5, &forecast.values)];
        for (place, interval) in forecast.intervals.iter().enumerate() {
            let held = metrics::coverage(actual, &interval.low, &interval.high);
            match self.score.coverage.get_mut(place) {
                Some((_, sum)) => *sum += held,
                None => self.score.coverage.push((interval.share, held)),
            }
            levels.push((0.5 - interval.share / 2.0, &interval.low));
            levels.push((0.5 + interval.share / 2.0, &interval.high));
        }
        self.crps += metrics::crps_of_quantiles(actual, &levels);
    }

    fn finish(self, name: &str) -> Score {
        let Sums { windows: n, squares, crps, mut score } = self;
        score.name = name.to_string();
        score.rmse = (squares / n).sqrt();
        for sum in [&mut score.mae, &mut score.mape, &mut score.smape, &mut score.mase] {
            *sum /= n;
        }
        score.coverage.iter_mut().for_each(|(_, sum)| *sum /= n);
        score.crps = (!score.coverage.is_empty()).then_some(crps / n);
        score
    }
}

/// Scores a model and the baselines on windows of a scaled table. `table` has the same series in their own units.
pub fn evaluate(
    predictor: &mut Predictor,
    windows: &Windows,
    table: &Table,
) -> Result<Evaluation, PredictError> {
    let season = predictor.context().season;
    let horizon = predictor.specification().horizon;
    let mut model = Sums::default();
    let mut baselines: Vec<Sums> = Baseline::ALL.iter().map(|_| Sums::default()).collect();
    each(predictor, windows, table, |history, actual, forecast| {
        model.add(history, season, actual, &forecast.values);
        model.add_intervals(actual, forecast);
        for (baseline, sums) in Baseline::ALL.iter().zip(&mut baselines) {
            sums.add(history, season, actual, &baseline.forecast(known_end(history), season, horizon));
        }
    })?;
    let mut scores = vec![model.finish(predictor.specification().model.name())];
    scores.extend(Baseline::ALL.iter().zip(baselines).map(|(baseline, sums)| sums.finish(baseline.name())));
    let naive2 = scores.iter().find(|score| score.name == Baseline::Naive2.name());
    let (smape, mase) = naive2.map_or((f64::NAN, f64::NAN), |score| (score.smape, score.mase));
    for score in &mut scores {
        score.owa = metrics::owa(score.smape, score.mase, smape, mase);
    }
    Ok(Evaluation { windows: windows.len(), scores })
}

/// Learns the width of intervals from windows that training did not see.
pub fn calibrate(
    predictor: &mut Predictor,
    windows: &Windows,
    table: &Table,
    shares: &[f64],
) -> Result<Conformal, PredictError> {
    let mut errors = Errors::new(predictor.specification().horizon, predictor.context().season);
    each(predictor, windows, table, |history, actual, forecast| {
        errors.add(history, actual, &forecast.values);
    })?;
    Ok(errors.calibrate(shares))
}

/// Every window: what was before, what came, and the forecast.
fn each(
    predictor: &mut Predictor,
    windows: &Windows,
    table: &Table,
    mut see: impl FnMut(&[f32], &[f32], &Prediction),
) -> Result<(), PredictError> {
    let horizon = predictor.specification().horizon;
    let numbers: Vec<u32> = (0..windows.len() as u32).collect();
    for numbers in numbers.chunks(MOST_ROWS) {
        let forecasts = predictor.predict_windows(windows, numbers, table)?;
        for (number, forecast) in numbers.iter().zip(&forecasts) {
            let Some((series, origin)) = windows.place(*number as usize) else { continue };
            let values = &table.series[series].values;
            see(&values[..origin], &values[origin..origin + horizon], forecast);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::context::Context;
    use super::super::predictor::tests::untrained;
    use super::*;
    use crate::data::Part;

    #[test]
    fn the_table_has_the_model_and_every_baseline() {
        let (mut predictor, dataset) = untrained("dlinear", "mae");
        let windows = dataset.windows(Part::Validation, 1);
        let evaluation = evaluate(&mut predictor, &windows, &dataset.table).unwrap();
        let names: Vec<&str> = evaluation.scores.iter().map(|score| score.name.as_str()).collect();
        assert_eq!(names, ["dlinear", "naive", "seasonal naive", "drift", "naive2", "theta"]);
        assert_eq!(evaluation.windows, 13);
        assert!((evaluation.scores[4].owa - 1.0).abs() < 1e-12);
        // By hand: the seasonal naive forecast is the year before.
        let values = &dataset.table.series[0].values;
        let error = |origin: usize| metrics::mae(&values[origin..origin + 12], &values[origin - 12..origin]);
        let mean = (108..=120).map(error).sum::<f64>() / 13.0;
        assert!((evaluation.scores[2].mae - mean).abs() < 1e-9);
        assert_eq!(evaluation.scores[0].coverage.len(), 2);
    }

    #[test]
    fn calibrated_intervals_hold_their_share_of_the_windows_they_were_learned_from() {
        let (mut predictor, dataset) = untrained("dlinear", "mae");
        let windows = dataset.windows(Part::Train, 1);
        let conformal = calibrate(&mut predictor, &windows, &dataset.table, &[0.5, 0.8]).unwrap();
        assert_eq!(conformal.windows(), windows.len());
        let context = Context { conformal, ..predictor.context().clone() };
        let mut predictor = predictor.with_context(context);
        let evaluation = evaluate(&mut predictor, &windows, &dataset.table).unwrap();
        for (share, held) in &evaluation.scores[0].coverage {
            assert!(held >= share && *held < share + 0.05, "{held} for {share}");
        }
    }
}
