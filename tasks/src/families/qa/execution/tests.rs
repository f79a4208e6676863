use std::sync::LazyLock;

use proptest::prelude::*;

use super::*;
use crate::call::{ChatReply, MathsReply, WikiRequest};
use crate::families::qa::page::WikiPage;

fn setting(form: AnswerForm, behaviour: Behaviour) -> Setting<'static> {
    static AGENT: LazyLock<AgentDefinition> = LazyLock::new(crate::families::qa::prompts::agent);
    Setting {
        agent: &AGENT,
        question: "Who wrote it?",
        form,
        behaviour,
        plan: "Subgoal 1: Find it; Subgoal 2: Compare them",
        last_of_all: None,
    }
}

fn variables(entries: &[(&str, Value)]) -> Variables {
    let mut variables = Variables::default();
    for (name, value) in entries {
        variables.insert((*name).to_owned(), value.clone());
    }
    variables
}

fn article(sentences: &[&str]) -> WikiPage {
    WikiPage::Article { table: None, sentences: sentences.iter().map(|&text| text.to_owned()).collect() }
}

/// Answers a call. Pages contain two sentences; chat models find an answer only in the context `known`.
fn answer(call: &ToolCall) -> ToolReply {
    match call {
        ToolCall::Maths { .. } => ToolReply::Maths(MathsReply::One("5".to_owned())),
        ToolCall::Wiki { request, .. } => ToolReply::Wiki(match request.text() {
            "many" => WikiPage::Listed(vec!["first".to_owned(), "many".to_owned(), "second".to_owned()]),
            text => article(&[&format!("{text} is known."), "It is old."]),
        }),
        ToolCall::Search { .. } => ToolReply::Search(vec![
            "https://example.org/".to_owned(),
            "https://en.wikipedia.org/wiki/Ada_Lovelace".to_owned(),
        ]),
        ToolCall::Rank { passages, .. } => {
            ToolReply::Rank((0..passages.len()).map(|index| index as f64).collect())
        }
        ToolCall::Chat { messages, .. } => {
            let known = messages[0].content.contains("known");
            ToolReply::Chat(ChatReply::recorded(if known { "Answer: Ada" } else { "No answer." }))
        }
        ToolCall::Candidates { .. } | ToolCall::Carry(_) => unreachable!("questions have no pages"),
        ToolCall::Sql { .. } | ToolCall::SqlSubmit => panic!("{call:?}"),
        ToolCall::Shop(_) | ToolCall::External { .. } => unreachable!("the published agent has no such tool"),
    }
}

/// Runs an action to completion; returns the calls it made, by tool.
fn run(action: &str, variables: &Variables, setting: &Setting<'_>) -> (QaResult, Vec<ToolCall>) {
    let (mut replies, mut calls) = (Vec::new(), Vec::new());
    loop {
        match execute(action, Some(variables), setting, &replies) {
            Ok(executed) => return (executed, calls),
            Err(call) => {
                replies.push(answer(&call));
                calls.push(call);
            }
        }
    }
}

fn value(executed: &QaResult) -> &Value {
    match executed {
        QaResult::Value(_, value) => value,
        other => panic!("{other:?}"),
    }
}

fn tools(calls: &[ToolCall]) -> Vec<&str> {
    calls.iter().map(ToolCall::tool).collect()
}

#[test]
fn passages_carry_the_query_as_their_title() {
    let paper = setting(AnswerForm::Entity, Behaviour::Paper);
    let (executed, _) = run("R1 = KnowledgeQuery(Kyoto)", &Variables::default(), &paper);
    let expected = ["Kyoto *** Kyoto is known.", "Kyoto *** It is old."];
    assert_eq!(value(&executed), &Value::List(expected.map(|text| Some(text.to_owned())).to_vec()));
}

#[test]
fn the_pages_of_a_list_are_read_and_lists_within_it_passed_over() {
    let paper = setting(AnswerForm::Entity, Behaviour::Paper);
    let (executed, calls) = run("R1 = KnowledgeQuery(many)", &Variables::default(), &paper);
    let Value::List(entries) = value(&executed) else { panic!("{executed:?}") };
    assert_eq!((calls.len(), entries.len()), (4, 4));
}

