//! Classifiers from the command line: data without an experiment, mistakes, and reduction on data.

use std::fmt::Write as _;

use crate::{assert_says, place};

/// A table of two numbers, a colour, a row number and two classes.
fn table() -> String {
    let mut text = String::from("id;width;height;color;shape\n");
    for row in 0..120 {
        let (width, height) = (row * 7 % 31, row * 11 % 29);
        let color = ["red", "green", "NA"][row % 3];
        let shape = if width > height { "wide" } else { "tall" };
        let _ = writeln!(text, "{row};{width};{height};{color};{shape}");
    }
    text
}

#[test]
fn a_table_is_trained_without_an_experiment() {
    let place = place();
    place.write("shapes.csv", &table());
    let said = place.stderr("train shapes.csv --epochs 3 --test 0.25");
    assert_says(
        &said,
        &[
            "shapes.csv: a table with a header, separated by ';'",
            "classes: column \"shape\"",
            "ignored: column \"id\", because it numbers the rows",
            "3 features, 2 classes",
            "Chosen: a classifier with 32 bits a number",
        ],
    );
    let settings = place.text("runs/shapes/experiment.toml");
    assert_says(
        &settings,
        &["task = \"classifier\"", "label = \"shape\"", "separator = \";\"", "test = 0.25"],
    );
    // What was chosen is an experiment of its own, with the same result.
    let accuracy = |arguments: &str| place.json(arguments)["accuracy"].as_f64().unwrap();
    place.write("again.toml", &settings);
    let again = accuracy("train again.toml");
    assert!((again - accuracy("evaluate runs/shapes")).abs() < 1e-12);
    assert_says(&place.refused(2, "evaluate runs/shapes --mistakes m.svg"), &["but the data are a table"]);

    let reduced = place.json("minimize runs/shapes --data");
    let on_data = &reduced["on_data"];
    assert!(on_data["gates"][1].as_u64() <= on_data["gates"][0].as_u64());
    assert!(on_data["held_back"]["after"].as_f64() >= on_data["held_back"]["before"].as_f64());
    assert_eq!((&reduced["proved"], &reduced["gates_before"]), (&false.into(), &on_data["gates"][0]));
    assert_says(&place.text("runs/shapes/minimized-on-data.json"), &["\"wide\""]);
    place.json("minimize runs/shapes");
    place.json("evaluate runs/shapes/minimized.json shapes.csv");
}

#[test]
fn mistakes_in_images_are_drawn() {
    let place = place();
    place.run("train digits --epochs 1");
    let wrong = 1.0 - place.json("evaluate runs/digits --mistakes m.svg")["accuracy"].as_f64().unwrap();
    let (sheet, wrong) = (place.text("m.svg"), (wrong * 359.0).round());
    assert_says(&sheet, &[&format!("{wrong} mistakes in 359 samples")]);
    assert_eq!(sheet.matches("<image ").count().to_string(), wrong.min(40.0).to_string());
}

#[test]
fn data_that_cannot_be_classified_are_refused() {
    let place = place();
    place.write("a.csv", &table());
    place.write("one.csv", "a,b\n1,x\n2,x\n3,x\n");
    place.write("single.csv", "a,b\n1,x\n2,x\n3,y\n4,x\n");
    place.write("infinite.csv", "a,b\n1,x\n2,y\ninf,x\n2,y\n");
    place.write("constant.csv", "a,b\n1,x\n1,y\n1,x\n1,y\n1,x\n1,y\n");
    place.write("ragged.csv", "a,b\n1,x\n2\n");
    let price: Vec<String> = (0..40).map(|row| format!("{},{}.5\n", row % 7, row * 3)).collect();
    place.write("price.csv", &price.concat());
    let dated: Vec<String> = (10..30).map(|day| format!("2024-01-{day},{},{}\n", day % 7, day % 2)).collect();
    place.write("dated.csv", &format!("date,size,kind\n{}", dated.concat()));
    for (arguments, said) in [
        (
            "train a.csv --label kind",
            "there is no column \"kind\"; the columns are id, width, height, color, shape",
        ),
        ("train a.csv --test 1.5", "data.test is 1.5"),
        ("train a.csv --test none.csv", "none.csv"),
        ("train a.csv --horizon 3", "forecast a.csv --horizon 3"),
        ("train a.csv --horizon 3 --label shape", "--horizon is for forecasters"),
        ("train digits --label x", "--label is for the data of a classifier"),
        ("train missing.csv", "missing.csv does not exist"),
        ("train dated.csv", "train dated.csv --label kind"),
        ("train one.csv", "all rows have the class \"x\""),
        ("train single.csv", "class \"y\" has one row"),
        ("train infinite.csv", "infinite.csv:4: column \"a\" is inf"),
        ("train constant.csv", "every feature is constant"),
        ("train ragged.csv", "ragged.csv:3: the line has 1 field"),
        ("train price.csv", "has 40 different values in 40 rows"),
    ] {
        assert_says(&place.refused(2, arguments), &[said]);
    }
    assert!(!place.path("runs").exists(), "nothing is left behind");
}
