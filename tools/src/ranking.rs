//! Backends of the tool `rank`, which score passages for a question: by their words (`--tool rank=bm25`, for machines
//! without a reader model), with an in-process DPR reader (`rank=dpr:<folder>`), or with an in-process cross-encoder
//! (`rank=cross-encoder:<folder>`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use lumos_engine::{CrossEncoder, DprReader, EncoderError, LoadError, ReaderPassage, read_configuration};
use lumos_environments::retrieval;
use lumos_http::{AccessPolicy, AccessRefusal};
use lumos_models::hash_folder;
use lumos_tasks::{Passage, ToolCall, ToolReply};

use super::backend::{BackendDescription, BackendError, BackendResources, NamedBackend, hash_suffix};
use super::tool::{blocking, not_mine};
use super::{ToolFault, Tools};

/// `rank=bm25`.
pub(super) const BM25: BackendDescription = BackendDescription {
    tool: Some("rank"),
    forms: &["bm25"],
    parse: |_, backend| Ok((backend == "bm25").then(|| Box::new(Bm25Ranking) as Box<dyn NamedBackend>)),
};

/// `rank=dpr:<folder>`.
pub(super) const DPR: BackendDescription = BackendDescription {
    tool: Some("rank"),
    forms: &["dpr:<folder>"],
    parse: |_, backend| {
        let open = |folder: &Path| Ok(Arc::new(DprReader::open(folder, None)?) as Arc<dyn Tools>);
        Ok(Encoder::named(backend, "dpr:", DPR_VERSION, open))
    },
};

/// `rank=cross-encoder:<folder>`.
pub(super) const CROSS_ENCODER: BackendDescription = BackendDescription {
    tool: Some("rank"),
    forms: &["cross-encoder:<folder>"],
    parse: |_, backend| {
        let open = |folder: &Path| Ok(Arc::new(CrossEncoder::open(folder, None)?) as Arc<dyn Tools>);
        Ok(Encoder::named(backend, "cross-encoder:", CROSS_ENCODER_VERSION, open))
    },
};

/// BM25 over the passages of a call.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bm25Ranking;

impl Bm25Ranking {
    /// Version of the code that determines the replies.
    pub(super) const VERSION: u32 = retrieval::VERSION;

    /// Returns one score per passage: how well its title and text match the question.
    pub(crate) fn scores(question: &str, passages: &[Passage]) -> Vec<f64> {
        let texts = passages.iter().map(|passage| [(passage.title.as_str(), 1), (passage.text.as_str(), 1)]);
        retrieval::scores(question, texts)
    }
}

impl NamedBackend for Bm25Ranking {
    fn version(&self) -> u32 {
        Self::VERSION
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        Ok(Arc::new(Self))
    }
}

#[async_trait]
impl Tools for Bm25Ranking {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Rank { question, passages } = call else { return Err(not_mine(call, "bm25")) };
        let (question, passages) = (question.clone(), passages.clone());
        // A hundred passages take a millisecond, which is too long for a thread of the runtime.
        blocking("rank", move || ToolReply::Rank(Self::scores(&question, &passages))).await
    }
}

/// Incremented when scores of the same weights of a reader change.
const DPR_VERSION: u32 = 1;
/// Incremented when scores of the same weights of a cross-encoder change.
const CROSS_ENCODER_VERSION: u32 = 1;

/// A model in a folder that scores passages.
struct Encoder {
    folder: PathBuf,
    version: u32,
    open: fn(&Path) -> Result<Arc<dyn Tools>, LoadError>,
}

impl Encoder {
    fn named(
        backend: &str,
        prefix: &str,
        version: u32,
        open: fn(&Path) -> Result<Arc<dyn Tools>, LoadError>,
    ) -> Option<Box<dyn NamedBackend>> {
        let folder = PathBuf::from(backend.strip_prefix(prefix)?);
        Some(Box::new(Self { folder, version, open }))
    }
}

