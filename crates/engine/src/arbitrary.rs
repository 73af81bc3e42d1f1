//! Random graphs and inputs for the tests.

use proptest::prelude::*;

use crate::dtype::DType;
use crate::graph::{Graph, GraphError, Id, Op, Window};
use crate::interpret::Value;
use crate::ops::{Binary, Reduction, Unary};
use crate::program::Program;

/// A random node: the kind of operation, and three numbers that select operands and parameters.
pub(crate) type Draft = (u8, u8, u8, u8);

/// A random graph of up to `nodes` operations on three inputs of one type, with up to three outputs. Operations that refuse their
/// operands are skipped.
pub(crate) fn graph(dtypes: &'static [DType], nodes: usize) -> impl Strategy<Value = Graph> {
    any::<bool>().prop_flat_map(move |relaxed| of_kind(dtypes, nodes, relaxed))
}

/// A random graph that is not relaxed.
pub(crate) fn strict(dtypes: &'static [DType], nodes: usize) -> impl Strategy<Value = Graph> {
    of_kind(dtypes, nodes, false)
}

fn of_kind(dtypes: &'static [DType], nodes: usize, relaxed: bool) -> impl Strategy<Value = Graph> {
    let drafts = prop::collection::vec(any::<Draft>(), 1..=nodes);
    // A few empty axes.
    let size = prop_oneof![1 => Just(0usize), 40 => 1usize..5];
    let sizes = prop::collection::vec(size, 3);
    let dtype = prop::sample::select(dtypes);
    (dtype, sizes, drafts).prop_map(move |(dtype, sizes, drafts)| {
        let mut g = if relaxed { Graph::relaxed() } else { Graph::new() };
        let mut pool = vec![
            g.input("a", dtype, &sizes).unwrap(),
            g.input("b", dtype, &sizes[1..]).unwrap(),
            g.input("c", dtype, &[sizes[0], 1, 7]).unwrap(),
            g.input("i", DType::I32, &[4]).unwrap(),
        ];
        let constants = [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, f64::INFINITY, f64::NAN];
        let legal = constants.into_iter().filter(|x| dtype.is_float() || x.is_finite());
        pool.extend(legal.map(|x| g.constant(dtype, x)));
        for draft in drafts {
            if let Ok(id) = add(&mut g, &pool, draft) {
                pool.push(id);
            }
        }
        for (i, &id) in pool.iter().rev().take(3).enumerate() {
            g.output(&format!("y{i}"), id).unwrap();
        }
        g
    })
}

/// Adds one operation.
pub(crate) fn add(g: &mut Graph, pool: &[Id], (kind, x, y, z): Draft) -> Result<Id, GraphError> {
    // Counted from the last node.
    let pick = |n: u8| pool[pool.len() - 1 - usize::from(n) % pool.len()];
    let (a, b, c) = (pick(x), pick(y), pick(z));
    let axis = usize::from(z % 3);
    let small = usize::from(y % 4);
    match kind % 20 {
        0..=3 => g.unary(Unary::ALL[usize::from(z) % Unary::ALL.len()], a),
        4..=7 => g.binary(Binary::ALL[usize::from(z) % Binary::ALL.len()], a, b),
        8 => g.select(a, b, c),
        9 => g.reduce([Reduction::Sum, Reduction::Max, Reduction::Min][usize::from(y % 3)], a, &[axis]),
        10 => {
            let elements = g.shape(a).elements();
            g.reshape(a, &if z % 2 == 0 { vec![elements] } else { vec![1, elements, 1] })
        }
        11 => g.permute(a, &[[2, 0, 1], [1, 0, 2], [0, 2, 1]][usize::from(z % 3)]),
        12 => g.slice_by(a, axis, small, usize::from(x % 3), 1 + usize::from(x % 2)),
        13 => g.pad(a, axis, small, usize::from(x % 2)),
        14 => g.concat(&[a, b], axis),
        15 => g.gather(a, pool[3], axis),
        16 => g.unfold(a, Window { size: 1 + small, stride: 1 + usize::from(z % 2), dilation: 1 }),
        17 => g.cumsum(a, z % 2 == 0),
        18 => {
            let other = if z % 2 == 0 { g.transpose(b)? } else { b };
            g.matmul(a, other)
        }
        _ => match z % 3 {
            0 => g.softmax(a, axis),
            1 => g.arg_max(a, axis),
            _ => g.cast(a, [DType::F32, DType::F64, DType::I32, DType::I64][small]),
        },
    }
}

