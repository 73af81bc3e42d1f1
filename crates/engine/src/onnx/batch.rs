//! The batch axis. A graph has fixed sizes; built for two batch sizes, it shows which sizes depend on the batch.
//!
//! Two equal graphs whose sizes are linear functions of the batch agree for all batch sizes if they agree for two. Sizes that
//! are equal are fixed, and sizes with a common factor are multiples of the batch. Anything else is refused.

use super::OnnxError;
use crate::graph::{Graph, Id, Node};

/// Batch sizes that a graph is built for. Two primes, so that a size is rarely a multiple of one by chance.
pub const SIZES: [usize; 2] = [1009, 1013];

/// The size of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dim {
    /// A number.
    Fixed(usize),
    /// A multiple of the batch size.
    Batch(usize),
}

/// One graph, built for both of [`SIZES`], or twice the same graph.
#[derive(Clone, Copy)]
pub struct Pair<'a>(pub [&'a Graph; 2]);

impl<'a> Pair<'a> {
    /// The graph whose nodes are written.
    pub fn graph(&self) -> &'a Graph {
        self.0[0]
    }

    /// The outputs, which must be those of both graphs.
    pub fn outputs(&self) -> Result<&'a [(String, Id)], OnnxError> {
        let [a, b] = self.0.map(Graph::outputs);
        if a == b { Ok(a) } else { Err(OnnxError::Batch { operation: "the list of outputs".into() }) }
    }

    /// A node, which must be the same in both graphs, apart from its sizes.
    pub fn node(&self, id: Id) -> Result<&'a Node, OnnxError> {
        let [a, b] = self.0;
        let (node, other) = (a.node(id), b.nodes().get(id.0 as usize));
        let is_same =
            |other: &Node| (&node.op, &node.args, node.dtype) == (&other.op, &other.args, other.dtype);
        match other.filter(|other| is_same(other)) {
            Some(_) => Ok(node),
            None => Err(OnnxError::Batch { operation: node.op.to_string() }),
        }
    }

    /// The sizes of a node.
    pub fn dims(&self, id: Id) -> Result<Vec<Dim>, OnnxError> {
        self.node(id)?;
        let [a, b] = self.0.map(|graph| graph.shape(id));
        let dim = |(&a, &b): (&usize, &usize)| match [(a, SIZES[0]), (b, SIZES[1])] {
            _ if a == b => Some(Dim::Fixed(a)),
            [(a, p), (b, q)] if a % p == 0 && b % q == 0 && a / p == b / q => Some(Dim::Batch(a / p)),
            _ => None,
        };
        let dims: Option<Vec<Dim>> = a.iter().zip(&*b).map(dim).collect();
        match dims {
            Some(dims) if a.axes() == b.axes() => Ok(dims),
            _ => Err(OnnxError::Batch { operation: self.graph().node(id).op.to_string() }),
        }
    }
}

/// The sizes that two tensors broadcast to. Graphs are checked, so that they do.
pub fn broadcast(a: &[Dim], b: &[Dim]) -> Vec<Dim> {
    let axes = a.len().max(b.len());
    let size = |dims: &[Dim], axis: usize| {
        (axis + dims.len()).checked_sub(axes).map_or(Dim::Fixed(1), |axis| dims[axis])
    };
    let both = |axis: usize| match (size(a, axis), size(b, axis)) {
        (Dim::Fixed(1), other) | (other, _) => other,
    };
    (0..axes).map(both).collect()
}
