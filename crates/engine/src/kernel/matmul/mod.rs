//! Matrix multiplication (GEMM) of matrices anywhere in one slice, with arbitrary strides. [`linalg`](crate::linalg) is the
//! interface for matrices in separate slices.
//!
//! | case | implementation |
//! |---|---|
//! | `f32`, contiguous rows or columns of the result | `tiles`: register tiles, packed operands |
//! | the same, with a sparse first matrix | `sparse`: skips the zeros |
//! | `f32`, up to three rows | `skinny`: one pass over the unpacked second matrix |
//! | otherwise: up to four columns, a matrix with contiguous rows | `dots`: dot products |
//! | up to eight rows, a second matrix with contiguous rows | `few_rows`: one pass over the unpacked second matrix |
//! | all else: `f64`, `i32`, `i64`, other strides | `general`: register tiles, packed operands |

#![expect(unsafe_code, reason = "kernels take pointers; the bounds are checked here")]

mod dots;
mod few_rows;
mod general;
mod nonzeros;
mod packed;
mod packing;
mod skinny;
mod sparse;
mod tiles;

use crate::dtype::Element;
use crate::parallel;
pub use packed::{PackedMatrix, PreparedRhs, multiply_packed, multiply_prepared};
use tiles::{EpiloguePtr, Packed, Rhs, Source, Target};

/// Matrix multiplication in one slice: `out[i, j] = sum over l of a[i, l] * b[l, j]`.
#[derive(Clone, Copy, Debug)]
pub struct Gemm {
    /// Rows of the result, columns of the result, and depth (the length of the sums).
    pub sizes: [usize; 3],
    /// Offset of the first matrix, and its row and column strides.
    pub a: (usize, [usize; 2]),
    /// Offset and strides of the second matrix.
    pub b: (usize, [usize; 2]),
    /// Offset and strides of the result.
    pub out: (usize, [usize; 2]),
    /// Whether the product is added to the result instead of replacing it.
    pub accumulate: bool,
}

/// Element type of matrix multiplication: `f32`, `f64`, `i32` or `i64`. Integers wrap.
pub trait GemmElement: Element {
    /// Multiplies with the tile kernels; returns false if they do not support the layout.
    ///
    /// # Safety
    /// Same as for `multiply_at`; no size is 0.
    unsafe fn multiply_tiled(
        _bases: Bases<Self>,
        _gemm: &Gemm,
        _epilogue: EpiloguePtr<Self>,
        _threads: bool,
    ) -> bool {
        false
    }

    /// Returns the number of elements of a packed matrix, or 0 if matrices of this type are not packed.
    fn packed_len(_rows: usize, _columns: usize) -> usize {
        0
    }

    /// Packs a matrix of `[rows, columns]` for `multiply_packed`.
    ///
    /// # Safety
    /// The matrix may be read, and [`GemmElement::packed_len`] elements from offset `to` on may be written.
    unsafe fn pack(_memory: *mut Self, _sizes: [usize; 2], _matrix: (usize, [usize; 2]), _to: usize) {}

    /// Multiplies matrices of one memory, on several threads if they are large.
    ///
    /// # Safety
    /// Same as for `multiply_at`.
    unsafe fn multiply_within(memory: *mut Self, gemm: &Gemm) {
        let threads = is_large(gemm.sizes.iter().product());
        // SAFETY: guaranteed by the caller.
        unsafe { multiply_at(Bases::same(memory), gemm, EpiloguePtr::NONE, threads) }
    }

    /// Multiplies with a second operand that is packed at an offset; with the unpacked operand if matrices of this type are
    /// not packed.
    ///
    /// # Safety
    /// Same as for `multiply_at`. The packed matrix is the second operand. The rows of the result are contiguous.
    unsafe fn multiply_packed(memory: *mut Self, gemm: &Gemm, _packed: usize) {
        // SAFETY: guaranteed by the caller.
        unsafe { multiply_at(Bases::same(memory), gemm, EpiloguePtr::NONE, false) }
    }
}

