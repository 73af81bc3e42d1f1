//! Parallel loops give the bits of sequential ones, and their chunks are disjoint.

use proptest::prelude::*;

use super::compile::{CompiledLoop, Pass};
use crate::DType;
use crate::arbitrary;
use crate::graph::{Graph, GraphError, Id, Window};
use crate::instruction::Instruction;
use crate::interpret::Value;
use crate::kernel::tests::cases;
use crate::ops::Reduction;
use crate::program::Program;
use crate::program::tests::{read, write};

/// The memory layout of an operand.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Contiguous,
    Transposed,
    EverySecond,
    BroadcastRow,
    BroadcastColumn,
    Overlapping,
}

const LAYOUTS: [Layout; 6] = [
    Layout::Contiguous,
    Layout::Transposed,
    Layout::EverySecond,
    Layout::BroadcastRow,
    Layout::BroadcastColumn,
    Layout::Overlapping,
];

/// An operand of `[blocks, rows, columns]`.
fn operand(
    g: &mut Graph,
    name: &str,
    dtype: DType,
    sizes: [usize; 3],
    layout: Layout,
) -> Result<Id, GraphError> {
    let [blocks, rows, columns] = sizes;
    match layout {
        Layout::Contiguous => g.input(name, dtype, &sizes),
        Layout::Transposed => {
            let x = g.input(name, dtype, &[columns, blocks, rows])?;
            g.permute(x, &[1, 2, 0])
        }
        Layout::EverySecond => {
            let x = g.input(name, dtype, &[blocks, rows, 2 * columns])?;
            g.slice_by(x, 2, 1, columns, 2)
        }
        Layout::BroadcastRow => {
            let x = g.input(name, dtype, &[columns])?;
            g.expand(x, &sizes)
        }
        Layout::BroadcastColumn => {
            let x = g.input(name, dtype, &[blocks, rows, 1])?;
            g.expand(x, &sizes)
        }
        Layout::Overlapping => {
            let x = g.input(name, dtype, &[blocks, rows + columns - 1])?;
            g.unfold(x, Window { size: columns, stride: 1, dilation: 1 })
        }
    }
}

/// What is computed from two operands.
#[derive(Clone, Copy, Debug)]
enum Body {
    Affine,
    TanhOfAffine,
    TanhOfDifference,
    TanhOfProductLess,
    TanhOfSum,
    TanhOfProduct,
}

const BODIES: [Body; 6] = [
    Body::Affine,
    Body::TanhOfAffine,
    Body::TanhOfDifference,
    Body::TanhOfProductLess,
    Body::TanhOfSum,
    Body::TanhOfProduct,
];

impl Body {
    fn build(self, g: &mut Graph, x: Id, y: Id) -> Result<Id, GraphError> {
        let cheap = match self {
            Body::TanhOfDifference => g.sub(x, y)?,
            Body::TanhOfSum => g.add(x, y)?,
            _ => g.mul(x, y)?,
        };
        match self {
            Body::Affine => g.add(cheap, y),
            Body::TanhOfAffine => {
                let sum = g.add(cheap, y)?;
                g.tanh(sum)
            }
            Body::TanhOfProductLess => {
                let less = g.sub(cheap, y)?;
                g.tanh(less)
            }
            _ => g.tanh(cheap),
        }
    }
}

/// A graph of one loop on two operands, whose result is stored, reduced, both, or folded.
fn looped(
    dtype: DType,
    sizes: [usize; 3],
    layouts: [Layout; 2],
    (body, end): (Body, &End),
    stored: bool,
) -> Result<Graph, GraphError> {
    let mut g = Graph::new();
    let x = operand(&mut g, "x", dtype, sizes, layouts[0])?;
    let y = operand(&mut g, "y", dtype, sizes, layouts[1])?;
    let z = body.build(&mut g, x, y)?;
    let result = match end {
        End::Store => z,
        End::Reduce(op, axes) => g.reduce(*op, z, axes)?,
        End::Fold => {
            let length = sizes[2] + 2 * (sizes[1] - 1);
            g.fold(z, Window { size: sizes[2], stride: 2, dilation: 1 }, length)?
        }
    };
    g.output("result", result)?;
    if stored {
        g.output("stored", z)?;
    }
    Ok(g)
}

