//! Studies: success rates and times of settings of an experiment over many seeds.
//!
//! A study names an experiment, settings that change it, and a number of seeds:
//!
//! ```toml
//! experiment = "checkerboard"       # built-in, or a file in the folder of the study
//! seeds = 20
//!
//! [settings.paper.training]         # a setting overrides keys of the experiment
//! recipe = "paper"
//!
//! [settings.search]                 # or none
//!
//! [grid]                            # every setting runs with all combinations of these values
//! "search.after" = [50, 150]
//! ```
//!
//! Every setting runs with every seed. The result of a run is a [`Row`]. Known rows with the same settings are not run
//! again, so a study that was stopped can be resumed.

use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::experiment::{AutomatonExperiment, BUILT_IN, Experiment, FORMER_KEYS};
use super::model::Model;
use super::run::in_memory;
use super::task::AutomatonTask;
use gatework_train::experiment::{ExperimentError, Source};
use gatework_train::trainer::{self, Options, Outcome, Quiet, TrainError};

/// Maximum number of seeds.
const MAX_SEEDS: u64 = 100_000;

/// Maximum number of settings.
const MAX_SETTINGS: usize = 1000;

/// Maximum number of names in a key of the grid. Tables are merged recursively.
const MAX_DEPTH: usize = 16;

/// The TOML file of a study.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    experiment: String,
    seeds: u64,
    #[serde(default)]
    settings: Table,
    #[serde(default)]
    grid: Table,
}

/// An experiment with some of its settings changed.
#[derive(Clone, Debug)]
pub struct Setting {
    /// The name.
    pub name: String,
    /// The experiment with the changes of this setting.
    pub loaded: AutomatonExperiment,
    /// A fingerprint of the experiment; rows with another one belong to other settings.
    pub fingerprint: String,
}

/// A study: settings that run with the seeds 1, 2, ...
#[derive(Clone, Debug)]
pub struct Study {
    /// The name of the experiment.
    pub experiment: String,
    /// Number of seeds.
    pub seeds: u64,
    /// The settings, in the order of their names.
    pub settings: Vec<Setting>,
}

/// The result of one seed of one setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The setting.
    pub setting: String,
    /// The seed.
    pub seed: u64,
    /// Whether training succeeded.
    pub success: bool,
    /// Updates of gradient descent.
    pub updates: u64,
    /// Moves of the search.
    pub moves: u64,
    /// Seconds on one thread.
    pub seconds: f64,
    /// The lowest hard loss.
    pub hard_loss: f64,
    /// Learned gates, without wires, in the fan-in cone of the observed channels. A kernel's gate counts once.
    pub gates: usize,
    /// Fingerprint of the experiment.
    pub fingerprint: String,
}

impl Study {
    /// Reads a study from a file.
    pub fn read(path: &Path) -> Result<Study, ExperimentError> {
        Study::from_source(&Source::read(path)?)
    }

    /// Reads a study and its experiment.
    pub fn from_source(source: &Source) -> Result<Study, ExperimentError> {
        let invalid = |message: String| source.invalid(None, message);
        let file: File = source.parse()?;
        if !(1..=MAX_SEEDS).contains(&file.seeds) {
            return Err(invalid(format!("seeds is {}, not 1 to {MAX_SEEDS}", file.seeds)));
        }
        let changes = changes(&file).map_err(invalid)?;
        let is_path = file.experiment.contains(['.', '/', '\\']);
        let base = if is_path {
            Source::read(&source.folder().join(&file.experiment))?
        } else {
            built_in(&file.experiment)?
        };
        let experiment = AutomatonExperiment::from_source(&base)?.experiment.name;
        let folder = base.folder();
        let mut base: Table = base.parse()?;
        use_current_names(&mut base);
        let setting = |(name, change): (String, Table)| {
            let mut table = base.clone();
            merge(&mut table, change);
            let loaded =
                load(table, folder).map_err(|message| invalid(format!("setting {name}: {message}")))?;
            let fingerprint = fingerprint(&loaded.experiment.to_toml());
            Ok(Setting { name, loaded, fingerprint })
        };
        let settings = changes.into_iter().map(setting).collect::<Result<_, ExperimentError>>()?;
        Ok(Study { experiment, seeds: file.seeds, settings })
    }

