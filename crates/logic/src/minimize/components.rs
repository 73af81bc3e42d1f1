//! Connected components: parts of an XAG that share no gate, each minimised on its own if it has few inputs.
//!
//! The rule of an automaton with many channels has hundreds of inputs, but most channels depend on a few of them. The
//! inputs of a component are those that its gates read. If they are few enough for truth tables, the component is a
//! small XAG, for which stronger methods are available.

use super::resubstitution::MAX_INPUTS;
use super::{local_search, resynthesis};
use crate::prove::trace::Trace;
use crate::stop::{Stop, Stopped};
use crate::xag::{Literal, Xag, translate};

/// The maximum number of gates of a component that is searched.
pub(super) const MAX_GATES: usize = 1000;

/// The effort of a search.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// The number of random walks from each of the two best starting points.
    pub walks: u64,
    /// The number of consecutive steps without a gain that ends a walk.
    pub patience: usize,
}

/// Minimises each component with few inputs.
pub(super) fn minimize_components(
    xag: &Xag,
    budget: Budget,
    mut trace: Option<&mut Trace>,
    stop: &Stop<'_>,
) -> Result<Xag, Stopped> {
    let mut fresh = Xag::new(xag.inputs());
    let mut old_to_new: Vec<Literal> = (0..xag.len()).map(|node| Literal::new(node, false)).collect();
    let mut is_output = vec![false; xag.len()];
    for output in xag.outputs() {
        is_output[output.node()] = true;
    }
    for gates in components(xag, stop)? {
        stop.check()?;
        let component = Component::new(xag, &gates, &is_output, stop)?;
        let smaller = if component.inputs.len() <= MAX_INPUTS {
            minimize_component(&component.xag, budget, stop)?
        } else {
            component.xag.clone()
        };
        if let Some(trace) = &mut trace {
            trace.claim_replacement(&component.outputs, &smaller, &component.inputs);
        }
        let inputs: Vec<Literal> = component.inputs.iter().map(|&node| Literal::new(node, false)).collect();
        let literals = fresh.add_xag(&smaller, &inputs);
        for (&output, literal) in component.outputs.iter().zip(literals) {
            old_to_new[output] = literal;
        }
    }
    fresh.set_outputs(xag.outputs().iter().map(|&output| translate(output, &old_to_new)).collect());
    Ok(fresh.without_dead_gates())
}

/// Returns the smallest XAG that local search finds from the given structure and from resynthesised ones.
fn minimize_component(xag: &Xag, budget: Budget, stop: &Stop<'_>) -> Result<Xag, Stopped> {
    let own = (xag.gates() <= MAX_GATES).then(|| xag.clone());
    let starts = [resynthesis::by_expansion(xag, stop)?, resynthesis::by_symmetry(xag, stop)?, own];
    let starts = starts.into_iter().flatten().filter(|start| start.gates() <= MAX_GATES);
    let starts: Result<Vec<Xag>, Stopped> =
        starts.map(|start| local_search::descend(&start, 2, stop)).collect();
    let mut starts = starts?;
    starts.sort_by_key(Xag::gates);
    let walk = |(start, seed): (&Xag, u64)| {
        // A walk over few gates has few states to visit.
        let patience = budget.patience.min(8 * start.gates() * start.gates());
        local_search::walk(start, patience, seed, stop)
    };
    let seeds = |start| (0..budget.walks).map(move |seed| (start, seed));
    let walked: Result<Vec<Xag>, Stopped> = starts.iter().take(2).flat_map(seeds).map(walk).collect();
    let all = starts.iter().chain(walked.as_ref().map_err(|&stopped| stopped)?).chain([xag]);
    Ok(all.min_by_key(|xag| xag.gates()).unwrap_or(xag).clone())
}

