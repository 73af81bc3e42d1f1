//! The soft rollout of an automaton: all steps forward, the loss after the last one, and the backward pass.
//!
//! ```text
//! forward, step t:   for each tile of 32 cells:
//!                      patch  [9 x channels] rows   from state t, eight channels at a time
//!                      inputs [centre, perception]  kept for the backward pass, if memory allows
//!                      state t+1                    from the update network
//! last step:           as above, the loss of its outputs, and the backward pass of the tile
//! backward, step t:  for each tile: the gradient of state t+1 through update and perception, added to that
//!                    of state t; intermediate values are recomputed
//! ```
//!
//! Only the states and the update's inputs are kept. With checkpointing, the states of every k-th step are kept, and those of the k - 1
//! steps after one are recomputed when the backward pass reaches them, into the same memory for each segment. Groups of grids are independent of each other; within a group the
//! tiles of a step are divided into chunks. The number of groups and chunks depends on the work only. Each chunk has its
//! own sums, which are added in order, so the result has the same bits on any number of threads.

mod checkpointing;
mod chunk;
mod goal;
mod rounding;

use std::time::{Duration, Instant};

use crate::kernel::transpose;
use crate::kernel::{GateProgram, GateTable, Kernels, LANES, Row, WireError};
use gatework_engine::parallel;

use super::cells::Plan;
use super::model::Model;
use chunk::{Chunk, Job, Network, Networks, add};

pub use checkpointing::Checkpointing;
use checkpointing::States;
use goal::GRADIENT_SCALE;
pub use goal::Goal;
pub use rounding::{Rounding, StateRounding, StateSettings};

/// Memory for the update's inputs of all steps. If they need more, they are recomputed in the backward pass.
pub(super) const KEPT_BYTES: usize = 24 << 20;

/// Durations of the two passes of a rollout.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times {
    /// Forward pass without the last step.
    pub forward: Duration,
    /// Backward pass, with the forward pass of the last step.
    pub backward: Duration,
}

/// A group of grids to be rolled out: plan, start state and targets.
#[derive(Clone, Copy, Debug)]
pub struct GridGroup<'a> {
    /// The cells to compute.
    pub plan: &'a Plan,
    /// Entries of the start state from entry 1 on, [`Rollout::stride`] numbers each.
    pub start: &'a [f32],
    /// The target.
    pub goal: &'a Goal,
    /// Targets of the states before the last one, from the last but one backwards.
    pub late: &'a [Goal],
    /// Rounding of the states between two steps.
    pub rounding: Option<StateRounding>,
}

impl<'a> GridGroup<'a> {
    /// A group with a target of the last state only.
    pub fn new(plan: &'a Plan, start: &'a [f32], goal: &'a Goal) -> GridGroup<'a> {
        GridGroup { plan, start, goal, late: &[], rounding: None }
    }
}

/// The compiled networks of a model and the buffers of its rollouts.
#[derive(Debug)]
pub struct Rollout {
    shared: Shared,
    rolls: Vec<Roll>,
    perceive_grads: Vec<[f32; 4]>,
    update_grads: Vec<[f32; 4]>,
}

/// Data that all groups share.
#[derive(Debug)]
struct Shared {
    networks: Networks,
    stride: usize,
    kept_bytes: usize,
    checkpointing: Checkpointing,
}

/// The rollout of one group.
#[derive(Debug, Default)]
struct Roll {
    chunks: Vec<Chunk>,
    states: States,
    kept: Vec<Row>,
    /// Gradient of the state after the step that the backward pass reaches next.
    grads: Vec<f32>,
    /// Buffer for the gradient of the state before that step.
    grads_before: Vec<f32>,
    loss: f64,
    times: Times,
}

impl Rollout {
    /// Compiles a model's networks.
    pub fn new(model: &Model, loss_channels: usize) -> Result<Rollout, WireError> {
        let networks = Networks {
            channels: model.shape.channels,
            loss_channels,
            perceive: Network::new(Kernels::new(&model.perceive, model.shape.kernels, model.shape.channels)?),
            update: Network::new(GateProgram::new(&model.update)?),
            last: Network::new(GateProgram::leading(&model.update, loss_channels)?),
            perceive_table: GateTable::new(model.perceive_gates()),
            update_table: GateTable::new(model.update.gates()),
        };
        let stride = model.shape.channels.next_multiple_of(transpose::BLOCK);
        Ok(Rollout {
            shared: Shared { networks, stride, kept_bytes: KEPT_BYTES, checkpointing: Checkpointing::None },
            rolls: Vec::new(),
            perceive_grads: vec![[0.0; 4]; model.perceive_gates()],
            update_grads: vec![[0.0; 4]; model.update.gates()],
        })
    }

