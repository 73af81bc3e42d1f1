//! The pages for people. The parts of a page that show an automaton or a classifier are those of the exported pages; what is new
//! here is the frame around them, the lists, the charts and the drawing board.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse as _, Response};
use gatework_logic::formats::names;
use serde_json::{Value, json};

use super::Shared;
use super::api::{self, Name};
use super::problem::Problem;
use super::runs::Kind;
use crate::report::page::{self, Page, fill};
use crate::report::{CLASSIFIER_SCRIPT, CLASSIFIER_STYLE, classifier_body, escape};
use crate::subject::Subject;

const TEMPLATE: &str = include_str!("assets/frame.html");
const HOME: &str = include_str!("assets/home.html");
const RUN: &str = include_str!("assets/run.html");
const TRAIN: &str = include_str!("assets/train.html");
const COMPARE: &str = include_str!("assets/compare.html");
const SIGN_IN: &str = include_str!("assets/sign-in.html");
const FORECAST: &str = include_str!("assets/forecast.html");

/// The files that pages load, and their types.
const ASSETS: [(&str, &str, &[&str]); 11] = [
    ("page.css", "text/css", &[page::STYLE, CLASSIFIER_STYLE, include_str!("assets/serve.css")]),
    ("page.js", "text/javascript", &[page::SCRIPT]),
    ("classifier.js", "text/javascript", &[CLASSIFIER_SCRIPT]),
    ("shared.js", "text/javascript", &[include_str!("assets/shared.js")]),
    ("home.js", "text/javascript", &[include_str!("assets/home.js")]),
    ("circuit.js", "text/javascript", &[include_str!("assets/circuit.js")]),
    ("run.js", "text/javascript", &[include_str!("assets/run.js")]),
    ("train.js", "text/javascript", &[include_str!("assets/train.js")]),
    ("compare.js", "text/javascript", &[include_str!("assets/compare.js")]),
    ("forecast.js", "text/javascript", &[include_str!("assets/forecast.js")]),
    ("sign-in.js", "text/javascript", &[include_str!("assets/sign-in.js")]),
];

/// What a page is filled with.
struct Frame<'a> {
    title: &'a str,
    about: &'a str,
    body: &'a str,
    scripts: &'a [&'a str],
}

impl Frame<'_> {
    fn response(&self) -> Response {
        let script = |name: &&str| format!("<script src=\"/assets/{name}\"></script>\n");
        let scripts: String = self.scripts.iter().map(script).collect();
        let (title, about) = (escape(self.title), escape(self.about));
        let values = [("title", &*title), ("about", &about), ("body", self.body), ("scripts", &scripts)];
        ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], fill(TEMPLATE, &values)).into_response()
    }
}

/// A value as JSON that can stand inside a script element.
fn data(value: &Value) -> String {
    value.to_string().replace('<', "\\u003c")
}

/// The list of runs. The page has it from the beginning, and follows its changes.
pub async fn home(State(shared): State<Arc<Shared>>) -> Response {
    let runs = shared.work(|shared| Ok(api::list(shared))).await.unwrap_or_else(|_| json!({ "runs": [] }));
    let about = "What was learned here, and what is being learned.";
    let body = fill(HOME, &[("runs", &data(&runs))]);
    Frame { title: "Runs", about, body: &body, scripts: &["shared.js", "home.js"] }.response()
}

pub async fn train() -> Response {
    let about = "Draw a picture and grow it from one cell, or train one of the built-in experiments.";
    Frame { title: "Train", about, body: TRAIN, scripts: &["shared.js", "train.js"] }.response()
}

pub async fn compare() -> Response {
    let about = "Losses over each other, and the settings that differ.";
    Frame { title: "Compare", about, body: COMPARE, scripts: &["shared.js", "compare.js"] }.response()
}

pub async fn sign_in() -> Response {
    let about = "This server asks for a token.";
    Frame { title: "Sign in", about, body: SIGN_IN, scripts: &["sign-in.js"] }.response()
}

