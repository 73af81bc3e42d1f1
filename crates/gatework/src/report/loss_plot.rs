//! Soft and hard loss against updates. The loss axis is logarithmic because losses fall through many decades, and has
//! a band at the bottom for exact zeros, because a hard loss of 0 is the goal of training. Long runs are thinned column
//! by column to their minimum and maximum, so that no spike and no zero is lost.

use super::axis::{Linear, Log};
use super::plot::{Area, Plot};
use super::svg::{Point, Svg, text_width};
use crate::number::{group_thousands, measured};

/// The losses of one update.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LossPoint {
    /// The number of updates before it.
    pub update: u64,
    /// Loss of the soft circuit.
    pub soft: f64,
    /// Loss of the hardened circuit.
    pub hard: f64,
}

/// Which of the two losses a line shows.
type Line = fn(&LossPoint) -> f64;

/// Their classes, in the order of their names.
const SERIES: [(&str, Line); 2] = [("hard", |point| point.hard), ("soft", |point| point.soft)];

/// Size of the picture in pixels.
const SIZE: (f64, f64) = (820.0, 420.0);
/// Left and right end of the update axis. The right end gives way to long labels.
const X: (f64, f64) = (72.0, 702.0);
/// Top and bottom of the plot area.
const Y: (f64, f64) = (76.0, 366.0);
/// Height of the band for zeros, at the bottom of the plot area.
const BAND: f64 = 26.0;
/// Columns that a line is thinned to: each keeps two points.
const COLUMNS: usize = 400;
/// Minimum distance between two labels at the right, in pixels.
const LABEL_HEIGHT: f64 = 17.0;
/// From the right end of the update axis to the labels.
const LABEL_GAP: f64 = 21.0;

/// Draws the losses of a run as SVG. If a search began after some updates, points behind those are its moves. Points may
/// come in any order; values that are not finite or below 0 leave a gap.
///
/// ```ignore
/// std::fs::write("loss.svg", loss_plot("checkerboard", &points, None))?;
/// ```
#[must_use]
pub fn loss_plot(title: &str, points: &[LossPoint], search_from: Option<u64>) -> String {
    plot(title, points, ["hard", "soft"], search_from)
}

/// Draws the losses of a forecaster: that of the validation windows in the place of the hard one.
#[must_use]
pub fn forecaster_loss_plot(title: &str, points: &[LossPoint]) -> String {
    plot(title, points, ["validation", "training"], None)
}

/// Returns the SVG of the training loss of a classifier, and of its error: the share of wrong samples of the rows that select
/// the best epoch.
pub fn classifier_loss_plot(title: &str, points: &[LossPoint]) -> String {
    plot(title, points, ["error", "training"], None)
}

fn plot(title: &str, points: &[LossPoint], names: [&str; 2], search_from: Option<u64>) -> String {
    let mut points = points.to_vec();
    points.sort_by_key(|point| point.update);
    let mut svg = Svg::new(SIZE.0, SIZE.1, title);
    if let Some(frame) = Frame::new(&points, names, search_from) {
        frame.draw(&mut svg, &points, names);
    } else {
        svg.rect("band", (24.0, 56.0), (SIZE.0 - 48.0, SIZE.1 - 80.0), 4.0);
        svg.text("muted middle", SIZE.0 / 2.0, SIZE.1 / 2.0 + 20.0, "no losses yet");
    }
    svg.finish()
}

/// Whether a loss can be shown on the axis.
fn is_loss(value: f64) -> bool {
    value.is_finite() && value >= 0.0
}

/// The plot of losses over updates, above a band for losses that are exactly 0.
struct Frame {
    plot: Plot<Linear, Log>,
    /// Whether some loss is exactly 0, so that there is a band.
    zeros: bool,
    /// The updates before the search.
    search_from: Option<u64>,
}

