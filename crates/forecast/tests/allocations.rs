//! Training steps and forecasts allocate nothing after the first ones. A counting allocator checks it.

use gatework_forecast::data::{Batch, BatchSource};
use gatework_forecast::{ForecastTask, Specification, TrainedNetwork};
use gatework_train::optim::{Clip, Optimizer};
use gatework_train::trainer::{Task, TaskError};

#[global_allocator]
static ALLOCATOR: gatework_test_support::counting::CountingAllocator =
    gatework_test_support::counting::CountingAllocator;

/// A source that returns one batch for every update.
struct Same(Batch);

impl Same {
    fn copy(&self, batch: &mut Batch) {
        if batch.shape == self.0.shape {
            batch.past.copy_from_slice(&self.0.past);
            batch.target.copy_from_slice(&self.0.target);
        } else {
            *batch = self.0.clone();
        }
    }
}

impl BatchSource for Same {
    fn updates_per_epoch(&self) -> u64 {
        2
    }

    fn training(&mut self, _: u64, batch: &mut Batch) -> Result<(), TaskError> {
        self.copy(batch);
        Ok(())
    }

    fn validation(&mut self, index: u64, batch: &mut Batch) -> Result<bool, TaskError> {
        self.copy(batch);
        Ok(index < 2)
    }
}

/// Returns the number of allocations of `work` in this thread.
fn allocations(work: impl FnOnce()) -> usize {
    let before = gatework_test_support::counting::allocations_of_thread();
    work();
    gatework_test_support::counting::allocations_of_thread() - before
}

// A single thread, since waking others allocates.
#[test]
fn steps_and_forecasts_allocate_nothing() {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    pool.install(check_all);
}

fn check_all() {
    let models = [
        "{ kind = 'dlinear' }",
        "{ kind = 'nhits', width = 16, dropout = 0.2 }",
        "{ kind = 'tcn', channels = [4, 4] }",
        "{ kind = 'gru', hidden = 8 }",
        "{ kind = 'lstm', hidden = 8 }",
        "{ kind = 'transformer', patch = 4, stride = 2, width = 8, heads = 2, feed_forward = 8 }",
    ];
    for model in models {
        let text =
            format!("model = {model}\nloss = 'quantiles'\ninput = 24\nhorizon = 6\nfuture_columns = 2");
        let specification: Specification = toml::from_str(&text).unwrap();
        let mut batch = Batch::new(specification.shape(11));
        batch.past.iter_mut().enumerate().for_each(|(i, x)| *x = (i % 7) as f32);
        let optimizer = Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 };
        // Micro-batches of four windows and one of three.
        let mut task = ForecastTask::new(&specification, Same(batch.clone()), 1).unwrap().with_micro_batch(4);
        let mut state = optimizer.state(task.params().len());
        let mut step = |update| {
            task.step(update).unwrap();
            let params = task.params_mut();
            optimizer.step(&mut state, &mut params.values, &params.grads, 0.01, Some(Clip::Norm(1.0)));
        };
        (0..4).for_each(&mut step);
        // Every other update computes the validation loss of two batches.
        assert_eq!(allocations(|| (4..10).for_each(&mut step)), 0, "training {model}");

        let network = TrainedNetwork::new(specification.clone(), specification.params(1).unwrap()).unwrap();
        let mut forecast = network.predict(&batch).unwrap();
        let predict = || network.predict_into(&batch, &mut forecast).unwrap();
        assert_eq!(allocations(predict), 0, "forecasts of {model}");
    }
}
