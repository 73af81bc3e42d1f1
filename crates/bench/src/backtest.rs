//! `gatework-bench backtest`: error and coverage of automatic forecasts on values that were held back.
//!
//! A table is forecast from several points of time, every time from scratch, so neither the choice nor the calibration has seen
//! the values that are compared. The error is relative to the better of Theta and seasonal naive on the same values.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use anyhow::Context as _;
use clap::Args;
use gatework_forecast::Table;
use gatework_forecast::automatic::{Automatic, AutomaticForecast, Group};
use gatework_forecast::data::guess::{Hints, guess_csv};
use gatework_forecast::evaluation::Baseline;
use gatework_forecast::metrics::seasonal_scale;
use rayon::prelude::*;
use serde_json::{Value, json};

use crate::{Column, print_headings, print_row};

/// Interval levels.
const LEVELS: [f64; 3] = [0.5, 0.8, 0.95];

/// Most points of time of a table, and forecasts of all its series together.
const MAX_ORIGINS: usize = 12;
const MAX_FORECASTS: usize = 60;

/// Error and coverage of automatic forecasts on values that were held back
#[derive(Debug, Args)]
#[command(after_help = "Columns are guessed as by `gatework forecast`; a file that it refuses is refused.

Example:
  gatework-bench backtest AirPassengers.csv:12 sunspots.csv:11")]
pub struct Backtest {
    /// A CSV file and its horizon
    #[arg(value_name = "FILE:HORIZON", required = true, value_parser = parse_table)]
    tables: Vec<(String, usize)>,
    /// Points of time that each table is forecast from [default: up to 12, fewer with many series or few values]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1000))]
    origins: Option<u64>,
    /// Compare networks too
    #[arg(long)]
    networks: bool,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

/// Parses a file and its horizon.
fn parse_table(text: &str) -> Result<(String, usize), String> {
    let horizon = |text: &str| text.parse().ok().filter(|horizon| *horizon > 0);
    let parts = text.rsplit_once(':').and_then(|(file, steps)| Some((file.to_string(), horizon(steps)?)));
    parts.ok_or_else(|| "expected a file and a number of steps, such as sales.csv:28".into())
}

const COLUMNS: [Column; 7] = [
    ("series", 8, "series", 1.0, 0),
    ("origins", 9, "origins", 1.0, 0),
    ("error", 9, "error", 1.0, 3),
    ("ratio", 8, "ratio", 1.0, 3),
    ("50 %", 8, "covered_50", 0.01, 1),
    ("80 %", 8, "covered_80", 0.01, 1),
    ("95 %", 8, "covered_95", 0.01, 1),
];
const WIDTH: usize = 28;

impl Backtest {
    pub fn run(&self) -> anyhow::Result<()> {
        if !self.json {
            print_headings("table, horizon", WIDTH, &COLUMNS);
        }
        let mut rows: Vec<Value> = Vec::new();
        for (path, horizon) in &self.tables {
            let row = self.table(path, *horizon).with_context(|| path.clone())?;
            if !self.json {
                print_row(row["table"].as_str().unwrap_or_default(), WIDTH, &COLUMNS, &row);
            }
            rows.push(row);
        }
        let mean = mean(&rows);
        if self.json {
            print_line!("{}", json!({ "tables": rows, "mean": mean }));
        } else if rows.len() > 1 {
            print_row("mean", WIDTH, &COLUMNS, &mean);
        }
        Ok(())
    }

    /// Forecasts a table from all its points of time.
    fn table(&self, path: &str, horizon: usize) -> anyhow::Result<Value> {
        let guess = guess_csv(BufReader::new(File::open(path)?), path, &Hints::default())?;
        let table = Table::read(path, &guess.schema)?;
        let longest = table.series.iter().map(|series| series.values.len()).max().unwrap_or(0);
        let affordable = (MAX_FORECASTS / table.series.len().max(1)).clamp(3, MAX_ORIGINS);
        let default = (longest * 2 / 5 / horizon).clamp(1, affordable);
        let origins = self.origins.map_or(default, |origins| origins as usize);
        let of_origin = |origin: usize| self.origin(&table, horizon, (origin + 1) * horizon);
        let parts: Vec<Sums> = (0..origins).into_par_iter().map(of_origin).collect::<Result<_, _>>()?;
        let mut sums = Sums::default();
        for part in &parts {
            sums.add(part);
        }
        let [error, theta, seasonal] = sums.errors.map(|error| error / sums.forecasts);
        let [a, b, c] = sums.inside.map(|inside| inside / sums.values);
        let name = Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy());
        Ok(json!({
            "table": format!("{name}, {horizon}"),
            "series": table.series.len(),
            "origins": origins,
            "error": error,
            "ratio": error / theta.min(seasonal),
            "covered_50": a,
            "covered_80": b,
            "covered_95": c,
            "width_80": sums.widths[1] / sums.values,
        }))
    }

