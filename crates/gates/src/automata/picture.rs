//! Pictures of a few colours: read from text, PNG and RLE files, placed on grids.
//!
//! A picture has a code for each cell; bit `i` of the code is the cell's channel `i`. The background has code 0 whatever its
//! brightness: it is what most of the border shows. Other colours are numbered by how often they occur, so a picture has as few
//! channels as its colours need.

use std::collections::BTreeMap;
use std::io::Cursor;

use gatework_logic::Grid;

use super::construct::bits_for;
use super::states::StateError;

/// A colour: red, green, blue.
pub type Rgb = [u8; 3];

/// A picture of up to eight bits a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bitmap {
    pub(super) height: usize,
    pub(super) width: usize,
    pub(super) channels: usize,
    /// The channels of each cell, as bits, row by row.
    pub(super) codes: Vec<u8>,
    /// The colour of each code, if the file has colours.
    pub(super) palette: Vec<Rgb>,
}

/// What became of the colours of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Colours {
    /// Colours in the file, the background included.
    pub found: usize,
    /// Colours that were replaced by a similar one.
    pub lost: usize,
}

/// Maximum number of rows or columns of a picture.
const LARGEST_SIDE: usize = 1 << 14;

/// Maximum ratio of the size of data to its size after compression by Deflate.
const MAX_DEFLATE_RATIO: usize = 1032;

/// Maximum number of colours, the background included.
pub const MAX_COLOURS: usize = 16;

/// Letters that have a colour of their own in text pictures.
const LETTERS: [(char, Rgb); 10] = [
    ('#', [0x1b, 0x1f, 0x3b]),
    ('R', [0xe0, 0x2f, 0x2f]),
    ('G', [0x2f, 0xa8, 0x4f]),
    ('B', [0x2f, 0x5f, 0xe0]),
    ('Y', [0xf2, 0xc9, 0x2e]),
    ('W', [0xff, 0xff, 0xff]),
    ('K', [0x00, 0x00, 0x00]),
    ('O', [0xf0, 0x8a, 0x24]),
    ('P', [0x9b, 0x4f, 0xc8]),
    ('C', [0x2f, 0xc4, 0xd0]),
];

/// Colours of other letters, in the order in which they occur.
const FURTHER: [Rgb; 6] = [
    [0x80, 0x50, 0x30],
    [0x70, 0x70, 0x70],
    [0xe0, 0x80, 0xb0],
    [0x50, 0x80, 0x20],
    [0x30, 0x30, 0x80],
    [0xb0, 0xb0, 0xb0],
];

/// The background of text pictures.
const PAPER: Rgb = [0xf4, 0xf1, 0xea];

impl Bitmap {
    /// Height and width.
    pub fn size(&self) -> [usize; 2] {
        [self.height, self.width]
    }

    /// Number of channels.
    pub fn channels(&self) -> usize {
        self.channels
    }

    /// Number of cells that are not background.
    pub fn set_cells(&self) -> usize {
        self.codes.iter().filter(|code| **code != 0).count()
    }

    /// The colour of each code; empty if the picture has channels instead of colours.
    pub fn palette(&self) -> &[Rgb] {
        &self.palette
    }

    /// The channels of each cell as bits, row by row.
    pub fn codes(&self) -> &[u8] {
        &self.codes
    }

    /// A bit of a cell.
    pub fn bit(&self, channel: usize, y: usize, x: usize) -> bool {
        self.codes[y * self.width + x] >> channel & 1 == 1
    }

    /// Reads `#` and `.`, or R, G, B, Y and `.`, as one or three channels.
    pub fn from_text(text: &str) -> Result<Bitmap, StateError> {
        let (size, letters) = letters(text, false)?;
        let mut map =
            Bitmap { height: size[0], width: size[1], channels: 1, codes: Vec::new(), palette: Vec::new() };
        for (line, letter) in letters {
            map.codes.push(match letter.to_ascii_uppercase() {
                '.' | '0' => 0,
                '#' | '1' | 'R' => 1,
                'G' => 2,
                'B' => 4,
                'Y' => 3,
                _ => return text_error(line, format!("{letter:?} is none of # . R G B Y")),
            });
            if letter.is_ascii_alphabetic() {
                map.channels = 3;
            }
        }
        Ok(map)
    }

