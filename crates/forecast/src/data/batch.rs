//! What one step of training or prediction reads: windows of time series, one row each.

/// The sizes of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BatchShape {
    /// Windows.
    pub rows: usize,
    /// Observed values of a window.
    pub input: usize,
    /// Values to be forecast.
    pub horizon: usize,
    /// Columns that are known up to the present.
    pub past_columns: usize,
    /// Columns that are known for the horizon too.
    pub future_columns: usize,
    /// Numbers that belong to the series as a whole.
    pub static_columns: usize,
}

/// Windows of time series, all numbers of a kind in one slice, row by row.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Batch {
    /// The sizes.
    pub shape: BatchShape,
    /// `[rows, input]`: what was observed.
    pub past: Vec<f32>,
    /// `[rows, horizon]`: what came afterwards.
    pub target: Vec<f32>,
    /// `[rows, input, past_columns]`: columns that are known up to the present.
    pub past_columns: Vec<f32>,
    /// `[rows, input + horizon, future_columns]`: columns that are known in advance.
    pub future_columns: Vec<f32>,
    /// `[rows, static_columns]`: of the series as a whole.
    pub static_columns: Vec<f32>,
}

impl Batch {
    /// A batch of zeros.
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

    /// Changes the number of windows. What is in it afterwards is not to be relied on; memory is kept.
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

    /// Whether it has a shape, and room for it.
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
    fn a_new_batch_has_room_for_what_its_shape_says() {
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
    fn rows_come_and_go_without_new_memory() {
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
