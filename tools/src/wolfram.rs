//! WolframAlpha over HTTP: the service that the original uses (`https://products.wolframalpha.com/api`).

use std::time::Duration;

use async_trait::async_trait;
use backon::{ExponentialBuilder, Retryable};
use lumos_http::{ServerKey, bypasses_proxy, is_private};
use lumos_tasks::{MathsReply, ToolCall, ToolReply};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};
use serde::Deserialize;
use tokio::sync::Mutex;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::tool::not_mine;
use super::{ToolFault, Tools, pace};

/// Maximum size of a response in bytes.
const LARGEST_BODY: usize = 16 << 20;

/// Settings of WolframAlpha.
#[derive(Clone)]
pub struct WolframSettings {
    /// The app id. Never logged, recorded or displayed.
    pub app_id: String,
    /// The full-results endpoint.
    pub endpoint: String,
    /// Time limit of a request.
    pub timeout: Duration,
    /// Number of retries.
    pub retries: usize,
    /// Minimum time between two requests.
    pub pace: Duration,
}

impl std::fmt::Debug for WolframSettings {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("WolframSettings")
            .field("endpoint", &self.endpoint)
            .field("timeout", &self.timeout)
            .field("retries", &self.retries)
            .field("pace", &self.pace)
            .finish_non_exhaustive()
    }
}

impl WolframSettings {
    /// Settings of the public service: 30 s per request, 4 retries, at most 2 requests/s.
    pub fn new(app_id: impl Into<String>) -> Self {
        Self {
            app_id: app_id.into(),
            endpoint: "https://api.wolframalpha.com/v2/query".to_owned(),
            timeout: Duration::from_secs(30),
            retries: 4,
            pace: Duration::from_millis(500),
        }
    }

    /// Reads the app id from `WOLFRAM_APP_ID` (or `WOLFRAM_API_KEY`, the original's name), and optionally the
    /// endpoint from `LUMOS_WOLFRAM_ENDPOINT` and the rate from `LUMOS_WOLFRAM_RATE` (requests/s).
    ///
    /// # Errors
    /// If no app id is set, or the rate is not a positive number.
    pub fn from_environment() -> Result<Self, String> {
        let set = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let app_id = set("WOLFRAM_APP_ID").or_else(|| set("WOLFRAM_API_KEY")).ok_or(
            "WOLFRAM_APP_ID is not set; hint: get an app id at developer.wolframalpha.com or use --tool \
             maths=native",
        )?;
        let mut settings = Self::new(app_id);
        if let Some(endpoint) = set("LUMOS_WOLFRAM_ENDPOINT") {
            settings.endpoint = endpoint;
        }
        if let Some(pace) = pace::from_environment("LUMOS_WOLFRAM_RATE")? {
            settings.pace = pace;
        }
        Ok(settings)
    }
}

/// The WolframAlpha backend.
#[derive(Debug)]
pub struct Wolfram {
    client: Client,
    endpoint: Url,
    settings: WolframSettings,
    pace: Mutex<Interval>,
}

/// Reasons why a request failed.
#[derive(Debug)]
enum Attempt {
    /// A retry may succeed.
    Again(String),
    /// A retry would fail again.
    Final(String),
}

