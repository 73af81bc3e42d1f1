//! Learning rate schedules: a linear warm-up, then a schedule. The rate is a function of the update alone, so a resumed run
//! continues with the same rate.
//!
//! ```toml
//! learning_rate = 0.01
//! schedule = "cosine"            # or { kind = "step", every = 100, factor = 0.5 }
//! warmup = 100
//! ```
//!
//! The formulas are those of PyTorch; the tests compare with its results.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::f64::consts::PI;

use crate::kinds::{Kinds, name_or_table, no_settings};

/// The learning rate after the warm-up. In a file it is a table with its `kind` and settings, or the kind alone if every
/// setting has a default.
///
/// ```
/// use gatework_train::schedule::Schedule;
///
/// let halved = Schedule::Step { every: 100, factor: 0.5, hold: 0 };
/// assert_eq!(halved.at(0.1, 99, 1000), 0.1);
/// assert_eq!(halved.at(0.1, 100, 1000), 0.05);
/// ```
// `remote` turns the derived code into plain functions for tables; the trait implementations below add the short form.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(remote = "Self", tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Schedule {
    /// A constant rate.
    #[default]
    #[serde(deserialize_with = "no_settings")]
    Constant,
    /// Half a cosine from the base rate at the first update to the minimum after the last.
    Cosine {
        /// Learning rate at the end.
        #[serde(default)]
        minimum: f64,
    },
    /// Multiplied by a factor every `every` updates.
    Step {
        /// The number of updates at the same rate.
        every: u64,
        /// The factor from one rate to the next.
        factor: f64,
        /// Additional updates at the first rate.
        #[serde(default)]
        hold: u64,
    },
    /// Multiplied by a factor after every update.
    Exponential {
        /// The factor from one rate to the next.
        factor: f64,
    },
    /// One-cycle: half a cosine up to the base rate, then another down to nearly 0 (Smith 2018).
    OneCycle {
        /// The fraction of the updates in which the rate rises.
        #[serde(default = "defaults::start_fraction")]
        start_fraction: f64,
        /// The first rate is the base rate divided by this.
        #[serde(default = "defaults::divisor")]
        divisor: f64,
        /// The last rate is the first rate divided by this.
        #[serde(default = "defaults::final_divisor")]
        final_divisor: f64,
    },
}

/// The defaults, which are those of PyTorch.
mod defaults {
    pub const fn start_fraction() -> f64 {
        0.3
    }
    pub const fn divisor() -> f64 {
        25.0
    }
    pub const fn final_divisor() -> f64 {
        1e4
    }
}

/// The learning rate of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LearningRate {
    /// The rate that the schedule starts from (for one-cycle: its highest).
    pub base: f64,
    /// The schedule after the warm-up.
    #[serde(default)]
    pub schedule: Schedule,
    /// The number of updates in which the rate rises from 0 to the first rate of the schedule.
    #[serde(default)]
    pub warmup: u64,
}

impl LearningRate {
    /// Creates a constant rate.
    pub const fn constant(base: f64) -> Self {
        Self { base, schedule: Schedule::Constant, warmup: 0 }
    }

    /// Returns the rate of an update, counted from 0, in a run of `total` updates, warm-up included. Update 0 of a warm-up
    /// has the rate 0, and update `warmup` is the first of the schedule. After `total`, the rate stays at its final
    /// value.
    ///
    /// ```
    /// use gatework_train::schedule::LearningRate;
    ///
    /// let rate = LearningRate { warmup: 4, ..LearningRate::constant(0.1) };
    /// assert_eq!([0, 2, 4, 9].map(|update| rate.at(update, 10)), [0.0, 0.05, 0.1, 0.1]);
    /// ```
    pub fn at(&self, update: u64, total: u64) -> f64 {
        let scheduled = total.saturating_sub(self.warmup);
        match update.checked_sub(self.warmup) {
            Some(update) => self.schedule.at(self.base, update, scheduled),
            None => self.schedule.at(self.base, 0, scheduled) * (update as f64 / self.warmup as f64),
        }
    }

