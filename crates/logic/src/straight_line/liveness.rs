//! Liveness of the values of a straight-line program, and the allocation of storage slots from it.

use super::StraightLineProgram;

/// The time of a use that does not exist. Times are positions in the list of instructions.
pub(crate) const NEVER: u32 = u32::MAX;

/// When values are used next.
pub(crate) struct Liveness {
    /// For each instruction, the next use of its operands after it; [`NEVER`] if this is their last use.
    pub next_use: Vec<[u32; 2]>,
    /// The first use of each value.
    pub first_use: Vec<u32>,
}

impl Liveness {
    /// Computes the next uses in one backward pass.
    pub fn new(program: &StraightLineProgram) -> Liveness {
        let mut first_use = vec![NEVER; program.values()];
        let mut next_use = vec![[NEVER; 2]; program.instructions.len()];
        for (time, instruction) in program.instructions.iter().enumerate().rev() {
            let reads = instruction.reads();
            next_use[time] = reads.map(|value| value.map_or(NEVER, |value| first_use[value as usize]));
            for value in reads.into_iter().flatten() {
                first_use[value as usize] = time as u32;
            }
        }
        Liveness { next_use, first_use }
    }
}

/// The last use of each value; 0 for values that are never used.
pub(crate) fn last_uses(program: &StraightLineProgram) -> Vec<u32> {
    let mut last = vec![0; program.values()];
    for (time, instruction) in program.instructions.iter().enumerate() {
        for value in instruction.reads().into_iter().flatten() {
            last[value as usize] = time as u32;
        }
    }
    last
}

/// Hands out storage slots and reuses those that were released: a linear scan over the program takes a slot where a
/// value is defined and releases it at its last use.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotAllocator {
    free: Vec<u32>,
    count: u32,
}

impl SlotAllocator {
    /// Returns a slot that is not in use.
    pub fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.count += 1;
            self.count - 1
        })
    }

    /// Makes a slot available again.
    pub fn release(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// The number of slots that were in use at the same time.
    pub fn count(&self) -> usize {
        self.count as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::straight_line::Instruction;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn uses_are_in_order(circuit in arbitrary::circuit(0..=6, 60)) {
            let program = StraightLineProgram::new(&circuit);
            let liveness = Liveness::new(&program);
            let last = last_uses(&program);
            for value in 0..program.values() as u32 {
                let reads = |i: &Instruction| i.reads().contains(&Some(value));
                let mut expected = liveness.first_use[value as usize];
                for (time, instruction) in program.instructions.iter().enumerate().filter(|(_, i)| reads(i)) {
                    prop_assert_eq!(time as u32, expected);
                    let operand = usize::from(instruction.reads()[0] != Some(value));
                    expected = liveness.next_use[time][operand];
                    prop_assert_eq!(expected == NEVER, last[value as usize] == time as u32);
                }
                prop_assert_eq!(expected, NEVER);
            }
        }
    }

    #[test]
    fn released_slots_are_taken_again() {
        let mut slots = SlotAllocator::default();
        let taken = [slots.take(), slots.take()];
        slots.release(taken[0]);
        assert_eq!((slots.take(), slots.take(), slots.count()), (taken[0], 2, 3));
    }
}
