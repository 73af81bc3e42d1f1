//! Second operands that are prepared once for many multiplications.
//!
//! A [`PackedMatrix`] holds a matrix in panels only. One format serves any number of rows, so that programs for several
//! batch sizes can share it. [`PreparedRhs`] belongs to one multiplication and reads a matrix in place where that is faster.

use super::tiles::{EpiloguePtr, Packed, Rhs, Source, Target};
use super::{
    Bases, Epilogue, Gemm, Tiled, check_bias, is_independent, is_large, multiplications, packing, skinny,
    span,
};
use crate::buffer::Buffer;
use crate::kernel::half::{Half, narrow, widen};
use crate::parallel;

/// A matrix `[depth, columns]` in the order in which the micro-kernels read it.
///
/// ```
/// use gatework_engine::kernel::matmul::PackedMatrix;
///
/// let matrix = PackedMatrix::pack(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3], (0, [3, 1]));
/// let mut elements = [0.0; 6];
/// matrix.unpack(&mut elements, (0, [3, 1]));
/// assert_eq!(elements, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// ```
#[derive(Clone, Debug)]
pub struct PackedMatrix {
    /// Depth and columns.
    sizes: [usize; 2],
    /// Columns of a panel, which depend on the instruction set.
    panel: usize,
    elements: Elements,
    is_finite: bool,
}

#[derive(Clone, Debug)]
enum Elements {
    F32(Buffer<f32>),
    /// The bits of half-precision numbers.
    F16(Vec<u16>),
}

impl PackedMatrix {
    /// Packs the matrix of these sizes at an offset of a slice, with row and column strides.
    ///
    /// # Panics
    /// If the matrix is out of bounds of the slice, or its packed size overflows.
    pub fn pack(from: &[f32], sizes: [usize; 2], matrix: (usize, [usize; 2])) -> PackedMatrix {
        let panel = packing::panel_columns();
        let len = sizes[1].checked_next_multiple_of(panel).and_then(|columns| columns.checked_mul(sizes[0]));
        let mut elements = Buffer::zeroed(len.expect("the packed matrix exceeds the address space"));
        let is_finite = pack_into(from, sizes, matrix, &mut elements);
        PackedMatrix { sizes, panel, elements: Elements::F32(elements), is_finite }
    }

    /// Rounds the elements to half precision: half the memory. They are expanded while they are multiplied. Elements of 65520
    /// and more become infinite.
    #[must_use]
    pub fn to_half(&self) -> PackedMatrix {
        let Elements::F32(elements) = &self.elements else { return self.clone() };
        let mut halves = vec![0; elements.len()];
        narrow(Half::F16, elements, &mut halves);
        let is_finite = halves.iter().all(|half| half & 0x7c00 != 0x7c00);
        PackedMatrix { elements: Elements::F16(halves), is_finite, ..*self }
    }

    /// Packs another matrix of the same sizes in its place.
    fn repack(&mut self, from: &[f32], matrix: (usize, [usize; 2])) {
        match &mut self.elements {
            Elements::F32(elements) if self.panel == packing::panel_columns() => {
                self.is_finite = pack_into(from, self.sizes, matrix, elements);
            }
            _ => *self = PackedMatrix::pack(from, self.sizes, matrix),
        }
    }

    /// Writes the elements to the place of a matrix in a slice: the inverse of [`PackedMatrix::pack`], bit by bit.
    ///
    /// # Panics
    /// If the matrix is out of bounds of the slice.
    pub fn unpack(&self, to: &mut [f32], (offset, [by_row, by_column]): (usize, [usize; 2])) {
        let [depth, columns] = self.sizes;
        let mut widened = Vec::new();
        let elements = match &self.elements {
            Elements::F32(elements) => &elements[..],
            Elements::F16(halves) => {
                widened.resize(halves.len(), 0.0);
                widen(Half::F16, halves, &mut widened);
                &widened
            }
        };
        for row in 0..depth {
            for column in 0..columns {
                let at = packing::element_index(row, column, self.sizes, self.panel);
                to[offset + row * by_row + column * by_column] = elements[at];
            }
        }
    }

    /// Returns the depth and the number of columns.
    pub fn sizes(&self) -> [usize; 2] {
        self.sizes
    }

    /// Returns the bytes of the panels.
    pub fn bytes(&self) -> usize {
        match &self.elements {
            Elements::F32(elements) => size_of_val(&**elements),
            Elements::F16(halves) => size_of_val(&halves[..]),
        }
    }

