//! `gatework simulate`: a learned rule on a board of any size, as a GIF.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::hard::{Conditions, Damage, DamageKind, HardRun};
use gatework_gates::automata::states::{Start, Target};
use gatework_logic::minimize::{Effort, Options, minimize};
use gatework_logic::prove::{Verdict, equivalent_within};
use gatework_logic::{Automaton, Gate, Grid};
use gatework_train::files;
use gatework_train::random::{Purpose, Random};
use serde_json::json;

use crate::report::{self, Animation, Colouring, Picture};
use crate::subject::Subject;
use crate::usage::Usage;

/// Let a learned rule run on a board, and make a GIF of it
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  gatework simulate runs/checkerboard --size 64x64 --steps 80 --gif big.gif
  gatework simulate runs/checkerboard --async 0.6 --damage random:10 --steps 400 --gif storm.gif
  gatework simulate runs/lizard --size 40x40 --hidden --gif inside.gif")]
pub struct Simulate {
    /// A run folder, a model.safetensors or a circuit.json
    #[arg(value_name = "RUN|FILE")]
    subject: PathBuf,
    /// Height and width [default: as in training, or 64x64]
    #[arg(long, value_name = "HxW", value_parser = super::parse_size)]
    size: Option<[usize; 2]>,
    /// Steps [default: as in training, or 80]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    steps: Option<u64>,
    /// Update only this share of the cells in each step; 1 for all [default: as in training]
    #[arg(long = "async", value_name = "RATE", value_parser = super::parse_rate)]
    fire_rate: Option<f32>,
    /// Zero a square after each step: centre:SIZE, random:SIZE, or centre:SIZE:UNTIL
    #[arg(long, value_name = "WHERE", value_parser = parse_damage)]
    damage: Option<Damage>,
    /// What the board starts from [default: as in training, or random]
    #[arg(long, value_enum)]
    start: Option<StartKind>,
    /// Seed of the start state, of firing and of damage
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Write the board as an animated GIF: after every step, or in strides for long runs
    #[arg(long, value_name = "FILE.gif", value_parser = parse_gif)]
    gif: Option<PathBuf>,
    /// Show all channels in the GIF, not only those that were learned
    #[arg(long)]
    hidden: bool,
    /// Print a summary as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// What a board starts from.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum StartKind {
    /// Random bits
    Random,
    /// Ones in the middle cell
    Seed,
    /// Zeros
    Zeros,
}

impl Simulate {
    pub fn run(&self) -> anyhow::Result<()> {
        let subject = Subject::open(&self.subject)?;
        let automaton = subject.automaton()?;
        let trained = subject.loaded.as_ref().map(|loaded| &loaded.experiment);
        let [height, width] = self.size.or(trained.map(|e| e.automaton.grid)).unwrap_or([64, 64]);
        let steps = self.steps.map(|n| n as usize).or(trained.map(|e| e.automaton.steps)).unwrap_or(80);
        let fire_rate =
            self.fire_rate.or(trained.and_then(|e| e.automaton.fire_rate)).filter(|rate| *rate < 1.0);
        let start = match (self.start, trained) {
            (Some(StartKind::Random), _) | (None, None) => Start::Random,
            (Some(StartKind::Seed), _) => Start::Seed,
            (Some(StartKind::Zeros), _) => Start::Zeros,
            (None, Some(experiment)) => experiment.start.clone(),
        };
        let mut grid = Grid::new(1, height, width, automaton.channels).map_err(|e| Usage(e.to_string()))?;
        start
            .fill(&mut grid, &mut Random::new(self.seed, Purpose::Check, 0))
            .map_err(|e| Usage(e.to_string()))?;
        // Life goes its own way where not all cells fire, or some are damaged.
        let alone = fire_rate.is_none() && self.damage.is_none();
        let judged = |loaded: &&AutomatonExperiment| alone || loaded.target != Target::GameOfLife;
        let target = match subject.loaded.as_ref().filter(judged) {
            Some(loaded) => loaded.target.grids(&grid, automaton.boundary, steps).ok(),
            None => None,
        };
        let conditions = Conditions { fire_rate, damage: self.damage };
        let channels = if self.hidden { automaton.channels } else { subject.observed };
        let rule = rule_for(automaton, (height * width).saturating_mul(steps));
        let mut run = HardRun::new(&rule, channels, grid, conditions, self.seed)?;
        let mut film = self.gif.as_ref().map(|_| Film::new(&run, channels, subject.observed, steps));
        film.iter_mut().try_for_each(|film| film.take(&run))?;
        let begin = Instant::now();
        let stride = film.as_ref().map_or(steps, |film| film.stride);
        while run.steps() < steps {
            run.run(stride.min(steps - run.steps()))?;
            film.iter_mut().try_for_each(|film| film.take(&run))?;
        }
        let seconds = begin.elapsed().as_secs_f64();
        let wrong = target.map(|target| run.wrong_but_damaged(&target)).transpose()?;
        if let (Some(path), Some(film)) = (&self.gif, film) {
            files::write_whole(path, &film.gif()?)?;
            say!("Wrote {}", path.display());
        }
        let alive: Vec<usize> =
            (0..subject.observed).map(|channel| run.grid().count_ones(0, channel)).collect();
        answer!(
            "{height}x{width} cells, {steps} steps in {seconds:.3} s; ones in the learned channels: {alive:?}"
        );
        let compared = (height * width - run.damaged_cells()) * subject.observed;
        match wrong {
            Some(_) if compared == 0 => {
                answer!(
                    "every cell was damaged in the last step: nothing is left to compare with the target"
                );
            }
            Some(wrong) => {
                let but = if run.damaged_cells() > 0 {
                    " (cells damaged in the last step are not counted)"
                } else {
                    ""
                };
                answer!("{wrong} of {compared} bits differ from the target{but}");
            }
            None => {}
        }
        if self.json {
            super::print_json(&json!({
                "height": height, "width": width, "steps": steps, "seconds": seconds, "ones": alive,
                "wrong": wrong, "compared": wrong.map(|_| compared), "gif": self.gif,
            }))?;
        }
        Ok(())
    }
}

