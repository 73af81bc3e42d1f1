//! Models are well-formed, and ONNX Runtime computes what the interpreter does.

use gatework_test_support::onnx::{Case, Judge, Numbers, Tensor as Numpy};
use prost::Message as _;
use rustc_hash::FxHashSet;

use super::*;
use crate::arbitrary;
use crate::graph::{Conv1d, Gru, Lstm, Window};
use crate::interpret::{self, Elements};
use crate::ops::{Binary, Reduction, Unary};

/// The operands of an example: x and y are `[batch, 3, 4]`, w is `[4, 5]`, i holds two indices, of which one is outside.
struct Operands {
    x: Id,
    y: Id,
    w: Id,
    i: Id,
}

type Build = Box<dyn Fn(&mut Graph, &Operands) -> Result<Id, GraphError>>;

/// An example graph with one operation, or a few.
struct Example {
    name: String,
    dtype: DType,
    build: Build,
}

/// Values of the parameter.
fn weights() -> Vec<f32> {
    (0..20).map(|i| (i * 7 % 11) as f32 / 8.0 - 0.5).collect()
}

fn graph(example: &Example, batch: usize) -> Result<Graph, OnnxError> {
    let mut g = Graph::new();
    let x = g.input("x", example.dtype, &[batch, 3, 4])?;
    let y = g.input("y", example.dtype, &[batch, 3, 4])?;
    let w = g.input("w", DType::F32, &[4, 5])?;
    let i = g.input("i", DType::I32, &[2])?;
    let z = (example.build)(&mut g, &Operands { x, y, w, i })?;
    g.output("z", z)?;
    Ok(g)
}

fn example(
    name: impl Into<String>,
    dtype: DType,
    build: impl Fn(&mut Graph, &Operands) -> Result<Id, GraphError> + 'static,
) -> Example {
    Example { name: name.into(), dtype, build: Box::new(build) }
}

/// Every operation that can be written for any batch size.
fn examples() -> Vec<Example> {
    let mut all = layers();
    for dtype in [DType::F32, DType::F64, DType::I32] {
        all.extend(elementwise(dtype).into_iter().chain(moves(dtype)));
    }
    for dtype in [DType::F32, DType::F64] {
        all.extend(floating_point(dtype));
    }
    all
}

/// Element-wise operations, reductions and conversions.
fn elementwise(dtype: DType) -> Vec<Example> {
    let mut all = Vec::new();
    for &op in Unary::ALL.iter().filter(|op| op.rounds_to().is_none()) {
        // ONNX Runtime has no kernels for these.
        let is_missing = match dtype {
            DType::F64 => {
                matches!(op, Unary::Erf | Unary::Gelu | Unary::GeluDerivative | Unary::Softplus)
            }
            _ => !dtype.is_float() && op.row().integer.is_none(),
        };
        if !is_missing {
            all.push(example(format!("{op:?} {dtype}"), dtype, move |g, o| g.unary(op, o.x)));
        }
    }
    for &op in Binary::ALL.iter().filter(|&&op| dtype.is_float() || op != Binary::Div) {
        all.push(example(format!("{op:?} {dtype}"), dtype, move |g, o| {
            let row = g.slice(o.y, 1, 0, 1)?; // broadcast
            g.binary(op, o.x, row)
        }));
    }
    for op in [Reduction::Sum, Reduction::Max, Reduction::Min] {
        all.push(example(format!("{op:?} {dtype}"), dtype, move |g, o| g.reduce(op, o.x, &[1, 2])));
    }
    for to in DType::ALL {
        all.push(example(format!("cast {dtype} {to}"), dtype, move |g, o| g.cast(o.x, to)));
    }
    all
}

