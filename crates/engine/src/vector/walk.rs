//! The loops over slices that all vector operations share.
//!
//! [`map`], [`zip`] and their in-place forms apply a function of vectors to whole slices, on one instruction set. A tail
//! shorter than a vector goes through a padded vector and the same function, so that a result never depends on where an
//! element lies. [`shared`], [`shared2`] and the like cut long slices into pieces for several threads; results of [`past2`]
//! and [`past3`] that no cache holds go past them.

use std::ops::Range;

use fearless_simd::{Simd, prelude::*};

use crate::buffer::ALIGNMENT;
use crate::dtype::Element;
use crate::kernel::{settle_streams, stream};
use crate::parallel;

/// Elements of a piece. Slices of two pieces are worth a second thread: the cheapest operation takes some 20 us on them,
/// and waking a thread takes a few.
pub(super) const PIECE: usize = 1 << 16;

/// Vectors of a turn of the loop for operations of one or two instructions, whose time would otherwise go into counting.
pub(super) const CHEAP: usize = 4;
/// The same for functions, which keep the processor busy on their own.
pub(super) const COSTLY: usize = 1;

/// Bytes of a result from which on it goes to memory past the caches, if the operation only writes it: a cache would read
/// every line from memory first, and would not hold the result until somebody reads it.
const FAR: usize = if cfg!(test) { 1 << 19 } else { 16 << 20 };

/// Stores a vector, in a cache or past it.
#[inline(always)]
fn store<S: Simd, V: SimdBase<S>, const PAST: bool>(value: V, out: &mut [V::Element]) {
    if PAST { stream(value.token().level(), value.as_slice(), out) } else { value.store_slice(out) }
}

/// `out[i] = f(x[i])`, for slices of the same length, `TURN` vectors a turn, in a cache or past it.
#[inline(always)]
pub(super) fn map<S: Simd, V: SimdBase<S>, const TURN: usize, const PAST: bool>(
    simd: S,
    x: &[V::Element],
    out: &mut [V::Element],
    f: impl Fn(V) -> V,
) {
    // Lengths that are known to be equal are compared once, and not in every turn.
    let out = &mut out[..x.len()];
    let mut x = x.chunks_exact(TURN * V::LEN);
    let mut out = out.chunks_exact_mut(TURN * V::LEN);
    for (x, out) in x.by_ref().zip(out.by_ref()) {
        for k in 0..TURN {
            let lanes = k * V::LEN..(k + 1) * V::LEN;
            store::<S, V, PAST>(f(V::from_slice(simd, &x[lanes.clone()])), &mut out[lanes]);
        }
    }
    let mut x = x.remainder().chunks_exact(V::LEN);
    let mut out = out.into_remainder().chunks_exact_mut(V::LEN);
    for (x, out) in x.by_ref().zip(out.by_ref()) {
        f(V::from_slice(simd, x)).store_slice(out);
    }
    let (x, out) = (x.remainder(), out.into_remainder());
    if !x.is_empty() {
        store_tail(f(padded::<S, V>(simd, x)), out);
    }
}

/// `x[i] = f(x[i])`.
#[inline(always)]
pub(super) fn map_in_place<S: Simd, V: SimdBase<S>>(simd: S, x: &mut [V::Element], f: impl Fn(V) -> V) {
    let mut groups = x.chunks_exact_mut(CHEAP * V::LEN);
    for x in groups.by_ref() {
        for k in 0..CHEAP {
            let lanes = k * V::LEN..(k + 1) * V::LEN;
            f(V::from_slice(simd, &x[lanes.clone()])).store_slice(&mut x[lanes]);
        }
    }
    let mut rest = groups.into_remainder().chunks_exact_mut(V::LEN);
    for x in rest.by_ref() {
        f(V::from_slice(simd, x)).store_slice(x);
    }
    let tail = rest.into_remainder();
    if !tail.is_empty() {
        store_tail(f(padded::<S, V>(simd, tail)), tail);
    }
}