    /// Returns true if a row belongs to this study with its current settings.
    pub fn has(&self, row: &Row) -> bool {
        let same = |setting: &Setting| setting.name == row.setting && setting.fingerprint == row.fingerprint;
        (1..=self.seeds).contains(&row.seed) && self.settings.iter().any(same)
    }

    /// Runs all seeds and settings that are not in `known`, `threads` runs at a time with one thread each. Calls the
    /// observer with all rows of the study after each run, and returns them in the order of settings and seeds.
    pub fn run(
        &self,
        known: &[Row],
        threads: usize,
        observer: &impl StudyObserver,
        stop: &AtomicBool,
    ) -> Result<Vec<Row>, TrainError> {
        let mut rows: Vec<Row> = known.iter().filter(|row| self.has(row)).cloned().collect();
        self.sort(&mut rows);
        rows.dedup_by(|a, b| (&a.setting, a.seed) == (&b.setting, b.seed));
        let rows = Mutex::new(rows);
        let is_known = |setting: &Setting, seed| {
            let rows = rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            rows.iter().any(|row| row.setting == setting.name && row.seed == seed)
        };
        let all = (1..=self.seeds).flat_map(|seed| self.settings.iter().map(move |setting| (setting, seed)));
        let jobs: Vec<(&Setting, u64)> = all.filter(|&(setting, seed)| !is_known(setting, seed)).collect();
        let runs = self.settings.len() * self.seeds as usize;
        observer.started(runs - jobs.len(), jobs.len());
        let next = AtomicUsize::new(0);
        let failed = AtomicBool::new(false);
        let work = || -> Result<(), TrainError> {
            while let Some(&(setting, seed)) = jobs.get(next.fetch_add(1, Ordering::SeqCst)) {
                if stop.load(Ordering::SeqCst) || failed.load(Ordering::SeqCst) {
                    break;
                }
                let row = setting.run(seed, stop).inspect_err(|_| failed.store(true, Ordering::SeqCst))?;
                let Some(row) = row else { break };
                let mut rows = rows.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                rows.push(row.clone());
                self.sort(&mut rows);
                observer.finished(&row, &rows, runs - rows.len());
            }
            Ok(())
        };
        let memory =
            self.settings.iter().map(|setting| setting.loaded.experiment.memory()).fold(1.0, f64::max);
        let threads = in_memory(threads.min(jobs.len()), memory);
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .try_for_each(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        let mut rows = rows.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        self.sort(&mut rows);
        Ok(rows)
    }

    fn sort(&self, rows: &mut [Row]) {
        let place = |row: &Row| self.settings.iter().position(|setting| setting.name == row.setting);
        rows.sort_by_key(|row| (place(row), row.seed));
    }
}

/// Receives the progress of a study. Calls come from several threads, but never at the same time.
pub trait StudyObserver: Sync {
    /// Called at the start with the number of known rows and of runs to be made.
    fn started(&self, _known: usize, _runs: usize) {}

    /// Called after every run with all rows so far and the number of unfinished runs.
    fn finished(&self, row: &Row, rows: &[Row], left: usize);
}

impl Setting {
    /// Runs one seed to its end or to success. Returns `None` if it was stopped.
    fn run(&self, seed: u64, stop: &AtomicBool) -> Result<Option<Row>, TrainError> {
        let experiment = &self.loaded.experiment;
        let options = Options {
            settings: experiment.trainer_settings(),
            seeds: vec![seed],
            until_success: false,
            concurrent_attempts: 1,
            threads_per_attempt: 1,
            checkpoints: None,
            interval: Duration::MAX,
        };
        let make = |seed| AutomatonTask::new(&self.loaded, seed);
        let mut row = Row {
            setting: self.name.clone(),
            seed,
            success: false,
            updates: 0,
            moves: 0,
            seconds: 0.0,
            hard_loss: f64::INFINITY,
            gates: 0,
            fingerprint: self.fingerprint.clone(),
        };
        let begin = Instant::now();
        let attempts = match trainer::run(&options, make, &Quiet, stop) {
            // Training that diverges is a result as well.
            Err(TrainError::NotFinite { update, .. }) => {
                return Ok(Some(Row { updates: update, seconds: begin.elapsed().as_secs_f64(), ..row }));
            }
            attempts => attempts?,
        };
        let Some(attempt) = attempts.into_iter().find(|attempt| attempt.outcome != Outcome::Running) else {
            return Ok(None);
        };
        if let Some(best) = &attempt.best {
            let model = Model::of_best(&experiment.model_shape(), seed, best)
                .map_err(|source| TrainError::Task { seed, source })?;
            row.gates = model.gate_counts(self.loaded.target.channels()).reachable;
            row.hard_loss = best.hard;
        }
        row.success = attempt.outcome == Outcome::Succeeded;
        (row.updates, row.moves, row.seconds) = (attempt.update, attempt.moves, attempt.seconds);
        Ok(Some(row))
    }
}

/// Reads rows from CSV. The error is a message.
pub fn rows_from_csv(text: &str) -> Result<Vec<Row>, String> {
    csv::Reader::from_reader(text.as_bytes())
        .deserialize()
        .collect::<Result<_, _>>()
        .map_err(|e| e.to_string())
}

/// Returns rows as CSV.
pub fn rows_to_csv(rows: &[Row]) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for row in rows {
        writer.serialize(row).expect("memory takes every row");
    }
    String::from_utf8(writer.into_inner().unwrap_or_default()).unwrap_or_default()
}