    /// Forecasts a table without the last `held` values of its series, and compares with the first of them.
    fn origin(&self, table: &Table, horizon: usize, held: usize) -> anyhow::Result<Sums> {
        let mut known = table.clone();
        let (past, future) = (table.columns.past.len(), table.columns.future.len());
        for series in &mut known.series {
            let length = series.values.len().saturating_sub(held);
            series.values.truncate(length);
            series.past.truncate(length * past);
            series.future.truncate((length + horizon) * future);
            series.leaky.retain(|position| *position < length);
        }
        known.series.retain(|series| !series.values.is_empty());
        let result = Automatic::new(horizon).levels(LEVELS).networks(self.networks).forecast(&known)?;
        let mut sums = Sums::default();
        for (number, forecast) in result.forecasts.iter().enumerate() {
            let (Some(before), Some(whole)) = (known.find(&forecast.id), table.find(&forecast.id)) else {
                continue;
            };
            let history: Vec<f64> = before.values.iter().copied().filter(|x| x.is_finite()).collect();
            let actual = &whole.values[before.values.len()..before.values.len() + horizon];
            sums.compare(&result, number, &history, actual);
        }
        Ok(sums)
    }
}

/// The geometric mean of the ratios, and the means of the shares.
fn mean(rows: &[Value]) -> Value {
    let mean = |key: &str, of: fn(f64) -> f64| {
        let values: Vec<f64> = rows.iter().filter_map(|row| row[key].as_f64()).map(of).collect();
        values.iter().sum::<f64>() / values.len() as f64
    };
    json!({
        "ratio": mean("ratio", f64::ln).exp(),
        "covered_50": mean("covered_50", |share| share),
        "covered_80": mean("covered_80", |share| share),
        "covered_95": mean("covered_95", |share| share),
    })
}

/// What is added up over the series and points of time of a table.
#[derive(Default)]
struct Sums {
    /// Scaled errors of the choice, Theta and seasonal naive.
    errors: [f64; 3],
    forecasts: f64,
    /// Values within the intervals of each level, and their widths relative to the scale of the series.
    inside: [f64; 3],
    widths: [f64; 3],
    values: f64,
}

impl Sums {
    /// Adds the forecast of a series. Intermittent series count by the root of the mean square, because their median is 0.
    fn compare(&mut self, result: &AutomaticForecast, number: usize, history: &[f64], actual: &[f64]) {
        let forecast = &result.forecasts[number];
        let season = result.seasons.first().map_or(1, |season| season.round() as usize);
        let season = if 2 * season <= history.len() { season } else { 1 };
        let scales = [season, 1].map(|lag| seasonal_scale(history, lag));
        let Some(scale) = scales.into_iter().find(|scale| *scale > 0.0) else { return };
        let is_squared = result.series[number].group == Group::Intermittent;
        let error = |forecast: &[f64]| {
            let pairs = actual.iter().zip(forecast).filter(|(y, _)| y.is_finite());
            let (sum, count) = pairs.fold((0.0, 0.0), |(sum, count), (y, f)| {
                let error = (y - f).abs() / scale;
                (sum + if is_squared { error * error } else { error }, count + 1.0)
            });
            if is_squared { f64::sqrt(sum / count) } else { sum / count }
        };
        let baseline = |baseline: Baseline| error(&baseline.forecast(history, season, actual.len()));
        let errors = [error(&forecast.values), baseline(Baseline::Theta), baseline(Baseline::SeasonalNaive)];
        if errors.iter().any(|error| !error.is_finite()) {
            return;
        }
        self.errors = std::array::from_fn(|model| self.errors[model] + errors[model]);
        self.forecasts += 1.0;
        for (step, y) in actual.iter().enumerate().filter(|(_, y)| y.is_finite()) {
            self.values += 1.0;
            for (level, interval) in forecast.intervals.iter().enumerate() {
                let (low, high) = (interval.low[step], interval.high[step]);
                self.inside[level] += f64::from(u8::from((low..=high).contains(y)));
                self.widths[level] += (high - low) / scale;
            }
        }
    }

    fn add(&mut self, other: &Sums) {
        for place in 0..3 {
            self.errors[place] += other.errors[place];
            self.inside[place] += other.inside[place];
            self.widths[place] += other.widths[place];
        }
        self.forecasts += other.forecasts;
        self.values += other.values;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_a_file_and_a_horizon() {
        assert_eq!(parse_table("a:b.csv:12"), Ok(("a:b.csv".into(), 12)));
        assert!(["a.csv", "a.csv:0", "a.csv:x"].iter().all(|text| parse_table(text).is_err()));
    }

    #[test]
    fn held_back_values_are_compared() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let rows = (0..60).map(|i| format!("2024-{:02}-{:02},{}\n", i / 28 + 1, i % 28 + 1, 10 + i % 7));
        std::fs::write(&path, format!("date,sales\n{}", rows.collect::<String>())).unwrap();
        let backtest = Backtest { tables: Vec::new(), origins: Some(2), networks: false, json: false };
        let row = backtest.table(path.to_str().unwrap(), 7).unwrap();
        assert_eq!((row["series"].as_u64(), row["origins"].as_u64()), (Some(1), Some(2)));
        assert!(row["covered_95"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{row}");
    }
}
