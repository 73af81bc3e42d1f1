//! The product of the `gemm` crate: for what the other products do not take, and for benchmarks to compare them with.

use super::{Bases, Product, Shapes, check_one, is_large, multiply};

/// Multiplies two matrices of a slice as [`multiply`] does, by the `gemm` crate alone: what benchmarks compare ours with.
///
/// # Panics
/// As [`multiply`].
pub fn multiply_by_gemm<T: Product>(memory: &mut [T], shapes: &Shapes) {
    check_one(memory.len(), shapes, None);
    let work: usize = shapes.sizes.iter().product();
    if work == 0 {
        return multiply(memory, shapes);
    }
    // SAFETY: all three matrices lie in the slice, which is borrowed exclusively, and the result overlaps neither operand nor
    // itself, as was checked; no size is 0.
    unsafe { by_gemm(Bases::one(memory.as_mut_ptr()), shapes, is_large(work)) }
}

/// The product of the `gemm` crate.
///
/// # Safety
/// As for [`super::multiply_at`]; no size is 0.
pub(super) unsafe fn by_gemm<T: Product>(bases: Bases<T>, shapes: &Shapes, threads: bool) {
    let Shapes { sizes: [m, n, k], a: (a, a_strides), b: (b, b_strides), out: (out, strides), accumulate } =
        *shapes;
    let [zero, one] = T::UNITS;
    let threads = if threads { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None };
    // The stride of an axis of one element is not used, and may be any number.
    let used =
        |strides: [usize; 2], sizes: [usize; 2]| [0, 1].map(|i| if sizes[i] > 1 { strides[i] } else { 1 });
    let (a_strides, b_strides, strides) =
        (used(a_strides, [m, k]), used(b_strides, [k, n]), used(strides, [m, n]));
    // SAFETY: as the caller promises; strides that are used fit `isize` because the matrices fit into memory.
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