    /// Reads text in which every character other than a space, `.` and `0` is a colour.
    pub fn from_coloured_text(text: &str) -> Result<Bitmap, StateError> {
        let (size, letters) = letters(text, true)?;
        let is_background = |letter: char| matches!(letter, '.' | ' ' | '0');
        let cells: Vec<char> =
            letters.iter().map(|&(_, letter)| if letter == '1' { '#' } else { letter }).collect();
        let has_background = cells.iter().any(|&letter| is_background(letter));
        let mut counts: BTreeMap<char, usize> = BTreeMap::new();
        for &letter in &cells {
            *counts.entry(letter).or_default() += 1;
        }
        let background = if has_background { None } else { background(&cells, size) };
        let mut used: Vec<char> =
            counts.keys().copied().filter(|&l| !is_background(l) && Some(l) != background).collect();
        used.sort_by_key(|letter| (std::cmp::Reverse(counts[letter]), *letter));
        if used.len() >= MAX_COLOURS {
            return Err(StateError::Colours { found: used.len() + 1 });
        }
        let mut further = FURTHER.iter().cycle();
        let mut colour = |letter: char| {
            let known = LETTERS.iter().find(|(known, _)| *known == letter.to_ascii_uppercase());
            known.map_or_else(|| *further.next().unwrap_or(&PAPER), |(_, colour)| *colour)
        };
        let palette = std::iter::once(PAPER).chain(used.iter().map(|&letter| colour(letter))).collect();
        let code = |letter: &char| used.iter().position(|known| known == letter).map_or(0, |i| i as u8 + 1);
        let codes = cells.iter().map(code).collect();
        let channels = bits_for(used.len() + 1).max(1);
        Ok(Bitmap { height: size[0], width: size[1], channels, codes, palette })
    }

    /// Reads a PNG of any kind as one or three channels; half brightness and more is 1, transparent is 0.
    pub fn from_png(bytes: &[u8]) -> Result<Bitmap, StateError> {
        let Pixels { height, width, samples, bytes: pixels } = Pixels::read(bytes)?;
        let (colour, alpha) = (samples >= 3, samples.is_multiple_of(2));
        let cell = |pixel: &[u8]| {
            if alpha && pixel[samples - 1] < 128 {
                return 0;
            }
            let bit = |channel: usize| u8::from(pixel[channel] >= 128) << channel;
            if colour { bit(0) | bit(1) | bit(2) } else { bit(0) }
        };
        let codes = pixels.chunks_exact(samples).map(cell).collect();
        Ok(Bitmap { height, width, channels: if colour { 3 } else { 1 }, codes, palette: Vec::new() })
    }

    /// Reads a PNG of any kind by its colours. Transparent cells are background; if there are none, the background is the colour
    /// of most of the border, or of most cells. More than sixteen colours are reduced to sixteen.
    pub fn from_coloured_png(bytes: &[u8]) -> Result<(Bitmap, Colours), StateError> {
        let Pixels { height, width, samples, bytes: pixels } = Pixels::read(bytes)?;
        let (grey, alpha) = (samples < 3, samples.is_multiple_of(2));
        let cell = |pixel: &[u8]| -> Option<Rgb> {
            let opacity = if alpha { u32::from(pixel[samples - 1]) } else { 255 };
            // A cell that is partly transparent is drawn on white paper.
            let mix = |level: u8| ((u32::from(level) * opacity + 255 * (255 - opacity) + 127) / 255) as u8;
            let colour = if grey { [pixel[0]; 3] } else { [pixel[0], pixel[1], pixel[2]] };
            (opacity >= 128).then(|| colour.map(mix))
        };
        let cells: Vec<Option<Rgb>> = pixels.chunks_exact(samples).map(cell).collect();
        let is_transparent = cells.iter().any(Option::is_none);
        let paper = if is_transparent { None } else { background(&cells, [height, width]).flatten() };
        let mut counts: BTreeMap<Rgb, usize> = BTreeMap::new();
        for colour in cells.iter().flatten().filter(|colour| Some(**colour) != paper) {
            *counts.entry(*colour).or_default() += 1;
        }
        let kept = reduced(&counts, MAX_COLOURS - 1);
        let codes = cells.iter().map(|cell| match cell {
            Some(colour) if Some(*colour) != paper => 1 + nearest(&kept, *colour) as u8,
            _ => 0,
        });
        let codes = codes.collect();
        let lost = counts.keys().filter(|colour| !kept.contains(colour)).count();
        let channels = bits_for(kept.len() + 1).max(1);
        let palette = std::iter::once(paper.unwrap_or([255; 3])).chain(kept).collect();
        let colours = Colours { found: counts.len() + 1, lost };
        Ok((Bitmap { height, width, channels, codes, palette }, colours))
    }

