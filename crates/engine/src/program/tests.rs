//! Compiled programs compared with the interpreter.

use super::*;
use crate::arbitrary;
use crate::graph::{Node, Op, Window};
use crate::interpret::{Elements, Value};
use crate::ops::{Binary, Reduction, Unary};
use proptest::prelude::*;

/// Access for the tests of loops.
impl Program {
    pub(crate) fn instructions(&self) -> &[Instruction] {
        &self.instructions
    }
}

impl Runner {
    pub(crate) fn scratch(&self) -> &Scratch {
        &self.scratch
    }
}

/// Runs a program on values of the interpreter.
fn run(graph: &Graph, values: &[(String, Value)]) -> Vec<Vec<f64>> {
    let program = Program::new(graph).unwrap();
    let mut runner = program.runner();
    // Twice, so that the second run starts with used memory.
    for _ in 0..2 {
        for (name, value) in values {
            write(&mut runner, name, value);
        }
        runner.run();
    }
    graph.outputs().iter().map(|(name, id)| read(&runner, name, graph.dtype(*id))).collect()
}

pub(crate) fn write(runner: &mut Runner, name: &str, value: &Value) {
    let numbers = value.to_f64();
    match (value.dtype, &value.elements) {
        (DType::F32, _) => runner.write(name, &numbers.iter().map(|&x| x as f32).collect::<Vec<_>>()),
        (DType::F64, _) => runner.write(name, &numbers),
        (DType::I32, Elements::Int(x)) => {
            runner.write(name, &x.iter().map(|&x| x as i32).collect::<Vec<_>>())
        }
        (_, Elements::Int(x)) => runner.write(name, x),
        (_, Elements::Float(_)) => unreachable!("integer tensors have integer elements"),
    }
    .unwrap();
}

pub(crate) fn read(runner: &Runner, name: &str, dtype: DType) -> Vec<f64> {
    match dtype {
        DType::F32 => runner.read::<f32>(name).unwrap().iter().map(|&x| x.into()).collect(),
        DType::F64 => runner.read::<f64>(name).unwrap().to_vec(),
        DType::I32 => runner.read::<i32>(name).unwrap().iter().map(|&x| x.into()).collect(),
        DType::I64 => runner.read::<i64>(name).unwrap().iter().map(|&x| x as f64).collect(),
    }
}

/// Whether the result is rounded once, so that every correct implementation gives the same bits.
fn is_exact(node: &Node) -> bool {
    use Unary::{Abs, Floor, Neg, Recip, Relu, Sign, Sqrt, Square};
    match &node.op {
        _ if !node.dtype.is_float() => true,
        Op::Unary(op) => matches!(op, Neg | Abs | Sign | Floor | Square | Sqrt | Recip | Relu),
        Op::Reduce(reduction, _) => *reduction != Reduction::Sum,
        op => {
            !matches!(op, Op::ScatterAdd { .. } | Op::Fold(..) | Op::CumSum { .. } | Op::MatMul)
                && op.composite().is_none()
        }
    }
}

/// Whether a small change of an operand can change the result a lot.
fn is_discontinuous(op: &Op) -> bool {
    match op {
        Op::Unary(op) => {
            matches!(op, Unary::Sign | Unary::Floor | Unary::Recip | Unary::Rsqrt | Unary::Log)
        }
        Op::Binary(op) => {
            matches!(op, Binary::Less | Binary::LessEqual | Binary::Equal | Binary::Div)
        }
        Op::Select | Op::ArgReduce { .. } | Op::Cast => true,
        _ => false,
    }
}

