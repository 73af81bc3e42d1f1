//! Grids as text: a line for each row, `#` for 1 and `.` for 0; channels follow each other, separated by an empty line.
//!
//! A grid of one channel is what the start states and targets of experiments are written as.

use crate::grid::{Grid, GridError};
use thiserror::Error;

/// Text that is not a grid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GridTextError {
    /// A character that is not a bit.
    #[error("line {line}: {found:?} is neither # nor .")]
    Character {
        /// The line, from 1.
        line: usize,
        /// The character.
        found: char,
    },
    /// A row of another length.
    #[error("line {line} has {found} cells, but the lines above have {expected}")]
    Length {
        /// The line, from 1.
        line: usize,
        /// The cells of the line.
        found: usize,
        /// The cells of the lines above.
        expected: usize,
    },
    /// A channel with another number of rows.
    #[error("channel {channel} has {found} rows, but channel 0 has {expected}")]
    Rows {
        /// The channel, from 0.
        channel: usize,
        /// Its rows.
        found: usize,
        /// The rows of channel 0.
        expected: usize,
    },
    /// No rows, or too many cells.
    #[error(transparent)]
    Grid(#[from] GridError),
}

impl Grid {
    /// Returns all channels of a sample as text: rows of `#` and `.`, with an empty line between two channels. Panics if
    /// there is no such sample, as indexing does.
    ///
    /// ```
    /// use gatework_logic::Grid;
    ///
    /// let grid = Grid::from_text("#.\n..\n\n##\n.#\n")?;
    /// assert_eq!((grid.channels(), grid.get(0, 1, 0, 1)), (2, true));
    /// assert_eq!(grid.to_text(0), "#.\n..\n\n##\n.#\n");
    /// # Ok::<(), gatework_logic::GridTextError>(())
    /// ```
    pub fn to_text(&self, sample: usize) -> String {
        let row = |channel: usize, y: usize| {
            let cell = |x| if self.get(sample, channel, y, x) { '#' } else { '.' };
            (0..self.width()).map(cell).chain(['\n']).collect::<String>()
        };
        let channel = |channel| (0..self.height()).map(|y| row(channel, y)).collect::<String>();
        (0..self.channels()).map(channel).collect::<Vec<_>>().join("\n")
    }

    /// Reads a grid of one sample from text. `1` and `0` stand for `#` and `.` as well.
    pub fn from_text(text: &str) -> Result<Grid, GridTextError> {
        let mut channels: Vec<Vec<Vec<bool>>> = vec![Vec::new()];
        let mut width = None;
        for (line, content) in text.lines().map(str::trim_end).enumerate().map(|(i, line)| (i + 1, line)) {
            if content.is_empty() {
                // Empty lines before the first row, and several in a row, do not begin a channel.
                if channels.last().is_some_and(|rows| !rows.is_empty()) {
                    channels.push(Vec::new());
                }
                continue;
            }
            let bit = |found: char| match found {
                '#' | '1' => Ok(true),
                '.' | '0' => Ok(false),
                found => Err(GridTextError::Character { line, found }),
            };
            let row = content.chars().map(bit).collect::<Result<Vec<bool>, _>>()?;
            let expected = *width.get_or_insert(row.len());
            if row.len() != expected {
                return Err(GridTextError::Length { line, found: row.len(), expected });
            }
            channels.last_mut().into_iter().for_each(|rows| rows.push(row.clone()));
        }
        if channels.last().is_some_and(Vec::is_empty) && channels.len() > 1 {
            channels.pop();
        }
        let expected = channels[0].len();
        if let Some(channel) = channels.iter().position(|rows| rows.len() != expected) {
            return Err(GridTextError::Rows { channel, found: channels[channel].len(), expected });
        }
        let mut grid = Grid::new(1, expected, width.unwrap_or(0), channels.len())?;
        for (channel, rows) in channels.iter().enumerate() {
            for (y, row) in rows.iter().enumerate() {
                row.iter().enumerate().for_each(|(x, &bit)| grid.set(0, channel, y, x, bit));
            }
        }
        Ok(grid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;

    #[test]
    fn grids_are_preserved() {
        for (height, width, channels) in [(1, 1, 1), (3, 70, 2), (5, 4, 9)] {
            let grid = arbitrary::scattered(1, height, width, channels);
            assert_eq!(Grid::from_text(&grid.to_text(0)), Ok(grid));
        }
    }

    #[test]
    fn spaces_and_empty_lines_at_the_ends_are_ignored() {
        assert_eq!(Grid::from_text("\n\n10  \r\n01\n\n\n\n").unwrap().to_text(0), "#.\n.#\n");
    }

    #[test]
    fn errors_name_their_line() {
        let message = |text: &str| Grid::from_text(text).unwrap_err().to_string();
        assert_eq!(message("#.\n#\n"), "line 2 has 1 cells, but the lines above have 2");
        assert_eq!(message("#.\n.x\n"), "line 2: 'x' is neither # nor .");
        assert_eq!(message("#.\n..\n\n##\n"), "channel 1 has 1 rows, but channel 0 has 2");
        assert!(message("\n \n").starts_with("a grid cannot be empty"));
    }
}
