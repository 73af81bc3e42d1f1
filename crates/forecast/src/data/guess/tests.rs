//! Files as people have them are read as they are meant, or refused with the option that helps.

use super::*;
use crate::data::{Table, read_csv};
use proptest::prelude::*;

fn guess(text: &str) -> Result<Guess, DataError> {
    guess_csv(text.as_bytes(), "t.csv", &Hints::default())
}

fn read(text: &str) -> Table {
    let guess = guess(text).unwrap();
    read_csv(text.as_bytes(), "t.csv", &guess.schema).unwrap()
}

fn refused(text: &str) -> String {
    guess(text).unwrap_err().to_string()
}

fn days(count: usize, row: impl Fn(usize) -> String) -> String {
    (0..count).map(|i| ["2024-01-", &format!("{:02},{}", i + 1, row(i)), "\n"].concat()).collect()
}

#[test]
fn one_series_needs_no_names() {
    let table = read(&format!("when,how many\n{}", days(9, |i| i.to_string())));
    assert_eq!((table.series.len(), table.series[0].id.as_str()), (1, "how many"));
    assert_eq!(table.frequency.to_string(), "D");
    let years = read("YEAR,SUNACTIVITY\n1700,5\n1701,11\n1702,16\n1703,23\n");
    assert_eq!(years.series[0].values, [5.0, 11.0, 16.0, 23.0]);
}

#[test]
fn numbers_are_read_as_people_write_them() {
    let comma =
        "\u{feff}Datum;Absatz\r\n01.02.2024;0,5\r\n02.02.2024;1.234,5\r\n03.02.2024;7\r\n04.02.2024;8\r\n";
    let table = read(comma);
    assert_eq!(table.series[0].values, [0.5, 1234.5, 7.0, 8.0]);
    assert_eq!(table.time(&table.series[0], 4), "05.02.2024");
    let dollars = "date,revenue\n2024-01-01,\"$1,234\"\n2024-01-02,$0\n2024-01-03,\"$12,000\"\n";
    assert_eq!(read(dollars).series[0].values, [1234.0, 0.0, 12000.0]);
    let note = guess(dollars).unwrap().notes.join("\n");
    assert!(note.contains("decimal separator '.', with commas between thousands"), "{note}");
}

#[test]
fn dates_are_decided_by_what_they_show_or_refused_with_a_remedy() {
    let rows = |dates: &[&str]| -> String {
        dates.iter().enumerate().map(|(i, date)| [date, ",", &i.to_string(), "\n"].concat()).collect()
    };
    let format =
        |dates: &[&str]| guess(&format!("date,y\n{}", rows(dates))).unwrap().schema.date_format.unwrap();
    // A day beyond 12.
    assert_eq!(format(&["12/01/2023", "13/01/2023", "14/01/2023"]), "%d/%m/%Y");
    assert_eq!(format(&["1/12/2023", "1/13/2023", "1/14/2023"]), "%m/%d/%Y");
    // Both are dates: one of them is regular.
    let months = ["01/11/2022", "01/12/2022", "01/01/2023", "01/02/2023", "01/03/2023"];
    assert_eq!(format(&months), "%d/%m/%Y");
    assert_eq!(
        format(&["1/2/2023 1:00 PM", "1/2/2023 2:00 PM", "1/2/2023 3:00 PM", "1/13/2023 4:00 PM"]),
        "%m/%d/%Y %I:%M %p"
    );
    let twelve: Vec<String> = (1..=12).map(|i| format!("01/{i:02}/2023")).collect();
    let twelve: Vec<&str> = twelve.iter().map(String::as_str).collect();
    let said = refused(&format!("date,y\n{}", rows(&twelve)));
    assert!(said.contains("--date-format \"%d/%m/%Y\" or \"%m/%d/%Y\""), "{said}");
    let hints = Hints { date_format: Some("%m/%d/%Y".into()), ..Hints::default() };
    let text = format!("date,y\n{}", rows(&twelve));
    let guess = guess_csv(text.as_bytes(), "t", &hints).unwrap();
    assert_eq!(read_csv(text.as_bytes(), "t", &guess.schema).unwrap().frequency.to_string(), "D");
}

