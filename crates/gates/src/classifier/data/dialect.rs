//! Detection of how a text table is written: separator, header, column of the classes, missing values, columns that name rows.
//!
//! Each is decided by a rule on the whole table that holds for any table, and can be given in `[data.table]` instead:
//!
//! | what | rule |
//! |---|---|
//! | separator | the first of tab, `;`, `,`, `\|` and space that divides the first lines into equally many fields, at least two |
//! | header | the first line has no number, and a text over a column of numbers, or no field twice and no text that occurs again in its column; or it counts the columns |
//! | classes | the only column called `class`, `label` or `target`; the last one otherwise |
//! | decimal comma | unless the comma separates fields: if more columns are numeric with it than with the point, or as many but more without groups of thousands |
//! | dates, units | all fields of a column are dates, or numbers with the same unit |
//! | missing values | `?`, and texts such as `NA` if they are all that keeps a column from being numeric |
//! | ignored | row numbers, dates that ascend at regular distances, and columns whose texts are mostly different |

use std::collections::BTreeSet;
use std::path::Path;

use gatework_train::files;

use super::reading::{self, Format, Reading};
use super::table::{Cells, MAX_TEXT, Schema, TableOptions, decompress};
use super::{DataError, Feature, Kind};

/// Bytes of a table in which the separator is looked for.
const SAMPLE: usize = 1 << 16;

/// Texts that stand for a missing value, if nothing else keeps a column from being numeric.
const MISSING: [&str; 13] =
    ["?", "NA", "N/A", "na", "n/a", "NaN", "nan", "NAN", "null", "NULL", "None", "none", "-"];

/// Names of the column with the classes, in lower case.
const LABEL_NAMES: [&str; 3] = ["class", "label", "target"];

/// Fewest rows of a table from which row numbers and free text are told from features.
const MIN_ROWS: usize = 20;

/// How a table is written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dialect {
    /// The options that read it.
    pub options: TableOptions,
    /// The name of the column with the classes.
    pub label: String,
    /// The ignored columns, each with the reason.
    pub ignored: Vec<(String, &'static str)>,
}

/// Detects how a table is written; `path` names it in errors. The column with the classes may be given.
pub fn detect(content: &[u8], path: &Path, label: Option<&str>) -> Result<Dialect, DataError> {
    let mut options = TableOptions { separator: separator(content, path), ..TableOptions::default() };
    options.header = false;
    let cells = Cells::read(content, path, &options)?;
    options.header = has_header(&cells);
    let cells = if options.header { Cells::read(content, path, &options)? } else { cells };
    let label = match label {
        Some(name) => cells
            .column(name)
            .ok_or_else(|| cells.error(None, format!("there is no column {name:?}; {}", cells.known())))?,
        None => label_column(&cells),
    };
    let features: Vec<usize> = (0..cells.names.len()).filter(|&column| column != label).collect();
    let readings = readings(&cells, &features, &mut options);
    let mut ignored = Vec::new();
    for (&column, reading) in features.iter().zip(&readings) {
        let texts = fields(&cells, column).filter(|text| MISSING.contains(text));
        let missing: BTreeSet<&str> = texts.filter(|text| reading.is_some() || *text == "?").collect();
        for text in missing.into_iter().map(ToString::to_string) {
            if !options.missing.contains(&text) {
                options.missing.push(text);
            }
        }
        if let Some(reason) = reason_to_ignore(&cells, column, reading.as_ref()) {
            ignored.push((cells.names[column].clone(), reason));
        }
    }
    if ignored.len() + 1 == cells.names.len() {
        // A table of nothing but such columns: they are all that there is to learn from.
        ignored.clear();
    }
    options.ignore = ignored.iter().map(|(name, _)| name.clone()).collect();
    let label = cells.names[label].clone();
    options.label = Some(label.clone());
    Ok(Dialect { options, label, ignored })
}

/// Detects how a table with the features of a classifier is written, if the options that it was trained with are not known.
pub fn of_schema(path: &Path, schema: &Schema) -> Result<TableOptions, DataError> {
    let content = decompress(&files::read(path)?, path, MAX_TEXT)?;
    options_of_schema(&content, path, schema)
}

