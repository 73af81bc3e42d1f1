//! The matrix product, by the `gemm` crate, on matrices that lie anywhere in one slice.

#![expect(unsafe_code, reason = "the product is called with pointers; its bounds are checked here")]

/// A product of two matrices in one slice: `out[i, j] = sum over l of a[i, l] * b[l, j]`.
#[derive(Clone, Copy, Debug)]
pub struct Shapes {
    /// Rows of the result, columns of the result, and what is summed over.
    pub sizes: [usize; 3],
    /// Begin of the first matrix, and its strides from row to row and from column to column.
    pub a: (usize, [usize; 2]),
    /// Likewise, of the second.
    pub b: (usize, [usize; 2]),
    /// Begin of the result, which lies row by row.
    pub out: usize,
}

/// A number with a matrix product: `f32` or `f64`.
pub trait Product: Copy + 'static {
    /// 0 and 1.
    const UNITS: [Self; 2];
}

impl Product for f32 {
    const UNITS: [f32; 2] = [0.0, 1.0];
}

impl Product for f64 {
    const UNITS: [f64; 2] = [0.0, 1.0];
}

/// Elements from the begin of a matrix to behind its last one.
fn span(rows: usize, columns: usize, [by_row, by_column]: [usize; 2]) -> usize {
    if rows == 0 || columns == 0 { 0 } else { (rows - 1) * by_row + (columns - 1) * by_column + 1 }
}

/// Multiplies two matrices of a slice into a third part of it that does not overlap them.
///
/// # Panics
/// If a matrix reaches beyond the slice, or the result overlaps an operand.
pub fn multiply<T: Product>(memory: &mut [T], shapes: &Shapes) {
    let Shapes { sizes: [m, n, k], a: (a, a_strides), b: (b, b_strides), out } = *shapes;
    let (a_end, b_end, end) = (a + span(m, k, a_strides), b + span(k, n, b_strides), out + m * n);
    assert!(a_end.max(b_end).max(end) <= memory.len(), "the matrices lie in the slice");
    let apart = |begin: usize, stop: usize| begin >= end || stop <= out || begin == stop;
    assert!(apart(a, a_end) && apart(b, b_end), "the result overlaps an operand");
    if k == 0 {
        memory[out..end].fill(T::UNITS[0]);
        return;
    }
    if m == 0 || n == 0 {
        return;
    }
    let pointer = memory.as_mut_ptr();
    // SAFETY: all three matrices lie in the slice and the result overlaps neither operand, as was asserted; strides fit
    // `isize` because the spans do.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            pointer.add(out),
            1,
            n as isize,
            false,
            pointer.add(a).cast_const(),
            a_strides[1] as isize,
            a_strides[0] as isize,
            pointer.add(b).cast_const(),
            b_strides[1] as isize,
            b_strides[0] as isize,
            T::UNITS[0],
            T::UNITS[1],
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}
