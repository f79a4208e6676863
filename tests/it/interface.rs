//! Details of the command line: names of runs and models, lists, missing arguments, unwritable folders, and
//! terminals of eighty columns.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::support::{Lumos, lumos, read_json, repository};

/// Returns the program's command in a folder.
fn at(folder: &Path, arguments: &str) -> Lumos {
    lumos().within(folder).args(arguments)
}

const TINY: &str = "run --model builtin:tiny";

#[test]
fn names_of_runs_resolve_below_the_output_folder() {
    let folder = tempfile::tempdir().unwrap();
    let here = folder.path();
    at(here, TINY).args("--tasks svamp --limit 2 --name mine").ok();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = fs::metadata(here.join("runs/mine/checkpoint")).unwrap().permissions().mode();
        assert_eq!(mode & 0o077, 0, "only the owner can read prompts and replies: {mode:o}");
    }
    for arguments in [
        "show mine 1",
        "report mine",
        "score mine",
        "resume mine",
        "verify mine --sample 1",
        "show runs/mine 1",
    ] {
        at(here, arguments).ok();
    }
    // Another output folder, given by flag and by environment variable.
    fs::rename(here.join("runs"), here.join("kept")).unwrap();
    at(here, "show mine 0 --output-path kept").ok();
    at(here, "report mine").env("LUMOS_OUTPUT_PATH", "kept").ok();
    at(here, "report mine").exits(2).reports([
        "run `mine` not found",
        "runs/mine",
        "hint: list the runs: lumos ls",
    ]);
    // A folder that is not a run does not hide a run of that name.
    fs::create_dir(here.join("mine")).unwrap();
    at(here, "report mine").env("LUMOS_OUTPUT_PATH", "kept").ok();
    at(here, "report mine").exits(2).reports(["not a run folder: `mine` (manifest.json not found)"]);
}

#[test]
fn parts_are_merged_by_their_names() {
    let folder = tempfile::tempdir().unwrap();
    for part in 1..=2 {
        let arguments = format!("--tasks svamp --name part-{part} --partition hash:{part}/2");
        at(folder.path(), TINY).args(arguments).ok();
    }
    at(folder.path(), "merge part-1 part-2 --into runs/whole").ok();
    at(folder.path(), "report whole").ok();
}

