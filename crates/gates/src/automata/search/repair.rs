//! Exact repair of the cells that are still wrong.
//!
//! When an automaton grows a fixed picture from a fixed start, a few cells may be wrong at the end. If the perception of
//! each wrong cell in the last step differs from that of every right cell, there is a formula of perceived bits that holds
//! for the wrong cells only. The repaired bit is the XOR of the old bit and that formula:
//!
//! ```text
//! for each observed channel:
//!     copy the channel to an unused one and redirect its readers there, so that the repair changes no later step
//!     terms = conjunctions of perceived bits that together hold for the wrong cells and for no other (greedy cover)
//!     new bit = old bit XOR (term OR term OR ...)
//! ```
//!
//! If a wrong and a right cell have the same perception, unused channels get random rules until all such cells differ.
//! Each time, the best of a few random rules is kept.

use crate::kernel::FUNCTIONS;
use gatework_logic::automaton::NEIGHBOURS;
use gatework_logic::simulate::Executor;
use gatework_logic::{Automaton, Boundary, Circuit, Gate, Grid, Simulator};
use rustc_hash::FxHashMap;

use super::Case;
use super::grow::{Formula, Literal, Marker, grow, with_neighbours};
use crate::automata::model::{Model, ModelShape};
use crate::automata::rule::{CellRule, all_outputs};
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// Random rules that are compared for each unused channel.
const CANDIDATE_RULES: usize = 8;

/// Adds gates to a model that repair all wrong cells of the cases. Returns `None` if that is impossible. The cases must be
/// synchronous and either have one step or start with equal bits in all channels.
/// `stop` is polled.
pub fn repair(
    model: &Model,
    cases: &[Case],
    random: &mut Random,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Model>, TaskError> {
    let observed = cases.iter().map(|case| case.target.channels()).max().unwrap_or(0);
    let mut repair = Repair { model: model.clone(), observed, unused: Vec::new(), cases };
    // With a single step no later step reads the new bits.
    if cases.iter().any(|case| case.steps > 1) && !repair.detach()? {
        return Ok(None);
    }
    let mut markers: Vec<Marker> = Vec::new();
    let mut examples = repair.examples(&markers)?;
    if examples.confused() > 0 {
        // The kernels may ignore neighbours that tell these cells apart.
        repair.model = with_neighbours(&repair.model);
        examples = repair.examples(&markers)?;
    }
    while examples.confused() > 0 {
        if stop() {
            return Ok(None);
        }
        let Some(channel) = repair.unused.pop() else { return Ok(None) };
        let mut best: Option<(usize, Marker, Examples)> = None;
        for _ in 0..CANDIDATE_RULES {
            let marker = repair.random_marker(channel, random);
            let with: Vec<Marker> = markers.iter().copied().chain([marker]).collect();
            let examples = repair.examples(&with)?;
            let confused = examples.confused();
            if best.as_ref().is_none_or(|(least, ..)| confused < *least) {
                best = Some((confused, marker, examples));
            }
        }
        let Some((_, marker, with)) = best else { return Ok(None) };
        markers.push(marker);
        examples = with;
    }
    let formulas: Option<Vec<Formula>> = (0..observed).map(|channel| examples.cover(channel, stop)).collect();
    Ok(formulas.map(|formulas| grow(&repair.model, &formulas, &markers)))
}

/// Adds gates to a model that repair all wrong neighbourhoods of a rule of as many channels. Returns `None` if that is
/// impossible. `stop` is polled.
pub fn repair_rule(
    model: &Model,
    rule: &CellRule,
    stop: &dyn Fn() -> bool,
) -> Result<Option<Model>, TaskError> {
    let mut model = model.clone();
    let mut examples = Examples::of_rule(&model, rule)?;
    if examples.confused() > 0 {
        model = with_neighbours(&model);
        examples = Examples::of_rule(&model, rule)?;
    }
    if examples.confused() > 0 {
        return Ok(None);
    }
    let formulas: Option<Vec<Formula>> =
        (0..rule.channels()).map(|channel| examples.cover(channel, stop)).collect();
    Ok(formulas.map(|formulas| grow(&model, &formulas, &[])))
}

/// A model under repair.
struct Repair<'a> {
    model: Model,
    observed: usize,
    /// Channels that the observed ones do not depend on.
    unused: Vec<usize>,
    cases: &'a [Case],
}

