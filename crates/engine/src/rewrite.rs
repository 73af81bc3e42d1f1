//! Rewriting to canonical form: equivalent expressions become the same graph.
//!
//! A pass visits the nodes that the outputs depend on, in an order that does not depend on when they were built, and rebuilds
//! each by the table of [rules](RULES). Passes repeat until nothing changes. Nodes that no output depends on are dropped;
//! operands of commutative operations are ordered by their hashes.
//!
//! Rules never change a result, down to the sign of a zero, except for those that are marked `relaxed`. These are identities
//! of real numbers and apply to graphs made with [`Graph::relaxed`] only.

use crate::dtype::DType;
use crate::graph::{Graph, GraphError, Id, Node, Op, Scalar};
use crate::interpret::{Elements, Value, evaluate};
use crate::ops::{Binary, Reduction, Unary};
use crate::shape::Shape;

/// The node that a rule replaces a node with, or `None` if it does not apply.
type Outcome = Result<Option<Id>, GraphError>;

/// A rewrite rule: an identity that is applied from left to right.
struct Rule {
    /// The identity.
    name: &'static str,
    /// Whether it holds for real numbers only, not for floating point.
    relaxed: bool,
    apply: fn(&mut Graph, &Node) -> Outcome,
}

/// A rule that never changes a result.
const fn exact(name: &'static str, apply: fn(&mut Graph, &Node) -> Outcome) -> Rule {
    Rule { name, relaxed: false, apply }
}

/// A rule that holds for real numbers only.
const fn relaxed(name: &'static str, apply: fn(&mut Graph, &Node) -> Outcome) -> Rule {
    Rule { name, relaxed: true, apply }
}

