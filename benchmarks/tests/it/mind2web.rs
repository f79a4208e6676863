//! Compares Mind2Web with the recorded behaviour of the original, if `LUMOS_SHARED` names the folder that
//! contains it, and tests the loader on generated files.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use crate::official::{
    Evaluator, Sample, evaluate, f1_of_generation, f1_of_multichoice, figures, generation_figures,
    parse_generation, parse_multichoice, parse_multichoice_llm,
};
use flate2::read::GzDecoder;
use lumos_benchmarks::replay::{configuration, read_cases, record, replay};
use lumos_benchmarks::{DataError, DataSource, Scoring, find};
use lumos_capabilities::shared;
use lumos_environments::dom;
use lumos_tasks::families::web::{Obstacle, PageExecution, WebResult};
use lumos_tasks::recorded::Case;
use lumos_tasks::{
    Behaviour, Completion, Configuration, Episode, Formulation, Next, Reply, Role, Setup, Target, Task,
    ToolBackend, ToolCall, ToolReply, WorkUnit,
};
use serde_json::{Value, json};

fn rows(name: &str) -> Vec<Value> {
    let Some(path) = shared(&format!("golden/mind2web/{name}.jsonl.gz")) else { return Vec::new() };
    let mut text = String::new();
    GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_string(&mut text).unwrap();
    text.split('\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn recorded_episodes_replay() {
    let Some(path) = shared("golden/mind2web/lumos_iterative.jsonl.gz") else { return };
    let mutations: Vec<Vec<String>> = rows("lumos_iterative")
        .iter()
        .map(|row| serde_json::from_value(row["mutations"].clone()).unwrap())
        .collect();
    let (mut passed, mut failed) = (0, Vec::new());
    for (row, mutations) in read_cases(&path).unwrap().zip(mutations) {
        let verdict = row.unwrap().replay();
        if verdict.passed() {
            passed += 1;
        } else {
            failed.push(format!(
                "{} {mutations:?}: {:?} {:?}",
                verdict.id, verdict.difference, verdict.skipped
            ));
        }
    }
    println!("{passed} episodes replay");
    assert_eq!((passed, failed.len()), (48, 0), "{failed:#?}");
}

#[test]
fn answers_are_read_as_recorded() {
    let rows = rows("official_units");
    for row in &rows {
        let pair = |picked: &Option<String>, action: &str| json!([picked, action]);
        let got = match text(&row["function"]) {
            "multichoice.postprocess_action_llm" => {
                let answer = parse_multichoice_llm(text(&row["text"]));
                pair(&answer.picked, &answer.action)
            }
            "multichoice.postprocess_action" => match parse_multichoice(text(&row["text"])) {
                Some(answer) => pair(&answer.picked, &answer.action),
                None => {
                    assert_eq!(row["error"], "IndexError", "{}", row["id"]);
                    continue;
                }
            },
            "generation.postprocess_action" => {
                let choices: Vec<(String, String)> = serde_json::from_value(row["choices"].clone()).unwrap();
                let answer = parse_generation(text(&row["text"]), &choices);
                pair(&answer.picked, &answer.action)
            }
            "multichoice.calculate_f1" => json!(f1_of_multichoice(text(&row["pred"]), text(&row["label"]))),
            "generation.calculate_f1" => json!(f1_of_generation(text(&row["pred"]), text(&row["label"]))),
            other => panic!("{other}"),
        };
        match (got.as_f64(), row["output"].as_f64()) {
            (Some(got), Some(recorded)) => assert!((got - recorded).abs() < 1e-9, "{}", row["id"]),
            _ => assert_eq!(got, row["output"], "{}", row["id"]),
        }
    }
    println!("{} answers and figures", rows.len());
}

/// Whether two JSON values are equal except for the last digits of numbers.
fn close(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Object(left), Value::Object(right)) => {
            left.len() == right.len()
                && left.iter().all(|(name, value)| right.get(name).is_some_and(|other| close(value, other)))
        }
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(left, right)| close(left, right))
        }
        _ => match (left.as_f64(), right.as_f64()) {
            (Some(left), Some(right)) => (left - right).abs() < 1e-9,
            _ => left == right,
        },
    }
}

