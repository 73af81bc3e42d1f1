//! Products against the sum over the depth, element by element.

use super::*;
use crate::kernel::tests::{cases, on_every_level};
use proptest::prelude::*;

/// The textbook product.
fn naive<T>(memory: &mut [T], shapes: &Shapes)
where
    T: Copy + std::ops::Mul<Output = T> + std::ops::Add<Output = T> + std::iter::Sum,
{
    let Shapes { sizes: [m, n, k], a, b, out, accumulate } = *shapes;
    let at =
        |(begin, strides): (usize, [usize; 2]), i: usize, j: usize| begin + i * strides[0] + j * strides[1];
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let sum: T = (0..k).map(|l| memory[at(a, i, l)] * memory[at(b, l, j)]).sum();
        let place = &mut memory[at(out, i, j)];
        *place = if accumulate { *place + sum } else { sum };
    }
}

/// Matrices behind each other: strides in rows or in columns, with gaps.
fn shapes(sizes: [usize; 3], turns: [bool; 3], gap: usize, accumulate: bool) -> Shapes {
    let [m, n, k] = sizes;
    let (a, b, out) =
        (strides(m, k, turns[0], gap), strides(k, n, turns[1], gap), strides(m, n, turns[2], gap));
    let (b_begin, out_begin) = (span(m, k, a), span(m, k, a) + span(k, n, b));
    Shapes { sizes, a: (0, a), b: (b_begin, b), out: (out_begin, out), accumulate }
}

/// Small whole numbers: their products and sums are exact.
fn whole_numbers(shapes: &Shapes) -> Vec<f32> {
    (0..shapes.end_of_result()).map(|i| (i * 37 % 19) as f32 - 9.0).collect()
}

fn check_against_textbook(shapes: &Shapes) {
    let mut right = whole_numbers(shapes);
    naive(&mut right, shapes);
    let ways: [fn(&mut [f32], &Shapes); 2] = [multiply, multiply_by_gemm];
    for multiply in ways {
        let mut ours = whole_numbers(shapes);
        multiply(&mut ours, shapes);
        assert!(ours == right, "{shapes:?}");
    }
}

/// The memory after a product with a second operand that was packed.
fn multiplied_packed(shapes: &Shapes) -> Vec<f32> {
    let mut memory = whole_numbers(shapes);
    let ([_, columns, depth], packed) = (shapes.sizes, memory.len());
    memory.resize(packed + f32::packed_len(depth, columns), f32::NAN);
    let at = memory.as_mut_ptr();
    // SAFETY: the matrices lie in the memory one after another, and what is packed behind them.
    unsafe {
        f32::pack(at, [depth, columns], shapes.b, packed);
        f32::multiply_packed(at, shapes, packed);
    }
    memory.truncate(packed);
    memory
}

