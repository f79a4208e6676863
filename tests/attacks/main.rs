//! The attacks in docs/security.md, run end to end against the program.
//!
//! Every test prints one line per attack: its row in the table, the attack, the result, and the peak memory
//! (`VmHWM`) of the attacked process. `just attacks` runs the long form on the release build. `LUMOS_PROGRAM`
//! selects another program, and `LUMOS_ATTACKS=full` the long form of attacks that also have a short one.

#![cfg(target_os = "linux")]

mod bus;
#[path = "../fleet/certificates.rs"]
mod certificates;
mod files;
#[allow(dead_code, reason = "shared with the tests of fleets, which use more of it")]
#[path = "../fleet/fleet.rs"]
mod fleet;
#[allow(dead_code, reason = "shared with the other integration tests, which use more of it")]
#[path = "../it/followed.rs"]
mod followed;
mod http;
#[path = "../../tools/tests/support/mariadb.rs"]
mod mariadb;
#[path = "../it/model_server.rs"]
#[allow(dead_code, reason = "shared with the other integration tests, which use more of it")]
mod model_server;
#[path = "../../queue/tests/support/nats_server.rs"]
mod nats;
mod record;
#[path = "../../tools/tests/support/rogue_server.rs"]
mod rogue_server;
mod secrets;
#[path = "../it/serving.rs"]
#[allow(dead_code, reason = "shared with the other integration tests, which use more of it")]
mod serving;
mod sql;
mod sql_agent;
#[path = "../../tools/tests/support/statements.rs"]
mod statements;
#[allow(dead_code, reason = "shared with the other integration tests, which use more of it")]
#[path = "../it/support.rs"]
mod support;
mod tls;

use support as program;
