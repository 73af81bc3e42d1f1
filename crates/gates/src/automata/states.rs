//! Start and target states of a rollout.

use std::io::Cursor;
use std::path::Path;

use gatework_logic::simulate::Runner;
use gatework_logic::{AutomatonError, Boundary, Grid, GridError, rules};
use serde::{Deserialize, Serialize};

use gatework_train::files;
use gatework_train::random::Random;

/// The start state of a rollout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Start {
    /// Random bits in all channels, new for every update.
    Random,
    /// Zeros, with ones in all channels of the central cell.
    Seed,
    /// Zeros everywhere.
    Zeros,
    /// One of these grids, drawn for every sample. `#` is 1 in channel 0; letters as in targets.
    #[serde(alias = "boards")]
    Grids {
        /// The grids, as text.
        #[serde(alias = "boards")]
        grids: Vec<String>,
    },
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
    GameOfLife,
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

/// A picture of one or three bits a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    height: usize,
    width: usize,
    channels: usize,
    /// The channels of each cell, row by row.
    bits: Vec<[bool; 3]>,
}

/// Maximum number of rows or columns of a picture.
const LARGEST_SIDE: usize = 1 << 14;

/// Maximum ratio of the size of data to its size after compression by Deflate.
const MAX_DEFLATE_RATIO: usize = 1032;

impl Bitmap {
    /// Reads `#` and `.`, or R, G, B, Y and `.`.
    pub fn from_text(text: &str) -> Result<Bitmap, StateError> {
        let error = |line: usize, problem: String| Err(StateError::Text { line: line + 1, problem });
        let mut map = Bitmap { height: 0, width: 0, channels: 1, bits: Vec::new() };
        for (number, line) in text.lines().map(str::trim_end).enumerate() {
            if line.is_empty() {
                continue;
            }
            let width = line.chars().count();
            if map.height > 0 && width != map.width {
                return error(number, format!("{width} cells, but the lines above have {}", map.width));
            }
            (map.width, map.height) = (width, map.height + 1);
            for letter in line.chars() {
                let cell = match letter.to_ascii_uppercase() {
                    '.' | '0' => [false; 3],
                    '#' | '1' | 'R' => [true, false, false],
                    'G' => [false, true, false],
                    'B' => [false, false, true],
                    'Y' => [true, true, false],
                    _ => return error(number, format!("{letter:?} is none of # . R G B Y")),
                };
                if letter.is_ascii_alphabetic() {
                    map.channels = 3;
                }
                map.bits.push(cell);
            }
        }
        if map.height == 0 || map.height.max(map.width) > LARGEST_SIDE {
            return error(0, format!("a picture has 1 to {LARGEST_SIDE} rows and columns"));
        }
        Ok(map)
    }

