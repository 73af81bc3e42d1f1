//! Animated GIFs of cell pictures. A cell becomes a crisp square of `scale x scale` pixels. A frame after the first
//! encodes only the rectangle of cells that changed, and leaves unchanged cells inside it transparent where that is
//! smaller: an automaton that settles costs a few bytes per frame. All frames share one palette, made from the colours
//! in use. A line below the picture can show the step. Several frames are compressed at a time, one per thread; the result does not depend on how many.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ::gif::{DisposalMethod, Encoder, Frame, Repeat};
use rayon::prelude::*;

use super::ReportError;
use super::picture::{Picture, Rgb};

/// The default scale makes the longer side of a picture at least this long if it can, in pixels ...
const MIN_SIDE: usize = 320;
/// ... but not longer than this ...
const MOST_SIDE: usize = 480;
/// ... with at most this number of pixels per cell.
const MAX_SCALE: usize = 24;
/// From this scale on, a line one pixel wide separates the cells.
const GRID_SCALE: usize = 12;
/// A GIF's palette.
const MAX_COLOURS: usize = 256;
/// Maximum number of pixels of a frame.
const MAX_PIXELS: usize = 1 << 26;
/// Maximum number of cells of the pictures that are compressed at a time, unless one has more.
const MAX_WAITING: usize = 1 << 25;

/// How an animation looks and how fast it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Pixels per cell; `None` chooses 1 to 24 so that the longer side has 320 to 480.
    pub scale: Option<usize>,
    /// Time a frame is shown, in 1/100 s. Browsers slow down anything below 2, which is therefore the minimum.
    pub delay: u16,
    /// Time the first frame is shown, and the last one before the animation starts again, in 1/100 s.
    pub hold: u16,
    /// Whether a line below the picture shows the label of each frame.
    pub labels: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { scale: None, delay: 8, hold: 150, labels: false }
    }
}

/// A GIF encoder. It keeps the encoded bytes and a picture per thread, whatever the number of frames.
///
/// ```ignore
/// let mut animation = Animation::new(&Colouring::Ink.colours(), Options { delay: 5, ..Options::default() });
/// pictures.try_for_each(|picture| animation.show(picture))?;
/// std::fs::write("lizard.gif", animation.finish()?)?;
/// ```
pub struct Animation {
    options: Options,
    colours: BTreeSet<Rgb>,
    canvas: Option<Canvas>,
    frames: usize,
}

/// The state of the encoder after the first frame.
struct Canvas {
    raster: Raster,
    palette: Palette,
    encoder: Encoder<Vec<u8>>,
    /// Width and height of the pictures in cells.
    size: (usize, usize),
    /// Pictures that are not encoded yet, with their labels.
    waiting: Vec<(Picture, String)>,
    /// Frames that are written.
    written: usize,
    /// The palette indices of the last encoded picture.
    shown: Vec<u8>,
    /// Encoded but not written, because the last frame has another delay.
    pending: Frame<'static>,
}

impl Animation {
    /// An animation whose cells will have these colours.
    pub fn new(colours: &[[u8; 3]], options: Options) -> Self {
        Self { options, colours: colours.iter().copied().collect(), canvas: None, frames: 0 }
    }

    /// Adds a frame without a label. All have the size of the first.
    pub fn show(&mut self, picture: Picture) -> Result<(), ReportError> {
        self.show_labelled(picture, String::new())
    }

    /// Adds a frame with a label, which is shown if the options ask for it: digits, and the letters of `STEP`.
    pub fn show_labelled(&mut self, picture: Picture, label: String) -> Result<(), ReportError> {
        let (frame, &Picture { width, height, ref cells }) = (self.frames, &picture);
        if cells.is_empty() || width.checked_mul(height) != Some(cells.len()) {
            return Err(ReportError::BadPicture { frame, width, height, cells: cells.len() });
        }
        self.frames += 1;
        let Some(canvas) = &mut self.canvas else {
            self.canvas = Some(Canvas::new(&picture, &label, &self.colours, self.options)?);
            return Ok(());
        };
        if (width, height) != canvas.size {
            return Err(ReportError::SizeChanged { frame, first: canvas.size, this: (width, height) });
        }
        let most = rayon::current_num_threads().min(MAX_WAITING / picture.cells.len());
        canvas.waiting.push((picture, label));
        if canvas.waiting.len() < most { Ok(()) } else { canvas.encode_waiting(self.options) }
    }

