//! Calls that are ready to run and whose answers have been checked, for `cargo bench` and for the instruction counts.
//!
//! | module | contents |
//! |---|---|
//! | [`engine`] | element-wise functions, reductions, compiled graphs, int8 GEMM |
//! | [`learning`] | soft gates, optimisers, training updates, prediction |
//! | [`circuits`] | hard simulation, minimisation |

pub mod circuits;
pub mod engine;
pub mod learning;

/// A call that does one piece of work: everything it needs is allocated, and its answer has been checked.
pub type Call = Box<dyn FnMut()>;

/// Fails unless all values are as expected, up to an error relative to the largest expected magnitude.
fn ensure_close(values: &[f32], expected: &[f64], tolerance: f64) -> anyhow::Result<()> {
    anyhow::ensure!(values.len() == expected.len(), "{} values, expected {}", values.len(), expected.len());
    let largest = expected.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
    for (i, (&value, &expected)) in values.iter().zip(expected).enumerate() {
        let is_close = (f64::from(value) - expected).abs() <= tolerance * largest;
        anyhow::ensure!(is_close, "element {i} is {value}, expected {expected}");
    }
    Ok(())
}
