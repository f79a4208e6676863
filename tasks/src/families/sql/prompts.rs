//! The texts of the SQL family. The planned form follows the layout of Lumos's modules; its wording, actions and
//! worked examples are specific to lumos, and so is the wording of the try-again loop (its layout and its answer
//! to a reply without a statement are the benchmark's).

use crate::dialogue::Dialogue;
use crate::families::prompts::{ASSISTANT, PLAN, STOP_PLANNING, USER, plan_again};
use crate::identity::ContentHash;
use crate::python::{repr_float, strip};

const GROUND: &str = "Please ground the given subgoal to corresponding executable actions for solving the given task. \
The grounded actions must be the one in available action list.\n\n\
The available action list is 'ListTables', 'DescribeTable', 'ExecuteSQL', and 'Submit'.\n\
ListTables(): List the tables of the database; DescribeTable(table): Show the columns of the table, their types and keys; \
ExecuteSQL(query): Run the MySQL query and show its rows; Submit(variable): Give the rows of an earlier query as the \
final answer.\n\n";

/// A worked example of planning, on the library database of the shipped samples.
const PLAN_EXAMPLE: &str = include_str!("plan_example.txt");
/// The same example, grounded.
const GROUND_EXAMPLE: &str = include_str!("ground_example.txt");

/// The first message of the try-again loop.
pub(super) const INSTRUCTION: &str = "You answer questions about a MySQL database by writing SQL.\n\
Each of your replies must be exactly one SQL statement in a block of code, and nothing else:\n\
```SQL\nyour statement\n```\n\
The tables are not known at first: SHOW TABLES lists them, and DESCRIBE followed by a table's name shows its columns.\n\
After each statement you are told two things:\n\
Output: what the database returned\n\
Reward: how near that is to the right answer; 1 means that it is right\n\
Go on until the reward is 1.";

/// The answer to a reply without a statement (the original's text, as in its logs).
pub(super) const NO_CODE: &str = "No SQL code was found in your last response.\n\nYour response should be a SQL command. \
Format your SQL command as follows:\n\n```SQL\nYour SQL code here\n```\n";

/// Number of latest messages that a conversation keeps in addition to its first two (upstream
/// `dialogue_limit`).
pub const DIALOGUE_LIMIT: usize = 5;
/// Maximum number of tokens in a reply.
pub(super) const MAX_REPLY_TOKENS: u32 = 512;

/// Hash of everything in this file that reaches a model.
pub fn hash() -> ContentHash {
    ContentHash::of_json(&(
        (
            plan("?", "d").into_text(),
            plan_again("a", 1, "b"),
            ground("?", "d").into_text(),
            ground_again("a", "b"),
            STOP_PLANNING,
        ),
        (INSTRUCTION, ask("?"), again("?", "a", Some(0.5)), NO_CODE, DIALOGUE_LIMIT, MAX_REPLY_TOKENS),
        "prompts/sql/1",
    ))
}

fn task(question: &str, database: &str) -> String {
    let question = strip(question);
    format!("Task: {question}; Initial Environment Description: A MySQL database named {database}.")
}

/// The planner's first prompt.
pub(super) fn plan(question: &str, database: &str) -> Dialogue {
    let rest = format!("{USER}{PLAN}{}{ASSISTANT}", task(question, database));
    Dialogue::with_examples(&format!("{PLAN_EXAMPLE}\n"), &rest)
}

/// The grounder's first prompt, without its subgoal.
pub(super) fn ground(question: &str, database: &str) -> Dialogue {
    let rest = format!("{USER}{GROUND}{}\nSubgoal to be grounded: ", task(question, database));
    Dialogue::with_examples(&format!("{GROUND_EXAMPLE}\n"), &rest)
}

/// Text appended to the grounder's prompt after a turn: its reply and its results, up to the next subgoal.
pub(super) fn ground_again(reply: &str, results: &str) -> String {
    let reply = strip(reply);
    format!(
        "{reply}\n\n{USER}The grounding could be based on the following results: {results}\nSubgoal to be grounded: "
    )
}

/// The first question of the try-again loop.
pub(super) fn ask(question: &str) -> String {
    format!("Question: {question}\nWrite the statement only, no output and no reward.")
}

/// The result of a try. A reply without a statement has the reward `0`, an integer as the original prints it.
pub(super) fn again(question: &str, observation: &str, reward: Option<f64>) -> String {
    let observation = if matches!(observation, "" | "[]") { "No output" } else { observation };
    let reward = reward.map_or_else(|| "0".to_owned(), repr_float);
    format!(
        "Output: {observation}\nReward: {reward}\nThe question was: {question}\nTry another statement to earn a reward \
         of 1. Write the statement only, no output and no reward."
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::families::prompts::next_subgoal;

    #[test]
    fn prompts_of_all_models() {
        let planner = plan("Who?", "library").into_text()
            + &plan_again("Subgoal 1: Look.\n", 1, "R1 = ListTables() = [('a',)]");
        let grounder = ground("Who?", "library").into_text()
            + &next_subgoal("Subgoal 1: Look.")
            + &ground_again("R1 = ListTables()", "R1 = ListTables() = [('a',)]")
            + &next_subgoal("No, I will keep planning. Subgoal 2: Ask.");
        let texts = [planner, grounder, INSTRUCTION.to_owned(), ask("Who?"), again("Who?", "[]", Some(0.5))];
        insta::assert_snapshot!(texts.join("\n=====\n"));
    }
}
