//! Automata in which every cell counts its coordinates and looks its target up.
//!
//! Channels: the observed ones, one for the cells that are alive, and the digits of both coordinates. There are two ways to
//! count:
//!
//! - **From a seed**: the seed cell, in which all channels are 1, is alive. A cell next to a live one becomes alive, and its
//!   coordinates are those of its neighbour plus the offset. Cells that are not alive have the coordinates 0, so those of
//!   several neighbours in a line are combined by OR. A picture has edges that no count passes; a tile repeats.
//! - **From the edge**: every cell is alive after one step, and the cells beyond a boundary of zeros never are. A cell without a
//!   live neighbour to the left is the first of its row, and every other counts on from its neighbour.
//! - **From the corner**: the first cell of the grid has no live neighbour above or to the left; it counts some steps to be sure.
//!   Every other cell counts on from whichever of its neighbours above and to the left is alive, and keeps its coordinates
//!   while none is. So counts go around damage, which looks like an edge, and a hole fills with the right ones.
//!
//! Coordinates that are right stay right, so the target stays too; cells that are set to 0 count again.

use gatework_logic::automaton::NEIGHBOURS;
use gatework_logic::{Automaton, Boundary};

use super::bits::{Bit, Bits};
use super::bits_for;
use super::table::{Entry, lookup};

/// Where counting begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Anchor {
    /// The seed cell, at this row and column.
    Seed([usize; 2]),
    /// The first row and the first column.
    Edge,
    /// The first cell of the first row.
    Corner,
}

/// Digits of the counter of steps after which a cell takes itself for the first one of the grid. Damage that hides the neighbours of
/// a cell for fewer steps is not taken for a corner.
const TIMER_DIGITS: usize = 4;

/// The coordinates of a target: rows, then columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Axes {
    /// Where counting begins.
    pub anchor: Anchor,
    /// Rows and columns after which the target repeats, or its size.
    pub size: [usize; 2],
    /// Whether the target repeats over the plane.
    pub repeats: bool,
}

impl Axes {
    /// Channels that the coordinates need, besides the observed ones.
    pub fn channels(&self) -> usize {
        let timer = if self.anchor == Anchor::Corner { TIMER_DIGITS } else { 0 };
        1 + self.size.iter().map(|&side| bits_for(side)).sum::<usize>() + timer
    }

    fn axis(&self, axis: usize) -> Axis {
        let (side, digits) = (self.size[axis], bits_for(self.size[axis]));
        // A count that does not repeat may use all numbers, which needs no comparison.
        let modulus =
            if self.repeats || !matches!(self.anchor, Anchor::Seed(_)) { side } else { 1 << digits };
        match self.anchor {
            Anchor::Edge | Anchor::Corner => Axis { side, digits, modulus, base: 0, origin: 0 },
            Anchor::Seed(at) => {
                // All digits of the seed cell are 1.
                let base = (1 << digits) - modulus;
                let origin = modulus - 1 + modulus * (at[axis] / modulus + 1) - at[axis];
                Axis { side, digits, modulus, base, origin: origin % modulus }
            }
        }
    }
}

/// A coordinate: its numbers go from `base` to `base + modulus - 1`.
struct Axis {
    side: usize,
    digits: usize,
    modulus: usize,
    base: usize,
    /// The number of coordinate 0, less `base`.
    origin: usize,
}

impl Axis {
    fn code(&self, coordinate: usize) -> usize {
        self.base + (coordinate + self.origin) % self.modulus
    }

    /// Returns the number after or before another.
    fn step(&self, bits: &mut Bits, number: &[Bit], up: bool) -> Vec<Bit> {
        let next = bits.step(number, up);
        if self.modulus == 1 << self.digits {
            return next;
        }
        let (first, last) = (self.base, self.base + self.modulus - 1);
        let (end, begin) = if up { (last, first) } else { (first, last) };
        let wraps = bits.equals(number, end);
        let begin = (0..self.digits).map(|i| Bit::constant(begin >> i & 1 == 1));
        next.iter().zip(begin).map(|(&next, begin)| bits.choose(wraps, begin, next)).collect()
    }
}

