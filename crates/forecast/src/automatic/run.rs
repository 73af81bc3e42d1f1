//! The steps of an automatic forecast.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::candidates::Candidate;
use super::choice::{Combination, Window, choose, score};
use super::comparison::{self, Forecasts, Plan};
use super::intervals::{Intervals, OriginErrors, units};
use super::result::{AutomaticForecast, CandidateScore, GroupChoice, SeriesChoice};
use super::series::{Group, Prepared, covariates_known};
use super::{Automatic, AutomaticError, Progress, seasons};
use crate::classical::Method;
use crate::data::Table;
use crate::evaluation::Baseline;
use crate::prediction::{Interval, SeriesForecast};

/// The part of the time that the comparison may take: the rest is for the forecasts of what was chosen.
const COMPARISON: f64 = 0.7;

/// Origins that a series needs to be compared on its own.
const MIN_ORIGINS: usize = 3;

/// What forecasts a group if nothing can be compared.
const UNCOMPARED: [Method; 3] =
    [Method::Baseline(Baseline::Theta), Method::Ets, Method::Baseline(Baseline::SeasonalNaive)];

pub fn run(settings: &Automatic<'_>, table: &Table) -> Result<AutomaticForecast, AutomaticError> {
    let begin = Instant::now();
    let comparison = Comparison::new(settings, table, begin)?;
    let (scores, forecasts) = comparison.run()?;
    let choices = comparison.choose(&forecasts);
    comparison.finish(scores, choices)
}

/// What the steps share.
pub(super) struct Comparison<'a> {
    pub(super) settings: &'a Automatic<'a>,
    table: &'a Table,
    pub(super) series: Vec<Prepared>,
    seasons: Vec<f64>,
    pub(super) plan: Plan,
    candidates: Vec<Candidate>,
    begin: Instant,
    never: AtomicBool,
}

/// The choice for a group: its series, the members, and their calibrated intervals.
struct Chosen {
    group: Group,
    members: Vec<usize>,
    combination: Combination,
    intervals: Intervals,
    choice: GroupChoice,
    /// Mean scaled error of each series.
    of_series: Vec<f64>,
    /// Errors of the choice, if they are kept.
    errors: Vec<OriginErrors>,
}

