//! Loops over slices that all vector operations share.
//!
//! [`map`], [`zip`] and their in-place forms apply a function of vectors to whole slices, with one instruction set. The
//! last elements, fewer than a vector has lanes, go through a padded vector and the same function, so that a result does
//! not depend on the position of an element. [`for_chunks`] and its variants split long slices into chunks for several
//! threads, as far as they are awake. [`streaming`] and [`streaming2`] write results that are larger than the caches with non-temporal stores.

use std::ops::Range;

use fearless_simd::{Simd, prelude::*};

use crate::buffer::ALIGNMENT;
use crate::dtype::Element;
use crate::kernel::{store_fence, store_non_temporal};
use crate::parallel::{self, Wake};

/// Elements of a chunk of a reduction. The order of a sum depends on it.
pub(crate) const CHUNK_LEN: usize = 1 << 16;

/// Elements that a thread claims at a time. Slices of two such chunks or more run on several threads: the cheapest operation
/// takes about 6 us on them, and sharing them with a spinning thread less than one.
const CLAIM_LEN: usize = 1 << 15;

/// Smallest number of elements for which sleeping threads are woken: waking one takes about 12 us of the caller, and it
/// arrives after 30 to 50 us.
const WAKE_MIN_LEN: usize = 1 << 18;

/// Unrolling of operations of one or two instructions, whose time would otherwise go into the loop counter.
pub(super) const UNROLL_CHEAP: usize = 4;
/// Unrolling of functions that take many instructions.
pub(super) const UNROLL_COSTLY: usize = 1;

/// Smallest result in bytes that is written with non-temporal stores, if the operation does not read it. Ordinary stores
/// would read every cache line from memory first, and the result would be evicted before anything reads it.
const STREAMING_MIN_BYTES: usize = if cfg!(test) { 1 << 19 } else { 16 << 20 };

/// Stores a vector with ordinary or non-temporal instructions.
#[inline(always)]
fn store<S: Simd, V: SimdBase<S>, const NON_TEMPORAL: bool>(value: V, out: &mut [V::Element]) {
    if NON_TEMPORAL {
        store_non_temporal(value.token().level(), value.as_slice(), out);
    } else {
        value.store_slice(out);
    }
}

