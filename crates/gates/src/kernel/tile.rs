//! The two passes over a tile: [`GateProgram::infer`] and [`GateProgram::gradient`].
//!
//! Rows are read and written through raw pointers without bounds checks: [`GateProgram`] guarantees that its row
//! numbers are below the sizes of the layers' tiles, and the entry points check the lengths of the tiles.

#![expect(unsafe_code, reason = "row numbers are checked once, when a program is compiled")]

use fearless_simd::{Simd, prelude::*};

use super::coefficients::{Backward, Coefficients, DEAD_A, DEAD_B, Forward, Sums};
use super::program::{ADD_A, ADD_B, BEGIN, CompiledLayer, END, Op, SIDE_A, SIDE_B};
use super::{GateProgram, LANES, Row};
use gatework_engine::dispatch;
use gatework_engine::simd::level;

/// Scratch rows of one thread. Grows to the needs of the largest program and never shrinks.
#[derive(Clone, Debug, Default)]
pub struct Workspace {
    /// Inference: the rows in use. Gradient: all hidden rows, first the values, which are then replaced by their
    /// gradients, layer by layer from the last.
    hidden: Vec<Row>,
    outputs: Vec<Row>,
    /// Gradients of rows that several trails of a layer visit.
    side: Vec<Row>,
}

impl Workspace {
    fn grow(&mut self, hidden: usize, outputs: usize, side: usize) {
        for (rows, n) in [(&mut self.hidden, hidden), (&mut self.outputs, outputs), (&mut self.side, side)] {
            if rows.len() < n {
                rows.resize(n, Row::ZERO);
            }
        }
    }
}

impl GateProgram {
    /// Runs the network on one or more contiguous tiles: `inputs` holds [`inputs`](Self::inputs) rows for each,
    /// `outputs` [`outputs`](Self::outputs) rows.
    pub fn infer(
        &self,
        coefficients: &Coefficients,
        inputs: &[Row],
        outputs: &mut [Row],
        work: &mut Workspace,
    ) {
        self.check(coefficients, inputs.len(), outputs.len());
        work.grow(self.slot_rows, 0, 0);
        dispatch!(level(), simd => {
            let tiles = inputs.chunks_exact(self.inputs()).zip(outputs.chunks_exact_mut(self.outputs()));
            for (inputs, outputs) in tiles {
                infer(simd, self, coefficients, inputs, outputs, &mut work.hidden);
            }
        });
    }

    /// Backward pass: given the gradients of the outputs, replaces the inputs by their gradients and adds to the
    /// coefficient gradients in `sums`. Several tiles may be contiguous, as in [`Self::infer`].
    pub fn gradient(
        &self,
        coefficients: &Coefficients,
        inputs: &mut [Row],
        output_grads: &[Row],
        sums: &mut Sums,
        work: &mut Workspace,
    ) {
        self.check(coefficients, inputs.len(), output_grads.len());
        sums.check(self.as_ref());
        work.grow(self.hidden_rows(), 0, self.widest());
        dispatch!(level(), simd => {
            let tiles = inputs.chunks_exact_mut(self.inputs()).zip(output_grads.chunks_exact(self.outputs()));
            for (inputs, output_grads) in tiles {
                recompute(simd, self, coefficients, inputs, &mut work.hidden);
                backward(simd, self, coefficients, inputs, output_grads, sums, work);
            }
        });
    }

    /// Runs one tile forward and backward: `seed` gets the outputs and replaces them by their gradients.
    pub fn gradient_of(
        &self,
        coefficients: &Coefficients,
        inputs: &mut [Row],
        seed: impl FnOnce(&mut [Row]),
        sums: &mut Sums,
        work: &mut Workspace,
    ) {
        self.check(coefficients, inputs.len(), self.outputs());
        sums.check(self.as_ref());
        work.grow(self.hidden_rows(), self.outputs(), self.widest());
        let mut outputs = std::mem::take(&mut work.outputs);
        let rows = &mut outputs[..self.outputs()];
        dispatch!(level(), simd => {
            recompute(simd, self, coefficients, inputs, &mut work.hidden);
            last_layer(simd, self, coefficients, inputs, &work.hidden, rows);
        });
        seed(rows);
        dispatch!(level(), simd => backward(simd, self, coefficients, inputs, rows, sums, work));
        work.outputs = outputs;
    }

    fn check(&self, coefficients: &Coefficients, inputs: usize, outputs: usize) {
        let tiles = outputs / self.outputs();
        assert_eq!(inputs, tiles * self.inputs(), "input rows for {tiles} tiles");
        assert_eq!(outputs, tiles * self.outputs(), "output rows for {tiles} tiles");
        assert_eq!(coefficients.forward.len(), self.live_gates(), "coefficients gathered for this program");
    }
}

