//! Errors of a choice on data that it was not chosen on, and the coverage of intervals on later data.

use rayon::prelude::*;

use super::choice::{Combination, Window, choose, score};
use super::intervals::{Intervals, OriginErrors, units};
use super::result::Coverage;
use super::run::Comparison;

/// Parts of time that errors are measured on, with ensembles that were chosen on the other parts.
const PARTS: usize = 4;

impl Comparison<'_> {
    /// Returns the ages of the origins of the windows.
    fn ages(&self, compared: &[usize]) -> Vec<usize> {
        let origins = |number: &usize| {
            let length = self.series[*number].values.len();
            self.plan.origins(length).into_iter().map(move |origin| self.plan.age(length, origin))
        };
        compared.iter().flat_map(origins).collect()
    }

    /// Returns the forecast of each window by an ensemble that was chosen without it and its neighbours in time: the errors of
    /// an ensemble where it was chosen are too small.
    pub(super) fn held_out(
        &self,
        windows: &[Window<'_>],
        compared: &[usize],
        members: &[usize],
        combination: Combination,
    ) -> Vec<Vec<f64>> {
        if members.is_empty() {
            return vec![Vec::new(); windows.len()];
        }
        let ages = self.ages(compared);
        let candidates: Vec<usize> =
            (0..windows.first().map_or(0, |window| window.forecasts.len())).collect();
        let overlap = self.plan.horizon.div_ceil(self.plan.step);
        let of_part = |part: usize| -> Vec<usize> {
            let (begin, end) = (part * self.plan.count / PARTS, (part + 1) * self.plan.count / PARTS);
            let apart = |age: usize| age + overlap <= begin || age >= end + overlap - 1;
            let others: Vec<Window<'_>> = windows
                .iter()
                .zip(&ages)
                .filter(|(_, age)| apart(**age))
                .map(|(window, _)| window.clone())
                .collect();
            let series: usize = others.iter().map(|window| window.series + 1).max().unwrap_or(0);
            // With little left to choose from, the choice would be another one.
            if 2 * others.len() < windows.len() || series < compared.len() {
                return members.to_vec();
            }
            choose(&others, &candidates, combination).0
        };
        let chosen: Vec<Vec<usize>> = (0..PARTS).into_par_iter().map(of_part).collect();
        let forecast = |(window, age): (&Window<'_>, &usize)| {
            let part =
                (0..PARTS).find(|part| *age < (part + 1) * self.plan.count / PARTS).unwrap_or(PARTS - 1);
            let of_members: Vec<&[f64]> =
                chosen[part].iter().map(|member| window.forecasts[*member]).collect();
            combination.combine(&of_members)
        };
        windows.iter().zip(&ages).map(forecast).collect()
    }

    /// Returns the errors of the forecasts from all origins.
    pub(super) fn errors(
        &self,
        windows: &[Window<'_>],
        compared: &[usize],
        forecasts: &[Vec<f64>],
    ) -> Vec<OriginErrors> {
        let places = compared.iter().flat_map(|&number| {
            self.plan
                .origins(self.series[number].values.len())
                .into_iter()
                .map(move |origin| (number, origin))
        });
        let errors =
            windows.iter().zip(forecasts).zip(places).filter(|((_, forecast), _)| !forecast.is_empty());
        errors
            .map(|((window, forecast), (number, origin))| {
                let known = &self.series[number];
                OriginErrors {
                    series: number,
                    age: self.plan.age(known.values.len(), origin),
                    units: units(&known.values[..origin], known.season(), forecast),
                    errors: window.actual.iter().zip(forecast).map(|(y, f)| y - f).collect(),
                }
            })
            .collect()
    }

    /// Returns the mean scaled error of each series.
    pub(super) fn scores_of_series(
        &self,
        windows: &[Window<'_>],
        compared: &[usize],
        combination: Combination,
    ) -> Vec<f64> {
        let mut scores = vec![f64::NAN; self.series.len()];
        let mut rest = windows;
        for (place, &number) in compared.iter().enumerate() {
            let end = rest.iter().position(|window| window.series != place).unwrap_or(rest.len());
            let own: Vec<Window<'_>> =
                rest[..end].iter().map(|window| Window { series: 0, ..window.clone() }).collect();
            rest = &rest[end..];
            if own.iter().any(|window| !window.forecasts[0].is_empty()) {
                scores[number] = score(&own, &[0], combination);
            }
        }
        scores
    }

    /// Measures intervals that are calibrated on the earlier origins on the later ones, without overlap.
    pub(super) fn coverage(&self, errors: &[OriginErrors]) -> Vec<Coverage> {
        let apart = self.plan.horizon.div_ceil(self.plan.step);
        let half = self.plan.count / 2;
        let earlier: Vec<OriginErrors> = errors.iter().filter(|o| o.age >= half + apart).cloned().collect();
        let later: Vec<&OriginErrors> = errors.iter().filter(|o| o.age < half).collect();
        if earlier.is_empty() || later.is_empty() {
            return Vec::new();
        }
        let intervals = Intervals::calibrate(&earlier, self.plan.horizon, self.plan.step);
        let of = |&level: &f64| {
            let (mut inside, mut all) = (0usize, 0usize);
            for origin in &later {
                // Errors are those of a forecast of zero.
                let zeros = vec![0.0; origin.errors.len()];
                let [low, high] = intervals.interval(level, origin.series, origin.units, &zeros);
                for (step, error) in origin.errors.iter().enumerate().filter(|(_, error)| error.is_finite()) {
                    all += 1;
                    inside += usize::from((low[step]..=high[step]).contains(error));
                }
            }
            Coverage { level, covered: inside as f64 / all.max(1) as f64 }
        };
        self.settings.levels.iter().map(of).collect()
    }
}
