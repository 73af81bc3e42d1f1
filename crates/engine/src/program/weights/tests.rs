//! Tests of shared weights.

use super::*;
use crate::{Graph, Program};
use proptest::prelude::*;

/// Names of inputs and their elements.
type Inputs = Vec<(&'static str, Vec<f32>)>;

fn number(seed: usize, i: usize) -> f32 {
    ((i * 7919 + seed * 31) % 1013) as f32 / 506.5 - 1.0
}

/// A network of two layers, and its inputs, of which the first one is `x`.
pub(crate) fn layers(batch: usize) -> (Graph, Inputs) {
    let mut g = Graph::new();
    let (mut y, mut inputs) = (g.input("x", DType::F32, &[batch, 37]).unwrap(), Vec::new());
    inputs.push(("x", (0..batch * 37).map(|i| number(1, i)).collect()));
    for (names, sizes) in [(["v", "b"], [37, 50]), (["w", "c"], [50, 21])] {
        let w = g.input(names[0], DType::F32, &sizes).unwrap();
        let b = g.input(names[1], DType::F32, &sizes[1..]).unwrap();
        y = g.matmul(y, w).unwrap();
        y = g.add(y, b).unwrap();
        y = g.relu(y).unwrap();
        inputs.push((names[0], (0..sizes[0] * sizes[1]).map(|i| number(sizes[0], i) / 6.0).collect()));
        inputs.push((names[1], (0..sizes[1]).map(|i| number(7, i)).collect()));
    }
    g.output("y", y).unwrap();
    (g, inputs)
}

fn in_format(g: &Graph, inputs: &Inputs, format: WeightFormat) -> Arc<Weights> {
    let names: Vec<&str> = inputs[1..].iter().map(|(name, _)| *name).collect();
    let mut weights = Weights::builder(g, &names, format).unwrap();
    for (name, values) in &inputs[1..] {
        weights.write(name, values).unwrap();
    }
    weights.finish().unwrap()
}

/// All inputs but the first one as weights.
pub(crate) fn shared(g: &Graph, inputs: &Inputs) -> Arc<Weights> {
    in_format(g, inputs, WeightFormat::F32)
}

/// The output of a graph: with all inputs written, or with shared weights.
fn output(g: &Graph, inputs: &Inputs, weights: Option<&Arc<Weights>>) -> Vec<f32> {
    let mut runner = match weights {
        Some(weights) => Program::with_weights(g, weights).unwrap().runner(),
        None => Program::new(g).unwrap().runner(),
    };
    for (name, values) in &inputs[..if weights.is_some() { 1 } else { inputs.len() }] {
        runner.write(name, values).unwrap();
    }
    runner.run();
    runner.read::<f32>("y").unwrap().to_vec()
}

#[test]
fn programs_of_all_batch_sizes_read_one_copy_with_the_same_bits() {
    let (g, inputs) = layers(1);
    let weights = shared(&g, &inputs);
    assert!(weights.tensors.iter().all(|tensor| {
        matches!((tensor.shape.axes(), &tensor.form), (2, Form::Packed(_)) | (1, Form::Plain(_)))
    }));
    for batch in [1, 2, 3, 4, 5, 33, 100] {
        let (g, inputs) = layers(batch);
        let program = Program::with_weights(&g, &weights).unwrap();
        assert!(program.unpacked.is_empty() && program.packed.len() == 2);
        let plain = Program::new(&g).unwrap();
        assert!(program.bytes() + 4 * (37 * 50 + 50 * 21) <= plain.bytes(), "weights are not in the arena");
        assert_eq!(output(&g, &inputs, Some(&weights)), output(&g, &inputs, None), "{batch}");
    }
    // Panels are padded to whole vectors.
    assert!(weights.bytes() <= 4 * (37 * 64 + 50 * 32 + 64 + 32), "{}", weights.bytes());
    for (name, values) in &inputs[1..] {
        assert_eq!(weights.read(name).unwrap(), *values, "{name}");
    }
    assert!(
        weights.read("u").unwrap_err().to_string().contains("there is no weight \"u\"; there are v, b, w, c")
    );
}

/// Slices of a weight, a batch of products with one weight, a transposed weight, and a weight that something else reads.
fn uses(rows: usize) -> (Graph, Inputs) {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[rows, 6, 4]).unwrap();
    let kernel = g.input("kernel", DType::F32, &[2, 4, 5]).unwrap();
    let parts = [0, 1].map(|k| {
        let part = g.slice(kernel, 0, k, k + 1).unwrap();
        let seen = g.slice(x, 1, k, k + 5).unwrap();
        g.matmul(seen, part).unwrap()
    });
    let sum = g.add(parts[0], parts[1]).unwrap();
    let turned = g.input("turned", DType::F32, &[7, 5]).unwrap();
    let turned = g.permute(turned, &[1, 0]).unwrap();
    let turned = g.matmul(sum, turned).unwrap();
    let square = g.input("square", DType::F32, &[7, 7]).unwrap();
    let product = g.matmul(turned, square).unwrap();
    let mean = g.mean_all(square).unwrap();
    let y = g.add(product, mean).unwrap();
    g.output("y", y).unwrap();
    let sizes = [("x", rows * 24), ("kernel", 40), ("turned", 35), ("square", 49)];
    (g, sizes.map(|(name, len)| (name, (0..len).map(|i| number(len % 50, i)).collect())).to_vec())
}

