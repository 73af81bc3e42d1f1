//! The softmax of rows of scores, and what its gradient makes of them.

use std::ops::Range;

use fearless_simd::{Simd, prelude::*};

use super::super::math::{self, Real, Vector};
use super::panels::{load, panel, store};

/// Scores of a block of rows: [panels][rows][panel], the last panel perhaps not full.
#[derive(Clone, Copy)]
pub(super) struct Scores<T> {
    pub at: *mut T,
    pub rows: usize,
    pub columns: usize,
    pub scale: T,
}

/// Makes each score x of a row `e^(scale (x - largest))`, and 0 behind the last column; and each factor one over the sum of
/// its row.
///
/// # Safety
/// The panels may be read and written, and nothing else does.
#[inline(never)]
pub(super) unsafe fn exponentials<S: Simd, T: Real>(simd: S, scores: Scores<T>, factors: &mut [T]) {
    simd.vectorize(
        #[inline(always)]
        || {
            for first in (0..scores.rows).step_by(GROUP) {
                let rows = first..scores.rows.min(first + GROUP);
                // SAFETY: rows of the scores.
                let sums = unsafe { scores.exponentials(simd, rows.clone(), None) };
                for (factor, [sum, _]) in factors[rows].iter_mut().zip(sums) {
                    *factor = T::ONE / sum;
                }
            }
        },
    );
}

/// Makes scores weights, and the gradients of the weights those of the scores.
///
/// # Safety
/// The panels of scores and gradients may be read and written, and nothing else does; they lie apart.
#[inline(never)]
pub(super) unsafe fn softmax_gradient<S: Simd, T: Real>(simd: S, scores: Scores<T>, gradients: *mut T) {
    simd.vectorize(
        #[inline(always)]
        || {
            for first in (0..scores.rows).step_by(GROUP) {
                let rows = first..scores.rows.min(first + GROUP);
                // SAFETY: rows of the scores and of the gradients.
                unsafe {
                    let sums = scores.exponentials(simd, rows.clone(), Some(gradients));
                    for (i, [sum, product]) in rows.zip(sums) {
                        let (factor, gradients) = (T::ONE / sum, gradients.add(i * panel::<S, T>()));
                        let numbers = [factor, factor * scores.scale, product * factor];
                        scores.row::<S>(i).gradients(simd, gradients, numbers);
                    }
                }
            }
        },
    );
}

/// Rows that go through the passes together, so that one does not wait for the sum or the maximum of another.
const GROUP: usize = 8;

impl<T: Real> Scores<T> {
    /// The exponentials of at most [`GROUP`] rows, with the sums of each, alone and times another such row.
    ///
    /// # Safety
    /// As for [`Row::exponentials`].
    #[inline(always)]
    unsafe fn exponentials<S: Simd>(
        self,
        simd: S,
        rows: Range<usize>,
        others: Option<*mut T>,
    ) -> [[T; 2]; GROUP] {
        let (mut largest, mut sums) = ([T::NIL; GROUP], [[T::NIL; 2]; GROUP]);
        // SAFETY: as the caller promises.
        unsafe {
            for (i, largest) in rows.clone().zip(&mut largest) {
                let row = self.row::<S>(i);
                row.mask::<S>();
                *largest = row.largest(simd);
            }
            for ((i, sums), largest) in rows.zip(&mut sums).zip(largest) {
                let other = others.map(|others| others.add(i * panel::<S, T>()).cast_const());
                *sums = self.row::<S>(i).exponentials(simd, largest, self.scale, other);
            }
        }
        sums
    }

    #[inline(always)]
    fn row<S: Simd>(self, row: usize) -> Row<T> {
        let panel = panel::<S, T>();
        Row { at: self.at.wrapping_add(row * panel), columns: self.columns, by_panel: self.rows * panel }
    }
}

/// A row of scores: panels of columns that lie apart, the last one perhaps not full.
#[derive(Clone, Copy)]
struct Row<T> {
    at: *mut T,
    columns: usize,
    by_panel: usize,
}

