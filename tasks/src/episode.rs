//! [`Episode`]: the agent loop as a state machine without I/O. It returns what it needs next ([`Next`]) and
//! is fed the reply ([`Reply`]).
//!
//! Families implement the loop; the driver performs the requests and records the [`Outcome`].

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::call::{ToolCall, ToolReply};
use crate::configuration::Configuration;
use crate::families::{judge, maths, qa, shop, sql, web};
use crate::identity::UnitId;
use crate::item::Task;
use crate::outcome::{Ending, Evidence, Fault, Outcome, Step};
use crate::request::{Completion, Input, Request, Role, Stop};
use crate::unit::EpisodeUnit;

/// The next request of an episode.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Next {
    /// A model's reply.
    Generate(Request),
    /// A tool's reply.
    Call(ToolCall),
    /// Nothing: the episode has ended.
    Done,
}

/// A reply that an episode is fed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// A model's reply.
    Completion(Completion),
    /// A tool's reply.
    Tool(ToolReply),
}

/// A reply of a different kind from the requested one: a bug in the driver.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("the episode received {got}, but requested {asked}")]
pub struct Misfit {
    asked: &'static str,
    got: &'static str,
}

/// A request of a family's state machine.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one at a time, and it is taken apart at once")]
pub(crate) enum Want {
    Generate { role: Role, prompt: String },
    Call(ToolCall),
    Done { ending: Ending, evidence: Evidence },
}

/// The state machine of one family.
#[derive(Debug)]
enum Machine {
    Maths(maths::Machine),
    Qa(qa::Machine),
    Judge(judge::Machine),
    Web(web::Machine),
    Sql(Box<sql::Machine>),
    Shop(shop::Machine),
}

impl Machine {
    fn turn(&self) -> u32 {
        match self {
            Self::Maths(machine) => machine.turn(),
            Self::Qa(machine) => machine.turn(),
            Self::Judge(_) => 1,
            Self::Web(machine) => machine.turn(),
            Self::Sql(machine) => machine.turn(),
            Self::Shop(machine) => machine.turn(),
        }
    }

    /// Processes a model's reply; `None` if the family did not request one.
    fn completed(&mut self, reply: &str, steps: &mut Vec<Step>) -> Option<Want> {
        match self {
            Self::Maths(machine) => Some(machine.completed(reply, steps)),
            Self::Qa(machine) => Some(machine.completed(reply, steps)),
            Self::Judge(_) => None,
            Self::Web(machine) => Some(machine.completed(reply, steps)),
            Self::Sql(machine) => machine.completed(reply, steps),
            Self::Shop(machine) => Some(machine.completed(reply, steps)),
        }
    }

    /// Processes a tool's reply; `None` if the family did not call that tool.
    fn called(&mut self, reply: ToolReply, steps: &mut Vec<Step>) -> Option<Want> {
        match (self, reply) {
            (Self::Maths(machine), ToolReply::Maths(reply)) => Some(machine.called(reply, steps)),
            (Self::Maths(_), _) => None,
            (Self::Qa(machine), reply) => Some(machine.called(reply, steps)),
            (Self::Judge(machine), reply) => machine.called(reply),
            (Self::Web(machine), reply) => machine.called(reply, steps),
            (Self::Sql(machine), reply) => machine.called(reply, steps),
            (Self::Shop(machine), reply) => Some(machine.called(reply, steps)),
        }
    }
}

