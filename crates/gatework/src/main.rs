//! The `gatework` command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    gatework::cli::main()
}
