//! Rolling origins: a trained model forecasts from every place of a part of the data, and so do the baselines, which
//! see all of the past at each.

use serde::Serialize;

use super::baselines::Baseline;
use crate::data::{Batch, Series, Table, Windows};
use crate::metrics;
use crate::prediction::conformal::{Conformal, Errors, known_end};
use crate::prediction::{MAX_ROWS, PredictError, Prediction, Predictor};

/// How good forecasts are: means over windows, without those in which an error cannot be said.
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

/// A mean over the windows that have a value.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    /// Adds a value. A percentage of nothing but zeros, or an error relative to a past that never changes, is none.
    fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.sum += value;
            self.count += 1.0;
        }
    }

    /// NaN if no window had a value.
    fn value(self) -> f64 {
        self.sum / self.count
    }
}

/// Sums over windows.
#[derive(Default)]
struct Sums {
    windows: f64,
    /// Squares, distances, MAPE, sMAPE, MASE.
    means: [Mean; 5],
    crps: f64,
    score: Score,
}

impl Sums {
    fn add(&mut self, history: &[f64], season: usize, actual: &[f64], forecast: &[f64]) {
        self.windows += 1.0;
        let values = [
            metrics::mse(actual, forecast),
            metrics::mae(actual, forecast),
            metrics::mape(actual, forecast),
            metrics::smape(actual, forecast),
            metrics::mase(known_end(history), season, actual, forecast),
        ];
        self.means.iter_mut().zip(values).for_each(|(mean, value)| mean.add(value));
    }

    fn add_intervals(&mut self, actual: &[f64], forecast: &Prediction) {
        if forecast.intervals.is_empty() {
            return;
        }
        let mut levels: Vec<(f64, &[f64])> = vec![(0.5, &forecast.values)];
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
        let Sums { windows: n, means, crps, mut score } = self;
        let [mse, mae, mape, smape, mase] = means.map(Mean::value);
        score = Score { name: name.to_string(), mae, rmse: mse.sqrt(), mape, smape, mase, ..score };
        score.coverage.iter_mut().for_each(|(_, sum)| *sum /= n);
        score.crps = (!score.coverage.is_empty()).then_some(crps / n);
        score
    }
}

/// A model and the windows it forecasts.
pub struct Member<'a> {
    /// The model.
    pub predictor: &'a mut Predictor,
    /// Windows of its scaled table.
    pub windows: &'a Windows,
}

/// Scores a model and the baselines; several models count as one, whose forecast is their median at every step. `table`
/// has the series of the windows in their own units.
pub fn evaluate(members: &mut [Member<'_>], table: &Table) -> Result<Evaluation, PredictError> {
    check_alike(members)?;
    let Some(first) = members.first() else { return Err(PredictError::NotAlike) };
    let (season, horizon) = (first.predictor.context().season, first.predictor.specification().horizon);
    let windows = first.windows.len();
    let name = match members.len() {
        1 => first.predictor.specification().model.name().to_string(),
        several => format!("median of {several}"),
    };
    let mut model = Sums::default();
    let mut baselines: Vec<Sums> = Baseline::ALL.iter().map(|_| Sums::default()).collect();
    each(members, table, |_, history, actual, forecast| {
        model.add(history, season, actual, &forecast.values);
        model.add_intervals(actual, forecast);
        for (baseline, sums) in Baseline::ALL.iter().zip(&mut baselines) {
            sums.add(history, season, actual, &baseline.forecast(known_end(history), season, horizon));
        }
    })?;
    let mut scores = vec![model.finish(&name)];
    scores.extend(Baseline::ALL.iter().zip(baselines).map(|(baseline, sums)| sums.finish(baseline.name())));
    let naive2 = scores.iter().find(|score| score.name == Baseline::Naive2.name());
    let (smape, mase) = naive2.map_or((f64::NAN, f64::NAN), |score| (score.smape, score.mase));
    for score in &mut scores {
        score.owa = metrics::owa(score.smape, score.mase, smape, mase);
    }
    Ok(Evaluation { windows, scores })
}

/// An error unless all members forecast as many steps of the same series from the same origins.
fn check_alike(members: &[Member<'_>]) -> Result<(), PredictError> {
    let Some((first, others)) = members.split_first() else { return Ok(()) };
    let id = |member: &Member<'_>, place: (usize, usize)| {
        member.windows.table().series.get(place.0).map(|series| (series.id.clone(), place.1))
    };
    let alike = |other: &Member<'_>| {
        let place = |member: &Member<'_>, number| member.windows.place(number).and_then(|at| id(member, at));
        other.predictor.specification().horizon == first.predictor.specification().horizon
            && other.windows.len() == first.windows.len()
            && (0..first.windows.len()).all(|number| place(first, number) == place(other, number))
    };
    if others.iter().all(alike) { Ok(()) } else { Err(PredictError::NotAlike) }
}

