//! Data for training: tables of time series, windows over them, batches.
//!
//! | module | what is in it |
//! |---|---|
//! | [`Table`], [`Schema`] | many series on one grid, and how to ask for them |
//! | [`read`] | files: CSV, plain or gzip |
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
pub mod scale;
mod split;
mod table;
pub mod time;
mod windows;

use std::path::Path;

pub use batch::{Batch, BatchShape};
pub use csv::read_csv;
pub use error::{DataError, Problem};
pub use loader::{Loader, LoaderError, fill_in_order};
pub use split::{Length, Part, Split};
pub use table::{Columns, Layout, Missing, Report, Schema, Series, Table, Target};
pub use windows::{Sizes, WindowError, Windows};

use crate::files::FileError;

/// Reads a table from a file. CSV may be compressed with gzip.
pub fn read(path: &Path, schema: &Schema) -> Result<Table, DataError> {
    let file = std::fs::File::open(path).map_err(|error| FileError {
        action: "read",
        path: path.to_path_buf(),
        error,
    })?;
    read_csv(std::io::BufReader::with_capacity(1 << 16, file), &path.display().to_string(), schema)
}