/// Finds a built-in experiment. A file of this name in the current folder is not used.
fn built_in(name: &str) -> Result<Source, ExperimentError> {
    let is_known = BUILT_IN.iter().any(|(known, _)| *known == name);
    match Source::find(name, &BUILT_IN) {
        Err(error @ ExperimentError::Unknown { .. }) => Err(error),
        found if is_known => found,
        _ => {
            let known = BUILT_IN.map(|(known, _)| known).join(", ");
            Err(ExperimentError::Unknown { name: name.to_string(), hint: None, known })
        }
    }
}

/// Returns the settings of a file: names and changes, with the current names of keys. Without any, there is one without
/// changes.
fn changes(file: &File) -> Result<Vec<(String, Table)>, String> {
    let mut all = Vec::new();
    for (name, change) in &file.settings {
        let Value::Table(change) = change else { return Err(format!("settings.{name} is not a table")) };
        let mut change = change.clone();
        use_current_names(&mut change);
        all.push((name.clone(), change));
    }
    if all.is_empty() {
        all.push((String::new(), Table::new()));
    }
    for (key, values) in &file.grid {
        let Value::Array(values) = values else { return Err(format!("grid: {key} is not a list")) };
        if key.split('.').count() > MAX_DEPTH {
            return Err(format!("grid: a key has more than {MAX_DEPTH} names"));
        }
        let with = |(name, change): &(String, Table)| {
            let with_value = |value: &Value| {
                let mut change = change.clone();
                let mut value_change = nested(key, value);
                use_current_names(&mut value_change);
                merge(&mut change, value_change);
                let last = key.rsplit('.').next().unwrap_or(key);
                let name = [name.as_str(), &format!("{last} {value}")].join(" ").trim().to_string();
                (name, change)
            };
            values.iter().map(with_value).collect::<Vec<_>>()
        };
        let count = all.len().saturating_mul(values.len());
        if !(1..=MAX_SETTINGS).contains(&count) {
            return Err(format!("{count} settings, not 1 to {MAX_SETTINGS}"));
        }
        all = all.iter().flat_map(with).collect();
    }
    if let Some((name, _)) = all.iter().enumerate().find_map(|(i, a)| all[..i].iter().find(|b| a.0 == b.0)) {
        return Err(format!("two settings are called {name}"));
    }
    if let [(name, _)] = &mut all[..]
        && name.is_empty()
    {
        *name = "unchanged".into();
    }
    Ok(all)
}

/// Returns nested tables for a key like `a.b.c` and a value.
fn nested(key: &str, value: &Value) -> Table {
    let mut value = value.clone();
    let mut names = key.rsplit('.');
    let last = names.next().unwrap_or(key);
    let mut table = Table::from_iter([(last.to_string(), value)]);
    for name in names {
        value = Value::Table(table);
        table = Table::from_iter([(name.to_string(), value)]);
    }
    table
}

