//! The matrix product, on matrices that lie anywhere in one slice.
//!
//! | product | by |
//! |---|---|
//! | `f32`, result in rows or columns | `tiles`, packed where that pays |
//! | the same, where many elements of the first matrix are 0 | `sparse`, which leaves them out |
//! | `f32`, up to three rows | `rows`, one pass over the matrix, or over what a single row does not multiply with 0 |
//! | `f64`, dot products, strides of another kind | the `gemm` crate, by `by_gemm` |

#![expect(unsafe_code, reason = "the product is called with pointers; its bounds are checked here")]

mod by_gemm;
mod lists;
mod packing;
mod rows;
mod sparse;
mod tiles;

use crate::buffer::Buffer;
use crate::parallel;
use by_gemm::by_gemm;
pub use by_gemm::multiply_by_gemm;
use tiles::{Finish, Packed, Right, Source, Target};

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
pub trait Product: Copy + Send + Sync + PartialOrd + std::ops::Add<Output = Self> + 'static {
    /// 0 and 1.
    const UNITS: [Self; 2];

    /// Multiplies by kernels of this crate; false if they have none for such matrices.
    ///
    /// # Safety
    /// As for `multiply_at`; no size is 0.
    unsafe fn multiply_here(
        _bases: Bases<Self>,
        _shapes: &Shapes,
        _finish: Finish<Self>,
        _threads: bool,
    ) -> bool {
        false
    }

    /// Elements of a matrix of so many rows and columns when it is packed; 0 if it never is.
    fn packed_len(_rows: usize, _columns: usize) -> usize {
        0
    }

    /// Packs a matrix of so many rows and columns for `multiply_packed`.
    ///
    /// # Safety
    /// The matrix may be read, and [`Product::packed_len`] elements from `to` on be written.
    unsafe fn pack(_memory: *mut Self, _sizes: [usize; 2], _matrix: (usize, [usize; 2]), _to: usize) {}

    /// Multiplies matrices of one memory, on several threads if it is worth it.
    ///
    /// # Safety
    /// As for `multiply_at`.
    unsafe fn multiply_within(memory: *mut Self, shapes: &Shapes) {
        let threads = is_large(shapes.sizes.iter().product());
        // SAFETY: as the caller promises.
        unsafe { multiply_at(Bases::one(memory), shapes, Finish::NONE, threads) }
    }

    /// Multiplies with a second operand that is packed at a place, if such numbers are packed, and with the one that the
    /// shapes name otherwise.
    ///
    /// # Safety
    /// As for `multiply_at`. What is packed is the second operand. The rows of the result are contiguous.
    unsafe fn multiply_packed(memory: *mut Self, shapes: &Shapes, _packed: usize) {
        // SAFETY: as the caller promises.
        unsafe { multiply_at(Bases::one(memory), shapes, Finish::NONE, false) }
    }
}

/// What the places of the three matrices of a product are counted from.
#[derive(Clone, Copy)]
pub struct Bases<T> {
    a: *const T,
    b: *const T,
    out: *mut T,
}

// SAFETY: threads that share it write to places that no other reads or writes.
unsafe impl<T: Send> Send for Bases<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Bases<T> {}

impl<T> Bases<T> {
    /// All three from one place.
    fn one(memory: *mut T) -> Bases<T> {
        Bases { a: memory, b: memory, out: memory }
    }
}

/// Where a matrix of a product is that does not lie in the memory of the others: what is element `inside` there is element
/// `outside` of another slice, and so are the `len` elements from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Elsewhere {
    /// The first element, counted in the memory.
    pub inside: usize,
    /// The first element, counted in the other slice.
    pub outside: usize,
    /// Elements.
    pub len: usize,
}

impl Elsewhere {
    /// Panics if the elements do not lie in a slice, or a matrix (its begin and its end) not among them.
    fn check(&self, (begin, end): (usize, usize), len: usize) {
        assert!(self.outside.saturating_add(self.len) <= len, "the elements lie in the other slice");
        assert!(
            begin >= self.inside && end <= self.inside.saturating_add(self.len),
            "the matrix lies among the elements that are elsewhere"
        );
    }
}

impl Shapes {
    /// Begin and end of the operands.
    fn operands(&self) -> [(usize, usize); 2] {
        let [m, n, k] = self.sizes;
        let ((a, a_strides), (b, b_strides)) = (self.a, self.b);
        [(a, a.saturating_add(span(m, k, a_strides))), (b, b.saturating_add(span(k, n, b_strides)))]
    }

