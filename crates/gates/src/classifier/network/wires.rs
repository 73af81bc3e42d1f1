//! The wires of a layer before training: candidates of learned wires, and fixed wires.

use gatework_train::random::Random;

use super::Connections;
use crate::kernel::Layer;
use crate::soft::{Wiring, WiringError};

/// The rows that a layer may read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sources<'a> {
    /// Number of rows.
    pub rows: usize,
    /// Number of members, of which each has as many gates.
    pub members: usize,
    /// Whether every member reads all rows; otherwise each reads its share of them.
    pub is_shared: bool,
    /// How much each row tells about the class, if it is known.
    pub relevance: Option<&'a [f32]>,
}

impl Sources<'_> {
    /// The first row and the number of rows of a member.
    fn of(&self, member: usize) -> (usize, usize) {
        let share = self.rows / self.members;
        if self.is_shared { (0, self.rows) } else { (member * share, share) }
    }

    /// Draws the candidates of `wires` wires of every member.
    pub fn candidates(&self, wires: usize, per_wire: usize, random: &mut Random) -> Vec<u32> {
        let relevant = self.relevance.and_then(Relevant::new);
        let mut candidates = Vec::with_capacity(self.members * wires * per_wire);
        for member in 0..self.members {
            let (first, rows) = self.of(member);
            let drawn = draw_candidates(rows, relevant.as_ref(), wires, per_wire, random);
            candidates.extend(drawn.into_iter().map(|row| first as u32 + row));
        }
        candidates
    }

    /// Draws the fixed wires of a layer with `gates` gates of every member.
    pub fn fixed(
        &self,
        wiring: Connections,
        depth: usize,
        gates: usize,
        random: &mut Random,
    ) -> Result<Layer, WiringError> {
        let mut layer = Layer { a: Vec::new(), b: Vec::new() };
        for member in 0..self.members {
            let (first, rows) = self.of(member);
            let of_member = fixed_wires(wiring, depth, rows, gates, random)?;
            layer.a.extend(of_member.a.into_iter().map(|row| first as u32 + row));
            layer.b.extend(of_member.b.into_iter().map(|row| first as u32 + row));
        }
        Ok(layer)
    }
}

/// Rows that are drawn in proportion to their relevance.
struct Relevant {
    /// Sums of the relevance of all rows up to each.
    sums: Vec<f64>,
}

impl Relevant {
    /// Returns nothing if no row is relevant.
    fn new(relevance: &[f32]) -> Option<Relevant> {
        let mut sum = 0.0;
        let add = |&weight: &f32| {
            sum += f64::from(weight.max(0.0));
            sum
        };
        let sums: Vec<f64> = relevance.iter().map(add).collect();
        (sum > 0.0 && sum.is_finite()).then_some(Relevant { sums })
    }

    fn draw(&self, random: &mut Random) -> u32 {
        let total = self.sums.last().copied().unwrap_or(0.0);
        let at = f64::from(random.uniform()) * total;
        // The first row whose sum is above: one with a weight.
        self.sums.partition_point(|&sum| sum <= at).min(self.sums.len() - 1) as u32
    }
}

/// Attempts to draw a relevant row that is not yet a candidate of a wire: few rows may have all of the relevance.
const ATTEMPTS: usize = 4;

/// Draws the candidates of each wire: different rows if there are enough. The first candidates of all wires together read
/// every row about equally often. If the relevance is known, every second candidate, and the first one of every second wire, is drawn
/// by it.
fn draw_candidates(
    rows: usize,
    relevant: Option<&Relevant>,
    wires: usize,
    per_wire: usize,
    random: &mut Random,
) -> Vec<u32> {
    let mut order: Vec<u32> = (0..rows as u32).collect();
    let mut candidates = Vec::with_capacity(wires * per_wire);
    for wire in 0..wires {
        if wire % rows == 0 {
            random.shuffle(&mut order);
        }
        let begin = candidates.len();
        let is_relevant = |at: usize| (wire + at) % 2 == 1;
        candidates.push(match relevant.filter(|_| is_relevant(0)) {
            Some(relevant) => relevant.draw(random),
            None => order[wire % rows],
        });
        while candidates.len() < begin + per_wire {
            let at = candidates.len() - begin;
            let drawn = relevant.filter(|_| is_relevant(at)).and_then(|relevant| {
                (0..ATTEMPTS).map(|_| relevant.draw(random)).find(|row| !candidates[begin..].contains(row))
            });
            let row = drawn.unwrap_or_else(|| random.below(rows) as u32);
            let is_new = !candidates[begin..].contains(&row);
            if is_new || candidates.len() - begin >= rows {
                candidates.push(row);
            }
        }
    }
    candidates
}

/// Draws the fixed wires of a layer. If its gates cannot read all rows, they read a random subset.
fn fixed_wires(
    wiring: Connections,
    depth: usize,
    rows: usize,
    gates: usize,
    random: &mut Random,
) -> Result<Layer, WiringError> {
    let wiring = match wiring {
        Connections::Unique => Wiring::Unique,
        Connections::Butterfly => Wiring::Butterfly,
        Connections::Random | Connections::Learned => Wiring::Random,
    };
    if 2 * gates >= rows {
        return wiring.layer(depth, rows, gates, random);
    }
    let mut order: Vec<u32> = (0..rows as u32).collect();
    random.shuffle(&mut order);
    let mut layer = wiring.layer(depth, 2 * gates, gates, random)?;
    for wire in layer.a.iter_mut().chain(&mut layer.b) {
        *wire = order[*wire as usize];
    }
    Ok(layer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::Purpose;

    fn random() -> Random {
        Random::new(1, Purpose::Wiring, 0)
    }

    #[test]
    fn a_member_reads_its_own_rows() {
        let sources = Sources { rows: 12, members: 3, is_shared: false, relevance: None };
        for (at, &row) in sources.candidates(5, 4, &mut random()).iter().enumerate() {
            assert_eq!(row as usize / 4, at / 20);
        }
        let layer = sources.fixed(Connections::Random, 1, 2, &mut random()).unwrap();
        for (gate, (a, b)) in layer.a.iter().zip(&layer.b).enumerate() {
            assert_eq!([*a as usize / 4, *b as usize / 4], [gate / 2; 2]);
        }
        let shared = Sources { is_shared: true, ..sources };
        assert!(shared.candidates(5, 4, &mut random())[..20].iter().any(|&row| row >= 4));
    }

    #[test]
    fn half_of_the_candidates_are_relevant_and_no_wire_has_one_twice() {
        let relevance: Vec<f32> = (0..1000).map(|row| if row % 100 == 7 { 1.0 } else { 0.0 }).collect();
        let sources = Sources { rows: 1000, members: 1, is_shared: true, relevance: Some(&relevance) };
        let candidates = sources.candidates(100, 8, &mut random());
        let relevant = candidates.iter().filter(|&&row| row % 100 == 7).count();
        assert!((350..450).contains(&relevant), "{relevant}");
        for wire in candidates.chunks(8) {
            assert!((1..8).all(|at| !wire[..at].contains(&wire[at])));
        }
        let none = Sources { relevance: Some(&[0.0; 1000]), ..sources };
        let unknown = Sources { relevance: None, ..sources };
        assert_eq!(none.candidates(9, 8, &mut random()), unknown.candidates(9, 8, &mut random()));
    }
}
