//! The benchmark's own loop (upstream `experiments/eval_n_turn.py`): a chat model writes a statement, gets
//! its result and reward, and tries again.
//!
//! It has one conversation instead of a planner's and a grounder's prompt, and one statement per turn, so it is not a
//! [`PlanLoop`](crate::families::plan_loop::PlanLoop).

use crate::call::{SqlGrade, SqlReply, ToolCall, ToolReply};
use crate::configuration::Configuration;
use crate::episode::{Machine, Started, Want};
use crate::families::Failure;
use crate::formulation::Behaviour;
use crate::outcome::{Ending, Evidence, PlanEvidence, SqlEvidence, SqlTry, Stage, Step};
use crate::request::{Message, Role};

use super::parse::{ParsedSql, sql_parser};
use super::{prompts, shown};

/// The reply that the episode is waiting for.
#[derive(Debug)]
enum Phase {
    Reply,
    Result { statement: String },
    Grade { statement: String, reply: SqlReply },
    Ended,
}

/// The state machine of one episode.
#[derive(Debug)]
pub(super) struct TryAgain {
    question: String,
    behaviour: Behaviour,
    max_turns: u32,
    max_new_tokens: u32,
    turn: u32,
    phase: Phase,
    messages: Vec<Message>,
    tries: Vec<SqlTry>,
}

fn message(role: &str, content: String) -> Message {
    Message { role: role.to_owned(), content }
}

impl TryAgain {
    pub(super) fn start(question: &str, configuration: &Configuration) -> Started {
        let machine = Self {
            question: question.to_owned(),
            behaviour: configuration.behaviour,
            max_turns: configuration.max_rounds.max(1),
            max_new_tokens: configuration.generation.max_new_tokens.min(prompts::MAX_REPLY_TOKENS),
            turn: 1,
            phase: Phase::Reply,
            messages: vec![
                message("system", prompts::INSTRUCTION.to_owned()),
                message("user", prompts::ask(question)),
            ],
            tries: Vec::new(),
        };
        let want = machine.ask();
        (Box::new(machine), want)
    }

    fn ask(&self) -> Want {
        Want::Call(ToolCall::Chat {
            role: Role::Answerer,
            messages: self.messages.clone(),
            max_new_tokens: self.max_new_tokens,
        })
    }

    fn replied(&mut self, reply: &str) -> Want {
        let parsed = match (sql_parser(reply), self.behaviour) {
            (Ok(parsed), _) => parsed,
            // The original's whole run ends here; lumos continues with the other items.
            (Err(empty), Behaviour::Paper) => {
                let failure = Failure::new(Stage::GrounderUnparsable, empty.to_string());
                return self.end(failure.ending(self.turn));
            }
            (Err(_), Behaviour::Corrected) => ParsedSql { action: reply.to_owned(), is_code: false },
        };
        self.messages.push(message("assistant", parsed.action.clone()));
        if parsed.is_code {
            let statement = parsed.action;
            self.phase = Phase::Result { statement: statement.clone() };
            Want::Call(ToolCall::Sql { statement })
        } else {
            self.tried(parsed.action, prompts::NO_CODE.to_owned(), false, None)
        }
    }

    fn tried(
        &mut self,
        action: String,
        observation: String,
        executed: bool,
        grade: Option<SqlGrade>,
    ) -> Want {
        let reward = grade.map_or(0.0, |grade| grade.reward);
        let gives_up = action.to_lowercase() == "skip";
        let is_right = match self.behaviour {
            Behaviour::Paper => reward == 1.0,
            Behaviour::Corrected => grade.is_some_and(|grade| grade.is_same),
        };
        let next = prompts::again(&self.question, &observation, grade.map(|grade| grade.reward));
        self.tries.push(SqlTry { action, observation, executed, reward, grade });
        if is_right {
            return self.end(Ending::Answered);
        }
        if gives_up || self.turn == self.max_turns {
            let answered = self.tries.iter().any(|one| one.grade.is_some());
            let detail = if gives_up { "the model skips the item" } else { "the turns are used up" };
            let gave_up = Failure::new(Stage::Limit, detail).ending(self.turn);
            return self.end(if answered { Ending::Answered } else { gave_up });
        }
        self.messages.push(message("user", next));
        self.forget();
        self.turn += 1;
        self.phase = Phase::Reply;
        self.ask()
    }

    /// Keeps the first two messages and the latest ones.
    fn forget(&mut self) {
        let kept = prompts::DIALOGUE_LIMIT;
        if self.messages.len() > 2 + kept {
            let latest = self.messages.len() - kept;
            self.messages.drain(2..latest);
        }
    }

    fn end(&mut self, ending: Ending) -> Want {
        self.phase = Phase::Ended;
        let mut evidence = SqlEvidence {
            tries: std::mem::take(&mut self.tries),
            turns: self.turn,
            ..SqlEvidence::default()
        };
        let best = evidence.best().and_then(|(at, _)| evidence.tries.get(at));
        let prediction = best.filter(|one| one.grade.is_some()).map(|one| one.action.as_str().into());
        evidence.plan = PlanEvidence { prediction, ..PlanEvidence::default() };
        Want::Done { ending, evidence: Box::new(Evidence::Sql(evidence)) }
    }
}

impl Machine for TryAgain {
    fn turn(&self) -> u32 {
        self.turn
    }

    fn called(&mut self, reply: ToolReply, _steps: &mut Vec<Step>) -> Option<Want> {
        match (std::mem::replace(&mut self.phase, Phase::Ended), reply) {
            (Phase::Reply, ToolReply::Chat(reply)) => Some(self.replied(&reply.text)),
            (Phase::Result { statement }, ToolReply::Sql(reply)) => {
                self.phase = Phase::Grade { statement, reply };
                Some(Want::Call(ToolCall::SqlSubmit))
            }
            (Phase::Grade { statement, reply }, ToolReply::SqlGrade(grade)) => {
                let observation = shown(&reply);
                let executed = !matches!(reply, SqlReply::Error(_));
                Some(self.tried(statement, observation, executed, Some(grade)))
            }
            _ => None,
        }
    }
}
