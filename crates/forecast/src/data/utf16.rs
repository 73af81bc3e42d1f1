//! Conversion of files in UTF-16, as spreadsheets write them, to UTF-8.

use std::io::{BufRead, BufReader, Read, Result};

/// Returns the input, converted to UTF-8 if it begins with the byte-order mark of UTF-16.
pub fn without_utf16<'a>(mut input: impl BufRead + 'a) -> Result<Box<dyn BufRead + 'a>> {
    let little = match input.fill_buf()? {
        [0xff, 0xfe, ..] => true,
        [0xfe, 0xff, ..] => false,
        _ => return Ok(Box::new(input)),
    };
    input.consume(2);
    Ok(Box::new(BufReader::new(Utf16 { input, little, ready: Vec::new(), taken: 0 })))
}

/// A reader of UTF-16 that yields UTF-8.
struct Utf16<R> {
    input: R,
    little: bool,
    /// Converted bytes, of which the first ones were taken.
    ready: Vec<u8>,
    taken: usize,
}

/// Code units that are converted at a time.
const UNITS: usize = 8192;

impl<R: Read> Utf16<R> {
    /// Reads a code unit; `None` at the end.
    fn unit(&mut self) -> Result<Option<u16>> {
        let mut bytes = [0; 2];
        let mut filled = 0;
        while filled < 2 {
            match self.input.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let unit = if self.little { u16::from_le_bytes(bytes) } else { u16::from_be_bytes(bytes) };
        Ok((filled == 2).then_some(unit))
    }

    fn convert(&mut self) -> Result<()> {
        let mut units = Vec::with_capacity(UNITS + 1);
        while let Some(unit) = self.unit()? {
            units.push(unit);
            // The second unit of a pair follows its first, but first ones alone are no text.
            if units.len() >= UNITS && !(0xd800..0xdc00).contains(&unit) || units.len() > UNITS {
                break;
            }
        }
        self.ready = String::from_utf16_lossy(&units).into_bytes();
        self.taken = 0;
        Ok(())
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize> {
        if self.taken == self.ready.len() {
            self.convert()?;
        }
        let count = buffer.len().min(self.ready.len() - self.taken);
        buffer[..count].copy_from_slice(&self.ready[self.taken..self.taken + count]);
        self.taken += count;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> String {
        let mut text = String::new();
        without_utf16(bytes).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn both_byte_orders_are_converted_and_other_files_are_not() {
        let text = "date,größe 😀\n".repeat(3000);
        let little: Vec<u8> =
            [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
        let big: Vec<u8> =
            [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect();
        assert_eq!(read(&little), text);
        assert_eq!(read(&big), text);
        assert_eq!(read(text.as_bytes()), text);
        assert_eq!(read(&little[..little.len() - 1]), text[..text.len() - 1]);
        assert_eq!(read(&[0xff, 0xfe]), "");
    }
}
