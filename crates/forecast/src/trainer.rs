//! A forecaster as something the trainer can train.
//!
//! A batch is cut into parts of so many windows, the last one shorter. Each part goes through the same compiled program on
//! memory of its own, several at a time if there are threads, and the gradients are added in the order of the parts: the
//! result does not depend on the number of threads. Parameters are read where they lie, and the gradients of the first
//! part are written where they belong; if there is but one part, each parameter is moved as soon as its gradient is known.
//! Programs are compiled when a size is first seen; after that, a step allocates nothing.

use std::ops::Range;

use gatework_engine::{Program, Runner, parallel, program::ProgramError};
use rayon::prelude::*;

use super::forecaster::{Forecaster, ForecasterError};
use super::inputs::NAMES;
use super::models::Model;
use super::network::Mask;
use super::specification::{Specification, SpecificationError, Use, WEIGHT, gradient_name};
use crate::data::{Batch, BatchShape};
use gatework_train::optim::Step;
use gatework_train::params::Params;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::{Losses, Task, TaskError};

/// Where the windows come from. What it gives depends on its arguments alone: a run that is resumed sees what it would
/// have seen.
pub trait Windows {
    /// Updates that make up an epoch; the validation loss is looked at after each.
    fn updates_per_epoch(&self) -> u64;

    /// Fills in the batch of an update. Its rows may be fewer at the end of an epoch.
    fn training(&mut self, update: u64, batch: &mut Batch) -> Result<(), TaskError>;

    /// Fills in a batch of the windows kept aside, numbered from 0; false if there is none of that number.
    fn validation(&mut self, index: u64, batch: &mut Batch) -> Result<bool, TaskError>;
}

/// Windows that go through a program at once. Larger parts are better products; smaller ones keep what a model remembers
/// of each step in the caches, and occupy more threads.
fn usual_part(model: &Model, input: usize) -> usize {
    match model {
        Model::Gru(_) | Model::Lstm(_) | Model::DeepAr(_) => 32,
        Model::Tcn(_) => 64,
        Model::Transformer(transformer) => {
            (TOKENS / transformer.tokens(input).max(1)).clamp(8, 64).next_multiple_of(8)
        }
        _ => 256,
    }
}

/// Tokens of a Transformer that go through a program at once: with a width of 64, what it remembers of them takes 18 MB.
const TOKENS: usize = 8 * 168;

/// One seed of a forecaster in training.
pub struct ForecastTask<W> {
    specification: Specification,
    seed: u64,
    params: Params,
    windows: W,
    batch: Batch,
    training: Programs,
    evaluation: Programs,
    /// The epoch after which the validation loss is looked at for the first time.
    first_look: u64,
}

impl<W: Windows> ForecastTask<W> {
    /// A forecaster with the start values of a seed.
    pub fn new(specification: &Specification, windows: W, seed: u64) -> Result<Self, SpecificationError> {
        let params = specification.params(seed)?;
        Ok(ForecastTask {
            params,
            batch: Batch::new(specification.shape(0)),
            training: Programs::new(specification, Use::Training),
            evaluation: Programs::new(specification, Use::Evaluation),
            specification: specification.clone(),
            seed,
            windows,
            first_look: 1,
        })
    }

    /// Looks at the validation loss after this epoch for the first time, so that parameters of earlier ones are not kept.
    #[must_use]
    pub fn with_first_look(mut self, epoch: u64) -> Self {
        self.first_look = epoch.max(1);
        self
    }

    /// So many windows go through a program at once. More threads need smaller parts; results depend on it in their last
    /// bits, and not on the threads.
    #[must_use]
    pub fn with_part(mut self, rows: usize) -> Self {
        (self.training.part, self.evaluation.part) = (rows.max(1), rows.max(1));
        self
    }

    /// A forecaster with other values of the parameters: the best ones of an attempt.
    pub fn forecaster(&self, values: &[f32]) -> Result<Forecaster, ForecasterError> {
        let mut params = self.params.clone();
        if values.len() != params.len() {
            let (found, wanted) = (values.len(), params.len());
            return Err(ForecasterError::Parameters(format!("{found} values for {wanted} parameters")));
        }
        params.values.copy_from_slice(values);
        Forecaster::new(self.specification.clone(), params)
    }

    /// What is trained.
    pub fn specification(&self) -> &Specification {
        &self.specification
    }

    /// Where its windows come from.
    pub fn windows(&self) -> &W {
        &self.windows
    }