#[test]
fn layouts_are_told_apart() {
    let wide = guess(&format!("date,apples,pears\n{}", days(5, |i| format!("{i},{}", 2 * i)))).unwrap();
    assert_eq!(wide.schema.layout, Layout::Wide);
    assert_eq!(wide.schema.target, Target::Several(vec!["apples".into(), "pears".into()]));
    let long = "day,shop,sold\n".to_string()
        + &days(5, |i| format!("north,{i}"))
        + &days(5, |i| format!("south,{i}"));
    assert_eq!(read(&long).series.iter().map(|s| s.id.as_str()).collect::<Vec<_>>(), ["north", "south"]);
    let codes =
        "day,store,sold\n".to_string() + &days(5, |i| format!("1,{i}")) + &days(5, |i| format!("2,{i}"));
    assert_eq!(guess(&codes).unwrap().schema.id.as_deref(), Some("store"));
    let mut both = "day,store,item,sold\n".to_string();
    for (store, item) in [(1, "a"), (1, "b"), (2, "a"), (2, "b")] {
        both += &days(5, |i| format!("{store},{item},{i}"));
    }
    let table = read(&both);
    let mut ids: Vec<&str> = table.series.iter().map(|series| series.id.as_str()).collect();
    ids.sort_unstable();
    assert_eq!(ids, ["1/a", "1/b", "2/a", "2/b"]);
    let values = (1..=12).map(|i| i.to_string()).collect::<Vec<_>>().join(",");
    let header = (1..=12).map(|i| format!("V{i}")).collect::<Vec<_>>().join(",");
    let rows = read(&format!("id,{header}\nH1,{values}\nH2,{values}\n"));
    assert_eq!((rows.series.len(), rows.series[1].values.len()), (2, 12));
}

#[test]
fn rows_after_the_last_value_tell_what_is_known_in_advance() {
    let row = |i: usize| {
        format!(
            "{},{},{}",
            if i < 6 { i.to_string() } else { String::new() },
            i % 2,
            if i < 6 { "3" } else { "" }
        )
    };
    let found = guess(&format!("date,sales,promo,stock\n{}", days(9, row))).unwrap();
    assert_eq!(found.schema.future, ["promo"]);
    assert_eq!(found.schema.target, Target::One("sales".into()));
    assert!(found.notes.iter().any(|note| note == "not used: \"stock\""), "{:?}", found.notes);
    let row = |i: usize| format!("{i},{}", i % 2);
    let found = guess(&format!("date,sales,promo\n{}", days(9, row))).unwrap();
    let advice = found.notes.iter().find(|note| note.starts_with("not used: \"promo\"; "));
    assert!(
        advice.is_some_and(|note| note.ends_with("rows for the forecast follow in which \"sales\" is empty"))
    );
}

#[test]
fn years_and_months_beside_finer_times_are_features() {
    let rows: Vec<String> =
        (1..60).map(|i| format!("{i},{},{},{}\n", 2023 + i / 40, i / 30 + 1, i % 7)).collect();
    let found = guess(&format!("time,year,month,sales\n{}", rows.concat())).unwrap().schema;
    assert_eq!((found.time.as_str(), found.time_parts.len()), ("time", 0));
}

#[test]
fn what_cannot_be_guessed_is_refused_with_the_option_that_helps() {
    assert!(refused("").contains("no rows"));
    assert!(refused("a,b\n").contains("no rows"));
    assert!(refused("a,b\nx,1\ny,2\n").contains("--date"));
    assert!(refused("date,y\n2024-01-01,x\n2024-01-02,3\n").contains("y: \"x\" is not a number"));
    assert!(refused("date\n2024-01-01\n").contains("no column of values"));
    assert!(refused("date,y\n2024-01-01,1\n2024-01-02\n").contains("t.csv:3: the row has 1 fields"));
    let twice = refused("date,y\n2024-01-01,1\n2024-01-01,2\n2024-01-02,5\n");
    assert!(twice.contains("2024-01-01") && twice.contains("--id"), "{twice}");
    let hints = Hints { target: vec!["z".into()], ..Hints::default() };
    let said = guess_csv("date,y\n2024-01-01,1\n".as_bytes(), "t", &hints).unwrap_err().to_string();
    assert!(said.contains("there is no column \"z\"; there are date, y"), "{said}");
}

/// Rows of a date and a value that grows.
fn rows(dates: impl IntoIterator<Item = String>) -> String {
    let line = |(i, date): (usize, String)| format!("{date},{}\n", i + 1);
    std::iter::once("date,y\n".to_string()).chain(dates.into_iter().enumerate().map(line)).collect()
}

