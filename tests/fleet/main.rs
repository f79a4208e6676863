//! Tests with coordinator and workers as processes and a real nats-server.
//!
//! The server is `LUMOS_NATS_SERVER` or `nats-server` on the path. Without one these tests are skipped.
//! `LUMOS_NATS_SERVER_CURRENT` names a server of a newer version, which is then also tested.

mod access;
mod browsers;
mod certificates;
mod clock;
#[allow(dead_code, reason = "shared with the other integration tests, which use more of it")]
#[path = "../it/disk.rs"]
mod disk;
mod faults;
mod fleet;
mod fresh;
#[path = "../../queue/tests/support/nats_server.rs"]
mod nats;
mod permissions;
#[allow(dead_code, reason = "shared with the other integration tests, which use more of it")]
#[path = "../it/support.rs"]
mod program;
#[path = "../../queue/tests/support/proxy.rs"]
mod proxy;
#[allow(dead_code, reason = "shared with the benches, which use more of it")]
mod rehearsal;
mod runs;
#[allow(dead_code, reason = "shared with the campaign, which uses more of it")]
mod scripts;
mod security;
mod worlds;
