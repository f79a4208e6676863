//! Texts ranked by a cross-encoder in this process: `--tool rank=cross-encoder:<folder>`.

use std::path::Path;

use async_trait::async_trait;
use lumos_engine::{CrossEncoder, LoadError};
use lumos_tasks::{Passage, ToolCall, ToolReply};

use super::set::not_mine;
use super::{ToolFault, Tools};

/// The cross-encoders of the original (`cross-encoder/stsb-roberta-large` for shops,
/// `osunlp/MindAct_CandidateGeneration_deberta-v3-base` for elements of pages), or others of their kinds. Calls of
/// many episodes are scored together.
///
/// Scores are logits. The library of the original takes the logistic function of them, which keeps the order but
/// makes equal what lies far out.
#[derive(Debug, Clone)]
pub struct CrossEncoderRanker {
    encoder: CrossEncoder,
}

impl CrossEncoderRanker {
    /// Raised when scores of the same weights change.
    pub const VERSION: u32 = 1;

    /// Opens a Hugging Face folder.
    ///
    /// # Errors
    /// If it is not the folder of a cross-encoder.
    pub fn open(folder: &Path) -> Result<Self, LoadError> {
        Ok(Self { encoder: CrossEncoder::open(folder, None)? })
    }
}

/// The backend of `rank` that reads a model's folder, by the `model_type` of its config.json; a DPR reader's where
/// there is none, whose backend says what is wrong with it.
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

/// What stands beside the query. A text without a title stands alone.
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
