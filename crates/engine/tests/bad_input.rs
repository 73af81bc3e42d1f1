//! Invalid operands are errors that name the operation, its operands and their shapes; special values have documented results.

use gatework_engine::graph::{Conv1d, Gru, Window};
use gatework_engine::ops::{Binary, Reduction, Unary};
use gatework_engine::program::ProgramError;
use gatework_engine::{DType, Graph, GraphError, Id, Program, Shape};

fn input(g: &mut Graph, name: &str, dtype: DType, sizes: &[usize]) -> Id {
    g.input(name, dtype, sizes).unwrap()
}

/// Asserts that the error message contains all of `words`.
fn assert_names(result: Result<Id, GraphError>, words: &[&str]) {
    let message = result.expect_err("the operands do not fit").to_string();
    for word in words {
        assert!(message.contains(word), "{word:?} is missing in {message:?}");
    }
}

#[test]
fn mismatched_shapes_are_named() {
    let mut g = Graph::new();
    let a = input(&mut g, "a", DType::F32, &[2, 3]);
    let b = input(&mut g, "b", DType::F32, &[4, 5]);
    let three = input(&mut g, "three", DType::F32, &[2, 3, 8]);
    assert_names(g.add(a, b), &["add", "%0 f32[2, 3]", "%1 f32[4, 5]"]);
    assert_names(g.select(a, a, b), &["select", "[4, 5]"]);
    assert_names(g.matmul(a, b), &["matmul", "[2, 3]", "[4, 5]"]);
    assert_names(g.reshape(a, &[5]), &["reshape", "[2, 3]", "[5]"]);
    assert_names(g.expand(a, &[2, 4]), &["expand", "[2, 3]", "[2, 4]"]);
    assert_names(g.concat(&[a, b], 0), &["concat", "[2, 3]", "[4, 5]"]);
    assert_names(g.permute(a, &[0, 0]), &["permute", "[0, 0]"]);
    assert_names(g.slice(a, 0, 1, 5), &["slice", "[2, 3]"]);
    assert_names(g.conv1d(three, a, None, Conv1d::default()), &["conv1d", "[2, 3, 8]", "[2, 3]"]);
    let wide = Window { size: 9, stride: 1, dilation: 1 };
    assert_names(g.unfold(three, wide), &["unfold", "size: 9"]);
    let kernel = input(&mut g, "kernel", DType::F32, &[4, 3, 9]);
    assert_names(g.conv1d(three, kernel, None, Conv1d::default()), &["conv1d", "9"]);
    let cell = Gru { input: a, hidden: b, input_bias: a, hidden_bias: a };
    assert_names(g.gru(three, &cell), &["gru", "[4, 5]"]);
    assert_names(g.data(DType::F32, &[2], &[1.0]), &["data", "1 values", "[2]"]);
}

#[test]
fn missing_axes_are_named() {
    let mut g = Graph::new();
    let x = input(&mut g, "x", DType::F32, &[2, 3]);
    let i = input(&mut g, "i", DType::I32, &[2]);
    for (result, name) in [
        (g.sum(x, &[2]), "sum"),
        (g.reduce(Reduction::Max, x, &[7]), "max"),
        (g.arg_max(x, 2), "arg_reduce"),
        (g.softmax(x, 2), "softmax"),
        (g.slice(x, 2, 0, 1), "slice"),
        (g.pad(x, 3, 1, 1), "pad"),
        (g.gather(x, i, 2), "gather"),
        (g.scatter_add(x, i, 4, 5), "scatter_add"),
    ] {
        assert_names(result, &[name, "f32[2, 3]", "no axis"]);
    }
}

#[test]
fn mismatched_types_are_named() {
    let mut g = Graph::new();
    let (x, i) = (input(&mut g, "x", DType::F32, &[2, 2]), input(&mut g, "i", DType::I32, &[2, 2]));
    assert_names(g.add(x, i), &["add", "f32", "i32", "cast"]);
    assert_names(g.exp(i), &["exp", "i32", "floating-point"]);
    assert_names(g.matmul(i, i), &["matmul", "i32"]);
    assert_names(g.softmax(i, 0), &["softmax", "i32"]);
    assert_names(g.mean(i, &[0]), &["mean", "i32"]);
    assert_names(g.gather(x, x, 0), &["gather", "indices"]);
    assert_names(g.input("x", DType::F64, &[2, 2]), &["input \"x\"", "f32[2, 2]", "f64[2, 2]"]);
    let sum = g.sum_all(i).unwrap();
    let error = g.gradients(sum, &[i]).unwrap_err().to_string();
    assert!(error.contains("integers cannot be differentiated") && error.contains("i32"), "{error}");
    let error = g.gradients(x, &[x]).unwrap_err().to_string();
    assert!(error.contains("scalar") && error.contains("[2, 2]"), "{error}");
}

#[test]
fn nodes_of_another_graph_are_refused() {
    let mut large = Graph::new();
    let mut last = input(&mut large, "x", DType::F32, &[2]);
    for _ in 0..5 {
        last = large.exp(last).unwrap();
    }
    let mut g = Graph::new();
    input(&mut g, "x", DType::F32, &[2]);
    assert_names(g.exp(last), &["exp", "%5", "not a node of this graph"]);
}