    /// Checks that every setting is in its range; the error names the first one that is not.
    pub fn validate(&self) -> Result<(), String> {
        check_above_zero("base", self.base)?;
        self.schedule.validate()?;
        match self.schedule {
            Schedule::Cosine { minimum } if minimum > self.base => {
                Err(format!("schedule.minimum is {minimum}, above the base rate {}", self.base))
            }
            _ => Ok(()),
        }
    }
}

impl Schedule {
    /// Returns the rate of an update, counted from 0, in `total` updates of this schedule, for a base rate.
    pub fn at(&self, base: f64, update: u64, total: u64) -> f64 {
        match *self {
            Self::Constant => base,
            Self::Cosine { minimum } => {
                let progress = if total == 0 { 0.0 } else { update.min(total) as f64 / total as f64 };
                half_cosine(base, minimum, progress)
            }
            Self::Step { every, factor, hold } => {
                base * factor.powf((update.saturating_sub(hold) / every.max(1)) as f64)
            }
            Self::Exponential { factor } => base * factor.powf(update as f64),
            Self::OneCycle { start_fraction, divisor, final_divisor } => {
                let first = base / divisor;
                let end = total.saturating_sub(1) as f64;
                let update = (update as f64).min(end);
                let peak = start_fraction * total as f64 - 1.0;
                if update < peak {
                    half_cosine(first, base, update / peak)
                } else {
                    let progress = if end > peak { (update - peak) / (end - peak) } else { 0.0 };
                    half_cosine(base, first / final_divisor, progress)
                }
            }
        }
    }

    /// Checks that every setting is in its range; the error names the first one that is not.
    pub fn validate(&self) -> Result<(), String> {
        match *self {
            Self::Constant => Ok(()),
            Self::Cosine { minimum } if minimum >= 0.0 && minimum.is_finite() => Ok(()),
            Self::Cosine { minimum } => {
                Err(format!("schedule.minimum is {minimum}, but must be a number of at least 0"))
            }
            Self::Step { every: 0, .. } => Err("schedule.every is 0, but must be at least 1".to_owned()),
            Self::Step { factor, .. } | Self::Exponential { factor } => {
                check_above_zero("schedule.factor", factor)
            }
            Self::OneCycle { start_fraction, divisor, final_divisor } => {
                if !(0.0..=1.0).contains(&start_fraction) {
                    return Err(format!(
                        "schedule.start_fraction is {start_fraction}, but must be in 0 to 1"
                    ));
                }
                check_above_zero("schedule.divisor", divisor)?;
                check_above_zero("schedule.final_divisor", final_divisor)
            }
        }
    }
}

/// Interpolates from `start` to `end` along half a period of a cosine, for `progress` from 0 to 1.
fn half_cosine(start: f64, end: f64, progress: f64) -> f64 {
    end + (start - end) * (1.0 + (PI * progress).cos()) / 2.0
}

fn check_above_zero(name: &str, value: f64) -> Result<(), String> {
    if value > 0.0 && value.is_finite() {
        Ok(())
    } else {
        Err(format!("{name} is {value}, but must be a number above 0"))
    }
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        name_or_table(deserializer)
    }
}

impl Kinds for Schedule {
    const EXPECTED: &str = "the name of a schedule, or a table with its `kind` and settings";

    fn from_table<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use safetensors::SafeTensors;

    const ONE_CYCLE: Schedule = Schedule::OneCycle {
        start_fraction: defaults::start_fraction(),
        divisor: defaults::divisor(),
        final_divisor: defaults::final_divisor(),
    };

    fn every_schedule() -> [Schedule; 5] {
        [
            Schedule::Constant,
            Schedule::Cosine { minimum: 1e-4 },
            Schedule::Step { every: 5, factor: 0.5, hold: 0 },
            Schedule::Exponential { factor: 0.9 },
            ONE_CYCLE,
        ]
    }

