//! Layered graph layout: every gate is in a column right of its operands, and lines have few crossings.
//!
//! ```text
//! columns    the longest path from an input; outputs in the last column
//! bends      a line over several columns has a dummy item in each, so it does not cross gates
//! order      sweeps to the right and to the left: a column is sorted by the barycentre of its neighbours
//! rows       more sweeps: every item moves towards its neighbours, without overlapping the next one
//! ```
//!
//! This is the method of Sugiyama, Tagawa and Toda ("Methods for visual understanding of hierarchical system
//! structures", 1981).

use super::symbol;
use crate::circuit::Circuit;
use crate::formats::used_inputs;
use crate::gate::Gate;
use std::collections::HashSet;

/// An item of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Input(u32),
    Gate(u32),
    Output(usize),
    /// A dummy item, through which a line passes.
    Bend,
}

impl Item {
    /// The height, in rows.
    fn height(self) -> f64 {
        match self {
            Item::Gate(_) => 1.7,
            Item::Input(_) | Item::Output(_) => 1.0,
            Item::Bend => 0.55,
        }
    }
}

/// An item, its column and the row of its centre.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub item: Item,
    pub column: usize,
    pub row: f64,
}

/// A point of a line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub column: usize,
    pub row: f64,
}

/// A line from a signal to an operand of a gate, or to an output.
#[derive(Debug)]
pub(super) struct Line {
    pub points: Vec<Point>,
    /// The signal that the line carries.
    pub signal: u32,
    /// The gate or the output that it leads to.
    pub end: Item,
    /// For an operand: the offset below the centre of the gate, in pixels.
    pub pin: Option<f64>,
}

impl Line {
    /// The gate at the start of the line, if it is one.
    pub fn gate(&self, circuit: &Circuit) -> Option<Gate> {
        circuit.node(self.signal).map(|node| node.gate)
    }
}

/// A drawing in columns and rows.
#[derive(Debug)]
pub(super) struct Layout {
    pub items: Vec<Placed>,
    /// The gates whose first operand is below the second.
    pub swapped: HashSet<u32>,
    pub lines: Vec<Line>,
    pub columns: usize,
    pub rows: f64,
}

/// The signal of a line, the items on its way, and the offset at which it enters a gate.
type Route = (u32, Vec<usize>, Option<f64>);

/// The items of each column and the links between neighbouring columns.
#[derive(Default)]
struct Graph {
    items: Vec<Placed>,
    /// The indices of the items of each column, from top to bottom.
    columns: Vec<Vec<usize>>,
    /// The neighbours of each item in the columns to the left and to the right.
    left: Vec<Vec<usize>>,
    right: Vec<Vec<usize>>,
    routes: Vec<Route>,
}

/// The number of sweeps, each for the order and for the rows.
const SWEEPS: usize = 24;

impl Layout {
    pub fn new(circuit: &Circuit) -> Layout {
        let mut graph = Graph::build(circuit);
        for sweep in 0..SWEEPS {
            graph.sort(sweep % 2 == 0);
        }
        graph.pack();
        for sweep in 0..SWEEPS {
            graph.move_rows(sweep % 2 == 1);
        }
        graph.finish()
    }
}

impl Graph {
    fn build(circuit: &Circuit) -> Graph {
        let mut depth = vec![0usize; circuit.signals()];
        for (i, node) in circuit.nodes().iter().enumerate() {
            let before = node.dependencies().map(|signal| depth[signal as usize]).max();
            depth[circuit.inputs() + i] = 1 + before.unwrap_or(0);
        }
        let last = 1 + depth.iter().max().copied().unwrap_or(0);
        let mut graph = Graph { columns: vec![Vec::new(); last + 1], ..Graph::default() };
        let mut places = vec![0; circuit.signals()];
        for input in used_inputs(circuit) {
            places[input as usize] = graph.add(Item::Input(input), 0);
        }
        let mut bends = Bends { made: vec![Vec::new(); circuit.signals()] };
        for (i, node) in circuit.nodes().iter().enumerate() {
            let signal = circuit.inputs() + i;
            places[signal] = graph.add(Item::Gate(signal as u32), depth[signal]);
            let operands: Vec<u32> = node.dependencies().collect();
            for (k, &operand) in operands.iter().enumerate() {
                let pin = symbol::pin(k, operands.len());
                graph.link(&mut bends, operand, places[operand as usize], places[signal], Some(pin));
            }
        }
        for (output, &signal) in circuit.outputs().iter().enumerate() {
            let place = graph.add(Item::Output(output), last);
            graph.link(&mut bends, signal, places[signal as usize], place, None);
        }
        graph
    }

