//! Invalid input: the right exit status, one clear message, and no file is lost.

use std::fs;

use crate::{Place, SMALL, assert_says, is_clean};

#[test]
fn unknown_experiments_get_names_and_a_hint() {
    let place = Place::new();
    let said = place.refused(2, &["train", "lizzard"]);
    assert_says(&said, &["no experiment \"lizzard\"", "did you mean lizard?", "game-of-life", "colored-g"]);
    assert_says(&place.refused(2, &["train", "missing.toml"]), &["cannot read missing.toml"]);
}

#[test]
fn bad_experiments_are_refused_with_their_line_and_leave_no_folder() {
    for (from, to, part) in [
        ("channels = 4", "channels = \"four\"", "bad.toml:6: invalid type"),
        ("channels = 4", "chanels = 4", "unknown field `chanels`"),
        ("[28, 24, 12, 8, 4]", "[28, 24, 8, 8, 4]", "update.layers[2]: 8 gates read at most 16 rows"),
        ("[28, 24, 12, 8, 4]", "[27, 24, 12, 8, 4]", "3 kernels x 2 outputs x 4 channels + 4 need 28"),
        ("grid = [9, 10]", "grid = [9, 0]", "bad.toml:8: automaton.grid is [9, 0]: a side is 0"),
        ("grid = [9, 10]", "grid = [900000, 900000]", "GB of memory"),
        ("steps = 3", "steps = 100000000000000", "GB of memory"),
        (
            "checkpoint_seconds = 0.0",
            "checkpoint_seconds = 1e300",
            "bad.toml:30: training.checkpoint_seconds is 1e300, not 0 to 1e9",
        ),
        (
            "layers = [9, 8, 4, 2]",
            "layers = [9, 4, 2, 1]\nfirst = \"wired\"",
            "bad.toml:13: perceive.layers[1]: 4 gates read at most 8 rows",
        ),
        (
            "kind = \"checkerboard\"",
            "kind = \"text\"\nfile = \"p.txt\"",
            "the picture is 2x2 (height x width), but the grid is 9x10",
        ),
        ("kind = \"checkerboard\"", "kind = \"text\"\nfile = \"q.txt\"", "cannot read q.txt"),
        ("kind = \"checkerboard\"", "kind = \"png\"\nfile = \"p.txt\"", "not a PNG"),
        (
            "kind = \"random\"",
            "kind = \"grids\"\ngrids = [\"RRRRR\", \"#?\"]",
            "bad.toml:20: start.grids[1]: line 1: '?'",
        ),
    ] {
        let place = Place::new();
        place.write("p.txt", "##\n..\n");
        assert!(SMALL.contains(from), "{from}");
        place.write("bad.toml", &SMALL.replacen(from, to, 1));
        let said = place.refused(2, &["train", "bad.toml", "--out", "run"]);
        assert_says(&said, &[part]);
        assert!(!place.path("run").exists());
    }
}

#[test]
fn bad_options_are_refused() {
    let place = Place::new();
    assert_says(&place.refused(2, &["train", "small.toml", "--threads", "0"]), &["at least 1 thread"]);
    assert_says(&place.refused(2, &["train", "small.toml", "--seed", "x"]), &["invalid value 'x'"]);
    assert_says(&place.refused(2, &["train", "small.toml", "--seeds", "0"]), &["--seeds"]);
    let said = place.refused(2, &["train", "small.toml", "--updates", "2000000000000", "--out", "run"]);
    assert_says(&said, &["training.updates is 2000000000000, not 1 to 2^40"]);
    assert!(!place.path("run").exists());
    assert_says(&place.refused(2, &["train"]), &["NAME|FILE.toml"]);
    assert_says(&place.refused(2, &["simulate", "run", "--size", "0x5"]), &["HEIGHTxWIDTH"]);
    assert_says(&place.refused(2, &["simulate", "run", "--damage", "north"]), &["centre:SIZE"]);
    assert_says(&place.refused(2, &["simulate", "run", "--async", "1.5"]), &["above 0 and at most 1"]);
    assert_says(&place.refused(2, &["simulate", "run", "--gif", "a.png"]), &["ends in .gif"]);
}

