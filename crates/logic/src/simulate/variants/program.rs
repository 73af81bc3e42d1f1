//! A rule and its trials as a straight-line program.
//!
//! The XAG is built backwards from the observed channels, through time: a channel that is read is computed too. At the
//! site of a trial, the bits of the trial select one of the sixteen functions of the gate by a truth table, and all other
//! bits keep the original gate.

use super::grids::{Grids, PlaneBuffers};
use super::rule::{Rule, Site};
use super::{CELL, FUNCTIONS, LANES, TRIALS, Wrong};
use crate::automaton::{CENTRE, NEIGHBOURS};
use crate::circuit::Node;
use crate::gate::Gate;
use crate::grid::GridError;
use crate::literal::Literal;
use crate::simulate::compiled::{CompiledProgram, Vector};
use crate::straight_line::StraightLineProgram;
use crate::xag::Xag;

/// The planes after those of the channels: four rows of truth tables, one mask for each trial, one mask of the cells that
/// update.
pub(super) const EXTRA_PLANES: usize = 4 + TRIALS + 1;
const TRIAL_PLANE: usize = 4;
pub(super) const UPDATE_PLANE: usize = EXTRA_PLANES - 1;

/// The content of every cell of the extra planes, except for the last one.
pub(super) fn patterns() -> [[u64; CELL]; EXTRA_PLANES - 1] {
    let mut planes = [[0; CELL]; EXTRA_PLANES - 1];
    for lane in 0..LANES {
        let (trial, function) = (lane / FUNCTIONS, lane % FUNCTIONS);
        let mut set = |plane: usize| planes[plane][lane / 64] |= 1 << (lane % 64);
        (0..4).filter(|row| function >> row & 1 == 1).for_each(&mut set);
        set(TRIAL_PLANE + trial);
    }
    planes
}

/// Simulates rules on grids. It keeps its buffers from one simulation to the next.
#[derive(Debug, Default)]
pub struct Variants {
    /// The literal of each signal that is visited.
    literals: Vec<Option<Literal>>,
    /// The first site of each node, and the next site of each site.
    first_site: Vec<u32>,
    stack: Vec<u32>,
    buffers: PlaneBuffers,
    scratch: Vec<Vector>,
    /// The program of the last simulation, whose memory is reused.
    old: Option<CompiledProgram>,
}

/// No site.
const NONE: u32 = u32::MAX;

impl Variants {
    /// Creates empty buffers.
    pub fn new() -> Variants {
        Variants::default()
    }

    /// Counts the wrong bits of all automata on the grids: the rule with the changes of each trial. Sites with operands
    /// that are not before their node, and trials beyond [`TRIALS`], are ignored. It is an error if the grids have another
    /// number of channels than the rule.
    pub fn wrong(&mut self, rule: &Rule, sites: &[Site], grids: &Grids) -> Result<Wrong, GridError> {
        if rule.channels != grids.channels() {
            return Err(GridError::Channels { automaton: rule.channels, grid: grids.channels() });
        }
        let program = self.compile(rule, sites, grids);
        let wrong = grids.run(&program, &mut self.buffers, &mut self.scratch);
        self.old = Some(program.compiled);
        Ok(wrong)
    }

    fn compile(&mut self, rule: &Rule, sites: &[Site], grids: &Grids) -> TrialProgram {
        let inputs = rule.inputs();
        let fits = |site: &&Site| {
            let before = (inputs + site.node) as u32;
            site.trial < TRIALS && site.node < rule.nodes.len() && site.a < before && site.b < before
        };
        let sites: Vec<Site> = sites.iter().filter(fits).copied().collect();
        self.literals.clear();
        self.literals.resize(inputs + rule.nodes.len(), None);
        self.first_site.clear();
        self.first_site.resize(rule.nodes.len(), NONE);
        let mut next_site = vec![NONE; sites.len()];
        for (i, site) in sites.iter().enumerate() {
            next_site[i] = std::mem::replace(&mut self.first_site[site.node], i as u32);
        }
        let mut builder = XagBuilder {
            rule,
            sites: &sites,
            next_site: &next_site,
            state: self,
            xag: Xag::new(inputs + EXTRA_PLANES),
            live: vec![false; rule.channels],
            waiting: Vec::new(),
        };
        let (outputs, channels) = builder.build(grids.observed(), grids.is_asynchronous());
        let program = StraightLineProgram::lower(&builder.xag, &outputs);
        let layout = grids.layout(rule.channels, &channels);
        TrialProgram { compiled: CompiledProgram::reusing(self.old.take(), &program, &layout), channels }
    }
}

/// A rule with its trials, compiled for some grids.
pub(super) struct TrialProgram {
    pub compiled: CompiledProgram,
    /// The channels that are computed.
    pub channels: Vec<usize>,
}

