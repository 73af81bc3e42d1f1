//! A dense network of soft gates on a batch of bits: the row `gate network` of `gatework-bench automata`. An update is
//! forward, backward and AdamW, as for a classifier made of gates.

use gatework_engine::parallel;
use gatework_gates::kernel::{
    Coefficients, FUNCTIONS, GateProgram, GateTable, LANES, Row, Sums, Wires, Workspace,
};
use gatework_gates::soft::{Wiring, network};
use gatework_train::optim::{Optimizer, OptimizerState};
use gatework_train::random::{Purpose, Random};
use serde_json::{Value, json};

/// Name of the row.
pub const NAME: &str = "gate network";

/// Number of inputs, then of the gates of each layer.
const SIZES: [usize; 7] = [1024, 2048, 2048, 2048, 2048, 2048, 2048];
/// Samples in a batch.
const BATCH: usize = 1024;
/// Learning rate.
const RATE: f32 = 0.01;
const ADAMW: Optimizer = Optimizer::Adamw { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.01 };

/// One chunk of the batch with its scratch memory; the chunks do not depend on the number of threads.
struct Chunk {
    /// Input bits, tile by tile.
    inputs: Vec<Row>,
    /// Expected outputs, tile by tile.
    targets: Vec<Row>,
    /// Inputs of the current tile, replaced by their gradients.
    tile: Vec<Row>,
    sums: Sums,
    work: Workspace,
    loss: f64,
}

/// A network with its batch and optimiser.
pub struct GateNetwork {
    wires: Wires,
    program: GateProgram,
    table: GateTable,
    coefficients: Coefficients,
    chunks: Vec<Chunk>,
    logits: Vec<f32>,
    grads: Vec<f32>,
    optimizer: OptimizerState,
}

impl GateNetwork {
    /// Returns the network of the benchmark.
    pub fn new() -> anyhow::Result<GateNetwork> {
        GateNetwork::of(&SIZES, BATCH)
    }

    /// Returns a network with random wires, logits, bits and targets. The batch size is a multiple of [`LANES`].
    pub fn of(sizes: &[usize], batch: usize) -> anyhow::Result<GateNetwork> {
        let wires = network(sizes, Wiring::Random, None, &mut Random::new(1, Purpose::Wiring, 0))?;
        let program = GateProgram::new(&wires)?;
        let mut random = Random::new(1, Purpose::Parameters, 0);
        let logits: Vec<f32> = (0..wires.gates() * FUNCTIONS).map(|_| random.uniform()).collect();
        let tiles = batch / LANES;
        let count = parallel::chunk_count(tiles, tiles);
        let mut random = Random::new(1, Purpose::Start, 0);
        let mut bits = |rows: usize| {
            let row = |_| Row(std::array::from_fn(|_| (random.bits() & 1) as f32));
            (0..rows).map(row).collect::<Vec<Row>>()
        };
        let chunks = (0..count).map(|chunk| {
            let tiles = parallel::chunk_range(tiles, chunk, count).len();
            Chunk {
                inputs: bits(tiles * program.inputs()),
                targets: bits(tiles * program.outputs()),
                tile: vec![Row::ZERO; program.inputs()],
                sums: Sums::new(&program),
                work: Workspace::default(),
                loss: 0.0,
            }
        });
        Ok(GateNetwork {
            chunks: chunks.collect(),
            table: GateTable::new(wires.gates()),
            coefficients: Coefficients::default(),
            grads: vec![0.0; logits.len()],
            optimizer: ADAMW.state(logits.len()),
            wires,
            program,
            logits,
        })
    }

    /// Returns the number of gates that an update evaluates.
    pub fn gate_evaluations(&self) -> f64 {
        let tiles: usize = self.chunks.iter().map(|chunk| chunk.inputs.len() / self.program.inputs()).sum();
        (self.wires.gates() * tiles * LANES) as f64
    }

    /// Makes one update and returns the loss before it: the sum of squared errors over all outputs and samples.
    pub fn update(&mut self) -> f64 {
        let loss = self.gradient();
        ADAMW.step(&mut self.optimizer, &mut self.logits, &self.grads, RATE, None);
        loss
    }

    /// Computes the gradients of the logits and returns the loss.
    fn gradient(&mut self) -> f64 {
        self.table.update(&self.logits);
        self.coefficients.gather(&self.program, &self.table);
        let (program, coefficients) = (&self.program, &self.coefficients);
        parallel::for_each(self.chunks.iter_mut().collect(), |chunk| chunk.gradient(program, coefficients));
        let mut sums = vec![[0.0; 4]; self.wires.gates()];
        for chunk in &self.chunks {
            chunk.sums.add_to(&self.program, &self.table, &mut sums);
        }
        self.grads.fill(0.0);
        self.table.logit_gradients(&sums, &mut self.grads);
        self.chunks.iter().map(|chunk| chunk.loss).sum()
    }

