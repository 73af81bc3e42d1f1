//! The JSON interface: runs, predictions, trainings.

use std::sync::Arc;

use axum::body::{Bytes, to_bytes};
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Shared;
use super::forecasts::{Place, Wanted};
use super::models::Model;
use super::problem::Problem;
use super::{openapi, train};

/// The format of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Media {
    Json,
    Csv,
}

/// The body of a request, received within the limits.
pub struct Body {
    pub media: Media,
    pub bytes: Bytes,
}

impl FromRequest<Arc<Shared>> for Body {
    type Rejection = Problem;

    async fn from_request(request: Request, shared: &Arc<Shared>) -> Result<Body, Problem> {
        let kind =
            request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
        let media = match kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase().as_str() {
            "application/json" => Media::Json,
            "text/csv" => Media::Csv,
            _ => {
                let detail = "the Content-Type must be application/json or text/csv";
                return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
            }
        };
        let limit = shared.limits.body;
        let too_large = || {
            let detail = format!("the body is larger than {limit} bytes; send fewer rows in a request");
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        };
        let length = request.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        if length.and_then(|length| length.parse::<u64>().ok()).is_some_and(|length| length > limit as u64) {
            return Err(too_large());
        }
        match tokio::time::timeout(shared.limits.receive, to_bytes(request.into_body(), limit)).await {
            Ok(Ok(bytes)) => Ok(Body { media, bytes }),
            // The body ended early, or exceeds the limit.
            Ok(Err(_)) => Err(too_large()),
            Err(_) => {
                let seconds = shared.limits.receive.as_secs_f64();
                let detail = format!("the body did not arrive within {seconds} s");
                Err(Problem::new(StatusCode::REQUEST_TIMEOUT, detail))
            }
        }
    }
}

/// The name of a run in the path of a request.
pub struct Name(pub String);

impl FromRequestParts<Arc<Shared>> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Name, Problem> {
        let path = Path::<String>::from_request_parts(parts, shared).await;
        path.map(|Path(name)| Name(name)).map_err(|error| Problem::bad_request(error.to_string()))
    }
}

/// Parses JSON; the error names line and column.
pub fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(bytes)
        .map_err(|error| Problem::bad_request(format!("the body is not as expected: {error}")))
}

/// A JSON response.
pub fn json_response(bytes: impl Into<axum::body::Body>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], bytes.into()).into_response()
}

pub async fn health() -> Response {
    json_response(json!({ "status": "ok" }).to_string())
}

pub async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], shared.metrics.text()).into_response()
}

pub async fn openapi() -> Response {
    json_response(openapi::document().to_string())
}

/// The list of all runs.
pub async fn runs(State(shared): State<Arc<Shared>>) -> Result<Response, Problem> {
    let runs = shared.work(|shared| Ok(list(shared))).await?;
    Ok(json_response(runs.to_string()))
}

/// What the list of runs shows.
pub fn list(shared: &Shared) -> Value {
    let mut runs: Vec<Value> = shared.runs.all().iter().map(super::runs::Run::describe).collect();
    // A training that was just started, or failed at once, has no folder.
    for job in shared.trainings.all() {
        if let Some(run) = runs.iter_mut().find(|run| run["name"] == job["name"]) {
            follow(run, job);
        } else if job["is_running"] == true {
            runs.push(json!({ "name": job["name"], "state": "training", "training": job }));
        }
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run["modified"].as_u64().unwrap_or(u64::MAX)));
    json!({ "runs": runs })
}

/// Everything that is known of a run.
pub async fn run(State(shared): State<Arc<Shared>>, Name(name): Name) -> Result<Response, Problem> {
    let run = shared.work(move |shared| detail(shared, &name)).await?;
    Ok(json_response(run.to_string()))
}

