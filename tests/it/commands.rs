//! The other commands, and the texts of the command line.

use serde_json::{Value, json};

use crate::support::{content, lumos, replies, results, rows, unwrapped};

#[test]
fn help_reads_well() {
    for command in [
        "run", "report", "replay", "tool", "complete", "fetch", "show", "worker", "status", "merge", "bench",
        "estimate", "export", "verify", "doctor", "score", "repair", "serve", "compare", "gate",
    ] {
        insta::assert_snapshot!(format!("help_{command}"), lumos().arg(command).arg("--help").ok().stdout);
    }
    insta::assert_snapshot!("help", lumos().args("--help").ok().stdout);
}

/// Missing capabilities of the machine are reported and are not errors.
#[test]
fn the_doctor_says_what_there_is() {
    let doctor = lumos().args("doctor --json").ok();
    assert_eq!(doctor.stderr, "");
    let report = doctor.json();
    assert!(report["cores"].as_u64().unwrap() >= 1);
    assert_eq!(report["linear_paths"].as_array().unwrap().len(), 3);
    let quantized = report["quantized_path"].as_str().unwrap();
    assert!(["portable", "avx2", "avxvnni", "avx512vnni"].contains(&quantized), "{report}");
    let gpus = report["gpus"].as_array().unwrap();
    assert_eq!(gpus.is_empty(), report["no_gpu"].is_string(), "{report}");
    let text = lumos().args("doctor").ok().stdout;
    // Long lines are wrapped.
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match report["no_gpu"].as_str() {
        Some(reason) => assert!(words.contains(reason), "{text}"),
        None => assert!(words.contains(gpus[0]["model"].as_str().unwrap()), "{text}"),
    }
    assert!(text.contains(&format!("linear layers of Q8_0, Q4_K, Q6_K: {quantized}\n")), "{text}");
    assert!(text.contains("nats-server: "), "{text}");
    let limited = lumos().args("doctor --json").env("LUMOS_CPU", "portable").ok().json();
    assert_eq!(limited["quantized_path"], "portable");
    assert_eq!(limited["linear_paths"][1]["path"], "portable", "{limited}");
    assert_eq!(limited["instruction_limit"], "limited to portable by LUMOS_CPU");
    let invalid = lumos().args("doctor").env("LUMOS_CPU", "sse").ok().stdout;
    let invalid = invalid.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(invalid.contains("invalid value `sse` for LUMOS_CPU: expected one of portable"), "{invalid}");
    lumos()
        .args("bench engine --random-weights 1m")
        .env("LUMOS_CPU", "sse")
        .exits(2)
        .reports(["invalid value `sse` for LUMOS_CPU"]);
    // The tests are built without it.
    assert!(report["missing_features"].as_array().unwrap().contains(&"candle-cuda".into()), "{report}");
    assert!(text.contains("not in this build: candle-cuda, "), "{text}");
}

#[test]
fn wrong_usage_has_code_2() {
    for arguments in ["rum", "run --taks gsm8k", "tool sql x", "report /nowhere"] {
        lumos().args(arguments).exits(2).reports(["error"]);
    }
}

#[test]
fn one_tool_by_hand() {
    let maths = |query: &str| lumos().args("tool maths").arg(query);
    assert_eq!(maths("2 * (3 + 4)").ok().stdout, "14\n");
    assert_eq!(maths("Solve x^2 = 9").ok().stdout, "x = -3\nx = 3\n");
    let failed = maths("9^9^9^9").exits(100);
    assert!(failed.stderr.starts_with("no result: "), "{failed}");
    let queries = [
        r#"{"query": "1 + 2", "id": 7}"#,
        r#"{"query": "Solve x + y = 5, x - y = 1"}"#,
        r#"{"query": "1 / 0"}"#,
    ];
    let lines = maths("--jsonl").input(queries.join("\n")).ok().lines();
    assert_eq!((&lines[0]["result"], &lines[0]["id"]), (&"3".into(), &7.into()));
    assert_eq!(lines[1]["result"], "x = 3 ∧ y = 2");
    assert!(lines[2]["error"].is_string() && lines[2].get("result").is_none());
    maths("--jsonl").input("{\"query\": \"1\"}\nnonsense\n").exits(2).reports(["line 2"]);
}

