//! The planned form, in the style of Lumos-I: a planner writes one subgoal at a time, a grounder turns it
//! into actions, and the results are appended to both prompts. The loop follows the paper (section 3); the
//! actions are specific to lumos.

use std::collections::BTreeMap;

use crate::call::{SqlGrade, SqlReply, ToolCall, ToolReply};
use crate::configuration::Configuration;
use crate::episode::Want;
use crate::outcome::{
    Ending, Evidence, Observation, PlanEvidence, Reason, SqlEvidence, SqlTry, Stage, Step, Value,
};
use crate::request::Role;

use super::actions::{SqlAction, parse_action, split_actions};
use super::{cut, prompts, shown};

/// Maximum number of characters of a result in prompts.
const RESULT_CHARACTERS: usize = 1000;

/// The actions of one turn and the progress of their execution.
#[derive(Debug)]
struct Execution {
    plan: String,
    ground: String,
    actions: Vec<String>,
    at: usize,
}

/// The reply that the episode is waiting for.
#[derive(Debug)]
enum Phase {
    Planning,
    Grounding {
        plan: String,
    },
    /// A statement's result; it is assigned to a variable, or the statement is repeated for submission.
    Result {
        execution: Execution,
        variable: Option<String>,
        statement: String,
    },
    Grade {
        statement: String,
    },
    Ended,
}

/// The state machine of one episode.
#[derive(Debug)]
pub(crate) struct Planned {
    max_rounds: u32,
    turn: u32,
    phase: Phase,
    plan_prompt: String,
    ground_prompt: String,
    subgoals: Vec<String>,
    actions: Vec<String>,
    results: BTreeMap<String, Value>,
    /// The statements whose results can be submitted, by variable.
    statements: BTreeMap<String, String>,
    /// The statement whose result the database session currently holds.
    last: Option<String>,
    rounds_exhausted: bool,
}

impl Planned {
    pub(crate) fn start(question: &str, database: &str, configuration: &Configuration) -> (Self, Want) {
        let machine = Self {
            max_rounds: configuration.max_rounds.max(1),
            turn: 1,
            phase: Phase::Planning,
            plan_prompt: prompts::plan(question, database),
            ground_prompt: prompts::ground(question, database),
            subgoals: Vec::new(),
            actions: Vec::new(),
            results: BTreeMap::new(),
            statements: BTreeMap::new(),
            last: None,
            rounds_exhausted: false,
        };
        let want = Want::Generate { role: Role::Planner, prompt: machine.plan_prompt.clone() };
        (machine, want)
    }

    pub(crate) fn turn(&self) -> u32 {
        self.turn
    }

    /// Processes a model's reply; `None` if none was requested.
    pub(crate) fn completed(&mut self, reply: &str, steps: &mut Vec<Step>) -> Option<Want> {
        match std::mem::replace(&mut self.phase, Phase::Ended) {
            Phase::Planning if reply.contains(prompts::STOP_PLANNING) => Some(self.conclude()),
            Phase::Planning => {
                self.ground_prompt.push_str(&prompts::subgoal(reply));
                self.phase = Phase::Grounding { plan: reply.to_owned() };
                Some(Want::Generate { role: Role::Grounder, prompt: self.ground_prompt.clone() })
            }
            Phase::Grounding { plan } => {
                self.subgoals.push(plan.trim().to_owned());
                let actions = split_actions(reply).into_iter().map(str::to_owned).collect();
                Some(self.advance(Execution { plan, ground: reply.to_owned(), actions, at: 0 }, steps))
            }
            Phase::Result { .. } | Phase::Grade { .. } | Phase::Ended => None,
        }
    }

    /// Processes a tool's reply; `None` if it does not match the request.
    pub(crate) fn called(&mut self, reply: ToolReply, steps: &mut Vec<Step>) -> Option<Want> {
        match (std::mem::replace(&mut self.phase, Phase::Ended), reply) {
            (Phase::Result { mut execution, variable, statement }, ToolReply::Sql(reply)) => {
                self.last = Some(statement.clone());
                let Some(variable) = variable else { return Some(self.submit(statement)) };
                let result = cut(&shown(&reply), RESULT_CHARACTERS).to_owned();
                if matches!(reply, SqlReply::Rows { .. }) {
                    self.statements.insert(variable.clone(), statement);
                }
                let action = execution.actions.get(execution.at).cloned().unwrap_or_default();
                let observation = match &reply {
                    SqlReply::Error(_) => Observation::Refused(result.clone()),
                    SqlReply::Rows { .. } | SqlReply::Nothing => Observation::Text(result.clone()),
                };
                steps.push(Step::Action { turn: self.turn, action: action.clone(), observation });
                self.actions.push(format!("{action} = {result}"));
                self.results.insert(variable, result.into());
                execution.at += 1;
                Some(self.advance(execution, steps))
            }
            (Phase::Grade { statement }, ToolReply::SqlGrade(grade)) => Some(self.graded(statement, grade)),
            _ => None,
        }
    }

