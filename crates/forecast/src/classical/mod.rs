//! Statistical models of single series: fitted in milliseconds, without a network.
//!
//! | module | contents |
//! |---|---|
//! | `method` | [`Method`], the list of the models, and [`Fitted`] ones |
//! | [`ets`] | exponential smoothing with automatic choice |
//! | [`autoregression`] | autoregression with automatic orders |
//! | [`harmonic`] | regression on Fourier terms and covariates with autoregressive errors |
//! | [`stl`] | decomposition into a trend and several seasons (STL, MSTL) |
//! | [`pooled`] | one autoregression for all series |
//! | [`intermittent`] | Croston's method and TSB |
//! | [`seasonal`] | classical decomposition, and the length of a season |
//! | `least_squares`, `simplex` | linear regression; minimisation without derivatives |
//!
//! ```
//! use gatework_forecast::classical::{History, Method};
//!
//! let values: Vec<f64> = (0..60).map(|month| 100.0 + f64::from(month) + 20.0 * f64::from(month % 12)).collect();
//! let history = History { seasons: &[12.0], ..History::of(&values) };
//! let model = Method::Ets.fit(&history).ok_or("too short")?;
//! let forecast = model.forecast(&history, 12);
//! assert!((forecast[0] - 160.0).abs() < 10.0);
//! # Ok::<(), &str>(())
//! ```

pub mod autoregression;
pub mod ets;
pub mod harmonic;
pub mod intermittent;
mod least_squares;
mod method;
pub mod pooled;
pub mod seasonal;
mod simplex;
pub mod stl;
#[cfg(test)]
mod tests;

pub use method::{Fitted, Method};

/// What a model may read of one series, from its first value to the forecast origin.
#[derive(Clone, Copy, Debug)]
pub struct History<'a> {
    /// The values, without gaps.
    pub values: &'a [f64],
    /// Known-future covariates: `[values and the horizon, columns]`.
    pub covariates: &'a [f64],
    /// Number of covariates.
    pub columns: usize,
    /// Lengths of the seasons in steps, the shortest first.
    pub seasons: &'a [f64],
}

impl<'a> History<'a> {
    /// A history without covariates and seasons.
    pub fn of(values: &'a [f64]) -> History<'a> {
        History { values, covariates: &[], columns: 0, seasons: &[] }
    }

    /// Returns the history up to an earlier origin. Covariates remain: they are known in advance.
    #[must_use]
    pub fn until(&self, origin: usize) -> History<'a> {
        History { values: &self.values[..origin.min(self.values.len())], ..*self }
    }

    /// Returns a covariate at a position; the last known one beyond its end.
    pub fn covariate(&self, position: usize, column: usize) -> f64 {
        let rows = self.covariates.len().checked_div(self.columns).unwrap_or(0);
        let row = position.min(rows.saturating_sub(1));
        self.covariates.get(row * self.columns + column).copied().unwrap_or(0.0)
    }

    /// Returns the season of the last values: the shortest one that is seen once, while [`season`](Self::season) has to be
    /// repeated; 1 if there is none.
    pub fn season_seen(&self) -> usize {
        let whole = self.seasons.iter().map(|season| season.round() as usize);
        whole.into_iter().find(|season| *season > 1 && *season <= self.values.len()).unwrap_or(1)
    }

    /// Returns the shortest season that is a whole number of steps and repeated at least twice; 1 if there is none.
    pub fn season(&self) -> usize {
        let whole = self.seasons.iter().map(|season| season.round() as usize);
        whole.into_iter().find(|season| *season > 1 && 2 * season <= self.values.len()).unwrap_or(1)
    }
}
