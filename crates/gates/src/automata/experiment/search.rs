//! The `[search]` table of an experiment.

use gatework_train::pairs::{two, twos};
use serde::{Deserialize, Serialize};

use crate::removed::{self, Removed};

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
    #[serde(default, skip_serializing, deserialize_with = "removed::search_ladder")]
    ladder: Removed,
    #[serde(default, skip_serializing, deserialize_with = "removed::search_retrain")]
    retrain: Removed,
    #[serde(default, skip_serializing, deserialize_with = "removed::search_guided")]
    guided: Removed,
}

fn one() -> usize {
    1
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