    fn add(&mut self, item: Item, column: usize) -> usize {
        self.items.push(Placed { item, column, row: 0.0 });
        self.left.push(Vec::new());
        self.right.push(Vec::new());
        self.columns[column].push(self.items.len() - 1);
        self.items.len() - 1
    }

    /// Adds a line between two items, through bends that all lines of a signal share.
    fn link(&mut self, bends: &mut Bends, signal: u32, from: usize, to: usize, pin: Option<f64>) {
        let mut route = vec![from];
        let (begin, end) = (self.items[from].column, self.items[to].column);
        for column in begin + 1..end {
            let made = &mut bends.made[signal as usize];
            let before = route[route.len() - 1];
            if made.len() < column - begin {
                let bend = self.add(Item::Bend, column);
                made.push(bend);
                self.right[before].push(bend);
                self.left[bend].push(before);
            }
            route.push(made[column - begin - 1]);
        }
        let before = route[route.len() - 1];
        self.right[before].push(to);
        self.left[to].push(before);
        route.push(to);
        self.routes.push((signal, route, pin));
    }

    /// Sorts every column by the barycentre of its neighbours on one side.
    fn sort(&mut self, from_left: bool) {
        let count = self.columns.len();
        let order: Vec<usize> = if from_left { (0..count).collect() } else { (0..count).rev().collect() };
        for column in order {
            let neighbours = if from_left { &self.left } else { &self.right };
            let items = &self.items;
            let mut keyed: Vec<(f64, usize)> = self.columns[column]
                .iter()
                .map(|&item| {
                    (mean(&neighbours[item], |other| items[other].row).unwrap_or(items[item].row), item)
                })
                .collect();
            keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
            self.columns[column] = keyed.into_iter().map(|(_, item)| item).collect();
            for (place, &item) in self.columns[column].iter().enumerate() {
                self.items[item].row = place as f64;
            }
        }
    }

    /// Assigns rows by the order alone, with all columns centred.
    fn pack(&mut self) {
        for column in &self.columns {
            let height: f64 = column.iter().map(|&item| self.items[item].item.height()).sum();
            let mut top = -height / 2.0;
            for &item in column {
                let item = &mut self.items[item];
                item.row = top + item.item.height() / 2.0;
                top += item.item.height();
            }
        }
    }

    /// Moves the items of every column towards their neighbours on one side.
    fn move_rows(&mut self, from_left: bool) {
        let count = self.columns.len();
        let order: Vec<usize> = if from_left { (0..count).collect() } else { (0..count).rev().collect() };
        for column in order {
            let preferred: Vec<f64> =
                self.columns[column].iter().map(|&item| self.preferred_row(item, from_left)).collect();
            let heights: Vec<f64> =
                self.columns[column].iter().map(|&item| self.items[item].item.height()).collect();
            for (&item, row) in self.columns[column].iter().zip(spread(&preferred, &heights)) {
                self.items[item].row = row;
            }
        }
    }

    /// The preferred row of an item.
    fn preferred_row(&self, item: usize, from_left: bool) -> f64 {
        let row = |other: usize| self.items[other].row;
        let (left, right) = (mean(&self.left[item], row), mean(&self.right[item], row));
        let (first, second) = if from_left { (left, right) } else { (right, left) };
        match (first, second) {
            (Some(first), Some(second)) => 0.7 * first + 0.3 * second,
            (Some(one), None) | (None, Some(one)) => one,
            (None, None) => row(item),
        }
    }

    /// Swaps the pins of gates whose lines would cross otherwise, and returns these gates.
    fn swap_pins(&mut self) -> HashSet<u32> {
        let mut swapped = HashSet::new();
        // The lines to the two operands of a gate are consecutive.
        for second in 1..self.routes.len() {
            let (before, after) = self.routes.split_at_mut(second);
            let (Some((_, a, pin_a @ Some(_))), Some((_, b, pin_b @ Some(_)))) =
                (before.last_mut(), after.first_mut())
            else {
                continue;
            };
            let row = |route: &[usize]| self.items[route[route.len() - 2]].row;
            let Item::Gate(signal) = self.items[a[a.len() - 1]].item else { continue };
            if a.last() == b.last() && row(a) > row(b) {
                std::mem::swap(pin_a, pin_b);
                swapped.insert(signal);
            }
        }
        swapped
    }

