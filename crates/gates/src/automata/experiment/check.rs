//! Checks of an experiment's settings, before anything is allocated.

use crate::kernel::LANES;
use gatework_engine::parallel;

use super::{AutomatonExperiment, Experiment, MAX_MEMORY, Recipe, SearchSettings, WarmRestarts};
use crate::automata::cells::{PlanStep, Tile};
use crate::automata::model::{FirstLayer, MAX_CHANNELS, MAX_GATES, MAX_KERNELS};
use crate::automata::rollout::KEPT_BYTES;
use crate::automata::states::{Target, TargetSpec};
use crate::soft::Wiring;
use gatework_train::experiment::{Problem, check_name, problem};
use gatework_train::memory;

/// Maximum number of seeds after the first.
const MAX_RESTARTS: u64 = 100_000;

/// Maximum number of grids of a check.
const MAX_CHECKS: usize = 10_000;

/// Maximum number of seconds between checkpoints.
const MAX_SECONDS: f64 = 1e9;

impl AutomatonExperiment {
    /// Checks that the target fits the automaton, and that target and start state fit every grid.
    pub(super) fn check_target(&self) -> Result<(), Problem> {
        let (a, target) = (&self.experiment.automaton, &self.target);
        let [height, width] = a.grid;
        let fits =
            if self.is_checkerboard() { Ok(()) } else { target.check_size([height, width], a.boundary) };
        let fits = fits.and_then(|()| target.check_pairs(a.boundary, a.steps));
        if let Err(error) = fits {
            return problem(&["target"], format!("target: {error}"));
        }
        if target.channels() > a.channels {
            let (needs, has) = (target.channels(), a.channels);
            let message = format!("automaton.channels is {has}, but the target has {needs}");
            return problem(&["automaton", "channels"], message);
        }
        self.experiment.success.check(self)?;
        for (index, protocol) in self.experiment.protocols.iter().enumerate() {
            if let Err(message) = self.check_grid(protocol.grid) {
                let key = ["evaluate", &index.to_string(), "grid"];
                return problem(&key, format!("evaluate {:?}: {message}", protocol.name));
            }
        }
        let searched = self.experiment.search.iter().flat_map(|search| &search.grids);
        for (index, &grid) in searched.enumerate() {
            if let Err(message) = self.check_grid(grid) {
                return problem(&["search", "grids"], format!("search.grids[{index}]: {message}"));
            }
        }
        Ok(())
    }

    /// Whether the target is a checkerboard, which is cut off at the edge of a torus of another size.
    fn is_checkerboard(&self) -> bool {
        matches!(self.experiment.target, TargetSpec::Checkerboard { .. })
    }

    /// Checks that the picture and the start states fit a grid other than that of training.
    fn check_grid(&self, [height, width]: [usize; 2]) -> Result<(), String> {
        let Experiment { automaton, start, .. } = &self.experiment;
        // A picture has the size of the training grid.
        let [least_height, least_width] = automaton.grid;
        if matches!(self.target, Target::Picture(_)) && (height < least_height || width < least_width) {
            return Err(format!(
                "the picture is {least_height}x{least_width} (height x width), but the grid is {height}x{width}"
            ));
        }
        if matches!(self.target, Target::Pattern { .. } | Target::Pairs(_)) && !self.is_checkerboard() {
            self.target.check_size([height, width], automaton.boundary).map_err(|error| error.to_string())?;
        }
        start.check([height, width], automaton.channels).map_err(|error| format!("start.{error}"))
    }
}

impl Experiment {
    /// Checks everything that depends on no other file.
    pub(super) fn check(&self) -> Result<(), Problem> {
        self.check_sizes()?;
        self.check_perceive()?;
        self.check_update()?;
        self.check_training()?;
        let (gates, most) = (self.model_shape().max_gates_per_cell(), MAX_GATES);
        if gates > most {
            let message = format!("layers and channels make up to {gates} gates per cell, more than {most}");
            return problem(&["update", "layers"], message);
        }
        let bytes = self.memory();
        if bytes > MAX_MEMORY {
            let message = format!(
                "grid, batch, steps and layers would need about {:.0} GB of memory; the limit is {:.0} GB",
                bytes / 1e9,
                MAX_MEMORY / 1e9
            );
            return problem(&["automaton"], message);
        }
        Ok(())
    }

