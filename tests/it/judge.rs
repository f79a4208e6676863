//! `lumos score --judge` against a local server: interrupted and resumed passes, and their files.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, mpsc};

use lumos_coordinator::CheckpointReader;
use serde_json::Value;

use crate::support::model_server::{KEY, Server};
use crate::support::{Lumos, assert_nowhere, content, repository, unwrapped, wait_until};

/// Performs a run over six questions, answered by the same server.
fn run(server: &Server, folder: &Path) -> PathBuf {
    let run = server.lumos().args("run --tasks hotpotqa --formulation direct --limit 6");
    run.args(format!("--model openai:tiny@{}", server.url)).output(folder, "judged").ok();
    folder.join("judged")
}

/// Returns the command of a pass over a run with a judge of the server.
fn score(server: &Server, run: &Path, judge: &str) -> Lumos {
    server.lumos().args("score").arg(run).args(format!("--judge openai:{judge}@{}", server.url))
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
    let recorded = || CheckpointReader::open(&checkpoint).map_or(0, |reader| reader.settled());
    wait_until(|| recorded() >= verdicts, || format!("{verdicts} verdicts are not recorded"));
}

fn answers(request: usize, body: &Value) -> Result<String, u16> {
    match is_verdict(body) {
        // Every second request to the judge fails at first.
        true if request.is_multiple_of(2) => Err(503),
        true => Ok("CORRECT".to_owned()),
        false => Ok(format!("Answer is number {request}.")),
    }
}

#[test]
fn faults_are_tried_again_and_verdicts_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(answers);
    let run = run(&server, folder.path());
    let before = content(&run).0;
    let score = || score(&server, &run, "judge").args("--concurrency 2");
    let mut passes = (0..8).map(|_| score().run());
    let is_complete = passes.any(|pass| {
        assert!(matches!(pass.code, 0 | 5), "{pass}");
        let told = unwrapped(&pass.stdout);
        assert!(told.contains("judged by openai:judge@"), "{pass}");
        assert!(pass.code == 5 || told.contains("6 of 6 questions, 0.0216 US dollars"), "{pass}");
        pass.code == 0
    });
    assert!(is_complete, "the judge did not complete");
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
    score().ok();
    server.lumos().args("score").arg(&run).ok().prints(["llm_accuracy"]);
    assert_eq!(server.requests(), asked);
    let questions = verdicts(&server);
    assert!(questions.iter().all(|body| body["temperature"] == 0 && body["max_tokens"] == 100));
    assert_nowhere(KEY, folder.path());
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
    let limited = |cost: f64| {
        let score = score(&server, &run, "judge");
        score.args(format!("--concurrency 1 --max-cost {cost}"))
    };
    // 0.0036 dollars each: two, the one in progress, and one more if it begins before their cost is added.
    limited(0.009).exits(5).reports(["--max-cost 0.009"]);
    let asked = verdicts(&server).len();
    assert!((2..=4).contains(&asked), "{asked}");
    // Earlier costs count: the same limit allows no further requests.
    limited(0.007).exits(5);
    assert_eq!(verdicts(&server).len(), asked);
    limited(1.0).ok();
    assert_eq!(verdicts(&server).len(), 6);
    let unpriced = score(&server, &run, "unpriced").args("--max-cost 1");
    unpriced.exits(2).reports(["LUMOS_OPENAI_PRICES=unpriced="]);
}

#[test]
fn a_judge_that_is_computed_here_has_a_device_and_a_memory() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|request, _| Ok(format!("Answer is number {request}.")));
    let run = run(&server, folder.path());
    let judge = format!("--judge 'candle:{}'", repository("engine/tests/data/adapters/base").display());
    let score = |more: &str| server.lumos().args("score").arg(&run).args(&judge).args(more);
    score("--memory 100KB").exits(2).reports([
        "on cpu: model judge candle:",
        "for weights and at least",
        "raise --memory",
    ]);
    let unknown = score("--device judge=gpu").exits(2);
    unknown.reports(["unknown device `gpu`: expected cpu, auto, or cuda:0"]);
    assert!(!run.join("judge").exists(), "a rejected judge creates no files");
    let judged = score("--device judge=cpu --memory 2GB").ok();
    assert!(unwrapped(&judged.stdout).contains("6 of 6 questions"), "{judged}");
    let passes =
        || std::fs::read_dir(run.join("judge")).unwrap().filter(|one| one.as_ref().unwrap().path().is_dir());
    assert_eq!(passes().count(), 1);
    // The device does not change the judge's identity.
    score("--device auto --dtype f32").ok();
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
    let score = || score(&server, &run, "judge").args("--concurrency 1");
    let mut pass = score().follow();
    wait_until(|| verdicts(&server).len() >= 4, || "the judge is not asked".to_owned());
    until_recorded(&run, 3);
    assert!(pass.kill(), "the pass ended before it was killed");
    assert_eq!(verdicts(&server).len(), 4);
    drop(unanswered);
    score().ok();
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
    score(&server, &run, "jugde")
        .exits(2)
        .reports(["the server has no model `jugde` (404 Not Found", "it lists `tiny`, `judge`"]);
    assert_eq!(server.requests(), asked + 1, "it receives no question");
}