#[inline(always)]
fn infer<S: Simd>(
    simd: S,
    program: &GateProgram,
    coefficients: &Coefficients,
    inputs: &[Row],
    outputs: &mut [Row],
    hidden: &mut [Row],
) {
    assert!(inputs.len() == program.inputs() && outputs.len() == program.outputs());
    assert!(hidden.len() >= program.slot_rows);
    let hidden = hidden.as_mut_ptr();
    for (index, layer) in program.layers.iter().enumerate() {
        let source = if index == 0 { inputs.as_ptr() } else { hidden.cast_const() };
        let last = index + 1 == program.layers.len();
        let target = if last { outputs.as_mut_ptr() } else { hidden };
        for (slots, c) in layer.slots.iter().zip(&coefficients.forward[layer.first..]) {
            // SAFETY: slots are below the length asserted above of the tile they belong to.
            unsafe {
                let (a, b) = (source.add(slots.a as usize), source.add(slots.b as usize));
                forward_gate(simd, c, a, b, target.add(slots.out as usize));
            }
        }
    }
}

/// Runs all layers but the last and keeps every row.
#[inline(always)]
fn recompute<S: Simd>(
    simd: S,
    program: &GateProgram,
    coefficients: &Coefficients,
    inputs: &[Row],
    hidden: &mut [Row],
) {
    let mut begin = 0;
    let mut before = 0;
    for (index, layer) in program.layers.iter().enumerate().take(program.layers.len() - 1) {
        let (done, rest) = hidden.split_at_mut(begin);
        let source = if index == 0 { inputs } else { &done[before..] };
        forward_layer(simd, layer, coefficients, source, &mut rest[..layer.outputs]);
        before = begin;
        begin += layer.outputs;
    }
}

/// Runs the last layer on the rows of [`recompute`].
#[inline(always)]
fn last_layer<S: Simd>(
    simd: S,
    program: &GateProgram,
    coefficients: &Coefficients,
    inputs: &[Row],
    hidden: &[Row],
    outputs: &mut [Row],
) {
    let layer = &program.layers[program.layers.len() - 1];
    let end = program.hidden_rows();
    let source = if program.layers.len() == 1 { inputs } else { &hidden[end - layer.inputs..end] };
    forward_layer(simd, layer, coefficients, source, outputs);
}

#[inline(always)]
fn forward_layer<S: Simd>(
    simd: S,
    layer: &CompiledLayer,
    coefficients: &Coefficients,
    source: &[Row],
    target: &mut [Row],
) {
    assert!(source.len() == layer.inputs && target.len() == layer.outputs);
    let (source, target) = (source.as_ptr(), target.as_mut_ptr());
    for (op, c) in layer.ops.iter().zip(&coefficients.forward[layer.first..]) {
        // SAFETY: a and b are below layer.inputs, out is below layer.outputs.
        unsafe {
            let (a, b) = (source.add(op.a as usize), source.add(op.b as usize));
            forward_gate(simd, c, a, b, target.add(op.out as usize));
        }
    }
}

/// # Safety
/// `a` and `b` point to readable rows and `out` to a writable one, which may be the same as `a` or `b`.
#[inline(always)]
unsafe fn forward_gate<S: Simd>(simd: S, c: &Forward, a: *const Row, b: *const Row, out: *mut Row) {
    let [c0, c1, c2, c3] = c.splat(simd);
    for v in 0..vectors::<S>() {
        // SAFETY: as promised by the caller; each vector is read before it is written.
        unsafe {
            let (a, b) = (load(simd, a, v), load(simd, b, v));
            store::<S>(a.mul_add(b.mul_add(c3, c1), b.mul_add(c2, c0)), out, v);
        }
    }
}

#[inline(always)]
fn backward<S: Simd>(
    simd: S,
    program: &GateProgram,
    coefficients: &Coefficients,
    inputs: &mut [Row],
    output_grads: &[Row],
    sums: &mut Sums,
    work: &mut Workspace,
) {
    let hidden = &mut work.hidden[..program.hidden_rows()];
    let mut end = hidden.len();
    for (index, layer) in program.layers.iter().enumerate().rev() {
        let begin = if index == 0 { 0 } else { end - layer.inputs };
        let (before, after) = hidden.split_at_mut(end);
        let values = if index == 0 { &mut *inputs } else { &mut before[begin..] };
        let last = index + 1 == program.layers.len();
        let grads = if last { output_grads } else { &after[..layer.outputs] };
        backward_layer(simd, layer, coefficients, values, grads, &mut work.side, sums);
        end = begin;
    }
    for &row in &program.unread {
        inputs[row as usize] = Row::ZERO;
    }
}

