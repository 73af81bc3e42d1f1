//! The training task of an automaton: rollout, loss, gradient, hardening and, at the end, the search.

use std::time::{Duration, Instant};

use gatework_logic::{Automaton, Grid, Simulator};

use super::batch::{Batch, BatchSource};
use super::experiment::{self, AutomatonExperiment, Experiment, WarmRestarts};
use super::hard::{Conditions, HardRun};
use super::model::Model;
use super::rollout::{GridGroup, Rollout, StateRounding, Times};
use super::search::Search;
use super::states::{Start, Target};
use super::success;
use crate::soft::{self, GateSettings};
use gatework_train::params::Params;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::{Finished, Finishing, Losses, Task, TaskError};

/// Bits of a start state up to which all start states are checked instead of a random sample.
const EXHAUSTIVE_BITS: usize = 12;

/// Bits of the number of a rollout's step in the number of a random stream.
const STEP_BITS: u32 = 20;

/// Durations of the parts of an update.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepTimes {
    /// The soft rollout.
    pub soft: Times,
    /// The hard rollout of the same batch.
    pub hard: Duration,
}

/// Training of one seed of an experiment.
pub struct AutomatonTask {
    loaded: AutomatonExperiment,
    seed: u64,
    gates: GateSettings,
    model: Model,
    /// The parameters that are trained instead of the model's logits, if gates are truth tables.
    tables: Option<Params>,
    rollout: Rollout,
    /// The initial parameters, if warm restarts return towards them.
    initial: Vec<f32>,
    /// The logits with noise that the rollout runs, unless the gates are the paper's.
    noisy: Vec<f32>,
    batches: BatchSource,
    times: StepTimes,
    /// Cells that the last update computed, summed over its steps.
    computed: usize,
}

impl AutomatonTask {
    /// Draws the wires of a seed and compiles the networks.
    pub fn new(loaded: &AutomatonExperiment, seed: u64) -> Result<AutomatonTask, TaskError> {
        let mut model = Model::new(&loaded.experiment.model_shape(), seed)?;
        let gates = loaded.experiment.gates();
        gates.initialize(&mut model.params);
        let tables = gates.truth_tables(&model.params);
        let mut rollout = Rollout::new(&model, loaded.target.channels())?;
        rollout.set_checkpointing(loaded.experiment.checkpointing());
        let batches = BatchSource::new(loaded, seed, rollout.stride());
        let restarts = loaded.experiment.training.warm_restarts.is_some();
        let initial = &tables.as_ref().unwrap_or(&model.params).values;
        Ok(AutomatonTask {
            initial: if restarts { initial.clone() } else { Vec::new() },
            loaded: loaded.clone(),
            seed,
            gates,
            model,
            tables,
            rollout,
            noisy: Vec::new(),
            batches,
            times: StepTimes::default(),
            computed: 0,
        })
    }

    /// Durations of the last update.
    pub fn times(&self) -> StepTimes {
        self.times
    }

    /// Soft gate evaluations of the last update's forward pass: gates x computed cells. Cells that share an entry are
    /// computed once, and cells that do not fire are not computed.
    pub fn gate_evaluations(&self) -> f64 {
        self.computed as f64 * self.model.gates_per_cell() as f64
    }

    /// Makes the parameters soft again if a warm restart is due.
    fn restart(&mut self, update: u64) {
        let Some(WarmRestarts { every, keep, noise }) = self.loaded.experiment.training.warm_restarts else {
            return;
        };
        if update == 0 || !update.is_multiple_of(every) {
            return;
        }
        let mut random = Random::new(self.seed, Purpose::Parameters, update);
        let values = &mut self.tables.as_mut().unwrap_or(&mut self.model.params).values;
        for (value, &initial) in values.iter_mut().zip(&self.initial) {
            *value = initial + keep * (*value - initial) + noise * random.normal() as f32;
        }
    }

    /// Returns the soft loss of a batch and stores its gradient with the parameters.
    fn gradient(&mut self, batch: &Batch, update: u64) -> (f64, Times) {
        let experiment = &self.loaded.experiment;
        let progress = experiment.progress(update);
        let params = &mut self.model.params;
        params.zero_grads();
        if self.gates.is_default() {
            self.rollout.set_logits(&params.values);
        } else {
            let mut random = Random::new(self.seed, Purpose::Gumbel, update);
            self.gates.add_noise(&params.values, progress, &mut random, &mut self.noisy);
            self.rollout.set_logits(&self.noisy);
        }
        let groups = batch.goals.len();
        let starts = batch.start.chunks_exact(batch.start.len() / groups);
        let rounding = |group: usize| StateRounding {
            rounding: experiment.state.round,
            seed: self.seed,
            time: (update * groups as u64 + group as u64) << STEP_BITS,
        };
        let rollouts = |(group, start): (usize, _)| GridGroup {
            plan: &batch.plan,
            start,
            goal: &batch.goals[group],
            late: &batch.late[group][..],
            rounding: (!experiment.state.is_none()).then(|| rounding(group)),
        };
        let rollouts: Vec<GridGroup<'_>> = starts.enumerate().map(rollouts).collect();
        let (loss, times) = self.rollout.gradient(&rollouts, &mut params.grads);
        if let Some(tables) = &mut self.tables {
            soft::contract(&params.grads, &mut tables.grads);
        }
        (loss, times)
    }

