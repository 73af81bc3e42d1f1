//! Time and memory as functions of size on logarithmic axes: one line for each number of threads, with its exponent.

use super::axis::Log;
use super::plot::{Area, Plot, coloured};
use super::svg::{Point, Svg};

/// Measurements with one number of threads.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingLine {
    /// The name of the line.
    pub name: String,
    /// Sizes and times.
    pub milliseconds: Vec<(f64, f64)>,
    /// Sizes and peaks of memory, where they are known.
    pub megabytes: Vec<(f64, f64)>,
    /// The exponents of time and memory.
    pub exponents: [Option<f64>; 2],
}

/// Width and height of the picture in pixels.
const SIZE: (f64, f64) = (820.0, 400.0);
/// Left and right ends of the two plot areas.
const X: [(f64, f64); 2] = [(72.0, 396.0), (484.0, 800.0)];
/// Top and bottom of the plot areas.
const Y: (f64, f64) = (104.0, 346.0);
/// Memory below this is that of the program itself, not of the work, in MB.
const MIN_MEGABYTES: f64 = 0.1;

/// Draws lines as SVG; `unit` is the unit of the sizes. Points that are not positive numbers are left out.
#[must_use]
pub fn scaling_plot(title: &str, unit: &str, lines: &[ScalingLine]) -> String {
    let mut svg = Svg::new(SIZE.0, SIZE.1, title);
    let positive = |points: &[(f64, f64)], least: f64| {
        let drawn = |(x, y): &(f64, f64)| x.is_finite() && y.is_finite() && *x > 0.0 && *y > least;
        points.iter().copied().filter(drawn).collect::<Vec<_>>()
    };
    let times: Vec<_> = lines.iter().map(|line| positive(&line.milliseconds, 0.0)).collect();
    let memory: Vec<_> = lines.iter().map(|line| positive(&line.megabytes, MIN_MEGABYTES)).collect();
    for (panel, (what, points)) in
        [("time, ms", &times), ("peak memory, MB", &memory)].into_iter().enumerate()
    {
        svg.text("muted", X[panel].0 - 48.0, 58.0, what);
        for (i, (line, class)) in coloured(lines).enumerate() {
            let x = X[panel].0 + 190.0 * i as f64;
            let exponent = line.exponents[panel].map_or("exponent ?".into(), |e| format!("exponent {e:.2}"));
            svg.dot(&format!("{class}-fill"), (x - 44.0, 76.0), 4.0);
            svg.name_and_value(x - 34.0, 80.0, &line.name, &exponent);
        }
        draw_panel(&mut svg, X[panel], unit, points);
    }
    svg.finish()
}

fn draw_panel(svg: &mut Svg, ends: (f64, f64), unit: &str, lines: &[Vec<(f64, f64)>]) {
    let all = || lines.iter().flatten();
    if all().next().is_none() {
        svg.text("muted middle", f64::midpoint(ends.0, ends.1), f64::midpoint(Y.0, Y.1), "not measured");
        return;
    }
    let axis = |of: fn(&(f64, f64)) -> f64| {
        Log::new(all().map(of).fold(f64::INFINITY, f64::min), all().map(of).fold(0.0, f64::max))
    };
    let area = Area { left: ends.0, right: ends.1, top: Y.0, bottom: Y.1 };
    let plot = Plot { area, x: axis(|point| point.0), y: axis(|point| point.1) };
    plot.draw_rows(svg);
    plot.draw_foot(svg, Y.1, unit);
    for (line, class) in coloured(lines) {
        let places: Vec<Point> = line.iter().map(|&(size, value)| plot.place(size, value)).collect();
        for &place in &places {
            svg.dot(&format!("{class}-fill"), place, 3.0);
        }
        if !places.is_empty() {
            svg.strokes(class, 1.75, &[places]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::svg::assert_well_formed;
    use super::*;

    fn line(name: &str, points: &[(f64, f64)]) -> ScalingLine {
        ScalingLine {
            name: name.into(),
            milliseconds: points.to_vec(),
            megabytes: points.to_vec(),
            exponents: [Some(1.0), None],
        }
    }

    #[test]
    fn every_line_has_its_name_and_exponent() {
        let lines =
            [line("1 thread", &[(16.0, 1.0), (32.0, 4.0)]), line("2 threads", &[(16.0, 0.6), (32.0, 2.0)])];
        let plot = scaling_plot("grid", "cells", &lines);
        let text = assert_well_formed(&plot);
        for label in ["1 thread", "2 threads", "exponent 1.00", "exponent ?", "time, ms", "cells"] {
            assert!(text.contains(label), "{label} is missing");
        }
        // Four points in each panel, and two names above it.
        assert_eq!(plot.matches("<circle").count(), 2 * (4 + 2));
    }

    #[test]
    fn odd_points_are_well_formed() {
        for points in [&[][..], &[(1.0, f64::NAN), (0.0, 1.0), (2.0, -1.0)], &[(1e-300, 1e300), (1.0, 1.0)]] {
            assert_well_formed(&scaling_plot("a < b", "<s>", &[line("&", points)]));
        }
        assert_well_formed(&scaling_plot("nothing", "x", &[]));
    }
}
