//! The data of an experiment: read, checked, scaled and cut into windows.

use std::path::Path;
use std::sync::Arc;

use super::definition::{BUILT_IN_DATA, Experiment, ForecastExperiment};
use crate::data::calendar::CalendarError;
use crate::data::scale::{Scaler, UnknownSeries};
use crate::data::{
    DataError, Loader, Schema, Split, Subset, Table, WindowError, WindowSizes, Windows, read_csv,
};
use crate::network::loss::Loss;
use crate::prediction::Context;
use crate::prediction::conformal::Conformal;
use crate::training::Training;

/// Data that cannot be used for an experiment.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// The file cannot be read, or its content is invalid.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The calendar features cannot be computed.
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    /// A series is not known to the scaler.
    #[error(transparent)]
    Scale(#[from] UnknownSeries),
    /// A value is not a count, as the loss requires.
    #[error(
        "series {id:?}: {value} at {time} is {what}, but the loss \"negative-binomial\" needs counts (0, 1, 2, ...); set another loss, such as \"gaussian\""
    )]
    NotCounts {
        /// Id of the series.
        id: String,
        /// The value.
        value: f64,
        /// Time of the value.
        time: String,
        /// Property of the value that a count does not have.
        what: &'static str,
    },
    /// A series is too short for a window.
    #[error(transparent)]
    Windows(#[from] WindowError),
    /// There is no validation window.
    #[error(
        "the validation subset has no window; set split.validation to at least the {horizon} steps of the horizon, without gaps and after a value that is not interpolated"
    )]
    NoValidation {
        /// The horizon.
        horizon: usize,
    },
}

/// The data of an experiment.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// The table as read, with calendar features.
    pub table: Arc<Table>,
    /// The scaled table, which the model reads.
    pub scaled: Arc<Table>,
    /// Maps the table to the scaled one.
    pub scaler: Scaler,
    /// Steps per season.
    pub season: usize,
    sizes: WindowSizes,
    split: Split,
}

/// Reads the table of an experiment: built-in data or a file, continued by the test data if there are any.
pub fn read(loaded: &ForecastExperiment) -> Result<Table, DataError> {
    let experiment = &loaded.experiment;
    let mut table = match loaded.data_file()? {
        Some(path) => Table::read(&path, &experiment.columns)?,
        None => read_built_in(&experiment.data, &experiment.columns)?,
    };
    if let Some(path) = loaded.test_file()? {
        let after = Table::read(&path, &experiment.columns)?;
        let origin = path.display().to_string();
        table.append(after).map_err(|problem| problem.at(&origin, None))?;
    }
    Ok(table)
}

/// Checks the table of an experiment, and adds its calendar features.
fn with_calendar(experiment: &Experiment, mut table: Table) -> Result<Table, DatasetError> {
    if experiment.loss == Loss::NegativeBinomial {
        check_counts(&table)?;
    }
    experiment.calendar.add(&mut table, experiment.horizon)?;
    Ok(table)
}

/// Reads a built-in table.
fn read_built_in(name: &str, schema: &Schema) -> Result<Table, DataError> {
    let text = BUILT_IN_DATA.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
    read_csv(text.as_bytes(), name, schema)
}

/// Reads a table from a file, or built-in data of that name if there is no such file.
pub fn read_file_or_built_in(path: &Path, schema: &Schema) -> Result<Table, DataError> {
    let built_in = path.to_str().filter(|name| BUILT_IN_DATA.iter().any(|(known, _)| known == name));
    match built_in.filter(|_| !path.exists()) {
        Some(name) => read_built_in(name, schema),
        None => Table::read(path, schema),
    }
}

/// Checks that all values are counts. Gaps are allowed: no window contains them.
fn check_counts(table: &Table) -> Result<(), DatasetError> {
    for series in &table.series {
        let is_other = |value: &f64| *value < 0.0 || (value.is_finite() && value.fract() != 0.0);
        if let Some(place) = series.values.iter().position(is_other) {
            let value = series.values[place];
            return Err(DatasetError::NotCounts {
                id: series.id.clone(),
                value,
                time: table.time(series, place),
                what: if value < 0.0 { "negative" } else { "a fraction" },
            });
        }
    }
    Ok(())
}

impl Dataset {
    /// Reads the data of an experiment, and scales them by the statistics of their training subset.
    pub fn load(loaded: &ForecastExperiment) -> Result<Dataset, DatasetError> {
        Dataset::from_table(&loaded.experiment, read(loaded)?)
    }

    /// Prepares a table in memory, and scales it by the statistics of its training subset.
    pub fn from_table(experiment: &Experiment, table: Table) -> Result<Dataset, DatasetError> {
        let table = with_calendar(experiment, table)?;
        let scaler = Scaler::fit(&experiment.scaling, &table, &experiment.split);
        Dataset::new(experiment, table, scaler)
    }

    /// Reads the data of an experiment, and scales them as in training: the data may have grown since.
    pub fn load_for(loaded: &ForecastExperiment, context: &Context) -> Result<Dataset, DatasetError> {
        let table = with_calendar(&loaded.experiment, read(loaded)?)?;
        Dataset::new(&loaded.experiment, table, context.scaler.clone())
    }

