//! Two fused element-wise operations on three slices, without a pass over memory for the intermediate result.

use fearless_simd::Simd;

use super::{Number, elementwise};
use crate::kernel::level;

macro_rules! fused {
    ($($(#[$doc:meta])* $name:ident: |$a:ident, $b:ident, $c:ident| $body:expr;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Panics
            /// If an operand is shorter than the result.
            #[inline]
            pub(crate) fn $name<T: Number>(operands: [&[T]; 3], out: &mut [T]) {
                (T::compiled().fused.$name)(operands, out);
            }
        )*

        /// The fused operations, compiled for a type.
        #[derive(Debug)]
        pub(super) struct CompiledFused<T> {
            $($name: fn([&[T]; 3], &mut [T]),)*
        }

        impl<T: Number> CompiledFused<T> {
            pub(super) const fn new() -> Self {
                $(
                    fn $name<T: Number>(operands: [&[T]; 3], out: &mut [T]) {
                        #[inline(always)]
                        fn pass<S: Simd, T: Number>(simd: S, operands: [&[T]; 3], out: &mut [T]) {
                            elementwise::zip3::<S, T::Vector<S>>(simd, operands, out, #[inline(always)] |$a, $b, $c| $body);
                        }
                        dispatch!(level(), simd => pass(simd, operands, out));
                    }
                )*
                Self { $($name: $name::<T>,)* }
            }
        }
    };
}

fused! {
    /// `a[i] * b[i] + c[i]`, rounded twice.
    mul_then_add: |a, b, c| a * b + c;
    /// `a[i] * b[i] - c[i]`, rounded twice.
    mul_then_sub: |a, b, c| a * b - c;
    /// `a[i] * b[i] * c[i]`.
    mul_then_mul: |a, b, c| a * b * c;
    /// `(a[i] + b[i]) * c[i]`.
    add_then_mul: |a, b, c| (a + b) * c;
    /// `(a[i] - b[i]) * c[i]`.
    sub_then_mul: |a, b, c| (a - b) * c;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::tests::{cases, on_every_level};
    use crate::vector::{add, mul, sub};
    use proptest::prelude::*;

    type Single = fn(&[f32], &[f32], &mut [f32]) -> Result<(), crate::vector::VectorError>;
    type Pass = fn([&[f32]; 3], &mut [f32]);

    proptest! {
        #![proptest_config(cases(50))]

        #[test]
        fn fused_operations_have_the_bits_of_its_operations(numbers: Vec<(f32, f32, f32)>) {
            let a: Vec<f32> = numbers.iter().map(|x| x.0).collect();
            let b: Vec<f32> = numbers.iter().map(|x| x.1).collect();
            let c: Vec<f32> = numbers.iter().map(|x| x.2).collect();
            let pairs: [(Pass, Single, Single); 5] = [
                (mul_then_add, mul, add),
                (mul_then_sub, mul, sub),
                (mul_then_mul, mul, mul),
                (add_then_mul, add, mul),
                (sub_then_mul, sub, mul),
            ];
            on_every_level(|| {
                let [mut between, mut right, mut ours] = [const { Vec::new() }; 3].map(|mut v: Vec<f32>| {
                    v.resize(a.len(), 0.0);
                    v
                });
                for (fused, first, second) in pairs {
                    first(&a, &b, &mut between).unwrap();
                    second(&between, &c, &mut right).unwrap();
                    fused([&a, &b, &c], &mut ours);
                    let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
                    assert!(ours.iter().zip(&right).all(same));
                }
            });
        }
    }
}
