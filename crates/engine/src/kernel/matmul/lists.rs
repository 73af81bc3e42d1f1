//! The elements of a row that are not 0, behind each other.

/// Numbers that a step may write behind the last one it lists.
pub(super) const SLACK: usize = 8;

/// Elements and where they come from.
pub(super) struct List {
    pub values: Vec<f32>,
    /// For each value, a number of the caller's.
    pub places: Vec<u32>,
    pub len: usize,
}

impl List {
    /// Room for so many elements.
    pub fn new(room: usize) -> List {
        List { values: vec![0.0; room + SLACK], places: vec![0; room + SLACK], len: 0 }
    }

    /// Adds the elements of a row that are not 0; NaN is none, and -0 is one. The place of an element is `first`, and
    /// `step` more for each element before it.
    ///
    /// # Panics
    /// If there might be no room for them.
    pub fn add(&mut self, row: &[f32], first: u32, step: u32) {
        assert!(self.len + row.len() + SLACK <= self.values.len(), "there is room for the row");
        #[cfg(target_arch = "x86_64")]
        if crate::kernel::level().as_avx2().is_some() {
            // SAFETY: the level says that the processor has AVX2, and there is room, as was just checked.
            unsafe { self.add_avx2(row, first, step) };
            return;
        }
        self.add_plain(row, first, step);
    }

    fn add_plain(&mut self, row: &[f32], first: u32, step: u32) {
        let mut place = first;
        for &value in row {
            // What is 0 is written, too, and overwritten by the next.
            self.values[self.len] = value;
            self.places[self.len] = place;
            self.len += usize::from(value != 0.0);
            place = place.wrapping_add(step);
        }
    }

    /// Eight elements at a time: those that are not 0 are moved to the front, and all eight are written.
    ///
    /// # Safety
    /// There is room for the row and [`SLACK`] more.
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
        let mut places = _mm256_add_epi32(steps, _mm256_set1_epi32(first.cast_signed()));
        let (to, at) = (self.values.as_mut_ptr(), self.places.as_mut_ptr());
        let mut len = self.len;
        for chunk in chunks {
            // SAFETY: eight elements are read, and written where there is room for as many and more.
            unsafe {
                let x = _mm256_loadu_ps(chunk.as_ptr());
                let filled = _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NEQ_UQ>(x, _mm256_setzero_ps()));
                let order = ORDERS[filled.cast_unsigned() as usize & 255].cast_signed();
                let order = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(order));
                _mm256_storeu_ps(to.add(len), _mm256_permutevar8x32_ps(x, order));
                _mm256_storeu_si256(at.add(len).cast(), _mm256_permutevar8x32_epi32(places, order));
                len += filled.count_ones() as usize;
            }
            places = _mm256_add_epi32(places, _mm256_set1_epi32(step.wrapping_mul(8).cast_signed()));
        }
        self.len = len;
        let before = 8 * chunks.len() as u32;
        self.add_plain(rest, first.wrapping_add(before.wrapping_mul(step)), step);
    }
}

/// For every set of eight lanes, their numbers in order, a byte each.
#[cfg(target_arch = "x86_64")]
static ORDERS: [u64; 256] = orders();

#[cfg(target_arch = "x86_64")]
const fn orders() -> [u64; 256] {
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
        fn what_is_listed_is_what_is_not_0(
            rows in prop::collection::vec(prop::collection::vec(0usize..6, 0..50), 0..4), step in 1u32..40,
        ) {
            let values = [0.0, -0.0, 1.5, f32::NAN, f32::MIN_POSITIVE / 4.0, f32::NEG_INFINITY];
            on_every_level(|| {
                let mut list = List::new(rows.iter().map(Vec::len).sum());
                let mut right = Vec::new();
                for (number, row) in rows.iter().enumerate() {
                    let row: Vec<f32> = row.iter().map(|&i| values[i]).collect();
                    let first = number as u32 * 1000;
                    list.add(&row, first, step);
                    let all = row.iter().enumerate().map(|(i, x)| (x.to_bits(), first + i as u32 * step));
                    right.extend(all.filter(|&(bits, _)| f32::from_bits(bits) != 0.0));
                }
                let listed = list.values.iter().map(|x| x.to_bits()).zip(list.places.iter().copied());
                assert_eq!(listed.take(list.len).collect::<Vec<_>>(), right);
            });
        }
    }
}