fn options_of_schema(content: &[u8], path: &Path, schema: &Schema) -> Result<TableOptions, DataError> {
    let mut options = TableOptions { separator: separator(content, path), ..TableOptions::default() };
    options.header = false;
    let cells = Cells::read(content, path, &options)?;
    options.header = has_header_of(&cells, schema);
    let cells = if options.header { Cells::read(content, path, &options)? } else { cells };
    // Without a header and without classes, the columns are the features.
    let is_bare = !options.header && cells.names.len() == schema.features.len();
    let column = |(at, feature): (usize, &Feature)| {
        if is_bare { Some(at) } else { cells.column(&feature.name) }
    };
    let is_numeric = |(_, feature): &(usize, &Feature)| feature.kind == Kind::Numeric;
    let numeric: Vec<usize> =
        schema.features.iter().enumerate().filter(is_numeric).filter_map(column).collect();
    readings(&cells, &numeric, &mut options);
    let is_category = |text: &str| {
        let has = |feature: &Feature| matches!(&feature.kind, Kind::Categorical(names) if names.iter().any(|name| name == text));
        schema.features.iter().any(has)
    };
    let is_missing = |text: &&str| {
        !is_category(text) && numeric.iter().any(|&column| fields(&cells, column).any(|f| f == *text))
    };
    options.missing = MISSING.into_iter().filter(is_missing).map(str::to_string).collect();
    if !is_bare {
        let used: BTreeSet<&str> = schema.features.iter().map(|feature| feature.name.as_str()).collect();
        let mut others = cells.names.iter().filter(|name| !used.contains(name.as_str()));
        let named = others.clone().find(|name| is_label(name));
        let only = others.next().filter(|_| others.next().is_none());
        options.label = named.or(only).cloned();
    }
    Ok(options)
}

/// Whether the first line of a table has the names of the features of a classifier. Features that are called "1", "2" and so on may
/// be those of a table without a header; then the other fields of the line may not be classes.
fn has_header_of(cells: &Cells, schema: &Schema) -> bool {
    if schema.features.iter().any(|feature| feature.name.parse::<usize>().is_err()) {
        return true;
    }
    let first: Vec<&str> =
        (0..cells.names.len()).map(|column| cells.field(0, column).unwrap_or("")).collect();
    let column = |feature: &Feature| first.iter().position(|field| *field == feature.name);
    let named: Option<BTreeSet<usize>> = schema.features.iter().map(column).collect();
    named.is_some_and(|named| {
        let is_class = |field: &&str| schema.classes.iter().any(|class| class == field);
        !first.iter().enumerate().any(|(column, field)| !named.contains(&column) && is_class(field))
    })
}

/// Finds how the fields of some columns become numbers, and notes it in the options. `None` stands for categories.
fn readings(cells: &Cells, columns: &[usize], options: &mut TableOptions) -> Vec<Option<Reading>> {
    options.decimal = decimal(cells, columns, options.separator);
    let decimal = options.decimal;
    let mut read = |&column: &usize| {
        let plain = reading(cells, column, Format { decimal, grouped: false });
        let found = plain.or_else(|| {
            let grouped = reading(cells, column, Format { decimal, grouped: true })?;
            options.grouped = true;
            Some(grouped)
        });
        let name = &cells.names[column];
        match &found {
            Some(Reading::Date) => options.dates.push(name.clone()),
            Some(Reading::Unit(_, unit)) => {
                options.units.insert(name.clone(), unit.clone());
            }
            Some(Reading::Number(_)) | None => {}
        }
        found
    };
    columns.iter().map(&mut read).collect()
}

/// Returns how the fields of a column that are not missing become numbers, if all of them do.
fn reading(cells: &Cells, column: usize, format: Format) -> Option<Reading> {
    Reading::of(&fields(cells, column).filter(|text| !MISSING.contains(text)), format)
}

/// Returns the character between the integer and the fraction of numbers: that with which more columns are numeric. If these are as
/// many, groups of thousands do not count: a character that occurs once in each number is the decimal one.
fn decimal(cells: &Cells, columns: &[usize], separator: char) -> char {
    if separator == ',' {
        return '.';
    }
    let numeric = |decimal: char| {
        [true, false].map(|grouped| {
            let format = Format { decimal, grouped };
            columns.iter().filter(|&&column| reading(cells, column, format).is_some()).count()
        })
    };
    if numeric(',') > numeric('.') { ',' } else { '.' }
}

/// The fields of a column that are not empty.
fn fields(cells: &Cells, column: usize) -> impl Iterator<Item = &str> + Clone {
    (0..cells.rows()).filter_map(move |row| cells.field(row, column))
}

