//! Hierarchical reconciliation: series of a table and the sums of groups of them are all forecast, and the forecasts changed as
//! little as their errors allow so that they add up.
//!
//! Forecasts are bottom-up sums, or MinT with a shrunken covariance of the errors (Wickramasuriya, Athanasopoulos, Hyndman 2019): with base
//! forecasts y and the covariance W of their errors, y - W C' (C W C')^-1 C y, where C y is the difference of each sum from its
//! parts.

use super::AutomaticForecast;
use crate::data::{Series, Table};

/// Nodes up to which the covariance of all pairs is estimated; beyond, only variances.
const MAX_COVARIANCES: usize = 1000;

/// Levels of a hierarchy at most.
const MAX_LEVELS: usize = 8;

/// The name of the sum of all series.
const TOTAL: &str = "total";

/// A hierarchy: sums, then the series they are sums of.
///
/// ```
/// use gatework_forecast::automatic::Hierarchy;
///
/// let hierarchy = Hierarchy::of_ids(&["north/1", "north/2", "south/3"]);
/// assert_eq!(hierarchy.sums(), ["total", "north"]);
/// let all = hierarchy.bottom_up(&[vec![1.0], vec![2.0], vec![4.0]]);
/// assert_eq!(all, [[7.0], [3.0], [1.0], [2.0], [4.0]]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    names: Vec<String>,
    /// Positions of the series that each sum has.
    members: Vec<Vec<usize>>,
    leaves: usize,
}

impl Hierarchy {
    /// Sums up to which reconciliation takes seconds: its time grows with their third power.
    pub const MAX_SUMS: usize = 2000;

    /// Makes the sums of ids whose parts are separated by slashes: of all series, and of those whose first parts are equal, up to eight
    /// parts. Sums of one series, and sums that equal another, are left out.
    pub fn of_ids<S: AsRef<str>>(ids: &[S]) -> Hierarchy {
        Hierarchy::of_parts(ids, MAX_LEVELS)
    }

    /// The same, with the sums of at most this many first parts. A sum whose name is that of a series gets another one.
    pub fn of_parts<S: AsRef<str>>(ids: &[S], levels: usize) -> Hierarchy {
        let mut hierarchy = Hierarchy { names: Vec::new(), members: Vec::new(), leaves: ids.len() };
        let mut taken: std::collections::HashSet<String> =
            ids.iter().map(|id| id.as_ref().to_string()).collect();
        let mut seen = std::collections::HashSet::new();
        let mut add = |name: &str, members: Vec<usize>| {
            if members.len() > 1 && seen.insert(members.clone()) {
                let mut name = name.to_string();
                while !taken.insert(name.clone()) {
                    name.push_str(" (sum)");
                }
                hierarchy.names.push(name);
                hierarchy.members.push(members);
            }
        };
        add(TOTAL, (0..ids.len()).collect());
        let depth = ids.iter().map(|id| id.as_ref().matches('/').count()).max().unwrap_or(0);
        for level in 1..=depth.min(levels).min(MAX_LEVELS) {
            let prefix =
                |id: &S| -> String { id.as_ref().split('/').take(level).collect::<Vec<_>>().join("/") };
            let mut groups: Vec<(String, Vec<usize>)> = Vec::new();
            let mut places = rustc_hash::FxHashMap::default();
            for (number, id) in
                ids.iter().enumerate().filter(|(_, id)| id.as_ref().matches('/').count() >= level)
            {
                let name = prefix(id);
                let place = *places.entry(name.clone()).or_insert_with(|| {
                    groups.push((name, Vec::new()));
                    groups.len() - 1
                });
                groups[place].1.push(number);
            }
            for (name, members) in groups {
                add(&name, members);
            }
        }
        hierarchy
    }

    /// Returns the names of the sums.
    pub fn sums(&self) -> &[String] {
        &self.names
    }

