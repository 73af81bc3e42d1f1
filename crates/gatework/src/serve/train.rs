//! Trainings that the page starts. Each is a process of its own, `gatework train`, which writes a run folder: a crash or kill of
//! the server does not touch it, and to stop it is a Ctrl-C, after which it can be resumed.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use gatework_gates::automata::choose;
use gatework_gates::automata::states::Phase;
use gatework_train::files;
use gatework_train::run_folder::RunFolder;
use serde::Deserialize;
use serde_json::{Value, json};

use super::problem::Problem;
use super::runs::{Runs, is_name};
use crate::experiment::{self, Loaded};

/// The number of lines of output that are kept of a training.
const MAX_LINES: usize = 40;

/// The maximum length of a line that is kept, in characters.
const MAX_LINE: usize = 400;

/// The number of trainings that are remembered.
const MAX_JOBS: usize = 100;

/// What is to be done. Exactly one of `experiment`, `picture`, `resume` and `minimize` is given.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Request {
    /// The name of a built-in experiment, or a rule such as `B36/S23`.
    experiment: Option<String>,
    /// A picture to grow: a PNG image in base64, a pixel for a cell.
    picture: Option<String>,
    /// The name of an interrupted run.
    resume: Option<String>,
    /// The name of a run whose circuit is to be minimised.
    minimize: Option<String>,
    /// The name of the new run.
    name: Option<String>,
    /// The seed.
    seed: Option<u64>,
    /// Whether the picture is a tile that repeats over the plane.
    repeat: bool,
}

/// The trainings of this server.
pub struct Trainings {
    program: Option<PathBuf>,
    limit: usize,
    jobs: Mutex<Vec<Arc<Job>>>,
}

struct Job {
    name: String,
    state: Mutex<JobState>,
}

struct JobState {
    child: Child,
    /// The exit status: whether it is a success.
    ended: Option<bool>,
    is_stopped: bool,
    lines: VecDeque<String>,
    /// The picture that is grown, which the run folder has a copy of.
    drawing: Option<PathBuf>,
}

/// Returns the built-in experiments.
pub fn experiments() -> Vec<Value> {
    let found = experiment::built_in().filter_map(|(name, _)| Some((name, Loaded::find(name).ok()?)));
    found
        .map(|(name, loaded)| {
            let [_, expected, about] = loaded.texts();
            let kind = match &loaded {
                Loaded::Automaton(_) => "automaton",
                Loaded::Classifier(_) => "classifier",
                Loaded::Forecaster(_) => "forecaster",
            };
            json!({ "name": name, "kind": kind, "expected": expected, "about": about })
        })
        .collect()
}

/// Whether a text names a rule of an automaton, as opposed to a file or an option.
fn is_rule(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    let is_life =
        upper.starts_with('B') && upper[1..].chars().all(|c| c.is_ascii_digit() || "/SCG".contains(c));
    let number = upper.strip_prefix("RULE:");
    is_life || number.is_some_and(|number| !number.is_empty() && number.chars().all(|c| c.is_ascii_digit()))
}

impl Trainings {
    pub fn new(program: Option<PathBuf>, limit: usize) -> Trainings {
        Trainings { program, limit, jobs: Mutex::new(Vec::new()) }
    }

    /// Starts a training and returns the name of its run.
    pub fn start(&self, request: &Request, runs: &Runs) -> Result<String, Problem> {
        let program =
            self.program.as_ref().ok_or_else(|| Problem::not_found("this server does not train"))?;
        let mut jobs = self.jobs();
        if jobs.iter().filter(|job| job.state().ended.is_none()).count() >= self.limit {
            let detail =
                format!("{} trainings are running, which is the limit; stop one or wait", self.limit);
            return Err(Problem::conflict(detail));
        }
        let Planned { name, command, drawing } = plan(program, request, runs)?;
        if jobs.iter().any(|job| job.name == name && job.state().ended.is_none()) {
            if let Some(file) = &drawing {
                remove_drawing(file);
            }
            return Err(Problem::conflict(format!(
                "run {name:?} is being worked on already; stop that or wait"
            )));
        }
        let child = spawn(command).map_err(|error| {
            if let Some(file) = &drawing {
                remove_drawing(file);
            }
            Problem::internal(format!("cannot start {}: {error}", program.display()))
        })?;
        let job = Job::watch(name.clone(), child, drawing);
        jobs.retain(|other| other.name != name || other.state().ended.is_none());
        if jobs.len() >= MAX_JOBS
            && let Some(place) = jobs.iter().position(|job| job.state().ended.is_some())
        {
            jobs.remove(place);
        }
        jobs.push(job);
        Ok(name)
    }

    /// Tells a training to stop.
    pub fn stop(&self, name: &str) -> Result<(), Problem> {
        let job = self.find(name).filter(|job| job.state().ended.is_none());
        let job = job.ok_or_else(|| {
            Problem::conflict(format!(
                "this server trains no run {name:?}; a training that was started elsewhere is stopped there, with Ctrl-C"
            ))
        })?;
        job.interrupt();
        Ok(())
    }