    fn check_sizes(&self) -> Result<(), Problem> {
        let a = &self.automaton;
        check_name(&self.name)?;
        if !(1..=MAX_CHANNELS).contains(&a.channels) {
            return problem(
                &["automaton", "channels"],
                format!("automaton.channels is {}, not 1 to {MAX_CHANNELS}", a.channels),
            );
        }
        if a.grid.contains(&0) {
            return problem(&["automaton", "grid"], format!("automaton.grid is {:?}: a side is 0", a.grid));
        }
        if a.steps == 0 {
            return problem(&["automaton", "steps"], "automaton.steps is 0");
        }
        if let Some(rate) = a.fire_rate.filter(|rate| !(*rate > 0.0 && *rate <= 1.0)) {
            let message = format!("automaton.fire_rate is {rate}, not above 0 and at most 1");
            return problem(&["automaton", "fire_rate"], message);
        }
        if let Err(error) = self.start.check(a.grid, a.channels) {
            return problem(&["start", "grids"], format!("start.{error}"));
        }
        if self.target == (TargetSpec::Checkerboard { square: 0 }) {
            return problem(&["target", "square"], "target.square is 0");
        }
        Ok(())
    }

    fn check_perceive(&self) -> Result<(), Problem> {
        const KEY: &[&str] = &["perceive", "layers"];
        let layers = &self.perceive.layers;
        if !(1..=MAX_KERNELS).contains(&self.perceive.kernels) {
            let message = format!("perceive.kernels is {}, not 1 to {MAX_KERNELS}", self.perceive.kernels);
            return problem(&["perceive", "kernels"], message);
        }
        if layers.first() != Some(&9) || layers.len() < 2 {
            return problem(
                KEY,
                "perceive.layers must start with 9, the cells of a patch, and have at least one more layer",
            );
        }
        if self.perceive.first == FirstLayer::Moore && layers[1] != 8 {
            let message = format!("perceive.layers[1] is {}, but a moore layer has 8 gates", layers[1]);
            return problem(KEY, message);
        }
        // A moore layer has its own wires.
        let skip = usize::from(self.perceive.first == FirstLayer::Moore);
        check_layers("perceive", KEY, layers, self.update.wiring, skip)
    }

    fn check_update(&self) -> Result<(), Problem> {
        const KEY: &[&str] = &["update", "layers"];
        let (layers, channels, kernels) =
            (&self.update.layers, self.automaton.channels, self.perceive.kernels);
        if layers.len() < 2 {
            return problem(KEY, "update.layers needs its inputs and at least one layer");
        }
        let outputs = self.perceive.layers.last().copied().unwrap_or(0);
        let needed = channels.saturating_add(channels.saturating_mul(kernels).saturating_mul(outputs));
        if layers[0] != needed {
            let by = if outputs == 1 { String::new() } else { format!(" x {outputs} outputs") };
            let message = format!(
                "update.layers[0] is {}, but {kernels} kernels{by} x {channels} channels + {channels} need {needed}",
                layers[0]
            );
            return problem(KEY, message);
        }
        let last = layers[layers.len() - 1];
        if last != channels {
            return problem(
                KEY,
                format!("the last of update.layers is {last}, but there are {channels} channels"),
            );
        }
        check_layers("update", KEY, layers, self.update.wiring, 0)
    }

    fn check_training(&self) -> Result<(), Problem> {
        let t = &self.training;
        if t.updates == 0 || t.updates > 1 << 40 {
            return problem(
                &["training", "updates"],
                format!("training.updates is {}, not 1 to 2^40", t.updates),
            );
        }
        if t.batch == 0 {
            return problem(&["training", "batch"], "training.batch is 0");
        }
        if !(t.learning_rate > 0.0 && t.learning_rate.is_finite()) {
            let message = format!("training.learning_rate is {}, not a number above 0", t.learning_rate);
            return problem(&["training", "learning_rate"], message);
        }
        if let Some(seeds) = self.seeds.filter(|seeds| !(1..=MAX_RESTARTS).contains(seeds)) {
            return problem(&["seeds"], format!("seeds is {seeds}, not 1 to {MAX_RESTARTS}"));
        }
        if t.restarts > MAX_RESTARTS {
            let message = format!("training.restarts is {}, more than {MAX_RESTARTS}", t.restarts);
            return problem(&["training", "restarts"], message);
        }
        if t.checks > MAX_CHECKS {
            let message = format!("training.checks is {}, more than {MAX_CHECKS}", t.checks);
            return problem(&["training", "checks"], message);
        }
        self.check_rollouts()?;
        self.check_protocols()?;
        self.check_search()?;
        if t.stable == Some(0) || t.checks == 0 {
            return problem(&["training"], "training.stable and training.checks are at least 1");
        }
        if !(0.0..=MAX_SECONDS).contains(&t.checkpoint_seconds) {
            let message = format!(
                "training.checkpoint_seconds is {:?}, not 0 to {MAX_SECONDS:e}",
                t.checkpoint_seconds
            );
            return problem(&["training", "checkpoint_seconds"], message);
        }
        let wrap = |key: &[&str], result: Result<(), String>| result.or_else(|message| problem(key, message));
        wrap(&["training", "optimizer"], t.optimizer().validate())?;
        wrap(&["training", "schedule"], t.rate().validate())?;
        wrap(&["gates"], self.gates.validate())?;
        wrap(&["training", "clip"], t.clip().validate())
    }

