//! Formats of dates that a file declares, as in `strftime`: `%d/%m/%Y`, `%m/%d/%y %I:%M %p`; and quarters, weeks of ISO 8601
//! and seconds since 1970: `Q%q %Y`, `%G-W%V`, `%s`.

use std::fmt::Write as _;

use super::time::{Civil, DAY, MONTHS, SECOND, TimeKind, month_days, weekday};

/// The most parts of a format.
const MAX_PARTS: usize = 24;

/// A part of a format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Part {
    #[default]
    None,
    Literal(char),
    Year,
    ShortYear,
    Month,
    MonthName,
    ShortMonthName,
    Day,
    Hour,
    HourOf12,
    HalfOfDay,
    Minute,
    Second,
    Quarter,
    IsoYear,
    IsoWeek,
    UnixSeconds,
    UnixMilliseconds,
}

/// The letters of the parts.
const LETTERS: [(char, Part); 17] = [
    ('Y', Part::Year),
    ('y', Part::ShortYear),
    ('m', Part::Month),
    ('B', Part::MonthName),
    ('b', Part::ShortMonthName),
    ('d', Part::Day),
    ('H', Part::Hour),
    ('I', Part::HourOf12),
    ('p', Part::HalfOfDay),
    ('M', Part::Minute),
    ('S', Part::Second),
    ('q', Part::Quarter),
    ('G', Part::IsoYear),
    ('V', Part::IsoWeek),
    ('s', Part::UnixSeconds),
    ('Q', Part::UnixMilliseconds),
    ('%', Part::Literal('%')),
];

/// The format of the dates of a file. Numbers may be written with or without leading zeros; years of two digits are those
/// from 1970 to 2069.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DateFormat {
    parts: [Part; MAX_PARTS],
    length: usize,
}

impl DateFormat {
    /// Parses a format of `%Y` or `%y`, `%m`, `%b`, `%B` or `%q` (the quarter), `%d`, `%H` or `%I` with `%p`, `%M`, `%S`, `%%` and
    /// other characters; or of `%G` and `%V` (the week of ISO 8601), `%s` (seconds since 1970) or `%Q` (milliseconds).
    /// `None` if a letter is unknown, or if it has no year or no month.
    pub fn new(text: &str) -> Option<DateFormat> {
        let mut format = DateFormat { parts: [Part::None; MAX_PARTS], length: 0 };
        let mut characters = text.trim().chars();
        while let Some(c) = characters.next() {
            let part = if c == '%' {
                let letter = characters.next()?;
                LETTERS.iter().find(|(known, _)| *known == letter)?.1
            } else {
                Part::Literal(c)
            };
            *format.parts.get_mut(format.length)? = part;
            format.length += 1;
        }
        let has = |part: Part| format.parts.contains(&part);
        let year = has(Part::Year) || has(Part::ShortYear);
        let month =
            (has(Part::Month) || has(Part::MonthName) || has(Part::ShortMonthName)) != has(Part::Quarter);
        let week = has(Part::IsoYear) && has(Part::IsoWeek) && !year && !month && !has(Part::Quarter);
        let unix = format.length == 1 && (has(Part::UnixSeconds) || has(Part::UnixMilliseconds));
        (unix || (year && month || week) && (has(Part::HourOf12) == has(Part::HalfOfDay))).then_some(format)
    }

    fn parts(&self) -> &[Part] {
        &self.parts[..self.length]
    }

    /// Returns the kind of its times.
    pub fn kind(&self) -> TimeKind {
        let has = |part: Part| self.parts().contains(&part);
        let clock = [Part::Hour, Part::HourOf12, Part::UnixSeconds, Part::UnixMilliseconds];
        match (clock.into_iter().any(has), has(Part::Day) || has(Part::IsoWeek)) {
            (true, _) => TimeKind::DateTime,
            (false, true) => TimeKind::Date,
            (false, false) => TimeKind::Month,
        }
    }

