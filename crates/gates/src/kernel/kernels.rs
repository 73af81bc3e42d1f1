//! Perception kernels of an automaton: small networks with the same wires, applied to every channel.
//!
//! Compared with a [`GateProgram`](super::GateProgram), few gates are shared by many channels. So rows are wider (a
//! [`WideRow`] holds the 32 lanes of four channels), and one network at a time runs forward and backward while all its
//! data is in the first-level cache:
//!
//! ```text
//! for each group of four channels, for each kernel:
//!     hidden rows   for each layer but the last, for each gate:   as in a gate program
//!     gradients     for each layer from the last, for each gate:  as in a gate program, but the gradients of both
//!                   operands are added to separate rows, and the four sums of a gate are folded once for 128 lanes
//! ```

use fearless_simd::{Simd, prelude::*};

use super::Row;
use super::coefficients::{Backward, Coefficients, Forward, Sums};
use super::program::{Order, Source, WireError, Wires, live_gates};
use super::tile::{fold, vectors};
use gatework_engine::dispatch;
use gatework_engine::simd::level;

/// Channels of a group, which are computed together.
pub const GROUP: usize = 4;

/// The rows of one node for a group of channels. The last group of a model may leave some unused.
pub type WideRow = [Row; GROUP];

/// A gate of every kernel: its operand rows in the preceding layer, and its output row.
#[derive(Clone, Copy, Debug)]
struct KernelGate {
    a: usize,
    b: usize,
    out: usize,
    /// Whether an earlier gate of the backward pass contributes to the gradient of `a`, or of `b`.
    add_a: bool,
    add_b: bool,
}

#[derive(Clone, Debug)]
struct KernelLayer {
    /// The gates in the fan-in cone of the outputs.
    gates: Vec<KernelGate>,
    /// Index of the first of them among those of all layers.
    first: usize,
    /// Rows of the layer.
    rows: usize,
}

/// Small networks with the same wires but separate gates, applied to each channel.
///
/// Output `s` of kernel `k` on channel `c` is row `(c * outputs + s) * kernels + k`. The gates are numbered layer by
/// layer, and within a layer kernel by kernel.
#[derive(Clone, Debug)]
pub struct Kernels {
    layers: Vec<KernelLayer>,
    order: Order,
    /// Live gates of one kernel.
    gates: usize,
    hidden: usize,
    inputs: usize,
    outputs: usize,
    /// Number of kernels.
    count: usize,
    channels: usize,
}

/// Scratch rows of one thread.
#[derive(Clone, Debug, Default)]
pub struct KernelWorkspace {
    hidden: Vec<WideRow>,
    grads: Vec<WideRow>,
}

impl KernelWorkspace {
    fn grow(&mut self, hidden: usize, grads: usize) {
        for (rows, n) in [(&mut self.hidden, hidden), (&mut self.grads, grads)] {
            if rows.len() < n {
                rows.resize(n, [Row::ZERO; GROUP]);
            }
        }
    }
}

impl AsRef<Order> for Kernels {
    fn as_ref(&self) -> &Order {
        &self.order
    }
}

impl Kernels {
    /// Compiles `kernels` networks with these wires for `channels` channels.
    pub fn new(wires: &Wires, kernels: usize, channels: usize) -> Result<Kernels, WireError> {
        wires.check()?;
        let (live, _) = live_gates(wires, wires.outputs());
        let mut layers: Vec<KernelLayer> = Vec::with_capacity(wires.layers.len());
        let mut first = 0;
        for (index, layer) in wires.layers.iter().enumerate() {
            // Gradients of inputs are added to existing ones; that of a hidden row is set by its first reader.
            let mut read =
                vec![index == 0; layer.a.iter().chain(&layer.b).max().map_or(0, |&w| w as usize + 1)];
            let mut gates = Vec::new();
            for out in (0..layer.len()).filter(|&gate| live[index][gate]) {
                let (a, b) = (layer.a[out] as usize, layer.b[out] as usize);
                let add_a = std::mem::replace(&mut read[a], true);
                let add_b = std::mem::replace(&mut read[b], true);
                gates.push(KernelGate { a, b, out, add_a, add_b });
            }
            let live = gates.len();
            layers.push(KernelLayer { gates, first, rows: layer.len() });
            first += live;
        }
        let mut sources = Vec::with_capacity(first * kernels);
        for kernel in 0..kernels {
            let mut before = 0;
            for layer in &layers {
                let gate = |g: &KernelGate| before + kernel * layer.rows + g.out;
                sources.extend(layer.gates.iter().map(|g| Source { gate: gate(g) as u32, swapped: false }));
                before += kernels * layer.rows;
            }
        }
        Ok(Kernels {
            order: Order::new(sources),
            gates: first,
            hidden: layers.iter().rev().skip(1).map(|l| l.rows).sum(),
            layers,
            inputs: wires.inputs,
            outputs: wires.outputs(),
            count: kernels,
            channels,
        })
    }

