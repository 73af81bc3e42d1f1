//! `gatework train`: the run folder, threads, interruption, resumption.

use std::process::Stdio;
use std::time::UNIX_EPOCH;

use crate::{Place, SMALL, assert_says, is_clean, place, trained, wait_for};

/// Returns the TOML text of a built-in experiment.
fn built_in(name: &str) -> &'static str {
    gatework::experiment::built_in().find(|(known, _)| *known == name).map_or("", |(_, text)| text)
}

#[test]
fn a_run_folder_holds_everything_and_the_summary_says_what_came_out() {
    let place = place();
    let summary = place.json("train small.toml --seed 3 --out run");
    assert_eq!(summary["experiment"], "small");
    assert_eq!(summary["seed"], 3);
    assert_eq!(summary["attempts"], 1);
    assert_eq!(summary["updates"], 60);
    assert_eq!(summary["success"], false, "60 updates are not enough to be stable for 60");
    assert_eq!(summary["run"], "run");
    assert_eq!(summary["gates"]["total"], 3 * 14 + 48);
    for key in ["seconds", "soft_loss", "hard_loss"] {
        assert!(summary[key].is_number(), "{key}: {summary}");
    }
    assert!(summary["gates"]["active"].is_number() && summary["gates"]["reachable"].is_number());
    assert!(summary.as_object().unwrap().contains_key("first_perfect_update"));
    let on_disk: serde_json::Value = serde_json::from_slice(&place.read("run/summary.json")).unwrap();
    assert_eq!(on_disk, summary);
    let metrics = place.text("run/metrics.csv");
    assert_eq!(metrics.lines().count(), 61);
    assert!(metrics.starts_with("seed,update,learning_rate,soft_loss,hard_loss,accuracy\n3,0,0.05,"));
    assert!(place.text("run/experiment.toml").contains("seed = 3"));
    assert!(place.read("run/rollout.gif").starts_with(b"GIF89a"));
    assert!(
        place.read("run/loss.svg").starts_with(b"<svg") && place.read("run/gates.svg").starts_with(b"<svg")
    );
    assert!(is_clean(&place.path("run")));
}

#[test]
fn threads_do_not_change_a_bit() {
    let place = place();
    for threads in ["1", "2", "3"] {
        let out = format!("run{threads}");
        place.run(&format!("train small.toml --seed 2 --threads {threads} --out {out}"));
    }
    for file in ["model.safetensors", "circuit.json", "metrics.csv", "rollout.gif"] {
        assert_eq!(place.read(&format!("run1/{file}")), place.read(&format!("run2/{file}")), "{file}");
        assert_eq!(place.read(&format!("run1/{file}")), place.read(&format!("run3/{file}")), "{file}");
    }
}

/// Returns the number of optimiser steps that the checkpoint of seed 1 holds; 0 before there is one.
fn saved_steps(place: &Place, run: &str) -> u64 {
    let path = place.path(run).join("checkpoint/seed-1.safetensors");
    let Ok(checkpoint) = std::fs::read(path) else { return 0 };
    let key = br#"\"optimizer_step\":"#;
    let at = checkpoint.windows(key.len()).position(|window| window == key).unwrap() + key.len();
    let digits: Vec<u8> = checkpoint[at..].iter().copied().take_while(u8::is_ascii_digit).collect();
    String::from_utf8(digits).unwrap().parse().unwrap()
}