    /// The GIF; it loops forever.
    pub fn finish(self) -> Result<Vec<u8>, ReportError> {
        let mut canvas = self.canvas.ok_or(ReportError::NoFrames)?;
        canvas.encode_waiting(self.options)?;
        canvas.write(self.options.hold)?;
        Ok(canvas.encoder.into_inner()?)
    }
}

impl Canvas {
    fn new(
        picture: &Picture,
        label: &str,
        colours: &BTreeSet<Rgb>,
        options: Options,
    ) -> Result<Self, ReportError> {
        let raster = Raster::new(picture, options)?;
        let mut colours = colours.clone();
        if options.labels {
            colours.extend([LABEL_PAPER, LABEL_INK]);
        }
        let colours = &colours;
        let palette = Palette::new(colours, raster.scale >= GRID_SCALE);
        let mut encoder = Encoder::new(Vec::new(), raster.width, raster.height, &palette.bytes())?;
        encoder.set_repeat(Repeat::Infinite)?;
        let shown = palette.indices(picture);
        let pending = raster.smallest_frame(&shown, None, label, &palette);
        let size = (picture.width, picture.height);
        Ok(Self { raster, palette, encoder, size, waiting: Vec::new(), written: 0, shown, pending })
    }

    /// Encodes the waiting pictures, and writes all frames but the last.
    fn encode_waiting(&mut self, options: Options) -> Result<(), ReportError> {
        let (raster, palette) = (&self.raster, &self.palette);
        let mut pictures = vec![(std::mem::take(&mut self.shown), String::new())];
        let waiting = self.waiting.par_drain(..);
        pictures.par_extend(waiting.map(|(picture, label)| (palette.indices(&picture), label)));
        let frames: Vec<Frame<'static>> = pictures
            .par_windows(2)
            .map(|pair| raster.smallest_frame(&pair[1].0, Some(&pair[0].0), &pair[1].1, palette))
            .collect();
        self.shown = pictures.pop().unwrap_or_default().0;
        for frame in frames {
            let is_held = self.written == 0 && options.labels;
            self.write(if is_held { options.hold / 2 } else { options.delay })?;
            self.pending = frame;
        }
        Ok(())
    }

    /// Writes the pending frame, shown for `delay`.
    fn write(&mut self, delay: u16) -> Result<(), ReportError> {
        self.written += 1;
        self.pending.delay = delay.max(2);
        Ok(self.encoder.write_lzw_pre_encoded_frame(&self.pending)?)
    }
}

/// The colours of an animation.
struct Palette {
    /// Index of each colour that cells and grid lines have.
    index: BTreeMap<Rgb, u8>,
    /// The colours by index.
    colours: Vec<Rgb>,
    /// Whether cells are drawn with a darker line between them.
    grid: bool,
    /// The index that means "leave the pixel as it was", if there is one to spare.
    transparent: Option<u8>,
}

impl Palette {
    /// Returns the colours of cells, and of grid lines if requested. If these are too many with grid lines, there are no
    /// lines; if still too many, all colours are rounded to 3 bits red, 3 bits green, 2 bits blue.
    fn new(cells: &BTreeSet<Rgb>, grid: bool) -> Self {
        let lines: BTreeSet<Rgb> = cells.iter().map(|&colour| line_colour(colour)).collect();
        let lined: BTreeSet<Rgb> = cells.union(&lines).copied().collect();
        let grid = grid && lined.len() <= MAX_COLOURS;
        let colours = if grid { &lined } else { cells };
        let mut palette =
            if colours.len() <= MAX_COLOURS { Self::exact(colours) } else { Self::rounded(colours) };
        palette.grid = grid;
        palette
    }

    /// Keeps at most 256 colours unchanged.
    fn exact(colours: &BTreeSet<Rgb>) -> Self {
        let index: BTreeMap<Rgb, u8> = colours.iter().copied().zip(0..=u8::MAX).collect();
        let mut colours: Vec<Rgb> = colours.iter().copied().collect();
        let transparent = u8::try_from(colours.len()).ok();
        if transparent.is_some() {
            colours.push([0, 0, 0]);
        }
        Self { index, colours, grid: false, transparent }
    }

