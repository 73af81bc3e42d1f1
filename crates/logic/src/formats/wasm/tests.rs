//! Modules, run by an interpreter and compared with the reference implementations.

use super::*;
use crate::arbitrary;
use crate::automaton::Boundary;
use crate::circuit::Node;
use crate::gate::Gate;
use crate::grid::Grid;
use crate::naive::{naive_step, naive_step_masked};
use crate::rules;
use proptest::prelude::*;
use wasmi::{Engine, Instance, Linker, Memory, Module, Store};

/// An instance of a module.
struct Machine {
    store: Store<()>,
    instance: Instance,
    memory: Memory,
}

impl Machine {
    fn new(module: &[u8]) -> Machine {
        let engine = Engine::default();
        let module = Module::new(&engine, module).unwrap();
        let mut store = Store::new(&engine, ());
        let instance = Linker::new(&engine).instantiate_and_start(&mut store, &module).unwrap();
        let memory = instance.get_memory(&store, "memory").unwrap();
        Machine { store, instance, memory }
    }

    /// Calls a function with a result.
    fn ask<P: wasmi::WasmParams>(&mut self, name: &str, arguments: P) -> i32 {
        let function = self.instance.get_typed_func::<P, i32>(&self.store, name).unwrap();
        function.call(&mut self.store, arguments).unwrap()
    }

    /// Calls a function without a result.
    fn tell<P: wasmi::WasmParams>(&mut self, name: &str, arguments: P) {
        let function = self.instance.get_typed_func::<P, ()>(&self.store, name).unwrap();
        function.call(&mut self.store, arguments).unwrap();
    }

    fn bit(&self, address: i32, bit: usize) -> bool {
        self.memory.data(&self.store)[address as u32 as usize + bit / 8] >> (bit % 8) & 1 == 1
    }

    fn set(&mut self, address: i32, bit: usize, value: bool) {
        let byte = &mut self.memory.data_mut(&mut self.store)[address as u32 as usize + bit / 8];
        *byte = *byte & !(1 << (bit % 8)) | u8::from(value) << (bit % 8);
    }

    /// Writes a grid.
    fn write(&mut self, grid: &Grid) {
        let row_bytes = self.ask("row_bytes", ()) as usize;
        for channel in 0..grid.channels() {
            let plane = self.ask("plane", channel as i32);
            for cell in (0..grid.cells()).filter(|_| plane != 0) {
                let (y, x) = (cell / grid.width(), cell % grid.width());
                self.set(plane, y * row_bytes * 8 + x, grid.get(0, channel, y, x));
            }
        }
    }

    /// The first cell (channel, row, column) of the leading channels that differs from a grid.
    fn difference(&mut self, grid: &Grid, channels: usize) -> Option<(usize, usize, usize)> {
        let row_bytes = self.ask("row_bytes", ()) as usize;
        for channel in 0..channels {
            let plane = self.ask("plane", channel as i32);
            for cell in 0..grid.cells() {
                let (y, x) = (cell / grid.width(), cell % grid.width());
                if self.bit(plane, y * row_bytes * 8 + x) != grid.get(0, channel, y, x) {
                    return Some((channel, y, x));
                }
            }
        }
        None
    }
}

/// The first output bit in which the module of a circuit differs from its evaluation, as (output, sample).
fn first_difference(circuit: &Circuit, samples: &[Vec<bool>]) -> Option<(usize, usize)> {
    let mut machine = Machine::new(&circuit_to_wasm(circuit).unwrap());
    assert_eq!(machine.ask("init", samples.len() as i32), 1);
    for input in 0..circuit.inputs() {
        let address = machine.ask("input", input as i32);
        for (i, sample) in samples.iter().enumerate() {
            machine.set(address, i, sample[input]);
        }
    }
    machine.tell("run", ());
    let addresses: Vec<i32> = (0..circuit.outputs().len()).map(|o| machine.ask("output", o as i32)).collect();
    for (i, sample) in samples.iter().enumerate() {
        for (o, bit) in circuit.eval(sample).unwrap().into_iter().enumerate() {
            if machine.bit(addresses[o], i) != bit {
                return Some((o, i));
            }
        }
    }
    None
}

/// The first sample of a grid.
fn first_sample(grid: &Grid) -> Grid {
    let mut sample = Grid::new(1, grid.height(), grid.width(), grid.channels()).unwrap();
    for channel in 0..grid.channels() {
        let words = grid.words_per_sample();
        sample.plane_mut(channel).copy_from_slice(&grid.plane(channel)[..words]);
    }
    sample
}

/// The reference implementation of the random number generator.
mod reference {
    pub fn mix(mut x: u32) -> u32 {
        x = (x ^ x >> 16).wrapping_mul(0x85eb_ca6b);
        x = (x ^ x >> 13).wrapping_mul(0xc2b2_ae35);
        x ^ x >> 16
    }

