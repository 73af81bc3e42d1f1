//! Micro-kernels for sums of products of 8-bit integers.
//!
//! | instructions | at a time |
//! |---|---|
//! | AVX-512 VNNI | four activations with 16 outputs: one instruction for 64 products and their sums |
//! | AVX2 | four activations with 4 outputs, widened to 16 bits: products of pairs are added in 32 bits |
//! | any | one activation with one output, the reference implementation |

#![expect(unsafe_code, reason = "processor intrinsics for integer dot products")]

/// Outputs of a panel.
pub(super) const PANEL: usize = 16;

/// Consecutive inputs of an output in a panel: four bytes.
pub(super) const GROUP: usize = 4;

/// Largest numbers of rows, and of panels with a single row, that are multiplied at a time.
const MAX_ROWS: usize = 8;
const MAX_PANELS: usize = 4;

/// Returns the index of a weight within panels of a depth.
pub(super) fn weight_index(output: usize, input: usize, depth: usize) -> usize {
    let (panel, column) = (output / PANEL, output % PANEL);
    (panel * depth + input / GROUP * GROUP) * PANEL + column * GROUP + input % GROUP
}

/// Consumer of sums. Implementations are inlined, so that they are compiled for the instruction set of the sums.
pub(super) trait SumSink {
    /// Takes the sums of a row with a panel.
    fn store(&mut self, row: usize, panel: usize, sums: &[i32; PANEL]);
}

/// Returns whether the processor has instructions for integer dot products.
pub(super) fn is_fast() -> bool {
    #[cfg(target_arch = "x86_64")]
    return crate::kernel::level().as_avx2().is_some();
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Computes the sums of all rows, `depth` bytes each, with all panels of that depth.
pub(super) fn multiply(rows: &[u8], panels: &[i8], depth: usize, sink: &mut impl SumSink) {
    assert!(depth > 0 && depth.is_multiple_of(GROUP), "the depth is not a multiple of the group size");
    let (rows, panels) = (Matrix { bytes: rows, depth }, Matrix { bytes: panels, depth: PANEL * depth });
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let level = crate::kernel::level();
        if level.as_avx512().is_some() && is_x86_feature_detected!("avx512vnni") {
            // SAFETY: the processor supports AVX-512 VNNI.
            return unsafe { x86::multiply_vnni(rows, panels, sink) };
        }
        if level.as_avx2().is_some() {
            // SAFETY: the level proves AVX2.
            return unsafe { x86::multiply_avx2(rows, panels, sink) };
        }
    }
    // SAFETY: it needs no special instructions.
    unsafe { for_each_tile::<Reference>(rows, panels, sink) };
}

/// Consecutive rows or panels of `depth` bytes each.
#[derive(Clone, Copy)]
struct Matrix<'a, T> {
    bytes: &'a [T],
    depth: usize,
}

impl<'a, T> Matrix<'a, T> {
    fn len(&self) -> usize {
        self.bytes.len() / self.depth
    }

    #[inline(always)]
    fn range(&self, first: usize, count: usize) -> &'a [T] {
        &self.bytes[first * self.depth..][..count * self.depth]
    }
}

/// Micro-kernel for an instruction set.
trait MicroKernel {
    /// Computes the sums of `R` rows with `P` panels.
    ///
    /// # Safety
    /// The processor supports the instruction set.
    unsafe fn tile<const R: usize, const P: usize>(
        rows: &[u8],
        panels: &[i8],
        depth: usize,
    ) -> [[[i32; PANEL]; P]; R];
}

/// Computes all sums tile by tile.
///
/// # Safety
/// Same as for [`MicroKernel::tile`].
#[inline(always)]
unsafe fn for_each_tile<D: MicroKernel>(
    rows: Matrix<'_, u8>,
    panels: Matrix<'_, i8>,
    sink: &mut impl SumSink,
) {
    let count = rows.len();
    let mut panel = 0;
    while panel < panels.len() {
        let width = match (panels.len() - panel, count) {
            (MAX_PANELS.., 1) => MAX_PANELS,
            (2.., 2..) => 2,
            _ => 1,
        };
        let block = panels.range(panel, width);
        let mut row = 0;
        while row < count {
            // SAFETY: guaranteed by the caller.
            row += unsafe {
                match (count - row, width) {
                    (MAX_ROWS.., 2) => tile::<D, MAX_ROWS, 2>(rows, row, block, panel, sink),
                    (MAX_ROWS.., _) => tile::<D, MAX_ROWS, 1>(rows, row, block, panel, sink),
                    (4.., 2) => tile::<D, 4, 2>(rows, row, block, panel, sink),
                    (4.., _) => tile::<D, 4, 1>(rows, row, block, panel, sink),
                    (_, 2) => tile::<D, 1, 2>(rows, row, block, panel, sink),
                    (_, MAX_PANELS) => tile::<D, 1, MAX_PANELS>(rows, row, block, panel, sink),
                    _ => tile::<D, 1, 1>(rows, row, block, panel, sink),
                }
            };
        }
        panel += width;
    }
}

