//! Any circuit as the layers of a model: kernels pass the neighbours through, and the update has the gates, level by level.

use gatework_logic::automaton::{CENTRE, NEIGHBOURS};
use gatework_logic::{Automaton, Gate};

use crate::automata::model::{MAX_GATES, Model, ModelShape};
use crate::automata::search::{MARGIN, one_hot, path_from};
use crate::kernel::{FUNCTIONS, Layer, Wires};

/// Returns a model whose hard circuit is that of an automaton with as many channels. The perception layers are those of
/// `model`. Returns `None` if these cannot pass every neighbour through.
pub fn embed(automaton: &Automaton, model: &Model) -> Option<Model> {
    let channels = model.shape.channels;
    if automaton.check().is_err() || automaton.channels != channels {
        return None;
    }
    let kernels = NEIGHBOURS - 1;
    let outputs = model.perceive.outputs();
    let neighbours = (0..NEIGHBOURS).filter(|&n| n != CENTRE);
    let paths: Vec<_> = neighbours.map(|neighbour| path_from(&model.perceive, neighbour)).collect();
    let carried: Option<Vec<usize>> = paths.iter().map(|path| path.first().map(|first| first.1)).collect();
    let carried = carried?;
    let inputs = channels + channels * kernels * outputs;
    let row = |input: usize| {
        let (channel, neighbour) = (input / NEIGHBOURS, input % NEIGHBOURS);
        if neighbour == CENTRE {
            return channel as u32;
        }
        let kernel = neighbour - usize::from(neighbour > CENTRE);
        (channels + channel * kernels * outputs + carried[kernel] * kernels + kernel) as u32
    };
    let (layers, gates) = layers(automaton, row);
    let sizes = layers.iter().map(Layer::len);
    let shape = ModelShape {
        kernels,
        update: std::iter::once(inputs).chain(sizes).collect(),
        channels,
        boundary: automaton.boundary,
        ..model.shape.clone()
    };
    if shape.max_gates_per_cell() > MAX_GATES {
        return None;
    }
    let mut embedded = Model::with_wires(shape, model.perceive.clone(), Wires { inputs, layers });
    let tensors: Vec<_> = embedded.params.tensors().iter().map(|tensor| tensor.range.clone()).collect();
    for (kernel, path) in paths.iter().enumerate() {
        for &(layer, index, gate) in path {
            let of_kernel = kernel * model.perceive.layers[layer].len() + index;
            let logits = &mut embedded.params.values[tensors[layer].clone()][of_kernel * FUNCTIONS..];
            one_hot(&mut logits[..FUNCTIONS], gate, MARGIN);
        }
    }
    let first = model.perceive.layers.len();
    for (range, gates) in tensors[first..].iter().zip(gates) {
        let logits = embedded.params.values[range.clone()].chunks_exact_mut(FUNCTIONS);
        logits.zip(gates).for_each(|(logits, gate)| one_hot(logits, gate, MARGIN));
    }
    Some(embedded)
}

/// Arranges gates in layers, each of which reads the one before. `row` is the row of the update's inputs with a signal.
fn layers(automaton: &Automaton, row: impl Fn(usize) -> u32) -> (Vec<Layer>, Vec<Vec<Gate>>) {
    let circuit = &automaton.circuit;
    let (inputs, nodes) = (circuit.inputs(), circuit.nodes());
    let mut level = vec![0usize; circuit.signals()];
    for (i, node) in nodes.iter().enumerate() {
        level[inputs + i] = 1 + node.dependencies().map(|signal| level[signal as usize]).max().unwrap_or(0);
    }
    // One more layer for the outputs, in their order.
    let depth = level.iter().copied().max().unwrap_or(0) + 1;
    // The last layer that reads a signal.
    let mut last_use = vec![0usize; circuit.signals()];
    for (i, node) in nodes.iter().enumerate() {
        for signal in node.dependencies() {
            last_use[signal as usize] = last_use[signal as usize].max(level[inputs + i]);
        }
    }
    circuit.outputs().iter().for_each(|&signal| last_use[signal as usize] = depth);
    let mut place: Vec<u32> =
        (0..circuit.signals()).map(|signal| if signal < inputs { row(signal) } else { 0 }).collect();
    let (mut layers, mut gates) = (Vec::new(), Vec::new());
    for number in 1..depth {
        let (mut layer, mut functions) = (Layer { a: Vec::new(), b: Vec::new() }, Vec::new());
        let mut next = place.clone();
        let mut add = |signal: usize, gate: Gate, a: u32, b: u32| {
            next[signal] = functions.len() as u32;
            layer.a.push(a);
            layer.b.push(b);
            functions.push(gate);
        };
        for signal in (0..circuit.signals()).filter(|&signal| last_use[signal] > number) {
            if level[signal] < number {
                add(signal, Gate::A, place[signal], place[signal]);
            } else if level[signal] == number {
                let node = nodes[signal - inputs];
                // An ignored operand may not be in the layer before.
                let a = if node.gate.depends_on_a() { place[node.a as usize] } else { 0 };
                let b = if node.gate.depends_on_b() { place[node.b as usize] } else { 0 };
                add(signal, node.gate, a, b);
            }
        }
        place = next;
        layers.push(layer);
        gates.push(functions);
    }
    let outputs: Vec<u32> = circuit.outputs().iter().map(|&signal| place[signal as usize]).collect();
    gates.push(vec![Gate::A; outputs.len()]);
    layers.push(Layer { a: outputs.clone(), b: outputs });
    (layers, gates)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::search::tests::{model_of, patches};
    use gatework_logic::{Circuit, Node};
    use gatework_train::random::{Purpose, Random};

    #[test]
    fn an_embedded_automaton_computes_the_same() {
        for seed in 1..6 {
            let model = model_of(seed, 3);
            let mut random = Random::new(seed, Purpose::Check, 0);
            let gate = |i: usize, random: &mut Random| {
                let gate = Gate::ALL[random.below(16)];
                Node::new(gate, random.below(27 + i) as u32, random.below(27 + i) as u32)
            };
            let nodes: Vec<Node> = (0..40).map(|i| gate(i, &mut random)).collect();
            let outputs = (0..3).map(|_| random.below(67) as u32).collect();
            let circuit = Circuit::new(27, nodes, outputs).unwrap();
            let automaton = Automaton::new(3, model.shape.boundary, circuit).unwrap();
            let embedded = embed(&automaton, &model).unwrap();
            let copy = embedded.harden().circuit;
            for patch in patches(&model) {
                assert_eq!(copy.eval(&patch).unwrap(), automaton.circuit.eval(&patch).unwrap());
            }
            assert_eq!(Model::from_bytes(&embedded.to_bytes()).unwrap().update, embedded.update);
        }
    }
}