    /// The mean loss of the windows kept aside at the present parameters; none if there are no such windows.
    pub fn validation_loss(&mut self) -> Result<Option<f64>, TaskError> {
        let (mut sum, mut rows) = (0.0, 0);
        for index in 0.. {
            if !self.windows.validation(index, &mut self.batch)? {
                break;
            }
            check_batch(&self.specification, &self.batch, true)?;
            let run = Run { batch: &self.batch, seed: self.seed, update: 0 };
            let loss = self.evaluation.run(&run, &self.params, None)?;
            sum += loss * self.batch.shape.rows as f64;
            rows += self.batch.shape.rows;
        }
        Ok((rows > 0).then(|| sum / rows as f64))
    }
}

impl<W: Windows> ForecastTask<W> {
    /// The losses of an update. Where there is a step, and the gradients are those of one part, each parameter is moved as
    /// soon as its own is known; else all gradients are in the arena.
    fn losses(&mut self, update: u64, step: Option<&mut Step<'_>>) -> Result<Losses, TaskError> {
        let epoch = self.windows.updates_per_epoch().max(1);
        let looks = update.is_multiple_of(epoch) && update / epoch >= self.first_look;
        let hard = if looks { self.validation_loss()? } else { None };
        self.windows.training(update, &mut self.batch)?;
        check_batch(&self.specification, &self.batch, true)?;
        let run = Run { batch: &self.batch, seed: self.seed, update };
        let is_one = self.batch.shape.rows <= self.training.part;
        if let Some(step) = step.filter(|_| is_one && hard.is_none()) {
            let soft = self.training.run_and_move(&run, &mut self.params, step)?;
            return Ok(Losses { soft, hard });
        }
        // The gradients leave the arena while its values are read.
        let mut grads = std::mem::take(&mut self.params.grads);
        let soft = self.training.run(&run, &self.params, Some(&mut grads));
        self.params.grads = grads;
        Ok(Losses { soft: soft?, hard })
    }
}

impl<W: Windows> Task for ForecastTask<W> {
    fn params(&self) -> &Params {
        &self.params
    }

    fn params_mut(&mut self) -> &mut Params {
        &mut self.params
    }

    fn step(&mut self, update: u64) -> Result<Losses, TaskError> {
        self.losses(update, None)
    }

    fn step_and_move(&mut self, update: u64, step: &mut Step<'_>) -> Result<Losses, TaskError> {
        self.losses(update, Some(step))
    }

    fn passes(&mut self, _update: u64) -> Result<bool, TaskError> {
        // There is no loss that a forecaster could not get below.
        Ok(false)
    }
}

/// Checks that a batch has windows, and that they are those of the specification; what came afterwards may be missing
/// where it is not read.
pub(super) fn check_batch(
    specification: &Specification,
    batch: &Batch,
    with_target: bool,
) -> Result<(), TaskError> {
    let wanted = specification.shape(batch.shape.rows);
    if batch.shape.rows == 0 {
        return Err("a batch has no windows".into());
    }
    if batch.shape != wanted {
        return Err(format!("a batch of {:?} was given, but the model needs {wanted:?}", batch.shape).into());
    }
    let read = NAMES.into_iter().zip(kinds(batch)).zip(numbers(&batch.shape));
    for ((name, given), wanted) in read.filter(|((name, _), _)| with_target || *name != NAMES[1]) {
        if given.len() != wanted {
            return Err(format!("{name} of a batch has {} numbers, not {wanted}", given.len()).into());
        }
    }
    Ok(())
}

/// How many numbers of each kind a batch has, in the order of [`NAMES`].
fn numbers(shape: &BatchShape) -> [usize; 5] {
    let BatchShape { rows, input, horizon, past_columns, future_columns, static_columns } = *shape;
    let a_row = [input, horizon, input * past_columns, (input + horizon) * future_columns, static_columns];
    a_row.map(|numbers| rows * numbers)
}

/// What a step computes on.
struct Run<'a> {
    batch: &'a Batch,
    seed: u64,
    update: u64,
}

/// The programs for parts of different sizes.
struct Programs {
    specification: Specification,
    what_for: Use,
    /// Windows of a part.
    part: usize,
    compiled: Vec<Compiled>,
}

/// Sizes whose programs are kept: that of whole parts, and those of the last parts of epochs and of validation.
const MOST_PROGRAMS: usize = 6;

/// The program for parts of one size.
struct Compiled {
    rows: usize,
    program: Program,
    /// The name of each parameter's gradient.
    gradients: Vec<String>,
    masks: Vec<Mask>,
    workers: Vec<Worker>,
}