const RULES: &[Rule] = &[
    exact("f(constants) = constant", fold_constants),
    exact("a + b = b + a, ordered by hash; likewise for all commutative operations", order_operands),
    // One constant operand.
    exact("x + -0 = x", |g, n| Ok(if_right(g, n, Binary::Add, |x| x == 0.0 && x.is_sign_negative(), 0))),
    exact("x - 0 = x", |g, n| Ok(if_right(g, n, Binary::Sub, |x| x == 0.0 && x.is_sign_positive(), 0))),
    exact("x * 1 = x", |g, n| Ok(if_right(g, n, Binary::Mul, |x| x == 1.0, 0))),
    exact("x / 1 = x", |g, n| Ok(if_right(g, n, Binary::Div, |x| x == 1.0, 0))),
    exact("x + 0 = x for integers", |g, n| {
        Ok(if_right(g, n, Binary::Add, |x| x == 0.0, 0).filter(|_| !n.dtype.is_float()))
    }),
    exact("x * 0 = 0 for integers", |g, n| {
        Ok(if_right(g, n, Binary::Mul, |x| x == 0.0, 1).filter(|_| !n.dtype.is_float()))
    }),
    exact("x * 2 = x + x", double),
    exact("x * -1 = -x", negate),
    exact("x / c = x * (1 / c) for powers of two", |g, n| divide(g, n, is_power_of_two)),
    // Equal operands.
    exact("x * x = square(x)", |g, n| same(n, Binary::Mul).map_or(Ok(None), |x| g.square(x).map(Some))),
    exact("min(x, x) = x", |_, n| Ok(same(n, Binary::Min))),
    exact("max(x, x) = x", |_, n| Ok(same(n, Binary::Max))),
    exact("select(c, x, x) = x", |_, n| match n.args[..] {
        [_, a, b] if n.op == Op::Select && a == b => Ok(Some(a)),
        _ => Ok(None),
    }),
    exact("select(constant, a, b) = a or b", |g, n| match (&n.op, &n.args[..]) {
        (Op::Select, &[condition, a, b]) => Ok(number(g, condition).map(|c| if c == 0.0 { b } else { a })),
        _ => Ok(None),
    }),
    // Signs.
    exact("-(-x) = x", |g, n| Ok(nested(g, n, Unary::Neg, Unary::Neg))),
    exact("a + -b = a - b", |g, n| sign_of_right(g, n, Binary::Add, Binary::Sub)),
    exact("a - -b = a + b", |g, n| sign_of_right(g, n, Binary::Sub, Binary::Add)),
    exact("-a * -b = a * b", |g, n| match (&n.op, &n.args[..]) {
        (Op::Binary(op @ (Binary::Mul | Binary::Div)), &[a, b]) => {
            match (inside(g, a, Unary::Neg), inside(g, b, Unary::Neg)) {
                (Some(a), Some(b)) => g.binary(*op, a, b).map(Some),
                _ => Ok(None),
            }
        }
        _ => Ok(None),
    }),
    exact("abs(-x) = abs(x)", |g, n| skip(g, n, Unary::Abs, Unary::Neg)),
    exact("abs(abs(x)) = abs(x)", |g, n| skip(g, n, Unary::Abs, Unary::Abs)),
    exact("square(-x) = square(x)", |g, n| skip(g, n, Unary::Square, Unary::Neg)),
    exact("square(abs(x)) = square(x)", |g, n| skip(g, n, Unary::Square, Unary::Abs)),
    exact("cos(-x) = cos(x)", |g, n| skip(g, n, Unary::Cos, Unary::Neg)),
    exact("relu(relu(x)) = relu(x)", |g, n| skip(g, n, Unary::Relu, Unary::Relu)),
    exact("floor(floor(x)) = floor(x)", |g, n| skip(g, n, Unary::Floor, Unary::Floor)),
    exact("round_bf16(round_bf16(x)) = round_bf16(x)", |g, n| skip(g, n, Unary::RoundBf16, Unary::RoundBf16)),
    exact("round_f16(round_f16(x)) = round_f16(x)", |g, n| skip(g, n, Unary::RoundF16, Unary::RoundF16)),
    // Shapes and views.
    exact("f(expand x, expand y) = expand f(x, y)", compute_before_expanding),
    exact("reshape(reshape x) = reshape x", |g, n| match (&n.op, inner(g, n)) {
        (Op::Reshape, Some(Node { op: Op::Reshape, args, .. })) => {
            let x = args[0];
            g.reshape(x, &n.shape).map(Some)
        }
        _ => Ok(None),
    }),
    exact("expand(expand x) = expand x", |g, n| match (&n.op, inner(g, n)) {
        (Op::Expand, Some(Node { op: Op::Expand, args, .. })) => {
            let x = args[0];
            g.expand(x, &n.shape).map(Some)
        }
        _ => Ok(None),
    }),
    exact("permute(permute x) = permute x", |g, n| match (&n.op, inner(g, n)) {
        (Op::Permute(outer), Some(Node { op: Op::Permute(order), args, .. })) => {
            let (x, order): (Id, Vec<usize>) = (args[0], outer.iter().map(|&axis| order[axis]).collect());
            g.permute(x, &order).map(Some)
        }
        _ => Ok(None),
    }),
    exact("slice(slice x) = slice x", join_slices),
    exact("slice(pad x) = slice x", slice_padded),
    exact("slice(pad x + pad y) = slice x + slice y", slice_sum),
    exact("transpose(a b) = transpose(b) transpose(a)", transpose_product),
    exact("reduce over axes of size 1 = x, sum = x + 0", drop_unit_axes),
    exact("max(max x) = max x over both axes", |g, n| {
        join_reductions(g, n, &[Reduction::Max, Reduction::Min])
    }),
    // Identities of real numbers.
    relaxed("x + 0 = x", |g, n| Ok(if_right(g, n, Binary::Add, |x| x == 0.0, 0))),
    relaxed("x - 0 = x", |g, n| Ok(if_right(g, n, Binary::Sub, |x| x == 0.0, 0))),
    relaxed("x * 0 = 0", |g, n| Ok(if_right(g, n, Binary::Mul, |x| x == 0.0, 1))),
    relaxed("x - x = 0", |g, n| same(n, Binary::Sub).map_or(Ok(None), |x| g.zeros_like(x).map(Some))),
    relaxed("x / x = 1", |g, n| {
        let x = same(n, Binary::Div).filter(|_| n.dtype.is_float());
        x.map_or(Ok(None), |x| g.constant_like(x, 1.0).map(Some))
    }),
    relaxed("x / c = x * (1 / c)", |g, n| divide(g, n, |c| c != 0.0)),
    relaxed("(x + c) + d = x + (c + d)", |g, n| join_constants(g, n, Binary::Add)),
    relaxed("(x * c) * d = x * (c * d)", |g, n| join_constants(g, n, Binary::Mul)),
    relaxed("exp(log x) = x", |g, n| Ok(nested(g, n, Unary::Exp, Unary::Log))),
    relaxed("log(exp x) = x", |g, n| Ok(nested(g, n, Unary::Log, Unary::Exp))),
    relaxed("square(sqrt x) = x", |g, n| Ok(nested(g, n, Unary::Square, Unary::Sqrt))),
    relaxed("sum(sum x) = sum x over both axes", |g, n| join_reductions(g, n, &[Reduction::Sum])),
];

