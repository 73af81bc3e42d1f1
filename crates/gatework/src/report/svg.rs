//! The SVG that the plots share: one look (system font, thin lines, a light and a dark colour set, a background of
//! its own), and text that cannot break the markup. Coordinates are pixels from the top left.

use std::fmt::{Display, Write};

/// Light colours first; the same classes again for readers in dark mode.
const STYLE: &str = include_str!("plot.css");

/// The classes of lines that stand for one thing each, in the order in which they are used.
pub(super) const SERIES: [&str; 6] = ["soft", "hard", "green", "violet", "gold", "rose"];

/// The longest title that fits a picture, in characters.
const MAX_TITLE: usize = 80;

/// A position in pixels from the top left: x, y.
pub(super) type Point = (f64, f64);

/// An SVG picture under construction.
pub(super) struct Svg {
    /// The elements so far.
    text: String,
}

impl Svg {
    /// A picture of `width x height` pixels with a background and a title at the top left.
    pub(super) fn new(width: f64, height: f64, title: &str) -> Self {
        let (width, height) = (number(width), number(height));
        let title = escape(&shorten(title, MAX_TITLE));
        let mut svg = Self { text: String::new() };
        svg.push(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\">"
        ));
        svg.push(format_args!("<title>{title}</title>"));
        svg.push(format_args!("<style>{}</style>", STYLE.replace('\n', "")));
        svg.push(format_args!("<rect class=\"background\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>"));
        svg.push(format_args!("<text class=\"title\" x=\"24\" y=\"34\">{title}</text>"));
        svg
    }

    /// Writes an element on a line of its own.
    fn push(&mut self, element: impl Display) {
        // Writing to a string does not fail.
        let _ = writeln!(self.text, "{element}");
    }

    /// Text whose baseline starts (or, by class, ends or is centred) at (x, y).
    pub(super) fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let (x, y, text) = (number(x), number(y), escape(text));
        self.push(format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{text}</text>"));
    }

    /// A picture of hard-edged pixels at an address, which is a data URL.
    pub(super) fn picture(&mut self, corner: (f64, f64), size: (f64, f64), address: &str) {
        let ((x, y), (width, height)) = (corner, size);
        let [x, y, width, height] = [x, y, width, height].map(number);
        self.push(format_args!(
            "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" \
             style=\"image-rendering:pixelated\" href=\"{}\"/>",
            escape(address)
        ));
    }

    /// A bold name followed by a grey value.
    pub(super) fn name_and_value(&mut self, x: f64, y: f64, name: &str, value: &str) {
        let (x, y, name, value) = (number(x), number(y), escape(name), escape(value));
        self.push(format_args!(
            "<text x=\"{x}\" y=\"{y}\"><tspan class=\"strong\">{name}</tspan>\
             <tspan class=\"muted\" dx=\"6\">{value}</tspan></text>"
        ));
    }

    /// A straight line.
    pub(super) fn line(&mut self, class: &str, from: Point, to: Point) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(number);
        self.push(format_args!("<path class=\"{class}\" d=\"M{x1} {y1}L{x2} {y2}\"/>"));
    }

    /// A rectangle with corners rounded by `radius`.
    pub(super) fn rect(&mut self, class: &str, corner: (f64, f64), size: (f64, f64), radius: f64) {
        let [x, y, width, height, radius] = [corner.0, corner.1, size.0, size.1, radius].map(number);
        self.push(format_args!(
            "<rect class=\"{class}\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"{radius}\"/>"
        ));
    }

    /// A disc.
    pub(super) fn dot(&mut self, class: &str, centre: Point, radius: f64) {
        let [x, y, radius] = [centre.0, centre.1, radius].map(number);
        self.push(format_args!("<circle class=\"{class}\" cx=\"{x}\" cy=\"{y}\" r=\"{radius}\"/>"));
    }

    /// Lines through the points of each stroke, as one path; a stroke of one point becomes a dot.
    pub(super) fn strokes(&mut self, class: &str, width: f64, strokes: &[Vec<Point>]) {
        let mut path = String::new();
        for stroke in strokes {
            if let [point] = stroke[..] {
                self.dot(&format!("{class}-fill"), point, width * 1.75);
                continue;
            }
            for (i, &(x, y)) in stroke.iter().enumerate() {
                let _ = write!(path, "{}{} {}", if i == 0 { 'M' } else { 'L' }, number(x), number(y));
            }
        }
        if !path.is_empty() {
            let width = number(width);
            self.push(format_args!("<path class=\"line {class}\" stroke-width=\"{width}\" d=\"{path}\"/>"));
        }
    }

    /// The area between two lines that run from left to right, `share` opaque.
    pub(super) fn area(&mut self, class: &str, share: f64, low: &[Point], high: &[Point]) {
        let mut path = String::new();
        for (i, &(x, y)) in low.iter().chain(high.iter().rev()).enumerate() {
            let _ = write!(path, "{}{} {}", if i == 0 { 'M' } else { 'L' }, number(x), number(y));
        }
        if !path.is_empty() {
            self.push(format_args!("<path class=\"{class}\" opacity=\"{share:.2}\" d=\"{path}Z\"/>"));
        }
    }

    /// The whole picture.
    pub(super) fn finish(mut self) -> String {
        self.push("</svg>");
        self.text
    }
}