    /// Numbers from one entry of a state to the next: the channels, and zeros up to a multiple of 8.
    pub fn stride(&self) -> usize {
        self.shared.stride
    }

    /// Sets which states of [`gradient`](Self::gradient) are kept. The result has the same bits.
    pub fn set_checkpointing(&mut self, checkpointing: Checkpointing) {
        self.shared.checkpointing = checkpointing;
    }

    /// Computes the coefficients of the logits. Must be called whenever they have changed.
    pub fn set_logits(&mut self, logits: &[f32]) {
        let n = &mut self.shared.networks;
        let (perceive, update) = logits.split_at(self.perceive_grads.len() * 16);
        n.perceive_table.update(perceive);
        n.update_table.update(update);
        n.perceive.coefficients.gather(&n.perceive.program, &n.perceive_table);
        n.update.coefficients.gather(&n.update.program, &n.update_table);
        n.last.coefficients.gather(&n.last.program, &n.update_table);
    }

    /// Runs all steps and returns the last state, entry by entry. `start` holds the entries of the start state from
    /// entry 1 on, [`stride`](Self::stride) numbers each.
    pub fn forward(&mut self, plan: &Plan, start: &[f32]) -> &[f32] {
        self.rolls.resize_with(1, Roll::default);
        self.rolls[0].forward(&self.shared, plan, start)
    }

    /// Returns the loss, summed over the groups, and adds its gradient to `grads`, which has the layout of the logits.
    pub fn gradient(&mut self, groups: &[GridGroup<'_>], grads: &mut [f32]) -> (f64, Times) {
        let begin = Instant::now();
        self.rolls.resize_with(groups.len(), Roll::default);
        let shared = &self.shared;
        let jobs = self.rolls.iter_mut().zip(groups).collect();
        parallel::for_each(jobs, |(roll, group): (&mut Roll, _)| {
            roll.gradient(shared, group, groups.len());
        });
        self.add_gradients(grads);
        let loss = self.rolls.iter().map(|roll| roll.loss).sum();
        // Groups may run in parallel: the elapsed time is divided in proportion to the passes.
        let (forward, backward) = self.rolls.iter().fold((0.0, 0.0), |(forward, backward), roll| {
            (forward + roll.times.forward.as_secs_f64(), backward + roll.times.backward.as_secs_f64())
        });
        let whole = begin.elapsed();
        let forward = whole.mul_f64(forward / (forward + backward).max(1e-9));
        (loss, Times { forward, backward: whole.saturating_sub(forward) })
    }

    /// Turns the sums of all chunks into gradients of the logits.
    fn add_gradients(&mut self, grads: &mut [f32]) {
        let n = &self.shared.networks;
        self.perceive_grads.fill([0.0; 4]);
        self.update_grads.fill([0.0; 4]);
        for chunk in self.rolls.iter().flat_map(|roll| &roll.chunks) {
            chunk.perceive.add_to(&n.perceive.program, &n.perceive_table, &mut self.perceive_grads);
            chunk.update.add_to(&n.update.program, &n.update_table, &mut self.update_grads);
            chunk.last.add_to(&n.last.program, &n.update_table, &mut self.update_grads);
        }
        for grad in self.perceive_grads.iter_mut().chain(&mut self.update_grads).flatten() {
            *grad *= 1.0 / GRADIENT_SCALE;
        }
        let (perceive, update) = grads.split_at_mut(self.perceive_grads.len() * 16);
        n.perceive_table.logit_gradients(&self.perceive_grads, perceive);
        n.update_table.logit_gradients(&self.update_grads, update);
    }
}

impl Roll {
    fn forward(&mut self, shared: &Shared, plan: &Plan, start: &[f32]) -> &[f32] {
        let steps = plan.steps.len();
        self.prepare(shared, plan, start, steps + 1, 0, 1);
        for t in 0..steps {
            self.forward_step(shared, plan, t, None);
        }
        self.states.get(steps)
    }

