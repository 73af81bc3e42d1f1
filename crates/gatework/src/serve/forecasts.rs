//! Forecasts: of numbers, of rows as JSON, and of tables as CSV.

use std::io::Cursor;
use std::sync::{Arc, OnceLock};

use gatework_forecast::data::{Schema, Series, Table, read_csv};
use gatework_forecast::experiment::{ForecastExperiment, dataset};
use gatework_forecast::service::{Service, ServiceError};
use gatework_forecast::{Interval, SeriesForecast};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::api::{Media, from_json};
use super::problem::Problem;
use crate::forecast_csv;

/// The body of a request: the values of series, or rows with the columns of the training data.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    series: Option<Vec<History>>,
    rows: Option<Vec<Map<String, Value>>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct History {
    /// May be left out if the model was trained on one series.
    id: Option<String>,
    values: Vec<f64>,
}

/// The maximum number of values of a history in a response.
const MAX_HISTORY: usize = 5000;

/// The maximum number of ids of series in a response.
const MAX_IDS: usize = 1000;

/// A forecaster that is ready to predict.
pub struct Forecasts {
    pub service: Service,
    pub loaded: ForecastExperiment,
    /// The data of the experiment, read when they are first asked for.
    pub table: OnceLock<Result<Arc<Table>, String>>,
}

/// What a request wants to get in addition to forecasts.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Wanted {
    /// The number of values before the forecast.
    history: usize,
}

/// A forecast of the data of the experiment.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Place {
    /// The id of the series; by default the first.
    series: Option<String>,
    /// The number of values before the forecast; by default, the last horizon is forecast.
    origin: Option<usize>,
}

impl Forecasts {
    /// Answers a request; the number is that of the series that were forecast.
    pub fn answer(
        &self,
        media: Media,
        body: &[u8],
        csv: bool,
        wanted: Wanted,
    ) -> Result<(Vec<u8>, usize), Problem> {
        if media == Media::Csv {
            return self.of_table(body, csv, wanted);
        }
        let request: Request = from_json(body)?;
        match (request.series, request.rows) {
            (Some(series), None) => self.of_values(&series),
            (None, Some(rows)) => self.of_table(to_csv(&rows)?.as_bytes(), csv, wanted),
            _ => Err(Problem::bad_request(
                "expected either \"series\": [{\"id\": ..., \"values\": [...]}] or \"rows\": [{\"column\": value, ...}]",
            )),
        }
    }

    fn of_values(&self, histories: &[History]) -> Result<(Vec<u8>, usize), Problem> {
        let known = self.service.context().scaler.ids();
        let forecasts = histories.iter().enumerate().map(|(index, history)| {
            let id = match (&history.id, known) {
                (Some(id), _) => id,
                (None, [only]) => only,
                (None, _) => {
                    let count = known.len();
                    let detail =
                        format!("series[{index}].id is missing: the model was trained on {count} series");
                    return Err(Problem::unprocessable(detail));
                }
            };
            let prediction = self.service.predict(id, &history.values).map_err(|error| problem(&error))?;
            Ok(self.json(id, &prediction.values, &prediction.intervals))
        });
        let forecasts: Vec<Value> = forecasts.collect::<Result<_, _>>()?;
        Ok((json!({ "forecasts": forecasts }).to_string().into_bytes(), forecasts.len()))
    }

    fn of_table(&self, csv: &[u8], as_csv: bool, wanted: Wanted) -> Result<(Vec<u8>, usize), Problem> {
        let table = self.read(csv)?;
        let forecasts = self.predict(&table)?;
        if as_csv {
            let text = forecast_csv::to_csv(&table, &forecasts, &self.service.context().columns);
            return Ok((text.into_bytes(), forecasts.len()));
        }
        let objects = table.series.iter().zip(&forecasts).map(|(series, forecast)| {
            let mut object = self.json(&forecast.id, &forecast.values, &forecast.intervals);
            object["times"] = forecast.times.clone().into();
            if wanted.history > 0 {
                object["history"] = history(&table, series, series.values.len(), wanted.history);
            }
            object
        });
        let objects: Vec<Value> = objects.collect();
        Ok((json!({ "forecasts": objects }).to_string().into_bytes(), forecasts.len()))
    }

    /// Reads a table with the columns of the training data.
    fn read(&self, csv: &[u8]) -> Result<Table, Problem> {
        if csv.starts_with(&[0x1f, 0x8b]) {
            return Err(Problem::unprocessable("the body is compressed; send plain CSV"));
        }
        let context = self.service.context();
        let schema = Schema { expected: Some(context.frequency.clone()), ..context.columns.clone() };
        read_csv(Cursor::new(csv), "the request", &schema)
            .map_err(|error| Problem::unprocessable(error.to_string()))
    }

    /// Forecasts the steps after every series of a table.
    fn predict(&self, table: &Table) -> Result<Vec<SeriesForecast>, Problem> {
        let predictions = self.service.predict_table(table).map_err(|error| problem(&error))?;
        let with_times = table.series.iter().zip(predictions).map(|(series, prediction)| {
            let end = series.values.len();
            let steps = end..end + prediction.values.len();
            SeriesForecast::new(
                series.id.clone(),
                steps.map(|step| table.time(series, step)).collect(),
                prediction,
            )
        });
        Ok(with_times.collect())
    }