/// Largest number of passes. Every pass shrinks the graph or moves it towards canonical form, so few are needed.
const MAX_PASSES: usize = 20;

impl Graph {
    /// The canonical form of the graph: the same outputs, without unused nodes, and the same for equivalent expressions.
    #[must_use]
    pub fn rewrite(&self) -> Graph {
        let mut graph = self.pass();
        for _ in 1..MAX_PASSES {
            let next = graph.pass();
            debug_assert_eq!(next.check(), Ok(()), "a pass created an illegal graph");
            if next.nodes() == graph.nodes() {
                break;
            }
            graph = next;
        }
        graph
    }

    /// One pass over the nodes that the outputs depend on.
    fn pass(&self) -> Graph {
        let mut to = if self.is_relaxed() { Graph::relaxed() } else { Graph::new() };
        let mut new: Vec<Option<Id>> = vec![None; self.nodes().len()];
        for (name, output) in self.outputs() {
            let mut stack = vec![*output];
            while let Some(&id) = stack.last() {
                let node = self.node(id);
                let waiting = stack.len();
                if new[id.0 as usize].is_none() {
                    stack.extend(node.args.iter().rev().filter(|arg| new[arg.0 as usize].is_none()));
                }
                if stack.len() == waiting {
                    stack.pop();
                    let args: Vec<Id> = node.args.iter().filter_map(|arg| new[arg.0 as usize]).collect();
                    new[id.0 as usize] = new[id.0 as usize].or_else(|| Some(to.canonical(node, &args)));
                }
            }
            let id = new[output.0 as usize].expect("the traversal ends when the output is built");
            to.output(name, id).expect("names of outputs differ");
        }
        to
    }

    /// Rebuilds a node on new operands and applies rules until none does.
    fn canonical(&mut self, node: &Node, args: &[Id]) -> Id {
        let built = self.rebuild(&node.op, args, node.shape, node.dtype);
        let mut id = built.expect("operands have the types and shapes of those they replace");
        let rules = || RULES.iter().filter(|rule| !rule.relaxed || self.is_relaxed());
        let rules: Vec<&Rule> = rules().collect();
        let mut changed = true;
        while std::mem::take(&mut changed) {
            for rule in &rules {
                let node = self.node(id).clone();
                let next = (rule.apply)(self, &node);
                let next = next.unwrap_or_else(|error| unreachable!("{}: {error}", rule.name));
                if let Some(next) = next.filter(|&next| next != id) {
                    (id, changed) = (next, true);
                }
            }
        }
        id
    }
}

/// The only operand of a node.
fn inner(g: &Graph, n: &Node) -> Option<Node> {
    match n.args[..] {
        [x] => Some(g.node(x).clone()),
        _ => None,
    }
}

