//! Tests against the definition of matrix multiplication.

use super::*;
use crate::kernel::tests::{cases, on_every_level};
use proptest::prelude::*;

/// Reference implementation.
fn reference<T>(memory: &mut [T], gemm: &Gemm)
where
    T: Copy + std::ops::Mul<Output = T> + std::ops::Add<Output = T> + std::iter::Sum,
{
    let Gemm { sizes: [m, n, k], a, b, out, accumulate } = *gemm;
    let at =
        |(begin, strides): (usize, [usize; 2]), i: usize, j: usize| begin + i * strides[0] + j * strides[1];
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let sum: T = (0..k).map(|l| memory[at(a, i, l)] * memory[at(b, l, j)]).sum();
        let element = &mut memory[at(out, i, j)];
        *element = if accumulate { *element + sum } else { sum };
    }
}

/// Consecutive matrices, row-major or column-major, with padding.
fn gemm(sizes: [usize; 3], transposed: [bool; 3], gap: usize, accumulate: bool) -> Gemm {
    let [m, n, k] = sizes;
    let (a, b, out) = (
        strides(m, k, transposed[0], gap),
        strides(k, n, transposed[1], gap),
        strides(m, n, transposed[2], gap),
    );
    let (b_begin, out_begin) = (span(m, k, a), span(m, k, a) + span(k, n, b));
    Gemm { sizes, a: (0, a), b: (b_begin, b), out: (out_begin, out), accumulate }
}

/// Small integers, whose products and sums are exact.
fn whole_numbers(gemm: &Gemm) -> Vec<f32> {
    (0..gemm.end_of_result()).map(|i| (i * 37 % 19) as f32 - 9.0).collect()
}

fn check_against_reference(gemm: &Gemm) {
    let mut right = whole_numbers(gemm);
    reference(&mut right, gemm);
    let mut ours = whole_numbers(gemm);
    multiply(&mut ours, gemm);
    assert!(ours == right, "{gemm:?}");
    let mut ours = whole_numbers(gemm);
    // SAFETY: the matrices are consecutive, and no size is 0.
    unsafe { general::multiply(Bases::same(ours.as_mut_ptr()), gemm, false) };
    assert!(ours == right, "{gemm:?}, by the general kernel");
}

/// Returns the memory after a multiplication with a packed second operand.
fn multiplied_packed(gemm: &Gemm) -> Vec<f32> {
    let mut memory = whole_numbers(gemm);
    let ([_, columns, depth], packed) = (gemm.sizes, memory.len());
    memory.resize(packed + f32::packed_len(depth, columns), f32::NAN);
    let at = memory.as_mut_ptr();
    // SAFETY: the matrices are consecutive, and the packed one follows them.
    unsafe {
        f32::pack(at, [depth, columns], gemm.b, packed);
        f32::multiply_packed(at, gemm, packed);
    }
    memory.truncate(packed);
    memory
}