/// Returns an automaton of `channels` channels that makes a target of `observed` channels: `target(channel, y, x)` is a bit of
/// it. Returns `None` if there are too few channels.
pub fn automaton(
    axes: &Axes,
    channels: usize,
    observed: usize,
    boundary: Boundary,
    target: impl Fn(usize, usize, usize) -> bool,
) -> Option<Automaton> {
    if axes.size.contains(&0) || observed + axes.channels() > channels {
        return None;
    }
    let mut bits = Bits::new(channels * NEIGHBOURS);
    let [rows, columns] = [axes.axis(0), axes.axis(1)];
    let first_row_digit = observed + 1;
    let first_column_digit = first_row_digit + rows.digits;
    let counters = [(&rows, first_row_digit, 0), (&columns, first_column_digit, 1)];
    let mut timer = Vec::new();
    let (alive, [y, x]) = match axes.anchor {
        Anchor::Seed(_) => grow(&mut bits, observed, counters, axes.repeats),
        Anchor::Corner => {
            let first = first_column_digit + columns.digits;
            let (is_first, next) = first_cell(&mut bits, observed, first);
            timer = next;
            spread(&mut bits, observed, counters, is_first)
        }
        Anchor::Edge => {
            let count = |(axis, digit, direction): (&Axis, usize, usize)| {
                // The neighbour above, or to the left.
                let neighbour = [1, 3][direction];
                let before = numbers(digit, axis.digits, neighbour);
                let next = axis.step(&mut bits, &before, true);
                let inside = input(observed, neighbour);
                next.into_iter().map(|digit| bits.and(inside, digit)).collect()
            };
            (Bit::TRUE, counters.map(count))
        }
    };
    let variables = [&x[..], &y[..]].concat();
    let table = |channel: usize| {
        let mut table: Vec<Entry> = vec![None; 1 << variables.len()];
        for (row, column) in (0..rows.side).flat_map(|row| (0..columns.side).map(move |column| (row, column)))
        {
            let index = columns.code(column) | rows.code(row) << columns.digits;
            table[index] = Some(target(channel, row, column));
        }
        table
    };
    let tables: Vec<Vec<Entry>> = (0..observed).map(table).collect();
    let mut outputs: Vec<Bit> = lookup(&mut bits, &variables, &tables);
    for output in &mut outputs {
        *output = bits.and(alive, *output);
    }
    outputs.push(alive);
    outputs.extend(y.into_iter().chain(x).chain(timer));
    outputs.resize(channels, Bit::FALSE);
    let circuit = bits.finish(&outputs).ok()?;
    Automaton::new(channels, boundary, circuit).ok()
}

/// Adds the counters that spread from live cells. Returns whether a cell is alive in the next step, and its coordinates.
fn grow(
    bits: &mut Bits,
    alive: usize,
    counters: [(&Axis, usize, usize); 2],
    repeats: bool,
) -> (Bit, [Vec<Bit>; 2]) {
    let own = input(alive, 4);
    let mut reached = Bit::TRUE;
    let coordinates = counters.map(|(axis, digit, direction)| {
        // Lines of neighbours with the coordinate before, the same and the one after.
        let line = |line: usize| {
            let cells = (0..3).map(move |i| if direction == 0 { 3 * line + i } else { 3 * i + line });
            cells.filter(|&cell| cell != 4).collect::<Vec<usize>>()
        };
        let mut number = vec![Bit::FALSE; axis.digits];
        let mut found = Bit::FALSE;
        for (index, up) in [(2, Some(false)), (0, Some(true)), (1, None)] {
            let cells = line(index);
            let mut is_alive = bits.any(cells.iter().map(|&cell| input(alive, cell)));
            let mut there: Vec<Bit> = (0..axis.digits)
                .map(|i| bits.any(cells.iter().map(|&cell| input(digit + i, cell))))
                .collect();
            if let Some(up) = up {
                if !repeats {
                    let end = axis.code(if up { axis.side - 1 } else { 0 });
                    let at_end = bits.equals(&there, end);
                    is_alive = bits.and(is_alive, at_end.not());
                }
                there = axis.step(bits, &there, up);
            }
            number = there.iter().zip(&number).map(|(&a, &b)| bits.choose(is_alive, a, b)).collect();
            found = bits.or(found, is_alive);
        }
        reached = bits.and(reached, found);
        (number, digit)
    });
    let next = bits.or(own, reached);
    let kept = coordinates.map(|(number, digit)| {
        let keep = |(i, number): (usize, Bit)| {
            let new = bits.and(reached, number);
            bits.choose(own, input(digit + i, 4), new)
        };
        number.into_iter().enumerate().map(keep).collect()
    });
    (next, kept)
}