/// The page of a run.
pub async fn run(State(shared): State<Arc<Shared>>, Name(name): Name) -> Response {
    let made = shared.work(move |shared| {
        let run = api::detail(shared, &name)?;
        // A run whose model cannot be shown is still described.
        let (model, error) = match model(shared, &name, &run) {
            Ok(model) => (model, None),
            Err(problem) => (ModelPart::default(), Some(problem.detail())),
        };
        Ok((run, model, error))
    });
    match made.await {
        Ok((run, model, error)) => {
            let title = run["name"].as_str().unwrap_or_default();
            let about = run["about"].as_str().unwrap_or_default();
            let given = data(&json!({ "run": run, "error": error, "outputs": model.outputs }));
            // A page has one main part: the model, if there is one.
            let (open, close) = if model.html.is_empty() {
                ("<main", "</main>")
            } else {
                ("<section aria-label=\"About the run\"", "</section>")
            };
            let values = [("model", &*model.html), ("open", open), ("close", close), ("run", &given)];
            let scripts = [&["shared.js"][..], &model.scripts, &["circuit.js", "run.js"]].concat();
            Frame { title, about, body: &fill(RUN, &values), scripts: &scripts }.response()
        }
        Err(problem) => problem_page(&problem),
    }
}

/// What is shown in place of a page.
fn problem_page(problem: &Problem) -> Response {
    let title = problem.status.canonical_reason().unwrap_or("Error");
    let body = "<main class=\"wide\"><p class=\"card\"><a href=\"/\">All runs</a></p></main>";
    let mut response = Frame { title, about: &problem.detail(), body, scripts: &["shared.js"] }.response();
    *response.status_mut() = problem.status;
    response
}

/// A path that does not exist: a page for people, JSON for programs.
pub async fn not_found(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let accept = headers.get(header::ACCEPT).map_or(&b""[..], |accept| accept.as_bytes());
    if shared.page && accept.starts_with(b"text/html") {
        return problem_page(&Problem::not_found("nothing is at this address"));
    }
    Problem::not_found("nothing is here; GET /openapi.json lists all paths").into_response()
}

/// The part of a page that shows the model of a run.
#[derive(Default)]
struct ModelPart {
    html: String,
    scripts: Vec<&'static str>,
    /// The names of the outputs of the circuit.
    outputs: Vec<String>,
}

fn model(shared: &Shared, name: &str, about: &Value) -> Result<ModelPart, Problem> {
    if about["state"] != "finished" {
        return Ok(ModelPart::default());
    }
    let run = shared.runs.find(name)?;
    let damaged = |error: &dyn std::fmt::Display| Problem::damaged(name, error);
    match run.kind()? {
        Kind::Automaton => {
            let subject = Subject::open(&run.path).map_err(|error| damaged(&error))?;
            let automaton = subject.automaton().map_err(|error| damaged(&error))?;
            let page = Page::new("", automaton, subject.observed);
            let page = match &subject.loaded {
                Some(loaded) => page.trained_as(loaded),
                None => page,
            };
            let html = page.body().map_err(|error| damaged(&error))?;
            Ok(ModelPart {
                html,
                scripts: vec!["page.js"],
                outputs: names::ports(&subject.document()).outputs,
            })
        }
        Kind::Classifier => {
            let subject = Subject::open(&run.path).map_err(|error| damaged(&error))?;
            let classifier = subject.classifier.as_ref().ok_or_else(|| damaged(&"it has no classifier"))?;
            let html = classifier_body(classifier).map_err(|error| damaged(&error))?;
            Ok(ModelPart {
                html,
                scripts: vec!["classifier.js"],
                outputs: names::ports(&subject.document()).outputs,
            })
        }
        Kind::Forecaster => {
            Ok(ModelPart { html: FORECAST.to_string(), scripts: vec!["forecast.js"], outputs: Vec::new() })
        }
    }
}

/// A file that pages load.
pub async fn asset(
    file: Result<Path<String>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Problem> {
    let Path(file) = file.map_err(|error| Problem::bad_request(error.to_string()))?;
    let found = ASSETS.iter().find(|(name, ..)| *name == file);
    let (_, kind, parts) = found.ok_or_else(|| Problem::not_found(format!("there is no file {file:?}")))?;
    let kind = [(header::CONTENT_TYPE, format!("{kind}; charset=utf-8"))];
    Ok((kind, parts.concat()).into_response())
}
