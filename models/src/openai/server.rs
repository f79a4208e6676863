//! Client of one server, shared by its models: rate limits, and the interpretation of responses.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lumos_http::{bypasses_proxy, is_private, retry_after};
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, LOCATION, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

use super::explain::{Explanation, explain};
use super::settings::{OpenAiSettings, key_variable, key_variables};

/// How long no requests are sent after the server rejected the API key.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Maximum bytes of an error's body that are read.
const ERROR_BODY: usize = 8 << 10;
/// Timeout for the list of models.
const LISTING: Duration = Duration::from_secs(10);
/// Timeout for establishing a connection.
const CONNECTING: Duration = Duration::from_secs(20);

/// A failed request. Messages contain no API key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Another attempt may succeed, after a pause if the server asks for one.
    Again { message: String, after: Option<Duration> },
    /// Another attempt will not succeed.
    Final(String),
    /// The server rejected the request.
    Rejected { status: StatusCode, explanation: Explanation },
}

/// Client of a server, shared by all its models.
#[derive(Debug)]
pub(super) struct Server {
    client: Client,
    url: Url,
    pub(super) settings: OpenAiSettings,
    permits: Semaphore,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// No request is sent before this time, as the server asked.
    resume: Option<Instant>,
    /// No request is sent before this time, according to the configured rate.
    next: Option<Instant>,
    /// Time and message of the API key's rejection.
    refused: Option<(Instant, String)>,
}

