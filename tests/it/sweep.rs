//! Sweeps: one settings file with patterns, list files, exclusions and overrides. Planned, run, interrupted, resumed,
//! split and merged.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::support::nats::NatsServer;
use crate::support::paced::Paced;
use crate::support::{Fleet, Lumos, all, content, lumos, read_json, repository, set_up};

/// Two planners whose numbers are in another order than their names, two benchmarks and two seeds. Replies are short, because a
/// planner that knows nothing about mathematics writes until it is stopped.
const SWEEP: &str = r#"
name = "sweep"
tasks = ["svamp", { file = "tasks.txt" }]
seed = "0-1"
order = "round-robin"
batch_size = 1

[[models]]
planner = "checkpoints/step-*"
grounder = "ground"

[generation]
temperature = 0.7
max_new_tokens = 16

[[exclude]]
task = "gsm8k"
seed = 1

[[override]]
match.task = "gsm8k"
limit = 2
generation = { temperature = 0, max_new_tokens = 24 }

[[override]]
match = { task = "svamp", seed = 0 }
limit = 12

[[override]]
match = { task = "svamp", seed = 1 }
limit = 7

[[override]]
match.model = "step-10"
priority = 5
"#;

/// Numbers of units by configuration, in the order of reports.
const UNITS: [u64; 6] = [12, 7, 12, 7, 2, 2];

/// Writes the settings file, its list file and the models into `exp`.
fn sweep(folder: &Path, text: &str) {
    let copy = |from: &str, name: &str| {
        let model = folder.join("exp").join(name);
        fs::create_dir_all(&model).unwrap();
        for entry in fs::read_dir(repository("models/assets/tiny").join(from)).unwrap() {
            let file = entry.unwrap();
            fs::copy(file.path(), model.join(file.file_name())).unwrap();
        }
    };
    copy("maths", "checkpoints/step-2");
    // Knows nothing about mathematics.
    copy("web", "checkpoints/step-10");
    copy("maths", "ground");
    fs::write(folder.join("exp/tasks.txt"), "# further benchmarks\ngsm8k\n").unwrap();
    fs::write(folder.join("exp/sweep.toml"), text).unwrap();
}

fn run(folder: &Path, more: &str) -> Lumos {
    lumos().within(folder).args("run exp/sweep.toml").args(more)
}

fn models(planned: &Value) -> Vec<&str> {
    let models = planned["models"].as_object().unwrap().values();
    models.map(|model| model.as_str().unwrap()).collect()
}

#[test]
fn the_plan_is_a_table_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    sweep(folder, SWEEP);
    let before = all(folder);
    let plan = run(folder, "--dry-run").ok().prints([
        "svamp: 12 of 12 records",
        "gsm8k: 2 of 2 records",
        "benchmark  formulation  seed  models",
        "priority",
        "tokens  priority",
        "6 configurations, 42 units, order round-robin",
        "settings, data and models are valid",
    ]);
    for line in plan.stdout.lines() {
        assert!(line.chars().count() <= 80 || line.contains("(content"), "{line}\n{plan}");
    }
    run(folder, "--dry-run").env("COLUMNS", "120").ok().prints(["temperature 0, max_new_tokens 24"]);
    let document = run(folder, "--dry-run --json").ok().json();
    let configurations = document["configurations"].as_array().unwrap();
    let column = |key: &str| configurations.iter().map(|one| one[key].clone()).collect::<Vec<_>>();
    assert_eq!(column("units"), UNITS.map(Value::from));
    assert_eq!(column("priority"), [0, 0, 5, 5, 0, 5].map(Value::from));
    assert_eq!(models(&configurations[0]), ["candle:exp/checkpoints/step-2", "candle:exp/ground"]);
    assert_eq!(models(&configurations[5]), ["candle:exp/checkpoints/step-10", "candle:exp/ground"]);
    assert_eq!(configurations[4]["generation"], json!({"sampling": "greedy", "max_new_tokens": 24}));
    // 253.0 computed and 45.9 written tokens per item of SVAMP, 464.8 and 110.8 of GSM8K.
    assert_eq!(column("tokens"), [3587, 2092, 3587, 2092, 1151, 1151].map(Value::from));
    assert_eq!((&document["units"], &document["tokens"]), (&json!(42), &json!(13_660)));
    assert_eq!((&document["exists"], &document["seconds"]), (&json!(false), &Value::Null));
    assert!(all(folder) == before, "a dry run wrote files");
    run(folder, "--bench bench.json").exits(2).reports(["--bench and --like", "hint: add --dry-run"]);
    // With a queue, the workers load the models. Nothing listens at this address: a dry run does not connect.
    fs::write(folder.join("exp/ground/model.safetensors"), "damaged").unwrap();
    run(folder, "--dry-run").exits(2);
    let plan = run(folder, "--dry-run --queue nats://127.0.0.1:9").ok();
    plan.prints(["6 configurations, 42 units", "the workers of the queue verify models and tools"]);
}

