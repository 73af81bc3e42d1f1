//! Matrices anywhere in a slice, with a stride per axis.

use std::ops::Range;

use super::LinalgError;
use super::error::check;
use crate::kernel::matmul::{is_injective, span};

/// Sizes and strides of a matrix in a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Rows and columns.
    pub sizes: [usize; 2],
    /// Elements from a row to the next, and from a column to the next.
    pub strides: [usize; 2],
}

impl Layout {
    /// Returns the layout of a matrix within `len` elements.
    fn new(
        operation: &'static str,
        len: usize,
        sizes: [usize; 2],
        strides: [usize; 2],
    ) -> Result<Layout, LinalgError> {
        let ([rows, columns], [row_stride, column_stride]) = (sizes, strides);
        let needed = span(rows, columns, strides);
        if rows.checked_mul(columns).is_none() {
            return Err(LinalgError::TooLarge { operation, slice: "data", rows, columns });
        }
        if needed > len {
            return Err(LinalgError::OutOfBounds { rows, columns, row_stride, column_stride, len, needed });
        }
        Ok(Layout { sizes, strides })
    }

    /// Returns the layout of a row-major matrix that fills a slice.
    fn contiguous(operation: &'static str, len: usize, sizes: [usize; 2]) -> Result<Layout, LinalgError> {
        check(operation, "data", len, sizes)?;
        Ok(Layout { sizes, strides: [sizes[1], 1] })
    }

    fn transposed(self) -> Layout {
        let ([rows, columns], [row_stride, column_stride]) = (self.sizes, self.strides);
        Layout { sizes: [columns, rows], strides: [column_stride, row_stride] }
    }

    /// Returns the layout of a block, and the range of the slice that begins with its first element.
    fn block(self, rows: Range<usize>, columns: Range<usize>) -> Result<(Layout, Range<usize>), LinalgError> {
        let [view_rows, view_columns] = self.sizes;
        let is_within = |range: &Range<usize>, len| range.start <= range.end && range.end <= len;
        if !is_within(&rows, view_rows) || !is_within(&columns, view_columns) {
            return Err(LinalgError::Range { rows, columns, view_rows, view_columns });
        }
        let sizes = [rows.len(), columns.len()];
        let len = span(sizes[0], sizes[1], self.strides);
        // The first element of an empty block may be after the end of the slice.
        let begin = if len == 0 { 0 } else { rows.start * self.strides[0] + columns.start * self.strides[1] };
        Ok((Layout { sizes, ..self }, begin..begin + len))
    }

    fn index(self, row: usize, column: usize) -> Option<usize> {
        (row < self.sizes[0] && column < self.sizes[1])
            .then(|| row * self.strides[0] + column * self.strides[1])
    }

    /// Returns whether the rows are contiguous and follow each other.
    pub fn is_contiguous(self) -> bool {
        let [rows, columns] = self.sizes;
        (self.strides[1] == 1 || columns <= 1) && (self.strides[0] == columns || rows <= 1)
    }
}

/// Matrix in a borrowed slice: element `(i, j)` is element `i * row_stride + j * column_stride` of the slice.
///
/// ```
/// use gatework_engine::linalg::MatrixView;
///
/// let data = [1, 2, 3, 4, 5, 6];
/// let a = MatrixView::new(&data, 2, 3)?;
/// assert_eq!(a.get(1, 0), Some(4));
/// assert_eq!(a.transposed().get(0, 1), Some(4));
/// // Every second column, and the first row repeated: strides may be anything that stays within the slice.
/// assert_eq!(MatrixView::with_strides(&data, 2, 2, 3, 2)?.get(1, 1), Some(6));
/// assert_eq!(MatrixView::with_strides(&data, 5, 3, 0, 1)?.get(4, 2), Some(3));
/// # Ok::<(), gatework_engine::linalg::LinalgError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MatrixView<'a, T> {
    pub(super) data: &'a [T],
    pub(super) layout: Layout,
}

