//! Tables in text files: CSV with or without a header, plain or gzip, with numeric, boolean and categorical columns.
//!
//! A column is numeric if every value in it is a number, `true` or `false`, or if the options say that it has dates or numbers with a
//! unit; otherwise it is categorical. The columns and
//! classes of the training table are the [`Schema`] of every other table: a column of it that is missing, text where numbers
//! were, and a label that training never saw are errors. A category that training never saw is a missing value.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use gatework_logic::classifier::{self as logic, Classifier, FeatureKind};
use gatework_train::files;
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use super::reading::{Format, Reading, number};
use super::{DataError, Dataset, Feature, Kind, MAX_CATEGORIES, MAX_CLASSES, MAX_VALUES, Values};

/// Most bytes of a text table after decompression.
pub(in crate::classifier) const MAX_TEXT: u64 = 1 << 32;

/// How a text table is read: keys of the `[data]` table of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TableOptions {
    /// Whether the first line has the names of the columns. Without it they are called "1", "2" and so on.
    pub header: bool,
    /// The name of the column with the classes; the last column, if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The character between two fields; a space stands for any white space.
    pub separator: char,
    /// Texts of a missing value, besides the empty one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<String>,
    /// Names of columns that are not features.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ignore: Vec<String>,
    /// Names of columns whose numbers are categories.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub categorical: Vec<String>,
    /// The character between the integer and the fraction of a number: a point or a comma.
    #[serde(skip_serializing_if = "is_point")]
    pub decimal: char,
    /// Whether numbers may have groups of thousands, such as 1,234 or, with a decimal comma, 1.234.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub grouped: bool,
    /// Names of columns of dates, which are numbers of days since 1970-01-01.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<String>,
    /// The units of columns whose numbers have one, such as "kg" or "$".
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub units: BTreeMap<String, String>,
    /// Lines that begin with this character are skipped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub comment: Option<char>,
    /// Characters that are removed from both ends of a field, besides white space.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub trim: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_point(decimal: &char) -> bool {
    *decimal == '.'
}

impl TableOptions {
    /// Returns how the fields of a column become numbers.
    fn reading(&self, name: &str) -> Reading {
        let format = Format { decimal: self.decimal, grouped: self.grouped };
        match self.units.get(name) {
            Some(unit) => Reading::Unit(format, unit.clone()),
            None if self.dates.iter().any(|date| date == name) => Reading::Date,
            None => Reading::Number(format),
        }
    }
}

impl Default for TableOptions {
    fn default() -> TableOptions {
        TableOptions {
            header: true,
            label: None,
            separator: ',',
            missing: Vec::new(),
            ignore: Vec::new(),
            categorical: Vec::new(),
            decimal: '.',
            grouped: false,
            dates: Vec::new(),
            units: BTreeMap::new(),
            comment: None,
            trim: String::new(),
        }
    }
}

/// The features and classes that a table must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    /// The features.
    pub features: Vec<Feature>,
    /// The classes.
    pub classes: Vec<String>,
}

impl Schema {
    /// Returns the features and classes of a trained classifier.
    pub fn of(classifier: &Classifier) -> Schema {
        let feature = |feature: &logic::Feature| Feature {
            name: feature.name.clone(),
            kind: match &feature.kind {
                FeatureKind::Numeric(_) => Kind::Numeric,
                FeatureKind::Categorical(names) => Kind::Categorical(names.clone()),
            },
        };
        Schema {
            features: classifier.encoder().features().iter().map(feature).collect(),
            classes: classifier.head().classes().iter().map(|class| class.name.clone()).collect(),
        }
    }
}

/// Whether a table must have the column with the classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// It must.
    Needed,
    /// Without it, every row has the first class.
    Optional,
}

/// Reads a table. Without a schema, the features and classes are those of the table.
pub fn read(
    path: &Path,
    options: &TableOptions,
    schema: Option<&Schema>,
    labels: Labels,
) -> Result<Dataset, DataError> {
    parse(&decompress(&files::read(path)?, path, MAX_TEXT)?, path, options, schema, labels)
}

