//! [`Programs`]: the weights of a trained network, stored once, the programs that read them, and the memory they run in.
//!
//! A network has one program for each power of two of windows, compiled on first use and shared by all threads. What a run
//! writes to is a [`Workspace`]. A thread takes one from a list while it runs and puts it back, so that threads share
//! weights and programs, and wait for each other only to compile.

use std::array;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gatework_engine::program::{Session, Weights};
use gatework_engine::{Program, parallel};

use super::error::NetworkError;
use super::network::MAX_ROWS;
use super::sampling::Sampler;
use crate::data::Batch;
use crate::models::DeepAr;
use crate::network::feed::write_padded;
use crate::specification::{Mode, Specification};

/// Programs of a network: for 1, 2, 4, ... windows.
const SIZES: usize = MAX_ROWS.ilog2() as usize + 1;

/// Bytes of a model in memory, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelMemory {
    /// Weights, which all batch sizes and threads share.
    pub weights: usize,
    /// Inputs, intermediate values and outputs of programs. All batch sizes take turns in one memory; threads that forecast at
    /// the same time have one each.
    pub programs: usize,
}

impl ModelMemory {
    /// Returns the sum.
    pub fn total(&self) -> usize {
        self.weights + self.programs
    }
}

/// Compiled programs with shared weights.
pub(super) struct Programs {
    weights: Arc<Weights>,
    /// Elements of all weights.
    elements: usize,
    /// The program of each batch size, if it is compiled.
    compiled: [Mutex<Option<Program>>; SIZES],
    workspaces: Mutex<Workspaces>,
    /// Most workspaces that are kept while they are not used: one for each processor.
    max_idle: usize,
}

#[derive(Default)]
struct Workspaces {
    idle: Vec<Workspace>,
    /// Workspaces that threads use at the moment.
    used: usize,
    /// Bytes of all workspaces, as of the end of their last run.
    bytes: usize,
}

/// The memory of one run at a time.
#[derive(Default)]
struct Workspace {
    session: Session,
    /// Index of each program in the session.
    places: [Option<usize>; SIZES],
    /// Buffer for batches smaller than their program.
    padded: Vec<f32>,
    /// Programs of an autoregressive model.
    sampler: Option<Sampler>,
    /// Bytes, as of the end of the last run.
    bytes: usize,
}

impl Programs {
    /// Compiles nothing yet.
    pub fn new(weights: Arc<Weights>, elements: usize) -> Programs {
        let max_idle = std::thread::available_parallelism().map_or(1, usize::from);
        let compiled = array::from_fn(|_| Mutex::new(None));
        Programs { weights, elements, compiled, workspaces: Mutex::default(), max_idle }
    }

    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    pub fn memory(&self) -> ModelMemory {
        ModelMemory { weights: self.weights.bytes(), programs: lock(&self.workspaces).bytes }
    }

    /// Forecasts the windows of a batch: `[rows, horizon, outputs]`.
    pub fn predict(
        &self,
        specification: &Specification,
        batch: &Batch,
        forecast: &mut [f32],
    ) -> Result<(), NetworkError> {
        self.with_workspace(|workspace, is_alone| {
            self.predict_in(workspace, is_alone, specification, batch, forecast)
        })
    }

    fn predict_in(
        &self,
        workspace: &mut Workspace,
        is_alone: bool,
        specification: &Specification,
        batch: &Batch,
        forecast: &mut [f32],
    ) -> Result<(), NetworkError> {
        let Workspace { session, places, padded, .. } = workspace;
        let width = forecast.len() / batch.shape.rows.max(1);
        for (part, values) in forecast.chunks_mut((MAX_ROWS * width).max(1)).enumerate() {
            let begin = part * MAX_ROWS;
            let count = values.len() / width;
            let place = place_of(count);
            let index = match places[place] {
                Some(index) => index,
                None => *places[place].insert(session.add(&self.compile(specification, place)?)),
            };
            let Some(runner) = session.runner(index) else { continue };
            write_padded(runner, batch, begin..begin + count, 1 << place, padded)?;
            // Threads that spin for one run would take processors from the runs of others.
            let work = if is_alone { self.elements.saturating_mul(count) } else { 0 };
            parallel::with_spinning_workers(work, || runner.run());
            values.copy_from_slice(&runner.read::<f32>("forecast")?[..values.len()]);
        }
        Ok(())
    }