    /// Reads a PNG of any kind; half brightness and more is 1, transparent is 0.
    pub fn from_png(bytes: &[u8]) -> Result<Bitmap, StateError> {
        let mut decoder = png::Decoder::new_with_limits(Cursor::new(bytes), png::Limits { bytes: 256 << 20 });
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info()?;
        let (width, height) = (reader.info().width as usize, reader.info().height as usize);
        let sides = 1..=LARGEST_SIDE;
        let size = reader.output_buffer_size().filter(|_| sides.contains(&width) && sides.contains(&height));
        let Some(size) = size else {
            let grid = format!("limited to {LARGEST_SIDE} x {LARGEST_SIDE}");
            return Err(StateError::Size { found: format!("{height}x{width}"), grid });
        };
        // Memory is in proportion to the file, whatever size the header has.
        if reader.info().raw_bytes() / MAX_DEFLATE_RATIO > bytes.len() {
            let short = std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "too short for its size");
            return Err(png::DecodingError::IoError(short).into());
        }
        let mut pixels = vec![0; size];
        let info = reader.next_frame(&mut pixels)?;
        let samples = info.color_type.samples();
        let (colour, alpha) = (samples >= 3, samples.is_multiple_of(2));
        let cell = |pixel: &[u8]| {
            if alpha && pixel[samples - 1] < 128 {
                return [false; 3];
            }
            if colour { [0, 1, 2].map(|i| pixel[i] >= 128) } else { [pixel[0] >= 128, false, false] }
        };
        let bits = pixels[..info.buffer_size()].chunks_exact(samples).map(cell).collect();
        Ok(Bitmap { height, width, channels: if colour { 3 } else { 1 }, bits })
    }

    /// Copies the picture to the centre of a grid.
    fn place(&self, grid: &mut Grid, sample: usize) -> Result<(), StateError> {
        self.check_fit(grid.height(), grid.width(), grid.channels())?;
        let (top, left) = ((grid.height() - self.height) / 2, (grid.width() - self.width) / 2);
        for (i, cell) in self.bits.iter().enumerate() {
            for (channel, &bit) in cell.iter().enumerate().take(self.channels) {
                grid.set(sample, channel, top + i / self.width, left + i % self.width, bit);
            }
        }
        Ok(())
    }

    /// Checks that the picture fits a grid.
    fn check_fit(&self, height: usize, width: usize, channels: usize) -> Result<(), StateError> {
        if self.height > height || self.width > width {
            return Err(self.wrong_size(height, width));
        }
        if self.channels > channels {
            return Err(StateError::Channels { found: self.channels, channels });
        }
        Ok(())
    }

    fn wrong_size(&self, height: usize, width: usize) -> StateError {
        StateError::Size {
            found: format!("{}x{}", self.height, self.width),
            grid: format!("{height}x{width}"),
        }
    }
}

/// The target of a rollout, loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Target {
    /// Squares of 0 and 1 with this side.
    Checkerboard(usize),
    /// Conway's Game of Life.
    GameOfLife,
    /// A picture.
    Picture(Bitmap),
}

impl Target {
    /// Loads the target of an experiment; files are relative to `folder`.
    pub fn load(spec: &TargetSpec, folder: &Path) -> Result<Target, StateError> {
        Ok(match spec {
            TargetSpec::Checkerboard { square } => Target::Checkerboard((*square).max(1)),
            TargetSpec::GameOfLife => Target::GameOfLife,
            TargetSpec::BuiltIn { name } => {
                let text = BUILT_IN.iter().find(|(known, _)| known == name);
                let (_, text) = text.ok_or_else(|| StateError::Unknown(name.clone()))?;
                Target::Picture(Bitmap::from_text(text)?)
            }
            TargetSpec::Text { file } => {
                Target::Picture(Bitmap::from_text(&files::read_text(&folder.join(file))?)?)
            }
            TargetSpec::Png { file } => Target::Picture(Bitmap::from_png(&files::read(&folder.join(file))?)?),
        })
    }

    /// Number of observed channels: the leading channels that have a target.
    pub fn channels(&self) -> usize {
        match self {
            Target::Picture(picture) => picture.channels,
            Target::Checkerboard(_) | Target::GameOfLife => 1,
        }
    }

    /// Checks that a picture has the size of the training grid.
    pub fn check_size(&self, height: usize, width: usize) -> Result<(), StateError> {
        match self {
            Target::Picture(picture) if (picture.height, picture.width) != (height, width) => {
                Err(picture.wrong_size(height, width))
            }
            _ => Ok(()),
        }
    }

    /// Returns the target grids of start states after some steps. A picture is centred in a larger grid.
    pub fn grids(&self, start: &Grid, boundary: Boundary, steps: usize) -> Result<Grid, StateError> {
        let (samples, height, width) = (start.samples(), start.height(), start.width());
        let mut grids = Grid::new(samples, height, width, self.channels())?;
        let is_compiled = (height * width).saturating_mul(steps) >= COMPILE_MIN_CELLS;
        for sample in 0..samples {
            match self {
                Target::Picture(picture) => picture.place(&mut grids, sample)?,
                Target::Checkerboard(square) => {
                    for y in 0..height {
                        for x in 0..width {
                            grids.set(sample, 0, y, x, (x / square + y / square) % 2 == 1);
                        }
                    }
                }
                Target::GameOfLife => {
                    for y in 0..height {
                        for x in 0..width {
                            grids.set(sample, 0, y, x, start.get(sample, 0, y, x));
                        }
                    }
                    if !is_compiled {
                        (0..steps).for_each(|_| life_step(&mut grids, sample, boundary));
                    }
                }
            }
        }
        if matches!(self, Target::GameOfLife) && is_compiled {
            Runner::new(&rules::life(boundary), 1)?.run(&mut grids, steps)?;
        }
        Ok(grids)
    }
}

