//! Splits the prompts of agents with modules into the messages that the modules are trained on.
//!
//! Prompts grow by appending turns ([`prompts`](super::prompts)), so the last prompt of an episode and its reply
//! contain the whole conversation of a module.

use super::prompts::{ASSISTANT, GROUNDED, PLAN, STOP_PLANNING, USER};
use crate::python::strip;
use crate::request::Message;

/// White space between a reply and the next turn.
const BETWEEN: &str = "\n\n";
/// The markers of turns, without white space.
const MARKERS: [&str; 2] = ["<|user|>", "<|assistant|>"];

/// Returns the conversation of a module: the messages of its last prompt, followed by its reply without
/// surrounding white space. Roles alternate between `user` and `assistant`, `user` first. Worked examples before
/// the task are omitted.
///
/// Returns `None` if the prompt does not consist of such turns, if a text contains a marker of turns, or if a
/// message is empty.
///
/// ```
/// use lumos_tasks::families::conversation;
///
/// let prompt = "<|user|>\nPlan.\n<|assistant|>\nSubgoal 1: Add.\n\n<|user|>\nStop?\n<|assistant|>\n";
/// let messages = conversation(prompt, " Yes.\n").unwrap();
/// let texts: Vec<_> = messages.iter().map(|message| message.content.as_str()).collect();
/// assert_eq!(texts, ["Plan.", "Subgoal 1: Add.", "Stop?", "Yes."]);
/// ```
pub fn conversation(prompt: &str, reply: &str) -> Option<Vec<Message>> {
    if MARKERS.iter().any(|marker| reply.contains(marker)) {
        return None;
    }
    // A prompt may end with the beginning of the reply (WebShop's first variable).
    let whole = format!("{prompt}{}", strip(reply));
    let next_turn = format!("{BETWEEN}{USER}");
    let mut messages = Vec::new();
    for turn in whole.strip_prefix(USER)?.split(next_turn.as_str()) {
        let (asked, answer) = turn.split_once(ASSISTANT)?;
        messages.extend(
            [("user", asked), ("assistant", answer)]
                .map(|(role, content)| Message { role: role.to_owned(), content: content.to_owned() }),
        );
    }
    let first = messages.iter().rposition(|message| {
        message.role == "user" && [PLAN, GROUNDED].iter().any(|start| message.content.starts_with(start))
    });
    messages.drain(..first.unwrap_or(0));
    let is_clean = |message: &Message| {
        !message.content.trim().is_empty() && MARKERS.iter().all(|marker| !message.content.contains(marker))
    };
    messages.iter().all(is_clean).then_some(messages)
}

/// Whether a planner's reply ends planning, with nothing after the decision.
pub fn ends_planning(reply: &str) -> bool {
    strip(reply).trim_end_matches('.').ends_with(STOP_PLANNING)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::prompts::{ground, ground_again, next_subgoal, plan, plan_again, subgoal};
    use super::*;

    fn texts(prompt: &str, reply: &str) -> Option<Vec<String>> {
        Some(conversation(prompt, reply)?.into_iter().map(|message| message.content).collect())
    }

    #[test]
    fn prompts_of_both_modules_are_split() {
        let planner = plan("Add 1 and 2.") + &plan_again(" Subgoal 1: Add.\n", 1, "3");
        let split = texts(&planner, "Yes, I will stop planning.").unwrap();
        assert_eq!(split.len(), 4);
        assert!(split[0].starts_with(PLAN) && split[0].contains("Add 1 and 2."));
        assert_eq!(split[1], "Subgoal 1: Add.");
        assert_eq!(split[3], "Yes, I will stop planning.");
        let grounder = ground("Please ground the given subgoal: A(x).\n", "Add.", false)
            + &subgoal("Subgoal 1: Add.")
            + &ground_again("R1 = A(1)")
            + &next_subgoal("No, I will keep planning. Subgoal 2: Add.");
        let split = texts(&grounder, "R2 = A(2)").unwrap();
        assert_eq!(split[1..], ["R1 = A(1)", "Subgoal to be grounded: Subgoal 2: Add.", "R2 = A(2)"]);
    }

    #[test]
    fn the_beginning_of_a_reply_in_the_prompt_belongs_to_it() {
        let split = texts(&(plan("A") + "R1 ="), " Search(lamp)\n").unwrap();
        assert_eq!(split[1], "R1 =Search(lamp)");
    }

    #[test]
    fn worked_examples_before_the_task_are_omitted() {
        let example = plan("Example.") + "Subgoal 1: Look.\n\n";
        let prompt = example + &plan("Real.");
        let split = texts(&prompt, "Subgoal 1: Go.").unwrap();
        assert!(split.len() == 2 && split[0].contains("Task: Real."), "{split:?}");
    }

    #[test]
    fn texts_with_markers_and_other_prompts_are_rejected() {
        for (prompt, reply) in [
            (plan("A <|user|> B"), "x"),
            (plan("A"), "<|assistant|>"),
            (plan("A"), " \n"),
            ("no markers".to_owned(), "x"),
            (format!("{}{USER}", plan("A")), "x"),
        ] {
            assert_eq!(conversation(&prompt, reply), None, "{prompt}");
        }
        assert!(ends_planning("Yes, I will stop planning.\n") && ends_planning("Yes, I will stop planning"));
        assert!(!ends_planning("Yes, I will stop planning. Subgoal 3: Go.") && !ends_planning(""));
    }

    proptest! {
        #[test]
        fn joined_turns_are_split_again(
            turns in proptest::collection::vec(("[a-z.|<>]{1,8}( [a-z\n]{1,6}[a-z])?", "[a-z|<>]{1,12}"), 1..6),
        ) {
            let joined: Vec<String> =
                turns.iter().map(|(asked, answer)| format!("{USER}{asked}{ASSISTANT}{answer}")).collect();
            let joined = joined.join(BETWEEN);
            let reply = &turns.last().unwrap().1;
            let prompt = &joined[..joined.len() - reply.len()];
            let expected: Vec<String> =
                turns.iter().flat_map(|(asked, answer)| [asked.clone(), answer.clone()]).collect();
            prop_assert_eq!(texts(prompt, reply), Some(expected));
        }
    }
}