/// Maximum number of vectors of a row: a vector has at least 4 lanes.
const MAX_VECTORS: usize = LANES / 4;

/// Number of vectors of a row.
#[inline(always)]
pub(super) const fn vectors<S: Simd>() -> usize {
    LANES / S::f32s::LEN
}

/// Replaces the rows of `values` by their gradients.
#[inline(always)]
fn backward_layer<S: Simd>(
    simd: S,
    layer: &CompiledLayer,
    coefficients: &Coefficients,
    values: &mut [Row],
    grads: &[Row],
    side: &mut [Row],
    sums: &mut Sums,
) {
    assert!(values.len() == layer.inputs && grads.len() == layer.outputs && side.len() >= layer.inputs);
    let settings = &coefficients.backward[layer.first..];
    let sums = sums.rows(layer.first, layer.ops.len());
    let tile = Tile { values: values.as_mut_ptr(), grads: grads.as_ptr(), side: side.as_mut_ptr() };
    let mut pending = [S::f32s::splat(simd, 0.0); MAX_VECTORS];
    for ((op, c), sums) in layer.ops.iter().zip(settings).zip(sums.chunks_exact_mut(S::f32s::LEN)) {
        // SAFETY: a and b are below layer.inputs, out is below layer.outputs.
        unsafe {
            if c.dead & DEAD_A == 0 {
                backward_gate::<S, true>(simd, op, c, &tile, &mut pending, sums);
            } else {
                backward_gate::<S, false>(simd, op, c, &tile, &mut pending, sums);
            }
        }
    }
}

/// The rows of a layer in the backward pass.
struct Tile {
    values: *mut Row,
    grads: *const Row,
    side: *mut Row,
}

/// # Safety
/// The op's rows lie within the tile.
#[inline(always)]
unsafe fn backward_gate<S: Simd, const DEPENDS_ON_A: bool>(
    simd: S,
    op: &Op,
    c: &Backward,
    tile: &Tile,
    pending: &mut [S::f32s; MAX_VECTORS],
    sums: &mut [f32],
) {
    let zero = S::f32s::splat(simd, 0.0);
    // SAFETY: as promised by the caller.
    let (a, b, g, side_a, side_b) = unsafe {
        (
            tile.values.add(op.a as usize),
            tile.values.add(op.b as usize),
            tile.grads.add(op.out as usize),
            tile.side.add(op.a as usize),
            tile.side.add(op.b as usize),
        )
    };
    let mut to_a = a;
    if op.flags & (BEGIN | ADD_A | SIDE_A) != 0 {
        for (v, pending) in pending.iter_mut().enumerate().take(vectors::<S>()) {
            if op.flags & BEGIN != 0 {
                *pending = zero;
            }
            if op.flags & ADD_A != 0 {
                // SAFETY: every row of values has a side row.
                *pending += unsafe { load(simd, side_a, v) };
            }
        }
        if op.flags & SIDE_A != 0 {
            to_a = side_a;
        }
    }
    let c3 = S::f32s::splat(simd, c.c3);
    let by_a = S::f32s::splat(simd, c.c1_by_c3);
    let by_b = S::f32s::splat(simd, c.c2_by_c3);
    let mut sum = [zero; 4];
    for (v, pending) in pending.iter_mut().enumerate().take(vectors::<S>()) {
        // SAFETY: as promised by the caller; a vector of `a` is read before its place is written.
        unsafe {
            let (a, b, g) = (load(simd, a, v), load(simd, b, v), load(simd, g, v) * c3);
            let ga = g * a;
            let total = if DEPENDS_ON_A { g.mul_add(b + by_a, *pending) } else { *pending };
            store::<S>(total, to_a, v);
            *pending = g.mul_add(by_b, ga);
            // The first vector initialises the sums.
            sum = if v == 0 {
                [g, ga, g * b, ga * b]
            } else {
                [sum[0] + g, sum[1] + ga, g.mul_add(b, sum[2]), ga.mul_add(b, sum[3])]
            };
        }
    }
    let folded = fold(simd, sum) + S::f32s::from_slice(simd, sums);
    folded.store_slice(sums);
    if c.dead & DEAD_B != 0 {
        // Exactly zero: tiny values would become subnormal, and slow, in earlier layers.
        *pending = [zero; MAX_VECTORS];
    }
    if op.flags & END != 0 {
        let to_b = if op.flags & SIDE_B != 0 { side_b } else { b };
        for (v, &pending) in pending.iter().enumerate().take(vectors::<S>()) {
            // SAFETY: as promised by the caller.
            unsafe {
                let before = if op.flags & ADD_B != 0 { load(simd, side_b, v) } else { zero };
                store::<S>(before + pending, to_b, v);
            }
        }
    }
}

