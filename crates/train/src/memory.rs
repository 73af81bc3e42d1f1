//! Checks that the memory which settings ask for is available, before it is allocated.
//!
//! Most allocations are deep inside libraries, where a failure ends the process. Their size is known beforehand.

/// Memory that the process cannot have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} would need about {} of memory, more than is available", size(*bytes as f64))]
pub struct OutOfMemory {
    /// What the memory is for, with the settings that determine its size.
    pub what: String,
    /// The number of bytes.
    pub bytes: usize,
}

/// Returns an error if this many bytes cannot be reserved at present. `what` names the settings that determine the size.
///
/// Nothing is written to the reserved memory. A system that overcommits memory grants more than it has, but not more than a
/// limit of the process (`ulimit -v`) or, by default on Linux, than physical memory and swap space together.
///
/// ```
/// use gatework_train::memory;
///
/// assert!(memory::check(1e3, || "--size 100x100".into()).is_ok());
/// let error = memory::check(1e18, || "--size 1000000000x8000000000".into()).unwrap_err();
/// assert!(error.to_string().ends_with(" would need about 1000000000.0 GB of memory, more than is available"));
/// ```
pub fn check(bytes: f64, what: impl FnOnce() -> String) -> Result<(), OutOfMemory> {
    let mut memory: Vec<u8> = Vec::new();
    // A conversion beyond the range gives the largest number, which cannot be reserved.
    let bytes = bytes as usize;
    let is_available = memory.try_reserve_exact(bytes).is_ok();
    // An allocation that is not used may be optimised away.
    std::hint::black_box(&memory);
    if is_available { Ok(()) } else { Err(OutOfMemory { what: what(), bytes }) }
}

/// Returns how many of at most `wanted` equal computations fit into memory at the same time, at least 1. `bytes` is the memory
/// that a number of them needs together.
///
/// ```
/// use gatework_train::memory;
///
/// assert_eq!(memory::concurrent(4, |count| count as f64 * 1e3), 4);
/// assert_eq!(memory::concurrent(4, |count| if count > 2 { f64::INFINITY } else { 1e3 }), 2);
/// ```
pub fn concurrent(wanted: usize, bytes: impl Fn(usize) -> f64) -> usize {
    (2..=wanted).rev().find(|&count| check(bytes(count), String::new).is_ok()).unwrap_or(1)
}

fn size(bytes: f64) -> String {
    if bytes < 1e9 { format!("{:.1} MB", bytes / 1e6) } else { format!("{:.1} GB", bytes / 1e9) }
}