    /// Returns the panels as a second operand.
    fn operand(&self) -> Rhs {
        let (columns, first, is_finite) = (self.sizes[1], 0, self.is_finite);
        match &self.elements {
            Elements::F32(elements) => {
                Rhs::Packed(Packed { at: elements.as_ptr(), columns, first, is_finite })
            }
            Elements::F16(halves) => Rhs::Half(Packed { at: halves.as_ptr(), columns, first, is_finite }),
        }
    }
}

/// Packs a matrix into panels of this instruction set, and returns whether it is finite.
fn pack_into(
    from: &[f32],
    [depth, columns]: [usize; 2],
    (offset, strides): (usize, [usize; 2]),
    to: &mut [f32],
) -> bool {
    let end = offset.saturating_add(span(depth, columns, strides));
    assert!(end <= from.len(), "matrix out of bounds of the slice");
    assert_eq!(
        to.len(),
        depth * columns.next_multiple_of(packing::panel_columns()),
        "wrong number of panels"
    );
    let source = Source { at: from.as_ptr().wrapping_add(offset), strides };
    // SAFETY: the matrix is in bounds, and there is room for all panels of this instruction set.
    unsafe { packing::pack(source, depth, columns, to.as_mut_ptr()) }
}

/// Multiplies a batch like [`multiply_all`](super::multiply_all), with a packed second operand and an epilogue. The second
/// operands of the batch are not read. The results have the bits of the unpacked multiplication, except that a sum may be -0
/// instead of 0, and that up to three rows times a matrix whose rows are not contiguous are added in another order; with
/// elements in half precision, the bits are those of the rounded matrix.
///
/// # Panics
/// If a first operand, a result or the bias is out of bounds, a result aliases anything, its rows are not contiguous, or the
/// packed matrix has other sizes.
pub fn multiply_packed(
    memory: &mut [f32],
    batch: &[Gemm],
    epilogue: Option<Epilogue>,
    matrix: &PackedMatrix,
) {
    for gemm in batch {
        let [m, n, k] = gemm.sizes;
        assert!(matrix.sizes == [k, n] && gemm.out.1[1] == 1, "the matrix was packed for another size");
        gemm.check_against(&gemm.operands()[..1], memory.len());
        check_bias(memory.len(), gemm, epilogue);
        assert!(k > 0 || m == 0, "the depth is 0");
    }
    assert_eq!(matrix.panel, packing::panel_columns(), "packed for another instruction set");
    let bases = Bases::same(memory.as_mut_ptr());
    if is_large(multiplications(batch)) && batch.len() > 1 && is_independent(batch, 1) {
        parallel::for_each_index(batch.len(), |i| {
            // SAFETY: as below; the results are disjoint from each other and from all operands, as was checked.
            unsafe { product(&bases, &batch[i], epilogue, matrix).run(false) }
        });
        return;
    }
    for gemm in batch.iter().filter(|gemm| gemm.sizes[0] > 0 && gemm.sizes[1] > 0) {
        let threads = is_large(gemm.multiplications());
        // SAFETY: the matrices are in bounds of the slice, which is borrowed exclusively; the result aliases neither the
        // operand nor itself nor the bias, as was checked; the panels hold the whole second operand.
        unsafe { product(&bases, gemm, epilogue, matrix).run(threads) }
    }
}

/// Returns the multiplication of matrices in a memory with a packed one.
fn product(bases: &Bases<f32>, gemm: &Gemm, epilogue: Option<Epilogue>, matrix: &PackedMatrix) -> Tiled {
    let base = bases.out;
    let &Gemm { sizes, a: (a, strides), out: (out, [stride, _]), accumulate, .. } = gemm;
    Tiled {
        sizes,
        a: Source { at: base.wrapping_add(a), strides },
        b: matrix.operand(),
        out: Target { at: base.wrapping_add(out), stride, accumulate, epilogue: pointer(base, epilogue) },
        is_skinny: sizes[0] <= skinny::MAX_ROWS,
        // Zeros are skipped for a single row. Otherwise, the thread of a chunk of one row must not skip them.
        is_finite: matrix.is_finite && sizes[0] == 1,
    }
}

