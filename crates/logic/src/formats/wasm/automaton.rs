//! The module of a cellular automaton.
//!
//! Every live channel has a plane of bits, and there are two copies of all planes: a step reads one and writes the other. A
//! plane has `height + 2` rows. A row is 16 bytes of padding and then the cells, 8 per byte, padded to a multiple of 16
//! bytes. The cells beyond the edges are stored as a halo:
//!
//! ```text
//! byte      0 ....... 15 | 16 ........ 16 + width / 8 ....... | 0 of the next row
//! bits                 L | cells 0 1 2 ... width - 1  R       |
//! ```
//!
//! L and R are the last bit of the padding and the bit after the last cell (in the padding of the next row if the cells
//! fill their bytes); the first and the last row of a plane are above and below the grid. Before a step they are set to 0
//! or, on a torus, to the cells at the opposite edge. A block of 128 cells then needs no special case: its left neighbours
//! are the same word shifted by one bit, and the bit that is shifted in is in the word 8 bytes before.

use super::assembly::{Assembly, allocate};
use super::body::{Part, Ports, at, compile};
use super::fire;
use crate::automaton::{Automaton, Boundary, CENTRE, NEIGHBOURS};
use crate::cone::Cone;
use crate::literal::Literal;
use crate::straight_line::StraightLineProgram;
use crate::xag::Xag;
use wasm_encoder::{BlockType, InstructionSink, ValType};

/// The parameters of the loop over the blocks of a row: the address 8 bytes before the block in the first plane, the mask
/// of cells that update, the bytes of a row and of a plane, the offset from the old planes to the new ones, the number of
/// remaining blocks and the counter of the random numbers.
const PARAMETERS: [ValType; 7] =
    [ValType::I32, ValType::V128, ValType::I32, ValType::I32, ValType::I32, ValType::I32, ValType::I32];
const CURSOR: u32 = 0;
const MASK: u32 = 1;
const ROW: u32 = 2;
const PLANE: u32 = 3;
const DELTA: u32 = 4;
const BLOCKS: u32 = 5;
const COUNTER: u32 = 6;

/// The padding of a row in bytes.
const MARGIN: i32 = 16;
/// The most rows and columns of a grid.
const MAX_SIDE: i32 = 1 << 15;
/// The address of the table of planes: for each channel, 0 or one more than the number of its plane.
const TABLE: u64 = 16;

/// The global variables of a module.
struct Globals {
    height: u32,
    width: u32,
    row: u32,
    plane: u32,
    current: u32,
    other: u32,
    time: u32,
    seed: u32,
    rate: u32,
}

impl Globals {
    fn new(assembly: &mut Assembly) -> Globals {
        let mut zero = || assembly.global(0);
        let [height, width, row, plane, current, other, time, seed] = std::array::from_fn(|_| zero());
        let rate = assembly.global(fire::ALL);
        Globals { height, width, row, plane, current, other, time, seed, rate }
    }
}

/// The planes of the live channels.
struct Planes {
    /// The number of the plane of each live channel.
    index: Vec<Option<u32>>,
    /// The channel of each plane.
    channels: Vec<usize>,
}

impl Planes {
    fn new(live: &[bool]) -> Planes {
        let channels: Vec<usize> = (0..live.len()).filter(|&channel| live[channel]).collect();
        let mut index = vec![None; live.len()];
        channels.iter().zip(0..).for_each(|(&channel, plane)| index[channel] = Some(plane));
        Planes { index, channels }
    }

    /// Pushes the address of the block in the plane of a channel, in the row above, the same or the row below.
    fn address(&self, code: &mut InstructionSink<'_>, channel: usize, row: usize) {
        code.local_get(CURSOR);
        match row {
            0 => code.local_get(ROW).i32_sub(),
            1 => code,
            _ => code.local_get(ROW).i32_add(),
        };
        if let Some(plane @ 1..) = self.index[channel] {
            code.local_get(PLANE).i32_const(plane as i32).i32_mul().i32_add();
        }
    }
}

