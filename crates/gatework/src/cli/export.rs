//! `gatework export`: writes a circuit in another format, or a forecaster as an ONNX model.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use clap::Args;
use gatework_forecast::prediction::Context;
use gatework_forecast::prediction::onnx::ExportError;
use gatework_forecast::run::ForecastRun;
use gatework_logic::Document;
use gatework_logic::formats::{self, FORMATS, Format, FormatError, Options};
use gatework_train::files;
use serde_json::json;

use super::Usage;
use super::minimize::{Work, print_proved};
use crate::export;
use crate::minimize;
use crate::progress::Passes;
use crate::report::page::title_of;
use crate::subject::Subject;

/// Write a circuit as Verilog, VHDL, C, Rust, WebAssembly, BLIF, AIGER, a web page, ..., or a forecaster as ONNX
#[derive(Debug, Args)]
#[command(after_help = after_help())]
#[command(mut_args(|arg| if WORK.contains(&arg.get_id().as_str()) { arg.requires("minimize") } else { arg }))]
pub struct Export {
    /// A run folder, a model.safetensors or a circuit
    #[arg(value_name = "RUN|FILE")]
    subject: PathBuf,
    /// The format [default: by the extension of -o]
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
    /// The file to write [default: stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Export a whole grid of an automaton, with registers for its cells
    #[arg(long, value_name = "HxW", value_parser = super::parse_size)]
    grid: Option<[usize; 2]>,
    /// The number of registers between the inputs and the class of a classifier in Verilog
    #[arg(long, value_name = "N", default_value_t = 0)]
    pipeline: usize,
    /// Minimise the circuit first, and prove the result equivalent
    #[arg(long)]
    minimize: bool,
    #[command(flatten)]
    work: Work,
    /// The name of the module, the functions or the page [default: that of the experiment; of a circuit file, that of -o]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print one JSON object on stdout (with -o)
    #[arg(long, requires = "output")]
    json: bool,
}

/// The options of [`Work`], which need `--minimize`.
const WORK: [&str; 3] = ["effort", "depth", "proof_seconds"];

fn after_help() -> String {
    let row = |format: &Format| {
        let endings = format!(".{}", format.endings.join(" ."));
        format!("  {:<9} {endings:<12} {}", format.name, format.about)
    };
    let mut rows: Vec<String> =
        FORMATS.iter().filter(|format| format.can_write()).map(|format| row(format)).collect();
    rows.push(format!("  {HTML:<9} {:<12} an interactive web page of an automaton or a classifier", ".html"));
    rows.push(format!("  {ONNX:<9} {:<12} a forecaster, for ONNX Runtime and others", ".onnx"));
    format!("Formats:\n{}\n\n{EXAMPLES}", rows.join("\n"))
}

const EXAMPLES: &str = "\
Examples:
  gatework export runs/game-of-life --to verilog -o life.v
  gatework export runs/game-of-life --grid 16x16 -o grid.aig
  gatework export runs/checkerboard/circuit.json --to c > checkerboard.h
  gatework export runs/lizard --minimize -o lizard.html
  gatework export adder.blif -o adder.svg
  gatework export runs/digits/circuit.json --minimize --pipeline 4 -o digits.v
  gatework export runs/digits/circuit.json -o digits.html
  gatework export runs/airpassengers -o airpassengers.onnx";

/// The name of the web page that simulates an automaton. It is not a circuit format: it shows an experiment.
const HTML: &str = "html";

/// The name of the format of forecasters.
const ONNX: &str = "onnx";

impl Export {
    pub fn run(&self) -> anyhow::Result<()> {
        let passes = Passes::default();
        let mut title = String::new();
        let (format, bytes) = if self.is_format(HTML) {
            (HTML, self.page(&passes)?)
        } else if self.is_format(ONNX) {
            (ONNX, self.onnx()?)
        } else {
            let format = self.format()?;
            if !format.text {
                self.refuse_terminal(format.name)?;
            }
            if self.grid.is_some() && !format.grid {
                return Err(usage_or_failure(FormatError::NoGrid(format.name)));
            }
            let subject = Subject::open(&self.subject)?;
            let default = || export::name(&subject, self.output.as_deref());
            let name = self.name.clone().unwrap_or_else(default);
            title.clone_from(&name);
            let options =
                Options { name: Some(name), grid: self.grid, pipeline: self.pipeline, ..Options::default() };
            if self.pipeline > 0 && !(format.name == "verilog" && subject.classifier.is_some()) {
                return Err(Usage("--pipeline is for classifiers in Verilog".into()).into());
            }
            let document = self.document(&subject, &passes)?;
            passes.show("write", document.circuit().nodes().len());
            let bytes = formats::write(&document, format, &options).map_err(usage_or_failure)?;
            (format.name, bytes)
        };
        drop(passes);
        let Some(path) = &self.output else { return crate::output::write(&bytes) };
        files::write_atomic(path, &bytes)?;
        status!("Wrote {} ({format}, {} bytes)", path.display(), bytes.len());
        if format == "verilog" {
            let file = super::quoted(&path.display().to_string());
            status!("Run its testbench: iverilog -DGATEWORK_TESTBENCH -o test {file} && vvp test");
        }
        if format == "vhdl" {
            let file = super::quoted(&path.display().to_string());
            let name = formats::vhdl::testbench(&title);
            status!("Run its testbench: ghdl -a {file} && ghdl -e {name} && ghdl -r {name}");
        }
        if self.json {
            super::print_json(&json!({ "file": path, "format": format, "bytes": bytes.len() }))?;
        }
        Ok(())
    }

