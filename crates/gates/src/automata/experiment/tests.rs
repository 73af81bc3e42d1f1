//! What an experiment may say, and what is refused.

use super::*;
use gatework_train::experiment::Source;

fn error(change: impl Fn(&str) -> String) -> String {
    let text = change(BUILT_IN[1].1);
    assert_ne!(text, BUILT_IN[1].1, "the change changed nothing");
    AutomatonExperiment::from_source(&Source::new(&text, "x.toml", ".")).unwrap_err().to_string()
}

fn replaced(from: &str, to: &str) -> String {
    error(|text| text.replacen(from, to, 1))
}

#[test]
fn built_in_experiments_are_valid_and_survive_their_own_toml() {
    for (name, text) in BUILT_IN {
        let loaded = AutomatonExperiment::from_source(&Source::new(text, name, ".")).unwrap();
        assert_eq!(loaded.experiment.name, name);
        let again =
            AutomatonExperiment::from_source(&Source::new(loaded.experiment.to_toml(), name, ".")).unwrap();
        assert_eq!(again.experiment, loaded.experiment);
    }
}

#[test]
fn unknown_names_get_a_hint() {
    let message = AutomatonExperiment::find("chekerboard").unwrap_err().to_string();
    assert!(message.contains("did you mean checkerboard?") && message.contains("lizard"), "{message}");
    assert!(!AutomatonExperiment::find("xyzzy").unwrap_err().to_string().contains("did you mean"));
    assert!(
        AutomatonExperiment::find("none.toml").unwrap_err().to_string().contains("cannot read none.toml")
    );
}

