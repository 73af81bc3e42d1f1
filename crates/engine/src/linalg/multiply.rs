//! Matrix multiplication of slices and views.

use super::error::{LinalgError, check};
use super::view::Layout;
use super::{MatrixView, MatrixViewMut, Number};
use crate::kernel::matmul::Gemm;

/// Computes the product of two matrices: `out[i, j]` is the sum over `l` of `a[i, l] * b[l, j]`. `a` is `[m, k]`, `b` is
/// `[k, n]` and `out` is `[m, n]`, all row-major and contiguous. With `k` = 0, `out` is 0.
///
/// ```
/// use gatework_engine::linalg::matmul;
///
/// let (row, column) = ([1i64, 2, 3], [4, 5, 6]);
/// let mut out = [0];
/// matmul(&row, &column, &mut out, 1, 3, 1)?;
/// assert_eq!(out, [32]);
///
/// let error = matmul(&row, &column, &mut out, 2, 3, 1).unwrap_err();
/// assert_eq!(error.to_string(), "matmul: `a` has 3 elements, but a 2 x 3 matrix has 6");
/// # Ok::<(), gatework_engine::linalg::LinalgError>(())
/// ```
pub fn matmul<T: Number>(
    a: &[T],
    b: &[T],
    out: &mut [T],
    m: usize,
    k: usize,
    n: usize,
) -> Result<(), LinalgError> {
    check("matmul", "a", a.len(), [m, k])?;
    check("matmul", "b", b.len(), [k, n])?;
    check("matmul", "out", out.len(), [m, n])?;
    let layout = |sizes: [usize; 2]| Layout { sizes, strides: [sizes[1], 1] };
    let a = MatrixView { data: a, layout: layout([m, k]) };
    let b = MatrixView { data: b, layout: layout([k, n]) };
    multiply(a, b, MatrixViewMut { data: out, layout: layout([m, n]) }, false);
    Ok(())
}

/// Computes the product of two matrices with any strides, `out = a b`.
///
/// ```
/// use gatework_engine::linalg::{MatrixView, MatrixViewMut, matmul_views};
///
/// // The Gram matrix: x transposed, times x.
/// let x = [1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0];
/// let x = MatrixView::new(&x, 3, 2)?;
/// let mut gram = [0.0; 4];
/// matmul_views(x.transposed(), x, MatrixViewMut::new(&mut gram, 2, 2)?)?;
/// assert_eq!(gram, [35.0, 44.0, 44.0, 56.0]);
/// # Ok::<(), gatework_engine::linalg::LinalgError>(())
/// ```
pub fn matmul_views<T: Number>(
    a: MatrixView<'_, T>,
    b: MatrixView<'_, T>,
    out: MatrixViewMut<'_, T>,
) -> Result<(), LinalgError> {
    check_sizes("matmul_views", a.layout, b.layout, out.layout)?;
    multiply(a, b, out, false);
    Ok(())
}

/// Adds the product of two matrices with any strides, `out = out + a b`.
///
/// ```
/// use gatework_engine::linalg::{MatrixView, MatrixViewMut, matmul_add_views};
///
/// let (a, b) = ([1, 2], [3, 4]);
/// let mut out = [100];
/// matmul_add_views(MatrixView::new(&a, 1, 2)?, MatrixView::new(&b, 2, 1)?, MatrixViewMut::new(&mut out, 1, 1)?)?;
/// assert_eq!(out, [111]);
/// # Ok::<(), gatework_engine::linalg::LinalgError>(())
/// ```
pub fn matmul_add_views<T: Number>(
    a: MatrixView<'_, T>,
    b: MatrixView<'_, T>,
    out: MatrixViewMut<'_, T>,
) -> Result<(), LinalgError> {
    check_sizes("matmul_add_views", a.layout, b.layout, out.layout)?;
    multiply(a, b, out, true);
    Ok(())
}

fn check_sizes(operation: &'static str, a: Layout, b: Layout, out: Layout) -> Result<(), LinalgError> {
    let (product, a, b, out) = ([a.sizes[0], b.sizes[1]], a.sizes, b.sizes, out.sizes);
    if a[1] != b[0] {
        return Err(LinalgError::Factors { operation, a, b });
    }
    if out != product {
        return Err(LinalgError::Result { operation, out, product });
    }
    Ok(())
}