impl Repair<'_> {
    /// Copies the observed channels to unused ones and redirects all readers to the copies. Returns false if there are too
    /// few unused channels.
    fn detach(&mut self) -> Result<bool, TaskError> {
        let live = self.model.harden().observe(self.observed)?;
        self.unused = (self.observed..live.len()).rev().filter(|&channel| !live[channel]).collect();
        let Some(first_copy) = self.unused.len().checked_sub(self.observed) else { return Ok(false) };
        let copies = self.unused.split_off(first_copy);
        let model = &mut self.model;
        let last = model.update.layers.len() - 1;
        let first_logit = model.params.len() - model.update.layers[last].len() * FUNCTIONS;
        for (channel, &copy) in copies.iter().enumerate() {
            let layer = &mut model.update.layers[last];
            (layer.a[copy], layer.b[copy]) = (layer.a[channel], layer.b[channel]);
            let from = first_logit + channel * FUNCTIONS;
            model.params.values.copy_within(from..from + FUNCTIONS, first_logit + copy * FUNCTIONS);
        }
        let shape = &model.shape;
        let each = (shape.update_inputs() - shape.channels) / shape.channels;
        let redirect = |row: &mut u32| {
            let channel = channel_of(shape, *row as usize);
            let width = if (*row as usize) < shape.channels { 1 } else { each };
            if let Some(&copy) = copies.get(channel) {
                *row += ((copy - channel) * width) as u32;
            }
        };
        let first = &mut model.update.layers[0];
        first.a.iter_mut().chain(&mut first.b).for_each(redirect);
        Ok(true)
    }

    /// Returns the perception of all cells with these markers.
    fn examples(&self, markers: &[Marker]) -> Result<Examples, TaskError> {
        if markers.is_empty() {
            return Examples::new(&self.model, self.observed, self.cases);
        }
        Examples::new(&grow(&self.model, &[], markers), self.observed, self.cases)
    }

    /// Draws a rule for a channel: a gate on something that it perceives of itself and on any other input.
    fn random_marker(&self, channel: usize, random: &mut Random) -> Marker {
        const GATES: [Gate; 6] = [Gate::XOR, Gate::XNOR, Gate::XOR, Gate::XNOR, Gate::OR, Gate::NAND];
        let shape = &self.model.shape;
        let (channels, rows) = (shape.channels, shape.update_inputs());
        let each = (rows - channels) / channels;
        let own = match random.below(each + 1) {
            0 => channel,
            i => channels + channel * each + i - 1,
        };
        let gate = GATES[random.below(GATES.len())];
        // The observed channels are about to change, so no rule reads them.
        let other = Some(random.below(rows)).filter(|&row| channel_of(shape, row) >= self.observed);
        Marker { channel, gate, a: own as u32, b: other.unwrap_or(own) as u32 }
    }
}

/// Returns the channel of a row of the update's inputs. The channels themselves come first, then the perception of each.
fn channel_of(shape: &ModelShape, row: usize) -> usize {
    let (channels, rows) = (shape.channels, shape.update_inputs());
    row.checked_sub(channels).map_or(row, |perceived| perceived * channels / (rows - channels))
}

/// The perception of cells in the last step, and which of their bits are wrong. Sets of examples are bit strings.
struct Examples {
    /// For each row of the update's inputs, the examples with a 1.
    rows: Vec<Vec<u64>>,
    /// For each observed channel, the wrong examples.
    wrong: Vec<Vec<u64>>,
    count: usize,
}

impl Examples {
    /// Collects all cells of the cases.
    fn new(model: &Model, observed: usize, cases: &[Case]) -> Result<Examples, TaskError> {
        let automaton = model.harden();
        let circuit = &automaton.circuit;
        let perception = Circuit::new(circuit.inputs(), circuit.nodes().to_vec(), model.update_rows())?;
        let mut patches: Vec<Vec<u64>> = vec![Vec::new(); circuit.inputs()];
        let mut wrong: Vec<Vec<u64>> = vec![Vec::new(); observed];
        let mut count = 0;
        for case in cases {
            let (before, after) = last_step(&automaton, case)?;
            for cell in cells(&before) {
                let [sample, y, x] = cell;
                push(&mut patches, count, patch(&before, automaton.boundary, cell));
                let bits = 0..observed;
                let is_wrong = |c| after.get(sample, c, y, x) != case.target.get(sample, c, y, x);
                push(&mut wrong, count, bits.map(is_wrong));
                count += 1;
            }
        }
        let words = count.div_ceil(64);
        let mut rows = vec![0; model.shape.update_inputs() * words];
        Executor::portable(&perception).run(count, &patches.concat(), &mut rows)?;
        let mut rows: Vec<Vec<u64>> = rows.chunks(words.max(1)).map(<[u64]>::to_vec).collect();
        // The observed channels are about to change, so no formula may read them after the first step.
        let later = cases.iter().any(|case| case.steps > 1);
        let changing = |row: usize| later && channel_of(&model.shape, row) < observed;
        rows.iter_mut().enumerate().filter(|(row, _)| changing(*row)).for_each(|(_, set)| set.fill(0));
        Ok(Examples { rows, wrong, count })
    }

