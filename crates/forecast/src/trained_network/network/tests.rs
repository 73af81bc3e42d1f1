//! Tests of forecasters: forecasts, files, quantiles, samples.

use super::*;
use crate::Loss;
use crate::models::{DeepAr, NLinear, Nhits};
use crate::network::distribution::Distribution;
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
        let mut network = network(loss);
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
    let mut network = network(Loss::Mse);
    let batch = batch(network.specification(), 4);
    network.predict(&batch).unwrap();
    let compiled = |f: &TrainedNetwork| f.runners.iter().flatten().count();
    assert_eq!(compiled(&network), 1);
    let kernels = network.programs(4).unwrap()[0].1.kernels();
    assert!(kernels.iter().any(|kernel| kernel.ends_with("bias, relu")), "{kernels:?}");
    assert_eq!(compiled(&network), 1);
    let specification = specification(Model::DeepAr(DeepAr::default()), Loss::Gaussian);
    let specification = Specification { past_columns: 0, ..specification };
    let params = specification.params(1).unwrap();
    let mut sampling = TrainedNetwork::new(specification, params).unwrap();
    let uses = sampling.programs(4).unwrap().iter().map(|(what, _)| *what).collect::<Vec<_>>();
    assert_eq!(uses, ["reading a window", "a step of all paths"]);
}

#[test]
fn a_smaller_batch_leaves_no_trace_in_the_next() {
    let mut network = network(Loss::Mse);
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
    let mut again = TrainedNetwork::from_bytes(&network.to_bytes()).unwrap();
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
    newer[at] += 1;
    let error = TrainedNetwork::from_bytes(&newer).err().unwrap().to_string();
    assert!(error.contains("a newer version of Gatework (format 3"), "{error}");
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
        let mut network = TrainedNetwork::new(specification, params).unwrap();
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
        write_parameters(&mut runner, network.params()).unwrap();
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
