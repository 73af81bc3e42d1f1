//! Sums, extrema and their positions.
//!
//! A slice is cut into pieces of fixed length and these into leaves. In a leaf every lane of eight vectors has a running
//! sum; the sums of lanes, leaves and pieces are added pairwise. An addend so goes through few additions (about 80 for a
//! million numbers), the error grows with the logarithm of the length, and the bits are the same for any number of
//! threads. Instruction sets with wider vectors add in another order.

use fearless_simd::{Simd, prelude::*};

use super::{Number, RealNumber, VectorError, check, walk};
use crate::dtype::Element;
use crate::kernel::level;

/// Elements of a leaf.
pub(super) const LEAF: usize = 4096;

/// Running sums of a leaf.
const SUMS: usize = 8;

/// The sum of all elements; 0 if there are none. Integers wrap.
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
    walk::pieces(x, (), |x, ()| dispatch!(level(), simd => pass(simd, x)), pairwise)
}

/// The sum divided by the length; NaN if there are no elements.
pub fn mean<T: RealNumber>(x: &[T]) -> T {
    sum(x) / T::from_f64(x.len() as f64)
}

/// The sum of `a[i] * b[i]`; 0 if there are none. Integers wrap.
pub fn dot<T: Number>(a: &[T], b: &[T]) -> Result<T, VectorError> {
    check("dot", "b", b.len(), a.len())?;
    Ok((T::compiled().dot)(a, b))
}

pub(super) fn dot_of_slices<T: Number>(a: &[T], b: &[T]) -> T {
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
    walk::pieces2(a, b, (), |a, b, ()| dispatch!(level(), simd => pass(simd, a, b)), pairwise)
}

/// Sums up pairs, pairs of pairs and so on; 0 for nothing.
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

/// The sum of `f(x[i])`, leaf by leaf. A single leaf does not go through the tree, which lies in memory.
#[inline(always)]
pub(super) fn sum_of<S: Simd, V: SimdBase<S, Element: Element>>(
    simd: S,
    x: &[V::Element],
    f: impl Fn(V) -> V,
) -> V::Element {
    let mut tree = Tree::new();
    let mut leaves = x.chunks(LEAF);
    while let Some(x) = leaves.next() {
        let zero = V::splat(simd, V::Element::ZERO);
        let (mut sums, mut last) = ([zero; SUMS], zero);
        let mut groups = x.chunks_exact(SUMS * V::LEN);
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
            last += first_lanes(f(walk::padded(simd, tail)), tail.len());
        }
        let total = total(sums, last);
        if tree.count == 0 && leaves.len() == 0 {
            return total;
        }
        tree.push(total);
    }
    tree.total()
}

/// The sum of `f(a[i], b[i])`, leaf by leaf, for slices of the same length.
#[inline(always)]
pub(super) fn sum_of_pairs<S: Simd, V: SimdBase<S, Element: Element>>(
    simd: S,
    a: &[V::Element],
    b: &[V::Element],
    f: impl Fn(V, V) -> V,
) -> V::Element {
    let mut tree = Tree::new();
    let mut leaves = a.chunks(LEAF).zip(b.chunks(LEAF));
    while let Some((a, b)) = leaves.next() {
        let zero = V::splat(simd, V::Element::ZERO);
        let (mut sums, mut last) = ([zero; SUMS], zero);
        let (mut groups_a, mut groups_b) = (a.chunks_exact(SUMS * V::LEN), b.chunks_exact(SUMS * V::LEN));
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
            last += first_lanes(f(walk::padded(simd, a), walk::padded(simd, b)), a.len());
        }
        let total = total(sums, last);
        if tree.count == 0 && leaves.len() == 0 {
            return total;
        }
        tree.push(total);
    }
    tree.total()
}