/// Gates times cells times steps that take so long that a smaller rule is worth its making.
const LONG_RUN: usize = 1 << 36;
/// The time that a proof may take before a run; without it the rule runs as it was learned.
const PROOF_TIME: Duration = Duration::from_secs(2);

/// The rule as it is for a short run; for a long one, a rule of fewer gates that was proved to have the same new bits in
/// all channels.
fn rule_for(automaton: &Automaton, cell_steps: usize) -> Cow<'_, Automaton> {
    if cell_steps.saturating_mul(automaton.circuit.reachable()) < LONG_RUN {
        return Cow::Borrowed(automaton);
    }
    let options = Options { effort: Effort::Fast, ..Options::default() };
    let circuit = minimize(&automaton.circuit, &options).circuit;
    match equivalent_within(&automaton.circuit, &circuit, PROOF_TIME) {
        Ok(Verdict::Equal) => Cow::Owned(Automaton { circuit, ..automaton.clone() }),
        _ => Cow::Borrowed(automaton),
    }
}

fn parse_damage(text: &str) -> Result<Damage, String> {
    let wrong =
        || "damage is centre:SIZE, random:SIZE or centre:SIZE:UNTIL, for example centre:20:40".to_string();
    let mut words = text.split(':');
    let kind = match words.next() {
        Some("centre" | "center") => DamageKind::Centre,
        Some("random") => DamageKind::Random,
        _ => return Err(wrong()),
    };
    let number = |word: &str| word.parse::<usize>().ok().filter(|n| *n > 0).ok_or_else(wrong);
    let size = number(words.next().ok_or_else(wrong)?)?;
    let until = words.next().map(number).transpose()?;
    if words.next().is_some() { Err(wrong()) } else { Ok(Damage { kind, size, until }) }
}

/// Parses the name of a GIF. Another ending would promise another format.
fn parse_gif(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    let is_gif = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("gif"));
    if is_gif { Ok(path) } else { Err("a GIF is written; its name ends in .gif".into()) }
}

/// Frames of a GIF at most: longer runs are shown in strides.
const MOST_FRAMES: usize = 240;

/// Cells of all frames together at most, so that the GIF of a large board takes neither hours nor gigabytes.
const MOST_CELLS: usize = 1 << 30;

/// The frames of a run.
struct Film {
    channels: usize,
    observed: usize,
    stride: usize,
    steps: usize,
    animation: Animation,
}

