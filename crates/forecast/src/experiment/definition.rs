//! Experiments of forecasters: data, model, horizon and training as TOML, checked before any data are read.
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
use crate::data::{DataError, Layout, Length, Problem as DataProblem, Schema, Split, Target};
use crate::models::Model;
use crate::network::loss::Loss;
use crate::network::normalization::Normalization;
use crate::specification::Specification;
use crate::training::Training;
use gatework_train::experiment::{ExperimentError, Problem, Source, problem};

/// The built-in experiments: name and TOML.
pub const BUILT_IN: [(&str, &str); 1] =
    [("airpassengers", include_str!("../../experiments/airpassengers.toml"))];

/// The data that ship with the project: name and CSV.
pub const BUILT_IN_DATA: [(&str, &str); 1] =
    [("airpassengers", include_str!("../../data/AirPassengers.csv"))];

/// The folder of data that do not ship with the project, as a variable of the environment.
const DATA_FOLDER: &str = "$GATEWORK_DATA";

/// One experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Its name; that of its file if there is none.
    #[serde(default)]
    pub name: String,
    /// What kind of thing is learned.
    pub task: Task,
    /// One line for people.
    #[serde(default)]
    pub about: String,
    /// How long it takes, for people.
    #[serde(default)]
    pub expected: String,
    /// Of start values, order of windows and dropout.
    #[serde(default = "usual::seed")]
    pub seed: u64,
    /// A file, or the name of data that ship with the project. `$GATEWORK_DATA/` at its begin stands for the folder that
    /// this variable of the environment names.
    pub data: String,
    /// A file whose series go on where those of `data` end: M4 keeps its test part in one. For one series a row only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub test_data: Option<String>,
    /// Values to be forecast.
    pub horizon: usize,
    /// Observed values of a window; three horizons if it is not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input: Option<usize>,
    /// Steps from one window to the next in training.
    #[serde(default = "usual::stride")]
    pub stride: usize,
    /// Steps of a season, for the baselines and for MASE; if not given, as is usual for the frequency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub season: Option<usize>,
    /// Shares of the values that the intervals should hold.
    #[serde(default = "usual::intervals")]
    pub intervals: Vec<f64>,
    /// Train without the series that are shorter than a window.
    #[serde(default)]
    pub leave_out_short: bool,
    /// How windows are normalised; if not given, as is usual for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalization: Option<Normalization>,
    /// The model.
    pub model: Model,
    /// What training makes smaller.
    #[serde(default)]
    pub loss: Loss,
    /// How the file is read.
    #[serde(default)]
    pub columns: Schema,
    /// Train, validation and test.
    #[serde(default)]
    pub split: Split,
    /// How values are scaled.
    #[serde(default)]
    pub scaling: Scaling,
    /// Columns of the calendar.
    #[serde(default, skip_serializing_if = "Calendar::is_empty")]
    pub calendar: Calendar,
    /// How it is trained.
    #[serde(default)]
    pub training: Training,
    /// What the literature says of this model and these data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<Published>,
}

/// Figures of the literature for one horizon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Published {
    /// The horizon.
    pub horizon: usize,
    /// The figures by their names: one or more of [`FIGURES`].
    #[serde(flatten)]
    pub figures: BTreeMap<String, f64>,
}

/// What can be published: errors of scaled values over every window of the test part, and scores of M4.
pub const FIGURES: [&str; 5] = ["mse", "mae", "smape", "mase", "owa"];

/// What kind of thing is learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// A forecaster.
    Forecaster,
}

/// The values that settings have when a file does not name them.
mod usual {
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

/// An experiment that was read and checked, and the folder its files are in.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The experiment.
    pub experiment: Experiment,
    /// Its folder.
    pub folder: PathBuf,
}

impl Loaded {
    /// Reads an experiment from a file.
    pub fn read(path: &Path) -> Result<Loaded, ExperimentError> {
        Loaded::from_source(&Source::read(path)?)
    }