/// The operand of a node, if the node is this function.
fn inside(g: &Graph, id: Id, function: Unary) -> Option<Id> {
    let node = g.node(id);
    (node.op == Op::Unary(function)).then(|| node.args[0])
}

/// `x` of `outer(inner(x))`.
fn nested(g: &Graph, n: &Node, outer: Unary, inner: Unary) -> Option<Id> {
    if n.op == Op::Unary(outer) { inside(g, n.args[0], inner) } else { None }
}

/// `outer(inner(x)) = outer(x)`.
fn skip(g: &mut Graph, n: &Node, outer: Unary, inner: Unary) -> Outcome {
    nested(g, n, outer, inner).map_or(Ok(None), |x| g.unary(outer, x).map(Some))
}

/// The number that all elements of a node are, if it is a constant in some shape.
fn scalar(g: &Graph, mut id: Id) -> Option<Scalar> {
    loop {
        let node = g.node(id);
        match &node.op {
            Op::Constant(scalar) => return Some(*scalar),
            Op::Expand | Op::Reshape => id = node.args[0],
            _ => return None,
        }
    }
}

/// [`scalar`] as an `f64`; `None` for integers that are not exact in `f64`.
fn number(g: &Graph, id: Id) -> Option<f64> {
    match scalar(g, id)? {
        Scalar::Float(bits) => Some(f64::from_bits(bits)),
        Scalar::Int(value) => Some(value as f64).filter(|&x| x as i64 == value && value != i64::MAX),
    }
}

/// The operands of a node, if it is this binary operation.
fn operands(n: &Node, op: Binary) -> Option<[Id; 2]> {
    match n.args[..] {
        [a, b] if n.op == Op::Binary(op) => Some([a, b]),
        _ => None,
    }
}

/// The operand of a binary operation on two equal operands.
fn same(n: &Node, op: Binary) -> Option<Id> {
    operands(n, op).filter(|[a, b]| a == b).map(|[a, _]| a)
}

/// If the right operand (either one, for commutative operations) is a constant with a property: the other operand for `which`
/// 0, the constant for 1.
fn if_right(g: &Graph, n: &Node, op: Binary, holds: impl Fn(f64) -> bool, which: usize) -> Option<Id> {
    let [a, b] = operands(n, op)?;
    let fits = |id| number(g, id).is_some_and(&holds);
    if fits(b) {
        Some([a, b][which])
    } else if op.row().commutes && fits(a) {
        Some([b, a][which])
    } else {
        None
    }
}

fn fold_constants(g: &mut Graph, n: &Node) -> Outcome {
    if !matches!(n.op, Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast) {
        return Ok(None);
    }
    let mut values = Vec::new();
    for &arg in &n.args {
        let Some(scalar) = scalar(g, arg) else { return Ok(None) };
        let dtype = g.dtype(arg);
        values.push(match scalar {
            Scalar::Float(bits) => Value::float(dtype, Shape::SCALAR, vec![f64::from_bits(bits)]),
            Scalar::Int(value) => Value::int(dtype, Shape::SCALAR, vec![value]),
        });
    }
    let node = Node { shape: Shape::SCALAR, ..n.clone() };
    let value = evaluate(&node, &values.iter().collect::<Vec<_>>());
    let result = match value.elements {
        Elements::Float(elements) => Scalar::Float(elements[0].to_bits()),
        Elements::Int(elements) => Scalar::Int(elements[0]),
    };
    let constant = g.intern(Op::Constant(result), vec![], Shape::SCALAR, n.dtype);
    g.expand(constant, &n.shape).map(Some)
}

fn order_operands(g: &mut Graph, n: &Node) -> Outcome {
    match (&n.op, &n.args[..]) {
        (&Op::Binary(op), &[a, b]) if op.row().commutes && g.node_hash(b) < g.node_hash(a) => {
            g.binary(op, b, a).map(Some)
        }
        _ => Ok(None),
    }
}

