//! The data of an experiment: read, scaled, cut into windows; and how they reach the trainer.

use std::path::Path;
use std::sync::Arc;

use super::definition::{BUILT_IN_DATA, Experiment, Loaded};
use crate::data::calendar::CalendarError;
use crate::data::scale::{Scaler, UnknownSeries};
use crate::data::{
    self, DataError, Loader, Part, Schema, Sizes, Split, Table, WindowError, Windows, read_csv,
};
use crate::network::loss::Loss;
use crate::prediction::Context;
use crate::prediction::conformal::Conformal;
use crate::training::Training;

/// Data that cannot be used for an experiment.
#[derive(Debug, thiserror::Error)]
pub enum DatasetError {
    /// The file is wrong.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The columns of the calendar cannot be added.
    #[error(transparent)]
    Calendar(#[from] CalendarError),
    /// A series without a scale.
    #[error(transparent)]
    Scale(#[from] UnknownSeries),
    /// Values that the loss has no probability for.
    #[error(
        "series {id:?}: {value} at {time} is {what}, but the loss \"negative-binomial\" needs counts (0, 1, 2, ...); set another loss, such as \"gaussian\""
    )]
    NotCounts {
        /// The series.
        id: String,
        /// The value.
        value: f64,
        /// Its time.
        time: String,
        /// What it is instead.
        what: &'static str,
    },
    /// There are too few values.
    #[error(transparent)]
    Windows(#[from] WindowError),
    /// There is nothing to choose the best parameters by.
    #[error(
        "the validation part has no window: it needs at least the {horizon} steps of the horizon, without gaps and from a value that was not interpolated (split.validation)"
    )]
    NoValidation {
        /// The horizon.
        horizon: usize,
    },
}

/// The data of an experiment.
#[derive(Clone, Debug)]
pub struct Dataset {
    /// As they were read, with the columns of the calendar.
    pub table: Arc<Table>,
    /// As the model sees them.
    pub scaled: Arc<Table>,
    /// From one to the other.
    pub scaler: Scaler,
    /// Steps of a season.
    pub season: usize,
    sizes: Sizes,
    split: Split,
}

/// Reads the table of an experiment: one that ships with the project, or its file, with what comes afterwards.
pub fn read(loaded: &Loaded) -> Result<Table, DataError> {
    let experiment = &loaded.experiment;
    let mut table = match loaded.data_file()? {
        Some(path) => data::read(&path, &experiment.columns)?,
        None => read_built_in(&experiment.data, &experiment.columns)?,
    };
    if let Some(path) = loaded.test_file()? {
        let after = data::read(&path, &experiment.columns)?;
        let origin = path.display().to_string();
        table.go_on_with(after).map_err(|problem| problem.at(&origin, None))?;
    }
    Ok(table)
}

/// Reads and checks the table of an experiment, and adds the columns of the calendar.
fn read_with_calendar(loaded: &Loaded) -> Result<Table, DatasetError> {
    let mut table = read(loaded)?;
    if loaded.experiment.loss == Loss::NegativeBinomial {
        check_counts(&table)?;
    }
    loaded.experiment.calendar.add(&mut table, loaded.experiment.horizon)?;
    Ok(table)
}

/// Reads a table that ships with the project.
fn read_built_in(name: &str, schema: &Schema) -> Result<Table, DataError> {
    let text = BUILT_IN_DATA.iter().find(|(known, _)| *known == name).map_or("", |(_, text)| text);
    read_csv(text.as_bytes(), name, schema)
}

/// Reads a table from a file, or one that ships with the project if there is no such file.
pub fn read_file_or_built_in(path: &Path, schema: &Schema) -> Result<Table, DataError> {
    let built_in = path.to_str().filter(|name| BUILT_IN_DATA.iter().any(|(known, _)| known == name));
    match built_in.filter(|_| !path.exists()) {
        Some(name) => read_built_in(name, schema),
        None => data::read(path, schema),
    }
}

