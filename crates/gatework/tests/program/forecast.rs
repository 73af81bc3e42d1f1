//! `gatework forecast`: from a CSV file to a forecast, a report and settings that repeat it.

use gatework_test_support::program::assert_says;

use std::fmt::Write as _;

use crate::{Place, is_clean};

/// Two products over 16 weeks, with rows of a known promotion after the last values.
fn shop() -> Place {
    let place = Place::new("gatework");
    let mut text = String::from("\u{feff}Date;Product;Units;Promo\r\n");
    for product in ["apples", "pears; ripe"] {
        for day in 0..126u32 {
            let (month, of_month) = [(31, 1), (29, 2), (31, 3), (30, 4), (31, 5)]
                .iter()
                .try_fold(
                    day,
                    |left, (days, month)| {
                        if left < *days { Err((*month, left + 1)) } else { Ok(left - days) }
                    },
                )
                .unwrap_err();
            let promo = u32::from(day * 13 % 29 < 4);
            let units = f64::from(20 + 5 * (day % 7) + day * 31 % 5) * (1.0 + 0.5 * f64::from(promo));
            let units = if day < 112 { format!("{units:.1}").replace('.', ",") } else { String::new() };
            writeln!(text, "{of_month:02}/{month:02}/2024;\"{product}\";{units};{promo}\r").unwrap();
        }
    }
    place.write("shop.csv", &text);
    place
}

#[test]
fn a_file_is_forecast_without_settings_and_the_settings_repeat_it() {
    let place = shop();
    let said = place.stderr("forecast shop.csv --horizon 14 -o out.csv --report out.html --time 20s");
    assert_says(
        &said,
        &[
            "times: \"Date\"",
            "%d/%m/%Y",
            "decimal separator ','",
            "each \"Product\"",
            "known in advance: \"Promo\"",
            "chosen",
        ],
    );
    let forecast = place.text("out.csv");
    let lines: Vec<&str> = forecast.lines().collect();
    assert_eq!(lines[0], "Product,Date,forecast,low_80,high_80,low_95,high_95");
    assert_eq!(lines.len(), 1 + 2 * 14);
    assert!(lines[1].starts_with("apples,22/04/2024,") && lines[15].starts_with("pears; ripe,22/04/2024,"));
    for line in &lines[1..] {
        let numbers: Vec<f64> = line.split(',').skip(2).map(|x| x.parse().unwrap()).collect();
        let [value, low, high, lower, higher] = numbers[..] else { panic!("{line}") };
        assert!(lower <= low && low <= value && value <= high && high <= higher, "{line}");
        assert!((10.0..90.0).contains(&value), "{line}");
    }
    assert!(place.text("out.html").contains("Forecast of shop.csv"));
    assert!(place.text("out.toml").contains("date_format = \"%d/%m/%Y\""));
    place.run("forecast out.toml -o again.csv");
    assert_eq!(place.text("again.csv").lines().count(), 29);
    assert!(is_clean(&place.path(".")));
}

#[test]
fn the_summary_is_one_object_and_the_forecast_goes_to_stdout_by_default() {
    let place = shop();
    let summary = place.json("forecast shop.csv --horizon 7 -o out.csv --models ets,theta");
    assert_eq!(summary["series"], 2);
    assert_eq!(summary["groups"][0]["group"], "regular");
    assert!(summary["groups"][0]["scores"]["theta"].as_f64().unwrap() > 0.0);
    assert!(
        place.stdout("forecast shop.csv --horizon 7 --models naive").starts_with("Product,Date,forecast")
    );
}