    /// Whether a cell updates: the number formed by its bits in sixteen random words is below the rate.
    pub fn fires(seed: u32, step: u32, rate: u32, y: usize, x: usize) -> bool {
        let key = mix(mix(mix(seed).wrapping_add(step)).wrapping_add(y as u32));
        let word = |bit: u32| mix(key.wrapping_add(16 * (x as u32 / 32) + bit));
        let number: u32 = (0..16).map(|bit| (word(bit) >> (x % 32) & 1 ^ 1) << bit).sum();
        number < rate
    }
}

fn fire_mask(grid: &Grid, seed: u32, step: u32, rate: u32) -> Vec<u64> {
    let mut mask = vec![0; grid.words_per_sample()];
    for cell in 0..grid.cells() {
        let fires = reference::fires(seed, step, rate, cell / grid.width(), cell % grid.width());
        mask[cell / 64] |= u64::from(fires) << (cell % 64);
    }
    mask
}

#[test]
fn life_on_grids_around_the_width_of_a_block() {
    for boundary in [Boundary::Torus, Boundary::Zeros] {
        let life = rules::life(boundary);
        let mut machine = Machine::new(&automaton_to_wasm(&life, 1).unwrap());
        for (height, width) in [(1, 1), (1, 2), (2, 1), (3, 7), (5, 8), (4, 63), (4, 64), (3, 65), (2, 127)]
            .into_iter()
            .chain([(3, 128), (1, 128), (3, 129), (2, 255), (2, 256), (5, 257), (200, 3)])
        {
            let mut grid = arbitrary::scattered(1, height, width, 1);
            assert_eq!(machine.ask("init", (height as i32, width as i32)), 1);
            machine.write(&grid);
            for step in 1..=4 {
                grid = naive_step(&life, &grid).unwrap();
                machine.tell("step", 1);
                assert_eq!(machine.difference(&grid, 1), None, "{boundary:?} {height}x{width}, step {step}");
            }
        }
    }
}

/// An automaton of gates that each read the gate before and one far before, so that all are live, and many across the end
/// of a part.
fn entangled(channels: usize, gates: usize) -> Automaton {
    let inputs = 9 * channels;
    let node = |i: usize| {
        let (end, scatter) = (inputs + i, i.wrapping_mul(0x9e37_79b9) >> 7);
        let gate = [Gate::XOR, Gate::NAND, Gate::XNOR, Gate::A_OR_NOT_B, Gate::NOR, Gate::XOR][scatter % 6];
        Node::new(gate, end as u32 - 1, (end - 2 - scatter % (end - 1).min(5000)) as u32)
    };
    let outputs = (0..channels).map(|channel| (inputs + gates - 1 - 9 * channel) as u32).collect();
    let circuit = Circuit::new(inputs, (0..gates).map(node).collect(), outputs).unwrap();
    Automaton::new(channels, Boundary::Torus, circuit).unwrap()
}

#[test]
fn a_large_circuit_is_split_into_parts() {
    let automaton = entangled(3, 3 * body::PART);
    let gates = automaton.circuit.simplify().nodes().len();
    assert!(gates > 2 * body::PART, "{gates} gates are too few for this test");
    let mut grid = arbitrary::scattered(1, 3, 140, 3);
    let mut machine = Machine::new(&automaton_to_wasm(&automaton, 3).unwrap());
    assert_eq!(machine.ask("init", (3, 140)), 1);
    machine.write(&grid);
    for _ in 0..2 {
        grid = naive_step(&automaton, &grid).unwrap();
    }
    assert!((0..3).all(|channel| (1..420).contains(&grid.count_ones(0, channel))), "a constant grid");
    machine.tell("step", 2);
    assert_eq!(machine.difference(&grid, 3), None);

    let samples: Vec<Vec<bool>> =
        (0..130).map(|i| (0..27).map(|k| (i * 7 + k * k) % 5 < 2).collect()).collect();
    assert_eq!(first_difference(&automaton.circuit, &samples), None);
}

#[test]
fn dead_channels_have_no_plane() {
    // Channel 0 copies channel 2; nothing observed reads channel 1.
    let circuit = Circuit::new(27, vec![], vec![18, 10, 22]).unwrap();
    let automaton = Automaton::new(3, Boundary::Torus, circuit).unwrap();
    let mut machine = Machine::new(&automaton_to_wasm(&automaton, 1).unwrap());
    assert_eq!(machine.ask("plane", 0), 0, "there is no grid yet");
    assert_eq!(machine.ask("init", (5, 5)), 1);
    let planes = [0, 1, 2, 3, -1].map(|channel| machine.ask("plane", channel) != 0);
    assert_eq!(planes, [true, false, true, false, false]);
}

#[test]
fn impossible_sizes_are_errors_and_leave_no_grid() {
    let mut machine = Machine::new(&automaton_to_wasm(&rules::life(Boundary::Torus), 1).unwrap());
    for (height, width) in [(0, 5), (5, 0), (-1, 5), (5, 40_000), (i32::MIN, 1)] {
        assert_eq!(machine.ask("init", (height, width)), 0, "{height}x{width}");
        machine.tell("step", 3);
        assert_eq!(machine.ask("plane", 0), 0);
    }
    let wide = Circuit::new(3000, vec![], vec![0; 100]).unwrap();
    let mut machine = Machine::new(&circuit_to_wasm(&wide).unwrap());
    assert_eq!(machine.ask("init", -1), 0);
    machine.tell("run", ());
    assert_eq!((machine.ask("input", 3000), machine.ask("output", 100)), (0, 0));
}