    /// Parses a time as a tick; `None` if it does not have this format, or is not a day of the calendar.
    pub fn parse(&self, text: &str) -> Option<i64> {
        let mut rest = text.trim();
        let (mut year, mut month, mut day) = (0, 0, 1);
        let (mut hour, mut minute, mut second, mut afternoon) = (0, 0, 0, None);
        let (mut week, mut unix) = (None, None);
        for part in self.parts() {
            match part {
                Part::None => {}
                Part::Literal(' ') => {
                    let trimmed = rest.trim_start();
                    if trimmed.len() == rest.len() {
                        return None;
                    }
                    rest = trimmed;
                }
                Part::Literal(c) => rest = rest.strip_prefix(*c)?,
                Part::Year | Part::IsoYear => year = number(&mut rest, 4, 4)?,
                Part::ShortYear => {
                    let short = number(&mut rest, 2, 2)?;
                    year = if short < 70 { 2000 + short } else { 1900 + short };
                }
                Part::Month => month = number(&mut rest, 1, 2)?,
                Part::MonthName | Part::ShortMonthName => {
                    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
                    let (name, after) = rest.split_at(end);
                    let name = name.to_ascii_lowercase();
                    let is_named = |month: &&str| name.len() >= 3 && month.starts_with(&name);
                    month = MONTHS.iter().position(is_named)? as i64 + 1;
                    rest = after.strip_prefix('.').unwrap_or(after);
                }
                Part::Day => day = number(&mut rest, 1, 2)?,
                Part::Hour | Part::HourOf12 => hour = number(&mut rest, 1, 2)?,
                Part::Minute => minute = number(&mut rest, 2, 2)?,
                Part::Second => second = number(&mut rest, 2, 2)?,
                Part::Quarter => month = 3 * number(&mut rest, 1, 1).filter(|q| (1..=4).contains(q))? - 2,
                Part::IsoWeek => week = Some(number(&mut rest, 1, 2)?),
                Part::UnixSeconds => unix = Some(number(&mut rest, 1, 12)? * SECOND),
                Part::UnixMilliseconds => unix = Some(number(&mut rest, 1, 15)? * (SECOND / 1000)),
                Part::HalfOfDay => {
                    let half = rest.get(..2)?.to_ascii_lowercase();
                    afternoon = Some(match half.as_str() {
                        "am" => false,
                        "pm" => true,
                        _ => return None,
                    });
                    rest = &rest[2..];
                }
            }
        }
        if let Some(afternoon) = afternoon {
            if !(1..=12).contains(&hour) {
                return None;
            }
            hour = hour % 12 + if afternoon { 12 } else { 0 };
        }
        if unix.is_some() {
            return unix.filter(|_| rest.is_empty());
        }
        let within = (hour * 3600 + minute * 60 + second) * SECOND;
        if let Some(week) = week {
            let monday = first_monday(year) + 7 * (week - 1);
            let fits =
                week >= 1 && monday < first_monday(year + 1) && hour < 24 && minute < 60 && second < 60;
            return (fits && rest.is_empty()).then_some(monday * DAY + within);
        }
        let month = u32::try_from(month).ok().filter(|month| (1..=12).contains(month))?;
        let day = u32::try_from(day).ok().filter(|day| (1..=month_days(year, month)).contains(day))?;
        if !rest.is_empty() || hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        Some(Civil { year, month, day }.tick() + within)
    }