impl Frame {
    /// Axes for points in order of updates; none if there is no loss to show.
    fn new(points: &[LossPoint], names: [&str; 2], search_from: Option<u64>) -> Option<Self> {
        let (first, last) = (points.first()?.update, points.last()?.update);
        let losses =
            || points.iter().flat_map(|point| [point.soft, point.hard]).filter(|&loss| is_loss(loss));
        let (zeros, any) = (losses().any(|loss| loss == 0.0), losses().next().is_some());
        let positive = || losses().filter(|&loss| loss > 0.0);
        let (min, max) = (positive().fold(f64::INFINITY, f64::min), positive().fold(0.0, f64::max));
        let losses = if max > 0.0 { Log::new(min, max) } else { Log::new(1.0, 10.0) };
        let labels = last_losses(points).map(|last| last.map_or(0.0, |last| text_width(&measured(last))));
        let widest =
            labels.iter().zip(names).map(|(value, name)| value + text_width(name)).fold(0.0, f64::max);
        let right = X.1.min(SIZE.0 - widest - LABEL_GAP - 16.0);
        let bottom = if zeros { Y.1 - BAND - 6.0 } else { Y.1 };
        let area = Area { left: X.0, right, top: Y.0, bottom };
        let plot = Plot { area, x: Linear::of_updates(first, last), y: losses };
        any.then_some(Self { plot, zeros, search_from })
    }

    /// The pixel row of a loss that [`is_loss`].
    fn row(&self, loss: f64) -> f64 {
        if loss == 0.0 { Y.1 - BAND / 2.0 } else { self.plot.row(loss) }
    }

    /// Draws everything but the title: axes below lines below labels. The soft line lies over the hard one, which
    /// jumps more.
    fn draw(&self, svg: &mut Svg, points: &[LossPoint], names: [&str; 2]) {
        let scale =
            if self.zeros { "loss, log scale above a band for exact zeros" } else { "loss, log scale" };
        svg.text("muted", 24.0, 54.0, scale);
        self.draw_axes(svg);
        let first_zero = points.iter().find(|point| point.hard == 0.0);
        if let Some(point) = first_zero {
            let x = self.plot.column(point.update as f64);
            svg.line("guide", (x, Y.0), (x, self.row(0.0)));
        }
        for (name, loss) in SERIES {
            let places: Vec<_> = points.iter().map(|point| self.place(point, loss(point))).collect();
            svg.strokes(name, if name == "soft" { 1.75 } else { 1.25 }, &thin(&places));
        }
        if let Some(point) = first_zero {
            self.draw_first_zero(svg, point.update);
        }
        self.draw_names(svg, last_losses(points), names);
    }

    /// The column of a loss, and its row if it can be shown.
    fn place(&self, point: &LossPoint, loss: f64) -> (f64, Option<f64>) {
        (self.plot.column(point.update as f64), is_loss(loss).then(|| self.row(loss)))
    }

    /// Draws grid lines, ticks, numbers and the band for zeros.
    fn draw_axes(&self, svg: &mut Svg) {
        self.plot.draw_rows(svg);
        if self.zeros {
            svg.rect("band", (X.0, Y.1 - BAND), (self.plot.area.right - X.0, BAND), 0.0);
            svg.text("muted end", X.0 - 10.0, self.row(0.0) + 4.0, "0");
        }
        let unit = if self.search_from.is_some() { "updates, then moves of the search" } else { "updates" };
        self.plot.draw_foot(svg, Y.1, unit);
    }

    /// Marks the first update whose hard loss is 0.
    fn draw_first_zero(&self, svg: &mut Svg, update: u64) {
        let x = self.plot.column(update as f64);
        svg.dot("hard-fill ring", (x, self.row(0.0)), 5.0);
        let number = |count: u64| group_thousands(&count.to_string());
        let label = match self.search_from.filter(|&updates| update > updates) {
            Some(updates) => {
                let (updates, moves) = (number(updates), number(update - updates));
                format!("first hard loss 0 after {updates} updates and {moves} moves")
            }
            None => format!("first hard loss 0 at update {}", number(update)),
        };
        let (class, x) = if x > f64::midpoint(X.0, self.plot.area.right) {
            ("halo end", x - 8.0)
        } else {
            ("halo", x + 8.0)
        };
        svg.text(class, x, Y.0 + 12.0, &label);
    }