    /// Returns a table of the sums and the series; `None` if the series do not end at the same time. A series that begins later counts
    /// as 0 before. Known-future covariates of a sum are the means of its series.
    pub fn table(&self, table: &Table) -> Option<Table> {
        let steps = |series: &Series| -> Option<(i64, usize)> {
            let first = table.frequency.floor(table.series[0].origin, series.start)?;
            Some((first, series.values.len()))
        };
        let places: Vec<(i64, usize)> = table.series.iter().map(steps).collect::<Option<_>>()?;
        let end = places.first().map(|(first, length)| first + *length as i64)?;
        if self.leaves != table.series.len()
            || places.iter().any(|(first, length)| first + *length as i64 != end)
        {
            return None;
        }
        let columns = table.columns.future.len();
        let mut all = Table { series: Vec::new(), ..table.clone() };
        all.columns.past.clear();
        all.columns.fixed.clear();
        for (name, members) in self.names.iter().zip(&self.members) {
            let longest = *members.iter().max_by_key(|member| places[**member].1)?;
            let model = &table.series[longest];
            let length = model.values.len();
            let mut values = vec![0.0; length];
            let rows = |member: &usize| {
                let series = &table.series[*member];
                (series.future.len() / columns.max(1)).saturating_sub(series.values.len())
            };
            let ahead = if columns > 0 { members.iter().map(rows).min().unwrap_or(0) } else { 0 };
            let mut future = vec![(0.0, 0.0); (length + ahead) * columns];
            for member in members {
                let series = &table.series[*member];
                let before = length - series.values.len();
                values[before..].iter_mut().zip(&series.values).for_each(|(sum, y)| *sum += y);
                for (mean, x) in future[before * columns..].iter_mut().zip(&series.future) {
                    *mean = (mean.0 + x, mean.1 + 1.0);
                }
            }
            let future = future.into_iter().map(|(sum, count)| sum / f64::max(count, 1.0)).collect();
            let (start, origin) = (model.start, model.origin);
            all.series.push(Series { id: name.clone(), start, origin, values, future, ..Series::default() });
        }
        let leaves = table.series.iter().map(|series| Series {
            past: Vec::new(),
            fixed: Vec::new(),
            ..series.clone()
        });
        all.series.extend(leaves);
        Some(all)
    }

    /// Returns the forecasts of the sums and the series from those of the series: `[sums and series][steps]`.
    pub fn bottom_up(&self, leaves: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let sum = |members: &Vec<usize>| -> Vec<f64> {
            let steps = leaves.first().map_or(0, Vec::len);
            (0..steps).map(|step| members.iter().map(|member| leaves[*member][step]).sum()).collect()
        };
        self.members.iter().map(sum).chain(leaves.iter().cloned()).collect()
    }

    /// Reconciles forecasts of the sums and the series, `[sums and series][steps]`, given errors of earlier forecasts, of which those at one
    /// position of all series belong together; NaN where there is none.
    pub fn min_trace(&self, forecasts: &[Vec<f64>], errors: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let sums = self.members.len();
        let covariance = Covariance::of(errors, forecasts.len());
        // Rows of C: a sum has 1, its series have -1.
        let row = |sum: usize| {
            let parts = self.members[sum].iter().map(|member| (sums + member, -1.0));
            std::iter::once((sum, 1.0)).chain(parts)
        };
        // W C', one column for each sum.
        let spread: Vec<Vec<f64>> = (0..sums)
            .map(|sum| {
                let mut column = vec![0.0; forecasts.len()];
                for (node, sign) in row(sum) {
                    covariance.add_column(node, sign, &mut column);
                }
                column
            })
            .collect();
        let mut matrix = vec![0.0; sums * sums];
        for (i, line) in matrix.chunks_exact_mut(sums.max(1)).enumerate() {
            for (value, column) in line.iter_mut().zip(&spread) {
                *value = row(i).map(|(node, sign)| sign * column[node]).sum();
            }
        }
        let Some(factor) = cholesky(matrix, sums) else { return self.bottom_up(&forecasts[sums..]) };
        let steps = forecasts.first().map_or(0, Vec::len);
        let mut leaves: Vec<Vec<f64>> = forecasts[sums..].to_vec();
        for step in 0..steps {
            let differences: Vec<f64> = (0..sums)
                .map(|sum| row(sum).map(|(node, sign)| sign * forecasts[node][step]).sum())
                .collect();
            let weights = solve(&factor, differences);
            for (leaf, values) in leaves.iter_mut().enumerate() {
                let change: f64 =
                    weights.iter().zip(&spread).map(|(w, column)| w * column[sums + leaf]).sum();
                values[step] -= change;
            }
        }
        self.bottom_up(&leaves)
    }

