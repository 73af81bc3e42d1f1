//! Learning logic circuits: soft gates trained by gradient descent, cellular automata, discrete search.
//!
//! | module | what is in it |
//! |---|---|
//! | [`kernel`] | SIMD kernels: soft gate networks, forward and backward |
//! | [`soft`] | soft gate networks: wiring and initial values |
//! | [`automata`] | soft cellular automata: experiments, models, training, search, evaluation |

pub mod automata;
pub mod kernel;
pub mod soft;
