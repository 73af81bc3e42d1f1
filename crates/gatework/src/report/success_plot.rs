//! Share of the seeds that have succeeded as a function of updates or seconds: one line per setting, with a 95 % interval.

use gatework_gates::automata::study::success_rate;

use super::axis::{Axis, Linear, Tick};
use super::plot::{Area, Plot, coloured};
use super::svg::{Point, Svg, shorten};

/// The results of the seeds of one setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// The name of the setting.
    pub name: String,
    /// The number of seeds.
    pub runs: usize,
    /// The time at which each successful seed succeeded.
    pub successes: Vec<f64>,
    /// The time at which the last seed ended.
    pub longest: f64,
}

/// Width of the picture in pixels.
const WIDTH: f64 = 820.0;
/// Left and right end of the time axis.
const X: (f64, f64) = (72.0, 540.0);
/// Top and bottom of the plot area.
const Y: (f64, f64) = (76.0, 366.0);
/// Height of a line of the legend.
const LINE: f64 = 20.0;
/// Characters of a name that fit into the legend.
const NAME: usize = 30;

/// Draws curves as SVG; `unit` is the unit of their times.
#[must_use]
pub fn success_plot(title: &str, unit: &str, curves: &[Curve]) -> String {
    let height = (Y.0 + LINE * curves.len() as f64).max(Y.1) + 54.0;
    let mut svg = Svg::new(WIDTH, height, title);
    svg.text("muted", 24.0, 54.0, "share of the seeds that have learned, with 95 % intervals");
    let longest = curves.iter().map(|curve| curve.longest).fold(1.0, f64::max);
    let area = Area { left: X.0, right: X.1, top: Y.0, bottom: Y.1 };
    let plot = Plot { area, x: Linear::of_updates(0, longest.ceil() as u64), y: Shares };
    plot.draw_rows(&mut svg);
    plot.draw_foot(&mut svg, Y.1, unit);
    let lines: Vec<Line> = curves.iter().map(|curve| Line::new(curve, &plot)).collect();
    for (line, class) in coloured(&lines) {
        svg.area(&format!("{class}-fill"), 0.12, &line.low, &line.high);
    }
    for (line, class) in coloured(&lines) {
        svg.strokes(class, 1.75, std::slice::from_ref(&line.share));
    }
    for (i, (curve, class)) in coloured(curves).enumerate() {
        let y = Y.0 + 6.0 + LINE * i as f64;
        svg.dot(&format!("{class}-fill"), (X.1 + 18.0, y - 4.0), 4.0);
        let value = format!("{} of {}", curve.successes.len(), curve.runs);
        svg.name_and_value(X.1 + 28.0, y, &shorten(&curve.name, NAME), &value);
    }
    svg.finish()
}

/// The axis of shares, from 0 to 100 %.
struct Shares;

impl Axis for Shares {
    fn at(&self, share: f64) -> f64 {
        share
    }

    fn ticks(&self) -> Vec<Tick> {
        let tick = |percent: u8| Tick { at: f64::from(percent) / 100.0, label: format!("{percent} %") };
        [0, 25, 50, 75, 100].map(tick).to_vec()
    }
}

/// A curve in pixels: a step function that rises with every success.
struct Line {
    share: Vec<Point>,
    low: Vec<Point>,
    high: Vec<Point>,
}

impl Line {
    fn new(curve: &Curve, plot: &Plot<Linear, Shares>) -> Line {
        let mut times = curve.successes.clone();
        times.sort_by(f64::total_cmp);
        let mut line = Line { share: Vec::new(), low: Vec::new(), high: Vec::new() };
        let mut point = |time: f64, successes: usize| {
            let [share, low, high] = success_rate(successes, curve.runs);
            line.share.push(plot.place(time, share));
            line.low.push(plot.place(time, low));
            line.high.push(plot.place(time, high));
        };
        point(0.0, 0);
        for (before, &time) in times.iter().enumerate() {
            point(time, before);
            point(time, before + 1);
        }
        point(curve.longest.max(times.last().copied().unwrap_or(0.0)), times.len());
        line
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg::assert_well_formed;
    use super::*;

    #[test]
    fn curves_of_every_kind_are_well_formed() {
        let curve = |name: &str, runs, successes: &[f64], longest| Curve {
            name: name.into(),
            runs,
            successes: successes.to_vec(),
            longest,
        };
        assert_well_formed(&success_plot("nothing", "updates", &[]));
        let odd = [
            curve("<a> & a name that is much too long to be shown", 0, &[], 0.0),
            curve("b", 3, &[7.0, 7.0, 1e30], 1e30),
        ];
        assert_well_formed(&success_plot("odd", "<s>", &odd));
        let many: Vec<Curve> =
            (0..40).map(|i| curve(&i.to_string(), 20, &[0.5, f64::from(i)], 50.0)).collect();
        let svg = success_plot("many", "seconds", &many);
        assert!(assert_well_formed(&svg).contains("2 of 20"));
    }

    #[test]
    fn a_line_rises_with_every_success_to_its_share() {
        let curve = Curve { name: "a".into(), runs: 4, successes: vec![30.0, 10.0], longest: 100.0 };
        let area = Area { left: X.0, right: X.1, top: Y.0, bottom: Y.1 };
        let plot = Plot { area, x: Linear::of_updates(0, 100), y: Shares };
        let line = Line::new(&curve, &plot);
        let heights: Vec<f64> = line.share.iter().map(|point| point.1).collect();
        let expected = [0.0, 0.0, 0.25, 0.25, 0.5, 0.5].map(|share| plot.row(share));
        assert_eq!(heights, expected);
        assert!(line.low.iter().zip(&line.high).all(|(low, high)| low.1 >= high.1));
    }
}
