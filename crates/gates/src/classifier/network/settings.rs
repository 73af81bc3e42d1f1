//! Settings of a classifier's network, and what may be wrong with them.

use serde::{Deserialize, Serialize};

use super::convolution::ConvolutionSettings;
use crate::kernel::CANDIDATE_GROUP;
use crate::soft::{Numbers, WiringError};

/// How the gates of a layer find their operands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Connections {
    /// Fixed: every row of the preceding layer is read about equally often.
    #[default]
    Random,
    /// Fixed: no two gates of a layer read the same pair.
    Unique,
    /// Fixed: as in a fast Fourier transform.
    Butterfly,
    /// Learned: each operand chooses among some candidates.
    Learned,
}

/// The network of a classifier: the `[model]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkSettings {
    /// Convolutions of images before the layers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub convolutions: Vec<ConvolutionSettings>,
    /// Gates of each layer of a member. The last number is a multiple of the number of classes.
    pub layers: Vec<usize>,
    /// Networks of these layers that are trained side by side, each with a loss of its own; their sums are added.
    #[serde(skip_serializing_if = "is_one")]
    pub members: usize,
    /// The wires of all layers.
    pub wiring: Connections,
    /// Candidates for each operand, if wires are learned: a multiple of 4.
    pub candidates: usize,
    /// Whether half of the candidates of the first layer are drawn by the mutual information of their bits with the class in the training rows.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub informed: bool,
    /// Number of leading layers with learned wires; the others have random ones. All, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learned_layers: Option<usize>,
    /// Parameters of a gate.
    pub numbers: Numbers,
    /// Initial logit of the function that passes the first operand through.
    pub pass_through: f32,
    /// Standard deviation of the normal noise on all initial logits.
    pub noise: f32,
    /// Initial logit of the first candidate of a wire.
    pub first_candidate: f32,
    /// Divisor of the sums in training; the square root of the outputs of a class, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f32>,
}

impl Default for NetworkSettings {
    fn default() -> NetworkSettings {
        NetworkSettings {
            convolutions: Vec::new(),
            layers: vec![1000],
            members: 1,
            wiring: Connections::Learned,
            candidates: 16,
            informed: false,
            learned_layers: None,
            numbers: Numbers::Sixteen,
            pass_through: 0.0,
            noise: 1.0,
            first_candidate: 4.0,
            temperature: None,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_one(members: &usize) -> bool {
    *members == 1
}

/// Most members of a network.
pub const MAX_MEMBERS: usize = 1024;

/// Most gates of a network.
pub const MAX_GATES: usize = 1 << 24;

/// Most candidates of a wire.
pub const MAX_CANDIDATES: usize = 1024;

/// A network that cannot be made.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NetworkError {
    /// There is no layer.
    #[error("layers is empty; a classifier needs at least one layer of gates")]
    NoLayers,
    /// A layer has no gates.
    #[error("layers[{layer}] is 0; a layer needs at least one gate")]
    NoGates {
        /// The layer.
        layer: usize,
    },
    /// The number of members is out of range.
    #[error("members is {0}, but must be from 1 to {MAX_MEMBERS}")]
    Members(usize),
    /// There are more gates than [`MAX_GATES`].
    #[error("the network has {gates} gates in total, but the limit is {MAX_GATES}")]
    TooManyGates {
        /// The number of gates; it saturates.
        gates: usize,
    },
    /// The last layer cannot be divided among the classes.
    #[error("the last layer has {outputs} gates for {classes} classes: make it a multiple of {classes}, such as {}",
        outputs.div_ceil(*classes).max(1) * classes)]
    Groups {
        /// Gates of the last layer.
        outputs: usize,
        /// Number of classes.
        classes: usize,
    },
    /// A setting of a convolution is out of range.
    #[error("convolutions[{index}].{name} is {value}, but must be from {least} to {most}")]
    Convolution {
        /// The place in the list of convolutions.
        index: usize,
        /// The setting.
        name: &'static str,
        /// Its value.
        value: usize,
        /// The least value.
        least: usize,
        /// The largest value.
        most: usize,
    },
    /// An input is smaller than the receptive field of a convolution with its pooling window.
    #[error(
        "convolutions[{index}] has an input of {height}x{width}, but needs at least {field}x{field}: remove it, add padding, or \
             pool less before it"
    )]
    TooSmall {
        /// The place in the list of convolutions.
        index: usize,
        /// Height of its input.
        height: usize,
        /// Width of its input.
        width: usize,
        /// The smallest height and width.
        field: usize,
    },
    /// The inputs of convolutions are too large with their padding.
    #[error(
        "convolutions[{index}] and those before it have {rows} bits of input with their padding, but the limit is {MAX_GATES}"
    )]
    TooManyRows {
        /// The place in the list of convolutions.
        index: usize,
        /// Number of bits.
        rows: usize,
    },
    /// There are convolutions, but the data are a table.
    #[error("convolutions are for images, but the data are a table: remove [[model.convolutions]]")]
    NoImage,
    /// The pixels of a channel have too many different thresholds to be planes.
    #[error(
        "convolutions need the same thresholds for all pixels, but the encoder has {found} different ones for a channel: set \
             encoder.thresholds = \"uniform\""
    )]
    Thresholds {
        /// The number of different thresholds.
        found: usize,
    },
    /// The number of candidates is not usable.
    #[error("candidates is {0}, but must be a multiple of 4 from 4 to {MAX_CANDIDATES}")]
    Candidates(usize),
    /// A number is out of range.
    #[error("{name} is {value}, but must be {range}")]
    Number {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: f32,
        /// The numbers that are allowed.
        range: &'static str,
    },
    /// No bit of the input differs between two samples.
    #[error("the encoder has no bits: every feature is constant in the training data")]
    NoInputs,
    /// A layer cannot be wired as requested.
    #[error("layers[{layer}]: {problem}")]
    Wiring {
        /// The layer.
        layer: usize,
        /// What is wrong.
        problem: WiringError,
    },
}

