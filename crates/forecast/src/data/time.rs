//! Parsing and formatting of times: dates, dates with a time of day, months, quarters and integers.
//!
//! A time is an `i64` tick: microseconds since 1970-01-01 UTC for calendar times, the number itself for integers. Ambiguous
//! formats such as 01/02/2000 are rejected.

use std::fmt::Write as _;

use super::date_format::DateFormat;

/// Microseconds per second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds per day.
pub const DAY: i64 = 86_400 * SECOND;

/// The names of the months.
pub(super) const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// The kind of a time, from the coarsest to the finest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TimeKind {
    /// An integer: 17.
    Integer,
    /// A month: 1949-01.
    Month,
    /// A day: 1949-01-31.
    Date,
    /// A day and a time: 1949-01-31 13:00:00.
    DateTime,
}

/// A calendar day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Civil {
    /// The year.
    pub year: i64,
    /// The month, 1 to 12.
    pub month: u32,
    /// The day of the month, from 1.
    pub day: u32,
}

impl Civil {
    /// Returns the day of a tick.
    pub fn of_tick(tick: i64) -> Civil {
        Civil::of_days(tick.div_euclid(DAY))
    }

    /// Returns the day from the number of days since 1970-01-01, in the Gregorian calendar (Hinnant, "chrono-compatible low-level date
    /// algorithms": years begin in March, so that the leap day is the last of its year).
    pub fn of_days(days: i64) -> Civil {
        let days = days + 719_468;
        let era = days.div_euclid(146_097);
        let day_of_era = days.rem_euclid(146_097);
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let day = (day_of_year - (153 * shifted + 2) / 5 + 1) as u32;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 } as u32;
        Civil { year: year_of_era + era * 400 + i64::from(month <= 2), month, day }
    }

    /// Returns the days since 1970-01-01.
    pub fn days(self) -> i64 {
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let shifted = i64::from((self.month + 9) % 12);
        let day_of_year = (153 * shifted + 2) / 5 + i64::from(self.day) - 1;
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
    }

    /// Returns the tick of midnight.
    pub fn tick(self) -> i64 {
        self.days() * DAY
    }

    /// Returns the months since the year 0.
    pub fn months(self) -> i64 {
        self.year * 12 + i64::from(self.month) - 1
    }

    /// Returns the day of a month, or its last day if it is shorter.
    pub fn in_month(months: i64, day: u32) -> Civil {
        let (year, month) = (months.div_euclid(12), months.rem_euclid(12) as u32 + 1);
        Civil { year, month, day: day.min(month_days(year, month)) }
    }

    /// Returns whether this is the last day of the month.
    pub fn ends_month(self) -> bool {
        self.day == month_days(self.year, self.month)
    }

    /// Returns the day of the year, from 0.
    pub fn day_of_year(self) -> i64 {
        self.days() - Civil { year: self.year, month: 1, day: 1 }.days()
    }
}