    /// Any number of colours, rounded to the 256 of 3-3-2.
    fn rounded(colours: &BTreeSet<Rgb>) -> Self {
        let index = colours.iter().map(|&colour @ [r, g, b]| (colour, r & 0xe0 | (g & 0xe0) >> 3 | b >> 6));
        let spread = |level: u8, top: u16| (u16::from(level) * 255 / top) as u8;
        let colours = (0..=u8::MAX).map(|i| [spread(i >> 5, 7), spread(i >> 2 & 7, 7), spread(i & 3, 3)]);
        Self { index: index.collect(), colours: colours.collect(), grid: false, transparent: None }
    }

    /// The indices of the cells of a picture.
    fn indices(&self, picture: &Picture) -> Vec<u8> {
        // Neighbouring cells often have the same colour, which is looked up once.
        let mut last = ([0; 3], self.index.get(&[0; 3]).copied().unwrap_or(0));
        let index = |&colour: &Rgb| {
            if colour != last.0 {
                last = (colour, self.index.get(&colour).copied().unwrap_or(0));
            }
            last.1
        };
        picture.cells.iter().map(index).collect()
    }

    /// The index of the grid line of a cell with this index; the same if there are no lines.
    fn line(&self, index: u8) -> u8 {
        let line = |colour: &Rgb| self.index.get(&line_colour(*colour)).copied();
        let colour =
            self.colours.get(usize::from(index)).filter(|_| self.grid && self.transparent != Some(index));
        colour.and_then(line).unwrap_or(index)
    }

    /// Returns the palette in the layout of the encoder.
    fn bytes(&self) -> Vec<u8> {
        self.colours.concat()
    }
}

/// The colour of the grid line of a cell: a little darker than the cell, so that light areas show their cells and dark
/// ones stay solid.
fn line_colour(colour: Rgb) -> Rgb {
    colour.map(|level| (u16::from(level) * 7 / 8) as u8)
}

/// The mapping from cells to pixels.
struct Raster {
    /// Pixels per cell.
    scale: usize,
    /// Width in pixels.
    width: u16,
    /// Height in pixels, with the line of the label.
    height: u16,
    /// Height of the line of the label in pixels; 0 if there is none.
    strip: usize,
}

impl Raster {
    /// Chooses the scale (see [`Options::scale`]) and checks that the pixels fit a GIF.
    fn new(picture: &Picture, options: Options) -> Result<Self, ReportError> {
        let side = picture.width.max(picture.height).max(1);
        let fitting = MIN_SIDE.div_ceil(side).min(MOST_SIDE / side).min(MAX_SCALE);
        let scale = options.scale.unwrap_or(fitting).max(1);
        let strip = if options.labels { LABEL_HEIGHT } else { 0 };
        let pixels = |cells: usize, more: usize| {
            cells.checked_mul(scale).and_then(|pixels| u16::try_from(pixels + more).ok())
        };
        match (pixels(picture.width, 0), pixels(picture.height, strip)) {
            (Some(width), Some(height)) if usize::from(width) * usize::from(height) <= MAX_PIXELS => {
                Ok(Self { scale, width, height, strip })
            }
            _ => Err(ReportError::TooLarge { width: picture.width, height: picture.height, channels: None }),
        }
    }