/// Whether no discontinuous operation follows one that rounds, so that results are comparable.
fn is_stable(graph: &Graph) -> bool {
    let mut rounded = vec![false; graph.nodes().len()];
    for id in graph.ids() {
        let node = graph.node(id);
        let before = node.args.iter().any(|arg| rounded[arg.0 as usize]);
        if before && is_discontinuous(&node.op) {
            return false;
        }
        rounded[id.0 as usize] = before || !is_exact(node);
    }
    true
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn programs_agree_with_the_interpreter(
        graph in arbitrary::strict(&[DType::F32, DType::F64, DType::I32, DType::I64], 25),
        seed: u64,
    ) {
        let stable = is_stable(&graph);
        let values = arbitrary::values(&graph, seed);
        let results = run(&graph, &values);
        let all: Vec<Id> = graph.ids().collect();
        let nodes = graph.interpret_nodes(&arbitrary::named(&values), &all).unwrap();
        let scale = nodes.iter().flat_map(Value::to_f64).filter(|x| x.is_finite()).fold(1.0, |most: f64, x| most.max(x.abs()));
        for ((name, id), ours) in graph.outputs().iter().zip(&results) {
            let right = &nodes[id.0 as usize];
            prop_assert_eq!(ours.len(), right.shape.elements());
            let tolerance = match right.dtype {
                DType::F32 => 1e-3 * scale,
                DType::F64 => 1e-9 * scale,
                DType::I32 | DType::I64 => 0.0,
            };
            for (a, b) in ours.iter().zip(right.to_f64()) {
                let same = (a - b).abs() <= tolerance || a == &b || a.is_nan() && b.is_nan();
                prop_assert!(same || !stable, "{}: {} for {}\n{}\n{}", name, a, b, graph, Program::new(&graph).unwrap());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]

    /// Rewriting and fusion do not change the bits of exact operations, whatever the inputs.
    #[test]
    fn exact_programs_have_the_bits_of_the_interpreter(
        graph in arbitrary::strict(&[DType::F32, DType::F64, DType::I32, DType::I64], 25),
        seed: u64,
    ) {
        let values = arbitrary::values_with(&graph, seed, arbitrary::SPECIAL);
        let results = run(&graph, &values);
        let mut exact: Vec<bool> = Vec::new();
        for node in graph.nodes() {
            exact.push(is_exact(node) && node.args.iter().all(|arg| exact[arg.0 as usize]));
        }
        let all: Vec<Id> = graph.ids().collect();
        let nodes = graph.interpret_nodes(&arbitrary::named(&values), &all).unwrap();
        for ((name, id), ours) in graph.outputs().iter().zip(&results) {
            let right = &nodes[id.0 as usize];
            prop_assert_eq!(ours.len(), right.shape.elements());
            if !exact[id.0 as usize] {
                continue;
            }
            for (a, b) in ours.iter().zip(right.to_f64()) {
                let same = a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
                prop_assert!(same, "{}: {} for {}\n{}\n{}", name, a, b, graph, Program::new(&graph).unwrap());
            }
        }
    }
}

proptest! {
    /// Short reductions are transposed; the other sizes use tiles of several rows, of one row, and of parts of a row.
    #[test]
    fn short_reductions_are_exact(
        sizes in (1usize..4, 1usize..700, 1usize..20), padded: bool, maximum: bool, seed: u64,
    ) {
        let (batch, results, few) = sizes;
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[batch, results, few + usize::from(padded)]).unwrap();
        let part = g.slice(x, 2, 0, few).unwrap();
        let op = if maximum { Reduction::Max } else { Reduction::Sum };
        let reduced = g.reduce(op, part, &[2]).unwrap();
        // The operand of the reduction is also stored, and read together with the result.
        let twice = g.add(part, part).unwrap();
        let is_result = g.equal(twice, reduced).unwrap();
        let count = g.sum(is_result, &[2]).unwrap();
        for (name, id) in [("reduced", reduced), ("twice", twice), ("count", count)] {
            g.output(name, id).unwrap();
        }
        let mut random = seed;
        let mut small_integer = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 60) as f64 - 8.0
        };
        let elements = Elements::Float((0..g.shape(x).elements()).map(|_| small_integer()).collect());
        let value = Value { dtype: DType::F32, shape: g.shape(x), elements };
        let right = g.interpret(&[("x", value.clone())]).unwrap();
        let ours = run(&g, &[("x".to_owned(), value)]);
        for (ours, right) in ours.iter().zip(right) {
            prop_assert_eq!(ours, &right.to_f64());
        }
    }
}

#[test]
fn enough_random_graphs_are_comparable() {
    use proptest::strategy::ValueTree;
    let strategy = arbitrary::strict(&[DType::F32, DType::F64, DType::I32, DType::I64], 25);
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let graphs = (0..200).map(|_| strategy.new_tree(&mut runner).unwrap().current());
    let stable = graphs.filter(is_stable).count();
    assert!(stable > 50, "{stable} of 200");
}

