//! The optimisers an experiment can choose, as its file writes them, and their state between steps. The arithmetic
//! is in [`gatework_engine::kernel::optim`]; here are the settings, their defaults and their limits.
//!
//! ```toml
//! optimizer = "adam"                  # or { kind = "adamw", beta2 = 0.99, weight_decay = 0.01 }
//! clip = { value = 100.0 }
//! ```
//!
//! The formulas are those of PyTorch, whose numbers the tests compare with.

use std::ops::Range;

use gatework_engine::kernel::optim as kernel;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::kinds::{Kinds, name_or_table};

/// An optimiser and its settings. A setting that the file leaves out has the usual value; the name alone will do if all
/// have.
///
/// ```
/// use gatework_learn::optim::{Clip, Optimizer};
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
        /// Decay of the mean of the gradient.
        #[serde(default = "usual::beta1")]
        beta1: f64,
        /// Decay of the mean square of the gradient.
        #[serde(default = "usual::beta2")]
        beta2: f64,
        /// Keeps the division finite where there is no gradient.
        #[serde(default = "usual::epsilon")]
        epsilon: f64,
        /// Share of each parameter that is taken away, times the learning rate.
        #[serde(default = "usual::decoupled_decay")]
        weight_decay: f64,
    },
    /// Adam: `p -= lr * m_hat / (sqrt(v_hat) + epsilon)`.
    Adam {
        /// Decay of the mean of the gradient.
        #[serde(default = "usual::beta1")]
        beta1: f64,
        /// Decay of the mean square of the gradient.
        #[serde(default = "usual::beta2")]
        beta2: f64,
        /// Keeps the division finite where there is no gradient.
        #[serde(default = "usual::epsilon")]
        epsilon: f64,
        /// `weight_decay * p` is added to the gradient.
        #[serde(default)]
        weight_decay: f64,
    },
    /// Stochastic gradient descent: `b = momentum * b + g`, then `p -= lr * b`.
    Sgd {
        /// Share of the momentum that stays from step to step.
        #[serde(default)]
        momentum: f64,
        /// Look ahead along the momentum: `p -= lr * (g + momentum * b)`.
        #[serde(default)]
        nesterov: bool,
        /// `weight_decay * p` is added to the gradient.
        #[serde(default)]
        weight_decay: f64,
    },
    /// RMSprop: `b = momentum * b + g / (sqrt(mean square of g) + epsilon)`, then `p -= lr * b`.
    Rmsprop {
        /// Decay of the mean square of the gradient.
        #[serde(default = "usual::alpha")]
        alpha: f64,
        /// Keeps the division finite where there is no gradient.
        #[serde(default = "usual::epsilon")]
        epsilon: f64,
        /// Share of the momentum that stays from step to step.
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

/// The values that a setting has when the file does not name it: those of PyTorch.
mod usual {
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

/// Smallest epsilon: small enough for anything, and large enough not to vanish in the bias correction.
const MIN_EPSILON: f64 = 1e-30;

/// A limit on the gradient, applied before the weight decay is added. NaN is never hidden: it reaches the
/// parameters.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Clip {
    /// Each element is limited to this magnitude: `clip = { value = 100.0 }`.
    Value(f32),
    /// The whole gradient is scaled down to this Euclidean norm if it is longer: `clip = { norm = 1.0 }`. If the
    /// norm is NaN, so is the scale, and with it every parameter; this is what PyTorch does too.
    Norm(f32),
}

impl Clip {
    /// Whether the limit makes sense; the error says what would.
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

/// What an optimiser remembers between steps. A slot that it does not use is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OptimizerState {
    /// Number of steps done.
    pub step: u64,
    /// Mean of the gradient, or momentum.
    pub first: Vec<f32>,
    /// Mean square of the gradient.
    pub second: Vec<f32>,
}

impl Optimizer {
    /// Whether every setting is in its range; the error names the first one that is not, and the range.
    pub fn validate(&self) -> Result<(), String> {
        match *self {
            Self::Adamw { beta1, beta2, epsilon, weight_decay }
            | Self::Adam { beta1, beta2, epsilon, weight_decay } => {
                check_share("beta1", beta1)?;
                check_share("beta2", beta2)?;
                check_epsilon(epsilon)?;
                check_decay(weight_decay)
            }
            Self::Sgd { momentum, nesterov, weight_decay } => {
                check_share("momentum", momentum)?;
                if nesterov && momentum == 0.0 {
                    return Err("nesterov is true, but momentum is 0: nesterov needs a momentum".to_owned());
                }
                check_decay(weight_decay)
            }
            Self::Rmsprop { alpha, epsilon, momentum, weight_decay } => {
                check_share("alpha", alpha)?;
                check_epsilon(epsilon)?;
                check_share("momentum", momentum)?;
                check_decay(weight_decay)
            }
        }
    }

    /// The state before the first step, for `n` parameters.
    pub fn state(&self, n: usize) -> OptimizerState {
        let (first, second) = self.slot_lengths(n);
        OptimizerState { step: 0, first: vec![0.0; first], second: vec![0.0; second] }
    }

    /// Whether a state, read from a checkpoint, say, belongs to this optimiser and `n` parameters.
    pub fn check_state(&self, state: &OptimizerState, n: usize) -> Result<(), String> {
        let found = (state.first.len(), state.second.len());
        let wanted = self.slot_lengths(n);
        if found == wanted {
            return Ok(());
        }
        Err(format!(
            "the optimiser state has {} and {} elements in its two slots, but {self:?} on {n} parameters needs \
             {} and {}",
            found.0, found.1, wanted.0, wanted.1
        ))
    }

    /// Lengths of the first and the second slot.
    fn slot_lengths(&self, n: usize) -> (usize, usize) {
        match *self {
            Self::Adamw { .. } | Self::Adam { .. } => (n, n),
            Self::Sgd { momentum, .. } => (if momentum == 0.0 { 0 } else { n }, 0),
            Self::Rmsprop { momentum, .. } => (if momentum == 0.0 { 0 } else { n }, n),
        }
    }

    /// Moves `values` one step against `grads`, in one pass over memory (a clip by norm reads the gradient once
    /// more, beforehand). Returns the norm of the gradient before clipping, if the clip needed it;
    /// [`Optimizer::gradient_norm`] computes it in any case.
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

    /// Begins a step that moves the parameters part by part, to the same bits as [`Optimizer::step`]. `None` if the clip has
    /// to know the whole gradient first.
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
        Some(Step { optimizer: self, state, learning_rate, clipping, is_taken: false })
    }

    /// Moves some of the parameters; the state is that of all.
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
            .map(|slot| if slot.is_empty() { &mut [] } else { &mut slot[range.clone()] });
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

    /// The Euclidean norm of the whole gradient, the one that [`Clip::Norm`] limits.
    pub fn gradient_norm(grads: &[f32]) -> f64 {
        kernel::norm(grads)
    }
}

