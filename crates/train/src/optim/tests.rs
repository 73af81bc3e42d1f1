use super::*;
use proptest::prelude::*;
use safetensors::SafeTensors;

const ADAM: Optimizer = Optimizer::Adam {
    beta1: defaults::beta1(),
    beta2: defaults::beta2(),
    epsilon: defaults::epsilon(),
    weight_decay: 0.0,
};
const ADAMW: Optimizer = Optimizer::Adamw {
    beta1: defaults::beta1(),
    beta2: defaults::beta2(),
    epsilon: defaults::epsilon(),
    weight_decay: defaults::decoupled_decay(),
};
const SGD: Optimizer = Optimizer::Sgd { momentum: 0.0, nesterov: false, weight_decay: 0.0 };
const RMSPROP: Optimizer = Optimizer::Rmsprop {
    alpha: defaults::alpha(),
    epsilon: defaults::epsilon(),
    momentum: 0.0,
    weight_decay: 0.0,
};
const MOMENTUM: Optimizer = Optimizer::Sgd { momentum: 0.9, nesterov: false, weight_decay: 0.0 };

fn golden_file() -> Vec<u8> {
    let path = gatework_test_support::golden!("torch", "optim.safetensors");
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn tensor(file: &[u8], name: &str) -> Vec<f32> {
    let tensors = SafeTensors::deserialize(file).expect("the golden file is a safetensors file");
    let bytes = tensors.tensor(name).expect("the golden file has this tensor").data().to_vec();
    bytes.as_chunks().0.iter().map(|&number| f32::from_le_bytes(number)).collect()
}

/// Repeats the six steps of the golden file and compares the parameters after each.
fn check_golden(name: &str, optimizer: &Optimizer, learning_rate: f32) {
    let file = golden_file();
    let mut values = tensor(&file, "p0");
    let (grads, wanted) = (tensor(&file, "grads"), tensor(&file, name));
    assert_eq!((values.len(), grads.len(), wanted.len()), (37, 6 * 37, 6 * 37));
    let mut state = optimizer.state(values.len());
    for (grads, wanted) in grads.chunks(37).zip(wanted.chunks(37)) {
        optimizer.step(&mut state, &mut values, grads, learning_rate, None);
        for (i, (&got, &wanted)) in values.iter().zip(wanted).enumerate() {
            // A parameter near zero is the difference of larger numbers, hence the absolute part.
            let tolerance = 1e-6 * wanted.abs() + 1e-7;
            let error = (got - wanted).abs();
            assert!(error <= tolerance, "{name}, step {}, element {i}: {got} for {wanted}", state.step);
        }
    }
}

#[test]
fn optimisers_agree_with_pytorch() {
    let sgd = |nesterov, weight_decay| Optimizer::Sgd { momentum: 0.9, nesterov, weight_decay };
    let adam = Optimizer::Adam { beta1: 0.9, beta2: 0.999, epsilon: 1e-8, weight_decay: 0.1 };
    let adamw = Optimizer::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.01 };
    let rmsprop = Optimizer::Rmsprop { alpha: 0.95, epsilon: 1e-8, momentum: 0.9, weight_decay: 0.0 };
    check_golden("sgd", &SGD, 0.1);
    check_golden("sgd_momentum", &sgd(false, 0.01), 0.1);
    check_golden("sgd_nesterov", &sgd(true, 0.0), 0.1);
    check_golden("adam", &ADAM, 0.01);
    check_golden("adam_wd", &adam, 0.01);
    check_golden("adamw", &adamw, 0.01);
    check_golden("rmsprop", &RMSPROP, 0.01);
    check_golden("rmsprop_momentum", &rmsprop, 0.01);
}

fn any_optimizer() -> impl Strategy<Value = Optimizer> {
    prop_oneof![Just(ADAM), Just(ADAMW), Just(SGD), Just(MOMENTUM), Just(RMSPROP)]
}

proptest! {
    #[test]
    fn an_element_has_the_same_result_at_every_position(
        optimizer in any_optimizer(),
        elements in proptest::collection::vec((-2.0f32..2.0, -2.0f32..2.0), 1..70),
    ) {
        let (start, grads): (Vec<f32>, Vec<f32>) = elements.into_iter().unzip();
        let mut values = start.clone();
        let mut state = optimizer.state(values.len());
        for _ in 0..3 {
            optimizer.step(&mut state, &mut values, &grads, 0.01, Some(Clip::Value(1.0)));
        }
        for i in 0..values.len() {
            let mut alone = [start[i]];
            let mut state = optimizer.state(1);
            for _ in 0..3 {
                optimizer.step(&mut state, &mut alone, &grads[i..=i], 0.01, Some(Clip::Value(1.0)));
            }
            prop_assert_eq!(alone[0].to_bits(), values[i].to_bits());
        }
    }
}

