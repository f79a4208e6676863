//! The engine handle: requests, errors, cancellation and shutdown.

use crate::support;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::{Shape, safetensors};
use lumos_engine::{
    Engine, FinishReason, GenerateError, GenerateRequest, LoadOptions, ModelSource, Prompt, SamplingParams,
    StopCondition,
};

fn engine() -> Engine {
    let folder = tempfile::tempdir().unwrap();
    Shape::tiny().files(4).write(folder.path());
    let options = LoadOptions { max_sequence_length: Some(500), ..LoadOptions::default() };
    Engine::load(ModelSource::Folder(folder.path().to_owned()), options).unwrap()
}

fn request(text: &str) -> GenerateRequest {
    GenerateRequest { stop: StopCondition::Never, ignore_eos: true, ..GenerateRequest::text(text, 40) }
}

#[tokio::test]
async fn text_is_what_the_whole_says_more_than_the_prompt() {
    let engine = engine();
    let free = engine.generate(request("the inn")).await.unwrap();
    assert_eq!((free.finish, free.tokens.len()), (FinishReason::Length, 40));
    assert_eq!((free.usage.prompt_tokens, free.usage.completion_tokens), (free.prompt_tokens.len(), 40));
    let all = [&free.prompt_tokens[..], &free.tokens].concat();
    assert_eq!(engine.tokenizer().decode(&all).unwrap(), format!("the inn{}", free.text));

    // Stopping at a generated token: the result ends before it, and the token is counted.
    let stop = free.tokens[5];
    let first = free.tokens.iter().position(|token| *token == stop).unwrap();
    let stopped = GenerateRequest { stop: StopCondition::Tokens(vec![stop]), ..request("the inn") };
    let stopped = engine.generate(stopped).await.unwrap();
    assert_eq!((stopped.finish, &stopped.tokens[..]), (FinishReason::Stop, &free.tokens[..first]));
    assert_eq!(stopped.usage.completion_tokens, first + 1);
    assert!(free.text.starts_with(&stopped.text));

    // The same seed gives the same tokens regardless of concurrent requests; another seed gives others.
    let sampled = |seed| GenerateRequest {
        sampling: SamplingParams { temperature: 1.0, top_p: Some(0.9), top_k: None, seed },
        ..request("the inn")
    };
    let (one, other) = tokio::join!(engine.generate(sampled(1)), engine.generate(sampled(2)));
    assert_eq!(engine.generate(sampled(1)).await.unwrap(), one.clone().unwrap());
    assert_ne!(one.unwrap().tokens, other.unwrap().tokens);
}

#[tokio::test]
async fn a_line_ends_at_a_newline_or_one_of_further_ends() {
    let engine = engine();
    assert!(engine.newline_is_unique() && engine.tokenizer().newline_is_unique());
    let free = engine.generate(request("the inn")).await.unwrap();
    // A generated piece as a further end: by its token, and as a text that spans tokens.
    let piece = (5..40).map(|at| engine.tokenizer().decode(&free.tokens[at..=at]).unwrap());
    let piece = piece.into_iter().find(|text| engine.tokenizer().id(text).is_some()).unwrap();
    for end in [piece, free.text.chars().skip(7).take(4).collect()] {
        let ends =
            GenerateRequest { stop: StopCondition::NewlineOr(vec![end.clone()]), ..request("the inn") };
        let stopped = engine.generate(ends).await.unwrap();
        assert_eq!(stopped.finish, FinishReason::Stop, "{end:?}");
        assert!(free.text.starts_with(&stopped.text) && !stopped.text.contains(&end), "{end:?}");
    }
}

#[tokio::test]
async fn a_line_ends_within_a_token_if_several_contain_a_newline() {
    let Some(folder) = lumos_capabilities::shared("golden/engine").map(|folder| folder.join("llama-mha"))
    else {
        return;
    };
    let engine = Engine::load(ModelSource::Folder(folder), LoadOptions::default()).unwrap();
    assert!(!engine.newline_is_unique());
    let mut lines = 0;
    for seed in 0..24 {
        let sampled = |stop| GenerateRequest {
            stop,
            sampling: SamplingParams { temperature: 2.0, top_p: None, top_k: None, seed },
            ..request("the inn")
        };
        let free = engine.generate(sampled(StopCondition::Never)).await.unwrap();
        let line = engine.generate(sampled(StopCondition::Newline)).await.unwrap();
        assert_eq!(line.text, free.text.split('\n').next().unwrap());
        lines += usize::from(line.finish == FinishReason::Stop);
    }
    assert!(lines > 0, "no sequence has a newline");
}

/// Gemma 3's text models have an added token without a row in the embedding.
#[tokio::test]
async fn an_added_token_without_a_row_is_refused_in_a_prompt() {
    let folder = tempfile::tempdir().unwrap();
    Shape::tiny().files(1).write(folder.path());
    // As many rows as the vocabulary has pieces.
    let mut tensors = Shape::tiny().tensors(1);
    for (name, shape, values) in &mut tensors {
        if name.contains("embed_tokens") || name.contains("lm_head") {
            shape[0] = 283;
            values.truncate(283 * 48);
        }
    }
    std::fs::write(folder.path().join("model.safetensors"), safetensors(&tensors)).unwrap();
    let file = folder.path().join("tokenizer.json");
    let mut tokenizer: serde_json::Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    tokenizer["added_tokens"].as_array_mut().unwrap().push(serde_json::json!({
        "id": 283, "content": "<image_soft_token>", "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true
    }));
    std::fs::write(&file, tokenizer.to_string()).unwrap();
    let engine = Engine::load(ModelSource::Folder(folder.path().to_owned()), LoadOptions::default()).unwrap();
    assert!(engine.generate(request("the inn")).await.is_ok());
    let refused = engine.generate(request("the <image_soft_token>")).await.unwrap_err();
    assert_eq!(refused, GenerateError::UnknownToken { token: 283, vocabulary: 283 });
}

