//! A forecast with its intervals against history: as SVG, and as a few lines of text for the terminal.

use super::axis::{Axis as _, Linear, Tick};
use super::plot::{Area, Plot};
use super::svg::{Point, Svg, text_width};
use crate::number::percent;

/// The content of a forecast plot.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForecastPlot {
    /// The title.
    pub title: String,
    /// The time of each step, from the first value of the history to the last forecast.
    pub times: Vec<String>,
    /// Values before the forecast. NaN leaves a gap.
    pub history: Vec<f64>,
    /// Actual values of the forecast period, as far as they are known.
    pub actual: Vec<f64>,
    /// The forecast.
    pub forecast: Vec<f64>,
    /// Level, lower and upper bounds of each interval.
    pub intervals: Vec<(f64, Vec<f64>, Vec<f64>)>,
}

/// Size of the picture in pixels.
const SIZE: (f64, f64) = (820.0, 420.0);
/// Left and right end of the plot area. The left end gives way to long labels.
const X: (f64, f64) = (72.0, 796.0);
/// Top and bottom of the plot area. The top gives way to a long legend.
const Y: (f64, f64) = (82.0, 372.0);
/// Left and right end of the legend.
const LEGEND: (f64, f64) = (24.0, 796.0);
/// Distance between lines of the legend.
const LEGEND_LINE: f64 = 18.0;

impl ForecastPlot {
    /// Steps from left to right.
    fn steps(&self) -> usize {
        self.history.len() + self.forecast.len().max(self.actual.len())
    }

    /// The axis of the values, with some room above and below; `None` if there are none.
    fn values(&self) -> Option<Linear> {
        let known = self.history.iter().chain(&self.actual);
        let bounds = self.intervals.iter().flat_map(|(_, low, high)| low.iter().chain(high));
        let (low, high) = range(known.clone().chain(&self.forecast).chain(bounds))?;
        let size = low.abs().max(high.abs());
        // Of a series that never changes, the rounding errors of a forecast should not fill the picture.
        let changes = range(known).is_some_and(|(low, high)| high - low > size * 1e-12);
        let least = if changes {
            0.0
        } else if size > 0.0 {
            size * 0.1
        } else {
            1.0
        };
        let room = ((high - low) * 0.04).max(least);
        Some(Linear::of_values(low - room, high + room))
    }

    /// The intervals, the widest first, so that narrower ones are drawn over it.
    fn nested(&self) -> Vec<&(f64, Vec<f64>, Vec<f64>)> {
        let mut intervals: Vec<_> = self.intervals.iter().collect();
        intervals.sort_by(|a, b| b.0.total_cmp(&a.0));
        intervals
    }

    /// The opacity of an interval. It is drawn over the wider ones, and the lines stay visible over many intervals.
    fn shade(&self) -> f64 {
        (0.6 / self.intervals.len() as f64).min(0.18)
    }
}

/// Minimum and maximum of the finite values.
fn range<'a>(values: impl Iterator<Item = &'a f64>) -> Option<(f64, f64)> {
    let finite = values.copied().filter(|value| value.is_finite());
    finite.fold(None, |range, x| {
        Some(range.map_or((x, x), |(low, high): (f64, f64)| (low.min(x), high.max(x))))
    })
}

/// Draws a forecast as SVG.
#[must_use]
pub fn forecast_plot(plot: &ForecastPlot) -> String {
    let mut svg = Svg::new(SIZE.0, SIZE.1, &plot.title);
    let Some(values) = plot.values() else {
        svg.text("muted middle", SIZE.0 / 2.0, SIZE.1 / 2.0, "no values");
        return svg.finish();
    };
    let lines = draw_legend(&mut svg, plot);
    let widest = values.ticks().iter().map(|tick| text_width(&tick.label)).fold(0.0, f64::max);
    let frame = Plot {
        area: Area {
            left: X.0.max(widest + 26.0),
            right: X.1,
            top: Y.0 + (lines - 1) as f64 * LEGEND_LINE,
            bottom: Y.1,
        },
        x: Linear::of_values(0.0, plot.steps().saturating_sub(1).max(1) as f64),
        y: values,
    };
    draw_axes(&mut svg, &frame, plot);
    let origin = plot.history.len();
    for (_, low, high) in plot.nested() {
        let [low, high] = [low, high].map(|bound| strokes(&frame, bound, origin).concat());
        svg.area("soft-fill", plot.shade(), &low, &high);
    }
    svg.strokes("past", 1.5, &strokes(&frame, &plot.history, 0));
    svg.strokes("hard", 1.5, &strokes(&frame, &plot.actual, origin));
    svg.strokes("soft", 2.0, &strokes(&frame, &plot.forecast, origin));
    svg.finish()
}