#[test]
fn a_chain_and_its_sum_are_one_loop() {
    let mut g = Graph::new();
    let [x, w, b] = ["x", "w", "b"].map(|name| g.input(name, DType::F32, &[64, 1000]).unwrap());
    let product = g.mul(x, w).unwrap();
    let sum = g.add(product, b).unwrap();
    let y = g.gelu(sum).unwrap();
    let total = g.sum_all(y).unwrap();
    g.output("total", total).unwrap();
    let program = Program::new(&g).unwrap();
    assert_eq!(program.kernels(), ["loop f32[64000]: 3 operations, 3 loads, 0 stores, sum"]);
}

#[test]
fn softmax_is_one_kernel_over_its_rows_and_its_gradient_two() {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[10, 700]).unwrap();
    let y = g.softmax(x, 1).unwrap();
    let weighted = g.mul(y, x).unwrap();
    let sum = g.sum_all(weighted).unwrap();
    let dx = g.gradients(sum, &[x]).unwrap()[0];
    g.output("dx", dx).unwrap();
    let kernels = Program::new(&g).unwrap().kernels();
    assert_eq!(kernels[0], "softmax f32[10, 700]");
    assert_eq!(kernels.len(), 3, "{kernels:#?}");
}

#[test]
fn convolutions_accumulate_products_without_copying_windows() {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[4, 5, 20]).unwrap();
    let kernel = g.input("kernel", DType::F32, &[7, 5, 3]).unwrap();
    let y = g.conv1d(x, kernel, None, crate::graph::Conv1d::default()).unwrap();
    g.output("y", y).unwrap();
    let accumulated = "matmul f32 4 of 7x5x18, accumulated";
    assert_eq!(Program::new(&g).unwrap().kernels(), ["matmul f32 4 of 7x5x18", accumulated, accumulated]);
}

#[test]
fn gradients_of_shared_weights_are_summed_in_place() {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[4, 5, 20]).unwrap();
    let w = g.input("w", DType::F32, &[7, 5]).unwrap();
    let dy = g.input("dy", DType::F32, &[4, 7, 20]).unwrap();
    let y = g.matmul(w, x).unwrap();
    let dw = g.pull_back(y, dy, &[w]).unwrap()[0];
    g.output("dw", dw).unwrap();
    assert_eq!(Program::new(&g).unwrap().kernels(), ["matmul f32 4 of 7x20x5, summed over the batch"]);
}

#[test]
fn a_transposed_product_is_a_product() {
    let mut g = Graph::new();
    let (a, b) = (g.input("a", DType::F32, &[5, 7]).unwrap(), g.input("b", DType::F32, &[7, 9]).unwrap());
    let product = g.matmul(a, b).unwrap();
    let transposed = g.transpose(product).unwrap();
    g.output("y", transposed).unwrap();
    assert_eq!(Program::new(&g).unwrap().kernels(), ["matmul f32 9x7x5"]);
}

#[test]
fn bias_and_relu_are_fused_into_a_product() {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[2, 5, 7]).unwrap();
    let (w, b) = (g.input("w", DType::F32, &[7, 9]).unwrap(), g.input("b", DType::F32, &[9]).unwrap());
    let product = g.matmul(x, w).unwrap();
    let sum = g.add(b, product).unwrap();
    let y = g.relu(sum).unwrap();
    g.output("y", y).unwrap();
    assert_eq!(Program::new(&g).unwrap().kernels(), ["matmul f32 10x7x9, bias, relu"]);
    let numbers = |count: usize| (0..count).map(|i| (i * 37 % 23) as f64 - 11.0).collect::<Vec<_>>();
    let values = [("x", 70), ("w", 63), ("b", 9)].map(|(name, count)| (name.to_string(), count));
    let mut runner = Program::new(&g).unwrap().runner();
    for (name, count) in &values {
        runner.write(name, &numbers(*count).iter().map(|&x| x as f32).collect::<Vec<_>>()).unwrap();
    }
    runner.run();
    let [x, w, b] = values.map(|(_, count)| numbers(count));
    for (i, &y) in runner.read::<f32>("y").unwrap().iter().enumerate() {
        let (row, column) = (i / 9, i % 9);
        let product: f64 = (0..7).map(|k| x[row * 7 + k] * w[k * 9 + column]).sum();
        assert_eq!(f64::from(y), (product + b[column]).max(0.0));
    }
}

