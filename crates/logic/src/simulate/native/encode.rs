//! An assembler for the few AVX2 instructions that straight-line programs need.
//!
//! It takes a few nanoseconds per instruction, so that a million gates compile in well under two seconds; iced-x86 takes
//! 100 ns with its encoder and 500 ns with its assembler. The tests disassemble the bytes with iced-x86.
//!
//! The encoding (Intel SDM volume 2, 2.3): a VEX prefix of two bytes, or of three if the last operand is one of the
//! registers 8 to 15; the opcode; a ModRM byte; for a memory operand a displacement of 0, 1 or 4 bytes.

/// One of the sixteen vector registers.
pub(super) type Register = u8;

/// The last operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Register(Register),
    Memory { base: Base, displacement: i32 },
}

/// The registers that hold base addresses; the value is the register number in ModRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Base {
    /// `rdi`.
    Source = 7,
    /// `rsi`.
    Target = 6,
    /// `rdx`.
    Scratch = 2,
}

/// An opcode and the bits of its mandatory prefix (1 is 66, 2 is F3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opcode(u8, u8);

pub(super) const VPAND: Opcode = Opcode(0xdb, 1);
pub(super) const VPANDN: Opcode = Opcode(0xdf, 1);
pub(super) const VPOR: Opcode = Opcode(0xeb, 1);
pub(super) const VPXOR: Opcode = Opcode(0xef, 1);
const VPCMPEQD: Opcode = Opcode(0x76, 1);
const LOAD: Opcode = Opcode(0x6f, 2);
const STORE: Opcode = Opcode(0x7f, 2);

/// A buffer of machine code.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    pub bytes: Vec<u8>,
}

impl Assembler {
    /// `out = a op b`.
    pub fn operate(&mut self, opcode: Opcode, out: Register, a: Register, b: Operand) {
        self.instruction(opcode, out, a, b);
    }

    /// `out = memory`.
    pub fn load(&mut self, out: Register, base: Base, displacement: i32) {
        self.instruction(LOAD, out, 0, Operand::Memory { base, displacement });
    }

    /// `memory = a`.
    pub fn store(&mut self, base: Base, displacement: i32, a: Register) {
        self.instruction(STORE, a, 0, Operand::Memory { base, displacement });
    }

    /// All bits 0.
    pub fn zeros(&mut self, out: Register) {
        self.instruction(VPXOR, out, out, Operand::Register(out));
    }

    /// All bits 1.
    pub fn ones(&mut self, out: Register) {
        self.instruction(VPCMPEQD, out, out, Operand::Register(out));
    }

    /// Ends a loop that began at byte 0: advances the source and the target by one vector and repeats the code until the
    /// count in `rcx` is 0, then returns from the function. `None` if the loop is too long.
    pub fn end_loop(&mut self) -> Option<()> {
        self.bytes.extend([0x48, 0x83, 0xc7, 32]); // add rdi, 32
        self.bytes.extend([0x48, 0x83, 0xc6, 32]); // add rsi, 32
        self.bytes.extend([0x48, 0x83, 0xe9, 1]); // sub rcx, 1
        let after = i32::try_from(self.bytes.len() + 6).ok()?;
        self.bytes.extend([0x0f, 0x85]); // jnz
        self.bytes.extend((-after).to_le_bytes());
        self.bytes.extend([0xc5, 0xf8, 0x77]); // vzeroupper
        self.bytes.push(0xc3); // ret
        Some(())
    }

