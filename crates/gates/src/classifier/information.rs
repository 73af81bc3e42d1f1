//! Mutual information of bits and the class: entropies, and the relevance of every bit in the training rows.

use super::bits::PackedBits;

/// Returns `n ln n`, which is 0 for 0.
pub(super) fn n_ln_n(n: usize) -> f64 {
    if n == 0 { 0.0 } else { n as f64 * (n as f64).ln() }
}

/// Returns the entropy of the class over some rows, in nats over all of them, from the number of rows of each class.
pub(super) fn entropy(counts: impl Iterator<Item = usize>) -> f64 {
    let (rows, sum) = counts.fold((0, 0.0), |(rows, sum), count| (rows + count, sum + n_ln_n(count)));
    (n_ln_n(rows) - sum).max(0.0)
}

/// Returns how relevant each bit is: the root of the mutual information with the class, in nats over all rows, that exceeds what the best of
/// as many random bits has. With the root, one strong feature does not leave the others without candidates.
pub(super) fn relevance(packed: &PackedBits, labels: &[u32], classes: usize) -> Vec<f32> {
    let (bits, mut rows) = (packed.bits(), vec![0usize; classes]);
    let mut ones = vec![0u32; bits * classes];
    for (sample, &label) in labels.iter().enumerate() {
        rows[label as usize] += 1;
        for (word, &bits) in packed.sample(sample).iter().enumerate() {
            let mut rest = bits;
            while rest != 0 {
                let bit = word * 64 + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                ones[bit * classes + label as usize] += 1;
            }
        }
    }
    let whole = entropy(rows.iter().copied());
    // Information of a random bit is half a chi-squared variable with as many degrees of freedom as there are classes but one.
    let chance = (classes.saturating_sub(1)) as f64 / 2.0 + (bits.max(1) as f64).ln();
    let of_bit = |ones: &[u32]| {
        let set = ones.iter().map(|&count| count as usize);
        let clear = rows.iter().zip(ones).map(|(rows, &count)| rows - count as usize);
        (whole - entropy(set) - entropy(clear) - chance).max(0.0).sqrt() as f32
    };
    ones.chunks_exact(classes.max(1)).map(of_bit).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::bits::FlatEncoder;
    use crate::classifier::data::Dataset;
    use crate::classifier::missing::DefaultDirections;
    use gatework_logic::classifier::{Encoder, Feature};

    #[test]
    fn a_bit_that_tells_the_class_is_relevant_and_one_that_does_not_is_not() {
        let rows: Vec<u32> = (0..200).collect();
        let labels: Vec<u32> = rows.iter().map(|row| row % 2).collect();
        let values = rows.iter().flat_map(|row| [(row % 2) as f32, (row / 2 % 2) as f32, 0.0]).collect();
        let data = Dataset::new(3, values, labels.clone()).unwrap();
        let features = ["a", "b", "c"].map(|name| Feature::numeric(name, vec![0.5]));
        let encoder = Encoder::new(features.into(), None).unwrap();
        let packed =
            PackedBits::new(&FlatEncoder::new(&encoder, &DefaultDirections::default()), &data, &rows);
        let relevance = relevance(&packed, &labels, 2);
        let all = (200.0 * 2f64.ln() - 0.5 - 3f64.ln()).sqrt();
        assert!((f64::from(relevance[0]) - all).abs() < 1e-4, "{relevance:?}");
        assert_eq!(relevance[1..], [0.0, 0.0]);
    }

    #[test]
    fn entropy_is_that_of_the_shares() {
        assert!((entropy([3, 3].into_iter()) - 6.0 * 2f64.ln()).abs() < 1e-12);
        assert_eq!(entropy([5, 0].into_iter()) + entropy(std::iter::empty()), 0.0);
    }
}