    /// Reads a picture by its content: PNG, RLE or text.
    pub fn from_bytes(bytes: &[u8]) -> Result<(Bitmap, Colours), StateError> {
        if bytes.starts_with(b"\x89PNG") {
            return Bitmap::from_coloured_png(bytes);
        }
        let Ok(text) = std::str::from_utf8(bytes) else { return Err(StateError::Unreadable) };
        let bitmap = if is_rle(text) { Bitmap::from_rle(text)? } else { Bitmap::from_coloured_text(text)? };
        let found = bitmap.palette.len().max(2);
        Ok((bitmap, Colours { found, lost: 0 }))
    }

    /// Returns the picture with the codes of another palette: each colour becomes the nearest one. Without colours, a cell that is
    /// not background becomes 1.
    #[must_use]
    pub fn in_palette(&self, channels: usize, palette: &[Rgb]) -> Bitmap {
        let code = |code: u8| match self.palette.get(usize::from(code)) {
            _ if code == 0 => 0,
            // What is not background stays so.
            Some(colour) if palette.len() > 1 => 1 + nearest(&palette[1..], *colour) as u8,
            Some(_) if channels == 1 => 1,
            _ => code,
        };
        let codes: Vec<u8> = self.codes.iter().map(|&c| code(c)).collect();
        let largest = codes.iter().copied().max().unwrap_or(0);
        let channels = bits_for(usize::from(largest) + 1).max(1);
        Bitmap { channels, codes, palette: palette.to_vec(), ..*self }
    }

    /// Copies the picture to the centre of a grid.
    pub fn place(&self, grid: &mut Grid, sample: usize) -> Result<(), StateError> {
        self.check_fit(grid.height(), grid.width(), grid.channels())?;
        let (top, left) = ((grid.height() - self.height) / 2, (grid.width() - self.width) / 2);
        for (i, code) in self.codes.iter().enumerate() {
            for channel in 0..self.channels {
                grid.set(
                    sample,
                    channel,
                    top + i / self.width,
                    left + i % self.width,
                    code >> channel & 1 == 1,
                );
            }
        }
        Ok(())
    }

    /// Checks that the picture fits a grid.
    pub(super) fn check_fit(&self, height: usize, width: usize, channels: usize) -> Result<(), StateError> {
        if self.height > height || self.width > width {
            return Err(self.wrong_size(height, width));
        }
        if self.channels > channels {
            return Err(StateError::Channels { found: self.channels, channels });
        }
        Ok(())
    }

    pub(super) fn wrong_size(&self, height: usize, width: usize) -> StateError {
        StateError::Size {
            found: format!("{}x{}", self.height, self.width),
            grid: format!("{height}x{width}"),
        }
    }
}

fn text_error<T>(line: usize, problem: String) -> Result<T, StateError> {
    Err(StateError::Text { line: line + 1, problem })
}

/// The size of a text picture, and its characters with their lines.
type Letters = ([usize; 2], Vec<(usize, char)>);

/// Returns the size of a text picture, and its characters with their lines. Lines may be ragged if a space is background.
fn letters(text: &str, spaces: bool) -> Result<Letters, StateError> {
    let lines = text.lines().map(str::trim_end).enumerate();
    let pads = spaces && text.lines().any(|line| line.contains(' ') && !line.trim().is_empty());
    let mut lines: Vec<(usize, &str)> = lines.skip_while(|(_, line)| line.is_empty()).collect();
    lines.truncate(lines.iter().rposition(|(_, line)| !line.is_empty()).map_or(0, |last| last + 1));
    // Where a space is background, an empty line is a row.
    lines.retain(|(_, line)| pads || !line.is_empty());
    let widest = lines.iter().map(|(_, line)| line.chars().count()).max().unwrap_or(0);
    if lines.is_empty() || lines.len().max(widest) > LARGEST_SIDE {
        return text_error(0, format!("a picture has 1 to {LARGEST_SIDE} rows and columns"));
    }
    if lines.len() * widest > LARGEST_SIDE * LARGEST_SIDE / 16 {
        return text_error(0, "the picture has too many cells".into());
    }
    let first = lines[0].1.chars().count();
    let mut cells = Vec::new();
    for &(number, line) in &lines {
        let width = line.chars().count();
        if !pads && width != first {
            return text_error(number, format!("{width} cells, but the lines above have {first}"));
        }
        cells.extend(line.chars().map(|letter| (number, letter)));
        cells.resize(cells.len() + widest - width, (number, ' '));
    }
    Ok(([lines.len(), widest], cells))
}