/// Computes `out[i] = f(x[i])` for slices of the same length.
#[inline(always)]
pub(super) fn map<S: Simd, V: SimdBase<S>, const UNROLL: usize, const NON_TEMPORAL: bool>(
    simd: S,
    x: &[V::Element],
    out: &mut [V::Element],
    f: impl Fn(V) -> V,
) {
    // With lengths that are known to be equal, the bounds check leaves the loop.
    let out = &mut out[..x.len()];
    let mut x = x.chunks_exact(UNROLL * V::LEN);
    let mut out = out.chunks_exact_mut(UNROLL * V::LEN);
    for (x, out) in x.by_ref().zip(out.by_ref()) {
        for k in 0..UNROLL {
            let lanes = k * V::LEN..(k + 1) * V::LEN;
            store::<S, V, NON_TEMPORAL>(f(V::from_slice(simd, &x[lanes.clone()])), &mut out[lanes]);
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

/// Computes `x[i] = f(x[i])`.
#[inline(always)]
pub(super) fn map_in_place<S: Simd, V: SimdBase<S>>(simd: S, x: &mut [V::Element], f: impl Fn(V) -> V) {
    let mut groups = x.chunks_exact_mut(UNROLL_CHEAP * V::LEN);
    for x in groups.by_ref() {
        for k in 0..UNROLL_CHEAP {
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

/// Computes `out[i] = f(a[i], b[i])` for slices of the same length.
#[inline(always)]
pub(super) fn zip<S: Simd, V: SimdBase<S>, const NON_TEMPORAL: bool>(
    simd: S,
    a: &[V::Element],
    b: &[V::Element],
    out: &mut [V::Element],
    f: impl Fn(V, V) -> V,
) {
    let (b, out) = (&b[..a.len()], &mut out[..a.len()]);
    let mut a = a.chunks_exact(UNROLL_CHEAP * V::LEN);
    let mut b = b.chunks_exact(UNROLL_CHEAP * V::LEN);
    let mut out = out.chunks_exact_mut(UNROLL_CHEAP * V::LEN);
    for ((a, b), out) in a.by_ref().zip(b.by_ref()).zip(out.by_ref()) {
        for k in 0..UNROLL_CHEAP {
            let lanes = k * V::LEN..(k + 1) * V::LEN;
            let (a, b) = (V::from_slice(simd, &a[lanes.clone()]), V::from_slice(simd, &b[lanes.clone()]));
            store::<S, V, NON_TEMPORAL>(f(a, b), &mut out[lanes]);
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

/// Computes `out[i] = f(a[i], b[i], c[i])` for slices of the same length.
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

/// Computes `a[i] = f(a[i], b[i])` for slices of the same length.
#[inline(always)]
pub(super) fn zip_in_place<S: Simd, V: SimdBase<S>>(
    simd: S,
    a: &mut [V::Element],
    b: &[V::Element],
    f: impl Fn(V, V) -> V,
) {
    let b = &b[..a.len()];
    let mut a = a.chunks_exact_mut(UNROLL_CHEAP * V::LEN);
    let mut b = b.chunks_exact(UNROLL_CHEAP * V::LEN);
    for (a, b) in a.by_ref().zip(b.by_ref()) {
        for k in 0..UNROLL_CHEAP {
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

/// Stores the first lanes of a vector.
#[inline(always)]
fn store_tail<S: Simd, V: SimdBase<S>>(value: V, out: &mut [V::Element]) {
    out.copy_from_slice(&value.as_slice()[..out.len()]);
}

/// Returns a vector that begins with the elements of `tail`, which has fewer elements than the vector has lanes. The other
/// lanes repeat the first one, so that they cannot trigger slow or exceptional cases (a division by zero, a large angle) of
/// their own.
#[inline(always)]
pub(super) fn padded<S: Simd, V: SimdBase<S>>(simd: S, tail: &[V::Element]) -> V {
    let mut vector = V::splat(simd, tail[0]);
    vector.as_mut_slice()[..tail.len()].copy_from_slice(tail);
    vector
}

/// Returns whether slices of this length are split among threads.
#[inline(always)]
fn is_parallel(len: usize) -> bool {
    len >= 2 * CLAIM_LEN
}

/// Returns which threads process a slice of this length.
pub(super) fn wake(len: usize) -> Wake {
    if len >= WAKE_MIN_LEN { Wake::Always } else { Wake::InSequence }
}

/// Runs `work` on chunks of a slice, each with its range, on the threads that are awake in time.
fn claim_chunks<T: Element>(out: &mut [T], work: impl Fn(Range<usize>, &mut [T]) + Sync) {
    // Items without a size are not allocated.
    let mut items = vec![(); out.len().div_ceil(CLAIM_LEN)];
    let wake = wake(out.len());
    parallel::for_each_claimed_chunk(out, CLAIM_LEN, &mut items, wake, |index, out, ()| {
        let begin = index * CLAIM_LEN;
        work(begin..begin + out.len(), out);
    });
}

/// Runs `work` on the slice, or on its chunks in parallel.
///
/// `work` is a function pointer with an explicit environment `with`, not a closure: each closure would be a type of its
/// own, for which the parallel code would be compiled again. The parallel code is an outlined cold function, so that `work`
/// on a short slice can be inlined: on 256 numbers two more calls take a quarter of the time.
#[inline(always)]
pub(super) fn for_chunks<T: Element, W: Copy + Sync + Send>(x: &mut [T], with: W, work: fn(&mut [T], W)) {
    if is_parallel(x.len()) { run_chunks(x, with, work) } else { work(x, with) }
}

#[cold]
#[inline(never)]
fn run_chunks<T: Element, W: Copy + Sync + Send>(x: &mut [T], with: W, work: fn(&mut [T], W)) {
    claim_chunks(x, |_, x| work(x, with));
}

/// Runs `work` on two slices of the same length, or on their chunks in parallel.
#[inline(always)]
pub(super) fn for_chunks2<T: Element, W: Copy + Sync + Send>(
    x: &[T],
    out: &mut [T],
    with: W,
    work: fn(&[T], &mut [T], W),
) {
    if is_parallel(x.len()) { run_chunks2(x, out, with, work) } else { work(x, out, with) }
}

#[cold]
#[inline(never)]
fn run_chunks2<T: Element, W: Copy + Sync + Send>(
    x: &[T],
    out: &mut [T],
    with: W,
    work: fn(&[T], &mut [T], W),
) {
    claim_chunks(out, |range, out| work(&x[range], out, with));
}

/// Operation from one slice to another: with ordinary stores, and with non-temporal ones.
type UnaryWork<T, W> = [fn(&[T], &mut [T], W); 2];

/// Runs an operation that only writes `out` on the slices, or on their chunks in parallel. Large results are written by the
/// second form of `work`, which needs an `out` that begins at a cache line.
#[inline(always)]
pub(super) fn streaming<T: Element, W: Copy + Sync + Send>(
    x: &[T],
    out: &mut [T],
    with: W,
    work: UnaryWork<T, W>,
) {
    if is_parallel(out.len()) { run_streaming(x, out, with, work) } else { work[0](x, out, with) }
}

#[cold]
#[inline(never)]
fn run_streaming<T: Element, W: Copy + Sync + Send>(
    x: &[T],
    out: &mut [T],
    with: W,
    [cached, streaming]: UnaryWork<T, W>,
) {
    let begin = unaligned_prefix(out);
    let ((x_begin, x), (out_begin, out)) = (x.split_at(begin), out.split_at_mut(begin));
    cached(x_begin, out_begin, with);
    let is_streaming = is_streaming(out);
    claim_chunks(out, |range, out| {
        if is_streaming {
            streaming(&x[range], out, with);
            store_fence();
        } else {
            cached(&x[range], out, with);
        }
    });
}

/// Operation from two slices to a third: with ordinary stores, and with non-temporal ones.
type BinaryWork<T> = [fn(&[T], &[T], &mut [T]); 2];

/// Like [`streaming`], for two operands.
#[inline(always)]
pub(super) fn streaming2<T: Element>(a: &[T], b: &[T], out: &mut [T], work: BinaryWork<T>) {
    if is_parallel(out.len()) { run_streaming2(a, b, out, work) } else { work[0](a, b, out) }
}

#[cold]
#[inline(never)]
fn run_streaming2<T: Element>(a: &[T], b: &[T], out: &mut [T], [cached, streaming]: BinaryWork<T>) {
    let begin = unaligned_prefix(out);
    let ((a_begin, a), (b_begin, b)) = (a.split_at(begin), b.split_at(begin));
    let (out_begin, out) = out.split_at_mut(begin);
    cached(a_begin, b_begin, out_begin);
    let is_streaming = is_streaming(out);
    claim_chunks(out, |range, out| {
        let (a, b) = (&a[range.clone()], &b[range]);
        if is_streaming {
            streaming(a, b, out);
            store_fence();
        } else {
            cached(a, b, out);
        }
    });
}

fn is_streaming<T>(out: &[T]) -> bool {
    size_of_val(out) >= STREAMING_MIN_BYTES
}

/// Returns the number of elements before the first cache line boundary if the result is written with non-temporal stores,
/// or 0.
fn unaligned_prefix<T>(out: &[T]) -> usize {
    if is_streaming(out) { out.as_ptr().align_offset(ALIGNMENT).min(out.len()) } else { 0 }
}

/// Elements that [`map_blocks_in_place`] copies at a time.
const BLOCK: usize = 512;

/// Replaces `x` by the result of `work`, block by block. For functions that take longer than a copy in the first-level
/// cache, this avoids compiling an in-place version of each.
pub(super) fn map_blocks_in_place<T: Element>(x: &mut [T], parameter: T, work: fn(&[T], &mut [T], T)) {
    for_chunks(x, (parameter, work), |x, (parameter, work)| {
        let mut copy = [T::ZERO; BLOCK];
        for x in x.chunks_mut(BLOCK) {
            let copy = &mut copy[..x.len()];
            copy.copy_from_slice(x);
            work(copy, x, parameter);
        }
    });
}

/// Returns the result of `work` for a slice, or for its chunks, combined by `join`. The chunks do not depend on the number
/// of threads.
#[inline(always)]
pub(super) fn reduce_chunks<T: Element, W: Copy + Sync + Send, R: Send + Sync + Default>(
    x: &[T],
    with: W,
    work: fn(&[T], W) -> R,
    join: fn(&mut [R]) -> R,
) -> R {
    if x.len() <= CHUNK_LEN {
        return work(x, with);
    }
    run_reduce(x.len(), |chunk| work(&x[chunk], with), join)
}

/// Like [`reduce_chunks`], for two slices of the same length.
#[inline(always)]
pub(super) fn reduce_chunks2<T: Element, W: Copy + Sync + Send, R: Send + Sync + Default>(
    a: &[T],
    b: &[T],
    with: W,
    work: fn(&[T], &[T], W) -> R,
    join: fn(&mut [R]) -> R,
) -> R {
    if a.len() <= CHUNK_LEN {
        return work(a, b, with);
    }
    run_reduce(a.len(), |chunk| work(&a[chunk.clone()], &b[chunk], with), join)
}

/// Like [`reduce_chunks`], for a `work` that also fills a slice of the same length.
#[inline(always)]
pub(super) fn reduce_chunks_into<T: Element, W: Copy + Sync + Send, R: Send + Sync + Default>(
    x: &[T],
    out: &mut [T],
    with: W,
    work: fn(&[T], &mut [T], W) -> R,
    join: fn(&mut [R]) -> R,
) -> R {
    if x.len() <= CHUNK_LEN {
        return work(x, out, with);
    }
    run_reduce_into(x, out, with, work, join)
}

#[cold]
#[inline(never)]
fn run_reduce_into<T: Element, W: Copy + Sync + Send, R: Send + Sync + Default>(
    x: &[T],
    out: &mut [T],
    with: W,
    work: fn(&[T], &mut [T], W) -> R,
    join: fn(&mut [R]) -> R,
) -> R {
    let mut results: Vec<R> = x.chunks(CHUNK_LEN).map(|_| R::default()).collect();
    let wake = wake(x.len());
    parallel::for_each_claimed_chunk(out, CHUNK_LEN, &mut results, wake, |index, out, result| {
        *result = work(&x[index * CHUNK_LEN..][..out.len()], out, with);
    });
    join(&mut results)
}

#[cold]
#[inline(never)]
fn run_reduce<R: Send + Sync + Default>(
    len: usize,
    work: impl Fn(Range<usize>) -> R + Sync,
    join: fn(&mut [R]) -> R,
) -> R {
    let mut results: Vec<R> = (0..len.div_ceil(CHUNK_LEN)).map(|_| R::default()).collect();
    let mut items = vec![(); results.len()];
    parallel::for_each_claimed_chunk(&mut results, 1, &mut items, wake(len), |chunk, result, ()| {
        result[0] = work(chunk * CHUNK_LEN..len.min((chunk + 1) * CHUNK_LEN));
    });
    join(&mut results)
}