impl Ports for Planes {
    fn load(&self, code: &mut InstructionSink<'_>, input: u32) {
        let (channel, neighbour) = (input as usize / NEIGHBOURS, input as usize % NEIGHBOURS);
        let (row, column) = (neighbour / 3, neighbour % 3);
        self.address(code, channel, row);
        code.v128_load(at(8));
        match column {
            0 => {
                code.i32_const(1).i64x2_shl();
                self.address(code, channel, row);
                code.v128_load(at(0)).i32_const(63).i64x2_shr_u().v128_or();
            }
            1 => {}
            _ => {
                code.i32_const(1).i64x2_shr_u();
                self.address(code, channel, row);
                code.v128_load(at(16)).i32_const(63).i64x2_shl().v128_or();
            }
        }
    }

    fn store(&self, code: &mut InstructionSink<'_>, output: usize, value: &dyn Fn(&mut InstructionSink<'_>)) {
        let channel = self.channels[output];
        self.address(code, channel, 1);
        code.local_get(DELTA).i32_add();
        value(code);
        self.address(code, channel, 1);
        code.v128_load(at(8)).local_get(MASK).v128_bitselect().v128_store(at(8));
    }
}

/// Returns the module of an automaton with a simplified circuit, of which the first `observed` channels are observed.
pub(super) fn module(automaton: &Automaton, observed: usize) -> Vec<u8> {
    let circuit = &automaton.circuit;
    let planes = Planes::new(&Cone::new(circuit, observed).live);
    let xag = Xag::from_circuit(circuit);
    let outputs: Vec<Literal> = planes.channels.iter().map(|&channel| xag.outputs()[channel]).collect();
    let program = StraightLineProgram::lower(&xag, &outputs);
    let mut assembly = Assembly::default();
    let globals = Globals::new(&mut assembly);

    let table = planes.index.iter().flat_map(|plane| plane.map_or(0, |plane| plane + 1).to_le_bytes());
    assembly.data(TABLE, table.collect());
    let spilled = (TABLE + 4 * automaton.channels as u64).next_multiple_of(16);
    let body = compile(&program, &planes, PARAMETERS.len() as u32, spilled);
    let base = spilled + body.spilled_bytes;

    let mix = fire::mix(&mut assembly);
    let mask = fire::mask(&mut assembly, globals.rate);
    let part = body.inline(&mut assembly, &PARAMETERS);
    let row = row_loop(&mut assembly, &globals, part, mask);
    let edges = edges(&mut assembly, &globals, automaton.boundary);
    let grid = grid_loop(&mut assembly, &globals, row, mix);

    export_init(&mut assembly, &globals, planes.channels.len() as u32, base);
    export_addresses(&mut assembly, &globals, automaton.channels);
    assembly.export("fire", &[ValType::I32, ValType::I32], &[], &[], |code| {
        code.local_get(0).global_set(globals.rate).local_get(1).global_set(globals.seed);
    });
    let bordered = planes_with_neighbours(&planes, &program);
    assembly.export("step", &[ValType::I32], &[], &[], |code| {
        code.block(BlockType::Empty).loop_(BlockType::Empty);
        code.local_get(0).i32_eqz().global_get(globals.height).i32_eqz().i32_or().br_if(1);
        for plane in bordered {
            code.global_get(globals.plane).i32_const(plane as i32).i32_mul();
            code.global_get(globals.current).i32_add().call(edges);
        }
        code.call(grid);
        code.global_get(globals.current).global_get(globals.other);
        code.global_set(globals.current).global_set(globals.other);
        code.global_get(globals.time).i32_const(1).i32_add().global_set(globals.time);
        code.local_get(0).i32_const(1).i32_sub().local_set(0);
        code.br(0).end().end();
    });
    assembly.finish(base)
}

/// The planes of which cells read neighbours.
fn planes_with_neighbours(planes: &Planes, program: &StraightLineProgram) -> Vec<u32> {
    let values = program.instructions.iter().flat_map(|instruction| instruction.reads()).flatten();
    let inputs = values.filter_map(|value| program.input(value)).filter(|input| input % NEIGHBOURS != CENTRE);
    let mut list: Vec<u32> = inputs.filter_map(|input| planes.index[input / NEIGHBOURS]).collect();
    list.sort_unstable();
    list.dedup();
    list
}

