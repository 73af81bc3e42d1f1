//! The matrix product, by the `gemm` crate, on matrices that lie anywhere in one slice.

#![expect(unsafe_code, reason = "the product is called with pointers; its bounds are checked here")]

use crate::parallel;

/// A product of two matrices in one slice: `out[i, j] = sum over l of a[i, l] * b[l, j]`.
#[derive(Clone, Copy, Debug)]
pub struct Shapes {
    /// Rows of the result, columns of the result, and what is summed over.
    pub sizes: [usize; 3],
    /// Begin of the first matrix, and its strides from row to row and from column to column.
    pub a: (usize, [usize; 2]),
    /// Likewise, of the second.
    pub b: (usize, [usize; 2]),
    /// Likewise, of the result.
    pub out: (usize, [usize; 2]),
    /// Whether the product is added to what the result holds.
    pub accumulate: bool,
}

/// A number with a matrix product: `f32` or `f64`.
pub trait Product: Copy + Send + Sync + 'static {
    /// 0 and 1.
    const UNITS: [Self; 2];
}

impl Shapes {
    /// Begin and end of the operands.
    fn operands(&self) -> [(usize, usize); 2] {
        let [m, n, k] = self.sizes;
        let ((a, a_strides), (b, b_strides)) = (self.a, self.b);
        [(a, a + span(m, k, a_strides)), (b, b + span(k, n, b_strides))]
    }

    fn end_of_result(&self) -> usize {
        self.out.0 + span(self.sizes[0], self.sizes[1], self.out.1)
    }

    /// Panics if a matrix reaches beyond `len` elements, the result overlaps an operand, or its elements each other.
    fn check(&self, len: usize) {
        let [m, n, _] = self.sizes;
        let ([a, b], (out, strides), end) = (self.operands(), self.out, self.end_of_result());
        assert!(a.1.max(b.1).max(end) <= len, "the matrices lie in the slice");
        let apart = |(begin, stop): (usize, usize)| begin >= end || stop <= out || begin == stop;
        assert!(apart(a) && apart(b), "the result overlaps an operand");
        assert!(m == 0 || n == 0 || is_injective(m, n, strides), "elements of the result share a place");
    }
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

/// Whether no two elements of a matrix lie at one place.
fn is_injective(rows: usize, columns: usize, [by_row, by_column]: [usize; 2]) -> bool {
    let ahead = |small: usize, count: usize, large: usize| small > 0 && large > small * (count - 1);
    rows <= 1 && (columns <= 1 || by_column > 0)
        || columns <= 1 && by_row > 0
        || ahead(by_column, columns, by_row)
        || ahead(by_row, rows, by_column)
}

/// Multiplies two matrices of a slice into a third part of it that does not overlap them.
///
/// # Panics
/// If a matrix reaches beyond the slice, the result overlaps an operand, or elements of the result each other.
pub fn multiply<T: Product>(memory: &mut [T], shapes: &Shapes) {
    shapes.check(memory.len());
    let is_large = shapes.sizes.iter().product::<usize>() >= MANY && rayon::current_num_threads() > 1;
    let threads = if is_large { gemm::Parallelism::Rayon(0) } else { gemm::Parallelism::None };
    // SAFETY: all three matrices lie in the slice, which is borrowed exclusively, and the result overlaps neither operand
    // nor itself, as was checked.
    unsafe { multiply_at(memory.as_mut_ptr(), shapes, threads) }
}

/// Multiplications that are worth a second thread: about 50 us of work on one.
const MANY: usize = 1 << 21;

/// Multiplies every pair of matrices of a batch, at the same time if the results lie behind each other and the operands
/// elsewhere.
///
/// # Panics
/// As [`multiply`].
pub fn multiply_all<T: Product>(memory: &mut [T], batch: &[Shapes]) {
    let work: usize = batch.iter().map(|shapes| shapes.sizes.iter().product::<usize>()).sum();
    if batch.len() < 2 || work < MANY || rayon::current_num_threads() < 2 || !is_independent(batch) {
        for shapes in batch {
            multiply(memory, shapes);
        }
        return;
    }
    for shapes in batch {
        shapes.check(memory.len());
    }
    let shared = Shared(memory.as_mut_ptr());
    parallel::for_each_index(batch.len(), move |i| {
        let shared = shared;
        // SAFETY: the matrices lie in the slice, which is borrowed exclusively; results are disjoint from each other and
        // from all operands, as was checked.
        unsafe { multiply_at(shared.0, &batch[i], gemm::Parallelism::None) }
    });
}

/// Whether every result ends before the next begins, and no operand lies among the results.
fn is_independent(batch: &[Shapes]) -> bool {
    let ascend = batch.windows(2).all(|pair| pair[0].end_of_result() <= pair[1].out.0);
    let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return true };
    let (begin, end) = (first.out.0, last.end_of_result());
    ascend
        && batch.iter().all(|shapes| {
            let [a, b] = shapes.operands();
            [a, b].iter().all(|&(from, to)| to <= begin || from >= end)
        })
}

