//! Progress of training and of other long commands: bars on a terminal, a line every few seconds elsewhere.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use gatework_gates::automata::run::percent;
use gatework_train::trainer::{Attempt, CheckpointError, Finishing, Observer, Outcome};
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

/// Time between lines when stderr is not a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(2);

/// Time before a [`Counter`] draws its bar: most commands end earlier.
const BAR_DELAY: Duration = Duration::from_secs(1);

/// Shows the progress of a command that counts something.
pub struct Counter {
    unit: &'static str,
    begin: Instant,
    /// Present on a terminal only.
    bar: Option<ProgressBar>,
    line: Mutex<Instant>,
}

impl Counter {
    /// Counts in this unit, in the plural.
    pub fn new(unit: &'static str) -> Counter {
        let bar = std::io::stderr().is_terminal().then(|| styled(ProgressBar::new(0)).with_prefix(unit));
        Counter { unit, begin: Instant::now(), bar, line: Mutex::new(Instant::now()) }
    }

    /// Shows that `done` of `total` units are finished.
    pub fn show(&self, done: usize, total: usize) {
        if let Some(bar) = &self.bar {
            if self.begin.elapsed() >= BAR_DELAY {
                bar.set_length(total as u64);
                bar.set_position(done as u64);
            }
            return;
        }
        let mut line = self.line.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if line.elapsed() >= LINE_INTERVAL {
            *line = Instant::now();
            status!("{done} of {total} {}", self.unit);
        }
    }
}

impl Drop for Counter {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// Sets the style of a bar.
fn styled(bar: ProgressBar) -> ProgressBar {
    let template = "{prefix:>8} {wide_bar:.cyan/blue} {pos:>5}/{len} {msg} {eta:>4}";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.progress_chars("━╸─")),
        Err(_) => bar,
    }
}

/// What the hard loss is.
#[derive(Clone, Copy)]
enum Hard {
    /// The number of wrong bits of an automaton, and the number of bits that are compared.
    Bits(usize),
    /// The share of wrong samples of a classifier, shown as the accuracy on these rows.
    Accuracy(&'static str),
    /// The validation loss of a forecaster.
    Validation,
}

/// Shows the progress of all seeds.
pub struct Progress {
    updates: u64,
    hard: Hard,
    bars: Option<MultiProgress>,
    shown: Mutex<BTreeMap<u64, Shown>>,
}

struct Shown {
    bar: ProgressBar,
    begin: Instant,
    begin_update: u64,
    line: Instant,
    /// What is done after the updates.
    stage: &'static str,
}

impl Progress {
    /// Shows automata that are trained for at most `updates` updates, each of which compares `bits` bits.
    pub fn new(updates: u64, bits: usize) -> Progress {
        let bars = std::io::stderr().is_terminal().then(MultiProgress::new);
        Progress { updates, hard: Hard::Bits(bits), bars, shown: Mutex::new(BTreeMap::new()) }
    }

    /// Shows forecasters, whose hard loss is the validation loss.
    pub fn forecaster(updates: u64) -> Progress {
        let mut progress = Progress::new(updates, 0);
        progress.hard = Hard::Validation;
        progress
    }

    /// Shows classifiers, whose hard loss is the share of wrong samples of `rows`, such as "validation".
    pub fn classifier(updates: u64, rows: &'static str) -> Progress {
        let mut progress = Progress::new(updates, 0);
        progress.hard = Hard::Accuracy(rows);
        progress
    }

    fn start(&self, attempt: &Attempt) -> Shown {
        let bar = match &self.bars {
            Some(bars) => styled(bars.add(ProgressBar::new(self.updates))),
            None => ProgressBar::hidden(),
        };
        bar.set_prefix(format!("seed {}", attempt.seed));
        // A resumed run does not start from 0: the remaining time is estimated from here.
        bar.set_position(attempt.update);
        bar.reset_eta();
        Shown { bar, begin: Instant::now(), begin_update: attempt.update, line: Instant::now(), stage: "" }
    }
}

fn message(attempt: &Attempt, shown: &Shown, kind: Hard) -> String {
    let Some(last) = attempt.metrics.last() else { return String::new() };
    let speed = (attempt.update - shown.begin_update) as f64 / shown.begin.elapsed().as_secs_f64().max(1e-9);
    let hard = attempt.metrics.iter().rev().find_map(|metric| metric.hard);
    let rounded =
        |hard: Option<f64>| hard.map_or_else(String::new, |hard| ((hard * 1e4).round() / 1e4).to_string());
    let hard = match kind {
        Hard::Bits(bits) => {
            let percent = hard.map_or(0.0, |hard| percent(hard, bits));
            return format!(
                "loss {:<8.3} hard {:<5} accuracy {percent:>6.2} % {:>6.3} s/update",
                last.soft,
                rounded(hard),
                if speed > 0.0 { 1.0 / speed } else { 0.0 }
            );
        }
        Hard::Validation => format!("validation {:<5}", rounded(hard)),
        Hard::Accuracy(rows) => {
            let percent = hard.map_or_else(String::new, |hard| format!("{:.2} %", 100.0 * (1.0 - hard)));
            format!("{rows} accuracy {percent:<5}")
        }
    };
    format!("loss {:<8.3} {hard} {speed:>5.0} updates/s", last.soft)
}

impl Observer for Progress {
    fn damaged(&self, error: &CheckpointError) {
        let cause = match error {
            CheckpointError::Damaged { path, problem } => format!("{}: {problem}", path.display()),
            error => error.to_string(),
        };
        let message = format!("warning: {cause}; training continues from the checkpoint before it");
        match &self.bars {
            Some(bars) => drop(bars.println(crate::output::one_line(&message))),
            None => status!("{message}"),
        }
    }