#[test]
fn a_clip_by_value_limits_each_element() {
    let mut values = [0.0; 4];
    let norm = SGD.step(&mut SGD.state(4), &mut values, &[0.5, -0.5, 3.0, -3.0], 1.0, Some(Clip::Value(2.0)));
    assert_eq!(values, [-0.5, 0.5, -2.0, 2.0]);
    assert_eq!(norm, None);
}

#[test]
fn a_clip_by_norm_scales_a_longer_gradient_down() {
    let mut values = [0.0; 2];
    let norm = SGD.step(&mut SGD.state(2), &mut values, &[3.0, -4.0], 1.0, Some(Clip::Norm(2.5)));
    assert_eq!(values, [-1.5, 2.0]);
    assert_eq!(norm, Some(5.0));
}

#[test]
fn a_clip_by_norm_leaves_a_shorter_gradient() {
    for limit in [5.0, 6.0] {
        let mut values = [0.0; 2];
        SGD.step(&mut SGD.state(2), &mut values, &[3.0, -4.0], 1.0, Some(Clip::Norm(limit)));
        assert_eq!(values, [-3.0, 4.0]);
    }
}

#[test]
fn a_step_in_parts_is_the_whole_step() {
    let grads: Vec<f32> = (0..41).map(|i| (i * 29 % 17) as f32 * 0.3 - 2.0).collect();
    for optimizer in [ADAM, ADAMW, SGD, MOMENTUM, RMSPROP] {
        for clip in [None, Some(Clip::Value(1.0))] {
            let [mut whole, mut parts] = [vec![1.0f32; 41], vec![1.0; 41]];
            let [mut state, mut other] = [optimizer.state(41), optimizer.state(41)];
            for _ in 0..3 {
                optimizer.step(&mut state, &mut whole, &grads, 0.1, clip);
                let mut step = optimizer.begin(&mut other, 0.1, clip).unwrap();
                for range in [20..41, 0..3, 3..20] {
                    step.apply(range.clone(), &mut parts[range.clone()], &grads[range]);
                }
                assert!(step.is_applied());
            }
            assert!(!optimizer.begin(&mut other, 0.1, clip).unwrap().is_applied());
            assert_eq!((&parts, &other), (&whole, &state), "{optimizer:?} with {clip:?}");
        }
        assert!(optimizer.begin(&mut optimizer.state(1), 0.1, Some(Clip::Norm(1.0))).is_none());
    }
}

#[test]
fn a_nan_gradient_is_not_hidden_by_clipping() {
    for optimizer in [ADAM, ADAMW, SGD, MOMENTUM, RMSPROP] {
        for clip in [None, Some(Clip::Value(1.0)), Some(Clip::Norm(1.0))] {
            for bad in [0, 10] {
                let (mut values, mut grads) = ([1.0; 11], [1.0; 11]);
                grads[bad] = f32::NAN;
                optimizer.step(&mut optimizer.state(11), &mut values, &grads, 0.1, clip);
                assert!(values[bad].is_nan(), "{optimizer:?} with {clip:?}");
            }
        }
    }
}

#[test]
fn an_infinite_gradient_is_not_hidden_by_a_clip_by_norm() {
    for optimizer in [ADAM, ADAMW, SGD, MOMENTUM, RMSPROP] {
        let mut values = [1.0, 1.0];
        let mut state = optimizer.state(2);
        optimizer.step(&mut state, &mut values, &[f32::INFINITY, 1.0], 0.1, Some(Clip::Norm(1.0)));
        assert!(values[0].is_nan() && values[1].is_finite(), "{optimizer:?}: {values:?}");
    }
}

#[test]
fn a_gradient_of_zero_leaves_parameters_without_decay() {
    for optimizer in [ADAM, SGD, MOMENTUM, RMSPROP] {
        let mut values = [1.0, -2.0, 0.0];
        optimizer.step(&mut optimizer.state(3), &mut values, &[0.0; 3], 0.1, None);
        assert_eq!(values, [1.0, -2.0, 0.0], "{optimizer:?}");
    }
}

#[test]
fn a_state_has_only_the_moments_in_use() {
    let rmsprop = Optimizer::Rmsprop { alpha: 0.9, epsilon: 1e-8, momentum: 0.9, weight_decay: 0.0 };
    for (optimizer, first, second) in
        [(ADAM, 5, 5), (ADAMW, 5, 5), (SGD, 0, 0), (MOMENTUM, 5, 0), (RMSPROP, 0, 5), (rmsprop, 5, 5)]
    {
        let state = optimizer.state(5);
        assert_eq!((state.first.len(), state.second.len()), (first, second), "{optimizer:?}");
        assert_eq!(optimizer.check_state(&state, 5), Ok(()));
    }
}

