//! Differentiable logic cellular automata: every cell of a grid runs the same soft gate network on its 3x3 neighbourhood.
//!
//! Data flows in one direction, and each module depends on those above it only:
//!
//! | module | what is in it |
//! |---|---|
//! | [`picture`] | pictures from text, PNG and RLE files |
//! | [`family`] | patterns by their neighbourhoods |
//! | [`rule`] | rules of cellular automata by name, table or circuit |
//! | [`states`] | start states and targets |
//! | [`hard`] | hard rollouts with damage and asynchronous updates |
//! | [`cells`] | plans: the cells that a rollout computes, equal cells once |
//! | [`model`] | wires and logits; `harden` turns them into a circuit |
//! | [`rollout`] | the soft rollout, its loss and its gradient |
//! | [`experiment`] | the settings of an experiment, read from TOML and checked |
//! | `batch` | the start states, plan and targets of an update |
//! | [`evaluate`] | the protocols of an experiment, scored on the hard automaton |
//! | [`inference`] | the rule that pairs of grids follow |
//! | [`success`] | properties that success asks for, and what is known of them |
//! | `construct` | automata that are made instead of learned |
//! | [`search`] | discrete search on the hard automaton after training |
//! | [`choose`] | experiments for a picture, a rule or a pattern |
//! | [`advice`] | warnings about settings, and what to change after a failure |
//! | [`task`] | the training task: rollout, loss, gradient, then the search |
//! | [`run`] | training into a run folder, and opening one |
//! | [`study`] | success rates of many settings over many seeds |

pub mod advice;
mod batch;
pub mod cells;
pub mod choose;
mod construct;
pub mod evaluate;
pub mod experiment;
pub mod family;
pub mod hard;
pub mod inference;
pub mod model;
pub mod picture;
#[cfg(test)]
mod reference;
pub mod rollout;
pub mod rule;
pub mod run;
pub mod search;
pub mod states;
pub mod study;
pub mod success;
pub mod task;
