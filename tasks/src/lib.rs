//! The data types of lumos and the agent's logic, without I/O.
//!
//! Everything in this crate is a plain value or a pure state machine: an [`Episode`] returns what it needs
//! next, and a driver elsewhere performs the request and feeds the reply back. Recorded cases, live models
//! and tests run the same code.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod attribution;
mod call;
mod configuration;
mod dialogue;
mod engine_use;
mod episode;
pub mod families;
pub mod fleet;
mod formulation;
mod identity;
mod item;
pub mod outcome;
mod placement;
mod progress;
mod prompt_format;
pub mod python;
pub mod recorded;
mod request;
mod server_use;
pub mod shell;
mod unit;

pub use call::{
    ChatReply, ExternalReply, MathsReply, Passage, SqlGrade, SqlReply, ToolCall, ToolReply, WikiRequest,
};
pub use configuration::{Configuration, GenerationSettings, ModelIdentity, ToolBackend};
pub use dialogue::Dialogue;
pub use engine_use::EngineUse;
pub use episode::{Episode, Machine, Misfit, Next, Reply, Started, Want};
pub use fleet::RunToken;
pub use formulation::{Behaviour, Formulation, UnknownName};
pub use identity::{ContentHash, ItemId, UnitId};
pub use item::{AddedTask, AnswerForm, GoldStep, Item, Setup, Target, Task};
pub use outcome::{Ending, Evidence, Fault, FaultKind, Outcome, Reason, Stage, Step, Telemetry};
pub use placement::{BackendChoice, Device, Placement, PlacementError, Swap};
pub use progress::{Reminder, Throughput, stall_message};
pub use prompt_format::{PromptFormat, PromptTemplate, TemplatedPrompt};
pub use request::{
    Completion, DraftCounts, Finish, Input, Message, NanoDollars, Request, Role, Sampling, Stop,
};
pub use server_use::ServerUse;
pub use unit::{Assignment, Finished, WorkUnit};
