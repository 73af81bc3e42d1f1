//! Invalid input: the right exit status, one clear message, and no file is lost.

use std::fs;

use crate::{Place, SMALL, assert_says, is_clean, place, trained};

#[test]
fn unknown_experiments_get_names_and_a_hint() {
    let place = place();
    let said = place.refused(2, "train lizzard");
    assert_says(&said, &["no experiment \"lizzard\"", "did you mean lizard?", "game-of-life", "colored-g"]);
    assert_says(&place.refused(2, "train missing.toml"), &["cannot read missing.toml"]);
}

/// Further mistakes are tests of the reader, in `automata::experiment`.
#[test]
fn bad_experiments_are_refused_with_their_line_and_leave_no_folder() {
    for (from, to, part) in [
        ("channels = 4", "channels = \"four\"", "bad.toml:5: invalid type"),
        ("grid = [9, 10]", "grid = [9, 0]", "bad.toml:7: automaton.grid is [9, 0]: a side is 0"),
        ("steps = 3", "steps = 100000000000000", "GB of memory"),
        (
            "kind = \"checkerboard\"",
            "kind = \"text\"\nfile = \"p.txt\"",
            "the picture is 2x2 (height x width), but the grid is 9x10",
        ),
        ("kind = \"checkerboard\"", "kind = \"text\"\nfile = \"q.txt\"", "cannot read q.txt"),
        ("kind = \"checkerboard\"", "kind = \"png\"\nfile = \"p.txt\"", "not a PNG"),
    ] {
        let place = place();
        place.write("p.txt", "##\n..\n");
        assert!(SMALL.contains(from), "{from}");
        place.write("bad.toml", &SMALL.replacen(from, to, 1));
        assert_says(&place.refused(2, "train bad.toml --out run"), &[part]);
        assert!(!place.path("run").exists());
    }
}

#[test]
fn what_was_meant_is_suggested() {
    let place = trained();
    assert_says(&place.refused(2, "checkerboard"), &["unrecognized subcommand", "train checkerboard"]);
    assert_says(&place.refused(2, "run minimize"), &["run is a path; the command comes first"]);
    assert_says(
        &place.refused(2, "simulate lizard"),
        &["lizard does not exist", "train it with:", "train lizard"],
    );
    assert_says(&place.refused(2, "predict nothing a.csv"), &["nothing does not exist"]);
    assert_says(
        &place.refused(2, "predict run a.csv"),
        &["run is neither a classifier nor the run folder of a forecaster"],
    );
    assert_says(
        &place.refused(2, "quantize run --precision int8"),
        &["run is not the run folder of a forecaster"],
    );
    assert_says(
        &place.refused(2, "train run"),
        &["run is a run folder; resume it with:", "--resume --out run"],
    );
    assert_says(
        &place.refused(1, "export run -o no/a.v"),
        &["cannot write no/a.v: the folder no does not exist"],
    );
    place.run("train small.toml --updates 3 -o runs/first");
    assert_says(&place.refused(2, "evaluate runs/frist"), &["did you mean runs/first?"]);
}

#[test]
fn bad_options_are_refused() {
    let place = place();
    assert_says(&place.refused(2, "train small.toml --threads 0"), &["at least 1 thread"]);
    assert_says(&place.refused(2, "train small.toml --seed x"), &["invalid value 'x'"]);
    assert_says(&place.refused(2, "train small.toml --seeds 0"), &["--seeds"]);
    let said = place.refused(2, "train small.toml --updates 2000000000000 --out run");
    assert_says(&said, &["training.updates is 2000000000000, not 1 to 2^40"]);
    assert!(!place.path("run").exists());
    assert_says(&place.refused(2, "train"), &["NAME|FILE|RULE"]);
    assert_says(&place.refused(2, "simulate run --size 0x5"), &["HEIGHTxWIDTH"]);
    assert_says(&place.refused(2, "simulate run --damage north"), &["centre:SIZE"]);
    assert_says(&place.refused(2, "simulate run --async 1.5"), &["above 0 and at most 1"]);
    assert_says(&place.refused(2, "simulate run --gif a.png"), &["ends in .gif"]);
}