    /// Executes actions until a result is missing or all are done.
    fn advance(&mut self, mut execution: Execution, steps: &mut Vec<Step>) -> Want {
        while let Some(action) = execution.actions.get(execution.at) {
            let refused = match parse_action(action) {
                Ok((_, SqlAction::Submit(of))) => match self.statements.get(&of).cloned() {
                    Some(statement) => {
                        self.actions.push(action.clone());
                        return self.answer(execution, statement);
                    }
                    None => format!("{of} holds no result"),
                },
                Ok((variable, action)) => {
                    let statement = action.statement().unwrap_or_default();
                    self.phase =
                        Phase::Result { execution, variable: Some(variable), statement: statement.clone() };
                    return Want::Call(ToolCall::Sql { statement });
                }
                Err(failure) => failure.detail,
            };
            let observation = Observation::Refused(refused.clone());
            steps.push(Step::Action { turn: self.turn, action: action.clone(), observation });
            self.actions.push(format!("{action} = Error: {refused}"));
            execution.at += 1;
        }
        self.next_turn(&execution)
    }

    /// Submits a statement's result. The statement is repeated if the session no longer holds its result.
    fn answer(&mut self, execution: Execution, statement: String) -> Want {
        if self.last.as_deref() == Some(statement.as_str()) {
            return self.submit(statement);
        }
        self.phase = Phase::Result { execution, variable: None, statement: statement.clone() };
        Want::Call(ToolCall::Sql { statement })
    }

    fn submit(&mut self, statement: String) -> Want {
        self.phase = Phase::Grade { statement };
        Want::Call(ToolCall::SqlSubmit)
    }

    fn next_turn(&mut self, execution: &Execution) -> Want {
        let done = execution.actions.len().min(self.actions.len());
        let results = self.actions.get(self.actions.len() - done..).unwrap_or_default().join("; ");
        if self.turn == self.max_rounds {
            self.rounds_exhausted = true;
            return self.conclude();
        }
        self.plan_prompt.push_str(&prompts::plan_again(&execution.plan, self.turn, &results));
        self.ground_prompt.push_str(&prompts::ground_again(&execution.ground, &results));
        self.turn += 1;
        self.phase = Phase::Planning;
        Want::Generate { role: Role::Planner, prompt: self.plan_prompt.clone() }
    }

    /// Planning ended without a submission: submits the last result.
    fn conclude(&mut self) -> Want {
        match self.last.clone().filter(|last| self.statements.values().any(|statement| statement == last)) {
            Some(statement) => self.submit(statement),
            None => {
                let stage = if self.rounds_exhausted { Stage::Limit } else { Stage::Planner };
                let detail = "planning ended and the last action has no result to submit".to_owned();
                let reason = Reason { stage, turn: self.turn, detail };
                self.end(Ending::GaveUp(reason), None, Vec::new())
            }
        }
    }

    fn graded(&mut self, statement: String, grade: SqlGrade) -> Want {
        let tried = SqlTry {
            action: statement.clone(),
            observation: String::new(),
            executed: true,
            reward: grade.reward,
            grade: Some(grade),
        };
        self.end(Ending::Answered, Some(statement.into()), vec![tried])
    }

    fn end(&mut self, ending: Ending, prediction: Option<Value>, tries: Vec<SqlTry>) -> Want {
        self.phase = Phase::Ended;
        let plan = PlanEvidence {
            prediction,
            subgoals: std::mem::take(&mut self.subgoals),
            actions: std::mem::take(&mut self.actions),
            results: Some(std::mem::take(&mut self.results)),
            rounds_exhausted: self.rounds_exhausted,
            raised: None,
        };
        Want::Done { ending, evidence: Evidence::Sql(SqlEvidence { plan, tries, turns: self.turn }) }
    }
}