/// Decompresses gzip, which its first bytes tell; other content is returned unchanged.
pub(in crate::classifier) fn decompress(bytes: &[u8], path: &Path, most: u64) -> Result<Vec<u8>, DataError> {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return Ok(bytes.to_vec());
    }
    let mut content = Vec::new();
    let read = GzDecoder::new(bytes).take(most + 1).read_to_end(&mut content);
    read.map_err(|error| DataError::content(path, format!("damaged gzip data ({error})")))?;
    if content.len() as u64 > most {
        return Err(DataError::content(path, format!("more than {most} bytes after decompression")));
    }
    Ok(content)
}

/// Parses the content of a table; `path` names it in errors.
pub fn parse(
    content: &[u8],
    path: &Path,
    options: &TableOptions,
    schema: Option<&Schema>,
    labels: Labels,
) -> Result<Dataset, DataError> {
    let cells = Cells::read(content, path, options)?;
    let layout = Layout::new(&cells, options, schema, labels)?;
    let features = match schema {
        Some(schema) => schema.features.clone(),
        None => {
            layout.features.iter().map(|&column| cells.feature(column, options)).collect::<Result<_, _>>()?
        }
    };
    let rows = cells.rows();
    if rows.saturating_mul(features.len()) > MAX_VALUES {
        return Err(DataError::content(path, "the table is too large"));
    }
    let mut values = vec![0.0f32; rows * features.len()];
    for (at, (feature, &column)) in features.iter().zip(&layout.features).enumerate() {
        let to = values.iter_mut().skip(at).step_by(features.len());
        cells.values(column, feature, to)?;
    }
    // What is predicted needs no classes: those in the table may be empty or new.
    let label = layout.label.filter(|_| labels == Labels::Needed || schema.is_none());
    let (classes, labels) = cells.labels(label, schema)?;
    Dataset::from_parts(features, Values::Numbers(values), labels, classes, None).map_err(|error| match error
    {
        DataError::Unusable(message) => DataError::content(path, message),
        error => error,
    })
}

/// The columns of a table that are used.
struct Layout {
    features: Vec<usize>,
    label: Option<usize>,
}

impl Layout {
    fn new(
        cells: &Cells,
        options: &TableOptions,
        schema: Option<&Schema>,
        labels: Labels,
    ) -> Result<Layout, DataError> {
        // A table without header and without labels has one column fewer.
        let expected = schema.map(|schema| schema.features.len() + options.ignore.len());
        let is_bare = !options.header && labels == Labels::Optional && expected == Some(cells.names.len());
        if is_bare && options.ignore.is_empty() {
            return Ok(Layout { features: (0..cells.names.len()).collect(), label: None });
        }
        let last = cells.names.len().checked_sub(1);
        let label = match &options.label {
            Some(name) => cells.column(name),
            // In a table with a header, the last column is that of the classes unless it is a feature.
            None => last.filter(|&last| {
                let is_feature =
                    |schema: &Schema| schema.features.iter().any(|f| f.name == cells.names[last]);
                !schema.is_some_and(is_feature)
            }),
        };
        if label.is_none() && labels == Labels::Needed {
            let name = options.label.as_deref().unwrap_or("of the classes");
            return Err(cells.error(None, format!("there is no column {name:?}; {}", cells.known())));
        }
        let named = options.ignore.iter().chain(&options.categorical).chain(&options.dates);
        for name in named.chain(options.units.keys()) {
            if cells.column(name).is_none() && schema.is_none() {
                return Err(cells.error(None, format!("there is no column {name:?}; {}", cells.known())));
            }
        }
        let features = match schema {
            None => {
                let is_used =
                    |&column: &usize| Some(column) != label && !options.ignore.contains(&cells.names[column]);
                (0..cells.names.len()).filter(is_used).collect()
            }
            Some(schema) => {
                let find = |feature: &Feature| {
                    let missing = || {
                        let message = format!("there is no column {:?}; {}", feature.name, cells.known());
                        cells.error(None, message)
                    };
                    cells.column(&feature.name).ok_or_else(missing)
                };
                schema.features.iter().map(find).collect::<Result<_, _>>()?
            }
        };
        Ok(Layout { features, label })
    }
}