#[test]
fn mistakes_are_named_with_their_line() {
    for (from, to, part) in [
        ("channels = 8", "channels = \"eight\"", "x.toml:7: invalid type: string \"eight\""),
        ("channels = 8", "chanels = 8", "unknown field `chanels`"),
        ("channels = 8", "channels = 0", "x.toml:7: automaton.channels is 0, not 1 to 128"),
        (
            "channels = 8",
            "channels = 9",
            "update.layers[0] is 264, but 16 kernels x 2 outputs x 9 channels + 9 need 297",
        ),
        (
            "[264, 256",
            "[264, 100",
            "update.layers[1]: 100 gates read at most 200 rows, but the layer before has 264",
        ),
        ("8, 8]", "8, 9]", "the last of update.layers is 9, but there are 8 channels"),
        ("grid = [16, 16]", "grid = [0, 16]", "a side is 0"),
        ("grid = [16, 16]", "grid = [1000000, 1000000]", "GB of memory"),
        ("steps = 20", "steps = 0", "automaton.steps is 0"),
        ("task =", "seeds = 0\ntask =", "seeds is 0, not 1 to 100000"),
        (
            "restarts = 29",
            "restarts = 29\nschedule = { kind = \"cosine\", minimum = 1.0 }",
            "schedule.minimum is 1",
        ),
        (
            "kind = \"random\"",
            "kind = \"grids\"\ngrids = [\"#.\\n.#\", \"#.x\"]",
            "x.toml:21: start.grids[1]: line 1: 'x' is none of # . R G B Y",
        ),
        ("kind = \"random\"", "kind = \"grids\"\ngrids = []", "start.grids is empty"),
        (
            "kind = \"random\"",
            "kind = \"grids\"\ngrids = [\"#################\"]",
            "start.grids[0]: the picture is 1x17 (height x width), but the grid is 16x16",
        ),
        ("batch = 2", "batch = 0", "training.batch is 0"),
        (
            "batch = 2",
            "batch = 2\ncheckpoint_seconds = 1e300",
            "x.toml:30: training.checkpoint_seconds is 1e300, not 0 to 1e9",
        ),
        ("updates = 500", "updates = 0", "training.updates is 0"),
        ("learning_rate = 0.05", "learning_rate = -1.0", "training.learning_rate is -1"),
        ("batch = 2", "batch = 2\ngate_price = 0.1", "unknown field `gate_price`"),
        ("batch = 2", "batch = 2\nsteps = [3, 2]", "x.toml:30: training.steps is [3, 2], but must be"),
        ("batch = 2", "batch = 2\nlate = 0", "training.late is 0"),
        ("batch = 2", "batch = 2\nhalf_grown = 1.5", "training.half_grown is 1.5"),
        (
            "batch = 2",
            "batch = 2\nwarm_restarts = { every = 0 }",
            "x.toml:30: training.warm_restarts.every is 0",
        ),
        (
            "batch = 2",
            "batch = 2\nwarm_restarts = { every = 9, keep = 1.5 }",
            "warm_restarts.keep is 1.5, not",
        ),
        ("batch = 2", "batch = 2\nwarm_restarts = { every = 9, noise = -1.0 }", "warm_restarts.noise is -1"),
        ("[search]", "[gates]\ngumbel = -1.0\n[search]", "x.toml:33: gates.gumbel must be at least 0"),
        ("[search]", "[state]\nflip = 0.1\n[search]", "x.toml:34: state.flip was removed"),
        ("[search]", "[state]\nround = \"up\"\n[search]", "unknown variant `up`"),
        ("after = 10", "after = 0", "search.after is 0"),
        ("temperature = [3.0, 1.0]", "temperature = [3.0, 0.0]", "search.temperature is not two numbers"),
        ("samples = 4", "samples = 1000000000", "would need more than 16 GB"),
        (
            "samples = 4",
            "samples = 4\ngrids = [[18446744073709551615, 18446744073709551613]]",
            "search.grids and search.samples would need more than 16 GB",
        ),
        ("[search]", "[nothing]", "unknown field `nothing`"),
        ("kernels = 16", "kernels = 0", "perceive.kernels is 0"),
        ("[9, 8, 4, 2]", "[8, 8, 4, 2]", "perceive.layers must start with 9"),
        ("[9, 8, 4, 2]", "[9, 7, 4, 2]", "a moore layer has 8 gates"),
        (
            "[9, 8, 4, 2]",
            "[9, 4, 2, 1]\nfirst = \"wired\"",
            "x.toml:14: perceive.layers[1]: 4 gates read at most 8 rows, but the layer before has 9",
        ),
        ("[9, 8, 4, 2]", "[9, 0, 1]\nfirst = \"wired\"", "perceive.layers[1] is 0, not 1 to 2^24"),
        ("[9, 8, 4, 2]", "[9, 8, 3, 2]", "perceive.layers[2]: 3 gates read at most 6 rows"),
        (
            "kind = \"checkerboard\"\nsquare = 2",
            "kind = \"built-in\"\nname = \"lizard\"",
            "the picture is 20x20 (height x width), but the grid is 16x16",
        ),
        ("kind = \"random\"", "kind = \"rondom\"", "unknown variant `rondom`"),
        ("task = \"automaton\"", "task = \"poem\"", "unknown variant `poem`"),
    ] {
        let message = replaced(from, to);
        assert!(message.contains(part), "{from} -> {to}: {message}");
    }
    assert!(error(|text| format!("{text}\n= 3")).contains("x.toml:"));
    // From 512 rows up to 16 million, nine layers of them, and down by halves.
    let mut wide = vec![264, 256, 512, 130_000];
    wide.extend([1 << 24; 9]);
    wide.extend((1..=21).map(|k| (1 << 24) >> k));
    let message = replaced("layers = [264, 256", &format!("layers = {wide:?} #"));
    assert!(message.contains("gates per cell, more than"), "{message}");
    assert!(error(|text| text[..40].to_string()).contains("missing field"));
}

