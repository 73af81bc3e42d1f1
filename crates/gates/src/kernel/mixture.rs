//! Learned wires: rows that are mixtures of candidate rows, forward and backward.
//!
//! A wire of a gate that learns where to connect has `k` candidates. In training its value is their mean, weighted by a
//! softmax over `k` logits; hardening connects it to the most likely candidate. The mixture is a layer of its own before the
//! gates: row `w` of the result is the wire `w`.
//!
//! ```text
//! forward:   out[w]        = sum over j of p[w][j] x[c[w][j]]
//! backward:  sums[w][j]   += sum over lanes of grad[w] x[c[w][j]]
//!            grad x[c[w][j]] += p[w][j] grad[w]
//! ```
//!
//! The loop over the tiles is inside that over the wires, so that the sums of a wire stay in registers.

#![expect(unsafe_code, reason = "candidates are checked once, when a mixture is made")]

use fearless_simd::{Simd, f32x4, prelude::*};

use super::program::WireError;
use super::tile::{fold, load, store, vectors};
use super::{LANES, Row};
use gatework_engine::dispatch;
use gatework_engine::simd::level;

/// Candidates whose sums are computed together; the number of candidates is a multiple of it.
pub const CANDIDATE_GROUP: usize = 4;

/// Maximum number of vectors of a row.
const MAX_VECTORS: usize = LANES / 4;

/// The candidates of the wires of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mixture {
    inputs: usize,
    per_wire: usize,
    candidates: Vec<u32>,
}

impl Mixture {
    /// Creates a mixture of `inputs` rows with `per_wire` candidates for each wire, given wire by wire.
    ///
    /// # Panics
    /// If `per_wire` is not a multiple of [`CANDIDATE_GROUP`], or does not divide the number of candidates.
    pub fn new(inputs: usize, per_wire: usize, candidates: Vec<u32>) -> Result<Mixture, WireError> {
        assert!(per_wire > 0 && per_wire.is_multiple_of(CANDIDATE_GROUP), "a multiple of four candidates");
        assert!(candidates.len().is_multiple_of(per_wire), "the same number of candidates for each wire");
        if candidates.is_empty() {
            return Err(WireError::NoOutputs);
        }
        match candidates.iter().position(|&row| row as usize >= inputs) {
            Some(at) => Err(WireError::OutOfRange {
                layer: 0,
                gate: at / per_wire / 2,
                wire: candidates[at],
                rows: inputs,
            }),
            None => Ok(Mixture { inputs, per_wire, candidates }),
        }
    }

    /// Number of input rows.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Number of wires.
    pub fn wires(&self) -> usize {
        self.candidates.len() / self.per_wire
    }

    /// Number of candidates of a wire.
    pub fn per_wire(&self) -> usize {
        self.per_wire
    }

    /// The candidates, wire by wire.
    pub fn candidates(&self) -> &[u32] {
        &self.candidates
    }

    /// Computes the wires of one or more contiguous tiles from their input rows and the weights of all candidates.
    pub fn infer(&self, weights: &[f32], inputs: &[Row], outputs: &mut [Row]) {
        self.check(weights, inputs.len(), outputs.len());
        dispatch!(level(), simd => {
            let tiles = inputs.chunks_exact(self.inputs).zip(outputs.chunks_exact_mut(self.wires()));
            for (inputs, outputs) in tiles {
                infer(simd, self, weights, inputs, outputs);
            }
        });
    }

    /// Adds the gradients of the weights to `sums`, and those of the inputs to `input_grads` if they are wanted.
    pub fn gradient(
        &self,
        weights: &[f32],
        inputs: &[Row],
        output_grads: &[Row],
        input_grads: Option<&mut [Row]>,
        sums: &mut [f32],
    ) {
        self.check(weights, inputs.len(), output_grads.len());
        assert_eq!(sums.len(), self.candidates.len(), "a sum for each candidate");
        if let Some(grads) = &input_grads {
            assert_eq!(grads.len(), inputs.len(), "a gradient for each input row");
        }
        dispatch!(level(), simd => weight_gradients(simd, self, inputs, output_grads, sums));
        if let Some(grads) = input_grads {
            dispatch!(level(), simd => {
                let tiles = grads.chunks_exact_mut(self.inputs).zip(output_grads.chunks_exact(self.wires()));
                for (grads, output_grads) in tiles {
                    scatter(simd, self, weights, output_grads, grads);
                }
            });
        }
    }

