//! Compaction of the nonzero elements of a row.

/// Elements that a step may write after the last nonzero element.
pub(super) const SLACK: usize = 8;

/// Nonzero elements and their indices.
pub(super) struct Nonzeros {
    pub values: Vec<f32>,
    /// For each value, an index that the caller computes with.
    pub indices: Vec<u32>,
    pub len: usize,
}

impl Nonzeros {
    /// Allocates room for `room` elements.
    pub fn new(room: usize) -> Nonzeros {
        Nonzeros { values: vec![0.0; room + SLACK], indices: vec![0; room + SLACK], len: 0 }
    }

    /// Appends the nonzero elements of a row; NaN is nonzero, and -0 is zero. The index of an element is `first` plus
    /// `step` times its position.
    ///
    /// # Panics
    /// If there might not be enough room.
    pub fn add(&mut self, row: &[f32], first: u32, step: u32) {
        assert!(self.len + row.len() + SLACK <= self.values.len(), "no room for the row");
        #[cfg(target_arch = "x86_64")]
        if crate::kernel::level().as_avx2().is_some() {
            // SAFETY: the level proves AVX2, and there is room, as was just checked.
            unsafe { self.add_avx2(row, first, step) };
            return;
        }
        self.add_plain(row, first, step);
    }

    fn add_plain(&mut self, row: &[f32], first: u32, step: u32) {
        let mut index = first;
        for &value in row {
            // Branch-free: a zero is written, too, and overwritten by the next element.
            self.values[self.len] = value;
            self.indices[self.len] = index;
            self.len += usize::from(value != 0.0);
            index = index.wrapping_add(step);
        }
    }

    /// Appends eight elements at a time: a permutation moves the nonzero ones to the front, and all eight are written.
    ///
    /// # Safety
    /// There is room for the row and [`SLACK`] more elements.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,popcnt")]
    unsafe fn add_avx2(&mut self, row: &[f32], first: u32, step: u32) {
        use std::arch::x86_64::{
            _CMP_NEQ_UQ, _mm_cvtsi64_si128, _mm256_add_epi32, _mm256_cmp_ps, _mm256_cvtepu8_epi32,
            _mm256_loadu_ps, _mm256_movemask_ps, _mm256_mullo_epi32, _mm256_permutevar8x32_epi32,
            _mm256_permutevar8x32_ps, _mm256_set1_epi32, _mm256_setr_epi32, _mm256_setzero_ps,
            _mm256_storeu_ps, _mm256_storeu_si256,
        };
        let (chunks, rest) = row.as_chunks::<8>();
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let steps = _mm256_mullo_epi32(lanes, _mm256_set1_epi32(step.cast_signed()));
        let mut indices = _mm256_add_epi32(steps, _mm256_set1_epi32(first.cast_signed()));
        let (to, at) = (self.values.as_mut_ptr(), self.indices.as_mut_ptr());
        let mut len = self.len;
        for chunk in chunks {
            // SAFETY: eight elements are read, and there is room to write eight.
            unsafe {
                let x = _mm256_loadu_ps(chunk.as_ptr());
                let filled = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NEQ_UQ>(x, _mm256_setzero_ps()));
                let order = PERMUTATIONS[filled.cast_unsigned() as usize & 255].cast_signed();
                let order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(order));
                _mm256_storeu_ps(to.add(len), _mm256_permutevar8x32_ps(x, order));
                _mm256_storeu_si256(at.add(len).cast(), _mm256_permutevar8x32_epi32(indices, order));
                len += filled.count_ones() as usize;
            }
            indices = _mm256_add_epi32(indices, _mm256_set1_epi32(step.wrapping_mul(8).cast_signed()));
        }
        self.len = len;
        let before = 8 * chunks.len() as u32;
        self.add_plain(rest, first.wrapping_add(before.wrapping_mul(step)), step);
    }
}

/// For every set of eight lanes, the indices of the lanes in the set, one byte each.
#[cfg(target_arch = "x86_64")]
static PERMUTATIONS: [u64; 256] = permutations();

#[cfg(target_arch = "x86_64")]
const fn permutations() -> [u64; 256] {
    let mut orders = [0; 256];
    let mut set = 0;
    while set < 256 {
        let (mut lane, mut count) = (0, 0);
        while lane < 8 {
            if set >> lane & 1 == 1 {
                orders[set] |= lane << (8 * count);
                count += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::{cases, on_every_level};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(cases(256))]

        #[test]
        fn exactly_the_nonzero_elements_are_compacted(
            rows in prop::collection::vec(prop::collection::vec(0usize..6, 0..50), 0..4), step in 1u32..40,
        ) {
            let values = [0.0, -0.0, 1.5, f32::NAN, f32::MIN_POSITIVE / 4.0, f32::NEG_INFINITY];
            on_every_level(|| {
                let mut nonzeros = Nonzeros::new(rows.iter().map(Vec::len).sum());
                let mut right = Vec::new();
                for (number, row) in rows.iter().enumerate() {
                    let row: Vec<f32> = row.iter().map(|&i| values[i]).collect();
                    let first = number as u32 * 1000;
                    nonzeros.add(&row, first, step);
                    let all = row.iter().enumerate().map(|(i, x)| (x.to_bits(), first + i as u32 * step));
                    right.extend(all.filter(|&(bits, _)| f32::from_bits(bits) != 0.0));
                }
                let compacted = nonzeros.values.iter().map(|x| x.to_bits()).zip(nonzeros.indices.iter().copied());
                assert_eq!(compacted.take(nonzeros.len).collect::<Vec<_>>(), right);
            });
        }
    }
}
