//! Optimisers: their settings with defaults and limits, and their state between steps. The arithmetic is in
//! [`gatework_engine::kernel::optim`].
//!
//! ```toml
//! optimizer = "adam"                  # or { kind = "adamw", beta2 = 0.99, weight_decay = 0.01 }
//! clip = { value = 100.0 }
//! ```
//!
//! The formulas are those of PyTorch; the tests compare with its results.

use std::ops::Range;

use gatework_engine::kernel::optim as kernel;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kinds::{Kinds, name_or_table};

/// An optimiser and its settings. In a file, settings have defaults, and the name alone is enough if all have.
///
/// ```
/// use gatework_train::optim::{Clip, Optimizer};
///
/// let optimizer = Optimizer::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
/// let mut values = [1.0, 2.0];
/// let mut state = optimizer.state(values.len());
/// optimizer.step(&mut state, &mut values, &[0.5, -8.0], 0.5, Some(Clip::Value(1.0)));
/// assert_eq!(values, [0.75, 2.5]);
/// assert_eq!(state.step, 1);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Optimizer {
    /// Adam with decoupled weight decay: `p -= lr * (m_hat / (sqrt(v_hat) + epsilon) + weight_decay * p)`.
    Adamw {
        /// Decay rate of the moving average of the gradient.
        #[serde(default = "defaults::beta1")]
        beta1: f64,
        /// Decay rate of the moving average of the squared gradient.
        #[serde(default = "defaults::beta2")]
        beta2: f64,
        /// Added to the denominator, so that the update is finite where the gradient is 0.
        #[serde(default = "defaults::epsilon")]
        epsilon: f64,
        /// `learning_rate * weight_decay * p` is subtracted from each parameter `p`.
        #[serde(default = "defaults::decoupled_decay")]
        weight_decay: f64,
    },
    /// Adam: `p -= lr * m_hat / (sqrt(v_hat) + epsilon)`.
    Adam {
        /// Decay rate of the moving average of the gradient.
        #[serde(default = "defaults::beta1")]
        beta1: f64,
        /// Decay rate of the moving average of the squared gradient.
        #[serde(default = "defaults::beta2")]
        beta2: f64,
        /// Added to the denominator, so that the update is finite where the gradient is 0.
        #[serde(default = "defaults::epsilon")]
        epsilon: f64,
        /// `weight_decay * p` is added to the gradient.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Stochastic gradient descent: `b = momentum * b + g`, then `p -= lr * b`.
    Sgd {
        /// Decay rate of the momentum.
        #[serde(default)]
        momentum: f64,
        /// Nesterov momentum: `p -= lr * (g + momentum * b)`.
        #[serde(default)]
        nesterov: bool,
        /// `weight_decay * p` is added to the gradient.
        #[serde(default)]
        weight_decay: f64,
    },
    /// RMSprop: `b = momentum * b + g / (sqrt(mean square of g) + epsilon)`, then `p -= lr * b`.
    Rmsprop {
        /// Decay rate of the moving average of the squared gradient.
        #[serde(default = "defaults::alpha")]
        alpha: f64,
        /// Added to the denominator, so that the update is finite where the gradient is 0.
        #[serde(default = "defaults::epsilon")]
        epsilon: f64,
        /// Decay rate of the momentum.
        #[serde(default)]
        momentum: f64,
        /// `weight_decay * p` is added to the gradient.
        #[serde(default)]
        weight_decay: f64,
    },
}

impl Serialize for Optimizer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Optimizer {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        name_or_table(deserializer)
    }
}

impl Kinds for Optimizer {
    const EXPECTED: &str = "the name of an optimiser, or a table with its `kind` and settings";

    fn from_table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

/// The defaults, which are those of PyTorch.
mod defaults {
    pub const fn beta1() -> f64 {
        0.9
    }
    pub const fn beta2() -> f64 {
        0.999
    }
    pub const fn epsilon() -> f64 {
        1e-8
    }
    pub const fn decoupled_decay() -> f64 {
        0.01
    }
    pub const fn alpha() -> f64 {
        0.99
    }
}

/// Smallest valid epsilon; it does not underflow in the bias correction.
const MIN_EPSILON: f64 = 1e-30;

/// Gradient clipping, applied before the weight decay is added. NaN propagates to the parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clip {
    /// Each element is clamped to this magnitude: `clip = { value = 100.0 }`.
    Value(f32),
    /// The gradient is scaled down to this Euclidean norm if its norm is larger: `clip = { norm = 1.0 }`. A norm of NaN makes
    /// all parameters NaN, as in PyTorch.
    Norm(f32),
}