#[test]
fn an_existing_folder_is_not_overwritten_without_a_word() {
    let place = trained();
    let before = place.read("run/model.safetensors");
    let train = "train small.toml --seed 2 --out run";
    assert_says(&place.refused(2, train), &["run exists", "--resume", "--force", "--out"]);
    assert_eq!(place.read("run/model.safetensors"), before);
    place.command(train).arg("--force").assert().success();
    assert_ne!(place.read("run/model.safetensors"), before);
    // A folder with other files is not replaced even with --force.
    fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/letter.txt", "dear");
    let said = place.refused(2, "train small.toml --out mine --force");
    assert_says(&said, &["mine exists and is not a run folder"]);
    assert_eq!(place.read("mine/letter.txt"), b"dear");
}

#[test]
fn resuming_needs_a_run_of_the_same_experiment() {
    let place = trained();
    fs::create_dir(place.path("mine")).unwrap();
    place.write("mine/letter.txt", "dear");
    let foreign = "train small.toml --resume --out mine";
    assert_says(&place.refused(2, foreign), &["mine is not a run folder: there is nothing to resume"]);
    let other = "train checkerboard --resume --out run";
    assert_says(&place.refused(2, other), &["run belongs to another experiment (small)"]);
    let other_seed = "train small.toml --seed 2 --resume --out run";
    assert_says(&place.refused(2, other_seed), &["seed"]);
}

#[test]
fn damaged_run_folders_are_named_not_used() {
    let place = trained();
    let model = place.read("run/model.safetensors");
    let all = |status: i32, parts: &[&str]| {
        for look in ["inspect run", "simulate run", "evaluate run"] {
            assert_says(&place.refused(status, look), parts);
        }
    };
    place.write("run/model.safetensors", &model[..model.len() / 2]);
    all(1, &["model.safetensors", "not a complete safetensors file"]);
    place.write("run/model.safetensors", b"\x02\0\0\0\0\0\0\0{}");
    all(1, &["model.safetensors", "no entry \"gatework-automaton\""]);
    fs::remove_file(place.path("run/model.safetensors")).unwrap();
    all(2, &["has no model.safetensors", "--resume"]);
    place.write("run/model.safetensors", &model);
    fs::rename(place.path("run/experiment.toml"), place.path("run/saved.toml")).unwrap();
    all(2, &["experiment.toml is missing"]);
    place.write(
        "run/experiment.toml",
        &SMALL.replace("kernels = 3", "kernels = 4").replace("[28, 24", "[36, 24"),
    );
    all(2, &["belongs to another experiment"]);
    all(2, &["model.safetensors"]);
    assert_says(&place.refused(2, "inspect nowhere"), &["nowhere does not exist"]);
    assert_says(&place.refused(2, "inspect small.toml"), &["neither a run folder nor"]);
    place.write("broken.json", "{\"format\":\"gatework-circuit\",");
    assert_says(&place.refused(1, "inspect broken.json"), &["broken.json"]);
}

#[test]
fn training_continues_from_the_checkpoint_before_a_damaged_one() {
    let place = trained();
    let model = place.read("run/model.safetensors");
    let [last, previous] = ["", ".previous"].map(|name| format!("run/checkpoint/seed-1{name}.safetensors"));
    let resume = "train small.toml --seed 1 --resume --out run";
    let damage = |name: &str| {
        let mut bytes = place.read(name);
        *bytes.last_mut().unwrap() ^= 1;
        place.write(name, &bytes);
        bytes
    };
    fs::remove_file(place.path("run/summary.json")).unwrap();
    damage(&last);
    let said = place.stderr(resume);
    assert_says(&said, &["warning: ", "seed-1.safetensors", "checksum", "from the checkpoint before it"]);
    assert_eq!(place.read("run/model.safetensors"), model);
    // Both are damaged: they are refused, and kept.
    fs::remove_file(place.path("run/summary.json")).unwrap();
    let damaged = [damage(&last), damage(&previous)];
    assert_says(&place.refused(1, resume), &["seed-1.safetensors", "checksum", "remove the file"]);
    assert_eq!([place.read(&last), place.read(&previous)], damaged);
}