    /// Compares the 20 rates of the golden file, which start from 0.1.
    fn check_golden(name: &str, schedule: &Schedule) {
        let path = gatework_test_support::golden!("torch", "optim.safetensors");
        let file = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let tensors = SafeTensors::deserialize(&file).expect("the golden file is a safetensors file");
        let tensor = tensors.tensor(&format!("schedule.{name}")).expect("the golden file has this schedule");
        let wanted: Vec<f64> = tensor.data().as_chunks().0.iter().map(|&x| f64::from_le_bytes(x)).collect();
        assert_eq!(wanted.len(), 20);
        for (update, wanted) in wanted.into_iter().enumerate() {
            let got = schedule.at(0.1, update as u64, 20);
            assert!(
                (got - wanted).abs() <= 1e-12 * wanted + 1e-16,
                "{name}, update {update}: {got} for {wanted}"
            );
        }
    }

    #[test]
    fn schedules_agree_with_pytorch() {
        let names = ["cosine", "step", "exponential", "onecycle"];
        for (name, schedule) in names.into_iter().zip(&every_schedule()[1..]) {
            check_golden(name, schedule);
        }
    }

    #[test]
    fn a_rate_can_be_held_before_it_falls() {
        let schedule = Schedule::Step { every: 10, factor: 0.5, hold: 10 };
        assert_eq!([0, 19, 20, 30].map(|update| schedule.at(1.0, update, 100)), [1.0, 1.0, 0.5, 0.25]);
    }

    #[test]
    fn a_warm_up_rises_to_where_the_schedule_starts() {
        for schedule in every_schedule() {
            let first = schedule.at(0.1, 0, 16);
            let rate = LearningRate { base: 0.1, schedule: schedule.clone(), warmup: 4 };
            for update in 0..=4 {
                let wanted = first * update as f64 / 4.0;
                assert!((rate.at(update, 20) - wanted).abs() < 1e-15, "{schedule:?}");
            }
            assert_eq!(rate.at(11, 20), schedule.at(0.1, 7, 16));
        }
    }

