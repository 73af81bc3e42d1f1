//! Simulated annealing over the gates of a hard automaton: Gibbs sampling at a falling temperature.
//!
//! A move draws a few gates in the fan-in cone of the observed channels. For each gate it counts the wrong bits of the
//! automata with each of the sixteen functions in its place, often with one of the two operands replaced as well. It then
//! samples one of these automata, or the current one, by weight:
//!
//! ```text
//! weight of an automaton = exp(-wrong / temperature) * (1 for each wire, `active` < 1 for each active gate)
//! ```
//!
//! The penalty on active gates keeps circuits small, and small circuits are fast to run. New operands are drawn from the
//! preceding layer, so the network keeps its shape. The wires of perception kernels are shared by all kernels and stay.

use crate::kernel::{Layer, Wires};
use gatework_logic::automaton::NEIGHBOURS;
use gatework_logic::simulate::variants::{FUNCTIONS, Grids, LANES, Rule, Site, TRIALS, Variants, Wrong};
use gatework_logic::{Gate, GridError, Node};

use super::one_hot;
use crate::automata::model::Model;
use gatework_train::random::Random;

/// Settings of a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MoveSettings {
    /// Temperature, in wrong bits.
    pub temperature: f64,
    /// Prior weight of an active gate; a wire from the first operand has 1.
    pub active: f64,
    /// Fraction of the trials that replace an operand.
    pub rewire: f64,
}

impl MoveSettings {
    /// Prior weight of a function.
    fn prior(&self, gate: Gate) -> f64 {
        match gate {
            Gate::A => 1.0,
            Gate::B => 0.5,
            _ => self.active,
        }
    }
}

/// A candidate assignment: the function of every gate, and the wires of the update network.
#[derive(Clone, Debug, PartialEq)]
struct Assignment {
    functions: Vec<Gate>,
    update: Wires,
}

/// An annealing chain: a model whose gate functions and wires are sampled.
#[derive(Debug)]
pub struct Chain {
    /// The initial model, for its shape and its perception wires, which stay.
    model: Model,
    assignment: Assignment,
    rule: Rule,
    /// The signals of both operands of each node of the rule, even if its gate ignores one.
    operands: Vec<[u32; 2]>,
    wrong: u32,
    best: (u32, Assignment),
    observed: usize,
    variants: Vec<Variants>,
    random: Random,
    /// The learned gates in the fan-in cone of the observed channels.
    reachable: Vec<u32>,
    /// The signals that the update reads.
    rows: Vec<u32>,
}

/// Returns the operands of the nodes of a model's hard circuit. A circuit drops operands that a gate ignores, so every gate
/// is made an AND first.
fn operands(model: &Model) -> Vec<[u32; 2]> {
    let mut model = model.clone();
    model.params.values.chunks_exact_mut(FUNCTIONS).for_each(|logits| one_hot(logits, Gate::AND, 1.0));
    model.harden().circuit.nodes().iter().map(|node| [node.a, node.b]).collect()
}

/// A gate for which a move tries all functions.
#[derive(Clone, Copy, Debug)]
struct Trial {
    gate: usize,
    /// A replaced operand: its index, 0 or 1, and the row of the preceding layer that it reads now.
    rewire: Option<(usize, usize)>,
}

impl Chain {
    /// Begins with the most likely functions of a model.
    pub fn new(model: &Model, observed: usize, grids: &[Grids], random: Random) -> Result<Chain, GridError> {
        let assignment = Assignment { functions: model.functions(), update: model.update.clone() };
        let mut chain = Chain {
            model: model.clone(),
            rule: Rule::new(&model.harden()),
            operands: operands(model),
            wrong: 0,
            best: (u32::MAX, assignment.clone()),
            assignment,
            observed,
            variants: Vec::new(),
            random,
            reachable: Vec::new(),
            rows: model.update_rows(),
        };
        chain.set_grids(grids)?;
        chain.find_reachable();
        Ok(chain)
    }

    /// Wrong bits of the current assignment.
    pub fn wrong(&self) -> u32 {
        self.wrong
    }

    /// The fewest wrong bits on the current grids so far.
    pub fn best(&self) -> u32 {
        self.best.0
    }

    /// Continues on other grids, and resets the best assignment to the current one.
    pub fn set_grids(&mut self, grids: &[Grids]) -> Result<(), GridError> {
        self.variants.resize_with(grids.len(), Variants::new);
        self.wrong = self.evaluate(&[], grids)?[0];
        self.best = (self.wrong, self.assignment.clone());
        Ok(())
    }

