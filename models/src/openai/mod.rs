//! Models on an OpenAI-compatible server: `openai:<model>@<base url>`, and `openai-chat:<model>@<base url>` for models
//! that take conversations of planner and grounder over the chat interface.
//!
//! Chats go to `/chat/completions`; raw text and token ids go to `/completions`
//! (<https://platform.openai.com/docs/api-reference/completions>). Lumos modules take raw text without BOS,
//! which that interface cannot request. Servers that support vLLM's `add_special_tokens` receive that field,
//! others receive requests without it (`docs/fidelity.md`). Requests also contain fields that disable penalties
//! for repeated tokens, which some servers apply by default. The server is part of the model's identity; its
//! weights are unknown. Before a run, a model is checked, because a name that the server does not know would fail every
//! unit.

mod chat_reply;
mod explain;
mod metrics;
mod name;
mod server;
mod settings;
mod wire;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use http::StatusCode;
use lumos_http::HttpError;
use lumos_tasks::{Completion, Input, Message, PromptTemplate, Request, Role, Sampling, ServerUse, Stop};
use server::Server;
use url::Url;
use wire::{Dialect, Extension};

use super::chat::{ChatTemplate, rendered};
use super::{ModelBackend, ModelError};

pub(super) use chat_reply::without_thoughts;
pub use name::OpenAiName;
pub use settings::{OpenAiSettings, Price};

/// Maximum number of available models named in the error.
const NAMED: usize = 10;

/// Number of servers above which those without users are dropped, with their connections. Runs of a queue choose the
/// addresses.
const SERVERS: usize = 64;

/// Clients of servers. All models of a server share its client, so that limits apply to them together.
#[derive(Debug, Default)]
pub(super) struct Servers {
    by_url: Mutex<HashMap<Url, Arc<Server>>>,
}

impl Servers {
    /// Returns the backend of a model. Settings come from the environment unless they are given.
    ///
    /// # Errors
    /// If a setting is invalid.
    pub(super) fn backend(
        &self,
        name: OpenAiName,
        settings: Option<&OpenAiSettings>,
    ) -> Result<OpenAiBackend, String> {
        let (name, url) = name.resolved()?;
        let mut servers = self.by_url.lock().unwrap_or_else(PoisonError::into_inner);
        let server = match servers.get(&url) {
            Some(server) => Arc::clone(server),
            None => {
                let settings = match settings {
                    Some(settings) => settings.clone(),
                    None => OpenAiSettings::from_environment(&url)?,
                };
                let server = Arc::new(Server::new(url.clone(), settings)?);
                if servers.len() >= SERVERS {
                    servers.retain(|_, server| Arc::strong_count(server) > 1);
                }
                servers.insert(url, Arc::clone(&server));
                server
            }
        };
        Ok(OpenAiBackend { model: name.model, is_chat: name.is_chat, server, dialect: Mutex::default() })
    }
}

impl Servers {
    /// Lists the servers that received requests, by address.
    pub(super) fn used(&self) -> Vec<ServerUse> {
        let servers = self.by_url.lock().unwrap_or_else(PoisonError::into_inner);
        let mut used = Vec::new();
        for server in servers.values() {
            ServerUse::merge(&mut used, server.used().as_slice());
        }
        used.sort_by(|one, other| one.server.cmp(&other.server));
        used
    }
}

/// One model of a server.
#[derive(Debug)]
pub(super) struct OpenAiBackend {
    model: String,
    /// Whether conversations go to the chat interface.
    is_chat: bool,
    server: Arc<Server>,
    /// The fields that the server supports for this model, as far as known.
    dialect: Mutex<Dialect>,
}

impl OpenAiBackend {
    /// Returns the price of the model, if it is known.
    pub(super) fn price(&self) -> Option<Price> {
        self.server.settings.prices.get(&self.model).copied()
    }

    /// Returns a dialect without the field that caused the rejection of a request, if that field is known.
    fn simpler(&self, request: &Request, dialect: Dialect, error: &HttpError) -> Option<Dialect> {
        let (status, explanation) = self.server.rejection(error)?;
        if !matches!(status, StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY) {
            return None;
        }
        let extension = Extension::ALL
            .into_iter()
            .find(|extension| dialect.has(*extension) && explanation.names(extension.field()));
        let simpler = if let Some(extension) = extension {
            let (field, risk) = (extension.field(), extension.risk());
            tracing::warn!(model = self.model, "the server does not support `{field}`: {risk}");
            dialect.without(extension)
        } else if explanation.names("max_completion_tokens") && dialect.max_tokens && wire::is_chat(request) {
            Dialect { max_tokens: false, ..dialect }
        } else {
            return None;
        };
        *self.dialect.lock().unwrap_or_else(PoisonError::into_inner) = simpler;
        Some(simpler)
    }
}

