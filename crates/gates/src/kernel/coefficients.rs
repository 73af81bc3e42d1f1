//! Coefficients of soft gates from their logits, and gradients of the logits from the kernels' sums.
//!
//! A gate has 16 logits, one per Boolean function; function `i` is a truth table whose bits 0 to 3 are
//! f(1,1), f(1,0), f(0,1), f(0,0). With p = softmax(logits), the soft truth table is
//! `t11 = sum of p_i over i with bit 0 set` and so on, and the multilinear form through it has
//! c0 = t00, c1 = t10 - t00, c2 = t01 - t00, c3 = t11 - t10 - t01 + t00.
//!
//! Eight gates are computed at a time, one per lane, after an 8x8 transposition.

use fearless_simd::{Simd, f32x4, f32x8, i32x8, prelude::*};

use super::program::{Order, Source};
use gatework_engine::dispatch;
use gatework_engine::simd::level;
use gatework_engine::simd::transpose::{BLOCK, transpose_block, transpose_quarters};

/// Boolean functions of two inputs: the number of logits a gate has.
pub const FUNCTIONS: usize = 16;

/// The smallest |c3| that the backward pass divides by. A smaller c3 is replaced by it in the gradients of a gate's
/// operands: an absolute error of 1e-12 in a coefficient of order 1, far below its rounding. Smaller coefficients count
/// as zero.
const SMALLEST_C3: f32 = 1e-12;

/// c0 to c3 of one gate, with the operands in the order of its op.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Forward(pub [f32; 4]);

impl Forward {
    /// Broadcasts each coefficient to a vector. Written out: `array::map` is not always inlined, and vector operations
    /// outside of a function with their target features are calls.
    #[inline(always)]
    pub fn splat<S: Simd>(&self, simd: S) -> [S::f32s; 4] {
        let [c0, c1, c2, c3] = self.0;
        [
            S::f32s::splat(simd, c0),
            S::f32s::splat(simd, c1),
            S::f32s::splat(simd, c2),
            S::f32s::splat(simd, c3),
        ]
    }
}

/// Coefficients of one gate for the backward pass.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backward {
    pub c3: f32,
    pub c1_by_c3: f32,
    pub c2_by_c3: f32,
    /// Operands that the gate does not depend on: [`DEAD_A`], [`DEAD_B`].
    pub dead: u32,
}

/// The gate does not depend on operand `a` and does not contribute to its gradient.
pub(super) const DEAD_A: u32 = 1;
/// The gate does not depend on operand `b`.
pub(super) const DEAD_B: u32 = 2;

/// Numbers of one gate for both passes: c0, c1, c2, c3, c3 bounded away from 0, c1/c3, c2/c3, 1/c3.
#[derive(Clone, Copy, Debug, Default)]
#[repr(align(32))]
struct Quantities([f32; BLOCK]);

/// The coefficients of all gates of a network, computed once per update.
#[derive(Clone, Debug)]
pub struct GateTable {
    gates: usize,
    /// Probabilities of 8 gates: function by lane.
    probabilities: Vec<[[f32; BLOCK]; FUNCTIONS]>,
    /// The numbers of each gate, padded with zeros to a multiple of 8 gates.
    quantities: Vec<Quantities>,
}

impl GateTable {
    /// Allocates the table of a network with this number of gates.
    pub fn new(gates: usize) -> GateTable {
        let blocks = gates.div_ceil(BLOCK);
        GateTable {
            gates,
            probabilities: vec![[[0.0; BLOCK]; FUNCTIONS]; blocks],
            quantities: vec![Quantities::default(); blocks * BLOCK],
        }
    }

    /// Computes probabilities and coefficients from the logits, 16 for each gate.
    pub fn update(&mut self, logits: &[f32]) {
        assert_eq!(logits.len(), self.gates * FUNCTIONS, "16 logits for each gate");
        dispatch!(level(), simd => {
            let blocks = self.probabilities.iter_mut().zip(self.quantities.chunks_exact_mut(BLOCK));
            for (logits, (probabilities, quantities)) in logits.chunks(BLOCK * FUNCTIONS).zip(blocks) {
                update_block(simd, logits, probabilities, quantities);
            }
        });
    }

