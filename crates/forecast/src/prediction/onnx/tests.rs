//! The graph of a forecaster equals its predictions, run by the engine and by ONNX Runtime.

use std::fmt::Write as _;

use gatework_engine::Program;
use gatework_test_support::onnx::{Case, Judge, Numbers, Tensor as Numpy};

use super::*;
use crate::Forecaster;
use crate::data::{Subset, Windows};
use crate::experiment::{Dataset, ForecastExperiment};
use gatework_train::experiment::Source;

const HORIZON: usize = 5;
const INPUT: usize = 12;

/// Small settings of every model that can be exported.
const MODELS: [&str; 9] = [
    "'dlinear'",
    "'nlinear'",
    "'decomposition'",
    "{ kind = 'nbeats', stacks = [{ basis = 'trend', blocks = 2, width = 8 }, { basis = 'generic', blocks = 1, width = 8 }] }",
    "{ kind = 'nhits', width = 8 }",
    "{ kind = 'tcn', channels = [4, 6] }",
    "{ kind = 'gru', hidden = 7 }",
    "{ kind = 'lstm', hidden = 6 }",
    "{ kind = 'transformer', patch = 4, stride = 2, width = 8, heads = 2, layers = 1, feed_forward = 8 }",
];

/// Series of different magnitudes: a meter at 2e8, counts around 100, and small numbers.
const SERIES_IDS: [&str; 3] = ["count", "meter", "small"];

fn table() -> String {
    let mut text = String::from("unique_id,ds,y,price,holiday,size\n");
    for (place, id) in SERIES_IDS.iter().enumerate() {
        for day in 0..60u32 {
            let wave = f64::from(day % 7) - 3.0 + 0.05 * f64::from(day);
            let y = [(100.0 + 3.0 * wave).round(), 2e8 + 5.0 * wave, 0.02 + 1e-3 * wave][place];
            let _ =
                writeln!(text, "{id},{day},{y},{},{},{}", day % 5, u32::from(day % 6 == 0), place * place);
        }
    }
    text
}

/// An untrained predictor and its data.
fn predictor(model: &str, settings: &str) -> (Predictor, Dataset) {
    let text = format!(
        "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = {model}\nhorizon = {HORIZON}\ninput = {INPUT}\n{settings}"
    );
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("x.csv"), table()).unwrap();
    let loaded = ForecastExperiment::from_source(&Source::new(&text, "x", folder.path())).unwrap();
    let dataset = Dataset::load(&loaded).unwrap();
    let specification = loaded.experiment.specification();
    let params = specification.params(1).unwrap();
    let context = dataset.context(&loaded.experiment);
    (Predictor::new(Forecaster::new(specification, params).unwrap(), context), dataset)
}

/// Windows in units of the data, and their predictions.
struct Batch {
    inputs: Vec<Numpy>,
    outputs: Vec<Numpy>,
    /// The scale of the series of each window.
    units: Vec<f64>,
}

/// Windows of all series.
fn batch(predictor: &mut Predictor, dataset: &Dataset, rows: usize) -> Batch {
    let windows: Windows = dataset.windows(Subset::Train, 1);
    let all = windows.len() as u32;
    let numbers: Vec<u32> = (0..rows as u32).map(|row| row * 17 % all).collect();
    let predictions = predictor.predict_windows(&windows, &numbers, &dataset.table).unwrap();
    let specification = predictor.specification().clone();
    let scaler = &predictor.context().scaler;
    let shape = specification.shape(rows);
    let before = predictor.context().min_history(&specification);
    let [mut history, mut past, mut future, mut fixed] = [const { Vec::new() }; 4];
    let (mut series_numbers, mut units) = (Vec::new(), Vec::new());
    for &number in &numbers {
        let (place, origin) = windows.origin(number as usize).unwrap();
        let series = &dataset.table.series[place];
        history.extend_from_slice(&series.values[origin - before..origin]);
        let rows_of = |values: &[f64], width: usize, begin: usize, end: usize| {
            values[begin * width..end * width].to_vec()
        };
        let begin = origin - INPUT;
        past.extend(rows_of(&series.past, shape.past_columns, begin, origin));
        future.extend(rows_of(&series.future, shape.future_columns, begin, origin + HORIZON));
        fixed.extend_from_slice(&series.fixed);
        series_numbers.push(SERIES_IDS.iter().position(|id| *id == series.id).unwrap() as i64);
        let fit = scaler.of(&series.id).unwrap();
        units.push(if scaler.scaling.log { series.values[origin - 1].abs() } else { fit.scale });
    }
    let floats =
        |name: &str, sizes: &[usize], numbers: Vec<f64>| Numpy::new(name, sizes, Numbers::F64(numbers));
    let mut inputs = vec![floats("history", &[rows, before], history)];
    if scaler.fits().len() > 1 {
        inputs.push(Numpy::new(SERIES, &[rows], Numbers::I64(series_numbers)));
    }
    for (name, steps, width, numbers) in [
        ("past_covariates", Some(INPUT), shape.past_columns, past),
        ("future_covariates", Some(INPUT + HORIZON), shape.future_columns, future),
        ("static_covariates", None, shape.static_columns, fixed),
    ] {
        if width > 0 {
            let sizes: Vec<usize> = [Some(rows), steps, Some(width)].into_iter().flatten().collect();
            inputs.push(floats(name, &sizes, numbers));
        }
    }
    let values = predictions.iter().flat_map(|prediction| prediction.values.clone()).collect();
    Batch { inputs, outputs: vec![floats("forecast", &[rows, HORIZON], values)], units }
}

