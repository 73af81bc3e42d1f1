//! The models: one file each, which reads like its paper. [`Model`] is the one list of them.

mod decomposition;
pub(crate) mod deepar;
mod dlinear;
mod gru;
mod lstm;
mod nbeats;
mod nhits;
mod nlinear;
mod tcn;
mod transformer;

pub use decomposition::{Decomposition, Season};
pub use deepar::DeepAr;
pub use dlinear::DLinear;
pub use gru::Gru;
pub use lstm::Lstm;
pub use nbeats::{Basis, NBeats, Stack};
pub use nhits::{Interpolation, Nhits, Pool};
pub use nlinear::NLinear;
pub use tcn::Tcn;
pub use transformer::Transformer;

use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::data::BatchShape;
use crate::network::Tensor;
use crate::network::inputs::Inputs;
use crate::network::normalization::Normalization;
use gatework_train::kinds::{Kinds, name_or_table};

/// Whether settings fit; the error names the one that does not.
pub(crate) type Check = Result<(), String>;

/// Checks a setting against its limits.
fn in_range(name: &str, value: usize, range: RangeInclusive<usize>) -> Check {
    if range.contains(&value) {
        return Ok(());
    }
    Err(format!("{name} is {value}, but must be in {} to {}", range.start(), range.end()))
}

/// Checks a share of dropout.
fn is_dropout(name: &str, value: f64) -> Check {
    if (0.0..1.0).contains(&value) {
        return Ok(());
    }
    Err(format!("{name} is {value}, but must be at least 0 and below 1"))
}

macro_rules! models {
    ($($(#[$doc:meta])* $model:ident $name:literal $normalization:ident;)*) => {
        /// A model and its settings. In a file it is a table with its `kind` and settings, or the kind alone if all
        /// settings are the usual ones.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(remote = "Self", tag = "kind")]
        pub enum Model {
            $($(#[$doc])* #[serde(rename = $name)] $model($model),)*
        }

        impl Model {
            /// The names of all models.
            pub const NAMES: &[&str] = &[$($name,)*];

            /// Its name.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Model::$model(_) => $name,)*
                }
            }

            /// The forecast for what is observed: `[rows, horizon, outputs]`, or more steps, whose last ones are the
            /// horizon.
            pub fn forward<'n>(&self, x: &Inputs<'n>) -> Tensor<'n> {
                match self {
                    $(Model::$model(model) => model.forward(x),)*
                }
            }

            /// Whether the settings fit windows of these sizes; the error names the one that does not.
            pub fn check(&self, shape: &BatchShape) -> Check {
                match self {
                    $(Model::$model(model) => model.check(shape),)*
                }
            }

            /// How a window is normalised unless the file says otherwise.
            pub fn usual_normalization(&self) -> Normalization {
                match self {
                    $(Model::$model(_) => Normalization::$normalization,)*
                }
            }
        }
    };
}

// The models: type, name in files, and how windows are usually normalised.
models! {
    /// A linear map of the moving average and one of the rest.
    DLinear "dlinear" None;
    /// A linear map of the window less its last value.
    NLinear "nlinear" Last;
    /// Trend and seasonality by basis functions.
    Decomposition "decomposition" Instance;
    /// Blocks that explain the window piece by piece.
    NBeats "nbeats" None;
    /// Blocks that look at the window at different rates.
    Nhits "nhits" None;
    /// Causal convolutions.
    Tcn "tcn" Instance;
    /// A gated recurrent network.
    Gru "gru" Instance;
    /// A recurrent network with attention.
    Lstm "lstm" Instance;
    /// A Transformer encoder on patches.
    Transformer "transformer" Instance;
    /// A recurrent network that forecasts a distribution and reads what it drew.
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