#[test]
fn the_mathematics_table_agrees_by_value() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let rows = rows(&shared.join("golden/math_table.jsonl.gz"));
    let input: String = rows.iter().map(|row| format!("{}\n", json!({ "query": row["query"] }))).collect();
    let replies = lumos().args("tool maths --jsonl").input(input).ok().lines();
    let texts = |value: &Value| match value {
        Value::Array(values) => values.iter().map(|value| value.as_str().unwrap().to_owned()).collect(),
        value => vec![value.as_str().unwrap_or("(none)").to_owned()],
    };
    assert_eq!(replies.len(), rows.len());
    for (row, found) in rows.iter().zip(&replies) {
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
    let run = folder.path().join("mine");
    let make = || {
        let run = lumos().args("run --tasks svamp --model builtin:tiny --limit 2");
        run.output(folder.path(), "mine")
    };
    make().ok();
    let samples = content(&run).0.remove("svamp").unwrap();
    let correct = |row: &Value| row["exact_match"] == 1.0;
    let value = samples.iter().filter(|row| correct(row)).count() as f64 / 2.0;
    let figure = format!("{:.1} %", 100.0 * value);

    // A run whose checkpoint was never created is listed with its own state.
    let planned = folder.path().join("planned");
    std::fs::create_dir(&planned).unwrap();
    std::fs::copy(run.join("manifest.json"), planned.join("manifest.json")).unwrap();
    let ls = || lumos().args("ls --output-path").arg(folder.path());
    let mut listed = ls().args("--json").ok().lines();
    listed.sort_by_key(|run| run["name"].to_string());
    assert_eq!(listed.len(), 2, "{listed:?}");
    for (listed, (name, settled, state)) in
        listed.iter().zip([("mine", 2, "complete"), ("planned", 0, "planned")])
    {
        let told = (&listed["name"], &listed["settled"], &listed["planned"], &listed["state"]);
        assert_eq!(told, (&name.into(), &settled.into(), &2.into(), &state.into()), "{listed}");
        assert_eq!(listed["tasks"], json!(["svamp"]));
        assert_eq!(listed["models"], json!(["builtin:tiny"]));
    }
    let table = ls().ok().stdout;
    for (name, settled, state) in [("mine", "2/2", "complete"), ("planned", "0/2", "planned")] {
        let row = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let row = row.filter(|words| words.first() == Some(&name)).collect::<Vec<_>>();
        assert_eq!(row.len(), 1, "{table}");
        assert!(row[0].contains(&settled) && row[0].last() == Some(&state), "{table}");
    }
    lumos().args("ls tasks").ok().prints(["gsm8k", "Lumos-I 7B 47.1"]);

    let show = |item: &str| lumos().args("show").arg(&run).arg(item);
    for (index, row) in samples.iter().enumerate() {
        let shown = show(&index.to_string()).ok();
        assert!(shown.stdout.starts_with(&format!("SVAMP item {index} (lumos-{}), ", index + 1)), "{shown}");
        let told = unwrapped(&shown.stdout);
        for reply in replies(row) {
            assert!(told.contains(&unwrapped(reply)), "{reply} is missing from {shown}");
        }
        let verdict = if correct(row) { "correct" } else { "wrong" };
        assert!(told.contains(&format!("verdict {verdict} by exact_match (paper scoring)")), "{shown}");
    }
    show("77").exits(2).reports(["item `77` not found in "]);

    let reported = |format: &str| lumos().args("report --format").arg(format).arg(&run).ok();
    let table = unwrapped(&lumos().args("report -v").arg(&run).ok().stdout);
    assert!(table.starts_with("run mine (") && table.contains(&format!(" paper {figure} ")), "{table}");
    let markdown = reported("markdown").stdout;
    let row = markdown.lines().find(|line| line.starts_with("| svamp iterative paper")).unwrap();
    assert!(row.contains(&format!(" | paper | exact\\_match | {figure} | ")), "{row}");
    let csv = reported("csv").stdout;
    let model = "planner=builtin:tiny grounder=builtin:tiny";
    let start = format!("svamp,iterative,paper,0,{model},paper,exact_match,,proportion,percent,");
    let line = csv.lines().find_map(|line| line.strip_prefix(&start)).unwrap_or_else(|| panic!("{csv}"));
    let fields: Vec<&str> = line.split(',').collect();
    assert_eq!(fields[0].parse(), Ok(value), "{line}");
    // Items and planned units.
    assert_eq!(fields[7..9], ["2", "2"], "{line}");
    let html = reported("html").prints(["<title>mine – lumos</title>"]);
    assert!(html.stdout.starts_with("<!doctype html>"), "{html}");
    html.prints([format!("<td>exact_match</td><td class=\"number\">{figure}</td>")]);
    let both = reported("json").json()["results"]["svamp"].take();
    assert_eq!((&both["exact_match,none"], &both["exact_match,paper"]), (&value.into(), &value.into()));
    assert!(both["exact_match,corrected"].is_number(), "{both}");

    // Other scorings replace the results.
    lumos().args("score --scoring corrected").arg(&run).ok();
    let corrected = &results(&run)["results"]["svamp"];
    assert_eq!(corrected["exact_match,paper"], Value::Null, "{corrected}");
    assert_eq!(corrected["exact_match,none"], both["exact_match,corrected"]);

    let below = format!("svamp iterative paper seed 0: {figure} is below --fail-under 100.5 %\n");
    make().args("--fail-under 100.5").exits(100).reports([below]);
}

#[test]
fn generation_by_hand() {
    let prompt = lumos().args("complete --model builtin:tiny --max-new-tokens 8").arg("<|user|>\nHello");
    assert!(prompt.ok().stdout.ends_with('\n'));
    let lines = lumos().args("complete --model builtin:tiny --jsonl --max-new-tokens 4 --stop ''");
    let line = lines.input("{\"prompt\": \"a b\"}\n").ok().json();
    assert!(line["prompt_tokens"].as_array().is_some_and(|ids| !ids.is_empty()));
    assert!(line["usage"]["completion_tokens"].as_u64().unwrap() <= 4);
    lumos().args("complete --model candle:/nowhere text").exits(2).reports(["/nowhere"]);
}

#[test]
fn completions_are_printed_for_shells() {
    for shell in ["bash", "zsh", "fish"] {
        lumos().args("completions").arg(shell).ok().prints(["lumos"]);
    }
}
