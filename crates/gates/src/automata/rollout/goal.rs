//! The loss of a roll-out's last state: squared distance from the targets of all cells, entry by entry.

use crate::kernel::Row;

use crate::automata::cells::{Plan, Step};

/// Gradients within a roll-out are this many times what they are. Deep in a network whose gates mostly pass one
/// operand through, the other one's gradient is tiny, and numbers that become subnormal are slow. A power of two:
/// nothing is rounded; gradients up to 1e14 still fit.
pub(super) const GRADIENT_SCALE: f32 = (1u128 << 80) as f32;

/// Gradients of a state below 1e-20 are zero: no optimiser can tell, and they would become subnormal further on.
pub(super) fn drop_negligible(grads: &mut [Row]) {
    for value in grads.iter_mut().flat_map(|row| &mut row.0) {
        *value = if value.abs() < 1e-20 * GRADIENT_SCALE { 0.0 } else { *value };
    }
}

/// What the last state should be, entry by entry.
#[derive(Clone, Debug)]
pub struct Goal {
    channels: usize,
    /// Number of cells of each entry of the last state.
    weight: Vec<f32>,
    /// Mean of the targets of those cells, entry by loss channel.
    mean: Vec<f32>,
    /// What is left of the loss when every entry has the mean of its targets.
    pub(super) remainder: f64,
}

impl Goal {
    /// Collects the targets of all cells; `target` holds `channels` numbers for each cell.
    pub fn new(plan: &Plan, channels: usize, target: &[f32]) -> Goal {
        let entries = plan.iter().last().map_or(plan.start_entries, Step::entries);
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

    /// Loss of one value of an entry; the value is replaced by its gradient.
    pub(super) fn charge(&self, entry: usize, channel: usize, value: &mut f32) -> f64 {
        let weight = self.weight[entry];
        let off = *value - self.mean[entry * self.channels + channel];
        *value = 2.0 * weight * off * GRADIENT_SCALE;
        f64::from(weight) * f64::from(off).powi(2)
    }
}
