//! Cells compared with their definition, with the interpreter, and between numbers of threads.

use super::*;
use crate::Program;
use crate::arbitrary::{self, assert_close};
use crate::interpret::Value;
use crate::kernel::tests::on_every_level;
use proptest::prelude::*;

/// The states of a cell in elementary operations, step by step.
fn unrolled(g: &mut Graph, cell: Cell, x: Id, weights: [Id; 4]) -> Result<Id, GraphError> {
    let [input, hidden, input_bias, hidden_bias] = weights;
    let &[batch, time, inputs] = &*g.shape(x) else { unreachable!("inputs have three axes") };
    let width = g.shape(hidden)[1];
    let mut steps = Vec::new();
    for t in 0..time {
        let now = g.slice(x, 1, t, t + 1)?;
        steps.push(g.reshape(now, &[1, batch, inputs])?);
    }
    let by_step = g.concat(&steps, 0)?;
    let [input, hidden] = [g.transpose(input)?, g.transpose(hidden)?];
    let tape = g.composed_recurrent(cell, [by_step, input, hidden, input_bias, hidden_bias])?;
    let mut states = Vec::new();
    for t in 0..time {
        let now = g.slice(tape, 1, t, t + 1)?;
        let now = g.slice(now, 0, 0, 1)?;
        states.push(g.reshape(now, &[batch, 1, width])?);
    }
    g.concat(&states, 1)
}

/// The inputs, weights and biases of a cell as inputs of a graph.
fn inputs_of(
    g: &mut Graph,
    cell: Cell,
    dtype: DType,
    [batch, time, inputs, width]: [usize; 4],
) -> (Id, [Id; 4]) {
    let x = g.input("x", dtype, &[batch, time, inputs]).unwrap();
    let rows = cell.gates() * width;
    let shapes: [&[usize]; 4] = [&[rows, inputs], &[rows, width], &[rows], &[rows]];
    (x, [0, 1, 2, 3].map(|i| g.input(&format!("w{i}"), dtype, shapes[i]).unwrap()))
}

/// A weighted sum of the states and its gradients, as outputs.
fn graph(cell: Cell, dtype: DType, [batch, time, inputs, width]: [usize; 4], fused: bool) -> Graph {
    let mut g = Graph::new();
    let (x, weights) = inputs_of(&mut g, cell, dtype, [batch, time, inputs, width]);
    let states = if fused { g.cell(cell, x, weights) } else { unrolled(&mut g, cell, x, weights) }.unwrap();
    let factors = (0..batch * time * width).map(|i| (i % 7) as f64 - 3.0).collect::<Vec<_>>();
    let factors = g.data(dtype, &[batch, time, width], &factors).unwrap();
    let weighted = g.mul(states, factors).unwrap();
    let loss = g.sum_all(weighted).unwrap();
    let of = [x, weights[0], weights[1], weights[2], weights[3]];
    let gradients = g.gradients(loss, &of).unwrap();
    g.output("states", states).unwrap();
    gradients.iter().enumerate().for_each(|(i, &id)| g.output(&format!("d{i}"), id).unwrap());
    g
}

fn number(i: usize) -> f64 {
    (i * 7919 % 1013) as f64 / 1013.0 - 0.5
}

