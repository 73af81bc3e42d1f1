//! The measured operations: every vector operation of every type, and plain loops to compare some of them with.

use std::hint::black_box;

use fearless_simd::{Level, dispatch};
use gatework_engine::vector::{Number, RealNumber};
use gatework_engine::{linalg, vector};

/// Reads two operands and writes a result.
pub type Run<T> = dyn Fn(&[T], &[T], &mut [T]) + Sync;
/// The same as a plain loop.
pub type Plain<T> = fn(&[T], &[T], &mut [T]);

/// An operation on the first `n` elements of two operands and a result; some operations ignore an operand.
pub struct Operation<T> {
    pub name: &'static str,
    /// Number of slices that it reads or writes.
    pub slices: usize,
    pub run: Box<Run<T>>,
    /// The same as a plain loop.
    pub plain: Option<Plain<T>>,
}

impl<T: Number> Operation<T> {
    fn new(name: &'static str, slices: usize, run: impl Fn(&[T], &[T], &mut [T]) + Sync + 'static) -> Self {
        Self { name, slices, run: Box::new(run), plain: None }
    }

    /// Returns a reduction, which writes the first element of the result.
    fn reduction(name: &'static str, slices: usize, run: impl Fn(&[T], &[T]) -> T + Sync + 'static) -> Self {
        Self::new(name, slices, move |a, b, out| out[0] = run(a, b))
    }
}

/// Columns of the matrices that operations on rows see in a slice. All lengths are multiples of it.
const COLUMNS: usize = 64;

/// Returns the operations of all types. All lengths are equal, so that no operation fails.
pub fn arithmetic<T: Number>() -> Vec<Operation<T>> {
    let mut operations = Vec::new();
    for vector::Binary { name, run, .. } in vector::binary() {
        operations.push(Operation::new(name, 3, move |a, b, out| run(a, b, out).expect("same length")));
    }
    for vector::Unary { name, run, .. } in vector::unary() {
        operations.push(Operation::new(name, 2, move |a, _, out| run(a, out).expect("same length")));
    }
    operations.extend([
        Operation::new("fill", 1, |a, _, out| vector::fill(a[0], out)),
        Operation::new("copy", 2, |a, _, out| vector::copy(a, out).expect("same length")),
        Operation::new("scaled_add", 2, |a, b, out| vector::scaled_add(b[0], a, out).expect("same length")),
        Operation::reduction("sum", 1, |a, _| vector::sum(a)),
        Operation::reduction("dot", 2, |a, b| vector::dot(a, b).expect("same length")),
        Operation::reduction("min_value", 1, |a, _| vector::min_value(a).unwrap_or(T::ZERO)),
        Operation::reduction("max_value", 1, |a, _| vector::max_value(a).unwrap_or(T::ZERO)),
        Operation::new("arg_min", 1, |a, _, _| _ = black_box(vector::arg_min(a))),
        Operation::new("arg_max", 1, |a, _, _| _ = black_box(vector::arg_max(a))),
        Operation::new("matvec", 1, |a, b, out| {
            let rows = a.len() / COLUMNS;
            linalg::matvec(a, &b[..COLUMNS], &mut out[..rows], rows, COLUMNS).expect("the sizes match");
        }),
        Operation::new("transpose", 2, |a, _, out| {
            linalg::transpose(a, out, a.len() / COLUMNS, COLUMNS).expect("the sizes match");
        }),
    ]);
    operations
}

