//! Gates that mend what is still wrong: an exact last step.
//!
//! When an automaton grows a fixed picture from a fixed start, most cells may come out right and a few wrong. If what a
//! wrong cell perceives in the last step differs from what every right cell perceives, there is a formula that is true
//! for the wrong cells alone, and the new bit is the old one, exclusive or that formula:
//!
//! ```text
//! for each observed channel:
//!     a copy of it in an idle channel serves those who read it, so that only the observer sees the change
//!     terms = conjunctions of perceived bits that together hold for its wrong cells and for no other (a greedy cover)
//!     new bit = old bit XOR (term OR term OR ...)
//! ```
//!
//! Cells that should differ but perceive the same are told apart by idle channels that are given random rules, one after
//! the other, always the one of a few that tells most of them apart.

use crate::kernel::FUNCTIONS;
use gatework_logic::automaton::NEIGHBOURS;
use gatework_logic::simulate::Executor;
use gatework_logic::{Automaton, Boundary, Circuit, Gate, Grid, Simulator};
use rustc_hash::FxHashMap;

use super::Lesson;
use super::grow::{Formula, Literal, Marker, grow, with_neighbours};
use crate::automata::model::{Model, ModelShape};
use gatework_train::random::{Purpose, Random};
use gatework_train::trainer::TaskError;

/// Random rules that are compared before one is taken.
const RULES: usize = 8;

/// The model with gates that mend all wrong cells of the lessons; `None` if that cannot be done. The lessons are
/// synchronous. They have one step, or all channels start alike.
pub fn correct(model: &Model, lessons: &[Lesson], random: &mut Random) -> Result<Option<Model>, TaskError> {
    let observed = lessons.iter().map(|lesson| lesson.target.channels()).max().unwrap_or(0);
    let mut mending = Mending { model: model.clone(), observed, idle: Vec::new(), lessons };
    // After one step nobody reads the new bits.
    if lessons.iter().any(|lesson| lesson.steps > 1) && !mending.detach()? {
        return Ok(None);
    }
    let mut markers: Vec<Marker> = Vec::new();
    let mut examples = mending.examples(&markers)?;
    if examples.confused() > 0 {
        // Some cells may have to look in directions that no kernel looks in.
        mending.model = with_neighbours(&mending.model);
        examples = mending.examples(&markers)?;
    }
    while examples.confused() > 0 {
        let Some(channel) = mending.idle.pop() else { return Ok(None) };
        let mut best: Option<(usize, Marker, Examples)> = None;
        for _ in 0..RULES {
            let marker = mending.random_marker(channel, random);
            let with: Vec<Marker> = markers.iter().copied().chain([marker]).collect();
            let examples = mending.examples(&with)?;
            let confused = examples.confused();
            if best.as_ref().is_none_or(|(least, ..)| confused < *least) {
                best = Some((confused, marker, examples));
            }
        }
        let Some((_, marker, with)) = best else { return Ok(None) };
        markers.push(marker);
        examples = with;
    }
    let formulas: Option<Vec<Formula>> = (0..observed).map(|channel| examples.cover(channel)).collect();
    Ok(formulas.map(|formulas| grow(&mending.model, &formulas, &markers)))
}

/// A model on its way to be right.
struct Mending<'a> {
    model: Model,
    observed: usize,
    /// Channels that nobody uses.
    idle: Vec<usize>,
    lessons: &'a [Lesson],
}

impl Mending<'_> {
    /// Makes the observed channels such that no channel reads them: idle ones do for the readers what they did. False if
    /// there are too few.
    fn detach(&mut self) -> Result<bool, TaskError> {
        let live = self.model.harden().observe(self.observed)?;
        self.idle = (self.observed..live.len()).rev().filter(|&channel| !live[channel]).collect();
        let Some(first_copy) = self.idle.len().checked_sub(self.observed) else { return Ok(false) };
        let copies = self.idle.split_off(first_copy);
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

    /// What cells perceive with these markers.
    fn examples(&self, markers: &[Marker]) -> Result<Examples, TaskError> {
        if markers.is_empty() {
            return Examples::new(&self.model, self.observed, self.lessons);
        }
        Examples::new(&grow(&self.model, &[], markers), self.observed, self.lessons)
    }

    /// A rule for a channel: a function of something that it perceives of itself and of anything else.
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
        // Not of an observed channel, for these are about to change.
        let other = Some(random.below(rows)).filter(|&row| channel_of(shape, row) >= self.observed);
        Marker { channel, gate, a: own as u32, b: other.unwrap_or(own) as u32 }
    }
}