/// `out[i] = f(a[i], b[i])`, for slices of the same length, in a cache or past it.
#[inline(always)]
pub(super) fn zip<S: Simd, V: SimdBase<S>, const PAST: bool>(
    simd: S,
    a: &[V::Element],
    b: &[V::Element],
    out: &mut [V::Element],
    f: impl Fn(V, V) -> V,
) {
    let (b, out) = (&b[..a.len()], &mut out[..a.len()]);
    let mut a = a.chunks_exact(CHEAP * V::LEN);
    let mut b = b.chunks_exact(CHEAP * V::LEN);
    let mut out = out.chunks_exact_mut(CHEAP * V::LEN);
    for ((a, b), out) in a.by_ref().zip(b.by_ref()).zip(out.by_ref()) {
        for k in 0..CHEAP {
            let lanes = k * V::LEN..(k + 1) * V::LEN;
            let (a, b) = (V::from_slice(simd, &a[lanes.clone()]), V::from_slice(simd, &b[lanes.clone()]));
            store::<S, V, PAST>(f(a, b), &mut out[lanes]);
        }
    }
    let mut a = a.remainder().chunks_exact(V::LEN);
    let mut b = b.remainder().chunks_exact(V::LEN);
    let mut out = out.into_remainder().chunks_exact_mut(V::LEN);
    for ((a, b), out) in a.by_ref().zip(b.by_ref()).zip(out.by_ref()) {
        f(V::from_slice(simd, a), V::from_slice(simd, b)).store_slice(out);
    }
    let (a, b, out) = (a.remainder(), b.remainder(), out.into_remainder());
    if !out.is_empty() {
        store_tail(f(padded::<S, V>(simd, a), padded::<S, V>(simd, b)), out);
    }
}

/// `out[i] = f(a[i], b[i], c[i])`, for slices of the same length.
#[inline(always)]
pub(super) fn zip3<S: Simd, V: SimdBase<S>>(
    simd: S,
    [a, b, c]: [&[V::Element]; 3],
    out: &mut [V::Element],
    f: impl Fn(V, V, V) -> V,
) {
    let (a, b, c) = (&a[..out.len()], &b[..out.len()], &c[..out.len()]);
    let whole = out.len() - out.len() % V::LEN;
    let vectors = a.chunks_exact(V::LEN).zip(b.chunks_exact(V::LEN)).zip(c.chunks_exact(V::LEN));
    for (((a, b), c), out) in vectors.zip(out.chunks_exact_mut(V::LEN)) {
        f(V::from_slice(simd, a), V::from_slice(simd, b), V::from_slice(simd, c)).store_slice(out);
    }
    let (a, b, c, out) = (&a[whole..], &b[whole..], &c[whole..], &mut out[whole..]);
    if !out.is_empty() {
        let [a, b, c] = [padded::<S, V>(simd, a), padded::<S, V>(simd, b), padded::<S, V>(simd, c)];
        store_tail(f(a, b, c), out);
    }
}

/// `a[i] = f(a[i], b[i])`, for slices of the same length.
#[inline(always)]
pub(super) fn zip_in_place<S: Simd, V: SimdBase<S>>(
    simd: S,
    a: &mut [V::Element],
    b: &[V::Element],
    f: impl Fn(V, V) -> V,
) {
    let b = &b[..a.len()];
    let mut a = a.chunks_exact_mut(CHEAP * V::LEN);
    let mut b = b.chunks_exact(CHEAP * V::LEN);
    for (a, b) in a.by_ref().zip(b.by_ref()) {
        for k in 0..CHEAP {
            let lanes = k * V::LEN..(k + 1) * V::LEN;
            let value = f(V::from_slice(simd, &a[lanes.clone()]), V::from_slice(simd, &b[lanes.clone()]));
            value.store_slice(&mut a[lanes]);
        }
    }
    let mut a = a.into_remainder().chunks_exact_mut(V::LEN);
    let mut b = b.remainder().chunks_exact(V::LEN);
    for (a, b) in a.by_ref().zip(b.by_ref()) {
        f(V::from_slice(simd, a), V::from_slice(simd, b)).store_slice(a);
    }
    let (a, b) = (a.into_remainder(), b.remainder());
    if !a.is_empty() {
        store_tail(f(padded::<S, V>(simd, a), padded::<S, V>(simd, b)), a);
    }
}

/// Stores the first lanes.
#[inline(always)]
fn store_tail<S: Simd, V: SimdBase<S>>(value: V, out: &mut [V::Element]) {
    out.copy_from_slice(&value.as_slice()[..out.len()]);
}

