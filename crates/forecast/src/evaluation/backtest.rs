//! Rolling-origin evaluation: a trained model and the baselines forecast from every origin of a subset of the data. The
//! baselines read the whole history before each origin.

use std::ops::ControlFlow;

use gatework_train::trainer::Interrupted;
use serde::Serialize;

use super::baselines::Baseline;
use crate::data::{Batch, Series, Table, Windows};
use crate::metrics;
use crate::prediction::conformal::{CalibrationErrors, Conformal, after_last_gap};
use crate::prediction::{Forecaster, PredictError, Prediction};
use crate::trained_network::MAX_ROWS;

/// Accuracy of forecasts: means over windows, without those whose error is undefined.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Score {
    /// Name of the model or baseline.
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
    /// Overall weighted average: sMAPE and MASE relative to Naive2.
    pub owa: f64,
    /// Interval levels with their empirical coverage.
    pub coverage: Vec<(f64, f64)>,
    /// Continuous ranked probability score, approximated by the bounds of the intervals.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub crps: Option<f64>,
}

/// Scores of the model, then of the baselines.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// Number of windows.
    pub windows: usize,
    /// Scores, the model first.
    pub scores: Vec<Score>,
}

/// A mean over the windows whose value is finite.
#[derive(Clone, Copy, Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    /// Adds a value unless it is undefined: a percentage error of zeros, or an error scaled by a constant history.
    fn add(&mut self, value: f64) {
        if value.is_finite() {
            self.sum += value;
            self.count += 1.0;
        }
    }

    /// Returns the mean; NaN if there was no value.
    fn value(self) -> f64 {
        self.sum / self.count
    }
}

