//! Local search by resubstitution: greedy descent, and random walks that never add gates.
//!
//! Each step searches a gate's replacements of up to two gates. One with a gain is applied at once; otherwise a walk
//! applies a random one of zero gain. Such plateau moves change the structure, and with it the replacements that later
//! steps find. The seed is fixed, so the search is deterministic.

use super::resubstitution::{Replacement, SimulatedXag};
use crate::prove::sweep::Random;
use crate::stop::{Stop, Stopped};
use crate::xag::Xag;

/// Searches the replacements of a gate with up to `gates` gates, at most `limit` of them. Returns the first one with
/// a gain, or else a uniformly random one of zero gain, together with its gain.
fn choose(
    xag: &SimulatedXag,
    node: usize,
    gates: usize,
    start: usize,
    limit: usize,
    random: &mut Random,
) -> Option<(isize, Replacement)> {
    let (mut seen, mut kept) = (0, None);
    xag.search(node, gates, start, &mut |gain, replacement| {
        seen += 1;
        if gain > 0 || random.below(seen) == 0 {
            kept = Some((gain, replacement));
        }
        gain <= 0 && seen < limit
    });
    kept
}

/// Applies every replacement with a gain until no gate has one: first replacements without gates, which are the
/// fastest to find, then with one gate and so on up to `gates`.
pub(super) fn descend(xag: &Xag, gates: usize, stop: &Stop<'_>) -> Result<Xag, Stopped> {
    let mut xag = SimulatedXag::new(xag.clone());
    for gates in 0..=gates {
        xag = descend_with(xag, gates, stop)?;
    }
    Ok(xag.into_xag())
}

/// Cycles through the gates until none of them has a replacement with a gain.
fn descend_with(mut xag: SimulatedXag, gates: usize, stop: &Stop<'_>) -> Result<SimulatedXag, Stopped> {
    let mut random = Random(1);
    let (mut node, mut failures) = (0, 0);
    while failures < xag.xag().gates() {
        stop.check()?;
        let range = xag.xag().gate_range();
        node = if range.contains(&node) { node } else { range.start };
        match choose(&xag, node, gates, 0, usize::MAX, &mut random) {
            Some((gain, replacement)) if gain > 0 => {
                xag = SimulatedXag::new(xag.replace(node, &replacement));
                failures = 0;
            }
            _ => failures += 1,
        }
        node += 1;
    }
    Ok(xag)
}

/// Walks until `patience` consecutive steps have saved no gate.
pub(super) fn walk(xag: &Xag, patience: usize, seed: u64, stop: &Stop<'_>) -> Result<Xag, Stopped> {
    let mut random = Random(seed);
    let mut xag = SimulatedXag::new(xag.clone());
    let mut failures = 0;
    while failures < patience && xag.xag().gates() > 0 {
        stop.check()?;
        let range = xag.xag().gate_range();
        let node = range.start + random.below(range.len());
        let (start, gates) = (random.below(range.end), 1 + random.below(2));
        failures += 1;
        if let Some((_, replacement)) = choose(&xag, node, gates, start, 200, &mut random) {
            let next = xag.replace(node, &replacement);
            if next.gates() < xag.xag().gates() {
                failures = 0;
            }
            xag = SimulatedXag::new(next);
        }
    }
    Ok(xag.into_xag())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arbitrary;
    use crate::prove::{Verdict, equivalent};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn the_search_preserves_the_function_and_adds_no_gates(
            circuit in arbitrary::circuit(0..=8, 60),
            seed in 0u64..9,
        ) {
            let xag = Xag::from_circuit(&circuit).without_dead_gates();
            let stop = Stop::never();
            let descended = descend(&xag, 2, &stop).unwrap();
            let walked = walk(&descended, 100, seed, &stop).unwrap();
            prop_assert!(descended.gates() <= xag.gates() && walked.gates() <= descended.gates());
            prop_assert_eq!(descend(&descended, 2, &stop).unwrap().gates(), descended.gates());
            for xag in [descended, walked] {
                prop_assert_eq!(equivalent(&circuit, &xag.to_circuit(&circuit)), Ok(Verdict::Equal));
            }
        }
    }
}