    /// Replaces the coefficients by those of one function for each gate. The probabilities stay, so [`Self::logit_gradients`] is
    /// the straight-through estimate.
    pub fn harden(&mut self, functions: &[u8]) {
        assert_eq!(functions.len(), self.gates, "a function for each gate");
        for (&function, quantities) in functions.iter().zip(&mut self.quantities) {
            let [t11, t10, t01, t00] = [0, 1, 2, 3].map(|bit| f32::from(function >> bit & 1));
            let (c1, c2, c3) = (t10 - t00, t01 - t00, t11 - t10 - t01 + t00);
            let away = if c3 == 0.0 { SMALLEST_C3 } else { c3 };
            quantities.0 = [t00, c1, c2, c3, away, c1 / away, c2 / away, 1.0 / away];
        }
    }

    /// Computes the gradients of the logits from those of the coefficients (c0 to c3 of each gate) and adds them to
    /// `grads`.
    pub fn logit_gradients(&self, coefficient_grads: &[[f32; 4]], grads: &mut [f32]) {
        assert_eq!(coefficient_grads.len(), self.gates, "four sums for each gate");
        assert_eq!(grads.len(), self.gates * FUNCTIONS, "16 gradients for each gate");
        dispatch!(level(), simd => {
            let blocks = coefficient_grads.chunks(BLOCK).zip(&self.probabilities);
            for (grads, (sums, probabilities)) in grads.chunks_mut(BLOCK * FUNCTIONS).zip(blocks) {
                gradient_block(simd, sums, probabilities, grads);
            }
        });
    }
}

/// The coefficients of a network in its execution [`Order`].
#[derive(Clone, Debug, Default)]
pub struct Coefficients {
    pub(super) forward: Vec<Forward>,
    pub(super) backward: Vec<Backward>,
}

impl Coefficients {
    /// Copies the coefficients of a table.
    pub fn gather(&mut self, network: &impl AsRef<Order>, table: &GateTable) {
        let sources = network.as_ref().sources();
        self.forward.resize(sources.len(), Forward::default());
        self.backward.resize(sources.len(), Backward::default());
        for ((source, forward), backward) in sources.iter().zip(&mut self.forward).zip(&mut self.backward) {
            let [c0, c1, c2, c3, away, by1, by2, _] = table.quantities[source.gate as usize].0;
            let exchange = |x, y| if source.swapped { (y, x) } else { (x, y) };
            let ((c1, c2), (by1, by2)) = (exchange(c1, c2), exchange(by1, by2));
            *forward = Forward([c0, c1, c2, c3]);
            let no = |c: f32| c.abs() <= SMALLEST_C3;
            let dead = |c: f32, operand: u32| if no(c) && no(c3) { operand } else { 0 };
            let dead = dead(c1, DEAD_A) | dead(c2, DEAD_B);
            *backward = Backward { c3: away, c1_by_c3: by1, c2_by_c3: by2, dead };
        }
    }
}

/// Sums of the backward pass for each gate: the gradients of its four coefficients, times its c3.
///
/// Each chunk of the work has its own sums, which are added in a fixed order, so that the result does not depend on the
/// number of threads.
#[derive(Debug)]
pub struct Sums {
    /// One vector for each op: blocks of four lanes hold c3 times the sums of g, ga, gb, gab.
    values: Vec<f32>,
    /// Index of the first vector, aligned so that no vector crosses a cache line.
    begin: usize,
    gates: usize,
}

impl Sums {
    /// Zeros for a network.
    pub fn new(network: &impl AsRef<Order>) -> Sums {
        let gates = network.as_ref().len();
        let values = vec![0.0f32; gates * vector_length() + CACHE_LINE];
        let begin = values.as_ptr().align_offset(CACHE_LINE * size_of::<f32>()).min(CACHE_LINE);
        Sums { values, begin, gates }
    }

