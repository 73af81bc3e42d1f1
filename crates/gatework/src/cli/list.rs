//! `gatework list`: what can be trained out of the box.

use std::io::Write as _;

use clap::Args;
use gatework_learn::automata::experiment::{BUILT_IN, Loaded};

/// Show what can be trained out of the box
#[derive(Debug, Args)]
pub struct List {
    /// Print the TOML of one experiment, to be copied and changed; of a file, as it is understood
    #[arg(value_name = "NAME|FILE.toml")]
    name: Option<String>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl List {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(name) = &self.name {
            let experiment = Loaded::find(name)?.experiment;
            if self.json {
                super::print_json(&serde_json::to_value(&experiment)?);
            } else {
                let own = || experiment.to_toml();
                let text = BUILT_IN.iter().find(|(known, _)| known == name);
                let text = text.map_or_else(own, |(_, text)| (*text).to_string());
                std::io::stdout().write_all(text.as_bytes())?;
            }
            return Ok(());
        }
        let loaded = BUILT_IN.map(|(name, _)| Loaded::find(name));
        let mut rows = Vec::new();
        for loaded in loaded {
            rows.push(loaded?.experiment);
        }
        if self.json {
            let row = |e: &gatework_learn::automata::experiment::Experiment| serde_json::json!({ "name": e.name, "about": e.about, "expected": e.expected });
            super::print_json(
                &serde_json::json!({ "experiments": rows.iter().map(row).collect::<Vec<_>>() }),
            );
            return Ok(());
        }
        for experiment in rows {
            let row = format!("{:<19} {:<14} {}", experiment.name, experiment.expected, experiment.about);
            writeln!(std::io::stdout(), "{row}")?;
        }
        eprintln!("\nTrain one:        gatework train checkerboard");
        eprintln!("Make your own:    gatework list checkerboard > my.toml; edit it; gatework train my.toml");
        Ok(())
    }
}
