//! Tests of the exported files.

use crate::viewer::PAGE;
use jiff::Timestamp;
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::samples::{configuration, item, manifest_of, samples_files, state};
use lumos_coordinator::{Checkpoint, unit_of};
use serde_json::Value;

use super::*;
use crate::report::report;

fn lines(file: &Path) -> Vec<Value> {
    fs::read_to_string(file).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test]
async fn files_are_replaced_whole() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let items: Vec<_> = (0..10).map(item).collect();
    let manifest = manifest_of(&[configuration(0)], &items);
    let checkpoint = Checkpoint::create(&folder.join("checkpoint")).unwrap();
    checkpoint.store_items("svamp", &items).unwrap();
    let now: Timestamp = "2025-01-02T03:04:05.6Z".parse().unwrap();
    let first = export(folder, &manifest, &checkpoint, &[], now).unwrap();
    assert_eq!(first.total.outstanding, 10);
    assert!(is_current(folder, &first).unwrap());
    // Recorded in reverse order; exported in the order of the items.
    for item in items.iter().rev() {
        let unit = unit_of(&manifest.configurations[0], item);
        if let Some(record) = state(item.index, &unit) {
            checkpoint.record(record).await.unwrap();
        }
    }
    let later = now.checked_add(jiff::SignedDuration::from_secs(60)).unwrap();
    let grown = report(&manifest, &checkpoint, &[]).unwrap();
    assert!(!is_current(folder, &grown).unwrap(), "more is recorded than the files contain");
    let second = export(folder, &manifest, &checkpoint, &[], later).unwrap();
    assert!(is_current(folder, &second).unwrap());
    let mut names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "checkpoint",
            "faults_2025-01-02T03-05-05.600000.jsonl",
            "report",
            "report.html",
            "report.md",
            "results_2025-01-02T03-05-05.600000.json",
            "samples_svamp_2025-01-02T03-05-05.600000.jsonl",
        ]
    );
    let [faults, samples] = samples_files(folder).try_into().unwrap();
    let rows = lines(&samples);
    let positions: Vec<_> = rows.iter().map(|row| row["doc_id"].as_u64().unwrap()).collect();
    assert_eq!(positions, (0..8).collect::<Vec<_>>(), "faulted and outstanding units are left out");
    // Readers infer types from the first lines: all lines have the same fields of the same types.
    let shape = |row: &Value| -> Vec<(String, &'static str)> {
        let kind = |value: &Value| match value {
            Value::String(_) => "text",
            Value::Number(number) if number.is_f64() => "float",
            Value::Number(_) => "integer",
            Value::Object(_) => "object",
            Value::Array(_) => "list",
            Value::Null | Value::Bool(_) => "other",
        };
        row.as_object().unwrap().iter().map(|(name, value)| (name.clone(), kind(value))).collect()
    };
    assert!(rows.iter().all(|row| shape(row) == shape(&rows[0])), "{:?}", shape(&rows[0]));
    let texts = ["error", "evidence", "item", "group", "judge", "scores", "telemetry", "trajectory"];
    assert!(texts.iter().all(|name| shape(&rows[0]).contains(&((*name).to_owned(), "text"))));
    let first = &rows[0];
    assert_eq!(first["arguments"]["gen_args_0"]["arg_1"]["max_gen_toks"], 512);
    assert_eq!(first["arguments"].as_object().unwrap().len(), 1);
    assert_eq!((&first["resps"][0], &first["resps"][0][0]), (&first["filtered_resps"], &"2".into()));
    assert_eq!((&first["task"], &first["benchmark"]), (&"svamp".into(), &"svamp".into()));
    assert_eq!((&first["exact_match"], &rows[7]["exact_match"]), (&1.0.into(), &0.0.into()));
    assert_eq!(rows[7]["status"], "gave_up");
    let scores: Value = serde_json::from_str(rows[4]["scores"].as_str().unwrap()).unwrap();
    assert_eq!(scores["corrected"]["exact_match"]["numerator"], 1.0);
    let faulted = lines(&faults);
    assert_eq!((faulted.len(), &faulted[0]["status"]), (1, &"faulted".into()));
    assert!(faulted[0].get("exact_match").is_none() && faulted[0]["metrics"] == serde_json::json!([]));
    let results: Value = serde_json::from_slice(&fs::read(results_file(folder)).unwrap()).unwrap();
    assert_eq!(results["n-samples"]["svamp"], serde_json::json!({"original": 1000, "effective": 8}));
    assert_eq!(results["model_name"], "lumos/planner+grounder");
    assert!(
        results["config"]["model_args"].as_str().unwrap().starts_with("pretrained=lumos/planner+grounder,")
    );
    assert!(results["total_evaluation_time_seconds"].is_string());
    let same = export(folder, &manifest, &checkpoint, &[], later).unwrap();
    assert_eq!(same, second);
    assert_eq!(lines(&samples), rows);
    fs::remove_file(faults).unwrap();
    assert!(!is_current(folder, &second).unwrap(), "the file of faulted units is missing");
}