impl Wolfram {
    /// Creates a client.
    ///
    /// # Errors
    /// If the endpoint is not a valid address, if the app id would be sent unencrypted, or if the client
    /// cannot be built.
    pub fn new(settings: WolframSettings) -> Result<Self, String> {
        let endpoint = Url::parse(&settings.endpoint)
            .map_err(|error| format!("invalid address `{}`: {error}", settings.endpoint))?;
        if !is_private(&endpoint) {
            let host = endpoint.host_str().unwrap_or_default();
            return Err(format!(
                "the app id would be sent unencrypted to `{host}`; hint: set LUMOS_WOLFRAM_ENDPOINT to an https:// address"
            ));
        }
        let client = Client::builder();
        let client = if bypasses_proxy(&endpoint) { client.no_proxy() } else { client };
        let client = client
            .timeout(settings.timeout)
            // The app id is part of the address and must not be sent to another host by a redirect or a
            // referrer.
            .redirect(Policy::none())
            .referer(false)
            .user_agent(concat!("lumos-eval/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.to_string())?;
        // `interval` panics if the period is zero.
        let mut pace = interval(settings.pace.max(Duration::from_micros(1)));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self { client, endpoint, settings, pace: Mutex::new(pace) })
    }

    async fn ask(&self, query: &str) -> Result<MathsReply, Attempt> {
        self.pace.lock().await.tick().await;
        let response = self
            .client
            .get(self.endpoint.clone())
            .query(&[
                ("input", query),
                ("format", "plaintext"),
                ("output", "json"),
                ("appid", &self.settings.app_id),
            ])
            .send()
            .await
            .map_err(again)?;
        let status = response.status();
        if status == StatusCode::TOO_MANY_REQUESTS || status.is_server_error() {
            return Err(Attempt::Again(format!("the service returned {status}")));
        }
        if !status.is_success() {
            return Err(Attempt::Final(format!("the service returned {status}; hint: check WOLFRAM_APP_ID")));
        }
        let body = bounded(response).await?;
        let envelope: Envelope = serde_json::from_slice(&body)
            .map_err(|error| Attempt::Again(format!("invalid response: {error}")))?;
        let key = ServerKey::new(self.settings.app_id.as_str());
        envelope.queryresult.reply().map_err(|message| Attempt::Final(key.redact(&message)))
    }
}

/// Reads a body of limited size.
async fn bounded(mut response: Response) -> Result<Vec<u8>, Attempt> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(again)? {
        if body.len() + piece.len() > LARGEST_BODY {
            return Err(Attempt::Final(format!("the response exceeds {LARGEST_BODY} bytes")));
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// Converts an error. Removes the address, which contains the app id.
fn again(error: reqwest::Error) -> Attempt {
    let error = error.without_url();
    let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
    Attempt::Again(format!("{error}{cause}"))
}

#[async_trait]
impl Tools for Wolfram {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Maths { query } = call else { return Err(not_mine(call, "wolfram")) };
        let schedule = ExponentialBuilder::default()
            .with_min_delay(self.settings.pace.max(Duration::from_millis(10)))
            .with_max_times(self.settings.retries)
            .with_jitter();
        let attempt = || self.ask(query);
        match attempt.retry(schedule).when(|error| matches!(error, Attempt::Again(_))).await {
            Ok(reply) => Ok(ToolReply::Maths(reply)),
            Err(Attempt::Again(message) | Attempt::Final(message)) => {
                Err(ToolFault { tool: "maths", message })
            }
        }
    }
}

/// The fields of a response that are used.
#[derive(Debug, Deserialize)]
struct Envelope {
    queryresult: QueryResult,
}

#[derive(Debug, Deserialize)]
struct QueryResult {
    #[serde(default)]
    error: ErrorField,
    #[serde(default)]
    pods: Vec<Pod>,
}

/// A flag, or details of the error.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ErrorField {
    Flag(bool),
    Details {
        #[serde(default)]
        code: String,
        #[serde(default)]
        msg: String,
    },
}

impl Default for ErrorField {
    fn default() -> Self {
        Self::Flag(false)
    }
}

#[derive(Debug, Deserialize)]
struct Pod {
    #[serde(default)]
    title: String,
    #[serde(default)]
    primary: bool,
    #[serde(default)]
    subpods: Vec<Subpod>,
}

#[derive(Debug, Deserialize)]
struct Subpod {
    #[serde(default)]
    plaintext: Option<String>,
}

impl QueryResult {
    /// Selects the first result pod as the original's client does: the primary one, or the one titled
    /// `Result`.
    fn reply(self) -> Result<MathsReply, String> {
        match self.error {
            ErrorField::Flag(false) => {}
            ErrorField::Flag(true) => return Err("the service reports an error".to_owned()),
            ErrorField::Details { code, msg } => {
                return Err(format!("the service reports error {code}: {msg}"));
            }
        }
        let Some(pod) = self.pods.into_iter().find(|pod| pod.primary || pod.title == "Result") else {
            return Ok(MathsReply::NoResult { message: "the service has no result".to_owned() });
        };
        let mut texts: Vec<Option<String>> =
            pod.subpods.into_iter().map(|subpod| subpod.plaintext.filter(|text| !text.is_empty())).collect();
        Ok(match (texts.len(), texts.pop()) {
            (0, _) | (1, Some(None) | None) => MathsReply::Empty,
            (1, Some(Some(text))) => MathsReply::One(text),
            (_, last) => {
                texts.extend(last);
                MathsReply::Many(texts)
            }
        })
    }
}