    /// Encodes an instruction on 256-bit registers in opcode map 0F. Register numbers are inverted in the prefix; an
    /// unused source is 0.
    #[inline]
    fn instruction(&mut self, Opcode(opcode, prefix): Opcode, reg: Register, source: Register, rm: Operand) {
        const LENGTH_256: u8 = 1 << 2;
        let rest = (!source & 15) << 3 | LENGTH_256 | prefix;
        let not_r = (!reg >> 3 & 1) << 7;
        match rm {
            Operand::Register(register) if register >= 8 => {
                const NOT_X: u8 = 1 << 6;
                const MAP_0F: u8 = 1;
                let modrm = 0b11 << 6 | (reg & 7) << 3 | register & 7;
                self.bytes.extend([0xc4, not_r | NOT_X | MAP_0F, rest, opcode, modrm]);
            }
            Operand::Register(register) => {
                self.bytes.extend([0xc5, not_r | rest, opcode, 0b11 << 6 | (reg & 7) << 3 | register]);
            }
            Operand::Memory { base, displacement } => {
                let modrm = (reg & 7) << 3 | base as u8;
                let start = [0xc5, not_r | rest, opcode];
                if displacement == 0 {
                    self.bytes.extend([start[0], start[1], start[2], modrm]);
                } else if let Ok(short) = i8::try_from(displacement) {
                    self.bytes.extend([start[0], start[1], start[2], 0b01 << 6 | modrm, short as u8]);
                } else {
                    let [d0, d1, d2, d3] = displacement.to_le_bytes();
                    let modrm = 0b10 << 6 | modrm;
                    self.bytes.extend([start[0], start[1], start[2], modrm, d0, d1, d2, d3]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use iced_x86::{Decoder, DecoderOptions, Formatter as _, NasmFormatter};

    /// Disassembles bytes with iced-x86.
    fn disassemble(bytes: &[u8]) -> Vec<String> {
        let mut formatter = NasmFormatter::new();
        let decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
        let text = |instruction| {
            let mut text = String::new();
            formatter.format(&instruction, &mut text);
            text
        };
        decoder.into_iter().map(text).collect()
    }

    /// Disassembles what one call assembles.
    fn assembled(assemble: impl FnOnce(&mut Assembler)) -> String {
        let mut assembler = Assembler::default();
        assemble(&mut assembler);
        disassemble(&assembler.bytes).join("; ")
    }

    #[test]
    fn every_register_is_encoded() {
        let names = [(VPAND, "vpand"), (VPANDN, "vpandn"), (VPOR, "vpor"), (VPXOR, "vpxor")];
        for (out, a, b) in (0..16).flat_map(|out| (0..16).map(move |a| (out, a, (out * 5 + a * 3) % 16))) {
            let (opcode, name) = names[usize::from(a) % 4];
            let text = assembled(|x| x.operate(opcode, out, a, Operand::Register(b)));
            assert_eq!(text, format!("{name} ymm{out},ymm{a},ymm{b}"));
        }
        for out in 0..16 {
            assert_eq!(assembled(|x| x.zeros(out)), format!("vpxor ymm{out},ymm{out},ymm{out}"));
            assert_eq!(assembled(|x| x.ones(out)), format!("vpcmpeqd ymm{out},ymm{out},ymm{out}"));
        }
    }

    #[test]
    fn every_displacement_is_encoded() {
        let bases = [(Base::Source, "rdi"), (Base::Target, "rsi"), (Base::Scratch, "rdx")];
        let places =
            [(0, ""), (32, "+20h"), (127, "+7Fh"), (128, "+80h"), (-128, "-80h"), (1 << 30, "+40000000h")];
        for (base, name) in bases {
            for (displacement, shown) in places {
                for register in [0, 7, 8, 15] {
                    let memory = format!("[{name}{shown}]");
                    let load = assembled(|x| x.load(register, base, displacement));
                    assert_eq!(load, format!("vmovdqu ymm{register},{memory}"));
                    let store = assembled(|x| x.store(base, displacement, register));
                    assert_eq!(store, format!("vmovdqu {memory},ymm{register}"));
                    let operand = Operand::Memory { base, displacement };
                    let or = assembled(|x| x.operate(VPOR, register, 9, operand));
                    assert_eq!(or, format!("vpor ymm{register},ymm9,{memory}"));
                }
            }
        }
    }

    #[test]
    fn the_loop_jumps_back_to_its_beginning() {
        let mut assembler = Assembler::default();
        assembler.load(1, Base::Source, 0);
        assembler.end_loop().unwrap();
        let expected = [
            "vmovdqu ymm1,[rdi]",
            "add rdi,20h",
            "add rsi,20h",
            "sub rcx,1",
            "jne near 0",
            "vzeroupper",
            "ret",
        ];
        assert_eq!(disassemble(&assembler.bytes), expected);
    }
}
