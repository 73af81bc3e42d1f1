//! Matrix multiplication by the `gemm` crate, for layouts that the tile kernels do not support and as a baseline of
//! benchmarks.

use super::{Bases, Gemm, GemmElement, check_one, is_large, multiply};

/// Multiplies like [`multiply`], with the `gemm` crate only. A baseline for benchmarks.
///
/// # Panics
/// Under the conditions of [`multiply`].
pub fn multiply_with_gemm_crate<T: GemmElement>(memory: &mut [T], gemm: &Gemm) {
    check_one(memory.len(), gemm, None);
    let work: usize = gemm.sizes.iter().product();
    if work == 0 {
        return multiply(memory, gemm);
    }
    // SAFETY: the matrices are in bounds of the slice, which is borrowed exclusively, and the result aliases neither
    // operand nor itself, as was checked; no size is 0.
    unsafe { run_gemm(Bases::same(memory.as_mut_ptr()), gemm, is_large(work)) }
}

/// Calls the `gemm` crate.
///
/// # Safety
/// Same as for [`super::multiply_at`]; no size is 0.
pub(super) unsafe fn run_gemm<T: GemmElement>(bases: Bases<T>, gemm: &Gemm, threads: bool) {
    let Gemm { sizes: [m, n, k], a: (a, a_strides), b: (b, b_strides), out: (out, strides), accumulate } =
        *gemm;
    let [zero, one] = T::UNITS;
    let threads = if threads { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None };
    // The stride of an axis of length 1 is not used, and may be any number.
    let used =
        |strides: [usize; 2], sizes: [usize; 2]| [0, 1].map(|i| if sizes[i] > 1 { strides[i] } else { 1 });
    let (a_strides, b_strides, strides) =
        (used(a_strides, [m, k]), used(b_strides, [k, n]), used(strides, [m, n]));
    // SAFETY: guaranteed by the caller; strides that are used fit into `isize` because the matrices fit into memory.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            bases.out.wrapping_add(out),
            strides[1] as isize,
            strides[0] as isize,
            accumulate,
            bases.a.wrapping_add(a),
            a_strides[1] as isize,
            a_strides[0] as isize,
            bases.b.wrapping_add(b),
            b_strides[1] as isize,
            b_strides[0] as isize,
            if accumulate { one } else { zero },
            one,
            false,
            false,
            false,
            threads,
        );
    }
}
