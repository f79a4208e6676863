//! Integration tests of the worker.

#[path = "../../../queue/tests/support/nats_server.rs"]
mod nats_server;

mod fleet;
mod serve;
mod session;
