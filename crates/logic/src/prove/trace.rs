//! The steps of a minimisation, as hints for its proof.
//!
//! The passes change a few gates at a time. A trace holds every version of the XAG in one structurally hashed XAG, and a
//! *claim* for each replacement: that two of its literals are equal as functions of a few nodes, the leaves. Proving a
//! claim takes a truth table, whatever the size of the circuit. The proved claims are then extended by congruence closure:
//! gates with equal fanins are equal. If every claim holds, the outputs of the first and of the last version are equal.
//!
//! A proof does not trust the trace. It adds the two circuits to the XAG of the trace, where structural hashing finds
//! their gates, and uses no claim that it has not proved. A wrong trace leads to no merged gates, never to wrong ones.

use super::Failure;
use super::sat::{self, Answer, Limits};
use crate::circuit::{Circuit, MAX_SIGNALS};
use crate::stop::{Stop, Stopped};
use crate::truth::{input_word, table_words};
use crate::xag::{Fanouts, Literal, Normal, Xag, XagNode, normal, translate};
use rustc_hash::FxHashMap;

/// All versions of an XAG during a minimisation, and the claims that connect them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Trace {
    xag: Xag,
    /// The literal of each node of the current version.
    current: Vec<Literal>,
    claims: Vec<Claim>,
    /// The leaves of all claims.
    leaves: Vec<u32>,
}

/// Two literals that are said to be equal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Claim {
    pair: [Literal; 2],
    /// The end of its leaves; they start where those of the claim before end. No leaves: the SAT solver decides.
    end: usize,
}

impl Trace {
    /// Starts with the first version.
    pub fn new(xag: &Xag) -> Trace {
        let current = (0..xag.len()).map(|node| Literal::new(node, false)).collect();
        Trace { xag: xag.clone(), current, claims: Vec::new(), leaves: Vec::new() }
    }

    /// Takes an XAG as the current version.
    pub fn advance(&mut self, xag: &Xag, stop: &Stop<'_>) -> Result<(), Stopped> {
        self.current = self.add_nodes(xag.inputs(), xag.gate_range().map(|index| xag.node(index)), stop)?;
        Ok(())
    }

    /// Returns the number of nodes of all versions.
    pub fn nodes(&self) -> usize {
        self.xag.len()
    }

    /// Returns the literals of the nodes of the current version.
    pub fn current(&self) -> &[Literal] {
        &self.current
    }

    /// Adds gates in topological order on the inputs, and returns the literals of all nodes.
    pub fn add_nodes(
        &mut self,
        inputs: usize,
        nodes: impl Iterator<Item = XagNode>,
        stop: &Stop<'_>,
    ) -> Result<Vec<Literal>, Stopped> {
        let mut literals: Vec<Literal> = (0..=inputs).map(|node| Literal::new(node, false)).collect();
        for node in nodes {
            stop.check_at(literals.len())?;
            literals.push(self.xag.add_copy(node, &literals));
        }
        Ok(literals)
    }

    /// Adds a gate whose fanins are translated by `literals`.
    pub fn add_copy(&mut self, node: XagNode, literals: &[Literal]) -> Literal {
        self.xag.add_copy(node, literals)
    }

    /// Claims that two literals are equal, if the SAT solver can prove it.
    pub fn claim(&mut self, a: Literal, b: Literal) {
        self.claim_on(a, b, []);
    }

    /// Claims that two literals are equal functions of these leaves.
    pub fn claim_on(&mut self, a: Literal, b: Literal, leaves: impl IntoIterator<Item = Literal>) {
        if a != b {
            self.leaves.extend(leaves.into_iter().map(|leaf| leaf.node() as u32));
            self.claims.push(Claim { pair: [a, b], end: self.leaves.len() });
        }
    }

    /// Claims that nodes of the current version are equal to the outputs of an XAG on leaves of the current version.
    pub fn claim_replacement(&mut self, nodes: &[usize], replacement: &Xag, leaves: &[usize]) {
        let leaves: Vec<Literal> = leaves.iter().map(|&leaf| self.current[leaf]).collect();
        let literals = self.xag.add_xag(replacement, &leaves);
        for (&node, literal) in nodes.iter().zip(literals) {
            self.claim_on(self.current[node], literal, leaves.iter().copied());
        }
    }

