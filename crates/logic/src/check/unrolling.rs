//! XAGs of several steps of an automaton on a grid, and SAT queries on them.

use super::model::Model;
use super::{Context, Counterexample, Start};
use crate::automaton::NEIGHBOURS;
use crate::grid::{Grid, GridError};
use crate::prove::sat::{Clauses, Limits};
use crate::stop::{Stop, Stopped};
use crate::xag::{Literal, Xag};

/// The number of cells between two polls.
pub(super) const CELL_STRIDE: usize = 64;

/// The steps of all runs from some start states.
pub(super) struct Unrolling<'a> {
    model: &'a Model,
    pub xag: Xag,
    /// The state at each step: channel `c` of a cell at `cell * channels + c`.
    frames: Vec<Vec<Literal>>,
    /// For each step, whether each cell fires; empty if all do.
    fires: Vec<Vec<Literal>>,
    /// Whether the state at each step is wrong, where it was asked for.
    wrong: Vec<Option<Literal>>,
    /// Clauses that hold for all runs.
    pub constraints: Vec<Vec<Literal>>,
    /// The input of the first cell that fires in the first step.
    first_fire: usize,
    /// For each cell, the cells of its neighbourhood; `None` beyond an edge of zeros.
    neighbours: Vec<[Option<usize>; NEIGHBOURS]>,
}

impl<'a> Unrolling<'a> {
    /// The runs of a question, of at most `steps` steps.
    pub fn from_start(model: &'a Model, steps: usize, stop: &Stop<'_>) -> Result<Unrolling<'a>, Stopped> {
        Unrolling::new(model, &model.start, model.is_async, steps, stop)
    }

    /// The runs from all states, of at most `steps` steps.
    pub fn from_all(model: &'a Model, steps: usize, stop: &Stop<'_>) -> Result<Unrolling<'a>, Stopped> {
        Unrolling::new(model, &Start::Any, model.is_async, steps, stop)
    }

    /// The runs from all states in which all cells fire.
    pub fn synchronous(model: &'a Model, stop: &Stop<'_>) -> Result<Unrolling<'a>, Stopped> {
        Unrolling::new(model, &Start::Any, false, 0, stop)
    }

    /// The runs from states that are functions of an input for each bit, of at most `steps` steps.
    pub fn from_states(model: &'a Model, states: Vec<Literal>, steps: usize) -> Unrolling<'a> {
        let mut unrolling = Unrolling::empty(model, states.len(), model.is_async, steps);
        unrolling.frames = vec![states];
        unrolling
    }

    fn new(
        model: &'a Model,
        start: &Start,
        is_async: bool,
        steps: usize,
        stop: &Stop<'_>,
    ) -> Result<Unrolling<'a>, Stopped> {
        let bits = model.cells() * model.channels.len();
        let flags = if matches!(start, Start::Damaged { .. }) { model.cells() } else { 0 };
        let mut unrolling = Unrolling::empty(model, bits + flags, is_async, steps);
        let (states, constraint) = initial(&mut unrolling.xag, model, start, 0, stop)?;
        unrolling.frames = vec![states];
        unrolling.constraints.extend(constraint.map(|constraint| vec![constraint]));
        Ok(unrolling)
    }

    /// An unrolling without states, with some inputs for them.
    fn empty(model: &'a Model, inputs: usize, is_async: bool, steps: usize) -> Unrolling<'a> {
        let fires = if is_async { model.cells() * steps } else { 0 };
        Unrolling {
            model,
            xag: Xag::new(inputs + fires),
            frames: Vec::new(),
            fires: Vec::new(),
            wrong: vec![None],
            constraints: Vec::new(),
            first_fire: if is_async { inputs } else { usize::MAX },
            neighbours: neighbours(model),
        }
    }

    /// The state at a step.
    pub fn frame(&self, step: usize) -> &[Literal] {
        &self.frames[step]
    }

    /// The number of steps.
    pub fn steps(&self) -> usize {
        self.frames.len() - 1
    }

    /// Unrolls until there are that many steps.
    pub fn extend(&mut self, steps: usize, stop: &Stop<'_>) -> Result<(), Stopped> {
        while self.steps() < steps {
            let step = self.steps();
            let fires = self.fire(step);
            let mut next = Vec::with_capacity(self.frames[step].len());
            let mut inputs = Vec::new();
            for cell in 0..self.model.cells() {
                if cell.is_multiple_of(CELL_STRIDE) {
                    stop.check()?;
                }
                self.read_neighbourhood(step, cell, &mut inputs);
                let computed = self.xag.add_xag(&self.model.rule, &inputs);
                let channels = computed.len();
                for (channel, new) in computed.into_iter().enumerate() {
                    let old = self.frames[step][cell * channels + channel];
                    next.push(match fires.get(cell) {
                        Some(&fire) => {
                            let differs = self.xag.xor(new, old);
                            let changes = self.xag.and(fire, differs);
                            self.xag.xor(old, changes)
                        }
                        None => new,
                    });
                }
            }
            self.frames.push(next);
            self.fires.push(fires);
            self.wrong.push(None);
        }
        Ok(())
    }

    /// Returns whether each cell fires in a step, and constrains it to fire once in each window.
    fn fire(&mut self, step: usize) -> Vec<Literal> {
        if self.first_fire == usize::MAX {
            return Vec::new();
        }
        let cells = self.model.cells();
        let input = |step: usize, cell: usize| Literal::input(self.first_fire + step * cells + cell);
        if let Some(begin) = self.model.window.and_then(|window| (step + 1).checked_sub(window)) {
            for cell in 0..cells {
                self.constraints.push((begin..=step).map(|step| input(step, cell)).collect());
            }
        }
        (0..cells).map(|cell| input(step, cell)).collect()
    }

    fn read_neighbourhood(&self, step: usize, cell: usize, inputs: &mut Vec<Literal>) {
        let channels = self.model.channels.len();
        inputs.clear();
        for channel in 0..channels {
            inputs.extend(self.neighbours[cell].iter().map(|place| match place {
                Some(place) => self.frames[step][place * channels + channel],
                None => Literal::FALSE,
            }));
        }
    }

    /// Returns whether the state at a step is wrong.
    pub fn wrong(&mut self, step: usize) -> Literal {
        if let Some(wrong) = self.wrong[step] {
            return wrong;
        }
        let wrong = self.differs(step, &self.model.target);
        self.wrong[step] = Some(wrong);
        wrong
    }

    /// Returns whether the state at a step differs from a grid in the grid's channels.
    pub fn differs(&mut self, step: usize, grid: &Grid) -> Literal {
        let (width, channels) = (grid.width(), self.model.channels.len());
        let mut bits = Vec::with_capacity(grid.cells() * grid.channels());
        for cell in 0..grid.cells() {
            for channel in 0..grid.channels() {
                let expected = grid.get(0, channel, cell / width, cell % width);
                bits.push(self.frames[step][cell * channels + channel].invert_if(expected));
            }
        }
        any(&mut self.xag, bits)
    }

    /// Returns whether the states at two steps differ.
    pub fn changes(&mut self, before: usize, after: usize) -> Literal {
        let bits = (0..self.frames[before].len())
            .map(|bit| self.xag.xor(self.frames[before][bit], self.frames[after][bit]))
            .collect();
        any(&mut self.xag, bits)
    }
}

