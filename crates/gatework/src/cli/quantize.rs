//! `gatework quantize`: a smaller, faster copy of a forecaster.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use clap::Args;
use gatework_engine::kernel::int8;
use gatework_forecast::run::{ForecastRun, Quantized};
use gatework_forecast::trained_network::Precision;
use serde_json::json;

use super::forecaster::dataset;
use super::predict::PRECISIONS;
use super::{Usage, program, quoted};
use crate::number;
use crate::progress::Counter;

/// Write a copy of a forecaster with quantised weights
#[derive(Debug, Args)]
#[command(
    after_help = "The loss of accuracy is measured on the validation subset of the training data. The new run folder is \
used like the old one.

int8: about a quarter of the size. Linear layers are multiplied as integers on processors with AVX2; \
elsewhere, and for recurrent layers and convolutions, weights are expanded to f32 when they are loaded.

f16: half the size. Weights of linear layers and convolutions are expanded while they are multiplied, \
others when they are loaded.

Examples:
  gatework quantize runs/airpassengers --precision int8
  gatework quantize runs/my --precision f16 -o runs/my-small --max-loss 1%"
)]
pub struct Quantize {
    /// The run folder of a forecaster
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The number format of the weights
    #[arg(long, value_parser = super::choice(PRECISIONS))]
    precision: Precision,
    /// The run folder to write [default: RUN-int8 or RUN-f16]
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Write nothing if the mean absolute error grows by more than this, such as 1% or 0.01
    #[arg(long, value_name = "LOSS", value_parser = parse_fraction)]
    max_loss: Option<f64>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl Quantize {
    pub fn run(&self) -> anyhow::Result<()> {
        let Some(run) = ForecastRun::open(&self.run)? else {
            return Err(super::not_predictable(&self.run, "not the run folder of a forecaster"));
        };
        let dataset = dataset(&run)?;
        let progress = Counter::new("origins");
        let quantized = run.quantize(&dataset, self.precision, &|done, total| {
            progress.show(done, total);
            ControlFlow::Continue(())
        })?;
        drop(progress);
        print_comparison(&quantized);
        if let Some(limit) = self.max_loss {
            let Some(loss) = quantized.loss() else {
                anyhow::bail!(
                    "the validation subset is shorter than the horizon: --max-loss cannot be checked; nothing is written"
                );
            };
            // NaN is refused, too.
            if loss.is_nan() || loss > limit {
                anyhow::bail!(
                    "the error grows by {:.2} %, more than the {:.2} % of --max-loss; nothing is written",
                    100.0 * loss,
                    100.0 * limit
                );
            }
        }
        let output = match &self.output {
            Some(path) => path.clone(),
            None => beside(run.folder.path(), quantized.precision.name())?,
        };
        let folder = quantized.save(&run, &output)?;
        let path = folder.path().display().to_string();
        status!("Run folder: {path}");
        status!("Next: {} predict {} DATA.csv", program(), quoted(&path));
        if self.json {
            let Quantized { bytes, memory, errors, .. } = &quantized;
            super::print_json(&json!({
                "run": self.run, "output": path, "precision": quantized.precision, "bytes": bytes[1],
                "bytes_before": bytes[0], "memory": memory[1], "memory_before": memory[0],
                "mae": errors.map(|errors| errors[1]), "mae_before": errors.map(|errors| errors[0]),
                "loss": quantized.loss(), "integer_fraction": quantized.integer_fraction,
            }))?;
        }
        Ok(())
    }
}

/// Returns the default folder of the copy: that of the run with a suffix.
fn beside(run: &Path, suffix: &str) -> anyhow::Result<PathBuf> {
    let Some(name) = run.file_name() else {
        return Err(Usage(format!(
            "{} has no name to derive another from; name a folder with -o",
            run.display()
        ))
        .into());
    };
    let mut name = name.to_owned();
    name.push(format!("-{suffix}"));
    Ok(run.with_file_name(name))
}

fn print_comparison(quantized: &Quantized) {
    let Quantized { precision, bytes, memory, errors, integer_fraction, .. } = quantized;
    let name = precision.name();
    status!("{name}: the model file takes {} bytes instead of {}", bytes[1], bytes[0]);
    status!("{name}: the weights take {} bytes of memory instead of {}", memory[1], memory[0]);
    match (errors, quantized.loss()) {
        (Some([before, after]), Some(loss)) => status!(
            "{name}: mean absolute error on the validation subset {} ({:+.2} %)",
            number::column(&[*after, *before], 6).join(" instead of "),
            100.0 * loss
        ),
        _ => status!(
            "{name}: the validation subset is shorter than the horizon: the loss of accuracy is not known"
        ),
    }
    if name == "int8" {
        if int8::is_fast() {
            status!(
                "{name}: {:.0} % of the parameters are multiplied as integers, the others in f32",
                100.0 * integer_fraction
            );
        } else {
            status!(
                "{name}: this processor has no 8-bit dot products: weights are expanded to f32 when they are loaded"
            );
        }
    }
}

/// Parses a fraction: a number, or a percentage.
fn parse_fraction(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    match number.trim().parse::<f64>() {
        Ok(fraction) if fraction >= 0.0 && fraction.is_finite() => Ok(fraction / unit),
        _ => Err("expected a fraction that is not negative, for example 1% or 0.01".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_fraction;

    #[test]
    fn fractions_are_numbers_or_percentages() {
        assert_eq!(parse_fraction("1%"), Ok(0.01));
        assert_eq!(parse_fraction("0.5"), Ok(0.5));
        for wrong in ["", "%", "-1%", "nan", "inf", "1 percent"] {
            assert!(parse_fraction(wrong).is_err(), "{wrong}");
        }
    }
}