    /// Returns the vectors of some ops.
    #[inline(always)]
    pub(super) fn rows(&mut self, first: usize, ops: usize) -> &mut [f32] {
        let stride = vector_length();
        &mut self.values[self.begin + first * stride..][..ops * stride]
    }

    pub(super) fn check(&self, order: &Order) {
        assert_eq!(self.gates, order.len(), "sums made for this network");
    }

    /// Sets everything to zero.
    pub fn clear(&mut self) {
        self.values.fill(0.0);
    }

    /// Adds the sums to the coefficient gradients of a network's gates.
    pub fn add_to(&self, network: &impl AsRef<Order>, table: &GateTable, coefficient_grads: &mut [[f32; 4]]) {
        self.check(network.as_ref());
        let sources = network.as_ref().sources();
        dispatch!(level(), simd => add_sums(simd, &self.values[self.begin..], sources, table, coefficient_grads));
    }
}

/// Numbers in a cache line.
const CACHE_LINE: usize = 16;

/// Returns the lanes of the machine's widest vector.
fn vector_length() -> usize {
    fn length<S: Simd>(_: S) -> usize {
        S::f32s::LEN
    }
    dispatch!(level(), simd => length(simd))
}

/// Adds the vectors of some gates, folded to four numbers and divided by c3, to the gradients of coefficients.
#[inline(always)]
fn add_sums<S: Simd>(
    simd: S,
    vectors: &[f32],
    sources: &[Source],
    table: &GateTable,
    coefficient_grads: &mut [[f32; 4]],
) {
    for (source, vector) in sources.iter().zip(vectors.chunks_exact(S::f32s::LEN)) {
        let mut sum = f32x4::from_slice(simd, &vector[..4]);
        for block in vector[4..].chunks_exact(4) {
            sum += f32x4::from_slice(simd, block);
        }
        sum *= table.quantities[source.gate as usize].0[7];
        let [g, ga, gb, gab]: [f32; 4] = sum.into();
        let (ga, gb) = if source.swapped { (gb, ga) } else { (ga, gb) };
        for (to, add) in coefficient_grads[source.gate as usize].iter_mut().zip([g, ga, gb, gab]) {
            *to += add;
        }
    }
}

/// Loads up to 8 gates of 16 numbers as 16 vectors of 8 gates; missing gates are zeros.
#[inline(always)]
fn load_block<S: Simd>(simd: S, numbers: &[f32]) -> [f32x8<S>; FUNCTIONS] {
    let mut padded = [0.0f32; BLOCK * FUNCTIONS];
    let numbers = if numbers.len() == padded.len() {
        numbers
    } else {
        padded[..numbers.len()].copy_from_slice(numbers);
        &padded
    };
    let mut all = [f32x8::splat(simd, 0.0); FUNCTIONS];
    for (half, columns) in all.chunks_exact_mut(BLOCK).enumerate() {
        let mut rows = [f32x8::splat(simd, 0.0); BLOCK];
        for (row, gate) in rows.iter_mut().zip(numbers.chunks_exact(FUNCTIONS)) {
            *row = f32x8::from_slice(simd, &gate[half * BLOCK..][..BLOCK]);
        }
        columns.copy_from_slice(&transpose_block(simd, rows));
    }
    all
}

/// Returns the soft truth table t11, t10, t01, t00: sums over the functions that have bit 0, 1, 2 or 3 set.
#[inline(always)]
fn truth_table<S: Simd>(p: &[f32x8<S>; FUNCTIONS]) -> [f32x8<S>; 4] {
    let mut sums = [p[1], p[2], p[4], p[8]];
    for (bit, sum) in sums.iter_mut().enumerate() {
        for (i, p) in p.iter().enumerate().skip((1 << bit) + 1) {
            if i >> bit & 1 == 1 {
                *sum += *p;
            }
        }
    }
    sums
}