#[test]
fn a_product_with_other_readers_has_no_fused_bias() {
    let mut g = Graph::new();
    let (x, w) = (g.input("x", DType::F32, &[5, 7]).unwrap(), g.input("w", DType::F32, &[7, 9]).unwrap());
    let b = g.input("b", DType::F32, &[9]).unwrap();
    let product = g.matmul(x, w).unwrap();
    let sum = g.add(product, b).unwrap();
    g.output("sum", sum).unwrap();
    g.output("product", product).unwrap();
    assert_eq!(Program::new(&g).unwrap().kernels()[0], "matmul f32 5x7x9");
}

#[test]
fn transposed_operands_are_not_copied() {
    let mut g = Graph::new();
    let (a, b) = (g.input("a", DType::F32, &[5, 7]).unwrap(), g.input("b", DType::F32, &[9, 7]).unwrap());
    let b = g.transpose(b).unwrap();
    let product = g.matmul(a, b).unwrap();
    g.output("y", product).unwrap();
    assert_eq!(Program::new(&g).unwrap().kernels(), ["matmul f32 5x7x9"]);
}

#[test]
fn long_rows_are_summed_accurately() {
    let (rows, columns) = (3000, 5000);
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[rows, columns]).unwrap();
    let (all, by_row) = (g.sum_all(x).unwrap(), g.sum(x, &[1]).unwrap());
    g.output("all", all).unwrap();
    g.output("rows", by_row).unwrap();
    let program = Program::new(&g).unwrap();
    let mut runner = program.runner();
    let numbers: Vec<f32> = (0..rows * columns).map(|i| (i % 1000) as f32 * 0.1).collect();
    runner.write("x", &numbers).unwrap();
    runner.run();
    let right: f64 = numbers.iter().map(|&x| f64::from(x)).sum();
    assert!((f64::from(runner.read::<f32>("all").unwrap()[0]) - right).abs() < 1e-7 * right);
    let row: f64 = numbers[..columns].iter().map(|&x| f64::from(x)).sum();
    assert!((f64::from(runner.read::<f32>("rows").unwrap()[0]) - row).abs() < 1e-7 * row);
}

#[test]
fn errors_name_the_port() {
    let g = Graph::new();
    assert_eq!(Program::new(&g).unwrap_err(), ProgramError::NoOutputs);
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[2]).unwrap();
    g.output("y", x).unwrap();
    let mut runner = Program::new(&g).unwrap().runner();
    let unknown = runner.write("z", &[0.0f32]).unwrap_err().to_string();
    assert_eq!(unknown, "there is no input \"z\"; there are x");
    let mismatch = runner.write("x", &[0.0f64; 2]).unwrap_err().to_string();
    assert_eq!(mismatch, "\"x\" is f32[2], but was accessed as 2 elements of f64");
    assert!(runner.read::<i32>("y").is_err());
}

/// Compares the program and the interpreter on a graph with one input.
fn assert_agrees(build: impl Fn(&mut Graph, Id) -> Id, shape: &[usize], x: &[f32]) {
    let mut g = Graph::new();
    let input = g.input("x", DType::F32, shape).unwrap();
    let y = build(&mut g, input);
    g.output("y", y).unwrap();
    let value = Value::float(DType::F32, g.shape(input), x.iter().map(|&x| x.into()).collect());
    let right = g.interpret(&[("x", value)]).unwrap()[0].to_f64();
    let mut runner = Program::new(&g).unwrap().runner();
    runner.write("x", x).unwrap();
    runner.run();
    for (ours, right) in runner.read::<f32>("y").unwrap().iter().zip(&right) {
        assert!((f64::from(*ours) - right).abs() <= 1e-5 * right.abs().max(1.0), "{ours} for {right}");
    }
}

#[test]
fn attention_takes_broadcast_and_overlapping_rows() {
    let x: Vec<f32> = (0..40).map(|i| (i * 7 % 11) as f32 * 0.2 - 1.0).collect();
    assert_agrees(
        |g, x| {
            let one = g.slice(x, 1, 0, 1).unwrap();
            let shape = g.shape(x);
            let same = g.expand(one, &shape).unwrap();
            g.attention(same, x, x).unwrap()
        },
        &[2, 5, 4],
        &x,
    );
    assert_agrees(
        |g, x| {
            let windows = g.unfold(x, Window { size: 4, stride: 2, dilation: 1 }).unwrap();
            g.attention(windows, windows, windows).unwrap()
        },
        &[2, 20],
        &x,
    );
}