impl Clip {
    /// Checks that the limit is a finite number above 0.
    pub fn validate(&self) -> Result<(), String> {
        let (name, limit) = match *self {
            Self::Value(limit) => ("value", limit),
            Self::Norm(limit) => ("norm", limit),
        };
        if limit > 0.0 && limit.is_finite() {
            Ok(())
        } else {
            Err(format!("clip.{name} is {limit}, but must be a number above 0"))
        }
    }
}

/// The state of an optimiser between steps. Moments that it does not use are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptimizerState {
    /// Number of steps taken.
    pub step: u64,
    /// First moment: moving average of the gradient, or momentum.
    pub first: Vec<f32>,
    /// Second moment: moving average of the squared gradient.
    pub second: Vec<f32>,
}

impl Optimizer {
    /// Checks that every setting is in its range; the error names the first one that is not, and the range.
    pub fn validate(&self) -> Result<(), String> {
        match *self {
            Self::Adamw { beta1, beta2, epsilon, weight_decay }
            | Self::Adam { beta1, beta2, epsilon, weight_decay } => {
                check_decay_rate("beta1", beta1)?;
                check_decay_rate("beta2", beta2)?;
                check_epsilon(epsilon)?;
                check_decay(weight_decay)
            }
            Self::Sgd { momentum, nesterov, weight_decay } => {
                check_decay_rate("momentum", momentum)?;
                if nesterov && momentum == 0.0 {
                    return Err("nesterov is true, but momentum is 0: nesterov needs a momentum".to_owned());
                }
                check_decay(weight_decay)
            }
            Self::Rmsprop { alpha, epsilon, momentum, weight_decay } => {
                check_decay_rate("alpha", alpha)?;
                check_epsilon(epsilon)?;
                check_decay_rate("momentum", momentum)?;
                check_decay(weight_decay)
            }
        }
    }

    /// Returns the initial state for `n` parameters.
    pub fn state(&self, n: usize) -> OptimizerState {
        let (first, second) = self.moment_lengths(n);
        OptimizerState { step: 0, first: vec![0.0; first], second: vec![0.0; second] }
    }

    /// Checks that a state, for example from a checkpoint, belongs to this optimiser and `n` parameters.
    pub fn check_state(&self, state: &OptimizerState, n: usize) -> Result<(), String> {
        let found = (state.first.len(), state.second.len());
        let wanted = self.moment_lengths(n);
        if found == wanted {
            return Ok(());
        }
        Err(format!(
            "the optimiser state has {} and {} elements in its two moments, but {self:?} on {n} parameters needs \
             {} and {}",
            found.0, found.1, wanted.0, wanted.1
        ))
    }

    /// Returns the lengths of the first and second moments.
    fn moment_lengths(&self, n: usize) -> (usize, usize) {
        match *self {
            Self::Adamw { .. } | Self::Adam { .. } => (n, n),
            Self::Sgd { momentum, .. } => (if momentum == 0.0 { 0 } else { n }, 0),
            Self::Rmsprop { momentum, .. } => (if momentum == 0.0 { 0 } else { n }, n),
        }
    }

    /// Updates `values` by one step, in one pass over memory; clipping by norm reads the gradient once more. Returns the norm of
    /// the gradient before clipping if it was computed; see [`Optimizer::gradient_norm`].
    ///
    /// # Panics
    /// If `values`, `grads` and the state differ in length; see [`Optimizer::check_state`].
    pub fn step(
        &self,
        state: &mut OptimizerState,
        values: &mut [f32],
        grads: &[f32],
        learning_rate: f32,
        clip: Option<Clip>,
    ) -> Option<f64> {
        let (clipping, norm) = prepare(clip, grads);
        state.step = state.step.saturating_add(1);
        self.apply(state, 0..values.len(), values, grads, learning_rate, clipping);
        norm
    }

