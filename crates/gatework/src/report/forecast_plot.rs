//! A forecast with its intervals against history: as SVG, and as a few lines of text for the terminal.

use super::axis::measured_within;
use super::svg::Svg;

/// What is drawn.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForecastPlot {
    /// Above the picture.
    pub title: String,
    /// Time of the first value.
    pub first: String,
    /// Time of the first forecast.
    pub origin: String,
    /// Time of the last forecast.
    pub last: String,
    /// Values before the forecast. NaN leaves a gap.
    pub history: Vec<f64>,
    /// What came, as far as it is known.
    pub actual: Vec<f64>,
    /// The forecast.
    pub forecast: Vec<f64>,
    /// Share, lower and upper bounds.
    pub intervals: Vec<(f64, Vec<f64>, Vec<f64>)>,
}

/// Size of the picture in pixels, and the plot area in it, which begins further right if numbers are long.
const SIZE: (f64, f64) = (820.0, 420.0);
const X: (f64, f64) = (72.0, 790.0);
const Y: (f64, f64) = (76.0, 366.0);

impl ForecastPlot {
    /// Steps from left to right.
    fn steps(&self) -> usize {
        self.history.len() + self.forecast.len().max(self.actual.len())
    }

    /// Least and greatest value; `None` if there is none.
    fn range(&self) -> Option<(f64, f64)> {
        let bounds = self.intervals.iter().flat_map(|(_, low, high)| low.iter().chain(high));
        let all = self.history.iter().chain(&self.actual).chain(&self.forecast).chain(bounds);
        let finite = all.copied().filter(|value| value.is_finite());
        let range = finite.fold(None, |range: Option<(f64, f64)>, x| {
            Some(range.map_or((x, x), |(low, high)| (low.min(x), high.max(x))))
        })?;
        let room = if range.1 > range.0 { (range.1 - range.0) * 0.04 } else { range.1.abs().max(1.0) * 0.1 };
        Some((range.0 - room, range.1 + room))
    }
}

/// Draws a forecast as SVG.
#[must_use]
pub fn forecast_plot(plot: &ForecastPlot) -> String {
    let mut svg = Svg::new(SIZE.0, SIZE.1, &plot.title);
    let Some((low, high)) = plot.range() else {
        svg.text("muted middle", SIZE.0 / 2.0, SIZE.1 / 2.0, "no values");
        return svg.finish();
    };
    let steps = plot.steps().saturating_sub(1).max(1) as f64;
    let left = draw_axes(&mut svg, plot, low, high);
    let place = |step: usize, value: f64| {
        let (x, y) = (step as f64 / steps, (value - low) / (high - low));
        (left + x * (X.1 - left), Y.1 + y * (Y.0 - Y.1))
    };
    let begin = plot.history.len();
    let ahead = |values: &[f64]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(step, value)| place(begin + step, *value)).collect()
    };
    // The widest first, so that the narrower ones lie over it.
    let mut intervals: Vec<_> = plot.intervals.iter().collect();
    intervals.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, low, high) in &intervals {
        svg.area("soft-fill", 0.18, &ahead(low), &ahead(high));
    }
    let known = |values: &[f64], begin: usize| -> Vec<Vec<(f64, f64)>> {
        let mut strokes = vec![Vec::new()];
        for (step, value) in values.iter().enumerate() {
            match strokes.last_mut() {
                Some(stroke) if value.is_finite() => stroke.push(place(begin + step, *value)),
                _ => strokes.push(Vec::new()),
            }
        }
        strokes.retain(|stroke| !stroke.is_empty());
        strokes
    };
    svg.strokes("frame", 1.5, &known(&plot.history, 0));
    svg.strokes("hard", 1.5, &known(&plot.actual, begin));
    svg.strokes("soft", 2.0, &[ahead(&plot.forecast)]);
    draw_legend(&mut svg, plot, &intervals);
    svg.finish()
}

