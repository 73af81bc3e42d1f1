//! Operations on every row of a row-major matrix: softmax, layer normalisation, means and variances.
//!
//! | columns | implementation |
//! |---|---|
//! | up to 16 | a vector holds the same column of several rows |
//! | up to 65536 | row by row, several threads for many rows |
//! | more | row by row, several threads for each |

use fearless_simd::{Simd, prelude::*};

use super::elementwise::{self, CHUNK_LEN};
use super::reduce::{mean, sum_of};
use super::softmax::{log_softmax_of, log_softmax_row, moments_of, softmax_of, softmax_row, sum_of_squares};
use super::{RealNumber, VectorError, check};
use crate::dtype::Element;
use crate::kernel::{level, math, norm};
use crate::parallel;

/// Columns of the longest rows of which a vector holds several.
const SHORT: usize = 16;

/// Elements of a group of rows that a thread processes.
const GROUP_LEN: usize = 1 << 15;

/// Computes the [`softmax`](super::softmax()) of every row of `columns` elements.
///
/// ```
/// use gatework_engine::vector;
///
/// let mut out = [0.0; 4];
/// vector::softmax_rows(&[0.0f32, 0.0, 1000.0, 0.0], 2, &mut out)?;
/// assert_eq!(out, [0.5, 0.5, 1.0, 0.0]);
///
/// let error = vector::softmax_rows(&[0.0f32; 5], 2, &mut out).unwrap_err();
/// assert_eq!(error.to_string(), "softmax_rows: `x` has 5 elements, which are not whole rows of 2");
/// # Ok::<(), vector::VectorError>(())
/// ```
pub fn softmax_rows<T: RealNumber>(x: &[T], columns: usize, out: &mut [T]) -> Result<(), VectorError> {
    check_rows("softmax_rows", "x", x.len(), columns)?;
    check("softmax_rows", "out", out.len(), x.len())?;
    (T::compiled_real().rows.softmax)(x, columns, out);
    Ok(())
}

/// Computes the [`log_softmax`](super::log_softmax) of every row of `columns` elements.
///
/// ```
/// use gatework_engine::vector;
///
/// let mut out = [0.0; 4];
/// vector::log_softmax_rows(&[0.0f64, 0.0, 7.0, 7.0], 2, &mut out)?;
/// assert_eq!(out, [-f64::ln(2.0); 4]);
/// # Ok::<(), vector::VectorError>(())
/// ```
pub fn log_softmax_rows<T: RealNumber>(x: &[T], columns: usize, out: &mut [T]) -> Result<(), VectorError> {
    check_rows("log_softmax_rows", "x", x.len(), columns)?;
    check("log_softmax_rows", "out", out.len(), x.len())?;
    (T::compiled_real().rows.log_softmax)(x, columns, out);
    Ok(())
}

/// Computes the layer normalisation of every row of `columns` elements: `gain[j] (x[i, j] - mean) / deviation + bias[j]`
/// with `deviation = sqrt(variance + epsilon)` and the population variance. `gain` and `bias` have `columns` elements.
///
/// ```
/// use gatework_engine::vector;
///
/// let x = [1.0f32, 3.0, 10.0, 30.0];
/// let mut out = [0.0; 4];
/// vector::layer_norm_rows(&x, 2, None, None, 0.0, &mut out)?;
/// assert_eq!(out, [-1.0, 1.0, -1.0, 1.0]);
/// vector::layer_norm_rows(&x, 2, Some(&[2.0, 3.0]), Some(&[0.0, 1.0]), 0.0, &mut out)?;
/// assert_eq!(out, [-2.0, 4.0, -2.0, 4.0]);
/// # Ok::<(), vector::VectorError>(())
/// ```
pub fn layer_norm_rows<T: RealNumber>(
    x: &[T],
    columns: usize,
    gain: Option<&[T]>,
    bias: Option<&[T]>,
    epsilon: f64,
    out: &mut [T],
) -> Result<(), VectorError> {
    check_rows("layer_norm_rows", "x", x.len(), columns)?;
    for (name, row) in [("gain", gain), ("bias", bias)] {
        row.map_or(Ok(()), |row| check("layer_norm_rows", name, row.len(), columns))?;
    }
    check("layer_norm_rows", "out", out.len(), x.len())?;
    (T::compiled_real().rows.layer_norm)(x, columns, [gain, bias], epsilon, out);
    Ok(())
}

/// Computes the mean of every row of `columns` elements; `out` has one element per row.
///
/// ```
/// use gatework_engine::vector;
///
/// let mut out = [0.0; 2];
/// vector::mean_rows(&[1.0f32, 2.0, 3.0, 6.0], 2, &mut out)?;
/// assert_eq!(out, [1.5, 4.5]);
/// # Ok::<(), vector::VectorError>(())
/// ```
pub fn mean_rows<T: RealNumber>(x: &[T], columns: usize, out: &mut [T]) -> Result<(), VectorError> {
    let rows = check_rows("mean_rows", "x", x.len(), columns)?;
    check("mean_rows", "out", out.len(), rows)?;
    (T::compiled_real().rows.mean)(x, columns, out);
    Ok(())
}

