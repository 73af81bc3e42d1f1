//! Studies with their results: one call compares settings of an experiment over many seeds and writes tables and plots.
//!
//! | file | content |
//! |---|---|
//! | `results.csv` | one row per setting and seed; written after every run |
//! | `success.svg` | the fraction of seeds that succeeded over the updates and search moves |
//! | `seconds.svg` | the same over the seconds |

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gatework_gates::automata::study::{Row, Study, StudyObserver, rows_from_csv, rows_to_csv, success_rate};
use gatework_train::files::{self, FileError};
use gatework_train::trainer::TrainError;
use serde::Serialize;

use crate::report::{self, Curve};

/// A study that cannot be run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StudyError {
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// `results.csv` does not hold the results of a study.
    #[error("{} does not hold the results of a study: {problem}", path.display())]
    Results {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// Training failed.
    #[error(transparent)]
    Training(#[from] TrainError),
}

/// Receives the progress of a study, possibly from several threads.
pub trait Observer: StudyObserver {
    /// Called if the rows so far cannot be written. The study goes on; the final write returns the error.
    fn write_failed(&self, error: &FileError);
}

/// The results of a study.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Results {
    /// One entry per setting.
    pub settings: Vec<SettingResult>,
    /// Whether every setting was run with every seed.
    pub is_complete: bool,
}

/// The results of a setting.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SettingResult {
    /// The name of the setting.
    pub setting: String,
    /// The number of seeds.
    pub runs: usize,
    /// The number of seeds that succeeded.
    pub successes: usize,
    /// The fraction of seeds that succeeded.
    pub share: f64,
    /// The 95 % confidence interval of that fraction.
    pub interval: [f64; 2],
    /// Seconds of training.
    pub seconds: Seconds,
    /// Gates of the seeds that succeeded.
    pub gates: Gates,
    /// The seeds that failed.
    pub failed_seeds: Vec<u64>,
}

/// Seconds of training of a setting.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Seconds {
    /// The median over the seeds that succeeded.
    pub median: Option<f64>,
    /// The maximum over the seeds that succeeded.
    pub most: Option<f64>,
    /// The seconds of all seeds divided by the number of successes.
    #[serde(rename = "a success")]
    pub per_success: f64,
}

/// Gates of the seeds of a setting that succeeded.
#[derive(Clone, Copy, Debug, Serialize)]
#[non_exhaustive]
pub struct Gates {
    /// The minimum.
    pub least: Option<f64>,
    /// The median.
    pub median: Option<f64>,
}

/// Runs a study into a folder, or resumes it: rows in `results.csv` with the same settings are kept.
pub fn run(
    study: &Study,
    folder: &Path,
    threads: usize,
    observer: &impl Observer,
    stop: &AtomicBool,
) -> Result<Results, StudyError> {
    files::make_folder(folder)?;
    let results = folder.join("results.csv");
    let known = if results.exists() {
        let failed = |problem| StudyError::Results { path: results.clone(), problem };
        rows_from_csv(&files::read_text(&results)?).map_err(failed)?
    } else {
        Vec::new()
    };
    // Rows of settings that the study no longer has stay in the file: it may have them again.
    let others: Vec<Row> = known.iter().filter(|row| !study.has(row)).cloned().collect();
    let writer = Writer { observer, results: &results, others: &others };
    let rows = study.run(&known, threads, &writer, stop)?;
    writer.write(&rows)?;
    let title = format!("{}, {} seeds per setting", study.experiment, study.seeds);
    let plot = |file: &str, unit: &str, time: fn(&Row) -> f64| {
        let plot = report::success_plot(&title, unit, &curves(study, &rows, time));
        files::write_atomic(&folder.join(file), plot.as_bytes())
    };
    plot("success.svg", "updates, and moves of the search", |row| row.updates as f64 + row.moves as f64)?;
    plot("seconds.svg", "seconds", |row| row.seconds)?;
    let settings = by_setting(study, &rows).map(|(name, rows)| setting_result(name, &rows)).collect();
    Ok(Results { settings, is_complete: rows.len() >= study.settings.len() * study.seeds as usize })
}

/// Writes all rows after every run.
struct Writer<'a, O> {
    observer: &'a O,
    results: &'a Path,
    others: &'a [Row],
}

impl<O> Writer<'_, O> {
    fn write(&self, rows: &[Row]) -> Result<(), FileError> {
        files::write_atomic(self.results, rows_to_csv(&[rows, self.others].concat()).as_bytes())
    }
}

impl<O: Observer> StudyObserver for Writer<'_, O> {
    fn started(&self, known: usize, runs: usize) {
        self.observer.started(known, runs);
    }

    fn finished(&self, row: &Row, rows: &[Row], left: usize) {
        self.observer.finished(row, rows, left);
        if let Err(error) = self.write(rows) {
            self.observer.write_failed(&error);
        }
    }
}

/// The rows of each setting.
fn by_setting<'a>(study: &'a Study, rows: &'a [Row]) -> impl Iterator<Item = (&'a str, Vec<&'a Row>)> {
    study.settings.iter().map(move |setting| {
        (setting.name.as_str(), rows.iter().filter(|row| row.setting == setting.name).collect())
    })
}

/// For each setting, when each seed succeeded.
fn curves(study: &Study, rows: &[Row], time: fn(&Row) -> f64) -> Vec<Curve> {
    let curve = |(name, rows): (&str, Vec<&Row>)| Curve {
        name: name.to_string(),
        runs: rows.len(),
        successes: rows.iter().filter(|row| row.success).map(|row| time(row)).collect(),
        longest: rows.iter().map(|row| time(row)).fold(0.0, f64::max),
    };
    by_setting(study, rows).map(curve).collect()
}

fn setting_result(name: &str, rows: &[&Row]) -> SettingResult {
    let succeeded: Vec<&&Row> = rows.iter().filter(|row| row.success).collect();
    let sorted = |number: fn(&Row) -> f64| {
        let mut numbers: Vec<f64> = succeeded.iter().map(|row| number(row)).collect();
        numbers.sort_by(f64::total_cmp);
        numbers
    };
    let [share, low, high] = success_rate(succeeded.len(), rows.len());
    let (seconds, gates) = (sorted(|row| row.seconds), sorted(|row| row.gates as f64));
    let all: f64 = rows.iter().map(|row| row.seconds).sum();
    SettingResult {
        setting: name.to_string(),
        runs: rows.len(),
        successes: succeeded.len(),
        share,
        interval: [low, high],
        seconds: Seconds {
            median: median(&seconds),
            most: seconds.last().copied(),
            per_success: all / succeeded.len() as f64,
        },
        gates: Gates { least: gates.first().copied(), median: median(&gates) },
        failed_seeds: rows.iter().filter(|row| !row.success).map(|row| row.seed).collect(),
    }
}

/// Returns the median of sorted numbers.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let middle = sorted.get(sorted.len() / 2)?;
    Some(f64::midpoint(*middle, sorted[(sorted.len() - 1) / 2]))
}
