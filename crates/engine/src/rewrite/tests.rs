//! Rules on single expressions and on random graphs.

use super::*;
use crate::arbitrary;
use crate::interpret::Value;
use proptest::prelude::*;

#[test]
fn powers_of_two_are_recognised() {
    let power = |x: i32| 2f64.powi(x);
    assert!([0, 1, -1, 52, -1022, 1023].iter().all(|&x| is_power_of_two(-power(x))));
    let others = [0.0, 3.0, 1_024.000_000_000_000_2, f64::INFINITY, f64::NAN, f64::MIN_POSITIVE / 2.0];
    assert!(!others.iter().any(|&c| is_power_of_two(c)));
}

#[test]
fn an_integer_divided_by_itself_is_not_always_one() {
    let mut g = Graph::relaxed();
    let x = g.input("x", DType::I32, &[1]).unwrap();
    let y = g.div(x, x).unwrap();
    g.output("y", y).unwrap();
    let zero = Value::int(DType::I32, g.shape(x), vec![0]);
    assert_eq!(g.rewrite().interpret(&[("x", zero)]).unwrap()[0].to_f64(), [0.0]);
}

/// The fingerprint of the canonical form of an expression of x and y, `[3, 4]` each.
fn canonical(relaxed: bool, build: impl Fn(&mut Graph, Id, Id) -> Result<Id, GraphError>) -> u64 {
    let mut g = if relaxed { Graph::relaxed() } else { Graph::new() };
    let x = g.input("x", DType::F32, &[3, 4]).unwrap();
    let y = g.input("y", DType::F32, &[3, 4]).unwrap();
    let result = build(&mut g, x, y).unwrap();
    g.output("result", result).unwrap();
    g.rewrite().fingerprint()
}

#[test]
fn equivalent_expressions_have_one_canonical_form() {
    type Build = fn(&mut Graph, Id, Id) -> Result<Id, GraphError>;
    let pairs: [(Build, Build); 8] = [
        (|g, x, y| g.add(x, y), |g, x, y| g.add(y, x)),
        (
            |g, x, y| g.sub(x, y),
            |g, x, y| {
                let y = g.neg(y)?;
                g.add(y, x)
            },
        ),
        (|g, x, _| g.mul(x, x), |g, x, _| g.square(x)),
        (|g, x, _| g.scale(x, 2.0), |g, x, _| g.add(x, x)),
        (
            |g, x, _| {
                let half = g.constant(DType::F32, 4.0);
                g.div(x, half)
            },
            |g, x, _| g.scale(x, 0.25),
        ),
        (
            |g, x, _| {
                let row = g.slice(x, 0, 1, 3)?;
                g.slice(row, 0, 1, 2)
            },
            |g, x, _| g.slice(x, 0, 2, 3),
        ),
        (
            |g, x, _| {
                let t = g.transpose(x)?;
                g.transpose(t)
            },
            |_, x, _| Ok(x),
        ),
        (
            |g, x, y| {
                let (a, b) = (g.mul(x, y)?, g.exp(y)?);
                g.add(a, b)
            },
            |g, x, y| {
                let b = g.exp(y)?;
                let a = g.mul(y, x)?;
                g.add(b, a)
            },
        ),
    ];
    for (i, (one, other)) in pairs.iter().enumerate() {
        assert_eq!(canonical(false, one), canonical(false, other), "pair {i}");
    }
}

#[test]
fn identities_of_real_numbers_need_a_relaxed_graph() {
    type Build = fn(&mut Graph, Id, Id) -> Result<Id, GraphError>;
    let pairs: [(Build, Build); 4] = [
        (|g, x, _| g.offset(x, 0.0), |_, x, _| Ok(x)),
        (|g, x, _| g.sub(x, x), |g, x, _| g.zeros_like(x)),
        (
            |g, x, _| {
                let three = g.constant(DType::F32, 3.0);
                g.div(x, three)
            },
            |g, x, _| g.scale(x, 1.0 / 3.0),
        ),
        (
            |g, x, _| {
                let inner = g.scale(x, 3.0)?;
                g.scale(inner, 0.5)
            },
            |g, x, _| g.scale(x, 1.5),
        ),
    ];
    for (i, (one, other)) in pairs.iter().enumerate() {
        assert_eq!(canonical(true, one), canonical(true, other), "pair {i}");
        assert_ne!(canonical(false, one), canonical(false, other), "pair {i}");
    }
}

#[test]
fn different_expressions_have_different_canonical_forms() {
    let sub = canonical(false, Graph::sub);
    assert_ne!(sub, canonical(false, |g, x, y| g.sub(y, x)));
    assert_ne!(sub, canonical(false, Graph::add));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn rewriting_changes_no_bit(
        g in arbitrary::graph(&[DType::F32, DType::F64, DType::I32, DType::I64], 30),
        seed: u64,
    ) {
        let rewritten = g.rewrite();
        prop_assert_eq!(rewritten.check(), Ok(()));
        prop_assert!(rewritten.nodes().len() <= g.nodes().len() + 8);
        if !g.is_relaxed() {
            let values = arbitrary::values_with(&g, seed, arbitrary::SPECIAL);
            let before = g.interpret(&arbitrary::named(&values)).unwrap();
            let after = rewritten.interpret(&arbitrary::named(&values)).unwrap();
            for (before, after) in before.iter().zip(&after) {
                prop_assert_eq!((before.shape, before.dtype), (after.shape, after.dtype));
                for (a, b) in before.to_f64().iter().zip(after.to_f64()) {
                    prop_assert!(a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan(), "{} became {}\n{}\n{}", a, b, g, rewritten);
                }
            }
        }
    }

    #[test]
    fn rewriting_is_idempotent(g in arbitrary::graph(&[DType::F32, DType::I32], 30)) {
        let once = g.rewrite();
        let twice = once.rewrite();
        prop_assert_eq!(twice.nodes(), once.nodes());
    }
}
