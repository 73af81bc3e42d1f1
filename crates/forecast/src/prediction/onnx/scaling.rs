//! The scaling of [`Scaler`] as part of a graph, in 64 bits.

use gatework_engine::{DType, Graph, GraphError, Id};

use crate::data::scale::{FittedScale, Scaler, Scaling};
use crate::network::{Network, Tensor};

/// Name of the input that selects the scale of each window.
pub const SERIES: &str = "series";

/// The scale of every window of a batch. Tensors are `[rows, 1]`, or `[1, 1]` if all windows have the same scale.
pub struct WindowScales<'n> {
    scaling: Scaling,
    limits: Option<(Tensor<'n>, Tensor<'n>)>,
    logarithm: Option<Logarithm<'n>>,
    center: Tensor<'n>,
    scale: Tensor<'n>,
}

/// The parameters of the logarithm.
struct Logarithm<'n> {
    shift: Tensor<'n>,
    knot: Tensor<'n>,
    /// The logarithm of the knot.
    edge: Tensor<'n>,
}

/// A 64-bit input.
pub fn input<'n>(network: &'n Network, name: &str, sizes: &[usize]) -> Tensor<'n> {
    network.build(|graph| graph.input(name, DType::F64, sizes))
}

/// A conversion to another type.
pub fn cast(x: Tensor<'_>, dtype: DType) -> Tensor<'_> {
    x.network().build(|graph| graph.cast(x.id(), dtype))
}

/// An operation on two tensors that the network has no method for.
pub fn binary<'n>(
    a: Tensor<'n>,
    b: Tensor<'n>,
    operation: fn(&mut Graph, Id, Id) -> Result<Id, GraphError>,
) -> Tensor<'n> {
    a.network().build(|graph| operation(graph, a.id(), b.id()))
}

/// `a` where `x` is below `limit`, else `b`.
fn select_below<'n>(x: Tensor<'n>, limit: Tensor<'n>, a: Tensor<'n>, b: Tensor<'n>) -> Tensor<'n> {
    x.network().build(|graph| {
        let below = graph.less(x.id(), limit.id())?;
        graph.select(below, a.id(), b.id())
    })
}

impl<'n> WindowScales<'n> {
    /// Adds the scales of all series, and an input that selects one for each window if there are several. The scale of a series
    /// that does not exist is NaN.
    pub fn new(network: &'n Network, scaler: &Scaler, rows: usize) -> WindowScales<'n> {
        let fits = scaler.fits();
        let index = (fits.len() > 1).then(|| {
            let series = network.build(|graph| graph.input(SERIES, DType::I64, &[rows]));
            cast(series, DType::I32)
        });
        let select = |of: fn(&FittedScale) -> f64| {
            let values: Vec<f64> = fits.iter().map(of).collect();
            network.build(|graph| {
                let table = graph.data(DType::F64, &[values.len(), 1], &values)?;
                index.map_or(Ok(table), |index| graph.gather(table, index.id(), 0))
            })
        };
        let limits = fits.iter().any(|fit| fit.limits.is_some()).then(|| {
            let low = select(|fit| fit.limits.map_or(f64::NEG_INFINITY, |(low, _)| low));
            (low, select(|fit| fit.limits.map_or(f64::INFINITY, |(_, high)| high)))
        });
        let logarithm = scaler.scaling.log.then(|| Logarithm {
            shift: select(|fit| fit.shift),
            knot: select(|fit| fit.knot),
            edge: select(|fit| fit.knot.ln()),
        });
        let mut scale = select(|fit| fit.scale);
        if index.is_some() {
            // Indices outside select zeros.
            scale = network.build(|graph| {
                let (zero, nan) = (graph.zeros_like(scale.id())?, graph.constant_like(scale.id(), f64::NAN)?);
                let is_unknown = graph.equal(scale.id(), zero)?;
                graph.select(is_unknown, nan, scale.id())
            });
        }
        WindowScales { scaling: scaler.scaling, limits, logarithm, center: select(|fit| fit.center), scale }
    }

    /// Scales a history, `[rows, lag of differences + input]`, to `[rows, input]` in 32 bits.
    pub fn apply(&self, history: Tensor<'n>) -> Tensor<'n> {
        let lag = self.scaling.difference;
        let values = self.forward(history);
        let steps = values.size(1);
        let changes = match lag {
            0 => values,
            lag => values.slice(1, lag, steps) - values.slice(1, 0, steps - lag),
        };
        cast((changes - self.center) / self.scale, DType::F32)
    }

    /// Inverts the scaling of a forecast, `[rows, horizon]`. Differences are added to the values one lag before, which are those of
    /// the history and then forecasts.
    pub fn invert(&self, forecast: Tensor<'n>, history: Tensor<'n>) -> Tensor<'n> {
        let values = forecast * self.scale + self.center;
        let (lag, horizon) = (self.scaling.difference, values.size(1));
        if lag == 0 {
            return self.backward(values);
        }
        let known = history.size(1);
        let mut before = self.forward(history.slice(1, known - lag, known));
        let mut parts = Vec::new();
        for begin in (0..horizon).step_by(lag) {
            let count = lag.min(horizon - begin);
            let part = values.slice(1, begin, begin + count) + before.slice(1, 0, count);
            parts.push(self.backward(part));
            before = self.forward(parts[parts.len() - 1]);
        }
        values.network().concat(&parts, 1)
    }

    /// Inverts the scale of dispersions, which have no centre.
    pub fn invert_dispersion(&self, x: Tensor<'n>) -> Tensor<'n> {
        x * self.scale
    }

    /// Clips values and takes their logarithm.
    fn forward(&self, x: Tensor<'n>) -> Tensor<'n> {
        let x = match self.limits {
            Some((low, high)) => binary(binary(x, high, Graph::min), low, Graph::max),
            None => x,
        };
        let Some(Logarithm { shift, knot, edge }) = self.logarithm else { return x };
        let x = x + shift;
        select_below(x, knot, edge + (x - knot) / knot, x.log())
    }

    /// Inverts the logarithm.
    fn backward(&self, x: Tensor<'n>) -> Tensor<'n> {
        let Some(Logarithm { shift, knot, edge }) = self.logarithm else { return x };
        select_below(x, edge, knot * (x - edge + 1.0), x.exp()) - shift
    }
}

/// Scales covariates, whose last axis has a location and a scale for each column, to 32 bits.
pub fn scaled_columns<'n>(x: Tensor<'n>, fits: &[(f64, f64)]) -> Tensor<'n> {
    let row = |of: fn(&(f64, f64)) -> f64| {
        let values: Vec<f64> = fits.iter().map(of).collect();
        x.network().build(|graph| graph.data(DType::F64, &[values.len()], &values))
    };
    cast((x - row(|fit| fit.0)) / row(|fit| fit.1), DType::F32)
}
