//! Prediction intervals from the errors of rolling origins: normalised conformal prediction.
//!
//! An error is divided by the unit of its origin and by the profile of its step, which grows with the horizon. What
//! remains is pooled over steps, origins and series, recent origins with more weight, and its quantiles are scaled back.
//! Errors of one origin resemble each other: the number of independent ones is estimated, and few of them widen the
//! intervals as Student's t does.

use crate::metrics::seasonal_scale;

/// The age, as a fraction of all origins, at which an origin has half the weight of the latest.
const HALF_LIFE: f64 = 1.0;

/// Independent errors at which quantiles of both signs and symmetric ones have equal weight.
const SIGNED_FROM: f64 = 40.0;

/// Origins of equal weight that pull the unit of a series towards that of its group.
const SHRINKAGE: f64 = 2.0;

/// The standard deviation of normal errors whose mean size is 1.
const MEAN_TO_DEVIATION: f64 = 1.253_314_137_315_5;

/// The errors of the forecasts from one origin.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginErrors {
    /// Number of the series.
    pub series: usize,
    /// Age of the origin: 0 is the latest.
    pub age: usize,
    /// Scale of the values before the origin; see [`Unit`].
    pub units: [f64; 3],
    /// Actual value minus forecast; NaN if it is unknown.
    pub errors: Vec<f64>,
}

/// What errors are proportional to: the one that makes them most alike is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The mean change of the whole series.
    Series = 0,
    /// The mean change of the recent values.
    Recent = 1,
    /// The mean magnitude of the forecast.
    Level = 2,
}

const UNITS: [Unit; 3] = [Unit::Series, Unit::Recent, Unit::Level];

/// Returns the units of a history and a forecast from its end.
pub fn units(history: &[f64], season: usize, forecast: &[f64]) -> [f64; 3] {
    let change = |values: &[f64]| {
        let scales = [season, 1].map(|lag| seasonal_scale(values, lag));
        scales.into_iter().find(|scale| scale.is_finite() && *scale > 0.0)
    };
    let whole = change(history).unwrap_or_else(|| history.last().map_or(1.0, |x| x.abs()).max(1e-12));
    let window = (3 * season).max(40).min(history.len());
    // Few values say little: their geometric mean with the whole.
    let recent = change(&history[history.len() - window..]).map_or(whole, |recent| (recent * whole).sqrt());
    let level = forecast.iter().map(|x| x.abs()).sum::<f64>() / forecast.len().max(1) as f64;
    [whole, recent, if level > 0.0 { level } else { whole }]
}

/// Calibrated intervals of a group of series.
#[derive(Clone, Debug, PartialEq)]
pub struct Intervals {
    unit: Unit,
    /// Mean absolute error of each step, in units.
    profile: Vec<f64>,
    /// Factor of each series, by number.
    series: Vec<(usize, f64)>,
    /// Normalised errors in ascending order, with their weights.
    errors: Vec<(f64, f64)>,
    /// Absolute normalised errors in ascending order, with their weights.
    sizes: Vec<(f64, f64)>,
    /// Number of independent errors.
    independent: f64,
}

