//! Extension of a layered network: gates for formulas of perceived bits, added to the existing layers.
//!
//! A formula becomes a tree of gates, one level in each layer: literals are combined in pairs, first into conjunctions, then
//! into their disjunction; a finished result is passed through the remaining layers. One more layer at the end combines the
//! formulas with the channels that they change.

use crate::kernel::{FUNCTIONS, Layer, Wires};
use gatework_logic::Gate;
use gatework_logic::automaton::{CENTRE, NEIGHBOURS};

use super::{MARGIN, one_hot};
use crate::automata::model::{Model, ModelShape};

/// A row of the update's inputs, and the value that it must have.
pub type Literal = (u32, bool);
/// A disjunction of conjunctions, none of which is empty.
pub type Formula = Vec<Vec<Literal>>;

/// A rule for a channel: one gate that reads two rows of the update's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    /// The channel.
    pub channel: usize,
    /// The gate.
    pub gate: Gate,
    /// The row of its first operand.
    pub a: u32,
    /// The row of its second operand.
    pub b: u32,
}

/// Returns the model in which channel `i` is XORed with formula `i` and the channels of the markers follow their rules.
pub fn grow(model: &Model, formulas: &[Formula], markers: &[Marker]) -> Model {
    let mut growing = Growing::new(model);
    let mut trees: Vec<Tree> = formulas.iter().map(|formula| Tree::Literals(formula.clone())).collect();
    trees.extend(markers.iter().map(|marker| Tree::Gate(marker.gate, marker.a, marker.b)));
    let channels = model.shape.channels;
    let mut depth = 0;
    while depth < growing.layers.len() || trees.iter().any(|tree| !tree.is_joined()) {
        if depth == growing.layers.len() {
            growing.push_wires(channels);
        }
        trees = trees.iter().map(|tree| tree.next(&mut growing, depth)).collect();
        depth += 1;
    }
    growing.push_wires(channels);
    for (channel, tree) in trees[..formulas.len()].iter().enumerate() {
        if let Tree::Joined(row) = *tree {
            growing.set(channel, Gate::XOR, channel as u32, row);
        }
    }
    for (marker, tree) in markers.iter().zip(&trees[formulas.len()..]) {
        if let Tree::Joined(row) = *tree {
            growing.set(marker.channel, Gate::A, row, row);
        }
    }
    growing.finish(model)
}

/// Returns the model with eight more kernels, each of which passes one neighbour through.
pub fn with_neighbours(model: &Model) -> Model {
    let (channels, kernels, outputs) = (model.shape.channels, model.shape.kernels, model.perceive.outputs());
    let more = kernels + NEIGHBOURS - 1;
    let shape = ModelShape { kernels: more, ..model.shape.clone() };
    let shape = ModelShape {
        update: std::iter::once(shape.update_inputs()).chain(shape.update[1..].iter().copied()).collect(),
        ..shape
    };
    let row = |row: &mut u32| {
        // Channels come first, then all kernels' outputs of a kind for each channel.
        if let Some(perceived) = (*row as usize).checked_sub(channels) {
            *row = (channels + perceived / kernels * more + perceived % kernels) as u32;
        }
    };
    let mut update = model.update.clone();
    update.inputs = channels + channels * more * outputs;
    let first = &mut update.layers[0];
    first.a.iter_mut().chain(&mut first.b).for_each(row);
    let mut grown = Model::with_wires(shape, model.perceive.clone(), update);
    let tensors: Vec<_> = grown.params.tensors().iter().map(|tensor| tensor.range.clone()).collect();
    for (old, new) in model.params.tensors().iter().zip(&tensors) {
        let old = &model.params.values[old.range.clone()];
        grown.params.values[new.clone()][..old.len()].copy_from_slice(old);
    }
    let neighbours = (0..NEIGHBOURS).filter(|&n| n != CENTRE);
    for (kernel, neighbour) in (kernels..).zip(neighbours) {
        for (layer, index, gate) in path_from(&model.perceive, neighbour) {
            let of_kernel = kernel * model.perceive.layers[layer].len() + index;
            let logits = &mut grown.params.values[tensors[layer].clone()][of_kernel * FUNCTIONS..];
            one_hot(&mut logits[..FUNCTIONS], gate, MARGIN);
        }
    }
    grown
}

