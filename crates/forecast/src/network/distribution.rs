//! Output distributions, whose parameters a network forecasts: likelihoods as graphs; means, quantiles and samples as
//! plain functions.
//!
//! | distribution | parameters |
//! |---|---|
//! | Gaussian | mean, standard deviation |
//! | Student's t | degrees of freedom (above 2), location, scale |
//! | negative binomial | mean, shape: the variance is `mean + shape * mean^2` |

use std::f64::consts::PI;

use super::builder::Tensor;
use super::normalization::{InstanceStatistics, per_step};
use gatework_train::random::Random;

/// Lower bound of scales.
const MIN_SCALE: f64 = 1e-5;

/// An output distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Distribution {
    /// The normal distribution.
    Gaussian,
    /// Student's t distribution, for heavy tails.
    StudentT,
    /// The negative binomial distribution, for counts.
    NegativeBinomial,
}

impl Distribution {
    /// Returns the number of parameters.
    pub fn parameters(self) -> usize {
        match self {
            Distribution::Gaussian | Distribution::NegativeBinomial => 2,
            Distribution::StudentT => 3,
        }
    }

    /// Returns the index of the location parameter.
    pub fn location(self) -> usize {
        match self {
            Distribution::Gaussian | Distribution::NegativeBinomial => 0,
            Distribution::StudentT => 1,
        }
    }

