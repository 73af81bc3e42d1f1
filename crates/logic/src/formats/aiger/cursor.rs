//! A place in an AIGER file: the bytes from here on as the words of the format, and errors that say where.

use crate::formats::FormatError;

/// A place in a file.
pub(super) struct Cursor<'b> {
    pub bytes: &'b [u8],
    pub at: usize,
    /// Whether places are given as line and column.
    pub ascii: bool,
}

impl<'b> Cursor<'b> {
    /// An error at this place.
    pub fn error(&self, message: impl Into<String>) -> FormatError {
        self.error_at(self.at, message)
    }

    /// An error at another place.
    pub fn error_at(&self, at: usize, message: impl Into<String>) -> FormatError {
        let message = message.into();
        if !self.ascii {
            return FormatError::Binary { offset: at, message };
        }
        let before = String::from_utf8_lossy(&self.bytes[..at.min(self.bytes.len())]);
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
        FormatError::Syntax { line, column, message }
    }

    /// An error for something that is not there: the file is cut off, or something else is.
    pub fn missing(&self, what: &str) -> FormatError {
        let end = if self.at >= self.bytes.len() { ", but the file ends; it may be cut off" } else { "" };
        self.error(format!("{what} is expected here{end}"))
    }

    /// The next byte.
    pub fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Takes the next byte if it is this one.
    pub fn skip(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// A space.
    pub fn space(&mut self) -> Result<(), FormatError> {
        if self.skip(b' ') { Ok(()) } else { Err(self.missing("a space")) }
    }

    /// The end of a line, which may be that of another system.
    pub fn newline(&mut self) -> Result<(), FormatError> {
        self.skip(b'\r');
        if self.skip(b'\n') { Ok(()) } else { Err(self.missing("the end of the line")) }
    }

    /// A number below 2^32.
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

    /// A literal of one of the variables that the header allows.
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

    /// A number as seven bits a byte.
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

    /// The rest of a line. A last line need not end.
    pub fn line(&mut self) -> &'b [u8] {
        let rest = &self.bytes[self.at..];
        let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        self.at = (self.at + length + 1).min(self.bytes.len());
        let line = &rest[..length];
        line.strip_suffix(b"\r").unwrap_or(line)
    }
}
