//! The initial values of parameters.

use crate::params::Params;
use crate::random::{Purpose, Random};

/// The initial values of a parameter. Random ones depend on the seed and on the position of the parameter in the model.
///
/// The fan-in, the number of inputs that a result depends on, is the first size of a matrix (`x.matmul(w)`), the product of
/// all sizes but the first for more axes (a convolution kernel), and otherwise the number of elements.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Initializer {
    /// All zeros.
    Zeros,
    /// One value for all elements.
    Constant(f32),
    /// Uniform in `[-bound, bound]`.
    Uniform(f64),
    /// Normal with mean 0 and this standard deviation.
    Normal(f64),
    /// Uniform with variance `2 / fan-in`, for layers before a ReLU (He et al. 2015).
    HeUniform,
    /// Normal with variance `2 / fan-in`, for layers before a ReLU (He et al. 2015).
    HeNormal,
    /// Uniform with variance `1 / fan-in`, for other layers (LeCun et al. 1998).
    LecunUniform,
    /// Normal with variance `1 / fan-in`, for other layers (LeCun et al. 1998).
    LecunNormal,
    /// Given values in row-major order; 0 for those that are missing.
    Values(Vec<f32>),
}

/// A parameter of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    /// Unique name, also that of the graph input.
    pub name: String,
    /// Sizes of its axes.
    pub shape: Vec<usize>,
    /// Initial values.
    pub initializer: Initializer,
}

/// Returns the parameters with the initial values of a seed. Names must differ.
pub fn initial_params(parameters: &[Parameter], seed: u64) -> Params {
    let mut params = Params::new();
    for (index, Parameter { name, shape, initializer }) in parameters.iter().enumerate() {
        let mut random = Random::new(seed, Purpose::Parameters, index as u64);
        let fan_in = fan_in(shape);
        params.add(name, shape, |i| initializer.value(i, fan_in, &mut random));
    }
    params
}

impl Initializer {
    /// The value of element `i`.
    fn value(&self, i: usize, fan_in: f64, random: &mut Random) -> f32 {
        let mut uniform = |bound: f64| ((2.0 * f64::from(random.uniform()) - 1.0) * bound) as f32;
        match self {
            Initializer::Zeros => 0.0,
            Initializer::Constant(value) => *value,
            Initializer::Uniform(bound) => uniform(*bound),
            Initializer::HeUniform => uniform((6.0 / fan_in).sqrt()),
            Initializer::LecunUniform => uniform((3.0 / fan_in).sqrt()),
            Initializer::Normal(deviation) => (random.normal() * deviation) as f32,
            Initializer::HeNormal => (random.normal() * (2.0 / fan_in).sqrt()) as f32,
            Initializer::LecunNormal => (random.normal() * (1.0 / fan_in).sqrt()) as f32,
            Initializer::Values(values) => values.get(i).copied().unwrap_or(0.0),
        }
    }
}

fn fan_in(shape: &[usize]) -> f64 {
    let sizes = match shape {
        [inputs, _] => &[*inputs],
        [_, others @ ..] if !others.is_empty() => others,
        all => all,
    };
    sizes.iter().map(|&size| size as f64).product::<f64>().max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draw(shape: &[usize], initializer: Initializer, seed: u64) -> Vec<f32> {
        let name = "w".to_string();
        initial_params(&[Parameter { name, shape: shape.to_vec(), initializer }], seed).values
    }

    #[test]
    fn random_values_have_mean_0_and_the_stated_variance() {
        for (initializer, shape, variance) in [
            (Initializer::Uniform(3.0), &[20_000][..], 3.0),
            (Initializer::Normal(0.5), &[20_000], 0.25),
            (Initializer::HeUniform, &[200, 100], 2.0 / 200.0),
            (Initializer::HeNormal, &[200, 100], 2.0 / 200.0),
            (Initializer::LecunUniform, &[100, 50, 4], 1.0 / 200.0),
            (Initializer::LecunNormal, &[100, 50, 4], 1.0 / 200.0),
        ] {
            let values = draw(shape, initializer.clone(), 1);
            let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / 20_000.0;
            let found = values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 20_000.0;
            // Five standard errors of the mean, and of the variance of a normal distribution.
            assert!(mean.abs() < 5.0 * (variance / 20_000.0f64).sqrt(), "{initializer:?}: {mean}");
            assert!((found / variance - 1.0).abs() < 0.05, "{initializer:?}: {found}");
            assert_eq!(values, draw(shape, initializer.clone(), 1));
            assert_ne!(values, draw(shape, initializer, 2));
        }
    }

    #[test]
    fn constants_and_given_values_are_not_random() {
        assert_eq!(draw(&[2], Initializer::Zeros, 1), [0.0; 2]);
        assert_eq!(draw(&[2], Initializer::Constant(0.5), 1), [0.5; 2]);
        assert_eq!(draw(&[3], Initializer::Values(vec![1.0, 2.0]), 1), [1.0, 2.0, 0.0]);
        assert_eq!(draw(&[], Initializer::HeNormal, 1).len(), 1);
        assert_eq!(draw(&[0, 4], Initializer::HeNormal, 1), [0.0; 0]);
    }
}