/// The cell that most of the border shows, or that occurs most often if nothing covers half of the border.
fn background<T: Copy + Ord>(cells: &[T], [height, width]: [usize; 2]) -> Option<T> {
    let is_border = |i: usize| {
        let (y, x) = (i / width, i % width);
        y == 0 || x == 0 || y + 1 == height || x + 1 == width
    };
    let most = |cells: &mut dyn Iterator<Item = T>| {
        let (mut counts, mut total) = (BTreeMap::new(), 0);
        cells.for_each(|cell| {
            *counts.entry(cell).or_insert(0usize) += 1;
            total += 1;
        });
        counts.into_iter().max_by_key(|(_, count)| *count).map(|(cell, count)| (cell, 2 * count >= total))
    };
    let border = most(&mut cells.iter().enumerate().filter(|(i, _)| is_border(*i)).map(|(_, cell)| *cell));
    match border {
        Some((cell, true)) => Some(cell),
        _ => most(&mut cells.iter().copied()).map(|(cell, _)| cell),
    }
}

fn distance(a: Rgb, b: Rgb) -> u32 {
    (0..3).map(|i| u32::from(a[i].abs_diff(b[i])).pow(2)).sum()
}

fn nearest(colours: &[Rgb], colour: Rgb) -> usize {
    (0..colours.len()).min_by_key(|&i| distance(colours[i], colour)).unwrap_or(0)
}

/// Reduces colours to the most frequent ones, at most `most` of them, by median cut. The most frequent comes first.
fn reduced(counts: &BTreeMap<Rgb, usize>, most: usize) -> Vec<Rgb> {
    let mut boxes: Vec<Vec<(Rgb, usize)>> = if counts.len() <= most {
        counts.iter().map(|(&colour, &count)| vec![(colour, count)]).collect()
    } else {
        vec![counts.iter().map(|(&colour, &count)| (colour, count)).collect()]
    };
    let spread = |colours: &[(Rgb, usize)], i: usize| {
        let level =
            |pick: fn(u8, u8) -> u8| colours.iter().map(|(colour, _)| colour[i]).reduce(pick).unwrap_or(0);
        level(u8::max) - level(u8::min)
    };
    while boxes.len() < most.min(counts.len()) {
        // The box and the axis with the largest spread, weighted by its cells.
        let weight = |colours: &Vec<(Rgb, usize)>| colours.iter().map(|(_, count)| count).sum::<usize>();
        let merit = |i: usize| {
            let widest = (0..3).map(|axis| usize::from(spread(&boxes[i], axis))).max().unwrap_or(0);
            widest * widest * weight(&boxes[i])
        };
        let Some(split) = (0..boxes.len()).max_by_key(|&i| merit(i)) else { break };
        let mut colours = boxes.swap_remove(split);
        let axis = (0..3).max_by_key(|&axis| spread(&colours, axis)).unwrap_or(0);
        colours.sort_by_key(|(colour, _)| (colour[axis], *colour));
        let half = weight(&colours) / 2;
        let mut seen = 0;
        let middle = colours.iter().position(|(_, count)| {
            seen += count;
            seen > half
        });
        let upper = colours.split_off(middle.unwrap_or(1).clamp(1, colours.len() - 1));
        boxes.extend([colours, upper]);
    }
    let mean = |colours: &Vec<(Rgb, usize)>| {
        let total = colours.iter().map(|(_, count)| count).sum::<usize>().max(1);
        let sum =
            |i: usize| colours.iter().map(|(colour, count)| usize::from(colour[i]) * count).sum::<usize>();
        (total, [0, 1, 2].map(|i| ((sum(i) + total / 2) / total) as u8))
    };
    let mut means: Vec<(usize, Rgb)> = boxes.iter().map(mean).collect();
    means.sort_by_key(|&(count, colour)| (std::cmp::Reverse(count), colour));
    let mut kept: Vec<Rgb> = Vec::new();
    for (_, colour) in means {
        if !kept.contains(&colour) {
            kept.push(colour);
        }
    }
    kept
}

