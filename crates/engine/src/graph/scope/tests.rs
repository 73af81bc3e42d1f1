//! Expressions compared with the calls of the builder that they stand for.

#![allow(clippy::op_ref, clippy::needless_borrows_for_generic_args, reason = "references are operands, too")]

use proptest::prelude::*;

use super::*;
use crate::arbitrary::{self, Draft};
use crate::graph::{Conv1d, Gru, Lstm, Window};
use crate::ops::{Binary, Reduction, Unary};

/// The expression of a random node: see [`arbitrary::add`].
fn add<'s>(scope: &'s Scope, pool: &[Tensor<'s>], (kind, x, y, z): Draft) -> Tensor<'s> {
    let pick = |n: u8| pool[pool.len() - 1 - usize::from(n) % pool.len()];
    let (a, b, c) = (pick(x), pick(y), pick(z));
    let axis = usize::from(z % 3);
    let small = usize::from(y % 4);
    match kind % 20 {
        0..=3 => match Unary::ALL[usize::from(z) % Unary::ALL.len()] {
            Unary::Neg if x % 2 == 0 => -a,
            Unary::Neg => -&a,
            op => a.unary(op),
        },
        4..=7 => match Binary::ALL[usize::from(z) % Binary::ALL.len()] {
            Binary::Add => a + b,
            Binary::Sub => &a - b,
            Binary::Mul => a * &b,
            Binary::Div => &a / &b,
            op => a.binary(op, b),
        },
        8 => a.select(b, c),
        9 => a.reduce([Reduction::Sum, Reduction::Max, Reduction::Min][usize::from(y % 3)], &[axis]),
        10 => {
            let elements = a.shape().elements();
            a.reshape(&if z % 2 == 0 { vec![elements] } else { vec![1, elements, 1] })
        }
        11 => a.permute(&[[2, 0, 1], [1, 0, 2], [0, 2, 1]][usize::from(z % 3)]),
        12 => a.slice_by(axis, small, usize::from(x % 3), 1 + usize::from(x % 2)),
        13 => a.pad(axis, small, usize::from(x % 2)),
        14 => scope.concat(&[a, b], axis),
        15 => a.gather(pool[3], axis),
        16 => a.unfold(Window { size: 1 + small, stride: 1 + usize::from(z % 2), dilation: 1 }),
        17 => a.cumsum(z % 2 == 0),
        18 => a.matmul(if z % 2 == 0 { b.transpose() } else { b }),
        _ => match z % 3 {
            0 => a.softmax(axis),
            1 => a.arg_max(axis),
            _ => a.cast([DType::F32, DType::F64, DType::I32, DType::I64][small]),
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The same nodes for operations that fit, and the same errors, once each, for those that do not.
    #[test]
    fn expressions_are_the_calls_of_the_builder(
        dtype in prop::sample::select(&DType::ALL[..]),
        sizes in prop::collection::vec(0usize..5, 3),
        drafts in prop::collection::vec(any::<Draft>(), 1..25),
    ) {
        // `all` has the same calls as the builder, `valid` only those that fit.
        let (mut g, all, valid) = (Graph::new(), Scope::new(), Scope::new());
        let (mut ids, mut tensors, mut others) = (Vec::new(), Vec::new(), Vec::new());
        let shapes = [(dtype, sizes.clone()), (dtype, sizes[1..].to_vec()), (dtype, vec![sizes[0], 1, 7]), (DType::I32, vec![4])];
        for (name, (dtype, sizes)) in ["a", "b", "c", "i"].into_iter().zip(&shapes) {
            ids.push(g.input(name, *dtype, sizes).unwrap());
            tensors.push(all.input(name, *dtype, sizes));
            others.push(valid.input(name, *dtype, sizes));
        }
        let mut errors = Vec::new();
        for draft in drafts {
            let tensor = add(&all, &tensors, draft);
            match arbitrary::add(&mut g, &ids, draft) {
                Ok(id) => {
                    prop_assert_eq!((tensor.shape(), tensor.dtype()), (g.shape(id), g.dtype(id)));
                    others.push(add(&valid, &others, draft));
                    ids.push(id);
                    tensors.push(tensor);
                }
                Err(error) => {
                    // What follows from an invalid tensor is not reported.
                    let _ = -((tensor + 1.0).matmul(tensor) / tensor);
                    errors.push(error);
                }
            }
        }
        g.output("y", ids[ids.len() - 1]).unwrap();
        let graph = valid.graph(&[("y", others[others.len() - 1])]).unwrap();
        prop_assert_eq!(graph.fingerprint(), g.fingerprint());
        prop_assert_eq!(graph.check(), Ok(()));
        match all.graph(&[("y", tensors[tensors.len() - 1])]) {
            Ok(same) => prop_assert!(errors.is_empty() && same == graph),
            Err(GraphError::Expressions(found)) => {
                prop_assert_eq!(found.into_iter().map(|error| error.error).collect::<Vec<_>>(), errors);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }
}

/// Asserts that an expression of x `[2, 3]`, y `[2, 3]` and z `[3, 2]` is what the builder makes of the same operands.
#[track_caller]
fn assert_same(
    expression: impl for<'s> Fn([Tensor<'s>; 3]) -> Tensor<'s>,
    build: impl Fn(&mut Graph, [Id; 3]) -> Result<Id, GraphError>,
) {
    let inputs = [("x", [2, 3]), ("y", [2, 3]), ("z", [3, 2])];
    let mut g = Graph::new();
    let ids = inputs.map(|(name, sizes)| g.input(name, DType::F32, &sizes).unwrap());
    let id = build(&mut g, ids).unwrap();
    g.output("result", id).unwrap();
    let scope = Scope::new();
    let tensor = expression(inputs.map(|(name, sizes)| scope.input(name, DType::F32, &sizes)));
    let graph = scope.graph(&[("result", tensor)]).unwrap();
    assert_eq!(graph.fingerprint(), g.fingerprint(), "{graph}\n{g}");
}

#[test]
fn operators_take_tensors_references_and_numbers_on_both_sides() {
    macro_rules! assert_operator {
        ($operator:tt $method:ident) => {
            assert_same(|[x, y, _]| x $operator y, |g, [x, y, _]| g.$method(x, y));
            assert_same(|[x, y, _]| &x $operator &y, |g, [x, y, _]| g.$method(x, y));
            assert_same(|[x, y, _]| &x $operator y, |g, [x, y, _]| g.$method(x, y));
            assert_same(|[x, y, _]| x $operator &y, |g, [x, y, _]| g.$method(x, y));
            assert_same(|[x, y, _]| x.$method(y), |g, [x, y, _]| g.$method(x, y));
            let right = |g: &mut Graph, [x, ..]: [Id; 3]| {
                let number = g.constant_like(x, 2.5)?;
                g.$method(x, number)
            };
            assert_same(|[x, ..]| x $operator 2.5, right);
            assert_same(|[x, ..]| &x $operator 2.5, right);
            let left = |g: &mut Graph, [x, ..]: [Id; 3]| {
                let number = g.constant_like(x, 2.5)?;
                g.$method(number, x)
            };
            assert_same(|[x, ..]| 2.5 $operator x, left);
            assert_same(|[x, ..]| 2.5 $operator &x, left);
        };
    }
    assert_operator!(+ add);
    assert_operator!(-sub);
    assert_operator!(*mul);
    assert_operator!(/ div);
    assert_same(|[x, ..]| -x, |g, [x, ..]| g.neg(x));
    assert_same(|[x, ..]| -&x, |g, [x, ..]| g.neg(x));
}

/// Methods that are not generated from a table, and one of each table. Operands in the wrong order would be found.
#[test]
fn methods_add_the_nodes_of_the_builder() {
    assert_same(|[x, ..]| x.gelu(), |g, [x, ..]| g.gelu(x));
    assert_same(|[x, y, _]| x.less(y), |g, [x, y, _]| g.less(x, y));
    assert_same(|[x, y, _]| x.greater(y), |g, [x, y, _]| g.greater(x, y));
    assert_same(|[x, y, _]| x.greater_equal(y), |g, [x, y, _]| g.greater_equal(x, y));
    assert_same(
        |[x, y, _]| x.less(y).select(x, &y),
        |g, [x, y, _]| {
            let less = g.less(x, y)?;
            g.select(less, x, y)
        },
    );
    assert_same(
        |[x, ..]| x.greater(1.0).select(x, 0.0),
        |g, [x, ..]| {
            let (one, zero) = (g.constant_like(x, 1.0)?, g.zeros_like(x)?);
            let above = g.greater(x, one)?;
            g.select(above, x, zero)
        },
    );
    assert_same(|[x, _, z]| x.matmul(z), |g, [x, _, z]| g.matmul(x, z));
    assert_same(|[x, _, z]| x.matmul(&z), |g, [x, _, z]| g.matmul(x, z));
    assert_same(|[x, y, _]| x.mse(y), |g, [x, y, _]| g.mse(x, y));
    assert_same(|[x, y, _]| x.huber(y, 0.5), |g, [x, y, _]| g.huber(x, y, 0.5));
    assert_same(|[x, y, _]| x.binary_cross_entropy(y), |g, [x, y, _]| g.binary_cross_entropy(x, y));
    assert_same(
        |[x, y, _]| x.cross_entropy(y.slice(1, 0, 1).reshape(&[2]).cast(DType::I32)),
        |g, [x, y, _]| {
            let column = g.slice(y, 1, 0, 1)?;
            let column = g.reshape(column, &[2])?;
            let classes = g.cast(column, DType::I32)?;
            g.cross_entropy(x, classes)
        },
    );
    assert_same(|[x, y, _]| x.scope().concat(&[x, y], 1), |g, [x, y, _]| g.concat(&[x, y], 1));
    assert_same(
        |[x, y, _]| x.multi_head_attention(y, x, 3),
        |g, [x, y, _]| g.multi_head_attention(x, y, x, 3),
    );
    assert_same(|[x, y, _]| x.attention(y, x), |g, [x, y, _]| g.attention(x, y, x));
    assert_same(|[x, y, _]| x.layer_norm(y, x, 1e-5), |g, [x, y, _]| g.layer_norm(x, y, x, 1e-5));
    assert_same(
        |[x, ..]| x.scope().full(DType::F32, &[4], 3.0) + x.sum_all(),
        |g, [x, ..]| {
            let three = g.constant(DType::F32, 3.0);
            let full = g.expand(three, &[4])?;
            let sum = g.sum_all(x)?;
            g.add(full, sum)
        },
    );
    assert_same(
        |[x, ..]| {
            x * x.scope().data(DType::F32, &[3], &[1.0, 2.0, 3.0]) * x.scope().constant(DType::F32, 7.0)
        },
        |g, [x, ..]| {
            let data = g.data(DType::F32, &[3], &[1.0, 2.0, 3.0])?;
            let product = g.mul(x, data)?;
            let seven = g.constant(DType::F32, 7.0);
            g.mul(product, seven)
        },
    );
}

#[test]
fn gradients_are_those_of_the_builder() {
    assert_same(
        |[x, y, _]| {
            let [dx, dy] = (x * y).sum_all().gradients([x, y]);
            dx - dy
        },
        |g, [x, y, _]| {
            let product = g.mul(x, y)?;
            let sum = g.sum_all(product)?;
            let gradients = g.gradients(sum, &[x, y])?;
            g.sub(gradients[0], gradients[1])
        },
    );
    assert_same(
        |[x, y, _]| x.exp().pull_back(y, [x])[0],
        |g, [x, y, _]| {
            let exp = g.exp(x)?;
            Ok(g.pull_back(exp, y, &[x])?[0])
        },
    );
}

#[test]
fn layers_with_several_weights_are_those_of_the_builder() {
    let three = |g: &mut Graph, x: Id| g.reshape(x, &[1, 2, 3]);
    assert_same(
        |[x, y, _]| x.reshape(&[1, 2, 3]).conv1d(y.reshape(&[1, 2, 3]), None, Conv1d::default()),
        |g, [x, y, _]| {
            let (x, y) = (three(g, x)?, three(g, y)?);
            g.conv1d(x, y, None, Conv1d::default())
        },
    );
    assert_same(
        |[x, y, _]| {
            let bias = x.slice(0, 0, 1).slice(1, 0, 1).reshape(&[1]);
            x.reshape(&[1, 2, 3]).conv1d(y.reshape(&[1, 2, 3]), Some(bias), Conv1d::default())
        },
        |g, [x, y, _]| {
            let bias = g.slice(x, 0, 0, 1)?;
            let bias = g.slice(bias, 1, 0, 1)?;
            let bias = g.reshape(bias, &[1])?;
            let (x, y) = (three(g, x)?, three(g, y)?);
            g.conv1d(x, y, Some(bias), Conv1d::default())
        },
    );
    let scope = Scope::new();
    let mut g = Graph::new();
    let inputs = [
        ("x", &[1, 2, 3][..]),
        ("w3", &[6, 3]),
        ("u3", &[6, 2]),
        ("b3", &[6]),
        ("w4", &[8, 3]),
        ("u4", &[8, 2]),
        ("b4", &[8]),
    ];
    let [x, input, hidden, bias, input4, hidden4, bias4] =
        inputs.map(|(name, sizes)| scope.input(name, DType::F32, sizes));
    let gru = x.gru(&Gru { input, hidden, input_bias: bias, hidden_bias: bias });
    let lstm = x.lstm(&Lstm { input: input4, hidden: hidden4, input_bias: bias4, hidden_bias: bias4 });
    let [x, input, hidden, bias, input4, hidden4, bias4] =
        inputs.map(|(name, sizes)| g.input(name, DType::F32, sizes).unwrap());
    let same = g.gru(x, &Gru { input, hidden, input_bias: bias, hidden_bias: bias }).unwrap();
    g.output("gru", same).unwrap();
    let cell = Lstm { input: input4, hidden: hidden4, input_bias: bias4, hidden_bias: bias4 };
    let same = g.lstm(x, &cell).unwrap();
    g.output("lstm", same).unwrap();
    let graph = scope.graph(&[("gru", gru), ("lstm", lstm)]).unwrap();
    assert_eq!(graph.fingerprint(), g.fingerprint());
}

#[test]
fn errors_name_the_line_of_the_expression_once() {
    let scope = Scope::new();
    let x = scope.input("x", DType::F32, &[2, 3]);
    let first = line!() + 1;
    let wrong = x.matmul(x);
    let follows = ((wrong + x) * 2.0 - 1.0).relu().sum(&[9]);
    let second = line!() + 1;
    let other = 1.0 - x + scope.input("y", DType::F32, &[4]);
    let [gradient] = other.sum_all().gradients([x]);
    assert_eq!(format!("{follows:?} {x:?}"), "invalid %0 f32[2, 3]");
    let outputs = [("follows", follows), ("gradient", gradient)];
    let message = scope.graph(&outputs).unwrap_err().to_string();
    let lines: Vec<&str> = message.lines().collect();
    assert_eq!(lines.len(), 2, "{message}");
    assert!(lines[0].contains(&format!("{}:{first}:", file!())), "{message}");
    assert!(
        lines[0].ends_with("matmul(%0 f32[2, 3], %0 f32[2, 3]): needs [.., m, k] and [.., k, n]"),
        "{message}"
    );
    assert!(lines[1].contains(&format!("{}:{second}:", file!())), "{message}");
    assert!(lines[1].ends_with("the shapes do not broadcast"), "{message}");
    assert_eq!(scope.compile(&outputs).unwrap_err().to_string(), message);
}

#[test]
fn every_kind_of_expression_has_a_place() {
    type Expression = for<'s> fn(&'s Scope, Tensor<'s>) -> Tensor<'s>;
    let expressions: [(u32, Expression); 12] = [
        (line!(), |_, x| x.exp()),
        (line!(), |_, x| x + 0.5),
        (line!(), |_, x| 0.5 * &x),
        (line!(), |s, x| s.constant(DType::F32, 1.0) - x),
        (line!(), |_, x| x.select(x, 0.5)),
        (line!(), |_, x| x.less_equal(0.5)),
        (line!(), |_, x| x.softmax(7)),
        (line!(), |s, x| s.concat(&[x, x], 7)),
        (line!(), |s, _| s.input("x", DType::F64, &[2, 3])),
        (line!(), |s, _| s.data(DType::F32, &[2], &[1.0])),
        (line!(), |_, x| x.sum_all().gradients([x])[0]),
        (line!(), |_, x| x.reduce(Reduction::Max, &[7])),
    ];
    for (line, expression) in expressions {
        let scope = Scope::new();
        let y = expression(&scope, scope.input("x", DType::I32, &[2, 3]));
        let error = scope.graph(&[("y", y)]).unwrap_err().to_string();
        assert!(error.contains(&format!("tests.rs:{line}:")), "{error}");
    }
}

#[test]
fn tensors_of_two_scopes_do_not_mix() {
    let (one, two) = (Scope::new(), Scope::new());
    let (x, y) = (one.input("x", DType::F32, &[2]), two.input("y", DType::F32, &[2]));
    let sum = x + y;
    let error = one.graph(&[("sum", sum)]).unwrap_err().to_string();
    assert!(error.contains("add: a tensor of another scope"), "{error}");
    let error = two.graph(&[("y", y), ("sum", sum)]).unwrap_err().to_string();
    assert!(error.contains("output \"sum\": a tensor of another scope"), "{error}");
    assert!(two.graph(&[("y", y)]).is_ok());
}

#[test]
fn fractions_do_not_become_integers() {
    let scope = Scope::new();
    let i = scope.input("i", DType::I32, &[2]);
    assert!(scope.graph(&[("y", i * 3.0)]).is_ok());
    let error = scope.graph(&[("y", i * 0.5)]).unwrap_err().to_string();
    assert!(error.contains("number 0.5(%0 i32[2]): a number with a fraction"), "{error}");
}

#[test]
fn a_graph_has_only_what_its_outputs_depend_on() {
    let scope = Scope::relaxed();
    let (x, label) = (scope.input("x", DType::F32, &[8, 16]), scope.input("label", DType::F32, &[8, 16]));
    let w = scope.input("w", DType::F32, &[16, 16]);
    let y = x.matmul(w).tanh();
    let [dw] = y.mse(label).gradients([w]);
    let training = scope.compile(&[("y", y), ("dw", dw)]).unwrap();
    let inference = scope.graph(&[("y", y)]).unwrap();
    assert!(inference.is_relaxed());
    assert_eq!(inference.inputs().map(|(name, _)| name).collect::<Vec<_>>(), ["x", "w"]);

    // The memory of a program without gradients is that of one that never had any.
    let alone = Scope::relaxed();
    let (x, w) = (alone.input("x", DType::F32, &[8, 16]), alone.input("w", DType::F32, &[16, 16]));
    let plain = alone.compile(&[("y", x.matmul(w).tanh())]).unwrap();
    let inference = Program::new(&inference).unwrap();
    assert_eq!(inference.bytes(), plain.bytes());
    assert_eq!(inference.kernels(), plain.kernels());
    // At least the gradient of w, and the label.
    assert!(training.bytes() >= inference.bytes() + 4 * (16 * 16 + 8 * 16), "{training}");
    assert_eq!(
        scope.graph(&[("y", y), ("y", y)]).unwrap_err(),
        GraphError::OutputExists { name: "y".into() }
    );
}