fn pointer(base: *mut f32, epilogue: Option<Epilogue>) -> EpiloguePtr<f32> {
    let bias = epilogue.map(|epilogue| base.wrapping_add(epilogue.bias).cast_const());
    EpiloguePtr { bias, relu: epilogue.is_some_and(|epilogue| epilogue.relu) }
}

/// Second operand of one repeated multiplication: packed, or checked for non-finite elements if it is read in place.
#[derive(Clone, Debug)]
pub struct PreparedRhs {
    /// Depth and columns.
    sizes: [usize; 2],
    /// Whether it is read in place.
    is_unpacked: bool,
    pub(super) is_finite: bool,
    matrix: Option<PackedMatrix>,
}

impl PreparedRhs {
    /// Creates the operand without packing it. Returns `None` if packing gains nothing or the result is column-major.
    pub fn new(gemm: &Gemm) -> Option<PreparedRhs> {
        let [m, n, k] = gemm.sizes;
        let is_unpacked = m == 1 && gemm.b.1[1] == 1;
        let fits = (m > skinny::MAX_ROWS || is_unpacked) && n > 1 && k > 0 && gemm.out.1[1] == 1;
        fits.then_some(PreparedRhs { sizes: [k, n], is_unpacked, is_finite: false, matrix: None })
    }

    /// Returns whether the operand is read in place.
    pub fn is_unpacked(&self) -> bool {
        self.is_unpacked
    }

    /// Invalidates the check for non-finite elements, after an unpacked operand has changed.
    pub fn forget(&mut self) {
        self.is_finite = false;
    }

    /// Packs the operand, or checks it for non-finite elements if it is read in place.
    ///
    /// # Panics
    /// If it has another size, or is out of bounds.
    pub fn pack(&mut self, memory: &[f32], gemm: &Gemm) {
        let [_, n, k] = gemm.sizes;
        assert_eq!(self.sizes, [k, n], "the operand was prepared for another size");
        let (begin, end) = gemm.operands()[1];
        assert!(end <= memory.len(), "matrix out of bounds of the slice");
        if self.is_unpacked {
            let is_finite = |x: &f32| x.to_bits() << 1 < f32::INFINITY.to_bits() << 1;
            // Without an early exit within a chunk, the compiler vectorises the loop.
            let all = |chunk: &[f32]| chunk.iter().fold(true, |all, x| all & is_finite(x));
            self.is_finite = memory[begin..end].chunks(1024).all(all);
            return;
        }
        match &mut self.matrix {
            Some(matrix) => matrix.repack(memory, gemm.b),
            None => self.matrix = Some(PackedMatrix::pack(memory, [k, n], gemm.b)),
        }
        self.is_finite = self.matrix.as_ref().is_some_and(|matrix| matrix.is_finite);
    }
}

/// Multiplies like [`multiply`](super::multiply), with a prepared second operand and an epilogue.
///
/// # Panics
/// Under the conditions of [`multiply_external`](super::multiply_external), and if the operand was prepared for another size
/// or layout, or not packed.
pub fn multiply_prepared(memory: &mut [f32], gemm: &Gemm, epilogue: Option<Epilogue>, operand: &PreparedRhs) {
    if !operand.is_unpacked {
        let matrix = operand.matrix.as_ref().expect("the second operand is packed before it is used");
        return multiply_packed(memory, std::slice::from_ref(gemm), epilogue, matrix);
    }
    let Gemm { sizes: [m, n, k], a, b, out, accumulate } = *gemm;
    super::check_one(memory.len(), gemm, epilogue);
    assert!(operand.sizes == [k, n] && out.1[1] == 1, "the operand was prepared for another size");
    if m == 0 {
        return;
    }
    assert!(m == 1 && b.1[1] == 1, "an unpacked operand needs a single row and contiguous columns");
    let base = memory.as_mut_ptr();
    let source = |(at, strides): (usize, [usize; 2])| Source { at: base.wrapping_add(at), strides };
    let epilogue = pointer(base, epilogue);
    let product = Tiled {
        sizes: [m, n, k],
        a: source(a),
        b: Rhs::Unpacked(source(b)),
        out: Target { at: base.wrapping_add(out.0), stride: out.1[0], accumulate, epilogue },
        is_skinny: true,
        is_finite: operand.is_finite,
    };
    // SAFETY: the matrices are in bounds of the slice, which is borrowed exclusively; the result aliases neither an operand
    // nor itself nor the bias, as was checked.
    unsafe { product.run(is_large(gemm.multiplications())) }
}
