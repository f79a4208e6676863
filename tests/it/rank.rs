//! `lumos tool rank`, and rankers as backends of a run.

use serde_json::{Value, json};

use crate::support::{expect, fed, rows};

#[test]
fn passages_are_ranked_as_by_the_published_reader() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let folder = shared.join("golden/engine/dpr-reader");
    let cases = rows(&folder.join("cases.jsonl.gz"));
    let input: String = cases
        .iter()
        .enumerate()
        .map(|(id, case)| {
            let line = json!({"query": case["question"], "texts": case["texts"], "titles": case["titles"], "id": id});
            format!("{line}\n")
        })
        .collect();
    for model in [folder.display().to_string(), format!("dpr:{}", folder.display())] {
        let (code, stdout, stderr) = fed(&["tool", "rank", "--model", &model], &input);
        assert_eq!(code, 0, "{stderr}");
        let replies: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(replies.len(), cases.len());
        for (id, (case, reply)) in cases.iter().zip(&replies).enumerate() {
            assert_eq!(reply["id"], id);
            let (scores, logits) =
                (reply["scores"].as_array().unwrap(), case["relevance_logits"].as_array().unwrap());
            assert_eq!(scores.len(), logits.len());
            for (score, logit) in scores.iter().zip(logits) {
                assert!((score.as_f64().unwrap() - logit.as_f64().unwrap()).abs() < 1e-3, "{score} {logit}");
            }
        }
    }
}

#[test]
fn texts_are_ranked_as_by_the_published_cross_encoders() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    for name in ["roberta-cross-encoder", "deberta-v2-cross-encoder"] {
        let folder = shared.join("golden/engine").join(name);
        let cases = rows(&folder.join("cases.jsonl.gz"));
        // All texts for each query; each pair's own text is at the pair's position.
        let texts: Vec<&Value> = cases.iter().map(|case| &case["pair"][1]).collect();
        let input: String = cases
            .iter()
            .map(|case| format!("{}\n", json!({"query": case["pair"][0], "texts": texts})))
            .collect();
        for model in [folder.display().to_string(), format!("cross-encoder:{}", folder.display())] {
            let (code, stdout, stderr) = fed(&["tool", "rank", "--model", &model], &input);
            assert_eq!(code, 0, "{stderr}");
            let replies: Vec<Value> =
                stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
            assert_eq!(replies.len(), cases.len());
            for (index, (case, reply)) in cases.iter().zip(&replies).enumerate() {
                let (score, logit) = (&reply["scores"][index], &case["logit"]);
                assert!((score.as_f64().unwrap() - logit.as_f64().unwrap()).abs() < 1e-3, "{score} {logit}");
            }
        }
    }
}

#[test]
fn what_is_no_question_or_no_ranker_is_told() {
    let (_, stderr) = expect(2, &["tool", "rank", "--model", "dpr:no/such/folder"]);
    assert!(stderr.contains("no/such/folder") && stderr.contains("No such file"), "{stderr}");
    let (_, stderr) = expect(2, &["tool", "rank", "--model", "cross-encoder:no/such/folder"]);
    assert!(stderr.contains("no/such/folder") && stderr.contains("No such file"), "{stderr}");
    let run = ["run", "--tasks", "hotpotqa", "--model", "builtin:tiny", "--qa", "builtin:tiny"];
    let tool = ["--tool", "wiki=recorded:x", "--tool", "rank=dpr:no/such/folder"];
    let (_, stderr) = expect(2, &[&run[..], &tool].concat());
    assert!(stderr.contains("no/such/folder"), "{stderr}");
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let model = format!("dpr:{}", shared.join("golden/engine/dpr-reader").display());
    for line in [r#"{"query": "Who?"}"#, r#"{"query": "Who?", "texts": ["a"], "titles": []}"#, "Who?"] {
        let (code, _, stderr) = fed(&["tool", "rank", "--model", &model], line);
        assert_eq!(code, 2);
        assert!(stderr.contains("line 1"), "{stderr}");
    }
}
