//! Dynamic loss scaling, for training with activations in `f16`.
//!
//! The gradient of the loss is multiplied by a power of two before the backward pass, and the gradients of the parameters
//! are divided by it afterwards. An update whose gradients are not finite is skipped and halves the scale; a long series of
//! finite ones doubles it. Scaling by powers of two is exact, so the scale itself never changes a parameter.

use serde::{Deserialize, Serialize};

/// The first scale.
const INITIAL: f32 = 65_536.0;

/// The largest scale: gradients are `f32`, and have room above it.
const MAX: f32 = 16_777_216.0;

/// The smallest scale. Gradients that are not finite without scaling do not come from the scale.
const MIN: f32 = 1.0;

/// Consecutive finite gradients that double the scale.
const GROWTH_INTERVAL: u64 = 2000;

/// Gradients that are not finite, though the scale is 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the gradients are not finite, though the loss is: activations exceed 65504, the largest number of f16; \
     train in bf16 or f32"
)]
pub struct Overflow;

/// The scale of the loss, and its history.
///
/// ```
/// use gatework_train::loss_scale::LossScale;
///
/// let mut scale = LossScale::default();
/// let before = scale.factor();
/// assert!(!scale.unscale(&mut [1.0, f32::INFINITY]).unwrap());
/// assert_eq!((scale.factor(), scale.skipped()), (before / 2.0, 1));
/// let mut grads = [before];
/// assert!(scale.unscale(&mut grads).unwrap());
/// assert_eq!(grads, [2.0]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LossScale {
    factor: f32,
    /// Finite gradients since the scale last changed.
    finite: u64,
    skipped: u64,
}

impl Default for LossScale {
    fn default() -> LossScale {
        LossScale { factor: INITIAL, finite: 0, skipped: 0 }
    }
}

impl LossScale {
    /// Returns the factor of the loss, a power of two.
    pub fn factor(&self) -> f32 {
        self.factor
    }

    /// Returns the number of updates that were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Checks that the state, for example from a checkpoint, is one that can occur.
    pub fn validate(&self) -> Result<(), String> {
        let is_power_of_two = self.factor.to_bits().trailing_zeros() >= f32::MANTISSA_DIGITS - 1;
        if (MIN..=MAX).contains(&self.factor) && is_power_of_two && self.finite < GROWTH_INTERVAL {
            return Ok(());
        }
        Err(format!("a loss scale of {} after {} finite gradients is not valid", self.factor, self.finite))
    }

    /// Divides gradients by the scale and returns true, if all are finite. Otherwise halves the scale and returns false: the
    /// update must be skipped.
    pub fn unscale(&mut self, grads: &mut [f32]) -> Result<bool, Overflow> {
        // The sum of magnitudes is not finite if one of them is not; it may overflow, too, but not in f64.
        if grads.iter().map(|grad| f64::from(grad.abs())).sum::<f64>().is_finite() {
            let inverse = 1.0 / self.factor;
            for grad in grads.iter_mut() {
                *grad *= inverse;
            }
            self.finite += 1;
            if self.finite == GROWTH_INTERVAL {
                (self.factor, self.finite) = ((self.factor * 2.0).min(MAX), 0);
            }
            return Ok(true);
        }
        if self.factor <= MIN {
            return Err(Overflow);
        }
        self.factor /= 2.0;
        self.finite = 0;
        self.skipped += 1;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_finite_gradients_double_the_scale_up_to_its_maximum() {
        let mut scale = LossScale::default();
        for _ in 0..GROWTH_INTERVAL - 1 {
            assert!(scale.unscale(&mut [1.0]).unwrap());
        }
        assert_eq!(scale.factor(), INITIAL);
        assert!(scale.unscale(&mut [1.0]).unwrap());
        assert_eq!(scale.factor(), 2.0 * INITIAL);
        for _ in 0..20 * GROWTH_INTERVAL {
            assert!(scale.unscale(&mut [1.0]).unwrap() && scale.validate().is_ok());
        }
        assert_eq!((scale.factor(), scale.skipped()), (MAX, 0));
    }

    #[test]
    fn gradients_that_stay_infinite_are_an_error() {
        let mut scale = LossScale::default();
        for _ in 0..16 {
            let mut grads = [3.0, f32::NAN];
            assert_eq!(scale.unscale(&mut grads), Ok(false));
            assert_eq!(grads[0], 3.0, "skipped gradients are unchanged");
        }
        assert_eq!((scale.factor(), scale.skipped(), scale.validate()), (1.0, 16, Ok(())));
        assert_eq!(scale.unscale(&mut [f32::NEG_INFINITY]), Err(Overflow));
    }

    #[test]
    fn states_that_cannot_occur_are_refused() {
        for factor in [0.0, 0.5, 3.0, -4.0, f32::INFINITY, f32::NAN, 2.0 * MAX] {
            assert!(LossScale { factor, ..LossScale::default() }.validate().is_err(), "{factor}");
        }
        assert!(LossScale { finite: GROWTH_INTERVAL, ..LossScale::default() }.validate().is_err());
    }
}
