//! Own data through task files: written, checked, run, interrupted, resumed, on a queue, reported and compared.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use axum::routing::post;
use axum::{Json, Router};
use lumos_benchmarks::DataSource;
use lumos_capabilities::{Capability, on_path, skip};
use lumos_tasks::{Formulation, Item, Role};
use serde_json::{Value, json};

use crate::support::hub_server::HubServer;
use crate::support::nats::NatsServer;
use crate::support::{Fleet, Lumos, content, lumos, read_json, results, scripts, set_up, settled, unwrapped};

const MATHS: &str = r#"
name = "shelves"
title = "Shelves and prices"
family = "maths"
[data]
file = "questions.csv"
items = 20
[fields]
question = "problem"
answer = "solution"
id = "key"
group = "kind"
[[published]]
formulation = "iterative"
system = "an earlier model"
percent = 12.5
source = "our notes"
"#;

/// Writes a task file over 20 questions whose answers are numbers, fractions and texts.
fn maths(folder: &Path) -> PathBuf {
    let mut csv = "key,kind,problem,solution\n".to_owned();
    for number in 1..=20u32 {
        let (kind, problem, solution) = match number % 4 {
            0 => (
                "price",
                format!("A pen costs {number} dollars. How much do 3 pens cost?"),
                (3 * number).to_string(),
            ),
            1 => (
                "shelf",
                format!("A shelf has {number} books and gets 7 more. How many are there?"),
                format!("{}.0", number + 7),
            ),
            2 => (
                "share",
                format!("{number} children share 1 cake equally. How many cakes does each get?"),
                format!("1/{number}"),
            ),
            _ => ("text", format!("Is {number} odd or even?"), "Odd".to_owned()),
        };
        csv.push_str(&format!("q-{number},{kind},\"{problem}\",{solution}\n"));
    }
    fs::write(folder.join("questions.csv"), csv).unwrap();
    let file = folder.join("shelves.toml");
    fs::write(&file, MATHS).unwrap();
    file
}

fn run(tasks: &Path, more: &str, folder: &Path, name: &str) -> Lumos {
    lumos().args("run --model builtin:tiny --tasks").arg(tasks).args(more).output(folder, name)
}

const SETTINGS: &str = "--formulation iterative,onetime --batch-size 2";

/// Performs the same run whole, interrupted and resumed, and with two workers on a queue. Returns the samples.
fn in_three_ways(tasks: &Path, model: &str, folder: &Path, units: u64) -> Vec<Value> {
    in_three_ways_with(tasks, model, "", "", folder, units)
}

/// As [`in_three_ways`], with more flags for runs and workers.
fn in_three_ways_with(
    tasks: &Path,
    model: &str,
    flags: &str,
    workers: &str,
    folder: &Path,
    units: u64,
) -> Vec<Value> {
    let run = |name: &str| {
        let run = lumos().args(format!("run {SETTINGS} {flags} --model '{model}' --tasks")).arg(tasks);
        run.output(folder, name)
    };
    run("whole").ok();
    let mut interrupted = run("interrupted").args("--json").follow();
    interrupted.until("settled", 3);
    interrupted.signal("-INT");
    assert_eq!(interrupted.end(), Some(130), "{}", interrupted.said());
    let [whole, interrupted] = ["whole", "interrupted"].map(|name| folder.join(name));
    let recorded: usize = content(&interrupted).0.values().map(Vec::len).sum();
    assert!((recorded as u64) < units, "{recorded} units are recorded");
    lumos().args("resume").arg(&interrupted).ok();
    let expected = content(&whole);
    assert!(content(&interrupted) == expected, "the interrupted run differs");
    if let Some(nats) = NatsServer::start() {
        set_up(&nats);
        let fleet = Fleet::new(folder, &nats.url());
        let workers = [(); 2].map(|()| fleet.worker(format!("--concurrency 2 {workers}")));
        fleet.until("both workers", |status| status["workers"].as_array().unwrap().len() == 2);
        let arguments = format!("{SETTINGS} {flags} --model '{model}' --tasks '{}'", tasks.display());
        fleet.coordinator("together", arguments).exits(0);
        fleet.until("all units", |status| settled(status) == units);
        for worker in workers {
            worker.drained();
        }
        assert!(content(&folder.join("together")) == expected, "the run on the queue differs");
    }
    let rows = expected.0.into_values().flatten().collect::<Vec<_>>();
    assert_eq!(rows.len() as u64, units);
    rows
}