    /// Reconciles the forecasts of a table of this hierarchy by MinT, whose comparison kept its errors. Intervals keep their
    /// widths. Series that are never negative stay so.
    pub fn reconcile(&self, result: &mut AutomaticForecast) {
        if result.forecasts.len() != self.members.len() + self.leaves {
            return;
        }
        let base: Vec<Vec<f64>> = result.forecasts.iter().map(|forecast| forecast.values.clone()).collect();
        let mut all = self.min_trace(&base, &result.errors);
        let mut leaves = all.split_off(self.members.len());
        for (leaf, choice) in leaves.iter_mut().zip(&result.series[self.members.len()..]) {
            if choice.quality.nonnegative {
                for y in leaf.iter_mut() {
                    *y = y.max(0.0);
                }
            }
        }
        let all = self.bottom_up(&leaves);
        for ((forecast, choice), values) in result.forecasts.iter_mut().zip(&result.series).zip(all) {
            let least = if choice.quality.nonnegative { 0.0 } else { f64::NEG_INFINITY };
            for (step, value) in values.into_iter().enumerate() {
                let change = value - forecast.values[step];
                forecast.values[step] = value;
                for interval in &mut forecast.intervals {
                    interval.low[step] = (interval.low[step] + change).max(least);
                    interval.high[step] = (interval.high[step] + change).max(least);
                }
            }
        }
    }
}

/// The covariance of errors, shrunken towards their variances (Schäfer and Strimmer 2005).
struct Covariance {
    variances: Vec<f64>,
    /// Correlations of all pairs; empty if there are too many.
    correlations: Vec<f64>,
}

impl Covariance {
    fn of(errors: &[Vec<f64>], nodes: usize) -> Covariance {
        let mean_square = |errors: &Vec<f64>| {
            let known = errors.iter().filter(|error| error.is_finite());
            let (sum, count) =
                known.fold((0.0, 0.0), |(sum, count), error| (sum + error * error, count + 1.0));
            (count > 0.0 && sum > 0.0).then(|| sum / count)
        };
        let mut found: Vec<Option<f64>> = errors.iter().map(mean_square).collect();
        found.resize(nodes, None);
        let known: Vec<f64> = found.iter().copied().flatten().collect();
        let usual = if known.is_empty() { 1.0 } else { known.iter().sum::<f64>() / known.len() as f64 };
        let variances: Vec<f64> = found.into_iter().map(|variance| variance.unwrap_or(usual)).collect();
        if nodes > MAX_COVARIANCES || errors.len() < nodes {
            return Covariance { variances, correlations: Vec::new() };
        }
        let mut correlations = vec![0.0; nodes * nodes];
        let (mut uncertainty, mut squares) = (0.0, 0.0);
        for i in 0..nodes {
            correlations[i * nodes + i] = 1.0;
            for j in 0..i {
                let scale = (variances[i] * variances[j]).sqrt();
                let products = errors[i].iter().zip(&errors[j]).map(|(a, b)| a * b / scale);
                let (mut count, mut sum, mut square) = (0.0, 0.0, 0.0);
                for product in products.filter(|product| product.is_finite()) {
                    (count, sum, square) = (count + 1.0, sum + product, square + product * product);
                }
                if count < 3.0 {
                    continue;
                }
                let mean: f64 = sum / count;
                uncertainty += (square / count - mean * mean).max(0.0) / (count - 1.0);
                squares += mean * mean;
                (correlations[i * nodes + j], correlations[j * nodes + i]) = (mean, mean);
            }
        }
        let shrinkage: f64 = if squares > 0.0 { (uncertainty / squares).clamp(0.0, 1.0) } else { 1.0 };
        for i in 0..nodes {
            for j in (0..nodes).filter(|j| *j != i) {
                correlations[i * nodes + j] *= 1.0 - shrinkage;
            }
        }
        Covariance { variances, correlations }
    }

    /// Adds the column of a node times a factor.
    fn add_column(&self, node: usize, factor: f64, to: &mut [f64]) {
        let nodes = self.variances.len();
        if self.correlations.is_empty() {
            to[node] += factor * self.variances[node];
            return;
        }
        for (other, value) in to.iter_mut().enumerate() {
            let scale = (self.variances[node] * self.variances[other]).sqrt();
            *value += factor * scale * self.correlations[other * nodes + node];
        }
    }
}

/// Returns the lower factor of a positive definite matrix, row by row; `None` if it is not.
fn cholesky(mut matrix: Vec<f64>, size: usize) -> Option<Vec<f64>> {
    for i in 0..size {
        for j in 0..=i {
            let dot: f64 = (0..j).map(|k| matrix[i * size + k] * matrix[j * size + k]).sum();
            let value = matrix[i * size + j] - dot;
            if i == j {
                // With a small ridge: sums may be sums of sums.
                let diagonal = value + 1e-10 * matrix[i * size + i];
                if diagonal.is_nan() || diagonal <= 0.0 {
                    return None;
                }
                matrix[i * size + i] = diagonal.sqrt();
            } else {
                matrix[i * size + j] = value / matrix[j * size + j];
            }
        }
    }
    Some(matrix)
}

