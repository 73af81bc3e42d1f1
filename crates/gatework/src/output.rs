//! What verbs print: answers on stdout, for people or for programs; all that is said on the way goes to stderr.
//!
//! With `--json` stdout belongs to one JSON object, and what people would read there goes to stderr, too.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;

/// Whether stdout is for a JSON object.
static IS_FOR_PROGRAMS: AtomicBool = AtomicBool::new(false);

/// The first error of a line of an answer.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Keeps stdout for a JSON object.
pub fn keep_for_programs() {
    IS_FOR_PROGRAMS.store(true, Ordering::Relaxed);
}

/// Says a line on the way, on stderr. Who does not listen any more, as `head` does, does not end the work: std's own macro
/// would panic.
#[doc(hidden)]
#[macro_export]
macro_rules! say {
    () => { $crate::output::note(format_args!("\n")) };
    ($($text:tt)*) => { $crate::output::note(format_args!("{}\n", format_args!($($text)*))) };
}

/// The same without the end of the line.
#[doc(hidden)]
#[macro_export]
macro_rules! say_part {
    ($($text:tt)*) => { $crate::output::note(format_args!($($text)*)) };
}

/// Writes to stderr, if it can be written to.
pub fn note(text: Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}

/// Prints a line of an answer.
#[doc(hidden)]
#[macro_export]
macro_rules! answer {
    ($($text:tt)*) => { $crate::output::line(format_args!($($text)*)) };
}

/// Prints a line of an answer; [`finish`] tells what went wrong.
pub fn line(text: Arguments<'_>) {
    if IS_FOR_PROGRAMS.load(Ordering::Relaxed) {
        say!("{text}");
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
    heard(stdout.write_all(bytes).and_then(|()| stdout.flush()))
}

/// Whether all lines were written.
pub fn finish() -> anyhow::Result<()> {
    let failed = FAILED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
    heard(failed.map_or_else(|| io::stdout().flush(), Err))
}

/// Who reads no further, as `head` does, has what they wanted.
fn heard(written: io::Result<()>) -> anyhow::Result<()> {
    match written {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to stdout"),
    }
}
