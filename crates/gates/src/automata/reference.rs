//! Reference implementation of the rollout: cell by cell, gate by gate, in f64. Tests compare with it.

use crate::kernel::reference;

use super::cells::{NEIGHBOURS, Shape};
use super::model::Model;

/// The reference implementation of a rollout.
#[derive(Clone, Debug)]
pub struct ReferenceRollout<'a> {
    /// The model.
    pub model: &'a Model,
    /// Number and size of the grids.
    pub shape: Shape,
    /// Number of steps.
    pub steps: usize,
    /// The cells of a grid that fire in each step; all, if `None`.
    pub masks: Option<&'a [Vec<bool>]>,
}

impl ReferenceRollout<'_> {
    fn fires(&self, step: usize, cell: usize) -> bool {
        self.masks.is_none_or(|masks| masks[step][cell % self.shape.cells()])
    }

    /// Inputs of the perception of one channel around a cell.
    fn patch(&self, state: &[f64], cell: usize, channel: usize) -> Vec<f64> {
        let channels = self.model.shape.channels;
        let value = |n| self.shape.neighbour(cell, n).map_or(0.0, |at| state[at * channels + channel]);
        (0..NEIGHBOURS).map(value).collect()
    }

    fn logits(&self) -> Vec<f64> {
        self.model.params.values.iter().map(|&x| f64::from(x)).collect()
    }

    /// Returns the rows of the merged perception's outputs among one channel's update inputs: by output, then kernel.
    fn perception_rows(&self) -> Vec<u32> {
        let (kernels, outputs) = (self.model.shape.kernels as u32, self.model.perceive.outputs() as u32);
        (0..kernels).flat_map(|k| (0..outputs).map(move |s| s * kernels + k)).collect()
    }

    /// Inputs of the update network for a cell.
    fn update_inputs(&self, logits: &[f64], state: &[f64], cell: usize) -> Vec<f64> {
        let channels = self.model.shape.channels;
        let mut inputs = state[cell * channels..][..channels].to_vec();
        let merged = self.model.merged_perception();
        let rows = self.perception_rows();
        for channel in 0..channels {
            let nodes = reference::forward(&merged, logits, &self.patch(state, cell, channel));
            let outputs = &nodes[nodes.len() - 1];
            let at = inputs.len();
            inputs.resize(at + rows.len(), 0.0);
            for (output, &row) in outputs.iter().zip(&rows) {
                inputs[at + row as usize] = *output;
            }
        }
        inputs
    }

    /// Returns all states, first to last: `channels` numbers for each cell.
    pub fn states(&self, start: &[f64]) -> Vec<Vec<f64>> {
        let (channels, logits) = (self.model.shape.channels, self.logits());
        let update_logits = &logits[self.model.perceive_gates() * 16..];
        let mut states = vec![start.to_vec()];
        for step in 0..self.steps {
            let state = &states[step];
            let mut next = state.clone();
            for cell in (0..self.shape.total()).filter(|&cell| self.fires(step, cell)) {
                let nodes = reference::forward(
                    &self.model.update,
                    update_logits,
                    &self.update_inputs(&logits, state, cell),
                );
                next[cell * channels..][..channels].copy_from_slice(&nodes[nodes.len() - 1]);
            }
            states.push(next);
        }
        states
    }

    /// Returns the loss over the leading `loss_channels` and its gradient with respect to the logits.
    pub fn gradient(&self, start: &[f64], target: &[f64], loss_channels: usize) -> (f64, Vec<f64>) {
        let (channels, logits) = (self.model.shape.channels, self.logits());
        let (perceive_logits, update_logits) = logits.split_at(self.model.perceive_gates() * 16);
        let (merged, rows) = (self.model.merged_perception(), self.perception_rows());
        let states = self.states(start);
        let mut loss = 0.0;
        let mut grads = vec![0.0; start.len()];
        for cell in 0..self.shape.total() {
            for c in 0..loss_channels {
                let off = states[self.steps][cell * channels + c] - target[cell * loss_channels + c];
                loss += off * off;
                grads[cell * channels + c] = 2.0 * off;
            }
        }
        let mut logit_grads = vec![0.0; logits.len()];
        let (perceive_grads, update_grads) = logit_grads.split_at_mut(perceive_logits.len());
        for step in (0..self.steps).rev() {
            let state = &states[step];
            let mut before = vec![0.0; grads.len()];
            for cell in 0..self.shape.total() {
                let here = cell * channels..(cell + 1) * channels;
                if !self.fires(step, cell) {
                    before[here.clone()].iter_mut().zip(&grads[here]).for_each(|(b, g)| *b += g);
                    continue;
                }
                let inputs = self.update_inputs(&logits, state, cell);
                let dx = reference::backward(
                    &self.model.update,
                    update_logits,
                    &inputs,
                    &grads[here.clone()],
                    update_grads,
                );
                before[here].iter_mut().zip(&dx).for_each(|(b, g)| *b += g);
                for channel in 0..channels {
                    let perceived = &dx[channels + channel * rows.len()..][..rows.len()];
                    let outputs: Vec<f64> = rows.iter().map(|&row| perceived[row as usize]).collect();
                    let patch = self.patch(state, cell, channel);
                    let dpatch =
                        reference::backward(&merged, perceive_logits, &patch, &outputs, perceive_grads);
                    for (n, g) in dpatch.iter().enumerate() {
                        if let Some(at) = self.shape.neighbour(cell, n) {
                            before[at * channels + channel] += g;
                        }
                    }
                }
            }
            grads = before;
        }
        (loss, logit_grads)
    }
}