#[test]
fn grids_without_room_for_the_picture_or_the_start_are_named_with_their_line() {
    let picture = "kind = \"built-in\"\nname = \"lizard\"";
    let text = BUILT_IN[1]
        .1
        .replace("kind = \"checkerboard\"\nsquare = 2", picture)
        .replace("grid = [16, 16]", "grid = [20, 20]");
    let parse = |text: &str| AutomatonExperiment::from_source(&Source::new(text, "x.toml", "."));
    parse(&text).unwrap();
    let line = |text: &str, part: &str| 1 + text.lines().position(|line| line == part).unwrap();
    let small =
        text.replacen("grid = [64, 64]\nsteps = 80\ndamage", "grid = [64, 19]\nsteps = 80\ndamage", 1);
    let expected = format!(
        "x.toml:{}: evaluate \"fault tolerance\": the picture is 20x20 (height x width), but the grid is 64x19",
        line(&small, "grid = [64, 19]")
    );
    assert_eq!(parse(&small).unwrap_err().to_string(), expected);
    let searched = text.replace("[search]", "[search]\ngrids = [[20, 20], [19, 30]]");
    let expected = format!(
        "x.toml:{}: search.grids[1]: the picture is 20x20 (height x width), but the grid is 19x30",
        line(&searched, "grids = [[20, 20], [19, 30]]")
    );
    assert_eq!(parse(&searched).unwrap_err().to_string(), expected);
    let board = BUILT_IN[1]
        .1
        .replacen("kind = \"random\"", "kind = \"grids\"\ngrids = [\"#\\n#\"]", 1)
        .replacen("grid = [64, 64]", "grid = [1, 64]", 1);
    let said = parse(&board).unwrap_err().to_string();
    let expected = format!(
        "x.toml:{}: evaluate \"generalisation\": start.grids[0]: the picture is 2x1 (height x width), but the \
         grid is 1x64",
        line(&board, "grid = [1, 64]")
    );
    assert_eq!(said, expected);
}

#[test]
fn removed_search_settings_are_read_only_if_they_are_switched_off() {
    let text = BUILT_IN[1].1;
    let with = |keys: &str| {
        let text = text.replacen("[search]", &format!("[search]\n{keys}"), 1);
        AutomatonExperiment::from_source(&Source::new(&text, "x.toml", "."))
    };
    let read = with("ladder = 1.0\nretrain = 0\nguided = 0.0").unwrap();
    assert!(!read.experiment.to_toml().contains("guided"));
    let message = with("guided = 0.5").unwrap_err().to_string();
    assert!(message.starts_with("x.toml:34: search.guided was removed"), "{message}");
}

