//! Gatework: learn circuits on a CPU, look at them, run them.

// First, because the others use its macros.
#[macro_use]
mod output;

mod cli;
mod folder;
mod forecast_run;
mod number;
mod progress;
mod report;
mod subject;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
