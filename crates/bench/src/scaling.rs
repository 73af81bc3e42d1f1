//! `gatework-bench scaling`: time and memory as functions of size.
//!
//! Each workload grows along one dimension (`work`), with one thread and with several. Every point is measured in its own
//! process, so that its peak memory is that of this size alone. The exponent of a power law is fitted to the upper half of the
//! sizes (`fit`), where constant costs no longer matter; 1 is linear.

mod fit;
mod work;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use gatework_engine::kernel;
use gatework_train::files;
use serde_json::{Value, json};

use self::fit::exponent;
use self::work::{DIMENSIONS, Dimension};
use super::process;
use gatework::cli;
use gatework::cli::Usage;
use gatework::report::{ScalingLine, scaling_plot};

#[derive(Debug, Args)]
pub struct Scaling {
    /// Only these dimensions: grid, channels, steps, batch, gates, circuit-gates, recurrent-length, attention-length
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// Seconds for each point; at least three measurements, unless they take ten times as long
    #[arg(long, value_name = "S", default_value_t = 0.2, value_parser = super::parse_seconds)]
    seconds: f64,
    /// Number of threads to compare with one thread
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = cli::parse_threads)]
    threads: usize,
    /// Small sizes and short measurements
    #[arg(long)]
    quick: bool,
    /// Write a report: Markdown to FILE, with a plot for each dimension and a JSON file in the same folder
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
    /// Measure one size in this process, with the threads of --threads
    #[arg(long, value_name = "SIZE", hide = true)]
    size: Option<usize>,
}

/// A measured point.
#[derive(Clone, Copy, Debug)]
struct Point {
    size: usize,
    seconds: f64,
    /// Growth of the peak memory in MB.
    megabytes: Option<f64>,
}

/// Points of a dimension with one number of threads.
struct Series {
    dimension: &'static Dimension,
    threads: usize,
    points: Vec<Point>,
}

impl Scaling {
    pub fn run(&self) -> anyhow::Result<()> {
        let named = |name: &str| DIMENSIONS.iter().find(|dimension| dimension.name == name);
        if let Some(name) = self.only.iter().find(|name| named(name).is_none()) {
            let names: Vec<&str> = DIMENSIONS.iter().map(|dimension| dimension.name).collect();
            return Err(Usage(format!(
                "no dimension is called {name}; expected one of {}",
                names.join(", ")
            ))
            .into());
        }
        let wanted =
            || DIMENSIONS.iter().filter(|d| self.only.is_empty() || self.only.iter().any(|n| n == d.name));
        if let Some(size) = self.size {
            let dimension = wanted().next().context("no dimension")?;
            cli::print_json(&self.measure(dimension, size)?)?;
            return Ok(());
        }
        if let Some(path) = &self.report {
            super::prepare_report(path)?;
        }
        let mut all = Vec::new();
        for dimension in wanted() {
            for threads in super::thread_counts(self.threads) {
                let series = self.series(dimension, threads)?;
                print_line!("{}", series.summary());
                all.push(series);
            }
        }
        let result = json!({
            "bench": "scaling", "simd": kernel::simd_name(), "results": all.iter().map(Series::json).collect::<Vec<_>>(),
        });
        if let Some(path) = &self.report {
            write_report(path, &all, &result)?;
        }
        if self.json {
            cli::print_json(&result)?;
        }
        Ok(())
    }

    /// Measures all sizes of a dimension, each in its own process.
    fn series(&self, dimension: &'static Dimension, threads: usize) -> anyhow::Result<Series> {
        let sizes = if self.quick { &dimension.sizes[..3] } else { dimension.sizes };
        let mut points = Vec::new();
        for &size in sizes {
            let seconds = if self.quick { 0.01 } else { self.seconds };
            let output = Command::new(std::env::current_exe()?)
                .args(["scaling", "--only", dimension.name, "--size", &size.to_string()])
                .args(["--threads", &threads.to_string(), "--seconds", &seconds.to_string()])
                .output()?;
            let what = || format!("{} {size} with {threads} threads", dimension.name);
            anyhow::ensure!(
                output.status.success(),
                "{}: {}",
                what(),
                String::from_utf8_lossy(&output.stderr)
            );
            let point: Value = serde_json::from_slice(&output.stdout).with_context(what)?;
            let seconds = point["seconds"].as_f64().with_context(what)?;
            points.push(Point { size, seconds, megabytes: point["megabytes"].as_f64() });
        }
        Ok(Series { dimension, threads, points })
    }

    /// Measures one point in this process.
    fn measure(&self, dimension: &Dimension, size: usize) -> anyhow::Result<Value> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(self.threads).build()?;
        pool.install(|| {
            let before = process::resident_memory();
            let mut call = (dimension.work)(size)?;
            call()?;
            let (mut times, begin) = (Vec::new(), Instant::now());
            let passed = || begin.elapsed().as_secs_f64() / self.seconds;
            while times.is_empty() || passed() < 1.0 || times.len() < 3 && passed() < 10.0 {
                let start = Instant::now();
                call()?;
                times.push(start.elapsed().as_secs_f64());
            }
            times.sort_by(f64::total_cmp);
            let grown = process::peak_memory().zip(before).map(|(peak, before)| (peak - before).max(0.0));
            Ok(json!({ "seconds": cli::median(&times), "megabytes": grown }))
        })
    }
}

