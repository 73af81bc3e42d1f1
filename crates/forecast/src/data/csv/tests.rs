//! Tests of the CSV reader.

use std::fmt::Write as _;
use std::io::Write as _;

use super::*;
use crate::data::table::Missing;
use crate::data::time;
use proptest::prelude::*;

fn schema(text: &str) -> Schema {
    toml::from_str(text).unwrap()
}

fn read(text: &str, options: &str) -> Table {
    read_csv(text.as_bytes(), "a.csv", &schema(options)).unwrap()
}

fn error(text: &[u8], options: &str) -> String {
    read_csv(text, "a.csv", &schema(options)).unwrap_err().to_string()
}

#[test]
fn many_series_of_different_lengths_are_read_in_any_order() {
    let text = "unique_id,ds,y\nb,2,20\na,1,1\nb,1,10\nb,3,30\na,2,2\na,3,3\na,4,4\n";
    let table = read(text, "");
    assert_eq!(table.series[0].values, [10., 20., 30.]);
    assert_eq!(table.find("a").unwrap().values, [1., 2., 3., 4.]);
    assert_eq!((table.report.rows, table.report.unsorted_series), (7, 1));
    assert_eq!(table.time(&table.series[1], 3), "4");
}

#[test]
fn series_that_lack_most_days_have_the_frequency_of_the_table() {
    let mut text = "unique_id,ds,y\n".to_string();
    for day in (1..=28).step_by(2) {
        writeln!(text, "a,2024-01-{day:02},1").unwrap();
    }
    for day in [1, 2, 3, 4, 6, 7, 8, 9, 10] {
        writeln!(text, "b,2024-01-{day:02},2").unwrap();
    }
    // Each second day all month long is a frequency.
    assert!(error(text.as_bytes(), "missing = \"zero\"").contains("frequency"));
    for day in [16, 21, 22] {
        text = text.replace(&format!("a,2024-01-{:02},1\n", day - day % 2 + 1), "");
    }
    let table = read(&text, "missing = \"zero\"");
    assert_eq!(table.frequency.to_string(), "D");
    assert_eq!(table.find("b").unwrap().values.len(), 10);
}

#[test]
fn bars_separate_fields_and_words_stand_for_missing_values() {
    let table = read("ds|y\n1|5\n2|#N/A\n3|?\n4|7\n", "missing = \"interpolate\"");
    assert_eq!(table.series[0].values.len(), 4);
}

#[test]
fn covariates_of_all_kinds_are_read() {
    let text = "shop;day;sold;weather;price;size\nx;2024-01-01;1;5;9;2\nx;2024-01-02;2;6;8;2\n\
                x;2024-01-03;3;7;7;2\nx;2024-01-04;;;6;2\n";
    let options = "id = \"shop\"\ntime = \"day\"\ntarget = \"sold\"\npast = [\"weather\"]\n\
                   future = [\"price\"]\nstatic = [\"size\"]";
    let table = read(text, options);
    let x = &table.series[0];
    assert_eq!((x.values.as_slice(), x.past.as_slice()), (&[1., 2., 3.][..], &[5., 6., 7.][..]));
    // The row without a value has known-future covariates.
    assert_eq!((x.future.as_slice(), x.fixed.as_slice()), (&[9., 8., 7., 6.][..], &[2.][..]));
}

#[test]
fn a_wide_file_with_a_column_y_is_ambiguous() {
    let wide = "ds,x,y\n1,1,4\n2,2,5\n3,3,6\n";
    let message = error(wide.as_bytes(), "layout = \"wide\"\ntarget = \"y\"");
    assert!(message.contains("a.csv:1: target = \"y\" is ambiguous"), "{message}");
    assert_eq!(read(wide, "layout = \"wide\"\ntarget = [\"y\"]").series.len(), 1);
    assert_eq!(read(wide, "layout = \"wide\"\ntarget = [\"x\", \"y\"]").series.len(), 2);
    assert_eq!(read(&wide.replace(",x", ",z").replace(",y", ",w"), "layout = \"wide\"").series.len(), 2);
    assert_eq!(read("ds,y\n1,1\n2,2\n3,3\n", "layout = \"wide\"").series[0].id, "y");
}