impl<'a> Comparison<'a> {
    fn new(
        settings: &'a Automatic<'a>,
        table: &'a Table,
        begin: Instant,
    ) -> Result<Comparison<'a>, AutomaticError> {
        let horizon = settings.horizon;
        if horizon == 0 {
            return Err(AutomaticError::NoHorizon);
        }
        if let Some(level) = settings.levels.iter().find(|level| !(**level > 0.0 && **level < 1.0)) {
            return Err(AutomaticError::Level(*level));
        }
        let lengths: Vec<usize> = table.series.iter().map(|series| series.values.len()).collect();
        let longest =
            lengths.iter().copied().max().filter(|longest| *longest > 0).ok_or(AutomaticError::NoValues)?;
        if horizon > longest.max(1) {
            return Err(AutomaticError::TooLong { horizon, longest });
        }
        let seasons = settings.seasons.clone().unwrap_or_else(|| seasons(table));
        let season = seasons.first().map_or(1, |season| season.round() as usize);
        let plan = Plan::new(&lengths, horizon, season);
        let series = Prepared::all(table, &seasons, horizon, |length| {
            plan.origins(length).len() >= MIN_ORIGINS.min(plan.count)
        });
        if series.is_empty() {
            return Err(AutomaticError::NoValues);
        }
        let covariates = series.iter().any(|series| series.columns > 0);
        let mut candidates = Candidate::all(series.len(), longest, season, plan.reach(), horizon, covariates);
        if let Some(name) = settings
            .models
            .iter()
            .find(|name| !candidates.iter().any(|c| c.is_named(std::slice::from_ref(name))))
        {
            let known: Vec<String> = candidates.iter().map(Candidate::name).collect();
            return Err(AutomaticError::UnknownModel { name: name.clone(), known: known.join(", ") });
        }
        candidates.retain(|c| settings.models.is_empty() || c.is_named(&settings.models));
        candidates.retain(|c| settings.networks || !matches!(c, Candidate::Network { .. }));
        let never = AtomicBool::new(false);
        Ok(Comparison { settings, table, series, seasons, plan, candidates, begin, never })
    }

    /// Returns the shortest season; 1 if there is none.
    fn season(&self) -> usize {
        self.seasons.first().map_or(1, |season| season.round() as usize)
    }

    fn stop(&self) -> &AtomicBool {
        self.settings.cancel.unwrap_or(&self.never)
    }

    fn check(&self) -> Result<(), AutomaticError> {
        if self.stop().load(Ordering::Relaxed) { Err(AutomaticError::Interrupted) } else { Ok(()) }
    }

    fn report(&self, doing: String, done: usize, until: Duration) {
        if let Some(call) = self.settings.on_progress {
            let elapsed = self.begin.elapsed();
            let left = until.saturating_sub(elapsed);
            call(&Progress { doing, done, candidates: self.candidates.len(), elapsed, left });
        }
    }

    /// Forecasts from all origins with all candidates, as far as time allows.
    fn run(&self) -> Result<(Vec<CandidateScore>, Vec<Option<Forecasts>>), AutomaticError> {
        let budget = self.settings.time.mul_f64(COMPARISON);
        let deadline = self.begin + budget;
        let (mut scores, mut all) = (Vec::new(), Vec::new());
        for (number, candidate) in self.candidates.iter().enumerate() {
            self.check()?;
            self.report(format!("comparing {}", candidate.name()), number, budget);
            let begin = Instant::now();
            let in_vain =
                candidate.is_intermittent() && self.series.iter().all(|s| s.group != Group::Intermittent);
            let (forecasts, left_out) = match candidate {
                _ if in_vain => (None, Some("no series is intermittent")),
                _ if begin >= deadline => (None, Some("no time left")),
                Candidate::Classical(method) => {
                    // No candidate takes the time of all others.
                    let deadline = begin + deadline.saturating_duration_since(begin).mul_f64(0.5);
                    let found =
                        comparison::classical(*method, &self.series, &self.plan, deadline, self.stop());
                    let some = found.as_ref().is_some_and(|all| all.iter().any(Option::is_some));
                    match (found, some) {
                        (None, _) => (None, Some("no time left")),
                        (Some(_), false) => (None, Some("the series are too short for it")),
                        (found, true) => (found, None),
                    }
                }
                Candidate::Pooled => {
                    let found = comparison::pooled(&self.series, &self.plan, self.season());
                    let left_out = found.is_none().then_some("the series are too short for it");
                    (found, left_out)
                }
                Candidate::Network { .. } => {
                    // Training is repeated on all values if it is chosen, which takes longer.
                    let time = deadline.saturating_duration_since(begin).mul_f64(0.5);
                    let deadline = begin + time;
                    let found = comparison::network(
                        candidate,
                        self.table,
                        &self.series,
                        &self.plan,
                        deadline,
                        self.stop(),
                    )?;
                    let reason = if Instant::now() >= deadline {
                        "no time left"
                    } else {
                        "the series are too short for it"
                    };
                    let left_out = found.is_none().then_some(reason);
                    (found, left_out)
                }
            };
            self.check()?;
            scores.push(CandidateScore {
                name: candidate.name(),
                about: candidate.about(),
                elapsed: begin.elapsed(),
                left_out,
                reference: candidate.is_reference(),
            });
            all.push(forecasts);
        }
        Ok((scores, all))
    }

    /// Chooses for each group of series.
    fn choose(&self, forecasts: &[Option<Forecasts>]) -> Vec<Chosen> {
        let mut groups: Vec<Group> = self.series.iter().map(|series| series.group).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.into_iter().map(|group| self.choose_for(group, forecasts)).collect()
    }

    fn choose_for(&self, group: Group, forecasts: &[Option<Forecasts>]) -> Chosen {
        let series: Vec<usize> =
            (0..self.series.len()).filter(|number| self.series[*number].group == group).collect();
        let compared: Vec<usize> = series
            .iter()
            .copied()
            .filter(|number| !self.plan.origins(self.series[*number].values.len()).is_empty())
            .collect();
        let of = |candidate: usize, number: usize| -> Option<&Vec<Vec<f64>>> {
            forecasts[candidate].as_ref().and_then(|all| all[number].as_ref())
        };
        // A candidate is compared if it can forecast every series of the group that is compared.
        let complete = |candidate: &usize| {
            !compared.is_empty()
                && compared.iter().all(|number| of(*candidate, *number).is_some())
                && (group == Group::Intermittent || !self.candidates[*candidate].is_intermittent())
        };
        let eligible: Vec<usize> = (0..self.candidates.len()).filter(complete).collect();
        let combination = if group == Group::Intermittent { Combination::Mean } else { Combination::Median };
        let mut windows: Vec<Window<'_>> = Vec::new();
        for (place, &number) in compared.iter().enumerate() {
            let known = &self.series[number];
            for (at, &origin) in self.plan.origins(known.values.len()).iter().enumerate() {
                windows.push(Window {
                    series: place,
                    actual: &known.values[origin..origin + self.plan.horizon],
                    forecasts: eligible
                        .iter()
                        .map(|candidate| of(*candidate, number).map_or(&[][..], |all| all[at].as_slice()))
                        .collect(),
                    scale: known.scale(origin),
                });
            }
        }
        let places: Vec<usize> = (0..eligible.len()).collect();
        // Few windows say nothing about the future.
        let members =
            if windows.len() < MIN_ORIGINS { Vec::new() } else { choose(&windows, &places, combination).0 };
        let mut scores = vec![f64::NAN; self.candidates.len()];
        for place in places {
            scores[eligible[place]] = score(&windows, &[place], combination);
        }
        let held_out = self.held_out(&windows, &compared, &members, combination);
        let errors = self.errors(&windows, &compared, &held_out);
        let windows: Vec<Window<'_>> = windows
            .iter()
            .zip(&held_out)
            .map(|(window, forecast)| Window { forecasts: vec![forecast.as_slice()], ..window.clone() })
            .collect();
        let found = if members.is_empty() { f64::NAN } else { score(&windows, &[0], combination) };
        let of_series = self.scores_of_series(&windows, &compared, combination);
        let intervals = Intervals::calibrate(&errors, self.plan.horizon, self.plan.step);
        let mut members: Vec<usize> = members.into_iter().map(|place| eligible[place]).collect();
        if members.is_empty() {
            members = (0..self.candidates.len())
                .filter(|number| matches!(&self.candidates[*number], Candidate::Classical(m) if UNCOMPARED.contains(m)))
                .collect();
            if members.is_empty() {
                members = (0..self.candidates.len()).collect();
            }
        }
        let names: Vec<String> = members.iter().map(|member| self.candidates[*member].name()).collect();
        let choice = GroupChoice {
            group,
            series: series.len(),
            windows: windows.len(),
            combination: match (names.len(), combination) {
                (1, _) => "alone",
                (2, _) | (_, Combination::Mean) => "mean",
                _ => "median",
            },
            members: names,
            score: found,
            scores,
            coverage: self.coverage(&errors),
        };
        let errors = if self.settings.keep_errors { errors } else { Vec::new() };
        Chosen { group, members, combination, intervals, choice, of_series, errors }
    }

    /// Fits what was chosen to all values, and forecasts.
    fn finish(
        &self,
        candidates: Vec<CandidateScore>,
        chosen: Vec<Chosen>,
    ) -> Result<AutomaticForecast, AutomaticError> {
        let mut used: Vec<usize> = chosen.iter().flat_map(|chosen| chosen.members.iter().copied()).collect();
        used.sort_unstable();
        used.dedup();
        // [member][series]
        let mut of_all: Vec<(usize, Vec<Option<Vec<f64>>>)> = Vec::new();
        for &member in &used {
            self.check()?;
            let candidate = &self.candidates[member];
            self.report(format!("fitting {}", candidate.name()), self.candidates.len(), self.settings.time);
            match candidate {
                Candidate::Classical(_) => {}
                Candidate::Pooled => {
                    let found = comparison::pooled_ahead(&self.series, self.plan.horizon, self.season());
                    of_all.push((member, found));
                }
                Candidate::Network { .. } => of_all.push((member, self.network_ahead(candidate)?)),
            }
        }
        self.report("fitting the statistical models".into(), self.candidates.len(), self.settings.time);
        let mut group_of: Vec<&Chosen> = Vec::with_capacity(self.series.len());
        for number in 0..self.series.len() {
            let found = chosen.iter().find(|chosen| chosen.group == self.series[number].group);
            group_of.extend(found);
        }
        let results: Vec<(Vec<f64>, Vec<String>)> = (0..self.series.len())
            .into_par_iter()
            .map(|number| self.combined(number, group_of[number], &of_all))
            .collect();
        self.check()?;
        let mut result = AutomaticForecast {
            forecasts: Vec::with_capacity(self.series.len()),
            series: Vec::with_capacity(self.series.len()),
            groups: Vec::new(),
            candidates,
            seasons: self.seasons.clone(),
            origins: (self.plan.count, self.plan.step),
            covariates: if covariates_known(self.table, self.plan.horizon) {
                self.table.columns.future.clone()
            } else {
                Vec::new()
            },
            errors: self.errors_of_series(&chosen),
            elapsed: self.begin.elapsed(),
        };
        for (number, (values, fitted)) in results.into_iter().enumerate() {
            let (series, chosen) = (&self.series[number], group_of[number]);
            let of_table = &self.table.series[series.number];
            let scales = units(&series.values, series.season(), &values);
            let mut levels = self.settings.levels.clone();
            levels.sort_by(f64::total_cmp);
            let interval = |level: f64| {
                let [low, high] = chosen.intervals.interval(level, number, scales, &values);
                Interval { level, low: series.bounded(low), high: series.bounded(high) }
            };
            let length = series.values.len();
            result.forecasts.push(SeriesForecast {
                id: of_table.id.clone(),
                times: (0..values.len()).map(|step| self.table.time(of_table, length + step)).collect(),
                intervals: levels.into_iter().map(interval).collect(),
                values,
            });
            result.series.push(SeriesChoice {
                id: of_table.id.clone(),
                group: series.group,
                fitted,
                score: chosen.of_series[number],
                quality: series.quality.clone(),
            });
        }
        result.groups = chosen.into_iter().map(|chosen| chosen.choice).collect();
        result.elapsed = self.begin.elapsed();
        Ok(result)
    }

    /// Returns the errors of all series, each origin at the position of its age; empty if they are not kept.
    fn errors_of_series(&self, chosen: &[Chosen]) -> Vec<Vec<f64>> {
        if !self.settings.keep_errors {
            return Vec::new();
        }
        let horizon = self.plan.horizon;
        let mut all = vec![vec![f64::NAN; self.plan.count * horizon]; self.series.len()];
        for origin in chosen.iter().flat_map(|chosen| &chosen.errors) {
            let begin = origin.age * horizon;
            if let Some(place) = all[origin.series].get_mut(begin..begin + origin.errors.len()) {
                place.copy_from_slice(&origin.errors);
            }
        }
        all
    }

    /// Trains a network on all values and forecasts the series that are long enough.
    fn network_ahead(&self, candidate: &Candidate) -> Result<Vec<Option<Vec<f64>>>, AutomaticError> {
        let mut forecasts = vec![None; self.series.len()];
        let Candidate::Network { input, .. } = candidate else { return Ok(forecasts) };
        let needed = input + 3 * self.plan.horizon;
        let long: Vec<usize> =
            (0..self.series.len()).filter(|number| self.series[*number].values.len() >= needed).collect();
        let table = comparison::table_of(self.table, &self.series, &long);
        let deadline = Instant::now() + Duration::from_secs(24 * 3600);
        let trained = comparison::train(candidate, &table, self.plan.horizon, 0, deadline, self.stop())?;
        let Some(found) = trained.and_then(|forecaster| forecaster.predict(&table).ok()) else {
            return Ok(forecasts);
        };
        for (number, forecast) in long.into_iter().zip(found) {
            forecasts[number] = Some(self.series[number].bounded(forecast.values));
        }
        Ok(forecasts)
    }

    /// Combines the forecasts of the members that can forecast a series; naive if none can.
    fn combined(
        &self,
        number: usize,
        chosen: &Chosen,
        of_all: &[(usize, Vec<Option<Vec<f64>>>)],
    ) -> (Vec<f64>, Vec<String>) {
        let series = &self.series[number];
        let (mut values, mut fitted) = (Vec::new(), Vec::new());
        for member in &chosen.members {
            match &self.candidates[*member] {
                Candidate::Classical(method) => {
                    if let Some((model, forecast)) = comparison::ahead(*method, series, self.plan.horizon) {
                        fitted.push(model.describe());
                        values.push(forecast);
                    }
                }
                common @ (Candidate::Pooled | Candidate::Network { .. }) => {
                    let found = of_all.iter().find(|(known, _)| known == member);
                    if let Some(forecast) = found.and_then(|(_, all)| all[number].clone()) {
                        fitted.push(common.name());
                        values.push(forecast);
                    }
                }
            }
        }
        if values.is_empty() {
            fitted.push("naive".into());
            values.push(Baseline::Naive.forecast(&series.values, 1, self.plan.horizon));
        }
        let members: Vec<&[f64]> = values.iter().map(Vec::as_slice).collect();
        (chosen.combination.combine(&members), fitted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(series: Vec<(&str, Vec<f64>)>) -> Table {
        Table::from_series("D", series.into_iter().map(|(id, values)| (id, "2023-01-01", values))).unwrap()
    }

    fn weekly(n: usize, phase: usize) -> Vec<f64> {
        let noise = |i: usize| (i * 7919 % 101) as f64 / 10.0;
        (0..n).map(|i| 100.0 + 20.0 * ((i + phase) % 7) as f64 + noise(i)).collect()
    }

    #[test]
    fn every_kind_of_series_is_forecast_with_nested_intervals() {
        let rare: Vec<f64> =
            (0..200).map(|i| if i % 5 == 0 { 3.0 + f64::from(i % 3) } else { 0.0 }).collect();
        let table = table(vec![
            ("weekly", weekly(200, 0)),
            ("rare", rare),
            ("short", weekly(16, 3)),
            ("constant", vec![5.0; 150]),
            ("one", vec![5.0]),
        ]);
        let result = Automatic::new(14).networks(false).levels([0.95, 0.5]).forecast(&table).unwrap();
        assert_eq!(result.forecasts.len(), 5);
        for forecast in &result.forecasts {
            assert_eq!((forecast.times.len(), forecast.intervals.len()), (14, 2));
            let [narrow, wide] = [&forecast.intervals[0], &forecast.intervals[1]];
            assert_eq!((narrow.level, wide.level), (0.5, 0.95));
            for step in 0..14 {
                assert!(wide.low[step] <= narrow.low[step] && narrow.low[step] <= forecast.values[step]);
                assert!(forecast.values[step] <= narrow.high[step] && narrow.high[step] <= wide.high[step]);
                assert!(wide.low[step] >= 0.0, "no value is negative");
            }
        }
        let groups: Vec<(&str, usize)> = result.groups.iter().map(|g| (g.group.name(), g.series)).collect();
        assert_eq!(groups, [("intermittent", 1), ("short", 2), ("regular", 2)]);
        for (step, value) in result.forecasts[0].values.iter().enumerate() {
            let expected = 105.0 + 20.0 * ((200 + step) % 7) as f64;
            assert!((value - expected).abs() < 12.0, "{step}: {value} for {expected}");
        }
        assert!(result.forecasts[3].values.iter().all(|value| (value - 5.0).abs() < 1e-6));
    }

    #[test]
    fn the_result_is_the_same_every_time_and_names_what_was_left_out() {
        let table = table(vec![("a", weekly(120, 0))]);
        let [one, two] = [(); 2].map(|()| Automatic::new(7).networks(false).forecast(&table).unwrap());
        assert_eq!(one.forecasts, two.forecasts);
        let croston = one.candidates.iter().find(|candidate| candidate.name == "croston").unwrap();
        assert_eq!(croston.left_out, Some("no series is intermittent"));
        assert!(
            one.groups[0].score
                <= one.groups[0].scores.iter().copied().filter(|x| x.is_finite()).fold(f64::MAX, f64::min)
                    * 1.1
        );
    }

    #[test]
    fn promotions_that_are_known_in_advance_are_used() {
        let promoted = |i: usize| f64::from(u8::from(i * 13 % 29 < 4));
        let values: Vec<f64> =
            weekly(300, 0).iter().enumerate().map(|(i, y)| y * (1.0 + promoted(i))).collect();
        let known = table(vec![("a", values.clone())]);
        let covariates: Vec<f64> = (0..314).map(promoted).collect();
        let table = known.clone().with_future_covariate("promotion", [("a", covariates)]).unwrap();
        let result = Automatic::new(14).networks(false).forecast(&table).unwrap();
        assert_eq!(result.covariates, ["promotion"]);
        let error = |result: &AutomaticForecast| -> f64 {
            let expected = |i: usize| (105.0 + 20.0 * (i % 7) as f64) * (1.0 + promoted(i));
            result.forecasts[0]
                .values
                .iter()
                .enumerate()
                .map(|(step, y)| (y - expected(300 + step)).abs())
                .sum()
        };
        let without = Automatic::new(14).networks(false).forecast(&known).unwrap();
        assert!(error(&result) < 0.5 * error(&without), "{} and {}", error(&result), error(&without));
    }

    #[test]
    fn wrong_settings_are_named() {
        let table = table(vec![("a", weekly(60, 0))]);
        let message = |settings: Automatic<'_>| settings.forecast(&table).unwrap_err().to_string();
        assert!(message(Automatic::new(0)).contains("horizon is 0"));
        assert!(message(Automatic::new(61)).contains("longer than the longest series, which has 60 values"));
        assert!(message(Automatic::new(7).levels([1.0])).contains("level 1 "));
        assert!(message(Automatic::new(7).models(["prophet"])).contains("there are naive, seasonal naive"));
        let stop = AtomicBool::new(true);
        assert!(matches!(Automatic::new(7).cancel(&stop).forecast(&table), Err(AutomaticError::Interrupted)));
    }

    #[test]
    fn without_time_baselines_of_the_choice_remain() {
        let table = table(vec![("a", weekly(60, 0))]);
        let result = Automatic::new(7).time(Duration::ZERO).forecast(&table).unwrap();
        assert!(result.candidates.iter().all(|candidate| candidate.left_out.is_some()));
        assert_eq!(result.groups[0].members, ["seasonal naive", "theta", "ets"]);
        assert!(result.forecasts[0].values.iter().all(|x| x.is_finite()));
    }
}
