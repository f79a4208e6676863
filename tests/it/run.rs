//! Runs, their files, and resuming them.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{content, files, lumos, program, repository, rows};

#[test]
fn the_main_job_leaves_a_report_results_and_samples() {
    let folder = tempfile::tempdir().unwrap();
    let main = || {
        let run =
            lumos().args("run --tasks gsm8k,svamp --model builtin:tiny --formulation iterative,onetime");
        run.args("--limit 4 --name main --output_path").arg(folder.path())
    };
    let ended = main().ok().prints([
        ", paper seed 0, paper scoring",
        "gsm8k iterative",
        "svamp onetime",
        "report/index.html",
    ]);
    ended.reports(["16 units in 4 configurations"]);
    let run = folder.path().join("main");
    for file in ["manifest.json", "report.html", "report.md", "report/index.html"] {
        assert!(run.join(file).is_file(), "{file}");
    }
    let (samples, results) = content(&run);
    assert_eq!(samples.keys().collect::<Vec<_>>(), ["gsm8k", "svamp"]);
    assert!(samples.values().all(|rows| rows.len() == 8));
    assert!(results["results"].as_object().is_some_and(|tasks| !tasks.is_empty()), "{results}");

    // A complete run is not changed.
    let before = files(&run, "results_", ".json");
    main().ok().reports(["16 already settled"]);
    assert_eq!(content(&run), (samples, results));
    assert_eq!(files(&run, "results_", ".json"), before, "the results are not rewritten");
    assert!(fs::read_dir(folder.path()).unwrap().count() == 1, "one folder for one run");
}

#[test]
fn events_are_json_lines() {
    let folder = tempfile::tempdir().unwrap();
    let run = lumos().args("run --tasks svamp --model builtin:tiny --limit 3 --json --output-path");
    let events = run.arg(folder.path()).ok().lines();
    let kinds: Vec<_> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["started", "settled", "settled", "settled", "finished"]);
    assert_eq!(events[4]["outstanding"], 0);
}

/// As with `lumos run … --json | head -1`, and with a table and progress that nobody reads.
#[test]
fn a_run_continues_when_its_output_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let start = |name: &str, more: &[&str]| {
        let mut command = Command::new(program());
        command.args("run --tasks svamp --model builtin:tiny --limit 8 --batch-size 1".split(' '));
        command.args(more).args(["--name", name, "--output-path"]).arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let mut events = start("events", &["--json"]);
    let mut first = String::new();
    BufReader::new(events.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.contains("\"started\""), "{first}");
    let mut table = start("table", &[]);
    drop((table.stdout.take(), table.stderr.take()));
    for (mut child, name) in [(events, "events"), (table, "table")] {
        assert_eq!(child.wait().unwrap().code(), Some(0), "{name}");
        let rows = content(&folder.path().join(name)).0.remove("svamp").unwrap();
        assert_eq!(rows.len(), 8, "{name}");
        assert!(rows.iter().all(|row| row["status"] != "faulted"), "{rows:#?}");
    }
}

/// As with `lumos completions zsh | head -0`, and on a full disk.
#[test]
fn a_command_whose_output_cannot_be_written_ends_without_a_backtrace() {
    let folder = tempfile::tempdir().unwrap();
    let init = |name: &str| {
        let mut command = Command::new(program());
        command.args(["init", "task"]).arg(folder.path().join(name));
        command
    };
    let completions = || {
        let mut command = Command::new(program());
        command.args(["completions", "zsh"]);
        command
    };
    let ended = |mut command: Command, output: Stdio| {
        let output = command.stdin(Stdio::null()).stdout(output).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    for command in [init("closed"), completions()] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        assert_eq!(ended(command, writer.into()), (Some(1), String::new()));
    }
    #[cfg(target_os = "linux")]
    {
        let full = || Stdio::from(fs::OpenOptions::new().write(true).open("/dev/full").unwrap());
        for command in [init("full"), completions()] {
            let (code, message) = ended(command, full());
            assert_eq!(code, Some(1));
            let expected = "error: failed to write to standard output: No space left";
            assert!(message.starts_with(expected), "{message}");
        }
    }
}