    fn end_of_result(&self) -> usize {
        self.out.0.saturating_add(span(self.sizes[0], self.sizes[1], self.out.1))
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

    unsafe fn multiply_here(bases: Bases<f32>, shapes: &Shapes, finish: Finish<f32>, threads: bool) -> bool {
        let Some(product) = Tiled::new(bases, shapes, finish) else { return false };
        // SAFETY: as the caller promises.
        unsafe { product.run(threads) };
        true
    }

    fn packed_len(rows: usize, columns: usize) -> usize {
        packing::packed_len(rows, columns)
    }

    unsafe fn pack(memory: *mut f32, [rows, columns]: [usize; 2], matrix: (usize, [usize; 2]), to: usize) {
        let source = Source { at: memory.wrapping_add(matrix.0), strides: matrix.1 };
        // SAFETY: as the caller promises.
        unsafe { packing::pack(source, rows, columns, memory.add(to)) };
    }

    unsafe fn multiply_packed(memory: *mut f32, shapes: &Shapes, packed: usize) {
        if shapes.sizes[2] == 0 {
            // SAFETY: as the caller promises.
            return unsafe { multiply_at(Bases::one(memory), shapes, Finish::NONE, false) };
        }
        let (a, (out, [stride, _])) = (shapes.a, shapes.out);
        let a = Source { at: memory.wrapping_add(a.0), strides: a.1 };
        let at = memory.wrapping_add(out);
        let out = Target { at, stride, accumulate: shapes.accumulate, finish: Finish::NONE };
        let at = memory.wrapping_add(packed);
        let packed = Packed { at, columns: shapes.sizes[1], first: 0, is_finite: false };
        // SAFETY: as the caller promises.
        unsafe { tiles::multiply(shapes.sizes, a, Right::Packed(packed), out, false) }
    }
}

/// A product whose result lies in contiguous rows.
#[derive(Clone, Copy)]
struct Tiled {
    sizes: [usize; 3],
    a: Source,
    b: Right,
    out: Target,
    /// Whether the rows are so few that nothing is packed.
    few: bool,
    /// Whether it is known that all elements of a second operand that is not packed are finite.
    is_finite: bool,
}

// SAFETY: threads compute parts of the result that lie apart, and nothing else is written.
unsafe impl Send for Tiled {}
// SAFETY: as above.
unsafe impl Sync for Tiled {}

impl Tiled {
    /// The product, or its transpose if the result lies in columns; none if it lies otherwise.
    fn new(bases: Bases<f32>, shapes: &Shapes, finish: Finish<f32>) -> Option<Tiled> {
        let Shapes { sizes: [m, n, k], a, b, out: (out, [by_row, by_column]), accumulate } = *shapes;
        let a = Source { at: bases.a.wrapping_add(a.0), strides: a.1 };
        let b = Source { at: bases.b.wrapping_add(b.0), strides: b.1 };
        let turned = |source: Source| Source { strides: [source.strides[1], source.strides[0]], ..source };
        let target = |stride: usize| Target { at: bases.out.wrapping_add(out), stride, accumulate, finish };
        let (sizes, a, b, out) = if by_column == 1 || n == 1 {
            ([m, n, k], a, b, target(by_row))
        } else if (by_row == 1 || m == 1) && finish.bias.is_none() {
            ([n, m, k], turned(b), turned(a), target(by_column))
        } else {
            return None;
        };
        let few = sizes[0] <= rows::MOST_ROWS;
        // One row with a matrix that lies in columns is dot products, and so is one column.
        let is_dot = sizes[0] == 1 && b.strides[1] != 1 || sizes[1] == 1;
        let few = few && b.strides[1] == 1;
        (!is_dot).then_some(Tiled { sizes, a, b: Right::Plain(b), out, few, is_finite: false })
    }

    /// A part of the result: some columns, or some rows if they are more.
    fn part(self, part: usize, parts: usize) -> Tiled {
        let [m, n, k] = self.sizes;
        if m > n {
            let rows = parallel::share(m, part, parts);
            let at = self.out.at.wrapping_add(rows.start * self.out.stride);
            let out = Target { at, ..self.out };
            return Tiled { sizes: [rows.len(), n, k], a: self.a.offset(rows.start, 0), out, ..self };
        }
        // Whole panels, so that what is behind the last whole vector does not depend on the parts.
        let panels = parallel::share(n.div_ceil(tiles::WIDEST_PANEL), part, parts);
        let [begin, end] = [panels.start, panels.end].map(|panel| n.min(panel * tiles::WIDEST_PANEL));
        let finish = self.out.finish.at_column(begin);
        let out = Target { at: self.out.at.wrapping_add(begin), finish, ..self.out };
        Tiled { sizes: [m, end - begin, k], b: self.b.at_column(begin), out, ..self }
    }

