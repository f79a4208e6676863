//! The HTTP server below everything that this program offers over HTTP ([`crate::serve_model`],
//! [`crate::sessions::site`]): so many connections, so long for a request's headers, and an orderly end.
//!
//! A connection that sends nothing, or its headers byte by byte, is closed after [`HttpLimits::header_time`]; so is one
//! that was idle for as long between two requests. How long bodies may take and how large they may be is for the routes
//! to say.

use std::io;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How long to wait before the next connection is taken where the system has no room for one.
const NO_ROOM: Duration = Duration::from_secs(1);

/// How much clients may hold of a server before anything is known of them.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// Connections at once. Further ones wait until one ends.
    pub connections: usize,
    /// How long the headers of a request may take to arrive, from the connection or the last answer on.
    pub header_time: Duration,
    /// Bytes of a request's first line and headers, at least 8192.
    pub header_bytes: usize,
}

impl Default for HttpLimits {
    /// 512 connections, 10 s and 64 KiB for headers.
    fn default() -> Self {
        Self { connections: 512, header_time: Duration::from_secs(10), header_bytes: 64 << 10 }
    }
}

/// Serves routes until `drain` is cancelled; then takes no more connections, answers what was asked, and ends. Dropping
/// it closes all connections.
pub(crate) async fn serve(
    listener: TcpListener,
    routes: Router,
    limits: HttpLimits,
    drain: CancellationToken,
) {
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
    // Who comes now is refused by the system.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// The next connection; waits where the system has no room for one.
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

/// Whether a client went away before its connection was taken.
fn is_of_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// One connection, to its end.
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
