//! Replays the cases in the repository, and records and replays episodes of all kinds.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use crate::support::World;
use lumos_benchmarks::replay::{configuration, read_cases, record, replay};
use lumos_benchmarks::{DataSource, all, get};
use lumos_tasks::recorded::Case;
use lumos_tasks::{
    Behaviour, Completion, Configuration, Episode, Formulation, Item, Next, Reply, Role, WorkUnit,
};
use proptest::prelude::*;

fn own_cases() -> Vec<Case> {
    let mut cases = cases_of("maths");
    cases.extend(cases_of("qa"));
    cases
}

fn cases_of(family: &str) -> Vec<Case> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/cases/{family}.jsonl"));
    read_cases(&path).unwrap().map(|row| row.unwrap().case().expect("an episode").clone()).collect()
}

#[test]
fn own_cases_replay() {
    let cases = own_cases();
    let failures: Vec<String> = cases
        .iter()
        .map(replay)
        .filter(|verdict| !verdict.passed())
        .map(|verdict| format!("{}: {:?}", verdict.id, verdict.difference))
        .collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let kinds: BTreeSet<_> = cases.iter().map(|case| (case.benchmark.as_str(), case.formulation)).collect();
    // The integrated formulation differs from the iterative one only in its models.
    let formulations = all().iter().flat_map(|benchmark| benchmark.formulations());
    let recorded = formulations.filter(|formulation| **formulation != Formulation::Integrated);
    assert_eq!(kinds.len(), recorded.count(), "every benchmark in every formulation");
    let names: BTreeSet<_> = cases.iter().map(|case| &case.id).collect();
    assert_eq!(names.len(), cases.len());
}

/// Replays a modified case and returns the difference.
fn difference(change: impl FnOnce(&mut Case)) -> String {
    let mut case = own_cases().into_iter().find(|case| case.id == "gsm8k-iterative-001").unwrap();
    change(&mut case);
    replay(&case).difference.unwrap_or_else(|| "none".to_owned())
}