fn results_file(folder: &Path) -> PathBuf {
    let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    files.find(|file| file.file_name().unwrap().to_string_lossy().starts_with("results_")).unwrap()
}

/// A recorded run of ten items in two seeds: a faulted and an outstanding unit each.
async fn recorded(folder: &Path) -> (Manifest, Checkpoint) {
    crate::results::tests::recorded(&folder.join("run"), 10, |_| {}).await
}

fn written(folder: &Path, run: &(Manifest, Checkpoint), format: &str) -> ExportSummary {
    let format = format.parse().unwrap();
    let options = ExportOptions::default();
    convert(folder, &run.0, &run.1, format, &options, Timestamp::UNIX_EPOCH).unwrap()
}

#[tokio::test]
async fn a_log_of_inspect_has_the_recorded_units_as_samples() {
    let folder = tempfile::tempdir().unwrap();
    let run = recorded(folder.path()).await;
    let summary = written(&folder.path().join("logs"), &run, "inspect");
    assert_eq!((summary.files.len(), summary.rows), (2, 18));
    let mut ids = std::collections::BTreeSet::new();
    for file in &summary.files {
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(name.starts_with("2025-01-02T03-04-05-00-00_svamp-iterative-paper-seed"), "{name}");
        assert_eq!(name.matches('_').count(), 2, "{name}");
        let mut zip = zip::ZipArchive::new(fs::File::open(file).unwrap()).unwrap();
        let mut read = |name: &str| -> Value { serde_json::from_reader(zip.by_name(name).unwrap()).unwrap() };
        let header = read("header.json");
        let keys: Vec<_> = header.as_object().unwrap().keys().cloned().collect();
        assert_eq!(keys, ["version", "status", "eval", "plan", "results", "stats"]);
        assert_eq!(header["status"], "error", "a unit is outstanding");
        assert!(ids.insert(header["eval"]["eval_id"].as_str().unwrap().to_owned()), "readers drop equal ids");
        let results = &header["results"];
        assert_eq!((&results["total_samples"], &results["completed_samples"]), (&10.into(), &8.into()));
        let headline = &results["scores"][0];
        let report = report(&run.0, &run.1, &[]).unwrap();
        let metric = report.configurations[0].main().unwrap().estimate.unwrap();
        assert_eq!((&headline["name"], &headline["unscored_samples"]), (&"exact_match".into(), &1.into()));
        assert_eq!(headline["metrics"]["accuracy"]["value"], metric.value);
        assert_eq!(headline["metrics"]["stderr"]["value"], metric.standard_error.unwrap());
        let summaries = read("summaries.json");
        let summaries = summaries.as_array().unwrap().clone();
        assert_eq!(summaries.len(), 9);
        assert!(summaries[8]["error"].is_string() && summaries[8]["scores"] == serde_json::json!({}));
        let sample = read("samples/0_epoch_1.json");
        let kinds: Vec<_> = sample["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["event"].as_str().unwrap())
            .collect();
        assert_eq!(kinds, ["span_begin", "model", "model", "tool", "tool", "span_end", "score", "score"]);
        assert_eq!(sample["messages"].as_array().unwrap().len(), 4);
        let faulted = read("samples/8_epoch_1.json");
        let parts = faulted["error"].as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(parts, ["message", "traceback", "traceback_ansi"]);
    }
    assert_eq!(ids.len(), 2);
}

#[tokio::test]
async fn exports_have_the_fields_of_files_that_their_readers_accept() {
    let Some(examples) = lumos_capabilities::shared("reports/examples") else { return };
    let folder = tempfile::tempdir().unwrap();
    let run = recorded(folder.path()).await;
    let summary = written(&folder.path().join("logs"), &run, "inspect");
    let mut zip = zip::ZipArchive::new(fs::File::open(&summary.files[0]).unwrap()).unwrap();
    let example = examples.join("inspect/2025-01-02T03-04-00-00-00_svamp_HandT1.json");
    let example: Value = serde_json::from_slice(&fs::read(example).unwrap()).unwrap();
    let header: Value = serde_json::from_reader(zip.by_name("header.json").unwrap()).unwrap();
    assert_superset(&header["eval"], &example["eval"], "eval");
    assert_superset(&header["results"]["scores"][0], &example["results"]["scores"][0], "scores");
    let sample: Value = serde_json::from_reader(zip.by_name("samples/0_epoch_1.json").unwrap()).unwrap();
    assert_superset(&sample, &example["samples"][0], "sample");

    let summary = written(&folder.path().join("eee"), &run, "every-eval-ever");
    let eee = examples.join("eee/data/svamp/candle/lumos-pair/3f2b8c1e-5a4d-4c6b-9e7f-0123456789ab");
    let example: Value = serde_json::from_slice(&fs::read(eee.with_extension("json")).unwrap()).unwrap();
    let aggregate: Value = serde_json::from_slice(&fs::read(&summary.files[0]).unwrap()).unwrap();
    assert_superset(&aggregate, &example, "aggregate");
    for part in ["metric_config", "score_details"] {
        let found = &aggregate["evaluation_results"][0][part];
        assert_superset(found, &example["evaluation_results"][0][part], part);
    }
    let row = &lines(&eee.with_file_name("3f2b8c1e-5a4d-4c6b-9e7f-0123456789ab_samples.jsonl"))[0];
    assert_superset(&lines(&summary.files[1])[0], row, "instance");
}

/// Asserts that an object has all fields of another one.
fn assert_superset(found: &Value, example: &Value, place: &str) {
    for name in example.as_object().unwrap().keys() {
        assert!(found.get(name).is_some(), "{place} has no `{name}`: {found:#}");
    }
}

#[tokio::test]
async fn records_of_every_eval_ever_agree_with_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let run = recorded(folder.path()).await;
    let summary = written(&folder.path().join("eee"), &run, "every-eval-ever");
    // Two seeds, eight settled units, one metric under one scoring.
    assert_eq!((summary.files.len(), summary.rows), (4, 32));
    assert_eq!(summary.skipped["faulted"], 2);
    let aggregate: Value = serde_json::from_slice(&fs::read(&summary.files[0]).unwrap()).unwrap();
    let rows = lines(&summary.files[1]);
    let detailed = &aggregate["detailed_evaluation_results"];
    let relative = summary.files[1].strip_prefix(folder.path().join("eee")).unwrap();
    assert_eq!(detailed["file_path"], relative.to_str().unwrap());
    assert_eq!(detailed["total_rows"], rows.len());
    let bytes = fs::read(&summary.files[1]).unwrap();
    assert_eq!(detailed["checksum"], lumos_tasks::ContentHash::of_bytes(&bytes).as_str());
    for result in aggregate["evaluation_results"].as_array().unwrap() {
        let scores: Vec<f64> = rows
            .iter()
            .filter(|row| row["evaluation_result_id"] == result["evaluation_result_id"])
            .map(|row| row["evaluation"]["score"].as_f64().unwrap())
            .collect();
        let mean = scores.iter().sum::<f64>() / scores.len() as f64;
        assert_eq!(scores.len(), 8);
        assert!((result["score_details"]["score"].as_f64().unwrap() - mean).abs() < 1e-12);
    }
    assert!(rows.iter().all(|row| row["evaluation_id"] == aggregate["evaluation_id"]));
}