/// The channel that a row of the update's inputs tells of. The channels themselves come first, then all that is
/// perceived of each.
fn channel_of(shape: &ModelShape, row: usize) -> usize {
    let (channels, rows) = (shape.channels, shape.update_inputs());
    row.checked_sub(channels).map_or(row, |perceived| perceived * channels / (rows - channels))
}

/// What cells perceive in the last step, and which of their bits come out wrong. Sets of examples are strings of bits.
struct Examples {
    /// The examples with a 1 in each row of the update's inputs.
    rows: Vec<Vec<u64>>,
    /// The examples that are wrong, for each observed channel.
    wrong: Vec<Vec<u64>>,
    count: usize,
}

impl Examples {
    /// All cells of the lessons.
    fn new(model: &Model, observed: usize, lessons: &[Lesson]) -> Result<Examples, TaskError> {
        let automaton = model.harden();
        let circuit = &automaton.circuit;
        let perception = Circuit::new(circuit.inputs(), circuit.nodes().to_vec(), model.update_rows())?;
        let mut patches: Vec<Vec<u64>> = vec![Vec::new(); circuit.inputs()];
        let mut wrong: Vec<Vec<u64>> = vec![Vec::new(); observed];
        let mut count = 0;
        for lesson in lessons {
            let (before, after) = last_step(&automaton, lesson)?;
            for cell in cells(&before) {
                let [sample, y, x] = cell;
                push(&mut patches, count, patch(&before, automaton.boundary, cell));
                let bits = 0..observed;
                let is_wrong = |c| after.get(sample, c, y, x) != lesson.target.get(sample, c, y, x);
                push(&mut wrong, count, bits.map(is_wrong));
                count += 1;
            }
        }
        let words = count.div_ceil(64);
        let mut rows = vec![0; model.shape.update_inputs() * words];
        Executor::portable(&perception).run(count, &patches.concat(), &mut rows)?;
        let mut rows: Vec<Vec<u64>> = rows.chunks(words.max(1)).map(<[u64]>::to_vec).collect();
        // The observed channels are about to change, so nothing may depend on them later than at the start.
        let later = lessons.iter().any(|lesson| lesson.steps > 1);
        let changing = |row: usize| later && channel_of(&model.shape, row) < observed;
        rows.iter_mut().enumerate().filter(|(row, _)| changing(*row)).for_each(|(_, set)| set.fill(0));
        Ok(Examples { rows, wrong, count })
    }

