//! Ranks passages by their words: `--tool rank=bm25`, for machines without a reader model.

use async_trait::async_trait;
use lumos_environments::retrieval;
use lumos_tasks::{Passage, ToolCall, ToolReply};

use super::set::not_mine;
use super::{ToolFault, Tools};

/// BM25 over the passages of a call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Bm25Ranking;

impl Bm25Ranking {
    /// Version of the code that determines the replies.
    pub(super) const VERSION: u32 = retrieval::VERSION;

    /// Returns one score per passage: how well its title and text match the question.
    pub fn scores(question: &str, passages: &[Passage]) -> Vec<f64> {
        let texts = passages.iter().map(|passage| [(passage.title.as_str(), 1), (passage.text.as_str(), 1)]);
        retrieval::scores(question, texts)
    }
}

#[async_trait]
impl Tools for Bm25Ranking {
    async fn call(&self, call: &ToolCall) -> Result<ToolReply, ToolFault> {
        let ToolCall::Rank { question, passages } = call else { return Err(not_mine(call, "bm25")) };
        let (question, passages) = (question.clone(), passages.clone());
        // A hundred passages take a millisecond, which is too long for a thread of the runtime.
        tokio::task::spawn_blocking(move || ToolReply::Rank(Self::scores(&question, &passages)))
            .await
            .map_err(|error| ToolFault { tool: "rank", message: error.to_string() })
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
}
