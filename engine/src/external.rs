//! Generates sequences with a forward pass outside of this crate.
//!
//! [`ModelCheckpoint::generate`] runs one [`GenerateRequest`] with a function that computes logits. Prompts are encoded,
//! tokens are chosen and sequences end exactly as in the engine, because the same code does it: a request is checked
//! like the engine's, and the state of the sequence is the scheduler's.

use std::time::Instant;

use tokio::sync::oneshot;

use crate::cache::{KeyValueShape, PageLayout, Storage, TILE};
use crate::engine::Engine;
use crate::error::GenerateError;
use crate::load::ModelCheckpoint;
use crate::model::Prediction;
use crate::request::{GenerateRequest, Generation};
use crate::scheduler::{Sequence, Submission};
use crate::stream::generation;

/// The sequence has no pages here: the forward pass keeps its own keys and values.
const NO_PAGES: PageLayout = PageLayout {
    shape: KeyValueShape { layers: 0, heads: 0, head_size: 0 },
    positions: TILE,
    storage: Storage::F32,
};

impl ModelCheckpoint {
    /// Generates one sequence of at most `context_length` tokens. Blocks.
    ///
    /// `forward(tokens, position)` computes tokens that follow the `position` tokens of earlier calls, and returns the
    /// logits after the last one, one per id of the vocabulary.
    ///
    /// # Errors
    /// As [`Engine::generate`], and errors of `forward`.
    pub fn generate(
        &self,
        request: GenerateRequest,
        context_length: usize,
        mut forward: impl FnMut(&[u32], usize) -> Result<Vec<f32>, GenerateError>,
    ) -> Result<Generation, GenerateError> {
        let order = Engine::checked(
            request,
            &self.tokenizer,
            self.newline_is_unique(),
            self.vocabulary,
            context_length,
            &self.end_of_sequence,
        )?;
        let (stop_texts, deadline) = (order.stop_texts.clone(), order.deadline);
        let (completion, mut completed) = oneshot::channel();
        let submission = Submission { order, completion, tokens: None };
        let mut sequence = Sequence::new(0, submission, NO_PAGES, context_length);
        let mut computed = 0;
        let outcome = loop {
            if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                let completion_tokens = sequence.generated().len();
                break Err(GenerateError::DeadlineExceeded { completion_tokens });
            }
            let logits = forward(&sequence.known()[computed..], computed)?;
            computed = sequence.known().len();
            let prediction = Prediction::Logits(&logits);
            if let Some(outcome) = sequence.take_prediction(prediction, &self.tokenizer, context_length) {
                break outcome;
            }
        };
        sequence.stop(outcome);
        let completion = completed.try_recv().map_err(|_| GenerateError::ShutDown)??;
        generation(&self.tokenizer, completion, &stop_texts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Shape;
    use crate::options::{LoadOptions, ModelSource};
    use crate::request::{FinishReason, Prompt, SamplingParams, StopCondition};

    /// Logits that depend on the last token and the position.
    fn scores(tokens: &[u32], position: usize, vocabulary: usize) -> Vec<f32> {
        let seed = tokens.last().map_or(0, |last| *last as usize * 31 + position + tokens.len());
        (0..vocabulary).map(|id| ((id * 7919 + seed * 104_729) % 1009) as f32 / 100.0).collect()
    }

    fn checkpoint() -> (tempfile::TempDir, ModelCheckpoint) {
        let folder = tempfile::tempdir().unwrap();
        Shape::tiny().files(3).write(folder.path());
        let checkpoint = ModelCheckpoint::open(&ModelSource::Folder(folder.path().to_owned())).unwrap();
        (folder, checkpoint)
    }

    fn request(stop: StopCondition) -> GenerateRequest {
        let input = Prompt::Tokens(vec![3, 5, 9]);
        GenerateRequest { input, stop, ignore_eos: true, first_logits: 4, ..GenerateRequest::text("", 12) }
    }

    #[test]
    fn every_token_is_computed_once() {
        let (_folder, checkpoint) = checkpoint();
        let mut calls = Vec::new();
        let generated = checkpoint.generate(request(StopCondition::Never), 64, |tokens, position| {
            calls.push((tokens.to_vec(), position));
            Ok(scores(tokens, position, checkpoint.vocabulary()))
        });
        let generated = generated.unwrap();
        assert_eq!((generated.tokens.len(), generated.finish), (12, FinishReason::Length));
        assert_eq!(calls[0], (vec![3, 5, 9], 0));
        for (index, call) in calls[1..].iter().enumerate() {
            assert_eq!(*call, (vec![generated.tokens[index]], 3 + index));
        }
        assert_eq!(calls.len(), 12);
        let best = generated.first_logits[0];
        let first = scores(&[3, 5, 9], 0, checkpoint.vocabulary());
        assert_eq!(generated.tokens[0], best.0);
        assert!(first.iter().all(|logit| *logit <= best.1) && generated.first_logits.len() == 4);
    }

    #[test]
    fn sequences_end_as_in_the_engine() {
        let (_folder, checkpoint) = checkpoint();
        let run = |request, context| {
            checkpoint.generate(request, context, |tokens, position| {
                Ok(scores(tokens, position, checkpoint.vocabulary()))
            })
        };
        let free = run(request(StopCondition::Never), 64).unwrap();
        let stopped = run(request(StopCondition::Tokens(vec![free.tokens[4]])), 64).unwrap();
        assert_eq!(stopped.finish, FinishReason::Stop);
        assert!(stopped.tokens.len() <= 4 && free.tokens.starts_with(&stopped.tokens));
        let short = run(request(StopCondition::Never), 8).unwrap();
        assert_eq!((&short.tokens[..], short.finish), (&free.tokens[..5], FinishReason::Length));
        let late = GenerateRequest { deadline: Some(Instant::now()), ..request(StopCondition::Never) };
        assert_eq!(run(late, 64), Err(GenerateError::DeadlineExceeded { completion_tokens: 0 }));
        let long = run(request(StopCondition::Never), 3);
        assert_eq!(long, Err(GenerateError::PromptTooLong { tokens: 3, limit: 3 }));
        let sampling = SamplingParams { temperature: 1.0, seed: 7, ..SamplingParams::GREEDY };
        let drawn = |seed| GenerateRequest {
            sampling: SamplingParams { seed, ..sampling.clone() },
            ..request(StopCondition::Never)
        };
        assert_eq!(run(drawn(7), 64), run(drawn(7), 64));
        assert_ne!(run(drawn(7), 64).unwrap().tokens, run(drawn(8), 64).unwrap().tokens);
        let broken = checkpoint.generate(request(StopCondition::Never), 64, |_, _| Ok(vec![f32::NAN; 8]));
        assert_eq!(broken, Err(GenerateError::NotFinite { position: 3 }));
    }

    #[test]
    fn lines_end_as_in_the_engine() {
        let (_folder, checkpoint) = checkpoint();
        assert!(checkpoint.newline_is_unique());
        let tokenizer = checkpoint.tokenizer();
        let (newline, end) = (tokenizer.newline().unwrap(), tokenizer.id("s").unwrap());
        // Predicts four equal tokens, and then `last`.
        let run = |stop: StopCondition, last: u32| {
            let generated = checkpoint.generate(request(stop), 64, |_, position| {
                let best = if position < 6 { 40 } else { last };
                Ok((0..checkpoint.vocabulary()).map(|id| f32::from(u8::from(id == best as usize))).collect())
            });
            let generated = generated.unwrap();
            (generated.tokens, generated.finish, generated.usage.completion_tokens)
        };
        let expected = (vec![40; 4], FinishReason::Stop, 5);
        assert_eq!(run(StopCondition::Newline, newline), expected);
        // The vocabulary has no token for the second text.
        for last in [newline, end] {
            let ends = ["s", "<|im_end|>"].map(str::to_owned).to_vec();
            assert_eq!(run(StopCondition::NewlineOr(ends), last), expected);
        }
    }

    #[test]
    fn tensors_are_those_of_the_files() {
        let (folder, checkpoint) = checkpoint();
        let shape = checkpoint.shape("model.norm.weight").unwrap().to_vec();
        let norm = checkpoint.tensor("model.norm.weight", &shape).unwrap();
        assert_eq!((norm.dims(), norm.dtype()), (&shape[..], candle_core::DType::F32));
        assert!(checkpoint.shape("model.missing.weight").is_none());
        let wrong = checkpoint.tensor("model.norm.weight", &[shape[0] + 1]).unwrap_err().to_string();
        assert!(wrong.contains("model.norm.weight") && wrong.contains("model.safetensors"), "{wrong}");
        let engine =
            Engine::load(ModelSource::Folder(folder.path().to_owned()), LoadOptions::default()).unwrap();
        assert_eq!(checkpoint.parameters(), engine.description().parameters);
        assert_eq!(checkpoint.weight_files(true).unwrap(), engine.description().weight_files);
        assert_eq!(checkpoint.vocabulary(), engine.description().vocabulary);
    }

    #[test]
    fn ends_of_sequences_are_ids_or_lists() {
        let folder = tempfile::tempdir().unwrap();
        Shape::tiny().files(3).write(folder.path());
        let open = |generation: &str| {
            std::fs::write(folder.path().join("generation_config.json"), generation).unwrap();
            ModelCheckpoint::open(&ModelSource::Folder(folder.path().to_owned()))
        };
        assert_eq!(open(r#"{"eos_token_id": [1, 106]}"#).unwrap().end_of_sequence, [1, 106]);
        assert_eq!(open(r#"{"eos_token_id": 5}"#).unwrap().end_of_sequence, [5]);
        let wrong = open(r#"{"eos_token_id": "</s>"}"#).unwrap_err().to_string();
        assert!(wrong.contains("generation_config.json") && wrong.contains("eos_token_id"), "{wrong}");
        assert!(open("[]").unwrap_err().to_string().contains("expected an object"));
    }
}
