//! `lumos score --judge` against a local server: interrupted and resumed passes, and their files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use lumos_coordinator::CheckpointReader;
use serde_json::Value;

use crate::model_server::{KEY, Server, assert_no_key};
use crate::support::{content, lumos};

/// Performs a run over six questions, answered by the same server.
fn run(server: &Server, folder: &Path) -> PathBuf {
    let model = format!("openai:tiny@{}", server.url);
    let runs = folder.to_str().unwrap();
    let (code, stdout, stderr) = server.run(&[
        "run",
        "--tasks",
        "hotpotqa",
        "--formulation",
        "direct",
        "--model",
        &model,
        "--limit",
        "6",
        "--output-path",
        runs,
        "--name",
        "judged",
    ]);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    folder.join("judged")
}

fn is_verdict(body: &Value) -> bool {
    body["messages"][0]["content"].as_str().is_some_and(|text| text.contains("Ground-truth answer"))
}

/// Returns the bodies of the judge's requests.
fn verdicts(server: &Server) -> Vec<Value> {
    server.state.bodies.lock().unwrap().iter().filter(|body| is_verdict(body)).cloned().collect()
}

/// Waits until the only pass over a run has recorded a number of verdicts. The pass must be in progress.
fn until_recorded(run: &Path, verdicts: u64) {
    let mut passes = std::fs::read_dir(run.join("judge")).unwrap().map(|one| one.unwrap().path());
    let checkpoint = passes.find(|path| path.is_dir()).unwrap().join("checkpoint");
    let began = Instant::now();
    while CheckpointReader::open(&checkpoint).map_or(0, |reader| reader.settled()) < verdicts {
        assert!(began.elapsed() < Duration::from_secs(300), "{verdicts} verdicts are not recorded");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn answers(request: usize, body: &Value) -> Result<String, u16> {
    match is_verdict(body) {
        // Every second request to the judge fails at first.
        true if request.is_multiple_of(2) => Err(503),
        true => Ok("CORRECT".to_owned()),
        false => Ok(format!("Answer is number {request}.")),
    }
}

/// Returns a text without its line breaks.
fn unwrapped(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn faults_are_tried_again_and_verdicts_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(answers);
    let run = run(&server, folder.path());
    let before = content(&run).0;
    let judge = format!("openai:judge@{}", server.url);
    let score = ["score", run.to_str().unwrap(), "--judge", &judge, "--concurrency", "2"];
    let mut code = 5;
    for _ in 0..8 {
        let (ended, stdout, stderr) = server.run(&score);
        code = ended;
        assert!(matches!(code, 0 | 5), "{stdout}\n{stderr}");
        assert!(unwrapped(&stdout).contains("judged by openai:judge@"), "{stdout}");
        if code == 0 {
            assert!(unwrapped(&stdout).contains("6 of 6 questions, 0.0216 US dollars"), "{stdout}");
            break;
        }
    }
    assert_eq!(code, 0, "the judge did not complete");
    let (samples, results) = content(&run);
    for (judged, plain) in samples["hotpotqa"].iter().zip(&before["hotpotqa"]) {
        assert_eq!(judged["llm_accuracy"], 1.0);
        assert_eq!(judged["judge"]["verdict"]["reply"], "CORRECT");
        assert_eq!(judged["judge"]["verdict"]["cost"], 0.0036);
        // The judge changes no other metric.
        assert_eq!((&judged["exact_match"], &judged["f1"]), (&plain["exact_match"], &plain["f1"]));
        assert_eq!((&judged["unit"], &judged["trajectory"]), (&plain["unit"], &plain["trajectory"]));
    }
    assert_eq!(results["lumos"]["judge"]["verdicts"], 6);
    // Once every verdict is recorded there are no further requests, and scoring without a judge keeps the
    // verdicts.
    let asked = server.requests();
    assert_eq!(server.run(&score).0, 0);
    let (code, stdout, _) = server.run(&["score", run.to_str().unwrap()]);
    assert!(code == 0 && stdout.contains("llm_accuracy"), "{stdout}");
    assert_eq!(server.requests(), asked);
    let questions = verdicts(&server);
    assert!(questions.iter().all(|body| body["temperature"] == 0 && body["max_tokens"] == 100));
    assert_no_key(folder.path());
}

#[test]
fn a_pass_stops_at_its_limit_of_costs() {
    let folder = tempfile::tempdir().unwrap();
    let (judged, given) = (folder.path().join("judged"), AtomicU64::new(0));
    let server = Server::start(move |request, body| {
        if !is_verdict(body) {
            return Ok(format!("Answer is number {request}."));
        }
        // A verdict is given when the previous one is recorded and its cost is known.
        let before = given.fetch_add(1, Ordering::SeqCst);
        until_recorded(&judged, before);
        Ok("INCORRECT".to_owned())
    });
    let run = run(&server, folder.path());
    let judge = format!("openai:judge@{}", server.url);
    let score = |cost| {
        ["score", run.to_str().unwrap(), "--judge", &judge, "--concurrency", "1", "--max-cost", cost]
            .map(str::to_owned)
    };
    let limited = |cost| {
        let arguments = score(cost);
        server.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    };
    // 0.0036 dollars each: two, the one in progress, and one more if it begins before their cost is added.
    let (code, stdout, stderr) = limited("0.009");
    assert_eq!(code, 5, "{stdout}\n{stderr}");
    assert!(stderr.contains("--max-cost 0.009"), "{stderr}");
    let asked = verdicts(&server).len();
    assert!((2..=4).contains(&asked), "{asked}");
    // Earlier costs count: the same limit allows no further requests.
    assert_eq!(limited("0.007").0, 5);
    assert_eq!(verdicts(&server).len(), asked);
    let (code, stdout, stderr) = limited("1");
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert_eq!(verdicts(&server).len(), 6);
    let other = format!("openai:unpriced@{}", server.url);
    let (code, _, stderr) =
        server.run(&["score", run.to_str().unwrap(), "--judge", &other, "--max-cost", "1"]);
    assert_eq!(code, 2);
    assert!(stderr.contains("LUMOS_OPENAI_PRICES=unpriced="), "{stderr}");
}

#[test]
fn a_judge_that_is_computed_here_has_a_device_and_a_memory() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| Ok(format!("Answer is number {request}.")));
    let run = run(&server, folder.path());
    let weights = Path::new(env!("CARGO_MANIFEST_DIR")).join("engine/tests/data/adapters/base");
    let judge = format!("candle:{}", weights.display());
    let score = |more: &[&str]| {
        server.run(&[&["score", run.to_str().unwrap(), "--judge", &judge][..], more].concat())
    };
    let (code, _, stderr) = score(&["--memory", "100KB"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("on cpu: model judge candle:"), "{stderr}");
    assert!(stderr.contains("for weights and at least") && stderr.contains("raise --memory"), "{stderr}");
    let (code, _, stderr) = score(&["--device", "judge=gpu"]);
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("unknown device `gpu`: expected cpu, auto, or cuda:0"), "{stderr}");
    assert!(!run.join("judge").exists(), "a rejected judge creates no files");
    let (code, stdout, stderr) = score(&["--device", "judge=cpu", "--memory", "2GB"]);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert!(unwrapped(&stdout).contains("6 of 6 questions"), "{stdout}");
    let passes =
        || std::fs::read_dir(run.join("judge")).unwrap().filter(|one| one.as_ref().unwrap().path().is_dir());
    assert_eq!(passes().count(), 1);
    // The device does not change the judge's identity.
    assert_eq!(score(&["--device", "auto", "--dtype", "f32"]).0, 0);
    assert_eq!(passes().count(), 1);
}

