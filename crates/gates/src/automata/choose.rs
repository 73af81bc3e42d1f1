//! Experiments that are chosen for a target: a picture, a tile or a rule, and nothing else is known.
//!
//! Grid, channels, steps, layers and the lengths of descent and search follow from the size of the target, its colours and
//! its detail. There are always enough channels and steps for cells to count their coordinates, so that a search that does not
//! succeed can end with an automaton that is made from the target (`construct`).
//!
//! ```no_run
//! use gatework_gates::automata::choose;
//!
//! let chosen = choose::picture("heart.png".as_ref())?;
//! println!("{}", chosen.loaded.experiment.to_toml());
//! # Ok::<(), gatework_train::experiment::ExperimentError>(())
//! ```

use std::path::Path;

use gatework_logic::Boundary;
use gatework_train::experiment::{ExperimentError, Problem, check_name};
use gatework_train::files;

use super::construct::{Anchor, Axes};
use super::experiment::{
    AutomatonExperiment, AutomatonSettings, Experiment, Perceive, Protocol, Recipe, SearchSettings, TaskKind,
    Training, Update,
};
use super::model::FirstLayer;
use super::picture::{Bitmap, Colours};
use super::rule::CellRule;
use super::states::{Phase, Start, StateError, TargetSpec};
use super::success::Success;
use crate::soft::Wiring;

/// Maximum side of a picture.
pub const MAX_SIDE: usize = 64;

/// Side of a tile above which two periods have to do.
const LARGE_TILE: usize = 12;

/// Gate evaluations of gradient descent: some seconds of one core.
const DESCENT_GATES: f64 = 1.2e10;

/// Gate evaluations of the search, each for all candidates at a time: some seconds of each of two cores.
const SEARCH_GATES: f64 = 2e11;

/// An experiment that was chosen for a file.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The experiment.
    pub loaded: AutomatonExperiment,
    /// What became of the colours of the file.
    pub colours: Colours,
}

/// Returns whether a path is that of a picture, by its extension.
pub fn is_picture(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).map(str::to_ascii_lowercase);
    matches!(extension.as_deref(), Some("png" | "txt" | "rle"))
}

/// Returns the experiment for a name that is a picture file or a rule, or `None` if it is neither.
pub fn by_name(name: &str) -> Option<Result<AutomatonExperiment, ExperimentError>> {
    let path = Path::new(name);
    if is_picture(path) {
        return Some(picture(path).map(|chosen| chosen.loaded));
    }
    (CellRule::is_name(name) && !path.exists()).then(|| rule(name))
}

/// Chooses an experiment that grows a picture from one cell.
pub fn picture(path: &Path) -> Result<Chosen, ExperimentError> {
    let (bitmap, colours) = read(path, Bitmap::from_bytes)?;
    let [height, width] = bitmap.size();
    if height * width == 1 {
        return Err(invalid(path, "the picture is a single cell; there is nothing to grow"));
    }
    if bitmap.set_cells() == 0 {
        let message = "the picture is blank: all cells have the colour of the background";
        return Err(invalid(path, message));
    }
    let axes = Axes { anchor: Anchor::Seed([0, 0]), size: [height, width], repeats: false };
    let detail = detail(&bitmap);
    let wanted = if detail <= 150 {
        32
    } else if detail <= 600 {
        48
    } else {
        64
    };
    let channels = (bitmap.channels() + axes.channels()).max(wanted).next_multiple_of(8);
    let steps = height.max(width) / 2 + 2;
    let update = [5, 4, 4, 4, 2, 1].map(|factor| factor * channels).to_vec();
    let work = (height * width * steps * gates(channels, 4, &[9, 8, 4, 2, 1], &update)) as f64;
    let after = (DESCENT_GATES / (work / 2.0)).clamp(40.0, 400.0) as u64;
    let moves = (SEARCH_GATES / work).clamp(200.0, 5000.0) as u64;
    let file = file_name(path);
    let experiment = Experiment {
        about: format!("{} grows from one cell.", sentence(&plain_name(path))),
        automaton: AutomatonSettings {
            channels,
            boundary: Boundary::Torus,
            grid: [height, width],
            steps,
            fire_rate: None,
        },
        perceive: Perceive { kernels: 4, layers: vec![9, 8, 4, 2, 1], first: FirstLayer::Moore },
        update: Update { layers: update, wiring: Wiring::default() },
        start: Start::Seed,
        training: training(after, 1, 0.06, 2),
        search: Some(SearchSettings { runs: 1, ..search(after, moves, [0.2, 0.1]) }),
        protocols: vec![protocol("growth", [height, width], steps)],
        ..empty(&plain_name(path), TargetSpec::Picture { file })
    };
    Ok(Chosen { loaded: load(experiment, path)?, colours })
}