#[inline(always)]
fn update_block<S: Simd>(
    simd: S,
    logits: &[f32],
    probabilities: &mut [[f32; BLOCK]; FUNCTIONS],
    quantities: &mut [Quantities],
) {
    let mut p = load_block(simd, logits);
    // Four independent accumulators each for maximum and sum hide their latency.
    let mut most = [p[0], p[1], p[2], p[3]];
    for p in p.chunks_exact(4).skip(1) {
        for (most, p) in most.iter_mut().zip(p) {
            *most = most.max(*p);
        }
    }
    let most = most[0].max(most[1]).max(most[2].max(most[3]));
    let mut total = [f32x8::splat(simd, 0.0); 4];
    for p in p.chunks_exact_mut(4) {
        for (total, p) in total.iter_mut().zip(p) {
            *p = exp(simd, *p - most);
            *total += *p;
        }
    }
    let total = (total[0] + total[1]) + (total[2] + total[3]);
    let scale = f32x8::splat(simd, 1.0) / total;
    for (p, to) in p.iter_mut().zip(probabilities) {
        *p *= scale;
        p.store_slice(to);
    }
    // The same sums without the terms that cancel: untrained gates have c2 = c3 = 0 exactly.
    let [_, _, _, t00] = truth_table(&p);
    let c1 = (p[3] + (p[2] + p[6] + p[7])) - (p[8] + p[9] + p[12] + p[13]);
    let c2 = (p[5] + (p[4] + p[6] + p[7])) - (p[8] + p[9] + p[10] + p[11]);
    let twice = p[9] - p[6];
    let c3 = ((p[1] - p[2]) + (p[8] - p[4])) + ((p[11] - p[7]) + (p[13] - p[14])) + (twice + twice);
    let away = c3.abs().max_precise(f32x8::splat(simd, SMALLEST_C3)).copysign(c3);
    let inverse = f32x8::splat(simd, 1.0) / away;
    let by_quantity = [t00, c1, c2, c3, away, c1 * inverse, c2 * inverse, inverse];
    for (gate, to) in transpose_block(simd, by_quantity).iter().zip(quantities) {
        gate.store_slice(&mut to.0);
    }
}

#[inline(always)]
fn gradient_block<S: Simd>(
    simd: S,
    sums: &[[f32; 4]],
    probabilities: &[[f32; BLOCK]; FUNCTIONS],
    grads: &mut [f32],
) {
    let mut padded = [[0.0f32; 4]; BLOCK];
    padded[..sums.len()].copy_from_slice(sums);
    let mut rows = [f32x8::splat(simd, 0.0); 4];
    for (i, row) in rows.iter_mut().enumerate() {
        *row = f32x4::from_slice(simd, &padded[i]).combine(f32x4::from_slice(simd, &padded[i + 4]));
    }
    // Sums of g, ga, gb, gab, one gate a lane.
    let [g, ga, gb, gab] = transpose_quarters(simd, rows);
    let table = [gab, ga - gab, gb - gab, (g - ga) - (gb - gab)];
    let mut p = [f32x8::splat(simd, 0.0); FUNCTIONS];
    for (p, from) in p.iter_mut().zip(probabilities) {
        *p = f32x8::from_slice(simd, from);
    }
    let mut mean = f32x8::splat(simd, 0.0);
    for (t, g) in truth_table(&p).iter().zip(&table) {
        mean = t.mul_add(*g, mean);
    }
    for (i, p) in p.iter_mut().enumerate() {
        let mut value = f32x8::splat(simd, 0.0);
        for (bit, g) in table.iter().enumerate() {
            if i >> bit & 1 == 1 {
                value += *g;
            }
        }
        *p *= value - mean;
    }
    for (half, by_logit) in p.as_chunks::<BLOCK>().0.iter().enumerate() {
        for (gate, row) in grads.chunks_exact_mut(FUNCTIONS).zip(transpose_block(simd, *by_logit)) {
            let to = &mut gate[half * BLOCK..][..BLOCK];
            (f32x8::from_slice(simd, to) + row).store_slice(to);
        }
    }
}

