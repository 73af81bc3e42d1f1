//! `gatework simulate`: simulates a learned automaton on a grid of any size.

use std::path::{Path, PathBuf};

use clap::Args;
use gatework_gates::automata::hard::{Damage, DamageKind};
use gatework_gates::automata::states::Start;
use gatework_train::files;
use serde_json::json;

use super::Usage;
use crate::progress::Counter;
use crate::simulation::{Simulated, Simulation, StartGrid};
use crate::subject::Subject;

/// Simulate a learned automaton on a grid of any size, and write a GIF of it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gatework simulate runs/checkerboard --size 64x64 --steps 80 --gif big.gif
  gatework simulate runs/checkerboard --async 0.6 --damage random:10 --steps 400 --gif storm.gif
  gatework simulate runs/lizard --size 40x40 --hidden --gif inside.gif
  gatework simulate runs/game-of-life --start glider.rle --size 64x64 --gif glider.gif
  gatework simulate runs/checkerboard --damage centre:20:100-100 --steps 200 --gif hole.gif")]
pub struct Simulate {
    /// A run folder, a model.safetensors or a circuit.json
    #[arg(value_name = "RUN|FILE")]
    subject: PathBuf,
    /// Height and width [default: as in training, or 64x64]
    #[arg(long, value_name = "HxW", value_parser = super::parse_size)]
    size: Option<[usize; 2]>,
    /// Number of steps [default: as in training, or 80]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    steps: Option<u64>,
    /// Update only this fraction of the cells in each step; 1 for all [default: as in training]
    #[arg(long = "async", value_name = "RATE", value_parser = super::parse_rate)]
    fire_rate: Option<f32>,
    /// Set a square of cells to 0 after each step: centre:SIZE or random:SIZE, with :LAST or :FIRST-LAST for some of the steps, counted from 1
    #[arg(long, value_name = "WHERE", value_parser = parse_damage)]
    damage: Option<Damage>,
    /// Start state: random, seed, zeros, or the file of a grid (text, RLE or PNG) [default: as in training, or random]
    #[arg(long, value_name = "KIND|FILE")]
    start: Option<String>,
    /// Seed of the start state, of asynchronous updates and of damage
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Write an animated GIF with a frame for every step, or for every n-th step of a long run
    #[arg(long, value_name = "FILE.gif", value_parser = super::parse_gif)]
    gif: Option<PathBuf>,
    /// Show all channels in the GIF, not only the observed ones
    #[arg(long)]
    hidden: bool,
    /// Print a summary as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// The kinds of start states.
const STARTS: [(&str, Start); 3] =
    [("random", Start::Random), ("seed", Start::Seed), ("zeros", Start::Zeros)];

impl Simulate {
    pub fn run(&self) -> anyhow::Result<()> {
        let subject = Subject::open(&self.subject)?;
        let (start, grid) = self.start()?;
        let simulation = Simulation {
            size: self.size,
            steps: self.steps.map(|steps| steps as usize),
            fire_rate: self.fire_rate,
            damage: self.damage,
            start,
            grid,
            seed: self.seed,
            gif: self.gif.is_some(),
            hidden: self.hidden,
        };
        let progress = Counter::new("steps");
        let result = simulation.run_observed(&subject, |done, total| progress.show(done, total))?;
        drop(progress);
        if let (Some(path), Some(gif)) = (&self.gif, &result.gif) {
            files::write_atomic(path, gif)?;
            status!("Wrote {}", path.display());
        }
        self.print(&result)
    }

    /// The kind of the start state, or its grid.
    fn start(&self) -> anyhow::Result<(Option<Start>, Option<StartGrid>)> {
        let Some(text) = &self.start else { return Ok((None, None)) };
        if let Some((_, start)) = STARTS.iter().find(|(name, _)| name == text) {
            return Ok((Some(start.clone()), None));
        }
        let path = Path::new(text);
        if !path.is_file() {
            let message = format!("--start is {text:?}, which is neither random, seed or zeros nor a file");
            return Err(Usage(message).into());
        }
        let grid =
            StartGrid::from_bytes(&files::read(path)?).map_err(|error| Usage(format!("{text}: {error}")))?;
        Ok((None, Some(grid)))
    }

    fn print(&self, result: &Simulated) -> anyhow::Result<()> {
        let Simulated { size: [height, width], steps, seconds, ones, wrong, compared, damaged, .. } = result;
        print_line!(
            "{height}x{width} cells, {steps} steps in {seconds:.3} s; ones in the observed channels: {ones:?}"
        );
        match wrong {
            Some(_) if *compared == 0 => {
                print_line!(
                    "every cell was damaged in the last step: there is nothing to compare with the target"
                );
            }
            Some(wrong) => {
                let note =
                    if *damaged > 0 { " (cells damaged in the last step are not counted)" } else { "" };
                print_line!("{wrong} of {compared} bits differ from the target{note}");
            }
            None => {}
        }
        if self.json {
            super::print_json(&json!({
                "height": height, "width": width, "steps": steps, "seconds": seconds, "ones": ones,
                "wrong": wrong, "compared": wrong.map(|_| compared), "gif": self.gif,
            }))?;
        }
        Ok(())
    }
}

/// Parses WHERE:SIZE, WHERE:SIZE:LAST or WHERE:SIZE:FIRST-LAST; steps count from 1.
fn parse_damage(text: &str) -> Result<Damage, String> {
    let wrong = || {
        "expected centre:SIZE or random:SIZE, with :LAST or :FIRST-LAST, for example centre:20:40 or centre:20:100-100"
            .to_string()
    };
    let mut words = text.split(':');
    let kind = match words.next() {
        Some("centre" | "center") => DamageKind::Centre,
        Some("random") => DamageKind::Random,
        _ => return Err(wrong()),
    };
    let number = |word: &str| word.parse::<usize>().ok().filter(|n| *n > 0).ok_or_else(wrong);
    let size = number(words.next().ok_or_else(wrong)?)?;
    let (from, until) = match words.next().map(|word| word.split_once('-').ok_or(word)) {
        None => (0, None),
        Some(Err(until)) => (0, Some(number(until)?)),
        Some(Ok((first, ""))) => (number(first)? - 1, None),
        Some(Ok((first, last))) => (number(first)? - 1, Some(number(last)?)),
    };
    if words.next().is_some() || until.is_some_and(|until| until <= from) {
        return Err(wrong());
    }
    Ok(Damage { kind, size, from, until })
}