    /// The circuit, minimised if requested.
    fn document(&self, subject: &Subject, passes: &Passes) -> anyhow::Result<Document> {
        if !self.minimize {
            return Ok(subject.document());
        }
        if !self.work.is_given()
            && let Some((path, document)) = export::minimized(subject)
        {
            let gates = minimize::gates(&document);
            status!(
                "Using {} ({gates} gates, proved when it was written); --effort minimises again",
                path.display()
            );
            return Ok(document);
        }
        let stop = super::stop_on_interrupt()?;
        let proved = self.work.minimize(&subject.document(), Vec::new(), passes, &stop)?;
        passes.pause(|| print_proved(subject, &proved));
        Ok(proved.document)
    }

    /// Whether a format is requested, by its name or by the extension of the file.
    fn is_format(&self, format: &str) -> bool {
        let extension = self.output.as_ref().and_then(|path| path.extension()?.to_str());
        self.to.as_deref().or(extension).is_some_and(|name| name.eq_ignore_ascii_case(format))
    }

    fn refuse_terminal(&self, format: &str) -> anyhow::Result<()> {
        if self.output.is_none() && std::io::stdout().is_terminal() {
            return Err(Usage(format!("{format} files are binary; name a file with -o")).into());
        }
        Ok(())
    }

    /// The ONNX model of a forecaster.
    fn onnx(&self) -> anyhow::Result<Vec<u8>> {
        self.refuse_terminal(ONNX)?;
        if self.grid.is_some() || self.minimize {
            return Err(Usage("--grid and --minimize are for circuits, not for onnx files".into()).into());
        }
        let Some(run) = ForecastRun::open(&self.subject)? else {
            // What does not exist has a message of its own.
            Subject::open(&self.subject)?;
            let message = format!(
                "{} is not the run of a forecaster, which onnx files are for; circuits are written as {}",
                self.subject.display(),
                names().join(", ")
            );
            return Err(Usage(message).into());
        };
        let mut forecaster = run.forecaster;
        if let Some(name) = &self.name {
            let context = Context { name: name.clone(), ..forecaster.context().clone() };
            forecaster = forecaster.with_context(context);
        }
        forecaster.to_onnx().map_err(|error| match error {
            ExportError::Samples(_) => Usage(error.to_string()).into(),
            error => error.into(),
        })
    }

    /// The web page of the automaton.
    fn page(&self, passes: &Passes) -> anyhow::Result<Vec<u8>> {
        if self.grid.is_some() {
            let message = "--grid is not for web pages: their visitors choose the size of the grid";
            return Err(Usage(message.into()).into());
        }
        let subject = Subject::open(&self.subject)?;
        if subject.classifier.is_none() {
            subject.automaton()?;
        }
        let document = self.document(&subject, passes)?;
        let name = || title_of(&export::name(&subject, self.output.as_deref()));
        let title = self.name.clone().unwrap_or_else(name);
        Ok(export::page(&subject, &document, &title)?.into_bytes())
    }

    /// The requested format, by its name or by the extension of the file.
    fn format(&self) -> anyhow::Result<&'static Format> {
        let format = match (&self.to, &self.output) {
            (Some(name), _) => Format::named(name),
            (None, Some(path)) => Format::of_path(path),
            (None, None) => {
                let message = format!("which format? --to names one of {}, {ONNX}", names().join(", "));
                return Err(Usage(message).into());
            }
        };
        format.map_err(usage_or_failure)
    }
}

/// The names of the formats of circuits.
fn names() -> Vec<&'static str> {
    FORMATS.iter().map(|format| format.name).chain([HTML]).collect()
}

/// Separates wrong usage from failures.
fn usage_or_failure(error: FormatError) -> anyhow::Error {
    match error {
        // The web page and the models of forecasters are not in the list of circuit formats.
        FormatError::UnknownName(_) => Usage(format!("{error}, {HTML}, {ONNX}")).into(),
        FormatError::UnknownEnding(_) => Usage(format!("{error}, .{HTML}, .{ONNX}")).into(),
        FormatError::CannotWrite(_)
        | FormatError::NoGrid(_)
        | FormatError::NotAnAutomaton
        | FormatError::NoClassifier(_)
        | FormatError::Pipeline(_) => Usage(error.to_string()).into(),
        error => error.into(),
    }
}