#[test]
fn an_expected_frequency_is_used_if_the_times_are_compatible() {
    let found = |expected: &str, times: &[&str]| {
        let rows = times.iter().map(|time| format!("{time},1\n")).collect::<Vec<_>>().concat();
        let schema = Schema { expected: Some(expected.into()), ..schema("missing = \"drop\"") };
        let table = read_csv(format!("ds,y\n{rows}").as_bytes(), "a.csv", &schema);
        table.map_or_else(|error| error.to_string(), |table| table.frequency.to_string())
    };
    // Monday to Friday, without Wednesday, and two days only.
    assert_eq!(found("B", &["2024-01-01", "2024-01-02", "2024-01-04", "2024-01-05"]), "B");
    assert_eq!(found("B", &["2024-01-01", "2024-01-02"]), "B");
    // Friday, Saturday, Sunday; every second day; hours.
    assert_eq!(found("B", &["2024-01-05", "2024-01-06", "2024-01-07"]), "D");
    assert_eq!(found("D", &["2024-01-01", "2024-01-03", "2024-01-05"]), "2D");
    assert_eq!(found("D", &["2024-01-01 00:00", "2024-01-01 01:00", "2024-01-01 02:00"]), "h");
    // Integers are not days.
    assert_eq!(found("D", &["1", "2", "3"]), "1");
    assert!(found("D", &["1", "2"]).contains("\"D\" is not a frequency of these times"));
}

#[test]
fn wide_files_and_files_of_rows_are_read() {
    let wide = "date,A,B\n2024-01-01 00:00:00,1,4\n2024-01-01 01:00:00,2,5\n2024-01-01 02:00:00,3,6\n";
    let table = read(wide, "layout = \"wide\"\ntime = \"date\"");
    assert_eq!(table.find("A").unwrap().values, [1., 2., 3.]);
    assert_eq!(table.find("B").unwrap().values, [4., 5., 6.]);
    assert_eq!((table.frequency.to_string().as_str(), table.frequency.season()), ("h", 24));
    let one = read(wide, "layout = \"wide\"\ntime = \"date\"\ntarget = [\"B\"]");
    assert_eq!((one.series.len(), one.series[0].id.as_str()), (1, "B"));
    let one = read(wide, "layout = \"wide\"\ntime = \"date\"\ntarget = \"B\"");
    assert_eq!((one.series.len(), one.series[0].id.as_str()), (1, "B"));
    let rows = "\"V1\",\"V2\",\"V3\",\"V4\"\n\"H1\",\"1\",\"2\",\"3\"\n\"H2\",\"4\",\"5\",\"\"\n";
    let table = read(rows, "layout = \"rows\"");
    assert_eq!(table.find("H1").unwrap().values, [1., 2., 3.]);
    assert_eq!(table.find("H2").unwrap().values, [4., 5.]);
}

#[test]
fn ids_and_compression_are_detected() {
    let text =
        "\u{feff}\"Month\",\"Passengers\"\r\n\"1949-01\",112\r\n\"1949-02\",118\r\n\"1949-03\",132\r\n";
    let options = "time = \"Month\"\ntarget = \"Passengers\"";
    let table = read(text, options);
    assert_eq!(
        (table.series[0].id.as_str(), table.time(&table.series[0], 3).as_str()),
        ("Passengers", "1949-04")
    );
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(text.as_bytes()).unwrap();
    let packed = gzip.finish().unwrap();
    assert_eq!(read_csv(packed.as_slice(), "a.csv.gz", &schema(options)).unwrap(), table);
    let cut = error(&packed[..packed.len() / 2], options);
    assert!(cut.starts_with("a.csv:"), "{cut}");
}