#[test]
fn months_quarters_weeks_and_seconds_are_dates() {
    let month = |i: usize| (2015 + i / 12, i % 12 + 1);
    let frequency = |text: &str| read(text).frequency.to_string();
    let numbers = rows((0..30).map(|i| format!("{}{:02}", month(i).0, month(i).1)));
    assert_eq!(frequency(&numbers), "M");
    let table = read(&numbers);
    assert_eq!((table.time(&table.series[0], 30).as_str(), table.series[0].values.len()), ("201707", 30));
    assert_eq!(frequency(&rows((0..30).map(|i| format!("{}M{:02}", month(i).0, month(i).1)))), "M");
    assert_eq!(frequency(&rows((0..12).map(|i| format!("Q{} {}", i % 4 + 1, 2000 + i / 4)))), "3M");
    assert_eq!(frequency(&rows((0..40).map(|i| format!("2020-W{:02}", i + 1)))), "W");
    assert_eq!(frequency(&rows((0..40).map(|i| (1_672_531_200 + 3600 * i).to_string()))), "h");
    assert_eq!(frequency(&rows((0..40).map(|i| (1_672_531_200_000_i64 + 86_400_000 * i).to_string()))), "D");
    // Steps are not months.
    assert_eq!(frequency(&rows((0..30).map(|i| (120_000 + i).to_string()))), "1");
}

#[test]
fn times_that_are_nearly_regular_are_rounded() {
    // The last working days of months.
    let days = [
        "2015-01-30",
        "2015-02-27",
        "2015-03-31",
        "2015-04-30",
        "2015-05-29",
        "2015-06-30",
        "2015-07-31",
        "2015-08-31",
        "2015-09-30",
        "2015-10-30",
        "2015-11-30",
        "2015-12-31",
    ];
    let table = read(&rows(days.map(str::to_string)));
    assert_eq!(table.frequency.to_string(), "M");
    assert_eq!(table.series[0].values, (1..=12).map(f64::from).collect::<Vec<_>>());
    assert_eq!(table.time(&table.series[0], 12), "2016-01");
    // Measurements that come some seconds late.
    let table = read(&rows((0..20).map(|i| format!("2024-01-01 {i:02}:00:{:02}", i * 7 % 50))));
    assert_eq!((table.frequency.to_string().as_str(), table.series[0].values.len()), ("h", 20));
    let gaps = guess(&rows((0..20).map(|i| format!("2024-01-01 {i:02}:00:00")))).unwrap();
    assert_eq!(gaps.schema.round, None);
}

#[test]
fn all_series_decide_whether_times_are_rounded() {
    let text = |late: [i32; 3]| -> String {
        let of = |(sensor, late): (usize, i32)| {
            (0..24)
                .map(move |i| format!("2024-01-01 {i:02}:00:{:02},{sensor},{i}\n", late * (i + 1) * 7 % 50))
        };
        std::iter::once("ts,sensor,v\n".into()).chain(late.into_iter().enumerate().flat_map(of)).collect()
    };
    let round = |late| guess(&text(late)).unwrap().schema.round;
    assert_eq!([round([0, 1, 1]), round([1, 1, 1])], [Some("h".into()), Some("h".into())]);
    assert_eq!([round([1, 0, 0]), round([0, 0, 0])], [None, None]);
}

#[test]
fn times_in_several_columns_are_joined() {
    let days = |i: usize| format!("2023,{},{},{i}\n", i / 28 + 1, i % 28 + 1);
    let text: String = std::iter::once("year,month,day,sold\n".into()).chain((0..28).map(days)).collect();
    let table = read(&text);
    assert_eq!((table.frequency.to_string().as_str(), table.series.len()), ("D", 1));
    let hours = |i: usize| format!("2024-01-{:02},{},{i}\n", i / 24 + 1, i % 24);
    let text: String = std::iter::once("date,hour,load\n".into()).chain((0..60).map(hours)).collect();
    let table = read(&text);
    assert_eq!((table.frequency.to_string().as_str(), table.series.len()), ("h", 1));
    assert_eq!(table.series[0].values[59], 59.0);
    let hours = |i: usize| format!("202401{:02},{},{i}\n", i / 24 + 1, i % 24);
    let text: String = std::iter::once("date,hour,load\n".into()).chain((0..60).map(hours)).collect();
    let table = read(&text);
    assert_eq!((table.frequency.to_string().as_str(), table.series[0].values.len()), ("h", 60));
    // The hour of the largest sale is not a time.
    let text = format!("date,hour,sold\n{}", self::days(9, |i| format!("{},{i}", i * 5 % 24)));
    assert_eq!(guess(&text).unwrap().schema.time_parts, [""; 0]);
}