/// Trains `long.toml` without interruption, and again with a kill whenever a checkpoint holds the given number of steps (0:
/// as soon as there is a run folder), and compares.
fn assert_a_kill_changes_nothing(text: &str, kills: [u64; 3]) {
    let place = place();
    place.write("long.toml", text);
    place.run("train long.toml --out whole");
    for (kill, steps) in kills.into_iter().enumerate() {
        let how = if kill > 0 { "--resume" } else { "--threads=2" };
        let mut child = place.spawn(&format!("train long.toml --out killed {how}"), Stdio::null());
        wait_for(&mut child, || {
            place.path("killed/experiment.toml").exists() && saved_steps(&place, "killed") >= steps
        });
        child.kill().unwrap();
        assert!(!child.wait().unwrap().success(), "the run ended before kill {kill}");
        assert!(!place.path("killed/summary.json").exists(), "kill {kill} interrupted nothing");
    }
    // A kill may also interrupt a write.
    std::fs::create_dir_all(place.path("killed/checkpoint")).unwrap();
    place.write("killed/.gatework-0123456789abcdef.part", "seed,upd");
    place.write("killed/checkpoint/.gatework-0123456789abcdef.part", "");
    place.run("train long.toml --out killed --resume");
    assert!(is_clean(&place.path("killed")));
    for file in ["model.safetensors", "circuit.json", "metrics.csv", "rollout.gif"] {
        assert_eq!(place.read(&format!("whole/{file}")), place.read(&format!("killed/{file}")), "{file}");
    }
}

#[test]
fn a_run_that_is_killed_at_any_moment_and_resumed_equals_one_that_was_not() {
    // With restarts and everything random in gradient descent: wires, start states, number of steps, cells that fire, grids
    // that are half grown, rounded states, noise on gates.
    let mut text = SMALL.to_string();
    for (from, to) in [
        ("steps = 3\n", "steps = 3\nfire_rate = 0.7\n"),
        ("updates = 60", "updates = 300\nsteps = [2, 4]\nhalf_grown = 0.5"),
        ("grid = [9, 10]", "grid = [24, 24]"),
        ("[training]", "[gates]\ngumbel = 0.1\n\n[state]\nround = \"stochastic\"\n\n[training]"),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replacen(from, to, 1);
    }
    assert_a_kill_changes_nothing(&text, [0, 20, 60]);
}

#[test]
fn a_search_that_is_killed_and_resumed_equals_one_that_was_not() {
    let text = built_in("checkerboard")
        .replace("shrink = 2000", "shrink = 100")
        .replace("restarts = 29", "restarts = 29\ncheckpoint_seconds = 0.0");
    // The checkpoint after step 9 is the last before the search, which writes nothing until its end.
    assert!(text.contains("after = 10\n"));
    assert_a_kill_changes_nothing(&format!("seed = 1\n{text}"), [0, 4, 9]);
}

/// Interrupts `long.toml` as soon as there is a checkpoint, and returns what it says.
#[cfg(unix)]
fn said_when_interrupted(text: &str) -> String {
    let place = place();
    place.write("long.toml", text);
    let mut child = place.spawn("train long.toml --seed 1 --out run", Stdio::piped());
    wait_for(&mut child, || place.path("run/checkpoint/seed-1.safetensors").exists());
    crate::interrupt(&child);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    String::from_utf8(output.stderr).unwrap()
}

#[cfg(unix)]
#[test]
fn an_interrupt_leaves_a_checkpoint_and_says_how_to_go_on() {
    let said = said_when_interrupted(&SMALL.replace("updates = 60", "updates = 1000000"));
    let program = place().program();
    let next = format!("{} train run/experiment.toml --resume --out run", program.display());
    assert!(said.contains(&next), "as it was called: {said}");
    assert!(!said.contains("search"), "{said}");
    let searching = built_in("checkerboard")
        .replace("after = 10", "after = 500")
        .replace("restarts = 29", "restarts = 29\ncheckpoint_seconds = 0.0");
    let said = said_when_interrupted(&searching);
    assert!(said.contains("An interrupted search starts again after gradient descent."), "{said}");
}