/// Returns the separator of a table.
fn separator(content: &[u8], path: &Path) -> char {
    let mut sample = &content[..content.len().min(SAMPLE)];
    if sample.len() < content.len() {
        let end = sample.iter().rposition(|&byte| byte == b'\n').unwrap_or(sample.len());
        sample = &sample[..end];
    }
    let divides = |&separator: &char| {
        let options = TableOptions { header: false, separator, ..TableOptions::default() };
        Cells::read(sample, path, &options).is_ok_and(|cells| cells.names.len() > 1)
    };
    ['\t', ';', ',', '|', ' '].into_iter().find(divides).unwrap_or(',')
}

/// Whether the first line has the names of the columns; `cells` was read without a header.
fn has_header(cells: &Cells) -> bool {
    let is_number = |field: &str| {
        let is_value = |decimal| reading::number(field, Format { decimal, grouped: true }).is_some();
        is_value('.') || is_value(',')
    };
    let is_value = |field: &str| is_number(field) || reading::date(field).is_some();
    let width = cells.names.len();
    if cells.rows() < 2 {
        return false;
    }
    let first: Vec<&str> = (0..width).map(|column| cells.field(0, column).unwrap_or("")).collect();
    let counts = |from: usize| (from..).zip(&first).all(|(at, field)| *field == at.to_string());
    if width > 1 && (counts(0) || counts(1)) {
        return true;
    }
    // A date is a value in a column of dates; over other values it may be a name.
    let is_date = |(column, field): (usize, &&str)| {
        let mut below = (1..cells.rows()).filter_map(|row| cells.field(row, column));
        reading::date(field).is_some()
            && below.all(|field| MISSING.contains(&field) || reading::date(field).is_some())
    };
    if first.iter().any(|field| is_number(field)) || first.iter().enumerate().any(is_date) {
        return false;
    }
    // A text over numbers is a name, also if another column has the same one.
    let is_over_numbers = |(column, field): (usize, &&str)| {
        let mut below = (1..cells.rows()).filter_map(|row| cells.field(row, column)).peekable();
        let has_numbers = below.peek().is_some();
        !field.is_empty() && !MISSING.contains(field) && has_numbers && below.all(is_value)
    };
    if first.iter().enumerate().any(is_over_numbers) {
        return true;
    }
    let different: BTreeSet<&&str> = first.iter().collect();
    let is_name = |(column, field): (usize, &&str)| {
        (1..cells.rows()).all(|row| cells.field(row, column) != Some(*field))
    };
    different.len() == width && first.iter().enumerate().all(is_name)
}

/// Whether a name is that of a column with the classes.
fn is_label(name: &str) -> bool {
    LABEL_NAMES.contains(&name.to_lowercase().as_str())
}

/// Returns the column with the classes.
fn label_column(cells: &Cells) -> usize {
    let mut named = (0..cells.names.len()).filter(|&column| is_label(&cells.names[column]));
    match (named.next(), named.next()) {
        (Some(column), None) => column,
        _ => cells.names.len().saturating_sub(1),
    }
}

/// Why a column is not a feature.
fn reason_to_ignore(cells: &Cells, column: usize, reading: Option<&Reading>) -> Option<&'static str> {
    if cells.rows() < MIN_ROWS {
        return None;
    }
    if reading == Some(&Reading::Date) {
        let is_regular = are_regular_dates(cells, column);
        return is_regular.then_some("its dates are at regular distances, so it numbers the rows");
    }
    if reading.is_some() {
        let value = |row: usize| cells.field(row, column)?.parse::<i64>().ok();
        let first = value(0)?;
        let is_next = |row: usize| value(row) == first.checked_add(row as i64);
        return (0..cells.rows()).all(is_next).then_some("it numbers the rows");
    }
    let count = fields(cells, column).count();
    let different: BTreeSet<&str> = fields(cells, column).collect();
    (count >= MIN_ROWS && different.len() > count / 2).then_some("most of its texts are different")
}