/// A vector that begins with the elements of `tail`, of which there are fewer than it has lanes. The other lanes repeat
/// the first one, so that they have no surprises (a division by zero, a large angle) of their own.
#[inline(always)]
pub(super) fn padded<S: Simd, V: SimdBase<S>>(simd: S, tail: &[V::Element]) -> V {
    let mut vector = V::splat(simd, tail[0]);
    vector.as_mut_slice()[..tail.len()].copy_from_slice(tail);
    vector
}

/// Whether slices of this length are worth a second thread.
#[inline(always)]
fn is_long(len: usize) -> bool {
    len >= 2 * PIECE
}

/// Runs `work` on the slice, or on pieces of it at the same time. Like everything here that runs pieces it takes a plain
/// function, and `with` for what that has to know: a closure would be another type, and the code for the threads would be
/// compiled for each. What runs pieces is a function of its own and rarely called, so that `work` on a short slice becomes
/// part of the caller: on 256 numbers two more calls take a quarter of the time.
#[inline(always)]
pub(super) fn shared<T: Element, W: Copy + Sync + Send>(x: &mut [T], with: W, work: fn(&mut [T], W)) {
    if is_long(x.len()) { share(x, with, work) } else { work(x, with) }
}

#[cold]
#[inline(never)]
fn share<T: Element, W: Copy + Sync + Send>(x: &mut [T], with: W, work: fn(&mut [T], W)) {
    if rayon::current_num_threads() > 1 {
        parallel::for_each(x.chunks_mut(PIECE).collect(), |x| work(x, with));
    } else {
        work(x, with);
    }
}

/// Runs `work` on the two slices of the same length, or on pieces of them at the same time.
#[inline(always)]
pub(super) fn shared2<T: Element, W: Copy + Sync + Send>(
    x: &[T],
    out: &mut [T],
    with: W,
    work: fn(&[T], &mut [T], W),
) {
    if is_long(x.len()) { share2(x, out, with, work) } else { work(x, out, with) }
}

#[cold]
#[inline(never)]
fn share2<T: Element, W: Copy + Sync + Send>(x: &[T], out: &mut [T], with: W, work: fn(&[T], &mut [T], W)) {
    if rayon::current_num_threads() > 1 {
        let pieces = x.chunks(PIECE).zip(out.chunks_mut(PIECE)).collect();
        parallel::for_each(pieces, |(x, out)| work(x, out, with));
    } else {
        work(x, out, with);
    }
}

/// An operation of a slice into another, in a cache or past it.
type Work2<T, W> = [fn(&[T], &mut [T], W); 2];

/// As [`shared2`], for an operation that only writes `out`: it comes in two forms, the second of which writes past the caches
/// to an `out` that begins with a cache line.
#[inline(always)]
pub(super) fn past2<T: Element, W: Copy + Sync + Send>(x: &[T], out: &mut [T], with: W, work: Work2<T, W>) {
    if is_long(out.len()) { share_past2(x, out, with, work) } else { work[0](x, out, with) }
}

#[cold]
#[inline(never)]
fn share_past2<T: Element, W: Copy + Sync + Send>(
    x: &[T],
    out: &mut [T],
    with: W,
    [near, past]: Work2<T, W>,
) {
    let begin = before_lines(out);
    let ((x_begin, x), (out_begin, out)) = (x.split_at(begin), out.split_at_mut(begin));
    near(x_begin, out_begin, with);
    let is_far = is_far(out);
    run_all(x.chunks(PIECE).zip(out.chunks_mut(PIECE)), |(x, out)| {
        if is_far {
            past(x, out, with);
            settle_streams();
        } else {
            near(x, out, with);
        }
    });
}

/// The same of two slices into a third.
type Work3<T> = [fn(&[T], &[T], &mut [T]); 2];

/// As [`past2`], for two operands.
#[inline(always)]
pub(super) fn past3<T: Element>(a: &[T], b: &[T], out: &mut [T], work: Work3<T>) {
    if is_long(out.len()) { share_past3(a, b, out, work) } else { work[0](a, b, out) }
}

#[cold]
#[inline(never)]
fn share_past3<T: Element>(a: &[T], b: &[T], out: &mut [T], [near, past]: Work3<T>) {
    let begin = before_lines(out);
    let ((a_begin, a), (b_begin, b)) = (a.split_at(begin), b.split_at(begin));
    let (out_begin, out) = out.split_at_mut(begin);
    near(a_begin, b_begin, out_begin);
    let is_far = is_far(out);
    run_all(a.chunks(PIECE).zip(b.chunks(PIECE)).zip(out.chunks_mut(PIECE)), |((a, b), out)| {
        if is_far {
            past(a, b, out);
            settle_streams();
        } else {
            near(a, b, out);
        }
    });
}

