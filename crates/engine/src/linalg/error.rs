//! Errors of matrix operations.

/// Error of a matrix operation: a slice, a view or a size that does not fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LinalgError {
    /// The length of a slice is not that of its matrix.
    #[error("{operation}: `{slice}` has {len} elements, but a {rows} x {columns} matrix has {expected}")]
    Length {
        /// The operation.
        operation: &'static str,
        /// The slice that does not fit.
        slice: &'static str,
        /// Its number of elements.
        len: usize,
        /// Rows of its matrix.
        rows: usize,
        /// Columns of its matrix.
        columns: usize,
        /// The required number of elements.
        expected: usize,
    },
    /// The number of elements of a matrix exceeds `usize`.
    #[error("{operation}: `{slice}` cannot be a {rows} x {columns} matrix, which exceeds the address space")]
    TooLarge {
        /// The operation.
        operation: &'static str,
        /// The slice.
        slice: &'static str,
        /// Rows of its matrix.
        rows: usize,
        /// Columns of its matrix.
        columns: usize,
    },
    /// A view reaches beyond the end of its slice.
    #[error(
        "a {rows} x {columns} view with strides {row_stride} and {column_stride} needs {needed} elements, but the slice \
         has {len}"
    )]
    OutOfBounds {
        /// Rows of the view.
        rows: usize,
        /// Columns of the view.
        columns: usize,
        /// Elements from a row to the next.
        row_stride: usize,
        /// Elements from a column to the next.
        column_stride: usize,
        /// The number of elements of the slice.
        len: usize,
        /// The required number of elements, or `usize::MAX` if there are more.
        needed: usize,
    },
    /// Two elements of a mutable view have the same place in the slice, or cannot be shown to have different ones.
    #[error(
        "elements of a mutable {rows} x {columns} view with strides {row_stride} and {column_stride} overlap: one stride \
         must span the whole other axis"
    )]
    Overlap {
        /// Rows of the view.
        rows: usize,
        /// Columns of the view.
        columns: usize,
        /// Elements from a row to the next.
        row_stride: usize,
        /// Elements from a column to the next.
        column_stride: usize,
    },
    /// A range of rows or columns is not within a view.
    #[error("rows {rows:?} and columns {columns:?} are not within a {view_rows} x {view_columns} view")]
    Range {
        /// The rows.
        rows: std::ops::Range<usize>,
        /// The columns.
        columns: std::ops::Range<usize>,
        /// Rows of the view.
        view_rows: usize,
        /// Columns of the view.
        view_columns: usize,
    },
    /// The sizes of two factors do not match.
    #[error(
        "{operation}: `a` is {} x {}, but `b` is {} x {}: it needs as many rows as `a` has columns",
        a[0], a[1], b[0], b[1]
    )]
    Factors {
        /// The operation.
        operation: &'static str,
        /// Rows and columns of the first factor.
        a: [usize; 2],
        /// Rows and columns of the second factor.
        b: [usize; 2],
    },
    /// The size of the result does not match those of the factors.
    #[error("{operation}: `out` is {} x {}, but the product is {} x {}", out[0], out[1], product[0], product[1])]
    Result {
        /// The operation.
        operation: &'static str,
        /// Rows and columns of `out`.
        out: [usize; 2],
        /// Rows and columns of the product.
        product: [usize; 2],
    },
}

/// Checks that a slice has the length of a matrix.
pub(super) fn check(
    operation: &'static str,
    slice: &'static str,
    len: usize,
    [rows, columns]: [usize; 2],
) -> Result<(), LinalgError> {
    match rows.checked_mul(columns) {
        None => Err(LinalgError::TooLarge { operation, slice, rows, columns }),
        Some(expected) if len != expected => {
            Err(LinalgError::Length { operation, slice, len, rows, columns, expected })
        }
        Some(_) => Ok(()),
    }
}
