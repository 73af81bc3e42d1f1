//! A soft automaton as something the trainer can train.

use std::time::{Duration, Instant};

use gatework_logic::{Automaton, Grid, Simulator};

use super::board::Start;
use super::experiment::{self, Experiment, Loaded};
use super::hard::{Conditions, HardRun};
use super::model::Model;
use super::rollout::{Boards, Disturbed, Rollout, Times};
use super::rounds::{Round, Rounds};
use super::search::{Search, Teacher};
use crate::soft;
use gatework_train::params::Params;
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::{Attempt, Finished, Losses, Outcome, Settings, Task, TaskError};

/// Start states are all checked, not drawn, if there are so few of them: those of 12 bits.
const FEW_BITS: usize = 12;

/// Room for the steps of a roll-out among the random numbers of disturbances.
const STEP_BITS: u32 = 20;

/// How long the parts of an update took.
#[derive(Clone, Copy, Debug, Default)]
pub struct StepTimes {
    /// The soft roll-out.
    pub soft: Times,
    /// The hard roll-out beside it.
    pub hard: Duration,
}

/// One seed of an experiment.
pub struct AutomatonTask {
    loaded: Loaded,
    seed: u64,
    model: Model,
    /// What is learned in place of the model's logits, if gates are truth tables.
    tables: Option<Params>,
    rollout: Rollout,
    /// The logits that the roll-out runs, if they are not the model's.
    soft: Vec<f32>,
    rounds: Rounds,
    times: StepTimes,
    /// Cells that the last update computed, in all its steps.
    computed: usize,
}

impl AutomatonTask {
    /// Draws the wires of a seed and compiles them.
    pub fn new(loaded: &Loaded, seed: u64) -> Result<AutomatonTask, TaskError> {
        let mut model = Model::new(&loaded.experiment.model_shape(), seed)?;
        loaded.experiment.gates.start(&mut model.params);
        AutomatonTask::of_model(loaded, seed, model)
    }

    /// Goes on with a model; the seed draws everything else.
    fn of_model(loaded: &Loaded, seed: u64, model: Model) -> Result<AutomatonTask, TaskError> {
        let tables = loaded.experiment.gates.tables(&model.params);
        let rollout = Rollout::new(&model, loaded.target.channels())?;
        let rounds = Rounds::new(loaded, seed, rollout.stride());
        Ok(AutomatonTask {
            loaded: loaded.clone(),
            seed,
            model,
            tables,
            rollout,
            soft: Vec::new(),
            rounds,
            times: StepTimes::default(),
            computed: 0,
        })
    }

    /// The model as it is now.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How long the last update took.
    pub fn times(&self) -> StepTimes {
        self.times
    }

    /// Soft gate evaluations of the last update, forward: gates x cells that were computed. Cells that must have the
    /// same value are computed once, and those that do not fire not at all.
    pub fn gate_evaluations(&self) -> f64 {
        self.computed as f64 * self.model.gates_per_cell() as f64
    }

    /// The soft loss of a round; its gradient is left with the parameters.
    fn gradient(&mut self, round: &Round, update: u64) -> (f64, Times) {
        let experiment = &self.loaded.experiment;
        let progress = update as f32 / experiment.updates() as f32;
        let params = &mut self.model.params;
        params.zero_grads();
        let soft = if experiment.gates.is_default() {
            &params.values
        } else {
            let mut random = Random::new(self.seed, Purpose::Gumbel, update);
            experiment.gates.soften(&params.values, progress, &mut random, &mut self.soft);
            &self.soft
        };
        self.rollout.set_logits(soft);
        let groups = round.goals.len();
        let starts = round.start.chunks_exact(round.start.len() / groups);
        let disturbed = |group: usize| Disturbed {
            settings: &experiment.state,
            seed: self.seed,
            time: (update * groups as u64 + group as u64) << STEP_BITS,
            progress,
        };
        let boards = |(group, start): (usize, _)| Boards {
            plan: &round.plan,
            start,
            goal: &round.goals[group],
            late: &round.late[group][..],
            disturbed: (!experiment.state.is_none()).then(|| disturbed(group)),
        };
        let boards: Vec<Boards<'_>> = starts.enumerate().map(boards).collect();
        let (loss, times) = self.rollout.gradient(&boards, &mut params.grads);
        let price = experiment.training.gate_price;
        if price > 0.0 {
            soft::add_price(soft, price, &mut params.grads);
        }
        if !experiment.gates.is_default() {
            experiment.gates.pull_back(soft, progress, &mut params.grads);
        }
        if let Some(tables) = &mut self.tables {
            soft::contract(&params.grads, &mut tables.grads);
        }
        if experiment.training.normalize {
            self.params_mut().normalize_grads();
        }
        (loss, times)
    }

