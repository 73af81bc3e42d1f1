//! A forecast with its intervals against history: as SVG, and as a few lines of text for the terminal.

use super::axis::measured;
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
    pub history: Vec<f32>,
    /// What came, as far as it is known.
    pub actual: Vec<f32>,
    /// The forecast.
    pub forecast: Vec<f32>,
    /// Share, lower and upper bounds.
    pub intervals: Vec<(f64, Vec<f32>, Vec<f32>)>,
}

/// Size of the picture in pixels, and the plot area in it.
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
        let finite = all.filter(|value| value.is_finite()).map(|value| f64::from(*value));
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
    let place = |step: usize, value: f32| {
        let (x, y) = (step as f64 / steps, (f64::from(value) - low) / (high - low));
        (X.0 + x * (X.1 - X.0), Y.1 + y * (Y.0 - Y.1))
    };
    draw_axes(&mut svg, plot, low, high);
    let begin = plot.history.len();
    let ahead = |values: &[f32]| -> Vec<(f64, f64)> {
        values.iter().enumerate().map(|(step, value)| place(begin + step, *value)).collect()
    };
    // The widest first, so that the narrower ones lie over it.
    let mut intervals: Vec<_> = plot.intervals.iter().collect();
    intervals.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, low, high) in &intervals {
        svg.area("soft-fill", 0.18, &ahead(low), &ahead(high));
    }
    let known = |values: &[f32], begin: usize| -> Vec<Vec<(f64, f64)>> {
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

fn draw_axes(svg: &mut Svg, plot: &ForecastPlot, low: f64, high: f64) {
    for i in 0..=4 {
        let share = f64::from(i) / 4.0;
        let y = Y.1 + share * (Y.0 - Y.1);
        svg.line("grid", (X.0, y), (X.1, y));
        svg.text("muted end", X.0 - 10.0, y + 4.0, &label(low + share * (high - low)));
    }
    svg.line("frame", (X.0, Y.1), (X.1, Y.1));
    let steps = plot.steps().saturating_sub(1).max(1) as f64;
    let origin = X.0 + plot.history.len() as f64 / steps * (X.1 - X.0);
    svg.line("guide", (origin, Y.0), (origin, Y.1));
    svg.text("muted", X.0, Y.1 + 20.0, &plot.first);
    svg.text("muted middle", origin, Y.1 + 20.0, &plot.origin);
    if origin < X.1 - 130.0 {
        svg.text("muted end", X.1, Y.1 + 20.0, &plot.last);
    }
}

fn draw_legend(svg: &mut Svg, plot: &ForecastPlot, intervals: &[&(f64, Vec<f32>, Vec<f32>)]) {
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

/// A number beside the axis.
fn label(value: f64) -> String {
    if value < 0.0 { format!("-{}", measured(-value)) } else { measured(value) }
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
            let [from, to] = [high.max(*low), high.min(*low)].map(|bound| line(f64::from(bound)));
            for row in cells[from..=to].iter_mut().filter(|_| low.is_finite() && high.is_finite()) {
                row[column(begin + step)] = '░';
            }
        }
    }
    for (values, begin, mark) in
        [(&plot.history, 0, '·'), (&plot.actual, begin, 'o'), (&plot.forecast, begin, '*')]
    {
        for (step, value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
            cells[line(f64::from(*value))][column(begin + step)] = mark;
        }
    }
    let labels = |row: usize| match row {
        0 => label(high),
        row if row == LINES - 1 => label(low),
        _ => String::new(),
    };
    let rows = cells
        .iter()
        .enumerate()
        .map(|(row, cells)| format!("{:>10} {}\n", labels(row), cells.iter().collect::<String>().trim_end()));
    format!("{}{:>10} {} to {}\n", rows.collect::<String>(), "", plot.first, plot.last)
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
            history: vec![1.0, 2.0, f32::NAN, 4.0, 3.0, 2.0, 1.0, 2.0],
            actual: vec![3.0],
            forecast: vec![3.5, 4.5],
            intervals: vec![(0.8, vec![3.0, 4.0], vec![4.0, 5.0]), (0.95, vec![2.0, 3.0], vec![5.0, 6.0])],
        }
    }

    #[test]
    fn intervals_that_cross_or_are_no_numbers_are_drawn_somehow() {
        let mut plot = plot();
        plot.intervals = vec![(0.8, vec![5.0, f32::NAN], vec![3.0, f32::INFINITY])];
        assert!(terminal_plot(&plot, 40).contains('░'));
        plot.intervals = vec![(0.8, vec![f32::NAN; 2], vec![f32::NAN; 2])];
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
        let empty = ForecastPlot { history: vec![f32::NAN], ..ForecastPlot::default() };
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
