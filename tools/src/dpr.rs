//! Ranks passages with an in-process DPR reader: `--tool rank=dpr:<folder>`.

use std::path::Path;

use async_trait::async_trait;
use lumos_engine::{DprReader, EncoderError, LoadError, ReaderPassage};
use lumos_tasks::{Passage, ToolCall, ToolReply};

use super::set::not_mine;
use super::{ToolFault, Tools};

/// The reader of the original (`facebook/dpr-reader-multiset-base`), or another DPR reader. Calls of many
/// episodes are batched.
#[derive(Debug, Clone)]
pub struct DprRanker {
    reader: DprReader,
}

impl DprRanker {
    /// Incremented when scores of the same weights change.
    pub const VERSION: u32 = 1;

    /// Opens a folder in Hugging Face format.
    ///
    /// # Errors
    /// If it is not the folder of a reader.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        Ok(Self { reader: DprReader::open(folder, None)? })
    }
}

#[async_trait]
impl Tools for DprRanker {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Rank { question, passages } = call else { return Err(not_mine(call, "dpr")) };
        let passage =
            |Passage { title, text }: &Passage| ReaderPassage { title: title.clone(), text: text.clone() };
        let scores = self
            .reader
            .score(question, passages.iter().map(passage).collect())
            .await
            .map_err(|error: EncoderError| ToolFault { tool: "rank", message: error.to_string() })?;
        Ok(ToolReply::Rank(scores.into_iter().map(f64::from).collect()))
    }
}
