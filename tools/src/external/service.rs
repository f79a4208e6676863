//! Servers: `--tool NAME=http://…` or `NAME=https://…`. A call is sent as a JSON object with POST
//! ([`message`]); the reply is a JSON object with status 200.
//!
//! A request is repeated after a lost connection and after statuses that may change (408, 409, 425, 429, 5xx), so a
//! server may receive a call more than once.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use lumos_http::{HttpClient, HttpError, HttpRequest, HttpResponse, HttpSettings, ServerKey};
use lumos_tasks::{ToolCall, ToolReply};
use url::Url;

use super::limits::{LARGEST_REPLY, ToolLimits};
use super::message::{self, Request};
use crate::backend::{BackendDescription, BackendError, BackendResources, NamedBackend};
use crate::replies::Remembering;
use crate::tool::{ToolFault, Tools};

/// Start of the variable with the key of a tool's server; the tool's name follows in capitals.
const KEY: &str = "LUMOS_TOOL_KEY_";

/// `NAME=http://…`, `NAME=https://…`.
pub(crate) const BACKEND: BackendDescription = BackendDescription {
    tool: None,
    forms: &["http://<host>", "https://<host>"],
    parse: |tool, backend| {
        if !is_address(backend) {
            return Ok(None);
        }
        let url = address(backend)?;
        Ok(Some(Box::new(NamedService { tool: tool.to_owned(), url })))
    },
};

/// Whether a text begins like the address of a server.
pub(super) fn is_address(text: &str) -> bool {
    text.starts_with("http:") || text.starts_with("https:")
}

/// Parses the address of a server.
///
/// # Errors
/// If it is invalid, or contains something that must not be recorded.
pub(super) fn address(text: &str) -> Result<Url, BackendError> {
    let invalid = |why: &str| BackendError::Invalid(why.to_owned());
    let url = Url::parse(text).map_err(|error| invalid(&format!("invalid address: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(invalid(&format!(
            "user and password are not allowed in an address, because reports record it; hint: set {KEY}<NAME> to a \
             bearer token"
        )));
    }
    if url.fragment().is_some() {
        return Err(invalid("an address cannot contain `#`"));
    }
    Ok(url)
}

/// Returns the name of the environment variable with the key of a tool's server.
fn key_variable(tool: &str) -> String {
    format!("{KEY}{}", tool.to_uppercase().replace('-', "_"))
}

/// Returns the key of a tool's server, if one is set.
///
/// # Errors
/// If it would be sent unencrypted.
pub(super) fn key(tool: &str, url: &Url) -> Result<Option<ServerKey>, BackendError> {
    let variable = key_variable(tool);
    let key = std::env::var(&variable).ok().filter(|key| !key.is_empty());
    if key.is_some() && !lumos_http::is_private(url) {
        return Err(BackendError::Unusable(format!(
            "the key in {variable} would be sent unencrypted; hint: use an https:// address"
        )));
    }
    Ok(key.map(ServerKey::new))
}

/// Returns the client of a tool's server.
pub(super) fn client(
    tool: &str,
    url: &Url,
    key: Option<ServerKey>,
    limits: ToolLimits,
) -> Result<HttpClient, BackendError> {
    let settings = HttpSettings {
        timeout: Some(limits.call),
        most_bytes: LARGEST_REPLY,
        pace: limits.pace,
        bearer_for: key.is_some().then(|| url.clone()),
        key,
        ..HttpSettings::default()
    };
    let unusable = |error| BackendError::Unusable(format!("{}: {error}", key_variable(tool)));
    HttpClient::new(settings).map_err(unusable)
}

/// A server as named on the command line.
struct NamedService {
    tool: String,
    url: Url,
}

impl NamedBackend for NamedService {
    fn version(&self) -> u32 {
        1
    }

    fn needs_permission(&self) -> bool {
        true
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        let key = key(&self.tool, &self.url)?;
        let client = client(&self.tool, &self.url, key, ToolLimits::from_environment()?)?;
        let requests = AtomicU64::new(0);
        let tool = ServiceTool { tool: self.tool.clone(), url: self.url.clone(), client, requests };
        Ok(Arc::new(Remembering::new(Arc::new(tool))))
    }
}

/// A server that answers calls.
struct ServiceTool {
    tool: String,
    url: Url,
    client: HttpClient,
    requests: AtomicU64,
}

#[async_trait]
impl Tools for ServiceTool {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let fault = |message| ToolFault { tool: self.tool.clone().into(), message };
        let (operation, arguments) = message::of_call(call, "http")?;
        let id = self.requests.fetch_add(1, Ordering::Relaxed) + 1;
        let request = serde_json::to_vec(&Request { id, operation, arguments });
        let request = request.map_err(|error| fault(error.to_string()))?;
        let request = HttpRequest::post(self.url.as_str(), request);
        let sent = self.client.send(&request, |response| {
            let read = |response: HttpResponse| message::read(&response.body, id).map_err(HttpError::last);
            ready(response.accepted().and_then(read))
        });
        sent.await.map_err(|error| fault(error.message))
    }
}

#[cfg(test)]
#[path = "tests/service.rs"]
mod tests;