/// Base pointers to which the offsets of the three matrices are relative.
#[derive(Clone, Copy)]
pub struct Bases<T> {
    a: *const T,
    b: *const T,
    out: *mut T,
}

// SAFETY: threads that share it write disjoint elements, and none reads an element that another writes.
unsafe impl<T: Send> Send for Bases<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Bases<T> {}

impl<T> Bases<T> {
    /// Uses one base for all three matrices.
    fn same(memory: *mut T) -> Bases<T> {
        Bases { a: memory, b: memory, out: memory }
    }
}

/// Range of a matrix that is not in the main memory: element `inside` of the memory is element `outside` of another slice,
/// and so on for `len` elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExternalRange {
    /// First element, as an offset into the memory.
    pub inside: usize,
    /// First element, as an offset into the other slice.
    pub outside: usize,
    /// Number of elements.
    pub len: usize,
}

impl ExternalRange {
    /// Panics if the range is out of bounds of a slice of `len` elements, or the matrix, from `begin` to `end`, is not in
    /// the range.
    fn check(&self, (begin, end): (usize, usize), len: usize) {
        assert!(self.outside.saturating_add(self.len) <= len, "external range out of bounds of its slice");
        assert!(
            begin >= self.inside && end <= self.inside.saturating_add(self.len),
            "matrix outside of its external range"
        );
    }
}

impl Gemm {
    /// Returns the begin and the end of both operands.
    fn operands(&self) -> [(usize, usize); 2] {
        let [m, n, k] = self.sizes;
        let ((a, a_strides), (b, b_strides)) = (self.a, self.b);
        [(a, a.saturating_add(span(m, k, a_strides))), (b, b.saturating_add(span(k, n, b_strides)))]
    }

    /// Returns the number of multiplications.
    fn multiplications(&self) -> usize {
        // Saturates: operands with strides of 0 may be larger than the memory.
        self.sizes.iter().fold(1, |product: usize, &size| product.saturating_mul(size))
    }

    fn end_of_result(&self) -> usize {
        self.out.0.saturating_add(span(self.sizes[0], self.sizes[1], self.out.1))
    }

    /// Panics if one of the operands or the result is out of bounds, or the result aliases one of them or itself.
    fn check_against(&self, operands: &[(usize, usize)], len: usize) {
        let [m, n, _] = self.sizes;
        let ((out, strides), end) = (self.out, self.end_of_result());
        assert!(
            operands.iter().fold(end, |most, operand| most.max(operand.1)) <= len,
            "matrix out of bounds of the slice"
        );
        let disjoint = |&(begin, stop): &(usize, usize)| begin >= end || stop <= out || begin == stop;
        assert!(operands.iter().all(disjoint), "the result overlaps an operand");
        assert!(m == 0 || n == 0 || is_injective(m, n, strides), "elements of the result alias each other");
    }
}

impl GemmElement for f32 {
    unsafe fn multiply_tiled(
        bases: Bases<f32>,
        gemm: &Gemm,
        epilogue: EpiloguePtr<f32>,
        threads: bool,
    ) -> bool {
        let Some(product) = Tiled::new(bases, gemm, epilogue) else { return false };
        // SAFETY: guaranteed by the caller.
        unsafe { product.run(threads) };
        true
    }

    fn packed_len(rows: usize, columns: usize) -> usize {
        packing::packed_len(rows, columns)
    }

    unsafe fn pack(memory: *mut f32, [rows, columns]: [usize; 2], matrix: (usize, [usize; 2]), to: usize) {
        let source = Source { at: memory.wrapping_add(matrix.0), strides: matrix.1 };
        // SAFETY: guaranteed by the caller.
        unsafe { packing::pack(source, rows, columns, memory.add(to)) };
    }