/// Memory for one part at a time.
struct Worker {
    runner: Runner,
    failed: Option<ProgramError>,
    /// Whether the runner knows which parameters it moves.
    moves: bool,
}

impl Programs {
    fn new(specification: &Specification, what_for: Use) -> Programs {
        let part = usual_part(&specification.model, specification.input);
        Programs { specification: specification.clone(), what_for, part, compiled: Vec::new() }
    }

    /// Computes the loss of a batch and, if there is room for them, the gradients.
    fn run(
        &mut self,
        run: &Run<'_>,
        params: &Params,
        mut grads: Option<&mut [f32]>,
    ) -> Result<f64, TaskError> {
        let rows = run.batch.shape.rows;
        let threads = rayon::current_num_threads().max(1);
        let mut loss = 0.0;
        let mut begin = 0;
        while begin < rows {
            let size = self.part.min(rows - begin);
            // Parts of the same size, as many as there are threads.
            let count = ((rows - begin) / size).min(threads);
            let compiled = self.get(size, count, params)?;
            let first = grads.as_deref_mut().filter(|_| begin == 0);
            compiled.run(run, &params.values, first, begin, count)?;
            for (part, worker) in compiled.workers[..count].iter().enumerate() {
                loss += f64::from(worker.runner.read::<f32>("loss")?[0]);
                if let Some(grads) = grads.as_deref_mut().filter(|_| begin + part > 0) {
                    compiled.add_gradients(part, params, grads)?;
                }
            }
            begin += count * size;
        }
        Ok(loss)
    }

    /// Computes the loss of a batch of one part, and moves each parameter as soon as its gradient is known.
    fn run_and_move(
        &mut self,
        run: &Run<'_>,
        params: &mut Params,
        step: &mut Step<'_>,
    ) -> Result<f64, TaskError> {
        let compiled = self.get(run.batch.shape.rows, 1, params)?;
        let Compiled { rows, masks, gradients, workers, .. } = compiled;
        let Some(worker) = workers.first_mut() else { return Err("there is no worker".into()) };
        if !worker.moves {
            let tensors = params.tensors().iter().zip(gradients.iter());
            let updates: Vec<_> = tensors
                .map(|(tensor, gradient)| (tensor.name.as_str(), gradient.as_str(), tensor.range.clone()))
                .collect();
            worker.runner.bind_updates(&updates)?;
            worker.moves = true;
        }
        worker.write(run, 0..*rows, masks)?;
        // Forward, and back to the parameters and to what they were multiplied with.
        let multiplications = params.values.len().saturating_mul(3 * *rows);
        parallel::with_spinning_workers(multiplications, || {
            worker.runner.run_updating(&mut params.values, &mut |range, values, grads| {
                step.apply(range, values, grads);
            })
        })?;
        Ok(f64::from(worker.runner.read::<f32>("loss")?[0]))
    }

    /// The program for parts of a size, with so many workers.
    fn get(&mut self, rows: usize, workers: usize, params: &Params) -> Result<&mut Compiled, TaskError> {
        let known = self.compiled.iter().position(|compiled| compiled.rows == rows);
        let place = known.map_or_else(|| self.compile(rows, params), Ok)?;
        let compiled = &mut self.compiled[place];
        while compiled.workers.len() < workers {
            compiled.add_worker(params)?;
        }
        Ok(compiled)
    }

    /// Compiles the program for parts of a size and says where it is.
    fn compile(&mut self, rows: usize, params: &Params) -> Result<usize, TaskError> {
        let (graph, parts) = self.specification.network(rows, self.what_for)?;
        let program = Program::new(&graph)?;
        let gradients = match self.what_for {
            Use::Training => params.tensors().iter().map(|tensor| gradient_name(&tensor.name)).collect(),
            _ => Vec::new(),
        };
        if self.compiled.len() == MOST_PROGRAMS {
            self.compiled.remove(0);
        }
        self.compiled.push(Compiled { rows, program, gradients, masks: parts.masks, workers: Vec::new() });
        Ok(self.compiled.len() - 1)
    }
}

impl Compiled {
    /// Adds a worker that reads the parameters, and writes their gradients, at the places of the tensors.
    fn add_worker(&mut self, params: &Params) -> Result<(), ProgramError> {
        let mut runner = self.program.runner();
        let tensors = params.tensors().iter();
        let inputs: Vec<_> =
            tensors.clone().map(|tensor| (tensor.name.as_str(), tensor.range.clone())).collect();
        let outputs: Vec<_> = tensors
            .zip(&self.gradients)
            .map(|(tensor, name)| (name.as_str(), tensor.range.clone()))
            .collect();
        runner.bind(&inputs, &outputs)?;
        self.workers.push(Worker { runner, failed: None, moves: false });
        Ok(())
    }

