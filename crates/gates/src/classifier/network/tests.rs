//! Tests of the network: gradients, the hard circuit, threads and errors.

use super::*;
use crate::soft::Numbers;

const INPUTS: usize = 7;
const CLASSES: usize = 3;

fn settings(wiring: Connections, learned_layers: Option<usize>, numbers: Numbers) -> NetworkSettings {
    let layers = vec![9, 8, 6];
    NetworkSettings { layers, wiring, candidates: 4, learned_layers, numbers, ..NetworkSettings::default() }
}

/// Two planes of 5x4 bits, three of which the encoder leaves out.
fn planes() -> Inputs {
    let mut bits: Vec<Option<u32>> = (0..40u32).map(|i| (i % 17 != 3).then(|| i - (i + 13) / 17)).collect();
    bits.swap(0, 20);
    Inputs { bits: 37, planes: Some(BitPlanes { size: [2, 5, 4], bits }), relevance: None }
}

/// Networks with one and two convolutions, with and without padding, pooling and strides.
fn convolutional() -> Vec<(NetworkSettings, Inputs)> {
    let first = ConvolutionSettings { kernels: 3, size: 3, depth: 2, padding: 1, ..Default::default() };
    let second =
        ConvolutionSettings { kernels: 4, size: 2, depth: 3, channels: 3, pool: 1, ..Default::default() };
    let strided = ConvolutionSettings { size: 2, stride: 2, pool: 1, ..first };
    let with = |convolutions: &[ConvolutionSettings], wiring| NetworkSettings {
        convolutions: convolutions.to_vec(),
        ..settings(wiring, Some(1), Numbers::Sixteen)
    };
    let four = NetworkSettings { numbers: Numbers::Four, ..with(&[first, second], Connections::Learned) };
    let padded = ConvolutionSettings { padding: 1, ..second };
    let all = [
        with(&[first], Connections::Random),
        with(&[first, padded], Connections::Random),
        with(&[first, second], Connections::Learned),
        with(&[strided], Connections::Learned),
        four,
    ];
    all.map(|settings| (settings, planes())).into()
}

/// Every kind of wires and parameters, with segments of one and of several layers, and convolutions.
fn all_networks() -> Vec<(NetworkSettings, Inputs)> {
    let flat = all_settings().into_iter().map(|settings| (settings, Inputs::from(INPUTS)));
    flat.chain(convolutional()).collect()
}

fn all_settings() -> Vec<NetworkSettings> {
    let fixed = [Connections::Random, Connections::Unique, Connections::Butterfly];
    let fixed = fixed.map(|wiring| settings(wiring, None, Numbers::Sixteen));
    let learned =
        [None, Some(1), Some(2)].map(|count| settings(Connections::Learned, count, Numbers::Sixteen));
    let four = settings(Connections::Learned, Some(1), Numbers::Four);
    let members = [Connections::Learned, Connections::Random]
        .map(|wiring| NetworkSettings { members: 3, ..settings(wiring, Some(2), Numbers::Sixteen) });
    fixed.into_iter().chain(learned).chain([four]).chain(members).collect()
}

fn bit(sample: usize, input: usize) -> f32 {
    ((sample * 2_654_435_761 + input * 40_503) >> 7 & 1) as f32
}

fn fill(sample: usize, lane: usize, rows: &mut [Row]) {
    rows.iter_mut().enumerate().for_each(|(input, row)| row.0[lane] = bit(sample, input));
}

fn labels(count: usize) -> Vec<u32> {
    (0..count).map(|sample| (sample % CLASSES) as u32).collect()
}