#[test]
fn errors_name_their_line() {
    let head = "unique_id,ds,y\n";
    for (text, options, part) in [
        ("", "", "a.csv: there are no rows of data"),
        (head, "", "a.csv: there are no rows of data"),
        ("unique_id,date,y\na,1,1\n", "", "a.csv:1: there is no column \"ds\"; there are unique_id, date, y"),
        ("unique_id,ds,y,y\na,1,1,1\n", "", "a.csv:1: the column \"y\" occurs or is used twice"),
        (&format!("{head}a,2024-01-01,1\na,2024-02-30,1\n"), "", "a.csv:3: \"2024-02-30\" is not a time"),
        (&format!("{head}a,2024-01-01,1\na,7,1\n"), "", "a.csv:3: \"7\" is a time of another kind"),
        (&format!("{head}a,1,1\na,2,x\n"), "", "a.csv:3: y: \"x\" is not a number"),
        (&format!("{head}a,1,1\na,2,inf\n"), "", "a.csv:3: y: inf is infinite"),
        (&format!("{head}a,1,1\na,2,1e39\n"), "", "a.csv:3: y: 1e39 is infinite, or too large"),
        (&format!("{head}a,1,1\na,2\n"), "", "a.csv:3: the row has 2 fields, but the header has 3"),
        (
            &format!("{head}a,1,1\na,2,1\nb,1,1\na,1,3\n"),
            "",
            "a.csv:5: series \"a\" has two rows at 1; the other is line 2",
        ),
        (&format!("{head}a,1,1\na,2,NaN\na,3,1\n"), "", "a.csv:3: series \"a\": y is missing at 2"),
        (
            &format!("{head}a,1,1\na,2,1\na,3,1\na,6,1\n"),
            "",
            "a.csv:5: series \"a\": 2 of its times before 6 are missing (frequency 1)",
        ),
        (
            &format!("{head}a,0,1\na,10,1\na,20,1\na,25,1\na,30,1\na,40,1\n"),
            "",
            "a.csv:5: series \"a\": 25 is not on the time grid (frequency 10)",
        ),
        (
            &format!("{head}a,1,1\na,2,1\na,3,1\nb,1,1\nb,3,1\nb,5,1\n"),
            "",
            "mixed frequencies: series \"a\" has 1, series \"b\" has 2",
        ),
        (&format!("{head}a,1,1\na,2,1\n"), "", "the frequency cannot be detected"),
        (&format!("{head}a,1,1\na,2,1\n"), "frequency = \"h\"", "\"h\" is not a frequency of these times"),
        (&format!("{head}a,1,\na,2,\na,3,\n"), "missing = \"drop\"", "a.csv:2: series \"a\": y has no value"),
        (
            &format!("{head}a,1,1\na,2,1\na,3,1\na,9000000000,1\n"),
            "missing = \"drop\"",
            "has 9000000000 points for 4 rows",
        ),
        (
            "ds,y,s\n1,1,1\n2,1,2\n",
            "static = [\"s\"]",
            "a.csv:3: series \"y\": the static covariate s changes",
        ),
        ("V1,V2\nH1,1\n", "layout = \"rows\"\npast = [\"x\"]", "there is no column \"x\""),
    ] {
        let message = error(text.as_bytes(), options);
        assert!(message.contains(part), "{text:?}: {message}");
    }
}

