//! `gatework predict`: classifies or forecasts new data with a trained model.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use gatework_forecast::data::{DataError, Missing, Schema, Table};
use gatework_forecast::experiment::dataset::read_file_or_built_in;
use gatework_forecast::prediction::Context;
use gatework_forecast::run::{self, ForecastRun, holdout_error};
use gatework_forecast::specification::Specification;
use gatework_forecast::trained_network::Precision;
use gatework_forecast::{Forecaster, SeriesForecast};
use gatework_train::files;
use serde_json::{Value, json};

use super::{Choices, Usage};
use crate::classification::TrainedClassifier;
use crate::forecast_csv;
use crate::number;
use crate::progress::Counter;
use crate::report;
use crate::runs::forecast_plot;

/// Classify or forecast new data with a trained model
#[derive(Debug, Args)]
#[command(
    after_help = "Forecasters: DATA has the columns of the training data; the forecast begins after its last values. The \
frequency is that of the model. Known-future covariates continue for the horizon, in rows without a \
value.

Classifiers: DATA has the columns of the training data, or images of the same size; a row of the \
result has the class and the score of every class.

Examples:
  gatework predict runs/iris new.csv -o classes.csv
  gatework predict runs/airpassengers airpassengers
  gatework predict runs/my new.csv -o forecast.csv --plot forecast.svg"
)]
pub struct Predict {
    /// The run folder of a classifier or forecaster, or the circuit.json of a classifier
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// A CSV file, plain or gzip, or a built-in table (airpassengers); classifiers also read images
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// The CSV file to write; - is stdout [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// How to treat gaps in DATA [default: as in training]
    #[arg(long, value_parser = super::choice(POLICIES), value_name = "POLICY")]
    missing: Option<Missing>,
    /// Also forecast series that were not in the training data, scaled by their own values
    #[arg(long)]
    new_series: bool,
    /// Skip series that are too short for the model
    #[arg(long)]
    leave_out_short: bool,
    /// Quantise the weights of the model, and print the loss of accuracy
    #[arg(long, value_parser = super::choice(PRECISIONS))]
    weights: Option<Precision>,
    /// Write a plot of the forecast of the first series, or that of --series, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// The series to plot; needs --plot
    #[arg(long, value_name = "ID", requires = "plot")]
    series: Option<String>,
    /// Print a summary as one JSON object on stdout; needs --output
    #[arg(long, requires = "output")]
    json: bool,
}

/// The formats of quantised weights.
pub static PRECISIONS: &Choices<Precision> = &[
    ("f16", "Half precision", Precision::F16),
    ("int8", "8-bit integers with a scale for each output", Precision::Int8),
];

/// How gaps are treated.
static POLICIES: &Choices<Missing> = &[
    ("error", "Gaps are an error", Missing::Error),
    ("drop", "Gaps remain; the forecast needs enough values after the last one", Missing::Drop),
    ("zero", "Gaps are filled with zero", Missing::Zero),
    ("forward-fill", "Gaps are filled with the value before", Missing::ForwardFill),
    ("interpolate", "Gaps are filled by linear interpolation", Missing::Interpolate),
];

