//! Sums, extrema and their positions.
//!
//! A slice is split into chunks of fixed length, and each chunk into leaves. In a leaf every lane of eight vectors
//! accumulates a partial sum; lanes, leaves and chunks are then summed pairwise. An element passes through few additions
//! (about 80 for a million elements), so the rounding error grows with the logarithm of the length, and the bits are the
//! same for any number of threads. Instruction sets with wider vectors add in another order.

use fearless_simd::{Simd, prelude::*};

use super::{Number, RealNumber, VectorError, check, elementwise};
use crate::dtype::Element;
use crate::kernel::level;

/// Elements of a leaf.
pub(super) const LEAF: usize = 4096;

/// Vectors of partial sums in a leaf.
const ACCUMULATORS: usize = 8;

/// Returns the sum of all elements, or 0 if there are none. Integers wrap.
///
/// ```
/// assert_eq!(gatework_engine::vector::sum(&[0.5f32; 1000]), 500.0);
/// ```
pub fn sum<T: Number>(x: &[T]) -> T {
    (T::compiled().sum)(x)
}

pub(super) fn sum_of_slice<T: Number>(x: &[T]) -> T {
    #[inline(always)]
    fn pass<S: Simd, T: Number>(simd: S, x: &[T]) -> T {
        sum_of::<S, T::Vector<S>>(
            simd,
            x,
            #[inline(always)]
            |x| x,
        )
    }
    elementwise::reduce_chunks(x, (), |x, ()| dispatch!(level(), simd => pass(simd, x)), pairwise)
}

/// Returns the sum divided by the length, or NaN if there are no elements.
pub fn mean<T: RealNumber>(x: &[T]) -> T {
    sum(x) / T::from_f64(x.len() as f64)
}

/// Returns the sum of `a[i] * b[i]`, or 0 if there are no elements. Integers wrap.
pub fn dot<T: Number>(a: &[T], b: &[T]) -> Result<T, VectorError> {
    check("dot", "b", b.len(), a.len())?;
    Ok((T::compiled().dot)(a, b))
}

pub(crate) fn dot_of_slices<T: Number>(a: &[T], b: &[T]) -> T {
    #[inline(always)]
    fn pass<S: Simd, T: Number>(simd: S, a: &[T], b: &[T]) -> T {
        sum_of_pairs::<S, T::Vector<S>>(
            simd,
            a,
            b,
            #[inline(always)]
            |a, b| a * b,
        )
    }
    elementwise::reduce_chunks2(a, b, (), |a, b, ()| dispatch!(level(), simd => pass(simd, a, b)), pairwise)
}

/// Returns the pairwise sum of the values, or 0 if there are none. Overwrites them.
pub(super) fn pairwise<T: Number>(mut values: &mut [T]) -> T {
    while values.len() > 1 {
        let half = values.len().div_ceil(2);
        for i in 0..values.len() / 2 {
            values[i] = T::plus(values[2 * i], values[2 * i + 1]);
        }
        if values.len() % 2 == 1 {
            values[half - 1] = values[values.len() - 1];
        }
        values = &mut values[..half];
    }
    values.first().copied().unwrap_or(T::ZERO)
}

/// Returns the sum of `f(x[i])`, leaf by leaf. A single leaf does not go through the tree, which is in memory.
#[inline(always)]
pub(super) fn sum_of<S: Simd, V: SimdBase<S, Element: Element>>(
    simd: S,
    x: &[V::Element],
    f: impl Fn(V) -> V,
) -> V::Element {
    let mut tree = PairwiseSum::new();
    let mut leaves = x.chunks(LEAF);
    while let Some(x) = leaves.next() {
        let zero = V::splat(simd, V::Element::ZERO);
        let (mut sums, mut last) = ([zero; ACCUMULATORS], zero);
        let mut groups = x.chunks_exact(ACCUMULATORS * V::LEN);
        for group in groups.by_ref() {
            let [x0, x1, x2, x3, x4, x5, x6, x7] = load_group::<S, V>(simd, group);
            sums = add_group(sums, [f(x0), f(x1), f(x2), f(x3), f(x4), f(x5), f(x6), f(x7)]);
        }
        let mut rest = groups.remainder().chunks_exact(V::LEN);
        for x in rest.by_ref() {
            last += f(V::from_slice(simd, x));
        }
        let tail = rest.remainder();
        if !tail.is_empty() {
            last += first_lanes(f(elementwise::padded(simd, tail)), tail.len());
        }
        let total = total(sums, last);
        if tree.count == 0 && leaves.len() == 0 {
            return total;
        }
        tree.push(total);
    }
    tree.total()
}