/// Whether the dates of all rows ascend in steps that differ as little as the lengths of months.
fn are_regular_dates(cells: &Cells, column: usize) -> bool {
    let dates: Option<Vec<f64>> =
        (0..cells.rows()).map(|row| cells.field(row, column).and_then(reading::date)).collect();
    let dates = dates.unwrap_or_default();
    let steps = dates.windows(2).map(|pair| pair[1] - pair[0]);
    let (least, most) =
        steps.fold((f64::INFINITY, 0.0f64), |(least, most), step| (least.min(step), most.max(step)));
    least > 0.0 && most > 0.0 && most <= 1.2 * least
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classifier::data::table::{Labels, parse};

    fn detected(text: &str, label: Option<&str>) -> Dialect {
        detect(text.as_bytes(), Path::new("x.csv"), label).unwrap()
    }

    #[test]
    fn the_separator_divides_all_lines_equally() {
        for (text, separator) in [
            ("a,b\n1,2\n", ','),
            ("a;b\n1,5;2,0\n", ';'),
            ("a\tb c\n1\t2 3\n", '\t'),
            ("5.1 3 x\n 4.2  1 y\n", ' '),
            ("a|b\n1|2\n", '|'),
            ("\"a, b\",c\n1,2\n", ','),
            ("one\ntwo\n", ','),
        ] {
            assert_eq!(detected(text, None).options.separator, separator, "{text:?}");
        }
    }

    #[test]
    fn a_header_has_names_that_are_no_values() {
        for (text, header) in [
            ("size,kind\n1,a\n2,b\n", true),
            ("1,a\n2,b\n", false),
            ("x,s,e\nb,s,p\nx,y,e\n", false),
            ("color,kind\nred,a\nblue,b\n", true),
            ("0,1,2\n5,6,7\n", true),
            ("a,a\nb,c\n", false),
            ("size,kind\n1,kind\n2,b\n", true),
            ("?,a\n1,b\n2,c\n", true),
            ("?,a\n1,a\n2,c\n", false),
            (",size,kind\n0,7,a\n1,9,b\n", true),
            ("id,2024-01-01,2024-01-02,class\n1,3,4,a\n2,5,6,b\n", true),
            ("2024-01-01,2024-01-02\n3,4\n5,6\n", true),
            ("2024-01-01,a\nNA,b\n2024-01-03,a\n", false),
            ("a,b\n", false),
        ] {
            assert_eq!(detected(text, None).options.header, header, "{text:?}");
        }
    }

    #[test]
    fn a_name_that_occurs_twice_is_an_error() {
        let text = b"a,b,b,class\n1,2,3,x\n2,3,4,y\n";
        let message = detect(text, Path::new("x.csv"), None).unwrap_err().to_string();
        assert_eq!(message, "x.csv: two columns are called \"b\"");
    }

    #[test]
    fn the_column_of_the_classes_is_the_named_one_or_the_last() {
        assert_eq!(detected("Label,a\nx,1\ny,2\n", None).label, "Label");
        assert_eq!(detected("class,label,a\nx,1,2\ny,2,3\n", None).label, "a");
        assert_eq!(detected("a,b,c\nx,1,2\ny,2,3\n", Some("b")).label, "b");
        let unknown = detect(b"a,b\n1,x\n2,y\n", Path::new("x.csv"), Some("c")).unwrap_err().to_string();
        assert_eq!(unknown, "x.csv: there is no column \"c\"; the columns are a, b");
    }

    #[test]
    fn texts_that_keep_a_column_from_being_numeric_are_missing_values() {
        let text = "a,b,c,kind\n1,NA,?,x\nNA,None,u,y\n3,other,v,x\nnan,z,v,y\n";
        assert_eq!(detected(text, None).options.missing, ["NA", "nan", "?"]);
    }

    #[test]
    fn decimal_commas_units_and_dates_are_found() {
        let text = "a;weight;day;kind\n1,5;7 kg;1.2.2020;x\n-;8,5 kg;NA;y\n2,25;?;3.2.2020;x\n";
        let TableOptions { decimal, dates, units, missing, .. } = detected(text, None).options;
        assert_eq!((decimal, &dates[..]), (',', &["day".to_string()][..]));
        assert_eq!(units.into_iter().collect::<Vec<_>>(), [("weight".to_string(), "kg".to_string())]);
        assert_eq!(missing, ["-", "?", "NA"]);
        assert_eq!(detected("a;b\n1.5;x\n2.5;y\n", None).options.decimal, '.');
        let headless = detected("2024-01-01,x\n2024-01-02,y\n", None).options;
        assert!(!headless.header && headless.dates == ["1"]);
    }

    #[test]
    fn a_single_comma_in_each_number_is_the_decimal_one() {
        for (text, decimal, grouped) in [
            ("a;b\n0,123;x\n1,500;y\n", ',', false),
            ("a;b\n2,250;x\n1,500;y\n", ',', false),
            ("a;b\n2.250;x\n1.500;y\n", '.', false),
            ("a;b\n1,250,000;x\n1,500;y\n", '.', true),
            ("a;c;b\n1,250;1.5;x\n1,500;2.5;y\n", '.', true),
            ("a,b\n\"1,250\",x\n\"1,500\",y\n", '.', true),
            ("a;b\n1;x\n2;y\n", '.', false),
        ] {
            let options = detected(text, None).options;
            assert_eq!((options.decimal, options.grouped), (decimal, grouped), "{text:?}");
        }
    }

    #[test]
    fn a_table_is_read_with_the_features_of_a_classifier_alone() {
        let train = "day;weight;size;town;class\n2024-01-31;1,5 kg;0,5;NA;x\n2024-02-03;2 kg;1,25;b;y\n";
        let path = Path::new("x.csv");
        let schema_of = |text: &str| {
            let options = detected(text, None).options;
            let data = parse(text.as_bytes(), path, &options, None, Labels::Needed).unwrap();
            Schema { features: data.features().to_vec(), classes: data.classes().to_vec() }
        };
        let read = |text: &str, schema: &Schema, labels: Labels| {
            let options = options_of_schema(text.as_bytes(), path, schema).unwrap();
            parse(text.as_bytes(), path, &options, Some(schema), labels).map_err(|error| error.to_string())
        };
        let schema = schema_of(train);
        let data = read(train, &schema, Labels::Needed).unwrap();
        assert_eq!((data.value(0, 1), data.value(0, 2), data.labels()), (1.5, 0.5, &[0u32, 1][..]));
        let bare = "town;size;weight;day\nNA;1,234;3 kg;31.01.2024\nb;-;4 kg;01.02.2024\n";
        let data = read(bare, &schema, Labels::Optional).unwrap();
        assert_eq!(data.gather(&[0]), [19_753.0, 3.0, 1.234, 0.0]);
        assert!(data.value(1, 2).is_nan());
        let error = read("size;town\n1;a\n", &schema, Labels::Optional).unwrap_err();
        assert!(error.contains("there is no column \"day\"; the columns are size, town"), "{error}");
        // Without a header, also if the first values are the numbers of the columns.
        let plain = "1,2,x\n3,4,y\n";
        let schema = schema_of(plain);
        assert_eq!(read(plain, &schema, Labels::Needed).unwrap().gather(&[0, 1]), [1.0, 2.0, 3.0, 4.0]);
        assert_eq!(read("5,6\n7,8\n", &schema, Labels::Optional).unwrap().gather(&[1]), [7.0, 8.0]);
        assert_eq!(read("1,2,kind\n5,6,x\n", &schema, Labels::Needed).unwrap().gather(&[0]), [5.0, 6.0]);
        let first = schema_of("class,a\nx,1\ny,2\n");
        assert_eq!(read("kind,a\nx,1\ny,2\n", &first, Labels::Needed).unwrap().labels(), [0, 1]);
    }

    #[test]
    fn dates_at_regular_distances_number_the_rows() {
        let ignored = |dates: &dyn Fn(usize) -> String| {
            let lines = (0..24).map(|row| format!("{},{},{}\n", dates(row), row * 7 % 5, row % 2));
            let text = format!("day,size,kind\n{}", lines.collect::<String>());
            detected(&text, Some("kind")).options.ignore
        };
        let hours = |row: usize| format!("2024-01-{:02} {:02}:00", 1 + row / 12, row % 12 * 2);
        let months = |row: usize| format!("{}-{:02}-01", 2020 + row / 12, 1 + row % 12);
        assert_eq!(ignored(&|row| format!("2024-01-{:02}", row + 1)), ["day"]);
        assert_eq!((ignored(&hours), ignored(&months)), (vec!["day".to_string()], vec!["day".to_string()]));
        assert!(ignored(&|row| format!("2024-01-{:02}", 1 + row * 7 % 24)).is_empty());
        assert!(ignored(&|row| format!("20{:02}-01-01", row * row % 97)).is_empty());
    }

    #[test]
    fn row_numbers_and_free_text_are_ignored() {
        let line =
            |row: usize| format!("{},name {row},{},{},{}\n", row + 1, row % 3, 2000 + row % 7, row % 2);
        let lines: Vec<String> = (0..30).map(line).collect();
        let text = format!("id,name,town,year,kind\n{}", lines.concat());
        let ignored: Vec<String> = detected(&text, None).options.ignore;
        assert_eq!(ignored, ["id", "name"]);
        let only = (0..30).map(|row| format!("{row},{}\n", row % 2)).collect::<Vec<_>>().concat();
        assert!(detected(&only, None).options.ignore.is_empty());
    }
}
