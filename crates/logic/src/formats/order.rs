//! Topological sorting of definitions that a file lists in any order.

/// Returns an order in which every definition comes after those it reads, or a cycle as the error.
///
/// `reads(i)` lists the definitions that definition `i` reads. Depth first without recursion, linear in the
/// number of definitions and reads.
pub(super) fn topological<'d, D>(count: usize, reads: impl Fn(usize) -> D) -> Result<Vec<usize>, Vec<usize>>
where
    D: Iterator<Item = usize> + 'd,
{
    #[derive(Clone, Copy, PartialEq)]
    enum State {
        New,
        Open,
        Done,
    }
    let mut state = vec![State::New; count];
    let mut order = Vec::with_capacity(count);
    // The path from a root: open definitions with their remaining reads.
    let mut path: Vec<(usize, D)> = Vec::new();
    for root in 0..count {
        if state[root] != State::New {
            continue;
        }
        state[root] = State::Open;
        path.push((root, reads(root)));
        while let Some((definition, rest)) = path.last_mut() {
            let Some(next) = rest.next() else {
                state[*definition] = State::Done;
                order.push(*definition);
                path.pop();
                continue;
            };
            match state[next] {
                State::Done => {}
                State::New => {
                    state[next] = State::Open;
                    path.push((next, reads(next)));
                }
                State::Open => {
                    let begin = path.iter().position(|(open, _)| *open == next).unwrap_or(0);
                    return Err(path[begin..].iter().map(|(open, _)| *open).collect());
                }
            }
        }
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sort(reads: &[Vec<usize>]) -> Result<Vec<usize>, Vec<usize>> {
        topological(reads.len(), |i| reads[i].iter().copied())
    }

    #[test]
    fn a_cycle_is_found() {
        assert_eq!(sort(&[vec![1], vec![2], vec![3], vec![1]]), Err(vec![1, 2, 3]));
        assert_eq!(sort(&[vec![], vec![1]]), Err(vec![1]));
    }

    #[test]
    fn long_chains_do_not_overflow_the_stack() {
        let reads: Vec<Vec<usize>> =
            (0..200_000).map(|i| if i < 199_999 { vec![i + 1] } else { vec![] }).collect();
        assert_eq!(sort(&reads).unwrap()[0], 199_999);
    }

    proptest! {
        #[test]
        fn the_order_is_topological_or_the_cycle_is_one(
            reads in (1usize..12).prop_flat_map(|n| prop::collection::vec(prop::collection::vec(0..n, 0..3), n)),
        ) {
            match sort(&reads) {
                Ok(order) => {
                    let place = |i| order.iter().position(|&other| other == i).unwrap();
                    prop_assert_eq!(order.len(), reads.len());
                    for (i, operands) in reads.iter().enumerate() {
                        prop_assert!(operands.iter().all(|&operand| place(operand) < place(i)));
                    }
                }
                Err(cycle) => {
                    for (i, definition) in cycle.iter().enumerate() {
                        prop_assert!(reads[*definition].contains(&cycle[(i + 1) % cycle.len()]));
                    }
                }
            }
        }
    }
}