/// Returns the gates of each component, in topological order.
fn components(xag: &Xag, stop: &Stop<'_>) -> Result<Vec<Vec<usize>>, Stopped> {
    // Union-find: each node points to an earlier one of its component, or to itself.
    let mut parent: Vec<usize> = (0..xag.len()).collect();
    for index in xag.gate_range() {
        stop.check_at(index)?;
        for fanin in xag.node(index).fanins() {
            if xag.is_gate(fanin.node()) {
                let (a, b) = (root(&mut parent, fanin.node()), root(&mut parent, index));
                parent[a.max(b)] = a.min(b);
            }
        }
    }
    let mut component_of_root = vec![usize::MAX; xag.len()];
    let mut components: Vec<Vec<usize>> = Vec::new();
    for index in xag.gate_range() {
        stop.check_at(index)?;
        let root = root(&mut parent, index);
        if component_of_root[root] == usize::MAX {
            component_of_root[root] = components.len();
            components.push(Vec::new());
        }
        components[component_of_root[root]].push(index);
    }
    Ok(components)
}

/// Returns the first node of a component, with path halving.
fn root(parent: &mut [usize], mut node: usize) -> usize {
    while parent[node] != node {
        parent[node] = parent[parent[node]];
        node = parent[node];
    }
    node
}

/// A component as an XAG of its own.
struct Component {
    xag: Xag,
    /// The nodes of the whole XAG that are its inputs.
    inputs: Vec<usize>,
    /// The nodes of the whole XAG that are its outputs.
    outputs: Vec<usize>,
}

impl Component {
    fn new(whole: &Xag, gates: &[usize], is_output: &[bool], stop: &Stop<'_>) -> Result<Component, Stopped> {
        let fanins = gates.iter().flat_map(|&gate| whole.node(gate).fanins());
        let mut inputs: Vec<usize> = fanins.map(Literal::node).filter(|&node| !whole.is_gate(node)).collect();
        inputs.sort_unstable();
        inputs.dedup();
        let mut xag = Xag::new(inputs.len());
        let mut literals: Vec<Literal> = Vec::with_capacity(gates.len());
        for (step, &gate) in gates.iter().enumerate() {
            stop.check_at(step)?;
            let node = whole.node(gate);
            let [a, b] = node.fanins().map(|fanin| {
                let literal = match gates.binary_search(&fanin.node()) {
                    Ok(place) => literals[place],
                    Err(_) => Literal::input(inputs.partition_point(|&input| input < fanin.node())),
                };
                literal.invert_if(fanin.is_inverted())
            });
            literals.push(xag.operation(node.operation(), a, b));
        }
        let places = (0..gates.len()).filter(|&place| is_output[gates[place]]);
        xag.set_outputs(places.clone().map(|place| literals[place]).collect());
        let outputs = places.map(|place| gates[place]).collect();
        Ok(Component { xag, inputs, outputs })
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
        let mut xag = Xag::new(4);
        let [a, b, c, d] = [0, 1, 2, 3].map(Literal::input);
        let (ab, bc) = (xag.and(a, b), xag.and(b, c));
        let (abd, abc) = (xag.xor(ab, d), xag.xor(ab, c));
        xag.set_outputs(vec![abd, abc, bc]);
        assert_eq!(components(&xag, &Stop::never()).unwrap(), [vec![5, 7, 8], vec![6]]);
        let is_output = [false, false, false, false, false, false, true, true, true];
        let component = Component::new(&xag, &[5, 7, 8], &is_output, &Stop::never()).unwrap();
        assert_eq!((&component.inputs[..], &component.outputs[..]), (&[1, 2, 3, 4][..], &[7, 8][..]));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn minimizing_components_preserves_the_function_and_adds_no_gates(circuit in arbitrary::circuit(0..=60, 60)) {
            let xag = Xag::from_circuit(&circuit).without_dead_gates();
            let smaller = minimize_components(&xag, Budget { walks: 1, patience: 20 }, None, &Stop::never()).unwrap();
            prop_assert!(smaller.gates() <= xag.gates());
            prop_assert_eq!(equivalent(&circuit, &smaller.to_circuit(&circuit)), Ok(Verdict::Equal));
        }
    }
}
