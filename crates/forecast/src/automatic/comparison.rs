//! The comparison of candidates on rolling forecast origins: every candidate forecasts from the same origins, having seen
//! only the values before them.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::AutomaticError;
use super::candidates::Candidate;
use super::series::{Group, Prepared};
use crate::classical::Fitted;
use crate::classical::pooled::Pooled;
use crate::data::{Series, Table};
use crate::evaluation::{Origins, for_each_origin};
use crate::fit::FitError;
use crate::prediction::Forecaster;

/// Values before the first origin of a series: [`MIN_HISTORY`], or a season and some more if that is less.
const MIN_HISTORY: usize = 8;
const LEAST_HISTORY: usize = 5;

/// Times that a statistical model is fitted again while the origin moves.
const REFITS: usize = 3;

/// Origins of one series, and of all series together.
const MAX_ORIGINS: usize = 48;
const MAX_WINDOWS: usize = 6000;

/// Series and time from which the time of all series is estimated.
const ENOUGH: usize = 20;
const SETTLED: Duration = Duration::from_millis(500);

/// Where forecasts begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Steps to forecast.
    pub horizon: usize,
    /// Steps from origin to origin.
    pub step: usize,
    /// The largest number of origins of a series.
    pub count: usize,
    /// Values before the first origin of a series.
    pub history: usize,
}

impl Plan {
    /// Chooses origins over the last part of the series: up to 40 % of their length and twenty horizons.
    pub fn new(lengths: &[usize], horizon: usize, season: usize) -> Plan {
        let mut lengths = lengths.to_vec();
        lengths.sort_unstable();
        let typical = lengths.get(lengths.len() / 2).copied().unwrap_or(0);
        let span = (typical * 2 / 5).min(20 * horizon).saturating_sub(horizon);
        let most = (MAX_WINDOWS / lengths.len().max(1)).clamp(4, MAX_ORIGINS);
        let step = span.div_ceil(most - 1).max(1);
        let history = season.saturating_add(2).clamp(LEAST_HISTORY, MIN_HISTORY);
        Plan { horizon, step, count: span / step + 1, history }
    }

    /// Returns the values from the first origin to the end.
    pub fn reach(&self) -> usize {
        (self.count - 1) * self.step + self.horizon
    }

    /// Returns the origins of a series in ascending order: those that leave enough values before them.
    pub fn origins(&self, length: usize) -> Vec<usize> {
        let least = self.history.max(length / 3);
        let ages = (0..self.count).rev();
        ages.filter_map(|age| length.checked_sub(self.horizon + age * self.step))
            .filter(|origin| *origin >= least)
            .collect()
    }

    /// Returns the age of an origin: 0 is the latest.
    pub fn age(&self, length: usize, origin: usize) -> usize {
        (length - self.horizon - origin) / self.step
    }
}

/// The forecasts of a candidate: `[series][origin]`, in the order of [`Plan::origins`]. `None` for series that it cannot
/// forecast.
pub type Forecasts = Vec<Option<Vec<Vec<f64>>>>;

/// Forecasts with a statistical model. `None` if the deadline passes.
pub fn classical(
    method: crate::classical::Method,
    series: &[Prepared],
    plan: &Plan,
    deadline: Instant,
    stop: &AtomicBool,
) -> Option<Forecasts> {
    let (begin, done) = (Instant::now(), AtomicUsize::new(0));
    let late = || {
        // Better none than half of the series: what cannot be finished is ended early.
        let (elapsed, done) = (begin.elapsed(), done.load(Ordering::Relaxed));
        let needed = elapsed.mul_f64(series.len() as f64 / done.max(1) as f64);
        stop.load(Ordering::Relaxed)
            || Instant::now() >= deadline
            || done >= ENOUGH && elapsed >= SETTLED && begin + needed > deadline
    };
    series
        .par_iter()
        .map(|series| {
            let history = series.history();
            let origins = plan.origins(series.values.len());
            let chunk = origins.len().div_ceil(REFITS).max(1);
            let mut forecasts = Vec::with_capacity(origins.len());
            for origins in origins.chunks(chunk) {
                if late() {
                    return None;
                }
                let Some(fitted) = method.fit(&history.until(origins[0])) else { return Some(None) };
                for &origin in origins {
                    let forecast = series.bounded(fitted.forecast(&history.until(origin), plan.horizon));
                    if forecast.iter().any(|x| !x.is_finite()) {
                        return Some(None);
                    }
                    forecasts.push(forecast);
                }
            }
            done.fetch_add(1, Ordering::Relaxed);
            Some((!forecasts.is_empty()).then_some(forecasts))
        })
        .collect()
}