    /// Number of output rows of all kernels and channels.
    pub fn outputs(&self) -> usize {
        self.channels * self.outputs * self.count
    }

    /// Runs the kernels on groups of channels that begin with channel `first`. `inputs` holds the wide input rows of one
    /// kernel for each group, `outputs` the rows of all channels.
    pub fn infer(
        &self,
        coefficients: &Coefficients,
        first: usize,
        inputs: &[WideRow],
        outputs: &mut [Row],
        work: &mut KernelWorkspace,
    ) {
        self.check(coefficients, first, inputs.len(), outputs.len());
        work.grow(self.hidden, 0);
        dispatch!(level(), simd => {
            for (inputs, first) in inputs.chunks_exact(self.inputs).zip((first..).step_by(GROUP)) {
                for (kernel, c) in coefficients.forward.chunks_exact(self.gates).enumerate() {
                    self.infer_hidden(simd, c, self.width(first), inputs, &mut work.hidden);
                    self.infer_outputs(simd, c, first, inputs, &work.hidden, &mut outputs[kernel..]);
                }
            }
        });
    }

    /// Backward pass: given the gradients of the outputs, adds to the gradients of the inputs in `grads` and to the
    /// coefficient gradients in `sums`. The rows are as in [`Self::infer`], and `grads` has the layout of `inputs`.
    #[expect(clippy::too_many_arguments, reason = "a pass with its inputs, its outputs and its scratch rows")]
    pub fn gradient(
        &self,
        coefficients: &Coefficients,
        first: usize,
        inputs: &[WideRow],
        output_grads: &[Row],
        grads: &mut [WideRow],
        sums: &mut Sums,
        work: &mut KernelWorkspace,
    ) {
        self.check(coefficients, first, inputs.len(), output_grads.len());
        assert_eq!(inputs.len(), grads.len(), "a gradient for every input");
        sums.check(&self.order);
        work.grow(self.hidden, self.hidden);
        dispatch!(level(), simd => {
            let groups = inputs.chunks_exact(self.inputs).zip(grads.chunks_exact_mut(self.inputs));
            for ((inputs, grads), first) in groups.zip((first..).step_by(GROUP)) {
                for kernel in 0..self.count {
                    let gates = kernel * self.gates..(kernel + 1) * self.gates;
                    let forward = &coefficients.forward[gates.clone()];
                    self.infer_hidden(simd, forward, self.width(first), inputs, &mut work.hidden);
                    let pass = Pass {
                        settings: &coefficients.backward[gates.clone()],
                        first,
                        output_grads: &output_grads[kernel..],
                        inputs,
                    };
                    let sums = sums.rows(gates.start, gates.len());
                    self.backward(simd, &pass, grads, sums, work);
                }
            }
        });
    }

    /// Number of channels of the group that begins with channel `first`.
    fn width(&self, first: usize) -> usize {
        (self.channels - first).min(GROUP)
    }

    /// Stride in rows between the outputs of two channels.
    fn stride(&self) -> usize {
        self.outputs * self.count
    }

    fn check(&self, coefficients: &Coefficients, first: usize, inputs: usize, outputs: usize) {
        let groups = inputs / self.inputs;
        assert_eq!(inputs, groups * self.inputs, "wide rows for {groups} groups");
        assert!(
            first.is_multiple_of(GROUP) && first + groups * GROUP < self.channels + GROUP,
            "{groups} groups from channel {first} on, of {} channels",
            self.channels
        );
        assert_eq!(outputs, self.outputs(), "output rows");
        assert_eq!(
            coefficients.forward.len(),
            self.count * self.gates,
            "coefficients gathered for these kernels"
        );
    }

    /// Runs all layers of one kernel but the last.
    #[inline(always)]
    fn infer_hidden<S: Simd>(
        &self,
        simd: S,
        coefficients: &[Forward],
        width: usize,
        inputs: &[WideRow],
        hidden: &mut [WideRow],
    ) {
        let (mut before, mut begin) = (0, 0);
        for (index, layer) in self.layers[..self.layers.len() - 1].iter().enumerate() {
            let (done, rest) = hidden.split_at_mut(begin);
            let source = if index == 0 { inputs } else { &done[before..] };
            for (gate, c) in layer.gates.iter().zip(&coefficients[layer.first..]) {
                let to = &mut rest[gate.out][..width];
                forward_gate(simd, c, &source[gate.a], &source[gate.b], to.iter_mut());
            }
            before = begin;
            begin += layer.rows;
        }
    }