impl NetworkSettings {
    /// Number of gates with parameters of their own; it saturates. The gates of a convolution are counted once, not at every position.
    pub fn gates(&self) -> usize {
        let layers = self.layers.iter().map(|&width| width.saturating_mul(self.members));
        let kernels = self.convolutions.iter().map(ConvolutionSettings::gates);
        layers.chain(kernels).fold(0, usize::saturating_add)
    }

    /// Number of gates of the circuit for an image of some channels, height and width; it saturates.
    pub fn applications(&self, image: [usize; 3]) -> Result<usize, NetworkError> {
        let layers = self.layers.iter().map(|&width| width.saturating_mul(self.members));
        let mut total = layers.fold(0, usize::saturating_add);
        let mut size = image;
        for (index, convolution) in self.convolutions.iter().enumerate() {
            size = convolution.output(index, size)?;
            total = total.saturating_add(convolution.applications(size));
        }
        Ok(total)
    }

    /// Number of rows of the input planes of all convolutions, with their padding, for an image of some channels, height and width.
    pub fn planes(&self, image: [usize; 3]) -> Result<usize, NetworkError> {
        let (mut total, mut size) = (0usize, image);
        for (index, convolution) in self.convolutions.iter().enumerate() {
            let padded = |length: usize| length.saturating_add(2 * convolution.padding);
            let rows = size[0].saturating_mul(padded(size[1])).saturating_mul(padded(size[2]));
            total = total.saturating_add(rows);
            if total > MAX_GATES {
                return Err(NetworkError::TooManyRows { index, rows: total });
            }
            size = convolution.output(index, size)?;
        }
        Ok(total)
    }

    /// Whether layer `layer` has learned wires.
    pub(super) fn is_learned(&self, layer: usize) -> bool {
        self.wiring == Connections::Learned && self.learned_layers.is_none_or(|count| layer < count)
    }

    /// Checks the settings, except what depends on the data.
    pub fn check(&self) -> Result<(), NetworkError> {
        if self.layers.is_empty() {
            return Err(NetworkError::NoLayers);
        }
        for (index, convolution) in self.convolutions.iter().enumerate() {
            convolution.check(index)?;
        }
        if let Some(layer) = self.layers.iter().position(|&gates| gates == 0) {
            return Err(NetworkError::NoGates { layer });
        }
        if !(1..=MAX_MEMBERS).contains(&self.members) {
            return Err(NetworkError::Members(self.members));
        }
        if self.gates() > MAX_GATES {
            return Err(NetworkError::TooManyGates { gates: self.gates() });
        }
        let k = self.candidates;
        if self.wiring == Connections::Learned
            && !(k.is_multiple_of(CANDIDATE_GROUP) && (CANDIDATE_GROUP..=MAX_CANDIDATES).contains(&k))
        {
            return Err(NetworkError::Candidates(k));
        }
        let number = |name, value: f32, fits: bool, range| {
            if fits && value.is_finite() { Ok(()) } else { Err(NetworkError::Number { name, value, range }) }
        };
        number("pass_through", self.pass_through, true, "a finite number")?;
        number("first_candidate", self.first_candidate, true, "a finite number")?;
        number("noise", self.noise, self.noise >= 0.0, "at least 0")?;
        let temperature = self.temperature.unwrap_or(1.0);
        number("temperature", temperature, temperature > 0.0, "above 0")
    }

    /// Checks that the last layer can be divided among the classes.
    pub fn check_classes(&self, classes: usize) -> Result<(), NetworkError> {
        let outputs = self.layers.last().copied().unwrap_or(0);
        if classes == 0 || outputs % classes != 0 || outputs == 0 {
            return Err(NetworkError::Groups { outputs, classes: classes.max(1) });
        }
        Ok(())
    }
}
