//! Client of a service: retries, pace, redirects, limits, and a key that stays with its server.
//!
//! [`HttpClient::send`] makes attempts until one succeeds or another would not help. An attempt waits for a permit and
//! for its turn, follows redirects that are allowed, and reads the body up to a limit.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use reqwest::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, RANGE,
};
use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, Method, Response};
use tokio::time::{Instant, timeout_at};
use url::Url;

use crate::ServerKey;
use crate::hosts::{bypasses_proxy, host_and_port, is_private};
use crate::limiter::{ConcurrencyBounds, Limiter, LimiterSummary, RequestPermit, ServerLoad};
use crate::message::{HttpError, HttpRequest, HttpResponse};
use crate::pace::Pace;
use crate::retries::Retries;

/// Name, version and contact, as Wikimedia requires
/// (`https://foundation.wikimedia.org/wiki/Policy:User-Agent_policy`).
const USER_AGENT: &str =
    concat!("lumos-eval/", env!("CARGO_PKG_VERSION"), " (", env!("CARGO_PKG_REPOSITORY"), ")");
/// Timeout for establishing a connection.
const CONNECTING: Duration = Duration::from_secs(20);
/// Timeout for receiving more of a response whose duration is not limited.
const IDLE: Duration = Duration::from_secs(60);
/// Maximum redirects of one request.
const REDIRECTS: usize = 5;
/// Maximum bytes that are read of a response whose status is not accepted.
const ERROR_BODY: usize = 8 << 10;
/// Time limit for reading them.
const ERROR_TIME: Duration = Duration::from_secs(5);

/// Decides whether a redirect to a URL is followed.
pub type RedirectRule = dyn Fn(&Url) -> bool + Send + Sync;

/// Settings of a client.
pub struct HttpSettings {
    /// Timeout of a request with its response. `None` for downloads: only pauses in a response are limited, to 60 s.
    pub timeout: Option<Duration>,
    /// Maximum retries after the first attempt.
    pub retries: usize,
    /// Maximum retries while the service has never responded. A lost connection may recover; one that was never
    /// established rarely does.
    pub first_retries: usize,
    /// Pause before the first retry. Each further pause is twice as long, with jitter.
    pub first_pause: Duration,
    /// Longest pause. A request is not retried if the service asks for a longer one.
    pub longest_pause: Duration,
    /// Minimum time between two requests.
    pub pace: Duration,
    /// Concurrent requests. Between different bounds, the number follows what the service can take.
    pub concurrency: ConcurrencyBounds,
    /// Maximum size of a body in bytes, except of downloads.
    pub most_bytes: usize,
    /// Where redirects of GET and HEAD may lead. They never lead from https to http. `None`: nowhere.
    pub redirects: Option<Box<RedirectRule>>,
    /// Key of the service, which is removed from messages.
    pub key: Option<ServerKey>,
    /// The server that receives the key as a bearer token. No other origin receives it, and it is not sent unencrypted
    /// to another machine.
    pub bearer_for: Option<Url>,
}

impl Default for HttpSettings {
    /// 30 s per request, 4 retries with pauses of 0.5 to 60 s, no pace, 8 MiB, no redirects, no key.
    fn default() -> Self {
        Self {
            timeout: Some(Duration::from_secs(30)),
            retries: 4,
            first_retries: usize::MAX,
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_secs(60),
            pace: Duration::ZERO,
            concurrency: ConcurrencyBounds::UNLIMITED,
            most_bytes: 8 << 20,
            redirects: None,
            key: None,
            bearer_for: None,
        }
    }
}

/// Client of one service. Everything that uses the service shares its client, so that limits apply to all together.
pub struct HttpClient {
    pub(crate) settings: HttpSettings,
    /// Uses the proxies of the environment.
    proxied: Client,
    direct: Client,
    /// Origin and header of the bearer token.
    authorization: Option<(url::Origin, HeaderValue)>,
    limiter: Limiter,
    pub(crate) pace: Pace,
    pub(crate) has_responded: AtomicBool,
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

impl HttpClient {
    /// Creates a client.
    ///
    /// # Errors
    /// If the key is invalid in a header, or the system has no TLS. The error is a message.
    pub fn new(settings: HttpSettings) -> Result<Self, String> {
        let build = |client: ClientBuilder| {
            let client = match settings.timeout {
                Some(timeout) => client.timeout(timeout).connect_timeout(timeout.min(CONNECTING)),
                None => client.read_timeout(IDLE).connect_timeout(CONNECTING),
            };
            let identity = (ACCEPT_ENCODING, HeaderValue::from_static("identity"));
            let client = client.default_headers(HeaderMap::from_iter([identity])).user_agent(USER_AGENT);
            // `open` follows redirects: each one is checked and counts against the pace.
            client.redirect(Policy::none()).build().map_err(|error| error.to_string())
        };
        let authorization = match (&settings.key, &settings.bearer_for) {
            (Some(key), Some(server)) if is_private(server) => {
                let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
                    .map_err(|_| "invalid API key: it has characters that are not allowed in a header")?;
                value.set_sensitive(true);
                Some((server.origin(), value))
            }
            _ => None,
        };
        Ok(Self {
            proxied: build(Client::builder())?,
            direct: build(Client::builder().no_proxy())?,
            authorization,
            limiter: Limiter::new(settings.concurrency),
            pace: Pace::new(settings.pace),
            has_responded: AtomicBool::new(false),
            settings,
        })
    }

