//! The graph of a forecaster equals its predictions, run by the engine and by ONNX Runtime.

use std::fmt::Write as _;

use gatework_engine::Program;
use gatework_test_support::onnx::{Case, Judge, Numbers, Tensor as Numpy};

use super::*;
use crate::data::scale::{FittedScale, Method, Scaling};
use crate::data::{self, Subset, Windows};
use crate::experiment::{Dataset, ForecastExperiment};
use crate::trained_network::{Forecast, ForecastKind, TrainedNetwork};
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

/// The first series as CSV.
fn table(series: usize) -> String {
    let mut text = String::from("unique_id,ds,y,price,holiday,size\n");
    for (place, id) in SERIES_IDS[..series].iter().enumerate() {
        for day in 0..60u32 {
            let wave = f64::from(day % 7) - 3.0 + 0.05 * f64::from(day);
            let y = [(100.0 + 3.0 * wave).round(), 2e8 + 5.0 * wave, 0.02 + 1e-3 * wave][place];
            let _ =
                writeln!(text, "{id},{day},{y},{},{},{}", day % 5, u32::from(day % 6 == 0), place * place);
        }
    }
    text
}

/// An untrained forecaster and its data.
fn forecaster(model: &str, settings: &str) -> (Forecaster, Dataset) {
    let text = format!(
        "name = 'x'\ntask = 'forecaster'\ndata = 'x.csv'\nmodel = {model}\nhorizon = {HORIZON}\ninput = {INPUT}\n{settings}"
    );
    let folder = tempfile::tempdir().unwrap();
    // A likelihood of counts needs counts.
    let series = if settings.contains("negative-binomial") { 1 } else { SERIES_IDS.len() };
    std::fs::write(folder.path().join("x.csv"), table(series)).unwrap();
    let loaded = ForecastExperiment::from_source(&Source::new(&text, "x", folder.path())).unwrap();
    let dataset = Dataset::load(&loaded).unwrap();
    let specification = loaded.experiment.specification();
    let params = specification.params(1).unwrap();
    let context = dataset.context(&loaded.experiment);
    (Forecaster::new(TrainedNetwork::new(specification, params).unwrap(), context), dataset)
}

/// Windows in units of the data, and their predictions.
struct Batch {
    inputs: Vec<Numpy>,
    outputs: Vec<Numpy>,
    /// The scale of the series of each window.
    units: Vec<f64>,
}

/// Windows of all series.
fn batch(forecaster: &mut Forecaster, dataset: &Dataset, rows: usize) -> Batch {
    let windows: Windows = dataset.windows(Subset::Train, 1);
    let all = windows.len() as u32;
    let numbers: Vec<u32> = (0..rows as u32).map(|row| row * 17 % all).collect();
    let predictions = forecaster.predict_windows(&windows, &numbers, &dataset.table).unwrap();
    let specification = forecaster.specification().clone();
    let scaler = &forecaster.context().scaler;
    let shape = specification.shape(rows);
    let before = forecaster.context().min_history(&specification);
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
        let last = series.values[origin - 1];
        // The network computes in 32 bits: its errors grow with its inputs, which are large only if they are not scaled.
        let is_scaled = scaler.scaling.method != Method::None;
        units.push(match scaler.scaling.log {
            true => last.abs(),
            false if is_scaled => fit.scale,
            false => fit.scale.max(last.abs()),
        });
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
    let mut outputs = vec![floats("forecast", &[rows, HORIZON], values)];
    let scaling = scaler.scaling;
    if scaling.difference == 0 {
        let fits: Vec<FittedScale> = (0..rows)
            .map(|row| {
                let (place, _) = windows.origin(numbers[row] as usize).unwrap();
                *scaler.of(&dataset.table.series[place].id).unwrap()
            })
            .collect();
        let mut scaled = data::Batch::new(shape);
        windows.fill(&numbers, &mut scaled).unwrap();
        let forecast = forecaster.network().predict(&scaled).unwrap();
        outputs.extend(further_outputs(&forecast, &fits, &scaling));
    }
    Batch { inputs, outputs, units }
}