#[test]
fn a_state_of_another_optimiser_is_refused() {
    let error = ADAM.check_state(&MOMENTUM.state(5), 5).unwrap_err();
    assert!(error.contains("5 and 0 elements") && error.contains("needs 5 and 5"), "{error}");
    assert!(ADAM.check_state(&ADAM.state(4), 5).is_err());
}

#[test]
fn the_step_counter_does_not_overflow() {
    let mut state = OptimizerState { step: u64::MAX, ..ADAM.state(1) };
    let mut values = [1.0];
    ADAM.step(&mut state, &mut values, &[1.0], 0.1, None);
    assert_eq!(state.step, u64::MAX);
    assert!(values[0].is_finite());
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct File {
    optimizer: Optimizer,
    clip: Option<Clip>,
}

fn parse(text: &str) -> Result<File, toml::de::Error> {
    toml::from_str(text)
}

#[test]
fn a_file_names_an_optimiser_and_the_settings_that_are_not_defaults() {
    let file = parse("optimizer = { kind = 'adamw', beta2 = 0.99 }\nclip = { value = 100.0 }").unwrap();
    let optimizer = Optimizer::Adamw { beta1: 0.9, beta2: 0.99, epsilon: 1e-8, weight_decay: 0.01 };
    assert_eq!(file, File { optimizer, clip: Some(Clip::Value(100.0)) });
    let short = parse("optimizer = 'adam'").unwrap();
    assert_eq!(short, parse("optimizer = { kind = 'adam' }").unwrap());
    let file = parse("clip = { norm = 1 }\n[optimizer]\nkind = 'sgd'").unwrap();
    assert_eq!(file, File { optimizer: SGD, clip: Some(Clip::Norm(1.0)) });
    assert_eq!(parse("optimizer = { kind = 'adam' }").unwrap(), File { optimizer: ADAM, clip: None });
    assert_eq!(parse("optimizer = { kind = 'rmsprop' }").unwrap(), File { optimizer: RMSPROP, clip: None });
}

#[test]
fn a_file_is_read_back_as_it_was_written() {
    for optimizer in [ADAM, ADAMW, SGD, MOMENTUM, RMSPROP] {
        for clip in [None, Some(Clip::Value(0.1)), Some(Clip::Norm(3.0))] {
            let file = File { optimizer: optimizer.clone(), clip };
            let text = toml::to_string(&file).unwrap();
            assert_eq!(parse(&text).unwrap(), file, "{text}");
        }
    }
}

#[test]
fn a_file_with_a_misspelt_setting_is_refused() {
    for text in [
        "optimizer = { kind = 'adamw', beta = 0.9 }",
        "optimizer = { kind = 'sgd', beta1 = 0.9 }",
        "optimizer = { kind = 'adamax' }",
        "optimizer = { kind = 'sgd' }\nclip = { values = 1.0 }",
        "optimizer = { kind = 'sgd' }\nclip = { value = 1.0, norm = 1.0 }",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn settings_out_of_range_are_named() {
    let refused = |settings: &str, name: &str| {
        let file = parse(&format!("optimizer = {{ {settings} }}")).unwrap();
        let error = file.optimizer.validate().unwrap_err();
        assert!(error.starts_with(name), "{error}");
    };
    refused("kind = 'adamw', beta1 = 1.0", "beta1 is 1,");
    refused("kind = 'adam', beta2 = -0.1", "beta2 is -0.1,");
    refused("kind = 'adam', beta2 = 0.999999999", "beta2 is 0.999999999,");
    refused("kind = 'adam', epsilon = 0.0", "epsilon is 0e0,");
    refused("kind = 'adam', weight_decay = nan", "weight_decay is NaN,");
    refused("kind = 'sgd', momentum = nan", "momentum is NaN,");
    refused("kind = 'sgd', nesterov = true", "nesterov is true,");
    refused("kind = 'rmsprop', alpha = 2.0", "alpha is 2,");
    refused("kind = 'rmsprop', epsilon = inf", "epsilon is inf,");
    for clip in [Clip::Value(0.0), Clip::Value(f32::NAN), Clip::Norm(-1.0), Clip::Norm(f32::INFINITY)] {
        assert!(clip.validate().is_err(), "{clip:?}");
    }
}

#[test]
fn the_default_settings_are_valid() {
    for optimizer in [ADAM, ADAMW, SGD, MOMENTUM, RMSPROP] {
        assert_eq!(optimizer.validate(), Ok(()));
    }
    assert_eq!(Clip::Norm(1.0).validate(), Ok(()));
}