/// Returns the number of days of a month.
pub fn month_days(year: i64, month: u32) -> u32 {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Returns the day of the week of a tick; 0 is Monday.
pub fn weekday(tick: i64) -> i64 {
    (tick.div_euclid(DAY) + 3).rem_euclid(7)
}

/// Parses a time: `17`, `1949-01`, `1949-01-31`, `1949/01/31`, `1949Q1`, `Jan 31 1949`, with or without
/// `13:00`, `13:00:00.25`, `Z`, `+01:00` after it.
pub fn parse(text: &str) -> Option<(i64, TimeKind)> {
    parse_zoned(text).map(|(tick, kind, _)| (tick, kind))
}

/// Parses a time and its zone, as minutes ahead of UTC.
pub fn parse_zoned(text: &str) -> Option<(i64, TimeKind, Option<i64>)> {
    let text = text.trim();
    if let Ok(number) = text.parse() {
        return Some((number, TimeKind::Integer, None));
    }
    if let Some(quarter) = parse_quarter(text) {
        return Some((quarter, TimeKind::Month, None));
    }
    if text.starts_with(|c: char| c.is_ascii_alphabetic()) {
        return Some((parse_named(text)?, TimeKind::Date, None));
    }
    let (date, time) = match text.split_once(['T', ' ']) {
        Some((date, time)) => (date, Some(time)),
        None => (text, None),
    };
    let separator = if date.contains('/') { '/' } else { '-' };
    let mut parts = date.split(separator);
    let (year, month, day) = (year(parts.next()?)?, digits(parts.next()?, 2)?, parts.next());
    let kind = if day.is_some() { TimeKind::Date } else { TimeKind::Month };
    let day = day.map_or(Some(1), |day| digits(day, 2))?;
    let date = civil(year, month, day).filter(|_| parts.next().is_none())?.tick();
    match time {
        None => Some((date, kind, None)),
        Some(time) if kind == TimeKind::Date => {
            let (within, offset) = parse_clock(time)?;
            Some((date + within, TimeKind::DateTime, offset))
        }
        Some(_) => None,
    }
}

/// Parses an integer of eight digits as a date: 19490131.
pub fn date_of_number(number: i64) -> Option<i64> {
    let (year, month, day) = (number / 10_000, number / 100 % 100, number % 100);
    civil(year, month, day).filter(|_| (1000..10_000).contains(&year)).map(Civil::tick)
}

/// Parses `1949Q1` or `1949-Q1`: the first month of the quarter.
fn parse_quarter(text: &str) -> Option<i64> {
    let (year, quarter) = text.split_once(['Q', 'q'])?;
    let quarter = digits(quarter, 1).filter(|quarter| (1..=4).contains(quarter))?;
    let number = self::year(year.strip_suffix('-').unwrap_or(year))?;
    Some(civil(number, quarter * 3 - 2, 1)?.tick())
}

/// Parses `Jan 31 1949` or `January 31, 1949`.
fn parse_named(text: &str) -> Option<i64> {
    let mut words = text.split([' ', ',']).filter(|word| !word.is_empty());
    let name = words.next()?.to_ascii_lowercase();
    let month = MONTHS.iter().position(|month| name.len() >= 3 && month.starts_with(&name))? as i64 + 1;
    let (day, year) = (digits(words.next()?, 2)?, year(words.next()?)?);
    civil(year, month, day).filter(|_| words.next().is_none()).map(Civil::tick)
}

/// Parses `13:00`, `13:00:00` or `13:00:00.25`, with or without `Z` or `+01:00`: microseconds since midnight UTC, and the
/// zone.
fn parse_clock(text: &str) -> Option<(i64, Option<i64>)> {
    let (text, utc) = match text.strip_suffix(['Z', 'z']) {
        Some(text) => (text, Some(0)),
        None => (text, None),
    };
    let (text, offset) = match text.rfind(['+', '-']) {
        Some(sign) => {
            let (hours, minutes) = text[sign + 1..].split_once(':').unwrap_or((&text[sign + 1..], "0"));
            let minutes = digits(hours, 2)? * 60 + digits(minutes, 2)?;
            (&text[..sign], Some(if text.as_bytes()[sign] == b'+' { minutes } else { -minutes }))
        }
        None => (text, utc),
    };
    let mut parts = text.trim_end().split(':');
    let (hour, minute) = (digits(parts.next()?, 2)?, digits(parts.next()?, 2)?);
    let (seconds, fraction) = match parts.next() {
        None => (0, 0),
        Some(seconds) => match seconds.split_once('.') {
            None => (digits(seconds, 2)?, 0),
            Some((seconds, fraction)) => (digits(seconds, 2)?, parse_fraction(fraction)?),
        },
    };
    let fits = hour < 24 && minute < 60 && seconds < 60 && parts.next().is_none();
    let minute = minute - offset.unwrap_or(0);
    fits.then_some(((hour * 3600 + minute * 60 + seconds) * SECOND + fraction, offset))
}

/// Parses the fraction of a second as microseconds, truncated.
fn parse_fraction(text: &str) -> Option<i64> {
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    Some(text.bytes().chain(std::iter::repeat(b'0')).take(6).fold(0, |n, b| n * 10 + i64::from(b - b'0')))
}

/// Parses a year of four digits; two digits would be ambiguous.
fn year(text: &str) -> Option<i64> {
    digits(text, 4).filter(|_| text.len() == 4)
}

/// Parses a number of at most `most` digits.
fn digits(text: &str, most: usize) -> Option<i64> {
    let plain = (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| text.parse().ok())?
}

fn civil(year: i64, month: i64, day: i64) -> Option<Civil> {
    let month = u32::try_from(month).ok().filter(|month| (1..=12).contains(month))?;
    let day = u32::try_from(day).ok().filter(|day| (1..=month_days(year, month)).contains(day))?;
    Some(Civil { year, month, day })
}

/// Formats a time.
pub fn format(tick: i64, kind: TimeKind) -> String {
    let Civil { year, month, day } = Civil::of_tick(tick);
    match kind {
        TimeKind::Integer => tick.to_string(),
        TimeKind::Month => format!("{year:04}-{month:02}"),
        TimeKind::Date => format!("{year:04}-{month:02}-{day:02}"),
        TimeKind::DateTime => {
            let within = tick.rem_euclid(DAY);
            let seconds = within / SECOND;
            let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
            let mut text = format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}");
            if within % SECOND != 0 {
                let _ = write!(text, ".{:06}", within % SECOND);
            }
            text
        }
    }
}