/// Adds the counter of the steps in which a cell has no live neighbour above or to the left. Returns whether it has waited long
/// enough to be the first one of the grid, and the next digits.
fn first_cell(bits: &mut Bits, alive: usize, digit: usize) -> (Bit, Vec<Bit>) {
    let before = [0, 1, 2, 3, 6].map(|neighbour| input(alive, neighbour));
    let waits = bits.any(before).not();
    let count = numbers(digit, TIMER_DIGITS, 4);
    let is_due = bits.equals(&count, (1 << TIMER_DIGITS) - 1);
    let next = bits.step(&count, true);
    let kept = count.iter().zip(next).map(|(&digit, next)| {
        let digit = bits.choose(is_due, digit, next);
        bits.and(waits, digit)
    });
    let kept = kept.collect();
    (bits.and(waits, is_due), kept)
}

/// Adds the counters that spread from the first cell of the grid. Returns whether a cell is alive in the next step, and its
/// coordinates.
fn spread(
    bits: &mut Bits,
    alive: usize,
    counters: [(&Axis, usize, usize); 2],
    is_first: Bit,
) -> (Bit, [Vec<Bit>; 2]) {
    let (diagonal, above, left) = (0, 1, 3);
    let coordinates = counters.map(|(axis, digit, direction)| {
        let kept = numbers(digit, axis.digits, 4);
        let mut number: Vec<Bit> = kept.into_iter().map(|digit| bits.and(digit, is_first.not())).collect();
        // The diagonal neighbour, which is the farthest, comes first: counts cross the grid in as many steps as its longer side.
        for (neighbour, moves) in [(above, direction == 0), (left, direction == 1), (diagonal, true)] {
            let mut there = numbers(digit, axis.digits, neighbour);
            if moves {
                there = axis.step(bits, &there, true);
            }
            let is_alive = input(alive, neighbour);
            number = there.iter().zip(&number).map(|(&a, &b)| bits.choose(is_alive, a, b)).collect();
        }
        number
    });
    let reached = bits.any([diagonal, above, left].map(|neighbour| input(alive, neighbour)));
    let lives = bits.or(input(alive, 4), is_first);
    (bits.or(lives, reached), coordinates)
}

/// A channel of a neighbour.
fn input(channel: usize, neighbour: usize) -> Bit {
    Bit::input(channel * NEIGHBOURS + neighbour)
}

