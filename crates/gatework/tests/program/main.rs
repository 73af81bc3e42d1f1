//! Whole-program tests of the binary `gatework`.

mod check;
mod classifier_data;
mod classifiers;
mod export;
mod faults;
mod forecast;
mod forecasts;
mod grow;
mod minimize;
mod mistakes;
mod mutation;
mod runs;
#[cfg(unix)]
mod serve;
mod verbs;

use std::path::Path;

use gatework_test_support::program::{Place, assert_says};

/// A small experiment that trains in well under a second: noise into a checkerboard of single cells.
const SMALL: &str = include_str!("small.toml");

/// A folder with `small.toml`.
fn place() -> Place {
    let place = Place::new("gatework");
    place.write("small.toml", SMALL);
    place
}

/// A folder in which the small experiment is trained into `run`.
fn trained() -> Place {
    let place = place();
    place.run("train small.toml --seed 1 --out run");
    place
}

/// True if nothing under a folder has a temporary name.
fn is_clean(folder: &Path) -> bool {
    std::fs::read_dir(folder).unwrap().all(|entry| {
        let path = entry.unwrap().path();
        path.extension().is_none_or(|e| e != "part") && (!path.is_dir() || is_clean(&path))
    })
}

/// Sends Ctrl-C to a program.
fn interrupt(child: &std::process::Child) {
    std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
}

/// Waits for a condition while a program runs.
///
/// # Panics
/// If the program ends before the condition is true, or after ten minutes.
fn wait_for(child: &mut std::process::Child, come_about: impl Fn() -> bool) {
    let begin = std::time::Instant::now();
    while !come_about() {
        let ended = child.try_wait().unwrap();
        assert!(ended.is_none() || come_about(), "ended before what was waited for: {ended:?}");
        if begin.elapsed().as_secs() > 600 {
            child.kill().unwrap();
            panic!("what was waited for never came about");
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}
