//! From logits to coefficients, and from the kernels' sums back to gradients of the logits.
//!
//! A gate has 16 logits, one per Boolean function; function `i` is a truth table whose bits 0 to 3 are
//! f(1,1), f(1,0), f(0,1), f(0,0). With p = softmax(logits), the soft truth table is
//! `t11 = sum of p_i over i with bit 0 set` and so on, and the multilinear form through it has
//! c0 = t00, c1 = t10 - t00, c2 = t01 - t00, c3 = t11 - t10 - t01 + t00.
//!
//! Eight gates are treated at a time, one a lane, after an 8x8 transposition.

use fearless_simd::{Level, Simd, dispatch, f32x8, i32x8, prelude::*};

use super::Order;
use crate::kernel::transpose::{BLOCK, transpose_block};

/// Boolean functions of two inputs: the number of logits a gate has.
pub const FUNCTIONS: usize = 16;

/// The smallest |c3| that the backward pass divides by. The gradients of a gate's operands are as if c3 had
/// been this large: an absolute error of 1e-12 in a coefficient of order 1.
const SMALLEST_C3: f32 = 1e-12;

/// c0 to c3 of one gate, operands in the order of its op.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Forward(pub [f32; 4]);

/// What the backward pass needs of one gate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backward {
    pub c3: f32,
    pub c1_by_c3: f32,
    pub c2_by_c3: f32,
}

/// The coefficients of all gates of a network, computed once per update.
#[derive(Clone, Debug)]
pub struct GateTable {
    gates: usize,
    /// Probabilities of 8 gates: function by lane.
    probabilities: Vec<[[f32; BLOCK]; FUNCTIONS]>,
    /// c0, c1, c2, c3, c3 kept away from 0, c1/c3, c2/c3, 1/c3, each for 8 gates.
    quantities: Vec<[[f32; BLOCK]; 8]>,
}

impl GateTable {
    /// Room for a network of so many gates.
    pub fn new(gates: usize) -> GateTable {
        let blocks = gates.div_ceil(BLOCK);
        GateTable {
            gates,
            probabilities: vec![[[0.0; BLOCK]; FUNCTIONS]; blocks],
            quantities: vec![[[0.0; BLOCK]; 8]; blocks],
        }
    }

    /// Computes probabilities and coefficients from the logits, 16 for each gate.
    pub fn update(&mut self, logits: &[f32]) {
        assert_eq!(logits.len(), self.gates * FUNCTIONS, "16 logits for each gate");
        dispatch!(Level::new(), simd => {
            let blocks = self.probabilities.iter_mut().zip(&mut self.quantities);
            for (logits, (probabilities, quantities)) in logits.chunks(BLOCK * FUNCTIONS).zip(blocks) {
                update_block(simd, logits, probabilities, quantities);
            }
        });
    }

    /// The four coefficients of a gate: out = c0 + c1 a + c2 b + c3 ab.
    pub fn coefficients(&self, gate: usize) -> [f32; 4] {
        let block = &self.quantities[gate / BLOCK];
        std::array::from_fn(|i| block[i][gate % BLOCK])
    }

    /// Turns the gradients of the coefficients (c0 to c3 of each gate) into gradients of the logits, which
    /// are added to `grads`.
    pub fn logit_gradients(&self, coefficient_grads: &[[f32; 4]], grads: &mut [f32]) {
        assert_eq!(coefficient_grads.len(), self.gates, "four sums for each gate");
        assert_eq!(grads.len(), self.gates * FUNCTIONS, "16 gradients for each gate");
        dispatch!(Level::new(), simd => {
            let blocks = coefficient_grads.chunks(BLOCK).zip(&self.probabilities);
            for (grads, (sums, probabilities)) in grads.chunks_mut(BLOCK * FUNCTIONS).zip(blocks) {
                gradient_block(simd, sums, probabilities, grads);
            }
        });
    }
}

/// A network's coefficients in the [`Order`] in which its gates run.
#[derive(Clone, Debug, Default)]
pub struct Coefficients {
    pub(super) forward: Vec<Forward>,
    pub(super) backward: Vec<Backward>,
}

impl Coefficients {
    /// Takes over the coefficients of a table.
    pub fn gather(&mut self, network: &impl AsRef<Order>, table: &GateTable) {
        self.forward.clear();
        self.backward.clear();
        for source in network.as_ref().sources() {
            let (gate, lane) = (source.gate as usize / BLOCK, source.gate as usize % BLOCK);
            let q = table.quantities[gate].each_ref().map(|lanes| lanes[lane]);
            let (c1, c2, by1, by2) =
                if source.swapped { (q[2], q[1], q[6], q[5]) } else { (q[1], q[2], q[5], q[6]) };
            self.forward.push(Forward([q[0], c1, c2, q[3]]));
            self.backward.push(Backward { c3: q[4], c1_by_c3: by1, c2_by_c3: by2 });
        }
    }
}

/// What the backward pass adds up for each gate: the gradients of its four coefficients, times its c3.
///
/// Sums of several parts of the work are kept apart and added in a fixed order, so that the result does not
/// depend on the number of threads.
#[derive(Debug)]
pub struct Sums {
    /// One vector for each op: blocks of four lanes hold c3 times the sums of g, gb, ga, gab.
    values: Vec<f32>,
    /// Where the vectors begin: no vector may cross a cache line.
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

    /// The vectors of some ops.
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