/// Returns the sum of `f(a[i], b[i])`, leaf by leaf, for slices of the same length.
#[inline(always)]
pub(crate) fn sum_of_pairs<S: Simd, V: SimdBase<S, Element: Element>>(
    simd: S,
    a: &[V::Element],
    b: &[V::Element],
    f: impl Fn(V, V) -> V,
) -> V::Element {
    let mut tree = PairwiseSum::new();
    let mut leaves = a.chunks(LEAF).zip(b.chunks(LEAF));
    while let Some((a, b)) = leaves.next() {
        let zero = V::splat(simd, V::Element::ZERO);
        let (mut sums, mut last) = ([zero; ACCUMULATORS], zero);
        let (mut groups_a, mut groups_b) =
            (a.chunks_exact(ACCUMULATORS * V::LEN), b.chunks_exact(ACCUMULATORS * V::LEN));
        for (a, b) in groups_a.by_ref().zip(groups_b.by_ref()) {
            let [a0, a1, a2, a3, a4, a5, a6, a7] = load_group::<S, V>(simd, a);
            let [b0, b1, b2, b3, b4, b5, b6, b7] = load_group::<S, V>(simd, b);
            let terms =
                [f(a0, b0), f(a1, b1), f(a2, b2), f(a3, b3), f(a4, b4), f(a5, b5), f(a6, b6), f(a7, b7)];
            sums = add_group(sums, terms);
        }
        let mut rest_a = groups_a.remainder().chunks_exact(V::LEN);
        let mut rest_b = groups_b.remainder().chunks_exact(V::LEN);
        for (a, b) in rest_a.by_ref().zip(rest_b.by_ref()) {
            last += f(V::from_slice(simd, a), V::from_slice(simd, b));
        }
        let (a, b) = (rest_a.remainder(), rest_b.remainder());
        if !a.is_empty() {
            last += first_lanes(f(elementwise::padded(simd, a), elementwise::padded(simd, b)), a.len());
        }
        let total = total(sums, last);
        if tree.count == 0 && leaves.len() == 0 {
            return total;
        }
        tree.push(total);
    }
    tree.total()
}

/// Loads eight vectors. Unrolled by hand: with a loop over an array, the compiler would keep the sums in memory.
#[inline(always)]
fn load_group<S: Simd, V: SimdBase<S>>(simd: S, x: &[V::Element]) -> [V; ACCUMULATORS] {
    let n = V::LEN;
    [
        V::from_slice(simd, &x[..n]),
        V::from_slice(simd, &x[n..2 * n]),
        V::from_slice(simd, &x[2 * n..3 * n]),
        V::from_slice(simd, &x[3 * n..4 * n]),
        V::from_slice(simd, &x[4 * n..5 * n]),
        V::from_slice(simd, &x[5 * n..6 * n]),
        V::from_slice(simd, &x[6 * n..7 * n]),
        V::from_slice(simd, &x[7 * n..8 * n]),
    ]
}

/// Adds eight vectors to eight others.
#[inline(always)]
fn add_group<S: Simd, V: SimdBase<S>>(a: [V; ACCUMULATORS], b: [V; ACCUMULATORS]) -> [V; ACCUMULATORS] {
    let [a0, a1, a2, a3, a4, a5, a6, a7] = a;
    let [b0, b1, b2, b3, b4, b5, b6, b7] = b;
    [a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5, a6 + b6, a7 + b7]
}

/// Returns the vector with all lanes from `count` on set to zero.
#[inline(always)]
fn first_lanes<S: Simd, V: SimdBase<S, Element: Element>>(mut vector: V, count: usize) -> V {
    vector.as_mut_slice()[count..].fill(V::Element::ZERO);
    vector
}