    fn updated(&self, attempt: &Attempt) {
        let mut all = self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let shown = all.entry(attempt.seed).or_insert_with(|| self.start(attempt));
        if self.bars.is_some() {
            shown.bar.set_position(attempt.update);
            shown.bar.set_message(message(attempt, shown, self.hard));
        } else if shown.line.elapsed() >= LINE_INTERVAL {
            shown.line = Instant::now();
            status!(
                "seed {}: {}/{} {}",
                attempt.seed,
                attempt.update,
                self.updates,
                message(attempt, shown, self.hard)
            );
        }
    }

    fn finishing(&self, attempt: &Attempt, progress: Finishing) {
        let mut all = self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let shown = all.entry(attempt.seed).or_insert_with(|| self.start(attempt));
        let Finishing { stage, hard, done, total } = progress;
        // A stage is announced even if the last line has just been printed.
        let is_new = std::mem::replace(&mut shown.stage, stage) != stage;
        if self.bars.is_some() {
            if is_new {
                shown.bar.reset_eta();
            }
            shown.bar.set_length(total.max(1));
            shown.bar.set_position(done);
            shown.bar.set_message(format!("{stage}: {hard} wrong"));
        } else if is_new || shown.line.elapsed() >= LINE_INTERVAL {
            shown.line = Instant::now();
            let of = if total > 0 { format!(" {done}/{total} moves,") } else { String::new() };
            status!("seed {}: {stage}:{of} {hard} wrong", attempt.seed);
        }
    }

    fn finished(&self, attempt: &Attempt) {
        let all = self.shown.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let best = attempt.best.as_ref().map_or(f64::NAN, |best| best.hard);
        let (seed, update, most) = (attempt.seed, attempt.update, self.updates);
        let text = if let Hard::Accuracy(rows) = self.hard {
            let accuracy = 100.0 * (1.0 - best);
            format!("seed {seed}: {update} updates, best {rows} accuracy {accuracy:.2} %")
        } else if matches!(self.hard, Hard::Validation) {
            let end = if attempt.outcome == Outcome::Stopped { " (no further improvement)" } else { "" };
            format!("seed {seed}: {update} updates{end}, best validation loss {best:.4}")
        } else if attempt.outcome == Outcome::Succeeded {
            format!("seed {seed}: learned after {}", work(attempt))
        } else {
            // A seed that cannot become stable in time is given up if there is another one to try.
            let end = if update < most { "given up" } else { "not learned" };
            let but = match attempt.moves {
                _ if best > 0.0 => "",
                0 => ", but not on fresh start states, or not for long enough",
                _ => ", but a check on other start states or a protocol failed",
            };
            format!("seed {seed}: {end} after {}, at best {best} bits wrong{but}", work_of(attempt, most))
        };
        if let Some(shown) = all.get(&attempt.seed) {
            shown.bar.finish_and_clear();
        }
        match &self.bars {
            Some(bars) => {
                let _ = bars.println(text);
            }
            None => status!("{text}"),
        }
    }
}

/// Returns the updates of an attempt of those planned, and its search moves, as text.
fn work_of(attempt: &Attempt, most: u64) -> String {
    match attempt.moves {
        0 => format!("{} of {most} updates", attempt.update),
        _ => work(attempt),
    }
}

/// Returns the updates and search moves of an attempt as text.
pub fn work(attempt: &Attempt) -> String {
    match attempt.moves {
        0 => format!("{} updates", attempt.update),
        moves => format!("{} updates and {moves} search moves", attempt.update),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bars) = &self.bars {
            let _ = bars.clear();
        }
    }
}

/// Shows the passes of a minimisation, its proof, and the translation of the result to a file format.
pub struct Passes {
    begin: Instant,
    line: Cell<Instant>,
    spinner: ProgressBar,
}

impl Default for Passes {
    /// Shows nothing before the first pass.
    fn default() -> Passes {
        let now = Instant::now();
        Passes { begin: now, line: Cell::new(now), spinner: ProgressBar::new_spinner() }
    }
}

impl Passes {
    /// Shows the pass that begins and the number of gates. Elsewhere than on a terminal, lines that follow each other
    /// quickly are left out, but not that of the proof if the passes took long: no line may follow it for minutes.
    pub fn show(&self, pass: &str, gates: usize) {
        let text = format!("{pass}: {gates} gates");
        if std::io::stderr().is_terminal() {
            self.spinner.enable_steady_tick(Duration::from_millis(100));
            self.spinner.set_message(text);
        } else if self.is_line_due(pass, Instant::now()) {
            self.line.set(Instant::now());
            status!("{:.0} s: {text}", self.begin.elapsed().as_secs_f64());
        }
    }

    /// Calls a function that prints, without the spinner on the screen.
    pub fn pause(&self, print: impl FnOnce()) {
        self.spinner.suspend(print);
    }

    fn is_line_due(&self, pass: &str, now: Instant) -> bool {
        let since = if pass == "proof" { self.begin } else { self.line.get() };
        now.duration_since(since) >= LINE_INTERVAL
    }
}

impl Drop for Passes {
    fn drop(&mut self) {
        self.spinner.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_proof_has_a_line_after_long_passes_even_if_another_line_came_just_before() {
        let passes = Passes::default();
        let end = passes.begin + LINE_INTERVAL;
        assert!(!passes.is_line_due("proof", passes.begin));
        assert!(passes.is_line_due("sweep", end));
        passes.line.set(end);
        assert!(!passes.is_line_due("sweep", end));
        assert!(passes.is_line_due("proof", end));
    }
}