/// The engine encodes such prompts on another thread.
#[tokio::test]
async fn long_prompts_are_encoded_like_others() {
    let engine = engine();
    let text = "the inn ".repeat(4000);
    let tokens = engine.tokenizer().encode(&text).unwrap().len();
    let too_long = GenerateError::PromptTooLong { tokens, limit: 500 };
    assert_eq!(engine.generate(request(&text)).await.unwrap_err(), too_long);
    assert_eq!(engine.stream(request(&text)).await.err(), Some(too_long));
    let sampling = SamplingParams { temperature: -1.0, ..SamplingParams::GREEDY };
    let refused = engine.generate(GenerateRequest { sampling, ..request(&text) }).await.unwrap_err();
    assert!(matches!(refused, GenerateError::InvalidSampling(_)));
}

#[tokio::test]
async fn bad_requests_are_refused() {
    let engine = engine();
    let refused = |request| async { engine.generate(request).await.unwrap_err() };
    assert_eq!(refused(request("")).await, GenerateError::EmptyPrompt);
    let long = refused(GenerateRequest { input: Prompt::Tokens(vec![5; 500]), ..request("") }).await;
    assert_eq!(long, GenerateError::PromptTooLong { tokens: 500, limit: 500 });
    let unknown = refused(GenerateRequest { input: Prompt::Tokens(vec![300]), ..request("") }).await;
    assert_eq!(unknown, GenerateError::UnknownToken { token: 300, vocabulary: 300 });
    let stop =
        refused(GenerateRequest { stop: StopCondition::Texts(vec![String::new()]), ..request("a") }).await;
    assert!(matches!(stop, GenerateError::InvalidStop(_)));
    let sampling = SamplingParams { temperature: -1.0, ..SamplingParams::GREEDY };
    assert!(matches!(
        refused(GenerateRequest { sampling, ..request("a") }).await,
        GenerateError::InvalidSampling(_)
    ));
    let late = refused(GenerateRequest { deadline: Some(Instant::now()), ..request("a") }).await;
    assert_eq!(late, GenerateError::DeadlineExceeded { completion_tokens: 0 });
    // The sequence ends at the context length.
    let full = GenerateRequest { input: Prompt::Tokens(vec![5; 490]), ..request("") };
    let full = engine.generate(full).await.unwrap();
    assert_eq!((full.tokens.len(), full.finish), (10, FinishReason::Length));
}

#[tokio::test]
async fn dropping_cancels_and_shutting_down_joins() {
    let engine = engine();
    let long = GenerateRequest { max_new_tokens: 480, ..request("the inn") };
    let cancelled = tokio::time::timeout(Duration::from_millis(1), engine.generate(long.clone())).await;
    drop(cancelled);
    assert!(engine.generate(request("an inn")).await.is_ok());
    let other = engine.clone();
    let running = tokio::spawn(async move { other.generate(long).await });
    tokio::task::yield_now().await;
    engine.shutdown();
    engine.shutdown();
    // A request in flight fails with `ShutDown`, unless it has completed.
    assert!(matches!(running.await.unwrap(), Err(GenerateError::ShutDown) | Ok(_)));
    assert_eq!(engine.generate(request("a")).await.unwrap_err(), GenerateError::ShutDown);
}

#[tokio::test]
async fn a_llama_2_vocabulary_with_a_row_more_than_pieces_loads() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let shape = Shape {
        hidden: 8,
        intermediate: 16,
        layers: 1,
        heads: 2,
        key_value_heads: 2,
        vocabulary: 32_001,
        ..Shape::tiny()
    };
    let tokenizers = Path::new(&shared).join("data/tokenizers/llama2");
    let mut results = Vec::new();
    for (name, pickled) in [("tokenizer.json", false), ("tokenizer.model", true)] {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        write("config.json", shape.config().to_string().as_bytes());
        write(name, &std::fs::read(tokenizers.join(name)).unwrap());
        let tensors = shape.tensors(8);
        if pickled {
            write("pytorch_model.bin", &support::pickle::pickle(&tensors, false));
            write("added_tokens.json", br#"{"<pad>": 32000}"#);
        } else {
            write("model.safetensors", &safetensors(&tensors));
        }
        let engine =
            Engine::load(ModelSource::Folder(folder.path().to_owned()), LoadOptions::default()).unwrap();
        assert_eq!(engine.tokenizer().newline(), Some(13));
        let request =
            GenerateRequest { first_logits: 5, ..request("<|user|>\nTask: 漢字 🙂\n<|assistant|>\n") };
        results.push(engine.generate(request).await.unwrap());
    }
    assert_eq!(results[0], results[1]);
}