/// An error at the first value that is no count. Gaps are none either, but no window touches them.
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
    /// Reads and checks the data of an experiment, and scales them by what their training part says.
    pub fn load(loaded: &Loaded) -> Result<Dataset, DatasetError> {
        let table = read_with_calendar(loaded)?;
        let scaler = Scaler::fit(&loaded.experiment.scaling, &table, &loaded.experiment.split);
        Dataset::new(&loaded.experiment, table, scaler)
    }

    /// Reads and checks the data of an experiment, and scales them as the model was trained: the data may have grown.
    pub fn load_for(loaded: &Loaded, context: &Context) -> Result<Dataset, DatasetError> {
        Dataset::new(&loaded.experiment, read_with_calendar(loaded)?, context.scaler.clone())
    }

    fn new(experiment: &Experiment, table: Table, scaler: Scaler) -> Result<Dataset, DatasetError> {
        let sizes =
            Sizes { input: experiment.input(), horizon: experiment.horizon, stride: experiment.stride };
        let season = experiment.season.unwrap_or_else(|| table.frequency.season());
        let scaled = Arc::new(scaler.apply(&table)?);
        let split = experiment.split;
        let dataset = Dataset { table: Arc::new(table), scaled, scaler, season, sizes, split };
        dataset.windows(Part::Train, experiment.stride).check(&split, experiment.leave_out_short)?;
        if dataset.windows(Part::Validation, 1).is_empty() {
            return Err(DatasetError::NoValidation { horizon: experiment.horizon });
        }
        Ok(dataset)
    }

    /// What the model needs to know of its data, with no intervals yet.
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

    /// The windows of a part.
    pub fn windows(&self, part: Part, stride: usize) -> Windows {
        Windows::new(&self.scaled, Sizes { stride, ..self.sizes }, &self.split, part)
    }

    /// The windows for the trainer, in the order of a seed, prepared by a thread of their own.
    pub fn loader(&self, experiment: &Experiment, seed: u64) -> Loader {
        let training = Arc::new(self.windows(Part::Train, self.sizes.stride));
        let validation = Arc::new(self.windows(Part::Validation, 1));
        let Training { batch, together, .. } = experiment.training;
        Loader::new(training, validation, batch, seed).together(together)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::BUILT_IN;
    use gatework_train::experiment::Source;

    fn built_in(change: impl Fn(&str) -> String) -> Result<Dataset, DatasetError> {
        let text = change(BUILT_IN[0].1);
        Dataset::load(&Loaded::from_source(&Source::new(&text, "x", ".")).unwrap())
    }

    #[test]
    fn the_data_that_ship_are_read_and_scaled() {
        let dataset = built_in(str::to_string).unwrap();
        assert_eq!((dataset.table.values(), dataset.season), (144, 12));
        let train = &dataset.scaled.series[0].values[..108];
        assert!(train.iter().sum::<f64>().abs() < 1e-3);
        assert_eq!(dataset.windows(Part::Train, 1).len(), 108 - 24 - 12 + 1);
        assert_eq!(dataset.windows(Part::Validation, 1).len(), 13);
        assert_eq!(dataset.windows(Part::Test, 1).len(), 1);
    }

    #[test]
    fn a_model_is_evaluated_with_the_scale_it_was_trained_with() {
        let loaded = Loaded::from_source(&Source::new(BUILT_IN[0].1, "x", ".")).unwrap();
        let dataset = Dataset::load(&loaded).unwrap();
        let mut context = dataset.context(&loaded.experiment);
        let again = Dataset::load_for(&loaded, &context).unwrap();
        assert_eq!(again.scaled.series, dataset.scaled.series);
        // As if half of the data had come later.
        let mut early = Table::clone(&dataset.table);
        early.series[0].values.truncate(72);
        context.scaler = Scaler::fit(&loaded.experiment.scaling, &early, &loaded.experiment.split);
        let scaled = &Dataset::load_for(&loaded, &context).unwrap().scaled;
        assert_eq!(*scaled.series, *context.scaler.apply(&dataset.table).unwrap().series);
        assert_ne!(scaled.series, dataset.scaled.series);
    }

    #[test]
    fn values_that_are_no_counts_are_named() {
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
    fn the_data_that_ship_are_counts() {
        let counts = |text: &str| {
            let text = text.replace("loss = \"mse\"", "loss = \"negative-binomial\"");
            text.replace("log = true", "method = \"none\"")
        };
        assert!(built_in(counts).is_ok());
    }

    #[test]
    fn too_few_values_are_named() {
        let short = built_in(|text| text.replace("input = 24", "input = 100")).unwrap_err().to_string();
        assert!(short.contains("has 108 values for training, but a window needs 112"), "{short}");
        let none =
            built_in(|text| text.replace("validation = 24", "validation = 11")).unwrap_err().to_string();
        assert!(none.contains("at least the 12 steps"), "{none}");
    }
}
