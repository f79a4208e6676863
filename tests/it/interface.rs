//! Details of the command line: names of runs and models, lists, missing arguments, unwritable folders, and
//! terminals of eighty columns.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{content, expect, lumos, text};

/// Returns the program's command in a folder.
fn at(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = lumos();
    command.current_dir(folder).args(arguments);
    command
}

/// Asserts an exit code. Returns standard output and standard error.
fn ended(code: i32, command: &mut Command) -> (String, String) {
    let output: Output = command.output().unwrap();
    let (found, stdout, stderr) = text(&output);
    assert_eq!(found, code, "{command:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

const TINY: [&str; 3] = ["run", "--model", "builtin:tiny"];

#[test]
fn names_of_runs_resolve_below_the_output_folder() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    let run = [&TINY[..], &["--tasks", "svamp", "--limit", "2", "--name", "mine"]].concat();
    ended(0, &mut at(here, &run));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(here.join("runs/mine/checkpoint")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "only the owner can read prompts and replies: {mode:o}");
    }
    for arguments in [
        &["show", "mine", "1"][..],
        &["report", "mine"],
        &["score", "mine"],
        &["resume", "mine"],
        &["verify", "mine", "--sample", "1"],
        &["show", "runs/mine", "1"],
    ] {
        ended(0, &mut at(here, arguments));
    }
    // Another output folder, given by flag and by environment variable.
    fs::rename(here.join("runs"), here.join("kept")).unwrap();
    ended(0, &mut at(here, &["show", "mine", "0", "--output-path", "kept"]));
    ended(0, at(here, &["report", "mine"]).env("LUMOS_OUTPUT_PATH", "kept"));
    let (_, stderr) = ended(2, &mut at(here, &["report", "mine"]));
    assert!(stderr.contains("run `mine` not found") && stderr.contains("runs/mine"), "{stderr}");
    assert!(stderr.contains("hint: list the runs: lumos ls"), "{stderr}");
    // An existing path takes precedence, even if it contains no run.
    fs::create_dir(here.join("mine")).unwrap();
    let (_, stderr) = ended(2, at(here, &["report", "mine"]).env("LUMOS_OUTPUT_PATH", "kept"));
    assert!(stderr.contains("not a run folder: `mine` (manifest.json not found)"), "{stderr}");
}

#[test]
fn parts_are_merged_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    for part in ["1", "2"] {
        let (name, partition) = (format!("part-{part}"), format!("hash:{part}/2"));
        let arguments = ["--tasks", "svamp", "--name", &name, "--partition", &partition];
        ended(0, &mut at(folder.path(), &[&TINY[..], &arguments].concat()));
    }
    ended(0, &mut at(folder.path(), &["merge", "part-1", "part-2", "--into", "runs/whole"]));
    ended(0, &mut at(folder.path(), &["report", "whole"]));
}

#[test]
fn lists_of_benchmarks_take_blanks_patterns_and_all() {
    let selected = |tasks: &str| {
        let (stdout, _) =
            expect(0, &["validate", "--model", "builtin:tiny", "--limit", "1", "--tasks", tasks]);
        let tasks =
            stdout.lines().filter_map(|line| line.split_once(": 1 of 1 records").map(|(task, _)| task));
        tasks.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(selected("gsm8k, svamp"), ["gsm8k", "svamp"]);
    assert_eq!(selected("gsm*"), ["gsm8k"]);
    assert_eq!(selected("*qa"), ["hotpotqa", "strategyqa"]);
    assert_eq!(selected("all").len(), 7);
    let (_, stderr) = expect(2, &["validate", "--model", "builtin:tiny", "--tasks", "gsm9*"]);
    assert!(stderr.contains("unknown benchmark `gsm9*`"), "{stderr}");
    // The items of the only benchmark that matches a pattern.
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("spec.toml");
    fs::write(&spec, "tasks = 'gsm8k, sva*'\nmodel = 'builtin:tiny'\nlimit = 1\n").unwrap();
    let (stdout, _) = expect(0, &["validate", "--config", spec.to_str().unwrap()]);
    assert!(stdout.contains("svamp: 1 of 1 records"), "{stdout}");
    expect(0, &["validate", "--model", "builtin:tiny", "--tasks", "gsm*", "--samples", "0-1"]);
}

#[test]
fn numbers_say_what_is_expected() {
    for (flag, value, expected) in [
        ("--seed", "-1", "expected whole numbers from 0 on, comma-separated"),
        ("--seed", "0,one", "expected whole numbers from 0 on, comma-separated"),
        ("--limit", "-1", "expected a positive integer"),
        ("--epochs", "many", "expected a positive integer"),
    ] {
        let (_, stderr) = expect(2, &["run", "--tasks", "gsm8k", "--model", "builtin:tiny", flag, value]);
        assert!(stderr.contains(flag) && stderr.contains(expected), "{flag} {value}: {stderr}");
    }
    let seeds = ["--temperature", "1", "--limit", "1", "--seed", "0, 1"];
    let (stdout, _) =
        expect(0, &[&["validate", "--tasks", "gsm8k", "--model", "builtin:tiny"], &seeds[..]].concat());
    assert!(stdout.contains("2 units"), "{stdout}");
}

#[test]
fn a_folder_that_exists_is_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/assets/tiny");
    for (part, name) in [("planner-iterative", "plan"), ("grounder", "ground")] {
        let model = folder.path().join("models").join(name);
        fs::create_dir_all(&model).unwrap();
        for entry in fs::read_dir(assets.join(part)).unwrap() {
            let file = entry.unwrap();
            fs::copy(file.path(), model.join(file.file_name())).unwrap();
        }
    }
    let run = ["run", "--tasks", "gsm8k", "--limit", "2", "--name", "folders"];
    let models = ["--planner", "./models/plan", "--grounder", "models/ground"];
    ended(0, &mut at(folder.path(), &[&run[..], &models].concat()));
    let manifest = fs::read_to_string(folder.path().join("runs/folders/manifest.json")).unwrap();
    let manifest: Value = serde_json::from_str(&manifest).unwrap();
    let names = manifest["models"].as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["candle:./models/plan", "candle:models/ground"]);
    let prompt = ["complete", "--model", "models/plan", "--max-new-tokens", "4", "text"];
    ended(0, &mut at(folder.path(), &prompt));
    // The same in a file.
    fs::write(
        folder.path().join("spec.toml"),
        "tasks = 'gsm8k'\nlimit = 2\n[[models]]\nplanner = 'models/plan'\ngrounder = 'models/ground'\n",
    )
    .unwrap();
    ended(0, &mut at(folder.path(), &["validate", "--config", "spec.toml"]));
}