#[test]
fn a_sweep_is_interrupted_resumed_split_and_merged() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    sweep(folder, SWEEP);
    let whole = run(folder, "--json --name whole").ok();
    let mut settled: Vec<u64> = Vec::new();
    for event in whole.lines() {
        if event["event"] == "settled" {
            settled.push(event["configuration"].as_u64().unwrap());
        }
    }
    assert_eq!(settled.len(), 42);
    // One episode at a time, so units settle in the order of dispatch: the higher priority first, and in each priority
    // one unit of each configuration in turn.
    let (first, second) = settled.split_at(21);
    assert_eq!(&first[..5], [2, 3, 5, 2, 3], "{settled:?}");
    assert!(first.iter().all(|one| [2, 3, 5].contains(one)), "{settled:?}");
    assert_eq!(&second[..5], [0, 1, 4, 0, 1], "{settled:?}");

    let expected = content(&folder.join("runs/whole"));
    let rows: BTreeMap<&str, usize> =
        expected.0.iter().map(|(task, rows)| (task.as_str(), rows.len())).collect();
    assert_eq!(rows, BTreeMap::from([("gsm8k", 4), ("svamp", 38)]));

    let mut interrupted = run(folder, "--json --name interrupted").follow();
    interrupted.until("settled", 3);
    interrupted.signal("-INT");
    assert_eq!(interrupted.end(), Some(130), "{}", interrupted.said());
    run(folder, "--dry-run --name interrupted").ok().prints(["the run exists: `lumos run` continues it"]);
    lumos().within(folder).args("resume interrupted").ok();
    assert!(content(&folder.join("runs/interrupted")) == expected, "the resumed run differs");
    // Another priority and order belong to the same run, which is complete.
    let other = SWEEP.replace("priority = 5", "priority = -5").replace("round-robin", "shortest-first");
    sweep(folder, &other);
    run(folder, "--name interrupted").ok();
    // Another limit does not.
    sweep(folder, &SWEEP.replace("limit = 7", "limit = 8"));
    run(folder, "--name interrupted").exits(2).reports([
        "contains a run with different settings",
        "`[[override]]`: other settings than those of the run",
    ]);

    sweep(folder, SWEEP);
    for part in [1, 2] {
        run(folder, &format!("--partition hash:{part}/2 --name part-{part}")).ok();
    }
    lumos().within(folder).args("merge part-1 part-2 --into runs/merged").ok();
    assert!(content(&folder.join("runs/merged")) == expected, "the merged run differs");
    let manifest = read_json(&folder.join("runs/merged/manifest.json"));
    let planned: Vec<u64> = manifest["configurations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["planned"].as_u64().unwrap())
        .collect();
    assert_eq!(planned, UNITS);
    assert_eq!(manifest["spec"]["exclude"], json!([{"task": ["gsm8k"], "seed": [1]}]));

    // An item that a configuration does not have is not shown as outstanding.
    let shown = lumos().within(folder).args("show whole 9 --task svamp --json").ok();
    let configurations: Vec<Value> = shown.lines().iter().map(|unit| unit["configuration"].clone()).collect();
    assert_eq!(configurations, [0, 2], "{shown}");
    lumos().within(folder).args("report whole").ok().prints(["svamp"]);
}

/// Two configurations, of which one is clearly below 50 % after 10 of 18 items.
const STOPS: &str = r#"
tasks = ["svamp"]
limit = 18
batch_size = 1

[[models]]
planner = "checkpoints/step-*"
grounder = "ground"

[generation]
max_new_tokens = 32

[[override]]
match.task = "svamp"
stop = { after = 10, below = 50 }
"#;