    /// Returns whether two circuits with equal inputs can be added to the XAG.
    pub fn is_usable_for(&self, left: &Circuit, right: &Circuit) -> bool {
        let nodes = self.xag.len() + left.nodes().len() + right.nodes().len();
        self.xag.inputs() == left.inputs() && nodes < MAX_SIGNALS
    }

    /// Returns an XAG with the outputs of both circuits, in which the gates that the trace proves equal are merged.
    pub(super) fn merge(&self, left: &Circuit, right: &Circuit, stop: &Stop<'_>) -> Result<Xag, Failure> {
        let mut xag = self.xag.clone();
        stop.check()?;
        let mut outputs = xag.add_circuit(left);
        stop.check()?;
        outputs.extend(xag.add_circuit(right));
        xag.set_outputs(outputs);
        stop.check()?;
        let fanouts = Fanouts::new(&xag, stop)?;
        let mut classes = Classes::new(&xag, &fanouts, stop)?;
        let (mut tables, mut start) = (Tables::default(), 0);
        for claim in &self.claims {
            stop.check()?;
            let ([a, b], leaves) = (claim.pair, &self.leaves[start..claim.end]);
            start = claim.end;
            let is_equal = if leaves.is_empty() {
                sat::equal(&xag, a, b, CLAIM, stop) == Answer::Equal
            } else {
                tables.are_equal(&xag, a, b, leaves)
            };
            if is_equal {
                classes.merge(a, b, stop)?;
            }
        }
        Ok(classes.merged_xag(stop)?)
    }
}

/// Limits of the SAT query about a claim without leaves.
const CLAIM: Limits = Limits { gates: 1024, conflicts: 1000 };
/// The maximum number of leaves for truth tables.
const MAX_LEAVES: usize = 12;
/// The maximum number of nodes for truth tables.
const MAX_NODES: usize = 1 << 12;

/// Truth tables of the nodes between the leaves and the literals of a claim.
#[derive(Default)]
struct Tables {
    words: usize,
    /// The place of the table of each node.
    places: FxHashMap<u32, usize>,
    values: Vec<u64>,
    stack: Vec<u32>,
}

impl Tables {
    /// Returns whether two literals are equal functions of the leaves. False also if they depend on other nodes.
    fn are_equal(&mut self, xag: &Xag, a: Literal, b: Literal, leaves: &[u32]) -> bool {
        if leaves.len() > MAX_LEAVES {
            return false;
        }
        self.places.clear();
        self.values.clear();
        self.words = table_words(leaves.len());
        self.push(0, |_| 0);
        for (input, &leaf) in leaves.iter().enumerate() {
            if !self.places.contains_key(&leaf) {
                self.push(leaf, |word| input_word(input, word));
            }
        }
        let places = [a, b].map(|literal| self.evaluate(xag, literal.node() as u32));
        let [Some(x), Some(y)] = places else { return false };
        let mask = a.mask() ^ b.mask();
        (0..self.words).all(|word| self.values[x + word] == self.values[y + word] ^ mask)
    }

    fn push(&mut self, node: u32, value: impl Fn(usize) -> u64) {
        self.places.insert(node, self.values.len());
        self.values.extend((0..self.words).map(value));
    }

    /// Computes the table of a node and returns its place, or `None` if the leaves do not determine it.
    fn evaluate(&mut self, xag: &Xag, root: u32) -> Option<usize> {
        self.stack.clear();
        self.stack.push(root);
        while let Some(&node) = self.stack.last() {
            if self.places.contains_key(&node) {
                self.stack.pop();
                continue;
            }
            if !xag.is_gate(node as usize) || self.places.len() == MAX_NODES {
                return None;
            }
            let gate = xag.node(node as usize);
            let fanins = gate.fanins().map(|fanin| fanin.node() as u32);
            if let [Some(&a), Some(&b)] = fanins.map(|fanin| self.places.get(&fanin)) {
                self.places.insert(node, self.values.len());
                for word in 0..self.words {
                    let value = gate.eval_word(self.values[a + word], self.values[b + word]);
                    self.values.push(value);
                }
            } else {
                self.stack.extend(fanins.iter().filter(|&fanin| !self.places.contains_key(fanin)));
            }
        }
        self.places.get(&root).copied()
    }
}

