//! Gatework: learn circuits on a CPU, look at them, run them.

mod cli;
mod folder;
mod forecast_run;
mod number;
mod output;
mod progress;
mod report;
mod subject;
mod usage;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
