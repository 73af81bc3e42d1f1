//! Ancestral sampling: an autoregressive model is run step by step on values drawn from the distributions that it
//! forecasts.
//!
//! The window is encoded once; then all sample paths advance together. The random numbers depend only on the step and the
//! path, so that a window has the same forecast in any batch.

use std::sync::Arc;

use gatework_engine::program::{ProgramError, Weights};
use gatework_engine::{Graph, GraphError, Program, Runner};

use super::error::NetworkError;
use crate::data::{Batch, BatchShape};
use crate::models::DeepAr;
use crate::models::deepar::features;
use crate::network::distribution::Distribution;
use crate::network::feed::write_padded;
use crate::network::inputs::Inputs;
use crate::network::layers::LstmState;
use crate::network::normalization::InstanceStatistics;
use crate::network::{Bindings, Network};
use crate::specification::{Specification, SpecificationError};
use gatework_train::random::{Purpose, Random};

/// Seed of all sample paths.
const SEED: u64 = 0;

/// Draws sample paths of a trained model.
pub(super) struct Sampler {
    distribution: Distribution,
    shape: BatchShape,
    samples: usize,
    /// Names of the state tensors, before and after a step.
    states: Vec<(String, String)>,
    /// Encodes a window: the states before its last value, and its statistics.
    encoder: Runner,
    /// Advances all paths: distribution parameters and next states.
    step: Runner,
    /// Buffer for values repeated for each path.
    scratch: Vec<f32>,
    values: Vec<f32>,
}

impl Sampler {
    /// Compiles the encoder and the step.
    pub fn new(
        specification: &Specification,
        model: &DeepAr,
        weights: &Arc<Weights>,
    ) -> Result<Sampler, NetworkError> {
        let names = ["output", "memory"];
        let states: Vec<String> =
            (0..model.layers).flat_map(|layer| names.map(|name| format!("state.{name}.{layer}"))).collect();
        let distribution = specification.loss.distribution().unwrap_or(Distribution::Gaussian);
        let shape = specification.shape(1);
        let width = model.hidden.max(shape.future_columns).max(shape.static_columns);
        let encoder = compile(specification, encoder(specification, model, &states), weights)?;
        let step = compile(specification, step(specification, model, &states), weights)?;
        let states = states.into_iter().map(|name| (name.clone(), next_name(&name))).collect();
        Ok(Sampler {
            distribution,
            shape,
            samples: model.samples,
            states,
            encoder,
            step,
            scratch: vec![0.0; width * model.samples],
            values: vec![0.0; model.samples],
        })
    }

