//! The table of all paths.

use std::sync::Arc;

use axum::Router;
use axum::middleware;
use axum::routing::{MethodRouter, get, post};

use super::{Shared, api, events, exports, pages, security, session};

/// A path, its method and what answers.
type Route = (&'static str, &'static str, MethodRouter<Arc<Shared>>);

/// The paths of the interface.
pub fn interface() -> Vec<Route> {
    vec![
        ("get", "/healthz", get(api::health)),
        ("get", "/metrics", get(api::metrics)),
        ("get", "/openapi.json", get(api::openapi)),
        ("get", "/api/runs", get(api::runs)),
        ("get", "/api/events", get(events::runs)),
        ("get", "/api/runs/{name}", get(api::run)),
        ("get", "/api/runs/{name}/events", get(events::run)),
        ("post", "/api/runs/{name}/predict", post(api::predict)),
        ("get", "/api/runs/{name}/forecast", get(api::forecast)),
        ("get", "/api/runs/{name}/files/{file}", get(exports::file)),
        ("get", "/api/runs/{name}/export/{format}", get(exports::export)),
    ]
}

/// The paths that pages need in addition.
pub fn of_pages() -> Vec<Route> {
    vec![
        ("get", "/api/experiments", get(api::experiments)),
        ("get", "/api/runs/{name}/evaluation", get(api::evaluation)),
        ("post", "/api/train", post(api::train)),
        ("post", "/api/runs/{name}/stop", post(api::stop)),
        ("post", "/api/session", post(session::sign_in)),
    ]
}

/// The pages for people, which are not part of the interface.
fn pages() -> Vec<Route> {
    vec![
        ("get", "/", get(pages::home)),
        ("get", "/runs/{name}", get(pages::run)),
        ("get", "/train", get(pages::train)),
        ("get", "/compare", get(pages::compare)),
        ("get", "/sign-in", get(pages::sign_in)),
        ("get", "/assets/{file}", get(pages::asset)),
    ]
}

/// Returns what answers all requests.
pub fn router(shared: &Arc<Shared>) -> Router {
    let mut routes = interface();
    if shared.page {
        routes.extend(of_pages());
        routes.extend(pages());
    }
    let router =
        routes.into_iter().fold(Router::new(), |router, (_, path, method)| router.route(path, method));
    router
        .fallback(pages::not_found)
        .method_not_allowed_fallback(api::not_allowed)
        .layer(middleware::from_fn_with_state(Arc::clone(shared), security::guard))
        .with_state(Arc::clone(shared))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::openapi;
    use super::*;

    #[test]
    fn the_description_of_the_interface_has_every_route_and_no_other() {
        let routes = interface().into_iter().chain(of_pages());
        let routes: BTreeSet<String> = routes.map(|(method, path, _)| format!("{method} {path}")).collect();
        let document = openapi::document();
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeSet<String> = paths
            .iter()
            .flat_map(|(path, methods)| {
                methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}"))
            })
            .collect();
        assert_eq!(routes, described);
    }
}
