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
#[cfg_attr(not(feature = "mcp"), path = "mcp_absent.rs")]
pub(super) mod mcp;
mod message;
mod process;
pub(super) mod service;
