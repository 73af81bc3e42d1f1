//! `gatework study`: which settings learn, how often and how soon.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use anyhow::Context as _;
use clap::Args;
use gatework_gates::automata::study::{
    Row, Study as Settings, StudyObserver, rows_from_csv, rows_to_csv, success_rate,
};
use gatework_train::files;
use serde_json::json;

use super::train::stop_on_interrupt;
use crate::report::{self, Curve};

/// Compare settings of an experiment over many seeds
#[derive(Debug, Args)]
#[command(after_help = "A study is a TOML file:

  experiment = \"checkerboard\"       # built-in, or a file beside the study
  seeds = 20

  [settings.paper.training]         # a setting changes what it names
  recipe = \"paper\"

  [settings.search]                 # or nothing

  [grid]                            # every setting is tried with all combinations of these
  \"search.after\" = [50, 150]

Every setting runs with every seed, one thread each. The folder gets results.csv, with a row for
every run, and success.svg and seconds.svg: the share of the seeds that have learned against
updates and moves of the search, and against seconds, with 95 % intervals. The same command goes on
with a study that was stopped; runs whose settings have changed are made again.

Example:
  gatework study my.toml --out runs/my-study")]
pub struct Study {
    /// The study
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Where the results go [default: runs/study-FILE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Runs side by side, one thread each [default: all]
    #[arg(long, value_name = "N", value_parser = super::parse_threads)]
    threads: Option<usize>,
    /// Print the table as one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Study {
    pub fn run(&self) -> anyhow::Result<()> {
        let study = Settings::read(&self.file)?;
        // Beside the runs, and not in the place of one with the same name.
        let name = self.file.file_stem().unwrap_or_default().to_string_lossy();
        let beside = || Path::new("runs").join(format!("study-{name}"));
        let folder = self.out.clone().unwrap_or_else(beside);
        files::make_folder(&folder)?;
        let results = folder.join("results.csv");
        let known = if results.exists() {
            let text = files::read_text(&results)?;
            rows_from_csv(&text)
                .map_err(anyhow::Error::msg)
                .with_context(|| format!("{} holds no results of a study", results.display()))?
        } else {
            Vec::new()
        };
        let stop = stop_on_interrupt()?;
        let others: Vec<Row> = known.iter().filter(|row| !study.has(row)).cloned().collect();
        let progress = Progress { results: &results, others: &others };
        let rows = study.run(&known, super::threads(self.threads), &progress, &stop)?;
        progress.write(&rows)?;
        let title = format!("{}, {} seeds a setting", study.experiment, study.seeds);
        let plot = |file: &str, unit: &str, time: fn(&Row) -> f64| {
            let plot = report::success_plot(&title, unit, &curves(&study, &rows, time));
            files::write_whole(&folder.join(file), plot.as_bytes())
        };
        plot("success.svg", "updates, and moves of the search", |row| (row.updates + row.moves) as f64)?;
        plot("seconds.svg", "seconds", |row| row.seconds)?;
        let table = table(&study, &rows);
        tell(&table, &folder);
        if self.json {
            super::print_json(&json!({"experiment": study.experiment, "settings": table, "out": folder}))?;
        }
        if stop.load(Ordering::SeqCst) && rows.len() < study.settings.len() * study.seeds as usize {
            anyhow::bail!("stopped; what is finished is written, and the same command goes on");
        }
        Ok(())
    }
}

/// Writes every row as soon as it is there.
struct Progress<'a> {
    results: &'a Path,
    /// Rows of settings that the study does not have any more. They stay in the file, because it may have them again.
    others: &'a [Row],
}

impl Progress<'_> {
    fn write(&self, rows: &[Row]) -> Result<(), files::FileError> {
        files::write_whole(self.results, rows_to_csv(&[rows, self.others].concat()).as_bytes())
    }
}

