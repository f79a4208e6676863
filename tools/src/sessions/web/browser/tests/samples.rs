//! The gold actions of the built-in samples and of a real page.

use std::time::Instant;

use lumos_tasks::families::web::{ActionName, WebResult, WebStep};
use lumos_tasks::{ToolCall, ToolReply, families::web::CandidateScope};
use serde_json::Value;

use super::stage::{DONE, Stage};
use crate::browser::webdriver::tests::support::TestPool;

fn ids(candidates: &Value) -> Vec<String> {
    let ids = candidates.as_array().unwrap().iter();
    ids.map(|candidate| candidate["backend_node_id"].as_str().unwrap().to_owned()).collect()
}

fn step(action: &Value) -> WebStep {
    WebStep {
        page: action["cleaned_html"].as_str().unwrap().to_owned(),
        positives: ids(&action["pos_candidates"]),
        negatives: ids(&action["neg_candidates"]),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_action_of_the_samples_is_carried_out() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let samples = include_str!("../../../../../../benchmarks/samples/mind2web.json");
    let samples: Value = serde_json::from_str(samples).unwrap();
    let mut stage = Stage::new(Vec::new()).await;
    let mut seen = Vec::new();
    for task in samples.as_array().unwrap() {
        let actions = task["actions"].as_array().unwrap();
        stage = stage.again(actions.iter().map(step).collect(), None).await;
        for (index, action) in (0..).zip(actions) {
            let name = ActionName::of(action["operation"]["op"].as_str().unwrap()).unwrap();
            let text = action["operation"]["value"].as_str().filter(|value| !value.is_empty());
            let element = &ids(&action["pos_candidates"])[0];
            let carried = stage.carry(index, name, element, text).await.unwrap();
            assert_eq!(carried, DONE, "{} step {index}", task["annotation_id"]);
            seen.push(name);
        }
    }
    stage.end();
    assert_eq!(seen.len(), 31);
    assert!(ActionName::ALL.iter().all(|name| seen.contains(name)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_real_page_is_acted_on() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let Some(path) = lumos_capabilities::shared("data/mind2web/step_with_html.json") else { return };
    let file = std::fs::read_to_string(path).unwrap();
    let record: Value = serde_json::from_str(&file).unwrap();
    let page = step(&record["action"]);
    let (positive, negatives) = (page.positives[0].clone(), page.negatives.clone());
    let folder = tempfile::tempdir().unwrap();
    let stage = Stage::with(TestPool::new(1), vec![page], Some(folder.path().to_owned())).await;
    let ToolReply::Candidates(elements) =
        stage.call(ToolCall::Candidates { step: 0, scope: CandidateScope::All }).await.unwrap()
    else {
        panic!()
    };
    assert_eq!(elements.len(), 1 + negatives.len());
    let begun = Instant::now();
    assert_eq!(stage.carry(0, ActionName::Click, &positive, None).await.unwrap(), DONE);
    // Every other candidate can be clicked, or is refused with a reason.
    let tried: Vec<&String> = negatives.iter().step_by(60).collect();
    let mut done = 0;
    let mut refused = Vec::new();
    for id in &tried {
        let carried = stage.carry(0, ActionName::Click, id, None).await.unwrap();
        assert_eq!(carried.truth, Some(WebResult::Done), "{id}");
        match carried.action {
            WebResult::Done => done += 1,
            WebResult::Refused(obstacle) => refused.push((id, obstacle)),
        }
    }
    // Every element accepts or refuses typing and selecting, without a fault.
    let mut typed = 0;
    for id in tried.iter().step_by(3) {
        for action in [ActionName::Type, ActionName::Select] {
            let carried = stage.carry(0, action, id, Some("42")).await.unwrap();
            typed += usize::from(carried.action.is_done());
        }
    }
    assert!(typed < tried.len() / 3, "most elements are not fields");
    println!("{} candidates in {:?}: {done} clicked, refused {refused:?}", tried.len() + 1, begun.elapsed());
    assert!(done * 2 > tried.len(), "{refused:?}");
    let pictures: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(pictures.len(), 1, "a later picture of a step replaces the earlier one");
    stage.end();
}
