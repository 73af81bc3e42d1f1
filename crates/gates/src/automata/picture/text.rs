//! Pictures as text: a character is a cell, or the run-length encoding of Golly.

use std::collections::BTreeMap;

use super::{Bitmap, LARGEST_SIDE, MAX_COLOURS, Rgb, background};
use crate::automata::construct::bits_for;
use crate::automata::states::StateError;

/// Letters that have a colour of their own in text pictures.
const LETTERS: [(char, Rgb); 10] = [
    ('#', [0x1b, 0x1f, 0x3b]),
    ('R', [0xe0, 0x2f, 0x2f]),
    ('G', [0x2f, 0xa8, 0x4f]),
    ('B', [0x2f, 0x5f, 0xe0]),
    ('Y', [0xf2, 0xc9, 0x2e]),
    ('W', [0xff, 0xff, 0xff]),
    ('K', [0x00, 0x00, 0x00]),
    ('O', [0xf0, 0x8a, 0x24]),
    ('P', [0x9b, 0x4f, 0xc8]),
    ('C', [0x2f, 0xc4, 0xd0]),
];

/// Colours of other letters, in the order in which they occur.
const FURTHER: [Rgb; 6] = [
    [0x80, 0x50, 0x30],
    [0x70, 0x70, 0x70],
    [0xe0, 0x80, 0xb0],
    [0x50, 0x80, 0x20],
    [0x30, 0x30, 0x80],
    [0xb0, 0xb0, 0xb0],
];

/// The background of text pictures.
const PAPER: Rgb = [0xf4, 0xf1, 0xea];

impl Bitmap {
    /// Reads `#` and `.`, or R, G, B, Y and `.`, as one or three channels.
    pub fn from_text(text: &str) -> Result<Bitmap, StateError> {
        let (size, letters) = letters(text, Spaces::Refused)?;
        let mut map =
            Bitmap { height: size[0], width: size[1], channels: 1, codes: Vec::new(), palette: Vec::new() };
        for (line, letter) in letters {
            map.codes.push(match letter.to_ascii_uppercase() {
                '.' | '0' => 0,
                '#' | '1' | 'R' => 1,
                'G' => 2,
                'B' => 4,
                'Y' => 3,
                _ => return text_error(line, format!("{letter:?} is none of # . R G B Y")),
            });
            if letter.is_ascii_alphabetic() {
                map.channels = 3;
            }
        }
        Ok(map)
    }

    /// Reads text in which every character other than a space, `.` and `0` is a colour.
    pub fn from_coloured_text(text: &str) -> Result<Bitmap, StateError> {
        Bitmap::from_letters(letters(text, Spaces::Background)?)
    }

    /// Reads text like [`Bitmap::from_coloured_text`], with the spaces at the ends of its lines: a tile may end with them.
    pub fn tile_from_text(text: &str) -> Result<Bitmap, StateError> {
        Bitmap::from_letters(letters(text, Spaces::Kept)?)
    }

    fn from_letters((size, letters): Letters) -> Result<Bitmap, StateError> {
        let is_background = |letter: char| matches!(letter, '.' | '0') || letter.is_whitespace();
        if let Some((line, letter)) = letters.iter().find(|(_, letter)| letter.is_control()) {
            let message = format!("{letter:?} is not a cell; write . or a space for the background");
            return text_error(*line, message);
        }
        let cells: Vec<char> =
            letters.iter().map(|&(_, letter)| if letter == '1' { '#' } else { letter }).collect();
        let has_background = cells.iter().any(|&letter| is_background(letter));
        let mut counts: BTreeMap<char, usize> = BTreeMap::new();
        for &letter in &cells {
            *counts.entry(letter).or_default() += 1;
        }
        let background = if has_background { None } else { background(&cells, size) };
        let mut used: Vec<char> =
            counts.keys().copied().filter(|&l| !is_background(l) && Some(l) != background).collect();
        used.sort_by_key(|letter| (std::cmp::Reverse(counts[letter]), *letter));
        if used.len() >= MAX_COLOURS {
            return Err(StateError::Colours { found: used.len() + 1 });
        }
        let palette = std::iter::once(PAPER).chain(letter_colours(&used)).collect();
        let code = |letter: &char| used.iter().position(|known| known == letter).map_or(0, |i| i as u8 + 1);
        let codes = cells.iter().map(code).collect();
        let channels = bits_for(used.len() + 1).max(1);
        Ok(Bitmap { height: size[0], width: size[1], channels, codes, palette })
    }
}

