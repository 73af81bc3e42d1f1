//! Experiments on cellular automata: TOML files, read and checked before anything is allocated.

mod check;

use std::path::Path;

use gatework_logic::Boundary;
use serde::{Deserialize, Serialize};

use super::choose;
use super::hard::Damage;
use super::model::{FirstLayer, ModelShape};
use super::rollout::{Checkpointing, StateSettings};
use super::states::{Start, Target, TargetSpec};
use super::success::{Success, is_false};
use crate::deserialize::{self, Removed, maybe_two, two, twos};
use crate::soft::{GateSettings, Wiring};
use gatework_train::experiment::{ExperimentError, Problem, Source};
use gatework_train::optim::{Clip, Optimizer};
use gatework_train::schedule::{LearningRate, Schedule};
use gatework_train::trainer;

/// Former names of keys, which are still read, and their current names.
pub(in crate::automata) const FORMER_KEYS: [(&str, &str); 5] = [
    ("search.tries", "search.runs"),
    ("search.restarts", "search.runs"),
    ("search.baths", "search.chains"),
    ("search.boards", "search.samples"),
    ("start.boards", "start.grids"),
];

/// The built-in experiments: name and TOML.
pub const BUILT_IN: [(&str, &str); 17] = [
    ("game-of-life", include_str!("../../experiments/game-of-life.toml")),
    ("checkerboard", include_str!("../../experiments/checkerboard.toml")),
    ("checkerboard-gradient", include_str!("../../experiments/checkerboard-gradient.toml")),
    ("checkerboard-robust", include_str!("../../experiments/checkerboard-robust.toml")),
    ("checkerboard-async", include_str!("../../experiments/checkerboard-async.toml")),
    ("lizard", include_str!("../../experiments/lizard.toml")),
    ("colored-g", include_str!("../../experiments/colored-g.toml")),
    ("highlife", include_str!("../../experiments/highlife.toml")),
    ("day-and-night", include_str!("../../experiments/day-and-night.toml")),
    ("seeds", include_str!("../../experiments/seeds.toml")),
    ("brians-brain", include_str!("../../experiments/brians-brain.toml")),
    ("rule-110", include_str!("../../experiments/rule-110.toml")),
    ("rule-30", include_str!("../../experiments/rule-30.toml")),
    ("stripes", include_str!("../../experiments/stripes.toml")),
    ("bricks", include_str!("../../experiments/bricks.toml")),
    ("squares", include_str!("../../experiments/squares.toml")),
    ("herringbone", include_str!("../../experiments/herringbone.toml")),
];

/// The settings of an experiment: its TOML file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// The name; by default that of the file.
    #[serde(default)]
    pub name: String,
    /// The kind of task.
    pub task: TaskKind,
    /// A one-line description.
    #[serde(default)]
    pub about: String,
    /// The expected training time, as text.
    #[serde(default)]
    pub expected: String,
    /// Runs exactly this seed, unless `seeds` is given. The copy in a run folder holds the seed that was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Runs this many seeds, each to its end or to success, as `train --seeds` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<u64>,
    /// The grid and its cells.
    pub automaton: AutomatonSettings,
    /// The perception kernels.
    pub perceive: Perceive,
    /// The update network.
    pub update: Update,
    /// The start state.
    #[serde(default)]
    pub start: Start,
    /// The target state.
    pub target: TargetSpec,
    /// Training by gradient descent.
    pub training: Training,
    /// How gates are parameterised in training.
    #[serde(default, skip_serializing_if = "GateSettings::is_default")]
    pub gates: GateSettings,
    /// How the soft state is rounded between two steps in training.
    #[serde(default, skip_serializing_if = "StateSettings::is_none")]
    pub state: StateSettings,
    /// The discrete search after training, with the recipe `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<SearchSettings>,
    /// What success asks for besides the target at its step.
    #[serde(default, skip_serializing_if = "Success::is_empty")]
    pub success: Success,
    /// The protocols of the evaluation.
    #[serde(default, rename = "evaluate", skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<Protocol>,
}

