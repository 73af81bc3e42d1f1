//! Test cases: circuits and automata of every shape.

use gatework_logic::formats::{self, Format, Options};
use gatework_logic::{Automaton, Boundary, Circuit, Document, Gate, Grid, Node, rules};

/// Pseudorandom numbers (splitmix64).
pub struct Numbers(pub u64);

impl Numbers {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, end: usize) -> u32 {
        (self.next() % end.max(1) as u64) as u32
    }
}

/// A circuit of random gates, which read mostly the last few signals if it is deep.
pub fn circuit(numbers: &mut Numbers, inputs: usize, gates: usize, outputs: usize, deep: bool) -> Circuit {
    let mut nodes: Vec<Node> = Vec::new();
    for i in 0..gates {
        let end = inputs + i;
        let gate = Gate::ALL[numbers.below(16) as usize];
        let gate = if end == 0 && !gate.is_constant() { Gate::TRUE } else { gate };
        let mut operand = |near: usize| {
            let back = numbers.below(if deep { near.min(end) } else { end });
            end.saturating_sub(1) as u32 - back.min(end.saturating_sub(1) as u32)
        };
        nodes.push(Node::new(gate, operand(2), operand(9)));
    }
    let signals = inputs + gates;
    let outputs = (0..if signals > 0 { outputs } else { 0 })
        .map(|i| if i % 2 == 0 { numbers.below(signals) } else { (signals - 1 - i % signals) as u32 })
        .collect();
    Circuit::new(inputs, nodes, outputs).unwrap()
}

/// Circuits of every shape, with names for messages.
pub fn circuits() -> Vec<(String, Circuit)> {
    let mut numbers = Numbers(1);
    let mut list: Vec<(String, Circuit)> = Vec::new();
    let mut add = |name: &str, circuit: Circuit| list.push((name.into(), circuit));
    add("no gates", Circuit::new(3, vec![], vec![2, 0, 0]).unwrap());
    add("one input", circuit(&mut numbers, 1, 6, 3, false));
    let constants = vec![Node::new(Gate::TRUE, 0, 0), Node::new(Gate::FALSE, 0, 0)];
    add("constants", Circuit::new(2, constants, vec![2, 3, 1]).unwrap());
    add("every gate", {
        let nodes: Vec<Node> = Gate::ALL.iter().map(|&gate| Node::new(gate, 0, 1)).collect();
        Circuit::new(2, nodes, (2..18).collect()).unwrap()
    });
    let hard = ["carry in", "module", "a", "a", "\u{e9}t\u{e9}", "n7", "", "9", "in", "*/", "// \\"];
    let names = hard.iter().map(|name| (*name).to_string()).collect();
    let named = circuit(&mut numbers, hard.len(), 40, 3, false);
    add("hard names", named.with_names(names, ["out", "a", "x y"].map(String::from).to_vec()).unwrap());
    add("deep", circuit(&mut numbers, 6, 1500, 4, true));
    add("wide", circuit(&mut numbers, 300, 900, 200, false));
    for i in 0..6 {
        add(&format!("random {i}"), circuit(&mut numbers, 2 + 3 * i, 20 + 30 * i, 1 + i, i % 2 == 0));
    }
    list
}

/// Automata with both boundaries, including one without gates and one that is constant.
pub fn automata() -> Vec<(String, Automaton)> {
    let mut numbers = Numbers(2);
    let mut list = vec![
        ("life".to_string(), life()),
        (
            "copies its neighbour".to_string(),
            Automaton::new(1, Boundary::Zeros, Circuit::new(9, vec![], vec![2]).unwrap()).unwrap(),
        ),
        (
            "constant".to_string(),
            Automaton::new(
                1,
                Boundary::Torus,
                Circuit::new(9, vec![Node::new(Gate::TRUE, 0, 0)], vec![9]).unwrap(),
            )
            .unwrap(),
        ),
    ];
    for i in 0..5usize {
        let channels = 1 + i % 3;
        let circuit = circuit(&mut numbers, 9 * channels, 25 + 20 * i, channels, i % 2 == 1);
        let boundary = if i % 2 == 0 { Boundary::Torus } else { Boundary::Zeros };
        list.push((format!("random {i}"), Automaton::new(channels, boundary, circuit).unwrap()));
    }
    list
}

pub fn life() -> Automaton {
    rules::life(Boundary::Torus)
}

pub fn written(document: &Document, format: &str) -> Vec<u8> {
    written_as("dut", document, format)
}

pub fn written_as(name: &str, document: &Document, format: &str) -> Vec<u8> {
    let options = Options { name: Some(name.into()), grid: None, ..Options::default() };
    formats::write(document, Format::named(format).unwrap(), &options).unwrap()
}

/// All circuits, and the rules of all automata.
pub fn documents() -> Vec<(String, Document)> {
    let circuits = circuits().into_iter().map(|(name, circuit)| (name, circuit.into()));
    circuits.chain(automata().into_iter().map(|(name, automaton)| (name, automaton.into()))).collect()
}

/// A grid of random bits.
pub fn scattered(numbers: &mut Numbers, automaton: &Automaton, [height, width]: [usize; 2]) -> Grid {
    let mut grid = Grid::new(1, height, width, automaton.channels).unwrap();
    for place in 0..height * width * automaton.channels {
        let (cell, channel) = (place / automaton.channels, place % automaton.channels);
        grid.set(0, channel, cell / width, cell % width, numbers.next() & 1 == 1);
    }
    grid
}

/// A circuit that is exported as several functions.
pub fn long() -> (String, Document) {
    let circuit = circuit(&mut Numbers(6), 40, 12_000, 60, false);
    // Every seventh gate is an output, so most gates are live.
    let outputs = (40..circuit.signals() as u32).rev().step_by(7).collect();
    let circuit = Circuit::new(40, circuit.nodes().to_vec(), outputs).unwrap();
    ("long".into(), circuit.into())
}