/// The decoded pixels of a PNG.
struct Pixels {
    height: usize,
    width: usize,
    /// Bytes of a pixel.
    samples: usize,
    bytes: Vec<u8>,
}

impl Pixels {
    fn read(bytes: &[u8]) -> Result<Pixels, StateError> {
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
        pixels.truncate(info.buffer_size());
        Ok(Pixels { height, width, samples: info.color_type.samples(), bytes: pixels })
    }
}

/// Whether a text looks like a run-length encoded pattern: comments, then a header line `x = ...`.
pub fn is_rle(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let header = lines.find(|line| {
        !line.starts_with('#') || !line[1..].starts_with([' ', 'C', 'c', 'N', 'O', 'P', 'R', 'r'])
    });
    header.is_some_and(|line| line.strip_prefix('x').is_some_and(|rest| rest.trim_start().starts_with('=')))
}

/// Maximum number of cells of a run-length encoded pattern.
const MAX_RLE_CELLS: usize = 1 << 24;

impl Bitmap {
    /// Reads the RLE format of Golly: `x = 3, y = 3, rule = B3/S23`, then runs of `b` and `o`, or `.` and `A` to `X` for more
    /// states, `$` at the end of a row and `!` at the end.
    pub fn from_rle(text: &str) -> Result<Bitmap, StateError> {
        let mut lines = text.lines().enumerate().skip_while(|(_, line)| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#')
        });
        let Some((at, header)) = lines.next() else { return text_error(0, "there is no header line".into()) };
        let mut sides = [None; 2];
        for part in header.split(',') {
            let Some((key, value)) = part.split_once('=') else { continue };
            let side = || value.trim().parse::<usize>().ok();
            match key.trim() {
                "x" => sides[1] = side(),
                "y" => sides[0] = side(),
                _ => {}
            }
        }
        let [Some(height), Some(width)] = sides else {
            return text_error(at, "the header is not of the form x = WIDTH, y = HEIGHT".into());
        };
        let fits = |side: usize| (1..=LARGEST_SIDE).contains(&side);
        if !fits(height) || !fits(width) || height * width > MAX_RLE_CELLS {
            return text_error(
                at,
                format!(
                    "a pattern has 1 to {LARGEST_SIDE} rows and columns and at most {MAX_RLE_CELLS} cells"
                ),
            );
        }
        let mut codes = vec![0u8; height * width];
        let (mut y, mut x, mut count) = (0usize, 0usize, None::<usize>);
        let mut largest = 1u8;
        for (number, line) in lines {
            for letter in line.trim().chars() {
                if let Some(digit) = letter.to_digit(10) {
                    let next = count.unwrap_or(0).saturating_mul(10).saturating_add(digit as usize);
                    count = Some(next);
                    continue;
                }
                if letter.is_whitespace() {
                    continue;
                }
                let run = count.take().unwrap_or(1);
                let state = match letter {
                    '!' => return Ok(Bitmap::of_states(height, width, codes, largest)),
                    '$' => {
                        y = y.saturating_add(run);
                        x = 0;
                        continue;
                    }
                    'b' | '.' => 0,
                    'o' => 1,
                    'A'..='X' => letter as u8 - b'A' + 1,
                    _ => return text_error(number, format!("{letter:?} is not part of a pattern")),
                };
                if usize::from(state) >= MAX_COLOURS {
                    return text_error(
                        number,
                        format!("state {letter:?}: at most {MAX_COLOURS} states can be read"),
                    );
                }
                if y >= height || run > width - x.min(width) {
                    return text_error(
                        number,
                        format!("a run goes beyond the {height}x{width} cells of the header"),
                    );
                }
                codes[y * width + x..][..run].fill(state);
                x += run;
                largest = largest.max(state);
            }
        }
        text_error(at, "the pattern does not end with !".into())
    }

    fn of_states(height: usize, width: usize, codes: Vec<u8>, largest: u8) -> Bitmap {
        let channels = bits_for(usize::from(largest) + 1).max(1);
        Bitmap { height, width, channels, codes, palette: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn png(width: u32, colour: png::ColorType, data: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let height = data.len() as u32 / colour.samples() as u32 / width;
        let mut encoder = png::Encoder::new(&mut bytes, width, height);
        encoder.set_color(colour);
        encoder.write_header().unwrap().write_image_data(data).unwrap();
        bytes
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
        let bytes = png(2, png::ColorType::Rgb, &[255, 0, 200, 10, 128, 127]);
        let map = Bitmap::from_png(&bytes).unwrap();
        assert_eq!((map.height, map.width, map.channels), (1, 2, 3));
        assert_eq!(map.codes, [5, 2]);
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

    #[test]
    fn the_border_is_the_background_whatever_its_brightness() {
        for (paper, ink) in [(255, 0), (0, 255), (90, 100)] {
            let mut data = [paper; 16];
            data[5] = ink;
            let (map, colours) = Bitmap::from_bytes(&png(4, png::ColorType::Grayscale, &data)).unwrap();
            assert_eq!((map.channels, map.set_cells(), map.codes[5]), (1, 1, 1));
            assert_eq!(map.palette, [[paper; 3], [ink; 3]]);
            assert_eq!(colours, Colours { found: 2, lost: 0 });
        }
    }

    #[test]
    fn transparent_cells_are_background_and_white_ones_are_not() {
        let clear = [200, 10, 10, 0];
        let (white, half) = ([255, 255, 255, 255], [0, 0, 0, 128]);
        let data = [clear, clear, white, clear, half, clear].concat();
        let (map, _) = Bitmap::from_bytes(&png(3, png::ColorType::Rgba, &data)).unwrap();
        assert_eq!(map.channels, 2);
        assert_eq!(map.set_cells(), 2);
        assert_ne!(map.codes[2], map.codes[4]);
        assert!(map.palette.contains(&[127, 127, 127]), "drawn on white: {:?}", map.palette);
    }

    #[test]
    fn colours_get_the_fewest_channels_and_too_many_are_merged() {
        for (colours, channels) in [(2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (16, 4), (60, 4)] {
            let mut data = vec![0u8; 100];
            (0..colours).for_each(|i| data[20 + i] = i as u8 * 4);
            let (map, found) = Bitmap::from_bytes(&png(10, png::ColorType::Grayscale, &data)).unwrap();
            assert_eq!((map.channels, found.found), (channels, colours), "{colours} colours");
            assert_eq!(found.lost == 0, colours <= 16);
            assert!(map.palette.len() <= 16);
            assert!(map.codes.iter().all(|code| usize::from(*code) < map.palette.len()));
        }
    }

    #[test]
    fn text_has_a_colour_for_each_letter() {
        let map = Bitmap::from_coloured_text("  x\n y\nx").unwrap();
        assert_eq!((map.size(), map.channels), ([3, 3], 2));
        assert_eq!(map.codes, [0, 0, 1, 0, 2, 0, 1, 0, 0]);
        let map = Bitmap::from_coloured_text("##\n.#").unwrap();
        assert_eq!((map.channels, &map.codes[..]), (1, &[1, 1, 0, 1][..]));
        assert!(Bitmap::from_coloured_text("##\n#").unwrap_err().to_string().contains("line 2"));
        let many: String = ('a'..='p').collect();
        assert!(matches!(Bitmap::from_coloured_text(&format!("{many}.")), Err(StateError::Colours { .. })));
    }

    #[test]
    fn rle_patterns_are_read() {
        let glider = "#C a glider\nx = 3, y = 3, rule = B3/S23\nbo$2bo$\n3o!\n";
        assert!(is_rle(glider) && !is_rle("###\n..."));
        let map = Bitmap::from_rle(glider).unwrap();
        assert_eq!((map.size(), map.channels), ([3, 3], 1));
        assert_eq!(map.codes, [0, 1, 0, 0, 0, 1, 1, 1, 1]);
        let brain = Bitmap::from_bytes(b"x = 3, y = 2, rule = B2/S/C3\n.AB2$!").unwrap().0;
        assert_eq!((brain.channels, &brain.codes[..3]), (2, &[0, 1, 2][..]));
        for (text, part) in [
            ("", "header"),
            ("x = 3", "header"),
            ("x = 0, y = 3\n!", "rows"),
            ("x = 99999, y = 3\n!", "rows"),
            ("x = 3, y = 1\n4o!", "line 2: a run"),
            ("x = 3, y = 1\no$o!", "beyond"),
            ("x = 3, y = 1\n99999999999999999999999o!", "beyond"),
            ("x = 3, y = 1\n99999999999999999999999$o!", "beyond"),
            ("x = 3, y = 1\n3o", "!"),
            ("x = 3, y = 1\n3z!", "'z'"),
            ("x = 3, y = 1\nX!", "states"),
        ] {
            let error = Bitmap::from_rle(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
