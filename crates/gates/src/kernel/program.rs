//! Compilation of a gate network: wires become an execution order.
//!
//! Gates outside the fan-in cone of the outputs are left out. The gates of a layer are arranged in trails: rows are
//! nodes, gates are edges, and a trail follows unused edges until there are none. The paper's "unique" wiring is
//! mostly one long path 0-1-2-...; random wirings and the star of a 3x3 patch give long trails as well. A gate that is
//! traversed from `b` to `a` runs with its operands swapped, and so are its coefficients c1 and c2.

use std::fmt;

/// Wires of one layer: gate `i` reads rows `a[i]` and `b[i]` of the preceding layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// First operand of each gate.
    pub a: Vec<u32>,
    /// Second operand of each gate.
    pub b: Vec<u32>,
}

impl Layer {
    /// Number of gates.
    pub fn len(&self) -> usize {
        self.a.len()
    }

    /// Returns true for a layer without gates.
    pub fn is_empty(&self) -> bool {
        self.a.is_empty()
    }
}

/// Wires of a layered network of two-input gates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wires {
    /// Number of input rows.
    pub inputs: usize,
    /// The layers, first to last; the last one's gates are the outputs.
    pub layers: Vec<Layer>,
}

impl Wires {
    /// Number of gates in all layers.
    pub fn gates(&self) -> usize {
        self.layers.iter().map(Layer::len).sum()
    }

    /// Number of outputs.
    pub fn outputs(&self) -> usize {
        self.layers.last().map_or(self.inputs, Layer::len)
    }

    /// Checks that every wire leads to a row of the preceding layer.
    pub fn check(&self) -> Result<(), WireError> {
        if self.layers.is_empty() {
            return Err(WireError::NoLayers);
        }
        let mut rows = self.inputs;
        for (index, layer) in self.layers.iter().enumerate() {
            if layer.is_empty() || layer.a.len() != layer.b.len() {
                return Err(WireError::Uneven { layer: index, a: layer.a.len(), b: layer.b.len() });
            }
            for (gate, (&a, &b)) in layer.a.iter().zip(&layer.b).enumerate() {
                if let Some(&wire) = [a, b].iter().find(|&&w| w as usize >= rows) {
                    return Err(WireError::OutOfRange { layer: index, gate, wire, rows });
                }
            }
            rows = layer.len();
        }
        Ok(())
    }
}

/// The error of wires that do not form a network.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The network has no layer.
    NoLayers,
    /// No output is needed.
    NoOutputs,
    /// A layer is empty, or its numbers of first and second operands differ.
    Uneven {
        /// The layer.
        layer: usize,
        /// Number of first operands.
        a: usize,
        /// Number of second operands.
        b: usize,
    },
    /// A wire leads to a row that does not exist.
    OutOfRange {
        /// The layer.
        layer: usize,
        /// The gate in it.
        gate: usize,
        /// The wire.
        wire: u32,
        /// Number of rows of the preceding layer.
        rows: usize,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WireError::NoLayers => write!(f, "a gate network needs at least one layer"),
            WireError::NoOutputs => write!(f, "at least one output of a gate network has to be needed"),
            WireError::Uneven { layer, a, b } => {
                write!(
                    f,
                    "layer {layer} has {a} first and {b} second operands; both must be the same and not 0"
                )
            }
            WireError::OutOfRange { layer, gate, wire, rows } => {
                write!(f, "layer {layer}, gate {gate}: wire {wire}, but the layer before has {rows} rows")
            }
        }
    }
}

impl std::error::Error for WireError {}

/// One gate as the gradient pass runs it: row numbers within its layer's input and output tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Op {
    pub a: u32,
    pub b: u32,
    pub out: u32,
    pub flags: u32,
}

/// One gate as inference runs it: like [`Op`], but rows are reused after their last read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slots {
    pub a: u32,
    pub b: u32,
    pub out: u32,
}

/// The trail begins here: no gradient is pending for `a`.
pub(super) const BEGIN: u32 = 1;
/// The trail ends here: the gradient of `b` is written out.
pub(super) const END: u32 = 2;
/// An earlier gate of the layer contributed to the gradient of `a`: the sum is in the side row of `a`.
pub(super) const ADD_A: u32 = 4;
/// A later gate of the layer contributes to the gradient of `a`: the sum goes to the side row of `a`.
pub(super) const SIDE_A: u32 = 8;
/// Like [`ADD_A`], for `b` at the end of a trail.
pub(super) const ADD_B: u32 = 16;
/// Like [`SIDE_A`], for `b` at the end of a trail.
pub(super) const SIDE_B: u32 = 32;

/// The gate whose coefficients an op uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Source {
    /// Index of the gate, counted through all layers.
    pub gate: u32,
    /// Whether the operands are swapped with respect to the wires.
    pub swapped: bool,
}