/// Strides of a matrix, row by row or column by column, with gaps.
fn strides(rows: usize, columns: usize, transposed: bool, gap: usize) -> [usize; 2] {
    if transposed { [1, rows + gap] } else { [columns + gap, 1] }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn products_equal_the_textbook(
        sizes in prop::array::uniform3(0usize..20), turns: [bool; 3], gap in 0usize..3, accumulate: bool,
    ) {
        let shapes = shapes(sizes, turns, gap, accumulate);
        let mut ours: Vec<f64> = whole_numbers(&shapes).into_iter().map(f64::from).collect();
        let mut right = ours.clone();
        multiply(&mut ours, &shapes);
        naive(&mut right, &shapes);
        prop_assert_eq!(ours, right);
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn tiles_equal_the_textbook(
        sizes in prop::array::uniform3(1usize..70), turns: [bool; 3], gap in 0usize..3, accumulate: bool,
    ) {
        let shapes = shapes(sizes, turns, gap, accumulate);
        on_every_level(|| check_against_textbook(&shapes));
    }

    #[test]
    fn products_with_a_packed_matrix_equal_the_textbook(
        sizes in prop::array::uniform3(1usize..70), turns: [bool; 2], gap in 0usize..3, accumulate: bool,
    ) {
        let shapes = shapes(sizes, [turns[0], turns[1], false], gap, accumulate);
        let mut right = whole_numbers(&shapes);
        naive(&mut right, &shapes);
        on_every_level(|| {
            assert!(multiplied_packed(&shapes) == right, "{shapes:?}");
            let Some(mut panels) = Panels::of(&shapes) else { return };
            let mut ours = whole_numbers(&shapes);
            panels.pack(&ours, &shapes);
            multiply_panels(&mut ours, &shapes, None, &panels);
            assert!(ours == right, "{shapes:?}");
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn products_of_several_blocks_equal_the_textbook() {
    let sizes = [
        [100, 40, 390],
        [200, 33, 5],
        [5, 1030, 3],
        [97, 513, 385],
        [1, 600, 800],
        [3, 37, 400],
        [600, 1, 4],
    ];
    for (sizes, turns) in sizes.iter().flat_map(|sizes| [0, 1, 2, 5].map(|turns| (*sizes, turns))) {
        let turns = [0, 1, 2].map(|bit| turns >> bit & 1 == 1);
        check_against_textbook(&shapes(sizes, turns, 1, sizes[2] % 2 == 0));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn products_have_the_same_bits_on_any_number_of_threads() {
    // As many rows as columns, more rows, and so few rows that nothing is packed; one product and several.
    for ([m, n, k], batch) in [
        ([150, 140, 130], 1),
        ([150, 140, 130], 5),
        ([900, 45, 70], 1),
        ([2, 1100, 1000], 1),
        ([1, 1100, 2000], 1),
    ] {
        let (b, out) = (batch * m * k, batch * (m * k + k * n));
        let shapes: Vec<Shapes> = (0..batch)
            .map(|i| Shapes {
                sizes: [m, n, k],
                a: (i * m * k, [k, 1]),
                b: (b + i * k * n, [n, 1]),
                out: (out + i * m * n, [n, 1]),
                accumulate: false,
            })
            .collect();
        let results = [1, 2, 3].map(|threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let numbers = (0..out + batch * m * n).map(|i| (i * 7919 % 1013) as f32 * 0.01 - 5.0);
            let mut memory: Vec<f32> = numbers.collect();
            let mut packed = memory.clone();
            pool.install(|| multiply_all(&mut memory, &shapes));
            if let ([shapes], Some(mut panels)) = (&shapes[..], Panels::of(&shapes[0])) {
                panels.pack(&packed, shapes);
                pool.install(|| multiply_panels(&mut packed, shapes, None, &panels));
                assert!(packed == memory, "{shapes:?}");
            }
            memory
        });
        assert_eq!(results[0], results[1]);
        assert_eq!(results[0], results[2]);
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn matrices_elsewhere_are_multiplied_like_those_in_the_memory(
        sizes in prop::array::uniform3(0usize..20), places: [bool; 3], accumulate: bool, gap in 0usize..4,
    ) {
        let [m, n, k] = sizes;
        let shapes = shapes(sizes, [false; 3], 0, accumulate);
        let numbers = whole_numbers(&shapes);
        let mut right = numbers.clone();
        multiply(&mut right, &shapes);
        // The whole memory is copied elsewhere, and what is read or written there is spoilt in the memory.
        let parts = [(shapes.a.0, m * k), (shapes.b.0, k * n), (shapes.out.0, m * n)];
        let elsewhere: [Option<Elsewhere>; 3] = std::array::from_fn(|i| {
            places[i].then_some(Elsewhere { inside: parts[i].0, outside: parts[i].0 + gap, len: parts[i].1 })
        });
        let mut memory = numbers.clone();
        for (place, (begin, len)) in elsewhere.iter().zip(parts) {
            memory[begin..begin + len].iter_mut().filter(|_| place.is_some()).for_each(|x| *x = f32::NAN);
        }
        let from = [vec![f32::NAN; gap], numbers].concat();
        let mut to = from.clone();
        multiply_outside(&mut memory, &[shapes], None, Outside { from: &from, to: &mut to, elsewhere });
        let result = if places[2] { &to[shapes.out.0 + gap..] } else { &memory[shapes.out.0..] };
        prop_assert_eq!(&result[..m * n], &right[shapes.out.0..][..m * n]);
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn epilogues_add_a_row_and_cut_below_zero(
        sizes in prop::array::uniform3(0usize..40), turns: [bool; 3], accumulate: bool, relu: bool,
    ) {
        let shapes = shapes(sizes, turns, 1, accumulate);
        let numbers = [whole_numbers(&shapes), (0..sizes[1]).map(|j| j as f32 * 3.0 - 20.0).collect()].concat();
        let bias = shapes.end_of_result();
        let mut right = numbers.clone();
        multiply(&mut right, &shapes);
        for (i, j) in (0..sizes[0]).flat_map(|i| (0..sizes[1]).map(move |j| (i, j))) {
            let place = shapes.out.0 + i * shapes.out.1[0] + j * shapes.out.1[1];
            right[place] += right[bias + j];
            right[place] = if relu { right[place].max(0.0) } else { right[place] };
        }
        on_every_level(|| {
            let mut ours = numbers.clone();
            let outside = Outside { from: &[], to: &mut [], elsewhere: [None; 3] };
            multiply_outside(&mut ours, &[shapes], Some(Epilogue { bias, relu }), outside);
            assert!(ours == right, "{shapes:?}");
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn epilogues_of_several_blocks_are_done_once() {
    let shapes = shapes([100, 530, 800], [false; 3], 0, false);
    let numbers = [whole_numbers(&shapes), (0..530).map(|j| j as f32).collect()].concat();
    let mut right = numbers.clone();
    multiply(&mut right, &shapes);
    right[shapes.out.0..].iter_mut().take(53_000).enumerate().for_each(|(i, x)| *x += (i % 530) as f32);
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut ours = numbers.clone();
        let epilogue = Some(Epilogue { bias: shapes.end_of_result(), relu: false });
        let outside = Outside { from: &[], to: &mut [], elsewhere: [None; 3] };
        pool.install(|| multiply_outside(&mut ours, &[shapes], epilogue, outside));
        assert!(ours == right, "{threads} threads");
    }
}

#[test]
#[should_panic(expected = "among the elements")]
fn matrices_that_are_not_where_they_are_said_to_be_are_refused() {
    let shapes =
        Shapes { sizes: [2, 2, 1], a: (0, [1, 1]), b: (2, [2, 1]), out: (4, [2, 1]), accumulate: false };
    let elsewhere = [Some(Elsewhere { inside: 1, outside: 0, len: 8 }), None, None];
    let outside = Outside { from: &[1.0; 8], to: &mut [], elsewhere };
    multiply_outside(&mut [1.0f32; 8], &[shapes], None, outside);
}

#[test]
#[should_panic(expected = "share a place")]
fn results_that_overlap_themselves_are_refused() {
    let shapes =
        Shapes { sizes: [2, 2, 1], a: (0, [1, 1]), b: (2, [2, 1]), out: (4, [1, 1]), accumulate: false };
    multiply(&mut [1.0f32; 8], &shapes);
}

/// Numbers of which so many in a hundred are not 0, some of them -0.
fn partly_zero(len: usize, percent: usize, seed: usize) -> Vec<f32> {
    let mut state = 0x9e37_79b9_7f4a_7c15 ^ seed as u64;
    let mut draw = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as usize
    };
    let number = |_| match (draw() % 100 < percent, draw()) {
        (true, x) => x as f32 / 1e6 - 8.0,
        (false, x) => [0.0, -0.0][x % 2],
    };
    (0..len).map(number).collect()
}

/// The bits of a product, by lists of elements or by tiles.
fn bits(shapes: &Shapes, memory: &[f32], by_lists: bool) -> Vec<u32> {
    let (mut memory, [k, n]) = (memory.to_vec(), [shapes.sizes[2], shapes.sizes[1]]);
    let base = memory.as_mut_ptr();
    let source = |(at, strides): (usize, [usize; 2])| Source { at: base.wrapping_add(at), strides };
    let out = Target {
        at: base.wrapping_add(shapes.out.0),
        stride: shapes.out.1[0],
        accumulate: shapes.accumulate,
        finish: Finish { bias: Some(base.wrapping_add(shapes.b.0)), relu: k % 2 == 0 },
    };
    let mut packed = vec![0.0; packing::packed_len(k, n)];
    // SAFETY: the matrices lie in the memory one after another; the bias is a row of the second or, if it has columns
    // only, elements of it. What is packed is the second operand.
    unsafe {
        let right = if n % 2 == 0 {
            Right::Plain(source(shapes.b))
        } else {
            let is_finite = packing::pack(source(shapes.b), k, n, packed.as_mut_ptr());
            Right::Packed(Packed { at: packed.as_ptr(), columns: n, first: 0, is_finite })
        };
        tiles::multiply(shapes.sizes, source(shapes.a), right, out, by_lists);
    }
    let canonical = |x: &f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
    memory[shapes.out.0..].iter().map(canonical).collect()
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn lists_give_the_bits_of_the_tiles(
        rows in 1usize..120, columns in 1usize..300, depth in 1usize..420, turns: [bool; 2], percent in 0usize..100,
        accumulate: bool, special in prop::option::of((0usize..10_000, 0usize..3)),
    ) {
        let shapes = shapes([rows, columns, depth], [turns[0], turns[1], false], 1, accumulate);
        let mut memory = partly_zero(shapes.b.0, percent, columns);
        memory.extend(partly_zero(shapes.end_of_result() - shapes.b.0, 95, depth));
        if let Some((at, which)) = special {
            let len = shapes.out.0 - shapes.b.0;
            memory[shapes.b.0 + at % len] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][which];
        }
        on_every_level(|| {
            assert_eq!(bits(&shapes, &memory, true), bits(&shapes, &memory, false), "{shapes:?}");
        });
    }
}

#[test]
fn lists_are_for_what_is_half_zero_and_large_enough() {
    let worth = |[m, n, k]: [usize; 3], percent: usize, turned: bool| {
        let a = partly_zero(m * k, percent, 1);
        let source = Source { at: a.as_ptr(), strides: if turned { [1, m] } else { [k, 1] } };
        // SAFETY: the elements of the operand.
        unsafe { sparse::is_worth([m, n, k], source) }
    };
    for turned in [false, true] {
        assert!(worth([256, 512, 512], 50, turned) && worth([32, 64, 32], 20, turned));
        assert!(!worth([256, 512, 512], 75, turned) && !worth([256, 512, 512], 100, turned));
        assert!(!worth([8, 512, 512], 10, turned) && !worth([256, 512, 16], 10, turned));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn products_of_many_zeros_have_the_same_bits_on_any_number_of_threads() {
    for [m, n, k] in [[260, 270, 400], [700, 64, 100]] {
        let shapes = shapes([m, n, k], [m > 300, false, false], 0, false);
        let mut memory = partly_zero(shapes.b.0, 40, 1);
        memory.extend(partly_zero(shapes.end_of_result() - shapes.b.0, 95, 2));
        let right = bits_of_product(&shapes, &memory, 1);
        assert!([2, 3].iter().all(|&threads| bits_of_product(&shapes, &memory, threads) == right));
    }
}

fn bits_of_product(shapes: &Shapes, memory: &[f32], threads: usize) -> Vec<u32> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let mut memory = memory.to_vec();
    pool.install(|| multiply(&mut memory, shapes));
    memory.iter().map(|x| x.to_bits()).collect()
}

#[test]
#[should_panic(expected = "the bias lies in the slice")]
fn a_bias_that_begins_beyond_all_numbers_is_refused() {
    let shapes =
        Shapes { sizes: [2, 2, 1], a: (0, [1, 1]), b: (2, [2, 1]), out: (4, [2, 1]), accumulate: false };
    let outside = Outside { from: &[], to: &mut [], elsewhere: [None; 3] };
    let epilogue = Some(Epilogue { bias: usize::MAX, relu: false });
    multiply_outside(&mut [1.0f32; 8], &[shapes], epilogue, outside);
}

#[test]
fn strides_that_are_not_used_may_be_any_number() {
    let far = usize::MAX;
    let shapes = Shapes {
        sizes: [3, 3, 1],
        a: (0, [1, far]),
        b: (3, [1 << 63, 1]),
        out: (6, [3, 1]),
        accumulate: false,
    };
    let mut memory: Vec<f64> = (1..16).map(f64::from).collect();
    multiply(&mut memory, &shapes);
    assert_eq!(memory[6..], [4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 12.0, 15.0, 18.0]);
}

proptest! {
    #![proptest_config(cases(64))]

    /// A single row with a matrix that was looked through: the same bits as without, whatever is in it.
    #[test]
    fn a_single_row_has_the_same_bits_without_its_zeros(
        columns in 2usize..80, depth in 1usize..600, percent in 0usize..101, gap in 0usize..3, accumulate: bool,
        relu in prop::option::of(any::<bool>()),
        wild in prop::option::of((0usize..1000, prop::sample::select(vec![f32::NAN, f32::INFINITY]))),
        seed: usize,
    ) {
        let shapes = shapes([1, columns, depth], [false; 3], gap, accumulate);
        let bias = shapes.end_of_result();
        let mut numbers = [whole_numbers(&shapes), (0..columns).map(|j| j as f32 * 3.0 - 20.0).collect()].concat();
        numbers[..depth].copy_from_slice(&partly_zero(depth, percent, seed));
        if let Some((place, value)) = wild {
            numbers[shapes.b.0 + place % depth * (columns + gap) + place % columns] = value;
        }
        let epilogue = relu.map(|relu| Epilogue { bias, relu });
        on_every_level(|| {
            let mut right = numbers.clone();
            let outside = Outside { from: &[], to: &mut [], elsewhere: [None; 3] };
            multiply_outside(&mut right, &[shapes], epilogue, outside);
            let mut ours = numbers.clone();
            let mut panels = Panels::of(&shapes).unwrap();
            panels.pack(&ours, &shapes);
            assert_eq!(panels.is_finite, wild.is_none());
            multiply_panels(&mut ours, &shapes, epilogue, &panels);
            let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            assert!(ours.iter().zip(&right).all(same), "{shapes:?}");
        });
    }
}

/// One row, and one row behind a block of rows, with a matrix of several panels that is packed.
#[test]
#[cfg_attr(miri, ignore = "too long")]
fn single_rows_with_packed_panels_equal_the_textbook() {
    for (rows, accumulate) in [(1, false), (1, true), (97, false), (97, true)] {
        let shapes = shapes([rows, 300, 401], [false; 3], 0, accumulate);
        let mut right = whole_numbers(&shapes);
        naive(&mut right, &shapes);
        on_every_level(|| assert!(multiplied_packed(&shapes) == right, "{shapes:?}"));
    }
}
