//! Start and target states of a rollout.

use std::path::Path;

use gatework_logic::simulate::Runner;
use gatework_logic::{AutomatonError, Boundary, Grid, GridError, naive_step};
use serde::{Deserialize, Serialize};

use super::construct::{Anchor, Axes};
use super::family::Family;
pub use super::picture::Bitmap;
use super::picture::{MAX_COLOURS, Rgb};
use super::rule::{CellRule, RuleError};
use gatework_train::files;
use gatework_train::random::Random;

/// The start state of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", from = "StartTable")]
#[non_exhaustive]
pub enum Start {
    /// Random bits in all channels, new for every update.
    #[default]
    Random,
    /// Zeros, with ones in all channels of the central cell.
    Seed,
    /// Zeros everywhere.
    Zeros,
    /// One of these grids, drawn for every sample. `#` is 1 in channel 0; letters as in targets.
    Grids {
        /// The grids, as text.
        grids: Vec<String>,
    },
}

/// The `[start]` table. Unknown keys of a unit variant would be ignored.
#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
enum StartTable {
    Random {},
    Seed {},
    Zeros {},
    #[serde(alias = "boards")]
    Grids {
        #[serde(alias = "boards")]
        grids: Vec<String>,
    },
}

impl From<StartTable> for Start {
    fn from(table: StartTable) -> Start {
        match table {
            StartTable::Random {} => Start::Random,
            StartTable::Seed {} => Start::Seed,
            StartTable::Zeros {} => Start::Zeros,
            StartTable::Grids { grids } => Start::Grids { grids },
        }
    }
}

impl Start {
    /// Returns true if every rollout has the same start state.
    pub fn is_fixed(&self) -> bool {
        match self {
            Start::Random => false,
            Start::Seed | Start::Zeros => true,
            Start::Grids { grids } => grids.len() == 1,
        }
    }

    /// Returns true if every rollout has the same start state, with equal bits in all channels.
    pub fn has_equal_channels(&self) -> bool {
        matches!(self, Start::Seed | Start::Zeros)
    }

    /// Checks that given grids can be read and fit a grid of this height and width; the error begins with their key.
    pub fn check(&self, [height, width]: [usize; 2], channels: usize) -> Result<(), String> {
        let Start::Grids { grids } = self else { return Ok(()) };
        if grids.is_empty() {
            return Err("grids is empty".into());
        }
        for (i, text) in grids.iter().enumerate() {
            let fits = Bitmap::from_text(text).and_then(|bitmap| bitmap.check_fit(height, width, channels));
            fits.map_err(|error| format!("grids[{i}]: {error}"))?;
        }
        Ok(())
    }

    /// Returns the number of start states, if they are a list.
    pub(super) fn count(&self) -> Option<usize> {
        match self {
            Start::Grids { grids } => Some(grids.len()),
            _ => None,
        }
    }

    /// Fills a zeroed grid with start states: those of a list in order, as far as there are samples, or else random ones.
    pub(super) fn fill_in_order(&self, grid: &mut Grid, random: &mut Random) -> Result<(), StateError> {
        let Start::Grids { grids } = self else { return self.fill(grid, random) };
        for (sample, text) in (0..grid.samples()).zip(grids.iter().cycle()) {
            Bitmap::from_text(text)?.place(grid, sample)?;
        }
        Ok(())
    }

    /// Fills a zeroed grid with start states.
    pub fn fill(&self, grid: &mut Grid, random: &mut Random) -> Result<(), StateError> {
        let (height, width) = (grid.height(), grid.width());
        match self {
            Start::Zeros => {}
            Start::Seed => {
                for sample in 0..grid.samples() {
                    for channel in 0..grid.channels() {
                        grid.set(sample, channel, height / 2, width / 2, true);
                    }
                }
            }
            Start::Random => fill_random(grid, random),
            Start::Grids { grids } => {
                for sample in 0..grid.samples() {
                    let bitmap = Bitmap::from_text(&grids[random.below(grids.len())])?;
                    bitmap.place(grid, sample)?;
                }
            }
        }
        Ok(())
    }
}

/// Fills all channels with random bits.
fn fill_random(grid: &mut Grid, random: &mut Random) {
    let (words, tail) = (grid.words_per_sample(), grid.tail_mask());
    for channel in 0..grid.channels() {
        for sample in grid.plane_mut(channel).chunks_exact_mut(words) {
            sample.fill_with(|| random.word());
            if let Some(last) = sample.last_mut() {
                *last &= tail;
            }
        }
    }
}