#[test]
fn the_next_command_names_an_item_of_the_run() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, more: &str| {
        lumos().args("run --tasks svamp --model builtin:tiny").args(more).output(folder.path(), name).ok()
    };
    run("several", "--limit 12");
    let rows = content(&folder.path().join("several")).0.remove("svamp").unwrap();
    let is_correct = |row: &&Value| row["exact_match"] == 1.0 && row["doc_id"] != 0;
    let correct = &rows.iter().find(is_correct).unwrap()["doc_id"];
    let next = format!("show {} {correct}", folder.path().join("one").display());
    run("one", &format!("--samples {correct}")).prints([format!("next: lumos {next} --task svamp\n")]);
    lumos().args(next).ok();
}

#[test]
fn a_tool_that_has_changed_since_the_run_was_planned_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (cases, replies) = (folder.path().join("cases.jsonl"), folder.path().join("replies.jsonl"));
    let first = lumos().args("run --tasks svamp --model builtin:tiny --limit 3 --record").arg(&cases);
    first.output(folder.path(), "first").ok();
    fs::copy(&cases, &replies).unwrap();
    // The grounder has recorded replies for three of five items; the others fault.
    let several = folder.path().join("my runs");
    let run = lumos().args("run --tasks svamp --planner builtin:tiny --limit 5 --retry-on-error 1");
    let run = run.args("--grounder").arg(format!("script:{}", cases.display())).args("--tool");
    let run = run.arg(format!("maths=recorded:{}", replies.display())).output(&several, "tools").exits(5);
    run.reports([format!("2 faulted: `lumos resume '{}'` continues them", several.join("tools").display())]);
    let resume = || lumos().args("resume").arg(several.join("tools"));
    resume().exits(5).reports(["3 already settled"]);
    let recorded = fs::read_to_string(&replies).unwrap();
    fs::write(&replies, recorded.repeat(2)).unwrap();
    resume().exits(2).reports([
        "tool maths=recorded:",
        "differs from the tool that the run was planned with",
        "hint: restore the old files to continue",
    ]);
    fs::write(&replies, recorded).unwrap();
    resume().exits(5).reports(["3 already settled"]);
}

#[test]
fn the_result_does_not_depend_on_the_batch() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, batch: &str| {
        let run = lumos().args("run --tasks svamp --model builtin:tiny --limit 8 --batch-size").arg(batch);
        run.output(folder.path(), name).ok();
        content(&folder.path().join(name)).0
    };
    assert_eq!(run("one", "1"), run("many", "16"));
}

#[test]
fn a_recorded_run_replays_green() {
    let folder = tempfile::tempdir().unwrap();
    let cases = folder.path().join("cases.jsonl");
    let run = lumos().args("run --tasks gsm8k,svamp --model builtin:tiny --formulation iterative,onetime");
    let run = run.args("--behaviour paper,corrected --limit 6 --record").arg(&cases);
    run.output(folder.path(), "recorded").ok();
    assert_eq!(lumos().args("replay").arg(&cases).ok().stdout, "48 passed, 0 failed\n");

    // The recording serves as a model and as a tool: repeats the run without the originals.
    let cases = cases.display();
    let again =
        format!("run --tasks svamp --limit 6 --model 'script:{cases}' --tool 'maths=recorded:{cases}'");
    lumos().args(again).output(folder.path(), "again").ok();
    let predictions = |name: &str| -> Vec<Value> {
        let rows = content(&folder.path().join(name)).0.remove("svamp").unwrap();
        let iterative = rows.into_iter().filter(|row| row["formulation"] == "iterative");
        iterative.filter(|row| row["behaviour"] == "paper").map(|row| row["filtered_resps"].clone()).collect()
    };
    assert_eq!(predictions("again"), predictions("recorded"));
}