/// Sums over windows.
#[derive(Default)]
struct Sums {
    windows: f64,
    /// MSE, MAE, MAPE, sMAPE, MASE.
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
            metrics::mase(after_last_gap(history), season, actual, forecast),
        ];
        self.means.iter_mut().zip(values).for_each(|(mean, value)| mean.add(value));
    }

    fn add_intervals(&mut self, actual: &[f64], forecast: &Prediction) {
        if forecast.intervals.is_empty() {
            return;
        }
        let mut levels: Vec<(f64, &[f64])> = vec![(0.5, &forecast.values)];
        for (place, interval) in forecast.intervals.iter().enumerate() {
            let coverage = metrics::coverage(actual, &interval.low, &interval.high);
            match self.score.coverage.get_mut(place) {
                Some((_, sum)) => *sum += coverage,
                None => self.score.coverage.push((interval.level, coverage)),
            }
            levels.push((0.5 - interval.level / 2.0, &interval.low));
            levels.push((0.5 + interval.level / 2.0, &interval.high));
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

/// Observes an evaluation: it is called with the number of finished windows and of all windows, and can end the evaluation.
pub type Watch<'a> = &'a dyn Fn(usize, usize) -> ControlFlow<()>;

/// A [`Watch`] that does nothing.
pub fn unwatched(_finished: usize, _all: usize) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Calls a watch; an error if it ends the evaluation.
fn check(watch: Watch<'_>, finished: usize, all: usize) -> Result<(), Interrupted> {
    if watch(finished, all).is_break() { Err(Interrupted) } else { Ok(()) }
}

/// A member of an ensemble, and the windows that it forecasts.
pub struct EnsembleMember<'a> {
    /// The model.
    pub forecaster: &'a Forecaster,
    /// Windows of its scaled table.
    pub windows: &'a Windows,
}

/// Scores a model and the baselines. Several models are an ensemble, whose forecast is the median at every step. `table`
/// holds the series of the windows in their own units.
pub fn evaluate(
    members: &[EnsembleMember<'_>],
    table: &Table,
    watch: Watch<'_>,
) -> Result<Evaluation, PredictError> {
    check_members(members)?;
    let Some(first) = members.first() else { return Err(PredictError::EnsembleMismatch) };
    let name = match members.len() {
        1 => first.forecaster.specification().model.name().to_string(),
        several => format!("median of {several}"),
    };
    let mut scorer = Scorer::new(first.forecaster.context().season);
    for_each_window(members, table, watch, |window| scorer.add(&window))?;
    Ok(scorer.finish(&name))
}

/// Sums of the errors of a model and of the baselines.
pub(super) struct Scorer {
    season: usize,
    windows: usize,
    model: Sums,
    baselines: Vec<Sums>,
}

impl Scorer {
    pub fn new(season: usize) -> Scorer {
        let baselines = Baseline::ALL.iter().map(|_| Sums::default()).collect();
        Scorer { season, windows: 0, model: Sums::default(), baselines }
    }

    /// Adds the errors of a window.
    pub fn add(&mut self, window: &ForecastWindow<'_>) {
        let ForecastWindow { series, origin, forecast } = *window;
        let (season, horizon) = (self.season, forecast.values.len());
        let (history, actual) = (&series.values[..origin], &series.values[origin..origin + horizon]);
        self.windows += 1;
        self.model.add(history, season, actual, &forecast.values);
        self.model.add_intervals(actual, forecast);
        for (baseline, sums) in Baseline::ALL.iter().zip(&mut self.baselines) {
            sums.add(history, season, actual, &baseline.forecast(after_last_gap(history), season, horizon));
        }
    }

    /// Returns the means.
    pub fn finish(self, name: &str) -> Evaluation {
        let mut scores = vec![self.model.finish(name)];
        let baselines = Baseline::ALL.iter().zip(self.baselines);
        scores.extend(baselines.map(|(baseline, sums)| sums.finish(baseline.name())));
        let naive2 = scores.iter().find(|score| score.name == Baseline::Naive2.name());
        let (smape, mase) = naive2.map_or((f64::NAN, f64::NAN), |score| (score.smape, score.mase));
        for score in &mut scores {
            score.owa = metrics::owa(score.smape, score.mase, smape, mase);
        }
        Evaluation { windows: self.windows, scores }
    }
}

/// A window, and the forecast of its targets.
pub(super) struct ForecastWindow<'a> {
    /// The series in its own units.
    pub series: &'a Series,
    /// The position of the first target.
    pub origin: usize,
    pub forecast: &'a Prediction,
}

/// Checks that all members forecast the same horizon of the same series from the same origins.
fn check_members(members: &[EnsembleMember<'_>]) -> Result<(), PredictError> {
    let Some((first, others)) = members.split_first() else { return Ok(()) };
    let id = |member: &EnsembleMember<'_>, place: (usize, usize)| {
        member.windows.table().series.get(place.0).map(|series| (series.id.clone(), place.1))
    };
    let matches = |other: &EnsembleMember<'_>| {
        let place =
            |member: &EnsembleMember<'_>, number| member.windows.origin(number).and_then(|at| id(member, at));
        other.forecaster.specification().horizon == first.forecaster.specification().horizon
            && other.windows.len() == first.windows.len()
            && (0..first.windows.len()).all(|number| place(first, number) == place(other, number))
    };
    if others.iter().all(matches) { Ok(()) } else { Err(PredictError::EnsembleMismatch) }
}

/// Errors of scaled values, as papers on long horizons report them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ScaledErrors {
    /// Number of windows.
    pub windows: usize,
    /// Mean squared error.
    pub mse: f64,
    /// Mean absolute error.
    pub mae: f64,
}

/// Returns the errors of a model on windows of a scaled table, in scaled units.
pub fn scaled_errors(
    forecaster: &Forecaster,
    windows: &Windows,
    watch: Watch<'_>,
) -> Result<ScaledErrors, PredictError> {
    let horizon = forecaster.specification().horizon;
    let mut batch = Batch::new(windows.shape(0));
    let (mut squares, mut distances) = (0.0, 0.0);
    let numbers: Vec<u32> = (0..windows.len() as u32).collect();
    for (chunk, numbers) in numbers.chunks(MAX_ROWS).enumerate() {
        check(watch, chunk * MAX_ROWS, windows.len())?;
        batch.set_rows(numbers.len());
        windows.fill(numbers, &mut batch)?;
        let forecast = forecaster.network().predict(&batch)?;
        for (row, target) in batch.target.chunks(horizon).enumerate() {
            let target: Vec<f64> = target.iter().copied().map(f64::from).collect();
            let values: Vec<f64> = (0..horizon).map(|step| forecast.point(row, step)).collect();
            squares += metrics::mse(&target, &values);
            distances += metrics::mae(&target, &values);
        }
    }
    let count = windows.len() as f64;
    Ok(ScaledErrors { windows: windows.len(), mse: squares / count, mae: distances / count })
}