impl Intervals {
    /// Calibrates intervals for forecasts of `horizon` steps whose origins are `step` steps apart.
    pub fn calibrate(origins: &[OriginErrors], horizon: usize, step: usize) -> Intervals {
        let unit = best_unit(origins);
        let ages = origins.iter().map(|origin| origin.age).max().unwrap_or(0) as f64 + 1.0;
        let weight = |origin: &OriginErrors| 0.5f64.powf(origin.age as f64 / (HALF_LIFE * ages));
        let scaled = |origin: &OriginErrors| -> Vec<f64> {
            origin.errors.iter().map(|error| error / origin.units[unit as usize]).collect()
        };
        let profile = profile(origins.iter().map(|origin| (weight(origin), scaled(origin))), horizon);
        let normal = |origin: &OriginErrors| -> Vec<f64> {
            scaled(origin)
                .iter()
                .zip(&profile)
                .map(|(error, size)| error / size)
                .filter(|z| z.is_finite())
                .collect()
        };
        let mut by_series: Vec<(usize, f64, f64)> = Vec::new();
        for origin in origins {
            let z = normal(origin);
            if z.is_empty() {
                continue;
            }
            let size = z.iter().map(|z| z.abs()).sum::<f64>() / z.len() as f64;
            if by_series.last().is_none_or(|(series, ..)| *series != origin.series) {
                by_series.push((origin.series, 0.0, 0.0));
            }
            if let Some((_, sum, count)) = by_series.last_mut() {
                // Overlapping origins say less than separate ones.
                let share = (step as f64 / horizon as f64).min(1.0);
                (*sum, *count) = (*sum + share * size, *count + share);
            }
        }
        let factor =
            |(series, sum, count): &(usize, f64, f64)| (*series, (sum + SHRINKAGE) / (count + SHRINKAGE));
        let mut series: Vec<(usize, f64)> = by_series.iter().map(factor).collect();
        series.sort_by_key(|(series, _)| *series);
        let of = |number: usize| {
            series.binary_search_by_key(&number, |(series, _)| *series).map_or(1.0, |at| series[at].1)
        };
        let (mut errors, mut sizes, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        for origin in origins {
            let z: Vec<f64> = normal(origin).iter().map(|z| z / of(origin.series)).collect();
            errors.extend(z.iter().map(|z| (*z, weight(origin))));
            sizes.extend(z.iter().map(|z| (z.abs(), weight(origin))));
            groups.push(z);
        }
        errors.sort_by(|a, b| a.0.total_cmp(&b.0));
        sizes.sort_by(|a, b| a.0.total_cmp(&b.0));
        let independent = independent(&groups, (step as f64 / horizon as f64).min(1.0));
        Intervals { unit, profile, series, errors, sizes, independent }
    }

    /// Returns the bounds of an interval around a forecast of a series, given the units of its history.
    pub fn interval(&self, level: f64, series: usize, units: [f64; 3], forecast: &[f64]) -> [Vec<f64>; 2] {
        let factor = self.series.binary_search_by_key(&series, |(series, _)| *series);
        let scale = units[self.unit as usize] * factor.map_or(1.0, |at| self.series[at].1);
        let tail = (1.0 - level) / 2.0;
        let (symmetric, signed) = if self.sizes.is_empty() {
            // Nothing was compared: the errors of a random walk with normal steps, whose mean size is the unit.
            let size = MEAN_TO_DEVIATION * student(level, f64::INFINITY);
            (size, [-size, size])
        } else {
            let quantile = |of: &[(f64, f64)], level: f64| quantile(of, level, self.independent);
            (quantile(&self.sizes, level), [tail, 1.0 - tail].map(|level| quantile(&self.errors, level)))
        };
        let widening = student(level, self.independent) / student(level, f64::INFINITY);
        let share = self.independent / (self.independent + SIGNED_FROM);
        let bound = |side: usize| -> Vec<f64> {
            let sign = if side == 0 { -1.0 } else { 1.0 };
            let width = share * signed[side] + (1.0 - share) * sign * symmetric;
            // The interval contains the forecast.
            let width = if sign < 0.0 { width.min(0.0) } else { width.max(0.0) } * widening;
            let last = self.profile.last().copied().unwrap_or(1.0);
            let profile = self.profile.iter().copied().chain(std::iter::repeat(last));
            forecast.iter().zip(profile).map(|(value, size)| value + width * size * scale).collect()
        };
        [bound(0), bound(1)]
    }
}

/// Returns the unit with which the errors have the highest likelihood under a Laplace distribution.
fn best_unit(origins: &[OriginErrors]) -> Unit {
    let criterion = |unit: &Unit| {
        let (mut logarithms, mut sum, mut count) = (0.0, 0.0, 0.0);
        for origin in origins {
            let unit = origin.units[*unit as usize].max(f64::MIN_POSITIVE);
            for error in origin.errors.iter().filter(|error| error.is_finite()) {
                (logarithms, sum, count) = (logarithms + unit.ln(), sum + error.abs() / unit, count + 1.0);
            }
        }
        logarithms + count * (sum / f64::max(count, 1.0)).max(f64::MIN_POSITIVE).ln()
    };
    UNITS.into_iter().min_by(|a, b| criterion(a).total_cmp(&criterion(b))).unwrap_or(Unit::Series)
}

/// Returns the weighted mean absolute error of each step, smoothed over neighbouring steps.
fn profile(errors: impl Iterator<Item = (f64, Vec<f64>)>, horizon: usize) -> Vec<f64> {
    let mut sums = vec![(0.0, 0.0); horizon];
    for (weight, errors) in errors {
        for ((sum, total), error) in sums.iter_mut().zip(errors).filter(|(_, error)| error.is_finite()) {
            (*sum, *total) = (*sum + weight * error.abs(), *total + weight);
        }
    }
    let reach = (horizon / 6).max(1);
    let whole = sums.iter().fold((0.0, 0.0), |(sum, total), (a, b)| (sum + a, total + b));
    if whole.1 == 0.0 {
        return (1..=horizon).map(|step| (step as f64).sqrt()).collect();
    }
    let overall = whole.0 / whole.1;
    let smooth = |step: usize| {
        // As many on both sides: errors grow with the step.
        let reach = reach.min(step).min(horizon - 1 - step);
        let around = step - reach..step + reach + 1;
        let (sum, total) = sums[around].iter().fold((0.0, 0.0), |(sum, total), (a, b)| (sum + a, total + b));
        // A step without any error is nearly as uncertain as the others.
        if total > 0.0 { (sum / total).max(0.05 * overall) } else { overall }
    };
    (0..horizon).map(|step| smooth(step).max(f64::MIN_POSITIVE)).collect()
}

/// Estimates the number of independent errors: those of one origin are as alike as their intraclass correlation says, and
/// origins overlap.
fn independent(groups: &[Vec<f64>], share: f64) -> f64 {
    let groups: Vec<Vec<f64>> = groups
        .iter()
        .filter(|group| !group.is_empty())
        .map(|group| group.iter().map(|z| z.abs()).collect())
        .collect();
    let (count, all) = (groups.len() as f64, groups.iter().map(Vec::len).sum::<usize>() as f64);
    if count < 2.0 {
        return count.max(1.0);
    }
    let size = all / count;
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let grand = groups.iter().flatten().sum::<f64>() / all;
    let between =
        groups.iter().map(|g| g.len() as f64 * (mean(g) - grand).powi(2)).sum::<f64>() / (count - 1.0);
    let within: f64 = groups.iter().map(|g| g.iter().map(|z| (z - mean(g)).powi(2)).sum::<f64>()).sum();
    let within = within / (all - count).max(1.0);
    let correlation = ((between - within) / (between + (size - 1.0) * within)).clamp(0.0, 1.0);
    let correlation = if correlation.is_finite() { correlation } else { 1.0 };
    (count * share * size / (1.0 + (size - 1.0) * correlation)).max(1.0)
}

/// Returns a weighted quantile, at the level that covers a further value too.
fn quantile(sorted: &[(f64, f64)], level: f64, independent: f64) -> f64 {
    let total: f64 = sorted.iter().map(|(_, weight)| weight).sum();
    // As (n + 1) p / n for the upper tail, and its mirror image for the lower one.
    let level = (level + (level - 0.5) / independent).clamp(0.0, 1.0);
    let mut below = 0.0;
    for (value, weight) in sorted {
        below += weight;
        if below >= level * total {
            return *value;
        }
    }
    sorted.last().map_or(0.0, |(value, _)| *value)
}

/// Returns the half width of a central interval of Student's t distribution with these degrees of freedom (Hill 1970).
fn student(level: f64, freedom: f64) -> f64 {
    let tail = (1.0 - level).clamp(1e-9, 1.0);
    let normal = normal_quantile(1.0 - tail / 2.0);
    if freedom.is_infinite() {
        return normal;
    }
    let n = freedom.max(2.0);
    // Expansion of Cornish and Fisher.
    let x = normal;
    let terms = [
        x,
        (x.powi(3) + x) / 4.0,
        (5.0 * x.powi(5) + 16.0 * x.powi(3) + 3.0 * x) / 96.0,
        (3.0 * x.powi(7) + 19.0 * x.powi(5) + 17.0 * x.powi(3) - 15.0 * x) / 384.0,
    ];
    terms.iter().enumerate().map(|(power, term)| term / n.powi(power as i32)).sum()
}

/// Returns a quantile of the normal distribution (Acklam's rational approximation, relative error 1e-9).
fn normal_quantile(p: f64) -> f64 {
    let a = [
        -3.969_683_028_665_376e1,
        2.209_460_984_245_205e2,
        -2.759_285_104_469_687e2,
        1.383_577_518_672_69e2,
        -3.066_479_806_614_716e1,
        2.506_628_277_459_239,
    ];
    let b = [
        -5.447_609_879_822_406e1,
        1.615_858_368_580_409e2,
        -1.556_989_798_598_866e2,
        6.680_131_188_771_972e1,
        -1.328_068_155_288_572e1,
    ];
    let c = [
        -7.784_894_002_430_293e-3,
        -3.223_964_580_411_365e-1,
        -2.400_758_277_161_838,
        -2.549_732_539_343_734,
        4.374_664_141_464_968,
        2.938_163_982_698_783,
    ];
    let d =
        [7.784_695_709_041_462e-3, 3.224_671_290_700_398e-1, 2.445_134_137_142_996, 3.754_408_661_907_416];
    let polynomial = |c: &[f64], x: f64| c.iter().fold(0.0, |sum, c| sum * x + c);
    if p < 0.02425 {
        let q = (-2.0 * p.ln()).sqrt();
        polynomial(&c, q) / (polynomial(&d, q) * q + 1.0)
    } else if p > 1.0 - 0.02425 {
        -normal_quantile(1.0 - p)
    } else {
        let q = p - 0.5;
        polynomial(&a, q * q) * q / (polynomial(&b, q * q) * q * q + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::random::{Purpose, Random};

    fn noise(seed: u64) -> impl FnMut() -> f64 {
        let mut random = Random::new(seed, Purpose::Check, 0);
        move || (0..12).map(|_| f64::from(random.uniform())).sum::<f64>() - 6.0
    }

    /// Errors of a random walk from these origins: they grow with the square root of the step.
    fn walk(
        series: usize,
        origins: usize,
        horizon: usize,
        noise: &mut impl FnMut() -> f64,
    ) -> Vec<OriginErrors> {
        (0..origins)
            .map(|age| {
                let mut level = 0.0;
                let mut step = || {
                    level += noise();
                    level
                };
                OriginErrors {
                    series,
                    age,
                    units: [1.0, 1.3, 0.7],
                    errors: (0..horizon).map(|_| step()).collect(),
                }
            })
            .collect()
    }

    #[test]
    fn quantiles_of_distributions_have_their_published_values() {
        for (p, expected) in
            [(0.975, 1.959_963_985), (0.9, 1.281_551_566), (0.999, 3.090_232_306), (0.5, 0.0)]
        {
            assert!((normal_quantile(p) - expected).abs() < 1e-8, "{p}");
            assert!((normal_quantile(1.0 - p) + expected).abs() < 1e-8, "{p}");
        }
        for (freedom, level, expected) in
            [(5.0, 0.8, 1.4759), (5.0, 0.95, 2.5706), (10.0, 0.95, 2.2281), (30.0, 0.8, 1.3104)]
        {
            assert!(
                (student(level, freedom) - expected).abs() < 0.03,
                "{freedom} {level} {}",
                student(level, freedom)
            );
        }
    }

    #[test]
    fn coverage_is_that_of_the_level_at_every_step() {
        let mut noise = noise(5);
        let origins = walk(0, 400, 10, &mut noise);
        let intervals = Intervals::calibrate(&origins, 10, 10);
        let fresh = walk(0, 2000, 10, &mut noise);
        for level in [0.5, 0.8, 0.95] {
            let [low, high] = intervals.interval(level, 0, [1.0, 1.3, 0.7], &[0.0; 10]);
            for step in 0..10 {
                let inside =
                    fresh.iter().filter(|o| (low[step]..=high[step]).contains(&o.errors[step])).count();
                let coverage = inside as f64 / 2000.0;
                assert!((coverage - level).abs() < 0.06, "{coverage} at step {step} for {level}");
            }
        }
    }

    #[test]
    fn levels_are_nested_and_distinct_even_with_few_origins() {
        let mut noise = noise(6);
        for count in [1, 2, 3, 10] {
            let intervals = Intervals::calibrate(&walk(0, count, 4, &mut noise), 4, 1);
            let bounds: Vec<_> = [0.5, 0.8, 0.95, 0.99]
                .iter()
                .map(|level| intervals.interval(*level, 0, [1.0; 3], &[5.0; 4]))
                .collect();
            for pair in bounds.windows(2) {
                let [[low, high], [wider_low, wider_high]] = [&pair[0], &pair[1]];
                for step in 0..4 {
                    let widths = [high[step] - low[step], wider_high[step] - wider_low[step]];
                    assert!(wider_low[step] <= low[step] && wider_high[step] >= high[step]);
                    assert!(widths[1] > widths[0], "{count} origins, step {step}: {widths:?}");
                }
            }
        }
    }

    #[test]
    fn each_series_has_its_own_width() {
        let mut noise = noise(7);
        let mut origins = walk(0, 30, 4, &mut noise);
        let mut wild = walk(1, 30, 4, &mut noise);
        wild.iter_mut().flat_map(|o| &mut o.errors).for_each(|error| *error *= 10.0);
        origins.extend(wild);
        let intervals = Intervals::calibrate(&origins, 4, 4);
        let width = |series| {
            let [low, high] = intervals.interval(0.8, series, [1.0; 3], &[0.0]);
            high[0] - low[0]
        };
        assert!((6.0..14.0).contains(&(width(1) / width(0))), "{}", width(1) / width(0));
        assert!(width(0) < width(2) && width(2) < width(1), "an unknown series is between");
    }

    #[test]
    fn the_unit_that_errors_follow_is_chosen() {
        let origins: Vec<OriginErrors> = (1..40u32)
            .map(|i| OriginErrors {
                series: 0,
                age: 40 - i as usize,
                units: [1.0, 1.0, f64::from(i)],
                errors: vec![f64::from(i) * 0.1, -f64::from(i) * 0.12],
            })
            .collect();
        assert_eq!(best_unit(&origins), Unit::Level);
    }

    #[test]
    fn nothing_known_gives_intervals_of_finite_width() {
        for origins in
            [vec![], vec![OriginErrors { series: 0, age: 0, units: [1.0; 3], errors: vec![f64::NAN; 3] }]]
        {
            let [low, high] = Intervals::calibrate(&origins, 3, 1).interval(0.8, 0, [1.0; 3], &[1.0; 3]);
            assert!(low.iter().chain(&high).all(|x| x.is_finite()));
            assert!(low[0] < 0.0 && low[2] < low[0] && high[2] > high[0], "they grow with the horizon");
        }
        assert!(units(&[], 7, &[]).iter().all(|unit| unit.is_finite()));
        assert!(units(&[4.0; 9], 7, &[0.0]).iter().all(|unit| *unit > 0.0));
    }
}
