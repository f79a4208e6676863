//! [`Episode`]: the agent loop as a state machine without I/O. It returns what it needs next ([`Next`]) and
//! is fed the reply ([`Reply`]).
//!
//! Families implement the loop; the driver performs the requests and records the [`Outcome`].

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::attribution::attributed;
use crate::call::{ToolCall, ToolReply};
use crate::configuration::Configuration;
use crate::dialogue::Dialogue;
use crate::families::one_request::Judge;
use crate::families::{ExampleSet, added, maths, opening, qa, shop, sql, web};
use crate::identity::UnitId;
use crate::item::Task;
use crate::outcome::{Ending, Evidence, Fault, Outcome, Step};
use crate::prompt_format::{PromptFormat, PromptTemplate, TemplatedPrompt};
use crate::request::{Completion, Input, Request, Role, Stop};
use crate::unit::WorkUnit;

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
pub enum Want {
    /// A model's reply.
    Generate {
        /// The model's role.
        role: Role,
        /// The conversation so far.
        prompt: Dialogue,
    },
    /// A tool's reply.
    Call(ToolCall),
    /// Nothing: the episode has ended.
    Done {
        /// How.
        ending: Ending,
        /// Its record.
        evidence: Box<Evidence>,
    },
}

impl From<ToolCall> for Want {
    fn from(call: ToolCall) -> Self {
        Self::Call(call)
    }
}

/// The state machine of one episode of a family. Plan, ground and execute is
/// [`PlanLoop`](crate::families::plan_loop::PlanLoop).
pub trait Machine: fmt::Debug + Send + Sync {
    /// The current planner turn, counted from 1.
    fn turn(&self) -> u32 {
        1
    }

    /// Processes a model's reply and records executed actions; `None` if the family did not request one.
    fn completed(&mut self, _reply: &str, _steps: &mut Vec<Step>) -> Option<Want> {
        None
    }

    /// Processes a tool's reply and records executed actions; `None` if the family did not call that tool.
    fn called(&mut self, _reply: ToolReply, _steps: &mut Vec<Step>) -> Option<Want> {
        None
    }
}

/// A state machine and its first request.
pub type Started = (Box<dyn Machine>, Want);

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
        | (ToolCall::Shop(_), ToolReply::Shop(_))
        | (ToolCall::External { .. }, ToolReply::External(_)) => true,
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
/// #     Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, ItemId, Setup, Task,
/// #     WorkUnit,
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
/// #     format: Default::default(),
/// #     agent: None,
/// # };
/// # let question = "A shelf holds 12 books. How many books do 4 shelves hold?".to_owned();
/// # let item = ItemId { content: ContentHash::of_bytes(question.as_bytes()), occurrence: 0 };
/// # let unit = WorkUnit::new(item, Task::Maths { question }, Setup::None, configuration.into());
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
    configuration: Arc<Configuration>,
    examples: ExampleSet,
    machine: Box<dyn Machine>,
    generated: u32,
    next: Next,
    steps: Vec<Step>,
    end: Option<(Ending, Evidence)>,
}

impl Episode {
    /// Starts the episode of a unit.
    pub fn start(unit: &WorkUnit) -> Self {
        let configuration: &Configuration = &unit.configuration;
        let (machine, want) = match &unit.task {
            Task::Maths { question } => maths::start(question, configuration),
            Task::Qa { question, answer } => qa::start(question, *answer, configuration),
            Task::Judge { messages, max_new_tokens } => Judge::start(messages, *max_new_tokens),
            Task::Web { task, steps, teacher_forced_history, verbs } => {
                web::start(task, *steps, teacher_forced_history, verbs, &unit.item, configuration)
            }
            Task::Sql { question, database } => sql::start(question, database, configuration),
            Task::Shop { instruction, exemplars } => {
                shop::start(instruction, exemplars.as_ref(), configuration)
            }
            Task::Added(task) => added::start(task, configuration),
        };
        let mut episode = Self {
            unit: unit.id.clone(),
            configuration: Arc::clone(&unit.configuration),
            examples: ExampleSet::of(&unit.task, &unit.configuration),
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

    /// The input of a model: the conversation's text, or its messages if the model takes another layout.
    fn input(&self, role: Role, prompt: Dialogue) -> Input {
        let Configuration { format, formulation, .. } = &*self.configuration;
        let is_chat = self.configuration.is_chat(role);
        let template = if is_chat { PromptTemplate::Chat } else { format.template.clone() };
        if template == PromptTemplate::Tulu {
            return Input::Raw(prompt.into_text());
        }
        let usual = is_chat.then_some(PromptFormat::USUAL_EXEMPLARS);
        let mut messages = match format.exemplars.or(usual) {
            Some(exemplars) => opening(role, &self.examples, *formulation, exemplars),
            None => Vec::new(),
        };
        let (conversation, reply_start) = prompt.messages();
        messages.extend(conversation);
        let reply_start = reply_start.to_owned();
        Input::Templated(Box::new(TemplatedPrompt {
            text: prompt.into_text(),
            messages,
            reply_start,
            template,
        }))
    }

    fn settle(&mut self, want: Want) {
        let generation = self.configuration.generation;
        self.next = match want {
            Want::Generate { role, prompt } => {
                let request = Request {
                    role,
                    input: self.input(role, prompt),
                    stop: Stop::Newline,
                    max_new_tokens: generation.max_new_tokens,
                    sampling: generation.sampling,
                    seed: self.unit.seed(self.generated),
                };
                self.generated += 1;
                Next::Generate(request)
            }
            Want::Call(call) => Next::Call(call),
            Want::Done { ending, evidence } => {
                self.end = Some((attributed(ending, &evidence, &self.steps), *evidence));
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
