//! Compiled programs of a forecaster in training, and data-parallel gradients.
//!
//! A batch is split into micro-batches, the last one possibly smaller. Each runs through the same compiled program on
//! memory of its own, in parallel if there are threads. Gradients are summed in the order of the micro-batches, so that
//! the result does not depend on the number of threads. Parameters are read in place, and the gradients of the first
//! micro-batch are written in place. With a single micro-batch, each parameter is updated as soon as its gradient is
//! known. A program is compiled when a micro-batch size first occurs; after that, a step allocates nothing.

use std::ops::Range;

use gatework_engine::{Half, Program, Runner, parallel, program::ProgramError};
use rayon::prelude::*;

use crate::data::Batch;
use crate::models::Model;
use crate::network::Mask;
use crate::network::feed::write_rows;
use crate::specification::{LOSS_SCALE, Mode, Specification, WEIGHT, gradient_name};
use gatework_train::optim::Step;
use gatework_train::params::Params;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// Returns the default micro-batch size. Larger ones make better use of matrix multiplication; smaller ones keep the
/// activations in the caches and occupy more threads.
fn default_micro_batch(model: &Model, input: usize) -> usize {
    match model {
        Model::Gru(_) | Model::Lstm(_) | Model::DeepAr(_) => 32,
        Model::Tcn(_) => 64,
        Model::Transformer(transformer) => {
            (MAX_TOKENS / transformer.tokens(input).max(1)).clamp(8, 64).next_multiple_of(8)
        }
        _ => 256,
    }
}

/// Maximum number of Transformer tokens per micro-batch: with a width of 64, their activations take 18 MB.
const MAX_TOKENS: usize = 8 * 168;

/// The batch of an update, and what its dropout masks depend on.
pub(super) struct Run<'a> {
    pub batch: &'a Batch,
    pub seed: u64,
    pub update: u64,
    /// The factor of the gradients, if activations are stored as `f16`.
    pub scale: f32,
}

/// Compiled programs by micro-batch size.
pub(super) struct Programs {
    specification: Specification,
    mode: Mode,
    /// The 16-bit format of activations in training, if it is not `f32`.
    pub activations: Option<Half>,
    /// Windows per micro-batch.
    pub micro_batch: usize,
    compiled: Vec<Compiled>,
}

/// Maximum number of compiled programs: one for full micro-batches, the others for the last ones of epochs and of validation.
const MAX_PROGRAMS: usize = 6;

/// The program for micro-batches of one size.
struct Compiled {
    rows: usize,
    program: Program,
    /// Output name of each parameter's gradient.
    gradients: Vec<String>,
    masks: Vec<Mask>,
    workers: Vec<Worker>,
}

/// Memory for one micro-batch.
struct Worker {
    runner: Runner,
    error: Option<ProgramError>,
    /// Whether the runner is bound to update parameters.
    updates: bool,
    /// Whether the program scales gradients.
    scales: bool,
}

impl Programs {
    pub fn new(specification: &Specification, mode: Mode) -> Programs {
        let micro_batch = default_micro_batch(&specification.model, specification.input);
        let specification = specification.clone();
        Programs { specification, mode, activations: None, micro_batch, compiled: Vec::new() }
    }

    /// Returns the bytes of memory for batches of this many windows on this many threads.
    pub fn bytes(&self, rows: usize, threads: usize) -> Result<f64, TaskError> {
        let size = self.micro_batch.min(rows).max(1);
        let program = Program::new(&self.specification.network(size, self.mode)?.0)?;
        Ok(program.bytes() as f64 * (rows / size).min(threads).max(1) as f64)
    }

