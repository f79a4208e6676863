//! Ranks texts with an in-process cross-encoder: `--tool rank=cross-encoder:<folder>`.

use std::path::Path;

use async_trait::async_trait;
use lumos_engine::{CrossEncoder, LoadError};
use lumos_tasks::{Passage, ToolCall, ToolReply};

use super::set::not_mine;
use super::{ToolFault, Tools};

/// The cross-encoders of the original (`cross-encoder/stsb-roberta-large` for shops,
/// `osunlp/MindAct_CandidateGeneration_deberta-v3-base` for page elements), or others with the same
/// architectures. Calls of many episodes are batched.
///
/// Scores are logits. The original's library applies the logistic function, which keeps the order but maps
/// extreme scores to equal values.
#[derive(Debug, Clone)]
pub struct CrossEncoderRanker {
    encoder: CrossEncoder,
}

impl CrossEncoderRanker {
    /// Incremented when scores of the same weights change.
    pub const VERSION: u32 = 1;

    /// Opens a folder in Hugging Face format.
    ///
    /// # Errors
    /// If it is not the folder of a cross-encoder.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        Ok(Self { encoder: CrossEncoder::open(folder, None)? })
    }
}

/// Returns the backend of `rank` for a model folder, by the `model_type` in its config.json. Returns `dpr` if
/// it cannot be determined; that backend reports what is wrong with the folder.
pub fn rank_backend(folder: &Path) -> &'static str {
    #[derive(serde::Deserialize)]
    struct Config {
        model_type: Option<String>,
    }
    let config = std::fs::read(folder.join("config.json")).ok();
    let config = config.and_then(|bytes| serde_json::from_slice::<Config>(&bytes).ok());
    match config.and_then(|config| config.model_type).as_deref() {
        Some("roberta" | "deberta-v2") => "cross-encoder",
        _ => "dpr",
    }
}

/// Returns the text that is scored against the query. A passage without a title is scored by its text alone.
fn text(Passage { title, text }: &Passage) -> String {
    if title.is_empty() { text.clone() } else { format!("{title} {text}") }
}

#[async_trait]
impl Tools for CrossEncoderRanker {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Rank { question, passages } = call else { return Err(not_mine(call, "cross-encoder")) };
        let scores = self
            .encoder
            .score(question, passages.iter().map(text).collect())
            .await
            .map_err(|error| ToolFault { tool: "rank", message: error.to_string() })?;
        Ok(ToolReply::Rank(scores.into_iter().map(f64::from).collect()))
    }
}