#[test]
fn three_columns_may_be_an_id() {
    let mut text = "date,region,store,item,sold\n".to_string();
    for id in ["n,1,a", "n,1,b", "n,2,a", "n,2,b", "s,1,a", "s,1,b", "s,2,a", "s,2,b"] {
        text += &days(5, |i| format!("{id},{i}"));
    }
    assert_eq!(read(&text).series.len(), 8);
    // Values that differ at every time are not an id.
    let mut text = "date,region,store,sold\n".to_string();
    for (id, level) in [("n,1", 10), ("n,2", 20), ("s,1", 30)] {
        text += &days(12, |i| format!("{id},{}", level + i % 2));
    }
    let found = guess(&text).unwrap().schema;
    assert_eq!((found.id.as_deref(), found.id_parts), (Some("region"), vec!["store".to_string()]));
}

#[test]
fn rows_of_one_time_are_merged_on_request() {
    let text = "date,sold\n2024-01-01,1\n2024-01-01,2\n2024-01-02,5\n2024-01-03,6\n2024-01-03,8\n";
    assert!(refused(text).contains("--duplicates sum"));
    for (duplicates, expected) in [
        (Duplicates::Sum, [3.0, 5.0, 14.0]),
        (Duplicates::Mean, [1.5, 5.0, 7.0]),
        (Duplicates::Last, [2.0, 5.0, 8.0]),
    ] {
        let hints = Hints { duplicates, ..Hints::default() };
        let guess = guess_csv(text.as_bytes(), "t", &hints).unwrap();
        let table = read_csv(text.as_bytes(), "t", &guess.schema).unwrap();
        assert_eq!((&table.series[0].values[..], table.report.merged_rows), (&expected[..], 2));
    }
}

#[test]
fn files_without_names_and_rows_of_totals_are_refused_with_the_reason() {
    assert!(refused("2024-01-01,5\n2024-01-02,6\n2024-01-03,7\n").contains("no names of columns"));
    let totals = rows((1..=20).map(|i| format!("2024-01-{i:02}")).chain(["Total".to_string()]));
    assert!(refused(&totals).contains("also \"Total\""), "{}", refused(&totals));
    // The numbers of rows are times if there are no others.
    let table = read(",x\n1,5\n2,6\n3,7\n4,9\n");
    assert_eq!(table.series[0].values, [5.0, 6.0, 7.0, 9.0]);
}

#[test]
fn quoted_newlines_and_columns_without_values_do_no_harm() {
    let text = "date,note,y,empty\n2024-01-01,\"two\nlines\",1,\n2024-01-02,\"a, b\",2,NaN\n2024-01-03,,3,\n";
    let table = read(text);
    assert_eq!((table.series.len(), &table.series[0].values[..]), (1, &[1.0, 2.0, 3.0][..]));
}

proptest! {
    #[test]
    fn any_text_is_guessed_or_refused(text in "([0-9a,;.$/\"\\- ]{0,12}\n){0,8}") {
        if let Ok(guess) = guess(&text) {
            let _ = read_csv(text.as_bytes(), "t", &guess.schema);
        }
    }
}

#[test]
fn exports_of_spreadsheets_are_read_or_refused_with_a_remedy() {
    for mark in ["", "\u{feff}"] {
        let text = format!("{mark}sep=;\r\ndate;sales\r\n{}", days(9, |i| i.to_string()).replace(',', ";"));
        assert_eq!(read(&text).series[0].values.len(), 9);
        let wrong = guess(&format!("{mark}sep=;\ndate;sales\n2024-01-01;1;2\n")).unwrap_err().to_string();
        assert!(wrong.starts_with("t.csv:3: the row has 3 fields"), "{wrong}");
    }
    let titled = format!("Sales report,,\n,,\ndate,region,sales\n{}", days(9, |i| format!("N,{i}")));
    assert!(refused(&titled).contains("only \"Sales report\", no names of columns; remove the rows above"));
    let mixed = format!("date,sales\n{}13/01/2024,4\n14/01/2024,5\n", days(9, |i| i.to_string()));
    let message = refused(&mixed);
    assert!(message.contains("several forms, such as \"2024-01-01\" and \"13/01/2024\""), "{message}");
}

#[test]
fn the_numbers_of_the_rows_are_not_values() {
    let stores = ["a", "b"];
    let row =
        |i: usize| format!("{i},2024-01-{:02},{},{},{}\n", i / 2 + 1, stores[i % 2], i * 5 % 7, i * 3 % 4);
    let text: String =
        std::iter::once("row_id,date,store,visits,num_sold\n".into()).chain((0..40).map(row)).collect();
    let schema = guess(&text).unwrap().schema;
    assert_eq!(schema.target, Target::One("num_sold".into()));
    // A value may grow by one a day.
    let members = read(&format!("date,members\n{}", days(9, |i| (i + 100).to_string())));
    assert_eq!(members.series[0].values[8], 108.0);
}