#[test]
fn forecasts_of_a_hierarchy_add_up_and_the_settings_repeat_it() {
    let place = Place::new("gatework");
    let mut text = String::from("date,region,store,sold\n");
    for (id, level) in [("north,1", 20), ("north,2", 30), ("south,1", 40)] {
        for day in 1..=28 {
            for month in 1..=3 {
                writeln!(text, "2023-0{month}-{day:02},{id},{}", level + day % 7 + day * 31 % 5 + month)
                    .unwrap();
            }
        }
    }
    place.write("shops.csv", &text);
    let said = place
        .stderr("forecast shops.csv --horizon 7 --id region,store --hierarchy --models theta,ets -o out.csv");
    assert_says(&said, &["2 sums: total, north"]);
    let values = |file: &str| -> Vec<(String, f64)> {
        let text = place.text(file);
        let fields = |line: &str| {
            let fields: Vec<&str> = line.split(',').collect();
            (fields[0].to_string(), fields[2].parse().unwrap())
        };
        text.lines().skip(1).map(fields).collect()
    };
    let all = values("out.csv");
    let of =
        |id: &str| -> Vec<f64> { all.iter().filter(|(known, _)| known == id).map(|(_, y)| *y).collect() };
    for step in 0..7 {
        let sum = of("north/1")[step] + of("north/2")[step];
        assert!((of("north")[step] - sum).abs() < 1e-3);
        assert!((of("total")[step] - sum - of("south/1")[step]).abs() < 1e-3);
    }
    place.run("forecast out.toml -o again.csv");
    assert_eq!(values("again.csv"), all);
}

#[test]
fn public_holidays_are_known_in_advance_and_part_of_the_settings() {
    let place = Place::new("gatework");
    let mut text = String::from("date,sold\n");
    for month in 1..=6 {
        for day in 1..=28 {
            writeln!(text, "2024-{month:02}-{day:02},{}", 20 + day % 7 + month).unwrap();
        }
    }
    place.write("sales.csv", &text);
    place.run("forecast sales.csv --horizon 7 --holidays us --models regression -o out.csv");
    assert!(place.text("out.toml").contains("holidays = \"US\""));
    place.run("forecast out.toml -o again.csv");
    assert_eq!(place.text("again.csv"), place.text("out.csv"));
}

#[test]
fn days_without_rows_of_counts_are_days_without_sales() {
    let place = Place::new("gatework");
    let mut text = String::from("date,item,sold\n");
    for day in 1..=28 {
        for item in 1..=3 {
            if (day * 7 + item * 5) % 11 < 5 {
                writeln!(text, "2024-01-{day:02},{item},{}", 1 + day % 3).unwrap();
            }
        }
    }
    place.write("rare.csv", &text);
    let said = place.stderr("forecast rare.csv --horizon 5 --models croston,tsb,naive -o out.csv");
    assert_says(&said, &["times without a row count as times without sales", "frequency D", "intermittent"]);
    assert!(place.text("out.toml").contains("missing = \"zero\""));
    let said = place.stderr("forecast rare.csv --horizon 5 --models naive --missing interpolate -o out.csv");
    assert!(!said.contains("count as times without sales"), "{said}");
    let said = place.stderr("forecast out.toml -o again.csv");
    assert!(!said.contains("count as times without sales"), "{said}");
}

#[test]
fn mistakes_are_answered_with_what_to_do() {
    let place = shop();
    let table = place.text("shop.csv");
    assert_says(&place.refused(2, "forecast shop.csv"), &["--horizon"]);
    assert_says(&place.refused(2, "forecast shop.csv --horizon 0"), &["above 0"]);
    assert_says(
        &place.refused(2, "forecast shop.csv --horizon 7 -o shop.csv"),
        &["--output is the file of the data"],
    );
    assert_says(&place.refused(2, "forecast shop.csv --horizon 7 --levels 120"), &["80,95"]);
    assert_says(
        &place.refused(1, "forecast shop.csv --horizon 7 --models prophet"),
        &["\"prophet\"", "theta"],
    );
    assert_says(&place.refused(1, "forecast shop.csv --horizon 999"), &["999", "112 values"]);
    assert_says(&place.refused(1, "forecast none.csv --horizon 7"), &["cannot read none.csv"]);
    assert_says(&place.refused(1, "forecast shop.csv --horizon 7 --target units"), &["\"units\"", "Units"]);
    assert_says(
        &place.refused(2, "train shop.csv --horizon 7"),
        &["is a table", "forecast shop.csv --horizon 7"],
    );
    place.write("other.toml", "task = \"forecaster\"\n");
    assert_says(&place.refused(2, "forecast other.toml -o x.csv"), &["\"forecaster\"", "gatework train"]);
    assert_eq!(place.text("shop.csv"), table);
}