/// Returns the start states as functions of the inputs from `first` on, and what has to be true of the inputs. There is an
/// input for every bit, then one for every cell if some cells are damaged; a single start state does not read any.
pub(super) fn initial(
    xag: &mut Xag,
    model: &Model,
    start: &Start,
    first: usize,
    stop: &Stop<'_>,
) -> Result<(Vec<Literal>, Option<Literal>), Stopped> {
    let (width, channels) = (model.width(), model.channels.len());
    let bits = model.cells() * channels;
    let constant = |grid: &Grid, bit: usize| {
        let (cell, channel) = (bit / channels, bit % channels);
        Literal::FALSE.invert_if(grid.get(0, channel, cell / width, cell % width))
    };
    Ok(match start {
        Start::Any => ((0..bits).map(|bit| Literal::input(first + bit)).collect(), None),
        Start::Grid(grid) => ((0..bits).map(|bit| constant(grid, bit)).collect(), None),
        Start::Region { grid, rows, columns } => {
            let is_inside = |cell: usize| rows.contains(&(cell / width)) && columns.contains(&(cell % width));
            let literal = |bit: usize| {
                if is_inside(bit / channels) { Literal::input(first + bit) } else { constant(grid, bit) }
            };
            ((0..bits).map(literal).collect(), None)
        }
        Start::Damaged { grid, cells } => {
            let damaged: Vec<Literal> =
                (0..model.cells()).map(|cell| Literal::input(first + bits + cell)).collect();
            let too_many = more_than(xag, &damaged, *cells, stop)?;
            let mut literals = Vec::with_capacity(bits);
            for bit in 0..bits {
                // The input is whether the bit changes, if its cell is damaged.
                let changes = xag.and(damaged[bit / channels], Literal::input(first + bit));
                literals.push(xag.xor(constant(grid, bit), changes));
            }
            (literals, Some(too_many.not()))
        }
    })
}

/// The cells of the neighbourhood of each cell.
pub(super) fn neighbours(model: &Model) -> Vec<[Option<usize>; NEIGHBOURS]> {
    let (height, width, boundary) = (model.height(), model.width(), model.automaton.boundary);
    let place = |cell: usize, neighbour: usize| {
        let y = boundary.neighbour(cell / width, neighbour / 3, height)?;
        let x = boundary.neighbour(cell % width, neighbour % 3, width)?;
        Some(y * width + x)
    };
    (0..model.cells()).map(|cell| std::array::from_fn(|neighbour| place(cell, neighbour))).collect()
}

/// Returns whether any literal is true, as a balanced tree.
pub(super) fn any(xag: &mut Xag, mut literals: Vec<Literal>) -> Literal {
    while literals.len() > 1 {
        literals = literals
            .chunks(2)
            .map(|pair| match pair {
                [a, b] => xag.or(*a, *b),
                one => one[0],
            })
            .collect();
    }
    literals.first().copied().unwrap_or(Literal::FALSE)
}