#[test]
fn programs_without_outputs_and_wrong_ports_are_refused() {
    assert_eq!(Program::new(&Graph::new()).unwrap_err(), ProgramError::NoOutputs);
    let mut g = Graph::new();
    let x = input(&mut g, "x", DType::F32, &[2]);
    let y = g.exp(x).unwrap();
    g.output("y", y).unwrap();
    assert!(g.output("y", x).unwrap_err().to_string().contains("output \"y\""));
    let mut runner = Program::new(&g).unwrap().runner();
    assert!(runner.write("x", &[1.0f32; 3]).unwrap_err().to_string().contains("f32[2]"));
    assert!(runner.write("x", &[1i32; 2]).unwrap_err().to_string().contains("2 elements of i32"));
    assert!(runner.read::<f32>("x").unwrap_err().to_string().contains("there are y"));
}

#[test]
fn sizes_beyond_the_limits_are_refused_before_allocation() {
    assert!(Shape::new(&[usize::MAX, 2]).is_err());
    let mut g = Graph::new();
    let column = input(&mut g, "column", DType::F32, &[1 << 30, 1]);
    let row = input(&mut g, "row", DType::F32, &[1, 1 << 30]);
    assert!(g.add(column, row).is_err());
    assert!(g.matmul(column, row).is_err());
    assert!(g.pad(row, 1, usize::MAX, 1).is_err());
}

/// Runs the program of a graph with `f32` inputs and outputs.
fn run(g: &Graph, values: &[(&str, &[f32])]) -> Vec<Vec<f32>> {
    let mut runner = Program::new(g).unwrap().runner();
    for (name, value) in values {
        runner.write(name, value).unwrap();
    }
    runner.run();
    g.outputs().iter().map(|(name, _)| runner.read::<f32>(name).unwrap().to_vec()).collect()
}

#[test]
fn empty_tensors_and_single_rows_run() {
    for n in [0, 1] {
        let mut g = Graph::new();
        let x = input(&mut g, "x", DType::F32, &[n, 3]);
        let w = input(&mut g, "w", DType::F32, &[3, 2]);
        let product = g.matmul(x, w).unwrap();
        let y = g.softmax(product, 1).unwrap();
        let columns = g.sum(y, &[0]).unwrap();
        let all = g.mean_all(y).unwrap();
        for (name, id) in [("y", y), ("columns", columns), ("all", all)] {
            g.output(name, id).unwrap();
        }
        let results = run(&g, &[("x", &[0.5, 1.0, -1.0][..3 * n]), ("w", &[0.1; 6])]);
        assert_eq!(results[0].len(), 2 * n);
        assert_eq!(results[1], if n == 0 { [0.0; 2] } else { [0.5; 2] });
        assert!(if n == 0 { results[2][0].is_nan() } else { results[2][0] == 0.5 });
    }
}

#[test]
fn nan_propagates_through_every_operation() {
    let mut g = Graph::new();
    let x = input(&mut g, "x", DType::F32, &[5]);
    for &op in Unary::ALL {
        let y = g.unary(op, x).unwrap();
        g.output(&format!("{op:?}"), y).unwrap();
    }
    for &op in Binary::ALL {
        let y = g.binary(op, x, x).unwrap();
        g.output(&format!("{op:?}"), y).unwrap();
    }
    let specials = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-42];
    let results = run(&g, &[("x", &specials)]);
    for ((name, _), result) in g.outputs().iter().zip(&results) {
        let compares = ["Less", "LessEqual", "Equal"].contains(&name.as_str());
        assert!(compares || result[0].is_nan(), "{name} of NaN is {}", result[0]);
    }
}

#[test]
fn integers_wrap_and_division_by_zero_is_zero() {
    let mut g = Graph::new();
    let (a, b) = (input(&mut g, "a", DType::I32, &[4]), input(&mut g, "b", DType::I32, &[4]));
    let (sum, quotient) = (g.add(a, b).unwrap(), g.div(a, b).unwrap());
    g.output("sum", sum).unwrap();
    g.output("quotient", quotient).unwrap();
    let mut runner = Program::new(&g).unwrap().runner();
    runner.write("a", &[i32::MAX, 7, i32::MIN, -7]).unwrap();
    runner.write("b", &[1, 0, -1, 2]).unwrap();
    runner.run();
    assert_eq!(runner.read::<i32>("sum").unwrap(), [i32::MIN, 7, i32::MAX, -5]);
    assert_eq!(runner.read::<i32>("quotient").unwrap(), [i32::MAX, 0, i32::MIN, -3]);
}

#[test]
fn slices_of_vector_operations_may_be_misaligned() {
    let bytes: Vec<f32> = (0..100).map(|i| i as f32).collect();
    for begin in 0..9 {
        let x = &bytes[begin..begin + 60];
        let mut out = vec![0.0; 64];
        gatework_engine::vector::add(x, x, &mut out[begin % 4..][..60]).unwrap();
        assert!(out[begin % 4..][..60].iter().zip(x).all(|(y, x)| *y == 2.0 * x));
    }
}
