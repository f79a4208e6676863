//! The other commands, and the texts of the command line.

use serde_json::Value;

use crate::support::{expect, fed, rows};

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
    let (stdout, _) = expect(0, &["ls", "--output-path", runs]);
    assert!(stdout.contains("mine") && stdout.contains("2/2") && stdout.contains("complete"), "{stdout}");
    let (stdout, _) = expect(0, &["ls", "tasks"]);
    assert!(stdout.contains("gsm8k") && stdout.contains("Lumos-I 7B 47.1"), "{stdout}");
    let (stdout, _) = expect(0, &["show", run, "0"]);
    assert!(stdout.contains("Subgoal 1"), "{stdout}");
    let (_, stderr) = expect(2, &["show", run, "77"]);
    assert!(stderr.contains("77"), "{stderr}");
    expect(0, &["score", run, "--scoring", "corrected"]);
    for format in ["table", "markdown", "json", "csv", "html"] {
        let (stdout, _) = expect(0, &["report", run, "--format", format]);
        assert!(stdout.contains("svamp") || stdout.contains("SVAMP"), "{format}: {stdout}");
    }
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
    assert!(stderr.contains("--fail-under"), "{stderr}");
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