/// Computes one tile and returns the number of its rows.
///
/// # Safety
/// Same as for [`MicroKernel::tile`].
#[inline(always)]
unsafe fn tile<D: MicroKernel, const R: usize, const P: usize>(
    rows: Matrix<'_, u8>,
    row: usize,
    block: &[i8],
    panel: usize,
    sink: &mut impl SumSink,
) -> usize {
    // SAFETY: guaranteed by the caller.
    let all = unsafe { D::tile::<R, P>(rows.range(row, R), block, rows.depth) };
    for (i, all) in all.iter().enumerate() {
        for (j, sums) in all.iter().enumerate() {
            sink.store(row + i, panel + j, sums);
        }
    }
    R
}

/// Reference implementation, for any processor.
struct Reference;

impl MicroKernel for Reference {
    unsafe fn tile<const R: usize, const P: usize>(
        rows: &[u8],
        panels: &[i8],
        depth: usize,
    ) -> [[[i32; PANEL]; P]; R] {
        let mut sums = [[[0; PANEL]; P]; R];
        for (sums, row) in sums.iter_mut().zip(rows.chunks_exact(depth)) {
            for (sums, panel) in sums.iter_mut().zip(panels.chunks_exact(PANEL * depth)) {
                for (output, sum) in sums.iter_mut().enumerate() {
                    let product = |(input, &x): (usize, &u8)| {
                        i32::from(x) * i32::from(panel[weight_index(output, input, depth)])
                    };
                    *sum = row.iter().enumerate().map(product).sum();
                }
            }
        }
        sums
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::x86_64::{
        __m128i, __m256i, __m512i, _mm_loadu_si128, _mm_set1_epi32, _mm256_add_epi32, _mm256_cvtepi8_epi16,
        _mm256_cvtepu8_epi16, _mm256_madd_epi16, _mm256_setzero_si256, _mm512_dpbusd_epi32,
        _mm512_loadu_si512, _mm512_set1_epi32, _mm512_setzero_si512,
    };

    use super::{GROUP, Matrix, MicroKernel, PANEL, SumSink, for_each_tile};

    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
    pub fn multiply_vnni(rows: Matrix<'_, u8>, panels: Matrix<'_, i8>, sink: &mut impl SumSink) {
        // SAFETY: this function enables the instructions.
        unsafe { for_each_tile::<Vnni>(rows, panels, sink) };
    }

    #[target_feature(enable = "avx2")]
    pub fn multiply_avx2(rows: Matrix<'_, u8>, panels: Matrix<'_, i8>, sink: &mut impl SumSink) {
        // SAFETY: this function enables the instructions.
        unsafe { for_each_tile::<Avx2>(rows, panels, sink) };
    }

    /// Reads four activations as one integer.
    ///
    /// # Safety
    /// Four bytes may be read at `at`.
    #[inline(always)]
    unsafe fn group(at: *const u8) -> i32 {
        // SAFETY: guaranteed by the caller.
        i32::from_ne_bytes(unsafe { at.cast::<[u8; GROUP]>().read() })
    }

    struct Vnni;

    impl MicroKernel for Vnni {
        #[inline(always)]
        unsafe fn tile<const R: usize, const P: usize>(
            rows: &[u8],
            panels: &[i8],
            depth: usize,
        ) -> [[[i32; PANEL]; P]; R] {
            assert!(rows.len() == R * depth && panels.len() == P * PANEL * depth, "wrong size of a tile");
            let (rows, panels) = (rows.as_ptr(), panels.as_ptr());
            // SAFETY: guaranteed by the caller; the loads are in bounds, and a vector is 16 integers.
            unsafe {
                let mut sums = [[_mm512_setzero_si512(); P]; R];
                for input in (0..depth).step_by(GROUP) {
                    let mut weights = [_mm512_setzero_si512(); P];
                    for (i, weights) in weights.iter_mut().enumerate() {
                        *weights = _mm512_loadu_si512(panels.add((i * depth + input) * PANEL).cast());
                    }
                    for (i, sums) in sums.iter_mut().enumerate() {
                        let x = _mm512_set1_epi32(group(rows.add(i * depth + input)));
                        for (sum, weights) in sums.iter_mut().zip(weights) {
                            *sum = _mm512_dpbusd_epi32(*sum, x, weights);
                        }
                    }
                }
                let mut out = [[[0; PANEL]; P]; R];
                for (out, sums) in out.iter_mut().flatten().zip(sums.into_iter().flatten()) {
                    *out = std::mem::transmute::<__m512i, [i32; PANEL]>(sums);
                }
                out
            }
        }
    }

    struct Avx2;

    impl MicroKernel for Avx2 {
        #[inline(always)]
        unsafe fn tile<const R: usize, const P: usize>(
            rows: &[u8],
            panels: &[i8],
            depth: usize,
        ) -> [[[i32; PANEL]; P]; R] {
            assert!(rows.len() == R * depth && panels.len() == P * PANEL * depth, "wrong size of a tile");
            let mut out = [[[0; PANEL]; P]; R];
            for (i, panel) in panels.chunks_exact(PANEL * depth).enumerate() {
                let mut row = 0;
                // SAFETY: guaranteed by the caller; the rows and the panel have that depth.
                unsafe {
                    while row + 2 <= R {
                        let sums = panel_avx2::<2>(rows[row * depth..].as_ptr(), panel.as_ptr(), depth);
                        (out[row][i], out[row + 1][i]) = (sums[0], sums[1]);
                        row += 2;
                    }
                    if row < R {
                        [out[row][i]] = panel_avx2::<1>(rows[row * depth..].as_ptr(), panel.as_ptr(), depth);
                    }
                }
            }
            out
        }
    }

    /// Computes the sums of `R` rows with one panel.
    ///
    /// # Safety
    /// The processor has AVX2; `R` rows of `depth` bytes, and 16 times as many of the panel, may be read.
    #[inline(always)]
    #[expect(clippy::cast_ptr_alignment, reason = "the load is unaligned")]
    unsafe fn panel_avx2<const R: usize>(
        rows: *const u8,
        panel: *const i8,
        depth: usize,
    ) -> [[i32; PANEL]; R] {
        let mut out = [[0; PANEL]; R];
        // SAFETY: the loads are in bounds; a vector is eight integers.
        unsafe {
            let mut sums = [[_mm256_setzero_si256(); 4]; R];
            for input in (0..depth).step_by(GROUP) {
                let mut x = [_mm256_setzero_si256(); R];
                for (i, x) in x.iter_mut().enumerate() {
                    *x = _mm256_cvtepu8_epi16(_mm_set1_epi32(group(rows.add(i * depth + input))));
                }
                for block in 0..4 {
                    let weights = _mm_loadu_si128(panel.add(input * PANEL + 16 * block).cast::<__m128i>());
                    let weights = _mm256_cvtepi8_epi16(weights);
                    for (sums, &x) in sums.iter_mut().zip(&x) {
                        sums[block] = _mm256_add_epi32(sums[block], _mm256_madd_epi16(x, weights));
                    }
                }
            }
            for (out, sums) in out.iter_mut().zip(sums) {
                for (out, sum) in out.chunks_exact_mut(4).zip(sums) {
                    let halves = std::mem::transmute::<__m256i, [i32; 8]>(sum);
                    out.iter_mut()
                        .zip(halves.chunks_exact(2))
                        .for_each(|(out, half)| *out = half[0] + half[1]);
                }
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::tests::{cases, on_every_level};

    /// Collects all sums as [rows][outputs].
    struct All {
        width: usize,
        sums: Vec<i32>,
    }

    impl SumSink for All {
        fn store(&mut self, row: usize, panel: usize, sums: &[i32; PANEL]) {
            self.sums[row * self.width + panel * PANEL..][..PANEL].copy_from_slice(sums);
        }
    }

    fn all(rows: &[u8], panels: &[i8], depth: usize) -> Vec<i32> {
        let width = panels.len() / depth;
        let mut all = All { width, sums: vec![i32::MIN; rows.len() / depth * width] };
        multiply(rows, panels, depth, &mut all);
        all.sums
    }

    proptest! {
        #![proptest_config(cases(64))]

        #[test]
        fn sums_are_exact_on_every_instruction_set(
            rows in 1usize..20, panels in 1usize..6, groups in 1usize..9, seed in 0usize..1000,
        ) {
            let depth = groups * GROUP;
            let x: Vec<u8> = (0..rows * depth).map(|i| ((i * 7919 + seed * 31) % 256) as u8).collect();
            let w: Vec<i8> =
                (0..panels * PANEL * depth).map(|i| ((i * 6151 + seed * 17) % 255) as u8 as i8).collect();
            let right = |row: usize, output: usize| -> i32 {
                (0..depth).map(|i| i32::from(x[row * depth + i]) * i32::from(w[weight_index(output, i, depth)])).sum()
            };
            let right: Vec<i32> =
                (0..rows * panels * PANEL).map(|i| right(i / (panels * PANEL), i % (panels * PANEL))).collect();
            on_every_level(|| assert_eq!(all(&x, &w, depth), right));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn the_largest_sums_do_not_saturate() {
        let depth = super::super::MAX_INPUTS;
        let (x, w) = (vec![255; depth], vec![-127; PANEL * depth]);
        on_every_level(|| assert_eq!(all(&x, &w, depth), [-255 * 127 * depth as i32; PANEL]));
    }
}