impl Predict {
    pub fn run(&self) -> anyhow::Result<()> {
        let begin = Instant::now();
        self.check_outputs()?;
        if let Some(trained) = TrainedClassifier::open(&self.run)? {
            return self.classify(&trained);
        }
        let Some(mut run) = ForecastRun::open(&self.run)? else {
            let swapped = self.data.is_dir() || super::train::is_table(&self.run.to_string_lossy());
            return Err(if swapped {
                let what = "not the run folder of a forecaster; the run comes first, then the data";
                Usage(format!("{} is {what}", self.run.display())).into()
            } else {
                super::not_predictable(&self.run, "neither a classifier nor the run folder of a forecaster")
            });
        };
        let specification = run.forecaster.specification().clone();
        let table = self.read(run.forecaster.context(), &specification)?;
        let plotted = self.plotted(&table)?;
        if self.new_series {
            run.forecaster.learn_new_series(&table);
        }
        let cost = self.weights.map(|weights| quantise(&mut run.forecaster, weights, &table)).transpose()?;
        let forecast = Instant::now();
        let progress = Counter::new("series");
        let forecasts = run
            .forecaster
            .predict_observed(&table, |done, total| progress.show(done, total))
            .with_context(|| self.data.display().to_string())?;
        drop(progress);
        let seconds = forecast.elapsed().as_secs_f64();
        let text = forecast_csv::to_csv(&table, &forecasts, &run.forecaster.context().columns);
        match self.output.as_ref().filter(|path| path.as_os_str() != "-") {
            Some(path) => {
                files::write_atomic(path, text.as_bytes())?;
                status!("Wrote {}", path.display());
            }
            None => crate::output::write(text.as_bytes())?,
        }
        self.plot(&table, plotted, &forecasts)?;
        status!(
            "{} series, {} steps ahead, forecast in {:.2} ms, {:.1} ms in total",
            forecasts.len(),
            specification.horizon,
            seconds * 1e3,
            begin.elapsed().as_secs_f64() * 1e3
        );
        if self.json {
            super::print_json(&json!({
                "run": self.run, "data": self.data, "output": self.output, "series": forecasts.len(),
                "horizon": specification.horizon, "forecast_seconds": seconds,
                "seconds": begin.elapsed().as_secs_f64(), "weights": cost,
            }))?;
        }
        Ok(())
    }

    /// Writes the class and the scores of every row.
    fn classify(&self, trained: &TrainedClassifier) -> anyhow::Result<()> {
        let options = [
            (self.missing.is_some(), "--missing"),
            (self.new_series, "--new-series"),
            (self.leave_out_short, "--leave-out-short"),
            (self.weights.is_some(), "--weights"),
            (self.plot.is_some(), "--plot"),
        ];
        super::refuse(&options, "forecasters", "a classifier")?;
        let predicted = trained.predict_file(&self.data)?;
        match self.output.as_ref().filter(|path| path.as_os_str() != "-") {
            Some(path) => {
                files::write_atomic(path, predicted.csv.as_bytes())?;
                status!("Wrote {}", path.display());
            }
            None => crate::output::write(predicted.csv.as_bytes())?,
        }
        let rate = predicted.rows as f64 / predicted.seconds.max(1e-9);
        status!("{} rows, {rate:.0} rows/s from values to labels", predicted.rows);
        if self.json {
            super::print_json(&json!({
                "run": self.run, "data": self.data, "output": self.output, "rows": predicted.rows,
                "seconds": predicted.seconds,
            }))?;
        }
        Ok(())
    }

    /// Reads the data as the model needs them.
    fn read(&self, context: &Context, specification: &Specification) -> anyhow::Result<Table> {
        let missing = self.missing.unwrap_or(context.columns.missing);
        let expected = Some(context.frequency.clone());
        let columns = Schema { expected, missing, ..context.columns.clone() };
        let mut table = read_file_or_built_in(&self.data, &columns).map_err(|error| match &error {
            DataError::Content { problem, .. } if problem.is_gap() => {
                anyhow::anyhow!("{error}; or use the option --missing drop")
            }
            DataError::File(_) if !self.data.exists() => Usage(error.to_string()).into(),
            _ => error.into(),
        })?;
        let data = self.data.display();
        for line in table.report.lines(missing) {
            status!("{data}: {line}");
        }
        if self.leave_out_short {
            let short = context.remove_short_series(specification, &mut table);
            if let Some(first) = short.first() {
                let (count, needed) = (short.len(), context.min_history(specification));
                status!(
                    "{data}: {count} series have fewer than {needed} values and are skipped, the first is {first:?}"
                );
            }
            if table.series.is_empty() {
                return Err(Usage(format!("{data}: every series is too short for the model")).into());
            }
        }
        Ok(table)
    }