    /// Returns the two programs, each with a description.
    pub fn programs(&self) -> [(&'static str, &Program); 2] {
        [("reading a window", self.encoder.program()), ("a step of all paths", self.step.program())]
    }

    /// Returns the bytes of the memory of both programs.
    pub fn bytes(&self) -> usize {
        self.programs().iter().map(|(_, program)| program.bytes()).sum()
    }

    /// Draws the paths of every window: `[rows, horizon, samples]`, the samples of each step in ascending order.
    pub fn sample(&mut self, batch: &Batch, paths: &mut [f32]) -> Result<(), ProgramError> {
        for (row, paths) in paths.chunks_mut(self.shape.horizon * self.samples).enumerate() {
            self.start(batch, row)?;
            for (step, drawn) in paths.chunks_mut(self.samples).enumerate() {
                self.take_step(batch, row, step, drawn)?;
                drawn.sort_by(f32::total_cmp);
            }
        }
        Ok(())
    }

    /// Encodes a window and initialises every path with its state.
    fn start(&mut self, batch: &Batch, row: usize) -> Result<(), ProgramError> {
        write_padded(&mut self.encoder, batch, row..row + 1, 1, &mut Vec::new())?;
        self.encoder.run();
        let names = self.states.iter().map(|(name, _)| name.as_str());
        for name in names.chain(["centre", "scale"]) {
            let numbers = self.encoder.read::<f32>(name)?;
            let repeated = &mut self.scratch[..numbers.len() * self.samples];
            repeated.chunks_mut(numbers.len()).for_each(|path| path.copy_from_slice(numbers));
            self.step.write(name, repeated)?;
        }
        let columns = self.shape.static_columns;
        if columns > 0 {
            let numbers = &batch.static_columns[row * columns..][..columns];
            let repeated = &mut self.scratch[..columns * self.samples];
            repeated.chunks_mut(columns).for_each(|path| path.copy_from_slice(numbers));
            self.step.write("static_columns", repeated)?;
        }
        self.values.fill(batch.past[(row + 1) * self.shape.input - 1]);
        Ok(())
    }

    /// Advances every path by one step and draws its value.
    fn take_step(
        &mut self,
        batch: &Batch,
        row: usize,
        step: usize,
        drawn: &mut [f32],
    ) -> Result<(), ProgramError> {
        let BatchShape { input, horizon, future_columns, .. } = self.shape;
        self.step.write("value", &self.values)?;
        if future_columns > 0 {
            let place = (row * (input + horizon) + input + step) * future_columns;
            let numbers = &batch.future_columns[place..][..future_columns];
            let repeated = &mut self.scratch[..future_columns * self.samples];
            repeated.chunks_mut(future_columns).for_each(|path| path.copy_from_slice(numbers));
            self.step.write("future_columns", repeated)?;
        }
        self.step.run();
        let count = self.distribution.parameters();
        let mut random = Random::new(SEED, Purpose::Sample, step as u64);
        let parameters = self.step.read::<f32>("parameters")?;
        for (value, parameters) in self.values.iter_mut().zip(parameters.chunks(count)) {
            *value = self.distribution.sample(parameters, &mut random) as f32;
        }
        drawn.copy_from_slice(&self.values);
        for (name, next) in &self.states {
            let next = self.step.read::<f32>(next)?;
            let state = &mut self.scratch[..next.len()];
            state.copy_from_slice(next);
            self.step.write(name, state)?;
        }
        Ok(())
    }
}

/// A graph and its bindings.
type BuiltGraph = Result<(Graph, Bindings), GraphError>;

/// Returns the name of a state after a step.
fn next_name(state: &str) -> String {
    format!("next.{state}")
}

/// Builds the encoder of one window.
fn encoder(specification: &Specification, model: &DeepAr, names: &[String]) -> BuiltGraph {
    let network = Network::for_prediction();
    let x = Inputs::new(&network, specification.shape(1), &specification.loss, false);
    let statistics = specification.normalization().statistics(x.past);
    let states = model.encode(&Inputs { past: statistics.normalize(x.past), ..x });
    let zero = network.zeros(&[1, 1]);
    let mut outputs = vec![
        ("centre", statistics.centre.unwrap_or(zero)),
        ("scale", statistics.scale.unwrap_or(zero + 1.0)),
    ];
    let tensors = states.iter().flat_map(|state| [state.output, state.memory]);
    outputs.extend(names.iter().map(String::as_str).zip(tensors));
    network.finish(&outputs)
}

/// Builds one step of all paths.
fn step(specification: &Specification, model: &DeepAr, names: &[String]) -> BuiltGraph {
    let network = Network::for_prediction();
    let (rows, outputs) = (model.samples, specification.loss.outputs());
    let input = |name: &str, width: usize| network.input(name, &[rows, width]);
    let statistics = InstanceStatistics { centre: Some(input("centre", 1)), scale: Some(input("scale", 1)) };
    let columns = |name: &str, count: usize| (count > 0).then(|| input(name, count));
    let read = features(
        &network,
        statistics.normalize(input("value", 1)),
        columns("future_columns", specification.future_columns),
        columns("static_columns", specification.static_columns),
    );
    let state = |names: &[String]| LstmState {
        output: input(&names[0], model.hidden),
        memory: input(&names[1], model.hidden),
    };
    let mut states: Vec<LstmState<'_>> = names.chunks(2).map(state).collect();
    let raw = DeepAr::step(read, &mut states, outputs).reshape(&[rows, 1, outputs]);
    let parameters = specification.loss.forecast(raw, &statistics);
    let next: Vec<String> = names.iter().map(|name| next_name(name)).collect();
    let mut outputs = vec![("parameters", parameters)];
    let tensors = states.iter().flat_map(|state| [state.output, state.memory]);
    outputs.extend(next.iter().map(String::as_str).zip(tensors));
    network.finish(&outputs)
}

/// Compiles a graph that reads shared weights.
fn compile(
    specification: &Specification,
    built: BuiltGraph,
    weights: &Arc<Weights>,
) -> Result<Runner, NetworkError> {
    let (graph, _) = built.map_err(|error| SpecificationError::Graph {
        model: specification.model.name(),
        input: specification.input,
        horizon: specification.horizon,
        error,
    })?;
    let program = Program::with_weights(&graph, weights)?;
    specification.check_memory(1, program.bytes())?;
    Ok(program.runner())
}