#[test]
fn months_keep_the_day_of_the_grid() {
    for (times, options, next) in [
        (["2015-02-28", "2015-03-30", "2015-04-30"], "", "2015-05-30"),
        (["2015-02-28", "2015-03-30", "2015-04-30"], "frequency = \"M\"", "2015-05-30"),
        (["2015-02-28", "2015-03-31", "2015-04-30"], "frequency = \"M\"", "2015-05-31"),
        (["2015-02-28", "2015-03-28", "2015-04-28"], "frequency = \"M\"", "2015-05-28"),
        (["2015-06-30", "2015-09-30", "2015-12-31"], "frequency = \"Q\"", "2016-03-31"),
    ] {
        let text = format!("ds,y\n{},1\n{},2\n{},3\n", times[0], times[1], times[2]);
        let table = read(&text, options);
        let series = &table.series[0];
        assert_eq!((table.time(series, 0).as_str(), table.time(series, 3).as_str()), (times[0], next));
    }
    // A time that is not on the grid does not define it.
    let text = "ds,y\n2015-02-15,1\n2015-03-15,2\n2015-04-15,3\n2015-04-30,9\n2015-05-15,4\n";
    let table = read(text, "frequency = \"M\"\nmissing = \"drop\"");
    assert_eq!(table.series[0].values, [1., 2., 3., 4.]);
}

#[test]
fn integers_are_dates_if_all_of_them_are() {
    let text = "ds,y\n20230130,1\n20230131,2\n20230201,3\n20230202,4\n";
    let table = read(text, "");
    assert_eq!((table.frequency.to_string().as_str(), table.series[0].values.len()), ("D", 4));
    assert_eq!(table.time(&table.series[0], 4), "20230203");
    assert_eq!(read(text, "frequency = \"D\""), table);
    // Integers if one of them is not a date, or if the frequency is a number.
    let text = "ds,y\n20230129,1\n20230130,1\n20230131,2\n20230132,3\n";
    assert_eq!(read(text, "").time(&read(text, "").series[0], 4), "20230133");
    let text = "ds,y\n20230126,1\n20230127,2\n20230128,3\n";
    let table = read(text, "frequency = \"1\"");
    assert_eq!(table.time(&table.series[0], 3), "20230129");
}

#[test]
fn times_keep_their_zone() {
    let text = |zones: [&str; 3]| {
        let [a, b, c] = zones;
        format!("ds,y\n2024-01-13T10:00:00{a},1\n2024-01-13T11:00:00{b},2\n2024-01-13T12:00:00{c},3\n")
    };
    for (zones, next) in [
        ([""; 3], "2024-01-13T13:00:00"),
        (["Z"; 3], "2024-01-13T13:00:00Z"),
        (["+02:00"; 3], "2024-01-13T13:00:00+02:00"),
        (["-03:30"; 3], "2024-01-13T13:00:00-03:30"),
        // With several zones, times are written in UTC.
        (["+02:00", "+01:00", "Z"], "2024-01-13T13:00:00+00:00"),
    ] {
        let table = read(&text(zones), "missing = \"drop\"\nfrequency = \"h\"");
        let series = &table.series[0];
        assert_eq!(table.time(series, series.values.len()), next);
    }
    for zones in [["Z", "", "Z"], ["", "+01:00", ""]] {
        let message = error(text(zones).as_bytes(), "");
        assert!(message.starts_with("a.csv:3: \"2024-01-13T11:00:00"), "{message}");
        assert!(message.contains("some times have a time zone and others have none"), "{message}");
    }
}

#[test]
fn gaps_follow_the_policy() {
    let text = "ds,y\n1,10\n2,NaN\n3,30\n6,60\n7,70\n";
    let of = |policy: &str| read(text, &format!("missing = \"{policy}\""));
    assert_eq!(of("forward-fill").series[0].values, [10., 10., 30., 30., 30., 60., 70.]);
    let filled = of("interpolate").series[0].clone();
    assert_eq!(filled.values, [10., 20., 30., 40., 50., 60., 70.]);
    // Imputed from the value after the gap: a forecast from there would be data leakage.
    assert_eq!(filled.leaky, [1, 3, 4]);
    assert!(of("forward-fill").series[0].leaky.is_empty());
    let dropped = of("drop");
    let known: Vec<bool> = dropped.series[0].values.iter().map(|value| !value.is_nan()).collect();
    assert_eq!(known, [true, false, true, false, false, true, true]);
    assert_eq!((dropped.report.missing_values, dropped.report.missing_times), (1, 2));
}