    /// # Safety
    /// As for [`multiply_at`].
    unsafe fn run(self, threads: bool) {
        let parts = if threads { rayon::current_num_threads() } else { 1 };
        // Decided for the whole product, so that it does not depend on the number of threads.
        // SAFETY: as the caller promises.
        let by_lists = !self.few && unsafe { sparse::is_worth(self.sizes, self.a) };
        parallel::for_each_index(parts, |part| {
            // SAFETY: as the caller promises; the parts of a result lie apart.
            unsafe { self.part(part, parts).run_alone(by_lists) }
        });
    }

    /// # Safety
    /// As for [`multiply_at`].
    unsafe fn run_alone(self, by_lists: bool) {
        // SAFETY: as the caller promises.
        unsafe {
            match self.b {
                Right::Plain(b) if self.few => {
                    rows::multiply(self.sizes, self.a, b, self.out, self.is_finite);
                    finish_at(
                        self.out.at,
                        [self.sizes[0], self.sizes[1]],
                        [self.out.stride, 1],
                        self.out.finish,
                    );
                }
                b => tiles::multiply(self.sizes, self.a, b, self.out, by_lists),
            }
        }
    }
}

/// The second operand of a product, packed once for many, or at least looked through for numbers that are not finite.
#[derive(Clone, Debug)]
pub struct Panels {
    /// What is summed over, and columns.
    sizes: [usize; 2],
    /// Whether it is read as it lies.
    as_it_lies: bool,
    elements: Option<Buffer<f32>>,
    is_finite: bool,
}

impl Panels {
    /// For the second operand of a product; none if nothing is to be gained, or the result lies in columns.
    pub fn of(shapes: &Shapes) -> Option<Panels> {
        let [m, n, k] = shapes.sizes;
        let as_it_lies = m == 1 && shapes.b.1[1] == 1;
        let fits = (m > rows::MOST_ROWS || as_it_lies) && n > 1 && k > 0 && shapes.out.1[1] == 1;
        fits.then_some(Panels { sizes: [k, n], as_it_lies, elements: None, is_finite: false })
    }

    /// Whether nothing is packed.
    pub fn is_as_it_lies(&self) -> bool {
        self.as_it_lies
    }

    /// Takes note that the second operand may have changed, without a look at it; only if it is read as it lies.
    pub fn forget(&mut self) {
        self.is_finite = false;
    }

