//! Connections: accepted up to a limit, closed if they are too slow, and finished before the server ends.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};

use super::problem::Problem;
use super::{Shared, routes};

/// Time to wait before the next connection is accepted, after an error such as too many open files.
const RETRY: Duration = Duration::from_millis(50);

/// Answers requests until the process is told to stop.
pub async fn run(
    listener: std::net::TcpListener,
    shared: Arc<Shared>,
    stop: watch::Sender<bool>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let router = routes::router(&shared);
    let limit = shared.limits.connections;
    let places = Arc::new(Semaphore::new(limit));
    let told = told_to_stop()?;
    tokio::pin!(told);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = &mut told => break,
        };
        let Ok((stream, _)) = accepted else {
            tokio::time::sleep(RETRY).await;
            continue;
        };
        if let Ok(place) = Arc::clone(&places).try_acquire_owned() {
            let (router, shared) = (router.clone(), Arc::clone(&shared));
            tokio::spawn(async move {
                serve(stream, router, &shared).await;
                drop(place);
            });
        } else {
            shared.metrics.count_shed();
            refuse(&stream, limit);
        }
    }
    drop(listener);
    // Receivers are never all gone: `shared` has one.
    let _ = stop.send(true);
    let all = places.acquire_many(u32::try_from(limit).unwrap_or(u32::MAX));
    let _ = tokio::time::timeout(shared.limits.shutdown, all).await;
    Ok(())
}

/// Completes when the process gets Ctrl-C or SIGTERM. The second one ends the process.
fn told_to_stop() -> io::Result<impl Future<Output = ()>> {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        Ok(async move {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            tokio::spawn(async move {
                tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
                std::process::exit(130);
            });
        })
    }
    #[cfg(not(unix))]
    Ok(async {
        let _ = tokio::signal::ctrl_c().await;
    })
}

/// Answers the requests of a connection.
async fn serve(stream: TcpStream, router: Router, shared: &Shared) {
    // Small responses are sent at once.
    let _ = stream.set_nodelay(true);
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(shared.limits.receive)
        .max_headers(64)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    tokio::pin!(connection);
    let mut stopping = shared.stopping.clone();
    // A connection that the client has broken is of no interest.
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stopping.wait_for(|stopping| *stopping) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Says on a connection beyond the limit that there are too many.
fn refuse(stream: &TcpStream, limit: usize) {
    let body = Problem::busy(format!("{limit} connections are open")).body();
    let response = format!(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nRetry-After: 1\r\n\
         Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    // A client that cannot take a few bytes at once learns of it by the end of the connection.
    let _ = stream.try_write(response.as_bytes());
}
