//! Tensors of a [`Scope`]: operators, and methods for the operations of [`Graph`](super::Graph).
//!
//! The methods of element-wise operations follow from their tables in `ops`; the other operations list theirs with
//! `tensor_methods!` in the file of the operation.

use std::fmt;
use std::ops::{Add, Div, Mul, Neg, Sub};

use super::{Conv1d, Gru, Id, Lstm, Scope};
use crate::dtype::DType;
use crate::ops::{Binary, Reduction, Unary};
use crate::shape::Shape;

/// A tensor of a [`Scope`]: a handle to a node of its graph, which is copied freely.
///
/// ```
/// use gatework_engine::{DType, Scope};
///
/// let scope = Scope::new();
/// let x = scope.input("x", DType::F32, &[3]);
/// let loss = (1.0 - x * x).mean_all();
/// let [gradient] = loss.gradients([x]);
/// let mut runner = scope.compile(&[("loss", loss), ("gradient", gradient)])?.runner();
/// runner.write("x", &[1.0f32, 2.0, 3.0])?;
/// runner.run();
/// assert!((runner.read::<f32>("loss")?[0] + 11.0 / 3.0).abs() < 1e-6);
/// assert!((runner.read::<f32>("gradient")?[2] + 2.0).abs() < 1e-6);
/// # Ok::<(), gatework_engine::program::ProgramError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Tensor<'s> {
    pub(super) scope: &'s Scope,
    /// The node; `None` if an expression that the tensor depends on does not fit.
    pub(super) id: Option<Id>,
}

impl fmt::Debug for Tensor<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.id {
            Some(id) => write!(f, "{}", self.scope.read(|graph| graph.operand(id))),
            None => f.write_str("invalid"),
        }
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Tensor<'_> {}
    impl Sealed for &super::Tensor<'_> {}
    impl Sealed for f64 {}
}

/// The second operand of an element-wise operation: a tensor, a reference to one, or a number.
pub trait IntoTensor<'s>: sealed::Sealed {
    /// Returns the tensor; for a number, a constant with the shape and type of `like`.
    #[track_caller]
    fn into_tensor(self, like: Tensor<'s>) -> Tensor<'s>;
}

impl<'s> IntoTensor<'s> for Tensor<'s> {
    fn into_tensor(self, _: Tensor<'s>) -> Tensor<'s> {
        self
    }
}

impl<'s> IntoTensor<'s> for &Tensor<'s> {
    fn into_tensor(self, _: Tensor<'s>) -> Tensor<'s> {
        *self
    }
}

impl<'s> IntoTensor<'s> for f64 {
    #[track_caller]
    fn into_tensor(self, like: Tensor<'s>) -> Tensor<'s> {
        like.scope.build("number", [like], |graph, [like]| {
            if !graph.dtype(like).is_float() && self.fract() != 0.0 {
                let problem =
                    "a number with a fraction does not fit an integer tensor; cast the tensor first";
                return graph.type_error(&format!("number {self}"), &[like], problem);
            }
            graph.constant_like(like, self)
        })
    }
}

impl<'s> Tensor<'s> {
    /// The scope that the tensor belongs to.
    pub fn scope(self) -> &'s Scope {
        self.scope
    }

    /// The shape; that of a scalar if an expression that the tensor depends on does not fit.
    pub fn shape(self) -> Shape {
        self.id.map_or(Shape::SCALAR, |id| self.scope.read(|graph| graph.shape(id)))
    }

    /// The type; `f32` if an expression that the tensor depends on does not fit.
    pub fn dtype(self) -> DType {
        self.id.map_or(DType::F32, |id| self.scope.read(|graph| graph.dtype(id)))
    }