    /// Packs the second operand, or looks it through.
    ///
    /// # Panics
    /// If it has another size, or reaches beyond the slice.
    pub fn pack(&mut self, memory: &[f32], shapes: &Shapes) {
        let [_, n, k] = shapes.sizes;
        assert_eq!(self.sizes, [k, n], "the sizes are those that the panels were made for");
        let (begin, end) = shapes.operands()[1];
        assert!(end <= memory.len(), "the matrix lies in the slice");
        if self.as_it_lies {
            let is_finite = |x: &f32| x.to_bits() << 1 < f32::INFINITY.to_bits() << 1;
            // Without an end before the end of a piece: so it is done in vectors.
            let all = |piece: &[f32]| piece.iter().fold(true, |all, x| all & is_finite(x));
            self.is_finite = memory[begin..end].chunks(1024).all(all);
            return;
        }
        let source = Source { at: memory.as_ptr().wrapping_add(shapes.b.0), strides: shapes.b.1 };
        let elements = self.elements.get_or_insert_with(|| Buffer::zeroed(packing::packed_len(k, n)));
        // SAFETY: the matrix lies in the slice, and the panels have room for it.
        self.is_finite = unsafe { packing::pack(source, k, n, elements.as_mut_ptr()) };
    }
}

/// As [`multiply`], with a second operand that was packed, and an epilogue.
///
/// # Panics
/// As [`multiply_outside`], and if the panels were made for other sizes or strides, or not packed.
pub fn multiply_panels(memory: &mut [f32], shapes: &Shapes, epilogue: Option<Epilogue>, panels: &Panels) {
    let Shapes { sizes: [m, n, k], a, b, out, accumulate } = *shapes;
    check_one(memory.len(), shapes, epilogue);
    assert!(panels.sizes == [k, n] && out.1[1] == 1, "the sizes are those that the panels were made for");
    if m == 0 {
        return;
    }
    let base = memory.as_mut_ptr();
    let bias = epilogue.map(|epilogue| base.wrapping_add(epilogue.bias).cast_const());
    let finish = Finish { bias, relu: epilogue.is_some_and(|epilogue| epilogue.relu) };
    let source = |(at, strides): (usize, [usize; 2])| Source { at: base.wrapping_add(at), strides };
    let Panels { as_it_lies, is_finite, ref elements, .. } = *panels;
    let right = if as_it_lies {
        assert!(m == 1 && b.1[1] == 1, "the matrix is read as it lies");
        Right::Plain(source(b))
    } else {
        let elements = elements.as_ref().expect("the second operand was packed");
        Right::Packed(Packed { at: elements.as_ptr(), columns: n, first: 0, is_finite })
    };
    let product = Tiled {
        sizes: [m, n, k],
        a: source(a),
        b: right,
        out: Target { at: base.wrapping_add(out.0), stride: out.1[0], accumulate, finish },
        few: as_it_lies,
        is_finite,
    };
    // SAFETY: the matrices lie in the slice, which is borrowed exclusively, the result overlaps neither an operand nor
    // itself nor the bias, as was checked; the panels hold all of the second operand.
    unsafe { product.run(is_large(m * n * k)) }
}

impl Product for f64 {
    const UNITS: [f64; 2] = [0.0, 1.0];
}

/// Elements from the begin of a matrix to behind its last one.
pub(crate) fn span(rows: usize, columns: usize, [by_row, by_column]: [usize; 2]) -> usize {
    // A span that is too large for a number is too large for any slice too.
    let last = |count: usize, stride: usize| (count - 1).saturating_mul(stride);
    if rows == 0 || columns == 0 {
        0
    } else {
        last(rows, by_row).saturating_add(last(columns, by_column)).saturating_add(1)
    }
}

/// Whether no two elements of a matrix lie at one place.
fn is_injective(rows: usize, columns: usize, [by_row, by_column]: [usize; 2]) -> bool {
    let ahead =
        |small: usize, count: usize, large: usize| small > 0 && large > small.saturating_mul(count - 1);
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
    multiply_all(memory, std::slice::from_ref(shapes));
}

/// Multiplications that are worth a second thread: about 50 us of work on one.
const MANY: usize = 1 << 21;

/// Multiplies every pair of matrices of a batch, at the same time if the results lie behind each other and the operands
/// elsewhere.
///
/// # Panics
/// As [`multiply`].
pub fn multiply_all<T: Product>(memory: &mut [T], batch: &[Shapes]) {
    multiply_outside(memory, batch, None, Outside { from: &[], to: &mut [], elsewhere: [None; 3] });
}

/// What a product is finished with: a row that is added to all of its rows, and the rectifier behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epilogue {
    /// Where the row begins in the memory.
    pub bias: usize,
    /// Whether what is below zero becomes zero.
    pub relu: bool,
}

/// Slices beside the memory that the matrices of products lie in.
#[derive(Debug)]
pub struct Outside<'a, T> {
    /// Where operands are.
    pub from: &'a [T],
    /// Where the result is.
    pub to: &'a mut [T],
    /// Which of the two operands and the result, and where. Their places are counted as if they lay in the memory, too.
    pub elsewhere: [Option<Elsewhere>; 3],
}

