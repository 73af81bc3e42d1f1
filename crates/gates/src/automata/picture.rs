//! Pictures of a few colours: read from text, PNG and RLE files, placed on grids.
//!
//! A picture has a code for each cell; bit `i` of the code is the cell's channel `i`. The background has code 0 whatever its
//! brightness: it is what most of the border shows. Other colours are numbered by how often they occur, so a picture has as few
//! channels as its colours need.

mod text;

use std::collections::BTreeMap;
use std::io::Cursor;

use gatework_logic::Grid;

use super::construct::bits_for;
use super::states::StateError;
use text::is_rle;

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
        Bitmap::by_content(bytes, Bitmap::from_coloured_text)
    }

    /// Reads a tile by its content. In a text, spaces at the ends of lines are cells.
    pub fn tile_from_bytes(bytes: &[u8]) -> Result<(Bitmap, Colours), StateError> {
        Bitmap::by_content(bytes, Bitmap::tile_from_text)
    }

    fn by_content(
        bytes: &[u8],
        from_text: fn(&str) -> Result<Bitmap, StateError>,
    ) -> Result<(Bitmap, Colours), StateError> {
        if bytes.starts_with(b"\x89PNG") {
            return Bitmap::from_coloured_png(bytes);
        }
        if let Some(format) = other_format(bytes) {
            return Err(StateError::Format(format));
        }
        let Ok(text) = std::str::from_utf8(bytes) else { return Err(StateError::Unreadable) };
        let bitmap = if is_rle(text) { Bitmap::from_rle(text)? } else { from_text(text)? };
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

/// The name of a format of pictures that cannot be read, by the first bytes of a file.
fn other_format(bytes: &[u8]) -> Option<&'static str> {
    let known: [(&[u8], &str); 10] = [
        (b"\xff\xd8\xff", "JPEG"),
        (b"GIF8", "GIF"),
        (b"BM", "BMP"),
        (b"RIFF", "WebP"),
        (b"II*\0", "TIFF"),
        (b"MM\0*", "TIFF"),
        (b"<svg", "SVG"),
        (b"<?xml", "SVG"),
        (b"%PDF", "PDF"),
        (b"\0\0\x01\0", "ICO"),
    ];
    // P1 to P6 and a line break, with the size in the next line.
    let is_netpbm = matches!(bytes, [b'P', b'1'..=b'6', b'\n' | b'\r' | b' ', ..]);
    let found = known.iter().find(|(first, name)| {
        // Letters alone could be the cells of a text.
        bytes.starts_with(first) && (!["BMP", "WebP"].contains(name) || bytes.contains(&0))
    });
    found.map(|(_, name)| *name).or(is_netpbm.then_some("Netpbm"))
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
    fn other_formats_are_named_and_letters_are_not_taken_for_them() {
        for (bytes, name) in [
            (&b"\xff\xd8\xff\xe0"[..], "JPEG"),
            (b"GIF89a", "GIF"),
            (b"BM\0\0", "BMP"),
            (b"P1\n4 4\n", "Netpbm"),
        ] {
            let error = Bitmap::from_bytes(bytes).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains("PNG"), "{error}");
        }
        assert_eq!(Bitmap::from_bytes(b"BMB\nMBM\n").unwrap().0.size(), [2, 3]);
        assert_eq!(Bitmap::from_bytes(b"P1P\n1P1\n").unwrap().0.size(), [2, 3]);
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
}