/// Whether the reply matches the call.
fn answers(call: &ToolCall, reply: &ToolReply) -> bool {
    match (call, reply) {
        (ToolCall::Maths { .. }, ToolReply::Maths(_))
        | (ToolCall::Wiki { .. }, ToolReply::Wiki(_))
        | (ToolCall::Search { .. }, ToolReply::Search(_))
        | (ToolCall::Chat { .. }, ToolReply::Chat(_))
        | (ToolCall::Candidates { .. }, ToolReply::Candidates(_))
        | (ToolCall::Carry(_), ToolReply::Carried(_))
        | (ToolCall::Sql { .. }, ToolReply::Sql(_))
        | (ToolCall::SqlSubmit, ToolReply::SqlGrade(_))
        | (ToolCall::Shop(_), ToolReply::Shop(_)) => true,
        (ToolCall::Rank { passages, .. }, ToolReply::Rank(scores)) => passages.len() == scores.len(),
        (
            ToolCall::Maths { .. } | ToolCall::Carry(_) | ToolCall::Sql { .. } | ToolCall::SqlSubmit,
            ToolReply::Raised { .. },
        ) => false,
        (_, ToolReply::Raised { .. }) => true,
        _ => false,
    }
}

/// One episode: an item under one configuration.
///
/// ```
/// # use lumos_tasks::{
/// #     Behaviour, Configuration, ContentHash, EpisodeUnit, Formulation, GenerationSettings, ItemId, Setup,
/// #     Task,
/// # };
/// use lumos_tasks::outcome::Value;
/// use lumos_tasks::{Completion, Episode, MathsReply, Next, Reply, ToolReply};
///
/// # let configuration = Configuration {
/// #     benchmark: "gsm8k".to_owned(),
/// #     formulation: Formulation::Iterative,
/// #     behaviour: Behaviour::Paper,
/// #     max_rounds: 8,
/// #     models: Default::default(),
/// #     tools: Vec::new(),
/// #     generation: GenerationSettings::default(),
/// #     seed: 0,
/// #     prompts: lumos_tasks::families::maths::prompts_hash(),
/// # };
/// # let question = "A shelf holds 12 books. How many books do 4 shelves hold?".to_owned();
/// # let item = ItemId { content: ContentHash::of_bytes(question.as_bytes()), occurrence: 0 };
/// # let unit = EpisodeUnit::new(item, Task::Maths { question }, Setup::None, configuration.into());
/// let replies = ["Subgoal 1: Multiply.", "R1 = Calculator(12 * 4)", "Yes, I will stop planning."];
/// let mut replies = replies.into_iter();
/// let mut episode = Episode::start(&unit);
/// let outcome = loop {
///     let reply = match episode.next() {
///         Next::Generate(_) => Reply::Completion(Completion::recorded(replies.next().unwrap())),
///         Next::Call(_) => Reply::Tool(ToolReply::Maths(MathsReply::One("48".to_owned()))),
///         Next::Done => break episode.finish(),
///     };
///     episode.feed(reply)?;
/// };
/// let evidence = outcome.evidence.unwrap();
/// assert_eq!(evidence.plan().unwrap().prediction, Some(Value::from("48")));
/// # Ok::<(), lumos_tasks::Misfit>(())
/// ```
#[derive(Debug)]
pub struct Episode {
    unit: UnitId,
    generation: crate::configuration::GenerationSettings,
    machine: Machine,
    generated: u32,
    next: Next,
    steps: Vec<Step>,
    end: Option<(Ending, Evidence)>,
}

impl Episode {
    /// Starts the episode of a unit.
    pub fn start(unit: &EpisodeUnit) -> Self {
        let configuration: &Configuration = &unit.configuration;
        let (machine, want) = match &unit.task {
            Task::Maths { question } => {
                let (machine, want) = maths::Machine::start(question, configuration);
                (Machine::Maths(machine), want)
            }
            Task::Qa { question, answer } => {
                let (machine, want) = qa::Machine::start(question, *answer, configuration);
                (Machine::Qa(machine), want)
            }
            Task::Judge { messages, max_new_tokens } => {
                let (machine, want) = judge::Machine::start(messages, *max_new_tokens);
                (Machine::Judge(machine), want)
            }
            Task::Web { task, steps, teacher_forced_history, verbs } => {
                let task = web::WebTask { task, steps: *steps, teacher_forced_history, verbs };
                let (machine, want) = web::Machine::start(task, &unit.item, configuration);
                (Machine::Web(machine), want)
            }
            Task::Sql { question, database } => {
                let (machine, want) = sql::Machine::start(question, database, configuration);
                (Machine::Sql(Box::new(machine)), want)
            }
            Task::Shop { instruction, exemplars } => {
                let (machine, want) = shop::Machine::start(instruction, exemplars.as_ref(), configuration);
                (Machine::Shop(machine), want)
            }
        };
        let mut episode = Self {
            unit: unit.id.clone(),
            generation: configuration.generation,
            machine,
            generated: 0,
            next: Next::Done,
            steps: Vec::new(),
            end: None,
        };
        episode.settle(want);
        episode
    }

