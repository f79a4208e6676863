//! LoRA adapters by name. The adapters and the reference results of peft are the engine's test data.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::{Serving, content, lumos, read_json, replies, repository};

fn data() -> PathBuf {
    repository("engine/tests/data/adapters")
}

fn named(base: &str, adapter: &str) -> String {
    format!("candle:{}+{}", data().join(base).display(), data().join(adapter).display())
}

/// Returns prompts with peft's output for an adapter.
fn cases(adapter: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(data().join("cases.jsonl")).unwrap();
    let cases = text.lines().map(|line| serde_json::from_str(line).unwrap());
    cases.filter(|case: &Value| case["adapter"] == adapter).collect()
}

/// Returns the output of `lumos complete` for the cases' prompts.
fn complete(model: &str, cases: &[Value]) -> Vec<Value> {
    let lines: String = cases.iter().map(|case| format!("{}\n", json!({"prompt": case["prompt"]}))).collect();
    let arguments = format!("complete --model '{model}' --jsonl --stop '' --ignore-eos --max-new-tokens 32");
    lumos().args(arguments).input(lines).ok().lines()
}

#[test]
fn an_adapter_is_named_behind_its_base_or_alone() {
    for adapter in ["attention", "patterns"] {
        let cases = cases(adapter);
        let replies = complete(&named("base", adapter), &cases);
        for (case, reply) in cases.iter().zip(&replies) {
            let safe = usize::try_from(case["safe_tokens"].as_u64().unwrap()).unwrap();
            let tokens = |value: &Value| value.as_array().unwrap()[..safe].to_vec();
            assert_eq!(tokens(&reply["tokens"]), tokens(&case["greedy"]), "{case}");
            assert_eq!(reply["prompt_tokens"], case["ids"]);
        }
        let alone = format!("candle:{}", data().join(adapter).display());
        assert_eq!(complete(&alone, &cases), replies);
        let base = complete(&format!("candle:{}", data().join("base").display()), &cases);
        assert!(base.iter().zip(&replies).all(|(base, reply)| base["tokens"] != reply["tokens"]));
    }
    for (model, words) in [
        (named("base", "nowhere"), ["nowhere does not exist", "pass the folder"]),
        (named("attention", "patterns"), ["attention has no config.json", "base"]),
        (named("base", "base"), ["base has no adapter_config.json", "peft"]),
        (named("model.gguf", "attention"), ["model.gguf", "float checkpoint"]),
    ] {
        lumos().args("complete a --model").arg(model).exits(2).reports(words);
    }
}

#[test]
fn runs_know_adapters_by_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let what = |name: &str, planner: &str, grounder: &str| {
        let run = "run --tasks gsm8k --formulation onetime --limit 2 --max-new-tokens 12 -q";
        let models = format!("--planner '{planner}' --grounder '{grounder}'");
        lumos().args(run).args(models).output(folder.path(), name).ok();
        folder.path().join(name)
    };
    let (planner, grounder) = (named("base", "attention"), named("base", "patterns"));
    let run = what("adapted", &planner, &grounder);
    let manifest = read_json(&run.join("manifest.json"));
    let models = manifest["models"].as_array().unwrap();
    assert_eq!(models.len(), 2, "{models:?}");
    assert_ne!(models[0]["content"], models[1]["content"]);
    for model in models {
        let names: Vec<&str> =
            model["files"].as_array().unwrap().iter().map(|file| file["name"].as_str().unwrap()).collect();
        let files = ["adapter/adapter_config.json", "adapter/adapter_model.safetensors", "config.json"];
        assert_eq!(names, [&files[..], &["model.safetensors", "tokenizer.json"]].concat());
    }
    lumos().args("verify --sample 2").arg(&run).ok().prints(["2 equal"]);
    // The adapter is also served under its own name.
    let server = Serving::models(&[&planner]);
    assert!(server.models.iter().any(|line| line.starts_with("attention: ")), "{:?}", server.models);
    let there = what("served", &format!("openai:attention@{}", server.url), &grounder);
    let said = |run: &Path| -> Vec<Vec<String>> {
        let rows = content(run).0.into_values().flatten();
        rows.map(|row| replies(&row).into_iter().map(str::to_owned).collect()).collect()
    };
    assert_eq!(said(&there), said(&run));
}
