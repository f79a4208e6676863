//! Lookup decoding: generations and streams equal those without it, in every type, with sampling and with ends inside
//! drafts; and the share of accepted drafts of recorded replies.

use std::io::Read;
use std::path::Path;

use candle_core::quantized::GgmlDType;
use flate2::read::GzDecoder;
use lumos_engine::{
    DType, DeviceName, DraftUsage, Engine, GenerateRequest, Generation, LoadOptions, ModelSource, Prompt,
    RandomShape, SamplingParams, Speculation, StopCondition, StreamEvent, Tokenizer, replay,
};
use serde_json::Value;

use crate::requests::{alone, greedy, together};
use crate::support::gguf::GgufModel;
use crate::support::{Shape, Uniform};

/// Requests whose prompts repeat themselves, with forced replies that copy the prompt up to some place, greedy and
/// sampled replies, and ends at every place of a reply.
fn requests() -> Vec<GenerateRequest> {
    let mut random = Uniform::new(8);
    let mut requests = Vec::new();
    for index in 0..40u64 {
        let phrase: Vec<u32> = (0..12).map(|_| 3 + random.below(280) as u32).collect();
        let other: Vec<u32> = (0..random.below(30)).map(|_| 3 + random.below(280) as u32).collect();
        let prompt = [&other[..], &phrase, &other, &phrase[..2]].concat();
        let copied = random.below(10);
        let forced = [&phrase[2..2 + copied], &[7, 8], &phrase[..random.below(12)]].concat();
        let temperature = [0.0, 0.3, 1.0, 1.5][index as usize % 4];
        let sampling = SamplingParams { temperature, seed: index, ..SamplingParams::GREEDY };
        let plain = GenerateRequest { sampling, ..greedy(Prompt::Tokens(prompt), 24, 5) };
        let stop = match index % 3 {
            0 => StopCondition::Tokens(vec![phrase[8]]),
            1 => StopCondition::Newline,
            _ => StopCondition::Texts(vec!["th".to_owned(), "é".to_owned(), "1".to_owned()]),
        };
        requests.push(GenerateRequest { forced: forced.clone(), stop, ..plain.clone() });
        requests.push(GenerateRequest { forced, max_new_tokens: index as usize % 25, ..plain.clone() });
        requests.push(GenerateRequest { ignore_eos: false, ..plain });
    }
    requests
}

