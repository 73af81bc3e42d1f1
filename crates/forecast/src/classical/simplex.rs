//! Minimisation without derivatives by the simplex method of Nelder and Mead (1965).

/// Coefficients of reflection, expansion, contraction and shrinkage.
const REFLECT: f64 = 1.0;
const EXPAND: f64 = 2.0;
const CONTRACT: f64 = 0.5;
const SHRINK: f64 = 0.5;

/// Returns the best point and its value after at most `evaluations` calls. `steps` are the sides of the first simplex.
/// Points at which the function is not finite are avoided.
pub fn minimize(
    start: &[f64],
    steps: &[f64],
    evaluations: usize,
    mut function: impl FnMut(&[f64]) -> f64,
) -> (Vec<f64>, f64) {
    let n = start.len();
    let mut left = evaluations;
    let mut value = |point: &[f64]| {
        left = left.saturating_sub(1);
        let value = function(point);
        (if value.is_nan() { f64::INFINITY } else { value }, left)
    };
    let mut simplex: Vec<(Vec<f64>, f64)> = Vec::with_capacity(n + 1);
    simplex.push((start.to_vec(), value(start).0));
    for i in 0..n {
        let mut point = start.to_vec();
        point[i] += steps[i];
        let mut found = value(&point).0;
        if found.is_infinite() {
            point[i] = start[i] - steps[i];
            found = value(&point).0;
        }
        simplex.push((point, found));
    }
    loop {
        simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
        let (best, worst) = (simplex[0].1, simplex[n].1);
        if n == 0 || (worst - best).abs() <= 1e-10 * (best.abs() + 1e-10) {
            break;
        }
        let centre: Vec<f64> =
            (0..n).map(|i| simplex[..n].iter().map(|(point, _)| point[i]).sum::<f64>() / n as f64).collect();
        let along = |factor: f64| -> Vec<f64> {
            centre
                .iter()
                .zip(&simplex[n].0)
                .map(|(centre, worst)| centre + factor * (centre - worst))
                .collect()
        };
        let reflected = along(REFLECT);
        let (reflection, mut rest) = value(&reflected);
        if reflection < best {
            let expanded = along(EXPAND);
            let (expansion, after) = value(&expanded);
            rest = after;
            simplex[n] = if expansion < reflection { (expanded, expansion) } else { (reflected, reflection) };
        } else if reflection < simplex[n - 1].1 {
            simplex[n] = (reflected, reflection);
        } else {
            let contracted = along(if reflection < worst { CONTRACT } else { -CONTRACT });
            let (contraction, after) = value(&contracted);
            rest = after;
            if contraction < worst.min(reflection) {
                simplex[n] = (contracted, contraction);
            } else {
                let best = simplex[0].0.clone();
                for (point, found) in &mut simplex[1..] {
                    point.iter_mut().zip(&best).for_each(|(x, best)| *x = best + SHRINK * (*x - best));
                    (*found, rest) = value(point);
                }
            }
        }
        if rest == 0 {
            simplex.sort_by(|a, b| a.1.total_cmp(&b.1));
            break;
        }
    }
    simplex.swap_remove(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_of_a_curved_valley_is_found() {
        let rosenbrock = |p: &[f64]| (1.0 - p[0]).powi(2) + 100.0 * (p[1] - p[0] * p[0]).powi(2);
        let (point, value) = minimize(&[-1.2, 1.0], &[0.5, 0.5], 2000, rosenbrock);
        assert!(value < 1e-8 && (point[0] - 1.0).abs() < 1e-3, "{point:?} {value}");
    }

    #[test]
    fn points_outside_the_domain_are_avoided() {
        let (point, _) =
            minimize(&[0.5], &[0.4], 200, |p| if p[0] > 0.0 { p[0] - p[0].ln() } else { f64::NAN });
        assert!((point[0] - 1.0).abs() < 1e-4, "{point:?}");
        assert_eq!(minimize(&[], &[], 10, |_| 3.0), (vec![], 3.0));
        assert!(minimize(&[1.0], &[1.0], 5, |_| f64::NAN).1.is_infinite());
    }

    #[test]
    fn the_number_of_evaluations_is_bounded() {
        let mut calls = 0;
        minimize(&[3.0, 4.0], &[1.0, 1.0], 40, |p| {
            calls += 1;
            (p[0] + p[1]).sin() + p[0] * p[0]
        });
        assert!(calls <= 40 + 3, "{calls}");
    }
}