/// Runs the graph of windows with the engine.
fn run(predictor: &Predictor, batch: &Batch) -> Vec<f64> {
    let graph = predictor.window_graph(batch.units.len()).unwrap();
    let mut runner = Program::new(&graph).unwrap().runner();
    let params = predictor.forecaster().params();
    for tensor in params.tensors() {
        runner.write(&tensor.name, &params.values[tensor.range.clone()]).unwrap();
    }
    for input in &batch.inputs {
        match &input.numbers {
            Numbers::F64(numbers) => runner.write(&input.name, numbers),
            Numbers::I64(numbers) => runner.write(&input.name, numbers),
            other => panic!("{other:?} is not an input of a forecaster"),
        }
        .unwrap();
    }
    runner.run();
    runner.read::<f64>("forecast").unwrap().to_vec()
}

const COVARIATES: &str = "[columns]\npast = ['price']\nfuture = ['holiday']\nstatic = ['size']
    [calendar]\nfourier = [{ period = 7, order = 1 }]\n";

/// Losses and scalings, which are tested with one model.
const SETTINGS: [&str; 15] = [
    "loss = 'quantiles'",
    "loss = { kind = 'quantiles', levels = [0.1, 0.2, 0.6, 0.9] }",
    "loss = { kind = 'quantile', level = 0.9 }",
    "loss = 'gaussian'",
    "loss = 'student-t'",
    "loss = 'gaussian'\nscaling = { log = true }",
    "normalization = 'instance'",
    "normalization = 'scale'\nscaling = { method = 'min-max' }",
    "scaling = { scope = 'global', method = 'robust' }",
    "scaling = { log = true }",
    "scaling = { clip = 1.0 }",
    "scaling = { difference = 1 }",
    "scaling = { difference = 7, log = true, clip = 1.5 }",
    "scaling = { difference = 3, clip = 2.0 }",
    "loss = 'quantiles'\nscaling = { difference = 2 }",
];

/// Every model with and without covariates, and every loss and scaling.
fn configurations() -> Vec<(&'static str, String)> {
    let models = MODELS.iter().flat_map(|model| [(*model, String::new()), (*model, COVARIATES.to_string())]);
    let settings = SETTINGS.iter().map(|settings| ("'dlinear'", (*settings).to_string()));
    models.chain(settings).collect()
}

#[test]
fn the_graph_of_windows_equals_the_predictions() {
    for (model, settings) in configurations() {
        let (mut predictor, dataset) = predictor(model, &settings);
        let batch = batch(&mut predictor, &dataset, 7);
        let Numbers::F64(right) = &batch.outputs[0].numbers else { panic!("forecasts are f64") };
        for (place, (ours, right)) in run(&predictor, &batch).iter().zip(right).enumerate() {
            let error = (ours - right).abs() / batch.units[place / HORIZON];
            assert!(error < 1e-5, "{model} {settings}: {ours} for {right}");
        }
    }
}

#[test]
fn onnx_runtime_gives_the_same_forecasts() {
    let Some(judge) = Judge::find() else { return };
    let mut cases = Vec::new();
    for (model, settings) in configurations() {
        let (mut predictor, dataset) = predictor(model, &settings);
        let bytes = predictor.to_onnx().unwrap();
        for rows in [1, 32] {
            let Batch { inputs, outputs, units } = batch(&mut predictor, &dataset, rows);
            let name = format!("{model} {} batch {rows}", settings.replace('\n', " "));
            cases.push(Case { name, model: bytes.clone(), inputs, outputs, units, tolerance: 1e-5 });
        }
    }
    println!("{}", judge.check(&cases));
}
