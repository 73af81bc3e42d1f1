//! Reports of the progress of training, and its cancellation.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gatework_train::trainer::{Attempt, Observer, Settings};

/// The progress of training after an epoch.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Progress {
    /// The finished epochs.
    pub epoch: u64,
    /// The maximum number of epochs. Early stopping may end training before.
    pub epochs: u64,
    /// Mean training loss of the epoch.
    pub training_loss: f64,
    /// Validation loss after the epoch; `None` before the validation start epoch.
    pub validation_loss: Option<f64>,
    /// The time since training began.
    pub elapsed: Duration,
    /// The estimated time until the last epoch.
    pub time_left: Duration,
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Progress { epoch, epochs, training_loss, validation_loss, time_left, .. } = self;
        write!(f, "epoch {epoch} of {epochs}, loss {training_loss:.4}")?;
        if let Some(loss) = validation_loss {
            write!(f, ", validation loss {loss:.4}")?;
        }
        write!(f, ", {:.0} s left", time_left.as_secs_f64())
    }
}

/// What a progress callback returns: nothing, or whether to continue.
pub trait Reply {
    /// Returns whether to continue.
    fn flow(self) -> ControlFlow<()>;
}

impl Reply for () {
    fn flow(self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Reply for ControlFlow<()> {
    fn flow(self) -> ControlFlow<()> {
        self
    }
}

/// A progress callback.
pub(super) type Callback<'a> = Box<dyn FnMut(&Progress) -> ControlFlow<()> + Send + 'a>;

/// Calls the callback after every epoch, and stops training when it or the user's flag says so.
pub(super) struct Reporter<'a, 'b> {
    pub callback: Option<&'b Mutex<Callback<'a>>>,
    /// The user's flag.
    pub cancel: Option<&'a AtomicBool>,
    /// The flag that the trainer polls.
    pub stop: &'b AtomicBool,
    pub settings: &'b Settings,
    pub updates_per_epoch: u64,
}

impl Reporter<'_, '_> {
    /// Returns the progress, if an epoch has just ended. Its validation loss is that of the update after its last one.
    fn progress(&self, attempt: &Attempt) -> Option<Progress> {
        let done = attempt.update.checked_sub(1).filter(|done| *done > 0)?;
        let length = self.updates_per_epoch.max(1);
        if !done.is_multiple_of(length) {
            return None;
        }
        let (after, losses) = attempt.metrics.get(..=done as usize)?.split_last()?;
        let losses = &losses[losses.len().saturating_sub(length as usize)..];
        let left = self.settings.updates.saturating_sub(attempt.update) as f64 / attempt.update as f64;
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Some(Progress {
            epoch: done / length,
            epochs: self.settings.updates.saturating_sub(1) / length,
            training_loss: losses.iter().map(|metric| metric.soft).sum::<f64>() / losses.len() as f64,
            validation_loss: after.hard,
            elapsed: seconds(attempt.seconds),
            time_left: seconds(attempt.seconds * left),
        })
    }
}

impl Observer for Reporter<'_, '_> {
    fn updated(&self, attempt: &Attempt) {
        let mut stop = self.cancel.is_some_and(|cancel| cancel.load(Ordering::Relaxed));
        if let (Some(callback), Some(progress)) = (self.callback, self.progress(attempt)) {
            let mut callback = callback.lock().unwrap_or_else(PoisonError::into_inner);
            stop |= callback(&progress).is_break();
        }
        if stop {
            self.stop.store(true, Ordering::SeqCst);
        }
    }
}
