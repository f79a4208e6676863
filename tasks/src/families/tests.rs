//! Episodes of all families with arbitrary replies.

use std::sync::Arc;

use proptest::prelude::*;

use crate::families::agent::AgentDefinition;
use crate::families::qa::page::WikiPage;
use crate::families::shop::ShopReply;
use crate::families::web::CandidateElement;
use crate::{
    AnswerForm, Behaviour, ChatReply, Completion, Configuration, ContentHash, Episode, ExternalReply,
    Formulation, GenerationSettings, ItemId, MathsReply, Next, Outcome, Reply, Role, Setup, SqlGrade,
    SqlReply, Step, Task, ToolCall, ToolReply, WorkUnit,
};

const MAX_ROUNDS: u32 = 3;

fn unit(
    task: Task,
    formulation: Formulation,
    behaviour: Behaviour,
    agent: Option<AgentDefinition>,
) -> WorkUnit {
    let configuration = Configuration {
        benchmark: "test".to_owned(),
        formulation,
        behaviour,
        max_rounds: MAX_ROUNDS,
        models: [].into(),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b""),
        format: crate::PromptFormat::default(),
        agent: agent.map(Arc::new),
    };
    let item = ItemId { content: ContentHash::of_json(&task), occurrence: 0 };
    WorkUnit::new(item, task, Setup::None, Arc::new(configuration))
}

fn tasks() -> Vec<Task> {
    let text = || "Which one?".to_owned();
    vec![
        Task::Maths { question: text() },
        Task::Qa { question: text(), answer: AnswerForm::Entity },
        Task::Qa { question: text(), answer: AnswerForm::YesNo },
        Task::Web { task: text(), steps: 5, teacher_forced_history: Vec::new(), verbs: Vec::new() },
        Task::Sql { question: text(), database: "library".to_owned() },
        Task::Shop { instruction: text(), exemplars: None },
    ]
}

/// An agent with tools that are not built in, under names of other families' actions.
fn own_agent() -> Option<AgentDefinition> {
    let json = r#"{"actions": [
        {"name": "QA", "arguments": ["question", {"name": "count", "type": "integer", "optional": true}],
         "tool": "oracle", "result": "{} ({a.0})"},
        {"name": "Search", "arguments": ["query"], "tool": "index", "call": "find", "most_characters": 4},
        {"name": "Calculator", "arguments": ["formula"], "tool": "maths"},
        {"name": "Code"}
    ]}"#;
    Some(serde_json::from_str(json).unwrap())
}

fn answer(call: &ToolCall, text: &str) -> ToolReply {
    let lines = || text.split(' ').map(str::to_owned).collect();
    match call {
        ToolCall::Maths { .. } => ToolReply::Maths(MathsReply::One(text.to_owned())),
        ToolCall::Sql { .. } if text.is_empty() => ToolReply::Sql(SqlReply::Error("refused".to_owned())),
        ToolCall::Sql { .. } => ToolReply::Sql(SqlReply::Rows { rows: lines(), count: 1 }),
        ToolCall::SqlSubmit => ToolReply::SqlGrade(SqlGrade {
            reward: 0.5,
            is_same: false,
            corrupt_gold: false,
            empty_gold: false,
        }),
        ToolCall::Carry(_) => unreachable!("unexpected call of a browser"),
        // A failure of the model of the try-again loop is a fault.
        ToolCall::Chat { role: Role::Answerer, .. } => ToolReply::Chat(ChatReply::recorded(text)),
        _ if text.contains("raise") => ToolReply::Raised { message: text.to_owned() },
        ToolCall::Wiki { .. } => ToolReply::Wiki(WikiPage::of_text(text)),
        ToolCall::Search { .. } => ToolReply::Search(lines()),
        ToolCall::Rank { passages, .. } => ToolReply::Rank(vec![0.0; passages.len()]),
        ToolCall::Chat { .. } => ToolReply::Chat(ChatReply::recorded(text)),
        ToolCall::Candidates { .. } => {
            let element = |text: &str| CandidateElement { id: text.to_owned(), text: text.to_owned() };
            ToolReply::Candidates(text.split_whitespace().map(element).collect())
        }
        ToolCall::External { .. } if text.contains("Env") => {
            ToolReply::External(ExternalReply::Refused(text.to_owned()))
        }
        ToolCall::External { .. } => ToolReply::External(ExternalReply::Text(text.to_owned())),
        ToolCall::Shop(_) => {
            ToolReply::Shop(ShopReply { observation: text.to_owned(), clickables: lines(), purchase: None })
        }
    }
}

/// Runs an episode to its end, with the replies in turn.
fn run(unit: &WorkUnit, replies: &[String]) -> (Outcome, u32) {
    let mut episode = Episode::start(unit);
    let mut replies = replies.iter().cycle();
    loop {
        let text = replies.next().map_or("", String::as_str);
        let reply = match episode.next() {
            Next::Done => {
                let turn = episode.turn();
                return (episode.finish(), turn);
            }
            Next::Generate(_) => Reply::Completion(Completion::recorded(text)),
            Next::Call(call) => Reply::Tool(answer(call, text)),
        };
        episode.feed(reply).unwrap();
    }
}

proptest! {
    #[test]
    fn any_replies_end_every_episode_within_its_rounds(
        replies in proptest::collection::vec(
            "((R[1-4]|Output|Subgoal 1: | = |; |Env|raise|Yes, I will stop planning| No, I will keep planning. |\
             Calculator|QA|KnowledgeQuery|Code|Search|Click|Pick|CLICK|TYPE|ListTables|ExecuteSQL|Submit)\
             |\\(R[1-4]\\)|\\(|\\)|, Question: |, QUERY: |, TEXT: |[a-z0-9 +=]{0,3}){0,8}",
            1..8,
        ),
        formulation in proptest::sample::select(&Formulation::ALL),
        behaviour in proptest::sample::select(&Behaviour::ALL),
    ) {
        let agents = [(tasks().swap_remove(1), own_agent()), (tasks().swap_remove(2), own_agent())];
        for (task, agent) in tasks().into_iter().map(|task| (task, None)).chain(agents) {
            let (outcome, turn) = run(&unit(task, formulation, behaviour, agent), &replies);
            prop_assert!(!outcome.is_fault());
            prop_assert!((1..=MAX_ROUNDS).contains(&turn));
            let in_order = outcome.steps.is_sorted_by_key(|step| match step {
                Step::Generate { turn, .. } | Step::Call { turn, .. } | Step::Action { turn, .. } => *turn,
            });
            prop_assert!(in_order);
        }
    }
}