#[test]
fn a_module_can_be_scripted_alone_and_faults_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let cases = folder.path().join("cases.jsonl");
    let run = |grounder: &str, name: &str, more: &str| {
        let run = lumos().args("run --tasks svamp --planner builtin:tiny --grounder").arg(grounder);
        run.output(folder.path(), name).args(more)
    };
    run("builtin:tiny", "first", "--limit 3 --record").arg(&cases).ok();
    // Five items with a recording of three: two have no recorded reply, which is a fault and not the agent's
    // error.
    let grounder = format!("script:{}", cases.display());
    let scripted = || run(&grounder, "scripted", "--limit 5 --retry-on-error 1").exits(5);
    scripted().reports(["0 units are outstanding and 2 faulted"]);
    let rows = content(&folder.path().join("scripted")).0.remove("svamp").unwrap();
    let faulted: Vec<_> = rows.iter().filter(|row| row["status"] == "faulted").collect();
    assert_eq!((rows.len(), faulted.len()), (5, 2));
    // The same command retries only the faulted items.
    scripted().reports(["3 already settled"]);
    // With `--fail-on-error` it stops at the first fault.
    run(&grounder, "strict", "--limit 5 --fail-on-error").exits(5).reports(["--fail-on-error"]);
}

#[test]
fn recorded_cases_of_the_original_replay() {
    let own = lumos().args("replay").arg(repository("tests/cases/maths.jsonl"));
    own.ok().prints([" passed, 0 failed"]);

    let Some(shared) = lumos_capabilities::shared("") else { return };
    let mut replay = lumos().args("replay --json");
    for benchmark in ["gsm8k", "svamp"] {
        for formulation in ["iterative", "onetime", "cot", "direct"] {
            replay = replay.arg(shared.join(format!("golden/{benchmark}_{formulation}.jsonl.gz")));
        }
    }
    let replayed = replay.run();
    let verdicts = replayed.lines();
    assert_eq!(verdicts.len(), 640, "{}", replayed.stderr);
    let failed: Vec<_> = verdicts.iter().filter(|verdict| verdict["passed"] != true).collect();
    assert!(failed.is_empty(), "{failed:#?}");
}

/// Asserts that a checkpoint replies as transformers does to recorded prompts.
fn assert_equals_transformers(folder: &Path, concurrency: &str) {
    let cases = rows(&folder.join("cases.jsonl.gz"));
    let input: String =
        cases.iter().map(|case| format!("{}\n", json!({ "prompt": case["prompt"] }))).collect();
    let complete = format!("complete --model 'candle:{}' --jsonl --max-new-tokens 48", folder.display());
    let complete = lumos().args(complete).args("--ignore-eos --stop '' --logits 8 --concurrency");
    let replies = complete.arg(concurrency).input(input).ok().lines();
    assert_eq!(replies.len(), cases.len());
    for (case, reply) in cases.iter().zip(&replies) {
        assert_eq!(reply["prompt_tokens"], case["ids"], "{}", folder.display());
        let safe = usize::try_from(case["safe_tokens"].as_u64().unwrap()).unwrap();
        let tokens = |value: &Value| value.as_array().unwrap()[..safe].to_vec();
        let place = format!("{}, {concurrency} at once", folder.display());
        assert_eq!(tokens(&reply["tokens"]), tokens(&case["greedy"]), "{place}");
        for (found, expected) in
            reply["logits"].as_array().unwrap().iter().zip(case["first_top8"].as_array().unwrap())
        {
            let difference = found[1].as_f64().unwrap() - expected[1].as_f64().unwrap();
            assert!(difference.abs() < 1e-3, "{place}: {found} {expected}");
        }
    }
}

#[test]
fn the_reference_checkpoints_complete_as_transformers_does() {
    let Some(shared) = lumos_capabilities::shared("golden/engine") else { return };
    for model in ["llama-mha", "llama-gqa-tied", "llama3-rope"] {
        for concurrency in ["1", "24"] {
            assert_equals_transformers(&shared.join(model), concurrency);
        }
    }
}
