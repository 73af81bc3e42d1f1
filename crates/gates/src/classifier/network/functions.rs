//! The functions of some gates: from parameters to coefficients, and from the sums of a batch to gradients.

use std::ops::Range;

use gatework_train::params::Params;
use gatework_train::random::Random;

use crate::kernel::{Coefficients, FUNCTIONS, GateProgram, GateTable, Sums};
use crate::soft::{self, FUNCTION_A, Numbers};

/// How the parameters of gates are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Start {
    /// Parameters of a gate.
    pub numbers: Numbers,
    /// Initial logit of the function that passes the first operand through.
    pub pass_through: f32,
    /// Standard deviation of the noise on all logits.
    pub noise: f32,
}

impl Start {
    /// Adds the parameters of some gates, with their initial values.
    pub fn add(self, params: &mut Params, name: &str, gates: usize, random: &mut Random) -> Range<usize> {
        let Start { numbers, pass_through: lead, noise } = self;
        let mut normal = || if noise > 0.0 { noise * random.normal() as f32 } else { 0.0 };
        match numbers {
            Numbers::Sixteen => params.add(name, &[gates, FUNCTIONS], |i| {
                normal() + if i % FUNCTIONS == FUNCTION_A { lead } else { 0.0 }
            }),
            // Entries are f(1,1), f(1,0), f(0,1), f(0,0).
            Numbers::Four => {
                params.add(name, &[gates, 4], |i| normal() + if i % 4 < 2 { lead / 2.0 } else { -lead / 2.0 })
            }
        }
    }
}

/// The functions of some gates.
pub struct Functions {
    numbers: Numbers,
    table: GateTable,
    /// The 16 logits of each gate, if they are not parameters themselves.
    logits: Vec<f32>,
    /// Gradients of the coefficients and of the 16 logits.
    coefficient_grads: Vec<[f32; 4]>,
    logit_grads: Vec<f32>,
}

impl Functions {
    /// Allocates the memory of some gates.
    pub fn new(gates: usize, numbers: Numbers) -> Functions {
        let expanded = if numbers == Numbers::Four { gates * FUNCTIONS } else { 0 };
        Functions {
            numbers,
            table: GateTable::new(gates),
            logits: vec![0.0; expanded],
            coefficient_grads: vec![[0.0; 4]; gates],
            logit_grads: vec![0.0; expanded],
        }
    }

    /// Parameters of a gate.
    pub fn numbers(&self) -> Numbers {
        self.numbers
    }

    /// Computes the table of the parameters `values`, with noise on the logits and as `sampling` says.
    pub fn prepare(&mut self, values: &[f32], sampling: &mut Sampling<'_>) {
        if self.numbers == Numbers::Four {
            soft::expand(values, &mut self.logits);
        } else if sampling.gumbel.is_some() {
            self.logits.resize(values.len(), 0.0);
            self.logits.copy_from_slice(values);
        }
        let is_copy = self.numbers == Numbers::Four || sampling.gumbel.is_some();
        if let Some((scale, random)) = &mut sampling.gumbel {
            add_gumbel(&mut self.logits, *scale, random);
        }
        let logits = if is_copy { &self.logits } else { values };
        self.table.update(logits);
        if sampling.is_hard {
            self.table.harden(&soft::arg_max(logits));
        }
    }

    /// Copies the coefficients to the order of a program.
    pub fn gather(&self, program: &GateProgram, coefficients: &mut Coefficients) {
        coefficients.gather(program, &self.table);
    }

    /// Adds up the sums of the chunks and writes the gradients of the parameters.
    pub fn collect<'a>(
        &mut self,
        program: &GateProgram,
        sums: impl Iterator<Item = &'a Sums>,
        grads: &mut [f32],
    ) {
        self.coefficient_grads.fill([0.0; 4]);
        for sums in sums {
            sums.add_to(program, &self.table, &mut self.coefficient_grads);
        }
        if self.numbers == Numbers::Four {
            self.logit_grads.fill(0.0);
            self.table.logit_gradients(&self.coefficient_grads, &mut self.logit_grads);
            soft::contract(&self.logit_grads, grads);
        } else {
            self.table.logit_gradients(&self.coefficient_grads, grads);
        }
    }
}

/// How gates and wires are sampled in a forward pass.
#[derive(Default)]
pub struct Sampling<'a> {
    /// Scale of the Gumbel noise on all logits of gates, and its source.
    pub gumbel: Option<(f32, &'a mut Random)>,
    /// Straight-through: the most likely function and candidate are used, with the gradients of the soft ones.
    pub is_hard: bool,
}

/// Returns the most likely function of each gate.
pub fn most_likely(numbers: Numbers, values: &[f32]) -> Vec<u8> {
    if numbers == Numbers::Sixteen {
        return soft::arg_max(values);
    }
    let mut logits = vec![0.0; values.len() / 4 * FUNCTIONS];
    soft::expand(values, &mut logits);
    soft::arg_max(&logits)
}

/// Adds Gumbel noise.
fn add_gumbel(logits: &mut [f32], scale: f32, random: &mut Random) {
    for logit in logits {
        // The logarithms of 0 and 1 are not usable.
        let uniform = random.uniform().clamp(1e-7, 1.0 - 1e-7);
        *logit -= scale * (-uniform.ln()).ln();
    }
}
