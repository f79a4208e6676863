//! `lumos export`: every format from the command line, exit codes and hints.

use std::fs;

use serde_json::{Value, json};

use crate::support::{files, finished_run, lumos, results, rows};

#[test]
fn every_format_is_written_from_a_finished_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    let export = |format: &str| {
        let export = lumos().args("export").arg(&run).args("--to").arg(format);
        export.arg("--output").arg(folder.path().join(format))
    };
    for (format, rows, file) in [
        ("inspect", "60 samples", "_svamp-onetime-paper-seed0_"),
        ("lm-eval", "60 units", "lumos__tiny/results_"),
        ("every-eval-ever", "120 instances", "data/svamp/lumos/tiny/"),
        ("csv", "60 units", "units.csv"),
        ("latex", "2 configurations", "table.tex"),
    ] {
        let done = export(format).ok();
        done.reports([&format!("exported {rows} to ")[..]]).prints([file]);
    }
    export("csv").exits(2).reports(["error: output folder is not empty: ", "hint: ", "--force"]);
    export("csv").args("--force --scoring corrected").ok();
    let csv = fs::read_to_string(folder.path().join("csv/units.csv")).unwrap();
    assert!(csv.contains("exact_match_corrected") && !csv.contains("exact_match_paper"), "{csv}");
    let into_run = lumos().args("export --to csv --force").arg(&run).arg("--output").arg(&run);
    into_run.exits(2).reports(["not the folder of an export"]);
    export("xml").exits(2).reports(["expected one of inspect, lm-eval, every-eval-ever, parquet, csv"]);
    if !cfg!(feature = "parquet") {
        export("parquet").exits(2).reports(["built without `parquet`", "--features parquet"]);
    }
    // The layout of a run's folder is the exported one, except for the name of the models.
    let named = export("lm-eval").args("--force --model-id me/mine").ok();
    named.prints(["lm-eval/me__mine/samples_svamp_iterative_paper_seed0_"]);
    let (own, other) = (results(&run), results(&folder.path().join("lm-eval/me__mine")));
    assert_eq!((&other["model_name"], &own["results"]), (&json!("me/mine"), &other["results"]));
    let tex = fs::read_to_string(folder.path().join("latex/table.tex")).unwrap();
    assert!(tex.contains("tiny, iterative & ") && tex.contains("\\begin{tabular}{lr}"), "{tex}");
    lumos()
        .args("export --to latex --force --label tiny=T_1")
        .arg(&run)
        .arg("--output")
        .arg(folder.path().join("latex"))
        .ok();
    assert!(
        fs::read_to_string(folder.path().join("latex/table.tex")).unwrap().contains("T\\_1, iterative & ")
    );
}

#[test]
fn annotations_of_samples_are_training_data_and_those_of_a_test_file_are_not() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    let export = |run: &std::path::Path, name: &str| {
        let export = lumos().args("export --to annotations").arg(run);
        export.arg("--output").arg(folder.path().join(name))
    };
    export(&run, "own").ok();
    let annotations = folder.path().join("own/train_annots");
    for module in ["plan_iterative", "plan_onetime", "ground_iterative", "ground_onetime"] {
        let rows = rows(&annotations.join(format!("lumos_unified_{module}.jsonl")));
        assert!(!rows.is_empty(), "{module}");
        for row in rows {
            let keys: Vec<_> = row.as_object().unwrap().keys().collect();
            assert_eq!(keys, ["dataset", "id", "messages"]);
            let messages = row["messages"].as_array().unwrap();
            let roles = messages.iter().map(|message| message["role"].as_str().unwrap());
            let expected = ["user", "assistant"].into_iter().cycle().take(messages.len());
            assert!(messages.len() % 2 == 0 && roles.eq(expected), "{row:#}");
        }
    }
    // Every turn of a planner's conversation is one of its recorded replies.
    let replies: Vec<String> = files(&run, "samples_", ".jsonl")
        .iter()
        .flat_map(|path| rows(path))
        .flat_map(|row| {
            crate::support::replies(&row).into_iter().map(|reply| reply.trim().to_owned()).collect::<Vec<_>>()
        })
        .collect();
    for row in rows(&annotations.join("lumos_maths_plan_iterative.jsonl")) {
        for message in
            row["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "assistant")
        {
            assert!(
                replies.iter().any(|reply| message["content"].as_str() == Some(reply.as_str())),
                "{message}"
            );
        }
    }

    // One line of a test file, in a file of one's own.
    let data = folder.path().join("data/gsm8k");
    fs::create_dir_all(&data).unwrap();
    let question = "Janet’s ducks lay 16 eggs per day. She eats three for breakfast every morning and bakes muffins for \
                    her friends every day with four. She sells the remainder at the farmers' market daily for $2 per fresh \
                    duck egg. How much in dollars does she make every day at the farmers' market?";
    let record = json!({"question": question, "answer": "She makes 9 * 2 = $<<9*2=18>>18.\n#### 18"});
    fs::write(data.join("test.jsonl"), record.to_string()).unwrap();
    let evaluate =
        lumos().args("run --tasks gsm8k --model builtin:tiny --data").arg(folder.path().join("data"));
    evaluate.output(folder.path(), "copied").ok();
    let copied = folder.path().join("copied");
    let refused = export(&copied, "copied-data").args("--correct-only=false").exits(4);
    refused.reports(["gsm8k items of a test set (1)", "hint: pass --allow-test to export test-set items"]);
    assert!(!folder.path().join("copied-data").exists());
    // Samples exported with the flag are marked, too.
    let marked = export(&run, "marked").args("--allow-test --module ground").ok();
    marked.reports(["do not train on them"]).prints(["test_lumos_unified_ground_iterative.jsonl"]);
    let provenance: Vec<Value> = rows(&folder.path().join("marked/train_annots/test_provenance.jsonl"));
    assert!(
        provenance.iter().all(|row| row["file"].as_str().unwrap().starts_with("test_lumos_maths_ground"))
    );
}