/// Multiplies matrices whose sizes match.
fn multiply<T: Number>(
    a: MatrixView<'_, T>,
    b: MatrixView<'_, T>,
    out: MatrixViewMut<'_, T>,
    accumulate: bool,
) {
    let ([m, k], n) = (a.layout.sizes, b.layout.sizes[1]);
    // A single row times a matrix whose columns are contiguous, and a matrix with contiguous rows times a single column, are
    // dot products.
    if m == 1 && n > 1 && b.transposed().layout.is_contiguous() {
        return multiply(b.transposed(), a.transposed(), out.transposed(), accumulate);
    }
    let is_dense = |layout: Layout| layout.is_contiguous() && layout.sizes != [0, 0];
    if n == 1 && m * k > 0 && !accumulate && [a.layout, b.layout, out.layout].into_iter().all(is_dense) {
        return (T::compiled().matvec)(&a.data[..m * k], &b.data[..k], &mut out.data[..m]);
    }
    let gemm = Gemm {
        sizes: [m, n, k],
        a: (0, a.layout.strides),
        b: (0, b.layout.strides),
        out: (0, out.layout.strides),
        accumulate,
    };
    (T::compiled().matmul)(a.data, b.data, out.data, &gemm);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::{cases, on_every_level};
    use proptest::prelude::*;

    /// Element of a test matrix: small enough that `f32` is exact.
    fn element(i: usize) -> i64 {
        (i * 37 % 19) as i64 - 9
    }

    /// Multiplies in `i64`.
    fn reference(
        a: MatrixView<'_, i64>,
        b: MatrixView<'_, i64>,
        out: &mut MatrixViewMut<'_, i64>,
        add: bool,
    ) {
        for i in 0..a.rows() {
            for j in 0..b.columns() {
                let sum: i64 = (0..a.columns()).map(|l| a.get(i, l).unwrap() * b.get(l, j).unwrap()).sum();
                let to = out.get_mut(i, j).unwrap();
                *to = if add { *to + sum } else { sum };
            }
        }
    }

    /// Strides of a matrix: contiguous rows or columns, with `gap` elements between the elements and after them.
    fn layout([rows, columns]: [usize; 2], is_transposed: bool, gap: usize) -> (usize, Layout) {
        let (step, strides) = (1 + gap / 2, [columns, rows].map(|len| len * (1 + gap / 2) + gap % 2));
        let strides = if is_transposed { [step, strides[1]] } else { [strides[0], step] };
        (crate::kernel::matmul::span(rows, columns, strides), Layout { sizes: [rows, columns], strides })
    }

    /// Compares all forms for a type with the reference.
    fn compare<T: Number>(
        sizes: [usize; 3],
        transposed: [bool; 3],
        gap: usize,
        add: bool,
        from: fn(i64) -> T,
    ) {
        let [m, n, k] = sizes;
        let shapes = [[m, k], [k, n], [m, n]];
        let layouts: [(usize, Layout); 3] = std::array::from_fn(|i| layout(shapes[i], transposed[i], gap));
        let [a, b, out] = layouts.map(|(len, _)| (0..len).map(element).collect::<Vec<i64>>());
        let [a_layout, b_layout, out_layout] = layouts.map(|(_, layout)| layout);
        let mut expected = out.clone();
        reference(
            MatrixView { data: &a, layout: a_layout },
            MatrixView { data: &b, layout: b_layout },
            &mut MatrixViewMut { data: &mut expected, layout: out_layout },
            add,
        );
        let convert = |x: &[i64]| x.iter().map(|&x| from(x)).collect::<Vec<T>>();
        let (a, b, mut out, expected) = (convert(&a), convert(&b), convert(&out), convert(&expected));
        let product = if add { matmul_add_views } else { matmul_views };
        let out_view = MatrixViewMut { data: &mut out, layout: out_layout };
        product(
            MatrixView { data: &a, layout: a_layout },
            MatrixView { data: &b, layout: b_layout },
            out_view,
        )
        .unwrap();
        assert!(out == expected, "{} {sizes:?} {transposed:?} {gap} {add}", T::DTYPE);
        if gap == 0 && !add && transposed == [false; 3] {
            out.fill(T::ZERO);
            matmul(&a, &b, &mut out, m, k, n).unwrap();
            assert!(out == expected, "{} {sizes:?}", T::DTYPE);
        }
    }

    fn compare_types(sizes: [usize; 3], transposed: [bool; 3], gap: usize, add: bool) {
        compare::<f32>(sizes, transposed, gap, add, |x| x as f32);
        compare::<f64>(sizes, transposed, gap, add, |x| x as f64);
        compare::<i32>(sizes, transposed, gap, add, |x| x as i32);
        compare::<i64>(sizes, transposed, gap, add, |x| x);
    }

    proptest! {
        #![proptest_config(cases(128))]

        #[test]
        fn products_of_any_layout_equal_the_reference(
            sizes in prop::array::uniform3(0usize..40), transposed: [bool; 3], gap in 0usize..4, add: bool,
        ) {
            on_every_level(|| compare_types(sizes, transposed, gap, add));
        }

        #[test]
        fn products_of_vectors_equal_the_reference(
            [m, n, k] in prop::array::uniform3(0usize..70), which in 0usize..3, transposed: [bool; 3], gap in 0usize..2,
        ) {
            let mut sizes = [m, n, k];
            sizes[which] = 1;
            on_every_level(|| compare_types(sizes, transposed, gap, false));
        }

        #[test]
        fn integer_products_wrap(numbers in prop::collection::vec(any::<i64>(), 60)) {
            let (m, k, n) = (4, 6, 5);
            let (a, b) = (&numbers[..m * k], &numbers[m * k..][..k * n]);
            let sum = |i: usize, j: usize| (0..k).fold(0i64, |sum, l| sum.wrapping_add(a[i * k + l].wrapping_mul(b[l * n + j])));
            let expected: Vec<i64> = (0..m * n).map(|at| sum(at / n, at % n)).collect();
            let narrow = |x: &[i64]| x.iter().map(|&x| x as i32).collect::<Vec<_>>();
            on_every_level(|| {
                let (mut out, mut out32) = (vec![0; m * n], vec![0; m * n]);
                matmul(a, b, &mut out, m, k, n).unwrap();
                assert_eq!(out, expected);
                matmul(&narrow(a), &narrow(b), &mut out32, m, k, n).unwrap();
                assert_eq!(out32, narrow(&expected));
            });
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn products_of_several_blocks_equal_the_reference() {
        for sizes in
            [[100, 40, 390], [7, 600, 300], [200, 3, 700], [1, 700, 700], [700, 1, 700], [2, 300, 600]]
        {
            for transposed in [[false; 3], [true, false, false], [false, true, false], [true; 3]] {
                compare_types(sizes, transposed, 0, false);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn large_products_have_the_same_bits_on_any_number_of_threads() {
        fn product<T: Number>([m, n, k]: [usize; 3], threads: usize, from: fn(i64) -> T) -> Vec<T> {
            let numbers =
                |len: usize| (0..len).map(|i| from((i * 7919 % 1009) as i64 - 300)).collect::<Vec<T>>();
            let mut out = vec![T::ZERO; m * n];
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| matmul(&numbers(m * k), &numbers(k * n), &mut out, m, k, n)).unwrap();
            out
        }
        for sizes in [
            [150, 170, 190],
            [3, 2000, 700],
            [1000, 2, 1100],
            [2100, 1, 1100],
            [1, 1100, 2100],
            [3, 1, 900_000],
        ] {
            for threads in [2, 3] {
                let third = |x: i64| x as f64 / 3.0;
                assert!(product(sizes, 1, third) == product(sizes, threads, third), "{sizes:?}");
                let third = |x: i64| x as f32 / 3.0;
                assert!(product(sizes, 1, third) == product(sizes, threads, third), "{sizes:?}");
                assert!(product(sizes, 1, |x| x) == product(sizes, threads, |x| x), "{sizes:?}");
            }
        }
    }

    #[test]
    fn sizes_that_do_not_match_are_errors_and_nothing_is_written() {
        let (a, b, mut out) = ([1.0f32; 6], [1.0f32; 12], [7.0f32; 8]);
        let text = |result: Result<(), LinalgError>| result.unwrap_err().to_string();
        assert_eq!(
            text(matmul(&a, &b, &mut out, 2, 3, 5)),
            "matmul: `b` has 12 elements, but a 3 x 5 matrix has 15"
        );
        assert_eq!(
            text(matmul(&a, &b, &mut out[..7], 2, 3, 4)),
            "matmul: `out` has 7 elements, but a 2 x 4 matrix has 8"
        );
        assert_eq!(
            text(matmul(&a, &b, &mut out, usize::MAX, 3, 4)),
            "matmul: `a` cannot be a 18446744073709551615 x 3 matrix, which exceeds the address space"
        );
        let (a, b) = (MatrixView::new(&a, 2, 3).unwrap(), MatrixView::new(&b, 3, 4).unwrap());
        assert_eq!(
            text(matmul_views(b, a, MatrixViewMut::new(&mut out, 2, 4).unwrap())),
            "matmul_views: `a` is 3 x 4, but `b` is 2 x 3: it needs as many rows as `a` has columns"
        );
        assert_eq!(
            text(matmul_add_views(a, b, MatrixViewMut::new(&mut out, 4, 2).unwrap())),
            "matmul_add_views: `out` is 4 x 2, but the product is 2 x 4"
        );
        assert_eq!(out, [7.0; 8]);
    }

    #[test]
    fn products_without_elements_are_zero_or_empty() {
        let mut out = [7; 6];
        matmul(&[], &[], &mut out, 2, 0, 3).unwrap();
        assert_eq!(out, [0; 6]);
        matmul::<f64>(&[], &[1.0; 3], &mut [], 0, 3, 1).unwrap();
        matmul::<f32>(&[], &[], &mut [], 0, 0, usize::MAX).unwrap();
        matmul::<f32>(&[], &[], &mut [], usize::MAX, 0, 0).unwrap();
        let none = MatrixView::with_strides(&[], 2, 0, usize::MAX, usize::MAX).unwrap();
        matmul_add_views(none, none.transposed(), MatrixViewMut::new(&mut out[..4], 2, 2).unwrap()).unwrap();
        assert_eq!(out, [0; 6]);
    }
}
