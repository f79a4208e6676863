//! Question answering end to end: pages from a corpus or over HTTP, passages ranked by their words, and an
//! agent with scripted replies.

use std::fs;
use std::path::{Path, PathBuf};

use axum::Router;
use axum::response::Html;
use axum::routing::get;
use lumos_benchmarks::DataSource;
use serde_json::{Value, json};

use crate::support::{Ended, content, lumos, repository, scripts};

/// Writes the replies of an agent to the first items of a benchmark over a corpus.
fn script(benchmark: &str, source: &DataSource, items: usize, corpus: &Path, folder: &Path) {
    let wiki = format!("corpus:{}", corpus.display());
    fs::write(folder.join("cases.jsonl"), scripts::questions(benchmark, source, items, &wiki)).unwrap();
}

/// Runs a script over a corpus in both formulations. Returns the samples and the output.
fn run(benchmark: &str, data: &str, corpus: &Path, folder: &Path, name: &str) -> (Vec<Value>, Ended) {
    let recorded = folder.join("recorded.jsonl");
    let run = lumos().args("run --formulation iterative,onetime --tool rank=bm25 --tasks").arg(benchmark);
    let model = format!("--model 'script:{}'", folder.join("cases.jsonl").display());
    let wiki = format!("--tool 'wiki=corpus:{}'", corpus.display());
    let run = run.args(model).args(wiki).args("--record").arg(&recorded).output(folder, name);
    let ended = run.args(data).ok();
    let rows = content(&folder.join(name)).0.remove(benchmark).unwrap();
    let replayed = lumos().args("replay").arg(&recorded).ok();
    assert_eq!(replayed.stdout, format!("{} passed, 0 failed\n", rows.len()));
    (rows, ended)
}

#[test]
fn samples_are_answered_out_of_their_corpus() {
    for name in ["hotpotqa", "strategyqa"] {
        let folder = tempfile::tempdir().unwrap();
        let benchmark = lumos_benchmarks::get(name).unwrap();
        let corpus = folder.path().join("corpus.jsonl");
        fs::write(&corpus, benchmark.sample_corpus().unwrap()).unwrap();
        script(name, &DataSource::Samples, 20, &corpus, folder.path());
        let (rows, ended) = run(name, "", &corpus, folder.path(), "first");
        assert_eq!(rows.len(), 40);
        assert!(rows.iter().all(|row| row["status"] != "faulted"), "{rows:#?}");
        let answered = rows.iter().filter(|row| row["status"] == "answered").count();
        assert!(answered >= 30, "{answered} of 40 answered");
        let ended = ended.prints(["rank=bm25, wiki=corpus:"]);
        assert!(!ended.stdout.contains("own items"), "{ended}");
        // The same pages under another name yield the same configuration, and another script the same model.
        let (again, _) = run(name, "", &corpus, folder.path(), "again");
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
        script(name, &DataSource::File(file_there), 25, &corpus, folder.path());
        let given = format!("--limit 25 --data '{}'", data.display());
        let (rows, ended) = run(name, &given, &corpus, folder.path(), "real");
        assert_eq!(rows.len(), 50);
        assert_eq!(ended.stdout.contains("own items and may contain their answers"), leaks, "{ended}");
    }
}

#[test]
fn a_corpus_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    let run = |name: &str| {
        let run = lumos().args("run --tasks hotpotqa --tool rank=bm25").output(folder.path(), name);
        let run = run.args(format!("--model 'script:{}'", repository("tests/cases/qa.jsonl").display()));
        run.args(format!("--tool 'wiki=corpus:{}'", corpus.display()))
    };
    run("first").exits(2).reports(["corpus.jsonl"]);
    fs::write(&corpus, "{\"title\": \"A\"}\n").unwrap();
    run("other").exits(2).reports(["line 1: missing field `text`"]);
}

#[test]
fn pages_and_rankings_by_hand() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.jsonl");
    fs::write(&corpus, lumos_benchmarks::get("hotpotqa").unwrap().sample_corpus().unwrap()).unwrap();
    let wiki =
        |query: &str| lumos().args(format!("tool wiki --backend 'corpus:{}'", corpus.display())).arg(query);
    assert_eq!(
        wiki("Angara").ok().stdout,
        "The Angara is a river in Siberia.\nIt leaves Lake Baikal and flows into the Yenisei..\n"
    );
    let found = wiki("a river of Siberia").ok();
    assert!(found.stdout.starts_with("Angara\n"), "{found}");
    let found = wiki("--jsonl").input("{\"query\": \"no such words\", \"id\": 7}\n").ok();
    let nothing = json!({"query": "no such words", "result": {"article": {"sentences": []}}, "id": 7});
    assert_eq!(found.json(), nothing);

    let line = json!({"query": "Which sea is inland?", "texts": ["A river.", "The sea is inland."], "titles": ["Angara", "Black Sea"]});
    let ranked = lumos().args("tool rank --model bm25 --jsonl").input(format!("{line}\n")).ok().json();
    let scores: Vec<f64> =
        ranked["scores"].as_array().unwrap().iter().map(|score| score.as_f64().unwrap()).collect();
    assert!(scores.len() == 2 && scores[1] > scores[0], "{ranked}");
    let uneven = "{\"query\": \"a\", \"texts\": [\"b\"], \"titles\": [\"c\", \"d\"]}\n";
    let rank = lumos().args("tool rank --jsonl").input(uneven);
    rank.exits(2).reports(["line 1: 2 titles for 1 texts"]);
    lumos().args("tool rank query").exits(2).reports(["standard input"]);
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
        let command = lumos().env("LUMOS_WIKI_ENDPOINT", &endpoint).env("LUMOS_TOOL_CACHE", &cache);
        command.env("LUMOS_WIKI_RATE", "50").args("tool wiki").arg(query)
    };
    let kyoto = "Kyoto is a city in Japan that was its capital for a thousand years..\n";
    let page = ask("Kyoto").ok();
    assert_eq!((page.stdout.as_str(), page.stderr.as_str()), (kyoto, ""));
    ask("https://example.com/wiki/X").exits(100).reports(["none of the encyclopaedia's"]);
    drop(runtime);
    assert_eq!(ask("Kyoto").ok().stdout, kyoto, "without the site");
    ask("Nara").exits(1).reports(["wiki: "]);
    fs::remove_dir_all(cache).unwrap();
}