/// Eight vectors. Written out: a loop over an array of sums would keep the sums in memory.
#[inline(always)]
fn load_group<S: Simd, V: SimdBase<S>>(simd: S, x: &[V::Element]) -> [V; SUMS] {
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
fn add_group<S: Simd, V: SimdBase<S>>(a: [V; SUMS], b: [V; SUMS]) -> [V; SUMS] {
    let [a0, a1, a2, a3, a4, a5, a6, a7] = a;
    let [b0, b1, b2, b3, b4, b5, b6, b7] = b;
    [a0 + b0, a1 + b1, a2 + b2, a3 + b3, a4 + b4, a5 + b5, a6 + b6, a7 + b7]
}

/// The vector with zeros behind its first `count` lanes.
#[inline(always)]
fn first_lanes<S: Simd, V: SimdBase<S, Element: Element>>(mut vector: V, count: usize) -> V {
    vector.as_mut_slice()[count..].fill(V::Element::ZERO);
    vector
}

/// All lanes of all vectors, added pairwise.
#[inline(always)]
fn total<S: Simd, V: SimdBase<S>>(sums: [V; SUMS], last: V) -> V::Element {
    let [a, b, c, d, e, f, g, h] = sums;
    ((((a + b) + (c + d)) + ((e + f) + (g + h))) + last).reduce_sum()
}

/// A pairwise sum of values that come one after another: `sums[k]` is that of 2^k values, if bit k of `count` is set.
struct Tree<T> {
    sums: [T; 32],
    count: u32,
}

impl<T: Element> Tree<T> {
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

/// The smallest element; NaN if there is one, `None` if there are no elements.
pub fn min_value<T: Number>(x: &[T]) -> Option<T> {
    (T::compiled().least)(x).map(|(value, _)| value)
}

/// The largest element; NaN if there is one, `None` if there are no elements.
pub fn max_value<T: Number>(x: &[T]) -> Option<T> {
    (T::compiled().most)(x).map(|(value, _)| value)
}

/// The position of the first smallest element, or of the first NaN; `None` if there are no elements.
///
/// ```
/// use gatework_engine::vector::arg_min;
/// assert_eq!(arg_min(&[3, 1, 2, 1]), Some(1));
/// assert_eq!(arg_min(&[1.0, f32::NAN, 0.0]), Some(1));
/// ```
pub fn arg_min<T: Number>(x: &[T]) -> Option<usize> {
    (T::compiled().least)(x).and_then(|found| position(x, found))
}

/// The position of the first largest element, or of the first NaN; `None` if there are no elements.
pub fn arg_max<T: Number>(x: &[T]) -> Option<usize> {
    (T::compiled().most)(x).and_then(|found| position(x, found))
}

/// The position of the extremum, given the leaf that it is in.
fn position<T: Number>(x: &[T], (value, leaf): (T, usize)) -> Option<usize> {
    let leaf = &x[leaf..];
    let is_it = |&x: &T| x == value || (x.is_not_a_number() && value.is_not_a_number());
    let within = leaf.iter().position(is_it)?;
    Some(x.len() - leaf.len() + within)
}

/// The smallest element, and where the leaf begins that holds it first.
pub(super) fn least<T: Number>(x: &[T]) -> Option<(T, usize)> {
    extremum::<T, Least>(x)
}

/// The largest element, and where the leaf begins that holds it first.
pub(super) fn most<T: Number>(x: &[T]) -> Option<(T, usize)> {
    extremum::<T, Most>(x)
}

/// Smallest or largest.
trait Order: Sync {
    /// The one of two that comes first.
    fn first<S: Simd, T: Number>(simd: S, a: T::Vector<S>, b: T::Vector<S>) -> T::Vector<S>;
    /// The lane that comes first, if none is NaN; either of zeros with different signs.
    fn quick<S: Simd, T: Number>(vector: T::Vector<S>) -> T;
    /// Whether `a` comes before `b`.
    fn before<T: Number>(a: T, b: T) -> bool;
}

struct Least;
struct Most;

impl Order for Least {
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

impl Order for Most {
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

/// The extremum, and where the leaf begins that holds it first.
fn extremum<T: Number, O: Order>(x: &[T]) -> Option<(T, usize)> {
    walk::pieces(
        x,
        (),
        |x, ()| dispatch!(level(), simd => leaves::<_, T, O>(simd, x)),
        |pieces| {
            let mut best = None;
            for (piece, found) in pieces.iter().enumerate() {
                if let &Some((value, leaf)) = found {
                    best = Some(better::<T, O>(best, (value, piece * walk::PIECE + leaf)));
                }
            }
            best
        },
    )
}

/// The extremum of a piece, leaf by leaf.
#[inline(always)]
fn leaves<S: Simd, T: Number, O: Order>(simd: S, x: &[T]) -> Option<(T, usize)> {
    let mut best = None;
    for (leaf, x) in x.chunks(LEAF).enumerate() {
        let start = T::Vector::<S>::splat(simd, x[0]);
        let (mut a, mut b, mut c, mut d) = (start, start, start, start);
        let mut groups = x.chunks_exact(SUMS * T::Vector::<S>::LEN);
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
            b = O::first::<S, T>(simd, b, walk::padded(simd, rest.remainder()));
        }
        let both = O::first::<S, T>(simd, O::first::<S, T>(simd, a, b), O::first::<S, T>(simd, c, d));
        best = Some(better::<T, O>(best, (lane::<S, T, O>(simd, both), leaf * LEAF)));
    }
    best
}

/// The extremum of the lanes.
#[inline(always)]
fn lane<S: Simd, T: Number, O: Order>(simd: S, vector: T::Vector<S>) -> T {
    // Of vectors with NaN, or with zeros of both signs, the instructions may give either.
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

/// The earlier of two, the first of equals, and NaN before everything.
#[inline(always)]
fn better<T: Number, O: Order>(best: Option<(T, usize)>, next: (T, usize)) -> (T, usize) {
    match best {
        Some(best) if best.0.is_not_a_number() => best,
        Some(best) if !O::before(next.0, best.0) && !next.0.is_not_a_number() => best,
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
        // A sum from left to right is wrong by one part in a thousand here.
        assert!((f64::from(results[0].0) / exact - 1.0).abs() < 1e-6);
    }

    #[test]
    fn nothing_and_one_have_the_documented_values() {
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
    fn nan_wins_and_zeros_have_signs() {
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
