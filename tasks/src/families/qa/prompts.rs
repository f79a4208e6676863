//! The exact texts of complex question answering (upstream `eval/hotpotqa/run_eval.py`, `qa_tool.py` and the same
//! in `eval/strategyqa`): the prompts that the published checkpoints were trained on, and those of the QA tool's
//! chat model.

use crate::identity::ContentHash;
use crate::python::strip;
use crate::request::Message;

const PLAN: &str = "Please provide a reasonable subgoal-based plan to solve the given task.\n";

const GROUND: &str = "Please ground the given subgoal to corresponding executable actions for solving the \
given task. The grounded actions must be the one in available action list.\n\n\
The available action list is 'KnowledgeQuery', 'ParagraphRetrieve', 'QA', 'Calculator', and 'Code'.\n\
Calculator(formula): Calculate the input formula; KnowledgeQuery(query): Capture the relevant webpages according to \
the query; ParagraphRetrieve(context, query): Given a query, retrieve the most relevant paragraphs from the given \
context; QA(context, query): Given context, answer the given query; Calculator(formula): Calculate the input formula; \
Code(pseudo_code): Generate a Python function that corresponds to the pseudo code.\n\n";

const USER: &str = "<|user|>\n";
const ASSISTANT: &str = "\n<|assistant|>\n";

/// The text in the planner's reply that ends planning.
pub(crate) const STOP_PLANNING: &str = "Yes, I will stop planning";
/// The text in the planner's reply that continues planning; removed before grounding.
const KEEP_PLANNING: &str = "No, I will keep planning.";
const RESULTS: &str = " The grounding could be based on the following results:";

/// Prefix of the QA tool's replies that contain an answer.
pub(crate) const ANSWER: &str = "Answer: ";
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

/// The planner's first prompt.
pub(crate) fn plan(question: &str) -> String {
    let question = strip(question);
    format!("{USER}{PLAN}Task: {question}; Initial Environment Description: None.{ASSISTANT}")
}

/// Text appended to the planner's prompt after turn `turn`: its reply and the result of its subgoal.
pub(crate) fn plan_again(reply: &str, turn: u32, result: &str) -> String {
    let reply = strip(reply);
    format!(
        "{reply}\n\n{USER}The executed result for Subgoal {turn} is {result}. Should we stop planning?{ASSISTANT}"
    )
}

/// The grounder's first prompt of an iterative episode, without its subgoal.
pub(crate) fn ground(question: &str) -> String {
    let question = strip(question);
    format!("{USER}{GROUND}Task: {question} \nSubgoal to be grounded: ")
}

/// The grounder's prompt of a one-time episode, without the subgoals.
pub(crate) fn ground_all(question: &str) -> String {
    let question = strip(question);
    format!("{USER}{GROUND}Task: {question} \nSubgoals to be grounded: ")
}

/// The end of a grounder's first prompt: the planner's reply.
pub(crate) fn subgoal(plan: &str) -> String {
    let plan = strip(plan);
    format!("{plan}{ASSISTANT}")
}

/// Text appended to the grounder's prompt after a turn: its reply, up to the next subgoal.
pub(crate) fn ground_again(reply: &str) -> String {
    let reply = strip(reply);
    format!("{reply}\n\n{USER}Subgoal to be grounded: ")
}

/// The end of a grounder's later prompt: the subgoal and the answers of earlier ones, sorted by their names.
pub(crate) fn subgoal_with_results<'a>(
    plan: &str,
    answers: impl IntoIterator<Item = (&'a str, &'a str)>,
) -> String {
    let subgoal = strip(plan.rsplit(KEEP_PLANNING).next().unwrap_or_default());
    let mut text = format!("{subgoal}{RESULTS}");
    for (name, answer) in answers {
        text.push_str(&format!(" The execution result for {name} is {answer}"));
    }
    text.push_str(ASSISTANT);
    text
}

/// A subgoal's name as used in later grounding prompts: `Subgoal 2`.
pub(crate) fn subgoal_name(plan: &str) -> &str {
    let head = strip(plan).split(':').next().unwrap_or_default();
    strip(head.rsplit(KEEP_PLANNING).next().unwrap_or_default())
}

/// The prompt of the single-model formulations.
pub(crate) fn answer(question: &str) -> String {
    let question = strip(question);
    format!("{USER}{question}{ASSISTANT}")
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

    #[test]
    fn prompts_of_the_modules() {
        let mut grounder = ground(" Who? ") + &subgoal("Subgoal 1: Find it.\n");
        grounder.push_str(&ground_again("R1 = QA([], Question: Who?) "));
        grounder.push_str(&subgoal_with_results(
            "No, I will keep planning. Subgoal 2: Again.",
            [("Subgoal 1", "Ada"), ("Subgoal 2", "Bo")],
        ));
        let planner = plan(" Who? ") + &plan_again("Subgoal 1: Find it.\n", 1, "Ada");
        let texts = [planner, grounder, ground_all("Who?") + &subgoal("all"), answer("Who?\n")];
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

    #[test]
    fn subgoals_are_named_by_what_stands_before_the_colon() {
        assert_eq!(subgoal_name("No, I will keep planning. Subgoal 2: Find it: now"), "Subgoal 2");
        assert_eq!(subgoal_name("anything "), "anything");
    }
}