fn double(g: &mut Graph, n: &Node) -> Outcome {
    match if_right(g, n, Binary::Mul, |x| x == 2.0, 0) {
        Some(x) => g.add(x, x).map(Some),
        None => Ok(None),
    }
}

fn negate(g: &mut Graph, n: &Node) -> Outcome {
    match if_right(g, n, Binary::Mul, |x| x == -1.0, 0) {
        Some(x) => g.neg(x).map(Some),
        None => Ok(None),
    }
}

/// `x / c` as a product with the reciprocal, if `c` and its reciprocal are normal numbers of the type.
fn divide(g: &mut Graph, n: &Node, holds: impl Fn(f64) -> bool) -> Outcome {
    let Some([x, c]) = operands(n, Binary::Div).filter(|_| n.dtype.is_float()) else { return Ok(None) };
    let is_normal = |c: f64| if n.dtype == DType::F32 { (c as f32).is_normal() } else { c.is_normal() };
    match number(g, c).filter(|&c| is_normal(c) && is_normal(1.0 / c) && holds(c)) {
        Some(c) => g.scale(x, 1.0 / c).map(Some),
        None => Ok(None),
    }
}

/// `op(a, -b) = other(a, b)`, and for sums `-a + b = b - a`.
fn sign_of_right(g: &mut Graph, n: &Node, op: Binary, other: Binary) -> Outcome {
    let Some([a, b]) = operands(n, op) else { return Ok(None) };
    if let Some(b) = inside(g, b, Unary::Neg) {
        return g.binary(other, a, b).map(Some);
    }
    match inside(g, a, Unary::Neg).filter(|_| op == Binary::Add) {
        Some(a) => g.binary(other, b, a).map(Some),
        None => Ok(None),
    }
}

/// Computes element-wise operations before their operands are broadcast.
fn compute_before_expanding(g: &mut Graph, n: &Node) -> Outcome {
    if !matches!(n.op, Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast) {
        return Ok(None);
    }
    let source = |&arg: &Id| match g.node(arg) {
        Node { op: Op::Expand, args, .. } => args[0],
        _ => arg,
    };
    let sources: Vec<Id> = n.args.iter().map(source).collect();
    let mut shape = g.shape(sources[0]);
    for &source in &sources[1..] {
        match shape.broadcast(&g.shape(source)) {
            Some(both) => shape = both,
            None => return Ok(None),
        }
    }
    if shape == n.shape {
        return Ok(None);
    }
    let small = g.rebuild(&n.op, &sources, shape, n.dtype)?;
    g.expand(small, &n.shape).map(Some)
}

/// Whether a number is a power of two, and so is its reciprocal.
fn is_power_of_two(c: f64) -> bool {
    c.is_normal() && c.to_bits() << 12 == 0
}

fn join_slices(g: &mut Graph, n: &Node) -> Outcome {
    match (&n.op, inner(g, n)) {
        (
            &Op::Slice { axis, begin, step },
            Some(Node { op: Op::Slice { axis: inner_axis, begin: first, step: stride }, args, .. }),
        ) if axis == inner_axis => {
            let count = n.shape[axis];
            // The parameters of an empty slice are not used.
            let (begin, step) = if count > 0 { (first + begin * stride, step * stride) } else { (0, 1) };
            g.slice_by(args[0], axis, begin, count, step).map(Some)
        }
        _ => Ok(None),
    }
}

/// The operand of a padded node and the begin of a slice in it, if the slice does not touch the padding.
fn inside_padding(g: &Graph, slice: &Node, padded: Id) -> Option<(Id, usize)> {
    let (&Op::Slice { axis, begin, step }, &Node { op: Op::Pad { axis: along, before, .. }, ref args, .. }) =
        (&slice.op, g.node(padded))
    else {
        return None;
    };
    let (first, count) = (begin.checked_sub(before)?, slice.shape[axis]);
    (axis == along && first + (count.max(1) - 1) * step < g.shape(args[0])[axis]).then_some((args[0], first))
}