#[test]
fn resuming_without_a_run_starts_one() {
    let place = place();
    let said = place.stderr("train small.toml --seed 1 --updates 2 --resume --out run");
    assert_says(&said, &["nothing to resume in run: a new run starts"]);
    assert!(place.path("run/summary.json").exists());
}

#[test]
fn a_place_that_cannot_be_written_is_named() {
    let place = trained();
    place.write("file", "");
    assert_says(&place.refused(1, "train small.toml --out file/run"), &["cannot make the folder file/run"]);
    assert_says(&place.refused(1, "simulate run --gif none/a.gif"), &["cannot write none/a.gif"]);
}

#[cfg(unix)]
#[test]
fn a_full_disk_loses_nothing() {
    let place = trained();
    let before = place.read("run/model.safetensors");
    // A limit on file sizes stands for a full disk: writes fail half-way. Its signal does not end the program.
    let said = said_with_limit(&place, "-f 4", 1, "train small.toml --seed 2 --out run --force --updates 3");
    assert_says(&said, &["cannot write", "run"]);
    assert!(is_clean(&place.path("run")), "no half-written file");
    assert_eq!(place.read("run.old/model.safetensors"), before, "the old run is set aside");
}

/// Runs and returns all that is printed, which has no character that a terminal interprets.
fn printed(place: &Place, arguments: &str) -> String {
    let output = place.command(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap()).concat();
    let is_active = |c: char| c.is_control() && !"\n\t".contains(c) || "\u{202e}\u{2028}".contains(c);
    assert!(!said.is_empty() && !said.contains(is_active), "{arguments:?}: {said:?}");
    assert!(said.lines().all(|line| !line.starts_with("forged")), "{arguments:?}: {said}");
    said
}

#[test]
fn text_of_files_and_arguments_is_escaped_on_its_way_to_a_terminal() {
    let place = place();
    let (text, shown) = (r"\u001b[2J\u202e\nforged", r"\u{1b}[2J\u{202e}\nforged");
    let experiment = SMALL
        .replacen("task =", &format!("about = \"{text}\"\nexpected = \"{text}\"\ntask ="), 1)
        .replacen("name = \"larger\"", &format!("name = \"{text}\""), 1)
        .replacen("updates = 60", "updates = 1", 1);
    place.write("small.toml", &experiment);
    place.run("train small.toml --seed 1 --out run");
    for verb in ["inspect", "evaluate"] {
        assert_says(&printed(&place, &format!("{verb} run")), &[shown]);
        let json = place.json(&format!("{verb} run")).to_string();
        assert_says(&json, &[r"\u001b[2J", r"\nforged"]);
    }
    place.write("bad.toml", &experiment.replacen("steps = 6", "steps = 0", 1));
    assert_says(&printed(&place, "train bad.toml"), &["[2J", "steps and samples of at least 1"]);
    let argument = "\u{1b}[2J\u{202e}";
    assert_says(&printed(&place, &format!("inspect {argument}")), &[r"\u{1b}[2J"]);
    // The parser of the command line removes escape sequences itself.
    assert_says(&printed(&place, &format!("simulate run --size {argument}")), &[r"\u{202e}"]);
    assert_says(&printed(&place, argument), &[r"\u{202e}"]);
}

#[test]
fn names_of_series_and_columns_are_escaped_on_their_way_to_a_terminal() {
    let place = place();
    place.write("sales.csv", "unique_id,ds,y\n\u{1b}[2J\u{202e},2020-01-01,1\n\u{1b}[2J\u{202e},x,2\n");
    let text = "task = 'forecaster'\ndata = 'sales.csv'\nmodel = 'nlinear'\nhorizon = 3\n";
    place.write("sales.toml", text);
    assert_says(&printed(&place, "train sales.toml"), &["sales.csv:3"]);
    place.write("sales.csv", "unique_id,ds,\u{1b}[2J\u{202e}\na,2020-01-01,1\n");
    assert_says(&printed(&place, "train sales.toml"), &[r"\u{1b}[2J"]);
}