#[test]
fn series_in_rows_take_their_times_from_the_names_of_the_columns() {
    let values = |i: usize| (0..12).map(|k| (k * i).to_string()).collect::<Vec<_>>().join(",");
    let of = |names: &[&str]| {
        read(&format!("store,{}\nnorth,{}\nsouth,{}\n", names.join(","), values(1), values(2)))
    };
    let months: Vec<String> = (1..=12).map(|month| format!("2023-{month:02}")).collect();
    let table = of(&months.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!((table.frequency.to_string().as_str(), table.series.len()), ("M", 2));
    assert_eq!(table.time(&table.series[1], 12), "2024-01");
    let names = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let short: Vec<String> = names.iter().map(|name| format!("{name}-23")).collect();
    let table = of(&short.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(table.time(&table.series[0], 12), "Jan-24");
    let numbered: Vec<String> = (1..=12).map(|i| format!("V{i}")).collect();
    let table = of(&numbered.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(table.time(&table.series[0], 12), "13");
}

/// A table with two series in rows, and these names of the columns.
fn in_rows(names: &[String]) -> String {
    let values = |i: usize| (0..names.len()).map(|k| (k * i).to_string()).collect::<Vec<_>>().join(",");
    format!("store,{}\nnorth,{}\nsouth,{}\n", names.join(","), values(1), values(2))
}

#[test]
fn dates_as_names_of_columns_are_decided_by_what_is_regular_or_refused() {
    let first_of_months: Vec<String> = (1..=12).map(|month| format!("{month:02}/01/2023")).collect();
    let days: Vec<String> = (1..=12).map(|day| format!("01/{day:02}/2023")).collect();
    for names in [&first_of_months, &days] {
        let said = refused(&in_rows(names));
        assert!(
            said.contains("the names of the columns: dates such as \"01/01/2023\" are ambiguous")
                && said.contains("--date-format \"%d/%m/%Y\" or \"%m/%d/%Y\""),
            "{said}"
        );
    }
    let text = in_rows(&first_of_months);
    let hints = Hints { date_format: Some("%m/%d/%Y".into()), ..Hints::default() };
    let found = guess_csv(text.as_bytes(), "t", &hints).unwrap();
    assert_eq!(read_csv(text.as_bytes(), "t", &found.schema).unwrap().frequency.to_string(), "M");
    let wrong = Hints { date_format: Some("%Y-%m".into()), ..Hints::default() };
    let found = guess_csv(text.as_bytes(), "t", &wrong).unwrap();
    assert!(read_csv(text.as_bytes(), "t", &found.schema).is_err());
    // Both are dates: one of them is regular.
    let months: Vec<String> = (10..22).map(|i| format!("01/{:02}/{}", i % 12 + 1, 2022 + i / 12)).collect();
    let found = guess(&in_rows(&months)).unwrap();
    assert_eq!(found.schema.date_format.as_deref(), Some("%d/%m/%Y"));
    let note = "dates such as 01/11/2022 are %d/%m/%Y, with which the times are regular";
    assert!(found.notes.iter().any(|one| one == note), "{:?}", found.notes);
    // A day beyond 12.
    let fortnight: Vec<String> = (1..=14).map(|day| format!("01/{day:02}/2023")).collect();
    let found = guess(&in_rows(&fortnight)).unwrap();
    assert_eq!(found.schema.date_format.as_deref(), Some("%m/%d/%Y"));
    assert!(
        found.notes.iter().any(|note| note == "dates such as 01/01/2023 are %m/%d/%Y"),
        "{:?}",
        found.notes
    );
}

#[test]
fn series_in_rows_need_no_names_of_columns() {
    let text = in_rows(&[""; 9].map(String::from));
    let table = read(&text);
    assert_eq!((table.series.len(), table.series[0].values.len()), (2, 9));
    assert_eq!(table.time(&table.series[0], 9), "10");
    // Too few values to be guessed.
    let text = in_rows(&[""; 4].map(String::from));
    assert!(refused(&text).contains("only \"store\", no names of columns"));
    let hints = Hints { layout: Some(Layout::Rows), ..Hints::default() };
    let found = guess_csv(text.as_bytes(), "t", &hints).unwrap();
    assert_eq!(read_csv(text.as_bytes(), "t", &found.schema).unwrap().series.len(), 2);
}

#[test]
fn a_tab_may_be_declared_as_the_separator() {
    for end in ["\n", "\r\n"] {
        let rows = format!("date,sales\n{}", days(9, |i| i.to_string()));
        let text = format!("sep=\t\n{}", rows.replace(',', "\t")).replace('\n', end);
        assert_eq!(read(&text).series[0].values.len(), 9);
    }
}
