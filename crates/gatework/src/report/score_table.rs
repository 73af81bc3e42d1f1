//! The scores of a forecaster and of the baselines as lines of text.

use std::iter;

use gatework_forecast::evaluation::{Evaluation, Score};

use crate::number;

/// An error measure of a score; NaN where it has none.
type Error = fn(&Score) -> f64;

/// The columns of a table of scores.
const ERRORS: [(&str, Error); 7] = [
    ("MAE", |score| score.mae),
    ("RMSE", |score| score.rmse),
    ("MAPE", |score| score.mape),
    ("sMAPE", |score| score.smape),
    ("MASE", |score| score.mase),
    ("OWA", |score| score.owa),
    ("CRPS", |score| score.crps.unwrap_or(f64::NAN)),
];

/// Returns the scores of a model and of the baselines as the lines of a table.
pub fn score_table(Evaluation { windows, scores }: &Evaluation) -> Vec<String> {
    let names = scores.iter().map(|score| score.name.clone());
    let mut lines: Vec<String> =
        iter::once(format!("{windows} origin{}", if *windows == 1 { "" } else { "s" }))
            .chain(names)
            .map(|name| format!("{name:<15}"))
            .collect();
    let mut add = |head: String, cells: Vec<String>| {
        let width = cells.iter().chain([&head]).map(|cell| cell.chars().count()).fold(10, usize::max);
        for (line, cell) in lines.iter_mut().zip(iter::once(head).chain(cells)) {
            *line = format!("{line} {cell:>width$}");
        }
    };
    for (name, error) in ERRORS {
        let errors: Vec<f64> = scores.iter().map(error).collect();
        add(name.to_string(), number::column(&errors, 3));
    }
    for (place, (level, _)) in scores.first().map_or(&[][..], |score| &score.coverage).iter().enumerate() {
        let level = number::percent(*level);
        // One digit more than the level has: a coverage of 99.96 % is not 100.0 %.
        let decimals = level.split_once('.').map_or(1, |(_, decimals)| decimals.len() + 1);
        let coverage = |score: &Score| {
            let coverage = score.coverage.get(place);
            coverage.map_or(String::new(), |(_, coverage)| format!("{:.decimals$} %", coverage * 100.0))
        };
        add(format!("cov. {level} %"), scores.iter().map(coverage).collect());
    }
    lines.iter().map(|line| line.trim_end().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A model and a baseline, with errors around `size`.
    fn evaluation(size: f64, level: f64) -> Evaluation {
        let score = Score { mae: 1.25 * size, rmse: 2.5 * size, smape: 3.0, mape: 12.5, ..Score::default() };
        let model = Score {
            name: "dlinear".into(),
            coverage: vec![(level, 0.9996)],
            crps: Some(size),
            ..score.clone()
        };
        Evaluation {
            windows: 7,
            scores: vec![model, Score { name: "naive".into(), mase: f64::NAN, ..score }],
        }
    }

    #[test]
    fn scores_of_ordinary_size_have_three_decimals() {
        let lines = score_table(&evaluation(10.0, 0.8));
        let expected = [
            "7 origins              MAE       RMSE       MAPE      sMAPE       MASE        OWA       CRPS  cov. 80 %",
            "dlinear             12.500     25.000     12.500      3.000      0.000      0.000     10.000    100.0 %",
            "naive               12.500     25.000     12.500      3.000          -      0.000          -",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn scores_of_any_size_keep_their_digits_and_their_columns() {
        for size in [1e-30, 1e-9, 1e-4, 1.0, 1e6, 1e7, 1e30] {
            let lines = score_table(&evaluation(size, 0.999));
            let ends: Vec<usize> = lines.iter().map(|line| line.chars().count()).collect();
            assert_eq!(ends[0], ends[1], "{lines:#?}");
            let mae = lines[1].split_whitespace().nth(1).and_then(|mae| mae.parse::<f64>().ok());
            assert!(mae.is_some_and(|mae| (mae / size - 1.25).abs() < 1e-9), "{lines:#?}");
            assert!(ends[0] <= 120, "{lines:#?}");
        }
    }

    #[test]
    fn interval_levels_are_not_rounded() {
        let lines = score_table(&evaluation(1.0, 0.999));
        assert!(lines[0].ends_with("cov. 99.9 %") && lines[1].ends_with(" 99.96 %"), "{lines:#?}");
    }
}