/// Draws the axes. The plot area begins at the place that is returned.
fn draw_axes(svg: &mut Svg, plot: &ForecastPlot, low: f64, high: f64) -> f64 {
    let shares = [0.0, 0.25, 0.5, 0.75, 1.0];
    let labels = shares.map(|share| label(low + share * (high - low), high - low));
    let longest = labels.iter().map(|label| label.chars().count()).max().unwrap_or(0);
    let left = X.0.max(20.0 + 7.0 * longest as f64);
    for (share, label) in shares.iter().zip(&labels) {
        let y = Y.1 + share * (Y.0 - Y.1);
        svg.line("grid", (left, y), (X.1, y));
        svg.text("muted end", left - 10.0, y + 4.0, label);
    }
    svg.line("frame", (left, Y.1), (X.1, Y.1));
    let steps = plot.steps().saturating_sub(1).max(1) as f64;
    let origin = left + plot.history.len() as f64 / steps * (X.1 - left);
    svg.line("guide", (origin, Y.0), (origin, Y.1));
    svg.text("muted", left, Y.1 + 20.0, &plot.first);
    svg.text("muted middle", origin, Y.1 + 20.0, &plot.origin);
    if origin < X.1 - 130.0 {
        svg.text("muted end", X.1, Y.1 + 20.0, &plot.last);
    }
    left
}

fn draw_legend(svg: &mut Svg, plot: &ForecastPlot, intervals: &[&(f64, Vec<f64>, Vec<f64>)]) {
    let mut entries = vec![("soft-fill", "forecast".to_string())];
    if !plot.actual.is_empty() {
        entries.push(("hard-fill", "what came".to_string()));
    }
    let mut x = X.0;
    for (class, name) in entries {
        svg.dot(class, (x, 55.0), 4.0);
        svg.text("muted", x + 9.0, 59.0, &name);
        x += 100.0;
    }
    if !intervals.is_empty() {
        let shares: Vec<String> = intervals.iter().rev().map(|i| format!("{:.0} %", i.0 * 100.0)).collect();
        svg.text("muted", x, 59.0, &format!("intervals for {}", shares.join(", ")));
    }
}

/// A number beside an axis of this range.
fn label(value: f64, range: f64) -> String {
    let size = measured_within(value.abs(), range);
    if value < 0.0 { format!("-{size}") } else { size }
}

/// Height of the plot in lines.
const LINES: usize = 12;

/// Draws a forecast with characters: `·` history, `o` what came, `*` forecast, `░` the widest interval.
#[must_use]
pub fn terminal_plot(plot: &ForecastPlot, columns: usize) -> String {
    let (Some((low, high)), steps) = (plot.range(), plot.steps()) else { return String::new() };
    let columns = columns.clamp(20, steps.max(20));
    let mut cells = vec![vec![' '; columns]; LINES];
    let line = |value: f64| {
        let share = ((value - low) / (high - low)).clamp(0.0, 1.0);
        LINES - 1 - (share * (LINES - 1) as f64).round() as usize
    };
    let column = |step: usize| step * (columns - 1) / steps.saturating_sub(1).max(1);
    let begin = plot.history.len();
    if let Some((_, low, high)) = plot.intervals.iter().max_by(|a, b| a.0.total_cmp(&b.0)) {
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
    let [top, bottom] = [high, low].map(|value| label(value, high - low));
    let width = top.chars().count().max(bottom.chars().count()).max(10);
    let labels = |row: usize| match row {
        0 => top.as_str(),
        row if row == LINES - 1 => bottom.as_str(),
        _ => "",
    };
    let rows = cells.iter().enumerate().map(|(row, cells)| {
        format!("{:>width$} {}\n", labels(row), cells.iter().collect::<String>().trim_end())
    });
    format!("{}{:>width$} {} to {}\n", rows.collect::<String>(), "", plot.first, plot.last)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot() -> ForecastPlot {
        ForecastPlot {
            title: "sales & more".into(),
            first: "2024-01".into(),
            origin: "2024-09".into(),
            last: "2024-10".into(),
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

    #[test]
    fn the_picture_has_the_line_its_intervals_and_what_came() {
        let svg = forecast_plot(&plot());
        assert_eq!(svg.matches("opacity=\"0.18\"").count(), 2);
        assert!(svg.contains("intervals for 80 %, 95 %") && svg.contains("what came"));
        assert!(svg.contains("sales &amp; more") && svg.contains("2024-09"));
        assert!(!svg.contains("NaN"));
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
    fn small_changes_of_large_values_are_drawn_and_told_apart() {
        let values = |step: i32| 2e8 + 5.0 * f64::from(step % 2);
        let large = ForecastPlot { history: (0..40).map(values).collect(), forecast: vec![2e8; 4], ..plot() };
        let svg = forecast_plot(&ForecastPlot { intervals: Vec::new(), actual: Vec::new(), ..large.clone() });
        assert!(svg.contains(">199,999,999.8<") && svg.contains(">200,000,005.2<"), "{svg}");
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