/// Computes the population variance of every row of `columns` elements, the mean of `(x - mean)^2`; `out` has one element
/// per row.
///
/// The mean is subtracted before the squares are summed, so a large mean does not cancel the digits of a small variance.
///
/// ```
/// use gatework_engine::vector;
///
/// let mut out = [0.0; 2];
/// vector::variance_rows(&[1.0f32, 3.0, 1e6, 1e6 + 2.0], 2, &mut out)?;
/// assert_eq!(out, [1.0, 1.0]);
/// # Ok::<(), vector::VectorError>(())
/// ```
pub fn variance_rows<T: RealNumber>(x: &[T], columns: usize, out: &mut [T]) -> Result<(), VectorError> {
    let rows = check_rows("variance_rows", "x", x.len(), columns)?;
    check("variance_rows", "out", out.len(), rows)?;
    (T::compiled_real().rows.variance)(x, columns, out);
    Ok(())
}

/// Returns the number of rows of a slice.
fn check_rows(
    operation: &'static str,
    slice: &'static str,
    len: usize,
    columns: usize,
) -> Result<usize, VectorError> {
    match len.checked_rem(columns) {
        Some(0) => Ok(len / columns),
        _ => Err(VectorError::Rows { operation, slice, len, columns }),
    }
}

/// Operation from rows to rows, or to a number per row.
type RowsWork<T> = fn(&[T], usize, &mut [T]);

/// The operations on rows, compiled for a type.
#[derive(Debug)]
pub(super) struct CompiledRows<T> {
    softmax: RowsWork<T>,
    log_softmax: RowsWork<T>,
    #[expect(clippy::type_complexity, reason = "the signature of one function")]
    layer_norm: fn(&[T], usize, [Option<&[T]>; 2], f64, &mut [T]),
    mean: RowsWork<T>,
    variance: RowsWork<T>,
}

impl<T: RealNumber> CompiledRows<T> {
    pub(super) const fn new() -> Self {
        Self {
            softmax: softmax_rows_of,
            log_softmax: log_softmax_rows_of,
            layer_norm: layer_norm_rows_of,
            mean: mean_rows_of,
            variance: variance_rows_of,
        }
    }
}

/// Runs `work` on all rows, or on groups of rows in parallel. A row of `x` has `columns` elements, one of `out` has
/// `out_columns`.
pub(crate) fn for_rows<T: Element, W: Copy + Sync + Send>(
    x: &[T],
    columns: usize,
    (out, out_columns): (&mut [T], usize),
    with: W,
    work: fn(&[T], &mut [T], W),
) {
    let rows = (GROUP_LEN / columns).max(1);
    if x.len() < 2 * rows * columns {
        return work(x, out, with);
    }
    let mut items = vec![(); out.len().div_ceil(rows * out_columns)];
    let (len, wake) = (rows * out_columns, elementwise::wake(x.len()));
    parallel::for_each_claimed_chunk(out, len, &mut items, wake, |index, out, ()| {
        let begin = index * rows * columns;
        work(&x[begin..begin + out.len() / out_columns * columns], out, with);
    });
}

/// Runs `long` on every row that is long enough for several threads, and `group` on groups of shorter rows, as [`for_rows`].
fn by_length<T: Element>(
    x: &[T],
    columns: usize,
    (out, out_columns): (&mut [T], usize),
    long: fn(&[T], &mut [T]),
    group: fn(&[T], &mut [T], usize),
) {
    if columns > CHUNK_LEN {
        let rows = x.chunks_exact(columns).zip(out.chunks_exact_mut(out_columns));
        rows.for_each(|(x, out)| long(x, out));
    } else if !x.is_empty() {
        for_rows(x, columns, (out, out_columns), columns, group);
    }
}

/// Returns a column of the rows of `x`, a row per lane. Lanes without a row repeat the first one.
#[inline(always)]
pub(crate) fn column_of_rows<S: Simd, V: SimdBase<S>>(
    simd: S,
    x: &[V::Element],
    columns: usize,
    column: usize,
) -> V {
    let mut lanes = V::splat(simd, x[column]);
    for (lane, row) in lanes.as_mut_slice().iter_mut().zip(x.chunks_exact(columns)) {
        *lane = row[column];
    }
    lanes
}