/// A plot of values over steps.
type Frame = Plot<Linear, Linear>;

/// Maps values, the first at step `begin`, to strokes.
fn strokes(frame: &Frame, values: &[f64], begin: usize) -> Vec<Vec<Point>> {
    frame.strokes(values.iter().enumerate().map(|(step, &value)| ((begin + step) as f64, value)))
}

fn draw_axes(svg: &mut Svg, frame: &Frame, plot: &ForecastPlot) {
    let Area { left, right, top, bottom } = frame.area;
    frame.draw_rows(svg);
    svg.line("frame", (left, bottom), (right, bottom));
    let origin = frame.column(plot.history.len() as f64);
    svg.line("guide", (origin, top), (origin, bottom));
    for step in dated(frame, &plot.times) {
        let x = frame.column(step as f64);
        let class = match step {
            0 => "muted",
            step if step + 1 == plot.times.len() => "muted end",
            _ => "muted middle",
        };
        svg.line("frame", (x, bottom), (x, bottom + 5.0));
        svg.text(class, x, bottom + 21.0, &plot.times[step]);
    }
}

/// Returns the steps that are labelled with their date: the first, the last, and up to four between, as room allows.
fn dated(frame: &Frame, times: &[String]) -> Vec<usize> {
    let last = times.len().saturating_sub(1);
    // The outermost labels are aligned with the ends of the axis, the others are centred.
    let room = times.iter().map(|time| text_width(time)).fold(0.0, f64::max) * 1.5 + 8.0;
    let spread =
        |count: usize| -> Vec<usize> { (0..=count).map(|i| (i * last + count / 2) / count).collect() };
    let x = |step: usize| frame.column(step as f64);
    let fits = |steps: &Vec<usize>| steps.windows(2).all(|pair| x(pair[1]) - x(pair[0]) >= room);
    let mut steps = (2..=5).rev().map(spread).find(fits).unwrap_or_else(|| vec![0, last]);
    steps.truncate(times.len());
    steps
}

/// Draws the legend and returns its number of lines.
fn draw_legend(svg: &mut Svg, plot: &ForecastPlot) -> usize {
    let lines = [
        ("past", "history", &plot.history),
        ("hard", "actual", &plot.actual),
        ("soft", "forecast", &plot.forecast),
    ];
    let drawn = lines.into_iter().filter(|(.., values)| !values.is_empty());
    let mut entries: Vec<_> = drawn.map(|(class, name, _)| (class, None, name.to_owned())).collect();
    for (wider, (share, ..)) in plot.nested().into_iter().enumerate().rev() {
        let shade = 1.0 - (1.0 - plot.shade()).powi(wider as i32 + 1);
        entries.push(("soft-fill", Some(shade), format!("{} % interval", percent(*share))));
    }
    let (mut x, mut y, mut lines) = (LEGEND.0, 55.0, 1);
    for (class, shade, name) in entries {
        let width = 22.0 + text_width(&name);
        if x > LEGEND.0 && x + width > LEGEND.1 {
            (x, y, lines) = (LEGEND.0, y + LEGEND_LINE, lines + 1);
        }
        let row = |y: f64| [(x, y), (x + 16.0, y)];
        match shade {
            Some(shade) => svg.area(class, shade, &row(y + 5.0), &row(y - 5.0)),
            None => svg.strokes(class, 2.0, &[row(y).to_vec()]),
        }
        svg.text("muted", x + 22.0, y + 4.0, &name);
        x += width + 14.0;
    }
    lines
}

/// Height of the plot in lines.
const LINES: usize = 12;