#[test]
fn own_maths_questions_are_run_reported_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tasks = maths(folder);
    // Replies without an end are cut off early.
    let rows = in_three_ways_with(&tasks, "builtin:tiny", "--max-new-tokens 12", "", folder, 40);
    let doc = |id: &str| rows.iter().find(|row| row["doc"]["key"] == id).unwrap();
    assert_eq!((&doc("q-1")["target"], &doc("q-3")["target"]), (&json!("8.0"), &json!("Odd")));
    assert!(rows.iter().all(|row| row["status"] != "faulted"));

    let report = lumos().args("report --verbose").arg(folder.join("whole")).ok();
    let report = unwrapped(&report.stdout);
    for text in ["shelves", "an earlier model", "12.5 %"] {
        assert!(report.contains(text), "{text}:\n{report}");
    }
    let groups = &results(&folder.join("whole"))["lumos"]["configurations"]["shelves_iterative_paper_seed0"]
        ["scores"][0]["metrics"][0]["groups"];
    assert_eq!((&groups[0]["group"], &groups[0]["estimate"]["items"]), (&json!("price"), &json!(5)));
    let shown = lumos().args("show").arg(folder.join("whole")).args("q-7 --task shelves").ok();
    shown.prints(["Shelves and prices item 6 (q-7), text", "gold       Odd"]);
    let compared =
        lumos().args("compare --by formulation --format json").arg(folder.join("whole")).ok().json();
    let pair = &compared["comparisons"][0];
    assert_eq!(pair["metrics"][0]["metric"], "exact_match", "{compared}");
    let gate = lumos()
        .args("gate --min-items 20 --must-pass shelves:q-8 --baseline")
        .arg(folder.join("interrupted"));
    gate.arg(folder.join("whole")).ok().prints(["must-pass q-8"]);
    let together = lumos().args("compare").arg(folder.join("whole")).arg(folder.join("interrupted")).ok();
    assert!(unwrapped(&together.stdout).contains("20 items settled on both sides"), "{together}");

    let annotations = |name: &str| {
        let export = lumos().args("export --to annotations").arg(folder.join(name));
        export.args("--output").arg(folder.join(format!("annotations-{name}")))
    };
    annotations("whole").exits(4).reports(["40", "not training data", "training = true"]);
    fs::write(&tasks, MATHS.replace("items = 20", "items = 20\ntraining = true")).unwrap();
    run(&tasks, "--limit 8", folder, "training").ok();
    annotations("training").ok();
    let cases = folder.join("cases.jsonl");
    run(&tasks, &format!("--limit 8 --record '{}'", cases.display()), folder, "recorded").ok();
    lumos().args("replay").arg(&cases).ok().prints([
        "0 passed, 0 failed, 8 skipped",
        "8 skipped: unknown benchmark `shelves`; `lumos replay --task-file",
    ]);
    let replayed = lumos().args("replay").arg(&cases).args("--task-file").arg(&tasks);
    replayed.ok().prints(["8 passed, 0 failed"]);

    let changed = folder.join("training/manifest.json");
    let manifest = fs::read_to_string(&changed).unwrap();
    fs::write(
        &changed,
        manifest.replace("\"family\": \"maths\"", "\"family\": \"maths\", \"metrics\": [\"bleu\"]"),
    )
    .unwrap();
    lumos()
        .args("report")
        .arg(folder.join("training"))
        .run()
        .reports(["task file `shelves`: `metrics`: unknown metric"]);

    // The data is in the checkpoint, the task in the manifest: a report needs neither file.
    fs::remove_file(&tasks).unwrap();
    fs::remove_file(folder.join("questions.csv")).unwrap();
    lumos().args("score").arg(folder.join("whole")).ok();
}

