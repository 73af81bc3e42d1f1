//! Softmax of blocks of scores, and its gradient. A lane is a query, so there are no operations across the lanes of a
//! vector.

use fearless_simd::{Simd, prelude::*};

use super::super::math::{self, Real, Vector};
use super::panels::{load, panel, store};

/// Scores of a block of queries: [panels of queries][keys][panel].
#[derive(Clone, Copy)]
pub(super) struct Scores<T> {
    pub at: *mut T,
    pub panels: usize,
    pub keys: usize,
    pub scale: T,
}

/// Replaces the scores x of each query by `e^(scale (x - largest))`, and stores the reciprocal of their sum in `factors`.
///
/// # Safety
/// The scores may be read and written, and a factor may be written for each query of the panels; nothing else accesses
/// them.
#[inline(never)]
pub(super) unsafe fn exponentials<S: Simd, T: Real>(simd: S, scores: Scores<T>, factors: *mut T) {
    simd.vectorize(
        #[inline(always)]
        || {
            for vector in 0..2 * scores.panels {
                // SAFETY: the vectors of the scores, and one of the factors for each.
                unsafe {
                    let [sum, _] = scores.vector::<S>(vector).exponentials(simd, scores.scale, None);
                    store::<S, T>(factors.add(vector * Vector::<S, T>::LEN), inverse::<S, T>(simd, sum));
                }
            }
        },
    );
}

/// Replaces scores by weights, and the gradients of the weights by those of the scores.
///
/// # Safety
/// The panels of scores and gradients may be read and written, nothing else accesses them, and they are disjoint.
#[inline(never)]
pub(super) unsafe fn softmax_gradient<S: Simd, T: Real>(simd: S, scores: Scores<T>, gradients: *mut T) {
    simd.vectorize(
        #[inline(always)]
        || {
            let scale = Vector::<S, T>::splat(simd, scores.scale);
            for vector in 0..2 * scores.panels {
                let weights = scores.vector::<S>(vector);
                let gradients = Scores { at: gradients, ..scores }.vector::<S>(vector);
                // SAFETY: vectors of the scores and of the gradients.
                unsafe {
                    let [sum, product] = weights.exponentials(simd, scores.scale, Some(gradients));
                    let factor = inverse::<S, T>(simd, sum);
                    weights.gradients(simd, gradients, [factor, factor * scale, product * factor]);
                }
            }
        },
    );
}

#[inline(always)]
fn inverse<S: Simd, T: Real>(simd: S, x: Vector<S, T>) -> Vector<S, T> {
    Vector::<S, T>::splat(simd, T::ONE) / x
}

impl<T> Scores<T> {
    /// Returns the scores of a vector of queries.
    #[inline(always)]
    fn vector<S: Simd>(self, vector: usize) -> Column<T>
    where
        T: Real,
    {
        let (lanes, panel) = (Vector::<S, T>::LEN, panel::<S, T>());
        let begin = vector / 2 * self.keys * panel + vector % 2 * lanes;
        Column { at: self.at.wrapping_add(begin), keys: self.keys }
    }
}

/// Scores of a vector of queries, with the stride of a panel from key to key.
#[derive(Clone, Copy)]
struct Column<T> {
    at: *mut T,
    keys: usize,
}

/// Independent partial sums, which hide the latency of the additions.
const ACCUMULATORS: usize = 4;

impl<T: Real> Column<T> {
    #[inline(always)]
    fn key<S: Simd>(self, key: usize) -> *mut T {
        self.at.wrapping_add(key * panel::<S, T>())
    }

    /// Replaces the scores x of each query by `e^(scale (x - largest))`. Returns their sum, and the sum of their products
    /// with `others`.
    ///
    /// # Safety
    /// The vectors of both may be read, and those of this one may be written; they are disjoint.
    #[inline(always)]
    unsafe fn exponentials<S: Simd>(self, simd: S, scale: T, others: Option<Column<T>>) -> [Vector<S, T>; 2] {
        let (zero, scale) = (Vector::<S, T>::splat(simd, T::ZERO), Vector::<S, T>::splat(simd, scale));
        let (mut sums, mut products) = ([zero; ACCUMULATORS], [zero; ACCUMULATORS]);
        // SAFETY: vectors of the scores.
        unsafe {
            let mut largest = load::<S, T>(simd, self.at);
            for key in 1..self.keys {
                largest = largest.max(load::<S, T>(simd, self.key::<S>(key)));
            }
            for key in 0..self.keys {
                let at = self.key::<S>(key);
                let power = math::exp::<S, T>(simd, (load::<S, T>(simd, at) - largest) * scale);
                sums[key % ACCUMULATORS] += power;
                if let Some(others) = others {
                    let other = load::<S, T>(simd, others.key::<S>(key));
                    products[key % ACCUMULATORS] = power.mul_add(other, products[key % ACCUMULATORS]);
                }
                store::<S, T>(at, power);
            }
        }
        // Written out: a closure would not be compiled for the instruction set of the caller.
        let ([a, b, c, d], [e, f, g, h]) = (sums, products);
        [(a + b) + (c + d), (e + f) + (g + h)]
    }

    /// Replaces exponentials p by the weights `p factor`, and the gradients g of the weights by those of the scores,
    /// `p slope (g - shift)`.
    ///
    /// # Safety
    /// The vectors of both may be read and written; they are disjoint.
    #[inline(always)]
    unsafe fn gradients<S: Simd>(
        self,
        simd: S,
        gradients: Column<T>,
        [factor, slope, shift]: [Vector<S, T>; 3],
    ) {
        for key in 0..self.keys {
            let (at, gradient) = (self.key::<S>(key), gradients.key::<S>(key));
            // SAFETY: vectors of the scores and of the gradients.
            unsafe {
                let power = load::<S, T>(simd, at);
                store::<S, T>(at, power * factor);
                let centred = load::<S, T>(simd, gradient) - shift;
                store::<S, T>(gradient, power * slope * centred);
            }
        }
    }
}
