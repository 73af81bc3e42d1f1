//! Layers with parameters: linear, convolution, layer normalisation, recurrent cells, attention. Initial parameters
//! follow PyTorch: uniform in `[-1/sqrt(fan_in), 1/sqrt(fan_in)]`.

use gatework_engine::Graph;
use gatework_engine::graph::{Gru, Lstm};

use super::{Initializer, Tensor};

/// Added to variances in layer normalisation.
const EPSILON: f64 = 1e-5;

/// Returns PyTorch's default initialiser.
fn uniform(fan_in: usize) -> Initializer {
    Initializer::Uniform(1.0 / (fan_in.max(1) as f64).sqrt())
}

/// The state of an LSTM: hidden state and cell state, both `[rows, hidden]`.
#[derive(Clone, Copy, Debug)]
pub struct LstmState<'n> {
    /// Hidden state.
    pub output: Tensor<'n>,
    /// Cell state.
    pub memory: Tensor<'n>,
}

/// The parameters of a recurrent cell.
struct CellParameters<'n> {
    input: Tensor<'n>,
    hidden: Tensor<'n>,
    input_bias: Tensor<'n>,
    hidden_bias: Tensor<'n>,
}

impl<'n> Tensor<'n> {
    /// Returns `x W + b` on the last axis.
    #[must_use]
    pub fn linear(self, name: &str, outputs: usize) -> Tensor<'n> {
        let inputs = self.size(self.sizes().len().saturating_sub(1));
        let product = self.linear_without_bias(name, outputs);
        product + self.network().parameter(&format!("{name}.bias"), &[outputs], uniform(inputs))
    }

    /// Returns `x W` on the last axis. W is `[inputs, outputs]`, so that its gradient needs no transposition.
    #[must_use]
    pub fn linear_without_bias(self, name: &str, outputs: usize) -> Tensor<'n> {
        let inputs = self.size(self.sizes().len().saturating_sub(1));
        let weight = self.network().parameter(&format!("{name}.weight"), &[inputs, outputs], uniform(inputs));
        self.matmul(weight)
    }

    /// Normalises the last axis to mean 0 and variance 1, then applies a learned gain and bias.
    #[must_use]
    pub fn layer_norm(self, name: &str) -> Tensor<'n> {
        let width = self.size(self.sizes().len().saturating_sub(1));
        let parameter = |part: &str, start: f32| {
            self.network().parameter(&format!("{name}.{part}"), &[width], Initializer::Constant(start))
        };
        let (gain, bias) = (parameter("gain", 1.0), parameter("bias", 0.0));
        self.network().build(|graph| graph.layer_norm(self.id(), gain.id(), bias.id(), EPSILON))
    }

    /// Causal dilated convolution of `[rows, time, channels]` along time: `[rows, time, outputs]`. It is computed as a sum
    /// of matrix multiplications, one per kernel position.
    #[must_use]
    pub fn causal_convolution(self, name: &str, outputs: usize, size: usize, dilation: usize) -> Tensor<'n> {
        let (time, channels) = (self.size(1), self.size(2));
        let padded = self.pad(1, size.saturating_sub(1).saturating_mul(dilation), 0);
        let parameter = |part: &str, shape: &[usize]| {
            self.network().parameter(&format!("{name}.{part}"), shape, uniform(channels * size))
        };
        let weight = parameter("weight", &[size, channels, outputs]);
        let product = |k: usize| {
            let seen = padded.slice(1, k * dilation, k * dilation + time);
            seen.matmul(weight.slice(0, k, k + 1))
        };
        (1..size).fold(product(0), |sum, k| sum + product(k)) + parameter("bias", &[outputs])
    }

    fn cell(self, name: &str, gates: usize, hidden: usize) -> CellParameters<'n> {
        let inputs = self.size(self.sizes().len().saturating_sub(1));
        let rows = gates * hidden;
        let parameter = |part: &str, shape: &[usize]| {
            self.network().parameter(&format!("{name}.{part}"), shape, uniform(hidden))
        };
        CellParameters {
            input: parameter("input", &[rows, inputs]),
            hidden: parameter("hidden", &[rows, hidden]),
            input_bias: parameter("input_bias", &[rows]),
            hidden_bias: parameter("hidden_bias", &[rows]),
        }
    }

    /// Runs a GRU over `[rows, time, inputs]` and returns its hidden states: `[rows, time, hidden]`.
    #[must_use]
    pub fn gru(self, name: &str, hidden: usize) -> Tensor<'n> {
        let CellParameters { input, hidden, input_bias, hidden_bias } = self.cell(name, 3, hidden);
        let cell = Gru {
            input: input.id(),
            hidden: hidden.id(),
            input_bias: input_bias.id(),
            hidden_bias: hidden_bias.id(),
        };
        self.network().build(|graph| graph.gru(self.id(), &cell))
    }

    /// Runs an LSTM over `[rows, time, inputs]` and returns its hidden states: `[rows, time, hidden]`.
    #[must_use]
    pub fn lstm(self, name: &str, hidden: usize) -> Tensor<'n> {
        let CellParameters { input, hidden, input_bias, hidden_bias } = self.cell(name, 4, hidden);
        let cell = Lstm {
            input: input.id(),
            hidden: hidden.id(),
            input_bias: input_bias.id(),
            hidden_bias: hidden_bias.id(),
        };
        self.network().build(|graph| graph.lstm(self.id(), &cell))
    }

    /// Runs one step of the LSTM of that name on `[rows, inputs]`.
    #[must_use]
    pub fn lstm_step(self, name: &str, state: LstmState<'n>) -> LstmState<'n> {
        let hidden = state.output.size(1);
        let weights = self.cell(name, 4, hidden);
        let gates = self.matmul(weights.input.transpose())
            + weights.input_bias
            + state.output.matmul(weights.hidden.transpose())
            + weights.hidden_bias;
        let gate = |index: usize| gates.slice(1, index * hidden, (index + 1) * hidden);
        let (write, forget, candidate, show) =
            (gate(0).sigmoid(), gate(1).sigmoid(), gate(2).tanh(), gate(3).sigmoid());
        let memory = forget * state.memory + write * candidate;
        LstmState { output: show * memory.tanh(), memory }
    }

    /// Multi-head self-attention over `[rows, time, width]`.
    #[must_use]
    pub fn self_attention(self, name: &str, heads: usize) -> Tensor<'n> {
        let width = self.size(2);
        let [queries, keys, values] =
            ["query", "key", "value"].map(|part| self.linear(&format!("{name}.{part}"), width).id());
        let attention = |graph: &mut Graph| graph.multi_head_attention(queries, keys, values, heads.max(1));
        self.network().build(attention).linear(&format!("{name}.output"), width)
    }

    /// A layer of a Transformer encoder on `[rows, tokens, width]`: self-attention and feed-forward, each with a residual connection and
    /// layer normalisation after it.
    #[must_use]
    pub fn encoder_layer(self, name: &str, heads: usize, feed_forward: usize, dropout: f64) -> Tensor<'n> {
        let width = self.size(2);
        let attended = self.self_attention(&format!("{name}.attention"), heads).dropout(dropout);
        let x = (self + attended).layer_norm(&format!("{name}.norm.0"));
        let hidden = x.linear(&format!("{name}.feed.0"), feed_forward).gelu().dropout(dropout);
        let hidden = hidden.linear(&format!("{name}.feed.1"), width).dropout(dropout);
        (x + hidden).layer_norm(&format!("{name}.norm.1"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Network;
    use super::*;
    use gatework_engine::Program;
    use gatework_engine::graph::Conv1d;
    use gatework_train::random::{Purpose, Random};

    /// Runs a network on random inputs and parameters.
    fn run(network: &Network, outputs: &[(&str, Tensor<'_>)]) -> Vec<Vec<f32>> {
        let (graph, _) = network.finish(outputs).unwrap();
        let mut runner = Program::new(&graph).unwrap().runner();
        for (index, (name, id)) in graph.inputs().enumerate() {
            let mut random = Random::new(index as u64, Purpose::Check, 0);
            let values: Vec<f32> = (0..graph.shape(id).elements()).map(|_| random.uniform() - 0.5).collect();
            runner.write(name, &values).unwrap();
        }
        runner.run();
        outputs.iter().map(|(name, _)| runner.read::<f32>(name).unwrap().to_vec()).collect()
    }

    #[test]
    fn stepping_an_lstm_equals_running_it_over_time() {
        let network = Network::for_prediction();
        let x = network.input("x", &[3, 5, 2]);
        let whole = x.lstm("cell", 4).slice(1, 4, 5).reshape(&[3, 4]);
        let zeros = network.zeros(&[3, 4]);
        let mut state = LstmState { output: zeros, memory: zeros };
        for t in 0..5 {
            state = x.slice(1, t, t + 1).reshape(&[3, 2]).lstm_step("cell", state);
        }
        let results = run(&network, &[("whole", whole), ("steps", state.output)]);
        assert!(results[0].iter().zip(&results[1]).all(|(a, b)| (a - b).abs() < 1e-6), "{results:?}");
    }

    #[test]
    fn a_causal_convolution_equals_the_left_padded_convolution_of_the_engine() {
        let network = Network::for_prediction();
        let (time, channels, outputs, size, dilation) = (9, 2, 3, 3, 2);
        let x = network.input("x", &[2, time, channels]);
        let ours = x.causal_convolution("conv", outputs, size, dilation);
        // [size, channels, outputs] to [outputs, channels, size]
        let kernel = network.input("conv.weight", &[size, channels, outputs]).permute(&[2, 1, 0]);
        let (bias, channels_first) = (network.input("conv.bias", &[outputs]), x.transpose());
        let settings = Conv1d { dilation, before: (size - 1) * dilation, ..Conv1d::default() };
        let engine = network
            .build(|graph| graph.conv1d(channels_first.id(), kernel.id(), Some(bias.id()), settings))
            .transpose();
        let results = run(&network, &[("ours", ours), ("engine", engine)]);
        assert!(results[0].iter().zip(&results[1]).all(|(a, b)| (a - b).abs() < 1e-5), "{results:?}");
    }

    #[test]
    fn self_attention_equals_its_definition_head_by_head() {
        let network = Network::for_prediction();
        let x = network.input("x", &[2, 5, 6]);
        let ours = x.self_attention("a", 3);
        let [queries, keys, values] = ["a.query", "a.key", "a.value"]
            .map(|name| x.linear(name, 6).reshape(&[2, 5, 3, 2]).permute(&[0, 2, 1, 3]));
        let scores = (queries * 0.5f64.sqrt()).matmul(keys.transpose());
        let seen = scores.softmax(3).matmul(values).permute(&[0, 2, 1, 3]);
        let plain = seen.reshape(&[2, 5, 6]).linear("a.output", 6);
        let results = run(&network, &[("ours", ours), ("plain", plain)]);
        assert!(results[0].iter().zip(&results[1]).all(|(a, b)| (a - b).abs() < 1e-6), "{results:?}");
    }
}
