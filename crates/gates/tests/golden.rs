//! Soft automata against the numbers of the reference implementation: losses, gradients, optimiser steps and
//! hard states. `GATEWORK_GOLDEN` names another folder that holds `automata/*.safetensors`.

use std::path::PathBuf;

use gatework_gates::automata::cells::{Planner, Shape};
use gatework_gates::automata::model::{FirstLayer, Model, ModelShape};
use gatework_gates::automata::rollout::{Goal, GridGroup, Rollout};
use gatework_gates::kernel::{Layer, Wires};
use gatework_gates::soft::Wiring;
use gatework_logic::{Boundary, Grid, Simulator};
use gatework_train::optim::{Clip, Optimizer};
use safetensors::SafeTensors;

struct Case<'a> {
    file: SafeTensors<'a>,
    metadata: std::collections::HashMap<String, String>,
}

impl Case<'_> {
    fn number(&self, key: &str) -> f64 {
        self.metadata[key].parse().unwrap_or_else(|_| panic!("{key} = {}", self.metadata[key]))
    }

    fn size(&self, key: &str) -> usize {
        self.number(key) as usize
    }

    fn flag(&self, key: &str) -> bool {
        self.metadata[key].eq_ignore_ascii_case("true")
    }

    fn sizes(&self, key: &str) -> Vec<usize> {
        serde_json::from_str(&self.metadata[key]).unwrap()
    }

    fn floats(&self, name: &str) -> Vec<f32> {
        let tensor = self.file.tensor(name).unwrap_or_else(|_| panic!("{name} is missing"));
        tensor.data().as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect()
    }

    fn wires(&self, network: &str, sizes: &[usize]) -> Wires {
        let read = |name: String| {
            let tensor = self.file.tensor(&name).unwrap_or_else(|_| panic!("{name} is missing"));
            tensor.data().as_chunks().0.iter().map(|&b| u32::from_le_bytes(b)).collect()
        };
        let layer = |i| Layer {
            a: read(format!("wires.{network}.{i}.a")),
            b: read(format!("wires.{network}.{i}.b")),
        };
        Wires { inputs: sizes[0], layers: (0..sizes.len() - 1).map(layer).collect() }
    }

    fn model(&self) -> Model {
        let boundary = if self.flag("periodic") { Boundary::Torus } else { Boundary::Zeros };
        let (perceive, update) = (self.sizes("perceive_layers"), self.sizes("update_layers"));
        let wires = (self.wires("perceive", &perceive), self.wires("update", &update));
        let shape = ModelShape {
            channels: self.size("channels"),
            boundary,
            kernels: self.size("n_kernels"),
            perceive,
            first: FirstLayer::Moore,
            update,
            wiring: Wiring::Unique,
        };
        Model::with_wires(shape, wires.0, wires.1)
    }

    /// All tensors of a kind, in the order of the arena.
    fn arena(&self, model: &Model, prefix: &str) -> Vec<f32> {
        model.params.tensors().iter().flat_map(|t| self.floats(&format!("{prefix}.{}", t.name))).collect()
    }
}

