//! Classes: of rows, of images, and of tables as CSV.

use std::fmt::Write as _;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use gatework_gates::classifier::data::images::parse_png;
use gatework_gates::classifier::data::table::{self, Labels, Schema, TableOptions};
use gatework_logic::classifier::{Classifier, Feature, FeatureKind, Rows, arg_max};
use gatework_logic::simulate::Predictor;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::{Media, from_json};
use super::problem::Problem;

/// A classifier that is ready to predict.
pub struct Classes {
    pub classifier: Classifier,
    pub predictor: Predictor,
    /// How the tables of the training data are read.
    pub options: TableOptions,
}

/// The body of a request: rows, or PNG images in base64.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    rows: Option<Vec<Row>>,
    images: Option<Vec<String>>,
}

/// The values of the features, in their order or by their names.
#[derive(Deserialize)]
#[serde(untagged)]
enum Row {
    Ordered(Vec<Value>),
    Named(Map<String, Value>),
}

impl Classes {
    /// Answers a request; the number is that of the rows.
    pub fn answer(&self, media: Media, body: &[u8], wants_csv: bool) -> Result<(Vec<u8>, usize), Problem> {
        let invalid = |error: &dyn std::fmt::Display| Problem::unprocessable(error.to_string());
        let scores = match media {
            Media::Csv => {
                if body.starts_with(&[0x1f, 0x8b]) {
                    return Err(Problem::unprocessable("the body is compressed; send plain CSV"));
                }
                let schema = Schema::of(&self.classifier);
                let path = Path::new("the request");
                let data = table::parse(body, path, &self.options, Some(&schema), Labels::Optional)
                    .map_err(|error| invalid(&error))?;
                let rows: Vec<u32> = (0..data.rows() as u32).collect();
                self.predictor.scores_many(data.select(&rows).as_rows())
            }
            Media::Json => {
                let request: Request = from_json(body)?;
                match (request.rows, request.images) {
                    (Some(rows), None) => self.predictor.scores_many(Rows::Floats(&self.values(&rows)?)),
                    (None, Some(images)) => self.predictor.scores_many(Rows::Bytes(&self.pixels(&images)?)),
                    _ => {
                        return Err(Problem::bad_request(
                            "expected either \"rows\": [[value, ...], ...] or \"images\": [\"PNG in base64\", ...]",
                        ));
                    }
                }
            }
        };
        let scores = scores.map_err(|error| invalid(&error))?;
        let names: Vec<&str> =
            self.classifier.head().classes().iter().map(|class| class.name.as_str()).collect();
        let rows = scores.chunks_exact(names.len().max(1));
        let count = rows.len();
        if wants_csv {
            let mut text = String::from("row,class\n");
            for (row, scores) in rows.enumerate() {
                let name = names[arg_max(scores)].replace('"', "\"\"");
                let _ = writeln!(text, "{row},\"{name}\"");
            }
            return Ok((text.into_bytes(), count));
        }
        let predictions: Vec<Value> = rows
            .map(|scores| json!({ "class": names[arg_max(scores)], "index": arg_max(scores), "scores": scores }))
            .collect();
        Ok((json!({ "classes": names, "predictions": predictions }).to_string().into_bytes(), count))
    }

    /// The features of rows as numbers.
    fn values(&self, rows: &[Row]) -> Result<Vec<f32>, Problem> {
        let features = self.classifier.encoder().features();
        let mut values = Vec::with_capacity(rows.len().saturating_mul(features.len()).min(1 << 24));
        for (index, row) in rows.iter().enumerate() {
            match row {
                Row::Ordered(given) if given.len() != features.len() => {
                    let (found, needed) = (given.len(), features.len());
                    return Err(Problem::unprocessable(format!(
                        "rows[{index}] has {found} values, but the classifier reads {needed}"
                    )));
                }
                Row::Ordered(given) => {
                    for (feature, value) in features.iter().zip(given) {
                        values.push(number(feature, value, index)?);
                    }
                }
                Row::Named(given) => {
                    let is_known = |name: &&String| features.iter().any(|feature| feature.name == **name);
                    if let Some(name) = given.keys().find(|name| !is_known(name)) {
                        let detail =
                            format!("rows[{index}] has {name:?}, which is not a feature of the classifier");
                        return Err(Problem::unprocessable(detail));
                    }
                    for feature in features {
                        values.push(number(
                            feature,
                            given.get(&feature.name).unwrap_or(&Value::Null),
                            index,
                        )?);
                    }
                }
            }
        }
        Ok(values)
    }

    /// The pixels of images.
    fn pixels(&self, images: &[String]) -> Result<Vec<u8>, Problem> {
        let Some([channels, height, width]) = self.classifier.encoder().shape() else {
            return Err(Problem::unprocessable("the classifier reads tables, not images; send \"rows\""));
        };
        let mut pixels = Vec::new();
        for (index, image) in images.iter().enumerate() {
            let invalid =
                |error: &dyn std::fmt::Display| Problem::unprocessable(format!("images[{index}]: {error}"));
            let image = image.rsplit_once("base64,").map_or(image.as_str(), |(_, data)| data);
            let bytes = BASE64_STANDARD.decode(image).map_err(|error| invalid(&error))?;
            let found =
                parse_png(&bytes, Path::new("the image"), &mut pixels).map_err(|error| invalid(&error))?;
            if [found.channels, found.height, found.width] != [channels, height, width] {
                return Err(invalid(&format!(
                    "it has {}x{} pixels of {} channels, but the classifier reads {height}x{width} pixels of {channels}",
                    found.height, found.width, found.channels
                )));
            }
        }
        Ok(pixels)
    }
}

/// The value of a feature as a number: itself, the index of its category, or NaN if it is missing.
fn number(feature: &Feature, value: &Value, row: usize) -> Result<f32, Problem> {
    let place = || format!("rows[{row}], feature {:?}", feature.name);
    match (value, &feature.kind) {
        (Value::Null, _) if feature.missing => Ok(f32::NAN),
        (Value::Null, _) => Err(Problem::unprocessable(format!(
            "{}: the value is missing, and never was in training",
            place()
        ))),
        (Value::Number(number), FeatureKind::Numeric(_)) => {
            let number = number.as_f64().unwrap_or(f64::NAN) as f32;
            let too_large = || Problem::unprocessable(format!("{}: the number is too large", place()));
            if number.is_finite() { Ok(number) } else { Err(too_large()) }
        }
        (Value::String(text), FeatureKind::Categorical(names)) => {
            match names.iter().position(|name| name == text) {
                Some(index) => Ok(index as f32),
                None if feature.missing => Ok(f32::NAN),
                None => Err(Problem::unprocessable(format!(
                    "{}: {text:?} is not a category of training",
                    place()
                ))),
            }
        }
        (_, FeatureKind::Numeric(_)) => {
            Err(Problem::unprocessable(format!("{}: expected a number", place())))
        }
        (_, FeatureKind::Categorical(_)) => {
            Err(Problem::unprocessable(format!("{}: expected a text", place())))
        }
    }
}