    /// Names each line at its right end, with its last value.
    fn draw_names(&self, svg: &mut Svg, last: [Option<f64>; 2], names: [&str; 2]) {
        let label =
            |((last, (class, _)), name): ((Option<f64>, _), _)| Some(((class, name), last?, self.row(last?)));
        let mut labels: Vec<(_, _, f64)> =
            last.into_iter().zip(SERIES).zip(names).filter_map(label).collect();
        if let [a, b] = labels.as_mut_slice() {
            let (upper, lower) = if b.2 < a.2 { (b, a) } else { (a, b) };
            let overlap = (LABEL_HEIGHT - (lower.2 - upper.2)).max(0.0);
            lower.2 = (lower.2 + overlap / 2.0).min(Y.1);
            upper.2 = (upper.2 - overlap / 2.0).min(lower.2 - LABEL_HEIGHT);
        }
        for ((class, name), last, y) in labels {
            svg.dot(&format!("{class}-fill"), (self.plot.area.right + 12.0, y), 3.5);
            svg.name_and_value(self.plot.area.right + LABEL_GAP, y + 4.0, name, &measured(last));
        }
    }
}

/// The last value of each line that can be shown on the axis.
fn last_losses(points: &[LossPoint]) -> [Option<f64>; 2] {
    SERIES.map(|(_, loss)| points.iter().rev().map(loss).find(|&loss| is_loss(loss)))
}

/// The extremes of the points in a column of pixels.
#[derive(Clone, Copy)]
struct Column {
    /// The points with the minimum and the maximum y, if there are points.
    extremes: Option<[(f64, f64); 2]>,
    /// Whether the line is broken before the first and after the last point.
    gaps: [bool; 2],
}

/// Thins a line, sorted by x, to the two extremes of each column, and cuts it where points have no y. A point without
/// y between others of its column is passed over: the gap would be narrower than the line.
fn thin(places: &[(f64, Option<f64>)]) -> Vec<Vec<Point>> {
    let column_of = |x: f64| ((x - X.0) / (X.1 - X.0) * COLUMNS as f64) as usize;
    let mut strokes = vec![Vec::new()];
    for column in places.chunk_by(|a, b| column_of(a.0) == column_of(b.0)).map(column) {
        if column.gaps[0] {
            strokes.push(Vec::new());
        }
        if let (Some([a, b]), Some(stroke)) = (column.extremes, strokes.last_mut()) {
            stroke.extend(if a.0 <= b.0 { [a, b] } else { [b, a] });
            stroke.dedup();
        }
        if column.gaps[1] {
            strokes.push(Vec::new());
        }
    }
    strokes.retain(|stroke| !stroke.is_empty());
    strokes
}

/// Reduces the points of one column.
fn column(places: &[(f64, Option<f64>)]) -> Column {
    let mut extremes: Option<[(f64, f64); 2]> = None;
    for (x, y) in places.iter().filter_map(|&(x, y)| Some((x, y?))) {
        let [least, greatest] = extremes.get_or_insert([(x, y); 2]);
        if y < least.1 {
            *least = (x, y);
        }
        if y > greatest.1 {
            *greatest = (x, y);
        }
    }
    let missing = |place: Option<&(f64, Option<f64>)>| place.is_some_and(|place| place.1.is_none());
    Column { extremes, gaps: [missing(places.first()), missing(places.last())] }
}

#[cfg(test)]
mod tests {
    use super::super::svg::assert_well_formed;
    use super::*;

    fn point(update: u64, soft: f64, hard: f64) -> LossPoint {
        LossPoint { update, soft, hard }
    }

