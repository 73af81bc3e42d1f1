//! Files of a run, and its circuit or model in other formats.

use std::path::Path as FilePath;
use std::sync::Arc;

use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse as _, Response};
use gatework_forecast::run::ForecastRun;
use gatework_logic::formats::{self, FORMATS, Format, Options, names};
use gatework_logic::{Circuit, Document};
use gatework_train::files;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Shared;
use super::problem::Problem;
use super::runs::{Kind, Run};
use crate::export;
use crate::minimize;
use crate::report::page::title_of;
use crate::subject::Subject;

/// The files of a run that are served, and their types.
const FILES: [(&str, &str); 11] = [
    ("summary.json", "application/json"),
    ("experiment.toml", "text/plain; charset=utf-8"),
    ("metrics.csv", "text/csv; charset=utf-8"),
    ("model.safetensors", "application/octet-stream"),
    ("circuit.json", "application/json"),
    ("minimized.json", "application/json"),
    ("rollout.gif", "image/gif"),
    ("loss.svg", "image/svg+xml"),
    ("gates.svg", "image/svg+xml"),
    ("forecast.svg", "image/svg+xml"),
    ("confusion.svg", "image/svg+xml"),
];

/// What a browser may do with a file of a run that it opens as a page of its own: show it.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox";

/// The circuit that `gatework minimize` writes into a run folder.
const MINIMIZED: &str = "minimized.json";

/// The circuit to export.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Which {
    /// Whether it is the minimised one.
    minimized: bool,
    /// One of its outputs: then its fan-in cone alone is exported.
    output: Option<usize>,
}

/// Returns the number of gates and the names of the outputs of the minimised circuit of a run, if it has been minimised since it was
/// trained.
pub fn minimized(run: &Run) -> Option<Value> {
    if !run.path.join(MINIMIZED).is_file() {
        return None;
    }
    let (_, document) = export::minimized(&Subject::open(&run.path).ok()?)?;
    Some(json!({ "gates": minimize::gates(&document), "outputs": names::ports(&document).outputs }))
}

/// The web page of a circuit, which is not among the formats of circuits.
const HTML: &str = "html";
/// The model of a forecaster.
const ONNX: &str = "onnx";

/// The names and sizes of the files of a run that are served, and the formats of exports.
pub fn files(run: &Run) -> Value {
    let size =
        |name: &str| run.path.join(name).metadata().ok().filter(std::fs::Metadata::is_file).map(|f| f.len());
    let files = FILES.iter().filter_map(|(name, _)| Some(json!({ "name": name, "bytes": size(name)? })));
    let files: Vec<Value> = files.collect();
    let has = |name| size(name).is_some();
    let exports: Vec<Value> = match run.kind() {
        Ok(Kind::Forecaster) if has("model.safetensors") => {
            vec![json!({ "format": ONNX, "about": "the whole forecaster, with its scaling" })]
        }
        Ok(Kind::Automaton | Kind::Classifier) if has("circuit.json") => FORMATS
            .iter()
            .filter(|format| format.can_write())
            // VHDL has no encoder and head.
            .filter(|format| format.name != "vhdl" || matches!(run.kind(), Ok(Kind::Automaton)))
            .map(|format| json!({ "format": format.name, "about": format.about }))
            .chain([json!({ "format": HTML, "about": "a web page that needs no server" })])
            .collect(),
        _ => Vec::new(),
    };
    json!({ "files": files, "exports": exports })
}

/// Sends a file of a run.
pub async fn file(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
) -> Result<Response, Problem> {
    let Path((name, file)) = path.map_err(|error| Problem::bad_request(error.to_string()))?;
    let (bytes, kind) = shared
        .work(move |shared| {
            let run = shared.runs.find(&name)?;
            let missing = || Problem::not_found(format!("run {name:?} has no file {file:?}"));
            let (file, kind) = FILES.iter().find(|(known, _)| *known == file).ok_or_else(missing)?;
            let path = run.path.join(file);
            if !is_inside(&path, &run.path) {
                return Err(missing());
            }
            Ok((files::read(&path).map_err(|_| missing())?, *kind))
        })
        .await?;
    let headers = [(header::CONTENT_TYPE, kind), (header::CONTENT_SECURITY_POLICY, POLICY)];
    Ok((headers, bytes).into_response())
}