    unsafe fn multiply_packed(memory: *mut f32, gemm: &Gemm, packed: usize) {
        if gemm.sizes[2] == 0 {
            // SAFETY: guaranteed by the caller.
            return unsafe { multiply_at(Bases::same(memory), gemm, EpiloguePtr::NONE, false) };
        }
        let (a, (out, [stride, _])) = (gemm.a, gemm.out);
        let a = Source { at: memory.wrapping_add(a.0), strides: a.1 };
        let at = memory.wrapping_add(out);
        let out = Target { at, stride, accumulate: gemm.accumulate, epilogue: EpiloguePtr::NONE };
        let at = memory.wrapping_add(packed);
        let packed = Packed { at, columns: gemm.sizes[1], first: 0, is_finite: false };
        // SAFETY: guaranteed by the caller.
        unsafe { tiles::multiply(gemm.sizes, a, Rhs::Packed(packed), out, false) }
    }
}

/// Multiplication whose result has contiguous rows.
#[derive(Clone, Copy)]
struct Tiled {
    sizes: [usize; 3],
    a: Source,
    b: Rhs,
    out: Target,
    /// Whether there are so few rows that one pass over the second operand computes them.
    is_skinny: bool,
    /// Whether all elements of an unpacked second operand are known to be finite.
    is_finite: bool,
}

// SAFETY: threads compute disjoint chunks of the result, and nothing else is written.
unsafe impl Send for Tiled {}
// SAFETY: as above.
unsafe impl Sync for Tiled {}

impl Tiled {
    /// Returns the multiplication, transposed if the columns of the result are contiguous, or `None` if neither is.
    fn new(bases: Bases<f32>, gemm: &Gemm, epilogue: EpiloguePtr<f32>) -> Option<Tiled> {
        let Gemm { sizes: [m, n, k], a, b, out: (out, [by_row, by_column]), accumulate } = *gemm;
        let a = Source { at: bases.a.wrapping_add(a.0), strides: a.1 };
        let b = Source { at: bases.b.wrapping_add(b.0), strides: b.1 };
        let transposed =
            |source: Source| Source { strides: [source.strides[1], source.strides[0]], ..source };
        let target = |stride: usize| Target { at: bases.out.wrapping_add(out), stride, accumulate, epilogue };
        let (sizes, a, b, out) = if by_column == 1 || n == 1 {
            ([m, n, k], a, b, target(by_row))
        } else if (by_row == 1 || m == 1) && epilogue.bias.is_none() {
            ([n, m, k], transposed(b), transposed(a), target(by_column))
        } else {
            return None;
        };
        let has_few_rows = sizes[0] <= skinny::MAX_ROWS;
        // A single row times a column-major matrix is dot products, and so is a single column.
        let is_dot = sizes[0] == 1 && b.strides[1] != 1 || sizes[1] == 1;
        let is_skinny = has_few_rows && b.strides[1] == 1;
        (!is_dot).then_some(Tiled { sizes, a, b: Rhs::Unpacked(b), out, is_skinny, is_finite: false })
    }

    /// Returns a chunk of the result: some of its columns, or of its rows if there are more.
    fn chunk(self, chunk: usize, chunks: usize) -> Tiled {
        let [m, n, k] = self.sizes;
        if m > n {
            let rows = parallel::chunk_range(m, chunk, chunks);
            let at = self.out.at.wrapping_add(rows.start * self.out.stride);
            let out = Target { at, ..self.out };
            return Tiled { sizes: [rows.len(), n, k], a: self.a.offset(rows.start, 0), out, ..self };
        }
        // Whole panels, so that the columns after the last whole vector do not depend on the number of chunks.
        let panels = parallel::chunk_range(n.div_ceil(tiles::MAX_PANEL), chunk, chunks);
        let [begin, end] = [panels.start, panels.end].map(|panel| n.min(panel * tiles::MAX_PANEL));
        let epilogue = self.out.epilogue.at_column(begin);
        let out = Target { at: self.out.at.wrapping_add(begin), epilogue, ..self.out };
        Tiled { sizes: [m, end - begin, k], b: self.b.at_column(begin), out, ..self }
    }

