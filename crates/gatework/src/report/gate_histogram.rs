//! Histogram of the learnt gates, as horizontal bars. Most gates of a trained circuit still pass an input through: there
//! are thousands of them and tens of the others. The axis is therefore logarithmic, in 1 + count, so that a count of 0
//! has no length and a count of 1 is visible. Every bar is labelled with its count.

use super::axis::{Counts, Linear};
use super::plot::{Area, Plot};
use super::svg::{Svg, shorten};
use crate::number::{self, group_thousands};

/// Width of the picture in pixels.
const WIDTH: f64 = 820.0;
/// Top of the first bar.
const TOP: f64 = 76.0;
/// Distance from bar to bar.
const PITCH: f64 = 23.0;
/// Thickness of a bar.
const THICKNESS: f64 = 15.0;
/// Room at the right for the number of the longest bar.
const NUMBER_ROOM: f64 = 130.0;
/// The longest name that is written in full, in characters.
const MAX_NAME: usize = 18;

/// Draws the counts of gates as SVG, in the order given. Gates named A and B (in any case) pass an input through; their
/// bars are grey, and the others count as active.
///
/// ```ignore
/// let bars = [("AND".to_owned(), 31), ("A".to_owned(), 4096)];
/// std::fs::write("gates.svg", gate_histogram("lizard", &bars))?;
/// ```
#[must_use]
pub fn gate_histogram(title: &str, bars: &[(String, usize)]) -> String {
    let bottom = TOP + PITCH * bars.len().max(1) as f64;
    let mut svg = Svg::new(WIDTH, bottom + 44.0, title);
    svg.text("muted", 24.0, 54.0, &summary(bars));
    if bars.is_empty() {
        return svg.finish();
    }
    let names: Vec<String> = bars.iter().map(|(name, _)| shorten(name, MAX_NAME)).collect();
    let longest = names.iter().map(|name| name.chars().count()).max().unwrap_or(0);
    let left = 40.0 + 7.5 * longest as f64;
    let plot = Plot {
        area: Area { left, right: WIDTH - NUMBER_ROOM, top: TOP, bottom },
        x: Counts::new(bars.iter().map(|bar| bar.1).max().unwrap_or(0)),
        y: Linear::of_values(0.0, 1.0),
    };
    plot.draw_columns(&mut svg);
    svg.line("frame", (left, TOP), (left, bottom));
    svg.text("muted", left, bottom + 34.0, "number of gates, log scale: lengths are not proportional");
    let total = total(bars);
    for (i, (name, (full_name, count))) in names.iter().zip(bars).enumerate() {
        let y = TOP + PITCH * i as f64 + (PITCH - THICKNESS) / 2.0;
        let class = if passes_through(full_name) { "quiet-fill" } else { "soft-fill" };
        let length = plot.column(*count as f64) - left;
        let baseline = y + THICKNESS / 2.0 + 4.0;
        svg.text(if *count == 0 { "muted end" } else { "end" }, left - 10.0, baseline, name);
        if *count > 0 {
            svg.rect(class, (left, y), (length, THICKNESS), 2.0);
        }
        svg.text("muted halo", left + length + 8.0, baseline, &count_label(*count, total));
    }
    svg.finish()
}

/// Whether the gate passes one of its inputs through.
fn passes_through(name: &str) -> bool {
    name.eq_ignore_ascii_case("a") || name.eq_ignore_ascii_case("b")
}

/// The sum of the counts, which do not overflow 128 bits.
fn total<'a>(bars: impl IntoIterator<Item = &'a (String, usize)>) -> u128 {
    bars.into_iter().map(|bar| bar.1 as u128).sum()
}

/// The number of gates, and of those that do more than pass an input through.
fn summary(bars: &[(String, usize)]) -> String {
    let all = group_thousands(&total(bars).to_string());
    if bars.iter().any(|bar| passes_through(&bar.0)) {
        let active = total(bars.iter().filter(|bar| !passes_through(&bar.0)));
        format!("{all} gates, {} of them active (neither A nor B)", group_thousands(&active.to_string()))
    } else {
        format!("{all} gates")
    }
}

/// 1,234 (56.7 %), and 1 (< 0.1 %) for the rare ones.
fn count_label(count: usize, total: u128) -> String {
    let number = number::count(count as f64, count as f64);
    let percent = count as f64 * 100.0 / (total as f64).max(1.0);
    match count {
        0 => number,
        _ if percent < 0.05 => format!("{number} (< 0.1 %)"),
        _ => format!("{number} ({percent:.1} %)"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg::assert_well_formed;
    use super::*;

    fn bars(counts: &[(&str, usize)]) -> Vec<(String, usize)> {
        counts.iter().map(|&(name, count)| (name.to_owned(), count)).collect()
    }

    #[test]
    fn every_gate_has_its_name_and_number() {
        let text =
            assert_well_formed(&gate_histogram("lizard", &bars(&[("A", 4000), ("XOR", 1), ("NAND", 0)])));
        for label in
            ["A", "XOR", "NAND", "4,000 (100.0 %)", "1 (&lt; 0.1 %)", "4,001 gates, 1 of them active"]
        {
            assert!(text.contains(label), "{label} is missing");
        }
    }

    #[test]
    fn the_picture_says_that_its_scale_is_logarithmic() {
        assert!(gate_histogram("", &bars(&[("OR", 3)])).contains("log scale"));
    }

    #[test]
    fn odd_input_is_well_formed() {
        for input in [
            bars(&[]),
            bars(&[("OR", 0)]),
            bars(&[("<&\">", usize::MAX), ("a gate with a very long name indeed", usize::MAX)]),
        ] {
            assert_well_formed(&gate_histogram("a < b", &input));
        }
    }
}
