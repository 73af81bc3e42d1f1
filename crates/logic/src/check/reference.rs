//! Reference implementation: enumerates all states of a tiny grid, with all choices of the cells that fire.

use super::{Counterexample, Order, Property, Question, Start};
use crate::grid::Grid;
use crate::naive::naive_step_masked;
use std::collections::HashSet;

/// A state as a number, and for each cell the steps since it last fired.
type Node = (usize, Vec<usize>);

struct Explorer<'a> {
    question: &'a Question,
    /// `next[mask][state]`: the state after a step in which the cells of the mask fire.
    next: Vec<Vec<usize>>,
    right: Vec<bool>,
}

/// Returns whether the property of a question holds.
pub fn holds(question: &Question) -> bool {
    let explorer = Explorer::new(question);
    let mut nodes = explorer.starts();
    match question.property {
        Property::Reaches { within } => {
            nodes.retain(|node| !explorer.right[node.0]);
            for _ in 0..within {
                nodes = explorer.successors(&nodes);
                nodes.retain(|node| !explorer.right[node.0]);
            }
            nodes.is_empty()
        }
        Property::Stays { from } => {
            for _ in 0..from {
                nodes = explorer.successors(&nodes);
            }
            explorer.reachable(nodes).iter().all(|node| explorer.right[node.0])
        }
        Property::Attracts => {
            let wrong = |node: &&Node| !explorer.right[node.0];
            let reachable = explorer.reachable(nodes);
            let recurs = |node: &Node| {
                let later = explorer.successors(&HashSet::from([node.clone()]));
                explorer.reachable(later).contains(node)
            };
            !reachable.iter().filter(wrong).any(recurs)
        }
    }
}

/// Returns whether a counterexample begins in a start state, and its cells fire as the order demands.
pub fn is_run(question: &Question, found: &Counterexample) -> bool {
    let cells = question.target.cells();
    let fires = |step: &Vec<u64>, cell: usize| step[0] >> cell & 1 == 1;
    let is_allowed = match question.order {
        Order::Synchronous => found.fires.is_empty(),
        Order::Any { window: None } => true,
        Order::Any { window: Some(window) } => found
            .fires
            .windows(window)
            .all(|steps| (0..cells).all(|cell| steps.iter().any(|step| fires(step, cell)))),
    };
    let start = number(&found.start);
    is_allowed && Explorer::new(question).starts().iter().any(|(state, _)| *state == start)
}

impl<'a> Explorer<'a> {
    fn new(question: &'a Question) -> Explorer<'a> {
        let (cells, channels) = (question.target.cells(), question.automaton.channels);
        let states = 1usize << (cells * channels);
        let masks = match question.order {
            Order::Synchronous => vec![(1u64 << cells) - 1],
            Order::Any { .. } => (0..1u64 << cells).collect(),
        };
        let step = |mask: u64, state: usize| {
            number(&naive_step_masked(&question.automaton, &grid(question, state), &[mask]).unwrap())
        };
        let next = masks.iter().map(|&mask| (0..states).map(|state| step(mask, state)).collect()).collect();
        let observed = question.target.channels();
        let is_right = |state| grid(question, state).difference(&question.target, observed).unwrap() == 0;
        Explorer { question, next, right: (0..states).map(is_right).collect() }
    }

    fn starts(&self) -> HashSet<Node> {
        let cells = self.question.target.cells();
        let is_start = |state: &usize| {
            let Some(start) = self.question.start.grid() else { return true };
            let found = grid(self.question, *state);
            let (width, channels) = (start.width(), start.channels());
            let is_damaged = |&cell: &usize| {
                (0..channels).any(|c| {
                    found.get(0, c, cell / width, cell % width) != start.get(0, c, cell / width, cell % width)
                })
            };
            let damaged: Vec<usize> = (0..cells).filter(is_damaged).collect();
            match &self.question.start {
                Start::Any => true,
                Start::Grid(_) => damaged.is_empty(),
                Start::Damaged { cells, .. } => damaged.len() <= *cells,
                Start::Region { rows, columns, .. } => damaged
                    .iter()
                    .all(|cell| rows.contains(&(cell / width)) && columns.contains(&(cell % width))),
            }
        };
        (0..self.right.len()).filter(is_start).map(|state| (state, vec![0; cells])).collect()
    }

    fn successors(&self, nodes: &HashSet<Node>) -> HashSet<Node> {
        nodes.iter().flat_map(|node| self.after(node)).collect()
    }

    fn after(&self, (state, ages): &Node) -> Vec<Node> {
        let Order::Any { window } = self.question.order else {
            return vec![(self.next[0][*state], ages.clone())];
        };
        let after = |mask: usize| {
            let age = |(cell, age): (usize, &usize)| match window {
                Some(window) if mask >> cell & 1 == 0 => (age + 1 < window).then_some(age + 1),
                _ => Some(0),
            };
            let ages: Option<Vec<usize>> = ages.iter().enumerate().map(age).collect();
            Some((self.next[mask][*state], ages?))
        };
        (0..self.next.len()).filter_map(after).collect()
    }

    fn reachable(&self, mut frontier: HashSet<Node>) -> HashSet<Node> {
        let mut seen = frontier.clone();
        while !frontier.is_empty() {
            frontier = self.successors(&frontier).difference(&seen).cloned().collect();
            seen.extend(frontier.iter().cloned());
        }
        seen
    }
}

/// The state with a number: bit `cell * channels + channel`.
pub fn grid(question: &Question, state: usize) -> Grid {
    let (height, width) = (question.target.height(), question.target.width());
    let channels = question.automaton.channels;
    let mut grid = Grid::new(1, height, width, channels).unwrap();
    for bit in 0..grid.cells() * channels {
        let (cell, channel) = (bit / channels, bit % channels);
        grid.set(0, channel, cell / width, cell % width, state >> bit & 1 == 1);
    }
    grid
}

fn number(grid: &Grid) -> usize {
    let (width, channels) = (grid.width(), grid.channels());
    let bit = |bit: usize| {
        let (cell, channel) = (bit / channels, bit % channels);
        usize::from(grid.get(0, channel, cell / width, cell % width)) << bit
    };
    (0..grid.cells() * channels).map(bit).sum()
}