    /// Returns the wrong bits of the hard automaton after the steps of a batch.
    fn hard_loss(&self, batch: &Batch) -> Result<usize, TaskError> {
        let mut grid = batch.grids.clone();
        let loss_channels = batch.target.channels();
        let mut simulator = Simulator::new(&self.model.harden(), loss_channels)?;
        for step in 0..batch.plan.steps.len() {
            match batch.masks.get(step) {
                None => simulator.step(&mut grid),
                Some(mask) => simulator.step_masked(&mut grid, mask),
            }?;
        }
        Ok(grid.difference(&batch.target, loss_channels)?)
    }
}

impl Task for AutomatonTask {
    fn params(&self) -> &Params {
        self.tables.as_ref().unwrap_or(&self.model.params)
    }

    fn params_mut(&mut self) -> &mut Params {
        self.tables.as_mut().unwrap_or(&mut self.model.params)
    }

    fn step(&mut self, update: u64) -> Result<Losses, TaskError> {
        self.restart(update);
        if let Some(tables) = &self.tables {
            self.model.set(&tables.values);
        }
        let batch = self.batches.next(update, &self.model)?;
        let (soft, times) = self.gradient(&batch, update);
        let begin = Instant::now();
        let hard = self.hard_loss(&batch)? as f64;
        self.times = StepTimes { soft: times, hard: begin.elapsed() };
        self.computed = self.batches.groups() * batch.plan.computed();
        self.batches.recycle(batch);
        Ok(Losses { soft, hard: Some(hard) })
    }

    fn passes(&mut self, update: u64) -> Result<bool, TaskError> {
        self.matches_target(&self.model.harden(), update)
    }

    fn finishes(&self) -> bool {
        self.loaded.experiment.search().is_some()
    }

    fn finish(
        &mut self,
        best: &[f32],
        stop: &dyn Fn(Finishing) -> bool,
    ) -> Result<Option<Finished>, TaskError> {
        let Some(settings) = self.loaded.experiment.search() else { return Ok(None) };
        let mut model = self.model.clone();
        model.set(best);
        // The checks of training are numbered by updates from 0, those of the search from the other end.
        let check = |automaton: &Automaton, number: u64| self.matches_target(automaton, u64::MAX - number);
        let search = Search { loaded: &self.loaded, settings, seed: self.seed, check: &check };
        let found = search.run(&model, stop)?;
        Ok(found.map(|found| Finished {
            hard: f64::from(found.wrong),
            moves: found.moves,
            trace: found.trace.into_iter().map(|(moves, wrong)| (moves, f64::from(wrong))).collect(),
            passes: found.passes,
            stages: found.stages,
            model: found.model.to_bytes(),
        }))
    }
}

impl AutomatonTask {
    /// Returns true if an automaton turns fresh start states into their targets and has the properties that the experiment asks
    /// for; `number` selects the start states.
    fn matches_target(&self, automaton: &Automaton, number: u64) -> Result<bool, TaskError> {
        let experiment = &self.loaded.experiment;
        if let (Target::Rule(rule), 1, None) =
            (&self.loaded.target, experiment.automaton.steps, experiment.automaton.fire_rate)
        {
            // All neighbourhoods: what is not proved is not learned.
            return Ok(rule.is_followed_by(automaton).unwrap_or(false));
        }
        let mut random = Random::new(self.seed, Purpose::Check, number);
        // All grids of a run share the cells that fire in a step, so each asynchronous grid has a run of its own.
        let (runs, samples) = match (experiment.automaton.fire_rate, &experiment.start) {
            (Some(_), _) => (experiment.training.checks, 1),
            (None, start) if start.is_fixed() => (1, 1),
            (None, start) => (1, start.count().unwrap_or(experiment.training.checks)),
        };
        for _ in 0..runs {
            let start = check_states(experiment, samples, &mut random)?;
            if !matches_target(&self.loaded, automaton, start, random.word())? {
                return Ok(false);
            }
        }
        success::holds(&self.loaded, automaton, random.word())
    }
}

/// Draws `samples` start states, or returns all there are if these are few and the updates synchronous.
fn check_states(experiment: &Experiment, samples: usize, random: &mut Random) -> Result<Grid, TaskError> {
    let [height, width] = experiment.automaton.grid;
    let channels = experiment.automaton.channels;
    let cells = height * width;
    let bits = cells * channels;
    let synchronous = experiment.automaton.fire_rate.is_none();
    if experiment.start != Start::Random || bits > EXHAUSTIVE_BITS || !synchronous {
        let mut grids = Grid::new(samples, height, width, channels)?;
        experiment.start.fill_in_order(&mut grids, random)?;
        return Ok(grids);
    }
    let mut grids = Grid::new(1 << bits, height, width, channels)?;
    for sample in 0..1 << bits {
        for bit in 0..bits {
            let (channel, cell) = (bit / cells, bit % cells);
            grids.set(sample, channel, cell / width, cell % width, sample >> bit & 1 == 1);
        }
    }
    Ok(grids)
}