#[test]
fn a_pass_that_is_killed_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    // The fourth verdict is not given before the pass was killed.
    let (release, gate) = mpsc::channel::<()>();
    let (gate, given) = (Mutex::new(gate), AtomicU64::new(0));
    let server = Server::start(move |request, body| {
        if !is_verdict(body) {
            return Ok(format!("Answer is number {request}."));
        }
        if given.fetch_add(1, Ordering::SeqCst) >= 3 {
            // Ends when the sender is dropped.
            let _ = gate.lock().unwrap().recv();
        }
        Ok("INCORRECT".to_owned())
    });
    // Dropped before the server, whose reply waits for it.
    let unanswered = release;
    let run = run(&server, folder.path());
    let judge = format!("openai:judge@{}", server.url);
    let score = ["score", run.to_str().unwrap(), "--judge", &judge, "--concurrency", "1"];
    let mut child = lumos()
        .args(score)
        .env("OPENAI_API_KEY", KEY)
        .env("OPENAI_BASE_URL", &server.url)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while verdicts(&server).len() < 4 {
        assert!(began.elapsed() < Duration::from_secs(300), "the judge is not asked");
        std::thread::sleep(Duration::from_millis(10));
    }
    until_recorded(&run, 3);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "the pass ended before it was killed");
    assert_eq!(verdicts(&server).len(), 4);
    drop(unanswered);
    let (code, stdout, stderr) = server.run(&score);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    // Only the request in progress is repeated.
    assert_eq!(verdicts(&server).len(), 4 + 3);
    assert!(content(&run).0["hotpotqa"].iter().all(|row| row["judge"]["judgement"]["paper"] == "incorrect"));
}

#[test]
fn a_judge_that_its_server_does_not_have_is_refused_before_the_pass() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        Server::start_listing(Some(&["tiny", "judge"]), |request, body| match body["model"].as_str() {
            Some("tiny" | "judge") => Ok(format!("Answer is number {request}.")),
            _ => Err(404),
        });
    let run = run(&server, folder.path());
    let asked = server.requests();
    let judge = format!("openai:jugde@{}", server.url);
    let (code, stdout, stderr) = server.run(&["score", run.to_str().unwrap(), "--judge", &judge]);
    assert_eq!(code, 2, "{stdout}\n{stderr}");
    assert!(stderr.contains("the server has no model `jugde` (404 Not Found"), "{stderr}");
    assert!(stderr.contains("it lists `tiny`, `judge`"), "{stderr}");
    assert_eq!(server.requests(), asked + 1, "it receives no question");
}