    /// Returns the compressed frame that turns `shown` into `picture`, both as palette indices. Few changes compress better with transparent unchanged
    /// cells, many changes without: the smaller frame is returned.
    fn smallest_frame(
        &self,
        picture: &[u8],
        shown: Option<&[u8]>,
        label: &str,
        palette: &Palette,
    ) -> Frame<'static> {
        let width = usize::from(self.width) / self.scale;
        let (mut rows, mut columns) = changed(picture, shown, width);
        if self.strip > 0 {
            // Down to the label, and as wide as it.
            rows.end = picture.len() / width;
            columns = 0..columns.end.max(LABEL_WIDTH.div_ceil(self.scale)).min(width);
        }
        let lines: [u8; MAX_COLOURS] = std::array::from_fn(|index| palette.line(index as u8));
        let draw = |keep: Option<(&[u8], u8)>| {
            let mut frame = self.frame(&rows, &columns, &lines, |i| match keep {
                Some((shown, transparent)) if shown[i] == picture[i] => transparent,
                _ => picture[i],
            });
            if self.strip > 0 {
                self.append_label(&mut frame, label, palette);
            }
            frame.transparent = keep.map(|(_, index)| index);
            frame.make_lzw_pre_encoded();
            frame
        };
        let opaque = draw(None);
        match shown.zip(palette.transparent).map(|keep| draw(Some(keep))) {
            Some(sparse) if sparse.buffer.len() < opaque.buffer.len() => sparse,
            _ => opaque,
        }
    }

    /// Adds the line of the label to a frame that ends with the last row of cells.
    fn append_label(&self, frame: &mut Frame<'static>, label: &str, palette: &Palette) {
        let index = |colour: Rgb| palette.index.get(&colour).copied().unwrap_or(0);
        let (paper, ink) = (index(LABEL_PAPER), index(LABEL_INK));
        let buffer = frame.buffer.to_mut();
        for y in 0..self.strip {
            for x in 0..usize::from(frame.width) {
                // A margin of four pixels; two pixels for each dot of a letter.
                let dot = |at: usize, margin: usize| at.checked_sub(margin).map(|at| at / 2);
                let is_ink = dot(y, 3).zip(dot(x, 4)).is_some_and(|(row, column)| {
                    label.chars().nth(column / 4).is_some_and(|letter| glyph(letter, row, column % 4))
                });
                buffer.push(if is_ink { ink } else { paper });
            }
        }
        frame.height += self.strip as u16;
    }

    /// The pixels of the cells in `rows` and `columns`; `cell` gives the palette index of a cell, `lines` that of its line.
    fn frame(
        &self,
        rows: &Range<usize>,
        columns: &Range<usize>,
        lines: &[u8; MAX_COLOURS],
        cell: impl Fn(usize) -> u8,
    ) -> Frame<'static> {
        let picture_width = usize::from(self.width) / self.scale;
        let mut buffer = Vec::with_capacity(rows.len() * columns.len() * self.scale * self.scale);
        for y in rows.clone() {
            let cells = columns.clone().map(|x| cell(y * picture_width + x));
            if self.scale == 1 {
                buffer.extend(cells);
                continue;
            }
            let cells: Vec<u8> = cells.collect();
            for pixel_y in 0..self.scale {
                let under_line = pixel_y == 0 && y > 0;
                for (x, &cell) in columns.clone().zip(&cells) {
                    let line = lines[usize::from(cell)];
                    let body = if under_line { line } else { cell };
                    buffer.push(if x > 0 { line } else { body });
                    buffer.resize(buffer.len() + self.scale - 1, body);
                }
            }
        }
        // Inside the picture, whose pixels were checked to fit 16 bits.
        let pixels = |cells: usize| (cells * self.scale) as u16;
        Frame {
            left: pixels(columns.start),
            top: pixels(rows.start),
            width: pixels(columns.len()),
            height: pixels(rows.len()),
            dispose: DisposalMethod::Keep,
            buffer: Cow::Owned(buffer),
            ..Frame::default()
        }
    }
}

/// Height of the line of a label: five dots of two pixels, and margins.
const LABEL_HEIGHT: usize = 16;
/// Width of a label in pixels: `STEP` and seven digits.
const LABEL_WIDTH: usize = 4 + 8 * 12;
const LABEL_PAPER: Rgb = [0xff, 0xff, 0xff];
const LABEL_INK: Rgb = [0x55, 0x55, 0x60];