    /// # Safety
    /// Same as for [`multiply_at`].
    unsafe fn run(self, threads: bool) {
        let chunks = if threads { rayon::current_num_threads() } else { 1 };
        // Decided for the whole multiplication, so that it does not depend on the number of threads.
        // SAFETY: guaranteed by the caller.
        let is_sparse = !self.is_skinny && unsafe { sparse::is_profitable(self.sizes, self.a) };
        parallel::for_each_index(chunks, |chunk| {
            // SAFETY: guaranteed by the caller; the chunks of a result are disjoint.
            unsafe { self.chunk(chunk, chunks).run_alone(is_sparse) }
        });
    }

    /// # Safety
    /// Same as for [`multiply_at`].
    unsafe fn run_alone(self, is_sparse: bool) {
        // SAFETY: guaranteed by the caller.
        unsafe {
            match self.b {
                b if self.is_skinny => {
                    match b {
                        Rhs::Unpacked(b) => skinny::multiply(self.sizes, self.a, b, self.out, self.is_finite),
                        b => skinny::multiply_packed(self.sizes, self.a, b, self.is_finite, self.out),
                    }
                    apply_epilogue(
                        self.out.at,
                        [self.sizes[0], self.sizes[1]],
                        [self.out.stride, 1],
                        self.out.epilogue,
                    );
                }
                b => tiles::multiply(self.sizes, self.a, b, self.out, is_sparse),
            }
        }
    }
}

impl GemmElement for f64 {}
impl GemmElement for i32 {}
impl GemmElement for i64 {}

/// Returns the number of elements from the first to the last of a matrix.
pub(crate) fn span(rows: usize, columns: usize, [by_row, by_column]: [usize; 2]) -> usize {
    // Saturates: such a span exceeds every slice.
    let last = |count: usize, stride: usize| (count - 1).saturating_mul(stride);
    if rows == 0 || columns == 0 {
        0
    } else {
        last(rows, by_row).saturating_add(last(columns, by_column)).saturating_add(1)
    }
}

/// Returns whether no two elements of a matrix alias.
pub(crate) fn is_injective(rows: usize, columns: usize, [by_row, by_column]: [usize; 2]) -> bool {
    let ahead =
        |small: usize, count: usize, large: usize| small > 0 && large > small.saturating_mul(count - 1);
    rows <= 1 && (columns <= 1 || by_column > 0)
        || columns <= 1 && by_row > 0
        || ahead(by_column, columns, by_row)
        || ahead(by_row, rows, by_column)
}

/// Multiplies two matrices of a slice into a third, disjoint one.
///
/// # Panics
/// If a matrix is out of bounds, or the result aliases an operand or itself.
pub fn multiply<T: GemmElement>(memory: &mut [T], gemm: &Gemm) {
    multiply_all(memory, std::slice::from_ref(gemm));
}

/// Fewest multiplications that run on several threads: about 50 us of one thread.
const PARALLEL_MIN_MULTIPLICATIONS: usize = 1 << 21;

/// Multiplies a batch of matrices, in parallel if the results are in ascending order and disjoint from all operands.
///
/// # Panics
/// Under the conditions of [`multiply`].
pub fn multiply_all<T: GemmElement>(memory: &mut [T], batch: &[Gemm]) {
    multiply_external(memory, batch, None, ExternalSlices { from: &[], to: &mut [], external: [None; 3] });
}

/// Multiplies matrices of separate slices. The offsets of `gemm` are relative to their own slices.
///
/// # Panics
/// If a matrix is out of bounds, or elements of the result alias each other.
pub(crate) fn multiply_slices<T: GemmElement>(a: &[T], b: &[T], out: &mut [T], gemm: &Gemm) {
    let ([m, n, _], [(_, a_end), (_, b_end)]) = (gemm.sizes, gemm.operands());
    assert!(
        a_end <= a.len() && b_end <= b.len() && gemm.end_of_result() <= out.len(),
        "matrix out of bounds of its slice"
    );
    assert!(m == 0 || n == 0 || is_injective(m, n, gemm.out.1), "elements of the result alias each other");
    let bases = Bases { a: a.as_ptr(), b: b.as_ptr(), out: out.as_mut_ptr() };
    // SAFETY: the matrices are in bounds of their slices, of which that of the result is borrowed exclusively, and the result
    // does not alias itself, as was checked.
    unsafe { multiply_at(bases, gemm, EpiloguePtr::NONE, is_large(gemm.multiplications())) }
}