/// Forecasts with one autoregression for all series but intermittent ones. It is estimated again while the origin moves.
pub fn pooled(series: &[Prepared], plan: &Plan, season: usize) -> Option<Forecasts> {
    let mut forecasts: Forecasts =
        series.iter().map(|series| (series.group != Group::Intermittent).then(Vec::new)).collect();
    let chunk = plan.count.div_ceil(REFITS).max(1);
    let mut oldest = plan.count;
    while oldest > 0 {
        let ages = oldest.saturating_sub(chunk)..oldest;
        // All series until their oldest origin of the chunk.
        let until =
            |series: &Prepared| series.values.len().checked_sub(plan.horizon + (ages.end - 1) * plan.step);
        let known = series.iter().filter(|series| series.group != Group::Intermittent);
        let histories: Vec<&[f64]> =
            known.filter_map(|series| until(series).map(|end| &series.values[..end])).collect();
        let model = Pooled::fit(&histories, season)?;
        let of_series = |(series, forecasts): (&Prepared, &mut Option<Vec<Vec<f64>>>)| {
            let origins = plan.origins(series.values.len()).into_iter();
            for origin in origins.filter(|origin| ages.contains(&plan.age(series.values.len(), *origin))) {
                let Some(all) = forecasts else { return };
                match model.forecast(&series.values[..origin], plan.horizon) {
                    Some(forecast) => all.push(series.bounded(forecast)),
                    None => *forecasts = None,
                }
            }
        };
        series.par_iter().zip(forecasts.par_iter_mut()).for_each(of_series);
        oldest = ages.start;
    }
    for forecasts in &mut forecasts {
        *forecasts = forecasts.take().filter(|all| !all.is_empty());
    }
    Some(forecasts)
}

/// Forecasts the future of all series but intermittent ones with one autoregression.
pub fn pooled_ahead(series: &[Prepared], horizon: usize, season: usize) -> Vec<Option<Vec<f64>>> {
    let known = series.iter().filter(|series| series.group != Group::Intermittent);
    let histories: Vec<&[f64]> = known.map(|series| series.values.as_slice()).collect();
    let Some(model) = Pooled::fit(&histories, season) else { return vec![None; series.len()] };
    let forecast = |series: &Prepared| {
        let found = model.forecast(&series.values, horizon).filter(|_| series.group != Group::Intermittent);
        found.map(|forecast| series.bounded(forecast))
    };
    series.iter().map(forecast).collect()
}

/// Forecasts with a network that is trained once on the values before the first origin. Series that are too short for it
/// have none.
pub fn network(
    candidate: &Candidate,
    table: &Table,
    series: &[Prepared],
    plan: &Plan,
    deadline: Instant,
    stop: &AtomicBool,
) -> Result<Option<Forecasts>, AutomaticError> {
    let Candidate::Network { input, .. } = candidate else { return Ok(None) };
    let needed = plan.reach() + input + 3 * plan.horizon + MIN_HISTORY;
    let long: Vec<usize> =
        (0..series.len()).filter(|&number| series[number].values.len() >= needed).collect();
    if long.is_empty() {
        return Ok(None);
    }
    let table = table_of(table, series, &long);
    let Some(forecaster) = train(candidate, &table, plan.horizon, plan.reach(), deadline, stop)? else {
        return Ok(None);
    };
    let mut forecasts: Forecasts = vec![None; series.len()];
    let origins = Origins::last(plan.count).step(plan.step);
    let result = for_each_origin(&forecaster, &table, origins, |number, origin, values| {
        let number = long[number];
        let known = &series[number];
        if plan.origins(known.values.len()).contains(&origin) {
            forecasts[number].get_or_insert_with(Vec::new).push(known.bounded(values));
        }
    });
    if result.is_err() {
        return Ok(None);
    }
    for (number, forecasts) in forecasts.iter_mut().enumerate() {
        let complete = |f: &Vec<Vec<f64>>| f.len() == plan.origins(series[number].values.len()).len();
        *forecasts = forecasts.take().filter(|f| complete(f) && f.iter().flatten().all(|x| x.is_finite()));
    }
    Ok(forecasts.iter().any(Option::is_some).then_some(forecasts))
}