/// Operations that move or select elements.
fn moves(dtype: DType) -> Vec<Example> {
    vec![
        example(format!("select {dtype}"), dtype, |g, o| {
            let less = g.less(o.x, o.y)?;
            let chosen = g.select(less, o.x, o.y)?;
            let zero = g.zeros_like(o.x)?;
            g.select(o.y, chosen, zero) // a number as the condition
        }),
        example(format!("moves {dtype}"), dtype, |g, o| {
            let moved = g.permute(o.x, &[0, 2, 1])?;
            let padded = g.pad(moved, 1, 2, 1)?;
            let sliced = g.slice_by(padded, 1, 1, 3, 2)?;
            let both = g.concat(&[sliced, sliced, moved], 1)?;
            g.reshape(both, &[g.shape(both)[0], 2, 15])
        }),
        example(format!("gather {dtype}"), dtype, |g, o| g.gather(o.x, o.i, 1)),
        example(format!("gather in range {dtype}"), dtype, |g, o| {
            let indices = g.data(DType::I32, &[3], &[2.0, 0.0, 2.0])?;
            g.gather(o.x, indices, 2)
        }),
        example(format!("scatter_add {dtype}"), dtype, |g, o| {
            let part = g.slice(o.x, 1, 0, 2)?;
            g.scatter_add(part, o.i, 1, 3)
        }),
        example(format!("unfold {dtype}"), dtype, |g, o| {
            g.unfold(o.x, Window { size: 2, stride: 2, dilation: 1 })
        }),
        example(format!("fold {dtype}"), dtype, |g, o| {
            g.fold(o.x, Window { size: 4, stride: 1, dilation: 2 }, 9)
        }),
        example(format!("cumsum {dtype}"), dtype, |g, o| g.cumsum(o.x, false)),
        example(format!("cumsum reverse {dtype}"), dtype, |g, o| g.cumsum(o.x, true)),
        example(format!("arg_max {dtype}"), dtype, |g, o| g.arg_max(o.x, 2)),
        example(format!("arg_min {dtype}"), dtype, |g, o| g.arg_min(o.x, 1)),
        example(format!("expand {dtype}"), dtype, |g, o| {
            let row = g.slice(o.x, 1, 0, 1)?;
            let row = g.expand(row, &g.shape(o.x))?;
            let ones = g.constant_like(o.x, 1.0)?;
            g.concat(&[row, ones], 2) // concatenation does not broadcast
        }),
    ]
}

/// Operations on floating-point numbers.
fn floating_point(dtype: DType) -> Vec<Example> {
    vec![
        example(format!("matmul {dtype}"), dtype, |g, o| {
            let right = g.transpose(o.y)?;
            g.matmul(o.x, right)
        }),
        example(format!("softmax {dtype}"), dtype, |g, o| g.softmax(o.x, 1)),
        example(format!("log_softmax {dtype}"), dtype, |g, o| g.log_softmax(o.x, 2)),
        example(format!("layer_norm {dtype}"), dtype, |g, o| {
            let (gain, bias) =
                (g.data(g.dtype(o.x), &[4], &[1.0, 2.0, -1.0, 0.5])?, g.constant(g.dtype(o.x), 0.3));
            let bias = g.expand(bias, &[4])?;
            g.layer_norm(o.x, gain, bias, 1e-5)
        }),
        // ONNX Runtime merges the division by the root of the width into the product, in 32 bits: 2 is exact.
        example(format!("attention {dtype}"), dtype, |g, o| g.multi_head_attention(o.x, o.y, o.x, 1)),
    ]
}

/// Layers of several operations, and operations that ONNX Runtime has in 32 bits only.
fn layers() -> Vec<Example> {
    vec![
        example("linear f32", DType::F32, |g, o| {
            let product = g.matmul(o.x, o.w)?;
            let bias = g.data(DType::F32, &[5], &[1.0, -1.0, 0.0, 0.5, 2.0])?;
            g.add(product, bias)
        }),
        example("one matrix for the batch", DType::F32, |g, o| {
            let matrix = g.reshape(o.w, &[1, 4, 5])?;
            g.matmul(o.x, matrix)
        }),
        example("convolution", DType::F32, |g, o| {
            let kernel = g.slice(o.w, 0, 0, 3)?;
            let kernel = g.reshape(kernel, &[5, 3, 1])?;
            let kernel = g.concat(&[kernel, kernel], 2)?;
            g.conv1d(o.x, kernel, None, Conv1d { before: 1, dilation: 2, ..Conv1d::default() })
        }),
        example("max_pool", DType::F32, |g, o| g.max_pool1d(o.x, Window { size: 3, stride: 3, dilation: 1 })),
        example("interpolation", DType::F32, |g, o| g.interpolate_linear(o.x, 7)),
        example("two heads", DType::F32, |g, o| g.multi_head_attention(o.x, o.y, o.x, 2)),
        example("elu", DType::F32, |g, o| g.elu(o.x, 0.7)),
        example("gru", DType::F32, |g, o| {
            let [input, hidden, input_bias, hidden_bias] = cell(g, o.w, 2, 3)?;
            g.gru(o.x, &Gru { input, hidden, input_bias, hidden_bias })
        }),
        example("lstm", DType::F32, |g, o| {
            let [input, hidden, input_bias, hidden_bias] = cell(g, o.w, 2, 4)?;
            g.lstm(o.x, &Lstm { input, hidden, input_bias, hidden_bias })
        }),
    ]
}

/// The weights of a cell with four inputs, made of `w`.
fn cell(g: &mut Graph, w: Id, hidden: usize, gates: usize) -> Result<[Id; 4], GraphError> {
    let rows = hidden * gates;
    let numbers = g.reshape(w, &[20])?;
    let many = g.concat(&[numbers, numbers], 0)?;
    let mut part = |begin: usize, sizes: &[usize]| {
        let part = g.slice(many, 0, begin, begin + sizes.iter().product::<usize>())?;
        g.reshape(part, sizes)
    };
    Ok([part(0, &[rows, 4])?, part(3, &[rows, hidden])?, part(5, &[rows])?, part(9, &[rows])?])
}

