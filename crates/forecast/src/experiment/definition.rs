//! The TOML format of an experiment: data, model, horizon and training. It is checked before any data are read.
//!
//! ```toml
//! name = "sales"
//! task = "forecaster"
//! data = "sales.csv"            # unique_id, ds, y
//! model = "nhits"
//! horizon = 28
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::data::calendar::Calendar;
use crate::data::scale::{Method, Scaling};
use crate::data::{DataError, DataProblem, Layout, Length, Schema, Split, Target};
use crate::models::Model;
use crate::network::loss::Loss;
use crate::network::normalization::Normalization;
use crate::specification::Specification;
use crate::training::Training;
use gatework_train::experiment::{ExperimentError, Problem, Source, check_name, problem};

/// The built-in experiments: name and TOML.
pub const BUILT_IN: [(&str, &str); 1] =
    [("airpassengers", include_str!("../../experiments/airpassengers.toml"))];

/// The built-in data sets: name and CSV.
pub const BUILT_IN_DATA: [(&str, &str); 1] =
    [("airpassengers", include_str!("../../data/AirPassengers.csv"))];

/// Prefix of data paths relative to the folder in the environment variable `GATEWORK_DATA`.
const DATA_FOLDER: &str = "$GATEWORK_DATA";

/// Former names of keys, which are still read, and their current names.
const FORMER_KEYS: [(&str, &str); 3] = [
    ("training.together", "training.group_by_time"),
    ("training.first_look", "training.validation_start_epoch"),
    ("training.part", "training.micro_batch"),
];

/// What is trained on which data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Name; defaults to the name of the file.
    #[serde(default)]
    pub name: String,
    /// The kind of experiment.
    pub task: Task,
    /// One-line description.
    #[serde(default)]
    pub about: String,
    /// Expected run time, for documentation.
    #[serde(default)]
    pub expected: String,
    /// Seed of initial parameters, order of windows and dropout.
    #[serde(default = "defaults::seed")]
    pub seed: u64,
    /// Path of a file, or the name of a built-in data set. A leading `$GATEWORK_DATA/` stands for the folder in that
    /// environment variable.
    pub data: String,
    /// File whose series continue those of `data`, such as the test sets of M4. Requires `layout = "rows"`
    /// without `times_in_header`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_data: Option<String>,
    /// Steps to forecast.
    pub horizon: usize,
    /// Observed values per window; default: three times the horizon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<usize>,
    /// Stride of the training windows.
    #[serde(default = "defaults::stride")]
    pub stride: usize,
    /// Steps per season, for baselines and MASE; the default follows from the frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub season: Option<usize>,
    /// Interval levels (nominal coverage), between 0 and 1.
    #[serde(default = "defaults::intervals")]
    pub intervals: Vec<f64>,
    /// Whether to train without series that are shorter than a window, which are otherwise an error.
    #[serde(default, alias = "leave_out_short")]
    pub skip_short_series: bool,
    /// Normalisation of windows; default: that of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalization: Option<Normalization>,
    /// The model.
    pub model: Model,
    /// The training loss.
    #[serde(default)]
    pub loss: Loss,
    /// Columns of the data file.
    #[serde(default)]
    pub columns: Schema,
    /// Training, validation and test subsets.
    #[serde(default)]
    pub split: Split,
    /// Scaling of values.
    #[serde(default)]
    pub scaling: Scaling,
    /// Calendar features.
    #[serde(default, skip_serializing_if = "Calendar::is_empty")]
    pub calendar: Calendar,
    /// Training settings.
    #[serde(default)]
    pub training: Training,
    /// Published results for this model and data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
}

/// Published results for one horizon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// Steps to forecast.
    pub horizon: usize,
    /// Results by metric: one or more of [`FIGURES`].
    #[serde(flatten)]
    pub figures: BTreeMap<String, f64>,
}

/// Published metrics: errors of scaled values over every test window, and the scores of M4.
pub const FIGURES: [&str; 5] = ["mse", "mae", "smape", "mase", "owa"];

/// The kind of experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Task {
    /// Training of a forecaster.
    Forecaster,
}

/// Default settings.
mod defaults {
    pub fn seed() -> u64 {
        1
    }

    pub fn stride() -> usize {
        1
    }

