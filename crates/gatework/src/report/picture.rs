//! The state of an automaton as a picture: one colour per cell. The observed channels become ink on paper
//! (one channel), red, green and blue (three), or the colours of a palette; any number of channels, hidden ones too, become a mosaic of small
//! panels. Real-valued states are rounded to a few shades, so that an animation stays within the palette of a GIF.

use rayon::prelude::*;

use super::ReportError;

/// A colour: red, green, blue.
pub(super) type Rgb = [u8; 3];

/// A cell that is 1.
const INK: Rgb = [0x1b, 0x1f, 0x3b];
/// A cell that is 0.
const PAPER: Rgb = [0xf4, 0xf1, 0xea];
/// Between the panels of a mosaic.
const GAP: Rgb = [0xcb, 0xc5, 0xb6];
/// A cell whose red, green and blue are all 0.
const NIGHT: Rgb = [0x14, 0x14, 0x1c];

/// A number that is no colour.
const STRANGE: Rgb = [0x9a, 0x98, 0x94];

/// Steps from paper to ink: 16 shades.
const INK_STEPS: u8 = 15;
/// Steps of each of red, green and blue: 6 * 6 * 6 = 216 colours fit a GIF's 256.
const RGB_STEPS: u8 = 5;

/// Maximum number of cells (4096 x 4096): a picture has at most 48 MB.
pub(super) const MAX_CELLS: usize = 1 << 24;
/// Maximum number of cells of a side: a GIF counts pixels in 16 bits.
pub(super) const MAX_SIDE: usize = u16::MAX as usize;

/// How the channels of a cell become its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colouring {
    /// Channel 0: 0 is paper, 1 is ink.
    Ink,
    /// Channels 0, 1, 2 are red, green, blue; all 0 is near-black.
    Rgb,
    /// The channels are the binary digits, the lowest first, of the number of a colour.
    Palette([[u8; 3]; PALETTE]),
}

/// Maximum number of colours of a palette.
const PALETTE: usize = 16;

impl Colouring {
    /// The colouring of `channels` observed channels. The palette has the colour of each number, or is empty.
    #[must_use]
    pub fn of_target(channels: usize, palette: &[[u8; 3]]) -> Self {
        if palette.is_empty() {
            return if channels < 3 { Self::Ink } else { Self::Rgb };
        }
        // Numbers without a colour of their own may occur before a picture is complete.
        let colour = |number: usize| palette.get(number).copied().unwrap_or(STRANGE);
        Self::Palette(std::array::from_fn(colour))
    }

    /// The colours of cells whose channels are bits, and of the gaps in a mosaic of them.
    #[must_use]
    pub fn colours(self) -> Vec<[u8; 3]> {
        let bit = |bits: u8, channel: u8| f32::from(bits >> channel & 1);
        match self {
            Self::Ink => vec![PAPER, INK, GAP],
            Self::Rgb => (0..8).map(|bits| red_green_blue([0, 1, 2].map(|c| bit(bits, c)))).collect(),
            Self::Palette(colours) => colours.to_vec(),
        }
    }
}

/// A picture of `height` rows of `width` cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// Cells in a row.
    pub width: usize,
    /// Rows.
    pub height: usize,
    /// Colours (red, green, blue) row by row: cell (y, x) is `cells[y * width + x]`.
    pub cells: Vec<[u8; 3]>,
}

impl Picture {
    /// Colours the cells of one state. `state(channel, y, x)` is a bit as 0.0 or 1.0, or a soft value between them;
    /// values outside are cut, NaN counts as 0.
    ///
    /// ```ignore
    /// let grown = Picture::from_channels(20, 20, 1, Colouring::Ink, |channel, y, x| grid.get(channel, y, x))?;
    /// ```
    pub fn from_channels(
        height: usize,
        width: usize,
        channels: usize,
        colouring: Colouring,
        state: impl Fn(usize, usize, usize) -> f32 + Sync,
    ) -> Result<Self, ReportError> {
        let (size, inks) = (Self::size(None, height, width)?, inks());
        Ok(Self::paint(size, |y, x| match colouring {
            Colouring::Ink => inks[shade(state(0, y, x), INK_STEPS)],
            Colouring::Rgb => red_green_blue([state(0, y, x), state(1, y, x), state(2, y, x)]),
            Colouring::Palette(colours) => {
                let digit = |channel: usize| usize::from(state(channel, y, x) >= 0.5) << channel;
                colours[(0..channels.min(4)).map(digit).sum::<usize>()]
            }
        }))
    }

    /// Lays `channels` channels out as a near-square mosaic, row by row: each a panel of `height x width` cells, ink
    /// on paper, one cell of gap around it. Unused places have the colour of the gap.
    pub fn mosaic(
        channels: usize,
        height: usize,
        width: usize,
        state: impl Fn(usize, usize, usize) -> f32 + Sync,
    ) -> Result<Self, ReportError> {
        let (size, inks) = (Self::size(Some(channels), height, width)?, inks());
        let (pitch_y, pitch_x) = (height + 1, width + 1);
        let columns = (size[1] - 1) / pitch_x;
        Ok(Self::paint(size, |y, x| {
            let (panel_y, panel_x) = (y / pitch_y, x / pitch_x);
            let channel = panel_y * columns + panel_x;
            // Row 0 and column 0 of each pitch are the gap.
            match ((y % pitch_y).checked_sub(1), (x % pitch_x).checked_sub(1)) {
                (Some(y), Some(x)) if panel_x < columns && channel < channels => {
                    inks[shade(state(channel, y, x), INK_STEPS)]
                }
                _ => GAP,
            }
        }))
    }