/// Runs `work` on all pieces, at the same time if there are threads. One thread allocates nothing.
fn run_all<P: Send>(pieces: impl Iterator<Item = P>, work: impl Fn(P) + Sync + Send) {
    if parallel::threads() > 1 { parallel::for_each(pieces.collect(), work) } else { pieces.for_each(work) }
}

fn is_far<T>(out: &[T]) -> bool {
    size_of_val(out) >= FAR
}

/// Elements before the first one that begins a cache line, if the result goes past the caches.
fn before_lines<T>(out: &[T]) -> usize {
    if is_far(out) { out.as_ptr().align_offset(ALIGNMENT).min(out.len()) } else { 0 }
}

/// Elements that [`in_place`] copies at a time.
const BLOCK: usize = 512;

/// Replaces `x` by what `work` makes of it, block by block. For functions that cost more than a copy in the first cache,
/// this saves a second version of each.
pub(super) fn in_place<T: Element>(x: &mut [T], parameter: T, work: fn(&[T], &mut [T], T)) {
    shared(x, (parameter, work), |x, (parameter, work)| {
        let mut copy = [T::ZERO; BLOCK];
        for x in x.chunks_mut(BLOCK) {
            let copy = &mut copy[..x.len()];
            copy.copy_from_slice(x);
            work(copy, x, parameter);
        }
    });
}

/// What `work` gives for a slice; or for its pieces, which do not depend on the number of threads, put together by `join`.
#[inline(always)]
pub(super) fn pieces<T: Element, W: Copy + Sync + Send, R: Send + Default>(
    x: &[T],
    with: W,
    work: fn(&[T], W) -> R,
    join: fn(&mut [R]) -> R,
) -> R {
    if x.len() <= PIECE {
        return work(x, with);
    }
    run_pieces(x.len(), |piece| work(&x[piece], with), join)
}

/// The same for two slices of the same length.
#[inline(always)]
pub(super) fn pieces2<T: Element, W: Copy + Sync + Send, R: Send + Default>(
    a: &[T],
    b: &[T],
    with: W,
    work: fn(&[T], &[T], W) -> R,
    join: fn(&mut [R]) -> R,
) -> R {
    if a.len() <= PIECE {
        return work(a, b, with);
    }
    run_pieces(a.len(), |piece| work(&a[piece.clone()], &b[piece], with), join)
}

/// The same for two slices of the same length, of which `work` fills the second.
#[inline(always)]
pub(super) fn pieces_into<T: Element, W: Copy + Sync + Send, R: Send + Default>(
    x: &[T],
    out: &mut [T],
    with: W,
    work: fn(&[T], &mut [T], W) -> R,
    join: fn(&mut [R]) -> R,
) -> R {
    if x.len() <= PIECE {
        return work(x, out, with);
    }
    fill_pieces(x, out, with, work, join)
}

#[cold]
#[inline(never)]
fn fill_pieces<T: Element, W: Copy + Sync + Send, R: Send + Default>(
    x: &[T],
    out: &mut [T],
    with: W,
    work: fn(&[T], &mut [T], W) -> R,
    join: fn(&mut [R]) -> R,
) -> R {
    let mut results: Vec<R> = x.chunks(PIECE).map(|_| R::default()).collect();
    let pieces = x.chunks(PIECE).zip(out.chunks_mut(PIECE)).zip(&mut results);
    parallel::for_each(pieces.collect(), |((x, out), result)| *result = work(x, out, with));
    join(&mut results)
}

#[cold]
#[inline(never)]
fn run_pieces<R: Send + Default>(
    len: usize,
    work: impl Fn(Range<usize>) -> R + Sync + Send,
    join: fn(&mut [R]) -> R,
) -> R {
    let mut results: Vec<R> = (0..len.div_ceil(PIECE)).map(|_| R::default()).collect();
    let run = |(piece, result): (usize, &mut R)| {
        *result = work(piece * PIECE..len.min((piece + 1) * PIECE));
    };
    parallel::for_each(results.iter_mut().enumerate().collect(), run);
    join(&mut results)
}