/// Chooses an experiment that learns a tile that repeats over the plane: from noise, or from one cell.
pub fn pattern(path: &Path, from_seed: bool, phase: Phase) -> Result<Chosen, ExperimentError> {
    let (bitmap, colours) = read(path, Bitmap::tile_from_bytes)?;
    if bitmap.set_cells() == 0 {
        return Err(invalid(path, "the tile is blank: all cells have the colour of the background"));
    }
    let target = TargetSpec::Pattern { tile: None, file: Some(file_name(path)), phase };
    let experiment = pattern_experiment(&plain_name(path), &bitmap, target, from_seed);
    Ok(Chosen { loaded: load(experiment, path)?, colours })
}

/// The experiment of a tile.
fn pattern_experiment(name: &str, tile: &Bitmap, target: TargetSpec, from_seed: bool) -> Experiment {
    let size = tile.size();
    let axes = Axes { anchor: Anchor::Edge, size, repeats: true };
    let channels = (tile.channels() + axes.channels()).max(8);
    // Whole periods, as a torus needs them: three at least, or two of a large tile.
    let sides = |least: usize, periods: usize| size.map(|side| side * least.div_ceil(side).max(periods));
    let periods = if size[0].max(size[1]) > LARGE_TILE { 2 } else { 3 };
    let (grid, large) = (sides(16, periods), sides(48, 3));
    let longest = |grid: [usize; 2]| grid[0].max(grid[1]);
    let (start, boundary, about) = if from_seed {
        (Start::Seed, Boundary::Torus, "grows over the plane from one cell")
    } else {
        (Start::Random, Boundary::Zeros, "grows out of noise")
    };
    let steps = |grid: [usize; 2]| if from_seed { longest(grid) / 2 + 2 } else { longest(grid) + 4 };
    let inputs = 33 * channels;
    let hidden = 256.max((inputs / 2).next_power_of_two());
    let mut update = vec![inputs];
    update.extend([hidden; 8]);
    let mut size = hidden / 2;
    while size > channels {
        update.push(size);
        size /= 2;
    }
    update.push(channels);
    let cells = (grid[0] * grid[1] * steps(grid) * gates(channels, 16, &[9, 8, 4, 2], &update)) as f64;
    // Six runs have the length of eight. The search hardly learns a large tile, so it does not last longer than for a small one.
    let moves = (SEARCH_GATES / cells).clamp(8.0, 4000.0);
    let runs = if moves < 800.0 { 1 } else { 6 };
    let moves = if runs == 1 { moves.min(100.0) } else { (moves / 8.0).min(500.0) } as u64;
    let after = (DESCENT_GATES / cells).clamp(1.0, 10.0) as u64;
    // A seed is in the middle, so the phase of a larger grid differs.
    let protocols = if from_seed { Vec::new() } else { vec![protocol("a larger grid", large, steps(large))] };
    Experiment {
        about: format!("{} {about}.", sentence(name)),
        automaton: AutomatonSettings { channels, boundary, grid, steps: steps(grid), fire_rate: None },
        perceive: Perceive { kernels: 16, layers: vec![9, 8, 4, 2], first: FirstLayer::Moore },
        update: Update { layers: update, wiring: Wiring::default() },
        start,
        training: training(after, 2, 0.05, 2),
        search: Some(SearchSettings {
            samples: 4,
            runs,
            redraw: true,
            shrink: if runs == 1 { 0 } else { 2000 },
            ..search(after, moves, [3.0, 1.0])
        }),
        protocols,
        ..empty(name, target)
    }
}

/// Chooses an experiment that learns a rule by its name, for example `B36/S23`.
pub fn rule(name: &str) -> Result<AutomatonExperiment, ExperimentError> {
    let origin = Path::new(name);
    let rule = CellRule::parse(name).map_err(|error| invalid(origin, error.to_string()))?;
    let target = TargetSpec::Rule { rule: Some(name.to_string()), table: None, circuit: None };
    // The name is that of a folder, too.
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    load(rule_experiment(&plain, &rule, target), Path::new(""))
}

