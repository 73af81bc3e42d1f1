//! `gatework grow`: grows a picture, or a pattern, with settings that are chosen for it.

use std::path::PathBuf;

use clap::Args;
use gatework_gates::automata::choose;

use super::Choices;
use super::train::{Job, Options};

/// Grow a picture from one cell, or a tile over the plane: all settings are chosen for it
#[derive(Debug, Args)]
#[command(
    after_help = "A pixel is a cell: at most 64x64, and 16 colours with the background. The background is the colour of
most of the border, or transparent. In a text file every character is a cell, and . or a space is background.

Examples:
  gatework grow heart.png
  gatework grow letter.txt --seed 3
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
    #[command(flatten)]
    options: Options,
}

/// What a tile grows from; true for a seed.
static STARTS: &Choices<bool> = &[
    ("noise", "Random bits; the edge of the grid gives the tile its place", false),
    ("seed", "One cell on a torus", true),
];

impl Grow {
    pub fn run(&self) -> anyhow::Result<()> {
        let chosen = if self.repeat {
            choose::pattern(&self.file, self.from.unwrap_or(false))?
        } else {
            choose::picture(&self.file)?
        };
        let request = self.file.display().to_string();
        Job { request: &request, recipe: None, horizon: None, options: &self.options }.train_chosen(chosen)
    }
}