const QUESTIONS: &str = r#"
name = "authors"
family = "qa"
[data]
file = "questions.jsonl"
[fields]
question = "ask"
answer = "gold"
id = "key"
[tools]
wiki = "corpus:documents.jsonl"
"#;

#[test]
fn own_questions_are_answered_from_own_documents() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let hotpotqa = lumos_benchmarks::get("hotpotqa").unwrap();
    let documents = folder.join("documents.jsonl");
    fs::write(&documents, hotpotqa.sample_corpus().unwrap()).unwrap();
    // The questions are HotpotQA's samples under other names, so that the replies of its script fit. Each is there five
    // times, so that a run lasts long enough to be interrupted.
    let items: Vec<_> = hotpotqa.open(DataSource::Samples).unwrap().take(20).map(Result::unwrap).collect();
    let line = |number: usize| {
        let record = &items[number % items.len()].record;
        format!("{}\n", json!({"key": number + 3, "ask": record["question"], "gold": record["answer"]}))
    };
    fs::write(folder.join("questions.jsonl"), (0..5 * items.len()).map(line).collect::<String>()).unwrap();
    let script = folder.join("cases.jsonl");
    let wiki = format!("corpus:{}", documents.display());
    let replies = scripts::questions("hotpotqa", &DataSource::Samples, 20, &wiki);
    fs::write(&script, replies.replace(r#""benchmark":"hotpotqa""#, r#""benchmark":"authors""#)).unwrap();
    let tasks = folder.join("authors.toml");
    fs::write(&tasks, QUESTIONS).unwrap();
    let model = format!("script:{}", script.display());
    let units = 10 * items.len() as u64;
    let rows = in_three_ways(&tasks, &model, folder, units);
    let answered = rows.iter().filter(|row| row["status"] == "answered").count();
    assert!(answered as u64 * 4 >= units * 3, "{answered} of {units} answered");
    assert!(rows.iter().any(|row| row["trajectory"].to_string().contains("Evidence 1: ")));
    // Names win over positions: the item named 3 is at position 0.
    lumos().args("show").arg(folder.join("whole")).args("3").ok().prints(["authors item 0 (3)"]);
    lumos().args("report").arg(folder.join("whole")).ok().prints(["authors", "exact_match"]);
    let compared = lumos().args("compare --by formulation").arg(folder.join("whole")).ok();
    assert!(unwrapped(&compared.stdout).contains("100 items settled on both sides"), "{compared}");
}

/// Writes a task file over the samples of a built-in benchmark, and the benchmark's script under the file's name.
fn samples_of(benchmark: &str, definition: &str, script: &str, folder: &Path) -> (PathBuf, String) {
    let items = lumos_benchmarks::get(benchmark).unwrap().open(DataSource::Samples).unwrap();
    let records: Vec<Value> = items.take(20).map(|item| item.unwrap().record).collect();
    fs::write(folder.join("items.json"), json!(records).to_string()).unwrap();
    let tasks = folder.join("mine.toml");
    fs::write(&tasks, format!("name = \"mine\"\n{definition}\n[data]\nfile = \"items.json\"\n")).unwrap();
    let cases = folder.join("cases.jsonl");
    let benchmark = format!("\"benchmark\":\"{benchmark}\"");
    assert!(script.contains(&benchmark));
    fs::write(&cases, script.replace(&benchmark, "\"benchmark\":\"mine\"")).unwrap();
    (tasks, format!("script:{}", cases.display()))
}

/// Runs a task file over samples, and the benchmark that it imitates with the same script. Returns the samples of both.
fn beside(benchmark: &str, definition: &str, script: &str, flags: &str) -> [Vec<Value>; 2] {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (tasks, model) = samples_of(benchmark, definition, script, folder);
    let run = |tasks: &Path, model: &str, name: &str| {
        let run = lumos().args(format!("run --limit 20 {flags} --model '{model}' --tasks")).arg(tasks);
        run.output(folder, name).ok();
        content(&folder.join(name)).0.into_values().flatten().collect::<Vec<_>>()
    };
    let own = run(&tasks, &model, "own");
    lumos().args("report").arg(folder.join("own")).ok().prints(["mine"]);
    fs::write(folder.join("built-in.jsonl"), script).unwrap();
    let model = format!("script:{}", folder.join("built-in.jsonl").display());
    [own, run(Path::new(benchmark), &model, "built-in")]
}

/// Returns what a unit did and how it ended.
fn outcomes<'a>(rows: &'a [Value], metric: &str) -> Vec<[&'a Value; 4]> {
    rows.iter().map(|row| [&row["doc_id"], &row["status"], &row["filtered_resps"], &row[metric]]).collect()
}