#[test]
fn gates_and_state_of_earlier_versions_are_read_if_removed_settings_are_switched_off() {
    let earlier = "
[gates]
numbers = \"four\"
start = [4.0, 4.0]
temperature = [1.0, 1.0]
gumbel = 0.0
gumbel_from = 0.0
entropy = 0.0
harden_from = 1.0

[state]
round = \"nearest\"
noise = 0.0
flip = 0.0
penalty = 0.0

[search]";
    let read = |table: &str| {
        let text = BUILT_IN[1].1.replacen("[search]", table, 1);
        AutomatonExperiment::from_source(&Source::new(&text, "x.toml", "."))
    };
    let experiment = read(earlier).unwrap().experiment;
    assert_eq!(experiment.gates.numbers, crate::soft::Numbers::Four);
    assert_eq!(experiment.state.round, crate::automata::rollout::Rounding::Nearest);
    let text = experiment.to_toml();
    assert!(text.contains("[gates]") && text.contains("[state]"), "{text}");
    for key in ["entropy =", "harden_from =", "noise =", "flip =", "penalty ="] {
        assert!(!text.contains(key), "{key} in {text}");
    }
    for (from, to, part) in [
        ("temperature = [1.0, 1.0]", "temperature = [1.0, 0.5]", "gates.temperature was removed"),
        ("entropy = 0.0", "entropy = 0.1", "gates.entropy was removed; delete it, or set it to 0.0"),
        ("harden_from = 1.0", "harden_from = 0.5", "gates.harden_from was removed"),
        ("noise = 0.0", "noise = 0.1", "state.noise was removed"),
        ("penalty = 0.0", "penalty = 0.1", "state.penalty was removed"),
    ] {
        let message = read(&earlier.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(message.contains(part), "{to}: {message}");
    }
}

#[test]
fn settings_that_were_changed_are_checked_again() {
    let mut loaded = AutomatonExperiment::find("checkerboard").unwrap();
    loaded.check("checkerboard").unwrap();
    loaded.experiment.training.updates = 2_000_000_000_000;
    let said = loaded.check("checkerboard").unwrap_err().to_string();
    assert_eq!(said, "checkerboard: training.updates is 2000000000000, not 1 to 2^40");
}

#[test]
fn former_keys_are_read_and_errors_point_at_their_lines() {
    let text = BUILT_IN[1].1;
    let line = |text: &str, key: &str| 1 + text.lines().position(|line| line.starts_with(key)).unwrap();
    let located = |from: &str, to: &str, key: &str, message: &str| {
        let text = text.replacen(from, to, 1);
        let said =
            AutomatonExperiment::from_source(&Source::new(&text, "x.toml", ".")).unwrap_err().to_string();
        assert_eq!(said, format!("x.toml:{}: {message}", line(&text, key)));
    };
    for name in ["runs", "restarts", "tries"] {
        located(
            "runs = 100",
            &format!("{name} = 0"),
            &format!("{name} = 0"),
            "search.runs is not 1 to 100000",
        );
    }
    located("runs = 100", "baths = 0", "baths", "search.chains is not 1 to 256");
    located("kind = \"random\"", "kind = \"boards\"\nboards = []", "boards", "start.grids is empty");

    let former = text.replacen("runs = 100", "restarts = 7", 1).replacen(
        "kind = \"random\"",
        "kind = \"boards\"\nboards = [\"#\"]",
        1,
    );
    let read = AutomatonExperiment::from_source(&Source::new(&former, "x.toml", ".")).unwrap().experiment;
    assert_eq!(read.search().unwrap().runs, 7);
    assert_eq!(read.start, Start::Grids { grids: vec!["#".into()] });
    assert!(read.to_toml().contains("runs = 7") && read.to_toml().contains("kind = \"grids\""));
}

#[test]
fn warm_restarts_are_those_of_the_file_and_come_and_go_with_a_changed_recipe() {
    let mut training = Training::of_recipe(Recipe::Gradient);
    training.change_recipe(Recipe::Gradient);
    assert_eq!(training.warm_restarts, None, "a file without them has none");
    training.change_recipe(Recipe::Paper);
    training.change_recipe(Recipe::Gradient);
    assert_eq!(training.warm_restarts, Some(WARM_RESTARTS));
    training.change_recipe(Recipe::Search);
    assert_eq!(training.warm_restarts, None);
    let own = Some(WarmRestarts { every: 7, keep: 0.5, noise: 0.0 });
    training.warm_restarts = own;
    training.change_recipe(Recipe::Paper);
    training.change_recipe(Recipe::Gradient);
    assert_eq!(training.warm_restarts, own);
    let built_in = AutomatonExperiment::find("checkerboard-gradient").unwrap().experiment;
    assert_eq!(built_in.training.warm_restarts, Some(WARM_RESTARTS));
}

#[test]
fn progress_reaches_the_end_with_and_without_warm_restarts() {
    let mut experiment = AutomatonExperiment::find("checkerboard-gradient").unwrap().experiment;
    experiment.training.updates = 100;
    for (every, update, expected) in
        [(None, 75, 0.75), (Some(20), 75, 0.75), (Some(50), 75, 0.5), (Some(50), 50, 0.0)]
            .into_iter()
            .chain([(Some(100), 75, 0.75), (Some(u64::MAX), 75, 0.75)])
    {
        experiment.training.warm_restarts = every.map(|every| WarmRestarts { every, ..WARM_RESTARTS });
        assert_eq!(experiment.progress(update), expected, "{every:?} {update}");
    }
}
