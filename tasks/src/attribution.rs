//! The stage that caused an episode to have no prediction, found in its steps.
//!
//! A family gives up where an episode cannot go on, which is often later than the error that caused it: a statement
//! with a missing column leaves nothing to submit when the rounds are used up, and an item that cannot be clicked is
//! never bought. [`attributed`] moves the reason of such an ending to the first error that was not corrected. It reads
//! only the recorded steps, and no score depends on it.

use std::collections::HashSet;

use crate::families::{shop, sql};
use crate::outcome::{Ending, Evidence, Reason, Stage, Step};
use crate::request::{Finish, Role};

/// Minimum length of a reply that can be said to repeat itself, in characters.
const LEAST: usize = 24;
/// Maximum lengths of the end of a reply that is examined for repetitions: with variations, or starting late in a long reply.
const EXAMINED: [usize; 2] = [256, 64];
/// Length of the pieces of the end that are searched before it.
const PIECE: usize = 8;

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
    if is_grounder {
        if let Some(turn) = endless_plan(reason.turn, steps) {
            let detail =
                format!("{}; the planner's reply in turn {turn} repeats itself without end", reason.detail);
            reason = Reason { stage: Stage::Planner, turn, detail };
        } else if is_cut_off(Role::Grounder, reason.turn, steps) {
            reason.stage = Stage::Limit;
            reason.detail.push_str("; the grounder's reply ended at the limit on tokens");
        }
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

/// The first turn in which the planner repeated itself up to the limit on tokens, so that the grounder failed: in the turn
/// `last`, or in all turns from this one to `last`, whose replies did not end either.
fn endless_plan(last: u32, steps: &[Step]) -> Option<u32> {
    let is_endless = |role, turn| reply_of(role, turn, steps).1 == Some(Finish::Length);
    (1..=last).find(|turn| {
        is_endless(Role::Planner, *turn)
            && repeats_itself(reply_of(Role::Planner, *turn, steps).0)
            && (*turn..last).all(|turn| is_endless(Role::Grounder, turn))
    })
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

/// Whether nearly all of the end of a reply, at most its second half, occurs before, piece by piece.
fn repeats_itself(reply: &str) -> bool {
    let reply: Vec<char> = reply.chars().collect();
    if reply.len() < LEAST {
        return false;
    }
    EXAMINED.iter().any(|examined| {
        let end = reply.len() - (reply.len() / 2).min(*examined);
        let mut known: HashSet<&[char]> = reply[..end].windows(PIECE).collect();
        let pieces = reply[end..].windows(PIECE);
        let (count, repeated) = (pieces.len(), pieces.filter(|piece| !known.insert(piece)).count());
        10 * repeated >= 9 * count
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
    fn a_plan_without_end_is_the_planners_error() {
        let at = |turn: u32, role: Role, reply: &str, finish: Finish| {
            let mut step = generated(role, reply, finish);
            if let Step::Generate { turn: place, .. } = &mut step {
                *place = turn;
            }
            step
        };
        let endless = format!("Subgoal 1: Select Dist{}", "ance".repeat(60));
        let wrong = format!("R1 = SELECT(R0, QUERY: {}", "ance".repeat(60));
        let stage = |steps: &[Step], turn| {
            let reason = Reason { stage: Stage::GrounderBadArgument, turn, detail: String::new() };
            let evidence = Evidence::Qa(PlanEvidence::default());
            let Ending::GaveUp(reason) = attributed(Ending::GaveUp(reason), &evidence, steps) else {
                panic!()
            };
            (reason.stage, reason.turn)
        };
        use Finish::{Length, Stop};
        use Role::{Grounder, Planner};
        let both = [at(1, Planner, &endless, Length), at(1, Grounder, &wrong, Length)];
        assert_eq!(stage(&both, 1), (Stage::Planner, 1));
        // Its consequences in the next turn, unless the grounder could make sense of it.
        let next = |finish| {
            let first = at(1, Grounder, &wrong, finish);
            [
                at(1, Planner, &endless, Length),
                first,
                at(2, Planner, "Subgoal 2", Stop),
                at(2, Grounder, "R", Stop),
            ]
        };
        assert_eq!(stage(&next(Length), 2), (Stage::Planner, 1));
        assert_eq!(stage(&next(Stop), 2), (Stage::GrounderBadArgument, 2));
        // A later failure after a turn that went well.
        let later = [&next(Length)[..], &[at(3, Planner, "Subgoal 3", Stop), at(3, Grounder, "R", Stop)]];
        assert_eq!(stage(&later.concat(), 3), (Stage::GrounderBadArgument, 3));
        // A long plan that only is too long.
        let long = [at(1, Planner, "Subgoal 1: Find the year in which it opened", Length), both[1].clone()];
        assert_eq!(stage(&long, 1), (Stage::GrounderBadArgument, 1));
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
        let actions: String = (0..60).map(|at| format!("R{at} = Click(b0{}); ", at * 7919 % 10007)).collect();
        assert!(!repeats_itself(&actions));
        for repeated in ["8".repeat(96), "of the sea ".repeat(9)] {
            assert!(repeats_itself(&format!("{}Search({repeated}", &actions[..250])));
        }
        let words = ["gift ", "gift set, ", "chocolate for gift ", "gift gift set "];
        let irregular: String = (0..80).map(|at| words[at * at % 7 % 4]).collect();
        assert!(repeats_itself(&format!("R2 = Click({irregular}")));
        let prompt =
            "Subgoal 1: Type Oslo in the input From (on Some Site); Initial Environment Description: None. ";
        assert!(repeats_itself(&prompt.repeat(6)));
        assert!(!repeats_itself(prompt));
        assert!(!repeats_itself("888"));
        assert!(!repeats_itself("R1 = Calculator(1 + 1); R2 = Calculator(R1 * 4); R3 = Calculator(R2 - 17)"));
    }
}