fn check(name: &str, bytes: &[u8]) {
    let (_, header) = SafeTensors::read_metadata(bytes).unwrap();
    let case =
        Case { file: SafeTensors::deserialize(bytes).unwrap(), metadata: header.metadata().clone().unwrap() };
    let mut model = case.model();
    let (channels, loss_channels) = (case.size("channels"), case.size("loss_channels"));
    let shape = Shape {
        samples: case.size("batch"),
        height: case.size("height"),
        width: case.size("width"),
        boundary: model.shape.boundary,
    };
    let steps = case.size("steps");
    let masks: Option<Vec<Vec<bool>>> = case.flag("asynchronous").then(|| {
        case.floats("masks")
            .chunks_exact(shape.cells())
            .map(|m| m.iter().map(|&m| m != 0.0).collect())
            .collect()
    });
    let plan = Planner::new(shape).separate(steps, masks.as_deref());
    let mut rollout = Rollout::new(&model, loss_channels).unwrap();
    let stride = rollout.stride();
    let x = case.floats("x");
    let mut start = vec![0.0; shape.total() * stride];
    for (to, from) in start.chunks_exact_mut(stride).zip(x.chunks_exact(channels)) {
        to[..channels].copy_from_slice(from);
    }
    let y = case.floats("y");
    let target: Vec<f32> =
        y.chunks_exact(channels).flat_map(|cell| &cell[..loss_channels]).copied().collect();
    let goal = Goal::new(&plan, loss_channels, &target);

    model.params.values = case.arena(&model, "params.0");
    rollout.set_logits(&model.params.values);
    let last = rollout.forward(&plan, &start).to_vec();
    assert_eq!(case.floats("soft.final").len(), shape.total() * channels, "{name}: soft.final");
    for (cell, expected) in plan.last.iter().zip(case.floats("soft.final").chunks_exact(channels)) {
        let ours = &last[*cell as usize * stride..][..channels];
        for (a, b) in ours.iter().zip(expected) {
            assert!((a - b).abs() < 1e-4, "{name}: soft state {a}, reference {b}");
        }
    }
    check_hard(name, &case, &model, shape, masks.as_deref());

    let optimizer = Optimizer::Adamw {
        beta1: case.number("beta1"),
        beta2: case.number("beta2"),
        epsilon: case.number("epsilon"),
        weight_decay: case.number("weight_decay"),
    };
    let mut state = optimizer.state(model.params.len());
    let losses = case.floats("soft.losses");
    assert!(!losses.is_empty(), "{name}: no losses to compare with");
    assert_eq!(losses.len(), case.size("optimizer_steps"), "{name}: a loss for each step");
    let clip = Some(Clip::Value(case.number("clip_value") as f32));
    for (step, &expected) in losses.iter().enumerate() {
        model.params.zero_grads();
        rollout.set_logits(&model.params.values);
        let group = GridGroup::new(&plan, &start, &goal);
        let (loss, _) = rollout.gradient(&[group], &mut model.params.grads);
        let off = (loss - f64::from(expected)).abs();
        assert!(
            off <= 1e-4 * f64::from(expected).abs(),
            "{name}: loss {step} is {loss}, reference {expected}"
        );
        if step == 0 {
            check_gradients(name, &case, &model);
        }
        let rate = case.number("learning_rate") as f32;
        let params = &mut model.params;
        optimizer.step(&mut state, &mut params.values, &params.grads, rate, clip);
        let expected = case.arena(&model, &format!("params.{}", step + 1));
        let off: Vec<f32> = model.params.values.iter().zip(&expected).map(|(a, b)| (a - b).abs()).collect();
        let near = off.iter().filter(|&&off| off <= 2e-3).count();
        assert!(near as f64 >= 0.999 * off.len() as f64, "{name}: {near} of {} parameters near", off.len());
        assert!(off.iter().all(|&off| off <= 1e-2), "{name}: a parameter is off after step {step}");
    }
}

fn check_gradients(name: &str, case: &Case<'_>, model: &Model) {
    for tensor in model.params.tensors() {
        let expected = case.floats(&format!("grads.0.{}", tensor.name));
        assert_eq!(expected.len(), tensor.range.len(), "{name} {}", tensor.name);
        let largest = expected.iter().fold(0.0f32, |most, g| most.max(g.abs()));
        for (ours, theirs) in model.params.grads[tensor.range.clone()].iter().zip(&expected) {
            let off = (ours - theirs).abs();
            assert!(off <= 2e-3 * largest, "{name} {}: gradient {ours}, reference {theirs}", tensor.name);
        }
    }
}

fn check_hard(name: &str, case: &Case<'_>, model: &Model, shape: Shape, masks: Option<&[Vec<bool>]>) {
    let channels = model.shape.channels;
    let read = |values: &[f32]| {
        let mut grid = Grid::new(shape.samples, shape.height, shape.width, channels).unwrap();
        for (i, &value) in values.iter().enumerate() {
            let (cell, channel) = (i / channels, i % channels);
            let (sample, at) = (cell / shape.cells(), cell % shape.cells());
            grid.set(sample, channel, at / shape.width, at % shape.width, value != 0.0);
        }
        grid
    };
    let mut grid = read(&case.floats("x"));
    let mut simulator = Simulator::new(&model.harden(), channels).unwrap();
    for step in 0..case.size("steps") {
        match masks {
            None => simulator.step(&mut grid).unwrap(),
            Some(masks) => {
                let mut words = vec![0u64; grid.words_per_sample()];
                for (cell, _) in masks[step].iter().enumerate().filter(|(_, fires)| **fires) {
                    words[cell / 64] |= 1 << (cell % 64);
                }
                simulator.step_masked(&mut grid, &words).unwrap();
            }
        }
    }
    let expected = read(&case.floats("hard.final"));
    assert_eq!(grid.difference(&expected, channels).unwrap(), 0, "{name}: hard states differ");
    let target = read(&case.floats("y"));
    let loss = grid.difference(&target, case.size("loss_channels")).unwrap();
    assert_eq!(loss as f32, case.floats("hard.loss")[0], "{name}: hard loss");
}

#[test]
fn golden_automata_agree_with_the_reference() {
    let folder = gatework_test_support::golden!("automata", "");
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "safetensors"));
    paths.sort();
    assert!(!paths.is_empty(), "no *.safetensors in {}", folder.display());
    for path in paths {
        check(&path.display().to_string(), &std::fs::read(&path).unwrap());
    }
}
