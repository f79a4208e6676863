//! The attacks in docs/security.md, run end to end against the program.
//!
//! Every test prints one line per attack: its row in the table, the attack, the result, and the peak memory
//! (`VmHWM`) of the attacked process. `just attacks` runs the long form on the release build. `LUMOS_PROGRAM`
//! selects another program, and `LUMOS_ATTACKS=full` the long form of attacks that also have a short one.

mod bus;
mod files;
mod http;
mod record;
#[path = "../../../tools/tests/support/rogue_server.rs"]
mod rogue_server;
mod secrets;
mod sql;
mod sql_agent;
#[path = "../../../tools/tests/support/statements.rs"]
mod statements;
mod tls;
