//! Questions as AIGER files with bad states, constraints and justice, for other model checkers.
//!
//! ```text
//! inputs    which cells fire, if not all do; the bits of the start state, where it is not given; which cells are damaged
//! latches   started      0 at step 0, then 1
//!           count        the step, up to the first one that counts
//!           was_right    whether the state has been right, for Property::Reaches
//!           age          for each cell, the steps since it fired, if there is a window
//!           cell         the state
//! state     started ? cell : start state of the inputs
//! bad       the first step that counts is reached and the state is wrong
//! justice   the state is wrong, infinitely often (Property::Attracts)
//! ```

use super::model::Model;
use super::unrolling::{CELL_STRIDE, any, initial, neighbours};
use super::{CheckError, Limits, Property, Question, Start};
use crate::formats::FormatError;
use crate::formats::aiger::{self, Properties};
use crate::formats::sequential::Sequential;
use crate::stop::{Stop, Stopped};
use crate::xag::{Literal, Xag};

impl Question {
    /// Returns the question as a binary AIGER 1.9 file. The property holds if and only if no bad state can be reached, or
    /// for [`Property::Attracts`] if there is no run that satisfies the justice property.
    ///
    /// Only the channels that the target depends on are written. An error if the file would exceed the memory limit.
    pub fn to_aiger(&self, limits: &Limits, stop: &Stop<'_>) -> Result<Vec<u8>, CheckError> {
        self.validate()?;
        let model = Model::new(self)?;
        model.check_memory(1, limits)?;
        let (sequential, properties) = Builder::new(&model).build(stop)?;
        stop.check()?;
        Ok(aiger::write_properties(&sequential, properties)?)
    }
}

/// The number of bits of a counter from 0 to `most`.
fn counter_bits(most: usize) -> usize {
    (usize::BITS - most.leading_zeros()) as usize
}

/// The sequential circuit of a question.
struct Builder<'a> {
    model: &'a Model,
    xag: Xag,
    input_names: Vec<String>,
    /// The names of the latches.
    latches: Vec<String>,
    /// The next values of the latches.
    next: Vec<Literal>,
}

