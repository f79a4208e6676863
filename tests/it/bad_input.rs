//! Invalid input: the message names the input and the fix, the exit code is 2, and no files are created or
//! lost.

use std::fs;
use std::path::Path;

use crate::support::{content, expect};

const RUN: [&str; 5] = ["run", "--model", "builtin:tiny", "--tasks", "gsm8k"];

/// Runs in a separate folder, expects an error, and returns the message.
fn refused(folder: &Path, arguments: &[&str]) -> String {
    let runs = folder.join("runs");
    let mut all = arguments.to_vec();
    all.extend(["--output-path", runs.to_str().unwrap()]);
    let (_, stderr) = expect(2, &all);
    assert!(!runs.exists(), "a rejected run creates no files");
    stderr
}

fn assert_holds(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` is missing from:\n{message}");
    }
}

fn gsm8k(folder: &Path, content: &str) -> String {
    let data = folder.join("data");
    fs::create_dir_all(data.join("gsm8k")).unwrap();
    fs::write(data.join("gsm8k/test.jsonl"), content).unwrap();
    data.to_str().unwrap().to_owned()
}

fn record(index: usize) -> String {
    format!(
        "{{\"question\": \"What is {index} and 1?\", \"answer\": \"{index}+1 = {0}\\n#### {0}\"}}\n",
        index + 1
    )
}

#[test]
fn unknown_keys_of_the_specification() {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("spec.toml");
    fs::write(&spec, "tasks = [\"gsm8k\"]\nmodel = \"builtin:tiny\"\nformulaton = \"iterative\"\n").unwrap();
    let message = refused(folder.path(), &["run", "--config", spec.to_str().unwrap()]);
    assert_holds(&message, &["spec.toml:3", "formulaton", "formulation"]);
}

#[test]
fn unknown_benchmarks_formulations_and_models() {
    let folder = tempfile::tempdir().unwrap();
    let message = refused(folder.path(), &["run", "--model", "builtin:tiny", "--tasks", "gsm9k"]);
    assert_holds(&message, &["gsm9k", "gsm8k, svamp"]);
    let message = refused(folder.path(), &[&RUN[..], &["--formulation", "iterativ"]].concat());
    assert_holds(&message, &["iterativ", "onetime"]);
    let message = refused(folder.path(), &["run", "--tasks", "gsm8k", "--model", "tiny"]);
    assert_holds(&message, &["tiny", "builtin:tiny", "candle:<folder>"]);
    let message = refused(folder.path(), &[&RUN[..], &["--formulation", "cot"]].concat());
    assert_holds(&message, &["builtin:tiny", "answerer"]);
}

#[test]
fn models_that_are_not_there_or_broken() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("nowhere");
    let name = format!("candle:{}", missing.display());
    let message = refused(folder.path(), &["run", "--tasks", "gsm8k", "--model", &name]);
    assert_holds(&message, &["nowhere", "check that it exists"]);

    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/assets/tiny/planner-iterative");
    for file in ["config.json", "tokenizer.json"] {
        fs::copy(assets.join(file), model.join(file)).unwrap();
    }
    let name = format!("candle:{}", model.display());
    let message = refused(folder.path(), &["run", "--tasks", "gsm8k", "--model", &name]);
    assert_holds(&message, &["safetensors", model.to_str().unwrap()]);

    let weights = fs::read(assets.join("model.safetensors")).unwrap();
    fs::write(model.join("model.safetensors"), &weights[..weights.len() / 2]).unwrap();
    let message = refused(folder.path(), &["run", "--tasks", "gsm8k", "--model", &name]);
    assert_holds(&message, &["model.safetensors", "incomplete"]);
}

#[test]
fn a_tokenizer_with_more_pieces_than_the_model_has_rows() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/assets/tiny/planner-iterative");
    for file in ["config.json", "model.safetensors"] {
        fs::copy(assets.join(file), model.join(file)).unwrap();
    }
    let mut tokenizer: serde_json::Value =
        serde_json::from_slice(&fs::read(assets.join("tokenizer.json")).unwrap()).unwrap();
    let added = tokenizer["added_tokens"].as_array_mut().unwrap();
    let mut token = added[0].clone();
    token["id"] = 99_999.into();
    token["content"] = "<|one too many|>".into();
    added.push(token);
    fs::write(model.join("tokenizer.json"), tokenizer.to_string()).unwrap();
    let name = format!("candle:{}", model.display());
    let message = refused(folder.path(), &["run", "--tasks", "gsm8k", "--model", &name]);
    assert_holds(&message, &["tokenizer.json", "pieces", "rows"]);
}

#[test]
fn malformed_data_names_file_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let mut lines: Vec<String> = (0..800).map(record).collect();
    lines[699] = "{\"question\": \"broken\n".to_owned();
    let data = gsm8k(folder.path(), &lines.concat());
    let message = refused(folder.path(), &[&RUN[..], &["--data", &data]].concat());
    assert_holds(&message, &["test.jsonl:700: ", "--skip-invalid"]);

    lines[699] = "{\"question\": \"no answer\"}\n".to_owned();
    let data = gsm8k(folder.path(), &lines.concat());
    let message = refused(folder.path(), &[&RUN[..], &["--data", &data]].concat());
    assert_holds(&message, &["test.jsonl:700: ", "`answer`"]);

    let skipping = [&["validate"], &RUN[1..], &["--data", &data, "--skip-invalid"]].concat();
    let (stdout, stderr) = expect(0, &skipping);
    assert_holds(&stdout, &["799 of 800 records"]);
    assert_holds(&stderr, &["1 malformed"]);
}

#[test]
fn data_that_is_not_there_empty_or_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    let message = refused(folder.path(), &[&RUN[..], &["--data", "/nowhere"]].concat());
    assert_holds(&message, &["/nowhere/gsm8k/test.jsonl", "lumos fetch gsm8k"]);
    let data = gsm8k(folder.path(), "");
    let message = refused(folder.path(), &[&RUN[..], &["--data", &data]].concat());
    assert_holds(&message, &["test.jsonl", "no record"]);
    let data = folder.path().join("folder");
    fs::create_dir_all(data.join("gsm8k/test.jsonl")).unwrap();
    let message = refused(folder.path(), &[&RUN[..], &["--data", data.to_str().unwrap()]].concat());
    assert_holds(&message, &["test.jsonl", "folder"]);
}

#[test]
fn a_run_folder_of_another_specification_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    let named = |limit: &'static str| {
        [&RUN[..], &["--output-path", runs, "--name", "mine", "--limit", limit]].concat()
    };
    expect(0, &named("2"));
    let before = content(&folder.path().join("mine"));
    let (_, stderr) = expect(2, &named("3"));
    assert_holds(&stderr, &["mine", "different settings", "--limit", "--name"]);
    assert_eq!(content(&folder.path().join("mine")), before);
}

#[test]
fn nothing_selected_has_a_code_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let data = gsm8k(folder.path(), &[record(1), "{}\n".to_owned()].concat());
    let arguments = [&RUN[..], &["--data", &data, "--samples", "1", "--skip-invalid"]].concat();
    let runs = folder.path().join("runs");
    expect(4, &[&arguments[..], &["--output-path", runs.to_str().unwrap()]].concat());
}

#[cfg(unix)]
#[test]
fn a_folder_that_cannot_be_read_is_named() {
    use std::os::unix::fs::PermissionsExt;

    let folder = tempfile::tempdir().unwrap();
    let data = gsm8k(folder.path(), &record(1));
    let locked = folder.path().join("data/gsm8k");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
    // The superuser can read everything, so there is no error.
    if fs::read_dir(&locked).is_err() {
        let message = refused(folder.path(), &[&RUN[..], &["--data", &data]].concat());
        assert_holds(&message, &["test.jsonl", "failed to read"]);
    }
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o755)).unwrap();
}
