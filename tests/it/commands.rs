//! The other commands, and the texts of the command line.

use std::path::Path;

use serde_json::Value;

use crate::support::{content, expect, fed, files, rows};

/// Returns a text without its line breaks and indentation.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn help_reads_well() {
    for command in [
        "run", "report", "replay", "tool", "complete", "fetch", "show", "worker", "status", "merge", "bench",
        "estimate", "verify", "doctor", "score", "repair",
    ] {
        let (stdout, _) = expect(0, &[command, "--help"]);
        insta::assert_snapshot!(format!("help_{command}"), stdout);
    }
    let (stdout, _) = expect(0, &["--help"]);
    insta::assert_snapshot!("help", stdout);
}

/// Missing capabilities of the machine are reported and are not errors.
#[test]
fn the_doctor_says_what_there_is() {
    let (stdout, stderr) = expect(0, &["doctor", "--json"]);
    assert_eq!(stderr, "");
    let report: Value = serde_json::from_str(&stdout).unwrap();
    assert!(report["cores"].as_u64().unwrap() >= 1);
    assert_eq!(report["linear_paths"].as_array().unwrap().len(), 3);
    let quantized = report["quantized_path"].as_str().unwrap();
    assert!(["portable", "avx2", "avx512vnni"].contains(&quantized), "{report}");
    let gpus = report["gpus"].as_array().unwrap();
    assert_eq!(gpus.is_empty(), report["no_gpu"].is_string(), "{report}");
    let (text, _) = expect(0, &["doctor"]);
    match report["no_gpu"].as_str() {
        Some(reason) => assert!(text.contains(reason), "{text}"),
        None => assert!(text.contains(gpus[0]["model"].as_str().unwrap()), "{text}"),
    }
    assert!(text.contains(&format!("linear layers of Q8_0, Q4_K, Q6_K: {quantized}\n")), "{text}");
    assert!(text.contains("nats-server: "), "{text}");
}

#[test]
fn wrong_usage_has_code_2() {
    for arguments in
        [&["rum"][..], &["run", "--taks", "gsm8k"], &["tool", "sql", "x"], &["report", "/nowhere"]]
    {
        let (_, stderr) = expect(2, arguments);
        assert!(stderr.contains("error"), "{stderr}");
    }
}

#[test]
fn one_tool_by_hand() {
    assert_eq!(expect(0, &["tool", "maths", "2 * (3 + 4)"]).0, "14\n");
    assert_eq!(expect(0, &["tool", "maths", "Solve x^2 = 9"]).0, "x = -3\nx = 3\n");
    let (_, stderr) = expect(100, &["tool", "maths", "9^9^9^9"]);
    assert!(stderr.starts_with("no result: "), "{stderr}");
    let (code, stdout, _) = fed(
        &["tool", "maths", "--jsonl"],
        "{\"query\": \"1 + 2\", \"id\": 7}\n{\"query\": \"Solve x + y = 5, x - y = 1\"}\n{\"query\": \"1 / 0\"}\n",
    );
    assert_eq!(code, 0);
    let lines: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["result"], &lines[0]["id"]), (&"3".into(), &7.into()));
    assert_eq!(lines[1]["result"], "x = 3 ∧ y = 2");
    assert!(lines[2]["error"].is_string() && lines[2].get("result").is_none());
    let (code, _, stderr) = fed(&["tool", "maths", "--jsonl"], "{\"query\": \"1\"}\nnonsense\n");
    assert_eq!(code, 2);
    assert!(stderr.contains("line 2"), "{stderr}");
}

#[test]
fn the_mathematics_table_agrees_by_value() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let rows = rows(&shared.join("golden/math_table.jsonl.gz"));
    let input: String =
        rows.iter().map(|row| format!("{}\n", serde_json::json!({ "query": row["query"] }))).collect();
    let (code, stdout, stderr) = fed(&["tool", "maths", "--jsonl"], &input);
    assert_eq!(code, 0, "{stderr}");
    let texts = |value: &Value| match value {
        Value::Array(values) => values.iter().map(|value| value.as_str().unwrap().to_owned()).collect(),
        value => vec![value.as_str().unwrap_or("(none)").to_owned()],
    };
    assert_eq!(stdout.lines().count(), rows.len());
    for (row, line) in rows.iter().zip(stdout.lines()) {
        let found: Value = serde_json::from_str(line).unwrap();
        let (found, expected): (Vec<String>, Vec<String>) = (texts(&found["result"]), texts(&row["expect"]));
        let same = found.len() == expected.len()
            && found
                .iter()
                .zip(&expected)
                .all(|(found, expected)| lumos_environments::maths::same_value(found, expected));
        assert!(same, "{}: {found:?}, expected {expected:?}", row["query"]);
    }
}

