//! A backend of models: `--model says:TEXT` replies with the text to every prompt. A real one would call a server or a
//! library here.

use std::sync::Arc;

use async_trait::async_trait;
use lumos_eval::models::{ModelBackend, ModelBackendDescription, ModelError};
use lumos_eval::tasks::{Completion, Request};

struct Says(String);

#[async_trait]
impl ModelBackend for Says {
    async fn complete(&self, request: Request) -> Result<Completion, ModelError> {
        // `request.prompt()` is the text of the prompt.
        let _ = request;
        Ok(Completion::recorded(self.0.clone()))
    }
}

pub(crate) static SAYS: ModelBackendDescription = ModelBackendDescription {
    backend: "says",
    version: 1,
    identify: |text| Ok(text.as_bytes().to_vec()),
    // It uses no files and no servers.
    check: |_, _| Ok(()),
    open: |text| Ok(Arc::new(Says(text.to_owned()))),
};