/// A run with the training that this server has started for it, if there is one.
pub fn detail(shared: &Shared, name: &str) -> Result<Value, Problem> {
    let training = shared.trainings.of(name);
    let mut run = match (shared.runs.find(name), &training) {
        (Ok(run), _) => run.detail(),
        (Err(_), Some(job)) => {
            let state = if job["is_running"] == true { "training" } else { "failed" };
            json!({ "name": name, "title": name, "about": "", "state": state })
        }
        (Err(problem), None) => return Err(problem),
    };
    if let Some(job) = training {
        follow(&mut run, job);
    }
    Ok(run)
}

/// Adds to a run the training that this server has started for it.
fn follow(run: &mut Value, job: Value) {
    // A process that was just started has not locked the folder yet.
    if job["is_running"] == true && run["state"] == "interrupted" {
        run["state"] = "training".into();
    }
    run["training"] = job;
}

/// Predictions of the model of a run.
pub async fn predict(
    State(shared): State<Arc<Shared>>,
    Name(name): Name,
    wanted: Result<Query<Wanted>, QueryRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let Query(wanted) = wanted.map_err(|error| Problem::query(&error))?;
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    let wants_csv = accepts.is_some_and(|accept| accept.starts_with("text/csv"));
    let answer = shared.work(move |shared| {
        let run = shared.runs.find(&name)?;
        let model = shared.models.get(&run)?;
        let (bytes, count) = match &*model {
            Model::Forecaster(forecasts) => forecasts.answer(body.media, &body.bytes, wants_csv, wanted)?,
            Model::Classifier(classes) => classes.answer(body.media, &body.bytes, wants_csv)?,
        };
        shared.metrics.count_predictions(count);
        Ok((bytes, wants_csv))
    });
    let (bytes, is_csv) = answer.await?;
    // A request with values has no times, and so no CSV.
    let is_csv = is_csv && bytes.first() != Some(&b'{');
    let kind = if is_csv { "text/csv; charset=utf-8" } else { "application/json" };
    Ok(([(header::CONTENT_TYPE, kind)], bytes).into_response())
}

/// A forecast of the data that a forecaster was trained on, from any origin.
pub async fn forecast(
    State(shared): State<Arc<Shared>>,
    Name(name): Name,
    place: Result<Query<Place>, QueryRejection>,
) -> Result<Response, Problem> {
    let Query(place) = place.map_err(|error| Problem::query(&error))?;
    let answer = shared.work(move |shared| {
        let run = shared.runs.find(&name)?;
        match &*shared.models.get(&run)? {
            Model::Forecaster(forecasts) => forecasts.at(&place),
            Model::Classifier(_) => {
                Err(Problem::conflict(format!("run {name:?} is a classifier, not a forecaster")))
            }
        }
    });
    Ok(json_response(answer.await?.to_string()))
}

/// The evaluation of an automaton or a classifier.
pub async fn evaluation(State(shared): State<Arc<Shared>>, Name(name): Name) -> Result<Response, Problem> {
    let answer = shared.work(move |shared| shared.evaluations.get(&shared.runs.find(&name)?));
    Ok(json_response(answer.await?.to_string()))
}

/// The experiments that can be trained.
pub async fn experiments() -> Response {
    json_response(json!({ "experiments": train::experiments() }).to_string())
}

/// Starts a training.
pub async fn train(State(shared): State<Arc<Shared>>, body: Body) -> Result<Response, Problem> {
    let name = shared
        .work(move |shared| {
            let request: train::Request = from_json(&body.bytes)?;
            shared.trainings.start(&request, &shared.runs)
        })
        .await?;
    Ok((StatusCode::ACCEPTED, json_response(json!({ "name": name }).to_string())).into_response())
}

/// Stops a training that this server has started. It writes a checkpoint.
pub async fn stop(State(shared): State<Arc<Shared>>, Name(name): Name) -> Result<Response, Problem> {
    shared.work(move |shared| shared.trainings.stop(&name)).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

pub async fn not_allowed() -> Problem {
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "this path has other methods; GET /openapi.json lists them")
}
