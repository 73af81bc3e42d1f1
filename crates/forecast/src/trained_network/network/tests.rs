//! Tests of forecasters: forecasts, files, quantiles, samples.

use super::*;
use crate::Loss;
use crate::models::{DeepAr, NLinear, Nhits};
use crate::network::distribution::Distribution;
use crate::network::feed::write_padded;
use crate::test_signal::Signal;
use proptest::prelude::*;
use safetensors::{Dtype, tensor::TensorView};

#[test]
fn crossing_quantiles_are_sorted_and_levels_match_up_to_rounding() {
    let levels = vec![0.1, 0.5, 0.9];
    let kind = ForecastKind::Quantiles(levels);
    let forecast = Forecast { rows: 1, horizon: 1, outputs: 3, kind, values: vec![128.0, 115.0, 113.0] };
    // 0.5 - 0.8 / 2 is a little less than 0.1.
    let level = 0.8;
    assert_eq!(forecast.quantile(0, 0, 0.5 - level / 2.0), Some(113.0));
    assert_eq!(forecast.quantile(0, 0, 0.5 + level / 2.0), Some(128.0));
    assert_eq!(forecast.point(0, 0), 115.0);
    assert_eq!(forecast.quantile(0, 0, 0.05), None);
    let kind = ForecastKind::Quantiles(vec![0.1, 0.9]);
    let forecast = Forecast { rows: 1, horizon: 1, outputs: 2, kind, values: vec![2.0, 4.0] };
    assert_eq!(forecast.point(0, 0), 3.0);
}

fn specification(model: Model, loss: Loss) -> Specification {
    Specification {
        model,
        loss,
        normalization: None,
        input: 12,
        horizon: 4,
        past_columns: 1,
        future_columns: 2,
        static_columns: 1,
    }
}

fn network(loss: Loss) -> TrainedNetwork {
    let specification = specification(Model::Nhits(Nhits { width: 8, ..Nhits::default() }), loss);
    let params = specification.params(1).unwrap();
    TrainedNetwork::new(specification, params).unwrap()
}

fn batch(specification: &Specification, rows: usize) -> Batch {
    let mut batch = Batch::default();
    let begins: Vec<usize> = (0..rows).map(|i| 7 * i % 1000).collect();
    Signal::new(specification, 1).fill(&begins, &mut batch);
    batch
}

/// One row of a batch.
fn row(batch: &Batch, row: usize) -> Batch {
    let cut = |numbers: &[f32]| {
        let width = numbers.len() / batch.shape.rows;
        numbers[row * width..(row + 1) * width].to_vec()
    };
    Batch {
        shape: crate::data::BatchShape { rows: 1, ..batch.shape },
        past: cut(&batch.past),
        target: cut(&batch.target),
        past_columns: cut(&batch.past_columns),
        future_columns: cut(&batch.future_columns),
        static_columns: cut(&batch.static_columns),
    }
}

#[test]
fn a_window_has_the_same_forecast_in_any_batch() {
    for loss in [Loss::Mse, Loss::Gaussian] {
        let network = network(loss);
        let batch = batch(network.specification(), 300);
        let together = network.predict(&batch).unwrap();
        for index in [0, 1, 255, 256, 299] {
            let alone = network.predict(&row(&batch, index)).unwrap();
            for step in 0..4 {
                let pairs = alone.step(0, step).iter().zip(together.step(index, step));
                assert!(pairs.into_iter().all(|(a, b)| (a - b).abs() < 1e-4), "row {index}");
            }
        }
    }
}

#[test]
fn programs_are_those_that_ran_and_bias_and_relu_are_fused() {
    let network = network(Loss::Mse);
    let batch = batch(network.specification(), 4);
    network.predict(&batch).unwrap();
    let compiled = |network: &TrainedNetwork| network.programs.count();
    assert_eq!(compiled(&network), 1);
    let kernels = network.programs(4).unwrap()[0].1.kernels();
    assert!(kernels.iter().any(|kernel| kernel.ends_with("bias, relu")), "{kernels:?}");
    assert_eq!(compiled(&network), 1);
    let specification = specification(Model::DeepAr(DeepAr::default()), Loss::Gaussian);
    let specification = Specification { past_columns: 0, ..specification };
    let params = specification.params(1).unwrap();
    let sampling = TrainedNetwork::new(specification, params).unwrap();
    let uses = sampling.programs(4).unwrap().iter().map(|(what, _)| *what).collect::<Vec<_>>();
    assert_eq!(uses, ["reading a window", "a step of all paths"]);
}

