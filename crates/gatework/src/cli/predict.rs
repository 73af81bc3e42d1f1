//! `gatework predict`: forecasts of new data as CSV.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use gatework_forecast::data::{DataError, Missing, Schema, Table};
use gatework_forecast::experiment::dataset::read_file_or_built_in;
use gatework_forecast::forecaster::Precision;
use gatework_forecast::metrics;
use gatework_forecast::prediction::Predictor;
use gatework_forecast::prediction::{Context, Interval, Prediction};
use gatework_forecast::specification::Specification;
use gatework_train::files;
use serde_json::{Value, json};

use crate::folder::RunFolder;
use crate::forecast_run::{ForecastRun, plot};
use crate::number;
use crate::report;
use crate::usage::Usage;

/// Forecast new data with a trained forecaster
#[derive(Debug, Args)]
#[command(
    after_help = "DATA has the columns of the training data; the forecast begins after its last values. The
frequency is that of the model. Columns that are known in advance go on for the horizon, in rows
without a value.

Examples:
  gatework predict runs/airpassengers airpassengers
  gatework predict runs/my new.csv -o forecast.csv --plot forecast.svg"
)]
pub struct Predict {
    /// The run folder of a forecaster
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// A CSV file, plain or gzip, or a table that ships with Gatework (airpassengers)
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Where the forecasts go, a CSV file, not that of DATA; - is stdout [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What is done about gaps in DATA [default: as in training]
    #[arg(long, value_enum, value_name = "POLICY")]
    missing: Option<Gaps>,
    /// Forecast series that were not there in training too, scaled by their own values
    #[arg(long)]
    new_series: bool,
    /// Forecast the others if series are too short for the model
    #[arg(long)]
    leave_out_short: bool,
    /// Round the weights of the model to fewer bits, and say what that costs
    #[arg(long, value_enum)]
    weights: Option<Format>,
    /// Draw the forecast of the first series, or that of --series, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The series to draw; needs --plot
    #[arg(long, value_name = "ID", requires = "plot")]
    series: Option<String>,
    /// Print a summary as one JSON object on stdout; needs --output
    #[arg(long, requires = "output")]
    json: bool,
}

/// A format of weights.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Format {
    /// Half precision
    F16,
    /// Whole numbers of 8 bits, with a scale for each output
    Int8,
}

impl Format {
    pub fn weights(self) -> Precision {
        match self {
            Format::F16 => Precision::F16,
            Format::Int8 => Precision::Int8,
        }
    }
}

/// What is done about gaps.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Gaps {
    /// They are an error
    Error,
    /// They stay gaps; the forecast needs enough values after the last one
    Drop,
    /// Filled with the value before
    ForwardFill,
    /// Filled on the line between the values before and after
    Interpolate,
}

impl Predict {
    pub fn run(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        self.check_outputs()?;
        let Some(mut run) = ForecastRun::open(&self.run)? else {
            let message = format!("{} is not the run folder of a forecaster", self.run.display());
            return Err(Usage(message).into());
        };
        let specification = run.predictor.specification().clone();
        let table = self.read(run.predictor.context(), &specification)?;
        let drawn = self.drawn(&table)?;
        if self.new_series {
            run.predictor.learn_new_series(&table);
        }
        let cost =
            self.weights.map(|format| round_weights(&mut run.predictor, format, &table)).transpose()?;
        let prepared = run.predictor.context().prepare(&specification, table)?;
        let numbers: Vec<u32> = (0..prepared.windows.len() as u32).collect();
        let forecast = Instant::now();
        let predictions = run.predictor.predict_windows(&prepared.windows, &numbers, &prepared.table)?;
        let seconds = forecast.elapsed().as_secs_f64();
        let columns = &run.predictor.context().columns;
        let id = columns.id.as_deref().unwrap_or("unique_id");
        let text = to_csv(&prepared.table, &predictions, [id, &columns.time]);
        match self.output.as_ref().filter(|path| path.as_os_str() != "-") {
            Some(path) => {
                files::write_whole(path, text.as_bytes())?;
                say!("Wrote {}", path.display());
            }
            None => crate::output::write(text.as_bytes())?,
        }
        self.draw(&prepared.table, drawn, &predictions)?;
        say!(
            "{} series, {} steps ahead, forecast in {:.2} ms, {:.1} ms in all",
            predictions.len(),
            specification.horizon,
            seconds * 1e3,
            begin.elapsed().as_secs_f64() * 1e3
        );
        if self.json {
            super::print_json(&json!({
                "run": self.run, "data": self.data, "output": self.output, "series": predictions.len(),
                "horizon": specification.horizon, "forecast_seconds": seconds,
                "seconds": begin.elapsed().as_secs_f64(), "weights": cost,
            }))?;
        }
        Ok(())
    }