    /// Sends a request and reads its response, with retries. `read` decides what a response is worth:
    /// [`HttpResponse::accepted`] is the usual judgement of a status, [`HttpError::again`] asks for another attempt.
    ///
    /// # Errors
    /// If no attempt succeeds.
    pub async fn send<T, F>(
        &self,
        request: &HttpRequest,
        read: impl Fn(HttpResponse) -> F,
    ) -> Result<T, HttpError>
    where
        F: Future<Output = Result<T, HttpError>>,
    {
        let mut retries = Retries::new(self, &request.url, request.once);
        loop {
            let attempt = async { read(self.response(request).await?).await };
            match attempt.await {
                Ok(value) => return Ok(value),
                Err(error) => retries.pause(error).await?,
            }
        }
    }

    /// Sends no request for a time, for example because the key was rejected. Requests fail with this reason.
    pub fn suspend(&self, time: Duration, reason: String) {
        self.pace.suspend(time, reason);
    }

    async fn response(&self, request: &HttpRequest) -> Result<HttpResponse, HttpError> {
        let (response, permit) = self.open(request).await?;
        let status = response.status();
        let is_accepted = (request.accepts)(status);
        let read = self.read(response, is_accepted).await;
        match &read {
            // Other requests, such as lists of models, say nothing about how long the usual ones take.
            Ok(_) if is_accepted && request.body.is_some() => {
                if let Some(permit) = &permit {
                    permit.completed();
                }
            }
            Ok(_) if matches!(status.as_u16(), 429 | 503) => self.limiter.overloaded(),
            Err(error) if error.is_timeout => self.limiter.overloaded(),
            Ok(_) | Err(_) => {}
        }
        read
    }

    /// The bounds of concurrent requests, and how their number developed.
    pub fn concurrency(&self) -> (ConcurrencyBounds, LimiterSummary) {
        (self.limiter.bounds(), self.limiter.summary())
    }

    /// Adjusts the number of concurrent requests to the load that the service reports.
    pub fn adjust(&self, load: &ServerLoad) {
        self.limiter.load(load);
    }

    /// Sends a request once, and follows redirects. The response counts as concurrent as long as its permit is held.
    pub(crate) async fn open(
        &self,
        request: &HttpRequest,
    ) -> Result<(Response, Option<RequestPermit<'_>>), HttpError> {
        let mut url =
            Url::parse(&request.url).map_err(|error| HttpError::last(format!("invalid address: {error}")))?;
        let mut permit = if request.is_extra { None } else { self.limiter.acquire().await };
        for _ in 0..=REDIRECTS {
            self.pace.turn().await.map_err(HttpError::last)?;
            if let Some(permit) = &mut permit {
                permit.start();
            }
            let client = if bypasses_proxy(&url) { &self.direct } else { &self.proxied };
            let mut sent = client.request(request.method.clone(), url.clone());
            if request.from > 0 {
                sent = sent.header(RANGE, format!("bytes={}-", request.from));
            }
            if let Some(body) = &request.body {
                sent = sent.header(CONTENT_TYPE, "application/json").body(body.clone());
            }
            for (name, value) in &request.headers {
                sent = sent.header(*name, value);
            }
            if let Some((_, value)) =
                self.authorization.as_ref().filter(|(server, _)| *server == url.origin())
            {
                sent = sent.header(AUTHORIZATION, value.clone());
            }
            if let Some(timeout) = request.timeout {
                sent = sent.timeout(self.settings.timeout.map_or(timeout, |usual| usual.min(timeout)));
            }
            let response = sent.send().await.map_err(|error| {
                let error = HttpError::network(error);
                if error.is_timeout {
                    self.limiter.overloaded();
                }
                error
            })?;
            self.has_responded.store(true, Ordering::Relaxed);
            if !response.status().is_redirection() || (request.accepts)(response.status()) {
                return Ok((response, permit));
            }
            url = self.redirected(&request.method, &url, &response)?;
        }
        Err(HttpError::redirect("too many redirects"))
    }

