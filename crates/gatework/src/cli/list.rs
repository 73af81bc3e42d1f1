//! `gatework list`: lists the built-in experiments.

use crate::experiment::{Loaded, built_in};
use clap::Args;
use serde_json::json;

use super::program;

/// List the built-in experiments
#[derive(Debug, Args)]
pub struct List {
    /// Print the TOML of one experiment, as a template; of a file, with all defaults filled in
    #[arg(value_name = "NAME|FILE.toml")]
    name: Option<String>,
    /// Print one JSON object on stdout
    #[arg(long)]
    json: bool,
}

impl List {
    pub fn run(&self) -> anyhow::Result<()> {
        if let Some(name) = &self.name {
            let loaded = Loaded::find(name)?;
            if self.json {
                super::print_json(&loaded.to_json())?;
            } else {
                let text = built_in().find(|(known, _)| known == name);
                let text = text.map_or_else(|| loaded.to_toml(), |(_, text)| text.to_string());
                crate::output::write(text.as_bytes())?;
            }
            return Ok(());
        }
        let mut rows = Vec::new();
        for (name, text) in built_in() {
            let loaded = Loaded::find(name)?;
            let [_, expected, about] = loaded.texts().map(str::to_string);
            rows.push((loaded.kind(), name, expected, about, text.contains("$GATEWORK_DATA")));
        }
        if self.json {
            let row = |(kind, name, expected, about, _): &(&str, &str, String, String, bool)| json!({ "name": name, "task": kind, "about": about, "expected": expected });
            super::print_json(&json!({ "experiments": rows.iter().map(row).collect::<Vec<_>>() }))?;
            return Ok(());
        }
        let width = rows.iter().map(|(_, name, ..)| name.len()).max().unwrap_or(0);
        let mut last = "";
        for (kind, name, expected, about, needs_files) in rows {
            if kind != last {
                print_line!("{kind}:");
                last = kind;
            }
            let note = if needs_files { " (needs files)" } else { "" };
            print_line!("  {name:<width$} {expected:<12} {about}{note}");
        }
        status!("");
        status!(
            "Needs files: in the folder in the environment variable GATEWORK_DATA; see docs/classifiers.md"
        );
        let program = program();
        status!("Train one:   {program} train checkerboard");
        status!("Change one:  {program} list checkerboard > my.toml, edit it, {program} train my.toml");
        status!(
            "Your own:    {program} grow PICTURE, {program} train B36/S23, {program} train TABLE.csv, {program} forecast SALES.csv"
        );
        Ok(())
    }
}