    fn check(&self, weights: &[f32], inputs: usize, outputs: usize) {
        let tiles = outputs / self.wires();
        assert_eq!(weights.len(), self.candidates.len(), "a weight for each candidate");
        assert_eq!(inputs, tiles * self.inputs, "input rows for {tiles} tiles");
        assert_eq!(outputs, tiles * self.wires(), "output rows for {tiles} tiles");
    }
}

#[inline(always)]
fn infer<S: Simd>(simd: S, mixture: &Mixture, weights: &[f32], inputs: &[Row], outputs: &mut [Row]) {
    let k = mixture.per_wire;
    assert!(inputs.len() == mixture.inputs);
    let inputs = inputs.as_ptr();
    let wires = mixture.candidates.chunks_exact(k).zip(weights.chunks_exact(k));
    for ((candidates, weights), out) in wires.zip(outputs) {
        let mut total = [S::f32s::splat(simd, 0.0); MAX_VECTORS];
        for (&candidate, &weight) in candidates.iter().zip(weights) {
            let weight = S::f32s::splat(simd, weight);
            for (v, total) in total.iter_mut().enumerate().take(vectors::<S>()) {
                // SAFETY: candidates are below mixture.inputs, the length asserted above.
                let row = unsafe { load(simd, inputs.add(candidate as usize), v) };
                *total = row.mul_add(weight, *total);
            }
        }
        for (v, &total) in total.iter().enumerate().take(vectors::<S>()) {
            // SAFETY: `out` is a row.
            unsafe { store::<S>(total, out, v) };
        }
    }
}

#[inline(always)]
fn weight_gradients<S: Simd>(
    simd: S,
    mixture: &Mixture,
    inputs: &[Row],
    output_grads: &[Row],
    sums: &mut [f32],
) {
    let (k, wires) = (mixture.per_wire, mixture.wires());
    let tiles = output_grads.len() / wires;
    assert!(inputs.len() == tiles * mixture.inputs && output_grads.len() == tiles * wires);
    let groups = mixture.candidates.chunks_exact(CANDIDATE_GROUP).zip(sums.chunks_exact_mut(CANDIDATE_GROUP));
    for (group, (candidates, sums)) in groups.enumerate() {
        let wire = group / (k / CANDIDATE_GROUP);
        let mut total = [S::f32s::splat(simd, 0.0); CANDIDATE_GROUP];
        for tile in 0..tiles {
            // SAFETY: wire is below wires, candidates are below mixture.inputs, and the lengths are asserted above.
            unsafe {
                let grad = output_grads.as_ptr().add(tile * wires + wire);
                let rows = inputs.as_ptr().add(tile * mixture.inputs);
                for v in 0..vectors::<S>() {
                    let g = load(simd, grad, v);
                    for (total, &candidate) in total.iter_mut().zip(candidates) {
                        *total = load(simd, rows.add(candidate as usize), v).mul_add(g, *total);
                    }
                }
            }
        }
        let mut folded = [0.0f32; 16];
        let folded = &mut folded[..S::f32s::LEN];
        fold(simd, total).store_slice(folded);
        let mut sum = f32x4::from_slice(simd, sums);
        for block in folded.chunks_exact(4) {
            sum += f32x4::from_slice(simd, block);
        }
        sum.store_slice(sums);
    }
}