#[test]
fn own_shop_goals_pages_and_databases_are_worth_the_same_as_built_in_ones() {
    let check = |benchmark: &str, definition: &str, script: &str, flags: &str, metric: &str| {
        let [own, built_in] = beside(benchmark, definition, script, flags);
        assert!(own.len() >= 3, "{own:#?}");
        assert!(own.iter().any(|row| row[metric].as_f64().is_some_and(|value| value > 0.0)), "{own:#?}");
        assert_eq!(outcomes(&own, metric), outcomes(&built_in, metric));
    };
    let shop = "family = \"shop\"\ntools = { shop = \"memory\", rank = \"bm25\" }";
    check("webshop", shop, &scripts::goals(None, 20), "--tool rank=bm25", "reward");
    let sql = "family = \"sql\"\ntools = { sql = \"sqlite\" }\n\
               fields = { question = \"query\", answer = \"gold\", database = \"db\", group = \"hardness\" }";
    let queries = scripts::queries(&DataSource::Samples, &[Formulation::Iterative, Formulation::TryAgain]);
    check("intercode_sql", sql, &queries, "--formulation iterative,try-again", "success_rate");
    let web = "family = \"web\"\ntools = { rank = \"bm25\" }";
    check("mind2web", web, &scripts::pages(DataSource::Samples), "--tool rank=bm25", "element_accuracy");
}

/// StrategyQA's agent, described by data: all recorded cases of the original pass, and a changed prompt fails.
#[test]
fn the_strategyqa_task_file_passes_all_recorded_cases() {
    let Some(golden) = lumos_capabilities::shared("golden") else { return };
    let task_file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/task_files/strategyqa.toml");
    let replay = |task_file: &Path, formulations: &[&str]| {
        let files = formulations.iter().map(|name| golden.join(format!("strategyqa_{name}.jsonl.gz")));
        files.fold(lumos().args("replay --task-file").arg(task_file), Lumos::arg)
    };
    let all = replay(&task_file, &["iterative", "onetime", "cot", "direct"]).ok();
    assert_eq!(all.stdout, "320 passed, 0 failed\n");

    let folder = tempfile::tempdir().unwrap();
    let changed = folder.path().join("changed.toml");
    let text = fs::read_to_string(&task_file).unwrap();
    fs::write(&changed, text.replace("Please ground", "Ground").replace("../../", "/")).unwrap();
    replay(&changed, &["iterative"]).exits(100).prints(["grounder prompt 1: differs"]);
}

const MONEY: &str = r#"
name = "money"
family = "custom"
[data]
file = "questions.jsonl"
[fields]
id = "key"
[answer]
kind = "text"
[[agent.actions]]
name = "Convert"
description = "Convert euros to another currency"
arguments = [{ name = "amount", type = "number" }, "currency"]
tool = "rates"
call = "convert"
result = "{value}"
[[agent.actions]]
name = "Add"
description = "Add two numbers"
arguments = [{ name = "a", type = "number" }, { name = "b", type = "number" }]
tool = "sums"
call = "get-sum"
"#;

/// Starts a service that converts euros: a JSON object in, a JSON object out. It runs as long as the runtime.
fn rates() -> (String, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let convert = async |Json(call): Json<Value>| {
        assert_eq!(call["operation"], "convert");
        // So that a run does not end before the test interrupts it.
        tokio::time::sleep(Duration::from_millis(200)).await;
        Json(match call["arguments"]["currency"].as_str() {
            Some("yen") => json!({"text": {"value": 160.0 * call["arguments"]["amount"].as_f64().unwrap()}}),
            _ => json!({"refused": "unknown currency"}),
        })
    };
    let routes = Router::new().route("/", post(convert));
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    runtime.spawn(async move { axum::serve(listener, routes).await });
    (url, runtime)
}