#[test]
fn missing_values_at_the_end_are_not_imputed() {
    let text = "ds,y\n1,10\n2,\n3,30\n4,\n5,\n";
    for policy in ["forward-fill", "interpolate", "drop"] {
        let table = read(text, &format!("missing = \"{policy}\""));
        assert_eq!(table.series[0].values.len(), 3, "{policy}");
        assert_eq!((table.report.missing_values, table.report.not_yet_known), (1, 2));
    }
}

#[test]
fn small_changes_of_large_values_are_kept() {
    let table = read(
        "ds,y,p\n1,1700000000.5,1e15\n2,1700000000.75,1000000000000001\n",
        "past = [\"p\"]\nfrequency = \"1\"",
    );
    assert_eq!(table.series[0].values, [1_700_000_000.5, 1_700_000_000.75]);
    assert_eq!(table.series[0].past, [1e15, 1e15 + 1.0]);
}

#[test]
fn a_late_past_covariate_leaks_before_its_first_value() {
    let text = "ds,y,p\n1,10,\n2,20,\n3,30,3\n4,40,4\n";
    for (policy, leaky) in [("forward-fill", &[0, 1][..]), ("interpolate", &[0, 1]), ("drop", &[])] {
        let table = read(text, &format!("missing = \"{policy}\"\npast = [\"p\"]"));
        assert_eq!(table.series[0].leaky, leaky, "{policy}");
    }
}

#[test]
fn times_not_on_the_grid_follow_the_policy() {
    let text = "ds,y\n0,0\n10,10\n20,20\n25,25\n40,40\n50,50\n";
    let of = |policy: &str| read(text, &format!("missing = \"{policy}\"")).series[0].values.clone();
    assert_eq!(of("forward-fill"), [0., 10., 20., 25., 40., 50.]);
    assert_eq!(of("interpolate"), [0., 10., 20., 30., 40., 50.]);
    assert!(of("drop")[3].is_nan());
}

#[test]
fn gaps_at_the_ends_are_trimmed() {
    let text = "ds,y,p,f\n1,,1,1\n2,2,,2\n3,,3,\n4,4,4,4\n5,,,5\n6,,,6\n";
    let table = read(text, "missing = \"interpolate\"\npast = [\"p\"]\nfuture = [\"f\"]");
    let series = &table.series[0];
    assert_eq!((series.start, series.values.as_slice()), (2, &[2., 3., 4.][..]));
    assert_eq!(
        (series.past.as_slice(), series.future.as_slice()),
        (&[2., 3., 4.][..], &[2., 3., 4., 5., 6.][..])
    );
    assert_eq!(series.leaky, [0, 1], "the past covariate is known at 1 and 3, the values at 2 and 4");
}