    /// Forecasts a series of the data of the experiment from any origin, with what was before and came after.
    pub fn at(&self, place: &Place) -> Result<Value, Problem> {
        let read = || dataset::read(&self.loaded).map(Arc::new).map_err(|error| error.to_string());
        let table = self.table.get_or_init(read).as_ref().map_err(|error| {
            Problem::conflict(format!("the data of the experiment cannot be read: {error}"))
        })?;
        let ids: Vec<&str> = table.series.iter().take(MAX_IDS).map(|series| series.id.as_str()).collect();
        let series = match &place.series {
            Some(id) => table.find(id),
            None => table.series.first(),
        };
        let unknown = || match &place.series {
            Some(id) => Problem::not_found(format!("the data have no series {id:?}")),
            None => Problem::conflict("the data of the experiment have no series"),
        };
        let series = series.ok_or_else(unknown)?;
        let (horizon, first) = (self.service.specification().horizon, self.service.min_history());
        let length = series.values.len();
        if length < first {
            let detail = format!("series {:?} has {length} values, but the model reads {first}", series.id);
            return Err(Problem::unprocessable(detail));
        }
        let origin = match place.origin {
            Some(origin) if !(first..=length).contains(&origin) => {
                return Err(Problem::unprocessable(format!(
                    "origin is {origin}, but forecasts of series {:?} begin after {first} to {length} values",
                    series.id
                )));
            }
            Some(origin) => origin,
            None => length.saturating_sub(horizon).max(first),
        };
        let one = Table { series: vec![cut(table, series, origin, horizon)], ..without_series(table) };
        let forecasts = self.predict(&one)?;
        let forecast = forecasts.first().ok_or_else(|| Problem::internal("the model gave no forecast"))?;
        let mut object = self.json(&forecast.id, &forecast.values, &forecast.intervals);
        object["times"] = forecast.times.clone().into();
        object["history"] = history(table, series, origin, MAX_HISTORY);
        object["actual"] = json!(series.values[origin..length.min(origin + horizon)]);
        Ok(json!({
            "ids": ids, "series": table.series.len(), "horizon": horizon, "origin": origin, "first": first,
            "last": length, "forecast": object,
        }))
    }

    /// A forecast as JSON.
    fn json(&self, id: &str, values: &[f64], intervals: &[Interval]) -> Value {
        let is_new = self.service.context().scaler.of(id).is_none();
        let interval = |one: &Interval| json!({ "level": one.level, "low": one.low, "high": one.high });
        let intervals: Vec<Value> = intervals.iter().map(interval).collect();
        json!({ "id": id, "is_new": is_new, "values": values, "intervals": intervals })
    }
}

/// The last values of a series before an origin, with their times; a gap is null.
fn history(table: &Table, series: &Series, origin: usize, most: usize) -> Value {
    let steps = origin.saturating_sub(most.min(MAX_HISTORY))..origin;
    let times: Vec<String> = steps.clone().map(|step| table.time(series, step)).collect();
    json!({ "times": times, "values": series.values[steps] })
}

/// A series as it was known at an origin.
fn cut(table: &Table, series: &Series, origin: usize, horizon: usize) -> Series {
    let mut series = series.clone();
    let known = table.columns.future.len() * (origin + horizon);
    series.values.truncate(origin);
    series.leaky.retain(|place| *place < origin);
    series.past.truncate(origin * table.columns.past.len());
    series.future.truncate(known);
    series
}

/// A table with the same columns and times.
fn without_series(table: &Table) -> Table {
    Table {
        frequency: table.frequency,
        offset: table.offset,
        form: table.form,
        columns: table.columns.clone(),
        series: Vec::new(),
        report: table.report.clone(),
    }
}

/// Writes rows of JSON as CSV, so that there is one reader of tables.
fn to_csv(rows: &[Map<String, Value>]) -> Result<String, Problem> {
    let mut columns: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(Map::keys) {
        if !columns.contains(&name.as_str()) {
            columns.push(name);
        }
        if columns.len() > MAX_COLUMNS {
            return Err(Problem::unprocessable(format!("the rows have more than {MAX_COLUMNS} columns")));
        }
    }
    let mut text = columns.iter().map(|name| field(name)).collect::<Vec<_>>().join(",");
    for (index, row) in rows.iter().enumerate() {
        text.push('\n');
        for (column, name) in columns.iter().enumerate() {
            if column > 0 {
                text.push(',');
            }
            match row.get(*name) {
                None | Some(Value::Null) => {}
                Some(Value::String(value)) => text.push_str(&field(value)),
                Some(value @ (Value::Number(_) | Value::Bool(_))) => text.push_str(&value.to_string()),
                Some(_) => {
                    let detail = format!("rows[{index}].{name} is neither a number nor a text");
                    return Err(Problem::unprocessable(detail));
                }
            }
        }
    }
    text.push('\n');
    Ok(text)
}

/// The maximum number of columns of rows as JSON.
const MAX_COLUMNS: usize = 1000;

/// A CSV field, always quoted: the reader removes the quotes.
fn field(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}

/// The problem that an error of the service is.
fn problem(error: &ServiceError) -> Problem {
    match error {
        ServiceError::Busy { waiting } => {
            Problem::busy(format!("{waiting} requests are waiting for the model"))
        }
        ServiceError::Failed(_) | ServiceError::Model(_) | ServiceError::Memory { .. } => {
            Problem::internal(error.to_string())
        }
        ServiceError::NeedsCovariates => {
            Problem::unprocessable("the model reads covariates; send \"rows\" or CSV with their columns")
        }
        error => Problem::unprocessable(error.to_string()),
    }
}