    /// Begins a step that updates the parameters in disjoint ranges, bit-identical to [`Optimizer::step`]. Returns `None` for
    /// clipping by norm, which needs the whole gradient first.
    pub fn begin<'a>(
        &'a self,
        state: &'a mut OptimizerState,
        learning_rate: f32,
        clip: Option<Clip>,
    ) -> Option<Step<'a>> {
        if matches!(clip, Some(Clip::Norm(_))) {
            return None;
        }
        let (clipping, _) = prepare(clip, &[]);
        Some(Step { optimizer: self, state, learning_rate, clipping, is_applied: false })
    }

    /// Updates a range of the parameters. The state is that of all parameters.
    fn apply(
        &self,
        state: &mut OptimizerState,
        range: Range<usize>,
        values: &mut [f32],
        grads: &[f32],
        learning_rate: f32,
        clipping: kernel::Clipping,
    ) {
        let learning_rate = f64::from(learning_rate);
        let step = state.step;
        let [first, second] = [&mut state.first, &mut state.second]
            .map(|moment| if moment.is_empty() { &mut [] } else { &mut moment[range.clone()] });
        match *self {
            Self::Adamw { beta1, beta2, epsilon, weight_decay }
            | Self::Adam { beta1, beta2, epsilon, weight_decay } => {
                let decoupled = matches!(self, Self::Adamw { .. });
                let settings = kernel::Adam {
                    learning_rate,
                    beta1,
                    beta2,
                    epsilon,
                    weight_decay,
                    decoupled,
                    step,
                    clipping,
                };
                kernel::adam(&settings, values, grads, first, second);
            }
            Self::Sgd { momentum, nesterov, weight_decay } => {
                let settings = kernel::Sgd { learning_rate, momentum, nesterov, weight_decay, clipping };
                kernel::sgd(&settings, values, grads, first);
            }
            Self::Rmsprop { alpha, epsilon, momentum, weight_decay } => {
                let settings =
                    kernel::Rmsprop { learning_rate, alpha, epsilon, momentum, weight_decay, clipping };
                kernel::rmsprop(&settings, values, grads, second, first);
            }
        }
    }

    /// Returns the Euclidean norm of the gradient, which [`Clip::Norm`] limits.
    pub fn gradient_norm(grads: &[f32]) -> f64 {
        kernel::norm(grads)
    }
}

/// A step that updates the parameters in disjoint ranges.
#[derive(Debug)]
pub struct Step<'a> {
    optimizer: &'a Optimizer,
    state: &'a mut OptimizerState,
    learning_rate: f32,
    clipping: kernel::Clipping,
    /// Whether a range was updated. If none was, no step is counted.
    is_applied: bool,
}

impl Step<'_> {
    /// Updates the parameters in a range. Each parameter must be updated once.
    ///
    /// # Panics
    /// If the range, its values and its gradients differ in length, or the state has fewer elements.
    pub fn apply(&mut self, range: Range<usize>, values: &mut [f32], grads: &[f32]) {
        if !self.is_applied {
            self.state.step = self.state.step.saturating_add(1);
            self.is_applied = true;
        }
        self.optimizer.apply(self.state, range, values, grads, self.learning_rate, self.clipping);
    }

    /// Returns whether a range was updated.
    pub fn is_applied(&self) -> bool {
        self.is_applied
    }
}

/// Returns the scale and limit for this gradient, and its norm if it was computed.
fn prepare(clip: Option<Clip>, grads: &[f32]) -> (kernel::Clipping, Option<f64>) {
    match clip {
        None => (kernel::Clipping::NONE, None),
        Some(Clip::Value(limit)) => (kernel::Clipping { limit, ..kernel::Clipping::NONE }, None),
        Some(Clip::Norm(limit)) => {
            let norm = Optimizer::gradient_norm(grads);
            // Written so that a NaN norm gives a NaN scale.
            let scale = if norm <= f64::from(limit) { 1.0 } else { f64::from(limit) / norm };
            (kernel::Clipping { scale: scale as f32, ..kernel::Clipping::NONE }, Some(norm))
        }
    }
}

fn check_decay_rate(name: &str, value: f64) -> Result<(), String> {
    // The kernels use f32, in which a rate just below 1 rounds to 1 and would never decay.
    if (0.0..1.0).contains(&(value as f32)) {
        Ok(())
    } else {
        Err(format!("{name} is {value}, but must be at least 0 and below 1"))
    }
}

fn check_epsilon(value: f64) -> Result<(), String> {
    if value >= MIN_EPSILON && value.is_finite() {
        Ok(())
    } else {
        Err(format!("epsilon is {value:e}, but must be a number of at least {MIN_EPSILON:e}"))
    }
}

fn check_decay(value: f64) -> Result<(), String> {
    if value >= 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(format!("weight_decay is {value}, but must be a number of at least 0"))
    }
}

#[cfg(test)]
mod tests;
