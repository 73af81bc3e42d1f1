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
        for (name, _) in built_in() {
            let [_, expected, about] = Loaded::find(name)?.texts().map(str::to_string);
            rows.push((name, expected, about));
        }
        if self.json {
            let row = |(name, expected, about): &(&str, String, String)| json!({ "name": name, "about": about, "expected": expected });
            super::print_json(&json!({ "experiments": rows.iter().map(row).collect::<Vec<_>>() }))?;
            return Ok(());
        }
        for (name, expected, about) in rows {
            print_line!("{name:<19} {expected:<14} {about}");
        }
        let program = program();
        status!("");
        status!("Train one:        {program} train checkerboard");
        status!("Make your own:    {program} list checkerboard > my.toml; edit it; {program} train my.toml");
        Ok(())
    }
}