/// # Safety
/// `row` points to a readable row, and `v < vectors::<S>()`.
#[inline(always)]
pub(super) unsafe fn load<S: Simd>(simd: S, row: *const Row, v: usize) -> S::f32s {
    // SAFETY: vectors::<S>() vectors of this length make up a row.
    unsafe { *row.cast::<<S::f32s as SimdBase<S>>::Array>().add(v) }.simd_into(simd)
}

/// # Safety
/// `row` points to a writable row, and `v < vectors::<S>()`.
#[inline(always)]
pub(super) unsafe fn store<S: Simd>(value: S::f32s, row: *mut Row, v: usize) {
    // SAFETY: vectors::<S>() vectors of this length make up a row.
    unsafe { *row.cast::<<S::f32s as SimdBase<S>>::Array>().add(v) = value.into() };
}

/// `[x.0 y.0 x.1 y.1] + [x.2 y.2 x.3 y.3]` of every block. `first` selects lanes 0 0 1 1, `second` lanes 2 2 3 3, and
/// `even` lanes 0 and 2.
#[inline(always)]
fn pair<S: Simd>(even: S::mask32s, [first, second]: [S::u8s; 2], x: S::f32s, y: S::f32s) -> S::f32s {
    let below = even.select(x.swizzle_dyn_within_blocks(first), y.swizzle_dyn_within_blocks(first));
    let above = even.select(x.swizzle_dyn_within_blocks(second), y.swizzle_dyn_within_blocks(second));
    below + above
}

/// Sums each of four vectors within blocks of four lanes; a block of the result holds the four sums.
///
/// Both lines of `pair` compile to one shuffle each on x86. The form avoids horizontal additions, which processors
/// split into several operations.
#[inline(always)]
pub(super) fn fold<S: Simd>(simd: S, [s0, s1, s2, s3]: [S::f32s; 4]) -> S::f32s {
    // Lanes 0 and 2 of every block; lanes 0 and 1 of every block.
    let even = S::mask32s::from_bitmask(simd, 0x5555_5555_5555_5555);
    let low = S::mask32s::from_bitmask(simd, 0x3333_3333_3333_3333);
    // Lanes 0 0 1 1 of every block; lanes 2 2 3 3 of every block.
    let first = S::u8s::from_fn(simd, |i| (i % 16 / 8 * 4 + i % 4) as u8);
    let second = S::u8s::from_fn(simd, |i| (8 + i % 16 / 8 * 4 + i % 4) as u8);
    let (t01, t23) = (pair::<S>(even, [first, second], s0, s1), pair::<S>(even, [first, second], s2, s3));
    // [t01.0 t01.1 t23.2 t23.3] + [t01.2 t01.3 t23.0 t23.1]
    low.select(t01, t23) + t01.slide_within_blocks::<2>(t23)
}

#[cfg(test)]
mod tests {
    use fearless_simd::Level;
    use gatework_engine::simd::testing::on_every_level;
    use proptest::prelude::*;

    use super::super::{FUNCTIONS, GateTable, Layer, Wires, reference};
    use super::*;

    /// Any network of up to 4 layers and 40 rows, with its logits and the outputs that are asked of it.
    fn networks() -> impl Strategy<Value = (Wires, Vec<f32>, usize)> {
        let sizes = (1usize..12, prop::collection::vec(1usize..40, 1..5));
        sizes.prop_flat_map(|(inputs, sizes)| {
            let mut before = inputs;
            let mut layers = Vec::new();
            for &size in &sizes {
                let wires = prop::collection::vec((0..before as u32, 0..before as u32), size);
                layers.push(wires.prop_map(|wires| {
                    let (a, b) = wires.into_iter().unzip();
                    Layer { a, b }
                }));
                before = size;
            }
            let gates: usize = sizes.iter().sum();
            let logits = prop::collection::vec(-3.0f32..3.0, gates * FUNCTIONS);
            let wires = layers.prop_map(move |layers| Wires { inputs, layers });
            (wires, logits, 1..=before)
        })
    }

    fn lane(rows: &[Row], lane: usize) -> Vec<f64> {
        rows.iter().map(|row| f64::from(row.0[lane])).collect()
    }

