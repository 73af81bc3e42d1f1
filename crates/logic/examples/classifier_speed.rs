//! Measures prediction with a random network of the size of difflogic's MNIST model: 784 pixels, 6 layers of 8000 gates,
//! ten classes, one thread, from bytes to labels.
//!
//!     cargo run --release -p gatework-logic --example classifier_speed [LAYERS WIDTH [SAMPLES]]

use gatework_logic::classifier::{Classifier, Encoder, Feature, Head, Rows};
use gatework_logic::{Circuit, Gate, Node, Predictor};
use std::error::Error;
use std::sync::LazyLock;
use std::time::Instant;

const PIXELS: usize = 784;
const CLASSES: usize = 10;
const REPEATS: u32 = 3;

/// A fixed sequence of pseudorandom numbers (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() >> 32) as usize % end
    }
}

/// Layers of gates that read random signals of the layer before; `gates` are their functions.
fn network(
    layers: usize,
    width: usize,
    gates: &[Gate],
    random: &mut Random,
) -> Result<Classifier, Box<dyn Error>> {
    let mut nodes = Vec::new();
    let (mut first, mut size) = (0, PIXELS);
    for _ in 0..layers {
        for _ in 0..width {
            let gate = gates[random.below(gates.len())];
            let [a, b] = [random.below(size), random.below(size)].map(|signal| (first + signal) as u32);
            nodes.push(Node::new(gate, a, b));
        }
        (first, size) = (PIXELS + nodes.len() - width, width);
    }
    let outputs = (first as u32..(first + size) as u32).collect();
    let features = (0..PIXELS).map(|i| Feature::numeric(format!("p{i}"), vec![127.0])).collect();
    let names = (0..CLASSES).map(|class| class.to_string()).collect();
    Ok(Classifier::new(
        Encoder::new(features, Some([1, 28, 28]))?,
        Circuit::new(PIXELS, nodes, outputs)?,
        Head::equal_groups(names, size, 10.0)?,
    )?)
}

/// The time that the process has computed, from `/proc` where it exists, else the time that has passed: other programs
/// on the machine should not matter.
fn cpu_seconds() -> f64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let stat = std::fs::read_to_string("/proc/self/schedstat").unwrap_or_default();
    let main = stat.split(' ').next().and_then(|nanoseconds| nanoseconds.parse::<f64>().ok());
    main.map_or_else(|| START.elapsed().as_secs_f64(), |nanoseconds| nanoseconds / 1e9)
}

fn main() -> Result<(), Box<dyn Error>> {
    let numbers: Vec<usize> = std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    let number = |i: usize, default| numbers.get(i).copied().unwrap_or(default);
    let (layers, width, samples) = (number(0, 6), number(1, 8000), number(2, 100_000));
    let mut random = Random(1);
    let images: Vec<u8> = (0..samples * PIXELS).map(|_| random.next() as u8).collect();
    let both = Gate::ALL.into_iter().filter(|gate| gate.depends_on_a() && gate.depends_on_b());
    let functions = [("any of the 16 gates", Gate::ALL.to_vec()), ("gates of two inputs", both.collect())];
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build()?;
    for (about, gates) in functions {
        let classifier = network(layers, width, &gates, &mut random)?;
        let begin = cpu_seconds();
        let predictor = Predictor::new(&classifier);
        let compiled = cpu_seconds() - begin;
        let mut labels = Vec::new();
        let begin = cpu_seconds();
        for _ in 0..REPEATS {
            labels = pool.install(|| predictor.predict_many(&images))?;
        }
        let seconds = (cpu_seconds() - begin) / f64::from(REPEATS);
        let image = |sample: usize| Rows::from(&images[sample * PIXELS..(sample + 1) * PIXELS]);
        for sample in (0..samples).step_by(samples.div_ceil(20).max(1)) {
            assert_eq!(labels[sample] as usize, classifier.predict(image(sample))?, "sample {sample}");
        }
        let begin = cpu_seconds();
        let count = samples.min(5000);
        for (sample, &label) in labels.iter().enumerate().take(count) {
            assert_eq!(predictor.predict(image(sample))?, label as usize);
        }
        let single = (cpu_seconds() - begin) / count as f64;
        println!(
            "{layers}x{width} {about}: {} operations, ready in {:.0} ms, {:.2} M images/s, one image {:.1} us (CPU time)",
            predictor.operations(),
            1e3 * compiled,
            samples as f64 / seconds / 1e6,
            1e6 * single,
        );
    }
    Ok(())
}
