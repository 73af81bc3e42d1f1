//! The tables of `gatework-bench accuracy`: mean and standard deviation over seeds, compared with published figures.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use gatework_forecast::experiment::FIGURES;
use serde::Serialize;
use serde_json::Value;

use gatework_forecast::run::mean_and_deviation;

/// An experiment at one horizon.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub experiment: String,
    /// Forecast horizon in steps.
    pub horizon: usize,
    /// Number of runs.
    pub seeds: usize,
    /// Total training time of all runs in seconds.
    pub seconds: f64,
    /// Figures with published values.
    pub figures: Vec<Figure>,
}

/// A published figure and our values.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    name: &'static str,
    published: f64,
    /// One value per run.
    values: Vec<f64>,
}

impl Figure {
    /// Returns mean, standard deviation, and the difference of the mean from the published figure in percent.
    fn statistics(&self) -> (f64, f64, f64) {
        let (mean, spread) = mean_and_deviation(&self.values);
        (mean, spread, 100.0 * (mean / self.published - 1.0))
    }
}

impl Row {
    /// Returns a row without runs.
    pub fn new(experiment: &str, horizon: usize, published: &BTreeMap<String, f64>) -> Row {
        let figure = |name: &'static str| {
            published.get(name).map(|&published| Figure { name, published, values: Vec::new() })
        };
        let figures = FIGURES.into_iter().filter_map(figure).collect();
        Row { experiment: experiment.to_string(), horizon, seeds: 0, seconds: 0.0, figures }
    }

    /// Adds a run, given its summary.
    pub fn add(&mut self, summary: &Value) {
        self.seeds += 1;
        self.seconds += summary["seconds"].as_f64().unwrap_or(0.0);
        for figure in &mut self.figures {
            let of = match figure.name {
                "mse" | "mae" => &summary["scaled"],
                _ => &summary["scores"][0],
            };
            figure.values.push(of[figure.name].as_f64().unwrap_or(f64::NAN));
        }
    }

    fn names(&self) -> Vec<&'static str> {
        self.figures.iter().map(|figure| figure.name).collect()
    }
}

/// Returns a CSV table with a line for each figure.
pub fn to_csv(rows: &[Row]) -> String {
    let mut text =
        String::from("experiment,horizon,figure,seeds,mean,spread,published,difference_percent,seconds\n");
    for row in rows {
        for figure in &row.figures {
            let (mean, spread, difference) = figure.statistics();
            let _ = writeln!(
                text,
                "{},{},{},{},{mean:.5},{spread:.5},{},{difference:.2},{:.1}",
                row.experiment, row.horizon, figure.name, row.seeds, figure.published, row.seconds
            );
        }
    }
    text
}

/// Returns Markdown with a table for each set of figures.
pub fn to_markdown(rows: &[Row]) -> String {
    let mut text = String::new();
    let mut sets: Vec<Vec<&str>> = Vec::new();
    for set in rows.iter().map(Row::names) {
        if !sets.contains(&set) {
            sets.push(set);
        }
    }
    for set in sets {
        text.push_str("| experiment | horizon | seeds |");
        for name in &set {
            let _ = write!(text, " {} | published |", shown(name));
        }
        text.push('\n');
        let _ = writeln!(text, "|---|---|---|{}", "---|---|".repeat(set.len()));
        for row in rows.iter().filter(|row| row.names() == set) {
            let _ = write!(text, "| {} | {} | {} |", row.experiment, row.horizon, row.seeds);
            for figure in &row.figures {
                let (mean, spread, difference) = figure.statistics();
                let spread = if row.seeds > 1 { format!(" ± {spread:.4}") } else { String::new() };
                let _ = write!(text, " {mean:.4}{spread} | {} ({difference:+.1} %) |", figure.published);
            }
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

/// Returns the name of a figure as papers write it.
fn shown(name: &str) -> String {
    if name == "smape" { "sMAPE".into() } else { name.to_uppercase() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row() -> Row {
        let published = [("mse".to_string(), 0.5), ("mae".to_string(), 0.25)].into();
        let mut row = Row::new("ett", 96, &published);
        for mse in [0.5, 0.52] {
            row.add(
                &json!({ "seconds": 2.0, "scaled": { "mse": mse, "mae": 0.25 }, "scores": [{ "mae": 9.0 }] }),
            );
        }
        row
    }

    #[test]
    fn mse_and_mae_are_those_of_scaled_values() {
        let text = to_csv(&[row()]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[1], "ett,96,mse,2,0.51000,0.01414,0.5,2.00,4.0");
        assert_eq!(lines[2], "ett,96,mae,2,0.25000,0.00000,0.25,0.00,4.0");
    }

    #[test]
    fn every_set_of_figures_has_a_table() {
        let mut other = Row::new("m4", 48, &[("owa".to_string(), 0.44)].into());
        other.add(&json!({ "scores": [{ "owa": 0.44 }] }));
        let text = to_markdown(&[row(), other]);
        assert!(text.contains(
            "| ett | 96 | 2 | 0.5100 ± 0.0141 | 0.5 (+2.0 %) | 0.2500 ± 0.0000 | 0.25 (+0.0 %) |\n"
        ));
        assert!(text.contains(
            "| experiment | horizon | seeds | OWA | published |\n|---|---|---|---|---|\n| m4 | 48 | 1 |"
        ));
    }
}
