//! Pictures of a run, made from numbers alone: every function here is pure and returns bytes or text, so that the
//! caller decides where files go and tests need no disk.
//!
//! | file | what it makes |
//! |---|---|
//! | `picture` | the state of an automaton as coloured cells: ink on paper, red-green-blue, or a mosaic of channels |
//! | `gif` | a sequence of pictures as an animated GIF |
//! | `loss_plot` | soft and hard loss against updates, as SVG |
//! | `success_plot` | how many seeds have learned against updates, as SVG |
//! | `forecast_plot` | a forecast with its intervals against history, as SVG and for the terminal |
//! | `gate_histogram` | how often each gate was learnt, as SVG |
//! | `ratio_chart` | ratios as bars to both sides of 1, as SVG |
//! | `scaling_plot` | time and memory against size on logarithmic axes, as SVG |
//! | `page` | an automaton as a web page that carries its rule as WebAssembly |
//! | `plot`, `axis` | a plot area with two axes, shared by the charts; axes and their ticks |
//! | `svg` | the look that the plots share: colours, text, escaping |

mod axis;
mod forecast_plot;
mod gate_histogram;
mod gif;
mod loss_plot;
pub mod page;
mod picture;
mod plot;
mod ratio_chart;
mod scaling_plot;
mod success_plot;
mod svg;

use std::fmt;

pub use self::forecast_plot::{ForecastPlot, forecast_plot, terminal_plot};
pub use self::gate_histogram::gate_histogram;
pub use self::gif::{Animation, Options};
pub use self::loss_plot::{LossPoint, forecaster_loss_plot, loss_plot};
pub use self::picture::{Colouring, Picture};
pub use self::ratio_chart::ratio_chart;
pub use self::scaling_plot::{ScalingLine, scaling_plot};
pub use self::success_plot::{Curve, success_plot};

/// Why a picture could not be made.
#[derive(Debug)]
pub enum ReportError {
    /// An animation needs at least one frame.
    NoFrames,
    /// A picture has no cells, or not `width * height` of them.
    BadPicture {
        /// Which frame, counted from 0.
        frame: usize,
        /// Its width in cells.
        width: usize,
        /// Its height in cells.
        height: usize,
        /// How many cells it holds.
        cells: usize,
    },
    /// A frame has another size than the first one.
    SizeChanged {
        /// Which frame, counted from 0.
        frame: usize,
        /// Width and height in cells of the first frame.
        first: (usize, usize),
        /// Width and height in cells of this frame.
        this: (usize, usize),
    },
    /// The picture is larger than the format or the memory of a small machine holds.
    TooLarge {
        /// Width in cells (of a mosaic: of one panel).
        width: usize,
        /// Height in cells (of a mosaic: of one panel).
        height: usize,
    },
    /// The GIF encoder failed.
    Encoding(::gif::EncodingError),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoFrames => write!(f, "an animation needs at least one frame, but there is none"),
            Self::BadPicture { frame, width, height, cells } => {
                write!(
                    f,
                    "frame {frame} is {width} x {height} cells, but holds {cells} colours: it needs one a cell, and a cell"
                )
            }
            Self::SizeChanged { frame, first, this } => write!(
                f,
                "frame {frame} is {} x {} cells, but frame 0 is {} x {}: all frames of an animation have one size",
                this.0, this.1, first.0, first.1
            ),
            Self::TooLarge { width, height } => {
                write!(
                    f,
                    "{width} x {height} cells are too many for one picture: show a smaller grid or fewer channels"
                )
            }
            Self::Encoding(error) => write!(f, "GIF encoder: {error}"),
        }
    }
}

impl std::error::Error for ReportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Encoding(error) => Some(error),
            _ => None,
        }
    }
}

impl From<::gif::EncodingError> for ReportError {
    fn from(error: ::gif::EncodingError) -> Self {
        Self::Encoding(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_frame_and_the_sizes() {
        let error = ReportError::SizeChanged { frame: 3, first: (20, 10), this: (5, 6) };
        assert_eq!(
            error.to_string(),
            "frame 3 is 5 x 6 cells, but frame 0 is 20 x 10: all frames of an animation have one size"
        );
    }
}
