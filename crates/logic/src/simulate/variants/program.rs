//! What the observed channels need of a rule, compiled with the trials in it.
//!
//! The rule is resolved backwards from the observed channels, through time: a channel that is read is computed too.
//! Wires, constants and inverters vanish on the way. At the site of a trial the gate becomes a table of its sixteen
//! functions, one for each bit of the trial, beside the gate as it is for all other bits.

use super::boards::{Boards, Frame};
use super::rule::{Rule, Site};
use super::{CELL, FUNCTIONS, LANES, TRIALS, Wrong};
use crate::automaton::{CENTRE, NEIGHBOURS};
use crate::circuit::Node;
use crate::gate::Gate;
use crate::grid::GridError;
use crate::literal::Literal;
use crate::xag::Xag;
use crate::simulate::compiled::{CompiledProgram, Vector};
use crate::straight_line::StraightLineProgram;

/// Planes beside the channels: four of truth tables, one for the bits of each trial, one for the cells that fire.
pub(super) const EXTRA_PLANES: usize = 4 + TRIALS + 1;
const TRIAL_PLANE: usize = 4;
pub(super) const FIRE_PLANE: usize = EXTRA_PLANES - 1;

/// The cells of the extra planes but the last.
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

/// Runs rules on boards, and remembers what it needs for the next time.
#[derive(Debug, Default)]
pub struct Variants {
    /// The literal of each signal, once it is known.
    literals: Vec<Option<Literal>>,
    /// The first site of each node, and the next site of each site.
    first_site: Vec<u32>,
    stack: Vec<u32>,
    visited: Vec<u32>,
    operations: usize,
    frame: Frame,
    scratch: Vec<Vector>,
    /// The program of the last run, whose memory is used again.
    old: Option<CompiledProgram>,
}

/// No site.
const NONE: u32 = u32::MAX;

impl Variants {
    /// Nothing has been run yet.
    pub fn new() -> Variants {
        Variants::default()
    }

    /// The nodes that the observed channels depended on in the last run, wires included.
    pub fn visited(&self) -> &[u32] {
        &self.visited
    }

    /// The operations for each cell in the last run.
    pub fn operations(&self) -> usize {
        self.operations
    }

    /// Wrong bits of all automata on the boards: the rule with the changes of the trials. Sites that do not fit the
    /// rule are left out, and so are those of trials beyond [`TRIALS`]; boards with other channels than the rule are an
    /// error.
    pub fn wrong(&mut self, rule: &Rule, sites: &[Site], boards: &Boards) -> Result<Wrong, GridError> {
        if rule.channels != boards.channels() {
            return Err(GridError::Channels { automaton: rule.channels, grid: boards.channels() });
        }
        let program = self.compile(rule, sites, boards);
        let wrong = boards.run(&program, &mut self.frame, &mut self.scratch);
        self.old = Some(program.compiled);
        Ok(wrong)
    }

    fn compile(&mut self, rule: &Rule, sites: &[Site], boards: &Boards) -> Program {
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
        self.visited.clear();
        let mut resolver = Resolver {
            rule,
            sites: &sites,
            next_site: &next_site,
            state: self,
            xag: Xag::new(inputs + EXTRA_PLANES),
            live: vec![false; rule.channels],
            waiting: Vec::new(),
        };
        let (outputs, channels) = resolver.resolve(boards.observed(), boards.is_asynchronous());
        let program = StraightLineProgram::lower(&resolver.xag, &outputs);
        self.operations = program.operations();
        let layout = boards.layout(rule.channels, &channels);
        Program { compiled: CompiledProgram::in_place_of(self.old.take(), &program, &layout), channels }
    }
}

/// A rule that is ready to run.
pub(super) struct Program {
    pub compiled: CompiledProgram,
    /// The channels that are computed.
    pub channels: Vec<usize>,
}