fn text_error<T>(line: usize, problem: String) -> Result<T, StateError> {
    Err(StateError::Text { line: line + 1, problem })
}

/// The size of a text picture, and its characters with their lines.
type Letters = ([usize; 2], Vec<(usize, char)>);

/// What a space in a text picture is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Spaces {
    /// Not a cell.
    Refused,
    /// Background; those at the ends of lines may be missing.
    Background,
    /// A cell of the background, also at the end of a line.
    Kept,
}

/// Characters that take no place: the byte order mark, and those that choose how the character before is drawn.
const INVISIBLE: [char; 4] = ['\u{feff}', '\u{fe0e}', '\u{fe0f}', '\u{200d}'];

/// Returns the size of a text picture, and its characters with their lines. Lines may be ragged if a space is background.
fn letters(text: &str, spaces: Spaces) -> Result<Letters, StateError> {
    let text: String = text.chars().filter(|letter| !INVISIBLE.contains(letter)).collect();
    let text = text.as_str();
    let ended = |line| if spaces == Spaces::Kept { line } else { str::trim_end(line) };
    let lines = text.lines().map(ended).enumerate();
    let has_spaces = text.lines().any(|line| line.contains(' ') && !line.trim().is_empty());
    let pads = spaces != Spaces::Refused && has_spaces;
    let mut lines: Vec<(usize, &str)> = lines.skip_while(|(_, line)| line.is_empty()).collect();
    lines.truncate(lines.iter().rposition(|(_, line)| !line.is_empty()).map_or(0, |last| last + 1));
    // Where a space is background, an empty line is a row.
    lines.retain(|(_, line)| pads || !line.is_empty());
    let widest = lines.iter().map(|(_, line)| line.chars().count()).max().unwrap_or(0);
    if lines.is_empty() {
        return text_error(0, "there are no cells; a picture has a row of characters at least".into());
    }
    if lines.len().max(widest) > LARGEST_SIDE {
        return text_error(0, format!("a picture has at most {LARGEST_SIDE} rows and columns"));
    }
    if lines.len() * widest > LARGEST_SIDE * LARGEST_SIDE / 16 {
        return text_error(0, "the picture has too many cells".into());
    }
    let first = lines[0].1.chars().count();
    let mut cells = Vec::new();
    for &(number, line) in &lines {
        let width = line.chars().count();
        if !pads && width != first {
            return text_error(number, format!("{width} cells, but the lines above have {first}"));
        }
        cells.extend(line.chars().map(|letter| (number, letter)));
        cells.resize(cells.len() + widest - width, (number, ' '));
    }
    Ok(([lines.len(), widest], cells))
}

/// The colours of the letters of a text picture, all different: the letter's own, or one that no other has.
fn letter_colours(letters: &[char]) -> Vec<Rgb> {
    let own = |letter: char| LETTERS.iter().find(|(known, _)| *known == letter).map(|(_, colour)| *colour);
    let mut colours: Vec<Option<Rgb>> = letters.iter().map(|&letter| own(letter)).collect();
    for (index, letter) in letters.iter().enumerate() {
        // A small letter has the colour of the capital one, if that does not occur.
        let of_capital = own(letter.to_ascii_uppercase()).filter(|colour| !colours.contains(&Some(*colour)));
        colours[index] = colours[index].or(of_capital);
    }
    for index in 0..colours.len() {
        let spare = FURTHER.iter().copied().chain(LETTERS.iter().map(|(_, colour)| *colour));
        let unused = spare.into_iter().find(|colour| !colours.contains(&Some(*colour)));
        colours[index] = colours[index].or(unused);
    }
    colours.into_iter().map(|colour| colour.unwrap_or(LETTERS[0].1)).collect()
}

