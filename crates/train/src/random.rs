//! Counter-based random numbers: a pure function of seed, purpose, time and position. A resumed run draws the same numbers as
//! an uninterrupted one, on any number of threads.
//!
//! The generator is Philox ([`gatework_engine::kernel::random`]). Its key is the seed; its counter consists of a purpose, a
//! time (the update) and a position.

use gatework_engine::kernel::random::{mask, mask_blocks, philox};

/// The purpose of random numbers. Sequences of different purposes are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// Connections of a network.
    Wiring = 1,
    /// Initial states in training.
    Start = 2,
    /// Cells that update in a step, in training.
    Fire = 3,
    /// Initial states and damage in checks and evaluations, which do not occur in training.
    Check = 4,
    /// Cells that update in a step, in checks and evaluations.
    CheckFire = 5,
    /// Damage to grids in evaluations.
    Damage = 6,
    /// Moves of a search.
    Search = 7,
    /// Seeds of the connections after a restart of a search.
    Redraw = 8,
    /// Moves that reduce the size of a circuit.
    Shrink = 9,
    /// Perturbations of soft states in training.
    Disturb = 10,
    /// Gumbel noise on the logits of gates in training.
    Gumbel = 11,
    /// Number of steps of an update.
    Steps = 12,
    /// Grids of an update that start half-grown.
    HalfGrown = 13,
    /// Random changes of training images.
    Augment = 14,
    /// Initial parameters.
    Parameters = 16,
    /// Dropout masks.
    Dropout = 17,
    /// Samples of a forecast.
    Sample = 18,
    /// The order of windows in an epoch.
    Shuffle = 32,
}

/// A sequence of random numbers.
#[derive(Clone, Debug)]
pub struct Random {
    key: [u32; 2],
    counter: [u32; 4],
    block: [u32; 4],
    used: usize,
}

impl Random {
    /// Creates the sequence of a seed, a purpose and a time.
    pub fn new(seed: u64, purpose: Purpose, time: u64) -> Random {
        Random {
            key: [seed as u32, (seed >> 32) as u32],
            counter: [0, purpose as u32, time as u32, (time >> 32) as u32],
            block: [0; 4],
            used: 4,
        }
    }

    /// Seeks to a block of four 32-bit words, so that different positions can be drawn in any order.
    pub fn seek(&mut self, block: u32) {
        self.counter[0] = block;
        self.used = 4;
    }

    /// Returns 32 random bits.
    pub fn bits(&mut self) -> u32 {
        if self.used == 4 {
            self.block = philox(self.counter, self.key);
            self.counter[0] = self.counter[0].wrapping_add(1);
            self.used = 0;
        }
        self.used += 1;
        self.block[self.used - 1]
    }

    /// Fills a row of an inverted-dropout mask: an element is 0 with probability `rate`, rounded down to a multiple of 2^-16,
    /// and otherwise scaled so that the mean is 1. The row depends on seed, purpose, time, length and row only.
    pub fn mask(&mut self, row: usize, rate: f64, numbers: &mut [f32]) {
        self.seek((row * mask_blocks(numbers.len())) as u32);
        let dropped = (rate * 65_536.0) as u16;
        let kept = (1.0 / (1.0 - f64::from(dropped) / 65_536.0)) as f32;
        mask(self.counter, self.key, dropped, kept, numbers);
    }

    /// Returns 64 random bits.
    pub fn word(&mut self) -> u64 {
        u64::from(self.bits()) << 32 | u64::from(self.bits())
    }

    /// Returns a uniform number in [0, 1), a multiple of 2^-24.
    pub fn uniform(&mut self) -> f32 {
        (self.bits() >> 8) as f32 / (1 << 24) as f32
    }

    /// Returns a number from the standard normal distribution (Box-Muller), with a magnitude below 6.
    pub fn normal(&mut self) -> f64 {
        // In (0, 1], so that the logarithm is finite.
        let radius = (-2.0 * (1.0 - f64::from(self.uniform())).ln()).sqrt();
        radius * (std::f64::consts::TAU * f64::from(self.uniform())).cos()
    }

    /// Returns a uniform integer below `n`, which must not be 0. The bias is below n / 2^32.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 32) as usize
    }

    /// Shuffles a slice (Fisher-Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purposes_times_and_seeds_differ_and_repeat() {
        let first = |seed, purpose, time| Random::new(seed, purpose, time).word();
        assert_eq!(first(1, Purpose::Start, 5), first(1, Purpose::Start, 5));
        assert_ne!(first(1, Purpose::Start, 5), first(1, Purpose::Fire, 5));
        assert_ne!(first(1, Purpose::Start, 5), first(1, Purpose::Start, 6));
        assert_ne!(first(1, Purpose::Start, 5), first(2, Purpose::Start, 5));
        assert_ne!(first(1, Purpose::Start, 5), first(1 << 32 | 1, Purpose::Start, 5));
    }

    #[test]
    fn seek_continues_at_the_block() {
        let mut random = Random::new(7, Purpose::Check, 0);
        let numbers: Vec<u32> = (0..12).map(|_| random.bits()).collect();
        random.seek(1);
        assert_eq!([random.bits(), random.bits()], numbers[4..6]);
    }

    #[test]
    fn uniform_numbers_fill_the_interval_and_shuffles_are_permutations() {
        let mut random = Random::new(7, Purpose::Check, 0);
        let mean = (0..10_000).map(|_| f64::from(random.uniform())).sum::<f64>() / 1e4;
        assert!((mean - 0.5).abs() < 0.02, "{mean}");
        let mut items: Vec<usize> = (0..100).collect();
        random.shuffle(&mut items);
        assert_ne!(items, (0..100).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..100).collect::<Vec<_>>());
        assert!((0..1000).all(|_| random.below(3) < 3));
    }
}
