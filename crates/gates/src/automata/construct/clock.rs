//! A clock that stops an automaton: it keeps what it is right about at one step.
//!
//! Every cell counts the steps in hidden channels, all cells alike. When the last step is counted, the observed channels keep
//! their bits, and the other channels are 0. What a run has grown then stays, whatever the rule would do next. Damage does not
//! heal.

use gatework_logic::automaton::{CENTRE, NEIGHBOURS};
use gatework_logic::{Automaton, Gate};

use super::bits::{Bit, Bits};
use super::bits_for;

/// Returns an automaton that does `steps` steps of another one from a start state with equal bits in all channels, and then keeps
/// its observed channels. Returns `None` if too few channels are unused.
pub fn stopped(automaton: &Automaton, observed: usize, steps: usize) -> Option<Automaton> {
    let live = automaton.observe(observed).ok()?;
    // Digits that are all 0 or all 1 are those of a start state.
    let digits = bits_for(steps.checked_add(2)?);
    let unused: Vec<usize> = (observed..live.len()).filter(|&channel| !live[channel]).take(digits).collect();
    if unused.len() < digits {
        return None;
    }
    let own = |channel: usize| Bit::input(channel * NEIGHBOURS + CENTRE);
    let mut bits = Bits::new(automaton.channels * NEIGHBOURS);
    let count: Vec<Bit> = unused.iter().map(|&channel| own(channel)).collect();
    let ends = bits.equals(&count, steps);
    let is_seed = bits.equals(&count, (1 << digits) - 1);
    let next = bits.step(&count, true);
    let outputs = copied(&mut bits, automaton);
    let mut stopped = vec![Bit::FALSE; automaton.channels];
    for channel in (0..automaton.channels).filter(|&channel| live[channel]) {
        stopped[channel] = if channel < observed {
            bits.choose(ends, own(channel), outputs[channel])
        } else {
            bits.and(ends.not(), outputs[channel])
        };
    }
    for (digit, &channel) in unused.iter().enumerate() {
        // From all digits 1, the count of the seed goes on with 1, as that of the others from 0.
        let counted = if digit == 0 { bits.or(next[0], is_seed) } else { next[digit] };
        stopped[channel] = bits.choose(ends, Bit::constant(steps >> digit & 1 == 1), counted);
    }
    Automaton::new(automaton.channels, automaton.boundary, bits.finish(&stopped).ok()?).ok()
}

/// Adds the gates of an automaton, and returns its outputs.
fn copied(bits: &mut Bits, automaton: &Automaton) -> Vec<Bit> {
    let circuit = automaton.circuit.simplify();
    let mut signals: Vec<Bit> = (0..circuit.inputs()).map(Bit::input).collect();
    for node in circuit.nodes() {
        let (a, b) = (signals[node.a as usize], signals[node.b as usize]);
        let value = gate(bits, node.gate, a, b);
        signals.push(value);
    }
    circuit.outputs().iter().map(|&signal| signals[signal as usize]).collect()
}

/// Adds a gate by its truth table.
fn gate(bits: &mut Bits, gate: Gate, a: Bit, b: Bit) -> Bit {
    let value = |a: bool, b: bool| gate.eval(a, b);
    let of = |low: bool, high: bool| match (low, high) {
        (false, false) => Bit::FALSE,
        (true, true) => Bit::TRUE,
        (false, true) => b,
        (true, false) => b.not(),
    };
    let no = of(value(false, false), value(false, true));
    let yes = of(value(true, false), value(true, true));
    bits.choose(a, yes, no)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::search::tests::model_of;
    use crate::automata::states::Start;
    use gatework_logic::{Grid, Simulator};
    use gatework_train::random::{Purpose, Random};

    /// The first channel is that of the rule up to the last step, and the same at all later ones.
    #[test]
    fn a_stopped_automaton_keeps_its_state() {
        for (seed, steps) in [(1, 1), (2, 5), (3, 6), (4, 7), (5, 13)] {
            let rule = model_of(seed, 3).harden();
            // Five more channels for the count.
            let mut bits = Bits::new(8 * NEIGHBOURS);
            let mut outputs = copied(&mut bits, &rule);
            outputs.resize(8, Bit::FALSE);
            let rule = Automaton::new(8, rule.boundary, bits.finish(&outputs).unwrap()).unwrap();
            for start in [Start::Seed, Start::Zeros] {
                let mut grid = Grid::new(1, 9, 7, 8).unwrap();
                start.fill(&mut grid, &mut Random::new(1, Purpose::Check, 0)).unwrap();
                let (mut plain, mut held) = (grid.clone(), grid);
                let stopped = stopped(&rule, 1, steps).unwrap();
                let mut simulators = [&rule, &stopped].map(|rule| Simulator::new(rule, 1).unwrap());
                for step in 1..3 * steps {
                    if step <= steps {
                        simulators[0].step(&mut plain).unwrap();
                    }
                    let before = held.clone();
                    simulators[1].step(&mut held).unwrap();
                    assert_eq!(plain.difference(&held, 1).unwrap(), 0, "seed {seed}, step {step} of {steps}");
                    assert!(step <= steps + 1 || held == before, "a fixed point");
                }
            }
            assert!(stopped(&rule, 1, 1 << 20).is_none(), "too few channels");
        }
    }
}
