//! HTTP server that the model server and the website of the shop build on: limits connections and the
//! time for request headers, and shuts down gracefully.
//!
//! A connection that sends nothing, or sends its headers byte by byte, is closed after
//! [`HttpLimits::header_time`]. The same timeout applies to a connection that is idle between two requests.
//! The routes limit the size and duration of request bodies.

use std::io;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Pause before the next accept if the system cannot accept a connection.
const NO_ROOM: Duration = Duration::from_secs(1);

/// Limits that apply before a request is authenticated or routed.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Maximum concurrent connections. Further connections wait until one closes.
    pub connections: usize,
    /// Timeout for the headers of a request, measured from the connection or from the previous response.
    pub header_time: Duration,
    /// Maximum bytes of a request's first line and headers. At least 8192.
    pub header_bytes: usize,
}

impl Default for HttpLimits {
    /// 512 connections; 10 s and 64 KiB for headers.
    fn default() -> Self {
        Self { connections: 512, header_time: Duration::from_secs(10), header_bytes: 64 << 10 }
    }
}

/// Serves routes until `drain` is cancelled, then stops accepting connections, completes requests in progress
/// and returns. Dropping the future closes all connections.
pub async fn serve(listener: TcpListener, routes: Router, limits: HttpLimits, drain: CancellationToken) {
    let mut connections = JoinSet::new();
    loop {
        let has_room = connections.len() < limits.connections;
        tokio::select! {
            () = drain.cancelled() => break,
            Some(_) = connections.join_next() => {}
            stream = accept(&listener), if has_room => {
                connections.spawn(converse(stream, routes.clone(), limits.clone(), drain.clone()));
            }
        }
    }
    // From here on the operating system refuses new connections.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Accepts the next connection. Retries after a pause if the system cannot accept one.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(NO_ROOM).await;
            }
        }
    }
}

/// Whether the client closed its connection before it was accepted.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Serves one connection until it closes.
async fn converse(stream: TcpStream, routes: Router, limits: HttpLimits, drain: CancellationToken) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_buf_size(limits.header_bytes)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = drain.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection closed early");
    }
}