/// Renders a conversation as text, unless its messages go to the chat interface.
pub(super) fn server_request(request: Request) -> Result<Request, ModelError> {
    match &request.input {
        Input::Templated(prompt) if prompt.template != PromptTemplate::Chat => {
            // The server's tokenizer is unknown, and so are its special tokens.
            let rendered = rendered(prompt, &ChatTemplate::plain()).map_err(ModelError::Failed)?;
            Ok(Request { input: Input::Raw(rendered.text), ..request })
        }
        _ => Ok(request),
    }
}

#[async_trait]
impl ModelBackend for OpenAiBackend {
    async fn complete(&self, request: Request) -> Result<Completion, ModelError> {
        let request = server_request(request)?;
        let mut dialect = *self.dialect.lock().unwrap_or_else(PoisonError::into_inner);
        let mut completion = loop {
            let body = wire::body(&self.model, &request, dialect);
            let read = |answer: &[u8]| wire::read(answer, &request);
            Server::watch_load(&self.server);
            match self.server.post(wire::path(&request), &body, false, read).await {
                Ok(completion) => break completion,
                Err(error) => match self.simpler(&request, dialect, &error) {
                    // Terminates, because each iteration removes a field.
                    Some(simpler) => dialect = simpler,
                    None => return Err(self.error(error, &request)),
                },
            }
        };
        if let Some(key) = &self.server.settings.key {
            completion.text = key.redact_reply(completion.text);
        }
        let tokens = completion.prompt_tokens.zip(completion.completion_tokens);
        completion.cost = self.price().zip(tokens).map(|(price, (read, written))| price.of(read, written));
        Ok(completion)
    }
}

impl OpenAiBackend {
    fn error(&self, error: HttpError, request: &Request) -> ModelError {
        let Some((status, explanation)) = self.server.rejection(&error) else {
            return ModelError::Failed(error.message);
        };
        if explanation.is_about_the_prompt() {
            return ModelError::Refused(format!("the server rejected the prompt{explanation}"));
        }
        let hint = match status {
            StatusCode::NOT_FOUND if !wire::is_chat(request) => {
                "; hint: this interface needs a server with /completions; for a server or model with a chat \
                 interface only, pass openai-chat:<model>@<base url>"
            }
            StatusCode::NOT_FOUND => "; hint: check the address and the model name",
            _ => "",
        };
        let model = &self.model;
        ModelError::Failed(format!(
            "the server rejected the request for {model} ({status}){explanation}{hint}"
        ))
    }

    /// Requests the server's list of models. If the model is not listed, requests one token from it, because
    /// servers also accept names that they do not list: aliases, names without a tag, or any name at all. If
    /// the server lists no models or cannot be reached at the moment, the check passes.
    ///
    /// # Errors
    /// If the server neither lists the model nor accepts its name. The error is a message.
    pub(crate) async fn check(&self, role: Role) -> Result<(), String> {
        let Some(listed) = self.server.models().await else { return Ok(()) };
        if listed.contains(&self.model) {
            return Ok(());
        }
        let request = one_token(role, self.is_chat);
        let plain = Dialect { extensions: [false; 3], ..Dialect::default() };
        let body = wire::body(&self.model, &request, plain);
        let asked = self.server.post(wire::path(&request), &body, true, |_| Ok(())).await;
        let Some((status, explanation)) = asked.err().and_then(|error| self.server.rejection(&error)) else {
            return Ok(());
        };
        // The server may reject a different part of this request, which the run does not use.
        if status != StatusCode::NOT_FOUND && !explanation.names(&self.model) {
            return Ok(());
        }
        let mut known: Vec<String> =
            listed.iter().take(NAMED).map(|name| format!("`{}`", self.server.clean(name))).collect();
        if listed.len() > NAMED {
            known.push(format!("and {} more", listed.len() - NAMED));
        }
        let known = if known.is_empty() { "no models".to_owned() } else { known.join(", ") };
        Err(format!("the server has no model `{}` ({status}{explanation}); it lists {known}", self.model))
    }
}

/// Creates the smallest request of a role.
fn one_token(role: Role, is_chat: bool) -> Request {
    let input = if is_chat || matches!(role, Role::Qa | Role::Judge) {
        Input::Chat(vec![Message { role: "user".to_owned(), content: "Hello".to_owned() }])
    } else {
        Input::Raw("Hello".to_owned())
    };
    Request { role, input, stop: Stop::Never, max_new_tokens: 1, sampling: Sampling::Greedy, seed: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_without_users_are_dropped_when_there_are_many() {
        let servers = Servers::default();
        let settings = OpenAiSettings::default();
        let backend = |number: usize| {
            let name: OpenAiName = format!("m@http://127.0.0.1:9/v{number}").parse().unwrap();
            servers.backend(name, Some(&settings)).unwrap()
        };
        let kept = || servers.by_url.lock().unwrap().len();
        let used: Vec<OpenAiBackend> = (0..3).map(backend).collect();
        for number in 3..SERVERS {
            backend(number);
        }
        assert_eq!(kept(), SERVERS);
        backend(SERVERS);
        assert_eq!(kept(), used.len() + 1);
        // A model that is loaded again shares the server of the others.
        assert!(Arc::ptr_eq(&backend(0).server, &used[0].server));
    }
}
