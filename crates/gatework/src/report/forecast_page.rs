//! The report of an automatic forecast as a self-contained web page: charts of all series with zoom, what was chosen and why,
//! and what is remarkable about the data.

use std::collections::HashMap;
use std::fmt::Write as _;

use gatework_forecast::automatic::{AutomaticForecast, CandidateScore, GroupChoice};
use gatework_forecast::data::{Table, time};
use serde_json::{Value, json};

use super::page::{document, fill};
use super::svg::escape;
use crate::number::{column, measured, percent};

const BODY: &str = include_str!("forecast_page.html");
const SCRIPT: &str = include_str!("forecast_page.js");
/// The style of all pages, and what this one adds.
const STYLES: [&str; 2] = [include_str!("page.css"), include_str!("forecast_page.css")];

/// The most values of all histories on the page; of longer ones the end is shown.
const MAX_VALUES: usize = 400_000;
/// The most series on the page.
const MAX_SERIES: usize = 1000;

/// Returns the report of a forecast of a table. `notes` says how the file was read.
#[must_use]
pub fn forecast_page(title: &str, notes: &[String], table: &Table, result: &AutomaticForecast) -> String {
    let shown = result.forecasts.len().min(MAX_SERIES);
    let longest = MAX_VALUES / shown.max(1);
    let data = page_data(table, result, shown, longest).to_string().replace('<', "\\u003c");
    let horizon = result.forecasts.first().map_or(0, |forecast| forecast.values.len());
    let about =
        format!("{} series, {horizon} steps ahead (frequency {})", result.forecasts.len(), table.frequency);
    let values = [
        ("choice", choice(result)),
        ("data", data_section(notes, table, result, shown, longest)),
        ("json", data),
    ];
    let body = fill(BODY, &values.each_ref().map(|(name, value)| (*name, value.as_str())));
    document(title, &about, &STYLES.concat(), &body, SCRIPT)
}

/// The data for the script of the page.
fn page_data(table: &Table, result: &AutomaticForecast, shown: usize, longest: usize) -> Value {
    let mut times: Vec<Vec<String>> = Vec::new();
    let mut known: HashMap<(i64, usize), usize> = HashMap::new();
    let mut all = Vec::new();
    for (forecast, chosen) in result.forecasts.iter().zip(&result.series).take(shown) {
        let Some(series) = table.find(&forecast.id) else { continue };
        let end = series.values.iter().rposition(|value| !value.is_nan()).map_or(0, |last| last + 1);
        let begin = end.saturating_sub(longest);
        let first = series.time(&table.frequency, begin).unwrap_or(0);
        let count = end - begin + forecast.values.len();
        let number = *known.entry((first, count)).or_insert_with(|| {
            let label = |place: usize| {
                let tick = series.time(&table.frequency, begin + place);
                tick.map_or_else(String::new, |tick| time::format(tick, table.frequency.kind))
            };
            times.push((0..count).map(label).collect());
            times.len() - 1
        });
        let history: Vec<Option<f64>> =
            series.values[begin..end].iter().map(|x| x.is_finite().then_some(*x)).collect();
        let finite = || history.iter().flatten().copied();
        let (low, high) = finite().fold((f64::MAX, f64::MIN), |(low, high), x| (low.min(x), high.max(x)));
        let intervals: Vec<Value> = forecast
            .intervals
            .iter()
            .map(|interval| json!({ "level": interval.level, "low": interval.low, "high": interval.high }))
            .collect();
        let score = if chosen.score.is_finite() {
            format!("; mean error {} of the seasonal change", measured(chosen.score))
        } else {
            String::new()
        };
        let about = format!("{}: {}{score}", chosen.group.name(), chosen.fitted.join("; "));
        all.push(json!({
            "id": forecast.id, "times": number, "history": history, "forecast": forecast.values,
            "intervals": intervals, "range": if high > low { high - low } else { 0.0 }, "about": about,
        }));
    }
    json!({ "times": times, "series": all })
}

/// What was chosen for each group, and the scores of all candidates.
fn choice(result: &AutomaticForecast) -> String {
    let (count, step) = result.origins;
    let mut html = format!(
        "    <p>Every model forecast from up to {count} earlier points of time, {} apart, having seen only the values before \
         them. The error is the mean absolute error, as a share of the mean change from season to season (MASE; the root \
         mean squared error for intermittent series): lower is better. That of the choice is measured on four parts of time, each with \
         an ensemble that was chosen on the other parts.</p>\n",
        if step == 1 { "one step".to_string() } else { format!("{step} steps") }
    );
    for group in &result.groups {
        html.push_str(&group_section(group, &result.candidates));
    }
    html
}