    /// Runs the last layer of one kernel; `outputs` begins with the kernel's first row.
    #[inline(always)]
    fn infer_outputs<S: Simd>(
        &self,
        simd: S,
        coefficients: &[Forward],
        first: usize,
        inputs: &[WideRow],
        hidden: &[WideRow],
        outputs: &mut [Row],
    ) {
        let source = self.last_source(inputs, hidden);
        let layer = &self.layers[self.layers.len() - 1];
        for (gate, c) in layer.gates.iter().zip(&coefficients[layer.first..]) {
            let rows = outputs[first * self.stride() + gate.out * self.count..].iter_mut();
            let to = rows.step_by(self.stride()).take(self.width(first));
            forward_gate(simd, c, &source[gate.a], &source[gate.b], to);
        }
    }

    /// The rows that the last layer reads.
    #[inline(always)]
    fn last_source<'a>(&self, inputs: &'a [WideRow], hidden: &'a [WideRow]) -> &'a [WideRow] {
        match self.layers.len() {
            1 => inputs,
            n => &hidden[self.hidden - self.layers[n - 2].rows..self.hidden],
        }
    }

    /// Backward pass of one kernel, with its hidden rows computed.
    #[inline(always)]
    fn backward<S: Simd>(
        &self,
        simd: S,
        pass: &Pass<'_>,
        input_grads: &mut [WideRow],
        sums: &mut [f32],
        work: &mut KernelWorkspace,
    ) {
        let width = self.width(pass.first);
        let mut end = self.hidden;
        for (index, layer) in self.layers.iter().enumerate().rev() {
            let begin = if index == 0 { 0 } else { end - self.layers[index - 1].rows };
            let (before, after) = work.grads.split_at_mut(end);
            let (values, grads) = if index == 0 {
                (pass.inputs, &mut *input_grads)
            } else {
                (&work.hidden[begin..end], &mut before[begin..])
            };
            let vectors = sums[layer.first * S::f32s::LEN..].chunks_exact_mut(S::f32s::LEN);
            for ((gate, c), sums) in layer.gates.iter().zip(&pass.settings[layer.first..]).zip(vectors) {
                let operands = Operands { gate, a: &values[gate.a], b: &values[gate.b] };
                let sum = if index + 1 == self.layers.len() {
                    let rows = pass.output_grads[pass.first * self.stride() + gate.out * self.count..].iter();
                    backward_gate(simd, c, &operands, rows.step_by(self.stride()).take(width), grads)
                } else {
                    backward_gate(simd, c, &operands, after[gate.out][..width].iter(), grads)
                };
                (fold(simd, sum) + S::f32s::from_slice(simd, sums)).store_slice(sums);
            }
            end = begin;
        }
    }
}

/// Inputs of the backward pass of one kernel.
struct Pass<'a> {
    settings: &'a [Backward],
    first: usize,
    /// Begins with the kernel's first row.
    output_grads: &'a [Row],
    inputs: &'a [WideRow],
}

/// Vector `v` of a row.
#[inline(always)]
fn load<S: Simd>(simd: S, row: &Row, v: usize) -> S::f32s {
    S::f32s::from_slice(simd, &row.0[v * S::f32s::LEN..][..S::f32s::LEN])
}

#[inline(always)]
fn store<S: Simd>(value: S::f32s, row: &mut Row, v: usize) {
    value.store_slice(&mut row.0[v * S::f32s::LEN..][..S::f32s::LEN]);
}

#[inline(always)]
fn forward_gate<'a, S: Simd>(
    simd: S,
    c: &Forward,
    a: &WideRow,
    b: &WideRow,
    out: impl Iterator<Item = &'a mut Row>,
) {
    let [c0, c1, c2, c3] = c.splat(simd);
    for ((a, b), out) in a.iter().zip(b).zip(out) {
        for v in 0..vectors::<S>() {
            let (a, b) = (load(simd, a, v), load(simd, b, v));
            // An addition instead of one of three multiply-adds, so that the adder units are used too.
            store::<S>(a.mul_add(b * c3 + c1, b.mul_add(c2, c0)), out, v);
        }
    }
}

struct Operands<'a> {
    gate: &'a KernelGate,
    a: &'a WideRow,
    b: &'a WideRow,
}

