//! Batches of matrix multiplications.

use rustc_hash::FxHashSet;

use super::{Execute, Memory, Scratch, Stored, View};
use crate::dtype::DType;
use crate::kernel::matmul::{Epilogue, ExternalSlices, Gemm, GemmElement, multiply_external};

/// `[batch.., m, k]` times `[batch.., k, n]`. Products of a batch whose results share a place (a stride of 0) are summed.
#[derive(Clone, Debug)]
pub(crate) struct MatMul {
    pub a: View,
    pub b: View,
    pub out: View,
    /// Whether the product is added to what `out` holds.
    pub accumulate: bool,
    pub bias: Option<Bias>,
    /// One entry for each matrix of the batch.
    products: Vec<Gemm>,
    epilogue: Option<Epilogue>,
}

/// A row that is added to all rows of a product, with an optional ReLU after that.
#[derive(Clone, Debug)]
pub(crate) struct Bias {
    /// In the shape of the result.
    pub row: View,
    pub relu: bool,
}

/// A matrix that all products of a batch have as their second operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SecondOperand {
    /// Depth and columns.
    pub sizes: [usize; 2],
    /// Offset of the first element, and row and column strides.
    pub place: (usize, [usize; 2]),
    /// Whether a product is added to what the result holds.
    pub is_added: bool,
}

impl MatMul {
    pub fn new(a: View, b: View, out: View, accumulate: bool) -> MatMul {
        MatMul { a, b, out, accumulate, bias: None, products: Vec::new(), epilogue: None }
    }

    /// Rows and columns of the result, and the length of the dot products.
    fn sizes(&self) -> [usize; 3] {
        let axes = self.out.sizes.axes();
        [self.out.sizes[axes - 2], self.out.sizes[axes - 1], self.a.sizes[axes - 1]]
    }

    /// Runs with matrices that are in slices of the caller.
    pub fn run_outside<T: GemmElement + Stored>(&self, memory: &mut Memory, outside: ExternalSlices<'_, T>) {
        multiply_external(T::arena_mut(memory), &self.products, self.epilogue, outside);
    }

    /// The only product of a batch of one, with its epilogue.
    pub fn single(&self) -> Option<(Gemm, Option<Epilogue>)> {
        match self.products[..] {
            [product] => Some((product, self.epilogue)),
            _ => None,
        }
    }

    /// The matrix of a buffer that is the second operand of all products, if the buffer is nothing else in this instruction
    /// and the rows of the `f32` result are contiguous.
    pub fn second_operand(&self, buffer: usize) -> Option<SecondOperand> {
        let others = [Some(&self.a), Some(&self.out), self.bias.as_ref().map(|bias| &bias.row)];
        let is_only = others.iter().flatten().all(|view| view.buffer != buffer) && self.b.buffer == buffer;
        let axes = self.out.sizes.axes();
        let [m, columns, depth] = self.sizes();
        let repeats = |view: &View| {
            let leading = view.leading(axes - 2);
            leading.sizes.iter().zip(leading.strides()).any(|(&size, &stride)| size > 1 && stride == 0)
        };
        let leading = self.b.leading(axes - 2);
        let is_one =
            leading.sizes.iter().zip(leading.strides()).all(|(&size, &stride)| size == 1 || stride == 0);
        let is_row_major = self.out.strides()[axes - 1] == 1;
        let fits = is_only && is_one && is_row_major && self.out.dtype == DType::F32;
        (fits && m > 0 && columns > 1 && depth > 0).then(|| SecondOperand {
            sizes: [depth, columns],
            place: (self.b.offset, [self.b.strides()[axes - 2], self.b.strides()[axes - 1]]),
            is_added: self.accumulate || repeats(&self.out),
        })
    }

    /// The products, one for each matrix of the batch, and their epilogue.
    pub fn products(&self) -> (&[Gemm], Option<Epilogue>) {
        (&self.products, self.epilogue)
    }

    /// Whether several products are summed in one place.
    fn sums_batch(&self) -> bool {
        self.products.iter().any(|product| product.accumulate != self.accumulate)
    }
}

impl Execute for MatMul {
    fn views_mut(&mut self) -> Vec<&mut View> {
        let bias = self.bias.as_mut().map(|bias| &mut bias.row);
        [&mut self.a, &mut self.b, &mut self.out].into_iter().chain(bias).collect()
    }

    fn prepare(&mut self) {
        let axes = self.out.sizes.axes();
        let sizes = self.sizes();
        let [left, right, result] = [&self.a, &self.b, &self.out].map(|view| view.leading(axes - 2));
        let strides = |view: &View| [view.strides()[axes - 2], view.strides()[axes - 1]];
        let mut seen = FxHashSet::default();
        let product = |i: usize| {
            let out = result.place(i);
            Gemm {
                sizes,
                a: (left.place(i), strides(&self.a)),
                b: (right.place(i), strides(&self.b)),
                out: (out, strides(&self.out)),
                accumulate: !seen.insert(out) || self.accumulate,
            }
        };
        self.products = (0..result.elements()).map(product).collect();
        self.epilogue = self.bias.as_ref().map(|bias| Epilogue { bias: bias.row.offset, relu: bias.relu });
    }

    fn describe(&self) -> String {
        let [m, n, k] = self.sizes();
        let batch = match self.products.len() {
            1 => String::new(),
            count => format!("{count} of "),
        };
        let sum = match (self.accumulate, self.sums_batch()) {
            (true, _) => ", accumulated",
            (false, true) => ", summed over the batch",
            (false, false) => "",
        };
        let epilogue = match self.epilogue {
            None => "",
            Some(Epilogue { relu: false, .. }) => ", bias",
            Some(Epilogue { relu: true, .. }) => ", bias, relu",
        };
        format!("matmul {} {batch}{m}x{k}x{n}{sum}{epilogue}", self.out.dtype)
    }

    fn traffic(&self) -> usize {
        let [m, n, k] = self.sizes();
        self.products.len() * (m * k + k * n + m * n) * self.out.dtype.size()
    }

    fn run(&self, memory: &mut Memory, _: &mut Scratch) {
        with_float!(self.out.dtype, T => {
            self.run_outside(memory, ExternalSlices::<T> { from: &[], to: &mut [], external: [None; 3] });
        });
    }
}
