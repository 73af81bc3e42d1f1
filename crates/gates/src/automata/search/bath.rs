//! A heat bath over the gates of a hard automaton.
//!
//! A move picks a few gates that matter. For each it looks at all sixteen functions, often with another operand in place
//! of one of the two, and at how many bits each of these automata gets wrong. Then it takes one of them, or stays:
//!
//! ```text
//! weight of an automaton = exp(-wrong / temperature) * (1 for each wire, less for each active gate)
//! ```
//!
//! The price of an active gate keeps circuits small, and small circuits are fast to run. Operands are drawn anew from the
//! layer before, so the network keeps its shape. Perception kernels keep their wires, which they share.

use crate::kernel::{Layer, Wires};
use gatework_logic::automaton::NEIGHBOURS;
use gatework_logic::simulate::variants::{FUNCTIONS, Grids as Boards, LANES, Rule, Site, TRIALS, Variants, Wrong};
use gatework_logic::{Gate, GridError, Node};

use super::one_hot;
use crate::automata::model::Model;
use gatework_train::random::Random;

/// How hot the bath is, and what it likes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Heat {
    /// Wrong bits that hardly matter.
    pub temperature: f64,
    /// The weight of an active gate; a wire from the first operand has 1.
    pub active: f64,
    /// Share of the trials that try another operand.
    pub rewire: f64,
    /// Share of the trials whose gate is drawn among the promising ones.
    pub guided: f64,
}

impl Heat {
    /// The weight of a function.
    fn prior(&self, gate: Gate) -> f64 {
        match gate {
            Gate::A => 1.0,
            Gate::B => 0.5,
            _ => self.active,
        }
    }
}

/// What a bath changes in a model.
#[derive(Clone, Debug, PartialEq)]
struct Genes {
    functions: Vec<Gate>,
    update: Wires,
}

/// A model whose gates are being changed.
#[derive(Debug)]
pub struct Bath {
    /// Where it began; its shape and its perception wires hold.
    model: Model,
    genes: Genes,
    rule: Rule,
    /// The signals of the operands of each node of the rule, also of those that its gate ignores.
    operands: Vec<[u32; 2]>,
    wrong: u32,
    best: (u32, Genes),
    observed: usize,
    variants: Vec<Variants>,
    random: Random,
    /// The learned gates that the observed channels depend on.
    reachable: Vec<u32>,
    /// The learned gates whose change the gradient recommends, the most promising first.
    promising: Vec<u32>,
    /// The signals that the update reads.
    rows: Vec<u32>,
}

/// The operands of the nodes of a model's hard circuit. A circuit forgets those that a gate ignores, so all gates are made
/// such that they ignore none.
fn operands(model: &Model) -> Vec<[u32; 2]> {
    let mut model = model.clone();
    model.params.values.chunks_exact_mut(FUNCTIONS).for_each(|logits| one_hot(logits, Gate::AND, 1.0));
    model.harden().circuit.nodes().iter().map(|node| [node.a, node.b]).collect()
}

/// A gate, and what a trial tries with it.
#[derive(Clone, Copy, Debug)]
struct Trial {
    gate: usize,
    /// Another operand: the first or the second, and the row of the layer before that it comes from.
    rewire: Option<(usize, usize)>,
}

impl Bath {
    /// Begins at the most likely functions of a model.
    pub fn new(model: &Model, observed: usize, boards: &[Boards], random: Random) -> Result<Bath, GridError> {
        let genes = Genes { functions: model.functions(), update: model.update.clone() };
        let mut bath = Bath {
            model: model.clone(),
            rule: Rule::new(&model.harden()),
            operands: operands(model),
            wrong: 0,
            best: (u32::MAX, genes.clone()),
            genes,
            observed,
            variants: Vec::new(),
            random,
            reachable: Vec::new(),
            promising: Vec::new(),
            rows: model.update_rows(),
        };
        bath.look_at(boards)?;
        bath.find_reachable();
        Ok(bath)
    }

    /// Wrong bits now.
    pub fn wrong(&self) -> u32 {
        self.wrong
    }

    /// The fewest wrong bits so far.
    pub fn best(&self) -> u32 {
        self.best.0
    }

    /// Goes on with other boards. What was best on the old ones is forgotten.
    pub fn look_at(&mut self, boards: &[Boards]) -> Result<(), GridError> {
        self.variants.resize_with(boards.len(), Variants::new);
        self.wrong = self.evaluate(&[], boards)?[0];
        self.best = (self.wrong, self.genes.clone());
        Ok(())
    }

    /// Gates that are no wires among those that the observed channels depend on.
    pub fn gates(&self) -> usize {
        self.reachable.iter().filter(|gate| !self.genes.functions[**gate as usize].is_wire()).count()
    }