    /// Returns an error if an output would overwrite an input or a file of the run, or has the wrong extension.
    fn check_outputs(&self) -> anyhow::Result<()> {
        let outputs = [("--output", &self.output, &["csv", "txt", ""][..]), ("--plot", &self.plot, &["svg"])];
        for (option, path, formats) in outputs {
            let Some(path) = path else { continue };
            let name = path.display();
            let extension = path.extension().unwrap_or_default().to_string_lossy().to_lowercase();
            if !formats.contains(&extension.as_str()) {
                let message = format!("{option} {name}: name a file that ends in .{}", formats[0]);
                return Err(Usage(message).into());
            }
            let kept = run::files_of(&self.run).into_iter().chain([self.data.clone()]);
            if let Some(kept) = kept.into_iter().find(|kept| is_same_file(path, kept)) {
                let message =
                    format!("{option} {name} would overwrite {}; name another file", kept.display());
                return Err(Usage(message).into());
            }
        }
        if self.json && self.output.as_ref().is_some_and(|path| path.as_os_str() == "-") {
            return Err(Usage("--json and --output - both go to stdout; name a file".into()).into());
        }
        Ok(())
    }

    /// The index of the series to plot.
    fn plotted(&self, table: &Table) -> anyhow::Result<usize> {
        let Some(id) = &self.series else { return Ok(0) };
        let place = table.series.iter().position(|series| series.id == *id);
        let first = table.series.first().map_or("", |series| &series.id);
        let unknown =
            || Usage(format!("{} has no series {id:?}; its first is {first:?}", self.data.display()));
        Ok(place.ok_or_else(unknown)?)
    }

    fn plot(&self, table: &Table, place: usize, forecasts: &[SeriesForecast]) -> anyhow::Result<()> {
        let (Some(path), Some(forecast)) = (&self.plot, forecasts.get(place)) else { return Ok(()) };
        let origin = table.series[place].values.len();
        let plot = forecast_plot(table, place, origin, &forecast.values, &forecast.intervals);
        files::write_atomic(path, report::forecast_plot(&plot).as_bytes())?;
        report::terminal_plot(&plot, 72).lines().for_each(|line| status!("{line}"));
        status!("Wrote {}", path.display());
        Ok(())
    }
}

/// Whether two paths lead to the same file, also through links. False if one of them does not exist.
fn is_same_file(a: &Path, b: &Path) -> bool {
    let is_same_path = matches!((a.canonicalize(), b.canonicalize()), (Ok(a), Ok(b)) if a == b);
    is_same_path || is_hard_link(a, b)
}

/// Whether two paths are hard links to the same file.
#[cfg(unix)]
fn is_hard_link(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let file = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino()));
    matches!((file(a), file(b)), (Ok(a), Ok(b)) if a == b)
}

/// Hard links are not detected on this system.
#[cfg(not(unix))]
fn is_hard_link(_: &Path, _: &Path) -> bool {
    false
}

/// Quantises the weights of a model and prints what that changes: their size, and the error of forecasts of the last horizon
/// of each series, compared with full precision.
fn quantise(forecaster: &mut Forecaster, weights: Precision, table: &Table) -> anyhow::Result<Value> {
    let (quantised, bytes) = forecaster.with_precision(weights)?;
    let before = 4 * forecaster.parameters();
    let size = format!("{} weights take {bytes} bytes instead of {before}", weights.name());
    let errors = match holdout_error(forecaster, table)? {
        Some(full) => Some((full, holdout_error(&quantised, table)?.unwrap_or(f64::NAN))),
        None => None,
    };
    match errors {
        Some((full, quantised)) => status!(
            "{size}; mean absolute error on the last {} values of each series: {}",
            forecaster.specification().horizon,
            number::column(&[quantised, full], 6).join(" instead of ")
        ),
        None => status!(
            "{size}; the series are too short, or have gaps at their ends, to measure the loss of accuracy"
        ),
    }
    *forecaster = quantised;
    Ok(json!({
        "format": weights.name(), "bytes": bytes, "bytes_before": before,
        "mae": errors.map(|(_, quantised)| quantised), "mae_before": errors.map(|(full, _)| full),
    }))
}