/// The outputs for fixed pseudo-random inputs.
fn run(g: &Graph) -> Vec<Vec<f64>> {
    let value = |id| {
        let shape = g.shape(id);
        Value::float(g.dtype(id), shape, (0..shape.elements()).map(number).collect())
    };
    let inputs: Vec<(String, Value)> = g.inputs().map(|(name, id)| (name.to_string(), value(id))).collect();
    arbitrary::run(g, &inputs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_cell_equals_its_definition(
        batch in 1usize..40, time in 1usize..5, inputs in 0usize..4, width in 1usize..11, lstm: bool,
    ) {
        let cell = if lstm { Cell::Lstm } else { Cell::Gru };
        let sizes = [batch, time, inputs, width];
        for (dtype, tolerance) in [(DType::F32, 1e-5), (DType::F64, 1e-13)] {
            let right = run(&graph(cell, dtype, sizes, false));
            assert_close(&run(&graph(cell, dtype, sizes, true)), &right, tolerance);
        }
    }
}

/// With few rows the inputs of several steps are multiplied at once: several such blocks and a remainder. And gates of several
/// panels.
#[test]
#[cfg_attr(miri, ignore = "too long")]
fn a_cell_of_few_rows_equals_its_definition() {
    for (cell, sizes) in [
        (Cell::Gru, [1, 67, 3, 5]),
        (Cell::Lstm, [3, 23, 2, 7]),
        (Cell::Lstm, [1, 35, 2, 40]),
        (Cell::Gru, [8, 9, 0, 6]),
    ] {
        let right = run(&graph(cell, DType::F32, sizes, false));
        assert_close(&run(&graph(cell, DType::F32, sizes, true)), &right, 1e-4);
    }
}

/// Several vectors of units and a remainder, tiles of several heights, several blocks of steps and a remainder. The batch is
/// small enough for one thread, because the instruction set is overridden for the current thread only.
#[test]
#[cfg_attr(miri, ignore = "too long")]
fn a_cell_equals_its_definition_on_every_instruction_set() {
    let sizes = [[7, 41, 2, 37], [8, 37, 1, 21], [1, 35, 2, 40], [3, 13, 0, 17], [0, 3, 2, 5]];
    for (cell, sizes) in sizes.into_iter().flat_map(|sizes| [(Cell::Gru, sizes), (Cell::Lstm, sizes)]) {
        let right = run(&graph(cell, DType::F64, sizes, false));
        on_every_level(|| {
            assert_close(&run(&graph(cell, DType::F32, sizes, true)), &right, 1e-4);
            assert_close(&run(&graph(cell, DType::F64, sizes, true)), &right, 1e-12);
        });
    }
}

#[test]
fn a_row_has_the_same_bits_in_any_batch() {
    let (time, inputs, width) = (35, 3, 19);
    for (cell, dtype) in [(Cell::Gru, DType::F32), (Cell::Lstm, DType::F32), (Cell::Gru, DType::F64)] {
        let states = |batch: usize| {
            let mut g = Graph::new();
            let (x, weights) = inputs_of(&mut g, cell, dtype, [batch, time, inputs, width]);
            let states = g.cell(cell, x, weights).unwrap();
            g.output("states", states).unwrap();
            run(&g).remove(0)
        };
        let all = states(23);
        for batch in [1, 3, 4, 5, 8, 14] {
            assert_eq!(states(batch), all[..batch * time * width], "{cell:?} {dtype} {batch}");
        }
    }
}

#[test]
fn the_gradient_of_the_inputs_is_computed_only_if_it_is_read() {
    let bytes = |of_inputs: bool| {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[9, 4, 3]).unwrap();
        let shapes: [&[usize]; 4] = [&[20, 3], &[20, 5], &[20], &[20]];
        let w = [0, 1, 2, 3].map(|i| g.input(&format!("w{i}"), DType::F32, shapes[i]).unwrap());
        let states = g.cell(Cell::Lstm, x, w).unwrap();
        let loss = g.sum_all(states).unwrap();
        let of = if of_inputs { vec![x, w[0]] } else { vec![w[0]] };
        for (i, id) in g.gradients(loss, &of).unwrap().into_iter().enumerate() {
            g.output(&format!("d{i}"), id).unwrap();
        }
        let program = Program::new(&g).unwrap();
        let place = program.kernels().iter().position(|kernel| kernel.starts_with("lstm gradient"));
        program.traffic()[place.unwrap()]
    };
    assert_eq!(bytes(true) - bytes(false), 4 * 9 * 4 * 3);
}

#[test]
fn without_a_gradient_the_gates_are_not_stored() {
    for cell in [Cell::Gru, Cell::Lstm] {
        let mut g = Graph::new();
        let (x, weights) = inputs_of(&mut g, cell, DType::F32, [13, 4, 3, 9]);
        let states = g.cell(cell, x, weights).unwrap();
        g.output("states", states).unwrap();
        let with_gradient = graph(cell, DType::F32, [13, 4, 3, 9], true);
        assert_eq!(run(&g)[0], run(&with_gradient)[0]);
        let bytes = |g: &Graph| {
            let program = Program::new(g).unwrap();
            let name = format!("{cell:?} f32").to_lowercase();
            let place = program.kernels().iter().position(|kernel| kernel.starts_with(&name));
            program.traffic()[place.unwrap()]
        };
        assert!(bytes(&g) < bytes(&with_gradient));
    }
}

#[test]
fn without_a_gradient_a_step_takes_the_memory_of_its_inputs_and_states() {
    let (batch, inputs, width) = (13, 3, 9);
    for cell in [Cell::Gru, Cell::Lstm] {
        let bytes = |time: usize| {
            let mut g = Graph::new();
            let (x, weights) = inputs_of(&mut g, cell, DType::F32, [batch, time, inputs, width]);
            let states = g.cell(cell, x, weights).unwrap();
            g.output("states", states).unwrap();
            Program::new(&g).unwrap().bytes()
        };
        // The inputs by step, the states by step, and both in the order of the graph.
        let step = 4 * batch * 2 * (inputs + width);
        let growth = bytes(96) - bytes(32);
        assert!(growth <= 64 * step + 4096, "{cell:?}: {growth} bytes for 64 steps of {step}");
    }
}

