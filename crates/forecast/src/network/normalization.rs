//! Windows brought to one level and size before the model sees them, and forecasts brought back afterwards, as part of
//! the graph (reversible instance normalisation, Kim et al., ICLR 2022).

use serde::{Deserialize, Serialize};

use super::builder::Tensor;

/// Keeps the division finite for windows that do not change.
const EPSILON: f64 = 1e-5;

/// How a window is normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Normalization {
    /// Not at all.
    None,
    /// Less its mean, divided by its standard deviation.
    Instance,
    /// Less its last value.
    Last,
    /// Divided by one plus its mean magnitude (DeepAR); for counts, which must stay above zero.
    Scale,
}

/// The level and the size of each window, `[rows, 1]`; none is 0, or 1.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'n> {
    /// What is subtracted.
    pub centre: Option<Tensor<'n>>,
    /// What is divided by.
    pub scale: Option<Tensor<'n>>,
}

impl Normalization {
    /// The level and size of the windows.
    pub fn frame(self, past: Tensor<'_>) -> Frame<'_> {
        let input = past.size(1);
        match self {
            Normalization::None => Frame { centre: None, scale: None },
            Normalization::Instance => {
                Frame { centre: Some(past.mean(1)), scale: Some((past.variance(1) + EPSILON).sqrt()) }
            }
            Normalization::Last => Frame { centre: Some(past.slice(1, input - 1, input)), scale: None },
            Normalization::Scale => Frame { centre: None, scale: Some(past.abs().mean(1) + 1.0) },
        }
    }
}

impl<'n> Frame<'n> {
    /// `[rows, time]` in the frame.
    pub fn apply(&self, x: Tensor<'n>) -> Tensor<'n> {
        let centred = self.centre.map_or(x, |centre| x - centre);
        self.scale.map_or(centred, |scale| centred / scale)
    }

    /// Numbers with a level, `[rows, time, 1]`, brought back.
    pub fn restore(&self, x: Tensor<'n>) -> Tensor<'n> {
        let scaled = self.restore_size(x);
        self.centre.map_or(scaled, |centre| scaled + steps(centre))
    }

    /// Numbers with a size but no level, such as standard deviations, brought back.
    pub fn restore_size(&self, x: Tensor<'n>) -> Tensor<'n> {
        self.scale.map_or(x, |scale| x * steps(scale))
    }
}

/// `[rows, 1]` for each step and output.
pub(super) fn steps(x: Tensor<'_>) -> Tensor<'_> {
    x.reshape(&[x.size(0), 1, 1])
}