    /// Computes loss, gradient sums and times of one of `groups` groups.
    fn gradient(&mut self, shared: &Shared, group: &GridGroup<'_>, groups: usize) {
        let begin = Instant::now();
        let GridGroup { plan, start, goal, .. } = *group;
        let steps = plan.steps.len();
        let inputs = shared.networks.update.program.inputs();
        let interval = shared.checkpointing.interval(steps);
        // Offsets of the kept inputs of each step in its segment; the last step needs none.
        let (mut offsets, mut rows, mut next) = (vec![0; steps], 0, 0);
        for (t, step) in plan.iter().enumerate().take(steps - 1) {
            offsets[t] = if t % interval == 0 { 0 } else { next };
            next = offsets[t] + step.tiles.len() * inputs;
            rows = rows.max(next);
        }
        let keep = rows * size_of::<Row>() * groups <= shared.kept_bytes;
        let kept = |t: usize| keep.then_some(offsets[t]);
        self.prepare(shared, plan, start, interval, if keep { rows } else { 0 }, groups);
        let last_segment = (steps - 1) / interval * interval;
        for t in 0..steps - 1 {
            self.forward_step(shared, plan, t, if t < last_segment { None } else { kept(t) });
            self.round(shared, group, t);
        }
        let middle = Instant::now();

        self.loss = goal.remainder;
        self.last_step(shared, plan, goal);
        for number in (0..=last_segment / interval).rev() {
            let segment = number * interval;
            let end = (segment + interval).min(steps - 1);
            if segment < last_segment {
                // The state at the end is a checkpoint. The last forward step of the segment is needed for its inputs only.
                let needed = if keep { end } else { end - 1 };
                for t in segment..needed {
                    self.forward_step(shared, plan, t, kept(t));
                    self.round(shared, group, t);
                }
            }
            for t in (segment..end).rev() {
                self.add_late_loss(shared, group, t);
                self.backward_step(shared, plan, t, kept(t));
            }
        }
        self.loss += self.chunks.iter().map(|chunk| chunk.loss).sum::<f64>();
        self.times = Times { forward: middle - begin, backward: middle.elapsed() };
    }

    /// Rounds the state after step `t`, if states are rounded.
    fn round(&mut self, shared: &Shared, group: &GridGroup<'_>, t: usize) {
        if let Some(rounding) = &group.rounding {
            let (state, stride) = (self.states.get_mut(t + 1), shared.stride);
            rounding.apply(t, &mut state[stride..], stride, shared.networks.channels);
        }
    }

    /// Allocates the states of a plan, of which every `interval`-th is a checkpoint, and clears all sums.
    fn prepare(
        &mut self,
        shared: &Shared,
        plan: &Plan,
        start: &[f32],
        interval: usize,
        kept: usize,
        groups: usize,
    ) {
        let units = plan.iter().map(|step| step.tiles.len()).max().unwrap_or(0);
        let total: usize = plan.iter().map(|step| step.tiles.len()).sum();
        let chunks = (parallel::chunk_count(units * groups, total * groups) / groups).max(1);
        self.chunks.truncate(chunks);
        while self.chunks.len() < chunks {
            self.chunks.push(Chunk::new(&shared.networks));
        }
        for chunk in &mut self.chunks {
            chunk.loss = 0.0;
            chunk.perceive.clear();
            chunk.update.clear();
            chunk.last.clear();
        }
        let first = self.states.begin(plan.steps.len(), interval, plan.start_entries * shared.stride);
        first[shared.stride..].copy_from_slice(start);
        self.kept.resize(kept, Row::ZERO);
    }

