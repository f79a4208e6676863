//! Question answering end to end: pages from a corpus or over HTTP, passages ranked by their words, and an
//! agent with scripted replies.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use lumos_benchmarks::{DataSource, replay};
use lumos_tasks::Formulation;
use lumos_tools::ToolSets;
use serde_json::{Value, json};

use crate::support::{content, expect, fed, lumos, text};

#[path = "../../examples/script_questions/author.rs"]
mod author;

/// Writes the replies of an agent to the first items of a benchmark over a corpus.
fn script(benchmark: &str, source: DataSource, items: usize, corpus: &Path, cases: &Path) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let benchmark = lumos_benchmarks::get(benchmark).unwrap();
    let sets = ToolSets::default();
    let tools = [("rank", "bm25".to_owned()), ("wiki", format!("corpus:{}", corpus.display()))];
    let tools: Vec<_> = tools.iter().map(|(tool, backend)| sets.identify(tool, backend).unwrap()).collect();
    let items: Vec<_> = benchmark.open(source).unwrap().take(items).map(Result::unwrap).collect();
    let mut written = String::new();
    for formulation in [Formulation::Iterative, Formulation::OneTime] {
        let configuration = Arc::new(replay::configuration(benchmark, formulation, tools.clone()));
        let tools = runtime.block_on(sets.of(&configuration)).unwrap();
        for item in &items {
            let case = runtime.block_on(author::case(item, &configuration, tools.as_ref())).unwrap();
            written += &format!("{}\n", serde_json::to_string(&case).unwrap());
        }
    }
    fs::write(cases, written).unwrap();
}

/// Runs a script over a corpus in both formulations. Returns the samples and the output.
fn run(benchmark: &str, data: &[&str], corpus: &Path, folder: &Path, name: &str) -> (Vec<Value>, String) {
    let cases = folder.join("cases.jsonl");
    let recorded = folder.join("recorded.jsonl");
    let arguments: Vec<String> = [
        "run",
        "--tasks",
        benchmark,
        "--formulation",
        "iterative,onetime",
        "--model",
        &format!("script:{}", cases.display()),
        "--tool",
        &format!("wiki=corpus:{}", corpus.display()),
        "--tool",
        "rank=bm25",
        "--record",
        &recorded.display().to_string(),
        "--output-path",
        &folder.display().to_string(),
        "--name",
        name,
    ]
    .into_iter()
    .chain(data.iter().copied())
    .map(str::to_owned)
    .collect();
    let (stdout, _) = expect(0, &arguments.iter().map(String::as_str).collect::<Vec<_>>());
    let rows = content(&folder.join(name)).0.remove(benchmark).unwrap();
    let (replayed, _) = expect(0, &["replay", recorded.to_str().unwrap()]);
    assert_eq!(replayed, format!("{} passed, 0 failed\n", rows.len()));
    (rows, stdout)
}

#[test]
fn samples_are_answered_out_of_their_corpus() {
    for name in ["hotpotqa", "strategyqa"] {
        let folder = tempfile::tempdir().unwrap();
        let benchmark = lumos_benchmarks::get(name).unwrap();
        let corpus = folder.path().join("corpus.jsonl");
        fs::write(&corpus, benchmark.sample_corpus().unwrap()).unwrap();
        script(name, DataSource::Samples, 20, &corpus, &folder.path().join("cases.jsonl"));
        let (rows, stdout) = run(name, &[], &corpus, folder.path(), "first");
        assert_eq!(rows.len(), 40);
        assert!(rows.iter().all(|row| row["status"] != "faulted"), "{rows:#?}");
        let answered = rows.iter().filter(|row| row["status"] == "answered").count();
        assert!(answered >= 30, "{answered} of 40 answered");
        assert!(stdout.contains("rank=bm25, wiki=corpus:") && !stdout.contains("own items"), "{stdout}");
        // The same pages under another name yield the same configuration, and another script the same model.
        let (again, _) = run(name, &[], &corpus, folder.path(), "again");
        assert_eq!(rows, again);
    }
}

#[test]
fn real_questions_are_answered_out_of_real_corpora() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let shared = shared.join("data");
    for (name, file, corpus, leaks) in [
        ("hotpotqa", "hotpotqa/lumos_test.json", "hotpotqa/wiki_corpus.jsonl", false),
        ("strategyqa", "strategyqa/test.json", "strategyqa/facts_corpus.jsonl", true),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let file_there = data.join(lumos_benchmarks::get(name).unwrap().data_file());
        fs::create_dir_all(file_there.parent().unwrap()).unwrap();
        fs::copy(shared.join(file), &file_there).unwrap();
        let corpus = shared.join(corpus);
        script(name, DataSource::File(file_there), 25, &corpus, &folder.path().join("cases.jsonl"));
        let given = ["--data", data.to_str().unwrap(), "--limit", "25"];
        let (rows, stdout) = run(name, &given, &corpus, folder.path(), "real");
        assert_eq!(rows.len(), 50);
        assert_eq!(stdout.contains("own items and may contain their answers"), leaks, "{stdout}");
    }
}

