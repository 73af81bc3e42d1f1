//! The loss of a state: the squared distance from the targets of all cells, entry by entry.

use crate::kernel::Row;

use crate::automata::cells::{Plan, PlanStep};

/// Scale of the gradients within a rollout. Deep in a network whose gates mostly pass one operand through, the gradient
/// of the other operand is tiny, and subnormal numbers are slow. The scale is a power of two, so it causes no rounding;
/// gradients up to 1e14 do not overflow.
pub(super) const GRADIENT_SCALE: f32 = (1u128 << 80) as f32;

/// Sets gradients of a state below 1e-20 to zero: they do not affect an optimiser and would become subnormal later.
pub(super) fn drop_negligible(grads: &mut [Row]) {
    for value in grads.iter_mut().flat_map(|row| &mut row.0) {
        *value = if value.abs() < 1e-20 * GRADIENT_SCALE { 0.0 } else { *value };
    }
}

/// The target of a state, entry by entry.
#[derive(Clone, Debug)]
pub struct Goal {
    channels: usize,
    /// Number of cells of each entry.
    weight: Vec<f32>,
    /// Mean target of the cells of each entry, entry by loss channel.
    mean: Vec<f32>,
    /// The loss if every entry has the mean of its targets.
    pub(super) remainder: f64,
}

impl Goal {
    /// Collects the targets of all cells in the last state of a plan; `target` holds `channels` numbers for each cell.
    pub fn new(plan: &Plan, channels: usize, target: &[f32]) -> Goal {
        let entries = plan.iter().last().map_or(plan.start_entries, PlanStep::entries);
        let mut goal = Goal {
            channels,
            weight: vec![0.0; entries],
            mean: vec![0.0; entries * channels],
            remainder: 0.0,
        };
        for (&entry, cell) in plan.last.iter().zip(target.chunks_exact(channels)) {
            goal.weight[entry as usize] += 1.0;
            for (mean, y) in goal.mean[entry as usize * channels..].iter_mut().zip(cell) {
                *mean += y;
            }
        }
        for (mean, weight) in goal.mean.chunks_exact_mut(channels).zip(&goal.weight) {
            for mean in mean {
                *mean /= weight.max(1.0);
            }
        }
        for (&entry, cell) in plan.last.iter().zip(target.chunks_exact(channels)) {
            let mean = &goal.mean[entry as usize * channels..][..channels];
            goal.remainder += mean.iter().zip(cell).map(|(m, y)| f64::from(y - m).powi(2)).sum::<f64>();
        }
        goal
    }

    /// Returns the loss of one value of an entry and replaces the value by its gradient.
    pub(super) fn charge(&self, entry: usize, channel: usize, value: &mut f32) -> f64 {
        let weight = self.weight[entry];
        let off = *value - self.mean[entry * self.channels + channel];
        *value = 2.0 * weight * off * GRADIENT_SCALE;
        f64::from(weight) * f64::from(off).powi(2)
    }
}
