//! `gatework forecast`: forecasts a table without settings.

use std::fs::File;
use std::io::{BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use gatework_forecast::Table;
use gatework_forecast::automatic::{Automatic, AutomaticForecast, ForecastFile, Hierarchy, Progress};
use gatework_forecast::data::guess::{Guess, Hints, guess_csv};
use gatework_forecast::data::holidays::Country;
use gatework_forecast::data::{DataError, DataProblem, Decimal, Duplicates, Layout, Missing, Schema};
use gatework_train::files;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::{Choices, Usage};
use crate::{forecast_csv, number, report};

/// Forecast a table: columns, models and intervals are chosen for it
#[derive(Debug, Args)]
#[command(
    after_help = "The columns, the layout, the frequency and the way numbers and dates are written are guessed; what was \
guessed is printed. Models are compared on earlier points of time, having seen only the values before \
them; the best ensemble is chosen for each group of series, and its errors give the intervals.

Known-future columns, such as promotions, go on after the last value, in rows without one.

Examples:
  gatework forecast sales.csv --horizon 28 -o forecast.csv --report report.html
  gatework forecast sales.csv --horizon 28 --target units --id store,item
  gatework forecast sales.csv --horizon 28 --id region,store --hierarchy
  gatework forecast forecast.toml -o again.csv"
)]
pub struct Forecast {
    /// A CSV file, plain or gzip, or the TOML file of an earlier forecast
    #[arg(value_name = "DATA")]
    data: PathBuf,
    /// Steps to forecast
    #[arg(long, value_name = "N", value_parser = super::train::parse_horizon)]
    horizon: Option<usize>,
    /// The CSV file to write; - is stdout [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a report with charts, scores and what was chosen, as one HTML file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Write the settings that repeat this forecast, as TOML [default: that of --output with the extension toml]
    #[arg(long, value_name = "FILE")]
    settings: Option<PathBuf>,
    /// Time for the comparison of models: 60s, 5min, 1h
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time)]
    time: Duration,
    /// Interval levels in percent
    #[arg(long, value_name = "LEVELS", value_delimiter = ',', value_parser = parse_level)]
    levels: Vec<f64>,
    /// Compare only these models
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    models: Vec<String>,
    /// Lengths of the seasons in steps [default: by frequency, or from the data]
    #[arg(long, value_name = "STEPS", value_delimiter = ',', value_parser = parse_season)]
    season: Vec<f64>,
    /// The column of the values; several of a wide table
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    target: Vec<String>,
    /// The column of the series ids, or several, such as store,item
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    id: Vec<String>,
    /// The column of the times
    #[arg(long, value_name = "COLUMN")]
    date: Option<String>,
    /// How dates are written: %d/%m/%Y
    #[arg(long, value_name = "FORMAT")]
    date_format: Option<String>,
    /// The decimal separator: . or ,
    #[arg(long, value_parser = super::choice(DECIMALS))]
    decimal: Option<Decimal>,
    /// Columns that are known in advance; none: --known ""
    #[arg(long, value_name = "COLUMN", value_delimiter = ',')]
    known: Option<Vec<String>>,
    /// Use the public holidays of a country as columns that are known in advance: DE, US, GB, ...
    #[arg(long, value_name = "COUNTRY", value_parser = parse_country)]
    holidays: Option<Country>,
    /// The layout of the table
    #[arg(long, value_parser = super::choice(LAYOUTS))]
    layout: Option<Layout>,
    /// The frequency: h, 15min, D, B, W, M, Q, Y
    #[arg(long, value_name = "FREQUENCY")]
    frequency: Option<String>,
    /// How to treat gaps [default: interpolate]
    #[arg(long, value_parser = super::choice(POLICIES))]
    missing: Option<Missing>,
    /// How to treat several rows of a series at one time [default: an error]
    #[arg(long, value_parser = super::choice(DUPLICATES))]
    duplicates: Option<Duplicates>,
    /// Forecast also the total and the sums of the first parts of the ids, and make all forecasts add up (MinT)
    #[arg(long)]
    hierarchy: bool,
    /// Print a summary as one JSON object on stdout; needs --output
    #[arg(long, requires = "output")]
    json: bool,
}

static DECIMALS: &Choices<Decimal> = &[(".", "1,234.5", Decimal::Point), (",", "1.234,5", Decimal::Comma)];