    fn forward_step(&mut self, shared: &Shared, plan: &Plan, t: usize, kept: Option<usize>) {
        let step = &plan.distinct[plan.steps[t]];
        let (networks, stride) = (&shared.networks, shared.stride);
        let (before, after) = self.states.step(t, step.entries() * stride);
        let (computed, keep) = after[stride..].split_at_mut(step.computed * stride);
        for (&from, to) in step.kept.iter().zip(keep.chunks_exact_mut(stride)) {
            to.copy_from_slice(&before[from as usize * stride..][..stride]);
        }
        let kept = kept.map(|at| &mut self.kept[at..]);
        let jobs =
            Job::split(step, &mut self.chunks, computed, kept, stride, networks.update.program.inputs());
        parallel::for_each(jobs, |job| {
            let mut kept = job.kept.map(|rows| rows.chunks_exact_mut(networks.update.program.inputs()));
            for (tile, after) in job.tiles.iter().zip(job.after.chunks_mut(LANES * stride)) {
                let Chunk { work, kernel_work, patch, inputs, grads, .. } = &mut *job.chunk;
                networks.perceive(before, stride, tile, patch, inputs, kernel_work);
                if let Some(kept) = kept.as_mut().and_then(Iterator::next) {
                    // A contiguous copy: the rows themselves are written in scattered order.
                    kept.copy_from_slice(inputs);
                }
                networks.update.program.infer(&networks.update.coefficients, inputs, grads, work);
                transpose::spread(grads, networks.channels, after, stride);
            }
        });
    }

    /// Forward pass, loss and backward pass of the last step. Leaves the gradient of the state before it.
    fn last_step(&mut self, shared: &Shared, plan: &Plan, goal: &Goal) {
        let t = plan.steps.len() - 1;
        let step = &plan.distinct[plan.steps[t]];
        let (networks, stride) = (&shared.networks, shared.stride);
        let before = self.states.get(t);
        let jobs = Job::split(step, &mut self.chunks, &mut [], None, stride, 0);
        parallel::for_each(jobs, |job| {
            let chunk = &mut *job.chunk;
            chunk.open_window(job.tiles, stride);
            for (tile, number) in job.tiles.iter().zip(job.first..) {
                let Chunk { work, kernel_work, patch, inputs, last, loss, .. } = &mut *chunk;
                networks.perceive(before, stride, tile, patch, inputs, kernel_work);
                let first = 1 + number * LANES;
                let lanes = (step.computed + 1 - first).min(LANES);
                let seed = |rows: &mut [Row]| {
                    for (channel, row) in rows.iter_mut().enumerate() {
                        for (lane, value) in row.0.iter_mut().enumerate().take(lanes) {
                            *loss += goal.charge(first + lane, channel, value);
                        }
                        row.0[lanes..].fill(0.0);
                    }
                };
                networks.last.program.gradient_of(&networks.last.coefficients, inputs, seed, last, work);
                chunk.perception_gradient(networks, before, stride, tile, t == 0);
            }
        });
        // The gradient of copied entries goes to the state before unchanged.
        self.grads.clear();
        self.grads.resize(step.entries() * stride, 0.0);
        for (entry, &from) in (1 + step.computed..).zip(&step.kept) {
            for channel in 0..networks.loss_channels {
                let mut value = before[from as usize * stride + channel];
                self.chunks[0].loss += goal.charge(entry, channel, &mut value);
                self.grads[entry * stride + channel] = value;
            }
        }
        self.collect(shared, plan, t);
    }

    fn backward_step(&mut self, shared: &Shared, plan: &Plan, t: usize, kept: Option<usize>) {
        let step = &plan.distinct[plan.steps[t]];
        let (networks, stride) = (&shared.networks, shared.stride);
        let (before, after) = (self.states.get(t), &self.grads[..]);
        let kept = kept.map(|at| &mut self.kept[at..]);
        let jobs =
            Job::split(step, &mut self.chunks, &mut [], kept, stride, networks.update.program.inputs());
        parallel::for_each(jobs, |job| {
            let chunk = &mut *job.chunk;
            chunk.open_window(job.tiles, stride);
            let mut kept = job.kept.map(|rows| rows.chunks_exact(networks.update.program.inputs()));
            for (tile, number) in job.tiles.iter().zip(job.first..) {
                let Chunk { work, kernel_work, patch, inputs, grads, update, .. } = &mut *chunk;
                if let Some(kept) = kept.as_mut().and_then(Iterator::next) {
                    // A copy, because the gradients that replace the inputs should stay in the cache and not be
                    // written back to memory.
                    inputs.copy_from_slice(kept);
                } else {
                    networks.perceive(before, stride, tile, patch, inputs, kernel_work);
                }
                // Entry 0 has no gradient: unused lanes read it.
                let first = 1 + number * LANES;
                let lane_entry = |lane| if first + lane <= step.computed { (first + lane) as u32 } else { 0 };
                let entries = std::array::from_fn(lane_entry);
                transpose::gather(after, stride, &entries, 0..networks.channels, grads, |c| c);
                goal::drop_negligible(grads);
                networks.update.program.gradient(&networks.update.coefficients, inputs, grads, update, work);
                chunk.perception_gradient(networks, before, stride, tile, t == 0);
            }
        });
        self.collect(shared, plan, t);
    }

