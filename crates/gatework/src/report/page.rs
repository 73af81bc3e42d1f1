//! An automaton as a web page: one HTML file that contains the rule as a WebAssembly module and needs no network. Visitors play,
//! step, draw, damage and look at hidden channels. `document.html` is the frame of all
//! exported pages, `page.html` what is shown, `page.css` the style and `page.js` the script; `serve` shows the same parts.
//!
//! The page understands `#step=N` in its address (show step N of the start state, paused), `all` (the mosaic of all
//! live channels), `marks` (mark the cells that differ from the target) and `check` (write the observed channels as 0 and 1 into the document, which the tests read).

use base64::prelude::{BASE64_STANDARD, Engine as _};
use gatework_gates::automata::experiment::AutomatonExperiment;
use gatework_gates::automata::states::{Bitmap, Start, Target};
use gatework_logic::formats::wasm::{WasmError, automaton_to_wasm};
use gatework_logic::{Automaton, Simulator};
use serde_json::{Value, json};

use super::svg::escape;

/// A page that needs no other file: the frame of all exported pages.
pub(super) const DOCUMENT: &str = include_str!("document.html");
const BODY: &str = include_str!("page.html");
/// The style of all pages.
pub(crate) const STYLE: &str = include_str!("page.css");
/// The script of the pages of automata.
pub(crate) const SCRIPT: &str = include_str!("page.js");

/// The largest side of the initial grid; visitors can choose a larger one.
const LARGEST_SIDE: usize = 2048;

/// The content of a page.
#[derive(Clone, Debug)]
pub struct Page<'a> {
    /// The heading.
    pub title: &'a str,
    /// One line below the heading.
    pub about: &'a str,
    /// The rule.
    pub automaton: &'a Automaton,
    /// The number of observed channels; these are the first ones.
    pub observed: usize,
    /// The start state.
    pub start: Start,
    /// Height and width of the grid.
    pub size: [usize; 2],
    /// The fraction of cells that update in a step; `None` means all.
    pub fire_rate: Option<f32>,
    /// Height and width of the grid that the rule was trained on, and the steps on it: what the film strip shows.
    pub trained: ([usize; 2], usize),
    /// The step at which the animation pauses.
    pub pause_at: Option<usize>,
    /// The binary logarithm of the steps per second.
    pub speed: u8,
    /// The colour of each number whose binary digits are the observed channels; empty if these are ink or red, green and blue.
    pub palette: Vec<[u8; 3]>,
    /// The picture that the cells should show, in the middle of the grid.
    pub target: Option<&'a Bitmap>,
}