    /// Returns the URL to which a response redirects, if it may be followed.
    fn redirected(&self, method: &Method, url: &Url, response: &Response) -> Result<Url, HttpError> {
        let refused = |why: &str| HttpError::redirect(format!("status {}{why}", response.status()));
        let place = response.headers().get(LOCATION).and_then(|place| str::from_utf8(place.as_bytes()).ok());
        let Some(next) = place.and_then(|place| url.join(place).ok()) else {
            return Err(refused(" without a location"));
        };
        let why = match &self.settings.redirects {
            Some(_) if url.scheme() == "https" && next.scheme() != "https" => "is not encrypted",
            Some(allows) if *method != Method::POST && allows(&next) => return Ok(next),
            Some(_) => "is not an allowed host",
            None => "is not followed; hint: use the new address if you trust it",
        };
        let is_moved = (next.path(), next.query()) == (url.path(), url.query());
        let error = refused(&format!(" with a redirect to {}, which {why}", host_and_port(&next)));
        Err(HttpError { is_refused: !is_moved, ..error })
    }

    /// Reads a response up to the size limit.
    pub(crate) async fn read(
        &self,
        mut response: Response,
        is_accepted: bool,
    ) -> Result<HttpResponse, HttpError> {
        let most = if is_accepted { self.settings.most_bytes } else { ERROR_BODY };
        let mut body = Vec::new();
        let mut is_too_long =
            is_accepted && response.content_length().is_some_and(|length| length > most as u64);
        // Without a body, the status of a response that is not accepted is sufficient.
        let deadline = (!is_accepted).then(|| Instant::now() + ERROR_TIME);
        while !is_too_long {
            let chunk = match deadline {
                Some(deadline) => timeout_at(deadline, response.chunk()).await.unwrap_or(Ok(None)),
                None => response.chunk().await,
            };
            match chunk {
                Ok(Some(chunk)) => {
                    body.extend_from_slice(&chunk);
                    is_too_long = body.len() > most;
                }
                Err(error) if is_accepted => return Err(HttpError::network(error)),
                Ok(None) | Err(_) => break,
            }
        }
        if is_too_long && is_accepted {
            let error = HttpError::last(format!("the response is longer than {most} bytes"));
            return Err(HttpError { is_refused: true, ..error });
        }
        body.truncate(most);
        let (status, headers) = (response.status(), response.headers().clone());
        Ok(HttpResponse { status, headers, body, is_accepted })
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    use axum::Router;
    use axum::body::Body;
    use axum::extract::{Request, State};
    use axum::http::Response;

    use super::*;

    const KEY: &str = "SECRET-0123456789";

    /// A server that records the paths of its requests, with a mark if they carry the key.
    #[derive(Clone, Default)]
    struct Server {
        requests: Arc<Mutex<Vec<String>>>,
        elsewhere: String,
    }

    async fn answer(State(server): State<Server>, request: Request) -> Response<Body> {
        let path = request.uri().path().to_owned();
        let key = request.headers().get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned());
        let key = key.map(|value| format!(" ({value})")).unwrap_or_default();
        let before = {
            let mut requests = server.requests.lock().unwrap();
            requests.push(format!("{} {path}{key}", request.method()));
            requests.iter().filter(|one| one.split(' ').nth(1) == Some(path.as_str())).count() - 1
        };
        let response = Response::builder();
        let (response, body) = match path.as_str() {
            "/busy" if before == 0 => (response.status(429).header("retry-after", "1"), ""),
            "/shut" => (response.status(503).header("retry-after", "3600"), ""),
            "/broken" if before < 2 => (response.status(500), ""),
            "/out" => (response.status(302).header("location", format!("{}/page", server.elsewhere)), ""),
            "/moved" => (response.status(301).header("location", format!("{}/moved", server.elsewhere)), ""),
            "/in" => (response.status(307).header("location", "/page"), ""),
            "/round" => (response.status(302).header("location", "/round"), ""),
            "/nowhere" => (response.status(302), ""),
            "/forbidden" => (response.status(403), "no"),
            "/long" => {
                let body =
                    futures::stream::iter((0..64).map(|_| Ok::<_, std::io::Error>(vec![b'x'; 1 << 16])));
                return response.body(Body::from_stream(body)).unwrap();
            }
            "/declared" => {
                let pending = futures::stream::pending::<std::io::Result<Vec<u8>>>();
                return response
                    .header("content-length", 50_000_000)
                    .body(Body::from_stream(pending))
                    .unwrap();
            }
            _ => (response, "page"),
        };
        response.body(Body::from(body)).unwrap()
    }

