//! Experiments: what is to be learned, as TOML, read and checked before anything is allocated.

mod check;

use std::path::{Path, PathBuf};

use gatework_logic::Boundary;
use serde::{Deserialize, Serialize};

use super::board::{Start, Target, TargetSpec};
use super::evaluate::Protocol;
use super::model::{FirstLayer, ModelShape};
use super::rollout::Disturbance;
use super::search;
use crate::files;
use crate::gates::{Softness, Wiring};
use crate::optim::{Clip, Optimizer};
use crate::pairs::{maybe_two, two};
use crate::schedule::{LearningRate, Schedule};
use crate::train;
use check::{Problem, problem};

/// The built-in experiments: name and TOML.
pub const BUILT_IN: [(&str, &str); 5] = [
    ("game-of-life", include_str!("../../../../experiments/game-of-life.toml")),
    ("checkerboard", include_str!("../../../../experiments/checkerboard.toml")),
    ("checkerboard-async", include_str!("../../../../experiments/checkerboard-async.toml")),
    ("lizard", include_str!("../../../../experiments/lizard.toml")),
    ("colored-g", include_str!("../../../../experiments/colored-g.toml")),
];

/// An experiment that cannot be run.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// No built-in experiment has that name, and there is no such file.
    #[error("no experiment {name:?}{}; there are {known}", hint.as_ref().map_or(String::new(), |h| format!(" (did you mean {h}?)")))]
    Unknown {
        /// What was asked for.
        name: String,
        /// The nearest name.
        hint: Option<String>,
        /// All names.
        known: String,
    },
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] files::FileError),
    /// The text is wrong somewhere.
    #[error("{origin}:{}{message}", line.map_or_else(|| " ".to_string(), |line| format!("{line}: ")))]
    Invalid {
        /// The file, or the name of a built-in experiment.
        origin: String,
        /// The line, where it is known.
        line: Option<usize>,
        /// What is wrong.
        message: String,
    },
}

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name.
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
        if let Some((_, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Loaded::parse(text, name, Path::new("."));
        }
        if name.contains(['.', '/', '\\']) || Path::new(name).is_file() {
            return Loaded::read(Path::new(name));
        }
        let names = BUILT_IN.map(|(name, _)| name);
        let nearest = names.iter().map(|known| (distance(name, known), known)).min();
        let hint = nearest.filter(|(d, known)| *d <= known.len() / 2).map(|(_, known)| (*known).to_string());
        Err(ExperimentError::Unknown { name: name.to_string(), hint, known: names.join(", ") })
    }

    /// Reads an experiment from a file.
    pub fn read(path: &Path) -> Result<Loaded, ExperimentError> {
        let text = files::read_text(path)?;
        let folder = path.parent().map_or_else(PathBuf::new, Path::to_path_buf);
        Loaded::parse(&text, &path.display().to_string(), &folder)
    }

    /// Reads an experiment from text. `origin` is what errors call it, `folder` where its files are.
    pub fn parse(text: &str, origin: &str, folder: &Path) -> Result<Loaded, ExperimentError> {
        let invalid = |line, message| ExperimentError::Invalid { origin: origin.to_string(), line, message };
        let experiment: Experiment = toml::from_str(text).map_err(|error| {
            let line = error.span().map(|span| line_at(text, span.start));
            invalid(line, error.message().to_string())
        })?;
        let at = |problem: Problem| invalid(line_of(text, &problem.key), problem.message);
        experiment.check().map_err(at)?;
        let target = Target::load(&experiment.target, folder)
            .or_else(|error| problem(&["target"], format!("target: {error}")))
            .map_err(at)?;
        let loaded = Loaded { experiment, target };
        loaded.check_target().map_err(at)?;
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
    pub fn trainer_settings(&self) -> train::Settings {
        train::Settings {
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

/// Line of a byte of a text, from 1.
pub(crate) fn line_at(text: &str, byte: usize) -> usize {
    1 + text.bytes().take(byte).filter(|&b| b == b'\n').count()
}

/// Line of a key, or of the innermost table around it that is there. Elements of an array are known by their number.
pub(crate) fn line_of(text: &str, key: &[impl AsRef<str>]) -> Option<usize> {
    use toml::de::DeValue;
    let document = toml::de::DeTable::parse(text).ok()?;
    let (first, rest) = key.split_first()?;
    let (found, mut value) = document.get_ref().iter().find(|(k, _)| k.get_ref() == first.as_ref())?;
    let mut start = found.span().start;
    for name in rest.iter().map(AsRef::as_ref) {
        let inner = match value.get_ref() {
            DeValue::Table(table) => table
                .iter()
                .find(|(k, _)| k.get_ref() == name)
                .map(|(found, value)| (found.span().start, value)),
            DeValue::Array(array) => name
                .parse()
                .ok()
                .and_then(|index: usize| array.get(index))
                .map(|value| (value.span().start, value)),
            _ => None,
        };
        let Some(inner) = inner else { break };
        (start, value) = inner;
    }
    Some(line_at(text, start))
}

/// Number of letters to change, add or remove between two words.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(change: impl Fn(&str) -> String) -> String {
        let text = change(BUILT_IN[1].1);
        assert_ne!(text, BUILT_IN[1].1, "the change changed nothing");
        Loaded::parse(&text, "x.toml", Path::new(".")).unwrap_err().to_string()
    }

    fn replaced(from: &str, to: &str) -> String {
        error(|text| text.replacen(from, to, 1))
    }

    #[test]
    fn built_in_experiments_are_valid_and_survive_their_own_toml() {
        for (name, text) in BUILT_IN {
            let loaded = Loaded::parse(text, name, Path::new(".")).unwrap();
            assert_eq!(loaded.experiment.name, name);
            let again = Loaded::parse(&loaded.experiment.to_toml(), name, Path::new(".")).unwrap();
            assert_eq!(again.experiment, loaded.experiment);
        }
    }

    #[test]
    fn unknown_names_get_a_hint() {
        let message = Loaded::find("chekerboard").unwrap_err().to_string();
        assert!(message.contains("did you mean checkerboard?") && message.contains("lizard"), "{message}");
        assert!(!Loaded::find("xyzzy").unwrap_err().to_string().contains("did you mean"));
        assert!(Loaded::find("none.toml").unwrap_err().to_string().contains("cannot read none.toml"));
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (from, to, part) in [
            ("channels = 8", "channels = \"eight\"", "x.toml:7: invalid type: string \"eight\""),
            ("channels = 8", "chanels = 8", "unknown field `chanels`"),
            ("channels = 8", "channels = 0", "x.toml:7: automaton.channels is 0, not 1 to 128"),
            (
                "channels = 8",
                "channels = 9",
                "update.layers[0] is 264, but 16 kernels x 2 outputs x 9 channels + 9 need 297",
            ),
            (
                "[264, 256",
                "[264, 100",
                "update.layers[1]: 100 gates read at most 200 rows, but the layer before has 264",
            ),
            ("8, 8]", "8, 9]", "the last of update.layers is 9, but there are 8 channels"),
            ("grid = [16, 16]", "grid = [0, 16]", "a side is 0"),
            ("grid = [16, 16]", "grid = [1000000, 1000000]", "GB of memory"),
            ("steps = 20", "steps = 0", "automaton.steps is 0"),
            ("task =", "seeds = 0\ntask =", "seeds is 0, not 1 to 100000"),
            (
                "restarts = 29",
                "restarts = 29\nschedule = { kind = \"cosine\", minimum = 1.0 }",
                "schedule.minimum is 1",
            ),
            (
                "kind = \"random\"",
                "kind = \"boards\"\nboards = [\"#.\\n.#\", \"#.x\"]",
                "x.toml:21: start.boards[1]: line 1: 'x' is none of # . R G B Y",
            ),
            ("kind = \"random\"", "kind = \"boards\"\nboards = []", "start.boards is empty"),
            (
                "kind = \"random\"",
                "kind = \"boards\"\nboards = [\"#################\"]",
                "start.boards[0]: the picture is 1x17 (height x width), but the grid is 16x16",
            ),
            ("batch = 2", "batch = 0", "training.batch is 0"),
            (
                "batch = 2",
                "batch = 2\ncheckpoint_seconds = 1e300",
                "x.toml:30: training.checkpoint_seconds is 1e300, not 0 to 1e9",
            ),
            ("updates = 500", "updates = 0", "training.updates is 0"),
            ("learning_rate = 0.05", "learning_rate = -1.0", "training.learning_rate is -1"),
            ("batch = 2", "batch = 2\ngate_price = -1.0", "training.gate_price is -1"),
            ("batch = 2", "batch = 2\nsteps = [3, 2]", "x.toml:30: training.steps is [3, 2]"),
            ("batch = 2", "batch = 2\nlate = 0", "training.late is 0"),
            ("batch = 2", "batch = 2\nhalf_grown = 1.5", "training.half_grown is 1.5"),
            ("[search]", "[gates]\ngumbel = -1.0\n[search]", "x.toml:33: gates.gumbel is not"),
            ("[search]", "[state]\nflip = 2.0\n[search]", "x.toml:33: state.flip is not"),
            ("[search]", "[state]\nround = \"up\"\n[search]", "unknown variant `up`"),
            ("after = 10", "after = 0", "search.after is 0"),
            ("temperature = [3.0, 1.0]", "temperature = [3.0, 0.0]", "search.temperature is not two numbers"),
            ("boards = 4", "boards = 1000000000", "would need more than 16 GB"),
            ("[search]", "[nothing]", "unknown field `nothing`"),
            ("kernels = 16", "kernels = 0", "perceive.kernels is 0"),
            ("[9, 8, 4, 2]", "[8, 8, 4, 2]", "perceive.layers begins with 9"),
            ("[9, 8, 4, 2]", "[9, 7, 4, 2]", "a moore layer has 8 gates"),
            (
                "[9, 8, 4, 2]",
                "[9, 4, 2, 1]\nfirst = \"wired\"",
                "x.toml:14: perceive.layers[1]: 4 gates read at most 8 rows, but the layer before has 9",
            ),
            ("[9, 8, 4, 2]", "[9, 0, 1]\nfirst = \"wired\"", "perceive.layers[1] is 0, not 1 to 2^24"),
            ("[9, 8, 4, 2]", "[9, 8, 3, 2]", "perceive.layers[2]: 3 gates read at most 6 rows"),
            (
                "kind = \"checkerboard\"\nsquare = 2",
                "kind = \"built-in\"\nname = \"lizard\"",
                "the picture is 20x20 (height x width), but the grid is 16x16",
            ),
            ("kind = \"random\"", "kind = \"rondom\"", "unknown variant `rondom`"),
            ("task = \"automaton\"", "task = \"poem\"", "unknown variant `poem`"),
        ] {
            let message = replaced(from, to);
            assert!(message.contains(part), "{from} -> {to}: {message}");
        }
        assert!(error(|text| format!("{text}\n= 3")).contains("x.toml:"));
        // From 512 rows up to 16 million, nine layers of them, and down by halves.
        let mut wide = vec![264, 256, 512, 130_000];
        wide.extend([1 << 24; 9]);
        wide.extend((1..=21).map(|k| (1 << 24) >> k));
        let message = replaced("layers = [264, 256", &format!("layers = {wide:?} #"));
        assert!(message.contains("gates a cell, more than"), "{message}");
        assert!(error(|text| text[..40].to_string()).contains("missing field"));
    }

    #[test]
    fn grids_without_room_for_the_picture_or_the_start_are_named_with_their_line() {
        let picture = "kind = \"built-in\"\nname = \"lizard\"";
        let text = BUILT_IN[1]
            .1
            .replace("kind = \"checkerboard\"\nsquare = 2", picture)
            .replace("grid = [16, 16]", "grid = [20, 20]");
        let parse = |text: &str| Loaded::parse(text, "x.toml", Path::new("."));
        parse(&text).unwrap();
        let line = |text: &str, part: &str| 1 + text.lines().position(|line| line == part).unwrap();
        let small =
            text.replacen("grid = [64, 64]\nsteps = 80\ndamage", "grid = [64, 19]\nsteps = 80\ndamage", 1);
        let expected = format!(
            "x.toml:{}: evaluate \"fault tolerance\": the picture is 20x20 (height x width), but the grid is 64x19",
            line(&small, "grid = [64, 19]")
        );
        assert_eq!(parse(&small).unwrap_err().to_string(), expected);
        let searched = text.replace("[search]", "[search]\ngrids = [[20, 20], [19, 30]]");
        let expected = format!(
            "x.toml:{}: search.grids[1]: the picture is 20x20 (height x width), but the grid is 19x30",
            line(&searched, "grids = [[20, 20], [19, 30]]")
        );
        assert_eq!(parse(&searched).unwrap_err().to_string(), expected);
        let board = BUILT_IN[1]
            .1
            .replacen("kind = \"random\"", "kind = \"boards\"\nboards = [\"#\\n#\"]", 1)
            .replacen("grid = [64, 64]", "grid = [1, 64]", 1);
        let said = parse(&board).unwrap_err().to_string();
        let expected = format!(
            "x.toml:{}: evaluate \"generalisation\": start.boards[0]: the picture is 2x1 (height x width), but the \
             grid is 1x64",
            line(&board, "grid = [1, 64]")
        );
        assert_eq!(said, expected);
    }

    #[test]
    fn settings_that_were_changed_are_checked_again() {
        let mut loaded = Loaded::find("checkerboard").unwrap();
        loaded.check("checkerboard").unwrap();
        loaded.experiment.training.updates = 2_000_000_000_000;
        let said = loaded.check("checkerboard").unwrap_err().to_string();
        assert_eq!(said, "checkerboard: training.updates is 2000000000000, not 1 to 2^40");
    }
}