    /// Reads the data as the model needs them.
    fn read(&self, context: &Context, specification: &Specification) -> anyhow::Result<Table> {
        let missing = match self.missing {
            None => context.columns.missing,
            Some(Gaps::Error) => Missing::Error,
            Some(Gaps::Drop) => Missing::Drop,
            Some(Gaps::ForwardFill) => Missing::ForwardFill,
            Some(Gaps::Interpolate) => Missing::Interpolate,
        };
        let expected = Some(context.frequency.clone());
        let columns = Schema { expected, missing, ..context.columns.clone() };
        let mut table = read_file_or_built_in(&self.data, &columns).map_err(|error| match &error {
            DataError::Content { problem, .. } if problem.is_gap() => {
                anyhow::anyhow!("{error}; here it is an option: --missing drop")
            }
            DataError::File(_) if !self.data.exists() => Usage(error.to_string()).into(),
            _ => error.into(),
        })?;
        let data = self.data.display();
        for line in table.report.lines(missing) {
            say!("{data}: {line}");
        }
        if self.leave_out_short {
            let short = context.remove_short_series(specification, &mut table);
            if let Some(first) = short.first() {
                let (count, needed) = (short.len(), context.min_history(specification));
                say!(
                    "{data}: {count} series have fewer than {needed} values and are left out, first {first:?}"
                );
            }
            if table.series.is_empty() {
                return Err(Usage(format!("{data}: every series is too short for the model")).into());
            }
        }
        Ok(table)
    }

    /// An error if a file that is to be written is one that is needed, under whatever name, or its name promises another
    /// format.
    fn check_outputs(&self) -> anyhow::Result<()> {
        let outputs = [("--output", &self.output, &["csv", "txt", ""][..]), ("--plot", &self.plot, &["svg"])];
        for (option, path, formats) in outputs {
            let Some(path) = path else { continue };
            let name = path.display();
            let ending = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            if !formats.contains(&ending.as_str()) {
                let message = format!("{option} {name}: name a file that ends in .{}", formats[0]);
                return Err(Usage(message).into());
            }
            let of_run = RunFolder::at(&self.run).files().into_iter();
            let needed = of_run.chain([self.data.clone()]).find(|needed| is_same_file(path, needed));
            if let Some(needed) = needed {
                let message = format!(
                    "{option} {name} would replace {}, which is needed; name another file",
                    needed.display()
                );
                return Err(Usage(message).into());
            }
        }
        if self.json && self.output.as_ref().is_some_and(|path| path.as_os_str() == "-") {
            return Err(Usage("--json and --output - both go to stdout; name a file".into()).into());
        }
        Ok(())
    }

    /// The number of the series to draw.
    fn drawn(&self, table: &Table) -> anyhow::Result<usize> {
        let Some(id) = &self.series else { return Ok(0) };
        let place = table.series.iter().position(|series| series.id == *id);
        let first = table.series.first().map_or("", |series| &series.id);
        let unknown =
            || Usage(format!("{} has no series {id:?}; its first is {first:?}", self.data.display()));
        Ok(place.ok_or_else(unknown)?)
    }

    fn draw(&self, table: &Table, place: usize, predictions: &[Prediction]) -> anyhow::Result<()> {
        let (Some(path), Some(prediction)) = (&self.plot, predictions.get(place)) else { return Ok(()) };
        let picture = plot(table, place, table.series[place].values.len(), prediction);
        files::write_whole(path, report::forecast_plot(&picture).as_bytes())?;
        say_part!("{}", report::terminal_plot(&picture, 72));
        say!("Wrote {}", path.display());
        Ok(())
    }
}

/// Whether two paths lead to one file, by whatever spelling or link. False if one of them leads nowhere.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let is_same_path = matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    is_same_path || is_hard_link(a, b)
}

/// Whether two paths are names of one file.
#[cfg(unix)]
fn is_hard_link(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let file = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino()));
    matches!((file(a), file(b)), (Ok(a), Ok(b)) if a == b)
}

/// Whether two paths are names of one file: not known here.
#[cfg(not(unix))]
fn is_hard_link(_: &Path, _: &Path) -> bool {
    false
}