/// Returns the operations of floating-point types.
pub fn functions<T: RealNumber>() -> Vec<Operation<T>> {
    let mut operations = Vec::new();
    for vector::Function { name, run, .. } in vector::functions() {
        operations.push(Operation::new(name, 2, move |a, _, out| run(a, out).expect("same length")));
    }
    operations.extend([
        Operation::new("softmax", 2, |a, _, out| vector::softmax(a, out).expect("same length")),
        Operation::new("log_softmax", 2, |a, _, out| vector::log_softmax(a, out).expect("same length")),
        Operation::new("normalise", 2, |a, _, out| vector::normalise(a, out).expect("same length")),
        Operation::new("softmax_rows", 2, |a, _, out| {
            vector::softmax_rows(a, COLUMNS, out).expect("whole rows");
        }),
        Operation::new("log_softmax_rows", 2, |a, _, out| {
            vector::log_softmax_rows(a, COLUMNS, out).expect("whole rows");
        }),
        Operation::new("layer_norm_rows", 2, |a, b, out| {
            let row = Some(&b[..COLUMNS]);
            vector::layer_norm_rows(a, COLUMNS, row, row, 1e-5, out).expect("whole rows");
        }),
        Operation::new("mean_rows", 1, |a, _, out| {
            vector::mean_rows(a, COLUMNS, &mut out[..a.len() / COLUMNS]).expect("whole rows");
        }),
        Operation::new("variance_rows", 1, |a, _, out| {
            vector::variance_rows(a, COLUMNS, &mut out[..a.len() / COLUMNS]).expect("whole rows");
        }),
        Operation::reduction("mean", 1, |a, _| vector::mean(a)),
        Operation::reduction("mse", 2, |a, b| vector::mse(a, b).expect("same length")),
        Operation::reduction("mae", 2, |a, b| vector::mae(a, b).expect("same length")),
        Operation::reduction("huber", 2, |a, b| vector::huber(a, b, T::ONE).expect("same length")),
        Operation::reduction("binary_cross_entropy", 2, |a, b| {
            vector::binary_cross_entropy(a, b).expect("same length")
        }),
        Operation::reduction("cross_entropy", 1, |a, _| {
            vector::cross_entropy(a, &[a.len() / 2]).expect("the class exists")
        }),
    ]);
    operations
}

/// Returns all operations of `f32`, some of them with a plain loop.
pub fn with_plain_loops() -> Vec<Operation<f32>> {
    let mut operations = arithmetic();
    operations.extend(functions());
    for operation in &mut operations {
        if let Some(&(_, call, plain)) = WITH_PLAIN_LOOP.iter().find(|(name, ..)| *name == operation.name) {
            (operation.run, operation.plain) = (Box::new(call), Some(plain));
        }
    }
    operations
}

/// Operations with a plain loop: name, direct call, loop.
const WITH_PLAIN_LOOP: [(&str, Plain<f32>, Plain<f32>); 4] = [
    (
        "add",
        |a, b, out| vector::add(a, b, out).expect("same length"),
        |a, b, out| dispatch!(Level::new(), _ => plain_zip(a, b, out, #[inline(always)] |a, b| a + b)),
    ),
    (
        "mul",
        |a, b, out| vector::mul(a, b, out).expect("same length"),
        |a, b, out| dispatch!(Level::new(), _ => plain_zip(a, b, out, #[inline(always)] |a, b| a * b)),
    ),
    (
        "relu",
        |a, _, out| vector::relu(a, out).expect("same length"),
        |a, _, out| dispatch!(Level::new(), _ => plain_relu(a, out)),
    ),
    (
        "sum",
        |a, _, out| out[0] = vector::sum(a),
        |a, _, out| out[0] = dispatch!(Level::new(), _ => plain_sum(a)),
    ),
];

#[allow(clippy::inline_always, reason = "the loop must be compiled for the instruction set of the dispatch")]
#[inline(always)]
fn plain_zip(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    for ((out, &a), &b) in out.iter_mut().zip(a).zip(b) {
        *out = f(a, b);
    }
}

#[allow(clippy::inline_always, reason = "the loop must be compiled for the instruction set of the dispatch")]
#[inline(always)]
fn plain_relu(a: &[f32], out: &mut [f32]) {
    for (out, &a) in out.iter_mut().zip(a) {
        *out = if a < 0.0 { 0.0 } else { a };
    }
}

/// Compilers do not reorder floating-point additions, so the lanes are explicit.
#[allow(clippy::inline_always, reason = "the loop must be compiled for the instruction set of the dispatch")]
#[inline(always)]
fn plain_sum(a: &[f32]) -> f32 {
    let (chunks, rest) = a.as_chunks::<32>();
    let mut sums = [0.0; 32];
    for chunk in chunks {
        for (sum, x) in sums.iter_mut().zip(chunk) {
            *sum += x;
        }
    }
    sums.iter().chain(rest).sum()
}