/// Returns true if grids become their targets; `seed` selects the cells that fire.
fn matches_target(
    loaded: &AutomatonExperiment,
    automaton: &Automaton,
    start: Grid,
    seed: u64,
) -> Result<bool, TaskError> {
    let experiment::AutomatonSettings { boundary, steps, fire_rate, .. } = loaded.experiment.automaton;
    let target = loaded.target.grids(&start, boundary, steps)?;
    let conditions = Conditions { fire_rate, damage: None, recovery: 0 };
    let mut run = HardRun::new(automaton, target.channels(), start, conditions, seed)?;
    for _ in 0..steps {
        run.step()?;
    }
    let target = loaded.target.aligned(run.grid(), boundary, target);
    if run.wrong(&target)? > 0 {
        return Ok(false);
    }
    // A rule goes on; a picture or pattern of which the search compares a later state is to be right there too.
    let stay =
        loaded.experiment.search().filter(|_| !loaded.target.is_rule()).map_or(0, |search| search.stay);
    run.run(stay)?;
    let target = loaded.target.aligned(run.grid(), boundary, target);
    Ok(run.wrong(&target)? == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::experiment::BUILT_IN;
    use gatework_train::experiment::Source;

    /// A built-in experiment with few steps, and with keys added to `[training]` and tables to its end.
    fn small(name: &str, training: &str, tables: &str) -> AutomatonExperiment {
        let text = BUILT_IN.iter().find(|(known, _)| *known == name).unwrap().1;
        let text = text.replacen("[training]\n", &format!("[training]\n{training}\n"), 1);
        let mut loaded =
            AutomatonExperiment::from_source(&Source::new(format!("{text}\n{tables}"), name, ".")).unwrap();
        loaded.experiment.automaton.steps = loaded.experiment.automaton.steps.min(4);
        loaded
    }

    #[test]
    fn the_search_after_training_finds_the_same_with_any_number_of_threads() {
        let mut loaded = small("checkerboard", "", "");
        let search = loaded.experiment.search.as_mut().unwrap();
        (search.moves, search.runs, search.shrink) = (120, 3, 0);
        search.redraw = false;
        let finished = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut task = AutomatonTask::new(&loaded, 1).unwrap();
            let begin = task.params().values.clone();
            pool.install(|| task.finish(&begin, &|_| false)).unwrap().unwrap()
        };
        let (one, two) = (finished(1), finished(2));
        assert!(one.model == two.model && one.trace == two.trace);
        assert!(one.passes || one.moves > 240, "{} moves: every restart was used", one.moves);
    }

    /// Equal cells may be rounded differently.
    #[test]
    fn rounded_states_share_no_cells() {
        let computed = |tables: &str| {
            let mut task = AutomatonTask::new(&small("colored-g", "", tables), 1).unwrap();
            task.step(0).unwrap();
            task.computed
        };
        let rounded = computed("[state]\nround = \"stochastic\"");
        assert_eq!(rounded, 4 * 16 * 16);
        assert!(computed("") < rounded / 5);
    }

    /// Random numbers are a function of the update's number: a task that begins in the middle, as a resumed one does, has
    /// the losses and gradients of an uninterrupted one.
    #[test]
    fn training_resumes_with_the_same_losses_and_gradients() {
        for (training, tables) in [
            ("", ""),
            ("steps = [1, 5]", ""),
            ("checkpointing = 2", ""),
            ("late = 3\ncheckpointing = \"sqrt\"", "[state]\nround = \"stochastic\""),
            ("half_grown = 0.7", "[state]\nround = \"nearest\""),
            ("", "[gates]\nnumbers = \"four\"\nstart = [5.0, 2.0]"),
            ("", "[gates]\ngumbel = 0.5\ngumbel_from = 0.0"),
            ("warm_restarts = { every = 3 }", ""),
            ("warm_restarts = { every = 1 }", "[gates]\nnumbers = \"four\""),
        ] {
            for name in ["game-of-life", "checkerboard-async", "colored-g"] {
                let loaded = small(name, training, tables);
                let mut whole = AutomatonTask::new(&loaded, 3).unwrap();
                for update in 0..3 {
                    whole.step(update).unwrap();
                    let params = whole.params_mut();
                    for (value, grad) in params.values.iter_mut().zip(&params.grads) {
                        *value -= 0.05 * grad.signum();
                    }
                }
                let mut later = AutomatonTask::new(&loaded, 3).unwrap();
                later.params_mut().values.copy_from_slice(&whole.params().values);
                let (a, b) = (whole.step(3).unwrap(), later.step(3).unwrap());
                assert_eq!((a.soft, a.hard), (b.soft, b.hard), "{name}: {training} {tables}");
                assert_eq!(whole.params().grads, later.params().grads, "{name}: {training} {tables}");
                assert!(whole.params().grads.iter().any(|&g| g != 0.0), "{name}: {training} {tables}");
            }
        }
    }
}