    #[test]
    fn a_rate_is_finite_and_in_range_for_any_update() {
        for schedule in every_schedule() {
            for warmup in [0, 1, 7, u64::MAX] {
                let rate = LearningRate { base: 0.1, schedule: schedule.clone(), warmup };
                for total in [0, 1, 2, 3, 4, 10, u64::MAX] {
                    for update in [0, 1, 2, 3, 9, 10, 1000, u64::MAX] {
                        let at = rate.at(update, total);
                        assert!((0.0..=0.1 + 1e-15).contains(&at), "{rate:?}, {update} of {total}: {at}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_one_cycle_of_any_start_fraction_is_finite() {
        for start_fraction in [0.0, 0.25, 0.5, 1.0] {
            let schedule = Schedule::OneCycle { start_fraction, divisor: 25.0, final_divisor: 1e4 };
            for total in 0..10 {
                for update in 0..10 {
                    assert!(schedule.at(0.1, update, total).is_finite(), "{schedule:?}, {update} of {total}");
                }
            }
        }
    }

    #[test]
    fn the_rate_stays_at_the_end_of_a_cosine_and_of_a_cycle() {
        assert_eq!(Schedule::Cosine { minimum: 0.25 }.at(1.0, 50, 20), 0.25);
        assert_eq!(ONE_CYCLE.at(1.0, 50, 20), ONE_CYCLE.at(1.0, 19, 20));
    }

    fn parse(text: &str) -> Result<LearningRate, toml::de::Error> {
        toml::from_str(text)
    }

    #[test]
    fn a_name_alone_means_the_default_settings() {
        for (name, schedule) in [
            ("constant", Schedule::Constant),
            ("cosine", Schedule::Cosine { minimum: 0.0 }),
            ("one-cycle", ONE_CYCLE),
        ] {
            let wanted = LearningRate { base: 0.1, schedule, warmup: 0 };
            assert_eq!(parse(&format!("base = 0.1\nschedule = '{name}'")).unwrap(), wanted);
            assert_eq!(parse(&format!("base = 0.1\nschedule = {{ kind = '{name}' }}")).unwrap(), wanted);
        }
        assert_eq!(parse("base = 0.1").unwrap(), LearningRate::constant(0.1));
    }

    #[test]
    fn a_table_gives_the_settings() {
        let rate =
            parse("base = 1\nwarmup = 3\nschedule = { kind = 'step', every = 100, factor = 0.5 }").unwrap();
        let schedule = Schedule::Step { every: 100, factor: 0.5, hold: 0 };
        assert_eq!(rate, LearningRate { base: 1.0, schedule, warmup: 3 });
        let rate = parse("base = 1.0\nschedule = { kind = 'one-cycle', divisor = 10.0 }").unwrap();
        let schedule = Schedule::OneCycle { start_fraction: 0.3, divisor: 10.0, final_divisor: 1e4 };
        assert_eq!(rate.schedule, schedule);
    }

    #[test]
    fn a_file_is_read_back_as_it_was_written() {
        for schedule in every_schedule() {
            let rate = LearningRate { base: 0.1, schedule, warmup: 10 };
            let text = toml::to_string(&rate).unwrap();
            assert_eq!(parse(&text).unwrap(), rate, "{text}");
            let text = serde_json::to_string(&rate).unwrap();
            assert_eq!(serde_json::from_str::<LearningRate>(&text).unwrap(), rate, "{text}");
        }
    }

    #[test]
    fn a_file_with_a_mistake_is_refused_by_name() {
        for (schedule, reason) in [
            ("'sine'", "unknown variant `sine`"),
            ("'step'", "missing field `every`"),
            ("'exponential'", "missing field `factor`"),
            ("{ kind = 'step', every = 5 }", "missing field `factor`"),
            ("{ kind = 'constant', factor = 0.5 }", "unknown field `factor`"),
            ("{ kind = 'cosine', min = 0.5 }", "unknown field `min`"),
            ("{ factor = 0.5 }", "missing field `kind`"),
            ("3", "expected the name of a schedule"),
        ] {
            let error = parse(&format!("base = 0.1\nschedule = {schedule}")).unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let one_cycle = |start_fraction, divisor, final_divisor| Schedule::OneCycle {
            start_fraction,
            divisor,
            final_divisor,
        };
        for (base, schedule, name) in [
            (0.0, Schedule::Constant, "base is 0,"),
            (f64::NAN, Schedule::Constant, "base is NaN,"),
            (0.1, Schedule::Cosine { minimum: -1.0 }, "schedule.minimum is -1,"),
            (0.1, Schedule::Cosine { minimum: 0.2 }, "schedule.minimum is 0.2, above the base rate 0.1"),
            (0.1, Schedule::Step { every: 0, factor: 0.5, hold: 0 }, "schedule.every is 0,"),
            (0.1, Schedule::Step { every: 5, factor: 0.0, hold: 0 }, "schedule.factor is 0,"),
            (0.1, Schedule::Exponential { factor: f64::INFINITY }, "schedule.factor is inf,"),
            (0.1, one_cycle(1.5, 25.0, 1e4), "schedule.start_fraction is 1.5,"),
            (0.1, one_cycle(0.3, 0.0, 1e4), "schedule.divisor is 0,"),
            (0.1, one_cycle(0.3, 25.0, -1.0), "schedule.final_divisor is -1,"),
        ] {
            let error = LearningRate { base, schedule, warmup: 0 }.validate().unwrap_err();
            assert!(error.starts_with(name), "{error}");
        }
        for schedule in every_schedule() {
            assert_eq!(LearningRate { base: 0.1, schedule, warmup: 5 }.validate(), Ok(()));
        }
    }
}
