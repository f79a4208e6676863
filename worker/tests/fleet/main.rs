//! A worker among many: policy, lanes, leases and spool each by itself, then the whole against a real nats-server.

mod catalogue;
mod lanes;
mod leases;
#[path = "../../../queue/tests/support/nats_server.rs"]
mod nats_server;
mod policy;
mod server;
mod spool;
mod stall;
mod support;
