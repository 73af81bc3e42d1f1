//! Augmentation of images: random shifts, reflected crops and flips of the training rows.

use gatework_train::random::Random;
use serde::{Deserialize, Serialize};

use super::ImageShape;

/// Random changes of the images of a batch: the `[augment]` table of an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Augment {
    /// Maximum shift in each direction, in pixels.
    pub shift: usize,
    /// Whether pixels from outside the image are reflected ones; zeros otherwise.
    pub reflect: bool,
    /// Whether half of the images are mirrored left to right.
    pub flip: bool,
}

impl Augment {
    /// Whether nothing is changed.
    pub fn is_none(&self) -> bool {
        self.shift == 0 && !self.flip
    }

    /// Writes a changed copy of an image.
    pub fn apply(&self, shape: ImageShape, from: &[f32], to: &mut [f32], random: &mut Random) {
        let mut shift = || random.below(2 * self.shift + 1) as isize - self.shift as isize;
        let (down, right) = (shift(), shift());
        let is_flipped = self.flip && random.bits() & 1 == 1;
        let size = shape.height * shape.width;
        for (from, to) in from.chunks_exact(size).zip(to.chunks_exact_mut(size)) {
            for (y, row) in to.chunks_exact_mut(shape.width).enumerate() {
                let source_y = self.source(y as isize - down, shape.height);
                for (x, pixel) in row.iter_mut().enumerate() {
                    let x = if is_flipped { shape.width - 1 - x } else { x };
                    let source_x = self.source(x as isize - right, shape.width);
                    *pixel = match (source_y, source_x) {
                        (Some(y), Some(x)) => from[y * shape.width + x],
                        _ => 0.0,
                    };
                }
            }
        }
    }

    /// Returns the position that a pixel is taken from, unless it is zero.
    fn source(&self, at: isize, length: usize) -> Option<usize> {
        let length = length as isize;
        let at = match at {
            at if at < 0 && self.reflect => (-at).min(length - 1),
            at if at >= length && self.reflect => (2 * (length - 1) - at).max(0),
            at => at,
        };
        (0..length).contains(&at).then_some(at as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::Purpose;

    const SHAPE: ImageShape = ImageShape { channels: 2, height: 3, width: 4 };

    fn image() -> Vec<f32> {
        (1..=24).map(|pixel| pixel as f32).collect()
    }

    /// All different results of 200 draws.
    fn results(augment: Augment) -> Vec<Vec<f32>> {
        let mut random = Random::new(1, Purpose::Check, 0);
        let mut results: Vec<Vec<f32>> = Vec::new();
        for _ in 0..200 {
            let mut to = vec![f32::NAN; 24];
            augment.apply(SHAPE, &image(), &mut to, &mut random);
            if !results.contains(&to) {
                results.push(to);
            }
        }
        results
    }

    #[test]
    fn a_shift_moves_all_channels_together_and_fills_with_zeros() {
        let results = results(Augment { shift: 1, ..Augment::default() });
        assert_eq!(results.len(), 9);
        assert!(results.contains(&image()));
        let mut right: Vec<f32> = image();
        for row in right.chunks_exact_mut(4) {
            row.rotate_right(1);
            row[0] = 0.0;
        }
        assert!(results.contains(&right));
    }

    #[test]
    fn a_flip_mirrors_rows_and_reflected_pixels_are_pixels() {
        let flipped = results(Augment { flip: true, ..Augment::default() });
        assert_eq!(flipped.len(), 2);
        assert_eq!(flipped.iter().find(|result| **result != image()).unwrap()[..4], [4.0, 3.0, 2.0, 1.0]);
        let reflected = results(Augment { shift: 3, reflect: true, flip: false });
        assert!(reflected.iter().flatten().all(|pixel| *pixel >= 1.0));
    }
}
