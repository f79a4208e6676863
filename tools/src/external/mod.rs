//! Backends of tools that are not part of the program: `--tool NAME=exec:…`, `NAME=http://…` and `NAME=mcp:…`.
//!
//! | module | purpose |
//! |---|---|
//! | [`command`] | a command line: its words, and the hash of its files |
//! | [`limits`] | time, memory and number of processes |
//! | [`message`] | requests and replies as JSON, for programs and servers |
//! | [`process`] | a program in its own process group, with a restricted environment |
//! | [`exec`] | programs that answer one line of JSON with one line of JSON |
//! | [`service`] | servers that answer a JSON object with a JSON object |
//! | `mcp` | servers of the Model Context Protocol |
//!
//! A tool that rejects a call returns a message for the agent. All other failures are faults: a program that exits, hangs
//! or writes something else, a server that does not respond.

mod command;
pub(super) mod exec;
mod limits;
#[cfg(feature = "mcp")]
pub(super) mod mcp;
mod message;
mod process;
pub(super) mod service;

/// The module `mcp` of a build without the feature `mcp`: every use is an error.
#[cfg(not(feature = "mcp"))]
pub(super) mod mcp {
    use crate::backend::{BackendDescription, BackendError};
    use crate::tool::not_built_with;

    /// `NAME=mcp:…`.
    pub(crate) const BACKEND: BackendDescription = BackendDescription {
        tool: None,
        forms: &[],
        parse: |_, backend| match backend.starts_with("mcp:") {
            true => Err(BackendError::Unusable(not_built_with("mcp"))),
            false => Ok(None),
        },
    };
}