    /// Wrong bits of the hard automaton after the steps of a round.
    fn hard_loss(&self, round: &Round) -> Result<usize, TaskError> {
        let mut grid = round.boards.clone();
        let loss_channels = round.target.channels();
        let mut simulator = Simulator::new(&self.model.harden(), loss_channels)?;
        for step in 0..round.plan.steps.len() {
            match round.masks.get(step) {
                None => simulator.step(&mut grid),
                Some(mask) => simulator.step_masked(&mut grid, mask),
            }?;
        }
        Ok(grid.difference(&round.target, loss_channels)?)
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
        if let Some(tables) = &self.tables {
            self.model.set(&tables.values);
        }
        let round = self.rounds.next(update, &self.model)?;
        let (soft, times) = self.gradient(&round, update);
        let begin = Instant::now();
        let hard = self.hard_loss(&round)? as f64;
        self.times = StepTimes { soft: times, hard: begin.elapsed() };
        self.computed = self.rounds.groups() * round.plan.computed();
        self.rounds.give_back(round);
        Ok(Losses { soft, hard: Some(hard) })
    }

    fn passes(&mut self, update: u64) -> Result<bool, TaskError> {
        self.grows_right(&self.model.harden(), update)
    }

    fn finishes(&self) -> bool {
        self.loaded.experiment.search().is_some()
    }

    fn finish(&mut self, best: &[f32], stop: &dyn Fn(f64) -> bool) -> Result<Option<Finished>, TaskError> {
        let Some(settings) = self.loaded.experiment.search() else { return Ok(None) };
        let mut model = self.model.clone();
        model.set(best);
        let search = Search { loaded: &self.loaded, settings, seed: self.seed };
        let found = search.run(&model, self, stop)?;
        Ok(found.map(|found| Finished {
            hard: f64::from(found.wrong),
            moves: found.moves,
            trace: found.trace.into_iter().map(|(moves, wrong)| (moves, f64::from(wrong))).collect(),
            passes: found.passes,
            model: found.model.to_bytes(),
        }))
    }
}

impl Teacher for AutomatonTask {
    fn passes(&self, automaton: &Automaton, number: u64) -> Result<bool, TaskError> {
        // Checks of training have the numbers of updates.
        self.grows_right(automaton, u64::MAX - number)
    }

    fn slopes(&self, model: &Model, number: u64) -> Result<Vec<f32>, TaskError> {
        let seed = Random::new(self.seed, Purpose::Retrain, number).word();
        let mut task = AutomatonTask::of_model(&self.loaded, seed, model.clone())?;
        task.step(0)?;
        Ok(task.model.params.grads)
    }

    fn trained(
        &self,
        model: &Model,
        updates: u64,
        number: u64,
        stop: &dyn Fn(f64) -> bool,
    ) -> Result<Option<Model>, TaskError> {
        let seed = Random::new(self.seed, Purpose::Retrain, number).word();
        let mut task = AutomatonTask::of_model(&self.loaded, seed, model.clone())?;
        let settings = Settings { updates, ..self.loaded.experiment.trainer_settings() };
        let mut attempt = Attempt::new(seed, &settings, task.params().len());
        while attempt.outcome == Outcome::Running && attempt.update < updates {
            attempt.advance(&mut task, &settings)?;
            if stop(attempt.best.as_ref().map_or(f64::INFINITY, |best| best.hard)) {
                return Ok(None);
            }
        }
        let mut model = model.clone();
        if let Some(best) = attempt.best {
            model.set(&best.values);
        }
        Ok(Some(model))
    }
}