/// An agent described by data, whose two tools are an MCP server from the registry and an HTTP service.
#[test]
fn an_own_agent_uses_an_mcp_server_and_an_http_service() {
    let server = std::env::var("LUMOS_MCP_SERVER").unwrap_or_default();
    if server.is_empty() || on_path("node").is_none() {
        return skip(Capability::Mcp, "LUMOS_MCP_SERVER is not set, or node is not installed");
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let question = |amount: usize| {
        // Every fifth names a currency that the service does not have.
        let currency = if amount.is_multiple_of(5) { "thalers" } else { "yen" };
        let question = format!("How many {currency} are {amount} euros, and 7 more?");
        let answer = format!("The sum of {0} and 7 is {1}.", 160 * amount, 160 * amount + 7);
        json!({"key": format!("e-{amount}"), "question": question, "answer": answer})
    };
    let questions: String = (1..=20).map(|amount| format!("{}\n", question(amount))).collect();
    fs::write(folder.join("questions.jsonl"), questions).unwrap();
    let tasks = folder.join("money.toml");
    fs::write(&tasks, MONEY).unwrap();
    let (url, runtime) = rates();
    let sums = format!("mcp:node {server} stdio");
    let tools = [("rates", url.as_str()), ("sums", sums.as_str())];
    let author = |role: Role, number: usize, item: &Item| {
        let words: Vec<_> = item.record["question"].as_str().unwrap().split(' ').collect();
        match (role, number) {
            (Role::Planner, 0) => "Subgoal 1: Convert the euros and add.".to_owned(),
            (Role::Planner, _) => "Yes, I will stop planning.".to_owned(),
            _ => format!("R1 = Convert({}, {}); R2 = Add(R1, 7)", words[4], words[2]),
        }
    };
    let cases = folder.join("cases.jsonl");
    fs::write(&cases, scripts::own_agent(&tasks, &tools, &author)).unwrap();

    // Without --tool, a task file reaches no server.
    let model = format!("script:{}", cases.display());
    let named = tools.map(|(tool, backend)| format!("'{tool}={backend}'"));
    let flags = named.each_ref().map(|tool| format!("--tool {tool}")).join(" ");
    let missing =
        lumos().args(format!("run --model '{model}' --tasks")).arg(&tasks).output(folder, "missing");
    missing.exits(2).reports([
        "2 tools have no backend",
        "rates (called by money)",
        "sums (called by money)",
    ]);

    let allowed = named.map(|tool| format!("--allow-tool {tool}")).join(" ");
    let rows = in_three_ways_with(&tasks, &model, &flags, &allowed, folder, 40);
    let solved = rows.iter().filter(|row| row["exact_match"] == 1.0).count();
    assert_eq!(solved, 32, "{rows:#?}");
    assert!(rows.iter().all(|row| row["status"] != "faulted"));
    let whole = folder.join("whole");
    lumos().args("report --verbose").arg(&whole).ok().prints(["money", "exact_match", "80.0 %"]);
    lumos().args("show").arg(&whole).args("e-3").ok().prints(["sums: get-sum", "rates: convert"]);
    let compared = lumos().args("compare --by formulation").arg(&whole).ok();
    assert!(unwrapped(&compared.stdout).contains("20 items settled on both sides"), "{compared}");

    // Recorded results, without the tools.
    let recorded = folder.join("recorded.jsonl");
    lumos().args("resume --record").arg(&recorded).arg(&whole).ok();
    let replayed = lumos().args("replay").arg(&recorded).args("--task-file").arg(&tasks);
    replayed.ok().prints(["40 passed, 0 failed"]);
    let offline =
        ["rates", "sums"].map(|tool| format!("--tool '{tool}=recorded:{}'", recorded.display())).join(" ");
    let offline =
        lumos().args(format!("run {offline} --model '{model}' --formulation iterative,onetime --tasks"));
    offline.arg(&tasks).output(folder, "offline").ok();
    let results = |name: &str| -> Vec<Value> {
        let rows = content(&folder.join(name)).0.into_values().flatten();
        rows.map(|row| json!([row["doc"]["key"], row["filtered_resps"], row["exact_match"]])).collect()
    };
    assert_eq!(results("offline"), results("whole"));

    // A service that is gone is a fault: retried, reported apart, and never scored.
    drop(runtime);
    let gone = lumos().args(format!("run {flags} --retry-on-error 1 --limit 2 --model '{model}' --tasks"));
    gone.arg(&tasks).output(folder, "gone").exits(5).reports(["2 faulted"]);
    let rows = content(&folder.join("gone")).0.remove("money").unwrap();
    assert!(rows.iter().all(|row| row["status"] == "faulted" && row["exact_match"].is_null()), "{rows:#?}");
}

#[test]
fn errors_name_file_line_and_field() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tasks = maths(folder);
    let refused = |text: &str, data: &str, expected: &[&str]| {
        fs::write(&tasks, text).unwrap();
        fs::write(folder.join("questions.csv"), data).unwrap();
        run(&tasks, "", folder, "refused").exits(2).reports(expected);
        lumos().args("validate --model builtin:tiny --tasks").arg(&tasks).exits(2).reports(expected);
        assert!(!folder.join("refused").exists());
    };
    let data = "key,kind,problem,solution\na,x,One and one?,2\nb,x,,2\n";
    refused(MATHS, data, &["questions.csv:3: field `problem`: expected a string, found an empty string"]);
    let data = "key,kind,problem,solution\na,x,One and one?,2\nb,x,Two?\n";
    refused(MATHS, data, &["questions.csv:3: expected 4 values, as in the first line, found 3"]);
    let data = "key,kind,problem,solution\na,x,One?,1\na,x,Two?,2\n";
    refused(MATHS, data, &["questions.csv:3: field `key`: expected a different value", "`a`, as in line 2"]);
    let data = "key,kind,problem\na,x,One?\n";
    refused(MATHS, data, &["questions.csv:2: field `solution`", "the record has key, kind, problem"]);
    let metrics = MATHS.replace("family = \"maths\"", "family = \"maths\"\nmetrics = [\"bleu\"]");
    refused(&metrics, data, &["shelves.toml:5: `metrics`: unknown metric `bleu`", "expected exact_match"]);
    let named = MATHS.replace("\"shelves\"", "\"svamp\"");
    refused(&named, data, &["shelves.toml:2: `name`: `svamp` is the name of a benchmark of this program"]);
    let missing = MATHS.replace("questions.csv", "nothing.csv");
    refused(&missing, data, &["nothing.csv: file not found; check `data.file` in", "shelves.toml"]);
    let number = MATHS.replace("[[published]]", "[answer]\nkind = \"number\"\n[[published]]");
    let data = "key,kind,problem,solution\na,x,One?,1/2\nb,x,Two?,two\n";
    refused(
        &number,
        data,
        &["questions.csv:3: field `solution`: expected a number or a fraction", "\"two\""],
    );
}