    /// Reads an experiment and checks it.
    pub fn from_source(source: &Source) -> Result<Loaded, ExperimentError> {
        let mut experiment: Experiment = source.parse()?;
        if experiment.name.is_empty() {
            experiment.name = source.default_name().unwrap_or_default();
        }
        experiment.name_built_in_columns();
        experiment.check().map_err(|problem| source.locate(problem))?;
        Ok(Loaded { experiment, folder: source.folder().to_path_buf() })
    }

    /// The path of its data; none if they ship with the project.
    pub fn data_file(&self) -> Result<Option<PathBuf>, DataError> {
        let built_in = BUILT_IN_DATA.iter().any(|(name, _)| *name == self.experiment.data);
        (!built_in).then(|| self.path(&self.experiment.data)).transpose()
    }

    /// The path of the data that come after them, if there are any.
    pub fn test_file(&self) -> Result<Option<PathBuf>, DataError> {
        self.experiment.test_data.as_ref().map(|name| self.path(name)).transpose()
    }

    /// Where a file of the experiment is.
    fn path(&self, name: &str) -> Result<PathBuf, DataError> {
        let Some(rest) = name.strip_prefix(DATA_FOLDER).and_then(|rest| rest.strip_prefix('/')) else {
            return Ok(self.folder.join(name));
        };
        let folder = std::env::var_os(&DATA_FOLDER[1..]);
        let problem =
            || DataProblem::Unreadable(format!("{DATA_FOLDER}, the folder of the data, is not set"));
        folder.map(|folder| PathBuf::from(folder).join(rest)).ok_or_else(|| problem().at(name, None))
    }
}

impl Experiment {
    /// Observed values of a window.
    pub fn input(&self) -> usize {
        self.input.unwrap_or_else(|| self.horizon.saturating_mul(3))
    }

    /// The network of the experiment.
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

