//! Tests against the definitions in `f64`.

use super::*;
use crate::kernel::tests::{cases, on_every_level};
use proptest::prelude::*;

fn numbers(len: usize, seed: usize) -> Vec<f64> {
    (0..len).map(|i| ((i * 7919 + seed) % 1009) as f64 * 0.01 - 5.0).collect()
}

fn moments_of_row(x: &[f64]) -> (f64, f64) {
    let mean = x.iter().sum::<f64>() / x.len() as f64;
    (mean, x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / x.len() as f64)
}

/// Results of all operations, one after another: by the definitions.
fn reference(x: &[f64], columns: usize, [gain, bias]: [Option<&[f64]>; 2], epsilon: f64) -> Vec<f64> {
    let mut all = [const { Vec::new() }; 5];
    for row in x.chunks_exact(columns) {
        let sum: f64 = row.iter().map(|x| x.exp()).sum();
        let (mean, variance) = moments_of_row(row);
        all[0].extend(row.iter().map(|x| x.exp() / sum));
        all[1].extend(row.iter().map(|x| x - sum.ln()));
        all[2].extend(row.iter().enumerate().map(|(j, x)| {
            let normalised = (x - mean) / (variance + epsilon).sqrt();
            normalised * gain.map_or(1.0, |gain| gain[j]) + bias.map_or(0.0, |bias| bias[j])
        }));
        all[3].push(mean);
        all[4].push(variance);
    }
    all.concat()
}

/// Results of all operations, one after another.
fn ours<T: RealNumber>(x: &[f64], columns: usize, parameters: [Option<&[f64]>; 2], epsilon: f64) -> Vec<f64> {
    let convert = |x: &[f64]| x.iter().map(|&x| T::from_f64(x)).collect::<Vec<T>>();
    let (x, [gain, bias]) = (convert(x), parameters.map(|row| row.map(convert)));
    let rows = x.len() / columns;
    let mut all = [x.len(), x.len(), x.len(), rows, rows].map(|len| vec![T::NAN; len]);
    softmax_rows(&x, columns, &mut all[0]).unwrap();
    log_softmax_rows(&x, columns, &mut all[1]).unwrap();
    layer_norm_rows(&x, columns, gain.as_deref(), bias.as_deref(), epsilon, &mut all[2]).unwrap();
    mean_rows(&x, columns, &mut all[3]).unwrap();
    variance_rows(&x, columns, &mut all[4]).unwrap();
    all.concat().into_iter().map(T::to_f64).collect()
}

fn compare(x: &[f64], columns: usize, parameters: [Option<&[f64]>; 2], epsilon: f64) {
    let expected = reference(x, columns, parameters, epsilon);
    let is_close = |ours: Vec<f64>, error: f64| {
        ours.len() == expected.len()
            && ours.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= error * (1.0 + b.abs()))
    };
    assert!(is_close(ours::<f64>(x, columns, parameters, epsilon), 1e-11), "f64 {columns}");
    assert!(is_close(ours::<f32>(x, columns, parameters, epsilon), 1e-4), "f32 {columns}");
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn rows_of_any_length_equal_the_reference(
        rows in 0usize..40, columns in 1usize..80, seed in 0usize..1000, has: [bool; 2],
    ) {
        let (x, gain) = (numbers(rows * columns, seed), numbers(2 * columns, seed + 17));
        let (gain, bias) = gain.split_at(columns);
        on_every_level(|| compare(&x, columns, [has[0].then_some(gain), has[1].then_some(bias)], 1e-3));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn long_rows_and_many_rows_equal_the_reference_on_any_number_of_threads() {
    for (rows, columns) in [(3, 70_001), (2, CHUNK_LEN), (400, 700), (60_000, 5), (200_000, 1)] {
        let (x, gain) = (numbers(rows * columns, 3), numbers(columns, 5));
        let parameters = [Some(&gain[..]), Some(&gain[..])];
        let results = [1, 2, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| ours::<f32>(&x, columns, parameters, 1e-3))
        });
        assert!(results[0] == results[1] && results[0] == results[2], "{rows} x {columns}");
        compare(&x, columns, parameters, 1e-3);
    }
}

#[test]
fn a_result_does_not_depend_on_the_position_of_its_row() {
    for columns in [1, 3, 7, 16, 17, 40] {
        let x = numbers(5 * columns, 1).repeat(9);
        let results = ours::<f32>(&x, columns, [None; 2], 1e-5);
        for results in results[..3 * x.len()].chunks_exact(x.len()) {
            let (first, others) = results.split_at(5 * columns);
            assert!(others.chunks_exact(5 * columns).all(|rows| rows == first), "{columns} columns");
        }
    }
}

#[test]
fn a_large_mean_does_not_cancel_the_variance() {
    for columns in [4, 64, 70_000] {
        let x: Vec<f32> = (0..columns).map(|i| 4096.0 + (i % 2) as f32).collect();
        let mut out = [0.0];
        variance_rows(&x, columns, &mut out).unwrap();
        assert!((out[0] - 0.25).abs() < 1e-5, "{columns}: {}", out[0]);
    }
}

#[test]
fn special_rows_have_the_values_of_softmax() {
    for columns in [2, 20] {
        let mut x = vec![0.0f32; 4 * columns];
        x[columns] = f32::NAN;
        x[2 * columns] = f32::INFINITY;
        x[3 * columns..].fill(f32::NEG_INFINITY);
        on_every_level(|| {
            let (mut out, mut log) = (vec![7.0; x.len()], vec![7.0; x.len()]);
            softmax_rows(&x, columns, &mut out).unwrap();
            log_softmax_rows(&x, columns, &mut log).unwrap();
            assert!(out[..columns].iter().all(|&p| p == 1.0 / columns as f32));
            assert!(out[columns..].iter().chain(&log[columns..]).all(|p| p.is_nan()));
        });
    }
}

#[test]
fn slices_that_are_not_rows_are_errors_and_nothing_is_written() {
    let mut out = [7.0f32; 4];
    let text = |result: Result<(), VectorError>| result.unwrap_err().to_string();
    assert_eq!(
        text(mean_rows(&[1.0; 7], 2, &mut out)),
        "mean_rows: `x` has 7 elements, which are not whole rows of 2"
    );
    assert_eq!(
        text(softmax_rows(&[1.0; 4], 0, &mut out)),
        "softmax_rows: `x` has 4 elements, which are not whole rows of 0"
    );
    assert_eq!(
        text(variance_rows(&[1.0; 6], 2, &mut out)),
        "variance_rows: `out` has 4 elements, but 3 are needed"
    );
    assert_eq!(
        text(layer_norm_rows(&[1.0; 4], 2, Some(&[1.0; 3]), None, 0.0, &mut out)),
        "layer_norm_rows: `gain` has 3 elements, but 2 are needed"
    );
    assert!(layer_norm_rows(&[1.0; 4], 2, None, Some(&[1.0; 1]), 0.0, &mut out).is_err());
    assert!(log_softmax_rows(&[1.0; 6], 2, &mut out).is_err());
    assert_eq!(out, [7.0; 4]);
    for columns in [1, 20, 100_000] {
        softmax_rows::<f32>(&[], columns, &mut []).unwrap();
        layer_norm_rows::<f64>(&[], columns, None, None, 0.0, &mut []).unwrap();
        variance_rows::<f64>(&[], columns, &mut []).unwrap();
    }
}
