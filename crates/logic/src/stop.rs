//! When to give up a long computation: a deadline, a flag, or both.
//!
//! Minimisation and proofs poll often. Once a stop is due it stays due, so a stage that ends early cannot be followed by
//! one that does not.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// A computation ended early because its [`Stop`] was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("stopped before the end")]
pub struct Stopped;

/// The number of short steps, such as visits of a node, between two polls.
pub(crate) const STRIDE: usize = 1024;

/// A deadline and a flag that end a computation early.
///
/// ```
/// use gatework_logic::Stop;
/// use std::sync::atomic::{AtomicBool, Ordering};
/// use std::time::Duration;
///
/// let flag = AtomicBool::new(false);
/// let stop = Stop::after(Duration::from_secs(60)).or_flag(&flag);
/// assert!(!stop.is_due());
/// flag.store(true, Ordering::Relaxed);
/// assert!(stop.is_due());
/// ```
#[derive(Debug, Default)]
pub struct Stop<'a> {
    deadline: Option<Instant>,
    flag: Option<&'a AtomicBool>,
    is_due: Cell<bool>,
    /// The number of polls, and the first one at which the stop is due.
    #[cfg(test)]
    polls: (Cell<u64>, Option<u64>),
}

impl<'a> Stop<'a> {
    /// Never stops.
    pub fn never() -> Stop<'a> {
        Stop::default()
    }

    /// Stops after this time.
    pub fn after(time: Duration) -> Stop<'a> {
        Stop { deadline: Instant::now().checked_add(time), ..Stop::default() }
    }

    /// Stops also once the flag is true. There is one flag: a second call replaces it.
    #[must_use]
    pub fn or_flag(self, flag: &'a AtomicBool) -> Stop<'a> {
        Stop { flag: Some(flag), ..self }
    }

    /// Returns whether to stop. Once true, it stays true.
    pub fn is_due(&self) -> bool {
        #[cfg(test)]
        if self.count_poll() {
            self.is_due.set(true);
        }
        if !self.is_due.get() {
            let is_set = self.flag.is_some_and(|flag| flag.load(Ordering::Relaxed));
            self.is_due.set(is_set || self.deadline.is_some_and(|deadline| Instant::now() >= deadline));
        }
        self.is_due.get()
    }

    /// Returns whether the stop was due at an earlier poll, without polling.
    pub(crate) fn was_due(&self) -> bool {
        self.is_due.get()
    }

    /// Returns an error if it is time to stop.
    pub(crate) fn check(&self) -> Result<(), Stopped> {
        if self.is_due() { Err(Stopped) } else { Ok(()) }
    }

    /// Polls like [`Stop::check`] at every [`STRIDE`]-th step, for loops with short steps.
    pub(crate) fn check_at(&self, step: usize) -> Result<(), Stopped> {
        if step.is_multiple_of(STRIDE) { self.check() } else { Ok(()) }
    }
}

#[cfg(test)]
impl Stop<'_> {
    /// Stops at the given poll.
    pub fn at_poll(poll: u64) -> Self {
        Stop { polls: (Cell::new(0), Some(poll)), ..Stop::default() }
    }

    /// Returns the number of polls so far.
    pub fn polls(&self) -> u64 {
        self.polls.0.get()
    }

    fn count_poll(&self) -> bool {
        self.polls.0.set(self.polls.0.get() + 1);
        self.polls.1.is_some_and(|poll| self.polls.0.get() >= poll)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_that_was_due_stays_due() {
        let flag = AtomicBool::new(true);
        let stop = Stop::never().or_flag(&flag);
        assert!(stop.is_due());
        flag.store(false, Ordering::Relaxed);
        assert!(stop.is_due() && stop.check() == Err(Stopped));
        assert!(!Stop::never().or_flag(&flag).is_due());
    }

    #[test]
    fn a_deadline_that_has_passed_is_noticed_at_once() {
        assert!(Stop::after(Duration::ZERO).is_due());
        assert!(!Stop::after(Duration::MAX).is_due());
    }
}