impl Server {
    /// Creates the client.
    ///
    /// # Errors
    /// If the API key would be sent unencrypted to another machine or is not valid in a header, or if the
    /// client cannot be created.
    pub(super) fn new(url: Url, settings: OpenAiSettings) -> Result<Self, String> {
        let mut headers = HeaderMap::new();
        if let Some(key) = &settings.key {
            if !is_private(&url) {
                let (server, variable) = (authority(&url), key_variable(&url));
                return Err(format!(
                    "the key for `{server}` would be sent unencrypted over http://; hint: use https:// in \
                     the model name, or set {variable}= (empty) if the server does not require a key"
                ));
            }
            let mut value = HeaderValue::from_str(&format!("Bearer {}", key.expose())).map_err(|_| {
                "invalid API key: it has characters that are not allowed in a header".to_owned()
            })?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        let mut client = Client::builder();
        if bypasses_proxy(&url) {
            client = client.no_proxy();
        }
        let client = client
            .timeout(settings.timeout)
            .connect_timeout(settings.timeout.min(CONNECTING))
            .default_headers(headers)
            // Prompts and keys are only sent to the configured server.
            .redirect(Policy::none())
            .user_agent(concat!("lumos-eval/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.to_string())?;
        let permits = Semaphore::new(settings.concurrency.clamp(1, Semaphore::MAX_PERMITS));
        Ok(Self { client, url, settings, permits, state: Mutex::default() })
    }

    /// Posts a body to a path below the base URL and reads the response.
    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<Vec<u8>, Attempt> {
        let _permit =
            self.permits.acquire().await.map_err(|_| Attempt::Final("the client is closed".to_owned()))?;
        self.wait().await?;
        let url = format!("{}/{path}", self.url.as_str().trim_end_matches('/'));
        let response = self.client.post(url).json(body).send().await.map_err(|error| self.again(error))?;
        let status = response.status();
        if status.is_success() {
            return self.read(response, self.settings.largest_answer).await;
        }
        Err(self.judge(status, response).await)
    }

    /// Requests the names of the server's models; `None` if that fails. Not retried, because the list is
    /// optional.
    pub(super) async fn models(&self) -> Option<Vec<String>> {
        #[derive(Deserialize)]
        struct Listed {
            data: Vec<Model>,
        }
        #[derive(Deserialize)]
        struct Model {
            id: String,
        }
        let _permit = self.permits.acquire().await.ok()?;
        let url = format!("{}/models", self.url.as_str().trim_end_matches('/'));
        let asked = self.client.get(url).timeout(self.settings.timeout.min(LISTING)).send().await;
        let response = asked.ok().filter(|response| response.status().is_success())?;
        let body = self.read(response, self.settings.largest_answer).await.ok()?;
        let listed: Listed = serde_json::from_slice(&body).ok()?;
        Some(listed.data.into_iter().map(|model| model.id).collect())
    }

    /// Waits for the configured rate and for the pause that the server asked for.
    async fn wait(&self) -> Result<(), Attempt> {
        if let Some((when, message)) = &self.state().refused
            && when.elapsed() < REFUSED_FOR
        {
            return Err(Attempt::Final(message.clone()));
        }
        loop {
            match self.turn() {
                Ok(turn) => {
                    sleep_until(turn).await;
                    return Ok(());
                }
                Err(resume) => sleep_until(resume).await,
            }
        }
    }

    /// Reserves the next slot of the configured rate. If the server asked for a pause, returns its end as the
    /// error.
    fn turn(&self) -> Result<Instant, Instant> {
        let now = Instant::now();
        let mut state = self.state();
        if let Some(resume) = state.resume.filter(|resume| *resume > now) {
            return Err(resume);
        }
        let turn = state.next.map_or(now, |next| next.max(now));
        state.next = turn.checked_add(self.settings.pace);
        Ok(turn)
    }

    /// Maps an unsuccessful response to an error.
    async fn judge(&self, status: StatusCode, response: Response) -> Attempt {
        let server = authority(&self.url);
        if status.is_redirection() {
            let to = response.headers().get(LOCATION).and_then(|value| value.to_str().ok());
            let to = to.and_then(|to| self.url.join(to).ok()).map(|to| authority(&to));
            let to = self.clean(&to.unwrap_or_else(|| "an unknown address".to_owned()));
            return Attempt::Final(format!(
                "{server} answered {status} with a redirect to {to}, which is not followed; hint: use the \
                 new address in the model name if you trust it"
            ));
        }
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.and_then(retry_after);
        // If the body cannot be read, the status is sufficient.
        let body = self.read_some(response).await;
        let explanation = explain(&body).map(|text| self.clean(text));
        let message = format!("{server} answered {status}{explanation}");
        match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let variables = key_variables(&self.url);
                let sent = if self.settings.key.is_some() { "API key rejected" } else { "API key required" };
                let message = format!("{message}: {sent}; hint: set {variables} and resume the run");
                self.state().refused = Some((Instant::now(), message.clone()));
                Attempt::Final(message)
            }
            StatusCode::TOO_MANY_REQUESTS if explanation.is_quota() => {
                Attempt::Final(format!("{message}: quota exhausted"))
            }
            StatusCode::REQUEST_TIMEOUT
            | StatusCode::CONFLICT
            | StatusCode::TOO_EARLY
            | StatusCode::TOO_MANY_REQUESTS => self.later(message, after),
            status if status.is_server_error() => self.later(message, after),
            status => Attempt::Rejected { status, explanation },
        }
    }

    /// Creates a retryable error. If the server specifies a delay, all requests wait for it.
    fn later(&self, message: String, after: Option<Duration>) -> Attempt {
        match after {
            Some(after) if after > self.settings.longest_pause => Attempt::Final(format!(
                "{message}: the requested delay of {} s exceeds the limit",
                after.as_secs()
            )),
            after => {
                if let Some(resume) = after.and_then(|after| Instant::now().checked_add(after)) {
                    let mut state = self.state();
                    state.resume = state.resume.max(Some(resume));
                }
                Attempt::Again { message, after }
            }
        }
    }

    /// Reads a response of at most `most` bytes.
    async fn read(&self, mut response: Response, most: usize) -> Result<Vec<u8>, Attempt> {
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| self.again(error))? {
            if body.len() + chunk.len() > most {
                let server = authority(&self.url);
                return Err(Attempt::Final(format!("response of {server} exceeds {most} bytes")));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// Reads the beginning of a body, as far as it can be read.
    async fn read_some(&self, mut response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        while body.len() < ERROR_BODY
            && let Ok(Some(chunk)) = response.chunk().await
        {
            body.extend_from_slice(&chunk[..chunk.len().min(ERROR_BODY - body.len())]);
        }
        body
    }

    /// Maps a connection error.
    fn again(&self, error: reqwest::Error) -> Attempt {
        let error = error.without_url();
        let mut message = format!("{}: {error}", authority(&self.url));
        let mut cause = std::error::Error::source(&error);
        while let Some(deeper) = cause {
            message = format!("{message}: {deeper}");
            cause = deeper.source();
        }
        Attempt::Again { message: self.clean(&message), after: None }
    }

    /// Removes the API key from a message.
    pub(super) fn clean(&self, message: &str) -> String {
        self.settings.key.as_ref().map_or_else(|| message.to_owned(), |key| key.redact(message))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns host and port.
fn authority(url: &Url) -> String {
    let port = url.port().map(|port| format!(":{port}")).unwrap_or_default();
    format!("{}{port}", url.host_str().unwrap_or_default())
}
