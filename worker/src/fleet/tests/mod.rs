//! A worker in a fleet: policy, shards, leases and spool separately, then the whole worker with a real
//! nats-server.

mod catalogue;
mod leases;
#[path = "../../../../queue/tests/support/nats_server.rs"]
mod nats_server;
mod policy;
mod server;
mod shards;
mod spool;
mod stall;
mod support;
