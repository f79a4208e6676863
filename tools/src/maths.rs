//! Exact mathematics in this process: `--tool maths=native`.

use std::sync::Arc;

use async_trait::async_trait;
use lumos_environments::maths::{self, MathsAnswer};
use lumos_tasks::{MathsReply, ToolCall, ToolReply};

use super::backend::{BackendDescription, BackendError, BackendResources, NamedBackend};
use super::tool::{blocking, not_mine};
use super::{ToolFault, Tools};

/// `maths=native`.
pub(super) const BACKEND: BackendDescription = BackendDescription {
    tool: Some("maths"),
    forms: &["native"],
    parse: |_, backend| Ok((backend == "native").then(|| Box::new(NativeMaths) as Box<dyn NamedBackend>)),
};

/// The native mathematics service: exact, without network access.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct NativeMaths;

impl NativeMaths {
    /// Incremented when answers change, so that results with old and new answers are not mixed.
    pub(crate) const VERSION: u32 = 1;

    /// Answers a query.
    pub(crate) fn answer(query: &str) -> MathsReply {
        match maths::answer(query) {
            Ok(MathsAnswer::One(text)) => MathsReply::One(text),
            Ok(MathsAnswer::Many(texts)) => MathsReply::Many(texts.into_iter().map(Some).collect()),
            Err(error) => MathsReply::NoResult { message: error.to_string() },
        }
    }
}

impl NamedBackend for NativeMaths {
    fn version(&self) -> u32 {
        Self::VERSION
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        Ok(Arc::new(Self))
    }
}

#[async_trait]
impl Tools for NativeMaths {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Maths { query } = call else { return Err(not_mine(call, "native")) };
        let query = query.clone();
        // A query may take up to 50 ms, which is too long for a thread of the runtime.
        blocking("maths", move || ToolReply::Maths(Self::answer(&query))).await
    }
}