/// Draws a forecast with characters: `·` history, `o` actual values, `*` forecast, `░` the widest interval.
#[must_use]
pub fn terminal_plot(plot: &ForecastPlot, columns: usize) -> String {
    let (Some(values), steps) = (plot.values(), plot.steps()) else { return String::new() };
    let line = |at: f64| LINES - 1 - (at.clamp(0.0, 1.0) * (LINES - 1) as f64).round() as usize;
    let mut labels = vec![String::new(); LINES];
    for Tick { at, label } in values.ticks() {
        labels[line(at)] = label;
    }
    let margin = labels.iter().map(|label| label.chars().count()).fold(10, usize::max);
    let columns = (columns + 10).saturating_sub(margin).clamp(20, steps.max(20));
    let mut cells = vec![vec![' '; columns]; LINES];
    let line = |value: f64| line(values.at(value));
    let column = |step: usize| step * (columns - 1) / steps.saturating_sub(1).max(1);
    let begin = plot.history.len();
    if let Some((_, low, high)) = plot.nested().first() {
        for (step, (low, high)) in low.iter().zip(high).enumerate() {
            let [from, to] = [high.max(*low), high.min(*low)].map(line);
            for row in cells[from..=to].iter_mut().filter(|_| low.is_finite() && high.is_finite()) {
                row[column(begin + step)] = '░';
            }
        }
    }
    for (values, begin, mark) in
        [(&plot.history, 0, '·'), (&plot.actual, begin, 'o'), (&plot.forecast, begin, '*')]
    {
        for (step, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
            cells[line(*value)][column(begin + step)] = mark;
        }
    }
    let row = |(label, cells): (&String, &Vec<char>)| {
        let line = format!("{label:>margin$} {}", cells.iter().collect::<String>());
        format!("{}\n", line.trim_end())
    };
    let rows: String = labels.iter().zip(&cells).map(row).collect();
    let [first, last] = [plot.times.first(), plot.times.last()].map(|time| time.map_or("", String::as_str));
    format!("{rows}{:>margin$} {first} to {last}\n", "")
}

#[cfg(test)]
mod tests {
    use super::super::svg::assert_well_formed;
    use super::*;

    fn plot() -> ForecastPlot {
        ForecastPlot {
            title: "sales & more".into(),
            times: (1..=10).map(|month| format!("2024-{month:02}")).collect(),
            history: vec![1.0, 2.0, f64::NAN, 4.0, 3.0, 2.0, 1.0, 2.0],
            actual: vec![3.0],
            forecast: vec![3.5, 4.5],
            intervals: vec![(0.8, vec![3.0, 4.0], vec![4.0, 5.0]), (0.95, vec![2.0, 3.0], vec![5.0, 6.0])],
        }
    }

    #[test]
    fn intervals_that_cross_or_are_no_numbers_are_drawn_somehow() {
        let mut plot = plot();
        plot.intervals = vec![(0.8, vec![5.0, f64::NAN], vec![3.0, f64::INFINITY])];
        assert!(terminal_plot(&plot, 40).contains('░'));
        plot.intervals = vec![(0.8, vec![f64::NAN; 2], vec![f64::NAN; 2])];
        assert!(!terminal_plot(&plot, 40).contains('░'));
    }

    /// The texts of one class of labels.
    fn texts(svg: &str, class: &str) -> Vec<String> {
        let start = format!("<text class=\"{class}\"");
        svg.lines().filter(|line| line.starts_with(&start)).map(assert_well_formed).collect()
    }

    #[test]
    fn the_legend_names_everything_with_its_looks() {
        let svg = forecast_plot(&ForecastPlot { actual: vec![3.0, 4.0], ..plot() });
        assert_well_formed(&svg);
        let legend = ["history", "actual", "forecast", "80 % interval", "95 % interval"];
        assert_eq!(texts(&svg, "muted")[..5], legend);
        // Each line and each area is there once, and once in the legend, where the narrower interval is darker.
        for class in ["past", "hard", "soft"] {
            assert!(svg.matches(&format!("class=\"line {class}\"")).count() >= 2, "{class}");
        }
        assert_eq!(svg.matches("opacity=\"0.18\"").count(), 3);
        assert_eq!(svg.matches("opacity=\"0.33\"").count(), 1);
        assert!(svg.contains("sales &amp; more"));
    }

