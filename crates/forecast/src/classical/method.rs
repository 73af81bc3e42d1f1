//! The list of the statistical models, and fitted ones.

use super::History;
use super::autoregression::Autoregression;
use super::ets::Ets;
use super::harmonic::Harmonic;
use super::intermittent::{croston, fit_tsb, tsb};
use super::stl::mstl;
use crate::evaluation::Baseline;

/// The longest season and the most values that are decomposed by local regression.
const MAX_PERIOD: usize = 400;
const MAX_VALUES: usize = 4000;

/// A statistical model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// A baseline.
    Baseline(Baseline),
    /// Exponential smoothing with automatic choice.
    Ets,
    /// Autoregression with automatic orders.
    Autoregression,
    /// Regression on Fourier terms and covariates with autoregressive errors.
    Harmonic,
    /// The same on the logarithm.
    LogHarmonic,
    /// Decomposition by MSTL, and exponential smoothing of the seasonally adjusted series.
    Decomposition,
    /// Croston's method with the correction of Syntetos and Boylan.
    Croston,
    /// The method of Teunter, Syntetos and Babai.
    Tsb,
}

impl Method {
    /// All methods.
    pub const ALL: [Method; 12] = [
        Method::Baseline(Baseline::Naive),
        Method::Baseline(Baseline::SeasonalNaive),
        Method::Baseline(Baseline::Drift),
        Method::Baseline(Baseline::Naive2),
        Method::Baseline(Baseline::Theta),
        Method::Ets,
        Method::Autoregression,
        Method::Harmonic,
        Method::LogHarmonic,
        Method::Decomposition,
        Method::Croston,
        Method::Tsb,
    ];

    /// Returns the name.
    pub fn name(self) -> &'static str {
        match self {
            Method::Baseline(baseline) => baseline.name(),
            Method::Ets => "ets",
            Method::Autoregression => "autoregression",
            Method::Harmonic => "regression",
            Method::LogHarmonic => "log regression",
            Method::Decomposition => "mstl",
            Method::Croston => "croston",
            Method::Tsb => "tsb",
        }
    }

    /// Describes the method in a few words.
    pub fn about(self) -> &'static str {
        match self {
            Method::Baseline(Baseline::Naive) => "the last value",
            Method::Baseline(Baseline::SeasonalNaive) => "the value one season before",
            Method::Baseline(Baseline::Drift) => "the line through the first and the last value",
            Method::Baseline(Baseline::Naive2) => "the last value, seasonally adjusted",
            Method::Baseline(Baseline::Theta) => "smoothing with half the trend, seasonally adjusted",
            Method::Ets => "exponential smoothing with the form of the lowest AICc",
            Method::Autoregression => "autoregression with automatic differences and lags",
            Method::Harmonic => "Fourier terms of all seasons and covariates, autoregressive errors",
            Method::LogHarmonic => "regression on the logarithm: seasons and covariates are factors",
            Method::Decomposition => "several seasons by local regression, the remainder smoothed",
            Method::Croston => "smoothed size over smoothed interval of demands",
            Method::Tsb => "smoothed size times smoothed probability of a demand",
        }
    }

    /// Returns the method of a name.
    pub fn of_name(name: &str) -> Option<Method> {
        Method::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Fits the model; `None` if the history is too short for it.
    pub fn fit(self, history: &History<'_>) -> Option<Fitted> {
        let season = history.season();
        match self {
            Method::Baseline(Baseline::SeasonalNaive) => (!history.values.is_empty())
                .then(|| Fitted::Baseline(Baseline::SeasonalNaive, history.season_seen())),
            Method::Baseline(baseline) => {
                (!history.values.is_empty()).then_some(Fitted::Baseline(baseline, season))
            }
            Method::Ets => Ets::fit(history, season).map(Fitted::Ets),
            Method::Autoregression => Autoregression::fit(history, season).map(Fitted::Autoregression),
            Method::Harmonic => Harmonic::fit(history, false).map(Fitted::Harmonic),
            Method::LogHarmonic => Harmonic::fit(history, true).map(Fitted::Harmonic),
            Method::Decomposition => Decomposed::fit(history).map(Fitted::Decomposed),
            Method::Croston => (!history.values.is_empty()).then_some(Fitted::Croston(0.1)),
            Method::Tsb => {
                let (size, probability) = fit_tsb(history.values);
                (!history.values.is_empty()).then_some(Fitted::Tsb(size, probability))
            }
        }
    }
}

/// A fitted model. It forecasts the history of its fit and continuations of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Fitted {
    /// A baseline with its season.
    Baseline(Baseline, usize),
    /// Exponential smoothing.
    Ets(Ets),
    /// Autoregression.
    Autoregression(Autoregression),
    /// Regression.
    Harmonic(Harmonic),
    /// Decomposition.
    Decomposed(Decomposed),
    /// Croston's method with its rate.
    Croston(f64),
    /// TSB with its rates.
    Tsb(f64, f64),
}