/// One pass from the observed channels to what they depend on.
struct Resolver<'a> {
    rule: &'a Rule,
    sites: &'a [Site],
    next_site: &'a [u32],
    state: &'a mut Variants,
    xag: Xag,
    live: Vec<bool>,
    /// Channels whose outputs are to be resolved.
    waiting: Vec<usize>,
}

impl Resolver<'_> {
    /// The outputs and the channels that they are.
    fn resolve(&mut self, observed: usize, masked: bool) -> (Vec<Literal>, Vec<usize>) {
        (0..observed.min(self.rule.channels)).for_each(|channel| self.need(channel));
        let mut done = Vec::new();
        while let Some(channel) = self.waiting.pop() {
            let new = self.signal(self.rule.outputs[channel]);
            done.push((channel, new));
        }
        done.sort_unstable_by_key(|&(channel, _)| channel);
        let fires = Literal::input(self.rule.inputs() + FIRE_PLANE);
        let mut output = |(channel, new): (usize, Literal)| {
            if !masked {
                return new;
            }
            let old = Literal::input(channel * NEIGHBOURS + CENTRE);
            let changed = self.xag.gate(Gate::XOR, old, new);
            let changed = self.xag.gate(Gate::AND, changed, fires);
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

    /// The literal of a signal, after those of everything that it depends on.
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

    /// The literal of a signal, or more signals on the stack that must be known first.
    fn try_signal(&mut self, signal: u32, stack: &mut Vec<u32>) -> Literal {
        let inputs = self.rule.inputs();
        let Some(index) = (signal as usize).checked_sub(inputs) else {
            self.need(signal as usize / NEIGHBOURS);
            return Literal::from_signal(signal);
        };
        let node = self.rule.nodes[index];
        let needs = [(node.gate.depends_on_a(), node.a), (node.gate.depends_on_b(), node.b)];
        for (_, operand) in needs.into_iter().filter(|(needed, _)| *needed) {
            self.wait_for(operand, stack);
        }
        let mut site = self.state.first_site[index];
        while site != NONE {
            let Site { a, b, .. } = self.sites[site as usize];
            self.wait_for(a, stack);
            self.wait_for(b, stack);
            site = self.next_site[site as usize];
        }
        if stack.last() == Some(&signal) { self.node(index, node) } else { Literal::FALSE }
    }

    fn wait_for(&self, signal: u32, stack: &mut Vec<u32>) {
        if self.state.literals[signal as usize].is_none() {
            stack.push(signal);
        }
    }

    /// The literal of a node whose operands are known.
    fn node(&mut self, index: usize, node: Node) -> Literal {
        self.state.visited.push(index as u32);
        let mut value = self.xag.gate(node.gate, self.known(node.a), self.known(node.b));
        let mut site = self.state.first_site[index];
        while site != NONE {
            value = self.choose(value, self.sites[site as usize]);
            site = self.next_site[site as usize];
        }
        value
    }

    /// `value`, but for the bits of a trial the sixteen functions of the operands that it tries.
    fn choose(&mut self, value: Literal, site: Site) -> Literal {
        let (a, b) = (self.known(site.a), self.known(site.b));
        let plane = |i: usize| Literal::input(self.rule.inputs() + i);
        let planes: [Literal; 4] = std::array::from_fn(plane);
        let trial = plane(TRIAL_PLANE + site.trial);
        // Row 0 of a truth table is for (1, 1), row 1 for (1, 0), row 2 for (0, 1), row 3 for (0, 0).
        let with_a = self.either(b, planes[0], planes[1]);
        let without_a = self.either(b, planes[2], planes[3]);
        let tried = self.either(a, with_a, without_a);
        self.either(trial, tried, value)
    }

    /// `yes` where `condition` holds, else `no`.
    fn either(&mut self, condition: Literal, yes: Literal, no: Literal) -> Literal {
        let differ = self.xag.gate(Gate::XOR, yes, no);
        let change = self.xag.gate(Gate::AND, condition, differ);
        self.xag.gate(Gate::XOR, no, change)
    }
}
