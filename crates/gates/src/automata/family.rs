//! Families of patterns, given by the 3x3 neighbourhoods that may occur: a member of the family as a tile, and the cells of a
//! grid whose neighbourhood is allowed.

use rustc_hash::FxHashSet;

use gatework_logic::{Boundary, Grid};

use super::picture::Bitmap;
use super::states::StateError;

/// Maximum side of a tile that is looked for.
const MAX_SIDE: usize = 8;

/// Maximum number of cells that are tried for a size of the tile.
const MAX_TRIALS: usize = 1 << 18;

/// The neighbourhoods that may occur: bit `i` is neighbour `i`, row by row from the top left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Family {
    allowed: FxHashSet<u16>,
}

impl Family {
    /// Reads neighbourhoods as text of three rows each.
    pub fn new(texts: &[String]) -> Result<Family, StateError> {
        let read = |(i, text): (usize, &String)| {
            let bitmap = Bitmap::from_text(text)?;
            if bitmap.size() != [3, 3] || bitmap.channels() != 1 {
                return Err(StateError::Keys(format!("allowed[{i}] is not 3x3 cells of # and .")));
            }
            Ok(bitmap.codes.iter().enumerate().fold(0, |bits, (i, &code)| bits | u16::from(code) << i))
        };
        Ok(Family { allowed: texts.iter().enumerate().map(read).collect::<Result<_, _>>()? })
    }

    /// Returns the smallest tile that repeats over the plane with allowed neighbourhoods only.
    pub fn tile(&self) -> Result<Bitmap, StateError> {
        let mut sizes: Vec<[usize; 2]> =
            (1..=MAX_SIDE).flat_map(|height| (1..=MAX_SIDE).map(move |width| [height, width])).collect();
        sizes.sort_by_key(|[height, width]| (height * width, *height));
        let found = sizes.into_iter().find_map(|size| Tiling::new(self, size).solve());
        found.ok_or_else(|| {
            StateError::Keys(format!(
                "no tile of up to {MAX_SIDE}x{MAX_SIDE} cells repeats with the allowed neighbourhoods only"
            ))
        })
    }

    /// Returns whether the neighbourhood of a cell is allowed. Neighbourhoods that reach beyond the edge are.
    pub fn allows(&self, grid: &Grid, sample: usize, boundary: Boundary, y: usize, x: usize) -> bool {
        let mut bits = 0;
        for neighbour in 0..9 {
            let row = boundary.neighbour(y, neighbour / 3, grid.height());
            let column = boundary.neighbour(x, neighbour % 3, grid.width());
            let Some((row, column)) = row.zip(column) else { return true };
            bits |= u16::from(grid.get(sample, 0, row, column)) << neighbour;
        }
        self.allowed.contains(&bits)
    }
}

/// A tile that is filled cell by cell, with backtracking.
struct Tiling<'a> {
    family: &'a Family,
    height: usize,
    width: usize,
    codes: Vec<u8>,
    trials: usize,
}

impl<'a> Tiling<'a> {
    fn new(family: &'a Family, [height, width]: [usize; 2]) -> Tiling<'a> {
        Tiling { family, height, width, codes: vec![0; height * width], trials: 0 }
    }

    fn solve(mut self) -> Option<Bitmap> {
        let (height, width) = (self.height, self.width);
        self.fill(0).then(|| Bitmap { height, width, channels: 1, codes: self.codes, palette: Vec::new() })
    }

    /// Fills the cells from `next` on.
    fn fill(&mut self, next: usize) -> bool {
        if next == self.codes.len() {
            return (0..next).all(|cell| self.is_allowed(cell, next));
        }
        for code in [1, 0] {
            self.trials += 1;
            if self.trials > MAX_TRIALS {
                return false;
            }
            self.codes[next] = code;
            // Neighbourhoods that this cell completes.
            if (0..=next).all(|cell| self.is_allowed(cell, next + 1)) && self.fill(next + 1) {
                return true;
            }
        }
        false
    }

    /// Whether the neighbourhood of a cell is allowed, or not yet complete: the first `filled` cells are known.
    fn is_allowed(&self, cell: usize, filled: usize) -> bool {
        let (y, x) = (cell / self.width, cell % self.width);
        let mut bits = 0;
        for neighbour in 0..9 {
            let row = (y + neighbour / 3 + self.height - 1) % self.height;
            let column = (x + neighbour % 3 + self.width - 1) % self.width;
            let at = row * self.width + column;
            if at >= filled {
                return true;
            }
            bits |= u16::from(self.codes[at]) << neighbour;
        }
        self.family.allowed.contains(&bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn family(texts: &[&str]) -> Family {
        Family::new(&texts.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_tile_has_allowed_neighbourhoods_only() {
        let stripes = ["###\n...\n###", "...\n###\n...", "#.#\n#.#\n#.#", ".#.\n.#.\n.#."];
        let tile = family(&stripes).tile().unwrap();
        assert_eq!(tile.size(), [1, 2]);
        let checkerboard = family(&["#.#\n.#.\n#.#", ".#.\n#.#\n.#."]).tile().unwrap();
        assert_eq!((checkerboard.size(), &checkerboard.codes[..]), ([2, 2], &[1, 0, 0, 1][..]));
        let impossible = family(&["###\n#.#\n###"]).tile().unwrap_err().to_string();
        assert!(impossible.starts_with("no tile"), "{impossible}");
    }

    #[test]
    fn neighbourhoods_are_three_by_three() {
        for text in ["##\n##", "RGB\nRGB\nRGB", "###\n###"] {
            assert!(Family::new(&[text.to_string()]).is_err(), "{text}");
        }
    }
}