/// Replaces short rows by the result of `f`, which gets a vector per column with a row per lane.
#[inline(always)]
fn map_short_rows<S: Simd, V: SimdBase<S>>(
    simd: S,
    x: &[V::Element],
    columns: usize,
    out: &mut [V::Element],
    f: impl Fn(&mut [V]),
) {
    let mut block = [V::splat(simd, x[0]); SHORT];
    let block = &mut block[..columns];
    for (x, out) in x.chunks(V::LEN * columns).zip(out.chunks_mut(V::LEN * columns)) {
        for (column, to) in block.iter_mut().enumerate() {
            *to = column_of_rows(simd, x, columns, column);
        }
        f(block);
        for (column, from) in block.iter().enumerate() {
            for (out, &value) in out.chunks_exact_mut(columns).zip(from.as_slice()) {
                out[column] = value;
            }
        }
    }
}

/// Computes a number for each short row by `f`, which gets a vector per column with a row per lane.
#[inline(always)]
fn reduce_short_rows<S: Simd, V: SimdBase<S>>(
    simd: S,
    x: &[V::Element],
    columns: usize,
    out: &mut [V::Element],
    f: impl Fn(&[V]) -> V,
) {
    let mut block = [V::splat(simd, x[0]); SHORT];
    let block = &mut block[..columns];
    for (x, out) in x.chunks(V::LEN * columns).zip(out.chunks_mut(V::LEN)) {
        for (column, to) in block.iter_mut().enumerate() {
            *to = column_of_rows(simd, x, columns, column);
        }
        out.copy_from_slice(&f(block).as_slice()[..out.len()]);
    }
}

/// Returns the exponentials of columns minus the largest element of each row, their sum, and the largest element.
#[inline(always)]
fn exponentials<S: Simd, T: RealNumber>(simd: S, columns: &mut [T::Native<S>]) -> [T::Native<S>; 2] {
    let mut max = columns[0];
    for &column in &columns[1..] {
        max = max.max(column);
    }
    let mut sum = T::Native::<S>::splat(simd, T::ZERO);
    for column in columns {
        *column = math::exp::<S, T>(simd, *column - max);
        sum += *column;
    }
    [sum, max]
}

fn softmax_rows_of<T: RealNumber>(x: &[T], columns: usize, out: &mut [T]) {
    #[inline(always)]
    fn rows<S: Simd, T: RealNumber>(simd: S, x: &[T], columns: usize, out: &mut [T]) {
        if columns > SHORT {
            for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(columns)) {
                softmax_row(simd, x, out);
            }
            return;
        }
        map_short_rows::<S, T::Native<S>>(
            simd,
            x,
            columns,
            out,
            #[inline(always)]
            |columns| {
                let [sum, _] = exponentials::<S, T>(simd, columns);
                let factor = math::recip::<S, T>(simd, sum);
                for column in columns {
                    *column *= factor;
                }
            },
        );
    }
    by_length(x, columns, (out, columns), softmax_of, |x, out, columns| {
        dispatch!(level(), simd => rows(simd, x, columns, out));
    });
}

fn log_softmax_rows_of<T: RealNumber>(x: &[T], columns: usize, out: &mut [T]) {
    #[inline(always)]
    fn rows<S: Simd, T: RealNumber>(simd: S, x: &[T], columns: usize, out: &mut [T]) {
        if columns > SHORT {
            for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(columns)) {
                log_softmax_row(simd, x, out);
            }
            return;
        }
        map_short_rows::<S, T::Native<S>>(
            simd,
            x,
            columns,
            out,
            #[inline(always)]
            |columns| {
                let mut powers = [columns[0]; SHORT];
                let powers = &mut powers[..columns.len()];
                powers.copy_from_slice(columns);
                let [sum, max] = exponentials::<S, T>(simd, powers);
                let log_sum = math::log::<S, T>(simd, sum);
                for column in columns {
                    *column = *column - max - log_sum;
                }
            },
        );
    }
    by_length(x, columns, (out, columns), log_softmax_of, |x, out, columns| {
        dispatch!(level(), simd => rows(simd, x, columns, out));
    });
}

fn layer_norm_rows_of<T: RealNumber>(
    x: &[T],
    columns: usize,
    parameters: [Option<&[T]>; 2],
    epsilon: f64,
    out: &mut [T],
) {
    if columns > CHUNK_LEN {
        for (x, out) in x.chunks_exact(columns).zip(out.chunks_exact_mut(columns)) {
            long_layer_norm(x, parameters, epsilon, out);
        }
    } else if columns > SHORT {
        norm::normalise_rows(x, columns, parameters, epsilon, out);
    } else if !x.is_empty() {
        for_rows(
            x,
            columns,
            (out, columns),
            (columns, parameters, epsilon),
            |x, out, (columns, parameters, epsilon)| {
                dispatch!(level(), simd => short_layer_norm(simd, x, (columns, parameters, epsilon), out));
            },
        );
    }
}