#[test]
fn runs_are_listed_shown_scored_and_reported() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().to_str().unwrap();
    expect(
        0,
        &[
            "run",
            "--tasks",
            "svamp",
            "--model",
            "builtin:tiny",
            "--limit",
            "2",
            "--output-path",
            runs,
            "--name",
            "mine",
        ],
    );
    let run = folder.path().join("mine");
    let run = run.to_str().unwrap();
    let samples = content(Path::new(run)).0.remove("svamp").unwrap();
    let correct = |row: &Value| row["exact_match"] == 1.0;
    let value = samples.iter().filter(|row| correct(row)).count() as f64 / 2.0;
    let figure = format!("{:.1} %", 100.0 * value);

    // A run whose checkpoint was never created is listed with its own state.
    let planned = folder.path().join("planned");
    std::fs::create_dir(&planned).unwrap();
    std::fs::copy(Path::new(run).join("manifest.json"), planned.join("manifest.json")).unwrap();
    let (stdout, _) = expect(0, &["ls", "--output-path", runs, "--json"]);
    let mut listed: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    listed.sort_by_key(|run| run["name"].to_string());
    assert_eq!(listed.len(), 2, "{stdout}");
    for (listed, (name, settled, state)) in
        listed.iter().zip([("mine", 2, "complete"), ("planned", 0, "planned")])
    {
        let told = (&listed["name"], &listed["settled"], &listed["planned"], &listed["state"]);
        assert_eq!(told, (&name.into(), &settled.into(), &2.into(), &state.into()), "{listed}");
        assert_eq!(listed["tasks"], serde_json::json!(["svamp"]));
        assert_eq!(listed["models"], serde_json::json!(["builtin:tiny"]));
    }
    let (stdout, _) = expect(0, &["ls", "--output-path", runs]);
    for (name, settled, state) in [("mine", "2/2", "complete"), ("planned", "0/2", "planned")] {
        let row = stdout.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = row.filter(|words| words.first() == Some(&name)).collect::<Vec<_>>();
        assert_eq!(row.len(), 1, "{stdout}");
        assert!(row[0].contains(&settled) && row[0].last() == Some(&state), "{stdout}");
    }
    let (stdout, _) = expect(0, &["ls", "tasks"]);
    assert!(stdout.contains("gsm8k") && stdout.contains("Lumos-I 7B 47.1"), "{stdout}");

    for (index, row) in samples.iter().enumerate() {
        let (stdout, _) = expect(0, &["show", run, &index.to_string()]);
        assert!(stdout.starts_with(&format!("SVAMP item {index} (lumos-{}), ", index + 1)), "{stdout}");
        let told = words(&stdout);
        for reply in row["resps"].as_array().unwrap() {
            assert!(told.contains(&words(reply[0].as_str().unwrap())), "{reply} is missing from:\n{stdout}");
        }
        let verdict = if correct(row) { "correct" } else { "wrong" };
        assert!(told.contains(&format!("verdict {verdict} by exact_match (paper scoring)")), "{stdout}");
    }
    let (_, stderr) = expect(2, &["show", run, "77"]);
    assert!(stderr.contains("item `77` not found in "), "{stderr}");

    let reported = |format: &str| expect(0, &["report", run, "--format", format]).0;
    let table = words(&reported("table"));
    assert!(table.starts_with("run mine (") && table.contains(&format!(" paper {figure} ")), "{table}");
    let markdown = reported("markdown");
    let row = markdown.lines().find(|line| line.starts_with("| svamp iterative paper")).unwrap();
    assert!(row.contains(&format!(" | paper | exact\\_match | {figure} | ")), "{row}");
    let csv = reported("csv");
    let model = "planner=builtin:tiny grounder=builtin:tiny";
    let start = format!("svamp,iterative,paper,0,{model},paper,exact_match,,proportion,percent,");
    let line = csv.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{csv}"));
    let fields: Vec<&str> = line.split(',').collect();
    assert_eq!(fields[0].parse(), Ok(value), "{line}");
    // Items and planned units.
    assert_eq!(fields[7..9], ["2", "2"], "{line}");
    let html = reported("html");
    assert!(html.starts_with("<!doctype html>") && html.contains("<title>mine – lumos</title>"), "{html}");
    assert!(html.contains(&format!("<td>exact_match</td><td class=\"number\">{figure}</td>")), "{html}");
    let results = |json: &str| serde_json::from_str::<Value>(json).unwrap()["results"]["svamp"].clone();
    let both = results(&reported("json"));
    assert_eq!((&both["exact_match,none"], &both["exact_match,paper"]), (&value.into(), &value.into()));
    assert!(both["exact_match,corrected"].is_number(), "{both}");

    // Other scorings replace the results.
    expect(0, &["score", run, "--scoring", "corrected"]);
    let written = files(Path::new(run), "results_", ".json");
    let corrected = results(&std::fs::read_to_string(&written[0]).unwrap());
    assert_eq!((written.len(), &corrected["exact_match,paper"]), (1, &Value::Null), "{corrected}");
    assert_eq!(corrected["exact_match,none"], both["exact_match,corrected"]);

    let (_, stderr) = expect(
        100,
        &[
            "run",
            "--tasks",
            "svamp",
            "--model",
            "builtin:tiny",
            "--limit",
            "2",
            "--output-path",
            runs,
            "--name",
            "mine",
            "--fail-under",
            "100.5",
        ],
    );
    let expected = format!("svamp iterative paper seed 0: {figure} is below --fail-under 100.5 %\n");
    assert!(stderr.contains(&expected), "{stderr}");
}

#[test]
fn generation_by_hand() {
    let (stdout, _) =
        expect(0, &["complete", "--model", "builtin:tiny", "--max-new-tokens", "8", "<|user|>\nHello"]);
    assert!(stdout.ends_with('\n'));
    let (code, stdout, stderr) = fed(
        &["complete", "--model", "builtin:tiny", "--jsonl", "--max-new-tokens", "4", "--stop", ""],
        "{\"prompt\": \"a b\"}\n",
    );
    assert_eq!(code, 0, "{stderr}");
    let line: Value = serde_json::from_str(&stdout).unwrap();
    assert!(line["prompt_tokens"].as_array().is_some_and(|ids| !ids.is_empty()));
    assert!(line["usage"]["completion_tokens"].as_u64().unwrap() <= 4);
    let (_, stderr) = expect(2, &["complete", "--model", "candle:/nowhere", "text"]);
    assert!(stderr.contains("/nowhere"), "{stderr}");
}

#[test]
fn completions_are_printed_for_shells() {
    for shell in ["bash", "zsh", "fish"] {
        assert!(expect(0, &["completions", shell]).0.contains("lumos"));
    }
}
