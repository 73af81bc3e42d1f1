//! Texts that are numbers: with a decimal point or comma, groups of thousands, a unit, truth values and dates.

/// How the fields of a numeric column become numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    /// A number, or a truth value. The character is that between the integer and the fraction.
    Number(char),
    /// A number with this unit after it, or before it as the sign of a currency.
    Unit(char, String),
    /// A date, as days since 1970-01-01.
    Date,
}

impl Reading {
    /// Parses a field.
    pub fn parse(&self, field: &str) -> Option<f32> {
        match self {
            Reading::Number(decimal) => number(field, *decimal),
            Reading::Unit(decimal, unit) => {
                let (number, found) = split_unit(field, *decimal)?;
                (found == unit).then_some(number)
            }
            Reading::Date => date(field),
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
    pub fn of<'a>(fields: &(impl Iterator<Item = &'a str> + Clone), decimal: char) -> Option<Reading> {
        let first = fields.clone().next()?;
        let mut candidates = vec![Reading::Number(decimal), Reading::Date];
        candidates.extend(split_unit(first, decimal).map(|(_, unit)| Reading::Unit(decimal, unit.into())));
        candidates.into_iter().find(|reading| fields.clone().all(|field| reading.parse(field).is_some()))
    }
}

/// Parses a number or a truth value. A comma as the decimal character also allows a point in groups of thousands, and the reverse.
pub(super) fn number(field: &str, decimal: char) -> Option<f32> {
    match field {
        "true" | "True" | "TRUE" => return Some(1.0),
        "false" | "False" | "FALSE" => return Some(0.0),
        _ => {}
    }
    let parsed = |text: &str| text.parse::<f64>().ok().map(|number| number as f32);
    let group = if decimal == ',' { '.' } else { ',' };
    if is_grouped(field, group, decimal) {
        return parsed(&field.replace(group, "").replace(decimal, "."));
    }
    match decimal {
        ',' if field.contains('.') => None,
        ',' => parsed(&field.replacen(',', ".", 1)),
        _ => parsed(field),
    }
}

/// Whether a text is a number with digits in groups of three, such as 1,234,567.8.
fn is_grouped(field: &str, group: char, decimal: char) -> bool {
    let unsigned = field.strip_prefix(['-', '+']).unwrap_or(field);
    let (whole, fraction) = unsigned.split_once(decimal).unwrap_or((unsigned, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let mut groups = whole.split(group);
    let first = groups.next().unwrap_or("");
    let mut others = groups.peekable();
    (1..=3).contains(&first.len())
        && digits(first)
        && digits(fraction)
        && others.peek().is_some()
        && others.all(|group| group.len() == 3 && digits(group))
}

/// Most characters of a unit.
const MAX_UNIT: usize = 12;

/// Splits a field into its number and its unit. A unit has no digit.
fn split_unit(field: &str, decimal: char) -> Option<(f32, &str)> {
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
    is_unit(unit).then(|| number(text, decimal)).flatten().map(|number| (number, unit))
}

/// Parses a date: 2024-12-31, 2024/12/31 or 31.12.2024, and a time of day after it. The result is in days since 1970-01-01.
pub(super) fn date(field: &str) -> Option<f32> {
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
    Some(((year - 1970) * 365 + leaps + of_year + day - 1) as f32 + time)
}

/// Parses a time of day, 23:59 or 23:59:59 with a fraction, as a fraction of a day. A trailing `Z` is ignored.
fn time_of_day(time: &str) -> Option<f32> {
    let mut parts = time.strip_suffix('Z').unwrap_or(time).split(':');
    let mut part = |most: f32| -> Option<f32> {
        let text = parts.next()?;
        let is_digit = |byte: u8| byte.is_ascii_digit() || byte == b'.';
        let number: f32 = text.parse().ok().filter(|_| text.bytes().all(is_digit))?;
        (number < most).then_some(number)
    };
    let (hours, minutes, seconds) = (part(24.0)?, part(60.0)?, part(60.0).unwrap_or(0.0));
    parts.next().is_none().then_some(hours / 24.0 + minutes / 1440.0 + seconds / 86400.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            ("", '.', None),
            (",", ',', None),
        ] {
            assert_eq!(number(field, decimal), expected, "{field:?} {decimal:?}");
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
        let of = |fields: &[&str]| Reading::of(&fields.iter().copied(), '.');
        assert_eq!(of(&["1", "true", "-2e3"]), Some(Reading::Number('.')));
        assert_eq!(of(&["65 kg", "7.5kg"]), Some(Reading::Unit('.', "kg".into())));
        assert_eq!(of(&["$1,200.50", "$7"]), Some(Reading::Unit('.', "$".into())));
        assert_eq!(of(&["12 %", "7%"]), Some(Reading::Unit('.', "%".into())));
        assert_eq!(of(&["2024-01-01", "2023-07-31"]), Some(Reading::Date));
        for mixed in [&["65 kg", "7 lb"][..], &["65 kg", "7"], &["a", "b"], &["1", "2024-01-01"], &[]] {
            assert_eq!(of(mixed), None, "{mixed:?}");
        }
        assert_eq!(Reading::Unit('.', "kg".into()).parse("7 lb"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_parsed_or_refused(field in "[0-9a-zT:.,/ €%+-]{0,12}") {
            for reading in [Reading::Number('.'), Reading::Number(','), Reading::Date, Reading::Unit(',', "kg".into())] {
                let _ = reading.parse(&field);
            }
            let _ = Reading::of(&[field.as_str()].into_iter(), ',');
        }

        #[test]
        fn consecutive_days_differ_by_one(year in 1600i64..2400, month in 1u32..=12, day in 1u32..28) {
            let at = |day: u32| date(&format!("{year}-{month:02}-{day:02}")).unwrap();
            prop_assert_eq!(at(day + 1) - at(day), 1.0);
        }
    }
}
