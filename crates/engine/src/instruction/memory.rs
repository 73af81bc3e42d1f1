//! The memory of a runner: one arena for each element type, and one for numbers that are stored in 16 bits.

use crate::buffer::Buffer;
use crate::dtype::DType;
use crate::vector::Number;

/// One arena for each element type, and one for numbers that are stored in 16 bits.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    f32s: Buffer<f32>,
    f64s: Buffer<f64>,
    i32s: Buffer<i32>,
    i64s: Buffer<i64>,
    halves: Buffer<u16>,
}

/// Number of arenas.
pub const ARENAS: usize = DType::ALL.len() + 1;

/// An element type that has an arena.
pub trait Stored: Number {
    /// The arena of the type.
    fn arena(memory: &Memory) -> &[Self];
    /// The arena of the type, to be written.
    fn arena_mut(memory: &mut Memory) -> &mut [Self];
    /// The arena of the type and that of 16-bit numbers, to be written.
    fn arenas_mut(memory: &mut Memory) -> (&mut [Self], &mut [u16]);
    /// Converts the bits of a constant.
    fn from_bits(bits: u64) -> Self;
    /// Converts an `f64`: rounds to the nearest float, or truncates to an integer and saturates.
    fn from_number(x: f64) -> Self;
    /// Converts an integer: integer types wrap, floating-point types round once.
    fn from_integer(x: i64) -> Self;
    /// Converts to `f64`.
    fn number(self) -> f64;
    /// Converts to `i64`: truncates and saturates.
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

            fn arenas_mut(memory: &mut Memory) -> (&mut [$type], &mut [u16]) {
                (&mut memory.$field, &mut memory.halves)
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
    /// Zeroed arenas with these numbers of elements, in the order of [`DType::ALL`], 16-bit numbers last.
    pub fn new([f32s, f64s, i32s, i64s, halves]: [usize; ARENAS]) -> Memory {
        Memory {
            f32s: Buffer::zeroed(f32s),
            f64s: Buffer::zeroed(f64s),
            i32s: Buffer::zeroed(i32s),
            i64s: Buffer::zeroed(i64s),
            halves: Buffer::zeroed(halves),
        }
    }

    /// Whether each arena has at least this many elements.
    pub fn has_room(&self, [f32s, f64s, i32s, i64s, halves]: [usize; ARENAS]) -> bool {
        self.f32s.len() >= f32s
            && self.f64s.len() >= f64s
            && self.i32s.len() >= i32s
            && self.i64s.len() >= i64s
            && self.halves.len() >= halves
    }

    /// Bytes of all arenas.
    pub fn bytes(&self) -> usize {
        size_of_val(&*self.f32s)
            + size_of_val(&*self.f64s)
            + size_of_val(&*self.i32s)
            + size_of_val(&*self.i64s)
            + size_of_val(&*self.halves)
    }

    /// Writes constants, given by their bits.
    pub fn write_bits(&mut self, dtype: DType, offset: usize, bits: &[u64]) {
        fn write<T: Stored>(memory: &mut Memory, offset: usize, bits: &[u64]) {
            let to = &mut T::arena_mut(memory)[offset..][..bits.len()];
            to.iter_mut().zip(bits).for_each(|(to, &bits)| *to = T::from_bits(bits));
        }
        with_type!(dtype, T => write::<T>(self, offset, bits));
    }
}
