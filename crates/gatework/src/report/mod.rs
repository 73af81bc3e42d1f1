//! Reports of a run: GIF, SVG and HTML. Every function is pure and returns bytes or text; the caller decides where files go.
//!
//! | file | what it makes |
//! |---|---|
//! | `picture` | the state of an automaton as coloured cells: ink on paper, red-green-blue, or a mosaic of channels |
//! | `gif` | a sequence of pictures as an animated GIF |
//! | `loss_plot` | soft and hard loss over updates, as SVG |
//! | `success_plot` | the share of seeds that have learned over time, as SVG |
//! | `class_table`, `score_table` | the scores of a classifier, and of a forecaster compared with the baselines, as lines of text |
//! | `confusion` | the confusion matrix of a classifier, as SVG |
//! | `mistakes` | the images that a classifier gets wrong, as SVG |
//! | `forecast_plot` | a forecast with its intervals and the history, as SVG and for the terminal |
//! | `forecast_page` | an automatic forecast as a self-contained web page: charts with zoom, scores, what was chosen |
//! | `gate_histogram` | the number of gates of each function, as SVG |
//! | `ratio_chart` | ratios as bars on both sides of 1, as SVG |
//! | `scaling_plot` | time and memory over size on logarithmic axes, as SVG |
//! | `classifier_page` | a classifier as a self-contained web page: a canvas to draw on, or sliders |
//! | `page` | an automaton as a self-contained web page with its rule as WebAssembly |
//! | `plot`, `axis` | a plot area with two axes, shared by the charts; axes and their ticks |
//! | `svg` | SVG elements in one style, with escaped text |

mod axis;
mod class_table;
mod classifier_page;
mod confusion;
mod forecast_page;
mod forecast_plot;
mod gate_histogram;
mod gif;
mod loss_plot;
mod mistakes;
pub mod page;
mod picture;
mod plot;
mod ratio_chart;
mod scaling_plot;
mod score_table;
mod success_plot;
mod svg;

pub use self::class_table::class_table;
pub use self::classifier_page::classifier_page;
#[cfg(feature = "serve")]
pub(crate) use self::classifier_page::{
    SCRIPT as CLASSIFIER_SCRIPT, STYLE as CLASSIFIER_STYLE, classifier_body,
};
pub use self::confusion::confusion_matrix;
pub use self::forecast_page::forecast_page;
pub use self::forecast_plot::{ForecastPlot, forecast_plot, terminal_plot};
pub use self::gate_histogram::gate_histogram;
pub use self::gif::{Animation, Options};
pub use self::loss_plot::{LossPoint, classifier_loss_plot, forecaster_loss_plot, loss_plot};
pub use self::mistakes::{MAX_MISTAKES, MistakeTile, mistake_sheet};
pub use self::picture::{Colouring, Picture};
pub use self::ratio_chart::ratio_chart;
pub use self::scaling_plot::{ScalingLine, scaling_plot};
pub use self::score_table::score_table;
pub use self::success_plot::{Curve, success_plot};
#[cfg(feature = "serve")]
pub(crate) use self::svg::escape;

/// A picture that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReportError {
    /// An animation without a frame.
    #[error("an animation needs at least one frame")]
    NoFrames,
    /// A picture that cannot be encoded as PNG.
    #[error("the image cannot be encoded ({0})")]
    Png(String),
    /// A picture without cells, or without `width * height` of them.
    #[error("frame {frame} is {width} x {height} cells, but has {cells} colours: one per cell is needed")]
    BadPicture {
        /// The frame, counted from 0.
        frame: usize,
        /// Its width in cells.
        width: usize,
        /// Its height in cells.
        height: usize,
        /// The number of colours.
        cells: usize,
    },
    /// A frame whose size differs from that of the first one.
    #[error("frame {frame} is {} x {} cells, but frame 0 is {} x {}: all frames must have the same size", this.0, this.1, first.0, first.1)]
    SizeChanged {
        /// The frame, counted from 0.
        frame: usize,
        /// Width and height of the first frame in cells.
        first: (usize, usize),
        /// Width and height of this frame in cells.
        this: (usize, usize),
    },
    /// A picture that is larger than the format or the memory of a small machine allows.
    #[error(
        "{height}x{width} cells{} are too many for a picture, which has at most {} cells, such as 4096x4096, and sides of \
         at most {}; show a smaller grid{}",
        channels.map_or(String::new(), |channels| format!(" of {channels} channels, side by side,")),
        picture::MAX_CELLS,
        picture::MAX_SIDE,
        channels.map_or("", |_| " or fewer channels")
    )]
    TooLarge {
        /// Width in cells (of a mosaic: of one panel).
        width: usize,
        /// Height in cells (of a mosaic: of one panel).
        height: usize,
        /// The number of panels of a mosaic.
        channels: Option<usize>,
    },
    /// The GIF encoder failed.
    #[error("the GIF encoder failed")]
    Encoding(#[from] ::gif::EncodingError),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_frame_and_the_sizes() {
        let error = ReportError::SizeChanged { frame: 3, first: (20, 10), this: (5, 6) };
        assert_eq!(
            error.to_string(),
            "frame 3 is 5 x 6 cells, but frame 0 is 20 x 10: all frames must have the same size"
        );
    }
}