    /// The coordinates of the path with this class.
    fn path<'a>(svg: &'a str, class: &str) -> &'a str {
        let start = svg.find(&format!("class=\"line {class}\"")).expect("no such line");
        svg[start..].split(" d=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("no path")
    }

    #[test]
    fn no_points_say_so() {
        for points in [&[][..], &[point(3, f64::NAN, f64::INFINITY)], &[point(3, -1.0, f64::NEG_INFINITY)]] {
            assert!(assert_well_formed(&loss_plot("run", points, None)).contains("no losses yet"));
        }
    }

    #[test]
    fn odd_runs_are_well_formed() {
        let runs = [
            vec![point(0, 1.0, 1.0)],
            vec![point(u64::MAX, 5e-324, f64::MAX)],
            vec![point(7, 0.0, 0.0)],
            (0..100).map(|i| point(i, 3.0, 3.0)).collect(),
            (0..100).map(|i| point(i, 0.0, 0.0)).collect(),
            (0..100)
                .map(|i| point(i, if i % 7 == 0 { f64::NAN } else { 1.0 / i as f64 }, f64::NAN))
                .collect(),
            vec![point(9, 1.0, 2.0), point(3, 2.0, 4.0), point(9, 5.0, 0.0)],
        ];
        for run in runs {
            assert_well_formed(&loss_plot("a & <b>", &run, None));
        }
    }

    #[test]
    fn the_first_hard_zero_is_named() {
        let points: Vec<_> = (0..2000).map(|i| point(i, 1.0, (1234 - i as i64).max(0) as f64)).collect();
        assert!(assert_well_formed(&loss_plot("run", &points, None)).contains("hard loss 0 at update 1,234"));
        let searched = loss_plot("run", &points, Some(1000));
        assert!(searched.contains("hard loss 0 after 1,000 updates and 234 moves"));
        let never = loss_plot("run", &[point(0, 0.0, 1.0), point(1, 0.0, 2.0)], None);
        assert!(!never.contains("hard loss 0"));
    }

    #[test]
    fn names_and_numbers_at_the_right_fit_the_picture() {
        for loss in [0.0159, 1234.0, 3.21e-7, 2.5e-300] {
            let svg = forecaster_loss_plot("run", &[point(0, 1.0, 1.0), point(9, loss, loss)]);
            let labels: Vec<&str> = svg.lines().filter(|line| line.contains("<tspan")).collect();
            assert_eq!(labels.len(), 2);
            for label in labels {
                let x: f64 = label.split('"').nth(1).and_then(|x| x.parse().ok()).expect("no place");
                let text = assert_well_formed(label);
                assert!(x + text_width(&text) + 6.0 < SIZE.0, "{text} at {x}");
            }
        }
    }

    #[test]
    fn a_spike_in_a_million_updates_is_kept() {
        let spike = 654_321;
        let points: Vec<_> =
            (0..1_000_000).map(|i| point(i, 1.0, if i == spike { 1000.0 } else { 1.0 })).collect();
        let svg = loss_plot("run", &points, None);
        assert_well_formed(&svg);
        let line = path(&svg, "hard");
        assert!(line.matches(['M', 'L']).count() <= 2 * COLUMNS + 2);
        assert!(
            line.split(['M', 'L']).any(|place| place.ends_with(&format!(" {}", Y.0))),
            "no point at the top"
        );
        assert!(svg.len() < 30_000);
    }

    #[test]
    fn values_that_are_not_finite_leave_a_gap() {
        let points: Vec<_> =
            (0..9).map(|i| point(i, if i == 4 { f64::NAN } else { 1.0 + i as f64 }, 1.0)).collect();
        let svg = loss_plot("run", &points, None);
        assert_eq!(path(&svg, "soft").matches('M').count(), 2);
        assert_eq!(path(&svg, "hard").matches('M').count(), 1);
    }

    #[test]
    fn a_run_of_gaps_stays_small() {
        let points: Vec<_> =
            (0..100_000).map(|i| point(i, if i % 2 == 0 { f64::NAN } else { 1.0 }, 2.0)).collect();
        assert!(loss_plot("run", &points, None).len() < 60_000);
    }
}