    /// Stops all trainings, and waits until they have written their checkpoints.
    pub fn stop_all(&self, most: Duration) {
        let jobs = self.jobs().clone();
        for job in &jobs {
            job.interrupt();
        }
        let begin = Instant::now();
        while jobs.iter().any(|job| job.state().ended.is_none()) && begin.elapsed() < most {
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Returns what is known of all trainings.
    pub fn all(&self) -> Vec<Value> {
        self.jobs().iter().map(|job| job.describe()).collect()
    }

    /// Returns what is known of the training of a run.
    pub fn of(&self, name: &str) -> Option<Value> {
        self.find(name).map(|job| job.describe())
    }

    fn find(&self, name: &str) -> Option<Arc<Job>> {
        self.jobs().iter().rev().find(|job| job.name == name).cloned()
    }

    fn jobs(&self) -> MutexGuard<'_, Vec<Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Job {
    /// Follows a process until it ends.
    fn watch(name: String, mut child: Child, drawing: Option<PathBuf>) -> Arc<Job> {
        let stderr = child.stderr.take();
        let state = JobState { child, ended: None, is_stopped: false, lines: VecDeque::new(), drawing };
        let job = Arc::new(Job { name, state: Mutex::new(state) });
        let watched = Arc::clone(&job);
        std::thread::spawn(move || {
            for line in stderr.into_iter().flat_map(|stderr| BufReader::new(stderr).lines()) {
                let Ok(line) = line else { continue };
                let mut state = watched.state();
                if state.lines.len() >= MAX_LINES {
                    state.lines.pop_front();
                }
                state.lines.push_back(line.chars().take(MAX_LINE).collect());
            }
            // The process has closed its output: it ends now. Its id is free only after this.
            let mut state = watched.state();
            let is_success = state.child.wait().is_ok_and(|status| status.success());
            state.ended = Some(is_success);
            state.drawing.take().iter().for_each(|file| remove_drawing(file));
        });
        job
    }

    /// Sends Ctrl-C, unless the process has ended.
    fn interrupt(&self) {
        let mut state = self.state();
        if state.ended.is_some() {
            return;
        }
        state.is_stopped = true;
        #[cfg(unix)]
        {
            use nix::sys::signal::{Signal, kill};
            let id = nix::unistd::Pid::from_raw(state.child.id() as i32);
            // The process may have ended meanwhile; nobody else can have its id before it is waited for.
            let _ = kill(id, Signal::SIGINT);
        }
        #[cfg(not(unix))]
        let _ = state.child.kill();
    }

    fn describe(&self) -> Value {
        let state = self.state();
        let error = state.ended.filter(|is_success| !is_success && !state.is_stopped).map(|_| {
            let errors = state.lines.iter().rev().find_map(|line| line.strip_prefix("error: "));
            errors.or(state.lines.back().map(String::as_str)).unwrap_or("the training has failed")
        });
        json!({
            "name": self.name, "is_running": state.ended.is_none(), "is_stopped": state.is_stopped, "error": error,
            "lines": state.lines,
        })
    }

    fn state(&self) -> MutexGuard<'_, JobState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A training that can be started.
struct Planned {
    name: String,
    command: Command,
    drawing: Option<PathBuf>,
}

/// Checks a request. What is wrong is said now, not by the process.
fn plan(program: &Path, request: &Request, runs: &Runs) -> Result<Planned, Problem> {
    let Request { experiment, picture, resume, minimize, .. } = request;
    let mut planned = match (experiment, picture, resume, minimize) {
        (Some(experiment), None, None, None) => plan_experiment(program, experiment, request, runs)?,
        (None, Some(picture), None, None) => plan_drawing(program, picture, request, runs)?,
        (None, None, Some(name), None) => return plan_resume(program, name, runs),
        (None, None, None, Some(name)) => return plan_minimize(program, name, runs),
        _ => {
            let detail = "expected exactly one of \"experiment\", \"picture\", \"resume\" and \"minimize\"";
            return Err(Problem::bad_request(detail));
        }
    };
    if let Some(seed) = request.seed {
        planned.command.arg("--seed").arg(seed.to_string());
    }
    Ok(planned)
}

fn plan_experiment(
    program: &Path,
    experiment: &str,
    request: &Request,
    runs: &Runs,
) -> Result<Planned, Problem> {
    if !is_rule(experiment) && !experiment::built_in().any(|(name, _)| name == experiment) {
        let detail = format!("{experiment:?} is neither a built-in experiment nor a rule such as B36/S23");
        return Err(Problem::unprocessable(detail));
    }
    let loaded = Loaded::find(experiment).map_err(|error| Problem::unprocessable(error.to_string()))?;
    let (name, path) = unused(runs, request.name.as_deref().unwrap_or(loaded.texts()[0]))?;
    let mut command = Command::new(program);
    command.arg("train").arg(experiment).arg("--out").arg(path);
    Ok(Planned { name, command, drawing: None })
}

fn plan_drawing(program: &Path, picture: &str, request: &Request, runs: &Runs) -> Result<Planned, Problem> {
    let (name, path) = unused(runs, request.name.as_deref().unwrap_or("drawing"))?;
    let file = draw(picture, &name)?;
    let chosen =
        if request.repeat { choose::pattern(&file, false, Phase::Anchored) } else { choose::picture(&file) };
    if let Err(error) = chosen {
        remove_drawing(&file);
        let text = error.to_string();
        // The path of the drawing says nothing to those who drew it.
        let text = text.strip_prefix(&format!("{}: ", file.display())).unwrap_or(&text);
        return Err(Problem::unprocessable(text));
    }
    let mut command = Command::new(program);
    command.arg("grow").arg(&file).arg("--out").arg(path);
    if request.repeat {
        command.arg("--repeat");
    }
    Ok(Planned { name, command, drawing: Some(file) })
}

fn plan_resume(program: &Path, name: &str, runs: &Runs) -> Result<Planned, Problem> {
    let run = runs.find(name)?;
    if RunFolder::at(&run.path).summary().is_ok_and(|summary| summary.is_some()) {
        return Err(Problem::conflict(format!("run {name:?} is finished; there is nothing to resume")));
    }
    if RunFolder::is_in_use(&run.path) {
        return Err(Problem::conflict(format!("run {name:?} is being trained already")));
    }
    let mut command = Command::new(program);
    command.arg("train").arg(run.path.join("experiment.toml")).arg("--resume").arg("--out").arg(&run.path);
    Ok(Planned { name: run.name, command, drawing: None })
}

fn plan_minimize(program: &Path, name: &str, runs: &Runs) -> Result<Planned, Problem> {
    let run = runs.find(name)?;
    if !run.path.join("circuit.json").is_file() {
        return Err(Problem::conflict(format!(
            "run {name:?} has no circuit; automata and classifiers have one"
        )));
    }
    let mut command = Command::new(program);
    command.arg("minimize").arg(&run.path);
    Ok(Planned { name: run.name, command, drawing: None })
}

/// Starts a process that a Ctrl-C in the terminal of the server does not reach: the server passes it on.
fn spawn(mut command: Command) -> std::io::Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    #[cfg(unix)]
    std::os::unix::process::CommandExt::process_group(&mut command, 0);
    command.spawn()
}

/// Returns the first of NAME, NAME-2, ... that is free, and its path.
fn unused(runs: &Runs, name: &str) -> Result<(String, PathBuf), Problem> {
    if !is_name(name) || name.starts_with('-') {
        return Err(Problem::unprocessable(format!(
            "{name:?} cannot be the name of a run; use letters and digits"
        )));
    }
    let folder = runs.folder();
    let mut names = (1..).map(|n| if n == 1 { name.to_string() } else { format!("{name}-{n}") });
    let name = names.find(|name| RunFolder::is_unused(&folder.join(name)) && runs.find(name).is_err());
    let name = name.unwrap_or_default();
    let path = folder.join(&name);
    Ok((name, path))
}

/// Writes a drawing into a temporary folder of its own, under the name of the run.
fn draw(picture: &str, name: &str) -> Result<PathBuf, Problem> {
    let picture = picture.rsplit_once("base64,").map_or(picture, |(_, data)| data);
    let bytes = BASE64_STANDARD
        .decode(picture)
        .map_err(|error| Problem::unprocessable(format!("the picture is not base64: {error}")))?;
    let failed =
        |error: &dyn std::fmt::Display| Problem::internal(format!("cannot keep the drawing: {error}"));
    let parent = std::env::temp_dir();
    let process = std::process::id();
    let create =
        |n: &u32| std::fs::create_dir(parent.join(format!("gatework-drawing-{process}-{n}"))).is_ok();
    let number = (0..100_000).find(create).ok_or_else(|| failed(&"the folder of temporary files is full"))?;
    let file = parent.join(format!("gatework-drawing-{process}-{number}")).join(format!("{name}.png"));
    files::write_atomic(&file, &bytes).map_err(|error| failed(&error))?;
    Ok(file)
}

/// Removes a drawing and its folder.
fn remove_drawing(file: &Path) {
    // Best effort: it is in the folder of temporary files.
    let _ = std::fs::remove_file(file);
    let _ = file.parent().map(std::fs::remove_dir);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_rules_are_rules() {
        for rule in ["B36/S23", "b3/s23", "B2/S/C3", "rule:110"] {
            assert!(is_rule(rule), "{rule}");
        }
        for other in
            ["", "-B", "../x.toml", "/etc/passwd", "rule:", "rule:1/../x", "Bé", "heart.png", "--help"]
        {
            assert!(!is_rule(other), "{other}");
        }
    }
}
