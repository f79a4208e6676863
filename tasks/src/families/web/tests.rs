use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::call::{ToolCall, ToolReply};
use crate::configuration::{Configuration, GenerationSettings, ToolBackend};
use crate::episode::{Episode, Next, Reply};
use crate::formulation::{Behaviour, Formulation};
use crate::identity::{ContentHash, ItemId};
use crate::item::{Setup, Task};
use crate::outcome::{Ending, Evidence, Outcome, Step};
use crate::request::{Completion, Role};
use crate::unit::WorkUnit;

const REPRESENTATIONS: [&str; 4] = [
    "[a]  Shop -> CLICK",
    "[input]  Size -> TYPE: L",
    "[select]  Colour -> SELECT: red",
    "[a]  Buy -> CLICK",
];

fn unit(behaviour: Behaviour, steps: u32, rounds: u32) -> WorkUnit {
    let configuration = Configuration {
        benchmark: "mind2web".to_owned(),
        formulation: Formulation::Iterative,
        behaviour,
        max_rounds: rounds,
        models: BTreeMap::new(),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: prompts_hash(),
        format: crate::PromptFormat::default(),
        agent: None,
    };
    let item = ItemId { content: ContentHash::of_bytes(b"item"), occurrence: 0 };
    let history = REPRESENTATIONS.iter().cycle().take(steps as usize).map(|&text| text.to_owned());
    let task = Task::Web {
        task: " Buy it ".to_owned(),
        steps,
        teacher_forced_history: history.collect(),
        verbs: Vec::new(),
    };
    WorkUnit::new(item, task, Setup::None, Arc::new(configuration))
}

/// Runs an episode whose pages have `elements` elements; the last candidate of each ranking gets the highest
/// score.
fn run(unit: &WorkUnit, elements: usize, ground: impl Fn(u32) -> String) -> (Outcome, Vec<ToolCall>) {
    let mut episode = Episode::start(unit);
    let mut calls = Vec::new();
    loop {
        let reply = match episode.next() {
            Next::Done => return (episode.finish(), calls),
            Next::Generate(request) if request.role == Role::Planner => {
                Reply::Completion(Completion::recorded("Subgoal: x"))
            }
            Next::Generate(_) => Reply::Completion(Completion::recorded(ground(episode.turn()))),
            Next::Call(call) => {
                calls.push(call.clone());
                Reply::Tool(match call {
                    ToolCall::Candidates { step, .. } => {
                        let element =
                            |id: usize| CandidateElement { id: id.to_string(), text: format!("{step}/{id}") };
                        ToolReply::Candidates((0..elements).map(element).collect())
                    }
                    ToolCall::Rank { passages, .. } => {
                        ToolReply::Rank((0..passages.len()).map(|place| place as f64).collect())
                    }
                    ToolCall::Carry(_) => {
                        let action = WebResult::Refused(Obstacle::Covered);
                        ToolReply::Carried(PageExecution { action, truth: Some(WebResult::Done) })
                    }
                    other => panic!("{other:?}"),
                })
            }
        };
        episode.feed(reply).unwrap();
    }
}

fn evidence(outcome: &Outcome) -> &WebEvidence {
    outcome.evidence.as_ref().unwrap().web().unwrap()
}

