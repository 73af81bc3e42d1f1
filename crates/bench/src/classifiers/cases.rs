//! Tables and splits for peers: `classifiers.json` maps the name of a table to its columns, its labels and the test rows of
//! each seed. Peers train on all other rows, which we divide into those that are trained on and those that select the epoch.

use std::path::Path;

use anyhow::Context as _;
use gatework_gates::classifier::data::{Dataset, Kind};
use gatework_train::files;
use serde_json::{Map, Value, json};

use super::Classifiers;

impl Classifiers {
    /// Writes the selected tables.
    pub(super) fn write_cases(&self, folder: &Path) -> anyhow::Result<()> {
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let mut cases = Map::new();
        for experiment in self.experiments()? {
            let (mut case, mut splits) = (Value::Null, Vec::new());
            for seed in self.prepare(&experiment) {
                let (_, prepared) = seed.with_context(|| experiment.name.clone())?;
                let test =
                    prepared.test.as_ref().with_context(|| format!("{}: no test rows", experiment.name))?;
                // Official test rows are a data set of their own, appended to the other rows.
                let train = &prepared.train.data;
                let is_apart = !std::sync::Arc::ptr_eq(train, &test.data);
                let first = if is_apart { train.rows() as u32 } else { 0 };
                splits.push(test.rows.iter().map(|row| row + first).collect::<Vec<u32>>());
                if case.is_null() {
                    let whole = Dataset::clone(train);
                    case = table(&if is_apart { whole.join(Dataset::clone(&test.data))? } else { whole });
                }
            }
            case["test_rows"] = json!(splits);
            cases.insert(experiment.name.clone(), case);
        }
        files::write_atomic(&folder.join("classifiers.json"), Value::Object(cases).to_string().as_bytes())?;
        Ok(())
    }
}

/// Returns the columns and labels of a data set. A missing value is null.
fn table(data: &Dataset) -> Value {
    let columns: Vec<Value> = (0..data.features().len())
        .map(|column| {
            let values: Vec<f32> = (0..data.rows()).map(|row| data.value(row, column)).collect();
            let categories = match &data.features()[column].kind {
                Kind::Categorical(names) => Some(names.len()),
                _ => None,
            };
            json!({ "name": data.features()[column].name, "categories": categories, "values": values })
        })
        .collect();
    json!({ "columns": columns, "labels": data.labels(), "classes": data.classes().len() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Bench;
    use clap::Parser as _;

    #[test]
    fn peers_get_all_rows_and_a_split_for_each_seed() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().display().to_string();
        let arguments = [
            "gatework-bench",
            "classifiers",
            "--only",
            "monk-1",
            "--only",
            "iris",
            "--seeds",
            "2",
            "--cases",
            &path,
        ];
        Bench::try_parse_from(arguments)?.run()?;
        let cases: Value = serde_json::from_slice(&std::fs::read(folder.path().join("classifiers.json"))?)?;
        let rows = |name: &str| cases[name]["labels"].as_array().map_or(0, Vec::len);
        assert_eq!((rows("monk-1"), rows("iris")), (124 + 432, 150));
        assert_eq!(cases["monk-1"]["columns"][0]["categories"], json!(3));
        let tests: [Vec<Vec<usize>>; 2] = [
            serde_json::from_value(cases["monk-1"]["test_rows"].clone())?,
            serde_json::from_value(cases["iris"]["test_rows"].clone())?,
        ];
        assert_eq!(tests[0], vec![(124..556).collect::<Vec<usize>>(); 2]);
        assert!(tests[1].len() == 2 && tests[1][0].len() == 30 && tests[1][0] != tests[1][1]);
        Ok(())
    }
}
