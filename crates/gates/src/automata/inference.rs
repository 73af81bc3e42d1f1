//! Inference of the rule that pairs of grids follow: the one rule of a family of rules that turns every grid before into the one
//! after, in any number of steps.
//!
//! | family | cases |
//! |---|---|
//! | elementary | 8: the cell and its neighbours to the left and to the right |
//! | Life-like | 18: the cell and the number of its live neighbours |
//! | symmetric | 102: neighbourhoods up to rotation and reflection |
//!
//! The smallest family that has such a rule is used, so the rule says something about neighbourhoods that no pair shows. A case
//! is given a value only when a cell depends on it, and a cell that differs from its target takes the last value back:
//!
//! ```text
//! solve(cell):   value = the cell after all steps, from the cases so far
//!     unknown case -> solve(cell) with the case 0, then with 1
//!     wrong        -> no rule has these cases
//!     right        -> solve(next cell)
//! ```
//!
//! Cases that no pair needs remain 0. If several rules fit, one is preferred in which an empty grid stays empty.

use gatework_logic::Boundary;

use super::picture::Bitmap;
use super::rule::{CellRule, RuleError};

/// Neighbourhoods that are looked up for a family of rules at most: some seconds.
const MAX_LOOKUPS: usize = 1 << 25;

/// A rule that explains pairs of grids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inferred {
    /// The rule.
    pub rule: CellRule,
    /// Its family, for people.
    pub family: &'static str,
    /// Cases of the family.
    pub cases: usize,
    /// Cases that the pairs determine or that were chosen to explain them; the others are 0.
    pub known: usize,
}

/// A family of rules: the case of each neighbourhood.
struct Family {
    name: &'static str,
    cases: usize,
    case: Box<dyn Fn(usize) -> usize>,
}

/// Returns the rule of the smallest family that turns the first grid of each pair into the second one in `steps` steps; `None` if
/// there is none, if the grids have several channels, or if the search for it takes too long.
pub fn infer(pairs: &[[Bitmap; 2]], boundary: Boundary, steps: usize) -> Option<Inferred> {
    if pairs.is_empty() || pairs.iter().flatten().any(|bitmap| bitmap.channels() != 1) {
        return None;
    }
    // A cell depends on a square, in every step.
    let of_cell = steps.saturating_mul(2).saturating_add(1).saturating_pow(2).saturating_mul(steps);
    if of_cell > MAX_LOOKUPS {
        return None;
    }
    families().into_iter().find_map(|family| {
        // A rule in which nothing comes from nothing is preferred.
        let empty = (family.case)(0);
        let table = [Some(false), None].into_iter().find_map(|of_empty| {
            let mut table = vec![None; family.cases];
            table[empty] = of_empty;
            let mut solver = Solver { pairs, boundary, steps, family: &family, table, left: MAX_LOOKUPS };
            solver.solve(0, 0).then_some(solver.table)
        })?;
        let known = table.iter().flatten().count();
        let rule = rule(&family, &table).ok()?;
        Some(Inferred { rule, family: family.name, cases: family.cases, known })
    })
}

fn families() -> [Family; 3] {
    let symmetric = symmetric_cases();
    [
        Family {
            name: "elementary",
            cases: 8,
            case: Box::new(|bits| (bits >> 3 & 1) << 2 | (bits >> 4 & 1) << 1 | bits >> 5 & 1),
        },
        Family {
            name: "Life-like",
            cases: 18,
            case: Box::new(|bits| (bits >> 4 & 1) * 9 + (bits & !16).count_ones() as usize),
        },
        Family {
            name: "symmetric",
            cases: symmetric.iter().max().map_or(0, |last| last + 1),
            case: Box::new(move |bits| symmetric[bits]),
        },
    ]
}

/// The case of each neighbourhood, equal for those that are rotations or reflections of each other.
fn symmetric_cases() -> Vec<usize> {
    let moved = |bits: usize, place: fn(usize, usize) -> usize| {
        (0..9).fold(0, |moved, n| moved | (bits >> n & 1) << place(n / 3, n % 3))
    };
    let mut cases = vec![usize::MAX; 512];
    let mut count = 0;
    for bits in 0..512 {
        if cases[bits] != usize::MAX {
            continue;
        }
        let mut image = bits;
        for _ in 0..4 {
            cases[image] = count;
            cases[moved(image, |y, x| 3 * y + 2 - x)] = count;
            image = moved(image, |y, x| 3 * x + 2 - y);
        }
        count += 1;
    }
    cases
}

