//! Public holidays of countries as known-future covariates, computed by rules.
//!
//! The tables have the holidays of whole countries on their own days: not those of regions, days that make up for a holiday on a
//! weekend, or holidays of a single year.

use super::error::DataProblem;
use super::frequency::{Frequency, TimeStep};
use super::table::{Columns, Table};
use super::time::{Civil, DAY, TimeKind};

/// When a holiday is.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// On a day of the year: month and day.
    Day(u32, u32),
    /// Days after Easter Sunday.
    Easter(i64),
    /// The first weekday (0 is Monday) on or after a day of the year.
    Weekday(i64, u32, u32),
}

use Rule::{Day, Easter, Weekday};

const GOOD_FRIDAY: Rule = Easter(-2);
const EASTER_MONDAY: Rule = Easter(1);
const ASCENSION: Rule = Easter(39);
const WHIT_SUNDAY: Rule = Easter(49);
const WHIT_MONDAY: Rule = Easter(50);
const CORPUS_CHRISTI: Rule = Easter(60);
const NEW_YEAR: Rule = Day(1, 1);
const EPIPHANY: Rule = Day(1, 6);
const LABOUR_DAY: Rule = Day(5, 1);
const ASSUMPTION: Rule = Day(8, 15);
const ALL_SAINTS: Rule = Day(11, 1);
const IMMACULATE_CONCEPTION: Rule = Day(12, 8);
const CHRISTMAS: Rule = Day(12, 25);
const SECOND_CHRISTMAS_DAY: Rule = Day(12, 26);
const MIDSUMMER: Rule = Weekday(5, 6, 20);
const ALL_SAINTS_SATURDAY: Rule = Weekday(5, 10, 31);

/// A country with its holidays.
#[derive(Clone, Copy, Debug)]
pub struct Country {
    /// Its code in ISO 3166.
    code: &'static str,
    /// Holidays, each with the first and the last year of it.
    holidays: &'static [(Rule, i64, i64)],
}

/// Writes the holidays of a country: each a rule, or a rule with its first and last year.
macro_rules! country {
    ($code:literal: $($rule:expr $(, $from:literal to $until:literal)?);+) => {
        Country { code: $code, holidays: &[$(country!(@ $rule $(, $from, $until)?)),+] }
    };
    (@ $rule:expr) => { ($rule, 0, 9999) };
    (@ $rule:expr, $from:literal, $until:literal) => { ($rule, $from, $until) };
}