    fn random_rows(n: usize, seed: u32) -> Vec<Row> {
        let mut state = seed | 1;
        let mut next = || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as f32 / u32::MAX as f32
        };
        (0..n).map(|_| Row(std::array::from_fn(|_| next()))).collect()
    }

    /// Blocks of four sums, from vectors whose lane `i` is `i`, `100 + i`, `200 + i`, `300 + i`.
    #[inline(always)]
    fn folded<S: Simd>(simd: S) -> Vec<f32> {
        let vector = |base: usize| S::f32s::from_fn(simd, |i| (100 * base + i) as f32);
        let mut out = vec![0.0; S::f32s::LEN];
        fold(simd, [vector(0), vector(1), vector(2), vector(3)]).store_slice(&mut out);
        out
    }

    #[test]
    fn a_fold_adds_up_blocks_of_lanes() {
        for level in [Level::new(), Level::baseline()] {
            let out = dispatch!(level, simd => folded(simd));
            for (i, &sum) in out.iter().enumerate() {
                assert_eq!(sum, (400 * (i % 4) + 16 * (i / 4) + 6) as f32);
            }
        }
    }

    /// Compares both passes over two tiles with the reference implementation.
    fn check_passes(wires: &Wires, logits: &[f32], needed: usize, seed: u32) {
        let program = GateProgram::leading(wires, needed).unwrap();
        let mut table = GateTable::new(wires.gates());
        table.update(logits);
        let mut coefficients = Coefficients::default();
        coefficients.gather(&program, &table);
        let logits64: Vec<f64> = logits.iter().map(|&x| f64::from(x)).collect();

        let tiles = 2;
        let inputs = random_rows(tiles * wires.inputs, seed);
        let output_grads = random_rows(tiles * needed, seed ^ 0x5bd1_e995);
        let mut outputs = vec![Row::ZERO; tiles * needed];
        let mut input_grads = inputs.clone();
        let mut work = Workspace::default();
        let mut sums = Sums::new(&program);
        program.infer(&coefficients, &inputs, &mut outputs, &mut work);
        program.gradient(&coefficients, &mut input_grads, &output_grads, &mut sums, &mut work);

        let mut expected_grads = vec![0.0; logits.len()];
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for tile in 0..tiles {
            let inputs = &inputs[tile * wires.inputs..][..wires.inputs];
            let outputs = &outputs[tile * needed..][..needed];
            let input_grads = &input_grads[tile * wires.inputs..][..wires.inputs];
            let output_grads = &output_grads[tile * needed..][..needed];
            for l in 0..LANES {
                let x = lane(inputs, l);
                let nodes = reference::forward(wires, &logits64, &x);
                for (ours, theirs) in lane(outputs, l).iter().zip(&nodes[nodes.len() - 1]) {
                    assert!((ours - theirs).abs() <= 2e-5, "output {ours} {theirs}");
                }
                let mut g = lane(output_grads, l);
                g.resize(wires.outputs(), 0.0);
                theirs.extend(reference::backward(wires, &logits64, &x, &g, &mut expected_grads));
                ours.extend(lane(input_grads, l));
            }
        }
        reference::assert_gradients_agree("an input", &ours, &theirs);
        let mut coefficient_grads = vec![[0.0; 4]; wires.gates()];
        sums.add_to(&program, &table, &mut coefficient_grads);
        let mut grads = vec![0.0; logits.len()];
        table.logit_gradients(&coefficient_grads, &mut grads);
        reference::assert_logit_gradients_agree(logits, &grads, &expected_grads);

        // One go through the last tile gives the same bits.
        let from = (tiles - 1) * wires.inputs;
        let mut again = inputs[from..].to_vec();
        let seed = |rows: &mut [Row]| {
            assert_eq!(rows, &outputs[(tiles - 1) * needed..]);
            rows.copy_from_slice(&output_grads[(tiles - 1) * needed..]);
        };
        program.gradient_of(&coefficients, &mut again, seed, &mut Sums::new(&program), &mut work);
        assert_eq!(&again[..], &input_grads[from..]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn passes_agree_with_the_reference_implementation((wires, mut logits, needed) in networks(), seed: u32, idle: bool) {
            if idle {
                // The pass-through start, where c3 nearly vanishes: the case that SMALLEST_C3 is for.
                for gate in logits.chunks_exact_mut(FUNCTIONS) {
                    gate.fill(0.0);
                    gate[3] = 10.0;
                }
            }
            on_every_level(|| check_passes(&wires, &logits, needed, seed));
        }
    }
}