/// A coordinate with at most one decimal; numbers that are not finite become 0, so that the picture stays readable.
fn number(value: f64) -> String {
    let tenths = if value.is_finite() { (value * 10.0).round() } else { 0.0 };
    if tenths % 10.0 == 0.0 { format!("{:.0}", tenths / 10.0 + 0.0) } else { format!("{:.1}", tenths / 10.0) }
}

/// An upper estimate of the width of a text in pixels: it depends on the reader's font, whose digits are at most 7.6 wide
/// in common fonts.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * 7.7
}

/// At most `most` characters of `text`, the last an ellipsis if some were left out.
pub(super) fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(1)).chain(['…']).collect()
}

/// Text for element content or attribute values. Characters that XML 1.0 does not allow become U+FFFD.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Asserts what every picture must hold: tags balance, attributes are quoted, no number is NaN or infinite. Returns
/// the text between tags, for tests that look for labels.
#[cfg(test)]
pub(super) fn assert_well_formed(svg: &str) -> String {
    let (mut open, mut text, mut rest) = (Vec::new(), String::new(), svg);
    while let Some((before, after)) = rest.split_once('<') {
        assert!(!before.contains('>'), "a stray > in {before:?}");
        text.push_str(before);
        let (tag, after) = after.split_once('>').expect("a tag that never closes");
        rest = after;
        let name = tag.trim_matches('/').split(' ').next().unwrap_or_default();
        assert!(tag.matches('"').count().is_multiple_of(2), "an open quote in <{tag}>");
        for word in ["NaN", "inf", "e-", "e+"] {
            assert!(
                name == "svg" || !tag.contains(&format!("\"{word}")) && !tag.contains(&format!("{word} "))
            );
        }
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes another element");
        } else if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "left open: {open:?}");
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "a number that is none");
    for entity in text.split('&').skip(1) {
        let name = entity.split(';').next().unwrap_or_default();
        assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "&{name}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_break_the_markup() {
        let mut svg = Svg::new(10.0, 10.0, "</title><script>\"&'\u{0}\u{ffff}");
        svg.text("muted", f64::NAN, f64::INFINITY, "a<b & c>d\n");
        let text = assert_well_formed(&svg.finish());
        assert!(text.contains("&lt;/title&gt;&lt;script&gt;&quot;&amp;&#39;\u{fffd}\u{fffd}"));
        assert!(text.contains("a&lt;b &amp; c&gt;d "));
    }

    #[test]
    fn coordinates_are_short_and_finite() {
        assert_eq!([1.0, 1.25, -0.01, f64::NAN, 99.96].map(number), ["1", "1.3", "0", "0", "100"]);
    }

    #[test]
    fn long_text_ends_in_an_ellipsis() {
        assert_eq!(shorten("pass-through", 6), "pass-…");
        assert_eq!(shorten("AND", 6), "AND");
        assert_eq!(shorten("αβγ", 2), "α…");
    }
}