/// Returns a table of some of the series, with gaps filled.
pub fn table_of(table: &Table, series: &[Prepared], chosen: &[usize]) -> Table {
    let of = |&number: &usize| Series {
        values: series[number].values.clone(),
        leaky: Vec::new(),
        past: Vec::new(),
        future: series[number].covariates.clone(),
        fixed: Vec::new(),
        ..table.series[series[number].number].clone()
    };
    let mut columns = table.columns.clone();
    columns.past.clear();
    columns.fixed.clear();
    if series.first().is_none_or(|series| series.columns == 0) {
        columns.future.clear();
    }
    Table { series: chosen.iter().map(of).collect(), columns, ..table.clone() }
}

/// Trains a network without the last `held` values; `None` if it cannot be trained, or not in time.
pub fn train(
    candidate: &Candidate,
    table: &Table,
    horizon: usize,
    held: usize,
    deadline: Instant,
    stop: &AtomicBool,
) -> Result<Option<Forecaster>, AutomaticError> {
    let Some(builder) = candidate.builder(horizon) else { return Ok(None) };
    let in_time = |_: &crate::fit::Progress| {
        if Instant::now() < deadline {
            std::ops::ControlFlow::Continue(())
        } else {
            std::ops::ControlFlow::Break(())
        }
    };
    match builder.test(held).on_progress(in_time).cancel(stop).fit(table) {
        Ok(forecaster) => Ok(Some(forecaster)),
        Err(_) if stop.load(Ordering::Relaxed) => Err(AutomaticError::Interrupted),
        Err(FitError::Training(error)) => Err(FitError::Training(error).into()),
        // The data are too few for it, or it diverged: other candidates remain.
        Err(_) => Ok(None),
    }
}

/// Fits a statistical model to the whole of a series and forecasts its future.
pub fn ahead(
    method: crate::classical::Method,
    series: &Prepared,
    horizon: usize,
) -> Option<(Fitted, Vec<f64>)> {
    let fitted = method.fit(&series.history())?;
    let forecast = series.bounded(fitted.forecast(&series.history(), horizon));
    forecast.iter().all(|x| x.is_finite()).then_some((fitted, forecast))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn origins_end_one_horizon_before_the_end() {
        let plan = Plan::new(&[144], 12, 12);
        assert_eq!(plan, Plan { horizon: 12, step: 1, count: 46, history: 8 });
        let origins = plan.origins(144);
        assert_eq!((origins[0], origins.len(), origins[45]), (144 - plan.reach(), 46, 132));
        assert_eq!(plan.age(144, 132), 0);
        // Short series have fewer.
        assert_eq!(plan.origins(22), [8, 9, 10]);
        assert!(plan.origins(15).is_empty());
        // Of many short series, each has one.
        assert_eq!(Plan::new(&[10; 50], 4, 4).origins(10), [6]);
    }

    proptest! {
        #[test]
        fn plans_are_bounded(lengths in prop::collection::vec(0usize..5000, 0..50), horizon in 1usize..60) {
            let plan = Plan::new(&lengths, horizon, horizon);
            prop_assert!((1..=MAX_ORIGINS).contains(&plan.count) && plan.step >= 1);
            for length in lengths {
                for origin in plan.origins(length) {
                    prop_assert!(origin >= LEAST_HISTORY && origin + horizon <= length);
                    prop_assert_eq!(length - horizon - plan.age(length, origin) * plan.step, origin);
                }
            }
        }
    }
}