/// Classes of nodes that are equal up to inversion, closed under congruence.
struct Classes<'a> {
    xag: &'a Xag,
    fanouts: &'a Fanouts,
    /// Union-find: a literal that each node is equal to, nearer to the representative of its class.
    parent: Vec<Literal>,
    /// The next node of the same class, in a cycle.
    next: Vec<u32>,
    sizes: Vec<u32>,
    /// The literal of a gate, by its normal form on representatives.
    table: FxHashMap<XagNode, Literal>,
}

impl<'a> Classes<'a> {
    /// One class for each node.
    fn new(xag: &'a Xag, fanouts: &'a Fanouts, stop: &Stop<'_>) -> Result<Classes<'a>, Stopped> {
        let mut table = FxHashMap::with_capacity_and_hasher(xag.gates(), rustc_hash::FxBuildHasher);
        for index in xag.gate_range() {
            stop.check_at(index)?;
            table.insert(xag.node(index), Literal::new(index, false));
        }
        Ok(Classes {
            xag,
            fanouts,
            parent: (0..xag.len()).map(|node| Literal::new(node, false)).collect(),
            next: (0..xag.len() as u32).collect(),
            sizes: vec![1; xag.len()],
            table,
        })
    }

    /// Returns the representative of a literal, with path halving.
    fn find(&mut self, mut literal: Literal) -> Literal {
        loop {
            let parent = self.parent[literal.node()];
            if parent.node() == literal.node() {
                return literal;
            }
            let grandparent = translate(parent, &self.parent);
            self.parent[literal.node()] = grandparent;
            literal = grandparent.invert_if(literal.is_inverted());
        }
    }

    /// Merges the classes of two equal literals, and then those of gates that have become equal.
    fn merge(&mut self, a: Literal, b: Literal, stop: &Stop<'_>) -> Result<(), Failure> {
        let fanouts = self.fanouts;
        let mut pairs = vec![(a, b)];
        while let Some((a, b)) = pairs.pop() {
            let (a, b) = (self.find(a), self.find(b));
            if a == b {
                continue;
            }
            if a.node() == b.node() {
                return Err(Failure::Contradiction);
            }
            stop.check()?;
            // The constant represents its class, so that normal forms see it.
            let weight = |literal: Literal| (literal.is_constant(), self.sizes[literal.node()]);
            let (winner, loser) = if weight(a) >= weight(b) { (a, b) } else { (b, a) };
            self.parent[loser.node()] = winner.invert_if(loser.is_inverted());
            self.sizes[winner.node()] += self.sizes[loser.node()];
            let mut member = loser.node();
            loop {
                for &gate in fanouts.of(member) {
                    pairs.extend(self.equal_gate(gate as usize));
                }
                member = self.next[member] as usize;
                if member == loser.node() {
                    break;
                }
            }
            self.next.swap(winner.node(), loser.node());
        }
        Ok(())
    }

    /// Looks up a gate by the representatives of its fanins. Returns a literal that it is equal to, together with its own.
    fn equal_gate(&mut self, gate: usize) -> Option<(Literal, Literal)> {
        let node = self.xag.node(gate);
        let own = Literal::new(gate, false);
        let (a, b) = (self.find(node.a), self.find(node.b));
        match normal(node.operation(), a, b) {
            Normal::Literal(literal) => Some((own, literal)),
            Normal::Node(node, inverted) => {
                let own = own.invert_if(inverted);
                let first = *self.table.entry(node).or_insert(own);
                (first != own).then_some((own, first))
            }
        }
    }

    /// Returns the XAG with one gate for each class.
    fn merged_xag(mut self, stop: &Stop<'_>) -> Result<Xag, Stopped> {
        let mut merged = Xag::new(self.xag.inputs());
        let mut old_to_new: Vec<Literal> = Vec::with_capacity(self.xag.len());
        // The new literal of each representative.
        let mut built: Vec<Option<Literal>> = vec![None; self.xag.len()];
        for node in 0..self.xag.len() {
            stop.check_at(node)?;
            let representative = self.find(Literal::new(node, false));
            let inverted = representative.is_inverted();
            let literal = match built[representative.node()] {
                Some(literal) => literal.invert_if(inverted),
                None if self.xag.is_gate(node) => merged.add_copy(self.xag.node(node), &old_to_new),
                None => Literal::new(node, false),
            };
            built[representative.node()] = Some(literal.invert_if(inverted));
            old_to_new.push(literal);
        }
        merged.set_outputs(self.xag.outputs().iter().map(|&output| translate(output, &old_to_new)).collect());
        Ok(merged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::circuit::Node;
    use crate::gate::Gate;
    use crate::minimize::{Effort, Options, minimize_until};
    use crate::prove::{Verdict, equivalent, equivalent_by};
    use crate::stop::STRIDE;
    use proptest::prelude::*;

    /// Returns a circuit with `inputs` inputs and these outputs of an XAG.
    fn circuit(xag: &Xag, outputs: Vec<Literal>) -> Circuit {
        let mut xag = xag.clone();
        let ports = Circuit::new(xag.inputs(), vec![], vec![0; outputs.len()]).unwrap();
        xag.set_outputs(outputs);
        xag.without_dead_gates().to_circuit(&ports)
    }

    /// Returns whether the trace alone merges the outputs of two circuits.
    fn is_merged(trace: &Trace, left: &Circuit, right: &Circuit) -> bool {
        let merged = trace.merge(left, right, &Stop::never()).unwrap();
        let (lefts, rights) = merged.outputs().split_at(left.outputs().len());
        lefts == rights
    }

    /// a & (b | c) and (a & b) | (a & c), each below the same chain of gates on further inputs.
    struct Factored {
        xag: Xag,
        pair: [Literal; 2],
        leaves: [Literal; 3],
        circuits: [Circuit; 2],
    }

    fn factored() -> Factored {
        let mut xag = Xag::new(30);
        let leaves = [0, 1, 2].map(Literal::input);
        let [a, b, c] = leaves;
        let (ab, ac) = (xag.and(a, b), xag.and(a, c));
        let b_or_c = xag.or(b, c);
        let pair = [xag.and(a, b_or_c), xag.or(ab, ac)];
        let chain = |xag: &mut Xag, first: Literal| {
            (3..30).fold(first, |y, input| {
                let x = Literal::input(input);
                if input % 2 == 0 { xag.and(y, x).not() } else { xag.xor(y, x) }
            })
        };
        let outputs = pair.map(|first| chain(&mut xag, first));
        let circuits = outputs.map(|output| circuit(&xag, vec![output]));
        Factored { xag, pair, leaves, circuits }
    }

    #[test]
    fn gates_above_a_proved_claim_are_merged() {
        let Factored { xag, pair: [a, b], leaves, circuits: [left, right] } = factored();
        let mut trace = Trace::new(&xag);
        assert!(!is_merged(&trace, &left, &right));
        trace.claim_on(a, b, leaves);
        assert!(is_merged(&trace, &left, &right));
        let mut trace = Trace::new(&xag);
        trace.claim(a, b);
        assert!(is_merged(&trace, &left, &right));
    }

    #[test]
    fn claims_that_are_wrong_or_have_too_few_leaves_are_not_used() {
        let Factored { xag, pair: [a, b], leaves, circuits: [left, right] } = factored();
        let mut trace = Trace::new(&xag);
        trace.claim_on(a, b, [leaves[0], leaves[1]]);
        trace.claim_on(a, b.not(), leaves);
        trace.claim_on(a, leaves[0], leaves);
        trace.claim(a, leaves[0]);
        trace.claim_on(a, Literal::FALSE, [Literal::FALSE; 13]);
        assert!(!is_merged(&trace, &left, &right));
        let verdict = equivalent_by(&left, &right, Some(&trace), &Stop::never());
        assert_eq!(verdict, Ok(Verdict::Equal), "decided without the claims");
        let wrong = circuit(&xag, vec![a]);
        let other = circuit(&xag, vec![leaves[0]]);
        let verdict = equivalent_by(&wrong, &other, Some(&trace), &Stop::never());
        assert!(matches!(verdict, Ok(Verdict::Different { .. })), "{verdict:?}");
    }

    #[test]
    fn each_wrong_claim_leaves_its_own_pair_unmerged() {
        let Factored { xag, pair: [a, b], leaves, .. } = factored();
        let claims: [(Literal, Literal, &[Literal]); 8] = [
            (a, b, &leaves[..2]),
            (a, b, &[Literal::FALSE]),
            (a, b, &[leaves[0]; 13]),
            (a, b.not(), &leaves),
            (a, b.not(), &[]),
            (a, leaves[0], &leaves),
            (a, leaves[0], &[]),
            (a, Literal::FALSE, &[Literal::FALSE; 13]),
        ];
        for (a, b, leaves) in claims {
            let mut trace = Trace::new(&xag);
            trace.claim_on(a, b, leaves.iter().copied());
            let [left, right] = [a, b].map(|literal| circuit(&xag, vec![literal]));
            assert!(!is_merged(&trace, &left, &right), "{a:?} {b:?} {leaves:?}");
        }
    }

    /// Returns whether a claim without leaves is used, and the answer of the solver within the limits of a claim.
    fn solve_claim(xag: &Xag, a: Literal, b: Literal) -> (bool, Answer) {
        let mut trace = Trace::new(xag);
        trace.claim(a, b);
        let [left, right] = [a, b].map(|literal| circuit(xag, vec![literal]));
        (is_merged(&trace, &left, &right), sat::equal(xag, a, b, CLAIM, &Stop::never()))
    }

    #[test]
    fn claims_beyond_the_limits_of_the_solver_are_not_used() {
        // Too many gates: the chains differ at their beginning only.
        let mut xag = Xag::new(30);
        let [a, b] = [0, 1].map(|first| {
            (0..CLAIM.gates).fold(Literal::input(first), |y, i| {
                let x = Literal::input(2 + i % 28);
                if i % 3 == 0 { xag.and(y, x).not() } else { xag.xor(y, x) }
            })
        });
        assert_eq!(solve_claim(&xag, a, b), (false, Answer::Unknown));
        // Too many conflicts: parities in two orders, and a difference for one assignment.
        let mut xag = Xag::new(100);
        let inputs: Vec<Literal> = (0..100).map(Literal::input).collect();
        let forward = inputs.iter().fold(Literal::FALSE, |sum, &x| xag.xor(sum, x));
        let backward = inputs.iter().rev().fold(Literal::FALSE, |sum, &x| xag.xor(sum, x));
        let product = inputs.iter().fold(Literal::TRUE, |product, &x| xag.and(product, x));
        let nearly = xag.xor(backward, product);
        assert_eq!(solve_claim(&xag, forward, backward), (false, Answer::Unknown));
        assert_eq!(solve_claim(&xag, forward, nearly), (false, Answer::Unknown));
    }

    #[test]
    fn a_trace_of_another_number_of_inputs_is_ignored() {
        // Added to the XAG of the trace, signal 38 of 20 inputs would be one of its 40 inputs.
        let mut xag = Xag::new(40);
        let sum = xag.xor(Literal::input(0), Literal::input(1));
        let options = Options::default();
        let mut small =
            minimize_until(&circuit(&xag, vec![sum]), &options, &Stop::never(), &|_, _| {}).unwrap();
        // Alternating inputs and complements: 1 for one assignment, which random simulation does not find.
        let gate = |i: u32| if i.is_multiple_of(2) { Gate::AND } else { Gate::A_AND_NOT_B };
        let mut nodes: Vec<Node> =
            (0..19).map(|i| Node::new(gate(i), if i == 0 { 0 } else { 19 + i }, i + 1)).collect();
        let left = Circuit::new(20, nodes.clone(), vec![38]).unwrap();
        small.circuit = left.clone();
        assert_eq!(small.prove(&left, &Stop::never()), Ok(Verdict::Equal));
        nodes[18] = Node::new(Gate::FALSE, 0, 0);
        small.circuit = Circuit::new(20, nodes, vec![38]).unwrap();
        let verdict = small.prove(&left, &Stop::never());
        assert!(matches!(verdict, Ok(Verdict::Different { output: 0, .. })), "{verdict:?}");
    }

    #[test]
    fn gates_that_become_constant_are_merged_with_the_constant() {
        // x = a & b & !(a | b) is 0, so x | c is c.
        let mut xag = Xag::new(20);
        let [a, b, c] = [0, 1, 2].map(Literal::input);
        let (both, any) = (xag.and(a, b), xag.or(a, b));
        let never = xag.and(both, any.not());
        let sum = xag.or(never, c);
        let (left, right) = (circuit(&xag, vec![sum]), circuit(&xag, vec![c]));
        let mut trace = Trace::new(&xag);
        trace.claim_on(never, Literal::FALSE, [a, b]);
        assert!(is_merged(&trace, &left, &right));
    }

    #[test]
    fn literals_that_are_merged_with_their_complement_are_a_contradiction() {
        let mut xag = Xag::new(3);
        let [a, b, c] = [0, 1, 2].map(Literal::input);
        let (ac, bc) = (xag.xor(a, c), xag.xor(b, c));
        let fanouts = Fanouts::new(&xag, &Stop::never()).unwrap();
        let merge = |pairs: &[(Literal, Literal)]| {
            let mut classes = Classes::new(&xag, &fanouts, &Stop::never()).unwrap();
            pairs.iter().try_for_each(|&(a, b)| classes.merge(a, b, &Stop::never()))
        };
        assert_eq!(merge(&[(a, b), (b, a), (ac, bc)]), Ok(()));
        for pairs in [[(a, b), (a, b.not())], [(a, b), (ac, bc.not())], [(ac, bc.not()), (a, b)]] {
            assert_eq!(merge(&pairs), Err(Failure::Contradiction));
        }
        assert_eq!(merge(&[(Literal::FALSE, Literal::TRUE)]), Err(Failure::Contradiction));
    }

    #[test]
    fn every_stage_of_a_merge_polls() {
        let mut xag = Xag::new(20);
        let last = (0..8 * STRIDE).fold(Literal::input(0), |y, i| {
            let x = Literal::input(1 + i % 19);
            if i % 2 == 0 { xag.and(y, x) } else { xag.xor(y, x) }
        });
        let whole = circuit(&xag, vec![last]);
        let trace = Trace::new(&xag);
        let polls = |run: &dyn Fn(&Stop<'_>)| {
            let stop = Stop::never();
            run(&stop);
            stop.polls()
        };
        let fanouts = Fanouts::new(&xag, &Stop::never()).unwrap();
        let classes = |stop: &Stop<'_>| Classes::new(&xag, &fanouts, stop).unwrap();
        assert!(polls(&|stop| drop(Fanouts::new(&xag, stop))) >= 16);
        assert!(polls(&|stop| drop(classes(stop))) >= 8);
        assert!(polls(&|stop| drop(classes(&Stop::never()).merged_xag(stop))) >= 8);
        assert!(polls(&|stop| trace.clone().advance(&xag, stop).unwrap()) >= 8);
        let all = polls(&|stop| drop(trace.merge(&whole, &whole, stop)));
        assert!(all >= 32, "{all} polls");
        for poll in 1..=all {
            let stop = Stop::at_poll(poll);
            assert_eq!(trace.merge(&whole, &whole, &stop), Err(Failure::Stopped));
            assert_eq!(stop.polls(), poll);
        }
    }

    #[test]
    fn truth_tables_compare_functions_of_twelve_leaves() {
        let mut xag = Xag::new(20);
        let inputs: Vec<Literal> = (0..12).map(Literal::input).collect();
        let forward = inputs.iter().fold(Literal::FALSE, |sum, &x| xag.xor(sum, x));
        let backward = inputs.iter().rev().fold(Literal::TRUE, |sum, &x| xag.xor(sum, x));
        let product = inputs.iter().fold(Literal::TRUE, |product, &x| xag.and(product, x));
        let nearly = xag.xor(forward, product);
        let leaves: Vec<u32> = inputs.iter().map(|input| input.node() as u32).collect();
        let mut tables = Tables::default();
        assert!(tables.are_equal(&xag, forward, backward.not(), &leaves));
        assert!(!tables.are_equal(&xag, forward, backward, &leaves));
        assert!(!tables.are_equal(&xag, nearly, backward.not(), &leaves), "they differ for one assignment");
        assert!(!tables.are_equal(&xag, forward, backward.not(), &leaves[1..]));
    }

    /// Returns the truth tables of literals of an XAG with few inputs.
    fn truth_tables(xag: &Xag, literals: &[Literal]) -> Vec<Vec<u64>> {
        let mut tables = vec![Vec::new(); literals.len()];
        let mut values = Vec::new();
        for word in 0..table_words(xag.inputs()) {
            let inputs: Vec<u64> = (0..xag.inputs()).map(|input| input_word(input, word)).collect();
            xag.eval_words(&inputs, &mut values);
            for (table, literal) in tables.iter_mut().zip(literals) {
                table.push(values[literal.node()] ^ literal.mask());
            }
        }
        tables
    }

    /// A claim about two literals, which are selected by numbers.
    #[derive(Clone, Debug)]
    struct Draft {
        pair: [prop::sample::Index; 2],
        /// Whether the second literal is one with the truth table of the first, if there is another.
        is_true: bool,
        /// Random leaves, or all inputs.
        leaves: Option<Vec<prop::sample::Index>>,
    }

    fn draft() -> impl Strategy<Value = Draft> {
        let leaves = prop::option::of(prop::collection::vec(any::<prop::sample::Index>(), 0..6));
        (any::<[prop::sample::Index; 2]>(), any::<bool>(), leaves).prop_map(|(pair, is_true, leaves)| Draft {
            pair,
            is_true,
            leaves,
        })
    }

    proptest! {
        #[test]
        fn merging_preserves_every_function_whatever_the_claims(
            circuit in arbitrary::circuit(1..=8, 60),
            drafts in prop::collection::vec(draft(), 0..20),
        ) {
            let mut xag = Xag::from_circuit(&circuit);
            let inputs: Vec<Literal> = (0..xag.inputs()).map(Literal::input).collect();
            let literals: Vec<Literal> =
                (0..xag.len()).flat_map(|node| [false, true].map(|not| Literal::new(node, not))).collect();
            let expected = truth_tables(&xag, &literals);
            xag.set_outputs(literals.clone());
            let ports = Circuit::new(xag.inputs(), vec![], vec![0; literals.len()]).unwrap();
            let all = xag.to_circuit(&ports);
            let mut trace = Trace::new(&xag);
            let mut proved = Vec::new();
            for Draft { pair, is_true, leaves } in drafts {
                let a = pair[0].index(literals.len());
                let fits = |&b: &usize| b != a && (!is_true || expected[b] == expected[a]);
                let others: Vec<usize> = (0..literals.len()).filter(fits).collect();
                if others.is_empty() {
                    continue;
                }
                let b = others[pair[1].index(others.len())];
                if leaves.is_none() && is_true {
                    proved.push([a, b]);
                }
                let leaves = leaves.map_or(inputs.clone(), |leaves| {
                    leaves.iter().map(|leaf| literals[leaf.index(literals.len())]).collect()
                });
                trace.claim_on(literals[a], literals[b], leaves);
            }
            let merged = trace.merge(&all, &all, &Stop::never());
            prop_assert!(merged.is_ok(), "{:?}", merged);
            let merged = merged.unwrap();
            let (lefts, rights) = merged.outputs().split_at(literals.len());
            prop_assert_eq!(lefts, rights);
            prop_assert_eq!(truth_tables(&merged, lefts), expected);
            for [a, b] in proved {
                prop_assert_eq!(lefts[a], lefts[b]);
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_claims_of_a_minimization_suffice_for_its_proof(
            circuit in prop_oneof![arbitrary::circuit(0..=8, 60), arbitrary::circuit(13..=60, 250)],
            effort in prop_oneof![Just(Effort::Fast), Just(Effort::Normal)],
        ) {
            let options = Options { effort, ..Options::default() };
            let small = minimize_until(&circuit, &options, &Stop::never(), &|_, _| {}).unwrap();
            let trace = small.trace().unwrap();
            prop_assert!(is_merged(trace, &circuit, &small.circuit));
            prop_assert_eq!(small.prove(&circuit, &Stop::never()), Ok(Verdict::Equal));
        }

        #[test]
        fn verdicts_do_not_depend_on_the_trace(
            circuit in arbitrary::circuit(15..=20, 80),
            place in any::<prop::sample::Index>(),
            index in 0usize..16,
        ) {
            prop_assume!(!circuit.nodes().is_empty());
            let small = minimize_until(&circuit, &Options::default(), &Stop::never(), &|_, _| {}).unwrap();
            let mut nodes = circuit.nodes().to_vec();
            let place = place.index(nodes.len());
            nodes[place].gate = Gate::ALL[index];
            let mutant = Circuit::new(circuit.inputs(), nodes, circuit.outputs().to_vec()).unwrap();
            let is_equal = |verdict| verdict == Ok(Verdict::Equal);
            let with_trace = equivalent_by(&mutant, &small.circuit, small.trace(), &Stop::never());
            prop_assert_eq!(is_equal(with_trace), is_equal(equivalent(&mutant, &small.circuit)));
        }
    }
}