/// The digits of a number in consecutive channels of a neighbour.
fn numbers(first: usize, digits: usize, neighbour: usize) -> Vec<Bit> {
    (0..digits).map(|digit| input(first + digit, neighbour)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::states::Start;
    use gatework_logic::{Grid, Simulator};
    use gatework_train::random::{Purpose, Random};

    fn target(channel: usize, y: usize, x: usize) -> bool {
        (y * y + 3 * x + x * y + channel) % (3 + channel) == 1
    }

    fn wrong(grid: &Grid, observed: usize, right: impl Fn(usize, usize, usize) -> bool) -> usize {
        let cells = (0..grid.height()).flat_map(|y| (0..grid.width()).map(move |x| (y, x)));
        let bits = cells.flat_map(|(y, x)| (0..observed).map(move |c| (c, y, x)));
        bits.filter(|&(c, y, x)| grid.get(0, c, y, x) != right(c, y, x)).count()
    }

    /// A picture of any size, on its own grid and in the middle of a larger one.
    #[test]
    fn a_picture_grows_stays_and_heals() {
        for (height, width, observed) in [(1, 1, 1), (1, 9, 1), (5, 8, 2), (16, 16, 1), (13, 20, 4)] {
            for boundary in [Boundary::Torus, Boundary::Zeros] {
                let seed = [height / 2, width / 2];
                let axes = Axes { anchor: Anchor::Seed(seed), size: [height, width], repeats: false };
                let channels = observed + axes.channels();
                let rule = automaton(&axes, channels, observed, boundary, target).unwrap();
                assert!(automaton(&axes, channels - 1, observed, boundary, target).is_none());
                for more in [0, 1, 10] {
                    let (grid_height, grid_width) = (height + 2 * more, width + 2 * more);
                    let mut grid = Grid::new(1, grid_height, grid_width, channels).unwrap();
                    Start::Seed.fill(&mut grid, &mut Random::new(1, Purpose::Check, 0)).unwrap();
                    let mut simulator = Simulator::new(&rule, channels).unwrap();
                    let picture = |c: usize, y: usize, x: usize| {
                        let inside = (more..more + height).contains(&y) && (more..more + width).contains(&x);
                        inside && target(c, y - more, x - more)
                    };
                    let steps = (height / 2).max(width / 2).max(1);
                    for step in 0..3 * steps {
                        simulator.step(&mut grid).unwrap();
                        if step + 1 >= steps {
                            assert_eq!(wrong(&grid, observed, picture), 0, "{height}x{width} in step {step}");
                        }
                    }
                    for y in 0..grid_height.min(more + height / 2) {
                        for x in 0..grid_width {
                            (0..channels).for_each(|c| grid.set(0, c, y, x, false));
                        }
                    }
                    (0..height + width).for_each(|_| simulator.step(&mut grid).unwrap());
                    assert_eq!(wrong(&grid, observed, picture), 0, "{height}x{width} heals");
                }
            }
        }
    }

    #[test]
    fn tiles_grow_from_noise_at_the_edge_and_from_a_seed() {
        for (height, width) in [(1, 1), (1, 2), (3, 4), (4, 4), (6, 5), (7, 1)] {
            let tile = |c: usize, y: usize, x: usize| target(c, y % height, x % width);
            let side = [3 * height, 4 * width];
            for anchor in [Anchor::Edge, Anchor::Seed([side[0] / 2, side[1] / 2])] {
                let axes = Axes { anchor, size: [height, width], repeats: true };
                let channels = 1 + axes.channels();
                let (start, boundary) = match anchor {
                    Anchor::Edge | Anchor::Corner => (Start::Random, Boundary::Zeros),
                    Anchor::Seed(_) => (Start::Seed, Boundary::Torus),
                };
                let rule = automaton(&axes, channels, 1, boundary, tile).unwrap();
                let mut grid = Grid::new(1, side[0], side[1], channels).unwrap();
                start.fill(&mut grid, &mut Random::new(1, Purpose::Check, 0)).unwrap();
                let mut simulator = Simulator::new(&rule, channels).unwrap();
                for _ in 0..side[0].max(side[1]) {
                    simulator.step(&mut grid).unwrap();
                }
                assert_eq!(wrong(&grid, 1, tile), 0, "{height}x{width} {anchor:?}");
            }
        }
    }
    /// A tile that is counted from the corner goes around a square of damage, and fills it when it ends.
    #[test]
    fn tiles_that_are_counted_from_the_corner_withstand_damage() {
        for (height, width) in [(4, 4), (3, 5), (1, 4)] {
            let tile = |c: usize, y: usize, x: usize| target(c, y % height, x % width);
            let axes = Axes { anchor: Anchor::Corner, size: [height, width], repeats: true };
            let channels = 1 + axes.channels();
            let rule = automaton(&axes, channels, 1, Boundary::Zeros, tile).unwrap();
            let mut grid = Grid::new(1, 24, 29, channels).unwrap();
            Start::Random.fill(&mut grid, &mut Random::new(1, Purpose::Check, 0)).unwrap();
            let mut simulator = Simulator::new(&rule, channels).unwrap();
            let is_damaged = |y: usize, x: usize| (7..17).contains(&y) && (9..19).contains(&x);
            for step in 0..200 {
                simulator.step(&mut grid).unwrap();
                for (y, x) in (0..24).flat_map(|y| (0..29).map(move |x| (y, x))) {
                    if step < 150 && is_damaged(y, x) {
                        (0..channels).for_each(|channel| grid.set(0, channel, y, x, false));
                    }
                }
                let right = |c: usize, y: usize, x: usize| {
                    let is_hidden = step < 170 && is_damaged(y, x);
                    if is_hidden { grid.get(0, c, y, x) } else { tile(c, y, x) }
                };
                if step >= 100 {
                    assert_eq!(wrong(&grid, 1, right), 0, "{height}x{width}, step {step}");
                }
            }
        }
    }
}
