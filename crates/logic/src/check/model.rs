//! The automaton of a question, reduced to the channels that the target depends on, and estimates of its unrolled size.

use super::{CheckError, Counterexample, Limits, Order, Property, Question, Start};
use crate::automaton::{Automaton, AutomatonError, NEIGHBOURS};
use crate::cone::Cone;
use crate::grid::{Grid, GridError};
use crate::simulate::Simulator;
use crate::stop::Stop;
use crate::xag::{Literal, Xag};

/// Bytes of a gate of an unrolling: its node and hash table entry, its clauses with their watches, and its variable.
/// An estimate from the sizes of these structures.
pub(super) const GATE_BYTES: u64 = 320;

/// The most inputs that say which cells fire, in an unrolling without a bound.
const MAX_FIRES: usize = 1 << 22;

/// A question about the live channels of an automaton.
pub(super) struct Model {
    /// The automaton, with live channels only. The first ones are those of the target.
    pub automaton: Automaton,
    /// The rule of the automaton.
    pub rule: Xag,
    /// The original channel of each channel.
    pub channels: Vec<usize>,
    pub target: Grid,
    /// The start states, with live channels only.
    pub start: Start,
    pub property: Property,
    /// Whether cells may not fire.
    pub is_async: bool,
    pub window: Option<usize>,
}

impl Model {
    /// The reduced form of a valid question.
    pub fn new(question: &Question) -> Result<Model, CheckError> {
        let (automaton, rule, channels) = reduce(&question.automaton, question.target.channels())?;
        let start = match question.start.clone() {
            Start::Any => Start::Any,
            Start::Damaged { grid, cells: 0 } | Start::Grid(grid) => Start::Grid(select(&grid, &channels)?),
            Start::Damaged { grid, cells } if cells >= grid.cells() => Start::Any,
            Start::Damaged { grid, cells } => Start::Damaged { grid: select(&grid, &channels)?, cells },
            Start::Region { grid, rows, columns } => {
                Start::Region { grid: select(&grid, &channels)?, rows, columns }
            }
        };
        // If every cell fires in each step, the order is synchronous.
        let (is_async, window) = match question.order {
            Order::Synchronous | Order::Any { window: Some(1) } => (false, None),
            Order::Any { window } => (true, window),
        };
        // A run in which no cell fires from a wrong state on is wrong forever.
        let property = match question.property {
            Property::Attracts if is_async && window.is_none() => Property::Stays { from: 0 },
            property => property,
        };
        let target = question.target.clone();
        Ok(Model { automaton, rule, channels, target, start, property, is_async, window })
    }

    pub fn height(&self) -> usize {
        self.target.height()
    }

    pub fn width(&self) -> usize {
        self.target.width()
    }

    pub fn cells(&self) -> usize {
        self.target.cells()
    }

    pub fn is_from_any(&self) -> bool {
        self.start == Start::Any
    }

    /// Whether there is only one run.
    pub fn is_single_run(&self) -> bool {
        matches!(self.start, Start::Grid(_)) && !self.is_async
    }

    pub fn simulator(&self) -> Result<Simulator, AutomatonError> {
        Simulator::new(&self.automaton, self.automaton.channels)
    }

    /// Counts the wrong bits of a sample.
    pub fn wrong(&self, grid: &Grid, sample: usize) -> usize {
        let words = grid.words_per_sample();
        let differing = |channel: usize| {
            let found = &grid.plane(channel)[sample * words..][..words];
            let pairs = found.iter().zip(self.target.plane(channel));
            pairs.map(|(a, b)| (a ^ b).count_ones() as usize).sum::<usize>()
        };
        (0..self.target.channels()).map(differing).sum()
    }

    /// Returns an error if the unrolling of that many steps may exceed the memory limit.
    pub fn check_memory(&self, steps: usize, limits: &Limits) -> Result<(), CheckError> {
        let limit = limits.memory;
        let (size, gates) = ([self.height(), self.width()], self.cell_gates());
        let bytes = self.bytes(size, steps);
        if bytes <= limit {
            return Ok(());
        }
        let most = |fits: &dyn Fn(usize) -> bool, end: usize| {
            let (mut low, mut high) = (0, end);
            while low < high {
                let middle = low + (high - low).div_ceil(2);
                if fits(middle) { low = middle } else { high = middle - 1 }
            }
            low
        };
        let side = most(&|side| self.bytes([side, side], steps) <= limit, size[0].max(size[1]));
        let fewer = most(&|fewer| self.bytes(size, fewer) <= limit, steps);
        let on_grid = match fewer {
            0 => String::new(),
            n => format!(", {n} steps on this grid"),
        };
        let fits = format!("this fits: a grid of {side}x{side} cells{on_grid}, or a higher limit");
        Err(CheckError::TooLarge { size, gates, steps, bytes, limit, fits })
    }

    /// The most steps of an unrolling without a bound.
    pub fn most_steps(&self, limits: &Limits) -> usize {
        if self.is_async { limits.steps.min(MAX_FIRES / self.cells()) } else { limits.steps }
    }

    /// The gates of a cell and step.
    fn cell_gates(&self) -> usize {
        self.rule.gates() + if self.is_async { 3 * self.channels.len() } else { 0 }
    }

