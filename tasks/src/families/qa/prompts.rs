//! The exact texts of complex question answering (upstream `eval/hotpotqa/run_eval.py`, `qa_tool.py` and the same
//! in `eval/strategyqa`): the prompts that the published checkpoints were trained on, and those of the QA tool's
//! chat model.

use crate::families::agent::{ActionDefinition, AgentDefinition, FinalAnswer, ShownResults};
use crate::families::prompts::{ASSISTANT, KEEP_PLANNING, PLAN, STOP_PLANNING, USER, kept};
use crate::identity::ContentHash;
use crate::python::strip;
use crate::request::Message;

/// The grounder's instruction. It describes `Calculator` twice, as the original does.
pub(crate) const GROUND: &str = "Please ground the given subgoal to corresponding executable actions for solving the \
given task. The grounded actions must be the one in available action list.\n\n\
The available action list is 'KnowledgeQuery', 'ParagraphRetrieve', 'QA', 'Calculator', and 'Code'.\n\
Calculator(formula): Calculate the input formula; KnowledgeQuery(query): Capture the relevant webpages according to \
the query; ParagraphRetrieve(context, query): Given a query, retrieve the most relevant paragraphs from the given \
context; QA(context, query): Given context, answer the given query; Calculator(formula): Calculate the input formula; \
Code(pseudo_code): Generate a Python function that corresponds to the pseudo code.\n\n";

/// The agent of HotpotQA and StrategyQA.
pub(crate) fn agent() -> AgentDefinition {
    let action = |name: &str, tool: Option<&str>, call: Option<&str>| ActionDefinition {
        name: name.to_owned(),
        tool: tool.map(str::to_owned),
        call: call.map(str::to_owned),
        ..ActionDefinition::default()
    };
    AgentDefinition {
        ground: Some(GROUND.to_owned()),
        results: ShownResults::Answers,
        answer: FinalAnswer::Ask,
        paper_quirks: true,
        actions: vec![
            action("KnowledgeQuery", Some("wiki"), None),
            action("ParagraphRetrieve", Some("rank"), None),
            action("QA", Some("qa"), None),
            action("Calculator", Some("qa"), Some("calculate")),
            action("Code", None, None),
        ],
        ..AgentDefinition::default()
    }
}

const RESULTS: &str = " The grounding could be based on the following results:";

/// Prefix of the QA tool's replies that contain an answer.
pub(crate) const ANSWER: &str = "Answer: ";
/// What the value of the question-answering tool begins with.
pub(super) const QUESTION: &str = "Question: ";
/// Appended to a question that must be answered by yes or no.
pub(crate) const YES_OR_NO: &str = " Must answer yes/no.";
/// The value of an action that found nothing.
pub(crate) const NO_ANSWER: &str = "No answer.";

/// Maximum number of tokens in a reply of the QA tool.
pub(crate) const MAX_ANSWER_TOKENS: u32 = 100;

/// Hash of everything in this file that reaches a model.
pub fn hash() -> ContentHash {
    let chat =
        [ask_with_context("", ""), ask_without_context(""), ask_without_context(&format!("?{YES_OR_NO}"))];
    ContentHash::of_json(&(
        (PLAN, GROUND, USER, ASSISTANT, STOP_PLANNING, KEEP_PLANNING, RESULTS),
        (chat, YES_OR_NO, NO_ANSWER, MAX_ANSWER_TOKENS, "prompts/qa/1"),
    ))
}

/// The end of a grounder's later prompt: the subgoal and the answers of earlier ones, sorted by their names.
pub(crate) fn subgoal_with_results<'a>(
    plan: &str,
    answers: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let mut text = format!("{}{RESULTS}", kept(plan));
    for (name, answer) in answers {
        text.push_str(&format!(" The execution result for {name} is {answer}"));
    }
    text.push_str(ASSISTANT);
    text
}

/// Asks for an answer from a context.
pub(crate) fn ask_with_context(question: &str, context: &str) -> Vec<Message> {
    user(format!(
        "Please answer the following question according to the context. Please answer with one brief entity, \
         beginning with 'Answer: '. If the answer can't be found in the context, answer 'No answer'. No more details \
         and explanations.\n\nQuestion: {question}\nContext: {context}\n"
    ))
}

/// Asks again without a context. A yes-or-no question does not offer `No answer` as an option.
pub(crate) fn ask_without_context(question: &str) -> Vec<Message> {
    let way_out = if question.contains(strip(YES_OR_NO).trim_end_matches('.')) {
        ""
    } else {
        " If the answer can't be answered, output 'No answer'. No more details and explanations."
    };
    user(format!(
        "Please answer the following question. Please answer with one brief entity, beginning with \
         'Answer: '.{way_out}\n\nQuestion: {question}\n"
    ))
}

fn user(content: String) -> Vec<Message> {
    vec![Message { role: "user".to_owned(), content }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::prompts::{answer, ground, ground_again, plan, plan_again, subgoal};

    #[test]
    fn prompts_of_the_modules() {
        let mut grounder = ground(GROUND, " Who? ", false) + &subgoal("Subgoal 1: Find it.\n");
        grounder.push_str(&ground_again("R1 = QA([], Question: Who?) "));
        grounder.push_str(&subgoal_with_results(
            "No, I will keep planning. Subgoal 2: Again.",
            [("Subgoal 1", "Ada"), ("Subgoal 2", "Bo")],
        ));
        let planner = plan(" Who? ") + &plan_again("Subgoal 1: Find it.\n", 1, "Ada");
        let texts = [planner, grounder, ground(GROUND, "Who?", true) + &subgoal("all"), answer("Who?\n")];
        insta::assert_snapshot!(texts.join("\n=====\n"));
    }

    #[test]
    fn prompts_of_the_question_answering_tool() {
        let texts = [
            ask_with_context("Who?", "Evidence 1: Ada."),
            ask_without_context("Who?"),
            ask_without_context("Was it Ada? Must answer yes/no."),
        ];
        insta::assert_snapshot!(texts.map(|messages| messages[0].content.clone()).join("=====\n"));
    }
}
