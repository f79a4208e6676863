//! Compares cross-encoders with transformers, for single pairs and in batches.
//!
//! The reference cases are in `$LUMOS_SHARED/golden/engine`; without that variable these tests are skipped.

use crate::cases;
use std::path::PathBuf;

use lumos_engine::{CrossEncoder, EncoderError};
use serde::Deserialize;
use tokio::task::JoinSet;

const MODELS: [&str; 2] = ["roberta-cross-encoder", "deberta-v2-cross-encoder"];

#[derive(Clone, Deserialize)]
struct Case {
    pair: [String; 2],
    ids: Vec<u32>,
    logit: f32,
}

fn reference(name: &str) -> Option<(PathBuf, Vec<Case>)> {
    let folder = cases::folder(name)?;
    let cases = cases::rows(&folder);
    Some((folder, cases))
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_transformers_alone_and_together() {
    for name in MODELS {
        let Some((folder, cases)) = reference(name) else { return };
        let encoder = CrossEncoder::open(&folder, Some(2)).unwrap();
        let mut alone = Vec::new();
        let mut furthest = 0.0f32;
        for Case { pair: [query, text], ids, logit } in &cases {
            assert_eq!(&encoder.encode(query, text).unwrap(), ids, "{query} {text}");
            let scores = encoder.score(query, vec![text.clone()]).await.unwrap();
            assert_eq!(scores.len(), 1);
            furthest = furthest.max((scores[0] - logit).abs());
            alone.push(scores[0]);
        }
        println!("{name}: {} pairs, largest difference of a logit {furthest:e}", cases.len());
        assert!(furthest < 1e-3, "{name}: {furthest}");

        // Each pair in two batches with pairs of any length, in another order, by another instance with another
        // number of threads.
        let encoder = CrossEncoder::open(&folder, Some(1)).unwrap();
        let mut together = JoinSet::new();
        for round in 0..4 {
            let half = cases.iter().cloned().enumerate().skip(round % 2).step_by(2);
            for (index, Case { pair: [query, text], .. }) in half {
                let others =
                    cases.iter().map(|case| case.pair[1].clone()).chain(["", "word "].map(String::from));
                let long = text.repeat(20);
                let mut texts: Vec<String> = others.cycle().skip(index * round).take(round * 11).collect();
                texts.extend([text.clone(), long]);
                texts.rotate_right(round);
                let place = texts.iter().position(|other| *other == text).unwrap();
                let encoder = encoder.clone();
                together.spawn(async move { (index, encoder.score(query, texts).await.unwrap()[place]) });
            }
        }
        for (index, score) in together.join_all().await {
            assert_eq!(score.to_bits(), alone[index].to_bits(), "{name}, pair {index}");
        }
    }
}

#[tokio::test]
async fn pairs_that_are_too_long_are_cut_and_those_that_nobody_waits_for_are_dropped() {
    for name in MODELS {
        let Some((folder, cases)) = reference(name) else { return };
        let encoder = CrossEncoder::open(&folder, None).unwrap();
        let query = &cases[0].pair[0];
        let long = "one two three ".repeat(2000);
        assert_eq!(encoder.encode(query, &long).unwrap().len(), 512);
        assert_eq!(encoder.encode(&long, query).unwrap().len(), 512);
        assert_eq!(encoder.encode(&long, &long).unwrap().len(), 512);
        let scores = encoder.score(&**query, vec![long.clone(), long.repeat(2)]).await.unwrap();
        assert_eq!(scores[0], scores[1]);
        // Special tokens of the tokenizer are valid in a text.
        let marks = "<pad> [PAD] <pad><s> </s> [CLS] \u{0} é \u{1F600}".to_owned();
        assert!(encoder.score("", vec![marks, String::new()]).await.unwrap().iter().all(|x| x.is_finite()));
        assert_eq!(encoder.score("Who?", Vec::new()).await, Ok(Vec::new()));
        // A query whose caller stopped waiting is cancelled, and the next one is answered.
        let many: Vec<String> = (0..50).map(|number| format!("{number} {long}")).collect();
        let wait = std::time::Duration::from_millis(20);
        assert!(tokio::time::timeout(wait, encoder.score("late", many)).await.is_err());
        assert!(encoder.score("next", vec![long]).await.is_ok());
    }
}

#[tokio::test]
async fn a_folder_that_is_none_is_told() {
    let Some((shared, _)) = reference(MODELS[1]) else { return };
    let Some((reader, _)) = cases::folder("dpr-reader").map(|folder| (folder, ())) else { return };
    let error = CrossEncoder::open(&reader, None).unwrap_err().to_string();
    assert!(error.contains("model_type"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(CrossEncoder::open(folder, None).unwrap_err().to_string().contains("config.json"));
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::write(folder.join(name), std::fs::read(shared.join(name)).unwrap()).unwrap();
    }
    let config = std::fs::read_to_string(shared.join("config.json")).unwrap();
    let with = |from: &str, to: &str| {
        let changed = config.replace(from, to);
        assert_ne!(changed, config);
        std::fs::write(folder.join("config.json"), changed).unwrap();
        CrossEncoder::open(folder, None)
    };
    let error = with("\"share_att_key\": true", "\"share_att_key\": false").unwrap_err().to_string();
    assert!(error.contains("share_att_key"), "{error}");
    // Weights that do not match the configuration are an error of the first query.
    let encoder = with("\"position_buckets\": 64", "\"position_buckets\": 32").unwrap();
    let told = encoder.score("Who?", vec![String::new()]).await;
    assert!(
        matches!(&told, Err(EncoderError::Load(message)) if message.contains("rel_embeddings")),
        "{told:?}"
    );
}