/// Whether a file is in a folder, and not a link out of it.
fn is_inside(file: &FilePath, folder: &FilePath) -> bool {
    matches!((file.canonicalize(), folder.canonicalize()), (Ok(file), Ok(folder)) if file.starts_with(&folder))
}

/// Sends the circuit or model of a run in another format, as a download.
pub async fn export(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<(String, String)>, axum::extract::rejection::PathRejection>,
    which: Result<Query<Which>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Problem> {
    let Path((name, format)) = path.map_err(|error| Problem::bad_request(error.to_string()))?;
    let Query(which) = which.map_err(|error| Problem::query(&error))?;
    let (bytes, file) = shared
        .work(move |shared| {
            let run = shared.runs.find(&name)?;
            let (bytes, ending) = exported(&run, &format, which)?;
            let stem: String =
                name.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
            Ok((bytes, format!("attachment; filename=\"{stem}.{ending}\"")))
        })
        .await?;
    let disposition = HeaderValue::from_str(&file).unwrap_or(HeaderValue::from_static("attachment"));
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")),
        (header::CONTENT_DISPOSITION, disposition),
    ];
    Ok((headers, bytes).into_response())
}

/// The bytes of an export, and the extension of its file.
fn exported(run: &Run, format: &str, which: Which) -> Result<(Vec<u8>, &'static str), Problem> {
    let damaged = |error: &dyn std::fmt::Display| Problem::damaged(&run.name, error);
    let is_forecaster = run.kind()? == Kind::Forecaster;
    if format == ONNX || is_forecaster {
        if !is_forecaster || format != ONNX {
            let detail = "forecasters are exported to onnx, circuits to the other formats";
            return Err(Problem::unprocessable(detail));
        }
        let opened = ForecastRun::open(&run.path).map_err(|error| damaged(&error))?;
        let opened = opened.ok_or_else(|| damaged(&"it is not the run of a forecaster"))?;
        let bytes = opened.forecaster.to_onnx().map_err(|error| Problem::unprocessable(error.to_string()))?;
        return Ok((bytes, ONNX));
    }
    let known = Format::named(format).ok().filter(|format| format.can_write());
    if known.is_none() && format != HTML {
        return Err(Problem::not_found(format!("there is no export to {format:?}")));
    }
    let subject = Subject::open(&run.path).map_err(|error| damaged(&error))?;
    let document = if which.minimized {
        let missing = || Problem::conflict(format!("run {:?} has not been minimised", run.name));
        export::minimized(&subject).ok_or_else(missing)?.1
    } else {
        subject.document()
    };
    let document = match which.output {
        Some(output) => cone(&document, output)?,
        None => document,
    };
    let unprocessable = |error: &dyn std::fmt::Display| Problem::unprocessable(error.to_string());
    let Some(known) = known else {
        let page = export::page(&subject, &document, &title_of(&subject.name()));
        return Ok((page.map_err(|error| unprocessable(&error))?.into_bytes(), HTML));
    };
    let options = Options { name: Some(subject.name()), ..Options::default() };
    let bytes = formats::write(&document, known, &options).map_err(|error| unprocessable(&error))?;
    Ok((bytes, known.endings[0]))
}

/// The circuit of one output, with the names of the whole.
fn cone(document: &Document, output: usize) -> Result<Document, Problem> {
    let (circuit, ports) = (document.circuit(), names::ports(document));
    let (Some(&signal), Some(name)) = (circuit.outputs().get(output), ports.outputs.get(output)) else {
        let count = circuit.outputs().len();
        return Err(Problem::unprocessable(format!(
            "there is no output {output}: the circuit has {count}, from 0 on"
        )));
    };
    let cone = Circuit::new(circuit.inputs(), circuit.nodes().to_vec(), vec![signal]);
    let cone = cone.and_then(|cone| cone.with_names(ports.inputs, vec![name.clone()]));
    Ok(cone.map_err(|error| Problem::unprocessable(error.to_string()))?.simplify().into())
}