#[test]
fn an_existing_folder_is_not_overwritten_without_a_word() {
    let place = Place::new().trained();
    let before = place.read("run/model.safetensors");
    let train = ["train", "small.toml", "--seed", "2", "--out", "run"];
    assert_says(&place.refused(2, &train), &["run exists", "--resume", "--force", "--out"]);
    assert_eq!(place.read("run/model.safetensors"), before);
    place.gatework(&train).arg("--force").assert().success();
    assert_ne!(place.read("run/model.safetensors"), before);
    // A folder with other files is not replaced even with --force.
    fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/letter.txt", "dear");
    let said = place.refused(2, &["train", "small.toml", "--out", "mine", "--force"]);
    assert_says(&said, &["mine exists and is not a run folder"]);
    assert_eq!(place.read("mine/letter.txt"), b"dear");
}

#[test]
fn resuming_needs_a_run_of_the_same_experiment() {
    let place = Place::new().trained();
    assert_says(
        &place.refused(2, &["train", "small.toml", "--resume", "--out", "none"]),
        &["nothing to resume"],
    );
    let other = ["train", "checkerboard", "--resume", "--out", "run"];
    assert_says(&place.refused(2, &other), &["run belongs to another experiment (small)"]);
    let other_seed = ["train", "small.toml", "--seed", "2", "--resume", "--out", "run"];
    assert_says(&place.refused(2, &other_seed), &["seed"]);
}

#[test]
fn damaged_run_folders_are_named_not_used() {
    let place = Place::new().trained();
    let model = place.read("run/model.safetensors");
    let looks: [&[&str]; 3] = [&["inspect", "run"], &["simulate", "run"], &["evaluate", "run"]];
    let all = |status: i32, parts: &[&str]| {
        for look in looks {
            assert_says(&place.refused(status, look), parts);
        }
    };
    fs::write(place.path("run/model.safetensors"), &model[..model.len() / 2]).unwrap();
    all(1, &["model.safetensors", "not a complete safetensors file"]);
    fs::write(place.path("run/model.safetensors"), b"\x02\0\0\0\0\0\0\0{}").unwrap();
    all(1, &["model.safetensors", "not a Gatework automaton"]);
    fs::remove_file(place.path("run/model.safetensors")).unwrap();
    all(2, &["has no model.safetensors", "--resume"]);
    fs::write(place.path("run/model.safetensors"), &model).unwrap();
    fs::rename(place.path("run/experiment.toml"), place.path("run/saved.toml")).unwrap();
    all(2, &["experiment.toml is missing"]);
    place.write(
        "run/experiment.toml",
        &SMALL.replace("kernels = 3", "kernels = 4").replace("[28, 24", "[36, 24"),
    );
    all(2, &["belongs to another experiment"]);
    all(2, &["model.safetensors"]);
    assert_says(&place.refused(2, &["inspect", "nowhere"]), &["nowhere does not exist"]);
    assert_says(&place.refused(2, &["inspect", "small.toml"]), &["neither a run folder nor"]);
    place.write("broken.json", "{\"format\":\"gatework-circuit\",");
    assert_says(&place.refused(1, &["inspect", "broken.json"]), &["broken.json"]);
}

#[test]
fn a_damaged_checkpoint_stops_a_resumption_and_is_kept() {
    let place = Place::new().trained();
    fs::remove_file(place.path("run/summary.json")).unwrap();
    let checkpoint = "run/checkpoint/seed-1.safetensors";
    let bytes = place.read(checkpoint);
    fs::write(place.path(checkpoint), &bytes[..200]).unwrap();
    let said = place.refused(1, &["train", "small.toml", "--seed", "1", "--resume", "--out", "run"]);
    assert_says(&said, &["seed-1.safetensors", "not a complete checkpoint"]);
    assert_eq!(place.read(checkpoint), bytes[..200]);
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let place = Place::new().trained();
    place.write("file", "");
    assert_says(
        &place.refused(1, &["train", "small.toml", "--out", "file/run"]),
        &["cannot make the folder file/run"],
    );
    assert_says(&place.refused(1, &["simulate", "run", "--gif", "none/a.gif"]), &["cannot write none/a.gif"]);
}

#[cfg(unix)]
#[test]
fn a_full_disk_loses_nothing() {
    let place = Place::new().trained();
    let before = place.read("run/model.safetensors");
    // A limit on file sizes stands for a full disk: writes fail half-way.
    let program = assert_cmd::cargo::cargo_bin("gatework");
    let script = format!(
        "trap '' XFSZ; ulimit -f 4; exec {} train small.toml --seed 2 --out run --force --updates 3",
        program.display()
    );
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(place.folder.path())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_says(&String::from_utf8(output.stderr).unwrap(), &["cannot write", "run"]);
    assert!(is_clean(&place.path("run")), "no half-written file");
    assert_eq!(place.read("run.old/model.safetensors"), before, "the old run is set aside");
}