/// Whether a letter of 5 x 3 dots has ink in a row and column.
fn glyph(letter: char, row: usize, column: usize) -> bool {
    let rows: [u8; 5] = match letter {
        '0' => [0b111, 0b101, 0b101, 0b101, 0b111],
        '1' => [0b010, 0b110, 0b010, 0b010, 0b111],
        '2' => [0b111, 0b001, 0b111, 0b100, 0b111],
        '3' => [0b111, 0b001, 0b111, 0b001, 0b111],
        '4' => [0b101, 0b101, 0b111, 0b001, 0b001],
        '5' => [0b111, 0b100, 0b111, 0b001, 0b111],
        '6' => [0b111, 0b100, 0b111, 0b101, 0b111],
        '7' => [0b111, 0b001, 0b010, 0b010, 0b010],
        '8' => [0b111, 0b101, 0b111, 0b101, 0b111],
        '9' => [0b111, 0b101, 0b111, 0b001, 0b111],
        'S' => [0b011, 0b100, 0b010, 0b001, 0b110],
        'T' => [0b111, 0b010, 0b010, 0b010, 0b010],
        'E' => [0b111, 0b100, 0b110, 0b100, 0b111],
        'P' => [0b110, 0b101, 0b110, 0b100, 0b100],
        _ => [0; 5],
    };
    row < 5 && column < 3 && rows[row] >> (2 - column) & 1 == 1
}