/// Solves the equations of a factored matrix.
fn solve(lower: &[f64], mut right: Vec<f64>) -> Vec<f64> {
    let size = right.len();
    for i in 0..size {
        let dot: f64 = (0..i).map(|k| lower[i * size + k] * right[k]).sum();
        right[i] = (right[i] - dot) / lower[i * size + i];
    }
    for i in (0..size).rev() {
        let dot: f64 = (i + 1..size).map(|k| lower[k * size + i] * right[k]).sum();
        right[i] = (right[i] - dot) / lower[i * size + i];
    }
    right
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sums_have_names_of_their_own_and_levels_are_bounded() {
        assert_eq!(Hierarchy::of_ids(&["total", "other"]).sums(), ["total (sum)"]);
        let slashes = ["n/A/B", "n/A/C", "s/D", "s/E"];
        assert_eq!(Hierarchy::of_parts(&slashes, 1).sums(), ["total", "n", "s"]);
        let deep = ["a", "b"].map(|last| "x/".repeat(60_000) + last);
        assert_eq!(Hierarchy::of_ids(&deep).sums(), ["total"]);
    }

    #[test]
    fn sums_are_those_of_the_parts_of_the_ids() {
        let hierarchy = Hierarchy::of_ids(&["a/1/x", "a/1/y", "a/2/x", "b/1/x"]);
        assert_eq!(hierarchy.sums(), ["total", "a", "a/1"]);
        assert_eq!(Hierarchy::of_ids(&["a", "b"]).sums(), ["total"]);
        assert!(Hierarchy::of_ids(&["a"]).sums().is_empty());
    }

    #[test]
    fn differences_go_where_the_errors_are_large() {
        let hierarchy = Hierarchy::of_ids(&["a", "b"]);
        let forecasts = [vec![12.0], vec![4.0], vec![5.0]];
        // Uncorrelated errors: W is their variances. By hand, C W C' = 1 + 1 + 4 = 6, and the difference is 3.
        let errors = [vec![1.0, -1.0, 1.0, -1.0], vec![1.0, 1.0, -1.0, -1.0], vec![2.0, -2.0, -2.0, 2.0]];
        let all = hierarchy.min_trace(&forecasts, &errors);
        for (found, expected) in all.iter().flatten().zip([11.5, 4.5, 7.0]) {
            assert!((found - expected).abs() < 1e-6, "{all:?}");
        }
        // Nothing known: as if all errors were alike.
        let all = hierarchy.min_trace(&forecasts, &[]);
        assert!((all[0][0] - 11.0).abs() < 1e-6 && (all[1][0] - 5.0).abs() < 1e-6, "{all:?}");
    }

    #[test]
    fn a_table_of_sums_needs_a_common_end() {
        let series = |id: &'static str, start: &'static str, values: &[f64]| (id, start, values.to_vec());
        let table = Table::from_series(
            "D",
            [series("a", "2024-01-01", &[1.0, 2.0, 3.0]), series("b", "2024-01-02", &[10.0, 20.0])],
        )
        .unwrap();
        let hierarchy = Hierarchy::of_ids(&["a", "b"]);
        let all = hierarchy.table(&table).unwrap();
        assert_eq!((all.series[0].id.as_str(), &all.series[0].values[..]), ("total", &[1.0, 12.0, 23.0][..]));
        assert_eq!(all.series.len(), 3);
        let table = Table::from_series(
            "D",
            [series("a", "2024-01-01", &[1.0, 2.0, 3.0]), series("b", "2024-01-01", &[10.0, 20.0])],
        )
        .unwrap();
        assert_eq!(hierarchy.table(&table), None);
    }

    proptest! {
        #[test]
        fn reconciled_forecasts_add_up(
            values in prop::collection::vec(-100.0f64..100.0, 7),
            errors in prop::collection::vec(prop::collection::vec(-9.0f64..9.0, 12), 7),
        ) {
            let hierarchy = Hierarchy::of_ids(&["a/1", "a/2", "b/1", "b/2"]);
            let forecasts: Vec<Vec<f64>> = values.iter().map(|value| vec![*value]).collect();
            let all = hierarchy.min_trace(&forecasts, &errors);
            prop_assert!((all[0][0] - all[1][0] - all[2][0]).abs() < 1e-6);
            prop_assert!((all[1][0] - all[3][0] - all[4][0]).abs() < 1e-6);
            // What adds up already stays.
            let again = hierarchy.min_trace(&all, &errors);
            prop_assert!(all.iter().flatten().zip(again.iter().flatten()).all(|(a, b)| (a - b).abs() < 1e-6));
        }
    }
}