    /// Draws samples of an autoregressive model: `[rows, horizon, samples]`.
    pub fn sample(
        &self,
        specification: &Specification,
        model: &DeepAr,
        batch: &Batch,
        paths: &mut [f32],
    ) -> Result<(), NetworkError> {
        self.with_workspace(|workspace, _| {
            let sampler = match &mut workspace.sampler {
                Some(sampler) => sampler,
                none => none.insert(Sampler::new(specification, model, &self.weights)?),
            };
            Ok(sampler.sample(batch, paths)?)
        })
    }

    /// Returns the programs that forecast this many windows, each with a description. `model` is one that draws samples.
    pub fn describe(
        &self,
        specification: &Specification,
        model: Option<&DeepAr>,
        rows: usize,
    ) -> Result<Vec<(&'static str, Program)>, NetworkError> {
        if let Some(model) = model {
            let sampler = Sampler::new(specification, model, &self.weights)?;
            return Ok(sampler.programs().map(|(what, program)| (what, program.clone())).to_vec());
        }
        Ok(vec![("a forecast", self.compile(specification, place_of(rows))?)])
    }

    /// Returns the number of compiled batch sizes.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.compiled.iter().filter(|program| lock(program).is_some()).count()
    }

    /// Returns the program of a batch size; compiles it on first use.
    fn compile(&self, specification: &Specification, place: usize) -> Result<Program, NetworkError> {
        let mut compiled = lock(&self.compiled[place]);
        if let Some(program) = &*compiled {
            return Ok(program.clone());
        }
        let (graph, _) = specification.network(1 << place, Mode::Prediction)?;
        let program = Program::with_weights(&graph, &self.weights)?;
        specification.check_memory(1 << place, program.bytes())?;
        Ok(compiled.insert(program).clone())
    }

    /// Calls `run` with an idle or new workspace, and whether no other one is in use.
    fn with_workspace<R>(&self, run: impl FnOnce(&mut Workspace, bool) -> R) -> R {
        let (mut workspace, is_alone) = {
            let mut workspaces = lock(&self.workspaces);
            workspaces.used += 1;
            (workspaces.idle.pop().unwrap_or_default(), workspaces.used == 1)
        };
        let mut in_use = InUse { programs: self, bytes: workspace.bytes, done: None };
        let result = run(&mut workspace, is_alone);
        let sampler = workspace.sampler.as_ref().map_or(0, Sampler::bytes);
        workspace.bytes = workspace.session.bytes() + size_of_val(&workspace.padded[..]) + sampler;
        in_use.done = Some(workspace);
        result
    }
}

/// Returns the binary logarithm of the windows of the program for a number of windows.
fn place_of(rows: usize) -> usize {
    rows.clamp(1, MAX_ROWS).next_power_of_two().ilog2() as usize
}

/// A thread that panicked leaves nothing behind that a later run would read.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Ends the use of a workspace when it is dropped. After a panic, in which the memory may be incomplete, it is not put back.
struct InUse<'a> {
    programs: &'a Programs,
    /// Bytes before the run.
    bytes: usize,
    done: Option<Workspace>,
}

impl Drop for InUse<'_> {
    fn drop(&mut self) {
        let mut workspaces = lock(&self.programs.workspaces);
        workspaces.used -= 1;
        workspaces.bytes -= self.bytes;
        if workspaces.idle.len() < self.programs.max_idle
            && let Some(workspace) = self.done.take()
        {
            workspaces.bytes += workspace.bytes;
            workspaces.idle.push(workspace);
        }
    }
}