#[derive(Clone, Debug)]
enum End {
    Store,
    Reduce(Reduction, Vec<usize>),
    Fold,
}

fn ends() -> impl Strategy<Value = End> {
    let op = prop::sample::select(vec![Reduction::Sum, Reduction::Sum, Reduction::Max, Reduction::Min]);
    let axes = prop::sample::select(vec![&[0, 1, 2][..], &[2], &[1, 2], &[0], &[0, 1], &[1], &[0, 2]]);
    prop_oneof![
        2 => Just(End::Store),
        6 => (op, axes).prop_map(|(op, axes)| End::Reduce(op, axes.to_vec())),
        1 => Just(End::Fold),
    ]
}

/// Sizes below and above the threshold for a second thread, in all proportions.
fn sizes() -> impl Strategy<Value = [usize; 3]> {
    prop_oneof![
        [1usize..4, 1usize..40, 1usize..1500],
        [1usize..4, 1usize..1500, 1usize..30],
        [1usize..300, 1usize..20, 1usize..40],
        [1usize..3, 1usize..3, 4000usize..30_000],
    ]
}

/// The results on a number of threads, and the number of threads that ran a loop.
fn on_threads(graph: &Graph, values: &[(String, Value)], threads: usize) -> (Vec<Vec<u64>>, usize) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    pool.install(|| {
        let mut runner = Program::new(graph).unwrap().runner();
        for (name, value) in values {
            write(&mut runner, name, value);
        }
        // Twice, so that the second run starts with used memory.
        runner.run();
        runner.run();
        let bits = |(name, id): &(String, Id)| {
            read(&runner, name, graph.dtype(*id)).iter().map(|x| x.to_bits()).collect()
        };
        let scratch = runner.scratch();
        let workers = [
            scratch.f32s.workers.len(),
            scratch.f64s.workers.len(),
            scratch.i32s.workers.len(),
            scratch.i64s.workers.len(),
        ];
        (graph.outputs().iter().map(bits).collect(), workers.into_iter().max().unwrap_or(0))
    })
}

fn loops(program: &Program) -> impl Iterator<Item = &CompiledLoop> {
    program.instructions().iter().filter_map(|instruction| match instruction {
        Instruction::Loop(body) => Some(body.compiled()),
        _ => None,
    })
}

/// The number of writes to every element of the arena.
fn writers(compiled: &CompiledLoop) -> Vec<usize> {
    let mut writers: Vec<usize> = Vec::new();
    for index in 0..compiled.chunks.count() {
        let chunk = compiled.chunks.chunk(index);
        let elements = chunk.rows.flat_map(|row| chunk.columns.clone().map(move |column| (row, column)));
        for ((row, column), (_, store)) in elements.flat_map(|e| compiled.stores.iter().map(move |s| (e, s)))
        {
            let mut place = store.offset + column * store.strides[compiled.sizes.len() - 1];
            let mut rest = row;
            for axis in (0..compiled.sizes.len() - 1).rev() {
                place += rest % compiled.sizes[axis] * store.strides[axis];
                rest /= compiled.sizes[axis];
            }
            writers.resize(writers.len().max(place + 1), 0);
            writers[place] += 1;
        }
    }
    writers
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn a_loop_has_the_same_bits_on_any_number_of_threads(
        dtype in prop::sample::select(vec![DType::F32, DType::F32, DType::F64, DType::I32]),
        sizes in sizes(),
        layouts in [prop::sample::select(&LAYOUTS[..]), prop::sample::select(&LAYOUTS[..])],
        body in prop::sample::select(&BODIES[..]),
        end in ends(),
        stored: bool,
        seed: u64,
    ) {
        let body = if dtype.is_float() { body } else { Body::Affine };
        // A fold has one loop for each element of a window.
        let sizes = if matches!(end, End::Fold) { [sizes[0], sizes[1], sizes[2].min(9)] } else { sizes };
        let graph = looped(dtype, sizes, layouts, (body, &end), stored).unwrap();
        let values = arbitrary::values(&graph, seed);
        let (one, alone) = on_threads(&graph, &values, 1);
        prop_assert_eq!(alone, 1);
        let program = Program::new(&graph).unwrap();
        let chunks = loops(&program).map(|compiled| compiled.chunks.count()).max().unwrap_or(0);
        for threads in [2, 3, 7] {
            let (more, workers) = on_threads(&graph, &values, threads);
            prop_assert_eq!(workers, threads.min(chunks));
            prop_assert_eq!(&more, &one, "{} threads\n{}", threads, program);
        }
        let right = graph.interpret(&arbitrary::named(&values)).unwrap();
        for (ours, right) in one.iter().zip(&right) {
            let right = right.to_f64();
            let scale = right.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
            for (ours, right) in ours.iter().zip(right) {
                let ours = f64::from_bits(*ours);
                prop_assert!((ours - right).abs() <= 1e-4 * scale, "{} for {}\n{}", ours, right, program);
            }
        }
        prop_assert!(loops(&program).all(|compiled| writers(compiled).iter().all(|&writers| writers < 2)));
    }

    /// In every plan the chunks of a loop are disjoint, so that every large loop is parallel.
    #[test]
    fn every_loop_can_be_split(graph in arbitrary::graph(&[DType::F32, DType::I64], 25)) {
        let program = Program::new(&graph).unwrap();
        prop_assert!(loops(&program).all(|compiled| compiled.sizes.contains(&0) || compiled.is_disjoint()));
    }
}