#[test]
fn another_definition_of_the_items_is_another_run() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tasks = maths(folder);
    run(&tasks, "--limit 2", folder, "run").ok();
    let other = MATHS.replace("title = \"Shelves and prices\"", "title = \"Other\"");
    fs::write(&tasks, &other).unwrap();
    run(&tasks, "--limit 2", folder, "run").ok();
    fs::write(&tasks, other.replace("[[published]]", "[answer]\npattern = '([0-9]+)'\n[[published]]"))
        .unwrap();
    run(&tasks, "--limit 2", folder, "run")
        .exits(2)
        .reports(["task file of shelves", "family, fields or answer"]);
}

#[test]
fn the_examples_run_and_are_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    for (name, flag) in [("mine", ""), ("agent", "--agent")] {
        let mine = folder.path().join(name);
        let written = lumos().args("init task").args(flag).arg(&mine).ok();
        let next = written.stdout.lines().find_map(|line| line.strip_prefix("next: lumos ")).unwrap();
        let run = lumos().args(next).args("--output-path").arg(folder.path().join("runs"));
        run.ok().prints([name, "exact_match"]);
        lumos().args("init task").arg(&mine).exits(2).reports(["exists; nothing was changed"]);
    }
    let agent = fs::read_to_string(folder.path().join("agent/task.toml")).unwrap();
    assert!(agent.contains("\nfamily = \"custom\"") && agent.contains("\n[agent]"));
    // A folder means all task files in it.
    run(&folder.path().join("mine"), "--limit 1", folder.path(), "folder").ok();
    run(&folder.path().join("runs"), "", folder.path(), "none").exits(2).reports(["no task files (*.toml)"]);
}