static LAYOUTS: &Choices<Layout> = &[
    ("long", "One observation per row", Layout::Long),
    ("wide", "One time per row, one series per column", Layout::Wide),
    ("rows", "One series per row", Layout::Rows),
];

static POLICIES: &Choices<Missing> = &[
    ("error", "Gaps are an error", Missing::Error),
    ("zero", "Gaps are filled with zero: days without sales", Missing::Zero),
    ("forward-fill", "Gaps are filled with the value before", Missing::ForwardFill),
    ("interpolate", "Gaps are filled by linear interpolation", Missing::Interpolate),
];

static DUPLICATES: &Choices<Duplicates> = &[
    ("sum", "Their values are added up: several sales of a day", Duplicates::Sum),
    ("mean", "Their mean is taken: the hour that a clock repeats in autumn", Duplicates::Mean),
    ("last", "The last row of the file counts: corrections", Duplicates::Last),
];

fn parse_country(code: &str) -> Result<Country, String> {
    Country::of_code(code).ok_or_else(|| {
        format!("no holidays are known of {code:?}; known are {}", Country::codes().join(", "))
    })
}

/// Time between lines of progress when stderr is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

impl Forecast {
    pub fn run(&self) -> anyhow::Result<()> {
        self.check_outputs()?;
        let (mut file, notes) = self.settings()?;
        for note in &notes {
            status!("{note}");
        }
        let mut table = Table::read(&file.data, &file.columns).map_err(with_option)?;
        if self.missing.is_none()
            // What an earlier forecast has settled stays.
            && !self.is_settings()
            && let Some(demand) = demand_without_zeros(&table, &file)
        {
            status!(
                "times without a row count as times without sales; --missing interpolate fills them instead"
            );
            table = demand;
            file.columns.missing = Missing::Zero;
        }
        print_table(&table, &file);
        if let Some(code) = &file.holidays {
            let country = parse_country(code).map_err(Usage)?;
            country
                .add(&mut table, file.horizon)
                .map_err(|problem| Usage(format!("--holidays {code}: {problem}")))?;
        }
        let hierarchy = file.hierarchy.then(|| {
            // Only ids of several columns have parts: a slash in the name of a column is part of it.
            let parted = !file.columns.id_parts.is_empty();
            let id = |id: &str| if parted { id.to_string() } else { id.replace('/', " ") };
            let ids: Vec<String> = table.series.iter().map(|series| id(&series.id)).collect();
            Hierarchy::of_parts(&ids, file.columns.id_parts.len())
        });
        if let Some(hierarchy) = &hierarchy {
            let sums = hierarchy.sums().len();
            if sums > Hierarchy::MAX_SUMS {
                let message = format!(
                    "--hierarchy makes {sums} sums, but at most {} are reconciled; name fewer columns with --id",
                    Hierarchy::MAX_SUMS
                );
                return Err(Usage(message).into());
            }
            table = hierarchy.table(&table).ok_or_else(|| {
                Usage("--hierarchy needs series that end at the same time; --missing zero fills what has no row".into())
            })?;
            status!("{} sums: {}", hierarchy.sums().len(), shortened(hierarchy.sums()));
        }
        let mut result = self.forecast(&file, &table)?;
        if let Some(hierarchy) = &hierarchy {
            hierarchy.reconcile(&mut result);
        }
        print_result(&result);
        file.seasons.clone_from(&result.seasons);
        file.models = members(&result);
        self.write(&file, &notes, &table, &result)?;
        if self.json {
            super::print_json(&summary(&result))?;
        }
        Ok(())
    }

    /// Refuses outputs that would replace each other or the data.
    fn check_outputs(&self) -> anyhow::Result<()> {
        let outputs =
            [("--output", &self.output), ("--report", &self.report), ("--settings", &self.settings)];
        let given: Vec<(&str, &PathBuf)> =
            outputs.iter().filter_map(|(name, path)| Some((*name, path.as_ref()?))).collect();
        for (number, (name, path)) in given.iter().enumerate() {
            if **path == self.data {
                return Err(Usage(format!("{name} is the file of the data; name another file")).into());
            }
            if let Some((other, _)) = given[..number].iter().find(|(_, before)| before == path) {
                return Err(Usage(format!("{other} and {name} are the same file")).into());
            }
        }
        Ok(())
    }

