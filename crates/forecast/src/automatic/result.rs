//! The result of an automatic forecast.

use std::time::Duration;

use super::series::{Group, Quality};
use crate::prediction::SeriesForecast;

/// Forecasts of all series, and how they came about.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct AutomaticForecast {
    /// The forecasts, in the order of the series of the table.
    pub forecasts: Vec<SeriesForecast>,
    /// What was chosen for each series, in the same order.
    pub series: Vec<SeriesChoice>,
    /// What was chosen for each group.
    pub groups: Vec<GroupChoice>,
    /// The candidates in the order of the comparison.
    pub candidates: Vec<CandidateScore>,
    /// Lengths of the seasons in steps.
    pub seasons: Vec<f64>,
    /// The largest number of forecast origins of a series, and the steps from one to the next.
    pub origins: (usize, usize),
    /// Names of the known-future covariates that were used.
    pub covariates: Vec<String>,
    /// Errors of the choice for each series, from origin to origin and step to step; those of one time are at the same position in all
    /// series. Empty unless [`keep_errors`](super::Automatic::keep_errors) is set; NaN where nothing was compared.
    pub errors: Vec<Vec<f64>>,
    /// The time it took.
    pub elapsed: Duration,
}

/// What was chosen for a series.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SeriesChoice {
    /// Id of the series.
    pub id: String,
    /// Its group.
    pub group: Group,
    /// Forms and orders of the members that were fitted to it alone.
    pub fitted: Vec<String>,
    /// Mean scaled error of the choice; NaN if the series is too short to be compared.
    pub score: f64,
    /// What is remarkable about it.
    pub quality: Quality,
}

/// What was chosen for a group of series.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct GroupChoice {
    /// The group.
    pub group: Group,
    /// Number of its series.
    pub series: usize,
    /// Number of forecasts that were compared.
    pub windows: usize,
    /// Names of the members.
    pub members: Vec<String>,
    /// How they are combined: "median" or "mean"; "alone" for a single one.
    pub combination: &'static str,
    /// Mean scaled error of the choice, where each part of time is forecast by an ensemble that was chosen on the other parts; NaN
    /// if nothing could be compared.
    pub score: f64,
    /// Mean scaled error of each candidate, in the order of the candidates; NaN if it was not compared.
    pub scores: Vec<f64>,
    /// Empirical coverage of the intervals on the later half of the origins, calibrated on the earlier half.
    pub coverage: Vec<Coverage>,
}

/// Coverage of an interval level.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Coverage {
    /// The level.
    pub level: f64,
    /// The fraction of actual values within the interval.
    pub covered: f64,
}

/// A candidate of the comparison.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct CandidateScore {
    /// Its name.
    pub name: String,
    /// What it is.
    pub about: &'static str,
    /// Time of its forecasts.
    pub elapsed: Duration,
    /// Why it was not compared, if so.
    pub left_out: Option<&'static str>,
    /// Whether it is one of the usual references: seasonal naive, Theta.
    pub reference: bool,
}