#[test]
fn stop_rules_end_configurations_early() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    sweep(folder, STOPS);
    run(folder, "--dry-run").ok().prints(["stop after", "10 if below 50", "2 configurations, 36 units"]);
    let events = run(folder, "--json --name whole").ok().lines();
    let stops: Vec<&Value> = events.iter().filter(|event| event["event"] == "stopped").collect();
    let [stop] = stops[..] else { panic!("{stops:?}") };
    assert_eq!((&stop["configuration"], &stop["units"]), (&json!(1), &json!(8)));
    assert_eq!(events.iter().filter(|event| event["event"] == "settled").count(), 28);

    let expected = content(&folder.join("runs/whole"));
    assert_eq!(expected.0["svamp"].len(), 28);
    let said = stop["reason"].as_str().unwrap();
    assert!(said.starts_with("stopped after 10 of 18 items: exact_match "), "{said}");
    let report = lumos().within(folder).args("report whole").ok().prints(["outstanding 0"]);
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words(&report.stdout).contains(said), "{report}");
    lumos().within(folder).args("ls runs").ok().prints(["28/28", "complete"]);
    lumos().within(folder).args("compare whole --by model").ok().prints(["10 items settled on both sides"]);

    let mut interrupted = run(folder, "--json --name interrupted").follow();
    interrupted.until("settled", 3);
    interrupted.signal("-INT");
    assert_eq!(interrupted.end(), Some(130), "{}", interrupted.said());
    lumos().within(folder).args("resume interrupted").ok();
    assert!(content(&folder.join("runs/interrupted")) == expected, "the resumed run differs");

    // Without the rule, the run continues.
    sweep(folder, &STOPS[..STOPS.find("[[override]]").unwrap()]);
    run(folder, "--name interrupted").ok();
    lumos().within(folder).args("ls runs").ok().prints(["36/36"]);
    let report = lumos().within(folder).args("report interrupted").ok();
    assert!(!words(&report.stdout).contains("stopped after"), "{report}");
    lumos().within(folder).args("score interrupted").ok();
    run(folder, "--name without").ok();
    assert!(content(&folder.join("runs/interrupted")) == content(&folder.join("runs/without")));

    let Some(nats) = NatsServer::start() else { return };
    set_up(&nats);
    let fleet = Fleet::new(folder, &nats.url());
    let workers = [(); 2].map(|()| fleet.worker_with(lumos().within(folder), "--concurrency 1"));
    sweep(folder, STOPS);
    let on_queue = format!("--queue {} --json", nats.url());
    run(folder, &format!("{on_queue} --name queue")).ok();
    assert!(content(&folder.join("runs/queue")) == expected, "the run on a queue differs");

    // Priorities on a queue: units of the lower one wait until the higher one is nearly done.
    sweep(folder, SWEEP);
    let events = run(folder, &format!("{on_queue} --name priorities")).ok().lines();
    let settled = events.iter().filter(|event| event["event"] == "settled");
    let order: Vec<u64> = settled.map(|event| event["configuration"].as_u64().unwrap()).collect();
    assert_eq!(order.len(), 42);
    assert!(order[..19].iter().all(|one| [2, 3, 5].contains(one)), "{order:?}");
    for worker in workers {
        worker.drained();
    }
}

/// A configuration continues after its stop rule was removed, and this session is interrupted.
#[test]
fn a_configuration_without_its_stop_rule_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let paced = Paced::start();
    // The paced model is not correct.
    let model = format!("tasks = ['svamp']\nmodel = '{}'\nlimit = 18\nbatch_size = 1\n", paced.model());
    let rule = "[[override]]\nmatch.task = 'svamp'\nstop = { after = 10, below = 50 }\n";
    let shown = |settled: &str, state: &str| {
        lumos().within(folder).args("ls runs").ok().prints([settled, state]);
    };
    sweep(folder, &format!("{model}{rule}"));
    paced.admit(run(folder, "--name stopped"), usize::MAX).ok();
    shown("10/10", "complete");

    sweep(folder, &model);
    let mut interrupted = paced.admit(run(folder, "--json --name stopped"), 2).follow();
    paced.until_waiting(1);
    interrupted.signal("-INT");
    interrupted.until("draining", 1);
    paced.open();
    assert_eq!(interrupted.end(), Some(130), "{}", interrupted.said());
    shown("13/18", "");
    lumos().within(folder).args("report stopped").exits(5).prints(["next: lumos resume"]);
    paced.admit(lumos().within(folder).args("resume stopped"), usize::MAX).ok();
    shown("18/18", "complete");
    assert_eq!(content(&folder.join("runs/stopped")).0["svamp"].len(), 18);
}