    fn check_rollouts(&self) -> Result<(), Problem> {
        let t = &self.training;
        if let Some([least, most]) = t.steps.filter(|[least, most]| *least == 0 || least > most) {
            let message =
                format!("training.steps is [{least}, {most}], but must be [min, max] with 1 <= min <= max");
            return problem(&["training", "steps"], message);
        }
        if t.late == 0 {
            return problem(&["training", "late"], "training.late is 0");
        }
        if t.state_memory.is_nan() || t.state_memory < 0.0 {
            let message = format!("training.state_memory is {:?}, not a number of GB from 0", t.state_memory);
            return problem(&["training", "state_memory"], message);
        }
        if !(0.0..=1.0).contains(&t.half_grown) {
            let message = format!("training.half_grown is {}, not from 0 to 1", t.half_grown);
            return problem(&["training", "half_grown"], message);
        }
        if let Some(WarmRestarts { every, keep, noise }) = t.warm_restarts {
            let message = match (every, keep, noise) {
                (0, ..) => "training.warm_restarts.every is 0".to_string(),
                (_, keep, _) if !(0.0..=1.0).contains(&keep) => {
                    format!("training.warm_restarts.keep is {keep}, not from 0 to 1")
                }
                (.., noise) if !(0.0..=100.0).contains(&noise) => {
                    format!("training.warm_restarts.noise is {noise}, not from 0 to 100")
                }
                _ => return Ok(()),
            };
            return problem(&["training", "warm_restarts"], message);
        }
        Ok(())
    }

    fn check_search(&self) -> Result<(), Problem> {
        let Some(search) = &self.search else {
            let message = "the recipe \"search\" needs a [search] table";
            let missing = self.training.recipe == Recipe::Search;
            return if missing { problem(&["training", "recipe"], message) } else { Ok(()) };
        };
        for (fits, key, problem_of_key) in [
            (search.after > 0, "after", "is 0"),
            ((1..=1 << 40).contains(&search.moves), "moves", "is not 1 to 2^40"),
            (
                search.temperature.iter().all(|t| *t > 0.0 && t.is_finite()),
                "temperature",
                "is not two numbers above 0",
            ),
            (search.grids.iter().flatten().all(|&side| side > 0), "grids", "has a side of 0"),
            (search.samples > 0, "samples", "is 0"),
            ((1..=256).contains(&search.chains), "chains", "is not 1 to 256"),
            ((1..=100_000).contains(&search.runs), "runs", "is not 1 to 100000"),
            (search.active > 0.0 && search.active <= 1.0, "active", "is not above 0 and at most 1"),
            (search.rewire >= 0.0 && search.rewire <= 1.0, "rewire", "is not from 0 to 1"),
            (search.shrink <= 1 << 40, "shrink", "is more than 2^40"),
            (search.stay <= 1 << 20, "stay", "is more than 2^20"),
        ] {
            if !fits {
                return problem(&["search", key], format!("search.{key} {problem_of_key}"));
            }
        }
        if self.search_memory(search) > MAX_MEMORY {
            let (key, grid) = match &search.grids[..] {
                [] => (["automaton", "grid"], "automaton.grid"),
                _ => (["search", "grids"], "search.grids"),
            };
            let message =
                format!("{grid} and search.samples would need more than 16 GB of memory for the search");
            return problem(&key, message);
        }
        Ok(())
    }

    /// Checks that the memory for one seed is available.
    pub(in crate::automata) fn check_memory(&self) -> Result<(), Problem> {
        let bytes = self.memory().max(self.search().map_or(0.0, |search| self.search_memory(search)));
        memory::check(bytes, || "grid, batch, steps and layers".into())
            .map_err(|error| Problem::new(&["automaton"], error.to_string()))
    }

    /// Estimates the bytes that a search needs.
    fn search_memory(&self, search: &SearchSettings) -> f64 {
        let own = [self.automaton.grid];
        let grids = if search.grids.is_empty() { &own[..] } else { &search.grids };
        // Any number may be in the file: integers could overflow.
        let cells: f64 =
            grids.iter().map(|&[height, width]| (height as f64 + 2.0) * (width as f64 + 4.0)).sum();
        let masks =
            self.automaton.fire_rate.map_or(0.0, |_| self.automaton.steps as f64 + search.stay as f64);
        let planes = self.automaton.channels as f64 * 3.0 + 30.0 + masks;
        // A cell of a plane has two words.
        cells * search.samples as f64 * planes * 16.0 * search.chains as f64
    }