impl<'a, T: Copy> MatrixView<'a, T> {
    /// Returns a row-major matrix that fills the slice.
    pub fn new(data: &'a [T], rows: usize, columns: usize) -> Result<Self, LinalgError> {
        Ok(Self { data, layout: Layout::contiguous("MatrixView::new", data.len(), [rows, columns])? })
    }

    /// Returns a matrix with any strides. A stride of 0 repeats a row or a column.
    pub fn with_strides(
        data: &'a [T],
        rows: usize,
        columns: usize,
        row_stride: usize,
        column_stride: usize,
    ) -> Result<Self, LinalgError> {
        let strides = [row_stride, column_stride];
        let layout = Layout::new("MatrixView::with_strides", data.len(), [rows, columns], strides)?;
        Ok(Self { data, layout })
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.layout.sizes[0]
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.layout.sizes[1]
    }

    /// Returns the number of elements from a row to the next.
    pub fn row_stride(&self) -> usize {
        self.layout.strides[0]
    }

    /// Returns the number of elements from a column to the next.
    pub fn column_stride(&self) -> usize {
        self.layout.strides[1]
    }

    /// Returns an element, or `None` if there is none.
    pub fn get(&self, row: usize, column: usize) -> Option<T> {
        self.layout.index(row, column).map(|index| self.data[index])
    }

    /// Returns the transposed matrix, without copying.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { layout: self.layout.transposed(), ..self }
    }

    /// Returns a block of the matrix.
    pub fn block(self, rows: Range<usize>, columns: Range<usize>) -> Result<Self, LinalgError> {
        let (layout, range) = self.layout.block(rows, columns)?;
        Ok(Self { data: &self.data[range], layout })
    }
}

/// Mutable matrix in a borrowed slice. No two elements have the same place in the slice.
///
/// ```
/// use gatework_engine::linalg::{MatrixView, MatrixViewMut, matmul_views};
///
/// // The product is written transposed.
/// let (a, b) = ([1, 2, 3, 4], [1, 1, 0, 1]);
/// let mut out = [0; 4];
/// let (a, b) = (MatrixView::new(&a, 2, 2)?, MatrixView::new(&b, 2, 2)?);
/// matmul_views(a, b, MatrixViewMut::new(&mut out, 2, 2)?.transposed())?;
/// assert_eq!(out, [1, 3, 3, 7]);
/// # Ok::<(), gatework_engine::linalg::LinalgError>(())
/// ```
#[derive(Debug)]
pub struct MatrixViewMut<'a, T> {
    pub(super) data: &'a mut [T],
    pub(super) layout: Layout,
}

impl<'a, T: Copy> MatrixViewMut<'a, T> {
    /// Returns a row-major matrix that fills the slice.
    pub fn new(data: &'a mut [T], rows: usize, columns: usize) -> Result<Self, LinalgError> {
        let layout = Layout::contiguous("MatrixViewMut::new", data.len(), [rows, columns])?;
        Ok(Self { data, layout })
    }

    /// Returns a matrix with any strides that give each element a place of its own: one stride must be larger than the other
    /// axis is long in memory.
    pub fn with_strides(
        data: &'a mut [T],
        rows: usize,
        columns: usize,
        row_stride: usize,
        column_stride: usize,
    ) -> Result<Self, LinalgError> {
        let strides = [row_stride, column_stride];
        let layout = Layout::new("MatrixViewMut::with_strides", data.len(), [rows, columns], strides)?;
        if rows > 0 && columns > 0 && !is_injective(rows, columns, strides) {
            return Err(LinalgError::Overlap { rows, columns, row_stride, column_stride });
        }
        Ok(Self { data, layout })
    }

