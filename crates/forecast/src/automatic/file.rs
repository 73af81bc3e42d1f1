//! The settings of an automatic forecast as a TOML file, which repeats it.
//!
//! ```toml
//! task = "forecast"
//! data = "sales.csv"
//! horizon = 28
//! levels = [0.8, 0.95]
//! seasons = [7.0, 365.25]
//! models = ["ets", "regression"]
//!
//! [columns]
//! time = "date"
//! target = "sales"
//! ```

use std::path::{Path, PathBuf};

use gatework_train::files::FileError;
use serde::{Deserialize, Serialize};

use crate::data::Schema;

/// The value of `task`.
const TASK: &str = "forecast";

/// The settings of an automatic forecast.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct ForecastFile {
    task: String,
    /// The table. [`ForecastFile::read`] makes it relative to the current folder.
    pub data: PathBuf,
    /// Steps to forecast.
    pub horizon: usize,
    /// Interval levels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub levels: Vec<f64>,
    /// Lengths of the seasons; empty: those of the frequency or of the data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seasons: Vec<f64>,
    /// Names of the models to compare; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<String>,
    /// Whether sums of the series are forecast too, so that all add up.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hierarchy: bool,
    /// Code of the country whose holidays are known-future covariates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holidays: Option<String>,
    /// How the table is read.
    #[serde(default)]
    pub columns: Schema,
}

/// A file of settings that cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForecastFileError {
    /// The file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The content is not that of a forecast.
    #[error("{}:{line}: {problem}", path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// The line.
        line: usize,
        /// What is wrong.
        problem: String,
    },
    /// The task is another one.
    #[error(
        "{}: the task is {task:?}, not \"forecast\"; an experiment is trained with gatework train, and its run forecasts with gatework \
         predict",
        path.display()
    )]
    Task {
        /// The file.
        path: PathBuf,
        /// The task.
        task: String,
    },
}

impl ForecastFile {
    /// Settings for a table.
    pub fn new(data: impl Into<PathBuf>, horizon: usize, columns: Schema) -> ForecastFile {
        let data = data.into();
        ForecastFile {
            task: TASK.into(),
            data,
            horizon,
            levels: vec![],
            seasons: vec![],
            models: vec![],
            hierarchy: false,
            holidays: None,
            columns,
        }
    }

    /// Reads settings. A relative path of the data begins at the folder of the file.
    pub fn read(path: &Path) -> Result<ForecastFile, ForecastFileError> {
        let cannot = |error| FileError { action: "read", path: path.to_path_buf(), error };
        let text = std::fs::read_to_string(path).map_err(cannot)?;
        let task = toml::from_str::<toml::Table>(&text)
            .ok()
            .and_then(|table| Some(table.get("task")?.as_str()?.to_string()));
        if let Some(task) = task.filter(|task| task != TASK) {
            return Err(ForecastFileError::Task { path: path.to_path_buf(), task });
        }
        let mut file: ForecastFile = toml::from_str(&text).map_err(|error| {
            let end = error.span().map_or(0, |span| span.start.min(text.len()));
            let line = text.get(..end).map_or(0, |before| before.matches('\n').count()) + 1;
            ForecastFileError::Content {
                path: path.to_path_buf(),
                line,
                problem: error.message().to_string(),
            }
        })?;
        if file.data.is_relative() {
            file.data = path.parent().unwrap_or(Path::new("")).join(&file.data);
        }
        Ok(file)
    }

    /// Writes the settings as TOML.
    pub fn to_toml(&self) -> String {
        // Only keys that are not strings cannot be written.
        toml::to_string(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("forecast.toml");
        let schema =
            Schema { time: "date".into(), date_format: Some("%d/%m/%Y".into()), ..Schema::default() };
        let mut file = ForecastFile::new("sales.csv", 28, schema);
        file.models = vec!["ets".into()];
        std::fs::write(&path, file.to_toml()).unwrap();
        let read = ForecastFile::read(&path).unwrap();
        assert_eq!(read.data, folder.path().join("sales.csv"));
        assert_eq!(ForecastFile { data: "sales.csv".into(), ..read }, file);
    }

    #[test]
    fn wrong_settings_are_named_with_their_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("forecast.toml");
        let message = |text: &str| {
            std::fs::write(&path, text).unwrap();
            ForecastFile::read(&path).unwrap_err().to_string()
        };
        assert!(
            message("task = \"forecast\"\ndata = \"x\"\nhorizn = 3\n")
                .contains("forecast.toml:3: unknown field `horizn`")
        );
        assert!(message("task = \"forecaster\"\nmodel = \"nhits\"\n").contains("gatework train"));
        assert!(message("horizon = ").contains("forecast.toml:1: "));
        assert!(
            ForecastFile::read(&folder.path().join("none.toml"))
                .unwrap_err()
                .to_string()
                .contains("none.toml")
        );
    }
}