    fn check_protocols(&self) -> Result<(), Problem> {
        for p in &self.protocols {
            let rate = p.fire_rate.is_none_or(|rate| rate > 0.0 && rate <= 1.0);
            let sides = p.grid.iter().all(|side| (1..=1 << 14).contains(side));
            if !(rate && sides && p.steps > 0 && (1..=MAX_CHECKS).contains(&p.samples)) {
                let message = format!(
                    "evaluate {:?}: sides of 1 to {}, steps and samples of at least 1, a fire_rate above 0 and at most 1",
                    p.name,
                    1 << 14
                );
                return problem(&["evaluate"], message);
            }
            if p.recovery > 0 && p.damage.is_none() {
                let message = format!(
                    "evaluate {:?}: recovery is given, but there is no damage to recover from",
                    p.name
                );
                return problem(&["evaluate"], message);
            }
        }
        Ok(())
    }

    /// Estimates the bytes that training of one seed needs, and at least half of them.
    pub fn memory(&self) -> f64 {
        let shape = self.model_shape();
        let steps = self.most_steps() as f64;
        let grid: f64 = self.automaton.grid.iter().map(|&n| n as f64).product();
        let batch = self.training.batch as f64;
        let cells = grid * batch;
        let state = self.state_bytes();
        let states = self.checkpointing().states(self.most_steps()) as f64;
        // The entries that a cell reads, for every step that differs from the one before: a tile at least.
        let same = self.automaton.fire_rate.is_none() && !self.shares_cells();
        let step = (cells / LANES as f64).ceil() * size_of::<Tile>() as f64
            + (size_of::<PlanStep>() + size_of::<usize>()) as f64;
        let wires = step * if same { 2.0 } else { 1.0 + steps };
        // The cells that fire in a step, as bits and as bytes.
        let fires = grid.max(64.0) * (1.0 + 1.0 / 8.0) + 2.0 * size_of::<Vec<u64>>() as f64;
        let masks = self.automaton.fire_rate.map_or(0.0, |_| steps * fires);
        // Logits, gradients, two moments, the best parameters, a serialised copy of all; coefficients and programs.
        let gates = shape.gates() as f64 * (16.0 * 4.0 * 8.0 + 256.0);
        // Each chunk of the work has sums, rows of a tile, and the gradients of the entries that it reads.
        let tiles = (cells / LANES as f64).min(1e9) as usize;
        let parts = parallel::chunk_count(tiles, tiles.saturating_mul(self.automaton.steps)) as f64;
        let parts = parts * (shape.gates() as f64 * 256.0 + shape.update[0] as f64 * 256.0) + 2.0 * state;
        let circuit = shape.max_gates_per_cell() as f64 * 32.0;
        state * (states + 1.0) + KEPT_BYTES as f64 + wires + masks + gates + parts + circuit
    }
}

fn check_layers(
    name: &str,
    key: &[&str],
    layers: &[usize],
    wiring: Wiring,
    skip: usize,
) -> Result<(), Problem> {
    for (index, pair) in layers.windows(2).enumerate().skip(skip) {
        if pair[1] == 0 || pair[1] > 1 << 24 {
            return problem(key, format!("{name}.layers[{}] is {}, not 1 to 2^24", index + 1, pair[1]));
        }
        if let Err(error) = wiring.check(pair[0], pair[1]) {
            return problem(key, format!("{name}.layers[{}]: {error}", index + 1));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::cells::{Plan, Planner, Shape};

    /// Bytes of a plan in memory.
    fn bytes(plan: &Plan) -> usize {
        let of_step = |step: &PlanStep| {
            step.tiles.capacity() * size_of::<Tile>() + step.kept.capacity() * size_of::<u32>()
        };
        let steps =
            plan.distinct.capacity() * size_of::<PlanStep>() + plan.steps.capacity() * size_of::<usize>();
        steps + plan.distinct.iter().map(of_step).sum::<usize>() + plan.last.capacity() * size_of::<u32>()
    }

    #[test]
    fn the_estimate_of_memory_is_at_least_half_of_what_a_plan_takes() {
        let mut experiment = AutomatonExperiment::find("checkerboard").unwrap().experiment;
        (experiment.automaton.fire_rate, experiment.training.batch) = (Some(0.5), 1);
        for (grid, steps) in [([1, 1], 5000), ([1, 31], 2000), ([5, 13], 1000), ([40, 50], 30)] {
            let [height, width] = grid;
            let shape = Shape { samples: 1, height, width, boundary: experiment.automaton.boundary };
            let masks = vec![vec![true; height * width]; steps];
            let real = bytes(&Planner::new(shape).separate(steps, Some(&masks))) as f64;
            experiment.automaton.grid = grid;
            let mut estimate = |steps| {
                experiment.automaton.steps = steps;
                experiment.memory()
            };
            let estimated = estimate(steps + 1) - estimate(1);
            assert!(estimated >= real / 2.0, "{grid:?}: {estimated} of {real} bytes");
        }
    }
}