/// A pointer that several threads use, each for results of its own.
#[derive(Clone, Copy)]
struct Shared<T>(*mut T);

// SAFETY: the threads write to places that no other reads or writes.
unsafe impl<T: Send> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Shared<T> {}

/// Multiplies two matrices into a third; all are found from one pointer.
///
/// # Safety
/// The three matrices lie in memory that may be read, and the third in memory that may be written and that nothing else
/// reads or writes meanwhile. The third overlaps neither of the others, and its elements lie apart.
pub(super) unsafe fn multiply_at<T: Product>(memory: *mut T, shapes: &Shapes, threads: gemm::Parallelism) {
    let Shapes { sizes: [m, n, k], a: (a, a_strides), b: (b, b_strides), out: (out, strides), accumulate } =
        *shapes;
    let [zero, one] = T::UNITS;
    if k == 0 && !accumulate {
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            // SAFETY: the element is one of the result.
            unsafe { memory.add(out + row * strides[0] + column * strides[1]).write(zero) };
        }
    }
    if m == 0 || n == 0 || k == 0 {
        return;
    }
    // SAFETY: as the caller promises; strides fit `isize` because the matrices fit into memory.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            memory.add(out),
            strides[1] as isize,
            strides[0] as isize,
            accumulate,
            memory.add(a).cast_const(),
            a_strides[1] as isize,
            a_strides[0] as isize,
            memory.add(b).cast_const(),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The textbook product.
    fn naive(memory: &mut [f64], shapes: &Shapes) {
        let Shapes { sizes: [m, n, k], a, b, out, accumulate } = *shapes;
        let at = |(begin, strides): (usize, [usize; 2]), i: usize, j: usize| {
            begin + i * strides[0] + j * strides[1]
        };
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let sum: f64 = (0..k).map(|l| memory[at(a, i, l)] * memory[at(b, l, j)]).sum();
            let place = &mut memory[at(out, i, j)];
            *place = if accumulate { *place + sum } else { sum };
        }
    }

    /// Strides of a matrix, row by row or column by column, with gaps.
    fn strides(rows: usize, columns: usize, transposed: bool, gap: usize) -> [usize; 2] {
        if transposed { [1, rows + gap] } else { [columns + gap, 1] }
    }

    proptest! {
        #[test]
        fn products_equal_the_textbook(
            sizes in prop::array::uniform3(0usize..20), turns: [bool; 3], gap in 0usize..3, accumulate: bool,
        ) {
            let [m, n, k] = sizes;
            let (a, b, out) =
                (strides(m, k, turns[0], gap), strides(k, n, turns[1], gap), strides(m, n, turns[2], gap));
            let (b_begin, out_begin) = (span(m, k, a), span(m, k, a) + span(k, n, b));
            let shapes = Shapes { sizes, a: (0, a), b: (b_begin, b), out: (out_begin, out), accumulate };
            let mut ours: Vec<f64> = (0..out_begin + span(m, n, out)).map(|i| (i * 37 % 19) as f64 - 9.0).collect();
            let mut right = ours.clone();
            multiply(&mut ours, &shapes);
            naive(&mut right, &shapes);
            prop_assert_eq!(ours, right);
        }
    }

    #[test]
    fn products_have_the_same_bits_on_any_number_of_threads() {
        let (m, n, k) = (150, 140, 130);
        let numbers = |count: usize| (0..count).map(|i| (i * 7919 % 1013) as f32 * 0.01 - 5.0);
        let strides = ([k, 1], [n, 1], [n, 1]);
        for batch in [1, 5] {
            let (b, out) = (batch * m * k, batch * (m * k + k * n));
            let shapes: Vec<Shapes> = (0..batch)
                .map(|i| Shapes {
                    sizes: [m, n, k],
                    a: (i * m * k, strides.0),
                    b: (b + i * k * n, strides.1),
                    out: (out + i * m * n, strides.2),
                    accumulate: false,
                })
                .collect();
            let results = [1, 2, 3].map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                let mut memory: Vec<f32> = numbers(out + batch * m * n).collect();
                pool.install(|| multiply_all(&mut memory, &shapes));
                memory
            });
            assert_eq!(results[0], results[1]);
            assert_eq!(results[0], results[2]);
        }
    }

    #[test]
    #[should_panic(expected = "share a place")]
    fn results_that_overlap_themselves_are_refused() {
        let shapes =
            Shapes { sizes: [2, 2, 1], a: (0, [1, 1]), b: (2, [2, 1]), out: (4, [1, 1]), accumulate: false };
        multiply(&mut [1.0f32; 8], &shapes);
    }
}
