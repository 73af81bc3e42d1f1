//! Soft cellular automata: every cell of a grid runs the same soft gate network on its 3x3 neighbourhood.
//!
//! | module | what is in it |
//! |---|---|
//! | [`experiment`] | what an experiment's TOML says, checked |
//! | [`model`] | wires and logits; `harden` turns them into a circuit |
//! | [`cells`] | which cells a roll-out has to compute, and which are the same |
//! | [`rollout`] | the soft roll-out, its loss and its gradient |
//! | [`board`] | start states and targets |
//! | `rounds` | what an update rolls out |
//! | [`task`] | all of it as something the trainer can train |
//! | [`run`] | training into a run folder, and opening one |
//! | [`hard`] | hard roll-outs with damage and asynchronous updates |
//! | [`evaluate`] | the published protocols, scored on the hard automaton |
//! | [`search`] | after training: a search on the hard automaton |
//! | [`study`] | many seeds of many settings |
//! | [`naive`] | the slow twin of the roll-out |

pub mod board;
pub mod cells;
pub mod evaluate;
pub mod experiment;
pub mod hard;
pub mod model;
pub mod naive;
pub mod rollout;
mod rounds;
pub mod run;
pub mod search;
pub mod study;
pub mod task;
