//! Components: parts of a network that share no gate, searched one by one where they have few inputs.
//!
//! An automaton of many channels has hundreds of inputs, but most channels depend on a few of them. Gates that
//! are connected by gates make a component; its own inputs are the inputs that its gates read. If these are few
//! enough for truth tables, the component is a small network, for which there are stronger searches than for a
//! large one.

use super::dense::MAX_INPUTS;
use super::{decompose, search};
use crate::network::{Literal, Network};

/// The most gates of a network that is searched gate by gate.
pub(super) const MAX_GATES: usize = 1000;

/// How thoroughly components are searched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Thoroughness {
    /// Random walks from each of the two best starts.
    pub walks: u64,
    /// Steps without success before a walk ends.
    pub patience: usize,
}

/// The network with each component of few inputs as small as it could be found.
pub(super) fn search_components(network: &Network, thoroughness: Thoroughness) -> Network {
    let mut fresh = Network::new(network.inputs());
    let mut moved: Vec<Literal> = (0..network.len()).map(|vertex| Literal::new(vertex, false)).collect();
    let mut is_output = vec![false; network.len()];
    for output in network.outputs() {
        is_output[output.vertex()] = true;
    }
    for gates in components(network) {
        let component = Component::new(network, &gates, &is_output);
        let smaller = if component.inputs.len() <= MAX_INPUTS {
            search_small(&component.network, thoroughness)
        } else {
            component.network.clone()
        };
        let literals = fresh.add_network(&smaller, &component.inputs);
        for (&output, literal) in component.outputs.iter().zip(literals) {
            moved[output] = literal;
        }
    }
    let outputs = network.outputs().iter().map(|o| moved[o.vertex()].invert_if(o.is_inverted())).collect();
    fresh.set_outputs(outputs);
    fresh.without_dead_gates()
}

/// The smallest network that the searches find, from the structure it has and from fresh ones.
fn search_small(network: &Network, thoroughness: Thoroughness) -> Network {
    let own = (network.gates() <= MAX_GATES).then(|| network.clone());
    let starts = [decompose::by_inputs(network), decompose::by_counting(network), own];
    let starts = starts.into_iter().flatten().filter(|start| start.gates() <= MAX_GATES);
    let mut starts: Vec<Network> = starts.map(|start| search::descend(&start, 2)).collect();
    starts.sort_by_key(Network::gates);
    let walk = |(start, seed): (&Network, u64)| {
        // A walk over few gates has soon seen all that it can see.
        let patience = thoroughness.patience.min(8 * start.gates() * start.gates());
        search::walk(start, patience, seed)
    };
    let seeds = |start| (0..thoroughness.walks).map(move |seed| (start, seed));
    let walked: Vec<Network> = starts.iter().take(2).flat_map(seeds).map(walk).collect();
    let all = starts.into_iter().chain(walked).chain([network.clone()]);
    all.min_by_key(Network::gates).unwrap_or_else(|| network.clone())
}

/// The gates of each component, in order.
fn components(network: &Network) -> Vec<Vec<usize>> {
    // Each vertex points to an earlier one of its component, or to itself.
    let mut parent: Vec<usize> = (0..network.len()).collect();
    for number in network.gate_range() {
        for operand in network.vertex(number).operands() {
            if network.is_gate(operand.vertex()) {
                let (a, b) = (root(&mut parent, operand.vertex()), root(&mut parent, number));
                parent[a.max(b)] = a.min(b);
            }
        }
    }
    let mut place = vec![usize::MAX; network.len()];
    let mut components: Vec<Vec<usize>> = Vec::new();
    for number in network.gate_range() {
        let root = root(&mut parent, number);
        if place[root] == usize::MAX {
            place[root] = components.len();
            components.push(Vec::new());
        }
        components[place[root]].push(number);
    }
    components
}

/// The first vertex of a component. Paths are halved on the way.
fn root(parent: &mut [usize], mut vertex: usize) -> usize {
    while parent[vertex] != vertex {
        parent[vertex] = parent[parent[vertex]];
        vertex = parent[vertex];
    }
    vertex
}

/// A component as a network of its own.
struct Component {
    network: Network,
    /// The vertices of the whole network that are its inputs.
    inputs: Vec<usize>,
    /// The vertices of the whole network that are its outputs.
    outputs: Vec<usize>,
}

impl Component {
    fn new(whole: &Network, gates: &[usize], is_output: &[bool]) -> Component {
        let operands = gates.iter().flat_map(|&gate| whole.vertex(gate).operands());
        let mut inputs: Vec<usize> = operands.map(Literal::vertex).filter(|&v| !whole.is_gate(v)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let mut network = Network::new(inputs.len());
        let mut literals: Vec<Literal> = Vec::with_capacity(gates.len());
        for &gate in gates {
            let vertex = whole.vertex(gate);
            let [a, b] = vertex.operands().map(|operand| {
                let literal = match gates.binary_search(&operand.vertex()) {
                    Ok(place) => literals[place],
                    Err(_) => Literal::input(inputs.partition_point(|&input| input < operand.vertex())),
                };
                literal.invert_if(operand.is_inverted())
            });
            literals.push(network.operation(vertex.operation(), a, b));
        }
        let places = (0..gates.len()).filter(|&place| is_output[gates[place]]);
        network.set_outputs(places.clone().map(|place| literals[place]).collect());
        let outputs = places.map(|place| gates[place]).collect();
        Component { network, inputs, outputs }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    #[test]
    fn components_share_no_gate() {
        let mut network = Network::new(4);
        let [a, b, c, d] = [0, 1, 2, 3].map(Literal::input);
        let (ab, bc) = (network.and(a, b), network.and(b, c));
        let (abd, abc) = (network.xor(ab, d), network.xor(ab, c));
        network.set_outputs(vec![abd, abc, bc]);
        assert_eq!(components(&network), [vec![5, 7, 8], vec![6]]);
        let is_output = [false, false, false, false, false, false, true, true, true];
        let component = Component::new(&network, &[5, 7, 8], &is_output);
        assert_eq!((&component.inputs[..], &component.outputs[..]), (&[1, 2, 3, 4][..], &[7, 8][..]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn the_function_stays_and_gates_do_not_grow(circuit in arbitrary::circuit(0..=60, 60)) {
            let network = Network::of(&circuit).without_dead_gates();
            let smaller = search_components(&network, Thoroughness { walks: 1, patience: 20 });
            prop_assert!(smaller.gates() <= network.gates());
            prop_assert_eq!(equivalent(&circuit, &smaller.to_circuit(&circuit)), Ok(Verdict::Equal));
        }
    }
}
