//! Output of the command line: results on stdout, progress and errors on stderr.
//!
//! With `--json`, stdout has one JSON object only, and results for people are not printed. Text for people may quote
//! files: each line is escaped here, whether or not a terminal shows it. JSON and the content of files are not.

use std::borrow::Cow;
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

/// Prints one line to stderr. Unlike `eprintln!`, it does not panic if stderr is closed, and it escapes text as
/// [`one_line`](crate::output::one_line) does.
#[doc(hidden)]
#[macro_export]
macro_rules! status {
    ($($text:tt)*) => { $crate::output::write_status(format_args!($($text)*)) };
}

/// Prints one line of the result to stdout, escaped as by [`one_line`](crate::output::one_line).
#[doc(hidden)]
#[macro_export]
macro_rules! print_line {
    ($($text:tt)*) => { $crate::output::write_line(format_args!($($text)*)) };
}

/// Writes a line to stderr. Errors are ignored: there is nowhere to report them.
pub fn write_status(text: Arguments<'_>) {
    let _ = io::stderr().write_all(format!("{}\n", one_line(&text.to_string())).as_bytes());
}

/// Writes a line of the result. [`finish`] returns the first error.
pub fn write_line(text: Arguments<'_>) {
    if IS_JSON.load(Ordering::Relaxed) {
        return;
    }
    if let Err(error) = writeln!(io::stdout(), "{}", one_line(&text.to_string())) {
        FAILED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).get_or_insert(error);
    }
}

/// Escapes the characters that end a line or that a terminal interprets: control characters other than tabs, and the
/// bidirectional formatting characters of Unicode. Names in files may contain them.
pub fn one_line(text: &str) -> Cow<'_, str> {
    let is_active = |c: char| {
        let is_bidirectional = matches!(c,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        c.is_control() && c != '\t' || is_bidirectional || matches!(c, '\u{2028}' | '\u{2029}')
    };
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_active(c) { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    Cow::Owned(escaped)
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

#[cfg(test)]
mod tests {
    use super::one_line;

    #[test]
    fn a_line_has_no_character_that_a_terminal_interprets() {
        assert_eq!(one_line("\u{1b}[2J\r\n\u{7f}\u{9b}2J"), r"\u{1b}[2J\r\n\u{7f}\u{9b}2J");
        assert_eq!(one_line("a\u{202e}b\u{2066}c\u{2028}d\u{61c}"), r"a\u{202e}b\u{2066}c\u{2028}d\u{61c}");
        for unchanged in ["", "a\tb", r"C:\runs", "Ærøskøbing 日本 ━╸─", "می\u{200c}خواهم"]
        {
            assert_eq!(one_line(unchanged), unchanged);
        }
    }
}