    async fn start(elsewhere: &str) -> (Server, Url) {
        let server = Server { elsewhere: elsewhere.trim_end_matches('/').to_owned(), ..Server::default() };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let app = Router::new().fallback(answer).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        (server, url.parse().unwrap())
    }

    impl Server {
        fn requests(&self) -> Vec<String> {
            self.requests.lock().unwrap().drain(..).collect()
        }
    }

    fn settings() -> HttpSettings {
        HttpSettings {
            retries: 2,
            first_pause: Duration::from_millis(5),
            most_bytes: 1 << 20,
            ..HttpSettings::default()
        }
    }

    /// Returns the body of a page. The future is `Send`, as callers need it.
    fn get<'a>(
        client: &'a HttpClient,
        server: &Url,
        path: &str,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<String, HttpError>> + Send + 'a>> {
        let request = HttpRequest::get(server.join(path).unwrap());
        Box::pin(async move {
            let read = |response: HttpResponse| async move {
                let body = response.accepted()?.body;
                Ok(String::from_utf8(body).unwrap())
            };
            client.send(&request, read).await
        })
    }

    #[tokio::test]
    async fn what_may_pass_is_retried() {
        let (server, url) = start("").await;
        let client = HttpClient::new(settings()).unwrap();
        assert_eq!(get(&client, &url, "/broken").await.unwrap(), "page");
        assert_eq!(server.requests().len(), 3);
        let read = |response: HttpResponse| {
            ready(response.accepted().and_then(|_| Err::<(), _>(HttpError::again("invalid content"))))
        };
        let request = HttpRequest::get(url.join("/page").unwrap());
        assert_eq!(client.send(&request, read).await.unwrap_err().message, "invalid content");
        assert_eq!(server.requests().len(), 3);
        let once = HttpRequest { once: true, ..request };
        client.send(&once, read).await.unwrap_err();
        assert_eq!(server.requests().len(), 1);
        client.suspend(Duration::from_secs(60), "the key was rejected".to_owned());
        assert_eq!(get(&client, &url, "/page").await.unwrap_err().message, "the key was rejected");
        assert_eq!(server.requests().len(), 0);
    }

