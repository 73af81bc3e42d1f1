//! Experiments: what is to be learned, as TOML, read and checked before anything is allocated.

mod check;

use std::path::Path;

use gatework_logic::Boundary;
use serde::{Deserialize, Serialize};

use super::board::{Start, Target, TargetSpec};
use super::evaluate::Protocol;
use super::model::{FirstLayer, ModelShape};
use super::rollout::Disturbance;
use super::search;
use crate::soft::{Softness, Wiring};
use gatework_train::experiment::{ExperimentError, Problem, Source};
use gatework_train::optim::{Clip, Optimizer};
use gatework_train::pairs::{maybe_two, two};
use gatework_train::schedule::{LearningRate, Schedule};
use gatework_train::trainer;

/// The built-in experiments: name and TOML.
pub const BUILT_IN: [(&str, &str); 5] = [
    ("game-of-life", include_str!("../../experiments/game-of-life.toml")),
    ("checkerboard", include_str!("../../experiments/checkerboard.toml")),
    ("checkerboard-async", include_str!("../../experiments/checkerboard-async.toml")),
    ("lizard", include_str!("../../experiments/lizard.toml")),
    ("colored-g", include_str!("../../experiments/colored-g.toml")),
];

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name; that of its file if there is none.
    #[serde(default)]
    pub name: String,
    /// What kind of thing is learned.
    pub task: TaskKind,
    /// One line for people.
    #[serde(default)]
    pub about: String,
    /// How long it takes, for people.
    #[serde(default)]
    pub expected: String,
    /// Run exactly this seed, unless there are `seeds`. A run folder's copy names the seed that was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// Run this many seeds, each to its end or to success, as `train --seeds` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seeds: Option<u64>,
    /// The grid and its cells.
    pub automaton: Grid,
    /// What a cell sees.
    pub perceive: Perceive,
    /// How a cell changes.
    pub update: Update,
    /// What a roll-out starts from.
    pub start: Start,
    /// What it should become.
    pub target: TargetSpec,
    /// How it is trained.
    pub training: Training,
    /// How soft the gates are in training.
    #[serde(default, skip_serializing_if = "Softness::is_default")]
    pub gates: Softness,
    /// What is done to the state between two steps in training.
    #[serde(default, skip_serializing_if = "Disturbance::is_none")]
    pub state: Disturbance,
    /// How the circuit is searched for after training, with the recipe `search`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub search: Option<search::Settings>,
    /// How the result is judged.
    #[serde(default, rename = "evaluate", skip_serializing_if = "Vec::is_empty")]
    pub protocols: Vec<Protocol>,
}

/// What kind of thing is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskKind {
    /// A cellular automaton.
    Automaton,
}

/// The grid and its cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grid {
    /// Channels (bits) of a cell.
    pub channels: usize,
    /// What lies outside the grid.
    pub boundary: Boundary,
    /// Height and width in training.
    #[serde(deserialize_with = "two")]
    pub grid: [usize; 2],
    /// Steps of a roll-out.
    pub steps: usize,
    /// Share of the cells that update in a step; without it, all do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fire_rate: Option<f32>,
}

/// What a cell sees: small networks, the kernels, on the 3x3 patch of every channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Perceive {
    /// Number of kernels.
    pub kernels: usize,
    /// Layer sizes, beginning with the 9 cells of a patch.
    pub layers: Vec<usize>,
    /// First layer.
    #[serde(default)]
    pub first: FirstLayer,
}

/// How a cell changes: a network on the cell and what it sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// Layer sizes, beginning with channels + channels x kernels x outputs of a kernel.
    pub layers: Vec<usize>,
    /// How layers are wired, those of the perception too.
    #[serde(default)]
    pub wiring: Wiring,
}

/// A set of training settings with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recipe {
    /// That of the paper: AdamW with betas .9 and .99 and weight decay .01, gradient elements cut at 100.
    Paper,
    /// That of the paper for a while, then a discrete search: the `[search]` table.
    Search,
}

impl Recipe {
    /// The optimiser of an experiment that names none.
    fn optimizer(self) -> Optimizer {
        match self {
            Recipe::Paper | Recipe::Search => {
                Optimizer::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 1e-2 }
            }
        }
    }

    /// The limit of the gradient of an experiment that names none.
    fn clip(self) -> Clip {
        match self {
            Recipe::Paper | Recipe::Search => Clip::Value(100.0),
        }
    }
}