/// The experiment of a rule.
fn rule_experiment(name: &str, rule: &CellRule, target: TargetSpec) -> Experiment {
    let channels = rule.channels();
    let inputs = 17 * channels;
    let hidden = 128.max((inputs / 2).next_power_of_two());
    let mut update = vec![inputs];
    update.extend([hidden; 17]);
    let mut size = hidden / 2;
    while size > channels {
        update.push(size);
        size /= 2;
    }
    update.push(channels);
    // All 512 start states of one channel fit 3x3 cells.
    let (grid, batch) = if channels == 1 { ([3, 3], 20) } else { ([8, 8], 8) };
    let after = 1500;
    Experiment {
        about: format!("The rule {}, learned from single steps.", rule.name()),
        automaton: AutomatonSettings { channels, boundary: Boundary::Torus, grid, steps: 1, fire_rate: None },
        perceive: Perceive { kernels: 16, layers: vec![9, 8, 4, 2, 1], first: FirstLayer::Moore },
        update: Update { layers: update, wiring: Wiring::default() },
        start: Start::Random,
        training: training(after, batch, 0.05, 2),
        search: Some(SearchSettings {
            grids: vec![[32, 32]],
            // Each smaller circuit is checked in all neighbourhoods.
            shrink: if channels == 1 { 500 } else { 0 },
            ..search(after, 4000, [1.0, 0.5])
        }),
        protocols: vec![protocol("a large torus", [64, 64], 100)],
        ..empty(name, target)
    }
}

/// An experiment of which only the target is known.
fn empty(name: &str, target: TargetSpec) -> Experiment {
    Experiment {
        name: name.to_string(),
        task: TaskKind::Automaton,
        about: String::new(),
        expected: String::new(),
        seed: None,
        seeds: None,
        automaton: AutomatonSettings {
            channels: 1,
            boundary: Boundary::Torus,
            grid: [1, 1],
            steps: 1,
            fire_rate: None,
        },
        perceive: Perceive { kernels: 1, layers: Vec::new(), first: FirstLayer::Moore },
        update: Update { layers: Vec::new(), wiring: Wiring::default() },
        start: Start::Random,
        target,
        training: training(1, 1, 0.05, 0),
        gates: crate::soft::GateSettings::default(),
        state: super::rollout::StateSettings::default(),
        search: None,
        success: Success::default(),
        protocols: Vec::new(),
    }
}

fn training(updates: u64, batch: usize, learning_rate: f64, restarts: u64) -> Training {
    Training { updates, batch, learning_rate, restarts, ..Training::of_recipe(Recipe::Search) }
}

fn search(after: u64, moves: u64, temperature: [f64; 2]) -> SearchSettings {
    SearchSettings::new(after, moves, temperature)
}

fn protocol(name: &str, grid: [usize; 2], steps: usize) -> Protocol {
    Protocol::new(name, grid, steps)
}

/// Gates that one cell evaluates in a step.
fn gates(channels: usize, kernels: usize, perceive: &[usize], update: &[usize]) -> usize {
    let count = |layers: &[usize]| layers[1..].iter().sum::<usize>();
    channels * kernels * count(perceive) + count(update)
}

/// Number of neighbouring cells that differ.
fn detail(bitmap: &Bitmap) -> usize {
    let [height, width] = bitmap.size();
    let code = |y: usize, x: usize| bitmap.codes[y * width + x];
    let cells = (0..height).flat_map(|y| (0..width).map(move |x| (y, x)));
    let differ = |(y, x): (usize, usize)| {
        let right = x + 1 < width && code(y, x) != code(y, x + 1);
        let below = y + 1 < height && code(y, x) != code(y + 1, x);
        usize::from(right) + usize::from(below)
    };
    cells.map(differ).sum()
}

/// A reader of pictures.
type FromBytes = fn(&[u8]) -> Result<(Bitmap, Colours), StateError>;

/// Reads a picture of at most [`MAX_SIDE`] rows and columns.
fn read(path: &Path, from_bytes: FromBytes) -> Result<(Bitmap, Colours), ExperimentError> {
    let bytes = files::read(path)?;
    let (bitmap, colours) = from_bytes(&bytes).map_err(|error| invalid(path, error.to_string()))?;
    let [height, width] = bitmap.size();
    if height.max(width) > MAX_SIDE {
        let message = format!(
            "the picture is {height}x{width} (height x width), but at most {MAX_SIDE}x{MAX_SIDE} cells can be grown; scale it \
             down so that a pixel is a cell"
        );
        return Err(invalid(path, message));
    }
    Ok((bitmap, colours))
}

