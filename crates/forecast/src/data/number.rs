//! Numbers as people write them: decimal commas, grouped thousands, currencies and percent signs.

use serde::{Deserialize, Serialize};

/// The decimal separator of a file. If it is declared, thousands may be grouped, and currency and percent signs are ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Decimal {
    /// `1,234.5`
    #[serde(rename = ".")]
    Point,
    /// `1.234,5`
    #[serde(rename = ",")]
    Comma,
}

/// Characters around a number that do not change its value.
const SIGNS: &[char] = &['$', '€', '£', '¥', '₹', '%', ' ', '\u{a0}', '\u{202f}'];

impl Decimal {
    /// Returns the separator.
    pub fn separator(self) -> char {
        match self {
            Decimal::Point => '.',
            Decimal::Comma => ',',
        }
    }

    /// Parses a number. Thousands are grouped by the other separator, a space or an apostrophe; groups have three digits. A number
    /// in parentheses is negative, as in accounting.
    pub fn parse(self, text: &str) -> Option<f64> {
        let text = text.trim_matches(SIGNS);
        let (text, mut negative) = match text.strip_prefix('(').and_then(|text| text.strip_suffix(')')) {
            Some(inner) => (inner, true),
            None => (text, false),
        };
        let text = text.trim_matches(SIGNS);
        let unsigned = text.strip_prefix(['-', '\u{2212}', '+']);
        negative ^= unsigned.is_some() && !text.starts_with('+');
        let text = unsigned.unwrap_or(text).trim_start_matches(SIGNS);
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(place) => text.split_at(place),
            None => (text, ""),
        };
        let (whole, fraction) = mantissa.split_once(self.separator()).unwrap_or((mantissa, ""));
        let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
        let grouped = ['.', ',', ' ', '\u{a0}', '\u{202f}', '\'', '\u{2019}']
            .into_iter()
            .find(|c| *c != self.separator() && whole.contains(*c));
        if let Some(separator) = grouped {
            let mut groups = whole.split(separator);
            let first = groups.next()?;
            if !(1..=3).contains(&first.len()) || !groups.all(|group| group.len() == 3 && digits(group)) {
                return None;
            }
        }
        let whole: String = whole.chars().filter(|c| Some(*c) != grouped).collect();
        if !digits(&whole) || !digits(fraction) || whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let value: f64 = format!("{whole}.{fraction}{exponent}").parse().ok()?;
        Some(if negative { -value } else { value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_read_as_people_write_them() {
        for (text, value) in [
            ("1,234", 1234.0),
            ("$0", 0.0),
            ("$ 1,234,567.89", 1_234_567.89),
            ("-€5.50", -5.5),
            ("$-3", -3.0),
            ("(12.5)", -12.5),
            ("12 %", 12.0),
            ("1 234.5", 1234.5),
            ("1'234", 1234.0),
            ("+7", 7.0),
            (".5", 0.5),
            ("1e3", 1000.0),
            ("1.5E-2", 0.015),
        ] {
            assert_eq!(Decimal::Point.parse(text), Some(value), "{text}");
        }
        for (text, value) in [("0,5", 0.5), ("1.234,5", 1234.5), ("1.234", 1234.0), ("-1 234,5 €", -1234.5)]
        {
            assert_eq!(Decimal::Comma.parse(text), Some(value), "{text}");
        }
        for text in
            ["", "$", "0,5", "1,23,456", "12,3456", "1.2.3", "x", "1,234x", "--1", "1e", "NaN", "inf", ","]
        {
            assert_eq!(Decimal::Point.parse(text), None, "{text}");
        }
        assert_eq!(Decimal::Comma.parse("0.5"), None);
    }

    proptest! {
        #[test]
        fn plain_numbers_keep_their_value(value in -1e9f64..1e9) {
            prop_assert_eq!(Decimal::Point.parse(&value.to_string()), Some(value));
            prop_assert_eq!(Decimal::Comma.parse(&value.to_string().replace('.', ",")), Some(value));
        }

        #[test]
        fn parsing_never_panics(text in "[-+0-9.,'e()$€% é]{0,14}") {
            for decimal in [Decimal::Point, Decimal::Comma] {
                prop_assert!(decimal.parse(&text).is_none_or(|x| !x.is_nan()));
            }
        }
    }
}
