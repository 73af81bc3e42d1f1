//! Forecasts as CSV: one row per series and step, with the bounds of the intervals.

use std::fmt::Write as _;

use gatework_forecast::data::{Schema, Table};
use gatework_forecast::{Interval, SeriesForecast};

use crate::number;

/// Writes the forecasts of all series of a table as CSV: id, time, value and the bounds of each interval. The columns of the
/// ids and of the times have the names of `schema`.
pub fn to_csv(table: &Table, forecasts: &[SeriesForecast], schema: &Schema) -> String {
    let id = [schema.id.as_deref().unwrap_or("unique_id")];
    let id = id.into_iter().chain(schema.id_parts.iter().map(String::as_str)).collect::<Vec<_>>().join("/");
    let names = [id.as_str(), &schema.time];
    let mut text = header(names, forecasts.first().map_or(&[], |forecast| &forecast.intervals));
    for (series, forecast) in table.series.iter().zip(forecasts) {
        let (id, range) = (field(&series.id), range(&series.values));
        for (step, (time, value)) in forecast.times.iter().zip(&forecast.values).enumerate() {
            let _ = write!(text, "{id},{time},{}", number::within(*value, range));
            for interval in &forecast.intervals {
                let [low, high] =
                    [&interval.low, &interval.high].map(|bound| number::within(bound[step], range));
                let _ = write!(text, ",{low},{high}");
            }
            text.push('\n');
        }
    }
    text
}

/// The difference of the greatest and the least known value; 1 if they are equal.
fn range(values: &[f64]) -> f64 {
    let known = values.iter().filter(|value| !value.is_nan());
    let (low, high) = known.fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(*x), high.max(*x)));
    if high > low { high - low } else { 1.0 }
}

/// The names of the columns.
fn header(names: [&str; 2], intervals: &[Interval]) -> String {
    let mut text = format!("{},{},forecast", field(names[0]), field(names[1]));
    for level in intervals.iter().map(|interval| number::percent(interval.level)) {
        let _ = write!(text, ",low_{level},high_{level}");
    }
    text.push('\n');
    text
}

/// A CSV field, quoted if necessary.
pub(crate) fn field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_columns_are_named_after_their_level() {
        let interval = |share| Interval { level: share, low: vec![], high: vec![] };
        let header = header(["id", "t"], &[0.8, 0.9999, 0.99995].map(interval));
        assert_eq!(header, "id,t,forecast,low_80,high_80,low_99.99,high_99.99,low_99.995,high_99.995\n");
    }

    #[test]
    fn the_range_ignores_missing_values() {
        assert_eq!(range(&[f64::NAN, 104.0, 622.0, 300.0]), 518.0);
        assert_eq!([range(&[7.0; 3]), range(&[])], [1.0; 2]);
    }

    #[test]
    fn fields_are_quoted_where_necessary() {
        assert_eq!([field("a"), field("a,b"), field("a\"b")], ["a", "\"a,b\"", "\"a\"\"b\""]);
    }
}
