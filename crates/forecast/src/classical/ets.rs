//! Exponential smoothing as state space models (Hyndman, Koehler, Ord, Snyder 2008), with automatic choice.
//!
//! A model has additive or multiplicative errors, no trend, a trend or a damped trend, and no season, an additive or a
//! multiplicative one. Parameters minimise the negative log-likelihood; the model with the lowest AICc is chosen. The
//! first seasonal indices come from a classical decomposition and are not optimised.

use super::History;
use super::seasonal::{centred_average, indices};
use super::simplex::minimize;
use crate::data::scale::mean;

/// Values that are used for fitting: the last ones of a long series.
const MAX_VALUES: usize = 1500;

/// Seasons that are used for fitting, if that is more than [`MAX_VALUES`].
const MIN_SEASONS: usize = 4;

/// The longest season that has states of its own.
pub const MAX_SEASON: usize = 366;

/// Evaluations of the likelihood for one model.
const EVALUATIONS: usize = 400;

/// How a component enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Component {
    /// It is absent.
    None,
    /// It is added.
    Additive,
    /// It is multiplied.
    Multiplicative,
}

/// The form of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Form {
    /// Whether errors are relative to the forecast.
    pub relative_errors: bool,
    /// Whether there is a trend.
    pub trend: bool,
    /// Whether the trend is damped.
    pub damped: bool,
    /// The season.
    pub season: Component,
}

impl std::fmt::Display for Form {
    /// Writes the usual name: `ETS(M,Ad,M)`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let trend = match (self.trend, self.damped) {
            (false, _) => "N",
            (true, false) => "A",
            (true, true) => "Ad",
        };
        let season = match self.season {
            Component::None => "N",
            Component::Additive => "A",
            Component::Multiplicative => "M",
        };
        write!(f, "ETS({},{trend},{season})", if self.relative_errors { "M" } else { "A" })
    }
}

/// A model with its parameters and first states.
#[derive(Clone, Debug, PartialEq)]
pub struct Ets {
    /// The form.
    pub form: Form,
    /// Smoothing of the level.
    pub alpha: f64,
    /// Smoothing of the trend.
    pub beta: f64,
    /// Smoothing of the season.
    pub gamma: f64,
    /// Damping of the trend; 1 without damping.
    pub phi: f64,
    /// Level before the first value.
    pub level: f64,
    /// Trend before the first value.
    pub slope: f64,
    /// Seasonal states before the first value, in the order of the steps.
    pub seasonal: Vec<f64>,
    /// Position of the first value.
    pub begin: usize,
}

/// The states after some values, and the likelihood of the values.
#[derive(Clone, Debug, PartialEq)]
pub struct Filtered {
    /// Level.
    pub level: f64,
    /// Trend.
    pub slope: f64,
    /// Seasonal states in the order of the next steps.
    pub seasonal: Vec<f64>,
    /// n ln(sum of squared errors) + 2 sum ln |forecast| for relative errors.
    pub likelihood: f64,
}

impl Ets {
    /// Runs through values from `begin` on. The states are not finite if the model diverges.
    pub fn filter(&self, values: &[f64]) -> Filtered {
        let Ets { form, alpha, beta, gamma, phi, .. } = *self;
        let (mut level, mut slope, mut seasonal) = (self.level, self.slope, self.seasonal.clone());
        let season = seasonal.len().max(1);
        let (mut squares, mut logarithms, mut place) = (0.0, 0.0, 0);
        for &y in values {
            let base = level + phi * slope;
            let state = seasonal.get(place).copied().unwrap_or(0.0);
            let forecast = match form.season {
                Component::None => base,
                Component::Additive => base + state,
                Component::Multiplicative => base * state,
            };
            let error = y - forecast;
            // The error in the units of the level, and in those of the season.
            let (of_level, of_season) = match form.season {
                Component::Multiplicative => (error / state, error / base),
                _ => (error, error),
            };
            level = base + alpha * of_level;
            slope = phi * slope + beta * of_level;
            if let Some(state) = seasonal.get_mut(place) {
                *state += gamma * of_season;
            }
            if form.relative_errors {
                let size = forecast.abs().max(f64::MIN_POSITIVE);
                squares += (error / size) * (error / size);
                logarithms += size.ln();
            } else {
                squares += error * error;
            }
            place = if place + 1 == season { 0 } else { place + 1 };
        }
        if place > 0 {
            seasonal.rotate_left(place);
        }
        let count = values.len() as f64;
        let likelihood = count * squares.max(f64::MIN_POSITIVE).ln() + 2.0 * logarithms;
        Filtered { level, slope, seasonal, likelihood }
    }

    /// Forecasts the steps after a history, which begins where that of the fit began.
    pub fn forecast(&self, history: &[f64], horizon: usize) -> Vec<f64> {
        let states = self.filter(history.get(self.begin..).unwrap_or_default());
        let (mut damping, mut trend) = (1.0, 0.0);
        (0..horizon)
            .map(|step| {
                damping *= self.phi;
                trend += damping * states.slope;
                let base = states.level + trend;
                match self.form.season {
                    Component::None => base,
                    Component::Additive => base + states.seasonal[step % states.seasonal.len()],
                    Component::Multiplicative => base * states.seasonal[step % states.seasonal.len()],
                }
            })
            .collect()
    }