/// Returns row-major or column-major strides with padding.
fn strides(rows: usize, columns: usize, transposed: bool, gap: usize) -> [usize; 2] {
    if transposed { [1, rows + gap] } else { [columns + gap, 1] }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn multiplications_equal_the_reference(
        sizes in prop::array::uniform3(0usize..20), transposed: [bool; 3], gap in 0usize..3, accumulate: bool,
    ) {
        let gemm = gemm(sizes, transposed, gap, accumulate);
        let mut ours: Vec<f64> = whole_numbers(&gemm).into_iter().map(f64::from).collect();
        let mut right = ours.clone();
        multiply(&mut ours, &gemm);
        reference(&mut right, &gemm);
        prop_assert_eq!(ours, right);
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn tiles_equal_the_reference(
        sizes in prop::array::uniform3(1usize..70), transposed: [bool; 3], gap in 0usize..3, accumulate: bool,
    ) {
        let gemm = gemm(sizes, transposed, gap, accumulate);
        on_every_level(|| check_against_reference(&gemm));
    }

    #[test]
    fn multiplications_with_a_packed_matrix_equal_the_reference(
        sizes in prop::array::uniform3(1usize..70), transposed: [bool; 2], gap in 0usize..3, accumulate: bool,
    ) {
        let gemm = gemm(sizes, [transposed[0], transposed[1], false], gap, accumulate);
        let mut right = whole_numbers(&gemm);
        reference(&mut right, &gemm);
        on_every_level(|| {
            assert!(multiplied_packed(&gemm) == right, "{gemm:?}");
            let Some(mut panels) = PreparedRhs::new(&gemm) else { return };
            let mut ours = whole_numbers(&gemm);
            panels.pack(&ours, &gemm);
            multiply_prepared(&mut ours, &gemm, None, &panels);
            assert!(ours == right, "{gemm:?}");
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn multiplications_of_several_blocks_equal_the_reference() {
    let sizes = [
        [100, 40, 390],
        [200, 33, 5],
        [5, 1030, 3],
        [97, 513, 385],
        [1, 600, 800],
        [3, 37, 400],
        [600, 1, 4],
    ];
    for (sizes, transposed) in
        sizes.iter().flat_map(|sizes| [0, 1, 2, 5].map(|transposed| (*sizes, transposed)))
    {
        let transposed = [0, 1, 2].map(|bit| transposed >> bit & 1 == 1);
        check_against_reference(&gemm(sizes, transposed, 1, sizes[2] % 2 == 0));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn multiplications_have_the_same_bits_on_any_number_of_threads() {
    // As many rows as columns, more rows, and few, unpacked rows; one multiplication and a batch.
    for ([m, n, k], batch) in [
        ([150, 140, 130], 1),
        ([150, 140, 130], 5),
        ([900, 45, 70], 1),
        ([2, 1100, 1000], 1),
        ([1, 1100, 2000], 1),
    ] {
        let (b, out) = (batch * m * k, batch * (m * k + k * n));
        let gemm: Vec<Gemm> = (0..batch)
            .map(|i| Gemm {
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
            pool.install(|| multiply_all(&mut memory, &gemm));
            if let ([gemm], Some(mut panels)) = (&gemm[..], PreparedRhs::new(&gemm[0])) {
                panels.pack(&packed, gemm);
                pool.install(|| multiply_prepared(&mut packed, gemm, None, &panels));
                assert!(packed == memory, "{gemm:?}");
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
    fn external_matrices_are_multiplied_like_those_in_the_memory(
        sizes in prop::array::uniform3(0usize..20), indices: [bool; 3], accumulate: bool, gap in 0usize..4,
    ) {
        let [m, n, k] = sizes;
        let gemm = gemm(sizes, [false; 3], 0, accumulate);
        let numbers = whole_numbers(&gemm);
        let mut right = numbers.clone();
        multiply(&mut right, &gemm);
        // The whole memory is copied, and external matrices are overwritten with NaN in the memory.
        let parts = [(gemm.a.0, m * k), (gemm.b.0, k * n), (gemm.out.0, m * n)];
        let external: [Option<ExternalRange>; 3] = std::array::from_fn(|i| {
            indices[i].then_some(ExternalRange { inside: parts[i].0, outside: parts[i].0 + gap, len: parts[i].1 })
        });
        let mut memory = numbers.clone();
        for (range, (begin, len)) in external.iter().zip(parts) {
            memory[begin..begin + len].iter_mut().filter(|_| range.is_some()).for_each(|x| *x = f32::NAN);
        }
        let from = [vec![f32::NAN; gap], numbers].concat();
        let mut to = from.clone();
        multiply_external(&mut memory, &[gemm], None, ExternalSlices { from: &from, to: &mut to, external });
        let result = if indices[2] { &to[gemm.out.0 + gap..] } else { &memory[gemm.out.0..] };
        prop_assert_eq!(&result[..m * n], &right[gemm.out.0..][..m * n]);
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn epilogues_add_a_bias_and_apply_relu(
        sizes in prop::array::uniform3(0usize..40), transposed: [bool; 3], accumulate: bool, relu: bool,
    ) {
        let gemm = gemm(sizes, transposed, 1, accumulate);
        let numbers = [whole_numbers(&gemm), (0..sizes[1]).map(|j| j as f32 * 3.0 - 20.0).collect()].concat();
        let bias = gemm.end_of_result();
        let mut right = numbers.clone();
        multiply(&mut right, &gemm);
        for (i, j) in (0..sizes[0]).flat_map(|i| (0..sizes[1]).map(move |j| (i, j))) {
            let index = gemm.out.0 + i * gemm.out.1[0] + j * gemm.out.1[1];
            right[index] += right[bias + j];
            right[index] = if relu { right[index].max(0.0) } else { right[index] };
        }
        on_every_level(|| {
            let mut ours = numbers.clone();
            let outside = ExternalSlices { from: &[], to: &mut [], external: [None; 3] };
            multiply_external(&mut ours, &[gemm], Some(Epilogue { bias, relu }), outside);
            assert!(ours == right, "{gemm:?}");
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn epilogues_are_applied_once_to_several_blocks() {
    let gemm = gemm([100, 530, 800], [false; 3], 0, false);
    let numbers = [whole_numbers(&gemm), (0..530).map(|j| j as f32).collect()].concat();
    let mut right = numbers.clone();
    multiply(&mut right, &gemm);
    right[gemm.out.0..].iter_mut().take(53_000).enumerate().for_each(|(i, x)| *x += (i % 530) as f32);
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut ours = numbers.clone();
        let epilogue = Some(Epilogue { bias: gemm.end_of_result(), relu: false });
        let outside = ExternalSlices { from: &[], to: &mut [], external: [None; 3] };
        pool.install(|| multiply_external(&mut ours, &[gemm], epilogue, outside));
        assert!(ours == right, "{threads} threads");
    }
}

#[test]
#[should_panic(expected = "outside of its external range")]
fn matrices_outside_of_their_external_range_panic() {
    let gemm = Gemm { sizes: [2, 2, 1], a: (0, [1, 1]), b: (2, [2, 1]), out: (4, [2, 1]), accumulate: false };
    let external = [Some(ExternalRange { inside: 1, outside: 0, len: 8 }), None, None];
    let outside = ExternalSlices { from: &[1.0; 8], to: &mut [], external };
    multiply_external(&mut [1.0f32; 8], &[gemm], None, outside);
}

#[test]
#[should_panic(expected = "alias each other")]
fn results_that_alias_themselves_panic() {
    let gemm = Gemm { sizes: [2, 2, 1], a: (0, [1, 1]), b: (2, [2, 1]), out: (4, [1, 1]), accumulate: false };
    multiply(&mut [1.0f32; 8], &gemm);
}

/// Returns numbers of which `percent` in a hundred are not 0; some of the zeros are -0.
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

/// Returns the bits of a result, by the sparse kernel or by tiles.
fn bits(gemm: &Gemm, memory: &[f32], is_sparse: bool) -> Vec<u32> {
    let (mut memory, [k, n]) = (memory.to_vec(), [gemm.sizes[2], gemm.sizes[1]]);
    let base = memory.as_mut_ptr();
    let source = |(at, strides): (usize, [usize; 2])| Source { at: base.wrapping_add(at), strides };
    let out = Target {
        at: base.wrapping_add(gemm.out.0),
        stride: gemm.out.1[0],
        accumulate: gemm.accumulate,
        epilogue: EpiloguePtr { bias: Some(base.wrapping_add(gemm.b.0)), relu: k % 2 == 0 },
    };
    let mut packed = vec![0.0; packing::packed_len(k, n)];
    // SAFETY: the matrices are consecutive; the bias is a row of the second one or, if it is column-major, some of its
    // elements. The packed matrix is the second operand.
    unsafe {
        let right = if n % 2 == 0 {
            Rhs::Unpacked(source(gemm.b))
        } else {
            let is_finite = packing::pack(source(gemm.b), k, n, packed.as_mut_ptr());
            Rhs::Packed(Packed { at: packed.as_ptr(), columns: n, first: 0, is_finite })
        };
        tiles::multiply(gemm.sizes, source(gemm.a), right, out, is_sparse);
    }
    let canonical = |x: &f32| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() };
    memory[gemm.out.0..].iter().map(canonical).collect()
}

proptest! {
    #![proptest_config(cases(128))]

    #[test]
    fn sparse_gemm_has_the_bits_of_the_tiles(
        rows in 1usize..120, columns in 1usize..300, depth in 1usize..420, transposed: [bool; 2], percent in 0usize..100,
        accumulate: bool, special in prop::option::of((0usize..10_000, 0usize..3)),
    ) {
        let gemm = gemm([rows, columns, depth], [transposed[0], transposed[1], false], 1, accumulate);
        let mut memory = partly_zero(gemm.b.0, percent, columns);
        memory.extend(partly_zero(gemm.end_of_result() - gemm.b.0, 95, depth));
        if let Some((at, which)) = special {
            let len = gemm.out.0 - gemm.b.0;
            memory[gemm.b.0 + at % len] = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY][which];
        }
        on_every_level(|| {
            assert_eq!(bits(&gemm, &memory, true), bits(&gemm, &memory, false), "{gemm:?}");
        });
    }
}

#[test]
fn sparse_gemm_is_used_for_large_matrices_with_many_zeros() {
    let worth = |[m, n, k]: [usize; 3], percent: usize, transposed: bool| {
        let a = partly_zero(m * k, percent, 1);
        let source = Source { at: a.as_ptr(), strides: if transposed { [1, m] } else { [k, 1] } };
        // SAFETY: the elements of the operand.
        unsafe { sparse::is_profitable([m, n, k], source) }
    };
    for transposed in [false, true] {
        assert!(worth([256, 512, 512], 50, transposed) && worth([32, 64, 32], 20, transposed));
        assert!(!worth([256, 512, 512], 75, transposed) && !worth([256, 512, 512], 100, transposed));
        assert!(!worth([8, 512, 512], 10, transposed) && !worth([256, 512, 16], 10, transposed));
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn sparse_multiplications_have_the_same_bits_on_any_number_of_threads() {
    for [m, n, k] in [[260, 270, 400], [700, 64, 100]] {
        let gemm = gemm([m, n, k], [m > 300, false, false], 0, false);
        let mut memory = partly_zero(gemm.b.0, 40, 1);
        memory.extend(partly_zero(gemm.end_of_result() - gemm.b.0, 95, 2));
        let right = bits_of_product(&gemm, &memory, 1);
        assert!([2, 3].iter().all(|&threads| bits_of_product(&gemm, &memory, threads) == right));
    }
}

fn bits_of_product(gemm: &Gemm, memory: &[f32], threads: usize) -> Vec<u32> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let mut memory = memory.to_vec();
    pool.install(|| multiply(&mut memory, gemm));
    memory.iter().map(|x| x.to_bits()).collect()
}

#[test]
#[should_panic(expected = "bias out of bounds")]
fn a_bias_offset_that_overflows_panics() {
    let gemm = Gemm { sizes: [2, 2, 1], a: (0, [1, 1]), b: (2, [2, 1]), out: (4, [2, 1]), accumulate: false };
    let outside = ExternalSlices { from: &[], to: &mut [], external: [None; 3] };
    let epilogue = Some(Epilogue { bias: usize::MAX, relu: false });
    multiply_external(&mut [1.0f32; 8], &[gemm], epilogue, outside);
}

#[test]
fn strides_that_are_not_used_may_be_any_number() {
    let far = usize::MAX;
    let gemm = Gemm {
        sizes: [3, 3, 1],
        a: (0, [1, far]),
        b: (3, [1 << 63, 1]),
        out: (6, [3, 1]),
        accumulate: false,
    };
    let mut memory: Vec<f64> = (1..16).map(f64::from).collect();
    multiply(&mut memory, &gemm);
    assert_eq!(memory[6..], [4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 12.0, 15.0, 18.0]);
}

proptest! {
    #![proptest_config(cases(64))]

    /// A single row that skips zeros has the same bits as one that does not, also with non-finite elements.
    #[test]
    fn a_single_row_that_skips_zeros_has_the_same_bits(
        columns in 2usize..80, depth in 1usize..600, percent in 0usize..101, gap in 0usize..3, accumulate: bool,
        relu in prop::option::of(any::<bool>()),
        special in prop::option::of((0usize..1000, prop::sample::select(vec![f32::NAN, f32::INFINITY]))),
        seed: usize,
    ) {
        let gemm = gemm([1, columns, depth], [false; 3], gap, accumulate);
        let bias = gemm.end_of_result();
        let mut numbers = [whole_numbers(&gemm), (0..columns).map(|j| j as f32 * 3.0 - 20.0).collect()].concat();
        numbers[..depth].copy_from_slice(&partly_zero(depth, percent, seed));
        if let Some((index, value)) = special {
            numbers[gemm.b.0 + index % depth * (columns + gap) + index % columns] = value;
        }
        let epilogue = relu.map(|relu| Epilogue { bias, relu });
        on_every_level(|| {
            let mut right = numbers.clone();
            let outside = ExternalSlices { from: &[], to: &mut [], external: [None; 3] };
            multiply_external(&mut right, &[gemm], epilogue, outside);
            let mut ours = numbers.clone();
            let mut panels = PreparedRhs::new(&gemm).unwrap();
            panels.pack(&ours, &gemm);
            assert_eq!(panels.is_finite, special.is_none());
            multiply_prepared(&mut ours, &gemm, epilogue, &panels);
            let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || x.is_nan() && y.is_nan();
            assert!(ours.iter().zip(&right).all(same), "{gemm:?}");
        });
    }
}

/// One row, and one row after a block of rows, with several packed panels.
#[test]
#[cfg_attr(miri, ignore = "too long")]
fn single_rows_with_packed_panels_equal_the_reference() {
    for (rows, accumulate) in [(1, false), (1, true), (97, false), (97, true)] {
        let gemm = gemm([rows, 300, 401], [false; 3], 0, accumulate);
        let mut right = whole_numbers(&gemm);
        reference(&mut right, &gemm);
        on_every_level(|| assert!(multiplied_packed(&gemm) == right, "{gemm:?}"));
    }
}

proptest! {
    #![proptest_config(cases(256))]

    #[test]
    fn packed_matrices_give_the_bits_of_unpacked_ones(
        rows in 1usize..8, columns in 2usize..150, depth in 1usize..420, transposed: bool, percent in 0usize..100,
        accumulate: bool, relu in prop::option::of(any::<bool>()), special in prop::option::of(0usize..10_000),
    ) {
        let gemm = gemm([rows, columns, depth], [transposed, false, false], 1, accumulate);
        let bias = gemm.end_of_result();
        let mut numbers = partly_zero(gemm.b.0, percent, columns);
        numbers.extend(partly_zero(bias + columns - gemm.b.0, 95, depth));
        if let Some(at) = special {
            numbers[gemm.b.0 + at % depth * (columns + 1)] = f32::INFINITY;
        }
        let epilogue = relu.map(|relu| Epilogue { bias, relu });
        on_every_level(|| {
            let matrix = PackedMatrix::pack(&numbers, [depth, columns], gemm.b);
            let mut right = numbers.clone();
            let outside = ExternalSlices { from: &[], to: &mut [], external: [None; 3] };
            multiply_external(&mut right, &[gemm], epilogue, outside);
            let mut ours = numbers.clone();
            multiply_packed(&mut ours, &[gemm], epilogue, &matrix);
            // Halves that are expanded are the rounded matrix.
            let (half, mut rounded) = (matrix.to_half(), numbers.clone());
            half.unpack(&mut rounded, gemm.b);
            let [mut expanded, mut packed] = [0, 1].map(|_| rounded.clone());
            multiply_packed(&mut expanded, &[gemm], epilogue, &half);
            multiply_packed(&mut packed, &[gemm], epilogue, &PackedMatrix::pack(&rounded, [depth, columns], gemm.b));
            let bits = |x: &f32| if x.is_nan() { 0 } else { x.to_bits() };
            assert!(expanded.iter().map(bits).eq(packed.iter().map(bits)), "{gemm:?}");
            assert_eq!(2 * half.bytes(), matrix.bytes());
            // A sum of -0 may stay -0.
            let same = |(x, y): (&f32, &f32)| x.to_bits() == y.to_bits() || x == y && *x == 0.0 || x.is_nan() && y.is_nan();
            assert!(ours.iter().zip(&right).all(same), "{gemm:?}");
        });
    }

    #[test]
    fn unpacking_is_the_inverse_of_packing(sizes in prop::array::uniform2(1usize..800), transposed: bool, gap in 0usize..3) {
        let sizes = [sizes[0], sizes[1] % 100 + 1];
        let strides = strides(sizes[0], sizes[1], transposed, gap);
        let numbers: Vec<f32> = (0..span(sizes[0], sizes[1], strides) + 2).map(|i| f32::from_bits((i * 2_654_435) as u32)).collect();
        on_every_level(|| {
            let matrix = PackedMatrix::pack(&numbers, sizes, (2, strides));
            assert!(matrix.bytes() >= 4 * sizes[0] * sizes[1] && matrix.sizes() == sizes);
            let mut again = vec![f32::from_bits(1); numbers.len()];
            matrix.unpack(&mut again, (2, strides));
            for (row, column) in (0..sizes[0]).flat_map(|row| (0..sizes[1]).map(move |column| (row, column))) {
                let at = 2 + row * strides[0] + column * strides[1];
                assert_eq!(again[at].to_bits(), numbers[at].to_bits(), "{row} {column}");
            }
        });
    }
}

#[test]
#[cfg_attr(miri, ignore = "too long")]
fn batches_with_one_packed_matrix_have_the_same_bits_on_any_number_of_threads() {
    let [batch, m, n, k] = [5, 90, 80, 100];
    let out = batch * m * k;
    let gemm: Vec<Gemm> = (0..batch)
        .map(|i| Gemm {
            sizes: [m, n, k],
            a: (i * m * k, [k, 1]),
            b: (usize::MAX, [n, 1]),
            out: (out + i * m * n, [n, 1]),
            accumulate: i % 2 == 0,
        })
        .collect();
    let numbers = partly_zero(out + batch * m * n, 90, 3);
    let matrix = PackedMatrix::pack(&numbers, [k, n], (7, [n, 1]));
    let results = [1, 2, 3].map(|threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut memory = numbers.clone();
        pool.install(|| multiply_packed(&mut memory, &gemm, None, &matrix));
        memory
    });
    assert!(results.iter().all(|result| *result == results[0]) && results[0] != numbers);
}

/// A thread that computes one of three rows must not skip zeros that the others multiply: a sum of -0 would keep its sign.
#[test]
#[cfg_attr(miri, ignore = "too long")]
fn few_rows_with_a_packed_matrix_have_the_same_bits_on_any_number_of_threads() {
    let gemm = gemm([3, 2, 400_000], [false; 3], 0, true);
    let mut memory = vec![0.0; gemm.b.0];
    memory.resize(gemm.out.0, 1.0);
    memory.resize(gemm.end_of_result(), -0.0);
    let matrix = PackedMatrix::pack(&memory, [400_000, 2], gemm.b);
    for threads in [1, 2, 3] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let mut memory = memory.clone();
        pool.install(|| multiply_packed(&mut memory, &[gemm], None, &matrix));
        let signs: Vec<bool> = memory[gemm.out.0..].iter().map(|x| x.is_sign_negative()).collect();
        assert_eq!(signs, [false; 6], "{threads} threads");
    }
}

/// Takes no time: nothing is done for each of the rows.
#[test]
fn results_without_elements_may_have_any_number_of_rows() {
    let strides = [usize::MAX; 2];
    for (sizes, accumulate) in
        [([usize::MAX, 0, 0], false), ([usize::MAX, 0, 1], true), ([0, usize::MAX, 0], false)]
    {
        let gemm = Gemm { sizes, a: (0, [0, 1]), b: (0, strides), out: (0, strides), accumulate };
        let epilogue = Some(Epilogue { bias: 0, relu: true });
        let outside = ExternalSlices { from: &[], to: &mut [], external: [None; 3] };
        let epilogue = epilogue.filter(|_| sizes[1] == 0);
        multiply_external(&mut [1.0f64; 1], &[gemm], epilogue, outside);
        multiply(&mut [1.0f32; 1], &gemm);
    }
    let matrix = PackedMatrix::pack(&[], [1, 0], (0, [0, 1]));
    let gemm = Gemm {
        sizes: [usize::MAX, 0, 1],
        a: (0, [0, 1]),
        b: (0, [0, 1]),
        out: (0, [0, 1]),
        accumulate: false,
    };
    multiply_packed(&mut [1.0], &[gemm], None, &matrix);
}
