//! Data without an experiment: whether they are rows with classes, which a classifier learns, or values over time.
//!
//! | data | what they are |
//! |---|---|
//! | a folder, IDX images, a CIFAR batch | images with classes |
//! | a table of which the column of the classes is given | rows with classes |
//! | a table with a column of dates | values over time |
//! | a table with whole numbers in a column such as `time` or `step`, and many numbers in the column of the classes | values over time |
//! | any other table | rows with classes |

use std::fs::File;
use std::io::BufReader;
use std::path::Path;

use gatework_forecast::data::guess::{TimeColumn, time_column};
use gatework_gates::classifier::choose::{self, Chosen, Request};
use gatework_gates::classifier::experiment::ClassifierExperiment;
use gatework_gates::classifier::run::RunError;
use gatework_train::experiment::Source;

/// Most numbers that are taken for classes if a column may have the times of the rows.
const MAX_NUMBERS: usize = 10;

/// What data are.
#[derive(Debug)]
pub enum Data {
    /// Rows with classes.
    Labelled(Box<Labelled>),
    /// Values over time.
    OverTime {
        /// The column of the times.
        times: String,
        /// The column that has the classes, if there are classes.
        label: Option<String>,
    },
}

/// Rows with classes, and the experiment that was chosen for them.
#[derive(Debug)]
#[non_exhaustive]
pub struct Labelled {
    /// The experiment.
    pub loaded: ClassifierExperiment,
    /// Sentences about what was found in the data, for people.
    pub found: Vec<String>,
    /// A column of whole numbers that may have the times of the rows, although that is unlikely.
    pub times: Option<String>,
}

/// Tells what data are, and chooses an experiment for rows with classes.
pub fn examine(path: &Path, request: &Request) -> Result<Data, RunError> {
    let of_file = || time_column(BufReader::new(File::open(path).ok()?));
    let times = if request.label.is_none() && path.is_file() { of_file() } else { None };
    let chosen = choose::data(path, request);
    if let Some(TimeColumn { name, has_dates, .. }) = times {
        let chosen = match chosen {
            Ok(chosen) if !has_dates && are_classes(&chosen) => chosen,
            other => {
                let label = other.ok().filter(are_classes).and_then(|chosen| chosen.label);
                return Ok(Data::OverTime { times: name, label });
            }
        };
        return labelled(path, chosen, Some(name));
    }
    labelled(path, chosen?, None)
}

/// Whether classes are not the many numbers of a quantity.
fn are_classes(chosen: &Chosen) -> bool {
    let is_number = |class: &String| class.parse::<f64>().is_ok();
    chosen.classes.len() <= MAX_NUMBERS || !chosen.classes.iter().all(is_number)
}

fn labelled(path: &Path, chosen: Chosen, times: Option<String>) -> Result<Data, RunError> {
    // Relative paths are those of the current folder.
    let source = Source::new(chosen.experiment.to_toml(), path.display().to_string(), "");
    let loaded = ClassifierExperiment::from_source(&source)?;
    let times = times.filter(|times| chosen.label.as_ref() != Some(times));
    Ok(Data::Labelled(Box::new(Labelled { loaded, found: chosen.found, times })))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn examined(
        lines: impl Fn(usize) -> String,
        header: &str,
        label: Option<&str>,
    ) -> Result<Data, RunError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("table.csv");
        let rows: Vec<String> = (0..60).map(lines).collect();
        std::fs::write(&path, format!("{header}\n{}\n", rows.join("\n"))).unwrap();
        examine(&path, &Request { label: label.map(str::to_string), test: None })
    }

    #[test]
    fn a_table_with_dates_is_values_over_time_unless_the_classes_are_named() {
        let line =
            |row: usize| format!("2024-{:02}-{:02},{},{}", 1 + row / 28, 1 + row % 28, row % 7, row % 2);
        let Ok(Data::OverTime { times, label }) = examined(line, "when,x,busy", None) else {
            panic!("a table with dates");
        };
        assert_eq!((times.as_str(), label.as_deref()), ("when", Some("busy")));
        assert!(matches!(examined(line, "when,x,busy", Some("busy")), Ok(Data::Labelled(_))));
    }

    #[test]
    fn whole_numbers_are_times_only_if_the_last_column_is_a_quantity() {
        let classes = |row: usize| format!("{row},{},{}", row % 7, row % 2);
        let quantity = |row: usize| format!("{row},{},{}", row % 7, row % 25);
        for (lines, header, is_labelled) in [
            (classes as fn(usize) -> String, "time,x,kind", true),
            (classes, "a,x,kind", true),
            (quantity, "time,x,sold", false),
            (quantity, "a,x,sold", true),
        ] {
            let data = examined(lines, header, None).unwrap();
            assert_eq!(matches!(data, Data::Labelled(_)), is_labelled, "{header}");
        }
    }
}