/// Random values for the inputs of a graph: small numbers, with integers and zeros among them.
pub(crate) fn values(g: &Graph, seed: u64) -> Vec<(String, Value)> {
    values_with(g, seed, &[])
}

/// Special values: NaN, infinities, extremes, subnormal numbers.
pub(crate) const SPECIAL: &[f64] = &[
    f64::NAN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f32::MAX as f64,
    f32::MIN_POSITIVE as f64 / 8.0,
    i32::MIN as f64,
    i64::MAX as f64,
    16_777_217.0,
    f64::MAX,
    5e-324,
];

/// Random values for the inputs of a graph, about one in sixteen of them from `special`.
pub(crate) fn values_with(g: &Graph, seed: u64, special: &[f64]) -> Vec<(String, Value)> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state >> 16
    };
    let mut number = move || match next() % 16 {
        8 if !special.is_empty() => special[next() as usize % special.len()],
        0 => 0.0,
        1 => -0.0,
        2 => (next() % 7) as f64 - 3.0,
        _ => (next() % 4001) as f64 / 1000.0 - 2.0,
    };
    let value = |(name, id): (&str, Id)| {
        let (dtype, shape) = (g.dtype(id), g.shape(id));
        let numbers: Vec<f64> = (0..shape.elements()).map(|_| number()).collect();
        let value = if dtype.is_float() {
            Value::float(dtype, shape, numbers)
        } else {
            Value::int(dtype, shape, numbers.iter().map(|x| (x * 2.0) as i64).collect())
        };
        (name.to_string(), value)
    };
    g.inputs().map(value).collect()
}

/// Values by name, as the interpreter takes them.
pub(crate) fn named(values: &[(String, Value)]) -> Vec<(&str, Value)> {
    values.iter().map(|(name, value)| (name.as_str(), value.clone())).collect()
}

#[test]
fn random_graphs_use_every_operation() {
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let strategy = graph(&[DType::F32, DType::F64, DType::I32, DType::I64], 40);
    let mut runner = TestRunner::deterministic();
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..300 {
        let g = strategy.new_tree(&mut runner).unwrap().current();
        let name = |op: &Op| op.to_string().split(['[', ' ', '"']).next().unwrap_or_default().to_string();
        seen.extend(g.nodes().iter().map(|node| name(&node.op)));
    }
    for op in [
        "exp", "add", "select", "sum", "reshape", "permute", "slice", "pad", "concat", "gather", "unfold",
        "cumsum", "matmul", "cast", "arg_max",
    ] {
        assert!(seen.contains(op), "{op} is never built: {seen:?}");
    }
}

/// Runs the compiled program of a graph with floating-point inputs and outputs.
pub(crate) fn run(g: &Graph, inputs: &[(String, Value)]) -> Vec<Vec<f64>> {
    let mut runner = Program::new(g).unwrap().runner();
    for (name, value) in inputs {
        let numbers = value.to_f64();
        match value.dtype {
            DType::F32 => runner.write(name, &numbers.iter().map(|&x| x as f32).collect::<Vec<_>>()),
            _ => runner.write(name, &numbers),
        }
        .unwrap();
    }
    runner.run();
    let read = |(name, id): &(String, Id)| match g.dtype(*id) {
        DType::F32 => runner.read::<f32>(name).unwrap().iter().map(|&x| x.into()).collect(),
        _ => runner.read::<f64>(name).unwrap().to_vec(),
    };
    g.outputs().iter().map(read).collect()
}

/// Asserts that outputs agree within a tolerance, relative to the largest element of each, or to 1.
pub(crate) fn assert_close(ours: &[Vec<f64>], right: &[Vec<f64>], tolerance: f64) {
    assert_eq!(ours.len(), right.len());
    for (ours, right) in ours.iter().zip(right) {
        assert_eq!(ours.len(), right.len());
        let scale = right.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
        for (a, b) in ours.iter().zip(right) {
            assert!((a - b).abs() <= tolerance * scale, "{a} for {b}");
        }
    }
}