/// Compares the settings with each other, alone and together. Returns the counts of drafts.
async fn compare(name: &str, load: impl Fn(LoadOptions) -> Engine) -> DraftUsage {
    let requests = requests();
    let engine = |speculation| load(LoadOptions { speculation, threads: Some(2), ..LoadOptions::default() });
    let off = engine(Speculation::Off);
    let expected = alone(&off, &requests).await;
    assert_eq!(off.statistics().drafts, DraftUsage::default());
    for speculation in [Speculation::Auto, Speculation::Lookup] {
        let engine = engine(speculation);
        assert!(alone(&engine, &requests).await == expected, "{name} {speculation} alone");
        assert!(together(&engine, &requests).await == expected, "{name} {speculation} together");
        // The pages of the last replies are released after the replies.
        while engine.statistics().running > 0 {
            tokio::task::yield_now().await;
        }
        let statistics = engine.statistics();
        assert_eq!(statistics.held_pages, 0);
        if speculation == Speculation::Lookup {
            // Each accepted token saves a pass of its sequence, so fewer steps are needed in total.
            assert!(statistics.drafts.accepted > 500, "{name}: {statistics:?}");
            return statistics.drafts;
        }
    }
    unreachable!()
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_are_equal_in_every_type() {
    let folder = tempfile::tempdir().unwrap();
    Shape::tiny().files(4).write(folder.path());
    for dtype in [DType::F32, DType::Bf16, DType::F16] {
        let source = || ModelSource::Folder(folder.path().to_owned());
        let load = |options| Engine::load(source(), LoadOptions { dtype, ..options }).unwrap();
        let drafts = compare(&dtype.to_string(), load).await;
        assert!(drafts.accepted < drafts.drafted, "{drafts:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn generations_are_equal_with_quantized_weights() {
    let shape = Shape { hidden: 256, intermediate: 512, heads: 8, key_value_heads: 4, ..Shape::tiny() };
    for dtype in [GgmlDType::Q8_0, GgmlDType::Q4K, GgmlDType::Q6K] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.gguf");
        GgufModel::new(&shape, 1, dtype).write(&path);
        let source = || ModelSource::Gguf(path.clone());
        compare(&format!("{dtype:?}"), |options| Engine::load(source(), options).unwrap()).await;
    }
}

/// A stream yields the same tokens, several per event where a draft was accepted.
#[tokio::test]
async fn streams_yield_the_same_tokens() {
    let source = || ModelSource::Random { shape: RandomShape::With1M, seed: 1 };
    let load =
        |speculation| Engine::load(source(), LoadOptions { speculation, ..LoadOptions::default() }).unwrap();
    let (off, lookup) = (load(Speculation::Off), load(Speculation::Lookup));
    let prompt: Vec<u32> = (10..40).chain([10, 11]).collect();
    let request = GenerateRequest { forced: (12..36).collect(), ..greedy(Prompt::Tokens(prompt), 24, 0) };
    let expected = off.generate(request.clone()).await.unwrap();
    let mut stream = lookup.stream(request).await.unwrap();
    let (mut pieces, mut tokens) = (0, Vec::new());
    let mut found: Option<Generation> = None;
    while let Some(event) = stream.next().await {
        match event.unwrap() {
            StreamEvent::Delta(delta) => {
                pieces += 1;
                tokens.extend(delta.tokens);
            }
            StreamEvent::Done(generation) => found = Some(generation),
        }
    }
    let mut found = found.unwrap();
    assert_eq!((found.usage.drafts.accepted, lookup.statistics().drafts), (21, found.usage.drafts));
    // The first token, then 7 tokens from a draft of twice the three that are known, then the other 16.
    assert!(pieces <= 3, "{pieces}");
    assert_eq!(tokens, expected.tokens);
    found.usage.drafts = DraftUsage::default();
    assert_eq!(found, expected);
}

#[test]
fn gpus_refuse_drafts_by_name() {
    let options = LoadOptions {
        device: DeviceName::Cuda(0),
        speculation: Speculation::Lookup,
        ..LoadOptions::default()
    };
    let source = ModelSource::Random { shape: RandomShape::With1M, seed: 1 };
    let error = Engine::load(source, options).unwrap_err().to_string();
    assert!(error.contains("`lookup`") && error.contains("cuda:0"), "{error}");
}

/// The lines of a compressed file.
fn lines(path: &Path) -> Vec<Value> {
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Drafts of the recorded replies of planners and grounders, by the longest draft. Prints the table of
/// docs/performance.md.
#[test]
fn recorded_replies_accept_drafts() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let path = Path::new(&shared).join("data/tokenizers/llama2/tokenizer.json");
    let tokenizer = Tokenizer::from_json(&std::fs::read(&path).unwrap(), &path).unwrap();
    for (name, file) in [
        ("GSM8K", "gsm8k_iterative"),
        ("GSM8K, one-time", "gsm8k_onetime"),
        ("HotpotQA", "hotpotqa_iterative"),
        ("HotpotQA, one-time", "hotpotqa_onetime"),
        ("WebShop", "webshop/lumos_iterative"),
        ("WebShop, real catalogue", "webshop/real_lumos_iterative"),
    ] {
        let cases = lines(&Path::new(&shared).join(format!("golden/{file}.jsonl.gz")));
        let mut replies = Vec::new();
        for (case, role) in cases.iter().flat_map(|case| ["plan", "ground"].map(|role| (case, role))) {
            let texts = |field: &str| -> Vec<String> {
                serde_json::from_value(case[field][role].clone()).unwrap_or_default()
            };
            for (prompt, reply) in texts("prompts").into_iter().zip(texts("script")) {
                let tokens = tokenizer.encode(&prompt).unwrap();
                // Tokenized together, as a model continues the prompt.
                let whole = tokenizer.encode(&format!("{prompt}{reply}\n")).unwrap();
                let reply = match whole.strip_prefix(&tokens[..]) {
                    Some(rest) => rest.to_vec(),
                    None => tokenizer.encode(&format!("{reply}\n")).unwrap(),
                };
                replies.push((tokens, reply));
            }
        }
        let count: usize = replies.iter().map(|(_, reply)| reply.len()).sum();
        assert!(replies.len() > 50 && count > 1000, "{name}: {} replies", replies.len());
        for most in [4, 8, 16] {
            let mut usage = DraftUsage::default();
            for (prompt, reply) in &replies {
                usage += replay(prompt, reply, most);
            }
            let passes = count as u64 - usage.accepted;
            println!(
                "{name}: {} replies, {count} tokens, drafts of {most}: {} drafted, {} accepted ({:.1} %), {passes} passes, \
                 {:.2} tokens per pass",
                replies.len(),
                usage.drafted,
                usage.accepted,
                100.0 * usage.accepted as f64 / usage.drafted as f64,
                count as f64 / passes as f64,
            );
            assert!(usage.accepted > 0 && usage.accepted < usage.drafted, "{name}: {usage:?}");
        }
    }
}
