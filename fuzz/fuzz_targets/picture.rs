//! Parses arbitrary bytes as a PNG picture, and arbitrary text as grids, a coloured picture, an RLE pattern, a rule and its table.
#![no_main]

use gatework_gates::automata::rule::CellRule;
use gatework_gates::automata::states::Bitmap;
use gatework_logic::Grid;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = Bitmap::from_png(bytes);
    let _ = Bitmap::from_bytes(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = Bitmap::from_text(text);
        if let Ok(grid) = Grid::from_text(text) {
            assert_eq!(Grid::from_text(&grid.to_text(0)), Ok(grid));
        }
        let _ = Bitmap::from_rle(text);
        let _ = CellRule::parse(text);
        let _ = CellRule::from_table(text);
    }
});
