//! Linear least squares with a small ridge, by Cholesky decomposition of the normal equations.

/// Ridge relative to the mean square of a column: it makes collinear columns solvable without a visible effect on others.
const RIDGE: f64 = 1e-9;

/// Sums of products of the rows of a regression.
#[derive(Clone, Debug)]
pub struct Regression {
    columns: usize,
    /// Lower triangle of X'X, row by row.
    products: Vec<f64>,
    /// X'y.
    target: Vec<f64>,
    /// y'y.
    square: f64,
    rows: usize,
}

impl Regression {
    /// Creates a regression on this number of columns.
    pub fn new(columns: usize) -> Regression {
        Regression {
            columns,
            products: vec![0.0; columns * (columns + 1) / 2],
            target: vec![0.0; columns],
            square: 0.0,
            rows: 0,
        }
    }

    /// Adds a row.
    pub fn add(&mut self, row: &[f64], y: f64) {
        let mut place = 0;
        for (i, x) in row.iter().enumerate() {
            for other in &row[..=i] {
                self.products[place] += x * other;
                place += 1;
            }
            self.target[i] += x * y;
        }
        self.square += y * y;
        self.rows += 1;
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the coefficients of the first `columns` columns, and the sum of squared errors; `None` if the sums are not
    /// finite. `ridge` is added to the diagonal, relative to the mean square of each column.
    pub fn solve(&self, columns: usize, ridge: f64) -> Option<(Vec<f64>, f64)> {
        let columns = columns.min(self.columns);
        let at = |i: usize, j: usize| self.products[i * (i + 1) / 2 + j];
        let mut lower = vec![0.0; columns * columns];
        for i in 0..columns {
            for j in 0..=i {
                let dot: f64 = (0..j).map(|k| lower[i * columns + k] * lower[j * columns + k]).sum();
                let value = at(i, j) - dot;
                lower[i * columns + j] = if i == j {
                    let floor = RIDGE * at(i, i) + f64::MIN_POSITIVE;
                    (value + ridge * at(i, i)).max(floor).sqrt()
                } else {
                    value / lower[j * columns + j]
                };
            }
        }
        let mut solution = self.target[..columns].to_vec();
        for i in 0..columns {
            let dot: f64 = (0..i).map(|k| lower[i * columns + k] * solution[k]).sum();
            solution[i] = (solution[i] - dot) / lower[i * columns + i];
        }
        for i in (0..columns).rev() {
            let dot: f64 = (i + 1..columns).map(|k| lower[k * columns + i] * solution[k]).sum();
            solution[i] = (solution[i] - dot) / lower[i * columns + i];
        }
        // y'y - 2 b'X'y + b'X'X b.
        let mut error = self.square;
        for i in 0..columns {
            let row: f64 = (0..columns).map(|j| at(i.max(j), i.min(j)) * solution[j]).sum();
            error += solution[i] * (row - 2.0 * self.target[i]);
        }
        let finite = solution.iter().all(|x| x.is_finite()) && error.is_finite();
        finite.then(|| (solution, error.max(0.0)))
    }
}

/// Returns the corrected information criterion (AICc) of a model with Gaussian errors; infinite if it has too many
/// parameters for its rows.
pub fn aicc(rows: usize, squared_error: f64, parameters: usize) -> f64 {
    let (n, k) = (rows as f64, parameters as f64 + 1.0);
    if n - k - 1.0 <= 0.0 {
        return f64::INFINITY;
    }
    n * (squared_error / n).max(f64::MIN_POSITIVE).ln() + 2.0 * k + 2.0 * k * (k + 1.0) / (n - k - 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_linear_function_is_found_exactly() {
        let mut regression = Regression::new(3);
        for i in 0..20 {
            let (a, b) = (f64::from(i % 7), f64::from(i * i % 11));
            regression.add(&[1.0, a, b], 3.0 - 2.0 * a + 0.5 * b);
        }
        let (solution, error) = regression.solve(3, 0.0).unwrap();
        for (found, expected) in solution.iter().zip([3.0, -2.0, 0.5]) {
            assert!((found - expected).abs() < 1e-9, "{solution:?}");
        }
        assert!(error < 1e-9);
        assert_eq!(regression.rows(), 20);
    }

    #[test]
    fn the_criterion_penalises_parameters_and_refuses_too_many() {
        assert!(aicc(50, 10.0, 2) < aicc(50, 10.0, 3));
        assert!(aicc(50, 9.0, 2) < aicc(50, 10.0, 2));
        assert_eq!(aicc(4, 1.0, 3), f64::INFINITY);
        assert!(aicc(10, 0.0, 1).is_finite());
    }

    proptest! {
        #[test]
        fn the_gradient_is_zero_at_the_solution(
            rows in prop::collection::vec(prop::array::uniform4(-10.0f64..10.0), 8..40),
        ) {
            let mut regression = Regression::new(3);
            for row in &rows {
                regression.add(&row[..3], row[3]);
            }
            let (solution, error) = regression.solve(3, 0.0).unwrap();
            let residual = |row: &[f64; 4]| row[3] - (0..3).map(|i| row[i] * solution[i]).sum::<f64>();
            let squares: f64 = rows.iter().map(|row| residual(row).powi(2)).sum();
            prop_assert!((squares - error).abs() <= 1e-6 * (1.0 + squares));
            for i in 0..3 {
                let slope: f64 = rows.iter().map(|row| row[i] * residual(row)).sum();
                prop_assert!(slope.abs() < 1e-3, "{slope}");
            }
        }

        #[test]
        fn collinear_and_empty_columns_are_solved(x in prop::collection::vec(-5.0f64..5.0, 3..20)) {
            let mut regression = Regression::new(4);
            for x in &x {
                regression.add(&[1.0, *x, *x, 0.0], 2.0 * x);
            }
            prop_assert!(regression.solve(4, 1e-8).is_some());
        }
    }
}
