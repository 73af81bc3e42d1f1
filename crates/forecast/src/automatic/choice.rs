//! The choice of a model or an ensemble for a group of series, from forecasts of rolling origins.

/// An ensemble is chosen unless a single model is better by this fraction: a mean of forecasts is less dependent on the
/// luck of few origins.
const ADVANTAGE_OF_ONE: f64 = 0.03;

/// Members of an ensemble, and models that may become one.
const MAX_MEMBERS: usize = 5;
const BEST: usize = 8;

/// How forecasts are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Combination {
    /// By their median at each step.
    Median,
    /// By their mean, for demand that is mostly zero: the median of such forecasts is biased.
    Mean,
}

impl Combination {
    /// Combines the forecasts of one step. They are sorted in place.
    pub fn of(self, values: &mut [f64]) -> f64 {
        if self == Combination::Mean || values.len() < 3 {
            return values.iter().sum::<f64>() / values.len().max(1) as f64;
        }
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) }
    }

    /// Combines forecasts of equal length.
    pub fn combine(self, members: &[&[f64]]) -> Vec<f64> {
        let steps = members.first().map_or(0, |member| member.len());
        let mut values = Vec::with_capacity(members.len());
        (0..steps)
            .map(|step| {
                values.clear();
                values.extend(members.iter().map(|member| member[step]));
                self.of(&mut values)
            })
            .collect()
    }
}

/// A window of the comparison: the actual values, and the forecasts of all candidates.
#[derive(Clone, Debug)]
pub struct Window<'a> {
    /// Number of the series within the group.
    pub series: usize,
    /// Actual values; NaN if unknown.
    pub actual: &'a [f64],
    /// Forecasts of the candidates.
    pub forecasts: Vec<&'a [f64]>,
    /// What errors of the series are divided by.
    pub scale: f64,
}

/// Returns the mean scaled error over the windows of each series, and over series: absolute, or the root of the squared one
/// with [`Combination::Mean`], which absolute errors would draw to zero.
pub fn score(windows: &[Window<'_>], members: &[usize], combination: Combination) -> f64 {
    let squared = combination == Combination::Mean;
    let mut series: Vec<(f64, f64)> = Vec::new();
    let mut values = Vec::with_capacity(members.len());
    for window in windows {
        if series.len() <= window.series {
            series.resize(window.series + 1, (0.0, 0.0));
        }
        let (sum, count) = &mut series[window.series];
        for (step, actual) in window.actual.iter().enumerate().filter(|(_, actual)| actual.is_finite()) {
            values.clear();
            values.extend(members.iter().map(|member| window.forecasts[*member][step]));
            let error = (combination.of(&mut values) - actual) / window.scale;
            *sum += if squared { error * error } else { error.abs() };
            *count += 1.0;
        }
    }
    let means = series.iter().filter(|(_, count)| *count > 0.0).map(|(sum, count)| sum / count);
    let means: Vec<f64> = means.map(|mean| if squared { mean.sqrt() } else { mean }).collect();
    means.iter().sum::<f64>() / means.len() as f64
}

/// Chooses the members of a group among `candidates`: adds the one that helps most until none does. Returns the members in
/// the order of their choice and their score.
pub fn choose(windows: &[Window<'_>], candidates: &[usize], combination: Combination) -> (Vec<usize>, f64) {
    let mut ranked: Vec<(usize, f64)> =
        candidates.iter().map(|&candidate| (candidate, score(windows, &[candidate], combination))).collect();
    ranked.retain(|(_, score)| score.is_finite());
    ranked.sort_by(|a, b| a.1.total_cmp(&b.1));
    ranked.truncate(BEST);
    let Some(&(best, single)) = ranked.first() else { return (Vec::new(), f64::NAN) };
    let (mut members, mut ensemble) = (vec![best], None);
    while members.len() < MAX_MEMBERS.min(ranked.len()) {
        let with = |candidate: usize| -> (usize, f64) {
            let all: Vec<usize> = members.iter().copied().chain([candidate]).collect();
            (candidate, score(windows, &all, combination))
        };
        let others = ranked.iter().map(|(candidate, _)| *candidate).filter(|c| !members.contains(c));
        let Some((next, found)) = others.map(with).min_by(|a, b| a.1.total_cmp(&b.1)) else { break };
        members.push(next);
        if ensemble.as_ref().is_none_or(|(_, least)| found < *least) {
            ensemble = Some((members.clone(), found));
        }
    }
    match ensemble {
        Some((members, score)) if score <= single * (1.0 + ADVANTAGE_OF_ONE) => (members, score),
        _ => (vec![best], single),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forecasts_are_combined_by_median_or_mean() {
        let members: [&[f64]; 3] = [&[1.0, 5.0], &[2.0, 5.0], &[9.0, 8.0]];
        assert_eq!(Combination::Median.combine(&members), [2.0, 5.0]);
        assert_eq!(Combination::Mean.combine(&members), [4.0, 6.0]);
        assert_eq!(Combination::Median.combine(&members[1..]), [5.5, 6.5]);
        assert_eq!(Combination::Median.of(&mut [4.0, 1.0, 2.0, 100.0]), 3.0);
    }

    fn windows<'a>(actual: &'a [f64], forecasts: &[&'a [f64]]) -> Vec<Window<'a>> {
        vec![Window { series: 0, actual, forecasts: forecasts.to_vec(), scale: 2.0 }]
    }

    #[test]
    fn a_single_model_is_chosen_only_if_it_is_clearly_better() {
        let actual = [10.0, 10.0, f64::NAN];
        let (exact, high, low) = ([10.0, 10.1, 0.0], [14.0, 14.0, 0.0], [6.0, 6.2, 0.0]);
        let clear = windows(&actual, &[&high, &exact]);
        assert_eq!(choose(&clear, &[0, 1], Combination::Median).0, [1]);
        // Errors of both signs cancel.
        let (members, score) = choose(&windows(&actual, &[&high, &low]), &[0, 1], Combination::Median);
        assert_eq!(members.len(), 2);
        assert!((score - 0.025).abs() < 1e-9, "{score}");
        assert_eq!(choose(&[], &[], Combination::Median).0, [0usize; 0]);
    }

    #[test]
    fn every_series_has_the_same_weight() {
        let (a, b) = ([0.0; 4], [0.0; 1]);
        let forecasts = ([1.0; 4], [3.0; 1]);
        let windows = [
            Window { series: 0, actual: &a, forecasts: vec![&forecasts.0], scale: 1.0 },
            Window { series: 1, actual: &b, forecasts: vec![&forecasts.1], scale: 1.0 },
        ];
        assert_eq!(score(&windows, &[0], Combination::Median), 2.0);
        assert_eq!(score(&windows, &[0], Combination::Mean), 2.0);
    }
}