impl NamedBackend for Encoder {
    fn version(&self) -> u32 {
        self.version
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.folder)
    }

    fn check(&self, access: &AccessPolicy) -> Result<(), AccessRefusal> {
        access.check_path(&self.folder)
    }

    fn content(&self) -> Result<String, BackendError> {
        Ok(hash_folder(&self.folder).map(hash_suffix)?)
    }

    fn open(&self, _: &BackendResources) -> Result<Arc<dyn Tools>, BackendError> {
        (self.open)(&self.folder).map_err(|error| BackendError::Model(Box::new(error)))
    }
}

/// The reader of the original (`facebook/dpr-reader-multiset-base`), or another DPR reader. Calls of many
/// episodes are batched.
#[async_trait]
impl Tools for DprReader {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Rank { question, passages } = call else { return Err(not_mine(call, "dpr")) };
        let passage =
            |Passage { title, text }: &Passage| ReaderPassage { title: title.clone(), text: text.clone() };
        scored(self.score(question, passages.iter().map(passage).collect()).await)
    }
}

/// The cross-encoders of the original (`cross-encoder/stsb-roberta-large` for shops,
/// `osunlp/MindAct_CandidateGeneration_deberta-v3-base` for page elements), or others with the same
/// architectures. Calls of many episodes are batched.
///
/// Scores are logits. The original's library applies the logistic function, which keeps the order but maps
/// extreme scores to equal values. A passage without a title is scored by its text alone.
#[async_trait]
impl Tools for CrossEncoder {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Rank { question, passages } = call else { return Err(not_mine(call, "cross-encoder")) };
        let text = |Passage { title, text }: &Passage| {
            if title.is_empty() { text.clone() } else { format!("{title} {text}") }
        };
        scored(self.score(question, passages.iter().map(text).collect()).await)
    }
}

fn scored(scores: Result<Vec<f32>, EncoderError>) -> Result<ToolReply, ToolFault> {
    let scores = scores.map_err(|error| ToolFault { tool: "rank".into(), message: error.to_string() })?;
    Ok(ToolReply::Rank(scores.into_iter().map(f64::from).collect()))
}

/// Returns the backend of `rank` for a model folder, by the `model_type` in its config.json. Returns `dpr` if
/// it cannot be determined; that backend reports what is wrong with the folder.
pub fn rank_backend(folder: &Path) -> &'static str {
    #[derive(serde::Deserialize)]
    struct Config {
        model_type: Option<String>,
    }
    let config = read_configuration(&folder.join("config.json")).ok();
    let config = config.and_then(|bytes| serde_json::from_slice::<Config>(&bytes).ok());
    match config.and_then(|config| config.model_type).as_deref() {
        Some("roberta" | "deberta-v2") => "cross-encoder",
        _ => "dpr",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn passages_that_share_words_with_the_question_come_first() {
        let passage = |title: &str, text: &str| Passage { title: title.to_owned(), text: text.to_owned() };
        let passages = vec![
            passage("Kyoto", "It has two thousand temples."),
            passage("Kyoto", "Kyoto was the capital of Japan."),
            passage("Nara", "Nara was the capital of Japan before."),
        ];
        let call = ToolCall::Rank { question: "Was Nara once Japan's capital?".to_owned(), passages };
        let ToolReply::Rank(scores) = Bm25Ranking.call(&call).await.unwrap() else { panic!() };
        assert!(scores[2] > scores[1] && scores[1] > scores[0], "{scores:?}");
        assert!(Bm25Ranking.call(&ToolCall::Maths { query: "1".to_owned() }).await.is_err());
    }

    #[test]
    fn the_backend_of_a_folder_is_read_from_a_configuration_of_limited_size() {
        let folder = tempfile::tempdir().unwrap();
        let backend = |configuration: &str| {
            std::fs::write(folder.path().join("config.json"), configuration).unwrap();
            rank_backend(folder.path())
        };
        let roberta = r#"{"model_type": "roberta"}"#;
        assert_eq!(backend(roberta), "cross-encoder");
        assert_eq!(backend(r#"{"model_type": "dpr"}"#), "dpr");
        assert_eq!(backend(&format!("{roberta}{}", " ".repeat(16 << 20))), "dpr");
    }
}
