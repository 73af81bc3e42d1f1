//! Tables of time series, scaling, windows and batches.
//!
//! | item | contents |
//! |---|---|
//! | [`time`], [`frequency`] | points in time, and the regular grid of a table |
//! | [`Table`], [`Schema`] | series on one grid, and the columns of a file |
//! | [`Table::from_series`], [`Table::from_columns`], [`Column`] | tables from series or columns in memory |
//! | [`Table::read`] | tables from CSV files, plain or gzip; Parquet with the feature `parquet` |
//! | `Table::from_record_batches` | tables from Arrow record batches, with the feature `arrow` |
//! | [`calendar`] | calendar features and Fourier terms as known-future covariates |
//! | [`holidays`] | public holidays of countries as known-future covariates |
//! | [`scale`] | scaling of values and covariates, and its inverse |
//! | [`Split`], [`Windows`] | training, validation and test subsets by time, and their windows |
//! | [`Batch`], [`Loader`] | batches of windows, shuffled by seed and prefetched by a thread |

#[cfg(feature = "arrow")]
mod arrow;
mod batch;
pub mod calendar;
mod collect;
mod columns;
mod covariates;
mod csv;
pub mod date_format;
mod error;
pub mod frequency;
mod gaps;
pub mod guess;
pub mod holidays;
mod loader;
mod memory;
mod number;
#[cfg(feature = "parquet")]
mod parquet;
mod rows;
pub mod scale;
mod split;
mod table;
pub mod time;
mod utf16;
mod windows;

use std::path::Path;

pub use batch::{Batch, BatchShape};
pub use columns::Column;
pub use csv::read_csv;
pub use error::{DataError, DataProblem};
pub use loader::{BatchSource, Loader, LoaderError, fill_in_order};
pub use number::Decimal;
pub use split::{Length, Split, Subset};
pub use table::{Columns, Duplicates, Layout, Missing, Report, Schema, Series, Table, Target};
pub use windows::{WindowError, WindowSizes, Windows};

use gatework_train::files::FileError;

impl Table {
    /// Reads a table from a file: Parquet by its file name extension (with the feature `parquet`), otherwise CSV, which may
    /// be compressed with gzip.
    ///
    /// ```no_run
    /// use gatework_forecast::Table;
    /// use gatework_forecast::data::Schema;
    ///
    /// // Columns unique_id, ds, y, and a known-future covariate.
    /// let schema = Schema { future: vec!["promotion".into()], ..Schema::default() };
    /// let table = Table::read("sales.csv", &schema)?;
    /// # Ok::<(), gatework_forecast::data::DataError>(())
    /// ```
    pub fn read(path: impl AsRef<Path>, schema: &Schema) -> Result<Table, DataError> {
        let path = path.as_ref();
        let cannot = |error| FileError { action: "read", path: path.to_path_buf(), error };
        let file = std::fs::File::open(path).map_err(cannot)?;
        let origin = path.display().to_string();
        if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet")) {
            return read_parquet(file, &origin, schema);
        }
        read_csv(std::io::BufReader::with_capacity(1 << 16, file), &origin, schema)
    }
}

#[cfg(feature = "parquet")]
fn read_parquet(file: std::fs::File, origin: &str, schema: &Schema) -> Result<Table, DataError> {
    parquet::read(file, origin, schema)
}

#[cfg(not(feature = "parquet"))]
fn read_parquet(_: std::fs::File, origin: &str, _: &Schema) -> Result<Table, DataError> {
    let advice = "Parquet is not supported by this build; build with --features parquet, or use CSV";
    Err(DataProblem::Unreadable(advice.into()).at(origin, None))
}

/// Returns whether a number is finite in the precision of the models.
pub(crate) fn is_finite_f32(value: f64) -> bool {
    (value as f32).is_finite()
}
