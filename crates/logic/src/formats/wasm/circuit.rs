//! The module of a plain circuit.

use super::assembly::{Assembly, allocate};
use super::body::{Body, Part, Ports, at, compile};
use crate::circuit::Circuit;
use crate::straight_line::StraightLineProgram;
use wasm_encoder::{BlockType, InstructionSink, ValType};

/// The parameters of the loop over blocks: the address of the block in the plane of input 0, the bytes of a plane, the
/// offset from the inputs to the outputs, and the number of remaining blocks.
const PARAMETERS: [ValType; 4] = [ValType::I32; 4];
const CURSOR: u32 = 0;
const PLANE: u32 = 1;
const DELTA: u32 = 2;
const BLOCKS: u32 = 3;

/// The address of values that are live across parts.
const SPILLED: u64 = 16;

struct Planes;

impl Ports for Planes {
    fn load(&self, code: &mut InstructionSink<'_>, input: u32) {
        code.local_get(PLANE).i32_const(input as i32).i32_mul();
        code.local_get(CURSOR).i32_add().v128_load(at(0));
    }

    fn store(&self, code: &mut InstructionSink<'_>, output: usize, value: &dyn Fn(&mut InstructionSink<'_>)) {
        code.local_get(PLANE).i32_const(output as i32).i32_mul();
        code.local_get(CURSOR).i32_add().local_get(DELTA).i32_add();
        value(code);
        code.v128_store(at(0));
    }
}

/// Returns the module of a simplified circuit.
pub(super) fn module(circuit: &Circuit) -> Vec<u8> {
    let mut assembly = Assembly::default();
    let program = StraightLineProgram::new(circuit);
    let body = compile(&program, &Planes, PARAMETERS.len() as u32, SPILLED);
    let base = SPILLED + body.spilled_bytes;
    let (inputs, outputs) = (circuit.inputs() as i64, circuit.outputs().len() as i64);
    let blocks = assembly.global(0);

    let run = block_loop(&mut assembly, body);
    assembly.export("init", &[ValType::I32], &[ValType::I32], &[(1, ValType::I64)], |code| {
        // Without memory there are no blocks.
        code.i32_const(0).global_set(blocks);
        code.local_get(0).i64_extend_i32_u().i64_const(127).i64_add().i64_const(7).i64_shr_u();
        code.i64_const(16 * (inputs + outputs)).i64_mul().i64_const(base as i64).i64_add().local_set(1);
        allocate(code, 1, base);
        code.local_get(0).i64_extend_i32_u().i64_const(127).i64_add().i64_const(7).i64_shr_u();
        code.i32_wrap_i64().global_set(blocks).i32_const(1);
    });
    for (name, first, count) in [("input", 0, inputs), ("output", inputs, outputs)] {
        assembly.export(name, &[ValType::I32], &[ValType::I32], &[], |code| {
            code.local_get(0).i32_const(count as i32).i32_ge_u();
            code.if_(BlockType::Empty).i32_const(0).return_().end();
            code.local_get(0).i32_const(first as i32).i32_add();
            code.global_get(blocks).i32_mul().i32_const(4).i32_shl().i32_const(base as u32 as i32).i32_add();
        });
    }
    assembly.export("run", &[], &[], &[], |code| {
        code.global_get(blocks).i32_eqz().if_(BlockType::Empty).return_().end();
        code.i32_const(base as u32 as i32).global_get(blocks).i32_const(4).i32_shl();
        code.global_get(blocks).i32_const(inputs as i32).i32_mul().i32_const(4).i32_shl();
        code.global_get(blocks).call(run);
    });
    assembly.finish(base)
}

/// Adds the function that computes all blocks.
fn block_loop(assembly: &mut Assembly, body: Body) -> u32 {
    let Part { code: body, locals } = body.inline(assembly, &PARAMETERS);
    let mut bytes = Vec::new();
    InstructionSink::new(&mut bytes).loop_(BlockType::Empty);
    bytes.extend(body);
    let mut code = InstructionSink::new(&mut bytes);
    code.local_get(CURSOR).i32_const(16).i32_add().local_set(CURSOR);
    code.local_get(BLOCKS).i32_const(1).i32_sub().local_tee(BLOCKS).br_if(0).end();
    assembly.function_of(&PARAMETERS, &[], &[(locals, ValType::V128)], bytes)
}