/// The rule of a table; by its name, if it has one.
fn rule(family: &Family, table: &[Option<bool>]) -> Result<CellRule, RuleError> {
    let is_set = |case: usize| table[case] == Some(true);
    match family.cases {
        8 => CellRule::parse(&format!(
            "rule:{}",
            (0..8).map(|case| usize::from(is_set(case)) << case).sum::<usize>()
        )),
        18 => {
            let counts = |first: usize| -> String {
                let counts = (0..9).filter(|count| is_set(first + count));
                counts.map(|count| count.to_string()).collect()
            };
            CellRule::parse(&format!("B{}/S{}", counts(0), counts(9)))
        }
        _ => {
            let digit = |bits: usize| if is_set((family.case)(bits)) { '1' } else { '0' };
            CellRule::from_table(&(0..512).map(digit).collect::<String>())
        }
    }
}

struct Solver<'a> {
    pairs: &'a [[Bitmap; 2]],
    boundary: Boundary,
    steps: usize,
    family: &'a Family,
    table: Vec<Option<bool>>,
    /// Lookups that are left.
    left: usize,
}

/// A case whose value is needed first.
struct Unknown(usize);

impl Solver<'_> {
    /// Completes the table so that the cells of the pairs from this one on become right.
    fn solve(&mut self, mut pair: usize, mut cell: usize) -> bool {
        while let Some([before, after]) = self.pairs.get(pair) {
            let [height, width] = before.size();
            if cell == height * width {
                (pair, cell) = (pair + 1, 0);
                continue;
            }
            let (y, x) = (cell / width, cell % width);
            match self.value(before, y, x) {
                _ if self.left == 0 => return false,
                Ok(value) if value == after.bit(0, y, x) => cell += 1,
                Ok(_) => return false,
                Err(Unknown(case)) => {
                    for value in [false, true] {
                        self.table[case] = Some(value);
                        if self.solve(pair, cell) {
                            return true;
                        }
                    }
                    self.table[case] = None;
                    return false;
                }
            }
        }
        true
    }

    /// The value of a cell after all steps, from the cells that it depends on.
    fn value(&mut self, before: &Bitmap, y: usize, x: usize) -> Result<bool, Unknown> {
        let [height, width] = before.size();
        let inside = |at: usize, offset: usize, reach: usize, size: usize| match self.boundary {
            Boundary::Torus => Some((at + offset + reach * (size - 1)) % size),
            Boundary::Zeros => (at + offset).checked_sub(reach).filter(|&at| at < size),
        };
        // The cells of a square around this one that are within reach.
        let place = |i: usize, reach: usize| {
            let side = 2 * reach + 1;
            inside(y, i / side, reach, height).zip(inside(x, i % side, reach, width))
        };
        let square = |reach: usize| 0..(2 * reach + 1) * (2 * reach + 1);
        let first = |i| place(i, self.steps).is_some_and(|(y, x)| before.bit(0, y, x));
        let mut cells: Vec<bool> = square(self.steps).map(first).collect();
        for reach in (0..self.steps).rev() {
            if self.left == 0 {
                return Ok(false);
            }
            let (side, around) = (2 * reach + 1, 2 * reach + 3);
            let next = |i: usize| {
                if place(i, reach).is_none() {
                    return Ok(false);
                }
                let corner = i / side * around + i % side;
                let bit = |n: usize| usize::from(cells[corner + n / 3 * around + n % 3]) << n;
                let case = (self.family.case)((0..9).map(bit).sum());
                self.table[case].ok_or(Unknown(case))
            };
            let of_reach: Result<Vec<bool>, Unknown> = square(reach).map(next).collect();
            self.left = self.left.saturating_sub(square(reach).len());
            cells = of_reach?;
        }
        Ok(cells[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::states::{Start, Target};
    use gatework_logic::Grid;
    use gatework_train::random::{Purpose, Random};

    /// Pairs of random grids before and after some steps of a rule.
    fn pairs(rule: &CellRule, count: usize, boundary: Boundary, steps: usize) -> Vec<[Bitmap; 2]> {
        let text = |grid: &Grid| {
            let row = |y: usize| {
                (0..11).map(move |x| if grid.get(0, 0, y, x) { '#' } else { '.' }).collect::<String>()
            };
            (0..9).map(row).collect::<Vec<_>>().join("\n")
        };
        let mut random = Random::new(7, Purpose::Check, steps as u64);
        let mut pair = || {
            let mut before = Grid::new(1, 9, 11, 1).unwrap();
            Start::Random.fill(&mut before, &mut random).unwrap();
            let after = Target::Rule(rule.clone()).grids(&before, boundary, steps).unwrap();
            [before, after].map(|grid| Bitmap::from_text(&text(&grid)).unwrap())
        };
        (0..count).map(|_| pair()).collect()
    }

    #[test]
    fn rules_are_found_from_pairs_of_one_to_four_steps() {
        for name in ["B3/S23", "B36/S125", "B1357/S1357", "B0/S8", "rule:30", "rule:110", "rule:22"] {
            let rule = CellRule::parse(name).unwrap();
            for boundary in [Boundary::Torus, Boundary::Zeros] {
                for steps in 1..5 {
                    let pairs = pairs(&rule, 3, boundary, steps);
                    let found =
                        infer(&pairs, boundary, steps).unwrap_or_else(|| panic!("{name}, {steps} steps"));
                    let target = Target::Rule(found.rule.clone());
                    for [before, after] in &pairs {
                        let mut grid = Grid::new(1, 9, 11, 1).unwrap();
                        before.place(&mut grid, 0).unwrap();
                        let result = target.grids(&grid, boundary, steps).unwrap();
                        let mut right = Grid::new(1, 9, 11, 1).unwrap();
                        after.place(&mut right, 0).unwrap();
                        assert_eq!(
                            result.difference(&right, 1).unwrap(),
                            0,
                            "{name}, {steps} steps, {boundary:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn a_rule_that_the_pairs_determine_is_the_one_that_made_them() {
        for name in ["B3/S23", "B36/S23", "B3678/S34678"] {
            let rule = CellRule::parse(name).unwrap();
            for steps in [1, 2] {
                let found = infer(&pairs(&rule, 12, Boundary::Torus, steps), Boundary::Torus, steps).unwrap();
                assert_eq!((found.family, found.rule.name()), ("Life-like", name), "{steps} steps");
            }
        }
    }

    #[test]
    fn a_smaller_family_is_preferred_and_a_larger_one_is_used_where_it_is_needed() {
        assert_eq!(families().map(|family| family.cases), [8, 18, 102]);
        let edges: String = (0..512usize)
            .map(|bits| if (bits & 0b010_101_010).count_ones() == 2 { '1' } else { '0' })
            .collect();
        let shift: String = (0..512usize).map(|bits| if bits >> 1 & 1 == 1 { '1' } else { '0' }).collect();
        for (table, family) in [(edges, Some("symmetric")), (shift, None)] {
            let rule = CellRule::from_table(&table).unwrap();
            let found = infer(&pairs(&rule, 4, Boundary::Torus, 1), Boundary::Torus, 1);
            assert_eq!(found.as_ref().map(|found| found.family), family);
            assert!(found.is_none_or(|found| found.known > 0 && found.known <= found.cases));
        }
    }

    #[test]
    fn pairs_that_no_rule_explains_are_not_explained() {
        let bitmap = |text: &str| Bitmap::from_text(text).unwrap();
        let moved = [bitmap("....\n.##.\n....\n...."), bitmap("....\n....\n...#\n....")];
        let empty = [bitmap("....\n....\n....\n...."), bitmap("....\n.#..\n....\n....")];
        assert!(infer(&[moved, empty], Boundary::Torus, 1).is_none());
        assert!(infer(&[], Boundary::Torus, 1).is_none());
    }
}