const COUNTRIES: &[Country] = &[
    country!("AT": NEW_YEAR; EPIPHANY; EASTER_MONDAY; LABOUR_DAY; ASCENSION; WHIT_MONDAY; CORPUS_CHRISTI; ASSUMPTION; Day(10, 26); ALL_SAINTS; IMMACULATE_CONCEPTION; CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("AU": NEW_YEAR; Day(1, 26); GOOD_FRIDAY; EASTER_MONDAY; Day(4, 25); CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("BE": NEW_YEAR; EASTER_MONDAY; LABOUR_DAY; ASCENSION; WHIT_MONDAY; Day(7, 21); ASSUMPTION; ALL_SAINTS; Day(11, 11); CHRISTMAS),
    country!("BR": NEW_YEAR; GOOD_FRIDAY; Day(4, 21); LABOUR_DAY; Day(9, 7); Day(10, 12); Day(11, 2); Day(11, 15); Day(11, 20), 2024 to 9999; CHRISTMAS),
    country!("CA": NEW_YEAR; GOOD_FRIDAY; Weekday(0, 5, 18); Day(7, 1); Weekday(0, 9, 1); Day(9, 30), 2021 to 9999; Weekday(0, 10, 8); Day(11, 11); CHRISTMAS),
    country!("CH": NEW_YEAR; ASCENSION; Day(8, 1), 1994 to 9999; CHRISTMAS),
    country!("DE": NEW_YEAR; GOOD_FRIDAY; EASTER_MONDAY; LABOUR_DAY; ASCENSION; WHIT_MONDAY; Day(10, 3), 1990 to 9999; CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("DK": NEW_YEAR; Easter(-3); GOOD_FRIDAY; Easter(0); EASTER_MONDAY; Easter(26), 0 to 2023; ASCENSION; WHIT_SUNDAY; WHIT_MONDAY; CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("ES": NEW_YEAR; EPIPHANY; GOOD_FRIDAY; LABOUR_DAY; ASSUMPTION; Day(10, 12); ALL_SAINTS; Day(12, 6), 1983 to 9999; IMMACULATE_CONCEPTION; CHRISTMAS),
    country!("FI": NEW_YEAR; EPIPHANY; GOOD_FRIDAY; Easter(0); EASTER_MONDAY; LABOUR_DAY; ASCENSION; WHIT_SUNDAY; MIDSUMMER; ALL_SAINTS_SATURDAY; Day(12, 6); CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("FR": NEW_YEAR; EASTER_MONDAY; LABOUR_DAY; Day(5, 8), 1982 to 9999; ASCENSION; WHIT_MONDAY; Day(7, 14); ASSUMPTION; ALL_SAINTS; Day(11, 11); CHRISTMAS),
    country!("GB": NEW_YEAR; GOOD_FRIDAY; EASTER_MONDAY; Weekday(0, 5, 1), 1978 to 9999; Weekday(0, 5, 25); Weekday(0, 8, 25); CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("IT": NEW_YEAR; EPIPHANY; Easter(0); EASTER_MONDAY; Day(4, 25); LABOUR_DAY; Day(6, 2), 2001 to 9999; ASSUMPTION; ALL_SAINTS; IMMACULATE_CONCEPTION; CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("NL": NEW_YEAR; Easter(0); EASTER_MONDAY; Day(4, 30), 1949 to 2013; Day(4, 27), 2014 to 9999; ASCENSION; WHIT_SUNDAY; WHIT_MONDAY; CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("NO": NEW_YEAR; Easter(-3); GOOD_FRIDAY; Easter(0); EASTER_MONDAY; LABOUR_DAY; Day(5, 17); ASCENSION; WHIT_SUNDAY; WHIT_MONDAY; CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("PL": NEW_YEAR; EPIPHANY, 2011 to 9999; Easter(0); EASTER_MONDAY; LABOUR_DAY; Day(5, 3), 1990 to 9999; WHIT_SUNDAY; CORPUS_CHRISTI; ASSUMPTION; ALL_SAINTS; Day(11, 11); Day(12, 24), 2025 to 9999; CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("PT": NEW_YEAR; GOOD_FRIDAY; Easter(0); Day(4, 25); LABOUR_DAY; CORPUS_CHRISTI, 0 to 2012; CORPUS_CHRISTI, 2016 to 9999; Day(6, 10); ASSUMPTION; Day(10, 5), 0 to 2012; Day(10, 5), 2016 to 9999; ALL_SAINTS, 0 to 2012; ALL_SAINTS, 2016 to 9999; Day(12, 1), 0 to 2012; Day(12, 1), 2016 to 9999; IMMACULATE_CONCEPTION; CHRISTMAS),
    country!("SE": NEW_YEAR; EPIPHANY; GOOD_FRIDAY; Easter(0); EASTER_MONDAY; LABOUR_DAY; ASCENSION; WHIT_SUNDAY; WHIT_MONDAY, 0 to 2004; Day(6, 6), 2005 to 9999; MIDSUMMER; ALL_SAINTS_SATURDAY; CHRISTMAS; SECOND_CHRISTMAS_DAY),
    country!("US": NEW_YEAR; Weekday(0, 1, 15), 1986 to 9999; Weekday(0, 2, 15); Weekday(0, 5, 25); Day(6, 19), 2021 to 9999; Day(7, 4); Weekday(0, 9, 1); Weekday(0, 10, 8); Day(11, 11); Weekday(3, 11, 22); CHRISTMAS),
];

impl Country {
    /// Returns the country of a code of ISO 3166, such as `DE`.
    pub fn of_code(code: &str) -> Option<Country> {
        COUNTRIES.iter().find(|country| country.code.eq_ignore_ascii_case(code)).copied()
    }

    /// Returns the codes of the known countries.
    pub fn codes() -> Vec<&'static str> {
        COUNTRIES.iter().map(|country| country.code).collect()
    }

    /// Returns its code.
    pub fn code(&self) -> &'static str {
        self.code
    }

    /// Returns whether a day is a holiday.
    pub fn is_holiday(&self, day: Civil) -> bool {
        let days = day.days();
        let is_on = |rule: &Rule| match *rule {
            Day(month, date) => (day.month, day.day) == (month, date),
            Easter(after) => easter(day.year) + after == days,
            Weekday(weekday, month, date) => {
                let first = Civil { year: day.year, month, day: date }.days();
                // 1970-01-05 was a Monday.
                first + (weekday - (first - 4)).rem_euclid(7) == days
            }
        };
        self.holidays.iter().any(|(rule, from, until)| (*from..=*until).contains(&day.year) && is_on(rule))
    }

    /// Adds the holidays to the known-future covariates of a table, up to a horizon after the last value: the number of holidays in a
    /// step, and of days before a holiday that are none themselves. Of steps shorter than a day, those of its day. A working day is
    /// before the holidays up to the next one, so that a Friday is before those of Saturday to Monday.
    pub fn add(&self, table: &mut Table, horizon: usize) -> Result<(), DataProblem> {
        if table.frequency.kind == TimeKind::Integer {
            let message = "times are integers, which have no holidays; use dates";
            return Err(DataProblem::Unreadable(message.into()));
        }
        let names = ["holiday", "day before holiday"];
        let Columns { past, future, fixed } = &table.columns;
        let is_known =
            |name: &&&str| [past, future, fixed].into_iter().flatten().any(|known| known == **name);
        if let Some(name) = names.iter().find(is_known) {
            return Err(DataProblem::ColumnTwice { name: (*name).to_string() });
        }
        let (frequency, width) = (table.frequency, table.columns.future.len());
        for series in &mut table.series {
            let rows = series.future.len().checked_div(width).unwrap_or(0);
            let count = rows.max(series.values.len() + horizon);
            let mut extended = Vec::with_capacity(count * (width + names.len()));
            let mut from = series.time(&frequency, 0);
            for row in 0..count {
                match series.future.get(row * width..(row + 1) * width) {
                    Some(known) => extended.extend_from_slice(known),
                    None => extended.extend(std::iter::repeat_n(f64::NAN, width)),
                }
                let to = series.time(&frequency, row + 1);
                extended
                    .extend(from.zip(to).map_or([0.0; 2], |(from, to)| self.in_step(&frequency, from, to)));
                from = to;
            }
            series.future = extended;
        }
        table.columns.future.extend(names.map(str::to_string));
        Ok(())
    }

    /// Returns the number of holidays in a step, and of days before a holiday.
    fn in_step(&self, frequency: &Frequency, from: i64, to: i64) -> [f64; 2] {
        let is_holiday = |day: &i64| self.is_holiday(Civil::of_days(*day));
        let first = from.div_euclid(DAY);
        if frequency.step == TimeStep::Weekdays {
            let is_before =
                !is_holiday(&first) && (first + 1..=to.div_euclid(DAY)).any(|day| is_holiday(&day));
            return [is_holiday(&first), is_before].map(|is_one| f64::from(u8::from(is_one)));
        }
        let days = || first..=(to - 1).div_euclid(DAY);
        let is_before = |day: &i64| !is_holiday(day) && is_holiday(&(day + 1));
        [days().filter(is_holiday).count() as f64, days().filter(is_before).count() as f64]
    }
}

/// Returns Easter Sunday of the Gregorian calendar, in days since 1970-01-01 (the algorithm of Meeus, Jones and Butcher).
fn easter(year: i64) -> i64 {
    let a = year.rem_euclid(19);
    let (b, c) = (year.div_euclid(100), year.rem_euclid(100));
    let g = (8 * b + 13) / 25;
    let h = (19 * a + b - b / 4 - g + 15).rem_euclid(30);
    let l = (32 + 2 * (b % 4) + 2 * (c / 4) - h - c % 4).rem_euclid(7);
    let m = (a + 11 * h + 19 * l) / 433;
    let month = (h + l - 7 * m + 90) / 25;
    let day = (h + l - 7 * m + 33 * month + 19).rem_euclid(32);
    Civil { year, month: month as u32, day: day as u32 }.days()
}

#[cfg(test)]
mod tests {
    use super::super::time;
    use super::*;

    fn day(text: &str) -> Civil {
        Civil::of_tick(time::parse(text).unwrap().0)
    }

    #[test]
    fn movable_holidays_are_on_their_published_days() {
        for text in
            ["1961-04-02", "2000-04-23", "2008-03-23", "2011-04-24", "2024-03-31", "2025-04-20", "2038-04-25"]
        {
            assert_eq!(Civil::of_days(easter(day(text).year)), day(text), "{text}");
        }
        for (code, holidays, other) in [
            ("US", ["2024-11-28", "2023-05-29", "2022-01-17", "2021-06-19"], "2020-06-19"),
            ("GB", ["2024-05-06", "2024-05-27", "2024-08-26", "2024-03-29"], "2024-05-01"),
            ("DE", ["2024-05-09", "2024-05-20", "2024-10-03", "2024-12-26"], "1989-10-03"),
            ("SE", ["2024-06-22", "2024-11-02", "2024-06-06", "2024-05-19"], "2024-06-21"),
            ("CA", ["2024-05-20", "2024-10-14", "2024-09-02", "2024-07-01"], "2024-05-27"),
            ("NL", ["2013-04-30", "2014-04-27", "2024-05-19", "2024-12-25"], "2014-04-30"),
            ("PL", ["2024-05-30", "2024-11-11", "2011-01-06", "2025-12-24"], "2010-01-06"),
        ] {
            let country = Country::of_code(code).unwrap();
            for text in holidays {
                assert!(country.is_holiday(day(text)), "{code} {text}");
            }
            assert!(!country.is_holiday(day(other)), "{code} {other}");
        }
        assert!(Country::of_code("fr").is_some() && Country::of_code("XX").is_none());
    }

    #[test]
    fn steps_of_any_length_have_the_holidays_within_them() {
        let holidays = |frequency: &str, start: &str, count: usize| -> Vec<f64> {
            let mut table = Table::from_series(frequency, [("a", start, vec![1.0; count - 2])]).unwrap();
            Country::of_code("DE").unwrap().add(&mut table, 2).unwrap();
            assert_eq!(table.columns.future, ["holiday", "day before holiday"]);
            assert_eq!(table.check(), Ok(()));
            table.series[0].future.iter().step_by(2).copied().collect()
        };
        assert_eq!(holidays("D", "2024-12-23", 6), [0.0, 0.0, 1.0, 1.0, 0.0, 0.0]);
        assert_eq!(holidays("W", "2024-12-16", 4), [0.0, 2.0, 1.0, 0.0]);
        assert_eq!(holidays("M", "2024-04", 4), [1.0, 3.0, 0.0, 0.0]);
        assert_eq!(holidays("B", "2024-12-24", 4), [0.0, 1.0, 1.0, 0.0]);
        let hours = holidays("h", "2024-12-24 22:00", 30);
        assert_eq!((hours[1], hours[2], hours[29]), (0.0, 1.0, 1.0));
    }

    #[test]
    fn tables_without_dates_have_no_holidays() {
        let mut table = Table::from_series("1", [("a", "1", vec![1.0; 9])]).unwrap();
        let error = Country::of_code("US").unwrap().add(&mut table, 2).unwrap_err();
        assert!(error.to_string().contains("integers, which have no holidays"));
    }

    #[test]
    fn holidays_that_were_abolished_or_suspended_are_on_their_years_only() {
        for (code, holidays, others) in [
            ("SE", ["2004-05-31", "1990-06-04"], ["2005-05-16", "2024-05-20"]),
            ("PT", ["2012-12-01", "2016-12-01"], ["2013-12-01", "2015-12-01"]),
            ("PT", ["2012-06-07", "2016-05-26"], ["2013-05-30", "2014-06-19"]),
            ("PT", ["2012-10-05", "2016-11-01"], ["2014-10-05", "2013-11-01"]),
        ] {
            let country = Country::of_code(code).unwrap();
            for text in holidays {
                assert!(country.is_holiday(day(text)), "{code} {text}");
            }
            for text in others {
                assert!(!country.is_holiday(day(text)), "{code} {text}");
            }
        }
    }

    #[test]
    fn a_friday_is_before_the_holidays_up_to_monday() {
        let before = |code: &str, frequency: &str, start: &str| -> Vec<f64> {
            let mut table = Table::from_series(frequency, [("a", start, vec![1.0; 4])]).unwrap();
            Country::of_code(code).unwrap().add(&mut table, 1).unwrap();
            table.series[0].future.iter().skip(1).step_by(2).copied().collect()
        };
        // Whit Monday, and Independence Day on a Saturday.
        assert_eq!(before("DE", "B", "2024-05-16"), [0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(before("US", "B", "2020-07-02"), [0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(before("DE", "B", "2024-04-29"), [0.0, 1.0, 0.0, 0.0, 0.0]);
        assert_eq!(before("DE", "D", "2024-05-17"), [0.0, 0.0, 1.0, 0.0, 0.0]);
    }

    #[test]
    fn columns_of_the_file_stay_beside_the_holidays() {
        let series = [("a", "2024-12-23", vec![1.0; 4]), ("b", "2024-12-25", vec![1.0; 2])];
        let prices = [("b", vec![5.0; 4]), ("a", vec![7.0; 4])];
        let table = Table::from_series("D", series).unwrap();
        let mut with = table.with_future_covariate("price", prices).unwrap();
        Country::of_code("DE").unwrap().add(&mut with, 1).unwrap();
        assert_eq!(with.columns.future, ["price", "holiday", "day before holiday"]);
        let [a, b] = [0, 1].map(|series: usize| with.series[series].future.as_slice());
        assert_eq!(a[..12], [7., 0., 0., 7., 0., 1., 7., 1., 0., 7., 1., 0.]);
        // There is no price for the horizon.
        assert!(a[12].is_nan() && a[13..] == [0., 0.], "{a:?}");
        assert_eq!(b, [5., 1., 0., 5., 1., 0., 5., 0., 0., 5., 0., 0.]);
        let again = Country::of_code("DE").unwrap().add(&mut with, 1).unwrap_err();
        assert_eq!(again, DataProblem::ColumnTwice { name: "holiday".into() });
    }
}
