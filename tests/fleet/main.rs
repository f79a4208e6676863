//! Coordinator and workers as processes, with a real nats-server between them.
//!
//! The server is found as `LUMOS_NATS_SERVER` or `nats-server` on the path; where there is none, these tests say that
//! they are skipped. `LUMOS_NATS_SERVER_CURRENT` names a server of a newer generation, which is then tried as well.

mod browsers;
mod chaos;
mod fleet;
mod namespace;
#[path = "../../queue/tests/support/nats_server.rs"]
mod nats;
#[allow(dead_code, reason = "shared with the other integration tests, which use more of it")]
#[path = "../it/support.rs"]
mod program;
#[allow(dead_code, reason = "shared with the benches, which use more of it")]
mod rehearsal;
mod runs;
mod security;
mod worlds;