#[test]
fn cells_equal_the_interpreter() {
    for cell in [Cell::Gru, Cell::Lstm] {
        let g = graph(cell, DType::F64, [3, 4, 2, 5], true);
        let value = |(name, id): (&str, Id)| {
            let numbers = (0..g.shape(id).elements()).map(number).collect();
            (name.to_string(), Value::float(DType::F64, g.shape(id), numbers))
        };
        let inputs: Vec<_> = g.inputs().map(value).collect();
        assert_close(&run(&g), &interpreted(&g, &inputs), 1e-13);
    }
}

/// Steps, inputs and units of a cell whose gradients fade to about a tenth in a step.
const FADING: [usize; 3] = [90, 3, 6];

/// A graph of the gradients of `factor` times the sum of the last states of such a cell, and values for its inputs, which
/// `change` modifies.
fn of_last_states(
    cell: Cell,
    dtype: DType,
    batch: usize,
    factor: f64,
    change: &dyn Fn(&str, &mut [f64]),
) -> (Graph, Vec<(String, Value)>) {
    let [time, inputs, width] = FADING;
    let mut g = Graph::new();
    let (x, weights) = inputs_of(&mut g, cell, dtype, [batch, time, inputs, width]);
    let states = g.cell(cell, x, weights).unwrap();
    let last = g.slice(states, 1, time - 1, time).unwrap();
    let sum = g.sum_all(last).unwrap();
    let factor = g.constant(dtype, factor);
    let loss = g.mul(sum, factor).unwrap();
    let of = [x, weights[0], weights[1], weights[2], weights[3]];
    for (i, id) in g.gradients(loss, &of).unwrap().into_iter().enumerate() {
        g.output(&format!("d{i}"), id).unwrap();
    }
    let value = |(name, id): (&str, Id)| {
        let mut numbers: Vec<f64> = (0..g.shape(id).elements()).map(|i| number(i) * 0.3).collect();
        if name == "w3" {
            // The update or forget gate is nearly closed.
            numbers[width..2 * width].fill(-2.5);
        }
        change(name, &mut numbers);
        (name.to_string(), Value::float(dtype, g.shape(id), numbers))
    };
    let values = g.inputs().map(value).collect();
    (g, values)
}

fn interpreted(g: &Graph, inputs: &[(String, Value)]) -> Vec<Vec<f64>> {
    let named: Vec<_> = inputs.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    g.interpret(&named).unwrap().iter().map(Value::to_f64).collect()
}

