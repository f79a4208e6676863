//! `lumos tool rank`, and rankers as backends of a run.

use serde_json::{Value, json};

use crate::support::{lumos, rows};

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
        let replies = lumos().args("tool rank --model").arg(model).input(&input).ok().lines();
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
            let replies = lumos().args("tool rank --model").arg(model).input(&input).ok().lines();
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
    let rank = |model: &str| lumos().args("tool rank --model").arg(model);
    rank("dpr:no/such/folder").exits(2).reports(["no/such/folder", "No such file"]);
    rank("cross-encoder:no/such/folder").exits(2).reports(["no/such/folder", "No such file"]);
    let run = lumos().args("run --tasks hotpotqa --model builtin:tiny --qa builtin:tiny");
    let run = run.args("--tool wiki=recorded:x --tool rank=dpr:no/such/folder");
    run.exits(2).reports(["no/such/folder"]);
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let model = format!("dpr:{}", shared.join("golden/engine/dpr-reader").display());
    for line in [r#"{"query": "Who?"}"#, r#"{"query": "Who?", "texts": ["a"], "titles": []}"#, "Who?"] {
        rank(&model).input(line).exits(2).reports(["line 1"]);
    }
}