#[test]
fn slices_batches_and_other_readers_give_the_same_bits() {
    for first in [1, 4] {
        let (g, inputs) = uses(first);
        let weights = shared(&g, &inputs);
        let is_packed = |name: &str| matches!(weights.find(name).unwrap().form, Form::Packed(_));
        assert!(is_packed("kernel") && is_packed("turned") && !is_packed("square"));
        for rows in [1, 2, 9] {
            let (g, inputs) = uses(rows);
            assert_eq!(output(&g, &inputs, Some(&weights)), output(&g, &inputs, None), "{rows}");
        }
    }
}

/// A program that needs another form of packed weights has a copy of them.
#[test]
fn weights_that_are_packed_otherwise_are_unpacked() {
    let (g, inputs) = layers(1);
    let weights = shared(&g, &inputs);
    let mut other = Graph::new();
    let x = other.input("x", DType::F32, &[1, 37]).unwrap();
    let v = other.input("v", DType::F32, &[37, 50]).unwrap();
    let part = other.slice(v, 1, 3, 20).unwrap();
    let y = other.matmul(x, part).unwrap();
    other.output("y", y).unwrap();
    let program = Program::with_weights(&other, &weights).unwrap();
    assert_eq!((program.packed.len(), program.unpacked.len()), (0, 1));
    assert_eq!(output(&other, &inputs, Some(&weights)), output(&other, &inputs[..2].to_vec(), None));
}

#[test]
fn misuse_is_an_error() {
    let (g, inputs) = layers(1);
    let weights = shared(&g, &inputs);
    let mut runner = Program::with_weights(&g, &weights).unwrap().runner();
    for name in ["v", "b"] {
        let message = runner.write(name, &[0.0f32; 3]).unwrap_err().to_string();
        assert!(message.contains("is part of the shared weights of the program"), "{message}");
        assert!(runner.input_mut::<f32>(name).is_err());
    }
    assert!(runner.bind(&[("x", 0..37)], &[]).is_err());
    assert!(runner.bind_updates(&[]).is_err());
    assert!(
        runner.run_bound(&[0.0; 40], None).is_err()
            && runner.run_updating(&mut [], &mut |_, _, _| {}).is_err()
    );
    let mut other = Graph::new();
    let v = other.input("v", DType::F32, &[50, 37]).unwrap();
    other.output("y", v).unwrap();
    let message = Program::with_weights(&other, &weights).unwrap_err().to_string();
    assert_eq!(message, "\"v\" is f32[50, 37], but was accessed as f32[37, 50] of weights");
    let mut builder = Weights::builder(&g, &["v", "b"], WeightFormat::F32).unwrap();
    assert!(builder.write("w", &[]).is_err() && builder.write("v", &[0.0; 3]).is_err());
    builder.write("v", &inputs[1].1).unwrap();
    assert_eq!(builder.finish().unwrap_err().to_string(), "the weights \"b\" were not written");
    assert!(Weights::builder(&g, &["u"], WeightFormat::F32).is_err());
}

#[test]
fn quantized_weights_are_close_and_smaller() {
    let (g, inputs) = layers(1);
    let weights = in_format(&g, &inputs, WeightFormat::Int8);
    assert!(weights.names_of(WeightFormat::Int8) == ["v", "w"] || !int8::is_fast(), "both products");
    for batch in [1, 2, 5, 70] {
        let (g, inputs) = layers(batch);
        let (exact, rounded) = (output(&g, &inputs, None), output(&g, &inputs, Some(&weights)));
        let most = exact.iter().fold(0.0f32, |most, x| most.max(*x));
        let error = exact.iter().zip(&rounded).fold(0.0f32, |most, (x, y)| most.max((x - y).abs()));
        assert!(
            most > 0.2 && error < 0.02 * most && (error > 0.0 || !int8::is_fast()),
            "{batch}: {error} of {most}"
        );
    }
    if int8::is_fast() {
        // Panels of 16 outputs are padded.
        assert!(2 * weights.bytes() < 4 * (37 * 50 + 50 * 21), "{}", weights.bytes());
        let rounded = weights.read("v").unwrap();
        assert!(
            rounded.iter().zip(&inputs[1].1).all(|(x, y)| (x - y).abs() < 0.001) && rounded != inputs[1].1
        );
    }
}