/// Fused epilogue of a multiplication: adds a bias to every row and applies ReLU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epilogue {
    /// Offset of the bias, one element per column.
    pub bias: usize,
    /// Whether ReLU is applied after the bias.
    pub relu: bool,
}

/// Slices other than the main memory that hold operands or the result.
#[derive(Debug)]
pub struct ExternalSlices<'a, T> {
    /// Slice of external operands.
    pub from: &'a [T],
    /// Slice of an external result.
    pub to: &'a mut [T],
    /// Which of the two operands and the result are external. Their offsets are relative to the main memory.
    pub external: [Option<ExternalRange>; 3],
}

/// Multiplies like [`multiply_all`], with operands or results outside of the main memory, and an epilogue.
///
/// # Panics
/// Under the conditions of [`multiply`], if an external matrix is not in its range, and if the bias is out of bounds or
/// overlaps a result.
pub fn multiply_external<T: GemmElement>(
    memory: &mut [T],
    batch: &[Gemm],
    epilogue: Option<Epilogue>,
    outside: ExternalSlices<'_, T>,
) {
    let ExternalSlices { from, to, external } = outside;
    for gemm in batch {
        check_one(memory.len(), gemm, epilogue);
        let [a, b] = gemm.operands();
        external[0].inspect(|range| range.check(a, from.len()));
        external[1].inspect(|range| range.check(b, from.len()));
        external[2].inspect(|range| range.check((gemm.out.0, gemm.end_of_result()), to.len()));
    }
    let mut bases = Bases::same(memory.as_mut_ptr());
    let bias = epilogue.map(|epilogue| bases.a.wrapping_add(epilogue.bias));
    let epilogue = EpiloguePtr { bias, relu: epilogue.is_some_and(|epilogue| epilogue.relu) };
    let base = |range: ExternalRange| from.as_ptr().wrapping_add(range.outside).wrapping_sub(range.inside);
    bases.a = external[0].map_or(bases.a, base);
    bases.b = external[1].map_or(bases.b, base);
    if let Some(range) = external[2] {
        bases.out = to.as_mut_ptr().wrapping_add(range.outside).wrapping_sub(range.inside);
    }
    if is_large(multiplications(batch)) && batch.len() > 1 && is_independent(batch, 2) {
        parallel::for_each_index(batch.len(), |i| {
            // SAFETY: the matrices are in bounds of slices, which are borrowed exclusively where they are written; results
            // are disjoint from each other and from all operands, as was checked.
            unsafe { multiply_at(bases, &batch[i], epilogue, false) }
        });
        return;
    }
    for gemm in batch {
        let threads = is_large(gemm.multiplications());
        // SAFETY: the matrices are in bounds of slices, which are borrowed exclusively where they are written, and the
        // result aliases neither operand nor itself, as was checked.
        unsafe { multiply_at(bases, gemm, epilogue, threads) }
    }
}

/// Panics if a matrix or the bias is out of bounds of `len` elements, or the result aliases anything.
fn check_one(len: usize, gemm: &Gemm, epilogue: Option<Epilogue>) {
    gemm.check_against(&gemm.operands(), len);
    check_bias(len, gemm, epilogue);
}

/// Panics if the bias is out of bounds or overlaps the result.
fn check_bias(len: usize, gemm: &Gemm, epilogue: Option<Epilogue>) {
    if let Some(Epilogue { bias, .. }) = epilogue {
        let (end, (begin, _)) = (bias.saturating_add(gemm.sizes[1]), gemm.out);
        assert!(end <= len, "bias out of bounds of the slice");
        assert!(end <= begin || bias >= gemm.end_of_result(), "the bias overlaps the result");
    }
}