/// The texts of a table.
pub(super) struct Cells {
    path: PathBuf,
    pub(super) names: Vec<String>,
    records: Vec<csv::StringRecord>,
    /// How the fields of each column become numbers.
    readings: Vec<Reading>,
    missing: Vec<String>,
    trim: Vec<char>,
}

impl Cells {
    pub(super) fn read(content: &[u8], path: &Path, options: &TableOptions) -> Result<Cells, DataError> {
        // White space between fields becomes a character that no text file has.
        const UNIT: u8 = 0x1f;
        let spaced: Vec<u8>;
        let (content, separator) = if options.separator.is_whitespace() && options.separator != '\t' {
            let fields = |line: &[u8]| {
                let fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
                fields.collect::<Vec<_>>().join(&UNIT)
            };
            spaced = content.split(|&byte| byte == b'\n').map(fields).collect::<Vec<_>>().join(&b'\n');
            (&spaced[..], UNIT)
        } else {
            let separator = u8::try_from(options.separator).map_err(|_| {
                DataError::content(path, format!("the separator {:?} is not ASCII", options.separator))
            })?;
            (content, separator)
        };
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .delimiter(separator)
            .comment(options.comment.and_then(|comment| u8::try_from(comment).ok()))
            .trim(csv::Trim::All)
            .from_reader(content);
        let mut records: Vec<csv::StringRecord> = Vec::new();
        for record in reader.records() {
            let record = record.map_err(|error| {
                let line = error.position().map(csv::Position::line);
                let message = match error.kind() {
                    csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
                        format!("the line has {len} fields, but the lines before have {expected_len}")
                    }
                    csv::ErrorKind::Utf8 { .. } => "the text is not UTF-8".to_string(),
                    _ => format!("not a text table ({error})"),
                };
                DataError::Content { path: path.to_path_buf(), line, message }
            })?;
            records.push(record);
        }
        let width = records.first().map_or(0, csv::StringRecord::len);
        let names: Vec<String> = if options.header && !records.is_empty() {
            records.remove(0).iter().map(str::to_string).collect()
        } else {
            (1..=width).map(|column| column.to_string()).collect()
        };
        let mut seen = BTreeSet::new();
        if let Some(name) = names.iter().find(|name| !seen.insert(name.as_str())) {
            return Err(DataError::content(path, format!("two columns are called {name:?}")));
        }
        if records.is_empty() {
            return Err(DataError::content(path, "the table has no rows"));
        }
        let (missing, trim) = (options.missing.clone(), options.trim.chars().collect());
        if !['.', ','].contains(&options.decimal) {
            let message =
                format!("the decimal character is {:?}, but must be a point or a comma", options.decimal);
            return Err(DataError::content(path, message));
        }
        let readings = names.iter().map(|name| options.reading(name)).collect();
        Ok(Cells { path: path.to_path_buf(), names, records, readings, missing, trim })
    }

    pub(super) fn rows(&self) -> usize {
        self.records.len()
    }

    pub(super) fn column(&self, name: &str) -> Option<usize> {
        self.names.iter().position(|known| known == name)
    }

    /// The names of the columns, for errors.
    pub(super) fn known(&self) -> String {
        let names: Vec<&str> = self.names.iter().take(20).map(String::as_str).collect();
        let more = if self.names.len() > 20 { ", ..." } else { "" };
        format!("the columns are {}{more}", names.join(", "))
    }

    pub(super) fn error(&self, row: Option<usize>, message: String) -> DataError {
        let position = row.and_then(|row| self.records[row].position());
        DataError::Content { path: self.path.clone(), line: position.map(csv::Position::line), message }
    }

    /// Returns a field; `None` if it is missing.
    pub(super) fn field(&self, row: usize, column: usize) -> Option<&str> {
        let field = self.records[row].get(column)?;
        let field = field.trim_matches(|c: char| c.is_whitespace() || self.trim.contains(&c));
        let is_missing = field.is_empty() || self.missing.iter().any(|missing| missing == field);
        (!is_missing).then_some(field)
    }

    /// Determines the kind of a column.
    fn feature(&self, column: usize, options: &TableOptions) -> Result<Feature, DataError> {
        let name = self.names[column].clone();
        let fields = || (0..self.rows()).filter_map(|row| self.field(row, column));
        let reading = &self.readings[column];
        // A field that does not fit a declared reading is an error when the values are read.
        let is_declared = !matches!(reading, Reading::Number(_));
        let is_numeric = || is_declared || fields().all(|field| reading.parse(field).is_some());
        if !options.categorical.contains(&name) && is_numeric() {
            return Ok(Feature::numeric(name));
        }
        let categories: BTreeSet<&str> = fields().collect();
        if categories.len() > MAX_CATEGORIES {
            return Err(self.error(
                None,
                format!(
                    "column {name:?} has {} different texts; the limit is {MAX_CATEGORIES}: ignore it, or make it numeric",
                    categories.len()
                ),
            ));
        }
        let kind = Kind::Categorical(categories.into_iter().map(str::to_string).collect());
        Ok(Feature { name, kind })
    }

    /// Writes the values of a column.
    fn values<'a>(
        &self,
        column: usize,
        feature: &Feature,
        to: impl Iterator<Item = &'a mut f32>,
    ) -> Result<(), DataError> {
        let indices: FxHashMap<&str, f32> = match &feature.kind {
            Kind::Numeric => FxHashMap::default(),
            Kind::Categorical(names) => {
                names.iter().enumerate().map(|(index, name)| (name.as_str(), index as f32)).collect()
            }
        };
        for (row, to) in to.enumerate() {
            *to = match (self.field(row, column), &feature.kind) {
                (None, _) => f32::NAN,
                (Some(field), Kind::Categorical(_)) => indices.get(field).copied().unwrap_or(f32::NAN),
                (Some(field), Kind::Numeric) => {
                    let name = &feature.name;
                    let reading = &self.readings[column];
                    let value = reading.parse(field).ok_or_else(|| {
                        let message =
                            format!("column {name:?} {}, but its value is {field:?}", reading.expected());
                        self.error(Some(row), message)
                    })?;
                    if !value.is_finite() {
                        let message = format!(
                            "column {name:?} is {field}; leave the field empty if the value is missing"
                        );
                        return Err(self.error(Some(row), message));
                    }
                    value
                }
            };
        }
        Ok(())
    }

    /// Returns the classes and the class of each row.
    fn labels(
        &self,
        column: Option<usize>,
        schema: Option<&Schema>,
    ) -> Result<(Vec<String>, Vec<u32>), DataError> {
        let Some(column) = column else {
            let classes = schema.map_or_else(Vec::new, |schema| schema.classes.clone());
            return Ok((classes, vec![0; self.rows()]));
        };
        let name = &self.names[column];
        let mut fields = Vec::with_capacity(self.rows());
        for row in 0..self.rows() {
            let missing = || self.error(Some(row), format!("the class (column {name:?}) is missing"));
            fields.push(self.field(row, column).ok_or_else(missing)?);
        }
        let classes: Vec<String> = match schema {
            Some(schema) => schema.classes.clone(),
            None => sorted_classes(fields.iter().copied().collect()),
        };
        if classes.len() > MAX_CLASSES {
            return Err(self.error(
                None,
                format!(
                    "column {name:?} has {} different values; a classifier has at most {MAX_CLASSES} classes: is it the right column?",
                    classes.len()
                ),
            ));
        }
        let indices: FxHashMap<&str, u32> = classes.iter().map(String::as_str).zip(0..).collect();
        let mut labels = Vec::with_capacity(fields.len());
        for (row, field) in fields.into_iter().enumerate() {
            let label = indices.get(field).copied().ok_or_else(|| {
                let message = format!("the class {field:?} (column {name:?}) is not in the training data");
                self.error(Some(row), message)
            })?;
            labels.push(label);
        }
        Ok((classes, labels))
    }
}

