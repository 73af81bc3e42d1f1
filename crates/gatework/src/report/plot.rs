//! A plot area with two axes: grid, ticks, labels and the mapping from values to pixels, shared by all charts.

use super::axis::{Axis, Tick};
use super::svg::{Point, SERIES, Svg};

/// The pixels of a plot area, from the top left of the picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Area {
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

/// A plot area with a horizontal and a vertical axis.
pub(super) struct Plot<X, Y> {
    pub(super) area: Area,
    pub(super) x: X,
    pub(super) y: Y,
}

impl<X: Axis, Y: Axis> Plot<X, Y> {
    /// Returns the pixel column of a value on the horizontal axis.
    pub(super) fn column(&self, value: f64) -> f64 {
        self.column_at(self.x.at(value))
    }

    /// Returns the pixel row of a value on the vertical axis.
    pub(super) fn row(&self, value: f64) -> f64 {
        self.row_at(self.y.at(value))
    }

    /// Returns the pixel position of a point.
    pub(super) fn place(&self, x: f64, y: f64) -> Point {
        (self.column(x), self.row(y))
    }

    fn column_at(&self, at: f64) -> f64 {
        self.area.left + at * (self.area.right - self.area.left)
    }

    fn row_at(&self, at: f64) -> f64 {
        self.area.bottom + at * (self.area.top - self.area.bottom)
    }

    /// Maps points to strokes. A point whose `y` is not finite leaves a gap.
    pub(super) fn strokes(&self, points: impl IntoIterator<Item = (f64, f64)>) -> Vec<Vec<Point>> {
        let mut strokes = vec![Vec::new()];
        for (x, y) in points {
            match strokes.last_mut() {
                Some(stroke) if y.is_finite() => stroke.push(self.place(x, y)),
                _ => strokes.push(Vec::new()),
            }
        }
        strokes.retain(|stroke| !stroke.is_empty());
        strokes
    }

    /// Draws a grid line for each tick of the vertical axis, with its label at the left.
    pub(super) fn draw_rows(&self, svg: &mut Svg) {
        for Tick { at, label } in self.y.ticks() {
            let y = self.row_at(at);
            svg.line(grid_class(&label), (self.area.left, y), (self.area.right, y));
            svg.text("muted end", self.area.left - 10.0, y + 4.0, &label);
        }
    }

    /// Draws a grid line for each tick of the horizontal axis, with its label below: for horizontal bars.
    pub(super) fn draw_columns(&self, svg: &mut Svg) {
        for Tick { at, label } in self.x.ticks() {
            let x = self.column_at(at);
            svg.line(grid_class(&label), (x, self.area.top), (x, self.area.bottom));
            svg.text("muted middle", x, self.area.bottom + 17.0, &label);
        }
    }

    /// Draws the horizontal axis at the pixel row `foot`, with its ticks and its unit.
    pub(super) fn draw_foot(&self, svg: &mut Svg, foot: f64, unit: &str) {
        for Tick { at, label } in self.x.ticks() {
            let x = self.column_at(at);
            svg.line("frame", (x, foot), (x, foot + 5.0));
            svg.text("muted middle", x, foot + 20.0, &label);
        }
        let Area { left, right, .. } = self.area;
        svg.line("frame", (left, foot), (right, foot));
        svg.text("muted middle", f64::midpoint(left, right), foot + 40.0, unit);
    }
}

/// The class of a grid line: ticks without a label are minor ones.
fn grid_class(label: &str) -> &'static str {
    if label.is_empty() { "minor" } else { "grid" }
}

/// Pairs each item with the colour class of its series.
pub(super) fn coloured<T>(items: &[T]) -> impl Iterator<Item = (&T, &'static str)> {
    items.iter().zip(SERIES.into_iter().cycle())
}

#[cfg(test)]
mod tests {
    use super::super::axis::Linear;
    use super::*;

    #[test]
    fn values_map_to_the_corners_of_the_area_and_gaps_split_strokes() {
        let area = Area { left: 10.0, right: 110.0, top: 20.0, bottom: 70.0 };
        let plot = Plot { area, x: Linear::of_values(0.0, 4.0), y: Linear::of_values(-1.0, 1.0) };
        assert_eq!((plot.place(0.0, -1.0), plot.place(4.0, 1.0)), ((10.0, 70.0), (110.0, 20.0)));
        let values = [1.0, 0.0, f64::NAN, 1.0, f64::INFINITY];
        let strokes = plot.strokes(values.iter().enumerate().map(|(i, &y)| (i as f64, y)));
        assert_eq!(strokes, [vec![(10.0, 20.0), (35.0, 45.0)], vec![(85.0, 20.0)]]);
    }
}