/// Errors of scaled values: what the papers on long horizons report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Scaled {
    /// Windows.
    pub windows: usize,
    /// Mean squared error.
    pub mse: f64,
    /// Mean absolute error.
    pub mae: f64,
}

/// The errors of a model on windows of a scaled table, in the units of the scaled values.
pub fn scaled_errors(predictor: &mut Predictor, windows: &Windows) -> Result<Scaled, PredictError> {
    let forecaster = predictor.forecaster_mut();
    let horizon = forecaster.specification().horizon;
    let mut batch = Batch::new(windows.shape(0));
    let (mut squares, mut distances) = (0.0, 0.0);
    let numbers: Vec<u32> = (0..windows.len() as u32).collect();
    for numbers in numbers.chunks(MAX_ROWS) {
        batch.set_rows(numbers.len());
        windows.fill(numbers, &mut batch)?;
        let forecast = forecaster.predict(&batch)?;
        for (row, target) in batch.target.chunks(horizon).enumerate() {
            let target: Vec<f64> = target.iter().copied().map(f64::from).collect();
            let values: Vec<f64> = (0..horizon).map(|step| forecast.point(row, step)).collect();
            squares += metrics::mse(&target, &values);
            distances += metrics::mae(&target, &values);
        }
    }
    let count = windows.len() as f64;
    Ok(Scaled { windows: windows.len(), mse: squares / count, mae: distances / count })
}

/// Learns the width of intervals from windows that training did not see.
pub fn calibrate(
    predictor: &mut Predictor,
    windows: &Windows,
    table: &Table,
    shares: &[f64],
) -> Result<Conformal, PredictError> {
    let mut errors = Errors::new(predictor.specification().horizon, predictor.context().season);
    each(&mut [Member { predictor, windows }], table, |id, history, actual, forecast| {
        errors.add(id, history, actual, &forecast.values);
    })?;
    Ok(errors.calibrate(shares))
}