/// Whether a text looks like a run-length encoded pattern: comments, then a header line `x = ...`.
pub(super) fn is_rle(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let header = lines.find(|line| {
        !line.starts_with('#') || !line[1..].starts_with([' ', 'C', 'c', 'N', 'O', 'P', 'R', 'r'])
    });
    header.is_some_and(|line| line.strip_prefix('x').is_some_and(|rest| rest.trim_start().starts_with('=')))
}

/// Maximum number of cells of a run-length encoded pattern.
const MAX_RLE_CELLS: usize = 1 << 24;

impl Bitmap {
    /// Reads the RLE format of Golly: `x = 3, y = 3, rule = B3/S23`, then runs of `b` and `o`, or `.` and `A` to `X` for more
    /// states, `$` at the end of a row and `!` at the end.
    pub fn from_rle(text: &str) -> Result<Bitmap, StateError> {
        let mut lines = text.lines().enumerate().skip_while(|(_, line)| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#')
        });
        let Some((at, header)) = lines.next() else { return text_error(0, "there is no header line".into()) };
        let mut sides = [None; 2];
        for part in header.split(',') {
            let Some((key, value)) = part.split_once('=') else { continue };
            let side = || value.trim().parse::<usize>().ok();
            match key.trim() {
                "x" => sides[1] = side(),
                "y" => sides[0] = side(),
                _ => {}
            }
        }
        let [Some(height), Some(width)] = sides else {
            return text_error(at, "the header is not of the form x = WIDTH, y = HEIGHT".into());
        };
        let fits = |side: usize| (1..=LARGEST_SIDE).contains(&side);
        if !fits(height) || !fits(width) || height * width > MAX_RLE_CELLS {
            return text_error(
                at,
                format!(
                    "a pattern has 1 to {LARGEST_SIDE} rows and columns and at most {MAX_RLE_CELLS} cells"
                ),
            );
        }
        let mut codes = vec![0u8; height * width];
        let (mut y, mut x, mut count) = (0usize, 0usize, None::<usize>);
        let mut largest = 1u8;
        for (number, line) in lines {
            for letter in line.trim().chars() {
                if let Some(digit) = letter.to_digit(10) {
                    let next = count.unwrap_or(0).saturating_mul(10).saturating_add(digit as usize);
                    count = Some(next);
                    continue;
                }
                if letter.is_whitespace() {
                    continue;
                }
                let run = count.take().unwrap_or(1);
                let state = match letter {
                    '!' => return Ok(Bitmap::of_states(height, width, codes, largest)),
                    '$' => {
                        y = y.saturating_add(run);
                        x = 0;
                        continue;
                    }
                    'b' | '.' => 0,
                    'o' => 1,
                    'A'..='X' => letter as u8 - b'A' + 1,
                    _ => return text_error(number, format!("{letter:?} is not part of a pattern")),
                };
                if usize::from(state) >= MAX_COLOURS {
                    return text_error(
                        number,
                        format!("state {letter:?}: at most {MAX_COLOURS} states can be read"),
                    );
                }
                if y >= height || run > width - x.min(width) {
                    return text_error(
                        number,
                        format!("a run goes beyond the {height}x{width} cells of the header"),
                    );
                }
                codes[y * width + x..][..run].fill(state);
                x += run;
                largest = largest.max(state);
            }
        }
        text_error(at, "the pattern does not end with !".into())
    }

    fn of_states(height: usize, width: usize, codes: Vec<u8>, largest: u8) -> Bitmap {
        let channels = bits_for(usize::from(largest) + 1).max(1);
        Bitmap { height, width, channels, codes, palette: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_text_is_refused_with_its_line() {
        for (text, part) in [("", "row"), ("##\n#", "line 2"), ("##\n#x", "line 2"), ("\n\n", "row")] {
            let error = Bitmap::from_text(text).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn text_has_a_colour_for_each_letter() {
        let map = Bitmap::from_coloured_text("  x\n y\nx").unwrap();
        assert_eq!((map.size(), map.channels), ([3, 3], 2));
        assert_eq!(map.codes, [0, 0, 1, 0, 2, 0, 1, 0, 0]);
        let map = Bitmap::from_coloured_text("##\n.#").unwrap();
        assert_eq!((map.channels, &map.codes[..]), (1, &[1, 1, 0, 1][..]));
        assert!(Bitmap::from_coloured_text("##\n#").unwrap_err().to_string().contains("line 2"));
        let many: String = ('a'..='p').collect();
        assert!(matches!(Bitmap::from_coloured_text(&format!("{many}.")), Err(StateError::Colours { .. })));
    }

    #[test]
    fn all_letters_of_a_text_have_different_colours() {
        for letters in ["abcdefghijklmno", "rRgGbByY", "/\\_()^<>o"] {
            let palette = Bitmap::from_coloured_text(&format!("{letters}.")).unwrap().palette;
            let different: std::collections::BTreeSet<Rgb> = palette.iter().copied().collect();
            assert_eq!(different.len(), letters.len() + 1, "{letters}: {palette:?}");
        }
    }

    #[test]
    fn invisible_characters_are_no_cells_and_control_characters_are_refused() {
        let plain = Bitmap::from_coloured_text("⬜⬛\n⬜⬜").unwrap();
        let copied = Bitmap::from_coloured_text("\u{feff}⬜\u{fe0f}⬛\u{fe0f}\n⬜⬜\u{fe0f}").unwrap();
        assert_eq!((copied.size(), &copied.codes), ([2, 2], &plain.codes));
        let error = Bitmap::from_coloured_text("#..\n.\t#").unwrap_err().to_string();
        assert!(error.contains("line 2") && error.contains("'\\t'"), "{error}");
    }

    #[test]
    fn spaces_at_the_ends_of_lines_are_cells_of_a_tile() {
        let tile = Bitmap::tile_from_text("#  \n   \n").unwrap();
        assert_eq!((tile.size(), tile.set_cells()), ([2, 3], 1));
        assert_eq!(Bitmap::tile_from_text("#..\r\n...\r\n").unwrap().size(), [2, 3]);
        assert_eq!(Bitmap::from_coloured_text("#  \n   \n").unwrap().size(), [1, 1]);
    }

    #[test]
    fn rle_patterns_are_read() {
        let glider = "#C a glider\nx = 3, y = 3, rule = B3/S23\nbo$2bo$\n3o!\n";
        assert!(is_rle(glider) && !is_rle("###\n..."));
        let map = Bitmap::from_rle(glider).unwrap();
        assert_eq!((map.size(), map.channels), ([3, 3], 1));
        assert_eq!(map.codes, [0, 1, 0, 0, 0, 1, 1, 1, 1]);
        let brain = Bitmap::from_bytes(b"x = 3, y = 2, rule = B2/S/C3\n.AB2$!").unwrap().0;
        assert_eq!((brain.channels, &brain.codes[..3]), (2, &[0, 1, 2][..]));
        for (text, part) in [
            ("", "header"),
            ("x = 3", "header"),
            ("x = 0, y = 3\n!", "rows"),
            ("x = 99999, y = 3\n!", "rows"),
            ("x = 3, y = 1\n4o!", "line 2: a run"),
            ("x = 3, y = 1\no$o!", "beyond"),
            ("x = 3, y = 1\n99999999999999999999999o!", "beyond"),
            ("x = 3, y = 1\n99999999999999999999999$o!", "beyond"),
            ("x = 3, y = 1\n3o", "!"),
            ("x = 3, y = 1\n3z!", "'z'"),
            ("x = 3, y = 1\nX!", "states"),
        ] {
            let error = Bitmap::from_rle(text).unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }
}