/// Returns the number of multiplications of a batch.
fn multiplications(batch: &[Gemm]) -> usize {
    batch.iter().fold(0, |sum: usize, gemm| sum.saturating_add(gemm.multiplications()))
}

/// Returns whether a number of multiplications is large enough for several threads.
fn is_large(work: usize) -> bool {
    work >= PARALLEL_MIN_MULTIPLICATIONS && rayon::current_num_threads() > 1
}

/// Returns whether the results are in ascending order and disjoint, also from the first `operands` operands of all.
fn is_independent(batch: &[Gemm], operands: usize) -> bool {
    let ascend = batch.windows(2).all(|pair| pair[0].end_of_result() <= pair[1].out.0);
    let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return true };
    let (begin, end) = (first.out.0, last.end_of_result());
    ascend
        && batch
            .iter()
            .all(|gemm| gemm.operands()[..operands].iter().all(|&(from, to)| to <= begin || from >= end))
}

/// Multiplies two matrices into a third.
///
/// # Safety
/// The three matrices and the bias, if there is one, may be read, and the result may be written; nothing else accesses the
/// result meanwhile. The result aliases neither operand nor itself.
unsafe fn multiply_at<T: GemmElement>(bases: Bases<T>, gemm: &Gemm, epilogue: EpiloguePtr<T>, threads: bool) {
    let Gemm { sizes: [m, n, k], out: (out, strides), accumulate, .. } = *gemm;
    if m == 0 || n == 0 {
        // The other size, and strides that are not used, may be any number.
        return;
    }
    if k == 0 {
        let places = (0..m).flat_map(|row| (0..n).map(move |column| row * strides[0] + column * strides[1]));
        for place in places.filter(|_| !accumulate) {
            // SAFETY: the element is one of the result.
            unsafe { bases.out.wrapping_add(out + place).write(T::ZERO) };
        }
        // SAFETY: guaranteed by the caller.
        unsafe { apply_epilogue(bases.out.wrapping_add(out), [m, n], strides, epilogue) };
        return;
    }
    // SAFETY: guaranteed by the caller; no size is 0.
    if unsafe { T::multiply_tiled(bases, gemm, epilogue, threads) } {
        return;
    }
    // SAFETY: guaranteed by the caller; no size is 0.
    unsafe {
        general::multiply(bases, gemm, threads);
        apply_epilogue(bases.out.wrapping_add(out), [m, n], strides, epilogue);
    }
}

/// Applies the epilogue to a result.
///
/// # Safety
/// The elements of the result may be written, and the bias be read.
unsafe fn apply_epilogue<T: GemmElement>(
    out: *mut T,
    [m, n]: [usize; 2],
    strides: [usize; 2],
    epilogue: EpiloguePtr<T>,
) {
    if epilogue.bias.is_none() && !epilogue.relu {
        return;
    }
    let cut = |value: T| if epilogue.relu && value < T::ZERO { T::ZERO } else { value };
    for row in (0..m).map(|i| out.wrapping_add(i * strides[0])) {
        if let (Some(bias), 1) = (epilogue.bias, strides[1]) {
            // SAFETY: a contiguous row of the result, and the bias of its columns.
            let (row, bias) =
                unsafe { (std::slice::from_raw_parts_mut(row, n), std::slice::from_raw_parts(bias, n)) };
            row.iter_mut().zip(bias).for_each(|(to, &bias)| *to = cut(T::plus(*to, bias)));
            continue;
        }
        for j in 0..n {
            // SAFETY: an element of the result, and the bias of its column.
            unsafe {
                let to = row.add(j * strides[1]);
                *to = cut(epilogue.bias.map_or(*to, |bias| T::plus(*to, *bias.add(j))));
            }
        }
    }
}

#[cfg(test)]
mod tests;