    /// The model with the best functions and wires, their logits 0 and `margin`.
    pub fn best_model(&self, margin: f32) -> Model {
        self.model_of(&self.best.1, margin)
    }

    /// The model with the present functions and wires, their logits 0 and `margin`.
    pub fn model(&self, margin: f32) -> Model {
        self.model_of(&self.genes, margin)
    }

    fn model_of(&self, genes: &Genes, margin: f32) -> Model {
        let mut model = Model { update: genes.update.clone(), ..self.model.clone() };
        let logits = model.params.values.chunks_exact_mut(FUNCTIONS);
        logits.zip(&genes.functions).for_each(|(logits, &gate)| one_hot(logits, gate, margin));
        model
    }

    /// One move.
    pub fn step(&mut self, boards: &[Boards], heat: &Heat) -> Result<(), GridError> {
        if self.reachable.is_empty() {
            return Ok(());
        }
        let trials: [Trial; TRIALS] = std::array::from_fn(|_| self.draw(heat));
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
        let wrong = self.evaluate(&sites, boards)?;
        if let Some(lane) = self.choose(&trials, &wrong, heat) {
            self.take(trials[lane / FUNCTIONS], Gate::ALL[lane % FUNCTIONS], &sites, lane / FUNCTIONS);
            self.wrong = wrong[lane];
            if self.wrong < self.best.0 {
                self.best = (self.wrong, self.genes.clone());
            }
        }
        Ok(())
    }

    /// Puts the gates in the order in which the gradient of the soft loss, one slope a logit, would change them: by the
    /// steepest descent towards one of their functions.
    pub fn follow(&mut self, slopes: &[f32]) {
        let steepest = |gate: u32| {
            slopes[gate as usize * FUNCTIONS..][..FUNCTIONS].iter().fold(0.0, |a: f32, &b| a.min(b))
        };
        let mut gates: Vec<(f32, u32)> = self.reachable.iter().map(|&gate| (steepest(gate), gate)).collect();
        gates.retain(|&(slope, _)| slope < 0.0);
        gates.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        self.promising = gates.into_iter().map(|(_, gate)| gate).collect();
    }

    /// A gate: any, or one of the promising, the first more often than the last.
    fn draw_gate(&mut self, heat: &Heat) -> usize {
        let count = self.promising.len();
        if count > 0 && f64::from(self.random.uniform()) < heat.guided {
            let among = 1 + self.random.below(count);
            return self.promising[self.random.below(among)] as usize;
        }
        self.reachable[self.random.below(self.reachable.len())] as usize
    }

    fn draw(&mut self, heat: &Heat) -> Trial {
        let gate = self.draw_gate(heat);
        let rewired = f64::from(self.random.uniform()) < heat.rewire;
        let layer = self.place(gate).filter(|_| rewired).map(|(layer, _)| layer);
        let rewire = layer.map(|layer| {
            let operand = self.random.below(2);
            (operand, self.random.below(self.model.shape.update[layer]))
        });
        Trial { gate, rewire }
    }

    fn evaluate(&mut self, sites: &[Site], boards: &[Boards]) -> Result<Wrong, GridError> {
        let mut sum = [0; LANES];
        for (variants, boards) in self.variants.iter_mut().zip(boards) {
            let wrong = variants.wrong(&self.rule, sites, boards)?;
            sum.iter_mut().zip(wrong).for_each(|(sum, wrong)| *sum += wrong);
        }
        Ok(sum)
    }

