//! Who may ask, and what a browser may do with the answer.
//!
//! A page of another site can make a browser send requests to this server. Three checks stop it. The Host of a request must be
//! an address in numbers, `localhost`, or a name that was given: a name that the other site controls and lets point
//! here (DNS rebinding) is refused. An Origin must be that of this server. And what a browser marks as a request of another
//! site is refused, except for links that people follow.

use std::hint::black_box;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use super::problem::Problem;
use super::{Shared, session};

/// What a page may load and run: files of this server, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' data: blob:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The headers of every response. A handler may have set one of them more strictly.
static HEADERS: [(header::HeaderName, &str); 5] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CACHE_CONTROL, "no-store"),
];

/// Paths that need no token: whether the server lives, and what is needed to sign in.
const OPEN: [&str; 5] = ["/healthz", "/sign-in", "/api/session", "/assets/page.css", "/assets/sign-in.js"];

/// Checks every request, and completes every response.
pub async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let begin = Instant::now();
    let mut response = match check(&shared, &request) {
        Ok(()) => next.run(request).await,
        Err(refusal) => *refusal,
    };
    let headers = response.headers_mut();
    for (name, value) in &HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    shared.metrics.count(response.status(), begin.elapsed());
    response
}

fn check(shared: &Shared, request: &Request) -> Result<(), Box<Response>> {
    let refused = |problem: Problem| Box::new(problem.into_response());
    let headers = request.headers();
    let host = one(headers, &header::HOST).and_then(|host| {
        let is_known = is_known_host(host, &shared.hosts);
        is_known.then_some(host).ok_or_else(|| {
            let detail = format!(
                "the Host {host:?} is not a name of this server; use its address in numbers, or allow the name when the \
                 server is started"
            );
            Problem::new(StatusCode::MISDIRECTED_REQUEST, detail)
        })
    });
    let host = host.map_err(refused)?;
    check_site(headers, request.method(), host).map_err(refused)?;
    let Some(token) = &shared.token else { return Ok(()) };
    if OPEN.contains(&request.uri().path()) || has_token(headers, token) {
        return Ok(());
    }
    let wants_page =
        headers.get(header::ACCEPT).is_some_and(|accept| accept.as_bytes().starts_with(b"text/html"));
    if wants_page && shared.page && request.method() == Method::GET {
        return Err(Box::new((StatusCode::SEE_OTHER, [(header::LOCATION, "/sign-in")]).into_response()));
    }
    let detail = "a token is needed: send the header \"Authorization: Bearer TOKEN\"";
    let mut response = Problem::new(StatusCode::UNAUTHORIZED, detail).into_response();
    response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    Err(Box::new(response))
}

/// The only value of a header.
fn one<'a>(headers: &'a HeaderMap, name: &header::HeaderName) -> Result<&'a str, Problem> {
    let mut values = headers.get_all(name).iter();
    match (values.next().map(HeaderValue::to_str), values.next()) {
        (Some(Ok(value)), None) => Ok(value),
        _ => Err(Problem::bad_request(format!("exactly one header {name} of printable ASCII is needed"))),
    }
}

/// Whether a Host is an address in numbers, `localhost` or one of these names; the port is of no interest.
fn is_known_host(host: &str, names: &[String]) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(address, _)| address),
        None => host.split_once(':').map_or(host, |(name, _)| name),
    };
    let is_name = |known: &str| name.eq_ignore_ascii_case(known);
    name.parse::<IpAddr>().is_ok() || is_name("localhost") || names.iter().any(|known| is_name(known))
}

/// Refuses requests that a page of another site has made.
fn check_site(headers: &HeaderMap, method: &Method, host: &str) -> Result<(), Problem> {
    let foreign =
        || Err(Problem::new(StatusCode::FORBIDDEN, "requests from pages of other sites are not answered"));
    if headers.contains_key(header::ORIGIN) {
        let origin = one(headers, &header::ORIGIN)?;
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        if own.is_none_or(|own| !own.eq_ignore_ascii_case(host)) {
            return foreign();
        }
    }
    let says = |name: &str, value: &str| headers.get(name).is_some_and(|found| found == value);
    let is_link = method == Method::GET && says("sec-fetch-mode", "navigate");
    if (says("sec-fetch-site", "cross-site") || says("sec-fetch-site", "same-site")) && !is_link {
        return foreign();
    }
    Ok(())
}

fn has_token(headers: &HeaderMap, token: &str) -> bool {
    let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given = header
        .and_then(|value| value.split_once(' ').filter(|(kind, _)| kind.eq_ignore_ascii_case("bearer")));
    let given = given.map(|(_, token)| token.trim().to_string()).or_else(|| session::token_of(headers));
    given.is_some_and(|given| is_equal(given.as_bytes(), token.as_bytes()))
}

/// Compares in a time that depends on the lengths only.
pub fn is_equal(a: &[u8], b: &[u8]) -> bool {
    let mut difference = u8::from(a.len() != b.len());
    for (i, &byte) in b.iter().enumerate() {
        difference |= black_box(byte ^ a.get(i).copied().unwrap_or(!byte));
    }
    black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_a_number_or_a_known_name() {
        let names = ["gate.local".to_string()];
        for known in
            ["127.0.0.1:8080", "10.0.0.7", "[::1]:80", "[::1]", "localhost", "LocalHost:1", "gate.local:9"]
        {
            assert!(is_known_host(known, &names), "{known}");
        }
        for foreign in
            ["", "evil.example", "127.0.0.1.evil.example:8080", "[::1", "[evil]", "localhost.evil", "::1"]
        {
            assert!(!is_known_host(foreign, &names), "{foreign}");
        }
    }

    #[test]
    fn requests_of_other_sites_are_refused_except_for_links() {
        let check = |pairs: &[(&'static str, &'static str)], method: &Method| {
            let mut headers = HeaderMap::new();
            for (name, value) in pairs {
                headers.append(*name, HeaderValue::from_static(value));
            }
            check_site(&headers, method, "localhost:8080").is_ok()
        };
        assert!(check(&[], &Method::POST));
        assert!(check(
            &[("origin", "http://localhost:8080"), ("sec-fetch-site", "same-origin")],
            &Method::POST
        ));
        assert!(check(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], &Method::GET));
        for refused in [
            &[("origin", "http://evil.example")][..],
            &[("origin", "null")],
            &[("origin", "http://localhost:8081")],
            &[("origin", "http://localhost:8080"), ("origin", "http://evil.example")],
            &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "no-cors")],
        ] {
            assert!(!check(refused, &Method::GET), "{refused:?}");
        }
        assert!(!check(&[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")], &Method::POST));
    }

    #[test]
    fn tokens_are_equal_only_if_all_bytes_are() {
        assert!(is_equal(b"secret", b"secret"));
        for other in [&b"secreT"[..], b"secre", b"secrets", b""] {
            assert!(!is_equal(other, b"secret"));
        }
    }
}
