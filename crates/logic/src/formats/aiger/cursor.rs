//! Lexer for AIGER files, with errors that have their location.

use crate::formats::{FormatError, line_and_column};

/// A position in a file.
pub(super) struct Cursor<'b> {
    pub bytes: &'b [u8],
    pub at: usize,
    /// Whether the file is text, so that locations are lines and columns.
    pub ascii: bool,
}

impl<'b> Cursor<'b> {
    /// Returns an error at this position.
    pub fn error(&self, message: impl Into<String>) -> FormatError {
        self.error_at(self.at, message)
    }

    /// Returns an error at another position.
    pub fn error_at(&self, at: usize, message: impl Into<String>) -> FormatError {
        let message = message.into();
        if !self.ascii {
            return FormatError::Binary { offset: at, message };
        }
        let (line, column) = line_and_column(&self.bytes[..at.min(self.bytes.len())]);
        FormatError::Syntax { line, column, message }
    }

    /// Returns an error for a missing token.
    pub fn missing(&self, what: &str) -> FormatError {
        let end = if self.at >= self.bytes.len() { ", but the file ends; it may be cut off" } else { "" };
        self.error(format!("{what} is expected here{end}"))
    }

    /// Returns the next byte.
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Consumes the next byte if it is this one, and returns whether it was.
    pub fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Consumes a space.
    pub fn space(&mut self) -> Result<(), FormatError> {
        if self.skip(b' ') { Ok(()) } else { Err(self.missing("a space")) }
    }

    /// Consumes a line break, LF or CRLF.
    pub fn newline(&mut self) -> Result<(), FormatError> {
        self.skip(b'\r');
        if self.skip(b'\n') { Ok(()) } else { Err(self.missing("the end of the line")) }
    }

    /// Consumes a number below 2^32.
    pub fn number(&mut self, what: &str) -> Result<usize, FormatError> {
        let begin = self.at;
        let mut value = 0usize;
        while let Some(digit) = self.peek().filter(u8::is_ascii_digit) {
            value = value * 10 + usize::from(digit - b'0');
            if value > u32::MAX as usize {
                return Err(self.error_at(begin, format!("{what} is larger than {}", u32::MAX)));
            }
            self.at += 1;
        }
        if self.at == begin { Err(self.missing(what)) } else { Ok(value) }
    }

    /// Consumes a literal whose variable is at most the largest one of the header.
    pub fn literal(&mut self, variables: usize) -> Result<u32, FormatError> {
        let begin = self.at;
        let literal = self.number("a literal")?;
        if literal > 2 * variables + 1 {
            let message = format!(
                "the literal {literal}, but the header says that {variables} is the largest variable"
            );
            return Err(self.error_at(begin, message));
        }
        Ok(literal as u32)
    }

    /// Consumes a number of the binary format, seven bits per byte.
    pub fn difference(&mut self) -> Result<u32, FormatError> {
        let begin = self.at;
        let mut value = 0u64;
        for shift in (0..35).step_by(7) {
            let Some(byte) = self.peek() else { return Err(self.missing("an AND")) };
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                let message = "a difference beyond 32 bits";
                return u32::try_from(value).map_err(|_| self.error_at(begin, message));
            }
        }
        Err(self.error_at(begin, "a difference beyond 32 bits"))
    }

    /// Consumes the rest of the line.
    pub fn line(&mut self) -> &'b [u8] {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        self.at = (self.at + length + 1).min(self.bytes.len());
        let line = &rest[..length];
        line.strip_suffix(b"\r").unwrap_or(line)
    }
}