    /// Number of gates, without wires, in the fan-in cone of the observed channels.
    pub fn gates(&self) -> usize {
        self.reachable.iter().filter(|gate| !self.assignment.functions[**gate as usize].is_wire()).count()
    }

    /// Returns the best model: the logit of each chosen function is `margin`, all others are 0.
    pub fn best_model(&self, margin: f32) -> Model {
        self.model_of(&self.best.1, margin)
    }

    /// Returns the current model: the logit of each chosen function is `margin`, all others are 0.
    pub fn model(&self, margin: f32) -> Model {
        self.model_of(&self.assignment, margin)
    }

    fn model_of(&self, assignment: &Assignment, margin: f32) -> Model {
        let mut model = Model { update: assignment.update.clone(), ..self.model.clone() };
        let logits = model.params.values.chunks_exact_mut(FUNCTIONS);
        logits.zip(&assignment.functions).for_each(|(logits, &gate)| one_hot(logits, gate, margin));
        model
    }

    /// Makes one move.
    pub fn step(&mut self, grids: &[Grids], settings: &MoveSettings) -> Result<(), GridError> {
        if self.reachable.is_empty() {
            return Ok(());
        }
        let trials: [Trial; TRIALS] = std::array::from_fn(|_| self.draw(settings));
        let mut sites = Vec::new();
        for (trial, &Trial { gate, rewire }) in trials.iter().enumerate() {
            for node in self.nodes(gate) {
                let mut operands = self.operands[node];
                if let (Some((operand, row)), Some((layer, _))) = (rewire, self.place(gate)) {
                    operands[operand] = self.signal(layer, row);
                }
                let [a, b] = operands;
                sites.push(Site { trial, node, a, b });
            }
        }
        let wrong = self.evaluate(&sites, grids)?;
        if let Some(lane) = self.sample(&trials, &wrong, settings) {
            self.accept(trials[lane / FUNCTIONS], Gate::ALL[lane % FUNCTIONS], &sites, lane / FUNCTIONS);
            self.wrong = wrong[lane];
            if self.wrong < self.best.0 {
                self.best = (self.wrong, self.assignment.clone());
            }
        }
        Ok(())
    }

    fn draw(&mut self, settings: &MoveSettings) -> Trial {
        let gate = self.reachable[self.random.below(self.reachable.len())] as usize;
        let rewired = f64::from(self.random.uniform()) < settings.rewire;
        let layer = self.place(gate).filter(|_| rewired).map(|(layer, _)| layer);
        let rewire = layer.map(|layer| {
            let operand = self.random.below(2);
            (operand, self.random.below(self.model.shape.update[layer]))
        });
        Trial { gate, rewire }
    }

    /// Counts the wrong bits of all variants of the rule, summed over all grids.
    fn evaluate(&mut self, sites: &[Site], grids: &[Grids]) -> Result<Wrong, GridError> {
        let mut sum = [0; LANES];
        for (variants, grids) in self.variants.iter_mut().zip(grids) {
            let wrong = variants.wrong(&self.rule, sites, grids)?;
            sum.iter_mut().zip(wrong).for_each(|(sum, wrong)| *sum += wrong);
        }
        Ok(sum)
    }

    /// Samples one of the variants by weight, or `None` for the current automaton.
    fn sample(&mut self, trials: &[Trial; TRIALS], wrong: &Wrong, settings: &MoveSettings) -> Option<usize> {
        // Weights are relative to that of the current automaton.
        let weight = |lane: usize| {
            let Trial { gate, rewire } = trials[lane / FUNCTIONS];
            let (old, new) = (self.assignment.functions[gate], Gate::ALL[lane % FUNCTIONS]);
            let changes = match rewire {
                None => new != old,
                Some((0, _)) => new.depends_on_a(),
                Some(_) => new.depends_on_b(),
            };
            let rise = f64::from(wrong[lane]) - f64::from(self.wrong);
            let factor = (-rise / settings.temperature).exp().min(f64::MAX / LANES as f64 / 100.0);
            if changes { settings.prior(new) / settings.prior(old) * factor } else { 0.0 }
        };
        let weights: [f64; LANES] = std::array::from_fn(weight);
        let total = 1.0 + weights.iter().sum::<f64>();
        let mut left = f64::from(self.random.uniform()) * total;
        weights.iter().position(|weight| {
            left -= weight;
            left < 0.0
        })
    }