/// As [`multiply_all`], with matrices that lie outside the memory; the results are finished by an epilogue.
///
/// # Panics
/// As [`multiply`], if a matrix that lies elsewhere reaches beyond what is said to, and if the row of the epilogue does not
/// lie in the memory or is part of a result.
pub fn multiply_outside<T: Product>(
    memory: &mut [T],
    batch: &[Shapes],
    epilogue: Option<Epilogue>,
    outside: Outside<'_, T>,
) {
    let Outside { from, to, elsewhere } = outside;
    for shapes in batch {
        check_one(memory.len(), shapes, epilogue);
        let [a, b] = shapes.operands();
        elsewhere[0].inspect(|place| place.check(a, from.len()));
        elsewhere[1].inspect(|place| place.check(b, from.len()));
        elsewhere[2].inspect(|place| place.check((shapes.out.0, shapes.end_of_result()), to.len()));
    }
    let mut bases = Bases::one(memory.as_mut_ptr());
    let bias = epilogue.map(|epilogue| bases.a.wrapping_add(epilogue.bias));
    let finish = Finish { bias, relu: epilogue.is_some_and(|epilogue| epilogue.relu) };
    let base = |place: Elsewhere| from.as_ptr().wrapping_add(place.outside).wrapping_sub(place.inside);
    bases.a = elsewhere[0].map_or(bases.a, base);
    bases.b = elsewhere[1].map_or(bases.b, base);
    if let Some(place) = elsewhere[2] {
        bases.out = to.as_mut_ptr().wrapping_add(place.outside).wrapping_sub(place.inside);
    }
    let work: usize = batch.iter().map(|shapes| shapes.sizes.iter().product::<usize>()).sum();
    if is_large(work) && batch.len() > 1 && is_independent(batch) {
        parallel::for_each_index(batch.len(), |i| {
            // SAFETY: the matrices lie in the slices, of which those that are written are borrowed exclusively; results are
            // disjoint from each other and from all operands, as was checked.
            unsafe { multiply_at(bases, &batch[i], finish, false) }
        });
        return;
    }
    for shapes in batch {
        let threads = is_large(shapes.sizes.iter().product());
        // SAFETY: all three matrices lie in the slices, of which those that are written are borrowed exclusively, and the
        // result overlaps neither operand nor itself, as was checked.
        unsafe { multiply_at(bases, shapes, finish, threads) }
    }
}

/// Panics if a product does not fit a slice of so many elements, or the row of the epilogue is not there to be read.
fn check_one(len: usize, shapes: &Shapes, epilogue: Option<Epilogue>) {
    shapes.check(len);
    if let Some(Epilogue { bias, .. }) = epilogue {
        let (end, (begin, _)) = (bias.saturating_add(shapes.sizes[1]), shapes.out);
        assert!(end <= len, "the bias lies in the slice");
        assert!(end <= begin || bias >= shapes.end_of_result(), "the bias is part of a result");
    }
}

/// Whether so many multiplications are shared among threads.
fn is_large(work: usize) -> bool {
    work >= MANY && rayon::current_num_threads() > 1
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

/// Multiplies two matrices into a third.
///
/// # Safety
/// The bias, if there is one, has a number for each column and may be read. The three matrices lie in memory that may be
/// read, and the third in memory that may be written and that nothing else
/// reads or writes meanwhile. The third overlaps neither of the others, and its elements lie apart.
unsafe fn multiply_at<T: Product>(bases: Bases<T>, shapes: &Shapes, finish: Finish<T>, threads: bool) {
    let Shapes { sizes: [m, n, k], out: (out, strides), accumulate, .. } = *shapes;
    let [zero, _] = T::UNITS;
    if k == 0 && !accumulate {
        for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
            // SAFETY: the element is one of the result.
            unsafe { bases.out.wrapping_add(out + row * strides[0] + column * strides[1]).write(zero) };
        }
    }
    if m == 0 || n == 0 || k == 0 {
        // SAFETY: as the caller promises.
        unsafe { finish_at(bases.out.wrapping_add(out), [m, n], strides, finish) };
        return;
    }
    // SAFETY: as the caller promises; no size is 0.
    if unsafe { T::multiply_here(bases, shapes, finish, threads) } {
        return;
    }
    // SAFETY: as the caller promises; no size is 0.
    unsafe {
        by_gemm(bases, shapes, threads);
        finish_at(bases.out.wrapping_add(out), [m, n], strides, finish);
    }
}

/// Finishes a result that is complete but for that.
///
/// # Safety
/// The elements of the result may be written, and the bias be read.
unsafe fn finish_at<T: Product>(out: *mut T, [m, n]: [usize; 2], strides: [usize; 2], finish: Finish<T>) {
    if finish.bias.is_none() && !finish.relu {
        return;
    }
    let [zero, _] = T::UNITS;
    let cut = |value: T| if finish.relu && value < zero { zero } else { value };
    for row in (0..m).map(|i| out.wrapping_add(i * strides[0])) {
        if let (Some(bias), 1) = (finish.bias, strides[1]) {
            // SAFETY: a contiguous row of the result, and the numbers of its columns.
            let (row, bias) =
                unsafe { (std::slice::from_raw_parts_mut(row, n), std::slice::from_raw_parts(bias, n)) };
            row.iter_mut().zip(bias).for_each(|(to, &bias)| *to = cut(*to + bias));
            continue;
        }
        for j in 0..n {
            // SAFETY: an element of the result, and the number of its column.
            unsafe {
                let to = row.add(j * strides[1]);
                *to = cut(finish.bias.map_or(*to, |bias| *to + *bias.add(j)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