    fn new(experiment: &Experiment, table: Table, scaler: Scaler) -> Result<Dataset, DatasetError> {
        let sizes =
            WindowSizes { input: experiment.input(), horizon: experiment.horizon, stride: experiment.stride };
        let season = experiment.season.unwrap_or_else(|| table.frequency.season());
        let scaled = Arc::new(scaler.apply(&table)?);
        let split = experiment.split;
        let dataset = Dataset { table: Arc::new(table), scaled, scaler, season, sizes, split };
        dataset.windows(Subset::Train, experiment.stride).check(&split, experiment.skip_short_series)?;
        if dataset.windows(Subset::Validation, 1).is_empty() {
            return Err(DatasetError::NoValidation { horizon: experiment.horizon });
        }
        Ok(dataset)
    }

    /// Returns the context of a model of these data, without intervals.
    pub fn context(&self, experiment: &Experiment) -> Context {
        Context {
            name: experiment.name.clone(),
            columns: experiment.columns.clone(),
            frequency: self.table.frequency.to_string(),
            calendar: experiment.calendar.clone(),
            scaler: self.scaler.clone(),
            season: self.season,
            conformal: Conformal::default(),
            values: self.table.values(),
        }
    }

    /// Returns the windows of a subset.
    pub fn windows(&self, subset: Subset, stride: usize) -> Windows {
        Windows::new(&self.scaled, WindowSizes { stride, ..self.sizes }, &self.split, subset)
    }

    /// Returns the batches for the trainer, in the order of a seed, prefetched by a thread.
    pub fn loader(&self, experiment: &Experiment, seed: u64) -> Loader {
        let training = Arc::new(self.windows(Subset::Train, self.sizes.stride));
        let validation = Arc::new(self.windows(Subset::Validation, 1));
        let Training { batch, group_by_time, .. } = experiment.training;
        Loader::new(training, validation, batch, seed).group_by_time(group_by_time)
    }

    /// Returns the number of updates in which training reads every window once.
    pub fn updates_per_epoch(&self, experiment: &Experiment) -> u64 {
        self.loader(experiment, 0).updates_per_epoch()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::BUILT_IN;
    use gatework_train::experiment::Source;

    fn built_in(change: impl Fn(&str) -> String) -> Result<Dataset, DatasetError> {
        let text = change(BUILT_IN[0].1);
        Dataset::load(&ForecastExperiment::from_source(&Source::new(&text, "x", ".")).unwrap())
    }

    #[test]
    fn built_in_data_are_read_and_scaled() {
        let dataset = built_in(str::to_string).unwrap();
        assert_eq!((dataset.table.values(), dataset.season), (144, 12));
        let train = &dataset.scaled.series[0].values[..108];
        assert!(train.iter().sum::<f64>().abs() < 1e-3);
        assert_eq!(dataset.windows(Subset::Train, 1).len(), 108 - 24 - 12 + 1);
        assert_eq!(dataset.windows(Subset::Validation, 1).len(), 13);
        assert_eq!(dataset.windows(Subset::Test, 1).len(), 1);
    }

    #[test]
    fn the_scale_of_training_is_kept() {
        let loaded = ForecastExperiment::from_source(&Source::new(BUILT_IN[0].1, "x", ".")).unwrap();
        let dataset = Dataset::load(&loaded).unwrap();
        let mut context = dataset.context(&loaded.experiment);
        let again = Dataset::load_for(&loaded, &context).unwrap();
        assert_eq!(again.scaled.series, dataset.scaled.series);
        // As if half of the data had been added later.
        let mut early = Table::clone(&dataset.table);
        early.series[0].values.truncate(72);
        context.scaler = Scaler::fit(&loaded.experiment.scaling, &early, &loaded.experiment.split);
        let scaled = &Dataset::load_for(&loaded, &context).unwrap().scaled;
        assert_eq!(*scaled.series, *context.scaler.apply(&dataset.table).unwrap().series);
        assert_ne!(scaled.series, dataset.scaled.series);
    }

    #[test]
    fn values_that_are_not_counts_are_located() {
        let counts = |values: [&str; 4]| {
            let rows = values.iter().zip(1..).map(|(value, day)| format!("{day},{value}\n"));
            let rows = rows.collect::<Vec<_>>().concat();
            let schema: Schema = toml::from_str("missing = \"drop\"").unwrap();
            let table = read_csv(format!("ds,y\n{rows}").as_bytes(), "x", &schema).unwrap();
            check_counts(&table).map_err(|error| error.to_string())
        };
        assert_eq!(counts(["0", "3", "", "20000000"]), Ok(()));
        for (value, what) in [("-2", "-2 at 2 is negative"), ("1.5", "1.5 at 2 is a fraction")] {
            let message = counts(["0", value, "1", "1"]).unwrap_err();
            assert!(message.starts_with(&format!("series \"y\": {what}")), "{message}");
        }
    }

    #[test]
    fn built_in_data_are_counts() {
        let counts = |text: &str| {
            let text = text.replace("loss = \"mse\"", "loss = \"negative-binomial\"");
            text.replace("log = true", "method = \"none\"")
        };
        assert!(built_in(counts).is_ok());
    }

    #[test]
    fn short_subsets_are_reported() {
        let short = built_in(|text| text.replace("input = 24", "input = 100")).unwrap_err().to_string();
        assert!(short.contains("has 108 values for training, but a window needs 112"), "{short}");
        let none =
            built_in(|text| text.replace("validation = 24", "validation = 11")).unwrap_err().to_string();
        assert!(none.contains("at least the 12 steps"), "{none}");
    }
}
