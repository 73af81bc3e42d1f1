//! Forecasting models, one file each. [`Model`] is the list.

mod decomposition;
pub(crate) mod deepar;
mod dlinear;
mod gru;
mod itransformer;
mod lstm;
mod nbeats;
mod nhits;
mod nlinear;
mod tcn;
mod tide;
mod transformer;
mod tsmixer;

pub use decomposition::{Decomposition, Season};
pub use deepar::DeepAr;
pub use dlinear::DLinear;
pub use gru::Gru;
pub use itransformer::ITransformer;
pub use lstm::Lstm;
pub use nbeats::{Basis, NBeats, Stack};
pub use nhits::{Interpolation, Nhits, Pool};
pub use nlinear::NLinear;
pub use tcn::Tcn;
pub use tide::Tide;
pub use transformer::Transformer;
pub use tsmixer::TsMixer;

use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;
use crate::network::normalization::Normalization;
use gatework_train::kinds::{Kinds, name_or_table};

/// A setting of a model that is out of range.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct SettingError {
    /// Key of the setting.
    pub setting: &'static str,
    /// The value, and what it must be.
    pub problem: String,
}

/// The result of checking the settings of a model.
pub(crate) type Check = Result<(), SettingError>;

/// Returns the error of a setting.
fn invalid(setting: &'static str, problem: impl Into<String>) -> Check {
    Err(SettingError { setting, problem: problem.into() })
}

/// Checks an integer setting.
fn in_range(setting: &'static str, value: usize, range: RangeInclusive<usize>) -> Check {
    if range.contains(&value) {
        return Ok(());
    }
    invalid(setting, format!("{setting} is {value}, but must be in {} to {}", range.start(), range.end()))
}

/// Checks the length of a list.
fn has_length(setting: &'static str, length: usize, range: RangeInclusive<usize>) -> Check {
    if range.contains(&length) {
        return Ok(());
    }
    let (min, max) = (range.start(), range.end());
    invalid(setting, format!("{setting} has {length} entries, but must have {min} to {max}"))
}

/// Checks a dropout rate.
fn is_dropout(setting: &'static str, value: f64) -> Check {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    invalid(setting, format!("{setting} is {value}, but must be at least 0 and below 1"))
}

macro_rules! models {
    ($($(#[$doc:meta])* $model:ident $name:literal $normalization:ident;)*) => {
        /// A model and its settings. In TOML a table with `kind` and settings, or the kind alone for default settings.
        #[non_exhaustive]
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(remote = "Self", tag = "kind")]
        pub enum Model {
            $($(#[$doc])* #[serde(rename = $name)] $model($model),)*
        }

        impl Model {
            /// The names of all models.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// Returns the name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Model::$model(_) => $name,)*
                }
            }

            /// Returns the forecast, `[rows, steps, outputs]`. If there are more steps than the horizon, the last ones are
            /// the horizon.
            pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
                match self {
                    $(Model::$model(model) => model.forward(x),)*
                }
            }

            /// Checks the settings for windows of these sizes.
            pub fn check(&self, shape: &BatchShape) -> Check {
                match self {
                    $(Model::$model(model) => model.check(shape),)*
                }
            }

            /// Returns the default normalisation of windows.
            pub fn default_normalization(&self) -> Normalization {
                match self {
                    $(Model::$model(_) => Normalization::$normalization,)*
                }
            }
        }

        $(impl From<$model> for Model {
            fn from(model: $model) -> Model {
                Model::$model(model)
            }
        })*
    };
}

// Type, name in files, default normalisation.
models! {
    /// Linear maps of the moving average and of the remainder.
    DLinear "dlinear" None;
    /// A linear map of the differences to the last value.
    NLinear "nlinear" Last;
    /// Trend and seasonality by regression on basis functions.
    Decomposition "decomposition" Instance;
    /// Doubly residual stacks of fully connected blocks.
    NBeats "nbeats" None;
    /// N-BEATS with multi-rate pooling and interpolation.
    Nhits "nhits" None;
    /// Causal dilated convolutions.
    Tcn "tcn" Instance;
    /// A gated recurrent unit.
    Gru "gru" Instance;
    /// A long short-term memory with attention.
    Lstm "lstm" Instance;
    /// A Transformer encoder on patches.
    Transformer "transformer" Instance;
    /// Dense residual blocks that encode the window and its covariates.
    Tide "tide" Instance;
    /// Dense layers that mix steps and features in turn.
    TsMixer "tsmixer" Instance;
    /// A Transformer encoder whose tokens are the variates.
    ITransformer "itransformer" Instance;
    /// An autoregressive LSTM that forecasts distributions.
    DeepAr "deepar" Scale;
}

impl Serialize for Model {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Model {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        name_or_table(deserializer)
    }
}

impl Kinds for Model {
    const EXPECTED: &str = "the name of a model, or a table with its `kind` and settings";

    fn from_table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests;