#[test]
fn names_without_a_backend_say_what_was_meant() {
    for (name, meant) in [
        ("tiny", "builtin:tiny"),
        ("owner/name", "candle:owner/name"),
        ("hf:owner/name", "candle:owner/name"),
    ] {
        let (_, stderr) = expect(2, &["run", "--tasks", "gsm8k", "--model", name]);
        assert!(stderr.contains(&format!("did you mean `{meant}`?")), "{stderr}");
        let (_, stderr) = expect(2, &["complete", "--model", name, "text"]);
        assert!(stderr.contains(&format!("did you mean `{meant}`?")), "{stderr}");
    }
}

#[test]
fn missing_tools_are_reported_together_with_their_backends() {
    let folder = tempfile::tempdir().unwrap();
    let data = ["--data", folder.path().to_str().unwrap()];
    let (_, stderr) =
        expect(2, &[&TINY[..], &["--tasks", "hotpotqa,mind2web,intercode_sql"], &data].concat());
    for part in [
        "rank (called by hotpotqa, mind2web): no backend is set",
        "backends: bm25, dpr:<folder>, cross-encoder:<folder>",
        "wiki (called by hotpotqa): no backend is set",
        "backends: live, corpus:<JSON lines>, samples",
        "sql (called by intercode_sql): ",
        "backends: sqlite, sqlite:<folder>, mysql",
        "--tool rank=bm25 --tool wiki=live",
        "lumos data import-sql",
    ] {
        assert!(stderr.contains(part), "`{part}` is missing from:\n{stderr}");
    }
    let (_, stderr) = expect(2, &[&TINY[..], &["--tasks", "gsm8k", "--tool", "rank=dbr:x"]].concat());
    assert!(stderr.contains("expected one of bm25, dpr:<folder>"), "{stderr}");
}

#[test]
fn all_benchmarks_run_on_their_samples_without_further_flags() {
    let folder = tempfile::tempdir().unwrap();
    ended(0, &mut at(folder.path(), &[&TINY[..], &["--tasks", "all", "--name", "all"]].concat()));
    let (samples, results) = content(&folder.path().join("runs/all"));
    // The helper that reads file names shortens `intercode_sql` to `intercode`.
    assert_eq!(samples.len(), 7, "{:?}", samples.keys());
    for (task, rows) in &samples {
        assert!(!rows.is_empty(), "{task}");
        assert!(rows.iter().all(|row| row["status"] != "faulted"), "{task}");
    }
    assert!(results["results"].is_object(), "{results}");
}

