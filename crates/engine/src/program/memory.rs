//! The memory of a program: one arena for each type.

use crate::buffer::Buffer;
use crate::dtype::DType;
use crate::vector::Number;

/// One arena for each type.
#[derive(Clone, Debug)]
pub struct Memory {
    f32s: Buffer<f32>,
    f64s: Buffer<f64>,
    i32s: Buffer<i32>,
    i64s: Buffer<i64>,
}

/// A number with an arena of its own.
pub trait Stored: Number {
    /// Its arena.
    fn arena(memory: &Memory) -> &[Self];
    /// Its arena, to be written.
    fn arena_mut(memory: &mut Memory) -> &mut [Self];
    /// From the bits of a constant.
    fn from_bits(bits: u64) -> Self;
    /// Rounded from an `f64`, or cut to a whole number in range.
    fn from_number(x: f64) -> Self;
    /// From an integer; integers wrap, floating point rounds once.
    fn from_integer(x: i64) -> Self;
    /// As an `f64`.
    fn number(self) -> f64;
    /// As an `i64`, cut to a whole number in range.
    fn integer(self) -> i64;
}

macro_rules! stored {
    ($type:ty, $field:ident, $from_bits:expr, $from_integer:expr) => {
        impl Stored for $type {
            fn arena(memory: &Memory) -> &[$type] {
                &memory.$field
            }

            fn arena_mut(memory: &mut Memory) -> &mut [$type] {
                &mut memory.$field
            }

            fn from_bits(bits: u64) -> $type {
                $from_bits(bits)
            }

            fn from_number(x: f64) -> $type {
                x as $type
            }

            fn from_integer(x: i64) -> $type {
                $from_integer(x)
            }

            fn number(self) -> f64 {
                self as f64
            }

            fn integer(self) -> i64 {
                self as i64
            }
        }
    };
}

stored!(f32, f32s, |bits| f64::from_bits(bits) as f32, |x| x as f32);
stored!(f64, f64s, f64::from_bits, |x| x as f64);
stored!(i32, i32s, |bits| bits as i32, |x| x as i32);
stored!(i64, i64s, |bits| bits as i64, |x: i64| x);

impl Memory {
    /// Zeros, so many of each type in the order of [`DType::ALL`].
    pub fn new([f32s, f64s, i32s, i64s]: [usize; 4]) -> Memory {
        Memory {
            f32s: Buffer::zeroed(f32s),
            f64s: Buffer::zeroed(f64s),
            i32s: Buffer::zeroed(i32s),
            i64s: Buffer::zeroed(i64s),
        }
    }

    /// Bytes in all.
    pub fn bytes(&self) -> usize {
        4 * (self.f32s.len() + self.i32s.len()) + 8 * (self.f64s.len() + self.i64s.len())
    }

    /// Writes the bits of constants.
    pub fn write_bits(&mut self, dtype: DType, offset: usize, bits: &[u64]) {
        fn write<T: Stored>(memory: &mut Memory, offset: usize, bits: &[u64]) {
            let to = &mut T::arena_mut(memory)[offset..][..bits.len()];
            to.iter_mut().zip(bits).for_each(|(to, &bits)| *to = T::from_bits(bits));
        }
        match dtype {
            DType::F32 => write::<f32>(self, offset, bits),
            DType::F64 => write::<f64>(self, offset, bits),
            DType::I32 => write::<i32>(self, offset, bits),
            DType::I64 => write::<i64>(self, offset, bits),
        }
    }
}
