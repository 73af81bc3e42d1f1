//! [`Programs`]: the weights of a trained network, stored once, and the programs that read them.

use std::sync::Arc;

use gatework_engine::program::{Session, Weights};
use gatework_engine::{Program, parallel};

use super::error::NetworkError;
use super::forecast::ForecastKind;
use super::network::MAX_ROWS;
use super::sampling::Sampler;
use crate::data::Batch;
use crate::models::Model;
use crate::network::feed::write_padded;
use crate::specification::{Mode, Specification};

/// Bytes of a model in memory, by use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModelMemory {
    /// Weights, which all batch sizes share.
    pub weights: usize,
    /// Inputs, intermediate values and outputs of the programs, which take turns in one memory.
    pub programs: usize,
}

impl ModelMemory {
    /// Returns the sum.
    pub fn total(&self) -> usize {
        self.weights + self.programs
    }
}

/// Compiled programs for batches of 1, 2, 4, ... windows in one memory, with shared weights.
pub(super) struct Programs {
    weights: Arc<Weights>,
    session: Session,
    /// Index of each program in the session, if it is compiled.
    places: [Option<usize>; MAX_ROWS.ilog2() as usize + 1],
    /// Buffer for batches smaller than their program.
    padded: Vec<f32>,
    /// Programs of an autoregressive model.
    sampler: Option<Sampler>,
    /// Elements of all weights.
    elements: usize,
}

impl Programs {
    /// Compiles nothing yet.
    pub fn new(weights: Arc<Weights>, elements: usize) -> Programs {
        let places = [None; MAX_ROWS.ilog2() as usize + 1];
        Programs { weights, session: Session::default(), places, padded: Vec::new(), sampler: None, elements }
    }

    pub fn weights(&self) -> &Weights {
        &self.weights
    }

    pub fn memory(&self) -> ModelMemory {
        let sampler = self.sampler.as_ref().map_or(0, Sampler::bytes);
        ModelMemory { weights: self.weights.bytes(), programs: self.session.bytes() + sampler }
    }

    /// Forecasts the windows of a batch: `[rows, horizon, outputs]`.
    pub fn predict(
        &mut self,
        specification: &Specification,
        kind: &ForecastKind,
        batch: &Batch,
        forecast: &mut [f32],
    ) -> Result<(), NetworkError> {
        if let Some(sampler) = self.sampler(specification, kind)? {
            return Ok(sampler.sample(batch, forecast)?);
        }
        let width = forecast.len() / batch.shape.rows.max(1);
        for (part, values) in forecast.chunks_mut((MAX_ROWS * width).max(1)).enumerate() {
            let begin = part * MAX_ROWS;
            let count = values.len() / width;
            let (place, index) = self.compile(specification, count)?;
            let Some(runner) = self.session.runner(index) else { continue };
            write_padded(runner, batch, begin..begin + count, 1 << place, &mut self.padded)?;
            parallel::with_spinning_workers(self.elements.saturating_mul(count), || runner.run());
            values.copy_from_slice(&runner.read::<f32>("forecast")?[..values.len()]);
        }
        Ok(())
    }

    /// Returns the programs that forecast this many windows, each with a description.
    pub fn compiled(
        &mut self,
        specification: &Specification,
        kind: &ForecastKind,
        rows: usize,
    ) -> Result<Vec<(&'static str, &Program)>, NetworkError> {
        if self.sampler(specification, kind)?.is_some() {
            return Ok(self.sampler.iter().flat_map(Sampler::programs).collect());
        }
        let (_, index) = self.compile(specification, rows)?;
        Ok(self.session.programs().nth(index).map(|program| ("a forecast", program)).into_iter().collect())
    }

    /// Returns the number of compiled batch sizes.
    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.places.iter().flatten().count()
    }

    /// Returns the sampler of an autoregressive model.
    fn sampler(
        &mut self,
        specification: &Specification,
        kind: &ForecastKind,
    ) -> Result<Option<&mut Sampler>, NetworkError> {
        if let (Model::DeepAr(model), ForecastKind::Samples, None) =
            (&specification.model, kind, &self.sampler)
        {
            self.sampler = Some(Sampler::new(specification, model, &self.weights)?);
        }
        Ok(self.sampler.as_mut())
    }

    /// Compiles the program for at least this many windows, if necessary. Returns the binary logarithm of its windows, and its
    /// index in the session.
    fn compile(
        &mut self,
        specification: &Specification,
        rows: usize,
    ) -> Result<(usize, usize), NetworkError> {
        let place = rows.clamp(1, MAX_ROWS).next_power_of_two().ilog2() as usize;
        let index = match self.places[place] {
            Some(index) => index,
            None => {
                let (graph, _) = specification.network(1 << place, Mode::Prediction)?;
                let program = Program::with_weights(&graph, &self.weights)?;
                specification.check_memory(1 << place, program.bytes())?;
                *self.places[place].insert(self.session.add(&program))
            }
        };
        Ok((place, index))
    }
}