/// The execution order of a network's gates, which is also the order of coefficients and sums.
#[derive(Clone, Debug)]
pub struct Order(Vec<Source>);

impl Order {
    pub(super) fn new(sources: Vec<Source>) -> Order {
        Order(sources)
    }

    /// Number of gates that run.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no gate runs.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn sources(&self) -> &[Source] {
        &self.0
    }
}

#[derive(Clone, Debug)]
pub(super) struct CompiledLayer {
    pub ops: Vec<Op>,
    pub slots: Vec<Slots>,
    /// Index of the layer's first op, counted through all layers.
    pub first: usize,
    /// Rows of the layer's input and output tiles, including unused ones.
    pub inputs: usize,
    pub outputs: usize,
}

/// A gate network, compiled for tiles.
#[derive(Clone, Debug)]
pub struct GateProgram {
    pub(super) layers: Vec<CompiledLayer>,
    order: Order,
    /// Input rows that no gate reads: their gradient is zero.
    pub(super) unread: Vec<u32>,
    /// Rows that inference needs between inputs and outputs.
    pub(super) slot_rows: usize,
    inputs: usize,
    outputs: usize,
}

impl AsRef<Order> for GateProgram {
    fn as_ref(&self) -> &Order {
        &self.order
    }
}

impl GateProgram {
    /// Compiles a network with all its outputs; output `i` is row `i`.
    pub fn new(wires: &Wires) -> Result<GateProgram, WireError> {
        GateProgram::leading(wires, wires.outputs())
    }

    /// Compiles the fan-in cone of the first `needed` outputs.
    pub fn leading(wires: &Wires, needed: usize) -> Result<GateProgram, WireError> {
        wires.check()?;
        if needed == 0 {
            return Err(WireError::NoOutputs);
        }
        let needed = needed.min(wires.outputs());
        let (live, inputs_read) = live_gates(wires, needed);
        let mut layers = Vec::with_capacity(wires.layers.len());
        let mut sources = Vec::new();
        let mut first_gate = 0;
        let mut inputs = wires.inputs;
        for (index, layer) in wires.layers.iter().enumerate() {
            let last = index + 1 == wires.layers.len();
            let outputs = if last { needed } else { layer.len() };
            let first = sources.len();
            let mut ops = Vec::new();
            for step in trails(layer, &live[index], inputs) {
                ops.push(Op { a: step.from, b: step.to, out: step.gate, flags: step.flags });
                sources.push(Source { gate: first_gate + step.gate, swapped: step.swapped });
            }
            layers.push(CompiledLayer { ops, slots: Vec::new(), first, inputs, outputs });
            first_gate += layer.len() as u32;
            inputs = outputs;
        }
        let unread = (0..wires.inputs as u32).filter(|&i| !inputs_read[i as usize]).collect();
        let slot_rows = assign_slots(&mut layers);
        let order = Order::new(sources);
        Ok(GateProgram { layers, order, unread, slot_rows, inputs: wires.inputs, outputs: needed })
    }

    /// Number of input rows.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Number of output rows.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// Number of gates that run.
    pub fn live_gates(&self) -> usize {
        self.order.len()
    }

    /// Rows of all layers but the last.
    pub(super) fn hidden_rows(&self) -> usize {
        self.layers.iter().rev().skip(1).map(|l| l.outputs).sum()
    }

    /// Rows of the widest layer input.
    pub(super) fn widest(&self) -> usize {
        self.layers.iter().map(|l| l.inputs).max().unwrap_or(0)
    }
}

/// Returns the gates of each layer, and the inputs, in the fan-in cone of the first `needed` outputs.
pub(super) fn live_gates(wires: &Wires, needed: usize) -> (Vec<Vec<bool>>, Vec<bool>) {
    let mut live: Vec<Vec<bool>> = wires.layers.iter().map(|l| vec![false; l.len()]).collect();
    let mut wanted: Vec<bool> = (0..wires.outputs()).map(|i| i < needed).collect();
    for (index, layer) in wires.layers.iter().enumerate().rev() {
        let rows = if index == 0 { wires.inputs } else { wires.layers[index - 1].len() };
        let mut before = vec![false; rows];
        for gate in (0..layer.len()).filter(|&g| wanted[g]) {
            before[layer.a[gate] as usize] = true;
            before[layer.b[gate] as usize] = true;
        }
        live[index] = std::mem::replace(&mut wanted, before);
    }
    (live, wanted)
}

/// A gate of a trail.
struct TrailStep {
    gate: u32,
    from: u32,
    to: u32,
    swapped: bool,
    flags: u32,
}

