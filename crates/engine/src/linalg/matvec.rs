//! Products of a matrix and a vector.
//!
//! A row is summed as by [`dot`](crate::vector::dot): pairwise and, if it is long, by several threads. Rows that are shorter
//! than a vector would leave most lanes empty; of these, a vector holds the same column of several rows.

use fearless_simd::{Simd, prelude::*};

use super::Number;
use super::error::{LinalgError, check};
use crate::kernel::level;
use crate::vector::{CHUNK_LEN, column_of_rows, dot_of_slices, for_rows, sum_of_pairs};

/// Rows of at most this many vectors are processed several at a time.
const SHORT_VECTORS: usize = 1;

/// Computes the product of a matrix and a vector: `out[i]` is the sum over `j` of `a[i, j] * x[j]`. `a` is row-major with
/// `rows * columns` elements, `x` has `columns` and `out` has `rows`.
///
/// ```
/// use gatework_engine::linalg::matvec;
///
/// let mut out = [0.0f32; 2];
/// matvec(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &[1.0, 0.0, -1.0], &mut out, 2, 3)?;
/// assert_eq!(out, [-2.0, -2.0]);
/// # Ok::<(), gatework_engine::linalg::LinalgError>(())
/// ```
pub fn matvec<T: Number>(
    a: &[T],
    x: &[T],
    out: &mut [T],
    rows: usize,
    columns: usize,
) -> Result<(), LinalgError> {
    check("matvec", "a", a.len(), [rows, columns])?;
    check("matvec", "x", x.len(), [columns, 1])?;
    check("matvec", "out", out.len(), [rows, 1])?;
    if columns == 0 {
        out.fill(T::ZERO);
    } else {
        (T::compiled().matvec)(a, x, out);
    }
    Ok(())
}

/// [`matvec`] with at least one column.
pub(crate) fn matvec_of<T: Number>(a: &[T], x: &[T], out: &mut [T]) {
    let columns = x.len();
    if columns > CHUNK_LEN {
        for (row, out) in a.chunks_exact(columns).zip(out) {
            *out = dot_of_slices(row, x);
        }
        return;
    }
    for_rows(a, columns, (out, 1), x, |a, out, x| dispatch!(level(), simd => rows(simd, a, x, out)));
}

#[inline(always)]
fn rows<S: Simd, T: Number>(simd: S, a: &[T], x: &[T], out: &mut [T]) {
    let (columns, lanes) = (x.len(), T::Vector::<S>::LEN);
    if columns > SHORT_VECTORS * lanes {
        for (row, out) in a.chunks_exact(columns).zip(out) {
            *out = sum_of_pairs::<S, T::Vector<S>>(
                simd,
                row,
                x,
                #[inline(always)]
                |a, x| a * x,
            );
        }
        return;
    }
    for (a, out) in a.chunks(lanes * columns).zip(out.chunks_mut(lanes)) {
        let mut sums = T::Vector::<S>::splat(simd, T::ZERO);
        for (column, &x) in x.iter().enumerate() {
            sums += column_of_rows::<S, T::Vector<S>>(simd, a, columns, column) * x;
        }
        out.copy_from_slice(&sums.as_slice()[..out.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::{cases, on_every_level};
    use crate::vector::dot;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(cases(64))]

        #[test]
        fn products_of_any_size_equal_the_reference(rows in 0usize..50, columns in 0usize..80) {
            let a: Vec<i64> = (0..rows * columns).map(|i| (i * 7919 % 1009) as i64 - 500).collect();
            let x: Vec<i64> = (0..columns).map(|i| (i * 31 % 101) as i64 - 50).collect();
            let row = |i: usize| a[i * columns..][..columns].iter().zip(&x).map(|(a, x)| a * x).sum::<i64>();
            let expected: Vec<i64> = (0..rows).map(row).collect();
            let float = |x: &[i64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
            on_every_level(|| {
                let (mut out, mut float_out) = (vec![-1; rows], vec![-1.0; rows]);
                matvec(&a, &x, &mut out, rows, columns).unwrap();
                assert_eq!(out, expected);
                matvec(&float(&a), &float(&x), &mut float_out, rows, columns).unwrap();
                assert_eq!(float_out, float(&expected));
            });
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn long_rows_are_summed_pairwise_on_any_number_of_threads() {
        for (rows, columns) in [(2, 300_001), (700, 513), (200_000, 3)] {
            let a: Vec<f32> = (0..rows * columns).map(|i| 1.0 + (i % 7) as f32 * 1e-3).collect();
            let x = vec![0.3f32; columns];
            let results = [1, 2, 3].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut out = vec![0.0; rows];
                pool.install(|| matvec(&a, &x, &mut out, rows, columns)).unwrap();
                out
            });
            assert!(results[0] == results[1] && results[0] == results[2]);
            let exact: f64 = a[..columns].iter().map(|&a| f64::from(a) * f64::from(0.3f32)).sum();
            assert!((f64::from(results[0][0]) / exact - 1.0).abs() < 1e-6);
            if columns > 16 {
                assert_eq!(dot(&a[..columns], &x), Ok(results[0][0]));
            }
        }
    }

    #[test]
    fn sizes_that_do_not_match_are_errors() {
        let error = matvec(&[1.0f32; 6], &[1.0; 2], &mut [0.0; 2], 2, 3).unwrap_err();
        assert_eq!(error.to_string(), "matvec: `x` has 2 elements, but a 3 x 1 matrix has 3");
        assert!(matvec(&[1; 6], &[1; 3], &mut [0; 3], 2, 3).is_err());
        assert!(matvec(&[1; 5], &[1; 3], &mut [0; 2], 2, 3).is_err());
        assert!(matvec::<i32>(&[], &[], &mut [], usize::MAX, 2).is_err());
        let mut out = [7; 2];
        matvec(&[], &[], &mut out, 2, 0).unwrap();
        assert_eq!(out, [0; 2]);
    }
}