#[test]
fn runs_with_benchmarks_of_another_program_are_refused_by_name_and_version() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let maths = maths(folder);
    run(&maths, "--limit 2", folder, "run").ok();
    let path = folder.join("run/manifest.json");
    let recorded: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let commands = || {
        ["report", "score", "show", "resume", "export --to csv --output"].map(|command| match command {
            "show" => lumos().args("show").arg(folder.join("run")).args("0"),
            "export --to csv --output" => {
                lumos().args(command).arg(folder.join("out")).arg(folder.join("run"))
            }
            command => lumos().args(command).arg(folder.join("run")),
        })
    };
    let refused = |benchmark: &str, version: u32, expected: &[&str]| {
        let mut manifest = recorded.clone();
        manifest["spec"]["task_files"] = json!({});
        manifest["spec"]["tasks"] = json!([benchmark]);
        manifest["spec"]["added_benchmarks"] = json!({ benchmark: version });
        fs::write(&path, manifest.to_string()).unwrap();
        for command in commands() {
            command.exits(2).reports(expected);
        }
    };
    refused(
        "shelves",
        3,
        &["benchmark `shelves`, version 3, is not part of this program", "use that program"],
    );
    refused("svamp", 2, &["benchmark `svamp`: this program has the built-in one", "made with version 2"]);
    // The run can still be listed.
    lumos().args("ls runs --output-path").arg(folder).ok().prints(["svamp"]);
}

const OF_HUB: &str = r#"
name = "sums"
family = "maths"
[data]
hub = "org/data"
file = "data/test.jsonl"
[fields]
id = "key"
"#;

/// Questions whose sums have this offset.
fn sums(offset: u32) -> String {
    let line = |n: u32| json!({"key": format!("s-{n}"), "question": format!("What is {n} plus {offset}?"), "answer": n + offset});
    (0..4).map(|n| format!("{}\n", line(n))).collect()
}

#[test]
fn data_of_the_hub_are_pinned_at_their_commit() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (hub, cache) = (HubServer::start(), folder.join("hf"));
    let first = hub.commit("data/test.jsonl", sums(1));
    let tasks = folder.join("sums.toml");
    fs::write(&tasks, OF_HUB).unwrap();
    let run = |name: &str| {
        hub.lumos(&cache).args("run --model builtin:tiny --tasks").arg(&tasks).output(folder, name)
    };
    hub.lumos(&cache).args("validate --model builtin:tiny --tasks").arg(&tasks).ok();
    run("whole").ok();
    let manifest = |name: &str| read_json(&folder.join(name).join("manifest.json"));
    let pinned = manifest("whole");
    assert_eq!(pinned["data"][0]["source"], format!("hub:org/data/data/test.jsonl@{first}"));
    assert_eq!(pinned["spec"]["task_files"]["sums"]["definition"]["data"]["revision"], *first);
    let snapshot = cache.join("hub/datasets--org--data/snapshots").join(&first).join("data/test.jsonl");
    assert_eq!(fs::read_to_string(snapshot).unwrap(), sums(1));

    // The same run again asks for the commit and downloads nothing. After the branch has moved, it is another run.
    let before = hub.requests();
    run("whole").ok();
    assert_eq!(hub.requests(), before + 1);
    let second = hub.commit("data/test.jsonl", sums(2));
    run("whole").exits(2).reports(["data of sums: hub:org/data/data/test.jsonl@", &second, &first]);
    run("moved").ok();

    // A run whose planning was interrupted has its manifest only. It is planned again from the pinned commit, which is
    // downloaded again if the cache was emptied.
    let expected = content(&folder.join("whole"));
    let interrupted = folder.join("interrupted");
    for emptied in [false, true] {
        let _ = fs::remove_dir_all(&interrupted);
        fs::create_dir(&interrupted).unwrap();
        let mut manifest = pinned.clone();
        manifest["spec"]["name"] = json!("interrupted");
        fs::write(interrupted.join("manifest.json"), manifest.to_string()).unwrap();
        if emptied {
            fs::remove_dir_all(&cache).unwrap();
        }
        let before = hub.requests();
        hub.lumos(&cache).args("resume").arg(&interrupted).ok();
        assert_eq!(hub.requests() > before, emptied);
        assert_eq!(content(&interrupted), expected);
    }

    // Without a network, the cache serves. It has the first commit, but not its branch.
    let offline = |text: &str| {
        fs::write(&tasks, text).unwrap();
        let run = hub.lumos(&cache).env("HF_HUB_OFFLINE", "1").args("run --model builtin:tiny --tasks");
        run.arg(&tasks).output(folder, "offline")
    };
    let place = format!("{}:5: `data.hub`: no data set `org/data`", tasks.display());
    offline(OF_HUB).exits(2).reports([place.as_str(), "HF_HUB_OFFLINE"]);
    let at_first = OF_HUB.replace("file =", &format!("revision = \"{first}\"\nfile ="));
    offline(&at_first).ok();
    assert!(content(&folder.join("offline")) == expected);
}

