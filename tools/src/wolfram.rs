//! WolframAlpha over HTTP: the service that the original uses (`https://products.wolframalpha.com/api`).

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lumos_http::{
    HttpClient, HttpError, HttpRequest, HttpResponse, HttpSettings, ServerKey, is_private, pace_of_rate,
};
use lumos_tasks::{MathsReply, ToolCall, ToolReply};
use serde::Deserialize;
use url::Url;

use super::backend::{BackendDescription, BackendError, BackendResources, NamedBackend};
use super::replies::Remembering;
use super::tool::not_mine;
use super::{ToolFault, Tools};

/// `maths=wolfram`.
pub(super) const BACKEND: BackendDescription = BackendDescription {
    tool: Some("maths"),
    forms: &["wolfram"],
    parse: |_, backend| Ok((backend == "wolfram").then(|| Box::new(NamedWolfram) as Box<dyn NamedBackend>)),
};

/// Maximum size of a response in bytes.
const LARGEST_BODY: usize = 16 << 20;
/// Longest pause that the service may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// Requests per second.
const RATE: &str = "LUMOS_WOLFRAM_RATE";

/// Settings of WolframAlpha.
#[derive(Debug, Clone)]
pub struct WolframSettings {
    /// The app id. Never logged, recorded or displayed.
    pub app_id: ServerKey,
    /// The full-results endpoint.
    pub endpoint: String,
    /// Time limit of a request.
    pub timeout: Duration,
    /// Number of retries.
    pub retries: usize,
    /// Minimum time between two requests.
    pub pace: Duration,
}

impl WolframSettings {
    /// Settings of the public service: 30 s per request, 4 retries, at most 2 requests/s.
    pub fn new(app_id: impl Into<String>) -> Self {
        Self {
            app_id: ServerKey::new(app_id),
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
        if let Some(rate) = set(RATE) {
            settings.pace = pace_of_rate(RATE, &rate)?;
        }
        Ok(settings)
    }
}

/// The WolframAlpha backend.
#[derive(Debug)]
pub struct Wolfram {
    client: HttpClient,
    endpoint: Url,
    app_id: ServerKey,
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
        let client = HttpClient::new(HttpSettings {
            timeout: Some(settings.timeout),
            retries: settings.retries,
            first_pause: settings.pace.max(Duration::from_millis(10)),
            pace: settings.pace,
            longest_pause: LONGEST_PAUSE,
            most_bytes: LARGEST_BODY,
            // It is part of the address, so redirects are not followed.
            key: Some(settings.app_id.clone()),
            ..HttpSettings::default()
        })?;
        Ok(Self { client, endpoint, app_id: settings.app_id })
    }
}

/// WolframAlpha with the settings of the environment.
struct NamedWolfram;

impl NamedBackend for NamedWolfram {
    fn version(&self) -> u32 {
        0
    }

    fn check_host(&self) -> Result<(), String> {
        let settings = WolframSettings::from_environment();
        settings.map(drop).map_err(|why| format!("cannot be used from this host: {why}"))
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        let wolfram = WolframSettings::from_environment().and_then(Wolfram::new);
        let wolfram = wolfram.map_err(BackendError::Unusable)?;
        Ok(Arc::new(Remembering::new(Arc::new(wolfram))))
    }
}

/// Reads a response.
fn read(response: HttpResponse) -> Result<MathsReply, HttpError> {
    let response = response.accepted().map_err(|mut error| {
        if !error.again {
            error.message.push_str("; hint: check WOLFRAM_APP_ID");
        }
        error
    })?;
    let envelope: Envelope = serde_json::from_slice(&response.body)
        .map_err(|error| HttpError::again(format!("invalid response: {error}")))?;
    envelope.queryresult.reply().map_err(HttpError::last)
}

#[async_trait]
impl Tools for Wolfram {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Maths { query } = call else { return Err(not_mine(call, "wolfram")) };
        let mut address = self.endpoint.clone();
        address
            .query_pairs_mut()
            .append_pair("input", query)
            .append_pair("format", "plaintext")
            .append_pair("output", "json")
            .append_pair("appid", self.app_id.expose());
        match self.client.send(&HttpRequest::get(address), |response| ready(read(response))).await {
            Ok(reply) => Ok(ToolReply::Maths(reply)),
            Err(error) => Err(ToolFault { tool: "maths".into(), message: error.message }),
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
