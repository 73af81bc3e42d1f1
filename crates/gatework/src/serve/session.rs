//! Signing in: a browser exchanges the token for a cookie, because it cannot send a header of its own when it opens a page.

use std::fmt::Write as _;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;

use super::Shared;
use super::api::{Body, from_json};
use super::problem::Problem;
use super::security::is_equal;

/// The name of the cookie.
const COOKIE: &str = "gatework-token";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SignIn {
    token: String,
}

/// Sets the cookie if the token is right. Scripts cannot read it, and other sites cannot make a browser send it.
pub async fn sign_in(State(shared): State<Arc<Shared>>, body: Body) -> Result<Response, Problem> {
    let given: SignIn = from_json(&body.bytes)?;
    let Some(token) = &shared.token else {
        return Err(Problem::not_found("this server asks for no token"));
    };
    if !is_equal(given.token.trim().as_bytes(), token.as_bytes()) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "that is not the token of this server"));
    }
    let cookie = format!("{COOKIE}={}; HttpOnly; SameSite=Strict; Path=/", hex(token.as_bytes()));
    Ok((StatusCode::NO_CONTENT, [(header::SET_COOKIE, cookie)]).into_response())
}

/// Returns the token in the cookie of a request.
pub fn token_of(headers: &HeaderMap) -> Option<String> {
    let cookies = headers.get(header::COOKIE)?.to_str().ok()?;
    let value =
        cookies.split(';').find_map(|cookie| cookie.trim().strip_prefix(COOKIE)?.strip_prefix('='))?;
    let byte = |at: usize| u8::from_str_radix(value.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..value.len()).step_by(2).map(byte).collect();
    String::from_utf8(bytes?).ok()
}

/// A token may contain characters that a cookie may not.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_token_survives_the_cookie() {
        let token = "a;b=c,\"d\"-0123456789";
        let mut headers = HeaderMap::new();
        let cookie = format!("other=1; {COOKIE}={}", hex(token.as_bytes()));
        headers.insert(header::COOKIE, cookie.parse().unwrap());
        assert_eq!(token_of(&headers).as_deref(), Some(token));
        for broken in ["gatework-token=0", "gatework-token=zz", "gatework-token", "gatework-tokens=00", "x=1"]
        {
            headers.insert(header::COOKIE, broken.parse().unwrap());
            assert_eq!(token_of(&headers), None, "{broken}");
        }
    }
}