/// Adds the function that computes one row.
fn row_loop(assembly: &mut Assembly, globals: &Globals, part: Part, mask: u32) -> u32 {
    let mut bytes = Vec::new();
    let mut code = InstructionSink::new(&mut bytes);
    code.loop_(BlockType::Empty);
    code.global_get(globals.rate).i32_const(fire::ALL).i32_lt_u().if_(BlockType::Empty);
    code.local_get(COUNTER).call(mask).local_set(MASK).end();
    bytes.extend(part.code);
    let mut code = InstructionSink::new(&mut bytes);
    code.local_get(CURSOR).i32_const(16).i32_add().local_set(CURSOR);
    code.local_get(COUNTER).i32_const(64).i32_add().local_set(COUNTER);
    code.local_get(BLOCKS).i32_const(1).i32_sub().local_tee(BLOCKS).br_if(0).end();
    assembly.function_of(&PARAMETERS, &[], &[(part.locals, ValType::V128)], bytes)
}

/// Adds the function that computes all rows.
fn grid_loop(assembly: &mut Assembly, globals: &Globals, row: u32, mix: u32) -> u32 {
    const Y: u32 = 0;
    const CURSOR: u32 = 1;
    const KEY: u32 = 2;
    assembly.function(&[], &[], &[(3, ValType::I32)], |code| {
        code.global_get(globals.current).global_get(globals.row).i32_add().i32_const(MARGIN - 8).i32_add();
        code.local_set(CURSOR);
        code.global_get(globals.seed).call(mix).global_get(globals.time).i32_add().call(mix).local_set(KEY);
        code.loop_(BlockType::Empty);
        code.local_get(CURSOR).v128_const(-1).global_get(globals.row).global_get(globals.plane);
        code.global_get(globals.other).global_get(globals.current).i32_sub();
        code.global_get(globals.row).i32_const(4).i32_shr_u().i32_const(1).i32_sub();
        code.local_get(KEY).local_get(Y).i32_add().call(mix).call(row);
        code.local_get(CURSOR).global_get(globals.row).i32_add().local_set(CURSOR);
        code.local_get(Y).i32_const(1).i32_add().local_tee(Y).global_get(globals.height).i32_lt_u();
        code.br_if(0).end();
    })
}

/// Adds the function that updates the halo of the plane at an address.
fn edges(assembly: &mut Assembly, globals: &Globals, boundary: Boundary) -> u32 {
    const PLANE: u32 = 0;
    const CELLS: u32 = 1;
    const END: u32 = 2;
    let torus = boundary == Boundary::Torus;
    assembly.function(&[ValType::I32], &[], &[(2, ValType::I32)], |code| {
        code.local_get(PLANE).global_get(globals.row).i32_add().i32_const(MARGIN).i32_add().local_set(CELLS);
        code.local_get(PLANE).global_get(globals.plane).i32_add().global_get(globals.row).i32_sub();
        code.local_set(END);
        code.loop_(BlockType::Empty);
        right_of_row(code, globals, CELLS, torus);
        if torus {
            left_of_row(code, globals, CELLS);
        }
        code.local_get(CELLS).global_get(globals.row).i32_add().local_tee(CELLS);
        code.local_get(END).i32_lt_u().br_if(0).end();
        if torus {
            // From the last bits of the padding to the first bits after the row: as many bytes as a row has.
            code.local_get(PLANE).i32_const(8).i32_add();
            code.local_get(END).global_get(globals.row).i32_sub().i32_const(8).i32_add();
            code.global_get(globals.row).memory_copy(0, 0);
            code.local_get(END).i32_const(8).i32_add();
            code.local_get(PLANE).global_get(globals.row).i32_add().i32_const(8).i32_add();
            code.global_get(globals.row).memory_copy(0, 0);
        }
    })
}