    pub fn intervals() -> Vec<f64> {
        vec![0.8, 0.95]
    }
}

/// A checked experiment and the folder that its paths are relative to.
#[derive(Clone, Debug)]
pub struct ForecastExperiment {
    /// The experiment.
    pub experiment: Experiment,
    /// Folder of relative paths.
    pub folder: PathBuf,
}

impl ForecastExperiment {
    /// Reads and checks an experiment file.
    pub fn read(path: &Path) -> Result<ForecastExperiment, ExperimentError> {
        ForecastExperiment::from_source(&Source::read(path)?)
    }

    /// Parses and checks an experiment.
    pub fn from_source(source: &Source) -> Result<ForecastExperiment, ExperimentError> {
        let mut experiment: Experiment = source.parse()?;
        if experiment.name.is_empty() {
            experiment.name = source.default_name().unwrap_or_default();
        }
        experiment.name_built_in_columns();
        experiment.check().map_err(|problem| source.locate(problem, &FORMER_KEYS))?;
        Ok(ForecastExperiment { experiment, folder: source.folder().to_path_buf() })
    }

    /// Returns the path of the data; `None` for built-in data.
    pub fn data_file(&self) -> Result<Option<PathBuf>, DataError> {
        let built_in = BUILT_IN_DATA.iter().any(|(name, _)| *name == self.experiment.data);
        (!built_in).then(|| self.path(&self.experiment.data)).transpose()
    }

    /// Returns the path of the data that continue them, if there are any.
    pub fn test_file(&self) -> Result<Option<PathBuf>, DataError> {
        self.experiment.test_data.as_ref().map(|name| self.path(name)).transpose()
    }

    /// Resolves a path of the experiment.
    fn path(&self, name: &str) -> Result<PathBuf, DataError> {
        let Some(rest) = name.strip_prefix(DATA_FOLDER).and_then(|rest| rest.strip_prefix('/')) else {
            return Ok(self.folder.join(name));
        };
        let folder = std::env::var_os(&DATA_FOLDER[1..]);
        let problem = || {
            DataProblem::Unreadable(format!(
                "the environment variable {DATA_FOLDER} is not set; set it to the folder of the data"
            ))
        };
        folder.map(|folder| PathBuf::from(folder).join(rest)).ok_or_else(|| problem().at(name, None))
    }
}

impl Experiment {
    /// Creates an experiment for a table in memory, with default settings.
    pub fn new(model: impl Into<Model>, horizon: usize) -> Experiment {
        Experiment {
            name: "forecast".into(),
            task: Task::Forecaster,
            about: String::new(),
            expected: String::new(),
            seed: defaults::seed(),
            data: String::new(),
            test_data: None,
            horizon,
            input: None,
            stride: defaults::stride(),
            season: None,
            intervals: defaults::intervals(),
            skip_short_series: false,
            normalization: None,
            model: model.into(),
            loss: Loss::default(),
            columns: Schema::default(),
            split: Split::default(),
            scaling: Scaling::default(),
            calendar: Calendar::default(),
            training: Training::default(),
            published: Vec::new(),
        }
    }

    /// Returns the observed values per window.
    pub fn input(&self) -> usize {
        self.input.unwrap_or_else(|| self.horizon.saturating_mul(3))
    }

    /// Returns the specification of the forecaster.
    pub fn specification(&self) -> Specification {
        Specification {
            model: self.model.clone(),
            loss: self.loss.clone(),
            normalization: self.normalization,
            input: self.input(),
            horizon: self.horizon,
            past_columns: self.columns.past.len(),
            future_columns: self.columns.future.len() + self.calendar.len(),
            static_columns: self.columns.fixed.len(),
        }
    }