#[test]
fn official_figures_are_as_recorded() {
    let rows = rows("official_metrics");
    for row in &rows {
        let id = &row["id"];
        let evaluator = match text(&row["evaluator"]) {
            "llm" => Evaluator::Llm,
            "multichoice" => Evaluator::MultiChoice,
            _ => Evaluator::Generation,
        };
        let top_k = row["top_k"].as_u64().unwrap();
        let samples: Vec<Sample> = serde_json::from_value(row["samples"].clone()).unwrap();
        let shuffled: Vec<Vec<String>> =
            serde_json::from_value(row["shuffled_candidate_ids"].clone()).unwrap();
        let (mut shuffled, mut outputs) = (shuffled.iter(), row["model_outputs"].as_array().unwrap().iter());
        let recorded_rounds = row["expected"]["rounds"].as_array().unwrap();
        let mut evaluations = Vec::new();
        let mut predictions = Vec::new();
        for (sample, rounds) in samples.iter().zip(recorded_rounds) {
            let order =
                if sample.positives(top_k).is_empty() { &Vec::new() } else { shuffled.next().unwrap() };
            let evaluation =
                evaluate(evaluator, sample, top_k, order, |_| text(outputs.next().unwrap()).to_owned())
                    .unwrap();
            let rounds = rounds.as_array().unwrap();
            assert_eq!(evaluation.rounds.len(), rounds.len(), "{id}");
            for (round, recorded) in evaluation.rounds.iter().zip(rounds) {
                assert_eq!(json!(round.candidates), recorded["candidate_ids"], "{id}");
                assert_eq!(json!(round.choices), recorded["choices"], "{id}");
                assert_eq!(json!(round.question), recorded["prompt_tail"], "{id}");
            }
            let (element, action) = match &evaluation.prediction {
                Some(prediction) => (prediction.element.as_str(), prediction.action.as_str()),
                None => ("", ""),
            };
            predictions.push(json!([
                format!("{}_{}", sample.annotation_id, sample.action_uid),
                element,
                action
            ]));
            evaluations.push(evaluation);
        }
        assert_eq!(json!(predictions), row["expected"]["final_predictions"], "{id}");
        let got = if evaluator == Evaluator::Generation {
            let (element, f1) = generation_figures(&evaluations);
            json!({ "element_acc": element, "action_f1": f1 })
        } else {
            json!(figures(samples.iter().zip(&evaluations)))
        };
        assert!(close(&got, &row["expected"]["result"]), "{id}: {got} {}", row["expected"]["result"]);
    }
    println!("{} data sets", rows.len());
}

fn open(path: &Path) -> Result<lumos_benchmarks::Items, DataError> {
    find("mind2web").unwrap().open(DataSource::File(path.to_owned()))
}

#[test]
fn the_samples_are_tasks_with_pages() {
    let items: Vec<_> =
        find("mind2web").unwrap().open(DataSource::Samples).unwrap().collect::<Result<_, _>>().unwrap();
    assert_eq!(items.len(), 10);
    for item in &items {
        let (
            Task::Web { steps, teacher_forced_history, .. },
            Setup::Web { steps: pages },
            Target::Web { steps: gold, .. },
        ) = (&item.task, &item.setup, &item.target)
        else {
            panic!("{:?}", item.name)
        };
        assert_eq!(
            (*steps as usize, pages.len(), gold.len()),
            (teacher_forced_history.len(), gold.len(), gold.len())
        );
        let group = item.group.as_deref().unwrap();
        assert!(group.starts_with("split: samples\ndomain: ") && group.contains("\nwebsite: "), "{group}");
        let hidden = serde_json::to_string(&item.task).unwrap();
        assert!(!hidden.contains("backend_node_id"), "{hidden}");
    }
}

fn one_task(id: &str, page: &str) -> Value {
    let action = json!({
        "action_uid": "u1", "raw_html": "<html>raw</html>", "cleaned_html": page,
        "operation": {"op": "CLICK", "original_op": "CLICK", "value": ""},
        "pos_candidates": [{"backend_node_id": "1", "tag": "a", "attributes": "{}", "rank": 0}],
        "neg_candidates": [],
    });
    json!({
        "annotation_id": id, "website": "w", "domain": "d", "subdomain": "s", "confirmed_task": "Go",
        "action_reprs": ["[a]  Go -> CLICK"], "actions": [action],
    })
}

#[test]
fn a_split_in_several_files_is_one_stream_and_malformed_steps_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let split = folder.path().join("test_domain");
    std::fs::create_dir(&split).unwrap();
    let write = |name: &str, value: &Value| std::fs::write(split.join(name), value.to_string()).unwrap();
    write("test_domain_10.json", &json!([one_task("third", "<a backend_node_id=\"1\"/>")]));
    write(
        "test_domain_2.json",
        &json!([one_task("first", "<a backend_node_id=\"1\"/>"), one_task("second", "<a>")]),
    );
    let items: Vec<_> = open(&split).unwrap().collect();
    assert_eq!(items.len(), 3);
    let first = items[0].as_ref().unwrap();
    assert_eq!((first.name.as_deref(), first.index), (Some("first"), 0));
    assert_eq!(first.group.as_deref(), Some("split: test_domain\ndomain: d\nwebsite: w"));
    assert!(!first.record.to_string().contains("raw"), "{}", first.record);
    let error = items[1].as_ref().unwrap_err();
    assert!(error.is_skippable());
    let told = error.to_string();
    assert!(
        told.contains("test_domain_2.json") && told.contains("in step 1 (u1) of the task second"),
        "{told}"
    );
    assert_eq!(items[2].as_ref().unwrap().name.as_deref(), Some("third"));
    for missing in [folder.path().join("nowhere"), folder.path().to_owned()] {
        let told = open(&missing).err().unwrap().to_string();
        assert!(told.contains("docs/mind2web.md"), "{told}");
    }
}