    /// Returns whether the file is that of an earlier forecast.
    fn is_settings(&self) -> bool {
        self.data.extension().is_some_and(|ending| ending == "toml")
    }

    /// Reads the settings of an earlier forecast, or guesses how to read the table.
    fn settings(&self) -> anyhow::Result<(ForecastFile, Vec<String>)> {
        let (mut file, notes) = if self.is_settings() {
            let mut file = ForecastFile::read(&self.data).map_err(|error| Usage(error.to_string()))?;
            file.horizon = self.horizon.unwrap_or(file.horizon);
            (file, Vec::new())
        } else {
            let horizon = self.horizon.ok_or_else(|| {
                Usage(
                    "--horizon is missing: the number of steps to forecast, for example --horizon 28".into(),
                )
            })?;
            let Guess { schema, notes } = self.guess()?;
            (ForecastFile::new(&self.data, horizon, schema), notes)
        };
        for (given, to) in [(&self.levels, &mut file.levels), (&self.season, &mut file.seasons)] {
            if !given.is_empty() {
                to.clone_from(given);
            }
        }
        file.hierarchy |= self.hierarchy;
        if let Some(country) = &self.holidays {
            file.holidays = Some(country.code().to_string());
        }
        if !self.models.is_empty() {
            file.models.clone_from(&self.models);
        }
        if file.levels.is_empty() {
            file.levels = vec![0.8, 0.95];
        }
        Ok((file, notes))
    }

    fn guess(&self) -> anyhow::Result<Guess> {
        let hints = Hints {
            layout: self.layout,
            id: self.id.clone(),
            time: self.date.clone(),
            target: self.target.clone(),
            future: self
                .known
                .clone()
                .map(|names| names.into_iter().filter(|name| !name.is_empty()).collect()),
            decimal: self.decimal,
            date_format: self.date_format.clone(),
            frequency: self.frequency.clone(),
            missing: self.missing,
            duplicates: self.duplicates.unwrap_or_default(),
        };
        let open = File::open(&self.data).with_context(|| format!("cannot read {}", self.data.display()))?;
        Ok(guess_csv(BufReader::new(open), &self.data.display().to_string(), &hints)?)
    }

    fn forecast(&self, file: &ForecastFile, table: &Table) -> anyhow::Result<AutomaticForecast> {
        let stop = super::stop_on_interrupt()?;
        let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(1));
        if let (Some(bar), Ok(style)) =
            (&bar, ProgressStyle::with_template("{wide_bar:.cyan/blue} {pos}/{len} {msg}"))
        {
            bar.set_style(style.progress_chars("━╸─"));
        }
        let line = Mutex::new(Instant::now());
        let show = |progress: &Progress| {
            let text = format!("{}, at most {} s left", progress.doing, progress.left.as_secs());
            if let Some(bar) = &bar {
                bar.set_length(progress.candidates as u64);
                bar.set_position(progress.done as u64);
                bar.set_message(text);
                return;
            }
            let mut line = line.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if line.elapsed() >= LINE_INTERVAL {
                *line = Instant::now();
                status!("{} of {}: {text}", progress.done, progress.candidates);
            }
        };
        let mut settings = Automatic::new(file.horizon)
            .time(self.time)
            .levels(file.levels.iter().copied())
            .models(file.models.iter().cloned())
            .keep_errors(file.hierarchy)
            .on_progress(&show)
            .cancel(&stop);
        if !file.seasons.is_empty() {
            settings = settings.seasons(file.seasons.iter().copied());
        }
        let result = settings.forecast(table);
        if let Some(bar) = &bar {
            bar.finish_and_clear();
        }
        Ok(result?)
    }

    fn write(
        &self,
        file: &ForecastFile,
        notes: &[String],
        table: &Table,
        result: &AutomaticForecast,
    ) -> anyhow::Result<()> {
        let text = forecast_csv::to_csv(table, &result.forecasts, &file.columns);
        let output = self.output.as_ref().filter(|path| path.as_os_str() != "-");
        let written = |path: &Path, content: &[u8]| -> anyhow::Result<()> {
            files::write_atomic(path, content)?;
            status!("Wrote {}", path.display());
            Ok(())
        };
        match output {
            Some(path) => written(path, text.as_bytes())?,
            None => crate::output::write(text.as_bytes())?,
        }
        if let Some(path) = &self.report {
            let title =
                format!("Forecast of {}", file.data.file_name().unwrap_or_default().to_string_lossy());
            written(path, report::forecast_page(&title, notes, table, result).as_bytes())?;
        }
        let beside = output.map(|path| path.with_extension("toml")).filter(|path| *path != self.data);
        if let Some(path) = self.settings.clone().or(beside) {
            let mut file = file.clone();
            file.data = std::path::absolute(&file.data).unwrap_or(file.data);
            let folder = std::path::absolute(path.parent().unwrap_or(Path::new(""))).unwrap_or_default();
            if let Ok(relative) = file.data.strip_prefix(&folder) {
                file.data = relative.to_path_buf();
            }
            written(&path, file.to_toml().as_bytes())?;
        }
        Ok(())
    }
}