/// Sorts classes, as numbers if all of them are.
fn sorted_classes(names: BTreeSet<&str>) -> Vec<String> {
    let mut names: Vec<&str> = names.into_iter().collect();
    let plain = Format { decimal: '.', grouped: false };
    if names.iter().all(|name| number(name, plain).is_some()) {
        let value = |name: &&str| number(name, plain).unwrap_or(0.0);
        names.sort_by(|a, b| value(a).total_cmp(&value(b)));
    }
    names.into_iter().map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "size,color,ok,kind\n1.5,red,true,b\n2,green,false,a\n,?,true,b\n";

    fn options() -> TableOptions {
        TableOptions { label: Some("kind".into()), missing: vec!["?".into()], ..TableOptions::default() }
    }

    fn parsed(text: &str, schema: Option<&Schema>, labels: Labels) -> Result<Dataset, String> {
        parse(text.as_bytes(), Path::new("x.csv"), &options(), schema, labels)
            .map_err(|error| error.to_string())
    }

    fn schema() -> Schema {
        let data = parsed(TEXT, None, Labels::Needed).unwrap();
        Schema { features: data.features().to_vec(), classes: data.classes().to_vec() }
    }

    #[test]
    fn columns_are_numeric_or_categorical_and_fields_may_be_missing() {
        let data = parsed(TEXT, None, Labels::Needed).unwrap();
        assert_eq!(data.classes(), ["a", "b"]);
        assert_eq!(data.labels(), [1, 0, 1]);
        let kinds: Vec<&Kind> = data.features().iter().map(|feature| &feature.kind).collect();
        let colors = Kind::Categorical(vec!["green".into(), "red".into()]);
        assert_eq!(kinds, [&Kind::Numeric, &colors, &Kind::Numeric]);
        assert_eq!(data.gather(&[0, 1]), [1.5, 1.0, 1.0, 2.0, 0.0, 0.0]);
        assert!(data.value(2, 0).is_nan() && data.value(2, 1).is_nan());
    }

    #[test]
    fn a_table_with_a_schema_may_have_its_columns_in_any_order() {
        let text = "kind,color,more,ok,size\na,blue,7,false,3\n";
        let data = parsed(text, Some(&schema()), Labels::Needed).unwrap();
        assert_eq!((data.labels(), data.value(0, 0)), (&[0u32][..], 3.0));
        assert!(data.value(0, 1).is_nan(), "a category that training never saw");
        let bare = parsed("color,ok,size\nred,true,1\n", Some(&schema()), Labels::Optional).unwrap();
        assert_eq!(bare.gather(&[0]), [1.0, 1.0, 1.0]);
    }

    #[test]
    fn what_does_not_fit_is_named_with_its_line() {
        for (text, right) in [
            (
                "size,color,ok,kind\n1,red,true,c\n",
                "x.csv:2: the class \"c\" (column \"kind\") is not in the",
            ),
            (
                "size,color,ok,kind\n1,red,true,a\nbig,red,true,a\n",
                "x.csv:3: column \"size\" is numeric, but",
            ),
            (
                "size,color,ok,kind\nNaN,red,true,a\n",
                "x.csv:2: column \"size\" is NaN; leave the field empty",
            ),
            ("size,color,ok,kind\n-inf,red,true,a\n", "x.csv:2: column \"size\" is -inf; leave"),
            (
                "size,ok,kind\n1,true,a\n",
                "x.csv: there is no column \"color\"; the columns are size, ok, kind",
            ),
            ("size,color,ok\n1,red,true\n", "x.csv: there is no column \"kind\""),
            ("size,color,ok,kind\n1,red,a\n", "x.csv:2: the line has 3 fields, but the lines before have 4"),
            ("size,color,ok,kind\n1,red,true,?\n", "x.csv:2: the class (column \"kind\") is missing"),
            ("size,size,ok,kind\n1,2,true,a\n", "x.csv: two columns are called \"size\""),
            ("size,color,ok,kind\n", "x.csv: the table has no rows"),
            ("", "x.csv: the table has no rows"),
        ] {
            let message = parsed(text, Some(&schema()), Labels::Needed).unwrap_err();
            assert!(message.starts_with(right), "{message}");
        }
    }

    #[test]
    fn numbers_have_decimal_commas_units_and_dates() {
        let options = TableOptions {
            separator: ';',
            decimal: ',',
            grouped: true,
            dates: vec!["day".into()],
            units: [("weight".to_string(), "kg".to_string())].into(),
            ..TableOptions::default()
        };
        let read = |text: &str| {
            parse(text.as_bytes(), Path::new("x.csv"), &options, None, Labels::Needed)
                .map_err(|error| error.to_string())
        };
        let data = read("weight;day;size;kind\n1,5 kg;02.01.1970;1.234,5;a\n;;7;b\n").unwrap();
        assert!(data.features().iter().all(|feature| feature.kind == Kind::Numeric));
        assert_eq!(data.gather(&[0]), [1.5, 1.0, 1234.5]);
        assert!(data.value(1, 0).is_nan() && data.value(1, 1).is_nan());
        let schema = Schema { features: data.features().to_vec(), classes: data.classes().to_vec() };
        let later = b"weight;day;size;kind\n3 lb;1.1.1970;2;a\n";
        let error = parse(later, Path::new("x.csv"), &options, Some(&schema), Labels::Needed).unwrap_err();
        let expected =
            "x.csv:2: column \"weight\" has numbers with the unit \"kg\", but its value is \"3 lb\"";
        assert_eq!(error.to_string(), expected);
        let other = TableOptions { decimal: ':', ..options.clone() };
        let error = parse(later, Path::new("x.csv"), &other, None, Labels::Needed).unwrap_err().to_string();
        assert!(error.ends_with("the decimal character is ':', but must be a point or a comma"), "{error}");
    }

    #[test]
    fn a_field_that_does_not_fit_a_declared_reading_is_named() {
        let options = TableOptions {
            dates: vec!["day".into()],
            units: [("weight".to_string(), "kg".to_string())].into(),
            ..TableOptions::default()
        };
        for (row, right) in [
            ("12/31/2024,1 kg,a", "x.csv:3: column \"day\" has dates such as 2024-12-31, but its value is"),
            ("2024-12-31,7 lb,a", "x.csv:3: column \"weight\" has numbers with the unit \"kg\", but its"),
        ] {
            let text = format!("day,weight,kind\n2024-12-30,2 kg,b\n{row}\n");
            let path = Path::new("x.csv");
            let error = parse(text.as_bytes(), path, &options, None, Labels::Needed).unwrap_err();
            assert!(error.to_string().starts_with(right), "{error}");
        }
    }

    #[test]
    fn groups_of_thousands_are_categories_unless_they_are_declared() {
        let kind = |grouped: bool| {
            let options = TableOptions { grouped, ..TableOptions::default() };
            let text = b"size,kind\n\"1,234\",a\n\"2,345\",b\n";
            let data = parse(text, Path::new("x.csv"), &options, None, Labels::Needed).unwrap();
            data.features()[0].kind.clone()
        };
        assert_eq!(kind(true), Kind::Numeric);
        assert_eq!(kind(false), Kind::Categorical(vec!["1,234".into(), "2,345".into()]));
    }

    #[test]
    fn a_million_classes_are_refused() {
        let mut rows = vec!["size,color,ok,kind".to_string()];
        rows.extend((0..=MAX_CLASSES).map(|row| format!("1,x,true,{row}")));
        let message = parsed(&rows.join("\n"), None, Labels::Needed).unwrap_err();
        assert!(message.contains("has 4097 different values"), "{message}");
    }

    #[test]
    fn white_space_comments_and_trimmed_characters_are_read() {
        let options = TableOptions {
            header: false,
            label: Some("1".into()),
            separator: ' ',
            ignore: vec!["4".into()],
            categorical: vec!["3".into()],
            comment: Some('|'),
            trim: ".".into(),
            ..TableOptions::default()
        };
        let text = b"|1x3\n 1  5 2 data_1\n 0. 7 1   data_2\r\n";
        let data = parse(text, Path::new("x"), &options, None, Labels::Needed).unwrap();
        assert_eq!((data.classes().len(), data.labels()), (2, &[1u32, 0][..]));
        assert_eq!(data.features()[1].kind, Kind::Categorical(vec!["1".into(), "2".into()]));
        assert_eq!(data.gather(&[0, 1]), [5.0, 1.0, 7.0, 0.0]);
    }
}