#[test]
fn positives_without_pages_say_what_is_missing() {
    let Some(path) = shared("data/mind2web/test_task_positives.json") else { return };
    let error = open(&path).unwrap().next().unwrap().unwrap_err();
    assert!(
        error.to_string().contains("`cleaned_html`: expected the page's XML, found no such field"),
        "{error}"
    );
}

#[test]
fn the_real_step_loads_as_a_task() {
    let Some(path) = shared("data/mind2web/step_with_html.json") else { return };
    let mut step: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let action = step["action"].take();
    let task = json!([{
        "annotation_id": step["annotation_id"], "website": step["website"], "domain": "Service",
        "confirmed_task": step["confirmed_task"], "action_reprs": ["[button]  Search -> CLICK"], "actions": [action],
    }]);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(task.to_string().as_bytes()).unwrap();
    let item = open(file.path()).unwrap().next().unwrap().unwrap();
    let Setup::Web { steps } = &item.setup else { panic!() };
    assert_eq!(steps[0].positives.len() + steps[0].negatives.len(), 468);
}

#[test]
fn what_a_browser_did_is_recorded_and_replayed() {
    let benchmark = find("mind2web").unwrap();
    let item = benchmark.open(DataSource::Samples).unwrap().next().unwrap().unwrap();
    let Setup::Web { steps: pages } = item.setup.clone() else { panic!() };
    let browser = ToolBackend { tool: "web".to_owned(), backend: "chromedriver".to_owned(), version: 1 };
    let configuration = Arc::new(Configuration {
        behaviour: Behaviour::Corrected,
        max_rounds: benchmark.max_rounds(Behaviour::Corrected),
        ..configuration(benchmark, Formulation::Iterative, vec![browser])
    });
    let unit = WorkUnit::new(item.id.clone(), item.task.clone(), item.setup.clone(), configuration);
    let mut episode = Episode::start(&unit);
    let refused = WebResult::Refused(Obstacle::Disabled);
    loop {
        let reply = match episode.next() {
            Next::Done => break,
            Next::Generate(request) if request.role == Role::Planner => {
                Reply::Completion(Completion::recorded("Subgoal: Go on"))
            }
            Next::Generate(_) => Reply::Completion(Completion::recorded("R1 = CLICK(Env, QUERY: it)")),
            Next::Call(ToolCall::Candidates { step, scope }) => {
                let page = &pages[usize::try_from(*step).unwrap()];
                Reply::Tool(ToolReply::Candidates(dom::candidates(page, *scope).unwrap()))
            }
            Next::Call(ToolCall::Rank { passages, .. }) => {
                Reply::Tool(ToolReply::Rank(passages.iter().map(|_| 0.0).collect()))
            }
            Next::Call(ToolCall::Carry(attempt)) => {
                let action = if attempt.step == 0 { WebResult::Done } else { refused };
                Reply::Tool(ToolReply::Carried(PageExecution { action, truth: Some(WebResult::Done) }))
            }
            Next::Call(other) => panic!("{other:?}"),
        };
        episode.feed(reply).unwrap();
    }
    let outcome = episode.finish();
    let score = benchmark.score(&item.target, &outcome, Scoring::Paper).unwrap();
    let share = |metric: &str| score.share(metric).map(|share| (share.numerator, share.denominator));
    assert_eq!((share("executable"), share("reachable")), (Some((1.0, 4.0)), Some((4.0, 4.0))));

    let case = record(&item, &unit, &outcome).unwrap();
    let text = serde_json::to_string(&case).unwrap();
    let mut case: Case = serde_json::from_str(&text).unwrap();
    assert_eq!(case.tools.iter().filter(|call| call.tool == "carry").count(), 4);
    assert_eq!(replay(&case).difference, None);
    let carried = case.tools.iter_mut().find(|call| call.tool == "carry").unwrap();
    carried.input["element"] = json!("999");
    let difference = replay(&case).difference.unwrap();
    assert!(difference.contains("CLICK 999"), "{difference}");
}