/// Reads a table again whose rows are sales, so that a time without a row is one without any: counts from 1 or 2 on, by days or weeks, with
/// no row for a fifth of the times and no gap of more than half of them, which would be an outage. `None` for other tables.
fn demand_without_zeros(table: &Table, file: &ForecastFile) -> Option<Table> {
    let missing = table.report.missing_times;
    let step = table.frequency.to_string();
    let is_daily = ["D", "B", "W"].contains(&step.as_str());
    if !is_daily || file.columns.missing != Missing::Interpolate || 5 * missing < table.values() as u64 {
        return None;
    }
    let columns = Schema { missing: Missing::Zero, ..file.columns.clone() };
    let demand = Table::read(&file.data, &columns).ok()?;
    let zeros = demand.series.iter().flat_map(|series| &series.values).filter(|y| **y == 0.0).count() as u64;
    let counts = demand
        .series
        .iter()
        .flat_map(|series| &series.values)
        .all(|y| y.is_finite() && *y >= 0.0 && y.fract() == 0.0);
    let values = || demand.series.iter().flat_map(|series| &series.values).filter(|y| **y > 0.0);
    let is_small = values().copied().fold(f64::INFINITY, f64::min) <= 2.0;
    let gaps = demand.series.iter().flat_map(|series| series.values.split(|y| *y != 0.0));
    let longest = gaps.map(<[f64]>::len).max().unwrap_or(0) as u64;
    (counts && is_small && zeros == missing && 2 * longest <= missing).then_some(demand)
}

/// Adds the option that helps with a table that cannot be read.
fn with_option(error: DataError) -> anyhow::Error {
    let option = match &error {
        DataError::Content { problem, .. } => match problem.as_ref() {
            DataProblem::NoFrequency
            | DataProblem::Frequency { .. }
            | DataProblem::MixedFrequencies { .. }
            | DataProblem::TooSparse { .. } => "--frequency",
            DataProblem::Number { .. } => "--decimal",
            DataProblem::Duplicate { .. } => "--duplicates",
            DataProblem::Time { .. } | DataProblem::DeclaredTime { .. } => "--date-format",
            _ => "",
        },
        _ => "",
    };
    if option.is_empty() { error.into() } else { anyhow::anyhow!("{error} (option {option})") }
}

/// The first names of a list.
fn shortened(names: &[String]) -> String {
    const MOST: usize = 5;
    let first = names.iter().take(MOST).cloned().collect::<Vec<_>>().join(", ");
    if names.len() > MOST { format!("{first}, ...") } else { first }
}

