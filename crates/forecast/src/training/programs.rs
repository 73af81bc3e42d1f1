//! The compiled programs of a forecaster in training, and data-parallel gradients.

use std::ops::Range;

use gatework_engine::{Program, Runner, parallel, program::ProgramError};
use rayon::prelude::*;

use crate::data::Batch;
use crate::models::Model;
use crate::network::Mask;
use crate::network::feed::write_rows;
use crate::specification::{Specification, Use, WEIGHT, gradient_name};
use gatework_train::optim::Step;
use gatework_train::params::Params;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

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

/// What a step computes on.
pub(super) struct Run<'a> {
    pub batch: &'a Batch,
    pub seed: u64,
    pub update: u64,
}

/// The programs for parts of different sizes.
pub(super) struct Programs {
    specification: Specification,
    what_for: Use,
    /// Windows of a part.
    pub part: usize,
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
    pub fn new(specification: &Specification, what_for: Use) -> Programs {
        let part = usual_part(&specification.model, specification.input);
        Programs { specification: specification.clone(), what_for, part, compiled: Vec::new() }
    }

    /// Computes the loss of a batch and, if there is room for them, the gradients.
    pub fn run(
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
    pub fn run_and_move(
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
        parallel::attended(multiplications, || {
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

/// Draws a row of a mask: a function of the seed, the update, the place of the mask in the network and the row alone.
pub(super) fn draw_mask(run: &Run<'_>, site: usize, row: usize, rate: f64, numbers: &mut [f32]) {
    Random::new(run.seed, Purpose::Dropout, run.update << 16 | site as u64).mask(row, rate, numbers);
}
