//! Operations and layers with their gradients, compared with PyTorch.
//!
//! `GATEWORK_GOLDEN` may name another folder with `torch/ops.safetensors`.

use gatework_engine::graph::{Conv1d, Gru, Lstm, Window};
use gatework_engine::interpret::Value;
use gatework_engine::ops::Reduction;
use gatework_engine::{DType, Graph, GraphError, Id, Program, Shape};
use safetensors::SafeTensors;

/// One operation in one type: its tensors by name.
struct Case<'a> {
    file: &'a SafeTensors<'a>,
    /// `NAME.DTYPE.`
    prefix: String,
    dtype: DType,
}

impl Case<'_> {
    fn names(&self) -> Vec<&str> {
        let own = |name| str::strip_prefix(name, &self.prefix);
        let mut names: Vec<&str> = self.file.names().into_iter().filter_map(own).collect();
        names.sort_unstable();
        names
    }

    fn value(&self, name: &str) -> Value {
        let tensor = self.file.tensor(&format!("{}{name}", self.prefix)).unwrap();
        let shape = Shape::new(tensor.shape()).unwrap();
        let data = tensor.data();
        match tensor.dtype() {
            safetensors::Dtype::F32 => {
                let numbers = data.as_chunks().0.iter().map(|&b| f64::from(f32::from_le_bytes(b)));
                Value::float(DType::F32, shape, numbers.collect())
            }
            safetensors::Dtype::F64 => {
                let numbers = data.as_chunks().0.iter().map(|&b| f64::from_le_bytes(b));
                Value::float(DType::F64, shape, numbers.collect())
            }
            safetensors::Dtype::I32 => {
                let numbers = data.as_chunks().0.iter().map(|&b| i64::from(i32::from_le_bytes(b)));
                Value::int(DType::I32, shape, numbers.collect())
            }
            other => panic!("{}{name} is {other:?}", self.prefix),
        }
    }

    fn input(&self, g: &mut Graph, name: &str) -> Id {
        let value = self.value(name);
        g.input(name, value.dtype, &value.shape).unwrap()
    }
}

/// Builds the operation of a name, or returns `None` if there is no such operation.
fn build(g: &mut Graph, name: &str, case: &Case<'_>, x: &[Id]) -> Result<Option<Id>, GraphError> {
    let y = match name {
        "abs" => g.abs(x[0]),
        "cos" => g.cos(x[0]),
        "elu" => g.elu(x[0], 1.0),
        "erf" => g.erf(x[0]),
        "exp" => g.exp(x[0]),
        "gelu" => g.gelu(x[0]),
        "gelu_tanh" => g.gelu_tanh(x[0]),
        "leaky_relu" => g.leaky_relu(x[0], 0.01),
        "log" => g.log(x[0]),
        "neg" => g.neg(x[0]),
        "relu" => g.relu(x[0]),
        "rsqrt" => g.rsqrt(x[0]),
        "sigmoid" => g.sigmoid(x[0]),
        "silu" => g.silu(x[0]),
        "sin" => g.sin(x[0]),
        "softplus" => g.softplus(x[0]),
        "sqrt" => g.sqrt(x[0]),
        "square" => g.square(x[0]),
        "tanh" => g.tanh(x[0]),
        "add" | "broadcast_add" => g.add(x[0], x[1]),
        "sub" => g.sub(x[0], x[1]),
        "mul" => g.mul(x[0], x[1]),
        "div" => g.div(x[0], x[1]),
        "maximum" => g.max(x[0], x[1]),
        "minimum" => g.min(x[0], x[1]),
        "matmul" | "bmm" => g.matmul(x[0], x[1]),
        "attention" => g.attention(x[0], x[1], x[2]),
        "conv1d_dilated" => {
            let settings = Conv1d { dilation: 2, before: 4, ..Conv1d::default() };
            g.conv1d(x[0], x[1], Some(x[2]), settings)
        }
        "avg_pool1d" => g.avg_pool1d(x[0], Window { size: 2, stride: 2, dilation: 1 }),
        "max_pool1d" => g.max_pool1d(x[0], Window { size: 3, stride: 3, dilation: 1 }),
        "interpolate_linear" => g.interpolate_linear(x[0], case.value("y").shape[1]),
        "layer_norm" => g.layer_norm(x[0], x[1], x[2], 1e-5),
        "softmax_rows" => g.softmax(x[0], 1),
        "log_softmax_rows" => g.log_softmax(x[0], 1),
        "logsumexp_rows" => g.log_sum_exp(x[0], 1),
        "cumsum_rows" => g.cumsum(x[0], false),
        "sum" => g.sum_all(x[0]),
        "mean" => g.mean_all(x[0]),
        "max" => g.reduce(Reduction::Max, x[0], &[0, 1]),
        "min" => g.reduce(Reduction::Min, x[0], &[0, 1]),
        "sum_rows" => g.sum(x[0], &[1]),
        "sum_cols" => g.sum(x[0], &[0]),
        "max_rows" => g.reduce(Reduction::Max, x[0], &[1]),
        "var_rows" => g.variance(x[0], 1, 0),
        "mse" => g.mse(x[0], x[1]),
        "mae" => g.mae(x[0], x[1]),
        "huber" => g.huber(x[0], x[1], 0.5),
        "cross_entropy" => {
            let target = case.input(g, "target");
            g.cross_entropy(x[0], target)
        }
        "bce_logits" => {
            let target = case.input(g, "target");
            g.binary_cross_entropy(x[0], target)
        }
        "gru" | "lstm" => recurrent(g, name, case),
        _ => return Ok(None),
    }?;
    // Reductions in the file drop axes that are kept here.
    g.reshape(y, &case.value("y").shape).map(Some)
}