    /// Serialises the experiment.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("an experiment has no value that TOML lacks")
    }

    /// Fills in the column names of built-in data.
    fn name_built_in_columns(&mut self) {
        let Some((_, text)) = BUILT_IN_DATA.iter().find(|(name, _)| *name == self.data) else { return };
        let (default, header) = (Schema::default(), text.lines().next().unwrap_or(""));
        let Some((time, target)) = header.split_once(',') else { return };
        let bare = |name: &str| name.trim_matches('"').to_string();
        if self.columns.time == default.time {
            self.columns.time = bare(time);
        }
        if self.columns.target == default.target {
            self.columns.target = Target::One(bare(target));
        }
    }

    /// Checks every setting; the problem names the key of the first invalid one.
    pub fn check(&self) -> Result<(), Problem> {
        check_name(&self.name)?;
        if self.stride == 0 {
            return problem(&["stride"], "stride is 0, but must be at least 1");
        }
        if self.season == Some(0) {
            return problem(&["season"], "season is 0, but must be at least 1");
        }
        if let Some(level) = self.intervals.iter().find(|level| !(**level > 0.0 && **level < 1.0)) {
            let message = format!("intervals has the level {level}, but levels must lie between 0 and 1");
            return problem(&["intervals"], message);
        }
        let repeated = |(i, level): &(usize, &f64)| self.intervals[..*i].contains(level);
        if let Some((_, level)) = self.intervals.iter().enumerate().find(repeated) {
            return problem(&["intervals"], format!("intervals has the level {level} twice; remove one"));
        }
        self.check_columns()?;
        let counted = self.columns.layout == Layout::Rows && !self.columns.times_in_header;
        if self.test_data.is_some() && !counted {
            return problem(
                &["test_data"],
                "test_data requires files with one series per row (columns.layout = \"rows\"), without columns.times_in_header",
            );
        }
        let figures = self.published.iter().flat_map(|published| published.figures.keys());
        if let Some(name) = figures.into_iter().find(|name| !FIGURES.contains(&name.as_str())) {
            let known = FIGURES.join(", ");
            return problem(&["published"], format!("published: unknown metric {name}; known are {known}"));
        }
        self.check_split()?;
        if let Err(error) = self.calendar.check() {
            return problem(&["calendar"], error.to_string());
        }
        if self.scaling.clip.is_some_and(|clip| !(clip > 0.0 && clip.is_finite())) {
            return problem(&["scaling", "clip"], "scaling.clip must be a number above 0");
        }
        self.check_counts()?;
        self.training.check()?;
        self.specification().check().map_err(|error| Problem::new(&error.key(), error.to_string()))
    }

    /// Checks that the counts of a negative binomial loss are not scaled.
    fn check_counts(&self) -> Result<(), Problem> {
        let Scaling { method, log, difference, clip, .. } = self.scaling;
        let are_kept = method == Method::None && !log && difference == 0 && clip.is_none();
        if self.loss != Loss::NegativeBinomial || are_kept {
            return Ok(());
        }
        problem(
            &["loss"],
            "the loss \"negative-binomial\" needs counts, which must not be scaled; set scaling.method = \"none\", without log, difference and clip",
        )
    }

    /// Checks that each column has one role: a target that is also a known-future covariate would be data leakage.
    fn check_columns(&self) -> Result<(), Problem> {
        let Schema { layout, id, time, target, past, future, fixed, .. } = &self.columns;
        let targets = match target {
            // In the other layouts, "y" is the default, and stands for all columns.
            Target::One(name) if name == "y" && *layout != Layout::Long => &[],
            Target::One(name) => std::slice::from_ref(name),
            Target::Several(names) => names,
        };
        let mut seen: Vec<(&str, &str)> = vec![("time", time)];
        let lists: [(&[&str], &[String]); 5] = [
            (&["columns", "id"], id.as_slice()),
            (&["columns", "target"], targets),
            (&["columns", "past"], past),
            (&["columns", "future"], future),
            (&["columns", "static"], fixed),
        ];
        for (key, names) in lists {
            for name in names {
                if let Some((before, _)) = seen.iter().find(|(_, known)| known == name) {
                    let (there, here) = (before, key[1]);
                    return problem(
                        key,
                        format!("columns: {name:?} is both {there} and {here}; a column has one role"),
                    );
                }
                seen.push((key[1], name));
            }
        }
        Ok(())
    }

    fn check_split(&self) -> Result<(), Problem> {
        let lengths: [(&[&str], Option<Length>); 3] = [
            (&["split", "train"], self.split.train),
            (&["split", "validation"], Some(self.split.validation)),
            (&["split", "test"], Some(self.split.test)),
        ];
        let wrong = lengths.iter().find(|(_, length)| length.is_some_and(|length| !length.is_valid()));
        if let Some((key, _)) = wrong {
            let name = key.join(".");
            return problem(key, format!("{name} is neither a number of steps nor a fraction below 1"));
        }
        // Without a length of its own, the training subset is the remainder.
        if let (None, Length::Fraction(validation), Length::Fraction(test)) =
            (self.split.train, self.split.validation, self.split.test)
            && validation + test > 1.0 - 1e-9
        {
            let message =
                "split: validation and test take the whole series, and nothing remains for training";
            return problem(&["split"], message);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(from: &str, to: &str) -> String {
        let text = BUILT_IN[0].1.replacen(from, to, 1);
        assert_ne!(text, BUILT_IN[0].1, "the change changed nothing");
        ForecastExperiment::from_source(&Source::new(&text, "x.toml", ".")).unwrap_err().to_string()
    }

    #[test]
    fn built_in_experiments_are_valid_and_survive_their_own_toml() {
        for (name, text) in BUILT_IN {
            let loaded = ForecastExperiment::from_source(&Source::new(text, name, ".")).unwrap();
            assert_eq!((loaded.experiment.name.as_str(), loaded.data_file().unwrap()), (name, None));
            let again = ForecastExperiment::from_source(&Source::new(loaded.experiment.to_toml(), name, "."))
                .unwrap();
            assert_eq!(again.experiment, loaded.experiment);
        }
    }

    #[test]
    fn columns_of_built_in_data_have_defaults() {
        for (name, _) in BUILT_IN_DATA {
            let text = format!("task = \"forecaster\"\ndata = {name:?}\nmodel = \"dlinear\"\nhorizon = 3");
            let loaded = ForecastExperiment::from_source(&Source::new(&text, "x.toml", ".")).unwrap();
            assert!(!crate::experiment::dataset::read(&loaded).unwrap().series.is_empty());
        }
    }

    #[test]
    fn experiments_with_published_figures_are_valid_at_each_of_their_horizons() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/experiments/accuracy");
        if !folder.is_dir() {
            eprintln!("skipped: there is no {} next to this crate", folder.display());
            return;
        }
        let files: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty());
        for path in files {
            let loaded = ForecastExperiment::read(&path).unwrap();
            let experiment = &loaded.experiment;
            assert_eq!(path.file_stem().unwrap().to_str(), Some(experiment.name.as_str()));
            assert!(!experiment.published.is_empty(), "{}", path.display());
            for published in &experiment.published {
                let other = Experiment { horizon: published.horizon, ..experiment.clone() };
                let again =
                    ForecastExperiment::from_source(&Source::new(other.to_toml(), &experiment.name, "."))
                        .unwrap();
                assert_eq!(again.experiment, other);
            }
        }
    }

    #[test]
    fn omitted_settings_have_defaults() {
        let text = "name = 'sales'\ntask = 'forecaster'\ndata = 'sales.csv'\nmodel = 'nhits'\nhorizon = 28";
        let loaded = ForecastExperiment::from_source(&Source::new(text, "x.toml", "here")).unwrap();
        assert_eq!((loaded.experiment.input(), loaded.experiment.intervals), (84, vec![0.8, 0.95]));
        assert_eq!(loaded.experiment.columns, Schema::default());
        assert_eq!(
            ForecastExperiment::from_source(&Source::new(text, "x", "here")).unwrap().data_file().unwrap(),
            Some("here/sales.csv".into())
        );
    }

    #[test]
    fn the_former_name_of_skip_short_series_is_an_alias() {
        for (line, expected) in
            [("leave_out_short = true", true), ("skip_short_series = true", true), ("", false)]
        {
            let text = format!(
                "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = 'nlinear'\nhorizon = 3\n{line}"
            );
            let loaded = ForecastExperiment::from_source(&Source::new(&text, "x.toml", ".")).unwrap();
            assert_eq!(loaded.experiment.skip_short_series, expected, "{line}");
        }
    }

    #[test]
    fn defaults_do_not_conflict_with_explicit_settings() {
        let parse = |more: &str| {
            let text = "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = 'nlinear'\nhorizon = 3";
            ForecastExperiment::from_source(&Source::new(format!("{text}\n{more}"), "x.toml", "."))
        };
        // In a wide file all columns are series, even "y"; subsets that do not fit are shortened.
        for more in [
            "[columns]\nlayout = 'wide'\ntime = 'y'",
            "[split]\ntrain = 0.85",
            "[split]\nvalidation = 0.9\ntest = 7",
        ] {
            assert!(parse(more).is_ok(), "{more}");
        }
        for more in ["[columns]\ntime = 'y'", "[columns]\nid = 'ds'", "[split]\nvalidation = 0.9"] {
            assert!(parse(more).is_err(), "{more}");
        }
    }

    #[test]
    fn a_negative_binomial_loss_forbids_scaling() {
        let text = |scaling: &str| {
            format!(
                "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = 'deepar'\nhorizon = 3\nloss = 'negative-binomial'\n{scaling}"
            )
        };
        let parse =
            |scaling: &str| ForecastExperiment::from_source(&Source::new(text(scaling), "x.toml", "."));
        for scaling in ["", "method = 'min-max'", "log = true", "difference = 1", "clip = 3.0"] {
            let table = match scaling {
                "" | "method = 'min-max'" => scaling.to_string(),
                other => format!("method = 'none'\n{other}"),
            };
            let message = parse(&format!("[scaling]\n{table}")).unwrap_err().to_string();
            assert!(
                message.starts_with("x.toml:6: ") && message.contains("scaling.method = \"none\""),
                "{message}"
            );
        }
        assert!(parse("").is_err(), "the default scaling is not \"none\"");
        assert!(parse("[scaling]\nmethod = 'none'").is_ok());
    }

    #[test]
    fn errors_are_located_at_their_setting() {
        for (from, to, part) in [
            ("horizon = 12", "horizon = \"a\"", "x.toml:6: invalid type: string \"a\""),
            ("horizon = 12", "horizon = 0", "x.toml:6: model dlinear: horizon is 0"),
            ("horizon = 12", "horizont = 12", "x.toml:6: unknown field `horizont`"),
            ("model = \"dlinear\"", "model = \"oracle\"", "x.toml:8: unknown variant `oracle`"),
            ("loss = \"mse\"", "loss = \"rmse\"", "x.toml:9: unknown variant `rmse`"),
            ("seed = 1", "intervals = [1.5]", "x.toml:10: intervals has the level 1.5"),
            ("seed = 1", "intervals = [0.8, 0.9, 0.8]", "x.toml:10: intervals has the level 0.8 twice"),
            (
                "loss = \"mse\"",
                "loss = { kind = \"quantiles\", levels = [0.9, 0.1] }",
                "x.toml:9: model dlinear: ",
            ),
            (
                "time = ",
                "future = [\"Passengers\"]\ntime = ",
                "x.toml:13: columns: \"Passengers\" is both target and future",
            ),
            (
                "validation = 24\ntest = 12",
                "validation = 0.6\ntest = 0.6",
                "x.toml:16: split: validation and test take the whole",
            ),
            ("seed = 1", "stride = 0", "x.toml:10: stride is 0"),
            ("time = ", "tine = ", "x.toml:13: unknown field `tine`"),
            ("validation = 24", "validation = 1.5", "x.toml:17: split.validation is neither"),
            ("batch = 32", "batch = 0", "x.toml:25: training.batch is 0"),
            (
                "seed = 1",
                "test_data = \"b.csv\"",
                "x.toml:10: test_data requires files with one series per row",
            ),
            (
                "seed = 1",
                "published = [{ horizon = 3, rmse = 1 }]",
                "x.toml:10: published: unknown metric rmse",
            ),
            (
                "loss = \"mse\"",
                "loss = { kind = \"huber\", delta = 0.0 }",
                "x.toml:9: model dlinear: loss.delta is 0",
            ),
            (
                "model = \"dlinear\"",
                "normalization = \"last\"\nmodel = { kind = \"dlinear\", moving_average = 4 }",
                "x.toml:9: model dlinear: moving_average is 4",
            ),
            ("log = true", "clip = -1.0", "x.toml:21: scaling.clip must be"),
            ("learning_rate = 0.01", "learning_rate = -1.0", "x.toml:26: training.learning_rate: "),
        ] {
            let message = error(from, to);
            assert!(message.contains(part), "{to}: {message}");
        }
    }
}