    /// Formats a tick.
    pub fn format(&self, tick: i64) -> String {
        let Civil { year, month, day } = Civil::of_tick(tick);
        let seconds = tick.rem_euclid(DAY) / SECOND;
        let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
        let name = MONTHS[month as usize - 1];
        let capital = |name: &str| format!("{}{}", name[..1].to_ascii_uppercase(), &name[1..]);
        let (iso_year, week) = iso_week(tick);
        let mut text = String::new();
        for part in self.parts() {
            let _ = match part {
                Part::None => Ok(()),
                Part::Literal(c) => write!(text, "{c}"),
                Part::Year => write!(text, "{year:04}"),
                Part::ShortYear => write!(text, "{:02}", year.rem_euclid(100)),
                Part::Month => write!(text, "{month:02}"),
                Part::MonthName => write!(text, "{}", capital(name)),
                Part::ShortMonthName => write!(text, "{}", capital(&name[..3])),
                Part::Day => write!(text, "{day:02}"),
                Part::Hour => write!(text, "{hour:02}"),
                Part::HourOf12 => write!(text, "{:02}", (hour + 11) % 12 + 1),
                Part::HalfOfDay => write!(text, "{}", if hour < 12 { "AM" } else { "PM" }),
                Part::Minute => write!(text, "{minute:02}"),
                Part::Second => write!(text, "{second:02}"),
                Part::Quarter => write!(text, "{}", month.div_ceil(3)),
                Part::IsoYear => write!(text, "{iso_year:04}"),
                Part::IsoWeek => write!(text, "{week:02}"),
                Part::UnixSeconds => write!(text, "{}", tick.div_euclid(SECOND)),
                Part::UnixMilliseconds => write!(text, "{}", tick.div_euclid(SECOND / 1000)),
            };
        }
        text
    }
}

impl std::fmt::Display for DateFormat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for part in self.parts() {
            match (part, LETTERS.iter().find(|(_, known)| known == part)) {
                (_, Some((letter, _))) => write!(f, "%{letter}")?,
                (Part::Literal(c), None) => write!(f, "{c}")?,
                (_, None) => {}
            }
        }
        Ok(())
    }
}

/// Returns the day of the Monday of the first week of a year: the week with 4 January.
fn first_monday(year: i64) -> i64 {
    let fourth = Civil { year, month: 1, day: 4 }.days();
    fourth - weekday(fourth * DAY)
}

/// Returns the year and the number of the week of a tick, by ISO 8601.
fn iso_week(tick: i64) -> (i64, i64) {
    let day = tick.div_euclid(DAY);
    let year = Civil::of_tick(tick).year;
    let year = (year - 1..=year + 1).rev().find(|year| first_monday(*year) <= day).unwrap_or(year);
    (year, (day - first_monday(year)) / 7 + 1)
}