    /// Wrong examples that perceive the same as right ones, or the other way round, whichever are fewer.
    fn confused(&self) -> usize {
        // Examples that perceive the same have the same sum of the numbers of their rows.
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

    /// A formula that holds for the wrong examples of a channel and for no other; `None` if there is none.
    fn cover(&self, channel: usize) -> Option<Formula> {
        let wrong = &self.wrong[channel];
        let mut right: Vec<u64> = wrong.iter().map(|word| !word).collect();
        if let Some(last) = right.last_mut() {
            *last &= u64::MAX >> (self.count.wrapping_neg() % 64);
        }
        let mut left = wrong.clone();
        let mut formula = Formula::new();
        loop {
            let Some(example) = members(&left).next() else { break };
            let (term, covered) = self.term(example, &left, &right)?;
            left.iter_mut().zip(&covered).for_each(|(left, covered)| *left &= !covered);
            formula.push(term);
        }
        Some(formula)
    }

    /// A term that holds for an example, for many of the wanted ones, and for none of the others.
    fn term(&self, example: usize, wanted: &[u64], others: &[u64]) -> Option<(Vec<Literal>, Vec<u64>)> {
        let (mut wanted, mut others) = (wanted.to_vec(), others.to_vec());
        let mut term = Vec::new();
        while size(&others) > 0 {
            // A literal must rule some of the others out. Few of them should be left for each of the wanted.
            let merit = |row: usize| {
                let literal = (row as u32, bit(&self.rows[row], example));
                let left = |set: &[u64]| self.meet(set, literal).map(u64::count_ones).sum::<u32>();
                let merit = f64::from(left(&wanted)) / (f64::from(left(&others)) + 0.5);
                (left(&others) < size(&others)).then_some((merit, literal))
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

    /// The members of a set for which a literal holds.
    fn meet(&self, set: &[u64], (row, value): Literal) -> impl Iterator<Item = u64> {
        let flip = if value { 0 } else { u64::MAX };
        set.iter().zip(&self.rows[row as usize]).map(move |(set, row)| set & (row ^ flip))
    }
}

/// The boards of a lesson before the last step and after it.
fn last_step(automaton: &Automaton, lesson: &Lesson) -> Result<(Grid, Grid), TaskError> {
    let mut simulator = Simulator::new(automaton, automaton.channels)?;
    let mut before = lesson.start.clone();
    for _ in 1..lesson.steps {
        simulator.step(&mut before)?;
    }
    let mut after = before.clone();
    simulator.step(&mut after)?;
    Ok((before, after))
}

/// Sample, row and column of all cells.
fn cells(grid: &Grid) -> impl Iterator<Item = [usize; 3]> + use<> {
    let (height, width) = (grid.height(), grid.width());
    (0..grid.samples() * height * width).map(move |i| [i / (height * width), i / width % height, i % width])
}

/// The inputs of the rule at a cell.
fn patch(grid: &Grid, boundary: Boundary, [sample, y, x]: [usize; 3]) -> impl Iterator<Item = bool> {
    let bits = (0..grid.channels()).flat_map(|channel| (0..NEIGHBOURS).map(move |n| (channel, n)));
    bits.map(move |(channel, n)| {
        let cell =
            boundary.neighbour(y, n / 3, grid.height()).zip(boundary.neighbour(x, n % 3, grid.width()));
        cell.is_some_and(|(y, x)| grid.get(sample, channel, y, x))
    })
}

/// Says of an example whether it belongs to each of some sets.
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
    use crate::automata::search::tests::{lesson, model_of};

    fn wrong(model: &Model, lesson: &Lesson) -> usize {
        let (_, after) = last_step(&model.harden(), lesson).unwrap();
        after.difference(&lesson.target, lesson.target.channels()).unwrap()
    }

    #[test]
    fn a_model_that_was_never_trained_is_made_right() {
        for seed in 1..4 {
            let mut model = model_of(seed, 16);
            model.params.values.chunks_exact_mut(FUNCTIONS).for_each(|logits| one_hot(logits, Gate::A, 10.0));
            let mut lesson = lesson(seed, 1, 8, false);
            // A single seed in the middle, in all of 16 channels, and a picture that nothing has to do with it.
            lesson.start = Grid::new(1, 8, 8, 16).unwrap();
            (0..16).for_each(|channel| lesson.start.set(0, channel, 4, 4, true));
            lesson.steps = 5;
            assert!(wrong(&model, &lesson) > 0);
            let mut random = Random::new(seed, Purpose::Search, 0);
            let lessons = [lesson];
            let right = correct(&model, &lessons, &mut random).unwrap().expect("enough channels");
            assert_eq!(wrong(&right, &lessons[0]), 0);
        }
    }

    #[test]
    fn one_step_needs_no_idle_channel() {
        let model = model_of(2, 1);
        let start = lesson(3, 4, 9, false).start;
        let mut board = Grid::new(4, 9, 9, 1).unwrap();
        board.plane_mut(0).copy_from_slice(start.plane(0));
        let target =
            crate::automata::board::Target::GameOfLife.boards(&board, model.shape.boundary, 1).unwrap();
        let lessons = [Lesson { start: board, target, steps: 1, fires: Vec::new() }];
        let right = correct(&model, &lessons, &mut Random::new(1, Purpose::Search, 0)).unwrap().unwrap();
        assert_eq!(wrong(&right, &lessons[0]), 0);
    }

    #[test]
    fn without_idle_channels_there_is_no_correction() {
        let mut lesson = lesson(1, 1, 6, false);
        lesson.start = Grid::new(1, 6, 6, 1).unwrap();
        lesson.target = Grid::new(1, 6, 6, 1).unwrap();
        let lessons = [lesson];
        let model = model_of(1, 1);
        assert!(correct(&model, &lessons, &mut Random::new(1, Purpose::Search, 0)).unwrap().is_none());
    }
}
