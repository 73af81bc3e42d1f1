//! Reference results for peers: a circuit as C, a grid, and the same grid after some steps of ours.
//!
//! `circuits.json` maps the name of a row to its case. `header` names the C header that `gatework export --to c` writes;
//! `start` and `after` name the words of a grid, little-endian, channel by channel and row by row.

use std::path::Path;

use anyhow::Context as _;
use gatework_logic::formats::{self, Format, Options};
use gatework_logic::simulate::Runner;
use gatework_logic::{Automaton, Boundary, Document, Grid};
use gatework_train::files;
use serde_json::{Map, Value, json};

use super::{Circuits, life, networks};
use gatework_bench::random::random_grid;

/// Steps between the two grids of a case.
const STEPS: usize = 11;

/// A row: its rule, the side of its grid and the number of steps in a timed run.
struct Case<'a> {
    name: &'a str,
    automaton: Automaton,
    side: usize,
    timed_steps: usize,
}

impl Circuits {
    /// Writes the cases of the selected rows.
    pub(super) fn write_cases(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut cases = Map::new();
        if self.wants("life") {
            let automaton = life::learned()?.automaton;
            let case = Case { name: "life", automaton, side: life::SIDE, timed_steps: life::STEPS };
            cases.insert(case.name.into(), case.write(folder)?);
        }
        if self.wants("checkerboard") {
            let (automaton, _) = networks::random_checkerboard()?;
            let (side, timed_steps) = (networks::LARGE_SIDE, networks::LARGE_STEPS);
            let case = Case { name: "checkerboard", automaton, side, timed_steps };
            cases.insert(case.name.into(), case.write(folder)?);
        }
        files::write_atomic(&folder.join("circuits.json"), Value::Object(cases).to_string().as_bytes())?;
        Ok(())
    }
}

impl Case<'_> {
    fn write(self, folder: &Path) -> anyhow::Result<Value> {
        let Case { name, automaton, side, timed_steps } = self;
        let (channels, torus) = (automaton.channels, automaton.boundary == Boundary::Torus);
        let start = random_grid(side, channels)?;
        let mut after = start.clone();
        Runner::new(&automaton, channels)?.run(&mut after, STEPS)?;
        let options = Options { name: Some(name.into()), ..Options::default() };
        let document = Document::Automaton { automaton, observed: None };
        let header = formats::write(&document, Format::named("c")?, &options)?;
        let files =
            [("header", "h", header), ("start", "start", words(&start)), ("after", "after", words(&after))];
        let mut case = json!({
            "side": side, "channels": channels, "torus": torus, "steps": STEPS, "timed_steps": timed_steps,
        });
        for (key, ending, content) in files {
            let file = format!("{name}.{ending}");
            files::write_atomic(&folder.join(&file), &content)?;
            case[key] = json!(file);
        }
        Ok(case)
    }
}

/// Returns the words of a grid with one sample, whose rows are whole words.
fn words(grid: &Grid) -> Vec<u8> {
    let planes = (0..grid.channels()).flat_map(|channel| grid.plane(channel));
    planes.flat_map(|word| word.to_le_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_logic::{naive_step, rules};

    #[test]
    fn the_grid_after_is_that_of_the_reference_steps() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let automaton = rules::life(Boundary::Torus);
        let case = Case { name: "life", automaton: automaton.clone(), side: 64, timed_steps: 1 };
        let case = case.write(folder.path())?;
        let mut grid = random_grid(64, 1)?;
        let read = |key: &str| std::fs::read(folder.path().join(case[key].as_str().unwrap_or_default()));
        assert_eq!(read("start")?, words(&grid));
        for _ in 0..STEPS {
            grid = naive_step(&automaton, &grid)?;
        }
        assert_eq!(read("after")?, words(&grid));
        assert!(String::from_utf8(read("header")?)?.contains("life_rule"));
        Ok(())
    }
}