#[test]
fn latin_1_is_read() {
    let table = read_csv(&b"ds,T (\xb0C)\n1,1\n2,2\n3,3\n"[..], "a", &schema("layout = \"wide\"")).unwrap();
    assert_eq!((table.series[0].id.as_str(), &table.series[0].values[..]), ("T (°C)", &[1., 2., 3.][..]));
    let text = b"unique_id,ds,y\n\xe4,1,1\n\xf6,1,4\n\xe4,2,2\n\xf6,2,5\n\xe4,3,3\n\xf6,3,6\n";
    let table = read_csv(&text[..], "a", &schema("")).unwrap();
    assert_eq!(table.find("ä").unwrap().values, [1., 2., 3.]);
    assert_eq!(table.find("ö").unwrap().values, [4., 5., 6.]);
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        lengths in prop::collection::vec(3usize..30, 1..6),
        hours in 0i64..1_000_000,
        order in any::<u64>(),
    ) {
        let mut lines = Vec::new();
        for (s, length) in lengths.iter().enumerate() {
            for i in 0..*length {
                let tick = (hours + i as i64) * 3600 * time::SECOND;
                lines.push(format!("s{s},{},{}", time::format(tick, TimeKind::DateTime), s * 1000 + i));
            }
        }
        gatework_train::random::Random::new(order, gatework_train::random::Purpose::Check, 0).shuffle(&mut lines);
        let mut text = "unique_id,ds,y\n".to_string();
        for line in &lines {
                writeln!(text, "{line}").unwrap();
            }
        let table = read(&text, "frequency = \"h\"");
        for (s, length) in lengths.iter().enumerate() {
            let series = table.find(&format!("s{s}")).unwrap();
            let expected: Vec<f64> = (0..*length).map(|i| (s * 1000 + i) as f64).collect();
            prop_assert_eq!(&series.values, &expected);
            prop_assert_eq!(series.start, hours * 3600 * time::SECOND);
        }
    }

    #[test]
    fn reading_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), layout in 0usize..3) {
        let layout = ["long", "wide", "rows"][layout];
        let mut text = b"ds,y\n".to_vec();
        text.extend(&bytes);
        let _ = read_csv(text.as_slice(), "a", &schema(&format!("layout = \"{layout}\"\nmissing = \"drop\"")));
        let _ = read_csv(bytes.as_slice(), "a", &Schema { missing: Missing::Interpolate, ..Schema::default() });
    }

    #[test]
    fn filling_matches_a_slow_twin(
        present in prop::collection::vec(prop::option::of(-100i32..100), 3..40),
        forward in any::<bool>(),
    ) {
        let mut text = "ds,y\n".to_string();
        for (i, value) in present.iter().enumerate() {
            if let Some(value) = value {
                writeln!(text, "{i},{value}").unwrap();
            }
        }
        let policy = if forward { "forward-fill" } else { "interpolate" };
        let options = schema(&format!("missing = \"{policy}\"\nfrequency = \"1\""));
        let known: Vec<usize> = (0..present.len()).filter(|i| present[*i].is_some()).collect();
        prop_assume!(!known.is_empty());
        let table = read_csv(text.as_bytes(), "a", &options).unwrap();
        let value = |i: usize| f64::from(present[i].unwrap());
        let (first, last) = (known[0], known[known.len() - 1]);
        let reference: Vec<f64> = (first..=last).map(|i| {
            let before = known.iter().copied().filter(|k| *k <= i).max().unwrap();
            let after = known.iter().copied().filter(|k| *k >= i).min().unwrap();
            if forward || before == after { return value(before) }
            let fraction = (i - before) as f64 / (after - before) as f64;
            value(before) + fraction * (value(after) - value(before))
        }).collect();
        prop_assert_eq!(&table.series[0].values, &reference);
    }
}

#[test]
fn a_time_far_away_that_is_not_on_the_grid_does_not_become_many_points() {
    let text = "ds,y\n20230130,1\n20460404,4\n2023202301310201,2\n";
    for missing in ["forward-fill", "interpolate"] {
        let error = error(text.as_bytes(), &format!("missing = \"{missing}\""));
        assert!(error.contains("points for 3 rows"), "{error}");
    }
}

#[test]
fn names_of_columns_are_times_only_if_the_schema_says_so() {
    let text = "id,2023-01,2023-02,2023-03\na,1,2,3\n";
    let table = read(text, "layout = \"rows\"");
    assert_eq!((table.frequency.to_string().as_str(), table.series[0].start), ("1", 1));
    let table = read(text, "layout = \"rows\"\ntimes_in_header = true");
    assert_eq!((table.frequency.to_string().as_str(), table.series[0].values.len()), ("M", 3));
    let wrong = error(b"id,V1,V2\na,1,2\n", "layout = \"rows\"\ntimes_in_header = true");
    assert!(wrong.starts_with("a.csv:1: \"V1\" is not a time"), "{wrong}");
    let guessed = Schema { layout: Layout::Rows, times_in_header: true, ..Schema::default() };
    assert_eq!(toml::from_str::<Schema>(&toml::to_string(&guessed).unwrap()).unwrap(), guessed);
    assert!(!toml::to_string(&Schema::default()).unwrap().contains("times_in_header"));
}