#[test]
fn errors_about_data_of_the_hub_name_file_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (hub, cache) = (HubServer::start(), folder.join("hf"));
    hub.commit("test.jsonl", "{\"question\": \"One?\"}\n");
    let tasks = folder.join("sums.toml");
    let refused = |data: &str, expected: &[&str]| {
        fs::write(&tasks, format!("name = \"sums\"\nfamily = \"maths\"\n[data]\n{data}")).unwrap();
        let validate = hub.lumos(&cache).args("validate --model builtin:tiny --tasks").arg(&tasks);
        validate.exits(2).reports(expected);
    };
    refused(
        "hub = \"org/dta\"\nfile = \"test.jsonl\"",
        &["sums.toml:4: `data.hub`: data set `org/dta` not found on 127.0.0.1", "HF_TOKEN"],
    );
    refused(
        "hub = \"org/data\"\nfile = \"tset.jsonl\"",
        &["sums.toml:5: `data.file`: `tset.jsonl` not found in org/data", "it has test.jsonl"],
    );
    refused(
        "hub = \"org/data\"\nrevision = \"v9\"\nfile = \"test.jsonl\"",
        &["sums.toml:5: `data.revision`: `v9` not found in org/data"],
    );
    refused("hub = \"data\"\nfile = \"test.jsonl\"", &["sums.toml:4: `data.hub`: invalid data set `data`"]);
    refused("hub = \"org/../data\"\nfile = \"test.jsonl\"", &["sums.toml:4: `data.hub`: invalid data set"]);
    refused(
        "hub = \"../data\"\nfile = \"test.jsonl\"",
        &["sums.toml:4: `data.hub`: invalid data set `../data`"],
    );
    refused(
        "hub = \"org/data\"\nfile = \"/etc/a.jsonl\"",
        &["sums.toml:5: `data.file`: expected the path of a"],
    );
    refused(
        "hub = \"org/data\"\nfile = \"test.jsonl\"",
        &["test.jsonl:1: field `answer`: expected a string or a number, found no such field"],
    );
}

#[test]
fn parquet_files_are_read_by_builds_with_the_feature() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let tasks = folder.join("table.toml");
    fs::write(&tasks, "name = \"table\"\nfamily = \"maths\"\n[data]\nfile = \"items.parquet\"\n").unwrap();
    fs::write(folder.join("items.parquet"), "not a table").unwrap();
    let validate = lumos().args("validate --model builtin:tiny --tasks").arg(&tasks).exits(2);
    if cfg!(feature = "parquet") {
        validate.reports(["failed to read", "items.parquet: not a Parquet file", "check `data.file` in"]);
    } else {
        validate.reports(["items.parquet", "built without `parquet`", "--features parquet"]);
    }
}