/// Adds the weighted gradients of one tile's wires to those of its input rows.
#[inline(always)]
fn scatter<S: Simd>(simd: S, mixture: &Mixture, weights: &[f32], output_grads: &[Row], grads: &mut [Row]) {
    let k = mixture.per_wire;
    assert!(grads.len() == mixture.inputs);
    let grads = grads.as_mut_ptr();
    let wires = mixture.candidates.chunks_exact(k).zip(weights.chunks_exact(k));
    for ((candidates, weights), grad) in wires.zip(output_grads) {
        for (&candidate, &weight) in candidates.iter().zip(weights) {
            let weight = S::f32s::splat(simd, weight);
            for v in 0..vectors::<S>() {
                // SAFETY: candidates are below mixture.inputs, the length asserted above.
                unsafe {
                    let to = grads.add(candidate as usize);
                    let sum = load(simd, grad, v).mul_add(weight, load(simd, to, v));
                    store::<S>(sum, to, v);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_engine::simd::testing::on_every_level;
    use proptest::prelude::*;

    /// A number in 0..1 that depends on its arguments only.
    fn number(seed: u64, position: usize) -> f32 {
        let mixed = (seed ^ position as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed ^ mixed >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 40) as f32 / (1u64 << 24) as f32
    }

    fn rows(seed: u64, count: usize) -> Vec<Row> {
        (0..count).map(|row| Row(std::array::from_fn(|lane| number(seed, row * LANES + lane)))).collect()
    }

    /// Compares both passes with the formulas at the head of this file, in double precision.
    fn check(inputs: usize, wires: usize, groups: usize, tiles: usize, seed: u64) {
        let k = groups * CANDIDATE_GROUP;
        let candidates: Vec<u32> = (0..wires * k).map(|i| (number(seed, i) * inputs as f32) as u32).collect();
        let mixture = Mixture::new(inputs, k, candidates.clone()).unwrap();
        let weights: Vec<f32> = (0..wires * k).map(|i| number(seed ^ 1, i)).collect();
        let (x, g) = (rows(seed ^ 2, tiles * inputs), rows(seed ^ 3, tiles * wires));
        let mut out = vec![Row::ZERO; tiles * wires];
        mixture.infer(&weights, &x, &mut out);
        let (mut sums, mut input_grads) = (vec![1.0f32; wires * k], vec![Row([1.0; LANES]); tiles * inputs]);
        mixture.gradient(&weights, &x, &g, Some(&mut input_grads), &mut sums);
        let (mut right_sums, mut right_grads) =
            (vec![1.0f64; wires * k], vec![[1.0f64; LANES]; tiles * inputs]);
        for (tile, wire, lane) in
            (0..tiles * wires * LANES).map(|i| (i / LANES / wires, i / LANES % wires, i % LANES))
        {
            let mut value = 0.0f64;
            for (j, &candidate) in candidates.iter().enumerate().skip(wire * k).take(k) {
                let row = tile * inputs + candidate as usize;
                let (x, g) = (f64::from(x[row].0[lane]), f64::from(g[tile * wires + wire].0[lane]));
                value += f64::from(weights[j]) * x;
                right_sums[j] += g * x;
                right_grads[row][lane] += f64::from(weights[j]) * g;
            }
            assert!((f64::from(out[tile * wires + wire].0[lane]) - value).abs() < 1e-4);
        }
        for (ours, right) in sums.iter().zip(right_sums) {
            assert!((f64::from(*ours) - right).abs() < 1e-3, "{ours} for {right}");
        }
        let ours = input_grads.iter().flat_map(|row| row.0);
        for (ours, right) in ours.zip(right_grads.iter().flatten()) {
            assert!((f64::from(ours) - right).abs() < 1e-3, "{ours} for {right}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn passes_agree_with_their_formulas(
            inputs in 1usize..20, wires in 1usize..9, groups in 1usize..4, tiles in 1usize..4, seed: u64,
        ) {
            on_every_level(|| check(inputs, wires, groups, tiles, seed));
        }
    }

    #[test]
    fn a_candidate_that_is_no_row_is_refused() {
        let error = Mixture::new(3, 4, vec![0, 1, 2, 0, 0, 3, 0, 0]).unwrap_err();
        assert_eq!(error, WireError::OutOfRange { layer: 0, gate: 0, wire: 3, rows: 3 });
    }
}
