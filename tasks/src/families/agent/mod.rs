//! Agents that are described by data: their prompts, their actions, and which tool executes each action.
//!
//! An [`AgentDefinition`] is part of a configuration. The machine of question answering ([`qa`](super::qa)) runs it:
//! the built-in agent of HotpotQA and StrategyQA is such a definition, and a task file can contain another one.
//! `arguments` parses what the grounder wrote for an action of an external tool, and `result` formats its reply.

mod arguments;
mod definition;
mod external;
mod problems;
mod result;

pub(crate) use definition::Operation;
pub use definition::{
    ActionDefinition, AgentDefinition, ArgumentDefinition, ArgumentType, FinalAnswer, ShownResults,
};
pub(crate) use external::execute;