#[inline(always)]
fn short_layer_norm<S: Simd, T: RealNumber>(
    simd: S,
    x: &[T],
    (columns, [gain, bias], epsilon): (usize, [Option<&[T]>; 2], f64),
    out: &mut [T],
) {
    map_short_rows::<S, T::Native<S>>(
        simd,
        x,
        columns,
        out,
        #[inline(always)]
        |columns| {
            let [mean, variance] = moments::<S, T>(simd, columns);
            let scale = math::rsqrt::<S, T>(simd, variance + T::from_f64(epsilon));
            for (j, column) in columns.iter_mut().enumerate() {
                let gain = T::Native::<S>::splat(simd, gain.map_or(T::ONE, |gain| gain[j]));
                let bias = T::Native::<S>::splat(simd, bias.map_or(T::ZERO, |bias| bias[j]));
                *column = ((*column - mean) * scale).mul_add(gain, bias);
            }
        },
    );
}

/// Normalises one long row, on several threads.
fn long_layer_norm<T: RealNumber>(x: &[T], [gain, bias]: [Option<&[T]>; 2], epsilon: f64, out: &mut [T]) {
    #[inline(always)]
    fn scale<S: Simd, T: RealNumber>(simd: S, x: &[T], mean: T, factor: T, out: &mut [T]) {
        elementwise::map::<S, T::Native<S>, { elementwise::UNROLL_CHEAP }, false>(
            simd,
            x,
            out,
            #[inline(always)]
            |x| (x - mean) * factor,
        );
    }
    let (mean, variance) = moments_of(x);
    let factor = T::from_f64(1.0 / (variance.to_f64() + epsilon).sqrt());
    elementwise::for_chunks2(x, out, (mean, factor), |x, out, (mean, factor)| {
        dispatch!(level(), simd => scale(simd, x, mean, factor, out));
    });
    if let Some(gain) = gain {
        super::mul_in_place(out, gain).expect("same length");
    }
    if let Some(bias) = bias {
        super::add_in_place(out, bias).expect("same length");
    }
}

/// Returns means and variances of rows, given their columns.
#[inline(always)]
fn moments<S: Simd, T: RealNumber>(simd: S, columns: &[T::Native<S>]) -> [T::Native<S>; 2] {
    let count = T::Native::<S>::splat(simd, T::from_f64(columns.len() as f64));
    let zero = T::Native::<S>::splat(simd, T::ZERO);
    let (mut sum, mut squares) = (zero, zero);
    for &column in columns {
        sum += column;
    }
    let mean = sum / count;
    for &column in columns {
        let centred = column - mean;
        squares += centred * centred;
    }
    [mean, squares / count]
}

fn mean_rows_of<T: RealNumber>(x: &[T], columns: usize, out: &mut [T]) {
    #[inline(always)]
    fn rows<S: Simd, T: RealNumber>(simd: S, x: &[T], columns: usize, out: &mut [T]) {
        if columns > SHORT {
            for (x, out) in x.chunks_exact(columns).zip(out) {
                *out = row_mean(simd, x);
            }
            return;
        }
        reduce_short_rows::<S, T::Native<S>>(
            simd,
            x,
            columns,
            out,
            #[inline(always)]
            |columns| moments::<S, T>(simd, columns)[0],
        );
    }
    by_length(
        x,
        columns,
        (out, 1),
        |x, out| out[0] = mean(x),
        |x, out, columns| {
            dispatch!(level(), simd => rows(simd, x, columns, out));
        },
    );
}

#[inline(always)]
fn row_mean<S: Simd, T: RealNumber>(simd: S, x: &[T]) -> T {
    let sum = sum_of::<S, T::Native<S>>(
        simd,
        x,
        #[inline(always)]
        |x| x,
    );
    sum / T::from_f64(x.len() as f64)
}

fn variance_rows_of<T: RealNumber>(x: &[T], columns: usize, out: &mut [T]) {
    #[inline(always)]
    fn rows<S: Simd, T: RealNumber>(simd: S, x: &[T], columns: usize, out: &mut [T]) {
        if columns > SHORT {
            let count = T::from_f64(columns as f64);
            for (x, out) in x.chunks_exact(columns).zip(out) {
                *out = sum_of_squares(simd, x, row_mean(simd, x)) / count;
            }
            return;
        }
        reduce_short_rows::<S, T::Native<S>>(
            simd,
            x,
            columns,
            out,
            #[inline(always)]
            |columns| moments::<S, T>(simd, columns)[1],
        );
    }
    by_length(
        x,
        columns,
        (out, 1),
        |x, out| out[0] = moments_of(x).1,
        |x, out, columns| {
            dispatch!(level(), simd => rows(simd, x, columns, out));
        },
    );
}

#[cfg(test)]
mod tests;
