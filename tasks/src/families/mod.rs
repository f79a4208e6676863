//! Action families: the prompts, the action list, the parser and the execution of each domain.

pub mod maths;
