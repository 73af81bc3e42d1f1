//! `gatework export`: a circuit in the formats that others read.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use clap::Args;
use gatework_gates::automata::states::Start;
use gatework_logic::Document;
use gatework_logic::formats::{self, FORMATS, Format, FormatError, Options};
use gatework_train::files;
use serde_json::json;

use super::minimize;
use crate::report::page::Page;
use crate::subject::Subject;
use crate::usage::Usage;

/// Write a circuit in another format
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub struct Export {
    /// A run folder, a model.safetensors or a circuit
    #[arg(value_name = "RUN|FILE")]
    subject: PathBuf,
    /// The format [default: by the ending of -o]
    #[arg(long, value_name = "FORMAT")]
    to: Option<String>,
    /// The file to write [default: text goes to stdout]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write a whole grid of an automaton, with registers for its cells
    #[arg(long, value_name = "HxW", value_parser = super::parse_size)]
    grid: Option<[usize; 2]>,
    /// Make the circuit smaller first, and prove it equal
    #[arg(long)]
    minimize: bool,
    /// What the module or function is called [default: the experiment or the file]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Print one JSON object on stdout (with -o)
    #[arg(long, requires = "output")]
    json: bool,
}

fn after_help() -> String {
    let row = |format: &Format| {
        let endings = format!(".{}", format.endings.join(" ."));
        format!("  {:<9} {endings:<12} {}", format.name, format.about)
    };
    let mut rows: Vec<String> =
        FORMATS.iter().filter(|format| format.can_write()).map(|format| row(format)).collect();
    rows.push(format!(
        "  {HTML:<9} {:<12} a web page that animates an automaton, to draw on and to damage",
        ".html"
    ));
    format!("Formats:\n{}\n\n{EXAMPLES}", rows.join("\n"))
}

const EXAMPLES: &str = "\
Examples:
  gatework export runs/game-of-life --to verilog -o life.v
  gatework export runs/game-of-life --grid 16x16 -o grid.aig
  gatework export runs/checkerboard/circuit.json --to c > checkerboard.h
  gatework export runs/lizard --minimize -o lizard.html
  gatework export adder.blif -o adder.svg";

/// The name of the page that animates an automaton. It is no format of circuits: it shows an experiment.
const HTML: &str = "html";

impl Export {
    pub fn run(&self) -> anyhow::Result<()> {
        let (name, bytes) = if self.is_page() {
            (HTML, self.page()?)
        } else {
            let format = self.format()?;
            if !format.text && self.output.is_none() && std::io::stdout().is_terminal() {
                return Err(Usage(format!("{} files are binary: name a file with -o", format.name)).into());
            }
            if self.grid.is_some() && !format.grid {
                return Err(usage_or_failure(FormatError::NoGrid(format.name)));
            }
            let subject = Subject::open(&self.subject)?;
            let options = Options { name: Some(self.name(&subject)), grid: self.grid };
            let document = self.document(&subject)?;
            let bytes = formats::write(&document, format, &options).map_err(usage_or_failure)?;
            (format.name, bytes)
        };
        let Some(path) = &self.output else { return crate::output::write(&bytes) };
        files::write_whole(path, &bytes)?;
        say!("Wrote {} ({name}, {} bytes)", path.display(), bytes.len());
        if self.json {
            super::print_json(&json!({ "file": path, "format": name, "bytes": bytes.len() }))?;
        }
        Ok(())
    }

    /// What is to be written: the circuit as it is, or a smaller one.
    fn document(&self, subject: &Subject) -> anyhow::Result<Document> {
        if !self.minimize {
            return Ok(subject.document());
        }
        let smaller = minimize::smaller(subject, &minimize::Options::default())?;
        minimize::tell(subject, &smaller);
        Ok(smaller.document)
    }

    /// Whether the page is asked for, by its name or by the ending of the file.
    fn is_page(&self) -> bool {
        let ending = self.output.as_ref().and_then(|path| path.extension()?.to_str());
        self.to.as_deref().or(ending).is_some_and(|name| name.eq_ignore_ascii_case(HTML))
    }

    /// The page that animates the automaton.
    fn page(&self) -> anyhow::Result<Vec<u8>> {
        if self.grid.is_some() {
            return Err(
                Usage("a page has no --grid: its visitors choose the size of the board".into()).into()
            );
        }
        let subject = Subject::open(&self.subject)?;
        let name = self.name(&subject);
        subject.automaton()?;
        let Document::Automaton { automaton, .. } = self.document(&subject)? else {
            return Err(Usage("a page needs an automaton".into()).into());
        };
        let boards = subject.loaded.as_ref().map(|loaded| &loaded.experiment.start);
        if self.minimize && matches!(boards, Some(Start::Boards { .. })) {
            let message =
                "a page that starts from given boards needs the channels they are for; leave out --minimize";
            return Err(Usage(message.into()).into());
        }
        let page = Page::new(&name, &automaton, subject.observed);
        let page = match &subject.loaded {
            Some(loaded) => page.trained_as(loaded),
            None => page,
        };
        Ok(page.html()?.into_bytes())
    }

    /// The format that was asked for, by its name or by the ending of the file.
    fn format(&self) -> anyhow::Result<&'static Format> {
        let format = match (&self.to, &self.output) {
            (Some(name), _) => Format::named(name),
            (None, Some(path)) => Format::of_path(path),
            (None, None) => {
                let names = FORMATS.iter().map(|format| format.name).chain([HTML]);
                let names: Vec<&str> = names.collect();
                let message = format!("which format? --to names one of {}", names.join(", "));
                return Err(Usage(message).into());
            }
        };
        format.map_err(usage_or_failure)
    }

    /// The name of the module or function: asked for, of the experiment, or of the file.
    fn name(&self, subject: &Subject) -> String {
        let experiment = subject.loaded.as_ref().map(|loaded| loaded.experiment.name.clone());
        let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        self.name.clone().or(experiment).or_else(|| stem(&subject.path)).unwrap_or_default()
    }
}

/// An error of the person who asks, or of the work.
fn usage_or_failure(error: FormatError) -> anyhow::Error {
    match error {
        // The page is no format of circuits, so their list does not have it.
        FormatError::UnknownName(_) => Usage(format!("{error}, {HTML}")).into(),
        FormatError::UnknownEnding(_) => Usage(format!("{error}, .{HTML}")).into(),
        FormatError::CannotWrite(_) | FormatError::NoGrid(_) | FormatError::NotAnAutomaton => {
            Usage(error.to_string()).into()
        }
        error => error.into(),
    }
}