    /// The experiment as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("an experiment holds nothing that TOML lacks")
    }

    /// The columns of data that ship with the project need not be named.
    fn name_built_in_columns(&mut self) {
        let Some((_, text)) = BUILT_IN_DATA.iter().find(|(name, _)| *name == self.data) else { return };
        let (usual, header) = (Schema::default(), text.lines().next().unwrap_or(""));
        let Some((time, target)) = header.split_once(',') else { return };
        let bare = |name: &str| name.trim_matches('"').to_string();
        if self.columns.time == usual.time {
            self.columns.time = bare(time);
        }
        if self.columns.target == usual.target {
            self.columns.target = Target::One(bare(target));
        }
    }

    fn check(&self) -> Result<(), Problem> {
        if self.name.trim().is_empty() {
            return problem(&["name"], "name is empty");
        }
        if self.stride == 0 {
            return problem(&["stride"], "stride is 0");
        }
        if self.season == Some(0) {
            return problem(&["season"], "season is 0");
        }
        if let Some(share) = self.intervals.iter().find(|share| !(**share > 0.0 && **share < 1.0)) {
            return problem(&["intervals"], format!("an interval is to hold {share}, not between 0 and 1"));
        }
        let twice = |(i, share): (usize, &f64)| self.intervals[..i].contains(share);
        if let Some(share) = self.intervals.iter().enumerate().find(|place| twice(*place)).map(|(_, s)| s) {
            return problem(&["intervals"], format!("the interval of {share} is there twice"));
        }
        self.check_columns()?;
        if self.test_data.is_some() && self.columns.layout != Layout::Rows {
            return problem(
                &["test_data"],
                "test_data is for files with one series a row (layout = \"rows\")",
            );
        }
        let figures = self.published.iter().flat_map(|published| published.figures.keys());
        if let Some(name) = figures.into_iter().find(|name| !FIGURES.contains(&name.as_str())) {
            let known = FIGURES.join(", ");
            return problem(
                &["published"],
                format!("published: there is no figure {name}; there are {known}"),
            );
        }
        self.check_split()?;
        if let Err(error) = self.calendar.check() {
            return problem(&["calendar"], error.to_string());
        }
        if self.scaling.clip.is_some_and(|clip| !(clip > 0.0 && clip.is_finite())) {
            return problem(&["scaling", "clip"], "scaling.clip is not above 0");
        }
        self.check_counts()?;
        self.training.check()?;
        self.specification().check().map_err(|error| {
            let message = error.to_string();
            let key = match () {
                () if message.contains("horizon is") => "horizon",
                () if message.contains("input is") => "input",
                () if message.contains("of the loss") => "loss",
                () => "model",
            };
            Problem::new(&[key], message)
        })
    }

    /// Counts stay counts only if they are not scaled.
    fn check_counts(&self) -> Result<(), Problem> {
        let Scaling { method, log, difference, clip, .. } = self.scaling;
        let are_kept = method == Method::None && !log && difference == 0 && clip.is_none();
        if self.loss != Loss::NegativeBinomial || are_kept {
            return Ok(());
        }
        problem(
            &["loss"],
            "the loss \"negative-binomial\" needs counts, which scaling would change; set [scaling] method = \"none\", without log, difference and clip",
        )
    }

    /// A column has one use: values that were known in advance would forecast themselves.
    fn check_columns(&self) -> Result<(), Problem> {
        let Schema { layout, id, time, target, past, future, fixed, .. } = &self.columns;
        let targets = match target {
            // In other layouts than the long one this is what a file that says nothing has: all columns, or none.
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
                        format!("columns: {name:?} is used twice, as {there} and as {here}"),
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
            return problem(key, format!("{name} is neither a number of steps nor a share below 1"));
        }
        // With a share of its own, training has that; else it has what the others leave.
        if let (None, Length::Share(validation), Length::Share(test)) =
            (self.split.train, self.split.validation, self.split.test)
            && validation + test > 1.0 - 1e-9
        {
            let message = "split: validation and test are the whole, and nothing is left for training";
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
        Loaded::from_source(&Source::new(&text, "x.toml", ".")).unwrap_err().to_string()
    }

    #[test]
    fn built_in_experiments_are_valid_and_survive_their_own_toml() {
        for (name, text) in BUILT_IN {
            let loaded = Loaded::from_source(&Source::new(text, name, ".")).unwrap();
            assert_eq!((loaded.experiment.name.as_str(), loaded.data_file().unwrap()), (name, None));
            let again = Loaded::from_source(&Source::new(&loaded.experiment.to_toml(), name, ".")).unwrap();
            assert_eq!(again.experiment, loaded.experiment);
        }
    }

    #[test]
    fn columns_of_data_that_ship_with_the_project_need_not_be_named() {
        for (name, _) in BUILT_IN_DATA {
            let text = format!("task = \"forecaster\"\ndata = {name:?}\nmodel = \"dlinear\"\nhorizon = 3");
            let loaded = Loaded::from_source(&Source::new(&text, "x.toml", ".")).unwrap();
            assert!(!crate::experiment::dataset::read(&loaded).unwrap().series.is_empty());
        }
    }

    #[test]
    fn experiments_with_published_figures_are_valid_at_each_of_their_horizons() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bench/experiments/accuracy");
        let files: Vec<PathBuf> =
            std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty());
        for path in files {
            let loaded = Loaded::read(&path).unwrap();
            let experiment = &loaded.experiment;
            assert_eq!(path.file_stem().unwrap().to_str(), Some(experiment.name.as_str()));
            assert!(!experiment.published.is_empty(), "{}", path.display());
            for published in &experiment.published {
                let other = Experiment { horizon: published.horizon, ..experiment.clone() };
                let again =
                    Loaded::from_source(&Source::new(&other.to_toml(), &experiment.name, ".")).unwrap();
                assert_eq!(again.experiment, other);
            }
        }
    }

    #[test]
    fn a_short_experiment_has_usual_values() {
        let text = "name = 'sales'\ntask = 'forecaster'\ndata = 'sales.csv'\nmodel = 'nhits'\nhorizon = 28";
        let loaded = Loaded::from_source(&Source::new(text, "x.toml", "here")).unwrap();
        assert_eq!((loaded.experiment.input(), loaded.experiment.intervals), (84, vec![0.8, 0.95]));
        assert_eq!(loaded.experiment.columns, Schema::default());
        assert_eq!(
            Loaded::from_source(&Source::new(text, "x", "here")).unwrap().data_file().unwrap(),
            Some("here/sales.csv".into())
        );
    }

    #[test]
    fn what_a_file_leaves_unsaid_is_no_mistake() {
        let parse = |more: &str| {
            let text = "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = 'nlinear'\nhorizon = 3";
            Loaded::from_source(&Source::new(&format!("{text}\n{more}"), "x.toml", "."))
        };
        // In a wide file all columns are series, whatever the time is called; parts that do not fit are shorter.
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
    fn counts_are_not_scaled() {
        let text = |scaling: &str| {
            format!(
                "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = 'deepar'\nhorizon = 3\nloss = 'negative-binomial'\n{scaling}"
            )
        };
        let parse = |scaling: &str| Loaded::from_source(&Source::new(&text(scaling), "x.toml", "."));
        for scaling in ["", "method = 'min-max'", "log = true", "difference = 1", "clip = 3.0"] {
            let table = match scaling {
                "" | "method = 'min-max'" => scaling.to_string(),
                other => format!("method = 'none'\n{other}"),
            };
            let message = parse(&format!("[scaling]\n{table}")).unwrap_err().to_string();
            assert!(message.starts_with("x.toml:6: ") && message.contains("method = \"none\""), "{message}");
        }
        assert!(parse("").is_err(), "counts are scaled unless the file says otherwise");
        assert!(parse("[scaling]\nmethod = 'none'").is_ok());
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (from, to, part) in [
            ("horizon = 12", "horizon = \"a\"", "x.toml:6: invalid type: string \"a\""),
            ("horizon = 12", "horizon = 0", "x.toml:6: model dlinear: horizon is 0"),
            ("horizon = 12", "horizont = 12", "x.toml:6: unknown field `horizont`"),
            ("model = \"dlinear\"", "model = \"oracle\"", "x.toml:8: unknown variant `oracle`"),
            ("loss = \"mse\"", "loss = \"rmse\"", "x.toml:9: unknown variant `rmse`"),
            ("seed = 1", "intervals = [1.5]", "x.toml:10: an interval is to hold 1.5"),
            ("seed = 1", "intervals = [0.8, 0.9, 0.8]", "x.toml:10: the interval of 0.8 is there twice"),
            (
                "loss = \"mse\"",
                "loss = { kind = \"quantiles\", levels = [0.9, 0.1] }",
                "x.toml:9: model dlinear: ",
            ),
            (
                "time = ",
                "future = [\"Passengers\"]\ntime = ",
                "x.toml:13: columns: \"Passengers\" is used twice, as target and as future",
            ),
            (
                "validation = 24\ntest = 12",
                "validation = 0.6\ntest = 0.6",
                "x.toml:16: split: validation and test are the whole",
            ),
            ("seed = 1", "stride = 0", "x.toml:10: stride is 0"),
            ("time = ", "tine = ", "x.toml:13: unknown field `tine`"),
            ("validation = 24", "validation = 1.5", "x.toml:17: split.validation is neither"),
            ("batch = 32", "batch = 0", "x.toml:25: training.batch is 0"),
            ("seed = 1", "test_data = \"b.csv\"", "x.toml:10: test_data is for files with one series a row"),
            (
                "seed = 1",
                "published = [{ horizon = 3, rmse = 1 }]",
                "x.toml:10: published: there is no figure rmse",
            ),
            ("log = true", "clip = -1.0", "x.toml:21: scaling.clip is not above 0"),
            ("learning_rate = 0.01", "learning_rate = -1.0", "x.toml:26: training.learning_rate: "),
        ] {
            let message = error(from, to);
            assert!(message.contains(part), "{to}: {message}");
        }
    }
}