/// With data that is not built in, `wiki` and `rank` of HotpotQA have no default backend.
#[test]
fn backends_are_required_only_where_a_configuration_calls_them() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for name in ["gsm8k", "hotpotqa"] {
        let benchmark = lumos_benchmarks::get(name).unwrap();
        let data = folder.join("data").join(benchmark.data_file());
        fs::create_dir_all(data.parent().unwrap()).unwrap();
        let sample = Path::new("benchmarks/samples").join(name).with_extension(data.extension().unwrap());
        fs::copy(repository(sample.to_str().unwrap()), &data).unwrap();
    }
    for name in ["a", "b"] {
        let page = json!({"title": name, "text": "A page."});
        fs::write(folder.join(name).with_extension("jsonl"), format!("{page}\n")).unwrap();
    }
    let plan = |settings: &str| {
        sweep(folder, &format!("data = 'data'\nlimit = 2\nmodels = ['checkpoints/step-*']\n{settings}"));
        run(folder, "--dry-run --json")
    };
    let rule =
        |model: &str, tools: &str| format!("[[override]]\nmatch.model = '{model}'\ntools = {{ {tools} }}\n");
    let tools = |planned: &Value| {
        let tools = planned["tools"].as_object().unwrap().iter();
        tools.map(|(tool, backend)| format!("{tool}={}", backend.as_str().unwrap())).collect::<Vec<_>>()
    };

    // Each configuration has them from a rule.
    let first = rule("step-2", "wiki = 'corpus:a.jsonl', rank = 'bm25'");
    let second = rule("step-10", "wiki = 'corpus:b.jsonl', rank = 'bm25'");
    let document = plan(&format!("tasks = ['hotpotqa']\n{first}{second}")).ok().json();
    for (number, corpus) in ["wiki=corpus:a.jsonl#", "wiki=corpus:b.jsonl#"].into_iter().enumerate() {
        let tools = tools(&document["configurations"][number]);
        assert_eq!(tools[..2], ["maths=native", "rank=bm25"]);
        assert!(tools.len() == 3 && tools[2].starts_with(corpus), "{tools:?}");
    }

    // HotpotQA runs only without tools.
    let lists = "tasks = ['gsm8k', 'hotpotqa']\nformulation = ['iterative', 'cot']\n";
    let excluded = "[[exclude]]\ntask = 'hotpotqa'\nformulation = 'iterative'\n";
    let document = plan(&format!("{lists}{excluded}")).ok().json();
    for planned in document["configurations"].as_array().unwrap() {
        let label = (planned["benchmark"].as_str().unwrap(), planned["formulation"].as_str().unwrap());
        match label {
            ("gsm8k", "iterative") => assert_eq!(tools(planned), ["maths=native"]),
            ("gsm8k" | "hotpotqa", "cot") => assert!(tools(planned).is_empty(), "{planned}"),
            other => panic!("{other:?}"),
        }
    }

    // A configuration without a rule, or without a backend in its rule, lacks them.
    plan(&format!("tasks = ['hotpotqa']\n{first}")).exits(2).reports([
        "2 tools have no backend",
        "rank (called by hotpotqa): no backend is set",
        "wiki (called by hotpotqa): no backend is set",
    ]);
    let second = rule("step-10", "wiki = 'corpus:b.jsonl'");
    let ended = plan(&format!("tasks = ['hotpotqa']\n{first}{second}")).exits(2);
    ended.reports(["tool `rank` has no backend", "rank (called by hotpotqa): no backend is set"]);
    plan(lists).exits(2).reports(["wiki (called by hotpotqa): no backend is set"]);
}

#[test]
fn a_sweep_without_rules_is_the_run_of_its_flags() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    sweep(
        folder,
        "tasks = ['svamp']\nmodels = ['builtin:tiny']\nlimit = 2\nformulation = ['iter*', 'onetime']\n",
    );
    let flags = "--tasks svamp --model builtin:tiny --limit 2 --formulation iterative,onetime";
    lumos().within(folder).args("run").args(flags).ok();
    let first = all(&folder.join("runs"));
    run(folder, "").ok();
    let runs: Vec<_> = fs::read_dir(folder.join("runs")).unwrap().collect();
    assert_eq!(runs.len(), 1, "{runs:?}");
    let manifest = |files: &BTreeMap<_, Option<Vec<u8>>>| {
        files
            .iter()
            .find(|(path, _): &(&std::path::PathBuf, _)| path.ends_with("manifest.json"))
            .unwrap()
            .1
            .clone()
    };
    assert_eq!(manifest(&first), manifest(&all(&folder.join("runs"))));
}

#[test]
fn mistakes_name_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let cases = [
        (
            SWEEP.replace("step-*", "stop-*"),
            "exp/sweep.toml:8:1: `models`: planner: `checkpoints/stop-*` matches no",
        ),
        (
            SWEEP.replace("tasks.txt", "none.txt"),
            "exp/sweep.toml:3:19: `tasks`: failed to read list file `exp/none.txt`",
        ),
        (
            SWEEP.replace("\"svamp\", {", "\"gsm8k\", {"),
            "exp/sweep.toml:3:19: `tasks`: `gsm8k` is listed twice",
        ),
        (
            SWEEP.replace("seed = 1\n\n", "seed = 2\n\n"),
            "exp/sweep.toml:16: `exclude`: matches no configuration",
        ),
        (
            SWEEP.replace("\"step-10\"", "\"step-3\""),
            "exp/sweep.toml:33: `override`: matches no configuration",
        ),
        (SWEEP.replace("round-robin", "random"), "exp/sweep.toml:5:9: `order`: unknown value `random`"),
        (SWEEP.replace("priority = 5", "priorty = 5"), "did you mean `priority`?"),
    ];
    for (text, message) in cases {
        sweep(folder, &text);
        let ended = run(folder, "--dry-run").exits(2);
        assert!(ended.stderr.contains(message), "{message}\n{ended}");
    }
    assert!(!folder.join("runs").exists());
}