#[tokio::test]
async fn tables_have_a_row_per_recorded_unit() {
    let folder = tempfile::tempdir().unwrap();
    let run = recorded(folder.path()).await;
    let summary = written(&folder.path().join("csv"), &run, "csv");
    assert_eq!(summary.rows, 18);
    let mut reader = ::csv::Reader::from_path(&summary.files[0]).unwrap();
    let headers = reader.headers().unwrap().clone();
    let column = |name: &str| headers.iter().position(|header| header == name).unwrap();
    let rows: Vec<_> = reader.records().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 18);
    assert_eq!(rows[0][column("models")], *"planner + grounder");
    assert_eq!(
        (&rows[0][column("exact_match_paper")], &rows[0][column("exact_match_paper_weight")]),
        ("1", "1")
    );
    assert_eq!((&rows[8][column("exact_match_paper")], &rows[8][column("status")]), ("", "faulted"));
    assert_eq!(rows[0][column("prompt_tokens")], *"200");
    assert_eq!(summary.skipped["outstanding"], 2);
    let latex = written(&folder.path().join("latex"), &run, "latex");
    insta::assert_snapshot!(fs::read_to_string(&latex.files[0]).unwrap());
}

#[cfg(feature = "parquet")]
#[tokio::test]
async fn parquet_has_the_steps_of_every_unit() {
    use ::parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
    use arrow_array::Array;
    use arrow_array::cast::AsArray;

    let folder = tempfile::tempdir().unwrap();
    let run = recorded(folder.path()).await;
    let summary = written(&folder.path().join("parquet"), &run, "parquet");
    let file = fs::File::open(&summary.files[0]).unwrap();
    let batches = ParquetRecordBatchReaderBuilder::try_new(file).unwrap().build().unwrap();
    let batches: Vec<_> = batches.map(Result::unwrap).collect();
    assert_eq!((batches.len(), batches[0].num_rows()), (1, 18));
    let steps = batches[0].column_by_name("steps").unwrap().as_list::<i32>().value(0);
    let steps = steps.as_struct();
    let replies = steps.column_by_name("reply").unwrap().as_string::<i32>();
    assert_eq!((steps.len(), replies.value(1)), (4, "R1 = Calculator(1 + 2)"));
    let status = batches[0].column_by_name("status").unwrap().as_string::<i32>();
    assert_eq!(status.value(8), "faulted");
}