fn load(experiment: Experiment, path: &Path) -> Result<AutomatonExperiment, ExperimentError> {
    let folder = path.parent().unwrap_or(Path::new(""));
    AutomatonExperiment::load(experiment, folder).map_err(|Problem { message, .. }| invalid(path, message))
}

fn invalid(path: &Path, message: impl Into<String>) -> ExperimentError {
    let origin = path.display().to_string();
    ExperimentError::Invalid { origin, line: None, message: message.into() }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// A name with a capital letter.
fn sentence(name: &str) -> String {
    let mut letters = name.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// The stem of a file, if it can be the name of an experiment.
fn plain_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    if check_name(&stem).is_ok() { stem } else { "picture".into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gatework_train::experiment::Source;

    fn file(folder: &tempfile::TempDir, name: &str, text: &str) -> std::path::PathBuf {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn pictures_of_any_size_have_valid_settings_that_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        for (height, width) in [(1, 2), (3, 1), (5, 9), (16, 16), (31, 64), (64, 64)] {
            let cell = |y: usize, x: usize| "#.RG.BY"[(y * 3 + x * x) % 7..].chars().next().unwrap();
            let row = |y: usize| (0..width).map(|x| cell(y, x)).collect::<String>();
            let text: Vec<String> = (0..height).map(row).collect();
            let path = file(&folder, "x.txt", &text.join("\n"));
            let chosen = picture(&path).unwrap().loaded;
            let text = chosen.experiment.to_toml();
            let again =
                AutomatonExperiment::from_source(&Source::new(text, "x.toml", folder.path())).unwrap();
            assert_eq!(again.experiment, chosen.experiment, "{height}x{width}");
            for from_seed in [false, true] {
                let chosen = pattern(&path, from_seed, Phase::Any).unwrap().loaded;
                let text = chosen.experiment.to_toml();
                let again = AutomatonExperiment::from_source(&Source::new(text, "x.toml", folder.path()));
                assert_eq!(again.unwrap().experiment, chosen.experiment, "{height}x{width} {from_seed}");
            }
        }
    }

    #[test]
    fn large_tiles_do_not_need_more_work_than_small_ones() {
        let folder = tempfile::tempdir().unwrap();
        for side in [2, 5, 12, 13, 40, 64] {
            let row =
                |y: usize| (0..side).map(|x| if x * y % 5 == 1 { '#' } else { '.' }).collect::<String>();
            let path = file(&folder, "x.txt", &(0..side).map(row).collect::<Vec<_>>().join("\n"));
            let experiment = pattern(&path, false, Phase::Anchored).unwrap().loaded.experiment;
            let AutomatonSettings { channels, grid, steps, .. } = experiment.automaton;
            let gates = gates(channels, 16, &[9, 8, 4, 2], &experiment.update.layers);
            let work = (grid[0] * grid[1] * steps * gates) as f64;
            let search = experiment.search.unwrap();
            let moves = search.moves * if search.runs == 1 { 1 } else { 8 };
            assert!(work * moves as f64 <= SEARCH_GATES.max(8.0 * work), "{side}: {moves} moves");
            assert!(grid[0] >= 16 && grid[0] >= 2 * side && steps > grid[0], "{side}: {grid:?}");
        }
    }

    #[test]
    fn pictures_that_cannot_be_grown_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let row = "#".repeat(65);
        for (text, part) in [
            ("#", "single cell"),
            ("...\n...", "blank"),
            ("##\n##", "blank"),
            (&row, "64x64"),
            ("", "no cells"),
        ] {
            let error = picture(&file(&folder, "x.txt", text)).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("x.txt"), "{text:?}: {error}");
        }
    }

    #[test]
    fn names_of_rules_and_pictures_are_recognised() {
        for name in ["B36/S23", "b2/s/c3", "rule:110", "B/S"] {
            let loaded = by_name(name).unwrap().unwrap();
            assert!(check_name(&loaded.experiment.name).is_ok());
        }
        for name in ["B9/S", "B3S23", "rule:256", "missing.png"] {
            assert!(by_name(name).unwrap().is_err(), "{name}");
        }
        for name in ["checkerboard", "my.toml", "bricks", "runs/x"] {
            assert!(by_name(name).is_none(), "{name}");
        }
    }
}