/// Values of the inputs that are not parameters.
fn inputs(g: &Graph, seed: u64) -> Vec<(String, interpret::Value)> {
    let mut inputs = arbitrary::values(g, seed);
    for (name, value) in &mut inputs {
        match name.as_str() {
            "w" => {
                *value = interpret::Value::float(
                    DType::F32,
                    value.shape,
                    weights().iter().map(|&x| x.into()).collect(),
                );
            }
            "i" => *value = interpret::Value::int(DType::I32, value.shape, vec![1, -1]),
            _ => {}
        }
    }
    inputs
}

fn numpy(name: &str, value: &interpret::Value) -> Numpy {
    let numbers = match (&value.elements, value.dtype) {
        (Elements::Float(x), DType::F32) => Numbers::F32(x.iter().map(|&x| x as f32).collect()),
        (Elements::Float(x), _) => Numbers::F64(x.clone()),
        (Elements::Int(x), DType::I32) => Numbers::I32(x.iter().map(|&x| x as i32).collect()),
        (Elements::Int(x), _) => Numbers::I64(x.clone()),
    };
    Numpy::new(name, &value.shape, numbers)
}

/// A case of a model with the inputs of a graph.
fn case(name: String, model: &[u8], g: &Graph, tolerance: f64) -> Case {
    let inputs = inputs(g, 7);
    let values = g.interpret(&arbitrary::named(&inputs)).unwrap();
    let names = g.outputs().iter().map(|(name, _)| name);
    let used = schema::Model::decode(model).unwrap().graph.unwrap().input;
    let given = inputs.iter().filter(|(name, _)| used.iter().any(|input| input.name == *name));
    Case {
        name,
        model: model.to_vec(),
        inputs: given.map(|(name, value)| numpy(name, value)).collect(),
        outputs: names.zip(&values).map(|(name, value)| numpy(name, value)).collect(),
        units: Vec::new(),
        tolerance,
    }
}

fn tolerance(dtype: DType) -> f64 {
    if dtype == DType::F64 { 1e-13 } else { 2e-6 }
}

#[test]
fn onnx_runtime_computes_what_the_interpreter_does() {
    let Some(judge) = Judge::find() else { return };
    let mut cases = Vec::new();
    for example in examples() {
        let weights = weights();
        let model = Model::named(&example.name).with_parameter("w", &weights[..]);
        let bytes = write_batched(|batch| graph(&example, batch), &model).unwrap();
        for batch in [1, 4] {
            let g = graph(&example, batch).unwrap();
            cases.push(case(format!("{} batch {batch}", example.name), &bytes, &g, tolerance(example.dtype)));
        }
        let g = graph(&example, 3).unwrap();
        let fixed = write(&g, &model).unwrap();
        cases.push(case(format!("{} fixed", example.name), &fixed, &g, tolerance(example.dtype)));
    }
    let g = gradients();
    let bytes = write(&g, &Model::default()).unwrap();
    cases.push(case("gradients".into(), &bytes, &g, 1e-5));
    println!("{}", judge.check(&cases));
}

/// A loss and its gradients, without a recurrent cell.
fn gradients() -> Graph {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[2, 3, 4]).unwrap();
    let gain = g.input("gain", DType::F32, &[4]).unwrap();
    let normal = g.layer_norm(x, gain, gain, 1e-5).unwrap();
    let seen = g.multi_head_attention(normal, x, normal, 2).unwrap();
    let windows = g.unfold(seen, Window { size: 2, stride: 1, dilation: 1 }).unwrap();
    let y = g.gelu(windows).unwrap();
    let loss = g.mean_all(y).unwrap();
    for (name, id) in ["dx", "dgain"].into_iter().zip(g.gradients(loss, &[x, gain]).unwrap()) {
        g.output(name, id).unwrap();
    }
    g.output("loss", loss).unwrap();
    g
}

/// Asserts that names are defined once and before they are read, and that constants have the size of their shape.
fn assert_well_formed(bytes: &[u8]) -> schema::Graph {
    let model = schema::Model::decode(bytes).unwrap();
    assert_eq!((model.ir_version, model.opset_import[0].version), (IR_VERSION, OPSET));
    let graph = model.graph.unwrap();
    let mut known = FxHashSet::default();
    let is_identifier = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let mut define = |name: &String| {
        assert!(is_identifier(name) && !name.is_empty() && known.insert(name.clone()), "{name}");
    };
    for tensor in &graph.initializer {
        let size = if [1, 6].contains(&tensor.data_type) { 4 } else { 8 };
        assert_eq!(
            tensor.raw_data.len() as i64,
            size * tensor.dims.iter().product::<i64>(),
            "{}",
            tensor.name
        );
        define(&tensor.name);
    }
    graph.input.iter().for_each(|input| define(&input.name));
    for node in &graph.node {
        assert!(node.input.iter().all(|input| known.contains(input)), "{node:?}");
        node.output
            .iter()
            .for_each(|output| assert!(known.insert(output.clone()), "{output} is defined twice"));
    }
    assert!(graph.output.iter().all(|output| known.contains(&output.name)));
    graph
}