/// Returns the pairwise sum of all lanes of all vectors.
#[inline(always)]
fn total<S: Simd, V: SimdBase<S>>(sums: [V; ACCUMULATORS], last: V) -> V::Element {
    let [a, b, c, d, e, f, g, h] = sums;
    ((((a + b) + (c + d)) + ((e + f) + (g + h))) + last).reduce_sum()
}

/// Incremental pairwise sum: `sums[k]` is the sum of 2^k values if bit k of `count` is set.
struct PairwiseSum<T> {
    sums: [T; 32],
    count: u32,
}

impl<T: Element> PairwiseSum<T> {
    #[inline(always)]
    fn new() -> Self {
        Self { sums: [T::ZERO; 32], count: 0 }
    }

    #[inline(always)]
    fn push(&mut self, mut value: T) {
        let level = self.count.trailing_ones() as usize;
        for &sum in &self.sums[..level] {
            value = T::plus(sum, value);
        }
        self.sums[level] = value;
        self.count += 1;
    }

    #[inline(always)]
    fn total(&self) -> T {
        let mut total = None;
        for (level, &sum) in self.sums.iter().enumerate() {
            if self.count >> level & 1 == 1 {
                total = Some(total.map_or(sum, |total| T::plus(sum, total)));
            }
            if self.count >> level <= 1 {
                break;
            }
        }
        total.unwrap_or(T::ZERO)
    }
}

/// Returns the smallest element, NaN if there is a NaN, or `None` if there are no elements.
pub fn min_value<T: Number>(x: &[T]) -> Option<T> {
    (T::compiled().smallest)(x).map(|(value, _)| value)
}

/// Returns the largest element, NaN if there is a NaN, or `None` if there are no elements.
pub fn max_value<T: Number>(x: &[T]) -> Option<T> {
    (T::compiled().largest)(x).map(|(value, _)| value)
}

/// Returns the position of the first smallest element, or of the first NaN; `None` if there are no elements.
///
/// ```
/// use gatework_engine::vector::arg_min;
/// assert_eq!(arg_min(&[3, 1, 2, 1]), Some(1));
/// assert_eq!(arg_min(&[1.0, f32::NAN, 0.0]), Some(1));
/// ```
pub fn arg_min<T: Number>(x: &[T]) -> Option<usize> {
    (T::compiled().smallest)(x).and_then(|found| position(x, found))
}

/// Returns the position of the first largest element, or of the first NaN; `None` if there are no elements.
pub fn arg_max<T: Number>(x: &[T]) -> Option<usize> {
    (T::compiled().largest)(x).and_then(|found| position(x, found))
}

/// Returns the position of an extremum, given the start of the leaf that contains it.
fn position<T: Number>(x: &[T], (value, leaf): (T, usize)) -> Option<usize> {
    let leaf = &x[leaf..];
    let is_it = |&x: &T| x == value || (x.is_nan() && value.is_nan());
    let within = leaf.iter().position(is_it)?;
    Some(x.len() - leaf.len() + within)
}

/// Returns the smallest element and the start of the first leaf that contains it.
pub(super) fn smallest<T: Number>(x: &[T]) -> Option<(T, usize)> {
    extremum::<T, Smallest>(x)
}

/// Returns the largest element and the start of the first leaf that contains it.
pub(super) fn largest<T: Number>(x: &[T]) -> Option<(T, usize)> {
    extremum::<T, Largest>(x)
}

/// Ordering by which an extremum is found: ascending or descending.
trait Order: Sync {
    /// Returns the lanes that come first; NaN comes before everything.
    fn first<S: Simd, T: Number>(simd: S, a: T::Vector<S>, b: T::Vector<S>) -> T::Vector<S>;
    /// Returns the lane that comes first, if none is NaN; of zeros with different signs, either one.
    fn quick<S: Simd, T: Number>(vector: T::Vector<S>) -> T;
    /// Returns whether `a` comes before `b`.
    fn before<T: Number>(a: T, b: T) -> bool;
}

struct Smallest;
struct Largest;