/// Sets, or adds to, the gradients of a gate's operands and returns its four sums.
#[inline(always)]
fn backward_gate<'a, S: Simd>(
    simd: S,
    c: &Backward,
    operands: &Operands<'_>,
    out: impl Iterator<Item = &'a Row>,
    grads: &mut [WideRow],
) -> [S::f32s; 4] {
    let KernelGate { a, b, add_a, add_b, .. } = *operands.gate;
    let Ok([to_a, to_b]) = grads.get_disjoint_mut([a, b]) else {
        // Both operands are the same row.
        if !add_a {
            grads[a] = [Row::ZERO; GROUP];
        }
        let mut to_b = [Row::ZERO; GROUP];
        let sum = backward_rows::<S, true>(simd, c, operands, out, &mut grads[a], &mut to_b);
        for (to, from) in grads[a].iter_mut().zip(&to_b) {
            to.0.iter_mut().zip(&from.0).for_each(|(to, from)| *to += from);
        }
        return sum;
    };
    if !add_a && !add_b {
        return backward_rows::<S, false>(simd, c, operands, out, to_a, to_b);
    }
    if !add_a {
        *to_a = [Row::ZERO; GROUP];
    }
    if !add_b {
        *to_b = [Row::ZERO; GROUP];
    }
    backward_rows::<S, true>(simd, c, operands, out, to_a, to_b)
}

/// Sets (`ADD` is false) or adds to the gradients of two different rows. Two sets of sums hide the latency of their
/// additions.
#[inline(always)]
fn backward_rows<'a, S: Simd, const ADD: bool>(
    simd: S,
    c: &Backward,
    operands: &Operands<'_>,
    out: impl Iterator<Item = &'a Row>,
    to_a: &mut WideRow,
    to_b: &mut WideRow,
) -> [S::f32s; 4] {
    let c3 = S::f32s::splat(simd, c.c3);
    let by_a = S::f32s::splat(simd, c.c1_by_c3);
    let by_b = S::f32s::splat(simd, c.c2_by_c3);
    let mut sums = [[S::f32s::splat(simd, 0.0); 4]; 2];
    let rows = operands.a.iter().zip(operands.b).zip(out).zip(to_a.iter_mut().zip(to_b));
    for (((a, b), g), (to_a, to_b)) in rows {
        for v in 0..vectors::<S>() {
            let (a, b, g) = (load(simd, a, v), load(simd, b, v), load(simd, g, v) * c3);
            let (derivative_a, ga) = (b + by_a, g * a);
            if ADD {
                store::<S>(g.mul_add(derivative_a, load(simd, to_a, v)), to_a, v);
                store::<S>(g.mul_add(by_b, ga) + load(simd, to_b, v), to_b, v);
            } else {
                store::<S>(g * derivative_a, to_a, v);
                store::<S>(g.mul_add(by_b, ga), to_b, v);
            }
            let sum = &mut sums[v % 2];
            *sum = [sum[0] + g, sum[1] + ga, g.mul_add(b, sum[2]), ga.mul_add(b, sum[3])];
        }
    }
    let [[a0, a1, a2, a3], [b0, b1, b2, b3]] = sums;
    [a0 + b0, a1 + b1, a2 + b2, a3 + b3]
}

#[cfg(test)]
mod tests {
    use gatework_engine::simd::testing::on_every_level;
    use proptest::prelude::*;

    use super::super::{FUNCTIONS, GateTable, LANES, Layer, reference};
    use super::*;

    /// Any wires of up to 3 layers, with numbers of kernels and channels.
    fn kernels() -> impl Strategy<Value = (Wires, usize, usize)> {
        let sizes = (1usize..10, prop::collection::vec(1usize..9, 1..4), 1usize..5, 1usize..11);
        sizes.prop_flat_map(|(inputs, sizes, kernels, channels)| {
            let mut before = inputs;
            let mut layers = Vec::new();
            for size in sizes {
                let wires = prop::collection::vec((0..before as u32, 0..before as u32), size);
                layers.push(wires.prop_map(|wires| {
                    let (a, b) = wires.into_iter().unzip();
                    Layer { a, b }
                }));
                before = size;
            }
            let wires = layers.prop_map(move |layers| Wires { inputs, layers });
            (wires, Just(kernels), Just(channels))
        })
    }

    /// The logits of one kernel out of those of all.
    fn of_kernel(wires: &Wires, kernels: usize, kernel: usize) -> Vec<usize> {
        let mut before = 0;
        let mut numbers = Vec::new();
        for layer in &wires.layers {
            let first = (before + kernel * layer.len()) * FUNCTIONS;
            numbers.extend(first..first + layer.len() * FUNCTIONS);
            before += kernels * layer.len();
        }
        numbers
    }

