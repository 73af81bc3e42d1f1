//! `gatework study`: compares settings of an experiment over many seeds.

use std::path::{Path, PathBuf};

use clap::Args;
use gatework_gates::automata::study::{Row, Study as Settings, StudyObserver};
use gatework_train::files::FileError;
use gatework_train::run_folder::RUNS;
use serde_json::json;

use crate::study::{self, SettingResult};

/// Compare settings of an experiment over many seeds
#[derive(Debug, Args)]
#[command(after_help = "A study is a TOML file:

  experiment = \"checkerboard\"       # built-in, or a file in the folder of the study
  seeds = 20

  [settings.paper.training]         # a setting overrides some keys of the experiment
  recipe = \"paper\"

  [settings.search]                 # or none

  [grid]                            # every setting is run with all combinations of these
  \"search.after\" = [50, 150]

Every setting runs with every seed, one thread each. The folder gets results.csv, with a row for \
every run, and success.svg and seconds.svg: the fraction of the seeds that succeeded over updates \
and search moves, and over seconds, with 95 % intervals. The same command resumes an interrupted \
study; runs whose settings have changed are repeated.

Example:
  gatework study my.toml --out runs/my-study")]
pub struct Study {
    /// The study file
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// The folder of the results [default: runs/study-FILE]
    #[arg(short, long, alias = "output", value_name = "DIR")]
    out: Option<PathBuf>,
    /// Number of concurrent runs, one thread each [default: all threads]
    #[arg(long, value_name = "N", value_parser = super::parse_threads)]
    threads: Option<usize>,
    /// Print the table as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Study {
    pub fn run(&self) -> anyhow::Result<()> {
        let settings = Settings::read(&self.file)?;
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy();
        // The prefix keeps it apart from a training run of the same name.
        let default = || Path::new(RUNS).join(format!("study-{name}"));
        let folder = self.out.clone().unwrap_or_else(default);
        let (threads, stop) = (super::threads(self.threads), super::stop_on_interrupt()?);
        let results = study::run(&settings, &folder, threads, &Progress, &stop)?;
        print_table(&results.settings, &folder);
        if self.json {
            let table = &results.settings;
            super::print_json(&json!({"experiment": settings.experiment, "settings": table, "out": folder}))?;
        }
        if !results.is_complete {
            anyhow::bail!("interrupted; finished runs are saved, and the same command resumes the study");
        }
        Ok(())
    }
}

/// Prints every run when it ends.
struct Progress;

impl StudyObserver for Progress {
    fn started(&self, known: usize, runs: usize) {
        if known > 0 {
            status!("{known} runs are finished already, {runs} remain");
        }
    }

    fn finished(&self, row: &Row, _rows: &[Row], left: usize) {
        let Row { setting, seed, updates, moves, seconds, hard_loss, .. } = row;
        let end = if row.success { "learned".into() } else { format!("{hard_loss} wrong") };
        status!(
            "{setting}, seed {seed}: {end}, {updates} updates, {moves} moves, {seconds:.1} s ({left} remain)"
        );
    }
}

impl study::Observer for Progress {
    fn write_failed(&self, error: &FileError) {
        status!("{error}");
    }
}

fn print_table(table: &[SettingResult], folder: &Path) {
    let width = table.iter().map(|row| row.setting.chars().count()).fold(7, usize::max);
    let line = |[name, learned, interval, median, most, per_success, gates]: [&str; 7]| {
        print_line!(
            "{name:width$} {learned:>9}  {interval:>13} {median:>9} {most:>9} {per_success:>13} {gates:>7}"
        );
    };
    print_line!("");
    line(["setting", "learned", "95 % interval", "median s", "max. s", "s per success", "gates"]);
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_string(), |n| format!("{n:.1}"));
    let percent = |fraction: f64| (fraction * 100.0).round();
    for row in table {
        let seconds = row.seconds;
        line([
            &row.setting,
            &format!("{} of {}", row.successes, row.runs),
            &format!("{} to {} %", percent(row.interval[0]), percent(row.interval[1])),
            &number(seconds.median),
            &number(seconds.most),
            &number(Some(seconds.per_success).filter(|seconds| seconds.is_finite())),
            &row.gates.median.map_or_else(|| "-".to_string(), |n| n.to_string()),
        ]);
    }
    print_line!("");
    print_line!("results.csv, success.svg and seconds.svg are in {}", folder.display());
}