#[tokio::test]
async fn only_the_folder_of_an_export_is_replaced() {
    let folder = tempfile::tempdir().unwrap();
    let run = recorded(folder.path()).await;
    let out = folder.path().join("out");
    let options = |replace| ExportOptions { replace, ..ExportOptions::default() };
    let export =
        |replace| convert(&out, &run.0, &run.1, csv::FORMAT, &options(replace), Timestamp::UNIX_EPOCH);
    fs::create_dir(&out).unwrap();
    export(false).unwrap();
    assert!(matches!(export(false), Err(ExportError::NotEmpty(_))));
    fs::write(out.join("units.csv"), "old").unwrap();
    assert_eq!(export(true).unwrap().rows, 18);
    assert_ne!(fs::read(out.join("units.csv")).unwrap(), b"old");
    let own = folder.path().join("run");
    let replaced = convert(&own, &run.0, &run.1, csv::FORMAT, &options(true), Timestamp::UNIX_EPOCH);
    assert!(matches!(replaced, Err(ExportError::NotAnExport(_))));
    assert!(own.join("checkpoint").is_dir());
    let left: Vec<_> = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "{left:?}");
}

#[tokio::test]
async fn annotations_are_conversations_of_training_items_only() {
    let folder = tempfile::tempdir().unwrap();
    let items: Vec<_> = (0..6).map(item).collect();
    let manifest = manifest_of(&[configuration(0)], &items);
    let checkpoint = Checkpoint::create(&folder.path().join("run/checkpoint")).unwrap();
    checkpoint.store_items("svamp", &items).unwrap();
    for item in &items {
        let mut record = state(item.index, &unit_of(&manifest.configurations[0], item)).unwrap();
        // The planner's last reply ends planning, except in one episode.
        if item.index != 3 {
            record.outcome.steps.push(lumos_tasks::Step::Generate {
                turn: 2,
                role: lumos_tasks::Role::Planner,
                prompt: format!(
                    "<|user|>\nTask {}.\n<|assistant|>\nSubgoal 1.\n\n<|user|>\nStop?\n<|assistant|>\n",
                    item.index
                ),
                reply: " Yes, I will stop planning.".to_owned(),
                finish: lumos_tasks::Finish::Stop,
                prompt_tokens: None,
                completion_tokens: None,
            });
        }
        checkpoint.record(record).await.unwrap();
    }
    let annotated = |name: &str, manifest: &Manifest, annotations: AnnotationOptions| {
        let options = ExportOptions { annotations, ..ExportOptions::default() };
        let folder = folder.path().join(name);
        convert(&folder, manifest, &checkpoint, annotations::FORMAT, &options, Timestamp::UNIX_EPOCH)
    };
    let plan = AnnotationOptions { module: AnnotatedModule::Plan, ..AnnotationOptions::default() };
    let summary = annotated("own", &manifest, plan).unwrap();
    let names: Vec<_> =
        summary.files.iter().map(|file| file.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(
        names,
        ["lumos_maths_plan_iterative.jsonl", "lumos_unified_plan_iterative.jsonl", "provenance.jsonl"]
    );
    let rows = lines(&summary.files[1]);
    assert_eq!((rows.len() as u64, lines(&summary.files[2]).len()), (summary.rows, rows.len()));
    let keys: Vec<_> = rows[0].as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["dataset", "id", "messages"]);
    assert_eq!((&rows[0]["dataset"], &rows[0]["id"]), (&"maths".into(), &"maths_0".into()));
    let roles: Vec<_> = rows[0]["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].as_str().unwrap())
        .collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    assert_eq!(rows[0]["messages"][3]["content"], "Yes, I will stop planning.");
    assert_eq!(summary.skipped.get("plan: planning was not ended"), Some(&1), "{:?}", summary.skipped);
    // The grounder's conversations are equal in all episodes.
    let both = annotated("both", &manifest, AnnotationOptions::default()).unwrap();
    assert_eq!(both.rows, rows.len() as u64 + 1);

    // The official file is a test set.
    let mut official = manifest.clone();
    let sha256 = lumos_benchmarks::get("svamp").unwrap().downloads()[0].sha256;
    official.data[0].sha256 = lumos_tasks::ContentHash::from_hex(sha256);
    assert!(matches!(annotated("test", &official, plan), Err(ExportError::OnlyTestItems(_))));
    assert!(!folder.path().join("test").exists());
    let allowed = annotated("test", &official, AnnotationOptions { allow_test: true, ..plan }).unwrap();
    assert_eq!(allowed.rows, rows.len() as u64);
    let is_marked = |file: &PathBuf| file.file_name().unwrap().to_str().unwrap().starts_with("test_");
    assert!(allowed.files.iter().all(is_marked));
    let short = AnnotationOptions { max_turns: Some(1), ..plan };
    assert!(matches!(annotated("short", &manifest, short), Err(ExportError::Nothing(_))));
}

#[test]
fn an_export_that_was_cut_short_is_not_current() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let items: Vec<_> = (0..2).map(item).collect();
    let manifest = manifest_of(&[configuration(0)], &items);
    let checkpoint = Checkpoint::create(&folder.join("checkpoint")).unwrap();
    checkpoint.store_items("svamp", &items).unwrap();
    let empty = report(&manifest, &checkpoint, &[]).unwrap();
    assert!(!is_current(folder, &empty).unwrap(), "there is nothing yet");
    let exported = export(folder, &manifest, &checkpoint, &[], Timestamp::UNIX_EPOCH).unwrap();
    assert!(is_current(folder, &exported).unwrap());
    let page = folder.join(VIEWER).join(PAGE);
    fs::rename(&page, folder.join("moved")).unwrap();
    assert!(!is_current(folder, &exported).unwrap());
    fs::rename(folder.join("moved"), &page).unwrap();
    for name in ["report.html", "report.md"] {
        fs::rename(folder.join(name), folder.join("moved")).unwrap();
        assert!(!is_current(folder, &exported).unwrap(), "{name}");
        fs::rename(folder.join("moved"), folder.join(name)).unwrap();
    }
    assert!(is_current(folder, &exported).unwrap());
    for name in ["samples_svamp_2024.jsonl", "faults_2024.jsonl", "results_2024.json"] {
        fs::write(folder.join(name), "").unwrap();
        assert!(!is_current(folder, &exported).unwrap(), "{name} is older");
        fs::remove_file(folder.join(name)).unwrap();
    }
    assert!(is_current(folder, &exported).unwrap());
    fs::remove_file(&samples_files(folder)[0]).unwrap();
    assert!(!is_current(folder, &exported).unwrap());
    // New results cannot be written: a folder has their name.
    let later = Timestamp::from_second(60).unwrap();
    fs::create_dir(folder.join(format!("results_{}.json", lm_eval::file_time(later)))).unwrap();
    fs::write(folder.join("report.md"), "old").unwrap();
    assert!(export(folder, &manifest, &checkpoint, &[], later).is_err());
    assert_eq!(fs::read_to_string(folder.join("report.md")).unwrap(), "old", "newer than the results");
    checkpoint.close().unwrap();
}
