use super::*;
use crate::arbitrary;
use crate::circuit::{Circuit, Node};
use crate::gate::Gate;
use crate::naive::naive_step_masked;
use crate::{Automaton, Boundary, Grid};
use proptest::prelude::*;

/// The number of wrong bits of one automaton, by the reference implementation.
fn reference_wrong(automaton: &Automaton, task: &SimulationTask<'_>) -> u32 {
    let mut grid = task.start.clone();
    let mut wrong = 0;
    let all = vec![vec![u64::MAX; grid.words_per_sample()]];
    let fires = if task.fires.is_empty() { &all } else { task.fires };
    for step in 0..task.steps + task.stay {
        grid = naive_step_masked(automaton, &grid, &fires[step % fires.len()]).unwrap();
        if step + 1 == task.steps || step + 1 == task.steps + task.stay {
            wrong += grid.difference(task.target, task.target.channels()).unwrap() as u32;
        }
    }
    wrong
}

/// The automaton of one trial and function.
fn varied(automaton: &Automaton, sites: &[Site], trial: usize, function: usize) -> Automaton {
    let mut nodes = automaton.circuit.nodes().to_vec();
    for site in sites.iter().filter(|site| site.trial == trial) {
        nodes[site.node] = Node::new(Gate::ALL[function], site.a, site.b);
    }
    let circuit =
        Circuit::new(automaton.circuit.inputs(), nodes, automaton.circuit.outputs().to_vec()).unwrap();
    Automaton { circuit, ..automaton.clone() }
}

/// Sites at random nodes, at most one of a trial at each node.
fn sites(automaton: &Automaton, choices: &[(usize, usize, u32, u32)]) -> Vec<Site> {
    let (inputs, nodes) = (automaton.circuit.inputs(), automaton.circuit.nodes().len());
    let mut sites: Vec<Site> = Vec::new();
    for &(trial, node, a, b) in choices.iter().filter(|_| nodes > 0) {
        let node = node % nodes;
        let before = (inputs + node) as u32;
        if sites.iter().all(|site| (site.trial, site.node) != (trial, node)) {
            sites.push(Site { trial, node, a: a % before, b: b % before });
        }
    }
    sites
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn every_lane_is_the_automaton_with_its_change(
        (automaton, grid, masks) in arbitrary::situation(),
        choices in prop::collection::vec((0usize..TRIALS, any::<usize>(), any::<u32>(), any::<u32>()), 0..6),
        asynchronous: bool,
        observed in 1usize..4,
        stay in 0usize..3,
    ) {
        let observed = observed.min(automaton.channels);
        let target = Grid::new(grid.samples(), grid.height(), grid.width(), observed).unwrap();
        let fires = if asynchronous { &masks[..] } else { &[] };
        let task = SimulationTask { start: &grid, target: &target, boundary: automaton.boundary, steps: 2, stay, fires };
        let sites = sites(&automaton, &choices);
        let grids = Grids::new(&task).unwrap();
        let wrong = Variants::new().wrong(&Rule::new(&automaton), &sites, &grids).unwrap();
        for (lane, wrong) in wrong.into_iter().enumerate() {
            let automaton = varied(&automaton, &sites, lane / FUNCTIONS, lane % FUNCTIONS);
            prop_assert_eq!(wrong, reference_wrong(&automaton, &task), "lane {}", lane);
        }
    }
}

#[test]
fn copied_rows_are_equal_to_computed_rows() {
    // A single cell in the middle: few rows differ from the empty ones.
    for boundary in [Boundary::Torus, Boundary::Zeros] {
        let mut start = Grid::new(1, 30, 30, 1).unwrap();
        start.set(0, 0, 15, 15, true);
        let automaton = crate::rules::life(boundary);
        let task = SimulationTask { start: &start, target: &start, boundary, steps: 6, stay: 0, fires: &[] };
        let wrong = Variants::new().wrong(&Rule::new(&automaton), &[], &Grids::new(&task).unwrap()).unwrap();
        assert_eq!(wrong, [reference_wrong(&automaton, &task); LANES]);
    }
}

#[test]
fn buffers_are_reused_for_grids_and_rules_of_all_sizes() {
    let mut variants = Variants::new();
    for (size, channels) in [(5, 1), (9, 2), (5, 2), (5, 1), (9, 2)] {
        let automaton = arbitrary::large(channels, 50);
        let start = arbitrary::scattered(2, size, size, channels);
        let task = SimulationTask {
            start: &start,
            target: &start,
            boundary: automaton.boundary,
            steps: 3,
            stay: 1,
            fires: &[],
        };
        let grids = Grids::new(&task).unwrap();
        let sites = [Site { trial: 1, node: 7, a: 3, b: 8 }];
        let wrong = variants.wrong(&Rule::new(&automaton), &sites, &grids).unwrap();
        for lane in [0, 16, 22, 31, 63] {
            let automaton = varied(&automaton, &sites, lane / FUNCTIONS, lane % FUNCTIONS);
            assert_eq!(wrong[lane], reference_wrong(&automaton, &task), "lane {lane}");
        }
    }
}

#[test]
fn a_trial_may_change_any_number_of_nodes() {
    let automaton = arbitrary::large(2, 600);
    let start = arbitrary::scattered(1, 6, 6, 2);
    let task = SimulationTask {
        start: &start,
        target: &start,
        boundary: automaton.boundary,
        steps: 2,
        stay: 0,
        fires: &[],
    };
    let nodes = automaton.circuit.nodes();
    let site = |(node, trial)| Site { trial, node, a: nodes[node].a, b: nodes[node].b };
    let sites: Vec<Site> = (0..nodes.len()).zip((0..TRIALS).cycle()).map(site).collect();
    let wrong = Variants::new().wrong(&Rule::new(&automaton), &sites, &Grids::new(&task).unwrap()).unwrap();
    for lane in (0..LANES).step_by(5) {
        let automaton = varied(&automaton, &sites, lane / FUNCTIONS, lane % FUNCTIONS);
        assert_eq!(wrong[lane], reference_wrong(&automaton, &task), "lane {lane}");
    }
}

#[test]
fn operands_must_come_before_their_node() {
    let mut rule = Rule::new(&crate::rules::life(Boundary::Torus));
    let before = rule.clone();
    assert!(!rule.set(0, Node::new(Gate::AND, 9, 0)) && !rule.set(1000, Node::new(Gate::AND, 0, 0)));
    assert_eq!(rule, before);
    assert!(rule.set(0, Node::new(Gate::AND, 8, 0)));
    assert_eq!(rule.nodes()[0], Node::new(Gate::AND, 8, 0));
}

#[test]
fn grids_must_have_the_channels_of_the_rule() {
    let start = Grid::new(1, 3, 3, 2).unwrap();
    let task = SimulationTask {
        start: &start,
        target: &start,
        boundary: Boundary::Torus,
        steps: 1,
        stay: 0,
        fires: &[],
    };
    let rule = Rule::new(&crate::rules::life(Boundary::Torus));
    assert!(Variants::new().wrong(&rule, &[], &Grids::new(&task).unwrap()).is_err());
    let fires = [vec![0; 2]];
    assert!(Grids::new(&SimulationTask { fires: &fires, ..task }).is_err());
}