/// Calibrates interval widths on windows that training did not see.
pub fn calibrate(
    forecaster: &Forecaster,
    windows: &Windows,
    table: &Table,
    levels: &[f64],
    watch: Watch<'_>,
) -> Result<Conformal, PredictError> {
    let mut errors = CalibrationErrors::new(forecaster.specification().horizon, forecaster.context().season);
    for_each_window(&[EnsembleMember { forecaster, windows }], table, watch, |window| {
        let ForecastWindow { series, origin, forecast } = window;
        let actual = &series.values[origin..origin + forecast.values.len()];
        errors.add(&series.id, &series.values[..origin], actual, &forecast.values);
    })?;
    Ok(errors.calibrate(levels))
}

/// Calls `visit` for every window with its forecast.
pub(super) fn for_each_window(
    members: &[EnsembleMember<'_>],
    table: &Table,
    watch: Watch<'_>,
    mut visit: impl FnMut(ForecastWindow<'_>),
) -> Result<(), PredictError> {
    let count = members.first().map_or(0, |member| member.windows.len());
    let numbers: Vec<u32> = (0..count as u32).collect();
    for numbers in numbers.chunks(MAX_ROWS) {
        let forecasts = members
            .iter()
            .map(|EnsembleMember { forecaster, windows }| forecaster.predict_windows(windows, numbers, table))
            .collect::<Result<Vec<_>, _>>()?;
        for (row, number) in numbers.iter().enumerate() {
            check(watch, *number as usize, count)?;
            let Some((series, origin)) = members[0].windows.origin(*number as usize) else { continue };
            let of_members: Vec<&Prediction> = forecasts.iter().map(|forecasts| &forecasts[row]).collect();
            let forecast = &median(&of_members);
            visit(ForecastWindow { series: &table.series[series], origin, forecast });
        }
    }
    Ok(())
}

/// Returns the median of several forecasts at every step. Only a single forecast has intervals: those of the members are
/// not valid for their median.
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
    use crate::data::Subset;
    use crate::experiment::{Dataset, ForecastExperiment};
    use crate::prediction::Context;
    use crate::test_fixtures::untrained_model;
    use crate::training::ForecastTask;
    use gatework_train::experiment::Source;
    use gatework_train::trainer::{Attempt, Outcome, Task as _};

    fn one(forecaster: &Forecaster, windows: &Windows, table: &Table) -> Evaluation {
        evaluate(&[EnsembleMember { forecaster, windows }], table, &unwatched).unwrap()
    }

    #[test]
    fn an_ensemble_forecasts_the_median() {
        let runs = ["dlinear", "nlinear", "nhits"].map(|model| untrained_model(model, "mae"));
        let table = runs[0].1.table.clone();
        let windows = runs[0].1.windows(Subset::Test, 1);
        let forecasters: Vec<Forecaster> = runs.into_iter().map(|(forecaster, _)| forecaster).collect();
        let forecasts: Vec<Prediction> = forecasters
            .iter()
            .map(|forecaster| forecaster.predict_windows(&windows, &[0], &table).unwrap().remove(0))
            .collect();
        let values = &table.series[0].values;
        let error: f64 = (0..12)
            .map(|step| {
                let mut at: Vec<f64> = forecasts.iter().map(|forecast| forecast.values[step]).collect();
                at.sort_by(f64::total_cmp);
                (at[1] - values[132 + step]).abs() / 12.0
            })
            .sum();
        let members: Vec<EnsembleMember<'_>> =
            forecasters.iter().map(|forecaster| EnsembleMember { forecaster, windows: &windows }).collect();
        let evaluation = evaluate(&members, &table, &unwatched).unwrap();
        assert_eq!((evaluation.windows, evaluation.scores[0].name.as_str()), (1, "median of 3"));
        assert!((evaluation.scores[0].mae - error).abs() < 1e-6 * error);
        assert!(evaluation.scores[0].coverage.is_empty());
    }

    #[test]
    fn a_watch_sees_every_window_and_can_end_an_evaluation() {
        let (forecaster, dataset) = untrained_model("nlinear", "mae");
        let windows = dataset.windows(Subset::Validation, 1);
        let seen = std::cell::Cell::new(0);
        let evaluate = |last| {
            seen.set(0);
            let watch = |finished, all| {
                assert_eq!((finished, all), (seen.get(), 13));
                seen.set(finished + 1);
                if finished == last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let member = EnsembleMember { forecaster: &forecaster, windows: &windows };
            evaluate(&[member], &dataset.table, &watch)
        };
        assert!(evaluate(usize::MAX).is_ok());
        assert_eq!(seen.get(), 13);
        assert!(matches!(evaluate(4), Err(PredictError::Interrupted(_))));
        assert_eq!(seen.get(), 5);
        let scaled = scaled_errors(&forecaster, &windows, &|_, _| ControlFlow::Break(()));
        assert!(matches!(scaled, Err(PredictError::Interrupted(_))));
    }

    #[test]
    fn members_with_different_windows_are_rejected() {
        let [(a, dataset), (b, _)] = ["dlinear", "nlinear"].map(|model| untrained_model(model, "mae"));
        let (all, some) = (dataset.windows(Subset::Validation, 1), dataset.windows(Subset::Validation, 2));
        let members = [
            EnsembleMember { forecaster: &a, windows: &all },
            EnsembleMember { forecaster: &b, windows: &some },
        ];
        let message = evaluate(&members, &dataset.table, &unwatched).unwrap_err().to_string();
        assert!(message.contains("same series from the same origins"), "{message}");
    }

    #[test]
    fn scaled_errors_are_those_of_the_scaled_values() {
        let (forecaster, dataset) = untrained_model("nlinear", "mae");
        let windows = dataset.windows(Subset::Validation, 1);
        let scaled = scaled_errors(&forecaster, &windows, &unwatched).unwrap();
        // Computed via the units of the data: the built-in data are log-scaled.
        let numbers: Vec<u32> = (0..windows.len() as u32).collect();
        let forecasts = forecaster.predict_windows(&windows, &numbers, &dataset.table).unwrap();
        let fit = forecaster.context().scaler.of("Passengers").unwrap();
        let scaling = &forecaster.context().scaler.scaling;
        let mut squares = 0.0;
        for (number, mut forecast) in forecasts.into_iter().enumerate() {
            let origin = windows.origin(number).unwrap().1;
            fit.apply(scaling, &mut forecast.values);
            squares += metrics::mse(&dataset.scaled.series[0].values[origin..origin + 12], &forecast.values);
        }
        assert_eq!(scaled.windows, 13);
        assert!((scaled.mse - squares / 13.0).abs() < 1e-4 * scaled.mse, "{} {}", scaled.mse, squares / 13.0);
    }

    #[test]
    fn undefined_errors_are_left_out_of_the_mean() {
        let mut sums = Sums::default();
        sums.add(&[1.0, 3.0], 1, &[2.0, 4.0], &[3.0, 4.0]);
        let alone = {
            let mut sums = Sums::default();
            sums.add(&[1.0, 3.0], 1, &[2.0, 4.0], &[3.0, 4.0]);
            sums.finish("a")
        };
        // A constant history, and percentage errors of zeros.
        sums.add(&[5.0, 5.0], 1, &[0.0, 0.0], &[1.0, 1.0]);
        let both = sums.finish("a");
        assert_eq!([both.mase, both.mape], [alone.mase, alone.mape]);
        assert!(both.mae > alone.mae);
    }

    #[test]
    fn an_evaluation_has_the_model_and_every_baseline() {
        let (forecaster, dataset) = untrained_model("dlinear", "mae");
        let windows = dataset.windows(Subset::Validation, 1);
        let evaluation = one(&forecaster, &windows, &dataset.table);
        let names: Vec<&str> = evaluation.scores.iter().map(|score| score.name.as_str()).collect();
        assert_eq!(names, ["dlinear", "naive", "seasonal naive", "drift", "naive2", "theta"]);
        assert_eq!(evaluation.windows, 13);
        assert!((evaluation.scores[4].owa - 1.0).abs() < 1e-12);
        // Reference: the seasonal naive forecast is the previous year.
        let values = &dataset.table.series[0].values;
        let error = |origin: usize| metrics::mae(&values[origin..origin + 12], &values[origin - 12..origin]);
        let mean = (108..=120).map(error).sum::<f64>() / 13.0;
        assert!((evaluation.scores[2].mae - mean).abs() < 1e-9);
        assert_eq!(evaluation.scores[0].coverage.len(), 2);
    }

    /// Trains a model on values.
    fn trained(values: impl Iterator<Item = f64>) -> (Forecaster, Dataset) {
        let rows: Vec<String> = values.enumerate().map(|(t, value)| format!("{t},{value}\n")).collect();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("x.csv"), format!("ds,y\n{}", rows.concat())).unwrap();
        let text = "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = 'nlinear'
            horizon = 7\ninput = 14\nseason = 7\n[training]\nepochs = 60\nlearning_rate = 0.005";
        let loaded = ForecastExperiment::from_source(&Source::new(text, "x", folder.path())).unwrap();
        let (experiment, dataset) = (&loaded.experiment, Dataset::load(&loaded).unwrap());
        let loader = dataset.loader(experiment, 1);
        let settings = experiment.training.settings(loader.updates_per_epoch());
        let mut task = ForecastTask::new(&experiment.specification(), loader, 1).unwrap();
        let mut attempt = Attempt::new(1, &settings, task.params().len());
        while attempt.outcome == Outcome::Running {
            attempt.advance(&mut task, &settings).unwrap();
        }
        let network = task.network(&attempt.best.unwrap().values).unwrap();
        (Forecaster::new(network, dataset.context(experiment)), dataset)
    }

    #[test]
    fn small_changes_of_large_values_are_learned() {
        let wave = |t: i32| 5.0 * (f64::from(t) * std::f64::consts::TAU / 7.0).sin();
        let (forecaster, dataset) = trained((0..300).map(|t| 2e8 + 0.1 * f64::from(t) + wave(t)));
        let evaluation = one(&forecaster, &dataset.windows(Subset::Test, 1), &dataset.table);
        let [model, naive, seasonal, ..] = &evaluation.scores[..] else { unreachable!("six scores") };
        assert!(naive.mae > 3.0 && model.mae < 0.1 * naive.mae, "{} against {}", model.mae, naive.mae);
        // The values rise by 0.7 per season.
        assert!((seasonal.mae - 0.7).abs() < 1e-6 && (seasonal.mase - 1.0).abs() < 1e-6, "{seasonal:?}");
        assert!((model.mase - model.mae / 0.7).abs() < 1e-6, "{model:?}");
    }

    #[test]
    fn calibrated_intervals_cover_their_calibration_windows() {
        let (forecaster, dataset) = untrained_model("dlinear", "mae");
        let windows = dataset.windows(Subset::Train, 1);
        let conformal = calibrate(&forecaster, &windows, &dataset.table, &[0.5, 0.8], &unwatched).unwrap();
        assert_eq!(conformal.windows(), windows.len());
        let context = Context { conformal, ..forecaster.context().clone() };
        let forecaster = forecaster.with_context(context);
        let evaluation = one(&forecaster, &windows, &dataset.table);
        for (level, coverage) in &evaluation.scores[0].coverage {
            assert!(coverage >= level && *coverage < level + 0.05, "{coverage} for {level}");
        }
    }
}