impl<'a> Builder<'a> {
    fn new(model: &'a Model) -> Builder<'a> {
        let name =
            |kind: &str, cell: usize| format!("{kind}_{}_{}", cell / model.width(), cell % model.width());
        let (cells, channels) = (model.cells(), model.channels.len());
        let of_cells = |kind: &str| (0..cells).map(|cell| name(kind, cell)).collect::<Vec<String>>();
        let of_bits = |kind: &str| {
            let bit =
                |bit: usize| format!("{}_{}", name(kind, bit / channels), model.channels[bit % channels]);
            (0..cells * channels).map(bit).collect::<Vec<String>>()
        };
        let mut input_names = Vec::new();
        if model.is_async {
            input_names.extend(of_cells("fire"));
        }
        if !matches!(model.start, Start::Grid(_)) {
            input_names.extend(of_bits("start"));
        }
        if matches!(model.start, Start::Damaged { .. }) {
            input_names.extend(of_cells("damaged"));
        }
        let mut latches = vec!["started".to_string()];
        latches.extend((0..counter_bits(first_step(model))).map(|bit| format!("count_{bit}")));
        if matches!(model.property, Property::Reaches { .. }) {
            latches.push("was_right".to_string());
        }
        if let Some(window) = model.window {
            for cell in 0..cells {
                let age = name("age", cell);
                latches.extend((0..counter_bits(window - 1)).map(|bit| format!("{age}_{bit}")));
            }
        }
        latches.extend(of_bits("cell"));
        let xag = Xag::new(input_names.len() + latches.len());
        Builder { model, xag, input_names, latches, next: Vec::new() }
    }

    fn build(mut self, stop: &Stop<'_>) -> Result<(Sequential, Properties), CheckError> {
        let model = self.model;
        let inputs = self.input_names.len();
        let mut latch = inputs..;
        let mut latches =
            |count: usize| -> Vec<Literal> { latch.by_ref().take(count).map(Literal::input).collect() };
        let fires: Vec<Literal> =
            (0..if model.is_async { model.cells() } else { 0 }).map(Literal::input).collect();
        let (start, constraint) = initial(&mut self.xag, model, &model.start, fires.len(), stop)?;
        let mut constraints = Vec::new();

        let started = latches(1)[0];
        self.next.push(Literal::TRUE);
        constraints.extend(constraint.map(|constraint| self.xag.or(started, constraint)));
        let first = first_step(model);
        let count = latches(counter_bits(first));
        let is_counted = self.count_to(&count, first);

        let was_right = matches!(model.property, Property::Reaches { .. }).then(|| latches(1)[0]);
        let window_latches: Vec<Vec<Literal>> = match model.window {
            Some(window) => (0..model.cells()).map(|_| latches(counter_bits(window - 1))).collect(),
            None => Vec::new(),
        };
        let cells = latches(start.len());
        let state: Vec<Literal> =
            cells.iter().zip(&start).map(|(&cell, &start)| self.choose(started, cell, start)).collect();
        let wrong = self.wrong(&state);
        let mut bad = self.xag.and(is_counted, wrong);
        if let Some(was_right) = was_right {
            bad = self.xag.and(bad, was_right.not());
            let next = self.xag.or(was_right, wrong.not());
            self.next.push(next);
        }
        constraints.extend(self.age(&window_latches, &fires));
        self.step(&state, &fires, stop)?;

        let (asked, bads) = if model.property == Property::Attracts { (wrong, 0) } else { (bad, 1) };
        let properties = Properties { bad: bads, constraints: constraints.len(), justice: 1 - bads };
        let mut outputs = constraints;
        let mut names: Vec<String> = (0..outputs.len()).map(|i| format!("constraint_{i}")).collect();
        // Bad states come before constraints, justice after them.
        let place = if bads == 1 { 0 } else { outputs.len() };
        outputs.insert(place, asked);
        names.insert(place, if bads == 1 { "wrong" } else { "wrong_again" }.to_string());
        outputs.append(&mut self.next);
        names.extend(self.latches.iter().map(|latch| format!("{latch}_next")));
        self.xag.set_outputs(outputs);
        let latches = vec![Some(false); self.latches.len()];
        self.input_names.append(&mut self.latches);
        let circuit = self.xag.to_named_circuit(self.input_names, names).map_err(FormatError::from)?;
        Ok((Sequential { circuit, latches }, properties))
    }

    /// Returns `condition ? yes : no`.
    fn choose(&mut self, condition: Literal, yes: Literal, no: Literal) -> Literal {
        let differs = self.xag.xor(yes, no);
        let changes = self.xag.and(condition, differs);
        self.xag.xor(no, changes)
    }

    /// Returns whether a number, lowest bit first, is `value`.
    fn equals(&mut self, bits: &[Literal], value: usize) -> Literal {
        let differs = bits.iter().enumerate().map(|(i, bit)| bit.invert_if(value >> i & 1 == 1)).collect();
        any(&mut self.xag, differs).not()
    }

    /// Adds the next values of a counter that stops at `end`, and returns whether it is there.
    fn count_to(&mut self, count: &[Literal], end: usize) -> Literal {
        let is_end = self.equals(count, end);
        let mut carry = is_end.not();
        for &bit in count {
            let next = self.xag.xor(bit, carry);
            self.next.push(next);
            carry = self.xag.and(bit, carry);
        }
        is_end
    }

    fn wrong(&mut self, state: &[Literal]) -> Literal {
        let (target, channels) = (&self.model.target, self.model.channels.len());
        let bits = (0..target.cells() * target.channels()).map(|bit| {
            let (cell, channel) = (bit / target.channels(), bit % target.channels());
            let expected = target.get(0, channel, cell / target.width(), cell % target.width());
            state[cell * channels + channel].invert_if(expected)
        });
        let bits = bits.collect();
        any(&mut self.xag, bits)
    }

    /// Adds the next ages of the cells, and returns the constraint that each fires in time.
    fn age(&mut self, ages: &[Vec<Literal>], fires: &[Literal]) -> Option<Literal> {
        let window = self.model.window?;
        let mut late = Vec::new();
        for (age, &fire) in ages.iter().zip(fires) {
            let is_oldest = self.equals(age, window - 1);
            late.push(self.xag.and(is_oldest, fire.not()));
            let mut carry = Literal::TRUE;
            for &bit in age {
                let older = self.xag.xor(bit, carry);
                carry = self.xag.and(bit, carry);
                let next = self.xag.and(older, fire.not());
                self.next.push(next);
            }
        }
        Some(any(&mut self.xag, late).not())
    }

    /// Adds the next state.
    fn step(&mut self, state: &[Literal], fires: &[Literal], stop: &Stop<'_>) -> Result<(), Stopped> {
        let channels = self.model.channels.len();
        for (cell, places) in neighbours(self.model).into_iter().enumerate() {
            if cell.is_multiple_of(CELL_STRIDE) {
                stop.check()?;
            }
            let read = |channel: usize| {
                let bit = move |place: usize| state[place * channels + channel];
                places.map(|place| place.map_or(Literal::FALSE, bit))
            };
            let inputs: Vec<Literal> = (0..channels).flat_map(read).collect();
            let computed = self.xag.add_xag(&self.model.rule, &inputs);
            for (channel, new) in computed.into_iter().enumerate() {
                let next = match fires.get(cell) {
                    Some(&fire) => self.choose(fire, new, state[cell * channels + channel]),
                    None => new,
                };
                self.next.push(next);
            }
        }
        Ok(())
    }
}

/// The first step that counts.
fn first_step(model: &Model) -> usize {
    match model.property {
        Property::Reaches { within: step } | Property::Stays { from: step } => step,
        Property::Attracts => 0,
    }
}
