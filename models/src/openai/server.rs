//! Client of one server, shared by its models, and the interpretation of its responses.

use std::future::ready;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Method, StatusCode};
use lumos_http::{
    HttpClient, HttpError, HttpRequest, HttpResponse, HttpSettings, ServerLoad, host_and_port, is_private,
};
use lumos_tasks::ServerUse;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use url::Url;

use super::explain::{Explanation, explain};
use super::metrics;
use super::settings::{OpenAiSettings, key_variable, key_variables};

/// How long no requests are sent after the server rejected the API key.
const REFUSED_FOR: Duration = Duration::from_secs(60);
/// Timeout for the list of models.
const LISTING: Duration = Duration::from_secs(10);

/// Interval at which a server's load is requested while requests are sent, and the timeout of such a request.
const LOAD_EVERY: Duration = Duration::from_secs(2);

/// Client of a server, shared by all its models.
#[derive(Debug)]
pub(super) struct Server {
    client: HttpClient,
    url: Url,
    load: Mutex<LoadWatch>,
    pub(super) settings: OpenAiSettings,
}

/// Whether a server's load is requested.
#[derive(Debug, Clone, Copy)]
enum LoadWatch {
    /// From this time on; `None` for at once.
    Due(Option<Instant>),
    /// No longer: the server reports none, or the number of requests is constant.
    Off,
}

impl Server {
    /// Creates the client.
    ///
    /// # Errors
    /// If the API key would be sent unencrypted to another machine or is not valid in a header, or if the
    /// client cannot be created.
    pub(super) fn new(url: Url, settings: OpenAiSettings) -> Result<Self, String> {
        if settings.key.is_some() && !is_private(&url) {
            let (server, variable) = (host_and_port(&url), key_variable(&url));
            return Err(format!(
                "the key for `{server}` would be sent unencrypted over http://; hint: use https:// in \
                 the model name, or set {variable}= (empty) if the server does not require a key"
            ));
        }
        let client = HttpClient::new(HttpSettings {
            timeout: Some(settings.timeout),
            retries: settings.retries,
            first_pause: settings.first_pause,
            longest_pause: settings.longest_pause,
            pace: settings.pace,
            concurrency: settings.concurrency,
            most_bytes: settings.largest_answer,
            key: settings.key.clone(),
            bearer_for: Some(url.clone()),
            ..HttpSettings::default()
        })?;
        let watch = if settings.concurrency.least() == settings.concurrency.most() {
            LoadWatch::Off
        } else {
            LoadWatch::Due(None)
        };
        Ok(Self { client, url, load: Mutex::new(watch), settings })
    }

    /// How many requests were sent at the same time; `None` if none succeeded and none were rejected.
    pub(super) fn used(&self) -> Option<ServerUse> {
        let (bounds, summary) = self.client.concurrency();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        (summary.successes + summary.rejections > 0).then(|| ServerUse {
            server: host_and_port(&self.url),
            least: number(bounds.least()),
            most: number(bounds.most()),
            lowest: number(summary.lowest),
            highest: number(summary.highest),
            last: number(summary.last),
            decreases: summary.decreases,
            rejections: summary.rejections,
            successes: summary.successes,
            has_load: summary.has_load,
        })
    }

    /// Requests the server's load in the background, if it is due and the server has not shown that it reports none.
    /// The address belongs to the server itself, not to the interface below its base URL.
    pub(super) fn watch_load(server: &Arc<Self>) {
        {
            let mut watch = server.load_watch();
            match *watch {
                LoadWatch::Due(at) if at.is_none_or(|at| at <= Instant::now()) => {
                    *watch = LoadWatch::Due(Some(Instant::now() + LOAD_EVERY));
                }
                LoadWatch::Due(_) | LoadWatch::Off => return,
            }
        }
        let server = Arc::clone(server);
        tokio::spawn(async move {
            match server.reported_load().await {
                Some(load) => server.client.adjust(&load),
                None if server.client.concurrency().1.has_load => {}
                None => *server.load_watch() = LoadWatch::Off,
            }
        });
    }

    async fn reported_load(&self) -> Option<ServerLoad> {
        let url = self.url.join("/metrics").ok()?;
        let request =
            HttpRequest { once: true, is_extra: true, timeout: Some(LOAD_EVERY), ..HttpRequest::get(url) };
        let response = self.client.send(&request, |response| ready(response.accepted())).await.ok()?;
        let text = str::from_utf8(&response.body).ok().filter(|text| text.len() <= metrics::MOST_BYTES)?;
        metrics::load(text)
    }

    fn load_watch(&self) -> MutexGuard<'_, LoadWatch> {
        self.load.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// URL of a path below the base URL.
    fn address(&self, path: &str) -> String {
        format!("{}/{path}", self.url.as_str().trim_end_matches('/'))
    }

    /// Posts a body to a path below the base URL, with retries unless `once`. `read` reads the response; if it fails,
    /// the request is retried.
    pub(super) async fn post<T>(
        &self,
        path: &str,
        body: &Value,
        once: bool,
        read: impl Fn(&[u8]) -> Result<T, String>,
    ) -> Result<T, HttpError> {
        let body = Some(body.to_string().into_bytes());
        let request =
            HttpRequest { method: Method::POST, body, once, ..HttpRequest::get(self.address(path)) };
        let read = |response| {
            ready(self.judge(response).and_then(|response| read(&response.body).map_err(HttpError::again)))
        };
        let posted = self.client.send(&request, read).await;
        posted
            .map_err(|error| HttpError { message: format!("{}: {error}", host_and_port(&self.url)), ..error })
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
        let request =
            HttpRequest { once: true, timeout: Some(LISTING), ..HttpRequest::get(self.address("models")) };
        let response = self.client.send(&request, |response| ready(response.accepted())).await.ok()?;
        let listed: Listed = serde_json::from_slice(&response.body).ok()?;
        Some(listed.data.into_iter().map(|model| model.id).collect())
    }

    /// Checks the status of a response.
    fn judge(&self, response: HttpResponse) -> Result<HttpResponse, HttpError> {
        let status = response.status;
        let error = match response.accepted() {
            Ok(response) => return Ok(response),
            Err(error) => error,
        };
        let explanation = self.explanation(&error);
        let message = format!("{error}{explanation}");
        Err(match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                let variables = key_variables(&self.url);
                let sent = if self.settings.key.is_some() { "API key rejected" } else { "API key required" };
                let message = format!("{message}: {sent}; hint: set {variables} and resume the run");
                self.client.suspend(REFUSED_FOR, message.clone());
                HttpError::last(message)
            }
            StatusCode::TOO_MANY_REQUESTS if explanation.is_quota() => {
                HttpError::last(format!("{message}: quota exhausted"))
            }
            _ => HttpError { message, ..error },
        })
    }

    /// Returns the status and the explanation of a server that rejected a request, if another attempt would not help.
    pub(super) fn rejection(&self, error: &HttpError) -> Option<(StatusCode, Explanation)> {
        let response = error.response.as_ref().filter(|_| !error.again)?;
        Some((response.status, self.explanation(error)))
    }

    /// Returns the explanation in an error's response, which is displayed without the API key.
    fn explanation(&self, error: &HttpError) -> Explanation {
        let body = error.response.as_ref().map_or(&[][..], |response| &response.body);
        explain(body, |text| self.clean(text))
    }

    /// Removes the API key from a message.
    pub(super) fn clean(&self, message: &str) -> String {
        self.settings.key.as_ref().map_or_else(|| message.to_owned(), |key| key.redact(message))
    }
}
