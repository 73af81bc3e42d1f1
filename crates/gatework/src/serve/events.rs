//! Server-sent events: the list of runs and the progress of a training, whenever they change.
//!
//! The files of the runs are looked at twice a second. So a training that was started in another terminal, or before the server,
//! is seen like any other.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use hyper::body::Frame;
use serde_json::Value;
use tokio::sync::mpsc;

use super::Shared;
use super::api::{self, Name};
use super::problem::Problem;

/// Time between two looks at the files.
const INTERVAL: Duration = Duration::from_millis(500);

/// The number of looks without a change after which a comment keeps the connection open.
const QUIET: u32 = 30;

/// A response that never ends by itself.
struct Stream(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Stream {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }
}

/// The list of runs.
pub async fn runs(State(shared): State<Arc<Shared>>) -> Response {
    stream(&shared, "runs", |shared| Ok((api::list(shared), false)))
}

/// A run; the stream ends when its training has ended.
pub async fn run(State(shared): State<Arc<Shared>>, Name(name): Name) -> Result<Response, Problem> {
    let first = name.clone();
    shared.work(move |shared| api::detail(shared, &first).map(|_| ())).await?;
    let look = move |shared: &Shared| {
        let run = api::detail(shared, &name)?;
        let is_over = run["state"] != "training";
        Ok((run, is_over))
    };
    Ok(stream(&shared, "run", look))
}

/// Sends what a look at the files shows, now and after every change, until the look says that it was the last one.
fn stream(
    shared: &Arc<Shared>,
    event: &'static str,
    look: impl Fn(&Shared) -> Result<(Value, bool), Problem> + Send + Sync + 'static,
) -> Response {
    let (sender, receiver) = mpsc::channel(4);
    let shared = Arc::clone(shared);
    let look = Arc::new(look);
    tokio::spawn(async move {
        let mut stopping = shared.stopping.clone();
        let mut before = String::new();
        let mut quiet = 0;
        loop {
            let look = Arc::clone(&look);
            // A busy server looks again later.
            let (text, is_over) = match shared.work(move |shared| look(shared)).await {
                Ok((value, is_over)) => (value.to_string(), is_over),
                Err(problem) if problem.status.is_server_error() => (before.clone(), false),
                Err(problem) => (problem.body(), true),
            };
            quiet += 1;
            let message = if text == before {
                (quiet >= QUIET).then(|| ": nothing new\n\n".into())
            } else {
                Some(format!("event: {event}\ndata: {text}\n\n"))
            };
            if let Some(message) = message {
                quiet = 0;
                if sender.send(message.into()).await.is_err() {
                    return;
                }
            }
            before = text;
            if is_over {
                let _ = sender.send("event: end\ndata: {}\n\n".into()).await;
                return;
            }
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = sender.closed() => return,
                _ = stopping.wait_for(|stopping| *stopping) => return,
            }
        }
    });
    ([(header::CONTENT_TYPE, "text/event-stream")], Body::new(Stream(receiver))).into_response()
}