/// Arranges the live gates of a layer in trails. Trails begin at rows of odd degree first, because a trail must
/// begin or end there.
fn trails(layer: &Layer, live: &[bool], rows: usize) -> Vec<TrailStep> {
    let gates: Vec<u32> = (0..layer.len() as u32).filter(|&g| live[g as usize]).collect();
    let ends = |g: u32| (layer.a[g as usize], layer.b[g as usize]);
    // Edges of each row in compressed form: edges[start[row]..start[row + 1]], sorted by the other end.
    let mut start = vec![0u32; rows + 1];
    for &g in &gates {
        let (a, b) = ends(g);
        start[a as usize + 1] += 1;
        start[b as usize + 1] += 1;
    }
    for row in 0..rows {
        start[row + 1] += start[row];
    }
    let mut fill = start.clone();
    let mut edges = vec![0u32; gates.len() * 2];
    for &g in &gates {
        let (a, b) = ends(g);
        for row in [a, b] {
            edges[fill[row as usize] as usize] = g;
            fill[row as usize] += 1;
        }
    }
    for row in 0..rows {
        edges[start[row] as usize..start[row + 1] as usize].sort_by_key(|&g| {
            let (a, b) = ends(g);
            (if a as usize == row { b } else { a }, g)
        });
    }
    let mut next: Vec<u32> = start[..rows].to_vec();
    let mut used = vec![false; layer.len()];
    let mut steps: Vec<TrailStep> = Vec::with_capacity(gates.len());
    let odd = |row: &usize| (start[row + 1] - start[*row]) % 2 == 1;
    let begins = (0..rows).filter(odd).chain(0..rows);
    for begin in begins {
        loop {
            let first = steps.len();
            let mut row = begin;
            while let Some(g) = take_edge(&edges, &mut next[row], start[row + 1], &mut used) {
                let (a, b) = ends(g);
                let swapped = a as usize != row;
                let to = if swapped { a } else { b };
                steps.push(TrailStep { gate: g, from: row as u32, to, swapped, flags: 0 });
                row = to as usize;
            }
            let Some(last) = steps.len().checked_sub(1).filter(|&last| last >= first) else { break };
            steps[first].flags |= BEGIN;
            steps[last].flags |= END;
        }
    }
    mark_visits(&mut steps, rows);
    steps
}

/// Sets the flags of gradient sums: a row's gradient is collected in a side row until its last visit, which writes it.
fn mark_visits(steps: &mut [TrailStep], rows: usize) {
    let mut left = vec![0u32; rows];
    for step in steps.iter() {
        left[step.from as usize] += 1;
        if step.flags & END != 0 {
            left[step.to as usize] += 1;
        }
    }
    let mut visited = vec![false; rows];
    let mut visit = |row: u32, add: u32, side: u32| {
        let row = row as usize;
        left[row] -= 1;
        let before = if std::mem::replace(&mut visited[row], true) { add } else { 0 };
        before | if left[row] > 0 { side } else { 0 }
    };
    for step in steps {
        step.flags |= visit(step.from, ADD_A, SIDE_A);
        if step.flags & END != 0 {
            step.flags |= visit(step.to, ADD_B, SIDE_B);
        }
    }
}

/// Assigns a slot to every hidden row for its lifetime and returns the number of slots. The slot that was freed last is
/// taken first, because it is in the cache. The first layer's inputs and the last layer's outputs keep their rows.
fn assign_slots(layers: &mut [CompiledLayer]) -> usize {
    let (mut free, mut slots) = (Vec::new(), 0u32);
    let mut of_row: Vec<u32> = Vec::new();
    let last = layers.len() - 1;
    for (index, layer) in layers.iter_mut().enumerate() {
        let mut uses = vec![0u32; layer.inputs];
        for op in &layer.ops {
            uses[op.a as usize] += 1;
            uses[op.b as usize] += 1;
        }
        let mut of_output = vec![0u32; layer.outputs];
        for op in &layer.ops {
            let mut read = |row: u32| {
                if index == 0 {
                    return row;
                }
                uses[row as usize] -= 1;
                if uses[row as usize] == 0 {
                    free.push(of_row[row as usize]);
                }
                of_row[row as usize]
            };
            let (b, a) = (read(op.b), read(op.a));
            let out = if index == last {
                op.out
            } else {
                free.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                })
            };
            of_output[op.out as usize] = out;
            layer.slots.push(Slots { a, b, out });
        }
        of_row = of_output;
    }
    slots as usize
}

fn take_edge(edges: &[u32], next: &mut u32, end: u32, used: &mut [bool]) -> Option<u32> {
    while *next < end {
        let g = edges[*next as usize];
        *next += 1;
        if !std::mem::replace(&mut used[g as usize], true) {
            return Some(g);
        }
    }
    None
}
