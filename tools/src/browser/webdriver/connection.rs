//! Connections to WebDriver servers, with a limit on the size of a response.
//!
//! fantoccini reads a response into memory as a whole, and a hostile page can make one large: the source of the page, the
//! result of a script, the text of a dialog. [`LimitedConnector`] therefore opens connections that fail with
//! [`ResponseTooLarge`] once the server has sent more than [`MOST_RESPONSE`] bytes in response to a request. fantoccini
//! reports the failure as that of the command, which ends the session.

use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures::future::BoxFuture;
use futures::{FutureExt, TryFutureExt};
use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tower_service::Service;

/// Maximum size of a response with its headers, in bytes. A screenshot of the default window takes 7 MiB at most. The limit is
/// not much larger, because a list of digits takes about 36 times as much memory as its JSON.
const MOST_RESPONSE: usize = 16 << 20;

/// The error of a connection on which a response was larger than [`MOST_RESPONSE`].
#[derive(Debug, thiserror::Error)]
#[error("a response of the WebDriver server was larger than {} MiB", MOST_RESPONSE >> 20)]
pub(super) struct ResponseTooLarge;

impl ResponseTooLarge {
    /// Returns the error of this type that caused another one, if there is one.
    pub(super) fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        let mut next = Some(error);
        while let Some(error) = next {
            if let Some(inner) = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref)
                && let Some(found) = inner.downcast_ref::<Self>()
            {
                return Some(found);
            }
            next = error.source();
        }
        None
    }
}

/// Opens connections to WebDriver servers.
#[derive(Clone)]
pub(super) struct LimitedConnector(pub(super) HttpConnector);

impl Service<Uri> for LimitedConnector {
    type Response = TokioIo<LimitedStream>;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = BoxFuture<'static, Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Service::<Uri>::poll_ready(&mut self.0, context)
    }

    fn call(&mut self, address: Uri) -> Self::Future {
        let connecting = Service::<Uri>::call(&mut self.0, address);
        connecting
            .map_ok(|connected| TokioIo::new(LimitedStream { stream: connected.into_inner(), read: 0 }))
            .boxed()
    }
}

/// A connection that fails while a response that is too large is read.
pub(super) struct LimitedStream {
    stream: TcpStream,
    /// Number of bytes read since the last write. A request is written before its response is read.
    read: usize,
}

impl Connection for LimitedStream {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        self.read += buffer.filled().len() - before;
        let fits = self.read <= MOST_RESPONSE;
        Poll::Ready(if fits { Ok(()) } else { Err(io::Error::other(ResponseTooLarge)) })
    }
}

impl AsyncWrite for LimitedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.read = 0;
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.read = 0;
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use axum::Router;
    use axum::body::Body;
    use axum::routing::{get, post};
    use futures::stream;

    use super::*;
    use crate::browser::webdriver::BrowserError;
    use crate::browser::webdriver::session::Session;
    use crate::browser::{BrowserName, BrowserSettings};

    /// Starts a WebDriver server with these responses to the commands that start a session and read the source of a page.
    async fn server(started: fn() -> Body, source: fn() -> Body) -> BrowserSettings {
        let response =
            |body: fn() -> Body| move || async move { ([("content-type", "application/json")], body()) };
        let router = Router::new()
            .route("/session", post(response(started)))
            .route("/session/a/source", get(response(source)));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let mut settings = BrowserSettings::new(BrowserName::Remote(address.parse().unwrap()));
        settings.start_limit = Duration::from_secs(600);
        settings.command_limit = Duration::from_secs(600);
        settings
    }

    fn started() -> Body {
        Body::from(r#"{"value": {"sessionId": "a", "capabilities": {"browserName": "test"}}}"#)
    }

    fn endless() -> Body {
        Body::from_stream(stream::repeat_with(|| Ok::<_, Infallible>(vec![b' '; 1 << 16])))
    }

    async fn source(session: &mut Session) -> Result<String, BrowserError> {
        let client = session.client();
        session.command("reading the page", client.source()).await
    }

    #[tokio::test]
    async fn an_endless_response_is_a_fault_that_names_the_limit() {
        let settings = server(started, endless).await;
        let mut session = Session::start(&settings, None).await.unwrap();
        let error = source(&mut session).await.unwrap_err();
        let expected = "reading the page: a response of the WebDriver server was larger than 16 MiB";
        assert!(matches!(&error, BrowserError::Fault(fault) if fault.to_string() == expected), "{error}");
        assert!(!session.is_ready());

        let settings = server(endless, endless).await;
        let fault = Session::start(&settings, None).await.err().unwrap();
        assert_eq!(
            fault.to_string(),
            "starting a browser: a response of the WebDriver server was larger than 16 MiB"
        );
    }

    #[tokio::test]
    async fn the_limit_is_that_of_one_response() {
        const LENGTH: usize = MOST_RESPONSE / 3 * 2;
        let large = || Body::from(format!(r#"{{"value": "{}"}}"#, "x".repeat(LENGTH)));
        let mut session = Session::start(&server(started, large).await, None).await.unwrap();
        for _ in 0..2 {
            assert_eq!(source(&mut session).await.unwrap().len(), LENGTH);
        }
    }

    /// fantoccini panics in its own task, which closes the channel that the command waits for.
    #[tokio::test]
    async fn a_response_that_is_not_utf_8_is_a_fault() {
        let invalid = || Body::from(&b"{\"value\": \"\xff\"}"[..]);
        let mut session = Session::start(&server(started, invalid).await, None).await.unwrap();
        for _ in 0..2 {
            let outcome = source(&mut session).await;
            assert!(matches!(outcome, Err(BrowserError::Fault(_))), "{outcome:?}");
            assert!(!session.is_ready());
        }
    }
}