    /// Adds the loss of the state after step `t`, and its gradient, if that state has a target.
    fn add_late_loss(&mut self, shared: &Shared, group: &GridGroup<'_>, t: usize) {
        let Some(goal) = group.late.get(group.plan.steps.len() - 2 - t) else { return };
        let stride = shared.stride;
        let state = self.states.get(t + 1)[stride..].chunks_exact(stride);
        let grads = self.grads[stride..].chunks_exact_mut(stride);
        self.loss += goal.remainder;
        for ((state, grads), entry) in state.zip(grads).zip(1..) {
            for channel in 0..shared.networks.loss_channels {
                let mut value = state[channel];
                self.loss += goal.charge(entry, channel, &mut value);
                grads[channel] += value;
            }
        }
    }

    /// Adds the chunks' gradients of the state before step `t`.
    fn collect(&mut self, shared: &Shared, plan: &Plan, t: usize) {
        if t == 0 {
            return;
        }
        let step = &plan.distinct[plan.steps[t]];
        let stride = shared.stride;
        let mut grads = std::mem::take(&mut self.grads_before);
        grads.clear();
        grads.resize(self.states.get(t).len(), 0.0);
        for (entry, &from) in (1 + step.computed..).zip(&step.kept) {
            add(&mut grads[from as usize * stride..][..stride], &self.grads[entry * stride..][..stride]);
        }
        for chunk in &self.chunks {
            // The first entry of a window stands for the outside.
            let Some(window) = chunk.window.get(stride..) else { continue };
            let begin = (chunk.window_begin + 1) * stride;
            add(&mut grads[begin..begin + window.len()], window);
        }
        self.grads_before = std::mem::replace(&mut self.grads, grads);
    }
}

#[cfg(test)]
mod tests {
    use gatework_logic::Boundary;
    use proptest::prelude::*;