/// Quantiles, or the dispersion of a distribution, in units of the data.
fn further_outputs(forecast: &Forecast, fits: &[FittedScale], scaling: &Scaling) -> Option<Numpy> {
    let steps = || (0..forecast.rows).flat_map(|row| (0..HORIZON).map(move |step| (row, step)));
    let (name, numbers): (&str, Vec<f64>) = match &forecast.kind {
        ForecastKind::Quantiles(levels) => {
            let quantile = |(row, step): (usize, usize), level: f64| {
                let mut value = [forecast.quantile(row, step, level).unwrap()];
                fits[row].invert(scaling, &[], &mut value);
                value[0]
            };
            let quantiles = steps().flat_map(|place| levels.iter().map(move |&level| quantile(place, level)));
            let sizes = [forecast.rows, HORIZON, levels.len()];
            return Some(Numpy::new("quantiles", &sizes, Numbers::F64(quantiles.collect())));
        }
        ForecastKind::Distribution(distribution) if !scaling.log => {
            let (name, index) = match distribution {
                Distribution::Gaussian => ("standard_deviation", 1),
                Distribution::StudentT => ("spread", 2),
                Distribution::NegativeBinomial => ("dispersion", 1),
            };
            let number =
                |(row, step): (usize, usize)| f64::from(forecast.step(row, step)[index]) * fits[row].scale;
            (name, steps().map(number).collect())
        }
        _ => return None,
    };
    Some(Numpy::new(name, &[forecast.rows, HORIZON], Numbers::F64(numbers)))
}

/// The outputs of the graph of windows, run by the engine.
fn run(forecaster: &Forecaster, batch: &Batch) -> Vec<Vec<f64>> {
    let graph = forecaster.window_graph(batch.units.len()).unwrap();
    let mut runner = Program::new(&graph).unwrap().runner();
    let params = forecaster.network().params();
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
    batch.outputs.iter().map(|output| runner.read::<f64>(&output.name).unwrap().to_vec()).collect()
}

const COVARIATES: &str = "[columns]\npast = ['price']\nfuture = ['holiday']\nstatic = ['size']
    [calendar]\nfourier = [{ period = 7, order = 1 }]\n";

/// Losses and scalings, which are tested with one model.
const SETTINGS: [&str; 16] = [
    "loss = 'quantiles'",
    "loss = { kind = 'quantiles', levels = [0.1, 0.2, 0.6, 0.9] }",
    "loss = { kind = 'quantile', level = 0.9 }",
    "loss = 'gaussian'",
    "loss = 'student-t'",
    "loss = 'negative-binomial'\nnormalization = 'scale'\nscaling = { method = 'none' }",
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
        let (mut forecaster, dataset) = forecaster(model, &settings);
        let batch = batch(&mut forecaster, &dataset, 7);
        for (ours, right) in run(&forecaster, &batch).iter().zip(&batch.outputs) {
            let Numbers::F64(numbers) = &right.numbers else { panic!("forecasts are f64") };
            let per_row = numbers.len() / batch.units.len();
            for (place, (ours, right)) in ours.iter().zip(numbers).enumerate() {
                let error = (ours - right).abs() / batch.units[place / per_row];
                assert!(error < 1e-5, "{model} {settings}: {ours} for {right}");
            }
        }
    }
}

#[test]
fn the_forecast_of_an_unknown_series_is_nan() {
    let (mut forecaster, dataset) = forecaster("{ kind = 'gru', hidden = 3 }", "");
    let mut batch = batch(&mut forecaster, &dataset, 3);
    batch.inputs[1].numbers = Numbers::I64(vec![3, 0, -1]);
    let is_nan: Vec<bool> = run(&forecaster, &batch)[0].iter().map(|x| x.is_nan()).collect();
    assert_eq!(is_nan, [[true; HORIZON], [false; HORIZON], [true; HORIZON]].concat());
}

#[test]
fn a_model_that_draws_samples_is_refused() {
    let (forecaster, _) = forecaster("{ kind = 'deepar', hidden = 3 }", "loss = 'gaussian'");
    let said = forecaster.to_onnx().unwrap_err().to_string();
    assert!(said.starts_with("model deepar draws its forecast from random numbers"), "{said}");
}

#[test]
fn onnx_runtime_gives_the_same_forecasts() {
    let Some(judge) = Judge::find() else { return };
    let mut cases = Vec::new();
    for (model, settings) in configurations() {
        let (mut forecaster, dataset) = forecaster(model, &settings);
        let bytes = forecaster.to_onnx().unwrap();
        for rows in [1, 32] {
            let Batch { inputs, outputs, units } = batch(&mut forecaster, &dataset, rows);
            let name = format!("{model} {} batch {rows}", settings.replace('\n', " "));
            cases.push(Case { name, model: bytes.clone(), inputs, outputs, units, tolerance: 1e-5 });
        }
    }
    println!("{}", judge.check(&cases));
}