#[test]
fn a_name_cannot_lead_out_of_the_folder_of_runs() {
    let place = trained();
    fs::copy(place.path("run/experiment.toml"), place.path("experiment.toml")).unwrap();
    let forecaster =
        "name = \"small\"\ntask = 'forecaster'\ndata = 'airpassengers'\nmodel = 'nlinear'\nhorizon = 3\n";
    for (text, name) in
        [(SMALL, ".."), (SMALL, "a/b"), (SMALL, r"\u001b[2J"), (forecaster, ".."), (forecaster, "../up")]
    {
        place.write("experiment.toml", &text.replacen("name = \"small\"", &format!("name = \"{name}\""), 1));
        for option in ["--resume", "--force"] {
            let said = place.refused(2, &format!("train experiment.toml {option}"));
            assert!(said.contains("experiment.toml:") && said.contains(": name is "), "{said}");
        }
    }
    // The stem of this file is "..".
    place.write("...toml", SMALL);
    place.run("train ...toml --updates 1");
    assert!(place.path("runs/small/model.safetensors").is_file());
    place.write("...toml", &SMALL.replacen("name = \"small\"", "", 1));
    assert_says(&place.refused(2, "train ...toml"), &["...toml: name is \"..\""]);
}

/// Runs under a limit of `ulimit`, expects this exit status and returns the messages on stderr.
#[cfg(unix)]
fn said_with_limit(place: &Place, limit: &str, status: i32, arguments: &str) -> String {
    let script = format!("ulimit {limit}; exec {} {arguments}", place.program().display());
    let output = std::process::Command::new("bash")
        .args(["-c", &script])
        .current_dir(place.path(""))
        .env("RAYON_NUM_THREADS", "2")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{arguments}: {said}");
    said
}

#[cfg(target_os = "linux")]
#[test]
fn what_exceeds_the_memory_is_refused_before_the_work() {
    let place = trained();
    // A limit of the address space in KiB.
    let limit = "-v 1000000";
    let said = said_with_limit(&place, limit, 1, "simulate run --size 65536x65536");
    assert_says(&said, &["a grid of 65536x65536 cells with 4 channels would need about ", " GB of memory"]);
    // The picture is checked before the grid, which does not fit either.
    let said = said_with_limit(&place, limit, 2, "simulate run --size 65536x65536 --gif a.gif");
    assert_says(&said, &["65536x65536 cells are too many for a picture", "4096x4096"]);
    // With checkpoints, the states of 900,000 steps fit.
    let steps = SMALL.replacen("[training]", "[training]\ncheckpointing = \"none\"", 1).replacen(
        "steps = 3",
        "steps = 900000",
        1,
    );
    for large in [SMALL.replacen("grid = [9, 10]", "grid = [1500, 1500]", 1), steps] {
        place.write("large.toml", &large);
        let said = said_with_limit(&place, limit, 2, "train large.toml --out large --threads 2");
        assert_says(&said, &["large.toml: grid, batch, steps and layers would need about ", " of memory"]);
    }
    place.write("small.toml", &SMALL.replacen("grid = [20, 31]", "grid = [16384, 16384]", 1));
    fs::copy(place.path("small.toml"), place.path("run/experiment.toml")).unwrap();
    let said = said_with_limit(&place, limit, 1, "evaluate run");
    assert_says(&said, &["evaluate \"larger\": a grid of 16384x16384 cells would need about "]);
    assert!(!place.path("large").exists() && !place.path("a.gif").exists());
}

#[cfg(target_os = "linux")]
#[test]
fn a_forecaster_that_exceeds_the_memory_is_refused() {
    let place = place();
    for (settings, part) in [
        ("model = { kind = 'nhits', width = 4096 }\nhorizon = 3", "model nhits: training "),
        (
            "model = { kind = 'transformer', patch = 1, stride = 1 }\nhorizon = 1\ninput = 10000",
            "model transformer with input ",
        ),
    ] {
        let rows: Vec<String> = (0..30_000).map(|step| format!("{step},{}\n", step % 7)).collect();
        place.write("data.csv", &format!("ds,y\n{}", rows.concat()));
        place.write(
            "large.toml",
            &format!("name = 'large'\ntask = 'forecaster'\ndata = 'data.csv'\n{settings}\n"),
        );
        let said = said_with_limit(&place, "-v 1000000", 1, "train large.toml --threads 2");
        assert_says(&said, &[part, "would need about ", " of memory"]);
    }
}
