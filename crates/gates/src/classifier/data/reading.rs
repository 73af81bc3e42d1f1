//! Texts that are numbers: with a decimal point or comma, groups of thousands, a unit, truth values and dates.

/// How numbers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Format {
    /// The character between the integer and the fraction: a point or a comma.
    pub decimal: char,
    /// Whether digits may be in groups of thousands, with the other character between them.
    pub grouped: bool,
}

/// How the fields of a numeric column become numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// A number, or a truth value.
    Number(Format),
    /// A number with this unit after it, or before it as the sign of a currency.
    Unit(Format, String),
    /// A date, as days since 1970-01-01.
    Date,
}

impl Reading {
    /// Parses a field.
    pub fn parse(&self, field: &str) -> Option<f32> {
        match self {
            Reading::Number(format) => number(field, *format),
            Reading::Unit(format, unit) => {
                let (number, found) = split_unit(field, *format)?;
                (found == unit).then_some(number)
            }
            Reading::Date => date(field).map(|days| days as f32),
        }
    }

    /// Returns what a column has, for errors.
    pub fn expected(&self) -> String {
        match self {
            Reading::Number(_) => "is numeric".into(),
            Reading::Unit(_, unit) => format!("has numbers with the unit {unit:?}"),
            Reading::Date => "has dates such as 2024-12-31".into(),
        }
    }

    /// Finds the reading of all of some fields, if there is one: numbers, numbers with the same unit, or dates.
    pub fn of<'a>(fields: &(impl Iterator<Item = &'a str> + Clone), format: Format) -> Option<Reading> {
        let first = fields.clone().next()?;
        let mut candidates = vec![Reading::Number(format), Reading::Date];
        candidates.extend(split_unit(first, format).map(|(_, unit)| Reading::Unit(format, unit.into())));
        candidates.into_iter().find(|reading| fields.clone().all(|field| reading.parse(field).is_some()))
    }
}

/// Parses a number or a truth value.
pub(super) fn number(field: &str, Format { decimal, grouped }: Format) -> Option<f32> {
    match field {
        "true" | "True" | "TRUE" => return Some(1.0),
        "false" | "False" | "FALSE" => return Some(0.0),
        _ => {}
    }
    let parsed = |text: &str| text.parse::<f64>().ok().map(|number| number as f32);
    let group = if decimal == ',' { '.' } else { ',' };
    if grouped && is_grouped(field, group, decimal) {
        return parsed(&field.replace(group, "").replace(decimal, "."));
    }
    match decimal {
        ',' if field.contains('.') => None,
        ',' => parsed(&field.replacen(',', ".", 1)),
        _ => parsed(field),
    }
}