impl<'a> Page<'a> {
    /// Describes a rule without an experiment: random cells on a 64x64 grid.
    pub fn new(title: &'a str, automaton: &'a Automaton, observed: usize) -> Page<'a> {
        Page {
            title,
            about: "A learned circuit, applied to every cell.",
            automaton,
            observed: observed.clamp(1, automaton.channels.max(1)),
            start: Start::Random,
            size: [64, 64],
            trained: ([64, 64], 32),
            fire_rate: None,
            pause_at: None,
            speed: 4,
            palette: Vec::new(),
            target: None,
        }
    }

    /// Takes description, start state and fire rate from an experiment. A picture grows on the grid of training and
    /// pauses when it is complete; a pattern gets a grid of at least 64x64.
    #[must_use]
    pub fn trained_as(mut self, loaded: &'a AutomatonExperiment) -> Page<'a> {
        let experiment = &loaded.experiment;
        if !experiment.about.is_empty() {
            self.about = &experiment.about;
        }
        self.start = experiment.start.clone();
        self.fire_rate = experiment.automaton.fire_rate;
        self.palette = loaded.target.palette();
        self.trained = (experiment.automaton.grid, experiment.automaton.steps);
        if let Target::Picture(picture) = &loaded.target {
            self.target = Some(picture);
            self.size = experiment.automaton.grid;
            self.pause_at = Some(experiment.automaton.steps);
            self.speed = 2;
        } else {
            self.size = experiment.automaton.grid.map(|side| side.max(64));
        }
        self
    }

    /// Returns the HTML file.
    pub fn html(&self) -> Result<String, WasmError> {
        Ok(document(self.title, self.about, STYLE, &self.body()?, SCRIPT))
    }

    /// Returns what the page shows below its heading, with the rule and its data, but without style and script.
    pub(crate) fn body(&self) -> Result<String, WasmError> {
        let module = automaton_to_wasm(self.automaton, self.observed)?;
        let rule = self.rule()?.to_string().replace('<', "\\u003c");
        Ok(fill(BODY, &[("rule", &rule), ("module", &BASE64_STANDARD.encode(&module))]))
    }

    /// Returns the data for the script of the page.
    fn rule(&self) -> Result<Value, WasmError> {
        let simulator = Simulator::new(self.automaton, self.observed)?;
        let live = simulator.live().iter().enumerate().filter(|(_, live)| **live);
        let start = match &self.start {
            Start::Seed => json!({ "kind": "seed" }),
            Start::Zeros => json!({ "kind": "zeros" }),
            Start::Grids { grids } => {
                let rows = |grid: &String| -> Vec<String> {
                    grid.lines().map(|line| line.trim_end().to_string()).filter(|l| !l.is_empty()).collect()
                };
                match grids.first().map(rows).filter(|rows| !rows.is_empty()) {
                    Some(rows) => json!({ "kind": "grid", "rows": rows }),
                    None => json!({ "kind": "zeros" }),
                }
            }
            _ => json!({ "kind": "random" }),
        };
        let target = self.target.map(|picture| {
            let [rows, columns] = picture.size();
            json!({ "rows": rows, "columns": columns, "codes": picture.codes() })
        });
        Ok(json!({
            "channels": self.automaton.channels,
            "observed": self.observed,
            "live": live.map(|(channel, _)| channel).collect::<Vec<_>>(),
            "gates": self.automaton.gates(self.observed),
            "boundary": self.automaton.boundary,
            "start": start,
            "height": self.size[0].clamp(1, LARGEST_SIDE),
            "width": self.size[1].clamp(1, LARGEST_SIDE),
            "fire_rate": self.fire_rate.filter(|rate| *rate < 1.0),
            "grid": self.trained.0.map(|side| side.max(1)),
            "steps": self.trained.1,
            "pause_at": self.pause_at,
            "speed": self.speed,
            "palette": self.palette,
            "target": target,
        }))
    }
}

/// Returns the name of an experiment as a title: `colored-g` is "Colored G".
pub fn title_of(name: &str) -> String {
    let word = |word: &str| {
        let mut letters = word.chars();
        letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
    };
    let words: Vec<String> = name.split(['-', '_', ' ']).filter(|part| !part.is_empty()).map(word).collect();
    if words.is_empty() { name.to_string() } else { words.join(" ") }
}

/// Returns an HTML file with a heading and one line below it.
pub(super) fn document(title: &str, about: &str, style: &str, body: &str, script: &str) -> String {
    let (title, about) = (escape(title), escape(about));
    let values =
        [("title", &*title), ("about", &about), ("style", style), ("body", body), ("script", script)];
    fill(DOCUMENT, &values)
}