/// The target of a rollout: the `[target]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum TargetSpec {
    /// Squares of 0 and 1.
    Checkerboard {
        /// Side of the squares.
        #[serde(default = "two")]
        square: usize,
    },
    /// The state of Conway's Game of Life after the steps of the automaton.
    GameOfLife {},
    /// A picture that ships with Gatework: `lizard` or `colored-g`.
    BuiltIn {
        /// Its name.
        name: String,
    },
    /// A picture as text: `#` is 1 and `.` is 0; or R, G, B and Y (yellow) for three channels.
    Text {
        /// The file, seen from the experiment's folder.
        file: String,
    },
    /// A PNG: one channel if it is grey, three if it is coloured; half brightness and more is 1.
    Png {
        /// The file, seen from the experiment's folder.
        file: String,
    },
    /// A picture by its colours: PNG, text or RLE. The background is 0, and the colours have as few channels as they need.
    Picture {
        /// The file, seen from the experiment's folder.
        file: String,
    },
    /// A tile that repeats over the plane.
    Pattern {
        /// The tile, as text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tile: Option<String>,
        /// The file of the tile, seen from the experiment's folder: PNG, text or RLE.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        file: Option<String>,
        /// Whether the tile has a place, or counts wherever it begins.
        #[serde(default)]
        phase: Phase,
    },
    /// The state of a cellular automaton after the steps of the experiment. Exactly one of the keys is given.
    Rule {
        /// A name: `B36/S23` (birth and survival), `B2/S/C3` (Generations), `rule:110` (elementary).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rule: Option<String>,
        /// 512 digits, one for each neighbourhood, or 8 as in Wolfram's numbering.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        table: Option<String>,
        /// The file of a circuit that computes a cell from its neighbourhood, seen from the experiment's folder.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        circuit: Option<String>,
    },
    /// Any pattern in which only these neighbourhoods occur.
    Neighbourhoods {
        /// The neighbourhoods, as text of three rows each.
        allowed: Vec<String>,
    },
    /// Grids before and after the steps of the experiment.
    Pairs {
        /// The pairs, as text.
        pairs: Vec<Pair>,
    },
}

/// A grid before and after the steps of an experiment, as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pair {
    /// The start state.
    pub before: String,
    /// What it should become.
    pub after: String,
}

/// Whether a pattern has a place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The tile begins in the first row and column.
    #[default]
    Anchored,
    /// The tile may begin anywhere.
    Any,
}

impl TargetSpec {
    /// Returns the file that the target refers to.
    pub fn file(&self) -> Option<&str> {
        match self {
            TargetSpec::Text { file } | TargetSpec::Png { file } | TargetSpec::Picture { file } => Some(file),
            TargetSpec::Pattern { file, .. } => file.as_deref(),
            TargetSpec::Rule { circuit, .. } => circuit.as_deref(),
            _ => None,
        }
    }

    /// Replaces the file that the target refers to.
    pub fn set_file(&mut self, name: &str) {
        match self {
            TargetSpec::Text { file } | TargetSpec::Png { file } | TargetSpec::Picture { file } => {
                *file = name.into();
            }
            TargetSpec::Pattern { file, .. } => *file = Some(name.into()),
            TargetSpec::Rule { circuit, .. } => *circuit = Some(name.into()),
            _ => {}
        }
    }
}

fn two() -> usize {
    2
}

/// Pictures that ship with Gatework.
pub const BUILT_IN: [(&str, &str); 2] = [
    ("lizard", include_str!("../../data/targets/lizard.txt")),
    ("colored-g", include_str!("../../data/targets/colored_g.txt")),
];