    /// Returns the layout, with row 0 at the top.
    fn finish(mut self) -> Layout {
        let swapped = self.swap_pins();
        let top = self.items.iter().map(|item| item.row).fold(f64::INFINITY, f64::min);
        let top = if top.is_finite() { top } else { 0.0 };
        let items: Vec<Placed> =
            self.items.iter().map(|item| Placed { row: item.row - top, ..*item }).collect();
        let point = |&item: &usize| Point { column: items[item].column, row: items[item].row };
        let line = |(signal, route, pin): &Route| Line {
            points: route.iter().map(point).collect(),
            signal: *signal,
            end: route.last().map_or(Item::Bend, |&item| items[item].item),
            pin: *pin,
        };
        let lines = self.routes.iter().map(line).collect();
        let rows = items.iter().map(|item| item.row).fold(0.0, f64::max);
        Layout { lines, columns: self.columns.len(), rows, items, swapped }
    }
}

/// The bends of each signal, column by column.
struct Bends {
    made: Vec<Vec<usize>>,
}

fn mean(items: &[usize], value: impl Fn(usize) -> f64) -> Option<f64> {
    let sum: f64 = items.iter().map(|&item| value(item)).sum();
    (!items.is_empty()).then(|| sum / items.len() as f64)
}

/// Returns the rows closest to the preferred ones (least squares) for which items do not overlap and keep their order.
///
/// Items that overlap form a group around the mean of their preferred rows; groups that overlap are joined (pool adjacent
/// violators).
fn spread(preferred: &[f64], heights: &[f64]) -> Vec<f64> {
    struct Group {
        /// The sum over the items of the preferred top of the group.
        sum: f64,
        count: usize,
        height: f64,
    }
    let mut groups: Vec<Group> = Vec::new();
    for (row, &height) in preferred.iter().zip(heights) {
        let mut group = Group { sum: row - height / 2.0, count: 1, height };
        while let Some(above) = groups.last() {
            let top = |group: &Group| group.sum / group.count as f64;
            if top(above) + above.height <= top(&group) {
                break;
            }
            // The preferred top of the joined group is higher for the items of the lower one.
            group.sum += above.sum - above.height * group.count as f64;
            group.count += above.count;
            group.height += above.height;
            groups.pop();
        }
        groups.push(group);
    }
    let mut rows = Vec::with_capacity(preferred.len());
    let mut heights = heights.iter();
    for group in groups {
        let mut top = group.sum / group.count as f64;
        for height in heights.by_ref().take(group.count) {
            rows.push(top + height / 2.0);
            top += height;
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use proptest::prelude::*;

    #[test]
    fn items_with_equal_preferences_are_centred_on_them() {
        assert_eq!(spread(&[5.0, 5.0, 5.0], &[1.0, 1.0, 1.0]), [4.0, 5.0, 6.0]);
        assert_eq!(spread(&[0.0, 10.0], &[1.0, 1.0]), [0.0, 10.0]);
        assert_eq!(spread(&[3.0, 2.0], &[1.0, 3.0]), [1.5, 3.5]);
    }

    proptest! {
        #[test]
        fn items_of_a_column_do_not_overlap(
            preferred in prop::collection::vec((-10.0f64..10.0, 0.5f64..3.0), 0..20),
        ) {
            let (preferred, heights): (Vec<f64>, Vec<f64>) = preferred.into_iter().unzip();
            let rows = spread(&preferred, &heights);
            for i in 1..rows.len() {
                prop_assert!(rows[i] - rows[i - 1] >= f64::midpoint(heights[i], heights[i - 1]) - 1e-9);
            }
        }

        #[test]
        fn every_gate_is_placed_and_every_line_goes_right(circuit in arbitrary::circuit(0..=12, 60)) {
            let simple = circuit.simplify();
            let layout = Layout::new(&simple);
            let gates = layout.items.iter().filter(|placed| matches!(placed.item, Item::Gate(_))).count();
            prop_assert_eq!(gates, simple.nodes().len());
            let operands: usize = simple.nodes().iter().map(|node| node.dependencies().count()).sum();
            prop_assert_eq!(layout.lines.len(), operands + simple.outputs().len());
            for line in &layout.lines {
                prop_assert!(line.points.windows(2).all(|pair| pair[0].column + 1 == pair[1].column));
            }
        }
    }
}