/// The kind of task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum TaskKind {
    /// A cellular automaton.
    Automaton,
}

/// The grid and its cells: the `[automaton]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AutomatonSettings {
    /// Channels (bits) of a cell.
    pub channels: usize,
    /// The cells outside the grid.
    pub boundary: Boundary,
    /// Height and width in training.
    #[serde(deserialize_with = "two")]
    pub grid: [usize; 2],
    /// Steps of a rollout.
    pub steps: usize,
    /// Fraction of the cells that update in a step; all, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fire_rate: Option<f32>,
}

/// The perception: small networks, the kernels, on the 3x3 patch of every channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Perceive {
    /// Number of kernels.
    pub kernels: usize,
    /// Layer sizes, beginning with the 9 cells of a patch.
    pub layers: Vec<usize>,
    /// The wiring of the first layer.
    #[serde(default)]
    pub first: FirstLayer,
}

/// The update: a network on the cell and its perception.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// Layer sizes, beginning with channels + channels x kernels x outputs of a kernel.
    pub layers: Vec<usize>,
    /// The wiring of all layers, those of the perception included.
    #[serde(default)]
    pub wiring: Wiring,
}

/// A named set of training settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Recipe {
    /// The paper's: AdamW with betas 0.9 and 0.99 and weight decay 0.01, gradient elements clipped at 100.
    Paper,
    /// The paper's optimiser from softer gates: pass-through logits of 3 in the first layer, rising to 10 in the last. Every circuit
    /// with hard loss 0 is checked.
    Gradient,
    /// The paper's for some updates, then a discrete search: the `[search]` table.
    Search,
}

/// Initial pass-through logits of the first and the last layer with the recipe `gradient`.
const SOFT_START: [f32; 2] = [3.0, 10.0];

/// Warm restarts of gradient descent within a seed: shrink and perturb (Ash and Adams 2020). The network and what it has learned
/// are kept, but its gates become soft enough to change again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WarmRestarts {
    /// Updates from one restart to the next.
    pub every: u64,
    /// Fraction of the difference from the initial parameters that is kept.
    #[serde(default = "default_keep")]
    pub keep: f32,
    /// Standard deviation of the noise that is added to each parameter.
    #[serde(default = "default_noise")]
    pub noise: f32,
}

/// The warm restarts that go with the recipe `gradient`.
const WARM_RESTARTS: WarmRestarts = WarmRestarts { every: 400, keep: DEFAULT_KEEP, noise: DEFAULT_NOISE };
const DEFAULT_KEEP: f32 = 0.2;
const DEFAULT_NOISE: f32 = 0.3;

fn default_keep() -> f32 {
    DEFAULT_KEEP
}

fn default_noise() -> f32 {
    DEFAULT_NOISE
}