    /// Returns the normalised mean, `[rows, 1]`, of raw network outputs, `[rows, parameters]`.
    pub fn raw_mean(self, raw: Tensor<'_>) -> Tensor<'_> {
        let location = raw.slice(1, self.location(), self.location() + 1);
        if self == Distribution::NegativeBinomial { location.softplus() + MIN_SCALE } else { location }
    }

    /// Maps raw network outputs, `[rows, steps, parameters]`, to denormalised parameters.
    pub fn parameters_from<'n>(self, raw: Tensor<'n>, statistics: &InstanceStatistics<'n>) -> Tensor<'n> {
        let part = |index: usize| raw.slice(2, index, index + 1);
        let positive = |x: Tensor<'n>| x.softplus() + MIN_SCALE;
        let parts = match self {
            Distribution::Gaussian => {
                vec![statistics.denormalize(part(0)), statistics.denormalize_scale(positive(part(1)))]
            }
            Distribution::StudentT => {
                vec![
                    part(0).softplus() + 2.0,
                    statistics.denormalize(part(1)),
                    statistics.denormalize_scale(positive(part(2))),
                ]
            }
            // As in DeepAR, the mean is multiplied by the scale and the shape divided by its square root.
            Distribution::NegativeBinomial => {
                let shape = positive(part(1));
                let shape = statistics.scale.map_or(shape, |scale| shape / per_step(scale.sqrt()));
                vec![statistics.denormalize_scale(positive(part(0))), shape]
            }
        };
        raw.network().concat(&parts, 2)
    }

    /// Returns the mean negative log-likelihood of values, `[rows, steps, 1]`: a scalar.
    pub fn negative_log_likelihood<'n>(self, parameters: Tensor<'n>, y: Tensor<'n>) -> Tensor<'n> {
        let part = |index: usize| parameters.slice(2, index, index + 1);
        let losses = match self {
            Distribution::Gaussian => {
                let (mean, deviation) = (part(0), part(1));
                ((y - mean) / deviation).square() * 0.5 + deviation.log() + 0.5 * (2.0 * PI).ln()
            }
            Distribution::StudentT => {
                let (freedom, location, scale) = (part(0), part(1), part(2));
                let distance = ((y - location) / scale).square() / freedom;
                let half = (freedom + 1.0) * 0.5;
                half * (distance + 1.0).log()
                    + scale.log()
                    + freedom.log() * 0.5
                    + 0.5 * PI.ln()
                    + log_gamma(freedom * 0.5)
                    - log_gamma(half)
            }
            Distribution::NegativeBinomial => {
                let (mean, shape) = (part(0), part(1));
                let (inverse, product) = (shape.recip(), shape * mean);
                let log_total = (product + 1.0).log();
                log_gamma(y + 1.0) + log_gamma(inverse) - log_gamma(y + inverse) + inverse * log_total
                    - y * (product.log() - log_total)
            }
        };
        losses.mean_all()
    }

    /// Returns the mean.
    pub fn mean(self, parameters: &[f32]) -> f64 {
        f64::from(parameters[self.location()])
    }

    /// Returns the quantile of a level between 0 and 1.
    pub fn quantile(self, parameters: &[f32], level: f64) -> f64 {
        let parameter = |index: usize| f64::from(parameters[index]);
        match self {
            Distribution::Gaussian => parameter(0) + parameter(1) * normal_quantile(level),
            Distribution::StudentT => parameter(1) + parameter(2) * student_quantile(parameter(0), level),
            Distribution::NegativeBinomial => count_quantile(parameter(0), parameter(1), level),
        }
    }

    /// Draws a sample.
    pub fn sample(self, parameters: &[f32], random: &mut Random) -> f64 {
        let parameter = |index: usize| f64::from(parameters[index]);
        match self {
            Distribution::Gaussian => parameter(0) + parameter(1) * normal(random),
            Distribution::StudentT => {
                let half = parameter(0) / 2.0;
                let stretch = (half / gamma(half, random)).sqrt();
                parameter(1) + parameter(2) * normal(random) * stretch
            }
            Distribution::NegativeBinomial => {
                let inverse = 1.0 / parameter(1);
                poisson(gamma(inverse, random) * parameter(0) * parameter(1), random)
            }
        }
    }
}

/// Coefficients of Lanczos' approximation (g = 5, six terms), as in Numerical Recipes: the error is below 2e-10.
const LANCZOS: [f64; 6] = [
    76.180_091_729_471_46,
    -86.505_320_329_416_77,
    24.014_098_240_830_91,
    -1.231_739_572_450_155,
    1.208_650_973_866_179e-3,
    -5.395_239_384_953e-6,
];
const LANCZOS_FIRST: f64 = 1.000_000_000_190_015;

/// Returns the log-gamma function of positive numbers, as a graph.
fn log_gamma(x: Tensor<'_>) -> Tensor<'_> {
    let shifted = x + 5.5;
    let terms = LANCZOS.iter().enumerate().map(|(i, &c)| (x + (i + 1) as f64).recip() * c);
    let series = terms.fold(x * 0.0 + LANCZOS_FIRST, |sum, term| sum + term);
    (x + 0.5) * shifted.log() - shifted + (series / x).log() + 0.5 * (2.0 * PI).ln()
}

/// Returns the log-gamma function of a positive number.
fn log_gamma_of(x: f64) -> f64 {
    let shifted = x + 5.5;
    let terms = LANCZOS.iter().enumerate().map(|(i, c)| c / (x + (i + 1) as f64));
    let series = LANCZOS_FIRST + terms.sum::<f64>();
    (x + 0.5) * shifted.ln() - shifted + (series / x).ln() + 0.5 * (2.0 * PI).ln()
}

/// Finds a root by bisection; `below` says whether a point is below the root.
fn bisect(mut low: f64, mut high: f64, below: impl Fn(f64) -> bool) -> f64 {
    for _ in 0..200 {
        let middle = low + (high - low) / 2.0;
        if middle <= low || middle >= high {
            break;
        }
        if below(middle) { low = middle } else { high = middle }
    }
    high
}

/// Cumulative distribution function of Student's t. With `x = sqrt(freedom) tan(angle)` the density becomes
/// `cos(angle)^(freedom - 1)`, which is integrated by Simpson's rule.
fn student_probability(freedom: f64, x: f64) -> f64 {
    /// Number of intervals, even.
    const INTERVALS: usize = 400;
    let end = (x / freedom.sqrt()).atan();
    let width = end / INTERVALS as f64;
    let height = |i: usize| (width * i as f64).cos().powf(freedom - 1.0);
    let weight = |i: usize| if i == 0 || i == INTERVALS { 1.0 } else { 2.0 + 2.0 * (i % 2) as f64 };
    let integral = (0..=INTERVALS).map(|i| weight(i) * height(i)).sum::<f64>() * width / 3.0;
    let norm = log_gamma_of(freedom / 2.0 + 0.5) - log_gamma_of(freedom / 2.0) - 0.5 * PI.ln();
    0.5 + integral * norm.exp()
}

fn student_quantile(freedom: f64, level: f64) -> f64 {
    bisect(-1e4, 1e4, |x| student_probability(freedom, x) < level)
}

/// Quantile function of the normal distribution, by bisection.
fn normal_quantile(level: f64) -> f64 {
    bisect(-40.0, 40.0, |x| normal_probability(x) < level)
}

/// Cumulative distribution function of the normal distribution, by Simpson's rule.
fn normal_probability(x: f64) -> f64 {
    const INTERVALS: usize = 400;
    let end = x.clamp(-9.0, 9.0);
    let width = end / INTERVALS as f64;
    let height = |i: usize| (-(width * i as f64).powi(2) / 2.0).exp();
    let weight = |i: usize| if i == 0 || i == INTERVALS { 1.0 } else { 2.0 + 2.0 * (i % 2) as f64 };
    let integral = (0..=INTERVALS).map(|i| weight(i) * height(i)).sum::<f64>() * width / 3.0;
    0.5 + integral / (2.0 * PI).sqrt()
}

/// Quantile function of the negative binomial distribution: the smallest count whose cumulative probability reaches
/// `level`.
fn count_quantile(mean: f64, shape: f64, level: f64) -> f64 {
    /// Mean above which the normal approximation is used.
    const MAX_EXACT_MEAN: f64 = 1e5;
    let deviation = (mean + shape * mean * mean).sqrt();
    if mean > MAX_EXACT_MEAN || !deviation.is_finite() {
        return (mean + deviation * normal_quantile(level)).round().max(0.0);
    }
    let (inverse, odds) = (1.0 / shape, shape * mean / (1.0 + shape * mean));
    // The probability of each count is computed from the previous one.
    let mut log_probability = -inverse * (1.0 + shape * mean).ln();
    let (mut sum, mut count) = (log_probability.exp(), 0.0);
    while sum < level && count < mean + 60.0 * deviation + 100.0 {
        log_probability += (odds * (count + inverse) / (count + 1.0)).ln();
        count += 1.0;
        sum += log_probability.exp();
    }
    count
}

/// Draws a uniform number in (0, 1].
fn above_zero(random: &mut Random) -> f64 {
    1.0 - f64::from(random.uniform())
}

/// Draws from the normal distribution (Box and Muller 1958).
fn normal(random: &mut Random) -> f64 {
    let radius = (-2.0 * above_zero(random).ln()).sqrt();
    radius * (2.0 * PI * f64::from(random.uniform())).cos()
}

/// Draws from the gamma distribution with scale 1 (Marsaglia and Tsang 2000).
fn gamma(shape: f64, random: &mut Random) -> f64 {
    if !shape.is_finite() || shape <= 0.0 {
        return f64::NAN;
    }
    if shape < 1.0 {
        return gamma(shape + 1.0, random) * above_zero(random).powf(1.0 / shape);
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(random);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && above_zero(random).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Draws from the Poisson distribution: products of uniform numbers for small means, the normal approximation for
/// large ones.
fn poisson(mean: f64, random: &mut Random) -> f64 {
    /// Mean above which the error of the approximation is below 1 % of the standard deviation.
    const MAX_EXACT_MEAN: f64 = 1000.0;
    if mean.is_nan() || mean > MAX_EXACT_MEAN {
        return (mean + mean.sqrt() * normal(random)).round().max(0.0);
    }
    let (mut log_product, mut count) = (above_zero(random).ln(), 0.0);
    while log_product >= -mean {
        log_product += above_zero(random).ln();
        count += 1.0;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::super::Network;
    use super::*;
    use gatework_engine::Program;
    use gatework_train::random::Purpose;

    const EVERY: [(Distribution, [f32; 3]); 4] = [
        (Distribution::Gaussian, [3.0, 2.0, 0.0]),
        (Distribution::StudentT, [5.0, 3.0, 2.0]),
        (Distribution::NegativeBinomial, [4.0, 0.5, 0.0]),
        (Distribution::NegativeBinomial, [0.3, 2.0, 0.0]),
    ];

    /// Evaluates the graph of the negative log-likelihood.
    fn likelihood(distribution: Distribution, parameters: &[f32], y: f32) -> f64 {
        let network = Network::for_prediction();
        let count = distribution.parameters();
        let (p, value) = (network.input("p", &[1, 1, count]), network.input("y", &[1, 1, 1]));
        let loss = distribution.negative_log_likelihood(p, value);
        let (graph, _) = network.finish(&[("loss", loss)]).unwrap();
        let mut runner = Program::new(&graph).unwrap().runner();
        runner.write("p", &parameters[..count]).unwrap();
        runner.write("y", &[y]).unwrap();
        runner.run();
        f64::from(runner.read::<f32>("loss").unwrap()[0])
    }

    #[test]
    fn likelihoods_have_known_values() {
        // One deviation below the mean.
        let gaussian = 0.5 + 2f64.ln() + 0.5 * (2.0 * PI).ln();
        assert!((likelihood(Distribution::Gaussian, &[3.0, 2.0], 1.0) - gaussian).abs() < 1e-5);
        // Density of t with 5 degrees at 1: 8 / (3 pi sqrt 5) * (1 + 1/5)^-3, halved by the scale.
        let student = -(8.0 / (3.0 * PI * 5f64.sqrt()) * 1.2f64.powi(-3) / 2.0).ln();
        assert!((likelihood(Distribution::StudentT, &[5.0, 3.0, 2.0], 1.0) - student).abs() < 1e-5);
        // Mean 4, shape 1/2: C(3 + 1, 3) (1/3)^2 (2/3)^3.
        let counts = -(4.0 * (1.0 / 9.0) * (8.0 / 27.0f64)).ln();
        assert!((likelihood(Distribution::NegativeBinomial, &[4.0, 0.5], 3.0) - counts).abs() < 1e-5);
    }

    #[test]
    fn log_gamma_of_integers_is_the_log_factorial() {
        let mut factorial = 1.0f64;
        for n in 1..15 {
            assert!((log_gamma_of(f64::from(n)) - factorial.ln()).abs() < 1e-9, "{n}");
            factorial *= f64::from(n);
        }
        assert!((log_gamma_of(0.5) - PI.sqrt().ln()).abs() < 1e-9);
    }

    #[test]
    fn quantiles_have_known_values() {
        assert!((normal_quantile(0.975) - 1.959_963_985).abs() < 1e-6);
        assert!(normal_quantile(0.5).abs() < 1e-9);
        // Tables of Student's t.
        assert!((student_quantile(5.0, 0.95) - 2.015_048_373).abs() < 1e-6);
        assert!((student_quantile(2.5, 0.1) + student_quantile(2.5, 0.9)).abs() < 1e-6);
        // Mean 4, shape 1/2: probabilities 1/9, 4/27, 4/27, ...
        assert_eq!(
            [0.1, 0.112, 0.26, 0.41].map(|level| count_quantile(4.0, 0.5, level)),
            [0.0, 1.0, 2.0, 3.0]
        );
    }

    #[test]
    fn samples_have_the_mean_and_the_quantiles() {
        let mut random = Random::new(3, Purpose::Check, 0);
        for (distribution, parameters) in EVERY {
            let mut samples: Vec<f64> =
                (0..20_000).map(|_| distribution.sample(&parameters, &mut random)).collect();
            samples.sort_by(f64::total_cmp);
            let mean = samples.iter().sum::<f64>() / samples.len() as f64;
            let (low, high) = (samples[2000], samples[18_000]);
            let spread = high - low + 0.1;
            assert!(
                (mean - distribution.mean(&parameters)).abs() < 0.05 * spread,
                "{distribution:?}: {mean}"
            );
            for (level, sample) in [(0.1, low), (0.9, high)] {
                let quantile = distribution.quantile(&parameters, level);
                assert!(
                    (quantile - sample).abs() <= 0.1 * spread,
                    "{distribution:?}: {sample} for {quantile}"
                );
            }
        }
    }
}
