//! Thresholds that tell the classes apart: the splits of a feature that reduce the entropy of the class the most.
//!
//! ```text
//! segment = all rows, ordered by the feature
//! while there is a bit left:
//!     split the segment whose best split gains most information, if the gain pays for the description of the split
//! ```
//!
//! The criterion is the minimum description length of Fayyad and Irani (1993): a feature without information about the class has no
//! splits.

use crate::classifier::information::n_ln_n;

/// The rows of a feature that have a value, in ascending order: value and class.
pub type Sorted = [(f32, u32)];

/// Returns the positions of at most `most` splits, in ascending order: a split is before the row at its position.
pub fn splits(rows: &Sorted, classes: usize, most: usize) -> Vec<usize> {
    let search = Search { rows, classes, n_ln_n: (0..=rows.len()).map(n_ln_n).collect() };
    let mut open: Vec<Split> = search.best(0, rows.len()).into_iter().collect();
    let mut found = Vec::new();
    while found.len() < most {
        let by_gain = |(_, a): &(usize, &Split), (_, b): &(usize, &Split)| a.gain.total_cmp(&b.gain);
        let Some((index, _)) = open.iter().enumerate().max_by(by_gain) else { break };
        let Split { from, at, to, .. } = open.swap_remove(index);
        found.push(at);
        open.extend(search.best(from, at));
        open.extend(search.best(at, to));
    }
    found.sort_unstable();
    found
}

/// The best split of a segment of rows.
struct Split {
    from: usize,
    at: usize,
    to: usize,
    /// Information about the class, in nats over all rows of the segment.
    gain: f64,
}

struct Search<'a> {
    rows: &'a Sorted,
    classes: usize,
    n_ln_n: Vec<f64>,
}

/// The classes of some rows.
#[derive(Clone)]
struct Side {
    counts: Vec<usize>,
    rows: usize,
    present: usize,
    /// The sum of `n ln n` over the classes.
    sum: f64,
}

impl Side {
    fn new(classes: usize) -> Side {
        Side { counts: vec![0; classes], rows: 0, present: 0, sum: 0.0 }
    }

    fn add(&mut self, class: u32, n_ln_n: &[f64]) {
        let count = &mut self.counts[class as usize];
        self.present += usize::from(*count == 0);
        self.sum += n_ln_n[*count + 1] - n_ln_n[*count];
        *count += 1;
        self.rows += 1;
    }

    fn remove(&mut self, class: u32, n_ln_n: &[f64]) {
        let count = &mut self.counts[class as usize];
        self.sum += n_ln_n[*count - 1] - n_ln_n[*count];
        *count -= 1;
        self.present -= usize::from(*count == 0);
        self.rows -= 1;
    }

    /// The entropy of the class, in nats over all rows.
    fn entropy(&self, n_ln_n: &[f64]) -> f64 {
        (n_ln_n[self.rows] - self.sum).max(0.0)
    }

    /// The number of classes times their entropy in a row.
    fn description(&self, n_ln_n: &[f64]) -> f64 {
        self.present as f64 * self.entropy(n_ln_n) / self.rows.max(1) as f64
    }
}

impl Search<'_> {
    /// Returns the best split of a segment, if its gain pays for it.
    fn best(&self, from: usize, to: usize) -> Option<Split> {
        let (mut left, mut right) = (Side::new(self.classes), Side::new(self.classes));
        self.rows[from..to].iter().for_each(|&(_, class)| right.add(class, &self.n_ln_n));
        let whole = right.clone();
        let mut best: Option<(f64, usize, f64)> = None;
        for at in from + 1..to {
            let (value, class) = self.rows[at - 1];
            left.add(class, &self.n_ln_n);
            right.remove(class, &self.n_ln_n);
            if value >= self.rows[at].0 {
                continue;
            }
            let gain = whole.entropy(&self.n_ln_n) - left.entropy(&self.n_ln_n) - right.entropy(&self.n_ln_n);
            if best.is_none_or(|(most, ..)| gain > most) {
                let described = left.description(&self.n_ln_n) + right.description(&self.n_ln_n);
                best = Some((gain, at, described));
            }
        }
        let (gain, at, described) = best?;
        // ln(3^k - 2), which does not overflow.
        let k = whole.present as f64;
        let labellings = k * 3f64.ln() + (1.0 - 2.0 * 3f64.powf(-k)).ln();
        let cost = ((to - from - 1) as f64).ln() + labellings - whole.description(&self.n_ln_n) + described;
        (gain > cost).then_some(Split { from, at, to, gain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_split_is_where_the_class_changes() {
        let rows: Vec<(f32, u32)> = (0..100).map(|i| (i as f32, u32::from((37..61).contains(&i)))).collect();
        assert_eq!(splits(&rows, 2, 8), [37, 61]);
        assert_eq!(splits(&rows, 2, 1).len(), 1);
        assert_eq!(splits(&rows, 2, 0), [0usize; 0]);
    }

    #[test]
    fn a_feature_without_information_has_no_split() {
        let alternating: Vec<(f32, u32)> = (0..200).map(|i| (i as f32, i % 2)).collect();
        let constant: Vec<(f32, u32)> = (0..200).map(|i| (1.0, i % 2)).collect();
        for rows in [&alternating[..], &constant, &[], &[(0.0, 0)], &[(0.0, 0), (1.0, 0)]] {
            assert_eq!(splits(rows, 2, 8), [0usize; 0]);
        }
    }

    proptest! {
        #[test]
        fn splits_lie_between_different_values(classes in 1u32..6, values in prop::collection::vec((0u8..20, 0u32..6), 0..120)) {
            let mut rows: Vec<(f32, u32)> =
                values.iter().map(|&(value, class)| (f32::from(value), class % classes)).collect();
            rows.sort_by(|a, b| a.0.total_cmp(&b.0));
            let found = splits(&rows, classes as usize, 5);
            prop_assert!(found.len() <= 5 && found.windows(2).all(|pair| pair[0] < pair[1]));
            for at in found {
                prop_assert!(rows[at - 1].0 < rows[at].0);
            }
        }
    }
}