/// The checkpoint of a seed that still runs, as that of one that has succeeded, in a version without a checksum.
#[cfg(unix)]
fn as_if_it_had_succeeded(checkpoint: &[u8]) -> Vec<u8> {
    let (length, rest) = checkpoint.split_first_chunk().unwrap();
    let (header, tensors) = rest.split_at(u64::from_le_bytes(*length) as usize);
    let header = std::str::from_utf8(header).unwrap();
    let changed = header.replace(r#"\"outcome\":\"running\""#, r#"\"outcome\":\"succeeded\""#);
    assert_ne!(changed, header);
    let changed = changed.replace(r#"\"version\":2"#, r#"\"version\":1"#);
    let checksum = changed.find(r#"\"checksum\""#).unwrap();
    let end = changed[checksum..].find(',').unwrap() + checksum + 1;
    let changed = [&changed[..checksum], &changed[end..]].concat();
    let changed = format!("{changed:width$}", width = changed.len().next_multiple_of(8));
    [&(changed.len() as u64).to_le_bytes(), changed.as_bytes(), tensors].concat()
}

#[cfg(unix)]
#[test]
fn an_interrupt_does_not_make_a_later_seed_the_winner() {
    let place = place();
    // Small enough that each seed runs on one thread.
    let text = SMALL.replace("grid = [9, 10]", "grid = [5, 6]").replace("batch = 3", "batch = 1");
    place.write("long.toml", &text.replace("updates = 60", "updates = 1000000"));
    let checkpoints = ["run/checkpoint/seed-1.safetensors", "run/checkpoint/seed-2.safetensors"];
    // A program may write within the same tick of the file system's clock as the test before it, so what is there becomes old.
    let grow_old = |name: &str| {
        if let Ok(file) = std::fs::File::options().write(true).open(place.path(name)) {
            file.set_modified(UNIX_EPOCH).unwrap();
        }
    };
    let is_new = |name: &str| {
        std::fs::metadata(place.path(name)).is_ok_and(|metadata| metadata.modified().unwrap() != UNIX_EPOCH)
    };
    let interrupted = |resume: &str| {
        for name in checkpoints {
            grow_old(name);
        }
        let train = format!("train long.toml --threads 2 --out run {resume}");
        let mut child = place.spawn(&train, Stdio::null());
        // Then the second seed is at its end, and the first in the midst of its updates.
        wait_for(&mut child, || checkpoints.iter().all(|name| is_new(name)));
        crate::interrupt(&child);
        child.wait_with_output().unwrap().status.code()
    };
    assert_eq!(interrupted(""), Some(1));
    place.write(checkpoints[1], &as_if_it_had_succeeded(&place.read(checkpoints[1])));
    assert_eq!(interrupted("--resume"), Some(1), "seed 1 may still succeed");
    assert!(!place.path("run/summary.json").exists());
}

#[test]
fn a_kill_at_the_very_end_leaves_a_run_that_resumes_to_its_end() {
    let place = place();
    let whole = place.json("train small.toml --updates 3 --out run");
    let experiment = place.text("run/experiment.toml");
    let seed = format!("seed = {}\n", whole["seed"]);
    assert!(experiment.contains(&seed));
    // Before and after the seed went into the experiment.
    for experiment in [experiment.replace(&seed, ""), experiment.clone()] {
        place.write("run/experiment.toml", &experiment);
        std::fs::rename(place.path("run/summary.json"), place.path("run/summary.json.next")).unwrap();
        let resumed = place.json("train run/experiment.toml --resume --out run");
        assert_eq!(resumed, whole);
        assert!(place.text("run/experiment.toml").contains(&seed));
        assert!(place.path("run/summary.json").exists() && !place.path("run/summary.json.next").exists());
    }
}

#[test]
fn a_picture_may_have_any_name_and_old_folders_keep_theirs() {
    let place = place();
    place.write("summary.json", &"..........\n".repeat(9));
    let text = SMALL.replace("kind = \"checkerboard\"", "kind = \"text\"\nfile = \"summary.json\"");
    place.write("odd.toml", &text);
    let train = "train odd.toml --seed 1 --updates 3 --out run";
    place.run(train);
    place.run("evaluate run");
    std::fs::rename(place.path("run/target.json"), place.path("run/zeros.txt")).unwrap();
    let experiment = place.text("run/experiment.toml");
    place.write("run/experiment.toml", &experiment.replace("target.json", "zeros.txt"));
    place.run("evaluate run");
    std::fs::remove_file(place.path("run/summary.json")).unwrap();
    place.run(&format!("{train} --resume"));
}

#[test]
fn seeds_are_all_run_and_counted() {
    let place = place();
    let summary = place.json("train small.toml --seeds 3 --updates 5 --out run");
    let seeds = summary["seeds"].as_array().unwrap();
    assert_eq!(seeds.len(), 3);
    assert!(seeds.iter().all(|seed| seed["updates"] == 5 && seed["success"] == false));
    assert_eq!(summary["attempts"], 3);
    // A run that was stopped before it was finished goes on with all its seeds, asked for again or not.
    for resume in ["train run/experiment.toml", "train small.toml --seeds 3 --updates 5"] {
        std::fs::remove_file(place.path("run/summary.json")).unwrap();
        std::fs::remove_file(place.path("run/checkpoint/seed-2.safetensors")).unwrap();
        let resumed = place.json(&format!("{resume} --resume --out run"));
        assert_eq!(resumed["seeds"].as_array().unwrap().len(), 3);
        assert_eq!(resumed["hard_loss"], summary["hard_loss"]);
    }
}

#[test]
fn success_is_found_checked_and_ends_the_run() {
    let place = place();
    // Everything dead: the target is a grid of zeros, which a rule learns within a few updates.
    place.write("zeros.txt", &"..........\n".repeat(9));
    let text = SMALL.replace("kind = \"checkerboard\"", "kind = \"text\"\nfile = \"zeros.txt\"");
    place.write(
        "zeros.toml",
        &text.replace("updates = 60", "updates = 2000").replace("restarts = 1", "restarts = 20"),
    );
    let summary = place.json("train zeros.toml --out run");
    assert_eq!(summary["success"], true, "{summary}");
    assert_eq!(summary["hard_loss"], 0.0);
    assert!(summary["first_perfect_update"].as_u64().unwrap() < summary["updates"].as_u64().unwrap());
    assert!(place.path("run/target.txt").exists(), "the picture comes along");
    // What is in the folder trains again to the same bits, from the folder alone.
    std::fs::remove_file(place.path("zeros.txt")).unwrap();
    place.run("train run/experiment.toml --out again");
    assert_eq!(place.read("run/model.safetensors"), place.read("again/model.safetensors"));
}

#[test]
fn runs_without_a_name_of_their_own_are_numbered() {
    let place = place();
    for expected in ["runs/small", "runs/small-2"] {
        let summary = place.json("train small.toml --seed 1 --updates 2");
        assert_eq!(summary["run"], expected);
    }
    place.write("copy.toml", SMALL);
    let summary = place.json("train copy.toml --seed 1 --updates 2");
    assert_eq!((&summary["run"], &summary["experiment"]), (&"runs/copy".into(), &"small".into()));
}

#[test]
fn a_search_finishes_what_training_leaves_whatever_the_number_of_threads() {
    let place = place();
    let mut text = SMALL.split("[[evaluate]]").next().unwrap().to_string();
    for (from, to) in [
        ("channels = 4", "channels = 12"),
        ("grid = [9, 10]", "grid = [7, 7]"),
        ("steps = 3", "steps = 4"),
        ("[28, 24, 12, 8, 4]", "[84, 60, 40, 24, 12]"),
        ("kind = \"random\"", "kind = \"seed\""),
        ("recipe = \"paper\"", "recipe = \"search\""),
    ] {
        assert!(text.contains(from));
        text = text.replace(from, to);
    }
    text += "[search]\nafter = 5\nmoves = 200\ntemperature = [1.0, 0.2]\nruns = 5\n\n\
             [[evaluate]]\nname = \"growth\"\ngrid = [7, 7]\nsteps = 4\n";
    place.write("search.toml", &text);
    let one = place.json("train search.toml --seed 1 --threads 1 --out one");
    place.json("train search.toml --seed 1 --threads 2 --out two");
    assert_eq!((&one["success"], &one["hard_loss"]), (&true.into(), &0.0.into()));
    assert_eq!(place.read("one/model.safetensors"), place.read("two/model.safetensors"));
    let scores = place.json("evaluate one");
    assert_eq!(scores["scores"][0]["wrong"], 0, "{scores}");
    let more = place.json("train search.toml --seed 1 --updates 9 --out more");
    assert_eq!(more["updates"], 9, "--updates also applies to a search");
    assert_says(&place.refused(2, "train small.toml --recipe search"), &["no [search] table"]);
    // With the paper's recipe there is no search.
    let paper = "train search.toml --seed 1 --recipe paper --out paper";
    assert_eq!(place.json(paper)["success"], false);
}

#[test]
fn a_finished_run_that_lost_a_file_is_brought_to_its_end_again() {
    let place = trained();
    let whole =
        ["model.safetensors", "circuit.json", "summary.json"].map(|name| place.read(&format!("run/{name}")));
    let resume = "train run/experiment.toml --resume --out run";
    for (name, damage) in [
        ("model.safetensors", None),
        ("model.safetensors", Some("cut")),
        ("circuit.json", None),
        ("circuit.json", Some("{")),
        ("summary.json", Some("")),
    ] {
        match damage {
            None => std::fs::remove_file(place.path("run").join(name)).unwrap(),
            Some(text) => place.write(&format!("run/{name}"), text),
        }
        place.run(resume);
        let again = ["model.safetensors", "circuit.json"].map(|name| place.read(&format!("run/{name}")));
        assert!(again[..] == whole[..2], "{name} {damage:?}");
        assert!(place.read("run/summary.json").starts_with(b"{"), "{name} {damage:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_run_folder_has_one_writer_at_a_time() {
    let place = trained();
    let folder = std::fs::File::open(place.path("run")).unwrap();
    folder.lock().unwrap();
    for how in ["--resume", "--force"] {
        let said = place.refused(2, &format!("train run/experiment.toml {how} --out run"));
        assert!(said.contains("run is in use by another process"), "{said}");
    }
    // Reading it is allowed.
    place.run("inspect run");
    drop(folder);
    place.run("train run/experiment.toml --resume --out run");
}

#[test]
fn force_sets_the_newest_run_aside() {
    let place = place();
    let train = "train small.toml --seed 1 --updates 2";
    place.run(train);
    place.run(train);
    place.run(&format!("{train} --force"));
    assert!(place.path("runs/small-2.old/model.safetensors").is_file());
    assert!(place.path("runs/small-2/model.safetensors").is_file() && !place.path("runs/small-3").exists());
}

#[test]
fn every_run_that_was_set_aside_is_kept() {
    let place = place();
    let train = |seed: &str| {
        place.run(&format!("train small.toml --updates 2 --out run --seed {seed} --force"));
        place.read("run/model.safetensors")
    };
    let models = ["1", "2", "3"].map(train);
    assert_says(&place.refused(2, "train small.toml --out run"), &["--force renames it to run.old-3"]);
    let kept = ["run.old", "run.old-2", "run"].map(|run| place.read(&format!("{run}/model.safetensors")));
    assert_eq!(kept, models);
}

/// `gatework train ... 2>&1 | head -1`: a reader that closes the pipe does not end the training.
#[test]
fn a_reader_that_goes_away_does_not_end_the_training() {
    let place = place();
    let mut child = place.spawn("train airpassengers --out run", Stdio::piped());
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(!place.read("run/summary.json").is_empty());
}
