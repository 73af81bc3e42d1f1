//! The parallel work of a rollout: the networks of a model on one chunk of a step's tiles.

use std::ops::Range;

use crate::kernel::transpose;
use crate::kernel::{
    Coefficients, GROUP, GateProgram, GateTable, KernelWorkspace, Kernels, LANES, Row, Sums, WideRow,
    Workspace,
};
use gatework_engine::parallel;

use crate::automata::cells::{NEIGHBOURS, PlanStep, Tile};

/// Index of the cell itself in its neighbourhood.
const CENTRE: usize = NEIGHBOURS / 2;

/// A compiled network with its current coefficients.
#[derive(Clone, Debug)]
pub(super) struct Network<P> {
    pub program: P,
    pub coefficients: Coefficients,
}

impl<P> Network<P> {
    pub fn new(program: P) -> Network<P> {
        Network { program, coefficients: Coefficients::default() }
    }
}

/// The programs and coefficients of a model.
#[derive(Clone, Debug)]
pub(super) struct Networks {
    pub channels: usize,
    pub loss_channels: usize,
    pub perceive: Network<Kernels>,
    pub update: Network<GateProgram>,
    /// The fan-in cone of the loss channels in the update, for the last step.
    pub last: Network<GateProgram>,
    pub perceive_table: GateTable,
    pub update_table: GateTable,
}

/// Buffers and sums of one chunk of the work.
#[derive(Debug)]
pub(super) struct Chunk {
    pub work: Workspace,
    pub kernel_work: KernelWorkspace,
    pub patch: Patch,
    pub patch_grads: Patch,
    pub inputs: Vec<Row>,
    pub grads: Vec<Row>,
    pub perceive: Sums,
    pub update: Sums,
    pub last: Sums,
    /// Gradient of the preceding state from entry `window_begin` on; the first entry collects that of the outside.
    pub window: Vec<f32>,
    pub window_begin: usize,
    pub loss: f64,
}

/// Channels whose patches are gathered at a time: the rows of a transposition.
const BLOCK: usize = transpose::BLOCK;

/// The 3x3 patches of the 32 cells of a tile for one block of channels: group by neighbour.
type Patch = [WideRow; BLOCK / GROUP * NEIGHBOURS];

/// Returns the row of a channel and a neighbour in a flattened patch.
fn patch_row(channel: usize, neighbour: usize) -> usize {
    (channel % BLOCK / GROUP * NEIGHBOURS + neighbour) * GROUP + channel % GROUP
}

/// Returns the wide rows of a patch that some channels use.
fn groups(channels: &Range<usize>) -> Range<usize> {
    0..channels.len().div_ceil(GROUP) * NEIGHBOURS
}

impl Networks {
    /// The channels in blocks.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let channels = self.channels;
        (0..channels).step_by(BLOCK).map(move |first| first..channels.min(first + BLOCK))
    }

    /// Gathers the patches of some channels.
    fn gather_patch(state: &[f32], stride: usize, tile: &Tile, channels: &Range<usize>, patch: &mut Patch) {
        for (neighbour, entries) in tile.iter().enumerate() {
            let row = |channel| patch_row(channel, neighbour);
            transpose::gather(state, stride, entries, channels.clone(), patch.as_flattened_mut(), row);
        }
    }

    /// Computes the inputs of a tile's update.
    pub fn perceive(
        &self,
        state: &[f32],
        stride: usize,
        tile: &Tile,
        patch: &mut Patch,
        inputs: &mut [Row],
        work: &mut KernelWorkspace,
    ) {
        let (centre, perceived) = inputs.split_at_mut(self.channels);
        let Network { program, coefficients } = &self.perceive;
        for channels in self.blocks() {
            Networks::gather_patch(state, stride, tile, &channels, patch);
            for channel in channels.clone() {
                centre[channel] = patch.as_flattened()[patch_row(channel, CENTRE)];
            }
            program.infer(coefficients, channels.start, &patch[groups(&channels)], perceived, work);
        }
    }
}