    /// Draws one of the automata that were tried, or `None` to stay.
    fn choose(&mut self, trials: &[Trial; TRIALS], wrong: &Wrong, heat: &Heat) -> Option<usize> {
        // Relative to the present automaton, which has weight 1.
        let weight = |lane: usize| {
            let Trial { gate, rewire } = trials[lane / FUNCTIONS];
            let (old, new) = (self.genes.functions[gate], Gate::ALL[lane % FUNCTIONS]);
            let changes = match rewire {
                None => new != old,
                Some((0, _)) => new.depends_on_a(),
                Some(_) => new.depends_on_b(),
            };
            let rise = f64::from(wrong[lane]) - f64::from(self.wrong);
            let factor = (-rise / heat.temperature).exp().min(f64::MAX / LANES as f64 / 100.0);
            if changes { heat.prior(new) / heat.prior(old) * factor } else { 0.0 }
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
    fn take(&mut self, trial: Trial, function: Gate, sites: &[Site], index: usize) {
        self.genes.functions[trial.gate] = function;
        for site in sites.iter().filter(|site| site.trial == index) {
            self.rule.set(site.node, Node::new(function, site.a, site.b));
            self.operands[site.node] = [site.a, site.b];
        }
        if let (Some((operand, row)), Some((layer, index))) = (trial.rewire, self.place(trial.gate)) {
            let layer = &mut self.genes.update.layers[layer];
            let wires = if operand == 0 { &mut layer.a } else { &mut layer.b };
            wires[index] = row as u32;
        }
        self.find_reachable();
    }

    /// Finds the learned gates that the observed channels depend on, through time.
    fn find_reachable(&mut self) {
        let (inputs, nodes) = (self.rule.inputs(), self.rule.nodes());
        let mut live: Vec<bool> = (0..self.model.shape.channels).map(|c| c < self.observed).collect();
        let mut stack: Vec<u32> = self.rule.outputs()[..self.observed].to_vec();
        let mut seen = vec![false; nodes.len()];
        let mut found = vec![false; self.genes.functions.len()];
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

    /// The nodes of a learned gate: one for each channel if it is of a kernel.
    fn nodes(&self, gate: usize) -> impl Iterator<Item = usize> + use<> {
        let (perceive, channels) = (self.model.perceive_gates(), self.model.shape.channels);
        let of_kernel = gate < perceive;
        let first = if of_kernel { gate } else { gate - perceive + perceive * channels };
        (0..if of_kernel { channels } else { 1 }).map(move |channel| first + channel * perceive)
    }

    /// The layer of a gate of the update, and its place there.
    fn place(&self, gate: usize) -> Option<(usize, usize)> {
        let mut index = gate.checked_sub(self.model.perceive_gates())?;
        for (number, layer) in self.genes.update.layers.iter().enumerate() {
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
        let first: usize = self.genes.update.layers[..before].iter().map(Layer::len).sum();
        (self.rule.inputs() + instances + first + row) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::automata::search::tests::{lesson, model};
    use gatework_logic::Simulator;
    use gatework_train::random::Purpose;

    #[test]
    fn gates_are_followed_in_the_order_of_their_slopes() {
        let (model, lesson) = (model(1), lesson(1, 2, 7, false));
        let boards = [Boards::new(&lesson.task(model.shape.boundary, 0)).unwrap()];
        let observed = lesson.target.channels();
        let mut bath = Bath::new(&model, observed, &boards, Random::new(1, Purpose::Search, 0)).unwrap();
        let mut slopes = vec![0.5; model.params.len()];
        let [first, second] = [bath.reachable[1], bath.reachable[0]];
        slopes[first as usize * FUNCTIONS + 9] = -2.0;
        slopes[second as usize * FUNCTIONS + 3] = -1.0;
        bath.follow(&slopes);
        assert_eq!(bath.promising, [first, second]);
        let heat = Heat { temperature: 1.0, active: 1.0, rewire: 0.0, guided: 1.0 };
        let drawn: Vec<usize> = (0..400).map(|_| bath.draw(&heat).gate).collect();
        let of_first = drawn.iter().filter(|&&gate| gate == first as usize).count();
        assert!((250..350).contains(&of_first), "{of_first} of 400, not three quarters");
        assert!(drawn.iter().all(|&gate| gate == first as usize || gate == second as usize));
    }

    #[test]
    fn what_a_bath_says_is_true_of_its_model() {
        for (seed, fires) in [(1, false), (2, true)] {
            let (model, lesson) = (model(seed), lesson(seed, 2, 7, fires));
            let boards = [Boards::new(&lesson.task(model.shape.boundary, 0)).unwrap()];
            let observed = lesson.target.channels();
            let random = Random::new(seed, Purpose::Search, 0);
            let mut bath = Bath::new(&model, observed, &boards, random).unwrap();
            let begin = bath.wrong();
            for _ in 0..300 {
                bath.step(&boards, &Heat { temperature: 1.0, active: 0.2, rewire: 0.5, guided: 0.0 })
                    .unwrap();
            }
            assert!(bath.best() < begin, "{} of {begin}", bath.best());
            let mut simulator = Simulator::new(&bath.best_model(10.0).harden(), observed).unwrap();
            let mut grid = lesson.start.clone();
            for step in 0..lesson.steps {
                match lesson.fires.get(step) {
                    Some(mask) => simulator.step_masked(&mut grid, mask).unwrap(),
                    None => simulator.step(&mut grid).unwrap(),
                }
            }
            assert_eq!(grid.difference(&lesson.target, observed).unwrap(), bath.best() as usize);
            let current = bath.evaluate(&[], &boards).unwrap();
            assert_eq!(current, [bath.wrong(); LANES]);
        }
    }
}