impl<T: Real> Row<T> {
    /// Makes each score x `e^(scale (x - largest))`. Gives the sum, and that of the products
    /// with another such row.
    ///
    /// # Safety
    /// The panels of both rows may be read, and those of this one be written; they lie apart.
    #[inline(always)]
    unsafe fn exponentials<S: Simd>(self, simd: S, largest: T, scale: T, other: Option<*const T>) -> [T; 2] {
        let (lanes, panels) = (Vector::<S, T>::LEN, self.columns.div_ceil(panel::<S, T>()));
        let zero = Vector::<S, T>::splat(simd, T::NIL);
        // SAFETY: vectors of the panels.
        unsafe {
            let factor = Vector::<S, T>::splat(simd, scale);
            let shift = zero - factor * Vector::<S, T>::splat(simd, largest);
            let (mut sums, mut products) = ([zero; 2], [zero; 2]);
            for i in 0..panels {
                for half in 0..2 {
                    let place = i * self.by_panel + half * lanes;
                    let at = self.at.wrapping_add(place);
                    let value = math::exp::<S, T>(simd, load::<S, T>(simd, at).mul_add(factor, shift));
                    sums[half] += value;
                    if let Some(other) = other {
                        let other = load::<S, T>(simd, other.wrapping_add(place));
                        products[half] = value.mul_add(other, products[half]);
                    }
                    store::<S, T>(at, value);
                }
            }
            [total::<S, T>(sums), total::<S, T>(products)]
        }
    }

    /// The largest score of the row; NaN may be left out of account.
    ///
    /// # Safety
    /// The panels may be read.
    #[inline(always)]
    unsafe fn largest<S: Simd>(self, simd: S) -> T {
        let (lanes, panels) = (Vector::<S, T>::LEN, self.columns.div_ceil(panel::<S, T>()));
        // SAFETY: vectors of the panels.
        unsafe {
            let mut most = [load::<S, T>(simd, self.at); 2];
            for at in (0..panels).map(|i| self.at.wrapping_add(i * self.by_panel)) {
                most[0] = most[0].max(load::<S, T>(simd, at));
                most[1] = most[1].max(load::<S, T>(simd, at.wrapping_add(lanes)));
            }
            let most = most[0].max(most[1]);
            fold::<S, T>(most, |a, b| if b > a { b } else { a })
        }
    }

    /// What is behind the last column is minus infinity: it has no share in anything.
    #[inline(always)]
    unsafe fn mask<S: Simd>(self) {
        let panel = panel::<S, T>();
        let last = (self.columns - 1) / panel;
        for column in self.columns - last * panel..panel {
            // SAFETY: an element of the last panel.
            unsafe { *self.at.add(last * self.by_panel + column) = T::NIL - T::INFINITY };
        }
    }

    /// From exponentials p and the gradients g of the weights to the weights `p factor` and the gradients of the scores
    /// `p slope (g - shift)`.
    ///
    /// # Safety
    /// The panels of both rows may be read and written; they lie apart.
    #[inline(always)]
    unsafe fn gradients<S: Simd>(self, simd: S, gradients: *mut T, [factor, slope, shift]: [T; 3]) {
        let (lanes, panels) = (Vector::<S, T>::LEN, self.columns.div_ceil(panel::<S, T>()));
        let [factor, slope, shift] = [factor, slope, shift].map(|x| Vector::<S, T>::splat(simd, x));
        for i in 0..panels {
            for half in 0..2 {
                let place = i * self.by_panel + half * lanes;
                let (at, gradient) = (self.at.wrapping_add(place), gradients.wrapping_add(place));
                // SAFETY: vectors of the panels.
                unsafe {
                    let power = load::<S, T>(simd, at);
                    store::<S, T>(at, power * factor);
                    let centred = load::<S, T>(simd, gradient) - shift;
                    store::<S, T>(gradient, power * slope * centred);
                }
            }
        }
    }
}

/// The sum of all lanes.
#[inline(always)]
fn total<S: Simd, T: Real>([low, high]: [Vector<S, T>; 2]) -> T {
    fold::<S, T>(low + high, |a, b| a + b)
}

/// All lanes put together, half to half.
#[inline(always)]
fn fold<S: Simd, T: Real>(mut lanes: Vector<S, T>, put: impl Fn(T, T) -> T) -> T {
    let mut half = Vector::<S, T>::LEN / 2;
    while half > 0 {
        let lanes = lanes.as_mut_slice();
        (0..half).for_each(|i| lanes[i] = put(lanes[i], lanes[i + half]));
        half /= 2;
    }
    lanes.as_slice()[0]
}