#[test]
fn only_large_loops_are_split() {
    let chunks = |sizes: [usize; 3], end: End| {
        let graph = looped(DType::F32, sizes, [Layout::Contiguous; 2], (Body::Affine, &end), false).unwrap();
        let program = Program::new(&graph).unwrap();
        loops(&program).map(|compiled| compiled.chunks.count()).collect::<Vec<_>>()
    };
    let sum = |axes: &[usize]| End::Reduce(Reduction::Sum, axes.to_vec());
    for end in [End::Store, sum(&[0, 1, 2]), sum(&[2]), sum(&[0]), sum(&[1]), sum(&[0, 1])] {
        assert_eq!(chunks([2, 3, 50], end.clone()), [1], "{end:?}");
        let counts = chunks([256, 128, 64], end.clone());
        assert!(counts.iter().all(|&count| count >= 16), "{end:?}: {counts:?}");
    }
}

#[test]
fn loops_with_aliasing_chunks_are_not_split() {
    let graph = looped(DType::F32, [64, 64, 64], [Layout::Contiguous; 2], (Body::Affine, &End::Store), false)
        .unwrap();
    let program = Program::new(&graph).unwrap();
    let mut compiled = loops(&program).next().unwrap().clone();
    assert!(compiled.is_disjoint());
    compiled.loads[0].offset = compiled.stores[0].1.offset;
    assert!(compiled.is_disjoint(), "element by element");
    compiled.loads[0].offset += 1;
    assert!(!compiled.is_disjoint());
    assert_eq!(compiled.split(DType::F32).count(), 1);
    compiled.loads.clear();
    compiled.stores[0].1.strides.fill(0);
    assert!(!compiled.is_disjoint(), "elements share an offset");
}

/// The passes of the first loop of a graph: `o` for a single operation, `2` for a pair, `f` for a function of `a b + c`, `-` for
/// an operation that is part of a later pass.
fn passes(build: impl Fn(&mut Graph, [Id; 3]) -> Result<Vec<Id>, GraphError>) -> Vec<char> {
    let mut g = Graph::new();
    let inputs = ["a", "b", "c"].map(|name| g.input(name, DType::F32, &[40]).unwrap());
    for (i, output) in build(&mut g, inputs).unwrap().into_iter().enumerate() {
        g.output(&format!("y{i}"), output).unwrap();
    }
    let program = Program::new(&g).unwrap();
    let letter = |pass: &Pass| match pass {
        Pass::Single => 'o',
        Pass::Pair(..) => '2',
        Pass::OfAffine(..) => 'f',
        Pass::Merged => '-',
    };
    loops(&program).next().unwrap().passes.iter().map(letter).collect()
}

