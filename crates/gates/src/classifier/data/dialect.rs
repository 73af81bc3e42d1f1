//! Detection of how a text table is written: separator, header, column of the classes, missing values, columns that name rows.
//!
//! Each is decided by a rule on the whole table that holds for any table, and can be given in `[data.table]` instead:
//!
//! | what | rule |
//! |---|---|
//! | separator | the first of tab, `;`, `,`, `\|` and space that divides the first lines into equally many fields, at least two |
//! | header | the first line has no number, and a text over a column of numbers, or no field twice and no text that occurs again in its column; or it counts the columns |
//! | classes | the only column called `class`, `label` or `target`; the last one otherwise |
//! | decimal comma | unless the comma separates fields: if more columns are numeric with it than with the point |
//! | dates, units | all fields of a column are dates, or numbers with the same unit |
//! | missing values | `?`, and texts such as `NA` if they are all that keeps a column from being numeric |
//! | ignored | row numbers, and columns whose texts are mostly different |

use std::collections::BTreeSet;
use std::path::Path;

use gatework_train::files;

use super::DataError;
use super::reading::{self, Reading};
use super::table::{Cells, MAX_TEXT, TableOptions, decompress};

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
    options.decimal = decimal(&cells, options.separator);
    let mut ignored = Vec::new();
    for column in (0..cells.names.len()).filter(|&column| column != label) {
        let name = &cells.names[column];
        let reading = reading(&cells, column, options.decimal);
        match &reading {
            Some(Reading::Date) => options.dates.push(name.clone()),
            Some(Reading::Unit(_, unit)) => {
                options.units.insert(name.clone(), unit.clone());
            }
            Some(Reading::Number(_)) | None => {}
        }
        let texts = fields(&cells, column).filter(|text| MISSING.contains(text));
        let missing: BTreeSet<&str> = texts.filter(|text| reading.is_some() || *text == "?").collect();
        for text in missing.into_iter().map(ToString::to_string) {
            if !options.missing.contains(&text) {
                options.missing.push(text);
            }
        }
        let is_numeric = reading.is_some();
        if let Some(reason) = reason_to_ignore(&cells, column, is_numeric) {
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

/// Returns how the fields of a column that are not missing become numbers, if all of them do.
fn reading(cells: &Cells, column: usize, decimal: char) -> Option<Reading> {
    Reading::of(&fields(cells, column).filter(|text| !MISSING.contains(text)), decimal)
}

/// Returns the character between the integer and the fraction of numbers.
fn decimal(cells: &Cells, separator: char) -> char {
    if separator == ',' {
        return '.';
    }
    let numeric = |decimal: char| {
        (0..cells.names.len()).filter(|&column| reading(cells, column, decimal).is_some()).count()
    };
    if numeric(',') > numeric('.') { ',' } else { '.' }
}

/// Returns the separator of a table in a file, plain or gzip.
pub fn separator_of(path: &Path) -> Result<char, DataError> {
    let content = decompress(&files::read(path)?, path, MAX_TEXT)?;
    Ok(separator(&content, path))
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
        let is_value = |decimal| reading::number(field, decimal).is_some();
        is_value('.') || is_value(',') || reading::date(field).is_some()
    };
    let width = cells.names.len();
    if cells.rows() < 2 {
        return false;
    }
    let first: Vec<&str> = (0..width).map(|column| cells.field(0, column).unwrap_or("")).collect();
    let counts = |from: usize| (from..).zip(&first).all(|(at, field)| *field == at.to_string());
    if width > 1 && (counts(0) || counts(1)) {
        return true;
    }
    if first.iter().any(|field| is_number(field)) {
        return false;
    }
    // A text over numbers is a name, also if another column has the same one.
    let is_over_numbers = |(column, field): (usize, &&str)| {
        let mut below = (1..cells.rows()).filter_map(|row| cells.field(row, column)).peekable();
        let has_numbers = below.peek().is_some();
        !field.is_empty() && !MISSING.contains(field) && has_numbers && below.all(is_number)
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

/// Returns the column with the classes.
fn label_column(cells: &Cells) -> usize {
    let is_label = |name: &String| LABEL_NAMES.contains(&name.to_lowercase().as_str());
    let mut named = (0..cells.names.len()).filter(|&column| is_label(&cells.names[column]));
    match (named.next(), named.next()) {
        (Some(column), None) => column,
        _ => cells.names.len().saturating_sub(1),
    }
}

/// Why a column is not a feature.
fn reason_to_ignore(cells: &Cells, column: usize, is_numeric: bool) -> Option<&'static str> {
    if cells.rows() < MIN_ROWS {
        return None;
    }
    if is_numeric {
        let value = |row: usize| cells.field(row, column)?.parse::<i64>().ok();
        let first = value(0)?;
        let is_next = |row: usize| value(row) == first.checked_add(row as i64);
        return (0..cells.rows()).all(is_next).then_some("it numbers the rows");
    }
    let count = fields(cells, column).count();
    let different: BTreeSet<&str> = fields(cells, column).collect();
    (count >= MIN_ROWS && different.len() > count / 2).then_some("most of its texts are different")
}

#[cfg(test)]
mod tests {
    use super::*;

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