    /// Compares both passes with the reference implementation.
    fn check_passes(wires: &Wires, kernels: usize, channels: usize, seed: u32) {
        let mut state = seed | 1;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 17;
            state ^= state << 5;
            state as f32 / u32::MAX as f32
        };
        let mut row = || Row(std::array::from_fn(|_| random()));
        let network = Kernels::new(wires, kernels, channels).unwrap();
        let gates = kernels * wires.gates();
        let numbers: Vec<f32> = (0..gates).flat_map(|_| row().0).map(|x| 6.0 * x - 3.0).collect();
        let logits = &numbers[..gates * FUNCTIONS];
        let mut table = GateTable::new(gates);
        table.update(logits);
        let mut coefficients = Coefficients::default();
        coefficients.gather(&network, &table);

        // Rows of unused channels are NaN: no result may depend on them.
        let groups = channels.div_ceil(GROUP);
        let nothing = Row([f32::NAN; LANES]);
        let mut wide = |i: usize| {
            std::array::from_fn(|c| if i / wires.inputs * GROUP + c < channels { row() } else { nothing })
        };
        let inputs: Vec<WideRow> = (0..groups * wires.inputs).map(&mut wide).collect();
        let before: Vec<WideRow> = (0..groups * wires.inputs).map(&mut wide).collect();
        let output_grads: Vec<Row> = (0..network.outputs()).map(|_| row()).collect();
        let mut outputs = vec![Row::ZERO; network.outputs()];
        let mut grads = before.clone();
        let mut sums = Sums::new(&network);
        let mut work = KernelWorkspace::default();
        // The first group alone, then the others.
        for (first, part) in [(0, 0..wires.inputs), (GROUP, wires.inputs..inputs.len())] {
            if !part.is_empty() {
                let (inputs, grads) = (&inputs[part.clone()], &mut grads[part]);
                network.infer(&coefficients, first, inputs, &mut outputs, &mut work);
                network.gradient(&coefficients, first, inputs, &output_grads, grads, &mut sums, &mut work);
            }
        }

        let mut expected_grads = vec![0.0f64; logits.len()];
        let (mut added, mut to_add) = (Vec::new(), Vec::new());
        for (c, lane) in (0..channels).flat_map(|c| (0..LANES).map(move |lane| (c, lane))) {
            let of_channel =
                |rows: &[WideRow], i: usize| rows[c / GROUP * wires.inputs + i][c % GROUP].0[lane];
            let x: Vec<f64> = (0..wires.inputs).map(|i| f64::from(of_channel(&inputs, i))).collect();
            let mut expected: Vec<f64> =
                (0..wires.inputs).map(|i| f64::from(of_channel(&before, i))).collect();
            for kernel in 0..kernels {
                let numbers = of_kernel(wires, kernels, kernel);
                let logits: Vec<f64> = numbers.iter().map(|&i| f64::from(logits[i])).collect();
                let nodes = reference::forward(wires, &logits, &x);
                let place = |s: usize| (c * wires.outputs() + s) * kernels + kernel;
                for (s, &theirs) in nodes[nodes.len() - 1].iter().enumerate() {
                    let ours = f64::from(outputs[place(s)].0[lane]);
                    assert!((ours - theirs).abs() <= 2e-5, "output {s}");
                }
                let g: Vec<f64> =
                    (0..wires.outputs()).map(|s| f64::from(output_grads[place(s)].0[lane])).collect();
                let mut logit_grads = vec![0.0; numbers.len()];
                let dx = reference::backward(wires, &logits, &x, &g, &mut logit_grads);
                expected.iter_mut().zip(&dx).for_each(|(e, d)| *e += d);
                numbers.iter().zip(&logit_grads).for_each(|(&i, g)| expected_grads[i] += g);
            }
            added.extend((0..wires.inputs).map(|i| f64::from(of_channel(&grads, i))));
            to_add.extend(expected);
        }
        reference::assert_gradients_agree("an input", &added, &to_add);
        let mut coefficient_grads = vec![[0.0; 4]; gates];
        sums.add_to(&network, &table, &mut coefficient_grads);
        let mut grads = vec![0.0; logits.len()];
        table.logit_gradients(&coefficient_grads, &mut grads);
        reference::assert_logit_gradients_agree(logits, &grads, &expected_grads);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn passes_agree_with_the_reference_implementation((wires, kernels, channels) in kernels(), seed: u32) {
            on_every_level(|| check_passes(&wires, kernels, channels, seed));
        }
    }
}