/// Returns the gates that pass an input through to the first output that can carry it: layer, index, function.
pub fn path_from(wires: &Wires, input: usize) -> Vec<(usize, usize, Gate)> {
    // The rows of each layer that can carry the input.
    let mut carriers = vec![vec![input]];
    for layer in &wires.layers {
        let before = &carriers[carriers.len() - 1];
        let carries =
            |&i: &usize| before.contains(&(layer.a[i] as usize)) || before.contains(&(layer.b[i] as usize));
        carriers.push((0..layer.len()).filter(carries).collect());
    }
    let mut path = Vec::new();
    let Some(&(mut row)) = carriers[carriers.len() - 1].first() else { return path };
    for (number, layer) in wires.layers.iter().enumerate().rev() {
        let (a, b) = (layer.a[row] as usize, layer.b[row] as usize);
        let first = carriers[number].contains(&a);
        path.push((number, row, if first { Gate::A } else { Gate::B }));
        row = if first { a } else { b };
    }
    path
}

/// The layers of an update while gates are added.
struct Growing {
    layers: Vec<Layer>,
    /// The logits of each layer.
    logits: Vec<Vec<f32>>,
}

impl Growing {
    fn new(model: &Model) -> Growing {
        let tensors = &model.params.tensors()[model.perceive.layers.len()..];
        let logits = tensors.iter().map(|tensor| model.params.values[tensor.range.clone()].to_vec());
        Growing { layers: model.update.layers.clone(), logits: logits.collect() }
    }

    /// Adds a gate to a layer and returns its row.
    fn add(&mut self, layer: usize, gate: Gate, a: u32, b: u32) -> u32 {
        let (wires, logits) = (&mut self.layers[layer], &mut self.logits[layer]);
        wires.a.push(a);
        wires.b.push(b);
        let start = logits.len();
        logits.resize(start + FUNCTIONS, 0.0);
        one_hot(&mut logits[start..], gate, MARGIN);
        wires.len() as u32 - 1
    }

    /// Changes a gate of the last layer.
    fn set(&mut self, index: usize, gate: Gate, a: u32, b: u32) {
        let last = self.layers.len() - 1;
        (self.layers[last].a[index], self.layers[last].b[index]) = (a, b);
        one_hot(&mut self.logits[last][index * FUNCTIONS..][..FUNCTIONS], gate, MARGIN);
    }

    /// Adds a layer that passes its rows through.
    fn push_wires(&mut self, rows: usize) {
        self.layers.push(Layer { a: Vec::new(), b: Vec::new() });
        self.logits.push(Vec::new());
        let last = self.layers.len() - 1;
        (0..rows as u32).for_each(|row| {
            self.add(last, Gate::A, row, row);
        });
    }

    fn finish(self, model: &Model) -> Model {
        let sizes = self.layers.iter().map(Layer::len);
        let update = std::iter::once(model.update.inputs).chain(sizes).collect();
        let shape = ModelShape { update, ..model.shape.clone() };
        let wires = Wires { inputs: model.update.inputs, layers: self.layers };
        let mut grown = Model::with_wires(shape, model.perceive.clone(), wires);
        let perceive = model.perceive_gates() * FUNCTIONS;
        grown.params.values[..perceive].copy_from_slice(&model.params.values[..perceive]);
        grown.params.values[perceive..].copy_from_slice(&self.logits.concat());
        grown
    }
}

/// A formula during its translation, layer by layer.
enum Tree {
    /// Literals of the update's inputs.
    Literals(Formula),
    /// A gate that reads two of the update's inputs.
    Gate(Gate, u32, u32),
    /// Conjunctions, each as the rows that remain to be combined.
    Products(Vec<Vec<u32>>),
    /// A finished formula: its row.
    Joined(u32),
    /// Never true.
    Empty,
}

impl Tree {
    fn is_joined(&self) -> bool {
        matches!(self, Tree::Joined(_) | Tree::Empty)
    }