#[test]
fn models_are_well_formed() {
    for example in examples() {
        let weights = weights();
        let model = Model::named(&example.name).with_parameter("w", &weights[..]);
        let bytes = write_batched(|batch| graph(&example, batch), &model).unwrap();
        let graph = assert_well_formed(&bytes);
        assert_eq!(graph.output[0].name, "z", "{}", example.name);
        // No value has the size of one of the batches that the graph was built for.
        let constants = graph.initializer.iter().filter(|tensor| tensor.data_type == 7);
        let numbers = constants.flat_map(|tensor| tensor.raw_data.as_chunks::<8>().0);
        assert!(
            numbers.map(|bytes| i64::from_le_bytes(*bytes)).all(|number| number < 1000),
            "{}",
            example.name
        );
    }
    assert_well_formed(&write(&gradients(), &Model::default()).unwrap());
}

#[test]
fn names_are_kept_or_replaced_by_identifiers() {
    let mut g = Graph::new();
    let a = g.input("a.b", DType::F32, &[2]).unwrap();
    let b = g.input("a b", DType::F32, &[2]).unwrap();
    let c = g.add(a, b).unwrap();
    g.output("add", c).unwrap();
    g.output("a_b", b).unwrap();
    let graph = assert_well_formed(&write(&g, &Model::default()).unwrap());
    let names = |values: &[ValueInfo]| values.iter().map(|value| value.name.clone()).collect::<Vec<_>>();
    assert_eq!(
        (names(&graph.input), names(&graph.output)),
        (vec!["a_b_1".to_string(), "a_b_2".to_string()], vec!["add".to_string(), "a_b".to_string()])
    );
}

#[test]
fn what_cannot_be_written_is_named() {
    let refused = |build: &dyn Fn(&mut Graph, Id) -> Result<Id, GraphError>, dtype: DType| {
        let graph = |batch: usize| {
            let mut g = Graph::new();
            let x = g.input("x", dtype, &[batch, 3, 4])?;
            let y = build(&mut g, x)?;
            g.output("y", y)?;
            Ok::<Graph, OnnxError>(g)
        };
        write_batched(graph, &Model::default()).unwrap_err().to_string()
    };
    let said = refused(&|g, x| g.mean_all(x), DType::F32);
    assert!(said.contains("depends on the batch size"), "{said}");
    let said = refused(&|g, x| g.div(x, x), DType::I32);
    assert!(said.starts_with("div of i32 cannot be written as ONNX: "), "{said}");
    let states_gradient = |g: &mut Graph, x: Id| {
        let numbers = g.constant(DType::F32, 0.1);
        let weights: Result<Vec<Id>, GraphError> =
            [&[9, 4][..], &[9, 3], &[9], &[9]].iter().map(|sizes| g.expand(numbers, sizes)).collect();
        let [input, hidden, input_bias, hidden_bias] = weights?.try_into().unwrap();
        let states = g.gru(x, &Gru { input, hidden, input_bias, hidden_bias })?;
        let sum = g.sum_all(states)?;
        Ok::<Id, GraphError>(g.gradients(sum, &[x])?[0])
    };
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[2, 3, 4]).unwrap();
    let y = states_gradient(&mut g, x).unwrap();
    g.output("y", y).unwrap();
    let said = write(&g, &Model::default()).unwrap_err().to_string();
    assert!(said.contains("gru"), "{said}");
}

#[test]
fn parameters_must_fit_the_graph() {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[2, 3]).unwrap();
    g.output("y", x).unwrap();
    let with = |name: &'static str, values: Values<'static>| {
        write(&g, &Model::default().with_parameter(name, values))
    };
    assert_eq!(with("z", Values::F32(&[])).unwrap_err(), OnnxError::UnknownParameter("z".into()));
    for values in [Values::F32(&[0.0; 5]), Values::F64(&[0.0; 6])] {
        let said = with("x", values).unwrap_err().to_string();
        assert!(said.starts_with("parameter \"x\" is f32[2, 3], but "), "{said}");
    }
    let graph = assert_well_formed(&with("x", Values::F32(&[0.0; 6])).unwrap());
    assert_eq!((graph.input.len(), graph.initializer.len()), (0, 1));
}