impl Order for Smallest {
    #[inline(always)]
    fn first<S: Simd, T: Number>(simd: S, a: T::Vector<S>, b: T::Vector<S>) -> T::Vector<S> {
        T::minimum(simd, a, b)
    }
    #[inline(always)]
    fn quick<S: Simd, T: Number>(vector: T::Vector<S>) -> T {
        vector.reduce_min()
    }
    #[inline(always)]
    fn before<T: Number>(a: T, b: T) -> bool {
        a < b
    }
}

impl Order for Largest {
    #[inline(always)]
    fn first<S: Simd, T: Number>(simd: S, a: T::Vector<S>, b: T::Vector<S>) -> T::Vector<S> {
        T::maximum(simd, a, b)
    }
    #[inline(always)]
    fn quick<S: Simd, T: Number>(vector: T::Vector<S>) -> T {
        vector.reduce_max()
    }
    #[inline(always)]
    fn before<T: Number>(a: T, b: T) -> bool {
        a > b
    }
}

/// Returns the extremum and the start of the first leaf that contains it.
fn extremum<T: Number, O: Order>(x: &[T]) -> Option<(T, usize)> {
    elementwise::reduce_chunks(
        x,
        (),
        |x, ()| dispatch!(level(), simd => leaves::<_, T, O>(simd, x)),
        |chunks| {
            let mut best = None;
            for (chunk, found) in chunks.iter().enumerate() {
                if let &Some((value, leaf)) = found {
                    best = Some(better::<T, O>(best, (value, chunk * elementwise::CHUNK_LEN + leaf)));
                }
            }
            best
        },
    )
}

/// Returns the extremum of a chunk, leaf by leaf.
#[inline(always)]
fn leaves<S: Simd, T: Number, O: Order>(simd: S, x: &[T]) -> Option<(T, usize)> {
    let mut best = None;
    for (leaf, x) in x.chunks(LEAF).enumerate() {
        let start = T::Vector::<S>::splat(simd, x[0]);
        let (mut a, mut b, mut c, mut d) = (start, start, start, start);
        let mut groups = x.chunks_exact(ACCUMULATORS * T::Vector::<S>::LEN);
        for group in groups.by_ref() {
            let [x0, x1, x2, x3, x4, x5, x6, x7] = load_group::<S, T::Vector<S>>(simd, group);
            a = O::first::<S, T>(simd, O::first::<S, T>(simd, x0, x1), a);
            b = O::first::<S, T>(simd, O::first::<S, T>(simd, x2, x3), b);
            c = O::first::<S, T>(simd, O::first::<S, T>(simd, x4, x5), c);
            d = O::first::<S, T>(simd, O::first::<S, T>(simd, x6, x7), d);
        }
        let mut rest = groups.remainder().chunks_exact(T::Vector::<S>::LEN);
        for x in rest.by_ref() {
            a = O::first::<S, T>(simd, a, T::Vector::<S>::from_slice(simd, x));
        }
        if !rest.remainder().is_empty() {
            b = O::first::<S, T>(simd, b, elementwise::padded(simd, rest.remainder()));
        }
        let both = O::first::<S, T>(simd, O::first::<S, T>(simd, a, b), O::first::<S, T>(simd, c, d));
        best = Some(better::<T, O>(best, (lane::<S, T, O>(simd, both), leaf * LEAF)));
    }
    best
}

/// Returns the extremum of the lanes.
#[inline(always)]
fn lane<S: Simd, T: Number, O: Order>(simd: S, vector: T::Vector<S>) -> T {
    // With NaN, or with zeros of both signs, the result of the reduction instructions is not specified.
    let quick = O::quick::<S, T>(vector);
    let is_sure = quick != T::ZERO && vector.simd_eq(vector).all_true();
    if is_sure || !T::DTYPE.is_float() {
        return quick;
    }
    let splat = T::Vector::<S>::splat;
    let mut first = vector;
    for &x in vector.as_slice() {
        first = O::first::<S, T>(simd, first, splat(simd, x));
    }
    first[0]
}