    #[tokio::test]
    async fn all_requests_wait_for_the_time_that_a_service_asks_for() {
        let (_server, url) = start("").await;
        let client = HttpClient::new(settings()).unwrap();
        let began = Instant::now();
        let other = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(get(&client, &url, "/page").await.unwrap(), "page");
            began.elapsed()
        };
        let (busy, other) = tokio::join!(get(&client, &url, "/busy"), other);
        assert_eq!(busy.unwrap(), "page");
        assert!(other >= Duration::from_millis(990), "{other:?}");
    }

    #[tokio::test]
    async fn what_does_not_pass_is_an_error_at_once() {
        let (server, url) = start("https://example.com").await;
        let allowed = url.clone();
        let redirects = move |to: &Url| to.origin() == allowed.origin();
        let client = HttpClient::new(HttpSettings { redirects: Some(Box::new(redirects)), ..settings() });
        let client = client.unwrap();
        let elsewhere = "with a redirect to example.com, which is not an allowed host";
        for (path, requests, is_refused, message) in [
            ("/shut", 1, false, "status 503 Service Unavailable (Retry-After: 3600 s)"),
            ("/forbidden", 1, false, "status 403 Forbidden"),
            ("/out", 1, true, &format!("status 302 Found {elsewhere}")),
            ("/moved", 1, false, &format!("status 301 Moved Permanently {elsewhere}")),
            ("/round", 6, false, "too many redirects"),
            ("/nowhere", 1, false, "status 302 Found without a location"),
            ("/long", 1, true, "the response is longer than 1048576 bytes"),
            ("/declared", 1, true, "the response is longer than 1048576 bytes"),
        ] {
            let error = get(&client, &url, path).await.unwrap_err();
            assert_eq!((error.to_string().as_str(), error.is_refused), (message, is_refused));
            assert_eq!(server.requests().len(), requests, "{path}");
        }
        let error = get(&client, &"ftp://127.0.0.1/".parse().unwrap(), "/").await.unwrap_err();
        assert!(!error.again && !error.is_network, "{error}");
    }

    #[tokio::test]
    async fn redirects_are_followed_as_allowed_and_the_key_stays_with_its_server() {
        let (other, elsewhere) = start("").await;
        let (server, url) = start(elsewhere.as_str()).await;
        let client = |redirects| {
            let (key, bearer_for) = (Some(ServerKey::new(KEY)), Some(url.clone()));
            HttpClient::new(HttpSettings { redirects, key, bearer_for, ..settings() }).unwrap()
        };
        let anywhere = client(Some(Box::new(|_: &Url| true)));
        assert_eq!(get(&anywhere, &url, "/in").await.unwrap(), "page");
        assert_eq!(
            server.requests(),
            [format!("GET /in (Bearer {KEY})"), format!("GET /page (Bearer {KEY})")]
        );
        assert_eq!(get(&anywhere, &url, "/out").await.unwrap(), "page");
        assert_eq!((server.requests().len(), other.requests()), (1, vec!["GET /page".to_owned()]));
        // A request with a body stays where it is sent, and so do all requests without permission.
        let post = HttpRequest {
            method: Method::POST,
            body: Some(b"{}".to_vec()),
            ..HttpRequest::get(url.join("/in").unwrap())
        };
        anywhere.send(&post, |response| ready(response.accepted())).await.unwrap_err();
        let error = get(&client(None), &url, "/out").await.unwrap_err().to_string();
        assert!(error.contains("status 302 Found") && error.contains("which is not followed"), "{error}");
        assert_eq!((server.requests().len(), other.requests().len()), (2, 0));
        // An accepted redirect is a response.
        let head = HttpRequest {
            method: Method::HEAD,
            accepts: |status| status.is_redirection(),
            ..HttpRequest::get(url.join("/out").unwrap())
        };
        let response = anywhere.send(&head, |response| ready(response.accepted())).await.unwrap();
        assert_eq!(response.header("location"), Some(elsewhere.join("/page").unwrap().as_str()));
        assert_eq!(other.requests().len(), 0);
    }

    #[test]
    fn redirects_do_not_leave_tls() {
        let settings = HttpSettings { redirects: Some(Box::new(|_: &Url| true)), ..settings() };
        let client = HttpClient::new(settings).unwrap();
        let response = || {
            let response = Response::builder().status(302).header("location", "http://example.com/");
            reqwest::Response::from(response.body("").unwrap())
        };
        let to = |from: &str| client.redirected(&Method::GET, &from.parse().unwrap(), &response());
        assert!(to("http://example.org/").is_ok());
        let error = to("https://example.org/").unwrap_err();
        assert!(error.message.contains("example.com, which is not encrypted"), "{error}");
    }

    #[tokio::test]
    async fn messages_do_not_contain_the_key_or_the_url() {
        let key = Some(ServerKey::new(KEY));
        let client = HttpClient::new(HttpSettings { key, first_retries: 1, ..settings() }).unwrap();
        let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let url: Url = format!("http://{closed}/{KEY}").parse().unwrap();
        let error = get(&client, &url, &format!("/{KEY}")).await.unwrap_err();
        assert!(error.is_network && !format!("{error} {error:?} {client:?}").contains("SECRET"), "{error}");
        let (server, url) = start("").await;
        let read = |_| ready(Err::<(), _>(HttpError::again(format!("wrong key {KEY}"))));
        let error = client.send(&HttpRequest::get(url.as_str()), read).await.unwrap_err();
        assert_eq!(error.message, "wrong key [key]");
        assert_eq!(server.requests().len(), 3, "the service has responded");
        let invalid = HttpSettings {
            key: Some(ServerKey::new("line\nbreak")),
            bearer_for: Some(url),
            ..HttpSettings::default()
        };
        assert!(HttpClient::new(invalid).unwrap_err().contains("not allowed in a header"));
    }

    #[test]
    fn a_key_is_not_sent_unencrypted_to_another_machine() {
        let authorization = |server: &str| {
            let (key, bearer_for) = (Some(ServerKey::new(KEY)), Some(server.parse().unwrap()));
            let client = HttpClient::new(HttpSettings { key, bearer_for, ..HttpSettings::default() });
            client.unwrap().authorization
        };
        assert!(authorization("http://models.example/").is_none());
        assert!(authorization("https://models.example/").is_some());
        assert!(authorization("http://127.0.0.1:8000/").is_some());
    }
}
