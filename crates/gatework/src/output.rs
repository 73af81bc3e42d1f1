//! Output of the command line: results on stdout, progress and errors on stderr.
//!
//! With `--json`, stdout has one JSON object only, and results for people go to stderr as well.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;

/// Whether stdout is reserved for a JSON object.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// The first error of a write to stdout.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Reserves stdout for a JSON object.
pub fn reserve_for_json() {
    IS_JSON.store(true, Ordering::Relaxed);
}

/// Prints a line to stderr. Unlike `eprintln!`, it does not panic if stderr is closed.
#[doc(hidden)]
#[macro_export]
macro_rules! status {
    () => { $crate::output::write_status(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::write_status(format_args!("{}\n", format_args!($($text)*))) };
}

/// Prints text to stderr without a newline.
#[doc(hidden)]
#[macro_export]
macro_rules! status_part {
    ($($text:tt)*) => { $crate::output::write_status(format_args!($($text)*)) };
}

/// Prints a line of the result to stdout.
#[doc(hidden)]
#[macro_export]
macro_rules! print_line {
    ($($text:tt)*) => { $crate::output::write_line(format_args!($($text)*)) };
}

/// Writes to stderr. Errors are ignored: there is nowhere to report them.
pub fn write_status(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Writes a line of the result. [`finish`] returns the first error.
pub fn write_line(text: Arguments<'_>) {
    if IS_JSON.load(Ordering::Relaxed) {
        status!("{text}");
        return;
    }
    if let Err(error) = writeln!(io::stdout(), "{text}") {
        FAILED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
    }
}

/// Prints a JSON object as the last line on stdout.
pub fn print_json(value: &serde_json::Value) -> anyhow::Result<()> {
    write(format!("{value}\n").as_bytes())
}

/// Writes bytes to stdout.
pub fn write(bytes: &[u8]) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    ignore_broken_pipe(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Flushes stdout and returns the first error of a write to it.
pub fn finish() -> anyhow::Result<()> {
    let failed = FAILED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    ignore_broken_pipe(failed.map_or_else(|| io::stdout().flush(), Err))
}

/// A reader that closes the pipe early, such as `head`, is not an error.
fn ignore_broken_pipe(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}