/// Returns whether more than `most` of some literals are true, with a sequential counter.
fn more_than(xag: &mut Xag, literals: &[Literal], most: usize, stop: &Stop<'_>) -> Result<Literal, Stopped> {
    // counts[i]: more than i of the literals so far.
    let mut counts = vec![Literal::FALSE; most + 1];
    for &literal in literals {
        stop.check()?;
        for i in (0..=most).rev() {
            let before = if i == 0 { Literal::TRUE } else { counts[i - 1] };
            let reaches = xag.and(before, literal);
            counts[i] = xag.or(counts[i], reaches);
        }
    }
    Ok(counts[most])
}

/// SAT queries on an unrolling. Clauses that were learnt stay for later queries.
pub(super) struct Query<'a> {
    context: Context<'a>,
    pub unrolling: Unrolling<'a>,
    clauses: Clauses<'a>,
    /// The number of constraints that the solver has.
    constrained: usize,
}

impl<'a> Query<'a> {
    pub fn new(context: &Context<'a>, unrolling: Unrolling<'a>) -> Query<'a> {
        Query::limited(context, unrolling, u64::MAX)
    }

    /// Queries that are stopped after some conflicts of the solver, all together.
    pub fn limited(context: &Context<'a>, unrolling: Unrolling<'a>, conflicts: u64) -> Query<'a> {
        let clauses = Clauses::new(Limits { conflicts, ..Limits::NONE }, context.stop);
        Query { context: *context, unrolling, clauses, constrained: 0 }
    }

    /// Returns whether the unrolling has reached the memory limit.
    pub fn is_full(&self) -> bool {
        let gates = self.unrolling.xag.gates() as u64;
        gates.saturating_mul(super::model::GATE_BYTES) > self.context.limits.memory
    }

    /// Unrolls until there are that many steps.
    pub fn extend(&mut self, steps: usize) -> Result<(), Stopped> {
        self.context.report("unrolling", steps, self.unrolling.xag.gates());
        self.unrolling.extend(steps, self.context.stop)
    }

    /// Unrolls to a step and returns whether a run is wrong there.
    pub fn can_be_wrong(&mut self, step: usize) -> Result<bool, Stopped> {
        self.extend(step)?;
        let wrong = self.unrolling.wrong(step);
        self.solve(&[wrong])
    }

    /// Unrolls to a step and returns whether a run is wrong at all steps until then.
    pub fn can_be_wrong_until(&mut self, step: usize) -> Result<bool, Stopped> {
        self.extend(step)?;
        let wrong: Vec<Literal> = (0..=step).map(|step| self.unrolling.wrong(step)).collect();
        self.solve(&wrong)
    }

    /// Returns whether there is a run for which all these literals are true.
    pub fn solve(&mut self, assumptions: &[Literal]) -> Result<bool, Stopped> {
        self.context.report("SAT", self.unrolling.steps(), self.unrolling.xag.gates());
        self.solve_silently(assumptions)
    }

    /// Decides like [`Query::solve`], without a report.
    pub fn solve_silently(&mut self, assumptions: &[Literal]) -> Result<bool, Stopped> {
        let xag = &self.unrolling.xag;
        for constraint in &self.unrolling.constraints[self.constrained..] {
            for &literal in constraint {
                self.clauses.add_cone(xag, literal)?;
            }
            self.clauses.add(constraint);
        }
        self.constrained = self.unrolling.constraints.len();
        for &literal in assumptions {
            self.clauses.add_cone(xag, literal)?;
        }
        self.clauses.solve(assumptions).ok_or(Stopped)
    }

    /// Returns the run that was found, which is wrong at a step.
    pub fn counterexample(&self, steps: usize) -> Result<Counterexample, GridError> {
        let Unrolling { model, xag, frames, fires, .. } = &self.unrolling;
        let inputs: Vec<u64> =
            (1..=xag.inputs()).map(|node| u64::from(self.clauses.value(node)).wrapping_neg()).collect();
        let mut values = Vec::new();
        xag.eval_words(&inputs, &mut values);
        let is_true = |literal: Literal| (values[literal.node()] ^ literal.mask()) & 1 == 1;
        let mut start = Grid::new(1, model.height(), model.width(), model.channels.len())?;
        for (bit, &literal) in frames[0].iter().enumerate() {
            let (cell, channel) = (bit / model.channels.len(), bit % model.channels.len());
            start.set(0, channel, cell / model.width(), cell % model.width(), is_true(literal));
        }
        let mask = |cells: &Vec<Literal>| {
            let mut words = vec![0u64; start.words_per_sample()];
            for (cell, _) in cells.iter().enumerate().filter(|(_, literal)| is_true(**literal)) {
                words[cell / 64] |= 1 << (cell % 64);
            }
            words
        };
        let fires = fires.iter().take(steps).filter(|cells| !cells.is_empty()).map(mask).collect();
        Ok(Counterexample { start, fires, steps, wrong: 0, period: None })
    }
}