    /// Returns the model with the lowest AICc; `None` if the history is too short.
    pub fn fit(history: &History<'_>, season: usize) -> Option<Ets> {
        let season = if season <= MAX_SEASON { season.max(1) } else { 1 };
        let all = history.values;
        let kept = MAX_VALUES.max(MIN_SEASONS * season).min(all.len());
        // Whole seasons are left out, so that the season of a position stays.
        let begin = (all.len() - kept) / season * season;
        let values = &all[begin..];
        if values.len() < 5 {
            return None;
        }
        let fitted = forms(values, season).into_iter().filter_map(|form| fit_form(values, form, season));
        let (mut best, _) = fitted.min_by(|a, b| a.1.total_cmp(&b.1))?;
        best.begin = begin;
        Some(best)
    }
}

/// Returns the forms to compare.
fn forms(values: &[f64], season: usize) -> Vec<Form> {
    let positive = values.iter().all(|x| *x > 0.0);
    let seasonal = season > 1 && values.len() >= 2 * season + 2;
    let mut forms = Vec::new();
    for relative_errors in [false, true] {
        for (trend, damped) in [(false, false), (true, false), (true, true)] {
            for kind in [Component::None, Component::Additive, Component::Multiplicative] {
                // Additive errors with a multiplicative season, and the reverse, are unstable.
                let stable = match kind {
                    Component::None => true,
                    Component::Additive => !relative_errors,
                    Component::Multiplicative => relative_errors,
                };
                if stable && (positive || !relative_errors) && (seasonal || kind == Component::None) {
                    forms.push(Form { relative_errors, trend, damped, season: kind });
                }
            }
        }
    }
    forms
}

/// Returns the parameters of a form, and its AICc.
fn fit_form(values: &[f64], form: Form, season: usize) -> Option<(Ets, f64)> {
    let start = first_states(values, form, season)?;
    let spread = values.iter().map(|x| (x - mean(values)).abs()).sum::<f64>() / values.len() as f64;
    let scale = spread.max(1e-12 * mean(values).abs()).max(f64::MIN_POSITIVE);
    let seasonal = form.season != Component::None;
    // Parameters: alpha, [beta], [gamma], [phi], level, [slope]; the states in units of the spread.
    let mut point = vec![0.3];
    let mut steps = vec![0.2];
    let mut push = |value: f64, step: f64| {
        point.push(value);
        steps.push(step);
    };
    if form.trend {
        push(0.03, 0.03);
    }
    if seasonal {
        push(0.05, 0.05);
    }
    if form.damped {
        push(0.95, -0.05);
    }
    push(0.0, 0.2);
    if form.trend {
        push(0.0, 0.02);
    }
    let with = |point: &[f64]| {
        let mut rest = point.iter().copied();
        let mut next = || rest.next().unwrap_or(0.0);
        let alpha = next();
        let beta = if form.trend { next() } else { 0.0 };
        let gamma = if seasonal { next() } else { 0.0 };
        let phi = if form.damped { next() } else { 1.0 };
        let level = start.level + scale * next();
        let slope = if form.trend { start.slope + scale * next() } else { 0.0 };
        Ets { alpha, beta, gamma, phi, level, slope, ..start.clone() }
    };
    let admissible = |model: &Ets| {
        (1e-4..=0.9999).contains(&model.alpha)
            && (!form.trend || (1e-5..=model.alpha).contains(&model.beta))
            && (!seasonal || (1e-5..=1.0 - model.alpha).contains(&model.gamma))
            && (!form.damped || (0.8..=0.98).contains(&model.phi))
    };
    let objective = |point: &[f64]| {
        let model = with(point);
        if admissible(&model) { model.filter(values).likelihood } else { f64::INFINITY }
    };
    let (point, likelihood) = minimize(&point, &steps, EVALUATIONS, objective);
    let parameters = point.len() + if seasonal { season - 1 } else { 0 } + 1;
    let (n, k) = (values.len() as f64, parameters as f64);
    if !likelihood.is_finite() || n - k - 1.0 <= 0.0 {
        return None;
    }
    let criterion = likelihood + 2.0 * k + 2.0 * k * (k + 1.0) / (n - k - 1.0);
    Some((with(&point), criterion))
}

/// Estimates the states before the first value: seasonal indices by decomposition, level and trend by a line through the
/// first adjusted values.
fn first_states(values: &[f64], form: Form, season: usize) -> Option<Ets> {
    let multiplicative = form.season == Component::Multiplicative;
    let seasonal = match form.season {
        Component::None => Vec::new(),
        _ => indices(values, &centred_average(values, season), season, multiplicative)?,
    };
    let adjusted = |(i, y): (usize, &f64)| match form.season {
        Component::None => *y,
        Component::Additive => y - seasonal[i % season],
        Component::Multiplicative => y / seasonal[i % season],
    };
    let count = (2 * season).max(10).min(values.len());
    let first: Vec<f64> = values[..count].iter().enumerate().map(adjusted).collect();
    let (middle, centre) = ((count as f64 - 1.0) / 2.0, mean(&first));
    let products: f64 = first.iter().enumerate().map(|(i, y)| (i as f64 - middle) * (y - centre)).sum();
    let squares: f64 = (0..count).map(|i| (i as f64 - middle).powi(2)).sum();
    let slope = if form.trend { products / squares } else { 0.0 };
    let level = if form.trend { centre - slope * (middle + 1.0) } else { centre };
    let level = if form.relative_errors && level <= 0.0 { first[0].max(f64::MIN_POSITIVE) } else { level };
    let begin = 0;
    Some(Ets { form, alpha: 0.3, beta: 0.0, gamma: 0.0, phi: 1.0, level, slope, seasonal, begin })
}