#[test]
fn the_rate_is_the_fraction_of_cells_that_update() {
    // Every cell that updates becomes 1.
    let circuit = Circuit::new(9, vec![Node::new(Gate::TRUE, 0, 0)], vec![9]).unwrap();
    let automaton = Automaton::new(1, Boundary::Torus, circuit).unwrap();
    let mut machine = Machine::new(&automaton_to_wasm(&automaton, 1).unwrap());
    for rate in [0, 1, 0x4000, 0x999a, 0xffff, 0x10000] {
        machine.ask("init", (256, 256));
        machine.tell("fire", (rate, 7));
        machine.tell("step", 1);
        let (plane, row_bytes) = (machine.ask("plane", 0), machine.ask("row_bytes", ()) as usize);
        let ones = (0..1 << 16).filter(|cell| machine.bit(plane, cell / 256 * row_bytes * 8 + cell % 256));
        // Five standard deviations of a binomial distribution are at most 640.
        let (ones, deviation) = (ones.count() as i32, if rate % 0x10000 == 0 { 0 } else { 640 });
        assert!((ones - rate).abs() <= deviation, "{ones} for a rate of {rate}");
    }
}

#[test]
fn circuits_that_cannot_be_modules_are_errors() {
    assert_eq!(check_size(MAX_OPERATIONS), Ok(()));
    assert!(check_size(MAX_OPERATIONS + 1).unwrap_err().to_string().ends_with("minimise it first"));
    let wide = Circuit::new(1 << 24, vec![], vec![0]).unwrap();
    assert_eq!(circuit_to_wasm(&wide), Err(WasmError::TooLarge { operations: (1 << 24) + 1 }));
    let broken = Automaton { channels: 2, ..rules::life(Boundary::Torus) };
    assert!(matches!(automaton_to_wasm(&broken, 1), Err(WasmError::Automaton(_))));
}

/// A circuit and samples for it.
fn circuit_and_samples() -> impl Strategy<Value = (Circuit, Vec<Vec<bool>>)> {
    let samples = prop_oneof![Just(0usize), Just(1), 2usize..20, 120usize..140, Just(256)];
    (arbitrary::circuit(0..=20, 200), samples).prop_flat_map(|(circuit, samples)| {
        let sample = prop::collection::vec(any::<bool>(), circuit.inputs());
        (Just(circuit), prop::collection::vec(sample, samples))
    })
}

proptest! {
    #[test]
    fn circuits_equal_the_reference((circuit, samples) in circuit_and_samples()) {
        prop_assert_eq!(first_difference(&circuit, &samples), None);
    }

    #[test]
    fn automata_equal_the_reference(
        (automaton, grid, _) in arbitrary::situation(),
        observed in 1usize..5,
        rate in prop_oneof![Just(0x1_0000u32), 0u32..=0x1_0000],
        seed in any::<u32>(),
    ) {
        let observed = observed.min(automaton.channels);
        let mut grid = first_sample(&grid);
        let mut machine = Machine::new(&automaton_to_wasm(&automaton, observed).unwrap());
        prop_assert_eq!(machine.ask("init", (grid.height() as i32, grid.width() as i32)), 1);
        machine.write(&grid);
        machine.tell("fire", (rate as i32, seed as i32));
        for (step, steps) in [(0, 1), (1, 2)] {
            for step in step..step + steps {
                grid = naive_step_masked(&automaton, &grid, &fire_mask(&grid, seed, step, rate)).unwrap();
            }
            machine.tell("step", steps as i32);
            prop_assert_eq!(machine.difference(&grid, observed), None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn classifiers_give_the_scores_of_the_reference(
        classifier in arbitrary::classifier(),
        values in prop::collection::vec(prop_oneof![-4.0f32..4.0, 0.0f32..256.0, Just(1.0), Just(f32::NAN)], 20),
    ) {
        let row = &values[..classifier.encoder().features().len()];
        let mut machine = Machine::new(&classifier_to_wasm(&classifier).unwrap());
        let address = machine.ask("row", ()) as usize;
        for (i, value) in row.iter().enumerate() {
            let memory = machine.memory.data_mut(&mut machine.store);
            memory[address + 4 * i..][..4].copy_from_slice(&value.to_le_bytes());
        }
        // The second call must not see the scores of the first one.
        for _ in 0..2 {
            prop_assert_eq!(machine.ask("predict", ()) as usize, classifier.predict(row).unwrap());
        }
        let address = machine.ask("scores", ()) as usize;
        let score = |class: usize| {
            let bytes = &machine.memory.data(&machine.store)[address + 4 * class..][..4];
            u32::from_le_bytes(bytes.try_into().unwrap())
        };
        let scores: Vec<u32> = (0..classifier.head().classes().len()).map(score).collect();
        prop_assert_eq!(scores, classifier.scores(row).unwrap());
    }
}
