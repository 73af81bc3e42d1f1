//! Ratios as horizontal bars on a logarithmic axis: bars grow from the line at 1, to the right where the ratio is above it
//! and to the left where it is below, so that twice as fast and half as fast are equally long.

use super::axis::{Linear, Log};
use super::plot::{Area, Plot};
use super::svg::{Svg, shorten};
use crate::number::measured;

/// Width of the picture in pixels.
const WIDTH: f64 = 820.0;
/// Top of the first bar.
const TOP: f64 = 56.0;
/// Distance from bar to bar.
const PITCH: f64 = 21.0;
/// Thickness of a bar.
const THICKNESS: f64 = 13.0;
/// Where the axis starts and ends.
const AXIS: (f64, f64) = (320.0, 730.0);
/// The longest name that is written in full, in characters.
const MAX_NAME: usize = 42;

/// Draws named ratios as SVG, in the order given. Ratios that are not positive numbers have no bar.
///
/// ```ignore
/// let bars = [("add f32: torch".to_owned(), 3.2), ("dot f32: torch".to_owned(), 0.8)];
/// std::fs::write("engine.svg", ratio_chart("engine", &bars))?;
/// ```
#[must_use]
pub fn ratio_chart(title: &str, bars: &[(String, f64)]) -> String {
    let bottom = TOP + PITCH * bars.len().max(1) as f64;
    let mut svg = Svg::new(WIDTH, bottom + 44.0, title);
    let drawn = |ratio: f64| ratio.is_finite() && ratio > 0.0;
    let ratios = || bars.iter().map(|bar| bar.1).filter(|&ratio| drawn(ratio));
    // Half and twice are always there: no picture makes a per cent look large.
    let x = Log::new(ratios().fold(0.5, f64::min), ratios().fold(2.0, f64::max));
    let area = Area { left: AXIS.0, right: AXIS.1, top: TOP, bottom };
    let plot = Plot { area, x, y: Linear::of_values(0.0, 1.0) };
    plot.draw_columns(&mut svg);
    for (i, (name, ratio)) in bars.iter().enumerate() {
        let y = TOP + PITCH * i as f64 + (PITCH - THICKNESS) / 2.0;
        let baseline = y + THICKNESS / 2.0 + 4.0;
        svg.text("end", AXIS.0 - 10.0, baseline, &shorten(name, MAX_NAME));
        if drawn(*ratio) {
            let (from, to) = (plot.column(ratio.min(1.0)), plot.column(ratio.max(1.0)));
            let class = if *ratio < 1.0 { "hard-fill" } else { "soft-fill" };
            svg.rect(class, (from, y), (to - from, THICKNESS), 2.0);
            svg.text("muted halo", to + 6.0, baseline, &measured(*ratio));
        }
    }
    svg.line("frame", (plot.column(1.0), TOP), (plot.column(1.0), bottom));
    svg.text("muted", AXIS.0, bottom + 34.0, "ratio, log scale; right of 1 ours is faster");
    svg.finish()
}

#[cfg(test)]
mod tests {
    use super::super::svg::assert_well_formed;
    use super::*;

    fn bars(ratios: &[(&str, f64)]) -> Vec<(String, f64)> {
        ratios.iter().map(|&(name, ratio)| (name.to_owned(), ratio)).collect()
    }

    #[test]
    fn every_bar_has_its_name_and_ratio() {
        let chart = ratio_chart("engine", &bars(&[("add: torch", 3.25), ("dot: torch", 0.8)]));
        let text = assert_well_formed(&chart);
        for label in ["add: torch", "3.25", "dot: torch", "0.8", "log scale"] {
            assert!(text.contains(label), "{label} is missing");
        }
        let filled = |class: &str| chart.matches(&format!("<rect class=\"{class}\"")).count();
        assert_eq!((filled("hard-fill"), filled("soft-fill")), (1, 1));
    }

    #[test]
    fn odd_ratios_are_well_formed() {
        for input in [
            bars(&[]),
            bars(&[("<&>", f64::NAN), ("zero", 0.0), ("less", -1.0), ("much", f64::INFINITY)]),
            bars(&[("tiny", 1e-300), ("huge", 1e300)]),
        ] {
            assert_well_formed(&ratio_chart("a < b", &input));
        }
    }
}
