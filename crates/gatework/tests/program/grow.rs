//! `gatework grow`, rules by name, and grids from files.

use crate::{assert_says, place, trained};

#[test]
fn a_picture_grows_at_the_first_call_and_its_settings_can_be_trained_again() {
    let place = place();
    place.write("arrow.txt", "...#.\n#####\n...#.\n");
    let summary = place.json("grow arrow.txt --updates 5 --seed 1 --out run");
    assert_eq!(summary["success"], true);
    let stages = summary["stages"].as_array().unwrap();
    assert_eq!(stages[0]["name"], "descent");
    assert_eq!((&stages[stages.len() - 1]["wrong"], &stages[0]["of"]), (&0.into(), &15.into()));
    let settings = place.text("run/experiment.toml");
    assert_says(&settings, &["kind = \"picture\"", "file = \"target.txt\"", "grid = [3, 5]"]);
    assert_says(&place.stdout("list arrow.txt"), &["file = \"arrow.txt\"", "grid = [3, 5]"]);
    let simulated = place.json("simulate run --gif arrow.gif");
    assert_eq!(simulated["wrong"], 0);
    assert!(place.read("arrow.gif").starts_with(b"GIF89a"));
    let again = place.json("train run/experiment.toml --out again --threads 1");
    assert_eq!(again["gates"], summary["gates"]);
}

#[test]
fn a_picture_that_has_to_heal_stays_and_heals() {
    let place = place();
    place.write("arrow.txt", "....#...\n.....#..\n######..\n.....#..\n....#...\n");
    let summary = place.json("grow arrow.txt --heal --updates 5 --seed 1 --out run");
    assert_eq!(summary["success"], true);
    let properties = summary["properties"].as_array().unwrap();
    let names: Vec<&str> = properties.iter().filter_map(|found| found["property"].as_str()).collect();
    assert_eq!(names, ["stay", "heal"]);
    assert!(
        properties.iter().all(|found| found["holds"] == true && found["proved"] == true),
        "{properties:?}"
    );
    assert_says(&place.text("run/experiment.toml"), &["[success.heal]", "size = 4"]);
    place.json("check run --within 6 --stay");
    let refused = place.refused(2, "grow arrow.txt --heal 5 --out other");
    assert_says(&refused, &["success.heal: size is 5", "sides of 5 and 8 has 1 to 4 rows"]);
}

#[test]
fn targets_that_cannot_be_learned_are_refused() {
    let place = place();
    place.write("blank.txt", "....\n....\n");
    place.write("one.txt", "#\n");
    place.write("wide.txt", &("#".repeat(65) + "\n"));
    for (arguments, part) in [
        ("grow blank.txt", "the picture is blank"),
        ("grow one.txt", "a single cell"),
        ("grow wide.txt", "at most 64x64 cells"),
        ("grow missing.png", "missing.png"),
        ("train B9/S", "'9' is not a number of neighbours"),
        ("train B3S23", "no / between births and survivals"),
        ("train rule:300", "elementary rules are 0 to 255"),
        ("grow blank.txt --from seed", "--repeat"),
    ] {
        assert_says(&place.refused(2, arguments), &[part]);
    }
    assert!(!place.path("runs").exists());
}

#[test]
fn a_simulation_starts_from_a_grid_in_a_file() {
    let place = trained();
    place.write("glider.rle", "x = 3, y = 3, rule = B3/S23\nbo$2bo$3o!\n");
    let result = place.json("simulate run --start glider.rle --steps 2 --damage centre:3:1-2");
    assert_eq!((&result["height"], &result["width"]), (&9.into(), &10.into()), "the grid of training");
    place.write("long.txt", &format!("{}\n", "#.".repeat(20)));
    assert_eq!(place.json("simulate run --start long.txt --steps 2")["width"], 40, "the grid of the file");
    let said = place.refused(2, "simulate run --start nothing");
    assert_says(&said, &["neither random, seed or zeros nor a file"]);
    place.write("bad.rle", "x = 3, y = 3\n9o!\n");
    assert_says(&place.refused(2, "simulate run --start bad.rle"), &["bad.rle: line 2: a run goes beyond"]);
    assert_says(&place.refused(2, "simulate run --damage centre:3:5-2"), &["FIRST-LAST"]);
}
