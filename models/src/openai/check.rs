//! Checks before a run whether a server has a model, because an unknown name would fail every unit.

use lumos_tasks::{Input, Message, Request, Role, Sampling, Stop};
use reqwest::StatusCode;

use super::OpenAiBackend;
use super::server::Attempt;
use super::wire::{self, Dialect};

/// Maximum number of available models named in the error.
const NAMED: usize = 10;

impl OpenAiBackend {
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
        let request = one_token(role);
        let plain = Dialect { extensions: [false; 3], ..Dialect::default() };
        let body = wire::body(&self.model, &request, plain);
        let Err(Attempt::Rejected { status, explanation }) =
            self.server.post(wire::path(&request), &body).await
        else {
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
fn one_token(role: Role) -> Request {
    let input = match role {
        Role::Qa | Role::Judge => {
            Input::Chat(vec![Message { role: "user".to_owned(), content: "Hello".to_owned() }])
        }
        Role::Planner | Role::Grounder | Role::Answerer => Input::Raw("Hello".to_owned()),
    };
    Request { role, input, stop: Stop::Never, max_new_tokens: 1, sampling: Sampling::Greedy, seed: 0 }
}
