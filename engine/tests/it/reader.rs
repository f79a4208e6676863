//! Compares the reader with transformers, for single passages and in batches.
//!
//! The reference cases are in `$LUMOS_SHARED/golden/engine/dpr-reader`; without that variable these tests are
//! skipped.

use crate::cases;
use std::path::{Path, PathBuf};

use lumos_engine::{DprReader, EncoderError, ReaderPassage};
use serde::Deserialize;
use tokio::task::JoinSet;

#[derive(Clone, Deserialize)]
struct Case {
    question: String,
    titles: Vec<String>,
    texts: Vec<String>,
    input_ids_unpadded: Vec<Vec<u32>>,
    relevance_logits: Vec<f32>,
}

impl Case {
    fn passages(&self) -> Vec<ReaderPassage> {
        let passage =
            |(title, text): (&String, &String)| ReaderPassage { title: title.clone(), text: text.clone() };
        self.titles.iter().zip(&self.texts).map(passage).collect()
    }
}

fn reference() -> Option<(PathBuf, Vec<Case>)> {
    let folder = cases::folder("dpr-reader")?;
    let cases = cases::rows(&folder);
    Some((folder, cases))
}

#[tokio::test(flavor = "multi_thread")]
async fn equals_transformers_alone_and_together() {
    let Some((folder, cases)) = reference() else { return };
    let reader = DprReader::open(&folder, Some(2)).unwrap();
    let mut alone = Vec::new();
    let mut furthest = 0.0f32;
    for case in &cases {
        for (passage, ids) in case.passages().iter().zip(&case.input_ids_unpadded) {
            assert_eq!(&reader.encode(&case.question, passage).unwrap(), ids, "{passage:?}");
        }
        let scores = reader.score(&*case.question, case.passages()).await.unwrap();
        assert_eq!(scores.len(), case.relevance_logits.len());
        for (score, logit) in scores.iter().zip(&case.relevance_logits) {
            furthest = furthest.max((score - logit).abs());
        }
        let mut one_by_one = Vec::new();
        for passage in case.passages() {
            one_by_one.extend(reader.score(&*case.question, vec![passage]).await.unwrap());
        }
        assert_eq!(scores, one_by_one, "alone and with the question's other passages");
        alone.push(scores);
    }
    println!("{} questions, largest difference of a logit {furthest:e}", cases.len());
    assert!(furthest < 1e-3, "{furthest}");

    // Many questions at once, by another instance with another number of threads.
    let reader = DprReader::open(&folder, Some(1)).unwrap();
    let mut together = JoinSet::new();
    for round in 0..4 {
        for (index, case) in cases.iter().cloned().enumerate() {
            let reader = reader.clone();
            together.spawn(async move {
                let mut passages = case.passages();
                let count = passages.len();
                passages.rotate_left(round % count);
                let mut scores = reader.score(case.question, passages).await.unwrap();
                scores.rotate_right(round % count);
                (index, scores)
            });
        }
    }
    for (index, scores) in together.join_all().await {
        assert_eq!(scores, alone[index], "question {index}");
    }
}

#[tokio::test]
async fn texts_that_are_too_long_are_cut_and_no_passages_have_no_scores() {
    let Some((folder, cases)) = reference() else { return };
    let reader = DprReader::open(&folder, None).unwrap();
    let passage = ReaderPassage { title: "Numbers".to_owned(), text: "one two three ".repeat(2000) };
    assert_eq!(reader.encode(&cases[0].question, &passage).unwrap().len(), 512);
    let longest = passage.text.repeat(2);
    let scores = reader
        .score(&*cases[0].question, vec![passage.clone(), ReaderPassage { text: longest, ..passage }])
        .await
        .unwrap();
    assert_eq!(scores[0], scores[1]);
    // Special tokens of the tokenizer are valid in a text.
    let strange = ReaderPassage { title: String::new(), text: "[PAD] [CLS] \u{0} é \u{1F600}".to_owned() };
    assert!(reader.score("", vec![strange]).await.unwrap()[0].is_finite());
    assert_eq!(reader.score("Who?", Vec::new()).await, Ok(Vec::new()));
}

fn copy(from: &Path, to: &Path) {
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::write(to.join(name), std::fs::read(from.join(name)).unwrap()).unwrap();
    }
}

#[tokio::test]
async fn a_folder_that_is_none_is_told() {
    let Some((shared, _)) = reference() else { return };
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(DprReader::open(folder, None).unwrap_err().to_string().contains("config.json"));
    copy(&shared, folder);
    std::fs::write(folder.join("config.json"), "{}").unwrap();
    assert!(DprReader::open(folder, None).unwrap_err().to_string().contains("hidden_size"));
    // Weights that do not match the configuration are an error of the first question.
    let config = std::fs::read_to_string(shared.join("config.json")).unwrap();
    let config = config.replace("\"intermediate_size\": 128", "\"intermediate_size\": 96");
    std::fs::write(folder.join("config.json"), config).unwrap();
    let reader = DprReader::open(folder, None).unwrap();
    let told = reader.score("Who?", vec![ReaderPassage::default()]).await;
    assert!(matches!(&told, Err(EncoderError::Load(message)) if message.contains("shape")), "{told:?}");
}