impl Film {
    /// A film of the first `channels` of a run that goes on for `steps`.
    fn new(run: &HardRun, channels: usize, observed: usize, steps: usize) -> Film {
        let cells = run.grid().cells() * if channels > observed { channels } else { 1 };
        let frames = MOST_FRAMES.min(MOST_CELLS / cells).max(2);
        let stride = steps.div_ceil(frames).max(1);
        let delay = if steps / stride > 100 { 4 } else { 8 };
        let colouring = Film::colouring(channels, observed);
        let options = report::Options { delay, ..Default::default() };
        Film { channels, observed, stride, steps, animation: Animation::new(&colouring.colours(), options) }
    }

    /// A mosaic of all channels is ink on paper.
    fn colouring(channels: usize, observed: usize) -> Colouring {
        if channels > observed { Colouring::Ink } else { Colouring::for_loss_channels(observed) }
    }

    fn take(&mut self, run: &HardRun) -> anyhow::Result<()> {
        if !run.steps().is_multiple_of(self.stride) && run.steps() != self.steps {
            return Ok(());
        }
        let grid = run.grid();
        let value = |channel, y, x| f32::from(u8::from(grid.get(0, channel, y, x)));
        let picture = if self.channels > self.observed {
            Picture::mosaic(self.channels, grid.height(), grid.width(), value)
        } else {
            let colouring = Film::colouring(self.channels, self.observed);
            Picture::from_channels(grid.height(), grid.width(), colouring, value)
        };
        Ok(self.animation.show(picture?)?)
    }

    fn gif(self) -> anyhow::Result<Vec<u8>> {
        Ok(self.animation.finish()?)
    }
}

/// The rollout.gif of a run folder. A pattern is shown for twice the steps of training, so that one sees whether it
/// stays; a picture is grown to the step that it was learned for.
pub fn training_gif(
    loaded: &AutomatonExperiment,
    automaton: &Automaton,
    seed: u64,
    hidden: bool,
) -> anyhow::Result<Vec<u8>> {
    let experiment = &loaded.experiment;
    // A rule of one step on a tiny grid, such as Life, is shown on a board where one sees something.
    let single = experiment.automaton.steps == 1;
    let [height, width] = if single { [48, 48] } else { experiment.automaton.grid };
    let picture = matches!(loaded.target, Target::Picture(_));
    let steps = if single { 100 } else { experiment.automaton.steps * if picture { 1 } else { 2 } };
    let mut grid = Grid::new(1, height, width, automaton.channels)?;
    experiment.start.fill(&mut grid, &mut Random::new(seed, Purpose::Check, 1))?;
    let observed = loaded.target.channels();
    let channels = if hidden { automaton.channels } else { observed };
    let conditions = Conditions { fire_rate: experiment.automaton.fire_rate, damage: None };
    let mut run = HardRun::new(automaton, channels, grid, conditions, seed)?;
    let mut film = Film::new(&run, channels, observed, steps);
    film.take(&run)?;
    for _ in 0..steps {
        run.step()?;
        film.take(&run)?;
    }
    film.gif()
}

/// How often each function occurs, by its name.
pub fn histogram(functions: &[Gate]) -> Vec<(String, usize)> {
    let count = |gate: Gate| functions.iter().filter(|&&function| function == gate).count();
    Gate::ALL.iter().map(|&gate| (gate.name().to_string(), count(gate))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_logic::{Boundary, Circuit, Node, rules};

    #[test]
    fn only_a_long_run_gets_a_smaller_rule() {
        let mut life = rules::life(Boundary::Torus);
        // The same cell from a second copy of the rule, and both agree.
        let own = life.circuit.nodes().to_vec();
        let moved = |signal: u32| if signal < 9 { signal } else { signal + own.len() as u32 };
        let copies = own.iter().map(|node| Node::new(node.gate, moved(node.a), moved(node.b)));
        let mut nodes: Vec<Node> = own.iter().copied().chain(copies).collect();
        let output = life.circuit.outputs()[0];
        nodes.push(Node::new(Gate::AND, output, moved(output)));
        let last = 8 + nodes.len() as u32;
        life.circuit = Circuit::new(9, nodes, vec![last]).unwrap();
        assert!(matches!(rule_for(&life, 1 << 20), Cow::Borrowed(_)));
        let rule = rule_for(&life, 1 << 40);
        assert!(rule.circuit.nodes().len() <= own.len());
        assert_eq!(equivalent_within(&rule.circuit, &life.circuit, PROOF_TIME), Ok(Verdict::Equal));
    }
}