#[test]
fn gradients_are_differences_of_the_mean_loss() {
    for (settings, inputs) in all_networks() {
        let mut network = Network::new(&settings, inputs, CLASSES, 40, 3).unwrap();
        let labels = labels(40);
        network.prepare(Sampling::default());
        network.gradient(&labels, &fill);
        let grads = network.params.grads.clone();
        let mut loss_at = |i: usize, shift: f32| {
            let before = network.params.values[i];
            network.params.values[i] = before + shift;
            network.prepare(Sampling::default());
            let loss = network.evaluate(&labels, &fill).loss / labels.len() as f64;
            network.params.values[i] = before;
            loss
        };
        let most = grads.iter().fold(0.0f32, |most, grad| most.max(grad.abs()));
        for i in (0..grads.len()).step_by(5) {
            let slope = (loss_at(i, 0.02) - loss_at(i, -0.02)) / 0.04;
            let difference = (f64::from(grads[i]) - slope).abs();
            assert!(difference < 0.02 * f64::from(most), "{settings:?} {i}: {} for {slope}", grads[i]);
        }
    }
}

/// With one logit far above the others, the soft network computes what the hard circuit computes. Samples whose classes tie are
/// left out: the soft sums differ by rounding.
#[test]
fn the_hard_circuit_is_the_limit_of_the_soft_network() {
    for (settings, inputs) in all_networks() {
        let bits = inputs.bits;
        let mut network = Network::new(&settings, inputs, CLASSES, 40, 5).unwrap();
        network.params.values.iter_mut().for_each(|value| *value *= 1e3);
        let circuit = network.harden().unwrap();
        let group = 2 * settings.members;
        assert_eq!((circuit.inputs(), circuit.outputs().len()), (bits, CLASSES * group));
        let sums = |sample: usize| -> Vec<usize> {
            let bits: Vec<bool> = (0..bits).map(|input| bit(sample, input) == 1.0).collect();
            let outputs = circuit.eval(&bits).unwrap();
            outputs.chunks(group).map(|group| group.iter().filter(|bit| **bit).count()).collect()
        };
        let winner = |sample: usize| {
            let sums = sums(sample);
            let most = *sums.iter().max()?;
            let mut winners = (0..sums.len()).filter(|&class| sums[class] == most);
            winners.next().filter(|_| winners.next().is_none()).map(|class| (sample, class as u32))
        };
        let (samples, labels): (Vec<usize>, Vec<u32>) = (0..2000).filter_map(winner).take(40).unzip();
        network.prepare(Sampling::default());
        let result = network.evaluate(&labels, &|sample, lane, rows| fill(samples[sample], lane, rows));
        assert_eq!(result.correct, labels.len(), "{settings:?}");
    }
}

#[test]
fn gradients_do_not_depend_on_the_number_of_threads_or_on_earlier_batches() {
    let settings = NetworkSettings { layers: vec![3000], candidates: 8, ..NetworkSettings::default() };
    let grads = |threads: usize, warm: bool| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut network = Network::new(&settings, INPUTS, CLASSES, 200, 1).unwrap();
        assert!(network.chunks.len() > 1);
        network.prepare(Sampling::default());
        pool.install(|| {
            if warm {
                network.gradient(&labels(200), &|sample, lane, rows| fill(sample + 7, lane, rows));
            }
            // Fewer samples than the lanes of a batch.
            network.gradient(&labels(190), &fill)
        });
        network.params.grads
    };
    let one = grads(1, false);
    assert!(one.iter().any(|&grad| grad != 0.0));
    assert!(one == grads(3, false) && one == grads(2, true));
}

#[test]
fn networks_that_cannot_be_made_are_named() {
    let error = |settings: &NetworkSettings, inputs, classes| {
        Network::new(settings, inputs, classes, 8, 1).err().unwrap().to_string()
    };
    let with = |layers: &[usize]| NetworkSettings { layers: layers.to_vec(), ..NetworkSettings::default() };
    assert!(error(&with(&[]), 4, 2).starts_with("layers is empty"));
    assert!(error(&with(&[4, 0]), 4, 2).starts_with("layers[1] is 0"));
    assert!(error(&with(&[usize::MAX, 2]), 4, 2).contains("the limit is"));
    let groups = error(&with(&[8]), 4, 3);
    assert!(groups.ends_with("make it a multiple of 3, such as 9"), "{groups}");
    assert!(error(&with(&[2]), 4, 1_000_000).contains("2 gates for 1000000 classes"));
    assert!(error(&with(&[8]), 0, 2).contains("every feature is constant"));
    let six = NetworkSettings { candidates: 6, ..with(&[8]) };
    assert!(error(&six, 4, 2).starts_with("candidates is 6"));
    let empty = NetworkSettings { members: 0, ..with(&[8]) };
    assert_eq!(error(&empty, 4, 2), "members is 0, but must be from 1 to 1024");
    let cold = NetworkSettings { temperature: Some(0.0), ..with(&[8]) };
    assert!(error(&cold, 4, 2).starts_with("temperature is 0"));
}