/// Whether a text is a number with digits in groups of three, such as 1,234,567.8. The first group does not begin with 0.
fn is_grouped(field: &str, group: char, decimal: char) -> bool {
    let unsigned = field.strip_prefix(['-', '+']).unwrap_or(field);
    let (whole, fraction) = unsigned.split_once(decimal).unwrap_or((unsigned, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = whole.split(group);
    let first = groups.next().unwrap_or("");
    let mut others = groups.peekable();
    (1..=3).contains(&first.len())
        && !first.starts_with('0')
        && digits(first)
        && digits(fraction)
        && others.peek().is_some()
        && others.all(|group| group.len() == 3 && digits(group))
}

/// Most characters of a unit.
const MAX_UNIT: usize = 12;

/// Splits a field into its number and its unit. A unit has no digit.
fn split_unit(field: &str, format: Format) -> Option<(f32, &str)> {
    let is_numeric = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '-' | '+');
    let is_unit = |unit: &str| {
        !unit.is_empty()
            && unit.chars().count() <= MAX_UNIT
            && unit.chars().all(|c| c.is_alphabetic() || c.is_whitespace() || "%°$€£¥/²³".contains(c))
    };
    let (text, unit) = match field.chars().next()? {
        c if "$€£¥".contains(c) => (&field[c.len_utf8()..], &field[..c.len_utf8()]),
        _ => {
            let end = field.find(|c| !is_numeric(c))?;
            field.split_at(end)
        }
    };
    let (text, unit) = (text.trim(), unit.trim());
    is_unit(unit).then(|| number(text, format)).flatten().map(|number| (number, unit))
}

/// Parses a date: 2024-12-31, 2024/12/31 or 31.12.2024, and a time of day after it. The result is in days since 1970-01-01.
pub(super) fn date(field: &str) -> Option<f64> {
    let (day, time) = match field.split_once(['T', ' ']) {
        Some((day, time)) => (day, time_of_day(time)?),
        None => (field, 0.0),
    };
    let separator = ['-', '/', '.'].into_iter().find(|&separator| day.contains(separator))?;
    let mut parts = day.split(separator);
    let parts = [parts.next()?, parts.next()?, parts.next().filter(|_| parts.next().is_none())?];
    let [year, month, day] = if separator == '.' { [parts[2], parts[1], parts[0]] } else { parts };
    let integer = |text: &str, least: usize, most: usize| -> Option<i64> {
        let fits = (least..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
        fits.then(|| text.parse().ok()).flatten()
    };
    let (year, month, day) = (integer(year, 4, 4)?, integer(month, 1, 2)?, integer(day, 1, 2)?);
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days = [31, if is_leap { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let length = days.get(usize::try_from(month - 1).ok()?)?;
    if !(1..=*length).contains(&day) {
        return None;
    }
    // Leap days of all years before this one, in the Gregorian calendar.
    let before = year - 1;
    let leaps = before / 4 - before / 100 + before / 400 - (1969 / 4 - 1969 / 100 + 1969 / 400);
    let of_year: i64 = days.iter().take(month as usize - 1).sum();
    Some(((year - 1970) * 365 + leaps + of_year + day - 1) as f64 + time)
}

/// Parses a time of day, 23:59 or 23:59:59 with a fraction, as a fraction of a day. With an offset such as `+02:00`, it is the time in
/// UTC, which may be on another day.
fn time_of_day(time: &str) -> Option<f64> {
    let (time, offset) = match (time.strip_suffix('Z'), time.find(['+', '-'])) {
        (Some(time), _) => (time, 0.0),
        (None, Some(at)) => (time[..at].trim_end(), offset(&time[at..])?),
        (None, None) => (time, 0.0),
    };
    let part = |text: &str, most: f64| -> Option<f64> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        let number: f64 = text.parse().ok().filter(|_| text.bytes().all(is_digit))?;
        (number < most).then_some(number)
    };
    let mut parts = time.split(':');
    let (hours, minutes) = (part(parts.next()?, 24.0)?, part(parts.next()?, 60.0)?);
    let seconds = parts.next().map_or(Some(0.0), |text| part(text, 60.0))?;
    parts.next().is_none().then_some(hours / 24.0 + minutes / 1440.0 + seconds / 86400.0 - offset)
}

/// Parses an offset from UTC, such as +02:00, -0330 or +02, as a fraction of a day.
fn offset(text: &str) -> Option<f64> {
    let sign = if text.starts_with('-') { -1.0 } else { 1.0 };
    let (hours, minutes) = text.get(1..)?.split_at_checked(2)?;
    let minutes = minutes.strip_prefix(':').unwrap_or(minutes);
    let number = |text: &str, most: u32| -> Option<f64> {
        let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number: u32 = text.parse().ok().filter(|number| is_number && *number < most)?;
        Some(f64::from(number))
    };
    let minutes = if text.len() == 3 { 0.0 } else { number(minutes, 60)? };
    Some(sign * (number(hours, 24)? / 24.0 + minutes / 1440.0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn grouped(decimal: char) -> Format {
        Format { decimal, grouped: true }
    }

    #[test]
    fn numbers_have_a_decimal_character_and_groups() {
        for (field, decimal, expected) in [
            ("1.5", '.', Some(1.5)),
            ("1,5", '.', None),
            ("1,234.5", '.', Some(1234.5)),
            ("-12,345,678", '.', Some(-12_345_678.0)),
            ("1,23,456", '.', None),
            ("1,5", ',', Some(1.5)),
            ("1.5", ',', None),
            ("1.234,5", ',', Some(1234.5)),
            ("1.234", ',', Some(1234.0)),
            ("7", ',', Some(7.0)),
            ("-1,5e3", ',', Some(-1500.0)),
            ("True", ',', Some(1.0)),
            ("0,123", '.', None),
            ("012,345", '.', None),
            ("0,123", ',', Some(0.123)),
            ("", '.', None),
            (",", ',', None),
        ] {
            assert_eq!(number(field, grouped(decimal)), expected, "{field:?} {decimal:?}");
        }
    }

    #[test]
    fn groups_are_read_only_if_they_are_allowed() {
        for (field, decimal) in [("1,234", '.'), ("1.234", ','), ("1.234,5", ',')] {
            assert_eq!(number(field, Format { decimal, grouped: false }), None, "{field:?}");
            assert!(number(field, grouped(decimal)).is_some(), "{field:?}");
        }
    }

    #[test]
    fn dates_are_days() {
        for (field, expected) in [
            ("1970-01-01", Some(0.0)),
            ("1969-12-31", Some(-1.0)),
            ("2000-02-29", Some(11_016.0)),
            ("2024/03/01", Some(19_783.0)),
            ("1.3.2024", Some(19_783.0)),
            ("2024-03-01 12:00", Some(19_783.5)),
            ("2024-03-01T06:00:00Z", Some(19_783.25)),
            ("2024-03-01T06:00:00+06:00", Some(19_783.0)),
            ("2024-03-01T06:00:00+0600", Some(19_783.0)),
            ("2024-03-01 06:00:00.00 -06", Some(19_783.5)),
            ("2024-03-01T06:00:00+6", None),
            ("2024-03-01T06:00:00+", None),
            ("2024-03-01T06:00:00+24:00", None),
            ("2024-03-01 06:00:00 PM", None),
            ("2024-03-01 12:30:99", None),
            ("2024-03-01 12:30:abc", None),
            ("2024-03-01 12:30:", None),
            ("2024-03-01 12:30:00:00", None),
            ("2023-02-29", None),
            ("2024-13-01", None),
            ("2024-00-01", None),
            ("2024-03-01 24:00", None),
            ("24-03-01", None),
            ("1-2-2024", None),
            ("2024-03", None),
            ("2024-03-01-05", None),
        ] {
            assert_eq!(date(field), expected, "{field:?}");
        }
    }

    #[test]
    fn all_fields_of_a_column_have_one_reading() {
        let of = |fields: &[&str]| Reading::of(&fields.iter().copied(), grouped('.'));
        assert_eq!(of(&["1", "true", "-2e3"]), Some(Reading::Number(grouped('.'))));
        assert_eq!(of(&["65 kg", "7.5kg"]), Some(Reading::Unit(grouped('.'), "kg".into())));
        assert_eq!(of(&["$1,200.50", "$7"]), Some(Reading::Unit(grouped('.'), "$".into())));
        assert_eq!(of(&["12 %", "7%"]), Some(Reading::Unit(grouped('.'), "%".into())));
        assert_eq!(of(&["2024-01-01", "2023-07-31"]), Some(Reading::Date));
        for mixed in [&["65 kg", "7 lb"][..], &["65 kg", "7"], &["a", "b"], &["1", "2024-01-01"], &[]] {
            assert_eq!(of(mixed), None, "{mixed:?}");
        }
        assert_eq!(Reading::Unit(grouped('.'), "kg".into()).parse("7 lb"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(field in "[0-9a-zT:.,/ €%+-]{0,12}") {
            for reading in [Reading::Number(grouped('.')), Reading::Number(grouped(',')), Reading::Date, Reading::Unit(grouped(','), "kg".into())] {
                let _ = reading.parse(&field);
            }
            let _ = Reading::of(&[field.as_str()].into_iter(), grouped(','));
        }

        #[test]
        fn consecutive_days_differ_by_one(year in 1600i64..2400, month in 1u32..=12, day in 1u32..28) {
            let at = |day: u32| date(&format!("{year}-{month:02}-{day:02}")).unwrap();
            prop_assert_eq!(at(day + 1) - at(day), 1.0);
        }
    }
}