/// Parses a number of `least` to `most` digits at the beginning of a text, and removes it.
fn number(text: &mut &str, least: usize, most: usize) -> Option<i64> {
    let digits = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    if digits < least {
        return None;
    }
    let (number, rest) = text.split_at(digits);
    *text = rest;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::time;
    use proptest::prelude::*;

    fn read(format: &str, text: &str) -> Option<String> {
        let format = DateFormat::new(format).unwrap();
        format.parse(text).map(|tick| time::format(tick, TimeKind::DateTime))
    }

    #[test]
    fn quarters_weeks_and_seconds_are_read_and_written() {
        for (format, text, expected) in [
            ("Q%q %Y", "Q3 2015", "2015-07-01 00:00:00"),
            ("%Y%m", "201502", "2015-02-01 00:00:00"),
            // 2020 has 53 weeks, and its first begins in 2019.
            ("%G-W%V", "2020-W01", "2019-12-30 00:00:00"),
            ("%G-W%V", "2020-W53", "2020-12-28 00:00:00"),
            ("%GW%V", "2021W01", "2021-01-04 00:00:00"),
            ("%s", "1672531200", "2023-01-01 00:00:00"),
            ("%Q", "1672531260000", "2023-01-01 00:01:00"),
        ] {
            assert_eq!(read(format, text).as_deref(), Some(expected), "{format}");
            let format = DateFormat::new(format).unwrap();
            assert_eq!(format.format(format.parse(text).unwrap()), text);
        }
        for (format, text) in
            [("Q%q %Y", "Q5 2015"), ("%G-W%V", "2021-W53"), ("%G-W%V", "2021-W00"), ("%s", "12a")]
        {
            assert_eq!(read(format, text), None, "{text}");
        }
        assert!(["%V", "%G", "%q", "%s %Y", "%Y-%V"].iter().all(|text| DateFormat::new(text).is_none()));
    }

    #[test]
    fn dates_are_read_as_declared() {
        for (format, text, expected) in [
            ("%d/%m/%Y", "01/02/2023", "2023-02-01 00:00:00"),
            ("%m/%d/%Y", "1/2/2023", "2023-01-02 00:00:00"),
            ("%d.%m.%y", "31.12.99", "1999-12-31 00:00:00"),
            ("%d.%m.%y", "01.01.69", "2069-01-01 00:00:00"),
            ("%d-%b-%Y", "29-FEB-2024", "2024-02-29 00:00:00"),
            ("%b %Y", "Sept 2024", "2024-09-01 00:00:00"),
            ("%B %d, %Y", "March 5, 2024", "2024-03-05 00:00:00"),
            ("%m/%d/%Y %I:%M %p", "1/2/2023 12:05 AM", "2023-01-02 00:05:00"),
            ("%m/%d/%Y %I:%M:%S %p", "1/2/2023  1:05:07 PM", "2023-01-02 13:05:07"),
            ("%Y%m%d%H", "2023010213", "2023-01-02 13:00:00"),
        ] {
            assert_eq!(read(format, text).as_deref(), Some(expected), "{format} {text}");
        }
        for (format, text) in [
            ("%d/%m/%Y", "13/13/2023"),
            ("%d/%m/%Y", "29/02/2023"),
            ("%d/%m/%Y", "1/2/23"),
            ("%d/%m/%Y", "1/2/2023 "),
            ("%d/%m/%Y", "1/2/2023x"),
            ("%m/%d/%Y %I:%M %p", "1/2/2023 13:05 PM"),
            ("%m/%d/%Y %I:%M %p", "1/2/2023 1:05 é"),
            ("%b %Y", "Foo 2024"),
            ("%H:%M %d.%m.%Y", "24:00 1.1.2023"),
        ] {
            let expected = (text == "1/2/2023 ").then(|| "2023-02-01 00:00:00".to_string());
            assert_eq!(read(format, text), expected, "{format} {text}");
        }
    }

    #[test]
    fn formats_need_a_year_and_a_month() {
        for wrong in ["", "%d/%m", "%Y", "%q/%m/%Y", "%m/%Y %I:%M", "%m/%Y%", &"%m%Y-".repeat(20)] {
            assert_eq!(DateFormat::new(wrong), None, "{wrong}");
        }
        let kind = |text: &str| DateFormat::new(text).unwrap().kind();
        assert_eq!(
            ["%m/%Y", "%d/%m/%Y", "%d/%m/%Y %H:%M"].map(kind),
            [TimeKind::Month, TimeKind::Date, TimeKind::DateTime]
        );
    }

    proptest! {
        #[test]
        fn formatted_dates_are_parsed_back(seconds in 0i64..3_000_000_000, which in 0usize..4) {
            let texts = ["%d/%m/%Y %H:%M:%S", "%m-%d-%y %I:%M:%S %p", "%B %d, %Y %H.%M.%S", "%d%%%b%%%Y %S %M %H"];
            let format = DateFormat::new(texts[which]).unwrap();
            prop_assert_eq!(format.to_string(), texts[which]);
            let tick = seconds * SECOND;
            prop_assert_eq!(format.parse(&format.format(tick)), Some(tick));
        }

        #[test]
        fn parsing_never_panics(format in "[%dmYbpIHMS/ é]{0,12}", text in "\\PC{0,20}") {
            if let Some(format) = DateFormat::new(&format) {
                let _ = format.parse(&text);
            }
        }
    }
}