fn group_section(group: &GroupChoice, candidates: &[CandidateScore]) -> String {
    let members = group.members.join(", ");
    let how = if group.combination == "alone" {
        format!("{members} alone is clearly the best.")
    } else {
        format!("The {} of {members}.", group.combination)
    };
    let mut html = format!(
        "    <h3>{} {} series</h3>\n    <p>{}{}</p>\n",
        group.series,
        group.group.name(),
        escape(&how),
        if group.score.is_finite() {
            format!(" Error {} over {} forecasts.", measured(group.score), group.windows)
        } else {
            " Too short to compare models on them.".to_string()
        }
    );
    for coverage in &group.coverage {
        let _ = writeln!(
            html,
            "    <p>Intervals of {} % that were calibrated on the earlier half of these forecasts contained {:.0} % of \
             the values of the later half.</p>",
            percent(coverage.level),
            100.0 * coverage.covered
        );
    }
    if !group.score.is_finite() {
        return html;
    }
    let reference =
        candidates.iter().zip(&group.scores).find(|(candidate, _)| candidate.name == "seasonal naive");
    let reference = reference.map_or(f64::NAN, |(_, score)| *score);
    let mut rows: Vec<(&CandidateScore, f64)> = candidates.iter().zip(group.scores.iter().copied()).collect();
    rows.sort_by(|a, b| {
        (a.1.is_nan(), a.1).partial_cmp(&(b.1.is_nan(), b.1)).unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut errors: Vec<f64> = vec![group.score];
    errors.extend(rows.iter().map(|(_, score)| *score));
    let texts = column(&errors, 3);
    html.push_str("    <div class=\"scroll\"><table>\n    <tr><th>model</th><th>error</th><th>vs seasonal naive</th><th>time</th><th class=\"text\"></th></tr>\n");
    let relative = |score: f64| {
        let share = 100.0 * (score / reference - 1.0);
        if share.is_finite() { format!("{share:+.0} %") } else { "–".into() }
    };
    let _ = writeln!(
        html,
        "    <tr class=\"chosen\"><td>chosen</td><td>{}</td><td>{}</td><td></td><td class=\"text\"></td></tr>",
        texts[0],
        relative(group.score)
    );
    for ((candidate, score), text) in rows.iter().zip(&texts[1..]) {
        let class = if group.members.contains(&candidate.name) {
            " class=\"chosen\""
        } else if score.is_nan() {
            " class=\"out\""
        } else {
            ""
        };
        let about = match candidate.left_out {
            Some(reason) => reason,
            None if score.is_nan() => "not for these series",
            None => candidate.about,
        };
        let _ = writeln!(
            html,
            "    <tr{class}><td>{}</td><td>{}</td><td>{}</td><td>{:.1} s</td><td class=\"text\">{}</td></tr>",
            escape(&candidate.name),
            if score.is_nan() { "–" } else { text },
            relative(*score),
            candidate.elapsed.as_secs_f64(),
            escape(about)
        );
    }
    html.push_str("    </table></div>\n");
    html
}

/// How the file was read, and what is remarkable about the series.
fn data_section(
    notes: &[String],
    table: &Table,
    result: &AutomaticForecast,
    shown: usize,
    longest: usize,
) -> String {
    let mut html = String::from("    <ul class=\"notes\">\n");
    let mut item = |text: &str| {
        let _ = writeln!(html, "    <li>{}</li>", escape(text));
    };
    for note in notes {
        item(note);
    }
    let seasons: Vec<String> = result.seasons.iter().map(|season| measured(*season)).collect();
    item(&if seasons.is_empty() {
        "no season".into()
    } else {
        format!("seasons of {} steps", seasons.join(", "))
    });
    if !result.covariates.is_empty() {
        item(&format!("used, as it is known in advance: {}", result.covariates.join(", ")));
    }
    if shown < result.forecasts.len() {
        item(&format!("this page shows the first {shown} series"));
    }
    if table.series.iter().any(|series| series.values.len() > longest) {
        item(&format!("this page shows the last {longest} values of each series"));
    }
    html.push_str("    </ul>\n    <div class=\"scroll\"><table>\n    <tr><th>series</th><th>values</th><th>filled gaps</th><th>zeros</th><th>outliers</th><th>error</th><th class=\"text\">fitted</th></tr>\n");
    for (number, series) in result.series.iter().take(shown).enumerate() {
        let quality = &series.quality;
        let _ = writeln!(
            html,
            "    <tr data-series=\"{number}\"><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"text\">{}</td></tr>",
            escape(&series.id),
            quality.values,
            quality.filled,
            quality.zeros,
            if quality.constant { "constant".to_string() } else { quality.outliers.len().to_string() },
            if series.score.is_finite() { measured(series.score) } else { "–".into() },
            escape(&series.fitted.join("; "))
        );
    }
    html.push_str("    </table></div>\n");
    html
}

#[cfg(test)]
mod tests {
    use super::super::page::tests::{dump, element};
    use super::*;
    use gatework_forecast::automatic::Automatic;

    fn page() -> String {
        let values = |phase: u32| (0..90).map(|i| f64::from((i + phase) % 7) * 10.0 + 1.0 / 3.0).collect();
        let names = ["north", "</script><b>&\"south\""];
        let series = names.iter().zip(0..).map(|(id, phase)| (*id, "2024-01-01", values(phase)));
        let table = Table::from_series("D", series).unwrap();
        let result = Automatic::new(7).networks(false).forecast(&table).unwrap();
        forecast_page("sales <1>", &["a <note>".into()], &table, &result)
    }

    #[test]
    fn the_page_is_self_contained_and_escaped() {
        let page = page();
        for part in [
            "sales &lt;1&gt;",
            "a &lt;note&gt;",
            "\\u003c/script>\\u003cb>&",
            "&lt;/script&gt;&lt;b&gt;&amp;",
        ] {
            assert!(page.contains(part), "{part}");
        }
        for foreign in ["<b>", "http:", "https:", "src=", "@import", "url(", "{{"] {
            assert!(!page.contains(foreign), "{foreign}");
        }
        assert!(page.contains("What was chosen") && page.contains("seasons of 7 steps"));
    }

    #[test]
    fn in_chromium_the_chosen_series_is_drawn() {
        let folder = tempfile::tempdir().unwrap();
        let Some(document) = dump(folder.path(), &page(), "") else { return };
        assert_eq!(document.matches("<option value=").count(), 2);
        assert_eq!(document.matches("<canvas").count(), 3);
        let numbers = element(&document, "numbers");
        assert!(numbers.is_empty() || numbers.contains("time"), "{numbers}");
        assert!(document.contains("2024-03-31"), "the first step of the forecast is listed");
        assert!(element(&document, "about-series").starts_with("regular: "));
    }
}
