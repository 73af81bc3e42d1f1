//! Exponent of a power law, by least squares on logarithms.

/// Returns the exponent `e` of the power law `y = c x^e` that fits the points best. `None` for fewer than two different `x`, and
/// for values that have no logarithm.
pub fn exponent(points: &[(f64, f64)]) -> Option<f64> {
    if points.iter().any(|&(x, y)| !(x > 0.0 && y > 0.0 && x.is_finite() && y.is_finite())) {
        return None;
    }
    let logs: Vec<(f64, f64)> = points.iter().map(|&(x, y)| (x.ln(), y.ln())).collect();
    let mean = |of: fn(&(f64, f64)) -> f64| logs.iter().map(of).sum::<f64>() / logs.len() as f64;
    let (x_mean, y_mean) = (mean(|p| p.0), mean(|p| p.1));
    let products: f64 = logs.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let squares: f64 = logs.iter().map(|(x, _)| (x - x_mean) * (x - x_mean)).sum();
    (squares > 0.0).then(|| products / squares)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn power_laws_have_their_exponents() {
        for power in [-1.0, 0.0, 0.5, 1.0, 2.0, 3.0] {
            let points: Vec<(f64, f64)> =
                [1.0, 3.0, 10.0, 70.0].map(|x: f64| (x, 7.0 * x.powf(power))).to_vec();
            assert!((exponent(&points).unwrap() - power).abs() < 1e-12, "{power}");
        }
    }

    #[test]
    fn no_other_exponent_fits_noisy_points_better() {
        let points = [(1.0, 2.0), (2.0, 3.1), (4.0, 9.0), (8.0, 15.0), (16.0, 40.0)];
        let slope = exponent(&points).unwrap();
        // Squared errors of the best line of a given slope.
        let error = |slope: f64| {
            let rest: Vec<f64> = points.iter().map(|(x, y): &(f64, f64)| y.ln() - slope * x.ln()).collect();
            let mean = rest.iter().sum::<f64>() / rest.len() as f64;
            rest.iter().map(|r| (r - mean) * (r - mean)).sum::<f64>()
        };
        assert!(error(slope) < error(slope - 1e-3) && error(slope) < error(slope + 1e-3));
    }

    #[test]
    fn undefined_exponents_are_none() {
        for points in [&[][..], &[(2.0, 3.0)], &[(2.0, 3.0), (2.0, 4.0)], &[(1.0, 0.0), (2.0, 1.0)]] {
            assert_eq!(exponent(points), None, "{points:?}");
        }
        assert_eq!(exponent(&[(1.0, f64::NAN), (2.0, 1.0)]), None);
        assert_eq!(exponent(&[(1.0, 1.0), (f64::INFINITY, 1.0)]), None);
    }
}