    /// Runs `count` parts, the first of which begins at a row. The gradients of that one go to `grads` if there are any;
    /// all others stay with their workers.
    fn run(
        &mut self,
        run: &Run<'_>,
        values: &[f32],
        grads: Option<&mut [f32]>,
        begin: usize,
        count: usize,
    ) -> Result<(), TaskError> {
        let Compiled { rows, masks, workers, .. } = self;
        let work = |part: usize, worker: &mut Worker, grads: Option<&mut [f32]>| {
            let begin = begin + part * *rows;
            let written = worker.write(run, begin..begin + *rows, masks);
            worker.failed = written.and_then(|()| worker.runner.run_bound(values, grads)).err();
        };
        let workers = &mut workers[..count];
        if let [first, others @ ..] = &mut *workers {
            if others.is_empty() {
                work(0, first, grads);
            } else {
                let others = others.par_iter_mut().enumerate().with_max_len(1);
                rayon::join(
                    || work(0, first, grads),
                    || others.for_each(|(i, worker)| work(i + 1, worker, None)),
                );
            }
        }
        workers.iter_mut().find_map(|worker| worker.failed.take()).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Adds the gradients of a part to those of the parameters.
    fn add_gradients(&self, part: usize, params: &Params, grads: &mut [f32]) -> Result<(), ProgramError> {
        for (tensor, name) in params.tensors().iter().zip(&self.gradients) {
            let gradient = self.workers[part].runner.read::<f32>(name)?;
            grads[tensor.range.clone()].iter_mut().zip(gradient).for_each(|(sum, x)| *sum += x);
        }
        Ok(())
    }
}

impl Worker {
    /// Gives the program some windows of a batch, and draws what it drops.
    fn write(&mut self, run: &Run<'_>, rows: Range<usize>, masks: &[Mask]) -> Result<(), ProgramError> {
        write_rows(&mut self.runner, run.batch, rows.clone())?;
        self.runner.write(WEIGHT, &[rows.len() as f32 / run.batch.shape.rows as f32])?;
        for (site, mask) in masks.iter().enumerate() {
            let numbers = self.runner.input_mut::<f32>(&mask.name)?;
            for (row, numbers) in rows.clone().zip(numbers.chunks_mut(mask.elements.max(1))) {
                draw_mask(run, site, row, mask.rate, numbers);
            }
        }
        Ok(())
    }
}

/// Gives a program the rows of a batch.
fn write_rows(runner: &mut Runner, batch: &Batch, rows: Range<usize>) -> Result<(), ProgramError> {
    for (name, numbers) in NAMES.into_iter().zip(kinds(batch)) {
        let width = numbers.len() / batch.shape.rows.max(1);
        if width > 0 {
            runner.write(name, &numbers[rows.start * width..rows.end * width])?;
        }
    }
    Ok(())
}

/// Gives a program for `size` windows the rows of a batch without what came afterwards. If the rows are fewer, the windows
/// that are left become zeros, in `padded`.
pub(super) fn write_padded(
    runner: &mut Runner,
    batch: &Batch,
    rows: Range<usize>,
    size: usize,
    padded: &mut Vec<f32>,
) -> Result<(), ProgramError> {
    for (name, numbers) in NAMES.into_iter().zip(kinds(batch)) {
        let width = numbers.len() / batch.shape.rows.max(1);
        if width == 0 || name == NAMES[1] {
            continue;
        }
        let given = &numbers[rows.start * width..rows.end * width];
        if rows.len() == size {
            runner.write(name, given)?;
        } else {
            padded.clear();
            padded.extend_from_slice(given);
            padded.resize(size * width, 0.0);
            runner.write(name, padded)?;
        }
    }
    Ok(())
}

/// The numbers of a batch, in the order of [`NAMES`].
fn kinds(batch: &Batch) -> [&[f32]; 5] {
    [&batch.past, &batch.target, &batch.past_columns, &batch.future_columns, &batch.static_columns]
}

/// Draws a row of a mask: a function of the seed, the update, the place of the mask in the network and the row alone.
fn draw_mask(run: &Run<'_>, site: usize, row: usize, rate: f64, numbers: &mut [f32]) {
    Random::new(run.seed, Purpose::Dropout, run.update << 16 | site as u64).mask(row, rate, numbers);
}

#[cfg(test)]
mod tests {
    use super::super::models::DLinear;
    use super::super::signal::{Signal, seasonal_naive};
    use super::*;
    use crate::Loss;
    use gatework_train::optim::Optimizer;
    use gatework_train::schedule::LearningRate;
    use gatework_train::trainer::{Attempt, Outcome, Settings};

