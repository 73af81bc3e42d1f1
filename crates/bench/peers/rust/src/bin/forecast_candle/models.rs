//! The models, with the names of our parameters.

use candle_core::{Device, Result, Tensor, D};
use candle_nn::rnn::{gru, lstm, GRUConfig, LSTMConfig, GRU, LSTM, RNN};
use candle_nn::{conv1d, linear, Conv1d, Conv1dConfig, Linear, Module, VarBuilder};

/// A forecast `[rows, horizon]` of windows `[rows, input]`.
pub trait Model {
    /// With `training`, every operation has a gradient.
    fn forward(&self, x: &Tensor, training: bool) -> Result<Tensor>;
}

type Build = fn(usize, usize, VarBuilder<'_>) -> Result<Box<dyn Model>>;

/// A row of the benchmark.
pub struct Entry {
    pub name: &'static str,
    pub input: usize,
    pub horizon: usize,
    /// Windows of a sample, one for each column.
    pub columns: usize,
    pub build: Build,
}

const fn entry(name: &'static str, build: Build) -> Entry {
    Entry { name, input: 168, horizon: 24, columns: 1, build }
}

pub const MODELS: [Entry; 8] = [
    entry("nhits 4x512", |i, h, v| Nhits::new(i, h, 4, v)),
    entry("nhits 2x512", |i, h, v| Nhits::new(i, h, 2, v)),
    entry("nbeats 3 blocks", NBeats::new),
    entry("gru 2x128", |_, h, v| Recurrent::new(h, v, |i, v| gru(i, HIDDEN, GRUConfig::default(), v))),
    entry("lstm 2x128", |_, h, v| Recurrent::new(h, v, |i, v| lstm(i, HIDDEN, LSTMConfig::default(), v))),
    entry("tcn 32,64,128", |_, h, v| Tcn::new(h, v)),
    entry("transformer d64", Transformer::new),
    Entry { input: 336, horizon: 96, columns: 7, ..entry("dlinear 336-96, 7", DLinear::new) },
];

/// The name and layout that a parameter of ours has here.
pub fn translate(name: &str, tensor: Tensor) -> Result<(String, Tensor)> {
    let Some((layer, part)) = name.rsplit_once('.') else { return Ok((name.to_string(), tensor)) };
    Ok(match (part, tensor.rank()) {
        ("weight", 2) if layer.ends_with("beside") => (name.to_string(), tensor.t()?.unsqueeze(2)?),
        // [inputs, outputs] to [outputs, inputs]
        ("weight", 2) => (name.to_string(), tensor.t()?),
        // [size, inputs, outputs] to [outputs, inputs, size]
        ("weight", 3) => (name.to_string(), tensor.permute((2, 1, 0))?),
        ("input", _) => (format!("{layer}.weight_ih_l0"), tensor),
        ("hidden", _) => (format!("{layer}.weight_hh_l0"), tensor),
        ("input_bias", _) => (format!("{layer}.bias_ih_l0"), tensor),
        ("hidden_bias", _) => (format!("{layer}.bias_hh_l0"), tensor),
        ("gain", _) => (format!("{layer}.weight"), tensor),
        _ => (name.to_string(), tensor),
    })
}

const WIDTH: usize = 512;
const HIDDEN: usize = 128;

/// Linear layers, each followed by relu.
struct Dense(Vec<Linear>);

impl Dense {
    fn new(inputs: usize, layers: usize, vars: &VarBuilder<'_>) -> Result<Dense> {
        let layer = |i: usize| linear(if i == 0 { inputs } else { WIDTH }, WIDTH, vars.pp(i));
        (0..layers).map(layer).collect::<Result<_>>().map(Dense)
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        self.0.iter().try_fold(x.clone(), |x, layer| layer.forward(&x)?.relu())
    }
}

/// A block: hidden layers, its part of the forecast, and what it explains of the window, unless it is the last one.
struct Block {
    hidden: Dense,
    forecast: Linear,
    backcast: Option<Linear>,
}

impl Block {
    fn new(
        [inputs, layers, outputs]: [usize; 3],
        backcast: Option<usize>,
        vars: VarBuilder<'_>,
    ) -> Result<Block> {
        Ok(Block {
            hidden: Dense::new(inputs, layers, &vars)?,
            forecast: linear(WIDTH, outputs, vars.pp("forecast"))?,
            backcast: backcast.map(|input| linear(WIDTH, input, vars.pp("backcast"))).transpose()?,
        })
    }
}

struct Nhits(Vec<NhitsStack>);

struct NhitsStack {
    pool: usize,
    block: Block,
    /// Weights of the knots for each step, `[knots, horizon]`; candle has no linear interpolation.
    interpolation: Option<Tensor>,
}

impl Nhits {
    fn new(input: usize, horizon: usize, layers: usize, vars: VarBuilder<'_>) -> Result<Box<dyn Model>> {
        let stack = |(i, (pool, down)): (usize, (usize, usize))| {
            let knots = (horizon / down).max(1);
            let block = Block::new(
                [input / pool, layers, knots],
                (i < 2).then_some(input),
                vars.pp(format!("stack.{i}.0")),
            )?;
            let interpolation = (knots < horizon).then(|| interpolation(knots, horizon)).transpose()?;
            Ok(NhitsStack { pool, block, interpolation })
        };
        let stacks = [(2, 24), (2, 12), (1, 1)].into_iter().enumerate().map(stack).collect::<Result<_>>()?;
        Ok(Box::new(Nhits(stacks)))
    }
}

/// Linear interpolation between points in the middle of their shares of the horizon.
fn interpolation(knots: usize, steps: usize) -> Result<Tensor> {
    let mut weights = vec![0f32; knots * steps];
    for step in 0..steps {
        let at = ((step as f32 + 0.5) * knots as f32 / steps as f32 - 0.5).clamp(0.0, (knots - 1) as f32);
        let (left, share) = (at as usize, at.fract());
        weights[left * steps + step] += 1.0 - share;
        weights[(left + 1).min(knots - 1) * steps + step] += share;
    }
    Tensor::from_vec(weights, (knots, steps), &Device::Cpu)
}

impl Model for Nhits {
    fn forward(&self, x: &Tensor, _: bool) -> Result<Tensor> {
        let (mut rest, mut forecast) = (x.clone(), None);
        for NhitsStack { pool, block, interpolation } in &self.0 {
            let (rows, steps) = rest.dims2()?;
            let pooled = match pool {
                1 => rest.clone(),
                pool => rest.reshape((rows, steps / pool, *pool))?.max(D::Minus1)?,
            };
            let hidden = block.hidden.forward(&pooled)?;
            let knots = block.forecast.forward(&hidden)?;
            let part = match interpolation {
                Some(weights) => knots.matmul(weights)?,
                None => knots,
            };
            forecast = Some(match forecast {
                Some(sum) => (sum + part)?,
                None => part,
            });
            if let Some(backcast) = &block.backcast {
                rest = (rest - backcast.forward(&hidden)?)?;
            }
        }
        forecast.ok_or_else(|| candle_core::Error::Msg("no stacks".into()))
    }
}

struct NBeats(Vec<Block>);

impl NBeats {
    fn new(input: usize, horizon: usize, vars: VarBuilder<'_>) -> Result<Box<dyn Model>> {
        let block = |i: usize| {
            Block::new([input, 4, horizon], (i < 2).then_some(input), vars.pp(format!("stack.0.{i}")))
        };
        Ok(Box::new(NBeats((0..3).map(block).collect::<Result<_>>()?)))
    }
}

impl Model for NBeats {
    fn forward(&self, x: &Tensor, _: bool) -> Result<Tensor> {
        let (mut rest, mut forecast) = (x.clone(), None);
        for block in &self.0 {
            let hidden = block.hidden.forward(&rest)?;
            let part = block.forecast.forward(&hidden)?;
            forecast = Some(match forecast {
                Some(sum) => (sum + part)?,
                None => part,
            });
            if let Some(backcast) = &block.backcast {
                rest = (rest - backcast.forward(&hidden)?)?;
            }
        }
        forecast.ok_or_else(|| candle_core::Error::Msg("no blocks".into()))
    }
}

/// A cell over time: the states after every step, in order.
trait Cell: Sized {
    fn states(&self, x: &Tensor) -> Result<Vec<Tensor>>;
}

impl Cell for GRU {
    fn states(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        Ok(self.seq(x)?.into_iter().map(|state| state.h).collect())
    }
}

impl Cell for LSTM {
    fn states(&self, x: &Tensor) -> Result<Vec<Tensor>> {
        Ok(self.seq(x)?.into_iter().map(|state| state.h).collect())
    }
}

struct Recurrent<C> {
    layers: [C; 2],
    head: Linear,
}

impl<C: Cell + 'static> Recurrent<C> {
    fn new(
        horizon: usize,
        vars: VarBuilder<'_>,
        cell: impl Fn(usize, VarBuilder<'_>) -> Result<C>,
    ) -> Result<Box<dyn Model>> {
        let layers = [cell(1, vars.pp("layer.0"))?, cell(HIDDEN, vars.pp("layer.1"))?];
        Ok(Box::new(Recurrent { layers, head: linear(HIDDEN, horizon, vars.pp("head"))? }))
    }
}

impl<C: Cell> Model for Recurrent<C> {
    fn forward(&self, x: &Tensor, _: bool) -> Result<Tensor> {
        let below = Tensor::stack(&self.layers[0].states(&x.unsqueeze(2)?)?, 1)?;
        let states = self.layers[1].states(&below)?;
        self.head.forward(&states[states.len() - 1])
    }
}

struct Tcn {
    blocks: Vec<([Conv1d; 2], Conv1d)>,
    head: Linear,
}

/// Steps that a convolution reads.
const KERNEL: usize = 3;

impl Tcn {
    fn new(horizon: usize, vars: VarBuilder<'_>) -> Result<Box<dyn Model>> {
        let channels = [1, 32, 64, 128];
        let block = |i: usize| {
            let (before, after, vars) = (channels[i], channels[i + 1], vars.pp(format!("block.{i}")));
            let dilated = Conv1dConfig { dilation: 1 << i, ..Conv1dConfig::default() };
            let convolutions = [
                conv1d(before, after, KERNEL, dilated, vars.pp(0))?,
                conv1d(after, after, KERNEL, dilated, vars.pp(1))?,
            ];
            Ok((convolutions, conv1d(before, after, 1, Conv1dConfig::default(), vars.pp("beside"))?))
        };
        let blocks = (0..3).map(block).collect::<Result<_>>()?;
        Ok(Box::new(Tcn { blocks, head: linear(128, horizon, vars.pp("head"))? }))
    }
}

impl Model for Tcn {
    fn forward(&self, x: &Tensor, training: bool) -> Result<Tensor> {
        // [rows, channels, time], or [rows, time, channels] in training
        let (time, mut x) = if training { (1, x.unsqueeze(2)?) } else { (2, x.unsqueeze(1)?) };
        let convolve = if training { sum_of_products } else { Conv1d::forward };
        for (convolutions, beside) in &self.blocks {
            let mut hidden = x.clone();
            for convolution in convolutions {
                let before = (KERNEL - 1) * convolution.config().dilation;
                hidden = convolve(convolution, &hidden.pad_with_zeros(time, before, 0)?)?.relu()?;
            }
            x = (hidden + convolve(beside, &x)?)?.relu()?;
        }
        let last = x.narrow(time, x.dim(time)? - 1, 1)?.squeeze(time)?;
        self.head.forward(&last.contiguous()?)
    }
}

/// A convolution of `[rows, time, channels]`, one product for each step of its kernel. The gradients of `conv1d` in candle
/// 0.11.1 are wrong for more than one row and several channels: training with them does not give our losses.
fn sum_of_products(convolution: &Conv1d, x: &Tensor) -> Result<Tensor> {
    let (outputs, channels, size) = convolution.weight().dims3()?;
    let dilation = convolution.config().dilation;
    let (rows, time, _) = x.dims3()?;
    let time = time - (size - 1) * dilation;
    let product = |k: usize| {
        let seen = x.narrow(1, k * dilation, time)?.reshape((rows * time, channels))?;
        seen.matmul(&convolution.weight().narrow(2, k, 1)?.squeeze(2)?.t()?)
    };
    let sum = (1..size).try_fold(product(0)?, |sum, k| sum + product(k)?)?;
    let sum = match convolution.bias() {
        Some(bias) => sum.broadcast_add(bias)?,
        None => sum,
    };
    sum.reshape((rows, time, outputs))
}

/// Layer normalisation by candle-nn's two functions: the fused one has no gradient.
struct Norm {
    gain: Tensor,
    bias: Tensor,
}

impl Norm {
    fn new(vars: VarBuilder<'_>) -> Result<Norm> {
        Ok(Norm { gain: vars.get(MODEL, "weight")?, bias: vars.get(MODEL, "bias")? })
    }

    fn forward(&self, x: &Tensor, training: bool) -> Result<Tensor> {
        let norm = if training { candle_nn::ops::layer_norm_slow } else { candle_nn::ops::layer_norm };
        norm(&x.contiguous()?, &self.gain, &self.bias, 1e-5)
    }
}

/// Numbers of a token, and heads that share them.
const MODEL: usize = 64;
const HEADS: usize = 4;

struct Encoder {
    /// Query, key, value, output.
    attention: [Linear; 4],
    feed: [Linear; 2],
    norms: [Norm; 2],
}

impl Encoder {
    fn new(vars: VarBuilder<'_>) -> Result<Encoder> {
        let attention = |part: &str| linear(MODEL, MODEL, vars.pp("attention").pp(part));
        Ok(Encoder {
            attention: [attention("query")?, attention("key")?, attention("value")?, attention("output")?],
            feed: [linear(MODEL, 256, vars.pp("feed.0"))?, linear(256, MODEL, vars.pp("feed.1"))?],
            norms: [Norm::new(vars.pp("norm.0"))?, Norm::new(vars.pp("norm.1"))?],
        })
    }

    fn attend(&self, x: &Tensor, training: bool) -> Result<Tensor> {
        let (rows, time, width) = x.dims3()?;
        let head = width / HEADS;
        let project = |layer: &Linear| {
            layer.forward(x)?.reshape((rows, time, HEADS, head))?.transpose(1, 2)?.contiguous()
        };
        let [query, key, value, output] = &self.attention;
        let scores = (project(query)? * (head as f64).powf(-0.5))?.matmul(&project(key)?.t()?)?;
        let shares = if training {
            candle_nn::ops::softmax(&scores, D::Minus1)?
        } else {
            candle_nn::ops::softmax_last_dim(&scores)?
        };
        let seen = shares.matmul(&project(value)?)?;
        output.forward(&seen.transpose(1, 2)?.reshape((rows, time, width))?)
    }

    fn forward(&self, x: &Tensor, training: bool) -> Result<Tensor> {
        let x = self.norms[0].forward(&(x + self.attend(x, training)?)?, training)?;
        let thought = self.feed[1].forward(&self.feed[0].forward(&x)?.gelu_erf()?)?;
        self.norms[1].forward(&(x + thought)?, training)
    }
}

struct Transformer {
    embedding: Linear,
    position: Tensor,
    layers: [Encoder; 2],
    head: Linear,
}

impl Transformer {
    fn new(input: usize, horizon: usize, vars: VarBuilder<'_>) -> Result<Box<dyn Model>> {
        Ok(Box::new(Transformer {
            embedding: linear(1, MODEL, vars.pp("embedding"))?,
            position: vars.get((input, MODEL), "position")?,
            layers: [Encoder::new(vars.pp("layer.0"))?, Encoder::new(vars.pp("layer.1"))?],
            head: linear(input * MODEL, horizon, vars.pp("head"))?,
        }))
    }
}

impl Model for Transformer {
    fn forward(&self, x: &Tensor, training: bool) -> Result<Tensor> {
        let mut hidden = self.embedding.forward(&x.unsqueeze(2)?)?.broadcast_add(&self.position)?;
        for layer in &self.layers {
            hidden = layer.forward(&hidden, training)?;
        }
        self.head.forward(&hidden.flatten_from(1)?)
    }
}

struct DLinear {
    /// The moving average over 25 steps as a product, `[input, input]`: candle has no pooling along time.
    average: Tensor,
    season: Linear,
    trend: Linear,
}

impl DLinear {
    fn new(input: usize, horizon: usize, vars: VarBuilder<'_>) -> Result<Box<dyn Model>> {
        const STEPS: usize = 25;
        let mut average = vec![0f32; input * input];
        for to in 0..input {
            for k in 0..STEPS {
                let from = (to + k).saturating_sub(STEPS / 2).min(input - 1);
                average[from * input + to] += 1.0 / STEPS as f32;
            }
        }
        Ok(Box::new(DLinear {
            average: Tensor::from_vec(average, (input, input), &Device::Cpu)?,
            season: linear(input, horizon, vars.pp("season"))?,
            trend: linear(input, horizon, vars.pp("trend"))?,
        }))
    }
}

impl Model for DLinear {
    fn forward(&self, x: &Tensor, _: bool) -> Result<Tensor> {
        let trend = x.matmul(&self.average)?;
        self.season.forward(&(x - &trend)?)? + self.trend.forward(&trend)?
    }
}