/// Asserts that the gradients of the inputs agree at every step, relative to the largest of the step or to `least`.
fn assert_steps_agree(ours: &[f64], right: &[f64], batch: usize, least: f64) {
    let [time, inputs, _] = FADING;
    for t in 0..time {
        let places = (0..batch * inputs).map(|i| (i / inputs * time + t) * inputs + i % inputs);
        let most = places.clone().map(|i| right[i].abs()).fold(0.0, f64::max);
        let wrong = places.map(|i| (ours[i] - right[i]).abs()).fold(0.0, f64::max);
        assert!(wrong <= (most * 1e-3).max(least), "step {t}: {wrong} of {most}");
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn only_vanished_gradients_are_dropped() {
    let first_inputs = |of_inputs: &[f64], batch: usize| -> Vec<f64> {
        let [time, inputs, _] = FADING;
        (0..batch).flat_map(|row| of_inputs[row * time * inputs..][..inputs].to_vec()).collect()
    };
    for cell in [Cell::Gru, Cell::Lstm] {
        let check = |batch: usize| {
            // In f64 none of them is small enough to be dropped.
            let (wide, inputs) = of_last_states(cell, DType::F64, batch, 1.0, &|_, _| {});
            let right = interpreted(&wide, &inputs);
            let ours = arbitrary::run(&wide, &inputs);
            assert_close(&ours, &right, 1e-13);
            assert_steps_agree(&ours[0], &right[0], batch, 0.0);
            assert!(first_inputs(&ours[0], batch).iter().any(|&x| x != 0.0), "{cell:?}");
            let (narrow, inputs) = of_last_states(cell, DType::F32, batch, 1.0, &|_, _| {});
            let ours = arbitrary::run(&narrow, &inputs);
            assert_close(&ours, &right, 1e-5);
            assert_steps_agree(&ours[0], &right[0], batch, 1e-18);
            assert!(first_inputs(&ours[0], batch).iter().all(|&x| x == 0.0), "{cell:?}");
            let (small, inputs) = of_last_states(cell, DType::F64, batch, 1e-150, &|_, _| {});
            let ours = arbitrary::run(&small, &inputs);
            assert!(first_inputs(&ours[0], batch).iter().all(|&x| x == 0.0), "{cell:?}");
        };
        check(70);
        // Small enough for one thread: the instruction set is overridden for the current thread only.
        on_every_level(|| check(7));
    }
}

/// A GRU whose update gate is 1 keeps its state: the gates have no gradient, and earlier steps have all of it.
fn keeping(dtype: DType) -> (Graph, Vec<(String, Value)>) {
    let [time, inputs, width] = FADING;
    of_last_states(Cell::Gru, dtype, 20, 1.0, &move |name, numbers| match name {
        "w0" => (width..2 * width).for_each(|row| numbers[row * inputs] = 1.0),
        // For the first rows, in the second half of the steps.
        "x" => {
            for (i, number) in numbers.iter_mut().enumerate().filter(|(i, _)| i % inputs == 0) {
                let (row, step) = (i / inputs / time, i / inputs % time);
                *number = if row < 9 && step >= time / 2 { 100.0 } else { 0.0 };
            }
        }
        _ => {}
    })
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn gradients_pass_gates_that_have_none() {
    let (g, inputs) = keeping(DType::F64);
    let right = interpreted(&g, &inputs);
    assert!(
        right[0][..FADING[0] / 2 * FADING[1]].iter().any(|x| x.abs() > 1e-3),
        "gradients reach the first half"
    );
    let (g, inputs) = keeping(DType::F32);
    let ours = arbitrary::run(&g, &inputs);
    assert_close(&ours, &right, 1e-5);
    assert_steps_agree(&ours[0], &right[0], 20, 1e-18);
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn dropped_gradients_do_not_depend_on_the_number_of_threads() {
    let graphs = [Cell::Gru, Cell::Lstm].map(|cell| of_last_states(cell, DType::F32, 70, 1.0, &|_, _| {}));
    for (g, inputs) in graphs.into_iter().chain([keeping(DType::F32)]) {
        let [one, more @ ..] = [1, 2, 3, 7].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let bits = |x: &f64| x.to_bits();
            pool.install(|| arbitrary::run(&g, &inputs).concat().iter().map(bits).collect::<Vec<_>>())
        });
        assert!(more.iter().all(|more| *more == one));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn nan_and_infinity_reach_vanished_gradients() {
    let is_nan = |all: &[Vec<f64>]| -> Vec<bool> { all.iter().flatten().map(|x| x.is_nan()).collect() };
    for cell in [Cell::Gru, Cell::Lstm] {
        for wild in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN] {
            // The first input, which belongs to the first step, or the last weight.
            for place in ["x", "w0", "w1"] {
                let (g, inputs) = of_last_states(cell, DType::F32, 20, 1.0, &|name, numbers| {
                    let at = if name == "x" { 0 } else { numbers.len() - 1 };
                    numbers[at] = if name == place { wild } else { numbers[at] };
                });
                let right = is_nan(&interpreted(&g, &inputs));
                assert!(right.contains(&true), "{cell:?} {place} {wild}");
                assert!(is_nan(&arbitrary::run(&g, &inputs)) == right, "{cell:?} {place} {wild}");
            }
        }
    }
}

#[test]
fn a_cell_has_the_same_bits_on_any_number_of_threads() {
    // In the last one the matrix multiplications are parallel themselves.
    let cases = [
        (Cell::Gru, 130, 9),
        (Cell::Lstm, 50, 9),
        (Cell::Gru, 21, 9),
        (Cell::Lstm, 9, 9),
        (Cell::Lstm, 300, 48),
    ];
    for ((cell, batch, width), dtype) in
        cases.into_iter().flat_map(|case| [(case, DType::F32), (case, DType::F64)])
    {
        let g = graph(cell, dtype, [batch, 3, 2, width], true);
        let [one, more @ ..] = [1, 2, 3, 7].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| run(&g))
        });
        assert!(more.iter().all(|more| *more == one), "{cell:?} {dtype} {batch}");
    }
}

#[test]
fn mismatched_sizes_and_second_derivatives_are_refused() {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[2, 3, 4]).unwrap();
    let (w, b) = (g.input("w", DType::F32, &[9, 4]).unwrap(), g.input("b", DType::F32, &[9]).unwrap());
    let error =
        g.gru(x, &Gru { input: w, hidden: w, input_bias: b, hidden_bias: b }).unwrap_err().to_string();
    assert!(error.contains("gru(") && error.contains("[9, 4]"), "{error}");
    let hidden = g.input("h", DType::F32, &[9, 3]).unwrap();
    let y = g.gru(x, &Gru { input: w, hidden, input_bias: b, hidden_bias: b }).unwrap();
    let sum = g.sum_all(y).unwrap();
    let gradient = g.gradients(sum, &[x]).unwrap()[0];
    let sum = g.sum_all(gradient).unwrap();
    let error = g.gradients(sum, &[x]).unwrap_err().to_string();
    assert!(error.contains("gru_gradient cannot be differentiated"), "{error}");
}