#[test]
fn a_corpus_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    let given = format!("wiki=corpus:{}", corpus.display());
    let cases = concat!("script:", env!("CARGO_MANIFEST_DIR"), "/tests/cases/qa.jsonl");
    let base = ["run", "--tasks", "hotpotqa", "--model", cases, "--tool", &given, "--tool", "rank=bm25"];
    let base = [&base[..], &["--output-path", folder.path().to_str().unwrap()]].concat();
    let (_, stderr) = expect(2, &base);
    assert!(stderr.contains("corpus.jsonl"), "{stderr}");
    fs::write(&corpus, "{\"title\": \"A\"}\n").unwrap();
    let (_, stderr) = expect(2, &[&base[..], &["--name", "other"]].concat());
    assert!(stderr.contains("line 1: missing field `text`"), "{stderr}");
}

#[test]
fn pages_and_rankings_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    fs::write(&corpus, lumos_benchmarks::get("hotpotqa").unwrap().sample_corpus().unwrap()).unwrap();
    let backend = format!("corpus:{}", corpus.display());
    let base = ["tool", "wiki", "--backend", &backend];
    let (stdout, _) = expect(0, &[&base[..], &["Angara"]].concat());
    assert_eq!(
        stdout,
        "The Angara is a river in Siberia.\nIt leaves Lake Baikal and flows into the Yenisei..\n"
    );
    let (stdout, _) = expect(0, &[&base[..], &["a river of Siberia"]].concat());
    assert!(stdout.starts_with("Angara\n"), "{stdout}");
    let (code, stdout, _) =
        fed(&[&base[..], &["--jsonl"]].concat(), "{\"query\": \"no such words\", \"id\": 7}\n");
    let line: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(
        (code, line),
        (0, json!({"query": "no such words", "result": {"article": {"sentences": []}}, "id": 7}))
    );

    let line = json!({"query": "Which sea is inland?", "texts": ["A river.", "The sea is inland."], "titles": ["Angara", "Black Sea"]});
    let (code, stdout, _) = fed(&["tool", "rank", "--model", "bm25", "--jsonl"], &format!("{line}\n"));
    let line: Value = serde_json::from_str(&stdout).unwrap();
    let scores: Vec<f64> =
        line["scores"].as_array().unwrap().iter().map(|score| score.as_f64().unwrap()).collect();
    assert!(code == 0 && scores.len() == 2 && scores[1] > scores[0], "{stdout}");
    let uneven = "{\"query\": \"a\", \"texts\": [\"b\"], \"titles\": [\"c\", \"d\"]}\n";
    let (code, _, stderr) = fed(&["tool", "rank", "--jsonl"], uneven);
    assert!(code == 2 && stderr.contains("line 1: 2 titles for 1 texts"), "{stderr}");
    let (_, stderr) = expect(2, &["tool", "rank", "query"]);
    assert!(stderr.contains("standard input"), "{stderr}");
}

/// Serves a site with one page until the runtime is dropped.
fn site() -> (tokio::runtime::Runtime, String) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let page = "<p>Kyoto is a city in Japan that was its capital for a thousand years.</p>";
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().route("/w/index.php", get(move || async move { Html(page) }));
    runtime.spawn(async move { axum::serve(listener, app).await });
    (runtime, endpoint)
}

#[test]
fn a_page_over_http_is_kept_for_other_processes() {
    let cache: PathBuf = tempfile::tempdir().unwrap().path().join("cache");
    let (runtime, endpoint) = site();
    let ask = |query: &str| {
        let mut command: Command = lumos();
        command
            .env("LUMOS_WIKI_ENDPOINT", &endpoint)
            .env("LUMOS_TOOL_CACHE", &cache)
            .env("LUMOS_WIKI_RATE", "50");
        text(&command.args(["tool", "wiki", query]).output().unwrap())
    };
    let kyoto = "Kyoto is a city in Japan that was its capital for a thousand years..\n";
    assert_eq!(ask("Kyoto"), (0, kyoto.to_owned(), String::new()));
    let (code, _, stderr) = ask("https://example.com/wiki/X");
    assert!(code == 100 && stderr.contains("none of the encyclopaedia's"), "{stderr}");
    drop(runtime);
    assert_eq!(ask("Kyoto").1, kyoto, "without the site");
    let (code, _, stderr) = ask("Nara");
    assert!(code == 1 && stderr.contains("wiki: "), "{stderr}");
    fs::remove_dir_all(cache).unwrap();
}