/// Fills a template with a value for each `{{name}}`. Values are not expanded again, so they may contain anything.
pub(crate) fn fill(template: &str, values: &[(&str, &str)]) -> String {
    let mut text = String::with_capacity(template.len() + values.iter().map(|(_, v)| v.len()).sum::<usize>());
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        text.push_str(before);
        let (name, after) = after.split_once("}}").unwrap_or((after, ""));
        text.push_str(values.iter().find(|(known, _)| *known == name).map_or("", |(_, value)| value));
        rest = after;
    }
    text + rest
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use gatework_logic::{Boundary, Circuit, Gate, Grid, Node, naive_step};
    use gatework_train::random::{Purpose, Random};
    use std::io::Write as _;
    use std::path::Path;
    use std::process::Command;

    /// A rule of three channels: each mixes its own cells with those of the next one.
    fn stirred(boundary: Boundary) -> Automaton {
        let mut nodes = Vec::new();
        for channel in 0..3 {
            let (own, next) = (9 * channel, 9 * ((channel + 1) % 3));
            let first = 27 + nodes.len() as u32;
            nodes.push(Node::new(Gate::XOR, own + channel, own + 5));
            nodes.push(Node::new(Gate::A_OR_NOT_B, next + 7, own + 3));
            nodes.push(Node::new(Gate::XNOR, first, first + 1));
        }
        Automaton::new(3, boundary, Circuit::new(27, nodes, vec![29, 32, 35]).unwrap()).unwrap()
    }

    fn mix(mut x: u32) -> u32 {
        x = (x ^ x >> 16).wrapping_mul(0x85eb_ca6b);
        x = (x ^ x >> 13).wrapping_mul(0xc2b2_ae35);
        x ^ x >> 16
    }

    /// Reference implementation of the random start of the page.
    fn random_grid(height: usize, width: usize, channels: usize) -> Grid {
        let mut grid = Grid::new(1, height, width, channels).unwrap();
        for channel in 0..channels {
            let key = mix(mix(1).wrapping_add(channel as u32));
            for cell in 0..height * width {
                let bit = mix(key.wrapping_add(cell as u32)) >> 31 == 1;
                grid.set(0, channel, cell / width, cell % width, bit);
            }
        }
        grid
    }

    /// The leading channels of a grid as the page writes them.
    fn text(grid: &Grid, observed: usize) -> String {
        let cell = |channel: usize, i: usize| grid.get(0, channel, i / grid.width(), i % grid.width());
        let line = |channel| (0..grid.cells()).map(|i| if cell(channel, i) { '1' } else { '0' }).collect();
        (0..observed).map(line).collect::<Vec<String>>().join("\n")
    }

    /// Returns the document after Chromium has run a page. `None`, with a message, if Chromium is not installed.
    pub fn dump(folder: &Path, page: &str, fragment: &str) -> Option<String> {
        std::fs::write(folder.join("page.html"), page).unwrap();
        let profile = folder.join("profile");
        let url = format!("file://{}#{fragment}", folder.join("page.html").display());
        let output = Command::new("chromium")
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args(["--virtual-time-budget=2000", "--dump-dom"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg(url)
            .output();
        match output {
            Ok(output) => Some(String::from_utf8_lossy(&output.stdout).into_owned()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                // The test harness captures eprintln! and shows it for failures only.
                let _ = writeln!(std::io::stderr(), "skipped: chromium is not installed");
                let required = std::env::var("GATEWORK_JUDGES").is_ok_and(|value| value == "required");
                assert!(!required, "chromium is required but not installed");
                None
            }
            Err(error) => panic!("chromium: {error}"),
        }
    }

    pub fn element<'a>(document: &'a str, id: &str) -> &'a str {
        let (_, rest) = document.split_once(&format!("id=\"{id}\"")).expect("the element is there");
        let (_, rest) = rest.split_once('>').unwrap();
        rest.split_once("</").unwrap().0
    }

    #[test]
    fn in_chromium_the_cells_are_those_of_the_naive_twin() {
        let folder = tempfile::tempdir().unwrap();
        let grids = Start::Grids { grids: vec![".RG\nYB.\n##0\n".into()] };
        for (boundary, size, observed, start) in [
            (Boundary::Torus, [11, 130], 3, Start::Random),
            (Boundary::Zeros, [9, 20], 1, Start::Seed),
            (Boundary::Torus, [12, 17], 3, grids),
        ] {
            let automaton = stirred(boundary);
            let mut grid = match start {
                Start::Random => random_grid(size[0], size[1], 3),
                _ => Grid::new(1, size[0], size[1], 3).unwrap(),
            };
            if start != Start::Random {
                start.fill(&mut grid, &mut Random::new(1, Purpose::Check, 0)).unwrap();
            }
            let page = Page { start, size, ..Page::new("stirred", &automaton, observed) };
            let Some(document) = dump(folder.path(), &page.html().unwrap(), "step=5&check") else {
                return;
            };
            for _ in 0..5 {
                grid = naive_step(&automaton, &grid).unwrap();
            }
            assert_eq!(element(&document, "check"), text(&grid, observed), "{boundary:?} {size:?}");
            assert_eq!(element(&document, "step-count"), "5");
            assert_eq!(element(&document, "status"), "", "no error is shown");
        }
    }

    #[test]
    fn in_chromium_people_draw_erase_damage_step_and_reset() {
        // Every cell keeps its bits, so that only the pointer changes them.
        let rule = Circuit::new(18, vec![], vec![4, 13]).unwrap();
        let automaton = Automaton::new(2, Boundary::Zeros, rule).unwrap();
        let page = Page { size: [30, 40], start: Start::Zeros, ..Page::new("still", &automaton, 2) };
        let visitor = include_str!("page_visitor.js");
        let html = page.html().unwrap().replace("</body>", &format!("<script>{visitor}</script></body>"));
        let folder = tempfile::tempdir().unwrap();
        let Some(document) = dump(folder.path(), &html, "step=0") else {
            return;
        };
        let expected = "a dot 1 2|a line 9 18|erased 0 16|damaged 5 5|stepped 2|reset 0|playing true|\
                        not while typing true|one channel 0 1|typed 1 1 2|resized 7 1 1 7|too large 7 1";
        assert_eq!(element(&document, "check"), expected);
    }

    #[test]
    fn words_cannot_break_the_page() {
        let automaton = stirred(Boundary::Torus);
        let grids = vec!["</script><script>alert(1)</script>".to_string()];
        let page = Page {
            about: "a & b {{module}} <!--",
            start: Start::Grids { grids },
            ..Page::new("<img src=x> {{rule}}", &automaton, 1)
        };
        let html = page.html().unwrap();
        assert!(html.contains("<h1>&lt;img src=x&gt; {{rule}}</h1>"));
        assert!(html.contains("<p>a &amp; b {{module}} &lt;!--</p>"));
        assert!(html.contains(r"\u003c/script>\u003cscript>alert(1)"));
        let count = |text: &str| text.matches("</script>").count();
        assert_eq!(count(&html), count(DOCUMENT) + count(BODY));
    }

    #[test]
    fn a_page_loads_nothing() {
        let automaton = stirred(Boundary::Torus);
        let html = Page::new("x", &automaton, 1).html().unwrap();
        for word in ["http:", "https:", "src=", "href=", "fetch(", "import(", "@import", "url("] {
            assert!(!html.contains(word), "{word}");
        }
    }

    #[test]
    fn an_experiment_says_how_its_page_begins() {
        let automaton = stirred(Boundary::Torus);
        let page = |name| {
            let loaded = AutomatonExperiment::find(name).unwrap();
            Page::new("x", &automaton, 1).trained_as(&loaded).rule().unwrap()
        };
        let (lizard, life) = (page("lizard"), page("game-of-life"));
        assert_eq!(
            (&lizard["start"]["kind"], &lizard["height"], &lizard["pause_at"]),
            (&json!("seed"), &json!(20), &json!(12))
        );
        assert_eq!(
            (&lizard["target"]["rows"], lizard["target"]["codes"].as_array().unwrap().len()),
            (&json!(20), 400)
        );
        assert!(life["target"].is_null());
        assert_eq!(
            (&life["start"]["kind"], &life["height"], &life["pause_at"]),
            (&json!("random"), &json!(64), &Value::Null)
        );
        let rate = page("checkerboard-async")["fire_rate"].as_f64().unwrap();
        assert!((rate - 0.6).abs() < 1e-6);
    }
}
