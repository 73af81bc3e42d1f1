//! The models that are compared.

use crate::ForecasterBuilder;
use crate::classical::Method;
use crate::evaluation::Baseline;
use crate::models::{Model, NLinear, Nhits};
use crate::network::loss::Loss;
use crate::network::normalization::Normalization;
use crate::prediction::Forecaster;

/// A model that is compared with others.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Candidate {
    /// A statistical model of each series alone.
    Classical(Method),
    /// An autoregression with the same coefficients for all series.
    Pooled,
    /// A network for all series together.
    Network {
        /// The model.
        model: Model,
        /// Length of the input window.
        input: usize,
    },
}

/// Series from which one autoregression is estimated for all.
const MIN_POOLED: usize = 4;

impl Candidate {
    /// Returns the candidates in the order in which they are tried: the fast ones first.
    pub fn all(
        count: usize,
        longest: usize,
        shortest_season: usize,
        reach: usize,
        horizon: usize,
        covariates: bool,
    ) -> Vec<Candidate> {
        let mut candidates: Vec<Candidate> = Method::ALL.into_iter().map(Candidate::Classical).collect();
        if count >= MIN_POOLED {
            candidates.push(Candidate::Pooled);
        }
        // Windows of a network, and enough of them to learn from.
        let rest = longest.saturating_sub(reach);
        let most = rest.saturating_sub(horizon) / 3;
        let short = (2 * horizon).max(2 * shortest_season).max(8);
        let mut inputs = vec![short, 4 * short];
        inputs.retain(|input| *input <= most && rest >= input + 2 * horizon + 20);
        let small = Nhits { width: 128, ..Nhits::default() };
        for (number, input) in inputs.into_iter().enumerate() {
            if !covariates {
                candidates.push(Candidate::Network { model: NLinear {}.into(), input });
            }
            if number == 0 {
                candidates.push(Candidate::Network { model: small.clone().into(), input });
            }
        }
        candidates
    }

    /// Returns the name.
    pub fn name(&self) -> String {
        match self {
            Candidate::Classical(method) => method.name().to_string(),
            Candidate::Pooled => "pooled autoregression".to_string(),
            Candidate::Network { model, input } => format!("{} ({input} values)", model.name()),
        }
    }

    /// Describes the candidate in a few words.
    pub fn about(&self) -> &'static str {
        match self {
            Candidate::Classical(method) => method.about(),
            Candidate::Pooled => "one autoregression for all series, with automatic lags",
            Candidate::Network { model: Model::NLinear(_), .. } => {
                "linear map of a window, one for all series"
            }
            Candidate::Network { .. } => "neural network, one for all series",
        }
    }

    /// Returns whether the candidate is one of these: networks match by the name of their model too.
    pub fn is_named(&self, names: &[String]) -> bool {
        let name = self.name();
        names.iter().any(|known| {
            *known == name || name.strip_prefix(known.as_str()).is_some_and(|rest| rest.starts_with(" ("))
        })
    }

    /// Returns whether it is for intermittent demand only.
    pub fn is_intermittent(&self) -> bool {
        matches!(self, Candidate::Classical(Method::Croston | Method::Tsb))
    }

    /// Returns whether it is a baseline that others have to beat.
    pub fn is_reference(&self) -> bool {
        let references = [Baseline::SeasonalNaive, Baseline::Theta].map(Method::Baseline);
        matches!(self, Candidate::Classical(method) if references.contains(method))
    }

    /// Returns the options of a network; `None` for a statistical model.
    pub fn builder<'a>(&self, horizon: usize) -> Option<ForecasterBuilder<'a>> {
        let Candidate::Network { model, input } = self else { return None };
        let builder = Forecaster::builder().model(model.clone()).input(*input).horizon(horizon);
        let builder = match model {
            Model::NLinear(_) => builder.normalization(Normalization::Last).learning_rate(0.002),
            _ => builder.normalization(Normalization::Instance),
        };
        Some(builder.loss(Loss::Mae).validation(0.1).skip_short_series(true).patience(10))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_tried_where_there_are_enough_windows() {
        let networks = |longest: usize| {
            let all = Candidate::all(1, longest, 7, 100, 14, false);
            all.iter().filter(|candidate| candidate.builder(14).is_some()).count()
        };
        assert_eq!([networks(110), networks(300), networks(3000)], [0, 2, 3]);
        let names: Vec<String> =
            Candidate::all(9, 3000, 7, 100, 14, false).iter().map(Candidate::name).collect();
        assert!(names.contains(&"nlinear (28 values)".to_string()), "{names:?}");
        assert!(names.contains(&"pooled autoregression".to_string()), "{names:?}");
        for (i, name) in names.iter().enumerate() {
            assert!(!names[..i].contains(name));
        }
    }

    #[test]
    fn candidates_are_found_by_name() {
        let network = Candidate::Network { model: NLinear {}.into(), input: 28 };
        assert!(network.is_named(&["nlinear".into()]) && network.is_named(&["nlinear (28 values)".into()]));
        assert!(!network.is_named(&["nlin".into(), "nlinear (14 values)".into()]));
        assert!(Candidate::Classical(Method::Ets).is_named(&["ets".into()]));
    }
}