    /// Returns everything that another program needs to make the same updates, with our losses: logits layer by layer, bits
    /// as `[samples, rows]`.
    pub fn case(mut self, updates: usize) -> Value {
        let layers = self.wires.layers.iter().map(|layer| json!({ "a": layer.a, "b": layer.b }));
        let (inputs, outputs) = (self.program.inputs(), self.program.outputs());
        let bits = |rows: usize, of: fn(&Chunk) -> &[Row]| {
            let tiles = self.chunks.iter().flat_map(|chunk| of(chunk).chunks_exact(rows));
            let sample = |tile: &[Row], lane: usize| tile.iter().map(|row| row.0[lane] as u8).collect();
            tiles.flat_map(|tile| (0..LANES).map(move |lane| sample(tile, lane))).collect::<Vec<Vec<u8>>>()
        };
        let mut case = json!({
            "layers": layers.collect::<Vec<_>>(), "logits": self.logits, "rate": RATE,
            "inputs": bits(inputs, |chunk| &chunk.inputs), "targets": bits(outputs, |chunk| &chunk.targets),
        });
        case["losses"] = (0..updates).map(|_| self.update()).collect();
        case
    }
}

impl Chunk {
    fn gradient(&mut self, program: &GateProgram, coefficients: &Coefficients) {
        let Chunk { inputs, targets, tile, sums, work, loss } = self;
        sums.clear();
        *loss = 0.0;
        let tiles = inputs.chunks_exact(program.inputs()).zip(targets.chunks_exact(program.outputs()));
        for (inputs, targets) in tiles {
            tile.copy_from_slice(inputs);
            let seed = |outputs: &mut [Row]| *loss += f64::from(squares(outputs, targets));
            program.gradient_of(coefficients, tile, seed, sums, work);
        }
    }
}

/// Returns the sum of squared errors and replaces the outputs by its gradient.
fn squares(outputs: &mut [Row], targets: &[Row]) -> f32 {
    let mut sums = [0.0; LANES];
    for (output, target) in outputs.iter_mut().zip(targets) {
        for ((output, target), sum) in output.0.iter_mut().zip(target.0).zip(&mut sums) {
            let difference = *output - target;
            *sum += difference * difference;
            *output = 2.0 * difference;
        }
    }
    sums.iter().sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_gates::kernel::reference;

    /// Returns the loss by the reference implementation, sample by sample in double precision.
    fn naive_loss(network: &GateNetwork) -> f64 {
        let logits: Vec<f64> = network.logits.iter().map(|&logit| logit.into()).collect();
        let (inputs, outputs) = (network.program.inputs(), network.program.outputs());
        let mut loss = 0.0;
        for chunk in &network.chunks {
            let tiles = chunk.inputs.chunks_exact(inputs).zip(chunk.targets.chunks_exact(outputs));
            for (bits, targets) in tiles {
                for lane in 0..LANES {
                    let bits: Vec<f64> = bits.iter().map(|row| row.0[lane].into()).collect();
                    let rows = reference::forward(&network.wires, &logits, &bits);
                    let last = &rows[rows.len() - 1];
                    loss += last
                        .iter()
                        .zip(targets)
                        .map(|(x, y)| (x - f64::from(y.0[lane])).powi(2))
                        .sum::<f64>();
                }
            }
        }
        loss
    }

    #[test]
    fn the_loss_is_that_of_the_reference_and_updates_lower_it() -> anyhow::Result<()> {
        let mut network = GateNetwork::of(&[6, 8, 5], 64)?;
        let right = naive_loss(&network);
        let first = network.update();
        assert!((first / right - 1.0).abs() < 1e-5, "{first} for {right}");
        let after = naive_loss(&network);
        assert!(after < right, "{after} after {right}");
        assert!((network.update() / after - 1.0).abs() < 1e-5);
        Ok(())
    }

    #[test]
    fn gradients_are_differences_of_the_naive_loss() -> anyhow::Result<()> {
        let mut network = GateNetwork::of(&[4, 5, 3], 32)?;
        network.gradient();
        for i in (0..network.logits.len()).step_by(7) {
            let at = |shift: f32, network: &mut GateNetwork| {
                let before = network.logits[i];
                network.logits[i] = before + shift;
                let loss = naive_loss(network);
                network.logits[i] = before;
                loss
            };
            let slope = (at(0.01, &mut network) - at(-0.01, &mut network)) / 0.02;
            let ours = f64::from(network.grads[i]);
            assert!((ours - slope).abs() < 1e-2 * slope.abs().max(0.1), "logit {i}: {ours} for {slope}");
        }
        Ok(())
    }

    #[test]
    fn a_case_has_every_sample_once() -> anyhow::Result<()> {
        let case = GateNetwork::of(&[6, 8, 5], 64)?.case(3);
        let length = |value: &Value| value.as_array().map_or(0, Vec::len);
        assert_eq!((length(&case["inputs"]), length(&case["inputs"][63])), (64, 6));
        assert_eq!((length(&case["targets"]), length(&case["targets"][0])), (64, 5));
        assert_eq!((length(&case["losses"]), length(&case["logits"])), (3, 13 * 16));
        Ok(())
    }
}
