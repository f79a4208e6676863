//! Runs the program on its benchmark.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// The program, which is an example where its sources are a part of lumos.
fn stamps() -> Command {
    let example = || std::env::current_exe().unwrap().with_file_name("../examples/stamps");
    Command::new(option_env!("CARGO_BIN_EXE_stamps").map_or_else(example, PathBuf::from))
}

fn program(folder: &Path, arguments: &str) -> Output {
    let mut program = stamps();
    program.args(arguments.split(' ')).env("LUMOS_OUTPUT_PATH", folder).env_remove("LUMOS_DATA");
    let output = program.output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn text(folder: &Path, arguments: &str) -> String {
    String::from_utf8(program(folder, arguments).stdout).unwrap()
}

#[test]
fn the_benchmark_runs_with_its_tool_and_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert!(text(folder, "ls tasks --json").contains("\"title\":\"Stamps\""));
    assert!(text(folder, "run --help").contains("stamps"));
    let run = text(folder, "run --tasks stamps --model builtin:tiny --name first");
    assert!(run.contains("planned 4 = answered") && run.contains("solved"), "{run}");

    let manifest: Value =
        serde_json::from_slice(&std::fs::read(folder.join("first/manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["versions"]["benchmark stamps"], "1");
    assert_eq!(manifest["spec"]["added_benchmarks"]["stamps"], 1);
    let tools = &manifest["configurations"][0]["configuration"]["tools"];
    assert_eq!((&tools[0]["tool"], &tools[0]["version"]), (&"abacus".into(), &1.into()), "{tools}");

    let report: Value = serde_json::from_str(&text(folder, "report first --json")).unwrap();
    let metrics = &report["lumos"]["configurations"]["stamps"]["scores"][0]["metrics"];
    assert_eq!((&metrics[0]["metric"], &metrics[1]["metric"]), (&"solved".into(), &"distance".into()));
    assert_eq!(metrics[0]["estimate"]["items"], 4);

    let samples = std::fs::read_dir(folder.join("first")).unwrap().map(|entry| entry.unwrap().path());
    let is_samples = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "jsonl");
    let samples = std::fs::read_to_string(samples.into_iter().find(is_samples).unwrap()).unwrap();
    for row in samples.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()) {
        let number = |text: &Value| text.as_str().and_then(|text| text.parse::<f64>().ok());
        let (answer, gold) = (number(&row["filtered_resps"][0]), number(&row["target"]).unwrap());
        let distance = answer.map_or(100.0, |answer| (answer - gold).abs().min(100.0));
        assert_eq!(row["distance"].as_f64(), Some(distance), "{row}");
        assert_eq!(row["solved"].as_f64(), Some(if distance == 0.0 { 1.0 } else { 0.0 }), "{row}");
    }

    // A backend of models: every prompt gets the same reply, here an action that calls the tool.
    let reply = ["--model", "says:R1 = Calculator(3 + 5)"];
    let mut run = stamps();
    run.args(["run", "--tasks", "stamps", "--name", "tool"]).args(reply).env("LUMOS_OUTPUT_PATH", folder);
    assert!(run.output().unwrap().status.success());
    let shown = text(folder, "show tool 0");
    assert!(shown.contains("abacus: ") && shown.contains("answered   8"), "{shown}");

    program(folder, "run --tasks stamps --model says:nonsense --name says");
    let manifest: Value =
        serde_json::from_slice(&std::fs::read(folder.join("says/manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["models"][0]["name"], "says:nonsense");
    assert!(text(folder, "report says").contains("planned 4 = answered 0 + gave up 4"));

    // A complete run has nothing to resume, and equals a second run.
    program(folder, "resume first");
    program(folder, "run --tasks stamps --model builtin:tiny --name second");
    let compared = ["compare", "--json"].map(str::to_owned).to_vec();
    let runs = ["first", "second"].map(|run| folder.join(run).display().to_string());
    let compared: Value =
        serde_json::from_str(&text(folder, &[compared, runs.to_vec()].concat().join(" "))).unwrap();
    let difference = &compared["comparisons"][0]["metrics"][0]["difference"];
    assert_eq!(difference.as_f64(), Some(0.0), "{compared}");
}

/// The album of an episode is its own: each has the pages of its item, whatever the others turn at the same time.
#[test]
fn a_family_and_its_tool_have_a_state_per_episode() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    program(folder, "run --tasks albums --model says:Turn() --name albums");
    let report: Value = serde_json::from_str(&text(folder, "report albums --json")).unwrap();
    let estimate = &report["lumos"]["configurations"]["albums"]["scores"][0]["metrics"][0]["estimate"];
    // Four turns show the first four pages, which is not all of Ada's album.
    assert_eq!((&estimate["items"], estimate["value"].as_f64()), (&3.into(), Some(2.0 / 3.0)), "{estimate}");
    let shown = text(folder, "show albums 0");
    for expected in ["How many stamps are in Mira's album?", "album", "the album has no more pages"] {
        assert!(shown.contains(expected), "{expected}: {shown}");
    }
    let path = folder.join("albums/manifest.json");
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let tools = &manifest["configurations"][0]["configuration"]["tools"];
    assert_eq!((&tools[0]["tool"], tools.as_array().map(Vec::len)), (&"album".into(), Some(1)), "{tools}");
    // Another version of the family has another hash of the prompts.
    manifest["prompts"]["albums"] = manifest["data"][0]["sha256"].clone();
    std::fs::write(&path, manifest.to_string()).unwrap();
    let mut resume = stamps();
    let output = resume.args(["resume", "albums"]).env("LUMOS_OUTPUT_PATH", folder).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("family `album` (version 1 in this program) or fields differ"), "{error}");
    // A reply that is not an action ends the episode, and the grounder is the cause.
    program(folder, "run --tasks albums --model says:nonsense --name nonsense");
    assert!(text(folder, "show nonsense 0").contains("unknown action `nonsense`"));
}

#[test]
fn data_are_read_by_the_function_and_errors_name_the_field() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("stamps/items.jsonl");
    std::fs::create_dir(data.parent().unwrap()).unwrap();
    std::fs::write(&data, "{\"had\": 1, \"got\": 2}\n{\"had\": 1, \"got\": \"two\"}\n").unwrap();
    let mut program = stamps();
    program.args(["run", "--tasks", "stamps", "--model", "builtin:tiny", "--data"]).arg(folder.path());
    let output = program.env("LUMOS_OUTPUT_PATH", folder.path()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("items.jsonl:2: field `got`: expected a whole number below 1000000"), "{error}");
}