/// e^x for x <= 0, relative error below 2e-7; below -87 the result is that of -87 (about 1e-38).
///
/// Range reduction x = n ln 2 + r with |r| <= ln(2)/2 and the Taylor polynomial of degree 7 for e^r, whose
/// remainder is below 6e-9 there. NaN stays NaN.
#[inline(always)]
fn exp<S: Simd>(simd: S, x: f32x8<S>) -> f32x8<S> {
    const COEFFICIENTS: [f32; 8] =
        [1.0, 1.0, 0.5, 1.0 / 6.0, 1.0 / 24.0, 1.0 / 120.0, 1.0 / 720.0, 1.0 / 5040.0];
    // x * 0 is zero for every finite x and keeps NaN.
    let x = x.max(f32x8::splat(simd, -87.0)) + x * 0.0;
    let n = (x * std::f32::consts::LOG2_E).round_ties_even();
    // ln 2 in two parts: the first has trailing zeros, so n times it is exact.
    let r = n.mul_add(f32x8::splat(simd, -0.693_359_4), x);
    let r = n.mul_add(f32x8::splat(simd, 2.121_944_4e-4), r);
    let mut y = f32x8::splat(simd, COEFFICIENTS[7]);
    for &c in COEFFICIENTS.iter().rev().skip(1) {
        y = y.mul_add(r, f32x8::splat(simd, c));
    }
    let power: i32x8<S> = (n.to_int::<i32x8<S>>() + 127) << 23;
    y * power.bitcast::<f32x8<S>>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_engine::simd::testing::on_every_level;

    #[test]
    fn exp_keeps_its_error_bound_over_its_whole_range() {
        // Every 997th number from -0 to -87, in steps of one unit in the last place.
        let last = 87.0f32.to_bits();
        let inputs: Vec<f32> = (0..=last).step_by(997).map(|bits| -f32::from_bits(bits)).collect();
        on_every_level(|| {
            let mut most: f64 = 0.0;
            for block in inputs.as_chunks::<BLOCK>().0 {
                let mut out = [0.0f32; BLOCK];
                dispatch!(level(), simd => {
                    exp(simd, f32x8::from_slice(simd, block)).store_slice(&mut out);
                });
                for (x, y) in block.iter().zip(out) {
                    let expected = f64::from(*x).exp();
                    most = most.max((f64::from(y) - expected).abs() / expected);
                }
            }
            assert!(most < 2e-7, "largest relative error {most:e}");
        });
    }

    #[test]
    fn coefficients_of_hard_gates_are_their_truth_tables() {
        on_every_level(|| (0..FUNCTIONS).for_each(check_truth_table));
    }

    #[test]
    fn a_hardened_table_has_the_coefficients_of_its_functions() {
        for function in 0..FUNCTIONS {
            let mut table = GateTable::new(1);
            table.update(&[0.0; FUNCTIONS]);
            let before = table.probabilities.clone();
            table.harden(&[function as u8]);
            let [c0, c1, c2, c3, away, by1, by2, inverse] = table.quantities[0].0;
            let values = [c0 + c1 + c2 + c3, c0 + c1, c0 + c2, c0];
            let bits: [f32; 4] = [0, 1, 2, 3].map(|bit| (function >> bit & 1) as f32);
            assert_eq!(values, bits, "function {function}");
            assert!(away != 0.0 && [by1 * away, by2 * away, inverse * away] == [c1, c2, 1.0]);
            assert_eq!(table.probabilities, before);
        }
    }

    fn check_truth_table(function: usize) {
        let logits: Vec<f32> = (0..FUNCTIONS).map(|i| if i == function { 60.0 } else { 0.0 }).collect();
        let mut table = GateTable::new(1);
        table.update(&logits);
        let [c0, c1, c2, c3, ..] = table.quantities[0].0;
        let value = |a: f32, b: f32| c0 + c1 * a + c2 * b + c3 * a * b;
        let bits = [value(1.0, 1.0), value(1.0, 0.0), value(0.0, 1.0), value(0.0, 0.0)];
        for (bit, value) in bits.iter().enumerate() {
            assert!(
                (value - (function >> bit & 1) as f32).abs() < 1e-6,
                "function {function}, bit {bit}: {value}"
            );
        }
    }
}