#[test]
fn differences_are_told_in_words() {
    let told = [
        difference(|_| {}),
        difference(|case| {
            case.prompts.plan.as_mut().unwrap()[1] = case.prompts.of(Role::Planner)[1].replace("216", "217");
        }),
        difference(|case| case.tools[1].input = "(216) + 151".into()),
        difference(|case| {
            case.tools.pop();
        }),
        difference(|case| case.tools.push(case.tools[0].clone())),
        difference(|case| {
            case.script.ground.as_mut().unwrap().pop();
        }),
        difference(|case| case.effective_turns = Some(4)),
        difference(|case| case.expected.pred = Some("66".into())),
        difference(|case| case.expected.answer = 65.into()),
        difference(|case| case.expected.correct = Some(false)),
        difference(|case| case.expected.results = Some(None)),
        difference(|case| {
            case.expected.subgoals.as_mut().unwrap().pop();
        }),
        difference(|case| case.expected.actions.as_mut().unwrap()[0].push('0')),
        difference(|case| case.expected.raises = Some("KeyError: 'R3'".to_owned())),
        difference(|case| case.item["answer"] = "sixty-five".into()),
        difference(|case| case.item["answer"] = "#### 0".into()),
    ];
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn what_was_asked_after_the_end_does_not_count() {
    assert_eq!(
        difference(|case| {
            case.prompts.push(Role::Planner, "anything");
            case.script.push(Role::Planner, "anything");
        }),
        "none"
    );
    let mut failed = own_cases().into_iter().find(|case| case.expected.results == Some(None)).unwrap();
    let surplus = serde_json::from_str(r#"{"tool": "wolfram", "input": "1 + 1", "output": "2"}"#).unwrap();
    failed.tools.push(surplus);
    assert!(replay(&failed).passed());
}

#[test]
fn a_benchmark_that_is_not_there_is_skipped() {
    let mut case = own_cases().remove(0);
    case.benchmark = "trivia".to_owned();
    let verdict = replay(&case);
    assert_eq!((verdict.passed(), verdict.difference), (false, None));
    let skipped = verdict.skipped.unwrap();
    assert!(skipped.starts_with("unknown benchmark `trivia`; `lumos replay --task-file"), "{skipped}");
}

/// Runs an episode. `replies` are used in order, and the maths service computes.
fn run(unit: &WorkUnit, replies: &[String]) -> Episode {
    let world = World::of(get(&unit.configuration.benchmark).unwrap());
    let mut episode = Episode::start(unit);
    let mut replies = replies.iter().cycle();
    loop {
        let reply = match episode.next() {
            Next::Done => return episode,
            Next::Generate(_) => Reply::Completion(Completion::recorded(replies.next().unwrap())),
            Next::Call(call) => {
                // The chat model answers only questions about the sea.
                let chat = |asked: &str| {
                    if asked.contains("sea") { "Answer: Yes, the sea." } else { "No answer." }.to_owned()
                };
                Reply::Tool(world.answer(call, chat))
            }
        };
        episode.feed(reply).unwrap();
    }
}

fn unit(
    item: &Item,
    benchmark: &str,
    formulation: Formulation,
    behaviour: Behaviour,
    rounds: u32,
) -> WorkUnit {
    let configuration = Configuration {
        behaviour,
        max_rounds: rounds,
        ..configuration(get(benchmark).unwrap(), formulation, Vec::new())
    };
    WorkUnit::new(item.id.clone(), item.task.clone(), item.setup.clone(), Arc::new(configuration))
}

/// Generates replies that are partly valid.
fn reply() -> impl Strategy<Value = String> {
    let action = ("R[1-3]", "(Calculator|Define|SetEquation|SolveEquation|Count)", "[0-9xR+*/=(), -]{0,10}");
    let looked_up = prop_oneof![
        "R1 = KnowledgeQuery\\((Danube|Black Sea|Lake|Penguin|R[12])\\); R2 = ParagraphRetrieve\\(R1, Query: Which sea\\?\\)",
        "R3 = QA\\(\\[R[1-3]\\], Question: Which (sea|river) is it\\?\\)",
        "(R4|Output|x) = (Calculator|Code|QA|ParagraphRetrieve)\\((R3|R1 > 2|\\[R2\\], Question: sea)\\)",
    ];
    prop_oneof![
        Just("Yes, I will stop planning.".to_owned()),
        ("[ -~]{0,30}", 1u32..9).prop_map(|(text, number)| format!("Subgoal {number}: {text}")),
        proptest::collection::vec(action, 1..4).prop_map(|actions| {
            let written =
                actions.iter().map(|(variable, name, inner)| format!("{variable} = {name}({inner})"));
            written.collect::<Vec<_>>().join("; ")
        }),
        proptest::collection::vec(looked_up, 1..4).prop_map(|actions| actions.join("; ")),
        "(R1 = Calculator\\([1-9] [+*-] [1-9]\\); )?R2 = Calculator\\(R1 \\+ [1-9]\\)",
        ".{0,20}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_was_recorded_replays(
        replies in proptest::collection::vec(reply(), 1..12),
        benchmark in prop_oneof![Just("gsm8k"), Just("svamp"), Just("hotpotqa"), Just("strategyqa")],
        formulation in proptest::sample::select(Formulation::ALL.to_vec()),
        behaviour in proptest::sample::select(Behaviour::ALL.to_vec()),
        rounds in 1u32..10,
        sample in 0usize..20,
    ) {
        let item = get(benchmark).unwrap().open(DataSource::Samples).unwrap().nth(sample).unwrap().unwrap();
        let unit = unit(&item, benchmark, formulation, behaviour, rounds);
        let outcome = run(&unit, &replies).finish();
        let case = record(&item, &unit, &outcome).unwrap();
        prop_assert_eq!(replay(&case).difference, None);
        let text = serde_json::to_string(&case).unwrap();
        let read: Case = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(replay(&read).difference, None, "{}", text);
    }
}

#[test]
fn a_gold_answer_of_zero_is_an_item_and_is_recorded_as_refused() {
    let record_text = r#####"{"question": "How many are left?", "answer": "2-2\n#### 0"}"#####;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("test.jsonl");
    std::fs::write(&file, record_text).unwrap();
    let benchmark = get("gsm8k").unwrap();
    let item = benchmark.open(DataSource::File(file)).unwrap().next().unwrap().unwrap();
    assert_eq!(item.target.text(), "0");
    assert_eq!(benchmark.refused_by_original(&item.record), Some("AssertionError"));
    for behaviour in Behaviour::ALL {
        let unit = unit(&item, "gsm8k", Formulation::Direct, behaviour, 8);
        let outcome = run(&unit, &["Answer is 0.".to_owned()]).finish();
        let case = record(&item, &unit, &outcome).unwrap();
        assert_eq!(case.expected.raises.is_some(), behaviour == Behaviour::Paper);
        assert_eq!(replay(&case).difference, None);
    }
}

#[test]
fn a_fault_is_not_recorded() {
    let benchmark = get("svamp").unwrap();
    let item = benchmark.open(DataSource::Samples).unwrap().next().unwrap().unwrap();
    let unit = unit(&item, "svamp", Formulation::Cot, Behaviour::Paper, 2);
    let outcome = Episode::start(&unit).finish();
    assert_eq!(record(&item, &unit, &outcome).unwrap_err().to_string(), "the episode ended with a fault");
    assert_eq!(benchmark.score(&item.target, &outcome, lumos_benchmarks::Scoring::Corrected), None);
}