/// Training by gradient descent: the `[training]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// The recipe, which gives the default optimiser and clip.
    pub recipe: Recipe,
    /// Maximum number of updates of a seed.
    pub updates: u64,
    /// Grids of an update.
    pub batch: usize,
    /// Learning rate.
    pub learning_rate: f64,
    /// Further seeds that are tried if the first one fails.
    pub restarts: u64,
    /// Learning rate schedule.
    #[serde(default)]
    pub schedule: Schedule,
    /// Updates of linear warm-up.
    #[serde(default)]
    pub warmup: u64,
    /// Optimiser; the recipe's, if not given. A given table replaces it as a whole: keys that are left out have the
    /// optimiser's own defaults.
    #[serde(default)]
    pub optimizer: Option<Optimizer>,
    /// Gradient clipping; the recipe's, if not given.
    #[serde(default)]
    pub clip: Option<Clip>,
    /// Smallest and largest number of steps, drawn for each update; those of the automaton, if not given.
    #[serde(default, deserialize_with = "maybe_two", skip_serializing_if = "Option::is_none")]
    pub steps: Option<[usize; 2]>,
    /// Number of final states in the loss.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub late: usize,
    /// Fraction of the grids whose start state is advanced by some steps of the current hard automaton.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub half_grown: f32,
    /// Warm restarts within a seed; none, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warm_restarts: Option<WarmRestarts>,
    /// The states of a rollout that are kept for the backward pass. If not given, all, or as many as the square root of the steps if
    /// all of them would need more than `state_memory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpointing: Option<Checkpointing>,
    /// Memory for the states of a rollout in GB, beyond which checkpointing begins.
    #[serde(default = "default_state_memory", skip_serializing_if = "is_default_state_memory")]
    pub state_memory: f64,
    /// Consecutive updates with hard loss 0 before success is checked; the recipe's, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stable: Option<u64>,
    /// Fresh start states that must become their targets for success.
    #[serde(default = "default_checks")]
    pub checks: usize,
    /// Seconds between checkpoints.
    #[serde(default = "default_checkpoint_seconds")]
    pub checkpoint_seconds: f64,
}

impl Training {
    /// One update of one grid by a recipe; all else has its default.
    pub(super) fn of_recipe(recipe: Recipe) -> Training {
        Training {
            recipe,
            updates: 1,
            batch: 1,
            learning_rate: 0.05,
            restarts: 0,
            schedule: Schedule::default(),
            warmup: 0,
            optimizer: None,
            clip: None,
            steps: None,
            late: 1,
            half_grown: 0.0,
            warm_restarts: None,
            checkpointing: None,
            state_memory: default_state_memory(),
            stable: None,
            checks: default_checks(),
            checkpoint_seconds: default_checkpoint_seconds(),
        }
    }

