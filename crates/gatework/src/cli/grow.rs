//! `gatework grow`: grows a picture, or a pattern, with settings that are chosen for it.

use std::path::PathBuf;

use clap::Args;
use gatework_gates::automata::choose;
use gatework_gates::automata::states::Phase;
use gatework_gates::automata::success::Heal;

use super::Choices;
use super::train::{Job, Options};

/// Grow a picture from one cell, or a tile over the plane: all settings are chosen for it
#[derive(Debug, Args)]
#[command(
    after_help = "A pixel is a cell: at most 64x64, and 16 colours with the background. The background is the colour of \
most of the border, or transparent. In a text file every character is a cell, and . or a space is background.

Examples:
  gatework grow heart.png
  gatework grow letter.txt --seed 3
  gatework grow heart.png --stay
  gatework grow heart.png --heal
  gatework grow bricks.txt --repeat
  gatework grow bricks.txt --repeat --from seed
  gatework list heart.png > heart.toml; gatework train heart.toml"
)]
pub struct Grow {
    /// A picture: PNG, text or RLE
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The picture is a tile that repeats over the plane
    #[arg(long)]
    repeat: bool,
    /// What a tile grows from [default: noise]
    #[arg(long, requires = "repeat", value_parser = super::choice(STARTS))]
    from: Option<bool>,
    /// Where the tile may begin [default: anchored]
    #[arg(long, requires = "repeat", value_parser = super::choice(PHASES))]
    phase: Option<Phase>,
    /// It has to stay: right at every step from the last one on
    #[arg(long)]
    stay: bool,
    /// It has to stay, and to grow again after a hole of SIZE x SIZE cells anywhere [default SIZE: 5, or less in a small picture]
    #[arg(long, value_name = "SIZE", num_args = 0..=1, value_parser = parse_hole)]
    #[expect(clippy::option_option, reason = "clap: an option whose value is optional")]
    heal: Option<Option<usize>>,
    #[command(flatten)]
    options: Options,
}

/// What a tile grows from; true for a seed.
static STARTS: &Choices<bool> = &[
    ("noise", "Random bits; the edge of the grid gives the tile its place", false),
    ("seed", "One cell on a torus", true),
];

/// Where a tile may begin.
static PHASES: &Choices<Phase> = &[
    ("anchored", "In the first row and column, or at the seed", Phase::Anchored),
    ("any", "Anywhere", Phase::Any),
];

impl Grow {
    pub fn run(&self) -> anyhow::Result<()> {
        let mut chosen = if self.repeat {
            choose::pattern(&self.file, self.from.unwrap_or(false), self.phase.unwrap_or_default())?
        } else {
            choose::picture(&self.file)?
        };
        let experiment = &mut chosen.loaded.experiment;
        experiment.success.stay = self.stay;
        experiment.success.heal = self.heal.map(|size| {
            let size = size.unwrap_or_else(|| Heal::default_size(experiment.automaton.grid));
            Heal { size, within: None }
        });
        let request = self.file.display().to_string();
        Job { request: &request, recipe: None, horizon: None, options: &self.options }.train_chosen(chosen)
    }
}

/// Parses the sides of a hole.
fn parse_hole(text: &str) -> Result<usize, String> {
    let size = text.parse().ok().filter(|size| *size > 0);
    size.ok_or_else(|| "expected a number of cells above 0, for example 5".into())
}