    /// Adds the gradients of the coefficients to those of a network's gates.
    pub fn add_to(&self, network: &impl AsRef<Order>, table: &GateTable, coefficient_grads: &mut [[f32; 4]]) {
        let stride = vector_length();
        for (source, lanes) in
            network.as_ref().sources().iter().zip(self.values[self.begin..].chunks_exact(stride))
        {
            let mut sum = [0.0f32; 4];
            for block in lanes.chunks_exact(4) {
                for (sum, lane) in sum.iter_mut().zip(block) {
                    *sum += lane;
                }
            }
            let gate = source.gate as usize;
            let inverse = table.quantities[gate / BLOCK][7][gate % BLOCK];
            let [g, gb, ga, gab] = sum.map(|s| s * inverse);
            let (ga, gb) = if source.swapped { (gb, ga) } else { (ga, gb) };
            for (to, add) in coefficient_grads[gate].iter_mut().zip([g, ga, gb, gab]) {
                *to += add;
            }
        }
    }
}

/// Numbers in a cache line.
const CACHE_LINE: usize = 16;

/// Lanes of the machine's widest vector.
fn vector_length() -> usize {
    fn length<S: Simd>(_: S) -> usize {
        S::f32s::LEN
    }
    dispatch!(Level::new(), simd => length(simd))
}

/// Loads up to 8 gates of 16 numbers and turns them into 16 vectors of 8 gates; missing gates are zeros.
#[inline(always)]
fn load_block<S: Simd>(simd: S, numbers: &[f32]) -> [f32x8<S>; FUNCTIONS] {
    let mut padded = [0.0f32; BLOCK * FUNCTIONS];
    let numbers = if numbers.len() == padded.len() {
        numbers
    } else {
        padded[..numbers.len()].copy_from_slice(numbers);
        &padded
    };
    let half = |half: usize| {
        transpose_block(std::array::from_fn(|gate| {
            f32x8::from_slice(simd, &numbers[gate * FUNCTIONS + half * BLOCK..][..BLOCK])
        }))
    };
    let (low, high) = (half(0), half(1));
    std::array::from_fn(|i| if i < BLOCK { low[i] } else { high[i - BLOCK] })
}

/// Sums of the functions that have bit 0, 1, 2, 3 set: t11, t10, t01, t00.
#[inline(always)]
fn truth_table<S: Simd>(p: &[f32x8<S>; FUNCTIONS]) -> [f32x8<S>; 4] {
    std::array::from_fn(|bit| {
        let mut with_bit = (0..FUNCTIONS).filter(|i| i >> bit & 1 == 1).map(|i| p[i]);
        let first = with_bit.next().unwrap_or(p[0]);
        with_bit.fold(first, |sum, p| sum + p)
    })
}

#[inline(always)]
fn update_block<S: Simd>(
    simd: S,
    logits: &[f32],
    probabilities: &mut [[f32; BLOCK]; FUNCTIONS],
    quantities: &mut [[f32; BLOCK]; 8],
) {
    let mut p = load_block(simd, logits);
    let most = p.iter().fold(p[0], |most, &x| most.max_precise(x));
    let mut total = f32x8::splat(simd, 0.0);
    for p in &mut p {
        *p = exp(simd, *p - most);
        total += *p;
    }
    let scale = f32x8::splat(simd, 1.0) / total;
    for (p, to) in p.iter_mut().zip(probabilities) {
        *p *= scale;
        p.store_slice(to);
    }
    let [t11, t10, t01, t00] = truth_table(&p);
    let (c1, c2) = (t10 - t00, t01 - t00);
    let c3 = (t11 - t10) - c2;
    let away = c3.abs().max_precise(f32x8::splat(simd, SMALLEST_C3)).copysign(c3);
    let inverse = f32x8::splat(simd, 1.0) / away;
    for (q, to) in [t00, c1, c2, c3, away, c1 * inverse, c2 * inverse, inverse].iter().zip(quantities) {
        q.store_slice(to);
    }
}

#[inline(always)]
fn gradient_block<S: Simd>(
    simd: S,
    sums: &[[f32; 4]],
    probabilities: &[[f32; BLOCK]; FUNCTIONS],
    grads: &mut [f32],
) {
    // Sums of g, ga, gb, gab, one gate a lane.
    let [g, ga, gb, gab] =
        std::array::from_fn(|i| f32x8::from_fn(simd, |lane| sums.get(lane).map_or(0.0, |sums| sums[i])));
    let table = [gab, ga - gab, gb - gab, (g - ga) - (gb - gab)];
    let p: [f32x8<S>; FUNCTIONS] = std::array::from_fn(|i| f32x8::from_slice(simd, &probabilities[i]));
    let mean =
        truth_table(&p).iter().zip(&table).fold(f32x8::splat(simd, 0.0), |mean, (t, g)| t.mul_add(*g, mean));
    let by_logit: [f32x8<S>; FUNCTIONS] = std::array::from_fn(|i| {
        let mut value = f32x8::splat(simd, 0.0);
        for (bit, g) in table.iter().enumerate() {
            if i >> bit & 1 == 1 {
                value += *g;
            }
        }
        p[i] * (value - mean)
    });
    for half in 0..2 {
        let by_gate = transpose_block(std::array::from_fn(|i| by_logit[half * BLOCK + i]));
        for (gate, row) in grads.chunks_exact_mut(FUNCTIONS).zip(by_gate) {
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
    // A product with zero is zero for every number and nothing else.
    let x = x.max_precise(f32x8::splat(simd, -87.0)) + x * 0.0;
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