/// The construction of the XAG from the observed channels backwards.
struct XagBuilder<'a> {
    rule: &'a Rule,
    sites: &'a [Site],
    next_site: &'a [u32],
    state: &'a mut Variants,
    xag: Xag,
    live: Vec<bool>,
    /// Live channels whose outputs are not built yet.
    waiting: Vec<usize>,
}

impl XagBuilder<'_> {
    /// Builds the XAG and returns its outputs and the channel of each.
    fn build(&mut self, observed: usize, masked: bool) -> (Vec<Literal>, Vec<usize>) {
        (0..observed.min(self.rule.channels)).for_each(|channel| self.need(channel));
        let mut done = Vec::new();
        while let Some(channel) = self.waiting.pop() {
            let new = self.signal(self.rule.outputs[channel]);
            done.push((channel, new));
        }
        done.sort_unstable_by_key(|&(channel, _)| channel);
        let updates = Literal::input(self.rule.inputs() + UPDATE_PLANE);
        let mut output = |(channel, new): (usize, Literal)| {
            if !masked {
                return new;
            }
            let old = Literal::input(channel * NEIGHBOURS + CENTRE);
            let changed = self.xag.gate(Gate::XOR, old, new);
            let changed = self.xag.gate(Gate::AND, changed, updates);
            self.xag.gate(Gate::XOR, old, changed)
        };
        let outputs = done.iter().map(|&done| output(done)).collect();
        (outputs, done.into_iter().map(|(channel, _)| channel).collect())
    }

    fn need(&mut self, channel: usize) {
        if !std::mem::replace(&mut self.live[channel], true) {
            self.waiting.push(channel);
        }
    }

    /// Returns the literal of a signal, after building its fan-in cone.
    fn signal(&mut self, signal: u32) -> Literal {
        let mut stack = std::mem::take(&mut self.state.stack);
        stack.push(signal);
        while let Some(&signal) = stack.last() {
            if self.state.literals[signal as usize].is_some() {
                stack.pop();
                continue;
            }
            let before = stack.len();
            let literal = self.try_signal(signal, &mut stack);
            if stack.len() == before {
                self.state.literals[signal as usize] = Some(literal);
                stack.pop();
            }
        }
        self.state.stack = stack;
        self.known(signal)
    }

    fn known(&self, signal: u32) -> Literal {
        self.state.literals[signal as usize].unwrap_or(Literal::FALSE)
    }

    /// Returns the literal of a signal, or pushes the signals that must be built first.
    fn try_signal(&mut self, signal: u32, stack: &mut Vec<u32>) -> Literal {
        let inputs = self.rule.inputs();
        let Some(index) = (signal as usize).checked_sub(inputs) else {
            self.need(signal as usize / NEIGHBOURS);
            return Literal::from_signal(signal);
        };
        let node = self.rule.nodes[index];
        let needs = [(node.gate.depends_on_a(), node.a), (node.gate.depends_on_b(), node.b)];
        for (_, operand) in needs.into_iter().filter(|(needed, _)| *needed) {
            self.require(operand, stack);
        }
        let mut site = self.state.first_site[index];
        while site != NONE {
            let Site { a, b, .. } = self.sites[site as usize];
            self.require(a, stack);
            self.require(b, stack);
            site = self.next_site[site as usize];
        }
        if stack.last() == Some(&signal) { self.node(index, node) } else { Literal::FALSE }
    }

    fn require(&self, signal: u32, stack: &mut Vec<u32>) {
        if self.state.literals[signal as usize].is_none() {
            stack.push(signal);
        }
    }

    /// Builds a node whose operands are built.
    fn node(&mut self, index: usize, node: Node) -> Literal {
        let mut value = self.xag.gate(node.gate, self.known(node.a), self.known(node.b));
        let mut site = self.state.first_site[index];
        while site != NONE {
            value = self.choose(value, self.sites[site as usize]);
            site = self.next_site[site as usize];
        }
        value
    }

    /// Selects, for the bits of a trial, the sixteen functions of the operands of a site, and `value` for all other bits.
    fn choose(&mut self, value: Literal, site: Site) -> Literal {
        let (a, b) = (self.known(site.a), self.known(site.b));
        let plane = |i: usize| Literal::input(self.rule.inputs() + i);
        let planes: [Literal; 4] = std::array::from_fn(plane);
        let trial = plane(TRIAL_PLANE + site.trial);
        // The rows of a truth table are the values at (1, 1), (1, 0), (0, 1) and (0, 0).
        let with_a = self.mux(b, planes[0], planes[1]);
        let without_a = self.mux(b, planes[2], planes[3]);
        let tried = self.mux(a, with_a, without_a);
        self.mux(trial, tried, value)
    }

    /// A multiplexer: `yes` where `condition` is 1, else `no`.
    fn mux(&mut self, condition: Literal, yes: Literal, no: Literal) -> Literal {
        let differ = self.xag.gate(Gate::XOR, yes, no);
        let change = self.xag.gate(Gate::AND, condition, differ);
        self.xag.gate(Gate::XOR, no, change)
    }
}
