//! Parses arbitrary bytes as a checkpoint of a task with three parameters. An accepted checkpoint is resumed.
#![no_main]

use gatework_train::optim::Optimizer;
use gatework_train::params::Params;
use gatework_train::schedule::LearningRate;
use gatework_train::trainer::{Attempt, Losses, Settings, Task, TaskError};
use libfuzzer_sys::fuzz_target;

struct Three(Params);

impl Task for Three {
    fn params(&self) -> &Params {
        &self.0
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.0
    }

    fn step(&mut self, _: u64) -> Result<Losses, TaskError> {
        Ok(Losses { soft: 1.0, hard: Some(1.0) })
    }

    fn passes(&mut self, _: u64) -> Result<bool, TaskError> {
        Ok(false)
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut params = Params::new();
    params.add("x", &[3], |_| 0.0);
    let mut task = Three(params);
    let settings = Settings {
        updates: 100,
        rate: LearningRate::constant(0.1),
        optimizer: Optimizer::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.0 },
        clip: None,
        stable: 5,
        patience: Some(3),
        scales_loss: false,
    };
    if let Ok(mut attempt) = Attempt::from_bytes(bytes, 1, &settings, &mut task) {
        let _ = attempt.advance(&mut task, &settings);
    }
});