    /// Computes the loss of a batch and, if `grads` is given, the gradients.
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
            let size = self.micro_batch.min(rows - begin);
            // Micro-batches of the same size, one per thread.
            let count = ((rows - begin) / size).min(threads);
            let compiled = self.get(size, count, params)?;
            let first = grads.as_deref_mut().filter(|_| begin == 0);
            compiled.run(run, &params.values, first, begin, count)?;
            for (index, worker) in compiled.workers[..count].iter().enumerate() {
                loss += f64::from(worker.runner.read::<f32>("loss")?[0]);
                if let Some(grads) = grads.as_deref_mut().filter(|_| begin + index > 0) {
                    compiled.add_gradients(index, params, grads)?;
                }
            }
            begin += count * size;
        }
        Ok(loss)
    }

    /// Computes the loss of a single micro-batch, and updates each parameter as soon as its gradient is known.
    pub fn run_and_update(
        &mut self,
        run: &Run<'_>,
        params: &mut Params,
        step: &mut Step<'_>,
    ) -> Result<f64, TaskError> {
        let compiled = self.get(run.batch.shape.rows, 1, params)?;
        let Compiled { rows, masks, gradients, workers, .. } = compiled;
        let Some(worker) = workers.first_mut() else { return Err("there is no worker".into()) };
        if !worker.updates {
            let tensors = params.tensors().iter().zip(gradients.iter());
            let updates: Vec<_> = tensors
                .map(|(tensor, gradient)| (tensor.name.as_str(), gradient.as_str(), tensor.range.clone()))
                .collect();
            worker.runner.bind_updates(&updates)?;
            worker.updates = true;
        }
        worker.write(run, 0..*rows, masks)?;
        // Forward, and backward to parameters and activations.
        let multiplications = params.values.len().saturating_mul(3 * *rows);
        parallel::with_spinning_workers(multiplications, || {
            worker.runner.run_updating(&mut params.values, &mut |range, values, grads| {
                step.apply(range, values, grads);
            })
        })?;
        Ok(f64::from(worker.runner.read::<f32>("loss")?[0]))
    }

    /// Returns the program for a micro-batch size, with at least this many workers.
    fn get(&mut self, rows: usize, workers: usize, params: &Params) -> Result<&mut Compiled, TaskError> {
        let known = self.compiled.iter().position(|compiled| compiled.rows == rows);
        let place = known.map_or_else(|| self.compile(rows, params), Ok)?;
        let scales = self.mode == Mode::Training && self.activations == Some(Half::F16);
        let compiled = &mut self.compiled[place];
        while compiled.workers.len() < workers {
            compiled.add_worker(params, scales)?;
        }
        Ok(compiled)
    }

    /// Compiles the program for a micro-batch size and returns its index.
    fn compile(&mut self, rows: usize, params: &Params) -> Result<usize, TaskError> {
        let (graph, bindings) = match self.mode {
            Mode::Training => self.specification.training_network(rows, self.activations)?,
            mode => self.specification.network(rows, mode)?,
        };
        let program = Program::new(&graph)?;
        self.specification.check_memory(rows, program.bytes())?;
        let gradients = match self.mode {
            Mode::Training => params.tensors().iter().map(|tensor| gradient_name(&tensor.name)).collect(),
            _ => Vec::new(),
        };
        if self.compiled.len() == MAX_PROGRAMS {
            self.compiled.remove(0);
        }
        self.compiled.push(Compiled { rows, program, gradients, masks: bindings.masks, workers: Vec::new() });
        Ok(self.compiled.len() - 1)
    }
}

impl Compiled {
    /// Adds a worker that reads parameters and writes gradients in place.
    fn add_worker(&mut self, params: &Params, scales: bool) -> Result<(), ProgramError> {
        let mut runner = self.program.runner();
        let tensors = params.tensors().iter();
        let inputs: Vec<_> =
            tensors.clone().map(|tensor| (tensor.name.as_str(), tensor.range.clone())).collect();
        let outputs: Vec<_> = tensors
            .zip(&self.gradients)
            .map(|(tensor, name)| (name.as_str(), tensor.range.clone()))
            .collect();
        runner.bind(&inputs, &outputs)?;
        self.workers.push(Worker { runner, error: None, updates: false, scales });
        Ok(())
    }

    /// Runs `count` micro-batches from row `begin` on. The gradients of the first are written to `grads`, if given; those of
    /// the others stay with their workers.
    fn run(
        &mut self,
        run: &Run<'_>,
        values: &[f32],
        grads: Option<&mut [f32]>,
        begin: usize,
        count: usize,
    ) -> Result<(), TaskError> {
        let Compiled { rows, masks, workers, .. } = self;
        let work = |index: usize, worker: &mut Worker, grads: Option<&mut [f32]>| {
            let begin = begin + index * *rows;
            let written = worker.write(run, begin..begin + *rows, masks);
            worker.error = written.and_then(|()| worker.runner.run_bound(values, grads)).err();
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
        workers.iter_mut().find_map(|worker| worker.error.take()).map_or(Ok(()), |error| Err(error.into()))
    }

    /// Adds the gradients of a worker to `grads`.
    fn add_gradients(&self, worker: usize, params: &Params, grads: &mut [f32]) -> Result<(), ProgramError> {
        for (tensor, name) in params.tensors().iter().zip(&self.gradients) {
            let gradient = self.workers[worker].runner.read::<f32>(name)?;
            grads[tensor.range.clone()].iter_mut().zip(gradient).for_each(|(sum, x)| *sum += x);
        }
        Ok(())
    }
}

impl Worker {
    /// Copies rows of a batch into the program, and draws its dropout masks.
    fn write(&mut self, run: &Run<'_>, rows: Range<usize>, masks: &[Mask]) -> Result<(), ProgramError> {
        write_rows(&mut self.runner, run.batch, rows.clone())?;
        self.runner.write(WEIGHT, &[rows.len() as f32 / run.batch.shape.rows as f32])?;
        if self.scales {
            self.runner.write(LOSS_SCALE, &[run.scale])?;
        }
        for (site, mask) in masks.iter().enumerate() {
            let numbers = self.runner.input_mut::<f32>(&mask.name)?;
            for (row, numbers) in rows.clone().zip(numbers.chunks_mut(mask.elements.max(1))) {
                draw_mask(run, site, row, mask.rate, numbers);
            }
        }
        Ok(())
    }
}

/// Draws a row of a dropout mask: a function of the seed, the update, the position of the mask in the network and the
/// row.
pub(super) fn draw_mask(run: &Run<'_>, site: usize, row: usize, rate: f64, numbers: &mut [f32]) {
    Random::new(run.seed, Purpose::Dropout, run.update << 16 | site as u64).mask(row, rate, numbers);
}