/// With the most likely functions and wires in the forward pass, the network computes what the hard circuit computes.
#[test]
fn a_straight_through_pass_computes_the_hard_circuit() {
    for (settings, inputs) in all_networks() {
        let bits = inputs.bits;
        let mut network = Network::new(&settings, inputs, CLASSES, 60, 5).unwrap();
        let circuit = network.harden().unwrap();
        let members = settings.members;
        // The outputs of a class are those of the first member, then those of the second, ...
        let score = |sample: usize, class: usize, member: usize| {
            let row: Vec<bool> = (0..bits).map(|input| bit(sample, input) == 1.0).collect();
            let outputs = circuit.eval(&row).unwrap();
            outputs[2 * (class * members + member)..][..2].iter().filter(|bit| **bit).count()
        };
        let labels = labels(60);
        let temperature = f64::from(network.temperature()) / members as f64;
        let loss_of = |sample: usize, label: u32, member: usize| {
            let scores: Vec<f64> =
                (0..CLASSES).map(|class| score(sample, class, member) as f64 / temperature).collect();
            scores.iter().map(|score| score.exp()).sum::<f64>().ln() - scores[label as usize]
        };
        let loss = |(sample, &label): (usize, &u32)| {
            (0..members).map(|member| loss_of(sample, label, member)).sum::<f64>() / members as f64
        };
        let expected: f64 = labels.iter().enumerate().map(loss).sum();
        network.prepare(Sampling { gumbel: None, is_hard: true });
        let result = network.gradient(&labels, &fill);
        assert!((result.loss - expected).abs() < 1e-3, "{settings:?}: {} for {expected}", result.loss);
        assert!(network.params.grads.iter().all(|grad| grad.is_finite()));
    }
}

#[test]
fn convolutions_that_do_not_fit_are_named() {
    let error = |convolution: ConvolutionSettings, inputs: Inputs| {
        let settings = NetworkSettings {
            convolutions: vec![convolution],
            ..settings(Connections::Random, None, Numbers::Sixteen)
        };
        Network::new(&settings, inputs, CLASSES, 8, 1).err().unwrap().to_string()
    };
    let default = ConvolutionSettings::default();
    let deep = error(ConvolutionSettings { depth: 9, ..default }, planes());
    assert_eq!(deep, "convolutions[0].depth is 9, but must be from 1 to 8");
    assert!(error(ConvolutionSettings { stride: 4, ..default }, planes()).contains("stride is 4"));
    let small = error(ConvolutionSettings { size: 5, ..default }, planes());
    assert!(small.starts_with("convolutions[0] has an input of 5x4, but needs at least 6x6"), "{small}");
    assert!(error(default, Inputs::from(40)).contains("the data are a table"));
    let padded = ConvolutionSettings { size: 64, padding: 63, stride: 1, kernels: 1, ..default };
    let wide = Inputs { planes: Some(BitPlanes { size: [1024, 5, 4], bits: vec![None; 20480] }), ..planes() };
    assert!(error(padded, wide).contains("bits of input with their padding, but the limit is"));
    let many = error(ConvolutionSettings { kernels: 1 << 16, depth: 8, size: 2, ..default }, planes());
    assert!(many.contains("the limit is"), "{many}");
}