    use super::super::cells::{Planner, Shape};
    use super::super::model::{FirstLayer, ModelShape};
    use super::super::reference::ReferenceRollout;
    use super::*;
    use crate::soft::Wiring;
    use gatework_train::random::{Purpose, Random};

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Grids of any size, both boundaries, any number of channels, with and without masks, samples together
        /// or apart.
        #[test]
        fn the_rollout_agrees_with_the_reference_implementation(
            samples in 1usize..3, height in 1usize..8, width in 1usize..8, steps in 1usize..4,
            channels in 3usize..10, kernels in 1usize..3, torus: bool, asynchronous: bool, random_wiring: bool, apart: bool, seed: u64,
        ) {
            let mut random = Random::new(seed, Purpose::Check, 0);
            let boundary = if torus { Boundary::Torus } else { Boundary::Zeros };
            let wiring = if random_wiring { Wiring::Random } else { Wiring::Unique };
            let inputs = channels + channels * kernels * 2;
            let shape = ModelShape {
                channels,
                boundary,
                kernels,
                perceive: vec![9, 8, 4, 2],
                first: FirstLayer::Moore,
                update: std::iter::successors(Some(inputs), |&n| (n > channels).then(|| (n / 2 + 1).max(channels))).collect(),
                wiring,
            };
            let mut model = Model::new(&shape, 1).unwrap();
            for value in &mut model.params.values {
                *value = 4.0 * random.uniform() - 2.0;
            }
            let shape = Shape { samples, height, width, boundary };
            let masks: Option<Vec<Vec<bool>>> = asynchronous.then(|| {
                (0..steps).map(|_| (0..shape.cells()).map(|_| random.uniform() < 0.6).collect()).collect()
            });
            let loss_channels = 1 + random.below(channels);
            let start: Vec<f32> = (0..shape.total() * channels).map(|_| random.uniform()).collect();
            let target: Vec<f32> = (0..shape.total() * loss_channels).map(|_| random.uniform()).collect();

            let groups = if apart { samples } else { 1 };
            let group = Shape { samples: samples / groups, ..shape };
            let plan = Planner::new(group).separate(steps, masks.as_deref());
            let mut rollout = Rollout::new(&model, loss_channels).unwrap();
            rollout.set_logits(&model.params.values);
            let stride = rollout.stride();
            let mut padded = vec![0.0; shape.total() * stride];
            for (to, from) in padded.chunks_exact_mut(stride).zip(start.chunks_exact(channels)) {
                to[..channels].copy_from_slice(from);
            }
            let targets = target.chunks_exact(group.total() * loss_channels);
            let goals: Vec<Goal> = targets.map(|target| Goal::new(&plan, loss_channels, target)).collect();
            let starts = padded.chunks_exact(group.total() * stride);
            let group: Vec<GridGroup<'_>> =
                starts.zip(&goals).map(|(start, goal)| GridGroup::new(&plan, start, goal)).collect();
            let mut grads = vec![0.0; model.params.len()];
            let (loss, _) = rollout.gradient(&group, &mut grads);

            let reference = ReferenceRollout { model: &model, shape, steps, masks: masks.as_deref() };
            let wide = |v: &[f32]| v.iter().map(|&x| f64::from(x)).collect::<Vec<_>>();
            let (expected, expected_grads) = reference.gradient(&wide(&start), &wide(&target), loss_channels);
            prop_assert!((loss - expected).abs() <= 1e-5 * expected.max(1.0), "loss {loss} {expected}");
            let largest = expected_grads.iter().fold(0.0f64, |most, g| most.max(g.abs()));
            for (ours, theirs) in grads.iter().zip(&expected_grads) {
                prop_assert!((f64::from(*ours) - theirs).abs() <= 1e-4 * largest, "{ours} {theirs}");
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Grids with few distinct cells, with and without masks, with targets for several states.
        #[test]
        fn shared_entries_have_the_loss_and_gradient_of_all_their_cells(
            samples in 1usize..3, height in 1usize..9, width in 1usize..9, steps in 1usize..5,
            torus: bool, asynchronous: bool, late in 1usize..4, seed: u64,
        ) {
            let mut random = Random::new(seed, Purpose::Check, 0);
            let boundary = if torus { Boundary::Torus } else { Boundary::Zeros };
            let channels = 4;
            let model_shape = ModelShape {
                channels,
                boundary,
                kernels: 2,
                perceive: vec![9, 8, 4, 2],
                first: FirstLayer::Moore,
                update: vec![20, 12, 6, 4],
                wiring: Wiring::Random,
            };
            let mut model = Model::new(&model_shape, 1).unwrap();
            model.params.values.fill_with(|| 4.0 * random.uniform() - 2.0);
            let shape = Shape { samples, height, width, boundary };
            let masks: Option<Vec<Vec<bool>>> = asynchronous.then(|| {
                (0..steps).map(|_| (0..shape.cells()).map(|_| random.uniform() < 0.6).collect()).collect()
            });
            let target: Vec<f32> = (0..shape.total() * 2).map(|_| random.uniform()).collect();
            let mut rollout = Rollout::new(&model, 2).unwrap();
            rollout.set_logits(&model.params.values);
            let stride = rollout.stride();
            let kinds: Vec<f32> =
                (0..2 * stride).map(|i| if i % stride < channels { random.uniform() } else { 0.0 }).collect();
            // One cell in eight is of the second kind.
            let entries: Vec<u32> = (0..shape.total()).map(|_| 1 + u32::from(random.below(8) == 0)).collect();
            let apart: Vec<f32> =
                entries.iter().flat_map(|&kind| &kinds[(kind as usize - 1) * stride..][..stride]).copied().collect();
            let seen = entries.iter().max().map_or(1, |&most| most as usize);

            let planner = Planner::new(shape);
            let mut run = |merged: bool, start: &[f32]| {
                let plan = |steps: usize| {
                    let masks = masks.as_deref().map(|masks| &masks[..steps]);
                    if merged { planner.merged(entries.clone(), steps, masks) } else { planner.separate(steps, masks) }
                };
                let goal = |before: usize| Goal::new(&plan(steps - before), 2, &target);
                let late: Vec<Goal> = (1..late.min(steps)).map(goal).collect();
                let (plan, goal) = (plan(steps), goal(0));
                let group = GridGroup { late: &late, ..GridGroup::new(&plan, start, &goal) };
                let mut grads = vec![0.0; model.params.len()];
                let (loss, _) = rollout.gradient(&[group], &mut grads);
                (loss, grads, plan.computed())
            };
            let (loss, grads, computed) = run(true, &kinds[..seen * stride]);
            let (expected, expected_grads, of_all) = run(false, &apart);
            prop_assert!(computed <= of_all);
            prop_assert!((loss - expected).abs() <= 1e-5 * expected.max(1.0), "loss {loss} {expected}");
            let largest = expected_grads.iter().fold(0.0f32, |most, g| most.max(g.abs()));
            for (ours, theirs) in grads.iter().zip(&expected_grads) {
                prop_assert!((ours - theirs).abs() <= 1e-4 * largest, "{ours} {theirs}");
            }
        }
    }

    /// Loss and gradient of a small model on grids with several chunks, the last tile partly used.
    fn gradient_in_chunks(threads: usize, kept_bytes: usize) -> (u64, Vec<u32>) {
        gradient_of_steps(3, threads, kept_bytes, Checkpointing::None)
    }

    fn gradient_of_steps(
        steps: usize,
        threads: usize,
        kept_bytes: usize,
        checkpointing: Checkpointing,
    ) -> (u64, Vec<u32>) {
        let mut random = Random::new(5, Purpose::Check, 0);
        let model_shape = ModelShape {
            channels: 9,
            boundary: Boundary::Zeros,
            kernels: 2,
            perceive: vec![9, 8, 4, 2],
            first: FirstLayer::Moore,
            update: vec![45, 30, 20, 10, 9],
            wiring: Wiring::Random,
        };
        let mut model = Model::new(&model_shape, 1).unwrap();
        for value in &mut model.params.values {
            *value = 4.0 * random.uniform() - 2.0;
        }
        let shape = Shape { samples: 2, height: 12, width: 13, boundary: Boundary::Zeros };
        let plan = Planner::new(shape).separate(steps, None);
        let mut rollout = Rollout::new(&model, 2).unwrap();
        rollout.shared.kept_bytes = kept_bytes;
        rollout.set_checkpointing(checkpointing);
        rollout.set_logits(&model.params.values);
        let start: Vec<f32> = (0..shape.total() * rollout.stride())
            .map(|i| if i % rollout.stride() < model_shape.channels { random.uniform() } else { 0.0 })
            .collect();
        let target: Vec<f32> = (0..shape.total() * 2).map(|_| random.uniform()).collect();
        let goal = Goal::new(&plan, 2, &target);
        let mut grads = vec![0.0; model.params.len()];
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        // The same grids twice: two groups of two chunks each.
        let rounding = StateRounding { rounding: Rounding::Stochastic, seed: 1, time: 0 };
        let late = vec![goal.clone(); 2.min(steps - 1)];
        let group =
            GridGroup { late: &late, rounding: Some(rounding), ..GridGroup::new(&plan, &start, &goal) };
        let (loss, _) = pool.install(|| rollout.gradient(&[group, group], &mut grads));
        assert!(rollout.rolls.len() == 2 && rollout.rolls.iter().all(|roll| roll.chunks.len() == 2));
        assert!(rollout.rolls.iter().all(|roll| roll.kept.is_empty() == (kept_bytes == 0 || steps == 1)));
        (loss.to_bits(), grads.iter().map(|g| g.to_bits()).collect())
    }

    #[test]
    fn any_number_of_threads_gives_the_same_bits() {
        let alone = gradient_in_chunks(1, KEPT_BYTES);
        assert!(gradient_in_chunks(2, KEPT_BYTES) == alone);
        assert!(gradient_in_chunks(3, KEPT_BYTES) == alone);
    }

    #[test]
    fn kept_inputs_change_no_bits() {
        assert!(gradient_in_chunks(1, 0) == gradient_in_chunks(1, KEPT_BYTES));
    }

    #[test]
    fn checkpointing_changes_no_bits() {
        for steps in [1, 2, 3, 7, 10] {
            let all = gradient_of_steps(steps, 1, KEPT_BYTES, Checkpointing::None);
            let checkpointing =
                [Checkpointing::Sqrt].into_iter().chain((1..=steps + 1).map(Checkpointing::Every));
            for checkpointing in checkpointing {
                for kept_bytes in [0, KEPT_BYTES] {
                    let some = gradient_of_steps(steps, 2, kept_bytes, checkpointing);
                    assert!(some == all, "{steps} steps, {checkpointing:?}, {kept_bytes}");
                }
            }
        }
    }
}