    /// Returns the optimiser: the given one, or the paper's, which all recipes have.
    pub fn optimizer(&self) -> Optimizer {
        let paper = Optimizer::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 1e-2 };
        self.optimizer.clone().unwrap_or(paper)
    }

    /// Returns the gradient clipping: the given one, or the paper's, which all recipes have.
    pub fn clip(&self) -> Clip {
        self.clip.unwrap_or(Clip::Value(100.0))
    }

    /// Returns the number of consecutive updates with hard loss 0 before success is checked: the given one, or the recipe's. The
    /// circuit of a single update may be right although those around it are not, so the recipe `gradient` checks each.
    pub fn stable(&self) -> u64 {
        let of_recipe = if self.recipe == Recipe::Gradient { 1 } else { 60 };
        self.stable.unwrap_or(of_recipe)
    }

    /// Changes the recipe, as `train --recipe` does. The warm restarts come and go with the recipe `gradient`: a file states them, so
    /// that one without them trains as it always did.
    pub fn change_recipe(&mut self, recipe: Recipe) {
        match (self.recipe, recipe) {
            (before, after) if before == after => {}
            (_, Recipe::Gradient) => self.warm_restarts = self.warm_restarts.or(Some(WARM_RESTARTS)),
            (Recipe::Gradient, _) => self.warm_restarts = None,
            _ => {}
        }
        self.recipe = recipe;
    }

    /// Returns the learning rate with its schedule.
    pub fn rate(&self) -> LearningRate {
        LearningRate { base: self.learning_rate, schedule: self.schedule.clone(), warmup: self.warmup }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &f32) -> bool {
    *number == 0.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_one(number: &usize) -> bool {
    *number == 1
}

fn one() -> usize {
    1
}

fn default_state_memory() -> f64 {
    1.0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_default_state_memory(gigabytes: &f64) -> bool {
    *gigabytes == default_state_memory()
}

fn default_checks() -> usize {
    50
}

fn default_checkpoint_seconds() -> f64 {
    5.0
}

/// Settings of the discrete search after training: the `[search]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SearchSettings {
    /// Updates of gradient descent before the search begins.
    pub after: u64,
    /// Moves of the first run; see `runs`.
    pub moves: u64,
    /// Temperatures of the first and of the last move, in wrong bits.
    #[serde(deserialize_with = "two")]
    pub temperature: [f64; 2],
    /// Heights and widths of the grids; the grid of the training if empty.
    #[serde(default, deserialize_with = "twos", skip_serializing_if = "Vec::is_empty")]
    pub grids: Vec<[usize; 2]>,
    /// Grids of each size, if start states are random.
    #[serde(default = "one", alias = "boards")]
    pub samples: usize,
    /// Further steps after which grids should still match the target.
    #[serde(default)]
    pub stay: usize,
    /// Prior weight of an active gate; a wire has 1.
    #[serde(default = "default_active")]
    pub active: f64,
    /// Fraction of the trials that change an operand.
    #[serde(default = "default_rewire")]
    pub rewire: f64,
    /// Annealing chains that run in parallel from the same model.
    #[serde(default = "default_chains", alias = "baths")]
    pub chains: usize,
    /// Annealing runs at most, each from the start. Which of them succeed cannot be predicted, so their lengths follow
    /// the universal restart strategy of Luby, Sinclair and Zuckerman (1993): 1, 1, 2, 1, 1, 2, 4, ... times `moves`.
    #[serde(default = "one", alias = "tries", alias = "restarts")]
    pub runs: usize,
    /// Further runs draw new wires and begin without training, because some wirings never succeed.
    #[serde(default)]
    pub redraw: bool,
    /// Moves after a success that look for a circuit with fewer gates.
    #[serde(default)]
    pub shrink: u64,
    /// What ends a search that did not succeed.
    #[serde(default, skip_serializing_if = "Repair::is_default")]
    pub repair: Repair,
    #[serde(default, skip_serializing, deserialize_with = "deserialize::search_ladder")]
    pub(super) ladder: Removed,
    #[serde(default, skip_serializing, deserialize_with = "deserialize::search_retrain")]
    pub(super) retrain: Removed,
    #[serde(default, skip_serializing, deserialize_with = "deserialize::search_guided")]
    pub(super) guided: Removed,
}

impl SearchSettings {
    /// A search of one run on the grid of the training; all else has its default.
    pub(super) fn new(after: u64, moves: u64, temperature: [f64; 2]) -> SearchSettings {
        SearchSettings {
            after,
            moves,
            temperature,
            grids: Vec::new(),
            samples: 1,
            stay: 0,
            active: default_active(),
            rewire: default_rewire(),
            chains: default_chains(),
            runs: 1,
            redraw: false,
            shrink: 0,
            repair: Repair::default(),
            ladder: Removed,
            retrain: Removed,
            guided: Removed,
        }
    }
}

/// What ends a search that did not succeed: [`SearchSettings::repair`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Repair {
    /// A formula for the wrong cells, or hidden channels that count coordinates: whichever needs fewer gates.
    #[default]
    Smallest,
    /// A formula for the wrong cells only.
    Formula,
    /// Hidden channels that count coordinates only.
    Coordinates,
    /// Nothing.
    None,
}

impl Repair {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
    fn is_default(&self) -> bool {
        *self == Repair::Smallest
    }
}

fn default_active() -> f64 {
    0.03
}

fn default_rewire() -> f64 {
    0.5
}

fn default_chains() -> usize {
    2
}

/// A protocol of the evaluation: an `[[evaluate]]` table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Protocol {
    /// The name.
    pub name: String,
    /// Height and width.
    #[serde(deserialize_with = "two")]
    pub grid: [usize; 2],
    /// Number of steps.
    pub steps: usize,
    /// Number of grids; one is enough if nothing is random.
    #[serde(default = "default_samples")]
    pub samples: usize,
    /// Fraction of the cells that update in a step; all, if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fire_rate: Option<f32>,
    /// Damage after every step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<Damage>,
    /// Steps in which a cell does not count after it was damaged.
    #[serde(default, skip_serializing_if = "is_no_step")]
    pub recovery: usize,
    /// Whether the protocol is part of success, although it has damage or another fire rate than training.
    #[serde(default, skip_serializing_if = "is_false")]
    pub required: bool,
}