    /// Applies a function to each element.
    #[track_caller]
    #[must_use]
    pub fn unary(self, op: Unary) -> Tensor<'s> {
        self.scope.build(op.row().name, [self], |graph, [x]| graph.unary(op, x))
    }

    /// Applies a function to each pair of elements. Shapes broadcast.
    #[track_caller]
    #[must_use]
    pub fn binary(self, op: Binary, other: impl IntoTensor<'s>) -> Tensor<'s> {
        let other = other.into_tensor(self);
        self.scope.build(op.row().name, [self, other], |graph, [a, b]| graph.binary(op, a, b))
    }

    /// Reduces axes, which keep size 1.
    #[track_caller]
    #[must_use]
    pub fn reduce(self, op: Reduction, axes: &[usize]) -> Tensor<'s> {
        self.scope.build(op.name(), [self], |graph, [x]| graph.reduce(op, x, axes))
    }

    /// 1 if it is greater than the other, else 0.
    #[track_caller]
    #[must_use]
    pub fn greater(self, other: impl IntoTensor<'s>) -> Tensor<'s> {
        other.into_tensor(self).less(self)
    }

    /// 1 if it is at least the other, else 0.
    #[track_caller]
    #[must_use]
    pub fn greater_equal(self, other: impl IntoTensor<'s>) -> Tensor<'s> {
        other.into_tensor(self).less_equal(self)
    }

    /// `a` where this tensor is not 0, else `b`. Shapes broadcast.
    #[track_caller]
    #[must_use]
    pub fn select(self, a: impl IntoTensor<'s>, b: impl IntoTensor<'s>) -> Tensor<'s> {
        let operands = [self, a.into_tensor(self), b.into_tensor(self)];
        self.scope.build("select", operands, |graph, [condition, a, b]| graph.select(condition, a, b))
    }

    /// Convolution of `[batch, channels, time]` with `kernel`, `[outputs, channels, size]`, plus `bias`, `[outputs]`.
    #[track_caller]
    #[must_use]
    pub fn conv1d(self, kernel: Tensor<'s>, bias: Option<Tensor<'s>>, settings: Conv1d) -> Tensor<'s> {
        match bias {
            Some(bias) => self.scope.build("conv1d", [self, kernel, bias], |graph, [x, kernel, bias]| {
                graph.conv1d(x, kernel, Some(bias), settings)
            }),
            None => self.scope.build("conv1d", [self, kernel], |graph, [x, kernel]| {
                graph.conv1d(x, kernel, None, settings)
            }),
        }
    }

    /// The states of a GRU after every step of `[batch, time, inputs]`: `[batch, time, hidden]`. The initial state is zero.
    #[track_caller]
    #[must_use]
    pub fn gru(self, cell: &Gru<Tensor<'s>>) -> Tensor<'s> {
        let operands = [self, cell.input, cell.hidden, cell.input_bias, cell.hidden_bias];
        self.scope.build("gru", operands, |graph, [x, input, hidden, input_bias, hidden_bias]| {
            graph.gru(x, &Gru { input, hidden, input_bias, hidden_bias })
        })
    }

    /// The outputs of an LSTM after every step of `[batch, time, inputs]`: `[batch, time, hidden]`. The initial state is zero.
    #[track_caller]
    #[must_use]
    pub fn lstm(self, cell: &Lstm<Tensor<'s>>) -> Tensor<'s> {
        let operands = [self, cell.input, cell.hidden, cell.input_bias, cell.hidden_bias];
        self.scope.build("lstm", operands, |graph, [x, input, hidden, input_bias, hidden_bias]| {
            graph.lstm(x, &Lstm { input, hidden, input_bias, hidden_bias })
        })
    }

    /// The gradients of this scalar with respect to some tensors.
    #[track_caller]
    #[must_use]
    pub fn gradients<const N: usize>(self, of: [Tensor<'s>; N]) -> [Tensor<'s>; N] {
        let gradients = self.scope.gradients(self, &of);
        std::array::from_fn(|i| gradients[i])
    }

    /// The vector-Jacobian product: gradients of the sum of this tensor times `dy` with respect to some tensors.
    #[track_caller]
    #[must_use]
    pub fn pull_back<const N: usize>(self, dy: Tensor<'s>, of: [Tensor<'s>; N]) -> [Tensor<'s>; N] {
        let gradients = self.scope.pull_back(self, dy, &of);
        std::array::from_fn(|i| gradients[i])
    }
}

/// Methods of [`Tensor`] that add the node of the method of `Graph` with the same name: further tensors in brackets, then
/// settings.
macro_rules! tensor_methods {
    ($($(#[$doc:meta])* $name:ident([$($tensor:ident),*] $(, $setting:ident: $type:ty)*);)*) => {
        impl<'s> $crate::graph::Tensor<'s> {
            $($(#[$doc])*
            #[track_caller]
            #[must_use]
            pub fn $name(
                self,
                $($tensor: impl std::borrow::Borrow<$crate::graph::Tensor<'s>>,)*
                $($setting: $type),*
            ) -> $crate::graph::Tensor<'s> {
                let operands = [self, $(*$tensor.borrow()),*];
                self.scope().build(stringify!($name), operands, |graph, [x, $($tensor),*]| {
                    graph.$name(x, $($tensor,)* $($setting),*)
                })
            })*
        }
    };
}

pub(crate) use tensor_methods;

/// Operators: the left operand is a tensor or a reference to one, and the right one of these or a number; or the left is a
/// number.
macro_rules! operators {
    ($($trait:ident $method:ident $op:ident;)*) => {$(
        impl<'s, T: IntoTensor<'s>> $trait<T> for Tensor<'s> {
            type Output = Tensor<'s>;

            #[track_caller]
            fn $method(self, other: T) -> Tensor<'s> {
                self.binary(Binary::$op, other)
            }
        }

        impl<'s, T: IntoTensor<'s>> $trait<T> for &Tensor<'s> {
            type Output = Tensor<'s>;

            #[track_caller]
            fn $method(self, other: T) -> Tensor<'s> {
                self.binary(Binary::$op, other)
            }
        }

        impl<'s> $trait<Tensor<'s>> for f64 {
            type Output = Tensor<'s>;

            #[track_caller]
            fn $method(self, other: Tensor<'s>) -> Tensor<'s> {
                self.into_tensor(other).binary(Binary::$op, other)
            }
        }

        impl<'s> $trait<&Tensor<'s>> for f64 {
            type Output = Tensor<'s>;

            #[track_caller]
            fn $method(self, other: &Tensor<'s>) -> Tensor<'s> {
                self.into_tensor(*other).binary(Binary::$op, other)
            }
        }
    )*};
}

operators! {
    Add add Add;
    Sub sub Sub;
    Mul mul Mul;
    Div div Div;
}

impl<'s> Neg for Tensor<'s> {
    type Output = Tensor<'s>;

    #[track_caller]
    fn neg(self) -> Tensor<'s> {
        self.unary(Unary::Neg)
    }
}

impl<'s> Neg for &Tensor<'s> {
    type Output = Tensor<'s>;

    #[track_caller]
    fn neg(self) -> Tensor<'s> {
        self.unary(Unary::Neg)
    }
}