    fn specification() -> Specification {
        Specification {
            model: Model::DLinear(DLinear { moving_average: 25 }),
            loss: Loss::Mse,
            normalization: None,
            input: 48,
            horizon: 12,
            past_columns: 0,
            future_columns: 0,
            static_columns: 0,
        }
    }

    fn settings(updates: u64) -> Settings {
        Settings {
            updates,
            rate: LearningRate::constant(0.01),
            optimizer: Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.0 },
            clip: None,
            stable: 1,
            patience: None,
        }
    }

    #[test]
    fn masks_drop_their_share_keep_the_mean_and_differ_by_row_place_and_update() {
        let batch = Batch::default();
        let draw = |update, site, row| {
            let run = Run { batch: &batch, seed: 1, update };
            let mut numbers = vec![f32::NAN; 10_001];
            draw_mask(&run, site, row, 0.3, &mut numbers);
            numbers
        };
        let mask = draw(1, 2, 3);
        let dropped = mask.iter().filter(|&&x| x == 0.0).count();
        assert!((2800..3200).contains(&dropped), "{dropped}");
        let mean = mask.iter().sum::<f32>() / mask.len() as f32;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        assert_eq!(mask, draw(1, 2, 3));
        assert!([draw(2, 2, 3), draw(1, 1, 3), draw(1, 2, 4)].iter().all(|other| *other != mask));
    }

    #[test]
    fn parameters_that_move_on_the_way_end_where_they_would_at_the_end() {
        let optimizer = Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 };
        for model in [
            Model::DLinear(DLinear::default()),
            toml::from_str("kind = 'nhits'\nwidth = 24").unwrap(),
            toml::from_str("kind = 'gru'\nhidden = 12").unwrap(),
            toml::from_str("kind = 'transformer'\nwidth = 16\nheads = 2\ndropout = 0.1").unwrap(),
        ] {
            let specification = Specification { model, ..specification() };
            let task = || ForecastTask::new(&specification, Signal::new(&specification, 32), 1).unwrap();
            let [mut at_end, mut at_once] = [task(), task()];
            let [mut state, mut other] = [0; 2].map(|_| optimizer.state(at_end.params().len()));
            for update in 1..5 {
                let losses = at_end.step(update).unwrap();
                let Params { values, grads, .. } = at_end.params_mut();
                optimizer.step(&mut state, values, grads, 0.01, None);
                let mut step = optimizer.begin(&mut other, 0.01, None).unwrap();
                assert_eq!(at_once.step_and_move(update, &mut step).unwrap(), losses);
                assert!(step.is_taken());
                assert_eq!(at_once.params().values, at_end.params().values, "{}", specification.model.name());
            }
            assert_eq!(state, other);
            // Gradients of several parts are added up first.
            let mut step = optimizer.begin(&mut other, 0.01, None).unwrap();
            task().with_part(8).step_and_move(1, &mut step).unwrap();
            assert!(!step.is_taken());
        }
    }

    #[test]
    fn the_validation_loss_is_looked_at_from_the_first_look_on() {
        let specification = specification();
        let looks = |first| {
            let task = ForecastTask::new(&specification, Signal::new(&specification, 32), 1).unwrap();
            let mut task = task.with_first_look(first);
            let epoch = task.windows().updates_per_epoch();
            [0, 1, 2, 3].map(|epochs| task.step(epochs * epoch).unwrap().hard.is_some())
        };
        assert_eq!(looks(1), [false, true, true, true]);
        assert_eq!(looks(3), [false, false, false, true]);
    }

    #[test]
    fn a_linear_model_learns_a_signal_better_than_its_last_season() {
        let specification = specification();
        let mut task = ForecastTask::new(&specification, Signal::new(&specification, 32), 1).unwrap();
        let settings = settings(401);
        let mut attempt = Attempt::new(1, &settings, task.params().len());
        while attempt.outcome == Outcome::Running {
            attempt.advance(&mut task, &settings).unwrap();
        }
        let (loss, naive) = (attempt.best.unwrap().hard, seasonal_naive(&specification));
        assert!(loss < 0.7 * naive, "{loss} for {naive}");
    }
}