#[test]
fn half_precision_takes_half_the_memory_and_gives_the_results_of_rounded_weights() {
    let (g, inputs) = layers(1);
    let weights = in_format(&g, &inputs, WeightFormat::F16);
    assert!(weights.bytes() < shared(&g, &inputs).bytes() * 11 / 20);
    assert_eq!(weights.names_of(WeightFormat::F16), ["v", "w"]);
    for batch in [1, 3, 33] {
        let (g, mut inputs) = layers(batch);
        let exact = output(&g, &inputs, None);
        for (name, values) in &mut inputs[1..] {
            *values = weights.read(name).unwrap();
        }
        let rounded = output(&g, &inputs, Some(&weights));
        assert_eq!(rounded, output(&g, &inputs, None), "{batch}");
        assert!(
            rounded != exact && rounded.iter().zip(&exact).all(|(x, y)| (x - y).abs() < 0.002),
            "{batch}"
        );
    }
}

/// NaN and infinity propagate through several layers.
#[test]
fn nonfinite_activations_propagate() {
    let (g, mut inputs) = layers(4);
    let weights = in_format(&g, &inputs, WeightFormat::Int8);
    for bad in [f32::NAN, f32::INFINITY] {
        inputs[0].1[5] = bad;
        let y = output(&g, &inputs, Some(&weights));
        assert!(y[..21].iter().all(|y| !y.is_finite()) && y[21..].iter().all(|y| y.is_finite()));
    }
}

#[test]
fn quantized_products_have_the_same_bits_on_any_number_of_threads() {
    let (g, inputs) = layers(300);
    let weights = in_format(&g, &inputs, WeightFormat::Int8);
    let results = [1, 2, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| output(&g, &inputs, Some(&weights)))
    });
    assert!(results.iter().all(|result| *result == results[0]));
}

/// Only whole tensors: whether slices could be quantised would depend on the batch.
#[test]
fn slices_and_sums_are_not_quantized() {
    let (g, inputs) = uses(3);
    let weights = in_format(&g, &inputs, WeightFormat::Int8);
    let quantized = weights.names_of(WeightFormat::Int8);
    assert!(!quantized.contains(&"kernel") && !quantized.contains(&"square"), "{quantized:?}");
}

#[test]
fn nonfinite_weights_are_multiplied_in_f32() {
    let (g, mut inputs) = layers(4);
    inputs[3].1.fill(f32::NAN);
    let weights = in_format(&g, &inputs, WeightFormat::Int8);
    assert!(output(&g, &inputs, Some(&weights)).iter().all(|y| y.is_nan()));
}

proptest! {
    #![proptest_config(crate::kernel::tests::cases(64))]

    #[test]
    fn any_layer_gives_the_same_bits(
        rows in 1usize..20, sizes in prop::array::uniform2(1usize..70), has_bias: bool, relu: bool,
    ) {
        let mut g = Graph::new();
        let x = g.input("x", DType::F32, &[rows, sizes[0]]).unwrap();
        let w = g.input("w", DType::F32, &sizes).unwrap();
        let mut inputs: Inputs = vec![("x", (0..rows * sizes[0]).map(|i| number(3, i).max(0.0)).collect())];
        inputs.push(("w", (0..sizes[0] * sizes[1]).map(|i| number(5, i)).collect()));
        let mut y = g.matmul(x, w).unwrap();
        if has_bias {
            let b = g.input("b", DType::F32, &[sizes[1]]).unwrap();
            inputs.push(("b", (0..sizes[1]).map(|i| number(7, i)).collect()));
            y = g.add(y, b).unwrap();
        }
        if relu {
            y = g.relu(y).unwrap();
        }
        g.output("y", y).unwrap();
        let weights = shared(&g, &inputs);
        prop_assert_eq!(output(&g, &inputs, Some(&weights)), output(&g, &inputs, None));
        prop_assert_eq!(&weights.read("w").unwrap(), &inputs[1].1);
    }
}