/// The format of times: forecasts are written like the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeForm {
    /// Separator of dates if not a dash: `1949/01/31`, or empty: `19490131`.
    separator: Option<&'static str>,
    /// Separator of quarters: `1949Q1`, or `1949-Q1`.
    pub quarter: Option<&'static str>,
    /// Separator of date and time if not a space: `1949-01-31T13:00:00`.
    letter: Option<&'static str>,
    /// `13:00` instead of `13:00:00`.
    without_seconds: bool,
    /// `+00:00` instead of `Z`.
    zone_in_digits: bool,
    /// The format that the file declares, instead of the others.
    declared: Option<DateFormat>,
}

impl TimeForm {
    /// Returns the format of dates such as 19490131.
    pub fn number() -> TimeForm {
        TimeForm { separator: Some(""), ..TimeForm::default() }
    }

    /// Returns a declared format.
    pub fn declared(format: DateFormat) -> TimeForm {
        TimeForm { declared: Some(format), ..TimeForm::default() }
    }

    /// Returns the format of a valid time.
    pub fn of(text: &str) -> TimeForm {
        let text = text.trim();
        let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, ""));
        TimeForm {
            separator: date.contains('/').then_some("/"),
            quarter: parse_quarter(text).map(|_| if text.contains('-') { "-Q" } else { "Q" }),
            letter: text[date.len()..].starts_with('T').then_some("T"),
            without_seconds: clock.split(['+', '-']).next().unwrap_or_default().matches(':').count() == 1,
            zone_in_digits: clock.contains(['+', '-']),
            declared: None,
        }
    }

    /// Formats a time like [`format_zoned`], in this format.
    pub fn format(self, tick: i64, kind: TimeKind, offset: Option<i64>) -> String {
        if let Some(declared) = self.declared {
            return declared.format(tick);
        }
        let Civil { year, month, .. } = Civil::of_tick(tick);
        if let Some(quarter) = self.quarter.filter(|_| kind == TimeKind::Month && month % 3 == 1) {
            return format!("{year:04}{quarter}{}", month.div_ceil(3));
        }
        let text = format_zoned(tick, kind, offset);
        if kind == TimeKind::Integer {
            return text;
        }
        let (date, clock) = text.split_once(' ').unwrap_or((&text, ""));
        let date = self.separator.map_or_else(|| date.into(), |separator| date.replace('-', separator));
        if clock.is_empty() {
            return date;
        }
        let (time, zone) = clock.split_at(clock.find(['Z', '+', '-']).unwrap_or(clock.len()));
        let short = time.strip_suffix(":00").filter(|_| self.without_seconds);
        let zone = if self.zone_in_digits && zone == "Z" { "+00:00" } else { zone };
        format!("{date}{}{}{zone}", self.letter.unwrap_or(" "), short.unwrap_or(time))
    }
}