    /// Adds one level of gates to a layer and returns the remaining formula.
    fn next(&self, growing: &mut Growing, layer: usize) -> Tree {
        let mut add = |gate: Gate, a: u32, b: u32| growing.add(layer, gate, a, b);
        match self {
            Tree::Empty => Tree::Empty,
            Tree::Gate(gate, a, b) => Tree::Joined(add(*gate, *a, *b)),
            Tree::Joined(row) => Tree::Joined(add(Gate::A, *row, *row)),
            Tree::Literals(formula) => {
                let mut pair = |pair: &[Literal]| {
                    let (a, b) = (pair[0], pair[pair.len() - 1]);
                    add(both(a.1, b.1), a.0, b.0)
                };
                Tree::of(formula.iter().map(|term| term.chunks(2).map(&mut pair).collect()).collect())
            }
            Tree::Products(products) => {
                let is_sum = products.iter().all(|product| product.len() == 1);
                let gate = if is_sum { Gate::OR } else { Gate::AND };
                let mut pair = |pair: &[u32]| add(gate, pair[0], pair[pair.len() - 1]);
                Tree::of(if is_sum {
                    products.concat().chunks(2).map(|rows| vec![pair(rows)]).collect()
                } else {
                    products.iter().map(|rows| rows.chunks(2).map(&mut pair).collect()).collect()
                })
            }
        }
    }

    fn of(products: Vec<Vec<u32>>) -> Tree {
        match &products[..] {
            [] => Tree::Empty,
            [product] if product.len() == 1 => Tree::Joined(product[0]),
            _ => Tree::Products(products),
        }
    }
}

/// Returns the gate that is true if its operands have these values.
fn both(a: bool, b: bool) -> Gate {
    match (a, b) {
        (true, true) => Gate::AND,
        (true, false) => Gate::A_AND_NOT_B,
        (false, true) => Gate::NOT_A_AND_B,
        (false, false) => Gate::NOR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::search::tests::{model, patches};

    /// Inputs and outputs of the update for random patches.
    fn rows_and_outputs(model: &Model) -> Vec<(Vec<bool>, Vec<bool>)> {
        let circuit = model.harden().circuit;
        let signals = [model.update_rows(), circuit.outputs().to_vec()].concat();
        let all = gatework_logic::Circuit::new(circuit.inputs(), circuit.nodes().to_vec(), signals).unwrap();
        let split = |patch: Vec<bool>| {
            let mut rows = all.eval(&patch).unwrap();
            let outputs = rows.split_off(model.shape.update_inputs());
            (rows, outputs)
        };
        patches(model).map(split).collect()
    }

    #[test]
    fn growing_changes_only_the_channels_of_formulas_and_markers() {
        let model = model(3);
        let formulas = [vec![vec![(0, true), (5, false), (7, true)], vec![(2, false)]], vec![]];
        let marker = Marker { channel: 3, gate: Gate::XOR, a: 6, b: 1 };
        let grown = grow(&model, &formulas, &[marker]);
        for ((rows, old), (_, new)) in rows_and_outputs(&model).into_iter().zip(rows_and_outputs(&grown)) {
            let formula = rows[0] && !rows[5] && rows[7] || !rows[2];
            let mut expected = old;
            expected[0] ^= formula;
            expected[3] = rows[6] ^ rows[1];
            assert_eq!(new, expected);
        }
        assert_eq!(Model::from_bytes(&grown.to_bytes()).unwrap().update, grown.update);
    }

    #[test]
    fn long_formulas_get_more_layers() {
        let model = model(5);
        let rows = model.shape.update_inputs() as u32;
        let terms: Vec<Vec<Literal>> =
            (0..40).map(|i| (0..40).map(|j| ((i * 7 + j * 3) % rows, (i + j) % 3 == 0)).collect()).collect();
        let grown = grow(&model, std::slice::from_ref(&terms), &[]);
        assert!(grown.update.layers.len() > model.update.layers.len() + 1);
        for ((rows, old), (_, new)) in rows_and_outputs(&model).into_iter().zip(rows_and_outputs(&grown)) {
            let holds = |term: &Vec<Literal>| term.iter().all(|&(row, value)| rows[row as usize] == value);
            assert_eq!(new[0], old[0] ^ terms.iter().any(holds));
            assert_eq!(new[1..], old[1..]);
        }
    }

    #[test]
    fn additional_kernels_pass_all_neighbours_through_and_change_no_output() {
        let model = model(4);
        let grown = with_neighbours(&model);
        let (channels, kernels) = (model.shape.channels, model.shape.kernels);
        let both = rows_and_outputs(&model).into_iter().zip(rows_and_outputs(&grown));
        for (patch, ((_, old), (rows, new))) in patches(&model).zip(both) {
            assert_eq!(old, new);
            let neighbours = (0..NEIGHBOURS).filter(|&n| n != CENTRE);
            for (i, neighbour) in neighbours.enumerate() {
                assert_eq!(rows[channels + kernels + i], patch[neighbour], "neighbour {neighbour}");
            }
        }
    }
}