#[test]
fn attention_with_large_scores_does_not_overflow() {
    let b = 1e5;
    assert_agrees(
        |g, x| {
            let query = g.slice(x, 1, 0, 1).unwrap();
            let keys = g.slice(x, 1, 1, 2).unwrap();
            g.attention(query, keys, keys).unwrap()
        },
        &[1, 3, 3],
        &[b, b, 1.0, b, b, 1.0, -b, 1.0, 2.0],
    );
}

#[test]
fn empty_slices_and_slices_of_one_index_may_have_any_step() {
    let x = [1.0, 2.0, 3.0, 4.0, 5.0];
    assert_agrees(
        |g, x| {
            let every_third = g.slice_by(x, 0, 1, 2, 3).unwrap();
            g.slice(every_third, 0, 2, 0).unwrap()
        },
        &[5],
        &x,
    );
    assert_agrees(|g, x| g.slice_by(x, 0, 1, 1, usize::MAX).unwrap(), &[5], &x);
    assert_agrees(
        |g, x| g.unfold(x, Window { size: 1, stride: usize::MAX, dilation: usize::MAX }).unwrap(),
        &[5],
        &x,
    );
}

#[test]
fn pools_have_no_window_past_the_end() {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[5]).unwrap();
    let y = g.max_pool1d(x, Window { size: 1, stride: 3, dilation: 1 }).unwrap();
    assert_eq!(*g.shape(y), [2]);
    for window in [
        Window { size: 1, stride: 0, dilation: 1 },
        Window { size: 0, stride: 1, dilation: 1 },
        Window { size: usize::MAX, stride: 1, dilation: usize::MAX },
    ] {
        assert!(g.max_pool1d(x, window).is_err(), "{window:?}");
    }
    let x = g.input("i", DType::I32, &[5]).unwrap();
    assert!(g.interpolate_linear(x, 9).is_err() && g.leaky_relu(x, 0.5).is_err());
}

#[test]
fn the_interpreter_refuses_malformed_values() {
    let mut g = Graph::new();
    let x = g.input("x", DType::I32, &[3]).unwrap();
    g.output("y", x).unwrap();
    for value in [
        Value::int(DType::I32, g.shape(x), vec![1, 2]),
        Value::float(DType::I32, g.shape(x), vec![1.0, 2.0, 3.0]),
    ] {
        assert!(g.interpret(&[("x", value)]).is_err());
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn chains_of_any_length_can_be_compiled() {
    let length = 20_000;
    let mut g = Graph::new();
    let mut x = g.input("x", DType::F32, &[3]).unwrap();
    for _ in 0..length {
        x = g.sin(x).unwrap();
    }
    g.output("y", x).unwrap();
    let mut runner = Program::new(&g).unwrap().runner();
    runner.write("x", &[0.5f32, 1.0, -1.0]).unwrap();
    runner.run();
    let right = (0..length).fold(1.0f64, |x, _| x.sin());
    assert!((f64::from(runner.read::<f32>("y").unwrap()[1]) - right).abs() < 1e-4);
}

#[test]
fn a_program_without_gradients_has_no_memory_for_them() {
    // The gradients of a chain need the values of all its layers; without them, two at a time are enough.
    let memory = |layers: usize, with_gradients: bool| {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[64, 32]).unwrap();
        let weights = g.input("w", DType::F32, &[32, 32]).unwrap();
        let gain = g.input("gain", DType::F32, &[32]).unwrap();
        let mut y = x;
        for _ in 0..layers {
            let product = g.matmul(y, weights).unwrap();
            let scores = g.softmax(product, 1).unwrap();
            let normal = g.layer_norm(scores, gain, gain, 1e-5).unwrap();
            y = g.gelu(normal).unwrap();
        }
        let loss = g.sum_all(y).unwrap();
        let gradients = g.gradients(loss, &[weights]).unwrap();
        g.output("loss", loss).unwrap();
        if with_gradients {
            g.output("dw", gradients[0]).unwrap();
        }
        let program = Program::new(&g).unwrap();
        (program.activation_bytes(), program.bytes())
    };
    assert_eq!(memory(4, false), memory(12, false));
    assert!(memory(12, true).0 > 2 * memory(4, true).0, "{:?} {:?}", memory(12, true), memory(4, true));
}