/// Writes the bit after the last cell of a row: 0, or cell 0.
fn right_of_row(code: &mut InstructionSink<'_>, globals: &Globals, cells: u32, torus: bool) {
    let byte = |code: &mut InstructionSink<'_>| {
        code.local_get(cells).global_get(globals.width).i32_const(3).i32_shr_u().i32_add();
    };
    let bit = |code: &mut InstructionSink<'_>| {
        code.global_get(globals.width).i32_const(7).i32_and();
    };
    byte(code);
    byte(code);
    code.i32_load8_u(at(0)).i32_const(1);
    bit(code);
    code.i32_shl().i32_const(1).i32_sub().i32_and();
    if torus {
        code.local_get(cells).i32_load8_u(at(0)).i32_const(1).i32_and();
        bit(code);
        code.i32_shl().i32_or();
    }
    code.i32_store8(at(0));
}

/// Writes the bit before the first cell of a row: the last cell.
fn left_of_row(code: &mut InstructionSink<'_>, globals: &Globals, cells: u32) {
    let last = |code: &mut InstructionSink<'_>| {
        code.global_get(globals.width).i32_const(1).i32_sub();
    };
    code.local_get(cells).i32_const(1).i32_sub().local_get(cells);
    last(code);
    code.i32_const(3).i32_shr_u().i32_add().i32_load8_u(at(0));
    last(code);
    code.i32_const(7).i32_and().i32_shr_u().i32_const(7).i32_shl().i32_store8(at(0));
}

/// Exports `init`.
fn export_init(assembly: &mut Assembly, globals: &Globals, planes: u32, base: u64) {
    const HEIGHT: u32 = 0;
    const WIDTH: u32 = 1;
    const BYTES: u32 = 2;
    const COPY: u32 = 3;
    let locals = [(2, ValType::I64)];
    assembly.export("init", &[ValType::I32; 2], &[ValType::I32], &locals, |code| {
        // There is no grid before the allocation succeeds.
        code.i32_const(0).global_set(globals.height);
        for side in [HEIGHT, WIDTH] {
            code.local_get(side).i32_const(1).i32_sub().i32_const(MAX_SIDE).i32_ge_u();
            code.if_(BlockType::Empty).i32_const(0).return_().end();
        }
        code.local_get(WIDTH).i32_const(255).i32_add().i32_const(7).i32_shr_u().i32_const(4).i32_shl();
        code.global_set(globals.row);
        code.local_get(HEIGHT).i32_const(2).i32_add().global_get(globals.row).i32_mul();
        code.global_set(globals.plane);
        code.global_get(globals.plane).i64_extend_i32_u().i64_const(i64::from(planes)).i64_mul();
        code.i64_const(16).i64_add().local_tee(COPY);
        code.i64_const(1).i64_shl().i64_const(base as i64).i64_add().local_set(BYTES);
        allocate(code, BYTES, base);
        code.i32_const(base as u32 as i32).global_set(globals.current);
        code.i32_const(base as u32 as i32).local_get(COPY).i32_wrap_i64().i32_add().global_set(globals.other);
        code.i32_const(0).global_set(globals.time);
        code.local_get(WIDTH).global_set(globals.width);
        code.local_get(HEIGHT).global_set(globals.height).i32_const(1);
    });
}

/// Exports `plane` and `row_bytes`.
fn export_addresses(assembly: &mut Assembly, globals: &Globals, channels: usize) {
    assembly.export("row_bytes", &[], &[ValType::I32], &[], |code| {
        code.global_get(globals.row);
    });
    assembly.export("plane", &[ValType::I32], &[ValType::I32], &[(1, ValType::I32)], |code| {
        code.local_get(0).i32_const(channels as i32).i32_ge_u().global_get(globals.height).i32_eqz().i32_or();
        code.if_(BlockType::Empty).i32_const(0).return_().end();
        code.local_get(0).i32_const(2).i32_shl().i32_load(at(TABLE)).local_tee(1).i32_eqz();
        code.if_(BlockType::Empty).i32_const(0).return_().end();
        code.local_get(1).i32_const(1).i32_sub().global_get(globals.plane).i32_mul();
        code.global_get(globals.current).i32_add().global_get(globals.row).i32_add();
        code.i32_const(MARGIN).i32_add();
    });
}