    /// All neighbourhoods of a rule.
    fn of_rule(model: &Model, rule: &CellRule) -> Result<Examples, TaskError> {
        let circuit = model.harden().circuit;
        let signals = [model.update_rows(), circuit.outputs().to_vec()].concat();
        let all = Circuit::new(circuit.inputs(), circuit.nodes().to_vec(), signals)?;
        let count = 1usize << circuit.inputs();
        let failed = || TaskError::from("the rule cannot be evaluated");
        let rows = all_outputs(&all).ok_or_else(failed)?;
        let right = all_outputs(&rule.automaton(model.shape.boundary).circuit).ok_or_else(failed)?;
        let words = count.div_ceil(64);
        let mut rows: Vec<Vec<u64>> = rows.chunks(words).map(<[u64]>::to_vec).collect();
        let outputs = rows.split_off(model.shape.update_inputs());
        let differ =
            |(output, right): (&Vec<u64>, &[u64])| output.iter().zip(right).map(|(a, b)| a ^ b).collect();
        let wrong = outputs.iter().zip(right.chunks(words)).map(differ).collect();
        Ok(Examples { rows, wrong, count })
    }

    /// Counts the examples that no formula can tell apart: for each perception, the right or the wrong ones, whichever are
    /// fewer.
    fn confused(&self) -> usize {
        // A hash of the perception: the sum of random numbers, one for each row that is 1.
        let mut sums = vec![0u64; self.count];
        for (row, set) in self.rows.iter().enumerate() {
            let number = Random::new(row as u64, Purpose::Search, 1).word();
            members(set).for_each(|example| sums[example] = sums[example].wrapping_add(number));
        }
        let mut confused = 0;
        for wrong in &self.wrong {
            let mut groups: FxHashMap<u64, [usize; 2]> = FxHashMap::default();
            for (example, &sum) in sums.iter().enumerate() {
                groups.entry(sum).or_default()[usize::from(bit(wrong, example))] += 1;
            }
            confused += groups.values().map(|[right, wrong]| right.min(wrong)).sum::<usize>();
        }
        confused
    }

    /// Returns a formula that holds for the wrong examples of a channel and for no other, if there is one and `stop` returns
    /// false.
    fn cover(&self, channel: usize, stop: &dyn Fn() -> bool) -> Option<Formula> {
        let wrong = &self.wrong[channel];
        let mut right: Vec<u64> = wrong.iter().map(|word| !word).collect();
        if let Some(last) = right.last_mut() {
            *last &= u64::MAX >> (self.count.wrapping_neg() % 64);
        }
        let mut left = wrong.clone();
        let mut formula = Formula::new();
        loop {
            let Some(example) = members(&left).next() else { break };
            if stop() {
                return None;
            }
            let (term, covered) = self.term(example, &left, &right)?;
            left.iter_mut().zip(&covered).for_each(|(left, covered)| *left &= !covered);
            formula.push(term);
        }
        Some(formula)
    }

    /// Returns a conjunction that holds for an example, for many of the wanted ones and for none of the others.
    fn term(&self, example: usize, wanted: &[u64], others: &[u64]) -> Option<(Vec<Literal>, Vec<u64>)> {
        let (mut wanted, mut others) = (wanted.to_vec(), others.to_vec());
        let mut term = Vec::new();
        while size(&others) > 0 {
            // A literal must exclude some of the others. The best one leaves few of them for each wanted example.
            let all = size(&others);
            let merit = |row: usize| {
                let literal = (row as u32, bit(&self.rows[row], example));
                let left = |set: &[u64]| self.meet(set, literal).map(u64::count_ones).sum::<u32>();
                let rest = left(&others);
                (rest < all).then(|| (f64::from(left(&wanted)) / (f64::from(rest) + 0.5), literal))
            };
            let merits = (0..self.rows.len()).filter_map(merit);
            let (_, literal) = merits.max_by(|a, b| a.0.total_cmp(&b.0))?;
            for set in [&mut wanted, &mut others] {
                *set = self.meet(set, literal).collect();
            }
            term.push(literal);
        }
        Some((term, wanted))
    }

    /// Returns the members of a set for which a literal holds.
    fn meet(&self, set: &[u64], (row, value): Literal) -> impl Iterator<Item = u64> {
        let flip = if value { 0 } else { u64::MAX };
        set.iter().zip(&self.rows[row as usize]).map(move |(set, row)| set & (row ^ flip))
    }
}

/// Returns the grids of a case before and after the last step.
fn last_step(automaton: &Automaton, case: &Case) -> Result<(Grid, Grid), TaskError> {
    let mut simulator = Simulator::new(automaton, automaton.channels)?;
    let mut before = case.start.clone();
    for _ in 1..case.steps {
        simulator.step(&mut before)?;
    }
    let mut after = before.clone();
    simulator.step(&mut after)?;
    Ok((before, after))
}

