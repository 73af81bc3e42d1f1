//! The module of a classifier: encoder, gates and head for one sample.
//!
//! A bit of the encoder is computed where a part of the program reads it: a comparison of the value in memory with a
//! constant. Outputs are the bits of the scores and of the class, which are added to numbers in memory.

use super::assembly::Assembly;
use super::body::{Part, Ports, at, compile};
use crate::classifier::{Classifier, FeatureKind, Order, WholeCircuit};
use crate::literal::Literal;
use crate::straight_line::StraightLineProgram;
use wasm_encoder::{InstructionSink, MemArg, ValType};

/// The address of the values of a row.
const ROW: u64 = 16;

/// The comparison of a bit of the encoder.
#[derive(Clone, Copy)]
enum Test {
    Above(f32),
    Equal(f32),
    Missing,
}

/// Inputs are comparisons, outputs are bits of numbers.
struct Numbers {
    /// The feature and the comparison of each input.
    inputs: Vec<(u64, Test)>,
    /// The address of the number and the bit of each output.
    outputs: Vec<(u64, i32)>,
}

/// A memory access of four bytes.
fn word(offset: u64) -> MemArg {
    MemArg { align: 2, ..at(offset) }
}

impl Ports for Numbers {
    fn load(&self, code: &mut InstructionSink<'_>, input: u32) {
        let (feature, test) = self.inputs[input as usize];
        let value = word(ROW + 4 * feature);
        code.i32_const(0).i32_const(0).f32_load(value);
        match test {
            Test::Above(threshold) => code.f32_const(threshold.into()).f32_gt(),
            Test::Equal(index) => code.f32_const(index.into()).f32_eq(),
            Test::Missing => code.i32_const(0).f32_load(value).f32_ne(),
        };
        // 0 or all ones.
        code.i32_sub().i32x4_splat();
    }

    fn store(&self, code: &mut InstructionSink<'_>, output: usize, value: &dyn Fn(&mut InstructionSink<'_>)) {
        let (address, bit) = self.outputs[output];
        code.i32_const(0);
        value(code);
        code.i32x4_extract_lane(0).i32_const(1).i32_and().i32_const(bit).i32_shl();
        code.i32_const(0).i32_load(word(address)).i32_or().i32_store(word(address));
    }
}

/// Returns the module of a classifier.
pub(super) fn module(classifier: &Classifier) -> Vec<u8> {
    let whole = WholeCircuit::new(classifier, Order::Serial);
    let features = classifier.encoder().features();
    let scores = (ROW + 4 * features.len() as u64).next_multiple_of(16);
    let label = scores + 4 * whole.scores.len() as u64;
    let (mut literals, mut outputs): (Vec<Literal>, Vec<(u64, i32)>) = (Vec::new(), Vec::new());
    for (number, bits) in whole.scores.iter().chain([&whole.label]).enumerate() {
        for (bit, &literal) in bits.iter().enumerate().rev() {
            literals.push(literal);
            outputs.push((scores + 4 * number as u64, bit as i32));
        }
    }
    let mut inputs = Vec::new();
    for (i, feature) in features.iter().enumerate() {
        let mut push = |test| inputs.push((i as u64, test));
        match &feature.kind {
            FeatureKind::Numeric(thresholds) => thresholds.iter().for_each(|&t| push(Test::Above(t))),
            FeatureKind::Categorical(names) => (0..names.len()).for_each(|i| push(Test::Equal(i as f32))),
        }
        if feature.missing {
            push(Test::Missing);
        }
    }
    let mut assembly = Assembly::default();
    let spilled = (label + 4).next_multiple_of(16);
    let body =
        compile(&StraightLineProgram::lower(&whole.xag, &literals), &Numbers { inputs, outputs }, 0, spilled);
    let end = spilled + body.spilled_bytes;
    let Part { code, locals } = body.inline(&mut assembly, &[]);
    let run = assembly.function_of(&[], &[], &[(locals, ValType::V128)], code);
    for (name, address) in [("row", ROW), ("scores", scores)] {
        assembly.export(name, &[], &[ValType::I32], &[], |code| {
            code.i32_const(address as i32);
        });
    }
    assembly.export("predict", &[], &[ValType::I32], &[], |code| {
        code.i32_const(scores as i32).i32_const(0).i32_const((label + 4 - scores) as i32).memory_fill(0);
        code.call(run).i32_const(0).i32_load(word(label));
    });
    assembly.finish(end)
}
