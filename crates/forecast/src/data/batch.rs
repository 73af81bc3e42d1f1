//! Batches of windows, the inputs of training and prediction.

/// The sizes of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Number of windows.
    pub rows: usize,
    /// Observed values per window.
    pub input: usize,
    /// Steps to forecast.
    pub horizon: usize,
    /// Number of past covariates.
    pub past_columns: usize,
    /// Number of known-future covariates.
    pub future_columns: usize,
    /// Number of static covariates.
    pub static_columns: usize,
}

/// A batch of windows, one row-major array per kind of input.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// Sizes of the batch.
    pub shape: BatchShape,
    /// `[rows, input]`: observed values.
    pub past: Vec<f32>,
    /// `[rows, horizon]`: targets.
    pub target: Vec<f32>,
    /// `[rows, input, past_columns]`: past covariates.
    pub past_columns: Vec<f32>,
    /// `[rows, input + horizon, future_columns]`: known-future covariates.
    pub future_columns: Vec<f32>,
    /// `[rows, static_columns]`: static covariates.
    pub static_columns: Vec<f32>,
}

impl Batch {
    /// Creates a batch of zeros.
    pub fn new(shape: BatchShape) -> Batch {
        let BatchShape { rows, input, horizon, .. } = shape;
        Batch {
            shape,
            past: vec![0.0; rows * input],
            target: vec![0.0; rows * horizon],
            past_columns: vec![0.0; rows * input * shape.past_columns],
            future_columns: vec![0.0; rows * (input + horizon) * shape.future_columns],
            static_columns: vec![0.0; rows * shape.static_columns],
        }
    }

    /// Sets the number of windows. The contents are unspecified; memory is reused.
    pub fn set_rows(&mut self, rows: usize) {
        let shape = BatchShape { rows, ..self.shape };
        let BatchShape { input, horizon, .. } = shape;
        self.shape = shape;
        self.past.resize(rows * input, 0.0);
        self.target.resize(rows * horizon, 0.0);
        self.past_columns.resize(rows * input * shape.past_columns, 0.0);
        self.future_columns.resize(rows * (input + horizon) * shape.future_columns, 0.0);
        self.static_columns.resize(rows * shape.static_columns, 0.0);
    }

    /// Returns whether the batch has this shape and arrays of matching length.
    pub fn has_room(&self, shape: BatchShape) -> bool {
        let BatchShape { rows, input, horizon, .. } = shape;
        self.shape == shape
            && self.past.len() == rows * input
            && self.target.len() == rows * horizon
            && self.past_columns.len() == rows * input * shape.past_columns
            && self.future_columns.len() == rows * (input + horizon) * shape.future_columns
            && self.static_columns.len() == rows * shape.static_columns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_batch_has_arrays_of_its_shape() {
        let shape = BatchShape {
            rows: 2,
            input: 3,
            horizon: 4,
            past_columns: 5,
            future_columns: 6,
            static_columns: 7,
        };
        let batch = Batch::new(shape);
        assert_eq!((batch.past.len(), batch.target.len(), batch.static_columns.len()), (6, 8, 14));
        assert_eq!((batch.past_columns.len(), batch.future_columns.len()), (30, 84));
    }

    #[test]
    fn changing_the_rows_reuses_memory() {
        let shape = BatchShape { rows: 8, input: 3, horizon: 2, future_columns: 1, ..BatchShape::default() };
        let mut batch = Batch::new(shape);
        let memory = (batch.past.as_ptr(), batch.future_columns.as_ptr());
        for rows in [3, 8, 0, 5] {
            batch.set_rows(rows);
            assert!(batch.has_room(BatchShape { rows, ..shape }));
            assert_eq!((batch.past.as_ptr(), batch.future_columns.as_ptr()), memory);
        }
        batch.past.push(1.0);
        assert!(!batch.has_room(BatchShape { rows: 5, ..shape }));
    }
}