/// Formats a time in a zone, followed by `Z` or `+01:00`.
pub fn format_zoned(tick: i64, kind: TimeKind, offset: Option<i64>) -> String {
    let Some(offset) = offset.filter(|_| kind == TimeKind::DateTime) else { return format(tick, kind) };
    let local = format(tick.saturating_add(offset * 60 * SECOND), kind);
    match (offset.signum(), offset.abs() / 60, offset.abs() % 60) {
        (0, ..) => format!("{local}Z"),
        (sign, hours, minutes) => {
            format!("{local}{}{hours:02}:{minutes:02}", if sign < 0 { '-' } else { '+' })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_kept() {
        for text in [
            "17",
            "1949-01",
            "1949/01",
            "1949Q1",
            "1949-Q3",
            "1949-01-31",
            "1949/01/31",
            "1949-01-31 13:00:00",
            "1949-01-31 13:00",
            "1949/01/31 13:05",
            "1949-01-31T13:00:00",
            "1949-01-31T13:00:00.250000",
            "1949-01-31T13:00Z",
            "1949-01-31T13:00:00+01:00",
            "1949-01-31 13:00-05:30",
            "1949-01-31 13:00:00+00:00",
            "1949/01/31T13:00",
        ] {
            let (tick, kind, offset) = parse_zoned(text).unwrap();
            assert_eq!(TimeForm::of(text).format(tick, kind, offset), text);
        }
        let far = parse("9999-12-31T13:00").unwrap().0 + DAY;
        assert_eq!(
            TimeForm::of("9999-12-31T13:00").format(far, TimeKind::DateTime, None),
            "10000-01-01T13:00"
        );
        assert_eq!(
            TimeForm::number().format(date_of_number(19_490_131).unwrap(), TimeKind::Date, None),
            "19490131"
        );
        // Parts that the format lacks are written anyway.
        let tick = parse("1949-01-31 13:00:30").unwrap().0;
        assert_eq!(
            TimeForm::of("1949-01-31 13:00").format(tick, TimeKind::DateTime, None),
            "1949-01-31 13:00:30"
        );
        assert_eq!(
            TimeForm::of("1949Q1").format(parse("1949-02").unwrap().0, TimeKind::Month, None),
            "1949-02"
        );
    }
    use proptest::prelude::*;

    #[test]
    fn the_calendar_equals_day_by_day_counting() {
        // Reference: one day after another from 1600 to 2400.
        let mut civil = Civil { year: 1600, month: 1, day: 1 };
        let mut days = civil.days();
        assert_eq!(Civil { year: 1970, month: 1, day: 1 }.days(), 0);
        while civil.year < 2400 {
            assert_eq!((civil.days(), Civil::of_days(days)), (days, civil));
            days += 1;
            civil.day += 1;
            if civil.day > month_days(civil.year, civil.month) {
                (civil.month, civil.day) = (civil.month + 1, 1);
            }
            if civil.month > 12 {
                (civil.year, civil.month) = (civil.year + 1, 1);
            }
        }
    }

    #[test]
    fn common_formats_are_parsed() {
        let day = Civil { year: 2024, month: 2, day: 29 }.tick();
        let hour = 3600 * SECOND;
        for (text, tick, kind) in [
            ("17", 17, TimeKind::Integer),
            ("-3", -3, TimeKind::Integer),
            ("2024-02-29", day, TimeKind::Date),
            ("2024/2/29", day, TimeKind::Date),
            ("Feb 29 2024", day, TimeKind::Date),
            ("February 29, 2024", day, TimeKind::Date),
            ("2024-02", day - 28 * DAY, TimeKind::Month),
            ("2024Q1", day - 59 * DAY, TimeKind::Month),
            ("2024-02-29 13:00", day + 13 * hour, TimeKind::DateTime),
            ("2024-02-29T13:00:00Z", day + 13 * hour, TimeKind::DateTime),
            ("2024-02-29T13:00:00+01:00", day + 12 * hour, TimeKind::DateTime),
            ("2024-02-29 23:59:59.25", day + DAY - 750_000, TimeKind::DateTime),
        ] {
            assert_eq!(parse(text), Some((tick, kind)), "{text}");
        }
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in [
            "",
            "x",
            "2023-02-29",
            "2024-13-01",
            "01/02/2000",
            "23-07-19",
            "01/01/23",
            "123-01",
            "23Q1",
            "Jan 31 49",
            "2024-02-29 25:00",
            "2024-02-29 12",
            "2024-02-29 12:00:00.x",
            "2024-02 12:00",
            "2024-01-01-01",
            "1.5",
            "Fbr 1 2000",
            "Jané 1 2000",
            "é",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn integers_of_eight_digits_may_be_dates() {
        let day = Civil { year: 2024, month: 2, day: 29 }.tick();
        assert_eq!(date_of_number(20_240_229), Some(day));
        for number in [0, -20_240_229, 20_230_229, 20_241_301, 2_024_022, 120_240_229, i64::MIN, i64::MAX] {
            assert_eq!(date_of_number(number), None, "{number}");
        }
    }

    #[test]
    fn zones_are_kept() {
        for text in ["2024-01-13 12:00:00+02:00", "2024-01-13 12:00:00-03:30", "2024-01-13 12:00:00Z"] {
            let (tick, kind, offset) = parse_zoned(text).unwrap();
            assert_eq!(format_zoned(tick, kind, offset), text);
        }
        assert_eq!(parse_zoned("2024-01-13 12:00").unwrap().2, None);
    }

    #[test]
    fn monday_is_the_first_day_of_the_week() {
        assert_eq!(weekday(Civil { year: 2024, month: 1, day: 1 }.tick()), 0);
        assert_eq!(weekday(Civil { year: 1969, month: 12, day: 28 }.tick() + 5), 6);
    }

    proptest! {
        #[test]
        fn formatted_times_are_parsed_back(tick in -60_000_000_000_000_000i64..200_000_000_000_000_000) {
            prop_assert_eq!(parse(&format(tick, TimeKind::DateTime)), Some((tick, TimeKind::DateTime)));
            let day = tick.div_euclid(DAY) * DAY;
            prop_assert_eq!(parse(&format(day, TimeKind::Date)), Some((day, TimeKind::Date)));
        }

        #[test]
        fn parsing_never_panics(text in "\\PC{0,30}") {
            let _ = parse(&text);
        }
    }
}