/// Number of cells times steps from which Life runs as a compiled circuit. For fewer, compilation takes longer than the
/// cell-by-cell rule.
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
                let grids = Target::GameOfLife.grids(&start, boundary, steps).unwrap();
                for _ in 0..steps {
                    (0..2).for_each(|sample| life_step(&mut start, sample, boundary));
                }
                assert!(grids == start, "{height}x{width}, {boundary:?}");
            }
        }
    }

    fn random() -> Random {
        Random::new(1, Purpose::Check, 0)
    }

    #[test]
    fn built_in_pictures_have_the_paper_s_sizes() {
        let load =
            |name: &str| Target::load(&TargetSpec::BuiltIn { name: name.into() }, Path::new(".")).unwrap();
        let (lizard, g) = (load("lizard"), load("colored-g"));
        assert!(lizard.check_size(20, 20).is_ok() && lizard.channels() == 1);
        assert!(g.check_size(16, 16).is_ok() && g.channels() == 3);
        assert!(g.check_size(20, 20).unwrap_err().to_string().contains("16x16"));
        let start = Grid::new(1, 40, 40, 1).unwrap();
        let placed = lizard.grids(&start, Boundary::Torus, 1).unwrap();
        assert!(placed.get(0, 0, 10 + 1, 10 + 4) && !placed.get(0, 0, 1, 4), "centred in a larger grid");
    }

    #[test]
    fn a_blinker_blinks() {
        let mut grid = Grid::new(1, 5, 5, 1).unwrap();
        Bitmap::from_text("###").unwrap().place(&mut grid, 0).unwrap();
        let target = Target::GameOfLife.grids(&grid, Boundary::Torus, 1).unwrap();
        let upright: Vec<(usize, usize)> =
            (0..25).map(|i| (i / 5, i % 5)).filter(|&(y, x)| target.get(0, 0, y, x)).collect();
        assert_eq!(upright, [(1, 2), (2, 2), (3, 2)]);
        let again = Target::GameOfLife.grids(&grid, Boundary::Zeros, 2).unwrap();
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
    fn bad_text_is_refused_with_its_line() {
        for (text, part) in [("", "rows"), ("##\n#", "line 2"), ("##\n#x", "line 2"), ("\n\n", "rows")] {
            let error = Bitmap::from_text(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn png_pictures_are_read() {
        let mut bytes = Vec::new();
        let mut encoder = png::Encoder::new(&mut bytes, 2, 1);
        encoder.set_color(png::ColorType::Rgb);
        encoder.write_header().unwrap().write_image_data(&[255, 0, 200, 10, 128, 127]).unwrap();
        let map = Bitmap::from_png(&bytes).unwrap();
        assert_eq!((map.height, map.width, map.channels), (1, 2, 3));
        assert_eq!(map.bits, [[true, false, true], [false, true, false]]);
        assert!(Bitmap::from_png(&bytes[..20]).is_err());
        assert!(Bitmap::from_png(b"no png").is_err());
    }

    #[test]
    fn a_short_png_does_not_claim_memory_for_a_large_picture() {
        let mut bytes = Vec::new();
        let side = LARGEST_SIDE as u32;
        let mut encoder = png::Encoder::new(&mut bytes, side, side);
        encoder.set_color(png::ColorType::Rgba);
        encoder.write_header().unwrap().write_chunk(png::chunk::IDAT, b"short").unwrap();
        let error = Bitmap::from_png(&bytes).unwrap_err().to_string();
        assert!(error.ends_with("too short for its size"), "{error}");
    }
}