impl Series {
    /// Returns the exponents of time and memory, where known.
    fn exponents(&self) -> [Option<f64>; 2] {
        let upper = &self.points[self.points.len() / 2..];
        let of = |value: fn(&Point) -> Option<f64>| {
            let points: Option<Vec<(f64, f64)>> =
                upper.iter().map(|point| Some((point.size as f64, value(point)?))).collect();
            exponent(&points?)
        };
        [of(|point| Some(point.seconds)), of(|point| point.megabytes)]
    }

    fn summary(&self) -> String {
        let [time, memory] = self.exponents().map(|e| e.map_or("?".to_string(), |e| format!("{e:.2}")));
        let (first, last) = (self.points.first(), self.points.last());
        let at = |point: Option<&Point>| {
            point.map_or(String::new(), |p| format!("{:.3} ms at {}", p.seconds * 1e3, p.size))
        };
        format!(
            "{:<18} {:<9} {} to {}; exponents: time {time}, memory {memory}",
            self.dimension.name,
            super::thread_text(self.threads),
            at(first),
            at(last),
        )
    }

    fn json(&self) -> Value {
        let point = |p: &Point| json!({ "size": p.size, "seconds": p.seconds, "megabytes": p.megabytes });
        let [time, memory] = self.exponents();
        json!({
            "dimension": self.dimension.name, "threads": self.threads, "time_exponent": time, "memory_exponent": memory,
            "points": self.points.iter().map(point).collect::<Vec<_>>(),
        })
    }

    fn line(&self) -> ScalingLine {
        let at = |value: fn(&Point) -> Option<f64>| {
            self.points.iter().filter_map(|p| Some((p.size as f64, value(p)?))).collect()
        };
        ScalingLine {
            name: super::thread_text(self.threads),
            milliseconds: at(|p| Some(p.seconds * 1e3)),
            megabytes: at(|p| p.megabytes),
            exponents: self.exponents(),
        }
    }
}

/// Writes Markdown with a table and a plot for each dimension, and JSON.
fn write_report(path: &Path, all: &[Series], result: &Value) -> anyhow::Result<()> {
    let stem = path.file_stem().context("--report needs a file name")?.to_string_lossy().into_owned();
    let mut text = "# Scaling\n\nWritten by `gatework-bench scaling`: median time and peak memory as functions of size, every point in \
                    its own process. The exponent is that of a power law fitted to the upper half of the sizes; 1 is \
                    linear.\n\n"
        .to_string();
    for group in all.chunk_by(|a, b| a.dimension.name == b.dimension.name) {
        let dimension = group[0].dimension;
        let lines: Vec<ScalingLine> = group.iter().map(Series::line).collect();
        let file = format!("{stem}-{}.svg", dimension.name);
        let plot = scaling_plot(dimension.title, dimension.unit, &lines);
        files::write_atomic(&path.with_file_name(&file), plot.as_bytes())?;
        // Writing to a string does not fail.
        let _ = writeln!(text, "## {}\n\n![{}]({file})\n", dimension.title, dimension.title);
        text += &table(dimension, group);
    }
    files::write_atomic(path, text.as_bytes())?;
    files::write_atomic(&path.with_extension("json"), format!("{result:#}\n").as_bytes())?;
    status!("wrote {}", path.display());
    Ok(())
}

fn table(dimension: &Dimension, group: &[Series]) -> String {
    let mut text = format!("| {} |", dimension.unit);
    for series in group {
        let _ = write!(text, " {}, ms | MB |", super::thread_text(series.threads));
    }
    let _ = writeln!(text, "\n|--:|{}", "--:|--:|".repeat(group.len()));
    for (i, point) in group[0].points.iter().enumerate() {
        let _ = write!(text, "| {} |", point.size);
        for point in group.iter().filter_map(|series| series.points.get(i)) {
            let memory = point.megabytes.map_or("?".to_string(), |megabytes| format!("{megabytes:.1}"));
            let _ = write!(text, " {:.3} | {memory} |", point.seconds * 1e3);
        }
        text.push('\n');
    }
    text += "| exponent |";
    for exponents in group.iter().map(Series::exponents) {
        for exponent in exponents {
            let _ =
                write!(text, " {} |", exponent.map_or("?".to_string(), |exponent| format!("{exponent:.2}")));
        }
    }
    text + "\n\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(threads: usize, points: &[(usize, f64, Option<f64>)]) -> Series {
        let point =
            |&(size, seconds, megabytes): &(usize, f64, Option<f64>)| Point { size, seconds, megabytes };
        Series { dimension: &DIMENSIONS[0], threads, points: points.iter().map(point).collect() }
    }

    #[test]
    fn the_exponent_is_fitted_to_the_upper_half() {
        let series = series(1, &[(1, 9.0, None), (2, 9.0, None), (4, 16.0, None), (8, 64.0, None)]);
        let [time, memory] = series.exponents();
        assert!((time.unwrap() - 2.0).abs() < 1e-12 && memory.is_none());
    }

    #[test]
    fn a_report_has_a_plot_and_a_row_for_each_size() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("scaling.md");
        let points = [(16, 1e-3, Some(1.0)), (32, 4e-3, Some(4.0)), (64, 16e-3, Some(16.0))];
        write_report(&path, &[series(1, &points), series(2, &points)], &json!({}))?;
        let text = std::fs::read_to_string(&path)?;
        assert!(text.contains("| 64 | 16.000 | 16.0 | 16.000 | 16.0 |"), "{text}");
        assert!(text.contains("| exponent | 2.00 | 2.00 | 2.00 | 2.00 |"), "{text}");
        let plot = std::fs::read_to_string(folder.path().join("scaling-grid.svg"))?;
        assert!(text.contains("(scaling-grid.svg)") && plot.contains("2 threads"));
        Ok(())
    }
}