/// Names of the models that forecast any group.
fn members(result: &AutomaticForecast) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for name in result.groups.iter().flat_map(|group| &group.members) {
        if !names.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Prints what was read.
fn print_table(table: &Table, file: &ForecastFile) {
    let values = table.values();
    status!("{} series, {values} values, frequency {}", table.series.len(), table.frequency);
    table.report.lines(file.columns.missing).iter().for_each(|line| status!("{line}"));
    if table.report.missing_times > 0 && file.columns.missing == Missing::Interpolate {
        let counts =
            table.series.iter().flat_map(|series| &series.values).filter(|x| x.fract() == 0.0 && **x >= 0.0);
        if 10 * counts.count() >= 8 * values {
            status!("note: if no row means that nothing was sold, use --missing zero");
        }
    }
    let known = table.columns.future.len();
    let short = table.series.iter().find(|s| s.future.len() < (s.values.len() + file.horizon) * known);
    if let Some(series) = short {
        status!(
            "warning: {} not used: for series {:?} they are known for {} steps after the last value, not for {}",
            table.columns.future.join(", "),
            series.id,
            series.future.len() / known - series.values.len().min(series.future.len() / known),
            file.horizon
        );
    }
}

/// Prints what was chosen and the scores.
fn print_result(result: &AutomaticForecast) {
    for series in result
        .series
        .iter()
        .filter(|series| !series.quality.outliers.is_empty() || series.quality.constant)
        .take(5)
    {
        let what = if series.quality.constant {
            "is constant".to_string()
        } else {
            let count = series.quality.outliers.len();
            format!("has {count} outlier{}", if count == 1 { "" } else { "s" })
        };
        status!("note: series {:?} {what}", series.id);
    }
    for group in &result.groups {
        let mut names: Vec<(&str, f64)> = vec![("chosen", group.score)];
        let compared =
            result.candidates.iter().zip(group.scores.iter().copied()).filter(|(_, score)| score.is_finite());
        let mut scores: Vec<(&str, f64)> =
            compared.map(|(candidate, score)| (candidate.name.as_str(), score)).collect();
        scores.sort_by(|a, b| a.1.total_cmp(&b.1));
        names.extend(scores);
        let how =
            if group.combination == "alone" { String::new() } else { format!("{} of ", group.combination) };
        status!("{} {} series: {how}{}", group.series, group.group.name(), group.members.join(", "));
        if !group.score.is_finite() {
            status!("  too short to compare models on them");
            continue;
        }
        let errors: Vec<f64> = names.iter().map(|(_, score)| *score).collect();
        for ((name, _), error) in names.iter().zip(number::column(&errors, 3)) {
            let mark = if group.members.iter().any(|member| member == name) { "*" } else { " " };
            status!("  {mark} {name:<24} {error:>8}");
        }
        for coverage in &group.coverage {
            status!(
                "  {} % intervals contained {:.0} % of later values",
                number::percent(coverage.level),
                100.0 * coverage.covered
            );
        }
    }
    let left_out = result.candidates.iter().filter(|candidate| candidate.left_out == Some("no time left"));
    let left_out: Vec<&str> = left_out.map(|candidate| candidate.name.as_str()).collect();
    if !left_out.is_empty() {
        status!("no time left for {}; --time allows more", left_out.join(", "));
    }
    status!("{:.1} s", result.elapsed.as_secs_f64());
}

fn summary(result: &AutomaticForecast) -> serde_json::Value {
    let finite = |x: f64| x.is_finite().then_some(x);
    let groups: Vec<_> = result
        .groups
        .iter()
        .map(|group| {
            let scores = result.candidates.iter().zip(&group.scores);
            let scores: serde_json::Map<String, serde_json::Value> =
                scores.map(|(candidate, score)| (candidate.name.clone(), json!(finite(*score)))).collect();
            let coverage: Vec<_> =
                group.coverage.iter().map(|c| json!({ "level": c.level, "covered": c.covered })).collect();
            json!({
                "group": group.group.name(), "series": group.series, "members": group.members,
                "combination": group.combination, "score": finite(group.score), "scores": scores, "coverage": coverage,
            })
        })
        .collect();
    json!({
        "series": result.forecasts.len(), "groups": groups, "seasons": result.seasons,
        "covariates": result.covariates, "seconds": result.elapsed.as_secs_f64(),
    })
}

/// Parses a time: seconds, or a number with s, min or h.
fn parse_time(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (count, unit) = text.split_at(split);
    let factor = match unit.trim() {
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err("expected a time such as 60s, 5min or 1h".into()),
    };
    let seconds =
        count.parse::<f64>().ok().map(|count| count * factor).filter(|seconds| (0.0..=1e6).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "expected a time such as 60s, 5min or 1h".into())
}

/// Parses an interval level in percent, or as a fraction.
fn parse_level(text: &str) -> Result<f64, String> {
    let level = text.trim().trim_end_matches('%').trim().parse::<f64>().ok();
    let level = level.map(|level| if level > 1.0 { level / 100.0 } else { level });
    level.filter(|level| *level > 0.0 && *level < 1.0).ok_or_else(|| "expected levels such as 80,95".into())
}

fn parse_season(text: &str) -> Result<f64, String> {
    let steps = text.trim().parse::<f64>().ok().filter(|steps| (2.0..=1e6).contains(steps));
    steps.ok_or_else(|| "expected a number of steps of at least 2".into())
}