impl Chunk {
    pub fn new(networks: &Networks) -> Chunk {
        Chunk {
            work: Workspace::default(),
            kernel_work: KernelWorkspace::default(),
            patch: [[Row::ZERO; GROUP]; BLOCK / GROUP * NEIGHBOURS],
            patch_grads: [[Row::ZERO; GROUP]; BLOCK / GROUP * NEIGHBOURS],
            inputs: vec![Row::ZERO; networks.update.program.inputs()],
            grads: vec![Row::ZERO; networks.channels],
            perceive: Sums::new(&networks.perceive.program),
            update: Sums::new(&networks.update.program),
            last: Sums::new(&networks.last.program),
            window: Vec::new(),
            window_begin: 0,
            loss: 0.0,
        }
    }

    /// Clears the gradients of all entries that some tiles read.
    pub fn open_window(&mut self, tiles: &[Tile], stride: usize) {
        // Entry 0 does not count: one less than it wraps to the largest number.
        let (mut least, mut most) = (u32::MAX, 0);
        for &entry in tiles.as_flattened().as_flattened() {
            least = least.min(entry.wrapping_sub(1));
            most = most.max(entry);
        }
        self.window.clear();
        if most > 0 {
            self.window_begin = least as usize;
            self.window.resize((most as usize - self.window_begin + 1) * stride, 0.0);
        }
    }

    /// Propagates the gradients of the update's inputs, which have replaced the inputs, through the perception to the
    /// preceding state. The gradient of the start state is not needed.
    pub fn perception_gradient(
        &mut self,
        networks: &Networks,
        before: &[f32],
        stride: usize,
        tile: &Tile,
        start: bool,
    ) {
        let (centre, perceived) = self.inputs.split_at(networks.channels);
        let Network { program, coefficients } = &networks.perceive;
        // Entry 0 precedes every window and maps to the window's first entry, which stands for the outside.
        let begin = self.window_begin as u32;
        let place = |entry: u32| entry.saturating_sub(begin) as usize;
        let (patch, grads) = (&mut self.patch, &mut self.patch_grads);
        for channels in networks.blocks() {
            Networks::gather_patch(before, stride, tile, &channels, patch);
            grads.fill([Row::ZERO; GROUP]);
            for channel in channels.clone() {
                grads.as_flattened_mut()[patch_row(channel, CENTRE)] = centre[channel];
            }
            let (patch, to) = (&patch[groups(&channels)], &mut grads[groups(&channels)]);
            let (sums, work) = (&mut self.perceive, &mut self.kernel_work);
            program.gradient(coefficients, channels.start, patch, perceived, to, sums, work);
            if start {
                continue;
            }
            for (neighbour, entries) in tile.iter().enumerate() {
                let (rows, row) = (grads.as_flattened(), |channel| patch_row(channel, neighbour));
                transpose::scatter_add(rows, row, channels.clone(), entries, place, &mut self.window, stride);
            }
        }
    }
}

pub(super) fn add(to: &mut [f32], from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

/// The tiles of a step that belong to one chunk, with the slices that they write.
pub(super) struct Job<'a> {
    pub chunk: &'a mut Chunk,
    /// Index of the first tile.
    pub first: usize,
    pub tiles: &'a [Tile],
    pub after: &'a mut [f32],
    pub kept: Option<&'a mut [Row]>,
}

impl<'a> Job<'a> {
    /// Divides a step among chunks: `after` holds the computed entries, `kept` the step's inputs of the update.
    pub fn split(
        step: &'a PlanStep,
        chunks: &'a mut [Chunk],
        mut after: &'a mut [f32],
        mut kept: Option<&'a mut [Row]>,
        stride: usize,
        inputs: usize,
    ) -> Vec<Job<'a>> {
        let count = chunks.len();
        let mut jobs = Vec::with_capacity(count);
        for (index, chunk) in chunks.iter_mut().enumerate() {
            let share = parallel::chunk_range(step.tiles.len(), index, count);
            let numbers = (share.len() * LANES * stride).min(after.len());
            let (mine, rest) = after.split_at_mut(numbers);
            after = rest;
            let mut mine_kept = None;
            if let Some(rows) = kept.take() {
                let (mine, rest) = rows.split_at_mut(share.len() * inputs);
                mine_kept = Some(mine);
                kept = Some(rest);
            }
            let tiles = &step.tiles[share.clone()];
            jobs.push(Job { chunk, first: share.start, tiles, after: mine, kept: mine_kept });
        }
        jobs
    }
}