/// Replaces former names of keys, so that a change overrides a key by either name.
fn use_current_names(table: &mut Table) {
    for (former, current) in FORMER_KEYS {
        let (Some((name, former)), Some((_, current))) = (former.split_once('.'), current.split_once('.'))
        else {
            continue;
        };
        if let Some(Value::Table(inner)) = table.get_mut(name)
            && let Some(value) = inner.remove(former)
        {
            inner.insert(current.into(), value);
        }
    }
}

/// Loads the experiment in a table. Its target is relative to the folder.
fn load(table: Table, folder: &Path) -> Result<AutomatonExperiment, String> {
    let experiment: Experiment =
        table.try_into().map_err(|error: toml::de::Error| error.message().to_string())?;
    let loaded = AutomatonExperiment::load(experiment, folder).map_err(|problem| problem.message)?;
    loaded.experiment.check_memory().map_err(|problem| problem.message)?;
    Ok(loaded)
}

/// Merges a change into a table: tables are merged recursively, other values are replaced.
fn merge(table: &mut Table, change: Table) {
    for (key, value) in change {
        match (table.get_mut(&key), value) {
            (Some(Value::Table(inner)), Value::Table(change)) => merge(inner, change),
            (_, value) => {
                table.insert(key, value);
            }
        }
    }
}

/// Returns 16 hexadecimal digits: a hash of a text and the version of the program.
fn fingerprint(text: &str) -> String {
    use std::hash::Hasher as _;
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(env!("CARGO_PKG_VERSION").as_bytes());
    hasher.write(text.as_bytes());
    format!("{:016x}", hasher.finish())
}