impl AutomatonTask {
    /// Whether an automaton makes of fresh start states what it should; `number` says which ones are drawn.
    fn grows_right(&self, automaton: &Automaton, number: u64) -> Result<bool, TaskError> {
        let experiment = &self.loaded.experiment;
        let mut random = Random::new(self.seed, Purpose::Check, number);
        // Boards share the cells that fire in a step, so each asynchronous board makes a run of its own.
        let (runs, boards) = match (experiment.automaton.fire_rate, &experiment.start) {
            (Some(_), _) => (experiment.training.checks, 1),
            (None, start) if start.is_fixed() => (1, 1),
            (None, _) => (1, experiment.training.checks),
        };
        for _ in 0..runs {
            let boards = check_boards(experiment, boards, &mut random)?;
            if !grows_right(&self.loaded, automaton, boards, random.word())? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Fresh start states: `samples` of them, or all there are if these are few and nothing else is left to chance.
fn check_boards(experiment: &Experiment, samples: usize, random: &mut Random) -> Result<Grid, TaskError> {
    let [height, width] = experiment.automaton.grid;
    let channels = experiment.automaton.channels;
    let cells = height * width;
    let bits = cells * channels;
    let synchronous = experiment.automaton.fire_rate.is_none();
    if experiment.start != Start::Random || bits > FEW_BITS || !synchronous {
        let mut boards = Grid::new(samples, height, width, channels)?;
        experiment.start.fill(&mut boards, random)?;
        return Ok(boards);
    }
    let mut boards = Grid::new(1 << bits, height, width, channels)?;
    for sample in 0..1 << bits {
        for bit in 0..bits {
            let (channel, cell) = (bit / cells, bit % cells);
            boards.set(sample, channel, cell / width, cell % width, sample >> bit & 1 == 1);
        }
    }
    Ok(boards)
}

/// True if boards become their targets; `seed` chooses the cells that fire.
fn grows_right(loaded: &Loaded, automaton: &Automaton, boards: Grid, seed: u64) -> Result<bool, TaskError> {
    let experiment::Grid { boundary, steps, fire_rate, .. } = loaded.experiment.automaton;
    let target = loaded.target.boards(&boards, boundary, steps)?;
    let conditions = Conditions { fire_rate, damage: None };
    let mut run = HardRun::new(automaton, target.channels(), boards, conditions, seed)?;
    for _ in 0..steps {
        run.step()?;
    }
    Ok(run.wrong(&target)? == 0)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::automata::experiment::BUILT_IN;
    use gatework_train::experiment::Source;

    /// A built-in experiment that is small enough for a test, with something added to it.
    fn small(name: &str, training: &str, tables: &str) -> Loaded {
        let text = BUILT_IN.iter().find(|(known, _)| *known == name).unwrap().1;
        let text = text.replacen("[training]\n", &format!("[training]\n{training}\n"), 1);
        let mut loaded = Loaded::from_source(&Source::new(&format!("{text}\n{tables}"), name, ".")).unwrap();
        loaded.experiment.automaton.steps = loaded.experiment.automaton.steps.min(4);
        loaded
    }

    #[test]
    fn a_search_that_asks_its_teacher_finds_the_same_with_any_number_of_threads() {
        let mut loaded = small("checkerboard", "", "");
        let search = loaded.experiment.search.as_mut().unwrap();
        (search.moves, search.tries, search.shrink) = (120, 3, 0);
        (search.redraw, search.retrain, search.guided) = (false, 3, 0.5);
        let finished = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let mut task = AutomatonTask::new(&loaded, 1).unwrap();
            let begin = task.params().values.clone();
            pool.install(|| task.finish(&begin, &|_| false)).unwrap().unwrap()
        };
        let (one, two) = (finished(1), finished(2));
        assert!(one.model == two.model && one.trace == two.trace);
        assert!(one.passes || one.moves > 240, "{} moves: every try was made", one.moves);
    }

    #[test]
    fn gradient_descent_within_a_search_makes_a_model_better_and_its_slopes_are_those_of_the_loss() {
        let loaded = small("game-of-life", "", "");
        let task = AutomatonTask::new(&loaded, 1).unwrap();
        let wrong = |model: &Model| {
            let mut task = AutomatonTask::of_model(&loaded, 7, model.clone()).unwrap();
            task.step(0).unwrap()
        };
        assert!(task.trained(task.model(), 150, 1, &|_| true).unwrap().is_none(), "it was stopped");
        let trained = task.trained(task.model(), 150, 1, &|_| false).unwrap().unwrap();
        let (before, after) = (wrong(task.model()), wrong(&trained));
        assert!(after.soft < before.soft / 2.0 && after.hard <= before.hard, "{after:?} {before:?}");
        let slopes = task.slopes(task.model(), 1).unwrap();
        let mut downhill = task.model().clone();
        let steepest = slopes.iter().fold(0.0f32, |most, slope| most.max(slope.abs()));
        for (value, slope) in downhill.params.values.iter_mut().zip(&slopes) {
            *value -= slope / steepest;
        }
        assert!(wrong(&downhill).soft < before.soft);
    }

    /// Noise of equal cells is not equal, and a price is one for every cell.
    #[test]
    fn disturbed_states_share_no_cells() {
        let computed = |tables: &str| {
            let mut task = AutomatonTask::new(&small("colored-g", "", tables), 1).unwrap();
            task.step(0).unwrap();
            task.computed
        };
        assert_eq!(computed("[state]\npenalty = 1.0"), 4 * 16 * 16);
        assert!(computed("") < computed("[state]\npenalty = 1.0") / 5);
    }

    /// Everything that an update draws is a function of its number: a task that begins in the middle, as a resumed
    /// one does, has the losses and gradients of one that was there from the first update on.
    #[test]
    fn every_way_to_train_goes_on_where_it_was() {
        for (training, tables) in [
            ("", ""),
            ("steps = [1, 5]", ""),
            ("late = 3", "[state]\nround = \"stochastic\"\nflip = 0.1"),
            ("half_grown = 0.7\nnormalize = true", "[state]\nnoise = 0.1\npenalty = 1.0"),
            ("", "[gates]\nnumbers = \"four\"\nstart = [5.0, 2.0]"),
            ("", "[gates]\ngumbel = 0.5\nharden_from = 0.0\ntemperature = [1.0, 0.5]\nentropy = 0.1"),
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
