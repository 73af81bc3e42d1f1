//! Rows of convolutions: the maximum of a pooling window with its position, and sums of gradients.

use super::{LANES, Row};
use gatework_engine::dispatch;
use gatework_engine::simd::level;

/// For each lane, the position in a pooling window of its largest value.
pub type Winners = [u8; LANES];

/// Writes the largest value of each lane, and its first position.
pub fn largest<'a>(rows: impl Iterator<Item = &'a Row>, most: &mut Row, winners: &mut Winners) {
    dispatch!(level(), _ => {
        let mut position = [0u32; LANES];
        most.0 = [f32::NEG_INFINITY; LANES];
        for (i, row) in (0u32..).zip(rows) {
            for ((most, position), &value) in most.0.iter_mut().zip(&mut position).zip(&row.0) {
                let is_larger = value > *most;
                *most = if is_larger { value } else { *most };
                *position = if is_larger { i } else { *position };
            }
        }
        *winners = position.map(|position| position as u8);
    });
}

/// Writes the gradient of a maximum to the row of its position, and zeros to the others.
pub fn distribute<'a>(grad: &Row, winners: &Winners, rows: impl Iterator<Item = &'a mut Row>) {
    dispatch!(level(), _ => {
        let position = winners.map(u32::from);
        for (i, row) in (0u32..).zip(rows) {
            for ((to, &position), &grad) in row.0.iter_mut().zip(&position).zip(&grad.0) {
                *to = if position == i { grad } else { 0.0 };
            }
        }
    });
}

/// Adds row `i` of `rows` to row `places[i]` of `to`.
pub fn scatter(rows: &[Row], places: &[u32], to: &mut [Row]) {
    dispatch!(level(), _ => {
        for (row, &place) in rows.iter().zip(places) {
            let to = &mut to[place as usize].0;
            to.iter_mut().zip(&row.0).for_each(|(to, value)| *to += value);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gradient_goes_to_the_first_largest_value() {
        let row = |value: fn(usize) -> f32| Row(std::array::from_fn(value));
        let rows = [row(|lane| (lane % 3) as f32), row(|_| 1.0), row(|lane| (lane % 2) as f32)];
        let (mut most, mut winners) = (Row::ZERO, [9; LANES]);
        largest(rows.iter(), &mut most, &mut winners);
        for (lane, (&winner, &most)) in winners.iter().zip(&most.0).enumerate() {
            let values = rows.map(|row| row.0[lane]);
            let best = values.iter().copied().fold(0.0, f32::max);
            assert_eq!(most, best);
            assert_eq!(Some(usize::from(winner)), values.iter().position(|&value| value == best));
        }
        let mut grads = [Row([7.0; LANES]); 3];
        distribute(&row(|lane| lane as f32), &winners, grads.iter_mut());
        for (lane, &winner) in winners.iter().enumerate() {
            let expected: [f32; 3] =
                std::array::from_fn(|i| if usize::from(winner) == i { lane as f32 } else { 0.0 });
            assert_eq!(grads.map(|row| row.0[lane]), expected);
        }
        let mut sums = [Row([1.0; LANES]); 2];
        scatter(&rows, &[1, 0, 1], &mut sums);
        assert_eq!((sums[0].0[4], sums[1].0[4], sums[1].0[5]), (2.0, 2.0, 4.0));
    }
}