impl Protocol {
    /// Undamaged grids of cells that all update.
    pub(super) fn new(name: &str, grid: [usize; 2], steps: usize) -> Protocol {
        let samples = default_samples();
        Protocol {
            name: name.into(),
            grid,
            steps,
            samples,
            fire_rate: None,
            damage: None,
            recovery: 0,
            required: false,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_no_step(steps: &usize) -> bool {
    *steps == 0
}

fn default_samples() -> usize {
    10
}

/// An experiment that was read and checked, with its target loaded.
#[derive(Clone, Debug)]
pub struct AutomatonExperiment {
    /// The settings.
    pub experiment: Experiment,
    /// The target.
    pub target: Target,
}

/// Maximum memory of a run in bytes. Experiments that need more are refused before anything is allocated.
pub const MAX_MEMORY: f64 = 16e9;

impl AutomatonExperiment {
    /// Returns the number of bits that the hard loss of an update compares.
    pub fn compared_bits(&self) -> usize {
        let [height, width] = self.experiment.automaton.grid;
        self.experiment.training.batch * height * width * self.target.channels()
    }

    /// Finds a built-in experiment, reads a file if the name has a dot or a slash in it, or chooses an experiment for a picture
    /// or the name of a rule.
    pub fn find(name: &str) -> Result<AutomatonExperiment, ExperimentError> {
        if let Some(chosen) = choose::by_name(name) {
            return chosen;
        }
        AutomatonExperiment::from_source(&Source::find(name, &BUILT_IN)?)
    }

    /// Reads an experiment from a file.
    pub fn read(path: &Path) -> Result<AutomatonExperiment, ExperimentError> {
        AutomatonExperiment::from_source(&Source::read(path)?)
    }

    /// Reads an experiment and its target picture, and checks both.
    pub fn from_source(source: &Source) -> Result<AutomatonExperiment, ExperimentError> {
        let mut experiment: Experiment = source.parse()?;
        if experiment.name.is_empty() {
            experiment.name = source.default_name().unwrap_or_default();
        }
        let loaded = AutomatonExperiment::load(experiment, source.folder());
        loaded.map_err(|problem| source.locate(problem, &FORMER_KEYS))
    }

    /// Checks settings and reads their target picture, whose path is relative to `folder`.
    pub(super) fn load(mut experiment: Experiment, folder: &Path) -> Result<AutomatonExperiment, Problem> {
        if let TargetSpec::Pairs { pairs } = &experiment.target {
            let start = Start::Grids { grids: pairs.iter().map(|pair| pair.before.clone()).collect() };
            if experiment.start != Start::Random && experiment.start != start {
                let message = "start: pairs begin with their grids before the steps; remove [start]";
                return Err(Problem::new(&["start"], message));
            }
            experiment.start = start;
        }
        experiment.check()?;
        let target = Target::load(&experiment.target, folder)
            .map_err(|error| Problem::new(&["target"], format!("target: {error}")))?;
        let loaded = AutomatonExperiment { experiment, target };
        loaded.check_target()?;
        Ok(loaded)
    }

    /// Checks the experiment again after its settings were changed, and that the memory to train it is available. Error
    /// messages begin with `origin`.
    pub fn check(&self, origin: &str) -> Result<(), ExperimentError> {
        let invalid = |Problem { message, .. }| ExperimentError::Invalid {
            origin: origin.to_string(),
            line: None,
            message,
        };
        let checked = self.experiment.check().and_then(|()| self.check_target());
        checked.and_then(|()| self.experiment.check_memory()).map_err(invalid)
    }
}

impl Experiment {
    /// Returns the shape of the model.
    pub fn model_shape(&self) -> ModelShape {
        ModelShape {
            channels: self.automaton.channels,
            boundary: self.automaton.boundary,
            kernels: self.perceive.kernels,
            perceive: self.perceive.layers.clone(),
            first: self.perceive.first,
            update: self.update.layers.clone(),
            wiring: self.update.wiring,
        }
    }

    /// Returns true if a model of this shape can be the result. A search may have enlarged it.
    pub fn has_model_of(&self, shape: &ModelShape) -> bool {
        let own = self.model_shape();
        let as_large = ModelShape { update: own.update.clone(), kernels: own.kernels, ..shape.clone() };
        *shape == own || self.search().is_some() && as_large == own
    }

    /// Returns true if all grids of all updates have the same start state, so that cells with equal neighbourhoods have
    /// equal values and are computed once. Rounding may draw a random number for every cell.
    pub fn shares_cells(&self) -> bool {
        self.start.is_fixed() && self.training.half_grown == 0.0 && self.state.is_none()
    }

    /// Returns the settings of the search, if the recipe has one.
    pub fn search(&self) -> Option<&SearchSettings> {
        self.search.as_ref().filter(|_| self.training.recipe == Recipe::Search)
    }

    /// Returns the protocols that are part of success: those under the conditions of training, and those that are required.
    pub fn counted_protocols(&self) -> impl Iterator<Item = &Protocol> {
        let rate = self.automaton.fire_rate;
        self.protocols.iter().filter(move |p| p.required || p.damage.is_none() && p.fire_rate == rate)
    }

    /// Returns the maximum number of steps of a rollout in training.
    fn most_steps(&self) -> usize {
        self.training.steps.map_or(self.automaton.steps, |[_, most]| most)
    }

    /// Returns which states of a rollout are kept: as given, or as their memory allows.
    pub fn checkpointing(&self) -> Checkpointing {
        let all = self.state_bytes() * (self.most_steps() as f64 + 1.0);
        let chosen =
            if all > self.training.state_memory * 1e9 { Checkpointing::Sqrt } else { Checkpointing::None };
        self.training.checkpointing.unwrap_or(chosen)
    }

    /// Estimates the bytes of a state of all grids of an update.
    fn state_bytes(&self) -> f64 {
        let grid: f64 = self.automaton.grid.iter().map(|&n| n as f64).product();
        let batch = self.training.batch as f64;
        // A state has one entry more than cells, for the outside, and each grid may have a vector of its own.
        let entry = self.automaton.channels.next_multiple_of(8) as f64 * 4.0;
        (grid * batch + batch) * entry + batch * size_of::<Vec<f32>>() as f64
    }

    /// Returns how gates are parameterised: as given, or else as the recipe says.
    pub fn gates(&self) -> GateSettings {
        let mut gates = self.gates.clone();
        if self.training.recipe == Recipe::Gradient && gates.is_default() {
            gates.start = SOFT_START;
        }
        gates
    }

    /// Returns the maximum number of updates of a seed.
    pub fn updates(&self) -> u64 {
        self.search().map_or(self.training.updates, |search| search.after.min(self.training.updates))
    }

    /// Returns the fraction of the updates that are done, or of those between two warm restarts.
    pub fn progress(&self, update: u64) -> f32 {
        match self.training.warm_restarts {
            Some(WarmRestarts { every, .. }) if every < self.updates() => {
                (update % every) as f32 / every as f32
            }
            _ => update as f32 / self.updates() as f32,
        }
    }

    /// Returns the settings of the trainer.
    pub fn trainer_settings(&self) -> trainer::Settings {
        trainer::Settings {
            updates: self.updates(),
            rate: self.training.rate(),
            optimizer: self.training.optimizer(),
            clip: Some(self.training.clip()),
            stable: self.training.stable(),
            patience: None,
            scales_loss: false,
        }
    }

    /// Returns the experiment as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("an experiment holds nothing that TOML lacks")
    }
}

#[cfg(test)]
mod tests;