/// Rounds the weights of a model, and tells what it costs: how far its forecasts of the last values of the data, which are
/// held back, are from what came, with and without.
fn round_weights(predictor: &mut Predictor, format: Format, table: &Table) -> anyhow::Result<Value> {
    let weights = format.weights();
    let (mut rounded, bytes) = predictor.with_precision(weights)?;
    let before = 4 * predictor.parameters();
    let size = format!("{} weights take {bytes} bytes instead of {before}", weights.name());
    let errors = match held_back(predictor, table)? {
        Some(full) => Some((full, held_back(&mut rounded, table)?.unwrap_or(f64::NAN))),
        None => None,
    };
    match errors {
        Some((full, rounded)) => say!(
            "{size}; mean absolute error on the last {} values of each series: {}",
            predictor.specification().horizon,
            number::column(&[rounded, full], 6).join(" instead of ")
        ),
        None => {
            say!("{size}; the series are too short, or have gaps at their ends, to tell what that costs");
        }
    }
    *predictor = rounded;
    Ok(json!({
        "format": weights.name(), "bytes": bytes, "bytes_before": before,
        "mae": errors.map(|(_, rounded)| rounded), "mae_before": errors.map(|(full, _)| full),
    }))
}

/// The mean absolute error of forecasts of the last values of all series; none if one is too short for that.
fn held_back(predictor: &mut Predictor, table: &Table) -> anyhow::Result<Option<f64>> {
    let specification = predictor.specification().clone();
    let mut before = table.clone();
    let past = before.columns.past.len();
    for series in &mut before.series {
        let end = series.values.len().saturating_sub(specification.horizon);
        series.values.truncate(end);
        series.past.truncate(end * past);
    }
    let Ok(prepared) = predictor.context().prepare(&specification, before) else { return Ok(None) };
    let numbers: Vec<u32> = (0..prepared.windows.len() as u32).collect();
    let forecasts = predictor.predict_windows(&prepared.windows, &numbers, &prepared.table)?;
    let errors = table.series.iter().zip(&forecasts).map(|(series, forecast)| {
        metrics::mae(&series.values[series.values.len() - specification.horizon..], &forecast.values)
    });
    Ok(Some(errors.sum::<f64>() / forecasts.len() as f64).filter(|error| error.is_finite()))
}

/// The forecasts of all series, one a row: id, time, value, bounds of the intervals.
fn to_csv(table: &Table, predictions: &[Prediction], names: [&str; 2]) -> String {
    let mut text = header(names, predictions.first().map_or(&[], |prediction| &prediction.intervals));
    for (series, prediction) in table.series.iter().zip(predictions) {
        let (id, range) = (field(&series.id), range(&series.values));
        for (step, value) in prediction.values.iter().enumerate() {
            let time = table.time(series, series.values.len() + step);
            let _ = write!(text, "{id},{time},{}", number::within(*value, range));
            for interval in &prediction.intervals {
                let [low, high] =
                    [&interval.low, &interval.high].map(|bound| number::within(bound[step], range));
                let _ = write!(text, ",{low},{high}");
            }
            text.push('\n');
        }
    }
    text
}

/// From the least to the greatest value that is known; 1 if there is nothing between them.
fn range(values: &[f64]) -> f64 {
    let known = values.iter().filter(|value| !value.is_nan());
    let (low, high) = known.fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(*x), high.max(*x)));
    if high > low { high - low } else { 1.0 }
}

/// The names of the columns.
fn header(names: [&str; 2], intervals: &[Interval]) -> String {
    let mut text = format!("{},{},forecast", field(names[0]), field(names[1]));
    for share in intervals.iter().map(|interval| number::percent(interval.level)) {
        let _ = write!(text, ",low_{share},high_{share}");
    }
    text.push('\n');
    text
}

/// A field of CSV, in quotes if it needs them.
fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_bounds_have_the_names_of_their_shares() {
        let interval = |share| Interval { level: share, low: vec![], high: vec![] };
        let header = header(["id", "t"], &[0.8, 0.9999, 0.99995].map(interval));
        assert_eq!(header, "id,t,forecast,low_80,high_80,low_99.99,high_99.99,low_99.995,high_99.995\n");
    }

    #[test]
    fn the_range_is_that_of_what_is_known() {
        assert_eq!(range(&[f64::NAN, 104.0, 622.0, 300.0]), 518.0);
        assert_eq!([range(&[7.0; 3]), range(&[])], [1.0; 2]);
    }

    #[test]
    fn fields_are_quoted_where_they_must_be() {
        assert_eq!([field("a"), field("a,b"), field("a\"b")], ["a", "\"a,b\"", "\"a\"\"b\""]);
    }
}
