//! A cache of programs, by the canonical form of their graphs.

use rustc_hash::FxHashMap;

use crate::dtype::DType;
use crate::graph::Graph;
use crate::shape::Shape;

use super::{Program, ProgramError, canonical};

/// A cache of programs. Two graphs with the same canonical form share one program.
///
/// ```
/// use gatework_engine::{DType, Graph, program::ProgramCache};
///
/// let mut cache = ProgramCache::default();
/// for swap in [false, true] {
///     let mut g = Graph::new();
///     let (x, y) = (g.input("x", DType::F32, &[4])?, g.input("y", DType::F32, &[4])?);
///     let sum = if swap { g.add(y, x)? } else { g.add(x, y)? };
///     g.output("sum", sum)?;
///     cache.program(&g)?;
/// }
/// assert_eq!(cache.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Default)]
pub struct ProgramCache {
    /// By fingerprint; the canonical graphs resolve collisions.
    programs: FxHashMap<u64, Vec<(Graph, Program)>>,
}

impl ProgramCache {
    /// The program of a graph, compiled if it is new.
    pub fn program(&mut self, graph: &Graph) -> Result<Program, ProgramError> {
        let canonical = canonical(graph)?;
        let known = self.programs.entry(canonical.fingerprint()).or_default();
        let same = |(other, program): &&(Graph, Program)| {
            other.nodes() == canonical.nodes()
                && other.outputs() == canonical.outputs()
                && inputs_of(program)
                    .eq(graph.inputs().map(|(name, id)| (name, graph.dtype(id), graph.shape(id))))
        };
        if let Some((_, program)) = known.iter().find(same) {
            return Ok(program.clone());
        }
        let program = Program::compile(graph, &canonical);
        known.push((canonical, program.clone()));
        Ok(program)
    }

    /// Number of programs in the cache.
    pub fn len(&self) -> usize {
        self.programs.values().map(Vec::len).sum()
    }

    /// Whether the cache is empty.
    pub fn is_empty(&self) -> bool {
        self.programs.is_empty()
    }
}

fn inputs_of(program: &Program) -> impl Iterator<Item = (&str, DType, Shape)> {
    program.inputs.iter().map(|port| (port.name.as_str(), port.dtype, port.shape))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_shared_by_canonical_form_and_inputs() {
        let build = |scale: f64, unused: bool| {
            let mut g = Graph::new();
            let x = g.input("x", DType::F32, &[3]).unwrap();
            if unused {
                g.input("z", DType::F32, &[1]).unwrap();
            }
            let y = g.scale(x, scale).unwrap();
            g.output("y", y).unwrap();
            g
        };
        let mut cache = ProgramCache::default();
        assert!(cache.is_empty());
        let first = cache.program(&build(3.0, false)).unwrap();
        assert_eq!(cache.program(&build(3.0, false)).unwrap().fingerprint(), first.fingerprint());
        assert_eq!(cache.len(), 1);
        cache.program(&build(4.0, false)).unwrap();
        cache.program(&build(3.0, true)).unwrap();
        assert_eq!(cache.len(), 3);
        assert_eq!(cache.program(&Graph::new()).unwrap_err(), ProgramError::NoOutputs);
    }
}