/// Returns the success rate and its 95 % interval (Wilson score), each from 0 to 1.
pub fn success_rate(successes: usize, runs: usize) -> [f64; 3] {
    if runs == 0 {
        return [0.0, 0.0, 1.0];
    }
    let (n, share, z) = (runs as f64, successes as f64 / runs as f64, 1.959_964);
    let middle = share + z * z / (2.0 * n);
    let width = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + z * z / n;
    [share, ((middle - width) / scale).max(0.0), ((middle + width) / scale).min(1.0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two settings of a small Game of Life, and a grid of two values.
    const STUDY: &str = "
        experiment = \"game-of-life\"
        seeds = 2
        [settings.paper.training]
        recipe = \"paper\"
        updates = 3
        [settings.paper.update]
        layers = [17, 16, 8, 4, 2, 1]
        [settings.search.search]
        after = 2
        moves = 2
        runs = 1
        [settings.search.update]
        layers = [17, 16, 8, 4, 2, 1]
        [grid]
        \"training.learning_rate\" = [0.05, 0.1]
    ";

    fn study() -> Study {
        Study::from_source(&Source::new(STUDY, "x.toml", "")).unwrap()
    }

    struct Count(AtomicUsize);

    impl StudyObserver for Count {
        fn finished(&self, _: &Row, _: &[Row], _: usize) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_run_that_diverges_is_a_row_of_its_own() {
        let text = STUDY.replace("[0.05, 0.1]", "[1e38]");
        let study = Study::from_source(&Source::new(&text, "x.toml", "")).unwrap();
        let count = Count(AtomicUsize::new(0));
        let rows = study.run(&[], 1, &count, &AtomicBool::new(false)).unwrap();
        assert_eq!((rows.len(), count.0.into_inner()), (4, 4));
        let diverged =
            rows.iter().filter(|row| row.hard_loss.is_infinite() && !row.success && row.updates > 0);
        assert!(diverged.count() > 0, "{rows:?}");
        assert_eq!(rows_from_csv(&rows_to_csv(&rows)).unwrap(), rows);
    }

    fn run(known: &[Row], threads: usize) -> (Vec<Row>, usize) {
        let count = Count(AtomicUsize::new(0));
        let rows = study().run(known, threads, &count, &AtomicBool::new(false)).unwrap();
        let timeless = rows.into_iter().map(|row| Row { seconds: 0.0, ..row }).collect();
        (timeless, count.0.into_inner())
    }

    #[test]
    fn every_setting_runs_with_every_seed_and_known_rows_are_reused() {
        let names: Vec<String> = study().settings.into_iter().map(|setting| setting.name).collect();
        let expected = [
            "paper learning_rate 0.05",
            "paper learning_rate 0.1",
            "search learning_rate 0.05",
            "search learning_rate 0.1",
        ];
        assert_eq!(names, expected);
        let (rows, runs) = run(&[], 1);
        assert_eq!((rows.len(), runs), (8, 8));
        assert!(rows.iter().all(|row| row.setting.starts_with("paper") == (row.moves == 0)));
        let read = rows_from_csv(&rows_to_csv(&rows)).unwrap();
        assert_eq!(read, rows);
        // One row is missing, another one is of other settings.
        let mut known = read[1..].to_vec();
        known[3].fingerprint = "other".into();
        assert_eq!(run(&known, 2), (rows, 2));
    }

    #[test]
    fn the_studies_of_this_crate_are_valid() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("studies");
        let files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(files.len() >= 5);
        for file in files {
            assert!(!Study::read(&file).unwrap().settings.is_empty());
        }
    }

    #[test]
    fn earlier_names_of_search_keys_override_the_current_ones() {
        let text = STUDY.replacen("runs = 1", "tries = 7\nbaths = 3\nboards = 5", 1);
        let study = Study::from_source(&Source::new(&text, "x.toml", "")).unwrap();
        let search = study.settings[2].loaded.experiment.search().unwrap();
        assert_eq!((search.runs, search.chains, search.samples), (7, 3, 5));
    }

    #[test]
    fn a_grid_overrides_a_setting_by_either_name() {
        let runs = |setting: &str, grid: &str| {
            let text = STUDY.replacen("runs = 1", &format!("{setting} = 7"), 1).replacen(
                "\"training.learning_rate\" = [0.05, 0.1]",
                &format!("\"search.{grid}\" = [3]"),
                1,
            );
            let study = Study::from_source(&Source::new(&text, "x.toml", "")).unwrap();
            study.settings[1].loaded.experiment.search().unwrap().runs
        };
        for (setting, grid) in
            [("tries", "runs"), ("runs", "tries"), ("restarts", "tries"), ("runs", "restarts")]
        {
            assert_eq!(runs(setting, grid), 3, "{setting} and {grid}");
        }
    }

    #[test]
    fn a_stopped_study_starts_no_further_runs() {
        let stopped = study().run(&[], 1, &Count(AtomicUsize::new(0)), &AtomicBool::new(true)).unwrap();
        assert!(stopped.is_empty());
    }

    #[test]
    fn invalid_studies_are_refused_with_a_message() {
        let error = |from: &str, to: &str| {
            let text = STUDY.replacen(from, to, 1);
            assert_ne!(text, STUDY, "the change changed nothing");
            Study::from_source(&Source::new(&text, "x.toml", "")).unwrap_err().to_string()
        };
        for (from, to, part) in [
            ("seeds = 2", "seeds = 0", "x.toml: seeds is 0"),
            ("seeds = 2", "sedes = 2", "unknown field `sedes`"),
            ("game-of-life", "game-of-live", "did you mean game-of-life?"),
            ("game-of-life", "none.toml", "cannot read none.toml"),
            ("updates = 3", "updates = 0", "setting paper learning_rate 0.05: training.updates is 0"),
            ("updates = 3", "update = 3", "unknown field `update`"),
            ("[0.05, 0.1]", "[]", "0 settings"),
            ("[0.05, 0.1]", "0.05", "grid: training.learning_rate is not a list"),
            ("[0.05, 0.1]", "[0.05, 0.05]", "two settings are called paper learning_rate 0.05"),
        ] {
            let message = error(from, to);
            assert!(message.contains(part), "{from} -> {to}: {message}");
        }
        let deep = format!("\"{}b\" = [1]\n", "a.".repeat(1_000_000));
        assert!(error("\"training.learning_rate\" = [0.05, 0.1]", &deep).contains("more than 16 names"));
        assert!(rows_from_csv("setting,seed\nx,y\n").is_err());
    }

    #[test]
    fn success_rates_have_wilson_intervals() {
        // Values from Wilson (1927) as R's prop.test gives them without continuity correction.
        let close = |a: [f64; 3], b: [f64; 3]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 5e-4);
        assert!(close(success_rate(20, 20), [1.0, 0.8389, 1.0]), "{:?}", success_rate(20, 20));
        assert!(close(success_rate(3, 10), [0.3, 0.1078, 0.6032]), "{:?}", success_rate(3, 10));
        assert_eq!(success_rate(0, 0), [0.0, 0.0, 1.0]);
    }
}