/// Returns the candidate that comes first: the earlier one of equals, and NaN before everything.
#[inline(always)]
fn better<T: Number, O: Order>(best: Option<(T, usize)>, next: (T, usize)) -> (T, usize) {
    match best {
        Some(best) if best.0.is_nan() => best,
        Some(best) if !O::before(next.0, best.0) && !next.0.is_nan() => best,
        _ => next,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::{cases, on_every_level};
    use proptest::prelude::*;

    fn numbers(len: usize) -> Vec<f32> {
        (0..len).map(|i| ((i * 7919 % 1009) as f32 - 300.0) * 0.013).collect()
    }

    #[test]
    fn sums_of_all_short_lengths_are_close_to_those_in_f64() {
        let x = numbers(300);
        on_every_level(|| {
            for len in (0..300).step_by(if cfg!(miri) { 37 } else { 1 }) {
                let x = &x[..len];
                let exact: f64 = x.iter().map(|&x| f64::from(x)).sum();
                let scale: f64 = x.iter().map(|&x| f64::from(x).abs()).sum();
                assert!((f64::from(sum(x)) - exact).abs() <= 20.0 * f64::from(f32::EPSILON) * scale);
                let exact: f64 = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum();
                assert!(
                    (f64::from(dot(x, x).unwrap()) - exact).abs() <= 20.0 * f64::from(f32::EPSILON) * exact
                );
                let whole: Vec<i64> = (0..len as i64).collect();
                assert_eq!(sum(&whole), whole.iter().sum::<i64>());
            }
        });
    }

    #[test]
    #[cfg_attr(miri, ignore = "too long")]
    fn a_long_sum_is_accurate_and_the_same_for_any_number_of_threads() {
        let len = 3_000_017;
        let x: Vec<f32> = (0..len).map(|i| 1.0 + (i % 7) as f32 * 1e-3).collect();
        let exact: f64 = x.iter().map(|&x| f64::from(x)).sum();
        let results = [1, 2, 5].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| (sum(&x), dot(&x, &x).unwrap(), max_value(&x), arg_max(&x)))
        });
        assert_eq!(results[0], results[1]);
        assert_eq!(results[0], results[2]);
        // A sequential sum has a relative error of 1e-3 here.
        assert!((f64::from(results[0].0) / exact - 1.0).abs() < 1e-6);
    }

    #[test]
    fn empty_and_single_element_slices_have_the_documented_values() {
        let none: [f32; 0] = [];
        assert_eq!((sum(&none), dot(&none, &none)), (0.0, Ok(0.0)));
        assert!(mean(&none).is_nan());
        assert_eq!(
            (min_value(&none), max_value(&none), arg_min(&none), arg_max(&none)),
            (None, None, None, None)
        );
        assert_eq!((sum(&[3]), max_value(&[3]), arg_min(&[3])), (3, Some(3), Some(0)));
        assert_eq!(sum(&[i32::MAX, 1]), i32::MIN, "integers wrap");
    }

    #[test]
    fn nan_propagates_and_zeros_have_signs() {
        on_every_level(|| {
            let mut x = vec![1.0f64; 100];
            x[50] = -0.0;
            x[60] = 0.0;
            assert!(min_value(&x).unwrap().is_sign_negative());
            assert_eq!(arg_min(&x), Some(50));
            x[70] = f64::NAN;
            x[99] = f64::NEG_INFINITY;
            assert!(min_value(&x).unwrap().is_nan() && max_value(&x).unwrap().is_nan());
            assert_eq!((arg_min(&x), arg_max(&x)), (Some(70), Some(70)));
        });
    }

    proptest! {
        #![proptest_config(cases(30))]

        #[test]
        fn extrema_equal_those_of_iterators(x in proptest::collection::vec(-20i32..20, 0..200), repeat in 1usize..100) {
            let x = x.repeat(repeat);
            on_every_level(|| {
                assert_eq!(min_value(&x), x.iter().copied().min());
                assert_eq!(max_value(&x), x.iter().copied().max());
                assert_eq!(arg_min(&x), x.iter().min().and_then(|m| x.iter().position(|x| x == m)));
                let float: Vec<f64> = x.iter().map(|&x| x.into()).collect();
                assert_eq!(arg_max(&float), x.iter().max().and_then(|m| x.iter().position(|x| x == m)));
            });
        }
    }
}
