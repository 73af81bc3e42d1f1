//! The mask of cells that update in an asynchronous step: a counter-based random number generator.
//!
//! A random word of 32 bits is a function of the seed, the step, the row and the position in the row, so the generator has
//! no state:
//!
//! ```text
//! key(step, row)   = mix(mix(mix(seed) + step) + row)
//! random(j, i)     = mix(key + 16 j + i)            for cells 32 j .. 32 j + 31 of the row
//! ```
//!
//! `mix` is the finaliser of MurmurHash3 (Austin Appleby, public domain). A mask whose bits are 1 with a
//! probability of `rate` / 2^16 takes one random word for each bit `i` of the rate, from the lowest 1 on: a bit
//! that is 1 joins its word with OR, which takes the probability p to (1 + p) / 2; a bit that is 0 with AND,
//! which takes it to p / 2.

use super::assembly::Assembly;
use wasm_encoder::{BlockType, InstructionSink, ValType};

/// The rate at which every cell updates.
pub(super) const ALL: i32 = 1 << 16;

const FACTORS: [i32; 2] = [0x85eb_ca6b_u32 as i32, 0xc2b2_ae35_u32 as i32];
const SHIFTS: [i32; 3] = [16, 13, 16];

/// Adds `mix(x) -> i32` and returns its index.
pub(super) fn mix(assembly: &mut Assembly) -> u32 {
    assembly.function(&[ValType::I32], &[ValType::I32], &[], |code| {
        for (i, shift) in SHIFTS.into_iter().enumerate() {
            code.local_get(0).local_get(0).i32_const(shift).i32_shr_u().i32_xor();
            if let Some(&factor) = FACTORS.get(i) {
                code.i32_const(factor).i32_mul();
            }
            code.local_set(0);
        }
        code.local_get(0);
    })
}

/// Adds `mask(counter) -> v128`, the mask of 128 cells, and returns its index. The counter is the key of the row
/// plus 16 for every 32 cells before; the global `rate` is below [`ALL`].
pub(super) fn mask(assembly: &mut Assembly, rate: u32) -> u32 {
    const COUNTER: u32 = 0;
    const BIT: u32 = 1;
    const WORD: u32 = 2;
    const MASK: u32 = 3;
    let locals = [(1, ValType::I32), (2, ValType::V128)];
    assembly.function(&[ValType::I32], &[ValType::V128], &locals, |code| {
        code.global_get(rate).i32_ctz().local_set(BIT);
        code.block(BlockType::Empty).loop_(BlockType::Empty);
        code.local_get(BIT).i32_const(16).i32_ge_u().br_if(1);
        // One word for each quarter of the mask.
        code.local_get(COUNTER).local_get(BIT).i32_add().i32x4_splat();
        code.v128_const(48 << 96 | 32 << 64 | 16 << 32).i32x4_add().local_set(WORD);
        mix_vector(code, WORD);
        // mask & word | bit & (mask | word)
        code.local_get(MASK).local_get(WORD).v128_and();
        code.global_get(rate).local_get(BIT).i32_shr_u().i32_const(1).i32_and();
        code.i32_const(-1).i32_mul().i32x4_splat();
        code.local_get(MASK).local_get(WORD).v128_or().v128_and().v128_or().local_set(MASK);
        code.local_get(BIT).i32_const(1).i32_add().local_set(BIT);
        code.br(0).end().end().local_get(MASK);
    })
}

/// Replaces the four numbers in a local by their `mix`.
fn mix_vector(code: &mut InstructionSink<'_>, x: u32) {
    for (i, shift) in SHIFTS.into_iter().enumerate() {
        code.local_get(x).local_get(x).i32_const(shift).i32x4_shr_u().v128_xor();
        if let Some(&factor) = FACTORS.get(i) {
            code.i32_const(factor).i32x4_splat().i32x4_mul();
        }
        code.local_set(x);
    }
}