#[test]
fn the_ranker_is_told_of_the_gold_actions_before() {
    let click = |turn: u32| match turn {
        1 => "R1 = CLICK(Env, QUERY: it)".to_owned(),
        turn => format!("R{turn} = SELECT(R{}, QUERY: it, TEXT: red)", turn - 1),
    };
    let (outcome, calls) = run(&unit(Behaviour::Paper, 5, 15), 3, click);
    assert_eq!((&outcome.ending, evidence(&outcome).chosen.len()), (&Ending::Answered, 5));
    assert!(
        evidence(&outcome).chosen.iter().all(|chosen| chosen.element == "2" && chosen.page == chosen.step)
    );
    let ToolCall::Rank { question, passages } = calls.last().unwrap() else { panic!("{calls:?}") };
    assert_eq!(
        question,
        "task is: it The option contents should be close to 'red'.\nPrevious actions: [input]  Size -> TYPE: L; \
         [select]  Colour -> SELECT: red; [a]  Buy -> CLICK"
    );
    assert_eq!(passages.len(), 3);
    // A trajectory does not repeat the pages' contents.
    assert!(!serde_json::to_string(&outcome).unwrap().contains(r#"{"id":"2","text""#));
}

#[test]
fn a_variable_that_is_not_there_ends_the_episode_in_paper_behaviour_alone() {
    let lost = |_| "R9 = CLICK(R8, QUERY: it); R9 = HOVER(R8, QUERY: it)".to_owned();
    let (outcome, _) = run(&unit(Behaviour::Paper, 3, 15), 3, lost);
    assert_eq!(evidence(&outcome).raised.as_deref(), Some("KeyError"));
    assert_eq!(evidence(&outcome).chosen.len(), 1, "the first page is there whatever is named");
    let (outcome, _) = run(&unit(Behaviour::Corrected, 3, 15), 3, lost);
    assert_eq!((&outcome.ending, evidence(&outcome).chosen.len()), (&Ending::Answered, 3));
}

#[test]
fn corrected_behaviour_narrows_all_candidates_down_and_refuses_what_is_no_action() {
    let some =
        |turn| if turn == 1 { "R1 = CLICK(Env, QUERY: it)" } else { "CLICK(R1, QUERY: it)" }.to_owned();
    let (outcome, calls) = run(&unit(Behaviour::Corrected, 2, 15), 60, some);
    let ranked: Vec<usize> = calls
        .iter()
        .filter_map(|call| match call {
            ToolCall::Rank { passages, .. } => Some(passages.len()),
            _ => None,
        })
        .collect();
    assert_eq!(ranked, [60, 50]);
    // The best fifty are sorted by descending score, so the last of them is element 10.
    assert_eq!(evidence(&outcome).chosen[0].element, "10");
    assert_eq!((evidence(&outcome).chosen.len(), evidence(&outcome).steps), (1, 2));
}

#[test]
fn a_browser_carries_the_prediction_of_each_step_out_and_changes_nothing_else() {
    // The first step has two actions, the second none.
    let replies = |turn: u32| match turn {
        1 => "R1 = CLICK(Env, QUERY: it); R1 = TYPE(Env, QUERY: it, TEXT: L)".to_owned(),
        2 => "R2 = HOVER(R1, QUERY: it)".to_owned(),
        _ => "R3 = CLICK(R1, QUERY: it)".to_owned(),
    };
    for behaviour in [Behaviour::Paper, Behaviour::Corrected] {
        let read = unit(behaviour, 3, 15);
        let browser = ToolBackend { tool: "web".to_owned(), backend: "chromedriver".to_owned(), version: 1 };
        let configuration = Configuration { tools: vec![browser], ..(*read.configuration).clone() };
        let shown = WorkUnit { configuration: Arc::new(configuration), ..read.clone() };
        let (expected, _) = run(&read, 3, replies);
        let (mut outcome, calls) = run(&shown, 3, replies);
        let carried: Vec<&PageAction> = calls
            .iter()
            .filter_map(|call| match call {
                ToolCall::Carry(attempt) => Some(attempt),
                _ => None,
            })
            .collect();
        let steps: Vec<u32> = carried.iter().map(|attempt| attempt.step).collect();
        assert_eq!(steps, [0, 2], "{behaviour:?}");
        let first = evidence(&outcome).chosen.iter().rfind(|chosen| chosen.step == 0).unwrap();
        let attempt = (&first.element, first.action, &first.text, first.page);
        assert_eq!((&carried[0].element, carried[0].action, &carried[0].text, carried[0].page), attempt);
        // Without the browser's steps, the record is the same.
        outcome.steps.retain(|step| !matches!(step, Step::Call { call: ToolCall::Carry(_), .. }));
        let Some(Evidence::Web(evidence)) = &mut outcome.evidence else { panic!() };
        assert!(std::mem::take(&mut evidence.in_browser));
        let taken = evidence.chosen.iter_mut().filter_map(|chosen| chosen.carried.take());
        assert_eq!(taken.count(), 2);
        assert_eq!(outcome, expected);
        assert!(!serde_json::to_string(&expected).unwrap().contains("carried"));
    }
}

#[test]
fn long_tasks_are_cut() {
    let click = |turn: u32| {
        format!(
            "R{turn} = CLICK({}, QUERY: it)",
            if turn == 1 { "Env".to_owned() } else { format!("R{}", turn - 1) }
        )
    };
    let (outcome, _) = run(&unit(Behaviour::Paper, 20, 15), 2, click);
    assert_eq!((&outcome.ending, evidence(&outcome).steps), (&Ending::Answered, 15));
}

proptest! {
    #[test]
    fn arbitrary_replies_end(
        replies in proptest::collection::vec("(R[12] = )?(CLICK|TYPE|SELECT|x)?(\\((Env|R1)(, QUERY: q)?(, TEXT: t)?\\)?)?(; )?.{0,4}", 4),
        behaviour in prop_oneof![Just(Behaviour::Paper), Just(Behaviour::Corrected)],
        elements in 0usize..60,
    ) {
        let ground = |turn: u32| replies[turn as usize - 1].clone();
        let (outcome, calls) = run(&unit(behaviour, 4, 15), elements, ground);
        prop_assert!(!outcome.is_fault());
        prop_assert!(calls.len() <= 30);
    }
}