    #[test]
    fn a_long_legend_takes_more_lines_and_stays_in_the_picture() {
        let mut plot = plot();
        let share = |i: usize| 0.5 + i as f64 * 0.031_25;
        plot.intervals = (0..12).map(|i| (share(i), vec![3.0; 2], vec![4.0; 2])).collect();
        let svg = forecast_plot(&plot);
        for line in svg.lines().filter(|line| line.contains("% interval")) {
            let numbers: Vec<f64> = line.split('"').filter_map(|part| part.parse().ok()).collect();
            assert!(numbers[0] + text_width(&assert_well_formed(line)) < SIZE.0, "{line}");
        }
        assert!(svg.contains("opacity=\"0.46\"") && !svg.contains("opacity=\"0.5"), "too dark for the lines");
        assert!(texts(&svg, "muted").contains(&"53.125 % interval".to_string()));
    }

    #[test]
    fn dates_go_from_the_first_to_the_last_without_overlap() {
        for (length, steps, count) in
            [(7, 72, 6), (10, 100, 6), (19, 1000, 4), (25, 50, 3), (10, 2, 2), (10, 1, 1), (19, 7, 4)]
        {
            let times: Vec<String> = (0..steps).map(|step| format!("{step:0length$}")).collect();
            let last = (steps.max(2) - 1) as f64;
            let area = Area { left: X.0, right: X.1, top: Y.0, bottom: Y.1 };
            let frame = Frame { area, x: Linear::of_values(0.0, last), y: Linear::of_values(0.0, 1.0) };
            let dated = dated(&frame, &times);
            assert_eq!((dated[0], dated[dated.len() - 1], dated.len()), (0, steps - 1, count));
            let width = text_width(&times[0]);
            for pair in dated.windows(2).filter(|_| steps > 2) {
                assert!(
                    frame.column(pair[1] as f64) - frame.column(pair[0] as f64) > width * 1.5,
                    "{dated:?}"
                );
            }
        }
    }

    #[test]
    fn labels_of_values_are_told_apart() {
        let large: Vec<f64> = (0..10u8).map(|i| 1.7e9 + (f64::from(i) - 5.0) * 2e6).collect();
        let waves: Vec<f64> = (0..10u8).map(|i| 2e8 + f64::from(i % 3)).collect();
        for (history, forecast) in [(large, 1.7e9), (waves, 2e8), (vec![5.0; 9], 5.000_000_5)] {
            let plot = ForecastPlot { history, forecast: vec![forecast], ..ForecastPlot::default() };
            let labels = texts(&forecast_plot(&plot), "muted end");
            assert!(labels.len() >= 3, "{labels:?}");
            for (i, label) in labels.iter().enumerate() {
                assert!(!labels[..i].contains(label), "{labels:?}");
                assert!(terminal_plot(&plot, 72).contains(label.as_str()), "{label}");
            }
        }
    }

    #[test]
    fn a_constant_series_is_in_the_middle_of_round_numbers() {
        let plot = ForecastPlot { history: vec![5.0; 9], forecast: vec![5.0], ..ForecastPlot::default() };
        assert_eq!(texts(&forecast_plot(&plot), "muted end"), ["4.6", "4.8", "5.0", "5.2", "5.4"]);
    }

    #[test]
    fn odd_plots_are_well_formed() {
        assert!(forecast_plot(&ForecastPlot::default()).ends_with("</svg>\n"));
        let constant = ForecastPlot { history: vec![7.0; 3], forecast: vec![7.0], ..ForecastPlot::default() };
        assert!(!forecast_plot(&constant).contains("NaN"));
        let empty = ForecastPlot { history: vec![f64::NAN], ..ForecastPlot::default() };
        assert!(forecast_plot(&empty).contains("no values"));
        assert_eq!(terminal_plot(&empty, 72), "");
    }

    #[test]
    fn the_terminal_shows_every_kind_of_mark() {
        let text = terminal_plot(&plot(), 72);
        assert_eq!(text.lines().count(), LINES + 1);
        for mark in ['·', 'o', '*', '░'] {
            assert!(text.contains(mark), "{mark}\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 11 + 72));
    }
}