/// The error of a start or target state that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The rule of the target is invalid.
    #[error(transparent)]
    Automaton(#[from] AutomatonError),
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] files::FileError),
    /// Lines of different lengths, an unknown letter, or no picture at all.
    #[error("line {line}: {problem}")]
    Text {
        /// The line, from 1.
        line: usize,
        /// The problem.
        problem: String,
    },
    /// A file that is neither a picture nor text.
    #[error("neither a PNG nor text")]
    Unreadable,
    /// A picture in another format.
    #[error("a {0} file; convert it to PNG, a pixel for a cell")]
    Format(&'static str),
    /// More colours than a picture may have.
    #[error("{found} colours, but a picture has at most {MAX_COLOURS}, the background included")]
    Colours {
        /// The number of colours.
        found: usize,
    },
    /// The rule of the target cannot be read.
    #[error(transparent)]
    Rule(#[from] RuleError),
    /// Keys of a target that do not go together.
    #[error("{0}")]
    Keys(String),
    /// A step of the target's rule cannot be made.
    #[error(transparent)]
    Step(#[from] gatework_logic::StepError),
    /// Pairs of grids that no rule can satisfy.
    #[error("pairs[{first}] and pairs[{second}] contradict each other: {problem}")]
    Contradiction {
        /// The index of a pair.
        first: usize,
        /// The index of a later or the same pair.
        second: usize,
        /// Where they differ.
        problem: String,
    },
    /// A PNG that cannot be decoded.
    #[error("not a PNG that can be read: {0}")]
    Png(#[from] png::DecodingError),
    /// An unknown built-in picture.
    #[error("no built-in picture {0:?}; there are lizard and colored-g")]
    Unknown(String),
    /// A picture that is larger than the grid, or does not have its size.
    #[error("the picture is {found} (height x width), but the grid is {grid}")]
    Size {
        /// Size of the picture.
        found: String,
        /// Size of the grid.
        grid: String,
    },
    /// More channels than the automaton has.
    #[error("the picture has {found} channels, but a cell has {channels}")]
    Channels {
        /// Channels of the picture.
        found: usize,
        /// Channels of a cell.
        channels: usize,
    },
    /// A grid that cannot be made.
    #[error(transparent)]
    Grid(#[from] GridError),
}

/// The target of a rollout, loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// A picture.
    Picture(Bitmap),
    /// A tile that repeats over the plane.
    Pattern {
        /// The tile.
        tile: Bitmap,
        /// Whether it has a place.
        phase: Phase,
        /// The family of which the tile is a member, if any member will do.
        family: Option<Family>,
    },
    /// The rule of a cellular automaton.
    Rule(CellRule),
    /// Pairs of grids before and after.
    Pairs(Vec<[Bitmap; 2]>),
}

/// Maximum side of the squares of a checkerboard.
const MAX_SQUARE: usize = 1024;

impl Target {
    /// Loads the target of an experiment; files are relative to `folder`.
    pub fn load(spec: &TargetSpec, folder: &Path) -> Result<Target, StateError> {
        let read = |file: &str| files::read(&folder.join(file));
        Ok(match spec {
            TargetSpec::Checkerboard { square } => {
                if *square > MAX_SQUARE {
                    return Err(StateError::Keys(format!("square is {square}, more than {MAX_SQUARE}")));
                }
                Target::checkerboard(*square)
            }
            TargetSpec::GameOfLife {} => Target::Rule(CellRule::parse("B3/S23")?),
            TargetSpec::BuiltIn { name } => {
                let text = BUILT_IN.iter().find(|(known, _)| known == name);
                let (_, text) = text.ok_or_else(|| StateError::Unknown(name.clone()))?;
                Target::Picture(Bitmap::from_text(text)?)
            }
            TargetSpec::Text { file } => {
                Target::Picture(Bitmap::from_text(&files::read_text(&folder.join(file))?)?)
            }
            TargetSpec::Png { file } => Target::Picture(Bitmap::from_png(&read(file)?)?),
            TargetSpec::Picture { file } => Target::Picture(Bitmap::from_bytes(&read(file)?)?.0),
            TargetSpec::Pattern { tile, file, phase } => {
                let tile = match (tile, file) {
                    (Some(text), None) => Bitmap::tile_from_text(text)?,
                    (None, Some(file)) => Bitmap::tile_from_bytes(&read(file)?)?.0,
                    _ => return Err(StateError::Keys("a pattern has either tile or file".into())),
                };
                Target::Pattern { tile, phase: *phase, family: None }
            }
            TargetSpec::Neighbourhoods { allowed } => {
                let family = Family::new(allowed)?;
                Target::Pattern { tile: family.tile()?, phase: Phase::Any, family: Some(family) }
            }
            TargetSpec::Rule { rule, table, circuit } => Target::Rule(match (rule, table, circuit) {
                (Some(name), None, None) => CellRule::parse(name)?,
                (None, Some(table), None) => CellRule::from_table(table)?,
                (None, None, Some(file)) => CellRule::from_file(&folder.join(file), &read(file)?)?,
                _ => {
                    return Err(StateError::Keys("a rule has exactly one of rule, table and circuit".into()));
                }
            }),
            TargetSpec::Pairs { pairs } => {
                let pair = |pair: &Pair| -> Result<[Bitmap; 2], StateError> {
                    Ok([Bitmap::from_text(&pair.before)?, Bitmap::from_text(&pair.after)?])
                };
                Target::Pairs(pairs.iter().map(pair).collect::<Result<_, _>>()?)
            }
        })
    }

    /// A checkerboard with squares of this side, whose first square is 0.
    pub fn checkerboard(square: usize) -> Target {
        let (square, side) = (square.max(1), 2 * square.max(1));
        let code = |i: usize| u8::from((i % side / square + i / side / square) % 2 == 1);
        let codes = (0..side * side).map(code).collect();
        let tile = Bitmap { height: side, width: side, channels: 1, codes, palette: Vec::new() };
        Target::Pattern { tile, phase: Phase::Anchored, family: None }
    }

    /// Number of observed channels: the leading channels that have a target.
    pub fn channels(&self) -> usize {
        match self {
            Target::Picture(picture) | Target::Pattern { tile: picture, .. } => picture.channels,
            Target::Rule(rule) => rule.channels(),
            Target::Pairs(pairs) => pairs.iter().flatten().map(|bitmap| bitmap.channels).max().unwrap_or(1),
        }
    }

    /// Returns whether the target is a different one for every start state and step.
    pub fn is_rule(&self) -> bool {
        matches!(self, Target::Rule(_))
    }

    /// Returns the colours of the codes of the observed channels, if the target has colours.
    pub fn palette(&self) -> Vec<Rgb> {
        match self {
            Target::Picture(picture) | Target::Pattern { tile: picture, .. } => picture.palette.clone(),
            Target::Rule(rule) => rule.palette(),
            Target::Pairs(_) => Vec::new(),
        }
    }

    /// Checks that a picture has the size of the training grid, and that a tile fits a torus.
    pub fn check_size(&self, [height, width]: [usize; 2], boundary: Boundary) -> Result<(), StateError> {
        match self {
            Target::Picture(picture) if (picture.height, picture.width) != (height, width) => {
                Err(picture.wrong_size(height, width))
            }
            Target::Pattern { tile, .. } if boundary == Boundary::Torus => {
                if height.is_multiple_of(tile.height) && width.is_multiple_of(tile.width) {
                    return Ok(());
                }
                let [h, w] = tile.size();
                Err(StateError::Keys(format!(
                    "a tile of {h}x{w} (height x width) does not repeat on a torus of {height}x{width}: its sides must be \
                     multiples of {h} and {w}"
                )))
            }
            Target::Pairs(pairs) => pairs.iter().flatten().try_for_each(|bitmap| {
                let fits = bitmap.size() == [height, width];
                if fits { Ok(()) } else { Err(bitmap.wrong_size(height, width)) }
            }),
            _ => Ok(()),
        }
    }

    /// Checks that no two pairs contradict each other: equal start states, or for one step equal neighbourhoods, that become
    /// different.
    pub fn check_pairs(&self, boundary: Boundary, steps: usize) -> Result<(), StateError> {
        let Target::Pairs(pairs) = self else { return Ok(()) };
        let mut seen: rustc_hash::FxHashMap<Vec<u8>, (usize, usize, usize, Vec<u8>)> =
            rustc_hash::FxHashMap::default();
        for (index, [before, after]) in pairs.iter().enumerate() {
            let [height, width] = before.size();
            let cells = if steps == 1 { height * width } else { 1 };
            for cell in 0..cells {
                let (y, x) = (cell / width, cell % width);
                let (key, value) = if steps == 1 {
                    let code = |n: usize| {
                        let at =
                            boundary.neighbour(y, n / 3, height).zip(boundary.neighbour(x, n % 3, width));
                        at.map_or(0, |(y, x)| before.codes[y * width + x])
                    };
                    ((0..9).map(code).collect(), vec![after.codes[cell]])
                } else {
                    (before.codes.clone(), after.codes.clone())
                };
                match seen.get(&key) {
                    Some((first, row, column, known)) if *known != value => {
                        let problem = if steps == 1 {
                            format!(
                                "the cell in row {row}, column {column} of the first and that in row {}, column {} of the second \
                                 have the same neighbourhood, but become different",
                                y + 1,
                                x + 1
                            )
                        } else {
                            "they have the same grid before, but different ones after".into()
                        };
                        return Err(StateError::Contradiction { first: *first, second: index, problem });
                    }
                    Some(_) => {}
                    None => {
                        seen.insert(key, (index, y + 1, x + 1, value));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the target grids of start states after some steps. A picture is centred in a larger grid.
    pub fn grids(&self, start: &Grid, boundary: Boundary, steps: usize) -> Result<Grid, StateError> {
        let (samples, height, width) = (start.samples(), start.height(), start.width());
        let mut grids = Grid::new(samples, height, width, self.channels())?;
        for sample in 0..samples {
            match self {
                Target::Picture(picture) => picture.place(&mut grids, sample)?,
                Target::Pattern { tile, .. } => fill_tile(&mut grids, sample, tile, [0, 0]),
                Target::Rule(_) => {}
                Target::Pairs(pairs) => {
                    let pair = pairs.iter().find(|[before, _]| is_at(start, sample, before));
                    let none = || StateError::Keys("no pair begins with this start state".into());
                    pair.ok_or_else(none)?[1].place(&mut grids, sample)?;
                }
            }
        }
        let Target::Rule(rule) = self else { return Ok(grids) };
        for channel in 0..self.channels() {
            grids.plane_mut(channel).copy_from_slice(start.plane(channel));
        }
        let automaton = rule.automaton(boundary);
        if (samples * height * width).saturating_mul(steps) >= COMPILE_MIN_CELLS {
            Runner::new(&automaton, automaton.channels)?.run(&mut grids, steps)?;
            return Ok(grids);
        }
        for _ in 0..steps {
            grids = naive_step(&automaton, &grids)?;
        }
        Ok(grids)
    }

    /// Returns the target of a pattern at the phase that fits each grid best, if it may have any; `target` otherwise. In the target
    /// of a family exactly the cells differ from the grid whose neighbourhood is not allowed.
    pub fn aligned(&self, grid: &Grid, boundary: Boundary, target: Grid) -> Grid {
        let Target::Pattern { tile, phase: Phase::Any, family } = self else { return target };
        let mut aligned = target;
        if let Some(family) = family {
            for sample in 0..grid.samples() {
                for (y, x) in (0..grid.height()).flat_map(|y| (0..grid.width()).map(move |x| (y, x))) {
                    let bit = grid.get(sample, 0, y, x) == family.allows(grid, sample, boundary, y, x);
                    aligned.set(sample, 0, y, x, bit);
                }
            }
            return aligned;
        }
        for sample in 0..grid.samples() {
            let phases = (0..tile.height * tile.width).map(|i| [i / tile.width, i % tile.width]);
            let wrong = |phase: &[usize; 2]| {
                let cells = (0..grid.height()).flat_map(|y| (0..grid.width()).map(move |x| (y, x)));
                cells
                    .filter(|&(y, x)| {
                        (0..tile.channels)
                            .any(|c| grid.get(sample, c, y, x) != tile_bit(tile, *phase, c, y, x))
                    })
                    .count()
            };
            if let Some(best) = phases.min_by_key(wrong) {
                fill_tile(&mut aligned, sample, tile, best);
            }
        }
        aligned
    }

    /// Returns how cells can count their coordinates to look the target up, if they can from this start state.
    pub(super) fn axes(
        &self,
        start: &Start,
        boundary: Boundary,
        [height, width]: [usize; 2],
    ) -> Option<Axes> {
        let (bitmap, repeats) = match self {
            Target::Picture(picture) => (picture, false),
            Target::Pattern { tile, .. } => (tile, true),
            _ => return None,
        };
        let anchor = match (start, boundary) {
            (Start::Seed, _) => Anchor::Seed([height / 2, width / 2]),
            (Start::Random | Start::Zeros, Boundary::Zeros) => Anchor::Edge,
            _ => return None,
        };
        Some(Axes { anchor, size: bitmap.size(), repeats })
    }

    /// A bit of the picture or tile.
    pub(super) fn bit(&self, channel: usize, y: usize, x: usize) -> bool {
        match self {
            Target::Picture(picture) | Target::Pattern { tile: picture, .. } => picture.bit(channel, y, x),
            _ => false,
        }
    }
}

/// A bit of a tile that repeats over the plane and begins at `phase`.
fn tile_bit(tile: &Bitmap, phase: [usize; 2], channel: usize, y: usize, x: usize) -> bool {
    tile.bit(channel, (y + phase[0]) % tile.height, (x + phase[1]) % tile.width)
}

fn fill_tile(grids: &mut Grid, sample: usize, tile: &Bitmap, phase: [usize; 2]) {
    for y in 0..grids.height() {
        for x in 0..grids.width() {
            for channel in 0..tile.channels {
                grids.set(sample, channel, y, x, tile_bit(tile, phase, channel, y, x));
            }
        }
    }
}

/// Whether the leading channels of a sample show a picture of the size of the grid.
fn is_at(grid: &Grid, sample: usize, bitmap: &Bitmap) -> bool {
    let cells = bitmap.codes.iter().enumerate();
    bitmap.size() == [grid.height(), grid.width()]
        && cells
            .flat_map(|(i, code)| (0..bitmap.channels).map(move |c| (i, c, code >> c & 1 == 1)))
            .all(|(i, channel, bit)| grid.get(sample, channel, i / bitmap.width, i % bitmap.width) == bit)
}

/// Number of cells times steps from which a rule runs as native code. For fewer, compilation takes longer than the evaluation
/// cell by cell.
const COMPILE_MIN_CELLS: usize = 1 << 13;

/// Runs one step of Conway's Game of Life in channel 0, cell by cell: the reference implementation of the rule.
pub fn life_step(grid: &mut Grid, sample: usize, boundary: Boundary) {
    let (height, width) = (grid.height(), grid.width());
    let alive = |grid: &Grid, y: usize, x: usize, dy: usize, dx: usize| {
        let cell = boundary.neighbour(y, dy, height).zip(boundary.neighbour(x, dx, width));
        cell.is_some_and(|(y, x)| grid.get(sample, 0, y, x))
    };
    let mut next = vec![false; height * width];
    for (cell, next) in next.iter_mut().enumerate() {
        let (y, x) = (cell / width, cell % width);
        let around = (0..9).filter(|n| *n != 4 && alive(grid, y, x, n / 3, n % 3)).count();
        *next = around == 3 || around == 2 && grid.get(sample, 0, y, x);
    }
    for (cell, bit) in next.into_iter().enumerate() {
        grid.set(sample, 0, cell / width, cell % width, bit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::Purpose;

    #[test]
    fn life_as_a_circuit_agrees_with_the_cell_by_cell_rule() {
        for boundary in [Boundary::Torus, Boundary::Zeros] {
            for (height, width, steps) in [(64, 67, 2), (7, 9, 200), (1, 5, 2000)] {
                let mut start = Grid::new(2, height, width, 1).unwrap();
                assert!(height * width * steps >= COMPILE_MIN_CELLS);
                Start::Random.fill(&mut start, &mut Random::new(1, Purpose::Check, 0)).unwrap();
                let grids = life().grids(&start, boundary, steps).unwrap();
                for _ in 0..steps {
                    (0..2).for_each(|sample| life_step(&mut start, sample, boundary));
                }
                assert!(grids == start, "{height}x{width}, {boundary:?}");
            }
        }
    }

    fn life() -> Target {
        Target::load(&TargetSpec::GameOfLife {}, Path::new(".")).unwrap()
    }

    fn random() -> Random {
        Random::new(1, Purpose::Check, 0)
    }

    #[test]
    fn built_in_pictures_have_the_paper_s_sizes() {
        let load =
            |name: &str| Target::load(&TargetSpec::BuiltIn { name: name.into() }, Path::new(".")).unwrap();
        let (lizard, g) = (load("lizard"), load("colored-g"));
        assert!(lizard.check_size([20, 20], Boundary::Torus).is_ok() && lizard.channels() == 1);
        assert!(g.check_size([16, 16], Boundary::Torus).is_ok() && g.channels() == 3);
        assert!(g.check_size([20, 20], Boundary::Torus).unwrap_err().to_string().contains("16x16"));
        let start = Grid::new(1, 40, 40, 1).unwrap();
        let placed = lizard.grids(&start, Boundary::Torus, 1).unwrap();
        assert!(placed.get(0, 0, 10 + 1, 10 + 4) && !placed.get(0, 0, 1, 4), "centred in a larger grid");
    }

    #[test]
    fn a_blinker_blinks() {
        let mut grid = Grid::new(1, 5, 5, 1).unwrap();
        Bitmap::from_text("###").unwrap().place(&mut grid, 0).unwrap();
        let target = life().grids(&grid, Boundary::Torus, 1).unwrap();
        let upright: Vec<(usize, usize)> =
            (0..25).map(|i| (i / 5, i % 5)).filter(|&(y, x)| target.get(0, 0, y, x)).collect();
        assert_eq!(upright, [(1, 2), (2, 2), (3, 2)]);
        let again = life().grids(&grid, Boundary::Zeros, 2).unwrap();
        assert_eq!(again.difference(&grid, 1).unwrap(), 0);
    }

    #[test]
    fn start_states_have_the_described_bits() {
        let mut grid = Grid::new(2, 5, 7, 3).unwrap();
        Start::Seed.fill(&mut grid, &mut random()).unwrap();
        assert!((0..2).all(|s| (0..3).all(|c| grid.count_ones(s, c) == 1 && grid.get(s, c, 2, 3))));
        Start::Random.fill(&mut grid, &mut random()).unwrap();
        let ones: usize = (0..6).map(|i| grid.count_ones(i / 3, i % 3)).sum();
        assert!((60..150).contains(&ones), "{ones} of 210");
        let grids = Start::Grids { grids: vec!["##\n##".into()] };
        let mut grid = Grid::new(1, 4, 4, 1).unwrap();
        grids.fill(&mut grid, &mut random()).unwrap();
        assert!(grid.count_ones(0, 0) == 4 && grid.get(0, 0, 1, 1));
    }

    #[test]
    fn unknown_keys_of_targets_and_starts_are_refused() {
        for text in ["kind = 'game-of-life'\nrule = 'B36/S23'", "kind = 'checkerboard'\nsquares = 3"] {
            assert!(toml::from_str::<TargetSpec>(text).unwrap_err().to_string().contains("unknown field"));
        }
        for text in ["kind = 'random'\ndensity = 0.5", "kind = 'seed'\nat = 3", "kind = 'zeros'\nx = 1"] {
            assert!(toml::from_str::<Start>(text).unwrap_err().to_string().contains("unknown field"));
        }
    }

    #[test]
    fn a_tile_repeats_and_counts_at_any_phase_if_that_is_asked_for() {
        let tile = Bitmap::from_coloured_text("##.\n..#").unwrap();
        let start = Grid::new(1, 4, 6, 1).unwrap();
        let anchored = Target::Pattern { tile: tile.clone(), phase: Phase::Anchored, family: None };
        let grid = anchored.grids(&start, Boundary::Torus, 1).unwrap();
        let row = |y: usize| (0..6).map(|x| grid.get(0, 0, y, x)).collect::<Vec<_>>();
        assert_eq!(row(0), [true, true, false, true, true, false]);
        assert_eq!((row(2), row(3)), (row(0), row(1)));
        let mut shifted = Grid::new(1, 4, 6, 1).unwrap();
        fill_tile(&mut shifted, 0, &tile, [1, 2]);
        assert!(
            shifted.difference(&anchored.aligned(&shifted, Boundary::Torus, grid.clone()), 1).unwrap() > 0
        );
        let any = Target::Pattern { tile, phase: Phase::Any, family: None };
        assert_eq!(shifted.difference(&any.aligned(&shifted, Boundary::Torus, grid), 1).unwrap(), 0);
    }

    #[test]
    fn contradicting_pairs_are_named() {
        let pair = |before: &str, after: &str| Pair { before: before.into(), after: after.into() };
        let check = |pairs: Vec<Pair>, steps| {
            Target::load(&TargetSpec::Pairs { pairs }, Path::new("."))
                .unwrap()
                .check_pairs(Boundary::Torus, steps)
        };
        let grow = pair("...\n.#.\n...", "###\n###\n###");
        assert!(check(vec![grow.clone(), pair("...\n...\n...", "...\n...\n...")], 1).is_ok());
        let error = check(vec![grow.clone(), pair("#..\n...\n...", "...\n...\n...")], 1).unwrap_err();
        assert!(
            error.to_string().starts_with("pairs[0] and pairs[1] contradict each other: the cell in row"),
            "{error}"
        );
        let twice = check(vec![grow.clone(), pair("...\n.#.\n...", "...\n...\n...")], 5).unwrap_err();
        assert!(twice.to_string().contains("pairs[0] and pairs[1]"), "{twice}");
        assert!(check(vec![grow, pair("#..\n...\n...", "...\n...\n...")], 5).is_ok());
    }
}
