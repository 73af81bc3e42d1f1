//! The states of a rollout in memory: all of them, or checkpoints and the states of one segment between two of them.
//!
//! ```text
//! interval 4, 10 steps:   0 . . . 4 . . . 8 . .      kept: 0 4 8 and one segment of three states
//! ```
//!
//! With an interval of about the square root of the steps, memory grows with that root, and every step but the last ones runs
//! forward twice.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The states of a rollout that are kept for the backward pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Checkpointing {
    /// All.
    #[default]
    None,
    /// About as many as the square root of the steps.
    Sqrt,
    /// One in this many.
    Every(usize),
}

impl Checkpointing {
    /// Returns the number of steps from one checkpoint to the next; above `steps` if all states are kept.
    pub(super) fn interval(self, steps: usize) -> usize {
        match self {
            Checkpointing::None => steps + 1,
            Checkpointing::Sqrt => steps.isqrt().max(1),
            Checkpointing::Every(interval) => interval.max(1),
        }
    }

    /// Returns the number of states that are in memory at a time.
    pub fn states(self, steps: usize) -> usize {
        let interval = self.interval(steps);
        if interval > steps { steps + 1 } else { steps / interval + interval }
    }
}

impl Serialize for Checkpointing {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Checkpointing::None => serializer.serialize_str("none"),
            Checkpointing::Sqrt => serializer.serialize_str("sqrt"),
            Checkpointing::Every(steps) => serializer.serialize_u64(*steps as u64),
        }
    }
}

impl<'de> Deserialize<'de> for Checkpointing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Checkpointing, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Value {
            Number(usize),
            Name(String),
            Other(serde::de::IgnoredAny),
        }
        match Value::deserialize(deserializer)? {
            Value::Number(steps) if steps > 0 => Ok(Checkpointing::Every(steps)),
            Value::Name(name) if name == "none" => Ok(Checkpointing::None),
            Value::Name(name) if name == "sqrt" => Ok(Checkpointing::Sqrt),
            _ => Err(D::Error::custom("expected \"sqrt\", \"none\" or a number of steps above 0")),
        }
    }
}

/// The states of a rollout, numbered by the steps before them.
#[derive(Debug, Default)]
pub(super) struct States {
    /// The checkpoints, then the states of a segment.
    buffers: Vec<Vec<f32>>,
    interval: usize,
    checkpoints: usize,
}

impl States {
    /// Begins a rollout, and returns the start state, which has `len` numbers.
    pub fn begin(&mut self, steps: usize, interval: usize, len: usize) -> &mut [f32] {
        self.interval = interval.clamp(1, steps + 1);
        self.checkpoints = steps / self.interval + 1;
        let segment = (self.interval - 1).min(steps);
        self.buffers.resize_with(self.checkpoints + segment, Vec::new);
        self.buffers[0].resize(len, 0.0);
        &mut self.buffers[0]
    }

    fn place(&self, t: usize) -> usize {
        match t % self.interval {
            0 => t / self.interval,
            after => self.checkpoints + after - 1,
        }
    }

    /// A state: a checkpoint, or one of the segment that was computed last.
    pub fn get(&self, t: usize) -> &[f32] {
        &self.buffers[self.place(t)]
    }

    pub fn get_mut(&mut self, t: usize) -> &mut [f32] {
        let place = self.place(t);
        &mut self.buffers[place]
    }

    /// Returns the states before and after step `t`; the latter has `len` numbers.
    pub fn step(&mut self, t: usize, len: usize) -> (&[f32], &mut [f32]) {
        let (before, after) = (self.place(t), self.place(t + 1));
        self.buffers[after].resize(len, 0.0);
        if before < after {
            let (low, high) = self.buffers.split_at_mut(after);
            (&low[before], &mut high[0])
        } else {
            let (low, high) = self.buffers.split_at_mut(before);
            (&high[0], &mut low[after])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rollout_keeps_as_many_states_as_it_says() {
        for steps in 1..30 {
            let every = (1..=steps + 2).map(Checkpointing::Every);
            for checkpointing in [Checkpointing::None, Checkpointing::Sqrt].into_iter().chain(every) {
                let mut states = States::default();
                states.begin(steps, checkpointing.interval(steps), 1);
                assert_eq!(states.buffers.len(), checkpointing.states(steps), "{steps}: {checkpointing:?}");
                let last: Vec<usize> = (0..=steps).map(|t| states.place(t)).collect();
                assert!(last.iter().all(|place| *place < states.buffers.len()));
                // The states of a segment and its end are in different places.
                for pair in last.windows(2) {
                    assert!(pair[0] != pair[1] || states.interval == 1, "{steps}: {checkpointing:?}");
                }
            }
        }
        assert_eq!(Checkpointing::Sqrt.states(6400), 160);
    }
}