    /// Returns the height and width of the picture of a state, or of the mosaic of this many channels, in cells; an error if
    /// it has too many.
    pub fn size(mosaic: Option<usize>, height: usize, width: usize) -> Result<[usize; 2], ReportError> {
        let too_large = || ReportError::TooLarge { width, height, channels: mosaic };
        if mosaic.is_some_and(|channels| channels > MAX_CELLS) || height > MAX_SIDE || width > MAX_SIDE {
            return Err(too_large());
        }
        let size = mosaic.map_or([height, width], |channels| {
            let (pitch_y, pitch_x) = (height + 1, width + 1);
            // columns * pitch_x = rows * pitch_y and columns * rows = channels
            let square = (channels as f64 * pitch_y as f64 / pitch_x as f64).sqrt().round() as usize;
            let columns = square.clamp(1, channels.max(1));
            [channels.div_ceil(columns) * pitch_y + 1, columns * pitch_x + 1]
        });
        let fits = size.iter().all(|side| *side <= MAX_SIDE) && size[0] * size[1] <= MAX_CELLS;
        if fits { Ok(size) } else { Err(too_large()) }
    }

    /// A picture from a colour for each (y, x).
    fn paint([height, width]: [usize; 2], colour: impl Fn(usize, usize) -> Rgb + Sync) -> Self {
        let mut cells = vec![GAP; height * width];
        cells.par_chunks_mut(width.max(1)).enumerate().for_each(|(y, row)| {
            row.iter_mut().enumerate().for_each(|(x, cell)| *cell = colour(y, x));
        });
        Self { width, height, cells }
    }
}

/// The nearest of the steps from 0 to 1; NaN is 0.
fn shade(value: f32, steps: u8) -> usize {
    (value.clamp(0.0, 1.0) * f32::from(steps) + 0.5) as usize
}

/// The shades from paper to ink.
fn inks() -> [Rgb; INK_STEPS as usize + 1] {
    let mix = |from: u8, to: u8, amount: f32| {
        (f32::from(from) + (f32::from(to) - f32::from(from)) * amount).round() as u8
    };
    let shade = |step: usize| [0, 1, 2].map(|c| mix(PAPER[c], INK[c], step as f32 / f32::from(INK_STEPS)));
    std::array::from_fn(shade)
}

/// Each channel from 0 to 255; near-black where all are 0.
fn red_green_blue(channels: [f32; 3]) -> Rgb {
    let colour = channels.map(|value| shade(value, RGB_STEPS) as u8 * (255 / RGB_STEPS));
    if colour == [0, 0, 0] { NIGHT } else { colour }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_ink_and_paper() {
        let picture = Picture::from_channels(1, 2, 1, Colouring::Ink, |_, _, x| x as f32).unwrap();
        assert_eq!(picture.cells, [PAPER, INK]);
    }

    #[test]
    fn three_channels_are_red_green_blue_on_near_black() {
        let bit = |channel: usize, _: usize, x: usize| f32::from(x >> channel & 1 == 1);
        let picture = Picture::from_channels(1, 8, 3, Colouring::Rgb, bit).unwrap();
        assert_eq!(picture.cells[0], NIGHT);
        assert_eq!(picture.cells[1], [255, 0, 0]);
        assert_eq!(picture.cells[6], [0, 255, 255]);
        assert_eq!(picture.cells[7], [255, 255, 255]);
    }

    #[test]
    fn soft_values_have_few_shades_and_wild_values_are_cut() {
        let ink = |value| Picture::from_channels(1, 1, 1, Colouring::Ink, |_, _, _| value).unwrap().cells[0];
        let shades: std::collections::BTreeSet<Rgb> = (0..=1000).map(|i| ink(i as f32 / 1000.0)).collect();
        assert_eq!(shades.len(), 16);
        assert_eq!(ink(f32::NAN), PAPER);
        assert_eq!(ink(f32::INFINITY), INK);
        assert_eq!(ink(-3.0), PAPER);
    }

    #[test]
    fn a_mosaic_of_square_panels_is_near_square() {
        let picture = Picture::mosaic(8, 4, 4, |channel, _, _| f32::from(channel == 4)).unwrap();
        // 3 columns and 3 rows of panels at a pitch of 5 cells, and a gap at the end.
        assert_eq!((picture.width, picture.height), (16, 16));
        let at = |y: usize, x: usize| picture.cells[y * picture.width + x];
        assert_eq!(at(0, 0), GAP);
        assert_eq!(at(1, 1), PAPER);
        assert_eq!(at(6, 6), INK, "channel 4 is in the middle");
        assert_eq!(at(9, 9), INK);
        assert_eq!(at(10, 9), GAP);
        assert_eq!(at(14, 14), GAP, "the ninth place is empty");
    }

    #[test]
    fn extreme_sizes_are_refused_or_empty_but_never_panic() {
        let zero = |_: usize, _: usize, _: usize| 0.0;
        assert!(matches!(
            Picture::from_channels(usize::MAX, 2, 1, Colouring::Ink, zero),
            Err(ReportError::TooLarge { .. })
        ));
        assert!(Picture::mosaic(usize::MAX, usize::MAX, 1, zero).is_err());
        assert!(Picture::mosaic(1 << 24, 1 << 24, 1 << 24, zero).is_err());
        assert!(Picture::from_channels(0, 0, 3, Colouring::Rgb, zero).unwrap().cells.is_empty());
        assert_eq!(Picture::mosaic(0, 3, 3, zero).unwrap().cells, [GAP; 5]);
    }
}