    /// The current request of the episode.
    pub fn next(&self) -> &Next {
        &self.next
    }

    /// The current planner turn, counted from 1.
    pub fn turn(&self) -> u32 {
        self.machine.turn()
    }

    /// The steps so far.
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Feeds the reply to the current request.
    ///
    /// # Errors
    /// Fails if the reply is of a different kind from the requested one; the episode is unchanged in that
    /// case.
    pub fn feed(&mut self, reply: Reply) -> Result<(), Misfit> {
        let turn = self.turn();
        let want = match (&self.next, reply) {
            (Next::Generate(request), Reply::Completion(completion)) => {
                self.steps.push(Step::Generate {
                    turn,
                    role: request.role,
                    prompt: request.prompt().to_owned(),
                    reply: completion.text.clone(),
                    finish: completion.finish,
                    prompt_tokens: completion.prompt_tokens,
                    completion_tokens: completion.completion_tokens,
                });
                match self.machine.completed(&completion.text, &mut self.steps) {
                    Some(want) => want,
                    None => return Err(Misfit { asked: "a tool's reply", got: "a completion" }),
                }
            }
            (Next::Call(call), Reply::Tool(reply)) if answers(call, &reply) => {
                let step = Step::Call { turn, call: call.clone(), reply: reply.for_trajectory() };
                self.steps.push(step);
                match self.machine.called(reply, &mut self.steps) {
                    Some(want) => want,
                    None => return Err(Misfit { asked: "its own tool's reply", got: "another tool's" }),
                }
            }
            (next, reply) => return Err(misfit(next, &reply)),
        };
        self.settle(want);
        Ok(())
    }

    /// Ends the episode and returns its record. An episode that has not ended yet becomes a fault of the
    /// worker.
    pub fn finish(self) -> Outcome {
        match self.end {
            Some((ending, evidence)) => Outcome { ending, evidence: Some(evidence), steps: self.steps },
            None => self.abandon(Fault {
                kind: crate::outcome::FaultKind::Worker,
                message: "the episode was not executed to its end".to_owned(),
            }),
        }
    }

    /// Ends the episode with an infrastructure fault and returns its record.
    pub fn abandon(self, fault: Fault) -> Outcome {
        Outcome { ending: Ending::Faulted(fault), evidence: None, steps: self.steps }
    }

    fn settle(&mut self, want: Want) {
        self.next = match want {
            Want::Generate { role, prompt } => {
                let request = Request {
                    role,
                    input: Input::Raw(prompt),
                    stop: Stop::Newline,
                    max_new_tokens: self.generation.max_new_tokens,
                    sampling: self.generation.sampling,
                    seed: self.unit.seed(self.generated),
                };
                self.generated += 1;
                Next::Generate(request)
            }
            Want::Call(call) => Next::Call(call),
            Want::Done { ending, evidence } => {
                self.end = Some((ending, evidence));
                Next::Done
            }
        };
    }
}

fn misfit(next: &Next, reply: &Reply) -> Misfit {
    Misfit {
        asked: match next {
            Next::Generate(_) => "a completion",
            Next::Call(_) => "its own tool's reply",
            Next::Done => "nothing",
        },
        got: match reply {
            Reply::Completion(_) => "a completion",
            Reply::Tool(_) => "a tool's reply",
        },
    }
}