/// How it is trained.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Training {
    /// Where the optimiser and the clip come from if they are not given.
    pub recipe: Recipe,
    /// Updates of a seed at most.
    pub updates: u64,
    /// Boards of an update.
    pub batch: usize,
    /// Learning rate.
    pub learning_rate: f64,
    /// Seeds that are tried after the first one fails.
    pub restarts: u64,
    /// Learning rate over time.
    #[serde(default)]
    pub schedule: Schedule,
    /// Updates of linear warm-up.
    #[serde(default)]
    pub warmup: u64,
    /// Optimiser; without it, the recipe's. One that is given replaces it as a whole: what its table leaves out has
    /// the optimiser's own default.
    #[serde(default)]
    pub optimizer: Option<Optimizer>,
    /// Limit of the gradient; without it, the recipe's.
    #[serde(default)]
    pub clip: Option<Clip>,
    /// What an active gate costs, in units of the loss: gradient descent then prefers wires.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub gate_price: f32,
    /// Steps of an update, from the first number to the second; without it, those of the automaton.
    #[serde(default, deserialize_with = "maybe_two", skip_serializing_if = "Option::is_none")]
    pub steps: Option<[usize; 2]>,
    /// So many of the last states count in the loss, not only the last one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub late: usize,
    /// The share of the boards that start as what the circuit, as it is, makes of them in some steps.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub half_grown: f32,
    /// Scale the gradient of every layer to length 1.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub normalize: bool,
    /// Updates in a row with hard loss 0 before success is checked.
    #[serde(default = "default_stable")]
    pub stable: u64,
    /// Fresh start states that must come out right for success.
    #[serde(default = "default_checks")]
    pub checks: usize,
    /// Seconds between checkpoints.
    #[serde(default = "default_checkpoint_seconds")]
    pub checkpoint_seconds: f64,
}

impl Training {
    /// The optimiser: its own, or the recipe's.
    pub fn optimizer(&self) -> Optimizer {
        self.optimizer.clone().unwrap_or_else(|| self.recipe.optimizer())
    }

    /// The limit of the gradient: its own, or the recipe's.
    pub fn clip(&self) -> Clip {
        self.clip.unwrap_or_else(|| self.recipe.clip())
    }

    /// The learning rate over time.
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

fn default_stable() -> u64 {
    60
}

fn default_checks() -> usize {
    50
}

fn default_checkpoint_seconds() -> f64 {
    5.0
}

/// An experiment that was read and checked, with what it refers to.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The experiment.
    pub experiment: Experiment,
    /// Its target.
    pub target: Target,
}

/// Bytes that a run may need. What needs more is refused before anything is allocated.
pub const MOST_MEMORY: f64 = 16e9;

impl Loaded {
    /// Finds a built-in experiment, or reads a file if the name has a dot or a slash in it.
    pub fn find(name: &str) -> Result<Loaded, ExperimentError> {
        Loaded::from_source(&Source::find(name, &BUILT_IN)?)
    }

    /// Reads an experiment from a file.
    pub fn read(path: &Path) -> Result<Loaded, ExperimentError> {
        Loaded::from_source(&Source::read(path)?)
    }

    /// Reads an experiment and the picture that it refers to, and checks both.
    pub fn from_source(source: &Source) -> Result<Loaded, ExperimentError> {
        let mut experiment: Experiment = source.parse()?;
        if experiment.name.is_empty() {
            experiment.name = source.default_name().unwrap_or_default();
        }
        experiment.check().map_err(|problem| source.locate(problem))?;
        let target = Target::load(&experiment.target, source.folder())
            .map_err(|error| source.locate(Problem::new(&["target"], format!("target: {error}"))))?;
        let loaded = Loaded { experiment, target };
        loaded.check_target().map_err(|problem| source.locate(problem))?;
        Ok(loaded)
    }

    /// Checks it again when settings were changed. `origin` is what errors call it.
    pub fn check(&self, origin: &str) -> Result<(), ExperimentError> {
        let invalid = |Problem { message, .. }| ExperimentError::Invalid {
            origin: origin.to_string(),
            line: None,
            message,
        };
        self.experiment.check().and_then(|()| self.check_target()).map_err(invalid)
    }
}

impl Experiment {
    /// The shape of its model.
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

    /// Whether a model of this shape can be its result. A search may have made it larger.
    pub fn has_model_of(&self, shape: &ModelShape) -> bool {
        let own = self.model_shape();
        let as_large = ModelShape { update: own.update.clone(), kernels: own.kernels, ..shape.clone() };
        *shape == own || self.search().is_some() && as_large == own
    }

    /// Whether all boards of all updates start alike and nothing tells cells apart that should have the same value: equal
    /// cells are then computed once. What disturbs the soft state draws for every cell.
    pub fn shares_cells(&self) -> bool {
        self.start.is_fixed() && self.training.half_grown == 0.0 && self.state.is_none()
    }

    /// The search after training, if there is one.
    pub fn search(&self) -> Option<&search::Settings> {
        self.search.as_ref().filter(|_| self.training.recipe == Recipe::Search)
    }

    /// Updates of a seed at most.
    pub fn updates(&self) -> u64 {
        self.search().map_or(self.training.updates, |search| search.after.min(self.training.updates))
    }

    /// How the trainer trains it.
    pub fn trainer_settings(&self) -> trainer::Settings {
        trainer::Settings {
            updates: self.updates(),
            rate: self.training.rate(),
            optimizer: self.training.optimizer(),
            clip: Some(self.training.clip()),
            stable: self.training.stable,
            patience: None,
        }
    }

    /// The experiment as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("an experiment holds nothing that TOML lacks")
    }
}

#[cfg(test)]
mod tests;