/// Returns the smallest rectangle (rows, columns) that contains every changed cell; one cell if nothing changed, because a
/// frame needs a pixel.
fn changed(picture: &[u8], shown: Option<&[u8]>, width: usize) -> (Range<usize>, Range<usize>) {
    let Some(shown) = shown else { return (0..picture.len() / width, 0..width) };
    let mut bounds: Option<(Range<usize>, Range<usize>)> = None;
    for (y, (new, old)) in picture.chunks(width).zip(shown.chunks(width)).enumerate() {
        let differs = |x: &usize| new[*x] != old[*x];
        let (Some(first), Some(last)) = ((0..width).find(differs), (0..width).rfind(differs)) else {
            continue;
        };
        let (rows, columns) = bounds.get_or_insert((y..y + 1, first..last + 1));
        rows.end = y + 1;
        *columns = columns.start.min(first)..columns.end.max(last + 1);
    }
    bounds.unwrap_or((0..1, 0..1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Colouring;

    /// A GIF of frames in the colours that they have.
    fn encode(frames: &[Picture], options: &Options) -> Result<Vec<u8>, ReportError> {
        let colours: BTreeSet<Rgb> = frames.iter().flat_map(|picture| &picture.cells).copied().collect();
        let mut animation = Animation::new(&Vec::from_iter(colours), *options);
        frames.iter().try_for_each(|picture| animation.show(picture.clone()))?;
        animation.finish()
    }

    /// A decoded frame: all pixels of the canvas and the delay.
    struct Shown {
        pixels: Vec<Rgb>,
        delay: u16,
    }

    /// Decodes a GIF and plays its frames onto a canvas. Returns width, height and the visible frames.
    fn play(bytes: &[u8]) -> (usize, usize, Vec<Shown>) {
        let mut decoder = ::gif::DecodeOptions::new().read_info(bytes).unwrap();
        let (width, height) = (usize::from(decoder.width()), usize::from(decoder.height()));
        let colours: Vec<Rgb> =
            decoder.global_palette().unwrap().chunks_exact(3).map(|c| [c[0], c[1], c[2]]).collect();
        let mut canvas = vec![[1, 2, 3]; width * height];
        let mut seen = Vec::new();
        while let Some(frame) = decoder.read_next_frame().unwrap() {
            let (left, top) = (usize::from(frame.left), usize::from(frame.top));
            for (i, &index) in frame.buffer.iter().enumerate() {
                let (y, x) = (i / usize::from(frame.width), i % usize::from(frame.width));
                if frame.transparent != Some(index) {
                    canvas[(top + y) * width + left + x] = colours[usize::from(index)];
                }
            }
            seen.push(Shown { pixels: canvas.clone(), delay: frame.delay });
        }
        assert_eq!(decoder.repeat(), Repeat::Infinite);
        (width, height, seen)
    }

    /// Noise that needs no crate: xorshift.
    fn noise(seed: &mut u64) -> u64 {
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        *seed >> 32
    }

    /// Frames that flip about one in `sparsity` cells at random.
    fn flicker(count: usize, side: usize, colouring: Colouring, sparsity: u64) -> Vec<Picture> {
        let mut seed = 42;
        let mut bits = vec![0.0f32; 3 * side * side];
        (0..count)
            .map(|_| {
                for bit in &mut bits {
                    if noise(&mut seed).is_multiple_of(sparsity) {
                        *bit = 1.0 - *bit;
                    }
                }
                Picture::from_channels(side, side, 3, colouring, |c, y, x| bits[(c * side + y) * side + x])
                    .unwrap()
            })
            .collect()
    }

    /// Asserts that every frame of `bytes` shows the cells of `frames` in the middle of their squares.
    fn assert_shows(bytes: &[u8], frames: &[Picture], scale: usize) {
        let (width, height, seen) = play(bytes);
        assert_eq!(seen.len(), frames.len());
        for (shown, picture) in seen.iter().zip(frames) {
            assert_eq!((width, height), (picture.width * scale, picture.height * scale));
            for (i, &cell) in picture.cells.iter().enumerate() {
                let (y, x) = (i / picture.width * scale + scale / 2, i % picture.width * scale + scale / 2);
                assert_eq!(shown.pixels[y * width + x], cell);
            }
        }
    }

    #[test]
    fn a_gif_decodes_to_the_cells_that_went_in() {
        for (side, scale) in [(20, 16), (13, 24), (64, 5), (3, 24), (250, 1), (500, 1)] {
            for colouring in [Colouring::Ink, Colouring::Rgb] {
                let frames = flicker(5, side, colouring, 10);
                assert_shows(&encode(&frames, &Options::default()).unwrap(), &frames, scale);
            }
        }
    }

    #[test]
    fn every_pixel_of_a_small_cell_has_the_colour_of_the_cell() {
        let frames = flicker(3, 10, Colouring::Ink, 3);
        let (width, _, seen) =
            play(&encode(&frames, &Options { scale: Some(5), ..Options::default() }).unwrap());
        for (shown, picture) in seen.iter().zip(&frames) {
            for (i, &pixel) in shown.pixels.iter().enumerate() {
                assert_eq!(pixel, picture.cells[i / width / 5 * 10 + i % width / 5]);
            }
        }
    }

    #[test]
    fn large_cells_have_darker_lines_between_them_only() {
        let frames = flicker(2, 2, Colouring::Ink, 2);
        let (width, _, seen) =
            play(&encode(&frames, &Options { scale: Some(12), ..Options::default() }).unwrap());
        let (shown, cells) = (&seen[1].pixels, &frames[1].cells);
        assert_eq!(shown[0], cells[0], "no line at the outer edge");
        assert_eq!(shown[12], line_colour(cells[1]));
        assert_eq!(shown[12 * width], line_colour(cells[2]));
        assert_eq!(shown[13 * width + 13], cells[3]);
    }

    #[test]
    fn an_unchanged_frame_is_kept_and_costs_a_few_bytes() {
        let frames = vec![flicker(1, 64, Colouring::Ink, 2).remove(0); 3];
        let one = encode(&frames[..1], &Options::default()).unwrap();
        let three = encode(&frames, &Options::default()).unwrap();
        assert!(three.len() - one.len() < 80);
        assert_shows(&three, &frames, 5);
    }

    #[test]
    fn the_last_frame_is_held() {
        let frames = flicker(3, 4, Colouring::Ink, 2);
        let (_, _, seen) = play(&encode(&frames, &Options { delay: 0, ..Options::default() }).unwrap());
        assert_eq!(seen.iter().map(|shown| shown.delay).collect::<Vec<_>>(), [2, 2, 150]);
    }

    #[test]
    fn labels_are_below_the_picture_and_the_first_frame_is_held() {
        let frames = flicker(3, 6, Colouring::Ink, 4);
        let colours = Colouring::Ink.colours();
        let mut animation = Animation::new(&colours, Options { labels: true, ..Options::default() });
        for (step, frame) in frames.iter().enumerate() {
            animation.show_labelled(frame.clone(), format!("STEP {step}")).unwrap();
        }
        let (width, height, seen) = play(&animation.finish().unwrap());
        assert_eq!((width, height), (6 * 24, 6 * 24 + LABEL_HEIGHT));
        assert_eq!(seen.iter().map(|shown| shown.delay).collect::<Vec<_>>(), [75, 8, 150]);
        for (step, (shown, picture)) in seen.iter().zip(&frames).enumerate() {
            for (i, &cell) in picture.cells.iter().enumerate() {
                assert_eq!(shown.pixels[(i / 6 * 24 + 12) * width + i % 6 * 24 + 12], cell);
            }
            // The sixth letter is the digit of the step.
            for (row, column) in (0..5).flat_map(|row| (0..3).map(move |column| (row, column))) {
                let pixel = shown.pixels[(6 * 24 + 3 + 2 * row) * width + 4 + 2 * (5 * 4 + column)];
                let digit = char::from_digit(step as u32, 10).unwrap();
                assert_eq!(pixel == LABEL_INK, glyph(digit, row, column), "step {step}");
            }
        }
    }

    /// Game of Life from random cells, on a torus.
    fn life(count: usize, side: usize) -> Vec<Picture> {
        let mut seed = 7;
        let mut alive: Vec<bool> = (0..side * side).map(|_| noise(&mut seed).is_multiple_of(3)).collect();
        let mut frames = Vec::new();
        for _ in 0..count {
            let bit = |_: usize, y: usize, x: usize| f32::from(alive[y * side + x]);
            frames.push(Picture::from_channels(side, side, 1, Colouring::Ink, bit).unwrap());
            let at = |y: usize, x: usize| usize::from(alive[y % side * side + x % side]);
            let next = |i: usize| {
                let (y, x) = (i / side + side - 1, i % side + side - 1);
                let block: usize = (0..9).map(|j| at(y + j / 3, x + j % 3)).sum();
                block == 3 || block == 4 && alive[i]
            };
            alive = (0..side * side).map(next).collect();
        }
        frames
    }

    #[test]
    fn a_hundred_frames_of_64_by_64_cells_are_small() {
        for (name, frames, limit) in [
            ("life", life(100, 64), 400_000),
            ("1 in 50 flips", flicker(100, 64, Colouring::Ink, 50), 150_000),
            ("colours, 1 in 200 flips", flicker(100, 64, Colouring::Rgb, 200), 200_000),
            ("noise", flicker(100, 64, Colouring::Ink, 2), 650_000),
        ] {
            let size = encode(&frames, &Options::default()).unwrap().len();
            println!("{name}: {size} bytes");
            assert!(size < limit, "{name}: {size} bytes");
        }
    }

    #[test]
    fn up_to_256_colours_are_exact_and_more_are_rounded() {
        let gradient = |colours: usize| Picture {
            width: 25,
            height: 20,
            cells: (0..500)
                .map(|i| (i % colours) as u16)
                .map(|i| [(i >> 8) as u8 * 100, i as u8, 200])
                .collect(),
        };
        for colours in [127, 128, 129, 255, 256] {
            let frames = [gradient(colours)];
            assert_shows(&encode(&frames, &Options::default()).unwrap(), &frames, 13);
        }
        let (_, _, seen) = play(&encode(&[gradient(257)], &Options::default()).unwrap());
        for (shown, cell) in seen[0].pixels.iter().step_by(13).zip(&gradient(257).cells[..25]) {
            assert!((0..3).all(|c| shown[c].abs_diff(cell[c]) < 64), "{shown:?} is far from {cell:?}");
        }
    }

    #[test]
    fn bad_input_is_an_error() {
        let picture = |width, height, cells| Picture { width, height, cells: vec![[0; 3]; cells] };
        let plain = |frames: &[Picture]| encode(frames, &Options::default());
        assert!(matches!(plain(&[]), Err(ReportError::NoFrames)));
        assert!(matches!(plain(&[picture(0, 0, 0)]), Err(ReportError::BadPicture { frame: 0, .. })));
        assert!(matches!(plain(&[picture(usize::MAX, 3, 9)]), Err(ReportError::BadPicture { .. })));
        assert!(matches!(
            plain(&[picture(2, 3, 6), picture(3, 2, 6)]),
            Err(ReportError::SizeChanged { frame: 1, .. })
        ));
        assert!(matches!(plain(&[picture(70_000, 1, 70_000)]), Err(ReportError::TooLarge { .. })));
        let huge = Options { scale: Some(usize::MAX), ..Options::default() };
        assert!(matches!(encode(&[picture(2, 2, 4)], &huge), Err(ReportError::TooLarge { .. })));
    }
}