/// Every window: its series, what was before, what came, and the forecast.
fn each(
    members: &mut [Member<'_>],
    table: &Table,
    mut see: impl FnMut(&str, &[f64], &[f64], &Prediction),
) -> Result<(), PredictError> {
    let count = members.first().map_or(0, |member| member.windows.len());
    let numbers: Vec<u32> = (0..count as u32).collect();
    for numbers in numbers.chunks(MAX_ROWS) {
        let forecasts = members
            .iter_mut()
            .map(|Member { predictor, windows }| predictor.predict_windows(windows, numbers, table))
            .collect::<Result<Vec<_>, _>>()?;
        for (row, number) in numbers.iter().enumerate() {
            let Some((series, origin)) = members[0].windows.place(*number as usize) else { continue };
            let Series { id, values, .. } = &table.series[series];
            let of_members: Vec<&Prediction> = forecasts.iter().map(|forecasts| &forecasts[row]).collect();
            let forecast = median(&of_members);
            let end = origin + forecast.values.len();
            see(id, &values[..origin], &values[origin..end], &forecast);
        }
    }
    Ok(())
}

/// The median of several forecasts at every step. Only a forecast alone has intervals: the errors of a median are not
/// those of its members.
fn median(forecasts: &[&Prediction]) -> Prediction {
    if let [alone] = forecasts {
        return (*alone).clone();
    }
    let horizon = forecasts.first().map_or(0, |forecast| forecast.values.len());
    let middle = |step: usize| {
        let mut values: Vec<f64> = forecasts.iter().map(|forecast| forecast.values[step]).collect();
        values.sort_by(f64::total_cmp);
        f64::midpoint(values[(values.len() - 1) / 2], values[values.len() / 2])
    };
    Prediction { values: (0..horizon).map(middle).collect(), intervals: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Part;
    use crate::experiment::{Dataset, Loaded};
    use crate::prediction::Context;
    use crate::test_fixtures::untrained_model;
    use crate::training::ForecastTask;
    use gatework_train::experiment::Source;
    use gatework_train::trainer::{Attempt, Outcome, Task as _};

    fn one(predictor: &mut Predictor, windows: &Windows, table: &Table) -> Evaluation {
        evaluate(&mut [Member { predictor, windows }], table).unwrap()
    }

    #[test]
    fn several_models_forecast_their_median() {
        let runs = ["dlinear", "nlinear", "nhits"].map(|model| untrained_model(model, "mae"));
        let table = runs[0].1.table.clone();
        let windows = runs[0].1.windows(Part::Test, 1);
        let mut predictors: Vec<Predictor> = runs.into_iter().map(|(predictor, _)| predictor).collect();
        let forecasts: Vec<Prediction> = predictors
            .iter_mut()
            .map(|predictor| predictor.predict_windows(&windows, &[0], &table).unwrap().remove(0))
            .collect();
        let values = &table.series[0].values;
        let error: f64 = (0..12)
            .map(|step| {
                let mut at: Vec<f64> = forecasts.iter().map(|forecast| forecast.values[step]).collect();
                at.sort_by(f64::total_cmp);
                (at[1] - values[132 + step]).abs() / 12.0
            })
            .sum();
        let mut members: Vec<Member<'_>> =
            predictors.iter_mut().map(|predictor| Member { predictor, windows: &windows }).collect();
        let evaluation = evaluate(&mut members, &table).unwrap();
        assert_eq!((evaluation.windows, evaluation.scores[0].name.as_str()), (1, "median of 3"));
        assert!((evaluation.scores[0].mae - error).abs() < 1e-6 * error);
        assert!(evaluation.scores[0].coverage.is_empty());
    }

    #[test]
    fn models_that_forecast_different_windows_are_no_ensemble() {
        let [(mut a, dataset), (mut b, _)] =
            ["dlinear", "nlinear"].map(|model| untrained_model(model, "mae"));
        let (all, some) = (dataset.windows(Part::Validation, 1), dataset.windows(Part::Validation, 2));
        let mut members =
            [Member { predictor: &mut a, windows: &all }, Member { predictor: &mut b, windows: &some }];
        let message = evaluate(&mut members, &dataset.table).unwrap_err().to_string();
        assert!(message.contains("same series from the same origins"), "{message}");
    }

    #[test]
    fn scaled_errors_are_those_of_the_scaled_values() {
        let (mut predictor, dataset) = untrained_model("nlinear", "mae");
        let windows = dataset.windows(Part::Validation, 1);
        let scaled = scaled_errors(&mut predictor, &windows).unwrap();
        // By way of the units of the data: those of the built-in data are logarithms.
        let numbers: Vec<u32> = (0..windows.len() as u32).collect();
        let forecasts = predictor.predict_windows(&windows, &numbers, &dataset.table).unwrap();
        let fit = predictor.context().scaler.of("Passengers").unwrap();
        let scaling = &predictor.context().scaler.scaling;
        let mut squares = 0.0;
        for (number, mut forecast) in forecasts.into_iter().enumerate() {
            let origin = windows.place(number).unwrap().1;
            fit.apply(scaling, &mut forecast.values);
            squares += metrics::mse(&dataset.scaled.series[0].values[origin..origin + 12], &forecast.values);
        }
        assert_eq!(scaled.windows, 13);
        assert!((scaled.mse - squares / 13.0).abs() < 1e-4 * scaled.mse, "{} {}", scaled.mse, squares / 13.0);
    }

    #[test]
    fn a_window_without_an_error_is_left_out_of_its_mean() {
        let mut sums = Sums::default();
        sums.add(&[1.0, 3.0], 1, &[2.0, 4.0], &[3.0, 4.0]);
        let alone = {
            let mut sums = Sums::default();
            sums.add(&[1.0, 3.0], 1, &[2.0, 4.0], &[3.0, 4.0]);
            sums.finish("a")
        };
        // A past that never changes, and a percentage of nothing.
        sums.add(&[5.0, 5.0], 1, &[0.0, 0.0], &[1.0, 1.0]);
        let both = sums.finish("a");
        assert_eq!([both.mase, both.mape], [alone.mase, alone.mape]);
        assert!(both.mae > alone.mae);
    }

    #[test]
    fn the_table_has_the_model_and_every_baseline() {
        let (mut predictor, dataset) = untrained_model("dlinear", "mae");
        let windows = dataset.windows(Part::Validation, 1);
        let evaluation = one(&mut predictor, &windows, &dataset.table);
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

    /// A model of a file of values, trained.
    fn trained(values: impl Iterator<Item = f64>) -> (Predictor, Dataset) {
        let rows: Vec<String> = values.enumerate().map(|(t, value)| format!("{t},{value}\n")).collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.csv"), format!("ds,y\n{}", rows.concat())).unwrap();
        let text = "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = 'nlinear'
            horizon = 7\ninput = 14\nseason = 7\n[training]\nepochs = 60\nlearning_rate = 0.005";
        let loaded = Loaded::from_source(&Source::new(text, "x", folder.path())).unwrap();
        let (experiment, dataset) = (&loaded.experiment, Dataset::load(&loaded).unwrap());
        let loader = dataset.loader(experiment, 1);
        let settings = experiment.training.settings(loader.updates_per_epoch());
        let mut task = ForecastTask::new(&experiment.specification(), loader, 1).unwrap();
        let mut attempt = Attempt::new(1, &settings, task.params().len());
        while attempt.outcome == Outcome::Running {
            attempt.advance(&mut task, &settings).unwrap();
        }
        let forecaster = task.forecaster(&attempt.best.unwrap().values).unwrap();
        (Predictor::new(forecaster, dataset.context(experiment)), dataset)
    }

    #[test]
    fn small_changes_of_large_values_are_learned() {
        let wave = |t: i32| 5.0 * (f64::from(t) * std::f64::consts::TAU / 7.0).sin();
        let (mut predictor, dataset) = trained((0..300).map(|t| 2e8 + 0.1 * f64::from(t) + wave(t)));
        let evaluation = one(&mut predictor, &dataset.windows(Part::Test, 1), &dataset.table);
        let [model, naive, seasonal, ..] = &evaluation.scores[..] else { unreachable!("six scores") };
        assert!(naive.mae > 3.0 && model.mae < 0.1 * naive.mae, "{} beside {}", model.mae, naive.mae);
        // From one season to the next the values rise by 0.7.
        assert!((seasonal.mae - 0.7).abs() < 1e-6 && (seasonal.mase - 1.0).abs() < 1e-6, "{seasonal:?}");
        assert!((model.mase - model.mae / 0.7).abs() < 1e-6, "{model:?}");
    }

    #[test]
    fn calibrated_intervals_hold_their_share_of_the_windows_they_were_learned_from() {
        let (mut predictor, dataset) = untrained_model("dlinear", "mae");
        let windows = dataset.windows(Part::Train, 1);
        let conformal = calibrate(&mut predictor, &windows, &dataset.table, &[0.5, 0.8]).unwrap();
        assert_eq!(conformal.windows(), windows.len());
        let context = Context { conformal, ..predictor.context().clone() };
        let mut predictor = predictor.with_context(context);
        let evaluation = one(&mut predictor, &windows, &dataset.table);
        for (share, held) in &evaluation.scores[0].coverage {
            assert!(held >= share && *held < share + 0.05, "{held} for {share}");
        }
    }
}
