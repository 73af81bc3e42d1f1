//! Errors as JSON: what is wrong, where, and what to do (RFC 9457).

use axum::extract::rejection::QueryRejection;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

/// The maximum length of a detail in characters: it may quote a request.
const MAX_DETAIL: usize = 1000;

/// A request that is not answered as asked.
#[derive(Clone, Debug)]
pub struct Problem {
    /// The status of the response.
    pub status: StatusCode,
    detail: String,
    retry_after: Option<u32>,
}

impl Problem {
    /// A problem of this status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Problem {
        Problem { status, detail: detail.into(), retry_after: None }
    }

    /// The request cannot be understood.
    pub fn bad_request(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The query of the address cannot be understood.
    pub fn query(error: &QueryRejection) -> Problem {
        let text = error.body_text();
        let text = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
        Problem::bad_request(format!("the query is not as expected: {text}"))
    }

    /// The request is understood, but what it asks for is not possible.
    pub fn unprocessable(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    /// Something does not exist.
    pub fn not_found(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, detail)
    }

    /// The request does not fit the state of what it is about.
    pub fn conflict(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::CONFLICT, detail)
    }

    /// Too much is asked at the moment.
    pub fn busy(detail: impl std::fmt::Display) -> Problem {
        let detail = format!("{detail}; try again in a second");
        Problem { retry_after: Some(1), ..Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail) }
    }

    /// The server failed.
    pub fn internal(detail: impl Into<String>) -> Problem {
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail)
    }

    /// A run that cannot be read.
    pub fn damaged(run: &str, error: impl std::fmt::Display) -> Problem {
        Problem::conflict(format!("run {run:?} cannot be used: {error}"))
    }

    /// What is wrong, and what to do.
    pub fn detail(&self) -> String {
        match self.detail.char_indices().nth(MAX_DETAIL) {
            Some((end, _)) => format!("{} ...", &self.detail[..end]),
            None => self.detail.clone(),
        }
    }

    /// The body of the response.
    pub fn body(&self) -> String {
        let title = self.status.canonical_reason().unwrap_or("Error");
        json!({ "title": title, "status": self.status.as_u16(), "detail": self.detail() }).to_string()
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.body()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}