/// Two layers.
fn recurrent(g: &mut Graph, name: &str, case: &Case<'_>) -> Result<Id, GraphError> {
    let mut y = case.input(g, "x");
    for layer in 0..2 {
        let [input, hidden, input_bias, hidden_bias] = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
            .map(|weight| case.input(g, &format!("w.{weight}_l{layer}")));
        y = match name {
            "gru" => g.gru(y, &Gru { input, hidden, input_bias, hidden_bias })?,
            _ => g.lstm(y, &Lstm { input, hidden, input_bias, hidden_bias })?,
        };
    }
    Ok(y)
}

/// The name of the gradient of an input: `d0` of `in0`, `dx` of `x`, `dw.NAME` of `w.NAME`.
fn gradient_name(input: &str) -> String {
    match input.strip_prefix("in") {
        Some(number) => format!("d{number}"),
        None => format!("d{input}"),
    }
}

fn assert_close(what: &str, ours: &Value, theirs: &Value) {
    assert_eq!((ours.shape, ours.dtype), (theirs.shape, theirs.dtype), "{what}");
    let tolerance = if ours.dtype == DType::F64 { 1e-10 } else { 2e-5 };
    let (ours, theirs) = (ours.to_f64(), theirs.to_f64());
    let scale = theirs.iter().fold(1.0f64, |scale, x| scale.max(x.abs()));
    for (i, (a, b)) in ours.iter().zip(&theirs).enumerate() {
        assert!((a - b).abs() <= tolerance * scale, "{what}[{i}]: {a}, expected {b}");
    }
}

#[test]
fn operations_and_gradients_equal_pytorch() {
    let path = gatework_test_support::golden!("torch", "ops.safetensors");
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let mut cases: Vec<(String, String)> = file
        .names()
        .iter()
        .filter_map(|name| {
            let mut parts = name.splitn(3, '.');
            Some((parts.next()?.to_string(), parts.next()?.to_string()))
        })
        .collect();
    cases.sort_unstable();
    cases.dedup();
    assert!(cases.len() >= 10, "{} holds {} cases", path.display(), cases.len());
    for (name, dtype) in cases {
        let case = Case {
            file: &file,
            prefix: format!("{name}.{dtype}."),
            dtype: if dtype == "f64" { DType::F64 } else { DType::F32 },
        };
        check(&name, &case);
    }
}

/// Builds an operation and its gradients, runs them, and compares all results that the file holds.
fn check(name: &str, case: &Case<'_>) {
    let mut g = Graph::new();
    let names = case.names();
    let is_input = |n: &str| n.starts_with("in") || n == "x" || n.starts_with("w.");
    let inputs: Vec<&str> = names.iter().copied().filter(|n| is_input(n)).collect();
    let ids: Vec<Id> = inputs.iter().map(|input| case.input(&mut g, input)).collect();
    let y = build(&mut g, name, case, &ids)
        .unwrap()
        .unwrap_or_else(|| panic!("{name} is not an operation of the graph"));
    let dy = case.input(&mut g, "dy");
    assert_eq!(g.dtype(y), case.dtype);
    let gradients = g.pull_back(y, dy, &ids).unwrap();
    g.output("y", y).unwrap();
    for (input, id) in inputs.iter().zip(gradients) {
        g.output(&gradient_name(input), id).unwrap();
    }
    g.check().unwrap();
    let given: Vec<(&str, Value)> = names
        .iter()
        .filter(|n| is_input(n) || ["dy", "target"].contains(n))
        .map(|&n| (n, case.value(n)))
        .collect();
    let interpreted = g.interpret(&given).unwrap();
    let compiled = run(&g, &given);
    let mut compared = 0;
    for (i, (output, _)) in g.outputs().iter().enumerate() {
        // The file has no gradients of data, such as the targets of a loss.
        if names.contains(&output.as_str()) {
            let right = case.value(output);
            assert_close(&format!("interpreted {}{output}", case.prefix), &interpreted[i], &right);
            assert_close(&format!("compiled {}{output}", case.prefix), &compiled[i], &right);
            compared += 1;
        }
    }
    assert!(compared >= 2, "{}: expected a result and a gradient", case.prefix);
}

/// The outputs of the compiled graph.
fn run(g: &Graph, given: &[(&str, Value)]) -> Vec<Value> {
    let mut runner = Program::new(g).unwrap().runner();
    for (name, value) in given {
        let numbers = value.to_f64();
        match value.dtype {
            DType::F32 => runner.write(name, &numbers.iter().map(|&x| x as f32).collect::<Vec<_>>()),
            DType::F64 => runner.write(name, &numbers),
            DType::I32 => runner.write(name, &numbers.iter().map(|&x| x as i32).collect::<Vec<_>>()),
            DType::I64 => runner.write(name, &numbers.iter().map(|&x| x as i64).collect::<Vec<_>>()),
        }
        .unwrap();
    }
    runner.run();
    let read = |(name, id): &(String, Id)| {
        let numbers = match g.dtype(*id) {
            DType::F32 => runner.read::<f32>(name).unwrap().iter().map(|&x| f64::from(x)).collect(),
            _ => runner.read::<f64>(name).unwrap().to_vec(),
        };
        Value::float(g.dtype(*id), g.shape(*id), numbers)
    };
    g.outputs().iter().map(read).collect()
}
