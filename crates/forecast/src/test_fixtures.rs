//! Untrained forecasters for tests.

use std::fmt::Write as _;

use crate::TrainedNetwork;
use crate::data::Table;
use crate::experiment::{BUILT_IN, Dataset, ForecastExperiment};
use crate::prediction::conformal::CalibrationErrors;
use crate::prediction::{Context, Forecaster};
use gatework_train::experiment::Source;

/// Returns a forecaster for the built-in experiment, edited by `change`, with initial parameters, and its data.
pub fn untrained(change: impl Fn(String) -> String) -> (Forecaster, Dataset) {
    let text = change(BUILT_IN[0].1.to_string());
    let loaded = ForecastExperiment::from_source(&Source::new(&text, "x", ".")).unwrap();
    let dataset = Dataset::load(&loaded).unwrap();
    let experiment = &loaded.experiment;
    let mut errors = CalibrationErrors::new(experiment.horizon, dataset.season);
    errors.add("Passengers", &dataset.table.series[0].values, &[1.0; 12], &[0.0; 12]);
    let conformal = errors.calibrate(&experiment.intervals);
    let context = Context { conformal, ..dataset.context(experiment) };
    let specification = experiment.specification();
    let params = specification.params(1).unwrap();
    (Forecaster::new(TrainedNetwork::new(specification, params).unwrap(), context), dataset)
}

/// Returns [`untrained`] with another model and loss.
pub fn untrained_model(model: &str, loss: &str) -> (Forecaster, Dataset) {
    untrained(|text| {
        let text = text.replace("\"dlinear\"", &format!("\"{model}\""));
        text.replace("\"mse\"", &format!("\"{loss}\""))
    })
}

/// Returns an untrained forecaster that reads covariates of every kind, and a table of two series.
pub fn with_covariates() -> (Forecaster, Table) {
    let mut text = String::from("unique_id,ds,y,price,holiday,size\n");
    for id in ["a", "b"] {
        for day in 0..44 {
            let y = if day < 40 { (day % 7 + day).to_string() } else { String::new() };
            let price = if day < 40 { (day % 5).to_string() } else { String::new() };
            let size = id.len() + usize::from(id == "b");
            let holiday = u32::from(day % 6 == 0);
            let _ = writeln!(text, "{id},{day},{y},{price},{holiday},{size}");
        }
    }
    let experiment =
        "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = 'nlinear'\nhorizon = 4\ninput = 8
        [columns]\npast = ['price']\nfuture = ['holiday']\nstatic = ['size']
        [calendar]\nfourier = [{ period = 7, order = 1 }]";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.csv"), text).unwrap();
    let loaded = ForecastExperiment::from_source(&Source::new(experiment, "x", folder.path())).unwrap();
    let dataset = Dataset::load(&loaded).unwrap();
    let specification = loaded.experiment.specification();
    let params = specification.params(1).unwrap();
    let context = dataset.context(&loaded.experiment);
    let table = crate::experiment::dataset::read(&loaded).unwrap();
    (Forecaster::new(TrainedNetwork::new(specification, params).unwrap(), context), table)
}