impl StudyObserver for Progress<'_> {
    fn started(&self, known: usize, runs: usize) {
        if known > 0 {
            say!("{known} runs are finished already, {runs} are left");
        }
    }

    fn finished(&self, row: &Row, rows: &[Row], left: usize) {
        let Row { setting, seed, updates, moves, seconds, hard_loss, .. } = row;
        let end = if row.success { "learned".into() } else { format!("{hard_loss} wrong") };
        say!("{setting}, seed {seed}: {end}, {updates} updates, {moves} moves, {seconds:.1} s ({left} left)");
        if let Err(error) = self.write(rows) {
            // The last write says so too, and ends the program.
            say!("{error}");
        }
    }
}

/// The rows of each setting.
fn by_setting<'a>(study: &'a Settings, rows: &'a [Row]) -> impl Iterator<Item = (&'a str, Vec<&'a Row>)> {
    study.settings.iter().map(move |setting| {
        (setting.name.as_str(), rows.iter().filter(|row| row.setting == setting.name).collect())
    })
}

/// For each setting, when each seed had learned.
fn curves(study: &Settings, rows: &[Row], time: fn(&Row) -> f64) -> Vec<Curve> {
    let curve = |(name, rows): (&str, Vec<&Row>)| Curve {
        name: name.to_string(),
        runs: rows.len(),
        successes: rows.iter().filter(|row| row.success).map(|row| time(row)).collect(),
        longest: rows.iter().map(|row| time(row)).fold(0.0, f64::max),
    };
    by_setting(study, rows).map(curve).collect()
}

/// One object a setting.
fn table(study: &Settings, rows: &[Row]) -> Vec<serde_json::Value> {
    let summary = |(name, rows): (&str, Vec<&Row>)| {
        let won: Vec<&&Row> = rows.iter().filter(|row| row.success).collect();
        let sorted = |number: fn(&Row) -> f64| {
            let mut numbers: Vec<f64> = won.iter().map(|row| number(row)).collect();
            numbers.sort_by(f64::total_cmp);
            numbers
        };
        let [share, low, high] = success_rate(won.len(), rows.len());
        let seconds = sorted(|row| row.seconds);
        let gates = sorted(|row| row.gates as f64);
        let all: f64 = rows.iter().map(|row| row.seconds).sum();
        json!({
            "setting": name,
            "runs": rows.len(),
            "successes": won.len(),
            "share": share,
            "interval": [low, high],
            "seconds": { "median": super::median(&seconds), "most": seconds.last(), "a success": all / won.len() as f64 },
            "gates": { "least": gates.first(), "median": super::median(&gates) },
            "failed_seeds": rows.iter().filter(|row| !row.success).map(|row| row.seed).collect::<Vec<_>>(),
        })
    };
    by_setting(study, rows).map(summary).collect()
}

/// The table for people.
fn tell(table: &[serde_json::Value], folder: &Path) {
    let width = table.iter().filter_map(|row| row["setting"].as_str()).map(|name| name.chars().count()).max();
    let width = width.unwrap_or(0).max(7);
    answer!(
        "\n{:width$} {:>9}  {:>13} {:>9} {:>9} {:>12} {:>7}",
        "setting",
        "learned",
        "95 % interval",
        "median s",
        "most s",
        "s a success",
        "gates"
    );
    let number = |value: &serde_json::Value| value.as_f64().map_or_else(|| "-".into(), |n| format!("{n:.1}"));
    let percent = |value: &serde_json::Value| (value.as_f64().unwrap_or(0.0) * 100.0).round();
    for row in table {
        let learned = format!("{} of {}", row["successes"], row["runs"]);
        let interval = format!("{} to {} %", percent(&row["interval"][0]), percent(&row["interval"][1]));
        let seconds = &row["seconds"];
        let [median, most, each] = [&seconds["median"], &seconds["most"], &seconds["a success"]].map(number);
        let gates = row["gates"]["median"].as_f64().map_or_else(|| "-".into(), |n| n.to_string());
        let name = row["setting"].as_str().unwrap_or_default();
        answer!("{name:width$} {learned:>9}  {interval:>13} {median:>9} {most:>9} {each:>12} {gates:>7}");
    }
    answer!("\nresults.csv, success.svg and seconds.svg are in {}", folder.display());
}