    /// Returns the matrix for reading; it has the sizes, strides and elements.
    pub fn as_view(&self) -> MatrixView<'_, T> {
        MatrixView { data: self.data, layout: self.layout }
    }

    /// Borrows the matrix for a shorter time, to use it more than once.
    pub fn reborrow(&mut self) -> MatrixViewMut<'_, T> {
        MatrixViewMut { data: self.data, layout: self.layout }
    }

    /// Returns an element for writing, or `None` if there is none.
    pub fn get_mut(&mut self, row: usize, column: usize) -> Option<&mut T> {
        self.layout.index(row, column).map(|index| &mut self.data[index])
    }

    /// Returns the transposed matrix, without copying.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { layout: self.layout.transposed(), ..self }
    }

    /// Returns a block of the matrix.
    pub fn block(self, rows: Range<usize>, columns: Range<usize>) -> Result<Self, LinalgError> {
        let (layout, range) = self.layout.block(rows, columns)?;
        Ok(Self { data: &mut self.data[range], layout })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(crate::kernel::tests::cases(256))]

        #[test]
        fn views_that_are_accepted_stay_in_their_slice_and_mutable_ones_do_not_overlap(
            len in 0usize..40, rows in 0usize..6, columns in 0usize..6, strides in prop::array::uniform2(0usize..12),
        ) {
            let mut data: Vec<usize> = (0..len).collect();
            let places = |view: MatrixView<'_, usize>| -> Vec<usize> {
                (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))).map(|(i, j)| view.get(i, j).unwrap()).collect()
            };
            let last = (rows > 0 && columns > 0).then(|| (rows - 1) * strides[0] + (columns - 1) * strides[1]);
            let view = MatrixView::with_strides(&data, rows, columns, strides[0], strides[1]);
            prop_assert_eq!(view.is_ok(), last.is_none_or(|last| last < len));
            if let Ok(view) = view {
                prop_assert_eq!(places(view).last().copied(), last);
                for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
                    prop_assert_eq!(view.get(i, j), view.transposed().get(j, i));
                    prop_assert_eq!(view.get(i, j), view.block(i..rows, j..columns).unwrap().get(0, 0));
                }
                prop_assert_eq!(view.get(rows, 0), None);
            }
            if let Ok(view) = MatrixViewMut::with_strides(&mut data, rows, columns, strides[0], strides[1]) {
                let mut places = places(view.as_view());
                places.sort_unstable();
                places.dedup();
                prop_assert_eq!(places.len(), rows * columns);
            }
        }
    }

    #[test]
    fn views_that_do_not_fit_are_errors_that_name_the_numbers() {
        let data = [0; 12];
        let text = |error: LinalgError| error.to_string();
        assert_eq!(
            text(MatrixView::new(&data, 3, 5).unwrap_err()),
            "MatrixView::new: `data` has 12 elements, but a 3 x 5 matrix has 15"
        );
        assert_eq!(
            text(MatrixView::with_strides(&data, 3, 4, 5, 1).unwrap_err()),
            "a 3 x 4 view with strides 5 and 1 needs 14 elements, but the slice has 12"
        );
        assert_eq!(
            text(MatrixViewMut::with_strides(&mut [0; 12], 3, 4, 1, 1).unwrap_err()),
            "elements of a mutable 3 x 4 view with strides 1 and 1 overlap: one stride must span the whole other axis"
        );
        assert_eq!(
            text(MatrixView::new(&data, 3, 4).unwrap().block(1..4, 0..1).unwrap_err()),
            "rows 1..4 and columns 0..1 are not within a 3 x 4 view"
        );
        for huge in [usize::MAX, usize::MAX / 2, 1 << 40] {
            assert!(MatrixView::new(&data, huge, huge).is_err());
            assert!(MatrixView::with_strides(&data, huge, huge, 0, 0).is_err());
            assert!(MatrixView::with_strides(&data, huge, 2, huge, huge).is_err());
            assert!(MatrixViewMut::with_strides(&mut [0; 3], huge, 1, 0, 1).is_err());
        }
        assert_eq!(MatrixView::new(&data[..0], 0, usize::MAX).unwrap().get(0, 0), None);
        assert!(MatrixView::new(&data, 3, 4).unwrap().block(3..3, 4..4).is_ok());
    }
}