#[test]
fn the_best_passages_become_evidence() {
    let passages =
        Value::List(["Reference Table: *** a b", "T *** c"].map(|text| Some(text.to_owned())).to_vec());
    let known = variables(&[("R1", passages), ("R2", "Question: q; Answer: Ada.".into())]);
    let action = "R3 = ParagraphRetrieve(R1, Query: Where is R2?)";
    let (executed, calls) = run(action, &known, &setting(AnswerForm::Entity, Behaviour::Paper));
    assert_eq!(value(&executed), &Value::from("Reference Table: a b\nEvidence 1: c\nEvidence 2: a b\n"));
    let question = |calls: &[ToolCall]| match &calls[0] {
        ToolCall::Rank { question, .. } => question.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(question(&calls), "Where is R2?", "the original leaves variables in questions");
    let (_, calls) = run(action, &known, &setting(AnswerForm::Entity, Behaviour::Corrected));
    assert_eq!(question(&calls), "Where is Ada?");
}

#[test]
fn without_an_answer_it_is_asked_without_context_and_then_searched() {
    let known = variables(&[("R2", "Evidence 1: nothing.".into())]);
    let paper = setting(AnswerForm::Entity, Behaviour::Paper);
    let (executed, calls) = run("R3 = QA([R2], Question: Who is she?)", &known, &paper);
    assert_eq!(value(&executed), &Value::from("Question: Who is she?; Answer: Ada"));
    assert_eq!(tools(&calls), ["qa", "qa", "wiki", "wiki", "rank", "qa"]);
    let address = "https://en.wikipedia.org/wiki/Ada_Lovelace".to_owned();
    let request = WikiRequest::Address(address);
    assert_eq!(calls[3], ToolCall::Wiki { request, reading: Behaviour::Paper });
}

#[test]
fn the_last_action_of_a_one_time_episode_is_asked_the_whole_question() {
    let known = variables(&[("R2", "Evidence 1: known.".into())]);
    let last = Setting { last_of_all: Some(2), ..setting(AnswerForm::Entity, Behaviour::Paper) };
    let (executed, _) = run("R3 = QA([R2], Question: Who is she?)", &known, &last);
    assert_eq!(value(&executed), &Value::from("Question: Who wrote it?; Answer: Ada"));
    let last = Setting { last_of_all: Some(2), ..setting(AnswerForm::YesNo, Behaviour::Paper) };
    let (executed, _) = run("R3 = QA([R2], Question: Is she?)", &known, &last);
    assert_eq!(value(&executed), &Value::from("Question: Is she? Must answer yes/no.; Answer: Ada"));
}

#[test]
fn the_calculator_asks_the_chat_model_and_calculates_in_corrected_behaviour() {
    let known = variables(&[("R1", "Question: q; Answer: 2".into()), ("R2", "3".into())]);
    let paper = setting(AnswerForm::Entity, Behaviour::Paper);
    let (executed, calls) = run("R3 = Calculator(R1 + R2)", &known, &paper);
    assert!(matches!(executed, QaResult::Nothing(_)), "HotpotQA's calculator has no value without an answer");
    assert_eq!(tools(&calls), ["qa", "qa"]);
    let corrected = setting(AnswerForm::Entity, Behaviour::Corrected);
    let (executed, calls) = run("R3 = Calculator(R1 + R2)", &known, &corrected);
    assert_eq!(calls, [ToolCall::Maths { query: "2 + 3".to_owned() }]);
    assert_eq!(value(&executed), &Value::from("Question: 2 + 3; Answer: 5"));
    // A date among the values is not a formula.
    let known = variables(&[("R1", "Question: q; Answer: 1912-04-15".into())]);
    assert_eq!(tools(&run("R3 = Calculator(R1)", &known, &corrected).1)[0], "qa");
}

#[test]
fn values_in_formulas_are_in_parentheses() {
    for (formula, value, expected) in [
        ("6 / R1", "1/3", "(1/3)"),
        ("R1 ^ 2", "-2", "(-2)"),
        ("2 * R1", "15 - sqrt(2)", "(15 - sqrt(2))"),
        ("R1 + 1", "2.5", "2.5"),
        ("sqrt(R1)", "1/3", "1/3"),
    ] {
        assert_eq!(operand(formula, value.to_owned()), expected, "{formula}");
    }
}

#[test]
fn what_is_not_carried_out() {
    let known = variables(&[("R1", "text".into())]);
    for behaviour in Behaviour::ALL {
        let setting = setting(AnswerForm::Entity, behaviour);
        for action in ["R2 = Code(x)", "R2 = Fly(x)", "hello"] {
            assert!(matches!(run(action, &known, &setting).0, QaResult::Nothing(_)), "{action}");
        }
        for action in [
            "R2 = ParagraphRetrieve(R1, Query: q)",
            "R2 = ParagraphRetrieve(R1)",
            "R2 = QA([R9], Question: q)",
            "R2 = QA([R1], q)",
            "R2 = KnowledgeQuery(R9)",
        ] {
            assert!(matches!(run(action, &known, &setting).0, QaResult::Raised(_)), "{action}");
        }
    }
    let assign = |behaviour| run("R2 = (R1 again)", &known, &setting(AnswerForm::Entity, behaviour)).0;
    assert!(matches!(assign(Behaviour::Paper), QaResult::Raised(_)));
    assert_eq!(value(&assign(Behaviour::Corrected)), &Value::from("text again"));
}

#[test]
fn queries_that_grow_and_grow_are_refused() {
    for behaviour in Behaviour::ALL {
        let setting = setting(AnswerForm::Entity, behaviour);
        let mut known = variables(&[("R1", "seed ".into())]);
        let mut refused = false;
        for number in 2..40 {
            let previous = number - 1;
            let action = format!("R{number} = KnowledgeQuery(R{previous} R{previous})");
            match run(&action, &known, &setting).0 {
                QaResult::Value(name, value) => known.insert(name, value),
                QaResult::Raised(_) => {
                    refused = true;
                    break;
                }
                other => panic!("{other:?}"),
            }
        }
        assert!(refused, "{behaviour}");
    }
}

proptest! {
    #[test]
    fn arbitrary_actions_end_after_a_bounded_number_of_calls(
        name in "(KnowledgeQuery|ParagraphRetrieve|QA|Calculator|Code|)",
        inner in "(R[1-4]|\\[R[1-4], R2\\]|, Question: |, Query: |many|known|[a-z =*(),]{0,6}){0,5}",
        form in prop_oneof![Just(AnswerForm::Entity), Just(AnswerForm::YesNo)],
        behaviour in prop_oneof![Just(Behaviour::Paper), Just(Behaviour::Corrected)],
        last_of_all in proptest::option::of(0usize..3),
    ) {
        let passages = Value::List(vec![Some("T *** text".to_owned()), Some("no title".to_owned())]);
        let known = variables(&[("R1", passages), ("R2", "Evidence 1: x".into()), ("R3", "".into())]);
        let setting = Setting { last_of_all, ..setting(form, behaviour) };
        let (_, calls) = run(&format!("R5 = {name}({inner})"), &known, &setting);
        prop_assert!(calls.len() <= 24, "{calls:?}");
    }
}