#[test]
fn lists_of_benchmarks_take_blanks_patterns_and_all() {
    let validate = || lumos().args("validate --model builtin:tiny");
    let selected = |tasks: &str| {
        let stdout = validate().args("--limit 1 --tasks").arg(tasks).ok().stdout;
        let tasks =
            stdout.lines().filter_map(|line| line.split_once(": 1 of 1 records").map(|(task, _)| task));
        tasks.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(selected("gsm8k, svamp"), ["gsm8k", "svamp"]);
    assert_eq!(selected("gsm*"), ["gsm8k"]);
    assert_eq!(selected("*qa"), ["hotpotqa", "strategyqa"]);
    assert_eq!(selected("all").len(), lumos_benchmarks::all().len());
    validate().args("--tasks gsm9*").exits(2).reports(["unknown benchmark `gsm9*`"]);
    // The items of the only benchmark that matches a pattern.
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("spec.toml");
    fs::write(&spec, "tasks = 'gsm8k, sva*'\nmodel = 'builtin:tiny'\nlimit = 1\n").unwrap();
    lumos().args("validate --config").arg(&spec).ok().prints(["svamp: 1 of 1 records"]);
    validate().args("--tasks gsm* --samples 0-1").ok();
    // Those of the only benchmark of a settings file.
    fs::write(&spec, "tasks = 'svamp'\nmodel = 'builtin:tiny'\n").unwrap();
    let chosen = lumos().args("validate --samples 0-1 --config").arg(&spec);
    chosen.ok().prints(["1 configuration, 2 units"]);
}

#[test]
fn numbers_say_what_is_expected() {
    for (flag, value, expected) in [
        ("--seed", "-1", "expected whole numbers from 0 on, comma-separated"),
        ("--seed", "0,one", "expected whole numbers from 0 on, comma-separated"),
        ("--limit", "-1", "expected a positive integer"),
        ("--epochs", "many", "expected a positive integer"),
    ] {
        let run = lumos().args(TINY).args("--tasks gsm8k").arg(flag).arg(value);
        run.exits(2).reports([flag, expected]);
    }
    let seeds = lumos().args("validate --tasks gsm8k --model builtin:tiny --temperature 1 --limit 1");
    seeds.args("--seed '0, 1'").ok().prints(["2 units"]);
}

#[test]
fn flags_override_variables_that_they_exclude() {
    let validate = |flags: &str, variable: &str, value: &str| {
        lumos().args("validate --json --tasks svamp").args(flags).env(variable, value)
    };
    let plan = |flags: &str, variable: &str, value: &str| {
        let flags = format!("--model builtin:tiny {flags}");
        validate(&flags, variable, value).ok().json()
    };
    for variable in ["LUMOS_PLANNER", "LUMOS_GROUNDER"] {
        let plan = plan("--limit 1", variable, "openai:other@http://127.0.0.1:9/v1").to_string();
        assert!(plan.contains("builtin:tiny") && !plan.contains("openai:other"), "{plan}");
    }
    let seeds = |plan: &Value| {
        let rows = plan["configurations"].as_array().unwrap();
        rows.iter().map(|row| row["seed"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(seeds(&plan("--seed 3", "LUMOS_EPOCHS", "2")), [3]);
    assert_eq!(seeds(&plan("--epochs 1", "LUMOS_SEED", "3")), [0]);
    assert_eq!(plan("--samples 0-1", "LUMOS_LIMIT", "1")["units"], 2);
    assert_eq!(plan("--limit 1", "LUMOS_SAMPLES", "0-1")["units"], 1);
    // A role's flag keeps the model of the other roles.
    let model = validate("--limit 1 --planner builtin:tiny", "LUMOS_MODEL", "builtin:tiny");
    model.ok().prints(["\"grounder\""]);
    // Two flags, and two variables, are still refused.
    let two = || lumos().args("validate --tasks svamp --model builtin:tiny");
    two().args("--seed 3 --epochs 2").exits(2).reports(["cannot be used with"]);
    two().args("--limit 1 --samples 0-1").exits(2).reports(["exclude each other"]);
    two().env("LUMOS_LIMIT", "1").env("LUMOS_SAMPLES", "0-1").exits(2).reports(["exclude each other"]);
}

#[test]
fn a_folder_that_exists_is_a_model() {
    let folder = tempfile::tempdir().unwrap();
    let assets = repository("models/assets/tiny/maths");
    for name in ["plan", "ground"] {
        let model = folder.path().join("models").join(name);
        fs::create_dir_all(&model).unwrap();
        for entry in fs::read_dir(&assets).unwrap() {
            let file = entry.unwrap();
            fs::copy(file.path(), model.join(file.file_name())).unwrap();
        }
    }
    let run = at(folder.path(), "run --tasks gsm8k --limit 2 --name folders");
    run.args("--planner ./models/plan --grounder models/ground").ok();
    let manifest = read_json(&folder.path().join("runs/folders/manifest.json"));
    let names = manifest["models"].as_array().unwrap().iter().map(|model| model["name"].as_str().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["candle:./models/plan", "candle:models/ground"]);
    at(folder.path(), "complete --model models/plan --max-new-tokens 4 text").ok();
    // The same in a file.
    fs::write(
        folder.path().join("spec.toml"),
        "tasks = 'gsm8k'\nlimit = 2\n[[models]]\nplanner = 'models/plan'\ngrounder = 'models/ground'\n",
    )
    .unwrap();
    at(folder.path(), "validate --config spec.toml").ok();
}

#[test]
fn names_without_a_backend_say_what_was_meant() {
    for (name, meant) in [
        ("tiny", "builtin:tiny"),
        ("owner/name", "candle:owner/name"),
        ("hf:owner/name", "candle:owner/name"),
    ] {
        for command in ["run --tasks gsm8k", "complete text"] {
            let ended = lumos().args(command).args("--model").arg(name).exits(2);
            ended.reports([format!("did you mean `{meant}`?")]);
        }
    }
}

#[test]
fn missing_tools_are_reported_together_with_their_backends() {
    let folder = tempfile::tempdir().unwrap();
    let run = lumos().args(TINY).args("--tasks hotpotqa,mind2web,intercode_sql --data").arg(folder.path());
    run.exits(2).reports([
        "rank (called by hotpotqa, mind2web): no backend is set",
        "backends: bm25, dpr:<folder>, cross-encoder:<folder>",
        "wiki (called by hotpotqa): no backend is set",
        "backends: live, corpus:<JSON lines>, samples",
        "sql (called by intercode_sql): ",
        "backends: sqlite, sqlite:<folder>, mysql",
        "--tool rank=bm25 --tool wiki=live",
        &format!("lumos data import-sql {}/intercode_sql/ic_spider_dbs.sql", folder.path().display()),
    ]);
    let run = lumos().args(TINY).args("--tasks gsm8k --tool rank=dbr:x");
    run.exits(2).reports(["expected one of bm25, dpr:<folder>"]);
}

#[test]
fn where_nothing_can_be_written_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let small = "--model builtin:tiny --tasks gsm8k --limit 1";
    for (arguments, parts) in [
        ("--output-path file/runs", ["`file/runs/", "`file` is not a folder"]),
        ("--output-path file", ["`file/", "`file` is not a folder"]),
        ("--output-path /proc/runs", ["`/proc/runs/", "os error"]),
        ("--record none/cases.jsonl", ["`none/cases.jsonl`", "folder not found: `none`"]),
    ] {
        for command in ["run", "validate"] {
            let ended = at(folder.path(), command).args(small).args(arguments).exits(2);
            let ended = ended.reports(["cannot write to "]).reports(parts);
            assert_eq!(ended.stdout, "");
        }
    }
    // A file in the run's own folder, which is created with it.
    at(folder.path(), "run").args(small).args("--name new --record runs/new/cases.jsonl").ok();
    // Other commands that write files.
    for arguments in [
        "report new --output none/report.html",
        "resume new --record none/cases.jsonl",
        "merge new --into file/whole",
        "bench engine --random-weights 1m --output none/bench.json",
        "bench engine --random-weights 1m --save-weights file/weights",
        "worker --queue nats://127.0.0.1:9 --spool file/spool",
    ] {
        let path = arguments.rsplit(' ').next().unwrap();
        at(folder.path(), arguments).exits(2).reports(["cannot write ", path]);
    }
}

#[test]
fn a_download_that_has_no_place_gets_no_hint_about_downloads() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    for data in ["file/data", "/proc/data"] {
        let ended = at(folder.path(), "fetch gsm8k --data").arg(data).exits(2);
        let ended = ended.reports([format!("cannot write to `{data}/gsm8k`").as_str(), "--data PATH"]);
        assert!(!ended.stderr.contains("--mirror"), "{ended}");
    }
}

#[test]
fn a_hub_that_cannot_be_reached_is_one_message() {
    let folder = tempfile::tempdir().unwrap();
    // An address on which no server listens.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let command = at(folder.path(), "run --tasks gsm8k --model candle:owner/name");
    let command = command.env("HF_ENDPOINT", format!("http://{address}")).env("HF_HOME", folder.path());
    let ended = command.exits(2).reports(["the hub cannot be reached", &address.to_string()]);
    let starts: Vec<&str> = ended.stderr.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(starts, ["error:", "hint:"], "{ended}");
}

#[test]
fn models_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let commit = "0123456789abcdef0123456789abcdef01234567";
    let snapshot = folder.path().join("hub/models--org--model/snapshots").join(commit);
    fs::create_dir_all(&snapshot).unwrap();
    fs::write(snapshot.join("model.gguf"), "12345").unwrap();
    let list = || {
        let command = at(folder.path(), "ls models").without_env("HF_HUB_CACHE").without_env("HF_ENDPOINT");
        command.env("HF_HOME", folder.path())
    };
    list().ok().prints(["builtin:tiny", "lumos:maths-13b", "alias"]);
    let rows: Vec<Value> = list().args("--json").ok().lines();
    let cached = rows.iter().find(|row| row["kind"] == "hub").unwrap();
    assert_eq!(cached["model"], format!("candle:org/model@{commit}"));
    assert_eq!((&cached["bytes"], &cached["where"]), (&5.into(), &"hub cache".into()));
}

#[test]
fn eighty_columns_are_enough() {
    let folder = tempfile::tempdir().unwrap();
    let long = "a-run-with-a-name-that-is-as-long-as-the-default-names-of-many-benchmarks-0f3a21";
    for (name, tasks) in [(long, "gsm8k,svamp"), ("short", "gsm8k")] {
        at(folder.path(), TINY).args(format!("--tasks {tasks} --limit 1 --name {name}")).ok();
    }
    for arguments in ["ls", "ls tasks", "ls models", "doctor"] {
        let ended = at(folder.path(), arguments).env("COLUMNS", "80").ok();
        for line in ended.stdout.lines() {
            assert!(line.chars().count() <= 80, "{line}\n{ended}");
        }
    }
    at(folder.path(), "ls").env("COLUMNS", "200").ok().prints([long, "builtin:tiny"]);
}

#[test]
fn a_dry_run_stands_under_the_general_options() {
    let stdout = lumos().args("run --help").ok().stdout;
    let heading = |flag: &str| {
        let before = &stdout[..stdout.find(flag).unwrap()];
        before.lines().rfind(|line| line.ends_with(':') && !line.starts_with(' ')).unwrap().to_owned()
    };
    assert_eq!(heading("--dry-run\n"), "Options:");
    assert_eq!(heading("--queue <URL>"), "Queue:");
}