#[test]
fn where_nothing_can_be_written_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let run = [&TINY[..], &["--tasks", "gsm8k", "--limit", "1"]].concat();
    for (arguments, parts) in [
        (&["--output-path", "file/runs"][..], ["`file/runs/", "`file` is not a folder"]),
        (&["--output-path", "file"], ["`file/", "`file` is not a folder"]),
        (&["--output-path", "/proc/runs"], ["`/proc/runs/", "os error"]),
        (&["--record", "none/cases.jsonl"], ["`none/cases.jsonl`", "folder not found: `none`"]),
    ] {
        for command in ["run", "validate"] {
            let all = [&[command], &run[1..], arguments].concat();
            let (stdout, stderr) = ended(2, &mut at(folder.path(), &all));
            assert!(
                stderr.contains("cannot write to ") && parts.iter().all(|part| stderr.contains(part)),
                "{stderr}"
            );
            assert_eq!(stdout, "");
        }
    }
    // A file in the run's own folder, which is created with it.
    let inside = ["--name", "new", "--record", "runs/new/cases.jsonl"];
    ended(0, &mut at(folder.path(), &[&run[..], &inside].concat()));
    // Other commands that write files.
    for arguments in [
        &["report", "new", "--output", "none/report.html"][..],
        &["resume", "new", "--record", "none/cases.jsonl"],
        &["merge", "new", "--into", "file/whole"],
        &["bench", "engine", "--random-weights", "1m", "--output", "none/bench.json"],
        &["bench", "engine", "--random-weights", "1m", "--save-weights", "file/weights"],
        &["worker", "--queue", "nats://127.0.0.1:9", "--spool", "file/spool"],
    ] {
        let (_, stderr) = ended(2, &mut at(folder.path(), arguments));
        let path = arguments[arguments.len() - 1];
        assert!(stderr.contains("cannot write ") && stderr.contains(path), "{arguments:?}: {stderr}");
    }
}

#[test]
fn a_download_that_has_no_place_gets_no_hint_about_downloads() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for data in ["file/data", "/proc/data"] {
        let (_, stderr) = ended(2, &mut at(folder.path(), &["fetch", "gsm8k", "--data", data]));
        assert!(stderr.contains(&format!("cannot write to `{data}/gsm8k`")), "{stderr}");
        assert!(stderr.contains("--data PATH") && !stderr.contains("--mirror"), "{stderr}");
    }
}

#[test]
fn a_hub_that_cannot_be_reached_is_one_message() {
    let folder = tempfile::tempdir().unwrap();
    // An address on which no server listens.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = at(folder.path(), &["run", "--tasks", "gsm8k", "--model", "candle:owner/name"]);
    command.env("HF_ENDPOINT", format!("http://{address}")).env("HF_HOME", folder.path());
    let (_, stderr) = ended(2, &mut command);
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(
        stderr.contains("the hub cannot be reached") && stderr.contains(&address.to_string()),
        "{stderr}"
    );
}

#[test]
fn models_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let snapshot = folder.path().join("hub/models--org--model/snapshots").join(commit);
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(snapshot.join("model.gguf"), "12345").unwrap();
    let list = |arguments: &[&str]| {
        let mut command = at(folder.path(), &[&["ls", "models"], arguments].concat());
        for name in ["HF_HUB_CACHE", "HF_ENDPOINT"] {
            command.env_remove(name);
        }
        ended(0, command.env("HF_HOME", folder.path())).0
    };
    let table = list(&[]);
    for part in ["builtin:tiny", "lumos:maths-13b", "alias"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let rows: Vec<Value> =
        list(&["--json"]).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let cached = rows.iter().find(|row| row["kind"] == "hub").unwrap();
    assert_eq!(cached["model"], format!("candle:org/model@{commit}"));
    assert_eq!((&cached["bytes"], &cached["where"]), (&5.into(), &"hub cache".into()));
}

#[test]
fn eighty_columns_are_enough() {
    let folder = tempfile::tempdir().unwrap();
    let long = "a-run-with-a-name-that-is-as-long-as-the-default-names-of-many-benchmarks-0f3a21";
    for (name, tasks) in [(long, "gsm8k,svamp"), ("short", "gsm8k")] {
        let run = ["--tasks", tasks, "--limit", "1", "--name", name];
        ended(0, &mut at(folder.path(), &[&TINY[..], &run].concat()));
    }
    for arguments in [&["ls"][..], &["ls", "tasks"], &["ls", "models"], &["doctor"]] {
        let (stdout, _) = ended(0, at(folder.path(), arguments).env("COLUMNS", "80"));
        for line in stdout.lines() {
            assert!(line.chars().count() <= 80, "{arguments:?}: {line}\n{stdout}");
        }
    }
    let (stdout, _) = ended(0, at(folder.path(), &["ls"]).env("COLUMNS", "200"));
    assert!(stdout.contains(long) && stdout.contains("builtin:tiny"), "{stdout}");
}

#[test]
fn a_dry_run_stands_under_the_general_options() {
    let (stdout, _) = expect(0, &["run", "--help"]);
    let heading = |flag: &str| {
        let before = &stdout[..stdout.find(flag).unwrap()];
        before.lines().rfind(|line| line.ends_with(':') && !line.starts_with(' ')).unwrap().to_owned()
    };
    assert_eq!(heading("--dry-run\n"), "Options:");
    assert_eq!(heading("--queue <URL>"), "Queue:");
}