    /// An upper bound of the bytes of an unrolling on a grid of this size.
    fn bytes(&self, [height, width]: [usize; 2], steps: usize) -> u64 {
        let cells = height as u64 * width as u64;
        // The cells that may differ from the undamaged run.
        let reached = |step: u64| match &self.start {
            Start::Region { rows, columns, .. } => {
                let side = |range: usize, size: usize| (range as u64 + 2 * step).min(size as u64);
                side(rows.len(), height) * side(columns.len(), width)
            }
            _ => cells,
        };
        let damage =
            if let Start::Damaged { cells: most, .. } = self.start { 4 * most as u64 + 8 } else { 0 };
        let gates = self.cell_gates() as u64;
        let steps = steps as u64;
        // Once all cells are reached, further steps add the same number.
        let growing = steps.min((height.max(width) as u64).div_ceil(2));
        let rule: u64 =
            (1..=growing).map(|step| reached(step).saturating_mul(gates)).fold(0, u64::saturating_add);
        let rule = rule.saturating_add((steps - growing).saturating_mul(cells).saturating_mul(gates));
        // The steps at which the state is compared with the target in one query, and once more alone.
        let comparisons =
            if matches!(self.property, Property::Reaches { .. }) { steps.saturating_add(2) } else { 2 };
        let compared = cells.saturating_mul(self.target.channels() as u64).saturating_mul(comparisons);
        let frames =
            cells.saturating_mul(4 * self.channels.len() as u64).saturating_mul(steps.saturating_add(1));
        let fires = if self.is_async { steps } else { 0 };
        let inputs = cells.saturating_mul(fires.saturating_add(self.channels.len() as u64 + damage));
        let inputs = inputs.saturating_mul(GATE_BYTES / 2);
        let gates = rule.saturating_add(compared).saturating_mul(GATE_BYTES);
        gates.saturating_add(frames).saturating_add(inputs)
    }

    /// Confirms a counterexample by simulation of the original automaton, and gives it all channels.
    pub fn confirm(
        &self,
        question: &Question,
        found: Counterexample,
        stop: &Stop<'_>,
    ) -> Result<Counterexample, CheckError> {
        let automaton = &question.automaton;
        let mut start = match question.start.grid() {
            Some(grid) => grid.clone(),
            None => Grid::new(1, self.height(), self.width(), automaton.channels)?,
        };
        for (from, &channel) in self.channels.iter().enumerate() {
            start.plane_mut(channel).copy_from_slice(found.start.plane(from));
        }
        let mut grid = start.clone();
        let mut simulator = Simulator::new(automaton, self.target.channels())?;
        let mut is_right_before = false;
        let advance = |grid: &mut Grid, simulator: &mut Simulator, step: usize| match found.fires.get(step) {
            Some(mask) => simulator.step_masked(grid, mask),
            None => simulator.step(grid),
        };
        for step in 0..found.steps {
            stop.check()?;
            is_right_before |= self.wrong(&grid, 0) == 0;
            advance(&mut grid, &mut simulator, step)?;
        }
        let wrong = self.wrong(&grid, 0);
        let is_wrong = match self.property {
            Property::Reaches { within } => !is_right_before && found.steps == within,
            Property::Stays { from } => found.steps >= from,
            Property::Attracts => match found.period {
                Some(period) => {
                    let mut later = grid.clone();
                    for _ in 0..period {
                        stop.check()?;
                        simulator.step(&mut later)?;
                    }
                    let is_equal = |&channel: &usize| later.plane(channel) == grid.plane(channel);
                    self.channels.iter().all(is_equal)
                }
                None => false,
            },
        };
        if wrong == 0 || !is_wrong {
            return Err(CheckError::Inconsistent);
        }
        Ok(Counterexample { start, wrong, ..found })
    }
}

/// Removes the channels that the first `observed` channels do not depend on. Returns the automaton, its rule and the
/// original channels.
fn reduce(automaton: &Automaton, observed: usize) -> Result<(Automaton, Xag, Vec<usize>), CheckError> {
    let circuit = automaton.circuit.simplify();
    let live = Cone::new(&circuit, observed).live;
    let channels: Vec<usize> = (0..live.len()).filter(|&channel| live[channel]).collect();
    let mut literals = vec![Literal::FALSE; circuit.inputs()];
    for (to, &from) in channels.iter().enumerate() {
        for neighbour in 0..NEIGHBOURS {
            literals[from * NEIGHBOURS + neighbour] = Literal::input(to * NEIGHBOURS + neighbour);
        }
    }
    let mut rule = Xag::new(channels.len() * NEIGHBOURS);
    let next = rule.add_circuit_on(&circuit, literals);
    rule.set_outputs(channels.iter().map(|&channel| next[channel]).collect());
    let rule = rule.without_dead_gates();
    let circuit = rule.to_named_circuit(Vec::new(), Vec::new()).map_err(crate::formats::FormatError::from)?;
    Ok((Automaton::new(channels.len(), automaton.boundary, circuit)?, rule, channels))
}

/// Returns some channels of a grid.
fn select(grid: &Grid, channels: &[usize]) -> Result<Grid, GridError> {
    let mut selected = Grid::new(1, grid.height(), grid.width(), channels.len())?;
    for (to, &from) in channels.iter().enumerate() {
        selected.plane_mut(to).copy_from_slice(grid.plane(from));
    }
    Ok(selected)
}
