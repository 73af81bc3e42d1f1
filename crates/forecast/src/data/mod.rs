//! Data for training: tables of time series, windows over them, batches.
//!
//! | module | what is in it |
//! |---|---|
//! | [`Table`], [`Schema`] | many series on one grid, and how to ask for them |
//! | [`read`] | files: CSV, plain or gzip; Parquet with the feature of that name |
//! | [`Windows`], [`Split`] | windows over a table; train, validation and test by time |
//! | [`Loader`] | batches in an order that a seed decides, prepared by a thread of their own |
//! | [`scale`] | values brought to one size, and back |
//! | [`calendar`] | hours, weekdays, months and Fourier terms as columns known in advance |
//! | [`time`], [`frequency`] | points in time, and the grid they lie on |
//! | [`Batch`] | what one step of training reads |

mod batch;
pub mod calendar;
mod collect;
mod csv;
mod error;
pub mod frequency;
mod gaps;
mod loader;
#[cfg(feature = "parquet")]
mod parquet;
pub mod scale;
mod split;
mod table;
pub mod time;
mod windows;

use std::path::Path;

pub use batch::{Batch, BatchShape};
pub use csv::read_csv;
pub use error::{DataError, DataProblem};
pub use loader::{BatchSource, Loader, LoaderError, fill_in_order};
pub use split::{Length, Split, Subset};
pub use table::{Columns, Layout, Missing, Report, Schema, Series, Table, Target};
pub use windows::{WindowError, WindowSizes, Windows};

use gatework_train::files::FileError;

/// Reads a table from a file: Parquet if its name ends so (and this program was built to read it), else CSV, which may
/// be compressed with gzip.
pub fn read(path: &Path, schema: &Schema) -> Result<Table, DataError> {
    let cannot = |error| FileError { action: "read", path: path.to_path_buf(), error };
    let file = std::fs::File::open(path).map_err(cannot)?;
    let origin = path.display().to_string();
    if path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet")) {
        return read_parquet(file, &origin, schema);
    }
    read_csv(std::io::BufReader::with_capacity(1 << 16, file), &origin, schema)
}

#[cfg(feature = "parquet")]
fn read_parquet(file: std::fs::File, origin: &str, schema: &Schema) -> Result<Table, DataError> {
    parquet::read(file, origin, schema)
}

#[cfg(not(feature = "parquet"))]
fn read_parquet(_: std::fs::File, origin: &str, _: &Schema) -> Result<Table, DataError> {
    let advice = "this program was built without Parquet; build it with --features parquet, or write CSV";
    Err(DataProblem::Unreadable(advice.into()).at(origin, None))
}