fn slice_padded(g: &mut Graph, n: &Node) -> Outcome {
    let &Op::Slice { axis, step, .. } = &n.op else { return Ok(None) };
    match inside_padding(g, n, n.args[0]) {
        Some((x, first)) => g.slice_by(x, axis, first, n.shape[axis], step).map(Some),
        None => Ok(None),
    }
}

fn slice_sum(g: &mut Graph, n: &Node) -> Outcome {
    /// Whether a node is a sum of padded nodes, and the slice does not touch the padding of any.
    fn is_inside(g: &Graph, slice: &Node, id: Id) -> bool {
        let node = g.node(id);
        match node.op {
            Op::Binary(Binary::Add) => node.args.iter().all(|&arg| is_inside(g, slice, arg)),
            _ => inside_padding(g, slice, id).is_some(),
        }
    }
    let &Op::Slice { axis, begin, step } = &n.op else { return Ok(None) };
    let Some([a, b]) = operands(g.node(n.args[0]), Binary::Add).filter(|_| is_inside(g, n, n.args[0])) else {
        return Ok(None);
    };
    let mut slice = |x| g.slice_by(x, axis, begin, n.shape[axis], step);
    let (a, b) = (slice(a)?, slice(b)?);
    g.add(a, b).map(Some)
}

fn transpose_product(g: &mut Graph, n: &Node) -> Outcome {
    let (Op::Permute(order), Some(Node { op: Op::MatMul, args, .. })) = (&n.op, inner(g, n)) else {
        return Ok(None);
    };
    let axes = order.len();
    let swaps_last_two = order[..axes - 2].is_sorted() && order[axes - 2..] == [axes - 1, axes - 2];
    if !swaps_last_two {
        return Ok(None);
    }
    let (a, b) = (g.transpose(args[1])?, g.transpose(args[0])?);
    g.matmul(a, b).map(Some)
}

fn drop_unit_axes(g: &mut Graph, n: &Node) -> Outcome {
    let Op::Reduce(op, axes) = &n.op else { return Ok(None) };
    let (x, shape) = (n.args[0], g.shape(n.args[0]));
    let kept: Vec<usize> = axes.iter().copied().filter(|&axis| shape[axis] != 1).collect();
    if kept.len() == axes.len() {
        Ok(None)
    } else if kept.is_empty() && *op == Reduction::Sum {
        // A sum starts at 0, and 0 + -0 = 0.
        g.offset(x, 0.0).map(Some)
    } else {
        g.reduce(*op, x, &kept).map(Some)
    }
}

fn join_reductions(g: &mut Graph, n: &Node, which: &[Reduction]) -> Outcome {
    match (&n.op, inner(g, n)) {
        (Op::Reduce(outer, axes), Some(Node { op: Op::Reduce(op, inner_axes), args, .. }))
            if *outer == op && which.contains(&op) =>
        {
            g.reduce(op, args[0], &[&axes[..], &inner_axes].concat()).map(Some)
        }
        _ => Ok(None),
    }
}

/// `(x op c) op d = x op (c op d)`.
fn join_constants(g: &mut Graph, n: &Node, op: Binary) -> Outcome {
    let split = |g: &Graph, n: &Node| -> Option<(Id, Id)> {
        let [a, b] = operands(n, op)?;
        match (number(g, a).is_some(), number(g, b).is_some()) {
            (false, true) => Some((a, b)),
            (true, false) => Some((b, a)),
            _ => None,
        }
    };
    let Some((inner, d)) = split(g, n) else { return Ok(None) };
    let Some((x, c)) = split(g, g.node(inner)) else { return Ok(None) };
    let both = g.binary(op, c, d)?;
    g.binary(op, x, both).map(Some)
}

#[cfg(test)]
mod tests;
