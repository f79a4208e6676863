//! The planned form as a [`Family`], in the style of Lumos-I: a planner writes one subgoal at a time, a grounder
//! turns it into actions, and the results are appended to both prompts. The loop follows the paper (section 3);
//! the actions are specific to lumos.

use std::collections::BTreeMap;

use super::actions::{SqlAction, parse_action, split_actions};
use super::{cut, prompts, shown};
use crate::call::{SqlGrade, SqlReply, ToolCall, ToolReply};
use crate::configuration::Configuration;
use crate::episode::{Started, Want};
use crate::families::Failure;
use crate::families::plan_loop::{Family, LoopState, PlanLoop, Turn};
use crate::families::prompts::{STOP_PLANNING, next_subgoal, plan_again};
use crate::outcome::{Evidence, Observation, SqlEvidence, SqlTry, Stage, Value};

/// Maximum number of characters of a result in prompts.
const RESULT_CHARACTERS: usize = 1000;

#[derive(Debug, Default)]
pub(super) struct Planned {
    results: BTreeMap<String, Value>,
    /// The statements whose results can be submitted, by variable.
    statements: BTreeMap<String, String>,
    /// The statement whose result the database session currently holds.
    last: Option<String>,
}

impl Planned {
    pub(super) fn start(question: &str, database: &str, configuration: &Configuration) -> Started {
        let (plan, ground) = (prompts::plan(question, database), prompts::ground(question, database));
        PlanLoop::start(Self::default(), configuration.max_rounds, plan, ground)
    }

    /// Submits a statement's result. The statement is repeated if the session no longer holds its result.
    fn submit(&mut self, statement: String, replies: &[ToolReply], state: &mut LoopState) -> Want {
        match replies.last() {
            Some(ToolReply::SqlGrade(grade)) => self.graded(statement, *grade, state),
            None if self.last.as_ref() != Some(&statement) => Want::Call(ToolCall::Sql { statement }),
            _ => Want::Call(ToolCall::SqlSubmit),
        }
    }

    fn graded(&mut self, statement: String, grade: SqlGrade, state: &mut LoopState) -> Want {
        let tried = SqlTry {
            action: statement.clone(),
            observation: String::new(),
            executed: true,
            reward: grade.reward,
            grade: Some(grade),
        };
        self.end(Ok(statement.into()), vec![tried], state)
    }

    fn end(&mut self, prediction: Result<Value, Failure>, tries: Vec<SqlTry>, state: &mut LoopState) -> Want {
        let (results, turns) = (std::mem::take(&mut self.results), state.turn);
        state.end_with(prediction, Some(results), None, |plan| {
            Evidence::Sql(SqlEvidence { plan, tries, turns })
        })
    }
}

impl Family for Planned {
    const STRIP: fn(&str) -> &str = str::trim;

    fn stops(&self, plan: &str) -> bool {
        plan.contains(STOP_PLANNING)
    }

    fn subgoal(&self, plan: &str, _state: &LoopState) -> String {
        next_subgoal(plan)
    }

    fn actions(&mut self, reply: &str, _state: &mut LoopState) -> Vec<String> {
        split_actions(reply).into_iter().map(str::to_owned).collect()
    }

    fn execute(&mut self, action: &str, turn: &Turn, state: &mut LoopState) -> Result<(), Want> {
        let refused = match parse_action(action) {
            Ok((_, SqlAction::Submit(of))) => match self.statements.get(&of).cloned() {
                Some(statement) => {
                    if turn.replies.is_empty() {
                        state.actions.push(action.to_owned());
                    }
                    return Err(self.submit(statement, &turn.replies, state));
                }
                None => format!("{of} holds no result"),
            },
            Ok((variable, parsed)) => {
                let statement = parsed.statement().unwrap_or_default();
                let Some(ToolReply::Sql(reply)) = turn.replies.first() else {
                    return Err(Want::Call(ToolCall::Sql { statement }));
                };
                self.last = Some(statement.clone());
                let result = cut(&shown(reply), RESULT_CHARACTERS).to_owned();
                if matches!(reply, SqlReply::Rows { .. }) {
                    self.statements.insert(variable.clone(), statement);
                } else {
                    self.statements.remove(&variable);
                }
                let observation = match reply {
                    SqlReply::Error(_) => Observation::Refused(result.clone()),
                    SqlReply::Rows { .. } | SqlReply::Nothing => Observation::Text(result.clone()),
                };
                state.observe(action, observation);
                state.actions.push(format!("{action} = {result}"));
                self.results.insert(variable, result.into());
                return Ok(());
            }
            Err(failure) => failure.detail,
        };
        state.observe(action, Observation::Refused(refused.clone()));
        state.actions.push(format!("{action} = Error: {refused}"));
        Ok(())
    }

    fn next_turn(&mut self, turn: &Turn, state: &mut LoopState) -> Result<(String, String), Want> {
        let earlier = state.actions.len().saturating_sub(turn.actions.len());
        let results = state.actions.get(earlier..).unwrap_or_default().join("; ");
        let plan = plan_again(&turn.plan, state.turn, &results);
        Ok((plan, prompts::ground_again(&turn.ground, &results)))
    }

    /// Submits the last result, because planning ended without a submission.
    fn conclude(&mut self, replies: &[ToolReply], state: &mut LoopState) -> Want {
        match self.last.clone().filter(|last| self.statements.values().any(|statement| statement == last)) {
            Some(statement) => self.submit(statement, replies, state),
            None => {
                let stage = if state.rounds_exhausted { Stage::Limit } else { Stage::Planner };
                let detail = "planning ended and the last action has no result to submit";
                self.end(Err(Failure::new(stage, detail)), Vec::new(), state)
            }
        }
    }
}
