//! The stage that caused an episode to have no prediction, found in its steps.
//!
//! A family gives up where an episode cannot go on, which is often later than the error that caused it: a statement
//! with a missing column leaves nothing to submit when the rounds are used up, and an item that cannot be clicked is
//! never bought. [`attributed`] moves the reason of such an ending to the first error that was not corrected. It reads
//! only the recorded steps, and no score depends on it.

use crate::families::{shop, sql};
use crate::outcome::{Ending, Evidence, Reason, Stage, Step};
use crate::request::{Finish, Role};

/// Maximum length of a repeated text in a reply, and the length of the end of a reply that is examined for it.
const LONGEST_PERIOD: usize = 32;
const EXAMINED: usize = 3 * LONGEST_PERIOD;
/// Minimum length of a reply that can be said to repeat itself.
const LEAST: usize = 24;

/// Returns an ending with the reason found in the steps. Endings with a prediction and endings caused by a tool
/// are not changed.
pub(crate) fn attributed(ending: Ending, evidence: &Evidence, steps: &[Step]) -> Ending {
    let Ending::GaveUp(mut reason) = ending else { return ending };
    if reason.stage == Stage::Tool {
        return Ending::GaveUp(reason);
    }
    let first = match evidence {
        Evidence::Sql(_) => sql::first_error(steps),
        Evidence::Shop(_) => shop::first_error(steps),
        Evidence::Maths(_)
        | Evidence::Qa(_)
        | Evidence::Web(_)
        | Evidence::Judge { .. }
        | Evidence::Added { .. } => None,
    };
    if let Some(error) = first {
        let planned = error.name.as_deref().is_some_and(|name| planner_names(name, error.turn, steps));
        let stage = if planned { Stage::Planner } else { Stage::GrounderBadArgument };
        reason = Reason { stage, turn: error.turn, detail: error.detail };
    }
    let is_grounder = matches!(
        reason.stage,
        Stage::GrounderUnparsable | Stage::GrounderUnknownAction | Stage::GrounderBadArgument
    );
    if is_grounder && is_cut_off(Role::Grounder, reason.turn, steps) {
        reason.stage = Stage::Limit;
        reason.detail.push_str("; the grounder's reply ended at the limit on tokens");
    }
    Ending::GaveUp(reason)
}

/// Whether the planner's subgoal of a turn contains a name, as a whole word and in any case.
fn planner_names(name: &str, turn: u32, steps: &[Step]) -> bool {
    let (plan, name) = (reply_of(Role::Planner, turn, steps).0.to_lowercase(), name.to_lowercase());
    let inside = |character: Option<char>| character.is_some_and(|c| c.is_alphanumeric() || c == '_');
    !name.is_empty()
        && plan.match_indices(&name).any(|(at, _)| {
            let (before, behind) = (&plan[..at], &plan[at + name.len()..]);
            !inside(before.chars().next_back()) && !inside(behind.chars().next())
        })
}

/// Whether the limit on tokens cut off a reply that began with an action. A reply that only repeats itself would not
/// have ended with a higher limit either.
fn is_cut_off(role: Role, turn: u32, steps: &[Step]) -> bool {
    let (reply, finish) = reply_of(role, turn, steps);
    finish == Some(Finish::Length) && reply.contains('(') && !repeats_itself(reply)
}

/// The last reply of a module in a turn, and why it ended.
fn reply_of(role: Role, turn: u32, steps: &[Step]) -> (&str, Option<Finish>) {
    let found = steps.iter().rev().find_map(|step| match step {
        Step::Generate { turn: at, role: of, reply, finish, .. } if (*at, *of) == (turn, role) => {
            Some((reply.as_str(), Some(*finish)))
        }
        _ => None,
    });
    found.unwrap_or_default()
}

/// Whether the end of a reply consists of one text again and again.
fn repeats_itself(reply: &str) -> bool {
    let mut end: Vec<char> = reply.chars().rev().take(EXAMINED).collect();
    end.reverse();
    end.len() >= LEAST
        && (1..=LONGEST_PERIOD.min(end.len() / 3)).any(|period| {
            let (earlier, later) = (&end[..end.len() - period], &end[period..]);
            earlier == later
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::PlanEvidence;

    fn generated(role: Role, reply: &str, finish: Finish) -> Step {
        Step::Generate {
            turn: 1,
            role,
            prompt: String::new(),
            reply: reply.to_owned(),
            finish,
            prompt_tokens: None,
            completion_tokens: None,
        }
    }

    fn stage_of(reply: &str, finish: Finish, stage: Stage) -> Stage {
        let reason = Reason { stage, turn: 1, detail: String::new() };
        let evidence = Evidence::Qa(PlanEvidence::default());
        match attributed(Ending::GaveUp(reason), &evidence, &[generated(Role::Grounder, reply, finish)]) {
            Ending::GaveUp(reason) => reason.stage,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn replies_cut_off_by_the_limit_on_tokens_are_not_the_grounders_error() {
        let whole = "R1 = KnowledgeQuery(Ada Lovelace); R2 = ParagraphRetrieve(R1, Query: When was Ada";
        assert_eq!(stage_of(whole, Finish::Length, Stage::GrounderUnparsable), Stage::Limit);
        assert_eq!(stage_of(whole, Finish::Stop, Stage::GrounderUnparsable), Stage::GrounderUnparsable);
        let repeated = format!("R1 = KnowledgeQuery({})", "the film ".repeat(20));
        let repeated = repeated.trim_end_matches(')');
        assert_eq!(
            stage_of(repeated, Finish::Length, Stage::GrounderBadArgument),
            Stage::GrounderBadArgument
        );
        assert_eq!(stage_of(whole, Finish::Length, Stage::Tool), Stage::Tool);
        assert_eq!(stage_of("", Finish::Length, Stage::GrounderUnparsable), Stage::GrounderUnparsable);
    }

    #[test]
    fn names_are_whole_words_of_the_subgoal() {
        let steps = [generated(Role::Planner, "Subgoal 3: Get City and dog_name from dogs.", Finish::Stop)];
        assert!(planner_names("city", 1, &steps));
        assert!(planner_names("dog_name", 1, &steps));
        for name in ["name", "dog", "", "company"] {
            assert!(!planner_names(name, 1, &steps), "{name}");
        }
        assert!(!planner_names("city", 2, &steps));
    }

    #[test]
    fn repetitions_are_found_at_the_end() {
        assert!(repeats_itself(&"8".repeat(96)));
        assert!(repeats_itself(&format!("Search({}", "of the sea ".repeat(10))));
        assert!(!repeats_itself("888"));
        assert!(!repeats_itself("R1 = Calculator(1 + 1); R2 = Calculator(R1 * 4); R3 = Calculator(R2 - 17)"));
    }
}