/// Returns sample, row and column of all cells.
fn cells(grid: &Grid) -> impl Iterator<Item = [usize; 3]> + use<> {
    let (height, width) = (grid.height(), grid.width());
    (0..grid.samples() * height * width).map(move |i| [i / (height * width), i / width % height, i % width])
}

/// Returns the inputs of the rule at a cell.
fn patch(grid: &Grid, boundary: Boundary, [sample, y, x]: [usize; 3]) -> impl Iterator<Item = bool> {
    let bits = (0..grid.channels()).flat_map(|channel| (0..NEIGHBOURS).map(move |n| (channel, n)));
    bits.map(move |(channel, n)| {
        let cell =
            boundary.neighbour(y, n / 3, grid.height()).zip(boundary.neighbour(x, n % 3, grid.width()));
        cell.is_some_and(|(y, x)| grid.get(sample, channel, y, x))
    })
}

/// Appends an example to bit sets: bit `i` tells whether it belongs to set `i`.
fn push(sets: &mut [Vec<u64>], example: usize, bits: impl Iterator<Item = bool>) {
    for (set, bit) in sets.iter_mut().zip(bits) {
        if example.is_multiple_of(64) {
            set.push(0);
        }
        set[example / 64] |= u64::from(bit) << (example % 64);
    }
}

fn bit(set: &[u64], at: usize) -> bool {
    set[at / 64] >> (at % 64) & 1 == 1
}

fn members(set: &[u64]) -> impl Iterator<Item = usize> {
    (0..set.len() * 64).filter(|&at| bit(set, at))
}

fn size(set: &[u64]) -> u32 {
    set.iter().map(|word| word.count_ones()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::search::one_hot;
    use crate::automata::search::tests::{case, model_of};

    fn wrong(model: &Model, case: &Case) -> usize {
        let (_, after) = last_step(&model.harden(), case).unwrap();
        after.difference(&case.target, case.target.channels()).unwrap()
    }

    #[test]
    fn an_untrained_model_is_repaired() {
        for seed in 1..4 {
            let mut model = model_of(seed, 16);
            model.params.values.chunks_exact_mut(FUNCTIONS).for_each(|logits| one_hot(logits, Gate::A, 10.0));
            let mut case = case(seed, 1, 8, false);
            // A single seed cell with ones in all of 16 channels, and a random target.
            case.start = Grid::new(1, 8, 8, 16).unwrap();
            (0..16).for_each(|channel| case.start.set(0, channel, 4, 4, true));
            case.steps = 5;
            assert!(wrong(&model, &case) > 0);
            let mut random = Random::new(seed, Purpose::Search, 0);
            let cases = [case];
            let repaired = repair(&model, &cases, &mut random, &|| false).unwrap().expect("enough channels");
            assert_eq!(wrong(&repaired, &cases[0]), 0);
        }
    }

    #[test]
    fn one_step_needs_no_unused_channel() {
        let model = model_of(2, 1);
        let start = case(3, 4, 9, false).start;
        let mut grid = Grid::new(4, 9, 9, 1).unwrap();
        grid.plane_mut(0).copy_from_slice(start.plane(0));
        let life = crate::automata::states::Target::Rule(CellRule::parse("B3/S23").unwrap());
        let target = life.grids(&grid, model.shape.boundary, 1).unwrap();
        let cases = [Case { start: grid, target, steps: 1, fires: Vec::new() }];
        let repaired =
            repair(&model, &cases, &mut Random::new(1, Purpose::Search, 0), &|| false).unwrap().unwrap();
        assert_eq!(wrong(&repaired, &cases[0]), 0);
    }

    #[test]
    fn repair_fails_without_unused_channels() {
        let mut case = case(1, 1, 6, false);
        case.start = Grid::new(1, 6, 6, 1).unwrap();
        case.target = Grid::new(1, 6, 6, 1).unwrap();
        let cases = [case];
        let model = model_of(1, 1);
        assert!(
            repair(&model, &cases, &mut Random::new(1, Purpose::Search, 0), &|| false).unwrap().is_none()
        );
    }

    #[test]
    fn all_neighbourhoods_of_a_rule_are_repaired() {
        for (name, channels) in [("B36/S23", 1), ("rule:30", 1), ("B2/S/C3", 2)] {
            let (model, rule) = (model_of(3, channels), CellRule::parse(name).unwrap());
            assert_eq!(rule.is_followed_by(&model.harden()), Some(false));
            let repaired = repair_rule(&model, &rule, &|| false).unwrap().unwrap();
            assert_eq!(rule.is_followed_by(&repaired.harden()), Some(true), "{name}");
            assert!(repair_rule(&model, &rule, &|| true).unwrap().is_none(), "stopped");
        }
    }
}