#[test]
fn a_smaller_batch_leaves_no_trace_in_the_next() {
    let network = network(Loss::Mse);
    let batch = batch(network.specification(), 4);
    let first = network.predict(&batch).unwrap();
    network.predict(&row(&batch, 3)).unwrap();
    let three = Batch { shape: crate::data::BatchShape { rows: 3, ..batch.shape }, ..batch.clone() };
    assert!(network.predict(&three).unwrap_err().to_string().contains("past of a batch has 48 numbers"));
    assert_eq!(network.predict(&batch).unwrap(), first);
}

#[test]
fn a_model_file_is_read_back() {
    let mut network = network(Loss::Gaussian);
    network.metadata = serde_json::json!({ "column": "y", "scale": 0.1 });
    let again = TrainedNetwork::from_bytes(&network.to_bytes()).unwrap();
    assert_eq!(again.specification(), network.specification());
    assert_eq!((&again.metadata, again.params()), (&network.metadata, network.params()));
    let batch = batch(network.specification(), 3);
    assert_eq!(again.predict(&batch).unwrap(), network.predict(&batch).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.safetensors");
    network.save(&path).unwrap();
    assert_eq!(TrainedNetwork::load(&path).unwrap().params(), network.params());
    std::fs::write(&path, b"nothing").unwrap();
    let error = TrainedNetwork::load(&path).err().unwrap().to_string();
    assert!(error.contains("model.safetensors: not a complete safetensors file"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_file_with_a_flipped_bit_is_rejected_or_equivalent(place: prop::sample::Index, bit in 0..8u32) {
        let specification = specification(Model::NLinear(NLinear {}), Loss::Mse);
        let params = specification.params(1).unwrap();
        let network = TrainedNetwork::new(specification, params).unwrap();
        let mut bytes = network.to_bytes();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        if let Ok(again) = TrainedNetwork::from_bytes(&bytes) {
            prop_assert_eq!(again.params(), network.params());
            prop_assert_eq!(again.specification(), network.specification());
            prop_assert_eq!(&again.metadata, &network.metadata);
        }
    }
}

#[test]
fn truncated_and_foreign_files_are_rejected() {
    let network = network(Loss::Mse);
    let bytes = network.to_bytes();
    for cut in [0, 8, 100, bytes.len() - 1] {
        assert!(TrainedNetwork::from_bytes(&bytes[..cut]).is_err(), "cut at {cut}");
    }
    let view = TensorView::new(Dtype::F32, vec![1], &[0, 0, 0, 0]).unwrap();
    let foreign = safetensors::serialize([("x", view)], None).unwrap();
    let error = TrainedNetwork::from_bytes(&foreign).err().unwrap().to_string();
    assert!(error.contains("no entry \"gatework-forecaster\""), "{error}");
    let version = br#"\"version\":"#;
    let at = bytes.windows(version.len()).position(|window| window == version).unwrap() + version.len();
    let mut newer = bytes.clone();
    newer[at] += 2;
    let error = TrainedNetwork::from_bytes(&newer).err().unwrap().to_string();
    assert!(error.contains("a newer version of Gatework (format 4"), "{error}");
}

#[test]
fn parameters_that_are_not_finite_are_rejected() {
    let specification = specification(Model::NLinear(NLinear {}), Loss::Mse);
    let mut params = specification.params(1).unwrap();
    params.values[3] = f32::NAN;
    assert!(TrainedNetwork::new(specification.clone(), params).is_err());
    assert!(TrainedNetwork::new(specification, Params::new()).is_err());
}

#[test]
fn quantiles_follow_from_the_kind_of_forecast() {
    let of = |kind, values: &[f32]| Forecast {
        rows: 1,
        horizon: 1,
        outputs: values.len(),
        kind,
        values: values.to_vec(),
    };
    let levels = of(ForecastKind::Quantiles(vec![0.1, 0.5, 0.9]), &[1.0, 2.0, 4.0]);
    assert_eq!(levels.point(0, 0), 2.0);
    assert_eq!(
        [0.05, 0.1, 0.7, 0.95].map(|level| levels.quantile(0, 0, level)),
        [None, Some(1.0), Some(3.0), None]
    );
    assert_eq!(of(ForecastKind::Point, &[1.0]).quantile(0, 0, 0.5), None);
    let gaussian = of(ForecastKind::Distribution(Distribution::Gaussian), &[1.0, 2.0]);
    assert!((gaussian.quantile(0, 0, 0.841_344_746).unwrap() - 3.0).abs() < 1e-5);
    let samples = of(ForecastKind::Samples, &[1.0, 2.0, 3.0, 10.0]);
    assert_eq!((samples.point(0, 0), samples.quantile(0, 0, 0.5)), (4.0, Some(2.5)));
    assert_eq!(samples.quantile(0, 0, 0.99), Some(10.0));
}

#[test]
fn samples_are_sorted_reproducible_and_follow_the_distribution() {
    for loss in [Loss::Gaussian, Loss::StudentT, Loss::NegativeBinomial] {
        let model = DeepAr { hidden: 6, layers: 2, samples: 400, dropout: 0.0 };
        let specification = Specification { past_columns: 0, ..specification(Model::DeepAr(model), loss) };
        let params = specification.params(1).unwrap();
        let network = TrainedNetwork::new(specification, params).unwrap();
        let mut batch = batch(network.specification(), 3);
        batch.past.iter_mut().for_each(|x| *x = (*x + 4.0).round());
        let forecast = network.predict(&batch).unwrap();
        assert_eq!(forecast, network.predict(&batch).unwrap());
        assert!(forecast.step(1, 2).is_sorted());
        let alone = network.predict(&row(&batch, 2)).unwrap();
        assert_eq!(alone.step(0, 3), forecast.step(2, 3));
        // The first step is drawn from the distribution that the graph forecasts.
        let (graph, _) = network.specification().network(3, Mode::Prediction).unwrap();
        let mut runner = Program::new(&graph).unwrap().runner();
        let params = network.params();
        for tensor in params.tensors() {
            runner.write(&tensor.name, &params.values[tensor.range.clone()]).unwrap();
        }
        write_padded(&mut runner, &batch, 0..3, 3, &mut Vec::new()).unwrap();
        runner.run();
        let distribution = network.specification().loss.distribution().unwrap();
        let count = distribution.parameters();
        let parameters = &runner.read::<f32>("forecast").unwrap()[..count];
        let [low, high] = [0.1, 0.9].map(|level| distribution.quantile(parameters, level));
        let near = |a: f64, b: f64| (a - b).abs() <= 0.2 * (high - low) + 1e-3;
        assert!(near(forecast.quantile(0, 0, 0.1).unwrap(), low), "{distribution:?}");
        assert!(near(forecast.quantile(0, 0, 0.9).unwrap(), high), "{distribution:?}");
        assert!(near(forecast.point(0, 0), distribution.mean(parameters)), "{distribution:?}");
    }
}

/// All models with a layer of each kind that weights are read by.
fn every_kind() -> Vec<Specification> {
    let models = [
        "{ kind = 'nhits', width = 40 }",
        "{ kind = 'nbeats', stacks = [{ blocks = 2, width = 24 }] }",
        "{ kind = 'gru', hidden = 12 }",
        "{ kind = 'lstm', hidden = 9 }",
        "{ kind = 'tcn', channels = [5, 6] }",
        "{ kind = 'transformer', width = 16, heads = 2 }",
        "{ kind = 'nlinear' }",
    ];
    let parse = |model: &str| toml::from_str(&format!("model = {model}\ninput = 24\nhorizon = 5")).unwrap();
    models.map(parse).to_vec()
}

/// The forecast of a program without shared weights.
fn plain_forecast(network: &TrainedNetwork, batch: &Batch) -> Vec<f32> {
    let rows = batch.shape.rows;
    let (graph, _) = network.specification().network(rows, Mode::Prediction).unwrap();
    let mut runner = Program::new(&graph).unwrap().runner();
    let params = network.params();
    for tensor in params.tensors() {
        runner.write(&tensor.name, &params.values[tensor.range.clone()]).unwrap();
    }
    write_padded(&mut runner, batch, 0..rows, rows, &mut Vec::new()).unwrap();
    runner.run();
    runner.read::<f32>("forecast").unwrap().to_vec()
}

#[test]
fn shared_weights_give_the_bits_of_written_ones_in_every_batch_size() {
    for specification in every_kind() {
        let name = specification.model.name();
        let params = specification.params(1).unwrap();
        let network = TrainedNetwork::new(specification.clone(), params.clone()).unwrap();
        assert_eq!(network.params(), params, "{name}");
        for rows in [1, 2, 4, 32, 1, 256, 2] {
            let batch = batch(&specification, rows);
            let forecast = network.predict(&batch).unwrap().values;
            assert_eq!(forecast, plain_forecast(&network, &batch), "{name} {rows}");
        }
    }
}

#[test]
fn weights_are_stored_once_for_all_batch_sizes() {
    let text = "model = { kind = 'nhits', width = 256 }\ninput = 48\nhorizon = 12";
    let specification: Specification = toml::from_str(text).unwrap();
    let params = specification.params(1).unwrap();
    let bytes = 4 * params.len();
    let network = TrainedNetwork::new(specification.clone(), params).unwrap();
    let before = network.memory();
    assert_eq!(before.programs, 0);
    for rows in [1, 2, 4, 8, 16, 32] {
        network.predict(&batch(&specification, rows)).unwrap();
    }
    let after = network.memory();
    assert_eq!(after.weights, before.weights);
    // Panels are padded to whole vectors.
    assert!(after.weights < bytes + bytes / 4, "{} for {bytes}", after.weights);
    let (graph, _) = specification.network(32, Mode::Prediction).unwrap();
    let largest = Program::new(&graph).unwrap().bytes() - bytes;
    assert!(after.programs < largest + bytes / 8, "{} for {largest}", after.programs);
}

#[test]
fn quantised_model_files_are_small_and_read_back() {
    for specification in every_kind() {
        let name = specification.model.name();
        let mut network =
            TrainedNetwork::new(specification.clone(), specification.params(1).unwrap()).unwrap();
        network.metadata = serde_json::json!({ "column": "y" });
        let full = network.to_bytes().len();
        for precision in [Precision::F16, Precision::Int8] {
            let (quantised, bytes) = network.with_precision(precision).unwrap();
            let file = quantised.to_bytes();
            let header = usize::from_le_bytes(file[..8].try_into().unwrap());
            assert!(file.len() <= header + 8 + bytes, "{name}: {} for {bytes}", file.len());
            assert!(file.len() < full, "{name}");
            let again = TrainedNetwork::from_bytes(&file).unwrap();
            assert_eq!((again.precision(), &again.metadata), (precision, &network.metadata));
            for rows in [1, 3, 40] {
                let batch = batch(&specification, rows);
                assert_eq!(
                    again.predict(&batch).unwrap(),
                    quantised.predict(&batch).unwrap(),
                    "{name} {rows}"
                );
            }
            assert_eq!(again.to_bytes(), file, "{name}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_quantised_file_with_a_flipped_bit_is_rejected_or_equivalent(
        place: prop::sample::Index, bit in 0..8u32, is_int8: bool,
    ) {
        let specification = specification(Model::NLinear(NLinear {}), Loss::Mse);
        let params = specification.params(1).unwrap();
        let network = TrainedNetwork::new(specification, params).unwrap();
        let precision = if is_int8 { Precision::Int8 } else { Precision::F16 };
        let (network, _) = network.with_precision(precision).unwrap();
        let mut bytes = network.to_bytes();
        let place = place.index(bytes.len());
        bytes[place] ^= 1 << bit;
        if let Ok(again) = TrainedNetwork::from_bytes(&bytes) {
            prop_assert_eq!(again.params(), network.params());
            prop_assert_eq!(again.precision(), precision);
        }
    }
}

#[test]
fn a_quantised_model_takes_less_memory() {
    let text = "model = { kind = 'nhits', width = 256 }\ninput = 48\nhorizon = 12";
    let specification: Specification = toml::from_str(text).unwrap();
    let network = TrainedNetwork::new(specification.clone(), specification.params(1).unwrap()).unwrap();
    let (int8, _) = network.with_precision(Precision::Int8).unwrap();
    let is_small = 3 * int8.memory().weights < network.memory().weights;
    assert!(is_small || !gatework_engine::kernel::int8::is_fast());
}

#[test]
fn warming_up_compiles_the_sizes() {
    let network = network(Loss::Mse);
    network.warm_up(&[1, 32]).unwrap();
    assert_eq!(network.programs.count(), 2);
    assert_eq!(TrainedNetwork::from_bytes(&network.to_bytes()).unwrap().programs.count(), 1);
}