impl Fitted {
    /// Forecasts the steps after a history.
    pub fn forecast(&self, history: &History<'_>, horizon: usize) -> Vec<f64> {
        let values = history.values;
        match self {
            Fitted::Baseline(baseline, season) => baseline.forecast(values, *season, horizon),
            Fitted::Ets(model) => model.forecast(values, horizon),
            Fitted::Autoregression(model) => model.forecast(values, horizon),
            Fitted::Harmonic(model) => model.forecast(history, horizon),
            Fitted::Decomposed(model) => model.forecast(values, horizon),
            Fitted::Croston(rate) => vec![croston(values, *rate, true); horizon],
            Fitted::Tsb(size, probability) => vec![tsb(values, *size, *probability); horizon],
        }
    }

    /// Describes the fitted model: its form and orders.
    pub fn describe(&self) -> String {
        match self {
            Fitted::Baseline(baseline, season) if *season > 1 => {
                format!("{}, season {season}", baseline.name())
            }
            Fitted::Baseline(baseline, _) => baseline.name().to_string(),
            Fitted::Ets(model) => model.form.to_string(),
            Fitted::Autoregression(model) => model.to_string(),
            Fitted::Harmonic(model) => model.to_string(),
            Fitted::Decomposed(model) => {
                let periods: Vec<String> =
                    model.seasonal.iter().map(|cycle| cycle.len().to_string()).collect();
                format!("MSTL with seasons {}, {}", periods.join(" and "), model.adjusted.form)
            }
            Fitted::Croston(rate) => format!("Croston, rate {rate}"),
            Fitted::Tsb(size, probability) => format!("TSB, rates {size} and {probability}"),
        }
    }
}

/// Seasons by MSTL, and exponential smoothing of the seasonally adjusted series.
#[derive(Clone, Debug)]
pub struct Decomposed {
    /// The last cycle of each season, in the order of positions: index `i` is for positions `i` modulo its length.
    seasonal: Vec<Vec<f64>>,
    adjusted: Ets,
}

impl Decomposed {
    fn fit(history: &History<'_>) -> Option<Decomposed> {
        let n = history.values.len();
        // Local regression takes time in proportion to the square of the length.
        let begin = n.saturating_sub(MAX_VALUES);
        let values = &history.values[begin..];
        let whole = history.seasons.iter().map(|season| season.round() as usize);
        let periods: Vec<usize> =
            whole.filter(|period| (2..=MAX_PERIOD).contains(period) && 2 * period <= values.len()).collect();
        if periods.is_empty() {
            return None;
        }
        let components = mstl(values, &periods).seasonal;
        let last_cycle = |(component, period): (&Vec<f64>, &usize)| {
            let mut cycle = vec![0.0; *period];
            (n - period..n).for_each(|position| cycle[position % period] = component[position - begin]);
            cycle
        };
        let seasonal: Vec<Vec<f64>> = components.iter().zip(&periods).map(last_cycle).collect();
        // With the components of their own time, so that the fit sees what was left.
        let adjusted: Vec<f64> = (0..values.len())
            .map(|i| values[i] - components.iter().map(|component| component[i]).sum::<f64>())
            .collect();
        let mut adjusted = Ets::fit(&History::of(&adjusted), 1)?;
        adjusted.begin += begin;
        Some(Decomposed { seasonal, adjusted })
    }

    fn forecast(&self, values: &[f64], horizon: usize) -> Vec<f64> {
        let season = |position: usize| -> f64 {
            self.seasonal.iter().map(|cycle| cycle[position % cycle.len()]).sum()
        };
        let adjusted: Vec<f64> = values.iter().enumerate().map(|(i, y)| y - season(i)).collect();
        let ahead = self.adjusted.forecast(&adjusted, horizon).into_iter().enumerate();
        ahead.map(|(step, level)| level + season(values.len() + step)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_method_has_a_name_of_its_own_and_a_description() {
        for (i, method) in Method::ALL.iter().enumerate() {
            assert_eq!(Method::of_name(method.name()), Some(*method));
            assert!(Method::ALL[..i].iter().all(|other| other.about() != method.about()));
        }
        assert_eq!(Method::of_name("prophet"), None);
    }

    #[test]
    fn seasonal_methods_continue_a_trend_with_two_seasons() {
        let truth = |i: usize| {
            let angle = i as f64 * std::f64::consts::TAU;
            200.0 + 0.2 * i as f64 + 10.0 * (angle / 6.0).sin() + 15.0 * (angle / 30.0).cos()
        };
        let values: Vec<f64> = (0..300).map(truth).collect();
        let history = History { seasons: &[6.0, 30.0], ..History::of(&values) };
        for method in [Method::Harmonic, Method::Decomposition, Method::Autoregression] {
            let fitted = method.fit(&history).unwrap();
            for (step, value) in fitted.forecast(&history, 20).into_iter().enumerate() {
                assert!((value - truth(300 + step)).abs() < 3.0, "{} {step} {value}", fitted.describe());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn every_method_forecasts_any_history(
            values in prop::collection::vec(prop_oneof![-1e3f64..1e3, Just(0.0), Just(7.0)], 0..70),
            seasons in prop::collection::vec(0.5f64..40.0, 0..3),
            horizon in 0usize..20,
        ) {
            let history = History { seasons: &seasons, ..History::of(&values) };
            for method in Method::ALL {
                let half = history.until(values.len() / 2);
                for fitted in [method.fit(&history), method.fit(&half)].into_iter().flatten() {
                    let forecast = fitted.forecast(&history, horizon);
                    prop_assert_eq!(forecast.len(), horizon);
                    prop_assert!(!fitted.describe().is_empty());
                }
            }
        }
    }
}
