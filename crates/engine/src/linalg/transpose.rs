//! Transposition of slices.

use super::Number;
use super::error::{LinalgError, check};
use crate::kernel;
use crate::vector;

/// Computes the transposed matrix: `out[j, i] = x[i, j]`. `x` is `[rows, columns]` and `out` is `[columns, rows]`, both
/// row-major.
///
/// To multiply with a transposed matrix, use [`MatrixView::transposed`](super::MatrixView::transposed), which does not copy.
///
/// ```
/// use gatework_engine::linalg::transpose;
///
/// let mut out = [0; 6];
/// transpose(&[1, 2, 3, 4, 5, 6], &mut out, 2, 3)?;
/// assert_eq!(out, [1, 4, 2, 5, 3, 6]);
/// # Ok::<(), gatework_engine::linalg::LinalgError>(())
/// ```
pub fn transpose<T: Number>(x: &[T], out: &mut [T], rows: usize, columns: usize) -> Result<(), LinalgError> {
    check("transpose", "x", x.len(), [rows, columns])?;
    check("transpose", "out", out.len(), [columns, rows])?;
    (T::compiled().transpose)(x, out, rows, columns);
    Ok(())
}

/// [`transpose`] of slices that fit.
pub(crate) fn transpose_of<T: Number>(x: &[T], out: &mut [T], rows: usize, columns: usize) {
    if rows <= 1 || columns <= 1 {
        vector::copy(x, out).expect("same length");
    } else {
        kernel::transpose::transpose(x, out, rows, columns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check_transposed(rows: usize, columns: usize) {
        let x: Vec<i32> = (0..rows * columns).map(|i| i as i32).collect();
        let expected: Vec<i32> = (0..rows * columns).map(|i| x[i % rows * columns + i / rows]).collect();
        let mut out = vec![-1; x.len()];
        transpose(&x, &mut out, rows, columns).unwrap();
        assert!(out == expected, "{rows} x {columns}");
        let (x, mut out) = (x.iter().map(|&x| x.into()).collect::<Vec<f64>>(), vec![0.0; x.len()]);
        transpose(&x, &mut out, rows, columns).unwrap();
        assert!(out.iter().zip(&expected).all(|(&x, &y)| x == f64::from(y)), "{rows} x {columns}");
    }

    proptest! {
        #![proptest_config(kernel::tests::cases(64))]

        #[test]
        fn matrices_of_any_size_are_transposed(rows in 0usize..150, columns in 0usize..150) {
            check_transposed(rows, columns);
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn large_and_narrow_matrices_are_transposed() {
        for (rows, columns) in [(1, 70_000), (70_000, 1), (3, 70_000), (70_000, 5), (513, 1025), (256, 512)] {
            check_transposed(rows, columns);
        }
    }

    #[test]
    fn slices_that_do_not_fit_are_errors() {
        let error = transpose(&[1, 2, 3], &mut [0; 4], 2, 2).unwrap_err();
        assert_eq!(error.to_string(), "transpose: `x` has 3 elements, but a 2 x 2 matrix has 4");
        assert!(transpose(&[1, 2, 3, 4], &mut [0; 3], 2, 2).is_err());
        assert!(transpose::<i32>(&[], &mut [], usize::MAX, usize::MAX).is_err());
    }
}