/// A step that moves the parameters part by part.
#[derive(Debug)]
pub struct Step<'a> {
    optimizer: &'a Optimizer,
    state: &'a mut OptimizerState,
    learning_rate: f32,
    clipping: kernel::Clipping,
    /// Whether a part was moved. If none is, no step was taken.
    is_taken: bool,
}

impl Step<'_> {
    /// Moves the parameters in a range of all. Each has its turn once.
    ///
    /// # Panics
    /// If the range, its values and its gradients differ in length, or the state has fewer elements.
    pub fn apply(&mut self, range: Range<usize>, values: &mut [f32], grads: &[f32]) {
        if !self.is_taken {
            self.state.step = self.state.step.saturating_add(1);
            self.is_taken = true;
        }
        self.optimizer.apply(self.state, range, values, grads, self.learning_rate, self.clipping);
    }

    /// Whether a part was moved.
    pub fn is_taken(&self) -> bool {
        self.is_taken
    }
}

/// The scale and the limit that a clip means for this gradient, and its norm if that was needed.
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

fn check_share(name: &str, value: f64) -> Result<(), String> {
    // As the kernels see it: a share just below 1 rounds to 1, and would never forget.
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
mod tests {
    use super::*;
    use proptest::prelude::*;
    use safetensors::SafeTensors;

    const ADAM: Optimizer = Optimizer::Adam {
        beta1: usual::beta1(),
        beta2: usual::beta2(),
        epsilon: usual::epsilon(),
        weight_decay: 0.0,
    };
    const ADAMW: Optimizer = Optimizer::Adamw {
        beta1: usual::beta1(),
        beta2: usual::beta2(),
        epsilon: usual::epsilon(),
        weight_decay: usual::decoupled_decay(),
    };
    const SGD: Optimizer = Optimizer::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
    const RMSPROP: Optimizer = Optimizer::Rmsprop {
        alpha: usual::alpha(),
        epsilon: usual::epsilon(),
        momentum: 0.0,
        weight_decay: 0.0,
    };
    const MOMENTUM: Optimizer = Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 };

    fn golden_file() -> Vec<u8> {
        let path = crate::golden::folder("torch").join("optim.safetensors");
        std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn tensor(file: &[u8], name: &str) -> Vec<f32> {
        let tensors = SafeTensors::deserialize(file).expect("the golden file is a safetensors file");
        let bytes = tensors.tensor(name).expect("the golden file has this tensor").data().to_vec();
        bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect()
    }

    /// Repeats the six steps of the golden file and compares the parameters after each.
    fn check_golden(name: &str, optimizer: &Optimizer, learning_rate: f32) {
        let file = golden_file();
        let mut values = tensor(&file, "p0");
        let (grads, wanted) = (tensor(&file, "grads"), tensor(&file, name));
        assert_eq!((values.len(), grads.len(), wanted.len()), (37, 6 * 37, 6 * 37));
        let mut state = optimizer.state(values.len());
        for (grads, wanted) in grads.chunks(37).zip(wanted.chunks(37)) {
            optimizer.step(&mut state, &mut values, grads, learning_rate, None);
            for (i, (&got, &wanted)) in values.iter().zip(wanted).enumerate() {
                // A parameter near zero is the difference of larger numbers, hence the absolute part.
                let tolerance = 1e-6 * wanted.abs() + 1e-7;
                let error = (got - wanted).abs();
                assert!(error <= tolerance, "{name}, step {}, element {i}: {got} for {wanted}", state.step);
            }
        }
    }

    #[test]
    fn golden_sgd() {
        check_golden("sgd", &SGD, 0.1);
    }

    #[test]
    fn golden_sgd_momentum() {
        let optimizer = Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.01 };
        check_golden("sgd_momentum", &optimizer, 0.1);
    }

    #[test]
    fn golden_sgd_nesterov() {
        let optimizer = Optimizer::Sgd { momentum: 0.9, nesterov: true, weight_decay: 0.0 };
        check_golden("sgd_nesterov", &optimizer, 0.1);
    }

    #[test]
    fn golden_adam() {
        check_golden("adam", &ADAM, 0.01);
    }

    #[test]
    fn golden_adam_weight_decay() {
        let optimizer = Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1 };
        check_golden("adam_wd", &optimizer, 0.01);
    }

    #[test]
    fn golden_adamw() {
        let optimizer = Optimizer::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.01 };
        check_golden("adamw", &optimizer, 0.01);
    }

    #[test]
    fn golden_rmsprop() {
        check_golden("rmsprop", &RMSPROP, 0.01);
    }

    #[test]
    fn golden_rmsprop_momentum() {
        let optimizer = Optimizer::Rmsprop { alpha: 0.95, epsilon: 1e-8, momentum: 0.9, weight_decay: 0.0 };
        check_golden("rmsprop_momentum", &optimizer, 0.01);
    }

    fn any_optimizer() -> impl Strategy<Value = Optimizer> {
        prop_oneof![Just(ADAM), Just(ADAMW), Just(SGD), Just(MOMENTUM), Just(RMSPROP)]
    }

    proptest! {
        #[test]
        fn an_element_has_the_same_result_at_every_position(
            optimizer in any_optimizer(),
            elements in proptest::collection::vec((-2.0f32..2.0, -2.0f32..2.0), 1..70),
        ) {
            let (start, grads): (Vec<f32>, Vec<f32>) = elements.into_iter().unzip();
            let mut values = start.clone();
            let mut state = optimizer.state(values.len());
            for _ in 0..3 {
                optimizer.step(&mut state, &mut values, &grads, 0.01, Some(Clip::Value(1.0)));
            }
            for i in 0..values.len() {
                let mut alone = [start[i]];
                let mut state = optimizer.state(1);
                for _ in 0..3 {
                    optimizer.step(&mut state, &mut alone, &grads[i..=i], 0.01, Some(Clip::Value(1.0)));
                }
                prop_assert_eq!(alone[0].to_bits(), values[i].to_bits());
            }
        }
    }

    #[test]
    fn a_clip_by_value_limits_each_element() {
        let mut values = [0.0; 4];
        let norm =
            SGD.step(&mut SGD.state(4), &mut values, &[0.5, -0.5, 3.0, -3.0], 1.0, Some(Clip::Value(2.0)));
        assert_eq!(values, [-0.5, 0.5, -2.0, 2.0]);
        assert_eq!(norm, None);
    }

    #[test]
    fn a_clip_by_norm_scales_a_longer_gradient_down() {
        let mut values = [0.0; 2];
        let norm = SGD.step(&mut SGD.state(2), &mut values, &[3.0, -4.0], 1.0, Some(Clip::Norm(2.5)));
        assert_eq!(values, [-1.5, 2.0]);
        assert_eq!(norm, Some(5.0));
    }

    #[test]
    fn a_clip_by_norm_leaves_a_shorter_gradient() {
        for limit in [5.0, 6.0] {
            let mut values = [0.0; 2];
            SGD.step(&mut SGD.state(2), &mut values, &[3.0, -4.0], 1.0, Some(Clip::Norm(limit)));
            assert_eq!(values, [-3.0, 4.0]);
        }
    }

    #[test]
    fn a_step_in_parts_is_the_whole_step() {
        let grads: Vec<f32> = (0..41).map(|i| (i * 29 % 17) as f32 * 0.3 - 2.0).collect();
        for optimizer in [ADAM, ADAMW, SGD, MOMENTUM, RMSPROP] {
            for clip in [None, Some(Clip::Value(1.0))] {
                let [mut whole, mut parts] = [vec![1.0f32; 41], vec![1.0; 41]];
                let [mut state, mut other] = [optimizer.state(41), optimizer.state(41)];
                for _ in 0..3 {
                    optimizer.step(&mut state, &mut whole, &grads, 0.1, clip);
                    let mut step = optimizer.begin(&mut other, 0.1, clip).unwrap();
                    for range in [20..41, 0..3, 3..20] {
                        step.apply(range.clone(), &mut parts[range.clone()], &grads[range]);
                    }
                    assert!(step.is_taken());
                }
                assert!(!optimizer.begin(&mut other, 0.1, clip).unwrap().is_taken());
                assert_eq!((&parts, &other), (&whole, &state), "{optimizer:?} with {clip:?}");
            }
            assert!(optimizer.begin(&mut optimizer.state(1), 0.1, Some(Clip::Norm(1.0))).is_none());
        }
    }

    #[test]
    fn a_nan_gradient_is_not_hidden_by_clipping() {
        for optimizer in [ADAM, ADAMW, SGD, MOMENTUM, RMSPROP] {
            for clip in [None, Some(Clip::Value(1.0)), Some(Clip::Norm(1.0))] {
                for bad in [0, 10] {
                    let (mut values, mut grads) = ([1.0; 11], [1.0; 11]);
                    grads[bad] = f32::NAN;
                    optimizer.step(&mut optimizer.state(11), &mut values, &grads, 0.1, clip);
                    assert!(values[bad].is_nan(), "{optimizer:?} with {clip:?}");
                }
            }
        }
    }

    #[test]
    fn an_infinite_gradient_is_not_hidden_by_a_clip_by_norm() {
        for optimizer in [ADAM, ADAMW, SGD, MOMENTUM, RMSPROP] {
            let mut values = [1.0, 1.0];
            let mut state = optimizer.state(2);
            optimizer.step(&mut state, &mut values, &[f32::INFINITY, 1.0], 0.1, Some(Clip::Norm(1.0)));
            assert!(values[0].is_nan() && values[1].is_finite(), "{optimizer:?}: {values:?}");
        }
    }

    #[test]
    fn a_gradient_of_zero_leaves_parameters_without_decay() {
        for optimizer in [ADAM, SGD, MOMENTUM, RMSPROP] {
            let mut values = [1.0, -2.0, 0.0];
            optimizer.step(&mut optimizer.state(3), &mut values, &[0.0; 3], 0.1, None);
            assert_eq!(values, [1.0, -2.0, 0.0], "{optimizer:?}");
        }
    }

    #[test]
    fn a_state_has_only_the_slots_in_use() {
        let rmsprop = Optimizer::Rmsprop { alpha: 0.9, epsilon: 1e-8, momentum: 0.9, weight_decay: 0.0 };
        for (optimizer, first, second) in
            [(ADAM, 5, 5), (ADAMW, 5, 5), (SGD, 0, 0), (MOMENTUM, 5, 0), (RMSPROP, 0, 5), (rmsprop, 5, 5)]
        {
            let state = optimizer.state(5);
            assert_eq!((state.first.len(), state.second.len()), (first, second), "{optimizer:?}");
            assert_eq!(optimizer.check_state(&state, 5), Ok(()));
        }
    }

    #[test]
    fn a_state_of_another_optimiser_is_refused() {
        let error = ADAM.check_state(&MOMENTUM.state(5), 5).unwrap_err();
        assert!(error.contains("5 and 0 elements") && error.contains("needs 5 and 5"), "{error}");
        assert!(ADAM.check_state(&ADAM.state(4), 5).is_err());
    }

    #[test]
    fn the_step_counter_does_not_overflow() {
        let mut state = OptimizerState { step: u64::MAX, ..ADAM.state(1) };
        let mut values = [1.0];
        ADAM.step(&mut state, &mut values, &[1.0], 0.1, None);
        assert_eq!(state.step, u64::MAX);
        assert!(values[0].is_finite());
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct File {
        optimizer: Optimizer,
        clip: Option<Clip>,
    }

    fn parse(text: &str) -> Result<File, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn a_file_names_an_optimiser_and_what_is_unusual() {
        let file = parse("optimizer = { kind = 'adamw', beta2 = 0.99 }\nclip = { value = 100.0 }").unwrap();
        let optimizer = Optimizer::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.01 };
        assert_eq!(file, File { optimizer, clip: Some(Clip::Value(100.0)) });
        let short = parse("optimizer = 'adam'").unwrap();
        assert_eq!(short, parse("optimizer = { kind = 'adam' }").unwrap());
        let file = parse("clip = { norm = 1 }\n[optimizer]\nkind = 'sgd'").unwrap();
        assert_eq!(file, File { optimizer: SGD, clip: Some(Clip::Norm(1.0)) });
        assert_eq!(parse("optimizer = { kind = 'adam' }").unwrap(), File { optimizer: ADAM, clip: None });
        assert_eq!(
            parse("optimizer = { kind = 'rmsprop' }").unwrap(),
            File { optimizer: RMSPROP, clip: None }
        );
    }

    #[test]
    fn a_file_is_read_back_as_it_was_written() {
        for optimizer in [ADAM, ADAMW, SGD, MOMENTUM, RMSPROP] {
            for clip in [None, Some(Clip::Value(0.1)), Some(Clip::Norm(3.0))] {
                let file = File { optimizer: optimizer.clone(), clip };
                let text = toml::to_string(&file).unwrap();
                assert_eq!(parse(&text).unwrap(), file, "{text}");
            }
        }
    }

    #[test]
    fn a_file_with_a_misspelt_setting_is_refused() {
        for text in [
            "optimizer = { kind = 'adamw', beta = 0.9 }",
            "optimizer = { kind = 'sgd', beta1 = 0.9 }",
            "optimizer = { kind = 'adamax' }",
            "optimizer = { kind = 'sgd' }\nclip = { values = 1.0 }",
            "optimizer = { kind = 'sgd' }\nclip = { value = 1.0, norm = 1.0 }",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let refused = |settings: &str, name: &str| {
            let file = parse(&format!("optimizer = {{ {settings} }}")).unwrap();
            let error = file.optimizer.validate().unwrap_err();
            assert!(error.starts_with(name), "{error}");
        };
        refused("kind = 'adamw', beta1 = 1.0", "beta1 is 1,");
        refused("kind = 'adam', beta2 = -0.1", "beta2 is -0.1,");
        refused("kind = 'adam', beta2 = 0.999999999", "beta2 is 0.999999999,");
        refused("kind = 'adam', epsilon = 0.0", "epsilon is 0e0,");
        refused("kind = 'adam', weight_decay = nan", "weight_decay is NaN,");
        refused("kind = 'sgd', momentum = nan", "momentum is NaN,");
        refused("kind = 'sgd', nesterov = true", "nesterov is true,");
        refused("kind = 'rmsprop', alpha = 2.0", "alpha is 2,");
        refused("kind = 'rmsprop', epsilon = inf", "epsilon is inf,");
        for clip in [Clip::Value(0.0), Clip::Value(f32::NAN), Clip::Norm(-1.0), Clip::Norm(f32::INFINITY)] {
            assert!(clip.validate().is_err(), "{clip:?}");
        }
    }

    #[test]
    fn the_usual_settings_are_valid() {
        for optimizer in [ADAM, ADAMW, SGD, MOMENTUM, RMSPROP] {
            assert_eq!(optimizer.validate(), Ok(()));
        }
        assert_eq!(Clip::Norm(1.0).validate(), Ok(()));
    }
}
