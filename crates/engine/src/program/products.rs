//! Batches of matrix products that are ready to run.

use rustc_hash::FxHashSet;

use crate::dtype::DType;
use crate::kernel::matmul::{Epilogue, ExternalSlices, Gemm, GemmElement, multiply_external};

use super::memory::{Memory, Stored};
use super::moves::Placed;

/// The products of a batch.
#[derive(Clone, Debug)]
pub(super) struct Products {
    /// One after another.
    shapes: Vec<Gemm>,
    sizes: [usize; 3],
    accumulate: bool,
    epilogue: Option<Epilogue>,
    /// Whether every product has a place of its own for its result.
    apart: bool,
}

impl Products {
    /// The products of two batches of matrices, added to what `out` holds or not. Results that share a place are added up.
    pub fn new(
        a: &Placed,
        b: &Placed,
        out: &Placed,
        accumulate: bool,
        epilogue: Option<Epilogue>,
    ) -> Products {
        let axes = out.sizes.axes();
        let sizes = [out.sizes[axes - 2], out.sizes[axes - 1], a.sizes[axes - 1]];
        let [left, right, result] = [a, b, out].map(|view| view.leading(axes - 2));
        let strides = |view: &Placed| [view.strides()[axes - 2], view.strides()[axes - 1]];
        let mut seen = FxHashSet::default();
        let product = |i: usize| {
            let to = result.place(i);
            Gemm {
                sizes,
                a: (left.place(i), strides(a)),
                b: (right.place(i), strides(b)),
                out: (to, strides(out)),
                accumulate: !seen.insert(to) || accumulate,
            }
        };
        let shapes: Vec<Gemm> = (0..result.elements()).map(product).collect();
        let apart = seen.len() == shapes.len();
        Products { shapes, sizes, accumulate, epilogue, apart }
    }

    pub fn run<T: GemmElement + Stored>(&self, memory: &mut Memory) {
        self.run_outside(memory, ExternalSlices::<T> { from: &[], to: &mut [], external: [None; 3] });
    }

    /// As [`Products::run`], with matrices that lie elsewhere.
    pub fn run_outside<T: GemmElement + Stored>(&self, memory: &mut Memory, outside: ExternalSlices<'_, T>) {
        multiply_external(T::arena_mut(memory), &self.shapes, self.epilogue, outside);
    }

    /// The only product of a batch, with its epilogue.
    pub fn single(&self) -> Option<(Gemm, Option<Epilogue>)> {
        match self.shapes[..] {
            [shapes] => Some((shapes, self.epilogue)),
            _ => None,
        }
    }

    /// Elements that are read and written.
    pub fn traffic(&self) -> usize {
        let [m, n, k] = self.sizes;
        self.shapes.len() * (m * k + k * n + m * n)
    }

    /// What it is, for people.
    pub fn describe(&self, dtype: DType) -> String {
        let [m, n, k] = self.sizes;
        let count = self.shapes.len();
        let batch = if count == 1 { String::new() } else { format!("{count} of ") };
        let how = match (self.accumulate, self.apart) {
            (true, _) => ", added",
            (false, false) => ", added up",
            (false, true) => "",
        };
        let then = match self.epilogue {
            None => "",
            Some(Epilogue { relu: false, .. }) => ", bias",
            Some(Epilogue { relu: true, .. }) => ", bias, relu",
        };
        format!("matmul {dtype} {batch}{m}x{k}x{n}{how}{then}")
    }
}