#[test]
fn cheap_operations_are_fused_with_their_only_reader() {
    let affine = passes(|g, [a, b, c]| {
        let product = g.mul(a, b)?;
        let sum = g.add(c, product)?;
        Ok(vec![g.exp(sum)?])
    });
    assert_eq!(affine, ['-', '-', 'f']);
    let stored_too = passes(|g, [a, b, c]| {
        let product = g.mul(a, b)?;
        let sum = g.add(c, product)?;
        Ok(vec![g.exp(sum)?, sum])
    });
    assert_eq!(stored_too, ['-', '2', 'o']);
    let one = passes(|g, [a, b, _]| {
        let difference = g.sub(a, b)?;
        Ok(vec![g.tanh(difference)?])
    });
    assert_eq!(one, ['-', 'f']);
    let costly = passes(|g, [a, b, _]| {
        let ratio = g.div(a, b)?;
        Ok(vec![g.tanh(ratio)?])
    });
    assert_eq!(costly, ['o', 'o']);
    let three = passes(|g, [a, b, c]| {
        let difference = g.sub(a, b)?;
        let product = g.mul(difference, c)?;
        Ok(vec![g.add(product, a)?])
    });
    assert_eq!(three, ['-', '2', 'o']);
    let stored = passes(|g, [a, b, c]| {
        let product = g.mul(a, b)?;
        Ok(vec![g.add(product, c)?, product])
    });
    assert_eq!(stored, ['o', 'o']);
    let twice = passes(|g, [a, b, _]| {
        let product = g.mul(a, b)?;
        Ok(vec![g.add(product, product)?])
    });
    assert!(!twice.contains(&'2'), "{twice:?}");
}

/// The gathered tile of a broadcast row is reused within a run only.
#[test]
fn broadcast_rows_are_read_again_in_every_run() {
    let mut g = Graph::new();
    let x = g.input("x", DType::F32, &[300, 7]).unwrap();
    let row = g.input("row", DType::F32, &[7]).unwrap();
    let scale = g.input("scale", DType::F32, &[]).unwrap();
    let sum = g.add(x, row).unwrap();
    let y = g.mul(sum, scale).unwrap();
    g.output("y", y).unwrap();
    let mut runner = Program::new(&g).unwrap().runner();
    let x: Vec<f32> = (0..2100u16).map(f32::from).collect();
    runner.write("x", &x).unwrap();
    for factor in [2.0, 3.0] {
        let row: Vec<f32> = (0..7u8).map(|i| factor * f32::from(i)).collect();
        runner.write("row", &row).unwrap();
        runner.write("scale", &[factor]).unwrap();
        runner.run();
        let right: Vec<f32> = x.iter().enumerate().map(|(i, x)| (x + row[i % 7]) * factor).collect();
        assert_eq!(runner.read::<f32>("y").unwrap(), right);
    }
}

#[test]
fn tiles_of_combined_rows_are_not_larger_than_a_block() {
    for (columns, rows) in [(2, 64), (9, 64), (40, 25), (700, 1)] {
        let end = End::Reduce(Reduction::Sum, vec![0, 1]);
        let layouts = [Layout::Contiguous; 2];
        let graph = looped(DType::F32, [3, 500, columns], layouts, (Body::Affine, &end), false).unwrap();
        let program = Program::new(&graph).unwrap();
        let most = loops(&program).map(|compiled| compiled.rows).max().unwrap();
        assert_eq!(most, rows, "{columns} columns");
    }
}

/// Rows that are longer than a tile do not share tiles.
#[test]
fn rows_longer_than_a_tile_are_summed_one_by_one() {
    for (sizes, stored) in [([1, 3, 911], true), ([2, 5, 2100], false), ([1, 4, 4097], true)] {
        let end = End::Reduce(Reduction::Sum, vec![0, 1]);
        let graph = looped(DType::F32, sizes, [Layout::Contiguous; 2], (Body::Affine, &end), stored).unwrap();
        let values = arbitrary::values(&graph, 3);
        let (ours, _) = on_threads(&graph, &values, 1);
        let right = graph.interpret(&arbitrary::named(&values)).unwrap();
        for (ours, right) in ours.iter().zip(&right) {
            for (ours, right) in ours.iter().map(|&bits| f64::from_bits(bits)).zip(right.to_f64()) {
                assert!((ours - right).abs() <= 1e-5 * right.abs().max(1.0), "{sizes:?}: {ours} for {right}");
            }
        }
    }
}