    /// Makes the change of a trial.
    fn accept(&mut self, trial: Trial, function: Gate, sites: &[Site], index: usize) {
        self.assignment.functions[trial.gate] = function;
        for site in sites.iter().filter(|site| site.trial == index) {
            self.rule.set(site.node, Node::new(function, site.a, site.b));
            self.operands[site.node] = [site.a, site.b];
        }
        if let (Some((operand, row)), Some((layer, index))) = (trial.rewire, self.place(trial.gate)) {
            let layer = &mut self.assignment.update.layers[layer];
            let wires = if operand == 0 { &mut layer.a } else { &mut layer.b };
            wires[index] = row as u32;
        }
        self.find_reachable();
    }

    /// Finds the learned gates in the fan-in cone of the observed channels, over any number of steps.
    fn find_reachable(&mut self) {
        let (inputs, nodes) = (self.rule.inputs(), self.rule.nodes());
        let mut live: Vec<bool> = (0..self.model.shape.channels).map(|c| c < self.observed).collect();
        let mut stack: Vec<u32> = self.rule.outputs()[..self.observed].to_vec();
        let mut seen = vec![false; nodes.len()];
        let mut found = vec![false; self.assignment.functions.len()];
        self.reachable.clear();
        while let Some(signal) = stack.pop() {
            let Some(node) = (signal as usize).checked_sub(inputs) else {
                let channel = signal as usize / NEIGHBOURS;
                if !std::mem::replace(&mut live[channel], true) {
                    stack.push(self.rule.outputs()[channel]);
                }
                continue;
            };
            if std::mem::replace(&mut seen[node], true) {
                continue;
            }
            let gate = self.model.gate_of_node(node);
            if !std::mem::replace(&mut found[gate], true) {
                self.reachable.push(gate as u32);
            }
            stack.extend(nodes[node].dependencies());
        }
    }

    /// The nodes of a learned gate: one for each channel if the gate belongs to a kernel.
    fn nodes(&self, gate: usize) -> impl Iterator<Item = usize> + use<> {
        let (perceive, channels) = (self.model.perceive_gates(), self.model.shape.channels);
        let of_kernel = gate < perceive;
        let first = if of_kernel { gate } else { gate - perceive + perceive * channels };
        (0..if of_kernel { channels } else { 1 }).map(move |channel| first + channel * perceive)
    }

    /// The layer of a gate of the update, and its index in the layer.
    fn place(&self, gate: usize) -> Option<(usize, usize)> {
        let mut index = gate.checked_sub(self.model.perceive_gates())?;
        for (number, layer) in self.assignment.update.layers.iter().enumerate() {
            if index < layer.len() {
                return Some((number, index));
            }
            index -= layer.len();
        }
        None
    }

    /// The signal of a row that a layer of the update reads.
    fn signal(&self, layer: usize, row: usize) -> u32 {
        let Some(before) = layer.checked_sub(1) else { return self.rows[row] };
        let instances = self.model.perceive_gates() * self.model.shape.channels;
        let first: usize = self.assignment.update.layers[..before].iter().map(Layer::len).sum();
        (self.rule.inputs() + instances + first + row) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::search::tests::{case, model};
    use gatework_logic::Simulator;
    use gatework_train::random::Purpose;

    #[test]
    fn the_wrong_bits_of_a_chain_are_those_of_its_model() {
        for (seed, fires) in [(1, false), (2, true)] {
            let (model, case) = (model(seed), case(seed, 2, 7, fires));
            let grids = [Grids::new(&case.task(model.shape.boundary, 0)).unwrap()];
            let observed = case.target.channels();
            let random = Random::new(seed, Purpose::Search, 0);
            let mut chain = Chain::new(&model, observed, &grids, random).unwrap();
            let begin = chain.wrong();
            for _ in 0..300 {
                chain.step(&grids, &MoveSettings { temperature: 1.0, active: 0.2, rewire: 0.5 }).unwrap();
            }
            assert!(chain.best() < begin, "{} of {begin}", chain.best());
            let mut simulator = Simulator::new(&chain.best_model(10.0).harden(), observed).unwrap();
            let mut grid = case.start.clone();
            for step in 0..case.steps {
                match case.fires.get(step) {
                    Some(mask) => simulator.step_masked(&mut grid, mask).unwrap(),
                    None => simulator.step(&mut grid).unwrap(),
                }
            }
            assert_eq!(grid.difference(&case.target, observed).unwrap(), chain.best() as usize);
            let current = chain.evaluate(&[], &grids).unwrap();
            assert_eq!(current, [chain.wrong(); LANES]);
        }
    }
}
